/* SPDX-License-Identifier: MIT */
/* shamir.c - secret sharing over the field of 2^61 - 1, in which a product needs one multiplication and two additions. */
#include "fed/shamir.h"

#include <sodium.h>
#include <string.h>

#include "base/mem.h"

__extension__ typedef unsigned __int128 wide;

#define PRIME ((UINT64_C(1) << 61) - 1)
enum { LIMB_BITS = 52 };
#define LIMB_MASK ((UINT64_C(1) << LIMB_BITS) - 1)

static uint64_t reduce(uint64_t a) /* a < 2^62 */
{
    return a >= PRIME ? a - PRIME : a;
}

static uint64_t add(uint64_t a, uint64_t b)
{
    return reduce(a + b);
}

static uint64_t multiply(uint64_t a, uint64_t b)
{
    const wide product = (wide)a * b;

    return reduce(((uint64_t)product & PRIME) + (uint64_t)(product >> 61));
}

/* a^(p-2) */
static uint64_t invert(uint64_t a)
{
    uint64_t result = 1;

    for (uint64_t e = PRIME - 2; e > 0; e >>= 1, a = multiply(a, a)) {
        if (e & 1)
            result = multiply(result, a);
    }
    return result;
}

static uint64_t draw(struct noise *source)
{
    uint64_t number;

    do
        number = noise_u64(source) >> 3;
    while (number == PRIME);
    return number;
}

static uint64_t load(const uint8_t *bytes)
{
    uint64_t number = 0;

    for (int i = 0; i < 8; i++)
        number |= (uint64_t)bytes[i] << 8 * i;
    return number;
}

static void store(uint8_t *bytes, uint64_t number)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(number >> 8 * i);
}

/* Limbs are bits [52 i, 52 i + 52) of the secret as a little-endian number. */
static void cut(const uint8_t secret[SHAMIR_SECRET], uint64_t limbs[SHAMIR_LIMBS])
{
    wide pending = 0;
    int bits = 0, at = 0;

    for (int i = 0; i < SHAMIR_LIMBS; i++) {
        for (; bits < LIMB_BITS && at < SHAMIR_SECRET; bits += 8)
            pending |= (wide)secret[at++] << bits;
        limbs[i] = (uint64_t)pending & LIMB_MASK;
        pending >>= LIMB_BITS;
        bits -= LIMB_BITS;
    }
}

/* The last limb has 48 bits. */
static bool paste(const uint64_t limbs[SHAMIR_LIMBS], uint8_t secret[SHAMIR_SECRET])
{
    wide pending = 0;
    int bits = 0, at = 0;

    for (int i = 0; i < SHAMIR_LIMBS; i++) {
        if (limbs[i] > LIMB_MASK)
            return false;
        pending |= (wide)limbs[i] << bits;
        for (bits += LIMB_BITS; bits >= 8 && at < SHAMIR_SECRET; bits -= 8, pending >>= 8)
            secret[at++] = (uint8_t)pending;
    }
    return pending == 0;
}

enum status shamir_split(const uint8_t secret[SHAMIR_SECRET], uint32_t threshold,
                         const uint32_t *holders, uint32_t n, struct noise *source,
                         uint8_t (*shares)[SHAMIR_SHARE])
{
    uint64_t limbs[SHAMIR_LIMBS], *coefficients; /* [threshold - 1] of the limb at hand */

    TRY(mem_alloc(threshold, sizeof(*coefficients), &coefficients));
    cut(secret, limbs);
    for (int limb = 0; limb < SHAMIR_LIMBS; limb++) {
        for (uint32_t k = 0; k + 1 < threshold; k++)
            coefficients[k] = draw(source);
        for (uint32_t i = 0; i < n; i++) {
            const uint64_t x = (uint64_t)holders[i] + 1;
            uint64_t y = 0;
            for (uint32_t k = threshold - 1; k-- > 0;)
                y = multiply(add(y, coefficients[k]), x);
            store(shares[i] + 8 * limb, add(y, limbs[limb]));
        }
    }
    sodium_memzero(coefficients, threshold * sizeof(*coefficients));
    sodium_memzero(limbs, sizeof(limbs));
    mem_free(coefficients);
    return STATUS_OK;
}

bool shamir_is_share(const uint8_t share[SHAMIR_SHARE])
{
    for (int limb = 0; limb < SHAMIR_LIMBS; limb++) {
        if (load(share + 8 * limb) >= PRIME)
            return false;
    }
    return true;
}

/* Lagrange at 0: the product of x_j / (x_j - x_i) over all others. */
void shamir_weights(const uint32_t *holders, uint32_t n, uint64_t *weights)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t x = (uint64_t)holders[i] + 1;
        uint64_t above = 1, below = 1;
        for (uint32_t j = 0; j < n; j++) {
            const uint64_t other = (uint64_t)holders[j] + 1;
            if (j == i)
                continue;
            above = multiply(above, other);
            below = multiply(below, add(other, PRIME - x));
        }
        weights[i] = multiply(above, invert(below));
    }
}

bool shamir_join(const uint8_t *const *shares, const uint64_t *weights, uint32_t n,
                 uint8_t secret[SHAMIR_SECRET])
{
    uint64_t limbs[SHAMIR_LIMBS] = { 0 };

    for (uint32_t i = 0; i < n; i++) {
        for (int limb = 0; limb < SHAMIR_LIMBS; limb++)
            limbs[limb] = add(limbs[limb], multiply(weights[i], load(shares[i] + 8 * limb)));
    }
    const bool fits = paste(limbs, secret);
    sodium_memzero(limbs, sizeof(limbs));
    return fits;
}
