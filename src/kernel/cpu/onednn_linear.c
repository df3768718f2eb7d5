/* SPDX-License-Identifier: MIT */
/* onednn_linear.c - linear layers by oneDNN's matrix product.
 *
 *   y  = x W       (m,k) (k,n)      cut along m or n, whichever is longer
 *   dx = dy W^T    likewise
 *   dW = x^T dy    (k,m) (m,n)      cut along the samples if these are many against k and n, each part
 *                                   with a sum of its own; else along k or n
 *
 * A weight that lies plain is W^T here: y = x W^T, dx = dy W, dW^T = dy^T x.
 *
 * A cut along a result costs a part that it copies the other matrix again, one along samples that it
 * writes a result more: parts are large enough to hide either.
 */
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/onednn.h"

struct product {
    int64_t m, n, k;
    bool a_turned, b_turned; /* lies transposed */
    bool swapped;            /* A is the call's input 1 and B its input 0 */
    bool bias, relu;
};

enum axis { AXIS_M, AXIS_N, AXIS_K };

enum {
    GRAIN = 16,       /* a cut is at a multiple of it */
    PART_EXTENT = 64, /* rows or columns of a part, at least */
    PART_DEPTH = 512, /* samples of a part, at least */
    WEIGHT_PARTS = 4, /* of a gradient of weights, at most */
    MANY = 4,         /* times as many samples as rows or columns are worth sums of their own */
};
static const double PART_FLOPS = 4e6; /* at least */

struct cut {
    enum axis axis;
    int parts;
};

static int64_t extent_of(const struct product *p, enum axis axis)
{
    return axis == AXIS_M ? p->m : axis == AXIS_N ? p->n : p->k;
}

static struct cut cut_of(const struct product *p)
{
    const int64_t larger = p->m > p->n ? p->m : p->n;
    const bool is_deep = p->a_turned && p->k >= MANY * larger;
    struct cut cut = { .axis = is_deep ? AXIS_K : p->m >= p->n ? AXIS_M : AXIS_N };
    const double by_flops = 2.0 * (double)p->m * (double)p->n * (double)p->k / PART_FLOPS;
    const int most = p->a_turned ? WEIGHT_PARTS : ONEDNN_PARTS;
    int64_t parts = extent_of(p, cut.axis) / (is_deep ? PART_DEPTH : PART_EXTENT);

    parts = parts < most ? parts : most;
    if (by_flops < (double)parts)
        parts = (int64_t)by_flops;
    cut.parts = parts < 1 ? 1 : (int)parts;
    return cut;
}

static enum status describe(int64_t rows, int64_t columns, bool is_turned, int64_t stride,
                            dnnl_memory_desc_t *out)
{
    const dnnl_dims_t dims = { rows, columns };
    const dnnl_dims_t strides = { is_turned ? 1 : stride, is_turned ? stride : 1 };

    TRY_DNNL(dnnl_memory_desc_init_by_strides(out, 2, dims, dnnl_f32, strides));
    return STATUS_OK;
}

/* A part: extents, and where it begins along the axis that is cut. */
struct part {
    int64_t m, n, k;
    int64_t m0, n0, k0;
};

static struct part part_at(const struct product *p, const struct cut *cut, int i)
{
    struct part part = { .m = p->m, .n = p->n, .k = p->k };
    const int64_t extent = extent_of(p, cut->axis);
    int64_t first;
    const int64_t grains = gemm_part(gemm_ceil(extent, GRAIN), cut->parts, i, &first);
    int64_t *size = cut->axis == AXIS_M ? &part.m : cut->axis == AXIS_N ? &part.n : &part.k;
    int64_t *begin = cut->axis == AXIS_M ? &part.m0 : cut->axis == AXIS_N ? &part.n0 : &part.k0;

    *begin = first * GRAIN;
    *size = extent - *begin < grains * GRAIN ? extent - *begin : grains * GRAIN;
    return part;
}

static enum status fill_part(const struct product *p, const struct part *part,
                             struct onednn_place to, struct onednn *state,
                             struct onednn_step *step)
{
    const int64_t a_stride = p->a_turned ? p->m : p->k, b_stride = p->b_turned ? p->k : p->n;
    const struct onednn_place a_place = { ONEDNN_IN, p->swapped ? 1 : 0,
                                          p->a_turned ? part->k0 * a_stride + part->m0
                                                      : part->m0 * a_stride + part->k0 };
    const struct onednn_place b_place = { ONEDNN_IN, p->swapped ? 0 : 1,
                                          p->b_turned ? part->n0 * b_stride + part->k0
                                                      : part->k0 * b_stride + part->n0 };
    dnnl_memory_desc_t a, b, c, bias;
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;

