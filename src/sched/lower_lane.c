/* SPDX-License-Identifier: MIT */
/* lower_lane.c - the tasks that lanes run in program order: forward, backward and what comes
 * between.
 *
 * First what is done once a step: samples are copied to records, lanes compute columns of a first
 * layer for all shards, stages of a pipeline exchange parameters that both read. Then the nodes
 * that shards run, in their order, as computations. One ends, and another begins, where a bucket or
 * a table of batch statistics is first touched or is final, and around a node that is a task of its
 * own: one that sends, receives, or exchanges activations. Behind a bucket that is final stands
 * what sums it.
 */
#include "graph/op.h"
#include "sched/lowering.h"

/* Parts of a bucket's records: the samples; a first layer's output, whose columns lanes compute. */
enum record_part { RECORD_SAMPLES, RECORD_COLUMNS };

/* Computations ----------------------------------------------------------------------------- */

static bool is_record(const struct lowering *l, int b)
{
    return lower_is_gathered(l, b) || l->facts.buckets[b].kind == BUCKET_SERVED;
}

/* The gather whose tables a node reads; -1: none. */
static int gather_read_by(const struct lowering *l, const struct node *node)
{
    for (int i = 0; i < node->n_in; i++) {
        const struct node *maker = node->in[i]->maker;
        if (!maker || !maker->op->meets)
            continue;
        for (int n = 0; n < graph_node_count(l->graph); n++) {
            if (graph_node(l->graph, n) == maker)
                return l->gather_of[n];
        }
    }
    return -1;
}

/* A node that is a task of its own: its kind; TASK_COMPUTE: it is part of a computation. */
static enum task_kind kind_of(const struct node *node)
{
    if (node->op->moves)
        return node->op == &op_send ? TASK_SEND : TASK_RECEIVE;
    return node->op->talks ? TASK_TENSOR : TASK_COMPUTE;
}

static enum task_medium medium_of(const struct lowering *l, enum task_kind kind)
{
    if (kind == TASK_COMPUTE)
        return MEDIUM_NONE;
    return kind == TASK_TENSOR && l->config->shares_tensor ? MEDIUM_SHARED : MEDIUM_MESSAGES;
}

/* What nodes [first, end) are the first to read of parameters, or to write of gradients. */
static void touch_buckets(const struct lowering *l, struct task *task, int first, int end)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        const struct bucket_use *f = &l->uses[b];
        const bool is_first = f->first >= first && f->first < end;
        if (is_first)
            lower_reads_all(task, MEMORY_PARAM, b);
        if (is_first && l->facts.buckets[b].columns) {
            lower_reads_own(task, MEMORY_RECORD, b, PARTITION_LANE);
            task->accesses[task->n_accesses - 1].part = RECORD_COLUMNS;
        }
        if (f->first_write >= first && f->first_write < end)
            lower_writes_own(task, is_record(l, b) ? MEMORY_RECORD : MEMORY_GRADIENT, b,
                             PARTITION_LANE);
    }
}

/* Bytes of gradients that nodes [first, end) are the first to write. */
static size_t bytes_begun(const struct lowering *l, int first, int end)
{
    size_t bytes = 0;

    for (int b = 0; b < l->program->n_buckets; b++) {
        const struct bucket_use *f = &l->uses[b];
        if (f->first_write >= first && f->first_write < end && !is_record(l, b))
            bytes += f->bytes;
    }
    return bytes;
}

/* Gradients that nodes [first, end) begin need room in the window: those that were announced first
 * must be summed, and given back, before. */
static void take_room(struct lowering *l, struct task *task, int first, int end)
{
    size_t bytes = bytes_begun(l, first, end);

    if (bytes == 0 || l->config->window == 0)
        return;
    for (int i = l->window_begin; i < l->window_end; i++)
        bytes += l->uses[l->in_window[i]].bytes;
    while (bytes > l->config->window && l->window_begin < l->window_end) {
        const int b = l->in_window[l->window_begin++];
        lower_reads_all(task, MEMORY_ROOM, b);
        bytes -= l->uses[b].bytes;
    }
}

