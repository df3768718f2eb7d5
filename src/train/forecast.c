/* SPDX-License-Identifier: MIT */
/* forecast.c - lists the ways to distribute a job, and has them predicted. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/exec.h"
#include "train/planner.h"
#include "transport/launch.h"

enum { MOST_POINTS = 32, MOST_WALKED = 16 };
static const double TEAM = 0.8; /* that each further thread adds to a shard's speed */

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
    if (p->options->guess)
        return STATUS_OK;
    if (ranks / nodes < 2)
        return STATUS_OK;
    TRY(machine_probe(ranks / nodes, &c->within, &c->pages));
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

    BUG_ON(plan->n_rows == PLANNER_ROWS);
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

void planner_refuse(struct forecast_row *row, bool *which, const char *why)
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
        planner_refuse(row, &row->is_legal, status_message());
        return;
    }
    row->choice.zero = zero;
    row->choice.servers = axes.servers;
    row->choice.waits = axes.sync == SYNC_STEP;
    row->choice.interval = axes.interval > 1 ? axes.interval : 1;
    row->choice.neighbors = axes_neighbors(&axes);
    if (apart && !strategy->many_nodes && !p->job->settings.flat)
        planner_refuse(row, &row->is_legal, "for ranks of one machine");
    row->is_exact = axes.sync == SYNC_STEP;
    if (!row->is_exact)
        planner_refuse(row, &row->is_exact, "changes results: workers are not in step");
}

static void add_grid(struct planner *p, const char *strategy, struct cost_choice choice)
{
    struct forecast_row *row = add_row(p->plan, strategy);

    row->choice = choice;
    if (choice.tp > 1 && p->job->has_shards)
        planner_refuse(row, &row->is_exact, "rounds otherwise: --shards fixes the bits");
    if (choice.pp > 1 && choice.chunks > 1)
        snprintf(row->pipeline, sizeof row->pipeline, "%s:%d", pipe_kind_names[choice.pipeline],
                 choice.chunks);
    else if (choice.pp > 1)
        snprintf(row->pipeline, sizeof row->pipeline, "%s", pipe_kind_names[choice.pipeline]);
    int at = 0;
    const struct {
        const char *name;
        int value;
    } axes[] = {
        { "dp", choice.dp }, { "tp", choice.tp }, { "pp", choice.pp }, { "zero", choice.zero }
    };
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        if (axes[i].value > 1)
            at += snprintf(row->split + at, sizeof row->split - (size_t)at, "%s%s=%d",
                           at ? "," : "", axes[i].name, axes[i].value);
    }
}

static struct cost_choice grid_of(int dp, int tp, int pp, int zero, enum pipe_kind kind)
{
    return (struct cost_choice){ .dp = dp,
                                 .tp = tp,
                                 .pp = pp,
                                 .zero = zero,
                                 .interval = 1,
                                 .lanes = 1,
                                 .team = 1,
                                 .pipeline = kind,
                                 .chunks = kind == PIPE_INTERLEAVED ? 2 : 1 };
}

/* Every product dp x tp x pp of the ranks, with parts as zero says, for which there have to be
 * copies. A tensor split stays within a machine, where links are fast. */
static void add_grids(struct planner *p, int zero)
{
    const int n = p->plan->ranks, most_tp = p->plan->machine.cluster.ranks;

    for (int pp = 1; pp <= n && pp <= PIPE_STAGES && pp <= p->works[0].work.n_layers; pp++) {
        for (int tp = 1; n % pp == 0 && tp <= n / pp; tp++) {
            const int dp = n / pp / tp;
            const bool is_pure = dp == 1 && (tp == 1 || pp == 1);
            if (n % (pp * tp) || tp * pp == 1 || (tp > most_tp && !(is_pure && most_tp == 1)))
                continue;
            if (zero > 0 && dp == 1)
                continue;
            if (p->plan->n_rows + PIPE_KINDS > PLANNER_ROWS)
                return;
            if (pp == 1)
                add_grid(p, is_pure ? "tensor" : "hybrid",
                         grid_of(dp, tp, pp, zero, PIPE_1F1B));
            for (int kind = 0; pp > 1 && kind < PIPE_KINDS; kind++)
                add_grid(p, is_pure ? "pipeline" : "hybrid",
                         grid_of(dp, tp, pp, zero, (enum pipe_kind)kind));
        }
    }
}

