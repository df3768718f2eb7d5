/* SPDX-License-Identifier: MIT */
/* scaling.c - speed-up and efficiency, and the laws of Amdahl and Gustafson. */
#include "report/scaling.h"

#include <math.h>
#include <stdio.h>

#include "report/number.h"

const char *scaling_law(const struct scaling *scaling)
{
    return scaling->weak ? "Gustafson" : "Amdahl";
}

/* How many times as fast n ranks are. */
static double speedup_by_law(bool weak, double serial, double n)
{
    return weak ? n - serial * (n - 1) : 1 / (serial + (1 - serial) / n);
}

/* Both laws are linear in s: Gustafson n - S = s (n - 1), Amdahl 1/S - 1/n = s (1 - 1/n). */
static void add_point(bool weak, double n, double speedup, double *products, double *squares)
{
    const double x = weak ? n - 1 : 1 - 1 / n;
    const double y = weak ? n - speedup : 1 / speedup - 1 / n;

    *products += x * y;
    *squares += x * x;
}

static bool counts(const struct scaling_point *point)
{
    return point->ranks > 1 && !point->oversubscribed && point->speedup > 0;
}

/* The law begins at one rank, so that has to be there. */
static void fit(struct scaling *scaling)
{
    double products = 0, squares = 0, errors = 0;

    scaling->serial = scaling->residual = NAN;
    scaling->n_fitted = 0;
    scaling->bound = SCALING_WITHIN;
    if (scaling->count == 0 || scaling->points[0].ranks != 1 ||
        scaling->points[0].oversubscribed)
        return;
    for (size_t i = 0; i < scaling->count; i++) {
        const struct scaling_point *p = &scaling->points[i];
        if (!counts(p))
            continue;
        add_point(scaling->weak, p->ranks, p->speedup, &products, &squares);
        scaling->n_fitted++;
    }
    if (scaling->n_fitted == 0)
        return;
    const double best = products / squares;
    /* Squares of one unknown: the best share that can be is the one next to the best at all. */
    scaling->serial = fmin(fmax(best, 0), 1);
    scaling->bound = best > 1 ? SCALING_SLOWER : best < 0 ? SCALING_FASTER : SCALING_WITHIN;
    for (size_t i = 0; i < scaling->count; i++) {
        struct scaling_point *p = &scaling->points[i];
        p->fitted = speedup_by_law(scaling->weak, scaling->serial, p->ranks);
        const double error = p->speedup / p->fitted - 1;
        errors += counts(p) ? error * error : 0;
    }
    if (scaling->n_fitted > 1 || scaling->bound != SCALING_WITHIN)
        scaling->residual = sqrt(errors / (double)scaling->n_fitted);
}

void scaling_print_fit(const struct scaling *scaling, char out[SCALING_TEXT])
{
    static const char *const bounds[] = {
        [SCALING_WITHIN] = "",
        [SCALING_SLOWER] = "; more ranks are slower than one",
        [SCALING_FASTER] = "; more ranks are faster than it allows",
    };
    char residual[NUMBER_TEXT];

    number_print(residual, scaling->residual, NUMBER_PERCENT, 0);
    if (scaling->n_fitted == 0)
        snprintf(out, SCALING_TEXT, "no fit: too few points");
    else if (isnan(scaling->residual))
        snprintf(out, SCALING_TEXT, "from one point, which any share fits");
    else
        snprintf(out, SCALING_TEXT, "off by %.20s over %zu %s%s", residual, scaling->n_fitted,
                 scaling->n_fitted == 1 ? "point" : "points", bounds[scaling->bound]);
}

void scaling_finish(struct scaling *scaling)
{
    const struct scaling_point *first = scaling->points;

    for (size_t i = 0; i < scaling->count; i++) {
        struct scaling_point *p = &scaling->points[i];
        p->speedup = p->samples_per_s / first->samples_per_s * first->ranks;
        p->efficiency = p->speedup / p->ranks;
        p->fitted = NAN;
    }
    fit(scaling);
}
