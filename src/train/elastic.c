/* SPDX-License-Identifier: MIT */
/* elastic.c - a worker's side of elastic averaging. */
#include "train/elastic.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct elastic {
    struct elastic_config config;
    size_t length;
    float *shown; /* the parameters that an exchange is about, where servers see them */
    float *pull;  /* d; while the center is lent, the worker's own parameters */
    struct tree_part part;
    bool is_out; /* an exchange is under way */
    bool is_lent;
    struct interval interval;
    uint64_t next; /* step before which the next exchange is */
    int64_t exchanges;
    struct ps_tick since; /* what is said at the next */
    int64_t steps_since;  /* the last exchange's end, and what they showed */
    double seconds_since, loss_since, weight_since;
    double begun_s; /* what of the exchange under way was not hidden so far */
    struct elastic_seen seen;
};

size_t elastic_room(const struct exec *exec)
{
    return exec_vector_length(exec) * sizeof(float);
}

/* A given interval counts from the first step of the run, a chosen one from the last exchange. */
static void plan_next(struct elastic *elastic, uint64_t step)
{
    const uint64_t every = (uint64_t)elastic->interval.now;

    elastic->next =
        elastic->config.axes->is_auto ? step + every : (step + every - 1) / every * every;
}

static enum status await_all(const struct elastic *elastic)
{
    for (int b = 0; b < elastic->config.buckets; b++)
        TRY(ps_await(elastic->config.client, b));
    return STATUS_OK;
}

static enum status begin(struct elastic *elastic)
{
    const struct elastic_config *config = &elastic->config;
    const struct ps_memory memory = {
        .params = elastic->pull, .parts = &elastic->part, .n_parts = 1, .shards = 1
    };

    elastic->shown = ps_room(config->client);
    elastic->part = (struct tree_part){ { 0, 1 }, elastic->shown };
    TRY(ps_attach(config->client, &memory));
    if (config->is_first)
        TRY(ps_put(config->client, -1, exec_vector(config->exec, -1)));
    TRY(ps_begin(config->client, 0));
    return await_all(elastic); /* what comes first says nothing, but is written */
}

enum status elastic_create(const struct elastic_config *config, uint64_t step,
                           struct elastic **out)
{
    struct elastic *elastic;

    TRY(mem_alloc(1, sizeof *elastic, &elastic));
    elastic->config = *config;
    elastic->length = exec_vector_length(config->exec);
    elastic->interval.now = elastic->seen.interval = config->axes->interval;
    elastic->seen.distance = NAN;
    enum status status = mem_alloc(elastic->length, sizeof(float), &elastic->pull);
    if (status == STATUS_OK)
        status = exec_settle(config->exec);
    if (status == STATUS_OK)
        status = begin(elastic);
    if (status != STATUS_OK) {
        elastic_destroy(elastic);
        return status;
    }
    elastic->next = step;
    if (!config->axes->is_auto)
        plan_next(elastic, step);
    *out = elastic;
    return STATUS_OK;
}

void elastic_destroy(struct elastic *elastic)
{
    if (!elastic)
        return;
    mem_free(elastic->pull);
    mem_free(elastic);
}

/* A bucket's exchange: the server has what is shown until the pull has come. */
static enum status push(void *arg, int bucket, size_t at, size_t count)
{
    struct elastic *elastic = arg;
    const float *own = exec_vector(elastic->config.exec, -1);

    memcpy(elastic->shown + at, own + at, count * sizeof *own);
    return ps_push(elastic->config.client, bucket);
}

static enum status pull(void *arg, int bucket, size_t at, size_t count)
{
    struct elastic *elastic = arg;
    float *own = exec_vector(elastic->config.exec, -1);

    TRY(ps_await(elastic->config.client, bucket));
    for (size_t i = at; i < at + count; i++)
        own[i] = elastic->pull[i] != 0 ? own[i] - elastic->pull[i] : own[i];
    return STATUS_OK;
}

static struct exec_center center_of(struct elastic *elastic)
{
    return (struct exec_center){ .arg = elastic, .push = push, .pull = pull };
}

bool elastic_is_due(const struct elastic *elastic, uint64_t step)
{
    return step >= elastic->next;
}

enum status elastic_before(struct elastic *elastic, uint64_t step, uint32_t says, bool *out_met,
                           struct ps_heard *out_heard)
{
    const struct exec_center center = center_of(elastic);
    const double at = clock_seconds();

