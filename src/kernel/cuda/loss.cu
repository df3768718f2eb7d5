/* SPDX-License-Identifier: MIT */
/* loss.cu - losses, their gradients, and accuracy.
 *
 * A block a row makes what the row adds to the loss, or whether its first largest is the label; one block
 * then adds the rows, each thread every 1024th, in double. Cross entropy goes along the logits once, keeping the
 * largest and the sum of exponentials around it.
 */
#include "kernel/cuda/device.cuh"

enum {
    SUM_THREADS = 1024,
    SUM_PARTS = 1024,
    LONG_THREADS = 512,
    FEW_CLASSES = 32,
    FEW_THREADS = 512,
    FEW_BYTES = 40960, /* of rows at a time */
    FEW_SAMPLES = 2048
};

/* One block: out = factor * sum of parts, times the step's inv_batch, which of gradients' steps is scaled. */
__global__ void add_parts(const double *parts, int64_t count, double factor,
                          const struct kernel_step *step, float *out)
{
    double sum = 0;

    for (int64_t i = threadIdx.x; i < count; i += SUM_THREADS)
        sum += parts[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        *out = (float)(sum * factor *
                       ((double)step->inv_batch / (step->scale > 0 ? (double)step->scale : 1)));
}

static void finish_loss(const struct kernel_call *call, int64_t count, double factor)
{
    add_parts<<<1, SUM_THREADS, 0, stream_of(call)>>>(
        (const double *)call->scratch, count, factor, call->step, (float *)call->out[0]);
    stream_check(call->stream, call->problem->op);
}

static size_t row_scratch(const struct kernel_problem *p)
{
    return (size_t)p->in[0].shape.dim[0] * sizeof(double);
}

/* Threads for a row: one warp for some classes, as there are many rows. */
static unsigned threads_of_row(int64_t classes)
{
    return classes <= 128 ? WARP : threads_for(classes);
}

/* Cross entropy ------------------------------------------------------------------------ */

struct classes {
    int64_t count;
    float smoothing;
    bool leaves_out; /* rows whose label is below 0 */
    int64_t first,
        whole; /* of a slice of the classes: its first, and how many there are in all */
};

static struct classes classes_of(const struct kernel_problem *p, bool tokens)
{
    const struct shape_slice *slice = &p->attrs.slice;
    struct classes c = { p->in[0].shape.dim[1], p->attrs.smoothing, tokens, 0,
                         p->in[0].shape.dim[1] };

    if (slice->count > 0) {
        c.first = slice_begin(slice->whole, slice->index, slice->count);
        c.whole = slice->whole;
    }
    return c;
}

__device__ __forceinline__ float target_of(struct classes c, int64_t j, int32_t label)
{
    const float spread = c.smoothing / (float)c.whole;
    return c.first + j == label ? 1 - c.smoothing + spread : spread;
}

/* What a thread knows of a row: its largest, the sum of exponentials around that, and the plain sum. */
struct share {
    float largest, sum, all;
};

/* What the row adds to the loss, from the shares of all threads, and its lse; *whole becomes the row's share. */
__device__ static double row_loss(struct classes c, struct share own, int32_t label,
                                  float at_label, struct share *whole, float *lse)
{
    whole->largest = block_max(own.largest);
    whole->sum = block_sum(own.sum != 0 ? own.sum * expf(own.largest - whole->largest) : 0.0F);
    const double total =
        c.smoothing != 0 ? block_sum((double)own.all) - (double)whole->largest * (double)c.count
                         : 0;
    const double log_of_sum = log((double)whole->sum), smoothing = (double)c.smoothing;

    *lse = (float)((double)whole->largest + log_of_sum);
    return label >= 0 && label < c.count
               ? log_of_sum - (1 - smoothing) * (double)(at_label - whole->largest) -
                     smoothing / (double)c.count * total
               : (double)NAN;
}

/* probs or lse is NULL. */
template <class T>
__global__ void cross_entropy(struct classes c, const T *logits, const int32_t *labels,
                              T *probs, float *lse, double *losses)
{
    const int64_t row = blockIdx.x;
    const int32_t label = labels[row];
    const T *x = logits + row * c.count;
    struct share own = { -INFINITY, 0, 0 }, whole;
    float of_row;

    if (c.leaves_out && label < 0) {
        if (threadIdx.x == 0) {
            losses[row] = 0;
            lse[row] = 0;
        }
        return;
    }
    for (int64_t j = threadIdx.x; j < c.count; j += blockDim.x) {
        const float at = number(x[j]);
        if (at > own.largest) {
            own.sum = own.sum * exp_of<T>(own.largest - at) + 1;
            own.largest = at;
        } else if (at != -INFINITY) { /* what is no number makes the sum none */
            own.sum += exp_of<T>(at - own.largest);
        }
        own.all += at;
    }
    const float at_label = label >= 0 && label < c.count ? number(x[label]) : 0;
    const double loss = row_loss(c, own, label, at_label, &whole, &of_row);
    for (int64_t j = threadIdx.x; probs && j < c.count; j += blockDim.x)
        put(&probs[row * c.count + j], exp_of<T>(number(x[j]) - whole.largest) / whole.sum);
    if (threadIdx.x != 0)
        return;
    losses[row] = loss;
    if (lse)
        lse[row] = of_row;
}

/* Of few classes of few rows a thread has a row, and one block all of them. What it is asked for: probs, or what flows back, of
 * probabilities as rounded as these, and how many rows are right; the others are NULL. */
template <class T> struct few {
    struct classes c;
    const T *logits;
    const int32_t *labels;
    int64_t rows;
    const struct kernel_step *step;
    float *loss, *correct;
    T *probs, *dlogits;
};

/* Rows come to shared memory first, as they lie in one piece. Loops are short and not unrolled: a launch as small as this waits for
 * its instructions most of the time. */
template <class T>
__global__ void __launch_bounds__(FEW_THREADS) cross_entropy_few(struct few<T> f)
{
    __shared__ T all[FEW_BYTES / sizeof(T)];
    const int count = (int)f.c.count, per_time = (int)blockDim.x;
    const double smoothing = (double)f.c.smoothing;
    const float scale = f.step->scale > 0 ? f.step->scale : 1, inv_batch = f.step->inv_batch;
    double losses = 0;
    int correct = 0;

    for (int64_t row0 = 0; row0 < f.rows; row0 += per_time) {
        const int rows = f.rows - row0 < per_time ? (int)(f.rows - row0) : per_time;
        const int64_t row = row0 + threadIdx.x;
        const int32_t label = (int)threadIdx.x < rows ? f.labels[row] : 0;
        T *x = all + (int)threadIdx.x * count;

        __syncthreads();
#pragma unroll 4
        for (int i = threadIdx.x; i < rows * count; i += per_time)
            all[i] = f.logits[row0 * count + i];
        __syncthreads();
        if ((int)threadIdx.x < rows) {
            float largest = -INFINITY, sum = 0;
            int first = 0;
#pragma unroll 1
            for (int j = 0; j < count; j++) {
                first = number(x[j]) > number(x[first]) ? j : first;
                largest = fmaxf(largest, number(x[j]));
            }
            const bool is_class = label >= 0 && label < count;
            const double apart = (double)((is_class ? number(x[label]) : NAN) - largest);
            double total = 0;
#pragma unroll 1
            for (int j = 0; smoothing != 0 && j < count; j++)
                total += (double)number(x[j]) - (double)largest;
#pragma unroll 1
            for (int j = 0; j < count; j++)
                sum += exp_of<T>(number(x[j]) - largest);
            const float share = 1 / sum, spread = f.c.smoothing / (float)count;
#pragma unroll 1
            for (int j = 0; j < count; j++) {
                put(&x[j], exp_of<T>(number(x[j]) - largest) * share);
                if (f.dlogits)
                    put(&x[j],
                        (number(x[j]) - (j == label ? 1 - f.c.smoothing + spread : spread)) *
                            inv_batch);
            }
            correct += first == label;
            losses += log((double)sum) - (1 - smoothing) * apart -
                      (smoothing != 0 ? smoothing / (double)count * total : 0);
        }
        __syncthreads();
        T *out = f.dlogits ? f.dlogits : f.probs;
#pragma unroll 4
        for (int i = threadIdx.x; i < rows * count; i += per_time)
            out[row0 * count + i] = all[i];
    }
    losses = block_sum(losses);
    if (f.correct)
        correct = block_sum(correct);
    if (threadIdx.x == 0)
        *f.loss = (float)(losses * ((double)inv_batch / (double)scale)); /* kernel_inv_batch */
    if (threadIdx.x == 0 && f.correct)
        *f.correct = (float)correct;
}

template <class T>
static void launch_few(const struct kernel_call *call, const struct few<T> &f)
{
    const int64_t most = FEW_BYTES / (int64_t)sizeof(T) / f.c.count / WARP * WARP;
    const int64_t wish = blocks_of(f.rows, WARP) * (int64_t)WARP;
    const int64_t threads = wish < most ? wish : most;

    cross_entropy_few<T>
        <<<1, (unsigned)(threads < FEW_THREADS ? threads : FEW_THREADS), 0, stream_of(call)>>>(
            f);
    stream_check(call->stream, call->problem->op);
}

static bool has_few(const struct kernel_problem *p)
{
    return p->in[0].shape.dim[1] <= FEW_CLASSES && p->in[0].shape.dim[0] <= FEW_SAMPLES;
}

/* Long rows of tokens: packs, and what is before the first that lies evenly and behind the last. */
template <class T> struct long_row {
    enum { N = pack<T>::N };
    const T *x;
    int64_t count;
    int lead; /* elements before the packs */

    __device__ long_row(const T *row, int64_t columns) : x(row), count(columns)
    {
        lead = (int)((sizeof(pack<T>) - (uintptr_t)row % sizeof(pack<T>)) % sizeof(pack<T>) /
                     sizeof(T));
    }
    __device__ int64_t packs() const
    {
        return (count - lead) / N;
    }
    /* Where the k-th of the others is; there are others(). */
    __device__ int others() const
    {
        return (int)(count - packs() * N);
    }
    __device__ int64_t other(int k) const
    {
        return k < lead ? k : packs() * N + k;
    }
};

/* The same for these: one look at the largest for each pack. */
template <class T>
__global__ void token_entropy_long(struct classes c, const T *logits, const int32_t *labels,
                                   float *lse, double *losses)
{
    enum { N = pack<T>::N };
    const int64_t row = blockIdx.x;
    const int32_t label = labels[row];
    const long_row<T> x(logits + row * c.count, c.count);
    struct share own = { -INFINITY, 0, 0 }, whole;
    float of_row;

    if (label < 0) {
        if (threadIdx.x == 0) {
            losses[row] = 0;
            lse[row] = 0;
        }
        return;
    }
    if ((int)threadIdx.x < x.others()) {
        own.all = number(x.x[x.other((int)threadIdx.x)]);
        own.largest = fmaxf(own.largest, own.all); /* what is no number is no largest */
        own.sum = exp_of<T>(own.all - (own.largest > -INFINITY ? own.largest : 0));
    }
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < x.packs(); j += blockDim.x) {
        const pack<T> in = *(const pack<T> *)(x.x + x.lead + j * N);
        float most = own.largest;
#pragma unroll
        for (int k = 0; k < N; k++)
            most = fmaxf(most, number(in.x[k]));
        const float base = most > -INFINITY ? most : 0;
        own.sum *= exp_of<T>(own.largest - base); /* 0 times 0 at the beginning */
        own.largest = most;
#pragma unroll
        for (int k = 0; k < N; k++) {
            own.sum += exp_of<T>(number(in.x[k]) - base);
            own.all += number(in.x[k]);
        }
    }
    const float at_label = label < c.count ? number(x.x[label]) : 0;
    const double loss = row_loss(c, own, label, at_label, &whole, &of_row);
    if (threadIdx.x == 0) {
        losses[row] = loss;
        lse[row] = of_row;
    }
}

