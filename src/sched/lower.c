/* SPDX-License-Identifier: MIT */
/* lower.c - from the graph of a step to a step program.
 *
 * Passes over the list of tasks, top to bottom (program_lower):
 *
 *   read         what the graph says of each bucket, of norms and of tables of batch statistics
 *   compute      forward and backward, cut where a bucket or a table is first read or final
 *   unshard      ZeRO-3: parameters in parts come before they are read
 *   sums         gradients of each bucket: the medium by topology; sparse rows, factors, servers
 *   norms        two phases, where a norm must be known before an update
 *   updates      the optimizer on each member's part, then the parts go to all members
 *   losses       to all nodes
 *   barriers     meetings outside the data flow of a step
 *   fuse         sum, update and all_gather of a bucket become one task where nothing stands between
 *   connect      dependencies, from what tasks read and write; last, signals for those waited for
 */
#include "sched/lower.h"

#include <string.h>

#include "base/mem.h"
#include "graph/op.h"
#include "pass/pass.h"

enum { ALL = -1 }; /* of rails: every one */

/* What the graph says of a bucket. */
struct bucket_facts {
    bool is_factored, is_rows, is_served, is_average, is_pushed, is_held, is_updated;
    int first, last; /* nodes that touch it, of those that shards run */
};

/* A lowering under way. */
struct lowering {
    const struct graph *graph;
    const struct lower_config *config;
    struct program *program;
    int capacity;
    int *bucket_of; /* of each value that is flat; -1: of none */
    struct bucket_facts facts[GRAPH_NODE_IN];
    bool clips, adapts, directs;
    bool has_computed; /* there is a computation already */
    int *gather_of;    /* of each node that gathers tables: its number; -1: it is none */
    bool *makes_loss;  /* of each node: a loss, or a count of labels met */
};

static bool uses_norms(const struct lowering *l)
{
    return l->clips || l->adapts;
}

static bool is_compressed(const struct lowering *l, int b)
{
    const struct bucket_facts *f = &l->facts[b];

    return l->config->topology.nodes > 1 && l->config->compresses && !f->is_factored &&
           !f->is_rows && !f->is_served && !f->is_average;
}

/* Is the bucket's sum made from records of all shards? */
static bool is_gathered(const struct lowering *l, int b)
{
    return l->facts[b].is_factored || l->facts[b].is_rows;
}

/* Tasks ---------------------------------------------------------------------------------- */

/* Adds a task whose members are all lanes of the node; the caller changes that where it is not so. */
static struct task *add(struct lowering *l, enum task_kind kind, enum task_medium medium,
                        enum task_place place, int bucket)
{
    struct program *program = l->program;
    const struct lower_topology *t = &l->config->topology;
    const bool is_net = place == PLACE_NET;

    BUG_ON(program->n_tasks == l->capacity);
    struct task *task = &program->tasks[program->n_tasks++];
    *task = (struct task){ .kind = kind,
                           .does = 1U << kind,
                           .medium = medium,
                           .place = place,
                           .bucket = bucket,
                           .gather = -1,
                           .stride = 1,
                           .rail = -1,
                           .members = is_net ? t->rails : t->lanes * t->node_ranks,
                           .increment = 1,
                           .signal = -1 };
    return task;
}

static int number_of(const struct lowering *l, const struct task *task)
{
    return (int)(task - l->program->tasks);
}

/* One rail alone runs it. */
static void give_to_rail(struct task *task, int rail)
{
    task->rail = rail;
    task->members = 1;
}

static void touch(struct task *task, enum memory_kind memory, int index, enum reach reach,
                  enum partition partition, bool is_write)
{
    for (int i = 0; i < task->n_accesses; i++) {
        struct access *a = &task->accesses[i];
        if (a->memory == memory && a->index == index && a->reach == reach &&
            a->partition == partition && a->is_write == is_write)
            return;
    }
    BUG_ON(task->n_accesses == TASK_ACCESSES);
    task->accesses[task->n_accesses++] = (struct access){ .memory = memory,
                                                          .index = index,
                                                          .part = -1,
                                                          .reach = reach,
                                                          .partition = partition,
                                                          .is_write = is_write };
}

