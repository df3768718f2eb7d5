/* SPDX-License-Identifier: MIT */
/* step.c - one training step on a rank.
 *
 * Each lane runs its tasks of the step program for its shards, one after the other (lane.c). While
 * the last one runs, synchronization tasks whose waits are over run as soon as a bucket is final
 * (sync.c). Afterwards the lane waits for the rest.
 */
#include <string.h>

#include "exec/device_side.h"
#include "graph/op.h"

enum status lane_run(struct lane *lane, const struct instruction *instruction,
                     const struct kernel_step *step)
{
    struct kernel_call call = {
        .problem = &instruction->problem,
        .scratch = lane->arena + instruction->scratch,
        .state = instruction->state,
        .pool = lane->worker.pool,
        .step = step,
    };

    for (int i = 0; i < instruction->problem.n_in; i++)
        call.in[i] = lane->bases[instruction->in[i].base] + instruction->in[i].offset;
    for (int i = 0; i < instruction->problem.n_out; i++)
        call.out[i] = lane->bases[instruction->out[i].base] + instruction->out[i].offset;
    if (!instruction->kernel)
        return lane_talk(lane, &call);
    const int64_t begin = trace_begin(lane->clock.trace);
    instruction->kernel->run(&call);
    trace_end(lane->clock.trace, begin, TRACE_COMPUTE, instruction->node->name,
              instruction->kernel->name);
    return STATUS_OK;
}

/* A shard of so many rows of the step; sequences are as long as the step's longest. */
static struct extents extents_of(const struct batch *batch, int64_t rows)
{
    return (struct extents){ .rows = rows, .length = { batch->length[0], batch->length[1] } };
}

/* Numbers, floats or ids, that a sample of this step has of an input. */
static int64_t numbers_of(const struct value *input, const struct batch *batch)
{
    const struct shape *shape = &input->shape;

    return input->sequence ? batch->length[input->sequence - 1]
                           : shape_count(shape) / shape->dim[0];
}

/* Where row `at` of an input begins. Inputs have four bytes a number. */
static char *row_of(const struct value *input, const struct batch *batch, void *rows,
                    int64_t at)
{
    return input && rows ? (char *)rows + at * numbers_of(input, batch) * 4 : NULL;
}

void lane_copy_samples(struct lane *lane, int64_t v)
{
    const struct exec *exec = lane->exec;
    const struct value *input = graph_roles((struct graph *)exec->config.train)->input;
    const struct samples samples = exec_samples(exec, v);

    for (int i = 0; i < exec->layout.factors.count; i++) {
        const struct plan_factor *factor = &exec->layout.factors.item[i];
        if (factor->value == input)
            memcpy(exec->memory.records + (size_t)v * exec->layout.record + factor->offset,
                   row_of(input, exec->now.batch, exec->now.batch->x,
                          samples.begin - exec->now.batch->first),
                   (size_t)(samples.rows * numbers_of(input, exec->now.batch)) * 4);
    }
}

static bool is_alone(const struct exec *exec)
{
    return exec->config.part.count && !exec->config.part.with_others;
}

/* The divisor of the step's means. Without labels that count all sums are zero. */
static int64_t weight_of(const struct exec *exec, const struct batch *batch)
{
    const int64_t weight = is_alone(exec) ? batch->own_weight : batch->weight;

    return weight > 0 ? weight : 1;
}

static struct kernel_step step_of(const struct exec *exec, int64_t v)
{
    const struct batch *batch = exec->now.batch;

    return (struct kernel_step){
        .seed = exec->config.seed,
        .first_sample =
            batch->step * (uint64_t)exec->config.batch + (uint64_t)exec_samples(exec, v).begin,
        .inv_batch = (float)(1.0 / (double)exec->now.weight),
    };
}

