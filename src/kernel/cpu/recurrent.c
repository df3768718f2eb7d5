/* SPDX-License-Identifier: MIT */
/* recurrent.c - LSTM and GRU layers over whole sequences, by own tiles.
 *
 * A step of a shard is a product of (rows, H) by (H, G*H), then the cell's arithmetic: 2*rows*G*H*H
 * operations on weights of 4*G*H*H bytes (4 MiB for an LSTM of 512 units), the same for all steps.
 * They are packed once a call; see packed.h.
 *
 *   forward   h W_hh, in the order of PACKED_GATES, into a work area of the second cache; the cell makes
 *             gates, y and the next state of it, row after row.
 *   backward  the cell makes dgates of the gradient of the state after the step, and dgates W_hh,
 *             (rows, G*H) by (G*H, H), makes that of the state before.
 *
 * Rows are independent of each other through all steps: threads share them and meet only at the end. The
 * gates that come out may lie over those that went in, and dgates over these.
 */
#include "kernel/cpu/recurrent_steps.h"

#include "kernel/cpu/packed.h"
#include "kernel/cpu/processor.h"
#include "kernel/cpu/rows.h"

enum { PART_ROWS = 8 /* rows of a thread, at least */ };

const struct cell_isa *cell_current(void)
{
    const struct tile_isa *isa = tile_current();

    return isa == &tile_avx512 ? &cell_avx512 : isa == &tile_avx2 ? &cell_avx2 : NULL;
}

static bool can_run(const struct kernel_problem *problem)
{
    (void)problem;
    return tile_current() != NULL;
}

struct layer {
    const struct cell_isa *cell;
    struct recurrent r;
    const struct kernel_call *call;
    struct packed weight;
    float *work; /* forward: what products make of the state, (rows, work_row) */
    int64_t work_row;
    float *dstate;   /* backward: as a state, (rows, state_row) */
    int64_t n_parts; /* of the rows */
};

int64_t recurrent_parts(int64_t rows, struct pool *pool)
{
    const int64_t threads = pool == NULL ? 1 : pool_size(pool);
    const int64_t most = gemm_ceil(rows, PART_ROWS);

    return threads < most ? threads : most;
}

/* Forward ------------------------------------------------------------------------------ */

static struct layer forward_layer(const struct kernel_problem *problem, bool by_amx)
{
    struct layer layer = { .cell = cell_current(), .r = recurrent_of(problem) };
    const struct recurrent *r = &layer.r;

    layer.weight = packed_of(tile_current(), PACKED_GATES, r->units, r->gates,
                             r->gates / r->units, r->rows);
    layer.weight.by_amx = by_amx;
    layer.work_row = packed_columns(&layer.weight);
    return layer;
}

static size_t forward_bytes(const struct kernel_problem *problem, bool by_amx)
{
    const struct layer layer = forward_layer(problem, by_amx);

    return (size_t)(packed_floats(&layer.weight) + layer.r.rows * layer.work_row) *
           sizeof(float);
}

static size_t forward_scratch(const struct kernel_problem *problem)
{
    return forward_bytes(problem, false);
}

void recurrent_set_first(const struct recurrent *r, const struct kernel_call *call, int64_t row)
{
    const size_t bytes = (size_t)r->units * sizeof(float);
    float *h = (float *)call->out[RECURRENT_BEFORE] + row * r->y_row;
    float *c = (float *)call->out[RECURRENT_KEPT] + row * r->y_row;

    if (call->problem->n_in > RECURRENT_STATE) {
        const float *state = (const float *)call->in[RECURRENT_STATE] + row * r->state_row;
        memcpy(h, state, bytes);
        if (r->is_lstm)
            memcpy(c, state + r->units, bytes);
    } else {
        memset(h, 0, bytes);
        if (r->is_lstm)
            memset(c, 0, bytes);
    }
}

/* Where the state after step t goes: to what the next step begins with, or to the last state. */
static void point_to_next(const struct recurrent *r, const struct kernel_call *call,
                          int64_t row, int64_t t, struct cell_step *step)
{
    const int64_t at = row * r->y_row + (t + 1) * r->units;
    float *last = (float *)call->out[RECURRENT_LAST] + row * r->state_row;

    if (t + 1 < r->steps) {
        step->next_h =
            (struct cell_rows){ (float *)call->out[RECURRENT_BEFORE] + at, r->y_row };
        step->next_c = (struct cell_rows){ (float *)call->out[RECURRENT_KEPT] + at, r->y_row };
    } else {
        step->next_h = (struct cell_rows){ last, r->state_row };
        step->next_c = (struct cell_rows){ last + r->units, r->state_row };
    }
}

