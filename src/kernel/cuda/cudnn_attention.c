/* SPDX-License-Identifier: MIT */
/* cudnn_attention.c - causal attention of bf16 and its gradient by cuDNN's fused engines.
 *
 * cuDNN knows attention by its pattern: a graph of products, pointwise operations and sums of which no matrix of scores is
 * ever in memory. A graph is written here as two tables, of tensors and of steps; the order of steps is the one that cuDNN
 * looks for. Queries, keys and values are read where they lie in qkv, their gradients written where they belong in
 * dqkv, lse as (N,T,H). The gradient's last product goes straight to the queries' gradient: with a sum of f32
 * beside it, as cuDNN would rather have it, the order of additions is nobody's. For that all scores' gradients are in its
 * workspace, so it gets some sequences at a time. Engines of attention are compiled when a plan is made, half a second
 * each, so short sequences are left to kernels of our own, as are those with padding.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/cuda/cudnn_graph.h"

enum { SHORTEST = 128, SIZE_MAX_OF_HEAD = 128, PAIRS_MAX = 128 << 20 };

struct attended {
    bool is_gradient;
    int64_t sequences, heads, tokens, size;
};

struct plan {
    struct attended of;
    struct dnn_plan dnn;
    float scale, hidden, one; /* numbers that plans take by value */
    struct plan *next;
};

static struct plan *the_plans; /* guarded by dnn_lock */

/* Tables ------------------------------------------------------------------------------- */

enum tensor {
    NONE,
    QUERIES,
    KEYS_ACROSS,
    VALUES,
    VALUES_ACROSS,
    SCALE,
    HIDDEN,
    ONE,
    OUTPUT,
    LSE,
    RAW,
    SCALED,
    ROW,
    COLUMN,
    SEEN,
    MASKED,
    LARGEST,
    SHIFTED,
    POWERS,
    SUM,
    LOG_OF_SUM,
    WEIGHTS,
    FLOW,
    PRODUCTS,
    PRODUCT_SUM,
    DELTA,
    WEIGHTS_ACROSS,
    DWEIGHTS,
    DWEIGHTS_APART,
    DSCALED,
    DSCORES,
    DSCORES_ACROSS,
    KEYS,
    DQUERIES,
    DKEYS,
    DVALUES,
    TENSORS
};

/* How a tensor lies: a part of qkv, the same with its last two axes exchanged, y, lse, one number; or, never in memory,
 * a score for each pair, the same across, a number a query, a head's numbers. */
enum form {
    IN_QKV,
    IN_QKV_ACROSS,
    LIKE_Y,
    LIKE_LSE,
    NUMBER,
    PAIRS,
    PAIRS_ACROSS,
    A_QUERY,
    A_HEAD
};

