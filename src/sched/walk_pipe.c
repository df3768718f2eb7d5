/* SPDX-License-Identifier: MIT */
/* walk_pipe.c - walks the programs of a pipeline's stages together.
 *
 * A stage has a walk of its own (walk.c) whose lane does the actions of its schedule. With 2 stages
 * and 2 shards, 1F1B, and s, r for sends and receives:
 *
 *   stage 0   F0 s F1 s ...... r B0 .. r B1 sums
 *   stage 1   ....... r F0 B0 s r F1 B1 s sums
 *
 * Orders are fixed, so nothing has to be searched: a stage whose next action has all that it
 * receives does it. Where stages share cores, it is the one that can begin first.
 *
 * A send is a transfer on its stage's link, one after the other, then under way for the link's
 * latency. Copying takes a core's time, half at the sender and half at the receiver.
 */
#include <math.h>

#include "base/mem.h"
#include "sched/walking.h"

/* Bytes between a pair of nodes, for every shard or once a step. */
struct message {
    int from, to; /* stages; -1: none */
    const char *name;
    double bytes;
    double *there; /* by shard: when it can be received; NaN: it was not sent yet */
};

/* Items that a stage runs together: an action of its schedule, or what stands around them. */
struct action {
    int first, end;
    int64_t shard;
    int piece; /* -1: no action of the schedule */
    bool is_backward;
};

struct stage {
    struct walk walk;
    int *slots; /* by item: the message that it sends or receives; -1: none */
    struct action *actions;
    int n_actions, next;
    double link;  /* its link is free then */
    double busy;  /* seconds of its actions */
    double acted; /* its last action of the first step has ended */
};

struct pipe_walk {
    const struct walk_pipe_config *config;
    struct stage *stages;
    struct message *messages;
    int n_messages;
    double *cores; /* [at_once] when each is free */
    double begin;  /* of the step */
    int step;
    struct walk_timeline *timeline;
};

static const struct node *node_of(const struct stage *stage, int t)
{
    return graph_node(stage->walk.config->graph, stage->walk.program->tasks[t].first_node);
}

static bool moves(const struct task *task)
{
    return task->kind == TASK_SEND || task->kind == TASK_RECEIVE;
}

/* Messages ----------------------------------------------------------------------------------- */

/* A shard of one copy. */
static double message_bytes(const struct stage *stage, int t)
{
    const struct walk *w = &stage->walk;
    const double shards = w->program->tasks[t].is_once
                              ? w->lanes
                              : (double)w->config->work->shards / w->program->topology.nodes;

    return w->config->works[t].sent / shards;
}

static enum status add_end(struct pipe_walk *p, int s, int t)
{
    const struct stage *stage = &p->stages[s];
    const struct node *node = node_of(stage, t);
    struct message *message = &p->messages[node->attrs.slot];
    const bool sends = stage->walk.program->tasks[t].kind == TASK_SEND;
    int *end = sends ? &message->from : &message->to;

    if (*end >= 0)
        return FAIL(STATUS_MISMATCH, "%s of stage %d: stage %d does that, too", node->name, s,
                    *end);
    *end = s;
    message->name = node->name;
    if (sends)
        message->bytes = message_bytes(stage, t);
    return STATUS_OK;
}

static enum status check_messages(const struct pipe_walk *p)
{
    for (int i = 0; i < p->n_messages; i++) {
        const struct message *m = &p->messages[i];
        if ((m->from < 0) != (m->to < 0))
            return FAIL(STATUS_MISMATCH, "%s of stage %d: no stage %s it", m->name,
                        m->from < 0 ? m->to : m->from, m->from < 0 ? "sends" : "receives");
    }
    return STATUS_OK;
}

static int count_messages(const struct pipe_walk *p)
{
    int count = 0;

    for (int s = 0; s < p->config->pipe.stages; s++) {
        const struct stage *stage = &p->stages[s];
        for (int t = 0; t < stage->walk.program->n_tasks; t++) {
            if (moves(&stage->walk.program->tasks[t]) && node_of(stage, t)->attrs.slot >= count)
                count = node_of(stage, t)->attrs.slot + 1;
        }
    }
    return count;
}

