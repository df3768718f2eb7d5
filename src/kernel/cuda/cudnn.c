/* SPDX-License-Identifier: MIT */
/* cudnn.c - convolutions in mixed precision, and of f32 that may be rounded to TF32, by cuDNN's graph interface.
 *
 * Mostly one operation a graph: a convolution, or the gradient of its input or of its weights, of images with channels
 * innermost, bf16 or f16 with f32 sums. cuDNN wants filters as (O, kh, kw, C). Those that lie (kh, kw, C, O) are turned
 * across in scratch before, or after; most lie as they are wanted (pass/inward.c). Channels that do not come in eights, such as those
 * of a first layer, are filled up with zeros in copies. Bias and relu of a convolution are part of its graph, the bias in
 * bf16, where there is an engine for it. Gradients of weights are wanted in f32;
 * where cuDNN has no engine for that they are rounded to 16 bits once, at the end. Which engine runs says a table of the models' convolutions
 * (cudnn_table.c); of others the first of cuDNN's proposals is taken that adds plainly and in a fixed order: no Winograd, no FFT,
 * nothing nondeterministic, nothing that is compiled first. Nothing is timed, so the choice is the same for one version and device. Plans are kept for the life
 * of the process, as can_run and scratch_bytes ask for them, too. f32 that is not to be rounded has kernels of its own:
 * cuDNN's engines do not say which of them compute in less. What may be is neither filled up nor has a bias in its graph.
 */
#include <string.h>

#include "base/mem.h"
#include "kernel/cuda/across.h"
#include "kernel/cuda/column_sums.h"
#include "kernel/cuda/cudnn_conv.h"
#include "kernel/cuda/gemm.h"
#include "kernel/precision.h"

struct plan {
    struct conv conv;
    struct dnn_plan dnn;
    struct plan *next;
};

static struct plan *the_plans; /* guarded by dnn_lock */

/* Plans -------------------------------------------------------------------------------- */

static bool is_same(const struct conv *a, const struct conv *b)
{
    return a->kind == b->kind && a->n == b->n && a->c == b->c && a->h == b->h && a->w == b->w &&
           a->o == b->o && a->kh == b->kh && a->kw == b->kw && a->oh == b->oh &&
           a->ow == b->ow && a->stride[0] == b->stride[0] && a->stride[1] == b->stride[1] &&
           a->pad[0] == b->pad[0] && a->pad[1] == b->pad[1] && a->dtype == b->dtype &&
           a->into == b->into && a->with_bias == b->with_bias && a->relu == b->relu;
}

static enum status choose(struct dnn_pile *pile, struct plan *plan)
{
    cudnnBackendDescriptor_t graph, config;
    struct dnn_choice choice;

    TRY(conv_graph(pile, &plan->conv, &graph));
    if (conv_choice(&plan->conv, &choice) &&
        dnn_make_config(pile, graph, &choice, &config) == STATUS_OK &&
        dnn_is_wanted(config, false, true) && dnn_take(config, &plan->dnn))
        return STATUS_OK;
    return dnn_choose(pile, graph, false, &plan->dnn);
}

/* Under the lock. NULL: no memory, or no cuDNN. */
static const struct plan *plan_for(const struct conv *conv)
{
    struct dnn_pile pile = { .count = 0 };
    struct plan *plan;

    for (plan = the_plans; plan != NULL; plan = plan->next) {
        if (is_same(&plan->conv, conv))
            return plan;
    }
    if (!dnn_is_there())
        return NULL;
    if (mem_alloc(1, sizeof *plan, &plan) != STATUS_OK)
        return NULL;
    plan->conv = *conv;
    (void)choose(&pile, plan); /* what went wrong leaves no plan, and another kernel runs */
    dnn_drop(&pile);
    plan->next = the_plans;
    the_plans = plan;
    return plan;
}

/* The plan, and *conv what it computes: a weight's gradient in bf16 where there is no other way, a convolution without
 * what comes after it where there is none for all. */
