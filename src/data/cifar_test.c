/* SPDX-License-Identifier: MIT */
/* cifar_test.c - CIFAR's records are used where they lie; damage is named with its place. */
#include "data/cifar.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"
#include "data/fetch.h"
#include "data/npy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIXELS = 3072, RECORD_10 = 1 + PIXELS, RECORD_100 = 2 + PIXELS, MOST = 8 };

static const char *const BATCHES[] = { "data_batch_1.bin", "data_batch_2.bin",
                                       "data_batch_3.bin", "data_batch_4.bin",
                                       "data_batch_5.bin", "test_batch.bin" };
static uint8_t bytes[MOST * RECORD_100];

/* `count` records with random pixels and labels below `classes`. */
static size_t fill(struct rng *rng, int n_labels, int count, int classes)
{
    uint8_t *at = bytes;

    for (int i = 0; i < count; i++) {
        if (n_labels == 2)
            *at++ = (uint8_t)rng_below(rng, 20);
        *at++ = (uint8_t)rng_below(rng, (uint64_t)classes);
        for (int p = 0; p < PIXELS; p++)
            *at++ = (uint8_t)rng_below(rng, 256);
    }
    return (size_t)(at - bytes);
}

/* A folder of CIFAR-10 with `count` records a file. */
static const char *make_folder(const char *name, int count)
{
    static char folder[2048];
    struct rng rng;

    rng_init(&rng, 1, 0);
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    for (int i = 0; i < 6; i++)
        data_testing_write(folder, BATCHES[i], bytes, fill(&rng, 1, count, 10));
    return folder;
}

static void test_records_are_used_where_they_lie(struct rng *rng)
{
    const int count = 1 + (int)rng_below(rng, MOST), n_labels = 1 + (int)rng_below(rng, 2);
    const int classes = n_labels == 1 ? 10 : 100;
    const size_t length = fill(rng, n_labels, count, classes), record = length / (size_t)count;
    struct format_part part;

    CHECK_OK(cifar_parse(n_labels == 1 ? &cifar_10 : &cifar_100, "x", bytes, length, classes,
                         &part));
    CHECK_INT(count, part.count);
    for (int i = 0; i < count; i++) {
        const uint8_t *at = bytes + (size_t)i * record;
        CHECK(part.pixels + (size_t)i * part.pixel_stride == at + n_labels);
        CHECK_INT(at[n_labels - 1], part.labels[(size_t)i * part.label_stride]);
    }
}

static void test_other_lengths_are_refused(struct rng *rng)
{
    const size_t whole = fill(rng, 1, 3, 10), length = rng_below(rng, whole + 2);
    struct format_part part;
    char place[64];

    if (length % RECORD_10 == 0 && length > 0)
        return;
    CHECK_STATUS(STATUS_CORRUPT, cifar_parse(&cifar_10, "x.bin", bytes, length, 10, &part));
    snprintf(place, sizeof place, "record %zu, from byte %zu,", length / RECORD_10,
             length / RECORD_10 * RECORD_10);
    CHECK_MESSAGE(length == 0 ? "x.bin: is empty" : place);
}

static void test_labels_out_of_range_are_named(void)
{
    struct format_part part;
    struct rng rng;

    rng_init(&rng, 2, 0);
    size_t length = fill(&rng, 1, 4, 10);
    bytes[2 * RECORD_10] = 10;
    CHECK_STATUS(STATUS_CORRUPT, cifar_parse(&cifar_10, "x", bytes, length, 10, &part));
    CHECK_MESSAGE("x: label 10 of record 2, byte 6146, is out of range: there are 10 classes");

    length = fill(&rng, 2, 4, 100);
    bytes[3 * RECORD_100 + 1] = 100;
    CHECK_STATUS(STATUS_CORRUPT, cifar_parse(&cifar_100, "x", bytes, length, 100, &part));
    CHECK_MESSAGE("label 100 of record 3, byte 9223,");
    bytes[RECORD_100] = 20;
    CHECK_STATUS(STATUS_CORRUPT, cifar_parse(&cifar_100, "x", bytes, length, 100, &part));
    CHECK_MESSAGE("superclass 20 of record 1, byte 3074,");
}

