/* SPDX-License-Identifier: MIT */
/* talk.c - the client's thread: takes what servers say, hands on what is pushed, and turns to the
 * partner of a server that is lost.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "kernel/float_mode.h"
#include "ps/client.h"

static const int64_t look_again_ns = 100 * 1000 * 1000;

static void signal_change(struct ps_client *client)
{
    pthread_mutex_lock(&client->handoff.lock);
    pthread_cond_broadcast(&client->handoff.changed);
    pthread_mutex_unlock(&client->handoff.lock);
}

static int64_t bytes_of_values(const struct slice *slice, const struct frame *frame)
{
    const int64_t floats = frame->count < 0 ? slice->count : frame->count * (1 + slice->width);

    return floats * (int64_t)sizeof(float);
}

static enum status hear_fresh(struct ps_client *client, int server, const struct frame *frame)
{
    struct wanted *wanted = &client->wanted[frame->slice];
    const struct slice *slice = &client->slices->slice[frame->slice];
    struct bucket *bucket = &client->buckets[slice->bucket];
    const bool is_near = block_has(&client->block, slices_rank(client->slices, server));
    struct job *job;

    if (wanted->wish == WISH_NONE || wanted->server != server)
        return FAIL(STATUS_CORRUPT, "values of slice %d that nobody wants", frame->slice);
    const int64_t began = clock_ns();
    move_fresh(client, frame->slice, frame);
    atomic_fetch_add_explicit(&client->move_ns, clock_ns() - began, memory_order_relaxed);
    atomic_fetch_add_explicit(&client->bytes, bytes_of_values(slice, frame),
                              memory_order_relaxed);
    wanted->wish = WISH_NONE;
    if (is_near && slices_says_took(&client->config))
        TRY(client_job(client, server, FRAME_TOOK, frame->slice, &job));
    if (--bucket->missing == 0) {
        atomic_fetch_add_explicit(&bucket->arrived, 1, memory_order_release);
        signal_change(client);
    }
    return STATUS_OK;
}

static enum status hear_got(struct ps_client *client, const struct frame *frame,
                            const void *payload)
{
    const struct slice *slice = &client->slices->slice[frame->slice];

    /* Frames of a slice come in order; those of a server that was lost are asked for again. */
    if (client->own.running != COMMAND_GET || frame->part != client->handoff.state ||
        frame->at != slice->count - client->own.left[frame->slice])
        return FAIL(STATUS_CORRUPT, "values of slice %d that nobody wants", frame->slice);
    move_scatter(client->slices, frame->slice, payload, frame->at, frame->count,
                 client->handoff.target);
    client->own.left[frame->slice] -= frame->count;
    return STATUS_OK;
}

static void hear_heard(struct ps_client *client, const struct frame *frame, const void *payload)
{
    struct frame_heard heard;

    memcpy(&heard, payload, sizeof(heard));
    pthread_mutex_lock(&client->handoff.lock);
    client->handoff.heard_clock = frame->clock;
    client->handoff.heard = (struct ps_heard){ .clock = frame->clock,
                                               .sum = heard.sum,
                                               .all = heard.all,
                                               .low = heard.low,
                                               .high = heard.high,
                                               .lost = (int)heard.lost };
    pthread_cond_broadcast(&client->handoff.changed);
    pthread_mutex_unlock(&client->handoff.lock);
}

/* What all servers know alike is taken from the first. */
static void hear_stats(struct ps_client *client, int server, const void *payload)
{
    struct ps_stats *out = client->handoff.stats;
    struct ps_stats *stats = client->own.coming;
    bool is_first = true;

    if (client->own.running != COMMAND_ASK || client->own.answered[server])
        return;
    memcpy(stats, payload, sizeof(*stats));
    for (int s = 0; s < server; s++)
        is_first = is_first && !client_hears(client, s);
    struct ps_server_stats servers[PS_SERVERS];
    int64_t stale[PS_STALE];
    uint64_t spread = out->largest_spread;
    memcpy(servers, out->server, sizeof(servers));
    memcpy(stale, out->stale, sizeof(stale));
    for (int i = 0; i < PS_STALE; i++)
        stale[i] += stats->stale[i];
    servers[server] = stats->server[server];
    if (stats->largest_spread > spread)
        spread = stats->largest_spread;
    if (is_first)
        *out = *stats;
    memcpy(out->server, servers, sizeof(servers));
    memcpy(out->stale, stale, sizeof(stale));
    out->largest_spread = spread;
    client->own.answered[server] = true;
}

