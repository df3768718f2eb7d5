/* SPDX-License-Identifier: MIT */
/* merges.h - byte pair encoding: which two neighbours become one token, the most wanted first. Private to
 * data/.
 *
 * A word's bytes are its first symbols. Again and again the pair of neighbours with the lowest rank, of
 * several the leftmost, becomes one symbol, until no pair has a rank (Sennrich et al. 2016, GPT-2).
 *
 * Threads: applying is safe with a struct merge_room for each thread.
 */
#ifndef DATA_MERGES_H
#define DATA_MERGES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct merge {
    int32_t left, right, made; /* ids */
};

struct merges; /* the list, and a table to find pairs in */

/* `count` merges, the first having the lowest rank; a pair may come once only: STATUS_CORRUPT with
 * its place (from 0) in *out_again, unless that is NULL. `byte_id` has the ids of the 256 bytes. */
MUST_CHECK enum status merges_create(const int32_t byte_id[256], const struct merge *merge,
                                     int32_t count, int32_t *out_again, struct merges **out);
void merges_destroy(struct merges *merges); /* NULL is allowed */
int32_t merges_count(const struct merges *merges);
const struct merge *merges_list(const struct merges *merges);

/* Memory to work in, which grows to the longest word. All zero is empty. */
struct merge_room {
    struct merge_symbol *symbol;
    struct merge_pair *heap;
    size_t capacity; /* bytes of a word */
    int32_t *id;     /* the result of merges_apply */
};
void merge_room_release(struct merge_room *room);

/* The ids of a word in room->id; *out_count of them, at most `length`. */
MUST_CHECK enum status merges_apply(const struct merges *merges, const char *word,
                                    size_t length, struct merge_room *room, size_t *out_count);

#endif /* DATA_MERGES_H */
