/* SPDX-License-Identifier: MIT */
/* codec_bf16.c - the upper half of each float, rounded to nearest, ties to even.
 *
 * Payload: 2 bytes an element. 1.00390625 = 0x3f808000 lies half-way between 0x3f80 and 0x3f81
 * and becomes 0x3f80, whose last bit is 0; the error keeps 0.00390625.
 * Traffic of encode: 8 bytes read and 6 written an element.
 */
#include <string.h>

#include "comm/codec_row.h"
#include "comm/wide.h"

static inline uint16_t narrowed(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
    /* A NaN stays one: rounding could carry it to infinity, or cut it to that. */
    const uint32_t kept = (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : rounded;
    return (uint16_t)(kept >> 16);
}

static inline float widened(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float result;

    memcpy(&result, &bits, sizeof(result));
    return result;
}

WIDEST static void bf16_encode(const float *restrict gradient, float *restrict error,
                               uint16_t *restrict to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float x = error[i] + gradient[i];
        const uint16_t sent = narrowed(x);
        to[i] = sent;
        error[i] = x - widened(sent);
    }
}

WIDEST static void bf16_first(const uint16_t *restrict from, float *restrict sum, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] = widened(from[i]);
}

WIDEST static void bf16_next(const uint16_t *restrict from, float *restrict sum, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += widened(from[i]);
}

static size_t bytes(const struct codec_state *state, int round)
{
    (void)round;
    return state->count * sizeof(uint16_t);
}

static void encode(struct codec_state *state, int round, const float *gradient, void *payload)
{
    (void)round;
    bf16_encode(gradient, state->error, payload, state->count);
}

static void decode(struct codec_state *state, int round, const void *const payloads[], int n,
                   float *sum)
{
    (void)round;
    for (size_t at = 0; at < state->count; at += CODEC_STRETCH) {
        const size_t count = codec_smaller(CODEC_STRETCH, state->count - at);

        bf16_first((const uint16_t *)payloads[0] + at, sum + at, count);
        for (int node = 1; node < n; node++)
            bf16_next((const uint16_t *)payloads[node] + at, sum + at, count);
    }
}

const struct codec codec_bf16 = {
    .name = "bf16",
    .summary = "the upper half of each float: half the bytes",
    .rounds = 1,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
};
