/* SPDX-License-Identifier: MIT */
/* made_up.h - batches of random samples, for measurements. Private to train/. */
#ifndef TRAIN_MADE_UP_H
#define TRAIN_MADE_UP_H

#include "data/loader.h"
#include "train/job.h"

/* Rows [first, first + rows) of a step of `samples`: normal images, or tokens of the greatest length, and
 * random labels. Follow with made_up_release, after a failure too. */
MUST_CHECK enum status made_up_batch(const struct job *job, int64_t samples, int64_t first,
                                     int64_t rows, struct batch *out);
void made_up_release(struct batch *batch);

#endif /* TRAIN_MADE_UP_H */
