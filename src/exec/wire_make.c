/* SPDX-License-Identifier: MIT */
/* wire_make.c - making a wire: its items, tags, requests and room for sums. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "exec/pages.h"
#include "exec/wire.h"

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

static void add_item(struct wire *wire, enum item_kind kind, int number)
{
    wire->items[wire->n_items++] = (struct item){ .kind = kind, .number = number };
}

/* In the order of need, the least urgent first: see run_items. */
static void list_items(struct wire *wire)
{
    const struct exec *exec = wire->exec;
    const bool is_first = wire->rail == 0;

    for (int b = 0; b < exec->buckets.count; b++) {
        if (bucket_is_served(exec, b)) {
            if (is_first)
                add_item(wire, ITEM_SERVED, b);
            continue;
        }
        if (!bucket_is_gathered(exec, b) &&
            (!bucket_is_compressed(exec, b) || wire_has_codec(wire, b)))
            add_item(wire, ITEM_BUCKET, b);
        if (!bucket_is_gathered(exec, b))
            continue;
        if (is_first)
            add_item(wire, ITEM_RECORDS, b);
    }
    if (norms_are_used(exec))
        add_item(wire, ITEM_NORMS, 0);
    if (exec->clips && exec->directs)
        add_item(wire, ITEM_MOVES, 0);
    if (is_first) {
        add_item(wire, ITEM_LOSSES, 0);
        for (int g = 0; g < exec->gathers.count; g++)
            add_item(wire, ITEM_TABLE, g);
    }
    for (uint64_t left = exec->hold.buckets; left; left &= left - 1)
        add_item(wire, ITEM_HOLD, __builtin_ctzll(left));
}

/* Most transfers of an item: those that must come, and the others. */
static int most_needed(const struct wire *wire)
{
    int count = 0;

    for (int node = 0; node < wire->exec->nodes; node++)
        count += wire->n_of[node];
    return 2 * (count > wire->exec->nodes ? count : wire->exec->nodes); /* rows: two a sum */
}

static int most_others(const struct wire *wire)
{
    const struct exec *exec = wire->exec;
    const int sums = (2 * wire->n_own + 6) * exec->nodes; /* or payloads of rounds, or rows */
    const int records = (int)exec->config.shards * (exec->factors.count + 1) * exec->nodes;
    const int pieces = 2 * exec->nodes * ((SQUARES + 1) * exec->buckets.count + 3);

    return (sums > records ? sums : records) + pieces;
}

static enum status share_requests(struct wire *wire)
{
    const int needed = most_needed(wire), others = most_others(wire);
    const int params = wire->exec->nodes;
    const size_t all = (size_t)(needed + others + params) * (size_t)wire->n_items;
    size_t used = 0;

    TRY(mem_alloc(all + 1, sizeof *wire->requests, &wire->requests));
    TRY(mem_alloc(2 * all + 2, sizeof *wire->is_done, &wire->is_done));
    bool *is_counted = wire->is_done + all + 1;
    for (int i = 0; i < wire->n_items; i++) {
        struct item *item = &wire->items[i];
        item->needed = (struct transfers){ .request = wire->requests + used,
                                           .is_done = wire->is_done + used,
                                           .is_counted = is_counted + used,
                                           .last = -1 };
        used += (size_t)needed;
        item->others = (struct transfers){ .request = wire->requests + used,
                                           .is_done = wire->is_done + used,
                                           .is_counted = is_counted + used,
                                           .last = -1 };
        used += (size_t)others;
        item->params = (struct transfers){ .request = wire->requests + used,
                                           .is_done = wire->is_done + used,
                                           .is_counted = is_counted + used,
                                           .last = -1 };
        used += (size_t)params;
    }
    return STATUS_OK;
}

enum status wire_create(struct exec *exec)
{
    struct wire *wire;

    TRY(mem_alloc(1, sizeof *wire, &wire));
    exec->wire = wire;
    wire->exec = exec;
    wire->rail = exec->rank - transport_node_first(exec->transport, exec->node);
    wire->rails = wire_rails(exec);
    wire->flying_most = exec->config.flying_bytes ? exec->config.flying_bytes : FLYING_MOST;
    /* Lanes that wait for sums (release.c) bound what flies; who waits for them must not be held back. */
    if (exec->config.zero >= 2)
        wire->flying_most = SIZE_MAX;
    wire->lane = (struct lane){ .exec = exec };
    pthread_mutex_init(&wire->lock, NULL);
    pthread_cond_init(&wire->changed, NULL);
    TRY(mem_alloc((size_t)exec->nodes, sizeof *wire->n_of, &wire->n_of));
    TRY(mem_alloc((size_t)exec->nodes, sizeof *wire->first_of, &wire->first_of));
    TRY(mem_alloc((size_t)graph_value_count(exec->config.train) + 1, sizeof *wire->shapes,
                  &wire->shapes));
    TRY(mem_alloc((size_t)(2 * exec->buckets.count + exec->gathers.count + ITEM_KINDS),
                  sizeof *wire->items, &wire->items));
    list_items(wire);
    /* Every rank takes as many tags, whatever its items are. */
    const uint32_t slots = (uint32_t)(exec->buckets.count + exec->gathers.count + 2);
    const uint32_t tags = transport_new_tags(exec->transport, 2 * ITEM_KINDS * slots);
    for (int i = 0; i < wire->n_items; i++)
        wire->items[i].tag = tags + 2 * ((uint32_t)wire->items[i].kind * slots +
                                         (uint32_t)wire->items[i].number);
    return STATUS_OK;
}

