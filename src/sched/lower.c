/* SPDX-License-Identifier: MIT */
/* lower.c - from the graph of a step to a step program.
 *
 * Passes over the list of tasks, top to bottom (program_lower):
 *
 *   read         what the graph says of each bucket, of norms and of tables of batch statistics
 *   answers      ZeRO-3: partitions of parameters, for the other nodes
 *   compute      forward and backward, cut where a bucket or a table is first read or final; behind
 *                each bucket that is final what follows; parameters in partitions come before they
 *                are read, and go after that
 *     sums       of its gradients: the medium by topology; sparse rows, factors, servers
 *     updates    the optimizer on each member's part, then the parts go to all members
 *   norms        two phases, where a norm must be known before an update; updates come then
 *   losses       to all nodes
 *   host         averages of workers, exchanges with a center on servers, between steps
 *   barriers     meetings outside the data flow of a step
 *   fuse         sum, update and all_gather of a bucket become one task where nothing stands between
 *   connect      dependencies, from what tasks read and write; last, signals for those waited for
 */
#include "sched/lower.h"

#include <string.h>

#include "base/mem.h"
#include "graph/op.h"
#include "sched/lowering.h"

enum { ALL = -1 }; /* of rails: every one */

static bool uses_norms(const struct lowering *l)
{
    return l->facts.rule.clips || l->facts.rule.adapts;
}

static bool is_compressed(const struct lowering *l, int b)
{
    const struct bucket_facts *bucket = &l->facts.buckets[b];

    return l->config->topology.nodes > 1 && l->config->compresses &&
           bucket->kind == BUCKET_DENSE && !bucket->is_average;
}

static bool is_served(const struct lowering *l, int b)
{
    return l->facts.buckets[b].kind == BUCKET_SERVED;
}

/* Does each node hold its part of the bucket's parameters alone, but while they are read? */
/* Squares of a bucket's gradient or parameters (index 0), or of its direction (1). */
static void writes_squares(struct task *task, int index, enum partition by)
{
    lower_add_access(task, (struct access){ .memory = MEMORY_SQUARES,
                                            .index = index,
                                            .part = task->bucket,
                                            .reach = REACH_OWN,
                                            .partition = by,
                                            .is_write = true });
}

/* How members of a task share a bucket. */
static enum partition partition_of(const struct task *task)
{
    return task->place == PLACE_NET ? PARTITION_RAIL : PARTITION_BLOCK;
}

/* Parameters in partitions ------------------------------------------------------------------- */

/* A node's partition is there for the others all the step, until it is updated. */
static void lower_answers(struct lowering *l)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (lower_is_held(l, b))
            lower_reads_own(lower_add(l, TASK_ANSWER, MEDIUM_MESSAGES, PLACE_NET, b),
                            MEMORY_PARAM, b, PARTITION_RAIL);
    }
}

/* Sums --------------------------------------------------------------------------------------- */

/* Does a lane sum it, beside what inter-node threads sum? */
static bool is_of_lane_rows(const struct lowering *l, const struct task *task)
{
    return l->config->topology.nodes > 1 && task->place != PLACE_NET;
}

/* A summed gradient is kept with the squares of its blocks, where norms are needed. */
static void keep_sum(const struct lowering *l, struct task *task, int b)
{
    lower_writes_own(task, MEMORY_SUM, b, partition_of(task));
    if (l->facts.rule.adapts) /* squares of parameters */
        lower_reads_own(task, MEMORY_PARAM, b, partition_of(task));
    if (l->facts.rule.directs && !l->facts.rule.clips) /* the direction is what is kept */
        lower_writes_own(task, MEMORY_STATE, b, partition_of(task));
    if (uses_norms(l))
        writes_squares(task, is_of_lane_rows(l, task) ? 2 : 0, partition_of(task));
}