struct cell_step recurrent_step(const struct recurrent *r, const struct kernel_call *call,
                                int64_t row, int64_t rows, int64_t t)
{
    const int64_t at = row * r->y_row + t * r->units, gate = row * r->gates_row + t * r->gates;
    struct cell_step step = {
        .rows = rows,
        .units = r->units,
        .ids = (const int32_t *)call->in[RECURRENT_IDS] + row * r->steps + t,
        .id_row = r->steps,
        .gates = { (const float *)call->in[RECURRENT_GATES] + gate, r->gates_row },
        .bias = call->in[RECURRENT_BIAS],
        .h = { (const float *)call->out[RECURRENT_BEFORE] + at, r->y_row },
        .acts = { (float *)call->out[RECURRENT_ACTS] + gate, r->gates_row },
        .kept = { (float *)call->out[RECURRENT_KEPT] + at, r->y_row },
        .y = { (float *)call->out[RECURRENT_Y] + at, r->y_row },
    };

    point_to_next(r, call, row, t, &step);
    return step;
}

/* Step t of rows [row, row + rows). */
static void run_step(const struct layer *layer, int64_t row, int64_t rows, int64_t t)
{
    const bool has_state = t > 0 || layer->call->problem->n_in > RECURRENT_STATE;
    struct cell_step step = recurrent_step(&layer->r, layer->call, row, rows, t);
    float *work = layer->work + row * layer->work_row;

    if (has_state) {
        packed_multiply(&layer->weight, step.h.at, step.h.row, rows, work, layer->work_row,
                        false);
        step.made = (struct cell_source){ work, layer->work_row };
    }
    if (layer->r.is_lstm)
        layer->cell->lstm(&step);
    else
        layer->cell->gru(&step);
}

static void run_forward_part(void *arg, size_t i)
{
    const struct layer *layer = arg;
    int64_t row;
    const int64_t rows = gemm_part(layer->r.rows, layer->n_parts, (int64_t)i, &row);

    for (int64_t k = row; k < row + rows; k++)
        recurrent_set_first(&layer->r, layer->call, k);
    for (int64_t t = 0; t < layer->r.steps; t++)
        run_step(layer, row, rows, t);
}

static void run_forward(const struct kernel_call *call, bool by_amx)
{
    struct layer layer = forward_layer(call->problem, by_amx);

    layer.call = call;
    layer.weight.panels = call->scratch;
    layer.work = layer.weight.panels + packed_floats(&layer.weight);
    layer.n_parts = recurrent_parts(layer.r.rows, call->pool);
    packed_fill(&layer.weight, call->in[RECURRENT_WEIGHT], call->pool);
    pool_for(call->pool, (size_t)layer.n_parts, run_forward_part, &layer);
}

static void forward_run(const struct kernel_call *call)
{
    run_forward(call, false);
}

/* Backward ----------------------------------------------------------------------------- */

static struct layer backward_layer(const struct kernel_problem *problem, bool by_amx)
{
    struct layer layer = { .cell = cell_current(), .r = recurrent_of(problem) };
    const struct recurrent *r = &layer.r;

    layer.weight = packed_of(tile_current(), PACKED_TURNED, r->gates, r->units, 0, r->rows);
    layer.weight.by_amx = by_amx;
    return layer;
}

static bool wants_state(const struct kernel_problem *problem)
{
    return problem->n_out > recurrent_dstate(problem);
}

static size_t backward_bytes(const struct kernel_problem *problem, bool by_amx)
{
    const struct layer layer = backward_layer(problem, by_amx);
    const int64_t state = wants_state(problem) ? 0 : layer.r.rows * layer.r.state_row;

    return (size_t)(packed_floats(&layer.weight) + state) * sizeof(float);
}

static size_t backward_scratch(const struct kernel_problem *problem)
{
    return backward_bytes(problem, false);
}

struct cell_grad recurrent_grad(const struct recurrent *r, const struct kernel_call *call,
                                int64_t row, int64_t rows, int64_t t, const float *dy,
                                float *dstate)
{
    const int64_t at = row * r->y_row + t * r->units, gate = row * r->gates_row + t * r->gates;

    return (struct cell_grad){
        .rows = rows,
        .units = r->units,
        .ids = (const int32_t *)call->in[RECURRENT_GRAD_IDS] + row * r->steps + t,
        .id_row = r->steps,
        .acts = { (const float *)call->in[RECURRENT_GRAD_ACTS] + gate, r->gates_row },
        .kept = { (const float *)call->in[RECURRENT_GRAD_KEPT] + at, r->y_row },
        .dy = { dy == NULL ? NULL : dy + at, r->y_row },
        .dh = { dstate, r->state_row },
        .dc = { dstate + r->units, r->state_row },
        .dgates = { (float *)call->out[0] + gate, r->gates_row },
    };
}

