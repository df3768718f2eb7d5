/* SPDX-License-Identifier: MIT */
/* bert.c - BERT that learns what hidden tokens were, under Hugging Face's names (BertForMaskedLM).
 *
 * Norms after each part, GELU, and a head that is the table of embeddings behind one more layer. All
 * tokens are of the first of its two types. Initial values are Hugging Face's: normal numbers of
 * deviation 0.02, biases 0. Its dropout is what it is there but for the weights of attention,
 * of which none is dropped.
 */
#include <stdio.h>

#include "graph/build.h"
#include "model/model.h"

enum { OPTION_SIZE, OPTION_LAYERS, OPTION_HEADS, OPTION_WIDTH, OPTION_CONTEXT, OPTION_DROPOUT };

static const struct size {
    int layers, heads, width;
} sizes[] = {
    { 2, 2, 128 }, { 4, 4, 256 }, { 4, 8, 512 }, { 8, 8, 512 }, { 12, 12, 768 },
};

enum { TYPES = 2, NAME_BYTES = 96 };
static const float DEVIATION = 0.02F, EPSILON = 1e-12F;

struct bert {
    struct graph *graph;
    int layers, heads;
    int64_t width, context;
    float dropout;
    struct value *ids;
};

/* A number that an option gives, or that of the size if it is 0. */
static int chosen(const struct model_config *config, int option, int of_size)
{
    return config->options[option] > 0 ? (int)config->options[option] : of_size;
}

struct name {
    char text[NAME_BYTES];
};

static struct name in_layer(int layer, const char *part)
{
    struct name name;

    snprintf(name.text, sizeof name.text, "bert.encoder.layer.%d.%s", layer, part);
    return name;
}

static struct name part_of(const char *name, const char *part)
{
    struct name full;

    snprintf(full.text, sizeof full.text, "%s.%s", name, part);
    return full;
}

/* A linear layer with BERT's initial values. */
static struct value *dense(const struct bert *bert, const char *name, struct value *x,
                           int64_t outputs)
{
    struct value *y = build_linear(bert->graph, name, x, outputs);
    struct value *weight = graph_find_value(bert->graph, part_of(name, "weight").text);
    struct value *bias = graph_find_value(bert->graph, part_of(name, "bias").text);

    if (weight && bias) {
        weight->init_bound = bias->init_bound = 0;
        weight->init_deviation = DEVIATION;
    }
    return y;
}

/* norm(x + dropout(dense(y))) */
static struct value *join(const struct bert *bert, const char *name, struct value *x,
                          struct value *y)
{
    y = dense(bert, part_of(name, "dense").text, y, bert->width);
    y = build_dropout(bert->graph, part_of(name, "dropout").text, y, bert->dropout);
    y = build_add(bert->graph, part_of(name, "add").text, y, x);
    return build_layer_norm(bert->graph, part_of(name, "LayerNorm").text, y, EPSILON);
}

static struct value *layer(const struct bert *bert, int number, struct value *x)
{
    struct graph *graph = bert->graph;
    struct value *q =
        dense(bert, in_layer(number, "attention.self.query").text, x, bert->width);
    struct value *k = dense(bert, in_layer(number, "attention.self.key").text, x, bert->width);
    struct value *v =
        dense(bert, in_layer(number, "attention.self.value").text, x, bert->width);

    struct value *y = graph_apply(graph, "concat", in_layer(number, "attention.self.qkv").text,
                                  q, k, v, NULL);
    y = build_attention(graph, in_layer(number, "attention.self").text, y, bert->ids,
                        bert->heads, false);
    x = join(bert, in_layer(number, "attention.output").text, x, y);
    y = dense(bert, in_layer(number, "intermediate.dense").text, x, 4 * bert->width);
    y = build_gelu(graph, in_layer(number, "intermediate.act").text, y);
    return join(bert, in_layer(number, "output").text, x, y);
}

