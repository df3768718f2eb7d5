/* SPDX-License-Identifier: MIT */
/* quantize.h - numbers as words of a ring, so that a sum of them is exact.
 *
 * A value is clipped to [-range, range], divided by `step` and rounded to a whole number q, which is kept modulo 2^bits. A sum
 * of up to `participants` of them is the whole number itself as long as it stays within half the ring either
 * way; quantize_init picks the finest step for which it must, and refuses what has too little room. With noise
 * on top (dp.h) room for 16 of its deviations is left too, and a step is no finer than noise.h can draw.
 *
 * Nearest rounding errs by at most step/2 a participant, always the same way for the same value; stochastic rounding by
 * less than step, and by nothing on average. Without a generator it is the nearest, ties to even.
 */
#ifndef FED_QUANTIZE_H
#define FED_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "fed/noise.h"

struct quantize {
    int bits;     /* 32 or 64 */
    int64_t most; /* q of the range */
    double range, step;
};

/* range: the largest |value| of one participant. noise: deviation of the noise in the sum of all, 0 for none. STATUS_USAGE with the
 * reason where the ring has no room: fewer than 2^10 steps for the range. */
MUST_CHECK enum status quantize_init(int bits, uint32_t participants, double range,
                                     double noise, struct quantize *out);

/* words[0..count) from values; words of 4 or 8 bytes. Returns how many values were clipped; NaN counts as clipped and becomes
 * 0. source: for stochastic rounding; NULL: nearest. */
size_t quantize_encode(const struct quantize *quantize, const float *values, size_t count,
                       struct noise *source, void *words);
/* The sum's values: words taken as signed, times step. */
void quantize_decode(const struct quantize *quantize, const void *words, size_t count,
                     double *values);

#endif /* FED_QUANTIZE_H */
