/* dropout.c - zeroes a share of the elements, chosen by Philox4x32-10 from seed and sample.
 *
 * Counter e/4 of a row gives the four words of elements e .. e+3 (kernel.h). BLOCKS counters are
 * worked on at once, word by word, then their words are laid out in the elements' order.
 */
#include "base/rng.h"
#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd.h"

enum { BLOCKS = 16, WORDS = 4 * BLOCKS, ROUNDS = 10 };

/* Words of counters { first + b, rest... }, b < BLOCKS; Salmon et al. 2011, as base/rng.c. */
static void philox_blocks(uint64_t key, uint32_t first, const uint32_t rest[3],
                          uint32_t words[WORDS])
{
    uint32_t c0[BLOCKS], c1[BLOCKS], c2[BLOCKS], c3[BLOCKS];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);

    for (uint32_t b = 0; b < BLOCKS; b++) {
        c0[b] = first + b;
        c1[b] = rest[0];
        c2[b] = rest[1];
        c3[b] = rest[2];
    }
    for (int round = 0; round < ROUNDS; round++) {
#pragma omp simd
        for (int b = 0; b < BLOCKS; b++) {
            const uint64_t p0 = (uint64_t)0xD2511F53 * c0[b], p1 = (uint64_t)0xCD9E8D57 * c2[b];
            c0[b] = (uint32_t)(p1 >> 32) ^ c1[b] ^ k0;
            c1[b] = (uint32_t)p1;
            c2[b] = (uint32_t)(p0 >> 32) ^ c3[b] ^ k1;
            c3[b] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    for (int b = 0; b < BLOCKS; b++) {
        words[4 * b] = c0[b];
        words[4 * b + 1] = c1[b];
        words[4 * b + 2] = c2[b];
        words[4 * b + 3] = c3[b];
    }
}

/* y[i] = kept ? x[i] * scale : 0; n <= WORDS. */
static void apply(const float *x, const uint32_t words[WORDS], float rate, float scale, size_t n,
                  float *y)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        const float chance = (float)(int32_t)(words[i] >> 8) * 0x1p-24f; /* rng_to_float */
        y[i] = chance >= rate ? x[i] * scale : 0;
    }
}

static void dropout_rows(const struct kernel_call *call, size_t from, size_t to)
{
    const struct attrs *attrs = &call->problem->attrs;
    const struct shape *shape = &call->problem->in[0].shape;
    const size_t columns = (size_t)(shape_count(shape) / shape->dim[0]);
    const float scale = 1 / (1 - attrs->rate);

    for (size_t row = from; row < to; row++) {
        const float *x = (const float *)call->in[0] + row * columns;
        float *y = (float *)call->out[0] + row * columns;
        const uint64_t position = call->step->first_sample + row;
        const uint32_t rest[3] = { attrs->stream, (uint32_t)position,
                                   (uint32_t)(position >> 32) };
        uint32_t words[WORDS];

        for (size_t e = 0; e < columns; e += WORDS) {
            philox_blocks(call->step->seed, (uint32_t)(e / 4), rest, words);
            if (columns - e >= WORDS)
                apply(x + e, words, attrs->rate, scale, WORDS, y + e);
            else
                apply(x + e, words, attrs->rate, scale, columns - e, y + e);
        }
    }
}

static void run_dropout(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;

    simd_for(call, (size_t)shape->dim[0], (size_t)(shape_count(shape) / shape->dim[0]),
             dropout_rows);
}

const struct kernel SIMD_TABLE(kernel_dropout_rows)[] = {
    { .op = "dropout", .name = "own", .run = run_dropout },
    { 0 },
};
