/* SPDX-License-Identifier: MIT */
/* cudnn_conv.h - private to the plug-in: a convolution, or one of its gradients, as a graph of cuDNN's. */
#ifndef KERNEL_CUDA_CUDNN_CONV_H
#define KERNEL_CUDA_CUDNN_CONV_H

#include "kernel/cuda/cudnn_graph.h"

enum conv_kind { KIND_FORWARD, KIND_INPUT, KIND_WEIGHT };
enum { ID_X = 'x', ID_W = 'w', ID_Y = 'y', ID_BIAS = 'b', ID_SUM = 's', ID_SHIFTED = 't' };

/* The convolution that makes y of x, whichever of the three is wanted. */
struct conv {
    enum conv_kind kind;
    int64_t n, c, h, w, o, kh, kw, oh, ow;
    int64_t stride[2], pad[2];
    enum dtype dtype, into; /* of the operands; of the result */
    int64_t real_c, real_o; /* c and o without what fills them up */
    bool with_bias, relu;   /* after it, in the same graph */
};

/* The convolution's graph, with bias and relu as far as it has them. Images have channels innermost, filters lie (O,kh,kw,C). */
MUST_CHECK enum status conv_graph(struct dnn_pile *pile, const struct conv *conv,
                                  cudnnBackendDescriptor_t *out);

/* The engine that was the quickest for a convolution of the models on this kind of device and with this cuDNN; false: nobody has
 * looked (cudnn_table.c). */
bool conv_choice(const struct conv *conv, struct dnn_choice *out);

#endif /* KERNEL_CUDA_CUDNN_CONV_H */
