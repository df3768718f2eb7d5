/* SPDX-License-Identifier: MIT */
/* small.cu - linear layers of bf16 whose products are small, in one launch each.
 *
 * Libraries have their best kernels for rows that begin at multiples of 16 bytes and for products that fill the GPU; layers of 250, 100 and
 * 10 units are neither, and cost launches for biases and sums besides. Here a block has 32 x 32 results, and its eight warps
 * share the sum along k: each takes every eighth step of 16, with the next ones on their way, and what warps have is
 * added in their order. Operands lie as they lie; what is transposed is turned as tensor cores are fed. A weight's
 * gradient has a row of ones behind the rows of x': the bias's gradient. An input's gradient may go through the relu that
 * the input came from.
 */
#include "kernel/cuda/mma.cuh"

enum {
    SIDE = 32,
    STEP = 16,
    WARPS = 8,
    AHEAD = 4,       /* steps that are on their way */
    PAIRS = 8,       /* of a tile of SIDE x STEP, a lane */
    LONG = SIDE + 8, /* rows of a tile that lies along its side, and of one that lies along k */
    SHORT = STEP + 8,
    TILE = SIDE * SHORT,
    ROWS = SIDE / WARPS, /* of results, a warp */
    K_MAX = 2048
};

struct small {
    int m, n, k;
    int64_t a_row, b_row; /* elements from row to row, as they lie; c's are n */
    bool relu;
    const bf16 *kept; /* of a relu: c is 0 where this is; NULL: there is none */
};

/* One operand: `side` and k are its extents; ACROSS: it lies with k outside. ones: row `side` of it is all 1. */
template <bool ACROSS> struct operand {
    const bf16 *x;
    int64_t row;
    int side, k, first; /* first of this block's side */
    bool even, ones;

    /* Read in any case, from where there is something, so that no load waits for a branch. */
    __device__ uint32_t element(int s, int kk) const
    {
        const int s_in = s < side ? s : side - 1, k_in = kk < k ? kk : k - 1;
        const uint32_t bits =
            *(const uint16_t *)(x + (ACROSS ? k_in * row + s_in : s_in * row + k_in));

        return kk >= k || s > side ? 0 : s < side ? bits : ones ? 0x3f80U : 0;
    }
    /* Two elements side by side in memory: of pair i of this lane, in the step that begins at k0. */
    __device__ void place(int i, int k0, int *s, int *kk) const
    {
        const int lane = threadIdx.x % WARP;

        *s = first + (ACROSS ? lane % 16 * 2 : i * 4 + lane / 8);
        *kk = k0 + (ACROSS ? i * 2 + lane / 16 : lane % 8 * 2);
    }
    __device__ void take(uint32_t pairs[PAIRS], int k0) const
    {
        int s, kk;

        if (even && first + SIDE <= side && k0 + STEP <= k) {
#pragma unroll
            for (int i = 0; i < PAIRS; i++) {
                place(i, k0, &s, &kk);
                pairs[i] = *(const uint32_t *)(x + (ACROSS ? kk * row + s : s * row + kk));
            }
            return;
        }
#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            place(i, k0, &s, &kk);
            pairs[i] = element(s, kk) | (ACROSS ? element(s + 1, kk) : element(s, kk + 1))
                                            << 16;
        }
    }
    __device__ static void keep(bf16 *tile, const uint32_t pairs[PAIRS])
    {
        const int lane = threadIdx.x % WARP;

#pragma unroll
        for (int i = 0; i < PAIRS; i++) {
            bf16 *to = ACROSS ? tile + (i * 2 + lane / 16) * LONG + lane % 16 * 2
                              : tile + (i * 4 + lane / 8) * SHORT + lane % 8 * 2;
            *(uint32_t *)to = pairs[i];
        }
    }
    /* As left operand: 16 rows from 16 `half` on. */
    __device__ static void left(uint32_t a[4], const bf16 *tile, int half)
    {
        const int lane = threadIdx.x % WARP, matrix = lane / 8;

        if (ACROSS)
            load_four_across(a, tile + (matrix / 2 * 8 + lane % 8) * LONG + half * 16 +
                                    matrix % 2 * 8);
        else
            load_four(a,
                      tile + (half * 16 + matrix % 2 * 8 + lane % 8) * SHORT + matrix / 2 * 8);
    }
    /* As right operand: two tiles of eight columns from 16 `half` on. */
    __device__ static void right(uint32_t b[4], const bf16 *tile, int half)
    {
        const int lane = threadIdx.x % WARP, matrix = lane / 8;

        if (ACROSS)
            load_four_across(b, tile + (matrix % 2 * 8 + lane % 8) * LONG + half * 16 +
                                    matrix / 2 * 8);
        else
            load_four(b,
                      tile + (half * 16 + matrix / 2 * 8 + lane % 8) * SHORT + matrix % 2 * 8);
    }
};

