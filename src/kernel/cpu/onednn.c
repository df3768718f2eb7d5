/* SPDX-License-Identifier: MIT */
/* onednn.c - linear layers and convolutions by oneDNN, one thread a call.
 *
 * A state holds one primitive, its memory objects and a scratchpad; a run sets the data
 * handles and executes. Images stay NHWC. oneDNN's convolutions want their own
 * order of weights: then the state also holds the weights in that order and a reorder that
 * runs before (forward, gradient of the input) or after (gradient of the weights).
 *
 * oneDNN shares work by OpenMP. The number of threads is a setting of the calling thread, so
 * every entry here sets it to one: making a primitive counts threads, running it uses them.
 */
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/cpu/rows.h"

/* What a primitive reads or writes: an argument of the call, or memory of the state. */
enum source { SOURCE_IN, SOURCE_OUT, SOURCE_OWN };

enum { ARGS = 5 };

struct arg {
    enum source source;
    int slot;
};

struct step {
    dnnl_primitive_t primitive;
    int n_args;
    struct arg from[ARGS];
    dnnl_exec_arg_t args[ARGS];
};

struct state {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct step steps[2]; /* a reorder and the primitive, in the order of running */
    int n_steps;
    void *weights, *scratchpad;
    int64_t sum_rows, sum_columns; /* db = column sums of in[1], by a loop here; or 0 */
};

static void limit_isa(void)
{
    const char *isa = kernel_isa();

    /* Fails only after the first primitive; then the processor's own is used. */
    if (strcmp(isa, "avx2") == 0)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    else if (strcmp(isa, "generic") == 0)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
}

static enum status convert(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return STATUS_OK;
    if (status == dnnl_out_of_memory)
        return FAIL(STATUS_NO_MEMORY, "onednn %s: out of memory", what);
    return FAIL(STATUS_UNSUPPORTED, "onednn %s: status %d", what, (int)status);
}

#define TRY_DNNL(call) TRY(convert((call), #call))

/* Descriptors of tensors ------------------------------------------------------------------- */

static enum status describe_matrix(int64_t rows, int64_t columns, bool is_turned,
                                   dnnl_memory_desc_t *out)
{
    const dnnl_dims_t dims = { rows, columns };

    TRY_DNNL(
        dnnl_memory_desc_init_by_tag(out, 2, dims, dnnl_f32, is_turned ? dnnl_ba : dnnl_ab));
    return STATUS_OK;
}

static enum status describe_image(const struct kernel_tensor *tensor, dnnl_format_tag_t tag,
                                  dnnl_memory_desc_t *out)
{
    dnnl_dims_t dims = { 0 };

    for (int i = 0; i < tensor->shape.rank; i++)
        dims[i] = tensor->shape.dim[i];
    TRY_DNNL(dnnl_memory_desc_init_by_tag(out, tensor->shape.rank, dims, dnnl_f32, tag));
    return STATUS_OK;
}

/* Steps ------------------------------------------------------------------------------------ */

static enum status add_arg(struct state *state, struct step *step, int name,
                           const dnnl_memory_desc_t *desc, enum source source, int slot,
                           void *own)
{
    dnnl_exec_arg_t *arg = &step->args[step->n_args];

    TRY_DNNL(dnnl_memory_create(&arg->memory, desc, state->engine,
                                source == SOURCE_OWN ? own : DNNL_MEMORY_NONE));
    arg->arg = name;
    step->from[step->n_args].source = source;
    step->from[step->n_args].slot = slot;
    step->n_args++;
    return STATUS_OK;
}

static enum status add_scratchpad(struct state *state, struct step *step,
                                  const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *desc =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    const size_t bytes = desc == NULL ? 0 : dnnl_memory_desc_get_size(desc);

    if (bytes == 0)
        return STATUS_OK;
    TRY(mem_alloc(bytes, 1, &state->scratchpad));
    return add_arg(state, step, DNNL_ARG_SCRATCHPAD, desc, SOURCE_OWN, 0, state->scratchpad);
}

static enum status add_reorder(struct state *state, struct step *step,
                               const dnnl_memory_desc_t *from, struct arg from_arg,
                               const dnnl_memory_desc_t *to, struct arg to_arg)
{
    dnnl_primitive_desc_t pd;

    TRY_DNNL(
        dnnl_reorder_primitive_desc_create(&pd, from, state->engine, to, state->engine, NULL));
    const enum status status = convert(dnnl_primitive_create(&step->primitive, pd), "reorder");
    dnnl_primitive_desc_destroy(pd);
    TRY(status);
    TRY(add_arg(state, step, DNNL_ARG_FROM, from, from_arg.source, from_arg.slot,
                state->weights));
    return add_arg(state, step, DNNL_ARG_TO, to, to_arg.source, to_arg.slot, state->weights);
}

