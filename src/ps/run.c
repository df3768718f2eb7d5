/* SPDX-License-Identifier: MIT */
/* run.c - the server's loop over its tasks: a task runs when its waits are over.
 *
 * A kind of task is a row of `rows`: is the task done, is it under way, and the function that runs
 * it. A row without `run` is done by an incoming frame (hear.c, clip.c, tick.c, copy.c). Progress
 * is kept once, in slices, seats and members (server.h), and rows read it there. A task that is
 * done for n `clocks` is done for clock n - 1 and all before.
 *
 * The frame of a push says its clock, and the worker's pull follows that clock. A worker that was
 * too late skips clocks. A worker whose server was lost pushes again to the replica. Such a push
 * may be in the values already: then it is not applied, and the pull runs at once.
 */
#include <string.h>

#include "base/mem.h"
#include "ps/server.h"

static struct held *held_of(const struct server *server, const struct task *task)
{
    return &server->held[server->held_of[task->slice]];
}

/* A task that the loop runs, and its slice; NULL: it is of none. */
struct turn {
    enum status (*run)(struct server *server, int number, struct held *held);
    int number;
    struct held *held;
};

static bool does(const struct task *task, enum task_kind kind)
{
    return task->does >> kind & 1;
}

uint64_t update_done(const struct server *server, const struct seat *seat)
{
    return server->tasks.takes_each ? seat->applied : seat->held->clock;
}

/* Are they over? ------------------------------------------------------------------------------ */

/* A push for this very clock: a late worker is at another one. */
static bool push_is_done(const struct server *server, const struct task *task, int worker,
                         uint64_t clocks)
{
    const struct seat *seat = &held_of(server, task)->seats[worker];

    return seat->is_waiting && seat->pushed == clocks;
}

static bool pull_is_under_way(const struct server *server, const struct task *task)
{
    const struct held *held = held_of(server, task);

    for (int w = 0; w < server->config.workers; w++) {
        if (held->seats[w].is_reading)
            return true;
    }
    return false;
}

static bool sum_is_done(const struct server *server, const struct task *task, int worker,
                        uint64_t clocks)
{
    const struct held *held = held_of(server, task);

    if (does(task, TASK_NORM))
        return clip_knows(server, held->number, clocks);
    return !held->is_copying && update_done(server, &held->seats[worker]) >= clocks;
}

static bool update_is_under_way(const struct server *server, const struct task *task)
{
    return held_of(server, task)->is_copying;
}

static bool squares_are_received(const struct server *server, const struct task *task,
                                 int worker, uint64_t clocks)
{
    (void)worker;
    return clip_knows_all_of(server, task->peer, clocks);
}

static bool norm_is_done(const struct server *server, const struct task *task, int worker,
                         uint64_t clocks)
{
    (void)task;
    (void)worker;
    return server->clip->scaled >= clocks;
}

static bool is_ticked(const struct server *server, const struct task *task, int worker,
                      uint64_t clocks)
{
    (void)task;
    return workers_is_active(server, worker) && server->members[worker].ticked >= clocks;
}

/* Running ------------------------------------------------------------------------------------- */

/* A slice was updated. With a replica the task is under way until the other server has the
 * update. */
static enum status end_update(struct server *server, struct held *held, int worker,
                              struct server_span span)
{
    held->version++;
    server->moved = true;
    server->stats.server[server->number].updates++;
    server_meet(server, "applied");
    if (does(&server->tasks.program->tasks[span.task], TASK_REPLICATE)) {
        held->span = span;
        return copy_begin(server, held, worker);
    }
    server_trace_end(server, span);
    return STATUS_OK;
}