/* c += the products of the steps that this warp has. */
template <bool A_ACROSS, bool B_ACROSS>
__device__ static void add_steps(float c[2][4][4], const operand<A_ACROSS> &a,
                                 const operand<B_ACROSS> &b, int k, bf16 *tiles)
{
    const int warp = threadIdx.x / WARP;
    bf16 *a_tile = tiles + warp * 2 * TILE, *b_tile = a_tile + TILE;
    uint32_t a_pairs[AHEAD][PAIRS], b_pairs[AHEAD][PAIRS];

#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        const int first = (warp + i * WARPS) * STEP;
        if (first >= k)
            continue;
        a.take(a_pairs[i], first);
        b.take(b_pairs[i], first);
    }
    for (int k0 = warp * STEP; k0 < k; k0 += AHEAD * WARPS * STEP) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int next = k0 + (i + AHEAD) * WARPS * STEP;
            if (k0 + i * WARPS * STEP >= k)
                continue;
            __syncwarp();
            operand<A_ACROSS>::keep(a_tile, a_pairs[i]);
            operand<B_ACROSS>::keep(b_tile, b_pairs[i]);
            __syncwarp();
            if (next < k) {
                a.take(a_pairs[i], next);
                b.take(b_pairs[i], next);
            }
            uint32_t left[2][4], right[2][4];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                operand<A_ACROSS>::left(left[half], a_tile, half);
                operand<B_ACROSS>::right(right[half], b_tile, half);
            }
