/* SPDX-License-Identifier: MIT */
/* npy_test.c - NumPy's arrays, and folders of four of them. */
#include "data/npy.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"
#include "data/dataset.h"
#include "data/fetch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 16 };

/* A file of version `major` with this header and `bytes` after it. */
static struct data_testing_file make_file(int major, const char *header, const void *data,
                                          size_t bytes)
{
    const size_t field = major == 1 ? 2 : 4, text = strlen(header);
    struct data_testing_file file = { .length = 8 + field + text + bytes };

    CHECK_OK(mem_alloc(file.length, 1, &file.bytes));
    memcpy(file.bytes, "\x93NUMPY", 6);
    file.bytes[6] = (uint8_t)major;
    file.bytes[8] = (uint8_t)text;
    file.bytes[9] = (uint8_t)(text >> 8);
    memcpy(file.bytes + 8 + field, header, text);
    if (bytes > 0)
        memcpy(file.bytes + 8 + field + text, data, bytes);
    return file;
}

static void test_headers_are_read(void)
{
    static const struct {
        int major;
        const char *header;
        char kind;
        int size;
        bool big_endian;
        struct shape shape;
    } CASES[] = {
        { 1,
          "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }    \n",
          'u',
          1,
          false,
          { 2, { 2, 3 } } },
        { 2,
          "{'shape': (6L,), 'descr': \"<i8\",'fortran_order':False}\n",
          'i',
          8,
          false,
          { 1, { 6 } } },
        { 3, "{\"descr\":\">u2\",\"fortran_order\":False,\"shape\":()}", 'u', 2, true, { 0 } },
        { 1,
          "{'descr': '=f4', 'fortran_order': False, 'shape': (0, 7, 1)}",
          'f',
          4,
          false,
          { 3, { 0, 7, 1 } } },
        { 1,
          "{'descr': '|b1', 'fortran_order': False, 'shape': ( 1 , 1 , 1, 1, 1, 1, )}",
          'b',
          1,
          false,
          { 6, { 1, 1, 1, 1, 1, 1 } } },
    };
    static const uint8_t DATA[64];

    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        const size_t bytes = (size_t)(shape_count(&CASES[i].shape) * CASES[i].size);
        struct data_testing_file file = make_file(CASES[i].major, CASES[i].header, DATA, bytes);
        struct npy npy;

        CHECK_OK(npy_parse("x", file.bytes, file.length, &npy));
        CHECK_INT(CASES[i].kind, npy.kind);
        CHECK_INT(CASES[i].size, npy.size);
        CHECK_INT(CASES[i].big_endian, npy.big_endian);
        CHECK(shape_equal(&CASES[i].shape, &npy.shape));
        CHECK(npy.data + bytes == file.bytes + file.length);
        for (size_t length = 0; length < file.length; length++) {
            CHECK_STATUS(STATUS_CORRUPT, npy_parse("x", file.bytes, length, &npy));
            CHECK_MESSAGE("x: ");
        }
        mem_free(file.bytes);

        file = make_file(CASES[i].major, CASES[i].header, DATA, bytes + 3);
        CHECK_STATUS(STATUS_CORRUPT, npy_parse("x", file.bytes, file.length, &npy));
        CHECK_MESSAGE("has 3 bytes after its end");
        mem_free(file.bytes);
    }
}

