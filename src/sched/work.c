/* SPDX-License-Identifier: MIT */
/* work.c - bytes, messages, additions and updates of the tasks of a step program.
 *
 * With a bucket of P bytes, N nodes of R ranks and L lanes, and S shards:
 *
 *   reduce_scatter  shared     adds L P; reads P (L - L/R) that other ranks wrote
 *                   messages   sends (N-1)/N P; adds the lanes' sums, and N of its own part
 *   update          shared     P;  messages  P / N
 *   all_gather      shared     reads P; messages  sends (N-1)/N P
 *                   records    sends (N-1) S/N r, r bytes of records a shard
 *   all_reduce      compressed sends (N-1) c P to all, who add N
 *   unshard         messages   (N-1)/N P as often as the bucket is read, unless it stays
 *   tensor          of T ranks that share layers: a sum of V bytes sends 2 (T-1)/T V, through
 *                   shared memory (T-1) V; slices of V/T bytes go to T-1 ranks
 *   push, pull      of rows    those that occur: to their owners, and back to all
 *   average         between steps  P to each neighbor, or 2 (n-1)/n P of n workers
 *
 * Bytes to and from servers, and of their own tasks, are not known here.
 *
 * A job of several nodes counts bytes of messages alone, as the executor does.
 */
#include "sched/work.h"

#include <math.h>

#include "base/mem.h"
#include "graph/op.h"
#include "kernel/joint.h"
#include "kernel/tree.h"
#include "pass/pass.h"

/* A bucket, and what its gradient is made from. */
struct bucket_work {
    double bytes;
    const struct node *sum; /* of factors or rows; NULL: partial sums are added */
};

struct reading {
    const struct program *program;
    const struct graph *graph;
    const struct work_config *config;
    const struct lower_topology *topology;
    double lanes;       /* of a node */
    double node_shards; /* of a node */
    double total;       /* bytes of buckets that are held in parts */
    struct bucket_work buckets[GRAPH_NODE_IN];
};

static double bytes_of(const struct value *value)
{
    return (double)shape_count(&value->shape) * (double)dtype_size(value->dtype);
}

static bool does(const struct task *task, enum task_kind kind)
{
    return task->does >> kind & 1;
}

/* The node that sums a bucket's factors or rows; NULL: there is none. */
static const struct node *sum_of(const struct graph *graph, int bucket)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if ((node->op == &op_factor_sum || node->op == &op_row_sum) &&
            node->attrs.bucket == bucket)
            return node;
    }
    return NULL;
}

bool work_is_gathered(const struct graph *graph, int bucket)
{
    return sum_of(graph, bucket) != NULL;
}

double work_dense_bytes(const struct graph *graph)
{
    double bytes = 0;

    for (int b = 0; b < pass_bucket_count(graph); b++) {
        if (!work_is_gathered(graph, b))
            bytes += bytes_of(pass_bucket_value(graph, b, "param"));
    }
    return bytes;
}

static void read_buckets(struct reading *r)
{
    for (int b = 0; b < r->program->n_buckets; b++) {
        const struct value *param = pass_bucket_value(r->graph, b, "param");
        r->buckets[b] =
            (struct bucket_work){ param ? bytes_of(param) : 0, sum_of(r->graph, b) };
        r->total += r->program->unshard[b] >= 0 ? r->buckets[b].bytes : 0;
    }
}

/* Records ------------------------------------------------------------------------------------ */

/* Bytes of a shard that stand for its gradient. */
static double record_bytes(const struct node *sum)
{
    double bytes = 0;

    for (int i = 0; i < sum->n_in; i++)
        bytes += bytes_of(sum->in[i]);
    return bytes;
}

/* Lookups of a shard in a table, and floats of a row. */
static double entries_of(const struct node *sum)
{
    return (double)shape_count(&sum->in[0]->shape) / 2;
}

static double width_of(const struct node *sum)
{
    const struct shape *dy = &sum->in[2]->shape;

    return (double)dy->dim[dy->rank - 1];
}

/* If lanes compute columns of a first layer, x goes to all lanes; else the weights do. */
static double factors_read(const struct reading *r, const struct task *task,
                           const struct node *sum)
{
    const double ranks = r->topology->node_ranks;
    const double k = (double)sum->in[0]->shape.dim[1], n = (double)sum->in[1]->shape.dim[1];
    const double samples = (double)r->config->shards * (double)sum->in[0]->shape.dim[0];
    bool has_columns = false;

    for (int t = 0; t < r->program->n_tasks; t++) {
        const struct task *other = &r->program->tasks[t];
        has_columns |= other->kind == TASK_COLUMNS && other->bucket == task->bucket;
    }
    const double floats =
        has_columns ? samples * (k + n / ranks + n / ranks) : samples * (k / ranks + n) + k * n;
    return 4 * (ranks - 1) * floats;
}

