/* SPDX-License-Identifier: MIT */
/* verify.c - races, unmatched messages and deadlocks of step programs.
 *
 * Races are looked for by the sets of order.c. Deadlocks are cycles of a graph over the tasks of
 * all nodes. An edge says: comes before, in one step. What steps before have done is done.
 *
 *   lanes          in program order, a shard after the other. A lane's first shard and its last one
 *                  have a vertex each; what lanes count, they count with the last one. Stages of a
 *                  pipeline take turns between shards: there an edge from a task's first shard to
 *                  its last one is all
 *   lanes.sync     in program order; right before a computation that waits for one, else surely after
 *                  the lane's computations: earlier is luck
 *   net            as waits have it; a task that exchanges messages is one vertex for all nodes, as
 *                  it ends nowhere before it has begun everywhere
 *   server         as waits have it
 *
 * Cost: a race looks at pairs of tasks, n^2; a deadlock at tasks and waits. 600 tasks take 10 ms.
 * Ranks of one node share a program, and equal nodes as well: 1,024 ranks on equal machines cost as
 * much as two.
 */
#include "sched/verify.h"

#include <string.h>

#include "base/mem.h"
#include "sched/order.h"

static enum status fail_pair(const struct task *a, const struct task *b, const char *format)
{
    struct strbuf first, second;

    strbuf_init(&first, 256);
    strbuf_init(&second, 256);
    task_print_name(a, &first);
    task_print_name(b, &second);
    const enum status status = FAIL(STATUS_MISMATCH, format, first.text, second.text);
    strbuf_release(&first);
    strbuf_release(&second);
    return status;
}

/* Races ------------------------------------------------------------------------------------ */

static enum status check_order(const struct order *order, const struct program *program, int b)
{
    static const char *const texts[UNROLLED] = {
        [SAME] = "a race: %s is not ordered before %s",
        [LAST_USE] = "a race: %s of a shard is not ordered before %s of the next",
        [LAST_STEP] = "a race: %s of a step is not ordered before %s of the next",
    };
    const int a =
        order_next_race(order, program, b, order->unrolled != SAME ? program->n_tasks : b,
                        &(enum conflict){ 0 });

    if (a < 0)
        return STATUS_OK;
    return fail_pair(&program->tasks[a], &program->tasks[b], texts[order->unrolled]);
}

static bool has_wait(const struct program *program, const struct task *task, int a, bool at_end)
{
    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        if (wait->task == a && wait->at_end == at_end && wait->by_medium == !at_end)
            return true;
    }
    return false;
}

static bool has_turn(const struct program *program, const struct task *task, int a)
{
    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        if (wait->task == a && wait->is_apart)
            return true;
    }
    return false;
}

static bool has_lag(const struct program *program, const struct task *task, int a, int lag)
{
    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        if (wait->task == a && wait->is_last_step && !wait->is_local &&
            wait->earlier == lag - 1)
            return true;
    }
    return false;
}

/* Tasks of servers that take turns, and bounded staleness. */
static enum status check_turns(const struct program *program, int b)
{
    const struct task *task = &program->tasks[b];

    for (int a = 0; a < program->n_tasks; a++) {
        const struct task *other = &program->tasks[a];
        const int lag = task_lag(task, other);
        if (tasks_take_turns(other, task) && !has_turn(program, task, a))
            return fail_pair(other, task, "a race: %s may be under way when %s begins");
        if (lag > 0 && !has_lag(program, task, a, lag))
            return fail_pair(other, task,
                             "a race: %s of steps before is not ordered before %s");
    }
    return STATUS_OK;
}

/* Only what runs once a shard can wait for a use: others would not know which. */
static enum status check_uses(const struct program *program, int b)
{
    const struct task *task = &program->tasks[b];

    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        const struct task *awaited = &program->tasks[wait->task];
        if (awaited->by_use && (!wait->by_use || !task_is_repeated(task)))
            return fail_pair(task, awaited,
                             "a race: %s may count another use of %s as its own");
    }
    return STATUS_OK;
}

/* Sends under way end before a task does that uses their memory; servers answer when they have been
 * given. */
static enum status check_media(const struct program *program, int b)
{
    const struct task *task = &program->tasks[b];

