/* SPDX-License-Identifier: MIT */
/* norm_depthwise.cu - depthwise convolutions of 3 x 3 that normalize what they read, and all their gradients at once.
 *
 * Memory bounds them, but not by far, so an element should cost few instructions. A thread has two channels of four columns
 * side by side and goes down an image: what it reads of a row it converts and normalizes once for three rows of windows, and four columns
 * of y need six of x (nine with stride 2). The next row is on its way meanwhile.
 *
 * Backward goes down x with the rows of dy around it: each product of a tap's places serves dx in one direction and dw in the
 * other. The normalized x is made again for dw, and tells what the activation let through; dx leaves as what flows into x
 * through the normalization alone (graph/op_norm_conv.c), with its sums for the norm's numbers. Threads of a block add these and
 * dw's in order, a second launch adds parts (column.cuh).
 */
#include "kernel/cuda/column.cuh"

enum { SIDE = 3, NINE = SIDE * SIDE, COLS = 4, PAIR = 2, LANES = 128, PART_BLOCKS = 264 };

/* y has oh rows of ow pixels. */
struct depthwise {
    int n, c, h, w, oh, ow;
    int pairs, groups; /* of channels; of COLS columns */
};

/* x and w are shapes (N,C,H,W) and (O,C/groups,kh,kw); columns are grouped along `along`. */
static struct depthwise depthwise_of(const struct kernel_problem *p, const struct shape *x,
                                     bool by_output)
{
    const int stride = p->attrs.stride[0];
    struct depthwise g = {};

    g.n = (int)x->dim[0];
    g.c = (int)x->dim[1];
    g.h = (int)x->dim[2];
    g.w = (int)x->dim[3];
    g.oh = (g.h - 1) / stride + 1;
    g.ow = (g.w - 1) / stride + 1;
    g.pairs = g.c / PAIR;
    g.groups = ((by_output ? g.ow : g.w) + COLS - 1) / COLS;
    return g;
}

static bool is_depthwise(const struct kernel_problem *p, const struct shape *x,
                         const struct shape *w)
{
    const struct attrs *a = &p->attrs;

    return a->groups > 1 && a->groups == x->dim[1] && w->dim[0] == x->dim[1] &&
           w->dim[1] == 1 && w->dim[2] == SIDE && w->dim[3] == SIDE && a->pad[0] == 1 &&
           a->pad[1] == 1 && a->stride[0] == a->stride[1] && a->stride[0] <= 2 &&
           x->dim[1] % PAIR == 0 &&
           x->dim[0] <= INT_MAX && /* places and threads have 32 bits */
           shape_count(x) / x->dim[0] < INT_MAX && shape_count(x) / PAIR < UINT32_MAX;
}

template <class T> struct alignas(PAIR * sizeof(T)) pair {
    T x[PAIR];
};

/* The norm of two channels: a number and what it was before. */
struct norm {
    const float *gamma, *beta, *saved;
    float low, high; /* between which the activation keeps what it is given */
};

static struct norm norm_of(const struct kernel_call *call, int first)
{
    const enum activation activation = call->problem->attrs.activation;
    const struct norm n = { (const float *)call->in[first], (const float *)call->in[first + 1],
                            (const float *)call->in[first + 2],
                            activation == ACTIVATION_NONE ? -INFINITY : 0,
                            activation == ACTIVATION_RELU6 ? 6 : INFINITY };
    return n;
}

struct of_pair {
    float mean[PAIR], scale[PAIR], shift[PAIR];
};

__device__ __forceinline__ struct of_pair numbers_of(const struct norm &n, int channel, int c)
{
    struct of_pair out;

#pragma unroll
    for (int k = 0; k < PAIR; k++) {
        out.mean[k] = n.saved[channel + k];
        out.scale[k] = n.gamma[channel + k] * n.saved[c + channel + k];
        out.shift[k] = n.beta[channel + k];
    }
    return out;
}

/* As wherever a batch norm is made, so that all agree on what is cut off. */
__device__ __forceinline__ float normalized(const struct of_pair &o, int k, float x)
{
    return fmaf(x - o.mean[k], o.scale[k], o.shift[k]);
}

/* The number, or zero: bits are all set or none. */
__device__ __forceinline__ float masked(float x, unsigned bits)
{
    return __uint_as_float(__float_as_uint(x) & bits);
}