/* Attributes: scratchpad of ours, and relu after the sum. */
static enum status make_attr(bool relu, dnnl_primitive_attr_t *out)
{
    dnnl_post_ops_t ops = NULL;

    TRY_DNNL(dnnl_primitive_attr_create(out));
    dnnl_status_t status =
        dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (status == dnnl_success && relu) {
        status = dnnl_post_ops_create(&ops);
        if (status == dnnl_success)
            status = dnnl_post_ops_append_eltwise(ops, 1.0f, dnnl_eltwise_relu, 0.0f, 0.0f);
        if (status == dnnl_success)
            status = dnnl_primitive_attr_set_post_ops(*out, ops);
        dnnl_post_ops_destroy(ops);
    }
    if (status != dnnl_success)
        dnnl_primitive_attr_destroy(*out);
    return convert(status, "attributes");
}

/* The primitive of an op descriptor; the pd stays with the caller. */
static enum status make_primitive(struct state *state, struct step *step, const void *desc,
                                  bool relu, const_dnnl_primitive_desc_t hint,
                                  dnnl_primitive_desc_t *out_pd)
{
    dnnl_primitive_attr_t attr;

    TRY(make_attr(relu, &attr));
    dnnl_status_t status = dnnl_primitive_desc_create(out_pd, (const_dnnl_op_desc_t)desc, attr,
                                                      state->engine, hint);
    dnnl_primitive_attr_destroy(attr);
    TRY(convert(status, "primitive descriptor"));
    status = dnnl_primitive_create(&step->primitive, *out_pd);
    if (status != dnnl_success)
        dnnl_primitive_desc_destroy(*out_pd);
    return convert(status, "primitive");
}

/* Life of a state -------------------------------------------------------------------------- */

static void release(void *opaque)
{
    struct state *state = opaque;

    if (state == NULL)
        return;
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < state->steps[s].n_args; i++)
            dnnl_memory_destroy(state->steps[s].args[i].memory);
        if (state->steps[s].primitive != NULL)
            dnnl_primitive_destroy(state->steps[s].primitive);
    }
    if (state->stream != NULL)
        dnnl_stream_destroy(state->stream);
    if (state->engine != NULL)
        dnnl_engine_destroy(state->engine);
    mem_free(state->weights);
    mem_free(state->scratchpad);
    mem_free(state);
}

typedef enum status fill_fn(const struct kernel_problem *problem, struct state *state);

static enum status prepare(const struct kernel_problem *problem, fill_fn *fill,
                           void **out_state)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct state *state;

    pthread_once(&once, limit_isa);
    omp_set_num_threads(1);
    TRY(mem_alloc(1, sizeof *state, &state));
    enum status status = convert(dnnl_engine_create(&state->engine, dnnl_cpu, 0), "engine");
    if (status == STATUS_OK)
        status = convert(
            dnnl_stream_create(&state->stream, state->engine, dnnl_stream_default_flags),
            "stream");
    if (status == STATUS_OK)
        status = fill(problem, state);
    if (status != STATUS_OK) {
        release(state);
        return status;
    }
    *out_state = state;
    return STATUS_OK;
}

static void add_column_sums(const float *from, int64_t rows, int64_t columns, float *sums)
{
    memset(sums, 0, (size_t)columns * sizeof(float));
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < columns; j++)
            sums[j] += from[i * columns + j];
    }
}

static void run(const struct kernel_call *call)
{
    struct state *state = call->state;

    omp_set_num_threads(1);
    for (int s = 0; s < state->n_steps; s++) {
        struct step *step = &state->steps[s];

        for (int i = 0; i < step->n_args; i++) {
            const struct arg arg = step->from[i];
            if (arg.source == SOURCE_IN)
                dnnl_memory_set_data_handle(step->args[i].memory,
                                            (void *)(uintptr_t)call->in[arg.slot]);
            else if (arg.source == SOURCE_OUT)
                dnnl_memory_set_data_handle(step->args[i].memory, call->out[arg.slot]);
        }
        const dnnl_status_t status =
            dnnl_primitive_execute(step->primitive, state->stream, step->n_args, step->args);
        BUG_ON(status != dnnl_success);
    }
    dnnl_stream_wait(state->stream);
    if (state->sum_columns > 0)
        add_column_sums(call->in[1], state->sum_rows, state->sum_columns, call->out[1]);
}

