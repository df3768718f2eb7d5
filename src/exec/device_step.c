/* SPDX-License-Identifier: MIT */
/* device_step.c - a training step on a device: fed, put on a stream, its results taken later. */
#include <string.h>

#include "exec/device_side.h"
#include "graph/op.h"

enum { ALIGN = 256 };

/* The rows of a table that this shard looked up will be updated. */
static void mark_rows(const struct device_side *side, const struct instruction *made)
{
    const struct node *sum = made->node;
    const struct operand *ids = &made->in[1];

    side->config.face->mark_rows(aside_stream(side, made),
                                 (const int32_t *)(side->bases[ids->base] + ids->offset),
                                 (size_t)shape_count(&made->problem.in[1].shape),
                                 (size_t)sum->attrs.rows, side->marks[sum->attrs.bucket]);
}

/* Makes something lie as it is wanted. */
static void convert(const struct device_side *side, struct device_stream *stream,
                    const struct plan_convert *c)
{
    const struct device_face *face = side->config.face;
    void *to = parts_address(side, &c->to);
    const void *from = parts_address(side, &c->from);

    if (c->rows > 0)
        face->turn(stream, to, from, c->from_dtype, c->rows, c->count / c->rows);
    else
        face->convert(stream, to, c->to_dtype, from, c->from_dtype, c->count);
}

/* What it asks of its kernel; what that wants otherwise is made first. */
static struct kernel_call call_of(const struct device_side *side,
                                  const struct instruction *instruction,
                                  const struct kernel_step *step)
{
    struct device_stream *stream = aside_stream(side, instruction);
    struct kernel_call call = {
        .problem = &instruction->problem,
        .scratch = side->arena + instruction->scratch,
        .state = instruction->state,
        .step = step,
        .stream = stream,
    };

    for (int i = 0; i < instruction->n_converts; i++)
        convert(side, stream, &instruction->converts[i]);
    for (int i = 0; i < instruction->problem.n_in; i++)
        call.in[i] = parts_address(side, &instruction->in[i]);
    for (int i = 0; i < instruction->problem.n_out; i++)
        call.out[i] = parts_address(side, &instruction->out[i]);
    return call;
}

enum status device_put(const struct device_side *side, const struct instruction *instruction,
                       const struct kernel_step *step)
{
    const struct kernel_call call = call_of(side, instruction, step);

    if (!instruction->kernel)
        return tensor_run(side, instruction->node->op, &call);
    instruction->kernel->run(&call);
    if (instruction->gives.count > 0)
        convert(side, call.stream, &instruction->gives);
    if (instruction->node->op == &op_row_sum)
        mark_rows(side, instruction);
    return STATUS_OK;
}

enum status device_run(const struct device_side *side, const struct instruction *instruction,
                       const struct kernel_step *step)
{
    if (instruction->is_aside) {
        aside_hold(side, instruction, step);
        return STATUS_OK;
    }
    TRY(aside_before(side, instruction));
    TRY(device_put(side, instruction, step));
    return aside_after(side);
}

/* Runs an instruction and the next at once. */
static enum status run_both(const struct device_side *side, const struct instruction *one,
                            const struct kernel_step *step)
{
    const struct instruction *next = one + 1;

    TRY(aside_before(side, one));
    TRY(aside_before(side, next));
    const struct kernel *const kernel[] = { one->kernel, next->kernel };
    const struct kernel_call call[] = { call_of(side, one, scaled_step(side, one, step)),
                                        call_of(side, next, scaled_step(side, next, step)) };

    side->config.face->run_both(kernel, call);
    return aside_after(side);
}

/* Feeds ------------------------------------------------------------------------------------- */

/* Numbers, floats or ids of four bytes, that a sample of this step has of an input. */
static int64_t numbers_of(const struct value *input, const struct batch *batch)
{
    const struct shape *shape = &input->shape;

    return input->sequence ? batch->length[input->sequence - 1]
                           : shape_count(shape) / shape->dim[0];
}

/* Gives a shard's rows of an input their place behind what is there. */
static size_t place_rows(const struct value *input, const struct batch *batch, int64_t rows,
                         size_t *at)
{
    const size_t place = *at;

    if (input)
        *at += ((size_t)(rows * numbers_of(input, batch)) * 4 + ALIGN - 1) / ALIGN * ALIGN;
    return place;
}

/* Where shards' samples are in a feed of this step; returns how many bytes of it come from the
 * host. */
