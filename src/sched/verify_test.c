/* SPDX-License-Identifier: MIT */
/* verify_test.c - the verifier finds every race that a broken program has, and no other; and
 * deadlocks.
 *
 * Races are judged by a second way, too: every member of every task is an event, in two steps, of
 * the first of them in two shards where parameters are in partitions; and the events before each
 * are listed one by one.
 */
#include "sched/verify.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/pass_testing.h"
#include "pass/strategy.h"
#include "sched/sched_testing.h"

/* Events ----------------------------------------------------------------------------------- */

struct events {
    const struct program *program;
    int lanes, rails, members; /* of a task at most */
    int count;
    bool has_uses;
    size_t words;
    uint64_t *before; /* of each event: those that surely are over when it begins */
};

/* When a task runs: in the first step, with a second shard of it, in the next step. */
enum time { FIRST, AGAIN, NEXT, TIMES };

static int event_of(const struct events *e, enum time time, int task, int member)
{
    return ((int)time * e->program->n_tasks + task) * e->members + member;
}

static bool is_net(const struct task *task)
{
    return task->place == PLACE_NET;
}

static bool is_repeated(const struct task *task)
{
    return task->by_use || (task->place == PLACE_LANE && !task->is_once);
}

/* Uses of parameters in partitions, by more than one shard? Lanes that wait for others within a
 * shard, for tables or for room, have one alone. */
static bool has_uses(const struct program *program)
{
    bool has = false, waits = program->n_gathers > 0;

    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        has |= task->by_use;
        for (int i = 0; i < task->n_accesses; i++)
            waits |= task->accesses[i].memory == MEMORY_ROOM && !task->accesses[i].is_write;
    }
    return has && !waits;
}

/* Does the task run then? */
static bool has_time(const struct events *e, int task, enum time time)
{
    return time != AGAIN || (e->has_uses && is_repeated(&e->program->tasks[task]));
}

/* The last time in the first step that a task runs. */
static enum time last_of(const struct events *e, int task)
{
    return has_time(e, task, AGAIN) ? AGAIN : FIRST;
}

static bool runs(const struct events *e, int task, int member)
{
    const struct task *t = &e->program->tasks[task];

    if (t->place == PLACE_SERVER)
        return member < t->members;
    if (t->is_on_demand || member >= (is_net(t) ? e->rails : e->lanes))
        return false;
    return t->rail < 0 || t->rail == member;
}

static void come_after(struct events *e, int event, int earlier)
{
    uint64_t *own = e->before + (size_t)event * e->words;
    const uint64_t *its = e->before + (size_t)earlier * e->words;

    if (own[earlier / 64] >> earlier % 64 & 1)
        return;
    own[earlier / 64] |= UINT64_C(1) << earlier % 64;
    for (size_t i = 0; i < e->words; i++)
        own[i] |= its[i];
}

static bool is_before(const struct events *e, int earlier, int event)
{
    return e->before[(size_t)event * e->words + (size_t)earlier / 64] >> earlier % 64 & 1;
}

/* Does a member that runs `other` at `from` go on to `task` at `time`? */
static bool goes_on(const struct events *e, int other, enum time from, int task, enum time time)
{
    const struct task *o = &e->program->tasks[other], *t = &e->program->tasks[task];

    if (t->place == PLACE_SERVER) /* in any order */
        return false;
    if (!has_time(e, other, from) || is_net(o) != is_net(t))
        return false;
    if (time == NEXT && from != NEXT)
        return true;
    if (is_net(t)) /* one use after the other */
        return other == task && from < time;
    if (o->place != t->place)
        return false;
    return from == time ? other < task : from < time && is_repeated(t) && is_repeated(o);
}

static void follow_place(struct events *e, enum time time, int task, int member)
{
    for (int from = (int)time; from >= 0; from--) {
        for (int other = e->program->n_tasks - 1; other >= 0; other--) {
            if (runs(e, other, member) && goes_on(e, other, (enum time)from, task, time))
                come_after(e, event_of(e, time, task, member),
                           event_of(e, (enum time)from, other, member));
        }
    }
}