static const struct {
    enum form form;
    cudnnDataType_t type;
    bool is_virtual;
} tensors[TENSORS] = {
    [QUERIES] = { IN_QKV, CUDNN_DATA_BFLOAT16, false },
    [KEYS_ACROSS] = { IN_QKV_ACROSS, CUDNN_DATA_BFLOAT16, false },
    [VALUES] = { IN_QKV, CUDNN_DATA_BFLOAT16, false },
    [VALUES_ACROSS] = { IN_QKV_ACROSS, CUDNN_DATA_BFLOAT16, false },
    [SCALE] = { NUMBER, CUDNN_DATA_FLOAT, false },
    [HIDDEN] = { NUMBER, CUDNN_DATA_FLOAT, false },
    [ONE] = { NUMBER, CUDNN_DATA_FLOAT, false },
    [OUTPUT] = { LIKE_Y, CUDNN_DATA_BFLOAT16, false },
    [LSE] = { LIKE_LSE, CUDNN_DATA_FLOAT, false },
    [RAW] = { PAIRS, CUDNN_DATA_FLOAT, true },
    [SCALED] = { PAIRS, CUDNN_DATA_FLOAT, true },
    [ROW] = { PAIRS, CUDNN_DATA_INT32, true },
    [COLUMN] = { PAIRS, CUDNN_DATA_INT32, true },
    [SEEN] = { PAIRS, CUDNN_DATA_BOOLEAN, true },
    [MASKED] = { PAIRS, CUDNN_DATA_FLOAT, true },
    [LARGEST] = { A_QUERY, CUDNN_DATA_FLOAT, true },
    [SHIFTED] = { PAIRS, CUDNN_DATA_FLOAT, true },
    [POWERS] = { PAIRS, CUDNN_DATA_FLOAT, true },
    [SUM] = { A_QUERY, CUDNN_DATA_FLOAT, true },
    [LOG_OF_SUM] = { A_QUERY, CUDNN_DATA_FLOAT, true },
    [WEIGHTS] = { PAIRS, CUDNN_DATA_BFLOAT16, true },
    [FLOW] = { LIKE_Y, CUDNN_DATA_BFLOAT16, false },
    [PRODUCTS] = { A_HEAD, CUDNN_DATA_FLOAT, true },
    [PRODUCT_SUM] = { A_QUERY, CUDNN_DATA_FLOAT, true },
    [DELTA] = { A_QUERY, CUDNN_DATA_FLOAT, false },
    [WEIGHTS_ACROSS] = { PAIRS_ACROSS, CUDNN_DATA_BFLOAT16, true },
    [DWEIGHTS] = { PAIRS, CUDNN_DATA_FLOAT, true },
    [DWEIGHTS_APART] = { PAIRS, CUDNN_DATA_FLOAT, true },
    [DSCALED] = { PAIRS, CUDNN_DATA_FLOAT, true },
    [DSCORES] = { PAIRS, CUDNN_DATA_BFLOAT16, true },
    [DSCORES_ACROSS] = { PAIRS_ACROSS, CUDNN_DATA_BFLOAT16, true },
    [KEYS] = { IN_QKV, CUDNN_DATA_BFLOAT16, true },
    [DQUERIES] = { IN_QKV, CUDNN_DATA_BFLOAT16, false },
    [DKEYS] = { IN_QKV, CUDNN_DATA_BFLOAT16, false },
    [DVALUES] = { IN_QKV, CUDNN_DATA_BFLOAT16, false },
};

/* What a step is: a product, a sum or the largest along the last axis, an exchange of axes, a tensor's own index along an
 * axis, or something pointwise in f32, or of other types. */
enum action { PRODUCT, REDUCTION, ACROSS, POINTWISE };

struct step {
    enum action action;
    int mode;                 /* of the reduction or the pointwise operation */
    enum tensor a, b, choice; /* what it reads */
    enum tensor out;
    cudnnDataType_t type; /* of the arithmetic */
    int axis;             /* of an index */
};

#define PRODUCT_OF(a, b, out)                                                                  \
    {                                                                                          \
        PRODUCT, 0, a, b, NONE, out, CUDNN_DATA_FLOAT, 0                                       \
    }
#define REDUCED(mode, a, out)                                                                  \
    {                                                                                          \
        REDUCTION, CUDNN_REDUCE_TENSOR_##mode, a, NONE, NONE, out, CUDNN_DATA_FLOAT, 0         \
    }
#define TURNED(a, out)                                                                         \
    {                                                                                          \
        ACROSS, 0, a, NONE, NONE, out, CUDNN_DATA_FLOAT, 0                                     \
    }
#define POINT(mode, a, b, out)                                                                 \
    {                                                                                          \
        POINTWISE, CUDNN_POINTWISE_##mode, a, b, NONE, out, CUDNN_DATA_FLOAT, 0                \
    }
#define INDEX(a, axis, out)                                                                    \
    {                                                                                          \
        POINTWISE, CUDNN_POINTWISE_GEN_INDEX, a, NONE, NONE, out, CUDNN_DATA_INT32, axis       \
    }