static size_t lay_feed(const struct exec *exec, const struct batch *batch)
{
    const struct graph_roles *roles = graph_roles((struct graph *)exec->config.train);
    const struct lane *lane = &exec->lanes[0];
    const size_t steps = (size_t)lane->count * sizeof(struct kernel_step);
    size_t at = ALIGN + (steps + ALIGN - 1) / ALIGN * ALIGN;

    exec->device->picks_at = at;
    const size_t picks_end = at + (size_t)batch->rows * sizeof *batch->picks;
    if (batch->picks)
        at = (picks_end + ALIGN - 1) / ALIGN * ALIGN;
    for (int64_t i = 0; i < lane->count; i++) {
        const int64_t rows = exec_samples(exec, lane->first + i).rows;
        struct feed_place *place = &exec->device->places[i];

        place->x = place_rows(roles->input, batch, rows, &at);
        place->x2 = place_rows(roles->second, batch, rows, &at);
        place->y = place_rows(roles->target, batch, rows, &at);
    }
    BUG_ON(at > exec->device->feed_bytes);
    return batch->picks ? picks_end : at;
}

static void copy_rows(const struct value *input, const struct batch *batch, const void *from,
                      struct samples samples, char *to)
{
    const size_t row = input ? (size_t)numbers_of(input, batch) * 4 : 0;

    if (input && from)
        memcpy(to, (const char *)from + (size_t)(samples.begin - batch->first) * row,
               (size_t)samples.rows * row);
}

/* The numbers of the step, and of each shard's kernels. */
static size_t write_numbers(const struct exec *exec, const struct batch *batch, char *host)
{
    const struct lane *lane = &exec->lanes[0];
    struct kernel_step *steps = (struct kernel_step *)(host + ALIGN);
    memcpy(host, &exec->now.numbers, sizeof exec->now.numbers);
    for (int64_t i = 0; i < lane->count; i++)
        steps[i] = (struct kernel_step){
            .seed = exec->config.seed,
            .first_sample = batch->step * (uint64_t)exec->config.batch +
                            (uint64_t)exec_samples(exec, lane->first + i).begin,
            .inv_batch = (float)(1.0 / (double)exec->now.weight),
        };
    return ALIGN + (size_t)lane->count * sizeof *steps;
}

static void write_samples(const struct exec *exec, const struct batch *batch, char *host)
{
    const struct graph_roles *roles = graph_roles((struct graph *)exec->config.train);
    const struct lane *lane = &exec->lanes[0];

    if (batch->picks) {
        memcpy(host + exec->device->picks_at, batch->picks,
               (size_t)batch->rows * sizeof *batch->picks);
        return;
    }
    for (int64_t i = 0; i < lane->count; i++) {
        const struct samples samples = exec_samples(exec, lane->first + i);
        const struct feed_place *place = &exec->device->places[i];

        copy_rows(roles->input, batch, batch->x, samples, host + place->x);
        copy_rows(roles->second, batch, batch->x2, samples, host + place->x2);
        copy_rows(roles->target, batch, batch->y, samples, host + place->y);
    }
}

static bool has_extents(const struct device_extents *extents, const struct batch *batch)
{
    return extents->samples == batch->samples &&
           memcmp(extents->length, batch->length, sizeof extents->length) == 0;
}

static struct device_extents extents_of(const struct batch *batch)
{
    struct device_extents extents = { .samples = batch->samples };

    memcpy(extents.length, batch->length, sizeof extents.length);
    return extents;
}

/* Makes shards' samples of what the device holds, behind their picks. */
static void pick_samples(const struct exec *exec, const struct batch *batch, char *there)
{
    const struct device_side *side = exec->device;
    const struct device_images *images = device_kept(exec, batch->source);
    const struct pick *picks = (const struct pick *)(there + side->picks_at);
    const bool has_target = graph_roles((struct graph *)exec->config.train)->target;
    const struct lane *lane = &exec->lanes[0];

    BUG_ON(!images);
    for (int64_t i = 0; i < lane->count; i++) {
        const struct samples samples = exec_samples(exec, lane->first + i);
        const struct feed_place *place = &side->places[i];

        side->config.face->pick(side->copies, images, picks + (samples.begin - batch->first),
                                (size_t)samples.rows, (float *)(there + place->x),
                                has_target ? (int32_t *)(there + place->y) : NULL);
    }
}

