/* SPDX-License-Identifier: MIT */
/* loader.c - a ring of batches between the thread that reads and the one that computes.
 *
 * Three counts of batches since the start, each only growing:
 *
 *      done  <=  taken  <=  ready  <=  done + depth
 *
 * Batch number n (step first_step + n) lives in slot n % depth. The reader owns the slots of
 * [ready, done + depth), the user those of [done, taken). The reader sleeps until half of the
 * slots are its own, or until the user waits, and then fills them all.
 */
#include "data/loader.h"

#include "base/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

enum { DEPTH_LEAST = 2, DEPTH_MOST = 16, AHEAD_BYTES = 8 << 20, FLOATS_PER_LINE = 16 };

struct loader {
    struct loader_config config; /* depth is the one in use */
    struct sampler *sampler;     /* the reader's */
    uint64_t total;              /* batches there will be */
    struct batch *slots;         /* depth */
    float *x;                    /* of all slots */
    int32_t *y;

    pthread_t thread;
    pthread_mutex_t lock;    /* guards all below */
    pthread_cond_t can_read; /* the reader waits for it */
    pthread_cond_t can_take; /* the user waits for it */
    uint64_t ready, taken, done;
    bool user_waits, stop;
};

static int64_t free_slots(const struct loader *loader)
{
    return loader->config.depth - (int64_t)(loader->ready - loader->done);
}

/* Is it worth waking up? */
static bool should_read(const struct loader *loader)
{
    const int64_t slots = free_slots(loader);

    return loader->ready < loader->total &&
           (2 * slots >= loader->config.depth || (loader->user_waits && slots > 0));
}

/* This rank's rows of a step of `samples`: [*out_first, *out_first + returned). */
static int64_t rows_of(const struct loader_config *config, int64_t samples, int64_t *out_first)
{
    const int64_t shards = config->shards, first = config->first_shard;

    *out_first = sampler_shard_begin(samples, shards, first);
    return sampler_shard_begin(samples, shards, first + config->n_shards) - *out_first;
}

/* Fills a slot with batch number `number`. The slot is the reader's; no lock is held. */
static void fill(struct loader *loader, uint64_t number)
{
    struct batch *batch = &loader->slots[number % (uint64_t)loader->config.depth];
    const uint64_t number_of_step = loader->config.first_step + number;
    const struct sampler_step step = sampler_step(loader->sampler, number_of_step);

    batch->step = number_of_step;
    batch->epoch = step.epoch;
    batch->samples = step.samples;
    batch->rows = rows_of(&loader->config, step.samples, &batch->first);
    dataset_read(loader->config.dataset, step.index + batch->first, batch->rows, batch->x,
                 batch->y);
}

