/* SPDX-License-Identifier: MIT */
/* policy.c - when pushes are applied and values given: the degrees of synchrony.
 *
 * A policy is a row: what applies the pushes that are pending of a slice, and whether values that are owed may be
 * given. The rest (readers, copies, late pushes) is the same for all.
 */
#include <string.h>

#include "ps/server.h"

bool policy_is_active(const struct server *server, int worker)
{
    const struct member *member = &server->members[worker];

    return !member->is_gone && !member->has_met && !member->is_standing;
}

int policy_quorum(const struct server *server)
{
    int active = 0;

    for (int w = 0; w < server->config.workers; w++)
        active += policy_is_active(server, w);
    const int quorum = active - server->config.backup;
    return quorum > 1 ? quorum : 1;
}

uint64_t policy_slowest(const struct server *server)
{
    uint64_t slowest = UINT64_MAX;

    for (int w = 0; w < server->config.workers; w++) {
        if (policy_is_active(server, w) && server->members[w].ticked < slowest)
            slowest = server->members[w].ticked;
    }
    return slowest;
}

/* The push is dealt with. What came of it in frames is counted anew for the next. A worker that was lost after it is owed
 * nothing: it would read the values for ever. */
static void owe(const struct server *server, struct seat *seat, uint64_t due)
{
    if (seat->memory && seat->held->slice->is_table)
        memset(seat->rows.counts, 0, 2 * TREE_DEPTH * sizeof(int64_t));
    seat->is_pending = false;
    seat->is_owed = !server->members[seat->worker].is_gone;
    seat->due = due;
}

/* A change of the slice is over. */
static enum status end_update(struct server *server, struct held *held, int worker)
{
    held->version++;
    server->moved = true;
    server->stats.server[server->number].updates++;
    server_meet(server, "applied");
    return held->has_partner ? copy_begin(server, held, worker) : STATUS_OK;
}

/* All of a step -------------------------------------------------------------------------------------- */

/* Pushes that came after their clock was over get the values of now. */
static void leave_late(struct server *server, struct held *held)
{
    for (int w = 0; w < server->config.workers; w++) {
        struct seat *seat = &held->seats[w];
        if (!seat->is_pending || seat->clock >= held->clock)
            continue;
        server->stats.server[server->number].dropped += seat->applied <= seat->clock;
        owe(server, seat, held->clock);
    }
}

/* The pushes that the next update is made of; all that are there, until it is settled which. */
static int find_due(const struct server *server, struct held *held, struct seat **out,
                    double *out_share)
{
    int n = 0;

    *out_share = 0;
    for (int w = 0; w < server->config.workers; w++) {
        struct seat *seat = &held->seats[w];
        if (!seat->is_pending || seat->clock != held->clock ||
            (held->is_summed && !seat->is_summed))
            continue;
        out[n++] = seat;
        *out_share += slices_share(server->slices, w);
    }
    return n;
}

static enum status apply_step(struct server *server, struct held *held)
{
    struct seat *due[PS_WORKERS];
    double share;
    bool is_ready;
    float scale;

    leave_late(server, held);
    const int n = find_due(server, held, due, &share);
    if (n == 0 || (!held->is_summed && n < policy_quorum(server)))
        return STATUS_OK;
    const double missing = n == server->config.workers ? 0 : 1 - share;
    TRY(clip_step(server, held, due, n, missing, &is_ready, &scale));
    if (!is_ready)
        return STATUS_OK;
    apply_sum(server, held, due, n, missing, scale);
    held->clock++;
    held->is_summed = false;
    for (int i = 0; i < n; i++) {
        due[i]->is_summed = false;
        due[i]->applied = held->clock;
        owe(server, due[i], held->clock);
    }
    return end_update(server, held, -1);
}

/* Each by itself --------------------------------------------------------------------------------------- */

static struct seat *next_pending(const struct server *server, struct held *held)
{
    struct seat *next = NULL;

    for (int w = 0; w < server->config.workers; w++) {
        struct seat *seat = &held->seats[w];
        if (seat->is_pending && (!next || seat->order < next->order))
            next = seat;
    }
    return next;
}

static enum status apply_each(struct server *server, struct held *held,
                              void (*apply)(struct server *server, struct held *held,
                                            struct seat *seat))
{
    for (;;) {
        struct seat *seat = next_pending(server, held);

        if (!seat || held->is_copying)
            return STATUS_OK;
        const bool is_new = seat->clock >= seat->applied;
        if (is_new) {
            apply(server, held, seat);
            seat->applied = seat->clock + 1;
        }
        owe(server, seat, seat->clock + 1);
        if (is_new)
            TRY(end_update(server, held, seat->worker));
    }
}

static enum status apply_pushes(struct server *server, struct held *held)
{
    return apply_each(server, held, apply_alone);
}

static enum status apply_exchanges(struct server *server, struct held *held)
{
    return apply_each(server, held, apply_center);
}

static bool always(const struct server *server, const struct seat *seat)
{
    (void)server;
    (void)seat;
    return true;
}

/* bounded:K: the slowest has ticked c - K. */
static bool within_bound(const struct server *server, const struct seat *seat)
{
    const uint64_t slowest = policy_slowest(server);

    return seat->due <= slowest || seat->due - slowest <= (uint64_t)server->config.bound;
}

