/* SPDX-License-Identifier: MIT */
/* pipe.c - a stage of a pipeline; pipe.h says how it works.
 *
 *   action           segment     arena             box
 *   forward  c, v    c           v % arenas        v % boxes: what v sends from here on
 *   backward c, v    2C-1-c      the same          the same
 *
 * Each segment has a stack of the tree of its own: a chunk's gradients of shard v are added when
 * its backward of v is done, whatever other chunks do meanwhile. All see shards in ascending order,
 * so all stacks have the buffers that one lane has.
 *
 * Why nobody waits for ever: schedules alone do not deadlock (schedule_test.c), and a box is waited
 * for only when the shard that used it before has ended here, by more than one shard: what it sent
 * was, or is next, received by stages that wait for nothing of a later shard.
 *
 * Bytes move while somebody of the rank looks at them: a thread does, as the lane computes.
 */
#include "exec/pipe.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/device_side.h"
#include "graph/op.h"

enum { SPARE_BOXES = 2, NAP_NS = 20 * 1000 * 1000 };

struct pipe {
    struct pipe_config config;
    struct pipe_action *actions; /* of a step */
    int64_t n_actions;
    struct exec_action *done; /* EXEC_ACTION_STEPS times the same, as they were done */
    uint64_t n_steps;
    int arenas, boxes;
    uint32_t tag, eval_tag;                    /* of slot 0 of each graph */
    uint64_t buckets[2 * PIPE_CHUNKS];         /* whose sums each segment makes */
    struct tree_stack stacks[2 * PIPE_CHUNKS]; /* one a segment */
    char names[PIPE_STAGES][24];

    char *outbox; /* boxes of box_bytes */
    size_t box_bytes;
    char *kept;
    size_t kept_bytes;
    struct transport_request *sends; /* max_sends of each box, and of what goes once a step */
    struct transport_request *receives; /* max_receives */
    int max_sends, max_receives;
    int box;      /* of the shard that runs */
    double given; /* when it last sent something; clock_seconds */
    bool evaluates;

    /* The thread that moves what was sent. */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;   /* before the transport's; guards sends and all below */
    pthread_cond_t changed; /* there is something to move, or something has gone */
    bool stops;
    int64_t pending; /* sends that have begun and are not known to be over */
    enum status status;
    char failure[256];
};

const char *pipe_stage_name(const struct exec *exec, int stage)
{
    return exec->pipe->names[stage];
}

int pipe_arenas(const struct exec *exec)
{
    return exec->pipe ? exec->pipe->arenas : 1;
}

struct pipe_stage pipe_stage_of(const struct exec *exec)
{
    const struct pipe *pipe = exec->pipe;

    return (struct pipe_stage){ .actions = pipe->actions,
                                .n_actions = pipe->n_actions,
                                .arenas = pipe->arenas,
                                .boxes = pipe->boxes,
                                .buckets = pipe->buckets };
}

/* Are a shard's gradients added to those before it after what others wait for? Those that pass
 * through the arena cannot wait. */
static bool adds_later(const struct exec *exec)
{
    return exec->pipe && !exec->layout.buckets.pass;
}

size_t pipe_bytes(const struct exec *exec)
{
    const struct pipe *pipe = exec->pipe;

    return pipe ? (size_t)pipe->boxes * pipe->box_bytes + pipe->kept_bytes : 0;
}

/* The thread ------------------------------------------------------------------------------- */

/* Looks at every send once. With the lock. */
static enum status look_at_sends(struct exec *exec)
{
    struct pipe *pipe = exec->pipe;
    const int64_t before = pipe->pending;

    pipe->pending = 0;
    for (int i = 0; i < (pipe->boxes + 1) * pipe->max_sends; i++) {
        bool done;
        TRY(transport_test(exec->config.pipeline.transport, &pipe->sends[i], &done));
        pipe->pending += !done;
    }
    if (pipe->pending < before)
        pthread_cond_broadcast(&pipe->changed);
    return STATUS_OK;
}

/* A message that is longer than what is between two ranks goes on whenever the other has made room. */
static enum status move_sends(struct exec *exec)
{
    struct pipe *pipe = exec->pipe;
    struct transport *transport = exec->config.pipeline.transport;

