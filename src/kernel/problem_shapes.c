/* SPDX-License-Identifier: MIT */
/* problem_shapes.c - which shapes of a problem fit together, op by op.
 *
 * Outputs of ops that are no gradients follow from the inputs. A gradient is legal if the forward op, given the
 * gradient's shapes, has the outputs that the gradient takes as inputs.
 */
#include "kernel/problem.h"

#include <string.h>

static enum status disagree(const char *op, const struct shape *a, const struct shape *b)
{
    char first[SHAPE_TEXT], second[SHAPE_TEXT];

    return FAIL(STATUS_USAGE, "%s: shapes %s and %s disagree", op, shape_print(a, first),
                shape_print(b, second));
}

/* Places that a window of `window` has along an extent, with padding. */
static enum status places(const char *op, int64_t extent, int64_t window, int stride, int pad,
                          int64_t *out)
{
    if (window < 1 || stride < 1 || pad < 0)
        return FAIL(STATUS_USAGE, "%s: window %lld stride %d pad %d", op, (long long)window,
                    stride, pad);
    if (extent + 2 * pad < window)
        return FAIL(STATUS_USAGE, "%s: window %lld is larger than %lld with padding %d", op,
                    (long long)window, (long long)extent, pad);
    *out = (extent + 2 * pad - window) / stride + 1;
    return STATUS_OK;
}

static enum status linear_shape(const struct kernel_problem *p, const struct shape *x,
                                const struct shape *w, const struct shape *b, struct shape *out)
{
    if (x->dim[1] != w->dim[1])
        return disagree(p->op, x, w);
    if (b != NULL && b->dim[0] != w->dim[0])
        return disagree(p->op, w, b);
    *out = shape_2(x->dim[0], w->dim[0]);
    return STATUS_OK;
}

static enum status conv_shape(const struct kernel_problem *p, const struct shape *x,
                              const struct shape *w, const struct shape *b, struct shape *out)
{
    const struct attrs *a = &p->attrs;
    const int64_t groups = a->groups == 0 ? 1 : a->groups;
    struct shape y = shape_4(x->dim[0], w->dim[0], 0, 0);

    if (groups < 1 || w->dim[0] % groups != 0)
        return FAIL(STATUS_USAGE, "%s: %lld channels in %lld groups", p->op,
                    (long long)w->dim[0], (long long)groups);
    if (x->dim[1] != w->dim[1] * groups)
        return disagree(p->op, x, w);
    if (b != NULL && b->dim[0] != w->dim[0])
        return disagree(p->op, w, b);
    for (int i = 0; i < 2; i++)
        TRY(places(p->op, x->dim[2 + i], w->dim[2 + i], a->stride[i], a->pad[i],
                   &y.dim[2 + i]));
    *out = y;
    return STATUS_OK;
}

/* linear alone, with gelu, or with a residual. */
static enum status linear_shapes(const struct kernel_problem *p, struct shape out[KERNEL_OUT])
{
    const struct shape *b = p->n_in > 2 ? &p->in[2].shape : NULL;

    TRY(linear_shape(p, &p->in[0].shape, &p->in[1].shape, b, &out[0]));
    if (p->n_in > 3 && !shape_equal(&p->in[3].shape, &out[0]))
        return disagree(p->op, &p->in[3].shape, &out[0]);
    out[1] = out[0];
    return STATUS_OK;
}

static enum status token_loss_shapes(const struct kernel_problem *p,
                                     struct shape out[KERNEL_OUT])
{
    const struct shape *x = &p->in[0].shape, *w = &p->in[1].shape, *labels = &p->in[2].shape;
    struct shape logits;

    TRY(linear_shape(p, x, w, NULL, &logits));
    if (labels->dim[0] != x->dim[0])
        return disagree(p->op, x, labels);
    if (p->in[1].layout != LAYOUT_PLAIN)
        return FAIL(STATUS_USAGE, "%s: weights that do not lie plain", p->op);
    out[0] = out[1] = shape_1(1);
    out[2] = *x;
    out[3] = *w;
    return STATUS_OK;
}

/* What a transposed convolution makes of x, extents (h, w): that of which conv2d makes x. */
static enum status transpose_shape(const struct kernel_problem *p, const struct shape *x,
                                   const struct shape *w, const struct shape *b, int64_t height,
                                   int64_t width, struct shape *out)
{
    const struct shape y = shape_4(x->dim[0], w->dim[1], height, width);
    struct shape back;

    if (height < 1 || width < 1)
        return FAIL(STATUS_USAGE, "%s: extent %lldx%lld", p->op, (long long)height,
                    (long long)width);
    if (p->attrs.groups > 1)
        return FAIL(STATUS_USAGE, "%s: %d groups, 1 is known", p->op, p->attrs.groups);
    TRY(conv_shape(p, &y, w, NULL, &back));
    if (!shape_equal(x, &back))
        return disagree(p->op, x, &back);
    if (b != NULL && b->dim[0] != w->dim[1])
        return disagree(p->op, w, b);
    *out = y;
    return STATUS_OK;
}

