/* SPDX-License-Identifier: MIT */
/* random_model.h - small models with every layer of graph/build.h, some of them by chance. */
#ifndef TESTS_RANDOM_MODEL_H
#define TESTS_RANDOM_MODEL_H

#include "base/rng.h"
#include "graph/graph.h"

enum { RANDOM_MODEL_CLASSES = 5 };

/* Adds the model and its input (images) and target (labels), for `batch` samples, to an empty
 * graph: a classifier, or one that reproduces its input and looks at no label. The same seed gives
 * the same model. Shapes follow from `rng` alone. Batch norms are among its layers only if
 * `across_samples`: with them a shard's rows are not those of the whole. */
void random_model_add(struct graph *graph, int64_t batch, bool across_samples, struct rng *rng);

#endif /* TESTS_RANDOM_MODEL_H */
