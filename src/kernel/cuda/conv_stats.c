/* SPDX-License-Identifier: MIT */
/* conv_stats.c - convolutions with the statistics of what they make, and their gradients (graph/op_norm_conv.c).
 *
 * The convolutions are whichever rows have them. Statistics take one more look at z; backward, what flows through these joins
 * dz in a copy that both gradients of the convolution read.
 */
#include "base/mem.h"
#include "kernel/cuda/across.h"
#include "kernel/cuda/batch_norm.h"
#include "kernel/precision.h"

enum { N_INNER = 2 };

/* Convolutions inside: their problems, and the rows that run them. */
struct inner {
    struct kernel_problem problem[N_INNER];
    const struct kernel *row[N_INNER];
    void *state[N_INNER];
};

static bool is_forward(const struct kernel_problem *p)
{
    return p->n_in == 2;
}

static int n_inner(const struct kernel_problem *p)
{
    return is_forward(p) ? 1 : N_INNER;
}

/* conv2d of x and w, which is turned first where it lies as the row does not take it; or the gradients of dz, w and x. */
static struct kernel_problem inner_of(const struct kernel_problem *p, int i)
{
    static const char *const gradients[] = { "conv2d_grad_input", "conv2d_grad_weight" };
    struct kernel_problem inner = { .op = is_forward(p) ? "conv2d" : gradients[i],
                                    .n_in = 2,
                                    .n_out = 1,
                                    .in = { p->in[0], p->in[1] },
                                    .out = { p->out[i] },
                                    .attrs = p->attrs,
                                    .rounds = p->rounds };

    inner.attrs.epsilon = 0;
    if (i == 1) {
        inner.in[0] = p->in[2];
        inner.in[1] = p->in[0];
    }
    const struct kernel *row = cuda_find(&inner);
    if (inner.in[1].layout == LAYOUT_OHWI && row && !cuda_takes_inward(row))
        inner.in[1].layout = LAYOUT_HWIO;
    return inner;
}

static bool turns(const struct kernel_problem *p)
{
    return is_forward(p) && inner_of(p, 0).in[1].layout != p->in[1].layout;
}

static bool can_run(const struct kernel_problem *p)
{
    for (int i = 0; i < n_inner(p); i++) {
        const struct kernel_problem inner = inner_of(p, i);
        if (cuda_find(&inner) == NULL)
            return false;
    }
    return true;
}

/* Of the turned filter, or of the copy of dz. */
static size_t copy_bytes(const struct kernel_problem *p)
{
    const size_t size = kernel_is_half(p->in[0].dtype) ? sizeof(uint16_t) : sizeof(float);
    const struct shape *copied = &p->in[is_forward(p) ? 1 : 0].shape;

    if (is_forward(p) && !turns(p))
        return 0;
    return ((size_t)shape_count(copied) * size + 255) / 256 * 256;
}

/* The copy, then what one of the others needs. */
static size_t scratch_bytes(const struct kernel_problem *p)
{
    size_t most = is_forward(p) ? batch_norm_moments_scratch(&p->out[0]) : 0;

    for (int i = 0; i < n_inner(p); i++) {
        const struct kernel_problem inner = inner_of(p, i);
        const struct kernel *row = cuda_find(&inner);
        const size_t bytes = row && row->scratch_bytes ? row->scratch_bytes(&inner) : 0;
        most = bytes > most ? bytes : most;
    }
    return copy_bytes(p) + most;
}

static void release(void *state)
{
    struct inner *inner = state;

    for (int i = 0; inner && i < N_INNER; i++) {
        if (inner->state[i])
            inner->row[i]->release(inner->state[i]);
    }
    mem_free(inner);
}

static enum status fill_inner(const struct kernel_problem *p, struct inner *inner)
{
    for (int i = 0; i < n_inner(p); i++) {
        inner->problem[i] = inner_of(p, i);
        inner->row[i] = cuda_find(&inner->problem[i]);
        if (!inner->row[i])
            return FAIL(STATUS_UNSUPPORTED, "cuda: a convolution has a kernel no more");
        if (inner->row[i]->prepare)
            TRY(inner->row[i]->prepare(&inner->problem[i], &inner->state[i]));
    }
    return STATUS_OK;
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

static void run_inner(const struct kernel_call *call, int i, const void *a, const void *b)
{
    const struct inner *inner = call->state;
    const struct kernel_call one = { .problem = &inner->problem[i],
                                     .in = { a, b },
                                     .out = { call->out[i] },
                                     .scratch =
                                         (char *)call->scratch + copy_bytes(call->problem),
                                     .state = inner->state[i],
                                     .step = call->step,
                                     .stream = call->stream };

    inner->row[i]->run(&one);
}

static void run_forward(const struct kernel_call *call)
{
    const struct kernel_tensor *w = &call->problem->in[1];
    const void *filter = call->in[1];

    if (turns(call->problem)) {
        const int64_t o = w->shape.dim[0];
        turn_across(call->stream, call->scratch, w->dtype, filter, w->dtype, o,
                    shape_count(&w->shape) / o);
        filter = call->scratch;
    }
    run_inner(call, 0, call->in[0], filter);
    batch_norm_moments(call, &call->problem->out[0], call->out[0], 1);
}

/* Inputs: dz, w, x, z, saved, dsaved. */
static void run_backward(const struct kernel_call *call)
{
    void *const dz = call->scratch;

    batch_norm_flow_back(call->stream, &call->problem->in[0], call->in[0], call->in[3],
                         call->in[4], call->in[5], dz);
    run_inner(call, 0, dz, call->in[1]);
    run_inner(call, 1, call->in[2], dz);
}

#define ROW(name_of_op, runs)                                                                  \
    {                                                                                          \
        .op = (name_of_op), .name = "inner", .can_run = can_run,                               \
        .scratch_bytes = scratch_bytes, .prepare = prepare, .release = release, .run = (runs)  \
    }

const struct kernel cuda_conv_stats_rows[] = {
    ROW("conv2d_stats", run_forward),
    ROW("conv2d_stats_grad", run_backward),
    { 0 },
};
