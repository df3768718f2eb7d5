/* SPDX-License-Identifier: MIT */
/* client.c - a worker's end of the servers, and the thread that moves its messages while it computes. */
#include "ps/client.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernel/float_mode.h"

static const int64_t look_again_ns = 100 * 1000 * 1000;

enum status client_job(struct ps_client *client, int server, enum frame_kind kind, int slice,
                       struct job **out)
{
    *out = line_add(&client->lines[server], kind, slice);
    if (!*out)
        return FAIL(STATUS_CORRUPT, "server %d does not take what it is told", server);
    return STATUS_OK;
}

static bool is_alive(const struct ps_client *client, int server)
{
    return client->lines[server].is_open;
}

/* Commands, on the client's thread ------------------------------------------------------------------------ */

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
    move_gather(client->slices, head->slice, client->source, job->at, head->count, payload);
    return job->at + head->count;
}

static enum status send_vector(struct ps_client *client)
{
    struct job *job;

    for (int i = 0; i < client->slices->count; i++) {
        for (int s = 0; s < client->config.servers; s++) {
            if (!slices_holds(client->slices, s, i))
                continue;
            TRY(client_job(client, s, FRAME_PUT, i, &job));
            job->head.part = client->state;
            job->fill = fill_put;
            job->arg = client;
            job->end = client->slices->slice[i].count;
        }
    }
    return STATUS_OK;
}

static enum status ask_values(struct ps_client *client, int slice)
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
        TRY(ask_values(client, i));
    return STATUS_OK;
}

static enum status send_tick(struct ps_client *client)
{
    const struct frame_tick tick = {
        .said = client->said,
        .wait = (double)atomic_load_explicit(&client->wait_ns, memory_order_relaxed) * 1e-9,
    };
    struct job *job;

    for (int s = 0; s < client->config.servers; s++) {
        TRY(client_job(client, s, FRAME_TICK, 0, &job));
        job->head.clock = atomic_load_explicit(&client->clock, memory_order_relaxed);
        job->head.bytes = sizeof(tick);
        memcpy(job->payload, &tick, sizeof(tick));
    }
    return STATUS_OK;
}

static enum status ask_slice(struct ps_client *client, int slice)
{
    struct job *job;

    client->left[slice] = client->slices->slice[slice].count;
    TRY(client_job(client, client->wanted[slice].server, FRAME_GET, slice, &job));
    job->head.part = client->state;
    return STATUS_OK;
}

static enum status start_command(struct ps_client *client, enum command command)
{
    memset(client->answered, 0, (size_t)client->config.servers * sizeof(bool));
    client->running = command;
    switch (command) {
    case COMMAND_HELLO:
        return send_hello(client);
    case COMMAND_PUT:
        return send_vector(client);
    case COMMAND_BEGIN:
        return begin(client);
    case COMMAND_TICK:
        return send_tick(client);
    case COMMAND_MEET: /* go_to_meeting */
        client->has_met = false;
        return STATUS_OK;
    case COMMAND_GET:
        for (int i = 0; i < client->slices->count; i++)
            TRY(ask_slice(client, i));
        return STATUS_OK;
    case COMMAND_ASK:
        memset(client->stats, 0, sizeof(*client->stats));
        return say(client, FRAME_ASK, 0);
    case COMMAND_LEAVE:
        return say(client, FRAME_BYE, 0);
    case COMMAND_NONE:
        break;
    }
    return STATUS_OK;
}

/* Says that it has come once all that it pushed is acknowledged: servers that are lost meanwhile take nothing
 * with them. */
static enum status go_to_meeting(struct ps_client *client)
{
    if (client->running != COMMAND_MEET || client->has_met)
        return STATUS_OK;
    for (int i = 0; i < client->slices->count; i++) {
        if (client->wanted[i].wish != WISH_NONE)
            return STATUS_OK;
    }
    client->has_met = true;
    return say(client, FRAME_MEET, 0);
}

