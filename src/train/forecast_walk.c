/* SPDX-License-Identifier: MIT */
/* forecast_walk.c - predicts a step of ranks that all have the whole model.
 *
 * The graph after the strategy's passes is lowered as for a run, and its tasks are walked.
 *
 * Workers that train alone walk a step of their own; what they exchange is added (cost_exchange).
 */
#include <string.h>

#include "base/mem.h"
#include "sched/lower.h"
#include "sched/walk.h"
#include "train/planner.h"

/* A row's step. */
struct step {
    struct planner *p;
    const struct forecast_row *row;
    const struct planner_work *w;
    struct axes axes;
    const struct planner_program *lowered; /* the planner's */
    struct task_work *works;
};

static bool trains_alone(const struct cost_choice *choice)
{
    return choice->servers > 0 || choice->interval > 1 || choice->neighbors > 0;
}

/* Workers push to servers in each step. */
static bool pushes(const struct cost_choice *choice)
{
    return choice->servers > 0 && choice->interval == 1;
}

static struct lower_topology topology_of(const struct planner *p,
                                         const struct cost_choice *choice)
{
    const struct cost_cluster *cluster = &p->plan->machine.cluster;
    const int nodes = trains_alone(choice) ? 1 : cluster->shares ? cluster->nodes : choice->dp;
    const int ranks = trains_alone(choice) ? 1 : choice->dp;
    const int node_ranks = ranks > nodes ? ranks / nodes : 1;
    const bool leads = strcmp(p->job->settings.rails, "leaders") == 0;

    return (struct lower_topology){ .nodes = nodes,
                                    .node_ranks = node_ranks,
                                    .lanes = choice->lanes,
                                    .rails = nodes == 1 ? 0
                                             : leads    ? 1
                                                        : node_ranks };
}

/* Graph and program ------------------------------------------------------------------------- */

/* A row's step follows from its key; rows with the same key are walked once. */
static struct planner_key key_of(const struct planner *p, const struct forecast_row *row,
                                 const struct axes *axes, const struct planner_work *w,
                                 int64_t shards)
{
    const struct cost_choice *choice = &row->choice;
    const struct strategy *strategy = strategy_find(row->strategy);
    const struct lower_topology topology = topology_of(p, choice);
    const bool is_single = choice->dp == 1 || (trains_alone(choice) && !pushes(choice));

    return (struct planner_key){
        .passes = is_single ? NULL : strategy_passes(strategy, axes, topology.nodes > 1),
        .w = w,
        .topology = topology,
        .shards = shards,
        .zero = choice->zero >= 2 ? choice->zero : 0,
        .decided = strategy_has_pass(strategy, &pass_parallax) ? topology.nodes : 0,
        .team = choice->team,
    };
}

/* The first pass of a list that tasks on so many nodes depend on. Levels between nodes say nothing
 * on one node; what servers wait for is no part of a walk (cost_exchange). */
static const struct pass *const *skip(const struct pass *const *passes, int nodes)
{
    while (*passes == &pass_step || *passes == &pass_async || *passes == &pass_bounded ||
           (*passes == &pass_hierarchy && nodes == 1))
        passes++;
    return passes;
}

/* Lists that differ may make the same tasks. */
static bool have_same_passes(const struct planner_key *a, const struct planner_key *b)
{
    const int an = a->topology.nodes, bn = b->topology.nodes, nodes = an > bn ? an : bn;
    const struct pass *const *ap = a->passes, *const *bp = b->passes;

    if (!ap || !bp)
        return ap == bp;
    ap = skip(ap, nodes), bp = skip(bp, nodes);
    while (*ap && *ap == *bp)
        ap = skip(ap + 1, nodes), bp = skip(bp + 1, nodes);
    return *ap == *bp;
}

/* The same nodes. The samples of a step decide which gradients go as factors; synchronized batch
 * norms have a table of all shards. */