static void add_rows(struct planner *p)
{
    for (int i = 0; strategy_table[i]; i++) {
        const struct strategy *strategy = strategy_table[i];
        if (is_grid(strategy) || (p->plan->ranks > 1) != strategy->many_ranks)
            continue; /* one rank has nobody to share with; several are compared with it */
        for (int zero = strategy->zero ? 1 : 0; zero <= strategy->zero; zero++)
            add_data_parallel(p, strategy, zero);
    }
    /* State is in parts in any case; those without come first, as there may be too many rows. */
    static const int zeros[] = { 0, 2, 3 };
    for (size_t i = 0; p->plan->ranks > 1 && i < sizeof zeros / sizeof *zeros; i++)
        add_grids(p, zeros[i]);
}

bool planner_is_grid(const struct forecast_row *row)
{
    return row->choice.tp * row->choice.pp > 1;
}

static enum status set_strategy(const struct forecast_row *row, struct settings *out)
{
    const struct setting *pipeline = settings_find("pipeline");

    snprintf(out->strategy, sizeof out->strategy, "%s", row->strategy);
    snprintf(out->split, sizeof out->split, "%s", row->split);
    *out->sync = *out->meet = '\0';
    out->accumulate = 0; /* the shards that came of it are there */
    return *row->pipeline ? settings_set(out, pipeline, row->pipeline) : STATUS_OK;
}

enum status planner_settings(const struct planner *p, const struct forecast_row *row,
                             struct settings *out)
{
    const struct job *job = p->job;
    const int ranks = row->choice.dp * row->choice.tp * row->choice.pp;

    *out = job->settings;
    TRY(set_strategy(row, out));
    /* A grid has as many shards as suit it, unless they are given or are more than a matter of
     * rounding. */
    if (!job->has_shards && (ranks != out->ranks || (planner_is_grid(row) && !p->looks_across)))
        out->shards = 0;
    if (ranks != out->ranks)
        out->threads = 0;
    out->ranks = ranks;
    return STATUS_OK;
}

/* Does the program have it, and do the job's other settings allow it? Then *out is such a job; else
 * NULL. */
static void try_row(const struct planner *p, struct forecast_row *row, struct job **out)
{
    struct settings settings;

    *out = NULL;
    if (!strategy_find(row->strategy)) {
        planner_refuse(row, &row->runs, "this program does not run it");
        return;
    }
    if (!p->options->is_elsewhere && (planner_settings(p, row, &settings) != STATUS_OK ||
                                      job_vary(p->job, &settings, out) != STATUS_OK))
        planner_refuse(row, &row->runs, status_message());
}

const char *planner_bytes(double bytes, char text[32])
{
    snprintf(text, 32, bytes < 1e9 ? "%.3g MB" : "%.3g GB",
             bytes * (bytes < 1e9 ? 1e-6 : 1e-9));
    return text;
}

/* Cuts layers where the program does (pass/cut.c); begins[0] -1: it could not. */
static void cut_layers(const struct planner *p, const struct cost_work *work,
                       const struct cost_choice *choice, int *begins)
{
    static const struct pass *const passes[] = { &pass_fuse, &pass_cut, NULL };
    const struct pass_config config = { .batch = p->job->settings.batch,
                                        .shards = work->shards,
                                        .ranks = 1,
                                        .optim = p->job->optim,
                                        .pipeline = { .stages = choice->pp,
                                                      .chunks = choice->chunks } };
    struct graph *graph = NULL;

    begins[0] = -1;
    if (model_build(p->job->model, &p->job->model_config, &graph) != STATUS_OK)
        return;
    if (pass_run(graph, passes, &config, NULL) == STATUS_OK &&
        graph_node_count(graph) == work->n_layers) {
        for (int n = 0, piece = -1; n < work->n_layers; n++) {
            if (graph_node(graph, n)->stage != piece)
                begins[++piece] = n;
        }
        begins[choice->pp * choice->chunks] = work->n_layers;
    }
    graph_destroy(graph);
}

