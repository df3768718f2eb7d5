/* SPDX-License-Identifier: MIT */
/* hear.c - what workers and other servers say to a server.
 *
 * A frame that makes no sense in the state that things are in is refused and counted, like one that
 * is not legal at all; nothing is done about it. Whoever sent it will miss an answer, and be named
 * by whoever waits.
 */
#include <string.h>

#include "base/mem.h"
#include "ps/server.h"

/* A worker whose sums do not come in frames has them in this node's block. */
static bool is_good_part(const struct server *server, int worker, const struct frame_part *part)
{
    const int64_t bytes = server->slices->vector * (int64_t)sizeof(float);

    if (part->begin < 0 || part->length < 1 ||
        part->length > server->slices->leaves[worker] * 2)
        return false;
    if (!block_has(&server->block, worker))
        return part->place == -1;
    return part->place >= 0 && part->place % (int64_t)sizeof(float) == 0 &&
           part->place <= (int64_t)server->block.bytes - bytes;
}

/* Do the parts cover the worker's row, from left to right? */
static bool is_good_cover(const struct server *server, int worker,
                          const struct frame_part *parts, int count)
{
    const bool sums = server->config.policy == PS_STEP;
    const int64_t first = sums ? server->config.rows[worker] : 0;
    const int64_t end = sums ? server->config.rows[worker + 1] : server->slices->leaves[worker];
    int64_t at = first;

    if (!block_has(&server->block, worker) && count != server->slices->n_nodes[worker])
        return false;
    for (int i = 0; i < count; i++) {
        if (!is_good_part(server, worker, &parts[i]) || parts[i].begin != at)
            return false;
        at += parts[i].length;
        if (i + 1 < count && at >= end)
            return false;
    }
    return at >= end && (at == end || end == server->slices->leaves[worker]);
}

static enum status hear_hello(struct server *server, int worker, const struct frame *frame,
                              const void *payload)
{
    struct frame_part *parts = NULL;
    const size_t count = (size_t)frame->part;

    if (server->members[worker].has_said_hello)
        return FAIL(STATUS_CORRUPT, "worker %d says hello again", worker);
    TRY(mem_alloc(count, sizeof(*parts), &parts));
    memcpy(parts, payload, count * sizeof(*parts));
    enum status status = STATUS_OK;
    if (!is_good_cover(server, worker, parts, frame->part))
        status = FAIL(STATUS_CORRUPT, "worker %d has partial sums of other shards", worker);
    for (int i = 0; status == STATUS_OK && i < server->n_held; i++) {
        struct held *held = &server->held[i];
        struct seat *seat = &held->seats[worker];
        const bool is_near = block_has(&server->block, worker);

        status = mem_alloc(count, sizeof(*seat->parts), &seat->parts);
        for (size_t p = 0; status == STATUS_OK && p < count; p++) {
            const float *near =
                (const float *)(server->block.base + (is_near ? parts[p].place : 0));
            seat->parts[p] = (struct tree_part){
                .node = { parts[p].begin, parts[p].length },
                .data = is_near ? near + held->slice->at
                                : (const float *)seat->memory + (int64_t)p * held->slice->count,
            };
        }
        seat->n_parts = frame->part;
    }
    mem_free(parts);
    server->members[worker].has_said_hello = status == STATUS_OK;
    return status;
}

static enum status hear_put(struct held *held, const struct frame *frame, const void *payload)
{
    float *vector = frame->part < 0 ? held->param : held->state[frame->part];

    memcpy(vector + frame->at, payload, frame->bytes);
    return STATUS_OK;
}

static enum status hear_begin(struct server *server, int worker, uint64_t step)
{
    struct member *member = &server->members[worker];

    if (member->has_begun)
        return FAIL(STATUS_CORRUPT, "worker %d begins again", worker);
    if (member->is_dismissed)
        return STATUS_OK; /* it learns so from MET */
    member->has_begun = true;
    member->is_standing = false;
    member->ticked = member->given = step;
    for (int i = 0; i < server->n_held; i++) {
        struct held *held = &server->held[i];
        if (worker == 0)
            held->clock = step;
        /* A copy may have come with more. */
        if (held->seats[worker].applied < step)
            held->seats[worker].applied = step;
    }
    if (worker == 0)
        server->clock = step;
    return STATUS_OK;
}

