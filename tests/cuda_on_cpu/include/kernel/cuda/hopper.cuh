/* SPDX-License-Identifier: MIT */
/* hopper.cuh - what src/kernel/cuda/hopper.cuh promises, without Hopper: barriers that count, the copy engine, products of four warps. */
#ifndef KERNEL_CUDA_HOPPER_CUH
#define KERNEL_CUDA_HOPPER_CUH

#include <cuda.h>

#include "kernel/cuda/device.cuh"
#include "kernel/cuda/mma.cuh"
#include "map.h"

static inline uint32_t shared_address(const void *shared)
{
    return machine_address(shared);
}

/* Barriers ---------------------------------------------------------------------------------- */

static inline void barrier_make(uint64_t *barrier, int arrivals)
{
    (void)machine_address(barrier);
    machine_barrier_make(barrier, arrivals);
}
static inline void barriers_made()
{
}
static inline void barrier_arrive(uint64_t *barrier)
{
    machine_barrier_arrive(barrier, 1, 0);
}
static inline void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    machine_barrier_arrive(barrier, 1, (int)bytes);
}
static inline void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    machine_barrier_wait(barrier, parity);
}
static inline void stores_to_engines()
{
}

/* Here a load has its value when it is done. */
static inline void reads_before_engines()
{
}
static inline void meet(int id, int threads)
{
    machine_meet(id, threads, true);
}
static inline void meet_passing(int id, int threads)
{
    machine_meet(id, threads, false);
}
template <int N> static inline void registers_give()
{
}
template <int N> static inline void registers_take()
{
}

/* Boxes ------------------------------------------------------------------------------------- */

/* Of 128 bytes, the sixteens of a row change places by its number. */
static inline uint32_t swizzled(uint32_t address)
{
    return address ^ (address >> 7 & 7) << 4;
}

/* Every element of a box that is inside of the tensor, and those of the others that are not: act(in memory or NULL, in shared memory). */
template <class Act>
static void walk_box(const struct tensor_map &m, uint32_t shared, const int at[4], Act act)
{
    int64_t rows = 1;

    for (int d = 1; d < m.rank; d++)
        rows *= m.box[d];
    if (shared % 128)
        machine_fail("a box begins at no multiple of 128 bytes");
    for (int64_t row = 0; row < rows; row++) {
        char *from = (char *)m.tensor;
        bool inside = true;
        int64_t left = row;
        for (int d = 1; d < m.rank; d++) {
            const int64_t i = at[d] + left % m.box[d];
            left /= m.box[d];
            inside = inside && i >= 0 && i < (int64_t)m.extent[d];
            from += i * (int64_t)m.apart[d];
        }
        for (int c = 0; c < m.box[0]; c++) {
            const int64_t i = at[0] + c;
            const bool there = inside && i >= 0 && i < (int64_t)m.extent[0];
            char *to = machine_at(swizzled(shared + (uint32_t)(row * m.box[0] + c) * 2));
            act(there ? (uint16_t *)from + i : NULL, (uint16_t *)to);
        }
    }
}

static inline void load_box(void *shared, const CUtensorMap *map, uint64_t *barrier,
                            const int (&at)[4])
{
    const struct tensor_map m = tensor_map_of(map);
    const uint32_t address = machine_address(shared);
    const int a = at[0], b = at[1], c = at[2], d = at[3];

    machine_engine([=] {
        const int place[4] = { a, b, c, d };
        int bytes = 0;
        walk_box(m, address, place, [&bytes](const uint16_t *from, uint16_t *to) {
            *to = from ? *from : 0;
            bytes += 2;
        });
        machine_barrier_arrive(barrier, 0, -bytes);
    });
}
static inline void box_load(void *shared, const CUtensorMap *map, uint64_t *barrier, int c0,
                            int c1)
{
    load_box(shared, map, barrier, { c0, c1, 0, 0 });
}
static inline void box_load(void *shared, const CUtensorMap *map, uint64_t *barrier, int c0,
                            int c1, int c2, int c3)
{
    load_box(shared, map, barrier, { c0, c1, c2, c3 });
}
static inline void bytes_load(void *shared, const void *from, uint32_t bytes, uint64_t *barrier)
{
    const uint32_t address = machine_address(shared);

    if (address % 16 || (uintptr_t)from % 16 || bytes % 16)
        machine_fail("bytes that are no multiple of 16");
    machine_engine([=] {
        memcpy(machine_at(address), from, bytes);
        machine_barrier_arrive(barrier, 0, -(int)bytes);
    });
}
static inline void box_store(const CUtensorMap *map, const void *shared, int c0, int c1, int c2,
                             int c3)
{
    const struct tensor_map m = tensor_map_of(map);
    const uint32_t address = machine_address(shared);

    machine_put(KIND_STORES, [=] {
        const int place[4] = { c0, c1, c2, c3 };
        walk_box(m, address, place, [](uint16_t *to, const uint16_t *from) {
            if (to)
                *to = *from;
        });
    });
}
static inline void box_store(const CUtensorMap *map, const void *shared, int c0, int c1)
{
    box_store(map, shared, c0, c1, 0, 0);
}
static inline void boxes_end()
{
    machine_end(KIND_STORES);
}
template <int left> static inline void boxes_read()
{
    machine_await(KIND_STORES, left);
}
static inline void boxes_stored()
{
    machine_await(KIND_STORES, 0);
}

/* Products ---------------------------------------------------------------------------------- */

static const uint64_t ROWS_OF_128 = (uint64_t)1 << 62;

