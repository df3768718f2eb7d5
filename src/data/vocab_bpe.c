/* SPDX-License-Identifier: MIT */
/* vocab_bpe.c - GPT-2's files: tokens in JSON, merges a line each.
 *
 * Both write a byte as a character that can be seen: those from ! to ~, from U+00A1 to U+00AC and from U+00AE to
 * U+00FF stand for themselves, the other 68 are U+0100, U+0101, ... in their order. So a space is
 * U+0120, and the merge of " " and "t" is the line "\u0120 t".
 */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "data/tokenize.h"
#include "data/unicode.h"
#include "data/vocab_build.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FILE_MOST = 64 << 20, TOKEN_BYTES = 1024 };

static bool is_seen(uint32_t code)
{
    return (code >= '!' && code <= '~') || (code >= 0xa1 && code <= 0xac) ||
           (code >= 0xae && code <= 0xff);
}

/* The byte that a character stands for, or -1. */
static int byte_of(uint32_t code)
{
    if (is_seen(code))
        return (int)code;
    uint32_t next = 0x100;
    for (int byte = 0; byte < 256; byte++)
        if (!is_seen((uint32_t)byte) && next++ == code)
            return byte;
    return -1;
}

/* The bytes of a token as they are; false if it is too long or has another character. */
static bool to_bytes(const char *text, size_t length, char out[TOKEN_BYTES], size_t *out_length)
{
    size_t count = 0, span;

    for (size_t at = 0; at < length; at += span) {
        const int byte = byte_of(unicode_decode(text + at, length - at, &span));
        if (byte < 0 || count == TOKEN_BYTES)
            return false;
        out[count++] = (char)byte;
    }
    *out_length = count;
    return count > 0;
}

/* Puts the tokens in the order of their numbers, which are 0, 1, 2, ... */
static enum status order_tokens(const char *path, const struct json_value *root,
                                const char **keys)
{
    const int64_t count = (int64_t)root->count;

    for (int64_t i = 0; i < count; i++) {
        const struct json_value *number = &root->items[i];
        if (number->kind != JSON_NUMBER || !number->is_integer || number->integer < 0 ||
            number->integer >= count)
            return FAIL(STATUS_CORRUPT,
                        "%s: \"%s\" has no number from 0 to %" PRId64 " (there are %" PRId64
                        " tokens)",
                        path, root->keys[i], count - 1, count);
        if (keys[number->integer])
            return FAIL(STATUS_CORRUPT, "%s: \"%s\" and \"%s\" have the same number", path,
                        keys[number->integer], root->keys[i]);
        keys[number->integer] = root->keys[i];
    }
    return STATUS_OK;
}

static enum status add_tokens(const char *path, const struct json_value *root,
                              const char **keys, struct vocab *vocab)
{
    static const char END[] = "<|endoftext|>";
    char bytes[TOKEN_BYTES];
    size_t length;

    TRY(order_tokens(path, root, keys));
    for (int32_t i = 0; i < (int32_t)root->count; i++) {
        int32_t id;
        if (!to_bytes(keys[i], strlen(keys[i]), bytes, &length))
            return FAIL(STATUS_CORRUPT, "%s: token %d, \"%s\", is not written as bytes", path,
                        i, keys[i]);
        TRY(token_map_add(&vocab->tokens, bytes, length, &id));
        if (id != i)
            return FAIL(STATUS_CORRUPT, "%s: tokens %d and %d are the same", path, id, i);
    }
    vocab->special[VOCAB_END] = vocab_find(vocab, END, sizeof END - 1);
    return STATUS_OK;
}

static enum status parse_tokens(const struct bpe_text *file, struct vocab *vocab)
{
    const char **keys = NULL;
    struct json *json;

    enum status status = json_parse(file->text, file->length, &json);
    if (status == STATUS_CORRUPT)
        return FAIL(STATUS_CORRUPT, "%s: %s", file->path, status_message());
    TRY(status);
    const struct json_value *root = json_root(json);
    if (root->kind != JSON_OBJECT || root->count == 0)
        status = FAIL(STATUS_CORRUPT, "%s: is no object of tokens and numbers", file->path);
    if (status == STATUS_OK)
        status = mem_alloc(root->count, sizeof *keys, &keys);
    if (status == STATUS_OK)
        status = add_tokens(file->path, root, keys, vocab);
    mem_free(keys);
    json_destroy(json);
    return status;
}

/* One of the two tokens of a line; -1 if it is none. */
static int32_t find_part(const struct vocab *vocab, const char *text, size_t length)
{
    char bytes[TOKEN_BYTES];
    size_t count;

    return to_bytes(text, length, bytes, &count) ? vocab_find(vocab, bytes, count) : -1;
}

