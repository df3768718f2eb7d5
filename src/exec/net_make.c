/* SPDX-License-Identifier: MIT */
/* net_make.c - making a net: its items, tags, requests and room for sums. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "exec/net.h"
#include "exec/pages.h"

enum { FLYING_MOST = 4 << 20 }; /* enough for any link to be busy */

static int partial_sums(const struct exec *exec, int node, struct tree_node *out)
{
    struct tree_stack stack;
    int64_t first, count;

    exec_node_row(exec, node, &first, &count);
    tree_stack_init(&stack, exec->config.shards);
    for (int64_t v = first; v < first + count; v++) {
        tree_stack_push(&stack, v);
        while (tree_stack_can_add(&stack))
            tree_stack_add(&stack);
    }
    for (int i = 0; i < stack.count; i++)
        out[i] = stack.node[i];
    return stack.count;
}

static void add_item(struct net *net, enum item_kind kind, int number)
{
    net->items[net->n_items++] = (struct item){ .kind = kind, .number = number };
}

/* In the order of need, the least urgent first: see run_items. */
static void list_items(struct net *net)
{
    const struct exec *exec = net->exec;
    const bool is_first = net->rail == 0;

    for (int b = 0; b < exec->buckets.count; b++) {
        if (bucket_is_served(exec, b)) {
            if (is_first)
                add_item(net, ITEM_SERVED, b);
            continue;
        }
        if (!bucket_is_gathered(exec, b) &&
            (!bucket_is_compressed(exec, b) || net_has_codec(net, b)))
            add_item(net, ITEM_BUCKET, b);
        if (!bucket_is_gathered(exec, b))
            continue;
        if (is_first)
            add_item(net, ITEM_RECORDS, b);
    }
    if (norms_are_used(exec))
        add_item(net, ITEM_NORMS, 0);
    if (exec->clips && exec->directs)
        add_item(net, ITEM_MOVES, 0);
    if (is_first) {
        add_item(net, ITEM_LOSSES, 0);
        for (int g = 0; g < exec->gathers.count; g++)
            add_item(net, ITEM_TABLE, g);
    }
    for (uint64_t left = exec->hold.buckets; left; left &= left - 1)
        add_item(net, ITEM_HOLD, __builtin_ctzll(left));
}

/* Most transfers of an item: those that must come, and the others. */
static int most_needed(const struct net *net)
{
    int count = 0;

    for (int node = 0; node < net->exec->nodes; node++)
        count += net->n_of[node];
    return 2 * (count > net->exec->nodes ? count : net->exec->nodes); /* rows: two a sum */
}

static int most_others(const struct net *net)
{
    const struct exec *exec = net->exec;
    const int sums = (2 * net->n_own + 6) * exec->nodes; /* or payloads of rounds, or rows */
    const int records = (int)exec->config.shards * (exec->factors.count + 1) * exec->nodes;
    const int pieces = 2 * exec->nodes * ((SQUARES + 1) * exec->buckets.count + 3);

    return (sums > records ? sums : records) + pieces;
}

static enum status share_requests(struct net *net)
{
    const int needed = most_needed(net), others = most_others(net);
    const int params = net->exec->nodes;
    const size_t all = (size_t)(needed + others + params) * (size_t)net->n_items;
    size_t used = 0;

    TRY(mem_alloc(all + 1, sizeof *net->requests, &net->requests));
    TRY(mem_alloc(2 * all + 2, sizeof *net->is_done, &net->is_done));
    bool *is_counted = net->is_done + all + 1;
    for (int i = 0; i < net->n_items; i++) {
        struct item *item = &net->items[i];
        item->needed = (struct transfers){ .request = net->requests + used,
                                           .is_done = net->is_done + used,
                                           .is_counted = is_counted + used,
                                           .last = -1 };
        used += (size_t)needed;
        item->others = (struct transfers){ .request = net->requests + used,
                                           .is_done = net->is_done + used,
                                           .is_counted = is_counted + used,
                                           .last = -1 };
        used += (size_t)others;
        item->params = (struct transfers){ .request = net->requests + used,
                                           .is_done = net->is_done + used,
                                           .is_counted = is_counted + used,
                                           .last = -1 };
        used += (size_t)params;
    }
    return STATUS_OK;
}

enum status net_create(struct exec *exec)
{
    struct net *net;

    TRY(mem_alloc(1, sizeof *net, &net));
    exec->net = net;
    net->exec = exec;
    net->rail = exec->rank - transport_node_first(exec->transport, exec->node);
    net->rails = net_rails(exec);
    net->flying_most = exec->config.flying_bytes ? exec->config.flying_bytes : FLYING_MOST;
    /* Lanes that wait for sums (release.c) bound what flies; who waits for them must not be held back. */
    if (exec->config.zero >= 2)
        net->flying_most = SIZE_MAX;
    net->lane = (struct lane){ .exec = exec };
    pthread_mutex_init(&net->lock, NULL);
    pthread_cond_init(&net->changed, NULL);
    TRY(mem_alloc((size_t)exec->nodes, sizeof *net->n_of, &net->n_of));
    TRY(mem_alloc((size_t)exec->nodes, sizeof *net->first_of, &net->first_of));
    TRY(mem_alloc((size_t)graph_value_count(exec->config.train) + 1, sizeof *net->shapes,
                  &net->shapes));
    TRY(mem_alloc((size_t)(2 * exec->buckets.count + exec->gathers.count + ITEM_KINDS),
                  sizeof *net->items, &net->items));
    list_items(net);
    /* Every rank takes as many tags, whatever its items are. */
    const uint32_t slots = (uint32_t)(exec->buckets.count + exec->gathers.count + 2);
    const uint32_t tags = transport_new_tags(exec->transport, 2 * ITEM_KINDS * slots);
    for (int i = 0; i < net->n_items; i++)
        net->items[i].tag =
            tags + 2 * ((uint32_t)net->items[i].kind * slots + (uint32_t)net->items[i].number);
    return STATUS_OK;
}