    for (int a = 0; a < program->n_tasks; a++) {
        const struct task *other = &program->tasks[a];
        if (a < b && task_needs_sends(task, other) && !has_wait(program, task, a, true))
            return fail_pair(other, task,
                             "a race: the sends of %s may be under way after the end of %s");
        if (task_pulls_pushed(task, other) && !has_wait(program, task, a, false))
            return fail_pair(other, task, "a race: %s of a step and %s of the next");
    }
    return STATUS_OK;
}

enum status program_verify(const struct program *program)
{
    struct order order;
    enum status status = order_create(program->n_tasks, &order);

    for (int unrolled = SAME; unrolled < UNROLLED && status == STATUS_OK; unrolled++) {
        order_begin(&order, (enum unrolled)unrolled);
        for (int b = 0; b < program->n_tasks && status == STATUS_OK; b++) {
            order_begin_task(&order, program, b);
            status = check_order(&order, program, b);
            if (status == STATUS_OK)
                status = check_uses(program, b);
            if (status == STATUS_OK && unrolled == SAME)
                status = check_media(program, b);
            if (status == STATUS_OK && unrolled == SAME)
                status = check_turns(program, b);
        }
    }
    order_destroy(&order);
    return status;
}

/* Messages --------------------------------------------------------------------------------- */

static bool is_exchange(const struct task *task)
{
    return task->place == PLACE_NET && task->medium == MEDIUM_MESSAGES;
}

static bool is_same_exchange(const struct task *a, const struct task *b)
{
    const char *x = a->note ? a->note : "", *y = b->note ? b->note : "";

    return is_exchange(a) && is_exchange(b) && a->does == b->does && a->bucket == b->bucket &&
           a->gather == b->gather && a->rail == b->rail && a->segment == b->segment &&
           strcmp(x, y) == 0;
}

/* The task of `program` that meets `task` of another node; -1: none. */
static int find_peer(const struct program *program, const struct task *task)
{
    for (int t = 0; t < program->n_tasks; t++) {
        if (is_same_exchange(&program->tasks[t], task))
            return t;
    }
    return -1;
}

static enum status check_matched(const struct program *one, const struct program *other)
{
    for (int t = 0; t < one->n_tasks; t++) {
        if (!is_exchange(&one->tasks[t]) || find_peer(other, &one->tasks[t]) >= 0)
            continue;
        struct strbuf name;
        strbuf_init(&name, 256);
        task_print_name(&one->tasks[t], &name);
        const enum status status =
            FAIL(STATUS_MISMATCH, "%s of one node meets no task of another", name.text);
        strbuf_release(&name);
        return status;
    }
    return STATUS_OK;
}

/* Deadlocks -------------------------------------------------------------------------------- */

/* Vertices of program p: task t of the lanes' first shard, or of any other place, is base[p] + 2t;
 * of the last shard base[p] + 2t + 1. */
struct search {
    const struct program *const *programs;
    int n, n_vertices, *base;
    int *begin; /* of each vertex: its edges are [begin[v], begin[v + 1]) of `to` */
    int *to;
    int n_edges, capacity;
    int *stack, *next; /* of a search in depth */
    char *state;
    int64_t shards;
};

static bool is_of_shards(const struct task *task)
{
    return task->by_use || (task->place == PLACE_LANE && !task->is_once);
}

static int begin_of(const struct search *s, int p, int t)
{
    const struct task *task = &s->programs[p]->tasks[t];

    if (!is_exchange(task))
        return s->base[p] + 2 * t;
    for (int q = 0; q < p; q++) {
        const int peer = find_peer(s->programs[q], task);
        if (peer >= 0)
            return s->base[q] + 2 * peer;
    }
    return s->base[p] + 2 * t;
}

/* Where a task is done by all members. */
static int end_of(const struct search *s, int p, int t)
{
    const bool is_twice = is_of_shards(&s->programs[p]->tasks[t]) && s->shards > 1;

    return begin_of(s, p, t) + (is_twice ? 1 : 0);
}

/* Edges are listed twice: counted first, then put in place. */
static void add_edge(struct search *s, int from, int to)
{
    if (s->to)
        s->to[s->begin[from]++] = to;
    else
        s->begin[from + 1]++;
    s->n_edges++;
}

