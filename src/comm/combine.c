/* SPDX-License-Identifier: MIT */
/* combine.c - element by element sums and maxima, in pairs and along the tree.
 *
 * The order of additions is a list that kernel/tree.h makes, as for gradients: over p ranks, padded
 * to a power of two, absent leaves left out; p = 5:
 *
 *               +
 *           /       \
 *         +           4        ((0 + 1) + (2 + 3)) + 4
 *       /   \
 *      +     +                 An absent leaf is skipped, not added as 0:
 *     0 1   2 3                -0 + 0 is +0, so adding would change bits.
 *
 * Each addition is one rounding whatever the width of the vectors that do it, so
 * the bits do not depend on how a vector is cut nor on the processor.
 */
#include <string.h>

#include "comm/algorithm.h"
#include "comm/wide.h"

#define SUM(l, r) ((l) + (r))
#define MAX(l, r) ((l) > (r) ? (l) : (r))
/* A NaN wins, whichever side it is on. */
#define MAX_FLOAT(l, r) ((l) > (r) || (l) != (l) ? (l) : (r))

#define COMBINE(type, f)                                                                       \
    do {                                                                                       \
        type *to = out;                                                                        \
        const type *l = left, *r = right;                                                      \
        INDEPENDENT                                                                            \
        for (size_t i = 0; i < count; i++)                                                     \
            to[i] = f(l[i], r[i]);                                                             \
    } while (0)

typedef void combine_fn(void *out, const void *left, const void *right, size_t count);

WIDEST static void sum_f32(void *out, const void *left, const void *right, size_t count)
{
    COMBINE(float, SUM);
}

WIDEST static void sum_f64(void *out, const void *left, const void *right, size_t count)
{
    COMBINE(double, SUM);
}

WIDEST static void sum_i32(void *out, const void *left, const void *right, size_t count)
{
    COMBINE(uint32_t, SUM); /* unsigned: overflow wraps */
}

WIDEST static void sum_i64(void *out, const void *left, const void *right, size_t count)
{
    COMBINE(uint64_t, SUM);
}

WIDEST static void max_f32(void *out, const void *left, const void *right, size_t count)
{
    COMBINE(float, MAX_FLOAT);
}

WIDEST static void max_f64(void *out, const void *left, const void *right, size_t count)
{
    COMBINE(double, MAX_FLOAT);
}

WIDEST static void max_i32(void *out, const void *left, const void *right, size_t count)
{
    COMBINE(int32_t, MAX);
}

WIDEST static void max_i64(void *out, const void *left, const void *right, size_t count)
{
    COMBINE(int64_t, MAX);
}

/* The case that counts, in one pass: gradients of two ranks. */
WIDEST static void sum_both_f32(float *left, float *right, size_t count)
{
    INDEPENDENT
    for (size_t i = 0; i < count; i++)
        left[i] = right[i] = left[i] + right[i];
}

static combine_fn *const combine_fns[DTYPE_COUNT][2] = {
    [DTYPE_F32] = { [COMM_OP_SUM] = sum_f32, [COMM_OP_MAX] = max_f32 },
    [DTYPE_F64] = { [COMM_OP_SUM] = sum_f64, [COMM_OP_MAX] = max_f64 },
    [DTYPE_I32] = { [COMM_OP_SUM] = sum_i32, [COMM_OP_MAX] = max_i32 },
    [DTYPE_I64] = { [COMM_OP_SUM] = sum_i64, [COMM_OP_MAX] = max_i64 },
};

bool comm_can_combine(enum dtype dtype)
{
    return dtype < DTYPE_COUNT && combine_fns[dtype][COMM_OP_SUM];
}

void comm_combine(const struct comm_call *call, void *out, const void *left, const void *right,
                  size_t count)
{
    combine_fns[call->dtype][call->op](out, left, right, count);
}

/* left[i] = right[i] = left[i] op right[i]. */
static void combine_both(const struct comm_call *call, void *left, void *right, size_t count)
{
    if (call->dtype == DTYPE_F32 && call->op == COMM_OP_SUM) {
        sum_both_f32(left, right, count);
        return;
    }
    const size_t elem = dtype_size(call->dtype);
    const size_t step = COMM_BLOCK_BYTES / elem;
    for (size_t at = 0; at < count; at += step) {
        const size_t n = count - at < step ? count - at : step;
        char *l = (char *)left + at * elem, *r = (char *)right + at * elem;
        comm_combine(call, l, l, r, n);
        memcpy(r, l, n * elem);
    }
}

/* The tree -------------------------------------------------------------------------------- */

void comm_order_of_nodes(struct comm *comm, const struct tree_node *nodes, int n)
{
    struct comm_order *order = &comm->order;

    (void)tree_additions(nodes, n, comm->size, order->additions, &order->result);
    order->n_sources = n;
    order->is_of_ranks = false;
}

void comm_order_of_ranks(struct comm *comm, int size)
{
    struct comm_order *order = &comm->order;

    if (order->is_of_ranks && order->n_sources == size)
        return;
    (void)tree_additions(comm->leaves, size, size, order->additions, &order->result);
    order->n_sources = size;
    order->is_of_ranks = true;
}

/* An operand of an addition: a source, or a block. */
static char *operand(const struct comm *comm, void *const *sources, int number, size_t offset)
{
    const int n = comm->order.n_sources;

    return number < n ? (char *)sources[number] + offset
                      : comm->blocks + (size_t)(number - n) * COMM_BLOCK_BYTES;
}

/* Adds a block up; where the sum lies. */
static const void *sum_block(struct comm *comm, const struct comm_call *call,
                             void *const *sources, size_t offset, size_t count)
{
    const struct comm_order *order = &comm->order;

    for (int i = 0; i < order->n_sources - 1; i++) {
        const struct tree_addition a = order->additions[i];
        comm_combine(call, operand(comm, sources, a.out, offset),
                     operand(comm, sources, a.left, offset),
                     operand(comm, sources, a.right, offset), count);
    }
    return operand(comm, sources, order->result, offset);
}

void comm_combine_tree(struct comm *comm, const struct comm_call *call, void *const *sources,
                       size_t offset, size_t count, void *out)
{
    const size_t elem = dtype_size(call->dtype), step = COMM_BLOCK_BYTES / elem;

    if (comm->order.n_sources == 2) {
        const struct tree_addition a = comm->order.additions[0];
        comm_combine(call, out, operand(comm, sources, a.left, offset),
                     operand(comm, sources, a.right, offset), count);
        return;
    }
    for (size_t at = 0; at < count; at += step) {
        const size_t n = count - at < step ? count - at : step;
        const void *sum = sum_block(comm, call, sources, offset + at * elem, n);
        memmove((char *)out + at * elem, sum, n * elem);
    }
}

void comm_combine_tree_all(struct comm *comm, const struct comm_call *call,
                           void *const *vectors, size_t offset, size_t count)
{
    const size_t elem = dtype_size(call->dtype), step = COMM_BLOCK_BYTES / elem;

    if (comm->order.n_sources == 2) {
        combine_both(call, (char *)vectors[0] + offset, (char *)vectors[1] + offset, count);
        return;
    }
    for (size_t at = 0; at < count; at += step) {
        const size_t n = count - at < step ? count - at : step, here = offset + at * elem;
        const void *sum = sum_block(comm, call, vectors, here, n);
        for (int i = 0; i < comm->order.n_sources; i++)
            memmove((char *)vectors[i] + here, sum, n * elem);
    }
}
