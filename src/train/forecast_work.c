/* SPDX-License-Identifier: MIT */
/* forecast_work.c - what a step costs the lanes that do it: measured on this machine, or guessed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/room.h"
#include "exec/exec.h"
#include "exec/profile.h"
#include "graph/op.h"
#include "train/forecast_measure.h"
#include "train/planner.h"

static const double SECONDS = 1; /* of measuring */
static const double LONG =
    2; /* a step that takes so many seconds is measured in one form alone */

/* Does the executor make the layer for all shards at once (exec/columns.c)? It has no time of its
 * own then. */
static bool is_joint(const struct node *node, double seconds)
{
    return node->op == &op_linear && node->phase == PHASE_FORWARD && seconds <= 0;
}

static int count_joint(const struct graph *graph, const double *seconds)
{
    int count = 0;

    for (int n = 0; n < graph_node_count(graph); n++)
        count += is_joint(graph_node(graph, n), seconds[n]);
    return count;
}

/* It makes a gradient of what all shards have. */
static bool is_making(const struct node *node)
{
    return node->op == &op_factor_sum || node->op == &op_row_sum;
}

/* Bytes of a shard that a gradient is made of. */
static double made_of(const struct node *node)
{
    double bytes = 0;

    for (int i = 0; i < node->n_in; i++)
        bytes +=
            (double)shape_count(&node->in[i]->shape) * (double)dtype_size(node->in[i]->dtype);
    return bytes;
}

/* To the sums of rows and factors, by what these are. Each lane had one shard, and a part of all:
 * what it made is what one shard takes. Gives what is left: all of it, if there are none. */
static double spread_making(const struct graph *graph, double made, double *nodes)
{
    double all = 0;

    for (int n = 0; n < graph_node_count(graph); n++)
        all += is_making(graph_node(graph, n)) ? made_of(graph_node(graph, n)) : 0;
    for (int n = 0; n < graph_node_count(graph) && all > 0; n++) {
        if (is_making(graph_node(graph, n)))
            nodes[n] = made * made_of(graph_node(graph, n)) / all;
    }
    return all > 0 ? 0 : made;
}

/* What a shard takes: as a second one was seen to take it, else as all of a step but sums takes it.
 * What nodes have not been seen to take of that is made by all lanes together, or slows what they
 * do: beside others nodes take longer than their lower quartiles. Less than its nodes a shard does
 * not take: of long steps there are few to see. What is left of a step is for the meeting of lanes,
 * and less than nothing where steps overlap: *out_meeting. */
static void share_time(const struct graph *graph, const struct measured *measured,
                       double *nodes, double *out_meeting)
{
    const double timed = measured->step - measured->sums - measured->made - measured->rest;
    const double most = measured->step - measured->sums;
    const bool is_known = measured->shard > timed / 2 && measured->shard < measured->step;
    const int joint = count_joint(graph, measured->nodes);
    const double seen = (is_known ? measured->shard : most) - measured->made;
    const double shard = joint ? seen : fmax(seen, timed);
    const bool has_joint = joint && shard > timed;
    const double share = timed > 0 && !has_joint ? fmax(shard / timed, 0) : 1;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const bool is_one = has_joint && is_joint(graph_node(graph, n), measured->nodes[n]);
        nodes[n] = is_one ? (shard - timed) / joint : share * measured->nodes[n];
    }
    *out_meeting = most - measured->made - shard + spread_making(graph, measured->made, nodes);
}

/* What was measured on so many lanes, for any number of them: a lane reads the gradients of all and
 * moves its part of parameters and state. */
static enum status work_from(const struct planner *p, const struct graph *graph,
                             const struct measured *measured, int64_t shards, double *nodes,
                             struct cost_work *out)
{
    const int states = optim_states(&p->job->optim);
    const double lanes = measured->lanes, streams = 2 + 2 * states;
    double meeting, kept = 0;