template <class T>
__device__ __forceinline__ void take_taps(float taps[NINE][PAIR], const T *w, int c)
{
#pragma unroll
    for (int i = 0; i < NINE; i++) {
        const pair<T> in = *(const pair<T> *)(w + i * c);
#pragma unroll
        for (int k = 0; k < PAIR; k++)
            taps[i][k] = number(in.x[k]);
    }
}

/* N columns side by side, of which some may lie beside the image: for these the nearest one is read, and `bits` of it are zero. If
 * it is FULL, only the first LEFT and the last RIGHT may, which the compiler makes use of. */
template <int N> struct columns {
    int offset[N];
    unsigned bits[N];
};

template <int N, bool FULL, int LEFT, int RIGHT>
__device__ __forceinline__ struct columns<N> columns_from(int first, int end, int c) {
    struct columns<N> out;

#pragma unroll
    for (int i = 0; i < N; i++) {
        const bool is_inside = FULL && i >= LEFT && i < N - RIGHT;
        const int column = first + i, last = column < end ? column : end - 1;
        out.offset[i] = (is_inside ? column : last < 0 ? 0 : last) * c;
        out.bits[i] = is_inside || (column >= 0 && column < end) ? ~0U : 0;
    }
    return out;
}

/* A row as it lies in memory. */
template <class T, int N>
__device__ __forceinline__ void take_row(pair<T> to[N], const T *row,
                                         const struct columns<N> &columns)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = *(const pair<T> *)(row + columns.offset[i]);
}

/* Forward ------------------------------------------------------------------------------- */

template <class T>
__device__ __forceinline__ void give_row(T *row, const float sums[COLS][PAIR],
                                         const struct columns<COLS> &columns)
{
#pragma unroll
    for (int q = 0; q < COLS; q++) {
        pair<T> out;
#pragma unroll
        for (int k = 0; k < PAIR; k++)
            put(&out.x[k], sums[q][k]);
        if (columns.bits[q])
            *(pair<T> *)(row + columns.offset[q]) = out;
    }
}

/* sums += a row under the row's three taps */
template <int STRIDE, int N>
__device__ __forceinline__ void add_taps(float sums[COLS][PAIR], const float row[N][PAIR],
                                         const float taps[NINE][PAIR], int of)
{
#pragma unroll
    for (int q = 0; q < COLS; q++) {
#pragma unroll
        for (int j = 0; j < SIDE; j++) {
#pragma unroll
            for (int k = 0; k < PAIR; k++)
                sums[q][k] = fmaf(row[q * STRIDE + j][k], taps[of * SIDE + j][k], sums[q][k]);
        }
    }
}

/* sums[i] are of the row of y whose window's last row but i is the next one. */
template <class T, int STRIDE, bool FULL>
__global__ void __launch_bounds__(THREADS, 3)
    slide(struct depthwise g, const T *x, const T *w, struct norm n, T *y)
{
    enum { N = STRIDE * (COLS - 1) + SIDE };
    const unsigned at = blockIdx.x * THREADS + threadIdx.x, strip = at / (unsigned)g.pairs;
    const int channel = (int)(at - strip * (unsigned)g.pairs) * PAIR;
    const int image = (int)(strip / (unsigned)g.groups),
              column = (int)(strip - (unsigned)image * (unsigned)g.groups) * COLS;
    float taps[NINE][PAIR], row[N][PAIR], sums[SIDE][COLS][PAIR] = {};
    pair<T> next[N];

    if (image >= g.n)
        return;
    const struct columns<N> seen =
        columns_from<N, FULL, 1, STRIDE == 1>(column * STRIDE - 1, g.w, g.c);
    const struct columns<COLS> made = columns_from<COLS, FULL, 0, 0>(column, g.ow, g.c);
    const T *from = x + (int64_t)image * g.h * g.w * g.c + channel;
    T *to = y + (int64_t)image * g.oh * g.ow * g.c + channel;
    const struct of_pair own = numbers_of(n, channel, g.c);
    take_taps(taps, w + channel, g.c);
    take_row<T, N>(next, from, seen);
    for (int r = 0; r < g.h; r++) {
#pragma unroll
        for (int i = 0; i < N; i++) {
#pragma unroll
            for (int k = 0; k < PAIR; k++)
                row[i][k] =
                    masked(between(n.low, normalized(own, k, number(next[i].x[k])), n.high),
                           seen.bits[i]);
        }
        from += r + 1 < g.h ? g.w * g.c : 0; /* after the last row, it comes once more */
        take_row<T, N>(next, from, seen);
        if (STRIDE == 1) {
            add_taps<STRIDE, N>(sums[0], row, taps, 2);
            add_taps<STRIDE, N>(sums[1], row, taps, 1);
            add_taps<STRIDE, N>(sums[2], row, taps, 0);
            if (r > 0) {
                give_row(to, sums[0], made);
                to += g.ow * g.c;
            }
#pragma unroll
            for (int q = 0; q < COLS; q++) {
#pragma unroll
                for (int k = 0; k < PAIR; k++) {
                    sums[0][q][k] = sums[1][q][k];
                    sums[1][q][k] = sums[2][q][k];
                    sums[2][q][k] = 0;
                }
            }
        } else if (r % 2 == 0) {
            add_taps<STRIDE, N>(sums[0], row, taps, 1);
        } else {
            add_taps<STRIDE, N>(sums[0], row, taps, 2);
            give_row(to, sums[0], made);
            to += g.ow * g.c;
#pragma unroll
            for (int q = 0; q < COLS; q++) {
#pragma unroll
                for (int k = 0; k < PAIR; k++)
                    sums[0][q][k] = 0;
            }
            add_taps<STRIDE, N>(sums[0], row, taps, 0);
        }
    }
    if (STRIDE == 1 || g.h % 2 == 1)
        give_row(to, sums[0], made);
}

