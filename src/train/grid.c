/* SPDX-License-Identifier: MIT */
/* grid.c - groups of a grid of ranks, and tensors from whoever has them.
 *
 * A request names a tensor and goes to all ranks of the stage that has it: those of a group bring its state together if
 * machines hold it in parts (exec_collect_group), and the group's first sends it to rank 0.
 */
#include "train/grid.h"

#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"

enum { NOBODY = -1 };

struct grid {
    struct job *job;
    struct axes_place place;
    int rank;
    struct transport *transport; /* of all ranks */
    struct transport *same, *stages,
        *beside;                  /* groups along dp, along pp, and along tp and pp */
    int same_members[AXES_RANKS]; /* the first of them, as the job calls them */
    struct comm *comm;            /* of `same` */
    uint32_t tag;                 /* of requests; the next is of tensors */
    const struct value **params;
    int n_params;
    int group, what; /* that the executor has brought; group NOBODY: none */
};

/* Making it -------------------------------------------------------------------------------- */

static enum status list_params(struct grid *grid)
{
    const struct graph *graph = grid->job->graph;

    TRY(mem_alloc((size_t)graph_value_count(graph) + 1, sizeof *grid->params, &grid->params));
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE)
            grid->params[grid->n_params++] = value;
    }
    return STATUS_OK;
}

static enum status make_groups(struct grid *grid)
{
    const struct axes *axes = &grid->job->axes;
    int members[AXES_RANKS];

    const int n_same = axes_group(axes, grid->rank, AXIS_DP, grid->same_members);
    TRY(transport_group_create(grid->transport, grid->same_members, n_same, &grid->same));
    const int n_stages = axes_group(axes, grid->rank, AXIS_PP, members);
    TRY(transport_group_create(grid->transport, members, n_stages, &grid->stages));
    const int n_beside = axes_group(axes, grid->rank, AXIS_TP | AXIS_PP, members);
    TRY(transport_group_create(grid->transport, members, n_beside, &grid->beside));
    return comm_create(grid->same, NULL, &grid->comm);
}

enum status grid_create(struct job *job, struct transport *transport, struct grid **out)
{
    struct grid *grid;

    *out = NULL;
    if (!axes_are_a_grid(&job->axes))
        return STATUS_OK;
    TRY(mem_alloc(1, sizeof *grid, &grid));
    grid->job = job;
    grid->transport = transport;
    grid->rank = transport_rank(transport);
    grid->place = axes_place_of(&job->axes, grid->rank);
    grid->group = NOBODY;
    grid->tag = transport_new_tags(transport, 2);
    enum status status = job_take_place(job, grid->place);
    if (status == STATUS_OK)
        status = list_params(grid);
    if (status == STATUS_OK)
        status = make_groups(grid);
    if (status != STATUS_OK) {
        grid_destroy(grid);
        return status;
    }
    *out = grid;
    return STATUS_OK;
}

void grid_destroy(struct grid *grid)
{
    if (!grid)
        return;
    comm_destroy(grid->comm);
    transport_group_destroy(grid->same);
    transport_group_destroy(grid->stages);
    transport_group_destroy(grid->beside);
    mem_free(grid->params);
    mem_free(grid);
}

void grid_configure(const struct grid *grid, struct exec_config *config)
{
    if (!grid)
        return;
    const struct axes *axes = &grid->job->axes;
    config->train = grid->job->graph;
    config->eval = config->eval ? grid->job->eval_graph : NULL;
    config->comm = grid->comm;
    config->pipeline = (struct exec_pipeline){ .stages = axes->pp,
                                               .own = grid->place.pp,
                                               .kind = axes->pipeline,
                                               .chunks = axes->chunks,
                                               .transport = grid->stages };
    config->beside =
        (struct exec_beside){ .transport = grid->beside, .teller = (axes->pp - 1) * axes->tp };
}

struct axes_place grid_place(const struct grid *grid)
{
    return grid->place;
}

enum status grid_collect_times(const struct grid *grid, struct watch *watch,
                               const struct exec *exec, double load)
{
    double own[AXES_RANKS], all[AXES_RANKS] = { 0 };

    if (!grid)
        return watch_collect(watch, exec, load);
    const struct exec_times times = exec_times(exec);
    exec_waited_for(exec, own);
    for (int r = 0; r < transport_size(grid->same); r++)
        all[grid->same_members[r]] = own[r];
    return watch_bring(watch, &times, all, load);
}

int grid_param_count(const struct grid *grid)
{
    return grid->n_params;
}

const struct value *grid_param(const struct grid *grid, int i)
{
    return grid->params[i];
}

int grid_state_count(const struct grid *grid, int i)
{
    return grid->params[i]->kind == VALUE_PARAM ? optim_states(&grid->job->optim) : 0;
}

/* Tensors ------------------------------------------------------------------------------------ */

struct request {
    int32_t param, state; /* param NOBODY: there are no more */
};

/* The stage that has a parameter. */
static int holder_of(const struct grid *grid, int i)
{
    return grid->params[i]->stage < 0 ? 0 : grid->params[i]->stage % grid->job->axes.pp;
}

