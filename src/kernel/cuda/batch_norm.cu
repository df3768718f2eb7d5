/* SPDX-License-Identifier: MIT */
/* batch_norm.cu - batch normalization with residual and activation, whole and in parts.
 *
 * Images are matrices of `places` rows and a column a channel. Forward: sums of x and its squares in double
 * (x is read once), what a channel needs from them, then y (x is read again). Backward: the sums of d, dy
 * through the activation, and of d times normalized x, then dx. What an activation lets through is seen in y, or, given beta,
 * made again from x, which is there anyway.
 */
#include "kernel/cuda/batch_norm.h"
#include "kernel/cuda/column.cuh"

/* Forward ------------------------------------------------------------------------------ */

struct extents_of_images {
    int64_t images, places, channels;
};

static struct extents_of_images extents_of(const struct kernel_tensor *image)
{
    const struct shape *shape = &image->shape;
    const struct extents_of_images e = { shape->dim[0], shape_count(shape) / shape->dim[1],
                                         shape->dim[1] };
    return e;
}

template <class T> struct add_moments {
    enum { AHEAD = 16 };
    const T *x;
    int64_t channels;
    __device__ void operator()(int64_t row, int64_t c, double sums[2]) const
    {
        const double value = (double)number(x[row * channels + c]);
        sums[0] += value;
        sums[1] = fma(value, value, sums[1]);
    }
    __device__ void begin(int64_t) const
    {
    }
    template <class A> __device__ void four(int64_t row, int64_t c, A sums[2][AT_ONCE]) const
    {
        const ::four<T> in = *(const ::four<T> *)(x + row * channels + c);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const A value = (A)number(in.x[k]);
            sums[0][k] += value;
            sums[1][k] = fma(value, value, sums[1][k]);
        }
    }
};

struct moments {
    double n, mean, squares; /* squares around the mean */
};

__device__ static struct moments moments_of(double n, const double sums[2])
{
    const double mean = sums[0] / n, squares = sums[1] - sums[0] * mean;
    const struct moments m = { n, mean, squares > 0 ? squares : 0 };
    return m;
}

/* Where saved, seen_mean and seen_variance go. */
struct give_moments {
    float *saved, *seen_mean, *seen_variance;
    int64_t channels;
    float epsilon;
    __device__ void give(int64_t c, struct moments m, double share) const
    {
        const double rstd = 1 / sqrt(m.squares / m.n + (double)epsilon);

        saved[c] = (float)m.mean;
        saved[channels + c] = (float)rstd;
        seen_mean[c] = (float)(m.mean * share);
        seen_variance[c] = (float)(m.squares / (m.n > 1 ? m.n - 1 : 1) * share);
    }
};

/* At a channel's end: of batch_norm, with the share that this call has of the step. */
struct finish_norm {
    struct give_moments out;
    double places, images;
    const struct kernel_step *step;
    __device__ void operator()(int64_t c, const double sums[2]) const
    {
        out.give(c, moments_of(places, sums), images * (double)step->inv_batch);
    }
};

struct finish_stats {
    float *stats;
    double places;
    int64_t channels;
    __device__ void operator()(int64_t c, const double sums[2]) const
    {
        const struct moments m = moments_of(places, sums);
        stats[c] = (float)m.mean;
        stats[channels + c] = (float)m.squares;
        stats[2 * channels + c] = (float)m.n;
    }
};

/* y of numbers that are the same at all places of a channel. */
struct normalize {
    const float *gamma, *beta, *mean,
        *spread; /* spread: rstd, or with is_variance the variance */
    bool is_variance;
    float epsilon;
    enum activation activation;
    int64_t count;
    unsigned channels;
};

/* Before residual and activation; scale is rstd times gamma. The same wherever it is made, so that backward knows what was
 * above zero. */
__device__ __forceinline__ float normalized_sum(float x, float mean, float scale, float shift)
{
    return fmaf(x - mean, scale, shift);
}

template <class T>
__global__ void normalize_images(struct normalize n, const T *x, const T *residual, T *y)
{
    const int64_t i = thread_number();

    if (i >= n.count)
        return;
    const unsigned c = (unsigned)left_over(i, n.channels);
    const float rstd = n.is_variance
                           ? (float)(1 / sqrt((double)n.spread[c] + (double)n.epsilon))
                           : n.spread[c];
    float sum = normalized_sum(number(x[i]), n.mean[c], rstd * n.gamma[c], n.beta[c]);
    if (residual)
        sum += number(residual[i]);
    put(&y[i], activate(n.activation, sum));
}

/* Fours of elements, each thread's with the same channels: it takes what it knows of them once. */
enum { PACKS_EACH = 4 };

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* Blocks such that threads that follow each other by all of them have the same channels. */
static unsigned pack_blocks(int64_t packs, int64_t packs_of_row)
{
    const int64_t unit = packs_of_row / common_divisor(packs_of_row, THREADS);
    const int64_t wanted = (packs + THREADS * PACKS_EACH - 1) / (THREADS * PACKS_EACH);

    return (unsigned)((wanted + unit - 1) / unit * unit);
}

