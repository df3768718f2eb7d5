/* SPDX-License-Identifier: MIT */
/* tabular_test.c - tables become the features that their schema says; folds share out rows; sums add up. */
#include "data/tabular.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"

static const char *write_table(const char *name, const char *text)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    CHECK_OK(file_replace(path, text, strlen(text)));
    return path;
}

static void read_row(const struct tabular *table, int64_t index, float *x, int32_t *y)
{
    const struct source *source = tabular_as_source(table);
    const int64_t length[SOURCE_SEQUENCES] = { 0 };

    source_read(source, NULL, &index, 1, length, x, NULL, y);
}

static const char *const small =
    "age,kind,id,sick\n"
    "40,b,x1,no\n60,a,x2,yes\n?,b,x3,yes\n50,?,x4,no\n"
    "40,b,x5,no\n60,a,x6,yes\n40,b,x7,yes\n50,a,x8,no\n60,b,x9,no\n40,a,x10,yes\n";

static void test_a_schema_is_found(void)
{
    const struct tabular_config config = { .skip = "id" };
    struct tabular *table;
    char name[160];
    float x[4];
    int32_t y;

    CHECK_OK(tabular_open(write_table("t.csv", small), DATASET_TRAIN, &config, &table));
    const struct schema *schema = tabular_schema(table);
    CHECK_INT(4, schema_features(schema));
    CHECK_TEXT("age", schema_feature_name(schema, 0, name));
    CHECK_TEXT("age missing", schema_feature_name(schema, 1, name));
    CHECK_TEXT("kind=a", schema_feature_name(schema, 2, name));
    CHECK_TEXT("kind=b", schema_feature_name(schema, 3, name));
    CHECK_INT(2, schema_classes(schema));
    CHECK_TEXT("no", schema_class_names(schema)[0]);
    CHECK_INT(8, source_count(tabular_as_source(table)));
    for (int64_t i = 0; i < 8; i++) {
        read_row(table, i, x, &y);
        CHECK(x[1] == 0 || (x[1] == 1 && x[0] == 0));
        CHECK(x[2] + x[3] <= 1);
    }
    tabular_close(table);
}

/* Mean 0 and deviation 1 over the rows that statistics are of; what is missing is 0. */
static void test_standardized_columns_have_mean_0_and_deviation_1(void)
{
    const struct tabular_config config = { .skip = "id" };
    struct tabular *table;
    double sum = 0, squares = 0, there = 0;
    double statistics[32];
    float x[4];
    int32_t y;

    CHECK_OK(tabular_open(write_table("t.csv", small), DATASET_TRAIN, &config, &table));
    CHECK(schema_statistics(tabular_schema(table)) == 1 + 3 + 2);
    tabular_statistics(table, NULL, 0, statistics);
    CHECK_CLOSE(8, statistics[0], 0);
    tabular_standardize(table, statistics);
    for (int64_t i = 0; i < 8; i++) {
        read_row(table, i, x, &y);
        if (x[1] == 1)
            continue;
        sum += (double)x[0];
        squares += (double)x[0] * (double)x[0];
        there++;
    }
    CHECK_CLOSE(0, sum / there, 1e-6);
    CHECK_CLOSE(1, squares / there, 1e-5);
    tabular_close(table);
}

/* Those of parts add up to those of the whole, and scale alike. */
static void test_statistics_of_parts_add_up(struct rng *rng)
{
    const struct tabular_config config = { .skip = "id" };
    int64_t part[2][8], n[2] = { 0, 0 };
    double whole[8], sums[2][8];
    float x[4], z[4];
    struct tabular *table;
    int32_t y;

    CHECK_OK(tabular_open(write_table("t.csv", small), DATASET_TRAIN, &config, &table));
    for (int64_t i = 0; i < 8; i++) {
        const int to = (int)rng_below(rng, 2);
        part[to][n[to]++] = i;
    }
    const int64_t count = schema_statistics(tabular_schema(table));
    tabular_statistics(table, NULL, 0, whole);
    for (int i = 0; i < 2; i++)
        tabular_statistics(table, part[i], n[i], sums[i]);
    for (int64_t i = 0; i < count; i++) {
        sums[0][i] += sums[1][i];
        CHECK_CLOSE(whole[i], sums[0][i], 1e-6);
    }
    tabular_standardize(table, whole);
    read_row(table, 0, x, &y);
    tabular_standardize(table, sums[0]);
    read_row(table, 0, z, &y);
    CHECK_CLOSE(x[0], z[0], 1e-5);
    tabular_close(table);
}