/* All nodes' partial sums in the order of shards: exec->parts has this node's. */
static enum status place_sums(struct wire *wire)
{
    struct exec *exec = wire->exec;
    struct tree_node nodes[2 * TREE_DEPTH];
    size_t vectors = 0;

    wire->n_own = partial_sums(exec, exec->node, wire->own);
    wire->n_own_parts = exec->n_parts;
    for (int node = 0; node < exec->nodes; node++) {
        wire->n_of[node] = partial_sums(exec, node, nodes);
        vectors += (size_t)wire->n_of[node];
    }
    TRY(mem_alloc(vectors, sizeof *wire->part_of, &wire->part_of));
    for (int node = 0, at = 0; node < exec->nodes; at += wire->n_of[node], node++) {
        partial_sums(exec, node, nodes);
        memcpy(wire->part_of + at, nodes, (size_t)wire->n_of[node] * sizeof *nodes);
    }
    wire->sums_bytes = vectors * exec->vector * sizeof(float);
    void *memory = mmap(NULL, wire->sums_bytes + 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes for sums are refused", wire->sums_bytes);
    wire->sums = memory;
    if (exec->releases)
        pages_keep_small(memory, wire->sums_bytes);
    float *next = wire->sums + (size_t)wire->n_own * exec->vector;

    struct tree_part *own = exec->parts, *all;
    TRY(mem_alloc((size_t)(exec->n_parts + (int)vectors + 1), sizeof *all, &all));
    int count = 0;
    for (int node = 0; node < exec->nodes; node++) {
        wire->first_of[node] = count;
        if (node == exec->node) {
            wire->own_parts = count;
            memcpy(all + count, own, (size_t)exec->n_parts * sizeof *all);
            count += exec->n_parts;
            continue;
        }
        partial_sums(exec, node, nodes);
        for (int p = 0; p < wire->n_of[node]; p++, next += exec->vector)
            all[count++] = (struct tree_part){ nodes[p], next };
    }
    mem_free(own);
    exec->parts = all;
    exec->n_parts = count;
    return STATUS_OK;
}

static enum status place_states(struct wire *wire)
{
    const struct exec *exec = wire->exec;

    if (exec->rank != 0 || !exec->config.compress.codec)
        return STATUS_OK;
    wire->states_bytes = (size_t)wire_states(exec) * exec->vector * sizeof(float);
    void *memory = mmap(NULL, wire->states_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes for errors of compression are refused",
                    wire->states_bytes);
    wire->states = memory;
    return STATUS_OK;
}

enum status wire_start(struct exec *exec)
{
    struct wire *wire = exec->wire;

    if (wire->rail >= wire->rails || exec->config.batch == 0)
        return STATUS_OK;
    TRY(mem_alloc((size_t)exec->buckets.count + 1, sizeof *wire->lane.columns,
                  &wire->lane.columns));
    TRY(mem_alloc(1, reduce_scratch(&wire->lane), &wire->lane.scratch));
    TRY(mem_alloc(TREE_SCRATCH, sizeof *wire->scratch, &wire->scratch));
    TRY(place_sums(wire));
    TRY(share_requests(wire));
    TRY(wire_codecs_create(wire));
    TRY(wire_hold_create(wire));
    TRY(wire_rows_create(wire));
    TRY(place_states(wire));
    for (int i = 0; i < CHANNELS; i++) {
        char name[32];
        snprintf(name, sizeof name, "wire %d", i);
        TRY(trace_add_row(exec->config.trace, name, 0, &wire->rows[i]));
    }
    if (pthread_create(&wire->thread, NULL, wire_run, wire) != 0)
        return FAIL(STATUS_NO_MEMORY, "a thread for messages to other machines is refused");
    wire->is_started = true;
    return STATUS_OK;
}

void wire_destroy(struct exec *exec)
{
    struct wire *wire = exec->wire;

    if (!wire)
        return;
    if (wire->is_started) {
        pthread_mutex_lock(&wire->lock);
        wire->ends = true;
        pthread_cond_broadcast(&wire->changed);
        pthread_mutex_unlock(&wire->lock);
        pthread_join(wire->thread, NULL);
    }
    pthread_mutex_destroy(&wire->lock);
    pthread_cond_destroy(&wire->changed);
    if (wire->sums)
        munmap(wire->sums, wire->sums_bytes + 1);
    if (wire->states)
        munmap(wire->states, wire->states_bytes);
    wire_codecs_destroy(wire);
    wire_hold_destroy(wire);
    wire_rows_destroy(wire);
    mem_free(wire->part_of);
    mem_free(wire->lane.columns);
    mem_free(wire->lane.scratch);
    mem_free(wire->scratch);
    mem_free(wire->requests);
    mem_free(wire->is_done);
    mem_free(wire->items);
    mem_free(wire->shapes);
    mem_free(wire->n_of);
    mem_free(wire->first_of);
    mem_free(wire);
    exec->wire = NULL;
}