/* When what a wait is for was done; -1: it is for nothing then. */
static int time_of_wait(const struct events *e, const struct wait *wait, enum time time)
{
    if (wait->is_last_use)
        return time == AGAIN ? FIRST : -1;
    if (wait->is_last_step)
        return time == NEXT ? (int)last_of(e, wait->task) : -1;
    if (time == AGAIN && !has_time(e, wait->task, AGAIN))
        return FIRST;
    return (int)time;
}

static void follow_waits(struct events *e, enum time time, int task, int member)
{
    const struct task *t = &e->program->tasks[task];

    for (int i = 0; i < t->n_waits; i++) {
        const struct wait *wait = &e->program->waits[t->first_wait + i];
        int from = time_of_wait(e, wait, time);
        if (from == FIRST && time == FIRST && !is_repeated(t))
            from = last_of(e, wait->task);
        for (int m = 0; m < e->members && from >= 0 && wait_orders(wait); m++) {
            if (runs(e, wait->task, m) && (!wait->is_local || m == member))
                come_after(e, event_of(e, time, task, member),
                           event_of(e, (enum time)from, wait->task, m));
        }
    }
}

/* In an order in which each has those before it: shards, another one of each, the rest of the step,
 * the next step. */
static void add_events(struct events *e, int phase)
{
    static const enum time times[] = { FIRST, AGAIN, FIRST, NEXT };
    const enum time time = times[phase];

    for (int t = 0; t < e->program->n_tasks; t++) {
        const bool is_of_shards = e->program->tasks[t].place == PLACE_LANE ||
                                  e->program->tasks[t].by_use || !e->has_uses;
        if (!has_time(e, t, time) || (time == FIRST && is_of_shards != (phase == 0)))
            continue;
        for (int m = 0; m < e->members; m++) {
            if (!runs(e, t, m))
                continue;
            follow_place(e, time, t, m);
            follow_waits(e, time, t, m);
        }
    }
}

static struct events list_events(const struct program *program,
                                 const struct lower_topology *topology)
{
    struct events e = { .program = program,
                        .lanes = topology->lanes * topology->node_ranks,
                        .rails = topology->rails,
                        .has_uses = has_uses(program) };

    e.members = e.lanes > e.rails ? e.lanes : e.rails;
    e.count = TIMES * program->n_tasks * e.members;
    e.words = (size_t)e.count / 64 + 1;
    CHECK_OK(mem_alloc((size_t)e.count * e.words, sizeof *e.before, &e.before));
    for (int phase = 0; phase < 4; phase++)
        add_events(&e, phase);
    return e;
}

static bool overlaps(const struct task *a, int member, const struct access *x,
                     const struct task *b, int other, const struct access *y)
{
    if (x->memory != y->memory || x->index != y->index || !(x->is_write || y->is_write))
        return false;
    if (x->part >= 0 && y->part >= 0 && x->part != y->part)
        return false;
    if ((x->in_turn && y->in_turn) || x->lag > 0 || y->lag > 0)
        return false;
    const bool is_one_cut = x->reach == REACH_OWN && y->reach == REACH_OWN &&
                            x->partition == y->partition && is_net(a) == is_net(b);
    return !is_one_cut || member == other;
}

static bool is_race(const struct events *e, enum time time, int a, int member, int b, int other)
{
    const struct task *first = &e->program->tasks[a], *second = &e->program->tasks[b];
    const enum time from = time == NEXT ? last_of(e, a) : FIRST;

    for (int i = 0; i < first->n_accesses; i++) {
        const bool is_of_one_step = first->accesses[i].memory == MEMORY_LOSS && time == NEXT;
        for (int j = 0; j < second->n_accesses && !is_of_one_step; j++) {
            if (overlaps(first, member, &first->accesses[i], second, other,
                         &second->accesses[j]))
                return !is_before(e, event_of(e, from, a, member), event_of(e, time, b, other));
        }
    }
    return false;
}

static bool touch_one_memory(const struct task *a, const struct task *b)
{
    for (int i = 0; i < a->n_accesses; i++) {
        for (int j = 0; j < b->n_accesses; j++) {
            if (a->accesses[i].memory == b->accesses[j].memory &&
                a->accesses[i].index == b->accesses[j].index)
                return true;
        }
    }
    return false;
}

