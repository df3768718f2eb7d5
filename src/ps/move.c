/* SPDX-License-Identifier: MIT */
/* move.c - a worker's values on their way to servers and back.
 *
 * A server of the same node reads gradients where they lie, if that is memory it sees; else the client's thread
 * adds them up to as few partial sums as the tree allows and stages these there. To other nodes such sums go in
 * frames, made as there is room. Rows of tables are laid out by slices when they are pushed.
 */
#include <string.h>

#include "ps/client.h"

static char *staged(const struct ps_client *client)
{
    return block_staged(&client->block, client->worker);
}

/* Elements of a slice ---------------------------------------------------------------------------------- */

/* Calls for the pieces of [at, at + count) of the slice that are in a row in the flat vector. */
struct piece {
    int64_t place, from, count; /* in the vector; from `at` on; elements */
};

static struct piece piece_at(const struct slices *slices, int number, int64_t at, int64_t count)
{
    const struct slice *slice = &slices->slice[number];

    if (!slice->is_table)
        return (struct piece){ slice->at + at, 0, count };
    const int64_t row = at / slice->width, column = at % slice->width;
    const int64_t left = slice->width - column;
    return (struct piece){ slice->at + (slice->first + row * slice->step) * slice->width +
                               column,
                           0, left < count ? left : count };
}

void move_gather(const struct slices *slices, int slice, const float *vector, int64_t at,
                 int64_t count, float *out)
{
    while (count > 0) {
        const struct piece piece = piece_at(slices, slice, at, count);
        memcpy(out, vector + piece.place, (size_t)piece.count * sizeof(float));
        out += piece.count;
        at += piece.count;
        count -= piece.count;
    }
}

void move_scatter(const struct slices *slices, int slice, const float *values, int64_t at,
                  int64_t count, float *vector)
{
    while (count > 0) {
        const struct piece piece = piece_at(slices, slice, at, count);
        memcpy(vector + piece.place, values, (size_t)piece.count * sizeof(float));
        values += piece.count;
        at += piece.count;
        count -= piece.count;
    }
}

/* Values that come ---------------------------------------------------------------------------------------- */

static void put_row(const struct ps_client *client, const struct slice *slice, int32_t id,
                    const float *row)
{
    const int64_t place = slice->at + (slice->first + id * slice->step) * slice->width;

    memcpy(client->memory.params + place, row, (size_t)slice->width * sizeof(float));
}

void move_fresh(struct ps_client *client, int number, const struct frame *frame)
{
    const struct slices *slices = client->slices;
    const struct slice *slice = &slices->slice[number];
    const int server = client->wanted[number].server;
    const int rank = slices_rank(slices, server);

    if (!block_has(&client->block, rank))
        return; /* they came in frames */
    if (client->config.policy == PS_CENTER) {
        const float *back =
            slices_staged(slices, staged(client), slices->n_nodes[client->worker]);
        memcpy(client->memory.params + slice->at, back + slice->at,
               (size_t)slice->count * sizeof(float));
        return;
    }
    char *area = block_server(&client->block, rank);
    const float *param = slices_param(slices, area, server, number);
    if (frame->count < 0) {
        move_scatter(slices, number, param, 0, slice->count, client->memory.params);
        return;
    }
    const int32_t *listed = slices_list(slices, area, server, number, client->worker);
    for (int64_t i = 0; i < frame->count && i < slice->rows; i++)
        put_row(client, slice, listed[i], param + listed[i] * slice->width);
}

void move_values(struct ps_client *client, const struct frame *frame, const void *payload)
{
    move_scatter(client->slices, frame->slice, payload, frame->at, frame->count,
                 client->memory.params);
}

void move_row_values(struct ps_client *client, const struct frame *frame, const void *payload)
{
    const struct slice *slice = &client->slices->slice[frame->slice];
    const int32_t *ids = payload;
    const float *row = (const float *)payload + frame->count;

    for (int64_t i = 0; i < frame->count; i++, row += slice->width)
        put_row(client, slice, ids[i], row);
}

/* Gradients that go ----------------------------------------------------------------------------------------- */

/* The partial sum over a node of elements [at, at + count) of the flat vector. */
static void sum_node(struct ps_client *client, int node, int64_t at, int64_t count, float *out)
{
    const struct ps_memory *memory = &client->memory;
    const struct tree_node which = client->slices->nodes[client->worker][node];

    for (int64_t done = 0; done < count; done += TREE_STRETCH) {
        const size_t n = (size_t)(count - done < TREE_STRETCH ? count - done : TREE_STRETCH);
        const float *sum = tree_combine_node(memory->parts, memory->n_parts, memory->shards,
                                             which, (size_t)(at + done), n, client->scratch);
        memcpy(out + done, sum, n * sizeof(float));
    }
}

static int64_t fill_node(void *arg, const struct job *job, struct frame *head, void *payload)
{
    struct ps_client *client = arg;
    const struct slice *slice = &client->slices->slice[job->head.slice];
    const int64_t left = job->end - job->at;

    head->count = left < FRAME_FLOATS ? left : FRAME_FLOATS;
    head->bytes = (uint32_t)head->count * (uint32_t)sizeof(float);
    sum_node(client, job->head.part, slice->at + job->at, head->count, payload);
    return job->at + head->count;
}