/* By layers: memory, and roughly the time of a step. */
static enum status read_grid(const struct planner *p, const struct cost_work *work,
                             struct cost_choice choice, struct cost_estimate *out)
{
    int begins[PIPE_STAGES * PIPE_CHUNKS + 1];

    if (choice.pp > 1 && choice.pp * choice.chunks <= work->n_layers &&
        !p->options->is_elsewhere) {
        cut_layers(p, work, &choice, begins);
        choice.begins = begins[0] < 0 ? NULL : begins;
    }
    return cost_grid(work, &p->plan->machine.cluster, &choice, out);
}

/* That a rank has. Ranks of a grid share no memory on this machine, so each has a part of it. */
static double memory_for(const struct planner *p, const struct forecast_row *row)
{
    const struct cost_cluster *c = &p->plan->machine.cluster;

    if (!planner_is_grid(row) || !c->shares || p->options->machine)
        return c->memory;
    return machine_memory(c->ranks, (double)p->job->settings.memory);
}

/* Clusters have thousands of grids: only the best are walked; advice in a hurry is
 * about those that fit. */
static enum status predict_grid(struct planner *p, struct forecast_row *row,
                                const struct planner_work *w, const struct cost_work *work)
{
    TRY(read_grid(p, work, row->choice, &row->cost));
    const double memory = memory_for(p, row);
    const bool is_hurried = p->deadline > 0 && memory > 0 && row->cost.memory > memory;
    row->is_rough = p->options->is_elsewhere || is_hurried;
    return row->is_rough ? STATUS_OK : planner_walk_grid(p, row, w, work, &row->cost, NULL);
}

/* Shards of the whole model that have as much under way on a lane as the first stage has. */
static int64_t open_shards(const struct cost_choice *choice, int64_t shards)
{
    if (choice->pp == 1)
        return 1;
    return (int64_t)ceil(cost_open_shards(choice, 0, (double)shards / choice->dp) / choice->pp);
}

/* The work of the row's step, as the row's own job would have it: that may have other shards. */
static enum status find_work(struct planner *p, struct forecast_row *row, const struct job *job,
                             struct planner_work **out)
{
    const struct settings *s = job ? &job->settings : &p->job->settings;
    struct cost_choice *choice = &row->choice;

    if (p->options->is_elsewhere || (!job && !planner_is_grid(row))) {
        const struct planner_work *first = &p->works[0];
        choice->lanes = planner_is_grid(row) ? 1 : p->lanes;
        row->factors = job_has_factors(p->job) && !planner_is_grid(row) && choice->zero == 0 &&
                       choice->servers == 0;
        return planner_work(p, first->shards, first->threads, row->factors, false, out);
    }
    choice->lanes =
        planner_is_grid(row) ? 1 : exec_lanes_of(s->shards, choice->dp, (int)s->threads);
    const int threads =
        (int)s->threads / choice->lanes > 1 ? (int)s->threads / choice->lanes : 1;
    choice->team = p->plan->is_measured ? 1 : 1 + TEAM * (threads - 1);
    row->factors = job_has_factors(job ? job : p->job) && !planner_is_grid(row);
    TRY(planner_work(p, s->shards, threads, row->factors, row->choice.tp > 1, out));
    return planner_open_work(p, *out, open_shards(choice, s->shards), out);
}