static const struct plan *find_plan(struct conv *conv)
{
    dnn_lock();
    const struct plan *plan = plan_for(conv);
    if (conv->kind == KIND_WEIGHT && kernel_is_half(conv->dtype) && plan && !plan->dnn.cudnn) {
        conv->into = conv->dtype;
        plan = plan_for(conv);
    }
    if (conv->with_bias && plan && !plan->dnn.cudnn) {
        conv->with_bias = conv->relu = false;
        plan = plan_for(conv);
    }
    dnn_unlock();
    return plan && plan->dnn.cudnn ? plan : NULL;
}

/* bias: NULL where the plan has none. */
static void execute(const struct kernel_call *call, const struct plan *plan, const void *x,
                    const void *w, const void *y, const void *bias, void *workspace)
{
    const struct dnn_data data = { { ID_X, ID_W, ID_Y, ID_BIAS },
                                   { x, w, y, bias },
                                   bias ? 4 : 3 };

    dnn_run(call->stream, &plan->dnn, &data, workspace);
}

/* The ops ------------------------------------------------------------------------------ */

/* Which tensors of a problem are x, w and y of the convolution; negative: of the outputs. */
struct parts {
    const char *op;
    enum conv_kind kind;
    int x, w, y;
    int bias; /* which of x and y a bias, or its gradient, goes along: 'x' or 'y' */
};

enum { OUTPUT = -1 };

static const struct parts parts[] = {
    { "conv2d", KIND_FORWARD, 0, 1, OUTPUT, 'y' },
    { "conv2d_grad_input", KIND_INPUT, OUTPUT, 1, 0, 0 },
    { "conv2d_grad_weight", KIND_WEIGHT, 0, OUTPUT, 1, 'y' },
    { "conv2d_transpose", KIND_INPUT, OUTPUT, 1, 0, 'x' },
    { "conv2d_transpose_grad_input", KIND_FORWARD, 0, 1, OUTPUT, 0 },
    { "conv2d_transpose_grad_weight", KIND_WEIGHT, 1, OUTPUT, 0, 'x' },
};

static const struct parts *parts_of(const struct kernel_problem *p)
{
    size_t i = 0;

    while (strcmp(parts[i].op, p->op) != 0)
        i++;
    return &parts[i];
}

static const struct kernel_tensor *tensor_at(const struct kernel_problem *p, int at)
{
    return at == OUTPUT ? &p->out[0] : &p->in[at];
}

/* As many channels as fill up with. */
static int64_t in_eights(enum dtype dtype, int64_t channels)
{
    return kernel_is_half(dtype) ? (channels + 7) / 8 * 8 : channels;
}

static void conv_of(const struct kernel_problem *p, struct conv *out)
{
    const struct parts *part = parts_of(p);
    const int64_t *x = tensor_at(p, part->x)->shape.dim, *w = tensor_at(p, part->w)->shape.dim;
    const int64_t *y = tensor_at(p, part->y)->shape.dim;

    out->kind = part->kind;
    out->dtype = p->in[0].dtype;
    out->into = p->out[0].dtype;
    out->n = x[0];
    out->real_c = x[1];
    out->c = in_eights(out->dtype, x[1]);
    out->h = x[2];
    out->w = x[3];
    out->real_o = w[0];
    out->o = in_eights(out->dtype, w[0]);
    out->kh = w[2];
    out->kw = w[3];
    out->oh = y[2];
    out->ow = y[3];
    for (int i = 0; i < 2; i++) {
        out->stride[i] = p->attrs.stride[i];
        out->pad[i] = p->attrs.pad[i];
    }
    out->with_bias = strcmp(p->op, "conv2d") == 0 && p->n_in > 2 && out->o == out->real_o &&
                     kernel_is_half(out->dtype);
    out->relu = out->with_bias && p->attrs.activation == ACTIVATION_RELU;
}

/* Does the filter lie as cuDNN wants it? */
static bool is_inward(const struct kernel_problem *p)
{
    return tensor_at(p, parts_of(p)->w)->layout == LAYOUT_OHWI;
}

static bool is_padded(const struct conv *c)
{
    return c->c != c->real_c || c->o != c->real_o;
}

