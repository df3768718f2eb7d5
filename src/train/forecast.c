/* SPDX-License-Identifier: MIT */
/* forecast.c - lists the ways to distribute a job, has them predicted, and picks one. */
#include "train/forecast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "exec/exec.h"
#include "exec/profile.h"
#include "train/forecast_measure.h"
#include "train/job.h"
#include "transport/launch.h"

enum { MOST_ROWS = 512, MOST_POINTS = 32 };
static const double SECONDS = 1; /* of measuring */
static const double SAME = 0.03; /* what differs by less is the same */
static const double TEAM = 0.8;  /* that each further thread adds to a shard's speed */

/* What a plan is made from. */
struct planner {
    const struct job *job;
    const struct forecast_options *options;
    struct graph *graph; /* of a step on one rank */
    struct cost_work work;
    struct cost_work alone; /* the same with nothing beside it; no layers: as `work` */
    int lanes;              /* of a data-parallel rank */
    struct forecast *plan;
};

/* Work ------------------------------------------------------------------------------------ */

/* What was measured on so many lanes, for any number of them: a lane reads the gradients of all and moves its
 * part of parameters and state. */
static enum status work_from(const struct planner *p, const struct measured *measured,
                             struct cost_work *out)
{
    const int states = optim_states(&p->job->optim);
    const double lanes = measured->lanes, streams = 2 + 2 * states;

    TRY(cost_read(p->graph, measured->nodes, p->plan->shards, states, out));
    const double unit = lanes * measured->sums / (cost_params(out) * (lanes + streams));
    double kept = 0;
    for (int l = 0; l < out->n_layers; l++)
        kept += out->layers[l].kept;
    out->add = unit;
    out->update = streams * unit;
    /* Nodes that took longer while they were timed one by one than steps say are shorter by as much. */
    const double timed = measured->step - measured->sums - measured->rest;
    const double share = timed > 0 ? fmin(1 + measured->rest / timed, 1) : 1;
    for (int l = 0; l < out->n_layers; l++) {
        out->layers[l].forward *= fmax(share, 0);
        out->layers[l].backward *= fmax(share, 0);
    }
    out->other = fmax(measured->rest, 0);
    out->transient = fmax(measured->arena - kept, 0);
    return STATUS_OK;
}

static enum status guess_work(struct planner *p)
{
    const struct machine *machine = &p->plan->machine;
    const struct cost_rates rates = {
        .flops = machine->flops > 0 ? machine->flops : cost_usual_rates.flops,
        .bytes = machine->bytes > 0 ? machine->bytes
                 : machine->flops > 0
                     ? machine->flops * cost_usual_rates.bytes / cost_usual_rates.flops
                     : cost_usual_rates.bytes,
    };
    double *seconds;

    TRY(mem_alloc((size_t)graph_node_count(p->graph) + 1, sizeof *seconds, &seconds));
    cost_guess(p->graph, &rates, seconds);
    enum status status =
        cost_read(p->graph, seconds, p->plan->shards, optim_states(&p->job->optim), &p->work);
    mem_free(seconds);
    if (status == STATUS_OK)
        cost_guess_rest(&p->work, &rates);
    return status;
}

static enum status measure_on(const struct planner *p, int lanes, int threads,
                              struct cost_work *out)
{
    const double seconds = p->options->seconds > 0 ? p->options->seconds : SECONDS;
    const int64_t rows = p->job->settings.batch / p->job->settings.shards;
    struct measured *measured;

    TRY(measured_make(p->job, p->graph, rows, lanes, threads, seconds, &measured));
    enum status status = work_from(p, measured, out);
    measured_free(measured, p->graph);
    return status;
}

/* As many lanes side by side as the job has, or as there are cores for. */
static enum status measure_work(struct planner *p)
{
    const int threads = p->plan->threads / p->lanes > 1 ? p->plan->threads / p->lanes : 1;
    const int room = job_cores() / threads > 1 ? job_cores() / threads : 1;
    const int wanted = p->options->is_elsewhere ? p->lanes : p->plan->ranks * p->lanes;
    const int lanes = wanted < room ? wanted : room;

    TRY(measure_on(p, lanes, threads, &p->work));
    p->plan->is_measured = true;
    if (lanes > p->lanes)
        TRY(measure_on(p, p->lanes, threads, &p->alone));
    return STATUS_OK;
}

static enum status make_work(struct planner *p)
{
    const struct strategy *single = strategy_find("single");
    const bool guesses = p->options->guess || p->plan->machine.flops > 0;

    TRY(job_make_graph(p->job, single->passes, &p->graph));
    if (guesses)
        return guess_work(p);
    return measure_work(p);
}