static enum status find_messages(struct pipe_walk *p)
{
    const size_t shards = (size_t)p->config->pipe.shards;
    const int count = count_messages(p);

    TRY(mem_alloc((size_t)count + 1, sizeof *p->messages, &p->messages));
    p->n_messages = count;
    for (int i = 0; i < count; i++)
        p->messages[i].from = p->messages[i].to = -1;
    for (int i = 0; i < count; i++)
        TRY(mem_alloc(shards, sizeof(double), &p->messages[i].there));
    for (int s = 0; s < p->config->pipe.stages; s++) {
        const struct program *program = p->stages[s].walk.program;
        for (int t = 0; t < program->n_tasks; t++) {
            if (moves(&program->tasks[t]))
                TRY(add_end(p, s, t));
        }
    }
    return check_messages(p);
}

static void forget_messages(struct pipe_walk *p)
{
    for (int i = 0; i < p->n_messages; i++) {
        for (int64_t v = 0; v < p->config->pipe.shards; v++)
            p->messages[i].there[v] = NAN;
    }
}

/* Actions ------------------------------------------------------------------------------------ */

static struct action *begin_action(struct stage *stage, int64_t shard)
{
    struct action *action = &stage->actions[stage->n_actions++];

    *action = (struct action){ stage->walk.n_items, stage->walk.n_items, shard, -1, false };
    return action;
}

static void add_item(struct stage *stage, int t, int slot, double seconds, bool is_last)
{
    stage->slots[stage->walk.n_items] = slot;
    walk_add_item(&stage->walk, t, seconds, is_last);
    stage->actions[stage->n_actions - 1].end = stage->walk.n_items;
}

/* Seconds that a core copies at this end. The lane waits for the first of several messages alone. */
static double copying(const struct pipe_walk *p, const struct stage *stage, int t)
{
    const struct cost_link *link = p->config->link;
    const struct action *action = &stage->actions[stage->n_actions - 1];
    const enum task_kind kind = stage->walk.program->tasks[t].kind;
    bool is_first = true;

    for (int i = action->first; i < action->end; i++)
        is_first &= stage->walk.program->tasks[stage->walk.items[i].task].kind != kind;
    return link->cpu / 2 *
           ((is_first ? link->latency : link->message) +
            p->messages[node_of(stage, t)->attrs.slot].bytes / link->bandwidth);
}

/* A shard between the first and the last neither waits for sums nor ends a task, so what stands
 * between its messages is one item. */
static void add_task(const struct pipe_walk *p, struct stage *stage, int t)
{
    const struct action *action = &stage->actions[stage->n_actions - 1];
    const int64_t last = p->config->pipe.shards - 1;
    struct walk *w = &stage->walk;
    const struct task *task = &w->program->tasks[t];

    if (moves(task)) {
        add_item(stage, t, node_of(stage, t)->attrs.slot, copying(p, stage, t),
                 action->shard == last || task->is_once);
        return;
    }
    const double seconds = walk_shard_seconds(w, t);
    if (action->end > action->first && stage->slots[action->end - 1] < 0 && action->shard > 0 &&
        action->shard < last)
        w->items[action->end - 1].seconds += seconds;
    else
        add_item(stage, t, -1, seconds, action->shard == last || task->is_once);
}

/* All that is sent once a step goes before what is received. */
static void list_once(const struct pipe_walk *p, struct stage *stage)
{
    const struct program *program = stage->walk.program;

    for (int t = 0; t < program->once_end; t++) {
        const struct task *task = &program->tasks[t];
        if (task->place != PLACE_LANE)
            continue;
        if (stage->n_actions == 0 ||
            (task->kind == TASK_RECEIVE && stage->slots[stage->walk.n_items - 1] >= 0 &&
             program->tasks[stage->walk.items[stage->walk.n_items - 1].task].kind == TASK_SEND))
            begin_action(stage, 0);
        add_task(p, stage, t);
    }
}

