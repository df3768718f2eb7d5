/* SPDX-License-Identifier: MIT */
/* npy_folder.c - a data set as four NumPy arrays. */
#include "data/npy_folder.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/notice.h"
#include "base/room.h"
#include "data/names.h"
#include "data/npy.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *images, *labels;
} FILES[] = {
    [DATASET_TRAIN] = { "x_train.npy", "y_train.npy" },
    [DATASET_TEST] = { "x_test.npy", "y_test.npy" },
};
static const char CLASSES_FILE[] = "classes.txt";
enum { N_SPLITS = 2 };

/* An open split. */
struct arrays {
    struct npy images;
    size_t own_bytes; /* of `images` that are this process's: planes made of them in place */
    int32_t *labels;
    struct names names;
};

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path &&
           file_exists(path);
}

static bool probe(const char *folder)
{
    for (int split = 0; split < N_SPLITS; split++)
        if (is_there(folder, FILES[split].images) || is_there(folder, FILES[split].labels))
            return true;
    return false;
}

static bool is_channels(int64_t dim)
{
    return dim == 1 || dim == FORMAT_CHANNELS;
}

static enum status check_bytes(const char *path, const struct npy *npy)
{
    char type[NPY_TYPE_TEXT];

    if (npy->kind == 'f')
        return FAIL(STATUS_UNSUPPORTED,
                    "%s: holds %s; pixels are bytes, which tutti normalizes: save "
                    "(255 * x).round().astype(\"uint8\") if x lies in 0 to 1",
                    path, npy_type(npy, type));
    if (npy->kind != 'u' || npy->size != 1)
        return FAIL(STATUS_UNSUPPORTED,
                    "%s: holds %s; pixels are bytes: save x.astype(\"uint8\")", path,
                    npy_type(npy, type));
    return STATUS_OK;
}

/* Where the channels of an array of four dimensions are: as its shape says, unless `layout` does.
 * */
static enum status find_layout(const char *path, const struct npy *npy, bool *is_open,
                               enum dataset_layout *layout)
{
    const bool second = is_channels(npy->shape.dim[1]), last = is_channels(npy->shape.dim[3]);
    char text[SHAPE_TEXT];

    *is_open = false;
    if (*layout == DATASET_FOUND) {
        *is_open = second && last;
        *layout = second ? DATASET_NCHW : DATASET_NHWC;
        return STATUS_OK;
    }
    if (*layout == DATASET_NCHW ? second : last)
        return STATUS_OK;
    return FAIL(STATUS_USAGE, "%s: has shape %s: as %s it has %lld channels, not 1 or 3", path,
                shape_print(&npy->shape, text), *layout == DATASET_NCHW ? "nchw" : "nhwc",
                (long long)npy->shape.dim[*layout == DATASET_NCHW ? 1 : 3]);
}

/* The sample's C, H, W, and whether channels lie innermost. *is_open: the shape leaves that open.
 * */
static enum status read_sample(const char *path, const struct npy *npy,
                               enum dataset_layout layout, struct shape *out, bool *innermost,
                               bool *is_open)
{
    const int64_t *dim = npy->shape.dim;
    char text[SHAPE_TEXT];
    const char *why = NULL;

    TRY(check_bytes(path, npy));
    *innermost = *is_open = false;
    if (npy->shape.rank == 3) {
        if (layout != DATASET_FOUND)
            return FAIL(
                STATUS_USAGE,
                "--layout: %s has shape %s, without a dimension of channels: leave it out",
                path, shape_print(&npy->shape, text));
        *out = (struct shape){ 3, { 1, dim[1], dim[2] } };
    } else if (npy->shape.rank != 4) {
        why = "images are (N, H, W), (N, H, W, C) or (N, C, H, W)";
    } else if (!is_channels(dim[1]) && !is_channels(dim[3])) {
        why = "no dimension is 1 or 3 channels";
    } else {
        TRY(find_layout(path, npy, is_open, &layout));
        *innermost = layout == DATASET_NHWC && dim[3] > 1;
        *out = layout == DATASET_NHWC ? (struct shape){ 3, { dim[3], dim[1], dim[2] } }
                                      : (struct shape){ 3, { dim[1], dim[2], dim[3] } };
    }
    if (why)
        return FAIL(STATUS_UNSUPPORTED, "%s: has shape %s: %s", path,
                    shape_print(&npy->shape, text), why);
    if (shape_count(&npy->shape) == 0)
        return FAIL(STATUS_CORRUPT, "%s: holds no images", path);
    return STATUS_OK;
}

