/* SPDX-License-Identifier: MIT */
/* op_sync_norm.c - batch normalization with the statistics of the whole step, in the parts that
 * shards can do before and after they come together.
 *
 *   x -> batch_norm_stats -> shard_gather -> batch_norm_join -> mean, rstd (and what the step saw)
 *   x, mean, rstd -> batch_norm_normalize -> y
 *
 *   dy -> batch_norm_grad_sums -> this shard's dgamma, dbeta -> shard_gather
 *   dy, all shards' sums -> batch_norm_grad_spread -> dx
 *
 * shard_gather is a meeting in the middle of a step: every shard gives its row and gets the rows of
 * all. pass/sync_norm.c puts these in the place of batch_norm; only they know of other shards.
 */
#include <stdio.h>

#include "graph/op.h"

enum { SUMS = 3 /* numbers a channel that a shard gives to the others */ };

/* Is it (rows, channels)? */
static bool is_table(const struct shape *shape, int64_t rows, int64_t channels)
{
    return shape->rank == 2 && shape->dim[0] == rows && shape->dim[1] == channels;
}

static bool is_gathered(const struct shape *shape, int64_t channels)
{
    return shape->rank == 3 && shape->dim[0] >= 1 && shape->dim[1] == SUMS &&
           shape->dim[2] == channels;
}

static bool is_vector(const struct shape *shape, int64_t count)
{
    return shape->rank == 1 && shape->dim[0] == count;
}

/* The output belongs to an activation whose gradient is a matter of it. */
static enum status check_activation(const struct node *node, bool has_output)
{
    if (has_output != (node->attrs.activation != ACTIVATION_NONE) ||
        node->attrs.activation == ACTIVATION_SIGMOID)
        return FAIL(STATUS_USAGE, "needs the output if there is an activation, else none");
    return STATUS_OK;
}

/* Some operations for each element of the first input. */
static double flops_of(const struct shape *const *in, double each)
{
    return each * (double)shape_count(in[0]);
}

/* Forward ------------------------------------------------------------------------------ */

static enum status infer_stats(const struct node *node, struct op_shapes *s)
{
    (void)node;
    if (s->in[0]->rank != 4)
        return FAIL(STATUS_USAGE, "needs images");
    s->out[0] = shape_2(SUMS, s->in[0]->dim[1]);
    return STATUS_OK;
}

static double flops_stats(const struct node *node, const struct shape *const *in,
                          const struct shape *out)
{
    (void)node;
    (void)out;
    return flops_of(in, 3);
}

const struct op op_batch_norm_stats = {
    .name = "batch_norm_stats",
    .summary = "a shard's mean, squares around it and number of places a channel",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_SHARD },
    .across_samples = true,
    .infer = infer_stats,
    .flops = flops_stats,
};

static enum status infer_gather(const struct node *node, struct op_shapes *s)
{
    if (s->in[0]->rank != 2)
        return FAIL(STATUS_USAGE, "needs a table");
    if (node->attrs.shards < 1)
        return FAIL(STATUS_USAGE, "%lld shards", (long long)node->attrs.shards);
    s->out[0] = shape_3(node->attrs.shards, s->in[0]->dim[0], s->in[0]->dim[1]);
    return STATUS_OK;
}

static double flops_none(const struct node *node, const struct shape *const *in,
                         const struct shape *out)
{
    (void)node;
    (void)in;
    (void)out;
    return 0;
}

const struct op op_shard_gather = {
    .name = "shard_gather",
    .summary = "every shard's table to every shard, in the middle of a step",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_SAME },
    .across_samples = true,
    .meets = true,
    .infer = infer_gather,
    .flops = flops_none,
};

static enum status infer_join(const struct node *node, struct op_shapes *s)
{
    const struct shape *all = s->in[0], *own = s->in[1];

    (void)node;
    if (own->rank != 2 || own->dim[0] != SUMS || !is_gathered(all, own->dim[1]))
        return FAIL(STATUS_USAGE, "not the statistics of shards and of one of them");
    s->out[0] = shape_2(2, own->dim[1]);
    s->out[1] = s->out[2] = shape_1(own->dim[1]);
    return STATUS_OK;
}

static double flops_join(const struct node *node, const struct shape *const *in,
                         const struct shape *out)
{
    (void)node;
    (void)out;
    return flops_of(in, 3);
}

const struct op op_batch_norm_join = {
    .name = "batch_norm_join",
    .summary = "mean and deviation of all shards' samples, and this shard's share of them",
    .min_in = 2,
    .max_in = 2,
    .min_out = 3,
    .max_out = 3,
    .split = { SPLIT_SAME, SPLIT_SUM, SPLIT_SUM },
    .across_samples = true,
    .infer = infer_join,
    .flops = flops_join,
};

static enum status infer_normalize(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0];

    if (x->rank != 4)
        return FAIL(STATUS_USAGE, "needs images");
    if (!is_vector(s->in[1], x->dim[1]) || !is_vector(s->in[2], x->dim[1]) ||
        !is_table(s->in[3], 2, x->dim[1]))
        return FAIL(STATUS_USAGE, "scale, shift or statistics are not of %lld channels",
                    (long long)x->dim[1]);
    if (s->in[4] && !shape_equal(s->in[4], x))
        return FAIL(STATUS_USAGE, "a residual of another shape");
    if (node->attrs.activation == ACTIVATION_SIGMOID)
        return FAIL(STATUS_USAGE, "a sigmoid cannot be joined");
    s->out[0] = *x;
    return STATUS_OK;
}