/* Other shards' ids and dy of a rank's rows, and the updated rows that it looks up. */
static double rows_read(const struct reading *r, const struct node *sum)
{
    const double ranks = r->topology->node_ranks, entries = entries_of(sum);
    const double others = 2 * entries + entries * width_of(sum) / ranks;
    const double own = entries * width_of(sum) / ranks;

    return 4 * (double)r->config->shards * (ranks - 1) * (others + own);
}

/* Different rows that so many shards look up at most. */
static double rows_seen(const struct node *sum, double shards)
{
    return fmin(shards * entries_of(sum), (double)sum->attrs.rows);
}

/* Bytes of parameters that an update of a bucket moves: of a table the rows that occur. */
static double updated_bytes(const struct reading *r, int bucket)
{
    const struct bucket_work *b = &r->buckets[bucket];
    const bool has_rows = b->sum && b->sum->op == &op_row_sum;

    return has_rows ? 4 * width_of(b->sum) * rows_seen(b->sum, (double)r->config->shards)
                    : b->bytes;
}

/* Lanes -------------------------------------------------------------------------------------- */

static struct task_work work_of_lanes_sum(const struct reading *r, const struct task *task)
{
    const struct bucket_work *b = &r->buckets[task->bucket];
    const double ranks = r->topology->node_ranks;
    const bool is_counted = r->topology->nodes == 1 && task->medium == MEDIUM_SHARED;
    struct task_work work = { 0 };

    if (b->sum) {
        work.read =
            b->sum->op == &op_row_sum ? rows_read(r, b->sum) : factors_read(r, task, b->sum);
    } else {
        work.summed = r->lanes * b->bytes;
        work.read = b->bytes * (r->lanes - r->lanes / ranks + ranks - 1);
    }
    work.read = is_counted ? work.read : 0;
    work.updated = does(task, TASK_UPDATE) ? updated_bytes(r, task->bucket) : 0;
    return work;
}

/* A shard's message to another stage. */
static double moved_bytes(const struct reading *r, const struct task *task)
{
    const struct node *node = graph_node(r->graph, task->first_node);
    const double shards = task->is_once ? r->lanes : r->node_shards;

    return task->kind == TASK_SEND ? shards * bytes_of(node->in[0]) : 0;
}

/* Bytes that a rank sends its peers in one exchange of a shard. */
static double exchanged_bytes(const struct reading *r, const struct task *task)
{
    const struct node *node = graph_node(r->graph, task->first_node);
    const double bytes = bytes_of(node->in[0]), peers = r->config->tensor - 1;
    const struct shape *in = &node->in[0]->shape;
    const double rows = (double)shape_count(in) / (double)in->dim[in->rank - 1];
    const bool is_whole = task->medium == MEDIUM_SHARED || bytes <= WORK_SHORT_SUM;

    if (node->op == &op_tp_sum)
        return peers * (is_whole ? bytes : bytes / r->config->tensor);
    if (node->op == &op_tp_gather)
        return peers * bytes;
    if (node->op == &op_tp_sum_slice)
        return peers * (task->medium == MEDIUM_SHARED ? bytes : bytes / r->config->tensor);
    if (node->op == &op_tp_token_loss)
        return peers * rows * JOINT_LOSS_NUMBERS * sizeof(float);
    return node->op == &op_tp_token_accuracy ? peers * rows * sizeof(struct joint_answer) : 0;
}

/* A sum by messages is made in parts, which then go to all: two exchanges. */
static struct task_work work_of_tensor(const struct reading *r, const struct task *task)
{
    const struct node *node = graph_node(r->graph, task->first_node);
    const bool in_parts = node->op == &op_tp_sum && task->medium != MEDIUM_SHARED &&
                          bytes_of(node->in[0]) > WORK_SHORT_SUM;
    const double bytes = r->config->tensor > 1 ? exchanged_bytes(r, task) : 0;
    const double times = r->node_shards * (in_parts ? 2 : 1);

    return (struct task_work){ .messages = bytes > 0 ? times * (r->config->tensor - 1) : 0,
                               .sent = times * bytes };
}

