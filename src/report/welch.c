/* SPDX-License-Identifier: MIT */
/* welch.c - Welch's test; Student's distribution by the incomplete beta function. */
#include "report/welch.h"

#include <math.h>

struct moments moments_of(const double *values, size_t count)
{
    struct moments m = { .mean = NAN, .deviation = NAN };
    double sum = 0, squares = 0;

    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        sum += values[i];
        m.count++;
    }
    if (m.count > 0)
        m.mean = sum / (double)m.count;
    for (size_t i = 0; i < count; i++) {
        if (isfinite(values[i]))
            squares += (values[i] - m.mean) * (values[i] - m.mean);
    }
    if (m.count > 1)
        m.deviation = sqrt(squares / (double)(m.count - 1));
    return m;
}

/* The continued fraction of I_x(a, b), by the method of Lentz; it converges quickly for
 * x < (a + 1) / (a + b + 2). */
static double beta_fraction(double a, double b, double x)
{
    enum { MOST = 300 };
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);

    d = 1 / (fabs(d) < tiny ? tiny : d);
    double value = d;
    for (int m = 1; m <= MOST; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        const double terms[2] = { even, odd };
        double factor = 1;
        for (int i = 0; i < 2; i++) {
            d = 1 + terms[i] * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + terms[i] / c;
            c = fabs(c) < tiny ? tiny : c;
            factor = c * d;
            value *= factor;
        }
        if (fabs(factor - 1) < 1e-15)
            break;
    }
    return value;
}

double beta_share(double a, double b, double x)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    const double front =
        exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(a, b, x) / a;
    return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double welch_p(const struct moments *a, const struct moments *b)
{
    if (a->count < 2 || b->count < 2)
        return NAN;
    const double va = a->deviation * a->deviation / (double)a->count;
    const double vb = b->deviation * b->deviation / (double)b->count;
    const double variance = va + vb, difference = a->mean - b->mean;

    if (variance <= 0)
        return difference == 0 ? 1 : 0;
    const double t2 = difference * difference / variance;
    const double freedom =
        variance * variance /
        (va * va / (double)(a->count - 1) + vb * vb / (double)(b->count - 1));
    return beta_share(freedom / 2, 0.5, freedom / (freedom + t2));
}