/* All have come to the end; who did not come itself is a spare. */
static void hear_met(struct ps_client *client, int server)
{
    if (client->own.running == COMMAND_MEET) {
        client->own.answered[server] = true;
        return;
    }
    pthread_mutex_lock(&client->handoff.lock);
    client->handoff.is_dismissed = true;
    pthread_cond_broadcast(&client->handoff.changed);
    pthread_mutex_unlock(&client->handoff.lock);
}

static enum status hear(struct ps_client *client, int server, const struct frame *frame,
                        const void *payload)
{
    switch (frame->kind) {
    case FRAME_VALUES:
        move_values(client, frame, payload);
        return STATUS_OK;
    case FRAME_ROW_VALUES:
        move_row_values(client, frame, payload);
        return STATUS_OK;
    case FRAME_FRESH:
        return hear_fresh(client, server, frame);
    case FRAME_HEARD:
        hear_heard(client, frame, payload);
        return STATUS_OK;
    case FRAME_MET:
        hear_met(client, server);
        return STATUS_OK;
    case FRAME_GOT:
        return hear_got(client, frame, payload);
    case FRAME_STATS:
        hear_stats(client, server, payload);
        return STATUS_OK;
    default:
        return FAIL(STATUS_CORRUPT, "a server says %s to a worker", frame_name(frame->kind));
    }
}

/* Loss of a server ------------------------------------------------------------------------------------------------ */

static enum status turn_to_partner(struct ps_client *client, int slice, int lost)
{
    struct wanted *wanted = &client->wanted[slice];
    const struct slice *what = &client->slices->slice[slice];
    const int other = what->server == lost ? what->partner : what->server;
    const char *text;

    if (other < 0 || !client_hears(client, other) || client->is_lost[other]) {
        (void)transport_lost(client->config.transport, slices_rank(client->slices, lost),
                             &text);
        return FAIL(STATUS_PEER_LOST,
                    "server %d is lost, and nobody else has its parameters: %s", lost, text);
    }
    wanted->server = other;
    if (wanted->wish == WISH_PULL)
        TRY(command_pull(client, slice));
    else if (wanted->wish == WISH_PUSH)
        TRY(move_push(client, slice));
    if (client->own.running == COMMAND_GET && client->own.left[slice] > 0)
        TRY(command_get(client, slice));
    return STATUS_OK;
}

static enum status lose_server(struct ps_client *client, int lost)
{
    client->is_lost[lost] = true;
    for (int i = 0; i < client->slices->count; i++) {
        if (client->wanted[i].server == lost)
            TRY(turn_to_partner(client, i, lost));
    }
    return STATUS_OK;
}

/* The thread --------------------------------------------------------------------------------------------------------- */

static enum status take_frames(struct ps_client *client, int server, bool *out_moved)
{
    struct line *line = &client->lines[server];
    struct frame frame;
    const void *payload;
    bool came;

    if (!line->is_open)
        return STATUS_OK;
    for (;;) {
        TRY(line_receive(line, &frame, &payload, &came));
        if (!came)
            break;
        *out_moved = true;
        const enum status status = hear(client, server, &frame, payload);
        if (status == STATUS_CORRUPT)
            line->refused++;
        else
            TRY(status);
    }
    return STATUS_OK;
}

static int64_t bytes_of_push(const struct ps_client *client, int number)
{
    const struct slice *slice = &client->slices->slice[number];
    const int nodes = client->slices->n_nodes[client->worker];
    int64_t floats = slice->count * nodes;

    if (slice->is_table) {
        const struct staged_rows rows =
            slices_staged_rows(client->slices, block_staged(&client->block, client->worker),
                               client->worker, number);
        floats = 0;
        for (int p = 0; p < nodes; p++)
            floats += rows.counts[p] * (1 + slice->width);
    }
    return floats * (int64_t)sizeof(float);
}

