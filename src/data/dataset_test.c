/* SPDX-License-Identifier: MIT */
/* dataset_test.c - opening, describing and reading data sets, the real one if it is there. */
#include "data/dataset.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"
#include "data/format.h"
#include "data/scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct data_testing_set SMALL = {
    .train = 30, .test = 7, .rows = 6, .columns = 5, .classes = 4
};

/* Makes a data set in a folder of this test and returns its path. */
static const char *make_set(const char *name, const struct data_testing_set *set, uint64_t seed)
{
    static char folder[2048];
    struct rng rng;

    rng_init(&rng, seed, 0);
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    data_testing_make(&rng, folder, set);
    return folder;
}

static void test_a_folder_describes_itself(void)
{
    const char *folder = make_set("mine", &SMALL, 1);
    struct dataset *dataset;

    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    const struct dataset_info *info = dataset_info(dataset);
    const struct shape sample = dataset_sample(dataset), expected = { 3, { 1, 6, 5 } };
    CHECK_TEXT("mine", info->name);
    CHECK_TEXT("idx", info->format);
    CHECK_TEXT(folder, dataset_path(dataset));
    CHECK_INT(30, info->train_count);
    CHECK_INT(7, info->test_count);
    CHECK_INT(30, dataset_count(dataset));
    CHECK(shape_equal(&sample, &expected));
    CHECK_INT(4, dataset_classes(dataset)); /* the labels are random: all four occur */
    CHECK_TEXT("3", info->class_names[3]);
    CHECK_CLOSE(0.5, info->mean[0], 0);
    CHECK_CLOSE(0.5, info->deviation[0], 0);
    dataset_close(dataset);

    CHECK_OK(dataset_open(folder, DATASET_TEST, &dataset));
    CHECK_INT(7, dataset_count(dataset));
    CHECK_INT(4, dataset_classes(dataset)); /* seen in the other split if not here */
    dataset_close(dataset);
}

/* By its folder's name a data set is nothing; the file beside the data says what it is. */
static void test_dataset_json_says_which_row_it_is(void)
{
    const struct data_testing_set digits = {
        .train = 20, .test = 5, .rows = 28, .columns = 28, .classes = 10
    };
    char with_slash[2100], old[65];
    struct dataset *dataset;

    snprintf(with_slash, sizeof with_slash, "%s//", make_set("mnist", &digits, 2));
    CHECK_OK(dataset_open(with_slash, DATASET_TRAIN, &dataset));
    CHECK(dataset_find(dataset_info(dataset)->name) != dataset_info(dataset));
    CHECK_CLOSE(0.5, dataset_scale(dataset).mean[0], 0);
    snprintf(old, sizeof old, "%s", dataset_as_source(dataset)->old_fingerprint);
    CHECK(strcmp(old, dataset_fingerprint(dataset)) != 0);
    dataset_close(dataset);

    data_testing_call(with_slash, "mnist");
    CHECK_OK(dataset_open(with_slash, DATASET_TRAIN, &dataset));
    CHECK_TEXT(old, dataset_fingerprint(dataset));
    CHECK(dataset_info(dataset) == dataset_find("mnist"));
    CHECK_INT(20, dataset_count(dataset));

    float x[784];
    int32_t y;
    const uint8_t *pixels = dataset_pixels(dataset, 19);
    dataset_read(dataset, (const int64_t[]){ 19 }, 1, x, &y);
    for (int p = 0; p < 784; p++)
        CHECK(x[p] == (float)((pixels[p] * (1.0 / 255) - (double)0.1307f) / (double)0.3081f));
    dataset_close(dataset);
}

static void write_json(const char *folder, const char *text)
{
    data_testing_write(folder, "dataset.json", (const uint8_t *)text, strlen(text));
}

static void test_dataset_json_has_the_normalization(void)
{
    static const struct {
        const char *text, *part;
    } REFUSED[] = {
        { "{\"normalize\": \"imagenet\"}", "is for images of 3 channels, these have 1" },
        { "{\"normalize\": \"dataset\"}", "normalize: \"dataset\" is none of" },
        { "{\"normalize\": 1}", "name and normalize are texts" },
        { "{\"name\": \"mnits\"}", "name: \"mnits\" is no data set that is known" },
        { "{\"names\": []}", "member names: there is none of this name" },
        { "[]", "is no object" },
        { "{", "dataset.json: " },
    };
    const char *folder = make_set("mine", &SMALL, 1);
    struct dataset *dataset;

    write_json(folder, "{\"normalize\": \"mean:0.25/std:2\"}");
    CHECK_OK(dataset_open(folder, DATASET_TEST, &dataset));
    CHECK_CLOSE(0.25, dataset_scale(dataset).mean[0], 0);
    CHECK_CLOSE(2, dataset_scale(dataset).deviation[0], 0);
    CHECK_TEXT("mine", dataset_info(dataset)->name);
    dataset_close(dataset);
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        write_json(folder, REFUSED[i].text);
        CHECK(dataset_open(folder, DATASET_TEST, &dataset) != STATUS_OK);
        CHECK_MESSAGE("/dataset.json: ");
        CHECK_MESSAGE(REFUSED[i].part);
    }
}