template <int N> __device__ __forceinline__ void take_numbers(float to[N], const float *from)
{
#pragma unroll
    for (int k = 0; k < N; k += pack<float>::N) {
        const pack<float> in = *(const pack<float> *)(from + k);
#pragma unroll
        for (int m = 0; m < pack<float>::N; m++)
            to[k + m] = in.x[m];
    }
}

/* Registers for four blocks at a time: memory is as fast as there are loads on their way. */
template <class T, bool RESIDUAL, bool VARIANCE>
__global__ void __launch_bounds__(THREADS, 4)
    normalize_many(struct normalize n, const T *x, const T *residual, T *y)
{
    enum { EACH = RESIDUAL ? PACKS_EACH : 2 * PACKS_EACH };
    const int64_t first = thread_number(), apart = (int64_t)gridDim.x * THREADS,
                  fours = n.count / AT_ONCE;
    const unsigned c = (unsigned)left_over(first * AT_ONCE, n.channels);
    float mean[AT_ONCE], scale[AT_ONCE], slope[AT_ONCE], shift[AT_ONCE];
    four<T> in[EACH], more[RESIDUAL ? EACH : 1];

#pragma unroll
    for (int m = 0; m < EACH; m++) {
        const int64_t at = first + m * apart;
        if (at < fours)
            in[m] = *(const four<T> *)(x + at * AT_ONCE);
        if (RESIDUAL && at < fours)
            more[m] = *(const four<T> *)(residual + at * AT_ONCE);
    }
    take_numbers<AT_ONCE>(mean, n.mean + c);
    take_numbers<AT_ONCE>(scale, n.spread + c);
    take_numbers<AT_ONCE>(slope, n.gamma + c);
    take_numbers<AT_ONCE>(shift, n.beta + c);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        if (VARIANCE)
            scale[k] = (float)(1 / sqrt((double)scale[k] + (double)n.epsilon));
        scale[k] *= slope[k];
    }
#pragma unroll
    for (int m = 0; m < EACH; m++) {
        const int64_t at = first + m * apart;
        four<T> out;
        if (at >= fours)
            continue;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            float sum = normalized_sum(number(in[m].x[k]), mean[k], scale[k], shift[k]);
            if (RESIDUAL)
                sum += number(more[m].x[k]);
            put(&out.x[k], activate(n.activation, sum));
        }
        *(four<T> *)(y + at * AT_ONCE) = out;
    }
}

/* The same of f32, one four a thread. */
template <class T>
__global__ void normalize_fours(struct normalize n, const T *x, const T *residual, T *y)
{
    const int64_t i = thread_number() * AT_ONCE;

    if (i >= n.count)
        return;
    const unsigned c = (unsigned)left_over(i, n.channels);
    const four<T> in = *(const four<T> *)(x + i);
    const four<float> mean = *(const four<float> *)(n.mean + c),
                      spread = *(const four<float> *)(n.spread + c),
                      gamma = *(const four<float> *)(n.gamma + c),
                      beta = *(const four<float> *)(n.beta + c);
    four<T> more = in, out;
    if (residual)
        more = *(const four<T> *)(residual + i);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        const float rstd = n.is_variance
                               ? (float)(1 / sqrt((double)spread.x[k] + (double)n.epsilon))
                               : spread.x[k];
        float sum = normalized_sum(number(in.x[k]), mean.x[k], rstd * gamma.x[k], beta.x[k]);
        if (residual)
            sum += number(more.x[k]);
        put(&out.x[k], activate(n.activation, sum));
    }
    *(four<T> *)(y + i) = out;
}

template <class T, bool VARIANCE>
static void launch_many(const struct kernel_call *call, const struct normalize &n, const T *x,
                        const T *residual, T *y)
{
    const int64_t fours = n.count / AT_ONCE, fours_of_row = n.channels / AT_ONCE;

    if (residual)
        normalize_many<T, true, VARIANCE>
            <<<pack_blocks(fours, fours_of_row), THREADS, 0, stream_of(call)>>>(n, x, residual,
                                                                                y);
    else
        normalize_many<T, false, VARIANCE>
            <<<pack_blocks((fours + 1) / 2, fours_of_row), THREADS, 0, stream_of(call)>>>(
                n, x, NULL, y);
}

template <class T>
static void launch_wide(const struct kernel_call *call, const struct normalize &n, const T *x,
                        const T *residual, T *y)
{
    if constexpr (sizeof(T) == sizeof(float))
        normalize_fours<T>
            <<<blocks_of(n.count, THREADS * AT_ONCE), THREADS, 0, stream_of(call)>>>(
                n, x, residual, y);
    else if (n.is_variance)
        launch_many<T, true>(call, n, x, residual, y);
    else
        launch_many<T, false>(call, n, x, residual, y);
}

