/* SPDX-License-Identifier: MIT */
/* update.cu - the optimizers' updates and sums over flat ranges, a launch each.
 *
 * The same operations in the same order as cpu/reference_update.c, which without contraction are the same
 * bits. The numbers of a step are read from memory, so that a captured launch has those of its step. Adam
 * reads four vectors and writes three. Where a step draws, new weights become bf16 by chance (precision.h).
 */
#include "kernel/cuda/philox.cuh"

struct range {
    float *param;
    const float *grad;
    float *m, *v, *out;
    void *half;
    bool is_f16; /* else bf16 */
    size_t count;
    const uint8_t *marks;
    size_t width;
    size_t at;
    const struct device_origin *origins;
    size_t n_origins;
};

/* What of attrs an update looks at. */
struct rates {
    float momentum, weight_decay, beta1, beta2, epsilon;
    bool nesterov, decoupled;
};

__device__ __forceinline__ float momentum_of(float g, const struct range &r,
                                             const struct rates &a, bool first, size_t i)
{
    if (a.momentum == 0)
        return g;
    const float m = first ? g : a.momentum * r.m[i] + g;
    r.m[i] = m;
    return a.nesterov ? g + a.momentum * m : m;
}

struct sgd {
    __device__ void operator()(const struct range &r, const struct rates &a,
                               const struct kernel_update_step &s, size_t i) const
    {
        const float g = s.scale * r.grad[i] + a.weight_decay * r.param[i];
        r.param[i] = r.param[i] - s.lr * momentum_of(g, r, a, s.first, i);
    }
};

struct lars {
    __device__ void operator()(const struct range &r, const struct rates &a,
                               const struct kernel_update_step &s, size_t i) const
    {
        const float g = s.trust * (s.scale * r.grad[i] + a.weight_decay * r.param[i]);
        r.param[i] = r.param[i] - s.lr * momentum_of(g, r, a, s.first, i);
    }
};

struct adam {
    __device__ void operator()(const struct range &r, const struct rates &a,
                               const struct kernel_update_step &s, size_t i) const
    {
        const float rest1 = 1 - a.beta1, rest2 = 1 - a.beta2, rate = s.lr * s.correction1;
        float p = r.param[i], g = s.scale * r.grad[i];

        if (a.decoupled)
            p = p - s.lr * a.weight_decay * p;
        else
            g = g + a.weight_decay * p;
        const float m = a.beta1 * r.m[i] + rest1 * g;
        const float v = a.beta2 * r.v[i] + rest2 * g * g;
        r.m[i] = m;
        r.v[i] = v;
        r.param[i] = p - rate * m / (sqrtf(v * s.correction2) + a.epsilon);
    }
};

struct average {
    __device__ void operator()(const struct range &r, const struct rates &a,
                               const struct kernel_update_step &, size_t i) const
    {
        r.param[i] = a.momentum * r.grad[i] + (1 - a.momentum) * r.param[i];
    }
};

struct lamb_direct {
    __device__ void operator()(const struct range &r, const struct rates &a,
                               const struct kernel_update_step &s, size_t i) const
    {
        const float rest1 = 1 - a.beta1, rest2 = 1 - a.beta2, g = s.scale * r.grad[i];
        const float m = a.beta1 * r.m[i] + rest1 * g;
        const float v = a.beta2 * r.v[i] + rest2 * g * g;

        r.m[i] = m;
        r.v[i] = v;
        r.out[i] = s.correction1 * m / (sqrtf(v * s.correction2) + a.epsilon) +
                   a.weight_decay * r.param[i];
    }
};

struct lamb {
    __device__ void operator()(const struct range &r, const struct rates &,
                               const struct kernel_update_step &s, size_t i) const
    {
        const float rate = s.lr * s.trust;
        r.param[i] = r.param[i] - rate * r.grad[i];
    }
};

/* Does it make weights, and are these trained? */
template <class F> struct makes {
    enum { PARAM = true, WEIGHTS = true };
};
template <> struct makes<lamb_direct> {
    enum { PARAM = false, WEIGHTS = false };
};
template <> struct makes<average> {
    enum { PARAM = true, WEIGHTS = false };
};

