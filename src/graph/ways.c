/* SPDX-License-Identifier: MIT */
/* ways.c - how ranks may share the work of ops, where several ops have the same ways. */
#include "graph/op.h"

int op_axis_of(enum op_axis axis, const struct shape *shape)
{
    switch (axis) {
    case AXIS_0:
        return 0;
    case AXIS_1:
    case AXIS_PLACES:
        return 1;
    case AXIS_FEATURES:
        return shape->rank == 4 ? 1 : shape->rank - 1;
    case AXIS_NONE:
    case AXIS_SUM:
        break;
    }
    return -1;
}

const struct op_way op_ways_each[] = {
    { .name = "features", .in = { AXIS_FEATURES }, .out = { AXIS_FEATURES } },
    { .name = "places", .in = { AXIS_PLACES }, .out = { AXIS_PLACES } },
    { 0 },
};

const struct op_way op_ways_both[] = {
    { .name = "features", .in = { AXIS_FEATURES, AXIS_FEATURES }, .out = { AXIS_FEATURES } },
    { .name = "places", .in = { AXIS_PLACES, AXIS_PLACES }, .out = { AXIS_PLACES } },
    { 0 },
};

const struct op_way op_ways_pixels[] = {
    { .name = "channels", .in = { AXIS_FEATURES }, .out = { AXIS_FEATURES, AXIS_FEATURES } },
    { 0 },
};
