/* SPDX-License-Identifier: MIT */
/* tick.c - workers' ticks: what all of them say, clocks apart over time, and statistics.
 *
 * Every server gets all ticks; the first that is not lost answers. Its task of losses waits for the
 * ticks of all workers (but backup workers) where their pushes make one update, else for one tick.
 */
#include <string.h>

#include "base/clock.h"
#include "ps/server.h"

/* Is this the server that answers ticks? The first that is not lost. */
bool tick_is_lead(const struct server *server)
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
    const uint64_t slowest = workers_slowest(server);
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

/* A server that takes the lead repeats the last answer, which may have been lost. */
static enum status take_lead(struct server *server, bool leads)
{
    const bool is_new = leads && !server->was_lead && server->clock > 0;

    server->was_lead = leads;
    for (int w = 0; is_new && w < server->config.workers; w++)
        TRY(tell(server, w, server->clock));
    return STATUS_OK;
}

/* Sums the ticks of a clock that have come in time. */
static void add_round(struct server *server)
{
    server->sum = (struct ps_tick){ 0 };
    server->clock++;
    for (int w = 0; w < server->config.workers; w++) {
        const struct member *member = &server->members[w];
        if (member->is_waiting && member->ticked == server->clock)
            add_tick(&server->sum, &member->said);
    }
    add_tick(&server->all, &server->sum);
}

/* Answers workers whose clocks are over. */
static enum status answer(struct server *server, int number, bool leads)
{
    const bool is_each = server->tasks.program->tasks[number].is_of_workers;

    for (int w = 0; w < server->config.workers; w++) {
        struct member *member = &server->members[w];
        const uint64_t clock = is_each ? member->ticked : server->clock;
        if (!member->is_waiting || member->ticked > clock)
            continue;
        member->is_waiting = false;
        if (leads)
            TRY(tell(server, w, clock));
        if (is_each)
            server_trace(server, number, w, clock - 1);
    }
    return STATUS_OK;
}

enum status tick_run(struct server *server, int number)
{
    const bool is_each = server->tasks.program->tasks[number].is_of_workers;
    const bool leads = tick_is_lead(server);

    if (!is_each)
        TRY(take_lead(server, leads));
    if (!is_each && run_is_ready(server, number, 0, server->clock + 1)) {
        add_round(server);
        server_trace(server, number, -1, server->clock - 1);
    }
    return answer(server, number, leads);
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
        if (!workers_is_active(server, w))
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

enum status tick_hear(struct server *server, int worker, const struct frame *frame,
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
    if (server->tasks.takes_each) /* else one that comes too late does not count */
        add_tick(&server->all, &tick.said);
    record_spread(server);
    server_trace(server, server->tasks.ticks, worker, frame->clock);
    return STATUS_OK;
}

void tick_close_stats(struct server *server)
{
    struct ps_stats *stats = &server->stats;

    stats->workers = server->config.workers;
    stats->servers = server->config.servers;
    stats->all = server->all;
    stats->server[server->number].refused = 0;
    for (int rank = 0; rank < server->config.workers + server->config.servers; rank++)
        stats->server[server->number].refused += server->lines[rank].refused;
    for (int w = 0; w < server->config.workers; w++) {
        stats->wait[w] = server->members[w].wait;
        stats->clock[w] = server->members[w].ticked;
        stats->lost[w] = server->members[w].is_lost;
        stats->standing[w] = server->members[w].is_standing;
    }
}
