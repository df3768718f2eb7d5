/* SPDX-License-Identifier: MIT */
/* cudnn_table.c - engines of cuDNN 9.14 for convolutions of resnet18 and vgg11 on compute capability 9.0.
 *
 * Measured by bench/kernels/conv_lab with 512 images of random numbers; rows are those where cuDNN's first proposal is slower than the
 * best by more than two percent there, or, of the input's gradient of 256 channels, in a step of resnet18. Which engine runs decides about the order of sums, so nothing is timed when training: a choice follows from
 * the extents, the device and the version of cuDNN, and where one of the last two is another, cuDNN proposes. The kernels add
 * plainly and in a fixed order, which whoever takes a choice checks again.
 */
#include "kernel/cuda/cudnn_conv.h"
#include "kernel/precision.h"

enum { VERSION = 914, LEAST_IMAGES = 256 };

/* How much of y a block has, and blocks that share what they read; as cuDNN numbers them. */
struct row {
    enum conv_kind kind;
    int c, size, o, window, stride; /* size: of x's sides */
    int tile, tile_k, workspace, across, along;
};

static const struct row rows[] = {
    /* resnet18 */
    { KIND_INPUT, 64, 32, 64, 3, 1, 4, 0, 1, 8, 1 },
    { KIND_FORWARD, 64, 32, 128, 3, 2, 0, 1, 1, 1, 1 },
    { KIND_INPUT, 64, 32, 128, 3, 2, 4, 1, 0, 2, 1 },
    { KIND_FORWARD, 128, 16, 128, 3, 1, 0, 1, 1, 1, 1 },
    { KIND_INPUT, 128, 16, 128, 3, 1, 0, 1, 1, 1, 1 },
    { KIND_INPUT, 256, 8, 256, 3, 1, 3, 1, 1, 1, 2 },
    { KIND_INPUT, 256, 8, 512, 3, 2, 0, 1, 0, 2, 1 },
    { KIND_FORWARD, 512, 4, 512, 3, 1, 3, 1, 1, 1, 2 },
    { KIND_INPUT, 512, 4, 512, 3, 1, 3, 1, 1, 1, 2 },
    { KIND_WEIGHT, 512, 4, 512, 3, 1, 0, 1, 0, 2, 4 },
    { KIND_FORWARD, 64, 32, 128, 1, 2, 3, 1, 0, 1, 1 },
    { KIND_WEIGHT, 64, 32, 128, 1, 2, 5, 1, 0, 2, 2 },
    { KIND_FORWARD, 128, 16, 256, 1, 2, 6, 0, 1, 2, 1 },
    { KIND_INPUT, 128, 16, 256, 1, 2, 3, 1, 0, 2, 1 },
    { KIND_WEIGHT, 128, 16, 256, 1, 2, 5, 1, 0, 4, 2 },
    { KIND_INPUT, 256, 8, 512, 1, 2, 4, 1, 0, 1, 2 },
    { KIND_WEIGHT, 256, 8, 512, 1, 2, 5, 1, 0, 4, 1 },
    /* vgg11 */
    { KIND_FORWARD, 64, 16, 128, 3, 1, 0, 1, 1, 1, 1 },
    { KIND_INPUT, 128, 8, 256, 3, 1, 3, 1, 1, 1, 1 },
    { KIND_WEIGHT, 128, 8, 256, 3, 1, 1, 1, 0, 1, 3 },
    { KIND_FORWARD, 512, 2, 512, 3, 1, 7, 1, 0, 1, 1 },
    { KIND_INPUT, 512, 2, 512, 3, 1, 7, 1, 1, 1, 1 },
};

static bool is_row(const struct row *r, const struct conv *c)
{
    return r->kind == c->kind && r->c == c->c && r->o == c->o && r->size == c->h &&
           r->size == c->w && r->window == c->kh && r->window == c->kw &&
           r->stride == c->stride[0] && r->stride == c->stride[1] &&
           r->window / 2 == c->pad[0] && r->window / 2 == c->pad[1];
}

/* As cuDNN counts them: forward, with a bias, its input's gradient, with a stride, and its weights'. */
static int64_t engine_of(const struct conv *c)
{
    if (c->kind == KIND_FORWARD)
        return c->with_bias ? 41 : 62;
    if (c->kind == KIND_INPUT)
        return c->stride[0] > 1 ? 73 : 67;
    return 65;
}

static bool is_known_device(void)
{
    return cuda_capability == CAPABILITY_HOPPER && cudnnGetVersion() / 100 == VERSION;
}

bool conv_choice(const struct conv *c, struct dnn_choice *out)
{
    const int64_t engine = engine_of(c);
    const bool is_indexed = c->kind == KIND_WEIGHT || engine == 73;

    if (!kernel_is_half(c->dtype) || c->into != c->dtype || c->n < LEAST_IMAGES ||
        (c->with_bias && !c->relu) || !is_known_device())
        return false;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *r = &rows[i];
        if (!is_row(r, c))
            continue;
        *out = (struct dnn_choice){ .engine = engine,
                                    .count = 6,
                                    .knob = { { CUDNN_KNOB_TYPE_TILE_SIZE, r->tile },
                                              { CUDNN_KNOB_TYPE_TILEK, r->tile_k },
                                              { CUDNN_KNOB_TYPE_IDX_MODE, is_indexed },
                                              { CUDNN_KNOB_TYPE_TILE_CGA_M, r->across },
                                              { CUDNN_KNOB_TYPE_TILE_CGA_N, r->along },
                                              { CUDNN_KNOB_TYPE_WORKSPACE, r->workspace } } };
        out->count -= engine == 73; /* which has no workspace */
        return true;
    }
    return false;
}
