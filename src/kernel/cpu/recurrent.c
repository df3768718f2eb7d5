/* SPDX-License-Identifier: MIT */
/* recurrent.c - LSTM and GRU layers over whole sequences, by own tiles.
 *
 * A step of a shard is a product of (rows, H) by (H, G*H), then the cell's arithmetic: 2*rows*G*H*H
 * operations on weights of 4*G*H*H bytes (4 MiB for an LSTM of 512 units), the same for all steps.
 * They are packed once a call.
 *
 *   forward   a panel holds the columns of all gates of as many units as a vector has lanes, so that a
 *             tile makes all that the cell needs of these units, which follows at once: what a tile
 *             makes never leaves the first cache.
 *   backward  dh = dgates W_hh, (rows, G*H) by (G*H, H), panels as wide as a tile.
 *
 * Panels come from the third cache in each step, once for all rows. Rows are independent of each other
 * through all steps: threads share them and meet only at the end. Each element of a product is a
 * sum of chains of multiply-adds, cut every DEPTH steps: its bits depend on neither rows nor threads.
 */
#include "kernel/cpu/recurrent.h"

#include "kernel/cpu/cell.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/rows.h"

enum {
    DEPTH = 256,   /* of a chain */
    PART_ROWS = 8, /* rows of a thread, at least */
};

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
    const struct tile_isa *isa;
    const struct cell_isa *cell;
    struct recurrent r;
    const struct kernel_call *call;
    int n_panels;
    int64_t width; /* columns of a panel of forward */
    float *packed; /* weights, panel after panel */
    float
        *work; /* forward: what tiles make, (rows, width); backward: dh and dc unless wanted */
    float *dstate;   /* backward */
    int64_t n_parts; /* of the rows */
};

/* Products of rows of A by a packed panel -------------------------------------------------- */

/* Lines that the cell will want of each row: `count` of them, `step` floats apart. Rows lie far apart,
 * so that the processor does not guess them. */
struct fetch {
    const float *at;
    ptrdiff_t row, step;
    int count;
};

enum { FETCHES = 4, LINE_FLOATS = 16 };

struct product {
    const float *a;
    int64_t a_row, depth;
    const float *b; /* (depth, width) */
    int64_t width;
    float *c;
    int64_t c_row;
    int64_t rows;
    int last;        /* columns of the last vector */
    bool accumulate; /* add what C holds */
    struct fetch fetch[FETCHES];
    const float *next; /* the panel after this one, brought nearer meanwhile */
    int64_t next_floats;
};

static void fetch_rows(const struct product *p, int64_t row, int count)
{
    for (int i = 0; i < FETCHES && p->fetch[i].count > 0; i++) {
        const struct fetch *fetch = &p->fetch[i];
        const float *at = fetch->at + row * fetch->row;

        for (int r = 0; r < count; r++, at += fetch->row) {
            for (int k = 0; k < fetch->count; k++)
                __builtin_prefetch(at + k * fetch->step, 0, 2);
        }
    }
}

/* Part i of `parts` of the next panel. */
static void fetch_next(const struct product *p, int64_t parts, int64_t i)
{
    int64_t first;
    const int64_t lines = gemm_part(p->next_floats / LINE_FLOATS, parts, i, &first);

    for (int64_t l = first; l < first + lines; l++)
        __builtin_prefetch(p->next + l * LINE_FLOATS, 0, 2);
}

/* Vectors [first, first + vecs) of a panel, one block of the depth. */
static void multiply_block(const struct tile_isa *isa, const struct product *p, int64_t block,
                           int64_t n_blocks, int64_t first, int vecs)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const bool is_last = (first + vecs) * isa->lanes == p->width;
    int64_t k0;
    const int depth = (int)gemm_part(p->depth, n_blocks, block, &k0);
    struct tile tile = {
        .segment = no_offset,
        .n_segments = 1,
        .depth = depth,
        .b = p->b + k0 * p->width + first * isa->lanes,
        .b_step = p->width,
        .last = is_last ? p->last : isa->lanes,
        .b_full = true,
        .accumulate = p->accumulate || k0 > 0,
    };
    const int64_t n_tiles = gemm_ceil(p->rows, isa->rows[vecs]);

    for (int64_t t = 0; t < n_tiles; t++) {
        int64_t at;
        const int count = (int)gemm_part(p->rows, n_tiles, t, &at);

        for (int i = 0; i < count; i++) {
            tile.a[i] = p->a + (at + i) * p->a_row + k0;
            tile.c[i] = p->c + (at + i) * p->c_row + first * isa->lanes;
        }
        if (first == 0)
            fetch_next(p, n_tiles * n_blocks, block * n_tiles + t);
        if (first == 0 && block == 0)
            fetch_rows(p, at, count);
        isa->by_rows(&tile, count, vecs);
    }
}

