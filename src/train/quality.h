/* SPDX-License-Identifier: MIT */
/* quality.h - how well a classifier's probabilities are, besides its answers: ranking and calibration.
 *
 * Of two classes the probability that is judged is that of class 1, and what it should be is the share of class
 * 1; of more it is that of the answer, and the share of right answers. Probabilities are put into QUALITY_BINS bins of one
 * width; the expected calibration error is the mean over samples of the distance between a bin's mean probability and
 * its share (Guo et al. 2017). AUC, of two classes alone, is the share of pairs of a sample of class 1 and
 * one of class 0 that have the scores in the right order, equal ones counting half (Mann and Whitney).
 */
#ifndef TRAIN_QUALITY_H
#define TRAIN_QUALITY_H

#include <stdint.h>

#include "base/status.h"

enum { QUALITY_BINS = 10 };

struct quality {
    double auc, calibration_error; /* NaN where unknown */
    int64_t count[QUALITY_BINS];
    double probability[QUALITY_BINS], share[QUALITY_BINS]; /* of a bin; NaN if it is empty */
};

struct quality_sample {
    int32_t label, answer;
    float
        score; /* of two classes: the logit of class 1 less that of class 0; of more: the answer's probability */
};

/* Of samples whose labels are below `classes`. Reorders them. */
void quality_measure(struct quality_sample *samples, int64_t count, int classes,
                     struct quality *out);

#endif /* TRAIN_QUALITY_H */
