/* SPDX-License-Identifier: MIT */
/* net_gather.c - all_gather between nodes: records, tables of batch statistics, losses, squares for
 * norms.
 *
 * Nothing is added or updated on the way. This node's part goes to all nodes as it lies, theirs
 * come to where they lie there, and the lanes go on as on one machine.
 */
#include "exec/layout.h"
#include "exec/net.h"
#include "exec/norms.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"

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

    for (int node = 0; node < net->topology->nodes; node++)
        net->exchange.members[node].count = 1;
    const int n = exchange_all_gather(net->exchange.members, net->topology->nodes,
                                      net->topology->node, net->exchange.transfers);
    for (int i = 0; i < n; i++) {
        const struct exchange_transfer *x = &net->exchange.transfers[i];
        const int peer = net_peer(net, x->member);
        for (int64_t which = 0; which < count; which++) {
            const struct parcel p =
                place(net, t, x->is_send ? net->topology->node : x->member, which);
            if (x->is_send)
                TRY(net_send(net, t, peer, t->tag, p.data, p.bytes));
            else
                TRY(net_receive(net, t, peer, t->tag, p.data, p.bytes));
        }
    }
    return STATUS_OK;
}

static struct net_most most_parcels(const struct net *net, int64_t count)
{
    const int most = net->topology->nodes * (int)count;

    return (struct net_most){ most, most };
}

/* Losses ------------------------------------------------------------------------------------- */

enum { LOSS_PARCELS = 3 }; /* losses, counts of correct answers, flags */

static struct parcel place_of_losses(const struct net *net, const struct net_task *t, int node,
                                     int64_t which)
{
    const size_t slot = net->steps % 2;
    int64_t first, count;

    (void)t;
    if (which == 2) {
        const size_t rank = (size_t)transport_node_first(net->transport, node);
        return (struct parcel){
            (char *)(net->memory->flags + slot * (size_t)net->topology->ranks + rank),
            (size_t)transport_node_size(net->transport, node) * sizeof *net->memory->flags
        };
    }
    topology_node_row(net->topology, net->transport, node, &first, &count);
    float *numbers = which == 0 ? net->memory->losses : net->memory->corrects;
    return (struct parcel){ (char *)(numbers + slot * (size_t)net->worker.sums->config->shards +
                                     first),
                            (size_t)count * sizeof *numbers };
}

static bool is_losses(const struct net *net, const struct task *task)
{
    (void)net;
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

static bool is_table(const struct net *net, const struct task *task)
{
    (void)net;
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
    const struct plan_gather *gather = &net->layout->gathers.item[t->task->gather];
    int64_t first, count;

    (void)which;
    topology_node_row(net->topology, net->transport, node, &first, &count);
    return (struct parcel){ net->memory->tables + gather->offset +
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

    if (net->rail != 0 || !bucket_is_served(net->layout, b))
        return (struct parcel){ NULL, 0 };
    return (struct parcel){ (char *)net_row_squares(net, b, node), sizeof(struct exact_sum) };
}

/* which: of each bucket each array of squares, then of each bucket the rows'. */
static struct parcel place_of_squares(const struct net *net, const struct net_task *t, int node,
                                      int64_t which)
{
    const int b = (int)which / SQUARES, before = SQUARES * net->layout->buckets.count;
    const bool early = t->number == net->program->norm,
               late = net->layout->facts.rule.clips && net->layout->facts.rule.directs;

    if (which >= before)
        return place_of_row_squares(net, (int)which - before, node);
    if (net->worker.sums->config->compress.codec) /* every node has all of them */
        return (struct parcel){ NULL, 0 };
    double *const arrays[SQUARES] = {
        early && (net->layout->facts.rule.clips || !net->layout->facts.rule.directs)
            ? net->worker.sums->norms->gradients
            : NULL,
        early && net->layout->facts.rule.adapts ? net->worker.sums->norms->params : NULL,
        net->layout->facts.rule.directs && early != late ? net->worker.sums->norms->moves
                                                         : NULL,
    };
    double *array = arrays[which % SQUARES];
    int64_t begin, end;

    if (!array)
        return (struct parcel){ NULL, 0 };
    net_stretches(net, b, node, net->rail, &begin, &end);
    const struct piece_range range = norms_pieces(net->worker.sums, b, begin, end);
    return (struct parcel){ (char *)(array + range.begin),
                            (size_t)(range.end - range.begin) * sizeof *array };
}

static int64_t count_squares(const struct net *net)
{
    return (SQUARES + 1) * net->layout->buckets.count;
}

static struct net_most most_squares(const struct net *net, const struct task *task)
{
    (void)task;
    return most_parcels(net, count_squares(net));
}

static enum status start_norm(struct net *net, struct net_task *t)
{
    const bool is_first = t->number == net->program->norm;
    const int64_t count = is_first ? count_squares(net) : SQUARES * net->layout->buckets.count;

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

static bool is_record(const struct net *net, const struct task *task)
{
    return task->bucket >= 0 && bucket_is_gathered(net->layout, task->bucket);
}

static struct net_most most_records(const struct net *net, const struct task *task)
{
    const int most = (int)net->worker.sums->config->shards * net->layout->factors.count *
                     net->topology->nodes;

    (void)task;
    return (struct net_most){ most, most };
}

/* Does a factor travel with bucket b? With the first one that it serves: lanes take buckets in
 * order. */
static bool travels_with(const struct plan_factor *factor, int b)
{
    return factor->buckets && __builtin_ctzll(factor->buckets) == b;
}

static enum status start_records(struct net *net, struct net_task *t)
{

    for (int i = 0; i < net->layout->factors.count; i++) {
        const struct plan_factor *factor = &net->layout->factors.item[i];
        const struct value *value = factor->value;
        if (!travels_with(factor, t->task->bucket))
            continue;
        const size_t bytes =
            (size_t)shape_count(&net->shapes.of[value->id]) * dtype_size(value->dtype);
        for (int64_t v = 0; v < net->worker.sums->config->shards; v++) {
            char *data =
                net->memory->records + (size_t)v * net->layout->record + factor->offset;
            for (int node = 0; node < net->topology->nodes; node++) {
                int64_t first, count;
                topology_node_row(net->topology, net->transport, node, &first, &count);
                const bool has_it = v >= first && v < first + count;
                topology_node_row(net->topology, net->transport, net->topology->node, &first,
                                  &count);
                const bool is_own = v >= first && v < first + count;
                const int peer = net_peer(net, node);
                if (node != net->topology->node && is_own)
                    TRY(net_send(net, t, peer, t->tag, data, bytes));
                else if (node != net->topology->node && has_it)
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