static bool is_run(const struct task *task)
{
    return task->place == PLACE_LANE && !task->is_on_demand;
}

static void list_action(const struct pipe_walk *p, struct stage *stage, int s,
                        const struct pipe_action *a)
{
    const struct program *program = stage->walk.program;
    const int chunks = p->config->pipe.chunks;
    const int segment = a->is_backward ? 2 * chunks - 1 - a->chunk : a->chunk;
    struct action *action = begin_action(stage, a->shard);

    action->piece = a->chunk * p->config->pipe.stages + s;
    action->is_backward = a->is_backward;
    for (int t = program->segment[segment]; t < program->segment[segment + 1]; t++) {
        if (is_run(&program->tasks[t]) && program->tasks[t].kind != TASK_ACCUMULATE)
            add_task(p, stage, t);
    }
    for (int i = action->first; i < action->end; i++)
        stage->busy += stage->walk.items[i].seconds;
}

/* The last shard's sums wait until the stage has nothing else to do. */
static void list_sums(struct stage *stage)
{
    struct walk *w = &stage->walk;

    begin_action(stage, 0);
    for (int t = w->program->once_end; t < w->program->n_tasks; t++) {
        if (is_run(&w->program->tasks[t]) && w->program->tasks[t].kind == TASK_ACCUMULATE)
            add_item(stage, t, -1, walk_release_seconds(w, t), true);
    }
    if (stage->actions[stage->n_actions - 1].end == stage->actions[stage->n_actions - 1].first)
        stage->n_actions--;
    w->items[w->n_items - 1].seconds += walk_freed_seconds(w);
}

static enum status list_actions(const struct pipe_walk *p, struct stage *stage, int s)
{
    const struct pipe_config *pipe = &p->config->pipe;
    const int64_t count = pipe_count(pipe);
    struct pipe_action *actions;

    TRY(mem_alloc((size_t)count + 3, sizeof *stage->actions, &stage->actions));
    TRY(mem_alloc((size_t)count, sizeof *actions, &actions));
    pipe_schedule(pipe, s, actions);
    list_once(p, stage);
    for (int64_t i = 0; i < count; i++)
        list_action(p, stage, s, &actions[i]);
    list_sums(stage);
    mem_free(actions);
    return STATUS_OK;
}

/* Going on ----------------------------------------------------------------------------------- */

/* The core that is free first; NULL: there are enough. */
static double *first_core(const struct pipe_walk *p)
{
    double *first = p->cores;

    for (int i = 1; i < p->config->at_once; i++)
        first = p->cores[i] < *first ? &p->cores[i] : first;
    return p->config->at_once ? first : NULL;
}

/* When what an action receives is there; NaN: not yet known. */
static double ready_at(const struct pipe_walk *p, const struct stage *stage,
                       const struct action *action)
{
    const struct program *program = stage->walk.program;
    double ready = p->begin;

    for (int i = action->first; i < action->end; i++) {
        if (program->tasks[stage->walk.items[i].task].kind != TASK_RECEIVE)
            break;
        const double there = p->messages[stage->slots[i]].there[action->shard];
        if (isnan(there))
            return NAN;
        ready = fmax(ready, there);
    }
    return ready;
}

/* When the stage's next action can begin; NaN: not yet, or it has done all. */
static double can_begin(const struct pipe_walk *p, const struct stage *stage)
{
    const double *core = first_core(p);

    if (stage->next == stage->n_actions)
        return NAN;
    const double ready = ready_at(p, stage, &stage->actions[stage->next]);
    return isnan(ready) ? ready : fmax(fmax(ready, stage->walk.now), core ? *core : 0);
}

static void send(const struct pipe_walk *p, struct stage *stage, int slot, int64_t shard)
{
    const struct cost_link *link = p->config->link;
    const struct message *message = &p->messages[slot];
    const double rest = 1 - link->cpu;

    stage->link = fmax(stage->link, stage->walk.now) + rest * message->bytes / link->bandwidth;
    message->there[shard] = stage->link + rest * link->latency;
}