/* Channels in eights feed tensor cores; what is small is not worth two launches more, or four. */
static bool can_run(const struct kernel_problem *p)
{
    struct conv conv;

    if ((!kernel_is_half(p->in[0].dtype) && !p->rounds) || p->attrs.groups > 1 ||
        p->attrs.activation > ACTIVATION_RELU)
        return false;
    conv_of(p, &conv);
    const double work = (double)conv.n * (double)conv.oh * (double)conv.ow * (double)conv.o *
                        (double)conv.c * (double)conv.kh * (double)conv.kw;
    return work >= (is_padded(&conv) ? 1e8 : 1e5) && find_plan(&conv) != NULL;
}

static size_t up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Of a filter in scratch: turned, or rounded where the gradient is not. */
static size_t filter_bytes(const struct kernel_problem *p, const struct conv *c)
{
    const enum dtype dtype = c->kind == KIND_WEIGHT ? c->into : c->dtype;

    if (is_inward(p) && dtype == tensor_at(p, parts_of(p)->w)->dtype)
        return 0;
    return up((size_t)(c->o * c->c * c->kh * c->kw) *
              (kernel_is_half(dtype) ? sizeof(uint16_t) : sizeof(float)));
}

/* Rows and columns of what a bias goes along. */
static void bias_extents(const struct conv *c, int along, int64_t *rows, int64_t *columns)
{
    *rows = along == 'x' ? c->n * c->h * c->w : c->n * c->oh * c->ow;
    *columns = along == 'x' ? c->real_c : c->real_o;
}

/* Of a bias that is part of the plan. */
static size_t bias_bytes(const struct conv *c)
{
    return c->with_bias ? up((size_t)c->o * sizeof(uint16_t)) : 0;
}

/* Of a copy of x, or y, with more channels; 0: there is none. */
static size_t image_bytes(const struct conv *c, int which)
{
    const int64_t rows = which == 'x' ? c->n * c->h * c->w : c->n * c->oh * c->ow;
    const int64_t channels = which == 'x' ? c->c : c->o;
    const int64_t real = which == 'x' ? c->real_c : c->real_o;

    return channels == real ? 0 : up((size_t)(rows * channels) * sizeof(uint16_t));
}

/* The filter, turned, copies of images, the bias, then the workspace; a bias's gradient comes after all are done with. */
static size_t scratch_bytes(const struct kernel_problem *p)
{
    struct conv conv;
    int64_t rows, columns;

    conv_of(p, &conv);
    const struct plan *plan = find_plan(&conv);
    bias_extents(&conv, parts_of(p)->bias, &rows, &columns);
    const size_t sums =
        conv.kind == KIND_WEIGHT && p->n_out > 1 ? column_sums_scratch(rows, columns) : 0;
    const size_t own = filter_bytes(p, &conv) + image_bytes(&conv, 'x') +
                       image_bytes(&conv, 'y') + bias_bytes(&conv) +
                       (plan ? (size_t)plan->dnn.workspace : 0);
    return own > sums ? own : sums;
}

/* Where cuDNN finds or leaves images: the call's own, or a copy with more channels. */
static void *place_images(const struct kernel_call *call, const struct conv *c, int which,
                          int at, void *copy)
{
    const bool is_output = at == OUTPUT;
    void *own = is_output ? call->out[0] : (void *)call->in[at];
    const int64_t rows = which == 'x' ? c->n * c->h * c->w : c->n * c->oh * c->ow;

    if (image_bytes(c, which) == 0)
        return own;
    if (!is_output)
        pad_channels(call->stream, copy, which == 'x' ? c->c : c->o, own,
                     which == 'x' ? c->real_c : c->real_o, rows);
    return copy;
}

/* What came out with more channels goes to where it belongs. */
static void give_images(const struct kernel_call *call, const struct conv *c,
                        const void *const copy[2])
{
    if (c->kind == KIND_FORWARD && image_bytes(c, 'y'))
        pad_channels(call->stream, call->out[0], c->real_o, copy[1], c->o,
                     c->n * c->oh * c->ow);
    else if (c->kind == KIND_INPUT && image_bytes(c, 'x'))
        pad_channels(call->stream, call->out[0], c->real_c, copy[0], c->c, c->n * c->h * c->w);
}

