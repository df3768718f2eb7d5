/* SPDX-License-Identifier: MIT */
/* conv_hopper.cuh - private to the plug-in: what convolutions on Hopper share (conv_hopper.cu, stem_hopper.cu): tiles of images, and products of
 * channels by pixels that are rounded, summed and stored. */
#ifndef KERNEL_CUDA_CONV_HOPPER_CUH
#define KERNEL_CUDA_CONV_HOPPER_CUH

#include "kernel/cuda/batch_norm.h"
#include "kernel/cuda/boxes.h"
#include "kernel/cuda/hopper.cuh"

enum { TAPS = 9, WINDOW = 3, WIDTH = TILE_WIDTH + 2, PLANE = TILE_CHANNELS };
enum { PIXEL = PLANE * 2, ATOM = 8 * PIXEL }; /* bytes; swizzling repeats by ATOM */
enum { GROUP = 4 * WARP, BLOCKS = 132, K = 16 };

/* Images of P planes. */
template <int P> struct form {
    enum {
        CHANNELS = P * PLANE,
        SIDE = 32 / P,
        TILES = SIDE / TILE_WIDTH,
        HEIGHT = SIDE + 2,
        PIXELS = TILE_WIDTH * SIDE,
        PLANE_BYTES = WIDTH * HEIGHT * PIXEL,
        PLANE_ROOM = (PLANE_BYTES + ATOM - 1) / ATOM * ATOM,
        OUT_BYTES = PIXELS * PIXEL
    };
};

/* Where a tile is. */
struct tile {
    int number, image, column;
};

template <int P> __device__ static struct tile tile_at(int number)
{
    enum { TILES = form<P>::TILES };
    const struct tile tile = { number, number / TILES, number % TILES * TILE_WIDTH };

    return tile;
}

__device__ static char *align_up(char *at)
{
    return at + (ATOM - shared_address(at) % ATOM) % ATOM;
}

struct maps {
    CUtensorMap x, w, y;
};

/* A sum over pixels of what is stored, and of its squares. */
struct moment {
    float sum, squares;
    __device__ void add(float x)
    {
        sum += x;
        squares = fmaf(x, x, squares);
    }
};

/* Rounds a warp's 16 channels of all pixels and puts them pixel by pixel where a box of 64 channels is stored from; of[0] and
 * of[1] are of the thread's channels, row by row, as batch_norm.h has it. */
template <int PIXELS, bool SUMS>
__device__ static void round_across(const float (&sums)[PIXELS / 2], char *to,
                                    struct moment of[2])
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % 4;
    const int chunk = warp * 2 + lane / 8 % 2, pixel = lane % 8;
    const uint32_t at =
        shared_address(to) + lane / 16 * ATOM + pixel * PIXEL + (chunk ^ pixel) * 16;

#pragma unroll
    for (int row = 0; row < PIXELS / TILE_WIDTH; row += 2) {
        uint32_t pairs[4];
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const float *two = &sums[(row + m / 2) * 4 + m % 2 * 2];
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs[m]) : "f"(two[1]), "f"(two[0]));
            if (SUMS) {
                of[m % 2].add(__uint_as_float(pairs[m] << 16));
                of[m % 2].add(__uint_as_float(pairs[m] & 0xffff0000U));
            }
        }
        asm volatile(
            "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                at + row * ATOM),
            "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
            : "memory");
    }
}

/* A tile's sums of 64 channels go to `to`, those of squares to `squares`. */
__device__ static void give_moments(struct moment of[2], float *to, float *squares)
{
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP % 4;

#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int apart = 1; apart < 4; apart *= 2) {
            of[m].sum += __shfl_xor_sync(~0U, of[m].sum, apart);
            of[m].squares += __shfl_xor_sync(~0U, of[m].squares, apart);
        }
        if (lane % 4 == 0) {
            to[warp * 16 + m * 8 + lane / 4] = of[m].sum;
            squares[warp * 16 + m * 8 + lane / 4] = of[m].squares;
        }
    }
}

template <int P>
static void map_images(struct device_stream *stream, CUtensorMap *map, const void *images,
                       int64_t n, int width, int height)
{
    const int64_t extents[] = { form<P>::CHANNELS, form<P>::SIDE, form<P>::SIDE, n };
    const int box[] = { PLANE, width, height, 1 };

    box_map_of(stream, map, images, 4, extents, box);
}

#endif /* KERNEL_CUDA_CONV_HOPPER_CUH */
