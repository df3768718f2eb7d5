/* SPDX-License-Identifier: MIT */
/* rails.h - who talks to other machines: every rank to its counterparts, or the first one of each
 * machine alone.
 *
 * Bits do not depend on it. Where machines have as many ranks and --rails does not say, a job measures
 * both ways as it starts and takes the one that costs its model's buckets less.
 */
#ifndef TRAIN_RAILS_H
#define TRAIN_RAILS_H

#include "comm/comm.h"
#include "graph/graph.h"

struct rails {
    int count;                   /* ranks of each machine that talk; 0: there is one machine */
    bool is_measured;            /* else forced, or there was no choice */
    double leaders_ms, pairs_ms; /* a step's transfers by the model, if measured */
};

/* Checks what --rails says. */
MUST_CHECK enum status rails_check(const char *wish);
/* Collective; the same on every rank. wish: "", "leaders" or "pairs"; graph: with its buckets. */
MUST_CHECK enum status rails_choose(const char *wish, const struct graph *graph,
                                    struct comm *comm, struct rails *out);

#endif /* TRAIN_RAILS_H */
