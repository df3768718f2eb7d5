/* SPDX-License-Identifier: MIT */
/* state.h - what an executor keeps. Private to exec/.
 *
 * For the files that make an executor, begin and end its steps and evaluations, or work between
 * them, and for those of devices. Tasks of a step see parts of it: lane.h, net.h, sums.h. The
 * thread that calls the executor alone writes here, between steps.
 */
#ifndef EXEC_STATE_H
#define EXEC_STATE_H

#include "exec/account.h"
#include "exec/evaluation.h"
#include "exec/exec.h"
#include "exec/hold.h"
#include "exec/layout.h"
#include "exec/now.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"

struct lane;

struct exec {
    struct exec_config config;
    struct transport *transport;
    struct exec_topology topology;
    struct exec_model model;
    struct exec_layout layout;
    struct exec_shared memory;
    struct exec_evaluation eval;
    struct exec_account account;
    struct exec_now now;
    struct norms *norms;
    struct sums sums; /* what summing and updating needs of the above */
    struct clip *clip;
    struct hold hold;           /* parameters that are held in parts */
    struct program *program;    /* what this node's lanes and inter-node threads do in a step */
    struct net *net;            /* to other nodes, or NULL */
    struct remote *remote;      /* what goes to servers, or NULL */
    struct average *average;    /* with other workers, or NULL */
    struct pipe *pipe;          /* to other stages, or NULL */
    struct device_side *device; /* what is on a device, if it runs there; else NULL */
    struct lane *lanes;
    struct pool *lanes_pool; /* runs the lanes, if there are several */
    size_t arena_bytes;      /* of a lane's arena as it is now */
    uint32_t settles;
    uint32_t says; /* exec_say */
};

/* What this rank says with its step, before it meets others; and what all have said with it,
 * afterwards. */
void exec_tell(struct exec *exec);
uint32_t exec_heard(const struct exec *exec);

/* For tests of faults. */
static inline void exec_meet(const struct exec *exec, const char *point)
{
    account_meet(&exec->account, point);
}
/* Runs a function on every lane and gives the first failure. */
MUST_CHECK enum status exec_on_lanes(struct exec *exec, void (*fn)(struct lane *lane));

/* The plan for a shard's extents, made if it is not there yet. Not for use inside a lane. */
MUST_CHECK enum status exec_prepare(struct exec *exec, struct extents extents, bool evaluation);

static inline struct samples exec_samples(const struct exec *exec, int64_t v)
{
    return now_samples(&exec->now, &exec->topology, v);
}
static inline void exec_lane_row(const struct exec *exec, int lane, int64_t *first,
                                 int64_t *count)
{
    topology_lane_row(&exec->topology, lane, first, count);
}
static inline void exec_node_row(const struct exec *exec, int node, int64_t *first,
                                 int64_t *count)
{
    topology_node_row(&exec->topology, exec->transport, node, first, count);
}

/* Collective over config.workers: what the PLACE_HOST tasks of the program need. */
MUST_CHECK enum status average_create(struct exec *exec);
void average_destroy(struct exec *exec);

/* lower.c: lowers the graph to this rank's program, and verifies it against those of all nodes. */
MUST_CHECK enum status exec_make_program(struct exec *exec);
void exec_destroy_program(struct exec *exec);

#endif /* EXEC_STATE_H */