template <class T>
static void launch_normalize(const struct kernel_call *call, struct normalize n,
                             const void *residual, void *y)
{
    const T *x = (const T *)call->in[0], *more = (const T *)residual;
    const bool wide = n.channels % AT_ONCE == 0 && is_aligned(x) && is_aligned((T *)y) &&
                      is_aligned(more) && is_aligned(n.mean) && is_aligned(n.spread) &&
                      is_aligned(n.gamma) && is_aligned(n.beta);

    if (wide)
        launch_wide(call, n, x, more, (T *)y);
    else
        normalize_images<T>
            <<<blocks_of(n.count, THREADS), THREADS, 0, stream_of(call)>>>(n, x, more, (T *)y);
    stream_check(call->stream, call->problem->op);
}

static void run_normalize_of(const struct kernel_call *call, struct normalize n,
                             const void *residual)
{
    const struct extents_of_images e = extents_of(&call->problem->in[0]);

    n.gamma = (const float *)call->in[1];
    n.beta = (const float *)call->in[2];
    n.epsilon = call->problem->attrs.epsilon;
    n.activation = call->problem->attrs.activation;
    n.count = e.places * e.channels;
    n.channels = (unsigned)e.channels;
    if (call->problem->in[0].dtype == DTYPE_BF16)
        launch_normalize<bf16>(call, n, residual, call->out[0]);
    else if (call->problem->in[0].dtype == DTYPE_F16)
        launch_normalize<f16>(call, n, residual, call->out[0]);
    else
        launch_normalize<float>(call, n, residual, call->out[0]);
}

static size_t moments_scratch(const struct kernel_problem *p)
{
    return batch_norm_moments_scratch(&p->in[0]);
}

/* Of a gradient's two sums, which are never by tiles. */
static size_t sums_scratch(const struct kernel_problem *p)
{
    const struct extents_of_images e = extents_of(&p->in[0]);

    return column_scratch(e.places, e.channels, 2);
}

template <class T, class G>
static void launch_moments(struct device_stream *stream, const T *x, struct extents_of_images e,
                           G finish, void *scratch)
{
    const struct add_moments<T> add = {
        x, e.channels
    };

    if (e.channels % AT_ONCE == 0 && is_aligned(x))
        sum_columns_wide<2, typename sums_of<T>::type>(stream, add, finish, e.places,
                                                       e.channels, scratch);
    else
        sum_columns<2>(stream, add, finish, e.places, e.channels, scratch);
}

/* A tile's sums as batch_norm.h has them, 64 channels a warp: a lane eight channels of two columns. */
__global__ void sum_tiles(const bf16 *x, int64_t tiles, int side, int channels, float *partial)
{
    const int64_t warp = thread_number() / WARP, tile = warp / (channels / TILE_CHANNELS);
    const int lane = threadIdx.x % WARP, wide = side / TILE_WIDTH;
    const int first = (int)(warp % (channels / TILE_CHANNELS)) * TILE_CHANNELS + lane % 8 * 8;
    const int64_t row = tile / wide * side, apart = (int64_t)side * channels;
    const bf16 *from = x + (row * side + tile % wide * TILE_WIDTH + lane / 8 * 2) * channels;
    float sums[2][8] = {};

    if (tile >= tiles)
        return;
#pragma unroll 8
    for (int i = 0; i < side; i++) {
#pragma unroll
        for (int next = 0; next < 2; next++) {
            const pack<bf16> in =
                *(const pack<bf16> *)(from + i * apart + next * channels + first);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                const float value = number(in.x[k]);
                sums[0][k] += value;
                sums[1][k] = fmaf(value, value, sums[1][k]);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            sums[m][k] += __shfl_xor_sync(~0U, sums[m][k], 8);
            sums[m][k] += __shfl_xor_sync(~0U, sums[m][k], 16);
            if (lane < 8)
                partial[(tile * 2 + m) * channels + first + k] = sums[m][k];
        }
    }
}

/* A channel's sums over all tiles: a thread some, then those of a warp, two by two, then warps. */
template <class G>
__global__ void __launch_bounds__(THREADS)
    finish_tiles(G finish, int64_t channels, int64_t tiles, const float *partial)
{
    __shared__ double all[2][THREADS / WARP];
    const int64_t channel = blockIdx.x;
    double sums[2] = {};

#pragma unroll 8
    for (int64_t tile = threadIdx.x; tile < tiles; tile += THREADS) {
        sums[0] += (double)partial[tile * 2 * channels + channel];
        sums[1] += (double)partial[(tile * 2 + 1) * channels + channel];
    }
    for (int m = 0; m < 2; m++) {
        for (int apart = 1; apart < WARP; apart *= 2)
            sums[m] += __shfl_xor_sync(~0U, sums[m], apart);
        if (threadIdx.x % WARP == 0)
            all[m][threadIdx.x / WARP] = sums[m];
    }
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    for (int m = 0; m < 2; m++) {
        sums[m] = 0;
        for (int warp = 0; warp < THREADS / WARP; warp++)
            sums[m] += all[m][warp];
    }
    finish(channel, sums);
}