/* May two tasks race, of which the second runs at `time`? Those of two shards only by uses. */
static bool may_race(const struct events *e, int a, int b, enum time time)
{
    const struct task *first = &e->program->tasks[a], *second = &e->program->tasks[b];

    if (time == AGAIN && (!has_time(e, a, AGAIN) || !has_time(e, b, AGAIN) ||
                          !(first->by_use || second->by_use)))
        return false;
    return touch_one_memory(first, second);
}

/* Says which two tasks, if there are some. */
static bool has_race(const struct events *e, char text[200])
{
    const int n = e->program->n_tasks;

    for (int time = FIRST; time < TIMES; time++) {
        for (int b = 0; b < n; b++) {
            for (int a = 0; a < (time == FIRST ? b : n); a++) {
                if (!may_race(e, a, b, (enum time)time))
                    continue;
                for (int m = 0; m < e->members * e->members; m++) {
                    const int member = m % e->members, other = m / e->members;
                    if (runs(e, a, member) && runs(e, b, other) &&
                        is_race(e, (enum time)time, a, member, b, other)) {
                        snprintf(text, 200, "%d of member %d and %d of member %d%s", a, member,
                                 b, other,
                                 time == NEXT    ? " in the next step"
                                 : time == AGAIN ? " of the next shard"
                                                 : "");
                        return true;
                    }
                }
            }
        }
    }
    return false;
}

/* Races ------------------------------------------------------------------------------------ */

static void test_a_lowered_program_has_no_race(struct rng *rng)
{
    struct sched_testing drawn = sched_testing_draw(rng);
    struct program *program;
    char text[200], race[200];

    sched_testing_print(&drawn, text, sizeof text);
    CHECK_OK(program_lower(drawn.graph, &drawn.config, &program));
    CHECK_OK(program_verify(program));
    const int shards = program->n_gathers || drawn.config.window ? 1 : 3;
    CHECK_OK(
        program_verify_nodes((const struct program *const[]){ program, program }, 2, shards));
    struct events e = list_events(program, &drawn.config.topology);
    if (has_race(&e, race))
        test_fail(__FILE__, __LINE__, "%s: a race: %s", text, race);
    mem_free(e.before);
    program_destroy(program);
    sched_testing_end(&drawn);
}

/* All of the one bucket is compressed on rail 0. Rail 1 has no sum that would keep its norm back
 * until the update of the step before has read the squares. */
static void test_a_rail_without_a_bucket_waits_for_the_other(void)
{
    const struct lower_config config = {
        .topology = { .nodes = 2, .node_ranks = 2, .lanes = 1, .rails = 2 },
        .compresses = true,
        .has_steps = true,
    };
    struct graph *graph = pass_testing_graph("logistic", "multiworker", 4, 1);
    struct program *program;
    char race[200] = "";

    CHECK_OK(program_lower(graph, &config, &program));
    CHECK_OK(program_verify(program));
    struct events e = list_events(program, &config.topology);
    (void)has_race(&e, race);
    CHECK_TEXT("", race);
    mem_free(e.before);
    program_destroy(program);
    graph_destroy(graph);
}

static void remove_wait(struct program *program, int wait)
{
    for (int i = wait; i + 1 < program->n_waits; i++)
        program->waits[i] = program->waits[i + 1];
    program->n_waits--;
    for (int t = 0; t < program->n_tasks; t++) {
        struct task *task = &program->tasks[t];
        if (task->first_wait <= wait && wait < task->first_wait + task->n_waits)
            task->n_waits--;
        else if (task->first_wait > wait)
            task->first_wait--;
    }
}

static void test_a_wait_that_is_removed_is_missed_or_was_not_needed(struct rng *rng)
{
    struct sched_testing drawn = sched_testing_draw(rng);
    struct program *program;
    char text[200], race[200];

    CHECK_OK(program_lower(drawn.graph, &drawn.config, &program));
    if (program->n_waits > 0) {
        const int removed = (int)rng_below(rng, (uint64_t)program->n_waits);
        const struct wait wait = program->waits[removed];
        remove_wait(program, removed);
        const enum status status = program_verify(program);
        if (wait.at_end || wait.by_medium) {
            CHECK_STATUS(STATUS_MISMATCH, status);
        } else {
            struct events e = list_events(program, &drawn.config.topology);
            const bool races = has_race(&e, race);
            sched_testing_print(&drawn, text, sizeof text);
            /* It misses no race. An order it may miss: it does not know that a lane is alone, or
             * what one rail knows and another does not. */
            const bool is_exact = e.lanes > 1 && e.rails == 0;
            if (races ? status == STATUS_OK : status != STATUS_OK && is_exact)
                test_fail(__FILE__, __LINE__, "%s: %s, and the verifier says: %s", text,
                          races ? race : "no race",
                          status == STATUS_OK ? "no race" : status_message());
            if (status != STATUS_OK)
                CHECK_MESSAGE("a race: ");
            mem_free(e.before);
        }
    }
    program_destroy(program);
    sched_testing_end(&drawn);
}

