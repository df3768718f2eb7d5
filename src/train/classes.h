/* SPDX-License-Identifier: MIT */
/* classes.h - taking what an evaluation counted out of an executor. Private to train/. */
#ifndef TRAIN_CLASSES_H
#define TRAIN_CLASSES_H

#include "exec/exec.h"
#include "train/quality.h"
#include "train/train.h"

/* What the last evaluation of `exec`, which was on `data`, counted. */
MUST_CHECK enum status classes_take(const struct exec *exec, const struct source *source,
                                    struct train_classes *out);
/* How well its probabilities are; NaNs where the model has no classes. */
MUST_CHECK enum status classes_quality(const struct exec *exec, const struct source *source,
                                       struct quality *out);
/* Accuracy by the five largest logits; NaN where that says nothing. */
double classes_top5(const struct exec *exec, const struct exec_result *result);

#endif /* TRAIN_CLASSES_H */