static void test_a_folder_is_opened(void)
{
    const char *folder = make_folder("mine", 3);
    static const char NAMES[] = "a\nb b\r\nc\nd\ne\nf\ng\nh\ni\nlast\n\n";
    struct dataset *dataset;
    struct file_map map;

    CHECK_OK(dataset_open(folder, DATASET_TEST, &dataset));
    CHECK_INT(3, dataset_count(dataset));
    CHECK_TEXT("9", dataset_info(dataset)->class_names[9]); /* no names: numbers */
    dataset_close(dataset);

    data_testing_write(folder, "batches.meta.txt", (const uint8_t *)NAMES, sizeof NAMES - 1);
    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    const struct shape sample = dataset_sample(dataset), expected = { 3, { 3, 32, 32 } };
    CHECK(shape_equal(&sample, &expected));
    CHECK_INT(15, dataset_count(dataset));
    CHECK_INT(3, dataset_info(dataset)->test_count);
    CHECK_INT(10, dataset_classes(dataset));
    CHECK_TEXT("cifar-10", dataset_format(dataset));
    CHECK_TEXT("b b", dataset_info(dataset)->class_names[1]);
    CHECK_TEXT("last", dataset_info(dataset)->class_names[9]);
    CHECK_OK(file_map(data_testing_path(folder, "data_batch_4.bin"), &map));
    CHECK_INT(map.data[RECORD_10], dataset_label(dataset, 10)); /* the fourth file's second */
    CHECK(memcmp(map.data + RECORD_10 + 1, dataset_pixels(dataset, 10), PIXELS) == 0);
    file_unmap(&map);
    dataset_close(dataset);
}

static void check_refused(const char *folder, enum status expected, const char *part)
{
    struct dataset *dataset;

    CHECK_STATUS(expected, dataset_open(folder, DATASET_TRAIN, &dataset));
    CHECK_MESSAGE(folder);
    CHECK_MESSAGE(part);
}

static void test_wrong_folders_are_refused(void)
{
    const char *folder = make_folder("mine", 2);

    data_testing_write(folder, "batches.meta.txt", (const uint8_t *)"a\nb\n", 4);
    check_refused(folder, STATUS_CORRUPT, "there are 2 classes");
    data_testing_write(folder, "batches.meta.txt", (const uint8_t *)"a\n\nb\n", 5);
    check_refused(folder, STATUS_CORRUPT, "batches.meta.txt: line 2 is no name");
    data_testing_write(folder, "batches.meta.txt", (const uint8_t *)" \n\n", 3);
    check_refused(folder, STATUS_CORRUPT, "batches.meta.txt: holds no names");
    CHECK_OK(file_remove_tree(data_testing_path(folder, "batches.meta.txt")));

    data_testing_write(folder, "data_batch_3.bin", bytes, RECORD_10 + 7);
    check_refused(folder, STATUS_CORRUPT,
                  "data_batch_3.bin: is cut short or no CIFAR-10 file: record 1, from byte "
                  "3073, has 7 of its 3073 bytes");
    CHECK_OK(file_remove_tree(data_testing_path(folder, "data_batch_3.bin")));
    check_refused(folder, STATUS_NOT_FOUND, "data_batch_3.bin");

    folder = make_folder("mine", 2);
    data_testing_call(folder, "cifar10");
    data_testing_write(folder, "batches.meta.txt", (const uint8_t *)"a\nb\n", 4);
    check_refused(folder, STATUS_MISMATCH, "holds 2 names where there are 10 classes");
    folder = make_folder("mine", 2);
    data_testing_call(folder, "mnist");
    check_refused(folder, STATUS_MISMATCH, "images are 3x32x32 where mnist has 1x28x28");
}

