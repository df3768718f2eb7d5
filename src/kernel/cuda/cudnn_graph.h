/* SPDX-License-Identifier: MIT */
/* cudnn_graph.h - private to the plug-in: what users of cuDNN's graph interface share.
 *
 * A graph of operations is made of descriptors, which a pile keeps until its plan is found. Of cuDNN's proposals the first
 * is taken that adds plainly and in a fixed order: no Winograd, no FFT, nothing nondeterministic. Nothing is timed, so the
 * choice is the same for one version and device.
 *
 * Threads: all functions but dnn_run are called under dnn_lock, which guards the one handle of the process.
 */
#ifndef KERNEL_CUDA_CUDNN_GRAPH_H
#define KERNEL_CUDA_CUDNN_GRAPH_H

#include <cudnn.h>

#include "kernel/cuda/cuda.h"

enum { DNN_PROPOSALS = 16, DNN_PILE = 128, DNN_DATA = 16, DNN_KNOBS = 16 };

/* Descriptors of one plan under way, to be destroyed together. */
struct dnn_pile {
    cudnnBackendDescriptor_t item[DNN_PILE];
    int count;
};

struct dnn_tensor {
    int64_t id;
    cudnnDataType_t type;
    int64_t dim[4], stride[4];
    bool is_virtual;  /* never in memory */
    bool is_by_value; /* one number, in the host's memory */
};

struct dnn_plan {
    cudnnBackendDescriptor_t cudnn; /* NULL: there is no way */
    int64_t workspace;
};

void dnn_lock(void);
void dnn_unlock(void);
/* Is there a handle? */
bool dnn_is_there(void);

MUST_CHECK enum status dnn_make(struct dnn_pile *pile, cudnnBackendDescriptorType_t type,
                                cudnnBackendDescriptor_t *out);
MUST_CHECK enum status dnn_set(cudnnBackendDescriptor_t descriptor,
                               cudnnBackendAttributeName_t name,
                               cudnnBackendAttributeType_t type, int64_t count,
                               const void *value);
MUST_CHECK enum status dnn_finish(cudnnBackendDescriptor_t descriptor);
void dnn_drop(struct dnn_pile *pile);
MUST_CHECK enum status dnn_make_tensor(struct dnn_pile *pile, const struct dnn_tensor *tensor,
                                       cudnnBackendDescriptor_t *out);
/* y = mode(x, b), b NULL where the mode has one operand, in f32. */
MUST_CHECK enum status dnn_make_pointwise(struct dnn_pile *pile, cudnnPointwiseMode_t mode,
                                          cudnnBackendDescriptor_t x,
                                          cudnnBackendDescriptor_t b,
                                          cudnnBackendDescriptor_t y,
                                          cudnnBackendDescriptor_t *out);
MUST_CHECK enum status dnn_make_graph(struct dnn_pile *pile, cudnnBackendDescriptor_t *ops,
                                      int count, cudnnBackendDescriptor_t *out);
/* An engine and how it is set; knobs that are not named have the engine's own values. */
struct dnn_choice {
    int64_t engine;
    int count;
    struct {
        int64_t type, value; /* cudnnBackendKnobType_t */
    } knob[DNN_KNOBS];
};
/* Fails where this cuDNN has no such engine for the graph. */
MUST_CHECK enum status dnn_make_config(struct dnn_pile *pile, cudnnBackendDescriptor_t graph,
                                       const struct dnn_choice *choice,
                                       cudnnBackendDescriptor_t *out);
/* Does a proposal's engine add plainly, in an order of its own; and, if asked, by tensor cores? `compiles`: one that is
 * compiled first, which takes half a second, will do, too. */
bool dnn_is_wanted(cudnnBackendDescriptor_t config, bool compiles, bool by_tensor_cores);
/* A plan of a proposal, if it is one that works. */
bool dnn_take(cudnnBackendDescriptor_t config, struct dnn_plan *plan);
/* The first proposal for a graph that will do; out->cudnn is NULL if there is none. */
MUST_CHECK enum status dnn_choose(struct dnn_pile *pile, cudnnBackendDescriptor_t graph,
                                  bool compiles, struct dnn_plan *out);

/* What a plan reads and writes: ids and where their data lie. */
struct dnn_data {
    int64_t id[DNN_DATA];
    const void *at[DNN_DATA];
    int count;
};
/* Enqueues a plan; what goes wrong is noted in the stream. Takes the lock. */
void dnn_run(struct device_stream *stream, const struct dnn_plan *plan,
             const struct dnn_data *data, void *workspace);

#endif /* KERNEL_CUDA_CUDNN_GRAPH_H */
