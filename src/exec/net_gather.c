/* SPDX-License-Identifier: MIT */
/* net_gather.c - what every node gets of every other in a step: records, tables, losses, squares.
 *
 * Nothing is added or updated on the way: this node's part goes to all nodes as it lies, theirs come to where they lie
 * there, and lanes proceed as on one machine when all are here. net.c says when each begins and what is raised then.
 */
#include "exec/net.h"

/* This node's parcel goes to every other node, theirs come to where `place` says. */
struct parcel {
    char *data;
    size_t bytes;
};
typedef struct parcel place_fn(const struct net *net, const struct item *item, int node,
                               int64_t which);

static enum status swap_parcels(struct net *net, struct item *item, int64_t count,
                                place_fn *place)
{
    const struct exec *exec = net->exec;

    for (int node = 0; node < exec->nodes; node++) {
        if (node == exec->node)
            continue;
        for (int64_t i = 0; i < count; i++) {
            const struct parcel theirs = place(net, item, node, i);
            const struct parcel ours = place(net, item, exec->node, i);
            TRY(net_transfer(net, &item->others, false, net_peer(net, node), item->tag,
                             theirs.data, theirs.bytes));
            TRY(net_transfer(net, &item->others, true, net_peer(net, node), item->tag,
                             ours.data, ours.bytes));
        }
    }
    return STATUS_OK;
}

static struct parcel place_of_losses(const struct net *net, const struct item *item, int node,
                                     int64_t which)
{
    const struct exec *exec = net->exec;
    const size_t slot = net->steps % 2;
    int64_t first, count;

    (void)item;
    if (which == 2) {
        const size_t rank = (size_t)transport_node_first(exec->transport, node);
        return (struct parcel){ (char *)(exec->flags + slot * (size_t)exec->ranks + rank),
                                (size_t)transport_node_size(exec->transport, node) *
                                    sizeof *exec->flags };
    }
    exec_node_row(exec, node, &first, &count);
    float *numbers = which == 0 ? exec->losses : exec->corrects;
    return (struct parcel){ (char *)(numbers + slot * (size_t)exec->config.shards + first),
                            (size_t)count * sizeof *numbers };
}

static struct parcel place_of_table(const struct net *net, const struct item *item, int node,
                                    int64_t which)
{
    const struct exec *exec = net->exec;
    const struct plan_gather *gather = &exec->gathers.item[item->number];
    int64_t first, count;

    (void)which;
    exec_node_row(exec, node, &first, &count);
    return (struct parcel){ exec->tables + gather->offset + (size_t)first * gather->bytes,
                            (size_t)count * gather->bytes };
}

/* Of a table whose rows nodes own, of which the first rail has the sums. */
static struct parcel place_of_row_squares(const struct net *net, int b, int node)
{
    const struct exec *exec = net->exec;

    if (net->rail != 0 || !bucket_is_served(exec, b))
        return (struct parcel){ NULL, 0 };
    return (struct parcel){ (char *)net_row_squares(exec, b, node), sizeof(struct exact_sum) };
}

/* which: of each bucket each array of squares, then of each bucket the rows'. */
static struct parcel place_of_squares(const struct net *net, const struct item *item, int node,
                                      int64_t which)
{
    const struct exec *exec = net->exec;
    const int b = (int)which / SQUARES, before = SQUARES * exec->buckets.count;
    const bool early = item->kind == ITEM_NORMS, late = exec->clips && exec->directs;

    if (which >= before)
        return place_of_row_squares(net, (int)which - before, node);
    if (exec->config.compress.codec) /* every node has all of them */
        return (struct parcel){ NULL, 0 };
    double *const arrays[SQUARES] = {
        early && (exec->clips || !exec->directs) ? exec->norms.gradients : NULL,
        early && exec->adapts ? exec->norms.params : NULL,
        exec->directs && early != late ? exec->norms.moves : NULL,
    };
    double *array = arrays[which % SQUARES];
    int64_t begin, end;

    if (!array)
        return (struct parcel){ NULL, 0 };
    net_stretches(net, b, node, net->rail, &begin, &end);
    const struct piece_range range = norms_pieces(exec, b, begin, end);
    return (struct parcel){ (char *)(array + range.begin),
                            (size_t)(range.end - range.begin) * sizeof *array };
}

/* Does a factor travel with bucket b? With the first one that it serves: lanes take buckets in order. */
static bool travels_with(const struct plan_factor *factor, int b)
{
    return factor->buckets && __builtin_ctzll(factor->buckets) == b;
}

static enum status begin_records(struct net *net, struct item *item)
{
    const struct exec *exec = net->exec;

    for (int i = 0; i < exec->factors.count; i++) {
        const struct plan_factor *factor = &exec->factors.item[i];
        const struct value *value = factor->value;
        if (!travels_with(factor, item->number))
            continue;
        const size_t bytes =
            (size_t)shape_count(&net->shapes[value->id]) * dtype_size(value->dtype);
        for (int64_t v = 0; v < exec->config.shards; v++) {
            char *data = exec->records + (size_t)v * exec->record + factor->offset;
            for (int node = 0; node < exec->nodes; node++) {
                int64_t first, count;
                exec_node_row(exec, node, &first, &count);
                const bool has_it = v >= first && v < first + count;
                exec_node_row(exec, exec->node, &first, &count);
                const bool is_own = v >= first && v < first + count;
                if (node != exec->node && (has_it || is_own))
                    TRY(net_transfer(net, &item->others, is_own, net_peer(net, node), item->tag,
                                     data, bytes));
            }
        }
    }
    return STATUS_OK;
}

enum status net_gather_begin(struct net *net, struct item *item)
{
    const int64_t buckets = net->exec->buckets.count;

    switch (item->kind) {
    case ITEM_RECORDS:
        return begin_records(net, item);
    case ITEM_TABLE:
        return swap_parcels(net, item, 1, place_of_table);
    case ITEM_LOSSES:
        return swap_parcels(net, item, 3, place_of_losses);
    case ITEM_NORMS:
        return swap_parcels(net, item, (SQUARES + 1) * buckets, place_of_squares);
    case ITEM_MOVES:
        return swap_parcels(net, item, SQUARES * buckets, place_of_squares);
    case ITEM_BUCKET:
    case ITEM_SERVED:
    case ITEM_HOLD:
    case ITEM_KINDS:
        break;
    }
    BUG_ON(true); /* nothing of it is gathered */
    return STATUS_OK;
}
