/* SPDX-License-Identifier: MIT */
/* walk.c - walks the tasks of a step program in the order that their dependencies allow.
 *
 * Three things go on at a time: the lane's task, a transfer on the node's link, and additions of an
 * inter-node thread. Each has so many seconds left. The lane is slowed by what of a core the other
 * two take. Time advances to whatever ends next:
 *
 *   lane   forward  backward b1  backward b0  | forward of the next step waits for b0's parameters
 *   link                         b1 scatter     b0 scatter  b0 gather  b1 gather
 *   net                                  add b1         add b0
 *
 * A task of the link is waiting, then in transfer, then under way for the link's latency, then its
 * sums are added. All but the first shard of a lane find parameters in place, so those between the
 * first and the last are walked as one.
 */
#include "sched/walking.h"

#include <math.h>

#include "base/mem.h"
#include "graph/op.h"
#include "sched/facts.h"
#include "sched/lower.h"

/* Prices ------------------------------------------------------------------------------------- */

/* The layer whose columns lanes make together, of a task TASK_COLUMNS. */
static int joint_node(const struct walk *w, const struct task *task)
{
    const struct node *layer = facts_column_layer(w->config->graph, task->bucket);

    for (int n = 0; n < graph_node_count(w->config->graph); n++) {
        if (graph_node(w->config->graph, n) == layer)
            return n;
    }
    return -1;
}

/* Seconds to make a gradient from the records of all lanes' shards. */
static double making_seconds(const struct walk *w, int bucket)
{
    const struct graph *graph = w->config->graph;
    double seconds = 0;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if ((node->op == &op_factor_sum || node->op == &op_row_sum) &&
            node->attrs.bucket == bucket)
            seconds += w->config->node_seconds[n];
    }
    return seconds * (double)w->config->work->shards;
}

/* Sums and updates, shared out among the members of the task. */
static double adding_seconds(const struct walk *w, int t)
{
    const struct task *task = &w->program->tasks[t];
    const struct task_work *work = &w->config->works[t];
    const struct cost_work *prices = w->config->work;
    double seconds = work->summed * prices->add + work->updated * prices->update;

    if (task->kind == TASK_SUM_FACTORS || task->kind == TASK_SUM_ROWS)
        seconds = making_seconds(w, task->bucket);
    return seconds / task->members * w->slow * w->config->team;
}

double walk_release_seconds(const struct walk *w, int t)
{
    return w->config->works[t].released * cost_page_seconds(w->config->cluster) * w->slow;
}

/* An exchange between ranks that share layers, for one shard. Peers do it at the same time. */
static double exchange_seconds(const struct walk *w, int t)
{
    const struct cost_link *link = w->config->peers;
    const double shards = (double)w->config->work->shards / w->program->topology.nodes;
    const double messages = w->config->works[t].messages / shards;
    const double times = w->config->tensor > 1 ? messages / (w->config->tensor - 1) : 0;

    return times > 0 ? times * link->latency + messages * link->message +
                           w->config->works[t].sent / shards / link->bandwidth
                     : 0;
}

double walk_shard_seconds(const struct walk *w, int t)
{
    const struct task *task = &w->program->tasks[t];
    double seconds = 0;

    if (task->kind == TASK_TENSOR)
        return exchange_seconds(w, t);
    for (int n = task->first_node; n < task->end_node; n++)
        seconds += w->config->node_seconds[n];
    for (int c = 0; c < w->program->once_end; c++) {
        const struct task *columns = &w->program->tasks[c];
        const int n = columns->kind == TASK_COLUMNS ? joint_node(w, columns) : -1;
        if (n >= task->first_node && n < task->end_node)
            seconds -= w->config->node_seconds[n];
    }
    return seconds * w->slow;
}

static double once_seconds(const struct walk *w, int t)
{
    const struct task *task = &w->program->tasks[t];
    const int n = task->kind == TASK_COLUMNS ? joint_node(w, task) : -1;

    return n >= 0 ? w->config->node_seconds[n] * w->shards * w->slow : walk_shard_seconds(w, t);
}

