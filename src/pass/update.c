/* SPDX-License-Identifier: MIT */
/* update.c - adds the optimizer's update of every bucket, and clipping before it.
 *
 * Before: every bucket's gradient is summed. After: the graph is a whole training step for one
 * device.
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

static enum status run_update(struct graph *graph, const struct pass_config *config)
{
    const int n_buckets = pass_bucket_count(graph);
    struct value *sums[PASS_BUCKETS], *scale = NULL;

    graph_set_phase(graph, PHASE_UPDATE);
    for (int b = 0; b < n_buckets; b++) {
        sums[b] = pass_bucket_value(graph, b, "grad.sum");
        if (!sums[b])
            return FAIL(STATUS_MISMATCH, "the gradient of bucket %d is not summed", b);
    }
    if (config->optim.attrs.max_norm > 0) {
        const struct attrs attrs = { .max_norm = config->optim.attrs.max_norm };
        struct node *clip = graph_add(graph, &op_clip_norm, "clip", sums, n_buckets, &attrs);
        scale = clip ? clip->out[0] : NULL;
    }
    for (int b = 0; b < n_buckets; b++) {
        struct value *params = pass_bucket_value(graph, b, "param");
        struct value *states[KERNEL_STATES] = { NULL };

        for (int i = 0; i < optim_states(&config->optim); i++) {
            char name[64];
            snprintf(name, sizeof name, "bucket%d.%s", b,
                     config->optim.optimizer->state_names[i]);
            states[i] = graph_flat(graph, name, shape_count(&params->shape));
        }
        optim_add_update(graph, &config->optim, params, sums[b], states, scale, b);
    }
    return graph_status(graph);
}

const struct pass pass_update = {
    .name = "update",
    .summary = "add the optimizer's update of every bucket",
    .run = run_update,
};
