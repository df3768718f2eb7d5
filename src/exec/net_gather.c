/* SPDX-License-Identifier: MIT */
/* net_gather.c - all_gather between nodes: records, tables of batch statistics, losses, squares for norms.
 *
 * Nothing is added or updated on the way. This node's part goes to all nodes as it lies, theirs come to
 * where they lie there, and the lanes go on as on one machine.
 */
#include "exec/net.h"

/* A message, as it lies in memory. */
struct parcel {
    char *data;
    size_t bytes;
};
/* Where parcel `which` of a node lies. */
typedef struct parcel place_fn(const struct net *net, const struct net_task *t, int node,
                               int64_t which);

static enum status exchange(struct net *net, struct net_task *t, int64_t count, place_fn *place)
{
    const struct exec *exec = net->exec;

    for (int node = 0; node < exec->topology.nodes; node++) {
        if (node == exec->topology.node)
            continue;
        const int peer = net_peer(net, node);
        for (int64_t i = 0; i < count; i++) {
            const struct parcel theirs = place(net, t, node, i);
            const struct parcel ours = place(net, t, exec->topology.node, i);
            TRY(net_receive(net, t, peer, t->tag, theirs.data, theirs.bytes));
            TRY(net_send(net, t, peer, t->tag, ours.data, ours.bytes));
        }
    }
    return STATUS_OK;
}

static struct net_most most_parcels(const struct net *net, int64_t count)
{
    const int most = net->exec->topology.nodes * (int)count;

    return (struct net_most){ most, most };
}

/* Losses ------------------------------------------------------------------------------------- */

enum { LOSS_PARCELS = 3 }; /* losses, counts of correct answers, flags */

static struct parcel place_of_losses(const struct net *net, const struct net_task *t, int node,
                                     int64_t which)
{
    const struct exec *exec = net->exec;
    const size_t slot = net->steps % 2;
    int64_t first, count;

    (void)t;
    if (which == 2) {
        const size_t rank = (size_t)transport_node_first(exec->transport, node);
        return (struct parcel){
            (char *)(exec->memory.flags + slot * (size_t)exec->topology.ranks + rank),
            (size_t)transport_node_size(exec->transport, node) * sizeof *exec->memory.flags
        };
    }
    exec_node_row(exec, node, &first, &count);
    float *numbers = which == 0 ? exec->memory.losses : exec->memory.corrects;
    return (struct parcel){ (char *)(numbers + slot * (size_t)exec->config.shards + first),
                            (size_t)count * sizeof *numbers };
}

static bool is_losses(const struct exec *exec, const struct task *task)
{
    (void)exec;
    return task->bucket < 0;
}

static struct net_most most_losses(const struct net *net, const struct task *task)
{
    (void)task;
    return most_parcels(net, LOSS_PARCELS);
}

static enum status start_losses(struct net *net, struct net_task *t)
{
    return exchange(net, t, LOSS_PARCELS, place_of_losses);
}

const struct net_row net_losses = {
    .kind = TASK_ALL_REDUCE,
    .medium = MEDIUM_MESSAGES,
    .name = "losses and flags",
    .can_run = is_losses,
    .most = most_losses,
    .start = start_losses,
};

/* Batch statistics --------------------------------------------------------------------------- */

static bool is_table(const struct exec *exec, const struct task *task)
{
    (void)exec;
    return task->gather >= 0;
}

static struct net_most most_tables(const struct net *net, const struct task *task)
{
    (void)task;
    return most_parcels(net, 1);
}

static struct parcel place_of_table(const struct net *net, const struct net_task *t, int node,
                                    int64_t which)
{
    const struct exec *exec = net->exec;
    const struct plan_gather *gather = &exec->layout.gathers.item[t->task->gather];
    int64_t first, count;

    (void)which;
    exec_node_row(exec, node, &first, &count);
    return (struct parcel){ exec->memory.tables + gather->offset +
                                (size_t)first * gather->bytes,
                            (size_t)count * gather->bytes };
}

static enum status start_table(struct net *net, struct net_task *t)
{
    return exchange(net, t, 1, place_of_table);
}

const struct net_row net_tables = {
    .kind = TASK_ALL_GATHER,
    .medium = MEDIUM_MESSAGES,
    .name = "all_gather of batch statistics",
    .can_run = is_table,
    .most = most_tables,
    .start = start_table,
};

/* Norms -------------------------------------------------------------------------------------- */

/* Squares of a table whose rows nodes own: the first rail has summed them. */
static struct parcel place_of_row_squares(const struct net *net, int b, int node)
{
    const struct exec *exec = net->exec;

