/* SPDX-License-Identifier: MIT */
/* generate_test.c - a text read token by token, in pieces and as a whole gives the same logits. */
#include "train/generate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "model/gpt.h"

enum { VOCAB = 11, CONTEXT = 12, WIDTH = 8, TOKENS = 40 };

/* A small gpt with drawn weights. */
struct small {
    struct model_config config;
    struct graph *graph; /* whole sequences */
    struct safetensors *file;
    struct infer_weights *weights;
    struct kernel_choices *choices;
    struct usable usable;
};

static void set_option(struct model_config *config, const char *name, double value)
{
    CHECK_OK(model_set_option(&model_gpt, config, name, value));
}

static void write_weights(struct small *s, struct rng *rng, const char *path)
{
    struct safetensors_entry entries[64];
    size_t count = 0;

    for (int i = 0; i < graph_value_count(s->graph); i++) {
        const struct value *value = graph_value(s->graph, i);
        float *numbers;
        if (value->kind != VALUE_PARAM)
            continue;
        CHECK_OK(mem_alloc((size_t)shape_count(&value->shape), sizeof *numbers, &numbers));
        for (int64_t j = 0; j < shape_count(&value->shape); j++)
            numbers[j] = (float)rng_normal(rng) * 0.5f;
        entries[count++] = (struct safetensors_entry){ value->name, DTYPE_F32,
                                                       graph_saved_shape(value), numbers };
    }
    CHECK_OK(safetensors_write(path, entries, count, NULL, 0, NULL));
    while (count-- > 0)
        mem_free((void *)entries[count].data);
}

static void make_small(struct small *s, struct rng *rng)
{
    char path[512];

    *s = (struct small){ .config = model_defaults(&model_gpt) };
    s->config.vocab[0] = VOCAB;
    s->config.length[0] = CONTEXT;
    s->config.training = false;
    set_option(&s->config, "layers", 2);
    set_option(&s->config, "heads", 2);
    set_option(&s->config, "width", WIDTH);
    CHECK_OK(model_build(&model_gpt, &s->config, &s->graph));
    snprintf(path, sizeof path, "%s/weights.safetensors", test_folder());
    write_weights(s, rng, path);
    CHECK_OK(safetensors_open(path, &s->file));
    CHECK_OK(infer_weights_load(s->graph, s->file, &s->weights));
    CHECK_OK(kernel_choices_load(NULL, &s->choices));
    s->usable = (struct usable){
        .model = &model_gpt, .config = &s->config, .weights = s->weights, .choices = s->choices
    };
}

static void release_small(struct small *s)
{
    infer_weights_destroy(s->weights);
    safetensors_close(s->file);
    kernel_choices_destroy(s->choices);
    graph_destroy(s->graph);
}

/* Logits after each of `count` tokens, by the graph that training evaluates. */
static void run_whole(const struct small *s, const int32_t *tokens, int64_t count, float *out)
{
    const struct graph_roles *roles = graph_roles(s->graph);
    _Alignas(64) int32_t ids[CONTEXT], labels[CONTEXT] = { 0 };
    _Alignas(64) float logits[CONTEXT * VOCAB];
    const struct infer_config config = {
        .graph = s->graph,
        .weights = s->weights,
        .choices = s->choices,
        .in = (struct value *const[]){ roles->input, roles->target },
        .out = (struct value *const[]){ roles->output },
        .n_in = 2,
        .n_out = 1,
    };
    struct infer *infer;

    memcpy(ids, tokens, (size_t)count * sizeof *ids);
    CHECK_OK(infer_create(&config, &infer));
    CHECK_OK(infer_run(infer, (struct extents){ .rows = 1, .length = { count } },
                       (const void *const[]){ ids, labels }, (void *const[]){ logits }));
    memcpy(out, logits, (size_t)(count * VOCAB) * sizeof *out);
    infer_destroy(infer);
}

static void check_close(const float *expected, const float *actual)
{
    for (int v = 0; v < VOCAB; v++)
        CHECK_CLOSE(expected[v], actual[v], 2e-4);
}

static void draw_tokens(struct rng *rng, int32_t *tokens, int count)
{
    for (int i = 0; i < count; i++)
        tokens[i] = (int32_t)rng_below(rng, VOCAB);
}

static void test_pieces_of_any_length_give_the_logits_of_the_whole(struct rng *rng)
{
    struct small s;
    struct generator *generator;
    int32_t tokens[CONTEXT];
    float whole[CONTEXT * VOCAB];
    const float *logits;

    make_small(&s, rng);
    draw_tokens(rng, tokens, CONTEXT);
    run_whole(&s, tokens, CONTEXT, whole);
    CHECK_OK(generator_create(&s.usable, &generator));
    for (int round = 0; round < 2; round++) { /* the second after a reset */
        for (int64_t at = 0, piece; at < CONTEXT; at += piece) {
            piece = 1 + (int64_t)rng_below(rng, (uint64_t)(CONTEXT - at));
            CHECK_OK(generator_feed(generator, tokens + at, piece, &logits));
            check_close(whole + (at + piece - 1) * VOCAB, logits);
        }
        generator_reset(generator);
    }
    generator_destroy(generator);
    release_small(&s);
}

/* Places in the context: 12 tokens fill it, then its last 6 are read again. */
static void test_a_full_context_goes_on_from_its_last_half(void)
{
    struct small s;
    struct rng rng;
    struct generator *generator;
    int32_t tokens[TOKENS];
    float whole[CONTEXT * VOCAB];
    const float *logits;
    int64_t first = 0;

    rng_init(&rng, 3, 0);
    make_small(&s, &rng);
    draw_tokens(&rng, tokens, TOKENS);
    CHECK_OK(generator_create(&s.usable, &generator));
    for (int64_t i = 0; i < TOKENS; i++) {
        if (i - first == CONTEXT)
            first = i - CONTEXT / 2;
        CHECK_OK(generator_feed(generator, tokens + i, 1, &logits));
        run_whole(&s, tokens + first, i - first + 1, whole);
        check_close(whole + (i - first) * VOCAB, logits);
    }
    generator_reset(generator);
    CHECK_OK(generator_feed(generator, tokens, TOKENS, &logits)); /* the same at once */
    check_close(whole + (TOKENS - 1 - first) * VOCAB, logits);
    generator_destroy(generator);
    release_small(&s);
}

static void test_other_models_are_refused(void)
{
    const struct model *mlp = model_find("mlp");
    const struct model_config config = model_defaults(mlp);
    const struct usable usable = { .model = mlp, .config = &config };
    struct generator *generator;

    CHECK_STATUS(STATUS_USAGE, generator_create(&usable, &generator));
    CHECK_MESSAGE("mlp does not predict the next token");
}

const struct test tests[] = {
    { .name = "pieces of any length give the logits of the whole",
      .property = test_pieces_of_any_length_give_the_logits_of_the_whole },
    { .name = "a full context goes on from its last half",
      .run = test_a_full_context_goes_on_from_its_last_half },
    { .name = "other models are refused", .run = test_other_models_are_refused },
    { 0 },
};
