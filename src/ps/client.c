/* SPDX-License-Identifier: MIT */
/* client.c - a worker's end of the servers: what the worker's threads call. */
#include "ps/client.h"

#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

/* With the lock: did the thread fail? */
static enum status failure(const struct ps_client *client)
{
    if (client->handoff.status == STATUS_OK)
        return STATUS_OK;
    return status_set(client->handoff.status, client->handoff.text);
}

static void note_meeting(const struct ps_client *client, const char *point)
{
    if (client->config.at_meeting)
        client->config.at_meeting(client->config.at_meeting_arg, point);
}

/* How long somebody has waited. Time in which the job was stopped does not count. */
struct patience {
    int64_t waited_ns, last_ns;
};

/* With the lock: until the thread has changed something, or for a while. Servers name a worker that
 * stalls; one that is silent itself is noticed here, some seconds later. */
static enum status wait_for_change(struct ps_client *client, struct patience *patience,
                                   const char *what)
{
    const int64_t now = clock_ns(), slice_ns = 100 * 1000 * 1000;
    const int64_t passed = patience->last_ns ? now - patience->last_ns : 0;
    const double most = client->config.stall_timeout;
    struct timespec until;

    patience->last_ns = now;
    patience->waited_ns += passed < 2 * slice_ns ? passed : 2 * slice_ns;
    if (most > 0 && (double)patience->waited_ns * 1e-9 > most + 5)
        return FAIL(
            STATUS_PEER_LOST,
            "rank %d has waited %.15g s (--stall-timeout) for %s from parameter servers",
            transport_job_rank(client->config.transport, client->worker), most, what);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (until.tv_nsec + slice_ns) / 1000000000;
    until.tv_nsec = (until.tv_nsec + slice_ns) % 1000000000;
    pthread_cond_timedwait(&client->handoff.changed, &client->handoff.lock, &until);
    return failure(client);
}

/* Hands a command over, with what a tick says, and waits, if asked, until it is done. */
static enum status hand(struct ps_client *client, enum command what, const struct said *tick,
                        bool waits)
{
    /* Who stands by has all the time. */
    struct patience patience = { .waited_ns = what == COMMAND_STAND ? INT64_MIN / 2 : 0 };
    enum status status;

    note_meeting(client, "command");
    pthread_mutex_lock(&client->handoff.lock);
    status = failure(client);
    while (status == STATUS_OK && client->handoff.command != COMMAND_NONE)
        status = wait_for_change(client, &patience, "a word");
    if (tick)
        client->handoff.said = *tick;
    client->handoff.command = what;
    client->handoff.is_done = false;
    pthread_mutex_unlock(&client->handoff.lock);
    transport_ring(client->config.transport);
    if (!waits || status != STATUS_OK)
        return status;
    pthread_mutex_lock(&client->handoff.lock);
    status = failure(client);
    while (status == STATUS_OK && !client->handoff.is_done)
        status = wait_for_change(client, &patience, "an answer");
    pthread_mutex_unlock(&client->handoff.lock);
    return status;
}

static enum status command(struct ps_client *client, enum command what)
{
    return hand(client, what, NULL, true);
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

static void hand_over(struct ps_client *client, int bucket)
{
    const uint64_t clock = atomic_load_explicit(&client->clock, memory_order_relaxed);

    note_meeting(client, "push");
    atomic_store_explicit(&client->buckets[bucket].clock, clock, memory_order_relaxed);
    atomic_fetch_add_explicit(&client->buckets[bucket].pushed, 1, memory_order_release);
    transport_ring(client->config.transport);
}

enum status ps_push(struct ps_client *client, int bucket)
{
    if (client->slices->slice[client->slices->of_bucket[bucket]].is_table)
        return FAIL(STATUS_USAGE, "bucket %d is a table: its rows are pushed", bucket);
    hand_over(client, bucket);
    return STATUS_OK;
}

enum status ps_push_rows(struct ps_client *client, int bucket, const struct ps_rows *lists,
                         int n_lists)
{
    if (!client->slices->slice[client->slices->of_bucket[bucket]].is_table)
        return FAIL(STATUS_USAGE, "bucket %d is no table", bucket);
    TRY(move_stage_rows(client, bucket, lists, n_lists));
    hand_over(client, bucket);
    return STATUS_OK;
}

enum status ps_await(struct ps_client *client, int bucket)
{
    struct patience patience = { 0 };
    enum status status;

