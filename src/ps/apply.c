/* SPDX-License-Identifier: MIT */
/* apply.c - a server's arithmetic: gradients are added along the tree, and the optimizer's kernel
 * runs over the slice, a stretch at a time, so that the sum never reaches memory.
 *
 * Of a table, lists of rows are walked at once, each id of the smallest first: rows with the same
 * id are added along the tree over those nodes that have it, and that row is updated. The bits are
 * those of exec/rows.c.
 *
 * Where the norm of all gradients is needed first (clip.h) sums are made twice, once for their
 * squares: that costs no memory, and what they are made of lies there until values are given.
 */
#include <string.h>

#include "base/mem.h"
#include "ps/server.h"

/* A list of rows while it is walked. */
struct cursor {
    const int32_t *next, *end;
    const float *row;
    int64_t shard; /* the first of its node */
};

enum status apply_create(struct server *server)
{
    const struct slices *slices = server->slices;
    size_t n_parts = 0, width = 16;

    for (int w = 0; w < server->config.workers; w++)
        n_parts += FRAME_PARTS;
    for (int i = 0; i < slices->count; i++)
        width =
            slices->slice[i].width > (int64_t)width ? (size_t)slices->slice[i].width : width;
    TRY(mem_alloc(TREE_SCRATCH + TREE_STRETCH, sizeof(float), &server->adder.scratch));
    TRY(mem_alloc(n_parts, sizeof(*server->adder.parts), &server->adder.parts));
    TRY(mem_alloc((size_t)server->config.workers * 2 * TREE_DEPTH,
                  sizeof(*server->adder.cursors), &server->adder.cursors));
    server->adder.sums.floats = (width + 15) / 16 * 16;
    return mem_alloc(TREE_DEPTH * server->adder.sums.floats, sizeof(float),
                     &server->adder.sums.data);
}

void apply_destroy(struct server *server)
{
    mem_free(server->adder.scratch);
    mem_free(server->adder.parts);
    mem_free(server->adder.cursors);
    mem_free(server->adder.sums.data);
}

static void update(const struct server *server, struct held *held, const float *gradient,
                   size_t at, size_t count, const struct kernel_update_step *numbers)
{
    const struct ps_update *how = &server->config.layout.updates[held->slice->bucket];
    float *state[KERNEL_STATES] = { NULL };

    for (int i = 0; i < server->config.layout.n_states; i++)
        state[i] = held->state[i] + at;
    how->kernel->run(held->param + at, gradient, state, count, &how->attrs, numbers);
}

/* What the sum over some of the step's samples is multiplied by to stand for all. */
static const float *scaled(struct server *server, const float *sum, size_t count, float factor)
{
    float *out = server->adder.scratch + TREE_SCRATCH;

    if (factor == 1)
        return sum;
    for (size_t i = 0; i < count; i++)
        out[i] = sum[i] * factor;
    return out;
}

/* Dense slices -------------------------------------------------------------------------------------- */

/* squares: where those of the sum go, one a stretch; NULL: the slice is updated by it. */
static void apply_dense(struct server *server, struct held *held, int n_parts, int64_t leaves,
                        float factor, const struct kernel_update_step *numbers, double *squares)
{
    const size_t all = (size_t)held->slice->count;

    for (size_t at = 0; at < all; at += TREE_STRETCH) {
        const size_t count = all - at < TREE_STRETCH ? all - at : TREE_STRETCH;
        const float *sum = factor == 1 ? tree_combine(server->adder.parts, n_parts, leaves, at,
                                                      count, server->adder.scratch)
                                       : tree_combine_some(server->adder.parts, n_parts, leaves,
                                                           at, count, server->adder.scratch);
        sum = scaled(server, sum, count, factor);
        if (squares)
            squares[at / TREE_STRETCH] = kernel_sum_squares(
                sum, clip_count(server->clip, held->number, at / TREE_STRETCH));
        else
            update(server, held, sum, at, count, numbers);
    }
}

