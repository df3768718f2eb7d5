/* SPDX-License-Identifier: MIT */
/* forecast_grid.c - predicts a step of a grid of ranks (tp x pp > 1).
 *
 * The strategy's passes run for one rank of each stage: its copies do the same at the same time,
 * and so do its peers that share its layers. What each is left with is lowered as for a run, and
 * the programs are walked together.
 *
 * Seconds of nodes are those of the whole model. With layers that ranks share, forward and backward
 * take the share of it that was found for all layers together (planner_share).
 */
#include "base/mem.h"
#include "graph/op.h"
#include "sched/lower.h"
#include "sched/walk.h"
#include "train/planner.h"

static bool is_one_machine(const struct planner *p)
{
    const struct cost_cluster *cluster = &p->plan->machine.cluster;

    return cluster->shares && cluster->nodes == 1;
}

/* Machines elsewhere may have more ranks than a --split can name. */
static struct axes axes_of(const struct cost_choice *choice)
{
    return (struct axes){ .dp = choice->dp,
                          .tp = choice->tp,
                          .pp = choice->pp,
                          .zero = choice->zero,
                          .pipeline = choice->pipeline,
                          .chunks = choice->chunks,
                          .sync = SYNC_STEP,
                          .meet = choice->dp > 1 ? MEET_ALLREDUCE : MEET_NONE };
}

/* Copies share memory if the whole job is on one machine (train/grid.c); else each is a node. */
static struct lower_topology topology_of(const struct planner *p, int dp)
{
    const int nodes = is_one_machine(p) ? 1 : dp;

    return (struct lower_topology){
        .nodes = nodes, .node_ranks = dp / nodes, .lanes = 1, .rails = nodes > 1 ? 1 : 0
    };
}

/* Graphs and programs ------------------------------------------------------------------------ */

/* Seconds of a phase of the whole model become those of a rank's share. */
static void scale_phase(const struct planner_work *w, const struct graph *graph,
                        enum phase phase, double share, double *seconds)
{
    double whole = 0, like = 0;

    for (int n = 0; n < graph_node_count(w->graph); n++)
        whole += graph_node(w->graph, n)->phase == phase ? w->nodes[n] : 0;
    for (int n = 0; n < graph_node_count(graph); n++)
        like += graph_node(graph, n)->phase == phase ? seconds[n] : 0;
    for (int n = 0; n < graph_node_count(graph); n++) {
        if (graph_node(graph, n)->phase == phase && like > 0)
            seconds[n] *= share * whole / like;
    }
}

/* What ranks tell each other is priced by its bytes. */
static void time_nodes(const struct planner_work *w, const struct cost_choice *choice,
                       const struct graph *graph, double *out)
{
    static const struct cost_sharing alone = { .forward = 1, .backward = 1, .params = 1 };
    const struct cost_sharing *sharing = choice->tp > 1 ? &choice->sharing : &alone;

    planner_time_like(w, graph, out);
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op->moves || node->op->talks)
            out[n] = 0;
        else if (node->phase != PHASE_FORWARD && node->phase != PHASE_BACKWARD)
            out[n] *= sharing->params;
    }
    scale_phase(w, graph, PHASE_FORWARD, sharing->forward, out);
    scale_phase(w, graph, PHASE_BACKWARD, sharing->backward, out);
}

static enum status lower(const struct planner *p, const struct planner_grid_key *key, int own,
                         bool releases, struct planner_stage *stage)
{
    const struct lower_config config = {
        .topology = topology_of(p, key->dp),
        .compresses = p->job->compress.codec != NULL,
        .releases = releases,
        .has_steps = true,
        .shares_tensor = key->tp > 1 && is_one_machine(p),
        .pipeline = { .stages = key->pp > 1 ? key->pp : 0, .chunks = key->chunks, .own = own },
    };
    struct work_config how = { .shards = key->shards,
                               .window = cost_window,
                               .tensor = key->tp };
    struct program **program = &stage->program[releases];
    struct task_work **works = &stage->works[releases];

    if (*works)
        return STATUS_OK;
    TRY(job_compressed_share(p->job, &how.compressed));
    if (!*program)
        TRY(program_lower(stage->graph, &config, program));
    TRY(mem_alloc((size_t)(*program)->n_tasks + 1, sizeof **works, works));
    return program_work(*program, stage->graph, &how, *works);
}

