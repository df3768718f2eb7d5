/* SPDX-License-Identifier: MIT */
/* dp_sgd.h - privacy of single samples in local training (Abadi et al. 2016): "clip,noise" of every step.
 *
 * Each sample's gradient is clipped to the norm `clip`, and the sum of a step gets discrete Gaussian noise of deviation noise *
 * clip (exec_privacy, noise.h). Noise is keyed by a secret of this process, never by what the coordinator says: a coordinator
 * that asks twice gets other noise.
 *
 * What is claimed: a sample's part in a step is hidden, where its contribution is taken out or not. Batches are the parts of a
 * shuffled whole, so a sample is in one step an epoch, and rounds compose by how often it occurs; nothing is gained
 * by sampling. It does not cover validation samples, whose loss and accuracy are told.
 */
#ifndef FED_DP_SGD_H
#define FED_DP_SGD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "exec/exec.h"
#include "fed/noise.h"

struct fed_dp_sgd {
    struct exec_privacy privacy; /* for the executor; its arg is this struct */
    double noise;                /* multiplier */
    size_t length;               /* parameters */
    uint8_t secret[NOISE_KEY];   /* of the process, or of a simulation */
    bool simulated;
    uint8_t key[NOISE_KEY]; /* of the training at hand */
    uint64_t uses;
};

/* "1.0,0.8". STATUS_USAGE if it is none: clip above 0, noise 0 or more. */
MUST_CHECK enum status fed_dp_sgd_parse(const char *text, double *clip, double *noise);

/* With a secret from the operating system. sgd->length is set later, before the first training. */
MUST_CHECK enum status fed_dp_sgd_init(struct fed_dp_sgd *sgd, const char *text);
void fed_dp_sgd_release(struct fed_dp_sgd *sgd); /* wipes secrets */
/* Noise that is a function of seeds: for simulations alone. */
void fed_dp_sgd_simulate(struct fed_dp_sgd *sgd, uint64_t seed);
/* Before a training: new noise. seed: of round and participant, which tells simulated ones apart. */
void fed_dp_sgd_begin(struct fed_dp_sgd *sgd, uint64_t seed);

/* Epsilon of a participant's sample that occurred in `passes` steps. */
MUST_CHECK enum status fed_dp_sgd_epsilon(const char *text, uint64_t passes, double delta,
                                          double *out);

#endif /* FED_DP_SGD_H */