/* Machines -------------------------------------------------------------------------------- */

/* This machine, or several like it. */
static enum status describe_here(struct planner *p)
{
    const struct settings *s = &p->job->settings;
    const int ranks = p->plan->ranks, nodes = p->options->nodes > 0 ? p->options->nodes : 1;
    const double threads = (double)ranks / nodes * p->plan->threads;
    struct cost_cluster *c = &p->plan->machine.cluster;

    if (ranks % nodes)
        return FAIL(STATUS_USAGE, "--nodes %d: %d ranks cannot be shared out evenly", nodes,
                    ranks);
    *c = (struct cost_cluster){
        .nodes = s->flat ? ranks : nodes,
        .ranks = s->flat ? 1 : ranks / nodes,
        .shares = !s->flat,
        .crowding = fmax(threads / job_cores(), 1),
        .speed = 1,
        .memory = machine_memory(s->flat ? ranks : 1, (double)s->memory),
        .within = machine_usual_network,
        .between = machine_usual_network,
    };
    if (p->options->guess || ranks / nodes < 2)
        return STATUS_OK;
    TRY(machine_probe(ranks / nodes, &c->within));
    if (nodes == 1)
        c->between = c->within;
    return STATUS_OK;
}

/* The ranks of a job on the machines of a file. */
static enum status describe_there(struct planner *p)
{
    const struct machine *machine = p->options->machine;
    struct cost_cluster *c = &p->plan->machine.cluster;

    p->plan->machine = *machine;
    if (p->options->is_elsewhere)
        return STATUS_OK;
    if (p->plan->ranks > c->nodes * c->ranks)
        return FAIL(STATUS_USAGE, "-n %d: the file has %d nodes of %d ranks", p->plan->ranks,
                    c->nodes, c->ranks);
    c->ranks = p->plan->ranks < c->ranks ? p->plan->ranks : c->ranks;
    if (p->plan->ranks % c->ranks)
        return FAIL(STATUS_USAGE, "-n %d cannot be shared out evenly among nodes of %d ranks",
                    p->plan->ranks, c->ranks);
    c->nodes = p->plan->ranks / c->ranks;
    return STATUS_OK;
}

/* Rows ------------------------------------------------------------------------------------ */

static struct forecast_row *add_row(struct forecast *plan, const char *strategy)
{
    struct forecast_row *row = &plan->rows[plan->n_rows];

    BUG_ON(plan->n_rows == MOST_ROWS);
    plan->n_rows++;
    *row = (struct forecast_row){
        .choice = { .dp = plan->ranks,
                    .tp = 1,
                    .pp = 1,
                    .interval = 1,
                    .lanes = 1,
                    .team = 1,
                    .chunks = 1 },
        .is_legal = true,
        .runs = true,
        .is_exact = true,
        .fits = true,
    };
    snprintf(row->strategy, sizeof row->strategy, "%s", strategy);
    return row;
}

static void refuse(struct forecast_row *row, bool *which, const char *why)
{
    *which = false;
    if (!*row->why)
        snprintf(row->why, sizeof row->why, "%s", why);
}

static bool is_grid(const struct strategy *strategy)
{
    return strcmp(strategy->name, "pipeline") == 0 || strcmp(strategy->name, "tensor") == 0 ||
           strcmp(strategy->name, "hybrid") == 0;
}

/* A strategy whose ranks all have the whole model. */
static void add_data_parallel(struct planner *p, const struct strategy *strategy, int zero)
{
    struct forecast *plan = p->plan;
    struct forecast_row *row = add_row(plan, strategy->name);
    const bool apart = plan->machine.cluster.nodes > 1;
    struct axes axes;

    row->choice.lanes = p->lanes;
    if (zero > 0)
        snprintf(row->split, sizeof row->split, "dp=%d,zero=%d", plan->ranks, zero);
    if (strategy_check(strategy, plan->ranks, NULL, NULL, NULL, &axes) != STATUS_OK) {
        refuse(row, &row->is_legal, status_message());
        return;
    }
    row->choice.zero = zero;
    row->choice.servers = axes.servers;
    row->choice.waits = axes.sync == SYNC_STEP;
    row->choice.interval = axes.interval > 1 ? axes.interval : 1;
    if (apart && !strategy->many_nodes && !p->job->settings.flat)
        refuse(row, &row->is_legal, "for ranks of one machine");
    row->is_exact = axes.sync == SYNC_STEP;
    if (!row->is_exact)
        refuse(row, &row->is_exact, "changes results: workers are not in step");
}

