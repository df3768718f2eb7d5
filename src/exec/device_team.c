/* SPDX-License-Identifier: MIT */
/* device_team.c - ranks on devices that do not reach each other's memory: they send each other what
 * they need of it.
 *
 * Ranks of several machines are such, and those of one whose devices are no peers. What
 * device_ranks.c reads where it lies comes as messages of a team of devices (device_team_ops), put
 * on the same streams and captured with them:
 *
 *   sums        of each stretch, every rank's partial sums of a part go to the rank that updates it, which adds them along the
 *               tree: nothing is added on the way, so bits do not depend on ranks
 *   parameters  updated parts go to all; those in bf16 are made of them here, with the same rounding
 *   sum         where norms are needed first, parts of the sum go to all instead, and each rank updates everything
 *   marks, results, tables of gathers  go to all as they are
 *
 * Of a vector of n bytes a rank sends n (R-1)/R for the sums, if its row of shards is a subtree,
 * and its part to R-1 others. Gathers have a team of their own: a rank that has no samples is done
 * with them before others are, so that their order among the sums is not the same everywhere.
 */
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "exec/device_side.h"

enum { UNIT = 64 /* floats */, CAUSE_LOOKS = 150, CAUSE_NS = 20 * 1000 * 1000 };

struct ranks_team {
    struct device_team *sums, *tables; /* tables: NULL without gathers */
    float
        *inbox; /* of each partial sum of all ranks what comes here; of its own nothing does */
    size_t inbox_floats;
    size_t
        inbox_each; /* of one sum: this rank's parts of the stretches of a group of buckets */
    size_t inbox_at[GRAPH_NODE_IN]; /* of each stretch, in these */
    uint8_t *marks;                 /* of each rank, laid out as its own */
};

/* Whether ----------------------------------------------------------------------------------- */

/* Collective: can each rank open what another one has on its device? They try. */
static enum status try_to_open(const struct exec *exec, struct device_handle *all, bool *out)
{
    const struct exec_device *config = &exec->device->config;
    const struct device_share_ops *share = config->face->share;
    struct device_handle mine = { 0 };
    void *memory = NULL, *theirs;
    int32_t fails = share->create(config->device, 1, &memory, &mine) != STATUS_OK;

    enum status status = comm_all_gather(exec->config.comm, &mine, all,
                                         sizeof mine / sizeof(int64_t), DTYPE_I64);
    for (int r = 0; r < exec->topology.ranks && status == STATUS_OK && !fails; r++) {
        if (r == exec->topology.rank)
            continue;
        fails = share->open(config->device, &all[r], &theirs) != STATUS_OK;
        if (!fails)
            share->close(config->device, &all[r], theirs);
    }
    if (status == STATUS_OK) /* and nobody takes memory away that others still open */
        status = comm_all_reduce(exec->config.comm, &fails, 1, DTYPE_I32, COMM_OP_MAX);
    share->destroy(config->device, memory);
    *out = !fails;
    return status;
}

static enum status reach_each_other(const struct exec *exec, bool *out)
{
    struct device_handle *all;

    *out = false;
    if (exec->topology.nodes > 1 || exec->device->config.sends ||
        exec->topology.ranks > DEVICE_PEERS || !exec->device->config.face->share)
        return STATUS_OK;
    TRY(mem_alloc((size_t)exec->topology.ranks, sizeof *all, &all));
    const enum status status = try_to_open(exec, all, out);
    mem_free(all);
    return status;
}

/* Where each stretch's part of rank r lies among what came, in `at`, which may be NULL; returns how
 * much there is at most at once. Groups of buckets come one after the other. */
static size_t lay_inbox(const struct exec *exec, int r, size_t *at)
{
    const struct device_side *side = exec->device;
    size_t used = 0, most = 0;

    for (int i = 0; i < side->n_stretches; i++) {
        if (i > 0 && side->stretches[i].group != side->stretches[i - 1].group)
            used = 0;
        if (at)
            at[i] = used;
        used += (ranks_share(exec, &side->stretches[i], r).count + UNIT - 1) / UNIT * UNIT;
        most = used > most ? used : most;
    }
    return most;
}

