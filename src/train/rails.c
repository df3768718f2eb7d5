/* SPDX-License-Identifier: MIT */
/* rails.c - chooses by a measurement (comm/probe.h) and what a rail sends of a bucket: of n bytes a part
 * n / N to each of the other N - 1 machines, as sums, and as parameters again.
 *
 * Pairs divide the sums and updates among ranks, too, which the measurement does not see: leaders have to be a
 * tenth faster.
 */
#include "train/rails.h"

#include <string.h>

#include "base/log.h"
#include "comm/probe.h"
#include "pass/pass.h"
#include "transport/transport.h"

static const double CLEARLY = 0.9;

enum status rails_check(const char *wish)
{
    if (!*wish || strcmp(wish, "leaders") == 0 || strcmp(wish, "pairs") == 0)
        return STATUS_OK;
    return FAIL(STATUS_USAGE,
                "--rails %s: leaders or pairs; leave it out to have them measured", wish);
}

/* Ranks of each machine, 0 if they differ. */
static int node_size(const struct transport *transport)
{
    const int size = transport_node_size(transport, 0);

    for (int node = 1; node < transport_nodes(transport); node++) {
        if (transport_node_size(transport, node) != size)
            return 0;
    }
    return size;
}

static double step_ms(const struct graph *graph, const struct probe *probe, int nodes)
{
    double us = 0;

    for (int b = 0; b < pass_bucket_count(graph); b++) {
        const int64_t count = shape_count(&pass_bucket_value(graph, b, "param")->shape);
        us += 2 * probe_us(probe, (double)count * sizeof(float) / nodes);
    }
    return us / 1e3;
}

enum status rails_choose(const char *wish, const struct graph *graph, struct comm *comm,
                         struct rails *out)
{
    const struct transport *transport = comm_transport(comm);
    const int nodes = transport_nodes(transport), size = node_size(transport);
    struct probe leaders, pairs;

    *out = (struct rails){ .count = nodes > 1 ? 1 : 0 };
    if (strcmp(wish, "pairs") == 0 && nodes > 1 && size == 0)
        return FAIL(STATUS_USAGE, "--rails pairs: machines have different numbers of ranks");
    if (nodes == 1 || size <= 1 || strcmp(wish, "leaders") == 0)
        return STATUS_OK;
    out->count = size;
    if (strcmp(wish, "pairs") == 0)
        return STATUS_OK;
    TRY(probe_nodes(comm, 1, &leaders));
    TRY(probe_nodes(comm, size, &pairs));
    out->is_measured = true;
    out->leaders_ms = step_ms(graph, &leaders, nodes);
    out->pairs_ms = step_ms(graph, &pairs, nodes);
    if (out->leaders_ms < CLEARLY * out->pairs_ms)
        out->count = 1;
    if (comm_rank(comm) == 0)
        log_line(LOG_INFO,
                 "between machines %s: transfers of a step take leaders %.2f ms, pairs %.2f ms",
                 out->count == 1 ? "leaders talk" : "all ranks talk", out->leaders_ms,
                 out->pairs_ms);
    return STATUS_OK;
}
