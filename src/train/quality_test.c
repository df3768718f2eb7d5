/* SPDX-License-Identifier: MIT */
/* quality_test.c - AUC is the share of pairs in order; calibration that of probabilities come true. */
#include "train/quality.h"

#include <math.h>

#include "base/test.h"

enum { MOST = 60 };

/* By looking at every pair. */
static double pairs_in_order(const struct quality_sample *samples, int64_t count)
{
    double right = 0, pairs = 0;

    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < count; j++) {
            if (samples[i].label != 1 || samples[j].label != 0)
                continue;
            pairs++;
            right += samples[i].score > samples[j].score    ? 1
                     : samples[i].score == samples[j].score ? 0.5
                                                            : 0;
        }
    }
    return pairs > 0 ? right / pairs : (double)NAN;
}

static void test_auc_is_the_share_of_pairs_in_order(struct rng *rng)
{
    struct quality_sample samples[MOST];
    const int64_t count = (int64_t)rng_below(rng, MOST);
    struct quality quality;

    for (int64_t i = 0; i < count; i++)
        samples[i] = (struct quality_sample){ .label = (int32_t)rng_below(rng, 2),
                                              .score = (float)rng_below(rng, 12) - 6 };
    const double expected = pairs_in_order(samples, count);
    quality_measure(samples, count, 2, &quality);
    if (isnan(expected))
        CHECK(isnan(quality.auc));
    else
        CHECK_CLOSE(expected, quality.auc, 1e-12);
}

static void test_calibration_compares_probability_and_share(void)
{
    /* Two samples of logit 0 (probability 0.5), one of class 1; three of ln 9 (0.9), two of class 1. */
    struct quality_sample two[] = { { 0, 0, 0 },
                                    { 1, 0, 0 },
                                    { 1, 1, 2.1972246F },
                                    { 1, 1, 2.1972246F },
                                    { 0, 1, 2.1972246F } };
    struct quality quality;

    quality_measure(two, 5, 2, &quality);
    CHECK_CLOSE(3 * (0.9 - 2.0 / 3) / 5, quality.calibration_error, 1e-6);
    CHECK_INT(2, quality.count[5]);
    CHECK_CLOSE(0.5, quality.share[5], 1e-9);
    CHECK(isnan(quality.share[0]));

    struct quality_sample many[] = { { 3, 3, 0.75F }, { 1, 2, 0.75F }, { 0, 0, 1 } };
    quality_measure(many, 3, 4, &quality);
    CHECK(isnan(quality.auc));
    CHECK_CLOSE(0.5 / 3, quality.calibration_error, 1e-6);
}

static void test_scores_that_are_no_numbers_tell_nothing(void)
{
    struct quality_sample samples[] = { { 0, 0, 1 }, { 1, 0, NAN } };
    struct quality quality;

    quality_measure(samples, 2, 2, &quality);
    CHECK(isnan(quality.auc) && isnan(quality.calibration_error));
    quality_measure(samples, 1, 2, &quality);
    CHECK(isnan(quality.auc) && !isnan(quality.calibration_error));
}

const struct test tests[] = {
    { .name = "AUC is the share of pairs in order",
      .property = test_auc_is_the_share_of_pairs_in_order },
    { .name = "calibration compares probability and share",
      .run = test_calibration_compares_probability_and_share },
    { .name = "scores that are no numbers tell nothing",
      .run = test_scores_that_are_no_numbers_tell_nothing },
    { 0 },
};