static int64_t fill_list(void *arg, const struct job *job, struct frame *head, void *payload)
{
    struct ps_client *client = arg;
    const int number = job->head.slice;
    const struct slice *slice = &client->slices->slice[number];
    const struct staged_rows rows =
        slices_staged_rows(client->slices, staged(client), client->worker, number);
    const int64_t left = job->end - job->at, room = frame_rows(slice, 1);
    int64_t at = job->at;

    for (int p = 0; p < job->head.part; p++)
        at += rows.counts[p];
    head->count = left < room ? left : room;
    head->bytes = (uint32_t)(head->count * (1 + slice->width) * (int64_t)sizeof(float));
    memcpy(payload, rows.ids + at, (size_t)head->count * sizeof(int32_t));
    memcpy((float *)payload + head->count, rows.rows + at * slice->width,
           (size_t)(head->count * slice->width) * sizeof(float));
    return job->at + head->count;
}

static enum status send_lists(struct ps_client *client, int number)
{
    const struct staged_rows rows =
        slices_staged_rows(client->slices, staged(client), client->worker, number);
    struct job *job;

    for (int p = 0; p < client->slices->n_nodes[client->worker]; p++) {
        if (rows.counts[p] == 0)
            continue;
        TRY(client_job(client, client->wanted[number].server, FRAME_ROWS, number, &job));
        job->head.part = p;
        job->fill = fill_list;
        job->arg = client;
        job->end = rows.counts[p];
    }
    return STATUS_OK;
}

static enum status send_nodes(struct ps_client *client, int number)
{
    struct job *job;

    for (int p = 0; p < client->slices->n_nodes[client->worker]; p++) {
        TRY(client_job(client, client->wanted[number].server, FRAME_DATA, number, &job));
        job->head.part = p;
        job->fill = fill_node;
        job->arg = client;
        job->end = client->slices->slice[number].count;
    }
    return STATUS_OK;
}

static void stage_nodes(struct ps_client *client, const struct slice *slice)
{
    for (int p = 0; p < client->slices->n_nodes[client->worker]; p++)
        sum_node(client, p, slice->at, slice->count,
                 slices_staged(client->slices, staged(client), p) + slice->at);
}

enum status move_push(struct ps_client *client, int number)
{
    const struct slice *slice = &client->slices->slice[number];
    const int server = client->wanted[number].server;
    const bool is_near = block_has(&client->block, slices_rank(client->slices, server));
    struct job *job;

    if (is_near && !slice->is_table && !client->in_place)
        stage_nodes(client, slice);
    if (!is_near)
        TRY(slice->is_table ? send_lists(client, number) : send_nodes(client, number));
    TRY(client_job(client, server, FRAME_PUSH, number, &job));
    job->head.clock = client->wanted[number].clock;
    return STATUS_OK;
}

/* Rows ---------------------------------------------------------------------------------------------------------- */

static bool is_same_node(struct tree_node a, struct tree_node b)
{
    return a.begin == b.begin && a.length == b.length;
}

static enum status stage_list(struct ps_client *client, int bucket, int node,
                              const struct ps_rows *list)
{
    const struct slices *slices = client->slices;
    const int first = slices->of_bucket[bucket];
    const int n_slices = slices->of_bucket[bucket + 1] - first;
    const int64_t rows = client->config.layout.tables[bucket].rows;
    const size_t width = (size_t)client->config.layout.tables[bucket].width;
    int32_t last = -1;

    for (int64_t i = 0; i < list->count; i++) {
        const int32_t id = list->ids[i];
        if (id <= last || id >= rows)
            return FAIL(STATUS_MISMATCH,
                        "rows that are pushed do not ascend: %d after %d of %lld", id, last,
                        (long long)rows);
        last = id;
        const int number = first + id % n_slices;
        const struct staged_rows out =
            slices_staged_rows(slices, staged(client), client->worker, number);
        int64_t at = 0;
        for (int p = 0; p <= node; p++)
            at += out.counts[p];
        if (at == slices->slice[number].most)
            return FAIL(STATUS_MISMATCH, "more than %lld rows of a table are pushed",
                        (long long)at);
        out.ids[at] = id / n_slices;
        memcpy(out.rows + (size_t)at * width, list->rows + (size_t)i * width,
               width * sizeof(float));
        out.counts[node]++;
    }
    return STATUS_OK;
}

enum status move_stage_rows(struct ps_client *client, int bucket, const struct ps_rows *lists,
                            int n_lists)
{
    const struct slices *slices = client->slices;
    const int n_nodes = slices->n_nodes[client->worker];

    for (int i = slices->of_bucket[bucket]; i < slices->of_bucket[bucket + 1]; i++)
        memset(slices_staged_rows(slices, staged(client), client->worker, i).counts, 0,
               2 * TREE_DEPTH * sizeof(int64_t));
    if (n_lists != n_nodes)
        return FAIL(STATUS_MISMATCH, "%d lists of rows for %d nodes of the tree", n_lists,
                    n_nodes);
    for (int p = 0; p < n_lists; p++) {
        if (!is_same_node(lists[p].node, slices->nodes[client->worker][p]))
            return FAIL(STATUS_MISMATCH,
                        "a list of rows of shards from %lld on, instead of %lld",
                        (long long)lists[p].node.begin,
                        (long long)slices->nodes[client->worker][p].begin);
        TRY(stage_list(client, bucket, p, &lists[p]));
    }
    return STATUS_OK;
}
