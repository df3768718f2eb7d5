/* SPDX-License-Identifier: MIT */
/* cudnn_conv.c - graphs of convolutions: see cudnn_conv.h. */
#include "kernel/cuda/cudnn_conv.h"

/* A tensor of these extents, the second of which is innermost in memory. */
static enum status make_tensor(struct dnn_pile *pile, int64_t id, enum dtype dtype,
                               const int64_t dim[4], cudnnBackendDescriptor_t *out)
{
    const struct dnn_tensor tensor = {
        .id = id,
        .is_virtual = id == ID_SUM || id == ID_SHIFTED,
        .type = dtype == DTYPE_BF16  ? CUDNN_DATA_BFLOAT16
                : dtype == DTYPE_F16 ? CUDNN_DATA_HALF
                                     : CUDNN_DATA_FLOAT,
        .dim = { dim[0], dim[1], dim[2], dim[3] },
        .stride = { dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1] },
    };

    return dnn_make_tensor(pile, &tensor, out);
}

static enum status make_windows(struct dnn_pile *pile, const struct conv *c,
                                cudnnBackendDescriptor_t *out)
{
    const int64_t dims = 2, apart[2] = { 1, 1 };
    const cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;

    TRY(dnn_make(pile, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dims));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, apart));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, c->stride));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, c->pad));
    TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, c->pad));
    return dnn_finish(*out);
}

/* Names of an operation's parts, by kind. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t x, w, y, windows, alpha, beta;
} operations[] = {
    [KIND_FORWARD] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA },
    [KIND_INPUT] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA },
    [KIND_WEIGHT] = { CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA },
};

/* The convolution; *y is made here, and what comes after it may give it another. */
static enum status make_conv(struct dnn_pile *pile, const struct conv *c,
                             cudnnBackendDescriptor_t *out, cudnnBackendDescriptor_t *y)
{
    const int64_t x_dim[4] = { c->n, c->c, c->h, c->w },
                  y_dim[4] = { c->n, c->o, c->oh, c->ow };
    const int64_t w_dim[4] = { c->o, c->c, c->kh, c->kw };
    const enum dtype x_type = c->kind == KIND_INPUT ? c->into : c->dtype;
    const enum dtype w_type = c->kind == KIND_WEIGHT ? c->into : c->dtype;
    const bool is_last = !c->with_bias;
    const enum dtype y_type = !is_last                  ? DTYPE_F32
                              : c->kind == KIND_FORWARD ? c->into
                                                        : c->dtype;
    const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    const float one = 1, zero = 0;
    cudnnBackendDescriptor_t x, w, windows;

    TRY(make_tensor(pile, ID_X, x_type, x_dim, &x));
    TRY(make_tensor(pile, ID_W, w_type, w_dim, &w));
    TRY(make_tensor(pile, is_last ? ID_Y : ID_SUM, y_type, y_dim, y));
    TRY(make_windows(pile, c, &windows));
    TRY(dnn_make(pile, operations[c->kind].type, out));
    TRY(dnn_set(*out, operations[c->kind].x, part, 1, &x));
    TRY(dnn_set(*out, operations[c->kind].w, part, 1, &w));
    TRY(dnn_set(*out, operations[c->kind].y, part, 1, y));
    TRY(dnn_set(*out, operations[c->kind].windows, part, 1, &windows));
    TRY(dnn_set(*out, operations[c->kind].alpha, CUDNN_TYPE_FLOAT, 1, &one));
    TRY(dnn_set(*out, operations[c->kind].beta, CUDNN_TYPE_FLOAT, 1, &zero));
    return dnn_finish(*out);
}

enum status conv_graph(struct dnn_pile *pile, const struct conv *c,
                       cudnnBackendDescriptor_t *out)
{
    const int64_t y_dim[4] = { c->n, c->o, c->oh, c->ow }, bias_dim[4] = { 1, c->o, 1, 1 };
    cudnnBackendDescriptor_t operations_of[3], sum, bias, shifted, y;
    int count = 1;

    TRY(make_conv(pile, c, &operations_of[0], &sum));
    if (c->with_bias) {
        TRY(make_tensor(pile, ID_BIAS, c->dtype, bias_dim, &bias));
        TRY(make_tensor(pile, c->relu ? ID_SHIFTED : ID_Y, c->relu ? DTYPE_F32 : c->into, y_dim,
                        &shifted));
        TRY(dnn_make_pointwise(pile, CUDNN_POINTWISE_ADD, sum, bias, shifted,
                               &operations_of[count++]));
    }
    if (c->with_bias && c->relu) {
        TRY(make_tensor(pile, ID_Y, c->into, y_dim, &y));
        TRY(dnn_make_pointwise(pile, CUDNN_POINTWISE_RELU_FWD, shifted, NULL, y,
                               &operations_of[count++]));
    }
    return dnn_make_graph(pile, operations_of, count, out);
}