static int take_parts(struct server *server, const struct seat *seat, int n_parts)
{
    for (int i = 0; i < seat->n_parts; i++)
        server->adder.parts[n_parts++] = seat->parts[i];
    return n_parts;
}

/* Tables -------------------------------------------------------------------------------------------- */

bool apply_rows_are_good(const struct server *server, const struct held *held,
                         const struct seat *seat)
{
    const int n_lists = server->slices->n_nodes[seat->worker];
    int64_t at = 0;

    for (int p = 0; p < n_lists; p++) {
        const int64_t count = seat->rows.counts[p];
        if (count < 0 || count > held->slice->most - at)
            return false;
        for (int64_t i = 0; i < count; i++) {
            const int32_t id = seat->rows.ids[at + i];
            if (id < 0 || id >= held->slice->rows ||
                (i > 0 && id <= seat->rows.ids[at + i - 1]))
                return false;
        }
        at += count;
    }
    return true;
}

static int take_lists(struct server *server, const struct held *held, const struct seat *seat,
                      int n_cursors)
{
    int64_t at = 0;

    for (int p = 0; p < server->slices->n_nodes[seat->worker]; p++) {
        const int64_t count = seat->rows.counts[p];
        if (count > 0)
            server->adder.cursors[n_cursors++] =
                (struct cursor){ .next = seat->rows.ids + at,
                                 .end = seat->rows.ids + at + count,
                                 .row = seat->rows.rows + at * held->slice->width,
                                 .shard = server->slices->nodes[seat->worker][p].begin };
        at += count;
    }
    return n_cursors;
}

/* The row has changed: everybody lacks it. */
static void list_row(const struct server *server, struct held *held, int32_t id)
{
    for (int w = 0; w < server->config.workers; w++) {
        struct seat *seat = &held->seats[w];
        if (seat->lacks_all || seat->marks[id])
            continue;
        seat->marks[id] = 1;
        seat->listed[seat->n_listed++] = id;
    }
    if (held->has_partner)
        held->changed[held->n_changed++] = id;
}

void apply_forget_list(const struct held *held, struct seat *seat)
{
    if (!held->slice->is_table)
        return;
    for (int64_t i = 0; i < seat->n_listed; i++)
        seat->marks[seat->listed[i]] = 0;
    seat->n_listed = 0;
}

static void apply_rows(struct server *server, struct held *held, int n_cursors, float factor,
                       const struct kernel_update_step *numbers, struct exact_sum *squares)
{
    const size_t width = (size_t)held->slice->width;
    struct cursor *cursors = server->adder.cursors;

    server->adder.sums.width = width;
    for (;;) {
        int32_t id = INT32_MAX;

        for (int i = 0; i < n_cursors; i++) {
            if (cursors[i].next < cursors[i].end && *cursors[i].next < id)
                id = *cursors[i].next;
        }
        if (id == INT32_MAX)
            return;
        server->adder.sums.count = 0;
        for (int i = 0; i < n_cursors; i++) {
            struct cursor *cursor = &cursors[i];
            if (cursor->next == cursor->end || *cursor->next != id)
                continue;
            memcpy(tree_sums_push(&server->adder.sums, cursor->shard), cursor->row,
                   width * sizeof(float));
            cursor->next++;
            cursor->row += width;
        }
        tree_sums_end(&server->adder.sums);
        const float *sum = scaled(server, server->adder.sums.data, width, factor);
        if (squares) {
            exact_sum_add(squares, kernel_sum_squares(sum, width));
            continue;
        }
        update(server, held, sum, (size_t)id * width, width, numbers);
        list_row(server, held, id);
    }
}

/* Pushes -------------------------------------------------------------------------------------------- */

