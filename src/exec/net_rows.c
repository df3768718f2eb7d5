/* SPDX-License-Identifier: MIT */
/* net_rows.c - push and pull of sparse rows: each node is the server of some rows of a table
 * (Parallax).
 *
 * Row i belongs to node i modulo N. When all lanes of a node have accumulated the table, its first
 * rank adds the rows of its shards, those that occur alone, and sends each owner its own. The owner
 * adds what all nodes sent along the tree of shards and updates rows and state (push). Then it
 * sends the new rows to all (pull). A message that says how many rows come goes before them.
 *
 * Where the norm of all gradients is needed (clipping) the owner keeps the sums in the packet of
 * new rows, with their squares, and updates when all nodes' squares are there.
 *
 * Low ids occur most: taking them in turn gives every node as many rows to update, within a few,
 * whatever the text is, so that there is no number of partitions to choose.
 *
 * Cost: of u rows that occur on a node and U on all, a node sends and receives (N-1)/N u, and sends
 * (N-1) U/N, receives the rest; 6 (N-1) messages each way.
 */
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "exec/layout.h"
#include "exec/net.h"
#include "exec/norms.h"
#include "exec/packet.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"

/* What the first rank of a node keeps for a table that is served. */
struct net_rows {
    int round;
    int64_t most; /* rows that a packet may have */
    int n_packets;
    struct rows_packet *own; /* [own part][node]: what this node sends to each */
    struct rows_packet
        *heard; /* of what this node owns: [part of all nodes], its own among them */
    struct rows_packet *fresh; /* [node]: new rows that it sent; its own at this node's place */
    int64_t *own_counts;       /* [node][own part]: messages of their own, like the next two */
    int64_t *heard_counts, *fresh_counts;
    char *memory;
    size_t bytes;
};

/* Making ----------------------------------------------------------------------------------- */

static struct packet_owner owner_of(const struct net *net, const struct row_sum *r, int node)
{
    return (
        struct packet_owner){ .rows = r->rows, .owners = net->topology->nodes, .owner = node };
}

/* Rows of a table that node `node` owns. */
static int64_t rows_owned(const struct net *net, const struct row_sum *r, int node)
{
    const struct packet_owner owner = owner_of(net, r, node);

    return packet_most(&owner);
}

/* Packets are as large as they can ever be, in memory of which what is not needed is never touched. */
static void place_packet(struct net_rows *rows, const struct row_sum *r,
                         struct rows_packet *packet, size_t *used)
{
    const size_t most = (size_t)rows->most, width = (size_t)r->width;

    if (rows->memory) {
        packet->pairs = (struct rows_pair *)(rows->memory + *used);
        packet->rows = (float *)(rows->memory + *used + most * sizeof(struct rows_pair));
    }
    *used += most * (sizeof(struct rows_pair) + width * sizeof(float));
    *used = (*used + 63) / 64 * 64;
}

static void place_packets(const struct net *net, struct net_rows *rows, const struct row_sum *r)
{

    rows->bytes = 0;
    for (int i = 0; i < net->topology->nodes * net->sums.n_own; i++)
        place_packet(rows, r, &rows->own[i], &rows->bytes);
    for (int i = 0; i < rows->n_packets; i++)
        place_packet(rows, r, &rows->heard[i], &rows->bytes);
    for (int i = 0; i < net->topology->nodes; i++)
        place_packet(rows, r, &rows->fresh[i], &rows->bytes);
}

static enum status create_rows(struct net *net, int b)
{
    const struct row_sum *r = &net->layout->row_sums[b];
    const size_t nodes = (size_t)net->topology->nodes, own = nodes * (size_t)net->sums.n_own;
    struct net_rows *rows;

