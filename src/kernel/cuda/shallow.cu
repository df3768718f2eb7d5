/* SPDX-License-Identifier: MIT */
/* shallow.cu - linear layers of bf16 to few classes from many units, such as a classifier's last, forward and to the input.
 *
 * Tensor cores have nothing to do here: a row of w (k,n) is n numbers, at most 16. Forward a block has some rows of x and its threads
 * share k, each with all classes of these rows; what threads have is added within warps and then warps in order. Backward a
 * thread has the weights of two units in registers and goes through rows of dy, which lie in shared memory.
 */
#include "kernel/cuda/device.cuh"

enum { PAIRS_MAX = 8, CLASSES = 2 * PAIRS_MAX, X_ROWS = 4, DY_ROWS = 16, DY_THREADS = 128 };

struct shallow {
    int m, k, n; /* x (m,k), y (m,n) */
    bool relu;
    const bf16
        *kept; /* of a relu that x came from: dx is 0 where this is; NULL: there is none */
};

__device__ __forceinline__ float2 two_of(uint32_t bits)
{
    return __bfloat1622float2(*(const __nv_bfloat162 *)&bits);
}

template <int PAIRS>
__global__ void __launch_bounds__(THREADS)
    classes(struct shallow g, const bf16 *x, const bf16 *w, const bf16 *bias, bf16 *y)
{
    enum { N = X_ROWS * 2 * PAIRS };
    __shared__ float parts[THREADS / WARP][N];
    const int row0 = blockIdx.x * X_ROWS, lane = threadIdx.x % WARP, pairs = g.n / 2;
    float sums[X_ROWS][2 * PAIRS] = {};

#pragma unroll 2
    for (int k = threadIdx.x * 2; k < g.k; k += THREADS * 2) {
        float2 in[X_ROWS], of[2][PAIRS];
#pragma unroll
        for (int r = 0; r < X_ROWS; r++) {
            const int64_t row = row0 + r < g.m ? row0 + r : g.m - 1;
            in[r] = two_of(*(const uint32_t *)(x + row * g.k + k));
        }
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
#pragma unroll
            for (int e = 0; e < 2; e++)
                of[e][j] = j < pairs ? two_of(((const uint32_t *)w)[(k + e) * pairs + j])
                                     : make_float2(0, 0);
        }
#pragma unroll
        for (int r = 0; r < X_ROWS; r++) {
#pragma unroll
            for (int j = 0; j < PAIRS; j++) {
                sums[r][2 * j] = fmaf(in[r].x, of[0][j].x, sums[r][2 * j]);
                sums[r][2 * j] = fmaf(in[r].y, of[1][j].x, sums[r][2 * j]);
                sums[r][2 * j + 1] = fmaf(in[r].x, of[0][j].y, sums[r][2 * j + 1]);
                sums[r][2 * j + 1] = fmaf(in[r].y, of[1][j].y, sums[r][2 * j + 1]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float sum = warp_sum(sums[i / (2 * PAIRS)][i % (2 * PAIRS)]);
        if (lane == 0)
            parts[threadIdx.x / WARP][i] = sum;
    }
    __syncthreads();
    const int row = row0 + (int)threadIdx.x / (2 * PAIRS), n = threadIdx.x % (2 * PAIRS);
    if (threadIdx.x >= N || row >= g.m || n >= g.n)
        return;
    float sum = 0;
    for (int i = 0; i < THREADS / WARP; i++)
        sum += parts[i][threadIdx.x];
    if (bias)
        sum += number(bias[n]);
    put(&y[(int64_t)row * g.n + n], g.relu && sum < 0 ? 0 : sum);
}

template <int PAIRS>
__global__ void __launch_bounds__(DY_THREADS)
    units(struct shallow g, const bf16 *dy, const bf16 *w, bf16 *dx)
{
    __shared__ float rows[DY_ROWS][2 * PAIRS];
    const int unit = (int)(blockIdx.x * DY_THREADS + threadIdx.x) * 2, pairs = g.n / 2;
    const int row0 = blockIdx.y * DY_ROWS;
    float2 of[2][PAIRS];

    for (int i = threadIdx.x; i < DY_ROWS * 2 * PAIRS; i += DY_THREADS) {
        const int row = row0 + i / (2 * PAIRS), n = i % (2 * PAIRS);
        rows[i / (2 * PAIRS)][n] =
            row < g.m && n < g.n ? number(dy[(int64_t)row * g.n + n]) : 0;
    }
#pragma unroll
    for (int j = 0; j < PAIRS; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++)
            of[e][j] = j < pairs && unit < g.k
                           ? two_of(((const uint32_t *)w)[(int64_t)(unit + e) * pairs + j])
                           : make_float2(0, 0);
    }
    __syncthreads();
    if (unit >= g.k)
        return;
#pragma unroll 4
    for (int r = 0; r < DY_ROWS && row0 + r < g.m; r++) {
        const int64_t at = (int64_t)(row0 + r) * g.k + unit;
        float2 sum = make_float2(0, 0);
#pragma unroll
        for (int j = 0; j < PAIRS; j++) {
            const float2 d = *(const float2 *)&rows[r][2 * j];
            sum.x = fmaf(d.x, of[0][j].x, sum.x);
            sum.x = fmaf(d.y, of[0][j].y, sum.x);
            sum.y = fmaf(d.x, of[1][j].x, sum.y);
            sum.y = fmaf(d.y, of[1][j].y, sum.y);
        }
        if (g.kept) {
            const float2 kept = two_of(*(const uint32_t *)(g.kept + at));
            sum.x = kept.x > 0 ? sum.x : 0;
            sum.y = kept.y > 0 ? sum.y : 0;
        }
        *(__nv_bfloat162 *)(dx + at) = __floats2bfloat162_rn(sum.x, sum.y);
    }
}

/* Many units, and of these and classes pairs. */
static bool is_shallow(int64_t m, int64_t k, int64_t n)
{
    return n % 2 == 0 && n <= CLASSES && k % 2 == 0 && k >= 1024 && k <= 1 << 20 &&
           m < (int64_t)GRID_MAX * DY_ROWS;
}

static bool forward_can_run(const struct kernel_problem *p)
{
    return p->in[0].dtype == DTYPE_BF16 && p->out[0].dtype == DTYPE_BF16 &&
           (p->n_in <= 2 || p->in[2].dtype == DTYPE_BF16) && p->in[1].layout != LAYOUT_PLAIN &&
           p->attrs.activation <= ACTIVATION_RELU &&
           is_shallow(p->in[0].shape.dim[0], p->in[0].shape.dim[1], p->out[0].shape.dim[1]);
}

static void run_forward(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct shallow g = { (int)p->in[0].shape.dim[0], (int)p->in[0].shape.dim[1],
                               (int)p->out[0].shape.dim[1],
                               p->attrs.activation == ACTIVATION_RELU, NULL };
    const bf16 *x = (const bf16 *)call->in[0], *w = (const bf16 *)call->in[1];
    const bf16 *bias = p->n_in > 2 ? (const bf16 *)call->in[2] : NULL;
    const unsigned blocks = blocks_of(g.m, X_ROWS);

    if (g.n <= 10)
        classes<5>
            <<<blocks, THREADS, 0, stream_of(call)>>>(g, x, w, bias, (bf16 *)call->out[0]);
    else
        classes<PAIRS_MAX>
            <<<blocks, THREADS, 0, stream_of(call)>>>(g, x, w, bias, (bf16 *)call->out[0]);
    stream_check(call->stream, "linear");
}

static bool grad_input_can_run(const struct kernel_problem *p)
{
    return p->in[0].dtype == DTYPE_BF16 && p->out[0].dtype == DTYPE_BF16 &&
           p->in[1].layout != LAYOUT_PLAIN &&
           is_shallow(p->in[0].shape.dim[0], p->out[0].shape.dim[1], p->in[0].shape.dim[1]);
}

static bool grad_through_can_run(const struct kernel_problem *p)
{
    return p->attrs.activation == ACTIVATION_RELU && p->n_out == 1 && grad_input_can_run(p);
}

static void run_grad_input(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct shallow g = { (int)p->in[0].shape.dim[0], (int)p->out[0].shape.dim[1],
                               (int)p->in[0].shape.dim[1], false,
                               p->n_in > 2 ? (const bf16 *)call->in[2] : NULL };
    const bf16 *dy = (const bf16 *)call->in[0], *w = (const bf16 *)call->in[1];
    const dim3 grid(blocks_of(g.k, DY_THREADS * 2), blocks_of(g.m, DY_ROWS));

    if (g.n <= 10)
        units<5><<<grid, DY_THREADS, 0, stream_of(call)>>>(g, dy, w, (bf16 *)call->out[0]);
    else
        units<PAIRS_MAX>
            <<<grid, DY_THREADS, 0, stream_of(call)>>>(g, dy, w, (bf16 *)call->out[0]);
    stream_check(call->stream, p->op);
}

extern "C" const struct kernel cuda_shallow_rows[] = {
    { "linear", "shallow", forward_can_run, NULL, NULL, NULL, run_forward },
    { "linear_grad_input", "shallow", grad_input_can_run, NULL, NULL, NULL, run_grad_input },
    { "linear_grad_through", "shallow", grad_through_can_run, NULL, NULL, NULL,
      run_grad_input },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
