/* SPDX-License-Identifier: MIT */
/* dp.c - clipping, adaptive clipping, and noise on a grid. */
#include "fed/dp.h"

#include <math.h>
#include <string.h>

#define BIT_SHARE 0.1   /* of the privacy of a round with adaptive clipping, for bits */
#define FARTHEST 0x1p52 /* steps from zero that a double still counts */
#define CLIP_MARGIN                                                                            \
    0x1p-20 /* so that a clipped update stays below clip after rounding to float */
enum {
    SMALLEST_SHARE = 16
}; /* steps: below, a sum of discrete Gaussians is not one closely enough */

enum status dp_check(const struct dp_config *config)
{
    if (config->place == DP_NONE)
        return STATUS_OK;
    if (!(config->clip > 0) || !isfinite(config->clip))
        return FAIL(STATUS_USAGE, "updates cannot be clipped to a norm of %g: it is above 0",
                    config->clip);
    if (!(config->noise >= 0) || !isfinite(config->noise))
        return FAIL(STATUS_USAGE, "a noise multiplier of %g: it is 0 or more", config->noise);
    if (!(config->delta > 0) || !(config->delta < 1))
        return FAIL(STATUS_USAGE,
                    "a delta of %g: it is between 0 and 1, below 1 / participants",
                    config->delta);
    if (!(config->epsilon > 0))
        return FAIL(STATUS_USAGE, "a budget of epsilon %g: it is above 0", config->epsilon);
    if (config->adaptive && (!(config->quantile > 0) || !(config->quantile < 1) ||
                             !(config->rate > 0) || !isfinite(config->rate)))
        return FAIL(
            STATUS_USAGE,
            "adaptive clipping to the quantile %g at a rate of %g: the quantile is between 0 "
            "and 1, the rate above 0",
            config->quantile, config->rate);
    return STATUS_OK;
}

double dp_norm(const float *update, size_t count)
{
    double squares = 0;

    for (size_t i = 0; i < count; i++)
        squares += (double)update[i] * update[i];
    return isfinite(squares) ? sqrt(squares) : INFINITY;
}

double dp_clip(float *update, size_t count, double clip)
{
    const double norm = dp_norm(update, count);

    if (isinf(norm)) {
        memset(update, 0, count * sizeof(*update));
    } else if (norm > clip) {
        const double scale = clip / norm * (1 - CLIP_MARGIN);
        for (size_t i = 0; i < count; i++)
            update[i] = (float)(update[i] * scale);
    }
    return norm;
}

float dp_bit(double norm, double clip)
{
    return norm <= clip ? 0.5F : -0.5F;
}

double dp_adapt(const struct dp_config *config, double clip, double bit_sum,
                double participants)
{
    const double share = fmin(1, fmax(0, bit_sum / participants + 0.5));

    return clip * exp(-config->rate * (share - config->quantile));
}

/* Two Gaussian releases with multipliers a and b cost what one with (a^-2 + b^-2)^-1/2 does. */
double dp_multiplier(const struct dp_config *config)
{
    return config->adaptive ? config->noise / sqrt(1 - BIT_SHARE) : config->noise;
}

double dp_bit_multiplier(const struct dp_config *config)
{
    return config->adaptive ? config->noise / sqrt(BIT_SHARE) : 0;
}

/* The step is a 2^26th of the deviation, which is noise * (clip + what rounding moves the sum by, step sqrt(count) / 2). */
double dp_grid(double clip, double noise, size_t count)
{
    const double moved = noise * sqrt((double)count) / 2 / NOISE_DEVIATION;

    return moved < 1 ? noise * clip / (1 - moved) / NOISE_DEVIATION : 0;
}

void dp_add_grid(struct noise *source, double step, double *sum, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] =
            (double)(llrint(sum[i] / step) + noise_gaussian(source, NOISE_DEVIATION)) * step;
}

enum status dp_add(struct noise *source, double clip, double noise, double *sum, size_t count)
{
    const double step = dp_grid(clip, noise, count);

    if (noise == 0)
        return STATUS_OK;
    if (!(step > 0))
        return FAIL(STATUS_USAGE, "noise of %g times the clip is too much for %zu values",
                    noise, count);
    for (size_t i = 0; i < count; i++) {
        if (!(fabs(sum[i]) < step * FARTHEST))
            return FAIL(STATUS_MISMATCH,
                        "value %zu of a sum of updates is %g, although each was clipped to %g",
                        i, sum[i], clip);
    }
    dp_add_grid(source, step, sum, count);
    return STATUS_OK;
}

enum status dp_share_init(const struct quantize *quantize, double clip, double noise,
                          uint32_t survivors, size_t count, struct dp_share *out)
{
    /* Rounding, nearest or not, moves each value by at most a step. */
    const double sensitivity = clip / quantize->step + sqrt((double)count);
    const double deviation = ceil(noise * sensitivity / sqrt(survivors));

    if (survivors == 0)
        return FAIL(STATUS_USAGE, "noise in shares of no survivors");
    if (noise > 0 && !(deviation >= SMALLEST_SHARE && deviation <= NOISE_DEVIATION))
        return FAIL(
            STATUS_USAGE,
            "a share of noise has a deviation of %g steps, which must be %d to %d: take %s",
            deviation, SMALLEST_SHARE, NOISE_DEVIATION,
            deviation < SMALLEST_SHARE ? "64 bits or a smaller range"
                                       : "less noise or a larger range");
    *out = (struct dp_share){ .deviation = (uint32_t)deviation, .sensitivity = sensitivity };
    return STATUS_OK;
}

void dp_share_add(const struct dp_share *share, int bits, struct noise *source, void *words,
                  size_t count)
{
    if (share->deviation == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        const int64_t k = noise_gaussian(source, share->deviation);
        if (bits == 32)
            ((uint32_t *)words)[i] += (uint32_t)k;
        else
            ((uint64_t *)words)[i] += (uint64_t)k;
    }
}

double dp_share_multiplier(const struct dp_share *share, uint32_t survivors)
{
    return share->deviation * sqrt(survivors) / share->sensitivity;
}
