/* SPDX-License-Identifier: MIT */
/* small.cu - linear layers of bf16 whose products are small, in one launch each.
 *
 * Libraries have their best kernels for rows that begin at multiples of 16 bytes and for products that fill the GPU; layers of 250, 100 and
 * 10 units are neither, and cost launches for biases and sums besides. Here a block has 32 x 32 results, and its eight warps
 * share the sum along k: each takes every eighth step of 16, with the next ones on their way, and what warps have is
 * added in their order. Operands lie as they lie; what is transposed is turned as tensor cores are fed. A weight's
 * gradient has a row of ones behind the rows of x': the bias's gradient. An input's gradient may go through the relu that
 * the input came from. A layer's two gradients do not need each other, and go in one launch where they follow each other.
 */
#include "kernel/cuda/mma.cuh"

enum {
    SIDE = 32,
    STEP = 16,
    WARPS = 8,
    AHEAD = 2,       /* steps that are on their way */
    PAIRS = 8,       /* of a tile of SIDE x STEP, a lane */
    LONG = SIDE + 8, /* rows of a tile that lies along its side, and of one that lies along k */
    SHORT = STEP + 8,
    TILE = SIDE * SHORT,
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
        a.take(a_pairs[i], (warp + i * WARPS) * STEP);
        b.take(b_pairs[i], (warp + i * WARPS) * STEP);
    }
    for (int k0 = warp * STEP; k0 < k; k0 += AHEAD * WARPS * STEP) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int next = k0 + (i + AHEAD) * WARPS * STEP;
            __syncwarp();
            operand<A_ACROSS>::keep(a_tile, a_pairs[i]);
            operand<B_ACROSS>::keep(b_tile, b_pairs[i]);
            __syncwarp();
            if (next < k) {
                a.take(a_pairs[i], next);
                b.take(b_pairs[i], next);
            } else {
#pragma unroll
                for (int p = 0; p < PAIRS; p++)
                    a_pairs[i][p] = b_pairs[i][p] = 0; /* a step past the end adds nothing */
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

/* A product c = a b. B lies as (k,n), or not ACROSS as (n,k). */
template <class T> struct work {
    struct small g;
    const bf16 *a, *b, *bias; /* bias may be NULL */
    T *c;
    float *sums; /* where the row of ones goes, NULL: there is none */
};

union shared {
    bf16 tiles[WARPS * 2 * TILE];
    float parts[WARPS][SIDE][SIDE];
};

/* A block's results: those of tile (x, y). */
template <bool A_ACROSS, bool B_ACROSS, class T>
__device__ __forceinline__ void make_tile(const struct work<T> &of, int x, int y,
                                          union shared &shared)
{
    const struct small &g = of.g;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int row0 = y * SIDE, column0 = x * SIDE;
    const operand<A_ACROSS> left = { of.a,           g.a_row, g.m, g.k, row0, g.a_row % 2 == 0,
                                     of.sums != NULL };
    const operand<B_ACROSS> right = {
        of.b, g.b_row, g.n, g.k, column0, g.b_row % 2 == 0, false
    };
    float own[2][4][4] = {};

    add_steps(own, left, right, g.k, shared.tiles);
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                shared
                    .parts[warp][m * 16 + lane / 4 + e / 2 * 8][j * 8 + lane % 4 * 2 + e % 2] =
                    own[m][j][e];
        }
    }
    __syncthreads();
    for (int r = warp; r < SIDE; r += WARPS) {
        const int row = row0 + r, column = column0 + lane;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            sum += shared.parts[w][r][lane];
        if (column >= g.n || row > g.m)
            continue;
        if (of.bias)
            sum += number(of.bias[column]);
        const int64_t at = (int64_t)row * g.n + column;
        if (row < g.m)
            put(&of.c[at],
                (g.relu && sum < 0) || (g.kept && !(number(g.kept[at]) > 0)) ? 0.0F : sum);
        else if (of.sums)
            of.sums[column] = sum;
    }
}

template <bool A_ACROSS, bool B_ACROSS, class T>
__global__ void __launch_bounds__(WARPS *WARP) product(struct work<T> of)
{
    __shared__ __align__(16) union shared shared;

    make_tile<A_ACROSS, B_ACROSS, T>(of, blockIdx.x, blockIdx.y, shared);
}

/* Both gradients of a layer: the first blocks have the weight's. */
template <bool W_ACROSS>
__global__ void __launch_bounds__(WARPS *WARP, 2)
    gradients(struct work<float> weight, int blocks, int columns, struct work<bf16> input,
              int input_columns)
{
    __shared__ __align__(16) union shared shared;
    const int other = (int)blockIdx.x - blocks;

    if (other < 0)
        make_tile<true, true, float>(weight, (int)blockIdx.x % columns,
                                     (int)blockIdx.x / columns, shared);
    else
        make_tile<false, W_ACROSS, bf16>(input, other % input_columns, other / input_columns,
                                         shared);
}

