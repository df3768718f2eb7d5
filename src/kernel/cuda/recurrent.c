/* SPDX-License-Identifier: MIT */
/* recurrent.c - LSTM and GRU over sequences, without and with attention, and their gradients.
 *
 * A step is a product of the state with the hidden weights and a launch of the cells; the products of all steps
 * have one plan. Captured into a graph, the launches of a sequence follow each other without the host.
 */
#include "base/mem.h"
#include "kernel/cpu/attend.h"
#include "kernel/cuda/cell.h"
#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/gemm.h"

/* The products of a step, as far as an op has them. */
struct plans {
    struct gemm *hidden;  /* h to the gates, or back */
    struct gemm *context; /* lstm_attend: the context to the gates, or back */
    struct gemm *query;   /* lstm_attend: h to the query, or back */
};

static void release(void *state)
{
    struct plans *plans = state;

    gemm_destroy(plans->hidden);
    gemm_destroy(plans->context);
    gemm_destroy(plans->query);
    mem_free(plans);
}

/* What a pointer is a multiple of that moves on by so many floats a step. */
static int alignment(int64_t floats)
{
    const int64_t bytes = floats * (int64_t)sizeof(float);
    const int64_t low = bytes & -bytes;

    return low < 64 ? (int)low : 64;
}

/* The forms: h is the beginning of a row of state; w lies (H, G). */
static struct gemm_form hidden_form(const struct recurrent *r)
{
    return (struct gemm_form){ .m = r->rows,
                               .n = r->gates,
                               .k = r->units,
                               .a_row = r->state_row,
                               .b_row = r->gates,
                               .c_row = r->gates };
}

static struct gemm_form hidden_grad_form(const struct recurrent *r)
{
    return (struct gemm_form){ .m = r->rows,
                               .n = r->units,
                               .k = r->gates,
                               .a_row = r->gates_row,
                               .b_row = r->gates,
                               .c_row = r->state_row,
                               .b_across = true,
                               .adds = true,
                               .align = alignment(r->gates) };
}

static struct gemm_form context_form(const struct attend *a)
{
    return (struct gemm_form){ .m = a->r.rows,
                               .n = a->r.gates,
                               .k = a->memory,
                               .a_row = a->r.steps * a->memory,
                               .b_row = a->r.gates,
                               .c_row = a->r.gates,
                               .adds = true,
                               .align = alignment(a->memory) };
}

static struct gemm_form context_grad_form(const struct attend *a)
{
    return (struct gemm_form){ .m = a->r.rows,
                               .n = a->memory,
                               .k = a->r.gates,
                               .a_row = a->r.gates_row,
                               .b_row = a->r.gates,
                               .c_row = a->memory,
                               .b_across = true,
                               .align = alignment(a->r.gates) };
}

static struct gemm_form query_form(const struct attend *a)
{
    return (struct gemm_form){ .m = a->r.rows,
                               .n = a->keys,
                               .k = a->r.units,
                               .a_row = a->r.state_row,
                               .b_row = a->keys,
                               .c_row = a->r.steps * a->keys,
                               .align = alignment(a->keys) };
}

static struct gemm_form query_grad_form(const struct attend *a)
{
    return (struct gemm_form){ .m = a->r.rows,
                               .n = a->r.units,
                               .k = a->keys,
                               .a_row = a->r.steps * a->keys,
                               .b_row = a->keys,
                               .c_row = a->r.state_row,
                               .b_across = true,
                               .adds = true,
                               .align = alignment(a->keys) };
}

static enum status make_plan(const struct kernel_problem *p, const struct gemm_form *form,
                             struct gemm **out)
{
    struct gemm_form own;

    if (!form)
        return STATUS_OK;
    own = *form;
    own.tf32 = p->rounds;
    return gemm_create(&own, out);
}

/* Makes plans of up to three forms; NULL: none. */
static enum status make_plans(const struct kernel_problem *p, const struct gemm_form *hidden,
                              const struct gemm_form *context, const struct gemm_form *query,
                              void **out)
{
    struct plans *plans;

    TRY(mem_alloc(1, sizeof *plans, &plans));
    enum status status = make_plan(p, hidden, &plans->hidden);
    if (status == STATUS_OK)
        status = make_plan(p, context, &plans->context);
    if (status == STATUS_OK)
        status = make_plan(p, query, &plans->query);
    if (status != STATUS_OK) {
        release(plans);
        return status;
    }
    *out = plans;
    return STATUS_OK;
}

