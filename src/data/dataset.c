/* SPDX-License-Identifier: MIT */
/* dataset.c - an open split: its samples, normalized or as stored. */
#include "data/dataset.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/strbuf.h"
#include "data/format.h"
#include "data/known.h"
#include "data/normalize.h"
#include "data/search.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CLASS_NAME_BYTES = 24, CACHE_LINE = 64 };

struct dataset {
    struct source source;            /* first: a source is cast to its data set */
    const struct dataset_info *info; /* a row of the table, or `own` */
    struct dataset_info own;
    struct known known;
    char *folder;
    const char *name; /* the last part of `folder` */
    const struct format *format;
    enum dataset_split split;
    struct format_data data;
    int64_t whole; /* samples there are; source.count of them are to be seen */
    int64_t plane; /* pixels of one channel */
    int channels;
    int32_t *map; /* labels in the files to classes of a run; NULL: they are the classes */
    struct pixel_scale scale;
    struct normalizer normalizer;
    char contents[SHA256_HEX], old_contents[SHA256_HEX];       /* of all samples */
    char fingerprint[SHA256_HEX], old_fingerprint[SHA256_HEX]; /* of those to be seen */
    const char **class_names;                                  /* of `own` */
    char *class_text;
};

/* Cuts slashes off the end and returns the last part. */
static const char *last_part(char *folder)
{
    size_t length = strlen(folder);

    while (length > 1 && folder[length - 1] == '/')
        folder[--length] = '\0';
    const char *slash = strrchr(folder, '/');
    return slash && slash[1] ? slash + 1 : folder;
}

/* Classes whose names nobody knows are called by their numbers. */
static enum status number_classes(struct dataset *dataset)
{
    const size_t classes = (size_t)dataset->data.classes;

    TRY(mem_alloc(classes, sizeof *dataset->class_names, &dataset->class_names));
    TRY(mem_alloc(classes, CLASS_NAME_BYTES, &dataset->class_text));
    for (size_t i = 0; i < classes; i++) {
        char *text = dataset->class_text + i * CLASS_NAME_BYTES;
        snprintf(text, CLASS_NAME_BYTES, "%zu", i);
        dataset->class_names[i] = text;
    }
    return STATUS_OK;
}

/* A data set that has no row. */
static enum status describe_unknown(struct dataset *dataset)
{
    const struct format_data *data = &dataset->data;

    if (!data->class_names)
        TRY(number_classes(dataset));
    dataset->own = (struct dataset_info){
        .name = dataset->name,
        .title = dataset->folder,
        .format = dataset->format->name,
        .train_count = data->train_count,
        .test_count = data->test_count,
        .sample = data->sample,
        .classes = data->classes,
        .class_names = data->class_names ? data->class_names : dataset->class_names,
        .mean = { 0.5f, 0.5f, 0.5f },
        .deviation = { 0.5f, 0.5f, 0.5f },
    };
    dataset->info = &dataset->own;
    return STATUS_OK;
}

static int32_t label_of(const struct format_part *part, int64_t index)
{
    return part->wide_labels ? part->wide_labels[index]
                             : part->labels[(size_t)index * part->label_stride];
}

/* A byte each where that suffices, else three, whatever the file has. */
static void hash_labels(struct sha256 *hash, const struct format_part *part, int classes)
{
    const int bytes = classes <= UINT8_MAX + 1 ? 1 : 3;
    uint8_t block[4096 - 4096 % 3];
    size_t filled = 0;

    for (int64_t i = 0; i < part->count; i++) {
        const uint32_t label = (uint32_t)label_of(part, i);

        for (int byte = 0; byte < bytes; byte++)
            block[filled++] = (uint8_t)(label >> (8 * byte));
        if (filled == sizeof block) {
            sha256_add(hash, block, filled);
            filled = 0;
        }
    }
    sha256_add(hash, block, filled);
}

/* All labels, and the pixels of some samples spread over the split: cheap for mapped files, and
 * the same however the files are cut. */
static void hash_samples(struct sha256 *hash, const struct dataset *dataset)
{
    enum { LOOKS = 32 };
    const struct format_data *data = &dataset->data;
    const int64_t looks = dataset->source.count < LOOKS ? dataset->source.count : LOOKS;

    for (int i = 0; i < data->n_parts; i++)
        hash_labels(hash, &data->part[i], data->classes);
    for (int64_t i = 0; i < looks; i++) {
        const int64_t sample = looks > 1 ? i * (dataset->source.count - 1) / (looks - 1) : 0;
        sha256_add(hash, dataset_pixels(dataset, sample),
                   (size_t)(dataset->plane * dataset->channels));
    }
}