/* The pushes of the next update: all that have come, or with clipping those that were squared. */
static int find_due(const struct server *server, struct held *held, struct seat **out,
                    double *out_missing)
{
    double share = 0;
    int n = 0;

    for (int w = 0; w < server->config.workers; w++) {
        struct seat *seat = &held->seats[w];
        if (!seat->is_pushed || seat->pushed != held->clock + 1 ||
            (held->is_summed && !seat->is_summed))
            continue;
        out[n++] = seat;
        share += slices_share(server->slices, w);
    }
    *out_missing = n == server->config.workers ? 0 : 1 - share;
    return n;
}

static enum status run_squares(struct server *server, int number, struct held *held)
{
    struct seat *due[PS_WORKERS];
    double missing;

    if (held->is_summed || !run_is_ready(server, number, 0, held->clock + 1))
        return STATUS_OK;
    const struct server_span span = server_span(server, number, -1, held->clock);
    const int n = find_due(server, held, due, &missing);
    if (n == 0)
        return STATUS_OK;
    for (int i = 0; i < n; i++)
        due[i]->is_summed = true;
    held->is_summed = true;
    server->clip->n_summed++;
    TRY(clip_square(server, held, due, n, missing));
    server_trace_end(server, span);
    return STATUS_OK;
}

/* All pushes of a clock make one update. After a takeover the norm may be known before the workers
 * have pushed again, so the pushes must have been counted for it first (is_summed). */
static enum status run_all(struct server *server, int number, struct held *held)
{
    struct seat *due[PS_WORKERS];
    double missing;

    if (held->is_summed != clip_counts(server, held->number) ||
        !run_is_ready(server, number, 0, held->clock + 1))
        return STATUS_OK;
    const struct server_span span = server_span(server, number, -1, held->clock);
    const int n = find_due(server, held, due, &missing);
    if (n == 0)
        return STATUS_OK;
    apply_sum(server, held, due, n, missing, clip_scale(server, held->number));
    held->clock++;
    if (held->is_summed)
        server->clip->n_summed--;
    held->is_summed = false;
    for (int i = 0; i < n; i++) {
        due[i]->is_summed = false;
        due[i]->applied = held->clock;
    }
    return end_update(server, held, -1, span);
}

static struct seat *next_pending(const struct server *server, struct held *held)
{
    struct seat *next = NULL;

    for (int w = 0; w < server->config.workers; w++) {
        struct seat *seat = &held->seats[w];
        if (seat_is_pending(server, seat) && (!next || seat->order < next->order))
            next = seat;
    }
    return next;
}

/* Each push makes an update, in the order in which they came. */
static enum status run_each(struct server *server, int number, struct held *held,
                            void (*apply)(struct server *server, struct held *held,
                                          struct seat *seat))
{
    for (;;) {
        struct seat *seat = next_pending(server, held);

        if (!seat || !run_is_ready(server, number, seat->worker, seat->pushed))
            return STATUS_OK;
        const struct server_span span =
            server_span(server, number, seat->worker, seat->pushed - 1);
        apply(server, held, seat);
        seat->applied = seat->pushed;
        TRY(end_update(server, held, seat->worker, span));
    }
}

static enum status run_sum(struct server *server, int number, struct held *held)
{
    const struct task *task = &server->tasks.program->tasks[number];

    if (does(task, TASK_NORM))
        return run_squares(server, number, held);
    return task->is_of_workers ? run_each(server, number, held, apply_alone)
                               : run_all(server, number, held);
}

static enum status run_average(struct server *server, int number, struct held *held)
{
    return run_each(server, number, held, apply_center);
}

static enum status run_norm(struct server *server, int number, struct held *held)
{
    (void)held;
    if (server->clip->n_summed == 0)
        return STATUS_OK;
    const uint64_t clock = clip_clock(server);
    if (server->clip->scaled > clock || !run_is_ready(server, number, 0, clock + 1))
        return STATUS_OK;
    const struct server_span span = server_span(server, number, -1, clock);
    clip_find_scale(server, clock + 1);
    server_trace_end(server, span);
    return STATUS_OK;
}

