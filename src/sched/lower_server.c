/* SPDX-License-Identifier: MIT */
/* lower_server.c - the step program of a parameter server: the tasks of one clock.
 *
 *   push        a worker's gradient of a slice has come
 *   sum+update  all pushes make one update, or each push makes one: the degree of synchrony. With a
 *               second replica the task replicates, too, and ends when the other server has it
 *   pull        a worker gets the values of the slice, and may write its gradient again
 *   norm        with clipping: squares of all servers' sums give the scale of updates
 *   replicate   the second replica of a slice is here: an update comes from its server
 *   barrier     a worker ticks: its clock is over
 *   all_reduce  losses and flags of ticks are summed and sent to workers
 *
 * Degrees of synchrony differ in members and in what tasks read:
 *
 *   step        sum+update has one member and reads the pushes of all workers, so it waits for all
 *               but the backup workers. The pull waits for it, and the next push for the pull.
 *               With backup workers pulls and updates take turns
 *   async       sum+update has a member for each worker and reads its push alone. Updates and pulls
 *               take turns with the parameters, in any order
 *   bounded     the same, and pulls read the clocks that all workers had ticked K steps before
 *   center      average in place of sum+update. A pull gives the worker its own difference
 */
#include "sched/lower.h"

#include "base/mem.h"
#include "sched/lowering.h"

struct serving {
    const struct lower_server *config;
    struct program *program;
    int capacity;
};

/* One member, or one a worker. */
static struct task *add(struct serving *s, enum task_kind kind, bool is_of_workers,
                        const struct lower_slice *slice)
{
    struct program *program = s->program;

    BUG_ON(program->n_tasks == s->capacity);
    struct task *task = &program->tasks[program->n_tasks++];
    *task = (struct task){ .kind = kind,
                           .does = 1U << kind,
                           .medium = s->config->shares_memory ? MEDIUM_SHARED : MEDIUM_MESSAGES,
                           .place = PLACE_SERVER,
                           .bucket = slice ? slice->bucket : -1,
                           .slice = slice ? slice->number : -1,
                           .peer = -1,
                           .gather = -1,
                           .stride = 1,
                           .rail = -1,
                           .is_of_workers = is_of_workers,
                           .members = is_of_workers ? s->config->workers : 1,
                           .increment = 1,
                           .signal = -1 };
    return task;
}

static void touch(struct task *task, enum memory_kind memory, int index, int part,
                  bool is_write)
{
    lower_add_access(task, (struct access){ .memory = memory,
                                            .index = index,
                                            .part = part,
                                            .reach = REACH_ALL,
                                            .is_write = is_write });
}

/* A member's part: that of its worker. */
static void touch_own(struct task *task, enum memory_kind memory, int index, bool is_write)
{
    lower_touch(task, memory, index, REACH_OWN, PARTITION_WORKER, is_write);
}

static void touch_in_turn(struct task *task, enum memory_kind memory, int index, bool is_write)
{
    lower_add_access(task, (struct access){ .memory = memory,
                                            .index = index,
                                            .part = -1,
                                            .reach = REACH_ALL,
                                            .is_write = is_write,
                                            .in_turn = true });
}

static bool is_clipped(const struct serving *s, const struct lower_slice *slice)
{
    return s->config->clips && slice->is_trained;
}

/* Is each push an update by itself? Else all pushes of a clock are one. */
static bool takes_each(const struct serving *s)
{
    return !s->config->joins;
}

/* May an update be due while a worker still reads the values? */
static bool takes_turns(const struct serving *s)
{
    return takes_each(s) || s->config->backup > 0;
}

static enum task_kind sum_of(const struct lower_slice *slice)
{
    return slice->is_table ? TASK_SUM_ROWS : TASK_REDUCE_SCATTER;
}

/* The tasks of a slice ------------------------------------------------------------------------ */

static void lower_push(struct serving *s, const struct lower_slice *slice)
{
    struct task *task = add(s, TASK_PUSH, true, slice);

    touch_own(task, MEMORY_GRADIENT, slice->number, true);
}

/* Sums for the squares, which go to all other servers. The update sums again. */
static void lower_squares(struct serving *s, const struct lower_slice *slice)
{
    struct task *task = add(s, sum_of(slice), false, slice);

    task->does |= 1U << TASK_NORM;
    task->note = "squares";
    task->but = s->config->backup;
    touch(task, MEMORY_GRADIENT, slice->number, -1, false);
    touch(task, MEMORY_SQUARES, 0, slice->number, true);
}

static void writes_slice(const struct serving *s, struct task *task, int slice)
{
    if (takes_turns(s))
        touch_in_turn(task, MEMORY_PARAM, slice, true);
    else
        touch(task, MEMORY_PARAM, slice, -1, true);
    if (s->config->is_center)
        return;
    if (takes_each(s))
        touch_in_turn(task, MEMORY_STATE, slice, true);
    else
        touch(task, MEMORY_STATE, slice, -1, true);
}