static void reads_all(struct task *task, enum memory_kind memory, int index)
{
    touch(task, memory, index, REACH_ALL, PARTITION_LANE, false);
}

static void reads_own(struct task *task, enum memory_kind memory, int index, enum partition by)
{
    touch(task, memory, index, REACH_OWN, by, false);
}

static void writes_own(struct task *task, enum memory_kind memory, int index, enum partition by)
{
    touch(task, memory, index, REACH_OWN, by, true);
}

/* Squares of a bucket's gradient or parameters (index 0), or of its direction (1). */
static void writes_squares(struct task *task, int index, enum partition by)
{
    writes_own(task, MEMORY_SQUARES, index, by);
    task->accesses[task->n_accesses - 1].part = task->bucket;
}

/* How members of a task share a bucket. */
static enum partition partition_of(const struct task *task)
{
    return task->place == PLACE_NET ? PARTITION_RAIL : PARTITION_BLOCK;
}

/* Read --------------------------------------------------------------------------------------- */

static bool is_of_shards(const struct lowering *l, const struct node *node)
{
    return node->op->split[0] != SPLIT_WHOLE && !node->op->is_view &&
           pass_is_local(&l->config->pipeline, node->stage) && node->op != &op_all_gather &&
           (node->phase < PHASE_REDUCE || node->op == &op_rows_sort);
}

static const struct value *source_of(const struct value *value)
{
    while (value->maker && (value->maker->op->is_view || value->maker->op == &op_all_gather))
        value = value->maker->in[0];
    return value;
}

/* The bucket that a value lies in, as parameter or gradient; -1: none. */
static int bucket_at(const struct lowering *l, const struct value *value)
{
    return value->flat ? l->bucket_of[value->flat->id] : -1;
}

static enum status read_buckets(struct lowering *l)
{
    const struct graph *graph = l->graph;

    TRY(mem_alloc((size_t)graph_value_count(graph) + 1, sizeof *l->bucket_of, &l->bucket_of));
    for (int i = 0; i < graph_value_count(graph); i++)
        l->bucket_of[i] = -1;
    for (int b = 0; b < l->program->n_buckets; b++) {
        const struct value *flats[] = { pass_bucket_value(graph, b, "param"),
                                        pass_bucket_value(graph, b, "grad") };
        for (size_t i = 0; i < sizeof flats / sizeof *flats; i++) {
            if (flats[i])
                l->bucket_of[flats[i]->id] = b;
        }
        l->facts[b].first = l->facts[b].last = -1;
    }
    return STATUS_OK;
}

static void touch_bucket(struct lowering *l, int b, int node)
{
    struct bucket_facts *f = &l->facts[b];

    f->first = f->first < 0 || node < f->first ? node : f->first;
    f->last = node > f->last ? node : f->last;
}

/* A node's place in running order; -1: it has none. */
static int node_at(const struct lowering *l, const struct node *node)
{
    for (int n = 0; n < graph_node_count(l->graph); n++) {
        if (graph_node(l->graph, n) == node)
            return n;
    }
    return -1;
}

/* What the sum of a bucket is made from, where that is no gradient of its own. */
static void read_sources(struct lowering *l, const struct node *sum)
{
    for (int i = 0; i < sum->n_in; i++) {
        const int n = node_at(l, source_of(sum->in[i])->maker);
        if (n >= 0)
            touch_bucket(l, sum->attrs.bucket, n);
    }
}

static void read_whole_node(struct lowering *l, const struct node *node)
{
    struct bucket_facts *f = &l->facts[node->attrs.bucket];

    if (node->op == &op_factor_sum) {
        f->is_factored = true;
        read_sources(l, node);
    } else if (node->op == &op_row_sum) {
        f->is_served = node->attrs.served && !l->config->gives;
        f->is_rows = !f->is_served;
        read_sources(l, node);
    } else if (node->op == &op_push) {
        f->is_pushed = true;
    } else if (node->op == &op_all_gather && node->phase < PHASE_REDUCE) {
        f->is_held = l->config->topology.nodes > 1;
    } else if (node->op == &op_clip_norm) {
        l->clips = !l->config->gives; /* else servers clip */
    } else if (node->op == &op_trust_ratio) {
        l->adapts = true;
    } else if (node->op == &op_lamb_direction) {
        l->directs = true;
    } else if (node->op == &op_average_update) {
        f->is_average = true;
    } else if (node->op == &op_shard_sum && node->in[0]->kind != VALUE_FLAT) {
        const int n = node_at(l, node->in[0]->maker);
        if (n >= 0)
            l->makes_loss[n] = true;
    }
}

