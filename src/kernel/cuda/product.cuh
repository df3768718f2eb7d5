/* SPDX-License-Identifier: MIT */
/* product.cuh - private to the plug-in: a matrix product whose matrices need not lie anywhere.
 *
 * c (m,n) = sum over k of a(m,k) b(k,n). A block makes a tile of BM x BN numbers, a thread TM x TN of them,
 * from tiles of 16 of k that go through shared memory; the next ones are on their way to registers meanwhile.
 * What a and b are says a problem P, a struct given by value:
 *
 *   void begin(int z)                       which of the products that a launch has
 *   int64_t k_begin(), k_end()              its part of the sum
 *   int64_t m, n
 *   m_state a_m(m), k_state a_k(k), float a(m_state, k_state)     likewise n_state b_n(n), b_k, b
 *   A_ALONG_K, B_ALONG_K                    do neighbours in memory differ in k?
 *   void store(m, n, sum)
 *
 * States hold what is worked out once for a row, a column or a step. An index past the end must give a state
 * whose numbers are 0.
 */
#ifndef KERNEL_CUDA_PRODUCT_CUH
#define KERNEL_CUDA_PRODUCT_CUH

#include "kernel/cuda/device.cuh"

enum { PRODUCT_K = 16, PRODUCT_THREADS = 256 };

template <class P, int BM, int BN, int TM, int TN>
__global__ void __launch_bounds__(PRODUCT_THREADS) product(P p)
{
    enum {
        A_EACH = BM * PRODUCT_K / PRODUCT_THREADS, /* elements that a thread fetches */
        B_EACH = BN * PRODUCT_K / PRODUCT_THREADS,
        A_LINES = P::A_ALONG_K ? PRODUCT_THREADS / PRODUCT_K : PRODUCT_THREADS / BM,
        B_LINES = P::B_ALONG_K ? PRODUCT_THREADS / PRODUCT_K : PRODUCT_THREADS / BN,
        PAD = 4
    };
    __shared__ float as[PRODUCT_K][BM + PAD], bs[PRODUCT_K][BN + PAD];
    const int t = threadIdx.x, tx = t % (BN / TN), ty = t / (BN / TN);
    const int64_t m0 = (int64_t)blockIdx.x * BM, n0 = (int64_t)blockIdx.y * BN;
    float sums[TM][TN] = { { 0 } }, a_next[A_EACH], b_next[B_EACH];

    p.begin((int)blockIdx.z);
    const int64_t begin = p.k_begin(), end = p.k_end();

    /* Along k a thread has one k and several lines; else one line and several k. */
    const int a_k = P::A_ALONG_K ? t % PRODUCT_K : t / BM,
              a_m = P::A_ALONG_K ? t / PRODUCT_K : t % BM;
    const int b_k = P::B_ALONG_K ? t % PRODUCT_K : t / BN,
              b_n = P::B_ALONG_K ? t / PRODUCT_K : t % BN;
    typename P::m_state rows[P::A_ALONG_K ? (int)A_EACH : 1];
    typename P::n_state columns[P::B_ALONG_K ? (int)B_EACH : 1];
#pragma unroll
    for (int i = 0; i < (P::A_ALONG_K ? (int)A_EACH : 1); i++)
        rows[i] = p.a_m(m0 + a_m + i * A_LINES);
#pragma unroll
    for (int i = 0; i < (P::B_ALONG_K ? (int)B_EACH : 1); i++)
        columns[i] = p.b_n(n0 + b_n + i * B_LINES);

    for (int64_t k0 = begin; k0 < end + PRODUCT_K; k0 += PRODUCT_K) {
        if (k0 < end) { /* the next tiles */
            if (P::A_ALONG_K) {
                const typename P::ak_state k = p.a_k(k0 + a_k, end);
#pragma unroll
                for (int i = 0; i < A_EACH; i++)
                    a_next[i] = p.a(rows[P::A_ALONG_K ? i : 0], k);
            } else {
#pragma unroll
                for (int i = 0; i < A_EACH; i++)
                    a_next[i] = p.a(rows[0], p.a_k(k0 + a_k + i * A_LINES, end));
            }
            if (P::B_ALONG_K) {
                const typename P::bk_state k = p.b_k(k0 + b_k, end);
#pragma unroll
                for (int i = 0; i < B_EACH; i++)
                    b_next[i] = p.b(columns[P::B_ALONG_K ? i : 0], k);
            } else {
#pragma unroll
                for (int i = 0; i < B_EACH; i++)
                    b_next[i] = p.b(columns[0], p.b_k(k0 + b_k + i * B_LINES, end));
            }
        }
        if (k0 > begin) { /* those that are there */
#pragma unroll
            for (int k = 0; k < PRODUCT_K; k++) {
                float a[TM], b[TN];
#pragma unroll
                for (int i = 0; i < TM; i++)
                    a[i] = as[k][ty * TM + i];
#pragma unroll
                for (int j = 0; j < TN; j++)
                    b[j] = bs[k][tx * TN + j];
#pragma unroll
                for (int i = 0; i < TM; i++) {
#pragma unroll
                    for (int j = 0; j < TN; j++)
                        sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
                }
            }
        }
        if (k0 >= end)
            break;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < A_EACH; i++) {
            if (P::A_ALONG_K)
                as[a_k][a_m + i * A_LINES] = a_next[i];
            else
                as[a_k + i * A_LINES][a_m] = a_next[i];
        }
#pragma unroll
        for (int i = 0; i < B_EACH; i++) {
            if (P::B_ALONG_K)
                bs[b_k][b_n + i * B_LINES] = b_next[i];
            else
                bs[b_k + i * B_LINES][b_n] = b_next[i];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
#pragma unroll
        for (int j = 0; j < TN; j++) {
            const int64_t m = m0 + ty * TM + i, n = n0 + tx * TN + j;
            if (m < p.m && n < p.n)
                p.store(m, n, sums[i][j]);
        }
    }
}

/* Tiles are large where they fill the device all the same. */
static inline bool wants_large_tiles(int64_t m, int64_t n, int64_t z)
{
    return n >= 96 && (double)((m + 127) / 128) * (double)((n + 127) / 128) * (double)z >= 132;
}

template <class P> static void run_product(const P &p, int64_t z, struct device_stream *stream)
{
    if (wants_large_tiles(p.m, p.n, z)) {
        const dim3 grid(blocks_of(p.m, 128), blocks_of(p.n, 128), (unsigned)z);
        product<P, 128, 128, 8, 8><<<grid, PRODUCT_THREADS, 0, stream->cuda>>>(p);
    } else {
        const dim3 grid(blocks_of(p.m, 64), blocks_of(p.n, 64), (unsigned)z);
        product<P, 64, 64, 4, 4><<<grid, PRODUCT_THREADS, 0, stream->cuda>>>(p);
    }
}

#endif /* KERNEL_CUDA_PRODUCT_CUH */