static void note(const struct pipe_walk *p, struct walk_event event)
{
    if (p->timeline && p->step == 0 && event.end > event.begin)
        p->timeline->events[p->timeline->n_events++] = event;
}

static void note_action(const struct pipe_walk *p, struct stage *stage,
                        const struct action *action, double begin)
{
    const double end = stage->walk.now;
    const int s = (int)(stage - p->stages);

    if (action->piece >= 0) {
        stage->acted = p->step == 0 ? end : stage->acted;
        note(p, (struct walk_event){ begin, end, action->shard, s, action->piece,
                                     action->is_backward });
    } else if (stage->next == stage->n_actions) {
        note(p, (struct walk_event){ begin, end, WALK_UPDATE, s, s, true });
    }
}

static enum status act(struct pipe_walk *p, struct stage *stage, double begin)
{
    const struct action *action = &stage->actions[stage->next++];
    struct walk *w = &stage->walk;
    double *core = first_core(p);

    w->hold = begin;
    for (int i = action->first; i < action->end; i++) {
        const bool sends = w->program->tasks[w->items[i].task].kind == TASK_SEND;
        if (!sends && i + 1 < action->end)
            continue;
        w->goal = i + 1;
        TRY(walk_go(w));
        if (sends)
            send(p, stage, stage->slots[i], action->shard);
    }
    if (core)
        *core = w->now;
    note_action(p, stage, action, begin);
    return STATUS_OK;
}

/* The stage whose next action can begin first; NULL: none can. */
static struct stage *first_stage(const struct pipe_walk *p, double *begin)
{
    struct stage *first = NULL;

    for (int s = 0; s < p->config->pipe.stages; s++) {
        const double when = can_begin(p, &p->stages[s]);
        if (isnan(when) || (first && when >= *begin))
            continue;
        first = &p->stages[s];
        *begin = when;
    }
    return first;
}

/* Every stage does what it can; false: nothing. */
static enum status act_all(struct pipe_walk *p, bool *any)
{
    *any = false;
    for (int s = 0; s < p->config->pipe.stages; s++) {
        for (double when; !isnan(when = can_begin(p, &p->stages[s])); *any = true)
            TRY(act(p, &p->stages[s], when));
    }
    return STATUS_OK;
}

static enum status act_in_turn(struct pipe_walk *p, bool *any)
{
    double begin;
    struct stage *stage = first_stage(p, &begin);

    *any = stage != NULL;
    return stage ? act(p, stage, begin) : STATUS_OK;
}

/* Stages that have not done all wait for each other. */
static enum status check_done(const struct pipe_walk *p)
{
    for (int s = 0; s < p->config->pipe.stages; s++) {
        const struct stage *stage = &p->stages[s];
        const struct action *action = &stage->actions[stage->next];
        if (stage->next < stage->n_actions)
            return FAIL(STATUS_MISMATCH,
                        "a deadlock: stage %d waits in %s of shard %lld for %s", s,
                        action->is_backward ? "backward" : "forward", (long long)action->shard,
                        p->messages[stage->slots[action->first]].name);
    }
    return STATUS_OK;
}

static enum status walk_step(struct pipe_walk *p)
{
    double ended = 0;

    forget_messages(p);
    for (int s = 0; s < p->config->pipe.stages; s++)
        p->stages[s].next = 0;
    for (bool any = true; any;)
        TRY(p->config->at_once ? act_in_turn(p, &any) : act_all(p, &any));
    TRY(check_done(p));
    for (int s = 0; s < p->config->pipe.stages; s++)
        ended = fmax(ended, p->stages[s].walk.now);
    p->begin = ended;
    return STATUS_OK;
}

/* All of it ---------------------------------------------------------------------------------- */

static void note_sums(const struct pipe_walk *p)
{
    for (int s = 0; s < p->config->pipe.stages; s++) {
        const struct stage *stage = &p->stages[s];
        if (stage->walk.n_nets > 0)
            note(p,
                 (struct walk_event){ stage->acted, stage->walk.summed, WALK_SUM, s, s, true });
    }
}