static void read_shard_node(struct lowering *l, const struct node *node, int n)
{
    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = source_of(node->in[i]);
        const int b = in->kind == VALUE_PARAM ? bucket_at(l, in) : -1;
        if (b >= 0)
            touch_bucket(l, b, n);
    }
    for (int i = 0; i < node->n_out; i++) {
        const int b = bucket_at(l, node->out[i]);
        if (b >= 0)
            touch_bucket(l, b, n);
    }
}

static enum status read_graph(struct lowering *l)
{
    const int count = graph_node_count(l->graph);
    int gathers = 0;

    TRY(read_buckets(l));
    TRY(mem_alloc((size_t)count + 1, sizeof *l->gather_of, &l->gather_of));
    TRY(mem_alloc((size_t)count + 1, sizeof *l->makes_loss, &l->makes_loss));
    for (int n = 0; n < count; n++) {
        const struct node *node = graph_node(l->graph, n);
        l->gather_of[n] = node->op->meets ? gathers++ : -1;
        if (is_of_shards(l, node))
            read_shard_node(l, node, n);
    }
    for (int n = 0; n < count; n++) {
        const struct node *node = graph_node(l->graph, n);
        if (node->op->split[0] == SPLIT_WHOLE)
            read_whole_node(l, node);
    }
    l->program->n_gathers = gathers;
    /* Buckets are summed in their order: none is final before one with a smaller number. */
    for (int b = 1; b < l->program->n_buckets; b++) {
        if (l->facts[b].last < l->facts[b - 1].last)
            l->facts[b].last = l->facts[b - 1].last;
    }
    TRY(mem_alloc((size_t)gathers + 1, sizeof *l->program->made, &l->program->made));
    return mem_alloc((size_t)gathers + 1, sizeof *l->program->gathered, &l->program->gathered);
}

/* Compute ------------------------------------------------------------------------------------ */

/* Does a range of nodes make a loss, or a count of labels met? */
static bool makes_loss(const struct lowering *l, int first, int end)
{
    for (int n = first; n < end; n++) {
        if (l->makes_loss[n])
            return true;
    }
    return false;
}

/* Buckets of which node n is the first to read parameters or to write gradients, or the last. */
static void touch_buckets(const struct lowering *l, struct task *task, int first, int end)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        const struct bucket_facts *f = &l->facts[b];
        if (f->first < first || f->first >= end)
            continue;
        reads_all(task, MEMORY_PARAM, b);
        if (is_gathered(l, b) || f->is_served)
            writes_own(task, MEMORY_RECORD, b, PARTITION_LANE);
        else
            writes_own(task, MEMORY_GRADIENT, b, PARTITION_LANE);
    }
}

/* Does a computation begin anew before node n? Where it first touches a bucket, or reads a table. */
static bool begins_at(const struct lowering *l, int n)
{
    const struct node *node = graph_node(l->graph, n);

    for (int b = 0; b < l->program->n_buckets; b++) {
        if (l->facts[b].first == n)
            return true;
    }
    return l->gather_of[n] >= 0 || node->op->meets;
}

static bool ends_after(const struct lowering *l, int n)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (l->facts[b].last == n)
            return true;
    }
    return false;
}

static void add_range(struct lowering *l, int first, int end, int reads_gather)
{
    bool is_empty = true;

    for (int n = first; n < end && is_empty; n++)
        is_empty = !is_of_shards(l, graph_node(l->graph, n));
    if (is_empty)
        return;
    struct task *task = add(l, TASK_COMPUTE, MEDIUM_NONE, PLACE_LANE, -1);
    task->first_node = first;
    task->end_node = end;
    touch_buckets(l, task, first, end);
    /* A rank writes its flags before its lanes' first computation. */
    if (makes_loss(l, first, end) || !l->has_computed)
        writes_own(task, MEMORY_LOSS, 0, PARTITION_LANE);
    l->has_computed = true;
    if (reads_gather >= 0)
        reads_all(task, MEMORY_TABLE, reads_gather);
}