static enum status pool_shape(const struct kernel_problem *p, const struct shape *x,
                              const int stride[2], const int pad[2], struct shape *out)
{
    struct shape y = *x;

    if ((int64_t)p->attrs.window[0] * p->attrs.window[1] > 254) /* an index is a byte */
        return FAIL(STATUS_USAGE, "%s: window %dx%d is too large", p->op, p->attrs.window[0],
                    p->attrs.window[1]);
    for (int i = 0; i < 2; i++) {
        TRY(places(p->op, x->dim[2 + i], p->attrs.window[i], stride[i], pad[i], &y.dim[2 + i]));
        if (pad[i] >= p->attrs.window[i]) /* a window must hold an element */
            return FAIL(STATUS_USAGE, "%s: pad %d with window %d", p->op, pad[i],
                        p->attrs.window[i]);
    }
    *out = y;
    return STATUS_OK;
}

/* A convolution, then a pooling of windows side by side. */
static enum status conv_pool_shape(const struct kernel_problem *p, const struct shape *x,
                                   const struct shape *w, const struct shape *b,
                                   struct shape *out)
{
    static const int no_pad[2];
    struct shape y;

    if (p->attrs.groups > 1)
        return FAIL(STATUS_USAGE, "%s: %d groups, 1 is known", p->op, p->attrs.groups);
    TRY(conv_shape(p, x, w, b, &y));
    return pool_shape(p, &y, p->attrs.window, no_pad, out);
}

/* Inputs 1 to `last` are a number a channel of x each; one more is a residual as large as x. */
static enum status check_batch_norm(const struct kernel_problem *p, const struct shape *x,
                                    int last)
{
    for (int i = 1; i <= last; i++) {
        if (p->in[i].shape.dim[0] != x->dim[1])
            return disagree(p->op, x, &p->in[i].shape);
    }
    if (p->n_in > last + 1 && !shape_equal(&p->in[last + 1].shape, x))
        return disagree(p->op, x, &p->in[last + 1].shape);
    return STATUS_OK;
}

/* Shapes of a batch norm's gradient, or of a part of it; with an activation its output is the last
 * input, number `y`. */
static enum status check_norm_shapes(const struct kernel_problem *p,
                                     const struct shape *const *in,
                                     const struct shape *const *out, int y)
{
    for (int i = 0; i < p->n_in; i++) {
        if (!shape_equal(&p->in[i].shape, in[i]))
            return disagree(p->op, in[0], &p->in[i].shape);
    }
    for (int i = 0; i < p->n_out; i++) {
        if (!shape_equal(&p->out[i].shape, out[i]))
            return disagree(p->op, in[0], &p->out[i].shape);
    }
    if ((p->n_in > y) != (p->attrs.activation != ACTIVATION_NONE))
        return FAIL(STATUS_USAGE, "%s: the output belongs to an activation", p->op);
    return STATUS_OK;
}

static enum status check_batch_norm_grad(const struct kernel_problem *p)
{
    const struct shape *dy = &p->in[0].shape;
    const int64_t c = dy->dim[1], shards = p->n_in > 4 ? p->in[4].shape.dim[0] : 1;
    const struct shape channels = shape_1(c), saved = shape_2(2, c), sums = shape_2(3, c);
    const struct shape all = shape_3(shards, 3, c);

    if (strcmp(p->op, "batch_norm_grad_sums") == 0) {
        const struct shape *const in[] = { dy, dy, &saved, dy };
        const struct shape *const out[] = { &channels, &channels, &sums, dy };
        return check_norm_shapes(p, in, out, 3);
    }
    if (strcmp(p->op, "batch_norm_grad_spread") == 0) {
        const struct shape *const in[] = { dy, dy, &channels, &saved, &all, dy };
        const struct shape *const out[] = { dy };
        return check_norm_shapes(p, in, out, 5);
    }
    /* Where no residual was added to it, y can be made again by beta. */
    const bool by_beta = p->n_in > 4 && p->n_out == 3 && p->in[4].shape.rank == 1;
    const struct shape *const in[] = {
        dy, dy, &channels, &saved, by_beta ? &channels : dy, dy
    };
    const struct shape *const out[] = { dy, &channels, &channels, dy };
    return check_norm_shapes(p, in, out, 4);
}

/* Statistics of shards, (V,3,C), and of one of them. */
static enum status join_shapes(const struct kernel_problem *p, struct shape out[KERNEL_OUT])
{
    const struct shape *all = &p->in[0].shape, *own = &p->in[1].shape;
    const struct shape sums = shape_2(3, all->dim[2]);

