/* SPDX-License-Identifier: MIT */
/* reduce.c - sums gradients over all lanes of all ranks and updates, each lane its part.
 *
 * A bucket is worked on in stretches of TREE_STRETCH elements that stay in the first cache: the
 * partial sums of all lanes are added along the tree and the update consumes the result at once,
 * so the summed gradient never reaches memory. Lane i of p owns stretches [i*n/p, (i+1)*n/p).
 * A bucket that is one linear layer may be made from factors instead: a few rows of its gradient at
 * a time, of all columns or of those that belong to the lane (columns.c).
 * A table of which some rows occur is worked on row by row (rows.c).
 * Where norms must be known before the update (clipping, LARS, LAMB) the sum is kept with sums of
 * squares, of a table those of its rows; a later task updates (norms.c). sync.c runs the tasks.
 *
 * Cost for a vector of M bytes, p lanes, k partial sums: a lane reads k*M/p, and reads and writes
 * M/p of parameters and of each state.
 */
#include <string.h>

#include "exec/exec.h"
#include "exec/layout.h"
#include "exec/norms.h"
#include "exec/now.h"
#include "exec/remote.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"
#include "kernel/factor.h"

/* A bucket's stretches, in the numbering of the whole vector, and where they begin. */
struct stretches {
    int64_t begin, end; /* elements of the bucket */
    int64_t count;
};

static struct stretches stretches_of(const struct sums *sums, int b)
{
    struct stretches s = { sums->layout->buckets.begin[b], sums->layout->buckets.begin[b + 1],
                           0 };
    s.count = (s.end - s.begin + TREE_STRETCH - 1) / TREE_STRETCH;
    return s;
}

int64_t reduce_stretches(const struct sums *sums, int b)
{
    return stretches_of(sums, b).count;
}

/* What an anchored update sees instead of the sum of gradients. */
static const float *draw_to_anchor(const struct sums *sums, const float *gradient, size_t at,
                                   size_t count, float *out)
{
    const float mu = sums->layout->facts.rule.mu;
    const float *param = sums->memory->param + at, *anchor = sums->memory->anchor + at;
    const float *shift = sums->memory->shift + at;

    for (size_t i = 0; i < count; i++)
        out[i] = gradient[i] + mu * (param[i] - anchor[i]) + shift[i];
    return out;
}

static void update_stretch(const struct sums *sums, int b, const float *gradient, size_t at,
                           size_t count, const struct kernel_update_step *numbers)
{
    const struct bucket *update = &sums->layout->updates[b];
    float *state[KERNEL_STATES] = { NULL }, drawn[TREE_STRETCH];

    if (sums->memory->kept)
        memcpy(sums->memory->kept + at, gradient, count * sizeof *gradient);
    if (sums->layout->facts.rule.anchors && !update->is_average) {
        BUG_ON(count > TREE_STRETCH); /* neither factors nor rows */
        gradient = draw_to_anchor(sums, gradient, at, count, drawn);
    }
    for (int i = 0; i < sums->layout->n_states; i++)
        state[i] = sums->memory->state[i] + at;
    update->kernel->run(sums->memory->param + at, gradient, state, count, &update->attrs,
                        numbers);
}

/* Asks for what the update of [at, at + count) will write: other lanes have read it since. */
static void fetch_for_update(const struct sums *sums, size_t at, size_t count)
{
    float *vectors[1 + KERNEL_STATES] = { sums->memory->param };

    for (int k = 0; k < sums->layout->n_states; k++)
        vectors[1 + k] = sums->memory->state[k];
    kernel_fetch_to_write(vectors, 1 + sums->layout->n_states, at, count);
}

/* Between parameters a bucket has gaps, which stay zero; in an arena they are what was there
 * before. */
void reduce_clear_gaps(const struct sums *sums, int b, float *gradients)
{
    for (int i = 0; i < sums->model->count; i++) {
        const struct value *param = sums->model->params[i];
        if (plan_bucket_of(param->flat) != b)
            continue;
        const int64_t count = shape_count(&param->shape);
        for (int64_t at = count; at % 16 != 0; at++)
            gradients[param->offset + at] = 0;
    }
}

/* Asks for all lanes' gradients of [at, at + count). */
static void fetch_parts(const struct sums *sums, size_t at, size_t count)
{
    const struct tree_part *parts = sums->memory->parts;
    const int n_parts = sums->memory->n_parts;

    for (int p = 0; p < n_parts && n_parts > 1; p++) {
        for (size_t i = at; i < at + count; i += 16)
            __builtin_prefetch(parts[p].data + i, 0, 2);
    }
}

