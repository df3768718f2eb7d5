/* SPDX-License-Identifier: MIT */
/* noise.c - ChaCha20 as a generator, and exact samples of the discrete Gaussian by rejection.
 *
 * A discrete Laplace number Y of scale t = deviation + 1 is kept with probability
 * exp(-(|Y| - deviation^2 / t)^2 / (2 deviation^2)); what is kept is Gaussian (Canonne, Kamath, Steinke 2020, algorithm 3).
 * Coins that show heads with probability exp(-a/b) are thrown with whole numbers alone (algorithm 1): throw coins of
 * a/b, a/2b, a/3b, ... until one shows tails; the number of throws is odd with that probability. With deviation
 * at most 2^26 and |Y| cut at 61 t, which what follows would keep with probability e^-1740, nothing has more than 127 bits. */
#include "fed/noise.h"

#include <sodium.h>
#include <stdbool.h>
#include <string.h>

__extension__ typedef unsigned __int128 wide;

enum { BLOCK = 64 };

void noise_init(struct noise *noise, const uint8_t key[NOISE_KEY])
{
    memset(noise, 0, sizeof(*noise));
    memcpy(noise->key, key, NOISE_KEY);
    noise->at = NOISE_BUFFER;
}

void noise_release(struct noise *noise)
{
    sodium_memzero(noise, sizeof(*noise));
}

static void refill(struct noise *noise)
{
    static const uint8_t nonce[crypto_stream_chacha20_NONCEBYTES];

    memset(noise->buffer, 0, NOISE_BUFFER);
    crypto_stream_chacha20_xor_ic(noise->buffer, noise->buffer, NOISE_BUFFER, nonce,
                                  noise->block, noise->key);
    noise->block += NOISE_BUFFER / BLOCK;
    noise->at = 0;
}

uint64_t noise_u64(struct noise *noise)
{
    uint64_t number; /* little-endian machines alone (wire.c) */

    if (noise->at == NOISE_BUFFER)
        refill(noise);
    memcpy(&number, noise->buffer + noise->at, sizeof(number));
    noise->at += sizeof(number);
    return number;
}

/* The high half of word * below; words whose low half says that they would come once too often are drawn again. */
uint64_t noise_below(struct noise *noise, uint64_t below)
{
    wide product = (wide)noise_u64(noise) * below;

    if ((uint64_t)product < below) {
        const uint64_t least = (0 - below) % below;
        while ((uint64_t)product < least)
            product = (wide)noise_u64(noise) * below;
    }
    return (uint64_t)(product >> 64);
}

/* Heads with probability a/b, 0 <= a <= b < 2^126: is a uniform number in [0, 1) below a/b? Its binary digits and those of a/b
 * are made one by one until they differ. `word` has the first 64. */
static bool compare_digits(struct noise *noise, uint64_t word, wide a, wide b)
{
    for (;;) {
        for (int i = 0; i < 64; i++, word <<= 1) {
            const bool drawn = word >> 63;
            a <<= 1;
            const bool digit = a >= b;
            if (drawn != digit)
                return digit;
            if (digit)
                a -= b;
        }
        word = noise_u64(noise);
    }
}

/* The same, mostly by one product: with a and b cut to 62 bits, word / 2^64 is below a/b or above it for sure, or the digits must
 * say. */
static bool throw_coin(struct noise *noise, wide a, wide b)
{
    if (a >= b)
        return true;
    const uint64_t word = noise_u64(noise), top = (uint64_t)(b >> 62);
    const int cut = top == 0 ? 0 : 64 - __builtin_clzll(top);
    const wide low_a = a >> cut, low_b = b >> cut, more = cut > 0;
    if (((wide)word + 1) * (low_b + more) <= low_a << 64)
        return true;
    if ((wide)word * low_b >= (low_a + more) << 64)
        return false;
    return compare_digits(noise, word, a, b);
}

/* Heads with probability exp(-a/b), 0 <= a <= b. */
static bool throw_exp_fraction(struct noise *noise, wide a, wide b)
{
    bool odd = true;

    for (wide k = 1; throw_coin(noise, a, b * k); k++)
        odd = !odd;
    return odd;
}

/* Heads with probability exp(-1): its first 128 binary digits; a word in 2^64 needs more than 64. */
static bool throw_exp_one(struct noise *noise)
{
    static const uint64_t high = UINT64_C(0x5e2d58d8b3bcdf1a),
                          low = UINT64_C(0xbadec7829054f90d);
    const uint64_t word = noise_u64(noise);

    return word < high || (word == high && noise_u64(noise) < low);
}

/* Heads with probability exp(-a/b) for any a. */
static bool throw_exp(struct noise *noise, wide a, wide b)
{
    for (; a > b; a -= b) {
        if (!throw_exp_one(noise))
            return false;
    }
    return throw_exp_fraction(noise, a, b);
}

/* |Y| and whether it is negative, of the discrete Laplace distribution with scale t: the low part u of a geometric
 * number is kept with probability exp(-u/t), the high part counts heads of exp(-1). */
static uint64_t draw_laplace(struct noise *noise, uint64_t t, bool *negative)
{
    for (;;) {
        const uint64_t u = noise_below(noise, t);
        uint64_t v = 0;

        if (!throw_exp_fraction(noise, u, t))
            continue;
        while (v < 60 && throw_exp_one(noise))
            v++;
        const uint64_t y = u + t * v;
        *negative = noise_u64(noise) & 1;
        if (y > 0 || !*negative) /* zero counts once */
            return y;
    }
}

int64_t noise_gaussian(struct noise *noise, uint32_t deviation)
{
    const uint64_t t = (uint64_t)deviation + 1;
    const uint64_t square = (uint64_t)deviation * deviation;

    for (;;) {
        bool negative;
        const uint64_t y = draw_laplace(noise, t, &negative);
        const uint64_t scaled = y * t;
        const uint64_t gap = scaled > square ? scaled - square : square - scaled;
        /* (gap / t)^2 / (2 square) */
        if (throw_exp(noise, (wide)gap * gap, (wide)2 * square * t * t))
            return negative ? -(int64_t)y : (int64_t)y;
    }
}
