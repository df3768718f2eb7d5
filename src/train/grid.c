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
#include "train/timeline.h"

enum { NOBODY = -1, GRID_TAGS = 2, GRID_GROUPS = 4 };

struct grid {
    struct job *job;
    struct axes_place place;
    int rank;
    struct transport *transport; /* of all ranks */
    struct transport *same, *stages,
        *beside;              /* groups along dp, along pp, and along tp and pp */
    struct transport *shared; /* group along tp */
    uint32_t shared_tag, stages_tag;
    char *memory;                 /* of ranks that share layers, or NULL */
    int same_members[AXES_RANKS]; /* the first of them, as the job calls them */
    struct comm *comm;            /* of `same` */
    uint32_t tag;                 /* of requests; the next is of tensors */
    struct value *params; /* whole, as files have them, but for this rank's slice of each */
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
        if (value->kind != VALUE_PARAM && value->kind != VALUE_AVERAGE)
            continue;
        struct value *whole = &grid->params[grid->n_params++];
        *whole = *value;
        whole->shape = slice_whole_shape(&value->slice, &value->shape);
    }
    return STATUS_OK;
}

/* Ranks that hold the same, if the whole job is on one machine, share memory there: each group has a part of half the addresses
 * that are left. With servers they have no executor together. */
static enum status join_same(struct grid *grid)
{
    const struct axes *axes = &grid->job->axes;
    const size_t page = 4096, groups = (size_t)(axes->tp * axes->pp);
    const size_t each = transport_room(grid->transport) / 2 / groups / page * page;
    const size_t number = (size_t)(grid->place.pp * axes->tp + grid->place.tp);
    void *memory;

    if (axes->dp == 1 || axes->servers || !transport_shares_memory(grid->transport))
        return STATUS_OK;
    TRY(transport_share(grid->transport, groups * each, &memory));
    transport_group_join(grid->same, (char *)memory + number * each, each);
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
    const int n_shared = axes_group(axes, grid->rank, AXIS_TP, members);
    TRY(transport_group_create(grid->transport, members, n_shared, &grid->shared));
    grid->shared_tag = transport_new_tags(grid->shared, 1);
    grid->stages_tag = transport_new_tags(grid->stages, 1);
    return STATUS_OK;
}

/* Memory through which ranks that share layers talk, if all are on one machine, and what each has of it; NULL: there is
 * none. Collective, of all ranks of the machine. */
static enum status share_memory(const struct job *job, struct transport *transport,
                                size_t *out_each, char **out)
{
    const struct settings *s = &job->settings;
    const size_t ranks = (size_t)transport_size(transport);
    void *memory = NULL;

    *out_each = exec_tensor_bytes(exec_lanes_of(s->shards, job->axes.dp, (int)s->threads));
    if (job->axes.tp > 1 && transport_shares_memory(transport))
        TRY(transport_share(transport, ranks * *out_each, &memory));
    *out = memory;
    return STATUS_OK;
}

/* Ranks that share layers are in a row. */
static enum status find_memory(struct grid *grid)
{
    const int tp = grid->job->axes.tp;
    size_t each;

    TRY(share_memory(grid->job, grid->transport, &each, &grid->memory));
    if (grid->memory)
        grid->memory += (size_t)(grid->rank / tp * tp) * each;
    return STATUS_OK;
}

/* Tags and memory are those that grid_create takes. */
enum status grid_stand_by(const struct job *job, struct transport *transport)
{
    size_t each;
    char *memory;

    (void)transport_new_tags(transport, GRID_TAGS);
    for (int group = 0; group < GRID_GROUPS; group++)
        transport_group_skip(transport);
    return share_memory(job, transport, &each, &memory);
}

/* What a rank knows of its place; no other rank is asked. */
static enum status take_place(struct job *job, struct transport *transport, struct grid **out)
{
    struct grid *grid;

    TRY(mem_alloc(1, sizeof *grid, &grid));
    grid->job = job;
    grid->transport = transport;
    grid->rank = transport_rank(transport);
    grid->place = axes_place_of(&job->axes, grid->rank);
    grid->group = NOBODY;
    grid->tag = transport_new_tags(transport, GRID_TAGS);
    enum status status = job_take_place(job, grid->place);
    if (status == STATUS_OK)
        status = make_groups(grid);
    if (status != STATUS_OK) {
        grid_destroy(grid);
        return status;
    }
    *out = grid;
    return STATUS_OK;
}

enum status grid_pretend(struct job *job, struct transport *transport, struct grid **out)
{
    static char nothing[1];
    struct grid *grid;