/* Samples H, W, C become planes C, H, W, in this process's copies of the file's pages: no second
 * array is there at any time. */
static enum status make_planes(const char *path, struct npy *npy, const struct shape *sample)
{
    enum { SAMPLES_AT_ONCE = 64 };
    const size_t channels = (size_t)sample->dim[0];
    const size_t plane = (size_t)(sample->dim[1] * sample->dim[2]), size = plane * channels;
    const size_t count = (size_t)npy->shape.dim[0];
    uint8_t *all, *pixels;
    struct notice notice;

    TRY(room_check(
        (double)count * (double)size, path, "turning (N, H, W, C) into planes",
        "save it as planes, numpy.ascontiguousarray(x.transpose(0, 3, 1, 2)), which are "
        "used from the file, or as fewer images"));
    TRY(file_map_own(&npy->map, path, &all));
    TRY(mem_alloc(size, 1, &pixels));
    uint8_t *to = all + (npy->data - npy->map.data);
    notice_begin(&notice, path);
    for (size_t i = 0; i < count; i++, to += size) {
        memcpy(pixels, to, size);
        for (size_t c = 0; c < channels; c++)
            for (size_t p = 0; p < plane; p++)
                to[c * plane + p] = pixels[p * channels + c];
        if (i % SAMPLES_AT_ONCE == 0)
            notice_at(&notice, (double)i, (double)count);
    }
    notice_end(&notice);
    mem_free(pixels);
    return STATUS_OK;
}

/* The labels of a split; `limit` is how many classes there may be, *out_classes how many the
 * largest label makes. Caller frees *out. */
static enum status read_labels(const char *folder, const char *name, int limit, int32_t **out,
                               int64_t *out_count, int *out_classes)
{
    char text[SHAPE_TEXT], type[NPY_TYPE_TEXT];
    struct npy npy;
    int32_t *labels = NULL;
    int largest = 0;
    enum status status;

    TRY(npy_open(folder, name, &npy));
    const int64_t count = npy.shape.dim[0];
    const bool flat =
        npy.shape.rank == 1 || (npy.shape.rank == 2 && (npy.shape.dim[1] == 1 || count == 0));
    if (npy.kind != 'u' && npy.kind != 'i')
        status = FAIL(STATUS_UNSUPPORTED,
                      "%s/%s: holds %s; labels are integers: save y.astype(\"int64\")", folder,
                      name, npy_type(&npy, type));
    else if (!flat)
        status = FAIL(STATUS_UNSUPPORTED,
                      "%s/%s: has shape %s; labels are (N) or (N, 1), the number of the class",
                      folder, name, shape_print(&npy.shape, text));
    else if (count == 0)
        status = FAIL(STATUS_CORRUPT, "%s/%s: holds no labels", folder, name);
    else
        status = mem_alloc((size_t)count, sizeof *labels, &labels);

    for (int64_t i = 0; status == STATUS_OK && i < count; i++) {
        const int64_t label = npy_integer(&npy, i);

        if (label < 0 || label >= limit)
            status = FAIL(STATUS_CORRUPT,
                          "%s/%s: label %" PRId64 " of sample %" PRId64
                          " is out of range: 0 to %d are allowed",
                          folder, name, label, i, limit - 1);
        else
            labels[i] = (int32_t)label;
        largest = label > largest && label < limit ? (int)label : largest;
    }
    npy_release(&npy);
    if (status != STATUS_OK) {
        mem_free(labels);
        return status;
    }
    *out = labels;
    *out_count = count;
    *out_classes = largest + 1;
    return STATUS_OK;
}

/* Pixels in [0, 1] that were made bytes without a factor are 0 or 1: black to a model. */
static void warn_of_dark(const char *path, const struct npy *npy)
{
    enum { LOOKS = 32 };
    const int64_t count = npy->shape.dim[0], looks = count < LOOKS ? count : LOOKS;
    const int64_t size = shape_count(&npy->shape) / count;
    uint8_t largest = 0;

    for (int64_t i = 0; i < looks && largest < 2; i++) {
        const uint8_t *image =
            npy->data + (looks > 1 ? i * (count - 1) / (looks - 1) : 0) * size;
        for (int64_t p = 0; p < size && largest < 2; p++)
            largest = image[p] > largest ? image[p] : largest;
    }
    if (largest == 1)
        log_line(
            LOG_WARNING,
            "%s: its pixels are 0 or 1, of 0 to 255: save (255 * x).round().astype(\"uint8\") "
            "if x lies in 0 to 1",
            path);
}