static void multiply(const struct tile_isa *isa, const struct product *p)
{
    const int64_t n_blocks = gemm_ceil(p->depth, DEPTH), vecs = p->width / isa->lanes;
    const int64_t n_cuts = gemm_ceil(vecs, isa->vecs);

    for (int64_t block = 0; block < n_blocks; block++) {
        for (int64_t cut = 0; cut < n_cuts; cut++) {
            int64_t first;
            const int64_t some = gemm_part(vecs, n_cuts, cut, &first);
            multiply_block(isa, p, block, n_blocks, first, (int)some);
        }
    }
}

/* Forward ------------------------------------------------------------------------------ */

static struct layer forward_layer(const struct kernel_problem *problem)
{
    struct layer layer = { .isa = tile_current(),
                           .cell = cell_current(),
                           .r = recurrent_of(problem) };

    layer.n_panels = (int)gemm_ceil(layer.r.units, layer.isa->lanes);
    layer.width = layer.r.n_gates * layer.isa->lanes;
    return layer;
}

static int64_t forward_packed_floats(const struct layer *layer)
{
    return layer->n_panels * layer->r.units * layer->width;
}

static size_t forward_scratch(const struct kernel_problem *problem)
{
    const struct layer layer = forward_layer(problem);

    return (size_t)(forward_packed_floats(&layer) + layer.r.rows * layer.width) * sizeof(float);
}

/* Columns of all gates of the units of panel p, side by side, row after row. */
static void pack_gates(void *arg, size_t p)
{
    const struct layer *layer = arg;
    const struct recurrent *r = &layer->r;
    const int64_t lanes = layer->isa->lanes, first = (int64_t)p * lanes;
    const int64_t n = r->units - first < lanes ? r->units - first : lanes;
    const float *from = (const float *)layer->call->in[1] + first;
    float *to = layer->packed + (int64_t)p * r->units * layer->width;

    for (int64_t k = 0; k < r->units; k++) {
        for (int64_t g = 0; g < r->n_gates; g++) {
            memcpy(to, from + g * r->units, (size_t)n * sizeof *to);
            if (n < lanes)
                memset(to + n, 0, (size_t)(lanes - n) * sizeof *to);
            to += lanes;
        }
        from += r->gates;
    }
}

/* Where the state after step t goes: to what the next step begins with, or to the last state. */
static void point_to_next(const struct layer *layer, int64_t row, int64_t t, int64_t unit,
                          struct cell_step *step)
{
    const struct recurrent *r = &layer->r;
    float *last = (float *)layer->call->out[1] + row * r->state_row + unit;
    float *saved = layer->call->out[2], *before = layer->call->out[3];

    if (t + 1 < r->steps) {
        step->next_h =
            (struct cell_rows){ before + row * r->y_row + (t + 1) * r->units + unit, r->y_row };
        step->next_c = (struct cell_rows){
            saved + row * r->saved_row + (t + 1) * r->saved + 4 * r->units + unit, r->saved_row
        };
    } else {
        step->next_h = (struct cell_rows){ last, r->state_row };
        step->next_c = (struct cell_rows){ last + r->units, r->state_row };
    }
}

/* One step of the units of panel p for rows [row, row + rows). */
static void run_panel(const struct layer *layer, int64_t row, int64_t rows, int64_t t,
                      int64_t p, bool has_state)
{
    const struct recurrent *r = &layer->r;
    const struct kernel_call *call = layer->call;
    const int64_t unit = p * layer->isa->lanes, left = r->units - unit;
    const int64_t at = row * r->y_row + t * r->units;
    const float *before = (const float *)call->out[3] + at;
    float *made = layer->work + row * layer->width;
    struct cell_step step = {
        .rows = (int)rows,
        .n = (int)(left < layer->isa->lanes ? left : layer->isa->lanes),
        .units = r->units,
        .ids = (const int32_t *)call->in[3] + row * r->steps + t,
        .id_row = r->steps,
        .gates = { (const float *)call->in[0] + row * r->gates_row + t * r->gates + unit,
                   r->gates_row },
        .made = { has_state ? made : NULL, layer->width },
        .bias = (const float *)call->in[2] + unit,
        .h = { before + unit, r->y_row },
        .saved = { (float *)call->out[2] + row * r->saved_row + t * r->saved + unit,
                   r->saved_row },
        .y = { (float *)call->out[0] + at + unit, r->y_row },
    };

    point_to_next(layer, row, t, unit, &step);
    if (has_state)
        multiply(layer->isa, &(struct product){
                                 .a = before,
                                 .a_row = r->y_row,
                                 .depth = r->units,
                                 .b = layer->packed + p * r->units * layer->width,
                                 .width = layer->width,
                                 .c = made,
                                 .c_row = layer->width,
                                 .rows = rows,
                                 .last = layer->isa->lanes,
                                 .fetch = { { step.gates.at, r->gates_row, r->units,
                                              (int)r->n_gates },
                                            { step.saved.at, r->saved_row, r->units,
                                              RECURRENT_SAVED },
                                            { step.y.at, r->y_row, 0, 1 },
                                            { step.next_h.at, step.next_h.row, 0, 1 } },
                                 .next = layer->packed +
                                         (p + 1) % layer->n_panels * r->units * layer->width,
                                 .next_floats = r->units * layer->width,
                             });
    if (r->is_lstm)
        layer->cell->lstm(&step);
    else
        layer->cell->gru(&step);
}

