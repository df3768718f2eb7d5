/* SPDX-License-Identifier: MIT */
/* compare_page.c - runs side by side as one HTML page: verdicts, curves over epochs, bars of time. */
#include <math.h>
#include <stdio.h>

#include "base/file.h"
#include "base/mem.h"
#include "report/compare.h"
#include "report/page.h"
#include "report/plot.h"

enum { SHOWN = 24 }; /* groups that a plot has room for */

static const size_t page_maximum = (size_t)64 << 20;

/* Tables ------------------------------------------------------------------------------------ */

static const char *verdict_text(const struct compare_figure *figure)
{
    switch (figure->verdict) {
    case COMPARE_BETTER:
        return "\u25b2 better";
    case COMPARE_WORSE:
        return "\u25bc worse";
    case COMPARE_SAME:
        return "= same";
    case COMPARE_UNKNOWN:
        break;
    }
    return "? noise unknown";
}

static void write_cell(struct strbuf *out, const struct compare_group *group, int metric,
                       bool is_base)
{
    const struct compare_figure *figure = &group->figures[metric];
    char text[2 * NUMBER_TEXT];

    if (figure->moments.count == 0) {
        strbuf_add(out, "<td>\u2013</td>");
        return;
    }
    compare_print(text, metric, &figure->moments);
    if (isfinite(figure->p))
        strbuf_printf(out, "<td title=\"p = %.3g, %zu values\">", figure->p,
                      figure->moments.count);
    else
        strbuf_add(out, "<td>");
    strbuf_add_xml(out, text);
    if (!is_base)
        strbuf_printf(out, "<br/><small>%s</small>", verdict_text(figure));
    strbuf_add(out, "</td>");
}

static bool is_told(const struct compare_section *section, int metric)
{
    for (size_t g = 0; g < section->count; g++) {
        if (section->groups[g].figures[metric].moments.count > 0)
            return true;
    }
    return false;
}

static void write_table(struct strbuf *out, const struct compare_section *section)
{
    strbuf_add(out, "<div class=\"box scroll\" style=\"margin-top:16px\"><table>\n<tr>"
                    "<th></th><th>runs</th>");
    for (int m = 0; m < COMPARE_METRICS; m++) {
        if (is_told(section, m))
            strbuf_printf(out, "<th>%s</th>", compare_rows[m].name);
    }
    strbuf_add(out, "<th>speed-up</th></tr>\n");
    for (size_t g = 0; g < section->count; g++) {
        const struct compare_group *group = &section->groups[g];
        char speedup[NUMBER_TEXT];
        strbuf_add(out, "<tr><td>");
        strbuf_add_xml(out, group->label);
        strbuf_add(out, g == 0                ? "<br/><small>the others are measured against it"
                        : group->same_weights ? "<br/><small>the same weights to the last bit"
                                              : "<small>");
        strbuf_printf(out, "</small></td><td>%zu</td>", group->count);
        for (int m = 0; m < COMPARE_METRICS; m++) {
            if (is_told(section, m))
                write_cell(out, group, m, g == 0);
        }
        number_print(speedup, group->speedup, NUMBER_PLAIN, 0);
        strbuf_printf(out, "<td>%s</td></tr>\n", speedup);
    }
    strbuf_add(out, "</table></div>\n");
}

/* Plots ------------------------------------------------------------------------------------- */

/* The mean over a group's runs, evaluation by evaluation, as far as all of them go. */
static enum status mean_curve(const struct compare_group *group, enum run_column column,
                              struct plot_series *out)
{
    size_t count = SIZE_MAX;
    double *x, *y;

    for (size_t r = 0; r < group->count; r++)
        count = group->runs[r]->eval.count < count ? group->runs[r]->eval.count : count;
    TRY(mem_alloc(2 * count + 1, sizeof *x, &x));
    y = x + count;
    for (size_t i = 0; i < count; i++) {
        x[i] = group->runs[0]->eval.column[RUN_EPOCH][i];
        for (size_t r = 0; r < group->count; r++)
            y[i] += group->runs[r]->eval.column[column][i] / (double)group->count;
    }
    *out = (struct plot_series){ .name = group->label, .x = x, .y = y, .count = count };
    return STATUS_OK;
}

static bool has_points(const struct plot_series *series)
{
    for (size_t i = 0; i < series->count; i++) {
        if (isfinite(series->y[i]))
            return true;
    }
    return false;
}

