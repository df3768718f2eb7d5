/* SPDX-License-Identifier: MIT */
/* loader.c - a ring of batches between the threads that read and the one that computes.
 *
 * Four counts of batches since the start, each only growing:
 *
 *      done  <=  taken  <=  ready  <=  claimed  <=  done + depth
 *
 * Batch number n (step first_step + n) lives in slot n % depth. Readers own the slots of
 * [ready, done + depth), the user those of [done, taken). Readers sleep until half of the slots
 * are theirs, or until the user waits, and then fill them all. A batch is claimed and filled by
 * one reader; a batch that is full before an earlier one waits for that.
 *
 * Readers claim in turns: the one whose turn it is waits for a free slot, looks the samples up
 * and gives the turn away, so that the sampler is asked in the order of steps. A loader that is
 * to pick the number of its readers begins with one and lets another join when the user had to
 * wait for most of the last WINDOW batches.
 */
#include "data/loader.h"

#include "base/mem.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH_LEAST = 2, DEPTH_MOST = 16, AHEAD_BYTES = 8 << 20 };
enum { READERS_PICKED = 4, WINDOW = 16, READ_EVENTS = 4096 };

struct slot {
    struct batch batch;
    int64_t *index; /* samples of the batch */
    bool is_full;   /* guarded by the lock */
};

struct reader {
    struct loader *loader;
    int number;
    uint8_t *scratch; /* for augmentation */
    struct trace_row *trace;
    pthread_t thread;
};

struct loader {
    struct loader_config config; /* depth is the one in use */
    uint64_t total;              /* batches there will be */
    size_t slot_bytes;           /* of a batch */
    struct slot *slots;          /* depth */
    char *parts;                 /* x, x2 and y of all slots */
    int64_t *index;
    struct reader *readers;
    uint8_t *scratch; /* of all readers */
    int n_readers, n_started;

    pthread_mutex_t turn;    /* to claim; taken before the lock */
    struct sampler *sampler; /* of whose turn it is */

    pthread_mutex_t lock;    /* guards all below */
    pthread_cond_t can_read; /* the reader whose turn it is waits for it */
    pthread_cond_t can_take; /* the user waits for it */
    pthread_cond_t can_join; /* readers that do not take part yet wait for it */
    uint64_t claimed, ready, taken, done;
    int n_active;          /* readers that take part */
    int n_noted, n_waited; /* batches of this window; those the user waited for */
    bool fills, user_waits, stop;
};

static int64_t free_slots(const struct loader *loader)
{
    return loader->config.depth - (int64_t)(loader->claimed - loader->done);
}

/* Is it worth waking up? */
static bool should_read(const struct loader *loader)
{
    const int64_t slots = free_slots(loader);

    return loader->claimed < loader->total &&
           (2 * slots >= loader->config.depth || (loader->user_waits && slots > 0));
}

/* Who is awake goes on until all slots are full. */
static bool can_claim(struct loader *loader)
{
    loader->fills =
        (loader->fills && loader->claimed < loader->total && free_slots(loader) > 0) ||
        should_read(loader);
    return loader->fills;
}

/* This rank's rows of a step of `samples`: [*out_first, *out_first + returned). */
static int64_t rows_of(const struct loader_config *config, int64_t samples, int64_t *out_first)
{
    const int64_t shards = config->shards, first = config->first_shard;

    *out_first = sampler_shard_begin(samples, shards, first);
    return sampler_shard_begin(samples, shards, first + config->n_shards) - *out_first;
}

static struct slot *slot_of(struct loader *loader, uint64_t number)
{
    return &loader->slots[number % (uint64_t)loader->config.depth];
}

/* Waits for a slot to fill, in its turn; false when the loader stops. */
static bool claim(struct loader *loader, uint64_t *out_number)
{
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop && !can_claim(loader))
        pthread_cond_wait(&loader->can_read, &loader->lock);
    const bool goes_on = !loader->stop;
    if (goes_on)
        *out_number = loader->claimed++;
    pthread_mutex_unlock(&loader->lock);
    return goes_on;
}

static struct source_how how_in(const struct reader *reader, int64_t epoch)
{
    const struct loader_config *config = &reader->loader->config;

    return (struct source_how){
        .augment = config->augment,
        .seed = config->sampler.seed,
        .epoch = epoch,
        .scratch = reader->scratch,
    };
}

/* Which samples batch `number` holds. The slot is the reader's, and the turn. */
static void look_up(const struct reader *reader, uint64_t number)
{
    struct loader *loader = reader->loader;
    struct slot *slot = slot_of(loader, number);
    struct batch *batch = &slot->batch;

    batch->step = loader->config.first_step + number;
    const struct sampler_step step = sampler_step(loader->sampler, batch->step);
    batch->epoch = step.epoch;
    batch->samples = step.samples;
    batch->rows = rows_of(&loader->config, step.samples, &batch->first);
    memcpy(slot->index, step.index + batch->first, (size_t)batch->rows * sizeof *slot->index);

    const struct source *source = loader->config.source;
    const struct source_how how = how_in(reader, step.epoch);
    source_extents(source, step.index, step.samples, batch->length);
    batch->weight = source_weight(source, &how, step.index, step.samples);
    batch->own_weight =
        batch->rows == batch->samples
            ? batch->weight
            : source_weight(source, &how, step.index + batch->first, batch->rows);
}

