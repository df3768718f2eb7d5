/* SPDX-License-Identifier: MIT */
/* part.c - what the parts of the page share. */
#include "report/part.h"

#include "report/number.h"
#include "report/page.h"

#include <math.h>

struct plot_series part_series(const struct run_table *table, enum run_column x,
                               enum run_column y, const char *name, int colour,
                               enum plot_style style)
{
    return (struct plot_series){
        .name = name,
        .x = table->column[x],
        .y = table->column[y],
        .count = run_has(table, y) && run_has(table, x) ? table->count : 0,
        .colour = colour,
        .style = style,
    };
}

/* Drops series without points: the legend names only what is drawn. */
static size_t keep_filled(struct plot_series *series, size_t n_series)
{
    size_t kept = 0;

    for (size_t i = 0; i < n_series; i++) {
        if (series[i].count > 0)
            series[kept++] = series[i];
    }
    return kept;
}

void part_lines(struct report *report, const struct plot *plot, struct plot_series *series,
                size_t n_series)
{
    n_series = keep_filled(series, n_series);
    if (n_series == 0)
        return;
    page_plot_begin(report->out, false);
    plot_lines(report->out, plot, series, n_series);
    page_plot_end(report->out);
}

struct plot_axis part_progress_axis(const struct report *report)
{
    const double epochs = run_last(&report->run->train, RUN_EPOCH);

    if (report->x == RUN_EPOCH)
        return (
            struct plot_axis){ .label = "epoch", .from_zero = true, .whole = !(epochs < 4) };
    const bool rounds =
        report->run->summary && json_get(json_root(report->run->summary), "federated");
    return (struct plot_axis){ .label = rounds ? "round" : "step",
                               .format = NUMBER_SI,
                               .from_zero = true };
}

/* Elapsed time in the unit that suits its length. */
struct plot_axis part_time_axis(const struct run *run)
{
    const double longest =
        fmax(run_last(&run->train, RUN_SECONDS), run_last(&run->eval, RUN_SECONDS));
    struct plot_axis axis = { .label = "seconds", .from_zero = true };

    if (longest > 3 * 3600) {
        axis.label = "hours";
        axis.unit = 3600;
    } else if (longest > 300) {
        axis.label = "minutes";
        axis.unit = 60;
    }
    return axis;
}

void part_cell(struct report *report, double value, enum number_format format)
{
    char text[NUMBER_TEXT];

    number_print(text, value, format, 0);
    strbuf_add(report->out, "<td>");
    strbuf_add_xml(report->out, text);
    strbuf_add(report->out, "</td>");
}