/* Which feed, and graph, the step to be put has. */
static int turn(const struct exec *exec)
{
    return (int)(exec->now.steps % DEVICE_FEEDS);
}

/* Fills the slot and has it copied to the feed whose turn it is, when nobody reads or reports there
 * any more. */
static enum status feed(const struct exec *exec, const struct batch *batch,
                        struct device_slot *slot)
{
    struct device_side *side = exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;
    const struct device_stream_ops *stream = side->config.face->stream;
    struct device_feed *to = &side->feeds[turn(exec)];
    const struct device_slot *before =
        &side->slots[(exec->now.steps + DEVICE_SLOTS - DEVICE_FEEDS) % DEVICE_SLOTS];

    device_point_to_feed(side, turn(exec));
    const size_t sent = lay_feed(exec, batch);
    const size_t numbers = write_numbers(exec, batch, slot->host);
    const bool is_there = side->config.same_batch && has_extents(&to->fed, batch);
    if (!is_there)
        write_samples(exec, batch, slot->host);
    TRY(stream->wait_event(side->copies, before->done));
    TRY(memory->copy(side->copies, to->memory, slot->host, is_there ? numbers : sent));
    if (batch->picks && !is_there)
        pick_samples(exec, batch, to->memory);
    to->fed = extents_of(batch);
    TRY(stream->record(side->copies, slot->copied));
    return stream->wait_event(side->stream, slot->copied);
}

/* Update ------------------------------------------------------------------------------------ */

/* sum: the step's gradient of it. */
static struct device_range range_of(const struct exec *exec, struct device_part part,
                                    const float *sum, size_t state_at)
{
    const struct device_side *side = exec->device;
    const size_t at = parts_param(side, part.at);
    struct device_range range = { .param = side->param + at,
                                  .grad = sum,
                                  .half = side->half ? side->half + at : NULL,
                                  .half_dtype = side->config.precision,
                                  .count = part.count,
                                  .at = part.at,
                                  .origins = side->origins,
                                  .n_origins = (size_t)exec->model.count };

    for (int i = 0; i < exec->layout.n_states; i++)
        range.state[i] = side->state[i] + state_at;
    return range;
}

/* Where sums are needed before anything is updated, they are made, and their squares. */
static void sum_group(const struct exec *exec, int group)
{
    const struct device_side *side = exec->device;

    if (side->ranks && !side->team && ranks_update_all(exec)) /* a team's came already */
        ranks_add(exec, (struct device_part){ 0, exec->layout.vector }, side->sum);
    for (int i = 0; i < side->n_stretches && side->part_sums; i++) {
        const struct device_stretch *s = &side->stretches[i];
        const struct device_part part = ranks_part(exec, s, exec->topology.rank);
        if (s->group == group && part.count > 0)
            ranks_add(exec, part, side->part_sums + s->state_at);
    }
    if (side->squares)
        squares_take(exec, group);
}

/* The step's gradient of this rank's part of a stretch: made before, or now. */
static const float *sum_of(const struct exec *exec, const struct device_stretch *stretch,
                           struct device_part part)
{
    const struct device_side *side = exec->device;

    if (side->part_sums)
        return side->part_sums + stretch->state_at;
    if (!side->ranks || ranks_update_all(exec))
        return side->sum + part.at;
    ranks_add(exec, part, side->sum);
    return side->sum;
}

static void update_stretch(const struct exec *exec, const struct device_stretch *stretch,
                           const struct kernel_update_step *numbers)
{
    const struct device_side *side = exec->device;
    const struct device_part part = ranks_part(exec, stretch, exec->topology.rank);

    if (part.count == 0)
        return;
    struct device_range range =
        range_of(exec, part, sum_of(exec, stretch, part), stretch->state_at);
    range.width = (size_t)stretch->bucket->width;
    if (parts_hold(side, stretch->group)) {
        range.param = parts_owned(exec, stretch, exec->topology.rank);
        range.half = NULL;
    }
    if (stretch->table >= 0) {
        const size_t place = (size_t)(side->marks[stretch->table] - side->all_marks);
        range.marks = side->joined_marks + place + (part.at - stretch->at) / range.width;
    }
    stretch->update->run(side->sums, &range, &stretch->bucket->attrs, numbers);
}

/* Gradients are scaled so that the norm of all is not over the limit, if there is one, and losses'
 * scale is taken back. */