/* kernel_draw_bf16 by kernel_rounding_word, of element i. */
__device__ static float drawn(float x, const struct range &r,
                              const struct kernel_update_step &s, size_t i)
{
    const uint32_t bits = __float_as_uint(x);
    const uint64_t place = r.at + i;
    size_t of = 0;

    if ((bits & 0x7f800000U) == 0x7f800000U)
        return __bfloat162float(__float2bfloat16(x));
    for (size_t end = r.n_origins; end - of > 1;) { /* the last that begins here or before */
        const size_t middle = (of + end) / 2;
        if (r.origins[middle].at <= place)
            of = middle;
        else
            end = middle;
    }
    const uint64_t element = place - r.origins[of].at, block = element / 4;
    const uint4 words = philox((s.seed ^ KERNEL_ROUNDING_KEY) + (s.number >> 32),
                               make_uint4((uint32_t)block, r.origins[of].parameter,
                                          (uint32_t)s.number, (uint32_t)(block >> 32)));
    const uint32_t word[4] = { words.x, words.y, words.z, words.w };
    return __uint_as_float((bits + (word[element % 4] >> 16)) & 0xffff0000U);
}

template <class F>
__global__ void update(F f, struct range r, struct rates a,
                       const struct kernel_update_step *step)
{
    const struct kernel_update_step s = *step;
    const size_t i = (size_t)thread_number();

    if (i >= r.count || s.skips || (r.marks && !r.marks[i / r.width]))
        return;
    f(r, a, s, i);
    if (makes<F>::WEIGHTS && s.draws)
        r.param[i] = drawn(r.param[i], r, s, i);
    if (r.half && r.is_f16)
        put((f16 *)r.half + i, r.param[i]);
    else if (r.half)
        put((bf16 *)r.half + i, r.param[i]);
}

template <class F>
static void run_update(struct device_stream *stream, const struct device_range *range,
                       const struct attrs *attrs, const struct kernel_update_step *step)
{
    const struct range r = { range->param,
                             range->grad,
                             range->state[0],
                             range->state[1],
                             range->out,
                             makes<F>::PARAM ? range->half : NULL,
                             range->half_dtype == DTYPE_F16,
                             range->count,
                             range->marks,
                             range->width,
                             range->at,
                             range->origins,
                             range->n_origins };
    const struct rates a = { attrs->momentum,      attrs->weight_decay, attrs->beta1,
                             attrs->beta2,         attrs->epsilon,      attrs->nesterov != 0,
                             attrs->decoupled != 0 };

    if (range->count == 0)
        return;
    update<F><<<blocks_of((int64_t)range->count, THREADS), THREADS, 0, stream->cuda>>>(F(), r,
                                                                                       a, step);
    stream_check(stream, "update");
}

extern "C" const struct device_update cuda_updates[] = {
    { "sgd_update", run_update<sgd> },
    { "adam_update", run_update<adam> },
    { "average_update", run_update<average> },
    { "lars_update", run_update<lars> },
    { "lamb_update", run_update<lamb> },
    { "lamb_direction", run_update<lamb_direct> },
    { NULL, NULL },
};

/* Sums --------------------------------------------------------------------------------- */

__global__ void add_vectors(float *out, const float *a, const float *b, size_t count)
{
    const size_t i = (size_t)thread_number();

    if (i < count)
        out[i] = a[i] + b[i];
}

void cuda_add(struct device_stream *stream, float *out, const float *a, const float *b,
              size_t count)
{
    if (count == 0)
        return;
    add_vectors<<<blocks_of((int64_t)count, THREADS), THREADS, 0, stream->cuda>>>(out, a, b,
                                                                                  count);
    stream_check(stream, "add");
}

/* Of V numbers a thread. */
template <int V>
__global__ void add_up(float *out, const float *parts, size_t n_parts, size_t count,
                       size_t apart)
{
    struct alignas(V * sizeof(float)) numbers {
        float x[V];
    };
    const size_t i = (size_t)thread_number() * V;
    numbers sum = {};

    if (i >= count)
        return;
#pragma unroll 4
    for (size_t part = 0; part < n_parts; part++) {
        const numbers more = *(const numbers *)(parts + part * apart + i);
#pragma unroll
        for (int k = 0; k < V; k++)
            sum.x[k] += more.x[k];
    }
    *(numbers *)(out + i) = sum;
}