static void add_grid(struct planner *p, const char *strategy, struct cost_choice choice)
{
    struct forecast_row *row = add_row(p->plan, strategy);
    const double threads = p->plan->threads;

    row->choice = choice;
    row->choice.team = p->options->is_elsewhere ? 1 : 1 + TEAM * (threads - 1);
    if (choice.pp > 1 && choice.chunks > 1)
        snprintf(row->pipeline, sizeof row->pipeline, "%s:%d", pipe_kind_names[choice.pipeline],
                 choice.chunks);
    else if (choice.pp > 1)
        snprintf(row->pipeline, sizeof row->pipeline, "%s", pipe_kind_names[choice.pipeline]);
    int at = 0;
    const struct {
        const char *name;
        int value;
    } axes[] = { { "dp", choice.dp }, { "tp", choice.tp }, { "pp", choice.pp } };
    for (int i = 0; i < 3; i++) {
        if (axes[i].value > 1)
            at += snprintf(row->split + at, sizeof row->split - (size_t)at, "%s%s=%d",
                           at ? "," : "", axes[i].name, axes[i].value);
    }
}

static struct cost_choice grid_of(int dp, int tp, int pp, enum pipe_kind kind)
{
    return (struct cost_choice){ .dp = dp,
                                 .tp = tp,
                                 .pp = pp,
                                 .interval = 1,
                                 .lanes = 1,
                                 .team = 1,
                                 .pipeline = kind,
                                 .chunks = kind == PIPE_INTERLEAVED ? 2 : 1 };
}

/* Every product dp x tp x pp of the ranks. A tensor split stays within a machine, where links are fast. */
static void add_grids(struct planner *p)
{
    const int n = p->plan->ranks, most_tp = p->plan->machine.cluster.ranks;

    for (int pp = 1; pp <= n && pp <= PIPE_STAGES && pp <= p->work.n_layers; pp++) {
        for (int tp = 1; n % pp == 0 && tp <= n / pp; tp++) {
            const int dp = n / pp / tp;
            const bool is_pure = dp == 1 && (tp == 1 || pp == 1);
            if (n % (pp * tp) || tp * pp == 1 || (tp > most_tp && !(is_pure && most_tp == 1)))
                continue;
            if (p->plan->n_rows + PIPE_KINDS > MOST_ROWS)
                return;
            if (pp == 1)
                add_grid(p, is_pure ? "tensor" : "hybrid", grid_of(dp, tp, pp, PIPE_1F1B));
            for (int kind = 0; pp > 1 && kind < PIPE_KINDS; kind++)
                add_grid(p, is_pure ? "pipeline" : "hybrid",
                         grid_of(dp, tp, pp, (enum pipe_kind)kind));
        }
    }
}

static void add_rows(struct planner *p)
{
    for (int i = 0; strategy_table[i]; i++) {
        const struct strategy *strategy = strategy_table[i];
        if (is_grid(strategy) ||
            (p->plan->ranks > 1 &&
             !strategy->many_ranks)) /* one rank: what others are compared with */
            continue;
        for (int zero = strategy->zero ? 1 : 0; zero <= strategy->zero; zero++)
            add_data_parallel(p, strategy, zero);
    }
    if (p->plan->ranks > 1)
        add_grids(p);
}

/* The settings of a job that is distributed as the row says. */
static enum status settings_for(const struct job *job, const struct forecast_row *row,
                                struct settings *out)
{
    const struct setting *pipeline = settings_find("pipeline");
    const int ranks = row->choice.dp * row->choice.tp * row->choice.pp;

    *out = job->settings;
    snprintf(out->strategy, sizeof out->strategy, "%s", row->strategy);
    snprintf(out->split, sizeof out->split, "%s", row->split);
    *out->sync = *out->meet = '\0';
    out->accumulate = 0; /* the shards that came of it are there */
    if (ranks != out->ranks) {
        out->ranks = ranks;
        out->threads = out->shards = 0;
    }
    return pipeline && *row->pipeline ? settings_set(out, pipeline, row->pipeline) : STATUS_OK;
}

/* Does the program have it, and does the job's other settings allow it? */
static void try_row(const struct planner *p, struct forecast_row *row)
{
    struct settings settings;
    struct job *job;

    if (!strategy_find(row->strategy)) {
        refuse(row, &row->runs, "this program does not run it yet");
        return;
    }
    if (p->options->is_elsewhere || p->options->machine)
        return;
    if (settings_for(p->job, row, &settings) != STATUS_OK ||
        job_vary(p->job, &settings, &job) != STATUS_OK)
        refuse(row, &row->runs, status_message());
    else
        job_destroy(job);
}