static bool is_long(const struct kernel_problem *p)
{
    return p->in[0].shape.dim[1] >= 1024;
}

template <class T> static void launch_cross_entropy(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const bool tokens = strncmp(p->op, "token_", 6) == 0;
    const int64_t rows = p->in[0].shape.dim[0];

    if (!tokens && has_few(p)) {
        launch_few<T>(call, { classes_of(p, false), (const T *)call->in[0],
                              (const int32_t *)call->in[1], rows, call->step,
                              (float *)call->out[0], NULL, (T *)call->out[1], NULL });
        return;
    }
    if (tokens && is_long(p))
        token_entropy_long<T><<<(unsigned)rows, LONG_THREADS, 0, stream_of(call)>>>(
            classes_of(p, tokens), (const T *)call->in[0], (const int32_t *)call->in[1],
            (float *)call->out[1], (double *)call->scratch);
    else
        cross_entropy<T>
            <<<(unsigned)rows, threads_of_row(p->in[0].shape.dim[1]), 0, stream_of(call)>>>(
                classes_of(p, tokens), (const T *)call->in[0], (const int32_t *)call->in[1],
                tokens ? NULL : (T *)call->out[1], tokens ? (float *)call->out[1] : NULL,
                (double *)call->scratch);
    finish_loss(call, rows, 1);
}

