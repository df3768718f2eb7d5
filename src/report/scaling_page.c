/* SPDX-License-Identifier: MIT */
/* scaling_page.c - how training scales, as one HTML page: throughput, efficiency, where time and bytes
 * go, who waits. */
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "report/number.h"
#include "report/page.h"
#include "report/plot.h"
#include "report/scaling.h"

enum { POINTS = 64 }; /* that a plot shows */
enum { BLUE, VERMILION, GREEN, ORANGE, PURPLE };

static const size_t page_maximum = (size_t)16 << 20;

struct maker {
    struct strbuf *out;
    const struct scaling *scaling;
    size_t count; /* points shown */
    double ranks[POINTS];
};

static void write_header(const struct maker *maker)
{
    const struct scaling *s = maker->scaling;
    const struct scaling_point *first = s->points;

    strbuf_add(maker->out, "<header><h1>");
    strbuf_add_xml(maker->out, s->model);
    strbuf_printf(maker->out, " <i>%s scaling</i></h1><p>%s, %d %s a rank, %d cores, %s; ",
                  s->weak ? "weak" : "strong", s->strategy, first->threads,
                  first->threads == 1 ? "thread" : "threads", s->cores, s->isa);
    strbuf_printf(maker->out,
                  s->weak ? "%lld samples a step and rank</p></header>\n"
                          : "%lld samples a step, shared out among the ranks</p></header>\n",
                  (long long)(s->weak ? first->batch / first->ranks : first->batch));
}

/* The most ranks that have a core for every thread; the most at all if none has. */
static const struct scaling_point *main_point(const struct scaling *s)
{
    for (size_t i = s->count; i > 0; i--) {
        if (!s->points[i - 1].oversubscribed)
            return &s->points[i - 1];
    }
    return &s->points[s->count - 1];
}

static void write_cards(const struct maker *maker)
{
    const struct scaling *s = maker->scaling;
    const struct scaling_point *last = main_point(s);
    char figure[NUMBER_TEXT], remark[SCALING_TEXT + 32], fit[SCALING_TEXT];

    page_cards_begin(maker->out);
    number_print(figure, last->efficiency, NUMBER_PERCENT, 0);
    snprintf(remark, sizeof remark, "%d ranks%s", last->ranks,
             last->oversubscribed ? ", more threads than cores" : "");
    page_card(maker->out, "Efficiency", figure, remark, NULL);
    number_print(figure, last->samples_per_s, NUMBER_SI, 0);
    page_card(maker->out, "Samples a second", figure, remark, NULL);
    number_print(figure, s->serial, NUMBER_PERCENT, 0);
    scaling_print_fit(s, fit);
    snprintf(remark, sizeof remark, s->n_fitted > 0 ? "by %s's law, %s" : "%.0s%s",
             scaling_law(s), fit);
    page_card(maker->out, "Serial share", figure, remark,
              "the part of a step that does not become shorter with more ranks");
    page_cards_end(maker->out);
}

static void write_throughput(const struct maker *maker)
{
    const struct scaling *s = maker->scaling;
    const double one = s->points[0].samples_per_s / s->points[0].ranks;
    double measured[POINTS], ideal[POINTS], fitted[POINTS];

    for (size_t i = 0; i < maker->count; i++) {
        measured[i] = s->points[i].samples_per_s;
        ideal[i] = one * maker->ranks[i];
        fitted[i] = one * s->points[i].fitted;
    }
    const struct plot_series series[] = {
        { .name = "measured",
          .x = maker->ranks,
          .y = measured,
          .count = maker->count,
          .colour = BLUE,
          .tell_last = true },
        { .name = "ideal",
          .x = maker->ranks,
          .y = ideal,
          .count = maker->count,
          .colour = PLOT_GREY,
          .dashed = true },
        { .name = scaling_law(s),
          .x = maker->ranks,
          .y = fitted,
          .count = s->n_fitted > 0 ? maker->count : 0,
          .colour = VERMILION,
          .dashed = true },
    };
    const struct plot plot = {
        .title = "Throughput",
        .x = { .label = "ranks", .whole = true, .from_zero = true },
        .y = { .label = "samples a second", .format = NUMBER_SI, .from_zero = true }
    };
    page_plot_begin(maker->out, false);
    plot_lines(maker->out, &plot, series, s->n_fitted > 0 ? 3 : 2);
    page_plot_end(maker->out);
}