/* The way of dx through the statistics is part of it: batch_norm_grad_spread knows all shards' sums. So
 * nothing flows into the statistics themselves. */
static void gradient_normalize(struct graph *graph, const struct node *node,
                               struct value *const *dout, const bool *wanted,
                               struct value **din)
{
    const bool is_active = node->attrs.activation != ACTIVATION_NONE;
    const bool with_residual = node->n_in > 4 && wanted[4];
    const struct attrs attrs = { .activation = node->attrs.activation,
                                 .with_residual = with_residual && is_active };
    struct value *const in[] = { dout[0], node->in[0], node->in[3],
                                 is_active ? node->out[0] : NULL };
    struct node *sums =
        graph_add(graph, &op_batch_norm_grad_sums, node->in[1]->name, in, 4, &attrs);
    char name[96];

    if (!sums)
        return;
    din[1] = sums->out[0];
    din[2] = sums->out[1];
    if (with_residual)
        din[4] = is_active ? sums->out[3] : dout[0];
    if (!wanted[0])
        return;
    const struct attrs shards = { .shards = node->attrs.shards };
    snprintf(name, sizeof name, "%s.gather", node->name);
    struct node *all = graph_add(graph, &op_shard_gather, name, &sums->out[2], 1, &shards);
    if (!all)
        return;
    /* What flows into the residual has been through the activation. */
    const bool is_through = attrs.with_residual != 0;
    const struct attrs left = { .activation =
                                    is_through ? ACTIVATION_NONE : node->attrs.activation };
    struct value *const parts[] = { is_through ? sums->out[3] : dout[0],
                                    node->in[0],
                                    node->in[1],
                                    node->in[3],
                                    all->out[0],
                                    is_active && !is_through ? node->out[0] : NULL };
    struct node *spread =
        graph_add(graph, &op_batch_norm_grad_spread, node->name, parts, 6, &left);
    din[0] = spread ? spread->out[0] : NULL;
}

static double flops_normalize(const struct node *node, const struct shape *const *in,
                              const struct shape *out)
{
    (void)node;
    (void)out;
    return flops_of(in, 3);
}

const struct op op_batch_norm_normalize = {
    .name = "batch_norm_normalize",
    .summary = "batch_norm with the statistics of all shards",
    .min_in = 4,
    .max_in = 5,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_normalize,
    .gradient = gradient_normalize,
    .flops = flops_normalize,
};

/* Backward ----------------------------------------------------------------------------- */

static enum status infer_grad_sums(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *y = s->in[3];

    if (dy->rank != 4 || !shape_equal(dy, s->in[1]) || (y && !shape_equal(dy, y)))
        return FAIL(STATUS_USAGE, "gradient and images have different shapes");
    if (!is_table(s->in[2], 2, dy->dim[1]))
        return FAIL(STATUS_USAGE, "statistics are not of %lld channels", (long long)dy->dim[1]);
    TRY(check_activation(node, y != NULL));
    s->out[0] = s->out[1] = shape_1(dy->dim[1]);
    s->out[2] = shape_2(SUMS, dy->dim[1]);
    s->out[3] = *dy;
    return STATUS_OK;
}

static double flops_grad_sums(const struct node *node, const struct shape *const *in,
                              const struct shape *out)
{
    (void)node;
    (void)out;
    return flops_of(in, 4);
}

const struct op op_batch_norm_grad_sums = {
    .name = "batch_norm_grad_sums",
    .summary = "a shard's gradients of scale and shift, for itself and for the others",
    .min_in = 3,
    .max_in = 4,
    .min_out = 3,
    .max_out = 4,
    .split = { SPLIT_SUM, SPLIT_SUM, SPLIT_SHARD, SPLIT_ROWS },
    .across_samples = true,
    .infer = infer_grad_sums,
    .flops = flops_grad_sums,
};

static enum status infer_grad_spread(const struct node *node, struct op_shapes *s)
{
    const struct shape *dy = s->in[0], *y = s->in[5];

    if (dy->rank != 4 || !shape_equal(dy, s->in[1]) || (y && !shape_equal(dy, y)))
        return FAIL(STATUS_USAGE, "gradient and images have different shapes");
    if (!is_vector(s->in[2], dy->dim[1]) || !is_table(s->in[3], 2, dy->dim[1]) ||
        !is_gathered(s->in[4], dy->dim[1]))
        return FAIL(STATUS_USAGE, "scale, statistics or sums are not of %lld channels",
                    (long long)dy->dim[1]);
    TRY(check_activation(node, y != NULL));
    s->out[0] = *dy;
    return STATUS_OK;
}

static double flops_grad_spread(const struct node *node, const struct shape *const *in,
                                const struct shape *out)
{
    (void)node;
    (void)out;
    return flops_of(in, 5);
}

const struct op op_batch_norm_grad_spread = {
    .name = "batch_norm_grad_spread",
    .summary = "gradient of batch_norm_normalize for images, from all shards' sums",
    .min_in = 5,
    .max_in = 6,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_grad_spread,
    .flops = flops_grad_spread,
};