    if (has_arrived(client, bucket))
        return STATUS_OK;
    const int64_t began = clock_ns();
    pthread_mutex_lock(&client->handoff.lock);
    status = failure(client);
    while (!has_arrived(client, bucket) && status == STATUS_OK)
        status = wait_for_change(client, &patience, "values");
    pthread_mutex_unlock(&client->handoff.lock);
    count_wait(client, began);
    return status;
}

enum status ps_tick(struct ps_client *client, const struct ps_tick *tick, struct ps_heard *out)
{
    const uint64_t clock = atomic_load_explicit(&client->clock, memory_order_relaxed);
    const bool waits = client->config.policy == PS_STEP;
    const struct said said = { *tick, clock };
    const int64_t began = clock_ns();
    struct patience patience = { 0 };
    enum status status;

    TRY(hand(client, COMMAND_TICK, &said, false));
    pthread_mutex_lock(&client->handoff.lock);
    status = failure(client);
    while (waits && client->handoff.heard_clock <= clock && status == STATUS_OK)
        status = wait_for_change(client, &patience, "the others' ticks");
    *out = client->handoff.heard;
    pthread_mutex_unlock(&client->handoff.lock);
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
    pthread_mutex_lock(&client->handoff.lock);
    client->handoff.heard_clock = step;
    pthread_mutex_unlock(&client->handoff.lock);
    return command(client, COMMAND_BEGIN);
}

/* Spares ------------------------------------------------------------------------------------------------------------------ */

static bool is_dismissed(struct ps_client *client)
{
    pthread_mutex_lock(&client->handoff.lock);
    const bool dismissed = client->handoff.is_dismissed;
    pthread_mutex_unlock(&client->handoff.lock);
    return dismissed;
}

/* The clock that a spare begins with in the place of a worker. */
static enum status find_clock(struct ps_client *client, int place, uint64_t first,
                              uint64_t *out)
{
    const int others = client->config.workers - client->config.spares;
    uint64_t slowest = UINT64_MAX, next = first;
    struct ps_stats *stats;

    TRY(mem_alloc(1, sizeof(*stats), &stats));
    const enum status status = ps_collect(client, stats);
    for (int w = 0; w < client->config.workers; w++) {
        const bool is_there = !stats->lost[w] && !stats->standing[w] && w != place;
        if (is_there && stats->clock[w] < slowest)
            slowest = stats->clock[w];
    }
    BUG_ON(place < 1 || place >= others);
    next = stats->clock[place] > next ? stats->clock[place] : next;
    *out = slowest < UINT64_MAX && slowest > next ? slowest : next;
    mem_free(stats);
    return status;
}

/* Until values of all buckets are there, or it is over. */
static enum status await_all(struct ps_client *client)
{
    enum status status = STATUS_OK;

