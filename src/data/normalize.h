/* SPDX-License-Identifier: MIT */
/* normalize.h - bytes of pixels to the numbers a model sees, the same bits on every machine.
 *
 * A pixel becomes (pixel * (1/255) - mean) / deviation of its channel, computed in double and
 * rounded once to float. The float nearest to 1/255 is that number itself as a deviation.
 * Planes of bytes become pixels with their channels side by side. Private to data/.
 *
 * Threads: any.
 */
#ifndef DATA_NORMALIZE_H
#define DATA_NORMALIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "data/dataset.h"

enum { NORMALIZE_CHANNELS = 3, NORMALIZE_VALUES = 256, NORMALIZE_PATTERN = 48 };

struct normalizer;

/* x[i * channels + c] becomes what pixels[c * count + i] stands for, i < count. */
typedef void normalize_fn(const struct normalizer *normalizer, const uint8_t *pixels,
                          int64_t count, float *x);

/* Numbers that repeat with the channels: [i] is channel i % channels. A pixel p becomes
 * (p * slope + offset) + (p * slope_rest + offset_rest). */
struct normalize_pattern {
    float slope[NORMALIZE_PATTERN], offset[NORMALIZE_PATTERN];
    float slope_rest[NORMALIZE_PATTERN], offset_rest[NORMALIZE_PATTERN];
};

struct normalizer {
    _Alignas(64) struct normalize_pattern pattern;
    float value[NORMALIZE_CHANNELS][NORMALIZE_VALUES]; /* what each byte becomes */
    int channels;
    bool is_exact; /* does the pattern give value's bits for every byte of every channel? */
    normalize_fn *run;
};

void normalizer_init(struct normalizer *normalizer, const struct pixel_scale *scale,
                     int channels);

/* What `run` may be, for tests to compare. All give the same bits; those that calculate take 1 or
 * 3 channels and want is_exact. */
normalize_fn normalize_by_table, normalize_by_arithmetic;
/* The second with the processor's vectors; NULL where it has none. */
normalize_fn *normalize_native(void);

#endif /* DATA_NORMALIZE_H */
