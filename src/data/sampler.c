/* SPDX-License-Identifier: MIT */
/* sampler.c - an epoch's order is a Fisher-Yates shuffle of 0, 1, 2, ... by the random stream
 * (seed, epoch).
 *
 * The order of one epoch is kept; a step of another epoch draws that one anew. For
 * i = count-1 down to 1, the numbers at i and at a position drawn from [0, i] change places. Batches change
 * places likewise, by numbers that follow in the same stream. Each step of an epoch draws a part of the order
 * of the next, so that little is left to do where epochs meet.
 */
#include "data/sampler.h"

#include "base/mem.h"
#include "base/rng.h"

#include <inttypes.h>

/* A sample of a pool that is being sorted. */
struct pooled {
    uint32_t key;
    int64_t sample;
};

/* An epoch's order, of which numbers behind `left` have their places. */
struct drawing {
    int64_t epoch; /* -1 is none */
    int64_t left;
    struct rng rng;
    int64_t *order; /* count */
};

struct sampler {
    struct sampler_config config;
    int64_t steps_per_epoch;
    struct drawing now, next;
    /* Of samples with keys: where the batch of each step is in `order`, in batches; room to sort in. */
    int64_t *place;
    struct pooled *pool, *sorted;
    int64_t pool_size;
};

/* Merges runs of 1, 2, 4, ... from `pool` to `sorted` and back; equal keys keep their order. Returns the one
 * that holds the result. */
static struct pooled *sort_pool(struct pooled *pool, struct pooled *sorted, int64_t count)
{
    for (int64_t run = 1; run < count; run *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * run) {
            const int64_t middle = begin + run < count ? begin + run : count;
            const int64_t end = middle + run < count ? middle + run : count;
            int64_t left = begin, right = middle;
            for (int64_t to = begin; to < end; to++) {
                const bool takes_left =
                    left < middle && (right == end || pool[left].key <= pool[right].key);
                sorted[to] = takes_left ? pool[left++] : pool[right++];
            }
        }
        struct pooled *const other = pool;
        pool = sorted;
        sorted = other;
    }
    return pool;
}

static void sort_by_key(struct sampler *sampler)
{
    const int64_t count = sampler->config.count, whole = count - count % sampler->config.batch;

    for (int64_t begin = 0; begin < whole; begin += sampler->pool_size) {
        const int64_t left = whole - begin;
        const int64_t size = left < sampler->pool_size ? left : sampler->pool_size;
        int64_t *order = sampler->now.order + begin;
        for (int64_t i = 0; i < size; i++)
            sampler->pool[i] = (struct pooled){ sampler->config.key[order[i]], order[i] };
        const struct pooled *result = sort_pool(sampler->pool, sampler->sorted, size);
        for (int64_t i = 0; i < size; i++)
            order[i] = result[i].sample;
    }
}

static void draw_places(struct sampler *sampler)
{
    const int64_t full = sampler->config.count / sampler->config.batch;
    int64_t *place = sampler->place;

    for (int64_t i = 0; i < sampler->steps_per_epoch; i++)
        place[i] = i;
    for (int64_t i = full - 1; i > 0; i--) {
        const int64_t j = (int64_t)rng_below(&sampler->now.rng, (uint64_t)i + 1);
        const int64_t moved = place[i];
        place[i] = place[j];
        place[j] = moved;
    }
}

static void begin_order(const struct sampler *sampler, struct drawing *drawing, int64_t epoch)
{
    for (int64_t i = 0; i < sampler->config.count; i++)
        drawing->order[i] = i;
    drawing->epoch = epoch;
    drawing->left = sampler->config.shuffle ? sampler->config.count - 1 : 0;
    rng_init(&drawing->rng, sampler->config.seed, (uint64_t)epoch);
}

/* Finds so many numbers more their places, or all that are left. */
static void draw_on(struct drawing *drawing, int64_t count)
{
    int64_t *order = drawing->order;

    for (; drawing->left > 0 && count > 0; drawing->left--, count--) {
        const int64_t i = drawing->left;
        const int64_t j = (int64_t)rng_below(&drawing->rng, (uint64_t)i + 1), moved = order[i];
        order[i] = order[j];
        order[j] = moved;
    }
}