static void sum_up(struct pipe_walk *p, double seconds, struct walk_pipe_result *out)
{
    const int stages = p->config->pipe.stages;
    double busy = 0, acted = 0;

    *out = (struct walk_pipe_result){ .seconds = seconds };
    for (int s = 0; s < stages; s++) {
        const struct stage *stage = &p->stages[s];
        const struct walk_result own = walk_sum_up(&stage->walk);
        out->seconds = fmax(out->seconds, own.link);
        out->bytes = fmax(out->bytes, own.bytes);
        out->compute = fmax(out->compute, own.compute);
        busy += stage->busy;
        acted = fmax(acted, stage->acted);
    }
    out->bubble = acted > 0 ? fmax(1 - busy / stages / acted, 0) : 0;
    p->step = 0;
    note_sums(p);
    if (p->timeline)
        p->timeline->seconds = out->seconds;
}

static enum status walk_steps(struct pipe_walk *p, struct walk_pipe_result *out)
{
    int steps = 1; /* without transfers beside the lanes all are like the first */
    double ended[WALK_STEPS];

    for (int s = 0; s < p->config->pipe.stages; s++)
        steps = p->stages[s].walk.n_nets > 0 ? WALK_STEPS : steps;
    for (p->step = 0; p->step < steps; p->step++) {
        TRY(walk_step(p));
        ended[p->step] = p->begin;
    }
    sum_up(p, steps == 1 ? ended[0] : (ended[WALK_STEPS - 1] - ended[WALK_STEPS - 3]) / 2, out);
    return STATUS_OK;
}

/* Room for each action's tasks, and for those around them. */
static size_t count_items(const struct pipe_config *pipe, const struct program *program)
{
    const int tasks =
        program->segment[program->n_segments] - program->segment[0] + program->once_end;

    return (size_t)(pipe->shards * tasks + program->n_tasks);
}

static enum status open_stages(struct pipe_walk *p)
{
    const struct walk_pipe_config *config = p->config;
    const size_t stages = (size_t)config->pipe.stages;

    TRY(mem_alloc(stages, sizeof *p->stages, &p->stages));
    TRY(mem_alloc((size_t)config->at_once + 1, sizeof *p->cores, &p->cores));
    for (size_t s = 0; s < stages; s++) {
        struct stage *stage = &p->stages[s];
        const size_t items = count_items(&config->pipe, config->stages[s].program);
        TRY(walk_open(&stage->walk, &config->stages[s], items));
        TRY(mem_alloc(items + 1, sizeof *stage->slots, &stage->slots));
    }
    TRY(find_messages(p));
    for (size_t s = 0; s < stages; s++)
        TRY(list_actions(p, &p->stages[s], (int)s));
    if (!p->timeline)
        return STATUS_OK;
    const size_t events = stages * ((size_t)pipe_count(&config->pipe) + 2);
    return mem_alloc(events, sizeof *p->timeline->events, &p->timeline->events);
}

static void close_stages(struct pipe_walk *p)
{
    for (int s = 0; p->stages && s < p->config->pipe.stages; s++) {
        walk_close(&p->stages[s].walk);
        mem_free(p->stages[s].slots);
        mem_free(p->stages[s].actions);
    }
    for (int i = 0; i < p->n_messages; i++)
        mem_free(p->messages[i].there);
    mem_free(p->messages);
    mem_free(p->stages);
    mem_free(p->cores);
}

enum status walk_pipe(const struct walk_pipe_config *config, struct walk_pipe_result *out,
                      struct walk_timeline *timeline)
{
    struct pipe_walk p = { .config = config, .timeline = timeline };

    if (timeline)
        *timeline = (struct walk_timeline){ 0 };
    TRY(pipe_check(&config->pipe));
    enum status status = open_stages(&p);
    if (status == STATUS_OK)
        status = walk_steps(&p, out);
    close_stages(&p);
    if (status != STATUS_OK && timeline)
        walk_timeline_release(timeline);
    return status;
}

void walk_timeline_release(struct walk_timeline *timeline)
{
    mem_free(timeline->events);
    *timeline = (struct walk_timeline){ 0 };
}
