/* SPDX-License-Identifier: MIT */
/* text.c - an open text: found, tokenized and described. */
#include "data/text.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/format.h"
#include "data/search.h"
#include "data/text_source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_MOST = UINT16_MAX };

/* What a task is made of, and what it needs in a vocabulary. */
static const struct task {
    enum text_kind kind;
    const char *wants; /* as a refusal says it */
    bool is_stream;
    int64_t min_count;
    bool special[VOCAB_SPECIALS];
} TASKS[TEXT_TASKS] = {
    [TEXT_CLASSES] = { TEXT_LABELLED, "text with classes, as imdb", false, 1, { true } },
    [TEXT_PAIRS] = { TEXT_PARALLEL,
                     "sentences and their translations, as multi30k",
                     false,
                     2,
                     { true, true, true } },
    [TEXT_NEXT_TOKEN] = { TEXT_PLAIN,
                          "running text, as shakespeare or wikitext2",
                          true,
                          1,
                          { false } },
    [TEXT_MASKED_TOKEN] = { TEXT_PLAIN,
                            "running text, as shakespeare or wikitext2",
                            true,
                            1,
                            { [VOCAB_MASK] = true } },
};

/* Finding ------------------------------------------------------------------------------- */

static const char *name_of(const char *folder)
{
    const char *slash = strrchr(folder, '/');

    return slash && slash[1] ? slash + 1 : folder;
}

enum status text_kind_of(const char *name, bool *out_is_text, enum text_kind *out_kind)
{
    const struct format *format;
    char *folder;

    TRY(search_find(name, &folder));
    const enum status status = format_detect(folder, &format);
    mem_free(folder);
    TRY(status);
    *out_is_text = format->text != NULL;
    if (format->text)
        *out_kind = format->text->kind;
    return STATUS_OK;
}

enum status text_open_bpe(const char *folder, struct vocab **out)
{
    char *found;

    TRY(search_find(folder ? folder : "gpt2-bpe", &found));
    const enum status status = vocab_read_bpe(found, out);
    mem_free(found);
    return status;
}

/* Classes are called by the words in the file, else as the row has them, else by numbers. */
static void describe_classes(struct text *text)
{
    const struct text_data *data = &text->data;
    const bool has_row = text->known.info && data->classes <= text->known.info->classes;

    text->own = *text->info;
    if (data->names.name || !has_row) {
        text->own.classes = data->classes;
        text->own.class_names = data->names.name;
    }
    text->info = &text->own;
}

static enum status find_files(struct text *text, const char *name)
{
    const struct task *task = &TASKS[text->config.task];
    const struct format *format;

    TRY(search_find(name, &text->folder));
    for (size_t end = strlen(text->folder); end > 1 && text->folder[end - 1] == '/'; end--)
        text->folder[end - 1] = '\0';
    TRY(known_find(name, text->folder, &text->known));
    text->info = text->known.info;
    TRY(format_detect(text->folder, &format));
    if (!format->text || format->text->kind != task->kind)
        return FAIL(STATUS_USAGE, "%s: is %s; the model learns from %s", name,
                    format->is_table                      ? "a table"
                    : !format->text                       ? "a set of images"
                    : format->text->kind == TEXT_LABELLED ? "text with classes"
                    : format->text->kind == TEXT_PARALLEL ? "pairs of sentences"
                    : format->text->kind == TEXT_PLAIN    ? "running text"
                                                          : "a vocabulary",
                    task->wants);
    if (!text->info) {
        text->own = (struct dataset_info){ .name = name_of(text->folder),
                                           .title = text->folder,
                                           .format = format->name };
        text->info = &text->own;
    }
    TRY(format->text->open(text->folder, text->split, &text->data));
    if (text->data.label && text->data.classes < 2 && !text->config.any_classes)
        return FAIL(STATUS_CORRUPT, "%s: all labels are the same", text->data.file[0].path);
    if (text->data.label)
        describe_classes(text);
    return STATUS_OK;
}

/* Vocabularies -------------------------------------------------------------------------- */

static const char *usual_tokenizer(const struct text *text)
{
    if (text->info->tokenizer)
        return text->info->tokenizer;
    return TASKS[text->config.task].is_stream ? "characters" : "words";
}

/* A vocabulary from files; with <mask> if the task needs it. */
static enum status read_vocab(struct text *text, const char *folder)
{
    struct vocab *vocab;

    TRY(text_open_bpe(folder, &vocab));
    if (text->config.task == TEXT_MASKED_TOKEN) {
        const struct vocab *bare = vocab;
        const enum status status = vocab_add_mask(bare, &vocab);
        vocab_destroy((struct vocab *)bare);
        TRY(status);
    }
    text->own_vocab[0] = vocab;
    text->vocab[0] = vocab;
    return STATUS_OK;
}

