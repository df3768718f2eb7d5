/* SPDX-License-Identifier: MIT */
/* conv1d_max.cu - a convolution of sequences of which the largest over time remains, and its gradients.
 *
 * In bf16 a block has a tile of places of one sequence and of filters: what of x the places see lies in shared memory, a
 * tap is a product of its rows with the tap's weights, while those of the next tap are on their way, and the largest of the
 * tile's places is all that leaves the block; a second launch looks at the tiles of a sequence. f32 has the convolution laid
 * out first. Backward only one place of a filter matters: the gradient of x goes along the filters that looked at a block's
 * tokens with a thread a channel, so nobody adds to what another adds to; that of a filter is a sum over the sequences of
 * what its place saw, which lies in one piece.
 */
#include <cuda_pipeline.h>

#include "kernel/cuda/across.h"
#include "kernel/cuda/conv1d.h"
#include "kernel/cuda/mma.cuh"

struct sequences {
    int n, tokens, channels, filters, taps, places;
};

/* x (N,T,C), w (O,C,k). Where T < k there is one place, whose window reaches past the end. */
static struct sequences sequences_of(const struct shape *x, const struct shape *w)
{
    const int tokens = (int)x->dim[1], taps = (int)w->dim[2];
    const struct sequences s = {
        (int)x->dim[0], tokens, (int)x->dim[2],
        (int)w->dim[0], taps,   tokens < taps ? 1 : tokens - taps + 1
    };
    return s;
}

/* The first largest --------------------------------------------------------------------- */

struct largest {
    float x;
    int32_t place; /* -1: none is a number */
};

__device__ __forceinline__ struct largest better(struct largest a, struct largest b)
{
    return b.x > a.x || (b.x == a.x && (uint32_t)b.place < (uint32_t)a.place) ? b : a;
}

/* y and index of a filter: -1 if no sum is a number, or relu leaves nothing. */
template <class T>
__device__ __forceinline__ void give(struct largest best, const float *bias, int o, bool relu,
                                     T *y, int32_t *index)
{
    float value = best.place < 0 ? NAN : bias ? best.x + bias[o] : best.x;

    if (relu && !(value > 0)) {
        value = value <= 0 ? 0 : value;
        best.place = -1;
    }
    put(y, value);
    *index = best.place;
}

/* Of sums that lie in memory. */
template <class T>
__global__ void largest_place(struct sequences s, const float *sums, const float *bias,
                              bool relu, T *y, int32_t *index)
{
    const int64_t i = thread_number();
    struct largest best = { -INFINITY, -1 };

    if (i >= (int64_t)s.n * s.filters)
        return;
    const int64_t n = i / s.filters, o = i % s.filters;
    for (int t = 0; t < s.places; t++) {
        const float sum = sums[(n * s.places + t) * s.filters + o];
        if (sum > best.x) {
            best.x = sum;
            best.place = t;
        }
    }
    give(best, bias, (int)o, relu, &y[i], &index[i]);
}

/* Tiles of 64 places by 128 filters: four warps along the places, two along the filters. */
enum {
    PLACES = 64,
    FILTERS = 128,
    TILE_WARPS = 8,
    EIGHTS = FILTERS / 2 / 8,
    W_ROW = FILTERS + 8
};

static int in_steps(int channels)
{
    return (channels + 15) / 16 * 16;
}

/* Rows of x, then the weights of so many taps. */
static size_t tile_bytes(const struct sequences *s, int buffers)
{
    const size_t row = (size_t)in_steps(s->channels) + 8;

    return ((size_t)(PLACES + s->taps - 1) * row +
            (size_t)buffers * (size_t)in_steps(s->channels) * W_ROW) *
           sizeof(bf16);
}

static int tiles_of(const struct sequences *s)
{
    return (s->places + PLACES - 1) / PLACES;
}

