/* SPDX-License-Identifier: MIT */
/* attend.c - an LSTM layer with additive attention over whole sequences, by own tiles.
 *
 * As recurrent.c, with two more products a step: of h by W_query, and of the context by W_context into
 * the gates; and between them a tanh for each place of the source and each number of a key, which for
 * 25 places takes about as long as the products. All weights are packed once a call. Rows are
 * independent through all steps; the gradient of the scores' vector is a sum of each row's, kept apart
 * and added in their order at the end.
 */
#include "kernel/cpu/attend.h"

#include "kernel/cpu/packed.h"
#include "kernel/cpu/recurrent_steps.h"
#include "kernel/cpu/rows.h"

static bool can_run(const struct kernel_problem *problem)
{
    (void)problem;
    return tile_current() != NULL;
}

struct layer {
    const struct cell_isa *cell;
    struct attend a;
    const struct kernel_call *call;
    struct packed weight, context, query;
    float *
        work; /* (rows, work_row): forward, the state's and the context's part of the gates; backward,
                    dcontext, dscore and a number a place */
    int64_t work_row;
    int64_t n_parts;
};

static int64_t packed_total(const struct layer *layer)
{
    return packed_floats(&layer->weight) + packed_floats(&layer->context) +
           packed_floats(&layer->query);
}

static size_t scratch_of(const struct layer *layer)
{
    return (size_t)(packed_total(layer) + layer->a.r.rows * layer->work_row) * sizeof(float);
}

/* Packs the weights, which are these inputs, and lays out the scratch. */
static void prepare(struct layer *layer, const struct kernel_call *call, int weight,
                    int context, int query)
{
    layer->call = call;
    layer->weight.panels = call->scratch;
    layer->context.panels = layer->weight.panels + packed_floats(&layer->weight);
    layer->query.panels = layer->context.panels + packed_floats(&layer->context);
    layer->work = layer->weight.panels + packed_total(layer);
    layer->n_parts = recurrent_parts(layer->a.r.rows, call->pool);
    packed_fill(&layer->weight, call->in[weight], call->pool);
    packed_fill(&layer->context, call->in[context], call->pool);
    packed_fill(&layer->query, call->in[query], call->pool);
}

/* Forward ------------------------------------------------------------------------------ */

static struct layer forward_layer(const struct kernel_problem *problem)
{
    struct layer layer = { .cell = cell_current(), .a = attend_of(problem) };
    const struct recurrent *r = &layer.a.r;
    const struct tile_isa *isa = tile_current();

    layer.weight = packed_of(isa, PACKED_GATES, r->units, r->gates, 4, r->rows);
    layer.context = packed_of(isa, PACKED_GATES, layer.a.memory, r->gates, 4, r->rows);
    layer.query = packed_of(isa, PACKED_STRAIGHT, r->units, layer.a.keys, 0, r->rows);
    layer.work_row = packed_columns(&layer.weight);
    return layer;
}

static size_t forward_scratch(const struct kernel_problem *problem)
{
    const struct layer layer = forward_layer(problem);

    return scratch_of(&layer);
}

/* Queries, weights and contexts of step t. */
static void look(const struct layer *layer, int64_t row, int64_t rows, int64_t t)
{
    const struct attend *a = &layer->a;
    const struct kernel_call *call = layer->call;
    const int64_t first = row * a->r.steps + t;
    float *query = call->out[ATTEND_QUERY];

    packed_multiply(&layer->query,
                    (const float *)call->out[RECURRENT_BEFORE] + first * a->r.units, a->r.y_row,
                    rows, query + first * a->keys, a->r.steps * a->keys, false);
    for (int64_t i = row; i < row + rows; i++) {
        const int64_t at = i * a->r.steps + t;
        layer->cell->attend(&(struct attend_row){
            .places = a->places,
            .keys = a->keys,
            .memory = a->memory,
            .source = (const int32_t *)call->in[ATTEND_SOURCE] + i * a->places,
            .query = query + at * a->keys,
            .score = call->in[ATTEND_SCORE],
            .key_at = (const float *)call->in[ATTEND_KEYS] + i * a->places * a->keys,
            .memory_at = (const float *)call->in[ATTEND_MEMORY] + i * a->places * a->memory,
            .weights = (float *)call->out[ATTEND_WEIGHTS] + at * a->places,
            .context = (float *)call->out[ATTEND_CONTEXT] + at * a->memory,
        });
    }
}

static void run_forward_part(void *arg, size_t i)
{
    const struct layer *layer = arg;
    const struct recurrent *r = &layer->a.r;
    const int64_t memory = layer->a.memory;
    int64_t row;
    const int64_t rows = gemm_part(r->rows, layer->n_parts, (int64_t)i, &row);
    float *work = layer->work + row * layer->work_row;

    for (int64_t k = row; k < row + rows; k++)
        recurrent_set_first(r, layer->call, k);
    for (int64_t t = 0; t < r->steps; t++) {
        struct cell_step step = recurrent_step(r, layer->call, row, rows, t);
        const float *context = (const float *)layer->call->out[ATTEND_CONTEXT];

        look(layer, row, rows, t);
        packed_multiply(&layer->weight, step.h.at, step.h.row, rows, work, layer->work_row,
                        false);
        packed_multiply(&layer->context, context + (row * r->steps + t) * memory,
                        r->steps * memory, rows, work, layer->work_row, true);
        step.made = (struct cell_source){ work, layer->work_row };
        layer->cell->lstm(&step);
    }
}