    *out = NULL;
    if (!axes_are_a_grid(&job->axes))
        return STATUS_OK;
    TRY(take_place(job, transport, &grid));
    if (job->axes.dp > 1 && !job->axes.servers && transport_shares_memory(transport))
        transport_group_join(grid->same, nothing, 0);
    if (job->axes.tp > 1 && transport_shares_memory(transport))
        grid->memory = nothing;
    *out = grid;
    return STATUS_OK;
}

enum status grid_create(struct job *job, struct transport *transport, struct grid **out)
{
    struct grid *grid;

    *out = NULL;
    if (!axes_are_a_grid(&job->axes))
        return STATUS_OK;
    TRY(take_place(job, transport, &grid));
    enum status status = join_same(grid);
    if (status == STATUS_OK)
        status = comm_create(grid->same, NULL, &grid->comm);
    if (status == STATUS_OK) /* tables go between the ranks of a group */
        status = parallax_measure(job, grid->comm);
    if (status == STATUS_OK)
        status = list_params(grid);
    if (status == STATUS_OK)
        status = find_memory(grid);
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
    transport_group_destroy(grid->shared);
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
    config->tensor = axes->tp > 1 ? grid->shared : NULL;
    config->tensor_memory = grid->memory;
    config->beside =
        (struct exec_beside){ .transport = grid->beside, .teller = (axes->pp - 1) * axes->tp };
}

struct transport *grid_same(const struct grid *grid)
{
    return grid->same;
}

bool grid_leads(const struct grid *grid)
{
    return grid->place.dp == 0 || !grid->job->axes.servers;
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
    return &grid->params[i];
}

int grid_state_count(const struct grid *grid, int i)
{
    return grid->params[i].kind == VALUE_PARAM ? optim_states(&grid->job->optim) : 0;
}

/* Tensors ------------------------------------------------------------------------------------ */

struct request {
    int32_t param, state; /* param NOBODY: there are no more */
};

