/* SPDX-License-Identifier: MIT */
/* classes.c - what an evaluation counted, class by class. */
#include "train/classes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { TOP = 5 };

enum status classes_take(const struct exec *exec, const struct source *source,
                         struct train_classes *out)
{
    struct train_classes taken = { .data = source->info };
    const int64_t *confusion = exec_confusion(exec, &taken.count);
    const size_t cells = (size_t)taken.count * (size_t)taken.count;

    TRY(mem_alloc(cells, sizeof *taken.confusion, &taken.confusion));
    if (cells > 0)
        memcpy(taken.confusion, confusion, cells * sizeof *confusion);
    enum status status = classes_quality(exec, source, &taken.quality);
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
    int64_t n = 0;
    int classes;

    exec_confusion(exec, &classes);
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
    int classes;

    exec_confusion(exec, &classes);
    return classes > TOP && result->samples ? (double)result->top5 / (double)result->samples
                                            : (double)NAN;
}

void train_classes_release(struct train_classes *classes)
{
    mem_free(classes->confusion);
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
    int64_t samples = 0;

    for (int answer = 0; answer < classes->count; answer++)
        samples += classes->confusion[class * classes->count + answer];
    return samples;
}

double train_class_accuracy(const struct train_classes *classes, int class)
{
    const int64_t samples = train_class_samples(classes, class);

    return samples
               ? (double)classes->confusion[class * classes->count + class] / (double)samples
               : (double)NAN;
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

void train_print_classes(const struct train_classes *classes, const char *between,
                         struct strbuf *out)
{
    char text[32];

    if (!classes->count)
        return;
    strbuf_printf(out, "%s\"class_names\": [", between);
    for (int c = 0; c < classes->count; c++) {
        strbuf_add(out, c ? ", " : "");
        strbuf_add_json(out, train_class_name(classes, c, text));
    }
    strbuf_printf(out, "]%s\"class_accuracy\": [", between);
    for (int c = 0; c < classes->count; c++) {
        strbuf_add(out, c ? ", " : "");
        strbuf_add_number(out, train_class_accuracy(classes, c));
    }
    strbuf_printf(out, "]%s\"confusion\": [", between);
    for (int64_t i = 0; i < (int64_t)classes->count * classes->count; i++) {
        const bool begins_row = i % classes->count == 0;
        strbuf_add(out, begins_row ? (i ? "], [" : "[") : ", ");
        strbuf_printf(out, "%lld", (long long)classes->confusion[i]);
    }
    strbuf_add(out, "]]");
    print_calibration(&classes->quality, between, out);
}
