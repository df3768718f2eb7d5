/* SPDX-License-Identifier: MIT */
/* onednn_conv.c - convolutions by oneDNN, a part being some samples.
 *
 * Images stay NHWC. oneDNN's convolutions want their own order of weights: then the state also
 * holds the weights in that order and a reorder that runs before (forward, gradient of the input)
 * or after (gradient of the weights, whose parts are added in oneDNN's order). Parts are equal, so
 * all want the same.
 */
#include <string.h>

#include "base/mem.h"
#include "kernel/cpu/onednn.h"

/* Pixels of y of a part, at least, and how many parts. Weights are read, or written and added, once
 * a part: measured, this costs at most 3% of the time in one thread. */
enum { READING_PIXELS = 256, WRITING_PIXELS = 512, WRITING_PARTS = 4 };
static const double PART_FLOPS = 4e6; /* at least */

struct conv_descs {
    dnnl_memory_desc_t x, w, w_any, y, bias;
    dnnl_dims_t stride, pad;
    int64_t x_floats, y_floats, bias_floats; /* of a part */
};

/* As many parts as there may be, but such that all have the same number of samples. */
static int count_parts(const struct shape *y, const struct shape *w, int most, int pixels)
{
    const double all = (double)(y->dim[0] * y->dim[2] * y->dim[3]);
    const double flops = 2 * all * (double)shape_count(w);
    int parts = y->dim[0] < most ? (int)y->dim[0] : most;

    while (parts > 1 && (y->dim[0] % parts != 0 || all < (double)parts * pixels ||
                         flops < parts * PART_FLOPS))
        parts--;
    return parts < 1 ? 1 : parts;
}

static enum status describe_image(const struct kernel_tensor *tensor, int parts,
                                  dnnl_memory_desc_t *out, int64_t *out_floats)
{
    const struct shape *s = &tensor->shape;
    const dnnl_dims_t dims = { s->dim[0] / parts, s->dim[1], s->dim[2], s->dim[3] };

    TRY_DNNL(dnnl_memory_desc_init_by_tag(out, 4, dims, dnnl_f32, dnnl_nhwc));
    *out_floats = shape_count(s) / parts;
    return STATUS_OK;
}

/* Our order (kh, kw, C/groups, O), and any. oneDNN wants the groups as an extent of their own. */
static enum status describe_weights(const struct kernel_tensor *w, int groups,
                                    struct conv_descs *out)
{
    const int64_t o = w->shape.dim[0], c = w->shape.dim[1], kh = w->shape.dim[2],
                  kw = w->shape.dim[3];
    const dnnl_dims_t plain = { o, c, kh, kw };

    if (groups > 1) {
        const dnnl_dims_t dims = { groups, o / groups, c, kh, kw };
        const dnnl_dims_t strides = { o / groups, 1, o, kw * c * o, c * o };

        TRY_DNNL(dnnl_memory_desc_init_by_strides(&out->w, 5, dims, dnnl_f32, strides));
        TRY_DNNL(
            dnnl_memory_desc_init_by_tag(&out->w_any, 5, dims, dnnl_f32, dnnl_format_tag_any));
        return STATUS_OK;
    }
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&out->w, 4, plain, dnnl_f32, dnnl_hwio));
    TRY_DNNL(
        dnnl_memory_desc_init_by_tag(&out->w_any, 4, plain, dnnl_f32, dnnl_format_tag_any));
    return STATUS_OK;
}

static enum status describe_conv(const struct kernel_problem *problem,
                                 const struct kernel_tensor *x, const struct kernel_tensor *w,
                                 const struct kernel_tensor *y, int parts,
                                 struct conv_descs *out)
{
    const dnnl_dims_t bias = { w->shape.dim[0] };

    for (int i = 0; i < 2; i++) {
        out->stride[i] = problem->attrs.stride[i] > 0 ? problem->attrs.stride[i] : 1;
        out->pad[i] = problem->attrs.pad[i];
    }
    TRY(describe_image(x, parts, &out->x, &out->x_floats));
    TRY(describe_image(y, parts, &out->y, &out->y_floats));
    TRY(describe_weights(w, problem->attrs.groups, out));
    TRY_DNNL(dnnl_memory_desc_init_by_tag(&out->bias, 1, bias, dnnl_f32, dnnl_a));
    out->bias_floats = bias[0];
    return STATUS_OK;
}

/* Forward and gradient of the input: weights are read -------------------------------------- */

struct reading {
    const struct conv_descs *d;
    const void *desc;
    const_dnnl_primitive_desc_t hint;
    bool is_forward, relu, bias;
};