/* Lanes have added the gradients of a bucket along the tree, or written its records. */
static void add_accumulate(struct lowering *l, int b)
{
    struct task *task = add(l, TASK_ACCUMULATE, MEDIUM_NONE, PLACE_LANE, b);
    const bool is_record = is_gathered(l, b) || l->facts[b].is_served;

    writes_own(task, is_record ? MEMORY_RECORD : MEMORY_GRADIENT, b, PARTITION_LANE);
    if (l->config->gives && l->config->is_direct && !is_gathered(l, b)) {
        /* Each lane hands over its own sums; the client sends them when the last lane has. */
        task->does |= 1U << TASK_PUSH;
        task->medium = MEDIUM_SERVER;
    }
    l->program->announced[b] = l->program->ready[b] = number_of(l, task);
}

/* All shards' tables of a gather: the next computation reads them. */
static void add_gather(struct lowering *l, int g)
{
    struct task *task = add(l, TASK_ALL_GATHER, MEDIUM_SHARED, PLACE_LANE, -1);

    task->gather = g;
    task->note = "batch statistics";
    writes_own(task, MEMORY_TABLE, g, PARTITION_LANE);
    l->program->made[g] = l->program->gathered[g] = number_of(l, task);
    if (l->config->topology.nodes == 1)
        return;
    task = add(l, TASK_ALL_GATHER, MEDIUM_MESSAGES, PLACE_NET, -1);
    task->gather = g;
    task->note = "batch statistics";
    give_to_rail(task, 0);
    reads_all(task, MEMORY_TABLE, g);
    touch(task, MEMORY_TABLE, g, REACH_ALL, PARTITION_RAIL, true);
    l->program->gathered[g] = number_of(l, task);
}

static void lower_compute(struct lowering *l)
{
    const int count = graph_node_count(l->graph);
    int begin = 0, gather = -1;

    for (int n = 0; n < count; n++) {
        const struct node *node = graph_node(l->graph, n);
        if (begins_at(l, n) && n > begin) {
            add_range(l, begin, n, gather);
            begin = n;
            gather = -1;
        }
        if (node->op->meets) {
            add_gather(l, l->gather_of[n]);
            gather = l->gather_of[n];
            begin = n + 1;
            continue;
        }
        if (!ends_after(l, n))
            continue;
        add_range(l, begin, n + 1, gather);
        begin = n + 1;
        gather = -1;
        for (int b = 0; b < l->program->n_buckets; b++) {
            if (l->facts[b].last == n)
                add_accumulate(l, b);
        }
    }
    add_range(l, begin, count, gather);
    for (int b = 0; b < l->program->n_buckets; b++) { /* of another stage's nodes */
        if (l->program->announced[b] < 0)
            add_accumulate(l, b);
    }
}

/* Parameters in parts ------------------------------------------------------------------------ */

/* Once a use: before forward and before backward. The engine's window says when. */
static void lower_unshard(struct lowering *l)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (!l->facts[b].is_held)
            continue;
        struct task *task = add(l, TASK_UNSHARD, MEDIUM_MESSAGES, PLACE_NET, b);
        task->note = "as often as it is read";
        reads_own(task, MEMORY_PARAM, b, PARTITION_RAIL);
        l->program->unshard[b] = number_of(l, task);
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
    writes_own(task, MEMORY_SUM, b, partition_of(task));
    if (uses_norms(l))
        writes_squares(task, is_of_lane_rows(l, task) ? 2 : 0, partition_of(task));
}