/* Both splits are open alike: one line is enough. */
static void tell_layout(const char *path, const struct npy *npy, const struct shape *sample)
{
    char shape[SHAPE_TEXT], read[SHAPE_TEXT];

    log_line(LOG_WARNING,
             "%s: has shape %s, in which channels could be the second or the last dimension: "
             "read as nchw, images of %s (channels, height, width); --layout nchw or nhwc says "
             "which",
             path, shape_print(&npy->shape, shape), shape_print(sample, read));
}

/* Opens the images and makes planes of them. */
static enum status read_images(const char *folder, const char *name,
                               const struct dataset_info *expected, enum dataset_layout layout,
                               struct arrays *arrays, struct format_data *out)
{
    bool innermost, is_open;
    char *path;

    TRY(npy_open(folder, name, &arrays->images));
    TRY(file_join(folder, name, &path));
    enum status status =
        read_sample(path, &arrays->images, layout, &out->sample, &innermost, &is_open);
    if (status == STATUS_OK)
        status = format_check_shape(path, &out->sample, expected);
    if (status == STATUS_OK && is_open && strcmp(name, FILES[DATASET_TRAIN].images) == 0)
        tell_layout(path, &arrays->images, &out->sample);
    if (status == STATUS_OK && strcmp(name, FILES[DATASET_TRAIN].images) == 0)
        warn_of_dark(path, &arrays->images);
    if (status == STATUS_OK && innermost) {
        status = make_planes(path, &arrays->images, &out->sample);
        arrays->own_bytes = arrays->images.map.length;
    }
    mem_free(path);
    return status;
}

static enum status read_split(const char *folder, enum dataset_split split,
                              const struct dataset_info *expected, enum dataset_layout layout,
                              struct arrays *arrays, struct format_data *out)
{
    const char *images = FILES[split].images, *labels = FILES[split].labels;
    int64_t n_labels;

    TRY(names_read(folder, CLASSES_FILE, &arrays->names));
    const int named = arrays->names.count;
    if (expected && named > 0 && named != expected->classes)
        return FAIL(STATUS_MISMATCH, "%s/%s: holds %d names where %s has %d classes", folder,
                    CLASSES_FILE, named, expected->name, expected->classes);
    const int limit = expected ? expected->classes : named > 0 ? named : FORMAT_CLASSES;
    TRY(read_labels(folder, labels, limit, &arrays->labels, &n_labels, &out->classes));
    if (limit < FORMAT_CLASSES)
        out->classes = limit;
    TRY(read_images(folder, images, expected, layout, arrays, out));

    const int64_t count = arrays->images.shape.dim[0];
    if (count != n_labels)
        return FAIL(STATUS_MISMATCH,
                    "%s: %s holds %" PRId64 " images, but %s holds %" PRId64 " labels", folder,
                    images, count, labels, n_labels);
    out->class_names = arrays->names.name;
    out->held_bytes = arrays->own_bytes + (size_t)n_labels * sizeof *arrays->labels;
    out->n_parts = 1;
    out->part[0] = (struct format_part){
        .pixels = arrays->images.data,
        .wide_labels = arrays->labels,
        .pixel_stride = (size_t)shape_count(&out->sample),
        .count = count,
    };
    *(split == DATASET_TRAIN ? &out->train_count : &out->test_count) = count;
    return STATUS_OK;
}

static void release(struct arrays *arrays)
{
    npy_release(&arrays->images);
    mem_free(arrays->labels);
    names_release(&arrays->names);
}

/* The other split may have higher labels than this one; without names both count. */
static enum status look_at_other_split(const char *folder, enum dataset_split other,
                                       struct format_data *data)
{
    int64_t *count = other == DATASET_TRAIN ? &data->train_count : &data->test_count;
    int32_t *labels;
    int classes;

    if (!is_there(folder, FILES[other].labels))
        return STATUS_OK;
    TRY(read_labels(folder, FILES[other].labels,
                    data->class_names ? data->classes : FORMAT_CLASSES, &labels, count,
                    &classes));
    mem_free(labels);
    if (!data->class_names && classes > data->classes)
        data->classes = classes;
    return STATUS_OK;
}

static enum status open_layout(const char *folder, enum dataset_split split,
                               const struct dataset_info *expected, enum dataset_layout layout,
                               struct format_data *out)
{
    const enum dataset_split other = split == DATASET_TRAIN ? DATASET_TEST : DATASET_TRAIN;
    struct format_data data = { 0 };
    struct arrays *arrays;

