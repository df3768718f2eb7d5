/* SPDX-License-Identifier: MIT */
/* net_between.c - what machines exchange between steps, by the ranks' own threads: barriers,
 * parameters and state, results of evaluations. */
#include <string.h>

#include "base/mem.h"
#include "exec/net.h"
#include "exec/net_face.h"
#include "exec/pages.h"
#include "exec/state.h"

enum status net_barrier(struct exec *exec)
{
    TRY(net_rest(exec->net));
    return comm_barrier(exec->config.comm);
}

/* Moves floats from one rank to another; both call it. */
static enum status move(struct exec *exec, int from, int to, float *data, size_t count)
{
    if (count == 0 || from == to)
        return STATUS_OK;
    if (exec->topology.rank == from)
        return comm_send(exec->config.comm, to, data, count * sizeof *data);
    if (exec->topology.rank == to)
        return comm_receive(exec->config.comm, from, data, count * sizeof *data);
    return STATUS_OK;
}

/* Does node 0 have to hear of it from the others, and they have a part of their own? */
static bool has_parts(const struct exec *exec, int b)
{
    return !bucket_is_gathered(&exec->layout, b) && !bucket_is_compressed(&exec->layout, b) &&
           !bucket_is_served(&exec->layout, b);
}

static struct slice whole_bucket(const struct exec *exec, int b)
{
    const size_t begin = (size_t)exec->layout.buckets.begin[b];

    return (struct slice){ begin, (size_t)exec->layout.buckets.begin[b + 1] - begin };
}

/* What a node has of bucket b in a vector goes from one rank to another: its parts, or all. */
static enum status move_part(struct exec *exec, int b, int node, int from, int to,
                             float *vector, bool is_whole)
{
    for (int rail = 0; rail < (is_whole ? 1 : exec->net->rails); rail++) {
        const struct slice slice =
            is_whole ? whole_bucket(exec, b) : net_slice(exec->net, b, node, rail);
        TRY(move(exec, from, to, vector + slice.at, slice.count));
    }
    return STATUS_OK;
}

enum status net_publish(struct exec *exec, int b, int what)
{
    for (int node = 1; node < exec->topology.nodes; node++) {
        const int to = transport_node_first(exec->transport, node);
        if (what & EXEC_PARAMS)
            TRY(move_part(exec, b, node, 0, to, exec->memory.param,
                          !bucket_is_held(&exec->hold, b)));
        for (int i = 0; i < exec->layout.n_states && what & EXEC_STATES; i++)
            TRY(move_part(exec, b, node, 0, to, exec->memory.state[i], !has_parts(exec, b)));
    }
    return STATUS_OK;
}

enum status net_collect(struct exec *exec, int b, int what)
{
    for (int node = 1; node < exec->topology.nodes; node++) {
        const int from = transport_node_first(exec->transport, node);
        if (what & EXEC_PARAMS && bucket_is_held(&exec->hold, b))
            TRY(move_part(exec, b, node, from, 0, exec->memory.param, false));
        if (what & EXEC_STATES && bucket_is_served(&exec->layout, b))
            TRY(net_rows_collect(exec->net, b, node, from));
        for (int i = 0; i < exec->layout.n_states && what & EXEC_STATES && has_parts(exec, b);
             i++)
            TRY(move_part(exec, b, node, from, 0, exec->memory.state[i], false));
    }
    return STATUS_OK;
}

void net_forget(struct exec *exec, int b)
{
    /* Node 0 owns the first stretches. */
    const struct slice all = whole_bucket(exec, b);
    const struct slice last = net_slice(exec->net, b, 0, exec->net->rails - 1);
    const size_t end = last.at + last.count;
    const size_t bytes = (all.at + all.count - end) * sizeof(float);

    if (exec->topology.node != 0)
        return;
    if (bucket_is_held(&exec->hold, b))
        pages_release(exec->memory.param + end, bytes);
    for (int i = 0; i < exec->layout.n_states && has_parts(exec, b); i++)
        pages_release(exec->memory.state[i] + end, bytes);
}

/* What is kept for compression ----------------------------------------------------------- */

int net_states(const struct exec *exec)
{
    return NET_BASIS + 1 + exec->topology.nodes;
}

float *net_state(const struct exec *exec, int state)
{
    return exec->net->states.vectors + (size_t)state * exec->layout.vector;
}

/* Vector `which` of a bucket's codec between its rail and rank 0, where it is padded to the
 * bucket's length. One that is not there is zeros. */
static enum status move_vector(struct exec *exec, int b, int node, int which, bool publishes)
{
    const int rail =
        transport_node_first(exec->transport, node) + net_codec_rail(net_rails(exec), b);
    const size_t count =
        (size_t)(exec->layout.buckets.begin[b + 1] - exec->layout.buckets.begin[b]);
    const int state = which == 0 ? NET_BASIS + 1 + node : NET_BASIS;
    struct codec_vector vectors[CODEC_VECTORS] = { 0 };
    float *travels;

    if (exec->topology.rank != 0 && exec->topology.rank != rail)
        return STATUS_OK;
    TRY(mem_alloc(count, sizeof *travels, &travels));
    float *kept = exec->topology.rank == 0
                      ? net_state(exec, state) + exec->layout.buckets.begin[b]
                      : NULL;
    struct codec_vector *own = NULL;
    if (exec->topology.rank == rail &&
        codec_vectors(net_codec_state(exec->net, b), vectors) > which)
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

enum status net_move_vectors(struct exec *exec, bool publishes)
{
    for (int b = 0; b < exec->layout.buckets.count; b++) {
        if (!bucket_is_compressed(&exec->layout, b) || exec->config.batch == 0)
            continue;
        for (int node = 0; node < exec->topology.nodes; node++) {
            TRY(move_vector(exec, b, node, 0, publishes));
            if (publishes || node == 0) /* it is the same on all */
                TRY(move_vector(exec, b, node, 1, publishes));
        }
    }
    return STATUS_OK;
}

enum status net_merge(struct exec *exec, void *array, size_t count, size_t bytes,
                      int (*maker)(const struct exec *exec, size_t entry))
{
    char *arrived;

    TRY(mem_alloc(count + 1, bytes, &arrived));
    enum status status = STATUS_OK;
    for (int a = 0; a < exec->topology.nodes && status == STATUS_OK; a++) {
        for (int b = a + 1; b < exec->topology.nodes && status == STATUS_OK; b++) {
            if (a != exec->topology.node && b != exec->topology.node)
                continue;
            const int other = a == exec->topology.node ? b : a;
            const int peer = transport_node_first(exec->transport, other);
            struct comm *comm = exec->config.comm;

            if (a == exec->topology.node)
                status = comm_send(comm, peer, array, count * bytes);
            if (status == STATUS_OK)
                status = comm_receive(comm, peer, arrived, count * bytes);
            if (status == STATUS_OK && b == exec->topology.node)
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
