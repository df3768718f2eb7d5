/* SPDX-License-Identifier: MIT */
/* copy.c - the second replica of a slice.
 *
 * After each update of a slice its server tells the partner, which takes over the parameters, the
 * state and whose push it was, and says so; only then the push is acknowledged, and until then the
 * slice does not change. What the partner copies from shared memory is therefore whole even if the
 * other dies meanwhile; what comes in frames is put aside until the last has come. When the server
 * is lost the partner serves the slice. Workers that have got no answer push again; a push that is
 * in the copy already is answered, not applied twice.
 */
#include <string.h>

#include "ps/server.h"

static int vectors(const struct server *server)
{
    return 1 + server->config.layout.n_states;
}

static float *vector_of(const struct held *held, int i)
{
    return i == 0 ? held->param : held->state[i - 1];
}

/* Telling -------------------------------------------------------------------------------------------- */

/* Elements of the parameters, then of each state. */
static int64_t fill_data(void *arg, const struct job *job, struct frame *head, void *payload)
{
    const struct held *held = arg;
    const int64_t count = held->slice->count, i = job->at / count, from = job->at % count;
    const int64_t left = count - from;

    head->part = (int32_t)i - 1;
    head->at = from;
    head->count = left < FRAME_FLOATS ? left : FRAME_FLOATS;
    head->bytes = (uint32_t)head->count * (uint32_t)sizeof(float);
    memcpy(payload, vector_of(held, (int)i) + from, head->bytes);
    return job->at + head->count;
}

static int64_t rows_at_once(const struct held *held, int n_vectors, int64_t left)
{
    const int64_t room = frame_rows(held->slice, n_vectors);

    return left < room ? left : room;
}

/* Rows that changed: their numbers, then these rows of each vector. */
static int64_t fill_changed(void *arg, const struct job *job, struct frame *head, void *payload)
{
    const struct held *held = arg;
    const int n_vectors = job->head.part;
    const size_t width = (size_t)held->slice->width;
    int32_t *ids = payload;

    head->count = rows_at_once(held, n_vectors, job->end - job->at);
    head->bytes =
        (uint32_t)((size_t)head->count * (1 + (size_t)n_vectors * width) * sizeof(float));
    float *row = (float *)payload + head->count;
    for (int64_t i = 0; i < head->count; i++) {
        ids[i] = held->changed[job->at + i];
        for (int v = 0; v < n_vectors; v++, row += width)
            memcpy(row, vector_of(held, v) + (size_t)ids[i] * width, width * sizeof(float));
    }
    return job->at + head->count;
}

static enum status send_copy(struct server *server, struct held *held, int rank)
{
    const bool is_table = held->slice->is_table;
    struct job *job;

    if (is_table && held->n_changed == 0)
        return STATUS_OK;
    TRY(server_job(server, rank, is_table ? FRAME_COPY_ROWS : FRAME_COPY_DATA, held->number,
                   &job));
    job->fill = is_table ? fill_changed : fill_data;
    job->arg = held;
    job->head.part = is_table ? vectors(server) : 0;
    job->end = is_table ? held->n_changed : held->slice->count * vectors(server);
    return STATUS_OK;
}

enum status copy_begin(struct server *server, struct held *held, int worker)
{
    const int rank = slices_rank(server->slices, held->slice->partner);
    struct job *job;

    if (!block_has(&server->block, rank))
        TRY(send_copy(server, held, rank));
    TRY(server_job(server, rank, FRAME_COPY, held->number, &job));
    job->head.part = worker;
    job->head.clock = worker < 0 ? held->clock : held->seats[worker].applied;
    job->head.version = held->version;
    job->head.count = held->slice->is_table ? held->n_changed : -1;
    held->is_copying = true;
    server_meet(server, "copy");
    return STATUS_OK;
}

/* Hearing -------------------------------------------------------------------------------------------- */

/* From the other's memory. */
static void copy_near(struct server *server, struct held *held, int from, int64_t rows)
{
    char *area = block_server(&server->block, slices_rank(server->slices, from));
    const size_t width = (size_t)held->slice->width;
    const int32_t *changed =
        held->slice->is_table
            ? slices_list(server->slices, area, from, held->number, server->config.workers)
            : NULL;

    for (int v = 0; v < vectors(server); v++) {
        const float *theirs =
            v == 0 ? slices_param(server->slices, area, from, held->number)
                   : slices_state(server->slices, area, from, held->number, v - 1);
        float *mine = vector_of(held, v);
        if (!changed)
            memcpy(mine, theirs, (size_t)held->slice->count * sizeof(float));
        for (int64_t i = 0; changed && i < rows; i++) {
            const size_t at = (size_t)changed[i] * width;
            memcpy(mine + at, theirs + at, width * sizeof(float));
        }
    }
}

