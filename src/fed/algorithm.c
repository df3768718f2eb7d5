/* SPDX-License-Identifier: MIT */
/* algorithm.c - the server's move after the updates of a round have become one.
 *
 * With d the mean of updates (new - old parameters), w the parameters, r the server's rate:
 *
 *   fedavg, fedprox, scaffold, fedbuff   w += r d                                  (McMahan et al. 2017)
 *   fedavgm                              m = b m + d; w += r m                     (Hsu et al. 2019)
 *   fedadam     m = b1 m + (1-b1) d; v = b2 v + (1-b2) d^2;           w += r m / (sqrt(v) + tau)
 *   fedyogi     the same with v -= (1-b2) d^2 sign(v - d^2)            (Reddi et al. 2021, v begins with tau^2)
 */
#include "fed/algorithm.h"

#include <math.h>
#include <string.h>

#include "fed/terms.h"

static void apply_mean(const struct fed_terms *terms, double lr, const float *update,
                       size_t length, float *parameters, float *const state[FED_STATES])
{
    (void)terms, (void)state;
    for (size_t i = 0; i < length; i++)
        parameters[i] += (float)(lr * (double)update[i]);
}

static void apply_momentum(const struct fed_terms *terms, double lr, const float *update,
                           size_t length, float *parameters, float *const state[FED_STATES])
{
    for (size_t i = 0; i < length; i++) {
        state[0][i] = (float)(terms->server_momentum * (double)state[0][i]) + update[i];
        parameters[i] += (float)(lr * (double)state[0][i]);
    }
}

/* Adam's and Yogi's differ in how the second moment moves. */
static void apply_adaptive(const struct fed_terms *terms, double lr, bool is_yogi,
                           const float *update, size_t length, float *parameters,
                           float *const state[FED_STATES])
{
    const double b1 = terms->beta1, b2 = terms->beta2;

    for (size_t i = 0; i < length; i++) {
        const double d = (double)update[i], square = d * d;
        const double m = b1 * (double)state[0][i] + (1 - b1) * d;
        double v = (double)state[1][i];
        if (is_yogi)
            v -= (1 - b2) * square * (double)((v > square) - (v < square));
        else
            v = b2 * v + (1 - b2) * square;
        state[0][i] = (float)m;
        state[1][i] = (float)v;
        parameters[i] += (float)(lr * m / (sqrt(v) + terms->tau));
    }
}

static void apply_adam(const struct fed_terms *terms, double lr, const float *update,
                       size_t length, float *parameters, float *const state[FED_STATES])
{
    apply_adaptive(terms, lr, false, update, length, parameters, state);
}

static void apply_yogi(const struct fed_terms *terms, double lr, const float *update,
                       size_t length, float *parameters, float *const state[FED_STATES])
{
    apply_adaptive(terms, lr, true, update, length, parameters, state);
}

static const struct fed_algorithm fedavg = {
    .name = "fedavg",
    .summary = "the mean of updates",
    .n_vectors = 1,
    .default_lr = 1,
    .apply = apply_mean,
};
static const struct fed_algorithm fedprox = {
    .name = "fedprox",
    .summary = "the mean of updates whose steps are drawn to the round's parameters",
    .n_vectors = 1,
    .is_anchored = true,
    .default_lr = 1,
    .apply = apply_mean,
};
static const struct fed_algorithm fedavgm = {
    .name = "fedavgm",
    .summary = "momentum over the means of rounds",
    .n_vectors = 1,
    .n_states = 1,
    .default_lr = 1,
    .apply = apply_momentum,
};
static const struct fed_algorithm fedadam = {
    .name = "fedadam",
    .summary = "Adam over the means of rounds",
    .n_vectors = 1,
    .n_states = 2,
    .default_lr = 0.01,
    .apply = apply_adam,
};
static const struct fed_algorithm fedyogi = {
    .name = "fedyogi",
    .summary = "Yogi over the means of rounds",
    .n_vectors = 1,
    .n_states = 2,
    .default_lr = 0.01,
    .apply = apply_yogi,
};
static const struct fed_algorithm scaffold = {
    .name = "scaffold",
    .summary = "control variates take the drift out of local steps",
    .n_vectors = 2,
    .default_lr = 1,
    .apply = apply_mean,
};
static const struct fed_algorithm fedbuff = {
    .name = "fedbuff",
    .summary = "asynchronous: the mean of a number of updates, older ones count less",
    .n_vectors = 1,
    .is_buffered = true,
    .default_lr = 1,
    .apply = apply_mean,
};

const struct fed_algorithm *const fed_algorithms[] = {
    &fedavg, &fedprox, &fedavgm, &fedadam, &fedyogi, &scaffold, &fedbuff, NULL,
};

const struct fed_algorithm *fed_algorithm_find(const char *name)
{
    for (int i = 0; fed_algorithms[i]; i++) {
        if (strcmp(fed_algorithms[i]->name, name) == 0)
            return fed_algorithms[i];
    }
    return NULL;
}

double fed_algorithm_lr(const struct fed_terms *terms)
{
    return isfinite(terms->server_lr) ? terms->server_lr
                                      : fed_algorithm_find(terms->algorithm)->default_lr;
}

void fed_algorithm_begin(const struct fed_terms *terms, size_t length,
                         float *const state[FED_STATES])
{
    const int n = fed_algorithm_find(terms->algorithm)->n_states;

    for (int k = 0; k < n; k++) {
        for (size_t i = 0; i < length; i++)
            state[k][i] = k == 1 ? (float)(terms->tau * terms->tau) : 0;
    }
}

double fed_staleness_weight(int64_t age)
{
    return 1 / sqrt(1 + (double)age);
}

bool fed_algorithm_asks_gradient(const struct fed_terms *terms)
{
    const bool one_step =
        terms->batch == 0 && (terms->steps ? terms->steps == 1 : terms->epochs == 1);
    const bool plain_sgd = strcmp(terms->optimizer, "sgd") == 0 &&
                           (isnan(terms->momentum) || terms->momentum == 0) &&
                           (isnan(terms->weight_decay) || terms->weight_decay == 0);

    return one_step && plain_sgd && strcmp(terms->algorithm, "fedavg") == 0 &&
           fed_algorithm_lr(terms) == 1 && strcmp(terms->weighting, "samples") == 0 &&
           strcmp(terms->aggregate, "mean") == 0 && !*terms->compress && !terms->secure &&
           !*terms->dp && !*terms->dp_sgd && !terms->personal_head && terms->max_norm == 0 &&
           terms->max_samples == 0;
}
