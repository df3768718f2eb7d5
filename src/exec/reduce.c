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

#include "exec/state.h"
#include "kernel/factor.h"

/* A bucket's stretches, in the numbering of the whole vector, and where they begin. */
struct stretches {
    int64_t begin, end; /* elements of the bucket */
    int64_t count;
};

static struct stretches stretches_of(const struct exec *exec, int b)
{
    struct stretches s = { exec->layout.buckets.begin[b], exec->layout.buckets.begin[b + 1],
                           0 };
    s.count = (s.end - s.begin + TREE_STRETCH - 1) / TREE_STRETCH;
    return s;
}

int64_t reduce_stretches(const struct exec *exec, int b)
{
    return stretches_of(exec, b).count;
}

/* What an anchored update sees instead of the sum of gradients. */
static const float *draw_to_anchor(const struct exec *exec, const float *gradient, size_t at,
                                   size_t count, float *out)
{
    const float *param = exec->memory.param + at, *anchor = exec->memory.anchor + at;
    const float *shift = exec->memory.shift + at;

    for (size_t i = 0; i < count; i++)
        out[i] = gradient[i] + exec->layout.facts.rule.mu * (param[i] - anchor[i]) + shift[i];
    return out;
}

static void update_stretch(const struct exec *exec, int b, const float *gradient, size_t at,
                           size_t count, const struct kernel_update_step *numbers)
{
    const struct bucket *update = &exec->layout.updates[b];
    float *state[KERNEL_STATES] = { NULL }, drawn[TREE_STRETCH];

    if (exec->memory.kept)
        memcpy(exec->memory.kept + at, gradient, count * sizeof *gradient);
    if (exec->layout.facts.rule.anchors && !update->is_average) {
        BUG_ON(count > TREE_STRETCH); /* neither factors nor rows */
        gradient = draw_to_anchor(exec, gradient, at, count, drawn);
    }
    for (int i = 0; i < exec->layout.n_states; i++)
        state[i] = exec->memory.state[i] + at;
    update->kernel->run(exec->memory.param + at, gradient, state, count, &update->attrs,
                        numbers);
}

/* Asks for what the update of [at, at + count) will write: other lanes have read it since. */
static void fetch_for_update(const struct exec *exec, size_t at, size_t count)
{
    float *vectors[1 + KERNEL_STATES] = { exec->memory.param };

    for (int k = 0; k < exec->layout.n_states; k++)
        vectors[1 + k] = exec->memory.state[k];
    kernel_fetch_to_write(vectors, 1 + exec->layout.n_states, at, count);
}

/* Between parameters a bucket has gaps, which stay zero; in an arena they are what was there before. */
void reduce_clear_gaps(const struct exec *exec, int b, float *gradients)
{
    for (int i = 0; i < exec->model.count; i++) {
        const struct value *param = exec->model.params[i];
        if (plan_bucket_of(param->flat) != b)
            continue;
        const int64_t count = shape_count(&param->shape);
        for (int64_t at = count; at % 16 != 0; at++)
            gradients[param->offset + at] = 0;
    }
}

/* Asks for all lanes' gradients of [at, at + count). */
static void fetch_parts(const struct exec *exec, size_t at, size_t count)
{
    for (int p = 0; p < exec->memory.n_parts && exec->memory.n_parts > 1; p++) {
        for (size_t i = at; i < at + count; i += 16)
            __builtin_prefetch(exec->memory.parts[p].data + i, 0, 2);
    }
}

struct work {
    struct lane *lane;
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
    struct exec *exec = work->lane->exec;
    const bool is_average = exec->layout.updates[work->bucket].is_average;

    if (work->what == DIRECT && !is_average)
        norms_direct(exec, stretch, &work->numbers);
    else if (work->what == UPDATE && exec->layout.facts.rule.adapts && !is_average)
        norms_update(exec, stretch, trusted, &work->numbers);
    else if (work->what == UPDATE)
        update_stretch(exec, work->bucket, exec->memory.sum + stretch->at, stretch->at,
                       stretch->count, &work->numbers);
}

static void do_stretch(const struct work *work, int64_t number, float *scratch,
                       struct trusted *trusted)
{
    struct exec *exec = work->lane->exec;
    const size_t at = (size_t)(work->s.begin + number * TREE_STRETCH);
    const size_t left = (size_t)work->s.end - at;
    const size_t count = left < TREE_STRETCH ? left : TREE_STRETCH;

    const struct stretch stretch = { work->bucket, number, at, count };