static void clip(const struct exec *exec, struct kernel_update_step *numbers)
{
    const struct device_side *side = exec->device;
    struct joint_parts squares;

    squares_join(exec, &squares);
    if (side->scaling)
        unscale(exec, &squares, numbers);
    else
        side->config.face->clip(side->sums, &squares, (size_t)exec->model.total,
                                exec->config.optim.attrs.max_norm, numbers);
}

static struct attrs attrs_of(const struct device_norm *norm)
{
    struct attrs attrs = norm->bucket->attrs;

    if (!norm->is_adapted)
        attrs.weight_decay = 0;
    return attrs;
}

/* Directions take the place of the sum. */
static struct device_range range_of_norm(const struct exec *exec,
                                         const struct device_norm *norm)
{
    const struct device_part part = { norm->at, norm->count };
    struct device_range range = range_of(exec, part, exec->device->sum + norm->at, norm->at);

    range.out = exec->device->sum + norm->at;
    return range;
}

/* LARS and LAMB: a parameter each, by its own norm and that of how it moves. */
static void update_by_norms(const struct exec *exec, const struct kernel_update_step *numbers)
{
    const struct device_side *side = exec->device;
    const struct device_face *face = side->config.face;
    const struct device_update *direct = device_update(face, "lamb_direction");
    const struct attrs *common = &exec->config.optim.attrs;
    const struct device_trust trust = {
        .coefficient = exec->layout.facts.rule.directs ? 1 : common->trust,
        .weight_decay = exec->layout.facts.rule.directs ? 0 : common->weight_decay,
        .of_gradient = !exec->layout.facts.rule.directs,
    };

    for (int i = 0; i < side->n_norms; i++) {
        const struct device_norm *norm = &side->norms[i];
        const struct device_range range = range_of_norm(exec, norm);
        const struct attrs attrs = attrs_of(norm);

        if (exec->layout.facts.rule.directs)
            direct->run(side->stream, &range, &attrs, numbers);
        face->sum_squares(side->stream, range.param, range.count, &side->param_squares[i],
                          side->squares_scratch);
        face->sum_squares(side->stream, range.grad, range.count, &side->move_squares[i],
                          side->squares_scratch);
    }
    face->trust(side->stream, &trust, side->param_squares, side->move_squares,
                (size_t)side->n_norms, numbers, side->trusted);
    for (int i = 0; i < side->n_norms; i++) {
        const struct device_norm *norm = &side->norms[i];
        const struct device_range range = range_of_norm(exec, norm);
        const struct attrs attrs = attrs_of(norm);

        norm->update->run(side->stream, &range, &attrs,
                          norm->is_adapted ? &side->trusted[i] : numbers);
    }
}

/* Groups [first, end), of which ranks take the others' parts then. Where norms of parameters are
 * needed there is one group, and one stream. */
static enum status update(const struct exec *exec, int first, int end)
{
    const struct device_side *side = exec->device;
    struct kernel_update_step *numbers = (struct kernel_update_step *)side->feed;

    if (side->squares)
        clip(exec, numbers);
    if (exec->layout.facts.rule.adapts)
        update_by_norms(exec, numbers);
    for (int i = 0; i < side->n_stretches; i++) {
        const struct device_stretch *s = &side->stretches[i];
        if (s->group >= first && s->group < end &&
            (!exec->layout.facts.rule.adapts || s->bucket->is_average))
            update_stretch(exec, s, numbers);
    }
    return side->ranks ? ranks_take_params(exec, first, end) : STATUS_OK;
}

/* Shards ------------------------------------------------------------------------------------ */

void device_add_along_tree(const struct exec *exec, struct device_stream *stream,
                           const struct tree_stack *stack, struct device_part part)
{
    const struct device_side *side = exec->device;
    struct tree_stack sums = *stack;

    for (; tree_stack_can_add(&sums); tree_stack_add(&sums)) {
        float *left =
            side->gradients + (size_t)(sums.count - 2) * exec->layout.vector + part.at;
        side->config.face->add(stream, left, left, left + exec->layout.vector, part.count);
    }
}

enum status device_end_group(const struct exec *exec, const struct tree_stack *stack, int group)
{
    const struct device_side *side = exec->device;
    const struct device_stream_ops *stream = side->config.face->stream;
    const struct device_group *of = &side->groups[group];
    const bool forks = side->sums != side->stream;