/* One machine, or what every machine does for itself: lanes sum what all lanes made. */
static void sum_on_lanes(struct lowering *l, int b)
{
    const enum bucket_kind bucket = l->facts.buckets[b].kind;
    const enum task_kind kind = bucket == BUCKET_FACTORS ? TASK_SUM_FACTORS
                                : bucket == BUCKET_ROWS  ? TASK_SUM_ROWS
                                                         : TASK_REDUCE_SCATTER;
    struct task *task = lower_add(l, kind, MEDIUM_SHARED, PLACE_LANE_SYNC, b);

    lower_reads_all(task, lower_is_gathered(l, b) ? MEMORY_RECORD : MEMORY_GRADIENT, b);
    if (l->config->gives) {
        task->does |= 1U << TASK_PUSH; /* by the last lane that has summed */
        task->medium = MEDIUM_SERVER;
        lower_writes_own(task, MEMORY_SUM, b, PARTITION_BLOCK);
        return;
    }
    keep_sum(l, task, b);
    if (l->config->releases) {
        lower_writes_own(task, MEMORY_ROOM, b, PARTITION_BLOCK);
        l->program->summed[b] = lower_number(l, task);
    }
}

/* Records of all nodes' shards come here, and lanes proceed as on one machine. */
static void gather_records(struct lowering *l, int b)
{
    struct task *task = lower_add(l, TASK_ALL_GATHER, MEDIUM_MESSAGES, PLACE_NET, b);

    task->note = l->facts.buckets[b].kind == BUCKET_FACTORS ? "factors" : "sparse rows";
    lower_give_to_rail(task, 0);
    lower_touch(task, MEMORY_RECORD, b, REACH_ALL, PARTITION_RAIL, true);
    l->program->ready[b] = lower_number(l, task);
}

/* Partial sums of nodes go to the rail that owns a part, or compressed to all, or rows to owners. */
static void sum_on_net(struct lowering *l, int b)
{
    const bool pushes = is_served(l, b);
    const enum task_kind kind = pushes                ? TASK_PUSH
                                : is_compressed(l, b) ? TASK_ALL_REDUCE
                                                      : TASK_REDUCE_SCATTER;
    struct task *task = lower_add(l, kind, MEDIUM_MESSAGES, PLACE_NET, b);

    if (pushes)
        lower_give_to_rail(task, 0);
    else if (is_compressed(l, b))
        lower_give_to_rail(task, b % l->config->topology.rails);
    task->note = pushes ? "sparse rows" : is_compressed(l, b) ? "compressed" : NULL;
    lower_reads_all(task, pushes ? MEMORY_RECORD : MEMORY_GRADIENT, b);
    lower_writes_own(task, MEMORY_SENDS, b, PARTITION_RAIL);
    keep_sum(l, task, b);
}

/* The sends of a bucket's partial sums are over, so that their memory can be given back. */
static void lower_release(struct lowering *l, int b)
{
    if (!l->config->releases || is_compressed(l, b))
        return;
    struct task *task = lower_add(l, TASK_BARRIER, MEDIUM_MESSAGES, PLACE_NET, b);
    task->note = "gradients are sent";
    lower_reads_own(task, MEMORY_SENDS, b, PARTITION_RAIL);
    lower_writes_own(task, MEMORY_ROOM, b, PARTITION_RAIL);
    l->program->summed[b] = lower_number(l, task);
}

static void lower_sum(struct lowering *l, int b)
{
    if (l->facts.buckets[b].crosses) {
        sum_on_net(l, b);
        return;
    }
    if (l->config->topology.nodes > 1) /* its all_gather crosses nodes (check_levels) */
        gather_records(l, b);
    if (!l->config->gives || !l->config->is_direct || lower_is_gathered(l, b))
        sum_on_lanes(l, b);
}

/* Updates ------------------------------------------------------------------------------------ */

static bool is_on_net(const struct lowering *l, int b)
{
    return l->facts.buckets[b].crosses;
}

/* The rail that a bucket's tasks belong to; ALL: every rail has its own part. */
static int rail_of(const struct lowering *l, int b)
{
    if (is_served(l, b))
        return 0;
    return is_compressed(l, b) ? b % l->config->topology.rails : ALL;
}