static void touch_rest(struct lowering *l, struct task *task, int first, int end)
{
    bool writes_loss = !l->has_computed; /* a rank writes its flags before that */

    for (int n = first; n < end; n++) {
        const int g = gather_read_by(l, graph_node(l->graph, n));
        if (g >= 0)
            lower_reads_all(task, MEMORY_TABLE, g);
        if (l->table_of[n] >= 0)
            lower_writes_own(task, MEMORY_TABLE, l->table_of[n], PARTITION_LANE);
        writes_loss |= l->makes_loss[n];
    }
    if (writes_loss)
        lower_writes_own(task, MEMORY_LOSS, 0, PARTITION_LANE);
    l->has_computed = true;
}

/* When servers answer a pull. */
static void note_synchrony(struct task *task, const struct node *pull)
{
    static const char *const notes[] = { [WHEN_UNSTATED] = NULL,
                                         [WHEN_STEP] = "when all workers have pushed",
                                         [WHEN_AT_ONCE] = "at once",
                                         [WHEN_BOUNDED] = NULL };

    task->note = pull ? notes[pull->attrs.when] : NULL;
    task->bound = pull ? pull->attrs.bound : 0;
}

/* Parameters come from servers before a lane first reads them. The client behind the medium answers
 * when it has what the pushes of the last step made. */
static void add_pulls(struct lowering *l, int first, int end, bool is_once)
{
    for (int b = 0; l->config->gives && b < l->program->n_buckets; b++) {
        if (l->uses[b].first < first || l->uses[b].first >= end)
            continue;
        struct task *task = lower_add(l, TASK_PULL, MEDIUM_SERVER, PLACE_LANE, b);
        task->is_once = is_once;
        task->segment = lower_segment(l, graph_node(l->graph, l->uses[b].first));
        lower_reads_all(task, MEMORY_PARAM, b);
        note_synchrony(task, lower_pull_of(l->graph, b));
        l->program->fresh[b] = lower_number(l, task);
    }
}

/* Uses of parameters in partitions ---------------------------------------------------------- */

static bool begins_use(const struct lowering *l, int b, int n)
{
    return lower_is_held(l, b) && l->uses[b].phases[lower_phase(l, n)].first == n;
}

static bool ends_use(const struct lowering *l, int b, int n)
{
    return lower_is_held(l, b) && l->uses[b].phases[lower_phase(l, n)].last == n;
}

static bool ends_any_use(const struct lowering *l, int n)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (ends_use(l, b, n))
            return true;
    }
    return false;
}

static int add_of_use(struct lowering *l, enum task_kind kind, enum task_medium medium, int b,
                      int phase)
{
    struct task *task = lower_add(l, kind, medium, PLACE_NET, b);

    task->by_use = true;
    task->segment = phase;
    task->note = 2 * phase < lower_phases(l) ? "forward" : "backward";
    lower_writes_own(task, MEMORY_WHOLE, b, PARTITION_RAIL);
    return lower_number(l, task);
}

/* Partitions that node n is the first to read in its phase are brought. */
static void add_unshards(struct lowering *l, int n)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (!begins_use(l, b, n))
            continue;
        const int t = add_of_use(l, TASK_UNSHARD, MEDIUM_MESSAGES, b, lower_phase(l, n));
        l->program->unshard[b] = l->program->unshard[b] < 0 ? t : l->program->unshard[b];
    }
}

static void add_is_read(struct lowering *l, int b, int n)
{
    struct task *task = lower_add(l, TASK_BARRIER, MEDIUM_NONE, PLACE_LANE, b);

    task->by_use = true;
    task->segment = lower_segment(l, graph_node(l->graph, n));
    task->note = "is read";
    lower_reads_all(task, MEMORY_WHOLE, b);
    if (l->program->is_read[b] < 0)
        l->program->is_read[b] = lower_number(l, task);
}