void cuda_add_parts(struct device_stream *stream, float *out, const float *parts,
                    size_t n_parts, size_t count, size_t apart)
{
    const bool wide =
        count % AT_ONCE == 0 && apart % AT_ONCE == 0 && is_packed(out) && is_packed(parts);

    if (wide)
        add_up<AT_ONCE>
            <<<blocks_of((int64_t)count, THREADS * AT_ONCE), THREADS, 0, stream->cuda>>>(
                out, parts, n_parts, count, apart);
    else
        add_up<1><<<blocks_of((int64_t)count, THREADS), THREADS, 0, stream->cuda>>>(
            out, parts, n_parts, count, apart);
    stream_check(stream, "add_parts");
}

/* A block has a stretch of one row. */
__global__ void repack(bf16 *to, int64_t to_row, const bf16 *from, int64_t from_row,
                       int64_t from_rows)
{
    const int64_t row = blockIdx.x, step = (int64_t)gridDim.y * blockDim.x;
    const int64_t both = row < from_rows ? (from_row < to_row ? from_row : to_row) : 0;
    const uint16_t *in = (const uint16_t *)from + row * from_row;
    uint16_t *out = (uint16_t *)to + row * to_row;
    const int lead = (uintptr_t)out % 4 / 2; /* what is before the first pair */
    const int64_t pairs = (to_row - lead) / 2, first = (int64_t)blockIdx.y * blockDim.x;
    const bool even = (uintptr_t)(in + lead) % 4 == 0;

#pragma unroll 4
    for (int64_t p = first + threadIdx.x; p < pairs; p += step) {
        const int64_t at = lead + 2 * p;
        uint32_t pair;
        if (even && at + 1 < both)
            pair = *(const uint32_t *)(in + at);
        else
            pair = (at < both ? in[at] : 0) | (at + 1 < both ? (uint32_t)in[at + 1] : 0) << 16;
        *(uint32_t *)(out + at) = pair;
    }
    if (blockIdx.y == 0 && threadIdx.x == 0 && lead)
        out[0] = both > 0 ? in[0] : 0;
    if (blockIdx.y == 0 && threadIdx.x == 0 && lead + 2 * pairs < to_row)
        out[to_row - 1] = to_row - 1 < both ? in[to_row - 1] : 0;
}

void cuda_repack(struct device_stream *stream, void *to, int64_t to_row, int64_t to_rows,
                 const void *from, int64_t from_row, int64_t from_rows)
{
    const dim3 grid((unsigned)to_rows, 4);

    repack<<<grid, THREADS, 0, stream->cuda>>>((bf16 *)to, to_row, (const bf16 *)from, from_row,
                                               from_rows);
    stream_check(stream, "repack");
}

template <class T, class U> __global__ void convert(T *to, const U *from, size_t count)
{
    const size_t i = (size_t)thread_number();

    if (i < count)
        put(&to[i], number(from[i]));
}

template <class T, class U> __global__ void convert_fours(T *to, const U *from, size_t fours)
{
    const size_t i = (size_t)thread_number();

    if (i >= fours)
        return;
    const four<U> in = ((const four<U> *)from)[i];
    four<T> out;
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        put(&out.x[k], number(in.x[k]));
    ((four<T> *)to)[i] = out;
}

template <class T, class U>
static void run_convert(struct device_stream *stream, void *to, const void *from, size_t count)
{
    const size_t fours = count / AT_ONCE;

    if (count % AT_ONCE == 0 && is_aligned((const T *)to) && is_aligned((const U *)from))
        convert_fours<T, U><<<blocks_of((int64_t)fours, THREADS), THREADS, 0, stream->cuda>>>(
            (T *)to, (const U *)from, fours);
    else
        convert<T, U><<<blocks_of((int64_t)count, THREADS), THREADS, 0, stream->cuda>>>(
            (T *)to, (const U *)from, count);
    stream_check(stream, "convert");
}