static void price_net(struct walk *w, int t)
{
    const struct cost_link *link = w->config->link;
    const struct task_work *work = &w->config->works[t];
    const double busy = 1 - link->cpu + link->cpu * w->config->cluster->crowding;
    const double wire = (work->messages * link->message + work->sent / link->bandwidth) * busy;
    const double waited_for = work->times > 1 ? 1 / work->times : 1;

    w->nets[w->n_nets++] = (struct net_task){ .task = t,
                                              .transfer = waited_for * wire,
                                              .again = (1 - waited_for) * wire };
}

void walk_add_item(struct walk *w, int t, double seconds, bool is_last)
{
    w->items[w->n_items++] = (struct walk_item){ t, seconds, is_last };
}

/* The lane's tasks of a step: the first shard, those that are like each other, the last. */
static void list_shards(struct walk *w, int shards, bool is_last)
{
    for (int t = w->program->once_end; t < w->program->n_tasks; t++) {
        const struct task *task = &w->program->tasks[t];
        if (task->place != PLACE_LANE || task->is_on_demand)
            continue;
        const double once = is_last ? walk_release_seconds(w, t) : 0;
        walk_add_item(w, t, walk_shard_seconds(w, t) * shards + once, is_last);
    }
}

double walk_freed_seconds(const struct walk *w)
{
    double freed = 0;

    for (int i = 0; i < w->n_nets; i++)
        freed += walk_release_seconds(w, w->nets[i].task);
    return freed;
}

static void list_items(struct walk *w)
{
    for (int t = 0; t < w->program->once_end; t++) {
        if (w->program->tasks[t].place == PLACE_LANE)
            walk_add_item(w, t, once_seconds(w, t), true);
    }
    const bool meet = w->program->n_gathers > 0; /* shards of all lanes go forward together */
    if (w->shards > 1 && !meet)
        list_shards(w, 1, false);
    if (w->shards > 2 && !meet)
        list_shards(w, w->shards - 2, false);
    list_shards(w, meet ? w->shards : 1, true);
    if (w->n_items > 0)
        w->items[w->n_items - 1].seconds += walk_freed_seconds(w);
}

/* Waits -------------------------------------------------------------------------------------- */

/* Is what a wait is for done? A computation waits for the first use of parameters in partitions;
 * when those come and go, the engine's window says, which is taken to be wide enough. */
static bool is_over(const struct walk *w, const struct task *task, const struct wait *wait,
                    uint32_t step)
{
    if (wait->by_medium)
        return true;
    if (wait->by_use)
        return task->place == PLACE_NET || w->here[wait->task] > step;
    return w->done[wait->task] + wait->is_last_step > step;
}

/* An inter-node thread ends a step before it begins another. */
static bool has_begun(const struct walk *w, uint32_t step)
{
    for (int i = 0; i < w->n_nets; i++) {
        if (w->nets[i].step < step)
            return false;
    }
    return true;
}

static bool is_ready(const struct walk *w, int t, uint32_t step)
{
    const struct task *task = &w->program->tasks[t];

    for (int i = 0; i < task->n_waits; i++) {
        if (!is_over(w, task, &w->program->waits[task->first_wait + i], step))
            return false;
    }
    return task->place != PLACE_NET || has_begun(w, step);
}

/* The lane ----------------------------------------------------------------------------------- */

static int next_sync(const struct walk *w, int t)
{
    while (t < w->program->n_tasks && w->program->tasks[t].place != PLACE_LANE_SYNC)
        t++;
    return t;
}

static void begin_step(struct walk *w)
{
    w->at = 0;
    w->sync = next_sync(w, 0);
}

/* A sum that can run, between computations of the last shard or after them. */
static bool start_sync(struct walk *w)
{
    const bool may = w->at == w->n_items || (w->at > 0 && w->items[w->at - 1].is_last);

    if (!may || w->sync == w->program->n_tasks || !is_ready(w, w->sync, w->step))
        return false;
    w->task = w->sync;
    w->left = w->adding[w->sync];
    w->ends = true;
    w->sync = next_sync(w, w->sync + 1);
    return true;
}

static bool start_lane(struct walk *w)
{
    if (w->task >= 0 || w->step == w->steps || w->hold > w->now)
        return false;
    if (start_sync(w))
        return true;
    if (w->at >= w->goal || !is_ready(w, w->items[w->at].task, w->step))
        return false;
    w->task = w->items[w->at].task;
    w->left = w->items[w->at].seconds;
    w->ends = w->items[w->at++].is_last;
    return true;
}