enum { ROWS = 18 }; /* of 24, those to train on */

/* Reads the features of rows of one number and one label, standardized by their own statistics. */
static void read_numbers(bool is_libsvm, long long first, float x[ROWS], char fingerprint[65])
{
    const struct tabular_config config = { 0 };
    struct tabular *table;
    double statistics[4];
    struct strbuf text;
    int32_t y;

    strbuf_init(&text, 1 << 16);
    for (int i = 0; i < 24; i++) {
        const char *label = i % 2 ? "+1" : "-1";
        if (is_libsvm)
            strbuf_printf(&text, "%s 1:%lld\n", label, first + i * i % 17);
        else
            strbuf_printf(&text, "%lld,%s\n", first + i * i % 17, label);
    }
    CHECK_OK(tabular_open(write_table(is_libsvm ? "t.svm" : "t.csv", text.text), DATASET_TRAIN,
                          &config, &table));
    tabular_statistics(table, NULL, 0, statistics);
    tabular_standardize(table, statistics);
    CHECK_INT(ROWS, source_count(tabular_as_source(table)));
    for (int64_t i = 0; i < ROWS; i++)
        read_row(table, i, x + i, &y);
    snprintf(fingerprint, 65, "%s", tabular_as_source(table)->fingerprint);
    tabular_close(table);
    strbuf_release(&text);
}

/* A time in seconds has more digits than a float. */
static void test_a_constant_in_a_column_changes_nothing(void)
{
    char near[65], far[65], other[65];
    float x[ROWS], z[ROWS];

    read_numbers(false, 0, x, near);
    read_numbers(false, 1700000000, z, far);
    CHECK(memcmp(x, z, sizeof x) == 0);
    read_numbers(false, 1700000001, z, other);
    CHECK(strcmp(far, other) != 0); /* though as floats they are the same */
    /* Numbers of LIBSVM's files stay as they are, where floats can hold them. */
    read_numbers(true, 1700000000, z, far);
    CHECK(memcmp(x, z, sizeof x) == 0);
    read_numbers(true, 5, z, far);
    for (int i = 0; i < ROWS; i++)
        CHECK(z[i] >= 5 && z[i] == floorf(z[i]));
}

/* Fingerprints are in the checkpoints of runs. Those of older versions have the file's name in
 * them. */
static void test_fingerprints_stay(void)
{
    const struct tabular_config config = { .skip = "id" };
    struct tabular *table;

    CHECK_OK(tabular_open(write_table("t.csv", small), DATASET_TRAIN, &config, &table));
    CHECK_TEXT("c496df013cd8cf5b22c5e67a1077b09421a9ea7199a673c49be513f46c832960",
               tabular_as_source(table)->old_fingerprint);
    char own[65];
    snprintf(own, sizeof own, "%s", tabular_as_source(table)->fingerprint);
    tabular_close(table);
    CHECK_OK(tabular_open(write_table("other.csv", small), DATASET_TRAIN, &config, &table));
    CHECK_TEXT(own, tabular_as_source(table)->fingerprint);
    tabular_close(table);
}

/* A LIBSVM file leaves out the columns that are 0 in all of its rows. */
static void test_a_test_file_may_lack_columns(void)
{
    const struct tabular_config config = { 0 };
    struct tabular *table;
    char folder[512];
    float x[3];
    int32_t y;

    write_table("train.svm", "1 1:2 3:5\n-1 2:1\n");
    snprintf(folder, sizeof folder, "%s", write_table("test.svm", "-1 1:7\n1 2:3 4:9\n"));
    *strrchr(folder, '/') = '\0';
    CHECK_OK(tabular_open(folder, DATASET_TEST, &config, &table));
    CHECK_INT(3, schema_features(tabular_schema(table)));
    read_row(table, 0, x, &y);
    CHECK(x[0] == 7 && x[1] == 0 && x[2] == 0);
    tabular_close(table);
}

/* Numbers too long for a double are not the same because their doubles are. */
static void test_long_numbers_are_names_of_their_own(void)
{
    const struct tabular_config config = { .categories = "id" };
    struct tabular *table;

    CHECK_OK(tabular_open(write_table("t.csv", "id,y\n9007199254740992,a\n9007199254740993,a\n"
                                               "9007199254740992,b\n9007199254740993,b\n"),
                          DATASET_TRAIN, &config, &table));
    CHECK_INT(2, schema_features(tabular_schema(table)));
    tabular_close(table);
}