/* c += the tile's rows from `row` on times the weights of a tap. */
__device__ static void add_tap(float c[EIGHTS][4], const bf16 *rows, int x_row, const bf16 *w,
                               int steps)
{
    const int lane = threadIdx.x % WARP, matrix = lane / 8, warp = threadIdx.x / WARP;
    const bf16 *left =
        rows + (warp % 4 * 16 + matrix % 2 * 8 + lane % 8) * x_row + matrix / 2 * 8;
    const bf16 *right =
        w + (matrix % 2 * 8 + lane % 8) * W_ROW + warp / 4 * (FILTERS / 2) + matrix / 2 * 8;

    for (int step = 0; step < steps; step++) {
        uint32_t a[4];
        load_four(a, left + step * 16);
#pragma unroll
        for (int j = 0; j < EIGHTS; j += 2) {
            uint32_t b[4];
            load_four_across(b, right + step * 16 * W_ROW + j * 8);
            multiply(c[j], a, b[0], b[1]);
            multiply(c[j + 1], a, b[2], b[3]);
        }
    }
}

/* The largest of each filter over the tile's rows, to found[filter]. */
__device__ static void find_largest(const float c[EIGHTS][4], int first, int places,
                                    struct largest *found)
{
    __shared__ struct largest of_warps[4][FILTERS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;

#pragma unroll
    for (int j = 0; j < EIGHTS; j++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
            struct largest best = { -INFINITY, -1 };
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int place = first + warp % 4 * 16 + lane / 4 + half * 8;
                const float x = c[j][2 * half + e];
                if (place < places && x > best.x) {
                    best.x = x;
                    best.place = place;
                }
            }
            for (int apart = 4; apart < WARP; apart *= 2) {
                const struct largest other = { __shfl_xor_sync(0xffffffffU, best.x, apart),
                                               __shfl_xor_sync(0xffffffffU, best.place,
                                                               apart) };
                best = better(best, other);
            }
            if (lane < 4)
                of_warps[warp % 4][warp / 4 * (FILTERS / 2) + j * 8 + lane * 2 + e] = best;
        }
    }
    __syncthreads();
    if (threadIdx.x < FILTERS) {
        struct largest best = of_warps[0][threadIdx.x];
        for (int w = 1; w < 4; w++)
            best = better(best, of_warps[w][threadIdx.x]);
        *found = best;
    }
}

/* Rows of `columns` elements that lie one behind the other, to rows of shared memory with zeros behind them and below
 * them: on their way when it returns, N elements at a time. */
template <int N>
__device__ static void send_rows(bf16 *to, int to_row, int to_rows, int to_columns,
                                 const bf16 *from, int64_t from_row, int rows, int columns)
{
    const int pieces = to_columns / N, all = to_rows * pieces;

    for (int i = threadIdx.x; i < all; i += TILE_WARPS * WARP) {
        const int r = i / pieces, j = i % pieces * N;
        const bool there = r < rows && j < columns;
        const bf16 *at = there ? from + r * from_row + j : from;
        if (N > 1)
            __pipeline_memcpy_async(to + r * to_row + j, at, N * sizeof(bf16),
                                    there ? 0 : N * sizeof(bf16));
        else
            *(uint16_t *)(to + r * to_row + j) = there ? *(const uint16_t *)at : 0;
    }
}

/* As many at a time as lie evenly; rows end with whole pieces, as they begin with them. */
__device__ static void load_rows(bf16 *to, int to_row, int to_rows, int to_columns,
                                 const bf16 *from, int64_t from_row, int rows, int columns)
{
    const uintptr_t odd = (uintptr_t)from | (uintptr_t)(from_row * (int64_t)sizeof(bf16));

    if (odd % 8 == 0)
        send_rows<4>(to, to_row, to_rows, to_columns, from, from_row, rows, columns);
    else if (odd % 4 == 0)
        send_rows<2>(to, to_row, to_rows, to_columns, from, from_row, rows, columns);
    else
        send_rows<1>(to, to_row, to_rows, to_columns, from, from_row, rows, columns);
}

/* The weights of a tap, if there is one. */
__device__ static void load_tap(bf16 *to, const struct sequences &s, int steps, const bf16 *w,
                                int tap, int o0)
{
    if (tap < s.taps)
        load_rows(to, W_ROW, steps * 16, FILTERS,
                  w + (int64_t)tap * s.channels * s.filters + o0, s.filters, s.channels,
                  s.filters - o0);
    __pipeline_commit();
}

