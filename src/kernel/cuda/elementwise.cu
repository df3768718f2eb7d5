/* SPDX-License-Identifier: MIT */
/* elementwise.cu - ops that look at one element at a time: memory bounds them.
 *
 * A thread has a pack of elements, read and written at once where buffers and counts allow it. Each op reads its
 * inputs once and writes its output once. Where the CPU's reference works in float, the same operations in the
 * same order give its bits.
 */
#include "kernel/cuda/across.h"
#include "kernel/cuda/gelu.cuh"
#include "kernel/cuda/gemm.h"
#include "kernel/cuda/philox.cuh"

/* Maps --------------------------------------------------------------------------------- */

template <class T, class F, bool TWO>
__global__ void map(F f, const T *a, const T *b, T *y, int64_t count, bool wide)
{
    enum { N = pack<T>::N };
    const int64_t at = thread_number() * N;

    if (wide && at + N <= count) {
        const pack<T> p = *(const pack<T> *)(a + at);
        const pack<T> q = TWO ? *(const pack<T> *)(b + at) : p;
        pack<T> r;
#pragma unroll
        for (int i = 0; i < N; i++)
            put(&r.x[i], f.template at<T>(number(p.x[i]), number(q.x[i])));
        *(pack<T> *)(y + at) = r;
        return;
    }
    for (int64_t i = at; i < count && i < at + N; i++)
        put(&y[i], f.template at<T>(number(a[i]), TWO ? number(b[i]) : 0.0F));
}

template <class T, class F, bool TWO> static void run_map(const struct kernel_call *call, F f)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);
    const T *a = (const T *)call->in[0], *b = TWO ? (const T *)call->in[1] : NULL;
    T *y = (T *)call->out[0];
    const bool wide = is_packed(a) && is_packed(y) && (!TWO || is_packed(b));

    map<T, F, TWO><<<blocks_of(count, THREADS * pack<T>::N), THREADS, 0, stream_of(call)>>>(
        f, a, b, y, count, wide);
    stream_check(call->stream, call->problem->op);
}

template <class F, bool TWO> static void by_type(const struct kernel_call *call, F f)
{
    if (call->problem->in[0].dtype == DTYPE_BF16)
        run_map<bf16, F, TWO>(call, f);
    else if (call->problem->in[0].dtype == DTYPE_F16)
        run_map<f16, F, TWO>(call, f);
    else
        run_map<float, F, TWO>(call, f);
}

/* An op: its name, how many inputs, and y of a and b, which are elements of type T. */
#define MAP(op, TWO, expression)                                                               \
    struct f_##op {                                                                            \
        template <class T> __device__ float at(float a, float b) const                         \
        {                                                                                      \
            (void)b;                                                                           \
            return expression;                                                                 \
        }                                                                                      \
    };                                                                                         \
    static void run_##op(const struct kernel_call *call)                                       \
    {                                                                                          \
        by_type<f_##op, TWO>(call, f_##op());                                                  \
    }

__device__ __forceinline__ float normal_distribution(float x)
{
    return 0.5F * erfcf(-x * 0.70710678F);
}

__device__ __forceinline__ float gelu_slope(float x)
{
    return normal_distribution(x) + x * 0.39894228F * expf(-0.5F * x * x);
}

MAP(add, true, a + b)
MAP(relu, false, a < 0 ? 0 : a)
MAP(relu_grad, true, b > 0 ? a : 0)
MAP(relu6, false, a<0 ? 0 : a> 6 ? 6 : a)
MAP(relu6_grad, true, b > 0 && b < 6 ? a : 0)
MAP(sigmoid, false, sigmoid_of(a))
MAP(sigmoid_grad, true, a *(b *(1 - b)))
MAP(tanh, false, tanhf(a))
MAP(tanh_grad, true, a *(1 - b * b))
MAP(gelu, false, a *normal_distribution(a))
MAP(gelu_grad, true, a *gelu_slope(b))
MAP(gelu_tanh, false, a *gelu_share<T>(a))
MAP(gelu_tanh_grad, true, a *gelu_tanh_slope<T>(b))

/* Bias, and the gradient of a squared difference ---------------------------------------- */

