/* SPDX-License-Identifier: MIT */
/* joint.cu - what ranks that share layers make of what each of them has (kernel/joint.h), read where it lies: parts may be
 * memory of other processes or devices.
 *
 *   sum             n reads and a write an element, by packs of 16 bytes where everything lies evenly; the order of
 *                   additions is that of ranks
 *   note_losses     a warp a row; reads the row only where labels are smoothed
 *   note_answers    a warp a row: the first largest of each lane, then of all by butterflies
 *   join_*          three numbers or one answer a rank and row; one block adds over rows, each thread every
 *                   JOIN_THREADS-th, then along butterflies
 */
#include "kernel/cuda/device.cuh"

enum { JOIN_THREADS = 1024, ROWS_OF_BLOCK = THREADS / WARP };

/* Sums ----------------------------------------------------------------------------------- */

template <class T> struct summands {
    const T *of[JOINT_RANKS];
    int count;
};

template <class T, class P>
__global__ void sum_parts(T *out, struct summands<T> parts, struct joint_rows rows)
{
    enum { N = sizeof(P) / sizeof(T) };
    const int64_t i = thread_number() * N;

    const int64_t row = divided(i, (int64_t)rows.width), column = i - row * (int64_t)rows.width;

    if (row >= (int64_t)rows.rows)
        return;
    const int64_t at = row * (int64_t)rows.apart + column;
    float sum[N];
    for (int k = 0; k < parts.count; k++) {
        const P in = *(const P *)(parts.of[k] + at);
        for (int j = 0; j < N; j++)
            sum[j] =
                k == 0 ? number(((const T *)&in)[j]) : sum[j] + number(((const T *)&in)[j]);
    }
    P result;
    for (int j = 0; j < N; j++)
        put((T *)&result + j, sum[j]);
    *(P *)(out + row * (int64_t)rows.out_apart + column) = result;
}

template <class T>
static void launch_sum(struct device_stream *stream, T *out, const struct joint_parts *parts,
                       const struct joint_rows *rows)
{
    enum { N = pack<T>::N };
    const int64_t count = (int64_t)(rows->width * rows->rows);
    struct summands<T> summands = {
        {}, parts->count
    };
    bool is_even = is_packed(out) && rows->width % N == 0 && rows->apart % N == 0 &&
                   rows->out_apart % N == 0;

    for (int k = 0; k < parts->count; k++) {
        summands.of[k] = (const T *)parts->of[k];
        is_even = is_even && is_packed(summands.of[k]);
    }
    if (count == 0)
        return;
    if (is_even)
        sum_parts<T, pack<T>>
            <<<blocks_of(count / N, THREADS), THREADS, 0, stream->cuda>>>(out, summands, *rows);
    else
        sum_parts<T, T>
            <<<blocks_of(count, THREADS), THREADS, 0, stream->cuda>>>(out, summands, *rows);
    stream_check(stream, "sum of ranks");
}

static void run_sum(struct device_stream *stream, void *out, const struct joint_parts *parts,
                    enum dtype dtype, const struct joint_rows *rows)
{
    if (dtype == DTYPE_BF16)
        launch_sum(stream, (bf16 *)out, parts, rows);
    else if (dtype == DTYPE_F16)
        launch_sum(stream, (f16 *)out, parts, rows);
    else
        launch_sum(stream, (float *)out, parts, rows);
}

__global__ void own_ids(int32_t *out, const int32_t *ids, int64_t count, int64_t begin,
                        int64_t end)
{
    const int64_t i = thread_number();

    if (i < count)
        out[i] = ids[i] >= begin && ids[i] < end ? (int32_t)(ids[i] - begin) : -1;
}

static void run_ids(struct device_stream *stream, int32_t *out, const int32_t *ids,
                    size_t count, int64_t begin, int64_t end)
{
    if (count == 0)
        return;
    own_ids<<<blocks_of((int64_t)count, THREADS), THREADS, 0, stream->cuda>>>(
        out, ids, (int64_t)count, begin, end);
    stream_check(stream, "tp_ids");
}

/* Losses --------------------------------------------------------------------------------- */

/* This rank's slice of the classes. */
struct sliced {
    int64_t rows, count, first, whole;
    float smoothing;
};

static struct sliced sliced_of(const struct kernel_problem *p)
{
    const struct shape_slice *slice = &p->attrs.slice;
    const struct sliced s = { p->in[0].shape.dim[0], p->in[0].shape.dim[1],
                              slice_begin(slice->whole, slice->index, slice->count),
                              slice->whole, p->attrs.smoothing };
    return s;
}

static unsigned row_blocks(int64_t rows)
{
    return blocks_of(rows, ROWS_OF_BLOCK);
}

template <class T>
__global__ void note_rows(struct sliced s, const T *logits, const float *lse,
                          const int32_t *labels, float *numbers)
{
    const int64_t row = (int64_t)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    double sum = 0;

    if (row >= s.rows)
        return;
    const T *x = logits + row * s.count;
    for (int64_t j = lane; s.smoothing > 0 && j < s.count; j += WARP)
        sum += (double)number(x[j]);
    sum = warp_sum(sum);
    if (lane > 0)
        return;
    const int64_t label = (int64_t)labels[row] - s.first;
    float *own = numbers + row * JOINT_LOSS_NUMBERS;
    own[0] = lse[row];
    own[1] = label >= 0 && label < s.count ? number(x[label]) : 0.0F;
    own[2] = (float)sum;
}