static void test_every_row_is_tested_in_one_fold(void)
{
    const char *path = write_table("t.csv", small);
    int64_t tested = 0;

    for (int fold = 0; fold < 3; fold++) {
        const struct tabular_config config = { .skip = "id", .fold = fold, .folds = 3 };
        struct tabular *train, *test;
        CHECK_OK(tabular_open(path, DATASET_TRAIN, &config, &train));
        CHECK_OK(tabular_open(path, DATASET_TEST, &config, &test));
        const int64_t n = source_count(tabular_as_source(test));
        CHECK_INT(10, n + source_count(tabular_as_source(train)));
        CHECK(n == 4 || n == 2);
        tested += n;
        tabular_close(train);
        tabular_close(test);
    }
    CHECK_INT(10, tested);
}

static void test_a_schema_goes_through_json(void)
{
    const struct tabular_config config = { .skip = "id", .categories = "age" };
    struct tabular *table;
    struct schema *copy;
    struct strbuf a, b;

    CHECK_OK(tabular_open(write_table("t.csv", small), DATASET_TRAIN, &config, &table));
    CHECK_OK(schema_copy(tabular_schema(table), &copy));
    strbuf_init(&a, 1 << 16);
    strbuf_init(&b, 1 << 16);
    schema_print(tabular_schema(table), &a);
    schema_print(copy, &b);
    CHECK_TEXT(a.text, b.text);
    CHECK_INT(3 + 2, schema_features(copy));
    schema_destroy(copy);
    strbuf_release(&a);
    strbuf_release(&b);
    tabular_close(table);
}

static void test_what_does_not_fit_is_named(void)
{
    static const struct {
        const char *text, *label, *skip, *why;
    } cases[] = {
        { "a,b\n1,2\n", NULL, NULL, "label column b has 1 classes" },
        { "a,b\n1,2\n2,3\n", "c", NULL, "--label c: no column" },
        { "a,b\n1,2\n2,3\n", "3", NULL, "number from 1 to 2" },
        { "a,b\n1,2\n2,3\n", NULL, "b", "something else already" },
        { "a,b\n1,2\n2,3\n", NULL, "a", "0 features" },
        { "a\n1\n2\n", NULL, NULL, "one column is no table" },
        { "a,b\n1,1.5\n2,2.5\n1,3\n", NULL, NULL,
          "label column b has 3 different numbers in 3 rows, and tutti classifies" },
        { "a,b\n1,1\n2,2\n3,3\n4,4\n5,5\n6,6\n7,7\n8,8\n9,9\n1,9\n", NULL, NULL,
          "label column b has 9 different numbers in 10 rows" },
        { "a,b\n", NULL, NULL, "has no rows below its first line" },
        { "a,b\n1,x\n-inf,y\n", NULL, NULL, "t.csv:3: column a: \"-inf\" is out of range" },
        { "a,b\n1,x\n1e30,y\n", NULL, NULL, "t.csv:3: column a: \"1e30\" is out of range" },
        { "a,b\n1,x\n2,y\n1,z\n", NULL, NULL,
          "label column b has another value in each of 3 rows" },
        { "a;b\n1,5;x\n2;y\n", NULL, NULL, "t.csv:2: column a: \"1,5\" has a comma" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tabular_config config = { .label = cases[i].label, .skip = cases[i].skip };
        struct tabular *table;
        CHECK_STATUS(STATUS_USAGE, tabular_open(write_table("t.csv", cases[i].text),
                                                DATASET_TRAIN, &config, &table));
        CHECK_MESSAGE(cases[i].why);
    }
}

/* A file that another's schema is asked of. */
static void test_rows_that_the_schema_does_not_know_are_named(void)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "age,kind,sick\nx,a,no\n", "t.csv:2: column age: \"x\" is no number" },
        { "age,kind,sick\n1,a,no\n1,c,no\n", "t.csv:3: column kind: \"c\" is none of its 2" },
        { "age,kind,sick\n1,a,maybe\n", "column sick: \"maybe\" is no class" },
        { "age,sick\n1,no\n", "has no column kind" },
        { "1,a,no\n", "has 3 columns and does not name them; 4 are expected" },
    };
    const struct tabular_config found = { .skip = "id" };
    struct tabular *table, *other;

    CHECK_OK(tabular_open(write_table("s.csv", small), DATASET_TRAIN, &found, &table));
    const struct tabular_config config = { .schema = tabular_schema(table) };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK(tabular_open(write_table("t.csv", cases[i].text), DATASET_TRAIN, &config,
                           &other) != STATUS_OK);
        CHECK_MESSAGE(cases[i].why);
    }
    tabular_close(table);
}

