/* SPDX-License-Identifier: MIT */
/* lower_read.c - which nodes of a graph use each bucket, make losses and exchange batch statistics. */
#include "base/mem.h"
#include "graph/op.h"
#include "sched/lowering.h"

bool lower_is_of_shards(const struct lowering *l, const struct node *node)
{
    return node->op->split[0] != SPLIT_WHOLE && !node->op->is_view &&
           pass_is_local(&l->config->pipeline, node->stage) && node->op != &op_all_gather &&
           (node->phase < PHASE_REDUCE || node->op == &op_rows_sort);
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
        l->uses[b].first = l->uses[b].last = l->uses[b].first_write = -1;
        for (int p = 0; p < 2 * PIPE_CHUNKS; p++)
            l->uses[b].phases[p] = (struct phase_use){ -1, -1 };
        if (flats[0])
            l->uses[b].bytes = (size_t)shape_count(&flats[0]->shape) * sizeof(float);
    }
    return STATUS_OK;
}

static void touch_bucket(struct lowering *l, int b, int node)
{
    struct bucket_use *f = &l->uses[b];

    f->first = f->first < 0 || node < f->first ? node : f->first;
    f->last = node > f->last ? node : f->last;
}

/* The node writes the bucket's gradient, or its record. */
static void write_bucket(struct lowering *l, int b, int node)
{
    struct bucket_use *f = &l->uses[b];

    touch_bucket(l, b, node);
    f->first_write = f->first_write < 0 || node < f->first_write ? node : f->first_write;
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

static const struct value *samples_of(const struct graph *graph)
{
    return graph_roles((struct graph *)graph)->input;
}

/* What the sum of a bucket is made from, where that is no gradient of its own. */
static void read_sources(struct lowering *l, const struct node *sum)
{
    const int b = sum->attrs.bucket;

    for (int i = 0; i < sum->n_in; i++) {
        const struct value *source = facts_source(sum->in[i]);
        const int n = node_at(l, source->maker);
        if (n >= 0)
            write_bucket(l, b, n);
        l->uses[b].copies_input |= source == samples_of(l->graph);
    }
}

/* A loss, or a count of labels met, is what nodes that sum other values than buckets read. */
static void read_loss(struct lowering *l, const struct node *node)
{
    const bool is_loss = node->op == &op_shard_sum && node->in[0]->kind != VALUE_FLAT;
    const int n = is_loss ? node_at(l, node->in[0]->maker) : -1;

    if (n >= 0)
        l->makes_loss[n] = true;
}

static void read_bucket(struct lowering *l, int b, int n)
{
    struct phase_use *use = &l->uses[b].phases[lower_phase(l, n)];

    use->first = use->first < 0 ? n : use->first;
    use->last = n;
}

static void read_shard_node(struct lowering *l, const struct node *node, int n)
{
    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = facts_source(node->in[i]);
        const int b = in->kind == VALUE_PARAM ? bucket_at(l, in) : -1;
        if (b >= 0) {
            touch_bucket(l, b, n);
            read_bucket(l, b, n);
        }
    }
    for (int i = 0; i < node->n_out; i++) {
        const int b = bucket_at(l, node->out[i]);
        if (b >= 0)
            write_bucket(l, b, n);
    }
}

/* Shards meet at a gather: which node makes a shard's table. */
static void read_gather(struct lowering *l, const struct node *gather, int number)
{
    const int n = node_at(l, gather->in[0]->maker);

    BUG_ON(n < 0 || l->table_of[n] >= 0);
    l->table_of[n] = number;
}

int lower_segment(const struct lowering *l, const struct node *node)
{
    const struct pass_pipeline *pipeline = &l->config->pipeline;

    if (pipeline->stages == 0)
        return 0;
    const int chunk = node->stage < 0 ? 0 : node->stage / pipeline->stages;
    return node->phase == PHASE_FORWARD ? chunk : 2 * pipeline->chunks - 1 - chunk;
}

int lower_phase(const struct lowering *l, int n)
{
    if (l->config->pipeline.stages > 0)
        return lower_segment(l, graph_node(l->graph, n));
    return n >= l->first_backward;
}

int lower_phases(const struct lowering *l)
{
    return l->config->pipeline.stages > 0 ? 2 * l->config->pipeline.chunks : 2;
}

static int find_backward(const struct lowering *l)
{
    int n = 0;

    while (n < graph_node_count(l->graph) && (!lower_is_of_shards(l, graph_node(l->graph, n)) ||
                                              graph_node(l->graph, n)->phase == PHASE_FORWARD))
        n++;
    return n;
}