static void lower_update(struct serving *s, const struct lower_slice *slice)
{
    const enum task_kind kind = s->config->is_center ? TASK_AVERAGE : sum_of(slice);
    struct task *task = add(s, kind, takes_each(s), slice);

    task->does |= s->config->is_center ? 0 : 1U << TASK_UPDATE;
    task->but = s->config->backup;
    if (takes_each(s))
        touch_own(task, MEMORY_GRADIENT, slice->number, false);
    else
        touch(task, MEMORY_GRADIENT, slice->number, -1, false);
    writes_slice(s, task, slice->number);
    if (s->config->is_center)
        touch_own(task, MEMORY_SUM, slice->number, true);
    if (is_clipped(s, slice))
        touch(task, MEMORY_SQUARES, 1, -1, false);
    if (slice->replica < 0)
        return;
    task->does |= 1U << TASK_REPLICATE;
    task->peer = slice->replica;
}

static void lower_pull(struct serving *s, const struct lower_slice *slice)
{
    struct task *task = add(s, TASK_PULL, true, slice);

    if (s->config->is_center)
        touch_own(task, MEMORY_SUM, slice->number, false);
    else if (takes_turns(s))
        touch_in_turn(task, MEMORY_PARAM, slice->number, false);
    else
        touch(task, MEMORY_PARAM, slice->number, -1, false);
    touch_own(task, MEMORY_GRADIENT, slice->number, true);
    if (s->config->bound > 0)
        lower_add_access(task, (struct access){ .memory = MEMORY_CLOCK,
                                                .part = -1,
                                                .reach = REACH_ALL,
                                                .lag = s->config->bound });
}

/* An update of all pushes comes once, one of each push once a worker. */
static void lower_replica(struct serving *s, const struct lower_slice *slice)
{
    struct task *task = add(s, TASK_REPLICATE, takes_each(s), slice);

    task->peer = slice->server;
    writes_slice(s, task, slice->number);
}

/* The norm ------------------------------------------------------------------------------------ */

static bool has_clipped(const struct serving *s, int server)
{
    for (int i = 0; i < s->config->n_slices; i++) {
        const struct lower_slice *slice = &s->config->slices[i];
        if (slice->server == server && is_clipped(s, slice))
            return true;
    }
    return false;
}

/* Parts of the squares: slices, then other servers. */
static void lower_norm(struct serving *s)
{
    struct task *task;

    if (!has_clipped(s, s->config->server))
        return;
    for (int server = 0; server < s->config->servers; server++) {
        if (server == s->config->server || !has_clipped(s, server))
            continue;
        task = add(s, TASK_RECEIVE, false, NULL);
        task->note = "squares";
        task->peer = server;
        touch(task, MEMORY_SQUARES, 0, s->config->n_slices + server, true);
    }
    task = add(s, TASK_NORM, false, NULL);
    touch(task, MEMORY_SQUARES, 0, -1, false);
    touch(task, MEMORY_SQUARES, 1, -1, true);
}

/* Ticks --------------------------------------------------------------------------------------- */

static void lower_ticks(struct serving *s)
{
    struct task *task = add(s, TASK_BARRIER, true, NULL);

    task->note = "ticks";
    touch_own(task, MEMORY_CLOCK, 0, true);
    touch_own(task, MEMORY_LOSS, 0, true);
    task = add(s, TASK_ALL_REDUCE, takes_each(s), NULL);
    task->note = "losses and flags";
    task->but = s->config->backup;
    if (takes_each(s))
        touch_own(task, MEMORY_LOSS, 0, false);
    else
        touch(task, MEMORY_LOSS, 0, -1, false);
}

/* All of it ----------------------------------------------------------------------------------- */

static void lower_slices(struct serving *s)
{
    const struct lower_server *config = s->config;

    for (int i = 0; i < config->n_slices; i++) {
        if (config->slices[i].server != config->server)
            continue;
        lower_push(s, &config->slices[i]);
        if (is_clipped(s, &config->slices[i]))
            lower_squares(s, &config->slices[i]);
    }
    lower_norm(s);
    for (int i = 0; i < config->n_slices; i++) {
        if (config->slices[i].server != config->server)
            continue;
        lower_update(s, &config->slices[i]);
        lower_pull(s, &config->slices[i]);
    }
    for (int i = 0; i < config->n_slices; i++) {
        if (config->slices[i].replica == config->server)
            lower_replica(s, &config->slices[i]);
    }
    lower_ticks(s);
}

static enum status create(struct serving *s)
{
    struct program *program;

    TRY(mem_alloc(1, sizeof *program, &program));
    s->program = program;
    program->server = s->config->server;
    program->norm = program->direction_norm = program->losses = -1;
    for (int i = 0; i < BARRIERS; i++)
        program->barrier[i] = -1;
    s->capacity = 4 * s->config->n_slices + s->config->servers + 4;
    return mem_alloc((size_t)s->capacity, sizeof *program->tasks, &program->tasks);
}

enum status program_lower_server(const struct lower_server *config, struct program **out)
{
    struct serving s = { .config = config };
    enum status status = create(&s);

    if (status == STATUS_OK) {
        lower_slices(&s);
        status = program_connect(s.program);
    }
    if (status != STATUS_OK) {
        program_destroy(s.program);
        return status;
    }
    *out = s.program;
    return STATUS_OK;
}
