/* SPDX-License-Identifier: MIT */
/* op_recurrent.c - LSTM and GRU layers over whole sequences, and their gradients.
 *
 * What an input says to the gates is the work of a linear layer before, for all steps at once; here
 * is what a step makes of it and of the state that the last step left: gates (N,T,G*H) = x W_ih^T +
 * b_ih, w_hh (G*H, H), b_hh (G*H), G = 4 for LSTM (in the order i, f, g, o) and 3 for GRU (r, z, n).
 * Where ids (N,T) are negative a sequence is over: the state stays as it is, and y is 0. A state is
 * h, and for LSTM then c: (N,2H) or (N,H); without one, the first step begins with zeros.
 *
 * The other outputs are for backward: the gates as they came out, which may lie where they went in;
 * `kept`, of a step the c it began with or a GRU's hidden part of n; and `before`, the h it began with.
 * So the gradient for w_hh and b_hh is that of a linear layer over all steps: linear_grad_weight of
 * `before` and of what flows into the gates.
 */
#include "graph/op.h"

enum { LSTM_GATES = 4, GRU_GATES = 3 };
enum { IN_GATES, IN_WEIGHT, IN_BIAS, IN_IDS, IN_STATE };
enum { OUT_Y, OUT_LAST, OUT_ACTS, OUT_KEPT, OUT_BEFORE };

/* Gates (N,T,G*H), weight (G*H,H): the rest must fit them. */
static enum status check_inputs(const struct op_shapes *s, int64_t n_gates, int64_t n_states)
{
    const struct shape *gates = s->in[IN_GATES], *w = s->in[IN_WEIGHT], *b = s->in[IN_BIAS];
    const struct shape *ids = s->in[IN_IDS], *state = s->in[IN_STATE];

    if (w->rank != 2 || w->dim[0] != n_gates * w->dim[1])
        return FAIL(STATUS_USAGE, "weight of %lld rows for %lld gates of %lld units",
                    (long long)w->dim[0], (long long)n_gates, (long long)w->dim[w->rank - 1]);
    if (gates->rank != 3 || gates->dim[2] != w->dim[0] || b->rank != 1 ||
        b->dim[0] != w->dim[0])
        return FAIL(STATUS_USAGE, "gates of %lld and bias of %lld, weight for %lld",
                    (long long)gates->dim[gates->rank - 1], (long long)b->dim[0],
                    (long long)w->dim[0]);
    if (ids->rank != 2 || ids->dim[0] != gates->dim[0] || ids->dim[1] != gates->dim[1])
        return FAIL(STATUS_USAGE, "ids and gates are not of the same sequences");
    if (state && (state->rank != 2 || state->dim[0] != gates->dim[0] ||
                  state->dim[1] != n_states * w->dim[1]))
        return FAIL(STATUS_USAGE, "a state of %lld for %lld units",
                    (long long)state->dim[state->rank - 1], (long long)w->dim[1]);
    return STATUS_OK;
}

static enum status infer(struct op_shapes *s, int64_t n_gates, int64_t n_states)
{
    TRY(check_inputs(s, n_gates, n_states));
    const int64_t n = s->in[IN_GATES]->dim[0], t = s->in[IN_GATES]->dim[1];
    const int64_t units = s->in[IN_WEIGHT]->dim[1];

    s->out[OUT_Y] = s->out[OUT_KEPT] = s->out[OUT_BEFORE] = shape_3(n, t, units);
    s->out[OUT_LAST] = shape_2(n, n_states * units);
    s->out[OUT_ACTS] = *s->in[IN_GATES];
    return STATUS_OK;
}

static enum status infer_lstm(const struct node *node, struct op_shapes *s)
{
    (void)node;
    return infer(s, LSTM_GATES, 2);
}

static enum status infer_gru(const struct node *node, struct op_shapes *s)
{
    (void)node;
    return infer(s, GRU_GATES, 1);
}

/* Backward through time, then one product over all steps. What flows into a GRU's hidden part is
 * another output than what flows into its gates. */
static void gradient_recurrent(struct graph *graph, const struct node *node,
                               struct value *const *dout, const bool *wanted,
                               struct value **din)
{
    const bool is_lstm = node->op == &op_lstm;
    const bool with_state = node->n_in > IN_STATE && wanted[IN_STATE];
    const struct attrs attrs = { .with_state = with_state };
    struct value *in[GRAPH_IN] = { node->out[OUT_ACTS], node->in[IN_WEIGHT], node->in[IN_IDS],
                                   node->out[OUT_KEPT] };
    int n = 4;

    if (!is_lstm)
        in[n++] = node->out[OUT_BEFORE];
    for (int i = OUT_Y; i <= OUT_LAST; i++) {
        if (dout[i])
            in[n++] = dout[i];
    }
    struct node *grad =
        graph_add(graph, is_lstm ? &op_lstm_grad : &op_gru_grad, node->name, in, n, &attrs);
    if (!grad)
        return;
    const int hidden = is_lstm ? 0 : 1;
    din[IN_GATES] = grad->out[0];
    if (with_state)
        din[IN_STATE] = grad->out[hidden + 1];
    if (wanted[IN_WEIGHT] || wanted[IN_BIAS]) {
        const struct attrs with_bias = { .with_bias = wanted[IN_BIAS] };
        struct value *const factors[] = { node->out[OUT_BEFORE], grad->out[hidden] };
        struct node *weight = graph_add(graph, &op_linear_grad_weight,
                                        node->in[IN_WEIGHT]->name, factors, 2, &with_bias);
        din[IN_WEIGHT] = weight ? weight->out[0] : NULL;
        din[IN_BIAS] = weight && wanted[IN_BIAS] ? weight->out[1] : NULL;
    }
}