static size_t up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static struct cell_at cell_at(const struct recurrent *r)
{
    return (struct cell_at){ .is_lstm = r->is_lstm,
                             .rows = r->rows,
                             .steps = r->steps,
                             .units = r->units,
                             .gates = r->gates,
                             .state_row = r->state_row };
}

static void clear(const struct kernel_call *call, void *data, size_t floats)
{
    (void)cudaMemsetAsync(data, 0, floats * sizeof(float), call->stream->cuda);
    stream_check(call->stream, call->problem->op);
}

static void copy(const struct kernel_call *call, void *to, const void *from, size_t floats)
{
    (void)cudaMemcpyAsync(to, from, floats * sizeof(float), cudaMemcpyDeviceToDevice,
                          call->stream->cuda);
    stream_check(call->stream, call->problem->op);
}

/* LSTM and GRU: scratch is W h of all rows, or dstate, then that of the product ------------ */

static size_t hidden_bytes(const struct recurrent *r)
{
    return up((size_t)(r->rows * r->gates) * sizeof(float));
}

static size_t forward_scratch(const struct kernel_problem *problem)
{
    const struct recurrent r = recurrent_of(problem);
    const struct gemm_form form = hidden_form(&r);

    return hidden_bytes(&r) + gemm_scratch(&form);
}

static enum status forward_prepare(const struct kernel_problem *problem, void **out)
{
    const struct recurrent r = recurrent_of(problem);
    const struct gemm_form form = hidden_form(&r);

    return make_plans(problem, &form, NULL, NULL, out);
}

static struct cell_forward forward_data(const struct kernel_call *call)
{
    return (struct cell_forward){ .gates = call->in[RECURRENT_GATES],
                                  .bias = call->in[RECURRENT_BIAS],
                                  .hidden = call->scratch,
                                  .ids = call->in[RECURRENT_IDS],
                                  .y = call->out[RECURRENT_Y],
                                  .last = call->out[RECURRENT_LAST],
                                  .acts = call->out[RECURRENT_ACTS],
                                  .kept = call->out[RECURRENT_KEPT],
                                  .before = call->out[RECURRENT_BEFORE] };
}

static void forward(const struct kernel_call *call)
{
    const struct recurrent r = recurrent_of(call->problem);
    const struct plans *plans = call->state;
    const struct cell_forward cell = forward_data(call);
    const struct gemm_data hidden = { .a = cell.last,
                                      .b = call->in[RECURRENT_WEIGHT],
                                      .c = call->scratch,
                                      .scratch = (char *)call->scratch + hidden_bytes(&r) };
    struct cell_at at = cell_at(&r);

    cell_begin(call->stream, &at,
               call->problem->n_in > RECURRENT_STATE ? call->in[RECURRENT_STATE] : NULL, &cell);
    for (at.t = 0; at.t < r.steps; at.t++) {
        gemm_run(plans->hidden, call->stream, &hidden);
        cell_step(call->stream, &at, &cell);
    }
}

static size_t state_bytes(const struct recurrent *r)
{
    return up((size_t)(r->rows * r->state_row) * sizeof(float));
}

static size_t grad_scratch(const struct kernel_problem *problem)
{
    const struct recurrent r = recurrent_of(problem);
    const struct gemm_form form = hidden_grad_form(&r);

    return state_bytes(&r) + gemm_scratch(&form);
}

static enum status grad_prepare(const struct kernel_problem *problem, void **out)
{
    const struct recurrent r = recurrent_of(problem);
    const struct gemm_form form = hidden_grad_form(&r);

    return make_plans(problem, &form, NULL, NULL, out);
}

static void grad(const struct kernel_call *call)
{
    const struct recurrent r = recurrent_of(call->problem);
    const struct recurrent_flow into = recurrent_flow(call);
    const struct plans *plans = call->state;
    const int state = recurrent_dstate(call->problem);
    const size_t count = (size_t)(r.rows * r.state_row);
    const struct cell_backward cell = {
        .acts = call->in[RECURRENT_GRAD_ACTS],
        .kept = call->in[RECURRENT_GRAD_KEPT],
        .before = r.is_lstm ? NULL : call->in[RECURRENT_GRAD_BEFORE],
        .ids = call->in[RECURRENT_GRAD_IDS],
        .dy = into.y,
        .dgates = call->out[0],
        .dhidden = call->out[r.is_lstm ? 0 : 1],
        .dstate = call->scratch,
    };
    struct gemm_data flow = { .b = call->in[RECURRENT_GRAD_WEIGHT],
                              .c = cell.dstate,
                              .scratch = (char *)call->scratch + state_bytes(&r) };
    struct cell_at at = cell_at(&r);

    if (into.last != NULL)
        copy(call, cell.dstate, into.last, count);
    else
        clear(call, cell.dstate, count);
    for (at.t = r.steps - 1; at.t >= 0; at.t--) {
        cell_step_back(call->stream, &at, &cell);
        flow.a = cell.dhidden + at.t * r.gates;
        gemm_run(plans->hidden, call->stream, &flow);
    }
    if (call->problem->n_out > state)
        copy(call, call->out[state], cell.dstate, count);
}

