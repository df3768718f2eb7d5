/* SPDX-License-Identifier: MIT */
/* sched_testing.h - step programs drawn at random from the zoo, the strategies and topologies. */
#ifndef SCHED_SCHED_TESTING_H
#define SCHED_SCHED_TESTING_H

#include "base/rng.h"
#include "sched/lower.h"

/* What a drawn program was lowered from. */
struct sched_testing {
    const char *model, *strategy;
    struct graph *graph;
    struct lower_config config;
};

struct sched_testing sched_testing_draw(struct rng *rng);
void sched_testing_end(struct sched_testing *drawn);
/* "vgg11_bn mirrored, 2 nodes of 2 ranks of 1 lanes" */
void sched_testing_print(const struct sched_testing *drawn, char *out, size_t bytes);

/* A job with parameter servers: slices of some buckets, dealt at random. */
enum { SCHED_TESTING_SLICES = 12 };
struct sched_testing_servers {
    struct lower_server config; /* of server 0 */
    struct lower_slice slices[SCHED_TESTING_SLICES];
};
/* Each of `buckets` buckets has a slice at least. */
void sched_testing_draw_servers(struct rng *rng, int buckets,
                                struct sched_testing_servers *out);

#endif /* SCHED_SCHED_TESTING_H */
