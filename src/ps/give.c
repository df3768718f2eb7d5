/* SPDX-License-Identifier: MIT */
/* give.c - runs pulls: a worker gets a slice's values, through shared memory or in frames. */
#include <string.h>

#include "ps/server.h"

/* The next rows of those that a worker lacks. */
static int64_t fill_rows(void *arg, const struct job *job, struct frame *head, void *payload)
{
    struct seat *seat = arg;
    const struct held *held = seat->held;
    const size_t width = (size_t)held->slice->width;
    const int64_t left = job->end - job->at, room = frame_rows(held->slice, 1);
    int32_t *ids = payload;

    head->count = left < room ? left : room;
    head->bytes = (uint32_t)((size_t)head->count * (1 + width) * sizeof(float));
    float *rows = (float *)payload + head->count;
    for (int64_t i = 0; i < head->count; i++, rows += width) {
        ids[i] = seat->listed[job->at + i];
        memcpy(rows, held->param + (size_t)ids[i] * width, width * sizeof(float));
    }
    if (job->at + head->count == job->end)
        apply_forget_list(held, seat);
    return job->at + head->count;
}

/* Values go in frames before FRESH. The slice does not change until the last frame is made. */
static enum status send_values(struct server *server, struct held *held, struct seat *seat)
{
    const bool is_listed = held->slice->is_table && !seat->lacks_all;
    struct job *job;

    if (is_listed && seat->n_listed == 0)
        return STATUS_OK;
    TRY(server_job(server, seat->worker, is_listed ? FRAME_ROW_VALUES : FRAME_VALUES,
                   held->number, &job));
    job->fill = is_listed ? fill_rows : line_fill_floats;
    job->arg = is_listed ? (void *)seat : seat->back ? seat->back : held->param;
    job->end = is_listed ? seat->n_listed : held->slice->count;
    job->flag = &seat->is_reading;
    seat->is_reading = true;
    return STATUS_OK;
}

static void note_spread(struct server *server, int worker, uint64_t clocks)
{
    struct member *member = &server->members[worker];
    const uint64_t slowest = workers_slowest(server);

    member->given = clocks > member->given ? clocks : member->given;
    if (slowest < clocks && clocks - slowest > server->stats.largest_spread)
        server->stats.largest_spread = clocks - slowest;
}

/* Ends a worker's push; one that came too late is in no update. Rows of the next push are counted
 * from 0. */
static void end_push(struct server *server, struct seat *seat)
{
    if (seat->is_pushed && seat->applied < seat->pushed)
        server->stats.server[server->number].dropped++;
    seat->is_pushed = false;
    seat_wait(seat, false);
    if (seat->memory && seat->held->slice->is_table)
        memset(seat->rows.counts, 0, 2 * TREE_DEPTH * sizeof(int64_t));
}

enum status give_values(struct server *server, struct held *held, struct seat *seat,
                        uint64_t clocks)
{
    const bool is_near = block_has(&server->block, seat->worker);
    const int64_t listed = held->slice->is_table && !seat->lacks_all ? seat->n_listed : -1;
    const int64_t floats = listed < 0 ? held->slice->count : listed * (1 + held->slice->width);
    struct job *job;

    seat->span = server_span(server, held->tasks.pull, seat->worker, clocks - 1);
    server_meet(server, "give");
    if (is_near && slices_says_took(&server->config))
        seat->is_reading = true;
    if (!is_near)
        TRY(send_values(server, held, seat));
    TRY(server_job(server, seat->worker, FRAME_FRESH, held->number, &job));
    job->head.clock = clocks;
    job->head.version = held->version;
    job->head.count = listed;
    end_push(server, seat);
    seat->lacks_all = false;
    seat->given = held->version;
    server->stats.server[server->number].bytes_out += floats * (int64_t)sizeof(float);
    server->moved = true;
    note_spread(server, seat->worker, clocks);
    return STATUS_OK;
}

/* Traces the end of pulls: their frames are made, or the worker has copied the values. */
void give_end(struct server *server)
{
    for (int i = 0; i < server->n_held && server->traces.rows; i++) {
        for (int w = 0; w < server->config.workers; w++) {
            struct seat *seat = &server->held[i].seats[w];
            if (seat->is_reading)
                continue;
            server_trace_end(server, seat->span);
            seat->span.begin = 0;
        }
    }
}