/* Linear: a matrix product each ------------------------------------------------------------ */

struct product {
    int64_t m, n, k;
    bool a_turned, b_turned; /* lies transposed */
    bool bias, relu;
};

static enum status fill_product(const struct product *p, struct state *state)
{
    struct step *step = &state->steps[0];
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;

    state->n_steps = 1;
    TRY(describe_matrix(p->m, p->k, p->a_turned, &a));
    TRY(describe_matrix(p->k, p->n, p->b_turned, &b));
    TRY(describe_matrix(p->m, p->n, false, &c));
    TRY(describe_matrix(1, p->n, false, &bias));
    TRY_DNNL(dnnl_matmul_desc_init(&desc, &a, &b, p->bias ? &bias : NULL, &c));
    TRY(make_primitive(state, step, &desc, p->relu, NULL, &pd));
    const enum status status = add_scratchpad(state, step, pd);
    dnnl_primitive_desc_destroy(pd);
    TRY(status);
    TRY(add_arg(state, step, DNNL_ARG_SRC, &a, SOURCE_IN, 0, NULL));
    TRY(add_arg(state, step, DNNL_ARG_WEIGHTS, &b, SOURCE_IN, 1, NULL));
    if (p->bias)
        TRY(add_arg(state, step, DNNL_ARG_BIAS, &bias, SOURCE_IN, 2, NULL));
    return add_arg(state, step, DNNL_ARG_DST, &c, SOURCE_OUT, 0, NULL);
}

static enum status fill_linear(const struct kernel_problem *problem, struct state *state)
{
    const int64_t k = problem->in[1].shape.dim[1], n = problem->in[1].shape.dim[0];

    return fill_product(
        &(struct product){ .m = shape_count(&problem->in[0].shape) / k,
                           .n = n,
                           .k = k,
                           .bias = problem->n_in > 2,
                           .relu = problem->attrs.activation == ACTIVATION_RELU },
        state);
}

static enum status fill_linear_input(const struct kernel_problem *problem, struct state *state)
{
    const int64_t k = problem->in[1].shape.dim[1], n = problem->in[1].shape.dim[0];

    return fill_product(
        &(struct product){
            .m = shape_count(&problem->in[0].shape) / n, .n = k, .k = n, .b_turned = true },
        state);
}

static enum status fill_linear_weight(const struct kernel_problem *problem, struct state *state)
{
    const int64_t k = problem->out[0].shape.dim[1], n = problem->out[0].shape.dim[0];
    const int64_t m = shape_count(&problem->in[0].shape) / k;

    if (problem->n_out > 1) {
        state->sum_rows = m;
        state->sum_columns = n;
    }
    return fill_product(&(struct product){ .m = k, .n = n, .k = m, .a_turned = true }, state);
}

/* Convolution ------------------------------------------------------------------------------ */

struct conv_descs {
    dnnl_memory_desc_t x, w, w_any, y, bias;
    dnnl_dims_t stride, pad;
};

/* Our order (kh, kw, C/groups, O), and any. oneDNN wants the groups as an extent of their own. */
static enum status describe_weights(const struct kernel_tensor *w, int groups,
                                    struct conv_descs *out)
{
    const int64_t o = w->shape.dim[0], c = w->shape.dim[1], kh = w->shape.dim[2],
                  kw = w->shape.dim[3];

    if (groups > 1) {
        const dnnl_dims_t dims = { groups, o / groups, c, kh, kw };
        const dnnl_dims_t strides = { o / groups, 1, o, kw * c * o, c * o };

        TRY_DNNL(dnnl_memory_desc_init_by_strides(&out->w, 5, dims, dnnl_f32, strides));
        TRY_DNNL(
            dnnl_memory_desc_init_by_tag(&out->w_any, 5, dims, dnnl_f32, dnnl_format_tag_any));
        return STATUS_OK;
    }
    TRY(describe_image(w, dnnl_hwio, &out->w));
    return describe_image(w, dnnl_format_tag_any, &out->w_any);
}

static enum status describe_conv(const struct kernel_problem *problem,
                                 const struct kernel_tensor *x, const struct kernel_tensor *w,
                                 const struct kernel_tensor *y, struct conv_descs *out)
{
    const dnnl_dims_t bias = { w->shape.dim[0] };

    for (int i = 0; i < 2; i++) {
        out->stride[i] = problem->attrs.stride[i] > 0 ? problem->attrs.stride[i] : 1;
        out->pad[i] = problem->attrs.pad[i];
    }
    TRY(describe_image(x, dnnl_nhwc, &out->x));
    TRY(describe_image(y, dnnl_nhwc, &out->y));
    TRY(describe_weights(w, problem->attrs.groups, out));
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&out->bias, 1, bias, dnnl_f32, dnnl_a));
    return STATUS_OK;
}

