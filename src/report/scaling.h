/* SPDX-License-Identifier: MIT */
/* scaling.h - how training scales with the number of ranks: efficiency, a law fitted to it, a page.
 *
 * Strong scaling divides the same work among more ranks; Amdahl: with a share s of it that cannot be
 * divided, n ranks are 1 / (s + (1 - s) / n) times as fast. Weak scaling gives each rank as much; Gustafson:
 * n ranks do n - s (n - 1) times the work of one. s is fitted by least squares over the points, one
 * rank's being exact by definition. Points with more threads than cores say how the machine is shared out,
 * not how training scales: they are shown, and left out of the fit.
 */
#ifndef REPORT_SCALING_H
#define REPORT_SCALING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SCALING_TEXT = 96 };

struct scaling_point {
    int ranks, threads; /* threads of a rank */
    int64_t batch;      /* samples a step, over all ranks */
    double samples_per_s, step_ms, step_ms_low, step_ms_high; /* median; over rounds */
    double comm_share, wait_share, hidden_share;
    double bytes, bytes_optimum;              /* a step and rank; NaN optimum: one rank */
    const double *rank_wait, *rank_made_wait; /* `ranks` shares of the time */
    bool oversubscribed;                      /* more threads than cores */
    /* Filled by scaling_finish. */
    double speedup, efficiency, fitted; /* fitted: the speed-up by the law; NaN: none */
};

struct scaling {
    const char *model, *strategy, *isa;
    bool weak;
    int cores;
    size_t count;
    struct scaling_point *points; /* by ascending ranks */
    /* Filled by scaling_finish. */
    /* serial: from 0 to 1; NaN: too few points. residual: root mean square, relative; NaN where one point
     * was fitted exactly, which says nothing of the law. */
    double serial, residual;
    size_t n_fitted;                     /* points with several ranks that it was fitted to */
    enum scaling_bound {                 /* is the best fit a share that cannot be? */
                         SCALING_WITHIN, /* no */
                         SCALING_SLOWER, /* more than 1: several ranks are slower than one */
                         SCALING_FASTER, /* less than 0: several ranks are more than as many times as fast */
    } bound;
};

/* Speed-ups are against the point with the fewest ranks, which counts as perfect. */
void scaling_finish(struct scaling *scaling);
const char *scaling_law(const struct scaling *scaling); /* "Amdahl" or "Gustafson" */
/* How good the fit is: "off by 3.2% over 4 points", "from one point", ... */
void scaling_print_fit(const struct scaling *scaling, char out[SCALING_TEXT]);

/* Writes the page, replaced as a whole. */
MUST_CHECK enum status scaling_write_page(const struct scaling *scaling, const char *path);

#endif /* REPORT_SCALING_H */
