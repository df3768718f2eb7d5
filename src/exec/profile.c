/* SPDX-License-Identifier: MIT */
/* profile.c - steps of a private executor, their instructions read from its trace. */
#include "exec/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "exec/lane.h"
#include "exec/plan.h"
#include "exec/state.h"
#include "graph/op.h"
#include "kernel/measure.h"
#include "pass/pass.h"

enum { MOST_STEPS = 64, WINDOWS = 5, RUNS = 3 };

struct profiler {
    const struct profile_config *config;
    struct transport *transport;
    struct comm *comm;
    struct exec *exec;
    struct trace *trace;
    int n_nodes, steps;
    double *nodes; /* [node * MOST_STEPS + step] seconds, mean of the lanes */
    double sums[MOST_STEPS], made[MOST_STEPS];
};

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The lower quartile: what else the machine does only adds to times. */
static double quartile(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 4];
}

static enum status start(struct profiler *p)
{
    const struct profile_config *config = p->config;
    struct exec_config exec_config = {
        .train = config->graph,
        .threads = (config->open ? 1 : config->lanes) * config->threads,
        .shards = config->shards ? config->shards
                  : config->open ? config->open
                                 : config->lanes,
        .batch = config->batch->samples,
        .seed = config->seed,
        .choices = config->choices,
        .optim = config->optim,
    };

    p->n_nodes = graph_node_count(config->graph);
    TRY(mem_alloc((size_t)p->n_nodes * MOST_STEPS + 1, sizeof *p->nodes, &p->nodes));
    TRY(transport_inproc_create(1, &p->transport));
    TRY(comm_create(p->transport, NULL, &p->comm));
    if (!config->shards)
        TRY(trace_create(&p->trace));
    if (config->open)
        exec_config.pipeline = (struct exec_pipeline){ .stages = 1,
                                                       .kind = PIPE_GPIPE,
                                                       .chunks = 1,
                                                       .transport = p->transport,
                                                       .ordered = true };
    exec_config.comm = p->comm;
    exec_config.trace = p->trace;
    TRY(exec_create(&exec_config, &p->exec));
    return exec_init_params(p->exec);
}

static void stop(struct profiler *p)
{
    exec_destroy(p->exec);
    trace_destroy(p->trace);
    comm_destroy(p->comm);
    if (p->transport)
        transport_inproc_destroy(&p->transport, 1);
    mem_free(p->nodes);
}

/* The node whose instruction an event is; names are compared as the executor handed them over. -1:
 * none. A lane's events come in the order of nodes, so the search goes on from the last. */
static int node_of(const struct profiler *p, const struct trace_event *event, int from)
{
    for (int i = 0; i < p->n_nodes; i++) {
        const int n = (from + i) % p->n_nodes;
        const struct node *node = graph_node(p->config->graph, n);
        if (node->name == event->name)
            return n;
    }
    return -1;
}

/* Adds what the lanes noted in the step that just ended. */
static void read_events(struct profiler *p)
{
    for (int i = 0; i < p->exec->topology.n_lanes; i++) {
        const struct trace_row *row = p->exec->lanes[i].clock.trace;
        int from = 0;
        for (uint32_t e = 0; e < row->count; e++) {
            const struct trace_event *event = &row->events[e];
            if (event->kind != TRACE_COMPUTE)
                continue;
            const int n = node_of(p, event, from);
            const double seconds =
                (double)(event->end - event->begin) * 1e-9 / p->exec->topology.n_lanes;
            if (n < 0) {
                p->made[p->steps] += strcmp(event->name, EXEC_MAKING) == 0 ? seconds : 0;
                continue;
            }
            p->nodes[(size_t)n * MOST_STEPS + (size_t)p->steps] += seconds;
            from = n + 1;
        }
    }
    p->sums[p->steps] = exec_times(p->exec).comm / p->exec->topology.n_lanes;
}

/* A step whose instructions are timed. */
static enum status step(struct profiler *p, bool counts)
{
    struct exec_result result;

    exec_reset_times(p->exec);
    trace_switch(p->trace, true);
    TRY(exec_step(p->exec, p->config->batch, &result));
    TRY(exec_settle(p->exec));
    trace_switch(p->trace, false);
    if (counts)
        read_events(p);
    for (int i = 0; i < p->exec->topology.n_lanes; i++)
        p->exec->lanes[i].clock.trace->count = 0;
    p->steps += counts;
    return STATUS_OK;
}

/* Seconds of a step as training has them, one after the other, in some windows. */
static enum status time_steps(struct profiler *p, int windows, int steps, double *out)
{
    double seconds[WINDOWS];
    struct exec_result result;

