/* SPDX-License-Identifier: MIT */
/* compare_page.c - runs side by side as one HTML page: verdicts, curves over epochs, bars of time. */
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* The mean, and under it the deviation and the verdict: side by side they make the table too wide. */
static void write_cell(struct strbuf *out, const struct compare_group *group, int metric,
                       bool is_base)
{
    const struct compare_figure *figure = &group->figures[metric];
    char text[NUMBER_TEXT];

    if (figure->moments.count == 0) {
        strbuf_add(out, "<td>\u2013</td>");
        return;
    }
    if (isfinite(figure->p))
        strbuf_printf(out, "<td title=\"p = %.3g, %zu values\">", figure->p,
                      figure->moments.count);
    else
        strbuf_add(out, "<td>");
    compare_rows[metric].print(text, figure->moments.mean);
    strbuf_add_xml(out, text);
    if (figure->moments.count > 1) {
        compare_rows[metric].print(text, figure->moments.deviation);
        strbuf_add(out, "<br/><small>\u00b1 ");
        strbuf_add_xml(out, text);
        strbuf_add(out, "</small>");
    }
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
    strbuf_add(out,
               "<div class=\"box scroll\" style=\"margin-top:16px\"><table class=\"fit\">\n"
               "<tr><th></th><th>runs</th>");
    for (int m = 0; m < COMPARE_METRICS; m++) {
        if (is_told(section, m))
            strbuf_printf(out, "<th>%s</th>", compare_rows[m].name);
    }
    strbuf_add(out, "<th>speed-up</th></tr>\n");
    for (size_t g = 0; g < section->count; g++) {
        const struct compare_group *group = &section->groups[g];
        char speedup[NUMBER_TEXT];
        strbuf_add(out, "<tr><td class=\"name\">");
        strbuf_add_xml(out, group->label);
        strbuf_add(out, group->n_failed == group->count ? "<br/><small>failed"
                        : g == 0              ? "<br/><small>the others are measured against it"
                        : group->same_weights ? "<br/><small>the same weights to the last bit"
                                              : "<small>");
        strbuf_printf(out, "</small></td><td>%zu", group->count);
        if (group->n_failed > 0 && group->n_failed < group->count)
            strbuf_printf(out, "<br/><small>%zu failed</small>", group->n_failed);
        strbuf_add(out, "</td>");
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

/* Evaluation by evaluation the mean over the runs that have it, and the deviation on both sides. */
static enum status mean_curve(const struct compare_group *group, enum run_column column,
                              struct plot_series *out)
{
    const struct run *longest = group->runs[0];
    double *x, *values;

    for (size_t r = 1; r < group->n_used; r++)
        longest = group->runs[r]->eval.count > longest->eval.count ? group->runs[r] : longest;
    const size_t count = longest->eval.count;
    TRY(mem_alloc(4 * count + 1, sizeof *x, &x));
    enum status status = mem_alloc(group->n_used, sizeof *values, &values);
    if (status != STATUS_OK) {
        mem_free(x);
        return status;
    }
    double *y = x + count, *low = y + count, *high = low + count;
    for (size_t i = 0; i < count; i++) {
        size_t n = 0;
        for (size_t r = 0; r < group->n_used; r++) {
            if (i < group->runs[r]->eval.count)
                values[n++] = group->runs[r]->eval.column[column][i];
        }
        const struct moments m = moments_of(values, n);
        x[i] = longest->eval.column[RUN_EPOCH][i];
        y[i] = m.count > 0 ? m.mean : NAN;
        low[i] = m.count > 1 ? m.mean - m.deviation : NAN;
        high[i] = m.count > 1 ? m.mean + m.deviation : NAN;
        if (column == RUN_VAL_ACCURACY || column == RUN_TRAIN_ACCURACY)
            high[i] = fmin(high[i], 1);
        low[i] = fmax(low[i], 0); /* no loss is less, either */
        if (m.count < 2)
            low[i] = high[i] = NAN;
    }
    mem_free(values);
    *out = (struct plot_series){
        .name = group->label, .x = x, .y = y, .low = low, .high = high, .count = count
    };
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
    enum status status = STATUS_OK;

    for (size_t g = 0; g < section->count && g < SHOWN && status == STATUS_OK; g++) {
        status = mean_curve(&section->groups[g], column, &series[count]);
        if (status != STATUS_OK)
            break;
        series[count].colour = (int)g;
        series[count].dashed = g >= PLOT_COLOURS;
        if (has_points(&series[count]))
            count++;
        else
            mem_free((void *)(uintptr_t)series[count].x);
    }
    if (status == STATUS_OK && count > 0) {
        page_plot_begin(out, false);
        plot_lines(out, plot, series, count);
        page_plot_end(out);
    }
    for (size_t i = 0; i < count; i++)
        mem_free((void *)(uintptr_t)series[i].x);
    return status;
}

/* Groups without a value have no bar. */
static void write_bars(struct strbuf *out, const struct compare_section *section,
                       const char *title, const double *values)
{
    static const char *const names[] = { NULL };
    const char *categories[SHOWN];
    double known[SHOWN];
    size_t count = 0;

    for (size_t g = 0; g < section->count && g < SHOWN; g++) {
        if (!isfinite(values[g]))
            continue;
        categories[count] = section->groups[g].label;
        known[count++] = values[g];
    }
    const struct plot_bars bars = { .categories = categories,
                                    .n_categories = count,
                                    .names = names,
                                    .n_series = 1,
                                    .values = known,
                                    .horizontal = true,
                                    .tell = true };
    const struct plot plot = { .title = title, .width = 1120, .height = 70 + 30 * (int)count };
    if (count == 0)
        return;
    page_plot_begin(out, true);
    plot_bars(out, &plot, &bars);
    page_plot_end(out);
}

/* Groups from the best to the worst, and those that have no place. */
static void write_ranking(struct strbuf *out, const struct compare_section *section)
{
    if (section->count < 2 || section->ranked_by == COMPARE_METRICS)
        return;
    const struct compare_row *row = &compare_rows[section->ranked_by];
    strbuf_printf(
        out,
        "<div class=\"box scroll\" style=\"margin-bottom:16px\"><table class=\"fit\">\n"
        "<tr><th>rank</th><th></th><th>%s</th><th>runs</th></tr>\n",
        row->name);
    const struct compare_group *group;
    for (size_t rank = 1; (group = compare_ranked(section, rank)); rank++) {
        char text[2 * NUMBER_TEXT];
        compare_print(text, section->ranked_by, &group->figures[section->ranked_by].moments);
        strbuf_printf(out, "<tr><td>%zu</td><td class=\"name\">", rank);
        strbuf_add_xml(out, group->label);
        strbuf_add(out,
                   compare_is_tied(group)
                       ? "<br/><small>not to be told from the best: within the noise</small>"
                       : "");
        strbuf_add(out, "</td><td>");
        strbuf_add_xml(out, text);
        strbuf_printf(out, "</td><td>%zu</td></tr>\n", group->count);
    }
    for (size_t g = 0; g < section->count; g++) {
        group = &section->groups[g];
        if (group->rank > 0)
            continue;
        strbuf_add(out, "<tr><td>\u2013</td><td class=\"name\">");
        strbuf_add_xml(out, group->label);
        strbuf_printf(out, "</td><td>%s</td><td>%zu</td></tr>\n",
                      group->n_failed == group->count ? "failed" : "\u2013", group->count);
    }
    strbuf_add(out, "</table></div>\n");
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
    double seconds[SHOWN], speedups[SHOWN];

    for (size_t g = 0; g < section->count && g < SHOWN; g++) {
        seconds[g] = section->groups[g].figures[COMPARE_EPOCH_SECONDS].moments.mean;
        speedups[g] = section->groups[g].speedup;
    }
    page_plots_begin(out);
    TRY(write_curves(out, section, &accuracy, RUN_VAL_ACCURACY));
    TRY(write_curves(out, section, &losses[0], RUN_VAL_LOSS));
    TRY(write_curves(out, section, &losses[1], RUN_TRAIN_LOSS));
    write_bars(out, section, "Seconds of an epoch", seconds);
    write_bars(out, section, "Speed-up", speedups);
    page_plots_end(out);
    return STATUS_OK;
}

/* A line each. */
static void write_notes(struct strbuf *out, const char *notes)
{
    for (const char *line = notes; line && *line;) {
        const size_t length = strcspn(line, "\n");
        char text[400];
        snprintf(text, sizeof text, "%.*s", (int)(length < 399 ? length : 399), line);
        page_note(out, text);
        line += length + (line[length] == '\n');
    }
}

static enum status write_page(struct strbuf *out, const struct compare *compare)
{
    page_begin(out, "Runs side by side \u2013 tutti");
    strbuf_printf(out, "<header><h1>Runs side by side</h1><p>%zu runs</p></header>\n",
                  compare->n_runs);
    write_notes(out, compare->notes.text);
    for (size_t k = 0; k < compare->n_sections; k++) {
        const struct compare_section *section = &compare->sections[k];
        char heading[200];
        snprintf(heading, sizeof heading, "%.90s on %.90s", section->model, section->data);
        page_section_begin(out, heading);
        write_ranking(out, section);
        if (section->count > SHOWN) {
            snprintf(heading, sizeof heading, "Plots show the first %d of %zu groups.",
                     (int)SHOWN, section->count);
            page_note(out, heading);
        }
        TRY(write_plots(out, section));
        write_table(out, section);
        page_section_end(out);
    }
    page_end(
        out,
        "Made by tutti compare. Curves are means over the runs of a group, their bands and "
        "\u00b1 "
        "the deviation among them. Better or worse: by Welch's test chance alone would make "
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
