/* SPDX-License-Identifier: MIT */
/* curve.c - one series as a line.
 *
 * A series with more points than its line can show is thinned out column of pixels
 * by column: of each, the first, the least, the greatest and the last point stay,
 * which draws the same picture as all points would.
 *
 * A noisy series is drawn pale, and over it its course: at each place the value of
 * a straight line fitted to the points around (local regression, Cleveland 1979,
 * with equal weights). Unlike a running mean this neither lags nor bends at the
 * ends, so the last value of the course can be told.
 */
#include "report/curve.h"

#include <math.h>

enum {
    MARKS = 48,       /* longer series have no marks: they would touch */
    NOISY_LEAST = 40, /* shorter ones are drawn as an ordinary line */
    DENSE = 1000,     /* longer ones are paler: their strokes add up */
    COURSE_POINTS = 160,
};

static const double course_width = 0.03; /* half of the window, as part of all points */
static const double left_out = 0.03;     /* of a noisy series, on each side; see curve_narrow */

bool curve_is_visible(const struct plot *plot, const struct plot_series *series, size_t i)
{
    const double x = series->x[i] / frame_unit(&plot->x);
    const double y = series->y[i] / frame_unit(&plot->y);

    return isfinite(x) && isfinite(y) && !(plot->x.log && x <= 0) && !(plot->y.log && y <= 0);
}

bool curve_is_noisy(const struct plot_series *series)
{
    return series->style == PLOT_NOISY && series->count >= NOISY_LEAST;
}

bool curve_has_marks(const struct plot_series *series)
{
    return series->style == PLOT_POINTS || (!curve_is_noisy(series) && series->count <= MARKS);
}

/* How many of the visible values are below `value`; *out_total is how many there are. */
static size_t count_below(const struct plot *plot, const struct plot_series *series,
                          double value, size_t *out_total)
{
    size_t below = 0, total = 0;

    for (size_t i = 0; i < series->count; i++) {
        if (!curve_is_visible(plot, series, i))
            continue;
        total++;
        below += series->y[i] < value;
    }
    *out_total = total;
    return below;
}

void curve_narrow(const struct plot *plot, const struct plot_series *series,
                  struct scale_range *range)
{
    double lo[] = { range->lo, range->lo }, hi[] = { range->hi, range->hi };
    const double parts[] = { left_out, 1 - left_out };

    for (int side = 0; side < 2; side++) { /* the quantile by halving its interval */
        for (int i = 0; i < 50; i++) {
            const double middle = lo[side] + (hi[side] - lo[side]) / 2;
            size_t total;
            const size_t below = count_below(plot, series, middle, &total);
            if ((double)below <= parts[side] * (double)total)
                lo[side] = middle;
            else
                hi[side] = middle;
        }
    }
    range->lo = lo[0];
    range->hi = hi[1];
}