/* Extent of the innermost dimension in memory. */
static int64_t columns_of(const struct kernel_tensor *tensor)
{
    const struct shape *shape = &tensor->shape;

    return shape->dim[tensor->layout == LAYOUT_NHWC ? 1 : shape->rank - 1];
}

template <class T>
__global__ void bias(const T *x, const float *b, T *y, int64_t count, unsigned columns)
{
    const int64_t i = thread_number();

    if (i < count)
        put(&y[i], number(x[i]) + b[left_over(i, columns)]);
}

template <class T> static void launch_bias(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);

    bias<T><<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(
        (const T *)call->in[0], (const float *)call->in[1], (T *)call->out[0], count,
        (unsigned)columns_of(&call->problem->in[0]));
    stream_check(call->stream, "bias");
}

static void run_bias(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_bias, call);
}

template <class T>
__global__ void finish(T *c, int64_t c_row, int64_t rows, int64_t columns, const float *b,
                       bool relu)
{
    const int64_t i = thread_number();

    if (i >= rows * columns)
        return;
    const int64_t row = divided(i, columns), column = i - row * columns;
    T *to = &c[row * c_row + column];
    const float sum = b ? number(*to) + b[column] : number(*to);
    put(to, relu && sum < 0 ? 0.0F : sum);
}

/* The same for packs of rows that follow each other. */
__global__ void finish_packs(bf16 *c, int64_t packs, unsigned columns, const float *b,
                             bool relu)
{
    enum { N = pack<bf16>::N, M = pack<float>::N };
    const int64_t i = thread_number();

    if (i >= packs)
        return;
    const unsigned column = (unsigned)left_over(i * N, columns);
    const pack<bf16> in = *(const pack<bf16> *)(c + i * N);
    pack<bf16> out;
#pragma unroll
    for (int k = 0; k < N; k += M) {
        pack<float> more = {};
        if (b)
            more = *(const pack<float> *)(b + column + k);
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float sum = number(in.x[k + m]) + more.x[m];
            put(&out.x[k + m], relu && sum < 0 ? 0.0F : sum);
        }
    }
    *(pack<bf16> *)(c + i * N) = out;
}

template <class T>
static void activate_product(struct device_stream *stream, const struct gemm_form *form,
                             const struct gemm_data *data)
{
    const int64_t count = form->m * form->n;
    const bool wide = is_packed((const T *)data->kept) && is_packed((T *)data->c);

    map<T, f_gelu_tanh, false>
        <<<blocks_of(count, THREADS * pack<T>::N), THREADS, 0, stream->cuda>>>(
            f_gelu_tanh(), (const T *)data->kept, NULL, (T *)data->c, count, wide);
    stream_check(stream, "linear");
}

void gemm_activate(struct device_stream *stream, const struct gemm_form *form,
                   const struct gemm_data *data)
{
    if (form->into == DTYPE_BF16)
        activate_product<bf16>(stream, form, data);
    else if (form->into == DTYPE_F16)
        activate_product<f16>(stream, form, data);
    else
        activate_product<float>(stream, form, data);
}

void gemm_finish(struct device_stream *stream, const struct gemm_form *form,
                 const struct gemm_data *data)
{
    const unsigned blocks = blocks_of(form->m * form->n, THREADS);
    const float *bias = form->with_bias ? (const float *)data->bias : NULL;
    const int64_t packs = form->m * form->n / pack<bf16>::N;

    if (form->into == DTYPE_BF16 && form->n % pack<bf16>::N == 0 && form->c_row == form->n &&
        is_packed((const bf16 *)data->c) && is_packed(bias))
        finish_packs<<<blocks_of(packs, THREADS), THREADS, 0, stream->cuda>>>(
            (bf16 *)data->c, packs, (unsigned)form->n, bias, form->relu);
    else if (form->into == DTYPE_BF16)
        finish<bf16><<<blocks, THREADS, 0, stream->cuda>>>((bf16 *)data->c, form->c_row,
                                                           form->m, form->n, bias, form->relu);
    else if (form->into == DTYPE_F16)
        finish<f16><<<blocks, THREADS, 0, stream->cuda>>>((f16 *)data->c, form->c_row, form->m,
                                                          form->n, bias, form->relu);
    else
        finish<float><<<blocks, THREADS, 0, stream->cuda>>>((float *)data->c, form->c_row,
                                                            form->m, form->n, bias, form->relu);
    stream_check(stream, "linear");
}

