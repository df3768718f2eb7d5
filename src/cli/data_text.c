/* SPDX-License-Identifier: MIT */
/* data_text.c - tutti data info about text: how much of it there is, in tokens. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "data/text.h"
#include "data/tokenize.h"

/* A data set's splits, tokenized in its usual way. */
struct splits {
    struct text *train, *test;
    enum text_kind kind;
    int sides;
};

static enum status open_splits(const char *name, enum text_kind kind, struct splits *out)
{
    static const enum text_task tasks[] = { [TEXT_LABELLED] = TEXT_CLASSES,
                                            [TEXT_PARALLEL] = TEXT_PAIRS,
                                            [TEXT_PLAIN] = TEXT_NEXT_TOKEN };
    struct text_config config = { .task = tasks[kind], .min_count = 1 };
    struct text *train;

    TRY(text_open(name, TEXT_TRAIN, &config, &train));
    /* Each counts its own vocabulary: what only the test has is no failure here. */
    const enum status status = text_open(name, TEXT_TEST, &config, &out->test);
    if (status != STATUS_OK) {
        text_close(train);
        return status;
    }
    out->train = train;
    out->kind = kind;
    out->sides = kind == TEXT_PARALLEL ? 2 : 1;
    return STATUS_OK;
}

static void print_text(const struct splits *s)
{
    static const char *const sides[] = { "source", "target" };
    const struct source *train = text_as_source(s->train), *test = text_as_source(s->test);
    const struct tokenizer *tokenizer = vocab_tokenizer(text_vocab(s->train, 0));

    printf("%s: %s\n\n", train->info->name, train->info->title);
    printf("  folder       %s\n  format       %s\n", train->path, train->info->format);
    if (s->kind != TEXT_PLAIN)
        printf("  samples      %lld training, %lld test\n", (long long)source_count(train),
               (long long)source_count(test));
    printf("  tokenizer    %s: %s\n", tokenizer->name, tokenizer->summary);
    for (int side = 0; side < s->sides; side++) {
        printf("  %-12s %lld training, %lld test; %d different%s\n",
               s->sides == 2 ? sides[side] : "tokens", (long long)text_tokens(s->train, side),
               (long long)text_tokens(s->test, side), vocab_size(text_vocab(s->train, side)),
               s->sides == 2 ? " tokens" : "");
        if (s->kind != TEXT_PLAIN)
            printf("  %-12s %lld training, %lld test\n", "  longest",
                   (long long)text_longest(s->train, side),
                   (long long)text_longest(s->test, side));
    }
    printf("  fingerprint  %s\n", train->fingerprint);
}

static void count_classes(const struct source *source, int64_t *counts)
{
    for (int64_t i = 0; i < source_count(source); i++)
        counts[source_label(source, i)]++;
}

static enum status print_classes(const struct splits *s)
{
    const int classes = text_classes(s->train);
    int64_t *counts; /* of training, then of test */

    TRY(mem_alloc((size_t)classes, 2 * sizeof *counts, &counts));
    if (classes > 0) {
        count_classes(text_as_source(s->train), counts);
        count_classes(text_as_source(s->test), counts + classes);
        puts("");
    }
    for (int i = 0; i < classes; i++) {
        char room[24];
        printf("  class %-3d %-14s %6lld %6lld\n", i, text_class_name(s->train, i, room),
               (long long)counts[i], (long long)counts[classes + i]);
    }
    mem_free(counts);
    return STATUS_OK;
}

static void print_numbers(struct strbuf *text, const char *key, const int64_t *number,
                          int count)
{
    strbuf_printf(text, ", \"%s\": [", key);
    for (int i = 0; i < count; i++)
        strbuf_printf(text, "%s%lld", i ? ", " : "", (long long)number[i]);
    strbuf_add(text, "]");
}

/* Lists have a number for each side: the text, or source and target. */
static enum status print_json(const struct splits *s)
{
    enum { TEXT_MOST = 1 << 16 };
    const struct source *train = text_as_source(s->train), *test = text_as_source(s->test);
    int64_t tokens[TEXT_SIDES], vocab[TEXT_SIDES], longest[TEXT_SIDES];
    struct strbuf text;

    for (int side = 0; side < s->sides; side++) {
        tokens[side] = text_tokens(s->train, side);
        vocab[side] = vocab_size(text_vocab(s->train, side));
        longest[side] = text_longest(s->train, side);
    }
    strbuf_init(&text, TEXT_MOST);
    strbuf_add(&text, "{\"name\": ");
    strbuf_add_json(&text, train->info->name);
    strbuf_printf(&text, ", \"format\": \"%s\", \"train\": %lld, \"test\": %lld",
                  train->info->format, (long long)source_count(train),
                  (long long)source_count(test));
    strbuf_printf(&text, ", \"tokenizer\": \"%s\"",
                  vocab_tokenizer(text_vocab(s->train, 0))->name);
    print_numbers(&text, "tokens", tokens, s->sides);
    print_numbers(&text, "vocabulary", vocab, s->sides);
    print_numbers(&text, "longest", longest, s->sides);
    strbuf_printf(&text, ", \"classes\": %d, \"fingerprint\": \"%s\"}", text_classes(s->train),
                  train->fingerprint);
    const enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        puts(text.text);
    strbuf_release(&text);
    return status;
}

/* GPT-2's files have tokens, and no text. */
static enum status show_vocabulary(const char *name, bool json)
{
    struct vocab *vocab;

    TRY(text_open_bpe(name, &vocab));
    if (json)
        printf("{\"name\": \"gpt2-bpe\", \"format\": \"bpe\", \"vocabulary\": [%d], "
               "\"fingerprint\": \"%s\"}\n",
               vocab_size(vocab), vocab_fingerprint(vocab));
    else
        printf("%s: a vocabulary for --tokenizer\n\n  tokenizer    %s: %s\n  tokens       %d\n"
               "  fingerprint  %s\n",
               name, vocab_tokenizer(vocab)->name, vocab_tokenizer(vocab)->summary,
               vocab_size(vocab), vocab_fingerprint(vocab));
    vocab_destroy(vocab);
    return STATUS_OK;
}

enum status cli_show_text(const char *name, bool json)
{
    enum text_kind kind;
    struct splits splits;
    bool is_text;

    TRY(text_kind_of(name, &is_text, &kind));
    if (kind == TEXT_VOCABULARY)
        return show_vocabulary(name, json);
    TRY(open_splits(name, kind, &splits));
    enum status status = STATUS_OK;
    if (json) {
        status = print_json(&splits);
    } else {
        print_text(&splits);
        status = print_classes(&splits);
    }
    text_close(splits.test);
    text_close(splits.train);
    return status;
}