/* The state that the first step begins with. */
static void set_first_state(const struct layer *layer, int64_t row)
{
    const struct recurrent *r = &layer->r;
    const size_t bytes = (size_t)r->units * sizeof(float);
    const bool has_state = layer->call->problem->n_in > 4;
    const float *state =
        has_state ? (const float *)layer->call->in[4] + row * r->state_row : NULL;
    float *h = (float *)layer->call->out[3] + row * r->y_row;
    float *c = (float *)layer->call->out[2] + row * r->saved_row + 4 * r->units;

    if (state == NULL) {
        memset(h, 0, bytes);
        memset(c, 0, bytes);
    } else {
        memcpy(h, state, bytes);
        memcpy(c, state + (r->is_lstm ? r->units : 0), bytes);
    }
}

static void run_forward_part(void *arg, size_t i)
{
    const struct layer *layer = arg;
    const bool has_state = layer->call->problem->n_in > 4;
    int64_t row;
    const int64_t rows = gemm_part(layer->r.rows, layer->n_parts, (int64_t)i, &row);

    for (int64_t k = row; k < row + rows; k++)
        set_first_state(layer, k);
    for (int64_t t = 0; t < layer->r.steps; t++) {
        for (int64_t p = 0; p < layer->n_panels; p++)
            run_panel(layer, row, rows, t, p, has_state || t > 0);
    }
}

/* Parts that the rows are cut into, a thread each. */
static int64_t parts_of(const struct layer *layer, struct pool *pool)
{
    const int64_t threads = pool == NULL ? 1 : pool_size(pool);
    const int64_t most = gemm_ceil(layer->r.rows, PART_ROWS);

    return threads < most ? threads : most;
}

static void forward_run(const struct kernel_call *call)
{
    struct layer layer = forward_layer(call->problem);

    layer.call = call;
    layer.packed = call->scratch;
    layer.work = layer.packed + forward_packed_floats(&layer);
    layer.n_parts = parts_of(&layer, call->pool);
    pool_for(call->pool, (size_t)layer.n_panels, pack_gates, &layer);
    pool_for(call->pool, (size_t)layer.n_parts, run_forward_part, &layer);
}

/* Backward ----------------------------------------------------------------------------- */

static struct layer backward_layer(const struct kernel_problem *problem)
{
    struct layer layer = { .isa = tile_current(),
                           .cell = cell_current(),
                           .r = recurrent_of(problem) };

    layer.n_panels = gemm_panels(layer.isa, layer.isa->rows, layer.r.rows, layer.r.units);
    return layer;
}

/* Floats of the packed weights: every panel has whole vectors. */
static int64_t backward_packed_floats(const struct layer *layer)
{
    const int64_t lanes = layer->isa->lanes;

    return gemm_ceil(layer->r.units, lanes) * lanes * layer->r.gates;
}

static bool wants_state(const struct kernel_problem *problem)
{
    return problem->n_out > (strncmp(problem->op, "lstm", 4) == 0 ? 1 : 2);
}

static size_t backward_scratch(const struct kernel_problem *problem)
{
    const struct layer layer = backward_layer(problem);
    const int64_t work = wants_state(problem) ? 0 : layer.r.rows * layer.r.state_row;

    return (size_t)(backward_packed_floats(&layer) + work) * sizeof(float);
}

/* Units of panel p: the first, how many columns the panel has, how many of them are units. */
static int64_t panel_at(const struct layer *layer, int64_t p, int64_t *width, int64_t *n)
{
    const int64_t lanes = layer->isa->lanes;
    int64_t vec;

    *width = gemm_part(gemm_ceil(layer->r.units, lanes), layer->n_panels, p, &vec) * lanes;
    *n = layer->r.units - vec * lanes < *width ? layer->r.units - vec * lanes : *width;
    return vec * lanes;
}