static struct task_work work_of_lanes(const struct reading *r, const struct task *task)
{
    const bool releases = task->bucket >= 0 && r->program->summed[task->bucket] >= 0;

    switch (task->kind) {
    case TASK_REDUCE_SCATTER:
    case TASK_SUM_FACTORS:
    case TASK_SUM_ROWS:
        return work_of_lanes_sum(r, task);
    case TASK_UPDATE:
        return (struct task_work){ .updated = updated_bytes(r, task->bucket) };
    case TASK_ACCUMULATE:
        return (struct task_work){ .released = releases && !r->buckets[task->bucket].sum
                                                   ? r->buckets[task->bucket].bytes
                                                   : 0 };
    case TASK_SEND:
    case TASK_RECEIVE:
        return (struct task_work){ .sent = moved_bytes(r, task) };
    case TASK_TENSOR:
        return work_of_tensor(r, task);
    default:
        return (struct task_work){ 0 };
    }
}

/* Inter-node threads ------------------------------------------------------------------------- */

/* Messages to all other nodes, `times` each. */
static double to_others(const struct reading *r, double times)
{
    return times * (r->topology->nodes - 1);
}

/* Partial sums that a node's row of shards ends with: one for each largest subtree in it. */
static int subtrees_of(const struct reading *r)
{
    const int64_t shards = r->config->shards;
    struct tree_node sums[2 * TREE_DEPTH];
    const int count = tree_row(shards, 0, shards / r->topology->nodes, sums);

    return count > 0 ? count : 1;
}

static struct task_work work_of_net_sum(const struct reading *r, const struct task *task)
{
    const double nodes = r->topology->nodes, bytes = r->buckets[task->bucket].bytes;
    const double sums = subtrees_of(r), theirs = (nodes - 1) / nodes * bytes;
    const bool is_made = r->lanes > sums; /* else the lanes' own are sent */

    return (struct task_work){
        .messages = to_others(r, sums),
        .sent = sums * theirs,
        .summed =
            (is_made ? r->lanes * theirs : 0) + (r->lanes + (nodes - 1) * sums) * bytes / nodes,
        .updated = does(task, TASK_UPDATE) ? bytes / nodes : 0,
    };
}

static struct task_work work_of_all_reduce(const struct reading *r, const struct task *task)
{
    if (task->bucket < 0) /* losses, correct answers, flags */
        return (struct task_work){ .messages = to_others(r, 3),
                                   .sent = to_others(r, 8 * r->node_shards +
                                                            4 * r->topology->node_ranks) };
    const double bytes = r->buckets[task->bucket].bytes;
    return (struct task_work){ .messages = to_others(r, 1),
                               .sent = to_others(r, r->config->compressed * bytes),
                               .summed = (r->lanes + r->topology->nodes) * bytes,
                               .updated = does(task, TASK_UPDATE) ? bytes : 0 };
}

/* Tables of batch statistics. */
static double table_bytes(const struct reading *r, int gather)
{
    int number = 0;

    for (int n = 0; n < graph_node_count(r->graph); n++) {
        const struct node *node = graph_node(r->graph, n);
        if (node->op->meets && number++ == gather)
            return bytes_of(node->in[0]);
    }
    return 0;
}

static struct task_work work_of_all_gather(const struct reading *r, const struct task *task)
{
    const double nodes = r->topology->nodes;

    if (task->gather >= 0)
        return (struct task_work){
            .messages = to_others(r, 1),
            .sent = to_others(r, r->node_shards * table_bytes(r, task->gather)),
        };
    const struct bucket_work *b = &r->buckets[task->bucket];
    if (b->sum)
        return (struct task_work){
            .messages = to_others(r, b->sum->n_in * r->node_shards),
            .sent = to_others(r, r->node_shards * record_bytes(b->sum)),
        };
    if (task->note) /* "no bytes" */
        return (struct task_work){ 0 };
    return (struct task_work){ .messages = to_others(r, 1),
                               .sent = (nodes - 1) / nodes * b->bytes };
}

/* Is the task of the first use of its bucket in a step? */
static bool is_first_use(const struct reading *r, const struct task *task)
{
    for (const struct task *t = r->program->tasks; t < task; t++) {
        if (t->kind == task->kind && t->by_use && t->bucket == task->bucket)
            return false;
    }
    return true;
}

/* How often the other nodes' partitions come for one phase of a step: forward or backward of each
 * shard of a lane. Partitions that fit the window stay from use to use, so they come for the first
 * alone. */
