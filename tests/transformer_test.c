/* SPDX-License-Identifier: MIT */
/* transformer_test.c - gpt and bert against Hugging Face's: logits, gradients and losses of 20 steps
 * (tests/golden/transformers.py says how they were made), and a gpt token by token against itself. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/test.h"
#include "interpret.h"
#include "model/gpt.h"
#include "pass/pass.h"

enum { FILE_MAX = 1 << 20, NAME_BYTES = 160 };
static const double LOSS_LIMIT = 1e-4, TENSOR_LIMIT = 1e-4;

static struct json *golden;

static void open_golden(void)
{
    char *text;
    size_t length;

    CHECK_OK(file_read(GOLDEN "/transformers.json", FILE_MAX, &text, &length));
    CHECK_OK(json_parse(text, length, &golden));
    mem_free(text);
}

static int64_t number(const char *key)
{
    return json_integer(json_root(golden), key, 0);
}

/* Numbers in [-0.5, 0.5): a hash of the name and the number of each, as transformers.py has it. */
static double drawn(const char *name, int64_t i)
{
    static const uint32_t factors[] = { 2246822519U, 3266489917U }, shifts[] = { 16, 13 };
    uint32_t p = 2166136261U, h;

    for (; *name; name++)
        p = (p ^ (unsigned char)*name) * 16777619U;
    h = (uint32_t)((uint64_t)i * 2654435761U) + p;
    for (int k = 0; k < 2; k++) {
        h ^= h >> shifts[k];
        h *= factors[k];
    }
    h ^= h >> 16;
    return h / 4294967296.0 - 0.5;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), more = strlen(end);
    return length >= more && strcmp(text + length - more, end) == 0;
}

/* As files have them; a turned weight lies in memory as that. */
static enum layout file_layout(const struct value *value)
{
    return value->is_turned ? LAYOUT_PLAIN : value->layout;
}

static void fill_param(const struct value *value, float *data)
{
    const char *name = value->name;
    const bool is_norm = ends_with(name, "ln_1.weight") || ends_with(name, "ln_2.weight") ||
                         ends_with(name, "ln_f.weight") || ends_with(name, "LayerNorm.weight");
    const double reach = is_norm || ends_with(name, "bias") ? 0.2 : 0.4;
    const int64_t count = shape_count(&value->shape);
    float *plain;

    CHECK_OK(mem_alloc((size_t)count, sizeof *plain, &plain));
    for (int64_t i = 0; i < count; i++)
        plain[i] = (float)((is_norm ? 1 : 0) + reach * drawn(name, i));
    layout_from_plain(file_layout(value), &value->shape, sizeof *plain, plain, data);
    mem_free(plain);
}

static int32_t token(const char *name, int64_t i)
{
    return (int32_t)((drawn(name, i) + 0.5) * (double)number("vocab"));
}

/* Is token i of all in its sequence? Sequence n of bert ends 3n tokens early. */
static bool is_there(const char *model, int64_t i)
{
    const int64_t tokens = number("tokens");
    return strcmp(model, "gpt") == 0 || i % tokens < tokens - 3 * (i / tokens);
}

/* How many labels count. */
static int64_t fill_tokens(const char *model, int32_t *ids, int32_t *labels)
{
    int64_t count = 0;

    for (int64_t i = 0; i < number("samples") * number("tokens"); i++) {
        const bool there = is_there(model, i);
        const bool counts = there && (strcmp(model, "gpt") == 0 || drawn("hidden", i) < -0.2);
        ids[i] = there ? token("ids", i) : -1;
        labels[i] = counts ? token("labels", i) : -1;
        count += counts;
    }
    return count;
}

static struct model_config config_of(const struct model *model)
{
    static const char *const options[] = { "width", "heads", "layers", "context" };
    struct model_config config = model_defaults(model);

    config.batch = number("samples");
    config.length[0] = number("tokens");
    config.vocab[0] = number("vocab");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        CHECK_OK(model_set_option(model, &config, options[i], (double)number(options[i])));
    CHECK_OK(model_set_option(model, &config, "dropout", 0));
    return config;
}

/* Norm, and products with drawn numbers, in the order of files. */
static void check_fingerprint(const char *name, const float *plain, int64_t count,
                              const struct json_value *expected)
{
    char dot[NAME_BYTES];
    double squares = 0, products = 0;

    CHECK(expected && expected->kind == JSON_ARRAY && expected->count == 2);
    snprintf(dot, sizeof dot, "dot.%s", name);
    for (int64_t i = 0; i < count; i++) {
        squares += (double)plain[i] * (double)plain[i];
        products += (double)plain[i] * drawn(dot, i);
    }
    const double norm = expected->items[0].number;
    const double apart =
        fmax(fabs(sqrt(squares) - norm), fabs(products - expected->items[1].number));
    if (!(apart <= TENSOR_LIMIT * fmax(norm, 1e-3)))
        test_fail(__FILE__, __LINE__, "%s: %.9g and %.9g, expected %.9g and %.9g", name,
                  sqrt(squares), products, norm, expected->items[1].number);
}