static bool is_same_graph(const struct planner *p, const struct planner_key *a,
                          const struct planner_key *b)
{
    const bool by_shards =
        (a->w->factors && a->w->has_factors) || p->job->settings.sync_batch_norm;

    return have_same_passes(a, b) && a->w == b->w && (a->zero == 3) == (b->zero == 3) &&
           a->decided == b->decided && (!by_shards || a->shards == b->shards);
}

/* The same tasks: any number of nodes above one makes the same. */
static bool is_same_program(const struct planner *p, const struct planner_key *a,
                            const struct planner_key *b)
{
    const struct lower_topology *at = &a->topology, *bt = &b->topology;

    return is_same_graph(p, a, b) && a->zero == b->zero && (at->nodes > 1) == (bt->nodes > 1) &&
           at->node_ranks == bt->node_ranks && at->lanes == bt->lanes && at->rails == bt->rails;
}

static bool is_same_step(const struct planner *p, const struct planner_key *a,
                         const struct planner_key *b)
{
    return is_same_program(p, a, b) && a->shards == b->shards && a->team == b->team &&
           a->topology.nodes == b->topology.nodes;
}

static enum status run_passes(const struct step *step, const struct planner_key *key,
                              struct graph **out)
{
    const struct job *job = step->p->job;
    const struct forecast_row *row = step->row;
    const struct cost_link *link = &step->p->plan->machine.cluster.between;
    const struct pass_network network = { .nodes = key->topology.nodes,
                                          .latency = link->latency,
                                          .bandwidth = link->bandwidth };
    const int64_t all = pushes(&row->choice) ? key->shards * row->choice.dp : key->shards;

    return job_make_step_graph(job, strategy_find(row->strategy), &step->axes,
                               (struct axes_place){ 0 }, &network,
                               job->settings.batch / step->w->shards, all, out);
}

/* Without passes of its own it is like the graph that was timed. */
static enum status make_graph(const struct step *step, const struct planner_key *key,
                              struct planner_graph *out)
{
    const struct planner_work *w = step->w;

    *out = (struct planner_graph){ .key = *key };
    if (key->passes)
        TRY(run_passes(step, key, &out->graph));
    else
        TRY(job_make_graph(step->p->job, w->shards, w->factors, &out->graph));
    enum status status = mem_alloc((size_t)graph_node_count(out->graph) + 1,
                                   sizeof *out->seconds, &out->seconds);
    if (status != STATUS_OK) {
        graph_destroy(out->graph);
        return status;
    }
    planner_time_like(w, out->graph, out->seconds);
    return STATUS_OK;
}

static enum status find_graph(const struct step *step, const struct planner_key *key,
                              const struct planner_graph **out)
{
    struct planner *p = step->p;

    for (int i = 0; i < p->n_graphs; i++) {
        if (is_same_graph(p, &p->graphs[i].key, key)) {
            *out = &p->graphs[i];
            return STATUS_OK;
        }
    }
    TRY(make_graph(step, key, &p->graphs[p->n_graphs]));
    *out = &p->graphs[p->n_graphs++];
    return STATUS_OK;
}

static enum status lower(const struct step *step, const struct planner_key *key,
                         const struct graph *graph, struct program **out)
{
    const struct cost_choice *choice = &step->row->choice;
    const struct lower_config config = {
        .topology = key->topology,
        .compresses = step->p->job->compress.codec && !trains_alone(choice),
        .gives = pushes(choice),
        .releases = choice->zero >= 2,
        .has_steps = true,
    };

    return program_lower(graph, &config, out);
}

void planner_release_programs(struct planner *p)
{
    while (p->n_programs > 0)
        program_destroy(p->programs[--p->n_programs].program);
    while (p->n_graphs > 0) {
        struct planner_graph *graph = &p->graphs[--p->n_graphs];
        graph_destroy(graph->graph);
        mem_free(graph->seconds);
    }
}

static enum status make_program(const struct step *step, const struct planner_key *key,
                                struct planner_program *out)
{
    *out = (struct planner_program){ .key = *key };
    TRY(find_graph(step, key, &out->graph));
    return lower(step, key, out->graph->graph, &out->program);
}

/* One that the planner keeps for rows to come. */
static enum status find_program(struct step *step, const struct planner_key *key)
{
    struct planner *p = step->p;
    struct planner_program *lowered = NULL;

