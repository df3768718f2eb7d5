/* SPDX-License-Identifier: MIT */
/* enqueue.h - what libraries put on streams. */
#ifndef CUDA_ON_CPU_ENQUEUE_H
#define CUDA_ON_CPU_ENQUEUE_H

#include <cuda_runtime_api.h>
#include <functional>

/* Done now, or when the graph is launched that the stream is captured for. */
void enqueue(cudaStream_t stream, const std::function<void()> &work);

#endif /* CUDA_ON_CPU_ENQUEUE_H */
