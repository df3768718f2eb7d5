/* SPDX-License-Identifier: MIT */
/* bars.c - bar charts, stacked, grouped or lying, and histograms. */
#include "report/frame.h"

#include <math.h>

enum { SERIES = 16, BINS = 200 };

enum { ROW_LEAST = 13, ROW_MOST = 46 }; /* height of a lying bar with its gap */

static double value_at(const struct plot_bars *bars, size_t series, size_t category)
{
    const double value = bars->values[series * bars->n_categories + category];

    return isfinite(value) && value > 0 ? fmin(value, 1e300) : 0;
}

/* Of a bar that is told. */
static void print_value(char out[NUMBER_TEXT], const struct plot_bars *bars,
                        const struct plot_axis *axis, size_t category)
{
    const bool is_known = !isnan(bars->values[category]);
    const double value =
        is_known ? value_at(bars, 0, category) / frame_unit(axis) : (double)NAN;

    number_print(out, value, axis->format, 0);
}

static double greatest_value(const struct plot_bars *bars)
{
    double greatest = 0;

    for (size_t c = 0; c < bars->n_categories; c++) {
        double sum = 0;
        for (size_t s = 0; s < bars->n_series; s++) {
            const double value = value_at(bars, s, c);
            sum = bars->stacked ? sum + value : fmax(sum, value);
        }
        greatest = fmax(greatest, sum);
    }
    return greatest;
}

static int colour_of(const struct plot_bars *bars, size_t series)
{
    return bars->colours ? bars->colours[series] : (int)series;
}

static void write_bar(struct strbuf *out, const struct plot_bars *bars,
                      const struct plot_axis *axis, size_t series, size_t category,
                      const double box[4])
{
    char text[NUMBER_TEXT];

    number_print(text, value_at(bars, series, category) / frame_unit(axis), axis->format, 0);
    strbuf_add(out, "<g class=\"bar\"><title>");
    strbuf_add_xml(out, bars->categories[category]);
    strbuf_add(out, ": ");
    strbuf_add_xml(out, bars->names[series] ? bars->names[series] : "");
    strbuf_add(out, bars->names[series] ? " " : "");
    strbuf_add_xml(out, text);
    strbuf_printf(out, "</title><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"",
                  box[0], box[1], box[2], box[3]);
    frame_fill(out, colour_of(bars, series));
    strbuf_add(out, "/></g>\n");
}

static double widest_value(const struct plot_bars *bars, const struct plot_axis *axis)
{
    double widest = 0;

    for (size_t c = 0; c < bars->n_categories; c++) {
        char text[NUMBER_TEXT];
        print_value(text, bars, axis, c);
        widest = fmax(widest, frame_text_width(text, 12));
    }
    return widest;
}

static void write_values(struct strbuf *out, const struct frame *frame,
                         const struct plot_bars *bars, double slot)
{
    const struct plot_axis *axis = &frame->plot->x;

    for (size_t c = 0; c < bars->n_categories; c++) {
        char text[NUMBER_TEXT];
        const double value = value_at(bars, 0, c);
        print_value(text, bars, axis, c);
        frame_text(out, frame_x(frame, value) + 6, frame->top + slot * ((double)c + 0.5) + 4,
                   FRAME_START, text);
    }
}

/* The bar or bars of one category, in the `wide` units from `from` on across the axis. */
static void write_category(struct strbuf *out, const struct frame *frame,
                           const struct plot_bars *bars, size_t category, double from,
                           double wide)
{
    const struct plot_axis *axis = bars->horizontal ? &frame->plot->x : &frame->plot->y;
    const double each = bars->stacked ? wide : wide / (double)bars->n_series;
    double sum = 0;

    for (size_t s = 0; s < bars->n_series; s++) {
        const double start = bars->stacked ? sum : 0;
        const double end = start + value_at(bars, s, category);
        const double across = from + (bars->stacked ? 0 : each * (double)s);
        sum = end;
        if (end <= start)
            continue;
        if (bars->horizontal) {
            const double x = frame_x(frame, start);
            const double box[] = { x, across, frame_x(frame, end) - x, each };
            write_bar(out, bars, axis, s, category, box);
        } else {
            const double y = frame_y(frame, end);
            const double box[] = { across, y, each, frame_y(frame, start) - y };
            write_bar(out, bars, axis, s, category, box);
        }
    }
}