/* One machine, or what every machine does for itself: lanes sum what all lanes made. */
static void sum_on_lanes(struct lowering *l, int b)
{
    const struct bucket_facts *f = &l->facts[b];
    const enum task_kind kind = f->is_factored ? TASK_SUM_FACTORS
                                : f->is_rows   ? TASK_SUM_ROWS
                                               : TASK_REDUCE_SCATTER;
    struct task *task = add(l, kind, MEDIUM_SHARED, PLACE_LANE_SYNC, b);

    reads_all(task, is_gathered(l, b) ? MEMORY_RECORD : MEMORY_GRADIENT, b);
    if (l->config->gives) {
        task->does |= 1U << TASK_PUSH; /* by the last lane that has summed */
        task->medium = MEDIUM_SERVER;
        writes_own(task, MEMORY_SUM, b, PARTITION_BLOCK);
        return;
    }
    keep_sum(l, task, b);
    if (l->config->releases)
        l->program->summed[b] = number_of(l, task);
}

/* Records of all nodes' shards come here, and lanes proceed as on one machine. */
static void gather_records(struct lowering *l, int b)
{
    struct task *task = add(l, TASK_ALL_GATHER, MEDIUM_MESSAGES, PLACE_NET, b);

    task->note = l->facts[b].is_factored ? "factors" : "sparse rows";
    give_to_rail(task, 0);
    touch(task, MEMORY_RECORD, b, REACH_ALL, PARTITION_RAIL, true);
    l->program->ready[b] = number_of(l, task);
}

/* Partial sums of nodes go to the rail that owns a part, or compressed to all, or rows to owners. */
static void sum_on_net(struct lowering *l, int b)
{
    const bool is_served = l->facts[b].is_served;
    const enum task_kind kind = is_served             ? TASK_PUSH
                                : is_compressed(l, b) ? TASK_ALL_REDUCE
                                                      : TASK_REDUCE_SCATTER;
    struct task *task = add(l, kind, MEDIUM_MESSAGES, PLACE_NET, b);

    if (is_served)
        give_to_rail(task, 0);
    else if (is_compressed(l, b))
        give_to_rail(task, b % l->config->topology.rails);
    task->note = is_served ? "sparse rows" : is_compressed(l, b) ? "compressed" : NULL;
    reads_all(task, is_served ? MEMORY_RECORD : MEMORY_GRADIENT, b);
    writes_own(task, MEMORY_SENDS, b, PARTITION_RAIL);
    keep_sum(l, task, b);
}

/* The sends of a bucket's partial sums are over, so that their memory can be given back. */
static void lower_release(struct lowering *l, int b)
{
    if (!l->config->releases || is_compressed(l, b))
        return;
    struct task *task = add(l, TASK_BARRIER, MEDIUM_MESSAGES, PLACE_NET, b);
    task->note = "gradients are sent";
    reads_own(task, MEMORY_SENDS, b, PARTITION_RAIL);
    l->program->summed[b] = number_of(l, task);
}

static void lower_sum(struct lowering *l, int b)
{
    const bool on_net =
        l->config->topology.nodes > 1 && !is_gathered(l, b) && !l->config->gives;

    if (on_net) {
        sum_on_net(l, b);
        return;
    }
    if (l->config->topology.nodes > 1)
        gather_records(l, b);
    if (!l->config->gives || !l->config->is_direct || is_gathered(l, b))
        sum_on_lanes(l, b);
}

/* Updates ------------------------------------------------------------------------------------ */

static bool is_on_net(const struct lowering *l, int b)
{
    return l->config->topology.nodes > 1 && !is_gathered(l, b);
}

/* The rail that a bucket's tasks belong to; ALL: every rail has its own part. */
static int rail_of(const struct lowering *l, int b)
{
    if (l->facts[b].is_served)
        return 0;
    return is_compressed(l, b) ? b % l->config->topology.rails : ALL;
}

static struct task *add_update_task(struct lowering *l, enum task_kind kind, int b)
{
    struct task *task = add(l, kind, is_on_net(l, b) ? MEDIUM_NONE : MEDIUM_SHARED,
                            is_on_net(l, b) ? PLACE_NET : PLACE_LANE_SYNC, b);

    if (is_on_net(l, b) && rail_of(l, b) != ALL)
        give_to_rail(task, rail_of(l, b));
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

    reads_own(task, MEMORY_SUM, b, by);
    writes_own(task, MEMORY_PARAM, b, by);
    writes_own(task, MEMORY_STATE, b, by);
    if (uses_norms(l))
        reads_all(task, MEMORY_SQUARES, 0);
    if (uses_norms(l) && l->directs)
        reads_all(task, MEMORY_SQUARES, 1);
    if (uses_norms(l) && l->config->topology.nodes > 1 && lanes_keep(l))
        reads_all(task, MEMORY_SQUARES, 2);
}

