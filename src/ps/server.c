/* SPDX-License-Identifier: MIT */
/* server.c - a server's life: takes frames from workers and other servers, in turn, until all workers have left.
 *
 * A frame that makes no sense in the state that things are in is refused and counted, like one that is not
 * legal at all; nothing is done about it. Whoever sent it will miss an answer, and be named by whoever waits.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernel/float_mode.h"
#include "ps/server.h"

static const int64_t look_again_ns = 100 * 1000 * 1000;

void server_meet(const struct server *server, const char *point)
{
    if (server->config.at_meeting)
        server->config.at_meeting(server->config.at_meeting_arg, point);
}

enum status server_job(struct server *server, int rank, enum frame_kind kind, int slice,
                       struct job **out)
{
    *out = line_add(&server->lines[rank], kind, slice);
    if (!*out)
        return FAIL(STATUS_CORRUPT, "rank %d is told more than it can have asked", rank);
    return STATUS_OK;
}

/* Ticks ---------------------------------------------------------------------------------------------- */

/* Is this the server that answers ticks? The first that is not lost. */
static bool is_lead(const struct server *server)
{
    for (int s = 0; s < server->number; s++) {
        if (!transport_lost(server->config.transport, slices_rank(server->slices, s), NULL))
            return false;
    }
    return true;
}

static void add_tick(struct ps_tick *sum, const struct ps_tick *tick)
{
    sum->loss += tick->loss;
    sum->correct += tick->correct;
    sum->samples += tick->samples;
    sum->weight += tick->weight;
    sum->bits |= tick->bits;
}

static uint64_t fastest(const struct server *server)
{
    uint64_t high = 0;

    for (int w = 0; w < server->config.workers; w++)
        high = server->members[w].ticked > high ? server->members[w].ticked : high;
    return high;
}

static enum status tell(struct server *server, int worker, uint64_t clock)
{
    const uint64_t slowest = policy_slowest(server);
    struct frame_heard heard = { .sum = server->sum,
                                 .all = server->all,
                                 .high = fastest(server) };
    struct job *job;

    heard.low = slowest == UINT64_MAX ? heard.high : slowest;
    for (int w = 0; w < server->config.workers; w++)
        heard.lost += server->members[w].is_lost;
    TRY(server_job(server, worker, FRAME_HEARD, 0, &job));
    job->head.clock = clock;
    job->head.bytes = sizeof(heard);
    memcpy(job->payload, &heard, sizeof(heard));
    return STATUS_OK;
}

/* A round of ticks is over when as many have come as a step waits for. */
static enum status end_rounds(struct server *server)
{
    const int workers = server->config.workers;
    const bool leads = is_lead(server);
    bool is_due[PS_WORKERS];
    int n = 0;

    if (server->config.policy != PS_STEP || !server->members[0].has_begun)
        return STATUS_OK;
    if (leads && !server->was_lead && server->clock > 0) {
        for (int w = 0; w < workers; w++) /* who has heard it already does not mind */
            TRY(tell(server, w, server->clock));
    }
    server->was_lead = leads;
    for (int w = 0; w < workers; w++) {
        const struct member *member = &server->members[w];
        is_due[w] = member->is_waiting && member->ticked == server->clock + 1;
        n += is_due[w];
    }
    if (n > 0 && n >= policy_quorum(server)) {
        server->sum = (struct ps_tick){ 0 };
        server->clock++;
        for (int w = 0; w < workers; w++) {
            if (is_due[w])
                add_tick(&server->sum, &server->members[w].said);
        }
    }
    for (int w = 0; w < workers; w++) {
        struct member *member = &server->members[w];
        if (!member->is_waiting || member->ticked > server->clock)
            continue;
        member->is_waiting = false;
        if (leads)
            TRY(tell(server, w, server->clock));
    }
    return STATUS_OK;
}