/* Scores, and what a query does not see hidden. */
#define MASKED_SCORES                                                                          \
    PRODUCT_OF(QUERIES, KEYS_ACROSS, RAW), POINT(MUL, RAW, SCALE, SCALED),                     \
        INDEX(SCALED, 2, ROW), INDEX(SCALED, 3, COLUMN),                                       \
        { POINTWISE, CUDNN_POINTWISE_CMP_GE, ROW, COLUMN, NONE, SEEN, CUDNN_DATA_BOOLEAN, 0 }, \
    {                                                                                          \
        POINTWISE, CUDNN_POINTWISE_BINARY_SELECT, SCALED, HIDDEN, SEEN, MASKED,                \
            CUDNN_DATA_FLOAT, 0                                                                \
    }

static const struct step forward[] = {
    MASKED_SCORES,
    REDUCED(MAX, MASKED, LARGEST),
    POINT(SUB, MASKED, LARGEST, SHIFTED),
    POINT(EXP, SHIFTED, NONE, POWERS),
    REDUCED(ADD, POWERS, SUM),
    POINT(LOG, SUM, NONE, LOG_OF_SUM),
    POINT(ADD, LARGEST, LOG_OF_SUM, LSE),
    POINT(DIV, POWERS, SUM, WEIGHTS),
    PRODUCT_OF(WEIGHTS, VALUES, OUTPUT),
};

static const struct step backward[] = {
    POINT(MUL, FLOW, OUTPUT, PRODUCTS),
    REDUCED(ADD, PRODUCTS, PRODUCT_SUM),
    POINT(MUL, PRODUCT_SUM, ONE, DELTA),
    MASKED_SCORES,
    POINT(SUB, MASKED, LSE, SHIFTED),
    POINT(EXP, SHIFTED, NONE, POWERS),
    TURNED(POWERS, WEIGHTS_ACROSS),
    PRODUCT_OF(WEIGHTS_ACROSS, FLOW, DVALUES),
    PRODUCT_OF(FLOW, VALUES_ACROSS, DWEIGHTS),
    POINT(SUB, DWEIGHTS, DELTA, DWEIGHTS_APART),
    POINT(MUL, DWEIGHTS_APART, POWERS, DSCALED),
    POINT(MUL, DSCALED, SCALE, DSCORES),
    TURNED(DSCORES, DSCORES_ACROSS),
    PRODUCT_OF(DSCORES_ACROSS, QUERIES, DKEYS),
    TURNED(KEYS_ACROSS, KEYS),
    PRODUCT_OF(DSCORES, KEYS, DQUERIES),
};

enum { STEPS_MAX = sizeof backward / sizeof backward[0] };
_Static_assert(sizeof forward <= sizeof backward, "the gradient has the most steps");

/* Graphs ------------------------------------------------------------------------------- */

static void lay_out(const struct attended *e, enum form form, struct dnn_tensor *out)
{
    const int64_t n = e->sequences, h = e->heads, t = e->tokens, d = e->size;
    const int64_t row = 3 * h * d, y_row = h * d;
    const struct {
        int64_t dim[4], stride[4];
    } forms[] = {
        [IN_QKV] = { { n, h, t, d }, { t * row, d, row, 1 } },
        [IN_QKV_ACROSS] = { { n, h, d, t }, { t * row, d, 1, row } },
        [LIKE_Y] = { { n, h, t, d }, { t * y_row, d, y_row, 1 } },
        [LIKE_LSE] = { { n, h, t, 1 }, { t * h, 1, h, 1 } },
        [NUMBER] = { { 1, 1, 1, 1 }, { 1, 1, 1, 1 } },
        [PAIRS] = { { n, h, t, t }, { h * t * t, t * t, t, 1 } },
        [PAIRS_ACROSS] = { { n, h, t, t }, { h * t * t, t * t, 1, t } },
        [A_QUERY] = { { n, h, t, 1 }, { h * t, t, 1, 1 } },
        [A_HEAD] = { { n, h, t, d }, { h * t * d, t * d, d, 1 } },
    };

    memcpy(out->dim, forms[form].dim, sizeof out->dim);
    memcpy(out->stride, forms[form].stride, sizeof out->stride);
    out->is_by_value = form == NUMBER;
}

