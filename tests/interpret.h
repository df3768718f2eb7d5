/* SPDX-License-Identifier: MIT */
/* interpret.h - runs a graph node by node, every value in a buffer of its own: what exec/ is
 * compared with, and how tests reach single ops.
 *
 * Views are copied. Threads: one.
 */
#ifndef TESTS_INTERPRET_H
#define TESTS_INTERPRET_H

#include "graph/graph.h"
#include "kernel/kernel.h"

struct interpreter;

/* For `rows` samples; `choices` NULL takes the reference kernel of every op. The graph is
 * borrowed and must not change but for nodes added at its end, which are not run. */
MUST_CHECK enum status interpret_create(const struct graph *graph, int64_t rows,
                                        const struct kernel_choices *choices,
                                        struct interpreter **out);
void interpret_destroy(struct interpreter *interpreter); /* NULL is allowed */

/* The buffer of a value, and its shape for these rows. */
void *interpret_data(const struct interpreter *interpreter, const struct value *value);
const struct shape *interpret_shape(const struct interpreter *interpreter,
                                    const struct value *value);
/* Runs the nodes numbered [first, end), by their place in the graph. */
void interpret_run(struct interpreter *interpreter, int first, int end,
                   const struct kernel_step *step);

/* The problem that a node is, with these shapes by value id. */
struct kernel_problem interpret_problem(const struct node *node, const struct shape *shapes);

#endif /* TESTS_INTERPRET_H */