    TRY(mem_alloc(1, sizeof *rows, &rows));
    net->served[b] = rows;
    for (int node = 0; node < net->topology->nodes; node++)
        rows->n_packets += net->sums.n_of[node];
    rows->most = rows_owned(net, r, 0);
    TRY(mem_alloc(own, sizeof *rows->own, &rows->own));
    TRY(mem_alloc(own, sizeof *rows->own_counts, &rows->own_counts));
    TRY(mem_alloc((size_t)rows->n_packets, sizeof *rows->heard, &rows->heard));
    TRY(mem_alloc((size_t)rows->n_packets, sizeof *rows->heard_counts, &rows->heard_counts));
    TRY(mem_alloc(nodes, sizeof *rows->fresh, &rows->fresh));
    TRY(mem_alloc(nodes, sizeof *rows->fresh_counts, &rows->fresh_counts));
    place_packets(net, rows, r);
    void *memory = mmap(NULL, rows->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes for rows of tables are refused", rows->bytes);
    rows->memory = memory;
    place_packets(net, rows, r);
    return STATUS_OK;
}

enum status net_rows_create(struct net *net)
{
    const int buckets = net->layout->buckets.count;

    if (net->rail != 0)
        return STATUS_OK;
    TRY(mem_alloc((size_t)buckets + 1, sizeof(struct net_rows *), &net->served));
    for (int b = 0; b < buckets; b++) {
        if (bucket_is_served(net->layout, b))
            TRY(create_rows(net, b));
    }
    return STATUS_OK;
}

void net_rows_destroy(struct net *net)
{
    for (int b = 0; net->served && b < net->layout->buckets.count; b++) {
        struct net_rows *rows = net->served[b];
        if (!rows)
            continue;
        if (rows->memory)
            munmap(rows->memory, rows->bytes);
        mem_free(rows->own);
        mem_free(rows->own_counts);
        mem_free(rows->heard);
        mem_free(rows->heard_counts);
        mem_free(rows->fresh);
        mem_free(rows->fresh_counts);
        mem_free(rows);
    }
    mem_free(net->served);
}

/* Packets ---------------------------------------------------------------------------------- */

/* The two messages of a packet that has rows; both ends know how many. */
static enum status send_packet(struct net *net, struct net_task *t, int node,
                               const struct rows_packet *packet, int64_t width)
{
    const size_t count = (size_t)packet->count;
    const int peer = net_peer(net, node);

    TRY(net_send(net, t, peer, t->tag, packet->pairs, count * sizeof *packet->pairs));
    return net_send(net, t, peer, t->tag, packet->rows, count * (size_t)width * sizeof(float));
}

static enum status receive_packet(struct net *net, struct net_task *t, int node,
                                  struct rows_packet *packet, int64_t width)
{
    const size_t count = (size_t)packet->count;
    const int peer = net_peer(net, node);

    TRY(net_receive(net, t, peer, t->tag, packet->pairs, count * sizeof *packet->pairs));
    return net_receive(net, t, peer, t->tag, packet->rows,
                       count * (size_t)width * sizeof(float));
}

/* Rounds ----------------------------------------------------------------------------------- */

static enum status start_push(struct net *net, struct net_task *t)
{
    struct net_rows *rows = net->served[t->task->bucket];
    const int64_t width = net->layout->row_sums[t->task->bucket].width;

    rows->round = 0;
    for (int i = 0; i < net->topology->nodes * net->sums.n_own; i++)
        rows->own[i].count = 0;
    for (int p = 0; p < net->sums.n_own; p++) {
        struct rows_packet *packets = rows->own + (size_t)p * (size_t)net->topology->nodes;
        rows_merge(&net->worker, t->task->bucket, net->sums.own[p], net->topology->nodes,
                   packets);
        for (int node = 0; node < net->topology->nodes; node++)
            rows->own_counts[node * net->sums.n_own + p] = packets[node].count;
    }
    for (int node = 0, at = 0; node < net->topology->nodes;
         at += net->sums.n_of[node], node++) {
        if (node == net->topology->node)
            continue;
        TRY(net_receive(net, t, net_peer(net, node), t->tag, rows->heard_counts + at,
                        (size_t)net->sums.n_of[node] * sizeof *rows->heard_counts));
        TRY(net_send(net, t, net_peer(net, node), t->tag,
                     rows->own_counts + (size_t)node * (size_t)net->sums.n_own,
                     (size_t)net->sums.n_own * sizeof *rows->own_counts));
        for (int p = 0; p < net->sums.n_own; p++)
            TRY(send_packet(net, t, node, &rows->own[p * net->topology->nodes + node], width));
    }
    return STATUS_OK;
}

/* Numbers of rows from all: now the rows. */
static enum status receive_rows(struct net *net, struct net_task *t)
{
    struct net_rows *rows = net->served[t->task->bucket];
    const int64_t width = net->layout->row_sums[t->task->bucket].width;