/* A tensor split that the model does not allow is none. */
static void share_layers(struct planner *p, struct forecast_row *row, struct planner_work *w)
{
    if (row->choice.tp > 1 && strategy_find("tensor") &&
        planner_share(p, row->choice.tp, w, &row->choice.sharing) != STATUS_OK)
        planner_refuse(row, &row->is_legal, status_message());
}

/* In a forecast for machines elsewhere there are as many of the job's steps side by side as ranks. */
static struct cost_work work_of_step(const struct planner *p, const struct planner_work *w)
{
    struct cost_work work = w->work;

    work.shards = p->options->is_elsewhere ? p->plan->shards : w->shards;
    return work;
}

static enum status predict_row(struct planner *p, struct forecast_row *row)
{
    const double memory = memory_for(p, row);
    struct planner_work *w;
    char why[160], needs[32], has[32];
    struct job *job;

    if (!row->is_legal)
        return STATUS_OK;
    try_row(p, row, &job);
    enum status status = find_work(p, row, job, &w);
    job_destroy(job);
    TRY(status);
    share_layers(p, row, w);
    const struct cost_work work = work_of_step(p, w);
    row->shards = work.shards;
    row->threads = w->threads;
    if (!row->is_legal)
        return STATUS_OK;
    status = planner_is_grid(row) ? predict_grid(p, row, w, &work)
                                  : planner_walk(p, row, w, &work, &row->cost);
    if (status != STATUS_OK)
        planner_refuse(row, &row->is_legal, status_message());
    else if (memory > 0 && row->cost.memory > memory) {
        snprintf(why, sizeof why, "does not fit: a rank needs %s and has %s",
                 planner_bytes(row->cost.memory, needs), planner_bytes(memory, has));
        planner_refuse(row, &row->fits, why);
    }
    return STATUS_OK;
}

/* The work of a row that has been predicted. */
static enum status find_work_again(struct planner *p, const struct forecast_row *row,
                                   struct planner_work **out)
{
    const struct planner_work *first = &p->works[0];

    if (p->options->is_elsewhere)
        return planner_work(p, first->shards, first->threads, row->factors, false, out);
    TRY(planner_work(p, row->shards, row->threads, row->factors, row->choice.tp > 1, out));
    return planner_open_work(p, *out, open_shards(&row->choice, row->shards), out);
}

/* A row that was predicted roughly. A row without a program is none. */
static enum status walk_row(struct planner *p, struct forecast_row *row,
                            struct walk_timeline *timeline)
{
    struct planner_work *w;

    TRY(find_work_again(p, row, &w));
    const struct cost_work work = work_of_step(p, w);
    if (planner_walk_grid(p, row, w, &work, &row->cost, timeline) != STATUS_OK)
        planner_refuse(row, &row->is_legal, status_message());
    row->is_rough = false;
    return STATUS_OK;
}

static bool may_be_best(const struct forecast_row *row)
{
    return row->is_legal && row->is_exact && row->fits;
}

/* Until the fastest is no rough one. */
static enum status walk_best(struct planner *p)
{
    struct forecast *plan = p->plan;

    for (int i = 0; i < MOST_WALKED; i++) {
        const int best = planner_fastest(plan, may_be_best);
        if (best < 0 || !plan->rows[best].is_rough)
            break;
        TRY(walk_row(p, &plan->rows[best], NULL));
    }
    return STATUS_OK;
}

enum status planner_fill_rows(struct planner *p)
{
    p->plan->n_rows = 0;
    add_rows(p);
    for (int i = 0; i < p->plan->n_rows; i++) {
        struct forecast_row *row = &p->plan->rows[i];
        if (p->deadline > 0 && clock_seconds() > p->deadline) {
            planner_refuse(row, &row->is_legal, "not looked at: it would take long");
            p->is_late = true;
        }
        TRY(predict_row(p, row));
    }
    return walk_best(p);
}

/* The timeline ----------------------------------------------------------------------------- */

static bool has_stages(const struct forecast_row *row)
{
    return row->is_legal && row->fits && row->choice.pp > 1;
}

