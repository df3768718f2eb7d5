/* SPDX-License-Identifier: MIT */
/* fuzz_text.c - text files: what is accepted as UTF-8 has lines that lie in it, and labelled text of two
 * files, with a NUL between them, has a class for every line. Tokenizers take any bytes. */
#include "base/mem.h"
#include "data/text_format.h"
#include "data/tokenize.h"
#include "data/unicode.h"
#include "fuzz.h"

#include <string.h>

static void check_span(const struct text_file *file, struct text_span span)
{
    BUG_ON(span.bytes < file->bytes || span.bytes + span.length > file->bytes + file->length);
    BUG_ON(span.length && memchr(span.bytes, '\n', span.length));
}

static void check_lines(const struct text_file *file)
{
    struct text_span *lines;
    int64_t count;

    BUG_ON(text_file_lines(file, &lines, &count) != STATUS_OK || count < 1);
    for (int64_t i = 0; i < count; i++) {
        check_span(file, lines[i]);
        BUG_ON(text_file_line(file, lines[i].bytes) != i + 1);
    }
    mem_free(lines);
}

static void check_labelled(const struct text_file *train, const struct text_file *file)
{
    struct text_data data;

    if (text_parse_labelled(train, file, &data) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return;
    }
    BUG_ON(data.count < 1 || data.classes < 1 || data.line[data.count - 1] < 1);
    for (int64_t i = 0; i < data.count; i++) {
        BUG_ON(data.label[i] < 0 || data.label[i] >= data.classes);
        check_span(file, data.span[0][i]);
    }
    text_data_release(&data);
}

/* Characters are all of the text; words hold no white space and no capital of ASCII. */
static void check_tokens(const struct tokenizer *tokenizer, const char *text, size_t length)
{
    struct encoder encoder;
    size_t at = 0;

    encoder_init(&encoder, tokenizer, NULL);
    encoder_add(&encoder, text, length);
    BUG_ON(encoder.status != STATUS_OK);
    for (size_t i = 0; i < encoder.count; i++) {
        size_t bytes;
        const char *token = token_map_at(&encoder.seen, encoder.id[i], &bytes);
        BUG_ON(bytes == 0);
        if (tokenizer == &tokenizer_characters)
            BUG_ON(bytes > 4 || at + bytes > length || memcmp(token, text + at, bytes) != 0);
        for (size_t k = 0; tokenizer == &tokenizer_words && k < bytes; k++)
            BUG_ON((token[k] >= 'A' && token[k] <= 'Z') || token[k] == ' ' || token[k] == '"');
        at += bytes;
    }
    BUG_ON(tokenizer == &tokenizer_characters && at != length);
    encoder_release(&encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "fuzz";
    const char *text = (const char *)data, *nul = size ? memchr(text, '\0', size) : NULL;
    const size_t first = nul ? (size_t)(nul - text) : size;
    const struct text_file train = { .path = path, .bytes = text, .length = first };
    const struct text_file test = { .path = path,
                                    .bytes = nul ? nul + 1 : text,
                                    .length = nul ? size - first - 1 : first };

    check_tokens(&tokenizer_characters, text, size);
    check_tokens(&tokenizer_words, text, size);
    BUG_ON((unicode_valid(text, size) == size) !=
           (size == 0 || text_file_check(path, text, size) == STATUS_OK));
    if (text_file_check(path, train.bytes, train.length) != STATUS_OK ||
        text_file_check(path, test.bytes, test.length) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return 0;
    }
    check_lines(&train);
    check_labelled(&train, &train);
    check_labelled(&train, &test);
    return 0;
}
