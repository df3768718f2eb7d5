/* SPDX-License-Identifier: MIT */
/* hopper.cuh - private to the plug-in: what compute capability 9.0 has beyond mma.cuh: barriers in shared memory that
 * count bytes, copies of boxes by the copy engine (TMA), products of four warps at once (wgmma). Sources that include it
 * are compiled for sm_90a alone; rows of their kernels ask for CAPABILITY_HOPPER.
 *
 * A thread's part of 64 x N sums d of a warpgroup: with w = warp % 4, g = lane / 4, t = lane % 4, d[4 j + 0], d[4 j + 1] are of
 * row 16 w + g, columns 8 j + 2 t and the next; d[4 j + 2], d[4 j + 3] the same columns of row 16 w + g + 8.
 */
#ifndef KERNEL_CUDA_HOPPER_CUH
#define KERNEL_CUDA_HOPPER_CUH

#include <cuda.h>

#include "kernel/cuda/device.cuh"

__device__ __forceinline__ uint32_t shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* Barriers ---------------------------------------------------------------------------------- */

__device__ __forceinline__ void barrier_make(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals));
}

/* Barriers that were made are seen by the copy engine and by other blocks of the cluster. */
__device__ __forceinline__ void barriers_made()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

/* Arrives, and so many bytes are to come. */
__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

/* Until the phase of this parity is over. */
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\n"
                 "again:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@p bra done;\nbra again;\ndone:\n}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* What this thread stored in shared memory is seen by the copy engine and by wgmma, after a barrier. */
__device__ __forceinline__ void stores_to_engines()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* What this thread has read of shared memory is in its registers before the copy engine, asked after
 * a barrier, writes there. A barrier alone does not order the two: loads may still be under way. */
__device__ __forceinline__ void reads_before_engines()
{
    stores_to_engines();
}

/* Of `threads` threads that name the same `id`, 1 to 15; who is only passing does not wait for the others. */
__device__ __forceinline__ void meet(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void meet_passing(int id, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* Boxes ------------------------------------------------------------------------------------- */

/* The box of a map that begins at these coordinates, innermost first; outside of the tensor there are zeros. */
__device__ __forceinline__ void box_load(void *shared, const CUtensorMap *map,
                                         uint64_t *barrier, int c0, int c1)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(shared)),
                 "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1)
                 : "memory");
}

__device__ __forceinline__ void box_load(void *shared, const CUtensorMap *map,
                                         uint64_t *barrier, int c0, int c1, int c2, int c3)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(shared)),
                 "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}

/* So many bytes that lie side by side; addresses and bytes are multiples of 16. */
__device__ __forceinline__ void bytes_load(void *shared, const void *from, uint32_t bytes,
                                           uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* What lies outside of the tensor is left out. Then boxes_end, boxes_read. */
__device__ __forceinline__ void box_store(const CUtensorMap *map, const void *shared, int c0,
                                          int c1)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], "
                 "[%1];" ::"l"(map),
                 "r"(shared_address(shared)), "r"(c0), "r"(c1)
                 : "memory");
}

__device__ __forceinline__ void box_store(const CUtensorMap *map, const void *shared, int c0,
                                          int c1, int c2, int c3)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, "
                 "%5}], [%1];" ::"l"(map),
                 "r"(shared_address(shared)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
                 : "memory");
}

__device__ __forceinline__ void boxes_end()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Until all but the last `left` groups of stores of this thread have read their shared memory. */
template <int left> __device__ __forceinline__ void boxes_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(left) : "memory");
}

/* Until all stores of this thread are in memory. */
__device__ __forceinline__ void boxes_stored()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Products ---------------------------------------------------------------------------------- */

static const uint64_t ROWS_OF_128 = (uint64_t)1 << 62; /* as boxes are swizzled */

/* A matrix in shared memory. Along k (numbers of a row lie side by side) with rows of 128 bytes, as boxes of 64 numbers have
 * them when they are swizzled: `groups` is 1024, from eight rows to the next eight; `leads` is not used, and 16 more numbers along
 * k are 32 bytes further. Across (numbers of one k lie side by side), the same boxes: `leads` from 64 numbers to the next 64, `groups` is 1024, from eight k to the
 * next eight, and 16 more k are 2048 bytes further. */
__device__ __forceinline__ uint64_t matrix_at(const void *shared, uint32_t leads,
                                              uint32_t groups)
{
    return (uint64_t)((shared_address(shared) & 0x3ffff) >> 4) | (uint64_t)(leads >> 4) << 16 |
           (uint64_t)(groups >> 4) << 32 | ROWS_OF_128;
}

__device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void products_end()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Until all but the last `left` groups of products are done. */
template <int left> __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

/* Sums that products have made: what reads them stays behind the wait before this, what writes them before what begins
 * the next. */
