/* SPDX-License-Identifier: MIT */
/* image_folder.c - decodes a folder of images with several threads.
 *
 * Threads take the next file in turn. Of several bad files the first in the list is the one
 * that is told: whoever took an earlier one finishes it.
 */
#include "data/image_folder.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "data/image.h"
#include "data/image_list.h"
#include "data/npy_folder.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { THREADS_MOST = 16, FILES_A_THREAD = 256, TELL_SECONDS = 2, FAILURE_TEXT = 1024 };

/* An open split. */
struct images {
    struct image_list list;
    const struct image_entry *entry; /* those of this split */
    size_t folder_length; /* of paths: what stands before the file below the folder */
    uint8_t *pixels;
    int32_t *labels;
};

struct decoding {
    const char *folder;
    const struct image_entry *entry;
    size_t count;
    struct image_size size;
    const char *first; /* the file whose size that is */
    uint8_t *pixels;
    double began, told;    /* seconds; of the calling thread */
    _Atomic size_t next;   /* entry to be taken */
    _Atomic size_t failed; /* the first that failed; count if none */
    pthread_mutex_t lock;  /* of the two below */
    enum status status;    /* of entry `failed` */
    char text[FAILURE_TEXT];
};

static bool probe(const char *folder)
{
    return image_list_folder(folder, DATASET_TRAIN) != NULL;
}

static enum status open_file(const char *path, struct file_map *map, struct image_file *out)
{
    TRY(file_map(path, map));
    *out = (struct image_file){ path, map->data, map->length };
    return STATUS_OK;
}

static enum status decode_entry(const struct decoding *job, size_t i)
{
    const size_t bytes =
        (size_t)(job->size.height * job->size.width) * (size_t)job->size.channels;
    struct file_map map;
    struct image_file file;

    TRY(open_file(job->entry[i].path, &map, &file));
    enum status status = image_decode(&file, &job->size, job->pixels + i * bytes);
    file_unmap(&map);
    if (status == STATUS_MISMATCH)
        status = FAIL(STATUS_MISMATCH, "%s, as in %s", status_message(), job->first);
    return status;
}

static void note_failure(struct decoding *job, size_t i, enum status status)
{
    pthread_mutex_lock(&job->lock);
    if (i < atomic_load(&job->failed)) {
        atomic_store(&job->failed, i);
        job->status = status;
        snprintf(job->text, sizeof job->text, "%s", status_message());
    }
    pthread_mutex_unlock(&job->lock);
}

static void tell_progress(struct decoding *job, size_t done)
{
    const double now = clock_seconds();

    if (now - job->told < TELL_SECONDS)
        return;
    job->told = now;
    log_line(LOG_INFO, "%s: %zu of %zu images decoded in %.0f s", job->folder, done, job->count,
             now - job->began);
}

static void decode_some(void *arg, int index)
{
    struct decoding *job = arg;

    for (size_t i; (i = atomic_fetch_add(&job->next, 1)) < atomic_load(&job->failed);) {
        const enum status status = decode_entry(job, i);

        if (status != STATUS_OK)
            note_failure(job, i, status);
        if (index == 0)
            tell_progress(job, i);
    }
}

static int count_threads(size_t files)
{
    cpu_set_t set;
    const int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const int most = cores < THREADS_MOST ? cores : THREADS_MOST;
    const size_t useful = 1 + files / FILES_A_THREAD;

    return useful < (size_t)most ? (int)useful : most;
}

static enum status decode_all(struct decoding *job)
{
    struct pool *pool;

    TRY(pool_create(count_threads(job->count), &pool));
    job->began = job->told = clock_seconds();
    atomic_store(&job->failed, job->count);
    pthread_mutex_init(&job->lock, NULL);
    pool_run(pool, decode_some, job);
    pthread_mutex_destroy(&job->lock);
    pool_destroy(pool);
    return job->status == STATUS_OK ? STATUS_OK : status_set(job->status, job->text);
}

/* A row has the same classes in the same order. */
static enum status check_classes(const char *folder, const struct image_list *list,
                                 const struct dataset_info *expected)
{
    if (!expected)
        return STATUS_OK;
    if (list->classes != expected->classes)
        return FAIL(STATUS_MISMATCH, "%s/train: holds %d classes where %s has %d", folder,
                    list->classes, expected->name, expected->classes);
    for (int i = 0; i < list->classes; i++)
        if (strcmp(list->class_names[i], expected->class_names[i]) != 0)
            return FAIL(STATUS_MISMATCH,
                        "%s/train: class %d is %s where %s has %s; give the data another "
                        "name",
                        folder, i, list->class_names[i], expected->name,
                        expected->class_names[i]);
    return STATUS_OK;
}

