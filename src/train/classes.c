/* SPDX-License-Identifier: MIT */
/* classes.c - what an evaluation counted, class by class. */
#include "train/classes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { TOP = 5 };

/* A matrix of more classes is written by its cells; of these no more than CELLS_MAX, so that the
 * document stays within what readers take (JSON_VALUES). */
enum { MATRIX_MAX = 1000, CELLS_MAX = 1 << 17 };

static int compare_cells(const void *a, const void *b)
{
    const struct train_cell *x = a, *y = b;

    if (x->truth != y->truth)
        return x->truth < y->truth ? -1 : 1;
    return (x->answer > y->answer) - (x->answer < y->answer);
}

/* The most frequent first. */
static int compare_samples(const void *a, const void *b)
{
    const struct train_cell *x = a, *y = b;

    if (x->samples != y->samples)
        return x->samples < y->samples ? 1 : -1;
    return compare_cells(a, b);
}

/* Sorts `n` cells of one sample each and joins equal ones; returns how many are left. */
static size_t join_cells(struct train_cell *cells, size_t n)
{
    size_t kept = 0;

    qsort(cells, n, sizeof *cells, compare_cells);
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && compare_cells(&cells[kept - 1], &cells[i]) == 0)
            cells[kept - 1].samples += cells[i].samples;
        else
            cells[kept++] = cells[i];
    }
    return kept;
}

static enum status count_cells(const struct exec *exec, const struct source *source,
                               struct train_classes *out)
{
    const int64_t count = out->count ? source_count(source) : 0;
    size_t n = 0;

    TRY(mem_alloc((size_t)count, sizeof *out->cells, &out->cells));
    TRY(mem_alloc((size_t)out->count, sizeof *out->samples, &out->samples));
    TRY(mem_alloc((size_t)out->count, sizeof *out->right, &out->right));
    for (int64_t i = 0; i < count; i++) {
        const int32_t label = source_label(source, i);
        float score;
        if (label < 0 || label >= out->count)
            continue;
        const int32_t answer = exec_answer(exec, i, &score);
        out->cells[n++] = (struct train_cell){ label, answer, 1 };
        out->samples[label]++;
        out->right[label] += answer == label;
    }
    out->n_cells = join_cells(out->cells, n);
    return STATUS_OK;
}

enum status classes_take(const struct exec *exec, const struct source *source,
                         struct train_classes *out)
{
    struct train_classes taken = { .count = exec_classes(exec), .data = source->info };

    enum status status = count_cells(exec, source, &taken);
    if (status == STATUS_OK)
        status = classes_quality(exec, source, &taken.quality);
    if (status != STATUS_OK) {
        train_classes_release(&taken);
        return status;
    }
    *out = taken;
    return STATUS_OK;
}

enum status classes_quality(const struct exec *exec, const struct source *source,
                            struct quality *out)
{
    const int64_t count = source_count(source);
    struct quality_sample *samples;
    const int classes = exec_classes(exec);
    int64_t n = 0;

    TRY(mem_alloc((size_t)count, sizeof *samples, &samples));
    for (int64_t i = 0; classes && i < count; i++) {
        struct quality_sample *sample = &samples[n];
        sample->label = source_label(source, i);
        sample->answer = exec_answer(exec, i, &sample->score);
        n += sample->label >= 0 && sample->label < classes;
    }
    quality_measure(samples, n, classes, out);
    mem_free(samples);
    return STATUS_OK;
}

double classes_top5(const struct exec *exec, const struct exec_result *result)
{
    return exec_classes(exec) > TOP && result->samples
               ? (double)result->top5 / (double)result->samples
               : (double)NAN;
}

void train_classes_release(struct train_classes *classes)
{
    mem_free(classes->cells);
    mem_free(classes->samples);
    mem_free(classes->right);
    *classes = (struct train_classes){ 0 };
}

const char *train_class_name(const struct train_classes *classes, int class, char text[32])
{
    if (classes->data && classes->data->class_names && class < classes->data->classes)
        return classes->data->class_names[class];
    snprintf(text, 32, "%d", class);
    return text;
}

int64_t train_class_samples(const struct train_classes *classes, int class)
{
    return classes->samples[class];
}

double train_class_accuracy(const struct train_classes *classes, int class)
{
    const int64_t samples = classes->samples[class];

    return samples ? (double)classes->right[class] / (double)samples : (double)NAN;
}