    for (int w = 0; w < windows; w++) {
        const double began = clock_seconds();
        for (int i = 0; i < steps; i++)
            TRY(exec_step(p->exec, p->config->batch, &result));
        TRY(exec_settle(p->exec));
        seconds[w] = (clock_seconds() - began) / steps;
    }
    /* The median, as training has it: small steps have slow and fast windows with nothing else
     * running. */
    qsort(seconds, (size_t)windows, sizeof *seconds, compare);
    *out = seconds[windows / 2];
    return STATUS_OK;
}

/* Steps whose instructions are timed take half of the time, others the rest; of long steps there is
 * one that is timed. */
static enum status take_steps(struct profiler *p, double *out)
{
    const double half = p->config->seconds / 2, first = clock_seconds();

    TRY(step(p, false)); /* the first makes plans and touches memory */
    if (clock_seconds() - first < half)
        TRY(step(p, false));
    const double began = clock_seconds();
    do
        TRY(step(p, true));
    while (p->steps < MOST_STEPS && clock_seconds() - began < half);
    const double each = (clock_seconds() - began) / p->steps;
    if (each > p->config->seconds) {
        *out = each; /* what timing adds is nothing beside that */
        return STATUS_OK;
    }
    const int steps = (int)(half / WINDOWS / each), windows = (int)(half / each);
    return time_steps(p,
                      windows < 1         ? 1
                      : windows < WINDOWS ? windows
                                          : WINDOWS,
                      steps > 1 ? steps : 1, out);
}

static enum status measure(struct profiler *p, struct profile *out)
{
    TRY(take_steps(p, &out->step));
    TRY(mem_alloc((size_t)p->n_nodes + 1, sizeof *out->nodes, &out->nodes));
    out->rest = out->step;
    for (int n = 0; n < p->n_nodes; n++) {
        out->nodes[n] = quartile(p->nodes + (size_t)n * MOST_STEPS, p->steps);
        out->rest -= out->nodes[n];
    }
    out->sums = quartile(p->sums, p->steps);
    out->made = quartile(p->made, p->steps);
    out->rest -= out->sums + out->made;
    out->steps = p->steps;
    out->arena = exec_memory(p->exec).arena;
    return STATUS_OK;
}

enum status profile_run(const struct profile_config *config, struct profile *out)
{
    struct profiler *p;
    struct profile profile = { 0 };

    TRY(mem_alloc(1, sizeof *p, &p));
    p->config = config;
    enum status status = start(p);
    if (status == STATUS_OK)
        status = measure(p, &profile);
    stop(p);
    mem_free(p);
    if (status != STATUS_OK) {
        profile_release(&profile);
        return status;
    }
    *out = profile;
    return STATUS_OK;
}

/* The first steps make plans and touch memory; then windows of about a tenth of a second. */
static enum status time_whole_steps(struct profiler *p, double *out)
{
    double each;

    TRY(time_steps(p, 1, 2, &each));
    TRY(time_steps(p, 1, 2, &each));
    const int steps = (int)(p->config->seconds / WINDOWS / each);
    return time_steps(p, WINDOWS, steps > 1 ? steps : 1, out);
}

enum status profile_steps(const struct profile_config *config, double *out)
{
    struct profiler *p;

    BUG_ON(config->shards < config->lanes);
    TRY(mem_alloc(1, sizeof *p, &p));
    p->config = config;
    enum status status = start(p);
    if (status == STATUS_OK)
        status = time_whole_steps(p, out);
    stop(p);
    mem_free(p);
    return status;
}

/* Open shards ----------------------------------------------------------------------------- */

struct opener {
    const struct profile_config *config;
    struct profiler **lanes;
    struct profile *profiles;
    enum status *statuses;
};

/* One lane: steps for half of the time, as take_steps has them. */
static void open_on_lane(void *arg, int index)
{
    const struct opener *o = arg;
    struct profiler *p = o->lanes[index];

    p->config = o->config;
    o->statuses[index] = start(p);
    if (o->statuses[index] == STATUS_OK)
        o->statuses[index] = measure(p, &o->profiles[index]);
    stop(p);
}

static enum status open_on_lanes(struct opener *o, double *out)
{
    const int lanes = o->config->lanes;
    const int n_nodes = graph_node_count(o->config->graph);
    struct pool *pool;

    TRY(pool_create(lanes, &pool));
    pool_run(pool, open_on_lane, o);
    pool_destroy(pool);
    memset(out, 0, (size_t)n_nodes * sizeof *out);
    for (int i = 0; i < lanes; i++) {
        if (o->statuses[i] != STATUS_OK)
            return FAIL(o->statuses[i], "lanes with open shards cannot be timed");
        for (int n = 0; n < n_nodes; n++)
            out[n] += o->profiles[i].nodes[n] / (double)(lanes * o->config->open);
    }
    return STATUS_OK;
}

enum status profile_open(const struct profile_config *config, double *out)
{
    const size_t lanes = (size_t)config->lanes;
    struct opener o = { .config = config };