    while (!pipe->stops) {
        if (pipe->pending == 0) {
            pthread_cond_wait(&pipe->changed, &pipe->lock);
            continue;
        }
        const uint32_t seen = transport_bell(transport);
        TRY(look_at_sends(exec));
        if (pipe->pending == 0)
            continue;
        pthread_mutex_unlock(&pipe->lock);
        const enum status status = transport_wait_bell(transport, seen, NAP_NS, "the pipeline");
        pthread_mutex_lock(&pipe->lock);
        TRY(status);
    }
    return STATUS_OK;
}

static void *run_thread(void *arg)
{
    struct exec *exec = arg;
    struct pipe *pipe = exec->pipe;

    pthread_mutex_lock(&pipe->lock);
    pipe->status = move_sends(exec);
    if (pipe->status != STATUS_OK)
        snprintf(pipe->failure, sizeof pipe->failure, "%s", status_message());
    pthread_cond_broadcast(&pipe->changed);
    pthread_mutex_unlock(&pipe->lock);
    return NULL;
}

static enum status start_thread(struct exec *exec)
{
    struct pipe *pipe = exec->pipe;

    pthread_mutex_init(&pipe->lock, NULL);
    pthread_cond_init(&pipe->changed, NULL);
    if (pthread_create(&pipe->thread, NULL, run_thread, exec) != 0)
        return FAIL(STATUS_NO_MEMORY, "a thread is refused");
    pipe->has_thread = true;
    return STATUS_OK;
}

static void stop_thread(struct exec *exec)
{
    struct pipe *pipe = exec->pipe;

    if (!pipe->has_thread)
        return;
    pthread_mutex_lock(&pipe->lock);
    pipe->stops = true;
    pthread_cond_broadcast(&pipe->changed);
    pthread_mutex_unlock(&pipe->lock);
    transport_ring(exec->config.pipeline.transport);
    pthread_join(pipe->thread, NULL);
    pthread_mutex_destroy(&pipe->lock);
    pthread_cond_destroy(&pipe->changed);
}

/* Making it -------------------------------------------------------------------------------- */

static uint32_t count_moves(const struct graph *graph)
{
    uint32_t count = 0;

    for (int n = 0; graph && n < graph_node_count(graph); n++)
        count += graph_node(graph, n)->op == &op_send;
    return count;
}

/* Averages are complete with forward, parameters' gradients with backward. */
static void find_buckets(struct exec *exec)
{
    struct pipe *pipe = exec->pipe;

    for (int i = 0; i < exec->model.count; i++) {
        const struct value *param = exec->model.params[i];
        const int chunk = param->stage < 0 ? 0 : param->stage / pipe->config.stages;
        const int segment =
            param->kind == VALUE_AVERAGE ? chunk : 2 * pipe->config.chunks - 1 - chunk;
        pipe->buckets[segment] |= UINT64_C(1) << plan_bucket_of(param->flat);
    }
}

static enum status make_schedule(struct exec *exec)
{
    const struct exec_pipeline *config = &exec->config.pipeline;
    struct pipe *pipe = exec->pipe;

    pipe->config = (struct pipe_config){ .kind = config->kind,
                                         .stages = config->stages,
                                         .chunks = config->chunks,
                                         .shards = exec->lanes[0].count };
    if (exec->config.batch > 0)
        TRY(pipe_check(&pipe->config));
    pipe->n_actions = pipe_count(&pipe->config);
    TRY(mem_alloc((size_t)pipe->n_actions, sizeof *pipe->actions, &pipe->actions));
    TRY(mem_alloc((size_t)pipe->n_actions * EXEC_ACTION_STEPS, sizeof *pipe->done,
                  &pipe->done));
    pipe_schedule(&pipe->config, config->own, pipe->actions);
    pipe->arenas =
        (int)pipe_in_flight(pipe->actions, pipe->n_actions, pipe->config.chunks, false);
    if (config->chunks > 1 && pipe->arenas < config->stages)
        pipe->arenas = config->stages; /* evaluations go in groups of as many */
    pipe->boxes = pipe->arenas + SPARE_BOXES;
    return STATUS_OK;
}

