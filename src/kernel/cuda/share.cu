/* SPDX-License-Identifier: MIT */
/* share.cu - what ranks do with each other's memory that no other kernel does: marks of either. */
#include "kernel/cuda/device.cuh"

__global__ void join_bytes(uint8_t *out, const uint8_t *a, const uint8_t *b, size_t count)
{
    const size_t i = (size_t)thread_number();

    if (i < count)
        out[i] = a[i] | b[i];
}

extern "C" void cuda_join_marks(struct device_stream *stream, uint8_t *out, const uint8_t *a,
                                const uint8_t *b, size_t count)
{
    if (count == 0)
        return;
    join_bytes<<<blocks_of((int64_t)count, THREADS), THREADS, 0, stream->cuda>>>(out, a, b,
                                                                                 count);
    stream_check(stream, "join_marks");
}