static void hash_contents(const struct dataset *dataset, enum dataset_split split,
                          const char *name, char out[SHA256_HEX])
{
    const struct format_data *data = &dataset->data;
    char shape[SHAPE_TEXT], text[512];
    struct sha256 hash;

    snprintf(text, sizeof text, "tutti data set 1\n%s\n%d\n%" PRId64 "\n%s\n%d\n", name,
             (int)split, dataset->whole, shape_print(&data->sample, shape), data->classes);
    sha256_init(&hash);
    sha256_add(&hash, text, strlen(text));
    hash_samples(&hash, dataset);
    sha256_end_hex(&hash, out);
}

/* A known data set has a name in it, whatever its folder is called. In older versions others
 * had that of their folder. */
static void hash_names(struct dataset *dataset, enum dataset_split split)
{
    const struct dataset_info *known = dataset->known.info,
                              *called = dataset_find(dataset->name);

    hash_contents(dataset, split, known ? known->name : "", dataset->contents);
    hash_contents(dataset, split, called ? called->name : dataset->name, dataset->old_contents);
}

/* As a source ---------------------------------------------------------------------------- */

static void read_source(const struct source *source, const struct source_how *how,
                        const int64_t *index, int64_t count,
                        const int64_t length[SOURCE_SEQUENCES], void *x, int32_t *x2,
                        int32_t *y)
{
    const struct source_how none = { .seed = 0 };

    (void)length;
    (void)x2;
    dataset_read_augmented((const struct dataset *)source, how ? how : &none, index, count, x,
                           y);
}

static int32_t label_source(const struct source *source, int64_t index)
{
    return dataset_label((const struct dataset *)source, index);
}

static const uint8_t *pixels_source(const struct source *source, int64_t index)
{
    return dataset_pixels((const struct dataset *)source, index);
}

static const float *values_source(const struct source *source)
{
    return ((const struct dataset *)source)->normalizer.value[0];
}

static int64_t place_source(const struct source *source, int64_t index)
{
    const struct dataset *dataset = (const struct dataset *)source;

    return dataset->format->place ? dataset->format->place(&dataset->data, index) : index;
}

static void name_source(const struct source *source, int64_t index, struct strbuf *out)
{
    const struct dataset *dataset = (const struct dataset *)source;

    if (dataset->format->file_of)
        strbuf_add(out, dataset->format->file_of(&dataset->data, index));
    else
        strbuf_printf(out, "%" PRId64, index);
}

static const struct source_kind images = { .read = read_source,
                                           .label = label_source,
                                           .place = place_source,
                                           .name = name_source,
                                           .pixels = pixels_source,
                                           .values = values_source };

static void describe_source(struct dataset *dataset)
{
    struct source *source = &dataset->source;
    const struct shape *sample = &dataset->data.sample;

    source->kind = &images;
    source->info = dataset->info;
    source->path = dataset->folder;
    source->fingerprint = dataset->fingerprint;
    source->old_fingerprint = dataset->old_fingerprint;
    source->sample = *sample;
    source->row_bytes[SOURCE_X] = (size_t)shape_count(sample) * sizeof(float);
    source->row_bytes[SOURCE_Y] = sizeof(int32_t);
    source->scratch_bytes = (size_t)shape_count(sample);
    source->held_bytes = dataset->data.held_bytes;
}

const struct source *dataset_as_source(const struct dataset *dataset)
{
    return &dataset->source;
}

/* The file beside the data has a normalization of its own. */
static enum status take_scale(struct dataset *dataset)
{
    struct pixel_scale scale;

    if (!*dataset->known.normalize)
        return STATUS_OK;
    if (scale_parse(dataset->known.normalize, (int)dataset->data.sample.dim[0], &scale) !=
        STATUS_OK)
        return FAIL(STATUS_MISMATCH, "%s/%s: normalize: %s", dataset->folder, KNOWN_FILE,
                    status_message());
    dataset->own = *dataset->info;
    memcpy(dataset->own.mean, scale.mean, sizeof scale.mean);
    memcpy(dataset->own.deviation, scale.deviation, sizeof scale.deviation);
    dataset->info = &dataset->own;
    return STATUS_OK;
}

/* Everything that follows from the opened files. */
static enum status prepare(struct dataset *dataset, enum dataset_split split)
{
    const struct format_data *data = &dataset->data;