template <class G>
static void launch_finish_tiles(struct device_stream *stream, G finish, int64_t channels,
                                int64_t tiles, const float *partial)
{
    finish_tiles<<<(unsigned)channels, THREADS, 0, stream->cuda>>>(finish, channels, tiles,
                                                                   partial);
}

/* Of bf16 images of the convolutions that sum what they make (conv_hopper.cu). */
static bool has_tiles(const struct kernel_tensor *image)
{
    const int64_t *dim = image->shape.dim;

    return image->dtype == DTYPE_BF16 && dim[2] == dim[3] &&
           ((dim[1] == 64 && dim[2] == 32) || (dim[1] == 128 && dim[2] == 16));
}

static int64_t tiles_of(const struct kernel_tensor *image)
{
    return image->shape.dim[0] * (image->shape.dim[3] / TILE_WIDTH);
}

template <class G>
static void take_moments(struct device_stream *stream, const struct kernel_tensor *image,
                         const void *x, G finish, void *scratch)
{
    const struct extents_of_images e = extents_of(image);

    if (has_tiles(image)) {
        const int64_t tiles = tiles_of(image);
        sum_tiles<<<blocks_of(tiles * (e.channels / TILE_CHANNELS), THREADS / WARP), THREADS, 0,
                    stream->cuda>>>((const bf16 *)x, tiles, (int)image->shape.dim[3],
                                    (int)e.channels, (float *)scratch);
        launch_finish_tiles(stream, finish, e.channels, tiles, (const float *)scratch);
    } else if (image->dtype == DTYPE_BF16)
        launch_moments(stream, (const bf16 *)x, e, finish, scratch);
    else if (image->dtype == DTYPE_F16)
        launch_moments(stream, (const f16 *)x, e, finish, scratch);
    else
        launch_moments(stream, (const float *)x, e, finish, scratch);
    stream_check(stream, "moments");
}

static struct finish_norm finish_of(const struct kernel_call *call,
                                    const struct kernel_tensor *image, int first)
{
    const struct extents_of_images e = extents_of(image);
    const struct give_moments out = { (float *)call->out[first], (float *)call->out[first + 1],
                                      (float *)call->out[first + 2], e.channels,
                                      call->problem->attrs.epsilon };
    const struct finish_norm finish = { out, (double)e.places, (double)e.images, call->step };

    return finish;
}

void batch_norm_moments(const struct kernel_call *call, const struct kernel_tensor *image,
                        const void *x, int first)
{
    take_moments(call->stream, image, x, finish_of(call, image, first), call->scratch);
}

void batch_norm_finish_tiles(const struct kernel_call *call, const struct kernel_tensor *image,
                             const float *partial, int first)
{
    launch_finish_tiles(call->stream, finish_of(call, image, first), image->shape.dim[1],
                        tiles_of(image), partial);
    stream_check(call->stream, "moments");
}

size_t batch_norm_moments_scratch(const struct kernel_tensor *image)
{
    const struct extents_of_images e = extents_of(image);

    if (has_tiles(image))
        return (size_t)(tiles_of(image) * 2 * e.channels) * sizeof(float);
    return column_scratch(e.places, e.channels, 2);
}

static void run_batch_norm(const struct kernel_call *call)
{
    const struct kernel_tensor *image = &call->problem->in[0];
    struct normalize n = {};

    batch_norm_moments(call, image, call->in[0], 1);
    n.mean = (const float *)call->out[1];
    n.spread = n.mean + image->shape.dim[1];
    run_normalize_of(call, n, call->problem->n_in > 3 ? call->in[3] : NULL);
}

static void run_batch_norm_stats(const struct kernel_call *call)
{
    const struct kernel_tensor *image = &call->problem->in[0];
    const struct extents_of_images e = extents_of(image);
    const struct finish_stats finish = { (float *)call->out[0], (double)e.places, e.channels };

    take_moments(call->stream, image, call->in[0], finish, call->scratch);
}

static void run_batch_norm_apply(const struct kernel_call *call)
{
    struct normalize n = {};

    n.mean = (const float *)call->in[3];
    n.spread = (const float *)call->in[4];
    n.is_variance = true;
    run_normalize_of(call, n, call->problem->n_in > 5 ? call->in[5] : NULL);
}

static void run_batch_norm_normalize(const struct kernel_call *call)
{
    struct normalize n = {};

    n.mean = (const float *)call->in[3];
    n.spread = n.mean + call->problem->in[0].shape.dim[1];
    run_normalize_of(call, n, call->problem->n_in > 4 ? call->in[4] : NULL);
}

/* Moments of both (Chan, Golub and LeVeque 1983). */
__device__ static struct moments join(struct moments a, struct moments b)
{
    const double n = a.n + b.n, delta = b.mean - a.mean;

    if (b.n == 0)
        return a;
    const struct moments m = { n, a.mean + delta * b.n / n,
                               a.squares + b.squares + delta * delta * a.n * b.n / n };
    return m;
}

enum { LEVELS = 32 };

/* A thread a channel. Subtrees of equal size are joined as soon as both are there: the order of the tree.
 */
