/* SPDX-License-Identifier: MIT */
/* fuzz_bpe.c - GPT-2's two files, with a NUL between them; accepted ones cut any text and give it back.
 *
 * An input that begins with + is the end of encoder.json after the 256 bytes, without which nothing is
 * accepted.
 */
#include "base/mem.h"
#include "data/tokenize.h"
#include "data/vocab_build.h"
#include "fuzz.h"

#include <string.h>

/* The 256 bytes as GPT-2 writes them, then `more`. */
static void add_bytes(const char *more, size_t length, struct strbuf *out)
{
    int hidden = 0;

    strbuf_add(out, "{");
    for (int byte = 0; byte < 256; byte++) {
        const bool is_seen = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
        strbuf_printf(out, "%s\"\\u%04x\": %d", byte ? ", " : "",
                      is_seen ? byte : 256 + hidden++, byte);
    }
    strbuf_add_bytes(out, more, length);
    strbuf_add(out, "}");
}

static void check(const struct vocab *vocab, const char *text, size_t length)
{
    struct encoder encoder;
    struct strbuf back;

    encoder_init(&encoder, &tokenizer_gpt2, vocab);
    encoder_add(&encoder, text, length);
    BUG_ON(encoder.status != STATUS_OK);
    strbuf_init(&back, 1 << 24);
    vocab_decode(vocab, -1, encoder.id, encoder.count, &back);
    BUG_ON(back.length != length || (length && memcmp(back.text, text, length) != 0));
    strbuf_release(&back);
    encoder_release(&encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *nul = size ? memchr(text, '\0', size) : NULL;
    const size_t first = nul ? (size_t)(nul - text) : size;
    struct bpe_text merges = { "merges", nul ? nul + 1 : text, nul ? size - first - 1 : 0 };
    struct bpe_text tokens = { "tokens", text, first };
    struct strbuf whole;
    struct vocab *vocab;

    strbuf_init(&whole, 1 << 24);
    if (size > 0 && text[0] == '+') {
        add_bytes(text + 1, first - 1, &whole);
        tokens = (struct bpe_text){ "tokens", whole.text, whole.length };
    }
    if (vocab_parse_bpe(&tokens, &merges, &vocab) == STATUS_OK) {
        check(vocab, text, size);
        vocab_destroy(vocab);
    } else {
        BUG_ON(!status_message()[0]);
    }
    strbuf_release(&whole);
    return 0;
}