void cuda_convert(struct device_stream *stream, void *to, enum dtype to_dtype, const void *from,
                  enum dtype from_dtype, size_t count)
{
    if (count == 0)
        return;
    if (to_dtype == DTYPE_BF16 && from_dtype == DTYPE_BF16)
        run_convert<bf16, bf16>(stream, to, from, count);
    else if (to_dtype == DTYPE_F16 && from_dtype == DTYPE_F16)
        run_convert<f16, f16>(stream, to, from, count);
    else if (to_dtype == DTYPE_BF16)
        run_convert<bf16, float>(stream, to, from, count);
    else if (to_dtype == DTYPE_F16)
        run_convert<f16, float>(stream, to, from, count);
    else if (from_dtype == DTYPE_F16)
        run_convert<float, f16>(stream, to, from, count);
    else if (from_dtype == DTYPE_BF16)
        run_convert<float, bf16>(stream, to, from, count);
    else
        run_convert<float, float>(stream, to, from, count);
}

enum { SQUARES_PARTS = 1024, SQUARES_OF = 4096 };

/* How many blocks a sum has. */
static int64_t squares_parts(size_t count)
{
    const int64_t parts = ((int64_t)count + SQUARES_OF - 1) / SQUARES_OF;
    return parts < 1 ? 1 : parts < SQUARES_PARTS ? parts : SQUARES_PARTS;
}