enum status pipe_create(struct exec *exec)
{
    const struct exec_pipeline *config = &exec->config.pipeline;

    if (exec->layout.buckets.pipeline.stages == 0)
        return STATUS_OK;
    if (exec->layout.gathers.count > 0 || exec->layout.has_columns)
        return FAIL(STATUS_UNSUPPORTED,
                    "a stage of a pipeline has no meetings of shards or columns of lanes");
    TRY(mem_alloc(1, sizeof *exec->pipe, &exec->pipe));
    struct pipe *pipe = exec->pipe;
    TRY(make_schedule(exec));
    find_buckets(exec);
    for (int s = 0; s < config->stages; s++)
        snprintf(pipe->names[s], sizeof pipe->names[s], "stage %d", s);
    const uint32_t train = count_moves(exec->config.train),
                   eval = count_moves(exec->config.eval);
    pipe->tag = transport_new_tags(config->transport, train + eval);
    pipe->eval_tag = pipe->tag + train;
    return exec->config.device ? STATUS_OK : start_thread(exec); /* a device's streams move */
}

void pipe_destroy(struct exec *exec)
{
    struct pipe *pipe = exec->pipe;

    if (!pipe)
        return;
    stop_thread(exec);
    for (int i = 0; i < (pipe->boxes + 1) * pipe->max_sends; i++)
        transport_cancel(exec->config.pipeline.transport, &pipe->sends[i]);
    for (int i = 0; i < pipe->max_receives; i++)
        transport_cancel(exec->config.pipeline.transport, &pipe->receives[i]);
    mem_free(pipe->actions);
    mem_free(pipe->done);
    mem_free(pipe->outbox);
    mem_free(pipe->kept);
    mem_free(pipe->sends);
    mem_free(pipe->receives);
    mem_free(pipe);
    exec->pipe = NULL;
}

/* Between steps, when nothing is on its way. */
static enum status make_room(struct pipe *pipe, size_t outbox_bytes, size_t kept_bytes,
                             int n_sends, int n_receives)
{
    if (outbox_bytes > pipe->box_bytes) {
        mem_free(pipe->outbox);
        pipe->outbox = NULL;
        TRY(mem_alloc((size_t)pipe->boxes, outbox_bytes, &pipe->outbox));
        pipe->box_bytes = outbox_bytes;
    }
    if (kept_bytes > pipe->kept_bytes) {
        mem_free(pipe->kept);
        pipe->kept = NULL;
        TRY(mem_alloc(1, kept_bytes, &pipe->kept));
        pipe->kept_bytes = kept_bytes;
    }
    if (n_sends > pipe->max_sends) {
        mem_free(pipe->sends);
        pipe->sends = NULL;
        pipe->max_sends = 0;
        TRY(mem_alloc((size_t)(pipe->boxes + 1) * (size_t)n_sends, sizeof *pipe->sends,
                      &pipe->sends));
        pipe->max_sends = n_sends;
    }
    if (n_receives > pipe->max_receives) {
        mem_free(pipe->receives);
        pipe->receives = NULL;
        pipe->max_receives = 0;
        TRY(mem_alloc((size_t)n_receives, sizeof *pipe->receives, &pipe->receives));
        pipe->max_receives = n_receives;
    }
    return STATUS_OK;
}

enum status pipe_prepare(struct exec *exec, size_t outbox_bytes, size_t kept_bytes, int n_sends,
                         int n_receives)
{
    struct pipe *pipe = exec->pipe;

    pthread_mutex_lock(&pipe->lock);
    const enum status status = make_room(pipe, outbox_bytes, kept_bytes, n_sends, n_receives);
    pthread_mutex_unlock(&pipe->lock);
    return status;
}

/* Moving ----------------------------------------------------------------------------------- */

static char *address(const struct lane *lane, struct operand operand)
{
    return lane->bases[operand.base] + operand.offset;
}

static uint32_t tag_of(const struct pipe *pipe, const struct instruction *move)
{
    return (pipe->evaluates ? pipe->eval_tag : pipe->tag) + (uint32_t)move->node->attrs.slot;
}

/* What became of the thread. With the lock. */
static enum status status_of(const struct pipe *pipe)
{
    return pipe->status == STATUS_OK ? STATUS_OK : status_set(pipe->status, pipe->failure);
}