static void test_the_normalization_can_be_measured(void)
{
    const char *folder = make_set("mine", &SMALL, 3);
    struct pixel_scale scale;
    struct dataset *dataset;
    double sum = 0, squares = 0;

    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    dataset_limit(dataset, 7);
    for (int64_t i = 0; i < 7; i++)
        for (int p = 0; p < 30; p++) {
            const double x = dataset_pixels(dataset, i)[p] / 255.0;
            sum += x;
            squares += x * x;
        }
    CHECK_OK(dataset_measure_scale(dataset, &scale));
    const double mean = sum / 210;
    CHECK_CLOSE(mean, scale.mean[0], 1e-6);
    CHECK_CLOSE(sqrt(squares / 210 - mean * mean), scale.deviation[0], 1e-6);
    dataset_close(dataset);
}

static void test_bytes_can_stay_as_they_are(void)
{
    const char *folder = make_set("mine", &SMALL, 3);
    struct pixel_scale scale;
    struct dataset *dataset;
    float x[30];
    int32_t y;

    CHECK_OK(scale_parse("none", 1, &scale));
    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    dataset_set_scale(dataset, &scale);
    for (int64_t i = 0; i < dataset_count(dataset); i++) {
        dataset_read(dataset, &i, 1, x, &y);
        for (int p = 0; p < 30; p++)
            CHECK(x[p] == (float)dataset_pixels(dataset, i)[p]);
    }
    dataset_close(dataset);
}

/* Labels, names and their number are the run's; the fingerprint stays that of the files. */
static void test_classes_can_be_those_of_a_run(void)
{
    static const char *const NAMES[] = { "0", "1", "2", "3", "10" };
    static const struct class_list RUN = { NAMES, 5 }, FEW = { NAMES, 3 };
    const char *folder = make_set("mine", &SMALL, 3);
    char fingerprint[65];
    struct dataset *dataset;

    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    const int classes = dataset_classes(dataset);
    const int32_t label = dataset_label(dataset, 4);
    snprintf(fingerprint, sizeof fingerprint, "%s", dataset_fingerprint(dataset));
    CHECK_STATUS(STATUS_MISMATCH, dataset_set_classes(dataset, &FEW));
    CHECK_INT(classes, dataset_classes(dataset));
    CHECK_OK(dataset_set_classes(dataset, &RUN));
    CHECK_INT(5, dataset_classes(dataset));
    CHECK_INT(label, dataset_label(dataset, 4));
    CHECK_TEXT("10", dataset_as_source(dataset)->info->class_names[4]);
    CHECK_TEXT(fingerprint, dataset_fingerprint(dataset));
    dataset_close(dataset);
}

static void test_reading_normalizes(void)
{
    const char *folder = make_set("mine", &SMALL, 3);
    const int64_t index[] = { 29, 0, 7, 7 };
    float x[4 * 30];
    int32_t y[4];
    struct dataset *dataset;

    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    dataset_read(dataset, index, 4, x, y);
    for (int i = 0; i < 4; i++) {
        const uint8_t *pixels = dataset_pixels(dataset, index[i]);
        CHECK_INT(dataset_label(dataset, index[i]), y[i]);
        for (int p = 0; p < 30; p++)
            CHECK(x[i * 30 + p] == (float)((pixels[p] * (1.0 / 255) - 0.5) / 0.5));
    }
    dataset_read(dataset, index, 0, x, y); /* nothing is allowed */
    dataset_close(dataset);
}