    if (all->dim[1] != 3 || !shape_equal(own, &sums))
        return disagree(p->op, all, own);
    out[0] = shape_2(2, all->dim[2]);
    out[1] = out[2] = shape_1(all->dim[2]);
    return STATUS_OK;
}

/* batch_norm with given statistics, (2,C). */
static enum status normalize_shape(const struct kernel_problem *p, struct shape *out)
{
    const struct shape *x = &p->in[0].shape;
    const struct shape channels = shape_1(x->dim[1]), saved = shape_2(2, x->dim[1]);
    const struct shape *const in[] = { x, &channels, &channels, &saved, x };

    for (int i = 0; i < p->n_in; i++) {
        if (!shape_equal(&p->in[i].shape, in[i]))
            return disagree(p->op, x, &p->in[i].shape);
    }
    *out = *x;
    return STATUS_OK;
}

/* A convolution with the norm of its input, whose numbers are inputs 2 to 4, or the statistics of its output. */
static enum status norm_conv_shapes(const struct kernel_problem *p,
                                    struct shape out[KERNEL_OUT])
{
    const struct shape *x = &p->in[0].shape, *w = &p->in[1].shape;
    const struct shape channels = shape_1(x->dim[1]), saved = shape_2(2, x->dim[1]);
    const struct shape *const norm[] = { &channels, &channels, &saved };

    TRY(conv_shape(p, x, w, NULL, &out[0]));
    for (int i = 0; strncmp(p->op, "norm_", 5) == 0 && i < 3; i++) {
        if (!shape_equal(&p->in[2 + i].shape, norm[i]))
            return disagree(p->op, x, &p->in[2 + i].shape);
    }
    out[1] = shape_2(2, w->dim[0]);
    out[2] = out[3] = shape_1(w->dim[0]);
    return STATUS_OK;
}

static enum status check_norm_conv_grad(const struct kernel_problem *p)
{
    const struct shape *dz = &p->in[0].shape, *w = &p->in[1].shape, *x = &p->in[2].shape;
    const struct shape channels = shape_1(x->dim[1]), saved = shape_2(2, x->dim[1]);
    const struct shape made = shape_2(2, w->dim[0]);
    const struct shape *const norm[] = { &channels, &channels, &saved, dz, &made, &made };
    const struct shape *const out[] = { x, w, &channels, &channels, &saved };
    const int first = strncmp(p->op, "norm_", 5) == 0 ? 0 : 3;
    const int end = strstr(p->op, "_stats") != NULL ? 6 : 3;
    struct shape z;

    TRY(conv_shape(p, x, w, NULL, &z));
    if (!shape_equal(dz, &z))
        return disagree(p->op, dz, &z);
    for (int i = first; i < end; i++) { /* after dz, w and x */
        if (!shape_equal(&p->in[3 + i - first].shape, norm[i]))
            return disagree(p->op, x, &p->in[3 + i - first].shape);
    }
    for (int i = 0; i < p->n_out; i++) {
        if (!shape_equal(&p->out[i].shape, out[i]))
            return disagree(p->op, x, &p->out[i].shape);
    }
    return STATUS_OK;
}

/* Queries, keys and values of all heads, and the ids of their tokens (input number `ids`). */
static enum status check_qkv(const struct kernel_problem *p, const struct shape *qkv, int ids)
{
    const int heads = p->attrs.heads;

    if (heads < 1 || qkv->dim[2] % (3 * (int64_t)heads) != 0)
        return FAIL(STATUS_USAGE, "%s: %lld features for %d heads", p->op,
                    (long long)qkv->dim[2], heads);
    const struct shape tokens = shape_2(qkv->dim[0], qkv->dim[1]);
    if (p->n_in > ids && !shape_equal(&p->in[ids].shape, &tokens))
        return disagree(p->op, qkv, &p->in[ids].shape);
    return STATUS_OK;
}

static enum status attention_shapes(const struct kernel_problem *p,
                                    struct shape out[KERNEL_OUT])
{
    const struct shape *qkv = &p->in[0].shape, *cache = &p->in[1].shape;
    const bool is_step = strcmp(p->op, "attention_step") == 0;

    TRY(check_qkv(p, qkv, is_step ? KERNEL_IN : 1));
    if (is_step && (cache->dim[0] != qkv->dim[0] || cache->dim[1] < qkv->dim[1] ||
                    cache->dim[2] != qkv->dim[2] / 3 * 2))
        return disagree(p->op, qkv, cache);
    if (is_step && p->in[2].shape.dim[0] != qkv->dim[0])
        return disagree(p->op, qkv, &p->in[2].shape);
    out[0] = shape_3(qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3);
    out[1] = shape_3(qkv->dim[0], qkv->dim[1], p->attrs.heads);
    return STATUS_OK;
}