size_t curve_find(const struct plot_series *series, double x)
{
    size_t lo = 0, hi = series->count;

    while (lo < hi) {
        const size_t middle = lo + (hi - lo) / 2;
        if (series->x[middle] < x)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

double curve_course(const struct plot *plot, const struct plot_series *series, size_t at)
{
    /* At the ends the window is as wide as elsewhere, to one side: noise counts more there. */
    const size_t half = (size_t)((double)series->count * course_width) + 2;
    const size_t latest = series->count > 2 * half ? series->count - 1 - 2 * half : 0;
    const size_t wanted = at > half ? at - half : 0;
    const size_t from = wanted < latest ? wanted : latest;
    const size_t to = from + 2 * half < series->count ? from + 2 * half : series->count - 1;
    const double width = series->x[to] - series->x[from];
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;

    for (size_t i = from; i <= to; i++) {
        if (!curve_is_visible(plot, series, i))
            continue;
        const double x = width > 0 ? (series->x[i] - series->x[at]) / width : 0;
        const double y = plot->y.log ? log(series->y[i]) : series->y[i];
        n++;
        sx += x;
        sy += y;
        sxx += x * x;
        sxy += x * y;
    }
    const double spread = n * sxx - sx * sx;
    const double y =
        spread > 1e-6 ? (sxx * sy - sx * sxy) / spread : sy / n; /* NaN if n is 0 */
    return plot->y.log ? exp(y) : y;
}

/* Writes a line's path, thinned out. */
struct pen {
    struct strbuf *out;
    bool is_down;
};

static void draw_to(struct pen *pen, double x, double y)
{
    strbuf_printf(pen->out, "%c%.1f %.1f", pen->is_down ? 'L' : 'M', x, y);
    pen->is_down = true;
}

/* The points of one column of pixels, by index into the series. */
struct column {
    double place;
    size_t first, last, least, greatest;
};

static void draw_column(struct pen *pen, const struct frame *frame,
                        const struct plot_series *series, const struct column *column)
{
    const size_t low = column->least, high = column->greatest;
    const size_t order[] = { column->first, low < high ? low : high, low < high ? high : low,
                             column->last };

    for (int k = 0; k < 4; k++) {
        const size_t i = order[k];
        if (k == 0 || i != order[k - 1])
            draw_to(pen, frame_x(frame, series->x[i]), frame_y(frame, series->y[i]));
    }
}

static void draw_path(struct strbuf *out, const struct frame *frame,
                      const struct plot_series *series)
{
    struct pen pen = { .out = out };
    struct column column = { .place = NAN };
    const bool all = (double)series->count <= 2 * (frame->right - frame->left);

    for (size_t i = 0; i < series->count; i++) {
        if (!curve_is_visible(frame->plot, series, i)) {
            if (!isnan(column.place))
                draw_column(&pen, frame, series, &column);
            column.place = NAN;
            pen.is_down = false;
            continue;
        }
        const double x = frame_x(frame, series->x[i]);
        if (all) {
            draw_to(&pen, x, frame_y(frame, series->y[i]));
            continue;
        }
        if (floor(x) == column.place) {
            column.last = i;
            if (series->y[i] < series->y[column.least])
                column.least = i;
            if (series->y[i] > series->y[column.greatest])
                column.greatest = i;
            continue;
        }
        if (!isnan(column.place))
            draw_column(&pen, frame, series, &column);
        column = (struct column){
            .place = floor(x), .first = i, .last = i, .least = i, .greatest = i
        };
    }
    if (!isnan(column.place))
        draw_column(&pen, frame, series, &column);
}

static bool is_alone(const struct plot *plot, const struct plot_series *series, size_t i)
{
    return (i == 0 || !curve_is_visible(plot, series, i - 1)) &&
           (i + 1 == series->count || !curve_is_visible(plot, series, i + 1));
}

/* Marks at all points if there is room, else at those that no line reaches. */
static void draw_marks(struct strbuf *out, const struct frame *frame,
                       const struct plot_series *series)
{
    const bool all = curve_has_marks(series);
    double last_x = -1e9, last_y = 0;

    for (size_t i = 0; i < series->count; i++) {
        if (!curve_is_visible(frame->plot, series, i) ||
            !(all || is_alone(frame->plot, series, i)))
            continue;
        const double x = frame_x(frame, series->x[i]), y = frame_y(frame, series->y[i]);
        if (!frame_holds_y(frame, y) || (fabs(x - last_x) < 1 && fabs(y - last_y) < 1))
            continue; /* outside, or it would cover the one before */
        frame_mark(out, series->colour, x, y, 6.4);
        last_x = x;
        last_y = y;
    }
}

static void draw_course(struct strbuf *out, const struct frame *frame,
                        const struct plot_series *series)
{
    const size_t last = series->count - 1;
    struct pen pen = { .out = out };
    size_t before = series->count;

    strbuf_add(out, "<path d=\"");
    for (size_t k = 0; k <= COURSE_POINTS; k++) {
        const size_t i = (size_t)((double)last * (double)k / COURSE_POINTS);
        if (i == before)
            continue;
        before = i;
        const double y = curve_course(frame->plot, series, i);
        if (curve_is_visible(frame->plot, series, i) && isfinite(y))
            draw_to(&pen, frame_x(frame, series->x[i]), frame_y(frame, y));
        else
            pen.is_down = false;
    }
    strbuf_add(out, "\" fill=\"none\" stroke-width=\"2\" stroke-linejoin=\"round\"");
    frame_stroke(out, series->colour);
    strbuf_add(out, "/>\n");
}

static void draw_line(struct strbuf *out, const struct frame *frame,
                      const struct plot_series *series)
{
    const char *width = "2", *opacity = "1";

    if (curve_is_noisy(series)) {
        width = "1";
        opacity = series->count > DENSE ? "0.22" : "0.4";
    }
    strbuf_add(out, "<path d=\"");
    draw_path(out, frame, series);
    strbuf_printf(out,
                  "\" fill=\"none\" stroke-width=\"%s\" stroke-opacity=\"%s\" "
                  "stroke-linejoin=\"round\" stroke-linecap=\"round\"%s",
                  width, opacity, series->dashed ? " stroke-dasharray=\"6 4\"" : "");
    frame_stroke(out, series->colour);
    strbuf_add(out, "/>\n");
}

bool curve_has_band(const struct plot *plot, const struct plot_series *series, size_t i)
{
    return series->low && series->high && curve_is_visible(plot, series, i) &&
           isfinite(series->low[i] / frame_unit(&plot->y)) &&
           isfinite(series->high[i] / frame_unit(&plot->y)) &&
           !(plot->y.log && series->low[i] <= 0);
}

/* The band from point `from` to before `to`: there along its upper edge, back along the lower. One point's
 * is an upright line. */
static void draw_area(struct strbuf *out, const struct frame *frame,
                      const struct plot_series *series, size_t from, size_t to)
{
    struct pen pen = { .out = out };

    strbuf_add(out, "<path d=\"");
    for (size_t i = from; i < to; i++)
        draw_to(&pen, frame_x(frame, series->x[i]), frame_y(frame, series->high[i]));
    for (size_t i = to; i > from; i--)
        draw_to(&pen, frame_x(frame, series->x[i - 1]), frame_y(frame, series->low[i - 1]));
    if (to - from > 1) {
        strbuf_add(out, "Z\" fill-opacity=\"0.16\"");
        frame_fill(out, series->colour);
    } else {
        strbuf_add(out, "\" fill=\"none\" stroke-width=\"5\" stroke-opacity=\"0.25\"");
        frame_stroke(out, series->colour);
    }
    strbuf_add(out, "/>\n");
}

void curve_draw_band(struct strbuf *out, const struct frame *frame,
                     const struct plot_series *series)
{
    size_t from = 0;

    for (size_t i = 0; i <= series->count; i++) {
        if (i < series->count && curve_has_band(frame->plot, series, i))
            continue;
        if (i > from)
            draw_area(out, frame, series, from, i);
        from = i + 1;
    }
}

void curve_draw(struct strbuf *out, const struct frame *frame, const struct plot_series *series)
{
    if (curve_is_noisy(series)) {
        /* An inner <svg> cuts off what leaves the frame. */
        const double left = frame->left, top = frame->top;
        const double width = frame->right - left, height = frame->bottom - top;
        strbuf_printf(out,
                      "<svg x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                      "viewBox=\"%.1f %.1f %.1f %.1f\">\n",
                      left, top, width, height, left, top, width, height);
        draw_line(out, frame, series);
        draw_course(out, frame, series);
        strbuf_add(out, "</svg>\n");
    } else if (series->style != PLOT_POINTS) {
        draw_line(out, frame, series);
    }
    draw_marks(out, frame, series);
    strbuf_add(out, "\n");
}