/* With attention ----------------------------------------------------------------------- */

static struct attend_at attend_at(const struct attend *a)
{
    return (struct attend_at){
        .at = cell_at(&a->r), .places = a->places, .keys = a->keys, .memory = a->memory
    };
}

static size_t attend_products(const struct attend *a)
{
    const struct gemm_form hidden = hidden_form(&a->r), context = context_form(a);
    const struct gemm_form query = query_form(a);

    return larger(gemm_scratch(&hidden), larger(gemm_scratch(&context), gemm_scratch(&query)));
}

static size_t attend_scratch(const struct kernel_problem *problem)
{
    const struct attend a = attend_of(problem);

    return hidden_bytes(&a.r) + attend_products(&a);
}

static enum status attend_prepare(const struct kernel_problem *problem, void **out)
{
    const struct attend a = attend_of(problem);
    const struct gemm_form hidden = hidden_form(&a.r), context = context_form(&a);
    const struct gemm_form query = query_form(&a);

    return make_plans(problem, &hidden, &context, &query, out);
}

static void attend(const struct kernel_call *call)
{
    const struct attend a = attend_of(call->problem);
    const struct plans *plans = call->state;
    const struct cell_forward cell = forward_data(call);
    const struct attend_forward data = { .query = call->out[ATTEND_QUERY],
                                         .keys = call->in[ATTEND_KEYS],
                                         .memory = call->in[ATTEND_MEMORY],
                                         .score = call->in[ATTEND_SCORE],
                                         .source = call->in[ATTEND_SOURCE],
                                         .weights = call->out[ATTEND_WEIGHTS],
                                         .context = call->out[ATTEND_CONTEXT] };
    void *const scratch = (char *)call->scratch + hidden_bytes(&a.r);
    const struct gemm_data hidden = {
        .a = cell.last, .b = call->in[RECURRENT_WEIGHT], .c = call->scratch, .scratch = scratch
    };
    struct gemm_data query = { .a = cell.last,
                               .b = call->in[ATTEND_QUERY_WEIGHT],
                               .scratch = scratch };
    struct gemm_data context = { .b = call->in[ATTEND_CONTEXT_WEIGHT],
                                 .c = call->scratch,
                                 .scratch = scratch };
    struct attend_at at = attend_at(&a);

    cell_begin(call->stream, &at.at, call->in[RECURRENT_STATE], &cell);
    for (at.at.t = 0; at.at.t < a.r.steps; at.at.t++) {
        query.c = (float *)call->out[ATTEND_QUERY] + at.at.t * a.keys;
        context.a = (const float *)call->out[ATTEND_CONTEXT] + at.at.t * a.memory;
        gemm_run(plans->query, call->stream, &query);
        attend_step(call->stream, &at, &data);
        gemm_run(plans->hidden, call->stream, &hidden);
        gemm_run(plans->context, call->stream, &context);
        cell_step(call->stream, &at.at, &cell);
    }
}

/* Scratch of the gradient: dcontext (N,E), dscore (N,A), flow (N,S), then the products' or the sum's. */
struct attend_places {
    float *dcontext, *dscore, *flow;
    void *rest;
};

static size_t floats(int64_t rows, int64_t columns)
{
    return up((size_t)(rows * columns) * sizeof(float));
}

static struct attend_places places_in(const struct attend *a, void *scratch)
{
    char *at = scratch;
    struct attend_places places;

    places.dcontext = (float *)at;
    at += floats(a->r.rows, a->memory);
    places.dscore = (float *)at;
    at += floats(a->r.rows, a->keys);
    places.flow = (float *)at;
    places.rest = at + floats(a->r.rows, a->places);
    return places;
}