static enum status write_curves(struct strbuf *out, const struct compare_section *section,
                                const struct plot *plot, enum run_column column)
{
    struct plot_series series[SHOWN];
    size_t count = 0;
    bool any = false;
    enum status status = STATUS_OK;

    while (status == STATUS_OK && count < section->count && count < SHOWN) {
        status = mean_curve(&section->groups[count], column, &series[count]);
        if (status != STATUS_OK)
            break;
        series[count].colour = (int)count;
        series[count].dashed = count >= PLOT_COLOURS;
        any |= has_points(&series[count]);
        count++;
    }
    if (status == STATUS_OK && any) {
        page_plot_begin(out, false);
        plot_lines(out, plot, series, count);
        page_plot_end(out);
    }
    for (size_t i = 0; i < count; i++)
        mem_free((void *)(uintptr_t)series[i].x);
    return status;
}

static void write_bars(struct strbuf *out, const struct compare_section *section,
                       const struct plot *plot, const double *values)
{
    static const char *const names[] = { NULL };
    const char *categories[SHOWN];
    const size_t count = section->count < SHOWN ? section->count : SHOWN;
    bool any = false;

    for (size_t g = 0; g < count; g++) {
        categories[g] = section->groups[g].label;
        any |= isfinite(values[g]);
    }
    const struct plot_bars bars = { .categories = categories,
                                    .n_categories = count,
                                    .names = names,
                                    .n_series = 1,
                                    .values = values,
                                    .horizontal = true,
                                    .tell = true };
    if (!any)
        return;
    page_plot_begin(out, false);
    plot_bars(out, plot, &bars);
    page_plot_end(out);
}

static enum status write_plots(struct strbuf *out, const struct compare_section *section)
{
    static const struct plot accuracy = {
        .title = "Validation accuracy",
        .x = { .label = "epochs", .whole = true },
        .y = { .format = NUMBER_PERCENT },
    };
    static const struct plot losses[] = {
        { .title = "Validation loss", .x = { .label = "epochs", .whole = true } },
        { .title = "Training loss", .x = { .label = "epochs", .whole = true } },
    };
    static const struct plot time = { .title = "Seconds of an epoch" };
    static const struct plot speedup = { .title = "Speed-up" };
    double seconds[SHOWN], speedups[SHOWN];

    for (size_t g = 0; g < section->count && g < SHOWN; g++) {
        seconds[g] = section->groups[g].figures[COMPARE_EPOCH_SECONDS].moments.mean;
        speedups[g] = section->groups[g].speedup;
    }
    page_plots_begin(out);
    TRY(write_curves(out, section, &accuracy, RUN_VAL_ACCURACY));
    TRY(write_curves(out, section, &losses[0], RUN_VAL_LOSS));
    TRY(write_curves(out, section, &losses[1], RUN_TRAIN_LOSS));
    write_bars(out, section, &time, seconds);
    write_bars(out, section, &speedup, speedups);
    page_plots_end(out);
    return STATUS_OK;
}

static enum status write_page(struct strbuf *out, const struct compare *compare)
{
    page_begin(out, "Runs side by side \u2013 tutti");
    strbuf_printf(out, "<header><h1>Runs side by side</h1><p>%zu runs</p></header>\n",
                  compare->n_runs);
    if (compare->notes.length > 0)
        page_note(out, compare->notes.text);
    for (size_t k = 0; k < compare->n_sections; k++) {
        const struct compare_section *section = &compare->sections[k];
        char heading[200];
        snprintf(heading, sizeof heading, "%.90s on %.90s", section->model, section->data);
        page_section_begin(out, heading);
        TRY(write_plots(out, section));
        write_table(out, section);
        page_section_end(out);
    }
    page_end(out,
             "Made by tutti compare. Curves are means over the runs of a group, \u00b1 is the "
             "deviation among them. Better or worse: by Welch's test chance alone would make "
             "such a difference in fewer than 5 of 100 cases, and it is not negligible. "
             "With many figures some will differ by chance.");
    return strbuf_status(out);
}

enum status compare_write_page(const struct compare *compare, const char *path)
{
    struct strbuf out;

    strbuf_init(&out, page_maximum);
    enum status status = write_page(&out, compare);
    if (status == STATUS_OK)
        status = file_replace(path, out.text, out.length);
    strbuf_release(&out);
    return status;
}
