/* SPDX-License-Identifier: MIT */
/* thin_pool.cu - a model's first convolution of images with one channel, 3 x 3, with bias, relu and a max pool of 2 x 2, and the
 * gradient of its weights.
 *
 * What the convolution makes is 32 times as large as what it sees, and four times what the pool leaves, so it lies nowhere. A block has
 * an image in shared memory, black around it. Forward a thread makes eight channels of a pooled pixel of the sixteen numbers that
 * its four windows see; backward it has one channel, whose gradient goes to the window that was the largest: nine sums and the bias's.
 * Warps of a block add these in order, then parts (column.cuh).
 */
#include "kernel/cuda/column.cuh"

enum {
    SIDE = 3,
    NINE = SIDE * SIDE,
    PATCH = SIDE + 1, /* numbers along a side of what four windows see */
    CHANNELS = 8,     /* of a thread, forward */
    SUMS = NINE + 1,
    PARTS = 264,
    CLOSED = 255, /* index of what relu kept back */
    STAGED_MAX = 8192
};

struct thin_pool {
    int n, h, w, o, ph, pw;
};

/* x and w are shapes (N,C,H,W) and (O,C,kh,kw). */
static struct thin_pool thin_pool_of(const struct shape *x, const struct shape *w)
{
    const struct thin_pool g = { (int)x->dim[0], (int)x->dim[2],       (int)x->dim[3],
                                 (int)w->dim[0], (int)(x->dim[2] / 2), (int)(x->dim[3] / 2) };
    return g;
}

/* Numbers of a staged row: even, so that pairs of a patch are read at once. */
__host__ __device__ static inline int staged_row(const struct thin_pool &g)
{
    return (g.w + 2 + 1) / 2 * 2;
}

static bool is_thin_pool(const struct kernel_problem *p, const struct shape *x,
                         const struct shape *w)
{
    const struct attrs *a = &p->attrs;

    if (a->groups > 1 || x->dim[1] != 1 || w->dim[2] != SIDE || w->dim[3] != SIDE ||
        a->stride[0] != 1 || a->stride[1] != 1 || a->pad[0] != 1 || a->pad[1] != 1 ||
        a->window[0] != 2 || a->window[1] != 2 || a->activation > ACTIVATION_RELU)
        return false;
    return w->dim[0] % WARP == 0 && (x->dim[2] + 2) * (x->dim[3] + 3) <= STAGED_MAX &&
           shape_count(x) < INT_MAX;
}

/* An image with a black frame. */
template <class T>
__device__ __forceinline__ void stage(const struct thin_pool &g, const T *image, float *to)
{
    const int row = staged_row(g), count = (g.h + 2) * row;

    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        const int u = i / row - 1, v = i % row - 1;
        to[i] = u >= 0 && u < g.h && v >= 0 && v < g.w ? number(image[u * g.w + v]) : 0;
    }
    __syncthreads();
}

__device__ __forceinline__ void take_patch(float patch[PATCH][PATCH], const float *corner,
                                           int row)
{
#pragma unroll
    for (int i = 0; i < PATCH; i++) {
#pragma unroll
        for (int j = 0; j < PATCH; j += 2) {
            const float2 two = *(const float2 *)(corner + i * row + j);
            patch[i][j] = two.x;
            patch[i][j + 1] = two.y;
        }
    }
}

/* What a thread writes at once. */
template <class T> struct alignas(sizeof(T) < 2 ? 8 : 16) eight {
    T x[CHANNELS];
};

template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    forward(struct thin_pool g, const T *x, const T *w, const float *bias, bool relu, T *y,
            uint8_t *index)
{
    extern __shared__ __align__(16) float staged[];
    const int lanes = g.o / CHANNELS, lane = (int)threadIdx.x % lanes, o = lane * CHANNELS;
    const int row = staged_row(g), pixels = g.ph * g.pw;
    float taps[NINE][CHANNELS], shift[CHANNELS];

#pragma unroll
    for (int c = 0; c < CHANNELS; c++) {
        shift[c] = bias ? bias[o + c] : 0;
#pragma unroll
        for (int i = 0; i < NINE; i++)
            taps[i][c] = number(w[i * g.o + o + c]);
    }
    stage(g, x + (int64_t)blockIdx.x * g.h * g.w, staged);
    for (int pixel = (int)threadIdx.x / lanes; pixel < pixels; pixel += THREADS / lanes) {
        const int u = pixel / g.pw, v = pixel - u * g.pw;
        const int64_t at = ((int64_t)blockIdx.x * pixels + pixel) * g.o + o;
        float patch[PATCH][PATCH], best[CHANNELS];
        eight<uint8_t> places;
        eight<T> out;

        take_patch(patch, staged + 2 * u * row + 2 * v, row);
#pragma unroll
        for (int place = 0; place < 4; place++) {
#pragma unroll
            for (int c = 0; c < CHANNELS; c++) {
                float sum = shift[c];
#pragma unroll
                for (int i = 0; i < NINE; i++)
                    sum = fmaf(patch[place / 2 + i / SIDE][place % 2 + i % SIDE], taps[i][c],
                               sum);
                if (place == 0 || sum > best[c]) {
                    best[c] = sum;
                    places.x[c] = (uint8_t)place;
                }
            }
        }
#pragma unroll
        for (int c = 0; c < CHANNELS; c++) {
            const bool is_closed = relu && best[c] <= 0;
            put(&out.x[c], is_closed ? 0 : best[c]);
            places.x[c] = is_closed ? (uint8_t)CLOSED : places.x[c];
        }
        *(eight<T> *)(y + at) = out;
        *(eight<uint8_t> *)(index + at) = places;
    }
}