    TRY(describe(part->m, part->k, p->a_turned, a_stride, &a));
    TRY(describe(part->k, part->n, p->b_turned, b_stride, &b));
    TRY(describe(part->m, part->n, false, p->n, &c));
    TRY(describe(1, part->n, false, part->n, &bias));
    TRY_DNNL(dnnl_matmul_desc_init(&desc, &a, &b, p->bias ? &bias : NULL, &c));
    TRY(onednn_make(state, step, &desc, p->relu, NULL, &pd));
    dnnl_primitive_desc_destroy(pd);
    TRY(onednn_add_arg(state, step, DNNL_ARG_SRC, &a, a_place));
    TRY(onednn_add_arg(state, step, DNNL_ARG_WEIGHTS, &b, b_place));
    if (p->bias)
        TRY(onednn_add_arg(state, step, DNNL_ARG_BIAS, &bias,
                           (struct onednn_place){ ONEDNN_IN, 2, part->n0 }));
    to.offset += part->m0 * p->n + part->n0;
    return onednn_add_arg(state, step, DNNL_ARG_DST, &c, to);
}

static enum status fill_product(const struct product *p, struct onednn *state)
{
    const struct cut cut = cut_of(p);
    const bool sums = cut.axis == AXIS_K && cut.parts > 1;

    state->n_parts = cut.parts;
    if (sums)
        state->sums[0] =
            (struct onednn_sum){ { ONEDNN_SCRATCH, 0, 0 }, { ONEDNN_OUT, 0, 0 }, p->m * p->n };
    for (int i = 0; i < cut.parts; i++) {
        const struct part part = part_at(p, &cut, i);
        const struct onednn_place to = { sums ? ONEDNN_SCRATCH : ONEDNN_OUT, 0,
                                         sums ? i * p->m * p->n : 0 };
        TRY(fill_part(p, &part, to, state, &state->parts[i]));
    }
    return STATUS_OK;
}

static enum status fill_forward(const struct kernel_problem *problem, struct onednn *state)
{
    const int64_t k = problem->in[1].shape.dim[1], n = problem->in[1].shape.dim[0];

    return fill_product(
        &(struct product){ .m = shape_count(&problem->in[0].shape) / k,
                           .n = n,
                           .k = k,
                           .b_turned = problem->in[1].layout == LAYOUT_PLAIN,
                           .bias = problem->n_in > 2,
                           .relu = problem->attrs.activation == ACTIVATION_RELU },
        state);
}

static enum status fill_input(const struct kernel_problem *problem, struct onednn *state)
{
    const int64_t k = problem->in[1].shape.dim[1], n = problem->in[1].shape.dim[0];

    return fill_product(&(struct product){ .m = shape_count(&problem->in[0].shape) / n,
                                           .n = k,
                                           .k = n,
                                           .b_turned = problem->in[1].layout == LAYOUT_IO },
                        state);
}

static struct product weight_product(const struct kernel_problem *problem)
{
    const int64_t k = problem->out[0].shape.dim[1], n = problem->out[0].shape.dim[0];

    const bool plain = problem->out[0].layout == LAYOUT_PLAIN;

    return (struct product){ .m = plain ? n : k,
                             .n = plain ? k : n,
                             .k = shape_count(&problem->in[0].shape) / k,
                             .a_turned = true,
                             .swapped = plain };
}

static enum status fill_weight(const struct kernel_problem *problem, struct onednn *state)
{
    const struct product product = weight_product(problem);

    if (problem->n_out > 1) {
        state->sum_rows = product.k;
        state->sum_columns = problem->out[0].shape.dim[0];
    }
    return fill_product(&product, state);
}

size_t onednn_linear_weight_scratch(const struct kernel_problem *problem)
{
    const struct product product = weight_product(problem);
    const struct cut cut = cut_of(&product);

    return cut.axis == AXIS_K && cut.parts > 1
               ? (size_t)(cut.parts * product.m * product.n) * sizeof(float)
               : 0;
}

enum status onednn_prepare_linear(const struct kernel_problem *problem, void **out_state)
{
    return onednn_prepare(problem, fill_forward, out_state);
}

enum status onednn_prepare_linear_input(const struct kernel_problem *problem, void **out_state)
{
    return onednn_prepare(problem, fill_input, out_state);
}

enum status onednn_prepare_linear_weight(const struct kernel_problem *problem, void **out_state)
{
    return onednn_prepare(problem, fill_weight, out_state);
}