    if (forks) {
        TRY(stream->record(side->stream, of->final));
        TRY(stream->wait_event(side->sums, of->final));
    }
    TRY(aside_join(side, side->sums));
    device_add_along_tree(exec, side->sums, stack, (struct device_part){ of->at, of->count });
    if (exec->remote) /* servers do the rest (device_remote.c) */
        return STATUS_OK;
    if (side->ranks)
        TRY(ranks_meet(exec, group));
    sum_group(exec, group);
    if (side->part_sums)
        TRY(ranks_end_sums(exec, group));
    else
        TRY(update(exec, group, group + 1));
    TRY(parts_end_group(exec, group));
    if (group < side->n_groups - 1)
        return STATUS_OK;
    if (side->part_sums)
        TRY(update(exec, 0, side->n_groups));
    if (!forks)
        return STATUS_OK;
    TRY(stream->record(side->sums, side->joined));
    return stream->wait_event(side->stream, side->joined);
}

/* After which instruction all buckets of a group, and of those before it, are final; of tables,
 * after the last. */
static void find_ends(const struct exec *exec, const struct plan *plan, int ends[DEVICE_GROUPS])
{
    const struct device_side *side = exec->device;

    for (int g = 0; g < side->n_groups; g++) {
        ends[g] = g > 0 ? ends[g - 1] : 0;
        for (int b = side->groups[g].first; b < side->groups[g].end; b++) {
            int n = bucket_is_table(&exec->layout, b) ? 0 : plan->n_instructions;
            while (n > 0 && !(plan->instructions[n - 1].after >> b & 1))
                n--;
            n = n > 0 ? n - 1 : plan->n_instructions - 1;
            ends[g] = n > ends[g] ? n : ends[g];
        }
    }
}

/* Runs a plan on shard v; with `stack`, as the last shard of this rank. */
static enum status run_plan(const struct exec *exec, const struct plan *plan,
                            const struct kernel_step *step, const struct tree_stack *stack)
{
    struct device_side *side = exec->device;
    int ends[DEVICE_GROUPS], group = 0, gather = 0;

    find_ends(exec, plan, ends);
    parts_begin(side, PARTS_FORWARD);
    for (int i = 0; i < plan->n_instructions; i++) {
        const struct instruction *next = &plan->instructions[i];
        for (; side->ranks && gather < next->awaits; gather++)
            TRY(ranks_take_tables(exec, gather));
        TRY(parts_before(exec, plan, i));
        if (next->with_next) {
            TRY(parts_before(exec, plan, ++i));
            TRY(run_both(side, next, step));
        } else {
            TRY(device_run(side, next, scaled_step(side, next, step)));
        }
        if (side->ranks && next->fills)
            ranks_give_table(exec, next->fills - 1);
        while (stack && group < side->n_groups && ends[group] <= i)
            TRY(device_end_group(exec, stack, group++));
    }
    return STATUS_OK;
}

static enum status run_empty(const struct exec *exec, int64_t v, int buffer,
                             const struct tree_stack *stack)
{
    const struct device_side *side = exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;

    parts_begin(side, PARTS_FORWARD);
    TRY(memory->fill(side->stream, &side->results[v], 0, sizeof(float)));
    TRY(memory->fill(side->stream, &side->results[exec->topology.shards + v], 0,
                     sizeof(float)));
    for (int g = 0; side->ranks && g < exec->layout.gathers.count; g++) {
        const struct plan_gather *gather = &exec->layout.gathers.item[g];
        TRY(memory->fill(side->stream,
                         side->tables + gather->offset + (size_t)v * gather->bytes, 0,
                         gather->bytes));
        ranks_give_table(exec, g);
    }
    for (int g = 0; side->ranks && g < exec->layout.gathers.count; g++)
        TRY(ranks_take_tables(exec, g));
    for (int group = 0; group < side->n_groups; group++) {
        const struct device_group *of = &side->groups[group];
        TRY(parts_begin_gradients(exec, group));
        TRY(memory->fill(side->stream, parts_gradient(exec, buffer, of->at), 0,
                         of->count * sizeof(float)));
        if (stack)
            TRY(device_end_group(exec, stack, group));
    }
    return STATUS_OK;
}