    for (int b = 0; b < client->config.layout.buckets && status == STATUS_OK; b++) {
        struct patience patience = { 0 };
        pthread_mutex_lock(&client->handoff.lock);
        status = failure(client);
        while (status == STATUS_OK && !has_arrived(client, b) && !client->handoff.is_dismissed)
            status = wait_for_change(client, &patience, "values");
        pthread_mutex_unlock(&client->handoff.lock);
    }
    return status;
}

enum status ps_stand(struct ps_client *client, uint64_t first, uint64_t end, int *out_worker,
                     uint64_t *out_step)
{
    *out_worker = -1;
    TRY(command(client, COMMAND_STAND));
    const int place = command_place(client);
    if (place < 0 || is_dismissed(client))
        return STATUS_OK;
    TRY(find_clock(client, place, first, out_step));
    if (*out_step >=
        end) /* the worker was lost after its last clock, or all others are there */
        return STATUS_OK;
    TRY(ps_begin(client, *out_step));
    TRY(await_all(client));
    *out_worker = is_dismissed(client) ? -1 : place;
    return STATUS_OK;
}

/* Whole vectors, and the end --------------------------------------------------------------------------------------------- */

enum status ps_put(struct ps_client *client, int state, const float *vector)
{
    if (state >= client->slices->config.layout.n_states)
        return STATUS_OK; /* PS_CENTER: servers have none */
    client->handoff.state = state;
    client->handoff.source = vector;
    return command(client, COMMAND_PUT);
}

enum status ps_get(struct ps_client *client, int state, float *vector)
{
    if (state >= client->slices->config.layout.n_states)
        return FAIL(STATUS_USAGE, "servers have no state %d", state);
    client->handoff.state = state;
    client->handoff.target = vector;
    return command(client, COMMAND_GET);
}

enum status ps_meet(struct ps_client *client)
{
    return command(client, COMMAND_MEET);
}

enum status ps_collect(struct ps_client *client, struct ps_stats *out)
{
    client->handoff.stats = out;
    return command(client, COMMAND_ASK);
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
    return command(client, COMMAND_HELLO);
}

/* Making one --------------------------------------------------------------------------------------------------------------- */

static enum status start_thread(struct ps_client *client)
{
    if (pthread_create(&client->handoff.thread, NULL, client_run, client) != 0)
        return FAIL(STATUS_NO_MEMORY, "cannot start a thread for parameter servers");
    client->handoff.has_thread = true;
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
    TRY(mem_alloc(servers, sizeof(bool), &client->own.answered));
    TRY(mem_alloc(n, sizeof(*client->wanted), &client->wanted));
    TRY(mem_alloc(n, sizeof(*client->own.left), &client->own.left));
    TRY(mem_alloc((size_t)client->config.layout.buckets, sizeof(*client->buckets),
                  &client->buckets));
    TRY(mem_alloc(TREE_SCRATCH, sizeof(float), &client->scratch));
    TRY(mem_alloc(1, sizeof(*client->own.coming), &client->own.coming));
    for (size_t i = 0; i < n; i++)
        client->wanted[i].server = slices->slice[i].server;
    const uint32_t tag = transport_new_tags(transport, 2);
    for (int s = 0; s < client->config.servers; s++)
        TRY(line_open(&client->lines[s], slices, slices_rank(slices, s), tag,
                      line_smalls(slices)));
    /* Worker 0 has the run's folder: nobody goes on without it. */
    if (client->config.policy != PS_STEP && client->worker > 0) {
        const enum status status = transport_set_expendable(transport);
        if (status == STATUS_UNSUPPORTED && client->config.spares > 0)
            return FAIL(status, "--spares: a job that mpirun or srun started does not survive "
                                "the loss of a worker, so "
                                "nobody could take its place: leave it out");
        if (status != STATUS_UNSUPPORTED)
            TRY(status);
    }
    return start_thread(client);
}

static void destroy(struct ps_client *client)
{
    if (client->handoff.has_thread)
        pthread_join(client->handoff.thread, NULL);
    for (int s = 0; client->lines && s < client->config.servers; s++)
        line_close(&client->lines[s]);
    pthread_cond_destroy(&client->handoff.changed);
    pthread_mutex_destroy(&client->handoff.lock);
    mem_free(client->lines);
    mem_free(client->is_lost);
    mem_free(client->own.answered);
    mem_free(client->wanted);
    mem_free(client->own.left);
    mem_free(client->buckets);
    mem_free(client->scratch);
    mem_free(client->own.coming);
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
    pthread_mutex_init(&client->handoff.lock, NULL);
    pthread_cond_init(&client->handoff.changed, NULL);
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
    (void)command(client, COMMAND_LEAVE);
    destroy(client);
}