static void end_lane(struct walk *w)
{
    w->done[w->task] += w->ends;
    w->task = -1;
    if (w->at < w->n_items || w->sync < w->program->n_tasks)
        return;
    w->ended[w->step++] = w->now;
    begin_step(w);
}

/* Inter-node threads ------------------------------------------------------------------------- */

static bool can_send(const struct walk *w, const struct net_task *net)
{
    return net->step < w->steps &&
           (net->stage == STAGE_AGAIN ||
            (net->stage == STAGE_WAITING && is_ready(w, net->task, net->step)));
}

static void start_transfer(struct walk *w, struct net_task *net)
{
    const bool is_new = net->stage == STAGE_WAITING;

    w->sends = net;
    w->send_left = is_new ? net->transfer : net->again;
    net->stage = is_new ? STAGE_TRANSFER : STAGE_AGAIN;
}

static void start_adding(struct walk *w, struct net_task *net)
{
    w->adds = net;
    w->add_left = w->adding[net->task];
    net->stage = STAGE_ADDING;
}

/* The next forward first needs what backward finishes last: from the last task to the first. */
static bool start_net(struct walk *w)
{
    bool any = false;

    for (int i = w->n_nets - 1; i >= 0 && !(w->sends && w->adds); i--) {
        struct net_task *net = &w->nets[i];
        if (!w->sends && can_send(w, net)) {
            start_transfer(w, net);
            any = true;
        } else if (!w->adds && net->stage == STAGE_LATENCY && net->latency <= 0) {
            start_adding(w, net);
            any = true;
        }
    }
    return any;
}

static void end_task(struct walk *w, struct net_task *net)
{
    w->done[net->task]++;
    net->stage = STAGE_WAITING;
    if (net->step++ == 0)
        w->summed = w->now;
}

static void end_transfer(struct walk *w)
{
    struct net_task *net = w->sends;
    const bool has_messages = w->config->works[net->task].messages > 0;

    w->sends = NULL;
    if (net->stage == STAGE_AGAIN) {
        end_task(w, net);
        return;
    }
    net->stage = STAGE_LATENCY;
    net->latency = has_messages ? w->config->link->latency : 0;
}

static void end_adding(struct walk *w)
{
    struct net_task *net = w->adds;

    w->adds = NULL;
    w->here[net->task]++;
    if (net->again > 0)
        net->stage = STAGE_AGAIN;
    else
        end_task(w, net);
}

/* Time --------------------------------------------------------------------------------------- */

/* The share of a lane's time that adding threads take. */
static double taken_by(const struct walk *w, const struct net_task *net)
{
    return w->program->tasks[net->task].members / w->lanes;
}

/* How fast the lane's task goes on beside what takes its core. */
static double lane_rate(const struct walk *w)
{
    const double rate = 1 - (w->sends ? w->lost : 0) - (w->adds ? taken_by(w, w->adds) : 0);

    return rate > 1e-9 ? rate : 0;
}

/* Until something ends; infinite: nothing is under way. */
static double time_to_next(const struct walk *w)
{
    const double rate = lane_rate(w);
    double next = INFINITY;

    if (w->task >= 0 && (rate > 0 || w->left <= 0))
        next = w->left > 0 ? w->left / rate : 0;
    if (w->task < 0 && w->hold > w->now)
        next = fmin(next, w->hold - w->now);
    if (w->sends)
        next = fmin(next, w->send_left);
    if (w->adds)
        next = fmin(next, w->add_left);
    for (int i = 0; i < w->n_nets; i++) {
        if (w->nets[i].stage == STAGE_LATENCY && w->nets[i].latency > 0)
            next = fmin(next, w->nets[i].latency);
    }
    return fmax(next, 0);
}

static void advance(struct walk *w, double seconds)
{
    const double none = 1e-15;

    w->now += seconds;
    w->left -= seconds * lane_rate(w);
    w->send_left -= seconds;
    w->add_left -= seconds;
    for (int i = 0; i < w->n_nets; i++)
        w->nets[i].latency -= seconds;
    const bool sent = w->sends && w->send_left <= none;
    const bool added = w->adds && w->add_left <= none;
    if (w->task >= 0 && w->left <= none)
        end_lane(w);
    if (sent)
        end_transfer(w);
    if (added)
        end_adding(w);
}