static void test_known_schemas_are_as_the_table_says(void)
{
    for (int i = 0; dataset_table[i]; i++) {
        const struct dataset_info *row = dataset_table[i];
        struct schema *schema;
        const enum status status =
            row->table ? tabular_known_schema(row->name, &schema) : STATUS_NOT_FOUND;
        if (status == STATUS_NOT_FOUND)
            continue; /* images, text, or a table that tells its columns itself */
        CHECK_OK(status);
        CHECK_INT(row->sample.dim[0], schema_features(schema));
        CHECK_INT(row->classes, schema_classes(schema));
        for (int c = 0; c < row->classes; c++)
            CHECK_TEXT(row->class_names[c], schema_class_names(schema)[c]);
        schema_destroy(schema);
    }
}

static void check_real(const char *name, int64_t train, int64_t test, int64_t features)
{
    const struct tabular_config config = { 0 };
    struct tabular *table;

    CHECK_OK(tabular_open(name, DATASET_TRAIN, &config, &table));
    CHECK_INT(train, source_count(tabular_as_source(table)));
    CHECK_INT(features, tabular_as_source(table)->sample.dim[0]);
    tabular_close(table);
    CHECK_OK(tabular_open(name, DATASET_TEST, &config, &table));
    CHECK_INT(test, source_count(tabular_as_source(table)));
    tabular_close(table);
}

static void test_real_tables_are_read(void)
{
    if (!test_data("heart-disease") || !test_data("breast-cancer-wisconsin") ||
        !test_data("a9a"))
        test_skip("the tables are not here");
    check_real("heart-disease", 733, 187, 32);
    check_real("heart-disease/cleveland", 242, 61, 32);
    check_real("breast-cancer-wisconsin", 454, 115, 30);
    check_real("a9a", 32561, 16281, 123);
}

/* The test rows of the whole are those of its parts. */
static void test_parts_are_the_whole(void)
{
    static const char *const parts[] = { "cleveland", "hungarian", "switzerland", "va" };
    const struct tabular_config config = { .fold = 2, .folds = 5 };
    struct tabular *whole, *part;
    int64_t at = 0;

    if (!test_data("heart-disease"))
        test_skip("heart-disease is not here");
    CHECK_OK(tabular_open("heart-disease", DATASET_TEST, &config, &whole));
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "heart-disease/%s", parts[i]);
        CHECK_OK(tabular_open(name, DATASET_TEST, &config, &part));
        for (int64_t r = 0; r < source_count(tabular_as_source(part)); r++, at++) {
            float a[32], b[32];
            int32_t x, y;
            read_row(part, r, a, &x);
            read_row(whole, at, b, &y);
            CHECK(x == y && memcmp(a, b, sizeof a) == 0);
        }
        tabular_close(part);
    }
    CHECK_INT(at, source_count(tabular_as_source(whole)));
    tabular_close(whole);
}

const struct test tests[] = {
    { .name = "a schema is found", .run = test_a_schema_is_found },
    { .name = "standardized columns have mean 0 and deviation 1",
      .run = test_standardized_columns_have_mean_0_and_deviation_1 },
    { .name = "statistics of parts add up", .property = test_statistics_of_parts_add_up },
    { .name = "a constant in a column changes nothing",
      .run = test_a_constant_in_a_column_changes_nothing },
    { .name = "fingerprints stay", .run = test_fingerprints_stay },
    { .name = "a test file may lack columns", .run = test_a_test_file_may_lack_columns },
    { .name = "long numbers are names of their own",
      .run = test_long_numbers_are_names_of_their_own },
    { .name = "every row is tested in one fold", .run = test_every_row_is_tested_in_one_fold },
    { .name = "a schema goes through JSON", .run = test_a_schema_goes_through_json },
    { .name = "what does not fit is named", .run = test_what_does_not_fit_is_named },
    { .name = "rows that the schema does not know are named",
      .run = test_rows_that_the_schema_does_not_know_are_named },
    { .name = "known schemas are as the table says",
      .run = test_known_schemas_are_as_the_table_says },
    { .name = "real tables are read", .run = test_real_tables_are_read },
    { .name = "parts are the whole", .run = test_parts_are_the_whole },
    { 0 },
};
