/* SPDX-License-Identifier: MIT */
/* step.c - one training step on a rank.
 *
 * Each lane runs its shards one after the other. While the last one runs, a bucket whose gradients
 * are final is announced, and synchronization tasks whose waits are over run at the next opportunity
 * (sync.c). Afterwards the lane waits for the rest. Where the graph has gathers, a lane
 * has one shard and meets the others on the way (gather.c).
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
        .pool = lane->pool,
        .step = step,
    };

    for (int i = 0; i < instruction->problem.n_in; i++)
        call.in[i] = lane->bases[instruction->in[i].base] + instruction->in[i].offset;
    for (int i = 0; i < instruction->problem.n_out; i++)
        call.out[i] = lane->bases[instruction->out[i].base] + instruction->out[i].offset;
    if (!instruction->kernel)
        return lane_talk(lane, &call);
    const int64_t begin = trace_begin(lane->trace);
    instruction->kernel->run(&call);
    trace_end(lane->trace, begin, TRACE_COMPUTE, instruction->node->name,
              instruction->kernel->name);
    return STATUS_OK;
}

enum status lane_await_params(struct lane *lane, uint64_t buckets)
{
    struct exec *exec = lane->exec;

    for (; buckets; buckets &= buckets - 1) {
        const int b = __builtin_ctzll(buckets);
        if (exec->remote) {
            TRY(remote_await(lane, b));
            continue;
        }
        TRY(exec_wait_last(exec, lane, exec->program->fresh[b], "all_gather of parameters"));
        release_bucket(lane, b); /* what is left of the last step */
    }
    return STATUS_OK;
}

/* These buckets of the shard that ran last are final: add what the tree adds. */
static void add_along_tree(struct lane *lane, const struct tree_stack *stack, uint64_t buckets)
{
    const struct exec *exec = lane->exec;
    struct tree_stack sums = *stack;
    const int64_t begin = tree_stack_can_add(&sums) ? trace_begin(lane->trace) : 0;

    while (tree_stack_can_add(&sums)) {
        float *left = lane->gradients + (size_t)(sums.count - 2) * exec->vector;
        for (uint64_t left_over = buckets; left_over; left_over &= left_over - 1) {
            const int b = __builtin_ctzll(left_over);
            if (bucket_is_gathered(exec, b) || bucket_is_served(exec, b))
                continue; /* it has no gradient of its own */
            const size_t at = (size_t)exec->buckets.begin[b];
            const size_t count = (size_t)exec->buckets.begin[b + 1] - at;
            kernel_add(left + at, left + at, left + at + exec->vector, count);
        }
        tree_stack_add(&sums);
    }
    trace_end(lane->trace, begin, TRACE_COMPUTE, "add to the lane's sum", NULL);
}

/* A shard without samples: its gradients and losses are zero. */
static void run_empty_shard(struct lane *lane, uint64_t buckets)
{
    const struct exec *exec = lane->exec;

    lane_give_empty_tables(lane);
    for (; buckets; buckets &= buckets - 1) {
        const int b = __builtin_ctzll(buckets);
        const int64_t begin = exec->buckets.begin[b], end = exec->buckets.begin[b + 1];
        if (exec->row_sums[b].is_used)
            rows_leave_empty(lane, b);
        else if (!exec->factored[b].is_used)
            memset((float *)lane->bases[BASE_GRAD] + begin, 0,
                   (size_t)(end - begin) * sizeof(float));
    }
    *(float *)lane->bases[BASE_LOSS] = 0;
    *(float *)lane->bases[BASE_CORRECT] = 0;
}

static enum status announce(struct lane *lane, uint64_t buckets)
{
    struct exec *exec = lane->exec;

    lane->announced |= buckets;
    for (; buckets; buckets &= buckets - 1) {
        const int b = __builtin_ctzll(buckets);
        exec_meet(exec, "ready");
        lane_signal(lane, exec->program->announced[b]);
        release_announced(lane, b);
        if (remote_is_direct(exec, b))
            TRY(remote_arrive(lane, b));
    }
    return STATUS_OK;
}

void lane_add_shard(struct lane *lane, uint64_t buckets, const struct tree_stack *stack)
{
    add_along_tree(lane, stack, buckets);
}

