/* SPDX-License-Identifier: MIT */
/* net.c - what a rank does so that a step spans several machines (nodes).
 *
 * Within a node lanes meet in shared memory. What the nodes owe each other is carried by a thread of
 * its own, the net, on the first ranks of every node: its rails. Rail l of a node talks to the rails l of the
 * others. A step is a list of items, each with a small state of its own; the net goes round and moves on
 * what can be moved, so that no order of arrival can block it and many transfers are under way at once.
 *
 *   bucket   all lanes of the node announced it: sums of what other nodes own are sent to them and theirs
 *            of what this one owns received; the latter are added along the tree, and this part of the parameters
 *            updated; parts go to all nodes; done[b]. Of n bytes a node sends 2 n (N-1)/N. State is touched
 *            by its owner alone.
 *   records  of a bucket that is made from what all shards give (factors, rows): this node's go to all nodes and
 *            theirs come here (net_gather.c); ready[b], and lanes proceed as on one machine.
 *   table    of a gather: likewise; met[g].
 *   losses   of shards and what ranks say: likewise; exchanged.
 *   hold     of a bucket that nodes hold in parts (net_unshard.c): the others' come before forward and backward, and
 *            are released again; then a bucket's parts go to nobody.
 *   norms    where norms are needed before an update (norms.c): sums of squares likewise, between the sums and
 *            the updates; reduced. And again for norms of directions; directed. Of tables whose records are gathered
 *            all nodes' lanes have the squares themselves (kept_rows).
 *
 * A node's row of shards need not be a subtree: it sends one partial sum for each largest subtree in it, and
 * the owner adds all nodes' along what is left of the tree (tree.h): bits do not depend on nodes.
 *
 * Cost of a bucket of n bytes, N nodes of W rails: a rail sends and receives 2 n (N-1) / (N W), if rows are
 * subtrees; 2 (N-1) messages each way.
 *
 * What the next forward needs first goes first. Backward finishes it last, so on a slow link it would stand behind
 * all the rest: sends of buckets are begun only while few bytes are under way, the most urgent ones first. Receives are
 * never held back, so that every send that has begun comes to its end.
 *
 * Order: the net raises done, ready, met after its sends of the item are complete, so that what they read
 * may be written again by who waits for these counters, as on one machine.
 */
#include <limits.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "exec/net.h"
#include "exec/pages.h"
#include "kernel/float_mode.h"

static const char *const item_names[ITEM_KINDS] = {
    "losses", "batch statistics", "sums and parameters", "records", "rows",
    "norms",  "norms of moves",   "parameters",
};
enum { LONG_IDLE = 1100 }; /* rounds, some 40 ms */

/* Who owns what ---------------------------------------------------------------------------- */

/* All nodes of one size: every rank talks, unless told otherwise; else the first one of each. */
int net_rails(const struct exec *exec)
{
    const int size = transport_node_size(exec->transport, 0);

    for (int node = 1; node < exec->nodes; node++) {
        if (transport_node_size(exec->transport, node) != size)
            return 1;
    }
    return exec->config.leaders ? 1 : size;
}

int net_peer(const struct net *net, int node)
{
    return transport_node_first(net->exec->transport, node) + net->rail;
}

/* The stretches of bucket b that rail `rail` of a node owns. */
void net_stretches(const struct net *net, int b, int node, int rail, int64_t *begin,
                   int64_t *end)
{
    const int64_t count = reduce_stretches(net->exec, b);
    const int64_t owner = (int64_t)node * net->rails + rail;
    const int64_t owners = (int64_t)net->exec->nodes * net->rails;

    *begin = owner * count / owners;
    *end = (owner + 1) * count / owners;
}

struct slice net_slice(const struct net *net, int b, int node, int rail)
{
    const size_t first = (size_t)net->exec->buckets.begin[b];
    const size_t last = (size_t)net->exec->buckets.begin[b + 1];
    int64_t begin, end;