template <class T>
static void launch_note_losses(const struct kernel_call *call, float *numbers)
{
    const struct sliced s = sliced_of(call->problem);

    note_rows<T><<<row_blocks(s.rows), THREADS, 0, stream_of(call)>>>(
        s, (const T *)call->in[0], (const float *)call->in[1], (const int32_t *)call->in[2],
        numbers);
    stream_check(call->stream, call->problem->op);
}

static void run_note_losses(const struct kernel_call *call, float *numbers)
{
    if (call->problem->in[0].dtype == DTYPE_BF16)
        launch_note_losses<bf16>(call, numbers);
    else if (call->problem->in[0].dtype == DTYPE_F16)
        launch_note_losses<f16>(call, numbers);
    else
        launch_note_losses<float>(call, numbers);
}

/* What row i adds to the loss, and its lse. */
__device__ static double join_row(struct sliced s, const struct joint_parts &numbers, int64_t i,
                                  int32_t label, float *lse)
{
    double largest = -INFINITY, sum = 0, at_label = 0, all = 0;

    for (int r = 0; r < numbers.count; r++)
        largest = fmax(largest, (double)((const float *)numbers.of[r])[i * JOINT_LOSS_NUMBERS]);
    for (int r = 0; r < numbers.count; r++) {
        const float *theirs = (const float *)numbers.of[r] + i * JOINT_LOSS_NUMBERS;
        sum += exp((double)theirs[0] - largest);
        at_label += (double)theirs[1];
        all += (double)theirs[2];
    }
    const double log_sum = largest + log(sum), smoothing = (double)s.smoothing;
    *lse = (float)log_sum;
    return label < s.whole
               ? log_sum - (1 - smoothing) * at_label - smoothing / (double)s.whole * all
               : (double)NAN;
}

__global__ void join_rows(struct sliced s, struct joint_parts numbers, const int32_t *labels,
                          const struct kernel_step *step, float *loss, float *lse)
{
    double total = 0;

    for (int64_t i = threadIdx.x; i < s.rows; i += JOIN_THREADS) {
        if (labels[i] < 0)
            lse[i] = 0;
        else
            total += join_row(s, numbers, i, labels[i], &lse[i]);
    }
    total = block_sum(total);
    if (threadIdx.x == 0)
        loss[0] = (float)(total * (double)step->inv_batch);
}

static void run_join_losses(const struct kernel_call *call, const struct joint_parts *numbers)
{
    join_rows<<<1, JOIN_THREADS, 0, stream_of(call)>>>(
        sliced_of(call->problem), *numbers, (const int32_t *)call->in[2], call->step,
        (float *)call->out[0], (float *)call->out[1]);
    stream_check(call->stream, call->problem->op);
}

/* Answers -------------------------------------------------------------------------------- */

template <class T>
__global__ void note_largest(struct sliced s, const T *logits, struct joint_answer *answers)
{
    const int64_t row = (int64_t)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x / WARP;
    const int lane = threadIdx.x % WARP;
    float largest = -INFINITY;
    int64_t at = s.count;

    if (row >= s.rows)
        return;
    for (int64_t j = lane; j < s.count; j += WARP) {
        const float x = number(logits[row * s.count + j]);
        if (x > largest || at == s.count) {
            largest = x;
            at = j;
        }
    }
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const float theirs = __shfl_xor_sync(0xffffffffU, largest, apart);
        const int64_t place = __shfl_xor_sync(0xffffffffU, at, apart);
        if (theirs > largest || (theirs == largest && place < at)) {
            largest = theirs;
            at = place;
        }
    }
    if (lane == 0) {
        answers[row].logit = largest;
        answers[row].class_number = (int32_t)(s.first + at);
    }
}

template <class T>
static void launch_note_answers(const struct kernel_call *call, struct joint_answer *answers)
{
    const struct sliced s = sliced_of(call->problem);

    note_largest<T><<<row_blocks(s.rows), THREADS, 0, stream_of(call)>>>(
        s, (const T *)call->in[0], answers);
    stream_check(call->stream, call->problem->op);
}

static void run_note_answers(const struct kernel_call *call, struct joint_answer *answers)
{
    if (call->problem->in[0].dtype == DTYPE_BF16)
        launch_note_answers<bf16>(call, answers);
    else if (call->problem->in[0].dtype == DTYPE_F16)
        launch_note_answers<f16>(call, answers);
    else
        launch_note_answers<float>(call, answers);
}

__global__ void count_answers(struct sliced s, struct joint_parts answers,
                              const int32_t *labels, float *correct)
{
    int count = 0;

    for (int64_t i = threadIdx.x; i < s.rows; i += JOIN_THREADS) {
        struct joint_answer found = ((const struct joint_answer *)answers.of[0])[i];
        for (int r = 1; r < answers.count; r++) {
            const struct joint_answer theirs = ((const struct joint_answer *)answers.of[r])[i];
            if (theirs.logit > found.logit)
                found = theirs;
        }
        count += found.class_number == labels[i];
    }
    count = block_sum(count);
    if (threadIdx.x == 0)
        correct[0] = (float)count;
}

static void run_join_answers(const struct kernel_call *call, const struct joint_parts *answers)
{
    count_answers<<<1, JOIN_THREADS, 0, stream_of(call)>>>(sliced_of(call->problem), *answers,
                                                           (const int32_t *)call->in[1],
                                                           (float *)call->out[0]);
    stream_check(call->stream, call->problem->op);
}

extern "C" const struct device_joint_ops cuda_joint_ops = {
    run_sum, run_ids, run_note_losses, run_join_losses, run_note_answers, run_join_answers,
};