static size_t attend_grad_scratch(const struct kernel_problem *problem)
{
    const struct attend a = attend_of(problem);
    const struct gemm_form hidden = hidden_grad_form(&a.r), context = context_grad_form(&a);
    const struct gemm_form query = query_grad_form(&a);
    const size_t products =
        larger(gemm_scratch(&hidden), larger(gemm_scratch(&context), gemm_scratch(&query)));

    return floats(a.r.rows, a.memory) + floats(a.r.rows, a.keys) + floats(a.r.rows, a.places) +
           larger(products, column_sums_scratch(a.r.rows, a.keys));
}

static enum status attend_grad_prepare(const struct kernel_problem *problem, void **out)
{
    const struct attend a = attend_of(problem);
    const struct gemm_form hidden = hidden_grad_form(&a.r), context = context_grad_form(&a);
    const struct gemm_form query = query_grad_form(&a);

    return make_plans(problem, &hidden, &context, &query, out);
}

static void attend_grad(const struct kernel_call *call)
{
    const struct attend a = attend_of(call->problem);
    const struct plans *plans = call->state;
    const struct attend_places places = places_in(&a, call->scratch);
    const struct cell_backward cell = {
        .acts = call->in[RECURRENT_GRAD_ACTS],
        .kept = call->in[RECURRENT_GRAD_KEPT],
        .ids = call->in[RECURRENT_GRAD_IDS],
        .dy = call->in[ATTEND_GRAD_DY],
        .dgates = call->out[ATTEND_DGATES],
        .dstate = call->out[ATTEND_DSTATE],
    };
    const struct attend_backward data = {
        .query = call->in[ATTEND_GRAD_QUERY],
        .keys = call->in[ATTEND_GRAD_KEYS],
        .memory = call->in[ATTEND_GRAD_MEMORY],
        .score = call->in[ATTEND_GRAD_SCORE],
        .weights = call->in[ATTEND_GRAD_WEIGHTS],
        .dcontext = places.dcontext,
        .dkeys = call->out[ATTEND_DKEYS],
        .dmemory = call->out[ATTEND_DMEMORY],
        .dquery = call->out[ATTEND_DQUERY],
        .dscore = places.dscore,
        .flow = places.flow,
    };
    struct gemm_data context = { .b = call->in[ATTEND_GRAD_CONTEXT_WEIGHT],
                                 .c = places.dcontext,
                                 .scratch = places.rest };
    struct gemm_data hidden = { .b = call->in[RECURRENT_GRAD_WEIGHT],
                                .c = cell.dstate,
                                .scratch = places.rest };
    struct gemm_data query = { .b = call->in[ATTEND_GRAD_QUERY_WEIGHT],
                               .c = cell.dstate,
                               .scratch = places.rest };
    struct attend_at at = attend_at(&a);

    clear(call, data.dkeys, (size_t)(a.r.rows * a.places * a.keys));
    clear(call, data.dmemory, (size_t)(a.r.rows * a.places * a.memory));
    clear(call, data.dscore, (size_t)(a.r.rows * a.keys));
    clear(call, cell.dstate, (size_t)(a.r.rows * a.r.state_row));
    for (at.at.t = a.r.steps - 1; at.at.t >= 0; at.at.t--) {
        cell_step_back(call->stream, &at.at, &cell);
        context.a = hidden.a = cell.dgates + at.at.t * a.r.gates;
        query.a = data.dquery + at.at.t * a.keys;
        gemm_run(plans->context, call->stream, &context);
        attend_step_back(call->stream, &at, &data);
        gemm_run(plans->hidden, call->stream, &hidden);
        gemm_run(plans->query, call->stream, &query);
    }
    column_sums(call->stream, places.dscore, DTYPE_F32, a.r.rows, a.keys,
                call->out[ATTEND_DSCORE], places.rest);
}

/* States go through many steps: f32 alone. */
static bool is_f32(const struct kernel_problem *problem)
{
    return problem->in[0].dtype == DTYPE_F32;
}

#define ROW(name_of_op, kind)                                                                  \
    {                                                                                          \
        .op = name_of_op, .name = "own", .can_run = is_f32, .scratch_bytes = kind##_scratch,   \
        .prepare = kind##_prepare, .release = release, .run = kind                             \
    }
const struct kernel cuda_recurrent_rows[] = {
    ROW("lstm", forward),
    ROW("gru", forward),
    ROW("lstm_grad", grad),
    ROW("gru_grad", grad),
    ROW("lstm_attend", attend),
    ROW("lstm_attend_grad", attend_grad),
    { 0 },
};