/* The last task of lanes.sync that a computation waits for in its own step; -1: none. */
static int last_awaited_sync(const struct program *program, const struct task *task)
{
    int last = -1;

    for (int i = 0; i < task->n_waits && task->place == PLACE_LANE; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        const bool is_sync = program->tasks[wait->task].place == PLACE_LANE_SYNC;
        if (is_sync && !wait->is_last_step && wait->task > last)
            last = wait->task;
    }
    return last;
}

/* The next task of lanes.sync from t on; or the program's end. */
static int next_sync(const struct program *program, int t)
{
    while (t < program->n_tasks && program->tasks[t].place != PLACE_LANE_SYNC)
        t++;
    return t;
}

/* A lane that comes to a computation which waits for such a task runs all up to that one first. */
static void add_sync_edges(struct search *s, int p, int last_lane)
{
    const struct program *program = s->programs[p];
    int sync = next_sync(program, 0), lane = -1, last = -1;

    for (int t = 0; t <= program->n_tasks; t++) {
        const bool is_end = t == program->n_tasks;
        const int end = is_end ? t - 1 : last_awaited_sync(program, &program->tasks[t]);
        for (; sync < program->n_tasks && sync <= end; sync = next_sync(program, sync + 1)) {
            if (last >= 0)
                add_edge(s, end_of(s, p, last), begin_of(s, p, sync));
            if (lane >= 0)
                add_edge(s, begin_of(s, p, lane), begin_of(s, p, sync));
            if (is_end && last_lane >= 0)
                add_edge(s, end_of(s, p, last_lane), begin_of(s, p, sync));
            last = sync;
        }
        if (!is_end && program->tasks[t].place == PLACE_LANE && !program->tasks[t].is_on_demand)
            lane = t;
    }
}

static void add_lane_edges(struct search *s, int p)
{
    const struct program *program = s->programs[p];
    const bool is_twice = s->shards > 1, takes_turns = program->n_segments > 1;
    int last_lane = -1, first_of_shards = -1, last_of_shards = -1;

    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        if (task->place != PLACE_LANE || task->is_on_demand)
            continue;
        const int v = begin_of(s, p, t);
        if (last_lane >= 0)
            add_edge(s, begin_of(s, p, last_lane), v);
        last_lane = t;
        if (!is_of_shards(task) || !is_twice)
            continue;
        add_edge(s, v, v + 1);
        if (last_of_shards < 0)
            first_of_shards = t;
        else
            add_edge(s, end_of(s, p, last_of_shards), v + 1);
        last_of_shards = t;
    }
    if (first_of_shards >= 0 && !takes_turns)
        add_edge(s, begin_of(s, p, last_lane), begin_of(s, p, first_of_shards) + 1);
    add_sync_edges(s, p, last_lane);
}

/* A use waits for what is done for it, or for the use before. A pipeline's uses take turns as its
 * schedule says, one after the other. */
static void add_use_edges(struct search *s, int p, int t, const struct wait *wait)
{
    const bool is_twice = s->shards > 1, takes_turns = s->programs[p]->n_segments > 1;
    const int from = begin_of(s, p, wait->task), to = begin_of(s, p, t);

    if (!wait->is_last_use) {
        add_edge(s, from, to);
        add_edge(s, end_of(s, p, wait->task), end_of(s, p, t));
    } else if (is_twice && !takes_turns) {
        add_edge(s, from, to + 1);
    }
}

/* A task of uses runs for the first shard before it does for the last. What an unshard requests
 * another node gives as soon as it answers. */
static void add_unshard_edges(struct search *s, int p)
{
    const struct program *program = s->programs[p];

    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        if (task->place != PLACE_NET || !task->by_use)
            continue;
        if (s->shards > 1)
            add_edge(s, begin_of(s, p, t), begin_of(s, p, t) + 1);
        for (int a = 0; a < program->n_tasks && task->kind == TASK_UNSHARD; a++) {
            if (program->tasks[a].kind == TASK_ANSWER &&
                program->tasks[a].bucket == task->bucket)
                add_edge(s, begin_of(s, p, a), begin_of(s, p, t));
        }
    }
}

