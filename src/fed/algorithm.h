/* SPDX-License-Identifier: MIT */
/* algorithm.h - what a server makes of updates: how they become one, and how that moves the parameters.
 *
 * Two tables. An aggregation makes one vector of many updates, whose order is that of participants' names, so that
 * it does not matter who came first; sums are taken in double in that order, and rounded once. An algorithm moves
 * the parameters by that vector, and says what participants do besides (anchor, control variates, buffering).
 */
#ifndef FED_ALGORITHM_H
#define FED_ALGORITHM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct fed_terms;

/* Aggregations ------------------------------------------------------------------------ */

struct fed_aggregation_kind;

struct fed_aggregation {
    const struct fed_aggregation_kind *kind;
    double share; /* trimmed: of the updates, at each end */
    int faulty;   /* krum: participants that may lie */
    int chosen;   /* multikrum: updates that are taken */
};

struct fed_aggregation_kind {
    const char *name, *summary;
    int n_numbers;  /* after the colon */
    bool is_robust; /* needs every update at once and no weights */
    MUST_CHECK enum status (*run)(const struct fed_aggregation *how,
                                  const float *const *updates, int n, size_t length,
                                  float *out);
};
extern const struct fed_aggregation_kind *const fed_aggregations[]; /* ended by NULL */

/* Reads "mean", "median", "trimmed:0.1", "krum:2", "multikrum:2,5". */
MUST_CHECK enum status fed_aggregation_parse(const char *text, struct fed_aggregation *out);
/* Of how many updates it can make one, at least. */
int fed_aggregation_least(const struct fed_aggregation *how);

/* A weighted mean, one update after the other. */
struct fed_mean {
    double *sum;
    double weight;
    size_t length;
};
MUST_CHECK enum status fed_mean_init(struct fed_mean *mean, size_t length);
void fed_mean_release(struct fed_mean *mean);
void fed_mean_add(struct fed_mean *mean, const float *update, double weight);
/* The sum over the weights' sum, or over `weight` if that is not 0. */
void fed_mean_end(const struct fed_mean *mean, double weight, float *out);

/* Algorithms -------------------------------------------------------------------------- */

enum { FED_STATES = 2 };

struct fed_algorithm {
    const char *name, *summary;
    int n_vectors;    /* of tasks and updates: 2 with control variates */
    bool is_anchored; /* local steps are drawn to the round's parameters */
    bool is_buffered; /* asynchronous: a round is a number of updates, whoever gives them */
    int n_states;     /* vectors that the server keeps */
    double default_lr;
    /* Moves parameters by the updates' mean. */
    void (*apply)(const struct fed_terms *terms, double lr, const float *update, size_t length,
                  float *parameters, float *const state[FED_STATES]);
};
extern const struct fed_algorithm *const fed_algorithms[];        /* ended by NULL */
const struct fed_algorithm *fed_algorithm_find(const char *name); /* NULL: unknown */
/* The server's rate: that of the terms or, where they have none, the algorithm's. */
double fed_algorithm_lr(const struct fed_terms *terms);
/* What the states are before the first round. */
void fed_algorithm_begin(const struct fed_terms *terms, size_t length,
                         float *const state[FED_STATES]);

/* By how much an update counts that is so many rounds old (FedBuff: Nguyen et al. 2022): 1/sqrt(1 + age). */
double fed_staleness_weight(int64_t age);

/* Does a round of these terms ask for gradients? One step of plain SGD on all samples, of the mean by samples: then the
 * sum of all gradients along the tree over participants and one step of the server are those of a single run whose
 * shards the participants are, to the last bit. Else participants give the difference of parameters. */
bool fed_algorithm_asks_gradient(const struct fed_terms *terms);

#endif /* FED_ALGORITHM_H */
