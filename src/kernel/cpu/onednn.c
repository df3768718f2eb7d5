/* SPDX-License-Identifier: MIT */
/* onednn.c - how oneDNN's primitives are made, kept and run; the rows of its kernels.
 *
 * A run sets the data handles of a part's memory objects and executes its primitive; the pool shares
 * the parts, then ranges of the sums over them.
 *
 * oneDNN shares work by OpenMP. The number of threads is a setting of the calling thread, so
 * every entry here sets it to one: making a primitive counts threads, running it uses them.
 */
#include "kernel/cpu/onednn.h"

#include <omp.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/cpu/rows.h"

enum { SUM_FLOATS = 4096, SUM_COLUMNS = 64 }; /* of a task */

static void limit_isa(void)
{
    const char *isa = kernel_isa();

    /* Fails only after the first primitive; then the processor's own is used. */
    if (strcmp(isa, "avx2") == 0)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx2);
    else if (strcmp(isa, "generic") == 0)
        dnnl_set_max_cpu_isa(dnnl_cpu_isa_sse41);
}

enum status onednn_convert(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return STATUS_OK;
    if (status == dnnl_out_of_memory)
        return FAIL(STATUS_NO_MEMORY, "onednn %s: out of memory", what);
    return FAIL(STATUS_UNSUPPORTED, "onednn %s: status %d", what, (int)status);
}

/* Steps ------------------------------------------------------------------------------------ */

enum status onednn_add_arg(struct onednn *state, struct onednn_step *step, int name,
                           const dnnl_memory_desc_t *desc, struct onednn_place place)
{
    dnnl_exec_arg_t *arg = &step->args[step->n_args];

    TRY_DNNL(
        dnnl_memory_create(&arg->memory, desc, state->engine,
                           place.source == ONEDNN_PAD ? step->scratchpad : DNNL_MEMORY_NONE));
    arg->arg = name;
    step->from[step->n_args] = place;
    step->n_args++;
    return STATUS_OK;
}

static enum status add_scratchpad(struct onednn *state, struct onednn_step *step,
                                  const_dnnl_primitive_desc_t pd)
{
    const dnnl_memory_desc_t *desc =
        dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    const size_t bytes = desc == NULL ? 0 : dnnl_memory_desc_get_size(desc);

    if (bytes == 0)
        return STATUS_OK;
    TRY(mem_alloc(bytes, 1, &step->scratchpad));
    return onednn_add_arg(state, step, DNNL_ARG_SCRATCHPAD, desc,
                          (struct onednn_place){ .source = ONEDNN_PAD });
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
    return onednn_convert(status, "attributes");
}

/* The primitive of a descriptor, and the stream it runs in. */
static enum status create(struct onednn *state, struct onednn_step *step,
                          const_dnnl_primitive_desc_t pd)
{
    TRY_DNNL(dnnl_primitive_create(&step->primitive, pd));
    TRY_DNNL(dnnl_stream_create(&step->stream, state->engine, dnnl_stream_default_flags));
    return add_scratchpad(state, step, pd);
}

enum status onednn_reorder(struct onednn *state, struct onednn_step *step,
                           const dnnl_memory_desc_t *from, struct onednn_place from_place,
                           const dnnl_memory_desc_t *to, struct onednn_place to_place)
{
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;

    TRY(make_attr(false, &attr));
    const dnnl_status_t made =
        dnnl_reorder_primitive_desc_create(&pd, from, state->engine, to, state->engine, attr);
    dnnl_primitive_attr_destroy(attr);
    TRY(onednn_convert(made, "reorder"));
    const enum status status = create(state, step, pd);
    dnnl_primitive_desc_destroy(pd);
    TRY(status);
    TRY(onednn_add_arg(state, step, DNNL_ARG_FROM, from, from_place));
    return onednn_add_arg(state, step, DNNL_ARG_TO, to, to_place);
}

enum status onednn_make(struct onednn *state, struct onednn_step *step, const void *desc,
                        bool relu, const_dnnl_primitive_desc_t hint,
                        dnnl_primitive_desc_t *out_pd)
{
    dnnl_primitive_attr_t attr;

    TRY(make_attr(relu, &attr));
    const dnnl_status_t made = dnnl_primitive_desc_create(out_pd, (const_dnnl_op_desc_t)desc,
                                                          attr, state->engine, hint);
    dnnl_primitive_attr_destroy(attr);
    TRY(onednn_convert(made, "primitive descriptor"));
    const enum status status = create(state, step, *out_pd);
    if (status != STATUS_OK)
        dnnl_primitive_desc_destroy(*out_pd);
    return status;
}

/* Life of a state -------------------------------------------------------------------------- */

static void release_step(struct onednn_step *step)
{
    for (int i = 0; i < step->n_args; i++)
        dnnl_memory_destroy(step->args[i].memory);
    if (step->primitive != NULL)
        dnnl_primitive_destroy(step->primitive);
    if (step->stream != NULL)
        dnnl_stream_destroy(step->stream);
    mem_free(step->scratchpad);
}

void onednn_release(void *opaque)
{
    struct onednn *state = opaque;

    if (state == NULL)
        return;
    release_step(&state->before);
    for (int i = 0; i < ONEDNN_PARTS; i++)
        release_step(&state->parts[i]);
    release_step(&state->after);
    if (state->engine != NULL)
        dnnl_engine_destroy(state->engine);
    mem_free(state->own);
    mem_free(state);
}