__global__ void join_shards(const float *all, const float *own, int64_t shards,
                            int64_t channels, struct give_moments out)
{
    const int64_t c = thread_number();
    struct moments stack[LEVELS];
    int depth = 0;

    if (c >= channels)
        return;
    for (int64_t v = 0; v < shards; v++) {
        const float *stats = all + v * 3 * channels + c;
        struct moments m = { (double)stats[2 * channels], (double)stats[0],
                             (double)stats[channels] };
        for (int64_t joined = v + 1; joined % 2 == 0; joined /= 2)
            m = join(stack[--depth], m);
        stack[depth++] = m;
    }
    struct moments m = stack[--depth];
    while (depth > 0)
        m = join(stack[--depth], m);
    out.give(c, m, (double)own[2 * channels + c] / m.n);
}

static void run_batch_norm_join(const struct kernel_call *call)
{
    const struct shape *all = &call->problem->in[0].shape;
    const struct give_moments out = { (float *)call->out[0], (float *)call->out[1],
                                      (float *)call->out[2], all->dim[2],
                                      call->problem->attrs.epsilon };

    join_shards<<<blocks_of(all->dim[2], WARP), WARP, 0, stream_of(call)>>>(
        (const float *)call->in[0], (const float *)call->in[1], all->dim[0], all->dim[2], out);
    stream_check(call->stream, "batch_norm_join");
}

/* Backward ----------------------------------------------------------------------------- */

/* What tells where an activation let something through. */
enum mask { MASK_NONE, MASK_OUTPUT, MASK_SUM };

/* Four elements that nobody but this thread writes: later rows' are read before what is written of earlier ones. */
template <class T> __device__ __forceinline__ four<T> take_four(const T *from)
{
    if constexpr (sizeof(four<T>) == sizeof(uint2)) {
        const uint2 bits = __ldg((const uint2 *)from);
        return *(const four<T> *)&bits;
    } else {
        const uint4 bits = __ldg((const uint4 *)from);
        return *(const four<T> *)&bits;
    }
}

/* What a gradient is made of. */
template <class T> struct flows {
    const T *dy, *more; /* more: NULL, or to be added to dy */
    const T *x, *y;
    const float *saved, *gamma, *beta;
    T *dresidual; /* or NULL */
    int64_t channels;
    float limit; /* of the activation: what is not below is kept back */
};

/* What is known of four channels. */
struct of_channels {
    float mean[AT_ONCE], scale[AT_ONCE], shift[AT_ONCE];
};

/* Sums over places, of d and of d times x around the mean. */
template <class T, int MASK, bool MORE> struct slopes {
    enum { AHEAD = 4 };
    struct flows<T> f;
    struct of_channels own; /* those that begin was told of */

    /* d at a place. */
    __device__ float through(float dy, float more, float y, float x, float mean, float scale,
                             float shift) const
    {
        const float sum = MASK == MASK_SUM ? normalized_sum(x, mean, scale, shift) : y;
        const float d = MORE ? rounded<T>(dy + more) : dy; /* as add would have left it */
        return MASK == MASK_NONE || (sum > 0 && sum < f.limit) ? d : 0;
    }
    __device__ float through(int64_t i, int64_t c) const
    {
        const float rstd = f.saved[f.channels + c];
        return through(number(f.dy[i]), MORE ? number(f.more[i]) : 0,
                       MASK == MASK_OUTPUT ? number(f.y[i]) : 0, number(f.x[i]), f.saved[c],
                       MASK == MASK_SUM ? rstd * f.gamma[c] : 0,
                       MASK == MASK_SUM ? f.beta[c] : 0);
    }
    __device__ void operator()(int64_t row, int64_t c, double sums[2]) const
    {
        const int64_t i = row * f.channels + c;
        const float d = through(i, c);
        sums[0] += (double)d;
        sums[1] = fma((double)d, (double)(number(f.x[i]) - f.saved[c]), sums[1]);
        if (f.dresidual)
            put(&f.dresidual[i], d);
    }
    __device__ void begin(int64_t c)
    {
        take_numbers<AT_ONCE>(own.mean, f.saved + c);
        if (MASK != MASK_SUM)
            return;
        float gamma[AT_ONCE];
        take_numbers<AT_ONCE>(own.scale, f.saved + f.channels + c);
        take_numbers<AT_ONCE>(gamma, f.gamma + c);
        take_numbers<AT_ONCE>(own.shift, f.beta + c);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            own.scale[k] *= gamma[k];
    }
    template <class A> __device__ void four(int64_t row, int64_t c, A sums[2][AT_ONCE]) const
    {
        const int64_t i = row * f.channels + c;
        const ::four<T> in = take_four(f.dy + i), at = take_four(f.x + i);
        const ::four<T> more = MORE ? take_four(f.more + i) : in,
                        out = MASK == MASK_OUTPUT ? take_four(f.y + i) : in;
        ::four<T> passed;

#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const float d = through(number(in.x[k]), number(more.x[k]), number(out.x[k]),
                                    number(at.x[k]), own.mean[k], own.scale[k], own.shift[k]);
            sums[0][k] += (A)d;
            sums[1][k] = fma((A)d, (A)(number(at.x[k]) - own.mean[k]), sums[1][k]);
            put(&passed.x[k], d);
        }
        if (f.dresidual)
            *(::four<T> *)(f.dresidual + i) = passed;
    }
};