/* What goes once a step goes from where it lies: it changes when its gradient has come back. */
static enum status start_send(struct lane *lane, const struct instruction *move)
{
    struct pipe *pipe = lane->exec->pipe;
    const bool once = move->node->attrs.once;
    struct transport_request *request =
        &pipe->sends[(once ? pipe->boxes : pipe->box) * pipe->max_sends + move->number];
    char *data = address(lane, once ? move->in[0] : move->out[0]);
    const struct span span = clock_begin_comm(&lane->clock);

    if (!once)
        memcpy(data, address(lane, move->in[0]), move->bytes);
    lane->clock.times.bytes += (int64_t)move->bytes;
    pthread_mutex_lock(&pipe->lock);
    enum status status = status_of(pipe);
    if (status == STATUS_OK)
        status =
            transport_start_send(lane->exec->config.pipeline.transport, move->node->attrs.peer,
                                 tag_of(pipe, move), data, move->bytes, request);
    bool done = false;
    if (status == STATUS_OK)
        status = transport_test(lane->exec->config.pipeline.transport, request, &done);
    if (!done) { /* only then: the thread would take the lane's core from it */
        pipe->pending++;
        pthread_cond_broadcast(&pipe->changed);
    }
    pthread_mutex_unlock(&pipe->lock);
    clock_end_comm(&lane->clock, span, "send", move->node->name);
    pipe->given = clock_seconds();
    return status;
}

enum status pipe_move(struct lane *lane, const struct instruction *move)
{
    if (move->node->op == &op_send)
        return start_send(lane, move);
    return clock_wait_for_stage(&lane->clock, &lane->exec->pipe->receives[move->number],
                                pipe_stage_name(lane->exec, move->node->attrs.peer));
}

/* Asks for what instructions [begin, end) receive: they stand first. */
static enum status post_receives(struct lane *lane, const struct plan *plan, int begin, int end)
{
    struct pipe *pipe = lane->exec->pipe;

    for (int i = begin; i < end; i++) {
        const struct instruction *move = &plan->instructions[i];
        if (!move->node->op->moves)
            break;
        if (move->node->op == &op_receive)
            TRY(transport_start_receive(lane->exec->config.pipeline.transport,
                                        move->node->attrs.peer, tag_of(pipe, move),
                                        address(lane, move->out[0]), move->bytes,
                                        &pipe->receives[move->number]));
    }
    return STATUS_OK;
}

/* With the lock: waits a moment for the thread. More than --stall-timeout of that is too much; time
 * in which the job was stopped does not count. */
static enum status wait_for_thread(struct lane *lane, int64_t *waited_ns)
{
    const int64_t moment_ns = 100 * 1000 * 1000, begin = clock_ns();
    const double most = lane->exec->config.stall_timeout;
    struct pipe *pipe = lane->exec->pipe;
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (until.tv_nsec + moment_ns) / 1000000000;
    until.tv_nsec = (until.tv_nsec + moment_ns) % 1000000000;
    pthread_cond_timedwait(&pipe->changed, &pipe->lock, &until);
    const int64_t passed_ns = clock_ns() - begin;
    *waited_ns += passed_ns < 2 * moment_ns ? passed_ns : 2 * moment_ns;
    if (most == 0 || (double)*waited_ns * 1e-9 < most || pipe->status != STATUS_OK)
        return STATUS_OK;
    const enum status status =
        FAIL(STATUS_PEER_LOST,
             "the next stage has taken nothing for %.15g s (--stall-timeout) at step %llu",
             most, (unsigned long long)lane->exec->now.step);
    transport_abort(lane->exec->config.pipeline.transport, status_message());
    return status;
}

/* Waits until what box b holds has gone; b is `boxes`: what goes once a step. */
static enum status empty_box(struct lane *lane, int b)
{
    struct pipe *pipe = lane->exec->pipe;
    const int64_t begin = clock_ns();
    enum status status = STATUS_OK;
    int64_t waited_ns = 0;