static void run_cross_entropy(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_cross_entropy, call);
}

template <class T>
__global__ void cross_entropy_grad(struct classes c, const T *probs, const int32_t *labels,
                                   T *dlogits, int64_t count, const struct kernel_step *step)
{
    const int64_t i = thread_number();

    if (i >= count)
        return;
    const int64_t row = divided(i, c.count);
    put(&dlogits[i],
        (number(probs[i]) - target_of(c, i - row * c.count, labels[row])) * step->inv_batch);
}

template <class T> static void launch_cross_entropy_grad(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->in[0].shape);

    cross_entropy_grad<T><<<blocks_of(count, THREADS), THREADS, 0, stream_of(call)>>>(
        classes_of(call->problem, false), (const T *)call->in[0], (const int32_t *)call->in[1],
        (T *)call->out[0], count, call->step);
    stream_check(call->stream, call->problem->op);
}

static void run_cross_entropy_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_cross_entropy_grad, call);
}

template <class T>
__global__ void token_grad(struct classes c, const T *logits, const float *lse,
                           const int32_t *labels, T *dlogits, const struct kernel_step *step)
{
    const int64_t row = blockIdx.x;
    const int32_t label = labels[row];
    const float shift = lse[row], factor = step->inv_batch;

    for (int64_t j = threadIdx.x; j < c.count; j += blockDim.x) {
        const int64_t i = row * c.count + j;
        put(&dlogits[i],
            label < 0
                ? 0.0F
                : (exp_of<T>(number(logits[i]) - shift) - target_of(c, j, label)) * factor);
    }
}

