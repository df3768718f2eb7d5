/* SPDX-License-Identifier: MIT */
/* op_loss.c - what is minimized, and what is counted.
 *
 * A loss is the end of the forward graph: a shard's loss is the sum over its samples
 * divided by the samples of the whole step, so that shards' losses and gradients add
 * up to the mean. Nothing may flow back into a loss but the constant 1.
 *
 * softmax_loss is cross entropy, accuracy and what flows back in one (pass_config.epilogues): of few classes each is little more than a
 * launch.
 */
#include "graph/op.h"

static enum status infer_cross_entropy(const struct node *node, struct op_shapes *s)
{
    const struct shape *logits = s->in[0], *labels = s->in[1];

    if (!(node->attrs.smoothing >= 0 && node->attrs.smoothing <= 1))
        return FAIL(STATUS_USAGE, "label smoothing %g is not in [0, 1]",
                    (double)node->attrs.smoothing);
    if (logits->rank != 2 || labels->rank != 1 || logits->dim[0] != labels->dim[0])
        return FAIL(STATUS_USAGE, "needs logits (samples, classes) and one label a sample");
    s->out[0] = shape_1(1);
    s->out[1] = *logits;
    return STATUS_OK;
}

static void gradient_cross_entropy(struct graph *graph, const struct node *node,
                                   struct value *const *dout, const bool *wanted,
                                   struct value **din)
{
    const struct attrs attrs = { .smoothing = node->attrs.smoothing };
    struct value *const in[] = { node->out[1], node->in[1] };

    (void)dout;
    if (wanted[0]) {
        struct node *grad =
            graph_add(graph, &op_softmax_cross_entropy_grad, node->name, in, 2, &attrs);
        din[0] = grad ? grad->out[0] : NULL;
    }
}

static double flops_softmax(const struct node *node, const struct shape *const *in,
                            const struct shape *out)
{
    (void)node;
    (void)out;
    return 10.0 * (double)shape_count(in[0]);
}

const struct op op_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .summary = "mean of -log softmax at the labels, and the softmax",
    .min_in = 2,
    .max_in = 2,
    .min_out = 2,
    .max_out = 2,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_SUM, SPLIT_ROWS },
    .infer = infer_cross_entropy,
    .gradient = gradient_cross_entropy,
    .flops = flops_softmax,
};

static enum status infer_cross_entropy_grad(const struct node *node, struct op_shapes *s)
{
    (void)node;
    if (s->in[0]->rank != 2 || s->in[1]->rank != 1 || s->in[0]->dim[0] != s->in[1]->dim[0])
        return FAIL(STATUS_USAGE,
                    "needs probabilities (samples, classes) and one label a sample");
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

const struct op op_softmax_cross_entropy_grad = {
    .name = "softmax_cross_entropy_grad",
    .summary = "softmax minus what the labels weigh",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_ROWS },
    .infer = infer_cross_entropy_grad,
};

static enum status infer_softmax_loss(const struct node *node, struct op_shapes *s)
{
    TRY(infer_cross_entropy(node, s));
    s->out[1] = shape_1(1);
    s->out[2] = *s->in[0];
    return STATUS_OK;
}

const struct op op_softmax_loss = {
    .name = "softmax_loss",
    .summary = "softmax_cross_entropy and accuracy, and the gradient of the logits",
    .min_in = 2,
    .max_in = 2,
    .min_out = 3,
    .max_out = 3,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_SUM, SPLIT_SUM, SPLIT_ROWS },
    .infer = infer_softmax_loss,
    .flops = flops_softmax,
};

static enum status infer_mse(const struct node *node, struct op_shapes *s)
{
    (void)node;
    if (!shape_equal(s->in[0], s->in[1]))
        return FAIL(STATUS_USAGE, "output and target have different shapes");
    s->out[0] = shape_1(1);
    return STATUS_OK;
}

static void gradient_mse(struct graph *graph, const struct node *node,
                         struct value *const *dout, const bool *wanted, struct value **din)
{
    struct value *const in[] = { node->in[0], node->in[1] };

    (void)dout;
    if (wanted[0]) {
        struct node *grad = graph_add(graph, &op_mse_grad, node->name, in, 2, NULL);
        din[0] = grad ? grad->out[0] : NULL;
    }
}

static double flops_mse(const struct node *node, const struct shape *const *in,
                        const struct shape *out)
{
    (void)node;
    (void)out;
    return 3.0 * (double)shape_count(in[0]);
}

const struct op op_mse = {
    .name = "mse",
    .summary = "mean squared difference",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_SUM },
    .infer = infer_mse,
    .gradient = gradient_mse,
    .flops = flops_mse,
};

static enum status infer_mse_grad(const struct node *node, struct op_shapes *s)
{
    TRY(infer_mse(node, s));
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

const struct op op_mse_grad = {
    .name = "mse_grad",
    .summary = "gradient of mse for the output",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_mse_grad,
};

static enum status infer_accuracy(const struct node *node, struct op_shapes *s)
{
    TRY(infer_cross_entropy(node, s));
    return STATUS_OK;
}

const struct op op_accuracy = {
    .name = "accuracy",
    .summary = "how many samples' largest logit is at the label",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_SUM },
    .infer = infer_accuracy,
    .flops = flops_softmax,
};
