/* SPDX-License-Identifier: MIT */
/* op_attend.c - an LSTM layer that looks at a source at each step, and its gradient.
 *
 * Additive attention (Bahdanau, Cho and Bengio, "Neural Machine Translation by Jointly Learning to Align
 * and Translate", 2015). Before step t, with h the state that it begins with:
 *
 *   query = W_query h,  score_s = v . tanh(query + keys_s),  weights = softmax of the scores over the
 *   places s of the source whose id is not negative,  context = sum of weights_s memory_s
 *
 * and the step is that of lstm with W_context context added to the gates. keys (N,S,A) and memory
 * (N,S,E) are the same for all steps and made by layers before. So context and h go into the next step,
 * which is why the loop over time is inside the op. The last outputs are for backward; weights of all
 * steps' products are linear_grad_weight of what went in and what flows back.
 */
#include "graph/op.h"

enum {
    IN_GATES,
    IN_WEIGHT,
    IN_BIAS,
    IN_IDS,
    IN_STATE,
    IN_CONTEXT,
    IN_QUERY,
    IN_SCORE,
    IN_KEYS,
    IN_MEMORY,
    IN_SOURCE,
    N_IN
};
enum {
    OUT_Y,
    OUT_LAST,
    OUT_ACTS,
    OUT_KEPT,
    OUT_BEFORE,
    OUT_CONTEXT,
    OUT_WEIGHTS,
    OUT_QUERY,
    N_OUT
};

/* Extents, as the weights and sequences have them. */
struct sizes {
    int64_t rows, steps, units, places, keys, memory;
};

/* Is each of `count` shapes what it must be? */
static enum status check_shapes(const struct shape *const *actual, const struct shape *expected,
                                int count)
{
    char a[SHAPE_TEXT], b[SHAPE_TEXT];

    for (int i = 0; i < count; i++) {
        if (!shape_equal(actual[i], &expected[i]))
            return FAIL(STATUS_USAGE, "input %d is %s instead of %s", i,
                        shape_print(actual[i], a), shape_print(&expected[i], b));
    }
    return STATUS_OK;
}

/* Whatever the shapes are, sizes of them; those that do not fit are found afterwards. */
static enum status read_sizes(const struct shape *gates, const struct shape *weight,
                              const struct shape *keys, const struct shape *memory,
                              struct sizes *out)
{
    if (gates->rank != 3 || weight->rank != 2 || keys->rank != 3 || memory->rank != 3)
        return FAIL(STATUS_USAGE, "needs sequences, and a matrix of weights");
    *out = (struct sizes){ .rows = gates->dim[0],
                           .steps = gates->dim[1],
                           .units = weight->dim[1],
                           .places = keys->dim[1],
                           .keys = keys->dim[2],
                           .memory = memory->dim[2] };
    return STATUS_OK;
}

static enum status infer_attend(const struct node *node, struct op_shapes *s)
{
    struct sizes z;

    (void)node;
    TRY(read_sizes(s->in[IN_GATES], s->in[IN_WEIGHT], s->in[IN_KEYS], s->in[IN_MEMORY], &z));
    const int64_t gates = 4 * z.units;
    const struct shape expected[N_IN] = {
        [IN_GATES] = shape_3(z.rows, z.steps, gates),
        [IN_WEIGHT] = shape_2(gates, z.units),
        [IN_BIAS] = shape_1(gates),
        [IN_IDS] = shape_2(z.rows, z.steps),
        [IN_STATE] = shape_2(z.rows, 2 * z.units),
        [IN_CONTEXT] = shape_2(gates, z.memory),
        [IN_QUERY] = shape_2(z.keys, z.units),
        [IN_SCORE] = shape_1(z.keys),
        [IN_KEYS] = shape_3(z.rows, z.places, z.keys),
        [IN_MEMORY] = shape_3(z.rows, z.places, z.memory),
        [IN_SOURCE] = shape_2(z.rows, z.places),
    };
    TRY(check_shapes(s->in, expected, N_IN));
    s->out[OUT_Y] = s->out[OUT_KEPT] = s->out[OUT_BEFORE] = shape_3(z.rows, z.steps, z.units);
    s->out[OUT_LAST] = *s->in[IN_STATE];
    s->out[OUT_ACTS] = *s->in[IN_GATES];
    s->out[OUT_CONTEXT] = shape_3(z.rows, z.steps, z.memory);
    s->out[OUT_WEIGHTS] = shape_3(z.rows, z.steps, z.places);
    s->out[OUT_QUERY] = shape_3(z.rows, z.steps, z.keys);
    return STATUS_OK;
}

/* The gradient of a weight (and a bias) by what went into its products and what flows back. */
static struct node *add_weight_grad(struct graph *graph, const struct value *weight,
                                    struct value *into, struct value *back, bool with_bias)
{
    const struct attrs attrs = { .with_bias = with_bias };
    struct value *const in[] = { into, back };

    return graph_add(graph, &op_linear_grad_weight, weight->name, in, 2, &attrs);
}

static void gradient_attend(struct graph *graph, const struct node *node,
                            struct value *const *dout, const bool *wanted, struct value **din)
{
    struct value *const *in = node->in, *const *out = node->out;
    struct value *const flow[] = { out[OUT_ACTS],  in[IN_WEIGHT],    in[IN_IDS],
                                   out[OUT_KEPT],  in[IN_CONTEXT],   in[IN_QUERY],
                                   in[IN_SCORE],   in[IN_KEYS],      in[IN_MEMORY],
                                   out[OUT_QUERY], out[OUT_WEIGHTS], dout[OUT_Y] };