template <class T>
__global__ void mse_grad(const T *x, const T *target, T *dx, int64_t count, double columns,
                         const struct kernel_step *step)
{
    const float factor = (float)(2.0 * (double)step->inv_batch / columns);
    const int64_t i = thread_number();

    if (i < count)
        put(&dx[i], (number(x[i]) - number(target[i])) * factor);
}

template <class T> static void launch_mse_grad(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;
    const int64_t count = shape_count(shape);

    mse_grad<T><<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(
        (const T *)call->in[0], (const T *)call->in[1], (T *)call->out[0], count,
        (double)(count / shape->dim[0]), call->step);
    stream_check(call->stream, "mse_grad");
}

static void run_mse_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_mse_grad, call);
}

/* Dropout: a thread has the four elements of one block of random words ------------------- */

struct dropout {
    int64_t rows, columns, blocks; /* blocks of a row */
    float rate, scale;
    uint32_t stream;
    bool is_even; /* rows are whole blocks, which are read and written at once */
};

template <class T>
__global__ void drop(struct dropout d, const T *x, T *y, const struct kernel_step *step)
{
    const int64_t at = thread_number(), row = divided(at, d.blocks);
    const int64_t block = at - row * d.blocks;

    if (row >= d.rows)
        return;
    const uint64_t position = step->first_sample + (uint64_t)row;
    four<T> in = {};
    if (d.is_even)
        in = *(const four<T> *)(x + at * AT_ONCE); /* on its way while words are made */
    const uint4 words =
        philox(step->seed, make_uint4((uint32_t)block, d.stream, (uint32_t)position,
                                      (uint32_t)(position >> 32)));
    const uint32_t word[AT_ONCE] = { words.x, words.y, words.z, words.w };
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
        const int64_t e = AT_ONCE * block + i;
        if (!d.is_even && e < d.columns)
            in.x[i] = x[row * d.columns + e];
        const bool kept = (float)(word[i] >> 8) * 0x1p-24F >= d.rate;
        put(&in.x[i], kept ? number(in.x[i]) * d.scale : 0.0F);
        if (!d.is_even && e < d.columns)
            y[row * d.columns + e] = in.x[i];
    }
    if (d.is_even)
        *(four<T> *)(y + at * AT_ONCE) = in;
}

/* Of a slice: rows are cut into runs that lie `whole` apart in the whole row, from `first` on. */
struct dropout_slice {
    int64_t run, whole, first;
};

template <class T>
__global__ void drop_slice(struct dropout d, struct dropout_slice s, const T *x, T *y,
                           const struct kernel_step *step)
{
    const int64_t i = thread_number(), row = divided(i, d.columns), e = i - row * d.columns;

    if (row >= d.rows)
        return;
    const int64_t run = divided(e, s.run), at = run * s.whole + s.first + e - run * s.run;
    const uint64_t position = step->first_sample + (uint64_t)row;
    const uint4 words =
        philox(step->seed, make_uint4((uint32_t)(at / 4), d.stream, (uint32_t)position,
                                      (uint32_t)(position >> 32)));
    const uint32_t word[4] = { words.x, words.y, words.z, words.w };
    const bool kept = (float)(word[at % 4] >> 8) * 0x1p-24F >= d.rate;
    put(&y[i], kept ? number(x[i]) * d.scale : 0.0F);
}

/* In the order in which x lies: channels of images are innermost. */
static struct dropout_slice dropout_slice_of(const struct kernel_problem *p)
{
    const struct shape_slice *slice = &p->attrs.slice;
    const struct shape *shape = &p->in[0].shape;
    const int64_t local = shape->dim[slice->axis], parts = slice->parts > 0 ? slice->parts : 1;
    const int64_t whole = slice->whole > 0 ? slice->whole : local * slice->count;
    int64_t inner = 1;

    if (p->in[0].layout != LAYOUT_NHWC) {
        for (int i = slice->axis + 1; i < shape->rank; i++)
            inner *= shape->dim[i];
    } else if (slice->axis > 1) {
        inner = shape->dim[1] * (slice->axis == 2 ? shape->dim[3] : 1);
    }
    const struct dropout_slice s = { local / parts * inner, whole / parts * inner,
                                     slice_begin(whole / parts, slice->index, slice->count) *
                                         inner };
    return s;
}