static struct task *add_update_task(struct lowering *l, enum task_kind kind, int b)
{
    struct task *task = lower_add(l, kind, is_on_net(l, b) ? MEDIUM_NONE : MEDIUM_SHARED,
                                  is_on_net(l, b) ? PLACE_NET : PLACE_LANE_SYNC, b);

    if (is_on_net(l, b) && rail_of(l, b) != ALL)
        lower_give_to_rail(task, rail_of(l, b));
    return task;
}

/* Some lane sums what is kept before the norm is known. */
static bool lanes_keep(const struct lowering *l)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (!is_on_net(l, b))
            return true;
    }
    return false;
}

static void lower_update(struct lowering *l, int b)
{
    struct task *task = add_update_task(l, TASK_UPDATE, b);
    const enum partition by = partition_of(task);

    lower_reads_own(task, MEMORY_SUM, b, by);
    lower_writes_own(task, MEMORY_PARAM, b, by);
    lower_writes_own(task, MEMORY_STATE, b, by);
    if (uses_norms(l))
        lower_reads_all(task, MEMORY_SQUARES, 0);
    if (uses_norms(l) && l->facts.rule.directs)
        lower_reads_all(task, MEMORY_SQUARES, 1);
    if (uses_norms(l) && l->config->topology.nodes > 1 && lanes_keep(l))
        lower_reads_all(task, MEMORY_SQUARES, 2);
    l->program->fresh[b] = lower_number(l, task);
}

/* Updated parts go to all. In shared memory that is the wait for the update, and no more. With
 * ZeRO-3 parts stay where they are, but messages with gradients end here. Where all read one copy,
 * readers wait for the update itself. */
static void lower_all_gather(struct lowering *l, int b)
{
    if (!l->facts.buckets[b].returns && !lower_is_held(l, b) && !is_served(l, b))
        return;
    struct task *task = add_update_task(l, is_served(l, b) ? TASK_PULL : TASK_ALL_GATHER, b);

    if (task->place == PLACE_NET) {
        task->medium = MEDIUM_MESSAGES;
        if (is_compressed(l, b) || lower_is_held(l, b))
            task->note = "no bytes";
        lower_writes_own(task, MEMORY_PARAM, b, PARTITION_RAIL);
        /* It ends when the sends of gradients are over, too. */
        lower_reads_own(task, MEMORY_SENDS, b, PARTITION_RAIL);
        lower_reads_all(task, is_served(l, b) ? MEMORY_RECORD : MEMORY_GRADIENT, b);
    }
    l->program->fresh[b] = lower_number(l, task);
}

/* Norms -------------------------------------------------------------------------------------- */

/* All squares come together: on the lanes of a machine, or between machines. */
static int lower_norm(struct lowering *l, int index)
{
    const bool many = l->config->topology.nodes > 1;
    struct task *task;

    if (many && index == 0 && lanes_keep(l)) { /* the net's norm waits for these */
        task = lower_add(l, TASK_BARRIER, MEDIUM_SHARED, PLACE_LANE_SYNC, -1);
        task->note = "squares of sparse rows";
        lower_writes_own(task, MEMORY_SQUARES, 2, PARTITION_BLOCK);
    }
    task = lower_add(l, TASK_NORM, many ? MEDIUM_MESSAGES : MEDIUM_SHARED,
                     many ? PLACE_NET : PLACE_LANE_SYNC, -1);
    task->note = index ? "of directions" : NULL;
    lower_writes_own(task, MEMORY_SQUARES, index, many ? PARTITION_RAIL : PARTITION_BLOCK);
    if (many && index == 0 && lanes_keep(l))
        lower_reads_all(task, MEMORY_SQUARES, 2);
    return lower_number(l, task);
}