static void test_the_scale_can_be_another(void)
{
    const char *folder = make_set("mine", &SMALL, 3);
    float x[30];
    int32_t y;
    struct dataset *dataset;

    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    const uint8_t *pixels = dataset_pixels(dataset, 5);
    dataset_set_scale(dataset, &pixel_unit_scale);
    dataset_read(dataset, (const int64_t[]){ 5 }, 1, x, &y);
    for (int p = 0; p < 30; p++)
        CHECK(x[p] == (float)(pixels[p] * (1.0 / 255)));
    dataset_set_scale(dataset, NULL);
    dataset_read(dataset, (const int64_t[]){ 5 }, 1, x, &y);
    for (int p = 0; p < 30; p++)
        CHECK(x[p] == (float)((pixels[p] * (1.0 / 255) - 0.5) / 0.5));
    dataset_close(dataset);
}

/* Padding is black before normalization, what is cut out is 0 after it; labels stay. */
static void test_augmented_samples_are_the_draws(struct rng *rng)
{
    enum { COUNT = 8, HEIGHT = 6, WIDTH = 5, PLANE = HEIGHT * WIDTH };
    uint8_t scratch[PLANE];
    const struct source_how how = {
        .augment = { .crop = (int)rng_below(rng, 5),
                     .flip = rng_below(rng, 2),
                     .cutout = (int)rng_below(rng, 6) },
        .seed = rng_u64(rng),
        .epoch = (int64_t)rng_below(rng, 50),
        .scratch = scratch,
    };
    float x[COUNT * PLANE];
    int32_t y[COUNT];
    int64_t index[COUNT];
    struct dataset *dataset;

    CHECK_OK(dataset_open(make_set("mine", &SMALL, 3), DATASET_TRAIN, &dataset));
    const struct shape sample = dataset_sample(dataset);
    for (int i = 0; i < COUNT; i++)
        index[i] = (int64_t)rng_below(rng, 30);
    dataset_read_augmented(dataset, &how, index, COUNT, x, y);
    for (int i = 0; i < COUNT; i++) {
        const uint8_t *pixels = dataset_pixels(dataset, index[i]);
        const struct augment_draw draw =
            augment_draw(&how.augment, &sample, how.seed, how.epoch, index[i]);
        CHECK_INT(dataset_label(dataset, index[i]), y[i]);
        for (int p = 0; p < PLANE; p++) {
            const int64_t row = p / WIDTH, column = p % WIDTH;
            const int64_t from_row = row + draw.down;
            const int64_t from = (draw.flip ? WIDTH - 1 - column : column) + draw.right;
            const bool is_inside =
                from_row >= 0 && from_row < HEIGHT && from >= 0 && from < WIDTH;
            const int pixel = is_inside ? pixels[from_row * WIDTH + from] : 0;
            const bool is_cut = row >= draw.top && row < draw.bottom && column >= draw.left &&
                                column < draw.end;
            CHECK(x[i * PLANE + p] ==
                  (is_cut ? 0 : (float)((pixel * (1.0 / 255) - 0.5) / 0.5)));
        }
    }
    dataset_close(dataset);
}

static void test_plain_and_packed_are_the_same(void)
{
    struct data_testing_set packed = SMALL;
    struct dataset *a, *b;
    char plain_folder[2048];

    if (!data_testing_has_zlib())
        test_skip("built without zlib");
    packed.packed = true;
    snprintf(plain_folder, sizeof plain_folder, "%s", make_set("one/set", &SMALL, 4));
    CHECK_OK(dataset_open(plain_folder, DATASET_TRAIN, &a));
    CHECK_OK(dataset_open(make_set("two/set", &packed, 4), DATASET_TRAIN, &b));
    for (int64_t i = 0; i < 30; i++) {
        CHECK(memcmp(dataset_pixels(a, i), dataset_pixels(b, i), 30) == 0);
        CHECK_INT(dataset_label(a, i), dataset_label(b, i));
    }
    CHECK_TEXT(dataset_fingerprint(a), dataset_fingerprint(b));
    dataset_close(a);
    dataset_close(b);
}

static void keep_fingerprint(const struct dataset *dataset, char out[65])
{
    CHECK_INT(64, strlen(dataset_fingerprint(dataset)));
    snprintf(out, 65, "%s", dataset_fingerprint(dataset));
}

