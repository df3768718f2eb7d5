/* SPDX-License-Identifier: MIT */
/* scale.c - ranges and ticks.
 *
 * Ticks are 1, 2 or 5 times a power of ten apart. A logarithmic axis has them at
 * powers of ten, with 2 and 5 times them if there are few, and not at each power
 * if there are many.
 */
#include "report/scale.h"

#include <math.h>

static const double greatest = 1e300; /* differences of two such values are finite */
static const double least = 1e-300;   /* positive values below are shown there */
static const double distinct = 1e-9;  /* ranges relatively narrower are one value to the eye */

void scale_include(struct scale_range *range, double value, bool log)
{
    if (!isfinite(value) || (log && value <= 0))
        return;
    value = fmin(fmax(value, -greatest), greatest);
    if (log)
        value = fmax(value, least);
    if (range->lo > range->hi) {
        range->lo = range->hi = value;
    } else {
        range->lo = fmin(range->lo, value);
        range->hi = fmax(range->hi, value);
    }
}

static double power_of_ten(int exponent)
{
    /* Dividing by an exact power is closer than multiplying by a rounded one. */
    return exponent < 0 ? 1 / pow(10, -exponent) : pow(10, exponent);
}

/* The least of 1, 2, 5 times a power of ten that is not below `raw`. */
static double nice_step(double raw)
{
    const int exponent = (int)floor(log10(raw));
    const double unit = power_of_ten(exponent);
    const double tight = raw / unit * (1 - 1e-9);
    const double factor = tight <= 1 ? 1 : tight <= 2 ? 2 : tight <= 5 ? 5 : 10;

    return factor * unit;
}

static void add_tick(struct scale *scale, double value)
{
    if (scale->n_ticks < SCALE_TICKS)
        scale->ticks[scale->n_ticks++] = value;
}

static void place_linear_ticks(struct scale *scale, const struct scale_rule *rule)
{
    double step = nice_step((scale->hi - scale->lo) / rule->wanted);

    if (rule->whole && step < 1)
        step = 1;
    const double slack = 1e-6; /* of a step, for rounding */
    if (rule->loose) {
        scale->lo = floor(scale->lo / step + slack) * step;
        scale->hi = ceil(scale->hi / step - slack) * step;
    }
    const double next = ceil(scale->hi / step - slack) * step;
    if (next - scale->hi < 0.03 * (scale->hi - scale->lo))
        scale->hi = fmax(scale->hi, next); /* so near that it would be missed */
    scale->step = step;
    const double first = ceil(scale->lo / step - slack), last = floor(scale->hi / step + slack);
    const int count = (int)fmin(last - first + 1, SCALE_TICKS);
    for (int i = 0; i < count; i++)
        add_tick(scale, (first + i) * step + 0.0); /* + 0.0: no negative zero */
}

static void place_log_ticks(struct scale *scale, const struct scale_rule *rule)
{
    const double decades = log10(scale->hi) - log10(scale->lo);
    const int stride = decades > rule->wanted ? (int)ceil(decades / rule->wanted) : 1;
    const bool between = decades * 2 < rule->wanted;
    static const double factors[] = { 1, 2, 5 };

    if (rule->loose && decades > 0.7) {
        scale->lo = power_of_ten((int)floor(log10(scale->lo) + distinct));
        scale->hi = power_of_ten((int)ceil(log10(scale->hi) - distinct));
    }
    const int first = (int)floor(log10(scale->lo)), last = (int)ceil(log10(scale->hi));
    for (int exponent = first; exponent <= last; exponent++) {
        for (int i = 0; i < (between ? 3 : 1); i++) {
            const double value = factors[i] * power_of_ten(exponent);
            if (exponent % stride == 0 && value >= scale->lo * (1 - distinct) &&
                value <= scale->hi * (1 + distinct))
                add_tick(scale, value);
        }
    }
    if (scale->n_ticks < 2) { /* within a decade: as on a linear axis */
        const struct scale_rule linear = { .wanted = rule->wanted };
        scale->n_ticks = 0;
        place_linear_ticks(scale, &linear);
    }
}

/* Takes away what is beyond 0 and 1, where no value is. */
static void limit_to_shares(struct scale *scale, struct scale_range range)
{
    const double most = range.hi <= 1 + 1e-6 ? fmax(range.hi, 1) : INFINITY;
    const double low = range.lo >= 0 ? 0 : -INFINITY;
    int kept = 0;

    if (range.lo > range.hi)
        return;
    scale->hi = fmin(scale->hi, most);
    scale->lo = fmax(scale->lo, low);
    for (int i = 0; i < scale->n_ticks; i++) {
        if (scale->ticks[i] <= most + 1e-9 && scale->ticks[i] >= low)
            scale->ticks[kept++] = scale->ticks[i];
    }
    scale->n_ticks = kept;
    if (kept == 0) /* all were beyond: the ends are ticks */
        add_tick(scale, scale->lo);
    if (kept == 0)
        add_tick(scale, scale->hi);
}

void scale_fit(struct scale *out, struct scale_range range, const struct scale_rule *rule)
{
    double lo = range.lo, hi = range.hi;

    if (lo > hi) {
        lo = rule->log ? 0.1 : 0;
        hi = 1;
    }
    if (rule->log) {
        if (hi / lo < 1 + 1e-6) {
            lo /= 2;
            hi *= 2;
        }
    } else {
        if (rule->from_zero) {
            lo = fmin(lo, 0);
            hi = fmax(hi, 0);
        }
        const double size = fmax(fabs(lo), fabs(hi));
        if (hi - lo <= distinct * size || hi - lo < least) {
            const double margin = size < least ? 1 : size * 0.1;
            lo -= rule->from_zero && size < least ? 0 : margin;
            hi += margin;
        }
    }
    *out = (struct scale){ .lo = lo, .hi = hi, .log = rule->log };
    if (rule->log)
        place_log_ticks(out, rule);
    else
        place_linear_ticks(out, rule);
    if (rule->share && !rule->log)
        limit_to_shares(out, range);
}

double scale_place(const struct scale *scale, double value)
{
    if (!isfinite(value) || (scale->log && value <= 0))
        return NAN;
    value = fmin(fmax(value, -greatest), greatest);
    if (scale->log)
        return (log(fmax(value, least)) - log(scale->lo)) / (log(scale->hi) - log(scale->lo));
    return (value - scale->lo) / (scale->hi - scale->lo);
}
