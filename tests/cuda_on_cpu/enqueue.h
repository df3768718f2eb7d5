/* SPDX-License-Identifier: MIT */
/* enqueue.h - what libraries put on streams. */
#ifndef CUDA_ON_CPU_ENQUEUE_H
#define CUDA_ON_CPU_ENQUEUE_H

#include <cuda_runtime_api.h>
#include <functional>

/* Done now or some time later; where the stream is captured, whenever the graph is launched. */
void enqueue(cudaStream_t stream, const std::function<void()> &work);

#endif /* CUDA_ON_CPU_ENQUEUE_H */