static void test_fingerprints_tell_data_sets_apart(void)
{
    char all[65], limited[65], again[65], test[65], other[65];
    struct dataset *dataset;

    CHECK_OK(dataset_open(make_set("a", &SMALL, 5), DATASET_TRAIN, &dataset));
    keep_fingerprint(dataset, all);
    dataset_limit(dataset, 10);
    CHECK_INT(10, dataset_count(dataset));
    keep_fingerprint(dataset, limited);
    dataset_limit(dataset, 1000); /* more than there are */
    CHECK_INT(30, dataset_count(dataset));
    keep_fingerprint(dataset, again);
    dataset_close(dataset);
    CHECK(strcmp(all, limited) != 0);
    CHECK_TEXT(all, again);

    CHECK_OK(dataset_open(make_set("a", &SMALL, 5), DATASET_TEST, &dataset));
    keep_fingerprint(dataset, test);
    dataset_close(dataset);
    CHECK(strcmp(all, test) != 0);

    const char *folder = make_set("a", &SMALL, 5);
    char *bytes;
    size_t length;
    CHECK_OK(
        file_read(data_testing_path(folder, "train-labels-idx1-ubyte"), 100, &bytes, &length));
    bytes[8 + 17] ^= 1; /* one label */
    data_testing_write(folder, "train-labels-idx1-ubyte", (const uint8_t *)bytes, length);
    mem_free(bytes);
    CHECK_OK(dataset_open(folder, DATASET_TRAIN, &dataset));
    keep_fingerprint(dataset, other);
    dataset_close(dataset);
    CHECK(strcmp(all, other) != 0);
}

static void check_refused(const char *folder, enum status expected, const char *part)
{
    struct dataset *dataset;

    CHECK_STATUS(expected, dataset_open(folder, DATASET_TRAIN, &dataset));
    CHECK_MESSAGE(part);
    CHECK_MESSAGE(folder);
}

static void test_files_that_disagree_are_refused(void)
{
    const struct data_testing_set digits = {
        .train = 20, .test = 5, .rows = 28, .columns = 28, .classes = 10
    };
    struct data_testing_set wrong = digits;
    struct rng rng;

    wrong.classes = 12;
    const char *called = make_set("called", &wrong, 7);
    data_testing_call(called, "mnist");
    check_refused(called, STATUS_CORRUPT, "is out of range: mnist has 10");
    wrong = digits;
    wrong.rows = 32;
    called = make_set("called", &wrong, 7);
    data_testing_call(called, "mnist");
    check_refused(called, STATUS_MISMATCH, "images are 1x32x28 where mnist has 1x28x28");

    const char *folder = make_set("mine", &SMALL, 8);
    rng_init(&rng, 9, 0);
    struct data_testing_file labels = data_testing_idx(&rng, IDX_LABELS, (int64_t[]){ 29 }, 4);
    data_testing_write(folder, "train-labels-idx1-ubyte", labels.bytes, labels.length);
    check_refused(folder, STATUS_MISMATCH,
                  "holds 30 images, but train-labels-idx1-ubyte holds "
                  "29 labels");
    mem_free(labels.bytes);

    CHECK_OK(file_remove_tree(data_testing_path(folder, "train-images-idx3-ubyte")));
    check_refused(folder, STATUS_NOT_FOUND, "train-images-idx3-ubyte.gz is there");
}

/* Whichever allocation fails, the status says so and nothing is lost. */
static void test_opening_survives_lack_of_memory(void)
{
    struct data_testing_set packed = SMALL;
    struct dataset *dataset;
    enum status status = STATUS_NO_MEMORY;

    packed.packed = data_testing_has_zlib();
    const char *folder = make_set("mine", &packed, 10);
    for (uint64_t nth = 1; status != STATUS_OK; nth++) {
        CHECK(nth < 100);
        mem_fail_at(nth);
        status = dataset_open(folder, DATASET_TRAIN, &dataset);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
    }
    dataset_close(dataset);
    dataset_close(NULL);
}

static bool is_text(const struct dataset_info *row)
{
    for (int i = 0; format_table[i]; i++)
        if (strcmp(format_table[i]->name, row->format) == 0)
            return format_table[i]->text != NULL;
    CHECK(false); /* a format that is not in the table */
    return false;
}

static void test_every_row_is_complete(void)
{
    for (int i = 0; dataset_table[i]; i++) {
        const struct dataset_info *row = dataset_table[i];
        CHECK(dataset_find(row->name) == row);
        CHECK(row->title && row->format);
        for (int c = 0; c < row->classes; c++)
            CHECK(row->class_names[c] != NULL);
        if (is_text(row))
            continue;
        CHECK(row->classes > 0);
        CHECK(row->train_count > 0 && row->test_count > 0);
        if (row->table) {
            CHECK_INT(1, row->sample.rank);
            continue;
        }
        CHECK_INT(3, row->sample.rank);
        CHECK(row->sample.dim[0] >= 1 && row->sample.dim[0] <= 3);
        for (int c = 0; c < row->sample.dim[0]; c++)
            CHECK(row->deviation[c] > 0);
    }
    CHECK(dataset_find("no such") == NULL);
}

