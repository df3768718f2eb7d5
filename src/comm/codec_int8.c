/* SPDX-License-Identifier: MIT */
/* codec_int8.c - a byte an element, and a scale a block.
 *
 * In a block of 1024 elements whose largest magnitude is m, x is sent as the whole number
 * nearest to 127 x / m, ties to even, and decoded as that times m / 127. Blocks are small so that
 * one large element does not take the digits of many.
 *
 * Payload: the blocks' scales, 4 bytes each, then a byte an element.
 * A block whose largest magnitude is below 1e-30 is sent as zeros; one with an infinity or a NaN
 * has a NaN as scale.
 */
#include <math.h>
#include <string.h>

#include "comm/codec_row.h"
#include "comm/wide.h"

static const float least_magnitude = 1e-30f;

/* Largest magnitude; NaN if one element is not finite. Magnitudes compare as their bits do. */
WIDEST static float largest(const float *restrict x, size_t count)
{
    uint32_t most = 0;
    float result;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    memcpy(&result, &most, sizeof(result));
    return most < 0x7f800000 ? result : NAN;
}

/* Adding 1.5 * 2^23 leaves the nearest whole number in the last bits of the sum. */
WIDEST static void int8_encode(float *restrict error, int8_t *restrict to, size_t count,
                               float inverse, float scale)
{
    const float magic = 0x1.8p23f;

    for (size_t i = 0; i < count; i++) {
        const float shifted = error[i] * inverse + magic;
        uint32_t bits;

        memcpy(&bits, &shifted, sizeof(bits));
        to[i] = (int8_t)(uint8_t)bits;
        error[i] -= (shifted - magic) * scale;
    }
}

WIDEST static void int8_first(const int8_t *restrict from, float *restrict sum, size_t count,
                              float scale)
{
    for (size_t i = 0; i < count; i++)
        sum[i] = (float)from[i] * scale;
}

WIDEST static void int8_next(const int8_t *restrict from, float *restrict sum, size_t count,
                             float scale)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += (float)from[i] * scale;
}

static enum status create(struct codec_state *state, const struct codec_layout *layout)
{
    (void)layout;
    state->block = (size_t)state->config.amount;
    return STATUS_OK;
}

static size_t bytes(const struct codec_state *state, int round)
{
    (void)round;
    return codec_blocks(state->count, state->block) * sizeof(float) + state->count;
}

static void encode(struct codec_state *state, int round, const float *gradient, void *payload)
{
    float *scales = payload;
    int8_t *to = (void *)(scales + codec_blocks(state->count, state->block));

    (void)round;
    for (size_t at = 0; at < state->count; at += state->block, scales++) {
        const size_t count = codec_smaller(state->block, state->count - at);
        float *error = state->error + at;

        codec_add(error, gradient + at, count);
        const float most = largest(error, count);
        const bool is_zero = most < least_magnitude; /* a NaN is not */
        *scales = is_zero ? 0 : most / 127;
        int8_encode(error, to + at, count, is_zero ? 0 : 127 / most, *scales);
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
            const float *scales = payloads[node];
            const int8_t *from = (const void *)(scales + n_blocks);

            (node == 0 ? int8_first : int8_next)(from + at, sum + at, count, scales[block]);
        }
    }
}

const struct codec codec_int8 = {
    .name = "int8",
    .summary = "a byte an element and a scale a block: a quarter of the bytes",
    .amount = { "block", 1024, 16, 1 << 20, true },
    .rounds = 1,
    .create = create,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