    for (int node = 0, at = 0; node < net->topology->nodes;
         at += net->sums.n_of[node], node++) {
        for (int p = 0; p < net->sums.n_of[node] && node != net->topology->node; p++) {
            TRY(packet_take_count(&rows->heard[at + p], rows->heard_counts[at + p], rows->most,
                                  node));
            TRY(receive_packet(net, t, node, &rows->heard[at + p], width));
        }
    }
    return STATUS_OK;
}

/* What all sent of the rows that this node owns. */
static enum status take_rows(struct net *net, const struct net_task *t)
{
    struct net_rows *rows = net->served[t->task->bucket];
    const struct packet_owner own =
        owner_of(net, &net->layout->row_sums[t->task->bucket], net->topology->node);

    for (int node = 0, at = 0; node < net->topology->nodes;
         at += net->sums.n_of[node], node++) {
        for (int p = 0; p < net->sums.n_of[node]; p++) {
            if (node == net->topology->node)
                rows->heard[at + p] = rows->own[p * net->topology->nodes + node];
            else
                TRY(packet_check(&rows->heard[at + p], &own, node));
            rows->heard[at + p].shard = net->sums.part_of[at + p].begin;
        }
    }
    return STATUS_OK;
}

struct exact_sum *net_row_squares(const struct net *net, int b, int node)
{
    return &net->worker.sums->norms
                ->rows[(size_t)b * norms_row_sums(net->worker.sums) + (size_t)node];
}

/* Numbers of rows are here, then the rows. */
static enum status push_arrived(struct net *net, struct net_task *t, bool *again)
{
    *again = net->served[t->task->bucket]->round++ == 0;
    return *again ? receive_rows(net, t) : STATUS_OK;
}

/* Sums the rows that this node owns, and updates them or keeps the sums with their squares. */
static enum status finish_push(struct net *net, struct net_task *t)
{
    const int b = t->task->bucket;
    struct net_rows *rows = net->served[b];
    struct rows_packet *fresh = &rows->fresh[net->topology->node];

    TRY(take_rows(net, t));
    if (t->task->does >> TASK_UPDATE & 1)
        rows_update_packets(&net->worker, b, rows->heard, rows->n_packets, &net->step.numbers,
                            fresh);
    else
        rows_sum_packets(&net->worker, b, rows->heard, rows->n_packets, fresh,
                         net_row_squares(net, b, net->topology->node));
    return STATUS_OK;
}

static bool is_served(const struct net *net, const struct task *task)
{
    return task->bucket >= 0 && bucket_is_served(net->layout, task->bucket);
}

/* A count, and two messages for each packet. */
static struct net_most most_push(const struct net *net, const struct task *task)
{
    const int nodes = net->topology->nodes;
    int packets = 0;

    (void)task;
    for (int node = 0; node < nodes; node++)
        packets += net->sums.n_of[node];
    return (struct net_most){ nodes + 2 * packets, nodes * (1 + 2 * net->sums.n_own) };
}

const struct net_row net_push_rows = {
    .kind = TASK_PUSH,
    .medium = MEDIUM_MESSAGES,
    .name = "push of rows",
    .point = "net",
    .can_run = is_served,
    .most = most_push,
    .start = start_push,
    .arrived = push_arrived,
    .finish = finish_push,
};

static enum status update_rows(struct net *net, struct net_task *t)
{
    const int b = t->task->bucket;

    TRY(net_scale(net));
    rows_update_packet(&net->worker, b, &net->step.numbers,
                       &net->served[b]->fresh[net->topology->node]);
    return STATUS_OK;
}

const struct net_row net_update_rows = {
    .kind = TASK_UPDATE,
    .medium = MEDIUM_NONE,
    .name = "update of rows",
    .can_run = is_served,
    .finish = update_rows,
};

/* Pull ------------------------------------------------------------------------------------- */

/* The updated rows of this node go to all. */
static enum status start_pull(struct net *net, struct net_task *t)
{
    struct net_rows *rows = net->served[t->task->bucket];
    const struct row_sum *r = &net->layout->row_sums[t->task->bucket];
    struct rows_packet *fresh = &rows->fresh[net->topology->node];