static void point_to_shard(struct lane *lane, int64_t v, int buffer)
{
    struct exec *exec = lane->exec;
    const struct batch *batch = exec->now.batch;
    const struct graph_roles *roles = graph_roles((struct graph *)exec->config.train);
    const int64_t at = exec_samples(exec, v).begin - batch->first;
    const size_t slot =
        (size_t)(exec->now.steps % 2) * (size_t)exec->topology.shards + (size_t)v;

    lane->bases[BASE_GRAD] = (char *)(lane->gradients + (size_t)buffer * exec->layout.vector);
    lane->bases[BASE_INPUT] = row_of(roles->input, batch, batch->x, at);
    lane->bases[BASE_SECOND] = row_of(roles->second, batch, batch->x2, at);
    lane->bases[BASE_TARGET] = row_of(roles->target, batch, batch->y, at);
    lane->bases[BASE_LOSS] = (char *)&exec->memory.losses[slot];
    lane->bases[BASE_CORRECT] = (char *)&exec->memory.corrects[slot];
    lane->bases[BASE_FACTOR] = exec->memory.records + (size_t)v * exec->layout.record;
    lane->bases[BASE_TABLE] = exec->memory.tables;
}

const struct plan *lane_plan_of(const struct lane *lane, int64_t v)
{
    const int64_t rows = exec_samples(lane->exec, v).rows;

    return rows > 0 ? lane_plan(lane, extents_of(lane->exec->now.batch, rows), false) : NULL;
}

struct lane_shard lane_begin_shard(struct lane *lane, int64_t v, struct tree_stack *stack)
{
    const struct exec *exec = lane->exec;
    const struct lane_shard shard = {
        .v = v, .plan = lane_plan_of(lane, v), .stack = stack, .step = step_of(exec, v)
    };

    point_to_shard(lane, v, tree_stack_push(stack, exec->topology.tree_first + v));
    lane->plan = shard.plan ? shard.plan : lane->plan;
    return shard;
}

void lane_leave_no_loss(const struct lane *lane)
{
    *(float *)lane->bases[BASE_LOSS] = 0;
    *(float *)lane->bases[BASE_CORRECT] = 0;
}

static enum status run_shard(struct lane *lane, int64_t v, struct tree_stack *stack)
{
    const struct program *program = lane->exec->program;
    const struct lane_shard shard = lane_begin_shard(lane, v, stack);

    hold_enter_round(lane, v - lane->first);
    if (!shard.plan)
        lane_leave_no_loss(lane);
    TRY(lane_run_tasks(lane, program->once_end, program->segment[program->n_segments], &shard));
    while (tree_stack_can_add(stack))
        tree_stack_add(stack);
    return STATUS_OK;
}

static enum status run_all(struct lane *lane)
{
    struct tree_stack stack;

    if (lane->exec->pipe)
        return pipe_run_step(lane);
    TRY(lane_run_tasks(lane, 0, lane->exec->program->once_end, NULL));
    tree_stack_init(&stack, lane->exec->topology.tree_shards);
    for (int64_t v = lane->first; v < lane->first + lane->count; v++)
        TRY(run_shard(lane, v, &stack));
    return STATUS_OK;
}

static enum status run_shards(struct lane *lane)
{
    lane->next_task = 0;
    lane->numbers = lane->exec->now.numbers;
    lane->announced = 0;
    TRY(run_all(lane));
    TRY(lane_sync(lane, lane->exec->program->n_tasks));
    release_summed(lane);
    return STATUS_OK;
}

static void run_step(struct lane *lane)
{
    clock_begin_step(&lane->clock);
    lane->status = run_shards(lane);
    clock_end_step(&lane->clock);
}

/* Records have room for the longest sequences that the model is made for. */
static enum status check_lengths(const struct exec *exec, const struct batch *batch)
{
    const struct extents most = graph_extents(exec->config.train);

    for (int i = 0; i < 2; i++) {
        if (batch->length[i] > most.length[i])
            return FAIL(STATUS_USAGE, "sequences of %lld, the model is made for at most %lld",
                        (long long)batch->length[i], (long long)most.length[i]);
    }
    return STATUS_OK;
}

void exec_say(struct exec *exec, uint32_t bits)
{
    exec->says = bits;
}

void exec_tell(struct exec *exec)
{
    exec->memory.flags[exec->now.steps % 2 * (uint32_t)exec->topology.ranks +
                       (uint32_t)exec->topology.rank] = exec->says;
}