static double times_of_use(const struct reading *r, const struct task *task)
{
    const double uses = ceil(r->node_shards / r->lanes);
    const double stays = fmin(r->config->window / r->total, 1);
    const bool is_first = is_first_use(r, task);

    return is_first ? uses - (uses - 1) * stays : uses * (1 - stays);
}

static struct task_work work_of_use(const struct reading *r, const struct task *task)
{
    const double nodes = r->topology->nodes, times = times_of_use(r, task);
    const double bytes = times * (nodes - 1) / nodes * r->buckets[task->bucket].bytes;

    if (task->kind == TASK_RESHARD)
        return (struct task_work){ .released = bytes };
    return (
        struct task_work){ .messages = to_others(r, 2 * times), .sent = bytes, .times = times };
}

/* An id, its place and a row; a count before them. */
static struct task_work work_of_rows(const struct reading *r, const struct task *task)
{
    const struct node *sum = r->buckets[task->bucket].sum;
    const double nodes = r->topology->nodes, row = 4 * (2 + width_of(sum));
    const double on_node = rows_seen(sum, r->node_shards);
    const double on_all = rows_seen(sum, (double)r->config->shards);
    const bool pushes = task->kind == TASK_PUSH;

    return (struct task_work){
        .messages = to_others(r, 3),
        .sent = (pushes ? (nodes - 1) / nodes * on_node : (nodes - 1) * on_all / nodes) * row,
        .summed = pushes ? (r->node_shards * entries_of(sum) + on_node) * row : on_all * row,
        .updated = does(task, TASK_UPDATE) ? on_all / nodes * row : 0,
    };
}

/* After a norm: each node updates its part; of what is compressed, everything. */
static struct task_work work_of_update(const struct reading *r, const struct task *task)
{
    const bool is_whole = task->rail >= 0 && !r->buckets[task->bucket].sum;
    const double parts = is_whole ? 1 : r->topology->nodes;

    return (struct task_work){ .updated = updated_bytes(r, task->bucket) / parts };
}

static struct task_work work_of_net(const struct reading *r, const struct task *task)
{
    switch (task->kind) {
    case TASK_REDUCE_SCATTER:
        return work_of_net_sum(r, task);
    case TASK_ALL_REDUCE:
        return work_of_all_reduce(r, task);
    case TASK_ALL_GATHER:
        return work_of_all_gather(r, task);
    case TASK_UNSHARD:
    case TASK_RESHARD:
        return work_of_use(r, task);
    case TASK_PUSH:
    case TASK_PULL:
        return work_of_rows(r, task);
    case TASK_NORM:
        return (struct task_work){ .messages = to_others(r, 1) };
    case TASK_UPDATE:
        return work_of_update(r, task);
    default:
        return (struct task_work){ 0 };
    }
}

/* Between steps ------------------------------------------------------------------------------ */

/* Averages of workers: with neighbors a worker sends its parameters to each; the mean of all is an
 * all_reduce in two parts. */
static struct task_work work_of_average(const struct reading *r, const struct task *task)
{
    const double bytes = r->buckets[task->bucket].bytes, n = r->program->workers.count;
    const double times = task->peers.count > 0 ? task->peers.count : 2 * (n - 1) / n;

    return (struct task_work){
        .messages = task->peers.count > 0 ? task->peers.count : 2 * (n - 1),
        .sent = times * bytes,
        .summed = (task->peers.count > 0 ? task->peers.count : 1) * bytes,
    };
}

/* All tasks ---------------------------------------------------------------------------------- */

enum status program_work(const struct program *program, const struct graph *graph,
                         const struct work_config *config, struct task_work *out)
{
    struct reading *r;

    TRY(mem_alloc(1, sizeof *r, &r));
    *r = (struct reading){
        .program = program, .graph = graph, .config = config, .topology = &program->topology
    };
    r->lanes = r->topology->lanes * r->topology->node_ranks;
    r->node_shards = (double)config->shards / r->topology->nodes;
    read_buckets(r);
    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        if (!task_is_listed(task) || task->medium == MEDIUM_SERVER ||
            task->place == PLACE_SERVER)
            out[t] = (struct task_work){ 0 };
        else if (task->place == PLACE_HOST)
            out[t] = work_of_average(r, task);
        else
            out[t] = task->place == PLACE_NET ? work_of_net(r, task) : work_of_lanes(r, task);
    }
    mem_free(r);
    return STATUS_OK;
}