/* Servers ---------------------------------------------------------------------------------- */

static struct events list_server_events(const struct program *program, int workers)
{
    return list_events(program, &(struct lower_topology){ .lanes = workers, .node_ranks = 1 });
}

static void test_a_servers_program_has_no_race(struct rng *rng)
{
    struct sched_testing_servers drawn;
    struct program *program;
    char race[200];

    sched_testing_draw_servers(rng, 3, &drawn);
    drawn.config.backup = 0; /* events know no members that are missing */
    CHECK_OK(program_lower_server(&drawn.config, &program));
    CHECK_OK(program_verify(program));
    CHECK_OK(program_verify_nodes((const struct program *const[]){ program }, 1, 1));
    struct events e = list_server_events(program, drawn.config.workers);
    if (has_race(&e, race))
        test_fail(__FILE__, __LINE__, "a race: %s", race);
    mem_free(e.before);
    program_destroy(program);
}

/* Without any one of its waits a server may sum before a push has come, update what a worker reads,
 * or answer with values that lack the push. */
static void test_a_server_without_a_wait_is_found(struct rng *rng)
{
    struct sched_testing_servers drawn;
    struct program *program;

    sched_testing_draw_servers(rng, 3, &drawn);
    CHECK_OK(program_lower_server(&drawn.config, &program));
    CHECK_OK(program_verify(program));
    const int removed = (int)rng_below(rng, (uint64_t)program->n_waits);
    remove_wait(program, removed);
    CHECK_STATUS(STATUS_MISMATCH, program_verify(program));
    CHECK_MESSAGE("a race: ");
    program_destroy(program);
}

struct job {
    struct graph *graph;
    struct program *worker, *servers[3];
    int n;
};

static void make_job(struct rng *rng, struct job *job)
{
    const struct lower_config config = {
        .topology = { .nodes = 1, .node_ranks = 1, .lanes = 1 },
        .has_steps = true,
        .gives = true,
        .is_direct = rng_below(rng, 2),
    };
    struct sched_testing_servers drawn;

    job->graph = pass_testing_graph("mlp", "ps", 2, 0);
    CHECK_OK(program_lower(job->graph, &config, &job->worker));
    sched_testing_draw_servers(rng, job->worker->n_buckets, &drawn);
    job->n = drawn.config.servers;
    for (int s = 0; s < job->n; s++) {
        drawn.config.server = s;
        CHECK_OK(program_lower_server(&drawn.config, &job->servers[s]));
    }
}

static void end_job(struct job *job)
{
    for (int s = 0; s < job->n; s++)
        program_destroy(job->servers[s]);
    program_destroy(job->worker);
    graph_destroy(job->graph);
}

static enum status verify_job(const struct job *job)
{
    return program_verify_servers(job->worker, (const struct program *const *)job->servers,
                                  job->n);
}

/* A task is forgotten: whoever sends to it, or waits for it, is named. */
static void test_what_no_server_takes_or_answers_is_named(struct rng *rng)
{
    struct job job;

    make_job(rng, &job);
    CHECK_OK(verify_job(&job));
    struct program *server = job.servers[rng_below(rng, (uint64_t)job.n)];
    struct task *task = &server->tasks[rng_below(rng, (uint64_t)server->n_tasks)];
    const bool is_met = task->kind == TASK_PUSH || task->kind == TASK_PULL ||
                        task->kind == TASK_RECEIVE || task->kind == TASK_REPLICATE;
    task->kind = TASK_BARRIER;
    task->does = 1U << TASK_BARRIER;
    if (is_met)
        CHECK_STATUS(STATUS_MISMATCH, verify_job(&job));
    end_job(&job);
}