/* Room for the weights in the order the primitive wants, if that is not ours. */
static enum status own_weights(struct state *state, const struct conv_descs *descs,
                               const dnnl_memory_desc_t *wanted, bool *out_differs)
{
    *out_differs = !dnnl_memory_desc_equal(&descs->w, wanted);
    if (*out_differs)
        TRY(mem_alloc(dnnl_memory_desc_get_size(wanted), 1, &state->weights));
    return STATUS_OK;
}

/* Forward or gradient of the input: weights are read. */
static enum status fill_reading(const struct conv_descs *descs, const void *desc, bool relu,
                                const_dnnl_primitive_desc_t hint, int in_arg, int out_arg,
                                bool bias, struct state *state)
{
    const bool is_forward = in_arg == DNNL_ARG_SRC;
    const dnnl_memory_desc_t *in = is_forward ? &descs->x : &descs->y;
    const dnnl_memory_desc_t *out = is_forward ? &descs->y : &descs->x;
    dnnl_primitive_desc_t pd;
    struct step *main = &state->steps[1];
    bool differs;

    TRY(make_primitive(state, main, desc, relu, hint, &pd));
    const dnnl_memory_desc_t wanted =
        *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    const enum status status = add_scratchpad(state, main, pd);
    dnnl_primitive_desc_destroy(pd);
    TRY(status);
    TRY(own_weights(state, descs, &wanted, &differs));
    TRY(add_arg(state, main, in_arg, in, SOURCE_IN, 0, NULL));
    TRY(add_arg(state, main, DNNL_ARG_WEIGHTS, &wanted, differs ? SOURCE_OWN : SOURCE_IN, 1,
                state->weights));
    if (bias)
        TRY(add_arg(state, main, DNNL_ARG_BIAS, &descs->bias, SOURCE_IN, 2, NULL));
    TRY(add_arg(state, main, out_arg, out, SOURCE_OUT, 0, NULL));
    state->n_steps = 2;
    if (differs)
        return add_reorder(state, &state->steps[0], &descs->w, (struct arg){ SOURCE_IN, 1 },
                           &wanted, (struct arg){ SOURCE_OWN, 0 });
    state->steps[0] = state->steps[1];
    memset(&state->steps[1], 0, sizeof state->steps[1]);
    state->n_steps = 1;
    return STATUS_OK;
}

static enum status fill_conv(const struct kernel_problem *problem, struct state *state)
{
    const bool bias = problem->n_in > 2;
    struct conv_descs d;
    dnnl_convolution_desc_t desc;

    TRY(describe_conv(problem, &problem->in[0], &problem->in[1], &problem->out[0], &d));
    TRY_DNNL(dnnl_convolution_forward_desc_init(
        &desc, dnnl_forward_training, dnnl_convolution_direct, &d.x, &d.w_any,
        bias ? &d.bias : NULL, &d.y, d.stride, d.pad, d.pad));
    return fill_reading(&d, &desc, problem->attrs.activation == ACTIVATION_RELU, NULL,
                        DNNL_ARG_SRC, DNNL_ARG_DST, bias, state);
}

/* What gradients are told of the forward pass. */
static enum status make_hint(struct state *state, const struct conv_descs *d,
                             dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;

    TRY_DNNL(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training,
                                                dnnl_convolution_direct, &d->x, &d->w_any, NULL,
                                                &d->y, d->stride, d->pad, d->pad));
    TRY_DNNL(dnnl_primitive_desc_create(out, &desc, NULL, state->engine, NULL));
    return STATUS_OK;
}

static enum status fill_conv_input(const struct kernel_problem *problem, struct state *state)
{
    struct conv_descs d;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t hint;

    TRY(describe_conv(problem, &problem->out[0], &problem->in[1], &problem->in[0], &d));
    TRY(make_hint(state, &d, &hint));
    enum status status = convert(
        dnnl_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &d.x, &d.w_any,
                                                 &d.y, d.stride, d.pad, d.pad),
        "gradient of the input");
    if (status == STATUS_OK)
        status = fill_reading(&d, &desc, false, hint, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC,
                              false, state);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

static enum status fill_writing(const struct conv_descs *d, const void *desc,
                                const_dnnl_primitive_desc_t hint, bool bias,
                                struct state *state)
{
    dnnl_primitive_desc_t pd;
    struct step *main = &state->steps[0];
    bool differs;

