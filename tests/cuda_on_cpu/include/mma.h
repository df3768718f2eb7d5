/* SPDX-License-Identifier: MIT */
/* mma.h - fragments of matrices of 16 x 16. Every lane has all of an operand, and of sums half a row. */
#ifndef CUDA_ON_CPU_MMA_H
#define CUDA_ON_CPU_MMA_H

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace nvcuda
{
namespace wmma
{

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Order = void> struct fragment {
    static_assert(M == 16 && N == 16 && K == 16, "of these sizes alone");
    float x[16][16];
};
template <int M, int N, int K> struct fragment<accumulator, M, N, K, float, void> {
    enum { num_elements = 8 };
    float x[num_elements];
};
typedef fragment<accumulator, 16, 16, 16, float> sums;

static inline void fill_fragment(sums &to, float x)
{
    for (float &element : to.x)
        element = x;
}

template <class Use, class Order>
static void load_matrix_sync(fragment<Use, 16, 16, 16, __nv_bfloat16, Order> &to,
                             const __nv_bfloat16 *from, unsigned row)
{
    __syncwarp();
    for (unsigned i = 0; i < 16; i++) {
        for (unsigned j = 0; j < 16; j++)
            to.x[i][j] = __bfloat162float(
                from[std::is_same<Order, row_major>::value ? i * row + j : j * row + i]);
    }
    __syncwarp();
}

template <class A, class B>
static void mma_sync(sums &to, const fragment<matrix_a, 16, 16, 16, __nv_bfloat16, A> &a,
                     const fragment<matrix_b, 16, 16, 16, __nv_bfloat16, B> &b, const sums &c)
{
    const int lane = machine_lane();

    for (int j = 0; j < sums::num_elements; j++) {
        float sum = c.x[j];
        for (int k = 0; k < 16; k++)
            sum = fmaf(a.x[lane / 2][k], b.x[k][lane % 2 * 8 + j], sum);
        to.x[j] = sum;
    }
    __syncwarp();
}

static inline void store_matrix_sync(float *to, const sums &from, unsigned row, layout_t order)
{
    const unsigned lane = (unsigned)machine_lane();

    __syncwarp();
    for (unsigned j = 0; j < sums::num_elements; j++) {
        const unsigned r = lane / 2, c = lane % 2 * 8 + j;
        to[order == mem_row_major ? r * row + c : c * row + r] = from.x[j];
    }
    __syncwarp();
}

} // namespace wmma
} // namespace nvcuda

#endif /* CUDA_ON_CPU_MMA_H */