/* ahead: taps whose weights are on their way, 0 or 1; there is room for one more. */
__global__ void __launch_bounds__(TILE_WARPS *WARP)
    largest_of_tile(struct sequences s, int steps, int ahead, const bf16 *x, const bf16 *w,
                    struct largest *found)
{
    extern __shared__ __align__(16) bf16 rows[];
    const int x_row = steps * 16 + 8, n_rows = PLACES + s.taps - 1;
    bf16 *weights = rows + n_rows * x_row;
    const int tap_size = steps * 16 * W_ROW;
    const int n = blockIdx.x, first = blockIdx.y * PLACES, o0 = blockIdx.z * FILTERS;
    float c[EIGHTS][4] = {};
    struct largest best = { -INFINITY, -1 };

    load_rows(rows, x_row, n_rows, steps * 16, x + ((int64_t)n * s.tokens + first) * s.channels,
              s.channels, s.tokens - first, s.channels);
    if (ahead)
        load_tap(weights, s, steps, w, 0, o0);
    for (int tap = 0; tap < s.taps; tap++) {
        load_tap(weights + (tap + ahead) % (ahead + 1) * tap_size, s, steps, w, tap + ahead,
                 o0);
        if (ahead)
            __pipeline_wait_prior(1);
        else
            __pipeline_wait_prior(0);
        __syncthreads();
        add_tap(c, rows + tap * x_row, x_row, weights + tap % (ahead + 1) * tap_size, steps);
        __syncthreads(); /* nobody looks at the tap's weights any more */
    }
    find_largest(c, first, s.places, &best);
    const int o = o0 + (int)threadIdx.x;
    if (threadIdx.x < FILTERS && o < s.filters)
        found[((int64_t)n * gridDim.y + blockIdx.y) * s.filters + o] = best;
}

__global__ void largest_of_tiles(struct sequences s, int tiles, const struct largest *found,
                                 const float *bias, bool relu, bf16 *y, int32_t *index)
{
    const int64_t i = thread_number();
    struct largest best = { -INFINITY, -1 };

    if (i >= (int64_t)s.n * s.filters)
        return;
    const int64_t n = i / s.filters, o = i % s.filters;
    for (int tile = 0; tile < tiles; tile++)
        best = better(best, found[(n * tiles + tile) * s.filters + o]);
    give(best, bias, (int)o, relu, &y[i], &index[i]);
}

/* That a tile may have: what find_largest has is of a block's shared memory too. */
static size_t most_bytes()
{
    const size_t fixed = 4 * FILTERS * sizeof(struct largest);

    return cuda_shared_bytes > fixed ? cuda_shared_bytes - fixed : 0;
}

static bool is_tiled(const struct kernel_problem *p, const struct sequences *s)
{
    return p->in[0].dtype == DTYPE_BF16 && tile_bytes(s, 1) <= most_bytes();
}

static size_t conv1d_max_scratch(const struct kernel_problem *p)
{
    const struct sequences s = sequences_of(&p->in[0].shape, &p->in[1].shape);
    const size_t filters = (size_t)s.n * (size_t)s.filters;

    return is_tiled(p, &s) ? filters * (size_t)tiles_of(&s) * sizeof(struct largest)
                           : filters * (size_t)s.places * sizeof(float);
}

static void run_tiles(const struct kernel_call *call, const struct sequences &s,
                      const float *bias, bool relu)
{
    const int tiles = tiles_of(&s), steps = in_steps(s.channels) / 16;
    const int buffers = tile_bytes(&s, 2) <= most_bytes() ? 2 : 1;
    const dim3 grid((unsigned)s.n, (unsigned)tiles, blocks_of(s.filters, FILTERS));
    const int64_t filters = (int64_t)s.n * s.filters;

    if (cudaFuncSetAttribute((const void *)largest_of_tile,
                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                             (int)most_bytes()) != cudaSuccess)
        stream_check(call->stream, "conv1d_max");
    largest_of_tile<<<grid, TILE_WARPS * WARP, tile_bytes(&s, buffers), stream_of(call)>>>(
        s, steps, buffers - 1, (const bf16 *)call->in[0], (const bf16 *)call->in[1],
        (struct largest *)call->scratch);
    largest_of_tiles<<<blocks_of(filters, WARP), WARP, 0, stream_of(call)>>>(
        s, tiles, (const struct largest *)call->scratch, bias, relu, (bf16 *)call->out[0],
        (int32_t *)call->out[1]);
    stream_check(call->stream, "conv1d_max");
}