static enum status layer_norm_shapes(const struct kernel_problem *p, const struct shape *x,
                                     struct shape out[KERNEL_OUT])
{
    for (int i = 1; i < 3; i++) {
        if (p->in[i].shape.dim[0] != x->dim[1])
            return disagree(p->op, x, &p->in[i].shape);
    }
    out[0] = *x;
    out[1] = shape_2(x->dim[0], 2);
    return STATUS_OK;
}

static enum status positions_shape(const struct kernel_problem *p, const struct shape *x,
                                   const struct shape *table, struct shape *out)
{
    const int64_t period = p->attrs.period;
    const int64_t rows = period > 0 && period < x->dim[1] ? period : x->dim[1];

    if (period < 0 || table->dim[1] != x->dim[2] || table->dim[0] < rows)
        return disagree(p->op, x, table);
    if (problem_is_gradient(p->op) && p->attrs.extent[0] != table->dim[0])
        return FAIL(STATUS_USAGE, "%s: extent %d of %lld positions", p->op, p->attrs.extent[0],
                    (long long)table->dim[0]);
    if (p->n_in > 2 && p->in[2].shape.dim[0] != x->dim[0])
        return disagree(p->op, x, &p->in[2].shape);
    *out = *x;
    return STATUS_OK;
}

/* ids (N,T) and a table (V,D). */
static struct shape embedding_shape(const struct kernel_problem *p)
{
    const struct shape *ids = &p->in[0].shape, *table = &p->in[1].shape;

    return strcmp(p->op, "embedding") == 0 ? shape_3(ids->dim[0], ids->dim[1], table->dim[1])
                                           : shape_2(ids->dim[0], table->dim[1]);
}

static enum status sort_shapes(const struct kernel_problem *p, struct shape out[KERNEL_OUT])
{
    const struct shape *ids = &p->in[0].shape;

    if (p->attrs.rows < 1 || p->attrs.rows > INT32_MAX || shape_count(ids) > INT32_MAX / 2)
        return FAIL(STATUS_USAGE, "%s: %lld ids of %lld rows", p->op,
                    (long long)shape_count(ids), (long long)p->attrs.rows);
    out[0] = shape_3(ids->dim[0], ids->dim[1], 2);
    out[1] = shape_1(ROWS_BLOCKS + 1);
    return STATUS_OK;
}

/* dy has a row an id or a row a sample; the table's rows are those of what is added to, too. */
static enum status check_embedding_grad(const struct kernel_problem *p)
{
    const struct shape *dy = &p->in[0].shape, *ids = &p->in[1].shape, *dw = &p->out[0].shape;

    if (strcmp(p->op, "embedding_mean_grad") == 0)
        return dy->dim[0] == ids->dim[0] && shape_equal(dy, dw) ? STATUS_OK
                                                                : disagree(p->op, dy, ids);
    if (dy->rank < 2 || dy->rank > 3 || dy->dim[0] != ids->dim[0] ||
        (dy->rank == 3 && dy->dim[1] != ids->dim[1]))
        return disagree(p->op, dy, ids);
    if (dw->dim[1] != dy->dim[dy->rank - 1] || (p->attrs.rows && dw->dim[0] != p->attrs.rows))
        return disagree(p->op, dy, dw);
    if (p->n_in > 2 && !shape_equal(&p->in[2].shape, dw))
        return disagree(p->op, &p->in[2].shape, dw);
    return STATUS_OK;
}

/* What a recurrent layer of H units has, by its weight (G*H, H). */
struct cell {
    bool is_lstm;
    int64_t units, gates, states;
};

static enum status cell_of(const struct kernel_problem *p, struct cell *out)
{
    const bool is_lstm = strncmp(p->op, "lstm", 4) == 0;
    const struct shape *w = &p->in[1].shape;
    const struct cell cell = { .is_lstm = is_lstm,
                               .units = w->dim[1],
                               .gates = (is_lstm ? 4 : 3) * w->dim[1],
                               .states = (is_lstm ? 2 : 1) * w->dim[1] };

    if (w->dim[0] != cell.gates)
        return FAIL(STATUS_USAGE, "%s: weight of %lld rows for %lld units", p->op,
                    (long long)w->dim[0], (long long)w->dim[1]);
    *out = cell;
    return STATUS_OK;
}

static enum status same_shapes(const struct kernel_problem *p,
                               const struct kernel_tensor *actual, const struct shape *expected,
                               int count)
{
    for (int i = 0; i < count; i++) {
        if (!shape_equal(&actual[i].shape, &expected[i]))
            return disagree(p->op, &actual[i].shape, &expected[i]);
    }
    return STATUS_OK;
}