    TRY(mem_alloc(1, sizeof *arrays, &arrays));
    enum status status = read_split(folder, split, expected, layout, arrays, &data);
    if (status == STATUS_OK && !expected)
        status = look_at_other_split(folder, other, &data);
    if (status != STATUS_OK) {
        release(arrays);
        mem_free(arrays);
        return status;
    }
    data.storage = arrays;
    *out = data;
    return STATUS_OK;
}

static enum status open_split(const char *folder, enum dataset_split split,
                              const struct dataset_info *expected, struct format_data *out)
{
    return open_layout(folder, split, expected, DATASET_FOUND, out);
}

static void close_split(struct format_data *data)
{
    release(data->storage);
    mem_free(data->storage);
    *data = (struct format_data){ 0 };
}

/* As 32-bit little-endian numbers. */
static enum status add_labels(struct file_writer *writer, const struct format_data *data)
{
    uint8_t block[4096];
    size_t filled = 0;

    for (int p = 0; p < data->n_parts; p++)
        for (int64_t i = 0; i < data->part[p].count; i++) {
            const uint32_t label = (uint32_t)data->part[p].wide_labels[i];

            for (int byte = 0; byte < 4; byte++)
                block[filled++] = (uint8_t)(label >> (8 * byte));
            if (filled == sizeof block) {
                TRY(file_writer_add(writer, block, filled));
                filled = 0;
            }
        }
    return file_writer_add(writer, block, filled);
}

static enum status add_images(struct file_writer *writer, const struct format_data *data)
{
    const size_t size = (size_t)shape_count(&data->sample);

    for (int p = 0; p < data->n_parts; p++) {
        const struct format_part *part = &data->part[p];
        BUG_ON(part->pixel_stride != size); /* then all of them are one piece */
        TRY(file_writer_add(writer, part->pixels, size * (size_t)part->count));
    }
    return STATUS_OK;
}

typedef enum status add_elements(struct file_writer *writer, const struct format_data *data);

static enum status write_array(const char *target, const char *name, const char *descr,
                               const struct shape *shape, const struct format_data *data,
                               add_elements *add)
{
    struct file_writer writer;
    char *path;

    TRY(file_join(target, name, &path));
    enum status status = file_writer_begin(&writer, path);
    mem_free(path);
    TRY(status);
    status = npy_write_header(&writer, descr, shape);
    if (status == STATUS_OK)
        status = add(&writer, data);
    if (status == STATUS_OK)
        return file_writer_commit(&writer);
    file_writer_cancel(&writer);
    return status;
}

enum status npy_folder_write(const struct format_data *data, enum dataset_split split,
                             const char *target)
{
    const int64_t *dim = data->sample.dim;
    int64_t count = 0;

    for (int p = 0; p < data->n_parts; p++)
        count += data->part[p].count;
    const struct shape images = shape_4(count, dim[0], dim[1], dim[2]), labels = shape_1(count);
    TRY(write_array(target, FILES[split].images, "|u1", &images, data, add_images));
    return write_array(target, FILES[split].labels, "<i4", &labels, data, add_labels);
}

enum status npy_folder_write_names(const struct format_data *data, const char *target)
{
    if (!data->class_names)
        return STATUS_OK;
    return names_write(target, CLASSES_FILE, data->class_names, data->classes);
}

static enum status copy_layout(const char *folder, const struct dataset_info *expected,
                               enum dataset_layout layout, const char *target)
{
    for (int split = 0; split < N_SPLITS; split++) {
        struct format_data data;

        TRY(open_layout(folder, (enum dataset_split)split, expected, layout, &data));
        enum status status = npy_folder_write(&data, (enum dataset_split)split, target);
        if (status == STATUS_OK && split == DATASET_TRAIN)
            status = npy_folder_write_names(&data, target);
        close_split(&data);
        TRY(status);
    }
    return STATUS_OK;
}

static enum status copy(const char *folder, const struct dataset_info *expected,
                        const char *target)
{
    return copy_layout(folder, expected, DATASET_FOUND, target);
}

const struct format format_npy = {
    .name = "numpy",
    .files = "x_train.npy, y_train.npy, x_test.npy, y_test.npy",
    .probe = probe,
    .open = open_split,
    .open_layout = open_layout,
    .close = close_split,
    .copy = copy,
    .copy_layout = copy_layout,
};