    TRY(make_primitive(state, main, desc, false, hint, &pd));
    const dnnl_memory_desc_t wanted =
        *dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 0);
    const enum status status = add_scratchpad(state, main, pd);
    dnnl_primitive_desc_destroy(pd);
    TRY(status);
    TRY(own_weights(state, d, &wanted, &differs));
    TRY(add_arg(state, main, DNNL_ARG_SRC, &d->x, SOURCE_IN, 0, NULL));
    TRY(add_arg(state, main, DNNL_ARG_DIFF_DST, &d->y, SOURCE_IN, 1, NULL));
    TRY(add_arg(state, main, DNNL_ARG_DIFF_WEIGHTS, &wanted, differs ? SOURCE_OWN : SOURCE_OUT,
                0, state->weights));
    if (bias)
        TRY(add_arg(state, main, DNNL_ARG_DIFF_BIAS, &d->bias, SOURCE_OUT, 1, NULL));
    state->n_steps = 1;
    if (!differs)
        return STATUS_OK;
    state->n_steps = 2;
    return add_reorder(state, &state->steps[1], &wanted, (struct arg){ SOURCE_OWN, 0 }, &d->w,
                       (struct arg){ SOURCE_OUT, 0 });
}

static enum status fill_conv_weight(const struct kernel_problem *problem, struct state *state)
{
    const bool bias = problem->n_out > 1;
    struct conv_descs d;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t hint;

    TRY(describe_conv(problem, &problem->in[0], &problem->out[0], &problem->in[1], &d));
    TRY(make_hint(state, &d, &hint));
    enum status status = convert(dnnl_convolution_backward_weights_desc_init(
                                     &desc, dnnl_convolution_direct, &d.x, &d.w_any,
                                     bias ? &d.bias : NULL, &d.y, d.stride, d.pad, d.pad),
                                 "gradient of the weights");
    if (status == STATUS_OK)
        status = fill_writing(&d, &desc, hint, bias, state);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* Rows ------------------------------------------------------------------------------------- */

static enum status prepare_linear(const struct kernel_problem *problem, void **out_state)
{
    return prepare(problem, fill_linear, out_state);
}
static enum status prepare_linear_input(const struct kernel_problem *problem, void **out_state)
{
    return prepare(problem, fill_linear_input, out_state);
}
static enum status prepare_linear_weight(const struct kernel_problem *problem, void **out_state)
{
    return prepare(problem, fill_linear_weight, out_state);
}
static enum status prepare_conv(const struct kernel_problem *problem, void **out_state)
{
    return prepare(problem, fill_conv, out_state);
}
static enum status prepare_conv_input(const struct kernel_problem *problem, void **out_state)
{
    return prepare(problem, fill_conv_input, out_state);
}
static enum status prepare_conv_weight(const struct kernel_problem *problem, void **out_state)
{
    return prepare(problem, fill_conv_weight, out_state);
}

static bool can_run(const struct kernel_problem *problem)
{
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].dtype != DTYPE_F32)
            return false;
    }
    return problem->out[0].dtype == DTYPE_F32;
}

/* oneDNN does not take a padding as wide as the kernel. Its weight gradient of a 1x1 kernel with a
 * stride writes past the scratchpad that it asked for (2.6.3 with AVX2; found by valgrind). */
static bool can_convolve(const struct kernel_problem *problem)
{
    const bool is_weight = strcmp(problem->op, "conv2d_grad_weight") == 0;
    const struct shape *w = is_weight ? &problem->out[0].shape : &problem->in[1].shape;
    const bool skips = problem->attrs.stride[0] > 1 || problem->attrs.stride[1] > 1;

    if (is_weight && skips && w->dim[2] == 1 && w->dim[3] == 1)
        return false;
    if (problem->attrs.activation > ACTIVATION_RELU)
        return false;
    return can_run(problem) && problem->attrs.pad[0] < w->dim[2] &&
           problem->attrs.pad[1] < w->dim[3];
}

const struct kernel kernel_onednn_rows[] = {
    { "linear", "onednn", can_run, NULL, prepare_linear, release, run },
    { "linear_grad_input", "onednn", can_run, NULL, prepare_linear_input, release, run },
    { "linear_grad_weight", "onednn", can_run, NULL, prepare_linear_weight, release, run },
    { "conv2d", "onednn", can_convolve, NULL, prepare_conv, release, run },
    { "conv2d_grad_input", "onednn", can_convolve, NULL, prepare_conv_input, release, run },
    { "conv2d_grad_weight", "onednn", can_convolve, NULL, prepare_conv_weight, release, run },
    { 0 },
};
