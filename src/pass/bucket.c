/* SPDX-License-Identifier: MIT */
/* bucket.c - lays parameters and gradients into flat ranges, so that sums and updates run over
 * long vectors.
 *
 * Buckets are filled from the last parameter to the first, as backward finishes them in that
 * order: bucket 0 is complete first. Inside a bucket parameters stand in the model's order, each at
 * a multiple of 16 elements, of 128 where a device's library reads filters there, or of a stretch where norms are needed; the gaps stay zero. Where borders fall depends on the model alone,
 * never on ranks; buckets are made larger
 * than asked if there would be too many. Of many buckets the first is an eighth of the others, so that
 * its way to other ranks begins early. After: every parameter and its gradient lies in "bucketN.param" and "bucketN.grad".
 *
 * Running averages, and what a step sees of them, are laid out in the same way, in buckets of their
 * own before all others: forward completes them.
 *
 * Of a pipeline a rank lays out what its stage has, and no bucket has parameters of two chunks.
 *
 * What is made from factors, and a table whose gradient has rows, has a bucket of its own.
 */
#include <stdio.h>

#include "graph/op.h"
#include "kernel/tree.h"
#include "pass/pass.h"

enum { ALIGN = 16, ALIGN_INWARD = 128 /* a line of memory and more, also of 16 bits */ };
enum { DEFAULT_BYTES = 512 << 10, FIRST_PART = 8, MANY = 4 };
static const int64_t MOST_BYTES = (int64_t)1 << 40;

/* Elements that a value takes. Where norms are needed, parameters begin with stretches: what squares are summed of
 * (exec/norms.c) is then the same in whatever bucket a parameter is. */
static int64_t aligned(const struct value *value, const struct pass_config *config)
{
    const int64_t unit = optim_needs_norms(&config->optim) ? TREE_STRETCH
                         : config->inward                  ? ALIGN_INWARD
                                                           : ALIGN;

    return (shape_count(&value->shape) + unit - 1) / unit * unit;
}

/* Puts params[first..end) into one bucket. */
static enum status fill_bucket(struct graph *graph, struct value *const *params, int first,
                               int end, int bucket, const struct pass_config *config)
{
    char name[32];
    int64_t count = 0;

    if (bucket >= PASS_BUCKETS)
        return FAIL(STATUS_UNSUPPORTED, "more than %d buckets: try --no-factors", PASS_BUCKETS);
    for (int i = first; i < end; i++)
        count += aligned(params[i], config);
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
        count += aligned(params[i], config);
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
    if (gradient->op != &op_linear_grad_weight || gradient->in[0]->shape.rank > 2 ||
        !config->factors || optim_needs_norms(&config->optim))
        return false; /* the norm of the sum comes before any update */
    const int64_t k = gradient->in[0]->shape.dim[1], n = gradient->in[1]->shape.dim[1];
    /* Shards of many rows may have other kernels for the whole gradient, with other bits. */
    if (config->batch / config->shards >= PASS_MANY_ROWS)
        return false;
    /* The first layer's weight then stays with the lanes that update it, which gains more. */
    const int64_t gain = reads_samples(gradient) ? 1 : 2;
    return gain * config->batch * (k + n) <= k * n;
}

bool pass_has_rows(const struct node *gradient, const struct pass_config *config)
{
    /* LARS and LAMB move a parameter as a whole, by norms of its own. */
    return gradient->op == &op_embedding_grad && gradient->n_in == 2 && !config->dense &&
           !gradient->attrs.densified && !optim_adapts(config->optim.optimizer);
}

/* Is the gradient one that has a bucket of its own? */
static bool stands_alone(const struct value *value, const struct pass_config *config)
{
    return pass_is_factored(value->gradient->maker, config) ||
           pass_has_rows(value->gradient->maker, config);
}

static int64_t group_count(struct value *const *params, int first, int last,
                           const struct pass_config *config)
{
    int64_t count = 0;

    for (int i = first; i <= last; i++)
        count += aligned(params[i], config);
    return count;
}

