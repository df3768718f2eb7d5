/* SPDX-License-Identifier: MIT */
/* codec.c - the table of codecs, their names, and what all of them share. */
#include "comm/codec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "comm/codec_row.h"
#include "comm/wide.h"

const struct codec *const codecs[] = { &codec_bf16,   &codec_int8,     &codec_topk,
                                       &codec_onebit, &codec_powersgd, NULL };

enum { MOST_CODECS = 16, NAME_BYTES = 32 };

const char *codec_name(const struct codec *codec)
{
    return codec->name;
}

const char *codec_summary(const struct codec *codec)
{
    return codec->summary;
}

/* Names -------------------------------------------------------------------------------- */

static enum status fail_unknown(const char *name)
{
    const char *names[MOST_CODECS + 1] = { NULL };
    char list[256] = "";

    for (int i = 0; codecs[i] && i < MOST_CODECS; i++) {
        const size_t used = strlen(list);
        names[i] = codecs[i]->name;
        (void)snprintf(list + used, sizeof(list) - used, " %s", names[i]);
    }
    const char *meant = suggest_nearest(name, names);
    if (meant)
        return FAIL(STATUS_USAGE, "there is no codec %s; did you mean %s?", name, meant);
    return FAIL(STATUS_USAGE, "there is no codec %s; there are%s", name, list);
}

static enum status read_amount(const struct codec *codec, const char *text, double *out)
{
    const struct codec_amount *amount = &codec->amount;
    char *end;

    if (!amount->name)
        return FAIL(STATUS_USAGE, "codec %s takes no number", codec->name);
    const double number = strtod(text, &end);
    const bool is_number = *text >= '0' && *text <= '9' && *end == '\0';
    if (!is_number || !(number >= amount->least && number <= amount->most) ||
        (amount->is_whole && number != floor(number)))
        return FAIL(STATUS_USAGE,
                    "codec %s:%s: the %s is a %snumber from %g to %g, as in %s:%g", codec->name,
                    text, amount->name, amount->is_whole ? "whole " : "", amount->least,
                    amount->most, codec->name, amount->usual);
    *out = number;
    return STATUS_OK;
}

enum status codec_parse(const char *text, struct codec_config *out)
{
    const char *colon = strchr(text, ':');
    char name[NAME_BYTES];
    int at = 0;

    (void)snprintf(name, sizeof(name), "%.*s", (int)(colon ? colon - text : NAME_BYTES), text);
    while (codecs[at] && strcmp(codecs[at]->name, name) != 0)
        at++;
    if (!codecs[at])
        return fail_unknown(name);
    struct codec_config config = { .codec = codecs[at], .amount = codecs[at]->amount.usual };
    if (colon)
        TRY(read_amount(codecs[at], colon + 1, &config.amount));
    *out = config;
    return STATUS_OK;
}

/* Life --------------------------------------------------------------------------------- */

enum status codec_create(const struct codec_config *config, const struct codec_layout *layout,
                         size_t count, struct codec_state **out)
{
    static const struct codec_layout none = { NULL, 0 };
    struct codec_state *state;

    TRY(mem_alloc(1, sizeof(*state), &state));
    state->codec = config->codec;
    state->config = *config;
    state->count = count;
    enum status status = mem_alloc(count, sizeof(float), &state->error);
    if (status == STATUS_OK && state->codec->create)
        status = state->codec->create(state, layout ? layout : &none);
    if (status != STATUS_OK) {
        codec_destroy(state);
        return status;
    }
    *out = state;
    return STATUS_OK;
}

void codec_destroy(struct codec_state *state)
{
    if (!state)
        return;
    if (state->codec->release)
        state->codec->release(state);
    mem_free(state->error);
    mem_free(state);
}

int codec_vectors(struct codec_state *state, struct codec_vector *out)
{
    int n = 0;

    out[n++] = (struct codec_vector){ "error", state->error, state->count };
    if (state->low_rank) {
        size_t count;
        float *q = codec_powersgd_q(state, &count);
        out[n++] = (struct codec_vector){ "q", q, count };
    }
    return n;
}

/* A step ------------------------------------------------------------------------------- */

int codec_rounds(const struct codec_state *state)
{
    return state->codec->rounds;
}

size_t codec_max_bytes(const struct codec_state *state, int round)
{
    BUG_ON(round < 0 || round >= state->codec->rounds);
    return state->codec->bytes(state, round);
}

size_t codec_encode(struct codec_state *state, int round, const float *gradient, void *payload)
{
    const size_t bytes = codec_max_bytes(state, round);

    BUG_ON((uintptr_t)payload % 4 != 0);
    state->codec->encode(state, round, gradient, payload);
    return bytes;
}

enum status codec_decode(struct codec_state *state, int round, const void *const payloads[],
                         const size_t bytes[], int n, float *sum)
{
    const struct codec *codec = state->codec;
    const size_t expected = codec_max_bytes(state, round);

    BUG_ON(n < 1);
    for (int node = 0; node < n; node++) {
        BUG_ON((uintptr_t)payloads[node] % 4 != 0);
        if (bytes[node] != expected)
            return FAIL(STATUS_CORRUPT, "%s: node %d sent %zu bytes instead of %zu",
                        codec->name, node, bytes[node], expected);
        if (codec->check && codec->check(state, payloads[node]) != STATUS_OK)
            return FAIL(STATUS_CORRUPT, "%s: what node %d sent is damaged", codec->name, node);
    }
    codec->decode(state, round, payloads, n, sum);
    return STATUS_OK;
}

WIDEST static void add_gradient(float *restrict error, const float *restrict gradient,
                                size_t count)
{
    for (size_t i = 0; i < count; i++)
        error[i] += gradient[i];
}

void codec_add(float *restrict error, const float *restrict gradient, size_t count)
{
    add_gradient(error, gradient, count);
}