template <int N> __device__ __forceinline__ void products_made(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

template <int registers> __device__ __forceinline__ void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

template <int registers> __device__ __forceinline__ void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

#define EIGHT(d, i)                                                                            \
    "+f"((d)[i]), "+f"((d)[(i) + 1]), "+f"((d)[(i) + 2]), "+f"((d)[(i) + 3]),                  \
        "+f"((d)[(i) + 4]), "+f"((d)[(i) + 5]), "+f"((d)[(i) + 6]), "+f"((d)[(i) + 7])
#define NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NAMES_1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define NAMES_3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define NAMES_5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define NAMES_6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define NAMES_7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define NAMES_9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define NAMES_10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define NAMES_11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define NAMES_12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define NAMES_13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define NAMES_14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define NAMES_15 "%120, %121, %122, %123, %124, %125, %126, %127"

/* wide<N>::multiply: d = a b, or d += a b if `add`; a is 64 x 16, from shared memory or, as mma.cuh has it, from registers, b is
 * 16 x N, from shared memory. ACROSS: rows of the matrix in shared memory go along m or n and not along k. */
template <int N> struct wide;

template <> struct wide<64> {
    template <int A_ACROSS, int B_ACROSS>
    static __device__ __forceinline__ void multiply(float (&d)[32], uint64_t a, uint64_t b,
                                                    int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES_0
                     ", " NAMES_1 ", " NAMES_2 ", " NAMES_3 "}, "
                     "%32, %33, p, 1, 1, %35, %36;\n}\n"
                     : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24)
                     : "l"(a), "l"(b), "r"(add), "n"(A_ACROSS), "n"(B_ACROSS));
    }
    template <int B_ACROSS>
    static __device__ __forceinline__ void multiply(float (&d)[32], const uint32_t (&a)[4],
                                                    uint64_t b, int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NAMES_0
                     ", " NAMES_1 ", " NAMES_2 ", " NAMES_3 "}, "
                     "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}\n"
                     : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24)
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add),
                       "n"(B_ACROSS));
    }
};

template <> struct wide<128> {
    template <int A_ACROSS, int B_ACROSS>
    static __device__ __forceinline__ void multiply(float (&d)[64], uint64_t a, uint64_t b,
                                                    int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_0
                     ", " NAMES_1 ", " NAMES_2 ", " NAMES_3 ", " NAMES_4 ", " NAMES_5
                     ", " NAMES_6 ", " NAMES_7 "}, "
                     "%64, %65, p, 1, 1, %67, %68;\n}\n"
                     : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24), EIGHT(d, 32),
                       EIGHT(d, 40), EIGHT(d, 48), EIGHT(d, 56)
                     : "l"(a), "l"(b), "r"(add), "n"(A_ACROSS), "n"(B_ACROSS));
    }
    template <int B_ACROSS>
    static __device__ __forceinline__ void multiply(float (&d)[64], const uint32_t (&a)[4],
                                                    uint64_t b, int add)
    {
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_0 ", " NAMES_1
            ", " NAMES_2 ", " NAMES_3 ", " NAMES_4 ", " NAMES_5 ", " NAMES_6 ", " NAMES_7 "}, "
            "{%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}\n"
            : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24), EIGHT(d, 32), EIGHT(d, 40),
              EIGHT(d, 48), EIGHT(d, 56)
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(B_ACROSS));
    }
};

template <> struct wide<192> {
    template <int A_ACROSS, int B_ACROSS>
    static __device__ __forceinline__ void multiply(float (&d)[96], uint64_t a, uint64_t b,
                                                    int add)
    {
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.b32 p, %98, 0;\n"
            "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" NAMES_0 ", " NAMES_1
            ", " NAMES_2 ", " NAMES_3 ", " NAMES_4 ", " NAMES_5 ", " NAMES_6 ", " NAMES_7
            ", " NAMES_8 ", " NAMES_9 ", " NAMES_10 ", " NAMES_11 "}, "
            "%96, %97, p, 1, 1, %99, %100;\n}\n"
            : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24), EIGHT(d, 32), EIGHT(d, 40),
              EIGHT(d, 48), EIGHT(d, 56), EIGHT(d, 64), EIGHT(d, 72), EIGHT(d, 80), EIGHT(d, 88)
            : "l"(a), "l"(b), "r"(add), "n"(A_ACROSS), "n"(B_ACROSS));
    }
};

template <> struct wide<256> {
    template <int A_ACROSS, int B_ACROSS>
    static __device__ __forceinline__ void multiply(float (&d)[128], uint64_t a, uint64_t b,
                                                    int add)
    {
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NAMES_0
                     ", " NAMES_1 ", " NAMES_2 ", " NAMES_3 ", " NAMES_4 ", " NAMES_5
                     ", " NAMES_6 ", " NAMES_7 ", " NAMES_8 ", " NAMES_9 ", " NAMES_10
                     ", " NAMES_11 ", " NAMES_12 ", " NAMES_13 ", " NAMES_14 ", " NAMES_15 "}, "
                     "%128, %129, p, 1, 1, %131, %132;\n}\n"
                     : EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24), EIGHT(d, 32),
                       EIGHT(d, 40), EIGHT(d, 48), EIGHT(d, 56), EIGHT(d, 64), EIGHT(d, 72),
                       EIGHT(d, 80), EIGHT(d, 88), EIGHT(d, 96), EIGHT(d, 104), EIGHT(d, 112),
                       EIGHT(d, 120)
                     : "l"(a), "l"(b), "r"(add), "n"(A_ACROSS), "n"(B_ACROSS));
    }
};

#endif /* KERNEL_CUDA_HOPPER_CUH */
