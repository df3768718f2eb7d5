/* SPDX-License-Identifier: MIT */
/* tree.h - the fixed binary tree over logical shards, along which gradients are summed.
 *
 * Leaves are shard numbers 0..V-1, padded to a power of two by leaves that are absent (never added
 * as zero). A lane runs a row of shards one after the other and adds what the tree adds, so at
 * the end it holds one partial sum for each largest aligned subtree inside its row:
 *
 *   V = 8, three lanes of 3, 3 and 2 shards hold   [0,2) [2,3) | [3,4) [4,6) | [6,8)
 *
 * and the partial sums of all lanes are combined along what is left of the tree. The order of
 * additions is that of the whole tree, whatever the rows are.
 */
#ifndef KERNEL_TREE_H
#define KERNEL_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TREE_DEPTH = 40 };

struct tree_node { /* shards [begin, begin + length), length a power of two */
    int64_t begin, length;
};

/* What a lane holds while it runs its row of shards: partial sums from left to right. */
struct tree_stack {
    int64_t shards; /* V */
    struct tree_node node[2 * TREE_DEPTH];
    int count;
};

void tree_stack_init(struct tree_stack *stack, int64_t shards);
/* Shard `v` (the next one) is about to run: its gradients go to buffer number tree_stack_push. */
int tree_stack_push(struct tree_stack *stack, int64_t v);
/* Can the last two partial sums be added (buffer count-2 += buffer count-1)? */
bool tree_stack_can_add(const struct tree_stack *stack);
void tree_stack_add(struct tree_stack *stack);
/* Most buffers that the row [first, first + count) needs at once, and how many it ends with. */
int tree_buffers(int64_t shards, int64_t first, int64_t count);

/* The partial sums that the row [first, first + count) ends with; out has room for
 * 2 * TREE_DEPTH. Returns how many. */
int tree_row(int64_t shards, int64_t first, int64_t count, struct tree_node *out);

/* Partial sums of a whole job, left to right, for combining one stretch of the vector. */
struct tree_part {
    struct tree_node node;
    const float *data; /* beginning of the flat vector */
};

/* The sum over all parts of elements [at, at + count), count <= TREE_STRETCH. Returns where it
 * lies: in one of the parts if nothing had to be added, else in `scratch` (TREE_SCRATCH floats). */
enum { TREE_STRETCH = 2048, TREE_SCRATCH = TREE_STRETCH * TREE_DEPTH };
const float *tree_combine(const struct tree_part *parts, int n_parts, int64_t shards, size_t at,
                          size_t count, float *scratch);

/* The same where leaves may be missing: they are left out like those beyond the last. */
const float *tree_combine_some(const struct tree_part *parts, int n_parts, int64_t shards,
                               size_t at, size_t count, float *scratch);

/* The same as a list, for who adds elsewhere; parts in any order. An operand below n_parts is that
 * part, others are vectors of scratch: number n_parts is the first of these. */
struct tree_addition {
    int left, right, out; /* out may be one of the others */
};
/* Room for n_parts - 1 of them. Returns how many vectors of scratch there are; *out_result is the
 * operand that ends as the sum. */
int tree_additions(const struct tree_node *parts, int n_parts, int64_t shards,
                   struct tree_addition *out, int *out_result);

/* The sum over one node of the tree, all of whose leaves are in `parts`. */
const float *tree_combine_node(const struct tree_part *parts, int n_parts, int64_t shards,
                               struct tree_node node, size_t at, size_t count, float *scratch);

/* Sums of one row of a table that some shards have and others do not, given from left to right:
 * what a shard without the row would add is left out, which is as good as adding its zero where
 * sums begin with +0. */
struct tree_sums {
    float *data;          /* TREE_DEPTH rows of `floats` */
    size_t floats, width; /* of which `width` are added */
    int64_t shard[TREE_DEPTH];
    int count;
};
/* Room for the sum of a shard, or of a node of the tree that begins with it, to the right of all
 * there are. */
float *tree_sums_push(struct tree_sums *sums, int64_t shard);
/* Adds what is left: the whole sum lies at the beginning of data. */
void tree_sums_end(struct tree_sums *sums);

/* The same tree over `count` numbers in double: for losses. */
double tree_sum(const float *numbers, int64_t count);

#endif /* KERNEL_TREE_H */
