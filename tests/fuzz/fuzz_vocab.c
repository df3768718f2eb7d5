/* SPDX-License-Identifier: MIT */
/* fuzz_vocab.c - a vocabulary file that is accepted gives the same when it is saved and read again.
 *
 * The bytes are tried as they are, and as the middle of a file whose first line and checksum are right, as
 * nobody would guess those.
 */
#include "base/mem.h"
#include "base/sha256.h"
#include "data/vocab.h"
#include "data/vocab_build.h"
#include "fuzz.h"

#include <string.h>

/* A file around `middle`. */
static void make_file(const char *middle, size_t length, struct strbuf *out)
{
    char digits[SHA256_HEX];
    struct sha256 hash;

    strbuf_add(out, "tutti vocabulary 1\n");
    strbuf_add_bytes(out, middle, length);
    sha256_init(&hash);
    sha256_add(&hash, out->text, out->length);
    sha256_end_hex(&hash, digits);
    strbuf_printf(out, "sha256 %s\n", digits);
}

static void check(const struct vocab *vocab)
{
    static const char text[] = "Some text, <unk> and \xc3\xa9.";
    struct vocab *again[VOCAB_FILE_MOST];
    struct strbuf middle, file;
    int32_t *id;
    size_t count_ids;
    int count;

    for (int i = 0; i < VOCAB_SPECIALS; i++)
        BUG_ON(vocab_special(vocab, i) >= vocab_size(vocab));
    if (vocab_encode(vocab, text, sizeof text - 1, &id, &count_ids) == STATUS_OK) {
        for (size_t i = 0; i < count_ids; i++)
            BUG_ON(id[i] < 0 || id[i] >= vocab_size(vocab));
        mem_free(id);
    }
    strbuf_init(&middle, VOCAB_BYTES_MOST);
    strbuf_init(&file, VOCAB_BYTES_MOST);
    vocab_print(vocab, &middle);
    make_file(middle.text, middle.length, &file);
    BUG_ON(vocab_parse("again", file.text, file.length, again, &count) != STATUS_OK);
    BUG_ON(count != 1 || strcmp(vocab_fingerprint(vocab), vocab_fingerprint(again[0])) != 0);
    vocab_destroy(again[0]);
    strbuf_release(&middle);
    strbuf_release(&file);
}

static void parse(const char *text, size_t length)
{
    struct vocab *vocab[VOCAB_FILE_MOST];
    int count;

    if (vocab_parse("fuzz", text, length, vocab, &count) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return;
    }
    for (int i = 0; i < count; i++) {
        check(vocab[i]);
        vocab_destroy(vocab[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct strbuf file;

    parse((const char *)data, size);
    strbuf_init(&file, VOCAB_BYTES_MOST);
    make_file((const char *)data, size, &file);
    parse(file.text, file.length);
    strbuf_release(&file);
    return 0;
}
