/* SPDX-License-Identifier: MIT */
/* share.cu - how streams of several processes wait for each other: words in memory that both see.
 *
 * One thread a word. A signal is a release at the scope of the system, after all that came before on its stream; who awaits
 * acquires, and what comes later on its stream begins after that. Who spins looks at a word of the host now and then, so that
 * no kernel outlives the ranks that it waits for. Of several processes on one GPU one runs at a time, for a
 * slice of some milliseconds, unless a server for all of them (MPS) is there: whoever spins gives the GPU away
 * when its slice ends.
 */
#include <cuda/atomic>

#include "kernel/cuda/device.cuh"

typedef cuda::atomic_ref<uint32_t, cuda::thread_scope_system> shared_word;

enum { LOOKS_PER_QUESTION = 256, PAUSE_NS = 200 };

__global__ void signal_words(struct device_words words)
{
    if ((int)threadIdx.x >= words.count)
        return;
    __threadfence_system();
    shared_word(*words.word[threadIdx.x]).store(1, cuda::memory_order_release);
}

__global__ void await_words(struct device_words words, const volatile uint32_t *give_up)
{
    if ((int)threadIdx.x >= words.count)
        return;
    const shared_word word(*words.word[threadIdx.x]);
    for (unsigned looks = 1; word.load(cuda::memory_order_acquire) == 0; looks++) {
        if (looks % LOOKS_PER_QUESTION == 0 && *give_up)
            return;
        __nanosleep(PAUSE_NS);
    }
    word.store(0, cuda::memory_order_relaxed);
    __threadfence_system();
}

__global__ void join_bytes(uint8_t *out, const uint8_t *a, const uint8_t *b, size_t count)
{
    const size_t i = (size_t)thread_number();

    if (i < count)
        out[i] = a[i] | b[i];
}

extern "C" void cuda_signal(struct device_stream *stream, const struct device_words *words)
{
    signal_words<<<1, DEVICE_PEERS, 0, stream->cuda>>>(*words);
    stream_check(stream, "signal");
}

extern "C" void cuda_await(struct device_stream *stream, const struct device_words *words,
                           const uint32_t *give_up)
{
    await_words<<<1, DEVICE_PEERS, 0, stream->cuda>>>(*words, give_up);
    stream_check(stream, "await");
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
