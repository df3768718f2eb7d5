/* SPDX-License-Identifier: MIT */
/* translate_test.c - what a translator gives, against the graph that training evaluates. */
#include "train/translate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

enum { VOCAB = 9, BEGIN = 1, END = 2, PLACES = 8, LONGEST = 6, SENTENCES = 3, PARAMS = 64 };

/* A small seq2seq with drawn weights. */
struct small {
    const struct model *model;
    struct model_config config;
    struct graph *graph; /* whole sentences */
    struct safetensors *file;
    struct infer_weights *weights;
    struct kernel_choices *choices;
    struct usable usable;
};

static void write_weights(struct small *s, struct rng *rng, const char *path)
{
    struct safetensors_entry entries[PARAMS];
    size_t count = 0;

    for (int i = 0; i < graph_value_count(s->graph); i++) {
        const struct value *value = graph_value(s->graph, i);
        float *numbers;
        if (value->kind != VALUE_PARAM)
            continue;
        CHECK(count < PARAMS);
        CHECK_OK(mem_alloc((size_t)shape_count(&value->shape), sizeof *numbers, &numbers));
        for (int64_t j = 0; j < shape_count(&value->shape); j++)
            numbers[j] = (float)rng_normal(rng) * 0.8f;
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

    *s = (struct small){ .model = model_find("seq2seq") };
    s->config = model_defaults(s->model);
    s->config.vocab[0] = s->config.vocab[1] = VOCAB;
    s->config.length[0] = s->config.length[1] = PLACES;
    s->config.training = false;
    CHECK_OK(model_set_option(s->model, &s->config, "hidden", 6));
    CHECK_OK(model_set_option(s->model, &s->config, "embedding", 5));
    CHECK_OK(model_set_option(s->model, &s->config, "cell", (double)rng_below(rng, 2)));
    CHECK_OK(model_set_option(s->model, &s->config, "layers", 1 + (double)rng_below(rng, 3)));
    CHECK_OK(model_build(s->model, &s->config, &s->graph));
    snprintf(path, sizeof path, "%s/weights.safetensors", test_folder());
    write_weights(s, rng, path);
    CHECK_OK(safetensors_open(path, &s->file));
    CHECK_OK(infer_weights_load(s->graph, s->file, &s->weights));
    CHECK_OK(kernel_choices_load(NULL, &s->choices));
    s->usable = (struct usable){
        .model = s->model, .config = &s->config, .weights = s->weights, .choices = s->choices
    };
}

static void release_small(struct small *s)
{
    infer_weights_destroy(s->weights);
    safetensors_close(s->file);
    kernel_choices_destroy(s->choices);
    graph_destroy(s->graph);
}

/* Sentences of different lengths. */
static void draw_sources(struct rng *rng, int32_t *sources)
{
    for (int s = 0; s < SENTENCES; s++) {
        const int64_t length = 1 + (int64_t)rng_below(rng, PLACES);
        for (int64_t i = 0; i < PLACES; i++)
            sources[s * PLACES + i] = i < length ? (int32_t)rng_below(rng, VOCAB) : -1;
    }
}

/* Logits after each token of a text, by the graph of whole sentences. */
static void run_whole(const struct small *s, const int32_t *source, const int32_t *text,
                      int64_t count, float *out)
{
    const struct graph_roles *roles = graph_roles(s->graph);
    _Alignas(64) int32_t ids[PLACES], second[LONGEST + 1], labels[LONGEST + 1] = { 0 };
    _Alignas(64) float logits[(LONGEST + 1) * VOCAB];
    const struct infer_config config = {
        .graph = s->graph,
        .weights = s->weights,
        .choices = s->choices,
        .in = (struct value *const[]){ roles->input, roles->second, roles->target },
        .out = (struct value *const[]){ roles->output },
        .n_in = 3,
        .n_out = 1,
    };
    struct infer *infer;

    memcpy(ids, source, sizeof ids);
    second[0] = BEGIN;
    memcpy(second + 1, text, (size_t)count * sizeof *text);
    CHECK_OK(infer_create(&config, &infer));
    CHECK_OK(infer_run(infer, (struct extents){ .rows = 1, .length = { PLACES, count + 1 } },
                       (const void *const[]){ ids, second, labels },
                       (void *const[]){ logits }));
    memcpy(out, logits, (size_t)((count + 1) * VOCAB) * sizeof *out);
    infer_destroy(infer);
}

static double log_probability(const float *logits, int32_t token)
{
    double sum = 0;

    for (int v = 0; v < VOCAB; v++)
        sum += exp((double)logits[v]);
    return (double)logits[token] - log(sum);
}

/* Is the score that of the text, and with `is_greedy` each token the likeliest? */
static void check_text(const struct small *s, const int32_t *source,
                       const struct beam_text *text, bool is_greedy)
{
    float logits[(LONGEST + 1) * VOCAB];
    const bool has_end = text->count < LONGEST;
    double sum = 0;

    CHECK(text->count <= LONGEST);
    run_whole(s, source, text->tokens, text->count, logits);
    for (int64_t i = 0; i < text->count + has_end; i++) {
        const float *own = logits + i * VOCAB;
        const int32_t token = i < text->count ? text->tokens[i] : END;
        sum += log_probability(own, token);
        for (int v = 0; is_greedy && v < VOCAB; v++)
            CHECK(own[v] <= own[token] + 1e-4f);
    }
    if (has_end || is_greedy) /* a text of full length may end at its last place, too */
        CHECK_CLOSE(sum / (double)(text->count + has_end), text->score, 1e-4);
}

static void check_translations(struct rng *rng, int64_t width)
{
    const struct translate_config config = {
        .begin = BEGIN, .end = END, .width = width, .longest = LONGEST
    };
    struct small s;
    struct translator *translator;
    struct beam_text texts[SENTENCES], alone;
    int32_t sources[SENTENCES * PLACES];

    make_small(&s, rng);
    draw_sources(rng, sources);
    CHECK_OK(translator_create(&s.usable, &config, &translator));
    CHECK_OK(translator_run(translator, sources, SENTENCES, PLACES, texts));
    for (int i = 0; i < SENTENCES; i++) {
        check_text(&s, sources + i * PLACES, &texts[i], width == 1);
        CHECK_OK(translator_run(translator, sources + i * PLACES, 1, PLACES, &alone));
        CHECK_INT(alone.count, texts[i].count);
        CHECK_CLOSE(alone.score, texts[i].score, 1e-5);
        beam_release(&alone, 1);
    }
    beam_release(texts, SENTENCES);
    translator_destroy(translator);
    release_small(&s);
}

static void test_greedy_takes_what_the_whole_graph_finds_likeliest(struct rng *rng)
{
    check_translations(rng, 1);
}

static void test_scores_of_a_beam_are_those_of_the_whole_graph(struct rng *rng)
{
    check_translations(rng, 2 + (int64_t)rng_below(rng, 4));
}

static void test_other_models_are_refused(void)
{
    const struct model *mlp = model_find("mlp");
    const struct model_config config = model_defaults(mlp);
    const struct usable usable = { .model = mlp, .config = &config };
    const struct translate_config translate = { .width = 1, .longest = 1 };
    struct translator *translator;

    CHECK_STATUS(STATUS_USAGE, translator_create(&usable, &translate, &translator));
    CHECK_MESSAGE("mlp does not translate");
}

const struct test tests[] = {
    { .name = "greedy takes what the whole graph finds likeliest",
      .property = test_greedy_takes_what_the_whole_graph_finds_likeliest },
    { .name = "scores of a beam are those of the whole graph",
      .property = test_scores_of_a_beam_are_those_of_the_whole_graph },
    { .name = "other models are refused", .run = test_other_models_are_refused },
    { 0 },
};
