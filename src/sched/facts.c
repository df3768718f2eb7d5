/* SPDX-License-Identifier: MIT */
/* facts.c - reads from the graph what each bucket is, and how it is updated. */
#include "sched/facts.h"

#include "graph/op.h"
#include "kernel/update.h"
#include "pass/pass.h"

const struct value *facts_source(const struct value *value)
{
    while (value->maker && (value->maker->op->is_view || value->maker->op == &op_all_gather))
        value = value->maker->in[0];
    return value;
}

/* How often nodes that shards run read a value. */
static int reads_of(const struct graph *graph, const struct value *value)
{
    int reads = 0;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        for (int i = 0; i < node->n_in && node->op->split[0] != SPLIT_WHOLE; i++)
            reads += node->in[i] == value;
    }
    return reads;
}

const struct node *facts_column_layer(const struct graph *graph, int bucket)
{
    const struct value *flat = pass_bucket_value(graph, bucket, "param");
    const struct value *samples = graph_roles((struct graph *)graph)->input;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_linear && node->in[1]->flat && node->in[1]->flat == flat &&
            facts_source(node->in[0]) == samples && reads_of(graph, node->in[1]) == 1)
            return node;
    }
    return NULL;
}

static bool is_all_gather(const struct value *value)
{
    return value->maker && value->maker->op == &op_all_gather;
}

/* The sum of a bucket that is made from records. */
static void read_sum(const struct graph *graph, const struct node *node,
                     const struct facts_job *job, struct step_facts *facts)
{
    struct bucket_facts *bucket = &facts->buckets[node->attrs.bucket];
    const bool is_served = node->op == &op_row_sum && node->attrs.served;

    bucket->sum = node; /* of several nodes the others' samples are not here in forward */
    facts->is_joint |= is_served || is_all_gather(node->in[0]);
    if (node->op == &op_factor_sum) {
        bucket->kind = BUCKET_FACTORS;
        bucket->columns = job->nodes > 1 ? NULL : facts_column_layer(graph, node->attrs.bucket);
        return;
    }
    bucket->kind = is_served && job->nodes > 1 ? BUCKET_SERVED : BUCKET_ROWS;
    bucket->crosses = bucket->kind == BUCKET_SERVED;
}

/* The nodes of the job exchange what the ranks of each have: pass hierarchy says so. */
static void read_reduce_scatter(const struct node *node, const struct facts_job *job,
                                struct step_facts *facts)
{
    facts->is_joint = true;
    facts->buckets[node->attrs.bucket].crosses = job->nodes > 1 && node->attrs.between_nodes;
}

static void read_update(const struct node *node, const struct facts_job *job,
                        struct step_facts *facts)
{
    struct update_rule *rule = &facts->rule;

    if (kernel_update_find(node->op->name))
        facts->buckets[node->attrs.bucket].update = node;
    if (node->op == &op_average_update) {
        facts->buckets[node->attrs.bucket].is_average = true;
    } else if (node->op == &op_clip_norm) {
        rule->clips = !job->has_servers;
    } else if (node->op == &op_anchor) {
        rule->anchors = true;
        rule->mu = node->attrs.weight_decay;
    } else if (node->op == &op_trust_ratio) {
        rule->adapts = true;
    } else if (node->op == &op_lamb_direction) {
        rule->directs = true;
    }
}

static bool is_bucket(const struct node *shard_sum)
{
    return shard_sum->n_in > 0 && shard_sum->in[0]->kind == VALUE_FLAT;
}

enum status facts_read(const struct graph *graph, const struct facts_job *job,
                       struct step_facts *out)
{
    struct step_facts facts = { .n_buckets = pass_bucket_count(graph) };

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op->split[0] != SPLIT_WHOLE)
            continue;
        if (node->op == &op_factor_sum || node->op == &op_row_sum)
            read_sum(graph, node, job, &facts);
        else if (node->op == &op_reduce_scatter)
            read_reduce_scatter(node, job, &facts);
        else if (node->op == &op_all_gather && node->phase < PHASE_REDUCE)
            facts.buckets[node->attrs.bucket].is_held = true;
        else if (node->op == &op_all_gather && node->phase == PHASE_UPDATE)
            facts.buckets[node->attrs.bucket].returns = true;
        else if (node->op == &op_push) /* rows that are served go to other ranks */
            facts.is_pushed |= !node->in[0]->maker->attrs.served;
        else if (node->op == &op_all_reduce && is_bucket(node->in[0]->maker))
            return FAIL(STATUS_UNSUPPORTED,
                        "node %s: whole buckets are not reduced to every rank", node->name);
        else
            read_update(node, job, &facts);
    }
    *out = facts;
    return STATUS_OK;
}

enum status facts_check(const struct graph *graph, const struct facts_job *job,
                        const struct step_facts *facts)
{
    if (job->ranks > 1 && !facts->is_joint)
        return FAIL(STATUS_MISMATCH, "graph %s is for one rank, there are %d",
                    graph_name(graph), job->ranks);
    if (facts->is_pushed != job->has_servers && job->has_steps)
        return FAIL(STATUS_MISMATCH, "graph %s is %s servers", graph_name(graph),
                    facts->is_pushed ? "for a job with" : "for a job without");
    return STATUS_OK;
}
