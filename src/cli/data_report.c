/* SPDX-License-Identifier: MIT */
/* data_report.c - tutti data info NAME --report: what the page about a data set shows, gathered. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "report/data_page.h"

enum {
    FEW = 20,      /* classes: up to so many have rows of their own, which hold more samples */
    ROW_LONG = 16, /* samples of a class, if there are few and if there are many */
    ROW_SHORT = 6,
};

static const double quiet_s = 2;                         /* before progress is told */
static const size_t averages_maximum = (size_t)64 << 20; /* sums; larger ones are not made */

/* What is gathered; one allocation each. */
struct gathered {
    size_t classes, per_class, pixels; /* pixels of all channels of a sample */
    char (*numbers)[24];
    const char **names;
    double *samples; /* of each class, training and then test */
    uint64_t values[DATA_PAGE_CHANNELS][DATA_PAGE_VALUES];
    struct pixmap *shown, *averages;
    uint32_t *sums;   /* [class * pixels + pixel] */
    uint8_t *average; /* likewise */
};

static void release(struct gathered *g)
{
    mem_free(g->numbers);
    mem_free(g->names);
    mem_free(g->samples);
    mem_free(g->shown);
    mem_free(g->averages);
    mem_free(g->sums);
    mem_free(g->average);
}

static enum status make_room(struct gathered *g, const struct dataset_info *info)
{
    TRY(mem_alloc(g->classes, sizeof *g->numbers, &g->numbers));
    TRY(mem_alloc(g->classes, sizeof *g->names, &g->names));
    TRY(mem_alloc(2 * g->classes, sizeof *g->samples, &g->samples));
    TRY(mem_alloc(g->classes * g->per_class, sizeof *g->shown, &g->shown));
    TRY(mem_alloc(g->classes, sizeof *g->averages, &g->averages));
    if (g->classes * g->pixels <= averages_maximum / sizeof *g->sums) {
        TRY(mem_alloc(g->classes * g->pixels, sizeof *g->sums, &g->sums));
        TRY(mem_alloc(g->classes * g->pixels, 1, &g->average));
    }
    for (size_t c = 0; c < g->classes; c++) {
        snprintf(g->numbers[c], sizeof g->numbers[c], "%zu", c);
        g->names[c] = info->class_names ? info->class_names[c] : g->numbers[c];
    }
    return STATUS_OK;
}

static void count_values(struct gathered *g, const uint8_t *pixels, int channels)
{
    const size_t plane = g->pixels / (size_t)channels;

    for (int c = 0; c < channels; c++) {
        const uint8_t *at = pixels + (size_t)c * plane;
        /* Two tables: the same value twice in a row would wait for itself. */
        uint32_t even[DATA_PAGE_VALUES] = { 0 }, odd[DATA_PAGE_VALUES] = { 0 };
        for (size_t p = 0; p + 1 < plane; p += 2) {
            even[at[p]]++;
            odd[at[p + 1]]++;
        }
        if (plane % 2)
            even[at[plane - 1]]++;
        for (int v = 0; v < DATA_PAGE_VALUES; v++)
            g->values[c][v] += even[v] + odd[v];
    }
}

/* A training sample: its values, its class's mean, and itself if it is among the first. */
static void take_sample(struct gathered *g, const struct dataset *train, int64_t index,
                        struct pixmap like)
{
    const uint8_t *pixels = dataset_pixels(train, index);
    const size_t class = (size_t)dataset_label(train, index);

    count_values(g, pixels, like.channels);
    if (class >= g->classes)
        return;
    const size_t number = (size_t)g->samples[class]++;
    if (number < g->per_class) {
        like.pixels = pixels;
        g->shown[class * g->per_class + number] = like;
    }
    for (size_t p = 0; p < g->pixels && g->sums; p++)
        g->sums[class * g->pixels + p] += pixels[p];
}

static void tell(int64_t done, int64_t total, double began, double *told)
{
    const double now = clock_seconds();

    if (now - began < quiet_s || now - *told < (isatty(STDERR_FILENO) ? 0.2 : 5))
        return;
    *told = now;
    fprintf(stderr,
            isatty(STDERR_FILENO) ? "\r%.0f%% of %lld samples " : "%.0f%% of %lld samples\n",
            100.0 * (double)done / (double)total, (long long)total);
}

static void make_averages(struct gathered *g, struct pixmap like)
{
    for (size_t c = 0; c < g->classes && g->sums; c++) {
        const uint32_t samples = (uint32_t)g->samples[c];
        if (samples == 0)
            continue;
        for (size_t p = c * g->pixels; p < (c + 1) * g->pixels; p++)
            g->average[p] = (uint8_t)((g->sums[p] + samples / 2) / samples);
        g->averages[c] = like;
        g->averages[c].pixels = g->average + c * g->pixels;
    }
}

static void gather(struct gathered *g, const struct dataset *train, const struct dataset *test,
                   struct pixmap like)
{
    enum { AT_ONCE = 1024 }; /* samples between looks at the clock */
    const int64_t count = dataset_count(train);
    const double began = clock_seconds();
    double told = 0;

    for (int64_t i = 0; i < count; i++) {
        take_sample(g, train, i, like);
        if (i % AT_ONCE == AT_ONCE - 1)
            tell(i, count, began, &told);
    }
    if (told > 0 && isatty(STDERR_FILENO))
        fputs("\r\x1b[K", stderr);
    for (int64_t i = 0; i < dataset_count(test); i++) {
        const size_t class = (size_t)dataset_label(test, i);
        if (class < g->classes)
            g->samples[g->classes + class]++;
    }
    make_averages(g, like);
}

enum status cli_write_data_page(const struct dataset *train, const struct dataset *test,
                                const char *path)
{
    const struct dataset_info *info = dataset_info(train);
    const struct shape sample = dataset_sample(train);
    struct gathered g = { .classes = (size_t)dataset_classes(train),
                          .pixels = (size_t)shape_count(&sample) };
    const struct pixmap like = { .channels = (int)sample.dim[0],
                                 .height = (int)sample.dim[1],
                                 .width = (int)sample.dim[2],
                                 .planes = true };

    g.per_class = g.classes > FEW ? ROW_SHORT : ROW_LONG;
    enum status status = make_room(&g, info);
    if (status == STATUS_OK) {
        gather(&g, train, test, like);
        const struct data_page page = {
            .name = info->name,
            .title = info->title,
            .folder = dataset_path(train),
            .format = info->format,
            .fingerprint = dataset_fingerprint(train),
            .width = like.width,
            .height = like.height,
            .channels = like.channels,
            .train = dataset_count(train),
            .test = dataset_count(test),
            .classes = g.classes,
            .class_names = g.names,
            .class_samples = g.samples,
            .values = (const uint64_t(*)[DATA_PAGE_VALUES])g.values,
            .mean = info->mean,
            .deviation = info->deviation,
            .averages = g.averages,
            .per_class = g.per_class,
            .samples = g.shown,
        };
        status = data_page_write(&page, path);
    }
    release(&g);
    return status;
}
