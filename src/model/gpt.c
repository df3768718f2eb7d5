/* SPDX-License-Identifier: MIT */
/* gpt.c - GPT-2 under Hugging Face's names: learned positions, norms before each part, tanh GELU,
 * and a head that is the table of embeddings.
 *
 * Weights of its linear layers lie (in, out) in files, as Hugging Face's Conv1D has them. Initial
 * values are those of PyTorch's Linear, and normal numbers of deviation 0.02 for the tables.
 */
#include "model/gpt.h"

#include <stdio.h>
#include <string.h>

#include "graph/build.h"

enum { OPTION_SIZE, OPTION_LAYERS, OPTION_HEADS, OPTION_WIDTH, OPTION_CONTEXT, OPTION_DROPOUT };

static const struct size {
    int layers, heads, width;
} sizes[] = {
    { 6, 6, 384 }, { 12, 12, 768 }, { 24, 16, 1024 }, { 36, 20, 1280 }, { 48, 25, 1600 },
};

static const float TABLE_DEVIATION = 0.02F, EPSILON = 1e-5F;

/* What the blocks of a graph have in common; `step` is NULL where whole sequences are seen. */
struct gpt {
    struct graph *graph;
    int layers, heads;
    int64_t width, context;
    float dropout;
    struct value *ids, *table;
    struct gpt_step *step;
};

/* A number that an option gives, or that of the size if it is 0. */
static int chosen(const struct model_config *config, int option, int of_size)
{
    return config->options[option] > 0 ? (int)config->options[option] : of_size;
}

static struct gpt gpt_of(struct graph *graph, const struct model_config *config)
{
    const struct size *size = &sizes[(int)config->options[OPTION_SIZE]];

    return (struct gpt){
        .graph = graph,
        .layers = chosen(config, OPTION_LAYERS, size->layers),
        .heads = chosen(config, OPTION_HEADS, size->heads),
        .width = chosen(config, OPTION_WIDTH, size->width),
        .context = chosen(config, OPTION_CONTEXT, (int)config->length[0]),
        .dropout = config->training ? (float)config->options[OPTION_DROPOUT] : 0,
    };
}

/* "h.3." and the part, in a buffer that the next call overwrites. */
static const char *part(int layer, const char *name)
{
    static _Thread_local char text[48];

    snprintf(text, sizeof text, "h.%d.%s", layer, name);
    return text;
}

/* A linear layer whose weight files hold transposed. */
static struct value *conv1d(const struct gpt *gpt, const char *name, struct value *x,
                            int64_t outputs)
{
    char weight[64];

    struct value *y = build_linear(gpt->graph, name, x, outputs);
    snprintf(weight, sizeof weight, "%s.weight", name);
    struct value *w = graph_find_value(gpt->graph, weight);
    if (w)
        w->is_turned = true;
    return y;
}

static struct value *attend(const struct gpt *gpt, int layer, struct value *qkv)
{
    struct gpt_step *step = gpt->step;

    if (!step)
        return build_attention(gpt->graph, part(layer, "attn"), qkv, NULL, gpt->heads, true);
    step->fresh[layer] = qkv;
    return build_attention_step(gpt->graph, part(layer, "attn"), qkv, step->cache[layer],
                                step->first, gpt->heads);
}

static struct value *block(const struct gpt *gpt, int layer, struct value *x)
{
    struct graph *graph = gpt->graph;

    struct value *y = build_layer_norm(graph, part(layer, "ln_1"), x, EPSILON);
    y = conv1d(gpt, part(layer, "attn.c_attn"), y, 3 * gpt->width);
    y = attend(gpt, layer, y);
    y = conv1d(gpt, part(layer, "attn.c_proj"), y, gpt->width);
    y = build_dropout(graph, part(layer, "attn.dropout"), y, gpt->dropout);
    x = build_add(graph, part(layer, "attn.add"), x, y);

    y = build_layer_norm(graph, part(layer, "ln_2"), x, EPSILON);
    y = conv1d(gpt, part(layer, "mlp.c_fc"), y, 4 * gpt->width);
    y = build_gelu_tanh(graph, part(layer, "mlp.act"), y);
    y = conv1d(gpt, part(layer, "mlp.c_proj"), y, gpt->width);
    y = build_dropout(graph, part(layer, "mlp.dropout"), y, gpt->dropout);
    return build_add(graph, part(layer, "mlp.add"), x, y);
}

/* Logits of every token. */
static struct value *build_tokens(struct gpt *gpt, int64_t vocab)
{
    struct graph *graph = gpt->graph;

