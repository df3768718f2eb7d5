/* SPDX-License-Identifier: MIT */
/* interval.c - chooses how long workers train alone. */
#include "train/interval.h"

#include <math.h>

/* Share of the time that meetings may take at first; how much a new measurement counts. */
static const double comm_share = 0.1, newest = 0.3;

/* How many times as large as before; 1 where that cannot be said. */
static double ratio(double now, double before)
{
    const double r = now / before;

    return now > 0 && before > 0 && isfinite(r) ? r : 1;
}

static int64_t bounded(double steps, double least, double most)
{
    const double limited = fmin(fmax(fmax(steps, least), 1), fmin(most, INTERVAL_MOST));

    return (int64_t)round(limited);
}

/* What could not be measured changes nothing. */
static void smooth(double *old, double seen)
{
    if (seen > 0)
        *old += newest * (seen - *old);
}

void interval_next(struct interval *interval, const struct interval_seen *seen)
{
    struct interval_seen *first = &interval->first, *last = &interval->last;

    if (!interval->base) {
        *first = *last = *seen;
        interval->base =
            bounded(seen->step_s > 0 ? seen->comm_s / (comm_share * seen->step_s) : 1, 1,
                    INTERVAL_MOST);
        interval->now = interval->base;
        return;
    }
    smooth(&last->comm_s, seen->comm_s);
    smooth(&last->step_s, seen->step_s);
    smooth(&last->growth, seen->growth);
    smooth(&last->loss, seen->loss);
    last->lr = seen->lr;
    const double factor = ratio(last->loss, first->loss) * ratio(last->comm_s, first->comm_s) *
                          ratio(first->growth, last->growth) * ratio(first->lr, last->lr);
    const double now = (double)interval->now;
    interval->now = bounded((double)interval->base * sqrt(factor), floor(now / 2), 2 * now);
}
