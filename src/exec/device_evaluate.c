/* SPDX-License-Identifier: MIT */
/* device_evaluate.c - forward of some samples on a device, for evaluations and predictions. */
#include "exec/device_side.h"

enum { ALIGN = 256 };

/* Where a lane's samples go, behind the numbers of the step; returns how many bytes there must be. */
static size_t lay_out(const struct lane *lane, size_t at[SOURCE_PARTS])
{
    size_t bytes = ALIGN;

    for (int part = 0; part < SOURCE_PARTS; part++) {
        at[part] = bytes;
        bytes += (lane->eval_bytes[part] * EVAL_ROWS + ALIGN - 1) / ALIGN * ALIGN;
    }
    return bytes;
}

static enum status grow(struct device_side *side, size_t bytes, char **memory, size_t *there)
{
    if (bytes <= *there)
        return STATUS_OK;
    side->config.face->memory->destroy(side->config.device, *memory);
    *memory = NULL;
    *there = 0;
    TRY(side->config.face->memory->create(side->config.device, bytes, (void **)memory));
    *there = bytes;
    return STATUS_OK;
}

static enum status grow_output(struct device_side *side, size_t bytes)
{
    struct device_samples *eval = &side->eval;
    const struct device_memory_ops *memory = side->config.face->memory;

    if (bytes <= eval->output_bytes)
        return STATUS_OK;
    memory->destroy_host(side->config.device, eval->output);
    eval->output = NULL;
    TRY(memory->create_host(side->config.device, bytes, (void **)&eval->output));
    return grow(side, bytes, &eval->widened, &eval->output_bytes);
}

/* Brings a plan's output to the host, as f32. */
static enum status take_output(struct device_side *side, const struct plan *plan)
{
    const struct device_face *face = side->config.face;
    const size_t count = (size_t)(plan->extents.rows * plan->output_floats);
    const void *output = side->bases[plan->output.base] + plan->output.offset;

    TRY(grow_output(side, count * sizeof(float)));
    if (plan->output_dtype != DTYPE_F32) {
        face->convert(side->stream, side->eval.widened, DTYPE_F32, output, plan->output_dtype,
                      count);
        output = side->eval.widened;
    }
    return face->memory->copy(side->stream, side->eval.output, output, count * sizeof(float));
}

/* Copies the lane's samples and the numbers of the step. */
static enum status give_samples(const struct lane *lane, const struct kernel_step *step,
                                size_t rows)
{
    struct device_side *side = lane->exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;
    const void *const parts[] = { lane->eval_x, lane->eval_x2, lane->eval_y };
    static const enum base bases[] = { BASE_INPUT, BASE_SECOND, BASE_TARGET };
    size_t at[SOURCE_PARTS];

    TRY(grow(side, lay_out(lane, at), &side->eval.there, &side->eval.bytes));
    TRY(memory->copy(side->stream, side->eval.there, step, sizeof *step));
    for (int part = 0; part < SOURCE_PARTS; part++) {
        side->bases[bases[part]] = side->eval.there + at[part];
        if (parts[part])
            TRY(memory->copy(side->stream, side->eval.there + at[part], parts[part],
                             rows * lane->eval_bytes[part]));
    }
    return STATUS_OK;
}

/* The lane's samples are there, and results have places. */
static enum status begin_samples(const struct lane *lane, const struct plan *plan,
                                 const struct kernel_step *step)
{
    struct device_side *side = lane->exec->device;

    TRY(give_samples(lane, step, (size_t)plan->extents.rows));
    side->bases[BASE_LOSS] = (char *)&side->results[0];
    side->bases[BASE_CORRECT] = (char *)&side->results[1];
    return side->config.face->memory->fill(side->stream, side->results, 0, 2 * sizeof(float));
}

/* What the samples gave comes to the host. */
static enum status end_samples(const struct lane *lane, const struct plan *plan,
                               bool wants_output)
{
    struct device_side *side = lane->exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;

    TRY(memory->copy(side->stream, lane->bases[BASE_LOSS], &side->results[0], sizeof(float)));
    TRY(memory->copy(side->stream, lane->bases[BASE_CORRECT], &side->results[1],
                     sizeof(float)));
    return wants_output ? take_output(side, plan) : STATUS_OK;
}

enum status device_run_samples(struct lane *lane, const struct plan *plan,
                               const struct kernel_step *step, bool wants_output)
{
    const struct device_side *side = lane->exec->device;

    TRY(begin_samples(lane, plan, step));
    parts_begin(side, PARTS_EVALUATION);
    for (int i = 0; i < plan->n_instructions; i++) {
        TRY(parts_before(lane->exec, plan, i));
        TRY(device_run(side, &plan->instructions[i], (struct kernel_step *)side->eval.there));
    }
    tensor_end(side);
    TRY(end_samples(lane, plan, wants_output));
    return device_wait(lane->exec);
}

/* The host's buffers are used again for the next batch: each action is waited for. */
enum status device_run_batch(struct lane *lane, const struct pipe_evaluation *e,
                             const struct pipe_action *a)
{
    const struct kernel_step step = { .seed = lane->exec->config.seed, .inv_batch = 1 };
    const struct device_side *side = lane->exec->device;
    const bool is_last = a->chunk == lane->exec->config.pipeline.chunks - 1;
    const struct plan *plan = e->begin(lane, a->shard);

    TRY(begin_samples(lane, plan, &step));
    TRY(device_pipe_run(lane->exec, plan, a->chunk, a->shard,
                        (struct kernel_step *)side->eval.there));
    tensor_end(side);
    if (is_last)
        TRY(end_samples(lane, plan, e->wants_output && plan->output_floats));
    TRY(device_wait(lane->exec));
    if (is_last)
        e->end(lane, plan, a->shard);
    return STATUS_OK;
}
