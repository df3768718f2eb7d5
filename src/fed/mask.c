/* SPDX-License-Identifier: MIT */
/* mask.c - masks over stretches that stay in the first cache: for each stretch all masks in turn.
 *
 * Cost: a byte of ChaCha20 a byte of the vector and mask; the vector itself moves through memory once. */
#include "fed/mask.h"

#include <sodium.h>
#include <string.h>

enum { STRETCH = 8 << 10, BLOCK = 64 }; /* bytes */

struct job {
    const struct mask *masks;
    size_t n;
    int bits;
    uint8_t *words;
    size_t bytes;
};

static void add_words32(uint8_t *words, const uint8_t *stream, size_t bytes, bool subtract)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint32_t)) {
        uint32_t a, b;
        memcpy(&a, words + i, sizeof(a));
        memcpy(&b, stream + i, sizeof(b));
        a += subtract ? 0 - b : b;
        memcpy(words + i, &a, sizeof(a));
    }
}

static void add_words64(uint8_t *words, const uint8_t *stream, size_t bytes, bool subtract)
{
    for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
        uint64_t a, b;
        memcpy(&a, words + i, sizeof(a));
        memcpy(&b, stream + i, sizeof(b));
        a += subtract ? 0 - b : b;
        memcpy(words + i, &a, sizeof(a));
    }
}

static void add_words(int bits, uint8_t *words, const uint8_t *stream, size_t bytes,
                      bool subtract)
{
    if (bits == 32)
        add_words32(words, stream, bytes, subtract);
    else
        add_words64(words, stream, bytes, subtract);
}

static void mask_stretch(void *arg, size_t i)
{
    static const uint8_t nonce[crypto_stream_chacha20_NONCEBYTES];
    static const uint8_t zeros[STRETCH];
    const struct job *job = arg;
    const size_t begin = i * STRETCH;
    const size_t bytes = job->bytes - begin < STRETCH ? job->bytes - begin : STRETCH;
    uint8_t stream[STRETCH];

    for (size_t m = 0; m < job->n; m++) {
        crypto_stream_chacha20_xor_ic(stream, zeros, bytes, nonce, begin / BLOCK,
                                      job->masks[m].key);
        add_words(job->bits, job->words + begin, stream, bytes, job->masks[m].subtract);
    }
    sodium_memzero(stream, sizeof(stream));
}

void mask_add(const struct mask *masks, size_t n, int bits, void *words, size_t count,
              struct pool *pool)
{
    struct job job = {
        .masks = masks, .n = n, .bits = bits, .words = words, .bytes = count * (bits / 8)
    };

    pool_for(pool, (job.bytes + STRETCH - 1) / STRETCH, mask_stretch, &job);
}

void mask_sum(int bits, void *sum, const void *words, size_t count)
{
    add_words(bits, sum, words, count * (bits / 8), false);
}
