/* SPDX-License-Identifier: MIT */
/* arena_test.c - pieces of an arena are zeroed, aligned and apart from each other. */
#include "base/arena.h"

#include "base/mem.h"
#include "base/test.h"

#include <stdint.h>
#include <string.h>

enum { MAX_PIECES = 200 };

static void test_pieces_do_not_overlap(struct rng *rng)
{
    struct arena *arena;
    unsigned char *piece[MAX_PIECES];
    size_t bytes[MAX_PIECES];
    const int n_pieces = 1 + (int)rng_below(rng, MAX_PIECES);

    CHECK_OK(arena_create(&arena));
    for (int i = 0; i < n_pieces; i++) {
        const bool large = rng_below(rng, 20) == 0;
        bytes[i] = rng_below(rng, large ? 200000 : 700);
        piece[i] = arena_alloc(arena, bytes[i], 1);
        CHECK(piece[i]);
        CHECK((uintptr_t)piece[i] % 64 == 0);
        for (size_t k = 0; k < bytes[i]; k++)
            if (piece[i][k] != 0)
                test_fail(__FILE__, __LINE__, "byte %zu of piece %d is not zero", k, i);
        memset(piece[i], i + 1, bytes[i]);
    }
    for (int i = 0; i < n_pieces; i++)
        for (size_t k = 0; k < bytes[i]; k++)
            if (piece[i][k] != (unsigned char)(i + 1))
                test_fail(__FILE__, __LINE__, "byte %zu of piece %d was overwritten", k, i);
    arena_destroy(arena);
}

static void test_small_pieces_share_allocations(void)
{
    struct arena *arena;

    CHECK_OK(arena_create(&arena));
    const uint64_t before = mem_count();
    for (int i = 0; i < 1000; i++) {
        CHECK(arena_alloc(arena, 1, 40));
        if (i % 100 == 0)
            CHECK(arena_alloc(arena, 1, 100000)); /* has a chunk of its own */
    }
    CHECK(mem_count() - before < 20);
    arena_destroy(arena);
}

static void test_text_is_copied_and_formatted(void)
{
    struct arena *arena;
    char source[] = "weights";

    CHECK_OK(arena_create(&arena));
    char *copy = arena_strdup(arena, source);
    source[0] = 'x';
    CHECK_TEXT("weights", copy);
    CHECK_TEXT("", arena_strdup(arena, ""));
    CHECK_TEXT("layer 12 of mlp", arena_printf(arena, "layer %d of %s", 12, "mlp"));
    arena_destroy(arena);
}

static void test_refusal_gives_null_and_a_text(void)
{
    struct arena *arena;

    CHECK_OK(arena_create(&arena));
    CHECK(!arena_alloc(arena, SIZE_MAX / 2, 3));
    CHECK_MESSAGE("more than memory");
    CHECK(!arena_alloc(arena, SIZE_MAX / 4 + 2, 4)); /* wraps to 4 */
    CHECK(!arena_alloc(arena, SIZE_MAX, 1));
    for (size_t bytes = 1; bytes < 1000000; bytes *= 50) {
        mem_fail_at(1);
        CHECK(!arena_alloc(arena, bytes, 1000));
        CHECK_MESSAGE("made to fail");
    }
    mem_fail_at(1);
    CHECK(!arena_strdup(arena, "text"));
    mem_fail_at(1);
    CHECK(!arena_printf(arena, "%d", 1));
    CHECK(arena_alloc(arena, 1, 1)); /* still of use */
    arena_destroy(arena);

    mem_fail_at(1);
    CHECK_STATUS(STATUS_NO_MEMORY, arena_create(&arena));
    arena_destroy(NULL);
}

const struct test tests[] = {
    { .name = "pieces do not overlap", .property = test_pieces_do_not_overlap },
    { .name = "small pieces share allocations", .run = test_small_pieces_share_allocations },
    { .name = "text is copied and formatted", .run = test_text_is_copied_and_formatted },
    { .name = "refusal gives NULL and a text", .run = test_refusal_gives_null_and_a_text },
    { 0 },
};
