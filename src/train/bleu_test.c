/* SPDX-License-Identifier: MIT */
#include "train/bleu.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/test.h"

/* tests/golden/bleu.json: what sacreBLEU says of some corpora. */
static struct json *open_golden(void)
{
    struct json *json;
    char *text;
    size_t length;

    CHECK_OK(file_read(GOLDEN "/bleu.json", 16 << 20, &text, &length));
    CHECK_OK(json_parse(text, length, &json));
    mem_free(text);
    return json;
}

static void check_tokens(const struct json_value *corpus)
{
    const struct json_value *pairs = json_get(corpus, "pairs");
    const struct json_value *tokenized = json_get(corpus, "tokenized");

    for (size_t i = 0; i < pairs->count; i++) {
        struct strbuf words;
        strbuf_init(&words, 1 << 20);
        CHECK_OK(bleu_tokenize(pairs->items[i].items[0].text, &words));
        CHECK_TEXT(tokenized->items[i].text, words.text);
        strbuf_release(&words);
    }
}

static void check_score(const struct json_value *corpus)
{
    const struct json_value *pairs = json_get(corpus, "pairs");
    struct bleu bleu = { 0 };

    for (size_t i = 0; i < pairs->count; i++)
        CHECK_OK(bleu_add(&bleu, pairs->items[i].items[0].text, pairs->items[i].items[1].text));
    const struct bleu_score score = bleu_score(&bleu);
    CHECK_INT(json_integer(corpus, "hypothesis_words", -1), bleu.hypothesis_words);
    CHECK_INT(json_integer(corpus, "reference_words", -1), bleu.reference_words);
    for (int n = 0; n < BLEU_ORDER; n++) {
        CHECK_INT(json_get(corpus, "correct")->items[n].integer, bleu.correct[n]);
        CHECK_INT(json_get(corpus, "total")->items[n].integer, bleu.total[n]);
        CHECK_CLOSE(json_get(corpus, "precisions")->items[n].number, score.precision[n], 1e-12);
    }
    CHECK_CLOSE(json_number(corpus, "bp", NAN), score.brevity_penalty, 1e-12);
    CHECK_CLOSE(json_number(corpus, "score", NAN), score.score, 1e-12);

    struct bleu lower = { .is_lower_case = true };
    for (size_t i = 0; i < pairs->count; i++)
        CHECK_OK(
            bleu_add(&lower, pairs->items[i].items[0].text, pairs->items[i].items[1].text));
    CHECK_CLOSE(json_number(corpus, "lower_case", NAN), bleu_score(&lower).score, 1e-12);
}

static void test_words_are_sacrebleus(void)
{
    struct json *golden = open_golden();
    const struct json_value *corpora = json_get(json_root(golden), "corpora");

    for (size_t i = 0; i < corpora->count; i++)
        check_tokens(&corpora->items[i]);
    json_destroy(golden);
}

static void test_scores_are_sacrebleus(void)
{
    struct json *golden = open_golden();
    const struct json_value *corpora = json_get(json_root(golden), "corpora");

    CHECK(corpora->count > 20);
    for (size_t i = 0; i < corpora->count; i++)
        check_score(&corpora->items[i]);
    json_destroy(golden);
}

static void test_a_corpus_without_segments_scores_0(void)
{
    const struct bleu none = { 0 };

    CHECK(bleu_score(&none).score == 0);
}

/* A segment whose bytes are no UTF-8 is counted all the same, whatever they are. */
static void test_any_bytes_are_counted(struct rng *rng)
{
    struct bleu bleu = { 0 };
    char text[65];
    const size_t length = rng_below(rng, 65);

    for (size_t i = 0; i < length; i++)
        text[i] = (char)(1 + rng_below(rng, 255));
    text[length] = '\0';
    CHECK_OK(bleu_add(&bleu, text, text));
    CHECK_INT(bleu.reference_words, bleu.hypothesis_words);
    for (int n = 0; n < BLEU_ORDER; n++)
        CHECK_INT(bleu.total[n], bleu.correct[n]);
}

const struct test tests[] = {
    { .name = "words are sacreBLEU's", .run = test_words_are_sacrebleus },
    { .name = "scores are sacreBLEU's", .run = test_scores_are_sacrebleus },
    { .name = "a corpus without segments scores 0",
      .run = test_a_corpus_without_segments_scores_0 },
    { .name = "any bytes are counted", .property = test_any_bytes_are_counted },
    { 0 },
};