struct work {
    const struct sum_worker *worker;
    int bucket;
    enum reduce_what what;
    struct stretches s;
    struct kernel_update_step numbers;
    int64_t begin, end;              /* stretches of this lane */
    int threads;                     /* that share them */
    size_t scratch;                  /* bytes of scratch of a thread */
    const struct factored *factored; /* or NULL */
    const float *passing;            /* the bucket's gradients, if they lie in the arena */
};

/* The later phases of a stretch whose sum was kept. */
static void do_kept_stretch(const struct work *work, const struct stretch *stretch,
                            struct trusted *trusted)
{
    const struct sums *sums = work->worker->sums;
    const bool is_average = sums->layout->updates[work->bucket].is_average;

    if (work->what == DIRECT && !is_average)
        norms_direct(sums, stretch, &work->numbers);
    else if (work->what == UPDATE && sums->layout->facts.rule.adapts && !is_average)
        norms_update(sums, stretch, trusted, &work->numbers);
    else if (work->what == UPDATE)
        update_stretch(sums, work->bucket, sums->memory->sum + stretch->at, stretch->at,
                       stretch->count, &work->numbers);
}

static void do_stretch(const struct work *work, int64_t number, float *scratch,
                       struct trusted *trusted)
{
    const struct sums *sums = work->worker->sums;
    const size_t at = (size_t)(work->s.begin + number * TREE_STRETCH);
    const size_t left = (size_t)work->s.end - at;
    const size_t count = left < TREE_STRETCH ? left : TREE_STRETCH;

    const struct stretch stretch = { work->bucket, number, at, count };

    if (work->what == DIRECT || work->what == UPDATE) {
        do_kept_stretch(work, &stretch, trusted);
        return;
    }
    if (work->what == SUM_AND_GIVE) {
        fetch_parts(sums, at + TREE_STRETCH, left > 2 * TREE_STRETCH ? TREE_STRETCH : 0);
        remote_sum(sums, at, count, scratch);
        return;
    }
    /* The next stretch comes while this one is worked on. */
    if (left > 2 * TREE_STRETCH) {
        fetch_parts(sums, at + TREE_STRETCH, TREE_STRETCH);
        fetch_for_update(sums, at + TREE_STRETCH, TREE_STRETCH);
    }
    const float *sum = work->passing
                           ? work->passing + (at - (size_t)work->s.begin)
                           : tree_combine(sums->memory->parts, sums->memory->n_parts,
                                          sums->topology->tree_shards, at, count, scratch);
    float noised[TREE_STRETCH];
    if (sums->config->privacy)
        sum = privacy_noise(sums, work->bucket, sum, at, count, noised);
    if (work->what == SUM_AND_UPDATE)
        update_stretch(sums, work->bucket, sum, at, count, &work->numbers);
    else
        norms_keep(sums, &stretch, sum, &work->numbers);
}

/* One thread's share of a lane's stretches. */
static void do_share(void *arg, size_t i)
{
    const struct work *work = arg;
    const int64_t mine = (int64_t)i, count = work->end - work->begin;
    struct trusted trusted = { .param = -1 };

    for (int64_t n = mine * count / work->threads; n < (mine + 1) * count / work->threads; n++)
        do_stretch(work, work->begin + n,
                   (float *)((char *)work->worker->scratch + i * work->scratch), &trusted);
}

/* Gradients made from factors --------------------------------------------------------------- */

/* The columns of a factored bucket's weight that a lane works on, and how far its rows are apart. */
struct width {
    int64_t first, count, stride;
};

static struct width width_of(const struct sum_worker *worker, int b)
{
    const struct factored *f = &worker->sums->layout->factored[b];
    const struct columns *own = &worker->columns[b];

    return f->forward ? (struct width){ own->first, own->count, own->stride }
                      : (struct width){ 0, f->n, f->n };
}

/* Rows of the weight that are worked on at once: about as much as fits the first cache. */
static int64_t rows_at_once(int64_t stride)
{
    const int64_t rows = 4096 / stride / 8 * 8;
    return rows < 8 ? 8 : rows;
}

/* Floats of one partial sum: rows of the weight, or the bias. */
static int64_t piece_floats(const struct factored *f, int64_t stride)
{
    const int64_t floats = rows_at_once(stride) * stride;
    return ((floats > f->n ? floats : f->n) + 15) / 16 * 16;
}

