/* SPDX-License-Identifier: MIT */
/* part_servers.c - parameter servers: how late gradients came, who waited, how far workers were apart. */
#include <math.h>
#include <stdio.h>

#include "report/number.h"
#include "report/page.h"
#include "report/part.h"

enum {
    BARS = 64,     /* more workers, or more lateness, are not drawn */
    POINTS = 1024, /* of clocks */
};

static const struct json_value *list_of(const struct report *report, const char *name)
{
    const struct json_value *list =
        report->run->summary ? json_get(json_root(report->run->summary), name) : NULL;

    return list && list->kind == JSON_ARRAY && list->count > 0 ? list : NULL;
}

/* A number that can be drawn. */
static double number_of(const struct json_value *value)
{
    return value->kind == JSON_NUMBER && isfinite(value->number) && value->number > 0
               ? fmin(value->number, 1e300)
               : 0;
}

static double member_of(const struct json_value *object, const char *key)
{
    const double number = json_number(object, key, 0);

    return isfinite(number) && number > 0 ? fmin(number, 1e300) : 0;
}

static void write_bars(struct report *report, const struct plot *plot,
                       const char *const *categories, const double *values, size_t count,
                       int colour, bool horizontal)
{
    static const char *const names[] = { NULL };
    const struct plot_bars bars = { .categories = categories,
                                    .n_categories = count,
                                    .names = names,
                                    .colours = &colour,
                                    .n_series = 1,
                                    .values = values,
                                    .horizontal = horizontal,
                                    .tell = horizontal };

    page_plot_begin(report->out, false);
    plot_bars(report->out, plot, &bars);
    page_plot_end(report->out);
}

/* Which share of the gradients met parameters that so many updates had changed meanwhile. */
static void write_staleness(struct report *report)
{
    const struct json_value *list = list_of(report, "staleness");
    char texts[BARS][NUMBER_TEXT];
    const char *categories[BARS];
    double values[BARS], sum = 0;

    if (!list)
        return;
    const size_t count = list->count < BARS ? list->count : BARS;
    for (size_t i = 0; i < count; i++) {
        snprintf(texts[i], sizeof texts[i], "%zu", i);
        categories[i] = texts[i];
        values[i] = number_of(&list->items[i]);
        sum += values[i];
    }
    for (size_t i = 0; i < count && sum > 0; i++)
        values[i] /= sum;
    const struct plot plot = { .title = "How late gradients came",
                               .x = { .label = "updates by others in between" },
                               .y = { .label = "share of the gradients",
                                      .format = NUMBER_PERCENT } };
    write_bars(report, &plot, categories, values, count, PART_BLUE, false);
}

static void write_waits(struct report *report)
{
    const struct json_value *list = list_of(report, "workers");
    char texts[BARS][NUMBER_TEXT];
    const char *categories[BARS];
    double values[BARS];

    if (!list)
        return;
    const size_t count = list->count < BARS ? list->count : BARS;
    for (size_t i = 0; i < count; i++) {
        snprintf(texts[i], sizeof texts[i], "rank %lld",
                 (long long)json_integer(&list->items[i], "rank", (int64_t)i));
        categories[i] = texts[i];
        values[i] = member_of(&list->items[i], "wait_s");
    }
    const struct plot plot = { .title = "How long workers waited",
                               .x = { .label = "seconds, for servers and each other" } };
    write_bars(report, &plot, categories, values, count, PART_ORANGE, true);
}

/* Rows of [seconds, steps of the slowest worker, of the fastest]. */
static void write_clocks(struct report *report)
{
    const struct json_value *list = list_of(report, "clocks");
    double seconds[POINTS], apart[POINTS];
    size_t count = 0;

    for (size_t i = 0; list && i < list->count && count < POINTS; i++) {
        const struct json_value *row = &list->items[i];
        if (row->kind != JSON_ARRAY || row->count != 3)
            continue;
        seconds[count] = number_of(&row->items[0]);
        apart[count++] = number_of(&row->items[2]) - number_of(&row->items[1]);
    }
    struct plot_series series = {
        .x = seconds, .y = apart, .count = count, .colour = PART_PURPLE, .style = PLOT_LINE
    };
    const struct plot plot = {
        .title = "How far workers were apart",
        .x = { .label = "seconds" },
        .y = { .label = "steps, fastest to slowest", .from_zero = true, .whole = true }
    };
    part_lines(report, &plot, &series, 1);
}

static void write_table(struct report *report, const struct json_value *servers)
{
    char text[NUMBER_TEXT];

    strbuf_add(report->out,
               "<div class=\"box scroll\" style=\"margin-top:16px\"><table>\n"
               "<tr><th>server</th><th>parameters</th><th>updates</th><th>busy</th>"
               "<th>in</th><th>out</th><th>came too late</th><th>refused</th></tr>\n");
    for (size_t i = 0; i < servers->count && i < PART_ROWS; i++) {
        const struct json_value *server = &servers->items[i];
        const double busy = member_of(server, "busy_s"), idle = member_of(server, "idle_s");
        strbuf_printf(report->out, "<tr><td>rank %lld</td>",
                      (long long)json_integer(server, "rank", (int64_t)i));
        part_cell(report, member_of(server, "elements"), NUMBER_SI);
        part_cell(report, member_of(server, "updates"), NUMBER_SI);
        part_cell(report, busy + idle > 0 ? busy / (busy + idle) : NAN, NUMBER_PERCENT);
        number_bytes(text, member_of(server, "bytes_in"));
        strbuf_printf(report->out, "<td>%s</td>", text);
        number_bytes(text, member_of(server, "bytes_out"));
        strbuf_printf(report->out, "<td>%s</td>", text);
        part_cell(report, member_of(server, "dropped"), NUMBER_SI);
        part_cell(report, member_of(server, "refused"), NUMBER_SI);
        strbuf_add(report->out, "</tr>\n");
    }
    strbuf_add(report->out, "</table></div>\n");
}

void part_servers(struct report *report)
{
    const struct json_value *servers = list_of(report, "servers");

    if (!servers)
        return;
    page_section_begin(report->out, "Parameter servers");
    page_plots_begin(report->out);
    write_staleness(report);
    write_waits(report);
    write_clocks(report);
    page_plots_end(report->out);
    write_table(report, servers);
    page_section_end(report->out);
}