template <class T> static void launch_dropout(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t rows = p->in[0].shape.dim[0];
    const int64_t columns = shape_count(&p->in[0].shape) / rows;
    const struct dropout d = {
        rows,
        columns,
        (columns + AT_ONCE - 1) / AT_ONCE,
        p->attrs.rate,
        1 / (1 - p->attrs.rate),
        p->attrs.stream,
        columns % AT_ONCE == 0 && is_aligned((const T *)call->in[0]) &&
            is_aligned((const T *)call->out[0]),
    };

    if (p->attrs.slice.count > 0)
        drop_slice<T><<<blocks_of(rows * columns, THREADS), THREADS, 0, stream_of(call)>>>(
            d, dropout_slice_of(p), (const T *)call->in[0], (T *)call->out[0], call->step);
    else
        drop<T><<<blocks_of(rows * d.blocks, THREADS), THREADS, 0, stream_of(call)>>>(
            d, (const T *)call->in[0], (T *)call->out[0], call->step);
    stream_check(call->stream, "dropout");
}

static void run_dropout(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_dropout, call);
}

/* Across: `count` matrices, one behind the other, by tiles of 32 x 32 through shared memory, so that both sides go along
 * rows. */

enum { ACROSS = 32, ACROSS_ROWS = 8, ACROSS_MOST = 65535 };

template <class T, class U>
__global__ void across(T *to, const U *from, int64_t rows, int64_t columns)
{
    __shared__ float part[ACROSS][ACROSS + 1];
    const int64_t row0 = (int64_t)blockIdx.y * ACROSS, column0 = (int64_t)blockIdx.x * ACROSS;

    to += blockIdx.z * rows * columns;
    from += blockIdx.z * rows * columns;

    for (int i = threadIdx.y; i < ACROSS; i += ACROSS_ROWS) {
        if (row0 + i < rows && column0 + threadIdx.x < columns)
            part[i][threadIdx.x] = number(from[(row0 + i) * columns + column0 + threadIdx.x]);
    }
    __syncthreads();
    for (int i = threadIdx.y; i < ACROSS; i += ACROSS_ROWS) {
        if (column0 + i < columns && row0 + threadIdx.x < rows)
            put(&to[(column0 + i) * rows + row0 + threadIdx.x], part[threadIdx.x][i]);
    }
}

/* The same of large matrices of 16 bits whose extents come in eights: tiles of 64 x 64, packs of both sides. Eight threads have a row
 * of the tile, side by side; its rows are an odd number of words apart, so that few meet in a bank. Small ones, and those that become
 * f32, are no quicker this way. */
enum { ACROSS_WIDE = 64, ACROSS_EIGHT = 8, ACROSS_LINES = THREADS / ACROSS_EIGHT };
enum { ACROSS_LARGE = 1 << 20 };

template <class T>
__global__ void __launch_bounds__(THREADS)
    across_eights(T *to, const T *from, int64_t rows, int64_t columns)
{
    enum { LINES = ACROSS_WIDE / ACROSS_LINES, N = ACROSS_EIGHT };
    __shared__ float part[ACROSS_WIDE][ACROSS_WIDE + 1];
    const int64_t row0 = (int64_t)blockIdx.y * ACROSS_WIDE,
                  column0 = (int64_t)blockIdx.x * ACROSS_WIDE;
    const int line = threadIdx.x / ACROSS_EIGHT, at = threadIdx.x % ACROSS_EIGHT * N;
    pack<T> in[LINES];

#pragma unroll
    for (int i = 0; i < LINES; i++) {
        const int64_t row = row0 + line + i * ACROSS_LINES;
        if (row < rows && column0 + at < columns)
            in[i] = *(const pack<T> *)(from + row * columns + column0 + at);
    }
#pragma unroll
    for (int i = 0; i < LINES * N; i++)
        part[line + i / N * ACROSS_LINES][at + i % N] = number(in[i / N].x[i % N]);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < LINES; i++) {
        const int column = line + i * ACROSS_LINES;
        float numbers[N];
        pack<T> out;
#pragma unroll
        for (int k = 0; k < N; k++)
            numbers[k] = part[at + k][column];
        put_all(&out, numbers);
        if (column0 + column < columns && row0 + at < rows)
            *(pack<T> *)(to + (column0 + column) * rows + row0 + at) = out;
    }
}