static void add_edges(struct search *s)
{
    s->n_edges = 0;
    for (int p = 0; p < s->n; p++) {
        const struct program *program = s->programs[p];
        add_lane_edges(s, p);
        add_unshard_edges(s, p);
        for (int t = 0; t < program->n_tasks; t++) {
            for (int i = 0; i < program->tasks[t].n_waits; i++) {
                const struct wait *wait = &program->waits[program->tasks[t].first_wait + i];
                if (wait->by_use)
                    add_use_edges(s, p, t, wait);
                else if (!wait->is_last_step && !wait->by_medium && !wait->is_apart)
                    add_edge(s, end_of(s, p, wait->task), begin_of(s, p, t));
            }
        }
    }
}

static const struct task *task_of_vertex(const struct search *s, int v)
{
    int p = 0;

    while (p + 1 < s->n && s->base[p + 1] <= v)
        p++;
    return &s->programs[p]->tasks[(v - s->base[p]) / 2];
}

/* A vertex that is met again on the way down is on a cycle, with the one above it. */
static enum status look_for_cycle(struct search *s)
{
    enum { NEW, ON_THE_WAY, DONE };

    for (int root = 0; root < s->n_vertices; root++) {
        int depth = 0;
        if (s->state[root] != NEW)
            continue;
        s->stack[depth] = root;
        s->next[depth++] = s->begin[root];
        s->state[root] = ON_THE_WAY;
        while (depth > 0) {
            const int v = s->stack[depth - 1];
            if (s->next[depth - 1] == s->begin[v + 1]) {
                s->state[v] = DONE;
                depth--;
                continue;
            }
            const int w = s->to[s->next[depth - 1]++];
            if (s->state[w] == ON_THE_WAY)
                return fail_pair(task_of_vertex(s, v), task_of_vertex(s, w),
                                 "a deadlock: %s and %s wait for each other");
            if (s->state[w] != NEW)
                continue;
            s->state[w] = ON_THE_WAY;
            s->stack[depth] = w;
            s->next[depth++] = s->begin[w];
        }
    }
    return STATUS_OK;
}

static enum status place_edges(struct search *s)
{
    TRY(mem_alloc((size_t)s->n_vertices + 2, sizeof *s->begin, &s->begin));
    add_edges(s);
    for (int v = 0; v < s->n_vertices; v++)
        s->begin[v + 1] += s->begin[v];
    TRY(mem_alloc((size_t)s->n_edges + 1, sizeof *s->to, &s->to));
    add_edges(s);
    /* Each beginning has moved on to the next one's. */
    memmove(s->begin + 1, s->begin, (size_t)s->n_vertices * sizeof *s->begin);
    s->begin[0] = 0;
    TRY(mem_alloc((size_t)s->n_vertices + 1, sizeof *s->stack, &s->stack));
    TRY(mem_alloc((size_t)s->n_vertices + 1, sizeof *s->next, &s->next));
    return mem_alloc((size_t)s->n_vertices + 1, 1, &s->state);
}

static enum status check_progress(const struct program *const *programs, int n, int64_t shards)
{
    struct search s = { .programs = programs, .n = n, .shards = shards };

    TRY(mem_alloc((size_t)n, sizeof *s.base, &s.base));
    for (int p = 0; p < n; p++) {
        s.base[p] = s.n_vertices;
        s.n_vertices += 2 * programs[p]->n_tasks;
    }
    enum status status = place_edges(&s);
    if (status == STATUS_OK)
        status = look_for_cycle(&s);
    mem_free(s.base);
    mem_free(s.begin);
    mem_free(s.to);
    mem_free(s.stack);
    mem_free(s.next);
    mem_free(s.state);
    return status;
}

enum status program_verify_nodes(const struct program *const *programs, int n, int64_t shards)
{
    for (int p = 1; p < n; p++) {
        TRY(check_matched(programs[0], programs[p]));
        TRY(check_matched(programs[p], programs[0]));
    }
    return check_progress(programs, n, shards);
}

/* Servers ---------------------------------------------------------------------------------- */

static enum status fail_task(const struct task *task, const char *format)
{
    struct strbuf name;

    strbuf_init(&name, 256);
    task_print_name(task, &name);
    const enum status status = FAIL(STATUS_MISMATCH, format, name.text);
    strbuf_release(&name);
    return status;
}

