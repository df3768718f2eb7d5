/* SPDX-License-Identifier: MIT */
/* attention_tile.h - what attention does to rows between its products, one table for each
 * instruction set.
 *
 * Threads: tables are constant; rows of different outputs may run at once.
 */
#ifndef KERNEL_CPU_ATTENTION_TILE_H
#define KERNEL_CPU_ATTENTION_TILE_H

#include <stddef.h>
#include <stdint.h>

struct attention_isa {
    /* to[i][0..n) = factor * from[i][0..n), and zeros up to `width`. */
    void (*scale)(const float *from, ptrdiff_t from_step, int n_rows, int n, float factor,
                  float *to, ptrdiff_t to_step, int width);
    /* Replaces n scores by exp(score - largest), those with a negative id by 0, and what follows up
     * to `end` by 0. Gives the largest and the sum, which is 0 if none is left. ids may be NULL. */
    float (*exponentials)(float *scores, const int32_t *ids, int n, int end,
                          float *out_largest);
    /* Backward: scores become p = exp(score - lse), and dp becomes p * (dp - delta); both are 0
     * where the id is negative and from n up to `end`. */
    void (*weights)(float *scores, float *dp, const int32_t *ids, int n, int end, float lse,
                    float delta);
    /* out[i] = the sum of a[i][j] * b[i][j] over j below n */
    void (*dots)(const float *a, ptrdiff_t a_step, const float *b, ptrdiff_t b_step, int n_rows,
                 int n, float *out);
};

extern const struct attention_isa attention_avx2;
extern const struct attention_isa attention_avx512;

/* The table for kernel_isa(); NULL for "generic". */
const struct attention_isa *attention_current(void);

#endif /* KERNEL_CPU_ATTENTION_TILE_H */
