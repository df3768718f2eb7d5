/* SPDX-License-Identifier: MIT */
/* device_nodes.c - ranks on devices of several machines, between steps: hosts tell each other what
 * they say with a step, and parameters and state go between the machines' flat vectors, by the
 * ranks' own threads. */
#include "exec/device_side.h"

/* Moves floats from one rank to another; both call it. */
static enum status move(const struct exec *exec, int from, int to, float *data, size_t count)
{
    if (count == 0 || from == to)
        return STATUS_OK;
    if (exec->topology.rank == from)
        return comm_send(exec->config.comm, to, data, count * sizeof *data);
    if (exec->topology.rank == to)
        return comm_receive(exec->config.comm, from, data, count * sizeof *data);
    return STATUS_OK;
}

enum status device_publish(struct exec *exec, int b, int what)
{
    const size_t at = (size_t)exec->layout.buckets.begin[b];
    const size_t count = (size_t)exec->layout.buckets.begin[b + 1] - at;

    for (int node = 1; node < exec->topology.nodes; node++) {
        const int to = transport_node_first(exec->transport, node);
        if (what & EXEC_PARAMS)
            TRY(move(exec, 0, to, exec->memory.param + at, count));
        for (int i = 0; i < exec->layout.n_states && what & EXEC_STATES; i++)
            TRY(move(exec, 0, to, exec->memory.state[i] + at, count));
    }
    return STATUS_OK;
}

/* What rank r updates of bucket b, if that is in the stretch. */
static struct device_part part_of_bucket(const struct exec *exec, int b,
                                         const struct device_stretch *stretch, int r)
{
    const struct device_part part = ranks_part(exec, stretch, r);
    const size_t first = (size_t)exec->layout.buckets.begin[b];
    const size_t last = (size_t)exec->layout.buckets.begin[b + 1];
    const size_t begin = part.at > first ? part.at : first;
    const size_t end = part.at + part.count < last ? part.at + part.count : last;

    return (struct device_part){ begin, begin < end ? end - begin : 0 };
}

/* A machine's first rank has in its flat vectors what all of its ranks own. */
static enum status collect_from(struct exec *exec, int b, int node)
{
    const int from = transport_node_first(exec->transport, node);
    const int end = from + transport_node_size(exec->transport, node);

    for (int s = 0; s < exec->device->n_stretches; s++) {
        for (int r = from; r < end; r++) {
            const struct device_part part =
                part_of_bucket(exec, b, &exec->device->stretches[s], r);
            for (int i = 0; i < exec->layout.n_states; i++)
                TRY(move(exec, from, 0, exec->memory.state[i] + part.at, part.count));
        }
    }
    return STATUS_OK;
}

enum status device_collect(struct exec *exec, int b)
{
    /* Where each rank updates everything rank 0 has all of it. */
    for (int node = 1; node < exec->topology.nodes && !ranks_update_all(exec); node++)
        TRY(collect_from(exec, b, node));
    return STATUS_OK;
}

enum status device_meet_machines(struct exec *exec, uint32_t *out_heard)
{
    const uint32_t *said = exec->device->said;

    TRY(comm_all_gather(exec->config.comm, &exec->says, exec->device->said, 1, DTYPE_I32));
    *out_heard = 0;
    for (int r = 0; r < exec->topology.ranks; r++)
        *out_heard |= said[r];
    return STATUS_OK;
}