static void test_a_worker_that_pushes_nothing_is_named(void)
{
    struct rng rng;
    struct job job;

    rng_init(&rng, 5, 5);
    make_job(&rng, &job);
    for (int t = 0; t < job.worker->n_tasks; t++)
        job.worker->tasks[t].does &= ~(1U << TASK_PUSH);
    CHECK_STATUS(STATUS_MISMATCH, verify_job(&job));
    CHECK_MESSAGE("push slice 0 of bucket 0 of a server meets no task of a worker");
    end_job(&job);
}

/* Deadlocks -------------------------------------------------------------------------------- */

/* Two exchanges of buckets 0 and 1; with `waits` the one of bucket `waits` comes after the other. */
struct pair {
    struct task tasks[2];
    struct wait waits[1];
    struct program program;
};

static void make_pair(struct pair *pair, int first, bool waits)
{
    memset(pair, 0, sizeof *pair);
    for (int t = 0; t < 2; t++) {
        pair->tasks[t] = (struct task){ .kind = TASK_REDUCE_SCATTER,
                                        .does = 1U << TASK_REDUCE_SCATTER,
                                        .medium = MEDIUM_MESSAGES,
                                        .place = PLACE_NET,
                                        .bucket = t == 0 ? first : 1 - first,
                                        .gather = -1,
                                        .rail = -1 };
    }
    pair->tasks[1].n_waits = waits;
    pair->program = (struct program){ .n_tasks = 2,
                                      .n_waits = waits,
                                      .n_segments = 1,
                                      .tasks = pair->tasks,
                                      .waits = pair->waits };
}

static void test_nodes_that_exchange_in_opposite_orders_wait_for_ever(void)
{
    struct pair one, other;

    make_pair(&one, 0, true);
    make_pair(&other, 1, false);
    const struct program *const nodes[] = { &one.program, &other.program };
    CHECK_OK(program_verify_nodes(nodes, 2, 1));
    make_pair(&other, 1, true);
    CHECK_STATUS(STATUS_MISMATCH, program_verify_nodes(nodes, 2, 1));
    CHECK_MESSAGE("a deadlock: reduce_scatter bucket ");
    CHECK_MESSAGE("wait for each other");
}

static void test_an_exchange_that_another_node_has_not_is_named(void)
{
    struct pair one, other;

    make_pair(&one, 0, true);
    make_pair(&other, 0, true);
    other.tasks[1].bucket = 7;
    const struct program *const nodes[] = { &one.program, &other.program };
    CHECK_STATUS(STATUS_MISMATCH, program_verify_nodes(nodes, 2, 1));
    CHECK_MESSAGE("reduce_scatter bucket 1 of one node meets no task of another");
}

/* A lane that waits in the middle of its shards for what lanes do afterwards. */
static void test_a_lane_that_waits_for_its_own_end_waits_for_ever(void)
{
    struct task tasks[3] = {
        { .kind = TASK_ACCUMULATE, .place = PLACE_LANE, .bucket = 0, .gather = -1, .rail = -1 },
        { .kind = TASK_COMPUTE, .place = PLACE_LANE, .bucket = -1, .gather = -1, .rail = -1 },
        { .kind = TASK_UPDATE,
          .place = PLACE_LANE_SYNC,
          .bucket = 0,
          .gather = -1,
          .rail = -1 },
    };
    struct wait waits[2] = { { .task = 0 }, { .task = 1 } };
    struct program program = {
        .n_tasks = 3, .n_waits = 1, .n_segments = 1, .tasks = tasks, .waits = waits
    };
    const struct program *const nodes[] = { &program };

    for (int t = 0; t < 3; t++)
        tasks[t].does = 1U << tasks[t].kind;
    tasks[1].n_waits = 1;
    CHECK_OK(program_verify_nodes(nodes, 1, 1));
    CHECK_STATUS(STATUS_MISMATCH, program_verify_nodes(nodes, 1, 2));
    CHECK_MESSAGE("a deadlock: ");
    waits[0].task = 2; /* which it does before it goes on */
    CHECK_OK(program_verify_nodes(nodes, 1, 1));
    tasks[2].first_wait = 1; /* but not if that needs the computation */
    tasks[2].n_waits = 1;
    program.n_waits = 2;
    CHECK_STATUS(STATUS_MISMATCH, program_verify_nodes(nodes, 1, 1));
    CHECK_MESSAGE("update bucket 0");
}