/* The filter as cuDNN wants it, and back. */
static const void *give_filter(const struct kernel_call *call, const struct conv *c, int at)
{
    const struct padded_filter padded = { c->kh * c->kw, c->c, c->o, c->real_c, c->real_o };

    if (is_inward(call->problem))
        return call->in[at];
    if (is_padded(c))
        pad_filter(call->stream, &padded, call->scratch, call->in[at]);
    else
        turn_across(call->stream, call->scratch, c->dtype, call->in[at], c->dtype,
                    padded.taps * c->c, c->o);
    return call->scratch;
}

static void take_filter(const struct kernel_call *call, const struct conv *c)
{
    const struct padded_filter padded = { c->kh * c->kw, c->c, c->o, c->real_c, c->real_o };

    if (is_inward(call->problem))
        cuda_convert(call->stream, call->out[0], DTYPE_F32, call->scratch, c->into,
                     (size_t)(c->o * c->c * c->kh * c->kw));
    else if (is_padded(c))
        unpad_filter(call->stream, &padded, call->out[0], call->scratch, c->into);
    else
        turn_across(call->stream, call->out[0], call->problem->out[0].dtype, call->scratch,
                    c->into, c->o, padded.taps * c->c);
}

static void run(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct parts *part = parts_of(p);
    struct conv conv;

    conv_of(p, &conv);
    const struct plan *plan = find_plan(&conv);
    const size_t filter = filter_bytes(p, &conv);
    char *const x_copy = (char *)call->scratch + filter;
    char *const y_copy = x_copy + image_bytes(&conv, 'x');
    char *const bias = y_copy + image_bytes(&conv, 'y');
    char *const workspace = bias + bias_bytes(&conv);

    if (plan == NULL) {
        stream_note(call->stream, p->op, "cudnn has no plan");
        return;
    }
    const void *const w = conv.kind != KIND_WEIGHT ? give_filter(call, &conv, part->w)
                          : filter > 0             ? call->scratch
                                                   : call->out[0];
    const void *const images[2] = { place_images(call, &conv, 'x', part->x, x_copy),
                                    place_images(call, &conv, 'y', part->y, y_copy) };
    if (conv.with_bias)
        cuda_convert(call->stream, bias, conv.dtype, call->in[2], DTYPE_F32, (size_t)conv.o);
    execute(call, plan, images[0], w, images[1], conv.with_bias ? bias : NULL, workspace);
    give_images(call, &conv, images);
    if (conv.kind == KIND_WEIGHT && filter > 0)
        take_filter(call, &conv);

    int64_t rows, columns;
    bias_extents(&conv, part->bias, &rows, &columns);
    if (conv.kind == KIND_WEIGHT && p->n_out > 1)
        column_sums(call->stream, call->in[1], p->in[1].dtype, rows, columns, call->out[1],
                    call->scratch);
    else if (conv.kind != KIND_WEIGHT && !conv.with_bias &&
             (p->n_in > 2 || p->attrs.activation == ACTIVATION_RELU)) {
        const struct gemm_form form = { .m = rows,
                                        .n = columns,
                                        .c_row = columns,
                                        .with_bias = p->n_in > 2,
                                        .relu = p->attrs.activation == ACTIVATION_RELU,
                                        .into = conv.into };
        const struct gemm_data finished = { .bias = call->in[2], .c = call->out[0] };
        gemm_finish(call->stream, &form, &finished);
    }
}

#define ROW(name_of_op)                                                                        \
    {                                                                                          \
        .op = name_of_op, .name = "cudnn", .can_run = can_run, .scratch_bytes = scratch_bytes, \
        .run = run                                                                             \
    }
const struct kernel cuda_cudnn_rows[] = {
    ROW("conv2d"),
    ROW("conv2d_grad_input"),
    ROW("conv2d_grad_weight"),
    ROW("conv2d_transpose"),
    ROW("conv2d_transpose_grad_input"),
    ROW("conv2d_transpose_grad_weight"),
    { 0 },
};