    if (work->what == DIRECT || work->what == UPDATE) {
        do_kept_stretch(work, &stretch, trusted);
        return;
    }
    if (work->what == SUM_AND_GIVE) {
        fetch_parts(exec, at + TREE_STRETCH, left > 2 * TREE_STRETCH ? TREE_STRETCH : 0);
        remote_sum(exec, at, count, scratch);
        return;
    }
    /* The next stretch comes while this one is worked on. */
    if (left > 2 * TREE_STRETCH) {
        fetch_parts(exec, at + TREE_STRETCH, TREE_STRETCH);
        fetch_for_update(exec, at + TREE_STRETCH, TREE_STRETCH);
    }
    const float *sum = work->passing
                           ? work->passing + (at - (size_t)work->s.begin)
                           : tree_combine(exec->memory.parts, exec->memory.n_parts,
                                          exec->topology.tree_shards, at, count, scratch);
    float noised[TREE_STRETCH];
    if (exec->config.privacy)
        sum = privacy_noise(exec, work->bucket, sum, at, count, noised);
    if (work->what == SUM_AND_UPDATE)
        update_stretch(exec, work->bucket, sum, at, count, &work->numbers);
    else
        norms_keep(exec, &stretch, sum, &work->numbers);
}

/* One thread's share of a lane's stretches. */
static void do_share(void *arg, size_t i)
{
    const struct work *work = arg;
    const int64_t mine = (int64_t)i, count = work->end - work->begin;
    struct trusted trusted = { .param = -1 };

    for (int64_t n = mine * count / work->threads; n < (mine + 1) * count / work->threads; n++)
        do_stretch(work, work->begin + n,
                   (float *)((char *)work->lane->scratch + i * work->scratch), &trusted);
}

/* Gradients made from factors --------------------------------------------------------------- */

/* The columns of a factored bucket's weight that a lane works on, and how far its rows are apart. */
struct width {
    int64_t first, count, stride;
};

static struct width width_of(const struct lane *lane, int b)
{
    const struct factored *f = &lane->exec->layout.factored[b];
    const struct columns *own = &lane->columns[b];

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

static size_t factored_scratch(const struct exec *exec, const struct factored *f,
                               struct width width)
{
    const int64_t shards = exec->config.shards;
    const struct kernel_factors factors = { .m = (exec->config.batch + shards - 1) / shards,
                                            .k = f->k,
                                            .n = f->n };
    const struct kernel_block block = { .rows = rows_at_once(width.stride),
                                        .columns = width.count,
                                        .stride = width.stride };
    const int64_t floats = tree_buffers(shards, 0, shards) * piece_floats(f, width.stride);

    return (size_t)floats * sizeof(float) + kernel_factor_scratch(&factors, &block);
}

size_t reduce_scratch(const struct lane *lane)
{
    const struct exec *exec = lane->exec;
    size_t most = TREE_SCRATCH * sizeof(float);

    for (int b = 0; b < exec->layout.buckets.count; b++) {
        const struct width width = width_of(lane, b);
        if (!bucket_is_factored(&exec->layout, b) || width.count == 0)
            continue;
        const size_t bytes = factored_scratch(exec, &exec->layout.factored[b], width);
        most = bytes > most ? bytes : most;
    }
    most = rows_scratch(exec) > most ? rows_scratch(exec) : most;
    return (most + 63) / 64 * 64;
}

/* The sum over all shards, along their tree, of `count` rows from `first` of the weight's gradient, or
 * of the bias's (count 0). It lies at the beginning of scratch. */
static void sum_from_factors(const struct exec *exec, const struct factored *f,
                             struct width width, int64_t first, int64_t count, float *scratch)
{
    const int64_t shards = exec->topology.shards;
    const int64_t piece = piece_floats(f, width.stride);
    const size_t floats = (size_t)(count ? count * width.stride : f->n);
    float *left_over = scratch + tree_buffers(shards, 0, shards) * piece;
    const struct kernel_block block = { first, count, width.first, width.count, width.stride };
    struct tree_stack stack;

