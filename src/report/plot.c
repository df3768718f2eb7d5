/* SPDX-License-Identifier: MIT */
/* plot.c - line plots.
 *
 * Under the pointer, a strip of the plot shows a guide line and, as a title, the
 * values there: an SVG needs no script for that.
 */
#include "report/curve.h"

#include <math.h>

enum {
    STRIPS = 120,    /* at most so many places that react to the pointer */
    TOLD = 8,        /* at most so many last values told */
    TOLD_APART = 14, /* their least distance */
    SERIES = 32,     /* more are not drawn: nobody could tell them apart */
};

/* The range of a series' y; noisy ones may leave the frame a little, see curve_narrow. */
static struct scale_range range_of(const struct plot *plot, const struct plot_series *series)
{
    struct scale_range range = SCALE_NOTHING;

    for (size_t i = 0; i < series->count; i++) {
        if (curve_is_visible(plot, series, i))
            scale_include(&range, series->y[i], plot->y.log);
        if (curve_has_band(plot, series, i)) {
            scale_include(&range, series->low[i], plot->y.log);
            scale_include(&range, series->high[i], plot->y.log);
        }
    }
    if (curve_is_noisy(series) && range.lo < range.hi)
        curve_narrow(plot, series, &range);
    return range;
}

static void fit_scales(struct frame *frame, const struct plot_series *series, size_t n_series)
{
    const struct plot *plot = frame->plot;
    struct scale_range x = SCALE_NOTHING, y = SCALE_NOTHING;

    for (size_t s = 0; s < n_series; s++) {
        for (size_t i = 0; i < series[s].count; i++) {
            if (curve_is_visible(plot, &series[s], i))
                scale_include(&x, series[s].x[i] / frame_unit(&plot->x), plot->x.log);
        }
        const struct scale_range range = range_of(plot, &series[s]);
        if (range.lo <= range.hi) {
            scale_include(&y, range.lo / frame_unit(&plot->y), plot->y.log);
            scale_include(&y, range.hi / frame_unit(&plot->y), plot->y.log);
        }
    }
    const struct scale_rule x_rule = { .log = plot->x.log,
                                       .from_zero = plot->x.from_zero,
                                       .whole = plot->x.whole,
                                       .share =
                                           plot->x.share || plot->x.format == NUMBER_PERCENT,
                                       .wanted = 7 };
    const struct scale_rule y_rule = { .log = plot->y.log,
                                       .from_zero = plot->y.from_zero,
                                       .whole = plot->y.whole,
                                       .loose = true,
                                       .share =
                                           plot->y.share || plot->y.format == NUMBER_PERCENT,
                                       .wanted = 5 };
    scale_fit(&frame->x, x, &x_rule);
    scale_fit(&frame->y, y, &y_rule);
}

/* A last value to be written at the right of the data. */
struct told {
    double y;
    int colour;
    char text[NUMBER_TEXT];
};

static int gather_told(const struct frame *frame, const struct plot_series *series,
                       size_t n_series, struct told told[TOLD])
{
    int count = 0;

    for (size_t s = 0; s < n_series && count < TOLD; s++) {
        size_t last = series[s].count;
        while (last > 0 && !curve_is_visible(frame->plot, &series[s], last - 1))
            last--;
        if (!series[s].tell_last || last == 0)
            continue;
        const struct plot_axis *axis = &frame->plot->y;
        double value = NAN;
        if (curve_is_noisy(&series[s]))
            value = curve_course(frame->plot, &series[s], last - 1);
        if (!isfinite(value))
            value = series[s].y[last - 1];
        const double y = fmin(fmax(frame_y(frame, value), frame->top), frame->bottom);
        told[count] = (struct told){ .y = y, .colour = series[s].colour };
        number_print(told[count].text, value / frame_unit(axis), axis->format, 0);
        count++;
    }
    return count;
}

/* Moves the values apart, from the top down, then back up from the bottom. */
static void spread_told(const struct frame *frame, struct told *told, int count)
{
    for (int i = 1; i < count; i++) { /* by insertion, top first */
        const struct told moved = told[i];
        int at = i;
        for (; at > 0 && told[at - 1].y > moved.y; at--)
            told[at] = told[at - 1];
        told[at] = moved;
    }
    for (int i = 1; i < count; i++)
        told[i].y = fmax(told[i].y, told[i - 1].y + TOLD_APART);
    double below = frame->bottom;
    for (int i = count - 1; i >= 0; i--) {
        told[i].y = fmin(told[i].y, below);
        below = told[i].y - TOLD_APART;
    }
}

static void write_told(struct strbuf *out, const struct frame *frame, const struct told *told,
                       int count)
{
    for (int i = 0; i < count; i++) {
        strbuf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" font-weight=\"600\"", frame->right + 8,
                      told[i].y + 4);
        frame_fill(out, told[i].colour);
        strbuf_add(out, ">");
        strbuf_add_xml(out, told[i].text);
        strbuf_add(out, "</text>\n");
    }
}

/* The visible point nearest to x_value; false if none is within `reach` of its place. */
static bool nearest_point(const struct frame *frame, const struct plot_series *series,
                          double x_value, double reach, size_t *out)
{
    const size_t right = curve_find(series, x_value);
    const double x = frame_x(frame, x_value);
    bool found = false;
    double best = reach;
    for (size_t i = right > 0 ? right - 1 : 0; i <= right && i < series->count; i++) {
        const double distance = fabs(frame_x(frame, series->x[i]) - x);
        if (curve_is_visible(frame->plot, series, i) && distance <= best) {
            best = distance;
            *out = i;
            found = true;
        }
    }
    return found;
}