template <class T>
static void run_laid_out(const struct kernel_call *call, const struct sequences &s,
                         const float *bias, bool relu)
{
    conv1d_sums(call, (float *)call->scratch);
    largest_place<T><<<blocks_of((int64_t)s.n * s.filters, WARP), WARP, 0, stream_of(call)>>>(
        s, (const float *)call->scratch, bias, relu, (T *)call->out[0],
        (int32_t *)call->out[1]);
    stream_check(call->stream, "conv1d_max");
}

static void run_conv1d_max(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct sequences s = sequences_of(&p->in[0].shape, &p->in[1].shape);
    const float *bias = p->n_in > 2 ? (const float *)call->in[2] : NULL;
    const bool relu = p->attrs.activation == ACTIVATION_RELU;

    if (is_tiled(p, &s))
        run_tiles(call, s, bias, relu);
    else if (p->in[0].dtype == DTYPE_BF16)
        run_laid_out<bf16>(call, s, bias, relu);
    else if (p->in[0].dtype == DTYPE_F16)
        run_laid_out<f16>(call, s, bias, relu);
    else
        run_laid_out<float>(call, s, bias, relu);
}

/* The input's gradient ------------------------------------------------------------------ */

enum { BACK_TOKENS = 32, BACK_LANES = 64, BACK_SHARES = 8, BACK_FILTERS = 512, BACK_HITS = 8 };

/* A filter that looked at the block's tokens [from, until). */
struct hit {
    int8_t from, until;
    int8_t phase; /* of `from`, by the shares of tokens */
    int row;      /* of the weights that token 0 of the block would have */
    float flow;
};

/* Those of filters [0, count), in their order; by a warp. Returns how many. */
template <class T>
__device__ static int find_hits(struct hit *hits, const struct sequences &s, const T *dy,
                                const int32_t *index, int o0, int count, int first, int tokens,
                                int shares)
{
    const int lane = threadIdx.x % WARP;
    int known = 0;

#pragma unroll 4
    for (int begin = 0; begin < count; begin += WARP) {
        const int o = begin + lane, o_in = o < count ? o : count - 1;
        const int32_t place = index[o_in];
        const float flow = number(dy[o_in]);
        const int t0 = place - first, from = t0 > 0 ? t0 : 0;
        const int until = t0 + s.taps < tokens ? t0 + s.taps : tokens;
        const bool is_one = o < count && place >= 0 && from < until;
        const unsigned all = __ballot_sync(0xffffffffU, is_one);
        if (is_one)
            hits[known + __popc(all & ((1U << lane) - 1))] = { (int8_t)from, (int8_t)until,
                                                               (int8_t)(from % shares),
                                                               (o0 + o) * s.taps - t0, flow };
        known += __popc(all);
    }
    return known;
}

/* The first of a share's tokens that a filter looked at, if any. */
__device__ __forceinline__ int own_token(const struct hit &hit, int share, int shares)
{
    return hit.from + share - hit.phase + (share < hit.phase ? shares : 0);
}

template <class T, int PER> struct __align__(PER * sizeof(T)) few_channels
{
    T x[PER];
};

/* A block has some tokens of a sequence and channels. A thread has PER channels of some tokens: as many threads as a filter has taps share
 * them, so that each has one of those that a filter looked at. Filters come in their order, some at once, so that their
 * weights are on their way together. These lie (O,k,C) here, so that threads read neighbours. */