    net_stretches(net, b, node, rail, &begin, &end);
    const size_t at = first + (size_t)begin * TREE_STRETCH;
    const size_t stop = first + (size_t)end * TREE_STRETCH;
    return at >= last ? (struct slice){ last, 0 }
                      : (struct slice){ at, (stop < last ? stop : last) - at };
}

/* Transfers -------------------------------------------------------------------------------- */

static struct transport_request *add_request(struct transfers *list)
{
    list->is_done[list->count] = list->is_counted[list->count] = false;
    list->left++;
    return &list->request[list->count++];
}

enum status net_transfer(struct net *net, struct transfers *list, bool sends, int peer,
                         uint32_t tag, void *data, size_t bytes)
{
    struct transport *transport = net->exec->transport;

    if (bytes == 0)
        return STATUS_OK;
    struct transport_request *request = add_request(list);
    if (!sends)
        return transport_start_receive(transport, peer, tag, data, bytes, request);
    net->lane.times.bytes += (int64_t)bytes;
    return transport_start_send(transport, peer, tag, data, bytes, request);
}

/* Begins the sends of an item that were held back, in their order, as far as there is room. */
static enum status send_held(struct net *net, struct item *item)
{
    struct transfers *list = &item->others;

    for (; list->held < list->count; list->held++) {
        struct transport_request *request = &list->request[list->held];
        if (!list->is_counted[list->held])
            continue;
        if (net->flying > 0 && net->flying + request->bytes > net->flying_most)
            return STATUS_OK;
        net->flying += request->bytes;
        net->lane.times.bytes += (int64_t)request->bytes;
        TRY(transport_start_send(net->exec->transport, request->member, request->tag,
                                 request->data, request->bytes, request));
    }
    return STATUS_OK;
}

/* A send of an item's bucket: it begins now or later. */
static enum status send_bucket(struct net *net, struct item *item, int peer, uint32_t tag,
                               void *data, size_t bytes)
{
    if (bytes == 0)
        return STATUS_OK;
    *add_request(&item->others) = (struct transport_request){
        .peer = peer, .member = peer, .tag = tag, .data = data, .bytes = bytes
    };
    item->others.is_counted[item->others.count - 1] = true;
    return send_held(net, item);
}

enum status net_are_over(struct net *net, struct transfers *list, bool *over)
{
    for (int i = 0; i < list->count && list->left > 0; i++) {
        const int peer = list->request[i].member;
        const bool is_held = list->is_counted[i] && i >= list->held;
        if (list->is_done[i] || is_held)
            continue;
        TRY(transport_test(net->exec->transport, &list->request[i], &list->is_done[i]));
        list->left -= list->is_done[i];
        net->flying -= list->is_done[i] && list->is_counted[i] ? list->request[i].bytes : 0;
        list->last = list->is_done[i] ? peer : list->last;
    }
    *over = list->left == 0;
    return STATUS_OK;
}

static void give_up(struct net *net, struct transfers *list)
{
    for (int i = 0; i < list->count; i++)
        transport_cancel(net->exec->transport, &list->request[i]);
}

/* Sums ------------------------------------------------------------------------------------- */

/* Makes this node's partial sum p of a slice, if it does not lie there already; returns its vector. */
float *net_make_sum(struct net *net, int p, struct slice slice)
{
    const struct exec *exec = net->exec;
    const struct tree_part *parts = &exec->parts[net->own_parts];

    if (net->n_own_parts == net->n_own) /* the lanes' own */
        return (float *)parts[p].data;
    float *sum = net->sums + (size_t)p * exec->vector;
    for (size_t done = 0; done < slice.count; done += TREE_STRETCH) {
        const size_t left = slice.count - done;
        const size_t count = left < TREE_STRETCH ? left : TREE_STRETCH;
        const float *from =
            tree_combine_node(parts, net->n_own_parts, exec->config.shards, net->own[p],
                              slice.at + done, count, net->scratch);
        memcpy(sum + slice.at + done, from, count * sizeof *sum);
    }
    return sum;
}

