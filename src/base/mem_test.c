/* SPDX-License-Identifier: MIT */
/* mem_test.c - allocations are zeroed, aligned, counted and can be made to fail. */
#include "base/mem.h"

#include "base/test.h"

#include <string.h>

static bool is_filled(const unsigned char *bytes, size_t count, unsigned char with)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != with)
            return false;
    return true;
}

static void test_memory_is_zeroed_and_aligned(struct rng *rng)
{
    const size_t count = rng_below(rng, 300), size = rng_below(rng, 40);
    unsigned char *block;

    for (int round = 0; round < 3; round++) { /* later rounds get used memory back */
        CHECK_OK(mem_alloc(count, size, &block));
        CHECK((uintptr_t)block % MEM_ALIGN == 0);
        CHECK(is_filled(block, count * size, 0));
        memset(block, 0xff, count * size);
        mem_free(block);
    }
}

static void test_zero_bytes_may_be_freed(void)
{
    void *block = NULL;

    CHECK_OK(mem_alloc(0, 8, &block));
    CHECK(block);
    mem_free(block);
    CHECK_OK(mem_alloc(8, 0, &block));
    CHECK(block);
    mem_free(block);
    mem_free(NULL);
}

static void test_too_much_is_refused(void)
{
    char here, *block = &here;

    CHECK_STATUS(STATUS_NO_MEMORY, mem_alloc(SIZE_MAX / 2, 3, &block));
    CHECK_STATUS(STATUS_NO_MEMORY, mem_alloc(SIZE_MAX / 4 + 2, 4, &block)); /* wraps to 4 */
    CHECK_STATUS(STATUS_NO_MEMORY, mem_alloc(SIZE_MAX, 1, &block));
    CHECK_STATUS(STATUS_NO_MEMORY, mem_alloc(SIZE_MAX / 8, 1, &block));
    CHECK(block == &here);
    block = NULL;
    CHECK_STATUS(STATUS_NO_MEMORY, mem_grow(&block, 0, SIZE_MAX / 2, 4));
    CHECK(!block);
}

static void test_growing_keeps_the_old_and_zeroes_the_new(struct rng *rng)
{
    const size_t size = 1 + rng_below(rng, 20);
    size_t count = rng_below(rng, 10);
    unsigned char *block = NULL;

    CHECK_OK(mem_grow(&block, 0, count, size));
    CHECK(block);
    for (int round = 0; round < 5; round++) {
        memset(block, 0xa5, count * size);
        const size_t larger = count + rng_below(rng, 200);
        CHECK_OK(mem_grow(&block, count, larger, size));
        CHECK((uintptr_t)block % MEM_ALIGN == 0);
        CHECK(is_filled(block, count * size, 0xa5));
        CHECK(is_filled(block + count * size, (larger - count) * size, 0));
        count = larger;
    }
    mem_free(block);
}

static void test_failed_growth_leaves_the_block(void)
{
    int *block;

    CHECK_OK(mem_alloc(4, sizeof *block, &block));
    int *const before = block;
    block[3] = 42;
    mem_fail_at(1);
    CHECK_STATUS(STATUS_NO_MEMORY, mem_grow(&block, 4, 8, sizeof *block));
    CHECK(block == before);
    CHECK_INT(42, block[3]);
    mem_free(block);
}

static void test_the_nth_allocation_fails(struct rng *rng)
{
    const uint64_t nth = 1 + rng_below(rng, 5), before = mem_count();
    char *text = NULL;

    mem_fail_at(nth);
    for (uint64_t i = 1; i <= 6; i++) {
        if (i == nth) {
            CHECK_STATUS(STATUS_NO_MEMORY, mem_strdup("text", &text));
            CHECK_MESSAGE("bytes");
            continue;
        }
        CHECK_OK(mem_strdup("text", &text));
        CHECK_TEXT("text", text);
        mem_free(text);
    }
    CHECK_INT(before + 6, mem_count());

    mem_fail_at(1);
    mem_fail_at(0);
    CHECK_OK(mem_strdup("", &text));
    CHECK_TEXT("", text);
    mem_free(text);
}

const struct test tests[] = {
    { .name = "memory is zeroed and aligned", .property = test_memory_is_zeroed_and_aligned },
    { .name = "zero bytes may be freed", .run = test_zero_bytes_may_be_freed },
    { .name = "too much is refused", .run = test_too_much_is_refused },
    { .name = "growing keeps the old and zeroes the new",
      .property = test_growing_keeps_the_old_and_zeroes_the_new },
    { .name = "failed growth leaves the block", .run = test_failed_growth_leaves_the_block },
    { .name = "the nth allocation fails", .property = test_the_nth_allocation_fails },
    { 0 },
};