    share_time(graph, measured, nodes, &meeting);
    TRY(cost_read(graph, nodes, shards, states, out));
    const double unit =
        out->dense > 0 ? lanes * measured->sums / (out->dense * (lanes + streams)) : 0;
    for (int l = 0; l < out->n_layers; l++)
        kept += out->layers[l].kept;
    out->meeting = meeting;
    out->add = unit;
    out->update = streams * unit;
    out->transient = fmax(measured->arena - kept, 0);
    return STATUS_OK;
}

static struct cost_rates rates_of(const struct planner *p)
{
    const struct machine *machine = &p->plan->machine;
    struct cost_rates rates = cost_usual_rates;

    if (machine->flops > 0) {
        rates.bytes *= machine->flops / rates.flops;
        rates.flops = machine->flops;
    }
    rates.bytes = machine->bytes > 0 ? machine->bytes : rates.bytes;
    return rates;
}

static bool guesses(const struct planner *p)
{
    return p->options->guess || p->plan->machine.flops > 0 || p->is_too_large;
}

/* Seconds of each node by itself, guessed or measured. */
static enum status time_nodes(const struct planner *p, const struct graph *graph, double *out)
{
    const struct cost_rates rates = rates_of(p);
    struct measured *measured;

    if (guesses(p)) {
        cost_guess(graph, &rates, out);
        return STATUS_OK;
    }
    TRY(measured_make(p->job, graph, (struct measure_config){ .threads = 1 }, &measured));
    memcpy(out, measured->nodes, (size_t)graph_node_count(graph) * sizeof *out);
    measured_free(measured, graph);
    return STATUS_OK;
}

/* Of forward and of backward; nodes at which ranks meet are left out. */
static enum status time_phases(const struct planner *p, const struct graph *graph,
                               double *forward, double *backward)
{
    double *seconds;

    TRY(mem_alloc((size_t)graph_node_count(graph) + 1, sizeof *seconds, &seconds));
    enum status status = time_nodes(p, graph, seconds);
    *forward = *backward = 0;
    for (int n = 0; status == STATUS_OK && n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        *(node->phase == PHASE_FORWARD ? forward : backward) += seconds[n];
    }
    mem_free(seconds);
    return status;
}

static enum status measure(struct planner *p, const struct graph *graph, int64_t shards,
                           struct measure_config how, double *nodes, struct cost_work *out)
{
    struct measured *measured;

    how.rows = p->job->settings.batch / shards;
    how.seconds = p->options->seconds > 0 ? p->options->seconds : SECONDS;
    TRY(measured_make(p->job, graph, how, &measured));
    enum status status = work_from(p, graph, measured, shards, nodes, out);
    p->step = p->plan->is_measured ? p->step : measured->step;
    measured_free(measured, graph);
    p->plan->is_measured = true;
    return status;
}

/* Lanes of so many threads that run side by side here, whatever they are parts of. */
static int lanes_here(const struct planner *p, int threads)
{
    const int room = job_cores() / threads > 1 ? job_cores() / threads : 1;
    const int64_t ranks = p->options->is_elsewhere ? 1 : p->plan->ranks;
    const int each = p->plan->threads / threads > 1 ? p->plan->threads / threads : 1;

    return ranks * each < room ? (int)(ranks * each) : room;
}

/* Lanes side by side, which are of one program or share nothing. */
static struct measure_config side_by_side(const struct planner *p, int threads, bool apart)
{
    const int lanes = lanes_here(p, threads);

    return (struct measure_config){ .lanes = apart ? 1 : lanes,
                                    .threads = threads,
                                    .copies = apart ? lanes : 1 };
}

/* What a lane has beside what is kept, by the plan that it would run; where there is none the guess
 * stays. */
static void plan_arena(const struct planner *p, const struct graph *graph,
                       struct planner_work *w)
{
    size_t arena;
    double kept = 0;