    pthread_mutex_lock(&pipe->lock);
    for (int i = 0; i < pipe->max_sends; i++) {
        while (pipe->sends[b * pipe->max_sends + i].kind != 0 && pipe->status == STATUS_OK &&
               status == STATUS_OK)
            status = wait_for_thread(lane, &waited_ns);
    }
    if (status == STATUS_OK)
        status = status_of(pipe);
    pthread_mutex_unlock(&pipe->lock);
    if (waited_ns > 0) {
        lane->clock.times.wait += clock_ns() - begin;
        lane->clock.times.bubble += clock_ns() - begin;
    }
    return status;
}

static enum status empty_boxes(struct lane *lane)
{
    if (lane->exec->device) {
        device_pipe_end(lane->exec->device);
        return device_wait(lane->exec);
    }
    for (int b = 0; b <= lane->exec->pipe->boxes; b++)
        TRY(empty_box(lane, b));
    return STATUS_OK;
}

/* The lane's memory is that of a shard, or of a batch of an evaluation. */
static void point_to(struct lane *lane, int64_t number)
{
    struct pipe *pipe = lane->exec->pipe;

    if (lane->exec->device)
        return;
    lane->arena = lane->arenas + (size_t)(number % pipe->arenas) * lane->exec->arena_bytes;
    lane->bases[BASE_ARENA] = lane->arena;
    lane->bases[BASE_KEPT] = pipe->kept;
    pipe->box = (int)(number % pipe->boxes);
    lane->bases[BASE_OUTBOX] = pipe->outbox + (size_t)pipe->box * pipe->box_bytes;
}

/* Parameters that other stages read, too. */
static enum status move_once(struct lane *lane, const struct plan *plan)
{
    if (lane->exec->device)
        return device_pipe_move_once(lane->exec, plan);
    TRY(post_receives(lane, plan, 0, plan->segment[0]));
    for (int i = 0; i < plan->segment[0]; i++) {
        const struct instruction *move = &plan->instructions[i];
        if (move->node->op == &op_send)
            TRY(pipe_move(lane, move));
    }
    for (int i = 0; i < plan->segment[0]; i++) {
        const struct instruction *move = &plan->instructions[i];
        if (move->node->op == &op_receive)
            TRY(pipe_move(lane, move));
    }
    return STATUS_OK;
}

/* A step ------------------------------------------------------------------------------------- */

static int segment_of(const struct pipe *pipe, const struct pipe_action *a)
{
    return a->is_backward ? 2 * pipe->config.chunks - 1 - a->chunk : a->chunk;
}

/* Where the sums of a segment begin: its tasks from there on accumulate, or are no lane's. */
static int first_sum(const struct program *program, int segment)
{
    int t = program->segment[segment + 1];

    while (t > program->segment[segment] && (program->tasks[t - 1].kind == TASK_ACCUMULATE ||
                                             program->tasks[t - 1].place != PLACE_LANE))
        t--;
    return t;
}

/* A shard's sums wait until what others need has been sent; those of the last, until the stage has
 * nothing else to do. */
static enum status run_action(struct lane *lane, const struct pipe_action *a)
{
    struct exec *exec = lane->exec;
    struct pipe *pipe = exec->pipe;
    const int64_t v = lane->first + a->shard;
    const int segment = segment_of(pipe, a);
    struct tree_stack *stack = &pipe->stacks[segment];
    const struct program *program = exec->program;
    const int sums = first_sum(program, segment), end = program->segment[segment + 1];

    point_to(lane, a->shard);
    const struct lane_shard shard = lane_begin_shard(lane, v, stack);
    const struct plan *plan = shard.plan;
    const bool is_first = !a->is_backward && a->chunk == 0;
    if (is_first)
        TRY(empty_box(lane, pipe->box));
    if (is_first && !plan) /* later the inter-node thread may be sending losses */
        lane_leave_no_loss(lane);
    if (plan)
        TRY(post_receives(lane, plan, plan->segment[segment], plan->segment[segment + 1]));
    TRY(lane_run_tasks(lane, program->segment[segment], sums, &shard));
    if (plan && adds_later(exec) && a->shard == pipe->config.shards - 1)
        return STATUS_OK;
    TRY(lane_run_tasks(lane, sums, end, &shard));
    while (tree_stack_can_add(stack))
        tree_stack_add(stack);
    return STATUS_OK;
}