uint32_t exec_heard(const struct exec *exec)
{
    uint32_t bits = 0;

    for (int r = 0; r < exec->topology.ranks; r++)
        bits |= exec->memory
                    .flags[exec->now.steps % 2 * (uint32_t)exec->topology.ranks + (uint32_t)r];
    return bits;
}

enum status exec_step(struct exec *exec, const struct batch *batch, struct exec_result *out)
{
    const int64_t shards = exec->config.shards;

    TRY(check_lengths(exec, batch));
    *out = (struct exec_result){
        .samples = is_alone(exec) ? batch->rows : batch->samples,
        .weight = is_alone(exec) ? batch->own_weight : batch->weight,
    };
    if (is_alone(exec) && batch->rows == 0 && !exec->remote) {
        out->heard = exec->says;
        exec->says = 0;
        return STATUS_OK;
    }

    /* Plans for this step's shard sizes: the smallest and the largest differ by one row. */
    TRY(exec_prepare(exec, extents_of(batch, batch->samples / shards), false));
    if (batch->samples % shards)
        TRY(exec_prepare(exec, extents_of(batch, batch->samples / shards + 1), false));
    exec->now.weight = weight_of(exec, batch);
    if (exec->device)
        return device_step(exec, batch, out);
    exec->now.batch = batch;
    exec->now.step = batch->step;
    exec->now.numbers = optim_step(&exec->config.optim, batch->step);
    exec_tell(exec);
    exec->says = 0;
    hold_begin(exec, &(struct hold_walk){ .is_evaluation = false });
    if (exec->net)
        TRY(net_begin(exec, extents_of(batch, (batch->samples + shards - 1) / shards)));
    transport_note(exec->transport, batch->step, "forward and backward");
    const enum status status = exec_on_lanes(exec, run_step);
    exec->now.batch = NULL;
    TRY(status);
    hold_end(exec);
    exec->now.columns_taken = exec->layout.has_columns;

    /* Every lane of every rank of this node had announced its gradients, so their losses are there. */
    if (exec->topology.nodes > 1)
        TRY(clock_wait(&exec->lanes[0].clock, exec->program->losses, "all_reduce of the loss"));
    const size_t slot = (size_t)(exec->now.steps % 2) * (size_t)exec->topology.shards;
    out->loss = tree_sum(exec->memory.losses + slot, exec->topology.shards);
    out->correct = tree_sum(exec->memory.corrects + slot, exec->topology.shards);
    out->heard = exec_heard(exec);
    exec->now.steps++;
    return beside_tell_step(exec, out);
}

/* Measurements ------------------------------------------------------------------------- */

struct exec_times exec_times(const struct exec *exec)
{
    const struct times wire = net_times(exec);
    struct exec_times total = { .wire = (double)wire.comm * 1e-9,
                                .wire_hidden = (double)wire.hidden * 1e-9,
                                .bytes = (double)wire.bytes };

    for (int i = 0; i < exec->topology.n_lanes; i++) {
        const struct times *times = &exec->lanes[i].clock.times;
        total.compute += (double)times->compute * 1e-9;
        total.comm += (double)times->comm * 1e-9;
        total.hidden += (double)times->hidden * 1e-9;
        total.wait += (double)times->wait * 1e-9;
        total.bubble += (double)times->bubble * 1e-9;
        total.evaluate += (double)times->evaluate * 1e-9;
        total.bytes += (double)times->bytes;
    }
    return total;
}

void exec_waited_for(const struct exec *exec, double *out)
{
    for (int r = 0; r < exec->topology.ranks; r++) {
        out[r] = 0;
        for (int i = 0; i < exec->topology.n_lanes; i++)
            out[r] += (double)exec->lanes[i].clock.waited_for[r] * 1e-9;
    }
}

void exec_reset_times(struct exec *exec)
{
    net_forget_times(exec);
    for (int i = 0; i < exec->topology.n_lanes; i++) {
        exec->lanes[i].clock.times = (struct times){ 0 };
        for (int r = 0; r < exec->topology.ranks; r++)
            exec->lanes[i].clock.waited_for[r] = 0;
    }
}