enum status lane_add_last_shard(struct lane *lane, uint64_t buckets,
                                const struct tree_stack *stack)
{
    add_along_tree(lane, stack, buckets);
    return announce(lane, buckets);
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

/* Samples that are a factor of a gradient go to where every lane can read them. */
static enum status copy_input_factor(struct lane *lane, int64_t v)
{
    const struct exec *exec = lane->exec;
    const struct value *input = graph_roles((struct graph *)exec->config.train)->input;
    const struct samples samples = exec_samples(exec, v);

    for (int i = 0; i < exec->factors.count; i++) {
        const struct plan_factor *factor = &exec->factors.item[i];
        if (factor->value != input)
            continue;
        TRY(lane_await_params(lane, factor->buckets)); /* nobody still reads the last step's */
        memcpy(exec->records + (size_t)v * exec->record + factor->offset,
               row_of(input, exec->batch, exec->batch->x, samples.begin - exec->batch->first),
               (size_t)(samples.rows * numbers_of(input, exec->batch)) * 4);
    }
    return STATUS_OK;
}

static bool is_alone(const struct exec *exec)
{
    return exec->config.part.count && !exec->config.part.with_others;
}

int64_t exec_step_weight(const struct exec *exec)
{
    const int64_t weight = is_alone(exec) ? exec->batch->own_weight : exec->batch->weight;

    return weight > 0 ? weight : 1; /* without labels that count all sums are zero */
}

static struct kernel_step step_of(const struct exec *exec, int64_t v)
{
    const struct batch *batch = exec->batch;

    return (struct kernel_step){
        .seed = exec->config.seed,
        .first_sample =
            batch->step * (uint64_t)exec->config.batch + (uint64_t)exec_samples(exec, v).begin,
        .inv_batch = (float)(1.0 / (double)exec_step_weight(exec)),
    };
}

static bool is_last_shard(const struct lane *lane, int64_t v)
{
    return v == lane->first + lane->count - 1;
}

void lane_point_to_shard(struct lane *lane, int64_t v, int buffer)
{
    struct exec *exec = lane->exec;
    const struct batch *batch = exec->batch;
    const struct graph_roles *roles = graph_roles((struct graph *)exec->config.train);
    const int64_t at = exec_samples(exec, v).begin - batch->first;
    const size_t slot = (size_t)(exec->steps % 2) * (size_t)exec->shards + (size_t)v;

    lane->bases[BASE_GRAD] = (char *)(lane->gradients + (size_t)buffer * exec->vector);
    lane->bases[BASE_INPUT] = row_of(roles->input, batch, batch->x, at);
    lane->bases[BASE_SECOND] = row_of(roles->second, batch, batch->x2, at);
    lane->bases[BASE_TARGET] = row_of(roles->target, batch, batch->y, at);
    lane->bases[BASE_LOSS] = (char *)&exec->losses[slot];
    lane->bases[BASE_CORRECT] = (char *)&exec->corrects[slot];
    lane->bases[BASE_FACTOR] = exec->records + (size_t)v * exec->record;
    lane->bases[BASE_TABLE] = exec->tables;
}

const struct plan *lane_plan_of(const struct lane *lane, int64_t v)
{
    const int64_t rows = exec_samples(lane->exec, v).rows;

    return rows > 0 ? lane_plan(lane, extents_of(lane->exec->batch, rows), false) : NULL;
}

enum status lane_leave_empty(struct lane *lane, uint64_t buckets, int64_t v,
                             const struct tree_stack *stack)
{
    BUG_ON(lane->exec->buckets.pass); /* a step has samples */
    /* The others may still be reading these buffers for the last step. */
    TRY(lane_await_params(lane, buckets));
    run_empty_shard(lane, buckets);
    add_along_tree(lane, stack, buckets);
    return is_last_shard(lane, v) ? announce(lane, buckets) : STATUS_OK;
}

enum status lane_run_range(struct lane *lane, const struct plan *plan, int begin, int end,
                           int64_t v, const struct tree_stack *stack)
{
    const struct kernel_step step = step_of(lane->exec, v);
    const bool is_last = is_last_shard(lane, v);

    for (int i = begin; i < end; i++) {
        const struct instruction *next = &plan->instructions[i];
        if (next->before)
            TRY(lane_await_params(lane, next->before));
        if (next->takes)
            TRY(hold_take(lane, next->takes, i >= plan->n_forward));
        if (next->awaits)
            TRY(lane_await_tables(lane, next->awaits));
        if (next->begins)
            TRY(release_make_room(lane, next->begins));
        TRY(next->node->op->moves ? pipe_move(lane, next) : lane_run(lane, next, &step));
        if (next->leaves)
            hold_leave(lane, next->leaves);
        if (next->fills)
            lane_give_table(lane, next->fills - 1);
        if (next->after && !lane->exec->config.privacy && !pipe_adds_later(lane->exec)) {
            add_along_tree(lane, stack, next->after);
            if (is_last) {
                TRY(announce(lane, next->after));
                TRY(lane_sync(lane, 0));
                release_summed(lane);
            }
        }
    }
    return STATUS_OK;
}

/* A sample's gradient is clipped as a whole, when all of it is known. */
static enum status end_private_shard(struct lane *lane, uint64_t buckets, int64_t v,
                                     const struct tree_stack *stack)
{
    privacy_clip(lane, step_of(lane->exec, v).inv_batch);
    add_along_tree(lane, stack, buckets);
    return is_last_shard(lane, v) ? announce(lane, buckets) : STATUS_OK;
}

static enum status run_shard(struct lane *lane, int64_t v, struct tree_stack *stack)
{
    const struct exec *exec = lane->exec;
    const uint64_t all =
        exec->buckets.count == 64 ? ~UINT64_C(0) : (UINT64_C(1) << exec->buckets.count) - 1;
    const struct plan *plan = lane_plan_of(lane, v);

    lane_point_to_shard(lane, v, tree_stack_push(stack, exec->tree_first + v));
    if (plan) {
        lane->plan = plan;
        hold_enter_round(lane, v - lane->first);
        TRY(lane_run_range(lane, plan, 0, plan->n_instructions, v, stack));
        if (exec->config.privacy)
            TRY(end_private_shard(lane, all, v, stack));
    } else {
        TRY(lane_leave_empty(lane, all, v, stack));
    }
    while (tree_stack_can_add(stack))
        tree_stack_add(stack);
    return STATUS_OK;
}

static enum status run_all(struct lane *lane)
{
    struct tree_stack stack;

    if (lane->exec->pipe)
        return pipe_run_step(lane);
    tree_stack_init(&stack, lane->exec->tree_shards);
    for (int64_t v = lane->first; v < lane->first + lane->count; v++)
        TRY(run_shard(lane, v, &stack));
    return STATUS_OK;
}

static enum status run_shards(struct lane *lane)
{
    lane->next_task = 0;
    lane->numbers = lane->exec->numbers;
    lane->next_gather = 0;
    lane->announced = 0;
    for (int64_t v = lane->first; v < lane->first + lane->count; v++)
        TRY(copy_input_factor(lane, v));
    TRY(lane_join(lane));
    TRY(run_all(lane));
    TRY(lane_sync(lane, lane->exec->program->n_tasks));
    release_summed(lane);
    return STATUS_OK;
}

static void run_step(struct lane *lane)
{
    lane_begin_step(lane);
    lane->status = run_shards(lane);
    lane_end_step(lane);
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
    exec->flags[exec->steps % 2 * (uint32_t)exec->ranks + (uint32_t)exec->rank] = exec->says;
}

uint32_t exec_heard(const struct exec *exec)
{
    uint32_t bits = 0;

    for (int r = 0; r < exec->ranks; r++)
        bits |= exec->flags[exec->steps % 2 * (uint32_t)exec->ranks + (uint32_t)r];
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
    if (exec->device)
        return device_step(exec, batch, out);
    exec->batch = batch;
    exec->step = batch->step;
    exec->numbers = optim_step(&exec->config.optim, batch->step);
    exec_tell(exec);
    exec->says = 0;
    hold_begin(exec, &(struct hold_walk){ .samples = batch->samples });
    if (exec->net)
        TRY(net_begin(exec, extents_of(batch, (batch->samples + shards - 1) / shards)));
    transport_note(exec->transport, batch->step, "forward and backward");
    const enum status status = exec_on_lanes(exec, run_step);
    exec->batch = NULL;
    TRY(status);
    hold_end(exec);
    exec->columns_taken = exec->has_columns;

    /* Every lane of every rank of this node had announced its gradients, so their losses are there. */
    if (exec->nodes > 1)
        TRY(exec_wait(exec, &exec->lanes[0], exec->program->losses, "all_reduce of the loss"));
    const size_t slot = (size_t)(exec->steps % 2) * (size_t)exec->shards;
    out->loss = tree_sum(exec->losses + slot, exec->shards);
    out->correct = tree_sum(exec->corrects + slot, exec->shards);
    out->heard = exec_heard(exec);
    exec->steps++;
    return beside_tell_step(exec, out);
}