/* "1.2 GB", "340 MB": returns `text`. */
static const char *bytes_text(double bytes, char text[32])
{
    snprintf(text, 32, bytes < 1e9 ? "%.3g MB" : "%.3g GB",
             bytes * (bytes < 1e9 ? 1e-6 : 1e-9));
    return text;
}

/* Cuts layers where the program does (pass/cut.c); begins[0] -1: it could not. */
static void cut_layers(const struct planner *p, const struct cost_choice *choice, int *begins)
{
    static const struct pass *const passes[] = { &pass_fuse, &pass_cut, NULL };
    const struct pass_config config = { .batch = p->job->settings.batch,
                                        .shards = p->job->settings.shards,
                                        .ranks = 1,
                                        .optim = p->job->optim,
                                        .pipeline = { .stages = choice->pp,
                                                      .chunks = choice->chunks } };
    struct graph *graph = NULL;

    begins[0] = -1;
    if (model_build(p->job->model, &p->job->model_config, &graph) != STATUS_OK)
        return;
    if (pass_run(graph, passes, &config, NULL) == STATUS_OK &&
        graph_node_count(graph) == p->work.n_layers) {
        for (int n = 0, piece = -1; n < p->work.n_layers; n++) {
            if (graph_node(graph, n)->stage != piece)
                begins[++piece] = n;
        }
        begins[choice->pp * choice->chunks] = p->work.n_layers;
    }
    graph_destroy(graph);
}

static enum status predict(const struct planner *p, struct cost_choice choice,
                           struct cost_estimate *out, struct simulate_result *events)
{
    int begins[PIPE_STAGES * PIPE_CHUNKS + 1];

    if (choice.pp > 1 && choice.pp * choice.chunks <= p->work.n_layers &&
        !p->options->is_elsewhere) {
        cut_layers(p, &choice, begins);
        choice.begins = begins[0] < 0 ? NULL : begins;
    }
    return cost_predict(&p->work, &p->plan->machine.cluster, &choice, out, events);
}

static void predict_row(const struct planner *p, struct forecast_row *row)
{
    const struct cost_cluster *cluster = &p->plan->machine.cluster;
    char why[160], needs[32], has[32];

    if (!row->is_legal)
        return;
    if (predict(p, row->choice, &row->cost, NULL) != STATUS_OK) {
        refuse(row, &row->is_legal, status_message());
        return;
    }
    if (cluster->memory > 0 && row->cost.memory > cluster->memory) {
        snprintf(why, sizeof why, "does not fit: a rank needs %s and has %s",
                 bytes_text(row->cost.memory, needs), bytes_text(cluster->memory, has));
        refuse(row, &row->fits, why);
    }
    try_row(p, row);
}

/* The choice ------------------------------------------------------------------------------ */

static bool can_be_chosen(const struct forecast_row *row)
{
    return row->is_legal && row->runs && row->is_exact && row->fits;
}

const char *forecast_name(const struct forecast_row *row, char text[128])
{
    snprintf(text, 128, "%s%s%s%s%s", row->strategy, *row->split ? " " : "", row->split,
             *row->pipeline ? " " : "", row->pipeline);
    return text;
}

/* The fastest of those that `is_so` holds for; -1: none. */
static int fastest(const struct forecast *plan, bool (*is_so)(const struct forecast_row *row))
{
    int best = -1;

    for (int i = 0; i < plan->n_rows; i++) {
        if (is_so(&plan->rows[i]) &&
            (best < 0 || plan->rows[i].cost.seconds < plan->rows[best].cost.seconds))
            best = i;
    }
    return best;
}

static bool is_too_large(const struct forecast_row *row)
{
    return row->is_legal && row->is_exact && row->runs && !row->fits;
}

static bool is_not_exact(const struct forecast_row *row)
{
    return row->is_legal && row->runs && row->fits && !row->is_exact;
}

static bool is_not_here(const struct forecast_row *row)
{
    return row->is_legal && row->is_exact && row->fits && !row->runs;
}

/* Who would be faster than the chosen one, and why it is not chosen. */
static int add_faster(const struct forecast *plan, int at,
                      bool (*is_so)(const struct forecast_row *row), char *text, int room)
{
    const int row = fastest(plan, is_so);
    char name[128];

    if (row < 0 ||
        (plan->chosen >= 0 &&
         plan->rows[row].cost.seconds > (1 - SAME) * plan->rows[plan->chosen].cost.seconds))
        return at;
    const int more = snprintf(text + at, (size_t)(room - at), "; %s would take %.3g ms, but %s",
                              forecast_name(&plan->rows[row], name),
                              1e3 * plan->rows[row].cost.seconds, plan->rows[row].why);
    return at + more < room ? at + more : room - 1;
}

