/* SPDX-License-Identifier: MIT */
/* head.cu - linear_token_loss: the last layer, the loss of all tokens, and what flows back from it.
 *
 * Three products by cuBLASLt, and between them one kernel that turns a row of logits into its gradient where it lies. It
 * reads the row once: a block keeps it in shared memory (100 KB for 50257 tokens of bf16), or, if it is longer than that, finds it in the
 * cache; rows of up to 1024 are a warp's. Logits are in scratch, so their rows may be as far apart as tensor cores like: a
 * multiple of 16 bytes. What is behind the last token has zeros in the gradient and, in a copy, in the table.
 *
 * Very many rows come in parts, whose gradients of the table are added in order.
 */
#include <cuda_pipeline.h>

#include "kernel/cuda/device.cuh"
#include "kernel/cuda/gemm.h"

#include "base/mem.h"

enum {
    ROW_BYTES = 16,
    BLOCK = 512,
    SHORT = 1024,
    SUM_THREADS = 1024,
    ROW_WARPS = THREADS / WARP
};
/* Rows of a part at least; logits of a part are no more than so many times the table's gradient, which costs little then. */
enum { PART_ROWS = 4096, PART_TIMES = 32 };

/* Extents ------------------------------------------------------------------------------ */

struct head {
    int64_t rows, features, classes;
    int64_t row;   /* elements of a row of logits */
    int64_t parts; /* of the rows */
    enum dtype dtype;
    bool tf32;
};

static int64_t element_bytes(enum dtype dtype)
{
    return dtype == DTYPE_F32 ? sizeof(float) : sizeof(bf16);
}

static struct head head_of(const struct kernel_problem *p)
{
    struct head h = { .rows = p->in[0].shape.dim[0],
                      .features = p->in[0].shape.dim[1],
                      .classes = p->in[1].shape.dim[0],
                      .parts = 1,
                      .dtype = p->in[0].dtype,
                      .tf32 = p->rounds && p->in[0].dtype == DTYPE_F32 };

    const int64_t even = ROW_BYTES / element_bytes(h.dtype);
    h.row = (h.classes + even - 1) / even * even;
    while (h.rows % (2 * h.parts) == 0 && h.rows / (2 * h.parts) >= PART_ROWS &&
           h.rows / h.parts * h.row * element_bytes(h.dtype) >
               PART_TIMES * h.classes * h.features * (int64_t)sizeof(float))
        h.parts *= 2;
    return h;
}

/* The products: logits, dx, and dw of a part alone and added to those before it. */
enum { LOGITS, INPUT, WEIGHT, MORE_WEIGHT, PRODUCTS };

static struct gemm_form form_of(const struct head &h, int which)
{
    struct gemm_form f = {};

    f.of = f.into = h.dtype;
    f.tf32 = h.tf32;
    f.b_row = h.features;
    if (which == LOGITS) {
        f.m = h.rows / h.parts;
        f.n = f.c_row = h.row;
        f.k = f.a_row = h.features;
        f.b_across = true;
    } else if (which == INPUT) {
        f.m = h.rows / h.parts;
        f.n = f.c_row = h.features;
        f.k = f.a_row = h.row;
    } else {
        f.m = h.classes;
        f.n = f.c_row = h.features;
        f.k = h.rows / h.parts;
        f.a_row = h.row;
        f.a_across = true;
        f.into = DTYPE_F32;
        f.adds = which == MORE_WEIGHT;
        f.parts = h.parts == 1 ? gemm_parts(f.m, f.n, f.k) : 1;
    }
    return f;
}

static size_t up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Scratch: a loss and a hit of each row, the table with more rows, the logits of a part, the products' own. */
struct places {
    size_t hits, table, logits, products, bytes;
};

static struct places places_of(const struct head &h)
{
    const size_t size = (size_t)element_bytes(h.dtype);
    size_t products = 0;
    struct places p;

    for (int i = 0; i < PRODUCTS; i++) {
        const struct gemm_form form = form_of(h, i);
        const size_t own = gemm_scratch(&form);
        products = own > products ? own : products;
    }
    p.hits = up((size_t)h.rows * sizeof(double));
    p.table = p.hits + up((size_t)h.rows * sizeof(int));
    p.logits = p.table + (h.row > h.classes ? up((size_t)(h.row * h.features) * size) : 0);
    p.products = p.logits + up((size_t)(h.rows / h.parts * h.row) * size);
    p.bytes = p.products + products;
    return p;
}