#pragma unroll
            for (int m = 0; m < 2; m++) {
#pragma unroll
                for (int j = 0; j < 4; j++)
                    multiply(c[m][j], left[m], right[j / 2][j % 2 * 2],
                             right[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
}

/* B lies as (k,n), or not ACROSS as (n,k). sums: where the row of ones goes, NULL: there is none. */
template <bool A_ACROSS, bool B_ACROSS, class T>
__global__ void __launch_bounds__(WARPS *WARP)
    product(struct small g, const bf16 *a, const bf16 *b, const bf16 *bias, T *c, float *sums)
{
    __shared__ __align__(16) union {
        bf16 tiles[WARPS * 2 * TILE];
        float parts[WARPS][SIDE][SIDE];
    } shared;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int row0 = blockIdx.y * SIDE, column0 = blockIdx.x * SIDE, column = column0 + lane;
    const int sharers = (g.k + STEP - 1) / STEP < WARPS ? (g.k + STEP - 1) / STEP : WARPS;
    const operand<A_ACROSS> left = {
        a, g.a_row, g.m, g.k, row0, g.a_row % 2 == 0, sums != NULL
    };
    const operand<B_ACROSS> right = { b, g.b_row, g.n, g.k, column0, g.b_row % 2 == 0, false };
    float own[2][4][4] = {};
    bf16 added, kept[ROWS];

    /* What the end needs is on its way meanwhile, from where there is something. */
    const int column_in = column < g.n ? column : g.n - 1;
    if (bias)
        added = bias[column_in];
#pragma unroll
    for (int i = 0; g.kept && i < ROWS; i++) {
        const int row = row0 + warp + i * WARPS;
        kept[i] = g.kept[(int64_t)(row < g.m ? row : g.m - 1) * g.n + column_in];
    }
    add_steps(own, left, right, g.k, shared.tiles);
    __syncthreads();
    if (warp < sharers) {
#pragma unroll
        for (int m = 0; m < 2; m++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    shared.parts[warp][m * 16 + lane / 4 + e / 2 * 8]
                                [j * 8 + lane % 4 * 2 + e % 2] = own[m][j][e];
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int r = warp + i * WARPS, row = row0 + r;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            if (w < sharers)
                sum += shared.parts[w][r][lane];
        }
        if (column >= g.n || row > g.m)
            continue;
        if (bias)
            sum += number(added);
        const bool shut = (g.relu && sum < 0) || (g.kept && !(number(kept[i]) > 0));
        if (row < g.m)
            put(&c[(int64_t)row * g.n + column], shut ? 0.0F : sum);
        else if (sums)
            sums[column] = sum;
    }
}

template <bool A_ACROSS, bool B_ACROSS, class T>
static void launch(const struct kernel_call *call, const struct small &g, const void *a,
                   const void *b, const void *bias, float *sums)
{
    const dim3 grid(blocks_of(g.n, SIDE), blocks_of(g.m + (sums ? 1 : 0), SIDE));

    product<A_ACROSS, B_ACROSS, T><<<grid, WARPS * WARP, 0, stream_of(call)>>>(
        g, (const bf16 *)a, (const bf16 *)b, (const bf16 *)bias, (T *)call->out[0], sums);
    stream_check(call->stream, call->problem->op);
}

/* Worth it, where a library would be slow: rows that do not lie evenly, or hardly any work. Rows, and one of ones
 * behind them, fit a grid. */
static bool is_small(int64_t m, int64_t n, int64_t k, bool evenly)
{
    const double work = (double)m * (double)n * (double)k;

    return m < (int64_t)GRID_MAX * SIDE && k <= K_MAX && work <= (evenly ? 1 << 24 : 1 << 27);
}

/* Of x (m,k) and y (m,n). */
static bool lie_evenly(int64_t k, int64_t n)
{
    return k % pack<bf16>::N == 0 && n % pack<bf16>::N == 0;
}

static bool linear_can_run(const struct kernel_problem *p)
{
    const int64_t m = p->in[0].shape.dim[0], k = p->in[0].shape.dim[1],
                  n = p->out[0].shape.dim[1];

    return p->in[0].dtype == DTYPE_BF16 && p->out[0].dtype == DTYPE_BF16 &&
           (p->n_in <= 2 || p->in[2].dtype == DTYPE_BF16) &&
           p->attrs.activation <= ACTIVATION_RELU && is_small(m, n, k, lie_evenly(k, n));
}

static void run_linear(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const bool plain = p->in[1].layout == LAYOUT_PLAIN;
    const int m = (int)p->in[0].shape.dim[0], k = (int)p->in[0].shape.dim[1];
    const int n = (int)p->out[0].shape.dim[1];
    const struct small g = {
        m, n, k, k, plain ? k : n, p->attrs.activation == ACTIVATION_RELU, NULL
    };
    const void *bias = p->n_in > 2 ? call->in[2] : NULL;

    if (plain)
        launch<false, false, bf16>(call, g, call->in[0], call->in[1], bias, NULL);
    else
        launch<false, true, bf16>(call, g, call->in[0], call->in[1], bias, NULL);
}

static bool grad_input_can_run(const struct kernel_problem *p)
{
    const int64_t m = p->in[0].shape.dim[0], n = p->in[0].shape.dim[1],
                  k = p->out[0].shape.dim[1];

    return p->in[0].dtype == DTYPE_BF16 && p->out[0].dtype == DTYPE_BF16 &&
           is_small(m, k, n, lie_evenly(k, n));
}

static bool grad_through_can_run(const struct kernel_problem *p)
{
    return p->attrs.activation == ACTIVATION_RELU && grad_input_can_run(p);
}

/* dx (m,k) = dy (m,n) times w, which lies as (k,n), plain as (n,k). */
static void run_grad_input(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const bool plain = p->in[1].layout == LAYOUT_PLAIN;
    const int m = (int)p->in[0].shape.dim[0], n = (int)p->in[0].shape.dim[1];
    const int k = (int)p->out[0].shape.dim[1];
    const bf16 *kept = p->n_in > 2 ? (const bf16 *)call->in[2] : NULL;
    const struct small g = { m, k, n, n, plain ? k : n, false, kept };

    if (plain)
        launch<false, true, bf16>(call, g, call->in[0], call->in[1], NULL, NULL);
    else
        launch<false, false, bf16>(call, g, call->in[0], call->in[1], NULL, NULL);
}

static bool grad_weight_can_run(const struct kernel_problem *p)
{
    const int64_t m = p->in[0].shape.dim[0], k = p->in[0].shape.dim[1],
                  n = p->in[1].shape.dim[1];

    return p->in[0].dtype == DTYPE_BF16 && p->out[0].dtype == DTYPE_F32 &&
           p->out[0].layout != LAYOUT_PLAIN && is_small(k, n, m, lie_evenly(k, n));
}

/* dw (k,n) = x' dy. */
static void run_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int m = (int)p->in[0].shape.dim[0], k = (int)p->in[0].shape.dim[1];
    const int n = (int)p->in[1].shape.dim[1];
    const struct small g = { k, n, m, k, n, false, NULL };

    launch<true, true, float>(call, g, call->in[0], call->in[1], NULL,
                              p->n_out > 1 ? (float *)call->out[1] : NULL);
}

extern "C" const struct kernel cuda_small_rows[] = {
    { "linear", "small", linear_can_run, NULL, NULL, NULL, run_linear },
    { "linear_grad_input", "small", grad_input_can_run, NULL, NULL, NULL, run_grad_input },
    { "linear_grad_through", "small", grad_through_can_run, NULL, NULL, NULL, run_grad_input },
    { "linear_grad_weight", "small", grad_weight_can_run, NULL, NULL, NULL, run_grad_weight },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
