/* SPDX-License-Identifier: MIT */
/* mask.h - private: adding key streams to words of a ring.
 *
 * A mask is the ChaCha20 stream of a 256-bit key, read as little-endian words. Words lie on the wire as in memory.
 */
#ifndef FED_MASK_H
#define FED_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"

enum { MASK_KEY = 32 };

struct mask {
    uint8_t key[MASK_KEY];
    bool subtract;
};

/* Adds all masks to words[0..count), of 4 or 8 bytes by `bits`, which may lie anywhere. The result does not depend on the
 * pool, which may be NULL. */
void mask_add(const struct mask *masks, size_t n, int bits, void *words, size_t count,
              struct pool *pool);
/* sum += words, modulo 2^bits; words may lie anywhere. */
void mask_sum(int bits, void *sum, const void *words, size_t count);

#endif /* FED_MASK_H */
