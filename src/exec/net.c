/* SPDX-License-Identifier: MIT */
/* net.c - the loop of the inter-node thread.
 *
 * The lanes of a node meet in shared memory. What the nodes of a job exchange is carried by a
 * thread of its own on the first ranks of every node: its rails. Rail l of a node talks to the
 * rails l of the others. The thread runs its tasks of the step program (net.h): it looks at one
 * after the other and moves on whatever can be moved, so no order of arrival can block it, and many
 * transfers are under way at once.
 *
 * Urgency. The next forward needs first what backward finishes last. The thread looks at tasks from
 * the last to the first, and begins sends of buckets only while few bytes are under way, so the
 * most urgent ones go first. Receives are never held back: every send that has begun ends.
 *
 * A task's counter is incremented after its sends are over, as the memory that they read may be
 * written again by a thread that waits for the counter. Where the task lists its sends as memory
 * (MEMORY_SENDS), tasks that need that memory wait for them instead.
 *
 * How partial sums travel. A node's row of shards need not be a subtree: it sends one partial sum
 * for each largest subtree in it, and the owner adds all nodes' along what is left of the tree
 * (kernel/tree.h), so bits do not depend on nodes.
 */
#include "exec/net.h"

#include <limits.h>
#include <sched.h>
#include <time.h>

#include "base/clock.h"
#include "exec/layout.h"
#include "exec/now.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"
#include "kernel/float_mode.h"

enum { LONG_IDLE = 1100 }; /* rounds, some 40 ms */

static const struct net_row *const rows[] = {
    &net_answer,      &net_unshard,    &net_reshard,   &net_reduce_scatter,
    &net_compressed,  &net_push_rows,  &net_direction, &net_update,
    &net_update_rows, &net_all_gather, &net_pull_rows, &net_drain,
    &net_records,     &net_tables,     &net_losses,    &net_norm,
};

const struct net_row *net_row_of(const struct net *net, const struct task *task)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i]->kind == task->kind && rows[i]->medium == task->medium &&
            (!rows[i]->can_run || rows[i]->can_run(net, task)))
            return rows[i];
    }
    return NULL;
}

/* Who owns what ---------------------------------------------------------------------------- */

int net_peer(const struct net *net, int node)
{
    return transport_node_first(net->transport, node) + net->rail;
}

/* The stretches of bucket b that rail `rail` of a node owns. */
void net_stretches(const struct net *net, int b, int node, int rail, int64_t *begin,
                   int64_t *end)
{
    const int64_t count = reduce_stretches(net->worker.sums, b);
    const int64_t owner = (int64_t)node * net->rails + rail;
    const int64_t owners = (int64_t)net->topology->nodes * net->rails;

    *begin = owner * count / owners;
    *end = (owner + 1) * count / owners;
}

struct slice net_slice(const struct net *net, int b, int node, int rail)
{
    const size_t first = (size_t)net->layout->buckets.begin[b];
    const size_t last = (size_t)net->layout->buckets.begin[b + 1];
    int64_t begin, end;

    net_stretches(net, b, node, rail, &begin, &end);
    const size_t at = first + (size_t)begin * TREE_STRETCH;
    const size_t stop = first + (size_t)end * TREE_STRETCH;
    return at >= last ? (struct slice){ last, 0 }
                      : (struct slice){ at, (stop < last ? stop : last) - at };
}

/* Transfers -------------------------------------------------------------------------------- */

void net_clear(struct transfers *list)
{
    list->count = list->left = list->held = 0;
    list->last = -1;
}

static struct transport_request *add_request(struct transfers *list, bool is_counted)
{
    BUG_ON(list->count == list->most);
    list->is_done[list->count] = false;
    list->is_counted[list->count] = is_counted;
    list->left++;
    return &list->request[list->count++];
}

enum status net_receive(struct net *net, struct net_task *t, int peer, uint32_t tag, void *data,
                        size_t bytes)
{
    if (bytes == 0)
        return STATUS_OK;
    return transport_start_receive(net->transport, peer, tag, data, bytes,
                                   add_request(&t->receives, false));
}

enum status net_send(struct net *net, struct net_task *t, int peer, uint32_t tag,
                     const void *data, size_t bytes)
{
    if (bytes == 0)
        return STATUS_OK;
    net->times.bytes += (int64_t)bytes;
    return transport_start_send(net->transport, peer, tag, data, bytes,
                                add_request(&t->sends, false));
}

