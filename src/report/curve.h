/* SPDX-License-Identifier: MIT */
/* curve.h - one series of a line plot. Private to report/. */
#ifndef REPORT_CURVE_H
#define REPORT_CURVE_H

#include "report/frame.h"

/* Whether the axes can show point i. */
bool curve_is_visible(const struct plot *plot, const struct plot_series *series, size_t i);
/* Whether the series is drawn pale with its course over it. */
bool curve_is_noisy(const struct plot_series *series);
bool curve_has_marks(const struct plot_series *series);
/* First point at x or right of it; count if there is none. */
size_t curve_find(const struct plot_series *series, double x);
/* The smoothed value at point `at`; NaN where no visible point is near. */
double curve_course(const struct plot *plot, const struct plot_series *series, size_t at);
/* Narrows the range of a noisy series' values to what all but a few of them need, so that the
 * first steps of a training, or a spike, do not flatten the rest; the line leaves the frame. */
void curve_narrow(const struct plot *plot, const struct plot_series *series,
                  struct scale_range *range);

/* Whether there is a band at point i. */
bool curve_has_band(const struct plot *plot, const struct plot_series *series, size_t i);
void curve_draw_band(struct strbuf *out, const struct frame *frame,
                     const struct plot_series *series);
void curve_draw(struct strbuf *out, const struct frame *frame,
                const struct plot_series *series);

#endif /* REPORT_CURVE_H */