    if (!dataset->info)
        TRY(describe_unknown(dataset));
    TRY(take_scale(dataset));
    for (int i = 0; i < data->n_parts; i++)
        dataset->whole += data->part[i].count;
    dataset->channels = (int)data->sample.dim[0];
    dataset->plane = data->sample.dim[1] * data->sample.dim[2];
    dataset->source.count = dataset->whole;
    describe_source(dataset);
    dataset_set_scale(dataset, NULL);
    hash_names(dataset, split);
    dataset->split = split;
    dataset_limit(dataset, 0);
    return STATUS_OK;
}

enum status dataset_layout_parse(const char *text, enum dataset_layout *out)
{
    static const char *const NAMES[] = { "", "nchw", "nhwc" };

    for (int i = 0; i < 3; i++)
        if (strcmp(text, NAMES[i]) == 0) {
            *out = (enum dataset_layout)i;
            return STATUS_OK;
        }
    return FAIL(STATUS_USAGE, "--layout %s: nchw or nhwc", text);
}

enum status dataset_open(const char *name, enum dataset_split split, struct dataset **out)
{
    return dataset_open_layout(name, split, DATASET_FOUND, out);
}

enum status dataset_open_layout(const char *name, enum dataset_split split,
                                enum dataset_layout layout, struct dataset **out)
{
    const struct format *format;
    struct dataset *dataset;
    enum status status;

    TRY(mem_alloc(1, sizeof *dataset, &dataset));
    status = search_find(name, &dataset->folder);
    if (status != STATUS_OK)
        goto close_dataset;
    dataset->name = last_part(dataset->folder);
    status = known_find(name, dataset->folder, &dataset->known);
    if (status != STATUS_OK)
        goto close_dataset;
    dataset->info = dataset->known.info;

    status = format_detect(dataset->folder, &format);
    if (status == STATUS_OK && format->text)
        status = FAIL(STATUS_USAGE, "%s: is text, not images", name);
    if (status == STATUS_OK && format->is_table)
        status = FAIL(STATUS_USAGE,
                      "%s: is a table, not images: train logistic or tabular on it", name);
    if (status == STATUS_OK)
        status =
            format_open(format, dataset->folder, split, dataset->info, layout, &dataset->data);
    if (status != STATUS_OK)
        goto close_dataset;
    dataset->format = format;
    status = prepare(dataset, split);
    if (status != STATUS_OK)
        goto close_dataset;
    *out = dataset;
    return STATUS_OK;

close_dataset:
    dataset_close(dataset);
    return status;
}

static void hash_count(const char *contents, int64_t count, char out[SHA256_HEX])
{
    char text[128];
    struct sha256 hash;

    snprintf(text, sizeof text, "%s\n%" PRId64 "\n", contents, count);
    sha256_init(&hash);
    sha256_add(&hash, text, strlen(text));
    sha256_end_hex(&hash, out);
}

void dataset_limit(struct dataset *dataset, int64_t limit)
{
    const int64_t count = limit > 0 && limit < dataset->whole ? limit : dataset->whole;

    dataset->source.count = count;
    hash_count(dataset->contents, count, dataset->fingerprint);
    hash_count(dataset->old_contents, count, dataset->old_fingerprint);
}

const struct pixel_scale pixel_unit_scale = { .deviation = { 1, 1, 1 } };

void dataset_set_scale(struct dataset *dataset, const struct pixel_scale *scale)
{
    if (scale) {
        dataset->scale = *scale;
    } else {
        memcpy(dataset->scale.mean, dataset->info->mean, sizeof dataset->scale.mean);
        memcpy(dataset->scale.deviation, dataset->info->deviation,
               sizeof dataset->scale.deviation);
    }
    normalizer_init(&dataset->normalizer, &dataset->scale, dataset->channels);
}

struct pixel_scale dataset_scale(const struct dataset *dataset)
{
    return dataset->scale;
}

enum status dataset_measure_scale(const struct dataset *dataset, struct pixel_scale *out)
{
    enum { VALUES = 256 };
    struct pixel_scale scale = { .deviation = { 1, 1, 1 } };

    for (int c = 0; c < dataset->channels; c++) {
        uint64_t counts[VALUES] = { 0 };
        double sum = 0, squares = 0;

        for (int64_t i = 0; i < dataset->source.count; i++) {
            const uint8_t *pixels = dataset_pixels(dataset, i) + c * dataset->plane;
            for (int64_t p = 0; p < dataset->plane; p++)
                counts[pixels[p]]++;
        }
        const double all = (double)dataset->source.count * (double)dataset->plane;
        for (int v = 0; v < VALUES; v++)
            sum += (double)counts[v] * v;
        const double mean = sum / all;
        for (int v = 0; v < VALUES; v++)
            squares += (double)counts[v] * (v - mean) * (v - mean);
        if (!(squares > 0))
            return FAIL(STATUS_USAGE, "all pixels of channel %d are %g: there is no deviation",
                        c, mean);
        scale.mean[c] = (float)(mean / 255);
        scale.deviation[c] = (float)(sqrt(squares / all) / 255);
    }
    *out = scale;
    return STATUS_OK;
}