static void count_push(struct server *server, const struct held *held, const struct seat *seat)
{
    const uint64_t stale = held->version - seat->given;
    int64_t floats = 0;

    if (held->slice->is_table) {
        for (int p = 0; p < server->slices->n_nodes[seat->worker]; p++)
            floats += seat->rows.counts[p] * (1 + held->slice->width);
    } else {
        floats = held->slice->count * seat->n_parts;
    }
    server->stats.server[server->number].bytes_in += floats * (int64_t)sizeof(float);
    server->stats.stale[stale < PS_STALE - 1 ? stale : PS_STALE - 1]++;
}

/* The numbers of an update; momentum begins with the first that the slice ever had. */
static struct kernel_update_step numbers_of(const struct server *server,
                                            const struct held *held, uint64_t clock)
{
    struct kernel_update_step numbers = optim_step(&server->config.optim, clock);

    numbers.first = numbers.first && held->version == 0;
    return numbers;
}

/* What these seats have pushed; how many lists or parts that are. */
static int take_pushes(struct server *server, const struct held *held,
                       struct seat *const *seats, int count)
{
    int n = 0;

    for (int i = 0; i < count; i++)
        n = held->slice->is_table ? take_lists(server, held, seats[i], n)
                                  : take_parts(server, seats[i], n);
    return n;
}

static float factor_of(double missing)
{
    return missing > 0 ? (float)(1 / (1 - missing)) : 1;
}

void apply_sum(struct server *server, struct held *held, struct seat *const *seats, int count,
               double missing, float scale)
{
    struct kernel_update_step numbers = numbers_of(server, held, held->clock);
    const int n = take_pushes(server, held, seats, count);

    numbers.scale = scale;
    for (int i = 0; i < count; i++)
        count_push(server, held, seats[i]);
    if (held->slice->is_table)
        apply_rows(server, held, n, factor_of(missing), &numbers, NULL);
    else
        apply_dense(server, held, n, server->config.shards, factor_of(missing), &numbers, NULL);
}

void apply_squares(struct server *server, struct held *held, struct seat *const *seats,
                   int count, double missing, double *out)
{
    const int n = take_pushes(server, held, seats, count);
    struct exact_sum rows = { .infinite = 0 };

    if (held->slice->is_table) {
        apply_rows(server, held, n, factor_of(missing), NULL, &rows);
        memcpy(out, &rows, sizeof(rows));
    } else {
        apply_dense(server, held, n, server->config.shards, factor_of(missing), NULL, out);
    }
}

/* The learning rate of one worker's push: times its share of the batch, so that all workers
 * together move as far as a step of all would. With staleness_lr a push that k others have
 * overtaken counts for 1 / (1 + k) at most (Zhang, Gupta, Lian, Liu 2016: a rate divided by the
 * staleness; the share is what it is divided by when nobody is slower than others). */
static float rate_of(const struct server *server, const struct held *held,
                     const struct seat *seat, float lr)
{
    const double share = slices_share(server->slices, seat->worker);
    const double stale = 1 / (1 + (double)(held->version - seat->given));

    return (float)((double)lr * (server->config.staleness_lr && stale < share ? stale : share));
}

void apply_alone(struct server *server, struct held *held, struct seat *seat)
{
    struct kernel_update_step numbers = numbers_of(server, held, seat->pushed - 1);

    numbers.lr = rate_of(server, held, seat, numbers.lr);
    count_push(server, held, seat);
    if (held->slice->is_table)
        apply_rows(server, held, take_lists(server, held, seat, 0), 1, &numbers, NULL);
    else
        apply_dense(server, held, take_parts(server, seat, 0),
                    server->slices->leaves[seat->worker], 1, &numbers, NULL);
}

void apply_center(struct server *server, struct held *held, struct seat *seat)
{
    const float alpha = (float)server->config.alpha;
    const float *x = seat->parts[0].data;
    float *center = held->param, *back = seat->back;

    count_push(server, held, seat);
    for (int64_t i = 0; i < held->slice->count; i++) {
        const float d = alpha * (x[i] - center[i]);
        center[i] += d;
        back[i] = d;
    }
}
