/* SPDX-License-Identifier: MIT */
/* slice.c - parts of tensors, cut along one axis. */
#include "tensor/slice.h"

#include <string.h>

static int parts_of(const struct shape_slice *slice)
{
    return slice->parts > 1 ? slice->parts : 1;
}

int64_t slice_extent(const struct shape_slice *slice, int64_t whole)
{
    if (slice->count == 0)
        return whole;
    const int64_t part = whole / parts_of(slice);
    return parts_of(slice) * (slice_begin(part, slice->index + 1, slice->count) -
                              slice_begin(part, slice->index, slice->count));
}

int64_t slice_whole(const struct shape_slice *slice, int64_t local)
{
    if (slice->count == 0)
        return local;
    return slice->whole > 0 ? slice->whole : local * slice->count;
}

struct shape slice_shape(const struct shape_slice *slice, const struct shape *whole)
{
    struct shape shape = *whole;

    if (slice->count > 0)
        shape.dim[slice->axis] = slice_extent(slice, whole->dim[slice->axis]);
    return shape;
}

struct shape slice_whole_shape(const struct shape_slice *slice, const struct shape *local)
{
    struct shape shape = *local;

    if (slice->count > 0)
        shape.dim[slice->axis] = slice_whole(slice, local->dim[slice->axis]);
    return shape;
}

/* Extents before the axis, one after the other. */
static int64_t outer_of(const struct shape_slice *slice, const struct shape *local)
{
    int64_t outer = 1;

    for (int i = 0; i < slice->axis; i++)
        outer *= local->dim[i];
    return outer;
}

int64_t slice_runs(const struct shape_slice *slice, const struct shape *local)
{
    return slice->count == 0 ? 1 : outer_of(slice, local) * parts_of(slice);
}

struct slice_run slice_run(const struct shape_slice *slice, const struct shape *local,
                           int64_t i)
{
    if (slice->count == 0)
        return (struct slice_run){ 0, 0, shape_count(local) };
    const int64_t own = local->dim[slice->axis] / parts_of(slice);
    const int64_t all = slice_whole(slice, local->dim[slice->axis]) / parts_of(slice);
    int64_t inner = 1;

    for (int d = slice->axis + 1; d < local->rank; d++)
        inner *= local->dim[d];
    return (struct slice_run){
        .whole = (i * all + slice_begin(all, slice->index, slice->count)) * inner,
        .local = i * own * inner,
        .count = own * inner,
    };
}

void slice_cut(const struct shape_slice *slice, const struct shape *local, size_t size,
               const void *whole, void *out)
{
    for (int64_t i = 0; i < slice_runs(slice, local); i++) {
        const struct slice_run run = slice_run(slice, local, i);
        memcpy((char *)out + (size_t)run.local * size,
               (const char *)whole + (size_t)run.whole * size, (size_t)run.count * size);
    }
}

void slice_put(const struct shape_slice *slice, const struct shape *local, size_t size,
               const void *part, void *whole)
{
    for (int64_t i = 0; i < slice_runs(slice, local); i++) {
        const struct slice_run run = slice_run(slice, local, i);
        memcpy((char *)whole + (size_t)run.whole * size,
               (const char *)part + (size_t)run.local * size, (size_t)run.count * size);
    }
}
