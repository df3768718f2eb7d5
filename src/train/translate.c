/* SPDX-License-Identifier: MIT */
/* translate.c - encodes all sentences at once, then searches with the decoder.
 *
 * Values that the decoder takes besides the token are of two kinds: states, which go round from step
 * to step and follow the hypotheses they belong to; and what stays the same for all of a sentence's
 * hypotheses (its tokens, the encoder's memory), which is repeated once for each.
 */
#include "train/translate.h"

#include <string.h>

#include "base/mem.h"
#include "model/seq2seq.h"

enum { FIXED = 3 }; /* source, memory, keys */

/* A buffer of rows. */
struct rows {
    char *memory;
    size_t row_bytes, capacity; /* bytes */
};

struct translator {
    struct translate_config config;
    int64_t vocabulary;
    struct seq2seq_encoder encoder;
    struct seq2seq_decoder decoder;
    struct infer *encode, *decode;
    int layers;
    bool has_fixed;                              /* the decoder looks at the source */
    struct rows encoded[SEQ2SEQ_LAYERS + FIXED]; /* states, then source, memory and keys */
    struct rows state[SEQ2SEQ_LAYERS], next[SEQ2SEQ_LAYERS], fixed[FIXED], token, logits;
    bool started;
    struct extents extents; /* of the decoder */
};

static enum status reserve(struct rows *rows, size_t row_bytes, int64_t count)
{
    const size_t bytes = row_bytes * (size_t)count;

    rows->row_bytes = row_bytes;
    if (rows->memory && bytes <= rows->capacity)
        return STATUS_OK;
    mem_free(rows->memory);
    rows->memory = NULL;
    TRY(mem_alloc(bytes, 1, &rows->memory));
    rows->capacity = bytes;
    return STATUS_OK;
}

static enum status row_bytes_of(const struct infer *infer, struct extents extents,
                                const struct value *value, size_t *out)
{
    struct shape shape;

    TRY(infer_shape(infer, extents, value, &shape));
    *out = (size_t)(shape_count(&shape) / shape.dim[0]) * dtype_size(value->dtype);
    return STATUS_OK;
}

/* Set-up --------------------------------------------------------------------------------- */

static struct infer_config config_of(const struct usable *usable, const struct graph *graph)
{
    return (struct infer_config){ .graph = graph,
                                  .weights = usable->weights,
                                  .choices = usable->choices,
                                  .pool = usable->pool };
}

static enum status make_encoder(struct translator *t, const struct usable *usable)
{
    struct value *out[SEQ2SEQ_LAYERS + FIXED];
    struct infer_config config = config_of(usable, t->encoder.graph);

    for (int i = 0; i < t->layers; i++)
        out[config.n_out++] = t->encoder.state[i];
    if (t->has_fixed) {
        out[config.n_out++] = t->encoder.memory;
        out[config.n_out++] = t->encoder.keys;
    }
    config.in = &t->encoder.source;
    config.n_in = 1;
    config.out = out;
    return infer_create(&config, &t->encode);
}

static enum status make_decoder(struct translator *t, const struct usable *usable)
{
    struct value *in[1 + SEQ2SEQ_LAYERS + FIXED] = { t->decoder.token };
    struct value *out[1 + SEQ2SEQ_LAYERS] = { t->decoder.logits };
    struct infer_config config = config_of(usable, t->decoder.graph);

    config.n_in = config.n_out = 1;
    for (int i = 0; i < t->layers; i++) {
        in[config.n_in++] = t->decoder.state[i];
        out[config.n_out++] = t->decoder.next[i];
    }
    if (t->has_fixed) {
        in[config.n_in++] = t->decoder.source;
        in[config.n_in++] = t->decoder.memory;
        in[config.n_in++] = t->decoder.keys;
    }
    config.in = in;
    config.out = out;
    return infer_create(&config, &t->decode);
}

bool translator_is_for(const struct model *model)
{
    return model == model_find("seq2seq");
}

enum status translator_create(const struct usable *usable,
                              const struct translate_config *config, struct translator **out)
{
    struct model_config model = *usable->config;
    struct translator *t;

    if (!translator_is_for(usable->model))
        return FAIL(STATUS_USAGE, "%s does not translate: seq2seq does", usable->model->name);
    model.training = false;
    TRY(mem_alloc(1, sizeof *t, &t));
    t->config = *config;
    t->vocabulary = model.vocab[1];
    enum status status = seq2seq_build_encoder(&model, &t->encoder);
    if (status == STATUS_OK)
        status = seq2seq_build_decoder_step(&model, &t->decoder);
    t->layers = t->decoder.layers;
    t->has_fixed = t->decoder.memory != NULL;
    if (status == STATUS_OK)
        status = make_encoder(t, usable);
    if (status == STATUS_OK)
        status = make_decoder(t, usable);
    if (status != STATUS_OK) {
        translator_destroy(t);
        return status;
    }
    *out = t;
    return STATUS_OK;
}

void translator_destroy(struct translator *t)
{
    if (!t)
        return;
    for (int i = 0; i < SEQ2SEQ_LAYERS + FIXED; i++)
        mem_free(t->encoded[i].memory);
    for (int i = 0; i < SEQ2SEQ_LAYERS; i++) {
        mem_free(t->state[i].memory);
        mem_free(t->next[i].memory);
    }
    for (int i = 0; i < FIXED; i++)
        mem_free(t->fixed[i].memory);
    mem_free(t->token.memory);
    mem_free(t->logits.memory);
    infer_destroy(t->encode);
    infer_destroy(t->decode);
    graph_destroy(t->encoder.graph);
    graph_destroy(t->decoder.graph);
    mem_free(t);
}

