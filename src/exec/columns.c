/* SPDX-License-Identifier: MIT */
/* columns.c - a first linear layer whose columns belong to lanes.
 *
 * Samples split a step's work, so every lane reads every weight; and each updates a part of them.
 * For a small batch the lines of a large weight then cross the chip twice a step, which takes
 * longer than the arithmetic. A layer that reads the samples themselves needs none of that: its
 * input needs no gradient, so its weight is used by the layer alone. Here a lane keeps some columns
 * of such a weight, and of its state, to itself. At the beginning of a step it computes these
 * columns of the output for all shards' samples, and at the end it updates them from the factors of
 * the gradient. What crosses is x, y and dy: batch * (k + 2n) numbers instead of 2 k n.
 *
 *   copy x to the records | all lanes | y columns of all shards | all lanes | the shards, as ever
 *
 * Each number comes from the same chain of multiply-adds as without this, so the bits are the same.
 */
#include <string.h>

#include "base/mem.h"
#include "base/trace.h"
#include "exec/exec.h"
#include "exec/layout.h"
#include "exec/now.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"
#include "kernel/factor.h"

enum { GRAIN = 16 /* columns: a line of memory */ };

enum status columns_find(struct exec_layout *layout, int bucket)
{
    struct factored *f = &layout->factored[bucket];

    f->forward = layout->facts.buckets[bucket].columns;
    if (!f->forward)
        return STATUS_OK;
    const struct value *y = f->forward->out[0];
    layout->has_columns = true;
    TRY(layout_place_factor(layout, y, bucket, &f->y));
    for (int i = 0; i < layout->factors.count; i++) /* it may be the next layer's x, too */
        layout->factors.item[i].is_joint |= layout->factors.item[i].value == y;
    return STATUS_OK;
}

enum status columns_create(struct sum_worker *worker)
{
    const struct sums *sums = worker->sums;

    TRY(mem_alloc((size_t)sums->layout->buckets.count + 1, sizeof *worker->columns,
                  &worker->columns));
    for (int b = 0; b < sums->layout->buckets.count; b++) {
        const struct factored *f = &sums->layout->factored[b];
        struct columns *own = &worker->columns[b];
        if (!f->forward)
            continue;
        const int64_t grains = (f->n + GRAIN - 1) / GRAIN, lanes = sums->topology->all_lanes;
        const int64_t end = (worker->number + 1) * grains / lanes * GRAIN;
        own->first = worker->number * grains / lanes * GRAIN;
        own->stride = end - own->first;
        own->count = (end < f->n ? end : f->n) - own->first;
        if (own->count == 0)
            continue;
        const size_t floats = (size_t)(f->k * own->stride);
        TRY(mem_alloc((size_t)(1 + sums->layout->n_states) * floats, sizeof(float),
                      &own->param));
        for (int i = 0; i < sums->layout->n_states; i++)
            own->state[i] = own->param + (size_t)(1 + i) * floats;
    }
    return STATUS_OK;
}

void columns_destroy(struct sum_worker *worker)
{
    for (int b = 0; worker->columns && b < worker->sums->layout->buckets.count; b++)
        mem_free(worker->columns[b].param);
    mem_free(worker->columns);
}

/* Copies a lane's columns of bucket b out of the flat vectors, or back. */
static void move_columns(const struct sum_worker *worker, int b, bool back)
{
    const struct sums *sums = worker->sums;
    const struct columns *own = &worker->columns[b];

    for (int i = -1; i < sums->layout->n_states && own->count > 0; i++) {
        float *flat = (i < 0 ? sums->memory->param : sums->memory->state[i]) +
                      sums->layout->buckets.begin[b] + own->first;
        float *mine = i < 0 ? own->param : own->state[i];
        for (int64_t r = 0; r < sums->layout->factored[b].k; r++) {
            float *whole = flat + r * sums->layout->factored[b].n,
                  *part = mine + r * own->stride;
            memcpy(back ? whole : part, back ? part : whole,
                   (size_t)own->count * sizeof(float));
        }
    }
}

void columns_return(const struct sum_worker *worker)
{
    for (int b = 0; b < worker->sums->layout->buckets.count; b++)
        move_columns(worker, b, true);
}

static struct kernel_columns columns_of(const struct sums *sums, int b,
                                        const struct columns *own)
{
    const struct factored *f = &sums->layout->factored[b];
    const float *bias = sums->memory->param + sums->layout->buckets.begin[b] + f->bias;

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

size_t columns_scratch(const struct sums *sums)
{
    const int64_t shards = sums->config->shards;
    size_t most = 0;

    for (int b = 0; b < sums->layout->buckets.count && sums->config->batch > 0; b++) {
        const struct factored *f = &sums->layout->factored[b];
        const struct kernel_columns largest = {
            .m = (sums->config->batch + shards - 1) / shards, .k = f->k, .columns = f->n
        };
        if (!f->forward)
            continue;
        const size_t bytes = kernel_columns_scratch(&largest);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void run_columns(const struct sum_worker *worker, int b, struct trace_row *trace)
{
    const struct sums *sums = worker->sums;
    const struct factored *f = &sums->layout->factored[b];
    const struct columns *own = &worker->columns[b];
    struct kernel_columns columns = columns_of(sums, b, own);
    const int64_t begin = trace_begin(trace);

    for (int64_t v = 0; v < sums->topology->shards; v++) {
        char *record = sums->memory->records + (size_t)v * sums->layout->record;
        columns.m = now_samples(sums->now, sums->topology, v).rows;
        columns.x = (const float *)(record + f->x);
        columns.y = (float *)(record + f->y) + own->first;
        kernel_columns_run(&columns, worker->pool, worker->scratch);
    }
    trace_end(trace, begin, TRACE_COMPUTE, f->forward->name, "columns");
}

void columns_compute(const struct sum_worker *worker, int b, struct trace_row *trace)
{
    if (!worker->sums->now->columns_taken)
        move_columns(worker, b, false);
    if (worker->columns[b].count > 0)
        run_columns(worker, b, trace);
}
