/* SPDX-License-Identifier: MIT */
/* token_map.h - strings of bytes, numbered in the order they came. Private to data/.
 *
 * Open addressing; a slot keeps the hash, so that most strings are compared once, with themselves.
 * Strings lie one after the other in one block.
 *
 * Threads: finding is safe while nobody adds.
 */
#ifndef DATA_TOKEN_MAP_H
#define DATA_TOKEN_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct token_slot {
    uint32_t hash;
    int32_t number; /* from 1; 0 is free */
};

/* All zero is empty. */
struct token_map {
    struct token_slot *slots;
    size_t n_slots;  /* a power of two, or 0 */
    int32_t count;   /* strings */
    size_t capacity; /* of `start`, less one */
    uint64_t *start; /* where string i begins; its end is start[i + 1] */
    char *bytes;
    size_t bytes_capacity;
};

enum { TOKEN_MAP_MOST = 1 << 27 }; /* strings */

void token_map_release(struct token_map *map);
void token_map_clear(struct token_map *map); /* keeps the memory */

/* The string's number, or -1. */
int32_t token_map_find(const struct token_map *map, const char *bytes, size_t length);
/* The same; a new string gets the next number. */
MUST_CHECK enum status token_map_add(struct token_map *map, const char *bytes, size_t length,
                                     int32_t *out);

/* Not terminated; its length is *out_length. */
static inline const char *token_map_at(const struct token_map *map, int32_t number,
                                       size_t *out_length)
{
    *out_length = (size_t)(map->start[number + 1] - map->start[number]);
    return map->bytes + map->start[number];
}

#endif /* DATA_TOKEN_MAP_H */