/* The lane has done what stands before the goal, or the step. */
static bool is_there(const struct walk *w, uint32_t step)
{
    return w->task < 0 && (w->step > step || (w->at >= w->goal && w->goal < w->n_items));
}

enum status walk_go(struct walk *w)
{
    const uint32_t step = w->step;

    while (!is_there(w, step)) {
        while (start_net(w) || start_lane(w))
            continue;
        const double next = time_to_next(w);
        if (isinf(next)) /* no run begins then, either: verify.c */
            return FAIL(STATUS_MISMATCH, "tasks of the step wait for each other");
        advance(w, next);
    }
    return STATUS_OK;
}

/* All of it ---------------------------------------------------------------------------------- */

struct walk_result walk_sum_up(const struct walk *w)
{
    struct walk_result result = { 0 };

    for (int i = 0; i < w->n_items; i++)
        result.compute += w->items[i].seconds;
    for (int t = 0; t < w->program->n_tasks; t++) {
        result.bytes += task_bytes(&w->config->works[t]) / w->program->topology.node_ranks;
        if (w->program->tasks[t].place == PLACE_LANE_SYNC)
            result.compute += w->adding[t];
    }
    for (int i = 0; i < w->n_nets; i++) {
        result.compute += w->adding[w->nets[i].task] * taken_by(w, &w->nets[i]);
        result.link += w->nets[i].transfer + w->nets[i].again;
    }
    /* A link that is always busy may have left transfers of these steps for later. */
    if (w->steps == WALK_STEPS)
        result.seconds =
            fmax((w->ended[WALK_STEPS - 1] - w->ended[WALK_STEPS - 3]) / 2, result.link);
    return result;
}

static void prepare(struct walk *w)
{
    const struct walk_config *config = w->config;
    const struct lower_topology *topology = &w->program->topology;
    const double busy = config->link->cpu * config->cluster->crowding;

    w->lanes = topology->lanes * topology->node_ranks;
    w->slow = config->crowding / (config->cluster->speed * config->team);
    w->lost = busy / (1 - config->link->cpu + busy);
    w->task = -1;
    for (int t = 0; t < w->program->n_tasks; t++) {
        w->adding[t] = adding_seconds(w, t);
        if (w->program->tasks[t].place == PLACE_NET)
            price_net(w, t);
    }
    begin_step(w);
}

enum status walk_open(struct walk *w, const struct walk_config *config, size_t items)
{
    const size_t n = (size_t)config->program->n_tasks + 1;

    *w = (struct walk){ .config = config, .program = config->program, .steps = WALK_STEPS };
    TRY(mem_alloc(items + 1, sizeof *w->items, &w->items));
    TRY(mem_alloc(n, sizeof *w->adding, &w->adding));
    TRY(mem_alloc(n, sizeof *w->done, &w->done));
    TRY(mem_alloc(n, sizeof *w->here, &w->here));
    TRY(mem_alloc(n, sizeof *w->nets, &w->nets));
    prepare(w);
    return STATUS_OK;
}

void walk_close(struct walk *w)
{
    mem_free(w->items);
    mem_free(w->adding);
    mem_free(w->done);
    mem_free(w->here);
    mem_free(w->nets);
}

enum status walk_run(const struct walk_config *config, struct walk_result *out)
{
    const struct lower_topology *topology = &config->program->topology;
    const int64_t lanes = (int64_t)topology->nodes * topology->node_ranks * topology->lanes;
    struct walk w;

    if (config->work->shards < lanes)
        return FAIL(STATUS_USAGE, "%lld shards for %lld lanes", (long long)config->work->shards,
                    (long long)lanes);
    enum status status = walk_open(&w, config, 4 * (size_t)config->program->n_tasks);
    if (status == STATUS_OK) {
        w.shards = (int)((config->work->shards + lanes - 1) / lanes);
        list_items(&w);
        w.goal = w.n_items;
    }
    while (status == STATUS_OK && w.step < w.steps)
        status = walk_go(&w);
    if (status == STATUS_OK)
        *out = walk_sum_up(&w);
    walk_close(&w);
    return status;
}