/* Of a pipeline's stage: chunks are complete one after the other, and forward and backward of one are not those of
 * another. */
static bool is_of_one_chunk(const struct value *a, const struct value *b)
{
    return a->stage == b->stage;
}

/* The values of a kind that this rank has, in the model's order. */
static int values_of(const struct graph *graph, const struct pass_config *config,
                     enum value_kind kind, struct value **out)
{
    int n = 0;

    for (int i = 0; i < graph_value_count(graph); i++) {
        if (graph_value(graph, i)->kind == kind &&
            pass_is_local(&config->pipeline, graph_value(graph, i)->stage))
            out[n++] = graph_value(graph, i);
    }
    return n;
}

/* Bytes of the bucket that ends before `end` of n values, at most: the one that is complete first has
 * less, if it is one of many. */
static int64_t room(struct value *const *values, int end, int n, int64_t most,
                    const struct pass_config *config)
{
    const bool is_first = end == n && values[0]->kind == VALUE_PARAM;

    if (is_first &&
        group_count(values, 0, n - 1, config) * (int64_t)sizeof(float) > MANY * most)
        return most / FIRST_PART;
    return most;
}

/* First of the values of the bucket that ends before `end`, of at most `most` bytes. */
static int bucket_begin(struct value *const *values, int end, const struct pass_config *config,
                        int64_t most)
{
    int first = group_begin(values, end - 1);
    int64_t count = group_count(values, first, end - 1, config);

    while (first > 0 && !stands_alone(values[first], config) &&
           !stands_alone(values[first - 1], config) &&
           is_of_one_chunk(values[first], values[first - 1])) {
        const int next = group_begin(values, first - 1);
        const int64_t more = group_count(values, next, first - 1, config);
        if ((count + more) * (int64_t)sizeof(float) > most)
            break;
        count += more;
        first = next;
    }
    return first;
}

static int count_buckets(struct value *const *values, int n, const struct pass_config *config,
                         int64_t most)
{
    int count = 0;

    for (int end = n; end > 0;
         end = bucket_begin(values, end, config, room(values, end, n, most, config)))
        count++;
    return count;
}

/* Fills buckets from *bucket on with values[0..n), from the last to the first. */
static enum status fill_buckets(struct graph *graph, struct value *const *values, int n,
                                const struct pass_config *config, int64_t most, int *bucket)
{
    for (int end = n; end > 0;) {
        const int first = bucket_begin(values, end, config, room(values, end, n, most, config));
        TRY(fill_bucket(graph, values, first, end, (*bucket)++, config));
        end = first;
    }
    return STATUS_OK;
}

static enum status run_bucket(struct graph *graph, const struct pass_config *config)
{
    const size_t n_values = (size_t)graph_value_count(graph);
    struct value **averages = graph_alloc(graph, n_values + 1, sizeof(struct value *));
    struct value **params = graph_alloc(graph, n_values + 1, sizeof(struct value *));
    int64_t most = config->bucket_bytes ? config->bucket_bytes : DEFAULT_BYTES;
    int bucket = 0;

    TRY(graph_status(graph));
    const int n_averages = values_of(graph, config, VALUE_AVERAGE, averages);
    const int n_params = values_of(graph, config, VALUE_PARAM, params);
    if (n_params == 0)
        return FAIL(STATUS_USAGE, "model %s has no parameters", graph_name(graph));
    while (most < MOST_BYTES && count_buckets(averages, n_averages, config, most) +
                                        count_buckets(params, n_params, config, most) >
                                    PASS_BUCKETS)
        most *= 2;
    TRY(fill_buckets(graph, averages, n_averages, config, most, &bucket));
    return fill_buckets(graph, params, n_params, config, most, &bucket);
}

const struct pass pass_bucket = {
    .name = "bucket",
    .summary = "lay parameters and gradients into flat ranges",
    .run = run_bucket,
};
