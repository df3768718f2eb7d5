/* SPDX-License-Identifier: MIT */
/* op_move.c - values that go from one stage of a pipeline to another.
 *
 *   value -> send -> receive -> the same value, on the rank that needs it
 *
 * send runs on the rank that made the value, receive on the other; both stand in the graph of every rank. The
 * pass that inserts them is pass/stage.c.
 */
#include "graph/op.h"

static enum status infer_same(const struct node *node, struct op_shapes *s)
{
    (void)node;
    s->out[0] = *s->in[0];
    return STATUS_OK;
}

static double flops_none(const struct node *node, const struct shape *const *in,
                         const struct shape *out)
{
    (void)node, (void)in, (void)out;
    return 0;
}

/* attrs.peer: to which rank of the pipeline. The output is the message. */
const struct op op_send = {
    .name = "send",
    .summary = "a value to another stage of the pipeline",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .any_dtype = true,
    .keeps_sums = true,
    .moves = true,
    .infer = infer_same,
    .flops = flops_none,
};

/* attrs.peer: from which. */
const struct op op_receive = {
    .name = "receive",
    .summary = "a value from another stage of the pipeline",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .any_dtype = true,
    .keeps_sums = true,
    .moves = true,
    .infer = infer_same,
    .flops = flops_none,
};