static enum status recurrent_shapes(const struct kernel_problem *p,
                                    struct shape out[KERNEL_OUT])
{
    const int64_t n = p->in[0].shape.dim[0], t = p->in[0].shape.dim[1];
    struct cell c;

    TRY(cell_of(p, &c));
    const struct shape in[] = { shape_3(n, t, c.gates), p->in[1].shape, shape_1(c.gates),
                                shape_2(n, t), shape_2(n, c.states) };
    TRY(same_shapes(p, p->in, in, p->n_in));
    out[0] = out[3] = out[4] = shape_3(n, t, c.units);
    out[1] = shape_2(n, c.states);
    out[2] = in[0];
    return STATUS_OK;
}

static enum status attend_shapes(const struct kernel_problem *p, struct shape out[KERNEL_OUT])
{
    const int64_t n = p->in[0].shape.dim[0], t = p->in[0].shape.dim[1];
    const int64_t s = p->in[8].shape.dim[1], a = p->in[8].shape.dim[2];
    const int64_t e = p->in[9].shape.dim[2];
    struct cell c;

    TRY(cell_of(p, &c));
    const struct shape in[] = {
        shape_3(n, t, c.gates), shape_2(c.gates, c.units), shape_1(c.gates),    shape_2(n, t),
        shape_2(n, c.states),   shape_2(c.gates, e),       shape_2(a, c.units), shape_1(a),
        shape_3(n, s, a),       shape_3(n, s, e),          shape_2(n, s)
    };
    TRY(same_shapes(p, p->in, in, p->n_in));
    out[0] = out[3] = out[4] = shape_3(n, t, c.units);
    out[1] = shape_2(n, c.states);
    out[2] = in[0];
    out[5] = shape_3(n, t, e);
    out[6] = shape_3(n, t, s);
    out[7] = shape_3(n, t, a);
    return STATUS_OK;
}

static enum status check_attend_grad(const struct kernel_problem *p)
{
    const int64_t n = p->in[0].shape.dim[0], t = p->in[0].shape.dim[1];
    const int64_t s = p->in[7].shape.dim[1], a = p->in[7].shape.dim[2];
    const int64_t e = p->in[8].shape.dim[2];
    struct cell c;

    TRY(cell_of(p, &c));
    const struct shape gates = shape_3(n, t, c.gates), y = shape_3(n, t, c.units);
    const struct shape keys = shape_3(n, s, a), memory = shape_3(n, s, e);
    const struct shape query = shape_3(n, t, a);
    const struct shape in[] = { gates,
                                shape_2(c.gates, c.units),
                                shape_2(n, t),
                                y,
                                shape_2(c.gates, e),
                                shape_2(a, c.units),
                                shape_1(a),
                                keys,
                                memory,
                                query,
                                shape_3(n, t, s),
                                y };
    const struct shape out[] = { gates, shape_2(n, c.states), keys, memory, query, shape_1(a) };

    TRY(same_shapes(p, p->in, in, p->n_in));
    return same_shapes(p, p->out, out, p->n_out);
}

static enum status check_recurrent_grad(const struct kernel_problem *p)
{
    const int64_t n = p->in[0].shape.dim[0], t = p->in[0].shape.dim[1];
    struct cell c;

    TRY(cell_of(p, &c));
    const struct shape y = shape_3(n, t, c.units), last = shape_2(n, c.states);
    const struct shape gates = shape_3(n, t, c.gates), *w = &p->in[1].shape;
    const int flow = c.is_lstm ? 4 : 5;
    const bool has_y = p->in[flow].shape.rank == 3;
    const struct shape first = has_y ? y : last;
    const struct shape lstm[] = { gates, *w, shape_2(n, t), y, first, last };
    const struct shape gru[] = { gates, *w, shape_2(n, t), y, y, first, last };
    const struct shape lstm_out[] = { gates, last }, gru_out[] = { gates, gates, last };

    if (!has_y && p->n_in > flow + 1)
        return FAIL(STATUS_USAGE, "%s: two gradients of the last state", p->op);
    TRY(same_shapes(p, p->in, c.is_lstm ? lstm : gru, p->n_in));
    return same_shapes(p, p->out, c.is_lstm ? lstm_out : gru_out, p->n_out);
}

/* conv1d, or with `largest` conv1d_max, of x and w. */
static enum status conv1d_shape(const struct kernel_problem *p, const struct shape *x,
                                const struct shape *w, const struct shape *b, bool largest,
                                struct shape *out)
{
    const int64_t t = x->dim[1], k = w->dim[2];