/* What the last shard left; if it had samples, else it is added. */
static enum status add_last_shard(struct lane *lane)
{
    struct pipe *pipe = lane->exec->pipe;
    const struct program *program = lane->exec->program;
    struct lane_shard shard = { .v = lane->first + pipe->config.shards - 1 };

    shard.plan = lane_plan_of(lane, shard.v);
    if (!adds_later(lane->exec) || !shard.plan)
        return STATUS_OK;
    for (int segment = 0; segment < 2 * pipe->config.chunks; segment++) {
        shard.stack = &pipe->stacks[segment];
        TRY(lane_run_tasks(lane, first_sum(program, segment), program->segment[segment + 1],
                           &shard));
    }
    return STATUS_OK;
}

/* The plan of the first shard that has samples: any has the same once a step. */
static const struct plan *any_plan(const struct lane *lane)
{
    const struct plan *plan = NULL;

    for (int64_t v = lane->first; v < lane->first + lane->count && !plan; v++)
        plan = lane_plan_of(lane, v);
    return plan;
}

/* Where the actions of a step are kept: those of the first only until there are others. */
static int64_t slot_of(uint64_t step)
{
    return step == 0 ? 0 : (int64_t)((step - 1) % EXEC_ACTION_STEPS);
}

enum status pipe_run_step(struct lane *lane)
{
    struct exec *exec = lane->exec;
    struct pipe *pipe = exec->pipe;
    const struct plan *plan = any_plan(lane);

    struct exec_action *done = pipe->done + slot_of(pipe->n_steps) * pipe->n_actions;

    pipe->evaluates = false;
    for (int s = 0; s < 2 * pipe->config.chunks; s++)
        tree_stack_init(&pipe->stacks[s], exec->topology.tree_shards);
    if (plan) {
        point_to(lane, 0);
        TRY(post_receives(lane, plan, 0, plan->segment[0]));
    }
    const struct lane_shard once = { .v = lane->first, .plan = plan };
    TRY(lane_run_tasks(lane, 0, exec->program->once_end, &once));
    for (int64_t i = 0; i < pipe->n_actions; i++) {
        const struct pipe_action *a = &pipe->actions[i];
        const double begin = clock_seconds();
        const int64_t waited = lane->clock.times.bubble;
        hold_enter_action(lane, i);
        TRY(run_action(lane, a));
        const double end = clock_seconds();
        /* A segment begins with what it waits for, and sends before it adds. */
        done[i] = (struct exec_action){
            .begin = begin + (double)(lane->clock.times.bubble - waited) * 1e-9,
            .end = end,
            .given = pipe->given > begin ? pipe->given : end,
            .shard = a->shard,
            .chunk = a->chunk,
            .is_backward = a->is_backward,
        };
    }
    pipe->n_steps++;
    TRY(add_last_shard(lane));
    return empty_boxes(lane);
}

struct exec_actions exec_actions(const struct exec *exec)
{
    const struct pipe *pipe = exec->pipe;

    if (!pipe || pipe->n_steps == 0)
        return (struct exec_actions){ 0 };
    const uint64_t kept = pipe->n_steps > 1 ? pipe->n_steps - 1 : 1;
    return (struct exec_actions){
        .of = pipe->done,
        .count = pipe->n_actions,
        .steps = kept < EXEC_ACTION_STEPS ? (int)kept : EXEC_ACTION_STEPS,
        .last = (int)slot_of(pipe->n_steps - 1),
    };
}

/* An evaluation -------------------------------------------------------------------------------- */

static enum status run_batch(struct lane *lane, const struct pipe_evaluation *e,
                             const struct pipe_action *a)
{
    const struct kernel_step step = { .seed = lane->exec->config.seed, .inv_batch = 1 };

    if (lane->exec->device)
        return device_run_batch(lane, e, a);
    point_to(lane, a->shard);
    const struct plan *plan = e->begin(lane, a->shard);
    const int begin = plan->segment[a->chunk], end = plan->segment[a->chunk + 1];
    if (a->chunk == 0)
        TRY(empty_box(lane, lane->exec->pipe->box));
    TRY(post_receives(lane, plan, begin, end));
    for (int i = begin; i < end; i++) {
        const struct instruction *next = &plan->instructions[i];
        if (next->takes)
            TRY(hold_take(lane, next->takes));
        TRY(next->node->op->moves ? pipe_move(lane, next) : lane_run(lane, next, &step));
        if (next->leaves)
            hold_leave(lane, next->leaves);
    }
    if (a->chunk == lane->exec->pipe->config.chunks - 1)
        e->end(lane, plan, a->shard);
    return STATUS_OK;
}

