/* SPDX-License-Identifier: MIT */
/* wire_between.c - what machines exchange between steps, by the ranks' own threads: barriers, parameters and
 * state, results of evaluations. */
#include <string.h>

#include "base/mem.h"
#include "exec/wire.h"

enum status wire_barrier(struct exec *exec)
{
    TRY(wire_rest(exec->wire));
    return comm_barrier(exec->config.comm);
}

/* Moves floats from one rank to another; both call it. */
static enum status move(struct exec *exec, int from, int to, float *data, size_t count)
{
    if (count == 0 || from == to)
        return STATUS_OK;
    if (exec->rank == from)
        return comm_send(exec->config.comm, to, data, count * sizeof *data);
    if (exec->rank == to)
        return comm_receive(exec->config.comm, from, data, count * sizeof *data);
    return STATUS_OK;
}

/* State of bucket b that a rail of a node owns: all of it where every node updates everything, given to its
 * first rail. */
static struct slice state_slice(const struct exec *exec, int b, int node, int rail)
{
    const size_t begin = (size_t)exec->buckets.begin[b];
    const size_t count = (size_t)exec->buckets.begin[b + 1] - begin;

    if (!bucket_is_gathered(exec, b) && !bucket_is_compressed(exec, b) &&
        !bucket_is_served(exec, b))
        return wire_slice(exec->wire, b, node, rail);
    return (struct slice){ begin, rail == 0 ? count : 0 };
}

/* The state that a node owns goes from one rank to another. */
static enum status move_states(struct exec *exec, int node, int from, int to)
{
    for (int b = 0; b < exec->buckets.count; b++) {
        if (to == 0 && (bucket_is_gathered(exec, b) || bucket_is_compressed(exec, b)))
            continue; /* it is there */
        if (to == 0 && bucket_is_served(exec, b)) {
            TRY(wire_rows_collect(exec, b, node, from));
            continue;
        }
        for (int rail = 0; rail < exec->wire->rails; rail++) {
            const struct slice slice = state_slice(exec, b, node, rail);
            for (int i = 0; i < exec->n_states; i++)
                TRY(move(exec, from, to, exec->state[i] + slice.at, slice.count));
        }
    }
    return STATUS_OK;
}

/* What is kept for compression ----------------------------------------------------------- */

int wire_states(const struct exec *exec)
{
    return WIRE_BASIS + 1 + exec->nodes;
}

float *wire_state(const struct exec *exec, int state)
{
    return exec->wire->states + (size_t)state * exec->vector;
}

/* Vector `which` of a bucket's codec between its rail and rank 0, where it is padded to the bucket's length.
 * One that is not there is zeros. */
static enum status move_vector(struct exec *exec, int b, int node, int which, bool publishes)
{
    const int rail = transport_node_first(exec->transport, node) + wire_codec_rail(exec, b);
    const size_t count = (size_t)(exec->buckets.begin[b + 1] - exec->buckets.begin[b]);
    const int state = which == 0 ? WIRE_BASIS + 1 + node : WIRE_BASIS;
    struct codec_vector vectors[CODEC_VECTORS] = { 0 };
    float *travels;

    if (exec->rank != 0 && exec->rank != rail)
        return STATUS_OK;
    TRY(mem_alloc(count, sizeof *travels, &travels));
    float *kept = exec->rank == 0 ? wire_state(exec, state) + exec->buckets.begin[b] : NULL;
    struct codec_vector *own = NULL;
    if (exec->rank == rail && codec_vectors(wire_codec_state(exec->wire, b), vectors) > which)
        own = &vectors[which];
    BUG_ON(own && own->count > count);

    enum status status = STATUS_OK;
    if (publishes) {
        if (kept)
            memcpy(travels, kept, count * sizeof *travels);
        status = move(exec, 0, rail, travels, count);
        if (status == STATUS_OK && own)
            memcpy(own->data, travels, own->count * sizeof *travels);
    } else {
        if (own)
            memcpy(travels, own->data, own->count * sizeof *travels);
        status = move(exec, rail, 0, travels, count);
        if (status == STATUS_OK && kept)
            memcpy(kept, travels, count * sizeof *travels);
    }
    mem_free(travels);
    return status;
}

static enum status move_vectors(struct exec *exec, bool publishes)
{
    for (int b = 0; b < exec->buckets.count; b++) {
        if (!bucket_is_compressed(exec, b) || exec->config.batch == 0)
            continue;
        for (int node = 0; node < exec->nodes; node++) {
            TRY(move_vector(exec, b, node, 0, publishes));
            if (publishes || node == 0) /* it is the same on all */
                TRY(move_vector(exec, b, node, 1, publishes));
        }
    }
    return STATUS_OK;
}

enum status wire_publish(struct exec *exec, bool with_state)
{
    for (int node = 1; node < exec->nodes; node++) {
        const int to = transport_node_first(exec->transport, node);
        TRY(move(exec, 0, to, exec->param, exec->vector));
        if (with_state)
            TRY(move_states(exec, node, 0, to));
    }
    return with_state ? move_vectors(exec, true) : STATUS_OK;
}

enum status wire_collect(struct exec *exec)
{
    for (int node = 1; node < exec->nodes; node++)
        TRY(move_states(exec, node, transport_node_first(exec->transport, node), 0));
    return move_vectors(exec, false);
}

enum status wire_merge(struct exec *exec, void *array, size_t count, size_t bytes,
                       int (*maker)(const struct exec *exec, size_t entry))
{
    char *arrived;

    TRY(mem_alloc(count + 1, bytes, &arrived));
    enum status status = STATUS_OK;
    for (int a = 0; a < exec->nodes && status == STATUS_OK; a++) {
        for (int b = a + 1; b < exec->nodes && status == STATUS_OK; b++) {
            if (a != exec->node && b != exec->node)
                continue;
            const int other = a == exec->node ? b : a;
            const int peer = transport_node_first(exec->transport, other);
            struct comm *comm = exec->config.comm;

            if (a == exec->node)
                status = comm_send(comm, peer, array, count * bytes);
            if (status == STATUS_OK)
                status = comm_receive(comm, peer, arrived, count * bytes);
            if (status == STATUS_OK && b == exec->node)
                status = comm_send(comm, peer, array, count * bytes);
            for (size_t i = 0; status == STATUS_OK && i < count; i++) {
                if (maker(exec, i) == other)
                    memcpy((char *)array + i * bytes, arrived + i * bytes, bytes);
            }
        }
    }
    mem_free(arrived);
    return status;
}
