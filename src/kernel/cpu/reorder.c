/* SPDX-License-Identifier: MIT */
/* reorder.c - NHWC to plain and back, linear weights likewise: transposes.
 *
 * An image (H, W, C) in memory becomes (C, H, W): a matrix of pixels x channels is transposed.
 * BLOCK x BLOCK elements at a time stay in the first-level cache; within one, squares of
 * 4 x 4 are turned in registers.
 */
#include <string.h>

#include "kernel/cpu/rows.h"
#include "kernel/cpu/simd.h"

enum { BLOCK = 32, SQUARE = 4 };

/* `count` matrices, each of `rows` x `columns` to `columns` x `rows`. */
struct transpose {
    size_t count, rows, columns;
};

static struct transpose transpose_of(const struct kernel_problem *problem)
{
    const int64_t *dim = problem->in[0].shape.dim;

    if (problem->in[0].shape.rank == 2) { /* shape (out, in), IO or plain */
        const size_t out = (size_t)dim[0], in = (size_t)dim[1];
        return problem->in[0].layout == LAYOUT_PLAIN ? (struct transpose){ 1, out, in }
                                                     : (struct transpose){ 1, in, out };
    }
    const size_t n = (size_t)dim[0], channels = (size_t)dim[1],
                 pixels = (size_t)(dim[2] * dim[3]);
    return problem->in[0].layout == LAYOUT_PLAIN ? (struct transpose){ n, channels, pixels }
                                                 : (struct transpose){ n, pixels, channels };
}

typedef float quad __attribute__((vector_size(16)));
typedef int quad_index __attribute__((vector_size(16)));

#ifdef __clang__
#define PICK(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define PICK(a, b, i, j, k, l) __builtin_shuffle(a, b, (quad_index){ i, j, k, l })
#endif

/* Turns 4 x 4 elements at x, rows `columns` apart, to y, rows `rows` apart. */
static inline void turn_square(const float *x, size_t columns, float *y, size_t rows)
{
    quad a, b, c, d;

    memcpy(&a, x, sizeof a);
    memcpy(&b, x + columns, sizeof b);
    memcpy(&c, x + 2 * columns, sizeof c);
    memcpy(&d, x + 3 * columns, sizeof d);

    const quad ac_low = PICK(a, b, 0, 4, 1, 5), ac_high = PICK(a, b, 2, 6, 3, 7);
    const quad bd_low = PICK(c, d, 0, 4, 1, 5), bd_high = PICK(c, d, 2, 6, 3, 7);
    a = PICK(ac_low, bd_low, 0, 1, 4, 5);
    b = PICK(ac_low, bd_low, 2, 3, 6, 7);
    c = PICK(ac_high, bd_high, 0, 1, 4, 5);
    d = PICK(ac_high, bd_high, 2, 3, 6, 7);

    memcpy(y, &a, sizeof a);
    memcpy(y + rows, &b, sizeof b);
    memcpy(y + 2 * rows, &c, sizeof c);
    memcpy(y + 3 * rows, &d, sizeof d);
}

/* Rows [top, bottom) and columns [left, right) of one matrix. */
static void turn_block(const struct transpose *t, const float *x, float *y, size_t top,
                       size_t bottom, size_t left, size_t right)
{
    const size_t squares_bottom = top + (bottom - top) / SQUARE * SQUARE;
    const size_t squares_right = left + (right - left) / SQUARE * SQUARE;

    for (size_t c = left; c < squares_right; c += SQUARE) {
        for (size_t r = top; r < squares_bottom; r += SQUARE)
            turn_square(x + r * t->columns + c, t->columns, y + c * t->rows + r, t->rows);
    }
    for (size_t c = left; c < right; c++) { /* what the squares leave */
        for (size_t r = c < squares_right ? squares_bottom : top; r < bottom; r++)
            y[c * t->rows + r] = x[r * t->columns + c];
    }
}

/* A range counts bands: BLOCK columns of one matrix, which are BLOCK rows of its transpose. */
static void reorder_bands(const struct kernel_call *call, size_t from, size_t to)
{
    const struct transpose t = transpose_of(call->problem);
    const size_t bands = (t.columns + BLOCK - 1) / BLOCK, size = t.rows * t.columns;

    for (size_t band = from; band < to; band++) {
        const float *x = (const float *)call->in[0] + band / bands * size;
        float *y = (float *)call->out[0] + band / bands * size;
        const size_t left = band % bands * BLOCK, right = simd_min(left + BLOCK, t.columns);

        for (size_t top = 0; top < t.rows; top += BLOCK)
            turn_block(&t, x, y, top, simd_min(top + BLOCK, t.rows), left, right);
    }
}

static bool can_reorder(const struct kernel_problem *problem)
{
    const enum layout from = problem->in[0].layout, to = problem->out[0].layout;
    const enum layout other = from == LAYOUT_PLAIN ? to : from;

    if (problem->in[0].dtype != DTYPE_F32 || (from != LAYOUT_PLAIN && to != LAYOUT_PLAIN))
        return false;
    return (other == LAYOUT_NHWC && problem->in[0].shape.rank == 4) ||
           (other == LAYOUT_IO && problem->in[0].shape.rank == 2);
}

static void run_reorder(const struct kernel_call *call)
{
    const struct transpose t = transpose_of(call->problem);

    simd_for(call, t.count * ((t.columns + BLOCK - 1) / BLOCK),
             t.rows * simd_min(t.columns, BLOCK), reorder_bands);
}

const struct kernel SIMD_TABLE(kernel_reorder_rows)[] = {
    { .op = "reorder", .name = "own", .can_run = can_reorder, .run = run_reorder },
    { 0 },
};