template <class T> static bool is_wide(const struct flows<T> *f)
{
    return f->channels % AT_ONCE == 0 && is_aligned(f->dy) && is_aligned(f->more) &&
           is_aligned(f->x) && is_aligned(f->y) && is_aligned(f->dresidual) &&
           is_aligned(f->saved) && is_aligned(f->gamma) && is_aligned(f->beta);
}

/* dgamma, dbeta; of batch_norm_grad_sums also the table for all shards; both means for spread. */
struct finish_slopes {
    float *dgamma, *dbeta, *table;
    float *means; /* or NULL */
    const float *saved;
    int64_t channels, places;
    __device__ void operator()(int64_t c, const double sums[2]) const
    {
        const double product = sums[1] * (double)saved[channels + c];

        dgamma[c] = (float)product;
        dbeta[c] = (float)sums[0];
        if (means) {
            means[c] = (float)(sums[0] / (double)places);
            means[channels + c] = (float)(product / (double)places);
        }
        if (table) {
            table[c] = (float)product;
            table[channels + c] = (float)sums[0];
            table[2 * channels + c] = (float)places;
        }
    }
};

/* means: of d, then of d times normalized x, a channel each. */
template <class T, class S>
__global__ void spread(S slopes, const float *gamma, const float *means, T *dx, int64_t count)
{
    const int64_t i = thread_number(), channels = slopes.f.channels, c = left_over(i, channels);

    if (i >= count)
        return;
    const float mean = slopes.f.saved[c], rstd = slopes.f.saved[channels + c];
    put(&dx[i], gamma[c] * rstd *
                    (slopes.through(i, c) - means[c] -
                     (number(slopes.f.x[i]) - mean) * (rstd * means[channels + c])));
}

/* The same for channels in fours, of which a thread has several with the same channels. */
template <class T, int MASK, bool MORE>
__global__ void __launch_bounds__(THREADS)
    spread_fours(struct slopes<T, MASK, MORE> slopes, const float *gamma, const float *means,
                 T *dx, int64_t fours)
{
    const struct flows<T> &f = slopes.f;
    const int64_t first = thread_number(), apart = (int64_t)gridDim.x * THREADS;
    const int64_t c = left_over(first * AT_ONCE, f.channels);
    four<T> dy[PACKS_EACH], more[PACKS_EACH], x[PACKS_EACH], y[PACKS_EACH];
    float rstd[AT_ONCE], scale[AT_ONCE], of_d[AT_ONCE], of_x[AT_ONCE];

#pragma unroll
    for (int m = 0; m < PACKS_EACH; m++) {
        const int64_t i = (first + m * apart) * AT_ONCE;
        if (first + m * apart < fours) {
            dy[m] = *(const four<T> *)(f.dy + i);
            x[m] = *(const four<T> *)(f.x + i);
            if (MORE)
                more[m] = *(const four<T> *)(f.more + i);
            if (MASK == MASK_OUTPUT)
                y[m] = *(const four<T> *)(f.y + i);
        }
    }
    slopes.begin(c);
    take_numbers<AT_ONCE>(rstd, f.saved + f.channels + c);
    take_numbers<AT_ONCE>(scale, gamma + c);
    take_numbers<AT_ONCE>(of_d, means + c);
    take_numbers<AT_ONCE>(of_x, means + f.channels + c);
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
        scale[k] *= rstd[k];
        of_x[k] *= rstd[k];
    }
#pragma unroll
    for (int m = 0; m < PACKS_EACH; m++) {
        four<T> out;
        if (first + m * apart >= fours)
            continue;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const float at = number(x[m].x[k]), mean = slopes.own.mean[k];
            const float d = slopes.through(number(dy[m].x[k]), MORE ? number(more[m].x[k]) : 0,
                                           MASK == MASK_OUTPUT ? number(y[m].x[k]) : 0, at,
                                           mean, slopes.own.scale[k], slopes.own.shift[k]);
            put(&out.x[k], scale[k] * (d - of_d[k] - (at - mean) * of_x[k]));
        }
        *(four<T> *)(dx + (first + m * apart) * AT_ONCE) = out;
    }
}