static void check_real_split(enum dataset_split split, int64_t count, const int *labels)
{
    int64_t seen[10] = { 0 };
    int darkest = 255, brightest = 0;
    struct dataset *dataset;

    CHECK_OK(dataset_open("fashion-mnist", split, &dataset));
    CHECK_INT(count, dataset_count(dataset));
    for (int i = 0; i < 5; i++)
        CHECK_INT(labels[i], dataset_label(dataset, i));
    for (int64_t i = 0; i < count; i++)
        seen[dataset_label(dataset, i)]++;
    for (int c = 0; c < 10; c++)
        CHECK_INT(count / 10, seen[c]);
    for (int64_t i = 0; i < 100; i++) {
        const uint8_t *pixels = dataset_pixels(dataset, i);
        for (int p = 0; p < 784; p++) {
            darkest = pixels[p] < darkest ? pixels[p] : darkest;
            brightest = pixels[p] > brightest ? pixels[p] : brightest;
        }
    }
    CHECK_INT(0, darkest);
    CHECK_INT(255, brightest);
    dataset_close(dataset);
}

static void test_fashion_mnist_is_what_it_is(void)
{
    if (!test_data("fashion-mnist"))
        test_skip("no Fashion-MNIST here");
    if (!data_testing_has_zlib())
        test_skip("built without zlib");
    check_real_split(DATASET_TRAIN, 60000, (const int[]){ 9, 0, 0, 3, 0 });
    check_real_split(DATASET_TEST, 10000, (const int[]){ 9, 2, 1, 1, 6 });
}

/* The row's mean and deviation are those of the training pixels. */
static void test_fashion_mnist_is_normalized(void)
{
    enum { COUNT = 60000, AT_ONCE = 100 };
    static float x[AT_ONCE * 784];
    int32_t y[AT_ONCE];
    int64_t index[AT_ONCE];
    double sum = 0, squares = 0;
    struct dataset *dataset;

    if (!test_data("fashion-mnist"))
        test_skip("no Fashion-MNIST here");
    if (!data_testing_has_zlib())
        test_skip("built without zlib");
    CHECK_OK(dataset_open("fashion-mnist", DATASET_TRAIN, &dataset));
    for (int64_t at = 0; at < COUNT; at += AT_ONCE) {
        for (int64_t i = 0; i < AT_ONCE; i++)
            index[i] = at + i;
        dataset_read(dataset, index, AT_ONCE, x, y);
        for (int i = 0; i < AT_ONCE * 784; i++) {
            sum += (double)x[i];
            squares += (double)x[i] * (double)x[i];
        }
    }
    CHECK_CLOSE(0, sum / (COUNT * 784.0), 1e-3);
    CHECK_CLOSE(1, squares / (COUNT * 784.0), 1e-3);
    dataset_close(dataset);
}

const struct test tests[] = {
    { .name = "a folder describes itself", .run = test_a_folder_describes_itself },
    { .name = "dataset.json says which row it is",
      .run = test_dataset_json_says_which_row_it_is },
    { .name = "dataset.json has the normalization",
      .run = test_dataset_json_has_the_normalization },
    { .name = "the normalization can be measured",
      .run = test_the_normalization_can_be_measured },
    { .name = "bytes can stay as they are", .run = test_bytes_can_stay_as_they_are },
    { .name = "classes can be those of a run", .run = test_classes_can_be_those_of_a_run },
    { .name = "reading normalizes", .run = test_reading_normalizes },
    { .name = "the scale can be another", .run = test_the_scale_can_be_another },
    { .name = "augmented samples are the draws",
      .property = test_augmented_samples_are_the_draws },
    { .name = "plain and packed are the same", .run = test_plain_and_packed_are_the_same },
    { .name = "fingerprints tell data sets apart",
      .run = test_fingerprints_tell_data_sets_apart },
    { .name = "files that disagree are refused", .run = test_files_that_disagree_are_refused },
    { .name = "opening survives lack of memory", .run = test_opening_survives_lack_of_memory },
    { .name = "every row is complete", .run = test_every_row_is_complete },
    { .name = "Fashion-MNIST is what it is", .run = test_fashion_mnist_is_what_it_is },
    { .name = "Fashion-MNIST is normalized", .run = test_fashion_mnist_is_normalized },
    { 0 },
};
