/* SPDX-License-Identifier: MIT */
/* op_conv2d.c - two-dimensional convolution, alone or with the max pool after it, and gradients.
 *
 * x (N, C, H, W), w (O, C, kh, kw), b (O), y (N, O, oh, ow); zero padding. With g groups w is
 * (O, C/g, kh, kw): the channels of y in one of g equal parts see those of x in the same part.
 * conv2d_pool does
 * conv2d, the activation and a max pool with stride = window in one go, so that the large
 * image in between never reaches memory; its second output says where each maximum stood.
 */
#include "graph/op.h"

int64_t op_window_out(int64_t in, int64_t window, int stride, int pad)
{
    const int64_t room = in + 2 * (int64_t)pad - window;
    return room < 0 || window <= 0 || stride <= 0 || pad < 0 ? 0 : room / stride + 1;
}

struct value *op_before_activation(struct graph *graph, const struct node *node,
                                   struct value *dy)
{
    static const char *const gradients[] = { NULL, "relu_grad", "relu6_grad", "sigmoid_grad" };
    const char *gradient = gradients[node->attrs.activation];

    return gradient ? graph_apply(graph, gradient, node->name, dy, node->out[0], NULL, NULL)
                    : dy;
}

/* How many groups the channels are in; 0 if they do not divide. */
static int64_t groups_of(const struct attrs *a, int64_t inputs, int64_t outputs)
{
    const int64_t groups = a->groups == 0 ? 1 : a->groups;
    return groups < 1 || inputs % groups || outputs % groups ? 0 : groups;
}

static enum status infer_conv2d(const struct node *node, struct op_shapes *s)
{
    const struct attrs *a = &node->attrs;
    const struct shape *x = s->in[0], *w = s->in[1], *b = s->in[2];

    if (x->rank != 4 || w->rank != 4)
        return FAIL(STATUS_USAGE, "an image and a weight of rank %d and %d, not 4", x->rank,
                    w->rank);
    const int64_t groups = groups_of(a, x->dim[1], w->dim[0]);
    if (groups == 0)
        return FAIL(STATUS_USAGE, "%lld and %lld channels in %d groups", (long long)x->dim[1],
                    (long long)w->dim[0], a->groups);
    if (x->dim[1] != w->dim[1] * groups)
        return FAIL(STATUS_USAGE, "image of %lld channels, weight for %lld",
                    (long long)x->dim[1], (long long)(w->dim[1] * groups));
    if (b && (b->rank != 1 || b->dim[0] != w->dim[0]))
        return FAIL(STATUS_USAGE, "bias of %lld for %lld channels", (long long)b->dim[0],
                    (long long)w->dim[0]);
    const int64_t h = op_window_out(x->dim[2], w->dim[2], a->stride[0], a->pad[0]);
    const int64_t v = op_window_out(x->dim[3], w->dim[3], a->stride[1], a->pad[1]);
    if (h <= 0 || v <= 0)
        return FAIL(STATUS_USAGE,
                    "kernel %lldx%lld, stride %dx%d, padding %dx%d does not fit into image "
                    "%lldx%lld",
                    (long long)w->dim[2], (long long)w->dim[3], a->stride[0], a->stride[1],
                    a->pad[0], a->pad[1], (long long)x->dim[2], (long long)x->dim[3]);
    s->out[0] = shape_4(x->dim[0], w->dim[0], h, v);
    return STATUS_OK;
}

static double flops_conv2d(const struct node *node, const struct shape *const *in,
                           const struct shape *out)
{
    const struct shape *w = in[1];

    (void)node;
    return 2.0 * (double)(w->dim[1] * w->dim[2] * w->dim[3]) * (double)shape_count(&out[0]);
}

/* Gradients of the convolution; `index` NULL: from dy of its plain output, else from dy of what the
 * max pool left and its index. */
static void convolution_gradients(struct graph *graph, const struct node *node,
                                  struct value *dy, struct value *index, const bool *wanted,
                                  struct value **din)
{
    struct attrs attrs = node->attrs;
    attrs.activation = ACTIVATION_NONE;

    if (wanted[1]) {
        struct value *const in[] = { node->in[0], dy, index };
        attrs.extent[0] = (int)node->in[1]->shape.dim[2];
        attrs.extent[1] = (int)node->in[1]->shape.dim[3];
        attrs.with_bias = node->n_in > 2 && wanted[2];
        struct node *grad =
            graph_add(graph, index ? &op_conv2d_pool_grad_weight : &op_conv2d_grad_weight,
                      node->in[1]->name, in, 3, &attrs);
        din[1] = grad ? grad->out[0] : NULL;
        din[2] = grad && attrs.with_bias ? grad->out[1] : NULL;
        attrs.with_bias = 0;
    }
    if (wanted[0]) {
        struct value *const plain[] = { dy, node->in[1] };
        struct value *const pooled[] = { dy, index, node->in[1] };
        attrs.extent[0] = (int)node->in[0]->shape.dim[2];
        attrs.extent[1] = (int)node->in[0]->shape.dim[3];
        struct node *grad =
            index ? graph_add(graph, &op_conv2d_pool_grad_input, node->name, pooled, 3, &attrs)
                  : graph_add(graph, &op_conv2d_grad_input, node->name, plain, 2, &attrs);
        din[0] = grad ? grad->out[0] : NULL;
    }
}

