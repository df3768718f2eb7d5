/* SPDX-License-Identifier: MIT */
/* device_team.c - bytes between ranks that have the CPU as a device: threads and processes of one machine.
 *
 * A team has a block of shared memory with a ring for each ordered pair of ranks. Streams of the CPU do a thing when they
 * are told to: what was put since `begin` is carried at `end`, all messages of it side by side, so that no order in
 * which ranks put them can block. A broadcast is a message to each.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "kernel/device_rows.h"

enum { RING_BYTES = 32 << 10, LINE = 64, OPS_FIRST = 64 };

/* From one rank to another: bytes written and read so far. */
struct ring {
    _Alignas(LINE) _Atomic uint64_t written;
    _Alignas(LINE) _Atomic uint64_t read;
    _Alignas(LINE) char data[RING_BYTES];
};

struct block {
    _Alignas(LINE) _Atomic int joined;
    _Atomic int here; /* of the process that made it, whose ranks see it where it lies */
    struct ring rings[];
};

struct op {
    char *data;
    size_t bytes, moved;
    int peer;
    bool sends;
};

struct device_team {
    struct device *device;
    struct device_handle handle;
    struct block *block;
    bool is_here; /* made by this process */
    int rank, count;
    struct op *ops;
    size_t n_ops, room;
    bool *is_blocked; /* [2][count]: an earlier message to or from a rank is not over */
    atomic_bool gives_up;
};

static enum status describe(char out[DEVICE_TEXT])
{
    (void)snprintf(out, DEVICE_TEXT, "rings in memory");
    return STATUS_OK;
}

static enum status make_id(struct device *device, int count, struct device_team_id *out)
{
    const size_t rings = (size_t)count * (size_t)count;
    struct device_handle handle;
    void *block; /* a new file: zeros */

    _Static_assert(sizeof handle == sizeof *out, "an id is a handle");
    TRY(device_share_cpu.create(device, sizeof(struct block) + rings * sizeof(struct ring),
                                &block, &handle));
    memcpy(out, &handle, sizeof *out);
    return STATUS_OK;
}

/* Of several ranks of the process that made the block the last one takes it away; but if some never came, who may still do so,
 * it stays until the process ends. */
static void leave(struct device_team *team)
{
    struct block *block = team->block;
    const bool have_all_come = atomic_load(&block->joined) == team->count;

    if (!team->is_here)
        device_share_cpu.close(team->device, &team->handle, block);
    else if (atomic_fetch_sub(&block->here, 1) == 1 && have_all_come)
        device_share_cpu.destroy(team->device, block);
}

static void destroy(struct device_team *team)
{
    if (!team)
        return;
    if (team->block)
        leave(team);
    mem_free(team->ops);
    mem_free(team->is_blocked);
    mem_free(team);
}

static enum status join(struct device_team *team, const struct device_patience *patience)
{
    team->is_here = device_share_is_here(&team->handle);
    void *block;

    TRY(device_share_cpu.open(team->device, &team->handle, &block));
    team->block = block;
    if (team->is_here)
        atomic_fetch_add(&team->block->here, 1);
    atomic_fetch_add(&team->block->joined, 1);
    while (atomic_load(&team->block->joined) < team->count) {
        if (patience->ends(patience->arg))
            return FAIL(STATUS_PEER_LOST, "not all ranks have come to a team of devices");
        (void)sched_yield();
    }
    return STATUS_OK;
}

static enum status create(struct device *device, const struct device_team_id *id,
                          const struct device_member *member,
                          const struct device_patience *patience, struct device_team **out)
{
    struct device_team *team;

    TRY(mem_alloc(1, sizeof *team, &team));
    team->device = device;
    team->rank = member->rank;
    team->count = member->count;
    memcpy(&team->handle, id, sizeof team->handle);
    enum status status = mem_alloc(2 * (size_t)member->count, sizeof(bool), &team->is_blocked);
    if (status == STATUS_OK)
        status = join(team, patience);
    if (status != STATUS_OK) {
        destroy(team);
        return status;
    }
    *out = team;
    return STATUS_OK;
}

static void give_up(struct device_team *team)
{
    atomic_store(&team->gives_up, true);
}

static enum status check(struct device_team *team)
{
    (void)team; /* nothing goes wrong in memory */
    return STATUS_OK;
}

