/* SPDX-License-Identifier: MIT */
/* tick.c - workers' ticks: what all of them say, clocks apart over time, and statistics.
 *
 * Every server hears all ticks; the first that is not lost answers. Under PS_STEP that is when as many have ticked
 * the clock as a step waits for, else at once.
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
enum status tick_end_rounds(struct server *server)
{
    const int workers = server->config.workers;
    const bool leads = tick_is_lead(server);
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
        add_tick(&server->all, &server->sum);
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
    if (server->config.policy != PS_STEP) /* where one that comes too late does not count */
        add_tick(&server->all, &tick.said);
    record_spread(server);
    if (server->config.policy == PS_STEP)
        return STATUS_OK; /* end_rounds */
    member->is_waiting = false;
    return tick_is_lead(server) ? tell(server, worker, member->ticked) : STATUS_OK;
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
