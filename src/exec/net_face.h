/* SPDX-License-Identifier: MIT */
/* net_face.h - what other files ask of the inter-node thread. Private to exec/.
 *
 * Called by the thread that calls the executor, between steps.
 */
#ifndef EXEC_NET_FACE_H
#define EXEC_NET_FACE_H

#include <stdbool.h>

#include "exec/account.h"
#include "exec/hold.h"
#include "exec/plan.h"

struct exec;

/* Ranks of a node that talk to other nodes: its first ones. */
int net_rails(const struct exec *exec);

/* Makes what a rank needs to talk to other nodes, before the shared memory is laid out; net_start
 * begins to. */
MUST_CHECK enum status net_create(struct exec *exec);
MUST_CHECK enum status net_start(struct exec *exec);
void net_destroy(struct exec *exec);
/* The step that exec is about begins. */
MUST_CHECK enum status net_begin(struct exec *exec, struct extents extents);
/* Communication of the inter-node thread, and what of it was hidden, since the last
 * net_forget_times. */
struct times net_times(const struct exec *exec);
void net_forget_times(struct exec *exec);
/* The state of compression, behind the optimizer's states: one vector each, on rank 0. */
enum { NET_BASIS /* the first; errors of nodes follow */ };
int net_states(const struct exec *exec);
float *net_state(const struct exec *exec, int state);
/* Collective: returns when every node has called it. */
MUST_CHECK enum status net_barrier(struct exec *exec);
/* Collective, on a settled exec: node 0's parameters and state of bucket b go to all, and what
 * others own comes to node 0. */
MUST_CHECK enum status net_publish(struct exec *exec, int b, int what);
MUST_CHECK enum status net_collect(struct exec *exec, int b, int what);
/* Node 0 forgets what of bucket b others own. */
void net_forget(struct exec *exec, int b);
/* Likewise: what is kept for compression. */
MUST_CHECK enum status net_move_vectors(struct exec *exec, bool publishes);
/* Called by the first rank of each node: it gets the entries of `array` that other nodes have made.
 * `maker` tells which node made which. */
MUST_CHECK enum status net_merge(struct exec *exec, void *array, size_t count, size_t bytes,
                                 int (*maker)(const struct exec *exec, size_t entry));

#endif /* EXEC_NET_FACE_H */
