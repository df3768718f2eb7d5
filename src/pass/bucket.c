/* SPDX-License-Identifier: MIT */
/* bucket.c - lays parameters and gradients into flat ranges, so that sums and updates run over
 * long vectors.
 *
 * Buckets are filled from the last parameter to the first, as backward finishes them in that
 * order: bucket 0 is complete first. Inside a bucket parameters stand in the model's order, each at
 * a multiple of 16 elements; the gaps stay zero. Where borders fall depends on the model alone,
 * never on ranks. After: every parameter and its gradient lies in "bucketN.param" and "bucketN.grad".
 */
#include <stdio.h>

#include "graph/op.h"
#include "pass/pass.h"

enum { ALIGN = 16, DEFAULT_BYTES = 512 << 10 };

static int64_t aligned(int64_t count)
{
    return (count + ALIGN - 1) / ALIGN * ALIGN;
}

/* Puts params[first..end) into one bucket. */
static enum status fill_bucket(struct graph *graph, struct value *const *params, int first,
                               int end, int bucket)
{
    char name[32];
    int64_t count = 0;

    if (bucket >= PASS_BUCKETS)
        return FAIL(STATUS_USAGE, "more than %d buckets: choose a larger --bucket-mib",
                    PASS_BUCKETS);
    for (int i = first; i < end; i++)
        count += aligned(shape_count(&params[i]->shape));
    snprintf(name, sizeof name, "bucket%d.param", bucket);
    struct value *flat = graph_flat(graph, name, count);
    snprintf(name, sizeof name, "bucket%d.grad", bucket);
    struct value *grad = graph_flat(graph, name, count);
    TRY(graph_status(graph));

    count = 0;
    for (int i = first; i < end; i++) {
        if (params[i]->gradient->flat)
            return FAIL(STATUS_UNSUPPORTED, "parameters %s and another share one gradient",
                        params[i]->name);
        params[i]->flat = flat;
        params[i]->gradient->flat = grad;
        params[i]->offset = params[i]->gradient->offset = count;
        count += aligned(shape_count(&params[i]->shape));
    }
    return STATUS_OK;
}

/* First of the parameters up to params[last] whose gradients one node makes: a weight and its
 * bias are final together, so they stay together. */
static int group_begin(struct value *const *params, int last)
{
    int first = last;

    while (first > 0 && params[first - 1]->gradient->maker == params[last]->gradient->maker)
        first--;
    return first;
}

/* Is x, or what it is a view of, an input of the graph? */
static bool reads_samples(const struct node *gradient)
{
    const struct value *x = gradient->in[0];

    while (x->maker && x->maker->op->is_view)
        x = x->maker->in[0];
    return x->kind == VALUE_INPUT;
}

bool pass_is_factored(const struct node *gradient, const struct pass_config *config)
{
    if (gradient->op != &op_linear_grad_weight || !config->factors ||
        config->optim.attrs.max_norm > 0)
        return false; /* clipping needs the norm of the sum before anything is updated */
    const int64_t k = gradient->in[0]->shape.dim[1], n = gradient->in[1]->shape.dim[1];
    /* Shards of many rows may have other kernels for the whole gradient, with other bits. */
    if (config->batch / config->shards >= 256)
        return false;
    /* The first layer's weight then stays with the lanes that update it, which gains more. */
    const int64_t gain = reads_samples(gradient) ? 1 : 2;
    return gain * config->batch * (k + n) <= k * n;
}

static int64_t group_count(struct value *const *params, int first, int last)
{
    int64_t count = 0;

    for (int i = first; i <= last; i++)
        count += aligned(shape_count(&params[i]->shape));
    return count;
}

static enum status run_bucket(struct graph *graph, const struct pass_config *config)
{
    const int64_t most = config->bucket_bytes ? config->bucket_bytes : DEFAULT_BYTES;
    const int n_values = graph_value_count(graph);
    struct value **params = graph_alloc(graph, (size_t)n_values + 1, sizeof(struct value *));
    int n = 0, bucket = 0;

    TRY(graph_status(graph));
    for (int i = 0; i < n_values; i++) {
        if (graph_value(graph, i)->kind == VALUE_PARAM)
            params[n++] = graph_value(graph, i);
    }
    if (n == 0)
        return FAIL(STATUS_USAGE, "model %s has no parameters", graph_name(graph));
    for (int end = n; end > 0;) {
        int first = group_begin(params, end - 1);
        int64_t count = group_count(params, first, end - 1);
        /* What is made from factors has a bucket of its own. */
        while (first > 0 && !pass_is_factored(params[first]->gradient->maker, config) &&
               !pass_is_factored(params[first - 1]->gradient->maker, config)) {
            const int next = group_begin(params, first - 1);
            const int64_t more = group_count(params, next, first - 1);
            if ((count + more) * (int64_t)sizeof(float) > most)
                break;
            count += more;
            first = next;
        }
        TRY(fill_bucket(graph, params, first, end, bucket++));
        end = first;
    }
    return STATUS_OK;
}

const struct pass pass_bucket = {
    .name = "bucket",
    .summary = "lay parameters and gradients into flat ranges",
    .run = run_bucket,
};
