/* SPDX-License-Identifier: MIT */
/* server.c - a server's life: it takes frames from workers and other servers, and runs the tasks of
 * its program (run.c), until all workers have left.
 *
 * Some work is no task, as it belongs to no clock: hello and begin, values before the first clock
 * and after the last (put, pull, get), the meeting at the end, statistics, heartbeats (the
 * transport's), and the takeover from a lost server, which changes the program. hear.c refuses
 * frames out of turn, such as a push whose worker has not got its last pull.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

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

/* The loop ---------------------------------------------------------------------------------------------- */

static enum status lose(struct server *server, int rank)
{
    if (rank >= server->config.workers)
        return copy_lose(server, rank - server->config.workers);
    server_leave(server, rank, true);
    return STATUS_OK;
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
        TRY(server_hear(server, rank, &frame, payload));
    }
    return line->is_lost ? lose(server, rank) : STATUS_OK;
}

/* Has everybody come, and is all that they pushed applied? */
static bool have_met(const struct server *server)
{
    bool any = false;

    for (int w = 0; w < server->config.workers; w++) {
        if (workers_is_active(server, w))
            return false;
        any |= server->members[w].has_met && !server->members[w].is_gone;
    }
    for (int i = 0; i < server->n_held; i++) {
        const struct held *held = &server->held[i];
        if (held->is_copying)
            return false;
        for (int w = 0; w < server->config.workers; w++) {
            if (held->is_mine && seat_is_pending(server, &held->seats[w]))
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
        if (server->members[w].is_gone || server->members[w].is_dismissed)
            continue;
        TRY(server_job(server, w, FRAME_MET, 0, &job));
        server->members[w].has_met = false;
        server->members[w].is_dismissed = server->members[w].is_standing;
    }
    return STATUS_OK;
}

enum status server_look(struct server *server)
{
    const int ranks = server->config.workers + server->config.servers;

    server->moved = false;
    for (int rank = ranks - 1; rank >= 0;
         rank--) /* servers first: what they leave behind is served */
        TRY(take_frames(server, rank));
    TRY(run_tasks(server));
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

/* Nothing moves. What passes between two looks is bounded: if it is long, the job was stopped. */
static enum status count_still(struct server *server, int64_t ns)
{
    const double most = server->config.stall_timeout;

    server->still_ns += ns < 2 * look_again_ns ? ns : 2 * look_again_ns;
    if (most == 0 || (double)server->still_ns * 1e-9 < most)
        return STATUS_OK;
    const int worker = workers_awaited(server);
    if (worker < 0)
        return STATUS_OK;
    return FAIL(
        STATUS_PEER_LOST,
        "rank %d has pushed nothing for %.15g s (--stall-timeout), and others wait for its "
        "clock %llu",
        transport_job_rank(server->config.transport, worker), most,
        (unsigned long long)server->members[worker].ticked);
}

/* Of this thread: waiting for a core is not work. */
static double cpu_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static enum status serve(struct server *server)
{
    struct transport *transport = server->config.transport;
    struct ps_server_stats *stats = &server->stats.server[server->number];
    double since = cpu_seconds();

    while (!is_over(server)) {
        const uint32_t seen = transport_bell(transport);
        TRY(server_look(server));
        if (server->moved) {
            server->still_ns = 0;
            continue;
        }
        const int64_t idle = clock_ns();
        stats->busy += cpu_seconds() - since;
        transport_note(transport, server->clock, server->name);
        TRY(transport_wait_bell(transport, seen, look_again_ns, "workers"));
        const int64_t waited = clock_ns() - idle;
        stats->idle += (double)waited * 1e-9;
        since = cpu_seconds();
        TRY(count_still(server, waited));
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
        const bool copies = server->config.replicas > 1 && (is_next || is_last);
        if (s != server->number && (copies || server->clip))
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
    server->was_lead = tick_is_lead(server);
    TRY(block_create(slices, &server->block));
    TRY(mem_alloc((size_t)server->config.workers, sizeof(*server->members), &server->members));
    for (int w = 0; w < server->config.workers; w++)
        server->members[w].is_standing = slices_is_spare(&server->config, w);
    TRY(mem_alloc((size_t)slices->count, sizeof(*server->held), &server->held));
    TRY(mem_alloc((size_t)slices->count, sizeof(int), &server->held_of));
    for (int i = 0; i < slices->count; i++) {
        server->held_of[i] = -1;
        if (slices_holds(slices, server->number, i))
            TRY(hold(server, i));
    }
    TRY(apply_create(server));
    TRY(clip_create(server));
    TRY(mem_alloc((size_t)server->config.servers, sizeof *server->is_lost, &server->is_lost));
    TRY(server_add_rows(server));
    TRY(server_lower(server));
    TRY(open_lines(server));
    if (server->config.replicas == 1)
        return STATUS_OK;
    const enum status status = transport_set_expendable(server->config.transport);
    if (status != STATUS_UNSUPPORTED)
        return status;
    return FAIL(status,
                "--replicas 2: a job that mpirun or srun started does not survive the loss "
                "of a server, so a second copy is of no use: leave it out");
}

void server_destroy(struct server *server)
{
    if (!server)
        return;
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
    clip_destroy(server);
    program_destroy(server->tasks.program);
    mem_free(server->tasks.turns);
    mem_free(server->is_lost);
    mem_free(server->traces.rows);
    mem_free(server->traces.names);
    mem_free(server->lines);
    mem_free(server->held);
    mem_free(server->held_of);
    mem_free(server->members);
    block_release(&server->block);
    slices_destroy(server->slices);
    mem_free(server);
}

enum status server_create(const struct ps_config *config, struct server **out)
{
    struct server *server;

    TRY(mem_alloc(1, sizeof(*server), &server));
    enum status status = slices_create(config, &server->slices);
    if (status == STATUS_OK) {
        server->config = server->slices->config;
        server->rank = transport_rank(config->transport);
        status = fill_server(server);
    }
    if (status != STATUS_OK) {
        server_destroy(server);
        return status;
    }
    *out = server;
    return STATUS_OK;
}

enum status ps_serve(const struct ps_config *config, struct ps_stats *out)
{
    struct server *server;

    TRY(server_create(config, &server));
    const unsigned mode = kernel_flush_denormals();
    const enum status status = serve(server);
    kernel_restore_float_mode(mode);
    if (status == STATUS_OK && out) {
        tick_close_stats(server);
        *out = server->stats;
    }
    server_destroy(server);
    return status;
}