static void lower_direction(struct lowering *l, int b)
{
    struct task *task = add_update_task(l, TASK_DIRECTION, b);
    const enum partition by = partition_of(task);

    lower_reads_own(task, MEMORY_PARAM, b, by);
    lower_writes_own(task, MEMORY_SUM, b, by);
    lower_writes_own(task, MEMORY_STATE, b, by);
    lower_reads_all(task, MEMORY_SQUARES, 0);
    writes_squares(task, 1, by);
}

/* Updates that need norms come when all buckets are summed. */
void lower_bucket(struct lowering *l, int b)
{
    const bool gives = l->config->gives;

    lower_sum(l, b);
    if (!gives && !uses_norms(l)) {
        lower_update(l, b);
        lower_all_gather(l, b);
    }
    if (!gives && is_on_net(l, b))
        lower_release(l, b);
}

static void lower_updates_by_norms(struct lowering *l)
{
    const int buckets = l->program->n_buckets;

    if (!uses_norms(l) || l->config->gives)
        return;
    l->program->norm = lower_norm(l, 0);
    if (l->facts.rule.clips && l->facts.rule.directs) {
        for (int b = 0; b < buckets; b++)
            lower_direction(l, b);
        l->program->direction_norm = lower_norm(l, 1);
    }
    for (int b = 0; b < buckets; b++) {
        lower_update(l, b);
        lower_all_gather(l, b);
    }
}

/* Losses -------------------------------------------------------------------------------------- */

static void lower_losses(struct lowering *l)
{
    if (l->config->topology.nodes == 1)
        return;
    struct task *task = lower_add(l, TASK_ALL_REDUCE, MEDIUM_MESSAGES, PLACE_NET, -1);
    task->note = "losses and flags";
    lower_give_to_rail(task, 0);
    lower_reads_all(task, MEMORY_LOSS, 0);
    l->program->losses = lower_number(l, task);
}

/* Between steps ------------------------------------------------------------------------------- */

/* Every so many steps, by the thread that calls the executor. */
static struct task *add_host_task(struct lowering *l, enum task_kind kind,
                                  enum task_medium medium, int b)
{
    struct task *task = lower_add(l, kind, medium, PLACE_HOST, b);

    task->members = 1;
    task->is_on_demand = true;
    return task;
}

static struct task_peers peers_of(const struct lower_workers *workers,
                                  const struct attrs *attrs)
{
    struct task_peers peers = { .count = attrs->n_offsets };

    for (int i = 0; i < attrs->n_offsets; i++) {
        peers.from[i] = (workers->index + attrs->offset[i]) % workers->count;
        peers.to[i] = (workers->index + workers->count - attrs->offset[i]) % workers->count;
    }
    return peers;
}

static void lower_average(struct lowering *l, const struct node *mean)
{
    const struct lower_workers *workers = &l->config->workers;
    struct task *task =
        add_host_task(l, mean->attrs.n_offsets ? TASK_AVERAGE : TASK_ALL_REDUCE,
                      workers->nodes > 1 ? MEDIUM_MESSAGES : MEDIUM_SHARED, mean->attrs.bucket);

    task->does |= 1U << TASK_AVERAGE;
    task->peers = peers_of(workers, &mean->attrs);
    lower_touch(task, MEMORY_PARAM, mean->attrs.bucket, REACH_ALL, PARTITION_LANE, true);
}

/* Elastic averaging: parameters go to the center before a step, and what it gave back comes after
 * it. */
static void lower_exchange(struct lowering *l, enum task_kind kind, int b)
{
    struct task *task = add_host_task(l, kind, MEDIUM_SERVER, b);

    task->note = kind == TASK_PUSH ? "parameters, to the center" : "from the center";
    lower_touch(task, MEMORY_PARAM, b, REACH_ALL, PARTITION_LANE, kind == TASK_PULL);
}