/* dlogits lies as logits do, or is logits. */
template <class T>
__global__ void token_grad_long(struct classes c, const T *logits, const float *lse,
                                const int32_t *labels, T *dlogits,
                                const struct kernel_step *step)
{
    enum { N = pack<T>::N };
    const int64_t row = blockIdx.x;
    const int32_t label = labels[row];
    const float shift = lse[row], factor = label < 0 ? 0 : step->inv_batch;
    const float spread = c.smoothing / (float)c.whole, full = 1 - c.smoothing + spread;
    const int64_t own_label = label - c.first;
    const long_row<T> x(logits + row * c.count, c.count);
    T *dx = dlogits + row * c.count;

    if ((int)threadIdx.x < x.others()) {
        const int64_t j = x.other((int)threadIdx.x);
        put(&dx[j],
            label < 0 ? 0.0F
                      : (exp_of<T>(number(x.x[j]) - shift) - (j == own_label ? full : spread)) *
                            factor);
    }
#pragma unroll 4
    for (int64_t j = threadIdx.x; j < x.packs(); j += blockDim.x) {
        const int64_t at = x.lead + j * N;
        const pack<T> in = *(const pack<T> *)(x.x + at);
        pack<T> out;
#pragma unroll
        for (int k = 0; k < N; k++)
            put(&out.x[k], label < 0 ? 0.0F
                                     : (exp_of<T>(number(in.x[k]) - shift) -
                                        (at + k == own_label ? full : spread)) *
                                           factor);
        *(pack<T> *)(dx + at) = out;
    }
}

template <class T> static void launch_token_grad(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;
    const bool alike =
        ((uintptr_t)call->in[0] - (uintptr_t)call->out[0]) % sizeof(pack<T>) == 0;
    const struct classes c = classes_of(call->problem, true);

    if (is_long(call->problem) && alike)
        token_grad_long<T><<<(unsigned)dim[0], LONG_THREADS, 0, stream_of(call)>>>(
            c, (const T *)call->in[0], (const float *)call->in[1], (const int32_t *)call->in[2],
            (T *)call->out[0], call->step);
    else
        token_grad<T><<<(unsigned)dim[0], threads_of_row(dim[1]), 0, stream_of(call)>>>(
            c, (const T *)call->in[0], (const float *)call->in[1], (const int32_t *)call->in[2],
            (T *)call->out[0], call->step);
    stream_check(call->stream, call->problem->op);
}

static void run_token_grad(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_token_grad, call);
}

/* Accuracy ----------------------------------------------------------------------------- */

/* The first largest of a row: of two equal ones the one before. */
struct place {
    float x;
    int at;
};

__device__ __forceinline__ struct place larger(struct place a, struct place b)
{
    return b.x > a.x || (b.x == a.x && b.at < a.at) ? b : a;
}