template <class T, class U>
static void run_across(struct device_stream *stream, void *to, const void *from, int64_t rows,
                       int64_t columns, int64_t count)
{
    const dim3 grid(blocks_of(columns, ACROSS), blocks_of(rows, ACROSS), (unsigned)count);

    if constexpr (sizeof(T) == sizeof(bf16) && sizeof(U) == sizeof(bf16)) {
        if (count == 1 && rows * columns >= ACROSS_LARGE && rows % ACROSS_EIGHT == 0 &&
            columns % ACROSS_EIGHT == 0 && is_packed((const T *)to) &&
            is_packed((const U *)from)) {
            const dim3 wide(blocks_of(columns, ACROSS_WIDE), blocks_of(rows, ACROSS_WIDE));
            across_eights<<<wide, THREADS, 0, stream->cuda>>>((T *)to, (const U *)from, rows,
                                                              columns);
            stream_check(stream, "across");
            return;
        }
    }
    across<T, U><<<grid, dim3(ACROSS, ACROSS_ROWS), 0, stream->cuda>>>((T *)to, (const U *)from,
                                                                       rows, columns);
    stream_check(stream, "across");
}

/* Reorder ------------------------------------------------------------------------------ */

struct strides {
    int rank;
    int64_t dim[SHAPE_MAX], from[SHAPE_MAX]; /* by y's axes, outermost first */
};

static void axes_of(const struct kernel_tensor *tensor, int axes[SHAPE_MAX])
{
    static const int nhwc[] = { 0, 2, 3, 1 }, hwio[] = { 2, 3, 1, 0 }, io[] = { 1, 0 };
    const int *named = tensor->layout == LAYOUT_NHWC   ? nhwc
                       : tensor->layout == LAYOUT_HWIO ? hwio
                       : tensor->layout == LAYOUT_IO   ? io
                                                       : NULL;

    for (int i = 0; i < tensor->shape.rank; i++)
        axes[i] = named ? named[i] : i;
}

/* x's strides by the axes of the shape. */
static struct strides strides_of(const struct kernel_problem *p)
{
    const struct shape *shape = &p->in[0].shape;
    struct strides s = { shape->rank, { 0 }, { 0 } };
    int x[SHAPE_MAX], y[SHAPE_MAX];
    int64_t stride[SHAPE_MAX], apart = 1;

    axes_of(&p->in[0], x);
    axes_of(&p->out[0], y);
    for (int i = shape->rank - 1; i >= 0; i--) {
        stride[x[i]] = apart;
        apart *= shape->dim[x[i]];
    }
    for (int i = 0; i < shape->rank; i++) {
        s.dim[i] = shape->dim[y[i]];
        s.from[i] = stride[y[i]];
    }
    return s;
}

template <class T> __global__ void reorder(struct strides s, const T *x, T *y, int64_t count)
{
    const int64_t i = thread_number();
    int64_t rest = i, from = 0;

    if (i >= count)
        return;
    for (int d = s.rank - 1; d >= 0; d--) {
        from += left_over(rest, s.dim[d]) * s.from[d];
        rest = divided(rest, s.dim[d]);
    }
    y[i] = x[from];
}

template <class T> static void launch_reorder(const struct kernel_call *call)
{
    const struct kernel_tensor *x = &call->problem->in[0], *y = &call->problem->out[0];
    const int64_t count = shape_count(&x->shape);
    const bool apart = x->layout == LAYOUT_NHWC && y->layout == LAYOUT_PLAIN;

    /* Images: their pixels and channels change places. */
    if ((apart || (x->layout == LAYOUT_PLAIN && y->layout == LAYOUT_NHWC)) &&
        x->shape.dim[0] <= ACROSS_MOST) {
        const int64_t channels = x->shape.dim[1], pixels = x->shape.dim[2] * x->shape.dim[3];
        run_across<T, T>(call->stream, call->out[0], call->in[0], apart ? pixels : channels,
                         apart ? channels : pixels, x->shape.dim[0]);
        return;
    }

    reorder<T><<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(
        strides_of(call->problem), (const T *)call->in[0], (T *)call->out[0], count);
    stream_check(call->stream, "reorder");
}

static void run_reorder(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_reorder, call);
}