static void test_wrong_headers_are_refused(void)
{
    static const struct {
        const char *header;
        enum status status;
        const char *part;
    } CASES[] = {
        { "", STATUS_CORRUPT, "at byte 10: { is missing" },
        { "{}", STATUS_CORRUPT, "descr, fortran_order or shape is missing" },
        { "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}", STATUS_UNSUPPORTED,
          "is in Fortran order; save numpy.ascontiguousarray(x)" },
        { "{'descr': '|u1', 'descr': '|u1'}", STATUS_CORRUPT, "has \"descr\" twice" },
        { "{'descr': '|u1', 'colour': 1}", STATUS_CORRUPT, "has \"colour\" in it" },
        { "{'descr': [('a', '<i4')]}", STATUS_UNSUPPORTED, "holds records" },
        { "{'descr': '|O'}", STATUS_UNSUPPORTED, "type \"|O\"" },
        { "{'descr': '<c8'}", STATUS_UNSUPPORTED, "type \"<c8\"" },
        { "{'descr': '<i3'}", STATUS_UNSUPPORTED, "type \"<i3\"" },
        { "{'descr': '<U5'}", STATUS_UNSUPPORTED, "type \"<U5\"" },
        { "{'descr': |u1}", STATUS_CORRUPT, "at byte 20: a quoted word is missing" },
        { "{'descr' '|u1'}", STATUS_CORRUPT, ": is missing" },
        { "{'descr': '|u1' 'shape': ()}", STATUS_CORRUPT, ", or } is missing" },
        { "{'descr': '|u1", STATUS_CORRUPT, "the end of a quoted word is missing" },
        { "{'fortran_order': maybe}", STATUS_CORRUPT, "True or False is missing" },
        { "{'shape': (1 2)}", STATUS_CORRUPT, ", or ) is missing" },
        { "{'shape': (-1,)}", STATUS_CORRUPT, "a number is missing" },
        { "{'shape': (1,,)}", STATUS_CORRUPT, "a number is missing" },
        { "{'shape': [1]}", STATUS_CORRUPT, "( is missing" },
        { "{'shape': (99999999999999999999,)}", STATUS_CORRUPT, "than memory can hold" },
        { "{'shape': (1,1,1,1,1,1,1)}", STATUS_UNSUPPORTED, "more than 6 dimensions" },
        { "{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
          STATUS_CORRUPT, "than memory can hold" },
        { "{'descr': '<u8', 'fortran_order': False, 'shape': (2305843009213693952,)}",
          STATUS_CORRUPT, "than memory can hold" },
        { "{'descr': '|u1', 'fortran_order': False, 'shape': (0,)} x", STATUS_CORRUPT,
          "the end is missing" },
    };
    struct npy npy;

    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct data_testing_file file = make_file(1, CASES[i].header, NULL, 0);
        CHECK_STATUS(CASES[i].status, npy_parse("x.npy", file.bytes, file.length, &npy));
        CHECK_MESSAGE("x.npy: ");
        CHECK_MESSAGE(CASES[i].part);
        mem_free(file.bytes);
    }
    CHECK_STATUS(STATUS_CORRUPT, npy_parse("x", (const uint8_t *)"not numpy", 9, &npy));
    CHECK_MESSAGE("is not a NumPy file");
    CHECK_STATUS(STATUS_UNSUPPORTED,
                 npy_parse("x", (const uint8_t *)"\x93NUMPY\4\0\0\0", 10, &npy));
    CHECK_MESSAGE("version 4.0");
    CHECK_STATUS(STATUS_CORRUPT,
                 npy_parse("x", (const uint8_t *)"\x93NUMPY\2\0\0\0\0\1", 12, &npy));
    CHECK_MESSAGE("claims a header of 16777216 bytes");
}

static void put(uint8_t *at, int64_t value, int size, bool big_endian)
{
    for (int byte = 0; byte < size; byte++)
        at[big_endian ? size - 1 - byte : byte] = (uint8_t)((uint64_t)value >> (8 * byte));
}

static void test_integers_of_all_types_are_read(struct rng *rng)
{
    const int size = 1 << rng_below(rng, 4);
    const bool is_signed = rng_below(rng, 2), big_endian = rng_below(rng, 2);
    const int bits = 8 * size - 1; /* what both kinds can hold */
    const int64_t value = (int64_t)(rng_below(rng, (uint64_t)1 << bits) >> rng_below(rng, 8)),
                  sent = is_signed && rng_below(rng, 2) ? -value : value;
    uint8_t bytes[16] = { 0 };
    const struct npy npy = {
        .kind = is_signed ? 'i' : 'u', .size = size, .big_endian = big_endian, .data = bytes
    };

    put(bytes + size, sent, size, big_endian);
    CHECK_INT(sent, npy_integer(&npy, 1));
    if (!is_signed) {
        memset(bytes, 0xff, sizeof bytes);
        CHECK(npy_integer(&npy, 0) == (size == 8 ? INT64_MAX : ((int64_t)1 << 8 * size) - 1));
    }
}

