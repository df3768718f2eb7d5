/* SPDX-License-Identifier: MIT */
/* rng.c - Philox4x32-10.
 *
 * Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC11),
 * section 3.3. A round multiplies two of the four words by constants and mixes
 * the halves of the products with the others and with the key; the key moves
 * on by the golden ratio and sqrt(3) - 1 after each round.
 */
#include "base/rng.h"

#include "base/status.h"

#include <math.h>

enum { ROUNDS = 10 };

static const uint32_t MULTIPLIER[2] = { 0xd2511f53, 0xcd9e8d57 };
static const uint32_t WEYL[2] = { 0x9e3779b9, 0xbb67ae85 };

struct rng_block rng_philox(uint64_t key, const uint32_t counter[4])
{
    uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
    struct rng_block x = { { counter[0], counter[1], counter[2], counter[3] } };

    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t a = (uint64_t)MULTIPLIER[0] * x.word[0];
        const uint64_t b = (uint64_t)MULTIPLIER[1] * x.word[2];

        x = (struct rng_block){ { (uint32_t)(b >> 32) ^ x.word[1] ^ key0, (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ x.word[3] ^ key1, (uint32_t)a } };
        key0 += WEYL[0];
        key1 += WEYL[1];
    }
    return x;
}

void rng_init(struct rng *rng, uint64_t key, uint64_t stream)
{
    *rng = (struct rng){ .key = key, .stream = stream };
}

uint32_t rng_u32(struct rng *rng)
{
    if (rng->left == 0) {
        const uint32_t counter[4] = { (uint32_t)rng->position, (uint32_t)(rng->position >> 32),
                                      (uint32_t)rng->stream, (uint32_t)(rng->stream >> 32) };
        rng->block = rng_philox(rng->key, counter);
        rng->position++;
        rng->left = 4;
    }
    return rng->block.word[4 - rng->left--];
}

uint64_t rng_u64(struct rng *rng)
{
    const uint64_t low = rng_u32(rng);

    return (uint64_t)rng_u32(rng) << 32 | low;
}

uint64_t rng_below(struct rng *rng, uint64_t below)
{
    BUG_ON(below == 0);
    /* 2^64 mod below: without that many values every remainder is equally likely. */
    const uint64_t refused = -below % below;
    uint64_t x;

    do
        x = rng_u64(rng);
    while (x < refused);
    return x % below;
}

float rng_float(struct rng *rng)
{
    return rng_to_float(rng_u32(rng));
}

double rng_normal(struct rng *rng)
{
    const double two_pi = 6.283185307179586476925;
    const double radius =
        (double)((rng_u64(rng) >> 11) + 1) * 0x1p-53; /* (0, 1]: log is finite */
    const double angle = (double)(rng_u64(rng) >> 11) * 0x1p-53;

    return sqrt(-2 * log(radius)) * cos(two_pi * angle);
}
