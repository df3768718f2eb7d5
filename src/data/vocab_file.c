/* SPDX-License-Identifier: MIT */
/* vocab_file.c - vocabularies as a text file, a line a token.
 *
 *      tutti vocabulary 1
 *      tokenizer words
 *      specials 0 1 2 -1             <unk> <bos> <eos> <mask>; -1: none
 *      tokens 5894
 *      <unk>
 *      ...
 *      merges 0                      then a line a merge: the numbers of two tokens
 *      tokenizer ...                 the second vocabulary, if there is one
 *      sha256 4f1c...                of all before this line
 *
 * In a token the backslash is \\, and control characters and bytes that are not UTF-8 are \xNN.
 */
#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "data/tokenize.h"
#include "data/vocab_build.h"

#include <inttypes.h>
#include <string.h>

static const char FIRST_LINE[] = "tutti vocabulary 1\n";
static const char LAST_LINE[] = "sha256 ";
enum { LAST_BYTES = sizeof LAST_LINE - 1 + SHA256_HEX }; /* with its line end */

/* Writing ------------------------------------------------------------------------------- */

void vocab_print_token(const char *token, size_t length, struct strbuf *out)
{
    for (size_t at = 0; at < length;) {
        const unsigned char byte = (unsigned char)token[at];
        const size_t span = utf8_span(token + at, length - at);

        if (byte == '\\')
            strbuf_add(out, "\\\\");
        else if (span == 0 || byte < ' ' || byte == 0x7f)
            strbuf_printf(out, "\\x%02x", byte);
        else
            strbuf_add_bytes(out, token + at, span);
        at += span > 0 ? span : 1;
    }
}

void vocab_print(const struct vocab *vocab, struct strbuf *out)
{
    const int32_t n_merges = vocab->merges ? merges_count(vocab->merges) : 0;

    strbuf_printf(out, "tokenizer %s\nspecials", vocab->tokenizer->name);
    for (int i = 0; i < VOCAB_SPECIALS; i++)
        strbuf_printf(out, " %d", vocab->special[i]);
    strbuf_printf(out, "\ntokens %d\n", vocab_size(vocab));
    for (int32_t i = 0; i < vocab_size(vocab); i++) {
        size_t length;
        const char *token = vocab_token(vocab, i, &length);
        vocab_print_token(token, length, out);
        strbuf_add(out, "\n");
    }
    strbuf_printf(out, "merges %d\n", n_merges);
    for (int32_t i = 0; i < n_merges; i++)
        strbuf_printf(out, "%d %d\n", merges_list(vocab->merges)[i].left,
                      merges_list(vocab->merges)[i].right);
}

static void hash_text(const char *text, size_t length, char out[SHA256_HEX])
{
    struct sha256 hash;

    sha256_init(&hash);
    sha256_add(&hash, text, length);
    sha256_end_hex(&hash, out);
}

enum status vocab_save(const char *path, const struct vocab *const *vocab, int count)
{
    char hash[SHA256_HEX];
    struct strbuf text;

    BUG_ON(count < 1 || count > VOCAB_FILE_MOST);
    strbuf_init(&text, VOCAB_BYTES_MOST);
    strbuf_add(&text, FIRST_LINE);
    for (int i = 0; i < count; i++)
        vocab_print(vocab[i], &text);
    enum status status = strbuf_status(&text);
    if (status == STATUS_OK) {
        hash_text(text.text, text.length, hash);
        strbuf_printf(&text, "%s%s\n", LAST_LINE, hash);
        status = strbuf_status(&text);
    }
    if (status == STATUS_OK)
        status = file_replace(path, text.text, text.length);
    strbuf_release(&text);
    return status;
}

/* Reading ------------------------------------------------------------------------------- */

struct parser {
    const char *path;
    const char *at, *end; /* what is left */
    int64_t line;         /* that is looked at, from 1 */
    char *token;          /* as long as the longest line */
};

static enum status fail_at(const struct parser *parser, const char *why)
{
    return FAIL(STATUS_CORRUPT, "%s:%" PRId64 ": %s", parser->path, parser->line, why);
}

/* The next line, without its end; every line has one. */
static enum status next_line(struct parser *parser, const char **out, size_t *out_length)
{
    const char *end = memchr(parser->at, '\n', (size_t)(parser->end - parser->at));

    parser->line++;
    if (!end)
        return fail_at(parser, "the file ends here, with more to come");
    *out = parser->at;
    *out_length = (size_t)(end - parser->at);
    parser->at = end + 1;
    return STATUS_OK;
}