/* The first training image says what all are like. */
static enum status read_size(const char *path, const struct dataset_info *expected,
                             struct image_size *size, struct shape *out)
{
    struct file_map map;
    struct image_file file;

    TRY(open_file(path, &map, &file));
    const enum status status = image_peek(&file, size);
    file_unmap(&map);
    TRY(status);
    if (expected && expected->sample.dim[0] > size->channels)
        size->channels = (int)expected->sample.dim[0];
    *out = (struct shape){ 3, { size->channels, size->height, size->width } };
    return format_check_shape(path, out, expected);
}

static enum status read_images(const char *folder, enum dataset_split split,
                               const struct dataset_info *expected, struct images *images,
                               struct format_data *out)
{
    const struct image_list *list = &images->list;

    TRY(image_list_read(folder, &images->list));
    TRY(check_classes(folder, list, expected));
    if (list->count[split] == 0)
        return FAIL(STATUS_NOT_FOUND, "%s: neither test nor val is there", folder);
    struct decoding job = { .folder = folder,
                            .entry = list->entry[split],
                            .count = list->count[split],
                            .first = list->entry[DATASET_TRAIN][0].path };
    TRY(read_size(job.first, expected, &job.size, &out->sample));
    const size_t bytes = (size_t)shape_count(&out->sample);
    TRY(mem_alloc(job.count, bytes, &images->pixels));
    TRY(mem_alloc(job.count, sizeof *images->labels, &images->labels));
    job.pixels = images->pixels;
    TRY(decode_all(&job));

    images->entry = job.entry;
    images->folder_length = strlen(folder);
    for (size_t i = 0; i < job.count; i++)
        images->labels[i] = job.entry[i].label;
    out->classes = list->classes;
    out->class_names = list->class_names;
    out->train_count = (int64_t)list->count[DATASET_TRAIN];
    out->test_count = (int64_t)list->count[DATASET_TEST];
    out->n_parts = 1;
    out->part[0] = (struct format_part){ .pixels = images->pixels,
                                         .wide_labels = images->labels,
                                         .pixel_stride = bytes,
                                         .count = (int64_t)job.count };
    return STATUS_OK;
}

static void release(struct images *images)
{
    image_list_release(&images->list);
    mem_free(images->pixels);
    mem_free(images->labels);
    mem_free(images);
}

static enum status open_split(const char *folder, enum dataset_split split,
                              const struct dataset_info *expected, struct format_data *out)
{
    struct format_data data = { 0 };
    struct images *images;

    TRY(mem_alloc(1, sizeof *images, &images));
    const enum status status = read_images(folder, split, expected, images, &data);
    if (status != STATUS_OK) {
        release(images);
        return status;
    }
    data.storage = images;
    *out = data;
    return STATUS_OK;
}

/* By class, then by the order of file names, which `turn` counts. */
static int64_t place(const struct format_data *data, int64_t index)
{
    const struct images *images = data->storage;
    const struct image_entry *entry = &images->entry[index];

    return ((int64_t)entry->label << 32) + entry->turn;
}

static const char *file_of(const struct format_data *data, int64_t index)
{
    const struct images *images = data->storage;
    const char *below = images->entry[index].path + images->folder_length;

    return below + strspn(below, "/");
}

static void close_split(struct format_data *data)
{
    release(data->storage);
    *data = (struct format_data){ 0 };
}

/* As NumPy arrays: decoded once and for all. */
static enum status copy(const char *folder, const struct dataset_info *expected,
                        const char *target)
{
    static const enum dataset_split SPLITS[] = { DATASET_TRAIN, DATASET_TEST };

    for (int i = 0; i < 2; i++) {
        struct format_data data;

        TRY(open_split(folder, SPLITS[i], expected, &data));
        enum status status = npy_folder_write(&data, SPLITS[i], target);
        if (status == STATUS_OK && SPLITS[i] == DATASET_TRAIN)
            status = npy_folder_write_names(&data, target);
        close_split(&data);
        TRY(status);
    }
    return STATUS_OK;
}

const struct format format_images = {
    .name = "images",
    .files = "train/CLASS/*.png or *.jpg, test/CLASS/...",
    .has_named_labels = true,
    .place = place,
    .file_of = file_of,
    .probe = probe,
    .open = open_split,
    .close = close_split,
    .copy = copy,
};