static void check_gradients(const struct graph *graph, const struct interpreter *in,
                            const struct json_value *expected)
{
    size_t seen = 0;

    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        const int64_t count = shape_count(&value->shape);
        float *plain;

        if (value->kind != VALUE_PARAM)
            continue;
        CHECK_OK(mem_alloc((size_t)count, sizeof *plain, &plain));
        layout_to_plain(file_layout(value), &value->shape, sizeof *plain,
                        interpret_data(in, value->gradient), plain);
        check_fingerprint(value->name, plain, count, json_get(expected, value->name));
        mem_free(plain);
        seen++;
    }
    CHECK_INT((int64_t)expected->count, (int64_t)seen);
}

/* Logits of tokens that are there. */
static void check_logits(const char *model, const struct graph *graph,
                         const struct interpreter *in, const struct value *output,
                         const struct json_value *expected)
{
    const int64_t vocab = number("vocab"), count = shape_count(interpret_shape(in, output));
    float *logits;

    (void)graph;
    CHECK_OK(mem_alloc((size_t)count, sizeof *logits, &logits));
    memcpy(logits, interpret_data(in, output), (size_t)count * sizeof *logits);
    for (int64_t i = 0; i < count; i++)
        logits[i] = is_there(model, i / vocab) ? logits[i] : 0;
    check_fingerprint("logits", logits, count, expected);
    mem_free(logits);
}

static void update(const struct graph *graph, struct interpreter *in)
{
    const float rate = (float)json_number(json_root(golden), "rate", 0);

    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind != VALUE_PARAM)
            continue;
        const float *gradient = interpret_data(in, value->gradient);
        float *weight = interpret_data(in, value);
        for (int64_t e = 0; e < shape_count(&value->shape); e++)
            weight[e] -= rate * gradient[e];
    }
}

static void fill_params(const struct graph *graph, struct interpreter *in)
{
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind == VALUE_PARAM)
            fill_param(value, interpret_data(in, value));
    }
}

/* Trains as the golden was; without choices with plain kernels. */
static void check_model(const char *name, const struct kernel_choices *choices)
{
    const struct model *model = model_find(name);
    const struct model_config config = config_of(model);
    const struct json_value *expected = json_get(json_get(json_root(golden), "models"), name);
    const struct json_value *losses = json_get(expected, "losses");
    struct interpreter *in;
    struct graph *graph;

    CHECK_OK(model_build(model, &config, &graph));
    const struct graph_roles roles = *graph_roles(graph);
    CHECK_OK(pass_autodiff.run(graph, NULL));
    CHECK_OK(graph_verify(graph));
    CHECK_OK(interpret_create(graph, config.batch, choices, &in));
    fill_params(graph, in);
    const int64_t weight =
        fill_tokens(name, interpret_data(in, roles.input), interpret_data(in, roles.target));
    const struct kernel_step step = { .inv_batch = 1 / (float)weight };
    /* The loss's gradient may lie where the logits were, but not here: every value has its own. */
    for (int64_t s = 0; s < number("steps"); s++) {
        interpret_run(in, 0, graph_node_count(graph), &step);
        const double loss = (double)*(float *)interpret_data(in, roles.loss);
        if (!(fabs(loss / losses->items[s].number - 1) <= LOSS_LIMIT))
            test_fail(__FILE__, __LINE__, "%s: loss of step %lld is %.9g, expected %.9g", name,
                      (long long)s, loss, losses->items[s].number);
        if (s == 0) {
            check_logits(name, graph, in, roles.output, json_get(expected, "logits"));
            check_gradients(graph, in, json_get(expected, "gradients"));
        }
        update(graph, in);
    }
    interpret_destroy(in);
    graph_destroy(graph);
}

static void check_both(const char *name)
{
    struct kernel_choices *choices;

    open_golden();
    check_model(name, NULL);
    CHECK_OK(kernel_choices_load(NULL, &choices));
    check_model(name, choices);
    kernel_choices_destroy(choices);
    json_destroy(golden);
}

static void gpt_is_hugging_faces(void)
{
    check_both("gpt");
}

static void bert_is_hugging_faces(void)
{
    check_both("bert");
}

/* Generation ---------------------------------------------------------------------------- */

