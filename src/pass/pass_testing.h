/* SPDX-License-Identifier: MIT */
/* pass_testing.h - graphs of the zoo's models after passes, for tests of these. */
#ifndef PASS_PASS_TESTING_H
#define PASS_PASS_TESTING_H

#include "graph/graph.h"
#include "pass/pass.h"

/* A batch of 64 in 4 shards, updated by sgd. max_norm: 0 does not clip. */
struct pass_config pass_testing_config(int ranks, float max_norm);
/* The model after all passes of a strategy; the caller owns it. */
struct graph *pass_testing_graph(const char *model_name, const char *strategy, int ranks,
                                 float max_norm);
struct graph *pass_testing_graph_with(const char *model_name, const char *strategy,
                                      const struct pass_config *config);
/* How many nodes of an op a graph has. */
int pass_testing_count(const struct graph *graph, const struct op *op);

#endif /* PASS_PASS_TESTING_H */
