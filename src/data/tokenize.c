/* SPDX-License-Identifier: MIT */
/* tokenize.c - the table of tokenizers; what they hand their tokens to. */
#include "data/tokenize.h"

#include "base/mem.h"
#include "base/strbuf.h"
#include "data/vocab_build.h"

#include <stdio.h>
#include <string.h>

enum { IDS_FIRST = 1 << 12, SCRATCH_FIRST = 1 << 10 };

const struct tokenizer *const tokenizer_table[] = {
    &tokenizer_characters,
    &tokenizer_words,
    &tokenizer_gpt2,
    NULL,
};

const struct tokenizer *tokenizer_find(const char *name)
{
    for (int i = 0; tokenizer_table[i]; i++)
        if (strcmp(tokenizer_table[i]->name, name) == 0)
            return tokenizer_table[i];
    return NULL;
}

enum status tokenizer_get(const char *name, const struct tokenizer **out)
{
    enum { LIST_MOST = 256 };
    struct strbuf list;

    *out = tokenizer_find(name);
    if (*out)
        return STATUS_OK;
    strbuf_init(&list, LIST_MOST);
    for (int i = 0; tokenizer_table[i]; i++)
        strbuf_printf(&list, "%s%s", i > 0 ? ", " : "", tokenizer_table[i]->name);
    const enum status status =
        FAIL(STATUS_USAGE, "unknown tokenizer \"%s\": %s, or a folder with GPT-2's files", name,
             list.text);
    strbuf_release(&list);
    return status;
}

void encoder_init(struct encoder *encoder, const struct tokenizer *tokenizer,
                  const struct vocab *vocab)
{
    *encoder = (struct encoder){ .tokenizer = tokenizer, .vocab = vocab };
    encoder->unknown = vocab ? vocab_special(vocab, VOCAB_UNKNOWN) : -1;
}

void encoder_release(struct encoder *encoder)
{
    token_map_release(&encoder->seen);
    token_map_release(&encoder->cache.pieces);
    merge_room_release(&encoder->room);
    mem_free(encoder->cache.start);
    mem_free(encoder->cache.id);
    mem_free(encoder->counts);
    mem_free(encoder->id);
    mem_free(encoder->scratch);
    *encoder = (struct encoder){ 0 };
}

void encoder_add(struct encoder *encoder, const char *text, size_t length)
{
    if (encoder->status == STATUS_OK)
        encoder->tokenizer->encode(encoder, text, length);
}

void encoder_cut(struct encoder *encoder, size_t count)
{
    if (count < encoder->count)
        encoder->count = count;
}

int32_t *encoder_hand_over(struct encoder *encoder, size_t *out_count)
{
    int32_t *id = encoder->id;

    *out_count = encoder->count;
    encoder->id = NULL;
    encoder->count = encoder->capacity = 0;
    return id;
}

void encoder_push(struct encoder *encoder, int32_t id)
{
    if (encoder->count == encoder->capacity) {
        const size_t capacity = encoder->capacity ? 2 * encoder->capacity : IDS_FIRST;
        const enum status status =
            mem_grow(&encoder->id, encoder->capacity, capacity, sizeof *encoder->id);
        if (status != STATUS_OK) {
            encoder->status = status;
            return;
        }
        encoder->capacity = capacity;
    }
    encoder->id[encoder->count++] = id;
}

static void count_token(struct encoder *encoder, const char *bytes, size_t length)
{
    int32_t number;
    enum status status = token_map_add(&encoder->seen, bytes, length, &number);

    if (status == STATUS_OK && (size_t)number >= encoder->counts_capacity) {
        status = mem_grow(&encoder->counts, encoder->counts_capacity, encoder->seen.capacity,
                          sizeof *encoder->counts);
        if (status == STATUS_OK)
            encoder->counts_capacity = encoder->seen.capacity;
    }
    if (status != STATUS_OK) {
        encoder->status = status;
        return;
    }
    encoder->counts[number]++;
    encoder_push(encoder, number);
}

void encoder_take(struct encoder *encoder, const char *bytes, size_t length)
{
    if (!encoder->vocab) {
        count_token(encoder, bytes, length);
        return;
    }
    int32_t id = vocab_find(encoder->vocab, bytes, length);
    if (id < 0)
        id = encoder->unknown;
    encoder_push(encoder, id < 0 ? 0 : id);
    if (id < 0 && encoder->stranger_end == 0) {
        encoder->stranger_bytes =
            length < sizeof encoder->stranger ? length : sizeof encoder->stranger;
        memcpy(encoder->stranger, bytes, encoder->stranger_bytes);
        encoder->stranger_end = encoder->count;
    }
}

const char *encoder_stranger(const struct encoder *encoder, char room[STRANGER_TEXT])
{
    struct strbuf text;

    strbuf_init(&text, STRANGER_TEXT);
    strbuf_add(&text, "\"");
    vocab_print_token(encoder->stranger, encoder->stranger_bytes, &text);
    strbuf_add(&text, "\"");
    snprintf(room, STRANGER_TEXT, "%s",
             strbuf_status(&text) == STATUS_OK ? text.text : "a token");
    strbuf_release(&text);
    return room;
}

bool encoder_make_scratch(struct encoder *encoder, size_t bytes)
{
    size_t capacity = encoder->scratch_capacity ? encoder->scratch_capacity : SCRATCH_FIRST;

    while (capacity < bytes)
        capacity *= 2;
    if (capacity > encoder->scratch_capacity) {
        encoder->status = mem_grow(&encoder->scratch, encoder->scratch_capacity, capacity, 1);
        if (encoder->status == STATUS_OK)
            encoder->scratch_capacity = capacity;
    }
    return encoder->status == STATUS_OK;
}