static enum status begin_bucket(struct net *net, struct item *item)
{
    const struct exec *exec = net->exec;
    const int b = item->number;
    const struct slice own = net_slice(net, b, exec->node, net->rail);

    for (int node = 0; node < exec->nodes; node++) {
        if (node == exec->node)
            continue;
        const int peer = net_peer(net, node);
        const struct slice theirs = net_slice(net, b, node, net->rail);
        for (int p = 0; p < net->n_of[node]; p++)
            TRY(net_transfer(net, &item->needed, false, peer, item->tag,
                             (float *)exec->parts[net->first_of[node] + p].data + own.at,
                             own.count * sizeof(float)));
        if (!bucket_is_held(exec, b)) /* else nobody sends them */
            TRY(net_transfer(net, &item->params, false, peer, item->tag + 1,
                             exec->param + theirs.at, theirs.count * sizeof(float)));
        for (int p = 0; p < net->n_own && theirs.count > 0; p++)
            TRY(send_bucket(net, item, peer, item->tag,
                            net_make_sum(net, p, theirs) + theirs.at,
                            theirs.count * sizeof(float)));
    }
    item->n_sums = item->others.count;
    return STATUS_OK;
}

/* Elements of a vector are read no more. */
static void release_slice(float *vector, struct slice slice)
{
    pages_release(vector + slice.at, slice.count * sizeof *vector);
}

/* The memory of partial sums of a bucket: those made here for others, and those that came. */
static void release_sums(struct net *net, int b)
{
    const struct exec *exec = net->exec;
    const bool makes = net->n_own_parts != net->n_own;

    for (int node = 0; node < exec->nodes; node++) {
        if (node == exec->node)
            continue;
        for (int p = 0; p < net->n_own && makes; p++)
            release_slice(net->sums + (size_t)p * exec->vector,
                          net_slice(net, b, node, net->rail));
        for (int p = 0; p < net->n_of[node]; p++)
            release_slice((float *)exec->parts[net->first_of[node] + p].data,
                          net_slice(net, b, exec->node, net->rail));
    }
}

static void work_on_own(struct net *net, int b, enum reduce_what what)
{
    const struct exec *exec = net->exec;
    int64_t begin, end;

    if (bucket_is_compressed(exec, b)) {
        reduce_stretches_of(&net->lane, b, 0, reduce_stretches(exec, b), what,
                            exec->sum + exec->buckets.begin[b], &net->numbers);
        return;
    }
    net_stretches(net, b, exec->node, net->rail, &begin, &end);
    reduce_stretches_of(&net->lane, b, begin, end, what, NULL, &net->numbers);
}

static enum status share_params(struct net *net, struct item *item)
{
    const struct exec *exec = net->exec;
    const struct slice own = net_slice(net, item->number, exec->node, net->rail);

    if (bucket_is_compressed(exec, item->number)) /* all have updated it */
        return STATUS_OK;
    if (bucket_is_held(exec, item->number)) /* who reads it will ask for it */
        return STATUS_OK;
    for (int node = 0; node < exec->nodes; node++) {
        if (node != exec->node)
            TRY(send_bucket(net, item, net_peer(net, node), item->tag + 1, exec->param + own.at,
                            own.count * sizeof(float)));
    }
    return STATUS_OK;
}

/* Who looks on ------------------------------------------------------------------------------- */

/* A row of the trace for an item, from its first transfer to its last. */
void net_take_channel(struct net *net, struct item *item)
{
    item->traced = 0;
    for (item->channel = 0; item->channel < CHANNELS; item->channel++) {
        if (!net->is_taken[item->channel])
            break;
    }
    if (item->channel == CHANNELS || !net->rows[item->channel])
        return;
    net->is_taken[item->channel] = true;
    net->rows[item->channel]->step = net->number;
    item->traced = trace_begin(net->rows[item->channel]);
}

