/* SPDX-License-Identifier: MIT */
/* part_classes.c - which classes are known, and what the others are taken for; or, of a model without
 * classes, what it makes of samples. */
#include "report/part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "report/number.h"
#include "report/page.h"
#include "report/pixmap.h"

enum {
    CLASSES_MAX = 512, /* more are not drawn */
    WIDE_FROM = 21,    /* classes: plots take the whole width */
    MISTAKES = 10,     /* rows of their table */
};

/* The summary's members about classes, checked. */
struct classes {
    size_t n;
    const char **names;
    double *accuracy;
    double *counts; /* n x n */
};

static const struct json_value *array_of(const struct run *run, const char *key)
{
    const struct json_value *value =
        run->summary ? json_get(json_root(run->summary), key) : NULL;

    return value && value->kind == JSON_ARRAY ? value : NULL;
}

static double number_of(const struct json_value *value)
{
    return value->kind == JSON_NUMBER ? value->number : (double)NAN;
}

static bool read_names(const struct json_value *names, struct classes *out)
{
    for (size_t i = 0; i < out->n; i++) {
        if (names->items[i].kind != JSON_STRING)
            return false;
        out->names[i] = names->items[i].text;
    }
    return true;
}

static bool read_counts(const struct json_value *rows, struct classes *out)
{
    for (size_t r = 0; r < out->n; r++) {
        const struct json_value *row = &rows->items[r];
        if (row->kind != JSON_ARRAY || row->count != out->n)
            return false;
        for (size_t c = 0; c < out->n; c++)
            out->counts[r * out->n + c] = number_of(&row->items[c]);
    }
    return true;
}

/* *out_is_there: the summary holds names, accuracies and counts that fit together. */
static enum status read_classes(const struct run *run, struct classes *out, bool *out_is_there)
{
    const struct json_value *names = array_of(run, "class_names"),
                            *accuracy = array_of(run, "class_accuracy"),
                            *confusion = array_of(run, "confusion");

    if (!names || !accuracy || !confusion || names->count == 0 || names->count > CLASSES_MAX ||
        accuracy->count != names->count || confusion->count != names->count)
        return STATUS_OK;
    out->n = names->count;
    TRY(mem_alloc(out->n, sizeof *out->names, &out->names));
    TRY(mem_alloc(out->n, sizeof *out->accuracy, &out->accuracy));
    TRY(mem_alloc(out->n * out->n, sizeof *out->counts, &out->counts));
    for (size_t i = 0; i < out->n; i++)
        out->accuracy[i] = number_of(&accuracy->items[i]);
    *out_is_there = read_names(names, out) && read_counts(confusion, out);
    return STATUS_OK;
}

static void release_classes(struct classes *classes)
{
    mem_free(classes->names);
    mem_free(classes->accuracy);
    mem_free(classes->counts);
}

static void write_accuracies(struct report *report, const struct classes *classes)
{
    static const char *const names[] = { NULL };
    const bool is_wide = classes->n >= WIDE_FROM;
    const struct plot_bars bars = { .categories = classes->names,
                                    .n_categories = classes->n,
                                    .names = names,
                                    .n_series = 1,
                                    .values = classes->accuracy,
                                    .horizontal = !is_wide,
                                    .tell = true,
                                    .all_names = true };
    const struct plot_axis values = { .format = NUMBER_PERCENT };
    const struct plot plot = { .title = "Accuracy of each class",
                               .width = is_wide ? 1120 : 0,
                               .height = is_wide ? 300 : 480,
                               .x = is_wide ? (struct plot_axis){ 0 } : values,
                               .y = is_wide ? values : (struct plot_axis){ 0 } };

    page_plot_begin(report->out, is_wide);
    plot_bars(report->out, &plot, &bars);
    page_plot_end(report->out);
}

static void write_matrix(struct report *report, const struct classes *classes)
{
    const bool is_wide = classes->n >= WIDE_FROM;
    const struct plot_matrix matrix = { .names = classes->names,
                                        .n = classes->n,
                                        .counts = classes->counts };
    const struct plot plot = { .title = "What was taken for what",
                               .width = is_wide ? 1120 : 0,
                               .x = { .label = "answer" },
                               .y = { .label = "truth" } };

    page_plot_begin(report->out, is_wide);
    plot_matrix(report->out, &plot, &matrix);
    page_plot_end(report->out);
}