/* Writes folder/name: random bytes of this shape, kept in `out`. */
static void write_array(struct rng *rng, const char *folder, const char *name,
                        const char *descr, const struct shape *shape, uint8_t *out,
                        size_t bytes)
{
    char header[256];
    int used = snprintf(header, sizeof header,
                        "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);

    for (int i = 0; i < shape->rank; i++)
        used += snprintf(header + used, sizeof header - (size_t)used, "%" PRId64 ",",
                         shape->dim[i]);
    snprintf(header + used, sizeof header - (size_t)used, "), }\n");
    CHECK(bytes <= MOST);
    for (size_t i = 0; rng && i < bytes; i++)
        out[i] = (uint8_t)rng_below(rng, 256);
    struct data_testing_file file = make_file(1, header, out, bytes);
    data_testing_write(folder, name, file.bytes, file.length);
    mem_free(file.bytes);
}

static void write_images(const char *folder, const char *name, const struct shape *shape,
                         uint8_t *out)
{
    struct rng rng;

    rng_init(&rng, 5, 0);
    write_array(&rng, folder, name, "|u1", shape, out, (size_t)shape_count(shape));
}

static void write_labels(const char *folder, const char *name, const int *labels, int count)
{
    const struct shape shape = { 2, { count, 1 } };
    uint8_t bytes[256];

    for (int i = 0; i < count; i++)
        put(bytes + 2 * i, labels[i], 2, true);
    write_array(NULL, folder, name, ">i2", &shape, bytes, 2 * (size_t)count);
}

/* Four arrays; the training images have `shape`, of 3 samples. */
static const char *make_folder(const char *name, const struct shape *shape, uint8_t *train)
{
    static char folder[2048];
    static uint8_t other[MOST];
    struct shape test = *shape;

    test.dim[0] = 2;
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    write_images(folder, "x_train.npy", shape, train);
    write_images(folder, "x_test.npy", &test, other);
    write_labels(folder, "y_train.npy", (const int[]){ 1, 0, 2 }, 3);
    write_labels(folder, "y_test.npy", (const int[]){ 4, 0 }, 2);
    return folder;
}

static void test_channels_are_found(void)
{
    static const struct {
        struct shape stored, sample;
        bool innermost;
    } CASES[] = {
        { { 3, { 3, 5, 4 } }, { 3, { 1, 5, 4 } }, false },
        { { 4, { 3, 5, 4, 1 } }, { 3, { 1, 5, 4 } }, false },
        { { 4, { 3, 1, 5, 4 } }, { 3, { 1, 5, 4 } }, false },
        { { 4, { 3, 3, 5, 4 } }, { 3, { 3, 5, 4 } }, false },
        { { 4, { 3, 5, 4, 3 } }, { 3, { 3, 5, 4 } }, true },
        { { 4, { 3, 3, 5, 3 } }, { 3, { 3, 5, 3 } }, false }, /* the second, if both could be */
    };
    static uint8_t stored[MOST];

    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct dataset *dataset;

        CHECK_OK(dataset_open(make_folder("mine", &CASES[i].stored, stored), DATASET_TRAIN,
                              &dataset));
        const struct shape sample = dataset_sample(dataset);
        const int64_t *dim = sample.dim, plane = dim[1] * dim[2];
        CHECK(shape_equal(&CASES[i].sample, &sample));
        CHECK_TEXT("numpy", dataset_format(dataset));
        CHECK_INT(3, dataset_count(dataset));
        CHECK_INT(2, dataset_info(dataset)->test_count);
        CHECK_INT(5, dataset_classes(dataset)); /* the test labels have a 4 */
        CHECK_INT(2, dataset_label(dataset, 2));
        for (int64_t p = 0; p < plane; p++)
            for (int64_t c = 0; c < dim[0]; c++) {
                const uint8_t *from = stored + 2 * plane * dim[0];
                CHECK_INT(from[CASES[i].innermost ? p * dim[0] + c : c * plane + p],
                          dataset_pixels(dataset, 2)[c * plane + p]);
            }
        dataset_close(dataset);
    }
}

static void check_refused(const char *folder, enum status expected, const char *part)
{
    struct dataset *dataset;

    CHECK_STATUS(expected, dataset_open(folder, DATASET_TRAIN, &dataset));
    CHECK_MESSAGE(folder);
    CHECK_MESSAGE(part);
}

