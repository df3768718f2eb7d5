/* SPDX-License-Identifier: MIT */
/* dp.h - differential privacy of participants: clipping, and noise that hides whether one took part.
 *
 * Each participant clips its update to the norm `clip`, with weight 1; so adding or removing one moves the sum by at most
 * that. Noise of deviation noise * clip a coordinate is added to the sum: by the coordinator (central), or in
 * shares by the participants under secure aggregation (distributed), sized so that already the threshold of survivors
 * brings all of it. Divide the noisy sum by a number that does not depend on who took part: the expected number.
 *
 * Both add discrete Gaussian noise to whole numbers of a grid (noise.h). Rounding to the grid can move the sum by half a
 * step more a coordinate; the noise is made larger by that, so the multiplier is `noise`, not nearly.
 */
#ifndef FED_DP_H
#define FED_DP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "fed/noise.h"
#include "fed/quantize.h"

enum dp_place { DP_NONE, DP_CENTRAL, DP_DISTRIBUTED };

struct dp_config {
    enum dp_place place;
    double clip;     /* of a participant's update; the first one if adaptive */
    double noise;    /* multiplier: deviation over clip, of all releases of a round together */
    bool adaptive;   /* clip follows the quantile of norms (Andrew et al. 2021) */
    double quantile; /* in (0, 1); 0.5 is usual */
    double rate;     /* of clip's logarithm; 0.2 is usual */
    double epsilon, delta; /* the budget; see accountant.h */
};
/* STATUS_USAGE with the reason. DP_NONE is always right. */
MUST_CHECK enum status dp_check(const struct dp_config *config);

/* L2 norm; infinity if a value is not finite. */
double dp_norm(const float *update, size_t count);
/* Scales the update so that its norm is at most clip, and returns the norm it had. An update with a value that is not
 * finite becomes zero. */
double dp_clip(float *update, size_t count, double clip);

/* Adaptive clipping: each participant gives, beside its update, dp_bit: 1/2 if its norm was at most clip, else -1/2. The sum of
 * bits gets noise, too; then clip moves towards the quantile. participants: by how many bits are divided. */
float dp_bit(double norm, double clip);
double dp_adapt(const struct dp_config *config, double clip, double bit_sum,
                double participants);
/* The multipliers of the update's own noise and of the noise on bits (whose sensitivity is 1/2): together they cost what
 * config->noise does. Without adaptive clipping config->noise and 0. Adaptive, bits have a tenth. */
double dp_multiplier(const struct dp_config *config);
double dp_bit_multiplier(const struct dp_config *config);

/* Central: adds noise to sum[0..count) with sensitivity `clip` (of bits: 1/2) and multiplier `noise`.
 * STATUS_MISMATCH if a value is not finite or far beyond what clipped updates add up to. */
MUST_CHECK enum status dp_add(struct noise *source, double clip, double noise, double *sum,
                              size_t count);
/* The same in parts: the step of the grid for a vector of `count` values, and noise on some of them, which are at most 2^52 steps
 * from zero. dp_grid gives 0 where there is too much noise for so many values. */
double dp_grid(double clip, double noise, size_t count);
void dp_add_grid(struct noise *source, double step, double *sum, size_t count);

/* Distributed: the share of one participant, of `survivors` at least, for a vector of `count` words in steps of `quantize`. */
struct dp_share {
    uint32_t deviation; /* of one participant's noise, in steps */
    double sensitivity; /* in steps */
};
/* STATUS_USAGE if the step is too coarse for the noise, or too fine (more than NOISE_DEVIATION). */
MUST_CHECK enum status dp_share_init(const struct quantize *quantize, double clip, double noise,
                                     uint32_t survivors, size_t count, struct dp_share *out);
/* Adds the share to words (quantize_encode), modulo 2^bits. */
void dp_share_add(const struct dp_share *share, int bits, struct noise *source, void *words,
                  size_t count);
/* The multiplier that so many survivors made real; for the ledger. */
double dp_share_multiplier(const struct dp_share *share, uint32_t survivors);

#endif /* FED_DP_H */