enum status pipe_evaluate(struct lane *lane, const struct pipe_evaluation *e)
{
    struct pipe *pipe = lane->exec->pipe;
    struct pipe_config config = pipe->config;
    struct pipe_action *actions;

    if (e->count == 0)
        return STATUS_OK;
    /* Groups of several chunks are whole; what is too much is left out. */
    config.shards = (e->count + config.stages - 1) / config.stages * config.stages;
    const int64_t n_actions = config.shards * config.chunks;
    TRY(mem_alloc((size_t)n_actions, sizeof *actions, &actions));
    pipe_schedule_forward(&config, actions);
    pipe->evaluates = true;
    point_to(lane, 0);
    enum status status = move_once(lane, e->begin(lane, 0));
    for (int64_t i = 0; i < n_actions && status == STATUS_OK; i++) {
        hold_enter_action(lane, i);
        if (actions[i].shard < e->count)
            status = run_batch(lane, e, &actions[i]);
        else if (config.chunks > 1)
            status = hold_pass(lane);
    }
    if (status == STATUS_OK)
        status = empty_boxes(lane);
    mem_free(actions);
    return status;
}

/* Ranks beside ----------------------------------------------------------------------------------- */

/* What ranks that work on the same samples tell each other after a step. */
struct told {
    double loss, correct;
    uint32_t heard, unused;
};

enum status beside_tell_step(struct exec *exec, struct exec_result *result)
{
    const struct exec_beside *beside = &exec->config.beside;
    struct transport *transport = beside->transport;
    const struct told own = { result->loss, result->correct, result->heard, 0 };

    if (!transport)
        return STATUS_OK;
    for (int r = 0; r < transport_size(transport); r++) {
        if (r != transport_rank(transport))
            TRY(transport_send(transport, r, exec->sums.beside_tag, &own, sizeof own));
    }
    for (int r = 0; r < transport_size(transport); r++) {
        struct told told = own;
        if (r != transport_rank(transport))
            TRY(transport_receive(transport, r, exec->sums.beside_tag, &told, sizeof told));
        result->heard |= told.heard;
        if (r == beside->teller) {
            result->loss = told.loss;
            result->correct = told.correct;
        }
    }
    return STATUS_OK;
}

/* Added in the order of ranks, so that all have the same. A number of which one rank has all, and
 * others 0, comes out as it was. */
enum status beside_add(const struct exec_beside *beside, uint32_t tag, double *numbers,
                       double *others, int count)
{
    struct transport *transport = beside->transport;
    double *sums = others + count;
    const size_t bytes = (size_t)count * sizeof *numbers;
    const int own = transport_rank(transport);

    for (int r = 0; r < transport_size(transport); r++) {
        if (r != own)
            TRY(transport_send(transport, r, tag, numbers, bytes));
    }
    memset(sums, 0, bytes);
    for (int r = 0; r < transport_size(transport); r++) {
        if (r != own)
            TRY(transport_receive(transport, r, tag, others, bytes));
        for (int i = 0; i < count; i++)
            sums[i] += r == own ? numbers[i] : others[i];
    }
    memcpy(numbers, sums, bytes);
    return STATUS_OK;
}

enum status beside_tell(struct exec *exec, void *data, size_t bytes)
{
    const struct exec_beside *beside = &exec->config.beside;
    struct transport *transport = beside->transport;

    if (!transport || bytes == 0)
        return STATUS_OK;
    if (transport_rank(transport) != beside->teller)
        return transport_receive(transport, beside->teller, exec->sums.beside_tag, data, bytes);
    for (int r = 0; r < transport_size(transport); r++) {
        if (r != beside->teller)
            TRY(transport_send(transport, r, exec->sums.beside_tag, data, bytes));
    }
    return STATUS_OK;
}