/* The clocks that workers are at; when there is no room left every second one is left out. */
static void record_spread(struct server *server)
{
    struct ps_stats *stats = &server->stats;
    const int64_t now = clock_ns();
    struct ps_spread spread = { .low = UINT64_MAX };

    if (server->first_tick_ns == 0)
        server->first_tick_ns = now;
    if (server->spread_count++ % server->spread_every != 0)
        return;
    for (int w = 0; w < server->config.workers; w++) {
        const struct member *member = &server->members[w];
        if (!policy_is_active(server, w))
            continue;
        spread.low = member->ticked < spread.low ? member->ticked : spread.low;
        spread.high = member->given > spread.high ? member->given : spread.high;
    }
    if (spread.low == UINT64_MAX)
        return;
    spread.high = spread.high > spread.low ? spread.high : spread.low;
    spread.seconds = (double)(now - server->first_tick_ns) * 1e-9;
    if (stats->n_spread == PS_SPREAD) {
        for (int i = 0; i < PS_SPREAD / 2; i++)
            stats->spread[i] = stats->spread[2 * i];
        stats->n_spread = PS_SPREAD / 2;
        server->spread_every *= 2;
    }
    stats->spread[stats->n_spread++] = spread;
}

static enum status hear_tick(struct server *server, int worker, const struct frame *frame,
                             const void *payload)
{
    struct member *member = &server->members[worker];
    struct frame_tick tick;

    if (frame->clock < member->ticked || frame->clock == UINT64_MAX)
        return FAIL(STATUS_CORRUPT, "worker %d ticks clock %llu again", worker,
                    (unsigned long long)frame->clock);
    memcpy(&tick, payload, sizeof(tick));
    member->ticked = frame->clock + 1;
    member->said = tick.said;
    member->wait = tick.wait;
    member->is_waiting = true;
    add_tick(&server->all, &tick.said);
    record_spread(server);
    if (server->config.policy == PS_STEP)
        return STATUS_OK; /* end_rounds */
    member->is_waiting = false;
    return is_lead(server) ? tell(server, worker, member->ticked) : STATUS_OK;
}

/* Workers' frames -------------------------------------------------------------------------------------- */

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
    member->has_begun = true;
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
    if (!seat->memory || held->slice->is_table || seat->is_pending)
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

    if (!seat->memory || seat->is_pending)
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

    if (!member->has_begun || seat->is_pending || seat->is_owed || seat->is_reading ||
        frame->clock == UINT64_MAX || seat->n_parts == 0)
        return FAIL(STATUS_CORRUPT, "worker %d pushes slice %d out of turn", seat->worker,
                    held->number);
    if (held->slice->is_table) {
        if (!apply_rows_are_good(server, held, seat))
            return FAIL(STATUS_CORRUPT, "worker %d pushes wrong rows", seat->worker);
        if (!policy_says_took(&server->config) && block_has(&server->block, seat->worker))
            apply_forget_list(held, seat);
    }
    seat->is_pending = true;
    seat->clock = frame->clock;
    seat->order = server->pushes++;
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

static void close_stats(struct server *server)
{
    struct ps_stats *stats = &server->stats;

    stats->workers = server->config.workers;
    stats->servers = server->config.servers;
    stats->server[server->number].refused = 0;
    for (int rank = 0; rank < server->config.workers + server->config.servers; rank++)
        stats->server[server->number].refused += server->lines[rank].refused;
    for (int w = 0; w < server->config.workers; w++) {
        stats->wait[w] = server->members[w].wait;
        stats->clock[w] = server->members[w].ticked;
        stats->lost[w] = server->members[w].is_lost;
    }
}

