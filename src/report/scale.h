/* SPDX-License-Identifier: MIT */
/* scale.h - from values to places on an axis: which range to show, where its ticks are.
 *
 * Any input gives a usable range: one value, all equal, none, infinite or huge.
 */
#ifndef REPORT_SCALE_H
#define REPORT_SCALE_H

#include <stdbool.h>
#include <stddef.h>

enum { SCALE_TICKS = 32 };

struct scale_rule {
    bool log;       /* powers of ten are equally far apart */
    bool from_zero; /* 0 is part of the range; ignored if log */
    bool whole;     /* ticks at whole numbers only; ignored if log */
    bool loose;     /* the range ends on ticks */
    bool share;     /* neither side goes beyond 0 and 1, unless values do; ignored if log */
    int wanted;     /* about so many ticks, 2 to 16 */
};

struct scale {
    double lo, hi; /* finite, lo < hi; 0 < lo if log */
    bool log;
    double step; /* between ticks; 0 if they are not equally far apart */
    int n_ticks;
    double ticks[SCALE_TICKS]; /* ascending, within [lo, hi] */
};

/* A range being gathered. */
struct scale_range {
    double lo, hi; /* lo > hi: nothing yet */
};
#define SCALE_NOTHING                                                                          \
    {                                                                                          \
        1, 0                                                                                   \
    }
/* Takes the value in if it is finite, and positive if `log`. */
void scale_include(struct scale_range *range, double value, bool log);

void scale_fit(struct scale *out, struct scale_range range, const struct scale_rule *rule);

/* 0 at lo, 1 at hi; NaN for a value that has no place (not finite, not positive if log). */
double scale_place(const struct scale *scale, double value);

#endif /* REPORT_SCALE_H */