/* Both steps of a gradient, for one kind of slopes. */
template <class T, int MASK, bool MORE> struct gradient {
    static void sum(const struct kernel_call *call, const struct flows<T> *f,
                    struct finish_slopes finish, void *scratch)
    {
        const struct slopes<T, MASK, MORE> slopes = {
            *f,
            {
            }
        };

        if (is_wide(f))
            sum_columns_wide<2, typename sums_of<T>::type>(call->stream, slopes, finish,
                                                           finish.places, f->channels, scratch);
        else
            sum_columns<2>(call->stream, slopes, finish, finish.places, f->channels, scratch);
    }
    static void spread(const struct kernel_call *call, const struct flows<T> *f,
                       const float *gamma, const float *means)
    {
        const struct extents_of_images e = extents_of(&call->problem->in[0]);
        const struct slopes<T, MASK, MORE> slopes = {
            *f,
            {
            }
        };
        const int64_t count = e.places * e.channels;
        T *dx = (T *)call->out[0];

        if (is_wide(f) && is_aligned(dx) && is_aligned(gamma) && is_aligned(means))
            spread_fours<T, MASK, MORE>
                <<<pack_blocks(count / AT_ONCE, e.channels / AT_ONCE), THREADS, 0,
                   stream_of(call)>>>(slopes, gamma, means, dx, count / AT_ONCE);
        else
            ::spread<T><<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(
                slopes, gamma, means, dx, count);
        stream_check(call->stream, call->problem->op);
    }
};

template <class T> static enum mask mask_of(const struct flows<T> *f)
{
    return f->y ? MASK_OUTPUT : f->beta ? MASK_SUM : MASK_NONE;
}

/* STEP of the gradient for the kind of slopes that *f has. */
#define BY_SLOPES(T, f, STEP)                                                                  \
    do {                                                                                       \
        if (mask_of(f) == MASK_OUTPUT && (f)->more)                                            \
            gradient<T, MASK_OUTPUT, true>::STEP;                                              \
        else if (mask_of(f) == MASK_OUTPUT)                                                    \
            gradient<T, MASK_OUTPUT, false>::STEP;                                             \
        else if (mask_of(f) == MASK_SUM && (f)->more)                                          \
            gradient<T, MASK_SUM, true>::STEP;                                                 \
        else if (mask_of(f) == MASK_SUM)                                                       \
            gradient<T, MASK_SUM, false>::STEP;                                                \
        else                                                                                   \
            gradient<T, MASK_NONE, false>::STEP;                                               \
    } while (0)

/* saved and y are the numbers of inputs. */
template <class T>
static struct flows<T> flows_of(const struct kernel_call *call, int saved, int y) {
    struct flows<T> f = {
    };

    f.dy = (const T *)call->in[0];
    f.x = (const T *)call->in[1];
    f.saved = (const float *)call->in[saved];
    f.y = call->problem->n_in > y ? (const T *)call->in[y] : NULL;
    f.channels = call->problem->in[0].shape.dim[1];
    f.limit = call->problem->attrs.activation == ACTIVATION_RELU6 ? 6 : INFINITY;
    return f;
}

/* Scratch: the means, then partial sums. */
static size_t
grad_scratch(const struct kernel_problem *p)
{
    return sums_scratch(p) + (size_t)(2 * p->in[0].shape.dim[1]) * sizeof(double);
}

template <class T> static void launch_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const struct extents_of_images e = extents_of(&p->in[0]);
    const float *gamma = (const float *)call->in[2];
    struct flows<T> f = flows_of<T>(call, 3, 4);
    float *means = (float *)call->scratch;
    const struct finish_slopes finish = {
        (float *)call->out[1], (float *)call->out[2], NULL, means, f.saved, e.channels, e.places
    };

    if (p->n_in > 4 && p->in[4].shape.rank == 1) { /* beta in the place of y */
        f.gamma = gamma;
        f.beta = (const float *)call->in[4];
        f.y = NULL;
    }
    f.more = p->n_in > 5 ? (const T *)call->in[5] : NULL;
    f.dresidual = p->n_out > 3 ? (T *)call->out[3] : NULL;
    BY_SLOPES(T, &f, sum(call, &f, finish, means + 2 * e.channels));
    if (f.dresidual) { /* which is dy through the activation */
        f.dy = f.dresidual;
        f.more = f.y = f.dresidual = NULL;
        f.beta = NULL;
    }
    BY_SLOPES(T, &f, spread(call, &f, gamma, means));
}

static void run_batch_norm_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_grad, call);
}

template <class T> static void launch_grad_sums(const struct kernel_call *call)
{
    const struct extents_of_images e = extents_of(&call->problem->in[0]);
    struct flows<T> f = flows_of<T>(call, 2, 3);
    const struct finish_slopes finish = { (float *)call->out[0],
                                          (float *)call->out[1],
                                          (float *)call->out[2],
                                          NULL,
                                          f.saved,
                                          e.channels,
                                          e.places };

    f.dresidual = call->problem->n_out > 3 ? (T *)call->out[3] : NULL;
    BY_SLOPES(T, &f, sum(call, &f, finish, call->scratch));
    stream_check(call->stream, "batch_norm_grad_sums");
}

static void run_batch_norm_grad_sums(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_grad_sums, call);
}

/* Through statistics that others were given too (batch_norm.h) -------------------------- */

