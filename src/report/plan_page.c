/* SPDX-License-Identifier: MIT */
/* plan_page.c - writes plan.html. */
#include "report/plan_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "report/frame.h"
#include "report/number.h"
#include "report/page.h"
#include "report/plot.h"

enum { BLUE, VERMILION, GREEN, ORANGE, PURPLE };
enum { ROWS = 24, POINTS = 64, EVENTS = 20000, ROW_HEIGHT = 26, ROW_LEFT = 70, WIDTH = 1100 };
static const size_t PAGE_MOST = 64 << 20;

/* Timeline -------------------------------------------------------------------------------- */

static int colour_of(const struct plan_page_event *event)
{
    return event->shard == -1   ? ORANGE
           : event->shard < -1  ? PURPLE
           : event->is_backward ? GREEN
                                : BLUE;
}

static void draw_event(struct strbuf *out, const struct plan_page *page,
                       const struct plan_page_event *event)
{
    const double scale = (WIDTH - ROW_LEFT - 10) / page->seconds;
    const double x = ROW_LEFT + event->begin * scale,
                 width = (event->end - event->begin) * scale;
    const bool is_sum = event->shard == -1;
    const double y = 34 + ROW_HEIGHT * (double)event->stage + (is_sum ? 15 : 0);

    strbuf_printf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%d\"", x, y,
                  fmax(width, 0.2), is_sum ? 6 : 20);
    frame_fill(out, colour_of(event));
    if (event->shard >= 0)
        strbuf_printf(out,
                      " stroke=\"white\" stroke-width=\"0.4\"><title>%s of shard %lld, "
                      "%.3f to %.3f ms</title></rect>\n",
                      event->is_backward ? "backward" : "forward", (long long)event->shard,
                      1e3 * event->begin, 1e3 * event->end);
    else
        strbuf_printf(out, "><title>%s, %.3f to %.3f ms</title></rect>\n",
                      is_sum ? "sums of gradients" : "update", 1e3 * event->begin,
                      1e3 * event->end);
    if (event->shard >= 0 && width > 18)
        strbuf_printf(out,
                      "<text x=\"%.2f\" y=\"%.2f\" font-size=\"11\" fill=\"white\" "
                      "text-anchor=\"middle\">%lld</text>\n",
                      x + width / 2, y + 14, (long long)event->shard);
}

void plan_page_timeline(const struct plan_page *page, struct strbuf *out)
{
    static const char *const names[] = { "forward", "backward", "sums", "update" };
    static const int colours[] = { BLUE, GREEN, ORANGE, PURPLE };
    const int height = 34 + ROW_HEIGHT * page->stages + 24;
    const size_t count = page->n_events < EVENTS ? page->n_events : EVENTS;
    char text[NUMBER_TEXT + 16];

    strbuf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                  "width=\"100%%\" font-family=\"sans-serif\" role=\"img\">\n",
                  WIDTH, height);
    for (int i = 0; i < 4; i++) {
        strbuf_printf(out, "<rect x=\"%d\" y=\"8\" width=\"14\" height=\"12\"",
                      ROW_LEFT + 100 * i);
        frame_fill(out, colours[i]);
        strbuf_add(out, "/>");
        frame_text(out, ROW_LEFT + 100 * i + 20, 19, FRAME_START, names[i]);
    }
    for (int s = 0; s < page->stages; s++) {
        snprintf(text, sizeof text, "stage %d", s);
        frame_text(out, ROW_LEFT - 8, 34 + ROW_HEIGHT * s + 15, FRAME_END, text);
    }
    for (size_t i = 0; i < count; i++)
        draw_event(out, page, &page->events[i]);
    frame_text(out, ROW_LEFT, height - 6, FRAME_START, "0");
    snprintf(text, sizeof text, "%.3g ms", 1e3 * page->seconds);
    frame_text(out, WIDTH - 10, height - 6, FRAME_END, text);
    strbuf_add(out, "</svg>\n");
}

/* Plots ----------------------------------------------------------------------------------- */

/* The rows that have numbers, the fastest first if there are many: their places. */
static size_t rows_to_draw(const struct plan_page *page, size_t out[ROWS])
{
    size_t count = 0;

    for (size_t i = 0; i < page->n_rows; i++) {
        size_t at = count;
        if (!page->rows[i].is_legal)
            continue;
        while (at > 0 && page->rows[out[at - 1]].step_ms > page->rows[i].step_ms)
            at--;
        if (at == ROWS)
            continue;
        count += count < ROWS;
        for (size_t k = count - 1; k > at; k--)
            out[k] = out[k - 1];
        out[at] = i;
    }
    return count;
}

/* High enough that every bar has its name. */
static int height_of(size_t count)
{
    return 110 + 20 * (int)count;
}