/* Makes part i, whose weights are in the order *out_wanted. */
static enum status fill_reading_part(const struct reading *r, struct onednn *state, int i,
                                     dnnl_memory_desc_t *out_wanted)
{
    const struct conv_descs *d = r->d;
    struct onednn_step *step = &state->parts[i];
    const struct onednn_place x = { r->is_forward ? ONEDNN_IN : ONEDNN_OUT, 0,
                                    i * d->x_floats };
    const struct onednn_place y = { r->is_forward ? ONEDNN_OUT : ONEDNN_IN, 0,
                                    i * d->y_floats };
    dnnl_primitive_desc_t pd;

    TRY(onednn_make(state, step, r->desc, r->relu, r->hint, &pd));
    *out_wanted = *dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    dnnl_primitive_desc_destroy(pd);
    const bool differs = !dnnl_memory_desc_equal(&d->w, out_wanted);
    TRY(onednn_add_arg(state, step, r->is_forward ? DNNL_ARG_SRC : DNNL_ARG_DIFF_SRC, &d->x,
                       x));
    TRY(onednn_add_arg(state, step, r->is_forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, &d->y,
                       y));
    if (r->bias)
        TRY(onednn_add_arg(state, step, DNNL_ARG_BIAS, &d->bias,
                           (struct onednn_place){ ONEDNN_IN, 2, 0 }));
    return onednn_add_arg(state, step, DNNL_ARG_WEIGHTS, out_wanted,
                          (struct onednn_place){ differs ? ONEDNN_OWN : ONEDNN_IN, 1, 0 });
}

static enum status fill_reading(const struct reading *r, int parts, struct onednn *state)
{
    dnnl_memory_desc_t wanted;

    state->n_parts = parts;
    for (int i = 0; i < parts; i++)
        TRY(fill_reading_part(r, state, i, &wanted));
    if (dnnl_memory_desc_equal(&r->d->w, &wanted))
        return STATUS_OK;
    TRY(mem_alloc(dnnl_memory_desc_get_size(&wanted), 1, &state->own));
    return onednn_reorder(state, &state->before, &r->d->w,
                          (struct onednn_place){ ONEDNN_IN, 1, 0 }, &wanted,
                          (struct onednn_place){ ONEDNN_OWN, 0, 0 });
}

static enum status fill_forward(const struct kernel_problem *problem, struct onednn *state)
{
    const bool bias = problem->n_in > 2;
    const int parts = count_parts(&problem->out[0].shape, &problem->in[1].shape, ONEDNN_PARTS,
                                  READING_PIXELS);
    struct conv_descs d;
    dnnl_convolution_desc_t desc;

    TRY(describe_conv(problem, &problem->in[0], &problem->in[1], &problem->out[0], parts, &d));
    TRY_DNNL(dnnl_convolution_forward_desc_init(
        &desc, dnnl_forward_training, dnnl_convolution_direct, &d.x, &d.w_any,
        bias ? &d.bias : NULL, &d.y, d.stride, d.pad, d.pad));
    return fill_reading(&(struct reading){ .d = &d,
                                           .desc = &desc,
                                           .is_forward = true,
                                           .relu = problem->attrs.activation == ACTIVATION_RELU,
                                           .bias = bias },
                        parts, state);
}

/* What gradients are told of the forward pass. */
static enum status make_hint(struct onednn *state, const struct conv_descs *d,
                             dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t desc;

    TRY_DNNL(dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training,
                                                dnnl_convolution_direct, &d->x, &d->w_any, NULL,
                                                &d->y, d->stride, d->pad, d->pad));
    TRY_DNNL(dnnl_primitive_desc_create(out, &desc, NULL, state->engine, NULL));
    return STATUS_OK;
}

static enum status fill_input(const struct kernel_problem *problem, struct onednn *state)
{
    const int parts =
        count_parts(&problem->in[0].shape, &problem->in[1].shape, ONEDNN_PARTS, READING_PIXELS);
    struct conv_descs d;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t hint;

    TRY(describe_conv(problem, &problem->out[0], &problem->in[1], &problem->in[0], parts, &d));
    TRY(make_hint(state, &d, &hint));
    enum status status = onednn_convert(
        dnnl_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &d.x, &d.w_any,
                                                 &d.y, d.stride, d.pad, d.pad),
        "gradient of the input");
    if (status == STATUS_OK)
        status = fill_reading(&(struct reading){ .d = &d, .desc = &desc, .hint = hint }, parts,
                              state);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* Gradient of the weights: they are written ------------------------------------------------ */

struct writing {
    const struct conv_descs *d;
    const void *desc;
    const_dnnl_primitive_desc_t hint;
    int parts;
    bool bias;
    /* What the first part tells. */
    dnnl_memory_desc_t wanted;
    bool differs;
    int64_t count; /* floats of the weights in that order */
};

/* Room for what parts write before it is summed or reordered: weights of each, then biases. */
static enum status make_room(struct writing *w, struct onednn *state)
{
    const bool sums = w->parts > 1;
    const struct onednn_place own = { ONEDNN_OWN, 0, 0 };