static void write_efficiency(const struct maker *maker)
{
    const struct scaling *s = maker->scaling;
    double inside[POINTS], beyond[POINTS];
    bool any = false;

    for (size_t i = 0; i < maker->count; i++) {
        const bool is_beyond = s->points[i].oversubscribed;
        inside[i] = is_beyond ? NAN : s->points[i].efficiency;
        beyond[i] = is_beyond ? s->points[i].efficiency : NAN;
        any |= is_beyond;
    }
    const struct plot_series series[] = {
        { .name = any ? "a core for every thread" : NULL,
          .x = maker->ranks,
          .y = inside,
          .count = maker->count,
          .colour = BLUE,
          .tell_last = !any },
        { .name = "more threads than cores",
          .x = maker->ranks,
          .y = beyond,
          .count = maker->count,
          .colour = ORANGE,
          .style = PLOT_POINTS },
    };
    const struct plot plot = { .title = "Efficiency",
                               .x = { .label = "ranks", .whole = true, .from_zero = true },
                               .y = { .format = NUMBER_PERCENT, .from_zero = true } };
    page_plot_begin(maker->out, false);
    plot_lines(maker->out, &plot, series, any ? 2 : 1);
    page_plot_end(maker->out);
}

/* Bars of one or more series, a category for each number of ranks. */
static void write_bars(const struct maker *maker, const struct plot *plot,
                       const char *const *names, const int *colours, size_t n_series,
                       const double *values, bool stacked)
{
    char texts[POINTS][NUMBER_TEXT];
    const char *categories[POINTS];

    for (size_t i = 0; i < maker->count; i++) {
        snprintf(texts[i], NUMBER_TEXT, "%.0f", maker->ranks[i]);
        categories[i] = texts[i];
    }
    const struct plot_bars bars = { .categories = categories,
                                    .n_categories = maker->count,
                                    .names = names,
                                    .colours = colours,
                                    .n_series = n_series,
                                    .values = values,
                                    .stacked = stacked };
    page_plot_begin(maker->out, false);
    plot_bars(maker->out, plot, &bars);
    page_plot_end(maker->out);
}

static void write_shares(const struct maker *maker)
{
    static const char *const names[] = { "computing", "communication", "hidden", "waiting" };
    static const int colours[] = { BLUE, VERMILION, GREEN, ORANGE };
    const struct plot plot = { .title = "Where the time of rank 0 goes",
                               .x = { .label = "ranks" },
                               .y = { .format = NUMBER_PERCENT } };
    double values[4 * POINTS];

    for (size_t i = 0; i < maker->count; i++) {
        const struct scaling_point *p = &maker->scaling->points[i];
        const double hidden = isfinite(p->hidden_share) ? p->hidden_share * p->comm_share : 0;
        values[i] = fmax(1 - p->comm_share - p->wait_share, 0);
        values[maker->count + i] = p->comm_share - hidden;
        values[2 * maker->count + i] = hidden;
        values[3 * maker->count + i] = p->wait_share;
    }
    write_bars(maker, &plot, names, colours, 4, values, true);
}

static void write_bytes(const struct maker *maker)
{
    static const char *const names[] = { "measured", "an all_reduce at least" };
    static const int colours[] = { BLUE, PLOT_GREY };
    const struct plot plot = { .title = "Bytes of a step and rank",
                               .x = { .label = "ranks" },
                               .y = { .format = NUMBER_SI } };
    double values[2 * POINTS];

    for (size_t i = 0; i < maker->count; i++) {
        const struct scaling_point *p = &maker->scaling->points[i];
        values[i] = p->bytes;
        values[maker->count + i] = isfinite(p->bytes_optimum) ? p->bytes_optimum : 0;
    }
    write_bars(maker, &plot, names, colours, 2, values, false);
}

/* Of the point with most ranks. */
static void write_waits(const struct maker *maker)
{
    static const char *const names[] = { "waits", "others wait for it" };
    static const int colours[] = { ORANGE, PURPLE };
    const struct scaling_point *last = &maker->scaling->points[maker->scaling->count - 1];
    const size_t count = last->ranks < POINTS ? (size_t)last->ranks : POINTS;
    char texts[POINTS][NUMBER_TEXT], title[64];
    const char *categories[POINTS];
    double values[2 * POINTS];

    if (last->ranks < 2)
        return;
    for (size_t r = 0; r < count; r++) {
        snprintf(texts[r], NUMBER_TEXT, "rank %zu", r);
        categories[r] = texts[r];
        values[r] = last->rank_wait[r];
        values[count + r] = last->rank_made_wait[r];
    }
    snprintf(title, sizeof title, "Waiting, %d ranks", last->ranks);
    const struct plot plot = {
        .title = title, .x = { .format = NUMBER_PERCENT, .label = "share of the time" }
    };
    const struct plot_bars bars = { .categories = categories,
                                    .n_categories = count,
                                    .names = names,
                                    .colours = colours,
                                    .n_series = 2,
                                    .values = values,
                                    .horizontal = true };
    page_plot_begin(maker->out, false);
    plot_bars(maker->out, &plot, &bars);
    page_plot_end(maker->out);
}