static void *read_ahead(void *arg)
{
    struct loader *loader = arg;

    pthread_mutex_lock(&loader->lock);
    while (!loader->stop) {
        if (!should_read(loader)) {
            pthread_cond_wait(&loader->can_read, &loader->lock);
            continue;
        }
        while (!loader->stop && loader->ready < loader->total && free_slots(loader) > 0) {
            const uint64_t number = loader->ready;

            pthread_mutex_unlock(&loader->lock);
            fill(loader, number);
            pthread_mutex_lock(&loader->lock);
            loader->ready++;
            if (loader->user_waits)
                pthread_cond_signal(&loader->can_take);
        }
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static enum status check_config(const struct loader_config *config)
{
    const int64_t there = dataset_count(config->dataset);

    if (config->sampler.count > there)
        return FAIL(STATUS_USAGE,
                    "%" PRId64 " samples are asked for, the data set has %" PRId64,
                    config->sampler.count, there);
    if (config->first_shard < 0 || config->n_shards < 0 || config->shards < 1 ||
        config->first_shard > config->shards - config->n_shards)
        return FAIL(STATUS_USAGE,
                    "%" PRId64 " shards from %" PRId64 " are not within %" PRId64 " shards",
                    config->n_shards, config->first_shard, config->shards);
    if (config->end_step < config->first_step)
        return FAIL(STATUS_USAGE, "the last step %" PRIu64 " is before the first %" PRIu64,
                    config->end_step, config->first_step);
    return STATUS_OK;
}

/* A shorter step may give more rows: the third of 5 shards has 1 of 2 samples, 0 of 3. */
static int64_t most_rows(const struct loader_config *config)
{
    const int64_t count = config->sampler.count, batch = config->sampler.batch;
    const int64_t full = batch < count ? batch : count;
    int64_t first;
    const int64_t rows = rows_of(config, full, &first);
    const int64_t rows_of_last = rows_of(config, count % full, &first);

    return rows > rows_of_last ? rows : rows_of_last;
}

static int pick_depth(const struct loader_config *config, int64_t bytes)
{
    const uint64_t total = config->end_step - config->first_step;
    int64_t depth = config->depth;

    if (depth <= 0) {
        depth = bytes > 0 ? AHEAD_BYTES / bytes : DEPTH_MOST;
        depth = depth < DEPTH_LEAST ? DEPTH_LEAST : depth > DEPTH_MOST ? DEPTH_MOST : depth;
    }
    return total < (uint64_t)depth ? (int)total + (total == 0) : (int)depth;
}

/* Takes the memory of all slots; each slot's x starts a cache line. */
static enum status make_slots(struct loader *loader)
{
    const struct loader_config *config = &loader->config;
    const struct shape sample = dataset_sample(config->dataset);
    const int64_t rows = most_rows(config);
    int64_t floats;

    if (__builtin_mul_overflow(rows, shape_count(&sample), &floats) || floats > INT64_MAX / 8)
        return FAIL(STATUS_NO_MEMORY,
                    "a batch of %" PRId64 " rows is more than memory can hold", rows);
    floats = (floats + FLOATS_PER_LINE - 1) / FLOATS_PER_LINE * FLOATS_PER_LINE;
    loader->config.depth = pick_depth(config, floats * (int64_t)sizeof(float));

    const size_t depth = (size_t)config->depth;
    TRY(mem_alloc(depth, sizeof *loader->slots, &loader->slots));
    TRY(mem_alloc(depth, (size_t)floats * sizeof(float), &loader->x));
    TRY(mem_alloc(depth * (size_t)rows, sizeof *loader->y, &loader->y));
    for (size_t i = 0; i < depth; i++) {
        loader->slots[i].x = loader->x + i * (size_t)floats;
        loader->slots[i].y = loader->y + i * (size_t)rows;
    }
    return STATUS_OK;
}

static void release(struct loader *loader)
{
    mem_free(loader->y);
    mem_free(loader->x);
    mem_free(loader->slots);
    sampler_destroy(loader->sampler);
    mem_free(loader);
}

/* Signals go to the threads of the program, not to the reader: it blocks all. */
static enum status start_reader(struct loader *loader)
{
    sigset_t all, before;

    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->can_read, NULL);
    pthread_cond_init(&loader->can_take, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&loader->thread, NULL, read_ahead, loader);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return STATUS_OK;

    pthread_cond_destroy(&loader->can_take);
    pthread_cond_destroy(&loader->can_read);
    pthread_mutex_destroy(&loader->lock);
    return FAIL(STATUS_NO_MEMORY, "cannot start the loader's thread: %s", strerror(error));
}

enum status loader_create(const struct loader_config *config, struct loader **out)
{
    struct loader *loader;
    enum status status;

    TRY(check_config(config));
    TRY(mem_alloc(1, sizeof *loader, &loader));
    loader->config = *config;
    loader->total = config->end_step - config->first_step;
    status = sampler_create(&config->sampler, &loader->sampler);
    if (status != STATUS_OK)
        goto release;
    status = make_slots(loader);
    if (status != STATUS_OK)
        goto release;
    status = start_reader(loader);
    if (status != STATUS_OK)
        goto release;
    *out = loader;
    return STATUS_OK;

release:
    release(loader);
    return status;
}

void loader_destroy(struct loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_signal(&loader->can_read);
    pthread_mutex_unlock(&loader->lock);
    pthread_join(loader->thread, NULL);

    pthread_cond_destroy(&loader->can_take);
    pthread_cond_destroy(&loader->can_read);
    pthread_mutex_destroy(&loader->lock);
    release(loader);
}

enum status loader_next(struct loader *loader, const struct batch **out)
{
    pthread_mutex_lock(&loader->lock);
    if (loader->taken == loader->total) {
        pthread_mutex_unlock(&loader->lock);
        return FAIL(STATUS_NOT_FOUND, "there is no step after %" PRIu64,
                    loader->config.end_step);
    }
    BUG_ON(loader->taken - loader->done ==
           (uint64_t)loader->config.depth); /* none was given back */
    while (loader->taken == loader->ready) {
        loader->user_waits = true;
        if (should_read(loader))
            pthread_cond_signal(&loader->can_read);
        pthread_cond_wait(&loader->can_take, &loader->lock);
    }
    loader->user_waits = false;
    *out = &loader->slots[loader->taken++ % (uint64_t)loader->config.depth];
    pthread_mutex_unlock(&loader->lock);
    return STATUS_OK;
}

void loader_done(struct loader *loader, const struct batch *batch)
{
    pthread_mutex_lock(&loader->lock);
    BUG_ON(loader->done == loader->taken);
    BUG_ON(batch != &loader->slots[loader->done % (uint64_t)loader->config.depth]);
    loader->done++;
    if (should_read(loader))
        pthread_cond_signal(&loader->can_read);
    pthread_mutex_unlock(&loader->lock);
}
