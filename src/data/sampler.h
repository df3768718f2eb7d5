/* SPDX-License-Identifier: MIT */
/* sampler.h - which samples a step sees: a function of seed, epoch and step, of nothing else.
 *
 * An epoch visits every sample once, in an order drawn from (seed, epoch). Step s of
 * an epoch takes positions [s * batch, (s+1) * batch) of that order; the last step of
 * an epoch takes what is left. The samples of a step are cut into V shards: shard v
 * of S samples holds positions [v*S/V, (v+1)*S/V) (integer division).
 *
 * Samples with keys (their lengths) come in batches of like ones: the order is cut into pools of
 * SAMPLER_POOL batches, each is sorted by key, and then the batches of the epoch change places. So little is
 * wasted on padding, and every epoch has other batches. The incomplete batch at the end takes no part.
 */
#ifndef DATA_SAMPLER_H
#define DATA_SAMPLER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct sampler; /* one thread at a time */

enum { SAMPLER_POOL = 64 };

struct sampler_config {
    const uint32_t
        *key; /* of each sample, borrowed while the sampler lives; NULL: all are alike */
    int64_t count, batch; /* samples in the data set; samples a step */
    uint64_t seed;
    bool shuffle;   /* false: file order, every epoch; keys do not matter */
    bool drop_last; /* leave out the last, incomplete step of an epoch */
};

MUST_CHECK enum status sampler_create(const struct sampler_config *config,
                                      struct sampler **out);
void sampler_destroy(struct sampler *sampler);
int64_t sampler_steps_per_epoch(const struct sampler *sampler);
/* The same of a sampler that is not made: takes no memory, which samples do. */
MUST_CHECK enum status sampler_count_steps(const struct sampler_config *config, int64_t *out);

struct sampler_step {
    int64_t epoch;        /* from 0 */
    int64_t samples;      /* in this step, all ranks together */
    const int64_t *index; /* `samples` of them; valid until the next call */
};
/* Step number `step` since the start of training, from 0. Any order; sequential is fast. */
struct sampler_step sampler_step(struct sampler *sampler, uint64_t step);

/* First position of shard v (0 <= v <= shards) of a step of `samples`. */
static inline int64_t sampler_shard_begin(int64_t samples, int64_t shards, int64_t v)
{
    return v * samples / shards;
}

#endif /* DATA_SAMPLER_H */