static int64_t fill_stats(void *arg, const struct job *job, struct frame *head, void *payload)
{
    struct server *server = arg;

    close_stats(server);
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

static void leave(struct server *server, int worker, bool is_lost)
{
    struct member *member = &server->members[worker];

    member->is_gone = true;
    member->is_lost = is_lost;
    member->is_waiting = false;
    for (int i = 0; i < server->n_held; i++) {
        struct seat *seat = &server->held[i].seats[worker];
        seat->is_owed = seat->is_reading = false;
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
        if (seat->is_pending || seat->is_owed || seat->is_reading)
            return FAIL(STATUS_CORRUPT, "worker %d pulls out of turn", worker);
        seat->is_owed = seat->lacks_all = true;
        seat->due = frame->clock;
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
        return hear_tick(server, worker, frame, payload);
    case FRAME_MEET:
        server->members[worker].has_met = true;
        return STATUS_OK;
    case FRAME_ASK:
        return hear_ask(server, worker);
    case FRAME_BYE:
        leave(server, worker, false);
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
    const int number = server->held_of[frame->slice];
    if (number < 0)
        return FAIL(STATUS_CORRUPT, "slice %d is not server %d's", frame->slice,
                    server->number);
    return copy_hear(server, &server->held[number], frame, payload, from);
}

/* The loop ---------------------------------------------------------------------------------------------- */

static void lose(struct server *server, int rank)
{
    if (rank < server->config.workers)
        leave(server, rank, true);
    else
        copy_lose(server, rank - server->config.workers);
}

static bool is_over(const struct server *server)
{
    for (int w = 0; w < server->config.workers; w++) {
        if (!server->members[w].is_gone)
            return false;
    }
    return true;
}

/* Everything that one rank has said. */
static enum status take_frames(struct server *server, int rank)
{
    struct line *line = &server->lines[rank];
    const int workers = server->config.workers;
    struct frame frame;
    const void *payload;
    bool came;

    /* Copies are of what worker 0 has put: that comes first. */
    if (!line->is_open ||
        (rank >= workers && !server->members[0].has_begun && !is_over(server)))
        return STATUS_OK;
    for (;;) {
        TRY(line_receive(line, &frame, &payload, &came));
        if (!came)
            break;
        server->moved = true;
        const enum status status = rank < workers
                                       ? hear_worker(server, rank, &frame, payload)
                                       : hear_server(server, rank - workers, &frame, payload);
        if (status == STATUS_CORRUPT)
            line->refused++;
        else
            TRY(status);
    }
    if (line->is_lost)
        lose(server, rank);
    return STATUS_OK;
}

/* Has everybody come, and is all that they pushed applied? */
static bool have_met(const struct server *server)
{
    bool any = false;

    for (int w = 0; w < server->config.workers; w++) {
        if (policy_is_active(server, w))
            return false;
        any |= !server->members[w].is_gone;
    }
    for (int i = 0; i < server->n_held; i++) {
        const struct held *held = &server->held[i];
        if (held->is_copying)
            return false;
        for (int w = 0; w < server->config.workers; w++) {
            if (held->is_mine && held->seats[w].is_pending)
                return false;
        }
    }
    return any;
}

static enum status end_meeting(struct server *server)
{
    struct job *job;

    if (!have_met(server))
        return STATUS_OK;
    for (int w = 0; w < server->config.workers; w++) {
        if (server->members[w].is_gone)
            continue;
        TRY(server_job(server, w, FRAME_MET, 0, &job));
        server->members[w].has_met = false;
    }
    return STATUS_OK;
}

static enum status look_once(struct server *server)
{
    const int ranks = server->config.workers + server->config.servers;

    server->moved = false;
    for (int rank = ranks - 1; rank >= 0;
         rank--) /* servers first: what they leave behind is served */
        TRY(take_frames(server, rank));
    for (int i = 0; i < server->n_held; i++)
        TRY(policy_pump(server, &server->held[i]));
    TRY(end_rounds(server));
    TRY(end_meeting(server));
    for (int rank = 0; rank < ranks; rank++)
        TRY(line_send(&server->lines[rank], &server->moved));
    return STATUS_OK;
}

/* Servers wait for each other's last word: one that has gone hears nothing. */
static enum status close_lines(struct server *server)
{
    struct transport *transport = server->config.transport;
    const int workers = server->config.workers;
    struct job *job;
    bool moved, is_idle = false;

    for (int s = 0; s < server->config.servers; s++)
        TRY(server_job(server, slices_rank(server->slices, s), FRAME_CLOSE, 0, &job));
    while (!is_idle) {
        const uint32_t seen = transport_bell(transport);
        is_idle = true;
        for (int s = 0; s < server->config.servers; s++) {
            struct line *line = &server->lines[workers + s];
            TRY(take_frames(server, workers + s));
            TRY(line_send(line, &moved));
            is_idle = is_idle && line_is_idle(line) && (!line->is_open || line->is_silent);
        }
        if (!is_idle)
            TRY(transport_wait_bell(transport, seen, look_again_ns, "the other servers' end"));
    }
    return STATUS_OK;
}

static enum status serve(struct server *server)
{
    struct transport *transport = server->config.transport;
    struct ps_server_stats *stats = &server->stats.server[server->number];
    int64_t since = clock_ns();

    while (!is_over(server)) {
        const uint32_t seen = transport_bell(transport);
        TRY(look_once(server));
        if (server->moved)
            continue;
        const int64_t idle = clock_ns();
        transport_note(transport, server->clock, server->name);
        TRY(transport_wait_bell(transport, seen, look_again_ns, "workers"));
        const int64_t now = clock_ns();
        stats->busy += (double)(idle - since) * 1e-9;
        stats->idle += (double)(now - idle) * 1e-9;
        since = now;
    }
    return close_lines(server);
}

/* Making one ---------------------------------------------------------------------------------------------- */

static enum status seat_worker(struct server *server, struct held *held, int worker)
{
    const struct slices *slices = server->slices;
    const struct slice *slice = held->slice;
    struct seat *seat = &held->seats[worker];
    const bool is_near = block_has(&server->block, worker);
    const bool gives_back = server->config.policy == PS_CENTER;
    char *area = block_server(&server->block, server->rank);

    seat->held = held;
    seat->worker = worker;
    seat->lacks_all = true;
    if (slice->is_table) {
        seat->listed = slices_list(slices, area, server->number, held->number, worker);
        TRY(mem_alloc((size_t)slice->rows, 1, &seat->marks));
    }
    if (is_near) {
        char *staged = block_staged(&server->block, worker);
        if (slice->is_table)
            seat->rows = slices_staged_rows(slices, staged, worker, held->number);
        if (gives_back)
            seat->back = slices_staged(slices, staged, slices->n_nodes[worker]) + slice->at;
        return STATUS_OK;
    }
    const size_t nodes = (size_t)slices->n_nodes[worker];
    const size_t most = (size_t)(slice->is_table ? slice->most : 0);
    const size_t floats = slice->is_table ? 4 * TREE_DEPTH + most * (1 + (size_t)slice->width)
                                          : (nodes + gives_back) * (size_t)slice->count;
    TRY(mem_alloc(floats, sizeof(float), &seat->memory));
    if (slice->is_table) {
        seat->rows.counts = seat->memory;
        seat->rows.ids = (int32_t *)((int64_t *)seat->memory + 2 * TREE_DEPTH);
        seat->rows.rows = (float *)(seat->rows.ids + most);
    } else if (gives_back) {
        seat->back = (float *)seat->memory + nodes * (size_t)slice->count;
    }
    return STATUS_OK;
}

static enum status hold(struct server *server, int number)
{
    const struct slices *slices = server->slices;
    const struct slice *slice = &slices->slice[number];
    struct held *held = &server->held[server->n_held];
    char *area = block_server(&server->block, server->rank);

    server->held_of[number] = server->n_held++;
    *held = (struct held){
        .slice = slice,
        .number = number,
        .is_mine = slice->server == server->number,
        .has_partner = slice->server == server->number && slice->partner >= 0,
        .param = slices_param(slices, area, server->number, number),
    };
    for (int i = 0; i < slices->config.layout.n_states; i++)
        held->state[i] = slices_state(slices, area, server->number, number, i);
    if (slice->is_table)
        held->changed =
            slices_list(slices, area, server->number, number, server->config.workers);
    TRY(mem_alloc((size_t)server->config.workers, sizeof(*held->seats), &held->seats));
    for (int w = 0; w < server->config.workers; w++)
        TRY(seat_worker(server, held, w));
    if (held->is_mine)
        server->stats.server[server->number].elements += slice->count;
    if (held->is_mine || block_has(&server->block, slices_rank(slices, slice->server)))
        return STATUS_OK;
    if (slice->is_table)
        TRY(mem_alloc((size_t)slice->rows, sizeof(int32_t), &held->coming_rows));
    return mem_alloc((size_t)(1 + slices->config.layout.n_states),
                     (size_t)slice->count * sizeof(float), &held->coming);
}

static enum status open_lines(struct server *server)
{
    const struct slices *slices = server->slices;
    const int workers = server->config.workers, servers = server->config.servers;
    const uint32_t tag = transport_new_tags(server->config.transport, 2);

    TRY(mem_alloc((size_t)(workers + servers), sizeof(*server->lines), &server->lines));
    for (int w = 0; w < workers; w++)
        TRY(line_open(&server->lines[w], slices, w, tag, line_smalls(slices)));
    for (int s = 0; s < servers; s++) {
        const bool is_next = (server->number + 1) % servers == s;
        const bool is_last = (s + 1) % servers == server->number;
        if (server->config.replicas > 1 && s != server->number && (is_next || is_last))
            TRY(line_open(&server->lines[workers + s], slices, workers + s, tag,
                          line_smalls(slices)));
    }
    return STATUS_OK;
}

static enum status fill_server(struct server *server)
{
    const struct slices *slices = server->slices;

    server->number = server->rank - server->config.workers;
    server->spread_every = 1;
    (void)snprintf(server->name, sizeof(server->name), "parameter server %d", server->number);
    server->was_lead = is_lead(server);
    TRY(block_create(slices, &server->block));
    TRY(mem_alloc((size_t)server->config.workers, sizeof(*server->members), &server->members));
    TRY(mem_alloc((size_t)slices->count, sizeof(*server->held), &server->held));
    TRY(mem_alloc((size_t)slices->count, sizeof(int), &server->held_of));
    for (int i = 0; i < slices->count; i++) {
        server->held_of[i] = -1;
        if (slices_holds(slices, server->number, i))
            TRY(hold(server, i));
    }
    TRY(apply_create(server));
    TRY(open_lines(server));
    return server->config.replicas > 1 ? transport_set_expendable(server->config.transport)
                                       : STATUS_OK;
}

static void destroy(struct server *server)
{
    for (int i = 0; server->lines && i < server->config.workers + server->config.servers; i++)
        line_close(&server->lines[i]);
    for (int i = 0; i < server->n_held; i++) {
        struct held *held = &server->held[i];
        for (int w = 0; held->seats && w < server->config.workers; w++) {
            mem_free(held->seats[w].marks);
            mem_free(held->seats[w].parts);
            mem_free(held->seats[w].memory);
        }
        mem_free(held->seats);
        mem_free(held->coming);
        mem_free(held->coming_rows);
    }
    apply_destroy(server);
    mem_free(server->lines);
    mem_free(server->held);
    mem_free(server->held_of);
    mem_free(server->members);
    block_release(&server->block);
    slices_destroy(server->slices);
    mem_free(server);
}

enum status ps_serve(const struct ps_config *config, struct ps_stats *out)
{
    struct server *server;

    TRY(mem_alloc(1, sizeof(*server), &server));
    enum status status = slices_create(config, &server->slices);
    if (status == STATUS_OK) {
        server->config = server->slices->config;
        server->rank = transport_rank(config->transport);
        status = fill_server(server);
    }
    if (status == STATUS_OK) {
        const unsigned mode = kernel_flush_denormals();
        status = serve(server);
        kernel_restore_float_mode(mode);
    }
    if (status == STATUS_OK && out) {
        close_stats(server);
        *out = server->stats;
    }
    destroy(server);
    return status;
}