/* Begins the sends that were held back, in their order, as far as there is room. */
static enum status send_held(struct net *net, struct transfers *list)
{
    struct net_traffic *traffic = &net->traffic;

    for (; list->held < list->count; list->held++) {
        struct transport_request *request = &list->request[list->held];
        if (!list->is_counted[list->held])
            continue;
        if (traffic->flying > 0 && traffic->flying + request->bytes > traffic->flying_most)
            return STATUS_OK;
        traffic->flying += request->bytes;
        net->times.bytes += (int64_t)request->bytes;
        TRY(transport_start_send(net->transport, request->member, request->tag, request->data,
                                 request->bytes, request));
    }
    return STATUS_OK;
}

enum status net_send_counted(struct net *net, struct net_task *t, int peer, uint32_t tag,
                             const void *data, size_t bytes)
{
    if (bytes == 0)
        return STATUS_OK;
    *add_request(&t->sends, true) = (struct transport_request){
        .peer = peer, .member = peer, .tag = tag, .data = (char *)data, .bytes = bytes
    };
    return send_held(net, &t->sends);
}

enum status net_are_over(struct net *net, struct transfers *list, bool *over)
{
    for (int i = 0; i < list->count && list->left > 0; i++) {
        const int peer = list->request[i].member;
        const bool is_held = list->is_counted[i] && i >= list->held;
        if (list->is_done[i] || is_held)
            continue;
        TRY(transport_test(net->transport, &list->request[i], &list->is_done[i]));
        list->left -= list->is_done[i];
        net->traffic.flying -=
            list->is_done[i] && list->is_counted[i] ? list->request[i].bytes : 0;
        list->last = list->is_done[i] ? peer : list->last;
    }
    *over = list->left == 0;
    return STATUS_OK;
}

static void cancel(struct net *net, struct transfers *list)
{
    for (int i = 0; i < list->count; i++)
        transport_cancel(net->transport, &list->request[i]);
}

/* Waits ------------------------------------------------------------------------------------ */

/* The task of this thread that a wait is for; NULL: it is another member's, or the last step's. */
static const struct net_task *local_task(const struct net *net, const struct wait *wait)
{
    const int at = wait->is_local && !wait->is_last_step ? net->task_at[wait->task] : -1;

    return at < 0 ? NULL : &net->tasks[at];
}

static const struct wait *wait_of(const struct net *net, const struct net_task *t, int i)
{
    return &net->program->waits[t->task->first_wait + i];
}

static bool is_over(const struct net *net, const struct net_task *t, const struct wait *wait)
{
    const struct net_task *local = local_task(net, wait);

    if (wait->by_use)
        return net_is_use_over(net, t, wait);
    if (wait->is_local)
        return !local || (wait->at_end ? local->stage == NET_FINISHED && local->sends.left == 0
                                       : local->stage == NET_FINISHED);
    return account_task_is_done(net->account, wait->task,
                                net->steps - (wait->is_last_step ? 1 : 0));
}

/* Are a task's waits over: those before it starts, or those before it ends? */
static bool are_waits_over(const struct net *net, const struct net_task *t, bool at_end)
{
    for (int i = 0; i < t->task->n_waits; i++) {
        const struct wait *wait = wait_of(net, t, i);
        if (wait->at_end == at_end && !is_over(net, t, wait))
            return false;
    }
    return true;
}

/* Have all tasks of this thread that it follows started, and are its other waits over? */
static bool may_prepare(const struct net *net, const struct net_task *t)
{
    for (int i = 0; i < t->task->n_waits; i++) {
        const struct wait *wait = wait_of(net, t, i);
        const struct net_task *local = local_task(net, wait);
        if (local ? local->stage < NET_STARTED : !is_over(net, t, wait))
            return false;
    }
    return true;
}

/* Blame ------------------------------------------------------------------------------------ */

static int first_missing(const struct transfers *list)
{
    for (int i = 0; i < list->count && list->left > 0; i++) {
        if (!list->is_done[i])
            return list->request[i].member;
    }
    return -1;
}

static bool is_left(const struct net_task *t)
{
    return t->stage != NET_FINISHED || t->sends.left > 0;
}