/* A whole number of at most nine digits, a minus before it allowed; moves *at behind it. */
static bool take_number(const char **at, const char *end, int32_t *out)
{
    const bool is_negative = *at < end && **at == '-';
    int32_t number = 0;
    int digits = 0;

    for (*at += is_negative; *at < end && **at >= '0' && **at <= '9' && digits < 10;
         ++*at, digits++)
        number = digits < 9 ? 10 * number + (**at - '0') : number;
    *out = is_negative ? -number : number;
    return digits > 0 && digits < 10;
}

/* "WORD NUMBER": the number, from 0 to `most`. */
static enum status parse_count(struct parser *parser, const char *word, int32_t most,
                               int32_t *out)
{
    const size_t bytes = strlen(word);
    const char *line;
    size_t length;

    TRY(next_line(parser, &line, &length));
    const char *at = line + bytes, *end = line + length;
    if (length <= bytes || memcmp(line, word, bytes) != 0 || !take_number(&at, end, out) ||
        at != end || *out < 0 || *out > most)
        return FAIL(STATUS_CORRUPT, "%s:%" PRId64 ": not \"%s\" and a number up to %d",
                    parser->path, parser->line, word, most);
    return STATUS_OK;
}

static enum status parse_tokenizer(struct parser *parser, const struct tokenizer **out)
{
    static const char WORD[] = "tokenizer ";
    const char *line;
    char name[32];
    size_t length;

    TRY(next_line(parser, &line, &length));
    const size_t bytes = length - (sizeof WORD - 1);
    if (length < sizeof WORD || memcmp(line, WORD, sizeof WORD - 1) != 0 ||
        bytes >= sizeof name)
        return fail_at(parser, "not \"tokenizer NAME\"");
    memcpy(name, line + sizeof WORD - 1, bytes);
    name[bytes] = '\0';
    *out = tokenizer_find(name);
    return *out && strlen(name) == bytes ? STATUS_OK
                                         : fail_at(parser, "no tokenizer has this name");
}

static enum status parse_specials(struct parser *parser, int32_t special[VOCAB_SPECIALS])
{
    static const char WORD[] = "specials";
    const char *line;
    size_t length;

    TRY(next_line(parser, &line, &length));
    const char *at = line + sizeof WORD - 1, *end = line + length;
    bool is_good = length >= sizeof WORD && memcmp(line, WORD, sizeof WORD - 1) == 0;
    for (int i = 0; is_good && i < VOCAB_SPECIALS; i++) {
        is_good = at < end && *at++ == ' ';
        is_good = is_good && take_number(&at, end, &special[i]) && special[i] >= -1;
    }
    return is_good && at == end ? STATUS_OK : fail_at(parser, "not \"specials\" and 4 numbers");
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undoes print_token; `out` is no longer than the line. */
static bool unescape(const char *line, size_t length, char *out, size_t *out_length)
{
    size_t count = 0;

    for (size_t i = 0; i < length; i++) {
        if (line[i] != '\\') {
            out[count++] = line[i];
        } else if (i + 1 < length && line[i + 1] == '\\') {
            out[count++] = '\\';
            i++;
        } else if (i + 3 < length && line[i + 1] == 'x' && hex_digit(line[i + 2]) >= 0 &&
                   hex_digit(line[i + 3]) >= 0) {
            out[count++] = (char)(16 * hex_digit(line[i + 2]) + hex_digit(line[i + 3]));
            i += 3;
        } else {
            return false;
        }
    }
    *out_length = count;
    return true;
}

static enum status parse_tokens(struct parser *parser, struct vocab *vocab)
{
    int32_t count, id;

    TRY(parse_count(parser, "tokens ", TOKEN_MAP_MOST, &count));
    if (count == 0)
        return fail_at(parser, "a vocabulary without tokens");
    for (int32_t i = 0; i < count; i++) {
        const char *line;
        size_t length, bytes;
        TRY(next_line(parser, &line, &length));
        if (!unescape(line, length, parser->token, &bytes))
            return fail_at(parser, "a backslash that is neither \\\\ nor \\xNN");
        if (bytes == 0)
            return fail_at(parser, "an empty token");
        TRY(token_map_add(&vocab->tokens, parser->token, bytes, &id));
        if (id != i)
            return fail_at(parser, "a token that was there before");
    }
    for (int i = 0; i < VOCAB_SPECIALS; i++)
        if (vocab->special[i] >= count)
            return FAIL(STATUS_CORRUPT, "%s: special token %d is none of %d", parser->path,
                        vocab->special[i], count);
    return STATUS_OK;
}

static enum status parse_merge_lines(struct parser *parser, const struct vocab *vocab,
                                     struct merge *merge, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        const char *line;
        size_t length;
        TRY(next_line(parser, &line, &length));
        const char *at = line, *end = line + length;
        if (!take_number(&at, end, &merge[i].left) || at == end || *at++ != ' ' ||
            !take_number(&at, end, &merge[i].right) || at != end)
            return fail_at(parser, "not two numbers");
        if (merge[i].left < 0 || merge[i].left >= vocab_size(vocab) || merge[i].right < 0 ||
            merge[i].right >= vocab_size(vocab))
            return fail_at(parser, "a merge of what is no token");
    }
    return STATUS_OK;
}

