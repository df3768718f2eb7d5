/* SPDX-License-Identifier: MIT */
/* forecast_memory.c - refuses what has no room before it starts, and says what would have. */
#include <math.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/room.h"
#include "exec/exec.h"
#include "train/on_device.h"
#include "train/planner.h"
#include "transport/launch.h"

enum { MOST_RANKS = 64 };
/* A refusal comes within a second: advice that takes longer to find is left out. */
static const double ADVICE_SECONDS = 0.4;

/* Of the job as it is, on each of its ranks. */
static enum status predict_own(struct planner *p, struct cost_estimate *out)
{
    const struct axes *axes = &p->job->axes;
    struct planner_work *w;
    struct cost_choice choice = {
        .dp = axes->dp,
        .tp = axes->tp,
        .pp = axes->pp,
        .zero = axes->zero,
        .servers = axes->servers,
        .waits = axes->sync == SYNC_STEP,
        .interval = axes->interval > 1 ? axes->interval : 1,
        .neighbors = axes_neighbors(axes),
        .lanes = axes_are_a_grid(axes) ? 1 : p->lanes,
        .team = 1,
        .pipeline = axes->pipeline,
        .chunks = axes->chunks > 1 ? axes->chunks : 1,
    };

    TRY(planner_work(p, p->job->settings.shards, 1, job_has_factors(p->job), false, &w));
    if (axes->tp > 1)
        TRY(planner_share(p, axes->tp, w, &choice.sharing));
    if (axes_are_a_grid(axes))
        return cost_grid(&w->work, &p->plan->machine.cluster, &choice, out);
    cost_memory(&w->work, &p->plan->machine.cluster, &choice, out);
    return STATUS_OK;
}

/* More than a rank can need at all: gradients and state as if nothing were shared, all values of
 * the graph at once. */
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

/* Among the rows for so many ranks the fastest that fits; -1: none. */
static enum status find_room(struct planner *p, int ranks, int *out)
{
    const struct settings *s = &p->job->settings;
    struct forecast *plan = p->plan;

    plan->ranks = ranks;
    plan->machine.cluster.ranks = ranks;
    plan->machine.cluster.memory = machine_memory(s->flat ? ranks : 1, (double)s->memory);
    TRY(planner_fill_rows(p));
    *out = planner_fastest(plan, planner_can_choose);
    return STATUS_OK;
}

/* What would have room: the fewest ranks that do. */
static enum status advise(struct planner *p, double needs)
{
    const struct settings *s = &p->job->settings;
    const double has = p->plan->machine.cluster.memory;
    char text[3][32];

    p->deadline = clock_seconds() + ADVICE_SECONDS;
    for (int ranks = (int)s->ranks; ranks <= MOST_RANKS && !p->is_late; ranks *= 2) {
        int row;
        TRY(find_room(p, ranks, &row));
        if (row < 0)
            continue;
        const struct forecast_row *found = &p->plan->rows[row];
        return FAIL(STATUS_NO_MEMORY,
                    "%s with %s does not fit: a rank needs %s and has %s: use -n %d --strategy "
                    "%s%s%s%s%s, which needs %s (tutti plan %s -n %d)",
                    s->model, s->strategy, planner_bytes(needs, text[0]),
                    planner_bytes(has, text[1]), ranks, found->strategy,
                    *found->split ? " --split " : "", found->split,
                    *found->pipeline ? " --pipeline " : "", found->pipeline,
                    planner_bytes(found->cost.memory, text[2]), s->model, ranks);
    }
    if (p->is_late)
        return FAIL(
            STATUS_NO_MEMORY,
            "%s with %s does not fit: a rank needs %s and has %s: try a smaller --batch, "
            "more --shards or --recompute, or look for a way to split it (tutti plan %s -n "
            "N --guess)",
            s->model, s->strategy, planner_bytes(needs, text[0]), planner_bytes(has, text[1]),
            s->model);
    return FAIL(
        STATUS_NO_MEMORY,
        "%s with %s does not fit: a rank needs %s and has %s, and no way to split it "
        "among up to 64 ranks does: try a smaller --batch, more --shards or --recompute",
        s->model, s->strategy, planner_bytes(needs, text[0]), planner_bytes(has, text[1]));
}

/* Data is there already, once for all ranks that are started here; batches come with each rank. */
static enum status check_left(const struct job *job, double needs, bool is_here)
{
    const struct settings *s = &job->settings;
    const int ranks = is_here ? (int)s->ranks : 1;
    const double left = room_left(), data = (double)job_data_bytes(job);
    const double batches = (double)job_batch_bytes(job);
    const double all = (s->flat && is_here ? ranks * needs : needs) + batches;
    char text[3][32];

    if (all <= left)
        return STATUS_OK;
    return FAIL(
        STATUS_NO_MEMORY,
        "%s with %s needs %s of memory beside its data (%s), and %s are left: try a "
        "smaller --batch, more --shards, --recompute, or more ranks with their parameters "
        "in parts (tutti plan %s -n N)",
        s->model, s->strategy, planner_bytes(all, text[0]), planner_bytes(data, text[1]),
        planner_bytes(left, text[2]), s->model);
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
    struct cost_estimate needs = { 0 };

    if (on_device(job)) /* whose memory is another; it says itself what has no room */
        return STATUS_OK;
    if (s->sync_batch_norm || most_memory(job, lanes) < fmin(has, room_left()))
        return STATUS_OK;
    plan.machine.cluster = (struct cost_cluster){ .nodes = 1,
                                                  .ranks = (int)s->ranks,
                                                  .shares = !s->flat,
                                                  .crowding = 1,
                                                  .speed = 1,
                                                  .memory = has,
                                                  .within = machine_usual_network,
                                                  .between = machine_usual_network };
    TRY(mem_alloc(PLANNER_ROWS, sizeof *plan.rows, &plan.rows));
    enum status status = STATUS_OK; /* what cannot be predicted is left to try */
    if (predict_own(&p, &needs) == STATUS_OK && needs.memory > has)
        status = advise(&p, needs.memory);
    else if (needs.memory > 0)
        status = check_left(job, needs.memory, is_here);
    planner_release(&p);
    mem_free(plan.rows);
    return status;
}