    rows->round = 0;
    rows->fresh_counts[net->topology->node] = fresh->count;
    for (int node = 0; node < net->topology->nodes; node++) {
        const int peer = net_peer(net, node);
        if (node == net->topology->node)
            continue;
        TRY(net_receive(net, t, peer, t->tag, &rows->fresh_counts[node],
                        sizeof *rows->fresh_counts));
        TRY(net_send(net, t, peer, t->tag, &rows->fresh_counts[net->topology->node],
                     sizeof *rows->fresh_counts));
        TRY(send_packet(net, t, node, fresh, r->width));
    }
    return STATUS_OK;
}

static enum status receive_fresh(struct net *net, struct net_task *t)
{
    struct net_rows *rows = net->served[t->task->bucket];
    const int64_t width = net->layout->row_sums[t->task->bucket].width;

    for (int node = 0; node < net->topology->nodes; node++) {
        if (node == net->topology->node)
            continue;
        TRY(packet_take_count(&rows->fresh[node], rows->fresh_counts[node], rows->most, node));
        TRY(receive_packet(net, t, node, &rows->fresh[node], width));
    }
    return STATUS_OK;
}

/* New rows go to their places. */
static enum status take_fresh(struct net *net, struct net_task *t)
{
    struct net_rows *rows = net->served[t->task->bucket];
    const struct row_sum *r = &net->layout->row_sums[t->task->bucket];
    float *table = net->memory->param + net->layout->buckets.begin[t->task->bucket];

    for (int node = 0; node < net->topology->nodes; node++) {
        const struct rows_packet *fresh = &rows->fresh[node];
        if (node == net->topology->node)
            continue;
        const struct packet_owner theirs = owner_of(net, r, node);
        TRY(packet_check(fresh, &theirs, node));
        for (int64_t i = 0; i < fresh->count; i++)
            memcpy(table + fresh->pairs[i].id * r->width, fresh->rows + i * r->width,
                   (size_t)r->width * sizeof(float));
    }
    return STATUS_OK;
}

static enum status pull_arrived(struct net *net, struct net_task *t, bool *again)
{
    *again = net->served[t->task->bucket]->round++ == 0;
    return *again ? receive_fresh(net, t) : STATUS_OK;
}

static struct net_most most_pull(const struct net *net, const struct task *task)
{
    const int nodes = net->topology->nodes;

    (void)task;
    return (struct net_most){ 3 * nodes, 3 * nodes };
}

const struct net_row net_pull_rows = {
    .kind = TASK_PULL,
    .medium = MEDIUM_MESSAGES,
    .name = "pull of rows",
    .can_run = is_served,
    .most = most_pull,
    .start = start_pull,
    .arrived = pull_arrived,
    .finish = take_fresh,
};

/* Between steps ---------------------------------------------------------------------------- */

enum status net_rows_collect(const struct net *net, int b, int node, int from)
{
    const struct row_sum *r = &net->layout->row_sums[b];
    const size_t width = (size_t)r->width, count = (size_t)rows_owned(net, r, node);
    float *packed;

    if (net->topology->rank != 0 && net->topology->rank != from)
        return STATUS_OK;
    TRY(mem_alloc(count * width + 1, sizeof *packed, &packed));
    enum status status = STATUS_OK;
    for (int k = 0; k < net->layout->n_states && status == STATUS_OK; k++) {
        float *state = net->memory->state[k] + net->layout->buckets.begin[b];
        for (size_t i = 0; i < count && net->topology->rank == from; i++)
            memcpy(packed + i * width,
                   state + ((size_t)node + i * (size_t)net->topology->nodes) * width,
                   width * sizeof *packed);
        status = net->topology->rank == from
                     ? comm_send(net->worker.sums->config->comm, 0, packed,
                                 count * width * sizeof *packed)
                     : comm_receive(net->worker.sums->config->comm, from, packed,
                                    count * width * sizeof *packed);
        for (size_t i = 0; i < count && net->topology->rank == 0 && status == STATUS_OK; i++)
            memcpy(state + ((size_t)node + i * (size_t)net->topology->nodes) * width,
                   packed + i * width, width * sizeof *packed);
    }
    mem_free(packed);
    return status;
}