static void forward_run(const struct kernel_call *call)
{
    struct layer layer = forward_layer(call->problem);

    prepare(&layer, call, RECURRENT_WEIGHT, ATTEND_CONTEXT_WEIGHT, ATTEND_QUERY_WEIGHT);
    pool_for(call->pool, (size_t)layer.n_parts, run_forward_part, &layer);
}

/* Backward ----------------------------------------------------------------------------- */

static struct layer backward_layer(const struct kernel_problem *problem)
{
    struct layer layer = { .cell = cell_current(), .a = attend_of(problem) };
    const struct recurrent *r = &layer.a.r;
    const struct tile_isa *isa = tile_current();

    layer.weight = packed_of(isa, PACKED_TURNED, r->gates, r->units, 0, r->rows);
    layer.context = packed_of(isa, PACKED_TURNED, r->gates, layer.a.memory, 0, r->rows);
    layer.query = packed_of(isa, PACKED_TURNED, layer.a.keys, r->units, 0, r->rows);
    layer.work_row = layer.a.memory + layer.a.keys + layer.a.places;
    return layer;
}

static size_t backward_scratch(const struct kernel_problem *problem)
{
    const struct layer layer = backward_layer(problem);

    return scratch_of(&layer);
}

/* What flows from the contexts of step t to the source, the queries and the scores. */
static void look_back(const struct layer *layer, int64_t row, int64_t rows, int64_t t)
{
    const struct attend *a = &layer->a;
    const struct kernel_call *call = layer->call;

    for (int64_t i = row; i < row + rows; i++) {
        const int64_t at = i * a->r.steps + t, keys = i * a->places * a->keys;
        const int64_t memory = i * a->places * a->memory;
        float *work = layer->work + i * layer->work_row;
        layer->cell->attend_grad(&(struct attend_grad){
            .places = a->places,
            .keys = a->keys,
            .memory = a->memory,
            .query = (const float *)call->in[ATTEND_GRAD_QUERY] + at * a->keys,
            .score = call->in[ATTEND_GRAD_SCORE],
            .key_at = (const float *)call->in[ATTEND_GRAD_KEYS] + keys,
            .memory_at = (const float *)call->in[ATTEND_GRAD_MEMORY] + memory,
            .weights = (const float *)call->in[ATTEND_GRAD_WEIGHTS] + at * a->places,
            .dcontext = work,
            .dkeys = (float *)call->out[ATTEND_DKEYS] + keys,
            .dmemory = (float *)call->out[ATTEND_DMEMORY] + memory,
            .dquery = (float *)call->out[ATTEND_DQUERY] + at * a->keys,
            .dscore = work + a->memory,
            .flow = work + a->memory + a->keys,
        });
    }
}

/* Everything that grows begins with zeros. */
static void clear_row(const struct layer *layer, int64_t row)
{
    const struct attend *a = &layer->a;
    void *const *out = layer->call->out;

    memset(layer->work + row * layer->work_row, 0, (size_t)layer->work_row * sizeof(float));
    memset((float *)out[ATTEND_DSTATE] + row * a->r.state_row, 0,
           (size_t)a->r.state_row * sizeof(float));
    memset((float *)out[ATTEND_DKEYS] + row * a->places * a->keys, 0,
           (size_t)(a->places * a->keys) * sizeof(float));
    memset((float *)out[ATTEND_DMEMORY] + row * a->places * a->memory, 0,
           (size_t)(a->places * a->memory) * sizeof(float));
}

static void run_backward_part(void *arg, size_t i)
{
    const struct layer *layer = arg;
    const struct recurrent *r = &layer->a.r;
    const int64_t keys = layer->a.keys;
    int64_t row;
    const int64_t rows = gemm_part(r->rows, layer->n_parts, (int64_t)i, &row);
    float *dstate = (float *)layer->call->out[ATTEND_DSTATE] + row * r->state_row;
    float *dcontext = layer->work + row * layer->work_row;
    const float *dquery = layer->call->out[ATTEND_DQUERY];

    for (int64_t k = row; k < row + rows; k++)
        clear_row(layer, k);
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        const struct cell_grad grad = recurrent_grad(r, layer->call, row, rows, t,
                                                     layer->call->in[ATTEND_GRAD_DY], dstate);

        layer->cell->lstm_grad(&grad);
        packed_multiply(&layer->context, grad.dgates.at, grad.dgates.row, rows, dcontext,
                        layer->work_row, false);
        look_back(layer, row, rows, t);
        packed_multiply(&layer->weight, grad.dgates.at, grad.dgates.row, rows, dstate,
                        r->state_row, true);
        packed_multiply(&layer->query, dquery + (row * r->steps + t) * keys, r->steps * keys,
                        rows, dstate, r->state_row, true);
    }
}

static void backward_run(const struct kernel_call *call)
{
    struct layer layer = backward_layer(call->problem);

    prepare(&layer, call, RECURRENT_GRAD_WEIGHT, ATTEND_GRAD_CONTEXT_WEIGHT,
            ATTEND_GRAD_QUERY_WEIGHT);
    pool_for(call->pool, (size_t)layer.n_parts, run_backward_part, &layer);
    tile_current()->column_sums(layer.work + layer.a.memory, layer.work_row, layer.a.r.rows,
                                (int)layer.a.keys, false, call->out[ATTEND_DSCORE]);
}

const struct kernel kernel_attend_rows[] = {
    { .op = "lstm_attend",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = forward_scratch,
      .run = forward_run },
    { .op = "lstm_attend_grad",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = backward_scratch,
      .run = backward_run },
    { 0 },
};
