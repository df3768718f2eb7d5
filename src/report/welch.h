/* SPDX-License-Identifier: MIT */
/* welch.h - do two samples differ by more than their noise? Welch's test of their means. */
#ifndef REPORT_WELCH_H
#define REPORT_WELCH_H

#include <stddef.h>

struct moments {
    size_t count;
    double mean, deviation; /* of the sample, with count - 1; NaN where there are too few */
};

/* Values that are not finite are left out. */
struct moments moments_of(const double *values, size_t count);

/* How likely a difference of the means as large as this one is, or larger, if there is none in truth (two-sided).
 * NaN if either sample has fewer than two values; 1 or 0 where neither varies. */
double welch_p(const struct moments *a, const struct moments *b);

/* I_x(a, b): the regularized incomplete beta function, for 0 <= x <= 1 and positive a, b. */
double beta_share(double a, double b, double x);

#endif /* REPORT_WELCH_H */
