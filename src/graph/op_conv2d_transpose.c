/* SPDX-License-Identifier: MIT */
/* op_conv2d_transpose.c - transposed convolution and its gradients.
 *
 * x (N, C, h, w), w (C, O, kh, kw) as PyTorch writes it, b (O), y (N, O, H, W). It is to conv2d
 * with the same weight, stride and padding what a transposed matrix is to a matrix:
 *
 *   y  = gradient of conv2d for its input, from x;   attrs.extent is H, W, as a stride leaves
 *        several extents open of which conv2d makes h, w
 *   dx = conv2d of dy
 *   dw = gradient of conv2d for its weight, with dy as its input and x as its gradient
 *   db = sums of dy
 */
#include "graph/op.h"

/* Does conv2d make (h, v) of (height, width) with a kernel (kh, kw)? */
static bool fits(const struct attrs *a, int64_t height, int64_t width, int64_t kh, int64_t kw,
                 int64_t h, int64_t v)
{
    return height > 0 && width > 0 && a->groups >= 0 && a->groups <= 1 &&
           op_window_out(height, kh, a->stride[0], a->pad[0]) == h &&
           op_window_out(width, kw, a->stride[1], a->pad[1]) == v;
}

static enum status infer_transpose(const struct node *node, struct op_shapes *s)
{
    const struct attrs *a = &node->attrs;
    const struct shape *x = s->in[0], *w = s->in[1], *b = s->in[2];

    if (x->rank != 4 || w->rank != 4 || x->dim[1] != w->dim[0])
        return FAIL(STATUS_USAGE, "image of %lld channels, weight for %lld",
                    (long long)(x->rank == 4 ? x->dim[1] : 0),
                    (long long)(w->rank == 4 ? w->dim[0] : 0));
    if (a->groups > 1)
        return FAIL(STATUS_USAGE, "%d groups: a transposed convolution knows one", a->groups);
    if (b && (b->rank != 1 || b->dim[0] != w->dim[1]))
        return FAIL(STATUS_USAGE, "bias of %lld for %lld channels", (long long)b->dim[0],
                    (long long)w->dim[1]);
    if (!fits(a, a->extent[0], a->extent[1], w->dim[2], w->dim[3], x->dim[2], x->dim[3]))
        return FAIL(
            STATUS_USAGE,
            "kernel %lldx%lld, stride %dx%d, padding %dx%d does not make image %dx%d of "
            "%lldx%lld",
            (long long)w->dim[2], (long long)w->dim[3], a->stride[0], a->stride[1], a->pad[0],
            a->pad[1], a->extent[0], a->extent[1], (long long)x->dim[2], (long long)x->dim[3]);
    s->out[0] = shape_4(x->dim[0], w->dim[1], a->extent[0], a->extent[1]);
    return STATUS_OK;
}

/* Each element of the small image meets every element of the weight that its channel has. */
static double products(const struct shape *image, const struct shape *w)
{
    return 2.0 * (double)shape_count(image) * (double)(w->dim[1] * w->dim[2] * w->dim[3]);
}

static double flops_transpose(const struct node *node, const struct shape *const *in,
                              const struct shape *out)
{
    (void)node;
    (void)out;
    return products(in[0], in[1]);
}

static void gradient_transpose(struct graph *graph, const struct node *node,
                               struct value *const *dout, const bool *wanted,
                               struct value **din)
{
    struct value *dy = op_before_activation(graph, node, dout[0]);
    struct attrs attrs = node->attrs;