template <class T, int STRIDE, bool FULL>
static void launch_slide(const struct kernel_call *call, const struct depthwise &g)
{
    slide<T, STRIDE, FULL><<<blocks_of((int64_t)g.n * g.groups * g.pairs, THREADS), THREADS, 0,
                             stream_of(call)>>>(
        g, (const T *)call->in[0], (const T *)call->in[1], norm_of(call, 2), (T *)call->out[0]);
}

template <class T> static void launch_forward(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct depthwise g = depthwise_of(p, &p->in[0].shape, true);
    const int stride = p->attrs.stride[0];

    if (stride == 1 && g.w % COLS == 0)
        launch_slide<T, 1, true>(call, g);
    else if (stride == 1)
        launch_slide<T, 1, false>(call, g);
    else if (g.w % (2 * COLS) == 0)
        launch_slide<T, 2, true>(call, g);
    else
        launch_slide<T, 2, false>(call, g);
    stream_check(call->stream, "norm_conv2d");
}

/* Backward ------------------------------------------------------------------------------ */

/* What is summed up of a channel: dw's nine, d, and d times x around the mean. */
enum { OF_D = NINE, OF_X, SUMS };

/* How threads of a block lie: lanes along the pairs of channels, strips beside each other. */
struct lanes {
    int along, strips, blocks; /* blocks along the channels */
    int64_t each, parts;       /* strips of a part */
};

/* As many blocks along the channels as leave the fewest threads of a block without work: registers allow for two blocks at a
 * time, however small. */
static int blocks_along(int pairs)
{
    const int least = (pairs + LANES - 1) / LANES;
    int best = least, most = 0;

    for (int blocks = least; blocks == least || pairs / blocks >= WARP; blocks++) {
        const int along = (pairs + blocks - 1) / blocks;
        const int used = THREADS / along * pairs / blocks;
        if (used > most) {
            most = used;
            best = blocks;
        }
    }
    return best;
}

static struct lanes lanes_of(const struct depthwise *g)
{
    const int blocks = blocks_along(g->pairs), along = (g->pairs + blocks - 1) / blocks;
    const int strips = THREADS / along;
    const int64_t all = (int64_t)g->n * g->groups,
                  most = PART_BLOCKS / blocks > 1 ? PART_BLOCKS / blocks : 1;
    const int64_t each = ((all + most - 1) / most + strips - 1) / strips * strips;
    const struct lanes l = { along, strips, blocks, each, (all + each - 1) / each };

    return l;
}

/* Rows of dy that rows of x see, and columns. */
template <int STRIDE> struct around {
    enum {
        ROWS = STRIDE == 1 ? SIDE : 2,
        N = STRIDE == 1 ? COLS + 2 : COLS / 2 + 1,
        BEFORE = STRIDE == 1, /* rows and columns before x's */
    };
};

template <class T, int N>
__device__ __forceinline__ void numbers_from(float to[N][PAIR], const pair<T> from[N],
                                             const struct columns<N> &columns, unsigned bits)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
