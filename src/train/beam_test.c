/* SPDX-License-Identifier: MIT */
/* beam_test.c - searches in a small made-up model, whose logits depend on all tokens so far. */
#include "train/beam.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

enum { TOKENS = 5, END = 4, BEGIN = 3, LONGEST = 4, ROWS = 64 };

/* What a row has seen is a hash of its tokens; logits follow from it, sharper or flatter. */
struct toy {
    uint64_t seed;
    float sharpness;
    int64_t rows, width;
    uint64_t seen[ROWS];
    float logits[ROWS * TOKENS];
    bool started;
};

static uint64_t mix(uint64_t seen, int32_t token)
{
    uint64_t x = (seen ^ (uint64_t)(token + 17)) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static void logits_of(const struct toy *toy, uint64_t seen, float *out)
{
    struct rng rng;

    rng_init(&rng, seen, toy->seed);
    for (int t = 0; t < TOKENS; t++)
        out[t] = toy->sharpness * (float)rng_normal(&rng);
}

static uint64_t start_of(const struct toy *toy, int64_t sentence)
{
    return mix(toy->seed, (int32_t)sentence + 1000);
}

static enum status toy_step(void *arg, const int32_t *parent, const int32_t *token,
                            const float **out)
{
    struct toy *toy = arg;
    uint64_t next[ROWS];

    for (int64_t r = 0; r < toy->rows; r++) {
        CHECK(parent[r] / toy->width == r / toy->width);
        next[r] =
            mix(toy->started ? toy->seen[parent[r]] : start_of(toy, r / toy->width), token[r]);
        if (!toy->started)
            CHECK(token[r] == BEGIN && parent[r] == r);
        logits_of(toy, next[r], toy->logits + r * TOKENS);
    }
    memcpy(toy->seen, next, sizeof next);
    toy->started = true;
    *out = toy->logits;
    return STATUS_OK;
}

static double log_probability(const float *logits, int32_t token)
{
    double sum = 0;

    for (int t = 0; t < TOKENS; t++)
        sum += exp((double)logits[t]);
    return (double)logits[token] - log(sum);
}

/* The best text by trying all. */
struct trial {
    double score;
    int64_t count;
    int32_t tokens[LONGEST];
};

static void try_all(const struct toy *toy, uint64_t seen, struct trial *now, struct trial *best)
{
    float logits[TOKENS];
    const struct trial before = *now;

    logits_of(toy, seen, logits);
    for (int32_t t = 0; t < TOKENS; t++) {
        *now = before;
        now->score += log_probability(logits, t);
        if (t != END)
            now->tokens[now->count++] = t;
        if (t != END && now->count < LONGEST) {
            try_all(toy, mix(seen, t), now, best);
            continue;
        }
        const double mean = now->score / (double)(t == END ? now->count + 1 : now->count);
        if (mean > best->score) {
            *best = *now;
            best->score = mean;
        }
    }
    *now = before;
}

static struct toy make_toy(struct rng *rng, int64_t sentences, int64_t width)
{
    return (struct toy){ .seed = rng_u64(rng),
                         .sharpness = 0.5f + 2 * rng_float(rng),
                         .rows = sentences * width,
                         .width = width };
}

static struct beam_config config_of(int64_t sentences, int64_t width)
{
    return (struct beam_config){ .sentences = sentences,
                                 .width = width,
                                 .vocabulary = TOKENS,
                                 .longest = LONGEST,
                                 .begin = BEGIN,
                                 .end = END };
}

static void test_width_1_takes_the_most_probable_token(struct rng *rng)
{
    enum { SENTENCES = 7 };
    const struct beam_config config = config_of(SENTENCES, 1);
    struct toy toy = make_toy(rng, SENTENCES, 1);
    struct beam_text texts[SENTENCES];

    CHECK_OK(beam_search(&config, toy_step, &toy, texts));
    for (int s = 0; s < SENTENCES; s++) {
        uint64_t seen = mix(start_of(&toy, s), BEGIN);
        int64_t count = 0;
        for (; count < LONGEST; count++) {
            float logits[TOKENS];
            int32_t largest = 0;
            logits_of(&toy, seen, logits);
            for (int32_t t = 1; t < TOKENS; t++)
                largest = logits[t] > logits[largest] ? t : largest;
            if (largest == END)
                break;
            CHECK(count < texts[s].count);
            CHECK_INT(largest, texts[s].tokens[count]);
            seen = mix(seen, largest);
        }
        CHECK_INT(count, texts[s].count);
    }
    beam_release(texts, SENTENCES);
}

/* A text has at most 4 tokens of 4, and hypotheses end all the time: 16 side by side mostly find the best,
 * and never one that is better. */
static void test_a_wide_beam_finds_what_trying_all_finds(void)
{
    enum { SENTENCES = 4, WIDTH = 16, TRIES = 200 };
    int found = 0, narrow_found = 0;

    for (int i = 0; i < TRIES; i++) {
        struct rng rng;
        struct beam_text texts[SENTENCES], narrow[SENTENCES];
        const struct beam_config config = config_of(SENTENCES, WIDTH);
        const struct beam_config greedy = config_of(SENTENCES, 1);
        rng_init(&rng, 7, (uint64_t)i);
        struct toy toy = make_toy(&rng, SENTENCES, WIDTH), other = toy;
        other.rows = SENTENCES;
        other.width = 1;
        CHECK_OK(beam_search(&config, toy_step, &toy, texts));
        CHECK_OK(beam_search(&greedy, toy_step, &other, narrow));
        for (int s = 0; s < SENTENCES; s++) {
            struct trial now = { 0 }, best = { .score = -INFINITY };
            try_all(&toy, mix(start_of(&toy, s), BEGIN), &now, &best);
            CHECK(texts[s].score <= best.score + 1e-9);
            CHECK(narrow[s].score <= best.score + 1e-9);
            found += texts[s].score > best.score - 1e-9;
            narrow_found += narrow[s].score > best.score - 1e-9;
            if (texts[s].score > best.score - 1e-9) {
                CHECK_INT(best.count, texts[s].count);
                CHECK(memcmp(best.tokens, texts[s].tokens,
                             (size_t)best.count * sizeof(int32_t)) == 0);
            }
        }
        beam_release(texts, SENTENCES);
        beam_release(narrow, SENTENCES);
    }
    CHECK(found > TRIES * SENTENCES * 95 / 100);
    CHECK(narrow_found < found);
}

/* What one sentence gives does not depend on which others are searched with it. */
static void test_sentences_do_not_see_each_other(struct rng *rng)
{
    enum { SENTENCES = 5, WIDTH = 3 };
    const struct beam_config all = config_of(SENTENCES, WIDTH), one = config_of(1, WIDTH);
    struct toy toy = make_toy(rng, SENTENCES, WIDTH), alone = toy;
    struct beam_text texts[SENTENCES], first;

    alone.rows = WIDTH;
    CHECK_OK(beam_search(&all, toy_step, &toy, texts));
    CHECK_OK(beam_search(&one, toy_step, &alone, &first));
    CHECK_INT(first.count, texts[0].count);
    CHECK(first.score == texts[0].score);
    CHECK(memcmp(first.tokens, texts[0].tokens, (size_t)first.count * sizeof(int32_t)) == 0);
    beam_release(texts, SENTENCES);
    beam_release(&first, 1);
}

static enum status nan_step(void *arg, const int32_t *parent, const int32_t *token,
                            const float **out)
{
    static const float logits[TOKENS] = { NAN, NAN, NAN, NAN, NAN };

    (void)arg;
    (void)parent;
    (void)token;
    *out = logits;
    return STATUS_OK;
}

static void test_no_numbers_give_an_empty_text(void)
{
    const struct beam_config config = config_of(1, 1);
    struct beam_text text;

    CHECK_OK(beam_search(&config, nan_step, NULL, &text));
    CHECK_INT(0, text.count);
    beam_release(&text, 1);
}

const struct test tests[] = {
    { .name = "width 1 takes the most probable token",
      .property = test_width_1_takes_the_most_probable_token },
    { .name = "a wide beam finds what trying all finds",
      .run = test_a_wide_beam_finds_what_trying_all_finds },
    { .name = "sentences do not see each other",
      .property = test_sentences_do_not_see_each_other },
    { .name = "no numbers give an empty text", .run = test_no_numbers_give_an_empty_text },
    { 0 },
};