    attrs.activation = ACTIVATION_NONE;
    if (wanted[1]) {
        struct value *const in[] = { node->in[0], dy };
        attrs.extent[0] = (int)node->in[1]->shape.dim[2];
        attrs.extent[1] = (int)node->in[1]->shape.dim[3];
        attrs.with_bias = node->n_in > 2 && wanted[2];
        struct node *grad = graph_add(graph, &op_conv2d_transpose_grad_weight,
                                      node->in[1]->name, in, 2, &attrs);
        din[1] = grad ? grad->out[0] : NULL;
        din[2] = grad && attrs.with_bias ? grad->out[1] : NULL;
        attrs.with_bias = 0;
    }
    if (wanted[0]) {
        struct value *const in[] = { dy, node->in[1] };
        attrs.extent[0] = attrs.extent[1] = 0; /* follows from the others */
        struct node *grad =
            graph_add(graph, &op_conv2d_transpose_grad_input, node->name, in, 2, &attrs);
        din[0] = grad ? grad->out[0] : NULL;
    }
}

static bool is_one_group(const struct node *node, int count)
{
    (void)count;
    return node->attrs.groups <= 1;
}

/* Its weight has inputs first. */
static const struct op_way ways_transpose[] = {
    { .name = "columns",
      .in = { AXIS_NONE, AXIS_1 },
      .out = { AXIS_FEATURES },
      .can = is_one_group },
    { .name = "rows",
      .in = { AXIS_FEATURES, AXIS_0 },
      .out = { AXIS_SUM },
      .can = is_one_group },
    { 0 },
};

const struct op op_conv2d_transpose = {
    .name = "conv2d_transpose",
    .summary = "two-dimensional transposed convolution, bias, then the activation",
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_transpose,
    .gradient = gradient_transpose,
    .flops = flops_transpose,
    .ways = ways_transpose,
};

static enum status infer_grad_input(const struct node *node, struct op_shapes *s)
{
    const struct attrs *a = &node->attrs;
    const struct shape *dy = s->in[0], *w = s->in[1];

    if (dy->rank != 4 || w->rank != 4 || dy->dim[1] != w->dim[1])
        return FAIL(STATUS_USAGE, "gradient and weight do not fit");
    const int64_t h = op_window_out(dy->dim[2], w->dim[2], a->stride[0], a->pad[0]);
    const int64_t v = op_window_out(dy->dim[3], w->dim[3], a->stride[1], a->pad[1]);
    if (h <= 0 || v <= 0 || !fits(a, dy->dim[2], dy->dim[3], w->dim[2], w->dim[3], h, v))
        return FAIL(STATUS_USAGE, "gradient and weight do not fit");
    s->out[0] = shape_4(dy->dim[0], w->dim[0], h, v);
    return STATUS_OK;
}

static double flops_grad_input(const struct node *node, const struct shape *const *in,
                               const struct shape *out)
{
    (void)node;
    return products(&out[0], in[1]);
}

const struct op op_conv2d_transpose_grad_input = {
    .name = "conv2d_transpose_grad_input",
    .summary = "gradient of conv2d_transpose for its input",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_grad_input,
    .flops = flops_grad_input,
};

static enum status infer_grad_weight(const struct node *node, struct op_shapes *s)
{
    const struct attrs *a = &node->attrs;
    const struct shape *x = s->in[0], *dy = s->in[1];

    if (x->rank != 4 || dy->rank != 4 || x->dim[0] != dy->dim[0] ||
        !fits(a, dy->dim[2], dy->dim[3], a->extent[0], a->extent[1], x->dim[2], x->dim[3]))
        return FAIL(STATUS_USAGE, "image and gradient do not fit");
    s->out[0] = shape_4(x->dim[1], dy->dim[1], a->extent[0], a->extent[1]);
    s->out[1] = shape_1(dy->dim[1]);
    return STATUS_OK;
}

static double flops_grad_weight(const struct node *node, const struct shape *const *in,
                                const struct shape *out)
{
    (void)node;
    return products(in[0], &out[0]);
}

const struct op op_conv2d_transpose_grad_weight = {
    .name = "conv2d_transpose_grad_weight",
    .summary = "gradients of conv2d_transpose for its weight and bias",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 2,
    .split = { SPLIT_SUM, SPLIT_SUM },
    .infer = infer_grad_weight,
    .flops = flops_grad_weight,
};
