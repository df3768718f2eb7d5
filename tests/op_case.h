/* SPDX-License-Identifier: MIT */
/* op_case.h - random legal uses of every op, for the tests of the op table.
 *
 * The ops of graph/ops.c that a kernel runs have a row each in op_case.c; a new op gets one
 * there.
 */
#ifndef TESTS_OP_CASE_H
#define TESTS_OP_CASE_H

#include <stdbool.h>

#include "base/rng.h"
#include "graph/op.h"

/* Is there a row for this op? */
bool op_case_exists(const struct op *op);

/* Adds inputs of 2 to 6 samples, parameters and one node of `op` to an empty graph. NULL if the
 * op refuses them, which only happens to cases that were spoilt. */
struct node *op_case_add(struct graph *graph, const struct op *op, struct rng *rng);

/* Contents for a value of the case, for `rows` samples: labels that are classes, ids of rows or -1, indices that
 * lie inside the image, else odd multiples of 1/128 in (-2, 2). Sums of their products are exact in
 * f32. */
void op_case_fill(const struct node *node, const struct value *value, const struct shape *shape,
                  struct rng *rng, void *data);

#endif /* TESTS_OP_CASE_H */