/* Does a given vocabulary have what the task needs, and is it of the tokenizer that is asked for? */
static enum status check_vocab(const struct text *text, const struct vocab *vocab)
{
    const struct task *task = &TASKS[text->config.task];
    const char *asked = text->config.tokenizer;
    const struct tokenizer *own = vocab_tokenizer(vocab);

    if (asked && *asked && !strchr(asked, '/') && strcmp(asked, own->name) != 0)
        return FAIL(STATUS_MISMATCH,
                    "the vocabulary of the run is of %s, --tokenizer %s asks for another",
                    own->name, asked);
    for (int i = 1; i < VOCAB_SPECIALS; i++)
        if ((task->special[i] || (i == VOCAB_END && task->is_stream && own->ends_lines)) &&
            vocab_special(vocab, i) < 0)
            return FAIL(STATUS_MISMATCH,
                        "the vocabulary has no %s: it was made for another kind of model",
                        vocab_special_text[i]);
    return STATUS_OK;
}

static enum status tokenizer_of(struct text *text, const struct tokenizer **out)
{
    const char *asked = text->config.tokenizer;
    const char *name = asked && *asked ? asked : usual_tokenizer(text);
    const bool is_path = strchr(name, '/') != NULL;

    if (text->vocab[0]) {
        *out = vocab_tokenizer(text->vocab[0]);
        return check_vocab(text, text->vocab[0]);
    }
    if (is_path)
        *out = &tokenizer_gpt2;
    else
        TRY(tokenizer_get(name, out));
    if (!(*out)->has_own_vocab)
        return STATUS_OK;
    if (text->config.task == TEXT_PAIRS)
        return FAIL(STATUS_USAGE,
                    "pairs of sentences need <bos> and <eos>, which %s lacks: "
                    "use --tokenizer words or characters",
                    name);
    return read_vocab(text, is_path ? name : NULL);
}

/* Tokens -------------------------------------------------------------------------------- */

static enum status encode_side(struct text *text, const struct tokenizer *tokenizer, int side)
{
    const struct task *task = &TASKS[text->config.task];
    const struct text_config *config = &text->config;
    struct encode_config encode = {
        .file = &text->data.file[side],
        .span = text->data.span[side],
        .count = text->data.count,
        .is_stream = task->is_stream,
        .length = config->length[side],
        .tokenizer = tokenizer,
        .vocab = text->vocab[side],
        .rule = { .min_count = config->min_count ? config->min_count : task->min_count,
                  .most = config->most },
        .rest = text->data.rest,
        .threads = config->threads,
    };

    if (text->vocab[side])
        TRY(check_vocab(text, text->vocab[side]));
    memcpy(encode.rule.special, task->special, sizeof encode.rule.special);
    if (tokenizer->ends_lines) { /* words: there are always others */
        encode.rule.special[VOCAB_UNKNOWN] = true;
        encode.rule.special[VOCAB_END] |= task->is_stream;
    }
    if (config->min_count > 1) /* who asks for it wants rare tokens to be one, now and later */
        encode.rule.special[VOCAB_UNKNOWN] = true;
    TRY(text_encode(&encode, &text->side[side]));
    if (!text->vocab[side]) {
        text->own_vocab[side] = text->side[side].vocab;
        text->side[side].vocab = NULL;
        text->vocab[side] = text->own_vocab[side];
    }
    return STATUS_OK;
}

static enum status encode(struct text *text)
{
    const int sides = text->config.task == TEXT_PAIRS ? 2 : 1;
    const double begin = clock_seconds();
    const struct tokenizer *tokenizer;
    int64_t tokens = 0;

    if (text->config.task == TEXT_PAIRS && !text->vocab[0] != !text->vocab[1])
        return FAIL(STATUS_MISMATCH, "one vocabulary, where source and target have one each");
    TRY(tokenizer_of(text, &tokenizer));
    for (int side = 0; side < sides; side++) {
        TRY(encode_side(text, tokenizer, side));
        tokens += text->side[side].tokens;
    }
    log_line(LOG_INFO, "%s: %" PRId64 " tokens (%s), a vocabulary of %d, in %.1f s",
             text->folder, tokens, tokenizer->name, vocab_size(text->vocab[0]),
             clock_seconds() - begin);
    return STATUS_OK;
}

/* Samples ------------------------------------------------------------------------------- */

static int64_t round_up(int64_t length)
{
    return (length + SOURCE_ROUND - 1) / SOURCE_ROUND * SOURCE_ROUND;
}

/* Lengths of documents, and the keys that bring those of like length together. */
static enum status measure_documents(struct text *text)
{
    const int sides = text->config.task == TEXT_PAIRS ? 2 : 1;

