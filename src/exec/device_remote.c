/* SPDX-License-Identifier: MIT */
/* device_remote.c - a device whose sums of gradients go to servers, and whose parameters come from
 * them.
 *
 * The step on the device ends with its sums: nothing is updated there, and no state lies there.
 * Then, bucket by bucket,
 *
 *   device   sums of bucket 0 | of bucket 1 | ...
 *   here                        give 0        give 1 ...
 *   servers                         update 0      update 1 ...
 *
 * so that servers work on the first while the next are copied. Before the next step each bucket's
 * parameters are awaited and copied there, while servers are at those behind it. Of a table the
 * gradient has all rows there; those that were looked up are marked, and these are given.
 */
#include <string.h>

#include "exec/device_side.h"

static size_t begin_of(const struct exec *exec, int b)
{
    return (size_t)exec->layout.buckets.begin[b];
}

/* This device's sums of a bucket are here, as lanes would have them. */
static enum status bring_sums(const struct exec *exec, int b)
{
    const struct device_side *side = exec->device;
    const size_t at = begin_of(exec, b), count = begin_of(exec, b + 1) - at;

    for (int i = 0; i < exec->remote->n_sums; i++) {
        const size_t place = (size_t)i * exec->layout.vector + at;
        TRY(side->config.face->memory->copy(side->returns, exec->lanes[0].gradients + place,
                                            side->gradients + place, count * sizeof(float)));
    }
    return side->config.face->stream->wait(side->returns);
}

static bool is_zero(const float *row, size_t width)
{
    size_t i = 0;

    while (i < width && row[i] == 0)
        i++;
    return i == width;
}

/* Does sum number i have a list's row of this id? Marks are those of all shards of this rank, so of
 * several sums each has those rows in which there is something; one in which there is nothing
 * anywhere was looked up all the same. */
static bool has_row(const struct exec *exec, size_t at, size_t width, int i)
{
    const struct remote *remote = exec->remote;

    if (remote->n_sums == 1 || !is_zero(remote->sums[i].data + at, width))
        return true;
    for (int other = 0; other < remote->n_sums; other++) {
        if (!is_zero(remote->sums[other].data + at, width))
            return false;
    }
    return i == 0;
}

/* The rows of a table that were looked up, of each sum, one list behind the other. */
static enum status give_table(const struct exec *exec, int b)
{
    const struct device_side *side = exec->device;
    const struct exec_remote *to = exec->config.remote;
    const struct remote *remote = exec->remote;
    const struct row_sum *table = &exec->layout.row_sums[b];
    const uint8_t *marks = side->given_marks + (side->marks[b] - side->all_marks);
    const size_t width = (size_t)table->width;
    struct exec_rows lists[2 * TREE_DEPTH];
    int64_t count = 0;

    for (int i = 0; i < remote->n_sums; i++) {
        const int64_t first = count;
        for (int64_t id = 0; id < table->rows; id++) {
            const size_t at = begin_of(exec, b) + (size_t)id * width;
            if (!marks[id] || !has_row(exec, at, width, i))
                continue;
            remote->ids[b][count] = (int32_t)id;
            memcpy(remote->rows[b] + (size_t)count * width, remote->sums[i].data + at,
                   width * sizeof(float));
            count++;
        }
        BUG_ON(count > exec->topology.shards * table->most);
        lists[i] = (struct exec_rows){ remote->sums[i].node, remote->ids[b] + first,
                                       remote->rows[b] + (size_t)first * width, count - first };
    }
    return to->give_rows(to->arg, b, lists, remote->n_sums);
}

enum status device_give_sums(struct exec *exec)
{
    struct device_side *side = exec->device;
    const struct exec_remote *to = exec->config.remote;

    if (side->marks_bytes)
        TRY(side->config.face->memory->copy(side->returns, side->given_marks, side->all_marks,
                                            side->marks_bytes));
    for (int b = 0; b < exec->layout.buckets.count; b++) {
        TRY(bring_sums(exec, b));
        exec_meet(exec, "give");
        const struct span span = clock_begin_comm(&exec->lanes[0].clock);
        const enum status status =
            bucket_is_table(&exec->layout, b) ? give_table(exec, b) : to->give(to->arg, b);
        clock_end_comm(&exec->lanes[0].clock, span, "push", exec->account.bucket_names[b]);
        TRY(status);
    }
    return STATUS_OK;
}

enum status device_await_params(struct exec *exec)
{
    for (int b = 0; b < exec->layout.buckets.count; b++)
        TRY(remote_await(exec->config.remote, &exec->lanes[0].clock, b));
    exec->device->is_stale = true;
    return STATUS_OK;
}

/* What is copied stays as it is until it was given again, which is after the step. */
enum status device_take_params(struct exec *exec)
{
    struct device_side *side = exec->device;
    const struct device_face *face = side->config.face;

    for (int b = 0; b < exec->layout.buckets.count; b++) {
        const size_t at = begin_of(exec, b), count = begin_of(exec, b + 1) - at;
        TRY(remote_await(exec->config.remote, &exec->lanes[0].clock, b));
        TRY(face->memory->copy(side->stream, side->param + at, exec->memory.param + at,
                               count * sizeof(float)));
        if (side->half)
            face->convert(side->stream, side->half + at, side->config.precision,
                          side->param + at, DTYPE_F32, count);
    }
    side->is_stale = false;
    return STATUS_OK;
}
