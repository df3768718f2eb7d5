/* SPDX-License-Identifier: MIT */
/* cuda_runtime.h - the toolkit's, and what nvcc knows by itself: kernels, threads, warps and their words. */
#ifndef CUDA_ON_CPU_RUNTIME_H
#define CUDA_ON_CPU_RUNTIME_H

#include <math.h>
#include <string.h>

#include_next <cuda_runtime.h>

#include <type_traits>

#include "machine.h"

#undef NULL
#define NULL nullptr /* it keeps its type on the way to a kernel */
#undef __global__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __shared__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/* Launches: translate.py makes these of <<<...>>>. Arguments are as they are now, also where a graph runs the kernel later. */
void machine_enqueue(cudaStream_t stream, const struct machine_launch &launch);
bool machine_may_launch(const void *kernel, dim3 grid, dim3 block, size_t shared);

/* `kernel`: by which shared memory was allowed, where there is any. */
template <class F, class... A>
void machine_launch_kernel(const char *name, const void *kernel, F body, dim3 grid, dim3 block,
                           size_t shared, cudaStream_t stream, A... arguments)
{
    if (!machine_may_launch(kernel, grid, block, shared))
        return;
    machine_enqueue(stream, { name,
                              { grid.x, grid.y, grid.z },
                              { block.x, block.y, block.z },
                              shared,
                              [body, arguments...] { body(arguments...); } });
}

/* Together ----------------------------------------------------------------------------------- */

static inline void __syncthreads()
{
    machine_meet(0, 0, true);
}
static inline void __syncwarp(unsigned mask = ~0U)
{
    machine_together(mask, NULL, NULL);
}
static inline void __threadfence()
{
}

template <class T> struct machine_shuffle {
    T x;
    int from;
};
template <class T> static T machine_shuffled(unsigned mask, T x, int from)
{
    struct machine_shuffle<T> mine = {
        x, from
    };

    machine_together(mask, &mine, [](void *const all[], unsigned lanes) {
        T seen[WARP_LANES] = {};
        for (int i = 0; i < WARP_LANES; i++) {
            if (lanes >> i & 1)
                seen[i] = ((struct machine_shuffle<T> *)all[i])->x;
        }
        for (int i = 0; i < WARP_LANES; i++) {
            if (!(lanes >> i & 1))
                continue;
            struct machine_shuffle<T> *own = (struct machine_shuffle<T> *)all[i];
            if (!(lanes >> own->from & 1))
                machine_fail("a lane asks one that is not there");
            own->x = seen[own->from];
        }
    });
    return mine.x;
}
static inline int machine_lane()
{
    return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) %
                 WARP_LANES);
}
template <class T> static T __shfl_sync(unsigned mask, T x, int from)
{
    return machine_shuffled(mask, x, from & (WARP_LANES - 1));
}
template <class T> static T __shfl_xor_sync(unsigned mask, T x, int apart)
{
    return machine_shuffled(mask, x, machine_lane() ^ apart);
}
template <class T> static T __shfl_up_sync(unsigned mask, T x, unsigned apart)
{
    const int lane = machine_lane();

    return machine_shuffled(mask, x, lane < (int)apart ? lane : lane - (int)apart);
}

struct machine_vote {
    unsigned x, answer;
};
static inline unsigned __ballot_sync(unsigned mask, int is)
{
    struct machine_vote mine = { is != 0, 0 };

    machine_together(mask, &mine, [](void *const all[], unsigned lanes) {
        unsigned votes = 0;
        for (int i = 0; i < WARP_LANES; i++)
            votes |= (lanes >> i & 1 ? ((struct machine_vote *)all[i])->x : 0) << i;
        for (int i = 0; i < WARP_LANES; i++) {
            if (lanes >> i & 1)
                ((struct machine_vote *)all[i])->answer = votes;
        }
    });
    return mine.answer;
}
static inline unsigned __match_any_sync(unsigned mask, unsigned x)
{
    struct machine_vote mine = { x, 0 };

    machine_together(mask, &mine, [](void *const all[], unsigned lanes) {
        for (int i = 0; i < WARP_LANES; i++) {
            for (int j = 0; j < WARP_LANES; j++) {
                if ((lanes >> i & 1) && (lanes >> j & 1) &&
                    ((struct machine_vote *)all[i])->x == ((struct machine_vote *)all[j])->x)
                    ((struct machine_vote *)all[i])->answer |= 1U << j;
            }
        }
    });
    return mine.answer;
}

/* Blocks run one after the other, threads until they wait. */
template <class T> static T atomicAdd(T *to, T x)
{
    const T before = *to;

    *to = before + x;
    return before;
}
template <class T> static T atomicOr(T *to, T x)
{
    const T before = *to;

    *to = before | x;
    return before;
}

/* Alone -------------------------------------------------------------------------------------- */

template <class T> static inline T __ldg(const T *from)
{
    return *from;
}
template <class T> static inline T __ldcg(const T *from)
{
    return *from;
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned out = 0;

    for (int i = 0; i < 4; i++)
        out |= (unsigned)(both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return out;
}
static inline unsigned __vcmpeq4(unsigned a, unsigned b)
{
    unsigned out = 0;

    for (int i = 0; i < 32; i += 8)
        out |= (a >> i & 0xff) == (b >> i & 0xff) ? 0xffU << i : 0;
    return out;
}
static inline unsigned __float_as_uint(float x)
{
    unsigned bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float __uint_as_float(unsigned bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}
/* glibc has other things of these names. */
#define __expf(x) expf(x)
#define __log2f(x) log2f(x)
static inline float __fdividef(float a, float b)
{
    return a / b;
}

#endif /* CUDA_ON_CPU_RUNTIME_H */
