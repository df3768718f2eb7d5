/* SPDX-License-Identifier: MIT */
/* seq2seq.c - translation: an encoder reads the source, a decoder that begins with its states writes the
 * target. Stacks of LSTM or GRU layers over embeddings, dropout on these and between layers; in training
 * the decoder sees the right target's last token at each step (teacher forcing). With attention its
 * first layer looks at what the encoder's last one said of each token. */
#include "model/seq2seq.h"

#include <stdio.h>

#include "graph/build.h"

enum {
    OPTION_CELL,
    OPTION_HIDDEN,
    OPTION_EMBEDDING,
    OPTION_LAYERS,
    OPTION_DROPOUT,
    OPTION_ATTENTION
};
enum { CELL_LSTM, CELL_GRU };

static int layers_of(const struct model_config *config)
{
    return (int)config->options[OPTION_LAYERS];
}

static float dropout_of(const struct model_config *config)
{
    return config->training ? (float)config->options[OPTION_DROPOUT] : 0;
}

static struct value *embed(struct graph *graph, const struct model_config *config,
                           const char *name, struct value *ids, int64_t vocab)
{
    char drop[64];

    snprintf(drop, sizeof drop, "%s.dropout", name);
    return build_dropout(
        graph, drop,
        build_embedding(graph, name, ids, vocab, (int64_t)config->options[OPTION_EMBEDDING]),
        dropout_of(config));
}

static struct value *recur(struct graph *graph, const struct model_config *config,
                           const char *name, struct value *x, struct value *ids,
                           struct value *const *state, const struct build_memory *memory,
                           struct value **last)
{
    const struct build_recurrent how = { .units = (int64_t)config->options[OPTION_HIDDEN],
                                         .layers = layers_of(config),
                                         .dropout = dropout_of(config),
                                         .state = state,
                                         .memory = memory,
                                         .last = last };

    return config->options[OPTION_CELL] == CELL_GRU ? build_gru(graph, name, x, ids, how)
                                                    : build_lstm(graph, name, x, ids, how);
}

static bool attends(const struct model_config *config)
{
    return config->options[OPTION_ATTENTION] != 0;
}

/* state gets each layer's after the last token; memory, with attention, what the last layer says of
 * each, and keys made of it. */
static void encode(struct graph *graph, const struct model_config *config, struct value *source,
                   struct value **state, struct build_memory *memory)
{
    struct value *x = embed(graph, config, "encoder_embedding", source, config->vocab[0]);
    struct value *y = recur(graph, config, "encoder", x, source, NULL, NULL, state);

    if (!attends(config))
        return;
    memory->contents = y;
    memory->keys =
        build_linear(graph, "attention.key", y, (int64_t)config->options[OPTION_HIDDEN]);
    memory->ids = source;
}

/* Logits of the tokens that follow those of `target`. */
static struct value *decode(struct graph *graph, const struct model_config *config,
                            struct value *target, struct value *const *state,
                            const struct build_memory *memory, struct value **next)
{
    struct value *x = embed(graph, config, "decoder_embedding", target, config->vocab[1]);
    struct value *y = recur(graph, config, "decoder", x, target, state,
                            attends(config) ? memory : NULL, next);

    return build_linear(graph, "fc", y, config->vocab[1]);
}

static void build_seq2seq(struct graph *graph, const struct model_config *config,
                          struct value *input, struct value *target)
{
    struct value *state[SEQ2SEQ_LAYERS] = { NULL };
    struct build_memory memory = { 0 };

    encode(graph, config, input, state, &memory);
    struct value *logits =
        decode(graph, config, graph_roles(graph)->second, state, &memory, NULL);
    build_token_loss(graph, logits, target);
}

/* Translation -------------------------------------------------------------------------- */

static void set_name(struct graph *graph, struct value *value, const char *name, int number)
{
    char *text = graph_alloc(graph, 16, 1);

    if (!text || !value)
        return;
    snprintf(text, 16, "%s%d", name, number);
    value->name = text;
}

/* Destroys the graph of a build that has failed. */
static enum status finish(struct graph *graph)
{
    const enum status status = graph_verify(graph);

    if (status != STATUS_OK)
        graph_destroy(graph);
    return status;
}

enum status seq2seq_build_encoder(const struct model_config *config,
                                  struct seq2seq_encoder *out)
{
    struct seq2seq_encoder encoder = { .layers = layers_of(config) };
    struct build_memory memory = { 0 };
    struct model_config how = *config;
    struct graph *graph;