enum status team_choose(struct exec *exec)
{
    struct device_side *side = exec->device;
    const struct device_face *face = side->config.face;
    char text[DEVICE_TEXT];
    bool do_reach;

    TRY(reach_each_other(exec, &do_reach));
    if (do_reach)
        return STATUS_OK;
    if (side->parts)
        return FAIL(STATUS_UNSUPPORTED,
                    "device %s: its ranks do not reach each other's memory, so gradients and "
                    "parameters are not in parts there: use zero=1",
                    face->name);
    if (!face->team)
        return FAIL(STATUS_UNSUPPORTED,
                    "device %s: its ranks do not reach each other's memory, and this build has "
                    "no NCCL for them: build where nccl.h is, or use -n 1",
                    face->name);
    TRY(face->team->describe(text));
    TRY(mem_alloc(1, sizeof *side->team, &side->team));
    (void)lay_inbox(exec, exec->topology.rank, side->team->inbox_at);
    for (int r = 0; r < exec->topology.ranks; r++) { /* as much on every rank */
        const size_t each = lay_inbox(exec, r, NULL);
        if (each > side->team->inbox_each)
            side->team->inbox_each = each;
    }
    int first, count;
    ranks_held(exec, exec->topology.ranks - 1, &first, &count);
    side->team->inbox_floats = (size_t)(first + count) * side->team->inbox_each;
    return mem_alloc((size_t)exec->topology.ranks, sizeof *side->said, &side->said);
}

/* Making ------------------------------------------------------------------------------------ */

size_t team_bytes(const struct exec *exec)
{
    const struct device_side *side = exec->device;

    return side->team->inbox_floats * sizeof(float) +
           (size_t)exec->topology.ranks * side->marks_bytes;
}

void team_place(struct device_side *side, void *room)
{
    side->team->inbox = room;
    side->team->marks = room ? (uint8_t *)(side->team->inbox + side->team->inbox_floats) : NULL;
}

static bool is_lost(void *arg)
{
    const struct exec *exec = arg;

    return transport_check(exec->transport) != STATUS_OK;
}

enum status team_open(struct exec *exec)
{
    struct device_side *side = exec->device;
    const struct device_team_ops *ops = side->config.face->team;
    const struct device_patience patience = { is_lost, exec };
    const struct device_member member = { exec->topology.rank, exec->topology.ranks,
                                          exec->topology.node };
    struct device *device = side->config.device;
    struct ranks_team *team = side->team;
    struct device_team_id ids[2] = { 0 };
    const int n_ids = exec->layout.gathers.count > 0 ? 2 : 1;

    for (int i = 0; i < n_ids && exec->topology.rank == 0; i++)
        TRY(ops->make_id(device, exec->topology.ranks, &ids[i]));
    TRY(comm_broadcast(exec->config.comm, ids, 2 * (sizeof *ids / sizeof(int64_t)), DTYPE_I64,
                       0));
    TRY(device_blame(exec, ops->create(device, &ids[0], &member, &patience, &team->sums)));
    if (n_ids == 1)
        return STATUS_OK;
    return device_blame(exec, ops->create(device, &ids[1], &member, &patience, &team->tables));
}

/* Devices may notice before others say so that a rank is gone. */
static void await_cause(const struct exec *exec)
{
    const struct timespec nap = { .tv_nsec = CAUSE_NS };

    for (int i = 0; i < CAUSE_LOOKS && transport_check(exec->transport) == STATUS_OK; i++)
        (void)nanosleep(&nap, NULL);
}

static bool is_well(const struct exec *exec, struct device_team *team)
{
    char why[256];

    if (!team || exec->device->config.face->team->check(team) == STATUS_OK)
        return true;
    (void)snprintf(why, sizeof why, "%s", status_message());
    await_cause(exec);
    if (transport_check(exec->transport) == STATUS_OK)
        transport_abort(exec->transport, why);
    return false;
}

bool team_is_well(const struct exec *exec)
{
    const struct ranks_team *team = exec->device->team;

    return !team || (is_well(exec, team->sums) && is_well(exec, team->tables));
}