/* Copies what a run of `tokens` tokens made to its place in the caches. */
static void keep(const struct gpt_step *step, const struct interpreter *from,
                 struct interpreter *to, const struct gpt_step *to_step, int64_t samples,
                 int64_t tokens, int64_t first)
{
    const size_t width = (size_t)step->width;

    for (int layer = 0; layer < step->n_layers; layer++) {
        const float *fresh = interpret_data(from, step->fresh[layer]);
        float *cache = interpret_data(to, to_step->cache[layer]);
        for (int64_t n = 0; n < samples; n++) {
            for (int64_t t = 0; t < tokens; t++)
                memcpy(cache + (size_t)(n * step->context + first + t) * 2 * width,
                       fresh + (size_t)(n * tokens + t) * 3 * width + width,
                       2 * width * sizeof *cache);
        }
    }
}

/* A step's graph for so many tokens at once, its parameters filled. */
static void make_step(const struct model_config *config, int64_t tokens,
                      const struct kernel_choices *choices, struct graph **graph,
                      struct gpt_step *step, struct interpreter **in)
{
    struct model_config short_config = *config;

    short_config.length[0] = tokens;
    CHECK_OK(gpt_build_step(&short_config, graph, step));
    CHECK_OK(interpret_create(*graph, config->batch, choices, in));
    fill_params(*graph, *in);
}

/* The prompt at once, then token by token: logits as of the whole sequence. */
static void check_steps(const struct kernel_choices *choices)
{
    const struct model_config config = config_of(&model_gpt);
    const int64_t samples = config.batch, tokens = config.length[0], prompt = 7;
    const int64_t vocab = number("vocab");
    struct interpreter *whole, *start, *one;
    struct graph *whole_graph, *start_graph, *one_graph;
    struct gpt_step begin, more;

    CHECK_OK(model_build(&model_gpt, &config, &whole_graph));
    CHECK_OK(interpret_create(whole_graph, samples, choices, &whole));
    fill_params(whole_graph, whole);
    const struct graph_roles *roles = graph_roles(whole_graph);
    int32_t *ids = interpret_data(whole, roles->input);
    const struct kernel_step step = {
        .inv_batch = 1 / (float)fill_tokens("gpt", ids, interpret_data(whole, roles->target))
    };
    interpret_run(whole, 0, graph_node_count(whole_graph), &step);
    const float *expected = interpret_data(whole, roles->output);

    make_step(&config, prompt, choices, &start_graph, &begin, &start);
    make_step(&config, 1, choices, &one_graph, &more, &one);
    for (int64_t n = 0; n < samples; n++) {
        memcpy((int32_t *)interpret_data(start, begin.input) + n * prompt, ids + n * tokens,
               (size_t)prompt * sizeof *ids);
        ((int32_t *)interpret_data(start, begin.first))[n] = 0;
    }
    interpret_run(start, 0, graph_node_count(start_graph), &step);
    keep(&begin, start, one, &more, samples, prompt, 0);
    for (int64_t n = 0; n < samples; n++) {
        const float *logits = (const float *)interpret_data(start, begin.output);
        for (int64_t i = 0; i < prompt * vocab; i++)
            CHECK_CLOSE(expected[n * tokens * vocab + i], logits[n * prompt * vocab + i], 1e-4);
    }
    for (int64_t t = prompt; t < tokens; t++) {
        for (int64_t n = 0; n < samples; n++) {
            ((int32_t *)interpret_data(one, more.input))[n] = ids[n * tokens + t];
            ((int32_t *)interpret_data(one, more.first))[n] = (int32_t)t;
        }
        interpret_run(one, 0, graph_node_count(one_graph), &step);
        keep(&more, one, one, &more, samples, 1, t);
        for (int64_t n = 0; n < samples; n++) {
            const float *logits = (const float *)interpret_data(one, more.output) + n * vocab;
            for (int64_t v = 0; v < vocab; v++)
                CHECK_CLOSE(expected[(n * tokens + t) * vocab + v], logits[v], 1e-4);
        }
    }
    interpret_destroy(one);
    interpret_destroy(start);
    interpret_destroy(whole);
    graph_destroy(one_graph);
    graph_destroy(start_graph);
    graph_destroy(whole_graph);
}

static void tokens_one_by_one_are_as_a_whole_sequence(void)
{
    struct kernel_choices *choices;

    open_golden();
    check_steps(NULL);
    CHECK_OK(kernel_choices_load(NULL, &choices));
    check_steps(choices);
    kernel_choices_destroy(choices);
    json_destroy(golden);
}

const struct test tests[] = {
    { .name = "gpt is Hugging Face's", .run = gpt_is_hugging_faces },
    { .name = "bert is Hugging Face's", .run = bert_is_hugging_faces },
    { .name = "tokens one by one are as a whole sequence",
      .run = tokens_one_by_one_are_as_a_whole_sequence },
    { 0 },
};
