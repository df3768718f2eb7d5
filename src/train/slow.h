/* SPDX-License-Identifier: MIT */
/* slow.h - a testing aid: one rank that is slower than the others (--slow). Private to train/. */
#ifndef TRAIN_SLOW_H
#define TRAIN_SLOW_H

#include <stdbool.h>

#include "base/status.h"

struct slow {
    int rank;      /* -1: none */
    double factor; /* its steps take so many times as long */
};

/* "rank=R,factor=F"; "" is none. */
MUST_CHECK enum status slow_parse(const char *text, int ranks, struct slow *out);
/* Sleeps for factor - 1 times the seconds that a step of this rank computed, if it is the one. */
void slow_down(const struct slow *slow, int rank, double computed);

#endif /* TRAIN_SLOW_H */
