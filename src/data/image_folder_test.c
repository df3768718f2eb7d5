/* SPDX-License-Identifier: MIT */
/* image_folder_test.c - folders of images: classes, order, and what does not belong. */
#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"
#include "data/dataset.h"
#include "data/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH = 4, HEIGHT = 3, PIXELS = WIDTH * HEIGHT };

static char folder[2048];

static void begin(const char *name)
{
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
}

/* Writes folder/path, all of whose pixels have value `shade` (and 255 - shade as blue). */
static void add_sized(const char *path, int shade, int width, int channels)
{
    uint8_t value[64];
    const struct data_testing_image image = {
        .width = width, .height = HEIGHT, .channels = channels, .value = value
    };
    const char *name = strrchr(path, '/') + 1;
    char parent[2200];

    for (int i = 0; i < (int)sizeof value; i++)
        value[i] = (uint8_t)(channels == 3 && i % 3 == 2 ? 255 - shade : shade);
    struct data_testing_file file =
        strstr(path, ".j") ? data_testing_jpeg(&image) : data_testing_png(&image);
    snprintf(parent, sizeof parent, "%s/%.*s", folder, (int)(name - path - 1), path);
    data_testing_write(parent, name, file.bytes, file.length);
    mem_free(file.bytes);
}

static void add(const char *path, int shade)
{
    add_sized(path, shade, WIDTH, 3);
}

static void add_bytes(const char *path, const char *bytes)
{
    CHECK_OK(file_replace(data_testing_path(folder, path), bytes, strlen(bytes)));
}

static void make_usual(void)
{
    begin("mine");
    add("train/dog/2.png", 12);
    add("train/dog/1.png", 11);
    add("train/dog/3.png", 13);
    add("train/cat/b.PNG", 2);
    add("train/cat/a.png", 1);
    add("train/Zebra/z.png", 20);
    add("test/dog/x.png", 15);
    add("test/Zebra/y.png", 25);
}

static struct dataset *open_split(enum dataset_split split)
{
    struct dataset *dataset;

    CHECK_OK(dataset_open(folder, split, &dataset));
    return dataset;
}

static void test_folders_are_classes(void)
{
    static const int LABELS[] = { 0, 1, 2, 1, 2, 2 }, SHADES[] = { 20, 1, 11, 2, 12, 13 };
    static const struct shape SHAPE = { 3, { 3, HEIGHT, WIDTH } };

    make_usual();
    struct dataset *dataset = open_split(DATASET_TRAIN);
    const struct shape sample = dataset_sample(dataset);
    const struct dataset_info *info = dataset_info(dataset);
    CHECK_TEXT("images", dataset_format(dataset));
    CHECK(shape_equal(&SHAPE, &sample));
    CHECK_INT(3, dataset_classes(dataset));
    CHECK_TEXT("Zebra", info->class_names[0]); /* as bytes: capitals first */
    CHECK_TEXT("cat", info->class_names[1]);
    CHECK_TEXT("dog", info->class_names[2]);
    CHECK_INT(6, dataset_count(dataset));
    CHECK_INT(2, info->test_count);
    for (int i = 0; i < 6; i++) { /* round the classes */
        const uint8_t *pixels = dataset_pixels(dataset, i);
        CHECK_INT(LABELS[i], dataset_label(dataset, i));
        for (int p = 0; p < PIXELS; p++) {
            CHECK_INT(SHADES[i], pixels[p]);
            CHECK_INT(SHADES[i], pixels[PIXELS + p]);
            CHECK_INT(255 - SHADES[i], pixels[2 * PIXELS + p]);
        }
    }
    dataset_close(dataset);

    dataset = open_split(DATASET_TEST);
    CHECK_INT(2, dataset_count(dataset));
    CHECK_INT(0, dataset_label(dataset, 0));
    CHECK_INT(25, dataset_pixels(dataset, 0)[0]);
    CHECK_INT(2, dataset_label(dataset, 1));
    dataset_close(dataset);
}