/* All nodes' partial sums in the order of shards: exec->parts has this node's. */
static enum status place_sums(struct net *net)
{
    struct exec *exec = net->exec;
    struct tree_node nodes[2 * TREE_DEPTH];
    size_t vectors = 0;

    net->n_own = partial_sums(exec, exec->node, net->own);
    net->n_own_parts = exec->n_parts;
    for (int node = 0; node < exec->nodes; node++) {
        net->n_of[node] = partial_sums(exec, node, nodes);
        vectors += (size_t)net->n_of[node];
    }
    TRY(mem_alloc(vectors, sizeof *net->part_of, &net->part_of));
    for (int node = 0, at = 0; node < exec->nodes; at += net->n_of[node], node++) {
        partial_sums(exec, node, nodes);
        memcpy(net->part_of + at, nodes, (size_t)net->n_of[node] * sizeof *nodes);
    }
    net->sums_bytes = vectors * exec->vector * sizeof(float);
    void *memory = mmap(NULL, net->sums_bytes + 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes for sums are refused", net->sums_bytes);
    net->sums = memory;
    if (exec->releases)
        pages_keep_small(memory, net->sums_bytes);
    float *next = net->sums + (size_t)net->n_own * exec->vector;

    struct tree_part *own = exec->parts, *all;
    TRY(mem_alloc((size_t)(exec->n_parts + (int)vectors + 1), sizeof *all, &all));
    int count = 0;
    for (int node = 0; node < exec->nodes; node++) {
        net->first_of[node] = count;
        if (node == exec->node) {
            net->own_parts = count;
            memcpy(all + count, own, (size_t)exec->n_parts * sizeof *all);
            count += exec->n_parts;
            continue;
        }
        partial_sums(exec, node, nodes);
        for (int p = 0; p < net->n_of[node]; p++, next += exec->vector)
            all[count++] = (struct tree_part){ nodes[p], next };
    }
    mem_free(own);
    exec->parts = all;
    exec->n_parts = count;
    return STATUS_OK;
}

static enum status place_states(struct net *net)
{
    const struct exec *exec = net->exec;

    if (exec->rank != 0 || !exec->config.compress.codec)
        return STATUS_OK;
    net->states_bytes = (size_t)net_states(exec) * exec->vector * sizeof(float);
    void *memory = mmap(NULL, net->states_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes for errors of compression are refused",
                    net->states_bytes);
    net->states = memory;
    return STATUS_OK;
}

enum status net_start(struct exec *exec)
{
    struct net *net = exec->net;

    if (net->rail >= net->rails || exec->config.batch == 0)
        return STATUS_OK;
    TRY(mem_alloc((size_t)exec->buckets.count + 1, sizeof *net->lane.columns,
                  &net->lane.columns));
    TRY(mem_alloc(1, reduce_scratch(&net->lane), &net->lane.scratch));
    TRY(mem_alloc(TREE_SCRATCH, sizeof *net->scratch, &net->scratch));
    TRY(place_sums(net));
    TRY(share_requests(net));
    TRY(net_codecs_create(net));
    TRY(net_unshard_create(net));
    TRY(net_rows_create(net));
    TRY(place_states(net));
    for (int i = 0; i < CHANNELS; i++) {
        char name[32];
        snprintf(name, sizeof name, "net %d", i);
        TRY(trace_add_row(exec->config.trace, name, 0, &net->rows[i]));
    }
    if (pthread_create(&net->thread, NULL, net_run, net) != 0)
        return FAIL(STATUS_NO_MEMORY, "a thread for messages to other machines is refused");
    net->is_started = true;
    return STATUS_OK;
}

void net_destroy(struct exec *exec)
{
    struct net *net = exec->net;

    if (!net)
        return;
    if (net->is_started) {
        pthread_mutex_lock(&net->lock);
        net->ends = true;
        pthread_cond_broadcast(&net->changed);
        pthread_mutex_unlock(&net->lock);
        pthread_join(net->thread, NULL);
    }
    pthread_mutex_destroy(&net->lock);
    pthread_cond_destroy(&net->changed);
    if (net->sums)
        munmap(net->sums, net->sums_bytes + 1);
    if (net->states)
        munmap(net->states, net->states_bytes);
    net_codecs_destroy(net);
    net_unshard_destroy(net);
    net_rows_destroy(net);
    mem_free(net->part_of);
    mem_free(net->lane.columns);
    mem_free(net->lane.scratch);
    mem_free(net->scratch);
    mem_free(net->requests);
    mem_free(net->is_done);
    mem_free(net->items);
    mem_free(net->shapes);
    mem_free(net->n_of);
    mem_free(net->first_of);
    mem_free(net);
    exec->net = NULL;
}
