/* SPDX-License-Identifier: MIT */
/* op_tensor.c - what passes between ranks that share the work of layers (tensor parallelism).
 *
 * Each of `count` ranks runs the same shard on its slices of the parameters. A value is whole (the same on
 * all of them), cut along an axis, or a summand. pass/tensor.c inserts these ops where a value must become
 * another of these; exec/talk.c runs them. They come in pairs, each the other's gradient (Megatron-LM's f and g):
 *
 *   forward          backward
 *   tp_copy          tp_sum          a whole value that is used in slices: its gradients are summands
 *   tp_sum           nothing         summands become a whole value
 *   tp_slice         tp_gather       a whole value is cut: the gradient's slices are put together
 *   tp_gather        tp_slice        and back
 *   tp_gather, sums  tp_sum_slice    and back, where what comes back are summands
 *   tp_sum_slice     tp_gather       summands become slices of their sum
 *
 * tp_ids makes numbers of rows of a table those of this rank's rows; tp_token_loss and tp_token_accuracy join
 * what ranks know of their slices of the classes. Sums are in the order of ranks, so all of them have the same bits.
 */
#include "graph/op.h"

static enum status check_slice(const struct shape_slice *slice, const struct shape *x)
{
    if (slice->count < 1 || slice->index < 0 || slice->index >= slice->count ||
        slice->axis < 0 || slice->axis >= x->rank)
        return FAIL(STATUS_USAGE, "slice %d of %d along axis %d", slice->index, slice->count,
                    slice->axis);
    return STATUS_OK;
}

static enum status infer_same(const struct node *node, struct op_shapes *s)
{
    (void)node;
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

/* Slices of one length, unless the length of all is known. */
static enum status infer_slice(const struct node *node, struct op_shapes *s)
{
    const struct shape_slice *slice = &node->attrs.slice;
    const struct shape *x = s->in[0];

    TRY(check_slice(slice, x));
    if (slice->whole == 0 && x->dim[slice->axis] % slice->count != 0)
        return FAIL(STATUS_USAGE,
                    "sequences of %lld cannot be cut into %d equal parts: choose another "
                    "length, or do without --sequence-parallel",
                    (long long)x->dim[slice->axis], slice->count);
    s->out[0] = slice_shape(slice, x);
    return STATUS_OK;
}

static enum status infer_gather(const struct node *node, struct op_shapes *s)
{
    TRY(check_slice(&node->attrs.slice, s->in[0]));
    s->out[0] = slice_whole_shape(&node->attrs.slice, s->in[0]);
    return STATUS_OK;
}

static struct value *one(struct graph *graph, const struct op *op, const struct node *node,
                         struct value *x)
{
    const struct attrs attrs = { .slice = node->attrs.slice };
    struct node *made = graph_add(graph, op, node->name, &x, 1, &attrs);