/* The stage that has a parameter. */
static int holder_of(const struct grid *grid, int i)
{
    return grid->params[i].stage < 0 ? 0 : grid->params[i].stage % grid->job->axes.pp;
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

/* Asks all ranks of a stage, or of all stages (NOBODY), but this one and those that take no part. */
static enum status ask(const struct grid *grid, int stage, struct request request)
{
    const struct axes *axes = &grid->job->axes;

    for (int r = 0; r < axes->dp * axes->tp * axes->pp; r++) {
        const struct axes_place place = axes_place_of(axes, r);
        if (r != grid->rank && (stage == NOBODY || place.pp == stage) &&
            (place.dp == 0 || !axes->servers))
            TRY(transport_send(grid->transport, r, grid->tag, &request, sizeof request));
    }
    return STATUS_OK;
}

/* What the rank at that place of tp has of a parameter, as files have it; its shape. */
static struct shape_slice slice_at(const struct grid *grid, int i, int tp, struct shape *out)
{
    struct shape_slice slice = graph_saved_slice(&grid->params[i]);
    const struct shape whole = graph_saved_shape(&grid->params[i]);

    slice.index = tp;
    *out = slice_shape(&slice, &whole);
    return slice;
}

/* Ranks along tp that have something of a parameter to give: all, or the first has all of it. */
static int givers_of(const struct grid *grid, int i)
{
    return grid->params[i].slice.count > 0 ? grid->params[i].slice.count : 1;
}

/* The slice of the rank at that place of a stage, into `part`. */
static enum status fetch_slice(const struct grid *grid, struct exec *exec,
                               struct request request, struct axes_place place, size_t count,
                               float *part)
{
    const int rank = axes_rank_at(&grid->job->axes, place);

    if (rank != grid->rank)
        return transport_receive(grid->transport, rank, grid->tag + 1, part,
                                 count * sizeof *part);
    exec_get(exec, local_number(exec, request.param), request.state, part);
    return STATUS_OK;
}

enum status grid_fetch(struct grid *grid, struct exec *exec, int i, int state, float *out)
{
    const struct request request = { i, state };
    const int stage = holder_of(grid, i);
    enum status status = STATUS_OK;
    float *part = out;

    TRY(ask(grid, stage, request));
    if (stage == grid->place.pp)
        TRY(bring(grid, exec, request));
    if (givers_of(grid, i) > 1)
        TRY(mem_alloc((size_t)shape_count(&grid->params[i].shape), sizeof *part, &part));
    for (int tp = 0; tp < givers_of(grid, i) && status == STATUS_OK; tp++) {
        const struct axes_place place = { .tp = tp, .pp = stage };
        struct shape shape;
        const struct shape_slice slice = slice_at(grid, i, tp, &shape);
        status = fetch_slice(grid, exec, request, place, (size_t)shape_count(&shape), part);
        if (status == STATUS_OK && part != out)
            slice_put(&slice, &shape, sizeof *part, part, out);
    }
    if (part != out)
        mem_free(part);
    return status;
}

/* The first of a group sends what rank 0 has asked for. */
static enum status give(struct grid *grid, struct exec *exec, struct request request)
{
    struct shape shape;
    float *plain;

    TRY(bring(grid, exec, request));
    if (grid->place.dp > 0 || grid->place.tp >= givers_of(grid, request.param))
        return STATUS_OK;
    slice_at(grid, request.param, grid->place.tp, &shape);
    const size_t count = (size_t)shape_count(&shape);
    TRY(mem_alloc(count + 1, sizeof *plain, &plain));
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

enum status grid_print_timeline(const struct grid *grid, const struct exec *exec,
                                struct strbuf *out)
{
    if (!grid || grid->job->axes.pp == 1 || grid->place.dp > 0 || grid->place.tp > 0)
        return STATUS_OK;
    const struct axes *axes = &grid->job->axes;
    const struct pipe_config config = { .kind = axes->pipeline,
                                        .stages = axes->pp,
                                        .chunks = axes->chunks,
                                        .shards = exec_shard_count(exec) };
    return timeline_print(&config, grid->stages, grid->stages_tag, exec, out);
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

/* What is not cut, ranks that share layers must have alike. Where parameters are in parts the first of a group has them,
 * one bucket after the other. */
static enum status hash_whole(struct grid *grid, struct exec *exec, char out[65])
{
    const bool has_them = !exec_is_in_parts(exec) || grid->place.dp == 0;
    struct sha256 hash;

    sha256_init(&hash);
    for (int p = 0; p < exec_param_count(exec); p++) {
        const struct value *value = exec_param(exec, p);
        const struct request request = { exec_param_number(exec, p), -1 };
        float *plain;
        if (grid->params[request.param].slice.count > 0)
            continue;
        TRY(bring(grid, exec, request));
        if (!has_them)
            continue;
        TRY(mem_alloc((size_t)shape_count(&value->shape), sizeof *plain, &plain));
        exec_get(exec, p, -1, plain);
        exec_hash_add(&hash, value, plain);
        mem_free(plain);
    }
    sha256_end_hex(&hash, out);
    return bring(grid, exec, (struct request){ NOBODY, NOBODY });
}

static enum status compare_shared(struct grid *grid, struct exec *exec)
{
    char own[65], theirs[65];

    if (transport_size(grid->shared) == 1)
        return STATUS_OK;
    TRY(hash_whole(grid, exec, own));
    for (int r = 0; r < transport_size(grid->shared); r++) {
        if (r == grid->place.tp)
            continue;
        TRY(transport_send(grid->shared, r, grid->shared_tag, own, sizeof own));
        TRY(transport_receive(grid->shared, r, grid->shared_tag, theirs, sizeof theirs));
        if (memcmp(own, theirs, sizeof own) != 0)
            return FAIL(STATUS_MISMATCH,
                        "ranks %d and %d share layers, but what both have whole differs "
                        "(%.16s, %.16s)",
                        grid->rank, grid->rank + r - grid->place.tp, own, theirs);
    }
    return STATUS_OK;
}

static enum status hash_all(struct grid *grid, struct exec *exec, struct sha256 *hash)
{
    float *plain;

    for (int i = 0; i < grid->n_params; i++) {
        TRY(mem_alloc((size_t)shape_count(&grid->params[i].shape), sizeof *plain, &plain));
        const enum status status = grid_fetch(grid, exec, i, -1, plain);
        if (status == STATUS_OK)
            exec_hash_add(hash, &grid->params[i], plain);
        mem_free(plain);
        TRY(status);
    }
    return grid_end(grid, exec);
}

enum status grid_hash(struct grid *grid, struct exec *exec, char out[65])
{
    struct sha256 hash;

    TRY(compare(grid, exec));
    TRY(compare_shared(grid, exec));
    if (!grid_leads(grid))
        return STATUS_OK;
    if (grid->rank != 0)
        return grid_serve(grid, exec);
    sha256_init(&hash);
    TRY(hash_all(grid, exec, &hash));
    sha256_end_hex(&hash, out);
    return STATUS_OK;
}