enum status onednn_prepare(const struct kernel_problem *problem, onednn_fill *fill,
                           void **out_state)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct onednn *state;

    pthread_once(&once, limit_isa);
    omp_set_num_threads(1);
    TRY(mem_alloc(1, sizeof *state, &state));
    enum status status =
        onednn_convert(dnnl_engine_create(&state->engine, dnnl_cpu, 0), "engine");
    if (status == STATUS_OK)
        status = fill(problem, state);
    if (status != STATUS_OK) {
        onednn_release(state);
        return status;
    }
    *out_state = state;
    return STATUS_OK;
}

/* Running ---------------------------------------------------------------------------------- */

static float *find(const struct kernel_call *call, struct onednn_place place)
{
    const struct onednn *state = call->state;
    float *base = place.source == ONEDNN_IN    ? (float *)(uintptr_t)call->in[place.slot]
                  : place.source == ONEDNN_OUT ? call->out[place.slot]
                  : place.source == ONEDNN_OWN ? state->own
                                               : call->scratch;

    return base + place.offset;
}

static void run_step(const struct kernel_call *call, const struct onednn_step *step)
{
    if (step->primitive == NULL)
        return;
    omp_set_num_threads(1);
    for (int i = 0; i < step->n_args; i++) {
        if (step->from[i].source != ONEDNN_PAD)
            dnnl_memory_set_data_handle(step->args[i].memory, find(call, step->from[i]));
    }
    dnnl_status_t status =
        dnnl_primitive_execute(step->primitive, step->stream, step->n_args, step->args);
    if (status == dnnl_success)
        status = dnnl_stream_wait(step->stream);
    BUG_ON(status != dnnl_success);
}

static void run_part(void *arg, size_t i)
{
    const struct kernel_call *call = arg;
    const struct onednn *state = call->state;

    run_step(call, &state->parts[i]);
}

struct adding {
    const float *from;
    float *to;
    int64_t count;
    int n_parts;
};

static void add_range(void *arg, size_t task)
{
    const struct adding *a = arg;
    const int64_t begin = (int64_t)task * SUM_FLOATS;
    const int64_t end = begin + SUM_FLOATS < a->count ? begin + SUM_FLOATS : a->count;

    for (int64_t i = begin; i < end; i++)
        a->to[i] = a->from[i];
    for (int p = 1; p < a->n_parts; p++) {
        const float *from = a->from + p * a->count;
        for (int64_t i = begin; i < end; i++)
            a->to[i] += from[i];
    }
}

static void add_parts(const struct kernel_call *call, const struct onednn_sum *sum)
{
    const struct onednn *state = call->state;
    struct adding a = { .count = sum->count, .n_parts = state->n_parts };

    if (sum->count == 0)
        return;
    a.from = find(call, sum->from);
    a.to = find(call, sum->to);
    pool_for(call->pool, (size_t)((sum->count + SUM_FLOATS - 1) / SUM_FLOATS), add_range, &a);
}

static void add_columns(void *arg, size_t task)
{
    const struct kernel_call *call = arg;
    const struct onednn *state = call->state;
    const int64_t columns = state->sum_columns, first = (int64_t)task * SUM_COLUMNS;
    const int64_t n = columns - first < SUM_COLUMNS ? columns - first : SUM_COLUMNS;
    const float *from = (const float *)call->in[1] + first;
    float *sums = (float *)call->out[1] + first;

    memset(sums, 0, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < state->sum_rows; i++) {
        for (int64_t j = 0; j < n; j++)
            sums[j] += from[i * columns + j];
    }
}

void onednn_run(const struct kernel_call *call)
{
    const struct onednn *state = call->state;
    struct kernel_call copy = *call;

    run_step(call, &state->before);
    pool_for(call->pool, (size_t)state->n_parts, run_part, &copy);
    for (int i = 0; i < 2; i++)
        add_parts(call, &state->sums[i]);
    run_step(call, &state->after);
    pool_for(call->pool, (size_t)((state->sum_columns + SUM_COLUMNS - 1) / SUM_COLUMNS),
             add_columns, &copy);
}

/* Rows ------------------------------------------------------------------------------------- */

static bool can_run(const struct kernel_problem *problem)
{
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].dtype != DTYPE_F32)
            return false;
    }
    return problem->out[0].dtype == DTYPE_F32;
}

static bool can_convolve(const struct kernel_problem *problem)
{
    return can_run(problem) && onednn_can_convolve(problem);
}

const struct kernel kernel_onednn_rows[] = {
    { "linear", "onednn", can_run, NULL, onednn_prepare_linear, onednn_release, onednn_run },
    { "linear_grad_input", "onednn", can_run, NULL, onednn_prepare_linear_input, onednn_release,
      onednn_run },
    { "linear_grad_weight", "onednn", can_run, onednn_linear_weight_scratch,
      onednn_prepare_linear_weight, onednn_release, onednn_run },
    { "conv2d", "onednn", can_convolve, NULL, onednn_prepare_conv, onednn_release, onednn_run },
    { "conv2d_grad_input", "onednn", can_convolve, NULL, onednn_prepare_conv_input,
      onednn_release, onednn_run },
    { "conv2d_grad_weight", "onednn", can_convolve, NULL, onednn_prepare_conv_weight,
      onednn_release, onednn_run },
    { 0 },
};