    for (int i = OUT_LAST; i < N_OUT; i++) {
        if (dout[i] || !dout[OUT_Y]) {
            graph_fail(graph,
                       FAIL(STATUS_UNSUPPORTED,
                            "node %s (%s): gradients flow back through its outputs of all "
                            "steps alone",
                            node->name, node->op->name));
            return;
        }
    }
    struct node *grad = graph_add(graph, &op_lstm_attend_grad, node->name, flow, 12, NULL);
    if (!grad)
        return;
    struct node *hidden =
        add_weight_grad(graph, in[IN_WEIGHT], out[OUT_BEFORE], grad->out[0], wanted[IN_BIAS]);
    struct node *context =
        add_weight_grad(graph, in[IN_CONTEXT], out[OUT_CONTEXT], grad->out[0], false);
    struct node *query =
        add_weight_grad(graph, in[IN_QUERY], out[OUT_BEFORE], grad->out[4], false);
    if (!hidden || !context || !query)
        return;
    din[IN_GATES] = grad->out[0];
    din[IN_STATE] = grad->out[1];
    din[IN_KEYS] = grad->out[2];
    din[IN_MEMORY] = grad->out[3];
    din[IN_SCORE] = grad->out[5];
    din[IN_WEIGHT] = hidden->out[0];
    din[IN_BIAS] = hidden->n_out > 1 ? hidden->out[1] : NULL;
    din[IN_CONTEXT] = context->out[0];
    din[IN_QUERY] = query->out[0];
}

/* The products of all steps, and a tanh counted as ten operations for each step, place and key. */
static double flops_of(const struct shape *steps, const struct shape *weight,
                       const struct shape *context, const struct shape *query,
                       const struct shape *keys, const struct shape *memory)
{
    const double rows = (double)steps->dim[0] * (double)steps->dim[1];
    const double places = (double)keys->dim[1];

    return 2.0 * rows *
               (double)(shape_count(weight) + shape_count(context) + shape_count(query)) +
           rows * places * (13.0 * (double)keys->dim[2] + 2.0 * (double)memory->dim[2]);
}

static double flops_attend(const struct node *node, const struct shape *const *in,
                           const struct shape *out)
{
    (void)node;
    (void)out;
    return flops_of(in[IN_GATES], in[IN_WEIGHT], in[IN_CONTEXT], in[IN_QUERY], in[IN_KEYS],
                    in[IN_MEMORY]);
}

const struct op op_lstm_attend = {
    .name = "lstm_attend",
    .summary = "an LSTM layer over all steps that attends to a source before each",
    .min_in = N_IN,
    .max_in = N_IN,
    .min_out = N_OUT,
    .max_out = N_OUT,
    .in_dtype = { [IN_IDS] = DTYPE_I32, [IN_SOURCE] = DTYPE_I32 },
    .split = { SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS,
               SPLIT_ROWS, SPLIT_ROWS },
    .may_overwrite = true,
    .overwrites = OUT_ACTS,
    .infer = infer_attend,
    .gradient = gradient_attend,
    .flops = flops_attend,
};

/* Inputs acts, w_hh, ids, kept, w_context, w_query, v, keys, memory, query, weights, dy. */
static enum status infer_attend_grad(const struct node *node, struct op_shapes *s)
{
    struct sizes z;

    (void)node;
    TRY(read_sizes(s->in[0], s->in[1], s->in[7], s->in[8], &z));
    const int64_t gates = 4 * z.units;
    const struct shape y = shape_3(z.rows, z.steps, z.units);
    const struct shape keys = shape_3(z.rows, z.places, z.keys);
    const struct shape memory = shape_3(z.rows, z.places, z.memory);
    const struct shape query = shape_3(z.rows, z.steps, z.keys);
    const struct shape expected[] = {
        shape_3(z.rows, z.steps, gates),
        shape_2(gates, z.units),
        shape_2(z.rows, z.steps),
        y,
        shape_2(gates, z.memory),
        shape_2(z.keys, z.units),
        shape_1(z.keys),
        keys,
        memory,
        query,
        shape_3(z.rows, z.steps, z.places),
        y,
    };
    TRY(check_shapes(s->in, expected, 12));
    s->out[0] = *s->in[0];
    s->out[1] = shape_2(z.rows, 2 * z.units);
    s->out[2] = keys;
    s->out[3] = memory;
    s->out[4] = query;
    s->out[5] = shape_1(z.keys);
    return STATUS_OK;
}

static double flops_attend_grad(const struct node *node, const struct shape *const *in,
                                const struct shape *out)
{
    (void)node;
    (void)out;
    return flops_of(in[0], in[1], in[4], in[5], in[7], in[8]);
}

const struct op op_lstm_attend_grad = {
    .name = "lstm_attend_grad",
    .summary = "gradients of lstm_attend for gates, state, keys, memory, queries and scores",
    .min_in = 12,
    .max_in = 12,
    .min_out = 6,
    .max_out = 6,
    .in_dtype = { [2] = DTYPE_I32 },
    .split = { SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS, SPLIT_ROWS, SPLIT_SUM },
    .may_overwrite = true,
    .infer = infer_attend_grad,
    .flops = flops_attend_grad,
};
