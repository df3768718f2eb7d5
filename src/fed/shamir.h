/* SPDX-License-Identifier: MIT */
/* shamir.h - private: a secret in shares, of which a threshold make it whole and fewer say nothing.
 *
 * A secret of 32 bytes is five limbs of 52 bits, each shared by a polynomial of its own over the prime field of 2^61 - 1. The share
 * of holder x is the five values at x + 1; the secret is at 0.
 */
#ifndef FED_SHAMIR_H
#define FED_SHAMIR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "fed/noise.h"

enum { SHAMIR_SECRET = 32, SHAMIR_LIMBS = 5, SHAMIR_SHARE = 8 * SHAMIR_LIMBS };

/* shares[i]: of holders[i], numbers below 2^32 that differ; threshold <= n. Coefficients are drawn from `source`. */
MUST_CHECK enum status shamir_split(const uint8_t secret[SHAMIR_SECRET], uint32_t threshold,
                                    const uint32_t *holders, uint32_t n, struct noise *source,
                                    uint8_t (*shares)[SHAMIR_SHARE]);

/* Are all limbs numbers of the field? */
bool shamir_is_share(const uint8_t share[SHAMIR_SHARE]);

/* The weights with which the shares of these holders, all different, add up to the secret. */
void shamir_weights(const uint32_t *holders, uint32_t n, uint64_t *weights);
/* The secret from n shares that are numbers of the field. Wrong shares give a wrong secret, or false where a limb is too
 * long. */
MUST_CHECK bool shamir_join(const uint8_t *const *shares, const uint64_t *weights, uint32_t n,
                            uint8_t secret[SHAMIR_SECRET]);

#endif /* FED_SHAMIR_H */
