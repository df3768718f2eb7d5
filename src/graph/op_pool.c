/* SPDX-License-Identifier: MIT */
/* op_pool.c - max and average pooling of images (N, C, H, W), and their gradients. */
#include "graph/op.h"

/* A position in a window must fit into a byte, 255 excepted, and no window may lie in the padding
 * alone. */
static enum status check_window(const struct attrs *a)
{
    const int64_t area = (int64_t)a->window[0] * a->window[1];

    if (a->window[0] <= 0 || a->window[1] <= 0 || area > 254 || a->pad[0] * 2 > a->window[0] ||
        a->pad[1] * 2 > a->window[1] || a->pad[0] < 0 || a->pad[1] < 0)
        return FAIL(STATUS_USAGE, "window %dx%d with padding %dx%d", a->window[0], a->window[1],
                    a->pad[0], a->pad[1]);
    return STATUS_OK;
}

static enum status infer_pool(const struct node *node, struct op_shapes *s)
{
    const struct attrs *a = &node->attrs;
    const struct shape *x = s->in[0];

    if (x->rank != 4)
        return FAIL(STATUS_USAGE, "input is no batch of images");
    TRY(check_window(a));
    const int64_t h = op_window_out(x->dim[2], a->window[0], a->stride[0], a->pad[0]);
    const int64_t w = op_window_out(x->dim[3], a->window[1], a->stride[1], a->pad[1]);
    if (h <= 0 || w <= 0)
        return FAIL(STATUS_USAGE, "window %dx%d is larger than image %lldx%lld", a->window[0],
                    a->window[1], (long long)x->dim[2], (long long)x->dim[3]);
    s->out[0] = shape_4(x->dim[0], x->dim[1], h, w);
    s->out[1] = s->out[0];
    s->dtype[1] = DTYPE_U8;
    return STATUS_OK;
}

static struct attrs with_extent(const struct node *node)
{
    struct attrs attrs = node->attrs;
    attrs.extent[0] = (int)node->in[0]->shape.dim[2];
    attrs.extent[1] = (int)node->in[0]->shape.dim[3];
    return attrs;
}

static double flops_pool(const struct node *node, const struct shape *const *in,
                         const struct shape *out)
{
    (void)in;
    return (double)shape_count(&out[0]) * node->attrs.window[0] * node->attrs.window[1];
}

static void gradient_max_pool(struct graph *graph, const struct node *node,
                              struct value *const *dout, const bool *wanted, struct value **din)
{
    const struct attrs attrs = with_extent(node);
    struct value *const in[] = { dout[0], node->out[1] };

    if (wanted[0]) {
        struct node *grad = graph_add(graph, &op_max_pool_grad, node->name, in, 2, &attrs);
        din[0] = grad ? grad->out[0] : NULL;
    }
}

const struct op op_max_pool = {
    .name = "max_pool",
    .summary = "largest of each window, and where it stood",
    .min_in = 1,
    .max_in = 1,
    .min_out = 2,
    .max_out = 2,
    .split = { SPLIT_ROWS, SPLIT_ROWS },
    .infer = infer_pool,
    .gradient = gradient_max_pool,
    .flops = flops_pool,
    .ways = op_ways_pixels,
};

static enum status infer_pool_grad(const struct node *node, struct op_shapes *s)
{
    const struct attrs *a = &node->attrs;
    const struct shape *dy = s->in[0];

    TRY(check_window(a));
    if (dy->rank != 4 || (s->in[1] && !shape_equal(dy, s->in[1])) ||
        op_window_out(a->extent[0], a->window[0], a->stride[0], a->pad[0]) != dy->dim[2] ||
        op_window_out(a->extent[1], a->window[1], a->stride[1], a->pad[1]) != dy->dim[3])
        return FAIL(STATUS_USAGE, "gradient does not fit the image");
    s->out[0] = shape_4(dy->dim[0], dy->dim[1], a->extent[0], a->extent[1]);
    return STATUS_OK;
}

const struct op op_max_pool_grad = {
    .name = "max_pool_grad",
    .summary = "sends each gradient to where the maximum stood",
    .min_in = 2,
    .max_in = 2,
    .min_out = 1,
    .max_out = 1,
    .in_dtype = { DTYPE_F32, DTYPE_U8 },
    .split = { SPLIT_ROWS },
    .infer = infer_pool_grad,
};

static void gradient_avg_pool(struct graph *graph, const struct node *node,
                              struct value *const *dout, const bool *wanted, struct value **din)
{
    const struct attrs attrs = with_extent(node);

    if (wanted[0]) {
        struct node *grad = graph_add(graph, &op_avg_pool_grad, node->name, dout, 1, &attrs);
        din[0] = grad ? grad->out[0] : NULL;
    }
}

const struct op op_avg_pool = {
    .name = "avg_pool",
    .summary = "mean of each window",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_pool,
    .gradient = gradient_avg_pool,
    .flops = flops_pool,
    .ways = op_ways_pixels,
};

const struct op op_avg_pool_grad = {
    .name = "avg_pool_grad",
    .summary = "spreads each gradient over its window",
    .min_in = 1,
    .max_in = 1,
    .min_out = 1,
    .max_out = 1,
    .split = { SPLIT_ROWS },
    .infer = infer_pool_grad,
};