/* Its bucket, or NULL. */
static const char *bucket_of(const struct net *net, const struct item *item)
{
    const bool is_bucket = item->kind == ITEM_BUCKET || item->kind == ITEM_RECORDS ||
                           item->kind == ITEM_SERVED || item->kind == ITEM_HOLD;
    return is_bucket ? net->exec->bucket_names[item->number] : NULL;
}

void net_leave_channel(struct net *net, struct item *item)
{
    if (item->channel == CHANNELS || !net->rows[item->channel])
        return;
    net->is_taken[item->channel] = false;
    trace_end(net->rows[item->channel], item->traced, TRACE_COMM, item_names[item->kind],
              bucket_of(net, item));
}

/* A peer that the item waits for; -1: it has not begun, or waits for its own node. */
static int awaited_by(const struct item *item)
{
    const struct transfers *const lists[] = { &item->needed, &item->others, &item->params };

    for (int l = 0; l < 3 && item->stage != WAITING; l++) {
        for (int i = 0; i < lists[l]->count && lists[l]->left > 0; i++) {
            if (!lists[l]->is_done[i])
                return lists[l]->request[i].member;
        }
    }
    return -1;
}

/* The task of the program that is done when all transfers are over. */
static int task_of(const struct net *net, const struct item *item)
{
    const struct program *program = net->exec->program;
    const int i = item->number;

    switch (item->kind) {
    case ITEM_LOSSES:
        return program->losses;
    case ITEM_TABLE:
        return program->gathered[i];
    case ITEM_BUCKET:
    case ITEM_SERVED:
        return program->fresh[i];
    case ITEM_RECORDS:
        return program->ready[i];
    case ITEM_NORMS:
        return program->norm;
    case ITEM_MOVES:
        return program->direction_norm;
    case ITEM_HOLD:
        return program->unshard[i];
    case ITEM_KINDS:
        break;
    }
    BUG_ON(true);
    return -1;
}

/* Whom each item waits for is told to who waits for the item. */
static void tell_expectations(const struct net *net)
{
    for (int i = 0; i < net->n_items; i++) {
        const struct item *item = &net->items[i];
        if (item->stage != FINISHED)
            net_expects(net->exec, task_of(net, item), awaited_by(item));
    }
}

/* A step ----------------------------------------------------------------------------------- */

static bool all_are_at(const struct net *net, enum stage stage)
{
    for (int i = 0; i < net->n_items; i++) {
        const enum item_kind kind = net->items[i].kind;
        if ((kind == ITEM_BUCKET || kind == ITEM_SERVED) && net->items[i].stage < stage)
            return false;
    }
    return true;
}

/* Have lanes done what a task waits for? */
static bool lanes_have_done(const struct net *net, int task)
{
    const struct program *program = net->exec->program;

    for (int i = 0; i < program->tasks[task].n_waits; i++) {
        const struct wait *wait = &program->waits[program->tasks[task].first_wait + i];
        if (wait->is_local || program->tasks[wait->task].place == PLACE_NET)
            continue;
        if (!exec_task_is_done(net->exec, wait->task, net->steps - wait->is_last_step))
            return false;
    }
    return true;
}

/* Have the lanes of this node done what the item waits for? */
static bool is_announced(const struct net *net, const struct item *item)
{
    const struct exec *exec = net->exec;
    const struct program *program = exec->program;
    const int i = item->number;

    switch (item->kind) {
    case ITEM_TABLE:
        return exec_task_is_done(exec, program->made[i], net->steps);
    case ITEM_BUCKET:
    case ITEM_RECORDS:
    case ITEM_SERVED:
        return net_unshard_is_over(net, i) &&
               exec_task_is_done(exec, program->announced[i], net->steps);
    case ITEM_LOSSES:
        for (int b = 0; b < exec->buckets.count; b++) {
            if (!exec_task_is_done(exec, program->announced[b], net->steps))
                return false;
        }
        return true;
    case ITEM_NORMS:
        return all_are_at(net, KEPT) && lanes_have_done(net, program->norm);
    case ITEM_MOVES:
        return all_are_at(net, DIRECTED);
    case ITEM_HOLD:
    case ITEM_KINDS:
        break;
    }
    return false;
}