const struct kernel_step *device_point_to_shard(const struct exec *exec, int64_t v,
                                                float *gradients)
{
    struct device_side *side = exec->device;
    const int64_t number = v - exec->lanes[0].first;
    const struct feed_place *place = &side->places[number];

    side->bases[BASE_GRAD] = (char *)gradients;
    side->bases[BASE_INPUT] = side->feed + place->x;
    side->bases[BASE_SECOND] = side->feed + place->x2;
    side->bases[BASE_TARGET] = side->feed + place->y;
    side->bases[BASE_LOSS] = (char *)&side->results[v];
    side->bases[BASE_CORRECT] = (char *)&side->results[exec->topology.shards + v];
    side->bases[BASE_TABLE] = side->tables;
    return (struct kernel_step *)(side->feed + ALIGN) + number;
}

/* With `stack`, as the last shard of this rank. */
static enum status run_shard(const struct exec *exec, const struct batch *batch, int64_t v,
                             int buffer, const struct tree_stack *stack)
{
    struct device_side *side = exec->device;
    const struct kernel_step *step =
        device_point_to_shard(exec, v, side->gradients + (size_t)buffer * exec->layout.vector);
    const int64_t rows = exec_samples(exec, v).rows;
    const struct extents extents = { .rows = rows,
                                     .length = { batch->length[0], batch->length[1] } };

    if (rows == 0)
        TRY(run_empty(exec, v, buffer, stack));
    else
        TRY(run_plan(exec, lane_plan(&exec->lanes[0], extents, false), step, stack));
    return aside_join(side, side->stream);
}

/* All that a step does, put on the stream. */
static enum status put_step(const struct exec *exec, const struct batch *batch)
{
    struct device_side *side = exec->device;
    const struct lane *lane = &exec->lanes[0];
    const int64_t end = lane->first + lane->count;
    struct tree_stack stack;

    if (side->scaling)
        scale_losses(exec);
    if (side->marks_bytes)
        TRY(side->config.face->memory->fill(side->stream, side->all_marks, 0,
                                            side->marks_bytes));
    if (side->pipe) {
        const enum status status = device_pipe_step(exec);
        tensor_end(side);
        return status;
    }
    tree_stack_init(&stack, exec->topology.tree_shards);
    for (int64_t v = lane->first; v < end; v++) {
        const int buffer = tree_stack_push(&stack, exec->topology.tree_first + v);
        TRY(run_shard(exec, batch, v, buffer, v == end - 1 ? &stack : NULL));
        if (v < end - 1)
            device_add_along_tree(exec, side->stream, &stack,
                                  (struct device_part){ 0, exec->layout.vector });
        while (tree_stack_can_add(&stack))
            tree_stack_add(&stack);
    }
    BUG_ON(stack.count != 1 && !side->ranks && !exec->remote); /* one rank has all shards */
    tensor_end(side);
    return STATUS_OK;
}

/* Graphs ------------------------------------------------------------------------------------ */

/* What is known of steps of these extents; the one that was not needed for longest makes room. */
static struct device_captured *find_captured(struct device_side *side,
                                             const struct batch *batch)
{
    struct device_captured *oldest = side->captured;

    for (int i = 0; i < side->n_captured; i++) {
        struct device_captured *found = &side->captured[i];
        if (has_extents(&found->extents, batch))
            return found;
        oldest = found->uses < oldest->uses ? found : oldest;
    }
    if (side->n_captured < DEVICE_GRAPHS)
        oldest = &side->captured[side->n_captured++];
    for (int f = 0; f < DEVICE_FEEDS; f++) {
        if (oldest->graph[f])
            side->config.face->graph->destroy(oldest->graph[f]);
    }
    *oldest = (struct device_captured){ .extents = extents_of(batch) };
    return oldest;
}

static enum status capture(const struct exec *exec, const struct batch *batch,
                           struct device_graph **out)
{
    const struct device_side *side = exec->device;
    const struct device_graph_ops *graphs = side->config.face->graph;

    TRY(graphs->begin(side->stream));
    const enum status status = put_step(exec, batch);
    const enum status ended = graphs->end(side->stream, out);
    TRY(status);
    TRY(ended);
    TRY(aside_wait(side)); /* what went wrong there meanwhile */
    return side->sums == side->stream ? STATUS_OK : side->config.face->stream->wait(side->sums);
}

/* A first time kernels may have something to find out, which cannot be captured. */
static enum status run(const struct exec *exec, const struct batch *batch)
{
    struct device_side *side = exec->device;
    const struct device_graph_ops *graphs = side->config.face->graph;
    struct device_captured *captured = find_captured(side, batch);
    struct device_graph **graph = &captured->graph[turn(exec)];
    const bool is_first = captured->uses == 0;