static void explain(struct forecast *plan)
{
    const int room = (int)sizeof plan->why;
    int at, count = 0;
    char name[128];

    for (int i = 0; i < plan->n_rows; i++)
        count += can_be_chosen(&plan->rows[i]);
    if (plan->chosen < 0) {
        at = snprintf(plan->why, sizeof plan->why,
                      "nothing that keeps the arithmetic of one device can run on %d ranks",
                      plan->ranks);
    } else {
        const struct forecast_row *row = &plan->rows[plan->chosen];
        at = snprintf(plan->why, sizeof plan->why,
                      "%s: %.3g ms a step is the least, or within %.0f%% of it and simpler, of "
                      "%d that run, fit and keep the arithmetic of one device",
                      forecast_name(row, name), 1e3 * row->cost.seconds, 100 * SAME, count);
    }
    at = add_faster(plan, at, is_too_large, plan->why, room);
    at = add_faster(plan, at, is_not_exact, plan->why, room);
    add_faster(plan, at, is_not_here, plan->why, room);
}

/* The first of those that are as fast as the fastest. */
static void choose(struct forecast *plan)
{
    const int best = fastest(plan, can_be_chosen);

    plan->chosen = best;
    for (int i = 0; best >= 0 && i < plan->n_rows; i++) {
        if (can_be_chosen(&plan->rows[i]) &&
            plan->rows[i].cost.seconds <= (1 + SAME) * plan->rows[best].cost.seconds) {
            plan->chosen = i;
            break;
        }
    }
    explain(plan);
}

static bool has_stages(const struct forecast_row *row)
{
    return row->is_legal && row->fits && row->choice.pp > 1;
}

/* The timeline of the chosen one, if it has stages; else of the best that has. */
static enum status draw_timeline(const struct planner *p)
{
    struct forecast *plan = p->plan;
    const bool chosen = plan->chosen >= 0 && has_stages(&plan->rows[plan->chosen]);
    struct cost_estimate again;

    plan->timeline_row = chosen ? plan->chosen : fastest(plan, has_stages);
    if (plan->timeline_row < 0)
        return STATUS_OK;
    return predict(p, plan->rows[plan->timeline_row].choice, &again, &plan->timeline);
}

/* Curves ---------------------------------------------------------------------------------- */

/* The first `ranks` ranks of the machines. */
static struct cost_cluster first_ranks(const struct cost_cluster *all, int ranks)
{
    struct cost_cluster some = *all;

    some.ranks = ranks < all->ranks ? ranks : all->ranks;
    some.nodes = (ranks + some.ranks - 1) / some.ranks;
    return some;
}

static enum status add_point(struct planner *p, int ranks, int64_t shards_each)
{
    struct forecast *plan = p->plan, some = *plan;
    struct forecast_point *point = &plan->points[plan->n_points++];
    const struct planner at = {
        .job = p->job, .options = p->options, .lanes = p->lanes, .plan = &some
    };
    struct planner mine = at;

    *point = (struct forecast_point){ .ranks = ranks, .data_parallel = NAN, .best = NAN };
    some.ranks = ranks;
    some.n_rows = 0;
    some.machine.cluster = first_ranks(&plan->machine.cluster, ranks);
    TRY(mem_alloc(MOST_ROWS, sizeof *some.rows, &some.rows));
    mine.work = p->work;
    mine.work.shards = shards_each * ranks;
    add_rows(&mine);
    const double samples = (double)p->job->settings.batch * ranks;
    for (int i = 0; i < some.n_rows; i++) {
        struct forecast_row *row = &some.rows[i];
        predict_row(&mine, row);
        if (!row->is_legal || !row->is_exact || !row->fits)
            continue;
        const double rate = samples / row->cost.seconds;
        if (strcmp(row->strategy, ranks > 1 ? "multiworker" : "single") == 0)
            point->data_parallel = rate;
        if (isnan(point->best) || rate > point->best) {
            char name[128];
            point->best = rate;
            snprintf(point->name, sizeof point->name, "%s", forecast_name(row, name));
        }
    }
    mem_free(some.rows);
    return STATUS_OK;
}

/* 1, 2, 4, ... ranks, then whole machines, up to all. */
static enum status add_points(struct planner *p, int64_t shards_each)
{
    const struct cost_cluster *all = &p->plan->machine.cluster;
    const int total = all->nodes * all->ranks;
    int ranks = 1;

