/* SPDX-License-Identifier: MIT */
/* columns.c - a first linear layer whose columns belong to lanes.
 *
 * Samples split a step's work, so every lane reads every weight; and each updates a part of them. For
 * a small batch the lines of a large weight then cross the chip twice a step, which takes longer
 * than the arithmetic. A layer that reads the samples themselves needs none of that: its input
 * needs no gradient, so its weight is used by the layer alone. Here a lane keeps some columns of such
 * a weight, and of its state, to itself. At the beginning of a step it computes these columns of the
 * output for all shards' samples, and at the end it updates them from the factors of the
 * gradient. What crosses is x, y and dy: batch * (k + 2n) numbers instead of 2 k n.
 *
 *   copy x to the records | all lanes | y columns of all shards | all lanes | the shards, as ever
 *
 * Each number comes from the same chain of multiply-adds as without this, so the bits are the
 * same.
 */
#include <string.h>

#include "base/mem.h"
#include "exec/state.h"
#include "kernel/factor.h"

enum { GRAIN = 16 /* columns: a line of memory */ };

enum status columns_find(struct exec *exec, int bucket)
{
    struct factored *f = &exec->layout.factored[bucket];

    f->forward = exec->layout.facts.buckets[bucket].columns;
    if (!f->forward)
        return STATUS_OK;
    const struct value *y = f->forward->out[0];
    exec->layout.has_columns = true;
    TRY(exec_place_factor(exec, y, bucket, &f->y));
    for (int i = 0; i < exec->layout.factors.count; i++) /* it may be the next layer's x, too */
        exec->layout.factors.item[i].is_joint |= exec->layout.factors.item[i].value == y;
    return STATUS_OK;
}

enum status columns_create(struct lane *lane)
{
    const struct exec *exec = lane->exec;

    TRY(mem_alloc((size_t)exec->layout.buckets.count + 1, sizeof *lane->columns,
                  &lane->columns));
    for (int b = 0; b < exec->layout.buckets.count; b++) {
        const struct factored *f = &exec->layout.factored[b];
        struct columns *own = &lane->columns[b];
        if (!f->forward)
            continue;
        const int64_t grains = (f->n + GRAIN - 1) / GRAIN, lanes = exec->topology.all_lanes;
        const int64_t end = (lane->number + 1) * grains / lanes * GRAIN;
        own->first = lane->number * grains / lanes * GRAIN;
        own->stride = end - own->first;
        own->count = (end < f->n ? end : f->n) - own->first;
        if (own->count == 0)
            continue;
        const size_t floats = (size_t)(f->k * own->stride);
        TRY(mem_alloc((size_t)(1 + exec->layout.n_states) * floats, sizeof(float),
                      &own->param));
        for (int i = 0; i < exec->layout.n_states; i++)
            own->state[i] = own->param + (size_t)(1 + i) * floats;
    }
    return STATUS_OK;
}

void columns_destroy(struct lane *lane)
{
    for (int b = 0; lane->columns && b < lane->exec->layout.buckets.count; b++)
        mem_free(lane->columns[b].param);
    mem_free(lane->columns);
}

/* Copies a lane's columns of bucket b out of the flat vectors, or back. */
static void move_columns(struct lane *lane, int b, bool back)
{
    struct exec *exec = lane->exec;
    const struct columns *own = &lane->columns[b];

    for (int i = -1; i < exec->layout.n_states && own->count > 0; i++) {
        float *flat = (i < 0 ? exec->memory.param : exec->memory.state[i]) +
                      exec->layout.buckets.begin[b] + own->first;
        float *mine = i < 0 ? own->param : own->state[i];
        for (int64_t r = 0; r < exec->layout.factored[b].k; r++) {
            float *whole = flat + r * exec->layout.factored[b].n,
                  *part = mine + r * own->stride;
            memcpy(back ? whole : part, back ? part : whole,
                   (size_t)own->count * sizeof(float));
        }
    }
}

void columns_return(struct exec *exec)
{
    for (int i = 0; i < exec->topology.n_lanes && exec->columns_taken; i++) {
        for (int b = 0; b < exec->layout.buckets.count; b++)
            move_columns(&exec->lanes[i], b, true);
    }
    exec->columns_taken = false;
}

static struct kernel_columns columns_of(const struct exec *exec, int b,
                                        const struct columns *own)
{
    const struct factored *f = &exec->layout.factored[b];
    const float *bias = exec->memory.param + exec->layout.buckets.begin[b] + f->bias;

    return (struct kernel_columns){
        .k = f->k,
        .columns = own->count,
        .w = own->param,
        .w_stride = own->stride,
        .bias = f->forward->n_in > 2 ? bias + own->first : NULL,
        .y_stride = f->n,
        .relu = f->forward->attrs.activation == ACTIVATION_RELU,
    };
}

size_t columns_scratch(const struct exec *exec)
{
    const int64_t shards = exec->config.shards;
    size_t most = 0;

    for (int b = 0; b < exec->layout.buckets.count && exec->config.batch > 0; b++) {
        const struct factored *f = &exec->layout.factored[b];
        const struct kernel_columns largest = { .m = (exec->config.batch + shards - 1) / shards,
                                                .k = f->k,
                                                .columns = f->n };
        if (!f->forward)
            continue;
        const size_t bytes = kernel_columns_scratch(&largest);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void run_columns(struct lane *lane, int b)
{
    const struct exec *exec = lane->exec;
    const struct factored *f = &exec->layout.factored[b];
    const struct columns *own = &lane->columns[b];
    struct kernel_columns columns = columns_of(exec, b, own);
    const int64_t begin = trace_begin(lane->trace);

    for (int64_t v = 0; v < exec->topology.shards; v++) {
        char *record = exec->memory.records + (size_t)v * exec->layout.record;
        columns.m = exec_samples(exec, v).rows;
        columns.x = (const float *)(record + f->x);
        columns.y = (float *)(record + f->y) + own->first;
        kernel_columns_run(&columns, lane->pool, lane->scratch);
    }
    trace_end(lane->trace, begin, TRACE_COMPUTE, f->forward->name, "columns");
}

void columns_compute(struct lane *lane, int b)
{
    if (!lane->exec->columns_taken)
        move_columns(lane, b, false);
    if (lane->columns[b].count > 0)
        run_columns(lane, b);
}