    tree_stack_init(&stack, shards);
    for (int64_t v = 0; v < shards; v++) {
        const char *record = exec->memory.records + (size_t)v * exec->layout.record;
        const struct kernel_factors factors = {
            .x = (const float *)(record + f->x),
            .dy = (const float *)(record + f->dy),
            .m = exec_samples(exec, v).rows,
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
static void fetch_factors(const struct exec *exec, const struct factored *f, int64_t first,
                          int64_t count)
{
    for (int64_t v = 0; v < exec->topology.shards; v++) {
        const char *record = exec->memory.records + (size_t)v * exec->layout.record;
        const float *x = (const float *)(record + f->x) + first;
        const int64_t rows = exec_samples(exec, v).rows;
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
    const struct exec *exec = work->lane->exec;
    const struct columns *own = &work->lane->columns[work->bucket];
    float *state[KERNEL_STATES] = { NULL };

    if (!work->factored->forward) {
        update_stretch(exec, work->bucket, gradient,
                       (size_t)(work->s.begin + first * work->factored->n),
                       (size_t)(count * work->factored->n), &work->numbers);
        return;
    }
    for (int i = 0; i < exec->layout.n_states; i++)
        state[i] = own->state[i] + first * own->stride;
    const struct bucket *update = &exec->layout.updates[work->bucket];
    update->kernel->run(own->param + first * own->stride, gradient, state,
                        (size_t)(count * own->stride), &update->attrs, &work->numbers);
}

/* One thread's share of a lane's pieces of a factored bucket. */
static void do_factored_share(void *arg, size_t i)
{
    const struct work *work = arg;
    const struct exec *exec = work->lane->exec;
    const struct factored *f = work->factored;
    const struct width width = width_of(work->lane, work->bucket);
    const int64_t at_once = rows_at_once(width.stride);
    const int64_t mine = (int64_t)i, count = work->end - work->begin;
    float *scratch = (float *)((char *)work->lane->scratch + i * work->scratch);

    for (int64_t n = mine * count / work->threads; n < (mine + 1) * count / work->threads;
         n++) {
        const int64_t first = (work->begin + n) * at_once;
        if (first >= f->k) { /* the piece after the last rows is the bias */
            const size_t bias = (size_t)(work->s.begin + f->bias + width.first);
            sum_from_factors(exec, f, width, 0, 0, scratch);
            update_stretch(exec, work->bucket, scratch + width.first, bias, (size_t)width.count,
                           &work->numbers);
            continue;
        }
        const int64_t rows = f->k - first < at_once ? f->k - first : at_once;
        if (!f->forward)
            fetch_for_update(exec, (size_t)(work->s.begin + first * f->n),
                             (size_t)(rows * f->n));
        if (first + at_once < f->k)
            fetch_factors(exec, f, first + at_once, at_once);
        sum_from_factors(exec, f, width, first, rows, scratch);
        update_rows(work, first, rows, scratch);
    }
}

/* Pieces of a factored bucket that a lane works on: all of its own columns, or its share of rows. */
static void share_pieces(const struct lane *lane, struct work *work)
{
    const struct factored *f = work->factored;
    const struct width width = width_of(lane, work->bucket);

    if (width.count == 0)
        return;
    const int64_t at_once = rows_at_once(width.stride);
    const int64_t pieces = (f->k + at_once - 1) / at_once + (f->bias > 0);
    work->begin = f->forward ? 0 : lane->number * pieces / lane->exec->topology.all_lanes;
    work->end =
        f->forward ? pieces : (lane->number + 1) * pieces / lane->exec->topology.all_lanes;
}

/* Work of a lane --------------------------------------------------------------------------- */

static void run_work(struct work *work)
{
    struct lane *lane = work->lane;

    work->threads = lane->pool ? pool_size(lane->pool) : 1;
    work->scratch = reduce_scratch(lane);
    pool_for(lane->pool, (size_t)work->threads, work->factored ? do_factored_share : do_share,
             work);
}

void reduce_stretches_of(struct lane *lane, int b, int64_t begin, int64_t end,
                         enum reduce_what what, const float *sum,
                         const struct kernel_update_step *numbers)
{
    const struct exec *exec = lane->exec;
    struct work work = { .lane = lane,
                         .bucket = b,
                         .passing = sum,
                         .what = what,
                         .s = stretches_of(exec, b),
                         .numbers = *numbers,
                         .begin = begin,
                         .end = end };

    if (exec->layout.buckets.pass) {
        float *passing = (float *)(lane->arena + lane->plan->gradients[b]);
        reduce_clear_gaps(exec, b, passing);
        work.passing = passing;
    }
    run_work(&work);
}

static void work_on_table(struct lane *lane, int b, enum reduce_what what,
                          const struct kernel_update_step *numbers)
{
    switch (what) {
    case SUM_AND_UPDATE:
        rows_update(lane, b, numbers);
        return;
    case SUM_AND_KEEP:
        rows_keep(lane, b);
        return;
    case SUM_AND_GIVE:
        rows_give(lane, b);
        return;
    case UPDATE:
        rows_update_kept(lane, b, numbers);
        return;
    case DIRECT: /* what has directions has no rows */
        return;
    }
}

void reduce_bucket(struct lane *lane, int b, enum reduce_what what,
                   const struct kernel_update_step *numbers)
{
    const struct exec *exec = lane->exec;

    if (bucket_is_table(&exec->layout, b)) {
        work_on_table(lane, b, what, numbers);
    } else if (bucket_is_factored(&exec->layout, b)) {
        struct work work = { .lane = lane,
                             .bucket = b,
                             .s = stretches_of(exec, b),
                             .numbers = *numbers,
                             .factored = &exec->layout.factored[b] };
        share_pieces(lane, &work);
        if (work.begin < work.end) /* there may be fewer columns than lanes want */
            run_work(&work);
    } else {
        const int64_t count = reduce_stretches(exec, b);
        reduce_stretches_of(lane, b, lane->number * count / exec->topology.all_lanes,
                            (lane->number + 1) * count / exec->topology.all_lanes, what, NULL,
                            numbers);
    }
}

static enum status find_scale(struct exec *exec, float *out)
{
    double norm;

    TRY(norms_of_all(exec, &norm));
    *out = kernel_clip_scale(norm, exec->config.optim.attrs.max_norm);
    return STATUS_OK;
}

enum status reduce_clip_scale(struct exec *exec, uint32_t step, float *out)
{
    struct clip *clip = &exec->clip;
    enum status status = STATUS_OK;

    pthread_mutex_lock(&clip->lock);
    if (clip->steps != step + 1)
        status = find_scale(exec, &clip->scale);
    if (status == STATUS_OK)
        clip->steps = step + 1;
    *out = clip->scale;
    pthread_mutex_unlock(&clip->lock);
    return status;
}

/* Bytes between ranks ---------------------------------------------------------------------- */

/* Of `count` things in a row shared out among all lanes: those of this rank's. */
static int64_t share_of_rank(const struct exec *exec, int64_t count)
{
    const int64_t first = (int64_t)exec->topology.rank * exec->topology.n_lanes;
    return (first + exec->topology.n_lanes) * count / exec->topology.all_lanes -
           first * count / exec->topology.all_lanes;
}

/* Elements of a bucket that this rank's lanes update. */
static int64_t elements_of_rank(const struct exec *exec, struct stretches s)
{
    const int64_t first = (int64_t)exec->topology.rank * exec->topology.n_lanes;
    const int64_t begin = first * s.count / exec->topology.all_lanes * TREE_STRETCH;
    const int64_t end =
        (first + exec->topology.n_lanes) * s.count / exec->topology.all_lanes * TREE_STRETCH;
    const int64_t count = s.end - s.begin;

    return (end < count ? end : count) - (begin < count ? begin : count);
}

/* Floats of a factored bucket that come from other ranks: x and dy of their samples, then either the
 * weights that they update or, where columns belong to lanes, their columns of y. */
static int64_t floats_of_factors(const struct exec *exec, const struct factored *f)
{
    const int64_t shards = exec->config.shards, samples = exec->now.batch->samples;
    const int64_t first = exec_first_shard(exec);
    const int64_t own = sampler_shard_begin(samples, shards, first + exec_shard_count(exec)) -
                        sampler_shard_begin(samples, shards, first);
    const int64_t others = samples - own;

    if (!f->forward) {
        const int64_t rows = share_of_rank(exec, f->k);
        return others * (rows + f->n) + (f->k - rows) * f->n;
    }
    const int64_t columns = share_of_rank(exec, f->n);
    return others * (f->k + columns) + own * (f->n - columns);
}

/* Of a table: other shards' dy of this rank's rows, and the rows that they have updated and this one
 * looks up. */
static int64_t floats_of_rows(const struct exec *exec, int b)
{
    const int64_t first = exec_first_shard(exec), end = first + exec_shard_count(exec);
    const int64_t width = exec->layout.row_sums[b].width;
    int64_t floats = 0;

    for (int64_t v = 0; v < exec->config.shards; v++) {
        const int64_t entries = rows_entries(exec, b, v);
        const int64_t own_rows = entries * width / exec->topology.ranks;
        /* An id with its place is two numbers. */
        floats += v < first || v >= end ? 2 * entries + own_rows : entries * width - own_rows;
    }
    return floats;
}

/* What this rank reads in a step of bucket b that other ranks have written. */
int64_t reduce_bytes(const struct exec *exec, int b)
{
    const struct stretches s = stretches_of(exec, b);
    int64_t floats;

    if (exec->topology.ranks == 1 || exec->topology.nodes > 1) /* of several nodes net counts */
        return 0;
    if (bucket_is_factored(&exec->layout, b)) {
        floats = floats_of_factors(exec, &exec->layout.factored[b]);
    } else if (bucket_is_table(&exec->layout, b)) {
        floats = floats_of_rows(exec, b);
    } else { /* their partial sums of what it updates, and what they update */
        const int64_t own = elements_of_rank(exec, s);
        floats =
            own * (exec->memory.n_parts - exec->memory.own_parts) + (s.end - s.begin - own);
    }
    return floats * (int64_t)sizeof(float);
}
