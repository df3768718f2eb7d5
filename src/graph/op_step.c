/* SPDX-License-Identifier: MIT */
/* op_step.c - what happens once a step, on flat ranges: sums over shards and ranks, updates.
 *
 * Each of them takes a bucket: one flat value that holds many parameters' gradients (or the
 * parameters, or their state) one after the other. The passes insert them; exec/ runs them.
 */
#include "graph/op.h"

static enum status infer_first(const struct node *node, struct op_shapes *s)
{
    for (int i = 1; i < node->n_in && i < GRAPH_IN; i++) {
        if (!shape_equal(s->in[0], s->in[i]))
            return FAIL(STATUS_USAGE, "flat ranges of different lengths");
    }
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

const struct op op_shard_sum = {
    .name = "shard_sum",
    .summary = "sum over this rank's shards, along the tree",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_first,
};

/* attrs.sample: the bucket's extents. */
static enum status infer_factor_sum(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *dy = s->in[1];

    if (x->rank != 2 || dy->rank != 2 || x->dim[0] != dy->dim[0])
        return FAIL(STATUS_USAGE, "factors have different rows");
    if (node->attrs.sample.rank != 1 || node->attrs.sample.dim[0] < x->dim[1] * dy->dim[1])
        return FAIL(STATUS_USAGE, "the bucket is too small for the product");
    s->out[0] = node->attrs.sample;
    return STATUS_OK;
}

static double flops_factor_sum(const struct node *node, const struct shape *const *in,
                               const struct shape *out)
{
    (void)node;
    (void)out;
    return 2.0 * (double)in[0]->dim[0] * (double)in[0]->dim[1] * (double)in[1]->dim[1];
}

const struct op op_factor_sum = {
    .name = "factor_sum",
    .summary = "weight gradient summed over shards, made in parts from its two factors",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_factor_sum,
    .flops = flops_factor_sum,
};

/* Inputs: what rows_sort makes of a shard's ids, and dy. attrs.sample: the bucket's extents. */
static enum status infer_row_sum(const struct node *node, struct op_shapes *s)
{
    const struct shape *order = s->in[0], *dy = s->in[2];

    if (order->rank != 3 || dy->rank < 2 || dy->rank > 3 || dy->dim[0] != order->dim[0] ||
        (dy->rank == 3 && dy->dim[1] != order->dim[1]))
        return FAIL(STATUS_USAGE, "ids and gradient do not fit");
    if (node->attrs.sample.rank != 1 ||
        node->attrs.sample.dim[0] < node->attrs.rows * dy->dim[dy->rank - 1])
        return FAIL(STATUS_USAGE, "the bucket is too small for the table");
    s->out[0] = node->attrs.sample;
    return STATUS_OK;
}

static double flops_row_sum(const struct node *node, const struct shape *const *in,
                            const struct shape *out)
{
    (void)node, (void)out;
    return (double)shape_count(in[0]) / 2 * (double)in[2]->dim[in[2]->rank - 1];
}

const struct op op_row_sum = {
    .name = "row_sum",
    .summary = "rows of a table's gradient summed over shards, those that occur alone",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_I32, DTYPE_I32, DTYPE_F32 },
    .split = { SPLIT_WHOLE },
    .infer = infer_row_sum,
    .flops = flops_row_sum,
};

const struct op op_all_reduce = {
    .name = "all_reduce",
    .summary = "sum over ranks, along the tree, to every rank",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_first,
};

const struct op op_reduce_scatter = {
    .name = "reduce_scatter",
    .summary = "sum over ranks, along the tree; each rank gets its part",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_first,
};

const struct op op_all_gather = {
    .name = "all_gather",
    .summary = "every rank's part to every rank",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .any_dtype = true,
    .infer = infer_first,
};

/* A bucket's gradients, or the rows of a table's, as one worker has summed them; what comes out is what
 * the update on the servers sees. */
const struct op op_push = {
    .name = "push",
    .summary = "a worker's sum to the servers, which have the sum of all or take it by itself",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_first,
};

const struct op op_pull = {
    .name = "pull",
    .summary = "parameters as the servers have them to a worker",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_first,
};

/* Between steps, every so many; else what comes in goes out. attrs.offset: which workers. */
const struct op op_worker_mean = {
    .name = "worker_mean",
    .summary =
        "the mean of parameters over all workers, or over neighbors, every so many steps",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_first,
};

