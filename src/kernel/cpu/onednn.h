/* SPDX-License-Identifier: MIT */
/* onednn.h - a problem as oneDNN's primitives: what linear layers and convolutions share.
 *
 * oneDNN runs a primitive in the calling thread. So that a pool can share a problem, it is cut into
 * parts, each with a primitive, memory objects and a scratchpad of its own. How many is a function
 * of the problem alone, so the bits do not depend on the pool. A sum over what is cut (the samples
 * of a gradient of weights) has a buffer a part; these are added in the order of the parts.
 *
 * Threads: a state belongs to one call site; its parts may run at the same time.
 */
#ifndef KERNEL_CPU_ONEDNN_H
#define KERNEL_CPU_ONEDNN_H

#include <oneapi/dnnl/dnnl.h>

#include "kernel/kernel.h"

enum { ONEDNN_PARTS = 8, ONEDNN_ARGS = 5 };

/* Where a primitive reads or writes, `offset` floats on: an argument of the call, the call's
 * scratch, memory of the state. */
enum onednn_source { ONEDNN_IN, ONEDNN_OUT, ONEDNN_SCRATCH, ONEDNN_OWN, ONEDNN_PAD };

struct onednn_place {
    enum onednn_source source;
    int slot;
    int64_t offset;
};

struct onednn_step {
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    void *scratchpad;
    int n_args;
    struct onednn_place from[ONEDNN_ARGS];
    dnnl_exec_arg_t args[ONEDNN_ARGS];
};

/* to = the sum of n_parts vectors of `count` floats that lie one after another. */
struct onednn_sum {
    struct onednn_place from, to;
    int64_t count;
};

struct onednn {
    dnnl_engine_t engine;
    struct onednn_step before, parts[ONEDNN_PARTS],
        after; /* those without primitive are left out */
    int n_parts;
    struct onednn_sum sums[2];     /* after the parts, unless count is 0 */
    int64_t sum_rows, sum_columns; /* out[1] = column sums of in[1], by a loop here; or 0 */
    float *own;                    /* weights in the order oneDNN wants, or parts of sums */
};

#define TRY_DNNL(call) TRY(onednn_convert((call), #call))
MUST_CHECK enum status onednn_convert(dnnl_status_t status, const char *what);

/* The primitive of an op descriptor with its scratchpad; the pd stays with the caller. */
MUST_CHECK enum status onednn_make(struct onednn *state, struct onednn_step *step,
                                   const void *desc, bool relu,
                                   const_dnnl_primitive_desc_t hint,
                                   dnnl_primitive_desc_t *out_pd);
MUST_CHECK enum status onednn_reorder(struct onednn *state, struct onednn_step *step,
                                      const dnnl_memory_desc_t *from,
                                      struct onednn_place from_place,
                                      const dnnl_memory_desc_t *to,
                                      struct onednn_place to_place);
MUST_CHECK enum status onednn_add_arg(struct onednn *state, struct onednn_step *step, int name,
                                      const dnnl_memory_desc_t *desc,
                                      struct onednn_place place);

/* A state that `fill` fills. */
typedef enum status onednn_fill(const struct kernel_problem *problem, struct onednn *state);
MUST_CHECK enum status onednn_prepare(const struct kernel_problem *problem, onednn_fill *fill,
                                      void **out_state);
void onednn_release(void *state);
void onednn_run(const struct kernel_call *call);

/* The functions of the rows. */
enum status onednn_prepare_linear(const struct kernel_problem *problem, void **out_state);
enum status onednn_prepare_linear_input(const struct kernel_problem *problem, void **out_state);
enum status onednn_prepare_linear_weight(const struct kernel_problem *problem,
                                         void **out_state);
size_t onednn_linear_weight_scratch(const struct kernel_problem *problem);
enum status onednn_prepare_conv(const struct kernel_problem *problem, void **out_state);
enum status onednn_prepare_conv_input(const struct kernel_problem *problem, void **out_state);
enum status onednn_prepare_conv_weight(const struct kernel_problem *problem, void **out_state);
bool onednn_can_convolve(const struct kernel_problem *problem);

#endif /* KERNEL_CPU_ONEDNN_H */