static void forget(struct transfers *list)
{
    list->count = list->left = 0;
    list->last = -1;
}

void net_forget_transfers(struct item *item)
{
    forget(&item->needed);
    forget(&item->others);
    forget(&item->params);
    item->others.held = INT_MAX; /* nothing is held back */
}

static enum status begin_item(struct net *net, struct item *item)
{
    net_forget_transfers(item);
    if (item->kind == ITEM_BUCKET && !net_has_codec(net, item->number))
        item->others.held = 0;
    item->is_summed = false;
    net_take_channel(net, item);
    switch (item->kind) {
    case ITEM_BUCKET:
        exec_meet(net->exec, "net");
        return net_has_codec(net, item->number) ? net_codec_begin(net, item)
                                                : begin_bucket(net, item);
    case ITEM_SERVED:
        exec_meet(net->exec, "net");
        return net_rows_begin(net, item);
    case ITEM_RECORDS:
    case ITEM_TABLE:
    case ITEM_LOSSES:
    case ITEM_NORMS:
    case ITEM_MOVES:
        return net_gather_begin(net, item);
    case ITEM_HOLD:
    case ITEM_KINDS:
        break;
    }
    return STATUS_OK;
}

/* All transfers are over. */
static void end_item(struct net *net, struct item *item)
{
    const int last = item->params.last >= 0   ? item->params.last
                     : item->others.last >= 0 ? item->others.last
                                              : item->needed.last;

    exec_meet(net->exec, "arrived");
    net_leave_channel(net, item);
    net_signal(net->exec, task_of(net, item), last >= 0 ? last : net->exec->rank);
}

/* Works on this rail's part of an item's bucket; the trace shows it within the item. */
static void update_own(struct net *net, struct item *item, enum reduce_what what,
                       const char *name)
{
    struct trace_row *row = item->channel < CHANNELS ? net->rows[item->channel] : NULL;
    const int64_t traced = item->traced ? trace_begin(row) : 0;

    work_on_own(net, item->number, what);
    trace_end(row, traced, TRACE_COMM, name, bucket_of(net, item));
}

/* Are the squares of all nodes here, and those of this node's other rails? */
static bool are_here(const struct net *net, int norm)
{
    return exec_task_is_done(net->exec, norm, net->steps);
}

static enum status go_by_norms(struct net *net, struct item *item)
{
    struct exec *exec = net->exec;

    if (!are_here(net,
                  item->stage == KEPT ? exec->program->norm : exec->program->direction_norm))
        return STATUS_OK;
    if (item->stage == KEPT && exec->clips && !net->is_scaled) {
        TRY(reduce_clip_scale(exec, net->steps, &net->numbers.scale));
        net->is_scaled = true;
    }
    if (item->kind == ITEM_SERVED) {
        item->stage = RECEIVING;
        return net_rows_update(net, item);
    }
    if (item->stage == KEPT && exec->clips && exec->directs) {
        update_own(net, item, DIRECT, "directions");
        item->stage = DIRECTED;
        return STATUS_OK;
    }
    update_own(net, item, UPDATE, "update");
    item->stage = SHARING;
    return share_params(net, item);
}

/* The bucket is summed here; when others have its sums, too, its gradients are read no more. */
static void let_go_of_gradients(struct net *net, struct item *item)
{
    struct exec *exec = net->exec;

    if (!exec->releases || item->is_summed || item->kind != ITEM_BUCKET)
        return;
    for (int i = 0; i < item->n_sums; i++) {
        if (!item->others.is_done[i])
            return;
    }
    release_sums(net, item->number);
    item->is_summed = true;
    net_signal(exec, exec->program->summed[item->number], exec->rank);
}

/* Moves an item on as far as it goes; says whether it did. */
static enum status move_on(struct net *net, struct item *item, bool *moved)
{
    struct exec *exec = net->exec;
    const enum stage before = item->stage;
    bool over = false, is_kept = false;