/* Lines "LEFT RIGHT" become merges; a first line "#version..." and an empty last one are not. */
static enum status parse_lines(const struct bpe_text *file, const struct vocab *vocab,
                               struct merge *merge, int64_t *line_of, int32_t *out_count)
{
    const char *at = file->text, *end = file->text + file->length;
    int32_t count = 0;

    for (int64_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop ? stop + 1 : end;
        size_t length = (size_t)((stop ? stop : end) - at);
        if (length > 0 && at[length - 1] == '\r')
            length--;
        const bool is_comment = line == 1 && length >= 8 && memcmp(at, "#version", 8) == 0;
        if (!is_comment && !(length == 0 && next == end)) {
            const char *space = length ? memchr(at, ' ', length) : NULL;
            if (!space)
                return FAIL(STATUS_CORRUPT, "%s:%" PRId64 ": not two tokens", file->path, line);
            merge[count] = (struct merge){
                .left = find_part(vocab, at, (size_t)(space - at)),
                .right = find_part(vocab, space + 1, (size_t)(at + length - space - 1)),
            };
            if (merge[count].left < 0 || merge[count].right < 0)
                return FAIL(STATUS_CORRUPT, "%s:%" PRId64 ": a merge of what is no token",
                            file->path, line);
            line_of[count++] = line;
        }
        at = next;
    }
    *out_count = count;
    return STATUS_OK;
}

static enum status parse_merges(const struct bpe_text *file, struct vocab *vocab)
{
    struct merge *merge = NULL;
    int64_t *line_of = NULL;
    int32_t count = 0, at = 0;
    size_t lines = 1;

    for (size_t i = 0; i < file->length; i++)
        lines += file->text[i] == '\n';
    if (lines > TOKEN_MAP_MOST)
        return FAIL(STATUS_CORRUPT, "%s: has %zu lines, more than a vocabulary can", file->path,
                    lines);
    enum status status = mem_alloc(lines, sizeof *merge, &merge);
    if (status == STATUS_OK)
        status = mem_alloc(lines, sizeof *line_of, &line_of);
    if (status == STATUS_OK)
        status = parse_lines(file, vocab, merge, line_of, &count);
    if (status == STATUS_OK)
        status = vocab_set_merges(vocab, merge, count, &at);
    else
        at = -1; /* has said its line */
    if (status == STATUS_CORRUPT && at >= 0)
        status = FAIL(STATUS_CORRUPT, "%s:%" PRId64 ": %s", file->path, line_of[at],
                      status_message());
    mem_free(line_of);
    mem_free(merge);
    return status;
}

enum status vocab_parse_bpe(const struct bpe_text *tokens, const struct bpe_text *merges,
                            struct vocab **out)
{
    struct vocab *vocab;

    TRY(vocab_create(&tokenizer_gpt2, &vocab));
    enum status status = parse_tokens(tokens, vocab);
    if (status == STATUS_OK)
        status = parse_merges(merges, vocab);
    if (status == STATUS_OK)
        status = vocab_finish(vocab);
    if (status != STATUS_OK) {
        vocab_destroy(vocab);
        return status;
    }
    *out = vocab;
    return STATUS_OK;
}

/* Files --------------------------------------------------------------------------------- */

const char *vocab_bpe_name(const char *folder, int file)
{
    static const char *const names[BPE_FILES][2] = { { "encoder.json", "vocab.json" },
                                                     { "vocab.bpe", "merges.txt" } };

    for (int i = 0; i < 2; i++) {
        char *path;
        if (file_join(folder, names[file][i], &path) != STATUS_OK)
            return NULL;
        const bool exists = file_exists(path);
        mem_free(path);
        if (exists)
            return names[file][i];
    }
    return NULL;
}

enum status vocab_read_bpe(const char *folder, struct vocab **out)
{
    struct bpe_text files[BPE_FILES] = { 0 };
    enum status status = STATUS_OK;
    char *path[BPE_FILES] = { NULL }, *text[BPE_FILES] = { NULL };

    for (int i = 0; status == STATUS_OK && i < BPE_FILES; i++) {
        const char *name = vocab_bpe_name(folder, i);
        if (!name)
            status = FAIL(STATUS_NOT_FOUND, "%s: no %s there", folder,
                          i == BPE_TOKENS ? "encoder.json or vocab.json"
                                          : "vocab.bpe or merges.txt");
        if (status == STATUS_OK)
            status = file_join(folder, name, &path[i]);
        if (status == STATUS_OK)
            status = file_read(path[i], FILE_MOST, &text[i], &files[i].length);
        files[i].path = path[i];
        files[i].text = text[i];
    }
    if (status == STATUS_OK)
        status = vocab_parse_bpe(&files[BPE_TOKENS], &files[BPE_MERGES], out);
    for (int i = 0; i < BPE_FILES; i++) {
        mem_free(path[i]);
        mem_free(text[i]);
    }
    return status;
}