const struct op op_center_pull = {
    .name = "center_pull",
    .summary = "a part of the way to the servers' center, which moves as far, when they meet",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_first,
};

/* All buckets in, one factor out: min(1, max_norm / norm). */
static enum status infer_clip(const struct node *node, struct op_shapes *s)
{
    if (!(node->attrs.max_norm > 0))
        return FAIL(STATUS_USAGE, "norm %g is not above 0", (double)node->attrs.max_norm);
    s->out[0] = shape_1(1);
    return STATUS_OK;
}

const struct op op_clip_norm = {
    .name = "clip_norm",
    .summary = "factor that brings the norm of all gradients down to a limit",
    .min_in = 1,
    .max_in = GRAPH_NODE_IN,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_clip,
};

/* Inputs: the sum of gradients, the parameters, where they are drawn to, and what is added. attrs.weight_decay: how
 * strongly they are drawn. */
const struct op op_anchor = {
    .name = "anchor",
    .summary = "sum + mu (param - anchor) + shift: local steps that stay near, or do not drift",
    .min_in = 4,
    .max_in = 4,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_first,
};

/* Inputs: parameters, gradients, state ..., then the factor of clip_norm if there is one. */
static enum status infer_update(const struct node *node, struct op_shapes *s)
{
    (void)node;
    if (!shape_equal(s->in[0], s->in[1]))
        return FAIL(STATUS_USAGE, "parameters and gradients of different lengths");
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

static double flops_update(const struct node *node, const struct shape *const *in,
                           const struct shape *out)
{
    (void)in;
    const bool is_adam = node->op == &op_adam_update || node->op == &op_lamb_direction;
    const bool is_sgd = node->op == &op_sgd_update || node->op == &op_lars_update;
    const int each = is_adam ? 12 : is_sgd ? 6 : 3;
    return (double)shape_count(&out[0]) * each;
}

const struct op op_sgd_update = {
    .name = "sgd_update",
    .summary = "SGD with momentum, Nesterov's form and weight decay",
    .min_in = 2,
    .max_in = 4,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_update,
    .flops = flops_update,
};

const struct op op_adam_update = {
    .name = "adam_update",
    .summary = "Adam, or AdamW with decoupled decay",
    .min_in = 4,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_update,
    .flops = flops_update,
};

/* Inputs: parameters, gradients or directions, then the factor of clip_norm if there is one.
 * attrs.sample: as many as there are parameters in the bucket, each of which gets a ratio. */
static enum status infer_trust(const struct node *node, struct op_shapes *s)
{
    if (!shape_equal(s->in[0], s->in[1]))
        return FAIL(STATUS_USAGE, "parameters and gradients of different lengths");
    if (node->attrs.sample.rank != 1 ||
        shape_count(&node->attrs.sample) > shape_count(s->in[0]))
        return FAIL(STATUS_USAGE, "more parameters than the bucket has numbers");
    s->out[0] = node->attrs.sample;
    return STATUS_OK;
}

static double flops_trust(const struct node *node, const struct shape *const *in,
                          const struct shape *out)
{
    (void)node, (void)out;
    return 4.0 * (double)shape_count(in[0]);
}

const struct op op_trust_ratio = {
    .name = "trust_ratio",
    .summary = "a factor a parameter: its norm over that of what moves it",
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_trust,
    .flops = flops_trust,
};

/* Inputs: parameters, gradients, momentum if there is any, trust ratios, then the factor of
 * clip_norm if there is one. */
const struct op op_lars_update = {
    .name = "lars_update",
    .summary = "SGD whose rate each parameter's norms scale (LARS)",
    .min_in = 3,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_update,
    .flops = flops_update,
};

/* Inputs: parameters, gradients, m, v, then the factor of clip_norm if there is one. */
const struct op op_lamb_direction = {
    .name = "lamb_direction",
    .summary = "where Adam with decoupled decay would go, before any rate (LAMB)",
    .min_in = 4,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_update,
    .flops = flops_update,
};

/* Inputs: parameters, directions, trust ratios. */
const struct op op_lamb_update = {
    .name = "lamb_update",
    .summary = "goes along the direction, as far as the rate and the trust ratios say (LAMB)",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_update,
    .flops = flops_update,
};

/* Inputs: running averages, what the step saw. */
const struct op op_average_update = {
    .name = "average_update",
    .summary = "running averages go a little towards what the step saw",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_WHOLE },
    .infer = infer_update,
    .flops = flops_update,
};