/* A peer that the task waits for, or a task of this thread before it; -1: it waits for its own
 * node. */
static int awaited_by(const struct net *net, const struct net_task *t)
{
    int peer = -1;

    if (t->stage != NET_WAITING)
        peer = first_missing(t->receives.left > 0 ? &t->receives : &t->sends);
    for (int i = 0; i < t->task->n_waits && peer < 0; i++) {
        const struct wait *wait = wait_of(net, t, i);
        const struct net_task *local = local_task(net, wait);
        if (local && !is_over(net, t, wait))
            peer = local->awaits;
    }
    return peer;
}

/* Threads that wait for the task can name the rank that is missing. */
static void note_awaited(const struct net *net, struct net_task *t)
{
    t->awaits = awaited_by(net, t);
    if (!t->task->by_use || t->stage != NET_WAITING) /* uses share a counter */
        net_expects(net->account, t->number, t->awaits);
}

/* The peer of the message that came last, for the task or for those that it follows; -1: none. */
static int last_peer(const struct net *net, const struct net_task *t)
{
    int peer = t->receives.last >= 0 ? t->receives.last : t->sends.last;

    for (int i = 0; i < t->task->n_waits && peer < 0; i++) {
        const struct wait *wait = wait_of(net, t, i);
        const struct net_task *local = wait->by_use ? NULL : local_task(net, wait);
        peer = local ? last_peer(net, local) : -1;
    }
    return peer;
}

static void note_all_awaited(const struct net *net)
{
    for (int i = 0; i < net->n_tasks; i++) {
        struct net_task *t = &net->tasks[i];
        t->awaits = -1;
        if (is_left(t)) /* those that it follows stand before it */
            note_awaited(net, t);
    }
}

/* Trace ------------------------------------------------------------------------------------ */

void net_take_channel(struct net *net, struct net_task *t)
{
    struct net_traffic *traffic = &net->traffic;

    t->traced = 0;
    for (t->channel = 0; t->channel < CHANNELS; t->channel++) {
        if (!traffic->is_taken[t->channel])
            break;
    }
    if (t->channel == CHANNELS || !traffic->rows[t->channel])
        return;
    traffic->is_taken[t->channel] = true;
    traffic->rows[t->channel]->step = net->step.number;
    t->traced = trace_begin(traffic->rows[t->channel]);
}

static const char *bucket_name(const struct net *net, const struct net_task *t)
{
    return t->task->bucket < 0 ? NULL : net->account->bucket_names[t->task->bucket];
}

void net_leave_channel(struct net *net, struct net_task *t)
{
    struct net_traffic *traffic = &net->traffic;

    if (t->channel == CHANNELS || !traffic->rows[t->channel])
        return;
    traffic->is_taken[t->channel] = false;
    trace_end(traffic->rows[t->channel], t->traced, TRACE_COMM, t->row->name,
              bucket_name(net, t));
}

void net_work_on_own(struct net *net, struct net_task *t, enum reduce_what what)
{
    static const char *const names[] = { [SUM_AND_UPDATE] = "sum and update",
                                         [SUM_AND_KEEP] = "sum",
                                         [DIRECT] = "directions",
                                         [UPDATE] = "update by norms" };
    struct trace_row *row = t->channel < CHANNELS ? net->traffic.rows[t->channel] : NULL;
    const int64_t traced = t->traced ? trace_begin(row) : 0;
    const int b = t->task->bucket;
    int64_t begin = 0, end = reduce_stretches(net->worker.sums, b);
    const float *sum = NULL;

    if (bucket_is_compressed(net->layout, b))
        sum = net->memory->sum + net->layout->buckets.begin[b];
    else
        net_stretches(net, b, net->topology->node, net->rail, &begin, &end);
    reduce_stretches_of(&net->worker, b, begin, end, what, sum, &net->step.numbers);
    trace_end(row, traced, TRACE_COMM, names[what], bucket_name(net, t));
}

enum status net_scale(struct net *net)
{
    if (!net->layout->facts.rule.clips || net->is_scaled)
        return STATUS_OK;
    TRY(reduce_clip_scale(net->worker.sums, net->steps, &net->step.numbers.scale));
    net->is_scaled = true;
    return STATUS_OK;
}

/* A step ----------------------------------------------------------------------------------- */