static double widest_category(const struct plot_bars *bars)
{
    double widest = 0;

    for (size_t c = 0; c < bars->n_categories; c++)
        widest = fmax(widest, frame_text_width(bars->categories[c], 12));
    return widest;
}

/* Names stand upright below the bars where side by side they would touch. */
static bool has_upright_names(const struct plot_bars *bars, double slot)
{
    return bars->all_names && !bars->horizontal && widest_category(bars) + 8 > slot;
}

static double upright_size(double slot)
{
    return fmin(12, fmax(slot - 1, 4));
}

static void write_upright_names(struct strbuf *out, const struct frame *frame,
                                const struct plot_bars *bars, double slot)
{
    const double size = upright_size(slot);

    for (size_t c = 0; c < bars->n_categories; c++)
        frame_text_upright(out, frame->left + slot * ((double)c + 0.5) + size * 0.35,
                           frame->bottom + 8, size, bars->categories[c]);
}

/* Names of categories; where they would touch, only every nth. */
static void write_categories(struct strbuf *out, const struct frame *frame,
                             const struct plot_bars *bars, double slot)
{
    if (has_upright_names(bars, slot)) {
        write_upright_names(out, frame, bars, slot);
        return;
    }
    const double needed = bars->horizontal ? 14 : widest_category(bars) + 8;
    const size_t stride = needed > slot ? (size_t)ceil(needed / slot) : 1;

    for (size_t c = 0; c < bars->n_categories; c += stride) {
        const double middle = slot * ((double)c + 0.5);
        if (bars->horizontal)
            frame_text_within(out, frame->left - 8, frame->top + middle + 4, FRAME_END,
                              bars->categories[c],
                              frame->left - 10 - (frame->plot->y.label ? 18 : 0));
        else
            frame_text(out, frame->left + middle, frame->bottom + 18, FRAME_MIDDLE,
                       bars->categories[c]);
    }
}

static void fit_values(struct scale *out, double greatest, const struct plot_axis *axis,
                       bool loose)
{
    const struct scale_rule rule = {
        .from_zero = true,
        .whole = axis->whole,
        .loose = loose,
        .share = axis->format == NUMBER_PERCENT,
        .wanted = 5,
    };
    struct scale_range range = SCALE_NOTHING;

    scale_include(&range, greatest / frame_unit(axis), false);
    scale_fit(out, range, &rule);
}

/* Rows of lying bars fill the room there is; many of them make the picture higher. */
static double rows_height(const struct plot_bars *bars, double room)
{
    const double n = (double)(bars->n_categories > 0 ? bars->n_categories : 1);

    return n * fmin(fmax(room / n, ROW_LEAST), ROW_MOST);
}

void plot_bars(struct strbuf *out, const struct plot *plot, const struct plot_bars *bars)
{
    struct frame_entry entries[SERIES] = { 0 };
    struct plot_bars limited = *bars;
    struct frame frame;

    limited.n_series = bars->n_series < SERIES ? bars->n_series : SERIES;
    for (size_t s = 0; s < limited.n_series; s++)
        entries[s] = (struct frame_entry){ .name = bars->names[s],
                                           .colour = colour_of(bars, s),
                                           .key = FRAME_KEY_BOX };
    frame_init(&frame, plot, entries, limited.n_series);
    const double greatest = greatest_value(&limited);
    const size_t n = bars->n_categories;
    if (bars->horizontal) {
        const double below = frame.height - frame.bottom;
        fit_values(&frame.x, greatest, &plot->x, false);
        frame.left += fmin(FRAME_FONTS * widest_category(&limited),
                           frame.width * (frame.width > 800 ? 0.5 : 0.33)) +
                      8 + (plot->y.label ? 18 : 0);
        if (bars->tell)
            frame.right -= widest_value(&limited, &plot->x);
        frame.bottom = frame.top + rows_height(&limited, frame.bottom - frame.top);
        frame.height = frame.bottom + below;
    } else {
        fit_values(&frame.y, greatest, &plot->y, true);
        frame.left += frame_ticks_width(&frame.y, &plot->y) + 8 + (plot->y.label ? 18 : 0);
        const double slot = (frame.right - frame.left) / (double)(n > 0 ? n : 1);
        if (has_upright_names(&limited, slot)) /* room for them; the bars keep theirs */
            frame.height += widest_category(&limited) * upright_size(slot) / 12 - 10;
    }
    frame_begin(out, &frame, entries, limited.n_series);
    if (bars->horizontal) {
        frame_x_axis(out, &frame, true);
        frame_y_label(out, &frame);
    } else {
        frame_y_axis(out, &frame);
        frame_x_label(out, &frame);
    }
    if (n > 0 && greatest > 0) {
        const double across =
            bars->horizontal ? frame.bottom - frame.top : frame.right - frame.left;
        const double slot = across / (double)n, wide = fmin(slot * 0.7, 60);
        const double origin = bars->horizontal ? frame.top : frame.left;
        for (size_t c = 0; c < n; c++)
            write_category(out, &frame, &limited, c,
                           origin + slot * ((double)c + 0.5) - wide / 2, wide);
        write_categories(out, &frame, &limited, slot);
        if (bars->tell && bars->horizontal)
            write_values(out, &frame, &limited, slot);
    } else {
        frame_nothing(out, &frame);
    }
    frame_base(out, &frame, bars->horizontal);
    frame_end(out);
}