__global__ void sum_squares(const float *data, size_t count, double *parts)
{
    double sum = 0;

    for (size_t i = (size_t)thread_number(); i < count; i += (size_t)gridDim.x * THREADS)
        sum = fma((double)data[i], (double)data[i], sum);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

__global__ void add_squares(const double *parts, int64_t count, double *out)
{
    double sum = 0;

    for (int64_t i = threadIdx.x; i < count; i += THREADS)
        sum += parts[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *out = sum;
}

size_t cuda_sum_squares_bytes(size_t count)
{
    return (size_t)squares_parts(count) * sizeof(double);
}

void cuda_sum_squares(struct device_stream *stream, const float *data, size_t count,
                      double *out, void *scratch)
{
    const int64_t parts = squares_parts(count);

    sum_squares<<<(unsigned)parts, THREADS, 0, stream->cuda>>>(data, count, (double *)scratch);
    add_squares<<<1, THREADS, 0, stream->cuda>>>((const double *)scratch, parts, out);
    stream_check(stream, "sum_squares");
}

/* Norms -------------------------------------------------------------------------------- */

/* A block a piece: a thread has every THREADS-th element, read at once. */
__global__ void __launch_bounds__(THREADS)
    square_pieces(const float *data, const struct device_piece *pieces, double *out)
{
    const struct device_piece piece = pieces[blockIdx.x];
    float own[DEVICE_PIECE / THREADS];
    double sum = 0;

#pragma unroll
    for (int k = 0; k < DEVICE_PIECE / THREADS; k++) {
        const uint32_t i = threadIdx.x + k * THREADS;
        own[k] = i < piece.count ? data[piece.at + i] : 0;
    }
#pragma unroll
    for (int k = 0; k < DEVICE_PIECE / THREADS; k++)
        sum = fma((double)own[k], (double)own[k], sum);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[piece.place] = sum;
}

void cuda_square_pieces(struct device_stream *stream, const float *data,
                        const struct device_piece *pieces, size_t count, double *out)
{
    if (count == 0)
        return;
    square_pieces<<<(unsigned)count, THREADS, 0, stream->cuda>>>(data, pieces, out);
    stream_check(stream, "square_pieces");
}

/* A block a parameter. */
__global__ void __launch_bounds__(THREADS)
    add_places(const __grid_constant__ struct joint_parts places,
               const struct device_squared *params, double *out)
{
    const struct device_squared param = params[blockIdx.x];
    const double sum = joint_total(places, param.first, param.count);

    if (threadIdx.x == 0)
        out[param.number] = sum;
}

void cuda_add_squares(struct device_stream *stream, const struct joint_parts *places,
                      const struct device_squared *params, size_t count, double *out)
{
    if (count == 0)
        return;
    add_places<<<(unsigned)count, THREADS, 0, stream->cuda>>>(*places, params, out);
    stream_check(stream, "add_squares");
}

__global__ void __launch_bounds__(THREADS)
    clip(const __grid_constant__ struct joint_parts squares, size_t count, float max_norm,
         struct kernel_update_step *numbers)
{
    const double sum = joint_total(squares, 0, count);

    if (threadIdx.x > 0)
        return;
    const double factor = (double)max_norm / (sqrt(sum) + 1e-6);
    numbers->scale = factor < 1 ? (float)factor : 1;
}

void cuda_clip(struct device_stream *stream, const struct joint_parts *squares, size_t count,
               float max_norm, struct kernel_update_step *numbers)
{
    clip<<<1, THREADS, 0, stream->cuda>>>(*squares, count, max_norm, numbers);
    stream_check(stream, "clip");
}

__global__ void find_trust(struct device_trust trust, const double *params, const double *moves,
                           size_t count, const struct kernel_update_step *numbers,
                           struct kernel_update_step *out)
{
    const size_t i = (size_t)thread_number();

    if (i >= count)
        return;
    struct kernel_update_step own = *numbers;
    const double weight = sqrt(params[i]);
    double move = sqrt(moves[i]) * (trust.of_gradient ? (double)own.scale : 1);

    if (move > 0)
        move = move + (double)trust.weight_decay * weight;
    own.trust = weight > 0 && move > 0 ? (float)((double)trust.coefficient * weight / move) : 1;
    out[i] = own;
}

void cuda_trust(struct device_stream *stream, const struct device_trust *trust,
                const double *params, const double *moves, size_t count,
                const struct kernel_update_step *numbers, struct kernel_update_step *out)
{
    if (count == 0)
        return;
    find_trust<<<blocks_of((int64_t)count, THREADS), THREADS, 0, stream->cuda>>>(
        *trust, params, moves, count, numbers, out);
    stream_check(stream, "trust");
}

enum { MARK_IDS = 1024, MARK_WORDS = 8192, MARK_THREADS = 1024 };

/* A block has some of the ids and notes which occur in bits, so that a frequent one is marked once by each block; of more
 * rows than there are bits it has those of one stretch after the other. Several may write the same mark, all of them 1. */
__global__ void __launch_bounds__(MARK_THREADS)
    mark_rows(const int32_t *ids, size_t count, size_t rows, uint8_t *marks)
{
    __shared__ uint32_t bits[MARK_WORDS];
    const size_t begin = (size_t)blockIdx.x * MARK_IDS,
                 end = begin + MARK_IDS < count ? begin + MARK_IDS : count;

    for (size_t first = 0; first < rows; first += MARK_WORDS * WARP) {
        const size_t here = rows - first < MARK_WORDS * WARP ? rows - first : MARK_WORDS * WARP;
        const size_t words = (here + WARP - 1) / WARP;
        __syncthreads();
        for (size_t w = threadIdx.x; w < words; w += MARK_THREADS)
            bits[w] = 0;
        __syncthreads();
        for (size_t i = begin + threadIdx.x; i < end; i += MARK_THREADS) {
            const size_t id = ids[i] < 0 ? rows : (size_t)ids[i];
            if (id >= first && id < first + here)
                atomicOr(&bits[(id - first) / WARP], 1U << (id - first) % WARP);
        }
        __syncthreads();
        for (size_t w = threadIdx.x; w < words; w += MARK_THREADS) {
            for (uint32_t left = bits[w]; left != 0; left &= left - 1)
                marks[first + w * WARP + (size_t)__ffs((int)left) - 1] = 1;
        }
    }
}

void cuda_mark_rows(struct device_stream *stream, const int32_t *ids, size_t count, size_t rows,
                    uint8_t *marks)
{
    if (count == 0)
        return;
    mark_rows<<<blocks_of((int64_t)count, MARK_IDS), MARK_THREADS, 0, stream->cuda>>>(
        ids, count, rows, marks);
    stream_check(stream, "mark_rows");
}
