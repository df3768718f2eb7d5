/* SPDX-License-Identifier: MIT */
/* amx.h - products of f32 matrices by the tile registers of AMX, which multiply bf16.
 *
 * A float of 24 bits is the sum of three bf16 of 8 bits, x = x1 + x2 + x3 exactly, each at most 2^-8 of the
 * one before. Of the nine products of two such sums six are made:
 *
 *      a b = a1 b1 + (a1 b2 + a2 b1) + (a1 b3 + a2 b2 + a3 b1)     + less than 2^-24 of |a b|
 *
 * Products of bf16 are exact in f32, and sums are kept in f32: what is left out is as much as one rounding
 * of a plain product. A tile register adds 32 terms before it rounds to the sum so far, so errors
 * are below those of a chain of multiply-adds. Six products take 6/16 of the time of one by AVX-512.
 *
 * Where 16 bits will do, a float is two parts, and a b = a1 b1 + a1 b2 + a2 b1: half the products, with
 * errors up to 2^-16 of |a b|, some 4e-6 of the norm of a sum's terms. Kernels that do so are rough.
 *
 * Infinities become NaN, as do numbers beyond 3.39e38; denormal numbers count as zero.
 */
#ifndef KERNEL_CPU_AMX_H
#define KERNEL_CPU_AMX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel/cpu/gemm.h"

enum {
    AMX_SIDE = 32, /* rows or columns of C that a block has: two registers of 16 */
    AMX_STEP = 32, /* steps of the shared dimension in a register */
    AMX_PARTS = 3, /* bf16 of a float */
    AMX_PACKED =
        3 * 2 * 512, /* bf16 of a side's packed form a step: parts, registers, numbers */
    AMX_SHORT = 2 * 2 * 512, /* the same of two parts */
};

/* 16 lines of a matrix, each with 32 steps, that become one register of each part. Pair r of a register's
 * line has steps r and 16 + r. */
struct amx_lines {
    const float *first, *second;       /* steps 0 to 15, 16 to 31 */
    int64_t row;                       /* floats between rows as they lie */
    int n_first, n_second;             /* rows there are, of 16; others count as zero */
    int columns_first, columns_second; /* likewise numbers in a row */
    bool turn;                         /* rows as they lie are the other dimension's */
    bool is_short;                     /* two parts */
};

/* What a block begins with. */
enum amx_begin { AMX_ZERO, AMX_BIAS, AMX_ADD };

/* Between these two, a thread has its tile registers. */
void amx_begin(void);
void amx_end(void);
/* Some steps, which lie so many bf16 apart. */
struct amx_stretch {
    const uint16_t *a, *b;
    int64_t steps, a_step, b_step;
};

/* A block of C: what it begins with, plus the sum over all stretches. */
struct amx_product {
    const struct amx_stretch *stretches;
    int n_stretches;
    bool is_short; /* packed as two parts */
    bool is_far;   /* C is probably in no near cache */
    enum amx_begin begin;
    const float *bias; /* 32 */
    float *c;
    int64_t c_row; /* floats between rows */
};

void amx_multiply_stretches(const struct amx_product *product);
/* The same for a block of which so many rows and columns are there. */
void amx_multiply_some(const struct amx_product *product, int64_t rows, int64_t columns);

/* Adds a block of 32 by 32, of which so many rows and columns are there, to a matrix. */
void amx_add(const float *block, int64_t rows, int64_t columns, float *to, int64_t to_row);

/* Writes 512 bf16 of each part, which lie 2 * 512 apart. */
void amx_pack(const struct amx_lines *lines, uint16_t *to);

/* A matrix whose lines are rows of A or columns of B. Lines and steps lie line_step and k_step apart, one
 * of which is 1. */
struct amx_side {
    const float *from;
    int64_t line_step, k_step, n_lines;
    bool is_b;     /* pairs of steps are a register's rows, not its columns */
    bool is_short; /* two parts */
};

/* Packs 16 lines from `line` for the 32 steps from k0 of k; what is beyond either end is zero. */
void amx_pack_lines(const struct amx_side *side, int64_t line, int64_t k0, int64_t k,
                    uint16_t *to);
/* One stretch of three parts, for a block of which so many rows and columns are there. */
void amx_block(const uint16_t *a, const uint16_t *b, int64_t steps, enum amx_begin begin,
               const float *bias, float *c, int64_t c_row, int64_t rows, int64_t columns);

/* As gemm_run and gemm_scratch_bytes, by three parts or, if short, two. B is not packed, and C has either a
 * bias or what it is added to. */
size_t amx_scratch_bytes(const struct gemm *gemm, bool is_short);
void amx_run(const struct gemm *gemm, bool is_short, struct pool *pool, void *scratch);

#endif /* KERNEL_CPU_AMX_H */