/* A task of a step that waits for one of uses takes the first use of a step for all. */
static void test_a_step_cannot_wait_for_one_use(void)
{
    const struct lower_config config = {
        .topology = { .nodes = 2, .node_ranks = 1, .lanes = 1, .rails = 1 }, .has_steps = true
    };
    struct pass_config passes = pass_testing_config(2, 0);
    struct program *program;
    int use = -1;

    passes.zero = 3;
    struct graph *graph = pass_testing_graph_with("mlp", "zero", &passes);
    CHECK_OK(program_lower(graph, &config, &program));
    CHECK_OK(program_verify(program));
    for (int t = 0; t < program->n_tasks; t++) {
        if (program->tasks[t].kind == TASK_BARRIER && program->tasks[t].by_use)
            use = t;
    }
    const struct task *losses = &program->tasks[program->losses];
    CHECK(use >= 0 && losses->n_waits == 1);
    program->waits[losses->first_wait].task = use;
    CHECK_STATUS(STATUS_MISMATCH, program_verify(program));
    CHECK_MESSAGE("may count another use of");
    program_destroy(program);
    graph_destroy(graph);
}

/* A lane begins a bucket when the one before is summed: if it has a second shard, it never is. */
static void test_a_window_on_several_shards_waits_for_ever(int nodes)
{
    const struct lower_config config = {
        .topology = { .nodes = nodes, .node_ranks = 2, .lanes = 1, .rails = nodes > 1 ? 2 : 0 },
        .releases = true,
        .window = 1,
        .has_steps = true,
    };
    struct graph *graph = pass_testing_graph("mlp", "zero", 4, 0);
    struct program *program;

    CHECK_OK(program_lower(graph, &config, &program));
    CHECK_OK(program_verify(program));
    CHECK_OK(program_verify_nodes((const struct program *const[]){ program }, 1, 1));
    CHECK_STATUS(STATUS_MISMATCH,
                 program_verify_nodes((const struct program *const[]){ program }, 1, 2));
    CHECK_MESSAGE("a deadlock: ");
    program_destroy(program);
    graph_destroy(graph);
}

static void test_windows_on_several_shards_wait_for_ever(void)
{
    test_a_window_on_several_shards_waits_for_ever(1);
    test_a_window_on_several_shards_waits_for_ever(2);
}

/* Pipelines -------------------------------------------------------------------------------- */

static struct graph *staged_graph(int stages, int chunks)
{
    const struct model *model = model_find("vgg11_bn");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = pass_testing_config(1, 0);
    struct graph *graph;

    config.pipeline = (struct pass_pipeline){ .stages = stages, .chunks = chunks };
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("pipeline")->passes, &config, NULL));
    return graph;
}

static void test_every_schedule_of_a_pipeline_can_be_run(void)
{
    for (int kind = 0; kind < PIPE_KINDS; kind++) {
        for (int stages = 2; stages <= 4; stages++) {
            const int chunks = kind == PIPE_INTERLEAVED ? 2 : 1;
            const struct pipe_config config = {
                .kind = (enum pipe_kind)kind, .stages = stages, .chunks = chunks, .shards = 12
            };
            struct graph *graph = staged_graph(stages, chunks);
            CHECK_OK(pipe_check(&config));
            CHECK_OK(pipe_verify(graph, &config));
            graph_destroy(graph);
        }
    }
}

static struct node *find_move(struct graph *graph, const struct op *op)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        if (graph_node(graph, n)->op == op)
            return (struct node *)graph_node(graph, n);
    }
    return NULL;
}

static void test_a_message_without_another_end_is_named(void)
{
    const struct pipe_config config = {
        .kind = PIPE_1F1B, .stages = 3, .chunks = 1, .shards = 4
    };
    struct graph *graph = staged_graph(3, 1);
    struct node *receive = find_move(graph, &op_receive);

    receive->attrs.peer = 2;
    CHECK_STATUS(STATUS_MISMATCH, pipe_verify(graph, &config));
    CHECK_MESSAGE("its other end is on stage");
    receive->attrs.slot = 77;
    CHECK_STATUS(STATUS_MISMATCH, pipe_verify(graph, &config));
    CHECK_MESSAGE("no node is its other end");
    graph_destroy(graph);
}

/* The first stage does the backward of a shard before the forward of the next; the second the other
 * way. */
