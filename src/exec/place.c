/* SPDX-License-Identifier: MIT */
/* place.c - puts buffers with known lives into one arena.
 *
 * Each takes the lowest gap between those that have a place already and are needed when it is. In running
 * order the arena is small where buffers die in the order in which they were made, and what was used
 * last is used again, which caches like. A large one that comes late may find gaps that are all a
 * little too narrow; so they are placed from the largest to the smallest, too, and that is taken if it
 * saves an eighth.
 */
#include "exec/place.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"

static bool meet(const struct place_block *a, const struct place_block *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* Larger ones first, then earlier ones; made of numbers in the arena's order alone. */
static int compare_sizes(const void *a, const void *b)
{
    const struct place_block *x = *(const struct place_block *const *)a;
    const struct place_block *y = *(const struct place_block *const *)b;

    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Places blocks in the order given; placed[] is scratch. Gives the arena's size. */
static size_t place_in_order(struct place_block *const *order, int count,
                             struct place_block **placed)
{
    size_t most = 0;

    for (int i = 0; i < count; i++) { /* placed[0..i) stand by their addresses */
        struct place_block *block = order[i];
        int to = i;

        block->at = 0;
        for (int k = 0; k < i && placed[k]->at < block->at + block->bytes; k++) {
            const size_t end = placed[k]->at + placed[k]->bytes;
            if (end > block->at && meet(placed[k], block))
                block->at = end;
        }
        for (; to > 0 && placed[to - 1]->at > block->at; to--)
            placed[to] = placed[to - 1];
        placed[to] = block;
        most = block->at + block->bytes > most ? block->at + block->bytes : most;
    }
    return most;
}

enum status place_blocks(struct place_block *blocks, int count, size_t *out_bytes)
{
    struct place_block **order; /* as they run, by size, and scratch */

    TRY(mem_alloc(3 * (size_t)count + 1, sizeof *order, &order));
    struct place_block **by_size = order + count, **placed = by_size + count;
    for (int i = 0; i < count; i++)
        order[i] = by_size[i] = &blocks[i];
    qsort(by_size, (size_t)count, sizeof *by_size, compare_sizes);
    const size_t sorted = place_in_order(by_size, count, placed);
    size_t bytes = place_in_order(order, count, placed);
    if (sorted <= bytes - bytes / 8)
        bytes = place_in_order(by_size, count, placed);
    mem_free(order);
    *out_bytes = bytes;
    return STATUS_OK;
}