static bool is_of_servers(const struct task *task, enum task_kind kind)
{
    return (task->does >> kind & 1) && task->medium == MEDIUM_SERVER;
}

static const struct task *find_kind(const struct program *program, enum task_kind kind,
                                    int slice)
{
    for (int t = 0; t < program->n_tasks; t++) {
        if (program->tasks[t].kind == kind && program->tasks[t].slice == slice)
            return &program->tasks[t];
    }
    return NULL;
}

static bool has_bucket(const struct program *program, enum task_kind kind, int bucket)
{
    for (int t = 0; t < program->n_tasks; t++) {
        if (program->tasks[t].kind == kind && program->tasks[t].bucket == bucket)
            return true;
    }
    return false;
}

/* Some server receives each push of a worker, and answers each pull. */
static enum status check_worker(const struct program *worker,
                                const struct program *const *servers, int n)
{
    static const enum task_kind kinds[] = { TASK_PUSH, TASK_PULL };

    for (int t = 0; t < 2 * worker->n_tasks; t++) {
        const struct task *task = &worker->tasks[t / 2];
        const enum task_kind kind = kinds[t % 2];
        bool is_met = !is_of_servers(task, kind);
        for (int s = 0; s < n && !is_met; s++)
            is_met = has_bucket(servers[s], kind, task->bucket);
        if (!is_met)
            return fail_task(task, "%s of a worker meets no task of a server");
    }
    return STATUS_OK;
}

static bool worker_does(const struct program *worker, enum task_kind kind, int bucket)
{
    for (int t = 0; t < worker->n_tasks; t++) {
        if (is_of_servers(&worker->tasks[t], kind) && worker->tasks[t].bucket == bucket)
            return true;
    }
    return false;
}

/* Has a server a task for squares, or a replica, that server `from` sends? */
static bool expects(const struct program *server, const struct task *sent, int from)
{
    const bool replicates = sent->does >> TASK_REPLICATE & 1;

    for (int t = 0; t < server->n_tasks; t++) {
        const struct task *task = &server->tasks[t];
        if (task->peer == from && task->kind == (replicates ? TASK_REPLICATE : TASK_RECEIVE) &&
            (!replicates || task->slice == sent->slice))
            return true;
    }
    return false;
}

/* Does a server need the squares of all others? */
static bool has_norm(const struct program *server)
{
    return find_kind(server, TASK_NORM, -1) != NULL;
}

static enum status check_sent(const struct program *const *servers, int n,
                              const struct program *own, const struct task *task)
{
    const bool replicates = (task->does >> TASK_REPLICATE & 1) && task->kind != TASK_REPLICATE;
    const bool tells = (task->does >> TASK_NORM & 1) && task->kind != TASK_NORM;

    for (int s = 0; s < n && (replicates || tells); s++) {
        const bool is_meant = replicates
                                  ? servers[s]->server == task->peer
                                  : servers[s]->server != own->server && has_norm(servers[s]);
        if (is_meant && !expects(servers[s], task, own->server))
            return fail_task(task, "no task of the other server expects what %s sends");
    }
    return STATUS_OK;
}

static enum status check_server(const struct program *worker,
                                const struct program *const *servers, int n, int own)
{
    const struct program *server = servers[own];

    for (int t = 0; t < server->n_tasks; t++) {
        const struct task *task = &server->tasks[t];
        TRY(check_sent(servers, n, server, task));
        if (task->kind != TASK_PUSH && task->kind != TASK_PULL)
            continue;
        if (!worker_does(worker, task->kind, task->bucket))
            return fail_task(task, "%s of a server meets no task of a worker");
        for (int s = 0; s < n; s++) {
            if (s != own && find_kind(servers[s], task->kind, task->slice))
                return fail_task(task, "%s is on two servers");
        }
        if (!find_kind(server, task->kind == TASK_PUSH ? TASK_PULL : TASK_PUSH, task->slice))
            return fail_task(task, "%s is pushed or pulled, not both");
    }
    return STATUS_OK;
}

enum status program_verify_servers(const struct program *worker,
                                   const struct program *const *servers, int n)
{
    TRY(check_worker(worker, servers, n));
    for (int s = 0; s < n; s++)
        TRY(check_server(worker, servers, n, s));
    return STATUS_OK;
}
