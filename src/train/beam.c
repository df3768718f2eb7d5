/* SPDX-License-Identifier: MIT */
/* beam.c - hypotheses side by side, extended by the best of all their next tokens.
 *
 * Each step looks at the 2 width best extensions of a sentence's hypotheses: at most `width` of them end
 * it, so that `width` are left to go on. An end counts only if it is among the first `width`; so
 * width 1 takes the most probable token each time. Texts are rows of a table that is rewritten as
 * hypotheses replace each other.
 */
#include "train/beam.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"

struct candidate {
    double score; /* log probability of the whole text */
    int32_t row, token;
};

/* One that may go on. */
struct hypothesis {
    double score; /* -infinity: there is none */
};

struct search {
    const struct beam_config *config;
    int64_t rows;
    int64_t length;                /* tokens of the hypotheses so far */
    struct hypothesis *hypotheses; /* one a row */
    int32_t *tokens, *next_tokens; /* rows of `longest` */
    int32_t *parent, *token;       /* of the next step */
    struct candidate *best;        /* 2 width, the best first */
    int64_t *ended;                /* hypotheses of a sentence that have */
    struct beam_text *out;
};

static double log_sum(const float *logits, int64_t count)
{
    float largest = logits[0];
    double sum = 0;

    for (int64_t i = 1; i < count; i++)
        largest = logits[i] > largest ? logits[i] : largest;
    for (int64_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - (double)largest);
    return (double)largest + log(sum);
}

/* Puts a candidate into its place among the best; of equals the one that was there stays before it. */
static int64_t add_candidate(struct candidate *best, int64_t count, int64_t most,
                             struct candidate added)
{
    int64_t at = count < most ? count : most - 1;

    if (count == most && !(added.score > best[most - 1].score))
        return count;
    for (; at > 0 && added.score > best[at - 1].score; at--)
        best[at] = best[at - 1];
    best[at] = added;
    return count < most ? count + 1 : count;
}

/* The best extensions of a sentence's hypotheses; how many there are. */
static int64_t find_best(struct search *s, int64_t sentence, const float *logits)
{
    const int64_t width = s->config->width, vocabulary = s->config->vocabulary;
    int64_t count = 0;

    for (int64_t row = sentence * width; row < (sentence + 1) * width; row++) {
        if (!(s->hypotheses[row].score > (double)-INFINITY))
            continue;
        const float *own = logits + row * vocabulary;
        const double base = s->hypotheses[row].score - log_sum(own, vocabulary);
        for (int64_t v = 0; v < vocabulary; v++) {
            const struct candidate added = { base + (double)own[v], (int32_t)row, (int32_t)v };
            if (added.score > (double)-INFINITY)
                count = add_candidate(s->best, count, 2 * width, added);
        }
    }
    return count;
}

/* Keeps a text that has ended, if it is better than what the sentence has. */
static enum status keep_text(struct search *s, int64_t sentence, const int32_t *tokens,
                             int64_t count, double score)
{
    struct beam_text *text = &s->out[sentence];

    if (text->tokens && !(score > text->score))
        return STATUS_OK;
    if (!text->tokens)
        TRY(mem_alloc((size_t)s->config->longest + 1, sizeof *text->tokens, &text->tokens));
    memcpy(text->tokens, tokens, (size_t)count * sizeof *tokens);
    text->count = count;
    text->score = score;
    return STATUS_OK;
}

static const int32_t *tokens_of(const struct search *s, int64_t row)
{
    return s->tokens + row * s->config->longest;
}

/* Ends or extends the hypotheses of one sentence. */
static enum status extend_sentence(struct search *s, int64_t sentence, const float *logits)
{
    const struct beam_config *c = s->config;
    const int64_t first = sentence * c->width;
    const int64_t count = find_best(s, sentence, logits);
    int64_t kept = 0;

    for (int64_t i = 0; i < count && kept < c->width; i++) {
        const struct candidate *next = &s->best[i];
        if (next->token == c->end) {
            if (i >= c->width)
                continue;
            s->ended[sentence]++;
            TRY(keep_text(s, sentence, tokens_of(s, next->row), s->length,
                          next->score / (double)(s->length + 1)));
            continue;
        }
        const int64_t row = first + kept++;
        int32_t *tokens = s->next_tokens + row * c->longest;
        memcpy(tokens, tokens_of(s, next->row), (size_t)s->length * sizeof *tokens);
        tokens[s->length] = next->token;
        s->parent[row] = next->row;
        s->token[row] = next->token;
        s->hypotheses[row].score = next->score;
    }
    if (kept == 0) /* none goes on */
        s->ended[sentence] = c->width;
    for (; kept < c->width; kept++) {
        s->parent[first + kept] = (int32_t)(first + kept);
        s->token[first + kept] = c->end;
        s->hypotheses[first + kept].score = -INFINITY;
    }
    return STATUS_OK;
}