static void lower_nodes_between(struct lowering *l, enum task_kind kind)
{
    for (int n = 0; n < graph_node_count(l->graph) && l->config->has_steps; n++) {
        const struct node *node = graph_node(l->graph, n);
        if (node->op == &op_worker_mean && kind == TASK_AVERAGE && l->config->workers.count > 1)
            lower_average(l, node);
        else if (node->op == &op_center_pull && kind != TASK_AVERAGE)
            lower_exchange(l, kind, node->attrs.bucket);
    }
}

static void lower_host(struct lowering *l)
{
    lower_nodes_between(l, TASK_AVERAGE);
    lower_nodes_between(l, TASK_PUSH);
    lower_nodes_between(l, TASK_PULL);
}

/* Barriers ------------------------------------------------------------------------------------ */

static void lower_barriers(struct lowering *l)
{
    static const char *const notes[BARRIERS] = { [BARRIER_SETTLE] = "ranks settle",
                                                 [BARRIER_EVALUATE] = "evaluation",
                                                 [BARRIER_HOSTS] = "hosts of devices" };
    const struct lower_topology *t = &l->config->topology;

    for (int i = 0; i < BARRIERS; i++) {
        struct task *task = lower_add(l, TASK_BARRIER, MEDIUM_SHARED, PLACE_LANE, -1);
        task->note = notes[i];
        task->is_on_demand = true;
        task->stride = t->lanes;
        task->members = t->node_ranks;
        if (i == BARRIER_EVALUATE)
            task->increment = t->lanes;
        l->program->barrier[i] = lower_number(l, task);
    }
}

/* Fuse --------------------------------------------------------------------------------------- */

/* Can `next` be part of `task`, which stands before it? They run in one place, on the same parts of
 * one bucket, and nothing waits for the first alone. Messages are sent when the update is done, so
 * an all_gather between nodes stays a task of its own. */
static bool may_fuse(const struct task *task, const struct task *next)
{
    const bool is_sum = task->kind == TASK_REDUCE_SCATTER || task->kind == TASK_SUM_FACTORS ||
                        task->kind == TASK_SUM_ROWS || task->kind == TASK_PUSH ||
                        task->kind == TASK_ALL_REDUCE;

    if (task->place != next->place || task->bucket != next->bucket ||
        task->rail != next->rail || task->bucket < 0)
        return false;
    if (next->kind == TASK_UPDATE)
        return is_sum;
    return next->kind == TASK_ALL_GATHER && next->medium == MEDIUM_SHARED &&
           (task->does >> TASK_UPDATE & 1);
}

/* Memory of a sum that is made and used up in one task: it stays in the cache. */
static void drop_sum(struct task *task)
{
    int kept = 0;

    for (int i = 0; i < task->n_accesses; i++) {
        if (task->accesses[i].memory != MEMORY_SUM)
            task->accesses[kept++] = task->accesses[i];
    }
    task->n_accesses = kept;
}

static void fuse(struct task *task, const struct task *next)
{
    task->does |= next->does;
    for (int i = 0; i < next->n_accesses; i++)
        lower_add_access(task, next->accesses[i]);
    if (next->kind == TASK_UPDATE)
        drop_sum(task);
}

/* Numbers of tasks change: what names them follows. */
static void renumber(struct program *program, const int *now)
{
    int *const single[] = { &program->norm, &program->direction_norm, &program->losses };

    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        *single[i] = *single[i] < 0 ? -1 : now[*single[i]];
    for (int b = 0; b < program->n_buckets; b++) {
        int *const of[] = {
            &program->ready[b],   &program->fresh[b],   &program->summed[b],
            &program->unshard[b], &program->is_read[b], &program->announced[b]
        };
        for (size_t i = 0; i < sizeof of / sizeof *of; i++)
            *of[i] = *of[i] < 0 ? -1 : now[*of[i]];
    }
    for (int g = 0; g < program->n_gathers; g++) {
        program->made[g] = now[program->made[g]];
        program->gathered[g] = now[program->gathered[g]];
    }
    for (int i = 0; i < BARRIERS; i++)
        program->barrier[i] = now[program->barrier[i]];
}

