/* SPDX-License-Identifier: MIT */
/* tree_test.c - sums along the tree of shards do not depend on how shards lie on lanes. */
#include <string.h>

#include "base/test.h"
#include "kernel/tree.h"

enum { MAX_SHARDS = 24, COUNT = 33 };

/* The definition: left half plus right half of the padded range, absent leaves left out. */
static float serial(float data[MAX_SHARDS][COUNT], int64_t shards, size_t at, int64_t begin,
                    int64_t length)
{
    if (length == 1)
        return data[begin][at];
    const float left = serial(data, shards, at, begin, length / 2);
    if (begin + length / 2 >= shards)
        return left;
    return left + serial(data, shards, at, begin + length / 2, length / 2);
}

/* The list of additions, done one after the other, gives the same; operands are not touched. */
static void check_additions(const struct tree_part *parts, int n_parts, int64_t shards,
                            const float *sum)
{
    static float scratch[MAX_SHARDS][COUNT];
    struct tree_addition additions[2 * MAX_SHARDS];
    struct tree_node nodes[2 * MAX_SHARDS];
    int result;

    for (int i = 0; i < n_parts; i++)
        nodes[i] = parts[i].node;
    const int n_scratch = tree_additions(nodes, n_parts, shards, additions, &result);
    CHECK(n_scratch <= 6 && (n_parts > 1 || n_scratch == 0));
    for (int k = 0; k < n_parts - 1; k++) {
        const struct tree_addition a = additions[k];
        const float *left = a.left < n_parts ? parts[a.left].data : scratch[a.left - n_parts];
        const float *right =
            a.right < n_parts ? parts[a.right].data : scratch[a.right - n_parts];
        CHECK(a.out >= n_parts && a.out < n_parts + n_scratch);
        for (int i = 0; i < COUNT; i++)
            scratch[a.out - n_parts][i] = left[i] + right[i];
    }
    const float *listed = result < n_parts ? parts[result].data : scratch[result - n_parts];
    CHECK(memcmp(sum, listed, COUNT * sizeof *sum) == 0);
}

static void test_any_cut_into_rows_gives_the_tree_sum(struct rng *rng)
{
    static float data[MAX_SHARDS][COUNT], buffers[MAX_SHARDS][MAX_SHARDS][COUNT];
    static float scratch[TREE_SCRATCH];
    const int64_t shards = 1 + (int64_t)rng_below(rng, MAX_SHARDS);
    const int lanes = 1 + (int)rng_below(rng, (uint64_t)shards);
    struct tree_part parts[2 * MAX_SHARDS];
    int n_parts = 0;
    int64_t size = 1;

    while (size < shards)
        size *= 2;
    for (int64_t v = 0; v < shards; v++) {
        for (int i = 0; i < COUNT; i++)
            data[v][i] = (rng_float(rng) - 0.5F) * (float)(1 << rng_below(rng, 20));
    }
    for (int lane = 0; lane < lanes; lane++) {
        const int64_t first = lane * shards / lanes, end = (lane + 1) * shards / lanes;
        struct tree_stack stack;
        tree_stack_init(&stack, shards);
        for (int64_t v = first; v < end; v++) {
            memcpy(buffers[lane][tree_stack_push(&stack, v)], data[v], sizeof data[v]);
            CHECK(stack.count <= tree_buffers(shards, first, end - first));
            while (tree_stack_can_add(&stack)) {
                for (int i = 0; i < COUNT; i++)
                    buffers[lane][stack.count - 2][i] += buffers[lane][stack.count - 1][i];
                tree_stack_add(&stack);
            }
        }
        for (int i = 0; i < stack.count; i++)
            parts[n_parts++] = (struct tree_part){ stack.node[i], buffers[lane][i] };
    }
    const float *sum = tree_combine(parts, n_parts, shards, 0, COUNT, scratch);
    check_additions(parts, n_parts, shards, sum);
    for (size_t i = 0; i < COUNT; i++) {
        const float expected = serial(data, shards, i, 0, size);
        CHECK(memcmp(&expected, &sum[i], sizeof expected) == 0);
    }
}