    text->whole = text->data.count;
    TRY(mem_alloc((size_t)text->whole, sizeof *text->key, &text->key));
    TRY(mem_alloc((size_t)text->whole, sizeof *text->by_key, &text->by_key));
    for (int side = 0; side < sides; side++) {
        text->length[side] = text->config.length[side];
        for (int64_t i = 0; i < text->whole; i++) {
            const int64_t own = text_length_of(text, i, side);
            const int64_t part = own < KEY_MOST ? own : KEY_MOST;
            text->longest[side] = own > text->longest[side] ? own : text->longest[side];
            text->key[i] |= (uint32_t)part << 16 * side; /* the target's counts first */
        }
    }
    return STATUS_OK;
}

static enum status measure_stream(struct text *text)
{
    const int64_t length = text->config.length[0] ? text->config.length[0] : TEXT_LENGTH;
    const int64_t tokens = text->side[0].start[1];

    if (tokens < 2)
        return FAIL(STATUS_CORRUPT, "%s: has %" PRId64 " tokens, too few to learn from",
                    text->data.file[0].path, tokens);
    text->length[0] = text_stream_length(text) < length ? text_stream_length(text) : length;
    text->longest[0] = text->length[0];
    text->whole = text_block_count(text);
    return STATUS_OK;
}

static void describe_source(struct text *text)
{
    const int sides = text->config.task == TEXT_PAIRS ? 2 : 1;
    struct source *source = &text->source;

    for (int side = 0; side < sides; side++) {
        const int64_t longest = round_up(text->longest[side]), most = text->length[side];
        const int64_t ids = most > 0 && longest > most ? most : longest;
        source->row_bytes[side == 0 ? SOURCE_X : SOURCE_X2] = (size_t)ids * sizeof(int32_t);
        source->row_bytes[SOURCE_Y] = (size_t)ids * sizeof(int32_t);
    }
    if (text->config.task == TEXT_CLASSES)
        source->row_bytes[SOURCE_Y] = sizeof(int32_t);
    for (int side = 0; side < sides; side++) {
        const struct encoded *own = &text->side[side];
        const int64_t count = TASKS[text->config.task].is_stream ? 1 : text->data.count;
        source->held_bytes += (size_t)own->start[count] * sizeof *own->id +
                              (size_t)(count + 1) * sizeof *own->start;
    }
    source->kind = &text_kinds[text->config.task];
    source->info = text->info;
    source->path = text->folder;
    source->fingerprint = text->fingerprint;
    source->old_fingerprint = text->old_fingerprint;
    source->sample = shape_1((int64_t)(source->row_bytes[SOURCE_X] / sizeof(int32_t)));
    source->key = text->key;
    source->by_key = text->by_key;
}

static void hash_contents(const struct text *text, const char *name, char out[SHA256_HEX])
{
    struct sha256 hash;
    char head[512];

    snprintf(head, sizeof head, "tutti text 1\n%s\n%d\n%d\n%" PRId64 "\n%" PRId64 "\n%d\n",
             name, (int)text->split, (int)text->config.task, text->length[0], text->length[1],
             text->data.classes);
    sha256_init(&hash);
    sha256_add(&hash, head, strlen(head));
    for (int side = 0; side < TEXT_SIDES && text->vocab[side]; side++) {
        const struct encoded *own = &text->side[side];
        const int64_t count = TASKS[text->config.task].is_stream ? 1 : text->data.count;
        const char *vocab = vocab_fingerprint(text->vocab[side]);
        sha256_add(&hash, vocab, strlen(vocab));
        sha256_add(&hash, own->start, (size_t)(count + 1) * sizeof *own->start);
        sha256_add(&hash, own->id, (size_t)own->start[count] * sizeof *own->id);
    }
    if (text->data.label)
        sha256_add(&hash, text->data.label, (size_t)text->data.count * sizeof(int32_t));
    sha256_end_hex(&hash, out);
}

/* Names as in hash_names of dataset.c. */
static void hash_names(struct text *text)
{
    const char *folder = name_of(text->folder);
    const struct dataset_info *known = text->known.info, *called = dataset_find(folder);

    hash_contents(text, known ? known->name : "", text->contents);
    if (known && known == called)
        memcpy(text->old_contents, text->contents, sizeof text->contents);
    else
        hash_contents(text, called ? called->name : folder, text->old_contents);
}

static void hash_count(const char *contents, int64_t count, char out[SHA256_HEX])
{
    char line[128];
    struct sha256 hash;

    snprintf(line, sizeof line, "%s\n%" PRId64 "\n", contents, count);
    sha256_init(&hash);
    sha256_add(&hash, line, strlen(line));
    sha256_end_hex(&hash, out);
}