static size_t factored_scratch(const struct sums *sums, const struct factored *f,
                               struct width width)
{
    const int64_t shards = sums->config->shards;
    const struct kernel_factors factors = { .m = (sums->config->batch + shards - 1) / shards,
                                            .k = f->k,
                                            .n = f->n };
    const struct kernel_block block = { .rows = rows_at_once(width.stride),
                                        .columns = width.count,
                                        .stride = width.stride };
    const int64_t floats = tree_buffers(shards, 0, shards) * piece_floats(f, width.stride);

    return (size_t)floats * sizeof(float) + kernel_factor_scratch(&factors, &block);
}

size_t reduce_scratch(const struct sum_worker *worker)
{
    const struct sums *sums = worker->sums;
    size_t most = TREE_SCRATCH * sizeof(float);

    for (int b = 0; b < sums->layout->buckets.count; b++) {
        const struct width width = width_of(worker, b);
        if (!bucket_is_factored(sums->layout, b) || width.count == 0)
            continue;
        const size_t bytes = factored_scratch(sums, &sums->layout->factored[b], width);
        most = bytes > most ? bytes : most;
    }
    most = rows_scratch(sums) > most ? rows_scratch(sums) : most;
    return (most + 63) / 64 * 64;
}

/* The sum over all shards, along their tree, of `count` rows from `first` of the weight's gradient,
 * or of the bias's (count 0). It lies at the beginning of scratch. */
static void sum_from_factors(const struct sums *sums, const struct factored *f,
                             struct width width, int64_t first, int64_t count, float *scratch)
{
    const int64_t shards = sums->topology->shards;
    const int64_t piece = piece_floats(f, width.stride);
    const size_t floats = (size_t)(count ? count * width.stride : f->n);
    float *left_over = scratch + tree_buffers(shards, 0, shards) * piece;
    const struct kernel_block block = { first, count, width.first, width.count, width.stride };
    struct tree_stack stack;

    tree_stack_init(&stack, shards);
    for (int64_t v = 0; v < shards; v++) {
        const char *record = sums->memory->records + (size_t)v * sums->layout->record;
        const struct kernel_factors factors = {
            .x = (const float *)(record + f->x),
            .dy = (const float *)(record + f->dy),
            .m = now_samples(sums->now, sums->topology, v).rows,
            .k = f->k,
            .n = f->n,
        };
        float *sum = scratch + tree_stack_push(&stack, v) * piece;

        if (count)
            kernel_factor_block(&factors, &block, sum, left_over);
        else
            kernel_factor_bias(factors.dy, factors.m, f->n, sum);
        while (tree_stack_can_add(&stack)) {
            float *left = scratch + (stack.count - 2) * piece;
            kernel_add(left, left, left + piece, floats);
            tree_stack_add(&stack);
        }
    }
}

/* Asks for columns [first, first + count) of every shard's x: short rows, far apart, most of them
 * in another core's cache. */
static void fetch_factors(const struct sums *sums, const struct factored *f, int64_t first,
                          int64_t count)
{
    for (int64_t v = 0; v < sums->topology->shards; v++) {
        const char *record = sums->memory->records + (size_t)v * sums->layout->record;
        const float *x = (const float *)(record + f->x) + first;
        const int64_t rows = now_samples(sums->now, sums->topology, v).rows;
        for (int64_t i = 0; i < rows; i++, x += f->k) {
            for (int64_t j = 0; j < count; j += 16)
                __builtin_prefetch(x + j, 0, 3);
        }
    }
}

/* Updates the weight's rows [first, first + count) by the sum at `gradient`: the lane's own columns
 * of them, or whole rows. */
static void update_rows(const struct work *work, int64_t first, int64_t count,
                        const float *gradient)
{
    const struct sums *sums = work->worker->sums;
    const struct columns *own = &work->worker->columns[work->bucket];
    float *state[KERNEL_STATES] = { NULL };

    if (!work->factored->forward) {
        update_stretch(sums, work->bucket, gradient,
                       (size_t)(work->s.begin + first * work->factored->n),
                       (size_t)(count * work->factored->n), &work->numbers);
        return;
    }
    for (int i = 0; i < sums->layout->n_states; i++)
        state[i] = own->state[i] + first * own->stride;
    const struct bucket *update = &sums->layout->updates[work->bucket];
    update->kernel->run(own->param + first * own->stride, gradient, state,
                        (size_t)(count * own->stride), &update->attrs, &work->numbers);
}

