/* SPDX-License-Identifier: MIT */
/* cell.h - private to the plug-in: what happens to a recurrent layer's rows between matrix products. */
#ifndef KERNEL_CUDA_CELL_H
#define KERNEL_CUDA_CELL_H

#include "kernel/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Extents of a layer, and which step it is at. */
struct cell_at {
    bool is_lstm;
    int64_t rows, steps, units, gates, state_row;
    int64_t t;
};

/* Forward: the state before (h in `before`, c in `last`) and hidden = W h become the state after. */
struct cell_forward {
    const float *gates, *bias, *hidden;
    const int32_t *ids;
    float *y, *last, *acts, *kept, *before;
};
/* last = first, or 0 where that is NULL, and before of step 0. */
void cell_begin(struct device_stream *stream, const struct cell_at *at, const float *first,
                const struct cell_forward *cell);
void cell_step(struct device_stream *stream, const struct cell_at *at,
               const struct cell_forward *cell);

/* Backward: dgates of step t, and dstate without what flows through the hidden part. */
struct cell_backward {
    const float *acts, *kept, *before; /* before: a GRU's */
    const int32_t *ids;
    const float *dy; /* or NULL */
    float *dgates, *dhidden, *dstate;
};
void cell_step_back(struct device_stream *stream, const struct cell_at *at,
                    const struct cell_backward *cell);

/* Attention of a step to sources of `places` places, of keys and memory of so many numbers. */
struct attend_at {
    struct cell_at at;
    int64_t places, keys, memory;
};
struct attend_forward {
    const float *query, *keys, *memory, *score;
    const int32_t *source;
    float *weights, *context;
};
void attend_step(struct device_stream *stream, const struct attend_at *at,
                 const struct attend_forward *attend);

struct attend_backward {
    const float *query, *keys, *memory, *score, *weights, *dcontext;
    float *dkeys, *dmemory, *dquery;
    float *dscore; /* (rows, keys): what rows add to the gradient of the scores' weights */
    float *flow;   /* (rows, places): scratch */
};
void attend_step_back(struct device_stream *stream, const struct attend_at *at,
                      const struct attend_backward *attend);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_CELL_H */