/* Updated parts go to all. In shared memory that is the wait for the update, and no more. */
static void lower_all_gather(struct lowering *l, int b)
{
    struct task *task =
        add_update_task(l, l->facts[b].is_served ? TASK_PULL : TASK_ALL_GATHER, b);

    if (task->place == PLACE_NET) {
        task->medium = MEDIUM_MESSAGES;
        if (is_compressed(l, b) || l->facts[b].is_held)
            task->note = "no bytes";
        writes_own(task, MEMORY_PARAM, b, PARTITION_RAIL);
        /* It ends when the sends of gradients are over, too. */
        reads_own(task, MEMORY_SENDS, b, PARTITION_RAIL);
        reads_all(task, l->facts[b].is_served ? MEMORY_RECORD : MEMORY_GRADIENT, b);
    }
    l->program->fresh[b] = number_of(l, task);
}

/* Norms -------------------------------------------------------------------------------------- */

/* All squares come together: on the lanes of a machine, or between machines. */
static int lower_norm(struct lowering *l, int index)
{
    const bool many = l->config->topology.nodes > 1;
    struct task *task;

    if (many && index == 0 && lanes_keep(l)) { /* the net's norm waits for these */
        task = add(l, TASK_BARRIER, MEDIUM_SHARED, PLACE_LANE_SYNC, -1);
        task->note = "squares of sparse rows";
        writes_own(task, MEMORY_SQUARES, 2, PARTITION_BLOCK);
    }
    task = add(l, TASK_NORM, many ? MEDIUM_MESSAGES : MEDIUM_SHARED,
               many ? PLACE_NET : PLACE_LANE_SYNC, -1);
    task->note = index ? "of directions" : NULL;
    writes_own(task, MEMORY_SQUARES, index, many ? PARTITION_RAIL : PARTITION_BLOCK);
    if (many && index == 0 && lanes_keep(l))
        reads_all(task, MEMORY_SQUARES, 2);
    return number_of(l, task);
}

static void lower_direction(struct lowering *l, int b)
{
    struct task *task = add_update_task(l, TASK_DIRECTION, b);
    const enum partition by = partition_of(task);

    writes_own(task, MEMORY_SUM, b, by);
    writes_own(task, MEMORY_STATE, b, by);
    reads_all(task, MEMORY_SQUARES, 0);
    writes_squares(task, 1, by);
}

static void lower_sums_and_updates(struct lowering *l)
{
    const int buckets = l->program->n_buckets;
    const bool gives = l->config->gives, by_norms = uses_norms(l) && !gives;

    for (int b = 0; b < buckets; b++) {
        lower_sum(l, b);
        if (gives || by_norms) {
            if (!gives && is_on_net(l, b))
                lower_release(l, b);
            continue;
        }
        lower_update(l, b);
        lower_all_gather(l, b);
        if (is_on_net(l, b))
            lower_release(l, b);
    }
    if (!by_norms)
        return;
    l->program->norm = lower_norm(l, 0);
    if (l->clips && l->directs) {
        for (int b = 0; b < buckets; b++)
            lower_direction(l, b);
        l->program->direction_norm = lower_norm(l, 1);
    }
    for (int b = 0; b < buckets; b++) {
        lower_update(l, b);
        lower_all_gather(l, b);
    }
}

/* Servers ------------------------------------------------------------------------------------ */

/* Parameters come from servers before a lane reads them. The client behind the medium answers when it
 * has what the pushes of the last step made. */
static void lower_pull(struct lowering *l)
{
    for (int b = 0; l->config->gives && b < l->program->n_buckets; b++) {
        struct task *task = add(l, TASK_PULL, MEDIUM_SERVER, PLACE_LANE, b);
        reads_all(task, MEMORY_PARAM, b);
        l->program->fresh[b] = number_of(l, task);
    }
}

/* Losses and barriers ------------------------------------------------------------------------ */