    *out_met = elastic_is_due(elastic, step);
    if (!*out_met)
        return STATUS_OK;
    TRY(exec_push(elastic->config.exec, &center));
    elastic->since.bits = says;
    TRY(ps_tick(elastic->config.client, &elastic->since, out_heard));
    elastic->since = (struct ps_tick){ 0 };
    elastic->is_out = true;
    elastic->begun_s = clock_seconds() - at;
    return STATUS_OK;
}

/* How far the worker was from the center, from what alpha made of it. */
static double distance_of(const struct elastic *elastic)
{
    const double alpha = elastic->config.axes->alpha;
    double sum = 0;

    for (size_t i = 0; i < elastic->length; i++)
        sum += (double)elastic->pull[i] * (double)elastic->pull[i];
    return alpha > 0 ? sum / (alpha * alpha) / (double)elastic->length : (double)NAN;
}

/* The first exchange is about equal parameters, and the first use of memory: it shows nothing. */
static void look_back(struct elastic *elastic, double lr)
{
    struct elastic_seen *seen = &elastic->seen;
    const struct interval_seen round = {
        .comm_s = seen->comm_s,
        .step_s =
            elastic->steps_since ? elastic->seconds_since / (double)elastic->steps_since : 0,
        .growth = elastic->steps_since && seen->distance > 0
                      ? seen->distance / (double)elastic->steps_since
                      : 0,
        .loss = elastic->weight_since > 0 ? elastic->loss_since / elastic->weight_since : 0,
        .lr = lr,
    };

    if (elastic->config.axes->is_auto && elastic->exchanges > 0)
        interval_next(&elastic->interval, &round);
    seen->is_new = seen->interval != elastic->interval.now;
    seen->interval = elastic->interval.now;
    elastic->exchanges++;
}

static enum status end_exchange(struct elastic *elastic, double lr)
{
    const struct exec_center center = center_of(elastic);
    const double at = clock_seconds();

    TRY(exec_pull(elastic->config.exec, &center));
    elastic->is_out = false;
    elastic->seen.distance = distance_of(elastic);
    elastic->seen.comm_s = elastic->begun_s + clock_seconds() - at;
    elastic->seen.total_s += elastic->seen.comm_s;
    look_back(elastic, lr);
    elastic->steps_since = 0;
    elastic->seconds_since = elastic->loss_since = elastic->weight_since = 0;
    return STATUS_OK;
}

void elastic_add(struct elastic *elastic, const struct exec_result *result, double seconds)
{
    elastic->since.loss += result->loss * (double)result->weight;
    elastic->since.correct += result->correct;
    elastic->since.samples += result->samples;
    elastic->since.weight += result->weight;
    elastic->seconds_since += seconds;
    elastic->loss_since += result->loss * (double)result->weight;
    elastic->weight_since += (double)result->weight;
}

enum status elastic_after(struct elastic *elastic, double seconds, double lr)
{
    elastic->seen.is_new = false;
    elastic->steps_since++;
    elastic->seconds_since += seconds;
    if (!elastic->is_out)
        return STATUS_OK;
    const uint64_t step = elastic->next;
    TRY(end_exchange(elastic, lr));
    plan_next(elastic, elastic->config.axes->is_auto ? step : step + 1);
    return STATUS_OK;
}

void elastic_untold(const struct elastic *elastic, int64_t *out_samples, int64_t *out_weight)
{
    *out_samples = elastic->since.samples;
    *out_weight = elastic->since.weight;
}

struct elastic_seen elastic_seen(const struct elastic *elastic)
{
    return elastic->seen;
}

static void exchange_vectors(struct elastic *elastic)
{
    float *own = exec_vector(elastic->config.exec, -1);

    for (size_t i = 0; i < elastic->length; i++) {
        const float kept = own[i];
        own[i] = elastic->pull[i];
        elastic->pull[i] = kept;
    }
    exec_wrote_params(elastic->config.exec);
}

enum status elastic_lend_center(struct elastic *elastic)
{
    TRY(exec_fetch_params(elastic->config.exec));
    TRY(ps_get(elastic->config.client, -1, elastic->pull));
    exchange_vectors(elastic);
    elastic->is_lent = true;
    return STATUS_OK;
}

void elastic_give_back(struct elastic *elastic)
{
    if (elastic->is_lent)
        exchange_vectors(elastic);
    elastic->is_lent = false;
}