static inline uint64_t matrix_at(const void *shared, uint32_t leads, uint32_t groups)
{
    return (uint64_t)((machine_address(shared) & 0x3ffff) >> 4) | (uint64_t)(leads >> 4) << 16 |
           (uint64_t)(groups >> 4) << 32 | ROWS_OF_128;
}

static inline void products_begin()
{
}
static inline void products_end()
{
    machine_end(KIND_PRODUCTS);
}
template <int left> static inline void products_wait()
{
    machine_await(KIND_PRODUCTS, left);
}
template <int N> static inline void products_made(float (&)[N])
{
}

/* Eight numbers that lie side by side in a matrix in shared memory: from (i, k) on along k, or ACROSS along i. */
template <int ACROSS> static const uint16_t *eight_at(uint64_t matrix, uint32_t i, uint32_t k)
{
    const uint32_t begin = (uint32_t)(matrix & 0x3fff) << 4;
    const uint32_t leads = (uint32_t)(matrix >> 16 & 0x3fff) << 4;
    const uint32_t groups = (uint32_t)(matrix >> 32 & 0x3fff) << 4;
    const uint32_t at = ACROSS ? i / 64 * leads + k / 8 * groups + k % 8 * 128 + i % 64 * 2
                               : i / 8 * groups + i % 8 * 128 + k * 2;

    return (const uint16_t *)machine_at(swizzled(begin + at));
}

static inline float number_of_bits(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

/* A thread's two rows of a, 16 numbers each. */
struct two_rows {
    float x[2][16];
};

/* Products of bf16 are exact in f32, so it does not matter that they are rounded before they are added. A thread has two of every
 * eight columns. */
template <int N, int B_ACROSS>
static void add_product(float *d, const struct two_rows &a, uint64_t b, int add)
{
    const uint32_t t = threadIdx.x % 4 * 2;
    float numbers[16][N / 4], sums[2][N / 4] = {};

    for (uint32_t j = 0; j < N / 8; j++) {
        for (uint32_t k = 0; B_ACROSS && k < 16; k++) {
            const uint16_t *eight = eight_at<1>(b, j * 8, k);
            numbers[k][2 * j] = number_of_bits(eight[t]);
            numbers[k][2 * j + 1] = number_of_bits(eight[t + 1]);
        }
        for (uint32_t k = 0; !B_ACROSS && k < 16; k += 8) {
            for (uint32_t e = 0; e < 2; e++) {
                const uint16_t *eight = eight_at<0>(b, j * 8 + t + e, k);
                for (uint32_t i = 0; i < 8; i++)
                    numbers[k + i][2 * j + e] = number_of_bits(eight[i]);
            }
        }
    }
    for (int half = 0; half < 2; half++) {
        for (int k = 0; k < 16; k++) {
            for (int c = 0; c < N / 4; c++)
                sums[half][c] += a.x[half][k] * numbers[k][c];
        }
        for (int c = 0; c < N / 4; c++) {
            float *to = &d[c / 2 * 4 + half * 2 + c % 2];
            *to = add ? *to + sums[half][c] : sums[half][c];
        }
    }
}

/* Row i of a, in shared memory. */
template <int A_ACROSS> static void take_row(uint64_t a, uint32_t i, float (&to)[16])
{
    for (uint32_t k = 0; A_ACROSS && k < 16; k++)
        to[k] = number_of_bits(eight_at<1>(a, i / 8 * 8, k)[i % 8]);
    for (uint32_t k = 0; !A_ACROSS && k < 16; k += 8) {
        const uint16_t *eight = eight_at<0>(a, i, k);
        for (uint32_t j = 0; j < 8; j++)
            to[k + j] = number_of_bits(eight[j]);
    }
}

/* Words of a warp's 16 x 16 become each thread's rows. */
struct words_of_a {
    uint32_t word[4];
    struct two_rows rows;
};

static inline void spread_words(void *const all[], unsigned lanes)
{
    if (lanes != ~0U)
        machine_fail("not all lanes take part in a product");
    for (int lane = 0; lane < WARP_LANES; lane++) {
        struct words_of_a *own = (struct words_of_a *)all[lane];
        for (int t = 0; t < 4; t++) {
            const struct words_of_a *from = (const struct words_of_a *)all[lane / 4 * 4 + t];
            for (int m = 0; m < 4; m++) {
                for (int k = 0; k < 2; k++)
                    own->rows.x[m % 2][t * 2 + k + m / 2 * 8] = half_of(from->word[m], k);
            }
        }
    }
}

template <int N> struct wide {
    template <int A_ACROSS, int B_ACROSS>
    static void multiply(float (&d)[N / 2], uint64_t a, uint64_t b, int add)
    {
        float *sums = d;

        __syncwarp();
        machine_put(KIND_PRODUCTS, [=] {
            const uint32_t row = threadIdx.x / WARP % 4 * 16 + threadIdx.x % WARP / 4;
            struct two_rows rows;
            take_row<A_ACROSS>(a, row, rows.x[0]);
            take_row<A_ACROSS>(a, row + 8, rows.x[1]);
            add_product<N, B_ACROSS>(sums, rows, b, add);
        });
    }
    template <int B_ACROSS>
    static void multiply(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int add)
    {
        struct words_of_a mine = { { a[0], a[1], a[2], a[3] }, {} };
        float *sums = d;

        machine_together(~0U, &mine, spread_words);
        const struct two_rows rows = mine.rows;
        machine_put(KIND_PRODUCTS, [=] { add_product<N, B_ACROSS>(sums, rows, b, add); });
    }
};

#endif /* KERNEL_CUDA_HOPPER_CUH */