static size_t scratch_bytes(const struct kernel_problem *p)
{
    return places_of(head_of(p)).bytes;
}

/* Rows --------------------------------------------------------------------------------- */

static constexpr float LOG2_E = 1.44269504F;

struct row_form {
    int64_t rows, row, classes;
    float smoothing;
};

/* Threads that have a row together: a warp, or a block. */
template <bool WARPED> struct team {
    __device__ static int own()
    {
        return WARPED ? threadIdx.x % WARP : threadIdx.x;
    }
    __device__ static int size()
    {
        return WARPED ? WARP : blockDim.x;
    }
    template <class N> __device__ static N sum(N x)
    {
        return WARPED ? warp_sum(x) : block_sum(x);
    }
    __device__ static float max(float x)
    {
        return WARPED ? warp_max(x) : block_max(x);
    }
    __device__ static void wait()
    {
        if (WARPED)
            __syncwarp();
        else
            __syncthreads();
    }
};

/* What a thread knows of its packs: the largest, the sum of exponentials around it, and the plain sum. */
struct seen {
    float largest, sum, all;
};

/* exp(x - base), where `shift` is what the quick way needs of the base. */
template <class T>
__device__ __forceinline__ float shifted_exp(float x, float base, float shift)
{
    return sizeof(T) < sizeof(float) ? quick_power(fmaf(x, LOG2_E, shift)) : expf(x - base);
}

template <class T>
__device__ __forceinline__ void see(const pack<T> &in, struct seen *seen, float smoothing)
{
    float most = seen->largest;

#pragma unroll
    for (int k = 0; k < pack<T>::N; k++)
        most = fmaxf(most, number(in.x[k]));
    const float base = most > -INFINITY ? most : 0, shift = -base * LOG2_E;
    if (most > seen->largest) {
        seen->sum *=
            shifted_exp<T>(seen->largest, base, shift); /* 0 times 0 at the beginning */
        seen->largest = most;
    }
#pragma unroll
    for (int k = 0; k < pack<T>::N; k++)
        seen->sum += shifted_exp<T>(number(in.x[k]), base, shift);
    if (smoothing == 0)
        return;
#pragma unroll
    for (int k = 0; k < pack<T>::N; k++)
        seen->all += number(in.x[k]) > -INFINITY ? number(in.x[k]) : 0; /* past the last */
}

/* Turns rows of logits into gradients. Rows with a label below 0 count not, and have zeros. */
template <class T, bool WARPED, bool STAGED>
__global__ void __launch_bounds__(WARPED ? THREADS : BLOCK, 2)
    turn_rows(struct row_form f, T *logits, const int32_t *labels,
              const struct kernel_step *step, double *losses, int *hits)
{
    enum { N = pack<T>::N };
    typedef team<WARPED> team;
    extern __shared__ __align__(16) char kept[];
    const int64_t row =
        WARPED ? (int64_t)blockIdx.x * ROW_WARPS + threadIdx.x / WARP : blockIdx.x;
    const int packs = (int)(f.row / N), rest = (int)(f.classes - (int64_t)(packs - 1) * N);

    if (row >= f.rows)
        return;
    T *x = logits + row * f.row;
    pack<T> *all = STAGED ? (pack<T> *)kept : (pack<T> *)x;
    const int32_t label = labels[row];

    if (label < 0) {
        for (int j = team::own(); j < packs; j += team::size())
            ((pack<T> *)x)[j] = {};
        if (team::own() == 0) {
            losses[row] = 0;
            hits[row] = 0;
        }
        return;
    }
    const bool is_class = label < f.classes;
    const float at_label = is_class ? number(x[label]) : NAN, first = number(x[0]);
    struct seen own = { -INFINITY, 0, 0 };

    if (STAGED) { /* all of the row is on its way; a thread reads what it has asked for itself */
        for (int j = team::own(); j < packs; j += team::size())
            __pipeline_memcpy_async(&all[j], (const pack<T> *)x + j, sizeof(pack<T>));
        __pipeline_commit();
        __pipeline_wait_prior(0);
    }
#pragma unroll 4
    for (int j = team::own(); j < packs; j += team::size()) {
        pack<T> in = all[j];
        if (j == packs - 1) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                if (k >= rest)
                    put(&in.x[k], -INFINITY);
            }
        }
        see(in, &own, f.smoothing);
    }
    const float largest = team::max(own.largest);
    const float sum = team::sum(own.sum != 0 ? own.sum * expf(own.largest - largest) : 0.0F);
    const double log_of_sum = log((double)sum), smoothing = (double)f.smoothing;
    const double total =
        f.smoothing != 0 ? team::sum((double)own.all) - (double)largest * (double)f.classes : 0;
    /* The first of several largest counts; nothing is larger than what is no number at the beginning. */
    int before = 0;
    if (at_label == largest) {
        for (int j = team::own(); j < packs && j * N < label; j += team::size()) {
            for (int k = 0; k < N; k++)
                before += j * N + k < label && number(all[j].x[k]) == largest;
        }
        before = team::sum(before);
    }
    team::wait(); /* all have read what is written over now */

    const float shift = (float)((double)largest + log_of_sum), factor = step->inv_batch;
    const float spread = f.smoothing / (float)f.classes, full = 1 - f.smoothing + spread;
    const float quick_shift = -shift * LOG2_E, less = -spread * factor;