    if (x->dim[2] != w->dim[1])
        return disagree(p->op, x, w);
    if (b != NULL && b->dim[0] != w->dim[0])
        return disagree(p->op, w, b);
    *out = largest ? shape_2(x->dim[0], w->dim[0])
                   : shape_3(x->dim[0], t < k ? 1 : t - k + 1, w->dim[0]);
    return STATUS_OK;
}

/* Gradients of conv1d, conv1d_max and max_over_time. The first two of the latter's inputs, or the
 * last two of a weight's, are dy and its index. */
static enum status check_sequence_grad(const struct kernel_problem *p)
{
    const bool largest = strstr(p->op, "max_") != NULL;
    const bool is_weight = strstr(p->op, "grad_weight") != NULL;
    const struct shape *dy = &p->in[is_weight ? 1 : 0].shape, *d = &p->out[0].shape;
    const struct shape *x = is_weight ? &p->in[0].shape : d;
    const struct shape *db = p->n_out > 1 ? &p->out[1].shape : NULL;
    struct shape y;

    if (strcmp(p->op, "max_over_time_grad") == 0)
        y = shape_2(x->dim[0], x->dim[2]);
    else
        TRY(conv1d_shape(p, x, is_weight ? d : &p->in[largest ? 2 : 1].shape, db, largest, &y));
    if (!shape_equal(dy, &y))
        return disagree(p->op, dy, &y);
    if (largest && !shape_equal(dy, &p->in[is_weight ? 2 : 1].shape))
        return disagree(p->op, dy, &p->in[is_weight ? 2 : 1].shape);
    for (int i = largest && p->n_in > 3 ? 3 : 2; !is_weight && i < p->n_in; i++) {
        if (!shape_equal(x, &p->in[i].shape)) /* x for its shape, base */
            return disagree(p->op, x, &p->in[i].shape);
    }
    if (is_weight && d->dim[2] != p->attrs.extent[0])
        return FAIL(STATUS_USAGE, "%s: extent %d of a window of %lld", p->op,
                    p->attrs.extent[0], (long long)d->dim[2]);
    return STATUS_OK;
}

static enum status concat_shape(const struct kernel_problem *p, struct shape *out)
{
    struct shape sum = p->in[0].shape;

    for (int i = 1; i < p->n_in; i++) {
        if (p->in[i].shape.dim[0] != sum.dim[0])
            return disagree(p->op, &sum, &p->in[i].shape);
        sum.dim[1] += p->in[i].shape.dim[1];
    }
    *out = sum;
    return STATUS_OK;
}

static enum status columns_shape(const struct kernel_problem *p, struct shape *out)
{
    const int64_t *extents = p->in[0].shape.dim;
    const int64_t first = p->attrs.extent[0], count = p->attrs.extent[1];

    if (first < 0 || count < 1 || first + count > extents[1])
        return FAIL(STATUS_USAGE, "%s: columns %lld to %lld of %lld", p->op, (long long)first,
                    (long long)(first + count), (long long)extents[1]);
    *out = shape_2(extents[0], count);
    return STATUS_OK;
}

enum status problem_out_shapes(const struct kernel_problem *p, struct shape out[KERNEL_OUT])
{
    const struct shape *a = &p->in[0].shape, *b = &p->in[1].shape;
    const struct shape *c = p->n_in > 2 ? &p->in[2].shape : NULL;
    const char *op = p->op;