/* The last node of a segment that this rank runs; -1: of all. */
static int last_node(const struct lowering *l, int segment)
{
    int last = -1;

    for (int n = 0; n < graph_node_count(l->graph); n++) {
        const struct node *node = graph_node(l->graph, n);
        if (lower_is_of_shards(l, node) && (segment < 0 || lower_segment(l, node) == segment))
            last = n;
    }
    return last;
}

const struct node *lower_pull_of(const struct graph *graph, int bucket)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_pull && node->attrs.bucket == bucket)
            return node;
    }
    return NULL;
}

/* Must every node hear of what this node makes? Parts that each node has made whole stay there. */
static bool must_cross(const struct lowering *l, const struct node *node)
{
    if (node->op == &op_all_gather && node->phase == PHASE_UPDATE)
        return !lower_is_gathered(l, node->attrs.bucket);
    return node->op == &op_reduce_scatter || node->op == &op_all_reduce ||
           node->op == &op_all_gather || node->op->meets;
}

/* A step for ranks that share memory is none for several nodes. */
static enum status check_levels(const struct lowering *l)
{
    const int nodes = l->config->topology.nodes;

    for (int b = 0; b < l->program->n_buckets && nodes > 1; b++) {
        const struct bucket_facts *f = &l->facts.buckets[b];
        if (!f->returns && !f->is_held && f->kind != BUCKET_SERVED)
            return FAIL(STATUS_USAGE,
                        "bucket %d: no all_gather brings updated parameters to %d nodes: ranks "
                        "that read one copy (strategy central) are on one node",
                        b, nodes);
    }
    for (int n = 0; n < graph_node_count(l->graph) && nodes > 1; n++) {
        const struct node *node = graph_node(l->graph, n);
        if (must_cross(l, node) && !node->attrs.between_nodes)
            return FAIL(STATUS_MISMATCH,
                        "node %s: %s has one level, within a node, and the ranks are on %d "
                        "nodes: pass hierarchy adds the level between nodes",
                        node->name, node->op->name, nodes);
    }
    return STATUS_OK;
}

/* Some buckets are not final after the last node that touches them, but later. */
static void delay_buckets(struct lowering *l)
{
    const struct lower_config *config = l->config;

    for (int b = 0; b < l->program->n_buckets; b++) {
        struct bucket_use *f = &l->uses[b];
        if (f->last < 0)
            continue;
        if (config->clips_samples)
            f->last = last_node(l, -1);
        else if (config->in_arena && b > 0 && f->last < f[-1].last)
            f->last = f[-1].last;
        else if (!config->in_arena && config->pipeline.stages > 0)
            f->last = last_node(l, lower_segment(l, graph_node(l->graph, f->last)));
    }
}

static enum status make_room(struct lowering *l, size_t nodes)
{
    TRY(mem_alloc(nodes + 1, sizeof *l->gather_of, &l->gather_of));
    TRY(mem_alloc(nodes + 1, sizeof *l->table_of, &l->table_of));
    TRY(mem_alloc(nodes + 1, sizeof *l->makes_loss, &l->makes_loss));
    for (size_t n = 0; n < nodes; n++)
        l->gather_of[n] = l->table_of[n] = -1;
    return STATUS_OK;
}

enum status lower_read(struct lowering *l)
{
    const int count = graph_node_count(l->graph);
    const struct lower_topology *topology = &l->config->topology;
    const struct facts_job job = { .nodes = topology->nodes,
                                   .ranks = topology->nodes * topology->node_ranks,
                                   .has_servers = l->config->gives,
                                   .has_steps = l->config->has_steps };
    int gathers = 0;

    TRY(facts_read(l->graph, &job, &l->facts));
    TRY(read_buckets(l));
    TRY(make_room(l, (size_t)count));
    l->first_backward = find_backward(l);
    for (int n = 0; n < count; n++) {
        const struct node *node = graph_node(l->graph, n);
        if (node->op->meets)
            read_gather(l, node, l->gather_of[n] = gathers++);
        else if (lower_is_of_shards(l, node))
            read_shard_node(l, node, n);
    }
    for (int n = 0; n < count; n++) {
        const struct node *node = graph_node(l->graph, n);
        if (node->op->split[0] == SPLIT_WHOLE)
            read_loss(l, node);
    }
    for (int b = 0; b < l->program->n_buckets; b++) {
        if (l->facts.buckets[b].sum)
            read_sources(l, l->facts.buckets[b].sum);
    }
    TRY(check_levels(l));
    delay_buckets(l);
    l->program->n_gathers = gathers;
    TRY(mem_alloc((size_t)gathers + 1, sizeof *l->program->made, &l->program->made));
    return mem_alloc((size_t)gathers + 1, sizeof *l->program->gathered, &l->program->gathered);
}
