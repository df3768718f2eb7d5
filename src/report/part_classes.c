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
    CLASSES_MAX = 1 << 20, /* that a summary may have */
    DRAWN_MAX = 512, /* of more there is a histogram and tables in place of bars and matrix */
    WIDE_FROM = 21,  /* classes: plots take the whole width */
    MISTAKES = 10,   /* rows of their table */
    MANY_MISTAKES = 30, /* the same where there is no matrix */
    WORST = 30,         /* rows of the table of classes */
    BINS = 10,
};

/* Samples of class `truth` for which the answer is `answer`. */
struct cell {
    size_t truth, answer;
    double count;
};

/* The summary's members about classes, checked. */
struct classes {
    size_t n, n_cells;
    const char **names;
    double *accuracy, *samples; /* of each class */
    struct cell *cells;         /* positive counts alone */
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

/* A count that is not a positive number is no cell. */
static void add_cell(struct classes *out, size_t truth, size_t answer, double count)
{
    if (isfinite(count) && count > 0)
        out->cells[out->n_cells++] = (struct cell){ truth, answer, fmin(count, 1e300) };
}

static enum status read_matrix(const struct json_value *rows, struct classes *out,
                               bool *out_is_good)
{
    if (rows->count != out->n)
        return STATUS_OK;
    for (size_t r = 0; r < out->n; r++) {
        if (rows->items[r].kind != JSON_ARRAY || rows->items[r].count != out->n)
            return STATUS_OK;
    }
    TRY(mem_alloc(out->n * out->n, sizeof *out->cells, &out->cells));
    for (size_t r = 0; r < out->n; r++) {
        for (size_t c = 0; c < out->n; c++)
            add_cell(out, r, c, number_of(&rows->items[r].items[c]));
    }
    *out_is_good = true;
    return STATUS_OK;
}

/* The number of a class; `n` if it is none. */
static size_t class_of(const struct json_value *value, size_t n)
{
    return value->kind == JSON_NUMBER && value->is_integer && value->integer >= 0 &&
                   (uint64_t)value->integer < n
               ? (size_t)value->integer
               : n;
}

/* [truth, answer, samples] each. */
static enum status read_cells(const struct json_value *cells, struct classes *out,
                              bool *out_is_good)
{
    TRY(mem_alloc(cells->count, sizeof *out->cells, &out->cells));
    for (size_t i = 0; i < cells->count; i++) {
        const struct json_value *cell = &cells->items[i];
        if (cell->kind != JSON_ARRAY || cell->count != 3)
            return STATUS_OK;
        const size_t truth = class_of(&cell->items[0], out->n),
                     answer = class_of(&cell->items[1], out->n);
        if (truth == out->n || answer == out->n)
            return STATUS_OK;
        add_cell(out, truth, answer, number_of(&cell->items[2]));
    }
    *out_is_good = true;
    return STATUS_OK;
}

/* Of each class as the summary has them or, of an older one, as its cells add up. */
static void read_samples(const struct run *run, struct classes *out)
{
    const struct json_value *samples = array_of(run, "class_samples");

    for (size_t i = 0; samples && samples->count == out->n && i < out->n; i++)
        out->samples[i] = number_of(&samples->items[i]);
    for (size_t i = 0; (!samples || samples->count != out->n) && i < out->n_cells; i++)
        out->samples[out->cells[i].truth] += out->cells[i].count;
}

/* *out_is_there: the summary holds names, accuracies and counts that fit together. */
static enum status read_classes(const struct run *run, struct classes *out, bool *out_is_there)
{
    const struct json_value *names = array_of(run, "class_names"),
                            *accuracy = array_of(run, "class_accuracy"),
                            *matrix = array_of(run, "confusion"),
                            *cells = array_of(run, "confusion_cells");