/* What the executor calls the model's parameter i. */
static int local_number(const struct exec *exec, int i)
{
    int local = 0;

    while (exec_param_number(exec, local) != i)
        local++;
    return local;
}

/* The ranks of a group together have a tensor on the first of them. */
static enum status bring(struct grid *grid, struct exec *exec, struct request request)
{
    const int group = request.param == NOBODY
                          ? NOBODY
                          : exec_group_of(exec, local_number(exec, request.param));
    const int what = request.state < 0 ? EXEC_PARAMS : EXEC_STATES;

    if (grid->group == group && grid->what == what)
        return STATUS_OK;
    if (grid->group != NOBODY)
        exec_forget_group(exec, grid->group);
    grid->group = group;
    grid->what = what;
    return group == NOBODY ? STATUS_OK : exec_collect_group(exec, group, what);
}

/* Asks all ranks of a stage, or of all stages (NOBODY), but this one. */
static enum status ask(const struct grid *grid, int stage, struct request request)
{
    for (int r = 0; r < transport_size(grid->transport); r++) {
        if (r != grid->rank &&
            (stage == NOBODY || axes_place_of(&grid->job->axes, r).pp == stage))
            TRY(transport_send(grid->transport, r, grid->tag, &request, sizeof request));
    }
    return STATUS_OK;
}

enum status grid_fetch(struct grid *grid, struct exec *exec, int i, int state, float *out)
{
    const struct request request = { i, state };
    const int stage = holder_of(grid, i);
    const size_t bytes = (size_t)shape_count(&grid->params[i]->shape) * sizeof *out;

    TRY(ask(grid, stage, request));
    if (stage != grid->place.pp)
        return transport_receive(
            grid->transport, axes_rank_at(&grid->job->axes, (struct axes_place){ .pp = stage }),
            grid->tag + 1, out, bytes);
    TRY(bring(grid, exec, request));
    exec_get(exec, local_number(exec, i), state, out);
    return STATUS_OK;
}

/* The first of a group sends what rank 0 has asked for. */
static enum status give(struct grid *grid, struct exec *exec, struct request request)
{
    const size_t count = (size_t)shape_count(&grid->params[request.param]->shape);
    float *plain;

    TRY(bring(grid, exec, request));
    if (grid->place.dp > 0 || grid->place.tp > 0)
        return STATUS_OK;
    TRY(mem_alloc(count, sizeof *plain, &plain));
    exec_get(exec, local_number(exec, request.param), request.state, plain);
    const enum status status =
        transport_send(grid->transport, 0, grid->tag + 1, plain, count * sizeof *plain);
    mem_free(plain);
    return status;
}

enum status grid_serve(struct grid *grid, struct exec *exec)
{
    for (;;) {
        struct request request;
        TRY(transport_receive(grid->transport, 0, grid->tag, &request, sizeof request));
        if (request.param == NOBODY)
            return bring(grid, exec, request);
        TRY(give(grid, exec, request));
    }
}

enum status grid_end(struct grid *grid, struct exec *exec)
{
    const struct request none = { NOBODY, NOBODY };

    TRY(ask(grid, NOBODY, none));
    return bring(grid, exec, none);
}

/* The hash ----------------------------------------------------------------------------------- */

/* All of a group must hold the same. */
static enum status compare(const struct grid *grid, struct exec *exec)
{
    enum { HASH = 64 };
    const int size = comm_size(grid->comm);
    char own[HASH + 1], *all;

    TRY(exec_hash(exec, own));
    TRY(mem_alloc((size_t)size, HASH, &all));
    enum status status =
        comm_all_gather(grid->comm, own, all, HASH / sizeof(int64_t), DTYPE_I64);
    for (int r = 0; r < size && status == STATUS_OK; r++) {
        if (memcmp(all + (size_t)r * HASH, own, HASH) != 0)
            status = FAIL(STATUS_MISMATCH,
                          "rank %d has other weights (%.16s) than rank %d (%.16s) at the end",
                          grid->same_members[r], all + (size_t)r * HASH, grid->rank, own);
    }
    mem_free(all);
    return status;
}

static enum status hash_all(struct grid *grid, struct exec *exec, struct sha256 *hash)
{
    float *plain;

    for (int i = 0; i < grid->n_params; i++) {
        TRY(mem_alloc((size_t)shape_count(&grid->params[i]->shape), sizeof *plain, &plain));
        const enum status status = grid_fetch(grid, exec, i, -1, plain);
        if (status == STATUS_OK)
            exec_hash_add(hash, grid->params[i], plain);
        mem_free(plain);
        TRY(status);
    }
    return grid_end(grid, exec);
}

enum status grid_hash(struct grid *grid, struct exec *exec, char out[65])
{
    struct sha256 hash;

    TRY(compare(grid, exec));
    if (grid->rank != 0)
        return grid_serve(grid, exec);
    sha256_init(&hash);
    TRY(hash_all(grid, exec, &hash));
    sha256_end_hex(&hash, out);
    return STATUS_OK;
}