/* What flows into the gates of step t of rows [row, row + rows). */
static void run_cells(const struct layer *layer, int64_t row, int64_t rows, int64_t t)
{
    const struct recurrent *r = &layer->r;
    const struct kernel_call *call = layer->call;
    struct cell_grad grad = recurrent_grad(r, call, row, rows, t, recurrent_flow(call).y,
                                           layer->dstate + row * r->state_row);

    if (r->is_lstm) {
        layer->cell->lstm_grad(&grad);
        return;
    }
    const int64_t at = row * r->y_row + t * r->units, gate = row * r->gates_row + t * r->gates;
    grad.h =
        (struct cell_source){ (const float *)call->in[RECURRENT_GRAD_BEFORE] + at, r->y_row };
    grad.dhidden = (struct cell_rows){ (float *)call->out[1] + gate, r->gates_row };
    layer->cell->gru_grad(&grad);
}

static void run_backward_part(void *arg, size_t i)
{
    const struct layer *layer = arg;
    const struct recurrent *r = &layer->r;
    const struct recurrent_flow into = recurrent_flow(layer->call);
    const float *dhidden = layer->call->out[r->is_lstm ? 0 : 1];
    int64_t row;
    const int64_t rows = gemm_part(r->rows, layer->n_parts, (int64_t)i, &row);
    const size_t bytes = (size_t)(rows * r->state_row) * sizeof(float);
    float *dstate = layer->dstate + row * r->state_row;

    if (into.last != NULL)
        memcpy(dstate, into.last + row * r->state_row, bytes);
    else
        memset(dstate, 0, bytes);
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        run_cells(layer, row, rows, t);
        if (t > 0 || wants_state(layer->call->problem))
            packed_multiply(&layer->weight, dhidden + row * r->gates_row + t * r->gates,
                            r->gates_row, rows, dstate, r->state_row, true);
    }
}

static void run_backward(const struct kernel_call *call, bool by_amx)
{
    struct layer layer = backward_layer(call->problem, by_amx);

    layer.call = call;
    layer.weight.panels = call->scratch;
    layer.dstate = wants_state(call->problem)
                       ? call->out[recurrent_dstate(call->problem)]
                       : layer.weight.panels + packed_floats(&layer.weight);
    layer.n_parts = recurrent_parts(layer.r.rows, call->pool);
    packed_fill(&layer.weight, call->in[RECURRENT_GRAD_WEIGHT], call->pool);
    pool_for(call->pool, (size_t)layer.n_parts, run_backward_part, &layer);
}

static void backward_run(const struct kernel_call *call)
{
    run_backward(call, false);
}

/* By AMX ------------------------------------------------------------------------------- */

#ifdef HAVE_AMX
static bool amx_can_run(const struct kernel_problem *problem)
{
    (void)problem;
    return processor_current() >= PROCESSOR_AMX;
}

static size_t amx_forward_scratch(const struct kernel_problem *problem)
{
    return forward_bytes(problem, true);
}

static void amx_forward_run(const struct kernel_call *call)
{
    run_forward(call, true);
}

static size_t amx_backward_scratch(const struct kernel_problem *problem)
{
    return backward_bytes(problem, true);
}

static void amx_backward_run(const struct kernel_call *call)
{
    run_backward(call, true);
}
#endif

const struct kernel kernel_recurrent_rows[] = {
    { .op = "lstm",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = forward_scratch,
      .run = forward_run },
    { .op = "gru",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = forward_scratch,
      .run = forward_run },
    { .op = "lstm_grad",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = backward_scratch,
      .run = backward_run },
    { .op = "gru_grad",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = backward_scratch,
      .run = backward_run },
#ifdef HAVE_AMX
    { .op = "lstm",
      .name = "amx",
      .can_run = amx_can_run,
      .scratch_bytes = amx_forward_scratch,
      .run = amx_forward_run },
    { .op = "gru",
      .name = "amx",
      .can_run = amx_can_run,
      .scratch_bytes = amx_forward_scratch,
      .run = amx_forward_run },
    { .op = "lstm_grad",
      .name = "amx",
      .can_run = amx_can_run,
      .scratch_bytes = amx_backward_scratch,
      .run = amx_backward_run },
    { .op = "gru_grad",
      .name = "amx",
      .can_run = amx_can_run,
      .scratch_bytes = amx_backward_scratch,
      .run = amx_backward_run },
#endif
    { 0 },
};