void turn_across(struct device_stream *stream, void *to, enum dtype to_dtype, const void *from,
                 enum dtype from_dtype, int64_t rows, int64_t columns)
{
    if (to_dtype == DTYPE_BF16 && from_dtype == DTYPE_BF16)
        run_across<bf16, bf16>(stream, to, from, rows, columns, 1);
    else if (to_dtype == DTYPE_F16 && from_dtype == DTYPE_F16)
        run_across<f16, f16>(stream, to, from, rows, columns, 1);
    else if (to_dtype == DTYPE_BF16)
        run_across<bf16, float>(stream, to, from, rows, columns, 1);
    else if (to_dtype == DTYPE_F16)
        run_across<f16, float>(stream, to, from, rows, columns, 1);
    else if (from_dtype == DTYPE_F16)
        run_across<float, f16>(stream, to, from, rows, columns, 1);
    else if (from_dtype == DTYPE_BF16)
        run_across<float, bf16>(stream, to, from, rows, columns, 1);
    else
        run_across<float, float>(stream, to, from, rows, columns, 1);
}

__global__ void pad_rows(bf16 *to, int64_t to_c, const bf16 *from, int64_t from_c,
                         int64_t count)
{
    const int64_t i = thread_number(), row = i / to_c, c = i % to_c;

    if (i < count)
        put(&to[i], c < from_c ? number(from[row * from_c + c]) : 0.0F);
}

/* Rows of eight channels, whole at once. */
__global__ void pad_rows_to_eight(bf16 *to, const bf16 *from, int64_t from_c, int64_t rows)
{
    const int64_t row = thread_number();
    __align__(16) bf16 all[8];

    if (row >= rows)
        return;
    for (int c = 0; c < 8; c++)
        put(&all[c], c < from_c ? number(from[row * from_c + c]) : 0.0F);
    *(uint4 *)(to + row * 8) = *(const uint4 *)all;
}

void pad_channels(struct device_stream *stream, void *to, int64_t to_c, const void *from,
                  int64_t from_c, int64_t rows)
{
    const int64_t count = rows * to_c;

    if (to_c == 8 && from_c < 8)
        pad_rows_to_eight<<<blocks_of(rows, THREADS), THREADS, 0, stream->cuda>>>(
            (bf16 *)to, (const bf16 *)from, from_c, rows);
    else
        pad_rows<<<blocks_of(count, THREADS), THREADS, 0, stream->cuda>>>(
            (bf16 *)to, to_c, (const bf16 *)from, from_c, count);
    stream_check(stream, "pad_channels");
}

__global__ void fill_filter(struct padded_filter f, bf16 *to, const bf16 *from)
{
    const int64_t i = thread_number(), c = i % f.c, tap = i / f.c % f.taps,
                  o = i / f.c / f.taps;

    if (o < f.o)
        put(&to[i], c < f.real_c && o < f.real_o
                        ? number(from[(tap * f.real_c + c) * f.real_o + o])
                        : 0.0F);
}

void pad_filter(struct device_stream *stream, const struct padded_filter *filter, void *to,
                const void *from)
{
    const int64_t count = filter->o * filter->taps * filter->c;

    fill_filter<<<blocks_of(count, THREADS), THREADS, 0, stream->cuda>>>(*filter, (bf16 *)to,
                                                                         (const bf16 *)from);
    stream_check(stream, "pad_filter");
}

template <class T> __global__ void take_filter(struct padded_filter f, float *to, const T *from)
{
    const int64_t i = thread_number(), o = i % f.real_o, c = i / f.real_o % f.real_c,
                  tap = i / f.real_o / f.real_c;

    if (tap < f.taps)
        to[i] = number(from[(o * f.taps + tap) * f.c + c]);
}

void unpad_filter(struct device_stream *stream, const struct padded_filter *filter, float *to,
                  const void *from, enum dtype from_dtype)
{
    const int64_t count = filter->real_o * filter->taps * filter->real_c;

    if (from_dtype == DTYPE_BF16)
        take_filter<bf16><<<blocks_of(count, THREADS), THREADS, 0, stream->cuda>>>(
            *filter, to, (const bf16 *)from);
    else if (from_dtype == DTYPE_F16)
        take_filter<f16><<<blocks_of(count, THREADS), THREADS, 0, stream->cuda>>>(
            *filter, to, (const f16 *)from);
    else
        take_filter<float><<<blocks_of(count, THREADS), THREADS, 0, stream->cuda>>>(
            *filter, to, (const float *)from);
    stream_check(stream, "unpad_filter");
}