static void pack_turned(void *arg, size_t p)
{
    const struct layer *layer = arg;
    const struct recurrent *r = &layer->r;
    int64_t width, n;
    const int64_t first = panel_at(layer, (int64_t)p, &width, &n);

    layer->isa->transpose((const float *)layer->call->in[1] + first * r->gates, r->gates,
                          (int)n, (int)r->gates, layer->packed + first * r->gates, width, true);
}

/* What flows into the gates of step t, for rows [row, row + rows). */
static void run_cells(const struct layer *layer, int64_t row, int64_t rows, int64_t t)
{
    const struct recurrent *r = &layer->r;
    const struct kernel_call *call = layer->call;
    const struct recurrent_flow into = recurrent_flow(call, 3);
    const int64_t lanes = layer->isa->lanes, at = row * r->gates_row + t * r->gates;

    for (int64_t unit = 0; unit < r->units; unit += lanes) {
        float *dstate = layer->dstate + row * r->state_row + unit;
        const int64_t left = r->units - unit;
        struct cell_grad grad = {
            .rows = (int)rows,
            .n = (int)(left < lanes ? left : lanes),
            .units = r->units,
            .ids = (const int32_t *)call->in[2] + row * r->steps + t,
            .id_row = r->steps,
            .saved = { (const float *)call->in[0] + row * r->saved_row + t * r->saved + unit,
                       r->saved_row },
            .dh = { dstate, r->state_row },
            .dc = { dstate + r->units, r->state_row },
            .dgates = { (float *)call->out[0] + at + unit, r->gates_row },
        };

        if (into.y != NULL)
            grad.dy =
                (struct cell_source){ into.y + row * r->y_row + t * r->units + unit, r->y_row };
        if (r->is_lstm) {
            layer->cell->lstm_grad(&grad);
        } else {
            grad.dhidden =
                (struct cell_rows){ (float *)call->out[1] + at + unit, r->gates_row };
            layer->cell->gru_grad(&grad);
        }
    }
}

/* dh grows by what flows through the gates of step t. */
static void flow_through_weights(const struct layer *layer, int64_t row, int64_t rows,
                                 int64_t t)
{
    const struct recurrent *r = &layer->r;
    const float *dhidden = layer->call->out[r->is_lstm ? 0 : 1];

    for (int64_t p = 0; p < layer->n_panels; p++) {
        int64_t width, n;
        const int64_t first = panel_at(layer, p, &width, &n);
        int64_t next_width, next_n;
        const int64_t next = panel_at(layer, (p + 1) % layer->n_panels, &next_width, &next_n);
        multiply(layer->isa, &(struct product){
                                 .a = dhidden + row * r->gates_row + t * r->gates,
                                 .a_row = r->gates_row,
                                 .depth = r->gates,
                                 .b = layer->packed + first * r->gates,
                                 .width = width,
                                 .c = layer->dstate + row * r->state_row + first,
                                 .c_row = r->state_row,
                                 .rows = rows,
                                 .last = (int)(n - (width - layer->isa->lanes)),
                                 .accumulate = true,
                             });
    }
}

static void run_backward_part(void *arg, size_t i)
{
    const struct layer *layer = arg;
    const struct recurrent *r = &layer->r;
    const struct recurrent_flow into = recurrent_flow(layer->call, 3);
    const bool with_state = wants_state(layer->call->problem);
    int64_t row;
    const int64_t rows = gemm_part(r->rows, layer->n_parts, (int64_t)i, &row);
    const size_t bytes = (size_t)(rows * r->state_row) * sizeof(float);

    if (into.last != NULL)
        memcpy(layer->dstate + row * r->state_row, into.last + row * r->state_row, bytes);
    else
        memset(layer->dstate + row * r->state_row, 0, bytes);
    for (int64_t t = r->steps - 1; t >= 0; t--) {
        run_cells(layer, row, rows, t);
        if (t > 0 || with_state)
            flow_through_weights(layer, row, rows, t);
    }
}

static void backward_run(const struct kernel_call *call)
{
    struct layer layer = backward_layer(call->problem);

    layer.call = call;
    layer.packed = call->scratch;
    layer.dstate = wants_state(call->problem) ? call->out[layer.r.is_lstm ? 1 : 2]
                                              : layer.packed + backward_packed_floats(&layer);
    layer.n_parts = parts_of(&layer, call->pool);
    pool_for(call->pool, (size_t)layer.n_panels, pack_turned, &layer);
    pool_for(call->pool, (size_t)layer.n_parts, run_backward_part, &layer);
}

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
    { 0 },
};