static void gradient_conv2d(struct graph *graph, const struct node *node,
                            struct value *const *dout, const bool *wanted, struct value **din)
{
    convolution_gradients(graph, node, op_before_activation(graph, node, dout[0]), NULL, wanted,
                          din);
}

static bool is_one_group(const struct node *node, int count)
{
    (void)count;
    return node->attrs.groups <= 1;
}

/* A channel sees itself alone, and there is one output a channel. */
static bool is_depthwise(const struct node *node, int count)
{
    const int64_t groups = node->attrs.groups;

    return groups >= count && groups == node->in[0]->shape.dim[1] &&
           groups == node->in[1]->shape.dim[0];
}

static void cut_groups(struct attrs *attrs, const struct shape_slice *slice)
{
    attrs->groups = (int)slice_extent(slice, attrs->groups);
}

/* Output channels are cut, or input channels, or both together. */
static const struct op_way ways_conv2d[] = {
    { .name = "columns",
      .in = { AXIS_NONE, AXIS_0 },
      .out = { AXIS_FEATURES },
      .can = is_one_group },
    { .name = "rows",
      .in = { AXIS_FEATURES, AXIS_1 },
      .out = { AXIS_SUM },
      .can = is_one_group },
    { .name = "channels",
      .in = { AXIS_FEATURES, AXIS_0 },
      .out = { AXIS_FEATURES },
      .can = is_depthwise,
      .cut = cut_groups },
    { 0 },
};

const struct op op_conv2d = {
    .name = "conv2d",
    .summary = "two-dimensional convolution, bias, then the activation",
    .min_in = 2,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_conv2d,
    .gradient = gradient_conv2d,
    .flops = flops_conv2d,
    .ways = ways_conv2d,
};

static enum status infer_grad_input(const struct node *node, struct op_shapes *s)
{
    const struct attrs *a = &node->attrs;
    const struct shape *dy = s->in[0], *w = s->in[1];
    const int64_t groups = w->rank == 4 ? groups_of(a, 0, w->dim[0]) : 0;

    if (dy->rank != 4 || groups == 0 || dy->dim[1] != w->dim[0] ||
        op_window_out(a->extent[0], w->dim[2], a->stride[0], a->pad[0]) != dy->dim[2] ||
        op_window_out(a->extent[1], w->dim[3], a->stride[1], a->pad[1]) != dy->dim[3])
        return FAIL(STATUS_USAGE, "gradient and weight do not fit");
    s->out[0] = shape_4(dy->dim[0], w->dim[1] * groups, a->extent[0], a->extent[1]);
    return STATUS_OK;
}

static double flops_grad_input(const struct node *node, const struct shape *const *in,
                               const struct shape *out)
{
    const struct shape *w = in[1];

    (void)node;
    (void)out;
    return 2.0 * (double)(w->dim[1] * w->dim[2] * w->dim[3]) * (double)shape_count(in[0]);
}

const struct op op_conv2d_grad_input = {
    .name = "conv2d_grad_input",
    .summary = "gradient of conv2d for its input",
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
    const int64_t groups =
        x->rank == 4 && dy->rank == 4 ? groups_of(a, x->dim[1], dy->dim[1]) : 0;

    if (groups == 0 || x->dim[0] != dy->dim[0] ||
        op_window_out(x->dim[2], a->extent[0], a->stride[0], a->pad[0]) != dy->dim[2] ||
        op_window_out(x->dim[3], a->extent[1], a->stride[1], a->pad[1]) != dy->dim[3])
        return FAIL(STATUS_USAGE, "image and gradient do not fit");
    s->out[0] = shape_4(dy->dim[1], x->dim[1] / groups, a->extent[0], a->extent[1]);
    s->out[1] = shape_1(dy->dim[1]);
    return STATUS_OK;
}

static double flops_grad_weight(const struct node *node, const struct shape *const *in,
                                const struct shape *out)
{
    (void)node;
    return 2.0 * (double)shape_count(in[1]) *
           (double)(out[0].dim[1] * out[0].dim[2] * out[0].dim[3]);
}

const struct op op_conv2d_grad_weight = {
    .name = "conv2d_grad_weight",
    .summary = "gradients of conv2d for its weight and bias",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 2,
    .split = { SPLIT_SUM, SPLIT_SUM },
    .infer = infer_grad_weight,
    .flops = flops_grad_weight,
};

/* The pooled ones know one group, and relu alone. */
static enum status check_pooled(const struct attrs *a)
{
    if (a->groups > 1 || a->groups < 0)
        return FAIL(STATUS_USAGE, "%d groups before a pool", a->groups);
    if (a->activation > ACTIVATION_RELU)
        return FAIL(STATUS_USAGE, "an activation before a pool that is not relu");
    return STATUS_OK;
}

static enum status infer_conv2d_pool(const struct node *node, struct op_shapes *s)
{
    const struct attrs *a = &node->attrs;

