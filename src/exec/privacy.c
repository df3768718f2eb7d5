/* SPDX-License-Identifier: MIT */
/* privacy.c - samples whose influence is bounded (DP-SGD): with one sample a shard, a shard's
 * gradient is a sample's.
 *
 * Its norm is known when backward is through; then it is scaled to at most the clip, and only then
 * added along the tree and announced: buckets do not leave early. The sum gets noise, stretch by
 * stretch, by who owns the stretch, before an update sees it. Gaps between parameters stay zero.
 */
#include <math.h>
#include <string.h>

#include "exec/exec.h"
#include "exec/layout.h"
#include "exec/now.h"
#include "exec/sums.h"
#include "exec/topology.h"

enum status privacy_check(const struct exec_config *config,
                          const struct exec_topology *topology,
                          const struct exec_layout *layout)
{
    const struct exec_privacy *privacy = config->privacy;

    if (!privacy || config->batch == 0)
        return STATUS_OK;
    if (!(privacy->clip > 0) || !isfinite(privacy->clip))
        return FAIL(STATUS_USAGE, "gradients cannot be clipped to a norm of %g", privacy->clip);
    if (config->shards < config->batch)
        return FAIL(
            STATUS_USAGE,
            "gradients of single samples need a shard each: %lld shards for a batch of %lld",
            (long long)config->shards, (long long)config->batch);
    if (topology->ranks > 1 || config->remote || config->zero || config->tensor ||
        config->pipeline.stages > 1 || layout->gathers.count > 0)
        return FAIL(STATUS_UNSUPPORTED,
                    "gradients of single samples are for one rank by itself");
    for (int b = 0; b < layout->buckets.count; b++) {
        if (layout->updates[b].is_average)
            return FAIL(
                STATUS_UNSUPPORTED,
                "the model has running averages of batches, which would show single samples: "
                "take one without batch norm");
        if (bucket_is_factored(layout, b) || bucket_is_table(layout, b))
            return FAIL(STATUS_UNSUPPORTED,
                        "gradients of single samples must be dense and not made from factors");
    }
    return STATUS_OK;
}

/* Gradients are divided by the step's weight already. */
void privacy_clip(const struct exec_layout *layout, float *gradients, double most)
{
    double squares = 0;

    for (int b = 0; b < layout->buckets.count; b++) {
        const size_t at = (size_t)layout->buckets.begin[b];
        squares +=
            kernel_sum_squares(gradients + at, (size_t)layout->buckets.begin[b + 1] - at);
    }
    if (!isfinite(squares)) { /* it has no direction to keep */
        memset(gradients, 0, layout->vector * sizeof *gradients);
        return;
    }
    if (squares <= most * most)
        return;
    /* A little less, so that it is below the clip after rounding. */
    const float scale = (float)(most / sqrt(squares) * (1 - 0x1p-20));
    for (size_t i = 0; i < layout->vector; i++)
        gradients[i] *= scale;
}

const float *privacy_noise(const struct sums *sums, int bucket, const float *sum, size_t at,
                           size_t count, float *out)
{
    const struct exec_privacy *privacy = sums->config->privacy;
    const size_t begin = (size_t)sums->layout->buckets.begin[bucket];

    memcpy(out, sum, count * sizeof *out);
    for (int i = 0; i < sums->model->count; i++) {
        const struct value *param = sums->model->params[i];
        if (plan_bucket_of(param->flat) != bucket)
            continue;
        const size_t first = begin + (size_t)param->offset;
        const size_t end = first + (size_t)shape_count(&param->shape);
        const size_t low = first > at ? first : at;
        const size_t high = end < at + count ? end : at + count;
        if (low < high)
            privacy->add(privacy->arg, sums->now->step, sums->now->weight, low,
                         out + (low - at), high - low);
    }
    return out;
}