    if (p->job->settings.sync_batch_norm ||
        profile_arena(graph, p->job->settings.batch / w->shards, p->job->choices, &arena) !=
            STATUS_OK)
        return;
    for (int l = 0; l < w->work.n_layers; l++)
        kept += w->work.layers[l].kept;
    w->work.transient = fmax((double)arena - kept, 0);
}

static enum status guess_work(const struct planner *p, struct planner_work *w)
{
    const struct cost_rates rates = rates_of(p);

    const int states = optim_states(&p->job->optim);

    cost_guess(w->graph, &rates, w->nodes);
    cost_guess_updates(w->graph, &rates, w->shards, states, w->nodes);
    TRY(cost_read(w->graph, w->nodes, w->shards, states, &w->work));
    cost_guess_rest(&w->work, &rates);
    plan_arena(p, w->graph, w);
    return STATUS_OK;
}

/* Numbers of parameters that a rank has itself. */
static double own_params(const struct graph *graph)
{
    double count = 0;

    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        count += value->kind == VALUE_PARAM ? (double)shape_count(&value->shape) : 0;
    }
    return count;
}

/* The node of `graph` that does what `node` does; the search begins at `at`. -1: there is none. */
static int find_like(const struct graph *graph, const struct node *node, int at)
{
    const int count = graph_node_count(graph);

    for (int i = 0; i < count; i++) {
        const struct node *other = graph_node(graph, (at + i) % count);
        if (other->op == node->op && other->phase == node->phase &&
            strcmp(other->name, node->name) == 0)
            return (at + i) % count;
    }
    return -1;
}

void planner_time_like(const struct planner_work *timed, const struct graph *graph, double *out)
{
    double seconds = 0, guessed = 0;
    int at = 0;

    cost_guess(graph, &cost_usual_rates, out);
    for (int n = 0; n < graph_node_count(graph); n++) {
        const int like = find_like(timed->graph, graph_node(graph, n), at);
        if (like < 0) {
            out[n] = -out[n]; /* so far */
            continue;
        }
        guessed += out[n];
        out[n] = timed->nodes[like];
        seconds += out[n];
        at = like + 1;
    }
    for (int n = 0; n < graph_node_count(graph); n++)
        out[n] *= out[n] < 0 ? -(guessed > 0 ? seconds / guessed : 0) : 1;
}

/* Work of the same shards whose nodes take other times. */
static enum status work_like(const struct cost_work *like, struct planner_work *w)
{
    TRY(cost_read(w->graph, w->nodes, w->shards, like->n_states, &w->work));
    w->work.meeting = like->meeting;
    w->work.add = like->add;
    w->work.update = like->update;
    w->work.transient = like->transient;
    return STATUS_OK;
}

/* The first work in another form, as steps on machines elsewhere have it: nothing is timed again.
 */
static enum status adapt_work(const struct planner *p, struct planner_work *w)
{
    planner_time_like(&p->works[0], w->graph, w->nodes);
    return work_like(&p->works[0].work, w);
}

/* The first work in other shards, as if time and bytes were in proportion to samples. */
static enum status derive_work(const struct planner *p, struct planner_work *w)
{
    const struct cost_work *first = &p->works[0].work;
    const double share = (double)p->works[0].shards / (double)w->shards;
    struct cost_layer *layers;

    TRY(mem_alloc((size_t)first->n_layers, sizeof *layers, &layers));
    for (int l = 0; l < first->n_layers; l++) {
        struct cost_layer *layer = &layers[l];
        double *const sizes[] = { &layer->forward, &layer->backward, &layer->made, &layer->sums,
                                  &layer->kept,    &layer->crossing, &layer->out };
        *layer = first->layers[l];
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            *sizes[i] *= share;
    }
    w->work = *first;
    w->work.layers = layers;
    w->work.shards = w->shards;
    for (int n = 0; n < graph_node_count(w->graph); n++)
        w->nodes[n] = share * p->works[0].nodes[n];
    w->work.transient *= share;
    return STATUS_OK;
}

