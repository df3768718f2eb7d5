/* SPDX-License-Identifier: MIT */
/* update.c - adds the optimizer's update of every bucket, and clipping before it.
 *
 * Before: every bucket's gradient is summed. After: the graph is a whole training step for one
 * device.
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

/* What PyTorch's batch norm takes by default. */
static const float AVERAGE_MOMENTUM = 0.1F;

static void add_average(struct graph *graph, struct value *averages, struct value *seen, int b)
{
    const struct attrs attrs = { .momentum = AVERAGE_MOMENTUM, .bucket = b };
    struct value *const in[] = { averages, seen };
    char name[64];

    snprintf(name, sizeof name, "bucket%d.update", b);
    graph_add(graph, &op_average_update, name, in, 2, &attrs);
}

static void add_update(struct graph *graph, const struct pass_config *config,
                       struct value *params, struct value *sum, struct value *scale, int b)
{
    struct value *states[KERNEL_STATES] = { NULL };

    for (int i = 0; i < optim_states(&config->optim); i++) {
        char name[64];
        snprintf(name, sizeof name, "bucket%d.%s", b, config->optim.optimizer->state_names[i]);
        states[i] = graph_flat(graph, name, params ? shape_count(&params->shape) : 0);
    }
    optim_add_update(graph, &config->optim, params, sum, states, scale, b);
}

static enum status run_update(struct graph *graph, const struct pass_config *config)
{
    const int n_buckets = pass_bucket_count(graph);
    struct value *sums[PASS_BUCKETS], *clipped[PASS_BUCKETS], *scale = NULL;
    int n_clipped = 0;

    graph_set_phase(graph, PHASE_UPDATE);
    for (int b = 0; b < n_buckets; b++) {
        sums[b] = pass_bucket_value(graph, b, "grad.sum");
        if (!sums[b])
            return FAIL(STATUS_MISMATCH, "the gradient of bucket %d is not summed", b);
        if (!pass_bucket_is_average(graph, b))
            clipped[n_clipped++] = sums[b];
    }
    if (config->optim.attrs.max_norm > 0) {
        const struct attrs attrs = { .max_norm = config->optim.attrs.max_norm };
        struct node *clip = graph_add(graph, &op_clip_norm, "clip", clipped, n_clipped, &attrs);
        scale = clip ? clip->out[0] : NULL;
    }
    for (int b = 0; b < n_buckets; b++) {
        struct value *params = pass_bucket_value(graph, b, "param");
        if (pass_bucket_is_average(graph, b))
            add_average(graph, params, sums[b], b);
        else
            add_update(graph, config, params, sums[b], scale, b);
    }
    return graph_status(graph);
}

const struct pass pass_update = {
    .name = "update",
    .summary = "add the optimizer's update of every bucket",
    .run = run_update,
};