static void lower_losses(struct lowering *l)
{
    if (l->config->topology.nodes == 1)
        return;
    struct task *task = add(l, TASK_ALL_REDUCE, MEDIUM_MESSAGES, PLACE_NET, -1);
    task->note = "losses and flags";
    give_to_rail(task, 0);
    reads_all(task, MEMORY_LOSS, 0);
    l->program->losses = number_of(l, task);
}

static void lower_barriers(struct lowering *l)
{
    static const struct {
        const char *note;
        bool is_of_ranks;
    } rows[BARRIERS] = {
        [BARRIER_SETTLE] = { "ranks settle", true },
        [BARRIER_EVALUATE] = { "evaluation", true },
        [BARRIER_SAMPLES] = { "samples of all lanes", false },
        [BARRIER_COLUMNS] = { "columns of a first layer", false },
        [BARRIER_HOSTS] = { "hosts of devices", true },
    };
    const struct lower_topology *t = &l->config->topology;

    for (int i = 0; i < BARRIERS; i++) {
        struct task *task = add(l, TASK_BARRIER, MEDIUM_SHARED, PLACE_LANE, -1);
        task->note = rows[i].note;
        task->is_on_demand = true;
        if (rows[i].is_of_ranks) {
            task->stride = t->lanes;
            task->members = t->node_ranks;
        }
        if (i == BARRIER_EVALUATE)
            task->increment = t->lanes;
        l->program->barrier[i] = number_of(l, task);
    }
}

/* Fuse --------------------------------------------------------------------------------------- */

/* Can `next` be part of `task`, which stands before it? They run in one place, on the same parts of one
 * bucket, and nothing waits for the first alone. Messages are sent when the update is done, so an
 * all_gather between nodes stays a task of its own. */
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
    const bool uses_sum = task->does >> next->kind & 1 || next->kind == TASK_UPDATE;

    task->does |= next->does;
    for (int i = 0; i < next->n_accesses; i++) {
        const struct access *a = &next->accesses[i];
        touch(task, a->memory, a->index, a->reach, a->partition, a->is_write);
        task->accesses[task->n_accesses - 1].part = a->part;
    }
    if (uses_sum && task->kind != TASK_UPDATE)
        drop_sum(task);
}

/* Numbers of tasks change: what names them follows. */
static void renumber(struct program *program, const int *now)
{
    int *const single[] = { &program->norm, &program->direction_norm, &program->losses };

    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        *single[i] = *single[i] < 0 ? -1 : now[*single[i]];
    for (int b = 0; b < program->n_buckets; b++) {
        int *const of[] = { &program->ready[b], &program->fresh[b], &program->summed[b],
                            &program->unshard[b], &program->announced[b] };
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
    mem_free(now);
    return STATUS_OK;
}

/* All of it ---------------------------------------------------------------------------------- */

static enum status create(const struct graph *graph, struct lowering *l)
{
    struct program *program;
    int gathers = 0;

    TRY(mem_alloc(1, sizeof *program, &program));
    l->program = program;
    program->n_buckets = pass_bucket_count(graph);
    program->norm = program->direction_norm = program->losses = -1;
    for (int b = 0; b < GRAPH_NODE_IN; b++)
        program->ready[b] = program->fresh[b] = program->summed[b] = program->unshard[b] =
            program->announced[b] = -1;
    for (int n = 0; n < graph_node_count(graph); n++)
        gathers += graph_node(graph, n)->op->meets;
    /* A bucket has a dozen tasks at most, two computations among them; a gather three. */
    l->capacity = 16 * program->n_buckets + 4 * gathers + BARRIERS + 16;
    return mem_alloc((size_t)l->capacity, sizeof *program->tasks, &program->tasks);
}

static enum status lower_step(struct lowering *l)
{
    TRY(read_graph(l));
    lower_unshard(l);
    lower_pull(l);
    lower_compute(l);
    lower_sums_and_updates(l);
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
        lower_barriers(&l);
        status = fuse_tasks(&l);
    }
    if (status == STATUS_OK)
        status = program_connect(l.program);
    mem_free(l.bucket_of);
    mem_free(l.gather_of);
    mem_free(l.makes_loss);
    if (status != STATUS_OK) {
        program_destroy(l.program);
        return status;
    }
    *out = l.program;
    return STATUS_OK;
}