static void test_grey_and_colour(void)
{
    begin("mine");
    add_sized("train/a/1.png", 30, WIDTH, 1);
    add_sized("train/a/2.jpg", 40, WIDTH, 1);
    add_sized("val/a/3.png", 50, WIDTH, 1); /* val is as good as test */
    struct dataset *dataset = open_split(DATASET_TRAIN);
    CHECK_INT(1, dataset_sample(dataset).dim[0]);
    CHECK_INT(30, dataset_pixels(dataset, 0)[PIXELS - 1]);
    CHECK_INT(40, dataset_pixels(dataset, 1)[0]);
    dataset_close(dataset);
    dataset = open_split(DATASET_TEST);
    CHECK_INT(50, dataset_pixels(dataset, 0)[0]);
    dataset_close(dataset);

    add("train/a/0.png", 60); /* now the first is in colour */
    dataset = open_split(DATASET_TRAIN);
    CHECK_INT(3, dataset_sample(dataset).dim[0]);
    CHECK_INT(30, dataset_pixels(dataset, 1)[3 * PIXELS - 1]);
    dataset_close(dataset);
}

static void check_refused(enum dataset_split split, enum status expected, const char *part)
{
    struct dataset *dataset;

    CHECK_STATUS(expected, dataset_open(folder, split, &dataset));
    CHECK_MESSAGE(folder);
    CHECK_MESSAGE(part);
}

static void test_what_does_not_belong_is_refused(void)
{
    make_usual();
    add_sized("train/dog/4.png", 1, WIDTH + 1, 3);
    check_refused(DATASET_TRAIN, STATUS_MISMATCH,
                  "/train/dog/4.png: has 5x3 pixels where 4x3 are expected, as in ");
    CHECK_MESSAGE("/train/Zebra/z.png");
    make_usual();
    add_bytes("train/dog/4.png", "no image");
    check_refused(DATASET_TRAIN, STATUS_CORRUPT, "4.png: is neither a PNG nor a JPEG");
    CHECK_OK(file_remove_tree(data_testing_path(folder, "train/dog/4.png")));

    add_bytes("train/dog/notes.txt", "x");
    check_refused(DATASET_TRAIN, STATUS_UNSUPPORTED, "notes.txt: is neither .png nor .jpg");
    CHECK_OK(file_remove_tree(data_testing_path(folder, "train/dog/notes.txt")));
    add_bytes("train/labels.csv", "x");
    check_refused(DATASET_TRAIN, STATUS_CORRUPT, "train/labels.csv: is no folder");
    CHECK_OK(file_remove_tree(data_testing_path(folder, "train/labels.csv")));
    add_bytes("train/dog/.hidden", "x"); /* fine */
    CHECK_OK(file_make_folder(data_testing_path(folder, "train/empty")));
    check_refused(DATASET_TRAIN, STATUS_CORRUPT, "train/empty: holds no images");
    CHECK_OK(file_remove_tree(data_testing_path(folder, "train/empty")));
    add("test/cow/1.png", 1);
    check_refused(DATASET_TEST, STATUS_MISMATCH, "test/cow: is no class");
    CHECK_OK(file_remove_tree(data_testing_path(folder, "test")));
    check_refused(DATASET_TEST, STATUS_NOT_FOUND, "neither test nor val is there");
    dataset_close(open_split(DATASET_TRAIN));

    begin("bare");
    CHECK_OK(file_make_folder(data_testing_path(folder, "train")));
    check_refused(DATASET_TRAIN, STATUS_CORRUPT, "train: holds 0 classes");
}

static void test_a_row_wants_its_classes(void)
{
    begin("chests");
    add_sized("train/normal/1.png", 1, WIDTH, 1);
    data_testing_call(folder, "pneumoniamnist");
    check_refused(DATASET_TRAIN, STATUS_MISMATCH, "holds 1 classes where pneumoniamnist has 2");
    add_sized("train/other/1.png", 1, WIDTH, 1);
    check_refused(DATASET_TRAIN, STATUS_MISMATCH,
                  "class 1 is other where pneumoniamnist has pneumonia");
    CHECK_OK(file_remove_tree(data_testing_path(folder, "train/other")));
    add_sized("train/pneumonia/1.png", 1, WIDTH, 1);
    check_refused(DATASET_TRAIN, STATUS_MISMATCH,
                  "1.png: its images are 1x3x4 where pneumoniamnist has 1x28x28");
}