    if (net->rail != 0 || !bucket_is_served(&exec->layout, b))
        return (struct parcel){ NULL, 0 };
    return (struct parcel){ (char *)net_row_squares(exec, b, node), sizeof(struct exact_sum) };
}

/* which: of each bucket each array of squares, then of each bucket the rows'. */
static struct parcel place_of_squares(const struct net *net, const struct net_task *t, int node,
                                      int64_t which)
{
    const struct exec *exec = net->exec;
    const int b = (int)which / SQUARES, before = SQUARES * exec->layout.buckets.count;
    const bool early = t->number == exec->program->norm,
               late = exec->layout.facts.rule.clips && exec->layout.facts.rule.directs;

    if (which >= before)
        return place_of_row_squares(net, (int)which - before, node);
    if (exec->config.compress.codec) /* every node has all of them */
        return (struct parcel){ NULL, 0 };
    double *const arrays[SQUARES] = {
        early && (exec->layout.facts.rule.clips || !exec->layout.facts.rule.directs)
            ? exec->norms.gradients
            : NULL,
        early && exec->layout.facts.rule.adapts ? exec->norms.params : NULL,
        exec->layout.facts.rule.directs && early != late ? exec->norms.moves : NULL,
    };
    double *array = arrays[which % SQUARES];
    int64_t begin, end;

    if (!array)
        return (struct parcel){ NULL, 0 };
    net_stretches(net, b, node, net->rail, &begin, &end);
    const struct piece_range range = norms_pieces(&exec->sums, b, begin, end);
    return (struct parcel){ (char *)(array + range.begin),
                            (size_t)(range.end - range.begin) * sizeof *array };
}

static int64_t count_squares(const struct net *net)
{
    return (SQUARES + 1) * net->exec->layout.buckets.count;
}

static struct net_most most_squares(const struct net *net, const struct task *task)
{
    (void)task;
    return most_parcels(net, count_squares(net));
}

static enum status start_norm(struct net *net, struct net_task *t)
{
    const bool is_first = t->number == net->exec->program->norm;
    const int64_t count =
        is_first ? count_squares(net) : SQUARES * net->exec->layout.buckets.count;

    return exchange(net, t, count, place_of_squares);
}

const struct net_row net_norm = {
    .kind = TASK_NORM,
    .medium = MEDIUM_MESSAGES,
    .name = "norm",
    .most = most_squares,
    .start = start_norm,
};

/* Records ------------------------------------------------------------------------------------ */

static bool is_record(const struct exec *exec, const struct task *task)
{
    return task->bucket >= 0 && bucket_is_gathered(&exec->layout, task->bucket);
}

static struct net_most most_records(const struct net *net, const struct task *task)
{
    const struct exec *exec = net->exec;
    const int most =
        (int)exec->config.shards * exec->layout.factors.count * exec->topology.nodes;

    (void)task;
    return (struct net_most){ most, most };
}

/* Does a factor travel with bucket b? With the first one that it serves: lanes take buckets in order. */
static bool travels_with(const struct plan_factor *factor, int b)
{
    return factor->buckets && __builtin_ctzll(factor->buckets) == b;
}

static enum status start_records(struct net *net, struct net_task *t)
{
    const struct exec *exec = net->exec;

    for (int i = 0; i < exec->layout.factors.count; i++) {
        const struct plan_factor *factor = &exec->layout.factors.item[i];
        const struct value *value = factor->value;
        if (!travels_with(factor, t->task->bucket))
            continue;
        const size_t bytes =
            (size_t)shape_count(&net->shapes[value->id]) * dtype_size(value->dtype);
        for (int64_t v = 0; v < exec->config.shards; v++) {
            char *data =
                exec->memory.records + (size_t)v * exec->layout.record + factor->offset;
            for (int node = 0; node < exec->topology.nodes; node++) {
                int64_t first, count;
                exec_node_row(exec, node, &first, &count);
                const bool has_it = v >= first && v < first + count;
                exec_node_row(exec, exec->topology.node, &first, &count);
                const bool is_own = v >= first && v < first + count;
                const int peer = net_peer(net, node);
                if (node != exec->topology.node && is_own)
                    TRY(net_send(net, t, peer, t->tag, data, bytes));
                else if (node != exec->topology.node && has_it)
                    TRY(net_receive(net, t, peer, t->tag, data, bytes));
            }
        }
    }
    return STATUS_OK;
}

const struct net_row net_records = {
    .kind = TASK_ALL_GATHER,
    .medium = MEDIUM_MESSAGES,
    .name = "all_gather of records",
    .can_run = is_record,
    .most = most_records,
    .start = start_records,
};