static void write_times(struct strbuf *out, const struct plan_page *page, const size_t *at,
                        size_t count)
{
    static const char *const names[] = { "auto may pick it", "not without being asked for" };
    static const int colours[] = { BLUE, PLOT_GREY };
    const struct plot plot = { .title = "Predicted time of a step, ms",
                               .height = height_of(count),
                               .x = { .from_zero = true } };
    const char *categories[ROWS];
    double values[2 * ROWS];

    for (size_t i = 0; i < count; i++) {
        const struct plan_page_row *row = &page->rows[at[i]];
        categories[i] = row->name;
        values[i] = row->can_be ? row->step_ms : 0;
        values[count + i] = row->can_be ? 0 : row->step_ms;
    }
    const struct plot_bars bars = { .categories = categories,
                                    .n_categories = count,
                                    .names = names,
                                    .colours = colours,
                                    .n_series = 2,
                                    .values = values,
                                    .stacked = true,
                                    .horizontal = true,
                                    .all_names = true };
    page_plot_begin(out, false);
    plot_bars(out, &plot, &bars);
    page_plot_end(out);
}

static void write_memory(struct strbuf *out, const struct plan_page *page, const size_t *at,
                         size_t count)
{
    static const char *const names[] = { "parameters", "gradients", "state", "activations",
                                         "copy" };
    const struct plot plot = { .title = "Predicted memory of a rank, MB",
                               .height = height_of(count),
                               .x = { .from_zero = true } };
    const char *categories[ROWS];
    double values[PLAN_PAGE_MEMORY * ROWS];

    for (size_t i = 0; i < count; i++) {
        categories[i] = page->rows[at[i]].name;
        for (size_t k = 0; k < PLAN_PAGE_MEMORY; k++)
            values[k * count + i] = page->rows[at[i]].memory[k] * 1e-6;
    }
    const struct plot_bars bars = { .categories = categories,
                                    .n_categories = count,
                                    .names = names,
                                    .n_series = PLAN_PAGE_MEMORY,
                                    .values = values,
                                    .stacked = true,
                                    .horizontal = true,
                                    .all_names = true };
    page_plot_begin(out, false);
    plot_bars(out, &plot, &bars);
    page_plot_end(out);
}

static void write_scaling(struct strbuf *out, const struct plan_page *page)
{
    const size_t count = page->n_points < POINTS ? page->n_points : POINTS;
    double ranks[POINTS], data[POINTS], best[POINTS], ideal[POINTS], efficiency[POINTS];

    for (size_t i = 0; i < count; i++) {
        const struct plan_page_point *p = &page->points[i];
        ranks[i] = p->ranks;
        data[i] = p->data_parallel;
        best[i] = p->best;
        ideal[i] = page->points[0].best / page->points[0].ranks * p->ranks;
        efficiency[i] = p->best / ideal[i];
    }
    const struct plot_series rates[] = {
        { .name = "ideal",
          .x = ranks,
          .y = ideal,
          .count = count,
          .colour = PLOT_GREY,
          .dashed = true },
        { .name = "data parallel", .x = ranks, .y = data, .count = count, .colour = VERMILION },
        { .name = "best",
          .x = ranks,
          .y = best,
          .count = count,
          .colour = BLUE,
          .tell_last = true },
    };
    const struct plot_series share[] = {
        { .x = ranks, .y = efficiency, .count = count, .colour = BLUE, .tell_last = true },
    };
    const struct plot throughput = {
        .title = "Predicted throughput",
        .x = { .label = "ranks", .log = true, .format = NUMBER_SI },
        .y = { .label = "samples a second", .log = true, .format = NUMBER_SI }
    };
    const struct plot efficient = { .title = "Predicted efficiency of the best",
                                    .x = { .label = "ranks", .log = true, .format = NUMBER_SI },
                                    .y = { .format = NUMBER_PERCENT, .from_zero = true } };
    page_plot_begin(out, false);
    plot_lines(out, &throughput, rates, 3);
    page_plot_end(out);
    page_plot_begin(out, false);
    plot_lines(out, &efficient, share, 1);
    page_plot_end(out);
}

/* Tables ---------------------------------------------------------------------------------- */

static void cell(struct strbuf *out, double value, enum number_format format)
{
    char text[NUMBER_TEXT];

    number_print(text, value, format, 0);
    strbuf_printf(out, "<td>%s</td>", text);
}

static void write_row(struct strbuf *out, const struct plan_page *page,
                      const struct plan_page_row *row)
{
    char bytes[NUMBER_TEXT];
    double memory = 0;

    strbuf_printf(out, "<tr><td style=\"text-align:left\">%s", row->is_chosen ? "<b>" : "");
    strbuf_add_xml(out, row->name);
    strbuf_add(out, row->is_chosen ? " \u2713</b></td>" : "</td>");
    if (row->is_legal) {
        for (int k = 0; k < PLAN_PAGE_MEMORY; k++)
            memory += row->memory[k];
        cell(out, row->step_ms, NUMBER_PLAIN);
        cell(out, 1e3 * (double)page->batch / row->step_ms, NUMBER_SI);
        cell(out, page->single_ms / row->step_ms, NUMBER_PLAIN);
        number_bytes(bytes, memory);
        strbuf_printf(out, "<td>%s</td>", bytes);
        number_bytes(bytes, row->bytes);
        strbuf_printf(out, "<td>%s</td>", bytes);
        cell(out, row->bubble > 0 ? row->bubble : NAN, NUMBER_PERCENT);
    } else {
        strbuf_add(out, "<td></td><td></td><td></td><td></td><td></td><td></td>");
    }
    strbuf_add(out, "<td style=\"text-align:left\">");
    strbuf_add_xml(out, row->why);
    strbuf_add(out, "</td></tr>\n");
}