void team_give_up(struct device_side *side)
{
    const struct device_team_ops *ops = side->config.face->team;

    if (side->team->sums)
        ops->abort(side->team->sums);
    if (side->team->tables)
        ops->abort(side->team->tables);
}

void team_destroy(struct device_side *side)
{
    if (!side->team)
        return;
    side->config.face->team->destroy(side->team->sums);
    side->config.face->team->destroy(side->team->tables);
    mem_free(side->said);
    mem_free(side->team);
    side->team = NULL;
}

/* A step ------------------------------------------------------------------------------------ */

/* Every rank's piece goes to all. */
static enum status share(const struct exec *exec, struct device_team *team, void *piece,
                         size_t bytes, int owner)
{
    return bytes ? exec->device->config.face->team->broadcast(team, piece, bytes, owner)
                 : STATUS_OK;
}

/* What was put goes on its way, also after a failure, which then is the cause. */
static enum status finish(const struct exec *exec, struct device_team *team, enum status status)
{
    const struct device_team_ops *ops = exec->device->config.face->team;

    if (status == STATUS_OK)
        return ops->end(team);
    char why[256];
    (void)snprintf(why, sizeof why, "%s", status_message());
    const enum status ended = ops->end(team);
    (void)ended;
    return status_set(status, why);
}

static enum status put_tables(const struct exec *exec, int g)
{
    const struct device_side *side = exec->device;
    const struct plan_gather *gather = &exec->layout.gathers.item[g];

    for (int r = 0; r < exec->topology.ranks; r++) /* each has one shard */
        TRY(share(exec, side->team->tables,
                  side->tables + gather->offset + (size_t)r * gather->bytes, gather->bytes, r));
    return STATUS_OK;
}

enum status team_swap_tables(const struct exec *exec, int g)
{
    const struct device_side *side = exec->device;

    TRY(side->config.face->team->begin(side->team->tables, side->stream));
    return finish(exec, side->team->tables, put_tables(exec, g));
}

float *team_received(const struct exec *exec, int number, struct device_part part)
{
    const struct device_side *side = exec->device;
    const struct ranks_team *team = side->team;
    int i = 0;

    while (part.at >= side->stretches[i].at + side->stretches[i].count)
        i++;
    return team->inbox + (size_t)number * team->inbox_each + team->inbox_at[i];
}

/* Partial sums of a stretch between this rank and another one. */
static enum status put_sums(const struct exec *exec, const struct device_stretch *stretch,
                            int r)
{
    const struct device_side *side = exec->device;
    const struct device_team_ops *ops = side->config.face->team;
    const struct device_part mine = ranks_share(exec, stretch, exec->topology.rank);
    const struct device_part theirs = ranks_share(exec, stretch, r);
    int first, count;

    ranks_held(exec, exec->topology.rank, &first, &count);
    for (int i = 0; i < count && theirs.count > 0; i++)
        TRY(ops->send(side->team->sums,
                      side->gradients + (size_t)i * exec->layout.vector + theirs.at,
                      theirs.count * sizeof(float), r));
    ranks_held(exec, r, &first, &count);
    for (int i = 0; i < count && mine.count > 0; i++)
        TRY(ops->receive(side->team->sums, team_received(exec, first + i, mine),
                         mine.count * sizeof(float), r));
    return STATUS_OK;
}

/* Where rank r's marks of a table are here. */
static uint8_t *marks_of(const struct exec *exec, int bucket, int r)
{
    const struct device_side *side = exec->device;
    const size_t place = (size_t)(side->marks[bucket] - side->all_marks);

    return r == exec->topology.rank ? side->marks[bucket]
                                    : side->team->marks + (size_t)r * side->marks_bytes + place;
}

/* Losses and labels met of rank r's shards. */
static enum status put_results(const struct exec *exec, int r)
{
    const struct device_side *side = exec->device;
    int64_t first, count;

    exec_lane_row(exec, r, &first, &count);
    for (int part = 0; part < 2; part++)
        TRY(share(exec, side->team->sums, side->results + part * exec->topology.shards + first,
                  (size_t)count * sizeof(float), r));
    return STATUS_OK;
}

static enum status put_meeting(const struct exec *exec, int group)
{
    const struct device_side *side = exec->device;
    const struct device_group *of = &side->groups[group];