/* Bytes of a step that is measured, at least: a batch, each lane's activations, parameters,
 * gradients. */
static double measured_bytes(const struct planner *p, const struct graph *graph,
                             const struct planner_work *w)
{
    const int lanes = side_by_side(p, w->threads, w->apart).lanes;
    const int64_t rows = p->job->settings.batch / w->shards;
    const struct model_config *config = &p->job->model_config;
    const bool is_text =
        p->job->model->task != MODEL_IMAGES && p->job->model->task != MODEL_TABLE;
    const double sample = is_text ? (double)(config->length[0] + config->length[1])
                                  : (double)shape_count(&config->sample) + 1;
    size_t arena;

    if (p->job->settings.sync_batch_norm ||
        profile_arena(graph, rows, p->job->choices, &arena) != STATUS_OK)
        arena = 0;
    return (double)lanes * ((double)arena + 4 * sample * (double)rows) + 8 * own_params(graph);
}

/* A step for which there is no memory is guessed. */
static void look_for_room(struct planner *p, const struct graph *graph,
                          const struct planner_work *w)
{
    const double bytes = guesses(p) ? 0 : measured_bytes(p, graph, w), left = room_left();
    char text[2][32];

    if (bytes <= left)
        return;
    p->is_too_large = true;
    log_line(LOG_WARNING,
             "a step needs %s to be measured, %s are left: times are guessed by operations and "
             "bytes",
             planner_bytes(bytes, text[0]), planner_bytes(left, text[1]));
}

static enum status make_work(struct planner *p, struct planner_work *w)
{
    const struct planner_work *first = &p->works[0];

    TRY(mem_alloc((size_t)graph_node_count(w->graph) + 1, sizeof *w->nodes, &w->nodes));
    w->params = own_params(w->graph);
    look_for_room(p, w->graph, w);
    if (guesses(p))
        return guess_work(p, w);
    if (p->step > LONG && first->threads == w->threads && first->graph &&
        graph_node_count(first->graph) == graph_node_count(w->graph))
        return derive_work(p, w);
    if (p->options->is_elsewhere && p->n_works > 0 && first->shards == w->shards)
        return adapt_work(p, w);
    enum status status = measure(p, w->graph, w->shards, side_by_side(p, w->threads, w->apart),
                                 w->nodes, &w->work);
    if (status != STATUS_OK &&
        w->apart) /* so many programs may want more memory than there is */
        status = measure(p, w->graph, w->shards, side_by_side(p, w->threads, false), w->nodes,
                         &w->work);
    return status;
}

static void release_work(struct planner_work *w)
{
    cost_release(&w->work);
    mem_free(w->nodes);
    if (w->open == 1) /* else the graph is another's */
        graph_destroy(w->graph);
}

enum status planner_work(struct planner *p, int64_t shards, int threads, bool factors,
                         bool apart, struct planner_work **out)
{
    for (int i = 0; i < p->n_works; i++) {
        struct planner_work *w = &p->works[i];
        if (w->shards == shards && w->threads == threads && w->apart == apart && w->open == 1 &&
            (w->factors == factors || !w->has_factors)) {
            *out = w;
            return STATUS_OK;
        }
    }
    if (p->n_works == PLANNER_WORKS) { /* the nearest that there is */
        *out = &p->works[0];
        return STATUS_OK;
    }
    struct planner_work *w = &p->works[p->n_works];
    *w = (struct planner_work){
        .shards = shards, .threads = threads, .factors = factors, .apart = apart, .open = 1
    };
    TRY(job_make_graph(p->job, shards, factors, &w->graph));
    w->has_factors = !factors; /* without, they might be */
    for (int n = 0; n < graph_node_count(w->graph); n++) {
        p->looks_across |= graph_node(w->graph, n)->op->across_samples;
        w->has_factors |= graph_node(w->graph, n)->op == &op_factor_sum;
    }
    const enum status status = make_work(p, w);
    if (status != STATUS_OK) {
        release_work(w);
        return status;
    }
    p->n_works++;
    *out = w;
    return STATUS_OK;
}

