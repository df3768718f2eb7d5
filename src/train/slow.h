/* SPDX-License-Identifier: MIT */
/* slow.h - a testing aid: one rank that is slower than the others (--slow). Private to train/.
 *
 * Ranks that are all slow sleep most of the time: so a few cores show what many workers would do. */
#ifndef TRAIN_SLOW_H
#define TRAIN_SLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct slow {
    int rank;      /* -1: none */
    double factor; /* its steps take so many times as long as others' */
    double all;    /* and everybody's so many times as long as they compute */
};

/* "rank=R,factor=F" or "rank=R,factor=F,all=A"; "" is none. */
MUST_CHECK enum status slow_parse(const char *text, int ranks, struct slow *out);
/* Does this rank sleep at all? */
bool slow_is(const struct slow *slow, int rank);
/* What the last steps of a rank computed. Zeroed before the first. */
enum { SLOW_STEPS = 9 };
struct slow_steps {
    double seconds[SLOW_STEPS];
    int64_t count;
};
/* Sleeps after a step that this rank computed for so many seconds: for as long as the median of the last steps says,
 * so that a step in which others had the core does not count twice. */
void slow_down(const struct slow *slow, int rank, double computed, struct slow_steps *steps);

#endif /* TRAIN_SLOW_H */