    if (item->kind == ITEM_HOLD) {
        TRY(net_unshard_move(net, item, moved));
        if (*moved)
            net_expects(exec, task_of(net, item), awaited_by(item));
        return STATUS_OK;
    }
    if (item->stage == WAITING && is_announced(net, item)) {
        TRY(begin_item(net, item));
        item->stage =
            item->kind == ITEM_BUCKET || item->kind == ITEM_SERVED ? RECEIVING : SHARING;
        net_expects(exec, task_of(net, item), awaited_by(item));
    }
    if (item->stage > WAITING && net->holds) { /* room is made by what has gone */
        TRY(net_are_over(net, &item->others, &over));
        TRY(send_held(net, item));
    }
    if (item->stage == RECEIVING) {
        TRY(net_are_over(net, &item->needed, &over));
        if (over && item->kind == ITEM_SERVED)
            TRY(net_rows_arrived(net, item, &is_kept, &over));
        else if (over && net_has_codec(net, item->number))
            TRY(net_codec_arrived(net, item, &over));
        if (is_kept) {
            item->stage = KEPT;
        } else if (over && item->kind == ITEM_SERVED) {
            item->stage = SHARING;
        } else if (over) {
            item->stage = norms_are_used(exec) ? KEPT : SHARING;
            update_own(net, item, item->stage == KEPT ? SUM_AND_KEEP : SUM_AND_UPDATE,
                       "sum and update");
            if (item->stage == SHARING)
                TRY(share_params(net, item));
        }
    }
    if (item->stage == KEPT || item->stage == DIRECTED)
        TRY(go_by_norms(net, item));
    if (item->stage >= KEPT && item->stage < FINISHED) {
        TRY(net_are_over(net, &item->others, &over));
        let_go_of_gradients(net, item);
    }
    if (item->stage == SHARING && over) {
        TRY(net_are_over(net, &item->params, &over));
        if (over) {
            end_item(net, item);
            item->stage = FINISHED;
        }
    }
    *moved = item->stage != before;
    return STATUS_OK;
}

/* Nothing moved: others shall have the core. */
static void stand_back(int idle)
{
    if (idle < 64) {
        sched_yield();
        return;
    }
    const struct timespec nap = { .tv_nsec = idle < 1024 ? 20000 : 200000 };
    nanosleep(&nap, NULL);
}

/* Communication is what time there are transfers under way; hidden, what lanes compute meanwhile. */
static void account(struct net *net, bool is_busy)
{
    struct overlap *overlap = &net->exec->overlap;

    if (is_busy == (net->busy_since != 0))
        return;
    const int64_t now = clock_ns(), computed = overlap_computed(overlap, now);
    if (!is_busy) {
        net->lane.times.comm += now - net->busy_since;
        net->lane.times.hidden += computed - net->computed;
    }
    net->busy_since = is_busy ? now : 0;
    net->computed = computed;
}

static enum status run_items(struct net *net)
{
    struct transport *transport = net->exec->transport;
    int left = net->n_items, idle = 0;

    for (int i = 0; i < net->n_items; i++) {
        const bool is_part = !net->walk.is_evaluation || net->items[i].kind == ITEM_HOLD;
        net->items[i].stage = is_part ? WAITING : FINISHED;
    }
    TRY(net_unshard_begin(net));
    tell_expectations(net);
    while (left > 0) {
        bool any = false, is_busy = false, holds = false;
        left = 0;
        /* From the last to the first: what the next forward needs first goes first. */
        for (int i = net->n_items - 1; i >= 0; i--) {
            bool moved = false;
            if (net->items[i].stage == FINISHED)
                continue;
            TRY(move_on(net, &net->items[i], &moved));
            any |= moved;
            left += net->items[i].stage != FINISHED;
            is_busy |= net->items[i].stage > WAITING && net->items[i].stage < FINISHED;
            holds |= net->items[i].stage > WAITING &&
                     net->items[i].others.held < net->items[i].others.count;
        }
        net->holds = holds;
        account(net, is_busy);
        idle = any ? 0 : idle + 1;
        if (!any) {
            TRY(transport_check(transport));
            if (idle % LONG_IDLE == 0)
                tell_expectations(net);
            stand_back(idle);
        }
    }
    return STATUS_OK;
}

