/* SPDX-License-Identifier: MIT */
/* plot.h - plots as SVG text: lines, bars, histograms, matrices.
 *
 * A plot is added to a string buffer as one <svg> element that is complete by
 * itself: cut out of a page into a file it draws the same. plot_style adds the
 * style sheet that a page needs once, for dark mode and for what shows under the
 * pointer. Colours are told apart by colour-blind readers (after Okabe and Ito);
 * marks differ in shape, too, so that a grey print can be read.
 *
 * Values that are not finite are gaps. Any values give a legal picture: none,
 * one, all equal, huge.
 *
 * Errors: those of the buffer, which are sticky; check strbuf_status at the end.
 */
#ifndef REPORT_PLOT_H
#define REPORT_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/strbuf.h"
#include "report/number.h"

/* The palette in order: blue, vermilion, green, orange, purple, sky, brown, grey. */
enum { PLOT_COLOURS = 8, PLOT_GREY = 7 };

struct plot_axis {
    const char *label; /* NULL: none */
    double unit;       /* values are divided by it before they are shown; 0 means 1 */
    enum number_format format;
    bool log;       /* values that are not positive are left out */
    bool from_zero; /* 0 is part of the axis */
    bool whole;     /* ticks at whole numbers only */
    bool share; /* neither side goes beyond 0 and 1, unless values do; so with NUMBER_PERCENT */
};

struct plot {
    const char *title;
    int width, height; /* 0: 540 by 330. Text is 12 to 15 high; bars may make it higher */
    struct plot_axis x, y;
};

enum plot_style {
    PLOT_LINE,   /* with marks where there is room for them */
    PLOT_NOISY,  /* with many points: a pale line and, over it, its smoothed course */
    PLOT_POINTS, /* marks alone */
};

struct plot_series {
    const char *name;    /* for the legend; NULL: not in it */
    const double *x, *y; /* `count` each; x ascends */
    size_t count;
    int colour; /* of the palette; others are taken modulo PLOT_COLOURS */
    enum plot_style style;
    bool dashed;
    bool tell_last; /* writes the last value beside its point */
    /* A pale band behind the line, `count` values each; where one is no number there is none. NULL: no band. */
    const double *low, *high;
};

/* Lines of a series with many points are thinned out such that no peak is lost. */
void plot_lines(struct strbuf *out, const struct plot *plot, const struct plot_series *series,
                size_t n_series);

struct plot_bars {
    const char *const *categories; /* names: one bar, or one group of bars, each */
    size_t n_categories;
    const char *const *names; /* of the series */
    const int *colours;       /* of the series; NULL: 0, 1, 2, ... */
    size_t n_series;
    const double *
        values; /* values[series * n_categories + category]; a negative one counts as 0. One that is
                      * no number has no bar, and a dash where values are told */
    bool stacked;    /* else side by side */
    bool horizontal; /* bars go right; then plot->x is the values' axis, else plot->y */
    bool tell;       /* lying bars of one series: each value is written behind its bar */
    bool all_names;  /* names that would touch are turned upright; else some are left out */
};

void plot_bars(struct strbuf *out, const struct plot *plot, const struct plot_bars *bars);

/* How often values fall into about `n_bins` intervals with round ends; plot->x is the values'
 * axis. */
void plot_histogram(struct strbuf *out, const struct plot *plot, const double *values,
                    size_t count, int n_bins);

/* How often what was one thing was taken for another: a square of cells. A cell's colour tells its share
 * of its row; what was taken rightly, on the diagonal, has another colour than what was not, which is
 * shown on a scale of its own. plot->y.label tells what rows are, plot->x.label what columns are. */
struct plot_matrix {
    const char *const *names; /* of rows and columns */
    size_t n;
    const double *counts; /* counts[row * n + column]; one that is not a positive number is 0 */
};
void plot_matrix(struct strbuf *out, const struct plot *plot, const struct plot_matrix *matrix);

/* Style rules for a <style> element, once a page. */
void plot_style(struct strbuf *out);

#endif /* REPORT_PLOT_H */