static void write_value(struct strbuf *out, const char *name, double value,
                        const struct plot_axis *axis)
{
    char text[NUMBER_TEXT];

    number_print(text, value / frame_unit(axis), axis->format, 0);
    strbuf_add_xml(out, name);
    strbuf_add(out, *name ? " " : "");
    strbuf_add_xml(out, text);
}

/* One strip that reacts to the pointer, around place x from `from` to `to`. */
static void write_strip(struct strbuf *out, const struct frame *frame,
                        const struct plot_series *series, size_t n_series, double x_value,
                        double from, double to)
{
    const struct plot *plot = frame->plot;
    const double x = frame_x(frame, x_value);
    const double reach = fmax((to - from) / 2, 1) + 0.5;
    size_t at;

    strbuf_add(out, "<g class=\"hit\"><title>");
    write_value(out, plot->x.label ? plot->x.label : "", x_value, &plot->x);
    for (size_t s = 0; s < n_series; s++) {
        if (nearest_point(frame, &series[s], x_value, reach, &at)) {
            strbuf_add(out, "\n");
            write_value(out, series[s].name ? series[s].name : "", series[s].y[at], &plot->y);
        }
    }
    strbuf_printf(out,
                  "</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                  "fill-opacity=\"0\"/><g class=\"tip\" opacity=\"0\"><path class=\"axis\" "
                  "d=\"M%.1f %.1fV%.1f\" stroke=\"#9aa2ad\" stroke-dasharray=\"2 3\"/>",
                  from, frame->top, to - from, frame->bottom - frame->top, x, frame->top,
                  frame->bottom);
    for (size_t s = 0; s < n_series; s++) {
        if (!nearest_point(frame, &series[s], x_value, reach, &at))
            continue;
        const double y = frame_y(frame, series[s].y[at]);
        if (frame_holds_y(frame, y))
            frame_mark(out, series[s].colour, frame_x(frame, series[s].x[at]), y, 9);
    }
    strbuf_add(out, "</g></g>\n");
}

/* Strips stand at the points of the series that has most of them. */
static void write_strips(struct strbuf *out, const struct frame *frame,
                         const struct plot_series *series, size_t n_series)
{
    double places[STRIPS]; /* values of x */
    size_t longest = 0;
    int count = 0;

    for (size_t s = 1; s < n_series; s++) {
        if (series[s].count > series[longest].count)
            longest = s;
    }
    const struct plot_series *of = &series[longest];
    const size_t stride = of->count / STRIPS + 1;
    for (size_t i = (of->count - 1) % stride; i < of->count; i += stride) {
        if (curve_is_visible(frame->plot, of, i) &&
            (count == 0 || of->x[i] > places[count - 1]))
            places[count++] = of->x[i];
    }
    for (int i = 0; i < count; i++) {
        const double x = frame_x(frame, places[i]);
        const double from = i > 0 ? (frame_x(frame, places[i - 1]) + x) / 2 : frame->left - 4;
        const double to =
            i + 1 < count ? (x + frame_x(frame, places[i + 1])) / 2 : frame->right + 4;
        write_strip(out, frame, series, n_series, places[i], from, to);
    }
}

static enum frame_key key_for(const struct plot_series *series)
{
    if (series->style == PLOT_POINTS)
        return FRAME_KEY_POINTS;
    return curve_has_marks(series) ? FRAME_KEY_LINE : FRAME_KEY_PLAIN;
}

void plot_lines(struct strbuf *out, const struct plot *plot, const struct plot_series *series,
                size_t n_series)
{
    struct frame_entry entries[SERIES] = { 0 };
    struct told told[TOLD];
    struct frame frame;
    bool any = false;

    n_series = n_series < SERIES ? n_series : SERIES;
    for (size_t s = 0; s < n_series; s++) {
        entries[s] = (struct frame_entry){ .name = series[s].name,
                                           .colour = series[s].colour,
                                           .key = key_for(&series[s]),
                                           .dashed = series[s].dashed };
        for (size_t i = 0; i < series[s].count && !any; i++)
            any = curve_is_visible(plot, &series[s], i);
    }
    frame_init(&frame, plot, entries, n_series);
    fit_scales(&frame, series, n_series);
    frame.left += frame_ticks_width(&frame.y, &plot->y) + 8 + (plot->y.label ? 18 : 0);
    const int n_told = gather_told(&frame, series, n_series, told);
    double widest = 0;
    for (int i = 0; i < n_told; i++)
        widest = fmax(widest, frame_text_width(told[i].text, 13));
    if (n_told > 0)
        frame.right -= widest;

    frame_begin(out, &frame, entries, n_series);
    frame_y_axis(out, &frame);
    frame_x_axis(out, &frame, false);
    frame_base(out, &frame, false);
    if (any) {
        for (size_t s = 0; s < n_series; s++)
            curve_draw_band(out, &frame, &series[s]);
        for (size_t s = 0; s < n_series; s++)
            curve_draw(out, &frame, &series[s]);
        spread_told(&frame, told, n_told);
        write_told(out, &frame, told, n_told);
        write_strips(out, &frame, series, n_series);
    } else {
        frame_nothing(out, &frame);
    }
    frame_end(out);
}
