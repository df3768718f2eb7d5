/* SPDX-License-Identifier: MIT */
/* place_test.c - blocks that are needed at once lie apart, and the arena is not larger than it must be. */
#include "exec/place.h"

#include "base/mem.h"
#include "base/test.h"

enum { MOST = 60, TIME = 40 };

static void test_blocks_needed_at_once_lie_apart(struct rng *rng)
{
    struct place_block blocks[MOST] = { { 0 } };
    const int count = (int)rng_below(rng, MOST + 1);
    size_t bytes = 0, sum = 0, needed = 0;

    for (int i = 0; i < count; i++) {
        const int first = i * TIME / MOST;
        blocks[i] = (struct place_block){ .bytes = 64 * (size_t)rng_below(rng, 1000),
                                          .first = first,
                                          .last = first + (int)rng_below(rng, TIME) };
        sum += blocks[i].bytes;
    }
    CHECK_OK(place_blocks(blocks, count, &bytes));
    for (int i = 0; i < count; i++) {
        const struct place_block *a = &blocks[i];
        size_t alive = 0;

        CHECK(a->at % 64 == 0 && a->at + a->bytes <= bytes);
        for (int k = 0; k < count; k++) {
            const struct place_block *b = &blocks[k];
            if (b->first <= a->first && a->first <= b->last)
                alive += b->bytes;
            if (k < i && a->first <= b->last && b->first <= a->last)
                CHECK(a->at + a->bytes <= b->at || b->at + b->bytes <= a->at);
        }
        needed = alive > needed ? alive : needed;
    }
    CHECK(needed <= bytes && bytes <= sum);
}

/* Small blocks come and go around one that stays; then comes one as large as all that have gone. */
static void test_a_large_block_that_comes_late_finds_room(void)
{
    struct place_block blocks[] = {
        { .bytes = 448, .first = 0, .last = 1 },
        { .bytes = 64, .first = 0, .last = 2 },
        { .bytes = 512, .first = 2, .last = 2 },
    };
    size_t bytes;

    CHECK_OK(place_blocks(blocks, 3, &bytes));
    CHECK_INT(576, bytes); /* 1024 in running order */
}

static void test_running_order_stays_where_size_gains_little(void)
{
    struct place_block blocks[] = {
        { .bytes = 64, .first = 0, .last = 1 },
        { .bytes = 128, .first = 1, .last = 2 },
        { .bytes = 64, .first = 2, .last = 3 },
    };
    size_t bytes;

    CHECK_OK(place_blocks(blocks, 3, &bytes));
    CHECK_INT(192, bytes);
    CHECK_INT(0, blocks[0].at);
    CHECK_INT(64, blocks[1].at);
    CHECK_INT(0, blocks[2].at);
}

static void test_no_memory_is_said(void)
{
    struct place_block block = { .bytes = 64 };
    size_t bytes;

    mem_fail_at(1);
    const enum status status = place_blocks(&block, 1, &bytes);
    mem_fail_at(0);
    CHECK_INT(STATUS_NO_MEMORY, status);
}

const struct test tests[] = {
    { .name = "blocks needed at once lie apart",
      .property = test_blocks_needed_at_once_lie_apart },
    { .name = "a large block that comes late finds room",
      .run = test_a_large_block_that_comes_late_finds_room },
    { .name = "running order stays where size gains little",
      .run = test_running_order_stays_where_size_gains_little },
    { .name = "no memory is said", .run = test_no_memory_is_said },
    { 0 },
};