/* From what has come in frames. */
static void copy_far(const struct server *server, struct held *held)
{
    const size_t width = (size_t)held->slice->width, count = (size_t)held->slice->count;
    const float *row = held->coming;

    for (int v = 0; !held->slice->is_table && v < vectors(server); v++)
        memcpy(vector_of(held, v), held->coming + (size_t)v * count, count * sizeof(float));
    for (int64_t i = 0; held->slice->is_table && i < held->n_coming; i++) {
        for (int v = 0; v < vectors(server); v++, row += width)
            memcpy(vector_of(held, v) + (size_t)held->coming_rows[i] * width, row,
                   width * sizeof(float));
    }
    held->n_coming = 0;
}

static enum status take_copy(struct server *server, struct held *held,
                             const struct frame *frame, int from)
{
    struct job *job;

    if (held->coming)
        copy_far(server, held);
    else if (frame->count <= held->slice->rows)
        copy_near(server, held, from, held->slice->is_table ? frame->count : -1);
    held->version = frame->version;
    if (frame->part < 0)
        held->clock = frame->clock;
    for (int w = 0; w < server->config.workers; w++) {
        if (frame->part < 0 || frame->part == w)
            held->seats[w].applied = frame->clock;
    }
    TRY(server_job(server, slices_rank(server->slices, from), FRAME_COPIED, held->number,
                   &job));
    server_trace(server, held->tasks.replica, frame->part, frame->clock - 1);
    server_meet(server, "copied");
    return STATUS_OK;
}

static enum status put_aside(struct server *server, struct held *held,
                             const struct frame *frame, const void *payload)
{
    const size_t width = (size_t)held->slice->width * (size_t)vectors(server);

    if (!held->coming)
        return FAIL(STATUS_CORRUPT, "values of slice %d come twice", held->number);
    if (frame->kind == FRAME_COPY_DATA) {
        memcpy(held->coming + (1 + frame->part) * held->slice->count + frame->at, payload,
               frame->bytes);
        return STATUS_OK;
    }
    if (frame->count > held->slice->rows - held->n_coming)
        return FAIL(STATUS_CORRUPT, "slice %d has no %lld rows that changed", held->number,
                    (long long)(held->n_coming + frame->count));
    memcpy(held->coming_rows + held->n_coming, payload, (size_t)frame->count * sizeof(int32_t));
    memcpy(held->coming + (size_t)held->n_coming * width, (const float *)payload + frame->count,
           (size_t)frame->count * width * sizeof(float));
    held->n_coming += frame->count;
    return STATUS_OK;
}

enum status copy_hear(struct server *server, struct held *held, const struct frame *frame,
                      const void *payload, int from)
{
    if (frame->kind == FRAME_COPIED) {
        if (!held->is_copying || held->slice->partner != from)
            return FAIL(STATUS_CORRUPT, "slice %d was not copied", held->number);
        held->is_copying = false;
        held->n_changed = 0;
        server_trace_end(server, held->span);
        return STATUS_OK;
    }
    if (held->is_mine || held->slice->server != from)
        return FAIL(STATUS_CORRUPT, "slice %d is not server %d's", held->number, from);
    return frame->kind == FRAME_COPY ? take_copy(server, held, frame, from)
                                     : put_aside(server, held, frame, payload);
}

enum status copy_lose(struct server *server, int lost)
{
    server->is_lost[lost] = true;
    for (int i = 0; i < server->n_held; i++) {
        struct held *held = &server->held[i];

        if (held->slice->server == lost && !held->is_mine) {
            held->is_mine = true;
            held->n_coming = 0;
            for (int w = 0; w < server->config.workers; w++) {
                held->seats[w].lacks_all = held->slice->is_table;
                held->seats[w].given = held->version; /* about */
            }
            TRY(clip_take_over(server, held->number));
        }
        if (held->slice->server == server->number && held->slice->partner == lost) {
            held->has_partner = held->is_copying = false;
            held->n_changed = 0;
        }
    }
    server->moved = true;
    return server_lower(server);
}