static void check_layout(const struct shape *stored, enum dataset_layout layout,
                         const struct shape *sample, const char *why)
{
    static uint8_t bytes[MOST];
    struct dataset *dataset;
    const char *folder = make_folder("mine", stored, bytes);
    const enum status status = dataset_open_layout(folder, DATASET_TRAIN, layout, &dataset);

    CHECK_STATUS(why ? STATUS_USAGE : STATUS_OK, status);
    if (why) {
        CHECK_MESSAGE(why);
        return;
    }
    const struct shape found = dataset_sample(dataset);
    CHECK(shape_equal(sample, &found));
    const int64_t channels = sample->dim[0], plane = sample->dim[1] * sample->dim[2];
    for (int64_t i = 0; i < channels * plane; i++)
        CHECK_INT(bytes[layout == DATASET_NHWC ? i % plane * channels + i / plane : i],
                  dataset_pixels(dataset, 0)[i]);
    dataset_close(dataset);
}

static void test_a_layout_may_be_given(void)
{
    static const struct shape OPEN = { 4, { 3, 1, 13, 3 } }, LAST = { 4, { 3, 5, 4, 3 } },
                              SECOND = { 4, { 3, 3, 5, 4 } }, GREY = { 3, { 3, 5, 4 } },
                              BOTH = { 4, { 3, 1, 4, 1 } };
    enum dataset_layout layout;

    check_layout(&OPEN, DATASET_FOUND, &(struct shape){ 3, { 1, 13, 3 } }, NULL);
    check_layout(&OPEN, DATASET_NCHW, &(struct shape){ 3, { 1, 13, 3 } }, NULL);
    check_layout(&OPEN, DATASET_NHWC, &(struct shape){ 3, { 3, 1, 13 } }, NULL);
    check_layout(&BOTH, DATASET_NCHW, &(struct shape){ 3, { 1, 4, 1 } }, NULL);
    check_layout(&BOTH, DATASET_NHWC, &(struct shape){ 3, { 1, 1, 4 } }, NULL);
    check_layout(&LAST, DATASET_NHWC, &(struct shape){ 3, { 3, 5, 4 } }, NULL);
    check_layout(&LAST, DATASET_NCHW, NULL, "as nchw it has 5 channels, not 1 or 3");
    check_layout(&SECOND, DATASET_NHWC, NULL, "as nhwc it has 4 channels, not 1 or 3");
    check_layout(&GREY, DATASET_NHWC, NULL, "without a dimension of channels");
    CHECK_OK(dataset_layout_parse("nhwc", &layout));
    CHECK_INT(DATASET_NHWC, layout);
    CHECK_OK(dataset_layout_parse("", &layout));
    CHECK_INT(DATASET_FOUND, layout);
    CHECK_STATUS(STATUS_USAGE, dataset_layout_parse("chw", &layout));
}

/* An import as nhwc is planes, which say so by themselves. */
static void test_a_layout_is_imported(void)
{
    static const struct shape OPEN = { 4, { 3, 1, 13, 3 } };
    static uint8_t bytes[MOST];
    const char *folder = make_folder("mine", &OPEN, bytes);
    char root[2048];
    struct dataset *dataset;

    snprintf(root, sizeof root, "%s/root", test_folder());
    setenv("TUTTI_DATA", root, 1);
    CHECK_OK(dataset_import_layout(folder, "mine", DATASET_NHWC, NULL));
    CHECK_OK(dataset_open("mine", DATASET_TRAIN, &dataset));
    CHECK_INT(3, dataset_sample(dataset).dim[0]);
    CHECK_INT(bytes[1], dataset_pixels(dataset, 0)[13]);
    dataset_close(dataset);
}