/* With several threads, each image is at its place and the first bad one is told. */
static void test_many_images_are_decoded_together(void)
{
    enum { COUNT = 600, SHADES = 7, BAD = 300, N_BAD = 20 };
    char path[64], first[2200], more[2200];

    begin("many");
    for (int i = 0; i < COUNT; i++) { /* links: syncing each file takes its time */
        snprintf(path, sizeof path, "train/a/%04d.png", i);
        snprintf(more, sizeof more, "%s/%s", folder, path);
        snprintf(first, sizeof first, "%s/train/a/%04d.png", folder, i % SHADES);
        if (i < SHADES)
            add(path, i);
        else
            CHECK(link(first, more) == 0);
    }
    add("test/a/1.png", 0);
    struct dataset *dataset = open_split(DATASET_TRAIN);
    CHECK_INT(COUNT, dataset_count(dataset));
    for (int i = 0; i < COUNT; i++)
        CHECK_INT(i % SHADES, dataset_pixels(dataset, i)[0]);
    dataset_close(dataset);

    for (int i = BAD; i < BAD + N_BAD; i++) { /* two threads fail at the same time */
        snprintf(path, sizeof path, "train/a/%04d.png", i);
        add_bytes(path, "damaged");
    }
    for (int i = 0; i < 100; i++)
        check_refused(DATASET_TRAIN, STATUS_CORRUPT, "/train/a/0300.png: is neither");
}

static void test_import_makes_arrays(void)
{
    char root[2000], from[65];

    make_usual();
    snprintf(root, sizeof root, "%s/root", test_folder());
    setenv("TUTTI_DATA", root, 1);
    CHECK_OK(dataset_import(folder, "mine", NULL));
    CHECK(file_exists(data_testing_path(root, "mine/x_train.npy")));
    struct dataset *dataset = open_split(DATASET_TRAIN);
    snprintf(from, sizeof from, "%s", dataset_fingerprint(dataset));
    dataset_close(dataset);
    snprintf(folder, sizeof folder, "%s/mine", root);
    dataset = open_split(DATASET_TRAIN);
    CHECK_TEXT("numpy", dataset_format(dataset));
    CHECK_TEXT(from, dataset_fingerprint(dataset));
    CHECK_TEXT("dog", dataset_info(dataset)->class_names[2]);
    CHECK_INT(13, dataset_pixels(dataset, 5)[0]);
    dataset_close(dataset);
}

static void test_opening_survives_lack_of_memory(void)
{
    struct dataset *dataset;
    enum status status = STATUS_NO_MEMORY;

    make_usual();
    for (uint64_t nth = 1; status != STATUS_OK; nth++) {
        CHECK(nth < 1000);
        mem_fail_at(nth);
        status = dataset_open(folder, DATASET_TRAIN, &dataset);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
    }
    dataset_close(dataset);
}

/* A name before all files' names, and test for t10k, as MedMNIST has it. */
static void test_prefixed_idx_files_are_found(void)
{
    static const struct data_testing_set SET = {
        .train = 5, .test = 3, .rows = 2, .columns = 2, .classes = 2
    };
    static const char *const RENAMED[][2] = {
        { "train-images-idx3-ubyte", "own-train-images-idx3-ubyte" },
        { "train-labels-idx1-ubyte", "own-train-labels-idx1-ubyte" },
        { "t10k-images-idx3-ubyte", "own-test-images-idx3-ubyte" },
        { "t10k-labels-idx1-ubyte", "own-test-labels-idx1-ubyte" },
    };
    struct rng rng;

    begin("set");
    rng_init(&rng, 1, 0);
    data_testing_make(&rng, folder, &SET);
    for (int i = 0; i < 4; i++) {
        char from[2200], to[2200];
        snprintf(from, sizeof from, "%s/%s", folder, RENAMED[i][0]);
        snprintf(to, sizeof to, "%s/%s", folder, RENAMED[i][1]);
        CHECK(rename(from, to) == 0);
    }
    add_bytes("own-val-labels-idx1-ubyte", "not looked at");
    struct dataset *dataset = open_split(DATASET_TEST);
    CHECK_INT(3, dataset_count(dataset));
    CHECK_INT(5, dataset_info(dataset)->train_count);
    dataset_close(dataset);

    add_bytes("more-train-images-idx3-ubyte.gz", "x");
    check_refused(DATASET_TRAIN, STATUS_USAGE, "holds several data sets, such as ");
    CHECK_MESSAGE("own-...");
}

const struct test tests[] = {
    { .name = "folders are classes", .run = test_folders_are_classes },
    { .name = "grey and colour", .run = test_grey_and_colour },
    { .name = "what does not belong is refused", .run = test_what_does_not_belong_is_refused },
    { .name = "a row wants its classes", .run = test_a_row_wants_its_classes },
    { .name = "many images are decoded together",
      .run = test_many_images_are_decoded_together },
    { .name = "import makes arrays", .run = test_import_makes_arrays },
    { .name = "opening survives lack of memory", .run = test_opening_survives_lack_of_memory },
    { .name = "prefixed IDX files are found", .run = test_prefixed_idx_files_are_found },
    { 0 },
};