    TRY(mem_alloc(MOST_POINTS, sizeof *p->plan->points, &p->plan->points));
    while (ranks < total && p->plan->n_points < MOST_POINTS - 1) {
        TRY(add_point(p, ranks, shards_each));
        const int next = 2 * ranks;
        ranks = next <= all->ranks || ranks >= all->ranks ? next : all->ranks;
    }
    return add_point(p, total, shards_each);
}

/* All together ---------------------------------------------------------------------------- */

static enum status fill(struct planner *p)
{
    struct forecast *plan = p->plan;
    const struct settings *s = &p->job->settings;
    const int64_t shards_each = s->shards / s->ranks;

    TRY(p->options->machine ? describe_there(p) : describe_here(p));
    if (p->options->is_elsewhere) {
        plan->ranks = plan->machine.cluster.nodes * plan->machine.cluster.ranks;
        plan->batch = s->batch * plan->ranks;
        plan->shards = shards_each * plan->ranks;
    }
    TRY(make_work(p));
    p->work.shards = plan->shards;
    add_rows(p);
    for (int i = 0; i < plan->n_rows; i++)
        predict_row(p, &plan->rows[i]);
    choose(plan);
    const struct cost_work *alone = p->alone.layers ? &p->alone : &p->work;
    plan->single = (double)plan->shards / p->lanes * cost_shard_seconds(alone) /
                       plan->machine.cluster.speed +
                   cost_params(alone) * (alone->add * p->lanes + alone->update) / p->lanes;
    if (p->options->is_elsewhere)
        TRY(add_points(p, shards_each));
    return draw_timeline(p);
}

enum status forecast_create(const struct job *job, const struct forecast_options *options,
                            struct forecast **out)
{
    const struct settings *s = &job->settings;
    struct planner p = { .job = job, .options = options };

    TRY(mem_alloc(1, sizeof *p.plan, &p.plan));
    snprintf(p.plan->model, sizeof p.plan->model, "%s", s->model);
    p.plan->batch = s->batch;
    p.plan->shards = s->shards;
    p.plan->ranks = (int)s->ranks;
    p.plan->threads = (int)s->threads;
    p.plan->timeline_row = p.plan->chosen = -1;
    p.lanes = exec_lanes_of(s->shards, (int)s->ranks, (int)s->threads);
    enum status status = mem_alloc(MOST_ROWS, sizeof *p.plan->rows, &p.plan->rows);
    if (status == STATUS_OK)
        status = fill(&p);
    graph_destroy(p.graph);
    cost_release(&p.work);
    cost_release(&p.alone);
    if (status != STATUS_OK) {
        forecast_destroy(p.plan);
        return status;
    }
    *out = p.plan;
    return STATUS_OK;
}

void forecast_destroy(struct forecast *plan)
{
    if (!plan)
        return;
    simulate_release(&plan->timeline);
    mem_free(plan->rows);
    mem_free(plan->points);
    mem_free(plan);
}

/* Auto ------------------------------------------------------------------------------------ */

enum status forecast_choose(const struct job *job, struct forecast_choice *out)
{
    int rank, size;
    const struct forecast_options options = { .guess = launch_world(&rank, &size) };
    struct forecast *forecast;

    TRY(forecast_create(job, &options, &forecast));
    enum status status = STATUS_OK;
    if (forecast->chosen < 0) {
        status = FAIL(STATUS_USAGE, "--strategy auto: %s", forecast->why);
    } else {
        const struct forecast_row *row = &forecast->rows[forecast->chosen];
        snprintf(out->why, sizeof out->why, "%s", forecast->why);
        out->seconds = row->cost.seconds;
        status = settings_for(job, row, &out->settings);
    }
    forecast_destroy(forecast);
    return status;
}

/* JSON ------------------------------------------------------------------------------------ */

static void add_number(struct strbuf *out, const char *name, double number)
{
    strbuf_printf(out, ", \"%s\": ", name);
    strbuf_add_number(out, number);
}

static void add_row_json(const struct forecast *plan, int i, struct strbuf *out)
{
    const struct forecast_row *row = &plan->rows[i];
    const struct cost_estimate *c = &row->cost;

    strbuf_printf(
        out,
        "%s\n    {\"strategy\": \"%s\", \"split\": \"%s\", \"pipeline\": \"%s\", "
        "\"dp\": %d, \"tp\": %d, \"pp\": %d, \"zero\": %d, \"legal\": %s, \"runs\": %s, "
        "\"exact\": %s, \"fits\": %s",
        i ? "," : "", row->strategy, row->split, row->pipeline, row->choice.dp, row->choice.tp,
        row->choice.pp, row->choice.zero, row->is_legal ? "true" : "false",
        row->runs ? "true" : "false", row->is_exact ? "true" : "false",
        row->fits ? "true" : "false");
    if (row->is_legal) {
        add_number(out, "step_ms", 1e3 * c->seconds);
        add_number(out, "samples_per_s", (double)plan->batch / c->seconds);
        add_number(out, "compute_ms", 1e3 * c->compute);
        add_number(out, "bubble", c->bubble);
        add_number(out, "bytes", c->bytes);
        add_number(out, "memory", c->memory);
        add_number(out, "params", c->params);
        add_number(out, "gradients", c->gradients);
        add_number(out, "state", c->state);
        add_number(out, "activations", c->activations);
    }
    strbuf_add(out, ", \"why\": ");
    strbuf_add_json(out, row->why);
    strbuf_add(out, "}");
}