template <class T, int PER>
__global__ void __launch_bounds__(BACK_LANES *BACK_SHARES)
    send_back_largest(struct sequences s, const T *dy, const int32_t *index, const T *w,
                      const T *base, T *dx)
{
    __shared__ few_channels<float, PER> sums[BACK_TOKENS][BACK_LANES];
    __shared__ struct hit hits[BACK_FILTERS];
    __shared__ int n_hits;
    typedef few_channels<T, PER> channels;
    const int n = blockIdx.x, first = blockIdx.y * BACK_TOKENS, lane = threadIdx.x;
    const int share = threadIdx.y, shares = blockDim.y;
    const int c = (blockIdx.z * BACK_LANES + lane) * PER;
    const int tokens = s.tokens - first < BACK_TOKENS ? s.tokens - first : BACK_TOKENS;
    const int64_t at = ((int64_t)n * s.tokens + first) * s.channels + c;
    const bool there = c < s.channels;

#pragma unroll 8
    for (int t = share; there && t < tokens; t += shares) {
        channels in;
        if (base)
            in = *(const channels *)(base + at + (int64_t)t * s.channels);
#pragma unroll
        for (int i = 0; i < PER; i++)
            sums[t][lane].x[i] = base ? number(in.x[i]) : 0;
    }
    for (int o0 = 0; o0 < s.filters; o0 += BACK_FILTERS) {
        const int count = s.filters - o0 < BACK_FILTERS ? s.filters - o0 : BACK_FILTERS;
        const int64_t of = (int64_t)n * s.filters + o0;
        __syncthreads();
        if (share == 0 && lane < WARP) {
            const int found =
                find_hits(hits, s, dy + of, index + of, o0, count, first, tokens, shares);
            if (lane == 0)
                n_hits = found;
        }
        __syncthreads();
        for (int h0 = 0; there && h0 < n_hits; h0 += BACK_HITS) {
            channels weights[BACK_HITS];
#pragma unroll
            for (int h = 0; h < BACK_HITS; h++) { /* from where there is one in any case */
                const struct hit hit = hits[h0 + h < n_hits ? h0 + h : h0];
                const int token = own_token(hit, share, shares);
                const int row = hit.row + (token < hit.until ? token : hit.from);
                weights[h] = *(const channels *)(w + (int64_t)row * s.channels + c);
            }
#pragma unroll
            for (int h = 0; h < BACK_HITS; h++) {
                const struct hit hit = hits[h0 + h < n_hits ? h0 + h : h0];
                const int until = h0 + h < n_hits ? hit.until : 0;
                channels in = weights[h];
                for (int t = own_token(hit, share, shares); t < until; t += shares) {
                    if (t - shares >= hit.from) /* more taps than shares */
                        in = *(const channels *)(w + (int64_t)(hit.row + t) * s.channels + c);
#pragma unroll
                    for (int i = 0; i < PER; i++)
                        sums[t][lane].x[i] =
                            fmaf(hit.flow, number(in.x[i]), sums[t][lane].x[i]);
                }
            }
        }
    }
    for (int t = share; there && t < tokens; t += shares) {
        channels out;
#pragma unroll
        for (int i = 0; i < PER; i++)
            put(&out.x[i], sums[t][lane].x[i]);
        *(channels *)(dx + at + (int64_t)t * s.channels) = out;
    }
}

/* The weights, turned across. */
static size_t grad_input_scratch(const struct kernel_problem *p)
{
    return (size_t)shape_count(&p->in[2].shape) *
           (p->in[2].dtype == DTYPE_F32 ? sizeof(float) : sizeof(bf16));
}

/* scratch has the weights. */
template <class T, int PER>
static void launch_back(const struct kernel_call *call, const struct sequences &s)
{
    const dim3 grid((unsigned)s.n, blocks_of(s.tokens, BACK_TOKENS),
                    blocks_of(s.channels, BACK_LANES * PER));
    const dim3 block(BACK_LANES, (unsigned)(s.taps < BACK_SHARES ? s.taps : BACK_SHARES));

    send_back_largest<T, PER><<<grid, block, 0, stream_of(call)>>>(
        s, (const T *)call->in[0], (const int32_t *)call->in[1], (const T *)call->scratch,
        call->problem->n_in > 4 ? (const T *)call->in[4] : NULL, (T *)call->out[0]);
    stream_check(call->stream, "conv1d_max_grad_input");
}