static enum status make_graph(const struct planner *p, const struct forecast_row *row,
                              const struct planner_grid_key *key, int own,
                              struct planner_stage *stage)
{
    const struct pass_network network = { .nodes = key->nodes };
    const struct axes_place place = { .pp = own };
    const struct axes axes = axes_of(&row->choice);

    return job_make_step_graph(p->job, strategy_find(row->strategy), &axes, place, &network,
                               key->rows, key->shards, &stage->graph);
}

static void release_grid(struct planner_grid *grid)
{
    for (int s = 0; grid->stages && s < grid->key.pp; s++) {
        struct planner_stage *stage = &grid->stages[s];
        for (int i = 0; i < 2; i++) {
            program_destroy(stage->program[i]);
            mem_free(stage->works[i]);
        }
        graph_destroy(stage->graph);
    }
    mem_free(grid->stages);
    *grid = (struct planner_grid){ 0 };
}

void planner_release_grids(struct planner *p)
{
    for (int i = 0; i < p->n_grids; i++)
        release_grid(&p->grids[i]);
    p->n_grids = p->next_grid = 0;
}

static enum status make_grid(const struct planner *p, const struct forecast_row *row,
                             const struct planner_grid_key *key, struct planner_grid *grid)
{
    *grid = (struct planner_grid){ .key = *key };
    enum status status = mem_alloc((size_t)key->pp, sizeof *grid->stages, &grid->stages);
    for (int s = 0; s < key->pp && status == STATUS_OK; s++)
        status = make_graph(p, row, key, s, &grid->stages[s]);
    if (status != STATUS_OK)
        release_grid(grid);
    return status;
}

static bool is_same(const struct planner_grid_key *a, const struct planner_grid_key *b)
{
    return a->dp == b->dp && a->tp == b->tp && a->pp == b->pp && a->chunks == b->chunks &&
           a->nodes == b->nodes && a->holds == b->holds && a->rows == b->rows &&
           a->shards == b->shards;
}

/* gpipe and 1f1b have the same programs; gradients in parts do not change the graph. */
static enum status find_grid(struct planner *p, const struct forecast_row *row,
                             const struct planner_grid_key *key, struct planner_grid **out)
{
    for (int i = 0; i < p->n_grids; i++) {
        if (is_same(&p->grids[i].key, key)) {
            *out = &p->grids[i];
            return STATUS_OK;
        }
    }
    struct planner_grid *grid = &p->grids[p->next_grid];
    if (p->next_grid < p->n_grids)
        release_grid(grid);
    TRY(make_grid(p, row, key, grid));
    p->next_grid = (p->next_grid + 1) % PLANNER_GRIDS;
    p->n_grids = p->n_grids < PLANNER_GRIDS ? p->n_grids + 1 : PLANNER_GRIDS;
    *out = grid;
    return STATUS_OK;
}

/* The walk ----------------------------------------------------------------------------------- */

/* Stages that have a core at a time, where there are more threads than cores; 0: all. */
static int at_once(const struct planner *p, int stages)
{
    const double crowding = p->plan->machine.cluster.crowding;
    const int many = (int)(stages / crowding);

    return crowding > 1 && stages > 1 ? (many > 1 ? many : 1) : 0;
}

/* How much longer a stage takes beside that: the ranks of a stage share cores among themselves. */
static double crowding_of(const struct planner *p, int stages)
{
    const double crowding = p->plan->machine.cluster.crowding;

    return at_once(p, stages) ? crowding * at_once(p, stages) / stages : crowding;
}

static struct walk_config config_of(const struct planner *p, const struct cost_choice *choice,
                                    const struct planner_stage *stage,
                                    const double *node_seconds, const struct cost_work *work)
{
    const struct cost_cluster *cluster = &p->plan->machine.cluster;
    const bool releases = choice->zero >= 2;

    return (struct walk_config){ .program = stage->program[releases],
                                 .graph = stage->graph,
                                 .works = stage->works[releases],
                                 .node_seconds = node_seconds,
                                 .work = work,
                                 .cluster = cluster,
                                 .team = choice->team,
                                 .crowding = crowding_of(p, choice->pp),
                                 .link = cost_link_over(cluster, choice->tp * choice->dp),
                                 .peers = cost_link_over(cluster, choice->tp),
                                 .tensor = choice->tp };
}

