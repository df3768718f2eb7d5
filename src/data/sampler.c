/* SPDX-License-Identifier: MIT */
/* sampler.c - an epoch's order is a Fisher-Yates shuffle of 0, 1, 2, ... by the random stream
 * (seed, epoch).
 *
 * The order of one epoch is kept; a step of another epoch draws that one anew. For
 * i = count-1 down to 1, the numbers at i and at a position drawn from [0, i] change places.
 */
#include "data/sampler.h"

#include "base/mem.h"
#include "base/rng.h"

#include <inttypes.h>

struct sampler {
    struct sampler_config config;
    int64_t steps_per_epoch;
    int64_t epoch;  /* whose order is kept; -1 is none */
    int64_t *order; /* count */
};

static void draw_order(struct sampler *sampler, int64_t epoch)
{
    const int64_t count = sampler->config.count;
    int64_t *order = sampler->order;
    struct rng rng;

    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    sampler->epoch = epoch;
    if (!sampler->config.shuffle)
        return;

    rng_init(&rng, sampler->config.seed, (uint64_t)epoch);
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = (int64_t)rng_below(&rng, (uint64_t)i + 1), moved = order[i];
        order[i] = order[j];
        order[j] = moved;
    }
}

enum status sampler_create(const struct sampler_config *config, struct sampler **out)
{
    const int64_t count = config->count, batch = config->batch;
    struct sampler *sampler;

    if (count < 1)
        return FAIL(STATUS_USAGE, "there are no samples to draw from");
    if (batch < 1)
        return FAIL(STATUS_USAGE, "a batch has at least 1 sample, not %" PRId64, batch);
    if (config->drop_last && batch > count)
        return FAIL(STATUS_USAGE,
                    "a batch of %" PRId64 " is more than the %" PRId64
                    " samples, and incomplete batches are left out",
                    batch, count);

    TRY(mem_alloc(1, sizeof *sampler, &sampler));
    const enum status status =
        mem_alloc((size_t)count, sizeof *sampler->order, &sampler->order);
    if (status != STATUS_OK) {
        mem_free(sampler);
        return status;
    }
    sampler->config = *config;
    sampler->steps_per_epoch = count / batch + (!config->drop_last && count % batch > 0);
    sampler->epoch = -1;
    *out = sampler;
    return STATUS_OK;
}

void sampler_destroy(struct sampler *sampler)
{
    if (!sampler)
        return;
    mem_free(sampler->order);
    mem_free(sampler);
}

int64_t sampler_steps_per_epoch(const struct sampler *sampler)
{
    return sampler->steps_per_epoch;
}

struct sampler_step sampler_step(struct sampler *sampler, uint64_t step)
{
    const uint64_t steps = (uint64_t)sampler->steps_per_epoch;
    const int64_t epoch = (int64_t)(step / steps);
    const int64_t first = (int64_t)(step % steps) * sampler->config.batch;
    const int64_t left = sampler->config.count - first;

    /* File order is the same in every epoch. */
    if (sampler->epoch != epoch && (sampler->config.shuffle || sampler->epoch < 0))
        draw_order(sampler, epoch);
    return (struct sampler_step){
        .epoch = epoch,
        .samples = left < sampler->config.batch ? left : sampler->config.batch,
        .index = sampler->order + first,
    };
}