/* How much longer each layer takes: forward in out[2 l], backward in out[2 l + 1]. */
static enum status compare_layers(const struct graph *graph, const double *before,
                                  const double *after, double *out)
{
    struct cost_work was, is;

    TRY(cost_read(graph, before, 1, 0, &was));
    const enum status status = cost_read(graph, after, 1, 0, &is);
    for (int l = 0; status == STATUS_OK && l < was.n_layers; l++) {
        const struct cost_layer *a = &was.layers[l], *b = &is.layers[l];
        out[2 * l] = a->forward > 0 ? fmax(b->forward / a->forward, 1) : 1;
        out[2 * l + 1] = a->backward > 0 ? fmax(b->backward / a->backward, 1) : 1;
    }
    cost_release(&was);
    if (status == STATUS_OK)
        cost_release(&is);
    return status;
}

/* The nodes of `closed`, each as much slower as its layer was seen to be. */
static enum status slow_nodes(const struct planner_work *closed, const double *before,
                              const double *after, double *nodes)
{
    const struct graph *graph = closed->graph;
    const int count = graph_node_count(graph);
    double *slower;
    int *layer_of;

    TRY(mem_alloc(2 * (size_t)count + 1, sizeof *slower, &slower));
    enum status status = mem_alloc((size_t)count + 1, sizeof *layer_of, &layer_of);
    if (status == STATUS_OK)
        status = cost_layers(graph, layer_of);
    if (status == STATUS_OK)
        status = compare_layers(graph, before, after, slower);
    for (int n = 0; status == STATUS_OK && n < count; n++) {
        const bool is_backward = graph_node(graph, n)->phase == PHASE_BACKWARD;
        nodes[n] =
            closed->nodes[n] * (layer_of[n] < 0 ? 1 : slower[2 * layer_of[n] + is_backward]);
    }
    mem_free(slower);
    mem_free(layer_of);
    return status;
}

/* Nodes with one shard a lane, then with all that are open. */
static enum status measure_open(const struct planner *p, const struct planner_work *closed,
                                struct planner_work *out)
{
    const struct graph *graph = closed->graph;
    struct measure_config how = side_by_side(p, closed->threads, closed->apart);
    struct measured *before, *after;

    how.rows = p->job->settings.batch / closed->shards;
    how.seconds = (p->options->seconds > 0 ? p->options->seconds : SECONDS) / 2;
    TRY(measured_make(p->job, graph, how, &before));
    how.open = out->open;
    enum status status = measured_make(p->job, graph, how, &after);
    if (status == STATUS_OK) {
        status = slow_nodes(closed, before->nodes, after->nodes, out->nodes);
        measured_free(after, graph);
    }
    measured_free(before, graph);
    return status == STATUS_OK ? work_like(&closed->work, out) : status;
}

enum status planner_open_work(struct planner *p, struct planner_work *closed, int64_t open,
                              struct planner_work **out)
{
    *out = closed;
    for (int i = 0; open > 1 && i < p->n_works; i++) {
        const struct planner_work *w = &p->works[i];
        if (w->shards == closed->shards && w->threads == closed->threads && w->open == open &&
            w->factors == closed->factors && w->apart == closed->apart)
            *out = &p->works[i];
    }
    if (*out != closed || open < 2 || guesses(p) || p->step > LONG ||
        p->n_works == PLANNER_WORKS)
        return STATUS_OK;
    struct planner_work *w = &p->works[p->n_works];
    *w = *closed;
    w->open = open;
    TRY(mem_alloc((size_t)graph_node_count(w->graph) + 1, sizeof *w->nodes, &w->nodes));
    if (measure_open(p, closed, w) != STATUS_OK) { /* then as if they were closed */
        mem_free(w->nodes);
        return STATUS_OK;
    }
    p->n_works++;
    *out = w;
    return STATUS_OK;
}