    TRY(infer_conv2d(node, s));
    TRY(check_pooled(a));
    struct shape *y = &s->out[0];
    if (a->window[0] <= 0 || a->window[1] <= 0 || (int64_t)a->window[0] * a->window[1] > 254)
        return FAIL(STATUS_USAGE, "pool window %dx%d", a->window[0], a->window[1]);
    y->dim[2] /= a->window[0];
    y->dim[3] /= a->window[1];
    if (y->dim[2] <= 0 || y->dim[3] <= 0)
        return FAIL(STATUS_USAGE, "pool window %dx%d is larger than the image", a->window[0],
                    a->window[1]);
    s->out[1] = *y;
    s->dtype[1] = DTYPE_U8;
    return STATUS_OK;
}

static double flops_conv2d_pool(const struct node *node, const struct shape *const *in,
                                const struct shape *out)
{
    return flops_conv2d(node, in, out) * node->attrs.window[0] * node->attrs.window[1];
}

static void gradient_conv2d_pool(struct graph *graph, const struct node *node,
                                 struct value *const *dout, const bool *wanted,
                                 struct value **din)
{
    convolution_gradients(graph, node, dout[0], node->out[1], wanted, din);
}

const struct op op_conv2d_pool = {
    .name = "conv2d_pool",
    .summary = "conv2d, activation and max pool in one",
    .min_in = 2,
    .max_in = 3,
    .min_out = 2,
    .max_out = 2,
    .split = { SPLIT_ROWS, SPLIT_ROWS },
    .infer = infer_conv2d_pool,
    .gradient = gradient_conv2d_pool,
    .flops = flops_conv2d_pool,
};

/* Does dy have the extents that convolution and pool make of an image of h x w? */
static bool fits_pooled(const struct attrs *a, const struct shape *dy,
                        const struct shape *index, int64_t h, int64_t w, int64_t kh, int64_t kw)
{
    return dy->rank == 4 && shape_equal(dy, index) && a->window[0] > 0 && a->window[1] > 0 &&
           op_window_out(h, kh, a->stride[0], a->pad[0]) / a->window[0] == dy->dim[2] &&
           op_window_out(w, kw, a->stride[1], a->pad[1]) / a->window[1] == dy->dim[3];
}

static enum status infer_pool_grad_input(const struct node *node, struct op_shapes *s)
{
    const struct attrs *a = &node->attrs;
    const struct shape *dy = s->in[0], *w = s->in[2];

    TRY(check_pooled(a));
    if (w->rank != 4 ||
        !fits_pooled(a, dy, s->in[1], a->extent[0], a->extent[1], w->dim[2], w->dim[3]) ||
        dy->dim[1] != w->dim[0])
        return FAIL(STATUS_USAGE, "gradient and weight do not fit");
    s->out[0] = shape_4(dy->dim[0], w->dim[1], a->extent[0], a->extent[1]);
    return STATUS_OK;
}

static double flops_pool_grad_input(const struct node *node, const struct shape *const *in,
                                    const struct shape *out)
{
    const struct shape *w = in[2];

    (void)out;
    return 2.0 * (double)(w->dim[1] * w->dim[2] * w->dim[3]) * (double)shape_count(in[0]) *
           node->attrs.window[0] * node->attrs.window[1];
}

const struct op op_conv2d_pool_grad_input = {
    .name = "conv2d_pool_grad_input",
    .summary = "gradient of conv2d_pool for its input",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_U8 },
    .split = { SPLIT_ROWS },
    .infer = infer_pool_grad_input,
    .flops = flops_pool_grad_input,
};

static enum status infer_pool_grad_weight(const struct node *node, struct op_shapes *s)
{
    const struct attrs *a = &node->attrs;
    const struct shape *x = s->in[0], *dy = s->in[1];

    TRY(check_pooled(a));
    if (x->rank != 4 ||
        !fits_pooled(a, dy, s->in[2], x->dim[2], x->dim[3], a->extent[0], a->extent[1]) ||
        x->dim[0] != dy->dim[0])
        return FAIL(STATUS_USAGE, "image and gradient do not fit");
    s->out[0] = shape_4(dy->dim[1], x->dim[1], a->extent[0], a->extent[1]);
    s->out[1] = shape_1(dy->dim[1]);
    return STATUS_OK;
}

static double flops_pool_grad_weight(const struct node *node, const struct shape *const *in,
                                     const struct shape *out)
{
    return flops_grad_weight(node, in, out) * node->attrs.window[0] * node->attrs.window[1];
}

const struct op op_conv2d_pool_grad_weight = {
    .name = "conv2d_pool_grad_weight",
    .summary = "gradients of conv2d_pool for its weight and bias",
    .min_in = 3,
    .max_in = 3,
    .min_out = 1,
    .max_out = 2,
    .in_dtype = { DTYPE_F32, DTYPE_F32, DTYPE_U8 },
    .split = { SPLIT_SUM, SPLIT_SUM },
    .infer = infer_pool_grad_weight,
    .flops = flops_pool_grad_weight,
};