/* Columns put together and taken apart: rows of one matrix into rows of another ----------- */

template <class T>
__global__ void copy_columns(const T *x, int64_t x_row, T *y, int64_t y_row, int64_t rows,
                             int64_t columns)
{
    const int64_t i = thread_number();

    if (i >= rows * columns)
        return;
    const int64_t row = divided(i, columns), column = i - row * columns;
    y[row * y_row + column] = x[row * x_row + column];
}

/* Matrices side by side, and the columns that they begin and end with. */
template <class T> struct sources {
    const T *x[KERNEL_IN];
    int64_t begin[KERNEL_IN + 1];
};

template <class T>
__global__ void join_columns(struct sources<T> from, T *y, int64_t rows, int64_t width)
{
    const int64_t i = thread_number(), row = divided(i, width), column = i - row * width;
    int at = 0;

    if (i >= rows * width)
        return;
    while (column >= from.begin[at + 1])
        at++;
    y[i] = from.x[at][row * (from.begin[at + 1] - from.begin[at]) + column - from.begin[at]];
}

template <class T> static void launch_concat(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t rows = p->out[0].shape.dim[0], width = p->out[0].shape.dim[1];
    struct sources<T> from = {
    };

    for (int i = 0; i < p->n_in; i++) {
        from.x[i] = (const T *)call->in[i];
        from.begin[i + 1] = from.begin[i] + p->in[i].shape.dim[1];
    }
    join_columns<T><<<blocks_of(rows * width, THREADS), THREADS, 0, stream_of(call)>>>(
        from, (T *)call->out[0], rows, width);
    stream_check(call->stream, "concat");
}

static void run_concat(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_concat, call);
}

template <class T> static void launch_columns(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t rows = p->out[0].shape.dim[0], columns = p->out[0].shape.dim[1];

    copy_columns<T><<<blocks_of(rows * columns, THREADS), THREADS, 0, stream_of(call)>>>(
        (const T *)call->in[0] + p->attrs.extent[0], p->in[0].shape.dim[1], (T *)call->out[0],
        columns, rows, columns);
    stream_check(call->stream, "columns");
}

static void run_columns(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_columns, call);
}

/* Positions ---------------------------------------------------------------------------- */

struct positions {
    int64_t sequences, tokens, features, rows, period;
};

static struct positions positions_of(const struct kernel_problem *p, const struct shape *table)
{
    const struct shape *x = &p->in[0].shape;
    struct positions s = { x->dim[0], x->dim[1], x->dim[2], table->dim[0], p->attrs.period };

    if (s.period == 0)
        s.period = s.tokens;
    return s;
}

/* A thread has V elements of a token that lie side by side. */
template <class T, int V>
__global__ void add_positions(struct positions s, const T *x, const T *table,
                              const int32_t *first, T *y)
{
    struct alignas(V * sizeof(T)) part {
        T x[V];
    };
    const int64_t i = thread_number() * V, token = divided(i, s.features);
    const int64_t n = divided(token, s.tokens);

    if (n >= s.sequences)
        return;
    const int64_t place = left_over(token - n * s.tokens, s.period) + (first ? first[n] : 0);
    const int64_t row = place >= s.rows ? s.rows - 1 : place;
    const part a = *(const part *)(x + i),
               b = *(const part *)(table + row * s.features + i - token * s.features);
    part out;
#pragma unroll
    for (int k = 0; k < V; k++)
        put(&out.x[k], number(a.x[k]) + number(b.x[k]));
    *(part *)(y + i) = out;
}

template <class T, int V>
static void launch_positions(const struct kernel_call *call, const struct positions &s)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);

    add_positions<T, V><<<blocks_of(count, THREADS * V), THREADS, 0, stream_of(call)>>>(
        s, (const T *)call->in[0], (const T *)call->in[1],
        call->problem->n_in > 2 ? (const int32_t *)call->in[2] : NULL, (T *)call->out[0]);
    stream_check(call->stream, "add_positions");
}