static enum status run_pull(struct server *server, int number, struct held *held)
{
    for (int w = 0; w < server->config.workers; w++) {
        struct seat *seat = &held->seats[w];
        if (!seat->is_waiting || seat->is_reading || server->members[w].is_gone ||
            seat_is_pending(server, seat))
            continue;
        const uint64_t done = update_done(server, seat);
        if (run_is_ready(server, number, w, seat->pushed))
            TRY(give_values(server, held, seat, done > seat->pushed ? done : seat->pushed));
    }
    return STATUS_OK;
}

static enum status run_losses(struct server *server, int number, struct held *held)
{
    (void)held;
    return tick_run(server, number);
}

/* The table ----------------------------------------------------------------------------------- */

static const struct row {
    /* With one member `worker` is ignored. NULL: no task of the loop waits for it. */
    bool (*is_done)(const struct server *server, const struct task *task, int worker,
                    uint64_t clocks);
    bool (*is_under_way)(const struct server *server, const struct task *task);
    enum status (*run)(struct server *server, int number, struct held *held);
} rows[TASK_KINDS] = {
    [TASK_PUSH] = { push_is_done, NULL, NULL },
    [TASK_REDUCE_SCATTER] = { sum_is_done, update_is_under_way, run_sum },
    [TASK_SUM_ROWS] = { sum_is_done, update_is_under_way, run_sum },
    [TASK_AVERAGE] = { sum_is_done, update_is_under_way, run_average },
    [TASK_RECEIVE] = { squares_are_received, NULL, NULL },
    [TASK_NORM] = { norm_is_done, NULL, run_norm },
    [TASK_PULL] = { NULL, pull_is_under_way, run_pull },
    [TASK_BARRIER] = { is_ticked, NULL, NULL },
    [TASK_ALL_REDUCE] = { NULL, NULL, run_losses },
};

/* Waits --------------------------------------------------------------------------------------- */

static bool is_over(const struct server *server, const struct wait *wait, int member,
                    uint64_t clocks)
{
    const struct task *other = &server->tasks.program->tasks[wait->task];
    const struct row *row = &rows[other->kind];
    const uint64_t back = (uint64_t)wait->is_last_step + (uint64_t)wait->earlier;
    int n = 0;

    if (wait->is_apart)
        return !row->is_under_way(server, other);
    if (clocks <= back)
        return true;
    if (wait->is_local || !other->is_of_workers)
        return row->is_done(server, other, member, clocks - back);
    for (int w = 0; w < server->config.workers; w++)
        n += row->is_done(server, other, w, clocks - back);
    return n >= workers_quorum(server, wait->but);
}

bool run_is_ready(const struct server *server, int number, int member, uint64_t clocks)
{
    const struct program *program = server->tasks.program;
    const struct task *task = &program->tasks[number];

    for (int i = 0; i < task->n_waits; i++) {
        if (!is_over(server, &program->waits[task->first_wait + i], member, clocks))
            return false;
    }
    return true;
}

enum status run_list(struct server *server)
{
    const struct program *program = server->tasks.program;

    mem_free(server->tasks.turns);
    server->tasks.n_turns = 0;
    TRY(mem_alloc((size_t)program->n_tasks + 1, sizeof *server->tasks.turns,
                  &server->tasks.turns));
    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        if (!rows[task->kind].run)
            continue;
        server->tasks.turns[server->tasks.n_turns++] =
            (struct turn){ .run = rows[task->kind].run,
                           .number = t,
                           .held = task->slice < 0 ? NULL : held_of(server, task) };
    }
    return STATUS_OK;
}

enum status run_tasks(struct server *server)
{
    if (!server->members[0].has_begun)
        return STATUS_OK;
    give_end(server);
    for (int i = 0; i < server->tasks.n_turns; i++) {
        const struct turn *turn = &server->tasks.turns[i];
        if (!turn->held || turn->held->n_waiting > 0)
            TRY(turn->run(server, turn->number, turn->held));
    }
    return STATUS_OK;
}
