/* SPDX-License-Identifier: MIT */
/* workers.c - which workers are active, how far each has come, and which one others wait for. */
#include "ps/server.h"

bool workers_is_active(const struct server *server, int worker)
{
    const struct member *member = &server->members[worker];

    return !member->is_gone && !member->has_met && !member->is_standing;
}

int workers_quorum(const struct server *server, int but)
{
    int active = 0;

    for (int w = 0; w < server->config.workers; w++)
        active += workers_is_active(server, w);
    return active - but > 1 ? active - but : 1;
}

uint64_t workers_slowest(const struct server *server)
{
    uint64_t slowest = UINT64_MAX;

    for (int w = 0; w < server->config.workers; w++) {
        if (workers_is_active(server, w) && server->members[w].ticked < slowest)
            slowest = server->members[w].ticked;
    }
    return slowest;
}

bool seat_is_pending(const struct server *server, const struct seat *seat)
{
    return seat->is_pushed && seat->pushed > update_done(server, seat);
}

/* A lost worker's push is still applied, but it gets no answer. */
static bool waits(const struct server *server, const struct seat *seat)
{
    return seat->is_waiting &&
           (seat_is_pending(server, seat) || !server->members[seat->worker].is_gone);
}

/* Do others wait for this worker, which does not wait itself? */
static bool keeps_others(const struct server *server, int worker)
{
    return !server->tasks.takes_each ||
           server->members[worker].ticked == workers_slowest(server);
}

int workers_awaited(const struct server *server)
{
    for (int i = 0; i < server->n_held; i++) {
        const struct held *held = &server->held[i];
        bool others_wait = false;

        for (int w = 0; held->is_mine && w < server->config.workers; w++)
            others_wait |= waits(server, &held->seats[w]);
        for (int w = 0; others_wait && w < server->config.workers; w++) {
            if (workers_is_active(server, w) && !waits(server, &held->seats[w]) &&
                keeps_others(server, w))
                return w;
        }
    }
    return -1;
}