static struct value *embeddings(const struct bert *bert, struct value *table)
{
    struct graph *graph = bert->graph;
    struct value *types =
        graph_param_table(graph, "bert.embeddings.token_type_embeddings.weight",
                          shape_2(TYPES, bert->width), DEVIATION);
    struct value *positions =
        graph_param_table(graph, "bert.embeddings.position_embeddings.weight",
                          shape_2(bert->context, bert->width), DEVIATION);

    struct value *x = build_embedding_of(graph, "bert.embeddings.words", bert->ids, table);
    x = build_row(graph, "bert.embeddings.types", x, types);
    x = build_positions(graph, "bert.embeddings.positions", x, positions, NULL);
    x = build_layer_norm(graph, "bert.embeddings.LayerNorm", x, EPSILON);
    return build_dropout(graph, "bert.embeddings.dropout", x, bert->dropout);
}

/* Logits of every token. */
static struct value *head(const struct bert *bert, struct value *x, struct value *table)
{
    struct graph *graph = bert->graph;

    x = dense(bert, "cls.predictions.transform.dense", x, bert->width);
    x = build_gelu(graph, "cls.predictions.transform.act", x);
    x = build_layer_norm(graph, "cls.predictions.transform.LayerNorm", x, EPSILON);
    x = build_linear_tied(graph, "cls.predictions.decoder", x, table);
    if (!x)
        return NULL;
    struct value *bias = graph_param_constant(graph, "cls.predictions.bias",
                                              shape_1(x->shape.dim[x->shape.rank - 1]), 0);
    return build_bias(graph, "cls.predictions", x, bias);
}

static enum status check(const struct bert *bert, const struct model_config *config)
{
    if (bert->width % bert->heads != 0)
        return FAIL(STATUS_USAGE, "bert: width %lld is not a multiple of %d heads",
                    (long long)bert->width, bert->heads);
    if (bert->context < config->length[0])
        return FAIL(STATUS_USAGE, "bert: context %lld is shorter than sequences of %lld tokens",
                    (long long)bert->context, (long long)config->length[0]);
    return STATUS_OK;
}

static void build_bert(struct graph *graph, const struct model_config *config,
                       struct value *input, struct value *target)
{
    const struct size *size = &sizes[(int)config->options[OPTION_SIZE]];
    const struct bert bert = {
        .graph = graph,
        .layers = chosen(config, OPTION_LAYERS, size->layers),
        .heads = chosen(config, OPTION_HEADS, size->heads),
        .width = chosen(config, OPTION_WIDTH, size->width),
        .context = chosen(config, OPTION_CONTEXT, (int)config->length[0]),
        .dropout = config->training ? (float)config->options[OPTION_DROPOUT] : 0,
        .ids = input,
    };
    const enum status status = check(&bert, config);

    if (status != STATUS_OK) {
        graph_fail(graph, status);
        return;
    }
    struct value *table = graph_param_table(graph, "bert.embeddings.word_embeddings.weight",
                                            shape_2(config->vocab[0], bert.width), DEVIATION);
    struct value *x = embeddings(&bert, table);
    for (int i = 0; i < bert.layers; i++)
        x = layer(&bert, i, x);
    build_token_loss(graph, head(&bert, x, table), target);
}

extern const struct model model_bert;
const struct model model_bert = {
    .name = "bert",
    .summary = "BERT: hidden tokens from those on both sides, head tied to the embedding",
    .data = "wikitext2",
    .optimizer = "adamw",
    .task = MODEL_MASKED_TOKEN,
    .vocab = { 30522 },
    .length = { 128 },
    .options = { [OPTION_SIZE] = { .name = "size",
                                   .summary = "2x128, 4x256, 4x512, 8x512 or 12x768",
                                   .value = 1,
                                   .words = { "tiny", "mini", "small", "medium", "base" } },
                 [OPTION_LAYERS] = { .name = "layers",
                                     .summary = "blocks; 0: as the size says",
                                     .maximum = 64,
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
                                      .summary = "share of what embeddings and layers give",
                                      .value = 0.1,
                                      .maximum = 0.9 } },
    .build = build_bert,
};