/* A sentence that is done keeps its rows, which nobody looks at any more. */
static void rest_sentence(struct search *s, int64_t sentence)
{
    for (int64_t i = sentence * s->config->width; i < (sentence + 1) * s->config->width; i++) {
        s->parent[i] = (int32_t)i;
        s->token[i] = s->config->end;
    }
}

static bool is_done(const struct search *s, int64_t sentence)
{
    return s->ended[sentence] >= s->config->width;
}

static enum status extend_all(struct search *s, const float *logits, bool *out_done)
{
    *out_done = true;
    for (int64_t i = 0; i < s->config->sentences; i++) {
        if (is_done(s, i))
            rest_sentence(s, i);
        else
            TRY(extend_sentence(s, i, logits));
        *out_done = *out_done && is_done(s, i);
    }
    int32_t *const swapped = s->tokens;
    s->tokens = s->next_tokens;
    s->next_tokens = swapped;
    s->length++;
    return STATUS_OK;
}

/* Those that did not come to an end count as they are. */
static enum status keep_the_rest(struct search *s)
{
    const int64_t width = s->config->width;

    for (int64_t row = 0; row < s->rows; row++) {
        const double score = s->hypotheses[row].score;
        if (is_done(s, row / width) || !(score > (double)-INFINITY))
            continue;
        TRY(keep_text(s, row / width, tokens_of(s, row), s->length,
                      score / (double)(s->length ? s->length : 1)));
    }
    for (int64_t i = 0; i < s->config->sentences; i++) /* no number was finite */
        TRY(s->out[i].tokens ? STATUS_OK : keep_text(s, i, s->tokens, 0, -INFINITY));
    return STATUS_OK;
}

static enum status walk(struct search *s, beam_step *step, void *arg)
{
    const struct beam_config *c = s->config;
    const float *logits;
    bool done = false;

    for (int64_t row = 0; row < s->rows; row++) { /* one hypothesis a sentence: nothing said */
        s->parent[row] = (int32_t)row;
        s->token[row] = c->begin;
        s->hypotheses[row].score = row % c->width == 0 ? 0 : -INFINITY;
    }
    while (!done && s->length < c->longest) {
        TRY(step(arg, s->parent, s->token, &logits));
        TRY(extend_all(s, logits, &done));
    }
    return keep_the_rest(s);
}

enum status beam_search(const struct beam_config *config, beam_step *step, void *arg,
                        struct beam_text *out)
{
    const size_t rows = (size_t)(config->sentences * config->width);
    const size_t table = rows * (size_t)config->longest + 1;
    struct search s = { .config = config, .rows = (int64_t)rows, .out = out };

    memset(out, 0, (size_t)config->sentences * sizeof *out);
    enum status status = mem_alloc(rows, sizeof *s.hypotheses, &s.hypotheses);
    if (status == STATUS_OK)
        status = mem_alloc(table, sizeof *s.tokens, &s.tokens);
    if (status == STATUS_OK)
        status = mem_alloc(table, sizeof *s.next_tokens, &s.next_tokens);
    if (status == STATUS_OK)
        status = mem_alloc(rows, sizeof *s.parent, &s.parent);
    if (status == STATUS_OK)
        status = mem_alloc(rows, sizeof *s.token, &s.token);
    if (status == STATUS_OK)
        status = mem_alloc(2 * (size_t)config->width, sizeof *s.best, &s.best);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)config->sentences, sizeof *s.ended, &s.ended);
    if (status == STATUS_OK)
        status = walk(&s, step, arg);
    mem_free(s.hypotheses);
    mem_free(s.tokens);
    mem_free(s.next_tokens);
    mem_free(s.parent);
    mem_free(s.token);
    mem_free(s.best);
    mem_free(s.ended);
    if (status != STATUS_OK)
        beam_release(out, config->sentences);
    return status;
}

void beam_release(struct beam_text *texts, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        mem_free(texts[i].tokens);
        texts[i] = (struct beam_text){ 0 };
    }
}
