/* SPDX-License-Identifier: MIT */
/* infer.h - runs a forward graph by itself: named values in, named values out, no step, no ranks.
 *
 * For what a trained model is used for: a text token by token, a translation. The caller
 * holds all memory that lives from call to call: states and caches are inputs and outputs of
 * the graph like any other, and an output may lie in an input's memory where the op that makes
 * it says so. One graph serves all extents; plans are kept for those seen last.
 *
 * Buffers: row-major, as shapes say, aligned to 64 bytes (base/mem.h).
 * Threads: one thread calls; with a pool its threads share each op.
 */
#ifndef EXEC_INFER_H
#define EXEC_INFER_H

#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "exec/exec.h"
#include "graph/graph.h"
#include "kernel/kernel.h"
#include "tensor/safetensors.h"

/* Parameters ---------------------------------------------------------------------------- */

/* Parameters and averages of a model, by name; several graphs may use them at the same time. */
struct infer_weights;

/* A copy of the tensors of a file that `model` has (weights.h checks the file). */
MUST_CHECK enum status infer_weights_load(const struct graph *model,
                                          const struct safetensors *file,
                                          struct infer_weights **out);
/* The executor's own, as they are when a graph runs: on a settled exec, while no rank trains. */
MUST_CHECK enum status infer_weights_of(const struct exec *exec, struct infer_weights **out);
void infer_weights_destroy(struct infer_weights *weights); /* NULL is allowed */

/* Graphs -------------------------------------------------------------------------------- */

struct infer;

struct infer_config {
    const struct graph *graph;           /* forward alone; borrowed, as all below */
    const struct infer_weights *weights; /* has every parameter of the graph */
    const struct kernel_choices *choices;
    struct pool *pool; /* NULL: the caller's thread alone */
    struct value *const *in, *const
                                 *out; /* every input of the graph; results that are wanted */
    int n_in, n_out;
};

/* STATUS_MISMATCH names what is missing or does not fit. The arrays are copied. */
MUST_CHECK enum status infer_create(const struct infer_config *config, struct infer **out);
void infer_destroy(struct infer *infer); /* NULL is allowed */

/* Runs. in[i] and out[j] are the memory of the values at these places of the configuration, which
 * have the shapes that `extents` make. Allocates nothing for extents that it keeps a plan for. */
MUST_CHECK enum status infer_run(struct infer *infer, struct extents extents,
                                 const void *const *in, void *const *out);

/* The shape that a value of the graph has with these extents. */
MUST_CHECK enum status infer_shape(const struct infer *infer, struct extents extents,
                                   const struct value *value, struct shape *out);

#endif /* EXEC_INFER_H */
