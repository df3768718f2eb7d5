/* SPDX-License-Identifier: MIT */
/* probe.c - times a small and a large exchange between nodes; a line through both is the answer. */
#include "comm/probe.h"

#include "base/clock.h"
#include "base/mem.h"

enum { ROUNDS = 5, SMALL_BYTES = 4 << 10, LARGE_BYTES = 512 << 10 };

struct prober {
    struct transport *transport;
    int rail, rails, node, nodes;
    uint32_t tag;
    char *out, *in; /* room for `nodes` parts of LARGE_BYTES */
    struct transport_request *requests;
};

/* One round: all that this rank sends and receives. */
static enum status exchange(struct prober *p, size_t bytes)
{
    const size_t part = bytes / (size_t)p->rails;
    int count = 0;

    for (int node = 0; node < p->nodes; node++) {
        const int peer = transport_node_first(p->transport, node) + p->rail;
        if (node == p->node)
            continue;
        TRY(transport_start_receive(p->transport, peer, p->tag, p->in + (size_t)node * bytes,
                                    part, &p->requests[count++]));
        TRY(transport_start_send(p->transport, peer, p->tag, p->out, part,
                                 &p->requests[count++]));
    }
    for (int i = 0; i < count; i++)
        TRY(transport_wait_for(p->transport, &p->requests[i], "probe"));
    return STATUS_OK;
}

/* The shortest of some rounds: what the link can do, not what else the machines do. */
static enum status time_exchange(struct prober *p, struct comm *comm, size_t bytes, double *out)
{
    *out = 0;
    for (int round = 0; round < ROUNDS; round++) {
        TRY(comm_barrier(comm));
        const int64_t began = clock_ns();
        if (p->rail < p->rails)
            TRY(exchange(p, bytes));
        const double us = (double)(clock_ns() - began) / 1e3;
        if (round == 0 || us < *out)
            *out = us;
    }
    return comm_all_reduce(comm, out, 1, DTYPE_F64, COMM_OP_MAX);
}

enum status probe_nodes(struct comm *comm, int rails, struct probe *out)
{
    struct transport *transport = comm_transport(comm);
    const int nodes = transport_nodes(transport);
    struct prober p = {
        .transport = transport,
        .node = transport_node_of(transport, comm_rank(comm)),
        .nodes = nodes,
        .rails = rails,
        .tag = transport_new_tags(transport, 1),
    };
    double small = 0, large = 0;

    p.rail = comm_rank(comm) - transport_node_first(transport, p.node);
    enum status status = mem_alloc((size_t)nodes, LARGE_BYTES, &p.in);
    if (status == STATUS_OK)
        status = mem_alloc(1, LARGE_BYTES, &p.out);
    if (status == STATUS_OK)
        status = mem_alloc(2 * (size_t)nodes, sizeof *p.requests, &p.requests);
    if (status == STATUS_OK)
        status = time_exchange(&p, comm, SMALL_BYTES, &small);
    if (status == STATUS_OK)
        status = time_exchange(&p, comm, LARGE_BYTES, &large);
    if (status == STATUS_OK) {
        const double slope = (large - small) / (LARGE_BYTES - SMALL_BYTES);
        out->us_per_byte = slope > 0 ? slope : 0;
        out->us = small - SMALL_BYTES * out->us_per_byte;
        out->us = out->us > 0 ? out->us : 0;
    }
    for (int i = 0; p.requests && i < 2 * nodes; i++)
        transport_cancel(transport, &p.requests[i]);
    mem_free(p.requests);
    mem_free(p.out);
    mem_free(p.in);
    return status;
}