static bool all_answered(const struct ps_client *client)
{
    for (int s = 0; s < client->config.servers; s++) {
        if (is_alive(client, s) && !client->answered[s])
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

/* Has what the command is about come to its end? */
static bool is_complete(const struct ps_client *client)
{
    switch (client->running) {
    case COMMAND_PUT:
    case COMMAND_LEAVE:
        return all_idle(client);
    case COMMAND_MEET:
        return client->has_met && all_answered(client);
    case COMMAND_ASK:
        return all_answered(client);
    case COMMAND_GET:
        for (int i = 0; i < client->slices->count; i++) {
            if (client->left[i] > 0)
                return false;
        }
        return true;
    default:
        return true;
    }
}

/* Frames from servers ------------------------------------------------------------------------------------------ */

static void signal_change(struct ps_client *client)
{
    pthread_mutex_lock(&client->lock);
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
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
    if (is_near && (client->config.policy == PS_ASYNC || client->config.policy == PS_BOUNDED ||
                    client->config.backup > 0))
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
    if (client->running != COMMAND_GET || frame->part != client->state ||
        frame->at != slice->count - client->left[frame->slice])
        return FAIL(STATUS_CORRUPT, "values of slice %d that nobody wants", frame->slice);
    move_scatter(client->slices, frame->slice, payload, frame->at, frame->count,
                 client->target);
    client->left[frame->slice] -= frame->count;
    return STATUS_OK;
}

static void hear_heard(struct ps_client *client, const struct frame *frame, const void *payload)
{
    struct frame_heard heard;

    memcpy(&heard, payload, sizeof(heard));
    pthread_mutex_lock(&client->lock);
    client->heard_clock = frame->clock;
    client->heard = (struct ps_heard){ .clock = frame->clock,
                                       .sum = heard.sum,
                                       .all = heard.all,
                                       .low = heard.low,
                                       .high = heard.high,
                                       .lost = (int)heard.lost };
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
}

/* What all servers know alike is taken from the first. */
static void hear_stats(struct ps_client *client, int server, const void *payload)
{
    struct ps_stats *out = client->stats;
    struct ps_stats *stats = client->coming;
    bool is_first = true;

    if (client->running != COMMAND_ASK || client->answered[server])
        return;
    memcpy(stats, payload, sizeof(*stats));
    for (int s = 0; s < server; s++)
        is_first = is_first && !is_alive(client, s);
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
    client->answered[server] = true;
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
        client->answered[server] = true;
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

    if (other < 0 || !is_alive(client, other) || client->is_lost[other]) {
        (void)transport_lost(client->config.transport, slices_rank(client->slices, lost),
                             &text);
        return FAIL(STATUS_PEER_LOST,
                    "server %d is lost, and nobody else has its parameters: %s", lost, text);
    }
    wanted->server = other;
    if (wanted->wish == WISH_PULL)
        TRY(ask_values(client, slice));
    else if (wanted->wish == WISH_PUSH)
        TRY(move_push(client, slice));
    if (client->running == COMMAND_GET && client->left[slice] > 0)
        TRY(ask_slice(client, slice));
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
        client->wanted[i].clock = atomic_load_explicit(&client->clock, memory_order_relaxed);
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
    pthread_mutex_lock(&client->lock);
    const enum command command = client->command;
    client->command = COMMAND_NONE;
    pthread_mutex_unlock(&client->lock);
    return command;
}

static void end_command(struct ps_client *client)
{
    if (client->running == COMMAND_NONE || !is_complete(client))
        return;
    pthread_mutex_lock(&client->lock);
    client->is_done = true;
    client->has_ended = client->running == COMMAND_LEAVE;
    client->running = COMMAND_NONE;
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
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
        TRY(start_command(client, command));
    TRY(go_to_meeting(client));
    for (int s = 0; s < servers; s++)
        TRY(line_send(&client->lines[s], out_moved));
    end_command(client);
    return STATUS_OK;
}

static enum status run(struct ps_client *client)
{
    struct transport *transport = client->config.transport;

    while (!client->has_ended) {
        const uint32_t seen = transport_bell(transport);
        bool moved;

        TRY(look_once(client, &moved));
        if (!moved && !client->has_ended)
            TRY(transport_wait_bell(transport, seen, look_again_ns, "parameter servers"));
    }
    return STATUS_OK;
}

static void *run_thread(void *arg)
{
    struct ps_client *client = arg;

    kernel_flush_denormals();
    const enum status status = run(client);
    pthread_mutex_lock(&client->lock);
    client->status = status;
    if (status != STATUS_OK)
        (void)snprintf(client->text, sizeof(client->text), "%s", status_message());
    client->has_ended = true;
    pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->lock);
    return NULL;
}

/* Waiting -------------------------------------------------------------------------------------------------------------- */

/* With the lock: did the thread fail? */
static enum status failure(const struct ps_client *client)
{
    if (client->status == STATUS_OK)
        return STATUS_OK;
    return status_set(client->status, client->text);
}

/* Hands a command over and waits, if asked, until it is done. */
static enum status command(struct ps_client *client, enum command what, bool waits)
{
    enum status status = STATUS_OK;

    pthread_mutex_lock(&client->lock);
    while ((status = failure(client)) == STATUS_OK && client->command != COMMAND_NONE)
        pthread_cond_wait(&client->changed, &client->lock);
    client->command = what;
    client->is_done = false;
    pthread_mutex_unlock(&client->lock);
    transport_ring(client->config.transport);
    if (!waits || status != STATUS_OK)
        return status;
    pthread_mutex_lock(&client->lock);
    while ((status = failure(client)) == STATUS_OK && !client->is_done)
        pthread_cond_wait(&client->changed, &client->lock);
    pthread_mutex_unlock(&client->lock);
    return status;
}

static void count_wait(struct ps_client *client, int64_t began)
{
    atomic_fetch_add_explicit(&client->wait_ns, clock_ns() - began, memory_order_relaxed);
}

static bool has_arrived(const struct ps_client *client, int bucket)
{
    const uint32_t round = atomic_load_explicit(&client->round, memory_order_relaxed);

    return (int32_t)(atomic_load_explicit(&client->buckets[bucket].arrived,
                                          memory_order_acquire) -
                     (round + 1)) >= 0;
}

/* Public functions -------------------------------------------------------------------------------------------------------- */

enum status ps_push(struct ps_client *client, int bucket)
{
    if (client->slices->slice[client->slices->of_bucket[bucket]].is_table)
        return FAIL(STATUS_USAGE, "bucket %d is a table: its rows are pushed", bucket);
    atomic_fetch_add_explicit(&client->buckets[bucket].pushed, 1, memory_order_release);
    transport_ring(client->config.transport);
    return STATUS_OK;
}

enum status ps_push_rows(struct ps_client *client, int bucket, const struct ps_rows *lists,
                         int n_lists)
{
    if (!client->slices->slice[client->slices->of_bucket[bucket]].is_table)
        return FAIL(STATUS_USAGE, "bucket %d is no table", bucket);
    TRY(move_stage_rows(client, bucket, lists, n_lists));
    atomic_fetch_add_explicit(&client->buckets[bucket].pushed, 1, memory_order_release);
    transport_ring(client->config.transport);
    return STATUS_OK;
}

enum status ps_await(struct ps_client *client, int bucket)
{
    enum status status = STATUS_OK;

    if (has_arrived(client, bucket))
        return STATUS_OK;
    const int64_t began = clock_ns();
    pthread_mutex_lock(&client->lock);
    while (!has_arrived(client, bucket) && (status = failure(client)) == STATUS_OK)
        pthread_cond_wait(&client->changed, &client->lock);
    pthread_mutex_unlock(&client->lock);
    count_wait(client, began);
    return status;
}

enum status ps_tick(struct ps_client *client, const struct ps_tick *tick, struct ps_heard *out)
{
    const uint64_t clock = atomic_load_explicit(&client->clock, memory_order_relaxed);
    const bool waits = client->config.policy == PS_STEP;
    const int64_t began = clock_ns();
    enum status status = STATUS_OK;

    pthread_mutex_lock(&client->lock);
    client->said = *tick;
    pthread_mutex_unlock(&client->lock);
    TRY(command(client, COMMAND_TICK,
                true)); /* the thread has taken it, and knows this clock */
    pthread_mutex_lock(&client->lock);
    while (waits && client->heard_clock <= clock && (status = failure(client)) == STATUS_OK)
        pthread_cond_wait(&client->changed, &client->lock);
    *out = client->heard;
    pthread_mutex_unlock(&client->lock);
    TRY(status);
    if (!waits)
        out->clock = clock + 1;
    atomic_store_explicit(&client->clock, out->clock, memory_order_relaxed);
    atomic_fetch_add_explicit(&client->round, 1, memory_order_relaxed);
    count_wait(client, began);
    return STATUS_OK;
}

enum status ps_begin(struct ps_client *client, uint64_t step)
{
    atomic_store_explicit(&client->clock, step, memory_order_relaxed);
    pthread_mutex_lock(&client->lock);
    client->heard_clock = step;
    pthread_mutex_unlock(&client->lock);
    return command(client, COMMAND_BEGIN, true);
}

enum status ps_put(struct ps_client *client, int state, const float *vector)
{
    if (state >= client->slices->config.layout.n_states)
        return STATUS_OK; /* PS_CENTER: servers have none */
    client->state = state;
    client->source = vector;
    return command(client, COMMAND_PUT, true);
}

enum status ps_get(struct ps_client *client, int state, float *vector)
{
    if (state >= client->slices->config.layout.n_states)
        return FAIL(STATUS_USAGE, "servers have no state %d", state);
    client->state = state;
    client->target = vector;
    return command(client, COMMAND_GET, true);
}

enum status ps_meet(struct ps_client *client)
{
    return command(client, COMMAND_MEET, true);
}

enum status ps_collect(struct ps_client *client, struct ps_stats *out)
{
    client->stats = out;
    return command(client, COMMAND_ASK, true);
}

struct ps_times ps_times(const struct ps_client *client)
{
    return (struct ps_times){
        .wait = (double)atomic_load_explicit(&client->wait_ns, memory_order_relaxed) * 1e-9,
        .move = (double)atomic_load_explicit(&client->move_ns, memory_order_relaxed) * 1e-9,
        .bytes = (double)atomic_load_explicit(&client->bytes, memory_order_relaxed),
    };
}

void *ps_room(struct ps_client *client)
{
    return block_room(&client->block, client->worker);
}

/* Are all partial sums where servers of this node see them? */
static bool are_seen(const struct ps_client *client, const struct ps_memory *memory)
{
    const uintptr_t begin = (uintptr_t)client->block.base;
    const size_t bytes = (size_t)client->slices->vector * sizeof(float);

    for (int i = 0; i < memory->n_parts; i++) {
        const uintptr_t at = (uintptr_t)memory->parts[i].data;
        if (at < begin || at - begin > client->block.bytes ||
            client->block.bytes - (at - begin) < bytes)
            return false;
    }
    return memory->n_parts <= FRAME_PARTS;
}

enum status ps_attach(struct ps_client *client, const struct ps_memory *memory)
{
    if (memory->shards != client->slices->leaves[client->worker])
        return FAIL(STATUS_MISMATCH, "sums over %lld shards for a tree of %lld",
                    (long long)memory->shards,
                    (long long)client->slices->leaves[client->worker]);
    client->memory = *memory;
    client->in_place = are_seen(client, memory);
    return command(client, COMMAND_HELLO, true);
}

/* Making one --------------------------------------------------------------------------------------------------------------- */

static enum status start_thread(struct ps_client *client)
{
    if (pthread_create(&client->thread, NULL, run_thread, client) != 0)
        return FAIL(STATUS_NO_MEMORY, "cannot start a thread for parameter servers");
    client->has_thread = true;
    return STATUS_OK;
}

static enum status fill_client(struct ps_client *client)
{
    struct slices *slices = client->slices;
    const size_t n = (size_t)slices->count, servers = (size_t)client->config.servers;
    struct transport *transport = client->config.transport;

    TRY(block_create(slices, &client->block));
    TRY(mem_alloc(servers, sizeof(*client->lines), &client->lines));
    TRY(mem_alloc(servers, sizeof(bool), &client->is_lost));
    TRY(mem_alloc(servers, sizeof(bool), &client->answered));
    TRY(mem_alloc(n, sizeof(*client->wanted), &client->wanted));
    TRY(mem_alloc(n, sizeof(*client->left), &client->left));
    TRY(mem_alloc((size_t)client->config.layout.buckets, sizeof(*client->buckets),
                  &client->buckets));
    TRY(mem_alloc(TREE_SCRATCH, sizeof(float), &client->scratch));
    TRY(mem_alloc(1, sizeof(*client->coming), &client->coming));
    for (size_t i = 0; i < n; i++)
        client->wanted[i].server = slices->slice[i].server;
    const uint32_t tag = transport_new_tags(transport, 2);
    for (int s = 0; s < client->config.servers; s++)
        TRY(line_open(&client->lines[s], slices, slices_rank(slices, s), tag,
                      line_smalls(slices)));
    /* Worker 0 has the run's folder: nobody goes on without it. */
    if (client->config.policy != PS_STEP && client->worker > 0) {
        const enum status status = transport_set_expendable(transport);
        if (status != STATUS_UNSUPPORTED)
            TRY(status);
    }
    return start_thread(client);
}

static void destroy(struct ps_client *client)
{
    if (client->has_thread)
        pthread_join(client->thread, NULL);
    for (int s = 0; client->lines && s < client->config.servers; s++)
        line_close(&client->lines[s]);
    pthread_cond_destroy(&client->changed);
    pthread_mutex_destroy(&client->lock);
    mem_free(client->lines);
    mem_free(client->is_lost);
    mem_free(client->answered);
    mem_free(client->wanted);
    mem_free(client->left);
    mem_free(client->buckets);
    mem_free(client->scratch);
    mem_free(client->coming);
    block_release(&client->block);
    slices_destroy(client->slices);
    mem_free(client);
}

enum status ps_join(const struct ps_config *config, struct ps_client **out)
{
    struct ps_client *client;
    struct slices *slices;

    TRY(slices_create(config, &slices));
    const enum status made = mem_alloc(1, sizeof(*client), &client);
    if (made != STATUS_OK) {
        slices_destroy(slices);
        return made;
    }
    client->slices = slices;
    client->config = *config;
    client->worker = transport_rank(config->transport);
    pthread_mutex_init(&client->lock, NULL);
    pthread_cond_init(&client->changed, NULL);
    const enum status status = fill_client(client);
    if (status != STATUS_OK) {
        destroy(client);
        return status;
    }
    *out = client;
    return STATUS_OK;
}

void ps_leave(struct ps_client *client)
{
    if (!client)
        return;
    (void)command(client, COMMAND_LEAVE, true);
    destroy(client);
}