__device__ static struct place warp_larger(struct place p)
{
    for (int apart = WARP / 2; apart > 0; apart /= 2) {
        const struct place other = { __shfl_xor_sync(0xffffffffU, p.x, apart),
                                     __shfl_xor_sync(0xffffffffU, p.at, apart) };
        p = larger(p, other);
    }
    return p;
}

/* The block's row is right, by the best places of its threads. */
__device__ static void give_correct(struct place best, float first_of_row, int32_t label,
                                    int *correct)
{
    __shared__ struct place parts[WARP];

    best = warp_larger(best);
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = best;
    __syncthreads();
    if (threadIdx.x >= WARP)
        return;
    const struct place none = { -INFINITY, INT_MAX };
    best = warp_larger(threadIdx.x < blockDim.x / WARP ? parts[threadIdx.x] : none);
    if (threadIdx.x == 0) { /* nothing is larger than what is no number at the beginning */
        const int first = best.at == INT_MAX || isnan(first_of_row) ? 0 : best.at;
        correct[blockIdx.x] = first == label;
    }
}

template <class T>
__global__ void is_correct(const T *logits, const int32_t *labels, int64_t classes,
                           int *correct)
{
    const T *x = logits + blockIdx.x * classes;
    struct place best = { -INFINITY, INT_MAX };

    for (int64_t j = threadIdx.x; j < classes; j += blockDim.x) {
        if (number(x[j]) > best.x) {
            best.x = number(x[j]);
            best.at = (int)j;
        }
    }
    give_correct(best, number(x[0]), labels[blockIdx.x], correct);
}

template <class T>
__global__ void is_correct_long(const T *logits, const int32_t *labels, int64_t classes,
                                int *correct)
{
    enum { N = pack<T>::N };
    const long_row<T> x(logits + blockIdx.x * classes, classes);
    struct place best = { -INFINITY, INT_MAX };

#pragma unroll 4
    for (int64_t j = threadIdx.x; j < x.packs(); j += blockDim.x) {
        const pack<T> in = *(const pack<T> *)(x.x + x.lead + j * N);
#pragma unroll
        for (int k = 0; k < N; k++) {
            const float at = number(in.x[k]);
            best.at = at > best.x ? (int)(x.lead + j * N) + k : best.at;
            best.x = at > best.x ? at : best.x;
        }
    }
    if ((int)threadIdx.x < x.others()) {
        const int64_t j = x.other((int)threadIdx.x);
        const struct place more = { number(x.x[j]), (int)j };
        if (more.x > -INFINITY)
            best = larger(best, more);
    }
    give_correct(best, number(x.x[0]), labels[blockIdx.x], correct);
}

__global__ void add_correct(const int *correct, int64_t rows, void *out, bool whole)
{
    int sum = 0;

    for (int64_t i = threadIdx.x; i < rows; i += SUM_THREADS)
        sum += correct[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0 && whole)
        *(int32_t *)out = sum;
    else if (threadIdx.x == 0)
        *(float *)out = (float)sum;
}

template <class T>
__global__ void __launch_bounds__(SUM_THREADS)
    count_few(const T *logits, const int32_t *labels, int64_t rows, int classes, void *out,
              bool whole)
{
    int sum = 0;

    for (int64_t row = threadIdx.x; row < rows; row += SUM_THREADS) {
        const T *x = logits + row * classes;
        int first = 0;
        for (int j = 1; j < classes; j++)
            first = number(x[j]) > number(x[first]) ? j : first;
        sum += first == labels[row];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0 && whole)
        *(int32_t *)out = sum;
    else if (threadIdx.x == 0)
        *(float *)out = (float)sum;
}

/* By a block a row, and one that adds; scratch of a number a row. */
template <class T>
static void count_correct(const struct kernel_call *call, const T *logits,
                          const int32_t *labels, int *scratch, void *out)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    if (is_long(call->problem))
        is_correct_long<T><<<(unsigned)dim[0], LONG_THREADS, 0, stream_of(call)>>>(
            logits, labels, dim[1], scratch);
    else
        is_correct<T><<<(unsigned)dim[0], threads_of_row(dim[1]), 0, stream_of(call)>>>(
            logits, labels, dim[1], scratch);
    add_correct<<<1, SUM_THREADS, 0, stream_of(call)>>>(
        scratch, dim[0], out, call->problem->out[0].dtype == DTYPE_I32);
    stream_check(call->stream, call->problem->op);
}