static enum status prepare(struct net *net, struct net_task *t)
{
    if (!t->row->prepare || t->is_prepared || !may_prepare(net, t))
        return STATUS_OK;
    t->is_prepared = true;
    return t->row->prepare(net, t);
}

static enum status start(struct net *net, struct net_task *t)
{
    TRY(prepare(net, t));
    if (t->row->point)
        account_meet(net->account, t->row->point);
    net_take_channel(net, t);
    t->began = net->step.walk.is_evaluation ? 0 : trace_begin(net->traffic.rows[0]);
    if (t->row->start)
        TRY(t->row->start(net, t));
    t->stage = NET_STARTED;
    t->awaits_round = t->row->arrived != NULL;
    note_awaited(net, t);
    return STATUS_OK;
}

static bool leaves_sends(const struct task *task)
{
    for (int i = 0; i < task->n_accesses; i++) {
        if (task->accesses[i].memory == MEMORY_SENDS && task->accesses[i].is_write)
            return true;
    }
    return false;
}

static enum status finish(struct net *net, struct net_task *t)
{

    if (t->row->finish)
        TRY(t->row->finish(net, t));
    net_leave_channel(net, t);
    t->stage = ++t->time < t->times ? NET_WAITING : NET_FINISHED;
    if (t->task->signal >= 0) {
        const int last = last_peer(net, t);
        account_meet(net->account, "arrived");
        net_signal(net->account, t->number, last >= 0 ? last : net->topology->rank);
    }
    if (t->task->by_use) {
        net_expects(net->account, t->number, -1);
        net_clear(&t->receives);
        net_clear(&t->sends);
    }
    return STATUS_OK;
}

/* A task that has started ends when all that was begun is over. */
static enum status end_if_over(struct net *net, struct net_task *t)
{
    bool received, sent, again = false;

    TRY(net_are_over(net, &t->receives, &received));
    TRY(net_are_over(net, &t->sends, &sent));
    if (!received)
        return STATUS_OK;
    if (t->awaits_round) {
        const int last = t->receives.last;
        net_clear(&t->receives);
        t->receives.last = last;
        TRY(t->row->arrived(net, t, &again));
        t->awaits_round = again;
        if (again)
            return STATUS_OK;
    }
    if ((!sent && !leaves_sends(t->task)) || !are_waits_over(net, t, true))
        return STATUS_OK;
    return finish(net, t);
}

static void trace_finished(const struct net *net, const struct net_task *t)
{
    struct trace_row *row = net->traffic.rows[0];

    if (!t->began)
        return;
    row->step = net->step.number;
    account_trace_task(net->account, row, t->began, t->number);
}

/* Moves a task on as far as it goes. */
static enum status advance(struct net *net, struct net_task *t, bool *moved)
{
    const enum net_stage before = t->stage;
    const int time = t->time;
    bool sent;

    if (t->stage == NET_FINISHED) /* its sends are under way */
        return net_are_over(net, &t->sends, &sent);
    if (t->row->run) {
        TRY(t->row->run(net, t, moved));
        if (*moved)
            note_awaited(net, t);
        return STATUS_OK;
    }
    if (t->stage == NET_WAITING) {
        TRY(prepare(net, t));
        if (are_waits_over(net, t, false) && (!t->row->is_due || t->row->is_due(net, t)))
            TRY(start(net, t));
    }
    if (t->stage == NET_STARTED)
        TRY(end_if_over(net, t));
    *moved = t->stage != before || t->time != time;
    return STATUS_OK;
}

/* Nothing moved: other threads shall have the core. */
static void stand_back(int idle)
{
    if (idle < 64) {
        sched_yield();
        return;
    }
    const struct timespec nap = { .tv_nsec = idle < 1024 ? 20000 : 200000 };
    nanosleep(&nap, NULL);
}

/* Communication is the time in which there are transfers; hidden is what lanes compute meanwhile. */
static void account(struct net *net, bool is_busy)
{
    struct net_traffic *traffic = &net->traffic;
    struct overlap *overlap = &net->account->overlap;

    if (is_busy == (traffic->busy_since != 0))
        return;
    const int64_t now = clock_ns(), computed = overlap_computed(overlap, now);
    if (!is_busy) {
        net->times.comm += now - traffic->busy_since;
        net->times.hidden += computed - traffic->computed;
    }
    traffic->busy_since = is_busy ? now : 0;
    traffic->computed = computed;
}