/* One thread's share of a lane's pieces of a factored bucket. */
static void do_factored_share(void *arg, size_t i)
{
    const struct work *work = arg;
    const struct sums *sums = work->worker->sums;
    const struct factored *f = work->factored;
    const struct width width = width_of(work->worker, work->bucket);
    const int64_t at_once = rows_at_once(width.stride);
    const int64_t mine = (int64_t)i, count = work->end - work->begin;
    float *scratch = (float *)((char *)work->worker->scratch + i * work->scratch);

    for (int64_t n = mine * count / work->threads; n < (mine + 1) * count / work->threads;
         n++) {
        const int64_t first = (work->begin + n) * at_once;
        if (first >= f->k) { /* the piece after the last rows is the bias */
            const size_t bias = (size_t)(work->s.begin + f->bias + width.first);
            sum_from_factors(sums, f, width, 0, 0, scratch);
            update_stretch(sums, work->bucket, scratch + width.first, bias, (size_t)width.count,
                           &work->numbers);
            continue;
        }
        const int64_t rows = f->k - first < at_once ? f->k - first : at_once;
        if (!f->forward)
            fetch_for_update(sums, (size_t)(work->s.begin + first * f->n),
                             (size_t)(rows * f->n));
        if (first + at_once < f->k)
            fetch_factors(sums, f, first + at_once, at_once);
        sum_from_factors(sums, f, width, first, rows, scratch);
        update_rows(work, first, rows, scratch);
    }
}

/* Pieces of a factored bucket that a lane works on: all of its own columns, or its share of rows. */
static void share_pieces(const struct sum_worker *worker, struct work *work)
{
    const struct factored *f = work->factored;
    const struct width width = width_of(worker, work->bucket);

    if (width.count == 0)
        return;
    const int64_t at_once = rows_at_once(width.stride);
    const int64_t pieces = (f->k + at_once - 1) / at_once + (f->bias > 0);
    work->begin = f->forward ? 0 : worker->number * pieces / worker->sums->topology->all_lanes;
    work->end =
        f->forward ? pieces : (worker->number + 1) * pieces / worker->sums->topology->all_lanes;
}

/* Work of a lane --------------------------------------------------------------------------- */

static void run_work(struct work *work)
{
    const struct sum_worker *worker = work->worker;

    work->threads = worker->pool ? pool_size(worker->pool) : 1;
    work->scratch = reduce_scratch(worker);
    pool_for(worker->pool, (size_t)work->threads, work->factored ? do_factored_share : do_share,
             work);
}

void reduce_stretches_of(const struct sum_worker *worker, int b, int64_t begin, int64_t end,
                         enum reduce_what what, const float *sum,
                         const struct kernel_update_step *numbers)
{
    const struct sums *sums = worker->sums;
    struct work work = { .worker = worker,
                         .bucket = b,
                         .passing = sum,
                         .what = what,
                         .s = stretches_of(sums, b),
                         .numbers = *numbers,
                         .begin = begin,
                         .end = end };

    run_work(&work);
}

static void work_on_table(const struct sum_worker *worker, int b, enum reduce_what what,
                          const struct kernel_update_step *numbers)
{
    switch (what) {
    case SUM_AND_UPDATE:
        rows_update(worker, b, numbers);
        return;
    case SUM_AND_KEEP:
        rows_keep(worker, b);
        return;
    case SUM_AND_GIVE:
        rows_give(worker, b);
        return;
    case UPDATE:
        rows_update_kept(worker, b, numbers);
        return;
    case DIRECT: /* what has directions has no rows */
        return;
    }
}

void reduce_bucket(const struct sum_worker *worker, int b, enum reduce_what what,
                   float *passing, const struct kernel_update_step *numbers)
{
    const struct sums *sums = worker->sums;

    if (bucket_is_table(sums->layout, b)) {
        work_on_table(worker, b, what, numbers);
    } else if (bucket_is_factored(sums->layout, b)) {
        struct work work = { .worker = worker,
                             .bucket = b,
                             .s = stretches_of(sums, b),
                             .numbers = *numbers,
                             .factored = &sums->layout->factored[b] };
        share_pieces(worker, &work);
        if (work.begin < work.end) /* there may be fewer columns than lanes want */
            run_work(&work);
    } else {
        const int64_t count = reduce_stretches(sums, b);
        if (passing)
            reduce_clear_gaps(sums, b, passing);
        reduce_stretches_of(worker, b, worker->number * count / sums->topology->all_lanes,
                            (worker->number + 1) * count / sums->topology->all_lanes, what,
                            passing, numbers);
    }
}