    gpt->table =
        graph_param_table(graph, "wte.weight", shape_2(vocab, gpt->width), TABLE_DEVIATION);
    struct value *positions = graph_param_table(
        graph, "wpe.weight", shape_2(gpt->context, gpt->width), TABLE_DEVIATION);
    struct value *x = build_embedding_of(graph, "wte", gpt->ids, gpt->table);
    x = build_positions(graph, "wpe", x, positions, gpt->step ? gpt->step->first : NULL);
    x = build_dropout(graph, "drop", x, gpt->dropout);
    for (int layer = 0; layer < gpt->layers; layer++)
        x = block(gpt, layer, x);
    x = build_layer_norm(graph, "ln_f", x, EPSILON);
    return build_linear_tied(graph, "lm_head", x, gpt->table);
}

static enum status check(const struct gpt *gpt, const struct model_config *config)
{
    if (gpt->width % gpt->heads != 0)
        return FAIL(STATUS_USAGE, "gpt: width %lld is not a multiple of %d heads",
                    (long long)gpt->width, gpt->heads);
    if (gpt->context < config->length[0])
        return FAIL(STATUS_USAGE, "gpt: context %lld is shorter than sequences of %lld tokens",
                    (long long)gpt->context, (long long)config->length[0]);
    return STATUS_OK;
}

static void build_gpt(struct graph *graph, const struct model_config *config,
                      struct value *input, struct value *target)
{
    struct gpt gpt = gpt_of(graph, config);
    const enum status status = check(&gpt, config);

    if (status != STATUS_OK) {
        graph_fail(graph, status);
        return;
    }
    gpt.ids = input;
    build_token_loss(graph, build_tokens(&gpt, config->vocab[0]), target);
}

static void add_step(struct graph *graph, const struct model_config *config,
                     struct gpt_step *step)
{
    struct gpt gpt = gpt_of(graph, config);

    gpt.dropout = 0;
    gpt.step = step;
    step->n_layers = gpt.layers;
    step->context = gpt.context;
    step->width = gpt.width;
    step->input = gpt.ids =
        graph_sequence(graph, "input", DTYPE_I32, shape_2(config->batch, config->length[0]), 0);
    step->first = graph_input(graph, "first", DTYPE_I32, shape_1(config->batch));
    for (int layer = 0; layer < gpt.layers; layer++) {
        char name[32];
        snprintf(name, sizeof name, "cache.%d", layer);
        step->cache[layer] = graph_input(graph, name, DTYPE_F32,
                                         shape_3(config->batch, gpt.context, 2 * gpt.width));
    }
    step->output = build_tokens(&gpt, config->vocab[0]);
    graph_roles(graph)->input = step->input;
    graph_roles(graph)->output = step->output;
}

enum status gpt_build_step(const struct model_config *config, struct graph **out_graph,
                           struct gpt_step *out)
{
    const struct gpt gpt = gpt_of(NULL, config);
    struct gpt_step step = { 0 };
    struct graph *graph;

    TRY(check(&gpt, config));
    TRY(graph_create("gpt", &graph));
    add_step(graph, config, &step);
    const enum status status = graph_verify(graph);
    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    *out_graph = graph;
    *out = step;
    return STATUS_OK;
}

const struct model model_gpt = {
    .name = "gpt",
    .summary = "GPT-2: learned positions, causal attention, head tied to the embedding",
    .data = "shakespeare",
    .optimizer = "adamw",
    .task = MODEL_NEXT_TOKEN,
    .vocab = { 65 },
    .length = { 256 },
    .options = { [OPTION_SIZE] = { .name = "size",
                                   .summary = "6x384, or one of GPT-2's: 12x768 to 48x1600",
                                   .words = { "char", "124m", "350m", "774m", "1558m" } },
                 [OPTION_LAYERS] = { .name = "layers",
                                     .summary = "blocks; 0: as the size says",
                                     .maximum = GPT_LAYERS,
                                     .is_whole = true },
                 [OPTION_HEADS] = { .name = "heads",
                                    .summary = "of attention; 0: as the size says",
                                    .maximum = 256,
                                    .is_whole = true },
                 [OPTION_WIDTH] = { .name = "width",
                                    .summary = "numbers a token; 0: as the size says",
                                    .maximum = 16384,
                                    .is_whole = true },
                 [OPTION_CONTEXT] = { .name = "context",
                                      .summary = "positions; 0: as long as the sequences",
                                      .maximum = 65536,
                                      .is_whole = true },
                 [OPTION_DROPOUT] = { .name = "dropout",
                                      .summary = "share of what embeddings and blocks give",
                                      .maximum = 0.9 } },
    .build = build_gpt,
};