/* Partitions that node n is the last to read in its phase are freed. */
static void add_reshards(struct lowering *l, int n)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (!ends_use(l, b, n))
            continue;
        add_is_read(l, b, n);
        add_of_use(l, TASK_RESHARD, MEDIUM_NONE, b, lower_phase(l, n));
    }
}

/* From the first reader of a phase to the last one a computation may read a bucket. */
static void read_whole(const struct lowering *l, struct task *task, int n)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        const struct phase_use *use = &l->uses[b].phases[lower_phase(l, n)];
        if (lower_is_held(l, b) && use->first >= 0 && use->first <= n && n <= use->last)
            lower_reads_all(task, MEMORY_WHOLE, b);
    }
}

/* Nodes [first, end) as one task. */
static void add_nodes(struct lowering *l, int first, int end, bool is_once)
{
    const struct node *node = graph_node(l->graph, first);
    const enum task_kind kind = kind_of(node);

    add_pulls(l, first, end, is_once);
    add_unshards(l, first);
    struct task *task = lower_add(l, kind, medium_of(l, kind), PLACE_LANE, -1);
    task->first_node = first;
    task->end_node = end;
    task->segment = lower_segment(l, node);
    task->is_once = is_once;
    touch_buckets(l, task, first, end);
    take_room(l, task, first, end);
    touch_rest(l, task, first, end);
    read_whole(l, task, first);
    add_reshards(l, end - 1);
}

/* Once a step ------------------------------------------------------------------------------ */

static void add_copy(struct lowering *l)
{
    struct task *task = NULL;

    for (int b = 0; b < l->program->n_buckets; b++) {
        if (!l->uses[b].copies_input)
            continue;
        if (!task)
            task = lower_add(l, TASK_COPY, MEDIUM_NONE, PLACE_LANE, -1);
        task->is_once = true;
        task->note = "samples";
        lower_writes_own(task, MEMORY_RECORD, b, PARTITION_LANE);
        task->accesses[task->n_accesses - 1].part = RECORD_SAMPLES;
    }
}

static void add_columns(struct lowering *l, int b)
{
    struct task *task = lower_add(l, TASK_COLUMNS, MEDIUM_SHARED, PLACE_LANE, b);

    task->is_once = true;
    lower_reads_own(task, MEMORY_PARAM, b, PARTITION_BLOCK);
    lower_reads_all(task, MEMORY_RECORD, b);
    task->accesses[task->n_accesses - 1].part = RECORD_SAMPLES;
    lower_writes_own(task, MEMORY_RECORD, b, PARTITION_BLOCK);
    task->accesses[task->n_accesses - 1].part = RECORD_COLUMNS;
}

static bool is_once(const struct lowering *l, const struct node *node)
{
    return lower_is_of_shards(l, node) && node->op->moves && node->attrs.once;
}

/* All that is sent goes before what is received is awaited: two stages may exchange parameters. */
static void add_once_moves(struct lowering *l, enum task_kind kind)
{
    for (int n = 0; n < graph_node_count(l->graph); n++) {
        const struct node *node = graph_node(l->graph, n);
        if (is_once(l, node) && kind_of(node) == kind)
            add_nodes(l, n, n + 1, true);
    }
}

static void lower_once(struct lowering *l)
{
    add_copy(l);
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (l->facts.buckets[b].columns)
            add_columns(l, b);
    }
    add_once_moves(l, TASK_SEND);
    add_once_moves(l, TASK_RECEIVE);
}

/* Once a shard ----------------------------------------------------------------------------- */

/* Lanes have added the gradients of a bucket along the tree, or written its records. */
static void add_accumulate(struct lowering *l, int b, int segment)
{
    struct task *task = lower_add(l, TASK_ACCUMULATE, MEDIUM_NONE, PLACE_LANE, b);

    task->segment = segment;
    lower_writes_own(task, is_record(l, b) ? MEMORY_RECORD : MEMORY_GRADIENT, b,
                     PARTITION_LANE);
    if (l->config->gives && l->config->is_direct && !lower_is_gathered(l, b)) {
        /* Each lane hands over its own sums; the client sends them when the last lane has. */
        task->does |= 1U << TASK_PUSH;
        task->medium = MEDIUM_SERVER;
    }
    l->program->announced[b] = l->program->ready[b] = lower_number(l, task);
    if (!is_record(l, b))
        l->in_window[l->window_end++] = b;
}