template <class T> static dim3 tiles_of(const struct work<T> &of)
{
    return dim3(blocks_of(of.g.n, SIDE), blocks_of(of.g.m + (of.sums ? 1 : 0), SIDE));
}

template <bool A_ACROSS, bool B_ACROSS, class T>
static void launch(const struct kernel_call *call, const struct work<T> &of)
{
    product<A_ACROSS, B_ACROSS, T><<<tiles_of(of), WARPS * WARP, 0, stream_of(call)>>>(of);
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
    const struct work<bf16> of = {
        { m, n, k, k, plain ? k : n, p->attrs.activation == ACTIVATION_RELU, NULL },
            (const bf16 *)call->in[0],
            (const bf16 *)call->in[1], p->n_in > 2 ? (const bf16 *)call->in[2] : NULL,
            (bf16 *)call->out[0], NULL
    };

    if (plain)
        launch<false, false>(call, of);
    else
        launch<false, true>(call, of);
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
    return p->attrs.activation == ACTIVATION_RELU && p->n_out == 1 && grad_input_can_run(p);
}

static bool is_plain(const struct kernel_call *call)
{
    return call->problem->in[1].layout == LAYOUT_PLAIN;
}

/* dx (m,k) = dy (m,n) times w, which lies as (k,n), plain as (n,k). */
static struct work<bf16> grad_input_of(const struct kernel_call *call) {
    const struct kernel_problem *p = call->problem;
    const int m = (int)p->in[0].shape.dim[0], n = (int)p->in[0].shape.dim[1];
    const int k = (int)p->out[0].shape.dim[1];
    const bf16 *kept = p->n_in > 2 ? (const bf16 *)call->in[2] : NULL;

    return { { m, k, n, n, is_plain(call) ? k : n, false, kept },
             (const bf16 *)call->in[0],
             (const bf16 *)call->in[1],
             NULL,
             (bf16 *)call->out[0],
             NULL };
}

static void
run_grad_input(const struct kernel_call *call)
{
    if (is_plain(call))
        launch<false, true>(call, grad_input_of(call));
    else
        launch<false, false>(call, grad_input_of(call));
}

static bool grad_weight_can_run(const struct kernel_problem *p)
{
    const int64_t m = p->in[0].shape.dim[0], k = p->in[0].shape.dim[1],
                  n = p->in[1].shape.dim[1];

    return p->in[0].dtype == DTYPE_BF16 && p->out[0].dtype == DTYPE_F32 &&
           p->out[0].layout != LAYOUT_PLAIN && is_small(k, n, m, lie_evenly(k, n));
}

/* dw (k,n) = x' dy. */
static struct work<float> grad_weight_of(const struct kernel_call *call) {
    const struct kernel_problem *p = call->problem;
    const int m = (int)p->in[0].shape.dim[0], k = (int)p->in[0].shape.dim[1];
    const int n = (int)p->in[1].shape.dim[1];

    return { { k, n, m, k, n, false, NULL }, (const bf16 *)call->in[0],
             (const bf16 *)call->in[1],      NULL,
             (float *)call->out[0],          p->n_out > 1 ? (float *)call->out[1] : NULL };
}

static void
run_grad_weight(const struct kernel_call *call)
{
    launch<true, true>(call, grad_weight_of(call));
}

extern "C" const struct kernel cuda_small_rows[] = {
    { "linear", "small", linear_can_run, NULL, NULL, NULL, run_linear },
    { "linear_grad_input", "small", grad_input_can_run, NULL, NULL, NULL, run_grad_input },
    { "linear_grad_through", "small", grad_through_can_run, NULL, NULL, NULL, run_grad_input },
    { "linear_grad_weight", "small", grad_weight_can_run, NULL, NULL, NULL, run_grad_weight },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};

/* A weight's gradient and an input's. */
bool cuda_go_together(const struct kernel *one, const struct kernel *other)
{
    const bool first = one->run == run_grad_weight, second = other->run == run_grad_weight;

    return first != second && (first ? other : one)->run == run_grad_input;
}

void cuda_run_both(const struct kernel *const kernel[2], const struct kernel_call call[2])
{
    const int of_weight = kernel[0]->run == run_grad_weight ? 0 : 1;
    const struct kernel_call *to_input = &call[1 - of_weight];
    const struct work<float> weight = grad_weight_of(&call[of_weight]);
    const struct work<bf16> input = grad_input_of(to_input);
    const dim3 first = tiles_of(weight), second = tiles_of(input);
    const unsigned blocks = first.x * first.y, all = blocks + second.x * second.y;

    if (is_plain(to_input))
        gradients<true><<<all, WARPS * WARP, 0, stream_of(call)>>>(
            weight, (int)blocks, (int)first.x, input, (int)second.x);
    else
        gradients<false><<<all, WARPS * WARP, 0, stream_of(call)>>>(
            weight, (int)blocks, (int)first.x, input, (int)second.x);
    stream_check(call->stream, call->problem->op);
}