/* The products of all steps. */
static double flops_recurrent(const struct node *node, const struct shape *const *in,
                              const struct shape *out)
{
    (void)node;
    (void)out;
    return 2.0 * (double)in[0]->dim[0] * (double)in[0]->dim[1] * (double)shape_count(in[1]);
}

const struct op op_lstm = {
    .name = "lstm",
    .summary = "an LSTM layer over all steps, given what its input says to the gates",
    .min_in = 4,
    .max_in = 5,
    .min_out = 5,
    .max_out = 5,
    .in_dtype = { [IN_IDS] = DTYPE_I32 },
    .split = { SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS },
    .may_overwrite = true,
    .overwrites = OUT_ACTS,
    .infer = infer_lstm,
    .gradient = gradient_recurrent,
    .flops = flops_recurrent,
};

const struct op op_gru = {
    .name = "gru",
    .summary = "a GRU layer over all steps, given what its input says to the gates",
    .min_in = 4,
    .max_in = 5,
    .min_out = 5,
    .max_out = 5,
    .in_dtype = { [IN_IDS] = DTYPE_I32 },
    .split = { SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS },
    .may_overwrite = true,
    .overwrites = OUT_ACTS,
    .infer = infer_gru,
    .gradient = gradient_recurrent,
    .flops = flops_recurrent,
};

/* Inputs acts, weight, ids, kept, of a GRU before; then dy (rank 3), or the gradient of the last state
 * (rank 2), or both in this order. */
static enum status check_gradients(const struct op_shapes *s, bool is_lstm)
{
    const struct shape *acts = s->in[0], *w = s->in[1], *ids = s->in[2];
    const int64_t n_gates = is_lstm ? LSTM_GATES : GRU_GATES;
    const int flow = is_lstm ? 4 : 5;

    if (w->rank != 2 || w->dim[0] != n_gates * w->dim[1])
        return FAIL(STATUS_USAGE, "weight of %lld rows for %lld gates of %lld units",
                    (long long)w->dim[0], (long long)n_gates, (long long)w->dim[w->rank - 1]);
    if (acts->rank != 3 || acts->dim[2] != w->dim[0] || ids->rank != 2 ||
        ids->dim[0] != acts->dim[0] || ids->dim[1] != acts->dim[1])
        return FAIL(STATUS_USAGE, "gates, weight and ids do not fit");
    const struct shape y = shape_3(acts->dim[0], acts->dim[1], w->dim[1]);
    const struct shape last = shape_2(acts->dim[0], (is_lstm ? 2 : 1) * w->dim[1]);
    const struct shape *first = s->in[flow], *second = s->in[flow + 1];
    for (int i = 3; i < flow; i++) {
        if (!shape_equal(s->in[i], &y))
            return FAIL(STATUS_USAGE, "what forward kept does not fit the gates");
    }
    if (!(shape_equal(first, &y) ? !second || shape_equal(second, &last)
                                 : !second && shape_equal(first, &last)))
        return FAIL(STATUS_USAGE, "gradients are those of neither outputs nor the last state");
    return STATUS_OK;
}

static enum status infer_lstm_grad(const struct node *node, struct op_shapes *s)
{
    (void)node;
    TRY(check_gradients(s, true));
    s->out[0] = *s->in[0];
    s->out[1] = shape_2(s->in[0]->dim[0], 2 * s->in[1]->dim[1]);
    return STATUS_OK;
}

static enum status infer_gru_grad(const struct node *node, struct op_shapes *s)
{
    (void)node;
    TRY(check_gradients(s, false));
    s->out[0] = s->out[1] = *s->in[0];
    s->out[2] = shape_2(s->in[0]->dim[0], s->in[1]->dim[1]);
    return STATUS_OK;
}

const struct op op_lstm_grad = {
    .name = "lstm_grad",
    .summary = "gradients of lstm for its gates and its first state, back through all steps",
    .min_in = 5,
    .max_in = 6,
    .min_out = 1,
    .max_out = 2,
    .in_dtype = { [2] = DTYPE_I32 },
    .may_overwrite = true,
    .split = { SPLIT_ROWS, SPLIT_ROWS },
    .infer = infer_lstm_grad,
    .flops = flops_recurrent,
};

const struct op op_gru_grad = {
    .name = "gru_grad",
    .summary = "gradients of gru for its gates, their hidden part, and its first state",
    .min_in = 6,
    .max_in = 7,
    .min_out = 2,
    .max_out = 3,
    .in_dtype = { [2] = DTYPE_I32 },
    .may_overwrite = true,
    .split = { SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS },
    .infer = infer_gru_grad,
    .flops = flops_recurrent,
};
