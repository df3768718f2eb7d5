/* SPDX-License-Identifier: MIT */
/* reduce.c - sums gradients over all lanes of all ranks and updates, each lane its part.
 *
 * A bucket is worked on in stretches of TREE_STRETCH elements that stay in the first cache: the
 * partial sums of all lanes are added along the tree and the update consumes the result at once,
 * so the summed gradient never reaches memory. Lane i of p owns stretches [i*n/p, (i+1)*n/p).
 * With clipping the sum is stored with a sum of squares a stretch; when every lane has done
 * that, everybody adds the squares in the same order and then updates.
 *
 * Cost for a vector of M bytes, p lanes, k partial sums: a lane reads k*M/p, and reads and writes
 * M/p of parameters and of each state.
 */
#include <math.h>

#include "base/clock.h"
#include "exec/state.h"

/* A bucket's stretches, in the numbering of the whole vector, and where they begin. */
struct stretches {
    int64_t begin, end; /* elements of the bucket */
    int64_t count;
};

static struct stretches stretches_of(const struct exec *exec, int b)
{
    struct stretches s = { exec->buckets.begin[b], exec->buckets.begin[b + 1], 0 };
    s.count = (s.end - s.begin + TREE_STRETCH - 1) / TREE_STRETCH;
    return s;
}

/* Stretches of buckets before b: where b's sums of squares begin. */
static int64_t stretches_before(const struct exec *exec, int b)
{
    int64_t count = 0;
    for (int i = 0; i < b; i++)
        count += stretches_of(exec, i).count;
    return count;
}

static void update_stretch(const struct exec *exec, const float *gradient, size_t at,
                           size_t count, const struct kernel_update_step *numbers)
{
    float *state[KERNEL_STATES] = { NULL };

    for (int i = 0; i < exec->n_states; i++)
        state[i] = exec->state[i] + at;
    exec->update->run(exec->param + at, gradient, state, count, &exec->update_attrs, numbers);
}

enum what { SUM_AND_UPDATE, SUM_AND_SQUARE, UPDATE };

struct work {
    struct lane *lane;
    enum what what;
    struct stretches s;
    int64_t squares; /* where the bucket's sums of squares begin */
    struct kernel_update_step numbers;
    int64_t begin, end; /* stretches of this lane */
    int threads;        /* that share them */
};

static void do_stretch(const struct work *work, int64_t number, float *scratch)
{
    struct exec *exec = work->lane->exec;
    const size_t at = (size_t)(work->s.begin + number * TREE_STRETCH);
    const size_t left = (size_t)work->s.end - at;
    const size_t count = left < TREE_STRETCH ? left : TREE_STRETCH;

    if (work->what == UPDATE) {
        update_stretch(exec, exec->sum + at, at, count, &work->numbers);
        return;
    }
    const float *sum =
        tree_combine(exec->parts, exec->n_parts, exec->config.shards, at, count, scratch);
    if (work->what == SUM_AND_UPDATE) {
        update_stretch(exec, sum, at, count, &work->numbers);
        return;
    }
    for (size_t i = 0; i < count; i++)
        exec->sum[at + i] = sum[i];
    exec->squares[work->squares + number] = kernel_sum_squares(sum, count);
}

/* One thread's share of a lane's stretches. */
static void do_share(void *arg, size_t i)
{
    const struct work *work = arg;
    const int64_t mine = (int64_t)i, count = work->end - work->begin;

    for (int64_t n = mine * count / work->threads; n < (mine + 1) * count / work->threads; n++)
        do_stretch(work, work->begin + n, work->lane->scratch + i * TREE_SCRATCH);
}

static void work_on_bucket(struct lane *lane, int b, enum what what,
                           const struct kernel_update_step *numbers)
{
    const struct exec *exec = lane->exec;
    struct work work = { .lane = lane,
                         .what = what,
                         .s = stretches_of(exec, b),
                         .squares = exec->clips ? stretches_before(exec, b) : 0,
                         .numbers = *numbers };

    work.begin = lane->number * work.s.count / exec->all_lanes;
    work.end = (lane->number + 1) * work.s.count / exec->all_lanes;
    work.threads = lane->pool ? pool_size(lane->pool) : 1;
    pool_for(lane->pool, (size_t)work.threads, do_share, &work);
}

static enum status clip_and_update(struct lane *lane)
{
    struct exec *exec = lane->exec;
    struct kernel_update_step numbers = exec->numbers;
    const int64_t n_squares = stretches_before(exec, exec->buckets.count);
    double squares = 0;

    exec_meet(exec, "reduced");
    transport_raise(exec->reduced, 1);
    TRY(exec_wait(exec, lane, exec->reduced, (exec->steps + 1) * (uint32_t)exec->all_lanes,
                  "all_reduce of the gradient's norm"));
    const int64_t start = clock_ns();
    for (int64_t i = 0; i < n_squares; i++)
        squares += exec->squares[i];
    const double norm = sqrt(squares);
    const double most = (double)exec->config.optim.attrs.max_norm;
    /* As PyTorch's clip_grad_norm_ has it. */
    const double factor = most / (norm + 1e-6);
    numbers.scale = factor < 1 ? (float)factor : 1;
    for (int b = 0; b < exec->buckets.count; b++) {
        work_on_bucket(lane, b, UPDATE, &numbers);
        exec_meet(exec, "done");
        transport_raise(&exec->done[b], 1);
    }
    lane->times.comm += clock_ns() - start;
    return STATUS_OK;
}

/* Names for messages: literals, so that every rank's process can read them. */
static const char *bucket_text(int b)
{
    static const char *const names[] = {
        "reduce_scatter of bucket 0", "reduce_scatter of bucket 1",
        "reduce_scatter of bucket 2", "reduce_scatter of bucket 3",
        "reduce_scatter of bucket 4", "reduce_scatter of bucket 5",
        "reduce_scatter of bucket 6", "reduce_scatter of bucket 7",
    };
    return b < 8 ? names[b] : "reduce_scatter of bucket 8 or later";
}

enum status lane_reduce(struct lane *lane, bool all)
{
    struct exec *exec = lane->exec;
    const uint32_t target = (exec->steps + 1) * (uint32_t)exec->all_lanes;

    for (; lane->next_bucket < exec->buckets.count; lane->next_bucket++) {
        const int b = lane->next_bucket;
        if (!transport_reached(&exec->ready[b], target)) {
            if (!all)
                return STATUS_OK;
            exec_meet(exec, "wait");
            TRY(exec_wait(exec, lane, &exec->ready[b], target, bucket_text(b)));
        }
        const int64_t begin = clock_ns();
        work_on_bucket(lane, b, exec->clips ? SUM_AND_SQUARE : SUM_AND_UPDATE, &exec->numbers);
        if (!exec->clips) {
            exec_meet(exec, "done");
            transport_raise(&exec->done[b], 1);
        }
        lane->times.comm += clock_ns() - begin;
    }
    return all && exec->clips ? clip_and_update(lane) : STATUS_OK;
}
