/* SPDX-License-Identifier: MIT */
/* place.h - where buffers that are not all needed at once lie in one arena. Private to exec/. */
#ifndef EXEC_PLACE_H
#define EXEC_PLACE_H

#include <stddef.h>

#include "base/status.h"

struct place_block {
    size_t bytes;    /* a multiple of what addresses are to be */
    int first, last; /* the instructions from and to which it is needed */
    size_t at;       /* set by place_blocks */
};

/* Gives each block a place that no other has while both are needed, and the arena's size. Blocks stand
 * in the order of `first`. */
MUST_CHECK enum status place_blocks(struct place_block *blocks, int count, size_t *out_bytes);

#endif /* EXEC_PLACE_H */
