/* SPDX-License-Identifier: MIT */
/* cuda_pipeline.h - copies that threads wait for. */
#ifndef CUDA_ON_CPU_PIPELINE_H
#define CUDA_ON_CPU_PIPELINE_H

#include <cuda_runtime.h>

/* The last `zeros` of so many bytes are zeros. */
static inline void __pipeline_memcpy_async(void *shared, const void *from, size_t bytes,
                                           size_t zeros = 0)
{
    if ((bytes != 4 && bytes != 8 && bytes != 16) || (uintptr_t)shared % bytes ||
        (uintptr_t)from % bytes)
        machine_fail("a copy of %zu bytes from %p to %p", bytes, from, shared);
    machine_put(KIND_COPIES, [shared, from, bytes, zeros] {
        memcpy(shared, from, bytes - zeros);
        memset((char *)shared + (bytes - zeros), 0, zeros);
    });
}
static inline void __pipeline_commit()
{
    machine_end(KIND_COPIES);
}
static inline void __pipeline_wait_prior(int left)
{
    machine_await(KIND_COPIES, left);
}

#endif /* CUDA_ON_CPU_PIPELINE_H */
