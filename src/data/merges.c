/* SPDX-License-Identifier: MIT */
/* merges.c - symbols in a linked list, pairs in a heap by rank, then place.
 *
 * "hello" with the merges l l, h e, he ll:   h e l l o  ->  h e ll o  ->  he ll o  ->  hell o
 *
 * A pair in the heap may be out of date, as a neighbour took one of its symbols: it is left out when it
 * comes to the top. A word of n bytes costs n log n, whatever it is.
 */
#include "data/merges.h"

#include "base/mem.h"

#include <stdbool.h>

struct pair_slot {
    uint64_t key; /* left and right, plus 1; 0 is free */
    int32_t rank;
};

struct merges {
    int32_t byte_id[256];
    int32_t count;
    struct merge *merge;
    struct pair_slot *slots;
    size_t mask;
};

/* A symbol begins at the byte of its number; -1 ends the list. */
struct merge_symbol {
    int32_t id, next, before;
};

struct merge_pair {
    int32_t rank, at, left, right;
};

static uint64_t key_of(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

/* The pair's slot, or the free one where it belongs. */
static struct pair_slot *slot_of(const struct merges *merges, uint64_t key)
{
    size_t i = (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & merges->mask;

    while (merges->slots[i].key != 0 && merges->slots[i].key != key)
        i = (i + 1) & merges->mask;
    return &merges->slots[i];
}

static enum status fill(struct merges *merges, const struct merge *merge, int32_t *out_again)
{
    for (int32_t rank = 0; rank < merges->count; rank++) {
        const uint64_t key = key_of(merge[rank].left, merge[rank].right);
        struct pair_slot *slot = slot_of(merges, key);
        if (slot->key) {
            if (out_again)
                *out_again = rank;
            return FAIL(STATUS_CORRUPT, "merge %d comes twice", rank);
        }
        *slot = (struct pair_slot){ key, rank };
        merges->merge[rank] = merge[rank];
    }
    return STATUS_OK;
}

enum status merges_create(const int32_t byte_id[256], const struct merge *merge, int32_t count,
                          int32_t *out_again, struct merges **out)
{
    struct merges *merges;
    size_t n_slots = 2;

    while (n_slots < 2 * (size_t)count)
        n_slots *= 2;
    TRY(mem_alloc(1, sizeof *merges, &merges));
    merges->count = count;
    merges->mask = n_slots - 1;
    for (int i = 0; i < 256; i++)
        merges->byte_id[i] = byte_id[i];
    enum status status = mem_alloc(n_slots, sizeof *merges->slots, &merges->slots);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)count, sizeof *merges->merge, &merges->merge);
    if (status == STATUS_OK)
        status = fill(merges, merge, out_again);
    if (status != STATUS_OK) {
        merges_destroy(merges);
        return status;
    }
    *out = merges;
    return STATUS_OK;
}

void merges_destroy(struct merges *merges)
{
    if (!merges)
        return;
    mem_free(merges->merge);
    mem_free(merges->slots);
    mem_free(merges);
}

int32_t merges_count(const struct merges *merges)
{
    return merges->count;
}

const struct merge *merges_list(const struct merges *merges)
{
    return merges->merge;
}

/* One word ------------------------------------------------------------------------------ */

void merge_room_release(struct merge_room *room)
{
    mem_free(room->symbol);
    mem_free(room->heap);
    mem_free(room->id);
    *room = (struct merge_room){ 0 };
}

/* A merge adds two pairs at most, so the heap never holds more than three a byte. */
static enum status make_room(struct merge_room *room, size_t length)
{
    if (length <= room->capacity)
        return STATUS_OK;
    merge_room_release(room);
    TRY(mem_alloc(length, sizeof *room->symbol, &room->symbol));
    TRY(mem_alloc(3 * length, sizeof *room->heap, &room->heap));
    TRY(mem_alloc(length, sizeof *room->id, &room->id));
    room->capacity = length;
    return STATUS_OK;
}

static bool comes_first(struct merge_pair a, struct merge_pair b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void push(struct merge_pair *heap, size_t *count, struct merge_pair pair)
{
    size_t i = (*count)++;

    for (; i > 0 && comes_first(pair, heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = pair;
}

static struct merge_pair pop(struct merge_pair *heap, size_t *count)
{
    const struct merge_pair top = heap[0], last = heap[--*count];
    size_t i = 0;

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= *count)
            break;
        if (child + 1 < *count && comes_first(heap[child + 1], heap[child]))
            child++;
        if (!comes_first(heap[child], last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* Puts the pair of a symbol and its follower into the heap, if they may merge. */
static void consider(const struct merges *merges, struct merge_room *room, size_t *count,
                     int32_t at)
{
    const struct merge_symbol *symbol = room->symbol;

    if (at < 0 || symbol[at].next < 0)
        return;
    const int32_t left = symbol[at].id, right = symbol[symbol[at].next].id;
    const struct pair_slot *slot = slot_of(merges, key_of(left, right));
    if (slot->key)
        push(room->heap, count, (struct merge_pair){ slot->rank, at, left, right });
}

enum status merges_apply(const struct merges *merges, const char *word, size_t length,
                         struct merge_room *room, size_t *out_count)
{
    size_t n_pairs = 0, n_ids = 0;

    *out_count = 0;
    if (length == 0)
        return STATUS_OK;
    if (length > INT32_MAX)
        return FAIL(STATUS_CORRUPT, "a word of %zu bytes is too long", length);
    TRY(make_room(room, length));
    struct merge_symbol *symbol = room->symbol;
    for (int32_t i = 0; i < (int32_t)length; i++)
        symbol[i] = (struct merge_symbol){ .id = merges->byte_id[(unsigned char)word[i]],
                                           .next = i + 1 < (int32_t)length ? i + 1 : -1,
                                           .before = i - 1 };
    for (int32_t i = 0; i < (int32_t)length; i++)
        consider(merges, room, &n_pairs, i);
    while (n_pairs > 0) {
        const struct merge_pair pair = pop(room->heap, &n_pairs);
        const int32_t right = symbol[pair.at].next;
        if (symbol[pair.at].id != pair.left || right < 0 || symbol[right].id != pair.right)
            continue;
        symbol[pair.at].id = merges->merge[pair.rank].made;
        symbol[pair.at].next = symbol[right].next;
        if (symbol[right].next >= 0)
            symbol[symbol[right].next].before = pair.at;
        symbol[right].id = -1; /* gone */
        consider(merges, room, &n_pairs, symbol[pair.at].before);
        consider(merges, room, &n_pairs, pair.at);
    }
    for (int32_t i = 0; i >= 0; i = symbol[i].next)
        room->id[n_ids++] = symbol[i].id;
    *out_count = n_ids;
    return STATUS_OK;
}
