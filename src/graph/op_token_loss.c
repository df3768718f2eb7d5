/* SPDX-License-Identifier: MIT */
/* op_token_loss.c - cross entropy of every token of a sequence, over vocabularies of any size.
 *
 * What is kept between forward and backward are the logits and one number a token, the
 * logarithm of the sum of its exponentials; the gradient takes the logits' memory. Labels below 0
 * are padding and left out: a shard's loss is the sum over its other labels divided by those of
 * the whole step.
 *
 * linear_token_loss is the last layer with all of that, and its gradients, in one (pass_config.epilogues): logits are as
 * large as everything else together, and lie nowhere.
 */
#include "graph/op.h"

/* Logits of rank 3, or of rank 2 for tokens that are no sequences; a label for each row. */
static enum status check_labels(const struct shape *logits, const struct shape *labels)
{
    bool fit = (logits->rank == 2 || logits->rank == 3) && labels->rank == logits->rank - 1;

    for (int i = 0; fit && i < labels->rank; i++)
        fit = logits->dim[i] == labels->dim[i];
    if (!fit)
        return FAIL(STATUS_USAGE,
                    "needs logits (samples, tokens, vocabulary) and one label a token");
    return STATUS_OK;
}

/* One number a token. */
static struct shape number_shape(const struct shape *logits)
{
    struct shape shape = *logits;
    shape.dim[shape.rank - 1] = 1;
    return shape;
}

static enum status infer_token_cross_entropy(const struct node *node, struct op_shapes *s)
{
    if (!(node->attrs.smoothing >= 0 && node->attrs.smoothing <= 1))
        return FAIL(STATUS_USAGE, "label smoothing %g is not in [0, 1]",
                    (double)node->attrs.smoothing);
    TRY(check_labels(s->in[0], s->in[1]));
    s->out[0] = shape_1(1);
    s->out[1] = number_shape(s->in[0]);
    return STATUS_OK;
}

static void gradient_token_cross_entropy(struct graph *graph, const struct node *node,
                                         struct value *const *dout, const bool *wanted,
                                         struct value **din)
{
    const struct attrs attrs = { .smoothing = node->attrs.smoothing };
    struct value *const in[] = { node->in[0], node->out[1], node->in[1] };

    (void)dout;
    if (wanted[0]) {
        struct node *grad =
            graph_add(graph, &op_token_cross_entropy_grad, node->name, in, 3, &attrs);
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

/* Classes are cut; see pass/tensor.c for what joins the slices. */
static const struct op_way ways_classes[] = {
    { .name = "classes", .in = { AXIS_FEATURES }, .out = { AXIS_SUM }, .parts = 1 },
    { 0 },
};

const struct op op_token_cross_entropy = {
    .name = "token_cross_entropy",
    .summary =
        "mean of -log softmax at the labels of all tokens, and each one's log of the sum",
    .min_in = 2,
    .max_in = 2,
    .min_out = 2,
    .max_out = 2,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_SUM, SPLIT_ROWS },
    .by_rows = true,
    .infer = infer_token_cross_entropy,
    .gradient = gradient_token_cross_entropy,
    .flops = flops_softmax,
    .ways = ways_classes,
};

static enum status infer_token_cross_entropy_grad(const struct node *node, struct op_shapes *s)
{
    const struct shape numbers = number_shape(s->in[0]);

    (void)node;
    TRY(check_labels(s->in[0], s->in[2]));
    if (!shape_equal(s->in[1], &numbers))
        return FAIL(STATUS_USAGE, "needs one number a token beside the logits");
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

const struct op op_token_cross_entropy_grad = {
    .name = "token_cross_entropy_grad",
    .summary = "softmax of the logits minus what the labels weigh",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .by_rows = true,
    .infer = infer_token_cross_entropy_grad,
    .flops = flops_softmax,
};

static enum status infer_token_accuracy(const struct node *node, struct op_shapes *s)
{
    (void)node;
    TRY(check_labels(s->in[0], s->in[1]));
    s->out[0] = shape_1(1);
    return STATUS_OK;
}

const struct op op_token_accuracy = {
    .name = "token_accuracy",
    .summary = "how many tokens' largest logit is at the label",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_SUM },
    .by_rows = true,
    .infer = infer_token_accuracy,
    .flops = flops_softmax,
    .ways = ways_classes,
};

static enum status infer_linear_token_loss(const struct node *node, struct op_shapes *s)
{
    const struct shape *x = s->in[0], *w = s->in[1];

    (void)node;
    TRY(check_labels(x, s->in[2]));
    if (w->rank != 2 || w->dim[1] != x->dim[x->rank - 1])
        return FAIL(STATUS_USAGE, "input of %lld features, weight for %lld",
                    (long long)x->dim[x->rank - 1], (long long)w->dim[w->rank - 1]);
    s->out[0] = s->out[1] = shape_1(1);
    s->out[2] = *x;
    s->out[3] = *w;
    return STATUS_OK;
}

static double flops_linear_token_loss(const struct node *node, const struct shape *const *in,
                                      const struct shape *out)
{
    (void)node;
    (void)out;
    return 3 * 2.0 * (double)shape_count(in[0]) * (double)in[1]->dim[0];
}

const struct op op_linear_token_loss = {
    .name = "linear_token_loss",
    .summary = "token_cross_entropy and token_accuracy of x W^T, and the gradients of x and W",
    .min_in = 3,
    .max_in = 3,
    .min_out = 4,
    .max_out = 4,
    .in_dtype = { DTYPE_F32, DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_SUM, SPLIT_SUM, SPLIT_ROWS, SPLIT_SUM },
    .by_rows = true,
    .infer = infer_linear_token_loss,
    .flops = flops_linear_token_loss,
};
