/* SPDX-License-Identifier: MIT */
/* quantize.c - fixed point in a ring.
 *
 * For 32 bits, 100 participants and no noise: 2^31 / 100 leaves |q| <= 21474836, so a range of 1 has steps of 4.7e-8, finer
 * than a float's at 1. */
#include "fed/quantize.h"

#include <math.h>
#include <string.h>

enum { FEWEST = 1 << 10, ROOM = 16 /* deviations of noise */ };
#define FINEST 0x1p40 /* so that sums of 2^13 are exact as doubles */

enum status quantize_init(int bits, uint32_t participants, double range, double noise,
                          struct quantize *out)
{
    if (bits != 32 && bits != 64)
        return FAIL(STATUS_USAGE, "a ring of %d bits: it has 32 or 64", bits);
    if (participants == 0)
        return FAIL(STATUS_USAGE, "a sum of no participants");
    if (!(range > 0) || !isfinite(range) || !(noise >= 0) || !isfinite(noise))
        return FAIL(STATUS_USAGE,
                    "a range of %g and noise of %g: the range is above 0, and both are finite",
                    range, noise);
    double most = (ldexp(1, bits - 1) - 1) / (participants + ROOM * noise / range);
    if (most > FINEST)
        most = FINEST;
    if (noise > 0 && most > NOISE_DEVIATION / 2.0 * range / noise)
        most = NOISE_DEVIATION / 2.0 * range / noise;
    if (!(most >= FEWEST))
        return FAIL(
            STATUS_USAGE,
            "a ring of %d bits has no room for %u participants with values up to %g and "
            "noise of %g: take %s, or a larger range",
            bits, participants, range, noise, bits == 32 ? "64 bits" : "less noise");
    *out = (struct quantize){ .bits = bits, .most = (int64_t)most, .range = range };
    out->step = range / (double)out->most;
    return STATUS_OK;
}

static int64_t round_value(double scaled, struct noise *source)
{
    if (!source)
        return llrint(scaled);
    const double whole = floor(scaled);
    const double chance = (double)(noise_u64(source) >> 11) * 0x1p-53;
    return (int64_t)whole + (chance < scaled - whole);
}

size_t quantize_encode(const struct quantize *quantize, const float *values, size_t count,
                       struct noise *source, void *words)
{
    const double scale = (double)quantize->most / quantize->range;
    size_t clipped = 0;

    for (size_t i = 0; i < count; i++) {
        double value = values[i];
        if (!(fabs(value) <= quantize->range)) {
            value = isnan(value) ? 0 : copysign(quantize->range, value);
            clipped++;
        }
        const int64_t q = round_value(value * scale, source);
        if (quantize->bits == 32)
            ((uint32_t *)words)[i] = (uint32_t)q;
        else
            ((uint64_t *)words)[i] = (uint64_t)q;
    }
    return clipped;
}

void quantize_decode(const struct quantize *quantize, const void *words, size_t count,
                     double *values)
{
    for (size_t i = 0; i < count; i++) {
        const int64_t q = quantize->bits == 32 ? (int32_t)((const uint32_t *)words)[i]
                                               : (int64_t)((const uint64_t *)words)[i];
        values[i] = (double)q * quantize->step;
    }
}