static void test_wrong_arrays_are_refused(void)
{
    static const struct shape GOOD = { 4, { 3, 5, 4, 3 } }, NO_CHANNELS = { 4, { 3, 5, 4, 2 } },
                              FLAT = { 2, { 3, 20 } }, NONE = { 3, { 0, 5, 4 } },
                              THREE = { 1, { 3 } }, ONE_HOT = { 2, { 3, 5 } };
    static uint8_t bytes[MOST];
    const char *folder = make_folder("mine", &NO_CHANNELS, bytes);

    check_refused(folder, STATUS_UNSUPPORTED,
                  "x_train.npy: has shape 3x5x4x2: no dimension is 1 or 3 channels");
    folder = make_folder("mine", &FLAT, bytes);
    check_refused(folder, STATUS_UNSUPPORTED, "has shape 3x20: images are (N, H, W)");
    folder = make_folder("mine", &GOOD, bytes);
    write_images(folder, "x_train.npy", &NONE, bytes);
    check_refused(folder, STATUS_CORRUPT, "x_train.npy: holds no images");
    write_array(NULL, folder, "x_train.npy", "<f4", &GOOD, bytes, 180 * 4);
    check_refused(folder, STATUS_UNSUPPORTED,
                  "holds float32; pixels are bytes, which tutti normalizes: save (255 * "
                  "x).round()");
    write_array(NULL, folder, "x_train.npy", "<i2", &GOOD, bytes, 180 * 2);
    check_refused(folder, STATUS_UNSUPPORTED, "holds int16; pixels are bytes: save x.astype");

    folder = make_folder("mine", &GOOD, bytes);
    write_labels(folder, "y_train.npy", (const int[]){ 1, 0 }, 2);
    check_refused(folder, STATUS_MISMATCH,
                  "x_train.npy holds 3 images, but y_train.npy holds 2 labels");
    write_labels(folder, "y_train.npy", (const int[]){ 1, 0, -1 }, 3);
    check_refused(folder, STATUS_CORRUPT, "y_train.npy: label -1 of sample 2 is out of range");
    memset(bytes, 0x7f, 8);
    write_array(NULL, folder, "y_train.npy", "<u4", &THREE, bytes, 12);
    check_refused(folder, STATUS_CORRUPT, "label 2139062143 of sample 0 is out of range");
    write_array(NULL, folder, "y_train.npy", "<f8", &THREE, bytes, 24);
    check_refused(folder, STATUS_UNSUPPORTED,
                  "holds float64; labels are integers: save y.astype(\"int64\")");
    write_array(NULL, folder, "y_train.npy", "|u1", &ONE_HOT, bytes, 15);
    check_refused(folder, STATUS_UNSUPPORTED, "has shape 3x5; labels are (N) or (N, 1)");
    CHECK_OK(file_remove_tree(data_testing_path(folder, "y_train.npy")));
    check_refused(folder, STATUS_NOT_FOUND, "y_train.npy");

    folder = make_folder("mine", &GOOD, bytes);
    data_testing_call(folder, "cifar-10");
    check_refused(folder, STATUS_MISMATCH, "images are 3x5x4 where cifar-10 has 3x32x32");
}

static void test_classes_have_names(void)
{
    static const struct shape SHAPE = { 3, { 3, 2, 2 } };
    static uint8_t bytes[MOST];
    const char *folder = make_folder("mine", &SHAPE, bytes);
    struct dataset *dataset;

    data_testing_write(folder, "classes.txt", (const uint8_t *)"a\nb\nc\nd\ne\nf", 11);
    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    CHECK_INT(6, dataset_classes(dataset));
    CHECK_TEXT("f", dataset_info(dataset)->class_names[5]);
    dataset_close(dataset);
    data_testing_write(folder, "classes.txt", (const uint8_t *)"a\nb\nc\n", 6);
    check_refused(folder, STATUS_CORRUPT,
                  "y_test.npy: label 4 of sample 0 is out of range: 0 to 2 are allowed");
}

/* More classes than a byte can tell. */
static void test_labels_may_be_large(void)
{
    static const struct shape SHAPE = { 3, { 3, 2, 2 } };
    static uint8_t bytes[MOST];
    const char *folder = make_folder("mine", &SHAPE, bytes);
    struct dataset *dataset;
    char first[65];

    write_labels(folder, "y_train.npy", (const int[]){ 1000, 0, 300 }, 3);
    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    CHECK_INT(1001, dataset_classes(dataset));
    CHECK_INT(300, dataset_label(dataset, 2));
    CHECK_TEXT("1000", dataset_info(dataset)->class_names[1000]);
    snprintf(first, sizeof first, "%s", dataset_fingerprint(dataset));
    dataset_close(dataset);
    write_labels(folder, "y_train.npy", (const int[]){ 1000, 0, 300 + 256 }, 3);
    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    CHECK(strcmp(first, dataset_fingerprint(dataset)) != 0);
    dataset_close(dataset);
}