/* The thread ------------------------------------------------------------------------------- */

static bool take_step(struct net *net)
{
    pthread_mutex_lock(&net->lock);
    while (!net->is_given && !net->ends)
        pthread_cond_wait(&net->changed, &net->lock);
    const bool there_is = net->is_given;
    if (there_is) {
        net->number = net->given_number;
        net->numbers = net->given_numbers;
        net->is_scaled = false;
        net->wanted = net->given_extents;
        net->walk = net->given_walk;
        net->is_given = false;
    }
    pthread_cond_broadcast(&net->changed);
    pthread_mutex_unlock(&net->lock);
    return there_is;
}

/* The sizes of what travels in this step. */
static enum status measure_step(struct net *net)
{
    if (net->walk.is_evaluation || extents_equal(net->extents, net->wanted))
        return STATUS_OK;
    TRY(graph_infer(net->exec->config.train, net->wanted, net->shapes));
    net->extents = net->wanted;
    return STATUS_OK;
}

void *net_run(void *arg)
{
    struct net *net = arg;

    kernel_flush_denormals();
    enum status status = STATUS_OK;
    while (status == STATUS_OK && take_step(net)) {
        status = measure_step(net);
        if (status == STATUS_OK)
            status = run_items(net);
        net->steps += !net->walk.is_evaluation;
        net->walks++;
        pthread_mutex_lock(&net->lock);
        net->known = net->lane.times;
        net->is_running = net->is_given;
        pthread_cond_broadcast(&net->changed);
        pthread_mutex_unlock(&net->lock);
    }
    if (status != STATUS_OK)
        transport_abort(net->exec->transport, status_message());
    for (int i = 0; i < net->n_items; i++) {
        give_up(net, &net->items[i].needed);
        give_up(net, &net->items[i].others);
        give_up(net, &net->items[i].params);
    }
    net_unshard_give_up(net);
    return NULL;
}

/* With the lock: until the thread has changed something, or for a while. */
static void await_change(struct net *net)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 100000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&net->changed, &net->lock, &until);
}

enum status net_rest(struct net *net)
{
    pthread_mutex_lock(&net->lock);
    while (net->is_running && transport_check(net->exec->transport) == STATUS_OK)
        await_change(net);
    pthread_mutex_unlock(&net->lock);
    return transport_check(net->exec->transport);
}

enum status net_begin(struct exec *exec, struct extents extents)
{
    struct net *net = exec->net;

    if (net->rail >= net->rails)
        return STATUS_OK;
    pthread_mutex_lock(&net->lock);
    while (net->is_given && transport_check(exec->transport) == STATUS_OK)
        await_change(net);
    net->given_extents = extents;
    net->given_walk = exec->hold.walk;
    net->given_number = exec->step;
    net->given_numbers = exec->numbers;
    net->is_given = net->is_running = true;
    pthread_cond_broadcast(&net->changed);
    pthread_mutex_unlock(&net->lock);
    return transport_check(exec->transport);
}

struct times net_times(const struct exec *exec)
{
    struct net *net = exec->net;

    if (!net)
        return (struct times){ 0 };
    pthread_mutex_lock(&net->lock);
    const struct times times = { .comm = net->known.comm - net->forgotten.comm,
                                 .hidden = net->known.hidden - net->forgotten.hidden,
                                 .bytes = net->known.bytes - net->forgotten.bytes };
    pthread_mutex_unlock(&net->lock);
    return times;
}

void net_forget_times(struct exec *exec)
{
    struct net *net = exec->net;

    if (!net)
        return;
    pthread_mutex_lock(&net->lock);
    net->forgotten = net->known;
    pthread_mutex_unlock(&net->lock);
}