#pragma unroll
        for (int k = 0; k < PAIR; k++)
            to[i][k] = masked(number(from[i].x[k]), columns.bits[i] & bits);
    }
}

/* dw, dgamma, dbeta and dsaved of a channel. */
struct finish_depthwise {
    float *dw, *dgamma, *dbeta, *dsaved;
    const float *gamma, *saved;
    int64_t channels;
    __device__ void operator()(int64_t c, const double sums[SUMS]) const
    {
        const double rstd = (double)saved[channels + c], scale = (double)gamma[c] * rstd;

        for (int tap = 0; tap < NINE; tap++)
            dw[tap * channels + c] = (float)sums[tap];
        dgamma[c] = (float)(sums[OF_X] * rstd);
        dbeta[c] = (float)sums[OF_D];
        dsaved[c] = (float)(-scale * sums[OF_D]);
        dsaved[channels + c] = (float)((double)gamma[c] * sums[OF_X]);
    }
};

template <class T, int STRIDE, bool FULL>
__global__ void __launch_bounds__(THREADS, 2)
    slide_back(struct depthwise g, struct lanes l, const T *dy, const T *w, const T *x,
               struct norm n, T *dx, double *partial)
{
    typedef struct around<STRIDE> A;
    __shared__ float mine[THREADS * PAIR];
    const int lane = (int)(blockIdx.x * blockDim.x + threadIdx.x), channel = lane * PAIR;
    const int64_t all = (int64_t)g.n * g.groups, part = blockIdx.y,
                  end = (part + 1) * l.each < all ? (part + 1) * l.each : all;
    float sums[SUMS][PAIR] = {}, taps[NINE][PAIR];
    const bool is_there = lane < g.pairs;
    struct of_pair own;

    if (is_there) {
        own = numbers_of(n, channel, g.c);
        take_taps(taps, w + channel, g.c);
    }
    for (int64_t strip = part * l.each + threadIdx.y; is_there && strip < end;
         strip += blockDim.y) {
        const int image = (int)(strip / g.groups),
                  column = (int)(strip - (int64_t)image * g.groups) * COLS;
        const struct columns<A::N> seen =
            columns_from<A::N, FULL, A::BEFORE, 1>(column / STRIDE - A::BEFORE, g.ow, g.c);
        const struct columns<COLS> there = columns_from<COLS, FULL, 0, 0>(column, g.w, g.c);
        const T *flows = dy + (int64_t)image * g.oh * g.ow * g.c + channel;
        int64_t pixel = (int64_t)image * g.h * g.w * g.c + channel;
        float flow[A::ROWS][A::N][PAIR] = {};
        pair<T> next[A::N], here[COLS];

        take_row<T, A::N>(next, flows, seen);
        numbers_from<T, A::N>(flow[A::ROWS - 1], next, seen, ~0U);
        flows += g.oh > 1 ? g.ow * g.c : 0;
        take_row<T, A::N>(next, flows, seen);
        take_row<T, COLS>(here, x + pixel, there);
        for (int r = 0; r < g.h; r += STRIDE) { /* the next row of dy comes, the first leaves */
            const int u = r / STRIDE;
#pragma unroll
            for (int i = 0; i + 1 < A::ROWS; i++) {
#pragma unroll
                for (int v = 0; v < A::N; v++) {
#pragma unroll
                    for (int k = 0; k < PAIR; k++)
                        flow[i][v][k] = flow[i + 1][v][k];
                }
            }
            numbers_from<T, A::N>(flow[A::ROWS - 1], next, seen, u + 1 < g.oh ? ~0U : 0);
            flows += u + 2 < g.oh ? g.ow * g.c : 0;
            take_row<T, A::N>(next, flows, seen);
#pragma unroll
            for (int p = 0; p < STRIDE; p++) {
                if (r + p >= g.h)
                    break;
                float now[COLS][PAIR], out[COLS][PAIR];
                numbers_from<T, COLS>(now, here, there, ~0U);
                const int64_t after = pixel + (r + p + 1 < g.h ? g.w * g.c : 0);
                take_row<T, COLS>(here, x + after, there);
#pragma unroll
                for (int q = 0; q < COLS; q++) {
#pragma unroll
                    for (int k = 0; k < PAIR; k++) {
                        const float before = normalized(own, k, now[q][k]);
                        const float a = masked(between(n.low, before, n.high), there.bits[q]);
                        const unsigned open =
                            (before > n.low) & (before < n.high) ? there.bits[q] : 0;
                        float da = 0;
#pragma unroll
                        for (int tap = 0; tap < NINE; tap++) {
                            const int i = p + 1 - tap / SIDE, j = q + 1 - tap % SIDE;
                            if (i % STRIDE != 0 || j % STRIDE != 0)
                                continue;
                            const float d =
                                flow[i / STRIDE + A::BEFORE][j / STRIDE + A::BEFORE][k];
                            da = fmaf(d, taps[tap][k], da);
                            sums[tap][k] = fmaf(d, a, sums[tap][k]);
                        }
                        const float d = masked(da, open);
                        sums[OF_D][k] += d;
                        sums[OF_X][k] = fmaf(d, now[q][k] - own.mean[k], sums[OF_X][k]);
                        out[q][k] = d * own.scale[k];
                    }
                }
                give_row(dx + pixel, out, there);
                pixel = after;
            }
        }
    }

