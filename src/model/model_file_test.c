/* SPDX-License-Identifier: MIT */
/* model_file_test.c - every model of the zoo goes through a file unchanged; files that lie are refused. */
#include "model/file.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

enum { TEXT_MOST = 4 << 20 };

static void print(const struct model *model, const struct model_config *config,
                  struct strbuf *out)
{
    strbuf_init(out, TEXT_MOST);
    CHECK_OK(model_file_print(model, config, out));
}

/* Everything that decides what a graph computes. */
static void check_same(const struct graph *a, const struct graph *b)
{
    struct strbuf text[2];

    for (int i = 0; i < 2; i++) {
        strbuf_init(&text[i], TEXT_MOST);
        graph_print_text(i ? b : a, &text[i]);
    }
    CHECK_TEXT(text[0].text, text[1].text);
    CHECK_INT(graph_value_count(a), graph_value_count(b));
    for (int i = 0; i < graph_value_count(a); i++) {
        const struct value *x = graph_value(a, i), *y = graph_value(b, i);
        CHECK(x->initial == y->initial && x->init_bound == y->init_bound &&
              x->init_deviation == y->init_deviation);
        CHECK(x->is_turned == y->is_turned && x->sequence == y->sequence);
        CHECK((x->gradient ? x->gradient->id : -1) == (y->gradient ? y->gradient->id : -1));
        CHECK(!x->maker || (x->maker->attrs.stream == y->maker->attrs.stream &&
                            x->maker->attrs.heads == y->maker->attrs.heads &&
                            x->maker->attrs.causal == y->maker->attrs.causal &&
                            x->maker->attrs.period == y->maker->attrs.period));
    }
    for (int i = 0; i < 2; i++)
        strbuf_release(&text[i]);
}

static void check_through_file(const struct model *model, struct model_config config)
{
    struct model_file *file;
    struct strbuf text, again;

    print(model, &config, &text);
    CHECK_OK(model_file_parse(text.text, text.length, &file));
    const struct model *read = model_file_model(file);
    CHECK_TEXT(model->name, read->name);
    CHECK_INT(model->task, read->task);
    for (int training = 0; training < 2; training++) {
        struct graph *a, *b;
        config.training = training;
        config.batch = 3;
        CHECK_OK(model_build(model, &config, &a));
        CHECK_OK(model_build(read, &config, &b));
        check_same(a, b);
        graph_destroy(a);
        graph_destroy(b);
    }
    print(read, &config, &again);
    CHECK_TEXT(text.text, again.text);
    strbuf_release(&text);
    strbuf_release(&again);
    model_file_destroy(file);
}

static void test_every_model_goes_through_a_file(void)
{
    for (int m = 0; model_table[m]; m++)
        check_through_file(model_table[m], model_defaults(model_table[m]));
}

static void test_models_with_options_go_through_a_file(void)
{
    static const char *const options[] = { "attention", "cell" };
    const struct model *model = model_find("seq2seq");

    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct model_config config = model_defaults(model);
        CHECK_OK(model_set_option(model, &config, options[i], 1));
        check_through_file(model, config);
    }
}

/* The text of a small model with `from` replaced by `by`. */
static enum status parse_changed(const char *model_name, const char *from, const char *by)
{
    const struct model *model = model_find(model_name);
    const struct model_config config = model_defaults(model);
    struct model_file *file = NULL;
    struct strbuf text, changed;

    print(model, &config, &text);
    const char *at = strstr(text.text, from);
    if (!at)
        test_fail(__FILE__, __LINE__, "%s is not in the text", from);
    strbuf_init(&changed, TEXT_MOST);
    strbuf_add_bytes(&changed, text.text, (size_t)(at - text.text));
    strbuf_add(&changed, by);
    strbuf_add(&changed, at + strlen(from));
    const enum status status = model_file_parse(changed.text, changed.length, &file);
    model_file_destroy(file);
    strbuf_release(&text);
    strbuf_release(&changed);
    return status;
}