    if (strcmp(op, "linear_token_loss") == 0)
        return token_loss_shapes(p, out);
    if (strncmp(op, "linear", 6) == 0)
        return linear_shapes(p, out);
    if (strcmp(op, "conv2d") == 0)
        return conv_shape(p, a, b, c, &out[0]);
    if (problem_is_norm_conv(op))
        return norm_conv_shapes(p, out);
    if (strcmp(op, "lstm") == 0 || strcmp(op, "gru") == 0)
        return recurrent_shapes(p, out);
    if (strcmp(op, "lstm_attend") == 0)
        return attend_shapes(p, out);
    if (strcmp(op, "conv2d_transpose") == 0)
        return transpose_shape(p, a, b, c, p->attrs.extent[0], p->attrs.extent[1], &out[0]);
    if (strcmp(op, "concat") == 0)
        return concat_shape(p, &out[0]);
    if (strcmp(op, "columns") == 0)
        return columns_shape(p, &out[0]);
    if (strcmp(op, "conv1d") == 0)
        return conv1d_shape(p, a, b, c, false, &out[0]);
    if (strcmp(op, "conv1d_max") == 0) {
        TRY(conv1d_shape(p, a, b, c, true, &out[0]));
        out[1] = out[0];
    } else if (strcmp(op, "max_over_time") == 0) {
        out[0] = out[1] = shape_2(a->dim[0], a->dim[2]);
    } else if (strcmp(op, "conv2d_pool") == 0) {
        TRY(conv_pool_shape(p, a, b, c, &out[0]));
        out[1] = out[0];
    } else if (strcmp(op, "max_pool") == 0 || strcmp(op, "avg_pool") == 0) {
        TRY(pool_shape(p, a, p->attrs.stride, p->attrs.pad, &out[0]));
        out[1] = out[0];
    } else if (strcmp(op, "bias") == 0) {
        if (b->dim[0] != (a->rank == 4 ? a->dim[1] : a->dim[a->rank - 1]))
            return disagree(op, a, b);
        out[0] = *a;
    } else if (strncmp(op, "attention", 9) == 0) {
        return attention_shapes(p, out);
    } else if (strcmp(op, "layer_norm") == 0) {
        return layer_norm_shapes(p, a, out);
    } else if (strcmp(op, "add_positions") == 0) {
        return positions_shape(p, a, b, &out[0]);
    } else if (strcmp(op, "batch_norm") == 0) {
        TRY(check_batch_norm(p, a, 2));
        out[0] = *a;
        out[1] = shape_2(2, a->dim[1]);
        out[2] = out[3] = *b;
    } else if (strcmp(op, "batch_norm_apply") == 0) {
        TRY(check_batch_norm(p, a, 4));
        out[0] = *a;
    } else if (strcmp(op, "batch_norm_stats") == 0) {
        out[0] = shape_2(3, a->dim[1]);
    } else if (strcmp(op, "batch_norm_join") == 0) {
        return join_shapes(p, out);
    } else if (strcmp(op, "batch_norm_normalize") == 0) {
        return normalize_shape(p, &out[0]);
    } else if (strcmp(op, "softmax_cross_entropy") == 0 || strcmp(op, "accuracy") == 0) {
        if (a->dim[0] != b->dim[0])
            return disagree(op, a, b);
        out[0] = shape_1(1);
        out[1] = *a;
    } else if (strcmp(op, "softmax_loss") == 0) {
        if (a->dim[0] != b->dim[0])
            return disagree(op, a, b);
        out[0] = out[1] = shape_1(1);
        out[2] = *a;
    } else if (strncmp(op, "token_", 6) == 0) {
        if (a->dim[0] != b->dim[0])
            return disagree(op, a, b);
        out[0] = shape_1(1);
        out[1] = shape_2(a->dim[0], 1);
    } else if (strncmp(op, "embedding", 9) == 0) {
        out[0] = embedding_shape(p);
    } else if (strcmp(op, "rows_sort") == 0) {
        return sort_shapes(p, out);
    } else if (strcmp(op, "sum_rows") == 0) {
        out[0] = shape_1(a->dim[1]);
    } else { /* elementwise */
        if (p->n_in == 2 && !shape_equal(a, b))
            return disagree(op, a, b);
        out[0] = strcmp(op, "mse") == 0 ? shape_1(1) : *a;
    }
    return STATUS_OK;
}

static enum status check_attention_grad(const struct kernel_problem *p)
{
    const struct shape *qkv = &p->in[1].shape;
    const struct shape y = shape_3(qkv->dim[0], qkv->dim[1], qkv->dim[2] / 3);
    const struct shape lse = shape_3(qkv->dim[0], qkv->dim[1], p->attrs.heads);
    const struct shape *const in[] = { &y, qkv, &y, &lse };

    TRY(check_qkv(p, qkv, 4));
    for (int i = 0; i < 4; i++) {
        if (!shape_equal(&p->in[i].shape, in[i]))
            return disagree(p->op, qkv, &p->in[i].shape);
    }
    return shape_equal(qkv, &p->out[0].shape) ? STATUS_OK
                                              : disagree(p->op, qkv, &p->out[0].shape);
}

static enum status check_layer_norm_grad(const struct kernel_problem *p)
{
    const struct shape *x = &p->in[0].shape;
    const struct shape features = shape_1(x->dim[1]), saved = shape_2(x->dim[0], 2);
    const struct shape *const in[] = { x, x, &features, &saved, x };
    const struct shape *const out[] = { x, &features, &features, &features };

    for (int i = 0; i < p->n_in; i++) {
        if (!shape_equal(&p->in[i].shape, in[i]))
            return disagree(p->op, x, &p->in[i].shape);
    }
    for (int i = 0; i < p->n_out; i++) {
        if (!shape_equal(&p->out[i].shape, out[i]))
            return disagree(p->op, x, &p->out[i].shape);
    }
    return STATUS_OK;
}

/* Checks a gradient by the shapes of its forward op. */
static enum status check_gradient(const struct kernel_problem *p)
{
    const struct shape *a = &p->in[0].shape, *b = &p->in[1].shape, *d = &p->out[0].shape;
    const struct shape *db = p->n_out > 1 ? &p->out[1].shape : NULL;
    const struct shape *dy = a; /* what the forward op must give */
    struct shape y;

