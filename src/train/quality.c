/* SPDX-License-Identifier: MIT */
/* quality.c - area under the curve, and calibration. */
#include "train/quality.h"

#include <math.h>
#include <stdlib.h>

static int compare_scores(const void *a, const void *b)
{
    const float x = ((const struct quality_sample *)a)->score;
    const float y = ((const struct quality_sample *)b)->score;
    return x < y ? -1 : x > y;
}

/* Pairs in the right order, counted while walking up the scores: each group of equal ones meets the zeros below
 * it, and half of its own. */
static double area(struct quality_sample *samples, int64_t count)
{
    double pairs = 0, zeros = 0, ones = 0;

    qsort(samples, (size_t)count, sizeof *samples, compare_scores);
    for (int64_t i = 0; i < count;) {
        const float score = samples[i].score;
        double of_zero = 0, of_one = 0;
        for (; i < count && samples[i].score == score; i++) {
            of_zero += samples[i].label == 0;
            of_one += samples[i].label == 1;
        }
        pairs += of_one * (zeros + of_zero / 2);
        zeros += of_zero;
        ones += of_one;
    }
    return zeros > 0 && ones > 0 ? pairs / (zeros * ones) : (double)NAN;
}

static double probability_of(const struct quality_sample *sample, int classes)
{
    return classes == 2 ? 1 / (1 + exp(-(double)sample->score)) : (double)sample->score;
}

static int bin_of(double probability)
{
    const int bin = (int)(probability * QUALITY_BINS);
    return bin < 0 ? 0 : bin >= QUALITY_BINS ? QUALITY_BINS - 1 : bin;
}

static void calibrate(const struct quality_sample *samples, int64_t count, int classes,
                      struct quality *out)
{
    double sum[QUALITY_BINS] = { 0 }, hits[QUALITY_BINS] = { 0 }, error = 0;

    for (int64_t i = 0; i < count; i++) {
        const double probability = probability_of(&samples[i], classes);
        const int bin = bin_of(probability);
        out->count[bin]++;
        sum[bin] += probability;
        hits[bin] +=
            classes == 2 ? samples[i].label == 1 : samples[i].label == samples[i].answer;
    }
    for (int bin = 0; bin < QUALITY_BINS; bin++) {
        error += fabs(sum[bin] - hits[bin]);
        out->probability[bin] = out->count[bin] ? sum[bin] / (double)out->count[bin] : NAN;
        out->share[bin] = out->count[bin] ? hits[bin] / (double)out->count[bin] : NAN;
    }
    out->calibration_error = count > 0 ? error / (double)count : (double)NAN;
}

void quality_measure(struct quality_sample *samples, int64_t count, int classes,
                     struct quality *out)
{
    *out = (struct quality){ .auc = NAN, .calibration_error = NAN };
    for (int64_t i = 0; i < count; i++) {
        if (isnan(samples[i].score))
            return;
    }
    calibrate(samples, count, classes, out);
    if (classes == 2)
        out->auc = area(samples, count);
}