static void test_files_that_lie_are_refused(void)
{
    static const struct {
        const char *model, *from, *by, *why;
    } cases[] = {
        { "mlp", "tutti graph", "another", "no graph file" },
        { "mlp", "\"version\": 1", "\"version\": 2", "version" },
        { "mlp", "\"images\"", "\"sounds\"", "task" },
        { "mlp", "\"images\"", "\"table\"", "inputs are not those" },
        { "mlp", "\"classes\": 10", "\"classes\": 11", "10 places for numbers below 11" },
        { "mlp", "\"data\": \"fashion-mnist\"", "\"data\": \"/etc/passwd\"", "no name" },
        { "mlp", "\"classes\": 10", "\"classes\": 10, \"class_names\": [\"a\"]",
          "class_names" },
        { "mlp", "\"classes\": 10", "\"class_names\": [7], \"classes\": 1", "is no text" },
        { "mlp", "\"classes\": 10", "\"normalize\": 1, \"classes\": 10", "normalize" },
        { "gpt", "\"task\"", "\"normalize\": \"scale\", \"task\"", "normalize" },
        { "gpt", "\"task\"", "\"class_names\": [], \"task\"", "class_names" },
        { "mlp", "\"op\": \"linear\"", "\"op\": \"push\"", "none that a file may have" },
        { "mlp", "\"op\": \"linear\"", "\"op\": \"relu_grad\"", "none that a file may have" },
        { "mlp", "\"in\": [2, 3]", "\"in\": [2, 300]", "not whole, or not in" },
        { "mlp", "\"in\": [2, 3]", "\"in\": [3, 2]", "nothing that it takes" },
        { "mlp", "\"in\": [2, 3]", "\"in\": [1, 3]", "nothing that it takes" },
        { "mlp", "[250, 784]", "[250, 783]", "input of 784 features" },
        { "mlp", "[250, 784]", "[250000000, 784]", "is larger than" },
        { "mlp", "[250, 784]", "[4294967296, 4294967296]", "not in 0 to" },
        { "mlp", "[250, 784]", "[250, 0]", "an extent is 0" },
        { "mlp", "\"id\": 3", "\"id\": 4", "expected 3" },
        { "mlp", "fc1.bias", "fc1.weight", "two parameters" },
        { "mlp", "fc1.bias", "a b", "no name" },
        { "mlp", "\"uniform\": ", "\"uniform\": 1e99, \"normal\": ", "no number" },
        { "mlp", "\"output\": ", "\"output\": 0, \"second\": ", "" },
        { "lenet", "\"stride\": [1, 1]", "\"stride\": [0, 0]", "" },
        { "lenet", "\"stride\": [1, 1]", "\"stride\": [1, 1], \"rate\": 0.5", "not its own" },
        { "nbow", "[25000, 100]", "[24999, 100]", "24999 places for numbers below 25000" },
        { "resnet18", "\"averages\": [", "\"averages\": [0, ", "two averages" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const enum status status = parse_changed(cases[i].model, cases[i].from, cases[i].by);
        if (status != STATUS_CORRUPT)
            test_fail(__FILE__, __LINE__, "%s for %s was not refused: %s", cases[i].by,
                      cases[i].from, status_message());
        CHECK_MESSAGE(cases[i].why);
    }
}

static void test_data_that_do_not_fit_are_refused(void)
{
    const struct model *model = model_find("mlp");
    struct model_config config = model_defaults(model);
    struct model_file *file;
    struct strbuf text;
    struct graph *graph;

    print(model, &config, &text);
    CHECK_OK(model_file_parse(text.text, text.length, &file));
    config.classes = 11;
    CHECK_STATUS(STATUS_MISMATCH, model_build(model_file_model(file), &config, &graph));
    CHECK_MESSAGE("tells 10 classes, the data have 11");
    config.classes = 10;
    config.sample = shape_3(3, 32, 32);
    CHECK_STATUS(STATUS_MISMATCH, model_build(model_file_model(file), &config, &graph));
    CHECK_MESSAGE("samples of 1x28x28, the data have 3x32x32");
    model_file_destroy(file);
    strbuf_release(&text);
}

const struct test tests[] = {
    { .name = "every model goes through a file", .run = test_every_model_goes_through_a_file },
    { .name = "models with options go through a file",
      .run = test_models_with_options_go_through_a_file },
    { .name = "files that lie are refused", .run = test_files_that_lie_are_refused },
    { .name = "data that do not fit are refused",
      .run = test_data_that_do_not_fit_are_refused },
    { 0 },
};