static enum status hear_data(struct held *held, struct seat *seat, const struct frame *frame,
                             const void *payload)
{
    if (!seat->memory || held->slice->is_table || seat->is_waiting)
        return FAIL(STATUS_CORRUPT, "values of slice %d that nobody expects", held->number);
    memcpy((float *)seat->memory + frame->part * held->slice->count + frame->at, payload,
           frame->bytes);
    return STATUS_OK;
}

/* Lists come one after the other, each from its beginning to its end. */
static enum status hear_rows(struct server *server, struct held *held, struct seat *seat,
                             const struct frame *frame, const void *payload)
{
    const size_t width = (size_t)held->slice->width, count = (size_t)frame->count;
    int64_t at = frame->at;

    if (!seat->memory || seat->is_waiting)
        return FAIL(STATUS_CORRUPT, "rows of slice %d that nobody expects", held->number);
    bool is_next = seat->rows.counts[frame->part] == frame->at;
    for (int p = frame->part + 1; p < server->slices->n_nodes[seat->worker]; p++)
        is_next = is_next && seat->rows.counts[p] == 0;
    if (!is_next)
        return FAIL(STATUS_CORRUPT, "rows of slice %d are missing", held->number);
    for (int p = 0; p < frame->part; p++)
        at += seat->rows.counts[p];
    if (frame->count > held->slice->most - at)
        return FAIL(STATUS_CORRUPT, "too many rows of slice %d", held->number);
    memcpy(seat->rows.ids + at, payload, count * sizeof(int32_t));
    memcpy(seat->rows.rows + (size_t)at * width, (const float *)payload + count,
           count * width * sizeof(float));
    seat->rows.counts[frame->part] += frame->count;
    return STATUS_OK;
}

static enum status hear_push(struct server *server, struct held *held, struct seat *seat,
                             const struct frame *frame)
{
    const struct member *member = &server->members[seat->worker];

    if (!member->has_begun || seat->is_waiting || seat->is_reading ||
        frame->clock == UINT64_MAX || seat->n_parts == 0)
        return FAIL(STATUS_CORRUPT, "worker %d pushes slice %d out of turn", seat->worker,
                    held->number);
    if (held->slice->is_table) {
        if (!apply_rows_are_good(server, held, seat))
            return FAIL(STATUS_CORRUPT, "worker %d pushes wrong rows", seat->worker);
        if (!slices_says_took(&server->config) && block_has(&server->block, seat->worker))
            apply_forget_list(held, seat);
    }
    seat->is_pushed = true;
    seat_wait(seat, true);
    seat->pushed = frame->clock + 1;
    seat->order = server->pushes++;
    server_trace(server, held->tasks.push, seat->worker, frame->clock);
    return STATUS_OK;
}

static enum status hear_get(struct server *server, struct held *held, int worker, int state)
{
    struct job *job;

    TRY(server_job(server, worker, FRAME_GOT, held->number, &job));
    job->head.part = state;
    job->fill = line_fill_floats;
    job->arg = state < 0 ? held->param : held->state[state];
    job->end = held->slice->count;
    return STATUS_OK;
}

static int64_t fill_stats(void *arg, const struct job *job, struct frame *head, void *payload)
{
    struct server *server = arg;

    tick_close_stats(server);
    head->bytes = sizeof(server->stats);
    memcpy(payload, &server->stats, sizeof(server->stats));
    return job->end;
}

static enum status hear_ask(struct server *server, int worker)
{
    struct job *job;

    _Static_assert(sizeof(struct ps_stats) <= FRAME_PAYLOAD, "statistics are one frame");
    TRY(server_job(server, worker, FRAME_STATS, 0, &job));
    job->fill = fill_stats;
    job->arg = server;
    job->end = 1;
    return STATUS_OK;
}