/* All shards' tables of a gather: the computations that read them wait for it. */
static void add_gather(struct lowering *l, int g)
{
    struct task *task = lower_add(l, TASK_ALL_GATHER, MEDIUM_SHARED, PLACE_LANE, -1);

    task->gather = g;
    task->note = "batch statistics";
    lower_writes_own(task, MEMORY_TABLE, g, PARTITION_LANE);
    l->program->made[g] = l->program->gathered[g] = lower_number(l, task);
    if (l->config->topology.nodes == 1)
        return;
    task = lower_add(l, TASK_ALL_GATHER, MEDIUM_MESSAGES, PLACE_NET, -1);
    task->gather = g;
    task->note = "batch statistics";
    lower_give_to_rail(task, 0);
    lower_reads_all(task, MEMORY_TABLE, g);
    lower_touch(task, MEMORY_TABLE, g, REACH_ALL, PARTITION_RAIL, true);
    l->program->gathered[g] = lower_number(l, task);
}

/* Buckets that are final after node n; of all, whatever the rank never touches, with n = -1. */
static void add_accumulates(struct lowering *l, int n, int segment)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (l->uses[b].last == n)
            add_accumulate(l, b, segment);
    }
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (l->uses[b].last == n)
            lower_bucket(l, b);
    }
}

static bool is_final_after(const struct lowering *l, int n)
{
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (l->uses[b].last == n)
            return true;
    }
    return false;
}

/* Does a computation that began at `begin` end before node n? */
static bool ends_before(const struct lowering *l, int begin, int n)
{
    const struct node *node = graph_node(l->graph, n);

    for (int b = 0; b < l->program->n_buckets; b++) {
        const struct bucket_use *f = &l->uses[b];
        if (f->first == n || begins_use(l, b, n) ||
            (f->first_write == n && l->config->releases))
            return true;
    }
    return kind_of(node) != TASK_COMPUTE || gather_read_by(l, node) >= 0 ||
           lower_segment(l, node) != lower_segment(l, graph_node(l->graph, begin));
}

static void end_node(struct lowering *l, int n)
{
    const int segment = lower_segment(l, graph_node(l->graph, n));

    if (l->table_of[n] >= 0)
        add_gather(l, l->table_of[n]);
    if (!is_final_after(l, n))
        return;
    if (l->config->clips_samples)
        lower_add(l, TASK_CLIP, MEDIUM_NONE, PLACE_LANE, -1)->note = "a sample's gradient";
    add_accumulates(l, n, segment);
}

static void lower_shards(struct lowering *l)
{
    const int count = graph_node_count(l->graph);
    int begin = -1; /* of the computation that goes on; -1: none does */

    for (int n = 0; n < count; n++) {
        const struct node *node = graph_node(l->graph, n);
        if (!lower_is_of_shards(l, node) || node->op->meets || is_once(l, node))
            continue;
        if (begin >= 0 && ends_before(l, begin, n)) {
            add_nodes(l, begin, n, false);
            begin = -1;
        }
        begin = begin < 0 ? n : begin;
        if (kind_of(node) != TASK_COMPUTE || l->table_of[n] >= 0 || is_final_after(l, n) ||
            ends_any_use(l, n)) {
            add_nodes(l, begin, n + 1, false);
            begin = -1;
            end_node(l, n);
        }
    }
    if (begin >= 0)
        add_nodes(l, begin, count, false);
    add_accumulates(l, -1, l->program->n_segments - 1);
}

void lower_lanes(struct lowering *l)
{
    const int chunks = l->config->pipeline.stages > 0 ? l->config->pipeline.chunks : 0;

    l->program->n_segments = chunks ? 2 * chunks : 1;
    lower_once(l);
    lower_shards(l);
}