/* How often what the model holds for so likely is true: bins of probabilities (docs/formats.md). */
static void write_calibration(struct report *report)
{
    enum { BINS_MAX = 64 };
    static const double diagonal[] = { 0, 1 };
    const struct json_value *bins = array_of(report->run, "calibration");
    double probability[BINS_MAX], share[BINS_MAX];
    size_t n = 0;

    for (size_t i = 0; bins && i < bins->count && n < BINS_MAX; i++) {
        const struct json_value *bin = &bins->items[i];
        if (bin->kind != JSON_ARRAY || bin->count < 2)
            continue;
        probability[n] = number_of(&bin->items[0]);
        share[n++] = number_of(&bin->items[1]);
    }
    if (n == 0)
        return;
    const struct plot_series series[] = {
        { .name = "as it should be",
          .x = diagonal,
          .y = diagonal,
          .count = 2,
          .colour = PLOT_GREY,
          .dashed = true },
        { .name = "the model",
          .x = probability,
          .y = share,
          .count = n,
          .colour = PART_VERMILION },
    };
    const struct plot plot = {
        .title = "Calibration",
        .x = { .label = "probability that the model gives", .format = NUMBER_PERCENT },
        .y = { .label = "share for which it is true", .format = NUMBER_PERCENT },
    };

    page_plot_begin(report->out, false);
    plot_lines(report->out, &plot, series, 2);
    page_plot_end(report->out);
}

struct mistake {
    size_t truth, answer;
    double count, share;
};

static int compare_mistakes(const void *a, const void *b)
{
    const struct mistake *x = a, *y = b;

    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    if (x->truth != y->truth)
        return x->truth < y->truth ? -1 : 1;
    return x->answer < y->answer ? -1 : x->answer > y->answer;
}

/* The most frequent mistakes, most frequent first; returns how many there are, at most MISTAKES. */
static size_t find_mistakes(const struct classes *classes, struct mistake found[MISTAKES + 1])
{
    size_t n = 0;

    for (size_t truth = 0; truth < classes->n; truth++) {
        const double *row = classes->counts + truth * classes->n;
        double sum = 0;
        for (size_t c = 0; c < classes->n; c++)
            sum += row[c];
        for (size_t answer = 0; answer < classes->n; answer++) {
            if (answer == truth || !(row[answer] > 0) || !isfinite(sum))
                continue;
            found[n] = (struct mistake){ truth, answer, row[answer], row[answer] / sum };
            qsort(found, ++n, sizeof *found, compare_mistakes);
            n = n > MISTAKES ? MISTAKES : n;
        }
    }
    return n;
}

static void write_mistakes(struct report *report, const struct classes *classes)
{
    struct mistake found[MISTAKES + 1];
    const size_t n = find_mistakes(classes, found);

    if (n == 0)
        return;
    page_details_begin(report->out, "The most frequent mistakes");
    strbuf_add(report->out, "<div class=\"scroll\"><table>\n<tr><th>truth</th><th>answer</th>"
                            "<th>samples</th><th>of the class</th></tr>\n");
    for (size_t i = 0; i < n; i++) {
        strbuf_add(report->out, "<tr><td>");
        strbuf_add_xml(report->out, classes->names[found[i].truth]);
        strbuf_add(report->out, "</td><td>");
        strbuf_add_xml(report->out, classes->names[found[i].answer]);
        strbuf_add(report->out, "</td>");
        part_cell(report, found[i].count, NUMBER_PLAIN);
        part_cell(report, found[i].share, NUMBER_PERCENT);
        strbuf_add(report->out, "</tr>\n");
    }
    strbuf_add(report->out, "</table></div>\n");
    page_details_end(report->out);
}

void part_classes(struct report *report)
{
    struct classes classes = { 0 };
    bool is_there = false;

    enum status status = read_classes(report->run, &classes, &is_there);
    if (status == STATUS_OK && is_there) {
        page_section_begin(report->out, "Classes");
        page_plots_begin(report->out);
        write_accuracies(report, &classes);
        write_matrix(report, &classes);
        write_calibration(report);
        page_plots_end(report->out);
        write_mistakes(report, &classes);
        page_section_end(report->out);
    }
    release_classes(&classes);
    if (status != STATUS_OK)
        report->status = status;
}

void part_reconstructions(struct report *report)
{
    const struct run *run = report->run;

    if (!run->reconstructions)
        return;
    page_section_begin(report->out, "Reconstructions");
    strbuf_add(report->out, "<div class=\"box sheet\"><div class=\"sides\"><span>sample</span>"
                            "<span>reconstruction</span></div>");
    pixmap_add_png(report->out, run->reconstructions, run->reconstructions_bytes,
                   "samples of the test split above, what the model makes of them below", 0);
    strbuf_add(report->out, "</div>\n");
    page_section_end(report->out);
}