static size_t staged_bytes(const struct thin_pool *g)
{
    return (size_t)((g->h + 2) * staged_row(*g)) * sizeof(float);
}

template <class T> static void launch_forward(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct thin_pool g = thin_pool_of(&p->in[0].shape, &p->in[1].shape);

    forward<T><<<(unsigned)g.n, THREADS, staged_bytes(&g), stream_of(call)>>>(
        g, (const T *)call->in[0], (const T *)call->in[1],
        p->n_in > 2 ? (const float *)call->in[2] : NULL, p->attrs.activation == ACTIVATION_RELU,
        (T *)call->out[0], (uint8_t *)call->out[1]);
    stream_check(call->stream, "conv2d_pool");
}

/* dw, and db where it is wanted. */
struct give_sums {
    float *dw, *db;
    int64_t channels;
    __device__ void operator()(int64_t o, const double sums[SUMS]) const
    {
        for (int i = 0; i < NINE; i++)
            dw[i * channels + o] = (float)sums[i];
        if (db)
            db[o] = (float)sums[NINE];
    }
};

/* A lane has a channel, a warp every eighth pixel. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    weights(struct thin_pool g, const T *x, const T *dy, const uint8_t *index, struct place at,
            struct give_sums give)
{
    enum { WARPS = THREADS / WARP };
    extern __shared__ __align__(16) float staged[];
    __shared__ double room[SUMS * WARP];
    __shared__ float all[WARPS][WARP];
    const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
    const int o = (int)blockIdx.x * WARP + lane, row = staged_row(g), pixels = g.ph * g.pw;
    float sums[SUMS] = {};

    for (int n = (int)blockIdx.y; n < g.n; n += (int)gridDim.y) {
        const int64_t first = (int64_t)n * pixels * g.o + o;
        stage(g, x + (int64_t)n * g.h * g.w, staged);
#pragma unroll 2
        for (int pixel = warp; pixel < pixels; pixel += WARPS) {
            const int u = pixel / g.pw, v = pixel - u * g.pw;
            const float d = number(dy[first + (int64_t)pixel * g.o]);
            const int place = index[first + (int64_t)pixel * g.o];
            float patch[PATCH][PATCH], of[4];

            take_patch(patch, staged + 2 * u * row + 2 * v, row);
#pragma unroll
            for (int i = 0; i < 4; i++)
                of[i] = place == i ? d : 0;
#pragma unroll
            for (int i = 0; i < NINE; i++) {
#pragma unroll
                for (int k = 0; k < 4; k++)
                    sums[i] = fmaf(of[k], patch[k / 2 + i / SIDE][k % 2 + i % SIDE], sums[i]);
            }
            sums[NINE] += place == CLOSED ? 0 : d;
        }
        __syncthreads();
    }
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
        all[warp][lane] = sums[s];
        __syncthreads();
        if (warp == 0) {
            double sum = 0;
            for (int i = 0; i < WARPS; i++)
                sum += (double)all[i][lane];
            at.partial[((int64_t)blockIdx.y * SUMS + s) * g.o + o] = sum;
        }
        __syncthreads();
    }
    finish_last<SUMS>(give, at, (int64_t)blockIdx.x * WARP, WARP, room);
}

static int64_t parts_of(const struct thin_pool *g)
{
    return g->n < PARTS ? g->n : PARTS;
}

static size_t weights_scratch(const struct kernel_problem *p)
{
    const struct thin_pool g = thin_pool_of(&p->in[0].shape, &p->out[0].shape);
    const int64_t parts = parts_of(&g);

    return (size_t)((parts + groups_of(parts)) * SUMS * g.o) * sizeof(double);
}

template <class T> static void launch_weights(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct thin_pool g = thin_pool_of(&p->in[0].shape, &p->out[0].shape);
    const struct place at = { g.o, parts_of(&g), (double *)call->scratch,
                              call->stream->counters };
    const struct give_sums give = { (float *)call->out[0],
                                    p->n_out > 1 ? (float *)call->out[1] : NULL, g.o };

    weights<T><<<dim3((unsigned)(g.o / WARP), (unsigned)at.parts), THREADS, staged_bytes(&g),
                 stream_of(call)>>>(g, (const T *)call->in[0], (const T *)call->in[1],
                                    (const uint8_t *)call->in[2], at, give);
    stream_check(call->stream, "conv2d_pool_grad_weight");
}

/* The ops ------------------------------------------------------------------------------- */

/* A block's threads have all channels of a pixel. */
static bool forward_can_run(const struct kernel_problem *p)
{
    const int64_t o = p->in[1].shape.dim[0];

    return is_thin_pool(p, &p->in[0].shape, &p->in[1].shape) &&
           THREADS % (o / CHANNELS > 0 ? o / CHANNELS : 1) == 0;
}

static bool weights_can_run(const struct kernel_problem *p)
{
    return is_thin_pool(p, &p->in[0].shape, &p->out[0].shape) &&
           p->out[0].shape.dim[0] / WARP * (1 + groups_of(PARTS)) <= STREAM_COUNTERS;
}

static void run_forward(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_forward, call);
}

static void run_weights(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_weights, call);
}

extern "C" const struct kernel cuda_thin_pool_rows[] = {
    { "conv2d_pool", "thin", forward_can_run, NULL, NULL, NULL, run_forward },
    { "conv2d_pool_grad_weight", "thin", weights_can_run, weights_scratch, NULL, NULL,
      run_weights },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
