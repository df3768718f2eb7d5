/* SPDX-License-Identifier: MIT */
/* classes_test.c - counts of an evaluation as JSON: a matrix of few classes, cells of many. */
#include "train/classes.h"

#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/test.h"

enum { MOST_CLASSES = 65536, CELLS_A_CLASS = 4, CELLS_TOLD = 1 << 17 };

/* `count` classes, each of which is taken for itself `right` times and for the next ones once to three times. */
static void make(int count, int right, struct train_classes *out)
{
    *out = (struct train_classes){ .count = count, .quality = { .calibration_error = 0.5 } };
    CHECK_OK(mem_alloc((size_t)count * CELLS_A_CLASS, sizeof *out->cells, &out->cells));
    CHECK_OK(mem_alloc((size_t)count, sizeof *out->samples, &out->samples));
    CHECK_OK(mem_alloc((size_t)count, sizeof *out->right, &out->right));
    for (int c = 0; c < count; c++) {
        const int first = c + CELLS_A_CLASS <= count ? c : count - CELLS_A_CLASS;
        for (int k = 0; k < CELLS_A_CLASS; k++) {
            const struct train_cell cell = { c, first + k, first + k == c ? right : 1 + k % 3 };
            out->cells[out->n_cells++] = cell;
            out->samples[c] += cell.samples;
            out->right[c] += cell.answer == c ? cell.samples : 0;
        }
    }
}

static struct json *print(const struct train_classes *classes)
{
    struct strbuf text;
    struct json *json;

    strbuf_init(&text, 64 << 20);
    strbuf_add(&text, "{\"first\": 0");
    CHECK_OK(train_print_classes(classes, ", ", &text));
    strbuf_add(&text, "}");
    CHECK_OK(strbuf_status(&text));
    CHECK_OK(json_parse(text.text, text.length, &json));
    strbuf_release(&text);
    return json;
}

static int64_t sum_cells(const struct train_classes *classes)
{
    int64_t sum = 0;

    for (size_t i = 0; i < classes->n_cells; i++)
        sum += classes->cells[i].samples;
    return sum;
}

static void test_few_classes_have_a_matrix(void)
{
    struct train_classes classes;

    make(1000, 7, &classes);
    struct json *json = print(&classes);
    const struct json_value *rows = json_get(json_root(json), "confusion");
    CHECK(rows && rows->count == 1000 && rows->items[0].count == 1000);
    CHECK_INT(7, rows->items[3].items[3].integer);
    CHECK_INT(2, rows->items[3].items[4].integer);
    CHECK_INT(0, rows->items[3].items[2].integer);
    CHECK(!json_get(json_root(json), "confusion_cells"));
    CHECK_INT(13, json_get(json_root(json), "class_samples")->items[3].integer);
    json_destroy(json);
    train_classes_release(&classes);
}

static void test_many_classes_have_cells(void)
{
    struct train_classes classes;

    make(1001, 7, &classes);
    struct json *json = print(&classes);
    const struct json_value *cells = json_get(json_root(json), "confusion_cells");
    CHECK(cells && cells->count == classes.n_cells);
    CHECK_INT(3, cells->items[12].items[0].integer);
    CHECK_INT(3, cells->items[12].items[1].integer);
    CHECK_INT(7, cells->items[12].items[2].integer);
    CHECK(!json_get(json_root(json), "confusion"));
    CHECK(!json_get(json_root(json), "confusion_left_out"));
    json_destroy(json);
    train_classes_release(&classes);
}

/* As many as a data set may have, with more cells than a document holds: the most frequent stay, in order. */
static void test_the_most_classes_keep_their_most_frequent_cells(void)
{
    struct train_classes classes;
    int64_t told = 0;

    make(MOST_CLASSES, 9, &classes);
    struct json *json = print(&classes);
    const struct json_value *cells = json_get(json_root(json), "confusion_cells");
    CHECK(cells && cells->count == CELLS_TOLD);
    for (size_t i = 0; i < cells->count; i++) {
        const struct json_value *cell = cells->items[i].items;
        told += cell[2].integer;
        CHECK(cell[2].integer >= 2);
        if (i > 0) {
            const struct json_value *before = cells->items[i - 1].items;
            CHECK(
                before[0].integer < cell[0].integer ||
                (before[0].integer == cell[0].integer && before[1].integer < cell[1].integer));
        }
    }
    CHECK_INT(sum_cells(&classes),
              told + json_integer(json_root(json), "confusion_left_out", 0));
    json_destroy(json);
    train_classes_release(&classes);
}

static void test_a_class_is_most_often_taken_for_one(void)
{
    struct train_classes classes;
    int64_t samples;

    make(8, 7, &classes);
    CHECK_INT(4, train_class_taken_for(&classes, 2, &samples)); /* 2: 7, 3: 2, 4: 3, 5: 1 */
    CHECK_INT(3, samples);
    classes.n_cells = 1; /* class 0 taken for itself */
    CHECK_INT(-1, train_class_taken_for(&classes, 0, &samples));
    CHECK_INT(0, samples);
    train_classes_release(&classes);
}

const struct test tests[] = {
    { .name = "few classes have a matrix", .run = test_few_classes_have_a_matrix },
    { .name = "many classes have cells", .run = test_many_classes_have_cells },
    { .name = "the most classes keep their most frequent cells",
      .run = test_the_most_classes_keep_their_most_frequent_cells },
    { .name = "a class is most often taken for one",
      .run = test_a_class_is_most_often_taken_for_one },
    { 0 },
};
