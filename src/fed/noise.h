/* SPDX-License-Identifier: MIT */
/* noise.h - random numbers that nobody can foresee, and the discrete Gaussian distribution.
 *
 * A stream of ChaCha20 under a secret 256-bit key. Noise for privacy is drawn from the discrete Gaussian over whole
 * numbers, exactly and without floating point (Canonne, Kamath, Steinke 2020), since the low bits of
 * rounded continuous noise tell what it was added to (Mironov 2012).
 *
 * The same key gives the same numbers: a key is used for one purpose once. In simulation it comes from the run's
 * seed, elsewhere from the operating system (secagg_seed) or a round's secret (secagg_client_derive).
 */
#ifndef FED_NOISE_H
#define FED_NOISE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { NOISE_KEY = 32, NOISE_BUFFER = 1024 };

struct noise {
    uint8_t key[NOISE_KEY];
    uint64_t block; /* of the next refill, in 64 bytes */
    uint8_t buffer[NOISE_BUFFER];
    size_t at; /* bytes of the buffer that are used up */
};

void noise_init(struct noise *noise, const uint8_t key[NOISE_KEY]);
void noise_release(struct noise *noise); /* wipes it */

uint64_t noise_u64(struct noise *noise);
/* Uniform in [0, below), without bias; below > 0. */
uint64_t noise_below(struct noise *noise, uint64_t below);

enum { NOISE_DEVIATION = 1 << 26 }; /* the largest */
/* A whole number k with probability proportional to exp(-k^2 / 2 deviation^2); 1 <= deviation <= NOISE_DEVIATION. */
int64_t noise_gaussian(struct noise *noise, uint32_t deviation);

#endif /* FED_NOISE_H */