void server_leave(struct server *server, int worker, bool is_lost)
{
    struct member *member = &server->members[worker];

    member->is_gone = true;
    member->is_lost = is_lost;
    member->is_waiting = false;
    for (int i = 0; i < server->n_held; i++) {
        struct seat *seat = &server->held[i].seats[worker];
        seat_wait(seat, seat_is_pending(server, seat));
        seat->is_reading = false;
        seat->lacks_all = true; /* no row is listed for it any more */
    }
    server->moved = true;
}

static enum status hear_worker_of_slice(struct server *server, int worker,
                                        const struct frame *frame, const void *payload)
{
    const int number = server->held_of[frame->slice];

    if (number < 0)
        return FAIL(STATUS_CORRUPT, "slice %d is not server %d's", frame->slice,
                    server->number);
    struct held *held = &server->held[number];
    struct seat *seat = &held->seats[worker];

    switch (frame->kind) {
    case FRAME_PUT:
        return worker == 0 && !server->members[0].has_begun
                   ? hear_put(held, frame, payload)
                   : FAIL(STATUS_CORRUPT, "worker %d puts values out of turn", worker);
    case FRAME_PULL:
        if (seat->is_waiting || seat->is_reading)
            return FAIL(STATUS_CORRUPT, "worker %d pulls out of turn", worker);
        seat_wait(seat, true);
        seat->lacks_all = true;
        seat->pushed = frame->clock;
        return STATUS_OK;
    case FRAME_DATA:
        return hear_data(held, seat, frame, payload);
    case FRAME_ROWS:
        return hear_rows(server, held, seat, frame, payload);
    case FRAME_PUSH:
        return hear_push(server, held, seat, frame);
    case FRAME_TOOK:
        seat->is_reading = false;
        apply_forget_list(held, seat);
        return STATUS_OK;
    default: /* FRAME_GET */
        return hear_get(server, held, worker, frame->part);
    }
}

static enum status hear_worker(struct server *server, int worker, const struct frame *frame,
                               const void *payload)
{
    switch (frame->kind) {
    case FRAME_HELLO:
        return hear_hello(server, worker, frame, payload);
    case FRAME_BEGIN:
        return hear_begin(server, worker, frame->clock);
    case FRAME_TICK:
        return tick_hear(server, worker, frame, payload);
    case FRAME_MEET:
        server->members[worker].has_met = true;
        return STATUS_OK;
    case FRAME_ASK:
        return hear_ask(server, worker);
    case FRAME_BYE:
        server_leave(server, worker, false);
        server->lines[worker].is_open = false;
        return STATUS_OK;
    default:
        return hear_worker_of_slice(server, worker, frame, payload);
    }
}

/* Other servers ---------------------------------------------------------------------------------------- */

static enum status hear_server(struct server *server, int from, const struct frame *frame,
                               const void *payload)
{
    if (frame->kind == FRAME_CLOSE) {
        server->lines[slices_rank(server->slices, from)].is_silent = true;
        return STATUS_OK;
    }
    if (frame->kind == FRAME_SQUARES)
        return clip_hear(server, from, frame, payload);
    if (frame->kind < FRAME_COPY_DATA || frame->kind > FRAME_COPIED)
        return FAIL(STATUS_CORRUPT, "a server says %s to a server", frame_name(frame->kind));
    const int number = server->held_of[frame->slice];
    if (number < 0)
        return FAIL(STATUS_CORRUPT, "slice %d is not server %d's", frame->slice,
                    server->number);
    return copy_hear(server, &server->held[number], frame, payload, from);
}

enum status server_hear(struct server *server, int rank, const struct frame *frame,
                        const void *payload)
{
    const int workers = server->config.workers;
    const enum status status = rank < workers
                                   ? hear_worker(server, rank, frame, payload)
                                   : hear_server(server, rank - workers, frame, payload);

    if (status != STATUS_CORRUPT)
        return status;
    server->lines[rank].refused++;
    return STATUS_OK;
}
