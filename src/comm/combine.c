/* SPDX-License-Identifier: MIT */
/* combine.c - element by element sums and maxima, in pairs and along the tree.
 *
 * The tree over p ranks, padded to a power of two, absent leaves left out; p = 5:
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

static int padded(int size)
{
    int width = 1;

    while (width < size)
        width *= 2;
    return width;
}

/* One block of the tree. */
struct tree {
    const struct comm_call *call;
    const void *const *sources;
    int size;
    size_t offset, count; /* bytes, elements */
};

/* The node over ranks [lo, lo + width): a leaf where it lies, a sum in `blocks`; the blocks
 * after the first are for the right halves below. */
static const void *node(const struct tree *tree, int lo, int width, char *blocks)
{
    const int half = width / 2;

    if (width == 1)
        return (const char *)tree->sources[lo] + tree->offset;
    if (lo + half >= tree->size)
        return node(tree, lo, half, blocks);

    const void *left = node(tree, lo, half, blocks);
    const void *right = node(tree, lo + half, half, blocks + COMM_BLOCK_BYTES);
    comm_combine(tree->call, blocks, left, right, tree->count);
    return blocks;
}

static const void *sum_block(const struct comm_call *call, const void *const *sources, int size,
                             size_t offset, size_t count, char *blocks)
{
    const struct tree tree = { call, sources, size, offset, count };

    return node(&tree, 0, padded(size), blocks);
}

void comm_combine_tree(const struct comm_call *call, const void *const *sources, int size,
                       size_t offset, size_t count, char *blocks, void *out)
{
    const size_t elem = dtype_size(call->dtype), step = COMM_BLOCK_BYTES / elem;

    if (size == 2) {
        comm_combine(call, out, (const char *)sources[0] + offset,
                     (const char *)sources[1] + offset, count);
        return;
    }
    for (size_t at = 0; at < count; at += step) {
        const size_t n = count - at < step ? count - at : step;
        const void *sum = sum_block(call, sources, size, offset + at * elem, n, blocks);
        memmove((char *)out + at * elem, sum, n * elem);
    }
}

void comm_combine_tree_all(const struct comm_call *call, void *const *vectors, int size,
                           size_t offset, size_t count, char *blocks)
{
    const size_t elem = dtype_size(call->dtype), step = COMM_BLOCK_BYTES / elem;
    const void *const *sources = (const void *const *)vectors;

    if (size == 2) {
        combine_both(call, (char *)vectors[0] + offset, (char *)vectors[1] + offset, count);
        return;
    }
    for (size_t at = 0; at < count; at += step) {
        const size_t n = count - at < step ? count - at : step, here = offset + at * elem;
        const void *sum = sum_block(call, sources, size, here, n, blocks);
        for (int i = 0; i < size; i++)
            memmove((char *)vectors[i] + here, sum, n * elem);
    }
}

/* Partial sums ---------------------------------------------------------------------------- */

int comm_partials(int size, int first, int count, struct comm_partial *out)
{
    /* At the right edge a subtree may reach over leaves that do not exist. */
    const int end = first + count == size ? padded(size) : first + count;
    int n = 0;

    for (int begin = first; begin < first + count;) {
        int length = 1;

        while (begin % (2 * length) == 0 && begin + 2 * length <= end)
            length *= 2;
        out[n++] = (struct comm_partial){ .begin = begin, .length = length };
        begin += length;
    }
    return n;
}

struct rest { /* what is left of the tree above partial sums */
    const struct comm_call *call;
    const struct comm_partial *partials;
    int n, size;
    size_t offset, count; /* bytes, elements */
};

/* As node() above. */
static const void *rest_node(const struct rest *rest, int lo, int width, char *blocks)
{
    const int half = width / 2;

    for (int i = 0; i < rest->n; i++) {
        if (rest->partials[i].begin == lo && rest->partials[i].length == width)
            return (const char *)rest->partials[i].data + rest->offset;
    }
    BUG_ON(half == 0);
    const void *left = rest_node(rest, lo, half, blocks);
    if (lo + half >= rest->size)
        return left;
    const void *right = rest_node(rest, lo + half, half, blocks + COMM_BLOCK_BYTES);
    comm_combine(rest->call, blocks, left, right, rest->count);
    return blocks;
}

void comm_combine_partials(const struct comm_call *call, const struct comm_partial *partials,
                           int n, int size, size_t count, char *blocks, void *out)
{
    const size_t elem = dtype_size(call->dtype), step = COMM_BLOCK_BYTES / elem;

    for (size_t at = 0; at < count; at += step) {
        const size_t here = count - at < step ? count - at : step;
        const struct rest rest = { call, partials, n, size, at * elem, here };
        const void *sum = rest_node(&rest, 0, padded(size), blocks);

        memmove((char *)out + at * elem, sum, here * elem);
    }
}
