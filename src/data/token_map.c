/* SPDX-License-Identifier: MIT */
/* token_map.c - a hash table that is at most half full. */
#include "data/token_map.h"

#include "base/mem.h"

#include <string.h>

enum { SLOTS_FIRST = 1 << 10, STRINGS_FIRST = 1 << 9, BYTES_FIRST = 1 << 12 };

/* Eight bytes at a time: multiply, and bring the high bits down. */
static uint32_t hash_of(const char *bytes, size_t length)
{
    const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t hash = length * factor, word;

    for (; length >= sizeof word; bytes += sizeof word, length -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = (hash ^ word) * factor;
        hash ^= hash >> 29;
    }
    word = 0;
    memcpy(&word, bytes, length);
    hash = (hash ^ word) * factor;
    return (uint32_t)(hash >> 32);
}

void token_map_release(struct token_map *map)
{
    mem_free(map->slots);
    mem_free(map->start);
    mem_free(map->bytes);
    *map = (struct token_map){ 0 };
}

void token_map_clear(struct token_map *map)
{
    if (map->n_slots > 0)
        memset(map->slots, 0, map->n_slots * sizeof *map->slots);
    map->count = 0;
}

/* The string's slot, or the free one where it belongs. */
static struct token_slot *slot_of(const struct token_map *map, uint32_t hash, const char *bytes,
                                  size_t length)
{
    const size_t mask = map->n_slots - 1;

    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct token_slot *slot = &map->slots[i];
        size_t there;
        if (slot->number == 0)
            return slot;
        if (slot->hash != hash)
            continue;
        const char *string = token_map_at(map, slot->number - 1, &there);
        if (there == length && memcmp(string, bytes, length) == 0)
            return slot;
    }
}

int32_t token_map_find(const struct token_map *map, const char *bytes, size_t length)
{
    if (map->count == 0)
        return -1;
    return slot_of(map, hash_of(bytes, length), bytes, length)->number - 1;
}

static enum status grow_slots(struct token_map *map)
{
    const size_t n_slots = map->n_slots ? 2 * map->n_slots : SLOTS_FIRST, mask = n_slots - 1;
    struct token_slot *slots;

    TRY(mem_alloc(n_slots, sizeof *slots, &slots));
    for (size_t old = 0; old < map->n_slots; old++) {
        if (map->slots[old].number == 0)
            continue;
        size_t i = map->slots[old].hash & mask;
        while (slots[i].number)
            i = (i + 1) & mask;
        slots[i] = map->slots[old];
    }
    mem_free(map->slots);
    map->slots = slots;
    map->n_slots = n_slots;
    return STATUS_OK;
}

/* Room for one more string of `length`. */
static enum status grow_strings(struct token_map *map, size_t length)
{
    const size_t used = map->count ? (size_t)map->start[map->count] : 0;
    size_t capacity = map->capacity ? map->capacity : STRINGS_FIRST;
    size_t bytes = map->bytes_capacity ? map->bytes_capacity : BYTES_FIRST;

    while (capacity < (size_t)map->count + 1)
        capacity *= 2;
    while (bytes < used + length)
        bytes *= 2;
    if (capacity > map->capacity) {
        TRY(mem_grow(&map->start, map->capacity ? map->capacity + 1 : 0, capacity + 1,
                     sizeof *map->start));
        map->capacity = capacity;
    }
    if (bytes > map->bytes_capacity) {
        TRY(mem_grow(&map->bytes, map->bytes_capacity, bytes, 1));
        map->bytes_capacity = bytes;
    }
    return STATUS_OK;
}

enum status token_map_add(struct token_map *map, const char *bytes, size_t length, int32_t *out)
{
    const uint32_t hash = hash_of(bytes, length);

    if (2 * ((size_t)map->count + 1) > map->n_slots)
        TRY(grow_slots(map));
    struct token_slot *slot = slot_of(map, hash, bytes, length);
    if (slot->number == 0) {
        if (map->count == TOKEN_MAP_MOST)
            return FAIL(STATUS_NO_MEMORY, "more than %d different tokens", TOKEN_MAP_MOST);
        TRY(grow_strings(map, length));
        const uint64_t begin = map->count ? map->start[map->count] : 0;
        memcpy(map->bytes + begin, bytes, length);
        map->start[map->count] = begin;
        map->start[map->count + 1] = begin + length;
        *slot = (struct token_slot){ hash, ++map->count };
    }
    *out = slot->number - 1;
    return STATUS_OK;
}