/* An import is planes, and is the same data set. */
static void test_import_makes_planes(void)
{
    static const struct shape SHAPE = { 4, { 3, 5, 4, 3 } };
    static uint8_t bytes[MOST];
    const char *folder = make_folder("mine", &SHAPE, bytes);
    char root[2048];
    struct dataset *a, *b;
    struct npy npy;

    snprintf(root, sizeof root, "%s/root", test_folder());
    setenv("TUTTI_DATA", root, 1);
    CHECK_OK(dataset_import(folder, "mine", NULL));
    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &a));
    CHECK_OK(dataset_open("mine", DATASET_TRAIN, &b));
    CHECK_TEXT(dataset_fingerprint(a), dataset_fingerprint(b));
    CHECK(memcmp(dataset_pixels(a, 0), dataset_pixels(b, 0), 180) == 0);
    dataset_close(a);
    dataset_close(b);
    CHECK_OK(npy_open(data_testing_path(root, "mine"), "x_train.npy", &npy));
    CHECK(shape_equal(&npy.shape, &(struct shape){ 4, { 3, 3, 5, 4 } }));
    CHECK_INT(0, (npy.data - npy.map.data) % 64);
    npy_release(&npy);
}

/* The same data set in two formats has one fingerprint. */
static void test_formats_agree(void)
{
    static uint8_t bytes[MOST];
    struct data_testing_set set = {
        .train = 10, .test = 4, .rows = 6, .columns = 5, .classes = 3
    };
    const struct shape shape = { 3, { 10, 6, 5 } };
    char idx[2048], arrays[2048];
    struct dataset *a, *b;
    struct rng rng;
    int labels[10];

    rng_init(&rng, 6, 0);
    snprintf(idx, sizeof idx, "%s/idx/set", test_folder());
    snprintf(arrays, sizeof arrays, "%s/npy/set", test_folder());
    data_testing_make(&rng, idx, &set);
    CHECK_OK(dataset_open(idx, DATASET_TRAIN, &a));
    memcpy(bytes, dataset_pixels(a, 0), 300);
    write_array(NULL, arrays, "x_train.npy", "|u1", &shape, bytes, 300);
    for (int i = 0; i < 10; i++)
        labels[i] = dataset_label(a, i);
    write_labels(arrays, "y_train.npy", labels, 10);
    CHECK_OK(dataset_open(arrays, DATASET_TRAIN, &b));
    CHECK_TEXT(dataset_fingerprint(a), dataset_fingerprint(b));
    dataset_close(a);
    dataset_close(b);
}

static void test_opening_survives_lack_of_memory(void)
{
    static const struct shape SHAPE = { 4, { 3, 5, 4, 3 } };
    static uint8_t bytes[MOST];
    const char *folder = make_folder("mine", &SHAPE, bytes);
    struct dataset *dataset;
    enum status status = STATUS_NO_MEMORY;

    data_testing_write(folder, "classes.txt", (const uint8_t *)"a\nb\nc\nd\ne\nf", 11);
    for (uint64_t nth = 1; status != STATUS_OK; nth++) {
        CHECK(nth < 100);
        mem_fail_at(nth);
        status = dataset_open(folder, DATASET_TRAIN, &dataset);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
    }
    dataset_close(dataset);
}

const struct test tests[] = {
    { .name = "headers are read", .run = test_headers_are_read },
    { .name = "wrong headers are refused", .run = test_wrong_headers_are_refused },
    { .name = "integers of all types are read",
      .property = test_integers_of_all_types_are_read },
    { .name = "channels are found", .run = test_channels_are_found },
    { .name = "a layout may be given", .run = test_a_layout_may_be_given },
    { .name = "a layout is imported", .run = test_a_layout_is_imported },
    { .name = "wrong arrays are refused", .run = test_wrong_arrays_are_refused },
    { .name = "classes have names", .run = test_classes_have_names },
    { .name = "labels may be large", .run = test_labels_may_be_large },
    { .name = "import makes planes", .run = test_import_makes_planes },
    { .name = "formats agree", .run = test_formats_agree },
    { .name = "opening survives lack of memory", .run = test_opening_survives_lack_of_memory },
    { 0 },
};
