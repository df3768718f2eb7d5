/* SPDX-License-Identifier: MIT */
/* tiles.cuh - private to the plug-in: tiles of 64 x 64 numbers of bf16 as Hopper's copy engine brings them, and how blocks that stay share them
 * out and take them in turn. */
#ifndef KERNEL_CUDA_TILES_CUH
#define KERNEL_CUDA_TILES_CUH

#include "kernel/cuda/hopper.cuh"
#include "kernel/cuda/mma.cuh"

enum { ATOM = 1024 }; /* bytes: swizzling repeats by it */

__device__ static char *align_up(char *at)
{
    return at + (ATOM - shared_address(at) % ATOM) % ATOM;
}

/* Where a lane has its 8 numbers of 16 x 16 of its warp's rows, the k-th from the left: rows are swizzled. */
__device__ __forceinline__ bf16 *corner_of(bf16 *tile, int k)
{
    const int lane = (int)threadIdx.x % WARP,
              row = (int)threadIdx.x / WARP % 4 * 16 + lane % 16;

    return tile + row * 64 + ((k * 2 + lane / 16) ^ row % 8) * 8;
}

/* Of blocks that have `kinds` of work in turn, those of one kind share the tiles. */
struct share {
    int kind, first, apart, count;
    __device__ share(int kinds, int tiles)
        : kind((int)blockIdx.x % kinds), first((int)blockIdx.x / kinds),
          apart((int)gridDim.x / kinds), count((tiles - first + apart - 1) / apart)
    {
    }
};

/* Places of shared memory that are filled in turn: the n-th filling is there, or its place is free. */
template <int SLOTS> struct ring {
    uint64_t full[SLOTS], empty[SLOTS];
    __device__ void make(int readers)
    {
        for (int i = 0; i < SLOTS; i++) {
            barrier_make(&full[i], 1);
            barrier_make(&empty[i], readers);
        }
    }
    __device__ void await_full(int n)
    {
        barrier_wait(&full[n % SLOTS], n / SLOTS % 2);
    }
    __device__ void await_empty(int n)
    {
        if (n >= SLOTS)
            barrier_wait(&empty[n % SLOTS], (n / SLOTS - 1) % 2);
    }
};

#endif /* KERNEL_CUDA_TILES_CUH */