    for (int i = 0; i < p->n_programs && !lowered; i++)
        lowered = is_same_program(p, &p->programs[i].key, key) ? &p->programs[i] : NULL;
    if (!lowered) {
        if (p->n_programs == PLANNER_PROGRAMS || p->n_graphs == PLANNER_PROGRAMS)
            planner_release_programs(p);
        lowered = &p->programs[p->n_programs];
        TRY(make_program(step, key, lowered));
        p->n_programs++;
    }
    lowered->program->topology = key->topology;
    step->lowered = lowered;
    return STATUS_OK;
}

static enum status read_works(struct step *step, int64_t shards)
{
    const struct program *program = step->lowered->program;
    struct work_config config = { .shards = shards, .window = cost_window };

    TRY(job_compressed_share(step->p->job, &config.compressed));
    TRY(mem_alloc((size_t)program->n_tasks + 1, sizeof *step->works, &step->works));
    return program_work(program, step->lowered->graph->graph, &config, step->works);
}

/* The walk ---------------------------------------------------------------------------------- */

static enum status walk(struct step *step, const struct planner_key *key,
                        const struct cost_work *work, struct walk_result *out)
{
    struct cost_work own = *work;

    own.shards = key->shards;
    TRY(find_program(step, key));
    TRY(read_works(step, key->shards));
    return walk_run(&(struct walk_config){ .program = step->lowered->program,
                                           .graph = step->lowered->graph->graph,
                                           .works = step->works,
                                           .node_seconds = step->lowered->graph->seconds,
                                           .work = &own,
                                           .cluster = &step->p->plan->machine.cluster,
                                           .team = step->row->choice.team,
                                           .crowding = step->p->plan->machine.cluster.crowding,
                                           .link = &step->p->plan->machine.cluster.between },
                    out);
}

/* Walks the row's step, unless one like it has been. */
static enum status find_walk(struct planner *p, const struct forecast_row *row,
                             const struct planner_work *w, const struct cost_work *work,
                             struct walk_result *out)
{
    const int dp = trains_alone(&row->choice) ? row->choice.dp : 1;
    struct step step = { .p = p, .row = row, .w = w };

    TRY(strategy_check(strategy_find(row->strategy), row->choice.dp, NULL, NULL, NULL,
                       &step.axes));
    step.axes.zero = row->choice.zero;
    const struct planner_key key = key_of(p, row, &step.axes, w, (work->shards + dp - 1) / dp);
    for (int i = 0; i < p->n_walks; i++) {
        if (is_same_step(p, &p->walks[i].key, &key)) {
            *out = p->walks[i].result;
            return STATUS_OK;
        }
    }
    const enum status status = walk(&step, &key, work, out);
    mem_free(step.works);
    if (status == STATUS_OK && p->n_walks < PLANNER_WALKS)
        p->walks[p->n_walks++] = (struct planner_walked){ key, *out };
    return status;
}

/* Lanes of ranks that are in step wait for each other beside their sums once a step, whatever they
 * do in it. */
static double meeting_of(const struct forecast_row *row, const struct cost_work *work,
                         const struct cost_cluster *cluster)
{
    const double meeting = trains_alone(&row->choice) ? 0 : work->meeting;

    return meeting * cluster->crowding / cluster->speed;
}

enum status planner_walk(struct planner *p, const struct forecast_row *row,
                         const struct planner_work *w, const struct cost_work *work,
                         struct cost_estimate *out)
{
    const struct cost_cluster *cluster = &p->plan->machine.cluster;
    const double meeting = meeting_of(row, work, cluster);
    struct walk_result walked;

    TRY(find_walk(p, row, w, work, &walked));
    *out = (struct cost_estimate){ .seconds = walked.seconds + meeting,
                                   .compute = walked.compute + meeting,
                                   .bytes = walked.bytes };
    if (trains_alone(&row->choice))
        cost_exchange(work, cluster, &row->choice, out);
    cost_memory(work, cluster, &row->choice, out);
    return STATUS_OK;
}