    captured->uses = ++side->uses;
    if (!graphs || is_first)
        return put_step(exec, batch);
    if (!*graph)
        TRY(capture(exec, batch, graph));
    return graphs->launch(*graph, side->stream);
}

/* Steps ------------------------------------------------------------------------------------- */

static enum status put(const struct exec *exec, const struct batch *batch,
                       struct device_slot *slot)
{
    struct device_side *side = exec->device;
    const struct device_face *face = side->config.face;
    const struct device_stream_ops *stream = face->stream;

    TRY(feed(exec, batch, slot));
    TRY(run(exec, batch));
    side->is_newer = side->has_newer_state = !exec->remote;
    TRY(stream->record(side->stream, slot->ran));
    TRY(stream->wait_event(side->returns, slot->ran));
    TRY(face->memory->copy(side->returns, slot->results, side->results,
                           2 * (size_t)exec->topology.shards * sizeof(float)));
    return stream->record(side->returns, slot->done);
}

/* Waits for the oldest step whose results nobody has taken. */
static enum status take_oldest(struct exec *exec, struct exec_result *out)
{
    struct device_side *side = exec->device;
    struct device_slot *slot = &side->slots[side->taken % DEVICE_SLOTS];

    TRY(device_blame(exec, side->config.face->stream->event_wait(slot->done)));
    side->taken++;
    *out = slot->result;
    out->loss = tree_sum(slot->results, exec->topology.shards);
    out->correct = tree_sum(slot->results + exec->topology.shards, exec->topology.shards);
    return beside_tell_step(exec, out); /* who knows it tells the others */
}

/* All ranks have put this step on their streams, whatever these are at: what each says goes to all,
 * and one that does not come is named. */
static enum status meet_hosts(struct exec *exec, struct exec_result *out)
{
    struct lane *lane = &exec->lanes[0];

    out->heard = exec->says;
    if (exec->topology.ranks > 1)
        exec_meet(exec, "ready");
    if (exec->topology.nodes > 1) {
        TRY(device_meet_machines(exec, &out->heard));
    } else if (exec->topology.ranks > 1) {
        clock_signal(&lane->clock, exec->program->barrier[BARRIER_HOSTS]);
        TRY(clock_wait(&lane->clock, exec->program->barrier[BARRIER_HOSTS],
                       "all_reduce of gradients"));
        out->heard = exec_heard(exec);
    }
    return beside_tell_step(exec, out); /* what was said: how it went nobody knows yet */
}

enum status device_step(struct exec *exec, const struct batch *batch, struct exec_result *out)
{
    struct device_side *side = exec->device;
    struct device_slot *slot = &side->slots[exec->now.steps % DEVICE_SLOTS];
    struct lane *lane = &exec->lanes[0];
    struct exec_result dropped;

    TRY(exec->remote ? device_take_params(exec) : device_give(exec));
    if (exec->now.steps - side->taken == DEVICE_SLOTS)
        TRY(take_oldest(exec, &dropped)); /* nobody asked */
    exec->now.batch = batch;
    exec->now.step = batch->step;
    exec->now.numbers = optim_step(&exec->config.optim, batch->step);
    exec->now.numbers.draws = side->config.draws;
    exec->now.numbers.seed = exec->config.seed;
    exec->now.numbers.number = batch->step;
    transport_note(exec->transport, batch->step, "forward and backward");
    clock_begin_step(&lane->clock);
    exec_tell(exec);
    if (side->watch)
        exec_meet(exec, "step");
    enum status status = put(exec, batch, slot);
    if (status == STATUS_OK && exec->remote)
        status = device_give_sums(exec);
    if (status == STATUS_OK)
        status = meet_hosts(exec, out);
    clock_end_step(&lane->clock);
    exec->now.batch = NULL;
    TRY(device_blame(exec, status));
    out->is_late = true;
    slot->result = *out;
    slot->result.is_late = false;
    exec->says = 0;
    exec->now.steps++;
    return exec->remote ? take_oldest(exec, out) : STATUS_OK; /* it was waited for */
}

enum status exec_take_result(struct exec *exec, bool all, struct exec_result *out,
                             bool *out_taken)
{
    const uint32_t waiting = exec->device ? exec->now.steps - exec->device->taken : 0;

    *out_taken = waiting > 0 && (all || waiting == DEVICE_SLOTS);
    return *out_taken ? take_oldest(exec, out) : STATUS_OK;
}