/* The order of this epoch is the one that is kept. */
static void turn_to(struct sampler *sampler, int64_t epoch)
{
    int64_t *const room = sampler->now.order;

    if (sampler->next.epoch != epoch)
        begin_order(sampler, &sampler->next, epoch);
    draw_on(&sampler->next, sampler->next.left);
    sampler->now = sampler->next;
    sampler->next = (struct drawing){ .epoch = -1, .order = room };
    if (sampler->place) {
        sort_by_key(sampler);
        draw_places(sampler);
    }
}

/* Draws a step's part of the next epoch's order. */
static void draw_ahead(struct sampler *sampler)
{
    if (sampler->next.epoch != sampler->now.epoch + 1)
        begin_order(sampler, &sampler->next, sampler->now.epoch + 1);
    draw_on(&sampler->next, sampler->config.count / sampler->steps_per_epoch + 1);
}

/* Takes the memory of orders. */
static enum status make_room(struct sampler *sampler)
{
    const struct sampler_config *config = &sampler->config;
    const int64_t count = config->count;

    sampler->pool_size =
        config->batch < count / SAMPLER_POOL ? config->batch * SAMPLER_POOL : count;
    TRY(mem_alloc((size_t)count, sizeof *sampler->now.order, &sampler->now.order));
    TRY(mem_alloc((size_t)count, sizeof *sampler->next.order, &sampler->next.order));
    if (!config->key || !config->shuffle)
        return STATUS_OK;
    TRY(mem_alloc((size_t)sampler->steps_per_epoch, sizeof *sampler->place, &sampler->place));
    TRY(mem_alloc((size_t)sampler->pool_size, sizeof *sampler->pool, &sampler->pool));
    return mem_alloc((size_t)sampler->pool_size, sizeof *sampler->sorted, &sampler->sorted);
}

enum status sampler_count_steps(const struct sampler_config *config, int64_t *out)
{
    const int64_t count = config->count, batch = config->batch;

    if (count < 1)
        return FAIL(STATUS_USAGE, "there are no samples to draw from");
    if (batch < 1)
        return FAIL(STATUS_USAGE, "a batch has at least 1 sample, not %" PRId64, batch);
    if (config->drop_last && batch > count)
        return FAIL(STATUS_USAGE,
                    "a batch of %" PRId64 " is more than the %" PRId64
                    " samples, and incomplete batches are left out",
                    batch, count);
    *out = count / batch + (!config->drop_last && count % batch > 0);
    return STATUS_OK;
}

enum status sampler_create(const struct sampler_config *config, struct sampler **out)
{
    struct sampler *sampler;
    int64_t steps;

    TRY(sampler_count_steps(config, &steps));
    TRY(mem_alloc(1, sizeof *sampler, &sampler));
    sampler->config = *config;
    sampler->steps_per_epoch = steps;
    sampler->now.epoch = sampler->next.epoch = -1;
    const enum status status = make_room(sampler);
    if (status != STATUS_OK) {
        sampler_destroy(sampler);
        return status;
    }
    *out = sampler;
    return STATUS_OK;
}

void sampler_destroy(struct sampler *sampler)
{
    if (!sampler)
        return;
    mem_free(sampler->sorted);
    mem_free(sampler->pool);
    mem_free(sampler->place);
    mem_free(sampler->next.order);
    mem_free(sampler->now.order);
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

    /* File order is the same in every epoch. */
    if (sampler->now.epoch != epoch && (sampler->config.shuffle || sampler->now.epoch < 0))
        turn_to(sampler, epoch);
    if (sampler->config.shuffle)
        draw_ahead(sampler);
    const int64_t number = (int64_t)(step % steps);
    const int64_t place = sampler->place ? sampler->place[number] : number;
    const int64_t first = place * sampler->config.batch;
    const int64_t left = sampler->config.count - first;
    return (struct sampler_step){
        .epoch = epoch,
        .samples = left < sampler->config.batch ? left : sampler->config.batch,
        .index = sampler->now.order + first,
    };
}