    w->differs = !dnnl_memory_desc_equal(&w->d->w, &w->wanted);
    w->count = (int64_t)(dnnl_memory_desc_get_size(&w->wanted) / sizeof(float));
    if (sums || w->differs)
        TRY(mem_alloc((size_t)(w->parts * (w->count + w->d->bias_floats)), sizeof(float),
                      &state->own));
    if (sums)
        state->sums[0] = (struct onednn_sum){
            own, w->differs ? own : (struct onednn_place){ ONEDNN_OUT, 0, 0 }, w->count
        };
    if (sums && w->bias)
        state->sums[1] = (struct onednn_sum){ { ONEDNN_OWN, 0, w->parts * w->count },
                                              { ONEDNN_OUT, 1, 0 },
                                              w->d->bias_floats };
    if (!w->differs)
        return STATUS_OK;
    return onednn_reorder(state, &state->after, &w->wanted, own, &w->d->w,
                          (struct onednn_place){ ONEDNN_OUT, 0, 0 });
}

static enum status fill_writing_part(struct writing *w, struct onednn *state, int i)
{
    const struct conv_descs *d = w->d;
    struct onednn_step *step = &state->parts[i];
    const bool sums = w->parts > 1;
    dnnl_primitive_desc_t pd;

    TRY(onednn_make(state, step, w->desc, false, w->hint, &pd));
    w->wanted = *dnnl_primitive_desc_query_md(pd, dnnl_query_diff_weights_md, 0);
    dnnl_primitive_desc_destroy(pd);
    if (i == 0)
        TRY(make_room(w, state));
    const struct onednn_place weights = { sums || w->differs ? ONEDNN_OWN : ONEDNN_OUT, 0,
                                          i * w->count };
    const struct onednn_place biases = { sums ? ONEDNN_OWN : ONEDNN_OUT, 1,
                                         sums ? w->parts * w->count + i * d->bias_floats : 0 };
    TRY(onednn_add_arg(state, step, DNNL_ARG_SRC, &d->x,
                       (struct onednn_place){ ONEDNN_IN, 0, i * d->x_floats }));
    TRY(onednn_add_arg(state, step, DNNL_ARG_DIFF_DST, &d->y,
                       (struct onednn_place){ ONEDNN_IN, 1, i * d->y_floats }));
    TRY(onednn_add_arg(state, step, DNNL_ARG_DIFF_WEIGHTS, &w->wanted, weights));
    if (w->bias)
        TRY(onednn_add_arg(state, step, DNNL_ARG_DIFF_BIAS, &d->bias, biases));
    return STATUS_OK;
}

static enum status fill_writing(struct writing *w, struct onednn *state)
{
    state->n_parts = w->parts;
    for (int i = 0; i < w->parts; i++)
        TRY(fill_writing_part(w, state, i));
    return STATUS_OK;
}

static enum status fill_weight(const struct kernel_problem *problem, struct onednn *state)
{
    const bool bias = problem->n_out > 1;
    const int parts = count_parts(&problem->in[1].shape, &problem->out[0].shape, WRITING_PARTS,
                                  WRITING_PIXELS);
    struct conv_descs d;
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t hint;

    TRY(describe_conv(problem, &problem->in[0], &problem->out[0], &problem->in[1], parts, &d));
    TRY(make_hint(state, &d, &hint));
    enum status status =
        onednn_convert(dnnl_convolution_backward_weights_desc_init(
                           &desc, dnnl_convolution_direct, &d.x, &d.w_any,
                           bias ? &d.bias : NULL, &d.y, d.stride, d.pad, d.pad),
                       "gradient of the weights");
    if (status == STATUS_OK) {
        struct writing writing = {
            .d = &d, .desc = &desc, .hint = hint, .parts = parts, .bias = bias
        };
        status = fill_writing(&writing, state);
    }
    dnnl_primitive_desc_destroy(hint);
    return status;
}

/* Rows ------------------------------------------------------------------------------------- */

/* oneDNN does not take a padding as wide as the kernel. Its weight gradient of a 1x1 kernel with a
 * stride writes past the scratchpad that it asked for (2.6.3 with AVX2; found by valgrind). */
bool onednn_can_convolve(const struct kernel_problem *problem)
{
    const bool is_weight = strcmp(problem->op, "conv2d_grad_weight") == 0;
    const struct shape *w = is_weight ? &problem->out[0].shape : &problem->in[1].shape;
    const bool skips = problem->attrs.stride[0] > 1 || problem->attrs.stride[1] > 1;

    if (is_weight && skips && w->dim[2] == 1 && w->dim[3] == 1)
        return false;
    if (problem->attrs.activation > ACTIVATION_RELU)
        return false;
    return problem->attrs.pad[0] < w->dim[2] && problem->attrs.pad[1] < w->dim[3];
}

enum status onednn_prepare_conv(const struct kernel_problem *problem, void **out_state)
{
    return onednn_prepare(problem, fill_forward, out_state);
}

enum status onednn_prepare_conv_input(const struct kernel_problem *problem, void **out_state)
{
    return onednn_prepare(problem, fill_input, out_state);
}

enum status onednn_prepare_conv_weight(const struct kernel_problem *problem, void **out_state)
{
    return onednn_prepare(problem, fill_weight, out_state);
}