    if (!names || !accuracy || (!matrix && !cells) || names->count == 0 ||
        names->count > CLASSES_MAX || accuracy->count != names->count)
        return STATUS_OK;
    out->n = names->count;
    TRY(mem_alloc(out->n, sizeof *out->names, &out->names));
    TRY(mem_alloc(out->n, sizeof *out->accuracy, &out->accuracy));
    TRY(mem_alloc(out->n, sizeof *out->samples, &out->samples));
    for (size_t i = 0; i < out->n; i++)
        out->accuracy[i] = number_of(&accuracy->items[i]);
    if (!read_names(names, out))
        return STATUS_OK;
    TRY(matrix ? read_matrix(matrix, out, out_is_there) : read_cells(cells, out, out_is_there));
    read_samples(run, out);
    return STATUS_OK;
}

static void release_classes(struct classes *classes)
{
    mem_free(classes->names);
    mem_free(classes->accuracy);
    mem_free(classes->samples);
    mem_free(classes->cells);
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

/* How many classes have which accuracy. */
static void write_histogram(struct report *report, const struct classes *classes)
{
    const struct plot plot = { .title = "Classes by accuracy",
                               .x = { .label = "accuracy", .format = NUMBER_PERCENT },
                               .y = { .label = "classes", .format = NUMBER_SI } };

    page_plot_begin(report->out, false);
    plot_histogram(report->out, &plot, classes->accuracy, classes->n, BINS);
    page_plot_end(report->out);
}

static enum status write_matrix(struct report *report, const struct classes *classes)
{
    const bool is_wide = classes->n >= WIDE_FROM;
    double *counts;

    TRY(mem_alloc(classes->n * classes->n, sizeof *counts, &counts));
    for (size_t i = 0; i < classes->n_cells; i++) {
        const struct cell *cell = &classes->cells[i];
        counts[cell->truth * classes->n + cell->answer] += cell->count;
    }
    const struct plot_matrix matrix = { .names = classes->names,
                                        .n = classes->n,
                                        .counts = counts };
    const struct plot plot = { .title = "What was taken for what",
                               .width = is_wide ? 1120 : 0,
                               .x = { .label = "answer" },
                               .y = { .label = "truth" } };

    page_plot_begin(report->out, is_wide);
    plot_matrix(report->out, &plot, &matrix);
    page_plot_end(report->out);
    mem_free(counts);
    return STATUS_OK;
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

/* The most frequent first. */
static int compare_cells(const void *a, const void *b)
{
    const struct cell *x = a, *y = b;

    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    if (x->truth != y->truth)
        return x->truth < y->truth ? -1 : 1;
    return x->answer < y->answer ? -1 : x->answer > y->answer;
}

/* Moves mistakes to the front, the most frequent first; returns how many there are. */
static size_t sort_mistakes(struct classes *classes)
{
    size_t n = 0;

    for (size_t i = 0; i < classes->n_cells; i++) {
        const struct cell cell = classes->cells[i];
        if (cell.truth == cell.answer)
            continue;
        classes->cells[i] = classes->cells[n];
        classes->cells[n++] = cell;
    }
    qsort(classes->cells, n, sizeof *classes->cells, compare_cells);
    return n;
}

static void write_name(struct report *report, const char *name)
{
    strbuf_add(report->out, "<td>");
    strbuf_add_xml(report->out, name);
    strbuf_add(report->out, "</td>");
}

/* cells: the most frequent mistakes, `n` of them. */
static void write_mistakes(struct report *report, const struct classes *classes, size_t n)
{
    if (n == 0)
        return;
    if (classes->n > DRAWN_MAX)
        page_details_begin_open(report->out, "The most frequent mistakes");
    else
        page_details_begin(report->out, "The most frequent mistakes");
    strbuf_add(report->out, "<div class=\"scroll\"><table>\n<tr><th>truth</th><th>answer</th>"
                            "<th>samples</th><th>of the class</th></tr>\n");
    for (size_t i = 0; i < n; i++) {
        const struct cell *cell = &classes->cells[i];
        const double samples = classes->samples[cell->truth];
        const double share = samples > 0 ? cell->count / samples : (double)NAN;
        strbuf_add(report->out, "<tr>");
        write_name(report, classes->names[cell->truth]);
        write_name(report, classes->names[cell->answer]);
        part_cell(report, cell->count, NUMBER_PLAIN);
        part_cell(report, share <= 1 ? share : (double)NAN, NUMBER_PERCENT);
        strbuf_add(report->out, "</tr>\n");
    }
    strbuf_add(report->out, "</table></div>\n");
    page_details_end(report->out);
}

struct class
{
    size_t number;
    double accuracy, samples;
};

/* The worst first; of equal ones that with more samples. */
static int compare_classes(const void *a, const void *b)
{
    const struct class *x = a, *y = b;

    if (x->accuracy != y->accuracy)
        return x->accuracy < y->accuracy ? -1 : 1;
    if (x->samples != y->samples)
        return x->samples < y->samples ? 1 : -1;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Classes without samples are left out. cells: mistakes, the most frequent first. */
static enum status write_worst(struct report *report, const struct classes *classes,
                               size_t n_mistakes)
{
    struct class *sorted;
    size_t n = 0;

    TRY(mem_alloc(classes->n, sizeof *sorted, &sorted));
    for (size_t i = 0; i < classes->n; i++) {
        if (isfinite(classes->accuracy[i]))
            sorted[n++] = (struct class){ i, classes->accuracy[i], classes->samples[i] };
    }
    qsort(sorted, n, sizeof *sorted, compare_classes);
    if (n > 0) {
        page_details_begin_open(report->out, "The classes with the lowest accuracy");
        strbuf_add(report->out, "<div class=\"scroll\"><table>\n<tr><th>class</th>"
                                "<th>samples</th><th>accuracy</th>"
                                "<th>most often taken for</th></tr>\n");
    }
    for (size_t i = 0; i < n && i < WORST; i++) {
        const struct cell *found = NULL;
        for (size_t k = 0; k < n_mistakes && !found; k++) {
            if (classes->cells[k].truth == sorted[i].number)
                found = &classes->cells[k];
        }
        strbuf_add(report->out, "<tr>");
        write_name(report, classes->names[sorted[i].number]);
        part_cell(report, sorted[i].samples, NUMBER_PLAIN);
        part_cell(report, sorted[i].accuracy, NUMBER_PERCENT);
        write_name(report, found ? classes->names[found->answer] : "");
        strbuf_add(report->out, "</tr>\n");
    }
    if (n > 0) {
        strbuf_add(report->out, "</table></div>\n");
        page_details_end(report->out);
    }
    mem_free(sorted);
    return STATUS_OK;
}

static enum status write_classes(struct report *report, struct classes *classes)
{
    const bool is_drawn = classes->n <= DRAWN_MAX;
    enum status status = STATUS_OK;

    page_section_begin(report->out, "Classes");
    page_plots_begin(report->out);
    if (is_drawn) {
        write_accuracies(report, classes);
        status = write_matrix(report, classes);
    } else {
        write_histogram(report, classes);
    }
    write_calibration(report);
    page_plots_end(report->out);
    const size_t n = sort_mistakes(classes), shown = is_drawn ? MISTAKES : MANY_MISTAKES;
    if (status == STATUS_OK && !is_drawn)
        status = write_worst(report, classes, n);
    write_mistakes(report, classes, n < shown ? n : shown);
    page_section_end(report->out);
    return status;
}

void part_classes(struct report *report)
{
    struct classes classes = { 0 };
    bool is_there = false;

    enum status status = read_classes(report->run, &classes, &is_there);
    if (status == STATUS_OK && is_there)
        status = write_classes(report, &classes);
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
                   "validation samples above, what the model makes of them below", 0);
    strbuf_add(report->out, "</div>\n");
    page_section_end(report->out);
}