enum status dataset_set_classes(struct dataset *dataset, const struct class_list *run)
{
    const bool has_names =
        dataset->data.class_names || (dataset->known.info && dataset->known.info->class_names);
    const struct class_source own = {
        .path = dataset->folder,
        .name = has_names ? dataset->info->class_names : NULL,
        .count = dataset->data.classes,
        .are_numbers = !dataset->format->has_named_labels,
        .warns = dataset->split == DATASET_TRAIN, /* one line is enough */
    };
    int32_t *map;

    TRY(mem_alloc((size_t)own.count, sizeof *map, &map));
    const enum status status = class_map(&own, run, map);
    if (status != STATUS_OK) {
        mem_free(map);
        return status;
    }
    mem_free(dataset->map);
    dataset->map = map;
    if (dataset->info != &dataset->own)
        dataset->own = *dataset->info;
    dataset->own.classes = run->count;
    dataset->own.class_names = run->name;
    dataset->info = dataset->source.info = &dataset->own;
    return STATUS_OK;
}

void dataset_close(struct dataset *dataset)
{
    if (!dataset)
        return;
    if (dataset->format)
        dataset->format->close(&dataset->data);
    mem_free(dataset->map);
    mem_free(dataset->class_text);
    mem_free(dataset->class_names);
    mem_free(dataset->folder);
    mem_free(dataset);
}

const struct dataset_info *dataset_info(const struct dataset *dataset)
{
    return dataset->info;
}

const char *dataset_path(const struct dataset *dataset)
{
    return dataset->folder;
}

const char *dataset_format(const struct dataset *dataset)
{
    return dataset->format->name;
}

int64_t dataset_count(const struct dataset *dataset)
{
    return dataset->source.count;
}

int dataset_classes(const struct dataset *dataset)
{
    return dataset->map ? dataset->info->classes : dataset->data.classes;
}

struct shape dataset_sample(const struct dataset *dataset)
{
    return dataset->data.sample;
}

const char *dataset_fingerprint(const struct dataset *dataset)
{
    return dataset->fingerprint;
}

/* The part that holds a sample; *index becomes its number there. */
static const struct format_part *part_of(const struct dataset *dataset, int64_t *index)
{
    const struct format_part *part = dataset->data.part;

    BUG_ON(*index < 0 || *index >= dataset->source.count);
    for (; *index >= part->count; part++)
        *index -= part->count;
    return part;
}

const uint8_t *dataset_pixels(const struct dataset *dataset, int64_t index)
{
    const struct format_part *part = part_of(dataset, &index);

    return part->pixels + (size_t)index * part->pixel_stride;
}

int32_t dataset_label(const struct dataset *dataset, int64_t index)
{
    const struct format_part *part = part_of(dataset, &index);
    const int32_t label = label_of(part, index);

    return dataset->map ? dataset->map[label] : label;
}

static void have_ready(const struct dataset *dataset, int64_t index)
{
    const uint8_t *pixels = dataset_pixels(dataset, index);

    for (int64_t at = 0; at < dataset->plane * dataset->channels; at += CACHE_LINE)
        __builtin_prefetch(pixels + at);
}

void dataset_read_augmented(const struct dataset *dataset, const struct source_how *how,
                            const int64_t *index, int64_t count, float *x, int32_t *y)
{
    const struct normalizer *normalizer = &dataset->normalizer;
    const struct shape *sample = &dataset->data.sample;
    const bool augments = augment_is_on(&how->augment);
    struct augment_draw draw = { 0 };

    for (int64_t i = 0; i < count; i++, x += dataset->plane * dataset->channels) {
        const uint8_t *pixels = dataset_pixels(dataset, index[i]);

        if (i + 1 < count) /* samples lie far apart */
            have_ready(dataset, index[i + 1]);
        if (augments)
            draw = augment_draw(&how->augment, sample, how->seed, how->epoch, index[i]);
        pixels = augment_move(&draw, sample, pixels, how->scratch);
        normalizer->run(normalizer, pixels, dataset->plane, x);
        augment_cut_out(&draw, sample, x);
        y[i] = dataset_label(dataset, index[i]);
    }
}

void dataset_read(const struct dataset *dataset, const int64_t *index, int64_t count, float *x,
                  int32_t *y)
{
    const struct source_how none = { .seed = 0 };

    dataset_read_augmented(dataset, &none, index, count, x, y);
}