    how.training = false;
    TRY(graph_create("encoder", &graph));
    encoder.graph = graph;
    encoder.source =
        graph_sequence(graph, "source", DTYPE_I32, shape_2(how.batch, how.length[0]), 0);
    encode(graph, &how, encoder.source, encoder.state, &memory);
    for (int i = 0; i < encoder.layers; i++)
        set_name(graph, encoder.state[i], "state", i);
    encoder.memory = memory.contents;
    encoder.keys = memory.keys;
    if (encoder.memory && encoder.keys) {
        encoder.memory->name = "memory";
        encoder.keys->name = "keys";
    }
    TRY(finish(graph));
    *out = encoder;
    return STATUS_OK;
}

enum status seq2seq_build_decoder_step(const struct model_config *config,
                                       struct seq2seq_decoder *out)
{
    struct seq2seq_decoder decoder = { .layers = layers_of(config) };
    struct model_config how = *config;
    struct graph *graph;

    how.training = false;
    TRY(graph_create("decoder", &graph));
    decoder.graph = graph;
    const int64_t numbers = how.options[OPTION_CELL] == CELL_GRU ? 1 : 2;
    const struct shape state =
        shape_2(how.batch, numbers * (int64_t)how.options[OPTION_HIDDEN]);
    decoder.token = graph_input(graph, "token", DTYPE_I32, shape_2(how.batch, 1));
    for (int i = 0; i < decoder.layers; i++) {
        decoder.state[i] = graph_input(graph, "state", DTYPE_F32, state);
        set_name(graph, decoder.state[i], "state", i);
    }
    if (attends(&how)) {
        const struct shape places =
            shape_3(how.batch, how.length[0], (int64_t)how.options[OPTION_HIDDEN]);
        decoder.source =
            graph_sequence(graph, "source", DTYPE_I32, shape_2(how.batch, how.length[0]), 0);
        decoder.memory = graph_sequence(graph, "memory", DTYPE_F32, places, 0);
        decoder.keys = graph_sequence(graph, "keys", DTYPE_F32, places, 0);
    }
    const struct build_memory memory = { decoder.memory, decoder.keys, decoder.source };
    decoder.logits = decode(graph, &how, decoder.token, decoder.state, &memory, decoder.next);
    if (decoder.logits)
        decoder.logits->name = "logits";
    for (int i = 0; i < decoder.layers; i++)
        set_name(graph, decoder.next[i], "next", i);
    graph_roles(graph)->output = decoder.logits;
    TRY(finish(graph));
    *out = decoder;
    return STATUS_OK;
}

extern const struct model model_seq2seq;
const struct model model_seq2seq = {
    .name = "seq2seq",
    .summary = "translation by recurrent encoder and decoder",
    .data = "multi30k",
    .optimizer = "adam",
    .task = MODEL_TRANSLATION,
    .vocab = { 8000, 6000 },
    .length = { 25, 24 },
    .options = { [OPTION_CELL] = { .name = "cell",
                                   .summary = "of the layers",
                                   .words = { "lstm", "gru" } },
                 [OPTION_HIDDEN] = { .name = "hidden",
                                     .summary = "units of a layer",
                                     .value = 512,
                                     .minimum = 1,
                                     .maximum = 65536,
                                     .is_whole = true },
                 [OPTION_EMBEDDING] = { .name = "embedding",
                                        .summary = "numbers that stand for a token",
                                        .value = 256,
                                        .minimum = 1,
                                        .maximum = 65536,
                                        .is_whole = true },
                 [OPTION_LAYERS] = { .name = "layers",
                                     .summary = "of the encoder, and of the decoder",
                                     .value = 2,
                                     .minimum = 1,
                                     .maximum = SEQ2SEQ_LAYERS,
                                     .is_whole = true },
                 [OPTION_DROPOUT] = { .name = "dropout",
                                      .summary = "share dropped of embeddings and between "
                                                 "layers in training",
                                      .value = 0.5,
                                      .minimum = 0,
                                      .maximum = 0.99 },
                 [OPTION_ATTENTION] = { .name = "attention",
                                        .summary =
                                            "of the decoder's first layer to the encoder's "
                                            "outputs; LSTM alone",
                                        .words = { "none", "bahdanau" } } },
    .build = build_seq2seq,
};