static enum status parse_merges(struct parser *parser, struct vocab *vocab)
{
    struct merge *merge;
    int32_t count, at = 0;

    TRY(parse_count(parser, "merges ", TOKEN_MAP_MOST, &count));
    if (count > (parser->end - parser->at) / 4) /* "0 1\n" is the shortest */
        return fail_at(parser, "more merges than the file has lines");
    if (count == 0 && !vocab->tokenizer->has_own_vocab)
        return STATUS_OK;
    if (!vocab->tokenizer->has_own_vocab)
        return fail_at(parser, "merges, which the tokenizer has no use for");
    const int64_t line = parser->line;
    TRY(mem_alloc((size_t)count, sizeof *merge, &merge));
    enum status status = parse_merge_lines(parser, vocab, merge, count);
    if (status == STATUS_OK)
        status = vocab_set_merges(vocab, merge, count, &at);
    else
        at = -1; /* has said its line */
    if (status == STATUS_CORRUPT && at >= 0)
        status = FAIL(STATUS_CORRUPT, "%s:%" PRId64 ": %s", parser->path, line + 1 + at,
                      status_message());
    mem_free(merge);
    return status;
}

static enum status parse_vocab(struct parser *parser, struct vocab **out)
{
    const struct tokenizer *tokenizer;
    struct vocab *vocab;

    TRY(parse_tokenizer(parser, &tokenizer));
    TRY(vocab_create(tokenizer, &vocab));
    enum status status = parse_specials(parser, vocab->special);
    if (status == STATUS_OK)
        status = parse_tokens(parser, vocab);
    if (status == STATUS_OK)
        status = parse_merges(parser, vocab);
    if (status == STATUS_OK)
        status = vocab_finish(vocab);
    if (status != STATUS_OK) {
        vocab_destroy(vocab);
        return status;
    }
    *out = vocab;
    return STATUS_OK;
}

/* The first and the last line, which say that the file is whole. */
static enum status check_whole(const char *path, const char *text, size_t length)
{
    const size_t first = sizeof FIRST_LINE - 1, last = LAST_BYTES;
    char hash[SHA256_HEX];

    if (length < first || memcmp(text, FIRST_LINE, first) != 0)
        return FAIL(STATUS_CORRUPT, "%s: is no vocabulary of tutti", path);
    if (length < first + last || text[length - 1] != '\n' ||
        memcmp(text + length - last, LAST_LINE, sizeof LAST_LINE - 1) != 0)
        return FAIL(STATUS_CORRUPT, "%s: is cut off, its checksum is missing", path);
    hash_text(text, length - last, hash);
    if (memcmp(text + length - SHA256_HEX, hash, SHA256_HEX - 1) != 0)
        return FAIL(STATUS_CORRUPT, "%s: is damaged, its checksum does not match", path);
    return STATUS_OK;
}

enum status vocab_parse(const char *path, const char *text, size_t length,
                        struct vocab *out[VOCAB_FILE_MOST], int *out_count)
{
    struct parser parser = { .path = path, .line = 1 };
    struct vocab *made[VOCAB_FILE_MOST] = { NULL };
    int count = 0;

    TRY(check_whole(path, text, length));
    parser.at = text + sizeof FIRST_LINE - 1;
    parser.end = text + length - LAST_BYTES;
    TRY(mem_alloc(length, 1, &parser.token));
    enum status status = STATUS_OK;
    while (status == STATUS_OK && count < VOCAB_FILE_MOST && (parser.at < parser.end || !count))
        status = parse_vocab(&parser, &made[count++]);
    mem_free(parser.token);
    if (status == STATUS_OK && parser.at < parser.end)
        status = FAIL(STATUS_CORRUPT, "%s:%" PRId64 ": nothing more belongs here", path,
                      parser.line + 1);
    for (int i = 0; i < count && status != STATUS_OK; i++)
        vocab_destroy(made[i]);
    if (status == STATUS_OK) {
        memcpy(out, made, sizeof made);
        *out_count = count;
    }
    return status;
}

enum status vocab_load(const char *path, struct vocab *out[VOCAB_FILE_MOST], int *out_count)
{
    size_t length;
    char *text;

    TRY(file_read(path, VOCAB_BYTES_MOST, &text, &length));
    const enum status status = vocab_parse(path, text, length, out, out_count);
    mem_free(text);
    return status;
}