static void write_table(struct strbuf *out, const struct plan_page *page)
{
    static const char *const heads[] = { "strategy", "step, ms", "samples/s", "speed-up",
                                         "memory",   "bytes",    "bubble",    "" };

    strbuf_add(out, "<div class=\"box scroll\" style=\"margin-top:16px\"><table>\n<tr>");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        strbuf_printf(out, "<th>%s</th>", heads[i]);
    strbuf_add(out, "</tr>\n");
    for (size_t i = 0; i < page->n_rows; i++)
        write_row(out, page, &page->rows[i]);
    strbuf_add(out, "</table></div>\n");
}

static void write_points(struct strbuf *out, const struct plan_page *page)
{
    strbuf_add(out,
               "<div class=\"box scroll\" style=\"margin-top:16px\"><table>\n<tr><th>ranks</th>"
               "<th>data parallel, samples/s</th><th>best</th><th>by</th></tr>\n");
    for (size_t i = 0; i < page->n_points; i++) {
        strbuf_printf(out, "<tr><td>%.0f</td>", page->points[i].ranks);
        cell(out, page->points[i].data_parallel, NUMBER_SI);
        cell(out, page->points[i].best, NUMBER_SI);
        strbuf_add(out, "<td style=\"text-align:left\">");
        strbuf_add_xml(out, page->points[i].name);
        strbuf_add(out, "</td></tr>\n");
    }
    strbuf_add(out, "</table></div>\n");
}

static void write_head(struct strbuf *out, const struct plan_page *page)
{
    char title[200], text[NUMBER_TEXT], name[64];

    snprintf(title, sizeof title, "Plan of %.80s on %d ranks \u2013 tutti", page->model,
             page->ranks);
    page_begin(out, title);
    strbuf_add(out, "<header><h1>Plan of ");
    strbuf_add_xml(out, page->model);
    strbuf_printf(
        out, "</h1><p>%lld samples a step on %d ranks of %d %s; times are %s.</p></header>\n",
        (long long)page->batch, page->ranks, page->nodes,
        page->nodes == 1 ? "machine" : "machines",
        page->is_measured ? "predicted from nodes measured on this machine"
                          : "guessed by operations and bytes");
    page_note(out, page->why);
    page_cards_begin(out);
    for (size_t i = 0; i < page->n_rows; i++) {
        const struct plan_page_row *row = &page->rows[i];
        if (!row->is_chosen)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(row->name, " "), row->name);
        page_card(out, "choice", name, row->name + strlen(name), row->why);
        number_print(text, row->step_ms, NUMBER_PLAIN, 0);
        page_card(out, "step, ms", text, NULL, NULL);
        number_print(text, page->single_ms / row->step_ms, NUMBER_PLAIN, 0);
        page_card(out, "times one rank", text, NULL, NULL);
    }
    number_bytes(text, page->memory);
    page_card(out, "memory of a rank", page->memory > 0 ? text : "any", NULL, NULL);
    page_cards_end(out);
}

static void write_page(struct strbuf *out, const struct plan_page *page)
{
    size_t at[ROWS];
    const size_t count = rows_to_draw(page, at);

    write_head(out, page);
    page_section_begin(out, "Strategies");
    if (count > 0) {
        page_plots_begin(out);
        write_times(out, page, at, count);
        write_memory(out, page, at, count);
        page_plots_end(out);
    }
    write_table(out, page);
    page_section_end(out);
    if (page->n_points > 0) {
        page_section_begin(out, "Scaling");
        page_plots_begin(out);
        write_scaling(out, page);
        page_plots_end(out);
        write_points(out, page);
        page_section_end(out);
    }
    if (page->stages > 0 && page->seconds > 0) {
        page_section_begin(out, "Planned timeline of stages");
        page_note(out, page->timeline);
        page_plots_begin(out);
        page_plot_begin(out, true);
        plan_page_timeline(page, out);
        page_plot_end(out);
        page_plots_end(out);
        page_section_end(out);
    }
    page_end(out, "Made by tutti plan. Point at a plot for its values.");
}

enum status plan_page_write(const struct plan_page *page, const char *path)
{
    struct strbuf out;

    strbuf_init(&out, PAGE_MOST);
    write_page(&out, page);
    enum status status = strbuf_status(&out);
    if (status == STATUS_OK)
        status = file_replace(path, out.text, out.length);
    strbuf_release(&out);
    return status;
}