static void test_cifar_100_has_fine_labels(void)
{
    char folder[2048];
    struct dataset *dataset;
    struct rng rng;

    rng_init(&rng, 3, 0);
    snprintf(folder, sizeof folder, "%s/cifar-100-binary", test_folder());
    data_testing_write(folder, "test.bin", bytes, fill(&rng, 2, 2, 100));
    data_testing_write(folder, "train.bin", bytes, fill(&rng, 2, 5, 100));
    data_testing_call(folder, "cifar-100");
    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    CHECK(dataset_info(dataset) == dataset_find("cifar-100"));
    CHECK_INT(5, dataset_count(dataset));
    for (int64_t i = 0; i < 5; i++)
        CHECK_INT(bytes[i * RECORD_100 + 1], dataset_label(dataset, i));
    CHECK(memcmp(bytes + 4 * RECORD_100 + 2, dataset_pixels(dataset, 4), PIXELS) == 0);
    dataset_close(dataset);
}

/* Found under any of its names, and the same whatever its folder is called. */
static void test_other_names_are_the_same_data_set(void)
{
    static const char *const NAMES[] = { "cifar-10", "cifar10", "cifar-10-batches-bin" };
    char root[2048], first[65] = "";

    snprintf(root, sizeof root, "%s/data", test_folder());
    setenv("TUTTI_DATA", root, 1);
    setenv("HOME", root, 1);
    for (int folder = 0; folder < 3; folder++) {
        char below[64];
        snprintf(below, sizeof below, "data/%s", NAMES[folder]);
        make_folder(below, 1);
        for (int name = 0; name < 3; name++) {
            struct dataset *dataset;
            CHECK_OK(dataset_open(NAMES[name], DATASET_TRAIN, &dataset));
            CHECK(dataset_info(dataset) == dataset_find("cifar-10"));
            CHECK(strstr(dataset_path(dataset), NAMES[folder]) != NULL);
            if (!first[0])
                snprintf(first, sizeof first, "%s", dataset_fingerprint(dataset));
            CHECK_TEXT(first, dataset_fingerprint(dataset));
            dataset_close(dataset);
        }
        CHECK_OK(file_remove_tree(root));
    }
    struct dataset *dataset;
    CHECK_STATUS(STATUS_NOT_FOUND, dataset_open("cifar10", DATASET_TRAIN, &dataset));
    CHECK_MESSAGE("/cifar10, ");
    CHECK_MESSAGE("run: tutti data fetch cifar-10");
}

static void test_import_keeps_the_files(void)
{
    char root[2048];
    const char *folder = make_folder("mine", 2);
    struct dataset *dataset;

    snprintf(root, sizeof root, "%s/root", test_folder());
    setenv("TUTTI_DATA", root, 1);
    CHECK_OK(dataset_import(folder, "cifar-10", NULL));
    CHECK_OK(dataset_open("cifar10", DATASET_TEST, &dataset));
    CHECK_INT(2, dataset_count(dataset));
    dataset_close(dataset);

    data_testing_write(folder, "test_batch.bin", bytes, 17);
    CHECK_STATUS(STATUS_CORRUPT, dataset_import(folder, "other", NULL));
    CHECK_MESSAGE("test_batch.bin: is cut short");
    CHECK(!file_exists(data_testing_path(root, "other")));
}

static void write_array(const char *folder, const char *name, const struct shape *shape,
                        const uint8_t *data)
{
    struct file_writer writer;

    CHECK_OK(file_make_folder(folder));
    CHECK_OK(file_writer_begin(&writer, data_testing_path(folder, name)));
    CHECK_OK(npy_write_header(&writer, "|u1", shape));
    CHECK_OK(file_writer_add(&writer, data, (size_t)shape_count(shape)));
    CHECK_OK(file_writer_commit(&writer));
}