static enum status check_config(const struct text_config *config)
{
    if (config->min_count < 0 || config->most < 0 || config->length[0] < 0 ||
        config->length[1] < 0)
        return FAIL(STATUS_USAGE,
                    "a minimum count, a vocabulary's size and a length are no less than 0");
    if (config->most == 1)
        return FAIL(STATUS_USAGE, "a vocabulary of 1 token: there is nothing to tell apart");
    return STATUS_OK;
}

static enum status prepare(struct text *text, const char *name)
{
    const bool is_stream = TASKS[text->config.task].is_stream;

    TRY(check_config(&text->config));
    TRY(find_files(text, name));
    TRY(encode(text));
    TRY(is_stream ? measure_stream(text) : measure_documents(text));
    describe_source(text);
    hash_names(text);
    text_limit(text, 0);
    if (text->config.task == TEXT_PAIRS)
        return STATUS_OK; /* its lines are wanted again */
    mem_free(text->data.span[0]);
    text->data.span[0] = NULL;
    text_file_close(&text->data.file[0]);
    return STATUS_OK;
}

enum status text_open(const char *name, enum text_split split, const struct text_config *config,
                      struct text **out)
{
    struct text *text;

    TRY(mem_alloc(1, sizeof *text, &text));
    text->config = *config;
    text->split = split;
    text->vocab[0] = config->vocab[0];
    text->vocab[1] = config->vocab[1];
    const enum status status = prepare(text, name);
    if (status != STATUS_OK) {
        text_close(text);
        return status;
    }
    text->config.tokenizer = NULL; /* was borrowed for the call */
    *out = text;
    return STATUS_OK;
}

void text_close(struct text *text)
{
    if (!text)
        return;
    for (int side = 0; side < TEXT_SIDES; side++) {
        encoded_release(&text->side[side]);
        vocab_destroy(text->own_vocab[side]);
    }
    text_data_release(&text->data);
    mem_free(text->key);
    mem_free(text->by_key);
    mem_free(text->folder);
    mem_free(text);
}

/* By key, then number. */
static int compare_keys(const void *a, const void *b, void *arg)
{
    const uint32_t *key = arg;
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    if (key[x] != key[y])
        return key[x] < key[y] ? -1 : 1;
    return (x > y) - (x < y);
}

void text_limit(struct text *text, int64_t limit)
{
    text->source.count = limit > 0 && limit < text->whole ? limit : text->whole;
    if (text->by_key) {
        for (int32_t i = 0; i < (int32_t)text->source.count; i++)
            text->by_key[i] = i;
        qsort_r(text->by_key, (size_t)text->source.count, sizeof *text->by_key, compare_keys,
                text->key);
    }
    hash_count(text->contents, text->source.count, text->fingerprint);
    hash_count(text->old_contents, text->source.count, text->old_fingerprint);
}

const struct source *text_as_source(const struct text *text)
{
    return &text->source;
}

const struct vocab *text_vocab(const struct text *text, int side)
{
    return text->vocab[side];
}

int text_classes(const struct text *text)
{
    return text->data.classes;
}

enum status text_set_classes(struct text *text, const struct class_list *run)
{
    struct text_data *data = &text->data;
    const struct class_source own = {
        .path = text->folder,
        .name = text->info->class_names,
        .count = data->classes,
        .are_numbers = !data->names.name,
        .warns = text->split == TEXT_TRAIN, /* one line is enough */
    };
    int32_t *map;

    BUG_ON(text->run || !data->label);
    TRY(mem_alloc((size_t)own.count, sizeof *map, &map));
    const enum status status = class_map(&own, run, map);
    for (int64_t i = 0; i < text->whole && status == STATUS_OK; i++)
        data->label[i] = map[data->label[i]];
    mem_free(map);
    TRY(status);
    data->classes = text->own.classes = run->count;
    text->own.class_names = run->name;
    text->run = run;
    return STATUS_OK;
}

const char *text_class_name(const struct text *text, int class, char room[24])
{
    if (text->info->class_names && class < text->info->classes)
        return text->info->class_names[class];
    snprintf(room, 24, "%d", class);
    return room;
}

int64_t text_tokens(const struct text *text, int side)
{
    return text->side[side].tokens;
}

int64_t text_longest(const struct text *text, int side)
{
    return text->longest[side];
}

const char *text_line(const struct text *text, int64_t index, int side, size_t *out_length)
{
    BUG_ON(text->config.task != TEXT_PAIRS || index < 0 || index >= text->source.count);
    *out_length = text->data.span[side][index].length;
    return text->data.span[side][index].bytes;
}