    for (int r = 0; r < exec->topology.ranks; r++) {
        for (int i = 0; i < side->n_stretches; i++) {
            if (r != exec->topology.rank && side->stretches[i].group == group)
                TRY(put_sums(exec, &side->stretches[i], r));
        }
    }
    for (int r = 0; r < exec->topology.ranks; r++) {
        for (int b = of->first; b < of->end; b++) {
            if (bucket_is_table(&exec->layout, b))
                TRY(share(exec, side->team->sums, marks_of(exec, b, r),
                          (size_t)exec->layout.row_sums[b].rows, r));
        }
        if (group == side->n_groups - 1)
            TRY(put_results(exec, r));
    }
    return STATUS_OK;
}

static void join_marks(const struct exec *exec, int bucket)
{
    const struct device_side *side = exec->device;
    const uint8_t *joined = side->marks[bucket];
    uint8_t *out = side->joined_marks + (joined - side->all_marks);

    for (int r = 0; r < exec->topology.ranks; r++) {
        if (r == exec->topology.rank)
            continue;
        side->config.face->join_marks(side->sums, out, joined, marks_of(exec, bucket, r),
                                      (size_t)exec->layout.row_sums[bucket].rows);
        joined = out;
    }
}

/* Each rank's part of every stretch of a group of buckets goes to all, of a vector laid out as the
 * flat ones. */
static enum status swap_parts(const struct exec *exec, int group, float *vector)
{
    const struct device_side *side = exec->device;
    enum status status = STATUS_OK;

    TRY(side->config.face->team->begin(side->team->sums, side->sums));
    for (int i = 0; i < side->n_stretches; i++) {
        for (int r = 0; r < exec->topology.ranks && side->stretches[i].group == group; r++) {
            const struct device_part part = ranks_share(exec, &side->stretches[i], r);
            if (status == STATUS_OK)
                status = share(exec, side->team->sums, vector + part.at,
                               part.count * sizeof(float), r);
        }
    }
    return finish(exec, side->team->sums, status);
}

/* The whole sum, of which each rank makes its parts. */
static enum status make_whole_sum(const struct exec *exec, int group)
{
    const struct device_side *side = exec->device;

    for (int i = 0; i < side->n_stretches; i++) {
        const struct device_part mine =
            ranks_share(exec, &side->stretches[i], exec->topology.rank);
        if (mine.count > 0)
            ranks_add(exec, mine, side->sum + mine.at);
    }
    return swap_parts(exec, group, side->sum);
}

enum status team_meet(const struct exec *exec, int group)
{
    const struct device_side *side = exec->device;
    const struct device_group *of = &side->groups[group];

    TRY(side->config.face->team->begin(side->team->sums, side->sums));
    TRY(finish(exec, side->team->sums, put_meeting(exec, group)));
    for (int b = of->first; b < of->end; b++) {
        if (bucket_is_table(&exec->layout, b))
            join_marks(exec, b);
    }
    return ranks_update_all(exec) ? make_whole_sum(exec, group) : STATUS_OK;
}

enum status team_swap_squares(const struct exec *exec)
{
    const struct device_side *side = exec->device;
    enum status status = STATUS_OK;

    TRY(side->config.face->team->begin(side->team->sums, side->sums));
    for (int r = 0; r < exec->topology.ranks && status == STATUS_OK; r++) {
        size_t bytes;
        double *squares = squares_of_rank(exec, r, &bytes);
        status = share(exec, side->team->sums, squares, bytes, r);
    }
    return finish(exec, side->team->sums, status);
}

enum status team_swap_params(const struct exec *exec, int group)
{
    const struct device_side *side = exec->device;

    if (ranks_update_all(exec))
        return STATUS_OK;
    TRY(swap_parts(exec, group, side->param));
    for (int i = 0; i < side->n_stretches && side->half; i++) {
        const struct device_stretch *s = &side->stretches[i];
        if (s->group == group)
            side->config.face->convert(side->sums, side->half + s->at, side->config.precision,
                                       side->param + s->at, DTYPE_F32, s->count);
    }
    return STATUS_OK;
}