int train_class_taken_for(const struct train_classes *classes, int class, int64_t *out_samples)
{
    int most = -1;

    *out_samples = 0;
    for (size_t i = 0; i < classes->n_cells; i++) {
        const struct train_cell *cell = &classes->cells[i];
        if (cell->truth == class && cell->answer != class && cell->samples > *out_samples) {
            most = cell->answer;
            *out_samples = cell->samples;
        }
    }
    return most;
}

/* [mean probability, share, samples] of each bin that is not empty. */
static void print_calibration(const struct quality *quality, const char *between,
                              struct strbuf *out)
{
    int n = 0;

    if (isnan(quality->calibration_error))
        return;
    strbuf_printf(out, "%s\"calibration\": [", between);
    for (int i = 0; i < QUALITY_BINS; i++) {
        if (!quality->count[i])
            continue;
        strbuf_add(out, n++ ? ", [" : "[");
        strbuf_add_number(out, quality->probability[i]);
        strbuf_add(out, ", ");
        strbuf_add_number(out, quality->share[i]);
        strbuf_printf(out, ", %lld]", (long long)quality->count[i]);
    }
    strbuf_add(out, "]");
}

static void print_matrix(const struct train_classes *classes, const char *between,
                         struct strbuf *out)
{
    const struct train_cell *cell = classes->cells, *end = cell + classes->n_cells;

    strbuf_printf(out, "%s\"confusion\": [", between);
    for (int truth = 0; truth < classes->count; truth++) {
        strbuf_add(out, truth ? "], [" : "[");
        for (int answer = 0; answer < classes->count; answer++) {
            const bool is_next = cell < end && cell->truth == truth && cell->answer == answer;
            strbuf_printf(out, "%s%lld", answer ? ", " : "",
                          is_next ? (long long)cell->samples : 0);
            cell += is_next;
        }
    }
    strbuf_add(out, "]]");
}

static void print_cell_list(const struct train_cell *cells, size_t n, const char *between,
                            struct strbuf *out)
{
    strbuf_printf(out, "%s\"confusion_cells\": [", between);
    for (size_t i = 0; i < n; i++)
        strbuf_printf(out, "%s[%d, %d, %lld]", i ? ", " : "", (int)cells[i].truth,
                      (int)cells[i].answer, (long long)cells[i].samples);
    strbuf_add(out, "]");
}

/* All cells, or the most frequent and how many samples the others have. */
static enum status print_cells(const struct train_classes *classes, const char *between,
                               struct strbuf *out)
{
    struct train_cell *frequent;
    int64_t left_out = 0;

    if (classes->n_cells <= CELLS_MAX) {
        print_cell_list(classes->cells, classes->n_cells, between, out);
        return STATUS_OK;
    }
    TRY(mem_alloc(classes->n_cells, sizeof *frequent, &frequent));
    memcpy(frequent, classes->cells, classes->n_cells * sizeof *frequent);
    qsort(frequent, classes->n_cells, sizeof *frequent, compare_samples);
    for (size_t i = CELLS_MAX; i < classes->n_cells; i++)
        left_out += frequent[i].samples;
    qsort(frequent, CELLS_MAX, sizeof *frequent, compare_cells);
    print_cell_list(frequent, CELLS_MAX, between, out);
    strbuf_printf(out, "%s\"confusion_left_out\": %lld", between, (long long)left_out);
    mem_free(frequent);
    return STATUS_OK;
}

enum status train_print_classes(const struct train_classes *classes, const char *between,
                                struct strbuf *out)
{
    char text[32];

    if (!classes->count)
        return STATUS_OK;
    strbuf_printf(out, "%s\"class_names\": [", between);
    for (int c = 0; c < classes->count; c++) {
        strbuf_add(out, c ? ", " : "");
        strbuf_add_json(out, train_class_name(classes, c, text));
    }
    strbuf_printf(out, "]%s\"class_samples\": [", between);
    for (int c = 0; c < classes->count; c++)
        strbuf_printf(out, "%s%lld", c ? ", " : "", (long long)classes->samples[c]);
    strbuf_printf(out, "]%s\"class_accuracy\": [", between);
    for (int c = 0; c < classes->count; c++) {
        strbuf_add(out, c ? ", " : "");
        strbuf_add_number(out, train_class_accuracy(classes, c));
    }
    strbuf_add(out, "]");
    if (classes->count <= MATRIX_MAX)
        print_matrix(classes, between, out);
    else
        TRY(print_cells(classes, between, out));
    print_calibration(&classes->quality, between, out);
    return STATUS_OK;
}
