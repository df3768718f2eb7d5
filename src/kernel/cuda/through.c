/* SPDX-License-Identifier: MIT */
/* through.c - linear_grad_through: a layer's input gradient through the activation before it.
 *
 * The product is by whichever row has linear_grad_input, and what it stored is multiplied by the slope: so the bits are those of the two ops,
 * which a pipeline's cut may keep apart. gelu's slope goes with the sums that a bias wants (column_sums.cu).
 */
#include "base/mem.h"
#include "kernel/cuda/column_sums.h"

enum { PRODUCT, SLOPE, N_INNER };

struct inner {
    struct kernel_problem problem[N_INNER];
    const struct kernel *row[N_INNER];
    void *state;
};

static bool slopes_with_sums(const struct kernel_problem *p)
{
    return p->n_out > 1 && p->attrs.activation == ACTIVATION_GELU_TANH;
}

static struct kernel_problem inner_of(const struct kernel_problem *p, int which)
{
    const char *slope = p->attrs.activation == ACTIVATION_RELU ? "relu_grad" : "gelu_tanh_grad";
    struct kernel_problem inner = { .op = which == PRODUCT ? "linear_grad_input" : slope,
                                    .n_in = 2,
                                    .n_out = 1,
                                    .in = { p->in[0], p->in[1] },
                                    .out = { p->out[0] },
                                    .rounds = p->rounds };

    if (which == SLOPE) {
        inner.in[0] = p->out[0];
        inner.in[1] = p->in[2];
    }
    return inner;
}

static size_t product_scratch(const struct kernel_problem *p)
{
    const struct kernel_problem inner = inner_of(p, PRODUCT);
    const struct kernel *row = cuda_find(&inner);
    const size_t bytes = row && row->scratch_bytes ? row->scratch_bytes(&inner) : 0;

    return (bytes + 255) / 256 * 256;
}

/* The product's, then that of sums. */
static size_t scratch_bytes(const struct kernel_problem *p)
{
    const struct shape *dx = &p->out[0].shape;

    return product_scratch(p) + (p->n_out > 1 ? sum_rows_scratch(dx->dim[0], dx->dim[1]) : 0);
}

static void release(void *state)
{
    struct inner *inner = state;

    if (inner && inner->state)
        inner->row[PRODUCT]->release(inner->state);
    mem_free(inner);
}

static enum status fill_inner(const struct kernel_problem *p, struct inner *inner)
{
    for (int i = 0; i < N_INNER; i++) {
        inner->problem[i] = inner_of(p, i);
        inner->row[i] = cuda_find(&inner->problem[i]);
        if (!inner->row[i])
            return FAIL(STATUS_UNSUPPORTED, "cuda: %s has no kernel", inner->problem[i].op);
    }
    const struct kernel *product = inner->row[PRODUCT];
    return product->prepare ? product->prepare(&inner->problem[PRODUCT], &inner->state)
                            : STATUS_OK;
}

static enum status prepare(const struct kernel_problem *p, void **out)
{
    struct inner *inner;

    TRY(mem_alloc(1, sizeof *inner, &inner));
    const enum status status = fill_inner(p, inner);
    if (status != STATUS_OK)
        release(inner);
    else
        *out = inner;
    return status;
}

static void run(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct inner *inner = call->state;
    const struct shape *dx = &p->out[0].shape;
    struct kernel_call one = { .problem = &inner->problem[PRODUCT],
                               .in = { call->in[0], call->in[1] },
                               .out = { call->out[0] },
                               .scratch = call->scratch,
                               .state = inner->state,
                               .step = call->step,
                               .stream = call->stream };

    inner->row[PRODUCT]->run(&one);
    if (!slopes_with_sums(p)) {
        one.problem = &inner->problem[SLOPE];
        one.in[0] = call->out[0];
        one.in[1] = call->in[2];
        inner->row[SLOPE]->run(&one);
    }
    if (p->n_out > 1)
        sum_rows(call->stream, call->out[0], slopes_with_sums(p) ? call->in[2] : NULL,
                 p->out[0].dtype, dx->dim[0], dx->dim[1], call->out[1],
                 (char *)call->scratch + product_scratch(p));
}

const struct kernel cuda_through_rows[] = {
    { .op = "linear_grad_through",
      .name = "inner",
      .scratch_bytes = scratch_bytes,
      .prepare = prepare,
      .release = release,
      .run = run },
    { 0 },
};