static void write_bin(struct strbuf *out, const struct frame *frame, double from, double to,
                      double times)
{
    const struct plot *plot = frame->plot;
    const double unit = frame_unit(&plot->x);
    const double left = frame_x(frame, from * unit), right = frame_x(frame, to * unit);
    const double y = frame_y(frame, times);
    char low[NUMBER_TEXT], high[NUMBER_TEXT], often[NUMBER_TEXT];

    number_print(low, from, plot->x.format, to - from);
    number_print(high, to, plot->x.format, to - from);
    number_whole(often, times);
    strbuf_printf(out,
                  "<g class=\"bar\"><title>%s to %s: %s</title><rect x=\"%.1f\" y=\"%.1f\" "
                  "width=\"%.1f\" height=\"%.1f\"",
                  low, high, often, left + 0.5, y, fmax(right - left - 1, 0.5),
                  frame->bottom - y);
    frame_fill(out, 0);
    strbuf_add(out, "/></g>\n");
}

void plot_histogram(struct strbuf *out, const struct plot *plot, const double *values,
                    size_t count, int n_bins)
{
    const double unit = frame_unit(&plot->x);
    struct scale_range range = SCALE_NOTHING;
    struct scale bins;
    double times[BINS] = { 0 }, most = 0;
    struct frame frame;

    for (size_t i = 0; i < count; i++)
        scale_include(&range, values[i] / unit, false);
    const struct scale_rule rule = { .loose = true,
                                     .whole = plot->x.whole,
                                     .share = plot->x.format == NUMBER_PERCENT,
                                     .wanted = n_bins < 2          ? 2
                                               : n_bins > BINS / 2 ? BINS / 2
                                                                   : n_bins };
    scale_fit(&bins, range, &rule);
    const int n = (int)fmin(round((bins.hi - bins.lo) / bins.step), BINS);
    for (size_t i = 0; i < count; i++) {
        const double place = scale_place(&bins, values[i] / unit);
        if (isnan(place))
            continue;
        const int bin = (int)fmin(floor(place * n + 1e-9), n - 1);
        times[bin]++;
        most = fmax(most, times[bin]);
    }

    frame_init(&frame, plot, NULL, 0);
    const struct scale_rule x_rule = { .whole = plot->x.whole,
                                       .share = plot->x.format == NUMBER_PERCENT,
                                       .wanted = 7 };
    scale_fit(&frame.x, (struct scale_range){ bins.lo, bins.hi }, &x_rule);
    fit_values(&frame.y, most, &(struct plot_axis){ .whole = true }, true);
    frame.left += frame_ticks_width(&frame.y, &plot->y) + 8 + (plot->y.label ? 18 : 0);
    frame_begin(out, &frame, NULL, 0);
    frame_y_axis(out, &frame);
    frame_x_axis(out, &frame, false);
    if (most > 0) {
        for (int i = 0; i < n; i++) {
            if (times[i] > 0)
                write_bin(out, &frame, bins.lo + i * bins.step, bins.lo + (i + 1) * bins.step,
                          times[i]);
        }
    } else {
        frame_nothing(out, &frame);
    }
    frame_base(out, &frame, false);
    frame_end(out);
}