/* Messages ---------------------------------------------------------------------------------- */

static enum status begin(struct device_team *team, struct device_stream *stream)
{
    (void)stream;
    team->n_ops = 0;
    return STATUS_OK;
}

static enum status put(struct device_team *team, bool sends, void *data, size_t bytes, int peer)
{
    if (team->n_ops == team->room) {
        const size_t room = team->room ? 2 * team->room : OPS_FIRST;
        TRY(mem_grow(&team->ops, team->room, room, sizeof *team->ops));
        team->room = room;
    }
    team->ops[team->n_ops++] =
        (struct op){ .data = data, .bytes = bytes, .peer = peer, .sends = sends };
    return STATUS_OK;
}

static enum status put_send(struct device_team *team, const void *data, size_t bytes, int peer)
{
    return put(team, true, (void *)data, bytes, peer);
}

static enum status put_receive(struct device_team *team, void *data, size_t bytes, int peer)
{
    return put(team, false, data, bytes, peer);
}

static enum status put_broadcast(struct device_team *team, void *data, size_t bytes, int root)
{
    if (root != team->rank)
        return put_receive(team, data, bytes, root);
    for (int r = 0; r < team->count; r++) {
        if (r != root)
            TRY(put_send(team, data, bytes, r));
    }
    return STATUS_OK;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static struct ring *ring_of(const struct device_team *team, int from, int to)
{
    return &team->block->rings[from * team->count + to];
}

/* Copies between a place of the ring, which may go round its end, and plain memory. */
static void copy_round(struct ring *ring, uint64_t place, char *data, size_t bytes, bool writes)
{
    const size_t at = place % RING_BYTES, first = least(bytes, RING_BYTES - at);

    memcpy(writes ? ring->data + at : data, writes ? data : ring->data + at, first);
    memcpy(writes ? ring->data : data + first, writes ? data + first : ring->data,
           bytes - first);
}

/* As far as there is room, or as much as has come; returns how far that was. */
static size_t move_on(const struct device_team *team, struct op *op)
{
    struct ring *ring =
        op->sends ? ring_of(team, team->rank, op->peer) : ring_of(team, op->peer, team->rank);
    const uint64_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
    const uint64_t taken = atomic_load_explicit(&ring->read, memory_order_acquire);
    const size_t filled = (size_t)(written - taken);
    const size_t bytes = least(op->bytes - op->moved, op->sends ? RING_BYTES - filled : filled);

    copy_round(ring, op->sends ? written : taken, op->data + op->moved, bytes, op->sends);
    if (op->sends)
        atomic_store_explicit(&ring->written, written + bytes, memory_order_release);
    else
        atomic_store_explicit(&ring->read, taken + bytes, memory_order_release);
    op->moved += bytes;
    return bytes;
}

/* One round: of each pair and direction the first message that is not over moves on. Returns how many are left. */
static size_t go_round(struct device_team *team, size_t *out_moved)
{
    size_t left = 0;

    *out_moved = 0;
    memset(team->is_blocked, 0, 2 * (size_t)team->count * sizeof *team->is_blocked);
    for (size_t i = 0; i < team->n_ops; i++) {
        struct op *op = &team->ops[i];
        bool *is_blocked = &team->is_blocked[op->sends * team->count + op->peer];

        if (op->moved == op->bytes)
            continue;
        if (!*is_blocked)
            *out_moved += move_on(team, op);
        *is_blocked |= op->moved < op->bytes;
        left += op->moved < op->bytes;
    }
    return left;
}

static enum status end(struct device_team *team)
{
    size_t moved;

    while (go_round(team, &moved) > 0) {
        if (atomic_load_explicit(&team->gives_up, memory_order_relaxed))
            return FAIL(STATUS_PEER_LOST, "what devices send each other was given up");
        if (moved == 0)
            (void)sched_yield(); /* others may need this very core */
    }
    return STATUS_OK;
}

const struct device_team_ops device_team_cpu = {
    .describe = describe,
    .make_id = make_id,
    .create = create,
    .abort = give_up,
    .destroy = destroy,
    .check = check,
    .begin = begin,
    .send = put_send,
    .receive = put_receive,
    .broadcast = put_broadcast,
    .end = end,
};