static bool is_busy(const struct net_task *t)
{
    if (t->row->run)
        return t->is_busy;
    return t->stage == NET_STARTED || (t->stage == NET_FINISHED && t->sends.left > 0);
}

static enum status begin_step(struct net *net)
{
    for (int i = 0; i < net->n_tasks; i++) {
        struct net_task *t = &net->tasks[i];
        t->time = 0;
        t->times = net_runs(net, t);
        t->stage = t->times > 0 ? NET_WAITING : NET_FINISHED;
        t->is_prepared = t->is_busy = false;
        t->began = 0;
        if (t->row->run && !net->step.walk.is_evaluation)
            t->began = trace_begin(net->traffic.rows[0]);
        net_clear(&t->receives);
        net_clear(&t->sends);
        if (t->row->begin)
            TRY(t->row->begin(net, t));
    }
    note_all_awaited(net);
    return STATUS_OK;
}

static enum status run_tasks(struct net *net)
{
    int left = net->n_tasks, idle = 0;

    TRY(begin_step(net));
    while (left > 0) {
        bool any = false, busy = false, holds = false;
        left = 0;
        for (int i = net->n_tasks - 1; i >= 0; i--) {
            struct net_task *t = &net->tasks[i];
            bool moved = false;
            if (!is_left(t))
                continue;
            if (net->traffic.holds) /* room is made by what has gone */
                TRY(send_held(net, &t->sends));
            const bool was_finished = t->stage == NET_FINISHED;
            const int time = t->time;
            TRY(advance(net, t, &moved));
            if ((t->stage == NET_FINISHED && !was_finished) || t->time != time)
                trace_finished(net, t);
            any |= moved;
            left += is_left(t);
            busy |= is_busy(t);
            holds |= t->sends.held < t->sends.count;
        }
        net->traffic.holds = holds;
        account(net, busy);
        idle = any ? 0 : idle + 1;
        if (!any) {
            TRY(transport_check(net->transport));
            if (idle % LONG_IDLE == 0)
                note_all_awaited(net);
            stand_back(idle);
        }
    }
    return STATUS_OK;
}

/* The thread ------------------------------------------------------------------------------- */

static bool take_step(struct net *net)
{
    struct net_handoff *handoff = &net->handoff;

    pthread_mutex_lock(&handoff->lock);
    while (!handoff->is_given && !handoff->ends)
        pthread_cond_wait(&handoff->changed, &handoff->lock);
    const bool there_is = handoff->is_given;
    if (there_is) {
        net->step = handoff->step;
        net->is_scaled = false;
        handoff->is_given = false;
    }
    pthread_cond_broadcast(&handoff->changed);
    pthread_mutex_unlock(&handoff->lock);
    return there_is;
}

/* The sizes of what travels in this step. */
static enum status measure_step(struct net *net)
{
    if (net->step.walk.is_evaluation || extents_equal(net->shapes.extents, net->step.extents))
        return STATUS_OK;
    TRY(graph_infer(net->worker.sums->config->train, net->step.extents, net->shapes.of));
    net->shapes.extents = net->step.extents;
    return STATUS_OK;
}

static void end_step(struct net *net)
{
    struct net_handoff *handoff = &net->handoff;

    net->steps += !net->step.walk.is_evaluation;
    net->walks++;
    pthread_mutex_lock(&handoff->lock);
    handoff->known = net->times;
    handoff->is_running = handoff->is_given;
    pthread_cond_broadcast(&handoff->changed);
    pthread_mutex_unlock(&handoff->lock);
}

void *net_run(void *arg)
{
    struct net *net = arg;

    kernel_flush_denormals();
    enum status status = STATUS_OK;
    while (status == STATUS_OK && take_step(net)) {
        status = measure_step(net);
        if (status == STATUS_OK)
            status = run_tasks(net);
        end_step(net);
    }
    if (status != STATUS_OK)
        transport_abort(net->transport, status_message());
    for (int i = 0; i < net->n_tasks; i++) {
        cancel(net, &net->tasks[i].receives);
        cancel(net, &net->tasks[i].sends);
    }
    net_unshards_cancel(net);
    return NULL;
}