static void test_schedules_that_wait_for_each_other_are_found(void)
{
    const struct pipe_config config = {
        .kind = PIPE_GPIPE, .stages = 2, .chunks = 1, .shards = 2
    };
    const struct pipe_action actions[] = {
        { false, 0, 0 }, { true, 0, 0 },  { false, 0, 1 }, { true, 0, 1 },
        { false, 0, 0 }, { false, 0, 1 }, { true, 0, 0 },  { true, 0, 1 },
    };
    struct graph *graph = staged_graph(2, 1);

    CHECK_STATUS(STATUS_MISMATCH, pipe_verify_actions(graph, &config, actions));
    CHECK_MESSAGE("a deadlock: stage 0 waits in backward of shard 0 for ");
    graph_destroy(graph);
}

/* Layers that ranks share -------------------------------------------------------------------- */

static int list_exchanges(int index, struct tensor_exchange *out)
{
    struct pass_config config = pass_testing_config(1, 0);
    const struct lower_config lower = { .topology = { .nodes = 1, .node_ranks = 1, .lanes = 1 },
                                        .has_steps = true };
    struct program *program;

    config.tensor = (struct pass_tensor){ .count = 2, .index = index };
    struct graph *graph = pass_testing_graph_with("gpt", "tensor", &config);
    CHECK_OK(program_lower(graph, &lower, &program));
    CHECK(program->n_tasks <= 400);
    const int count = tensor_list(program, graph, out);
    program_destroy(program);
    graph_destroy(graph);
    return count;
}

static void test_ranks_that_share_layers_exchange_the_same_in_one_order(void)
{
    struct tensor_exchange one[400], other[400];
    const int count = list_exchanges(0, one);

    CHECK(count >= 2);
    CHECK_INT(count, list_exchanges(1, other));
    CHECK_OK(tensor_verify(one, count, other, count, 1));
    CHECK_STATUS(STATUS_MISMATCH, tensor_verify(one, count, other, count - 1, 1));
    CHECK_MESSAGE(" here and nothing on rank 1");
    const struct tensor_exchange first = other[0];
    other[0] = other[1];
    other[1] = first;
    CHECK_STATUS(STATUS_MISMATCH, tensor_verify(one, count, other, count, 1));
    CHECK_MESSAGE("a deadlock: exchange 0 ");
    CHECK_MESSAGE(first.name);
}

const struct test tests[] = {
    { .name = "a server's program has no race",
      .property = test_a_servers_program_has_no_race },
    { .name = "a server without a wait is found",
      .property = test_a_server_without_a_wait_is_found },
    { .name = "what no server takes or answers is named",
      .property = test_what_no_server_takes_or_answers_is_named },
    { .name = "a worker that pushes nothing is named",
      .run = test_a_worker_that_pushes_nothing_is_named },
    { .name = "a lowered program has no race", .property = test_a_lowered_program_has_no_race },
    { .name = "a rail without a bucket waits for the other",
      .run = test_a_rail_without_a_bucket_waits_for_the_other },
    { .name = "a wait that is removed is missed or was not needed",
      .property = test_a_wait_that_is_removed_is_missed_or_was_not_needed },
    { .name = "nodes that exchange in opposite orders wait for ever",
      .run = test_nodes_that_exchange_in_opposite_orders_wait_for_ever },
    { .name = "an exchange that another node has not is named",
      .run = test_an_exchange_that_another_node_has_not_is_named },
    { .name = "a lane that waits for its own end waits for ever",
      .run = test_a_lane_that_waits_for_its_own_end_waits_for_ever },
    { .name = "a step cannot wait for one use", .run = test_a_step_cannot_wait_for_one_use },
    { .name = "windows on several shards wait for ever",
      .run = test_windows_on_several_shards_wait_for_ever },
    { .name = "every schedule of a pipeline can be run",
      .run = test_every_schedule_of_a_pipeline_can_be_run },
    { .name = "a message without another end is named",
      .run = test_a_message_without_another_end_is_named },
    { .name = "schedules that wait for each other are found",
      .run = test_schedules_that_wait_for_each_other_are_found },
    { .name = "ranks that share layers exchange the same in one order",
      .run = test_ranks_that_share_layers_exchange_the_same_in_one_order },
    { 0 },
};