    /* Of the block, in the order of threads; a part's numbers lie like those of columns. */
    const int width = (int)blockDim.x * PAIR;
    const int64_t begin = (int64_t)blockIdx.x * width;
    const int thread = (int)(threadIdx.y * blockDim.x + threadIdx.x);
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
        __syncthreads();
        mine[thread * PAIR] = sums[s][0];
        mine[thread * PAIR + 1] = sums[s][1];
        __syncthreads();
        for (int i = thread; i < width; i += (int)(blockDim.x * blockDim.y)) {
            double sum = 0;
            for (int row = 0; row < (int)blockDim.y; row++)
                sum += (double)mine[row * width + i];
            if (begin + i < g.c)
                partial[(part * SUMS + s) * g.c + begin + i] = sum;
        }
    }
}

static size_t backward_scratch(const struct kernel_problem *p)
{
    const struct depthwise g = depthwise_of(p, &p->in[2].shape, false);

    return (size_t)(lanes_of(&g).parts * SUMS * g.c) * sizeof(double);
}

template <class T, int STRIDE, bool FULL>
static void launch_slide_back(const struct kernel_call *call, const struct depthwise &g)
{
    const struct lanes l = lanes_of(&g);
    const struct norm n = norm_of(call, 3);
    const struct finish_depthwise finish = { (float *)call->out[1],
                                             (float *)call->out[2],
                                             (float *)call->out[3],
                                             (float *)call->out[4],
                                             n.gamma,
                                             n.saved,
                                             g.c };
    double *partial = (double *)call->scratch;
    const dim3 grid((unsigned)l.blocks, (unsigned)l.parts),
        block((unsigned)l.along, (unsigned)l.strips);

    slide_back<T, STRIDE, FULL><<<grid, block, 0, stream_of(call)>>>(
        g, l, (const T *)call->in[0], (const T *)call->in[1], (const T *)call->in[2], n,
        (T *)call->out[0], partial);
    /* Eleven sums of a channel are too many for blocks that come last. */
    launch_finish<SUMS>(call->stream, finish, g.c, l.parts, (const double *)partial);
}

template <class T> static void launch_backward(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct depthwise g = depthwise_of(p, &p->in[2].shape, false);
    const bool is_full = g.w % COLS == 0;

    if (p->attrs.stride[0] == 1 && is_full)
        launch_slide_back<T, 1, true>(call, g);
    else if (p->attrs.stride[0] == 1)
        launch_slide_back<T, 1, false>(call, g);
    else if (is_full)
        launch_slide_back<T, 2, true>(call, g);
    else
        launch_slide_back<T, 2, false>(call, g);
    stream_check(call->stream, "norm_conv2d_grad");
}

/* The ops ------------------------------------------------------------------------------- */

static bool forward_can_run(const struct kernel_problem *p)
{
    return is_depthwise(p, &p->in[0].shape, &p->in[1].shape);
}

static bool backward_can_run(const struct kernel_problem *p)
{
    return is_depthwise(p, &p->in[2].shape, &p->in[1].shape);
}

static void run_forward(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_forward, call);
}

static void run_backward(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_backward, call);
}

extern "C" const struct kernel cuda_norm_depthwise_rows[] = {
    { "norm_conv2d", "depthwise", forward_can_run, NULL, NULL, NULL, run_forward },
    { "norm_conv2d_grad", "depthwise", backward_can_run, backward_scratch, NULL, NULL,
      run_backward },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