#pragma unroll 4
    for (int j = team::own(); j < packs; j += team::size()) {
        const pack<T> in = all[j];
        float made[N];
        pack<T> out;
#pragma unroll
        for (int k = 0; k < N; k++)
            made[k] = fmaf(shifted_exp<T>(number(in.x[k]), shift, quick_shift), factor, less);
        if (j == label / N || j == packs - 1) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                if (j * N + k == label)
                    made[k] = (exp_of<T>(number(in.x[k]) - shift) - full) * factor;
                if (j == packs - 1 && k >= rest)
                    made[k] = 0;
            }
        }
        put_all(&out, made);
        ((pack<T> *)x)[j] = out;
    }
    if (team::own() == 0) {
        losses[row] = is_class ? log_of_sum - (1 - smoothing) * (double)(at_label - largest) -
                                     smoothing / (double)f.classes * total
                               : (double)NAN;
        hits[row] = isnan(first) ? label == 0 : at_label == largest && before == 0;
    }
}

/* One block adds up what rows have. */
__global__ void add_rows(const double *losses, const int *hits, int64_t rows,
                         const struct kernel_step *step, float *loss, float *correct)
{
    double sum = 0;
    int count = 0;

#pragma unroll 4
    for (int64_t i = threadIdx.x; i < rows; i += SUM_THREADS) {
        sum += losses[i];
        count += hits[i];
    }
    sum = block_sum(sum);
    count = block_sum(count);
    if (threadIdx.x == 0) {
        const double scale = step->scale > 0 ? (double)step->scale : 1;
        *loss = (float)(sum * ((double)step->inv_batch / scale)); /* kernel_inv_batch */
        *correct = (float)count;
    }
}

/* Rows past the last of the table. */
template <class T>
__global__ void lengthen(T *to, const T *from, int64_t from_count, int64_t count)
{
    enum { N = pack<T>::N };
    const int64_t i = thread_number() * N;

    if (i + N <= from_count && i + N <= count) {
        *(pack<T> *)(to + i) = *(const pack<T> *)(from + i);
        return;
    }
    for (int64_t k = i; k < i + N && k < count; k++)
        put(&to[k], k < from_count ? number(from[k]) : 0);
}

template <class T, bool WARPED, bool STAGED>
static void turn(const struct kernel_call *call, const struct row_form &f, void *logits,
                 int64_t first, const struct places &at, unsigned blocks, size_t shared)
{
    const unsigned threads = WARPED ? (unsigned)THREADS : (unsigned)BLOCK;
    double *losses = (double *)call->scratch + first;
    int *hits = (int *)((char *)call->scratch + at.hits) + first;

    if (STAGED && cudaFuncSetAttribute((const void *)turn_rows<T, WARPED, STAGED>,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize,
                                       (int)shared) != cudaSuccess)
        stream_check(call->stream, "linear_token_loss");
    turn_rows<T, WARPED, STAGED><<<blocks, threads, STAGED ? shared : 0, stream_of(call)>>>(
        f, (T *)logits, (const int32_t *)call->in[2] + first, call->step, losses, hits);
    stream_check(call->stream, "linear_token_loss");
}