static enum status walk_alone(const struct walk_config *config, struct cost_estimate *out)
{
    struct walk_result walked;

    TRY(walk_run(config, &walked));
    out->seconds = walked.seconds;
    out->compute = walked.compute;
    out->bytes = walked.bytes;
    out->bubble = 0;
    return STATUS_OK;
}

static enum status walk_stages(const struct planner *p, const struct cost_choice *choice,
                               const struct walk_config *stages, struct cost_estimate *out,
                               struct walk_timeline *timeline)
{
    const struct cost_cluster *cluster = &p->plan->machine.cluster;
    struct walk_pipe_result walked;

    TRY(walk_pipe(
        &(struct walk_pipe_config){ .stages = stages,
                                    .pipe = { .kind = choice->pipeline,
                                              .stages = choice->pp,
                                              .chunks = choice->chunks,
                                              .shards = stages->work->shards / choice->dp },
                                    .link =
                                        cost_link_over(cluster, 2 * choice->tp * choice->dp),
                                    .at_once = at_once(p, choice->pp) },
        &walked, timeline));
    out->seconds = walked.seconds;
    out->compute = walked.compute;
    out->bubble = walked.bubble;
    out->bytes = walked.bytes;
    return STATUS_OK;
}

static size_t count_nodes(const struct planner_grid *grid)
{
    size_t count = 0;

    for (int s = 0; s < grid->key.pp; s++)
        count += (size_t)graph_node_count(grid->stages[s].graph);
    return count;
}

/* Lowers stages that are not, and says what each is walked with; seconds has room for all nodes. */
static enum status list_stages(const struct planner *p, const struct forecast_row *row,
                               const struct planner_work *w, struct planner_grid *grid,
                               const struct cost_work *work, double *seconds,
                               struct walk_config *out)
{
    for (int s = 0; s < grid->key.pp; s++) {
        struct planner_stage *stage = &grid->stages[s];
        TRY(lower(p, &grid->key, s, row->choice.zero >= 2, stage));
        time_nodes(w, &row->choice, stage->graph, seconds);
        out[s] = config_of(p, &row->choice, stage, seconds, work);
        seconds += graph_node_count(stage->graph);
    }
    return STATUS_OK;
}

/* Copies that share memory wait for each other beside their sums, as lanes of one program do. */
static double meeting_of(const struct planner *p, const struct cost_choice *choice,
                         const struct cost_work *work)
{
    const struct cost_cluster *cluster = &p->plan->machine.cluster;

    return choice->dp > 1 && is_one_machine(p) && work->meeting > 0
               ? work->meeting * cluster->crowding / cluster->speed
               : 0;
}

enum status planner_walk_grid(struct planner *p, const struct forecast_row *row,
                              const struct planner_work *w, const struct cost_work *work,
                              struct cost_estimate *out, struct walk_timeline *timeline)
{
    const struct cost_choice *choice = &row->choice;
    const int nodes = is_one_machine(p) ? 1 : choice->dp;
    const struct planner_grid_key key = { .dp = choice->dp,
                                          .tp = choice->tp,
                                          .pp = choice->pp,
                                          .chunks = choice->chunks,
                                          .nodes = nodes,
                                          .holds = choice->zero == 3 && nodes > 1,
                                          .rows = p->job->settings.batch / w->shards,
                                          .shards = work->shards };
    struct walk_config *stages;
    struct planner_grid *grid;
    double *seconds;

    TRY(find_grid(p, row, &key, &grid));
    TRY(mem_alloc((size_t)choice->pp, sizeof *stages, &stages));
    enum status status = mem_alloc(count_nodes(grid) + 1, sizeof *seconds, &seconds);
    if (status == STATUS_OK) {
        status = list_stages(p, row, w, grid, work, seconds, stages);
        if (status == STATUS_OK)
            status = choice->pp > 1 ? walk_stages(p, choice, stages, out, timeline)
                                    : walk_alone(stages, out);
        mem_free(seconds);
    }
    mem_free(stages);
    if (status == STATUS_OK)
        out->seconds += meeting_of(p, choice, work);
    return status;
}
