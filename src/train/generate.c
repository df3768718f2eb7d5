/* SPDX-License-Identifier: MIT */
/* generate.c - the model's graph for some tokens more, and the caches that it looks at. */
#include "train/generate.h"

#include <string.h>

#include "base/mem.h"
#include "model/gpt.h"

enum { PIECE = 256 }; /* tokens that are read at once at most */

struct generator {
    struct graph *graph;
    struct gpt_step step;
    struct infer *infer;
    int64_t vocabulary;
    int64_t used;    /* tokens in the caches */
    int32_t *tokens; /* those, by place */
    int32_t *first, *piece;
    float *logits; /* of the tokens read last */
    float *
        *buffers; /* of each layer: its cache, and what it has made of the tokens read last */
};

/* Numbers of one token in a cache. */
static int64_t cache_row(const struct generator *g)
{
    return 2 * g->step.width;
}

static enum status make_buffers(struct generator *g)
{
    const int64_t most = g->step.context < PIECE ? g->step.context : PIECE;
    const size_t layers = (size_t)g->step.n_layers;

    TRY(mem_alloc((size_t)g->step.context, sizeof *g->tokens, &g->tokens));
    TRY(mem_alloc((size_t)most, sizeof *g->piece, &g->piece));
    TRY(mem_alloc(1, sizeof *g->first, &g->first));
    TRY(mem_alloc((size_t)(most * g->vocabulary), sizeof *g->logits, &g->logits));
    TRY(mem_alloc(2 * layers, sizeof *g->buffers, &g->buffers));
    for (size_t i = 0; i < layers; i++) {
        TRY(mem_alloc((size_t)(g->step.context * cache_row(g)), sizeof(float), &g->buffers[i]));
        TRY(mem_alloc((size_t)(most * 3 * g->step.width), sizeof(float),
                      &g->buffers[layers + i]));
    }
    return STATUS_OK;
}

/* Ports are the tokens, their place and the caches; logits and what the layers have made. */
static enum status make_infer(struct generator *g, const struct usable *usable)
{
    const int layers = g->step.n_layers;
    struct value *in[2 + GPT_LAYERS] = { g->step.input, g->step.first };
    struct value *out[1 + GPT_LAYERS] = { g->step.output };
    const struct infer_config config = {
        .graph = g->graph,
        .weights = usable->weights,
        .choices = usable->choices,
        .pool = usable->pool,
        .in = in,
        .out = out,
        .n_in = 2 + layers,
        .n_out = 1 + layers,
    };

    memcpy(in + 2, g->step.cache, (size_t)layers * sizeof *in);
    memcpy(out + 1, g->step.fresh, (size_t)layers * sizeof *out);
    return infer_create(&config, &g->infer);
}

bool generator_is_for(const struct model *model)
{
    return model == &model_gpt;
}

enum status generator_create(const struct usable *usable, struct generator **out)
{
    struct model_config config = *usable->config;
    struct generator *g;

    if (!generator_is_for(usable->model))
        return FAIL(STATUS_USAGE, "%s does not predict the next token: gpt does",
                    usable->model->name);
    config.batch = 1;
    TRY(mem_alloc(1, sizeof *g, &g));
    g->vocabulary = config.vocab[0];
    enum status status = gpt_build_step(&config, &g->graph, &g->step);
    if (status == STATUS_OK)
        status = make_buffers(g);
    if (status == STATUS_OK)
        status = make_infer(g, usable);
    if (status != STATUS_OK) {
        generator_destroy(g);
        return status;
    }
    *out = g;
    return STATUS_OK;
}

void generator_destroy(struct generator *g)
{
    if (!g)
        return;
    for (int i = 0; g->buffers && i < 2 * g->step.n_layers; i++)
        mem_free(g->buffers[i]);
    mem_free(g->buffers);
    mem_free(g->tokens);
    mem_free(g->piece);
    mem_free(g->first);
    mem_free(g->logits);
    infer_destroy(g->infer);
    graph_destroy(g->graph);
    mem_free(g);
}

void generator_reset(struct generator *g)
{
    g->used = 0;
}

/* What the layers have made of `count` tokens goes to the caches: keys and values, no queries. */
static void fill_caches(struct generator *g, int64_t count)
{
    const int64_t width = g->step.width, row = cache_row(g);

    for (int i = 0; i < g->step.n_layers; i++) {
        const float *fresh = g->buffers[g->step.n_layers + i];
        float *cache = g->buffers[i] + g->used * row;
        for (int64_t t = 0; t < count; t++)
            memcpy(cache + t * row, fresh + t * 3 * width + width, (size_t)row * sizeof *cache);
    }
}

/* Reads tokens that there is room for, at most PIECE. */
static enum status read_piece(struct generator *g, const int32_t *tokens, int64_t count)
{
    const int layers = g->step.n_layers;
    const struct extents extents = { .rows = 1, .length = { count } };
    const void *in[2 + GPT_LAYERS] = { g->piece, g->first };
    void *out[1 + GPT_LAYERS] = { g->logits };

    for (int i = 0; i < layers; i++) {
        in[2 + i] = g->buffers[i];
        out[1 + i] = g->buffers[layers + i];
    }
    memmove(g->tokens + g->used, tokens, (size_t)count * sizeof *tokens);
    memcpy(g->piece, g->tokens + g->used, (size_t)count * sizeof *tokens);
    *g->first = (int32_t)g->used;
    TRY(infer_run(g->infer, extents, in, out));
    fill_caches(g, count);
    g->used += count;
    return STATUS_OK;
}

/* The context is full: its last half becomes the beginning. */
static enum status read_again(struct generator *g)
{
    const int64_t kept = g->used / 2;
    const int32_t *from = g->tokens + (g->used - kept);

    g->used = 0;
    while (g->used < kept) {
        const int64_t left = kept - g->used;
        TRY(read_piece(g, from + g->used, left < PIECE ? left : PIECE));
    }
    return STATUS_OK;
}

enum status generator_feed(struct generator *g, const int32_t *tokens, int64_t count,
                           const float **out_logits)
{
    int64_t piece = 0;

    BUG_ON(count < 1);
    for (int64_t at = 0; at < count; at += piece) {
        if (g->used == g->step.context)
            TRY(read_again(g));
        const int64_t room = g->step.context - g->used, left = count - at;
        piece = left < room ? left : room;
        piece = piece < PIECE ? piece : PIECE;
        TRY(read_piece(g, tokens + at, piece));
    }
    *out_logits = g->logits + (piece - 1) * g->vocabulary;
    return STATUS_OK;
}