template <class T, int N>
__global__ void flow_back(const T *dz, const T *z, const float *saved, const float *dsaved,
                          T *to, int64_t units, int64_t channels, float inverse_places)
{
    struct alignas(N * sizeof(T)) unit {
        T x[N];
    };
    const int64_t first = thread_number(), apart = (int64_t)gridDim.x * THREADS;
    const int64_t c = left_over(first * N, channels);
    float mean[N], shift[N], slope[N];
    unit flows[PACKS_EACH], at[PACKS_EACH];

#pragma unroll
    for (int m = 0; m < PACKS_EACH; m++) {
        const int64_t i = (first + m * apart) * N;
        if (first + m * apart < units) {
            flows[m] = *(const unit *)(dz + i);
            at[m] = *(const unit *)(z + i);
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float rstd = saved[channels + c + k];
        mean[k] = saved[c + k];
        shift[k] = dsaved[c + k] * inverse_places;
        slope[k] = -dsaved[channels + c + k] * rstd * rstd * rstd * inverse_places;
    }
#pragma unroll
    for (int m = 0; m < PACKS_EACH; m++) {
        unit out;
        if (first + m * apart >= units)
            continue;
#pragma unroll
        for (int k = 0; k < N; k++)
            put(&out.x[k],
                number(flows[m].x[k]) + fmaf(number(at[m].x[k]) - mean[k], slope[k], shift[k]));
        *(unit *)(to + (first + m * apart) * N) = out;
    }
}

template <class T, int N>
static void launch_flow_back(struct device_stream *stream, struct extents_of_images e,
                             const void *dz, const void *z, const float *saved,
                             const float *dsaved, void *to)
{
    const int64_t units = e.places * e.channels / N;

    flow_back<T, N><<<pack_blocks(units, e.channels / N), THREADS, 0, stream->cuda>>>(
        (const T *)dz, (const T *)z, saved, dsaved, (T *)to, units, e.channels,
        (float)(1 / (double)e.places));
}

template <class T>
static void flow_back_of(struct device_stream *stream, struct extents_of_images e,
                         const void *dz, const void *z, const float *saved, const float *dsaved,
                         void *to)
{
    if (e.channels % AT_ONCE == 0 && is_aligned((const T *)dz) && is_aligned((const T *)z) &&
        is_aligned((T *)to))
        launch_flow_back<T, AT_ONCE>(stream, e, dz, z, saved, dsaved, to);
    else
        launch_flow_back<T, 1>(stream, e, dz, z, saved, dsaved, to);
}

void batch_norm_flow_back(struct device_stream *stream, const struct kernel_tensor *image,
                          const void *dz, const void *z, const float *saved,
                          const float *dsaved, void *to)
{
    const struct extents_of_images e = extents_of(image);

    if (image->dtype == DTYPE_BF16)
        flow_back_of<bf16>(stream, e, dz, z, saved, dsaved, to);
    else if (image->dtype == DTYPE_F16)
        flow_back_of<f16>(stream, e, dz, z, saved, dsaved, to);
    else
        flow_back_of<float>(stream, e, dz, z, saved, dsaved, to);
    stream_check(stream, "conv2d_stats_grad");
}

/* Means over all shards, from their tables. */
__global__ void join_sums(const float *all, int64_t shards, int64_t channels, float *means)
{
    const int64_t c = thread_number();
    double sum = 0, product = 0, n = 0;

    if (c >= channels)
        return;
    for (int64_t v = 0; v < shards; v++) {
        const float *table = all + v * 3 * channels + c;
        product += (double)table[0];
        sum += (double)table[channels];
        n += (double)table[2 * channels];
    }
    means[c] = (float)(sum / n);
    means[channels + c] = (float)(product / n);
}

static size_t spread_scratch(const struct kernel_problem *p)
{
    return (size_t)(2 * p->in[0].shape.dim[1]) * sizeof(double);
}

template <class T> static void launch_grad_spread(const struct kernel_call *call)
{
    const int64_t channels = call->problem->in[0].shape.dim[1];
    float *means = (float *)call->scratch;

    join_sums<<<blocks_of(channels, WARP), WARP, 0, stream_of(call)>>>(
        (const float *)call->in[4], call->problem->in[4].shape.dim[0], channels, means);
    const struct flows<T> f = flows_of<T>(call, 3, 5);
    BY_SLOPES(T, &f, spread(call, &f, (const float *)call->in[2], means));
}

static void run_batch_norm_grad_spread(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_grad_spread, call);
}

#define ROW(op, scratch)                                                                       \
    {                                                                                          \
#op, "own", NULL, scratch, NULL, NULL, run_##op                                        \
    }
extern "C" const struct kernel cuda_batch_norm_rows[] = {
    ROW(batch_norm, moments_scratch),
    ROW(batch_norm_grad, grad_scratch),
    ROW(batch_norm_apply, NULL),
    ROW(batch_norm_stats, moments_scratch),
    ROW(batch_norm_join, NULL),
    ROW(batch_norm_normalize, NULL),
    ROW(batch_norm_grad_sums, sums_scratch),
    ROW(batch_norm_grad_spread, spread_scratch),
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