/* A graph under way: which tensors it has so far. */
struct sketch {
    struct dnn_pile pile;
    struct attended of;
    cudnnBackendDescriptor_t tensor[TENSORS], op[STEPS_MAX];
};

static enum status place(struct sketch *s, enum tensor which)
{
    struct dnn_tensor tensor = { .id = which,
                                 .type = tensors[which].type,
                                 .is_virtual = tensors[which].is_virtual };

    if (which == NONE || s->tensor[which] != NULL)
        return STATUS_OK;
    lay_out(&s->of, tensors[which].form, &tensor);
    return dnn_make_tensor(&s->pile, &tensor, &s->tensor[which]);
}

/* Names of an action's descriptors and of its operands; the descriptor of an exchange has none of its own. */
static const struct {
    cudnnBackendDescriptorType_t what, op;
    cudnnBackendAttributeName_t type, of, a, b, choice, out;
} actions[] = {
    [PRODUCT] = { CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                  CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_ATTR_OPERATION_MATMUL_DESC,
                  CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
                  CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_ATTR_OPERATION_MATMUL_CDESC },
    [REDUCTION] = { CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
                    CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                    CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
                    CUDNN_ATTR_OPERATION_REDUCTION_XDESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
                    CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
                    CUDNN_ATTR_OPERATION_REDUCTION_YDESC },
    [ACROSS] = { CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                 CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 0, 0,
                 CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
                 CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_ATTR_OPERATION_RESHAPE_YDESC },
    [POINTWISE] = { CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
                    CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                    CUDNN_ATTR_POINTWISE_MATH_PREC,
                    CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                    CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                    CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
                    CUDNN_ATTR_OPERATION_POINTWISE_YDESC },
};