static void add_link(struct strbuf *out, const char *name, const struct cost_link *link)
{
    strbuf_printf(out, ", \"%s\": {\"latency_us\": ", name);
    strbuf_add_number(out, 1e6 * link->latency);
    add_number(out, "message_us", 1e6 * link->message);
    add_number(out, "gb_per_s", 1e-9 * link->bandwidth);
    add_number(out, "cpu", link->cpu);
    strbuf_add(out, "}");
}

void forecast_print_json(const struct forecast *plan, struct strbuf *out)
{
    const struct cost_cluster *c = &plan->machine.cluster;

    strbuf_add(out, "{\"model\": ");
    strbuf_add_json(out, plan->model);
    strbuf_printf(out,
                  ", \"batch\": %lld, \"shards\": %lld, \"ranks\": %d, \"threads\": %d, "
                  "\"measured\": %s",
                  (long long)plan->batch, (long long)plan->shards, plan->ranks, plan->threads,
                  plan->is_measured ? "true" : "false");
    add_number(out, "single_ms", 1e3 * plan->single);
    strbuf_printf(out, ",\n  \"cluster\": {\"nodes\": %d, \"ranks_per_node\": %d", c->nodes,
                  c->ranks);
    add_number(out, "speed", c->speed);
    add_number(out, "crowding", c->crowding);
    add_number(out, "memory", c->memory);
    add_link(out, "within", &c->within);
    add_link(out, "between", &c->between);
    strbuf_add(out, "},\n  \"chosen\": ");
    if (plan->chosen >= 0)
        strbuf_printf(out, "%d", plan->chosen);
    else
        strbuf_add(out, "null");
    strbuf_add(out, ", \"why\": ");
    strbuf_add_json(out, plan->why);
    strbuf_add(out, ",\n  \"strategies\": [");
    for (int i = 0; i < plan->n_rows; i++)
        add_row_json(plan, i, out);
    strbuf_add(out, "],\n  \"scaling\": [");
    for (int i = 0; i < plan->n_points; i++) {
        const struct forecast_point *point = &plan->points[i];
        strbuf_printf(out, "%s\n    {\"ranks\": %d", i ? "," : "", point->ranks);
        add_number(out, "data_parallel_samples_per_s", point->data_parallel);
        add_number(out, "best_samples_per_s", point->best);
        strbuf_printf(out, ", \"best\": \"%s\"}", point->name);
    }
    strbuf_add(out, "]}\n");
}

/* Memory ---------------------------------------------------------------------------------- */

/* Of the job as it is, on each of its ranks. */
static enum status predict_memory(struct planner *p, struct cost_estimate *out)
{
    const struct axes *axes = &p->job->axes;
    const struct cost_choice choice = {
        .dp = axes->dp,
        .tp = 1,
        .pp = 1,
        .zero = axes->zero,
        .servers = axes->servers,
        .waits = axes->sync == SYNC_STEP,
        .interval = axes->interval > 1 ? axes->interval : 1,
        .lanes = p->lanes,
        .team = 1,
        .chunks = 1,
    };

    return cost_predict(&p->work, &p->plan->machine.cluster, &choice, out, NULL);
}

/* More than a rank can need at all: gradients and state as if nothing were shared, all values of the graph at once. */
static double most_memory(const struct job *job, int lanes)
{
    const double params = 4 * (double)graph_param_count(job->graph);
    double values = 0;

    for (int n = 0; n < graph_node_count(job->graph); n++) {
        const struct node *node = graph_node(job->graph, n);
        for (int i = 0; i < node->n_out; i++)
            values += 4 * (double)shape_count(&node->out[i]->shape);
    }
    return params * (4 + 4 * lanes + optim_states(&job->optim)) + lanes * values;
}