template <class T> static void launch_accuracy(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    if (!has_few(call->problem)) {
        count_correct<T>(call, (const T *)call->in[0], (const int32_t *)call->in[1],
                         (int *)call->scratch, call->out[0]);
        return;
    }
    count_few<T><<<1, SUM_THREADS, 0, stream_of(call)>>>(
        (const T *)call->in[0], (const int32_t *)call->in[1], dim[0], (int)dim[1], call->out[0],
        call->problem->out[0].dtype == DTYPE_I32);
    stream_check(call->stream, call->problem->op);
}

static void run_accuracy(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_accuracy, call);
}

/* All at once -------------------------------------------------------------------------- */

/* What rows add to the loss, then which are right. */
static size_t softmax_loss_scratch(const struct kernel_problem *p)
{
    return (size_t)p->in[0].shape.dim[0] * (sizeof(double) + sizeof(int));
}

/* Of many classes or rows one after the other; probabilities lie where what flows back will. */
template <class T> static void launch_softmax_loss(const struct kernel_call *call)
{
    const struct kernel_problem *p = call->problem;
    const int64_t rows = p->in[0].shape.dim[0];
    const struct classes c = classes_of(p, false);
    const T *logits = (const T *)call->in[0];
    const int32_t *labels = (const int32_t *)call->in[1];
    float *correct = (float *)call->out[1];
    T *dlogits = (T *)call->out[2];
    double *losses = (double *)call->scratch;

    if (has_few(p)) {
        launch_few<T>(call, { c, logits, labels, rows, call->step, (float *)call->out[0],
                              correct, NULL, dlogits });
        return;
    }
    cross_entropy<T><<<(unsigned)rows, threads_of_row(c.count), 0, stream_of(call)>>>(
        c, logits, labels, dlogits, NULL, losses);
    finish_loss(call, rows, 1);
    count_correct<T>(call, logits, labels, (int *)(losses + rows), correct);
    cross_entropy_grad<T><<<blocks_of(rows * c.count, THREADS), THREADS, 0, stream_of(call)>>>(
        c, dlogits, labels, dlogits, rows * c.count, call->step);
    stream_check(call->stream, p->op);
}

static void run_softmax_loss(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_softmax_loss, call);
}

/* Squared difference ------------------------------------------------------------------- */

static int64_t mse_parts(int64_t count)
{
    const int64_t parts = (count + 4095) / 4096;
    return parts < SUM_PARTS ? parts : SUM_PARTS;
}

static size_t mse_scratch(const struct kernel_problem *p)
{
    return (size_t)mse_parts(shape_count(&p->in[0].shape)) * sizeof(double);
}

template <class T>
__global__ void mse(const T *x, const T *target, int64_t count, double *parts)
{
    double sum = 0;

    for (int64_t i = thread_number(); i < count; i += (int64_t)gridDim.x * THREADS) {
        const double apart = (double)number(x[i]) - (double)number(target[i]);
        sum = fma(apart, apart, sum);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = sum;
}

template <class T> static void launch_mse(const struct kernel_call *call)
{
    const struct shape *shape = &call->problem->in[0].shape;
    const int64_t count = shape_count(shape), parts = mse_parts(count);

    mse<T><<<(unsigned)parts, THREADS, 0, stream_of(call)>>>(
        (const T *)call->in[0], (const T *)call->in[1], count, (double *)call->scratch);
    finish_loss(call, parts, (double)shape->dim[0] / (double)count);
}

static void run_mse(const struct kernel_call *call)
{
    BY_TYPE(call->problem->in[0], launch_mse, call);
}

#define ROW(op, scratch, run)                                                                  \
    {                                                                                          \
        op, "own", NULL, scratch, NULL, NULL, run                                              \
    }
extern "C" const struct kernel cuda_loss_rows[] = {
    ROW("softmax_cross_entropy", row_scratch, run_cross_entropy),
    ROW("softmax_cross_entropy_grad", NULL, run_cross_entropy_grad),
    ROW("softmax_loss", softmax_loss_scratch, run_softmax_loss),
    ROW("token_cross_entropy", row_scratch, run_cross_entropy),
    ROW("token_cross_entropy_grad", NULL, run_token_grad),
    ROW("accuracy", row_scratch, run_accuracy),
    ROW("token_accuracy", row_scratch, run_accuracy),
    ROW("mse", mse_scratch, run_mse),
    { NULL, NULL, NULL, NULL, NULL, NULL, NULL },
};
