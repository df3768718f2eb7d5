/* SPDX-License-Identifier: MIT */
/* rng.h - random numbers that depend on what they are for, not on when or where they are drawn.
 *
 * Philox4x32-10 (Salmon et al. 2011) maps a 64-bit key and a 128-bit counter to
 * four 32-bit words. Dropout, shuffling and initial weights use the counter
 * form, so that any rank or thread gets the same numbers for the same sample.
 * struct rng is a stream over it for tests and set-up code.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct rng_block {
    uint32_t word[4];
};

/* The 10-round function itself. key = low word, high word; counter = c0..c3. */
struct rng_block rng_philox(uint64_t key, const uint32_t counter[4]);

/* A stream: key and 64-bit stream number fixed, position counts up. */
struct rng {
    uint64_t key, stream, position;
    struct rng_block block;
    int left;
};

void rng_init(struct rng *rng, uint64_t key, uint64_t stream);
uint32_t rng_u32(struct rng *rng);
uint64_t rng_u64(struct rng *rng);
/* Uniform in [0, below), without bias; below > 0. */
uint64_t rng_below(struct rng *rng, uint64_t below);
/* Uniform in [0, 1) with 24 bits: word >> 8 times 2^-24. */
float rng_float(struct rng *rng);
/* Normal with mean 0 and deviation 1 (Box-Muller in double). */
double rng_normal(struct rng *rng);

/* A word in [0,1) with 24 bits, as rng_float makes it. */
static inline float rng_to_float(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

#ifdef __cplusplus
}
#endif

#endif /* BASE_RNG_H */
