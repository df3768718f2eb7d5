/* SPDX-License-Identifier: MIT */
/* command.c - what the worker's thread asks of the client's: said to the servers, and when it is
 * done. */
#include <string.h>

#include "ps/client.h"

enum status client_job(struct ps_client *client, int server, enum frame_kind kind, int slice,
                       struct job **out)
{
    *out = line_add(&client->lines[server], kind, slice);
    if (!*out)
        return FAIL(STATUS_CORRUPT, "server %d does not take what it is told", server);
    return STATUS_OK;
}

bool client_hears(const struct ps_client *client, int server)
{
    return client->lines[server].is_open;
}

static enum status say(struct ps_client *client, enum frame_kind kind, uint64_t clock)
{
    struct job *job;

    for (int s = 0; s < client->config.servers; s++) {
        TRY(client_job(client, s, kind, 0, &job));
        job->head.clock = clock;
    }
    return STATUS_OK;
}

static int64_t fill_parts(void *arg, const struct job *job, struct frame *head, void *payload)
{
    const struct ps_client *client = arg;
    const struct slices *slices = client->slices;
    const bool is_near = job->head.version;
    struct frame_part *parts = payload;

    for (int i = 0; i < head->part; i++) {
        struct tree_node node = slices->nodes[client->worker][i];
        const float *data =
            slices_staged(slices, block_staged(&client->block, client->worker), i);
        if (is_near && client->in_place) {
            node = client->memory.parts[i].node;
            data = client->memory.parts[i].data;
        }
        parts[i] =
            (struct frame_part){ node.begin, node.length,
                                 is_near ? (const char *)data - client->block.base : -1 };
    }
    head->bytes = (uint32_t)((size_t)head->part * sizeof(*parts));
    return job->end;
}

static enum status send_hello(struct ps_client *client)
{
    struct job *job;

    for (int s = 0; s < client->config.servers; s++) {
        const bool is_near = block_has(&client->block, slices_rank(client->slices, s));
        TRY(client_job(client, s, FRAME_HELLO, 0, &job));
        job->head.part = is_near && client->in_place ? client->memory.n_parts
                                                     : client->slices->n_nodes[client->worker];
        job->head.version = is_near;
        job->fill = fill_parts;
        job->arg = client;
        job->end = 1;
    }
    return STATUS_OK;
}

static int64_t fill_put(void *arg, const struct job *job, struct frame *head, void *payload)
{
    const struct ps_client *client = arg;
    const int64_t left = job->end - job->at;

    head->count = left < FRAME_FLOATS ? left : FRAME_FLOATS;
    head->bytes = (uint32_t)head->count * (uint32_t)sizeof(float);
    move_gather(client->slices, head->slice, client->handoff.source, job->at, head->count,
                payload);
    return job->at + head->count;
}

/* Before worker 0 has begun a server does not touch its values: who shares its memory may write
 * them. */
static void write_slice(const struct ps_client *client, int server, int slice)
{
    const struct slices *slices = client->slices;
    char *area = block_server(&client->block, slices_rank(slices, server));
    float *to = client->handoff.state < 0
                    ? slices_param(slices, area, server, slice)
                    : slices_state(slices, area, server, slice, client->handoff.state);

    move_gather(slices, slice, client->handoff.source, 0, slices->slice[slice].count, to);
}

static enum status put_slice(struct ps_client *client, int server, int slice)
{
    struct job *job;

    if (block_has(&client->block, slices_rank(client->slices, server))) {
        write_slice(client, server, slice);
        return STATUS_OK;
    }
    TRY(client_job(client, server, FRAME_PUT, slice, &job));
    job->head.part = client->handoff.state;
    job->fill = fill_put;
    job->arg = client;
    job->end = client->slices->slice[slice].count;
    return STATUS_OK;
}

static enum status put_vector(struct ps_client *client)
{
    for (int i = 0; i < client->slices->count; i++) {
        for (int s = 0; s < client->config.servers; s++) {
            if (slices_holds(client->slices, s, i))
                TRY(put_slice(client, s, i));
        }
    }
    return STATUS_OK;
}

enum status command_pull(struct ps_client *client, int slice)
{
    struct job *job;