/* The timeline of the chosen one, if it has stages; else of the best that has. */
static enum status draw_timeline(struct planner *p)
{
    struct forecast *plan = p->plan;
    const bool chosen = plan->chosen >= 0 && has_stages(&plan->rows[plan->chosen]);

    plan->timeline_row = chosen ? plan->chosen : planner_fastest(plan, has_stages);
    if (plan->timeline_row < 0)
        return STATUS_OK;
    return walk_row(p, &plan->rows[plan->timeline_row], &plan->timeline);
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

static void read_point(const struct forecast *plan, double samples, struct forecast_point *out)
{
    for (int i = 0; i < plan->n_rows; i++) {
        const struct forecast_row *row = &plan->rows[i];
        if (!row->is_legal || !row->is_exact || !row->fits)
            continue;
        const double rate = samples / row->cost.seconds;
        if (strcmp(row->strategy, plan->ranks > 1 ? "multiworker" : "single") == 0)
            out->data_parallel = rate;
        if (isnan(out->best) || rate > out->best) {
            out->best = rate;
            forecast_name(row, out->name);
        }
    }
}

static enum status add_point(struct planner *p, int ranks, int64_t shards_each)
{
    struct forecast *plan = p->plan, some = *plan;
    struct forecast_point *point = &plan->points[plan->n_points++];

    *point = (struct forecast_point){ .ranks = ranks, .data_parallel = NAN, .best = NAN };
    some.ranks = ranks;
    some.shards = shards_each * ranks;
    some.machine.cluster = first_ranks(&plan->machine.cluster, ranks);
    TRY(mem_alloc(PLANNER_ROWS, sizeof *some.rows, &some.rows));
    p->plan = &some;
    enum status status = planner_fill_rows(p);
    p->plan = plan;
    if (status == STATUS_OK)
        read_point(&some, (double)p->job->settings.batch * ranks, point);
    mem_free(some.rows);
    return status;
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
    TRY(planner_first_work(p));
    if (p->options->is_elsewhere) {
        plan->ranks = plan->machine.cluster.nodes * plan->machine.cluster.ranks;
        plan->batch = s->batch * plan->ranks;
        plan->shards = shards_each * plan->ranks;
    }
    TRY(planner_fill_rows(p));
    planner_choose(p);
    const struct cost_work *alone = p->alone.layers ? &p->alone : &p->works[0].work;
    plan->single =
        ((double)plan->shards / p->lanes * cost_shard_seconds(alone) + alone->meeting +
         alone->dense * (alone->add * p->lanes + alone->update) / p->lanes) /
        plan->machine.cluster.speed;
    if (p->options->is_elsewhere)
        TRY(add_points(p, shards_each));
    return draw_timeline(p);
}

static enum status create(struct planner *p)
{
    const struct settings *s = &p->job->settings;

    snprintf(p->plan->model, sizeof p->plan->model, "%s", s->model);
    p->plan->batch = s->batch;
    p->plan->shards = s->shards;
    p->plan->ranks = (int)s->ranks;
    p->plan->threads = (int)s->threads;
    p->plan->timeline_row = p->plan->chosen = -1;
    p->lanes = exec_lanes_of(s->shards, (int)s->ranks, (int)s->threads);
    TRY(mem_alloc(PLANNER_ROWS, sizeof *p->plan->rows, &p->plan->rows));
    return fill(p);
}

enum status forecast_create(const struct job *job, const struct forecast_options *options,
                            struct forecast **out)
{
    struct planner p = { .job = job, .options = options };

    TRY(mem_alloc(1, sizeof *p.plan, &p.plan));
    enum status status = create(&p);
    planner_release(&p);
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
    walk_timeline_release(&plan->timeline);
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
        out->settings = job->settings;
        out->settings.shards = row->shards;
        status = set_strategy(row, &out->settings);
    }
    forecast_destroy(forecast);
    return status;
}