/* Five files or one array: the same data set. */
static void test_numpy_arrays_are_the_same(void)
{
    static const struct shape IMAGES = { 4, { 10, 3, 32, 32 } }, LABELS = { 1, { 10 } };
    const char *folder = make_folder("cifar-10", 2);
    static uint8_t images[10 * PIXELS];
    uint8_t labels[10];
    char arrays[2100];
    struct dataset *a, *b;

    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &a));
    for (int i = 0; i < 10; i++) {
        memcpy(images + i * PIXELS, dataset_pixels(a, i), PIXELS);
        labels[i] = (uint8_t)dataset_label(a, i);
    }
    snprintf(arrays, sizeof arrays, "%s/other/cifar10", test_folder());
    write_array(arrays, "x_train.npy", &IMAGES, images);
    write_array(arrays, "y_train.npy", &LABELS, labels);
    CHECK_OK(dataset_open(arrays, DATASET_TRAIN, &b));
    CHECK_TEXT(dataset_fingerprint(a), dataset_fingerprint(b));
    dataset_close(a);
    dataset_close(b);
}

static void test_opening_survives_lack_of_memory(void)
{
    const char *folder = make_folder("mine", 1);
    struct dataset *dataset;
    enum status status = STATUS_NO_MEMORY;

    data_testing_write(folder, "batches.meta.txt",
                       (const uint8_t *)"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n", 20);
    for (uint64_t nth = 1; status != STATUS_OK; nth++) {
        CHECK(nth < 100);
        mem_fail_at(nth);
        status = dataset_open(folder, DATASET_TRAIN, &dataset);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
    }
    dataset_close(dataset);
}

/* Labels as published, and the row's mean and deviation are those of the training pixels. */
static void test_cifar_10_is_what_it_is(void)
{
    static const int TRAIN[] = { 6, 9, 9, 4, 1 }, TEST[] = { 3, 8, 8, 0, 6 };
    double sum[3] = { 0 }, squares[3] = { 0 };
    struct dataset *dataset;

    if (!test_data("cifar10"))
        test_skip("no CIFAR-10 here");
    CHECK_OK(dataset_open("cifar10", DATASET_TEST, &dataset));
    CHECK_INT(10000, dataset_count(dataset));
    for (int i = 0; i < 5; i++)
        CHECK_INT(TEST[i], dataset_label(dataset, i));
    dataset_close(dataset);

    CHECK_OK(dataset_open("cifar10", DATASET_TRAIN, &dataset));
    CHECK_INT(50000, dataset_count(dataset));
    for (int i = 0; i < 5; i++)
        CHECK_INT(TRAIN[i], dataset_label(dataset, i));
    for (int64_t i = 0; i < 50000; i++)
        for (int c = 0; c < 3; c++) {
            const uint8_t *pixels = dataset_pixels(dataset, i) + c * 1024;
            int64_t s = 0, q = 0;
            for (int p = 0; p < 1024; p++) {
                s += pixels[p];
                q += (int64_t)pixels[p] * pixels[p];
            }
            sum[c] += (double)s;
            squares[c] += (double)q;
        }
    for (int c = 0; c < 3; c++) {
        const double n = 50000.0 * 1024, mean = sum[c] / n / 255;
        const double variance = squares[c] / n / 255 / 255 - mean * mean;
        const double deviation = (double)dataset_info(dataset)->deviation[c];
        CHECK_CLOSE(dataset_info(dataset)->mean[c], mean, 5e-5);
        CHECK_CLOSE(deviation * deviation, variance, 5e-5);
    }
    dataset_close(dataset);
}

const struct test tests[] = {
    { .name = "CIFAR-10 is what it is", .run = test_cifar_10_is_what_it_is },
    { .name = "records are used where they lie",
      .property = test_records_are_used_where_they_lie },
    { .name = "other lengths are refused", .property = test_other_lengths_are_refused },
    { .name = "labels out of range are named", .run = test_labels_out_of_range_are_named },
    { .name = "a folder is opened", .run = test_a_folder_is_opened },
    { .name = "wrong folders are refused", .run = test_wrong_folders_are_refused },
    { .name = "CIFAR-100 has fine labels", .run = test_cifar_100_has_fine_labels },
    { .name = "other names are the same data set",
      .run = test_other_names_are_the_same_data_set },
    { .name = "import keeps the files", .run = test_import_keeps_the_files },
    { .name = "NumPy arrays are the same", .run = test_numpy_arrays_are_the_same },
    { .name = "opening survives lack of memory", .run = test_opening_survives_lack_of_memory },
    { 0 },
};
