/* SPDX-License-Identifier: MIT */
/* mma.cuh - what src/kernel/cuda/mma.cuh promises, without tensor cores. */
#ifndef KERNEL_CUDA_MMA_CUH
#define KERNEL_CUDA_MMA_CUH

#include "kernel/cuda/device.cuh"

static inline uint32_t pair_of(float low, float high)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;

    memcpy(&bits, &pair, sizeof bits);
    return bits;
}
/* The first or the second number of a pair. */
static inline float half_of(uint32_t pair, int which)
{
    return __uint_as_float((which ? pair >> 16 : pair & 0xffff) << 16);
}

/* Four 8 x 8 matrices between rows that lanes name and words of lanes. */
struct four_rows {
    const bf16 *row;
    uint32_t word[4];
};

static inline uint16_t *element_of_four(void *const all[], int matrix, int i, int j)
{
    return (uint16_t *)((struct four_rows *)all[matrix * 8 + i])->row + j;
}

template <bool ACROSS, bool STORES> static void move_four(void *const all[], unsigned lanes)
{
    if (lanes != ~0U)
        machine_fail("not all lanes take part in matrices");
    for (int lane = 0; lane < WARP_LANES; lane++) {
        for (int m = 0; m < 4; m++) {
            uint32_t *word = &((struct four_rows *)all[lane])->word[m];
            uint16_t *at[2];
            for (int k = 0; k < 2; k++)
                at[k] = ACROSS ? element_of_four(all, m, lane % 4 * 2 + k, lane / 4)
                               : element_of_four(all, m, lane / 4, lane % 4 * 2 + k);
            if (STORES) {
                *at[0] = (uint16_t)*word;
                *at[1] = (uint16_t)(*word >> 16);
            } else {
                *word = *at[0] | (uint32_t)*at[1] << 16;
            }
        }
    }
}

template <bool ACROSS> static inline void load_four_(uint32_t out[4], const bf16 *row)
{
    struct four_rows mine = { row, {} };

    if ((uintptr_t)row % 16)
        machine_fail("a row of a matrix begins at no multiple of 16 bytes");
    machine_together(~0U, &mine, move_four<ACROSS, false>);
    memcpy(out, mine.word, sizeof mine.word);
}
static inline void load_four(uint32_t out[4], const bf16 *row)
{
    load_four_<false>(out, row);
}
static inline void load_four_across(uint32_t out[4], const bf16 *row)
{
    load_four_<true>(out, row);
}

template <bool ACROSS> static inline void store_four_(bf16 *row, const uint32_t x[4])
{
    struct four_rows mine = { row, { x[0], x[1], x[2], x[3] } };

    if ((uintptr_t)row % 16)
        machine_fail("a row of a matrix begins at no multiple of 16 bytes");
    machine_together(~0U, &mine, move_four<ACROSS, true>);
}
static inline void store_four(bf16 *row, const uint32_t x[4])
{
    store_four_<false>(row, x);
}
static inline void store_four_across(bf16 *row, const uint32_t x[4])
{
    store_four_<true>(row, x);
}

/* A lane's words of a 16 x 16 and b 16 x 8, and its sums. */
struct step_of_warp {
    uint32_t a[4], b[2];
    float c[4];
};

static inline void multiply_warp(void *const all[], unsigned lanes)
{
    float a[16][16], b[16][8];

    if (lanes != ~0U)
        machine_fail("not all lanes take part in a product");
    for (int lane = 0; lane < WARP_LANES; lane++) {
        const struct step_of_warp *s = (const struct step_of_warp *)all[lane];
        const int g = lane / 4, t = lane % 4 * 2;
        for (int k = 0; k < 2; k++) {
            for (int m = 0; m < 4; m++)
                a[g + m % 2 * 8][t + k + m / 2 * 8] = half_of(s->a[m], k);
            for (int m = 0; m < 2; m++)
                b[t + k + m * 8][g] = half_of(s->b[m], k);
        }
    }
    for (int lane = 0; lane < WARP_LANES; lane++) {
        struct step_of_warp *s = (struct step_of_warp *)all[lane];
        for (int m = 0; m < 4; m++) {
            float sum = 0;
            for (int k = 0; k < 16; k++)
                sum += a[lane / 4 + m / 2 * 8][k] *
                       b[k][lane % 4 * 2 + m % 2]; /* an exact product */
            s->c[m] += sum;
        }
    }
}

static inline void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    struct step_of_warp mine = { { a[0], a[1], a[2], a[3] },
                                 { b0, b1 },
                                 { c[0], c[1], c[2], c[3] } };

    machine_together(~0U, &mine, multiply_warp);
    memcpy(c, mine.c, sizeof mine.c);
}

#endif /* KERNEL_CUDA_MMA_CUH */