enum status planner_first_work(struct planner *p)
{
    const struct settings *s = &p->job->settings;
    const int threads = p->plan->threads / p->lanes > 1 ? p->plan->threads / p->lanes : 1;
    struct planner_work *first;
    struct graph *graph;
    double *nodes;

    TRY(planner_work(p, s->shards, threads, job_has_factors(p->job), false, &first));
    if (!p->plan->is_measured || p->step > LONG || lanes_here(p, threads) <= p->lanes)
        return STATUS_OK;
    TRY(job_make_graph(p->job, s->shards, first->factors, &graph));
    enum status status = mem_alloc((size_t)graph_node_count(graph) + 1, sizeof *nodes, &nodes);
    if (status == STATUS_OK) {
        status = measure(p, graph, s->shards,
                         (struct measure_config){ .lanes = p->lanes, .threads = threads },
                         nodes, &p->alone);
        mem_free(nodes);
    }
    graph_destroy(graph);
    return status;
}

void planner_release(struct planner *p)
{
    for (int i = 0; i < p->n_works; i++)
        release_work(&p->works[i]);
    planner_release_programs(p);
    planner_release_grids(p);
    cost_release(&p->alone);
}

/* Times of what is whole, once. */
static enum status time_whole(const struct planner *p, struct planner_work *whole)
{
    struct graph *graph;

    if (whole->forward > 0)
        return STATUS_OK;
    TRY(job_make_graph(p->job, whole->shards, whole->factors, &graph));
    enum status status = time_phases(p, graph, &whole->forward, &whole->backward);
    graph_destroy(graph);
    return status;
}

static enum status compare_shared(const struct planner *p, struct planner_work *whole,
                                  const struct graph *graph, struct cost_sharing *out)
{
    struct cost_sharing sharing;
    double forward, backward;

    TRY(time_whole(p, whole));
    TRY(time_phases(p, graph, &forward, &backward));
    sharing.forward = forward / whole->forward;
    sharing.backward = backward / whole->backward;
    sharing.params = own_params(graph) / whole->params;
    *out = sharing;
    return STATUS_OK;
}

/* A job of ranks that share layers and nothing else. */
static enum status try_sharing(const struct planner *p, int tp, struct planner_work *whole,
                               struct cost_sharing *out)
{
    struct settings settings = p->job->settings;
    struct job *job;

    snprintf(settings.strategy, sizeof settings.strategy, "tensor");
    *settings.split = *settings.sync = *settings.meet = '\0';
    settings.ranks = tp;
    settings.threads = 1;
    settings.accumulate = 0;
    settings.shards = whole->shards;
    TRY(job_vary(p->job, &settings, &job));
    enum status status = compare_shared(p, whole, job_graph(job), out);
    job_destroy(job);
    return status;
}

enum status planner_share(struct planner *p, int tp, struct planner_work *whole,
                          struct cost_sharing *out)
{
    struct planner_shared *shared = p->shared;

    while (shared < p->shared + p->n_shared &&
           !(shared->tp == tp && shared->shards == whole->shards))
        shared++;
    if (shared == p->shared + p->n_shared) {
        shared = &p->shared[p->n_shared < PLANNER_SHARED ? p->n_shared++ : PLANNER_SHARED - 1];
        *shared = (struct planner_shared){ .tp = tp, .shards = whole->shards };
        shared->status = try_sharing(p, tp, whole, &shared->sharing);
        if (shared->status != STATUS_OK)
            snprintf(shared->why, sizeof shared->why, "%s", status_message());
    }
    if (shared->status != STATUS_OK)
        return FAIL(shared->status, "%s", shared->why);
    *out = shared->sharing;
    return STATUS_OK;
}
