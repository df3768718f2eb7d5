/* SPDX-License-Identifier: MIT */
/* codec_onebit.c - a bit an element: its sign; and two numbers a block.
 *
 * In a block of 1024 elements those that are not below zero are sent as a 1 and decoded as
 * their mean, the others as a 0 and decoded as theirs (Seide et al. 2014):
 *
 *   3 -1 5 -2   ->   bits 1 0 1 0, means 4 and -1.5   ->   4 -1.5 4 -1.5, error -1 0.5 1 -0.5
 *
 * Payload: the two means of each block, 4 bytes each, then the bits, 32 in a word, the first in
 * the lowest place. A NaN counts as not below zero and makes that mean NaN.
 */
#include <string.h>

#include "comm/codec_row.h"
#include "comm/wide.h"

enum { WORD = 32 };

/* Sums of the elements not below zero and of the others, lane by lane: an order that no
 * instruction set changes. */
struct sums {
    float above[LANES], below[LANES];
    int n_below[LANES];
};

WIDEST static void add_up(const float *restrict x, size_t count, struct sums *restrict out)
{
    lanes above = { 0 }, below = { 0 };
    lanes_int n_below = { 0 };
    size_t at = 0;

    for (; at + LANES <= count; at += LANES) {
        const lanes value = LANES_AT(x + at);
        const lanes_int is_below = value < 0; /* -1 or 0 */

        below += (lanes)((lanes_int)value & is_below);
        above += (lanes)((lanes_int)value & ~is_below);
        n_below -= is_below;
    }
    memcpy(out->above, &above, sizeof(above));
    memcpy(out->below, &below, sizeof(below));
    memcpy(out->n_below, &n_below, sizeof(n_below));
    for (int lane = 0; at < count; at++, lane++) {
        out->above[lane] += x[at] < 0 ? 0 : x[at];
        out->below[lane] += x[at] < 0 ? x[at] : 0;
        out->n_below[lane] += x[at] < 0;
    }
}

/* means[1] of the elements not below zero, means[0] of the others; 0 where there are none. */
static void find_means(const float *x, size_t count, float means[2])
{
    struct sums sums;
    float above = 0, below = 0;
    int n_below = 0;

    add_up(x, count, &sums);
    for (int lane = 0; lane < LANES; lane++) {
        above += sums.above[lane];
        below += sums.below[lane];
        n_below += sums.n_below[lane];
    }
    const int n_above = (int)count - n_below;
    means[0] = n_below > 0 ? below / (float)n_below : 0;
    means[1] = n_above > 0 ? above / (float)n_above : 0;
}

/* Each lane holds the two places of the word that are its own. */
WIDEST static void pack(const float *restrict x, uint32_t *restrict to, size_t n_words)
{
    const lanes_int places = { 1 << 0,  1 << 1,  1 << 2,  1 << 3, 1 << 4,  1 << 5,
                               1 << 6,  1 << 7,  1 << 8,  1 << 9, 1 << 10, 1 << 11,
                               1 << 12, 1 << 13, 1 << 14, 1 << 15 };

    for (size_t word = 0; word < n_words; word++, x += WORD) {
        const lanes_int low = LANES_AT(x) < 0, high = LANES_AT(x + LANES) < 0;
        const lanes_int bits = (~low & places) | ((~high & places) << LANES);
        uint32_t each[LANES];

        memcpy(each, &bits, sizeof(each));
        for (int width = LANES / 2; width > 0; width /= 2)
            for (int lane = 0; lane < width; lane++)
                each[lane] |= each[lane + width];
        to[word] = each[0];
    }
}

WIDEST static void take_means_away(float *restrict error, size_t count, float below,
                                   float above)
{
    for (size_t i = 0; i < count; i++)
        error[i] -= error[i] < 0 ? below : above;
}

static void pack_all(const float *x, size_t count, uint32_t *to)
{
    const size_t n_words = count / WORD, left = count % WORD;
    float rest[WORD] = { 0 };

    pack(x, to, n_words);
    if (left == 0)
        return;
    memcpy(rest, x + n_words * WORD, left * sizeof(float));
    pack(rest, to + n_words, 1);
    to[n_words] &= (1u << left) - 1;
}

WIDEST static void decode_words(const uint32_t *restrict words, const float *restrict means,
                                float *restrict sum, size_t count, bool is_first)
{
    for (size_t at = 0; at < count; at += WORD, words++) {
        const size_t here = codec_smaller(WORD, count - at);
        const uint32_t word = *words;
        const float below = means[0], above = means[1];

        if (is_first) {
            for (size_t i = 0; i < here; i++)
                sum[at + i] = word >> i & 1 ? above : below;
        } else {
            for (size_t i = 0; i < here; i++)
                sum[at + i] += word >> i & 1 ? above : below;
        }
    }
}

static enum status create(struct codec_state *state, const struct codec_layout *layout)
{
    (void)layout;
    /* Blocks end where words do. */
    state->block = codec_blocks((size_t)state->config.amount, WORD) * WORD;
    return STATUS_OK;
}

static size_t bytes(const struct codec_state *state, int round)
{
    (void)round;
    return codec_blocks(state->count, state->block) * 2 * sizeof(float) +
           codec_blocks(state->count, WORD) * sizeof(uint32_t);
}

static void encode(struct codec_state *state, int round, const float *gradient, void *payload)
{
    float *means = payload;
    uint32_t *words = (void *)(means + 2 * codec_blocks(state->count, state->block));

    (void)round;
    for (size_t at = 0; at < state->count; at += state->block, means += 2) {
        const size_t count = codec_smaller(state->block, state->count - at);
        float *error = state->error + at;

        codec_add(error, gradient + at, count);
        find_means(error, count, means);
        pack_all(error, count, words + at / WORD);
        take_means_away(error, count, means[0], means[1]);
    }
}

static void decode(struct codec_state *state, int round, const void *const payloads[], int n,
                   float *sum)
{
    const size_t n_blocks = codec_blocks(state->count, state->block);

    (void)round;
    for (size_t block = 0, at = 0; block < n_blocks; block++, at += state->block) {
        const size_t count = codec_smaller(state->block, state->count - at);

        for (int node = 0; node < n; node++) {
            const float *means = payloads[node];
            const uint32_t *words = (const void *)(means + 2 * n_blocks);

            decode_words(words + at / WORD, means + 2 * block, sum + at, count, node == 0);
        }
    }
}

const struct codec codec_onebit = {
    .name = "onebit",
    .summary = "signs, and two means a block: a thirtieth of the bytes",
    .amount = { "block", 1024, 32, 1 << 20, true },
    .rounds = 1,
    .create = create,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