/* A step of as many samples in other shards. */
static void cut_finer(struct cost_work *work, int64_t shards)
{
    const double share = (double)work->shards / (double)shards;

    for (int l = 0; l < work->n_layers; l++) {
        struct cost_layer *layer = &work->layers[l];
        double *const sizes[] = { &layer->forward, &layer->backward, &layer->sums,
                                  &layer->kept,    &layer->crossing, &layer->out };
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            *sizes[i] *= share;
    }
    work->transient *= share;
    work->shards = shards;
}

/* Among the rows for so many ranks the fastest that fits; -1: none. */
static enum status find_room(struct planner *p, int ranks, int *out)
{
    const struct settings *s = &p->job->settings;
    struct forecast *plan = p->plan;

    plan->ranks = ranks;
    plan->n_rows = 0;
    plan->machine.cluster.ranks = ranks;
    plan->machine.cluster.memory = machine_memory(s->flat ? ranks : 1, (double)s->memory);
    if (p->work.shards % ranks)
        cut_finer(&p->work, ranks);
    p->lanes =
        exec_lanes_of(p->work.shards, ranks, job_cores() / ranks > 1 ? job_cores() / ranks : 1);
    add_rows(p);
    for (int i = 0; i < plan->n_rows; i++)
        predict_row(p, &plan->rows[i]);
    *out = fastest(plan, can_be_chosen);
    return STATUS_OK;
}

/* What would have room: the fewest ranks that do. */
static enum status advise(struct planner *p, double needs)
{
    const struct settings *s = &p->job->settings;
    const double has = p->plan->machine.cluster.memory;
    char text[3][32];

    for (int ranks = (int)s->ranks; ranks <= 64; ranks *= 2) {
        int row;
        TRY(find_room(p, ranks, &row));
        if (row < 0)
            continue;
        const struct forecast_row *found = &p->plan->rows[row];
        return FAIL(STATUS_NO_MEMORY,
                    "%s with %s does not fit: a rank needs %s and has %s: use -n %d --strategy "
                    "%s%s%s, which needs %s (tutti plan %s -n %d)",
                    s->model, s->strategy, bytes_text(needs, text[0]), bytes_text(has, text[1]),
                    ranks, found->strategy, *found->split ? " --split " : "", found->split,
                    bytes_text(found->cost.memory, text[2]), s->model, ranks);
    }
    return FAIL(
        STATUS_NO_MEMORY,
        "%s with %s does not fit: a rank needs %s and has %s, and no way to split it "
        "among up to 64 ranks does: try a smaller --batch, more --shards or --recompute",
        s->model, s->strategy, bytes_text(needs, text[0]), bytes_text(has, text[1]));
}

/* Reads the job's work, with the arena that its plan will have. */
static enum status measure_memory(struct planner *p, struct cost_estimate *out)
{
    const struct settings *s = &p->job->settings;
    size_t arena;
    double kept = 0;

    TRY(job_make_graph(p->job, strategy_find("single")->passes, &p->graph));
    TRY(guess_work(p));
    TRY(profile_arena(p->graph, s->batch / s->shards, p->job->choices, &arena));
    for (int l = 0; l < p->work.n_layers; l++)
        kept += p->work.layers[l].kept;
    p->work.transient = fmax((double)arena - kept, 0);
    return predict_memory(p, out);
}

enum status forecast_check_memory(const struct job *job)
{
    static const struct forecast_options options = { .guess = true };
    const struct settings *s = &job->settings;
    const int lanes = exec_lanes_of(s->shards, (int)s->ranks, (int)s->threads);
    int rank, size;
    const bool is_here = !launch_world(&rank, &size) && !*s->hosts;
    const double has =
        machine_memory(is_here && s->flat ? (int)s->ranks : 1, (double)s->memory);
    struct forecast plan = { .ranks = (int)s->ranks,
                             .shards = s->shards,
                             .threads = (int)s->threads };
    struct planner p = { .job = job, .options = &options, .plan = &plan, .lanes = lanes };
    struct cost_estimate needs;

    if (s->sync_batch_norm || most_memory(job, lanes) < has)
        return STATUS_OK;
    plan.machine.cluster = (struct cost_cluster){ .nodes = 1,
                                                  .ranks = (int)s->ranks,
                                                  .shares = !s->flat,
                                                  .crowding = 1,
                                                  .speed = 1,
                                                  .memory = has,
                                                  .within = machine_usual_network,
                                                  .between = machine_usual_network };
    TRY(mem_alloc(MOST_ROWS, sizeof *plan.rows, &plan.rows));
    enum status status = measure_memory(&p, &needs);
    if (status == STATUS_OK && needs.memory > has)
        status = advise(&p, needs.memory);
    graph_destroy(p.graph);
    cost_release(&p.work);
    mem_free(plan.rows);
    return status;
}
