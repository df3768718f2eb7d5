/* SPDX-License-Identifier: MIT */
/* sample.h - the next token, drawn from a model's logits.
 *
 * Logits are divided by the temperature; the k most probable tokens stay, and of these the fewest
 * whose probabilities reach p; one of them is drawn. Of equal logits the smaller id comes first. The draw
 * is a function of seed and position alone: the same seed gives the same text.
 *
 * Threads: one thread at a time for each sampler of tokens.
 */
#ifndef TRAIN_SAMPLE_H
#define TRAIN_SAMPLE_H

#include <stdint.h>

#include "base/status.h"

struct sample_config {
    double temperature; /* 0: always the most probable token, the first of equals */
    int64_t top_k;      /* 0: all tokens */
    double top_p;       /* above 0; 1: all tokens */
    uint64_t seed;
};

/* Refuses numbers that mean nothing; the text says which. */
MUST_CHECK enum status sample_check(const struct sample_config *config);

struct sample; /* keeps room to work in */

MUST_CHECK enum status sample_create(const struct sample_config *config, int64_t vocabulary,
                                     struct sample **out);
void sample_destroy(struct sample *sample); /* NULL is allowed */

/* The token at `position`. STATUS_MISMATCH if a logit is no number, or none is finite. */
MUST_CHECK enum status sample_next(struct sample *sample, const float *logits,
                                   uint64_t position, int32_t *out);

/* First of the largest logits; of none if a logit is no number: -1. */
int32_t sample_largest(const float *logits, int64_t count);

#endif /* TRAIN_SAMPLE_H */