template <class T> static void launch_grad_input(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct sequences s = sequences_of(&p->out[0].shape, &p->in[2].shape);
    const uintptr_t base = p->n_in > 4 ? (uintptr_t)call->in[4] : 0;
    const bool even = ((uintptr_t)call->out[0] | base) % (2 * sizeof(T)) == 0;

    turn_across(call->stream, call->scratch, p->in[2].dtype, call->in[2], p->in[2].dtype,
                (int64_t)s.taps * s.channels, s.filters);
    if (s.channels % 2 == 0 && even)
        launch_back<T, 2>(call, s);
    else
        launch_back<T, 1>(call, s);
}

static void run_conv1d_max_grad_input(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_grad_input, call);
}

/* The weights' gradient ----------------------------------------------------------------- */

enum { SEEN_AHEAD = 16, SEEN_ONCE = 256 };

/* A block has a filter, a thread one of its weights, in double. */
template <class T>
__global__ void __launch_bounds__(THREADS) add_seen(struct sequences s, const T *x, const T *dy,
                                                    const int32_t *index, float *dw, float *db)
{
    __shared__ int32_t places[SEEN_ONCE];
    __shared__ float flows[SEEN_ONCE];
    const int o = blockIdx.x, j = blockIdx.y * THREADS + threadIdx.x;
    const bool there = j < s.taps * s.channels;
    const int tap = j / s.channels;
    double sum = 0, bias = 0;

    for (int first = 0; first < s.n; first += SEEN_ONCE) {
        const int count = s.n - first < SEEN_ONCE ? s.n - first : SEEN_ONCE;
        __syncthreads();
        if ((int)threadIdx.x < count) {
            const int64_t at = (int64_t)(first + threadIdx.x) * s.filters + o;
            places[threadIdx.x] = index[at];
            flows[threadIdx.x] = index[at] >= 0 ? number(dy[at]) : 0;
        }
        __syncthreads();
        for (int n0 = 0; n0 < count; n0 += SEEN_AHEAD) {
            float seen[SEEN_AHEAD];
#pragma unroll
            for (int k = 0; k < SEEN_AHEAD; k++) {
                const int place = n0 + k < count ? places[n0 + k] : -1;
                seen[k] =
                    place >= 0 && there && place + tap < s.tokens
                        ? number(x[((int64_t)(first + n0 + k) * s.tokens + place) * s.channels +
                                   j])
                        : 0;
            }
#pragma unroll
            for (int k = 0; k < SEEN_AHEAD; k++) {
                const double flow = n0 + k < count ? (double)flows[n0 + k] : 0;
                sum = fma(flow, (double)seen[k], sum);
                bias += flow;
            }
        }
    }
    if (there)
        dw[(int64_t)j * s.filters + o] = (float)sum;
    if (db && j == 0)
        db[o] = (float)bias;
}

template <class T> static void launch_grad_weight(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct sequences s = sequences_of(&p->in[0].shape, &p->out[0].shape);
    const dim3 grid((unsigned)s.filters, blocks_of((int64_t)s.taps * s.channels, THREADS));

    add_seen<T><<<grid, THREADS, 0, stream_of(call)>>>(
        s, (const T *)call->in[0], (const T *)call->in[1], (const int32_t *)call->in[2],
        (float *)call->out[0], p->n_out > 1 ? (float *)call->out[1] : NULL);
    stream_check(call->stream, "conv1d_max_grad_weight");
}

static void run_conv1d_max_grad_weight(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_grad_weight, call);
}

extern "C" const struct kernel cuda_conv1d_max_rows[] = {
    { "conv1d_max", "own", NULL, conv1d_max_scratch, NULL, NULL, run_conv1d_max },
    { "conv1d_max_grad_input", "own", NULL, grad_input_scratch, NULL, NULL,
      run_conv1d_max_grad_input },
    { "conv1d_max_grad_weight", "own", NULL, NULL, NULL, NULL, run_conv1d_max_grad_weight },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