/* The slot is the reader's; no lock is held. */
static void fill(const struct reader *reader, const struct slot *slot)
{
    const struct batch *batch = &slot->batch;
    const struct source_how how = how_in(reader, batch->epoch);
    const int64_t begin = trace_begin(reader->trace);

    if (batch->picks)
        source_pick(batch->source, &how, slot->index, batch->rows, batch->picks);
    else
        source_read(batch->source, &how, slot->index, batch->rows, batch->length, batch->x,
                    batch->x2, batch->y);
    if (begin)
        reader->trace->step = batch->step;
    trace_end(reader->trace, begin, TRACE_LOAD, "read a batch", NULL);
}

/* Makes the batch, and full ones that waited for it, ready. */
static void hand_over(struct loader *loader, struct slot *slot)
{
    pthread_mutex_lock(&loader->lock);
    slot->is_full = true;
    for (; slot_of(loader, loader->ready)->is_full; loader->ready++)
        slot_of(loader, loader->ready)->is_full = false;
    if (loader->user_waits && loader->taken < loader->ready)
        pthread_cond_signal(&loader->can_take);
    pthread_mutex_unlock(&loader->lock);
}

static void wait_to_join(const struct reader *reader)
{
    struct loader *loader = reader->loader;

    pthread_mutex_lock(&loader->lock);
    while (!loader->stop && reader->number >= loader->n_active)
        pthread_cond_wait(&loader->can_join, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
}

static void *read_ahead(void *arg)
{
    struct reader *reader = arg;
    struct loader *loader = reader->loader;
    uint64_t number = 0;

    wait_to_join(reader);
    for (;;) {
        pthread_mutex_lock(&loader->turn);
        const bool goes_on = claim(loader, &number);
        if (goes_on)
            look_up(reader, number);
        pthread_mutex_unlock(&loader->turn);
        if (!goes_on)
            return NULL;
        fill(reader, slot_of(loader, number));
        hand_over(loader, slot_of(loader, number));
    }
}

static enum status check_config(const struct loader_config *config)
{
    const int64_t there = source_count(config->source);

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
    if (config->threads < 0 || config->threads > LOADER_THREADS)
        return FAIL(STATUS_USAGE, "%d threads to read: from 1 to %d, or 0 to pick",
                    config->threads, LOADER_THREADS);
    BUG_ON(config->picks && !source_has_pixels(config->source));
    if (source_has_sequences(config->source))
        return STATUS_OK;
    return augment_check(&config->augment, &config->source->sample);
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
        depth = depth <= config->threads ? config->threads + 1 : depth; /* one to be taken */
    }
    return total < (uint64_t)depth ? (int)total + (total == 0) : (int)depth;
}