template <class T> static void launch_add_positions(const struct kernel_call *call)
{
    const struct positions s = positions_of(call->problem, &call->problem->in[1].shape);

    if (s.features % pack<T>::N == 0 && is_packed((const T *)call->in[0]) &&
        is_packed((const T *)call->in[1]) && is_packed((const T *)call->out[0]))
        launch_positions<T, pack<T>::N>(call, s);
    else
        launch_positions<T, 1>(call, s);
}

static void run_add_positions(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_add_positions, call);
}

/* A thread adds one number of the table's gradient over the sequences. */
template <class T> __global__ void positions_grad(struct positions s, const T *dy, float *dp)
{
    const int64_t i = thread_number(), row = i / s.features;
    double sum = 0;

    if (row >= s.rows)
        return;
    const T *from = dy + i % s.features;
    const bool once = row < s.period && row + s.period >= s.tokens; /* a token a sequence */
#pragma unroll 8
    for (int64_t n = 0; once && row < s.tokens && n < s.sequences; n++)
        sum += (double)number(from[(n * s.tokens + row) * s.features]);
    for (int64_t n = 0; !once && row < s.period && n < s.sequences; n++) {
        for (int64_t t = row; t < s.tokens; t += s.period)
            sum += (double)number(from[(n * s.tokens + t) * s.features]);
    }
    dp[i] = (float)sum;
}

/* The same of rows that come in fours, a token a sequence: warps share the sequences, and their sums are added in order. */
enum { SHARES = 8 };

template <class T>
__global__ void positions_grad_fours(struct positions s, const T *dy, float *dp)
{
    __shared__ double all[SHARES][AT_ONCE][WARP];
    const int64_t i = ((int64_t)blockIdx.x * WARP + threadIdx.x) * AT_ONCE;
    const int64_t row = i / s.features, end = s.sequences * (threadIdx.y + 1) / SHARES;
    const T *from = dy + row * s.features + i % s.features;
    double sums[AT_ONCE] = {};

#pragma unroll 8
    for (int64_t n = s.sequences * threadIdx.y / SHARES; row < s.tokens && n < end; n++) {
        const four<T> in = *(const four<T> *)(from + n * s.tokens * s.features);
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            sums[k] += (double)number(in.x[k]);
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
        all[threadIdx.y][k][threadIdx.x] = sums[k];
    __syncthreads();
    if (threadIdx.y >= AT_ONCE || row >= s.rows)
        return;
    double sum = 0;
    for (int share = 0; share < SHARES; share++)
        sum += all[share][threadIdx.y][threadIdx.x];
    dp[i + threadIdx.y] = (float)sum;
}

template <class T> static void launch_positions_grad(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t count = shape_count(&p->out[0].shape);
    const struct positions s = positions_of(p, &p->out[0].shape);

    if (s.period >= s.tokens && s.features % AT_ONCE == 0 &&
        is_aligned((const T *)call->in[0])) {
        positions_grad_fours<T>
            <<<blocks_of(count, WARP * AT_ONCE), dim3(WARP, SHARES), 0, stream_of(call)>>>(
                s, (const T *)call->in[0], (float *)call->out[0]);
        stream_check(call->stream, "positions_grad");
        return;
    }
    positions_grad<T><<<blocks_of(count, WARP), WARP, 0, stream_of(call)>>>(
        s, (const T *)call->in[0], (float *)call->out[0]);
    stream_check(call->stream, "positions_grad");
}

static void run_positions_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_positions_grad, call);
}

#define ROW(op)                                                                                \
    {                                                                                          \
#op, "own", NULL, NULL, NULL, NULL, run_##op                                           \
    }
extern "C" const struct kernel cuda_elementwise_rows[] = {
    ROW(add),
    ROW(relu),
    ROW(relu_grad),
    ROW(relu6),
    ROW(relu6_grad),
    ROW(sigmoid),
    ROW(sigmoid_grad),
    ROW(tanh),
    ROW(tanh_grad),
    ROW(gelu),
    ROW(gelu_grad),
    ROW(gelu_tanh),
    ROW(gelu_tanh_grad),
    ROW(bias),
    ROW(mse_grad),
    ROW(dropout),
    ROW(reorder),
    ROW(concat),
    ROW(columns),
    ROW(add_positions),
    ROW(positions_grad),
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