    return made ? made->out[0] : NULL;
}

static void gradient_copy(struct graph *graph, const struct node *node,
                          struct value *const *dout, const bool *wanted, struct value **din)
{
    if (wanted[0])
        din[0] = one(graph, &op_tp_sum, node, dout[0]);
}

const struct op op_tp_copy = {
    .name = "tp_copy",
    .summary = "a whole value for ranks that share a layer; their gradients are summed",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .is_view = true,
    .infer = infer_same,
    .gradient = gradient_copy,
};

static void gradient_sum(struct graph *graph, const struct node *node,
                         struct value *const *dout, const bool *wanted, struct value **din)
{
    (void)graph, (void)node;
    if (wanted[0])
        din[0] = dout[0];
}

const struct op op_tp_sum = {
    .name = "tp_sum",
    .summary = "sum over ranks that share a layer, on all of them",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .may_overwrite = true,
    .keeps_sums = true,
    .talks = true,
    .infer = infer_same,
    .gradient = gradient_sum,
};

static void gradient_slice(struct graph *graph, const struct node *node,
                           struct value *const *dout, const bool *wanted, struct value **din)
{
    if (wanted[0])
        din[0] = one(graph, &op_tp_gather, node, dout[0]);
}

const struct op op_tp_slice = {
    .name = "tp_slice",
    .summary = "this rank's slice of a whole value",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .talks = true,
    .infer = infer_slice,
    .gradient = gradient_slice,
};

static void gradient_gather(struct graph *graph, const struct node *node,
                            struct value *const *dout, const bool *wanted, struct value **din)
{
    if (wanted[0])
        din[0] = one(graph, node->attrs.sums ? &op_tp_sum_slice : &op_tp_slice, node, dout[0]);
}

const struct op op_tp_gather = {
    .name = "tp_gather",
    .summary = "the slices of ranks that share a layer, put together on all of them",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .talks = true,
    .infer = infer_gather,
    .gradient = gradient_gather,
};

const struct op op_tp_sum_slice = {
    .name = "tp_sum_slice",
    .summary = "this rank's slice of the sum over ranks that share a layer",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .talks = true,
    .infer = infer_slice,
    .gradient = gradient_slice,
};

/* attrs.slice: of the rows of the table. */
const struct op op_tp_ids = {
    .name = "tp_ids",
    .summary = "numbers of a table's rows as this rank counts its own; -1 for others'",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_I32 },
    .split = { SPLIT_ROWS },
    .any_dtype = true,
    .talks = true,
    .infer = infer_same,
};

/* Losses over slices of the classes ------------------------------------------------------ */

/* A label for each row of logits. */
static enum status check_labels(const struct shape *logits, const struct shape *labels)
{
    bool fit = (logits->rank == 2 || logits->rank == 3) && labels->rank == logits->rank - 1;

    for (int i = 0; fit && i < labels->rank; i++)
        fit = logits->dim[i] == labels->dim[i];
    return fit ? STATUS_OK : FAIL(STATUS_USAGE, "needs logits and one label a token");
}

/* Logits, the log of the sum of their exponentials here, labels. attrs.slice: of the classes. */
static enum status infer_token_loss(const struct node *node, struct op_shapes *s)
{
    const struct shape *logits = s->in[0];
    struct shape numbers = *logits;

    (void)node;
    TRY(check_labels(logits, s->in[2]));
    numbers.dim[numbers.rank - 1] = 1;
    if (!shape_equal(s->in[1], &numbers))
        return FAIL(STATUS_USAGE, "needs one number a token beside the logits");
    s->out[0] = shape_1(1);
    s->out[1] = numbers;
    return STATUS_OK;
}

static void gradient_token_loss(struct graph *graph, const struct node *node,
                                struct value *const *dout, const bool *wanted,
                                struct value **din)
{
    const struct attrs attrs = { .smoothing = node->attrs.smoothing,
                                 .slice = node->attrs.slice };
    struct value *const in[] = { node->in[0], node->out[1], node->in[2] };

    (void)dout;
    if (!wanted[0])
        return;
    struct node *grad =
        graph_add(graph, &op_token_cross_entropy_grad, node->name, in, 3, &attrs);
    din[0] = grad ? grad->out[0] : NULL;
}

const struct op op_tp_token_loss = {
    .name = "tp_token_loss",
    .summary = "token_cross_entropy over all ranks' slices of the classes",
    .min_in = 3,
    .max_in = 3,
    .min_out = 2,
    .max_out = 2,
    .in_dtype = { DTYPE_F32, DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_SUM, SPLIT_ROWS },
    .by_rows = true,
    .talks = true,
    .infer = infer_token_loss,
    .gradient = gradient_token_loss,
};

static enum status infer_token_accuracy(const struct node *node, struct op_shapes *s)
{
    (void)node;
    TRY(check_labels(s->in[0], s->in[1]));
    s->out[0] = shape_1(1);
    return STATUS_OK;
}

const struct op op_tp_token_accuracy = {
    .name = "tp_token_accuracy",
    .summary = "token_accuracy over all ranks' slices of the classes",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_I32 },
    .split = { SPLIT_SUM },
    .by_rows = true,
    .talks = true,
    .infer = infer_token_accuracy,
};