static const struct policy {
    enum status (*apply)(struct server *server, struct held *held);
    bool (*may_give)(const struct server *server, const struct seat *seat);
} policies[] = {
    [PS_STEP] = { apply_step, always },
    [PS_ASYNC] = { apply_pushes, always },
    [PS_BOUNDED] = { apply_pushes, within_bound },
    [PS_CENTER] = { apply_exchanges, always },
};

/* Giving ------------------------------------------------------------------------------------------------ */

int policy_awaited(const struct server *server)
{
    for (int i = 0; i < server->n_held; i++) {
        const struct held *held = &server->held[i];
        bool others_wait = false;

        for (int w = 0; w < server->config.workers; w++)
            others_wait |=
                held->is_mine && (held->seats[w].is_pending || held->seats[w].is_owed);
        for (int w = 0; others_wait && w < server->config.workers; w++) {
            const struct seat *seat = &held->seats[w];
            const bool is_last = server->config.policy == PS_STEP ||
                                 server->members[w].ticked == policy_slowest(server);
            if (policy_is_active(server, w) && !seat->is_pending && !seat->is_owed && is_last)
                return w;
        }
    }
    return -1;
}

static bool is_read(const struct server *server, const struct held *held)
{
    for (int w = 0; w < server->config.workers; w++) {
        if (held->seats[w].is_reading)
            return true;
    }
    return false;
}

/* The next rows of those that a worker lacks. */
static int64_t fill_rows(void *arg, const struct job *job, struct frame *head, void *payload)
{
    struct seat *seat = arg;
    const struct held *held = seat->held;
    const size_t width = (size_t)held->slice->width;
    const int64_t left = job->end - job->at, room = frame_rows(held->slice, 1);
    int32_t *ids = payload;

    head->count = left < room ? left : room;
    head->bytes = (uint32_t)((size_t)head->count * (1 + width) * sizeof(float));
    float *rows = (float *)payload + head->count;
    for (int64_t i = 0; i < head->count; i++, rows += width) {
        ids[i] = seat->listed[job->at + i];
        memcpy(rows, held->param + (size_t)ids[i] * width, width * sizeof(float));
    }
    if (job->at + head->count == job->end)
        apply_forget_list(held, seat);
    return job->at + head->count;
}

/* Frames with the values go ahead of the word that they are there; until they are made the slice rests. */
static enum status send_values(struct server *server, struct held *held, struct seat *seat)
{
    const bool is_listed = held->slice->is_table && !seat->lacks_all;
    struct job *job;

    if (is_listed && seat->n_listed == 0)
        return STATUS_OK;
    TRY(server_job(server, seat->worker, is_listed ? FRAME_ROW_VALUES : FRAME_VALUES,
                   held->number, &job));
    job->fill = is_listed ? fill_rows : line_fill_floats;
    job->arg = is_listed ? (void *)seat : seat->back ? seat->back : held->param;
    job->end = is_listed ? seat->n_listed : held->slice->count;
    job->flag = &seat->is_reading;
    seat->is_reading = true;
    return STATUS_OK;
}

static void note_spread(struct server *server, const struct seat *seat)
{
    struct member *member = &server->members[seat->worker];
    const uint64_t slowest = policy_slowest(server);

    member->given = seat->due > member->given ? seat->due : member->given;
    if (slowest < seat->due && seat->due - slowest > server->stats.largest_spread)
        server->stats.largest_spread = seat->due - slowest;
}

static enum status give(struct server *server, struct held *held, struct seat *seat)
{
    const bool is_near = block_has(&server->block, seat->worker);
    const int64_t listed = held->slice->is_table && !seat->lacks_all ? seat->n_listed : -1;
    const int64_t floats = listed < 0 ? held->slice->count : listed * (1 + held->slice->width);
    struct job *job;

    server_meet(server, "give");
    if (is_near && policy_says_took(&server->config))
        seat->is_reading = true;
    if (!is_near)
        TRY(send_values(server, held, seat));
    TRY(server_job(server, seat->worker, FRAME_FRESH, held->number, &job));
    job->head.clock = seat->due;
    job->head.version = held->version;
    job->head.count = listed;
    seat->is_owed = false;
    seat->lacks_all = false;
    seat->given = held->version;
    server->stats.server[server->number].bytes_out += floats * (int64_t)sizeof(float);
    server->moved = true;
    note_spread(server, seat);
    return STATUS_OK;
}

bool policy_says_took(const struct ps_config *config)
{
    return config->policy == PS_ASYNC || config->policy == PS_BOUNDED || config->backup > 0;
}

enum status policy_pump(struct server *server, struct held *held)
{
    const struct policy *policy = &policies[server->config.policy];

    if (!held->is_mine || !server->members[0].has_begun)
        return STATUS_OK;
    if (!held->is_copying && !is_read(server, held))
        TRY(policy->apply(server, held));
    for (int w = 0; w < server->config.workers && !held->is_copying; w++) {
        struct seat *seat = &held->seats[w];
        if (seat->is_owed && !seat->is_reading && policy->may_give(server, seat))
            TRY(give(server, held, seat));
    }
    return STATUS_OK;
}