static size_t whole_lines(size_t bytes)
{
    return (bytes + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
}

static size_t row_bytes(const struct loader_config *config, enum source_part part)
{
    if (config->picks)
        return part == SOURCE_X ? sizeof(struct pick) : 0;
    return source_row_bytes(config->source, part);
}

/* Bytes of a batch's parts; each starts a cache line. */
static enum status size_parts(const struct loader_config *config, int64_t rows,
                              size_t out[SOURCE_PARTS])
{
    for (int part = 0; part < SOURCE_PARTS; part++) {
        if (__builtin_mul_overflow((size_t)rows, row_bytes(config, part), &out[part]) ||
            out[part] > INT64_MAX / 8)
            return FAIL(STATUS_NO_MEMORY,
                        "a batch of %" PRId64 " rows is more than memory can hold", rows);
        out[part] = whole_lines(out[part]);
    }
    return STATUS_OK;
}

/* Takes the memory of all slots. */
static enum status make_slots(struct loader *loader)
{
    const struct loader_config *config = &loader->config;
    const int64_t rows = most_rows(config);
    size_t bytes[SOURCE_PARTS];

    TRY(size_parts(config, rows, bytes));
    loader->slot_bytes = bytes[SOURCE_X] + bytes[SOURCE_X2] + bytes[SOURCE_Y];
    loader->config.depth = pick_depth(config, (int64_t)loader->slot_bytes);

    const size_t depth = (size_t)config->depth;
    TRY(mem_alloc(depth, sizeof *loader->slots, &loader->slots));
    TRY(mem_alloc(depth, loader->slot_bytes, &loader->parts));
    TRY(mem_alloc(depth * (size_t)rows, sizeof *loader->index, &loader->index));
    for (size_t i = 0; i < depth; i++) {
        struct batch *batch = &loader->slots[i].batch;
        char *x = loader->parts + i * loader->slot_bytes, *x2 = x + bytes[SOURCE_X];
        batch->source = config->source;
        if (config->picks) {
            batch->picks = (struct pick *)x;
        } else {
            batch->x = x;
            batch->x2 = bytes[SOURCE_X2] ? (int32_t *)x2 : NULL;
            batch->y = (int32_t *)(x2 + bytes[SOURCE_X2]);
        }
        loader->slots[i].index = loader->index + i * (size_t)rows;
    }
    return STATUS_OK;
}

/* More readers than slots would find nothing to do. */
static enum status make_readers(struct loader *loader)
{
    const struct loader_config *config = &loader->config;
    const int wanted = config->threads ? config->threads : READERS_PICKED;
    const size_t bytes = whole_lines(config->source->scratch_bytes);

    loader->n_readers = wanted < config->depth ? wanted : config->depth;
    loader->n_active = config->threads ? loader->n_readers : 1;
    TRY(mem_alloc((size_t)loader->n_readers, sizeof *loader->readers, &loader->readers));
    TRY(mem_alloc((size_t)loader->n_readers, bytes, &loader->scratch));
    for (int i = 0; i < loader->n_readers; i++) {
        char name[32];
        loader->readers[i] = (struct reader){ .loader = loader,
                                              .number = i,
                                              .scratch = loader->scratch + (size_t)i * bytes };
        snprintf(name, sizeof name, "loader %d", i);
        TRY(trace_add_row(config->trace, name, READ_EVENTS, &loader->readers[i].trace));
    }
    return STATUS_OK;
}

/* Signals go to the threads of the program, not to the readers: they block all. */
static enum status start_readers(struct loader *loader)
{
    sigset_t all, before;
    int error = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (error == 0 && loader->n_started < loader->n_readers) {
        struct reader *reader = &loader->readers[loader->n_started];
        error = pthread_create(&reader->thread, NULL, read_ahead, reader);
        loader->n_started += error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return FAIL(STATUS_NO_MEMORY, "cannot start the loader's thread: %s", strerror(error));
    return STATUS_OK;
}

static void stop_readers(struct loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    loader->stop = true;
    pthread_cond_signal(&loader->can_read);
    pthread_cond_broadcast(&loader->can_join);
    pthread_mutex_unlock(&loader->lock);
    for (int i = 0; i < loader->n_started; i++)
        pthread_join(loader->readers[i].thread, NULL);
}

enum status loader_create(const struct loader_config *config, struct loader **out)
{
    struct loader *loader;
    enum status status;

    TRY(check_config(config));
    TRY(mem_alloc(1, sizeof *loader, &loader));
    pthread_mutex_init(&loader->turn, NULL);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->can_read, NULL);
    pthread_cond_init(&loader->can_take, NULL);
    pthread_cond_init(&loader->can_join, NULL);
    loader->config = *config;
    loader->total = config->end_step - config->first_step;
    status = sampler_create(&config->sampler, &loader->sampler);
    if (status == STATUS_OK)
        status = make_slots(loader);
    if (status == STATUS_OK)
        status = make_readers(loader);
    if (status == STATUS_OK)
        status = start_readers(loader);
    if (status != STATUS_OK) {
        loader_destroy(loader);
        return status;
    }
    *out = loader;
    return STATUS_OK;
}

void loader_destroy(struct loader *loader)
{
    if (!loader)
        return;
    stop_readers(loader);
    pthread_cond_destroy(&loader->can_join);
    pthread_cond_destroy(&loader->can_take);
    pthread_cond_destroy(&loader->can_read);
    pthread_mutex_destroy(&loader->lock);
    pthread_mutex_destroy(&loader->turn);
    mem_free(loader->scratch);
    mem_free(loader->readers);
    mem_free(loader->index);
    mem_free(loader->parts);
    mem_free(loader->slots);
    sampler_destroy(loader->sampler);
    mem_free(loader);
}

int loader_threads(struct loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    const int n_active = loader->n_active;
    pthread_mutex_unlock(&loader->lock);
    return n_active;
}

size_t loader_bytes(const struct loader *loader)
{
    return loader->slot_bytes * (size_t)loader->config.depth;
}

/* Lets another reader join when the user waits more often than not. */
static void note(struct loader *loader, bool has_waited)
{
    loader->n_waited += has_waited;
    if (++loader->n_noted < WINDOW)
        return;
    if (2 * loader->n_waited > WINDOW && loader->n_active < loader->n_readers) {
        loader->n_active++;
        pthread_cond_broadcast(&loader->can_join);
    }
    loader->n_noted = loader->n_waited = 0;
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
    note(loader, loader->taken == loader->ready);
    while (loader->taken == loader->ready) {
        loader->user_waits = true;
        if (should_read(loader))
            pthread_cond_signal(&loader->can_read);
        pthread_cond_wait(&loader->can_take, &loader->lock);
    }
    loader->user_waits = false;
    *out = &slot_of(loader, loader->taken++)->batch;
    pthread_mutex_unlock(&loader->lock);
    return STATUS_OK;
}

void loader_done(struct loader *loader, const struct batch *batch)
{
    pthread_mutex_lock(&loader->lock);
    BUG_ON(loader->done == loader->taken);
    BUG_ON(batch != &slot_of(loader, loader->done)->batch);
    loader->done++;
    if (should_read(loader))
        pthread_cond_signal(&loader->can_read);
    pthread_mutex_unlock(&loader->lock);
}