static void test_aligned_rows_hold_one_partial_sum(void)
{
    CHECK_INT(1, tree_buffers(4, 2, 1));
    CHECK_INT(2, tree_buffers(4, 0, 2));
    CHECK_INT(3, tree_buffers(4, 0, 4));
    CHECK_INT(4, tree_buffers(8, 0, 8));
}

static void check_row(int64_t shards, int64_t first, int64_t count, int n,
                      const struct tree_node *expected)
{
    struct tree_node row[2 * TREE_DEPTH];

    CHECK_INT(n, tree_row(shards, first, count, row));
    for (int i = 0; i < n; i++)
        CHECK(row[i].begin == expected[i].begin && row[i].length == expected[i].length);
}

/* Lanes of 3, 3 and 2 shards; five ranks on nodes of 3 and 2. */
static void test_a_row_ends_with_its_largest_subtrees(void)
{
    check_row(8, 0, 3, 2, (const struct tree_node[]){ { 0, 2 }, { 2, 1 } });
    check_row(8, 3, 3, 2, (const struct tree_node[]){ { 3, 1 }, { 4, 2 } });
    check_row(8, 6, 2, 1, (const struct tree_node[]){ { 6, 2 } });
    check_row(5, 3, 2, 2, (const struct tree_node[]){ { 3, 1 }, { 4, 1 } });
    check_row(7, 4, 3, 1, (const struct tree_node[]){ { 4, 4 } });
    check_row(8, 2, 0, 0, NULL);
}

static void test_losses_are_summed_along_the_tree(void)
{
    const float numbers[] = { 1, 2, 3, 4, 5 };

    CHECK(tree_sum(numbers, 5) == 15);
    CHECK(tree_sum(numbers, 1) == 1);
    CHECK(tree_sum(numbers, 0) == 0);
}

/* The same with leaves left out; *out_any: there is one. */
static float serial_some(float data[MAX_SHARDS][COUNT], const bool *is_there, int64_t shards,
                         size_t at, int64_t begin, int64_t length, bool *out_any)
{
    bool has_left, has_right;

    *out_any = false;
    if (begin >= shards)
        return 0;
    if (length == 1) {
        *out_any = is_there[begin];
        return data[begin][at];
    }
    const float left = serial_some(data, is_there, shards, at, begin, length / 2, &has_left);
    const float right =
        serial_some(data, is_there, shards, at, begin + length / 2, length / 2, &has_right);
    *out_any = has_left || has_right;
    return has_left && has_right ? left + right : has_left ? left : right;
}

static void test_missing_parts_are_left_out(struct rng *rng)
{
    static float data[MAX_SHARDS][COUNT];
    static float scratch[TREE_SCRATCH];
    const int64_t shards = 1 + (int64_t)rng_below(rng, MAX_SHARDS);
    struct tree_part parts[MAX_SHARDS];
    bool is_there[MAX_SHARDS];
    int n_parts = 0;
    int64_t size = 1;

    while (size < shards)
        size *= 2;
    for (int64_t v = 0; v < shards; v++) {
        for (int i = 0; i < COUNT; i++)
            data[v][i] = (rng_float(rng) - 0.5F) * (float)(1 << rng_below(rng, 20));
        is_there[v] = v == shards - 1 || rng_below(rng, 2);
        if (is_there[v])
            parts[n_parts++] = (struct tree_part){ { v, 1 }, data[v] };
    }
    const float *sum = tree_combine_some(parts, n_parts, shards, 0, COUNT, scratch);
    for (size_t i = 0; i < COUNT; i++) {
        bool any;
        const float expected = serial_some(data, is_there, shards, i, 0, size, &any);
        CHECK(any && memcmp(&expected, &sum[i], sizeof expected) == 0);
    }
}

const struct test tests[] = {
    { .name = "missing parts are left out", .property = test_missing_parts_are_left_out },
    { .name = "any cut into rows gives the tree sum",
      .property = test_any_cut_into_rows_gives_the_tree_sum },
    { .name = "aligned rows hold one partial sum",
      .run = test_aligned_rows_hold_one_partial_sum },
    { .name = "a row ends with its largest subtrees",
      .run = test_a_row_ends_with_its_largest_subtrees },
    { .name = "losses are summed along the tree",
      .run = test_losses_are_summed_along_the_tree },
    { 0 },
};