    TRY(client_job(client, client->wanted[slice].server, FRAME_PULL, slice, &job));
    job->head.clock = atomic_load_explicit(&client->clock, memory_order_relaxed);
    client->wanted[slice].wish = WISH_PULL;
    return STATUS_OK;
}

static enum status begin(struct ps_client *client)
{
    TRY(say(client, FRAME_BEGIN, atomic_load_explicit(&client->clock, memory_order_relaxed)));
    for (int b = 0; b < client->config.layout.buckets; b++)
        client->buckets[b].missing =
            client->slices->of_bucket[b + 1] - client->slices->of_bucket[b];
    for (int i = 0; i < client->slices->count; i++)
        TRY(command_pull(client, i));
    return STATUS_OK;
}

static enum status send_tick(struct ps_client *client)
{
    const struct frame_tick tick = {
        .said = client->own.saying.tick,
        .wait = (double)atomic_load_explicit(&client->wait_ns, memory_order_relaxed) * 1e-9,
    };
    struct job *job;

    for (int s = 0; s < client->config.servers; s++) {
        TRY(client_job(client, s, FRAME_TICK, 0, &job));
        job->head.clock = client->own.saying.clock;
        job->head.bytes = sizeof(tick);
        memcpy(job->payload, &tick, sizeof(tick));
    }
    return STATUS_OK;
}

enum status command_get(struct ps_client *client, int slice)
{
    struct job *job;

    client->own.left[slice] = client->slices->slice[slice].count;
    TRY(client_job(client, client->wanted[slice].server, FRAME_GET, slice, &job));
    job->head.part = client->handoff.state;
    return STATUS_OK;
}

enum status command_start(struct ps_client *client, enum command command)
{
    memset(client->own.answered, 0, (size_t)client->config.servers * sizeof(bool));
    client->own.running = command;
    switch (command) {
    case COMMAND_HELLO:
        return send_hello(client);
    case COMMAND_PUT:
        return put_vector(client);
    case COMMAND_BEGIN:
        return begin(client);
    case COMMAND_TICK:
        return send_tick(client);
    case COMMAND_STAND:
        return STATUS_OK;
    case COMMAND_MEET: /* command_meet */
        client->own.has_met = false;
        return STATUS_OK;
    case COMMAND_GET:
        for (int i = 0; i < client->slices->count; i++)
            TRY(command_get(client, i));
        return STATUS_OK;
    case COMMAND_ASK:
        memset(client->handoff.stats, 0, sizeof(*client->handoff.stats));
        return say(client, FRAME_ASK, 0);
    case COMMAND_LEAVE:
        return say(client, FRAME_BYE, 0);
    case COMMAND_NONE:
        break;
    }
    return STATUS_OK;
}

enum status command_meet(struct ps_client *client)
{
    if (client->own.running != COMMAND_MEET || client->own.has_met)
        return STATUS_OK;
    for (int i = 0; i < client->slices->count; i++) {
        if (client->wanted[i].wish != WISH_NONE)
            return STATUS_OK;
    }
    client->own.has_met = true;
    return say(client, FRAME_MEET, 0);
}

int command_place(const struct ps_client *client)
{
    const int spares = client->config.spares, others = client->config.workers - spares;

    for (int w = 1 + client->worker - others; w < others; w += spares) {
        if (transport_lost(client->config.transport, w, NULL))
            return w;
    }
    return -1;
}

static bool all_answered(const struct ps_client *client)
{
    for (int s = 0; s < client->config.servers; s++) {
        if (client_hears(client, s) && !client->own.answered[s])
            return false;
    }
    return true;
}

static bool all_idle(const struct ps_client *client)
{
    for (int s = 0; s < client->config.servers; s++) {
        if (!line_is_idle(&client->lines[s]))
            return false;
    }
    return true;
}

bool command_is_complete(const struct ps_client *client)
{
    switch (client->own.running) {
    case COMMAND_PUT:
    case COMMAND_LEAVE:
        return all_idle(client);
    case COMMAND_MEET:
        return client->own.has_met && all_answered(client);
    case COMMAND_STAND:
        return client->handoff.is_dismissed || command_place(client) >= 0;
    case COMMAND_ASK:
        return all_answered(client);
    case COMMAND_GET:
        for (int i = 0; i < client->slices->count; i++) {
            if (client->own.left[i] > 0)
                return false;
        }
        return true;
    default:
        return true;
    }
}