    BUG_ON(config->open < 1 || config->shards > 0);
    enum status status = mem_alloc(lanes, sizeof *o.lanes, &o.lanes);
    if (status == STATUS_OK)
        status = mem_alloc(lanes, sizeof *o.profiles, &o.profiles);
    if (status == STATUS_OK)
        status = mem_alloc(lanes, sizeof *o.statuses, &o.statuses);
    for (size_t i = 0; i < lanes && status == STATUS_OK; i++)
        status = mem_alloc(1, sizeof *o.lanes[i], &o.lanes[i]);
    if (status == STATUS_OK)
        status = open_on_lanes(&o, out);
    for (size_t i = 0; i < lanes; i++) {
        if (o.lanes)
            mem_free(o.lanes[i]);
        if (o.profiles)
            profile_release(&o.profiles[i]);
    }
    mem_free(o.lanes);
    mem_free(o.profiles);
    mem_free(o.statuses);
    return status;
}

void profile_release(struct profile *profile)
{
    mem_free(profile->nodes);
    *profile = (struct profile){ 0 };
}

/* Kernels by themselves ------------------------------------------------------------------- */

/* Some runs, after one that does not count. */
static enum status time_kernel(const struct kernel_problem *problem,
                               const struct kernel_choices *choices, double *out)
{
    const struct kernel *kernel;
    struct kernel_trial *trial;
    double runs[RUNS];

    TRY(kernel_choose(choices, problem, &kernel));
    TRY(kernel_trial_create(kernel, problem, KERNEL_FILL_NORMAL, 1, &trial));
    kernel_trial_run(trial);
    for (int i = 0; i < RUNS; i++) {
        const double began = clock_seconds();
        kernel_trial_run(trial);
        runs[i] = clock_seconds() - began;
    }
    kernel_trial_destroy(trial);
    *out = quartile(runs, RUNS);
    return STATUS_OK;
}

/* The first node whose problem reads the same: `n` itself, if none before it does. */
static int first_like(char *const *problems, int n)
{
    int first = 0;

    while (first < n && !(problems[first] && strcmp(problems[first], problems[n]) == 0))
        first++;
    return first;
}

static enum status time_node(const struct node *node, const struct shape *shapes,
                             const struct kernel_choices *choices, char **problems, int n,
                             double *out)
{
    struct kernel_problem problem = { 0 };
    char text[KERNEL_TEXT];

    plan_problem(node, shapes, &problem);
    TRY(mem_strdup(kernel_print(&problem, text), &problems[n]));
    const int first = first_like(problems, n);
    if (first < n)
        out[n] = out[first];
    else {
        const enum status status = time_kernel(&problem, choices, &out[n]);
        if (status == STATUS_UNSUPPORTED || status == STATUS_NOT_FOUND)
            out[n] = 0; /* the executor does it, not a kernel */
        else
            TRY(status);
    }
    return STATUS_OK;
}

static enum status time_kernels(const struct graph *graph, const struct kernel_choices *choices,
                                const struct shape *shapes, char **problems, double *out)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        out[n] = 0;
        if ((node->phase == PHASE_FORWARD || node->phase == PHASE_BACKWARD) &&
            !node->op->is_view && !node->op->meets && !node->op->talks &&
            node->n_in <= KERNEL_IN)
            TRY(time_node(node, shapes, choices, problems, n, out));
    }
    return STATUS_OK;
}

enum status profile_kernels(const struct graph *graph, const struct kernel_choices *choices,
                            double *out)
{
    const int n_values = graph_value_count(graph), n_nodes = graph_node_count(graph);
    char **problems = NULL;
    struct shape *shapes = NULL;

    enum status status = mem_alloc((size_t)n_nodes + 1, sizeof *problems, &problems);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)n_values + 1, sizeof *shapes, &shapes);
    for (int i = 0; status == STATUS_OK && i < n_values; i++)
        shapes[i] = graph_value(graph, i)->shape;
    if (status == STATUS_OK)
        status = time_kernels(graph, choices, shapes, problems, out);
    for (int n = 0; problems && n < n_nodes; n++)
        mem_free(problems[n]);
    mem_free(problems);
    mem_free(shapes);
    return status;
}

enum status profile_arena(const struct graph *graph, int64_t rows,
                          const struct kernel_choices *choices, size_t *out)
{
    struct extents extents = graph_extents(graph);
    struct plan_buckets buckets = { .count = pass_bucket_count(graph) };
    const struct plan_factors factors = { 0 };
    const struct plan_gathers gathers = { 0 };
    struct plan *plan;

    extents.rows = rows;
    for (int b = 0; b < buckets.count; b++)
        buckets.begin[b + 1] =
            buckets.begin[b] + shape_count(&pass_bucket_value(graph, b, "param")->shape);
    TRY(plan_create(graph, graph, extents, &buckets, &factors, &gathers, choices, &plan));
    *out = plan->arena_bytes;
    plan_destroy(plan);
    return STATUS_OK;
}
