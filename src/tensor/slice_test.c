/* SPDX-License-Identifier: MIT */
/* slice_test.c - slices of a tensor put together are the tensor. */
#include "tensor/slice.h"

#include <string.h>

#include "base/rng.h"
#include "base/test.h"

enum { MOST = 4096 };

static void test_slices_make_the_whole(struct rng *rng)
{
    const int rank = 1 + (int)rng_below(rng, 3), count = 1 + (int)rng_below(rng, 4);
    const int parts = 1 + (int)rng_below(rng, 3);
    struct shape_slice slice = { .count = count, .axis = (int)rng_below(rng, (uint64_t)rank) };
    struct shape whole = { .rank = rank };
    int32_t from[MOST], back[MOST], part[MOST];

    for (int i = 0; i < rank; i++)
        whole.dim[i] = 1 + (int64_t)rng_below(rng, 8);
    slice.parts = parts;
    slice.whole = whole.dim[slice.axis] *= parts;
    const int64_t elements = shape_count(&whole);
    CHECK(elements <= MOST);
    for (int64_t i = 0; i < elements; i++)
        from[i] = (int32_t)i;
    memset(back, 0xff, sizeof back);

    int64_t total = 0;
    for (slice.index = 0; slice.index < count; slice.index++) {
        const struct shape local = slice_shape(&slice, &whole);
        const struct shape again = slice_whole_shape(&slice, &local);
        CHECK(shape_equal(&again, &whole));
        total += shape_count(&local);
        slice_cut(&slice, &local, sizeof *from, from, part);
        slice_put(&slice, &local, sizeof *from, part, back);
    }
    CHECK_INT(total, elements);
    CHECK(memcmp(from, back, (size_t)elements * sizeof *from) == 0);
}

static void test_every_part_of_an_axis_is_cut(void)
{
    const struct shape_slice slice = {
        .count = 2, .index = 1, .axis = 0, .parts = 3, .whole = 12
    };
    const struct shape whole = shape_1(12), local = slice_shape(&slice, &whole);
    const int32_t from[] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
    const int32_t wanted[] = { 2, 3, 6, 7, 10, 11 };
    int32_t part[6];

    CHECK_INT(local.dim[0], 6);
    slice_cut(&slice, &local, sizeof *from, from, part);
    CHECK(memcmp(part, wanted, sizeof part) == 0);
}

static void test_no_slice_is_the_whole(void)
{
    const struct shape_slice none = { 0 };
    const struct shape shape = shape_2(3, 2), local = slice_shape(&none, &shape);
    const int32_t from[] = { 1, 2, 3, 4, 5, 6 };
    int32_t part[6];

    CHECK(shape_equal(&shape, &local));
    slice_cut(&none, &local, sizeof *from, from, part);
    CHECK(memcmp(part, from, sizeof part) == 0);
}

const struct test tests[] = {
    { .name = "slices make the whole", .property = test_slices_make_the_whole },
    { .name = "every part of an axis is cut", .run = test_every_part_of_an_axis_is_cut },
    { .name = "no slice is the whole", .run = test_no_slice_is_the_whole },
    { 0 },
};