static enum status push_bucket(struct ps_client *client, int b)
{
    const int64_t began = clock_ns();
    const int first = client->slices->of_bucket[b], end = client->slices->of_bucket[b + 1];
    int64_t bytes = 0;
    bool moved;

    client->buckets[b].handled++;
    client->buckets[b].missing = end - first;
    for (int i = first; i < end; i++) {
        client->wanted[i].wish = WISH_PUSH;
        client->wanted[i].clock =
            atomic_load_explicit(&client->buckets[b].clock, memory_order_relaxed);
        TRY(move_push(client, i));
        TRY(line_send(&client->lines[client->wanted[i].server], &moved));
        bytes += bytes_of_push(client, i);
    }
    atomic_fetch_add_explicit(&client->bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&client->move_ns, clock_ns() - began, memory_order_relaxed);
    return STATUS_OK;
}

static enum status push_buckets(struct ps_client *client, bool *out_moved)
{
    for (int b = 0; b < client->config.layout.buckets; b++) {
        const struct bucket *bucket = &client->buckets[b];
        if (atomic_load_explicit(&bucket->pushed, memory_order_acquire) == bucket->handled)
            continue;
        *out_moved = true;
        TRY(push_bucket(client, b));
    }
    return STATUS_OK;
}

static enum command take_command(struct ps_client *client)
{
    pthread_mutex_lock(&client->handoff.lock);
    const enum command command = client->handoff.command;
    client->handoff.command = COMMAND_NONE;
    client->own.saying = client->handoff.said;
    if (command != COMMAND_NONE)
        pthread_cond_broadcast(&client->handoff.changed);
    pthread_mutex_unlock(&client->handoff.lock);
    return command;
}

static void end_command(struct ps_client *client)
{
    if (client->own.running == COMMAND_NONE || !command_is_complete(client))
        return;
    pthread_mutex_lock(&client->handoff.lock);
    client->handoff.is_done =
        client->handoff.command == COMMAND_NONE; /* else the next one is here already */
    client->handoff.has_ended = client->own.running == COMMAND_LEAVE;
    client->own.running = COMMAND_NONE;
    pthread_cond_broadcast(&client->handoff.changed);
    pthread_mutex_unlock(&client->handoff.lock);
}

static enum status look_once(struct ps_client *client, bool *out_moved)
{
    const int servers = client->config.servers;
    const enum command command = take_command(client);

    *out_moved = command != COMMAND_NONE;
    for (int s = 0; s < servers; s++)
        TRY(take_frames(client, s, out_moved));
    for (int s = 0; s < servers; s++) {
        if (client->lines[s].is_lost && !client->is_lost[s])
            TRY(lose_server(client, s));
    }
    TRY(push_buckets(client,
                     out_moved)); /* what was pushed before the command goes before it */
    if (command != COMMAND_NONE)
        TRY(command_start(client, command));
    TRY(command_meet(client));
    for (int s = 0; s < servers; s++)
        TRY(line_send(&client->lines[s], out_moved));
    end_command(client);
    return STATUS_OK;
}

static enum status run(struct ps_client *client)
{
    struct transport *transport = client->config.transport;

    while (!client->handoff.has_ended) {
        const uint32_t seen = transport_bell(transport);
        bool moved;

        TRY(look_once(client, &moved));
        if (!moved && !client->handoff.has_ended)
            TRY(transport_wait_bell(transport, seen, look_again_ns, "parameter servers"));
    }
    return STATUS_OK;
}

void *client_run(void *arg)
{
    struct ps_client *client = arg;

    kernel_flush_denormals();
    const enum status status = run(client);
    pthread_mutex_lock(&client->handoff.lock);
    client->handoff.status = status;
    if (status != STATUS_OK)
        (void)snprintf(client->handoff.text, sizeof(client->handoff.text), "%s",
                       status_message());
    client->handoff.has_ended = true;
    pthread_cond_broadcast(&client->handoff.changed);
    pthread_mutex_unlock(&client->handoff.lock);
    return NULL;
}