static enum status find_scale(const struct sums *sums, float *out)
{
    double norm;

    TRY(norms_of_all(sums, &norm));
    *out = kernel_clip_scale(norm, sums->config->optim.attrs.max_norm);
    return STATUS_OK;
}

enum status reduce_clip_scale(const struct sums *sums, uint32_t step, float *out)
{
    struct clip *clip = sums->clip;
    enum status status = STATUS_OK;

    pthread_mutex_lock(&clip->lock);
    if (clip->steps != step + 1)
        status = find_scale(sums, &clip->scale);
    if (status == STATUS_OK)
        clip->steps = step + 1;
    *out = clip->scale;
    pthread_mutex_unlock(&clip->lock);
    return status;
}

/* Bytes between ranks ---------------------------------------------------------------------- */

/* Of `count` things in a row shared out among all lanes: those of this rank's. */
static int64_t share_of_rank(const struct sums *sums, int64_t count)
{
    const int64_t first = (int64_t)sums->topology->rank * sums->topology->n_lanes;
    return (first + sums->topology->n_lanes) * count / sums->topology->all_lanes -
           first * count / sums->topology->all_lanes;
}

/* Elements of a bucket that this rank's lanes update. */
static int64_t elements_of_rank(const struct sums *sums, struct stretches s)
{
    const int64_t first = (int64_t)sums->topology->rank * sums->topology->n_lanes;
    const int64_t begin = first * s.count / sums->topology->all_lanes * TREE_STRETCH;
    const int64_t end =
        (first + sums->topology->n_lanes) * s.count / sums->topology->all_lanes * TREE_STRETCH;
    const int64_t count = s.end - s.begin;

    return (end < count ? end : count) - (begin < count ? begin : count);
}

/* Floats of a factored bucket that come from other ranks: x and dy of their samples, then either
 * the weights that they update or, where columns belong to lanes, their columns of y. */
static int64_t floats_of_factors(const struct sums *sums, const struct factored *f)
{
    const int64_t shards = sums->config->shards, samples = sums->now->batch->samples;
    const int64_t first = topology_own_first(sums->topology);
    const int64_t end = topology_own_end(sums->topology);
    const int64_t own =
        sampler_shard_begin(samples, shards, end) - sampler_shard_begin(samples, shards, first);
    const int64_t others = samples - own;

    if (!f->forward) {
        const int64_t rows = share_of_rank(sums, f->k);
        return others * (rows + f->n) + (f->k - rows) * f->n;
    }
    const int64_t columns = share_of_rank(sums, f->n);
    return others * (f->k + columns) + own * (f->n - columns);
}

/* Of a table: other shards' dy of this rank's rows, and the rows that they have updated and this
 * one looks up. */
static int64_t floats_of_rows(const struct sums *sums, int b)
{
    const int64_t first = topology_own_first(sums->topology);
    const int64_t end = topology_own_end(sums->topology);
    const int64_t width = sums->layout->row_sums[b].width;
    int64_t floats = 0;

    for (int64_t v = 0; v < sums->config->shards; v++) {
        const int64_t entries = rows_entries(sums, b, v);
        const int64_t own_rows = entries * width / sums->topology->ranks;
        /* An id with its place is two numbers. */
        floats += v < first || v >= end ? 2 * entries + own_rows : entries * width - own_rows;
    }
    return floats;
}

/* Bytes of bucket b that this rank reads in a step and other ranks have written. */
int64_t reduce_bytes(const struct sums *sums, int b)
{
    const struct stretches s = stretches_of(sums, b);
    int64_t floats;

    if (sums->topology->ranks == 1 ||
        sums->topology->nodes > 1) /* of several nodes net counts */
        return 0;
    if (bucket_is_factored(sums->layout, b)) {
        floats = floats_of_factors(sums, &sums->layout->factored[b]);
    } else if (bucket_is_table(sums->layout, b)) {
        floats = floats_of_rows(sums, b);
    } else { /* their partial sums of what it updates, and what they update */
        const int64_t own = elements_of_rank(sums, s);
        floats =
            own * (sums->memory->n_parts - sums->memory->own_parts) + (s.end - s.begin - own);
    }
    return floats * (int64_t)sizeof(float);
}