static bool is_lane_task(const struct task *task)
{
    return task->place == PLACE_LANE && !task->is_on_demand;
}

static void find_segments(struct program *program)
{
    int t = 0;

    for (int i = 0; i < program->n_tasks; i++) {
        if (is_lane_task(&program->tasks[i]) && program->tasks[i].is_once)
            t = i + 1;
    }
    program->once_end = program->segment[0] = t;
    for (int s = 0; s < program->n_segments; s++) {
        program->segment[s + 1] = program->segment[s];
        for (int i = program->once_end; i < program->n_tasks; i++) {
            if (is_lane_task(&program->tasks[i]) && program->tasks[i].segment == s)
                program->segment[s + 1] = i + 1;
        }
    }
}

static enum status fuse_tasks(struct lowering *l)
{
    struct program *program = l->program;
    int *now, kept = 0;

    TRY(mem_alloc((size_t)program->n_tasks + 1, sizeof *now, &now));
    for (int i = 0; i < program->n_tasks; i++) {
        struct task *last = kept > 0 ? &program->tasks[kept - 1] : NULL;
        if (last && may_fuse(last, &program->tasks[i]))
            fuse(last, &program->tasks[i]);
        else
            program->tasks[kept++] = program->tasks[i];
        now[i] = kept - 1;
    }
    program->n_tasks = kept;
    renumber(program, now);
    find_segments(program);
    mem_free(now);
    return STATUS_OK;
}

/* All of it ---------------------------------------------------------------------------------- */

static enum status create(const struct graph *graph, struct lowering *l)
{
    struct program *program;
    int gathers = 0, cuts = 0;

    TRY(mem_alloc(1, sizeof *program, &program));
    l->program = program;
    program->topology = l->config->topology;
    program->workers = l->config->workers;
    program->server = -1;
    program->n_buckets = pass_bucket_count(graph);
    program->norm = program->direction_norm = program->losses = -1;
    for (int b = 0; b < GRAPH_NODE_IN; b++)
        program->ready[b] = program->fresh[b] = program->summed[b] = program->unshard[b] =
            program->is_read[b] = program->announced[b] = -1;
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        gathers += node->op->meets;
        cuts += node->op->moves || node->op->talks;
        for (int i = 0; i < node->n_in; i++)
            cuts += node->in[i]->maker && node->in[i]->maker->op->meets;
    }
    /* A bucket has a dozen tasks at most, three computations among them; a gather three; a node
     * that is a task of its own has a computation before it. A bucket in partitions has three tasks
     * a use, and cuts two computations. */
    const int chunks = l->config->pipeline.stages > 0 ? l->config->pipeline.chunks : 1;
    l->capacity = (20 + 10 * chunks) * program->n_buckets + 4 * gathers + 2 * cuts + BARRIERS +
                  4 * PIPE_CHUNKS + 16;
    return mem_alloc((size_t)l->capacity, sizeof *program->tasks, &program->tasks);
}

static enum status lower_step(struct lowering *l)
{
    TRY(lower_read(l));
    lower_answers(l);
    lower_lanes(l);
    lower_updates_by_norms(l);
    lower_losses(l);
    return STATUS_OK;
}

enum status program_lower(const struct graph *graph, const struct lower_config *config,
                          struct program **out)
{
    struct lowering l = { .graph = graph, .config = config };
    enum status status = create(graph, &l);

    if (status == STATUS_OK && config->has_steps && !config->is_device)
        status = lower_step(&l);
    if (status == STATUS_OK) {
        lower_host(&l);
        lower_barriers(&l);
        status = fuse_tasks(&l);
    }
    if (status == STATUS_OK)
        status = program_connect(l.program);
    mem_free(l.bucket_of);
    mem_free(l.gather_of);
    mem_free(l.table_of);
    mem_free(l.makes_loss);
    if (status != STATUS_OK) {
        program_destroy(l.program);
        return status;
    }
    *out = l.program;
    return STATUS_OK;
}