template <class T>
static void turn_part(const struct kernel_call *call, const struct head &h, void *logits,
                      int64_t first, const struct places &at)
{
    enum { STATIC = 1024 }; /* what sums over threads need */
    const struct row_form f = { h.rows / h.parts, h.row, h.classes,
                                call->problem->attrs.smoothing };
    const size_t bytes = (size_t)h.row * sizeof(T);

    if (h.row <= SHORT)
        turn<T, true, false>(call, f, logits, first, at, blocks_of(f.rows, ROW_WARPS), 0);
    else if (bytes + STATIC <= cuda_shared_bytes)
        turn<T, false, true>(call, f, logits, first, at, (unsigned)f.rows, bytes);
    else
        turn<T, false, false>(call, f, logits, first, at, (unsigned)f.rows, 0);
}

template <class T> static void launch_head(const struct kernel_call *call)
{
    const struct head h = head_of(call->problem);
    const struct places at = places_of(h);
    struct gemm *const *products = (struct gemm *const *)call->state;
    char *scratch = (char *)call->scratch;
    const int64_t rows = h.rows / h.parts;
    const T *table = (const T *)call->in[1];
    T *logits = (T *)(scratch + at.logits);

    if (h.row > h.classes) {
        T *longer = (T *)(scratch + at.table);
        lengthen<T>
            <<<blocks_of(h.row * h.features, THREADS * pack<T>::N), THREADS, 0,
               stream_of(call)>>>(longer, table, h.classes * h.features, h.row * h.features);
        stream_check(call->stream, "linear_token_loss");
        table = longer;
    }
    for (int64_t part = 0; part < h.parts; part++) {
        const T *x = (const T *)call->in[0] + part * rows * h.features;
        T *dx = (T *)call->out[2] + part * rows * h.features;
        struct gemm_data logit = {}, input = {}, weight = {};

        logit.a = x;
        logit.b = input.b = table;
        logit.c = logits;
        input.a = weight.a = logits;
        input.c = dx;
        weight.b = x;
        weight.c = call->out[3];
        logit.scratch = input.scratch = weight.scratch = scratch + at.products;
        gemm_run(products[LOGITS], call->stream, &logit);
        turn_part<T>(call, h, logits, part * rows, at);
        gemm_run(products[part > 0 ? MORE_WEIGHT : WEIGHT], call->stream, &weight);
        gemm_run(products[INPUT], call->stream, &input);
    }
    add_rows<<<1, SUM_THREADS, 0, stream_of(call)>>>(
        (const double *)scratch, (const int *)(scratch + at.hits), h.rows, call->step,
        (float *)call->out[0], (float *)call->out[1]);
    stream_check(call->stream, "linear_token_loss");
}

static void run_head(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_head, call);
}

static void release(void *state)
{
    struct gemm **products = (struct gemm **)state;

    for (int i = 0; products && i < PRODUCTS; i++)
        gemm_destroy(products[i]);
    mem_free(products);
}

static enum status prepare(const struct kernel_problem *p, void **out)
{
    const struct head h = head_of(p);
    struct gemm **products;

    TRY(mem_alloc(PRODUCTS, sizeof *products, &products));
    for (int i = 0; i < PRODUCTS; i++) {
        const struct gemm_form form = form_of(h, i);
        const enum status status =
            i == MORE_WEIGHT && h.parts == 1 ? STATUS_OK : gemm_create(&form, &products[i]);
        if (status != STATUS_OK) {
            release(products);
            return status;
        }
    }
    *out = products;
    return STATUS_OK;
}

extern "C" const struct kernel cuda_head_rows[] = {
    { "linear_token_loss", "cublaslt", NULL, scratch_bytes, prepare, release, run_head },
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