static void cell(struct strbuf *out, double value, enum number_format format)
{
    char text[NUMBER_TEXT];

    number_print(text, value, format, 0);
    strbuf_printf(out, "<td>%s</td>", text);
}

static void write_table(const struct maker *maker)
{
    const struct scaling *s = maker->scaling;

    strbuf_add(maker->out, "<div class=\"box scroll\" style=\"margin-top:16px\"><table>\n<tr>");
    static const char *const heads[] = { "ranks",      "batch",         "samples/s",
                                         "step, ms",   "speed-up",      "fitted",
                                         "efficiency", "communication", "of it hidden",
                                         "waiting",    "bytes",         "of optimum" };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        strbuf_printf(maker->out, "<th>%s</th>", heads[i]);
    strbuf_add(maker->out, "</tr>\n");
    for (size_t i = 0; i < s->count; i++) {
        const struct scaling_point *p = &s->points[i];
        char bytes[NUMBER_TEXT];
        strbuf_printf(maker->out, "<tr><td>%d%s</td><td>%lld</td>", p->ranks,
                      p->oversubscribed ? "*" : "", (long long)p->batch);
        cell(maker->out, p->samples_per_s, NUMBER_SI);
        cell(maker->out, p->step_ms, NUMBER_PLAIN);
        cell(maker->out, p->speedup, NUMBER_PLAIN);
        cell(maker->out, p->fitted, NUMBER_PLAIN);
        cell(maker->out, p->efficiency, NUMBER_PERCENT);
        cell(maker->out, p->comm_share, NUMBER_PERCENT);
        cell(maker->out, p->hidden_share, NUMBER_PERCENT);
        cell(maker->out, p->wait_share, NUMBER_PERCENT);
        number_bytes(bytes, p->bytes);
        strbuf_printf(maker->out, "<td>%s</td>", bytes);
        cell(maker->out, p->bytes / p->bytes_optimum, NUMBER_PLAIN);
        strbuf_add(maker->out, "</tr>\n");
    }
    strbuf_add(maker->out, "</table></div>\n");
}

static void write_page(const struct maker *maker)
{
    const struct scaling *s = maker->scaling;
    char title[200], note[200];
    int beyond = 0;

    for (size_t i = 0; i < s->count; i++)
        beyond += s->points[i].oversubscribed;
    snprintf(title, sizeof title, "%.80s %s scaling \u2013 tutti", s->model,
             s->weak ? "weak" : "strong");
    page_begin(maker->out, title);
    write_header(maker);
    if (beyond > 0) {
        snprintf(
            note, sizeof note,
            "Points with * (%d of %zu) have more threads than this machine's %d cores, which "
            "ranks share in turns. They are left out of the fit.",
            beyond, s->count, s->cores);
        page_note(maker->out, note);
    }
    write_cards(maker);
    page_section_begin(maker->out, "Scaling");
    page_plots_begin(maker->out);
    write_throughput(maker);
    write_efficiency(maker);
    write_shares(maker);
    write_bytes(maker);
    write_waits(maker);
    page_plots_end(maker->out);
    write_table(maker);
    page_section_end(maker->out);
    page_end(maker->out,
             "Made by tutti bench scale: medians over rounds in which the numbers of "
             "ranks took turns. Point at a plot for its values.");
}

enum status scaling_write_page(const struct scaling *scaling, const char *path)
{
    struct strbuf out;
    struct maker maker = { .out = &out,
                           .scaling = scaling,
                           .count = scaling->count < POINTS ? scaling->count : POINTS };

    if (scaling->count == 0)
        return FAIL(STATUS_USAGE, "there is nothing to show: no number of ranks was measured");
    for (size_t i = 0; i < maker.count; i++)
        maker.ranks[i] = scaling->points[i].ranks;
    strbuf_init(&out, page_maximum);
    write_page(&maker);
    enum status status = strbuf_status(&out);
    if (status == STATUS_OK)
        status = file_replace(path, out.text, out.length);
    strbuf_release(&out);
    return status;
}