/* Encoding ------------------------------------------------------------------------------- */

/* Extents in which the named sequences have these lengths. */
static struct extents extents_of(int64_t rows, const struct value *first, int64_t first_length,
                                 const struct value *second, int64_t second_length)
{
    struct extents extents = { .rows = rows };

    if (first && first->sequence)
        extents.length[first->sequence - 1] = first_length;
    if (second && second->sequence)
        extents.length[second->sequence - 1] = second_length;
    return extents;
}

/* to[i] = from[i / times] for `count` rows of `to`. */
static enum status repeat(const struct rows *from, int64_t count, int64_t times,
                          struct rows *to)
{
    TRY(reserve(to, from->row_bytes, count));
    for (int64_t i = 0; i < count; i++)
        memcpy(to->memory + (size_t)i * to->row_bytes,
               from->memory + (size_t)(i / times) * from->row_bytes, to->row_bytes);
    return STATUS_OK;
}

static enum status encode(struct translator *t, const int32_t *source, int64_t count,
                          int64_t length)
{
    const struct extents extents = extents_of(count, t->encoder.source, length, NULL, 0);
    struct rows *ids = &t->encoded[SEQ2SEQ_LAYERS];
    void *out[SEQ2SEQ_LAYERS + FIXED];
    const struct value *value[SEQ2SEQ_LAYERS + FIXED] = { 0 };
    int n_out = 0;

    for (int i = 0; i < t->layers; i++)
        value[i] = t->encoder.state[i];
    value[SEQ2SEQ_LAYERS + 1] = t->encoder.memory;
    value[SEQ2SEQ_LAYERS + 2] = t->encoder.keys;
    TRY(reserve(ids, (size_t)length * sizeof *source, count));
    memcpy(ids->memory, source, (size_t)(count * length) * sizeof *source);
    for (int i = 0; i < SEQ2SEQ_LAYERS + FIXED; i++) {
        size_t bytes;
        if (!value[i])
            continue;
        TRY(row_bytes_of(t->encode, extents, value[i], &bytes));
        TRY(reserve(&t->encoded[i], bytes, count));
        out[n_out++] = t->encoded[i].memory;
    }
    return infer_run(t->encode, extents, (const void *const[]){ ids->memory }, out);
}

/* Rows of the decoder, `width` for each sentence. */
static enum status prepare_decoder(struct translator *t, int64_t count, int64_t length)
{
    const int64_t width = t->config.width, rows = count * width;

    t->extents = extents_of(rows, t->decoder.source, length, t->decoder.token, 1);
    t->started = false;
    TRY(reserve(&t->token, sizeof(int32_t), rows));
    TRY(reserve(&t->logits, (size_t)t->vocabulary * sizeof(float), rows));
    for (int i = 0; i < t->layers; i++) {
        TRY(repeat(&t->encoded[i], rows, width, &t->state[i]));
        TRY(reserve(&t->next[i], t->state[i].row_bytes, rows));
    }
    for (int i = 0; t->has_fixed && i < FIXED; i++)
        TRY(repeat(&t->encoded[SEQ2SEQ_LAYERS + i], rows, width, &t->fixed[i]));
    return STATUS_OK;
}

/* Decoding ------------------------------------------------------------------------------- */

/* Each row goes on from the state that its parent came to. */
static void follow_parents(struct translator *t, const int32_t *parent)
{
    for (int i = 0; i < t->layers; i++) {
        const size_t bytes = t->state[i].row_bytes;
        for (int64_t r = 0; r < t->extents.rows; r++)
            memcpy(t->state[i].memory + (size_t)r * bytes,
                   t->next[i].memory + (size_t)parent[r] * bytes, bytes);
    }
}

static enum status decode(void *arg, const int32_t *parent, const int32_t *token,
                          const float **out_logits)
{
    struct translator *t = arg;
    const void *in[1 + SEQ2SEQ_LAYERS + FIXED] = { t->token.memory };
    void *out[1 + SEQ2SEQ_LAYERS] = { t->logits.memory };
    int n_in = 1, n_out = 1;

    if (t->started)
        follow_parents(t, parent);
    t->started = true;
    memcpy(t->token.memory, token, (size_t)t->extents.rows * sizeof *token);
    for (int i = 0; i < t->layers; i++) {
        in[n_in++] = t->state[i].memory;
        out[n_out++] = t->next[i].memory;
    }
    for (int i = 0; t->has_fixed && i < FIXED; i++)
        in[n_in++] = t->fixed[i].memory;
    TRY(infer_run(t->decode, t->extents, in, out));
    *out_logits = (const float *)t->logits.memory;
    return STATUS_OK;
}

enum status translator_run(struct translator *t, const int32_t *source, int64_t count,
                           int64_t length, struct beam_text *out)
{
    const struct beam_config beam = {
        .sentences = count,
        .width = t->config.width,
        .vocabulary = t->vocabulary,
        .longest = t->config.longest,
        .begin = t->config.begin,
        .end = t->config.end,
    };

    TRY(encode(t, source, count, length));
    TRY(prepare_decoder(t, count, length));
    return beam_search(&beam, decode, t, out);
}
