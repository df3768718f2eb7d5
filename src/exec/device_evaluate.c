/* SPDX-License-Identifier: MIT */
/* device_evaluate.c - forward of some samples on a device, for evaluations and predictions. The
 * second time that a plan runs it is captured, as steps are. */
#include "exec/device_side.h"

enum { ALIGN = 256, PICKS_AT = ALIGN };
enum { PICKS_END = PICKS_AT + (EVAL_ROWS * sizeof(struct pick) + ALIGN - 1) / ALIGN * ALIGN };

void device_read_samples(struct lane *lane, const int64_t *index, int64_t rows,
                         const int64_t length[SOURCE_SEQUENCES])
{
    const struct source *source = lane->exec->eval.data;
    struct device_samples *eval = &lane->exec->device->eval;

    eval->picked = device_kept(lane->exec, source) ? source : NULL;
    if (!eval->picked) {
        source_read(source, NULL, index, rows, length, lane->samples.x, lane->samples.x2,
                    lane->samples.y);
        return;
    }
    source_pick(source, NULL, index, rows, eval->picks);
    for (int64_t i = 0; i < rows; i++)
        lane->samples.y[i] = source_label(source, index[i]);
}

/* Where a lane's samples go, behind the numbers of the step and picks; returns how many bytes there
 * must be. */
static size_t lay_out(const struct lane *lane, size_t at[SOURCE_PARTS])
{
    size_t bytes = PICKS_END;

    for (int part = 0; part < SOURCE_PARTS; part++) {
        at[part] = bytes;
        bytes += (lane->samples.bytes[part] * EVAL_ROWS + ALIGN - 1) / ALIGN * ALIGN;
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

void device_forget_forwards(struct device_side *side)
{
    for (int i = 0; i < side->eval.n_forwards; i++) {
        if (side->eval.forwards[i].graph)
            side->config.face->graph->destroy(side->eval.forwards[i].graph);
    }
    side->eval.n_forwards = 0;
}

/* Room for the lane's samples, which may move. */
static enum status make_room(const struct lane *lane, size_t at[SOURCE_PARTS])
{
    struct device_side *side = lane->exec->device;
    const size_t bytes = lay_out(lane, at);

    if (bytes > side->eval.bytes)
        device_forget_forwards(side);
    return grow(side, bytes, &side->eval.there, &side->eval.bytes);
}

/* Copies the lane's samples, or picks of them, and the numbers of the step. */
static enum status give_samples(const struct lane *lane, const struct kernel_step *step,
                                size_t rows)
{
    struct device_side *side = lane->exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;
    const void *const parts[] = { lane->samples.x, lane->samples.x2, lane->samples.y };
    static const enum base bases[] = { BASE_INPUT, BASE_SECOND, BASE_TARGET };
    size_t at[SOURCE_PARTS];

    TRY(make_room(lane, at));
    TRY(memory->copy(side->stream, side->eval.there, step, sizeof *step));
    if (side->eval.picked)
        TRY(memory->copy(side->stream, side->eval.there + PICKS_AT, side->eval.picks,
                         rows * sizeof *side->eval.picks));
    for (int part = 0; part < SOURCE_PARTS; part++) {
        side->bases[bases[part]] = side->eval.there + at[part];
        if (parts[part] && !side->eval.picked)
            TRY(memory->copy(side->stream, side->eval.there + at[part], parts[part],
                             rows * lane->samples.bytes[part]));
    }
    return STATUS_OK;
}

/* Results have places. */
static enum status begin_results(struct device_side *side)
{
    side->bases[BASE_LOSS] = (char *)&side->counted[0];
    side->bases[BASE_CORRECT] = (char *)&side->counted[1];
    return side->config.face->memory->fill(side->stream, side->counted, 0, 2 * sizeof(float));
}

/* All that the device does with samples that were given. */
static enum status put_forward(const struct exec *exec, const struct plan *plan)
{
    struct device_side *side = exec->device;
    const struct device_face *face = side->config.face;
    const char *there = side->eval.there;
    const bool has_target = graph_roles((struct graph *)exec->config.eval)->target;

    TRY(begin_results(side));
    if (side->eval.picked)
        face->pick(side->stream, device_kept(exec, side->eval.picked),
                   (const struct pick *)(there + PICKS_AT), (size_t)plan->extents.rows,
                   (float *)side->bases[BASE_INPUT],
                   has_target ? (int32_t *)side->bases[BASE_TARGET] : NULL);
    parts_begin(side, PARTS_EVALUATION);
    for (int i = 0; i < plan->n_instructions; i++) {
        TRY(parts_before(exec, plan, i));
        TRY(device_run(side, &plan->instructions[i], (const struct kernel_step *)there));
    }
    tensor_end(side);
    return STATUS_OK;
}

/* What is known of this one; the one that was not needed for longest makes room. */
static struct device_forward *find_forward(struct device_side *side, const struct plan *plan)
{
    struct device_samples *eval = &side->eval;
    struct device_forward *oldest = eval->forwards;

    for (int i = 0; i < eval->n_forwards; i++) {
        struct device_forward *found = &eval->forwards[i];
        if (found->plan == plan && found->picked == eval->picked)
            return found;
        oldest = found->uses < oldest->uses ? found : oldest;
    }
    if (eval->n_forwards < DEVICE_GRAPHS)
        oldest = &eval->forwards[eval->n_forwards++];
    else if (oldest->graph)
        side->config.face->graph->destroy(oldest->graph);
    *oldest = (struct device_forward){ .plan = plan, .picked = eval->picked };
    return oldest;
}

static enum status run_forward(const struct exec *exec, const struct plan *plan)
{
    struct device_side *side = exec->device;
    const struct device_graph_ops *graphs = side->config.face->graph;
    struct device_forward *forward = find_forward(side, plan);
    const bool is_first = forward->uses == 0;

    forward->uses = ++side->uses;
    if (!graphs || is_first)
        return put_forward(exec, plan);
    if (!forward->graph) {
        TRY(graphs->begin(side->stream));
        const enum status status = put_forward(exec, plan);
        const enum status ended = graphs->end(side->stream, &forward->graph);
        TRY(status);
        TRY(ended);
    }
    return graphs->launch(forward->graph, side->stream);
}

/* What the samples gave comes to the host. */
static enum status end_samples(const struct lane *lane, const struct plan *plan,
                               bool wants_output)
{
    struct device_side *side = lane->exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;

    TRY(memory->copy(side->stream, lane->bases[BASE_LOSS], &side->counted[0], sizeof(float)));
    TRY(memory->copy(side->stream, lane->bases[BASE_CORRECT], &side->counted[1],
                     sizeof(float)));
    return wants_output ? take_output(side, plan) : STATUS_OK;
}

enum status device_run_samples(struct lane *lane, const struct plan *plan,
                               const struct kernel_step *step, bool wants_output)
{
    TRY(give_samples(lane, step, (size_t)plan->extents.rows));
    TRY(run_forward(lane->exec, plan));
    TRY(end_samples(lane, plan, wants_output));
    return device_wait(lane->exec);
}

/* The host's buffers are used again for the next batch: each action is waited for. */
enum status device_run_batch(struct lane *lane, const struct pipe_evaluation *e,
                             const struct pipe_action *a)
{
    const struct kernel_step step = { .seed = lane->exec->config.seed, .inv_batch = 1 };
    struct device_side *side = lane->exec->device;
    const bool is_last = a->chunk == lane->exec->config.pipeline.chunks - 1;
    const struct plan *plan = e->begin(lane, a->shard);

    TRY(give_samples(lane, &step, (size_t)plan->extents.rows));
    TRY(begin_results(side));
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