/* What a step does, apart from what it does it to. */
static enum status describe(struct sketch *s, const struct step *step,
                            cudnnBackendDescriptor_t *out)
{
    const cudnnReduceTensorOp_t reduction = (cudnnReduceTensorOp_t)step->mode;
    const cudnnPointwiseMode_t mode = (cudnnPointwiseMode_t)step->mode;
    const int64_t axis = step->axis;

    TRY(dnn_make(&s->pile, actions[step->action].what, out));
    TRY(dnn_set(*out, actions[step->action].type, CUDNN_TYPE_DATA_TYPE, 1, &step->type));
    if (step->action == REDUCTION)
        TRY(dnn_set(*out, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
                    &reduction));
    if (step->action == POINTWISE)
        TRY(dnn_set(*out, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    if (axis > 0)
        TRY(dnn_set(*out, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis));
    return dnn_finish(*out);
}

static enum status add_step(struct sketch *s, const struct step *step,
                            cudnnBackendDescriptor_t *out)
{
    const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    cudnnBackendDescriptor_t what;

    TRY(place(s, step->a));
    TRY(place(s, step->b));
    TRY(place(s, step->choice));
    TRY(place(s, step->out));
    if (step->action != ACROSS)
        TRY(describe(s, step, &what));
    TRY(dnn_make(&s->pile, actions[step->action].op, out));
    if (step->action != ACROSS)
        TRY(dnn_set(*out, actions[step->action].of, part, 1, &what));
    TRY(dnn_set(*out, actions[step->action].a, part, 1, &s->tensor[step->a]));
    if (step->b != NONE)
        TRY(dnn_set(*out, actions[step->action].b, part, 1, &s->tensor[step->b]));
    if (step->choice != NONE)
        TRY(dnn_set(*out, actions[step->action].choice, part, 1, &s->tensor[step->choice]));
    TRY(dnn_set(*out, actions[step->action].out, part, 1, &s->tensor[step->out]));
    return dnn_finish(*out);
}

static enum status choose(struct sketch *s, struct dnn_plan *out)
{
    const struct step *steps = s->of.is_gradient ? backward : forward;
    const int count = (int)(s->of.is_gradient ? STEPS_MAX : sizeof forward / sizeof forward[0]);
    cudnnBackendDescriptor_t graph;

    for (int i = 0; i < count; i++)
        TRY(add_step(s, &steps[i], &s->op[i]));
    TRY(dnn_make_graph(&s->pile, s->op, count, &graph));
    return dnn_choose(&s->pile, graph, true, out);
}

/* Plans -------------------------------------------------------------------------------- */

static bool is_same(const struct attended *a, const struct attended *b)
{
    return a->is_gradient == b->is_gradient && a->sequences == b->sequences &&
           a->heads == b->heads && a->tokens == b->tokens && a->size == b->size;
}

/* Under the lock. NULL: no memory, or no cuDNN. */
static const struct plan *plan_for(const struct attended *of)
{
    struct sketch sketch = { .of = *of };
    struct plan *plan;

    for (plan = the_plans; plan != NULL; plan = plan->next) {
        if (is_same(&plan->of, of))
            return plan;
    }
    if (!dnn_is_there() || mem_alloc(1, sizeof *plan, &plan) != STATUS_OK)
        return NULL;
    plan->of = *of;
    plan->scale = (float)(1 / sqrt((double)of->size));
    plan->hidden = -INFINITY;
    plan->one = 1;
    (void)choose(&sketch, &plan->dnn); /* without a plan another kernel runs */
    dnn_drop(&sketch.pile);
    plan->next = the_plans;
    the_plans = plan;
    return plan;
}

static const struct plan *find_plan(const struct attended *of)
{
    dnn_lock();
    const struct plan *plan = plan_for(of);
    dnn_unlock();
    return plan && plan->dnn.cudnn ? plan : NULL;
}

/* The ops ------------------------------------------------------------------------------ */

/* What a plan is asked for: of a gradient not more sequences at a time than it has room for their pairs. */
static struct attended extents_of(const struct kernel_problem *p, bool is_gradient)
{
    const int64_t *qkv = p->in[is_gradient ? 1 : 0].shape.dim;
    const int64_t pairs = p->attrs.heads * qkv[1] * qkv[1];
    int64_t sequences = qkv[0];

    while (is_gradient && sequences > 1 &&
           (qkv[0] % sequences != 0 || sequences * pairs > PAIRS_MAX))
        sequences--;
    return (struct attended){ .is_gradient = is_gradient,
                              .sequences = sequences,
                              .heads = p->attrs.heads,
                              .tokens = qkv[1],
                              .size = qkv[2] / 3 / p->attrs.heads };
}

static bool can_run(const struct kernel_problem *p, bool is_gradient, int inputs)
{
    if (p->in[0].dtype != DTYPE_BF16 || !p->attrs.causal || p->n_in > inputs)
        return false;
    const struct attended of = extents_of(p, is_gradient);
    return of.tokens >= SHORTEST && of.size % 8 == 0 && of.size <= SIZE_MAX_OF_HEAD &&
           find_plan(&of) != NULL;
}

static bool attention_can_run(const struct kernel_problem *p)
{
    return can_run(p, false, 1);
}

static bool attention_grad_can_run(const struct kernel_problem *p)
{
    return can_run(p, true, 4);
}

static size_t up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* The gradient's deltas; the workspace comes after them. */
static size_t delta_bytes(const struct attended *of)
{
    return of->is_gradient
               ? up((size_t)(of->sequences * of->heads * of->tokens) * sizeof(float))
               : 0;
}

static size_t scratch_of(const struct kernel_problem *p, bool is_gradient)
{
    const struct attended of = extents_of(p, is_gradient);
    const struct plan *plan = find_plan(&of);

    return delta_bytes(&of) + (plan ? (size_t)plan->dnn.workspace : 0);
}

static size_t attention_scratch(const struct kernel_problem *p)
{
    return scratch_of(p, false);
}

static size_t attention_grad_scratch(const struct kernel_problem *p)
{
    return scratch_of(p, true);
}

/* Where queries (0), keys (1) or values (2) begin. */
static const void *part_of(const struct attended *of, const void *qkv, int part)
{
    return (const char *)qkv + (size_t)(part * of->heads * of->size) * sizeof(uint16_t);
}

static void run(const struct kernel_call *call, const struct attended *of,
                const struct plan *plan, const struct dnn_data *data)
{
    if (plan == NULL)
        stream_note(call->stream, call->problem->op, "cudnn has no plan");
    else
        dnn_run(call->stream, &plan->dnn, data, (char *)call->scratch + delta_bytes(of));
}

static void run_attention(const struct kernel_call *call)
{
    const struct attended of = extents_of(call->problem, false);
    const struct plan *plan = find_plan(&of);
    const void *qkv = call->in[0];
    const struct dnn_data data = { { QUERIES, KEYS_ACROSS, VALUES, SCALE, HIDDEN, OUTPUT, LSE },
                                   { qkv, part_of(&of, qkv, 1), part_of(&of, qkv, 2),
                                     plan ? &plan->scale : NULL, plan ? &plan->hidden : NULL,
                                     call->out[0], call->out[1] },
                                   7 };

    run(call, &of, plan, &data);
}

/* The numbers of the n-th sequence in a tensor of so many a token. */
static const void *sequence_at(const struct attended *of, const void *data, int64_t n,
                               int64_t numbers, size_t size)
{
    return (const char *)data + (size_t)(n * of->tokens * numbers) * size;
}

static void run_attention_grad(const struct kernel_call *call)
{
    const struct attended of = extents_of(call->problem, true);
    const struct plan *plan = find_plan(&of);
    const int64_t all = call->problem->in[1].shape.dim[0], y = of.heads * of.size;
    const size_t half = sizeof(uint16_t);

    for (int64_t n = 0; n < all; n += of.sequences) {
        const void *flow = sequence_at(&of, call->in[0], n, y, half);
        const void *qkv = sequence_at(&of, call->in[1], n, 3 * y, half);
        const void *output = sequence_at(&of, call->in[2], n, y, half);
        const void *lse = sequence_at(&of, call->in[3], n, of.heads, sizeof(float));
        const void *dqkv = sequence_at(&of, call->out[0], n, 3 * y, half);
        const struct dnn_data data = {
            { QUERIES, KEYS_ACROSS, VALUES_ACROSS, SCALE, HIDDEN, ONE, FLOW, OUTPUT, LSE, DELTA,
              DQUERIES, DKEYS, DVALUES },
            { qkv, part_of(&of, qkv, 1), part_of(&of, qkv, 2), plan ? &plan->scale : NULL,
              plan ? &plan->hidden : NULL, plan ? &plan->one : NULL, flow, output, lse,
              call->scratch, dqkv, part_of(&of, dqkv, 1), part_of(&of, dqkv, 2) },
            13
        };

        run(call, &of, plan, &data);
    }
}

const struct kernel cuda_cudnn_attention_rows[] = {
    { .op = "attention",
      .name = "cudnn",
      .can_run = attention_can_run,
      .scratch_bytes = attention_scratch,
      .run = run_attention },
    { .op = "attention_grad",
      .name = "cudnn",
      .can_run = attention_grad_can_run,
      .scratch_bytes = attention_grad_scratch,
      .run = run_attention_grad },
    { 0 },
};