    if (strncmp(p->op, "batch_norm_grad", 15) == 0)
        return check_batch_norm_grad(p);
    if (problem_is_norm_conv(p->op))
        return check_norm_conv_grad(p);
    if (strcmp(p->op, "lstm_grad") == 0 || strcmp(p->op, "gru_grad") == 0)
        return check_recurrent_grad(p);
    if (strcmp(p->op, "lstm_attend_grad") == 0)
        return check_attend_grad(p);
    if (strncmp(p->op, "conv1d", 6) == 0 || strcmp(p->op, "max_over_time_grad") == 0)
        return check_sequence_grad(p);
    if (strcmp(p->op, "attention_grad") == 0)
        return check_attention_grad(p);
    if (strcmp(p->op, "layer_norm_grad") == 0)
        return check_layer_norm_grad(p);
    if (strcmp(p->op, "positions_grad") == 0)
        return positions_shape(p, a, d, &y);
    if (strncmp(p->op, "embedding", 9) == 0)
        return check_embedding_grad(p);
    if (strcmp(p->op, "linear_grad_input") == 0 || strcmp(p->op, "linear_grad_through") == 0) {
        if (p->n_in > 2 && !shape_equal(&p->in[2].shape, d))
            return disagree(p->op, &p->in[2].shape, d);
        if (db != NULL && db->dim[0] != d->dim[1])
            return disagree(p->op, db, d);
        TRY(linear_shape(p, d, b, NULL, &y));
    } else if (strcmp(p->op, "linear_grad_weight") == 0) {
        dy = b;
        TRY(linear_shape(p, a, d, db, &y));
    } else if (strcmp(p->op, "conv2d_grad_input") == 0) {
        TRY(conv_shape(p, d, b, NULL, &y));
    } else if (strcmp(p->op, "conv2d_grad_weight") == 0) {
        dy = b;
        TRY(conv_shape(p, a, d, db, &y));
    } else if (strcmp(p->op, "conv2d_transpose_grad_input") == 0) {
        TRY(transpose_shape(p, d, b, NULL, a->dim[2], a->dim[3], &y));
    } else if (strcmp(p->op, "conv2d_transpose_grad_weight") == 0) {
        dy = b;
        TRY(transpose_shape(p, a, d, db, b->dim[2], b->dim[3], &y));
    } else if (strcmp(p->op, "conv2d_pool_grad_input") == 0) {
        if (!shape_equal(a, b))
            return disagree(p->op, a, b);
        TRY(conv_pool_shape(p, d, &p->in[2].shape, NULL, &y));
    } else if (strcmp(p->op, "conv2d_pool_grad_weight") == 0) {
        dy = b;
        if (!shape_equal(b, &p->in[2].shape))
            return disagree(p->op, b, &p->in[2].shape);
        TRY(conv_pool_shape(p, a, d, db, &y));
    } else if (strcmp(p->op, "max_pool_grad") == 0 || strcmp(p->op, "avg_pool_grad") == 0) {
        TRY(pool_shape(p, d, p->attrs.stride, p->attrs.pad, &y));
        if (p->n_in > 1 && !shape_equal(a, b))
            return disagree(p->op, a, b);
    } else if (strcmp(p->op, "bias_grad") == 0) {
        y = shape_1(a->rank == 4 ? a->dim[1] : a->dim[a->rank - 1]);
        dy = d;
    } else if (strcmp(p->op, "softmax_cross_entropy_grad") == 0) {
        if (a->dim[0] != b->dim[0])
            return disagree(p->op, a, b);
        y = *d;
    } else if (strcmp(p->op, "token_cross_entropy_grad") == 0) {
        const struct shape lse = shape_2(a->dim[0], 1);
        if (!shape_equal(b, &lse) || p->in[2].shape.dim[0] != a->dim[0])
            return disagree(p->op, a, b);
        y = *d;
    } else { /* elementwise: relu_grad and the like, mse_grad */
        if (!shape_equal(a, b))
            return disagree(p->op, a, b);
        y = *d;
    }
    return shape_equal(dy, &y) ? STATUS_OK : disagree(p->op, dy, &y);
}

enum status problem_check_shapes(const struct kernel_problem *problem)
{
    struct shape out[KERNEL_OUT];

    if (problem_is_gradient(problem->op))
        return check_gradient(problem);
    TRY(problem_out_shapes(problem, out));
    for (int i = 0; i < problem->n_out; i++) {
        if (!shape_equal(&out[i], &problem->out[i].shape))
            return disagree(problem->op, &out[i], &problem->out[i].shape);
    }
    return STATUS_OK;
}
