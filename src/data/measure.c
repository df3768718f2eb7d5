/* SPDX-License-Identifier: MIT */
/* measure.c - a user that takes batches and does nothing with them.
 *
 * Whatever a loader does, it writes its batches: so the floor is the time that writing a constant
 * to buffers of the same size takes, by as many threads.
 */
#include "data/measure.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>

enum { FLOOR_WINDOWS = 5 };
static const double window_seconds = 0.25, floor_seconds = 0.04;

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum status run_window(struct loader *loader, double *out_samples_per_s)
{
    const double begin = clock_seconds();
    int64_t samples = 0;
    double seconds;

    do {
        const struct batch *batch;
        TRY(loader_next(loader, &batch));
        samples += batch->rows;
        loader_done(loader, batch);
        seconds = clock_seconds() - begin;
    } while (seconds < window_seconds);
    *out_samples_per_s = (double)samples / seconds;
    return STATUS_OK;
}

/* The floor ----------------------------------------------------------------------------- */

struct buffer {
    char *bytes;
    size_t size;
    int threads, value;
};

static void write_part(void *arg, int index)
{
    const struct buffer *buffer = arg;
    const size_t begin = buffer->size * (size_t)index / (size_t)buffer->threads;
    const size_t end = buffer->size * (size_t)(index + 1) / (size_t)buffer->threads;

    memset(buffer->bytes + begin, buffer->value, end - begin);
}

static double write_window(struct pool *pool, struct buffer *buffer)
{
    const double begin = clock_seconds();
    double bytes = 0, seconds;

    do {
        buffer->value++;
        pool_run(pool, write_part, buffer);
        bytes += (double)buffer->size;
        seconds = clock_seconds() - begin;
    } while (seconds < floor_seconds);
    return bytes / seconds;
}

static enum status measure_floor(size_t bytes, int threads, double *out)
{
    struct buffer buffer = { .size = bytes, .threads = threads };
    double rates[FLOOR_WINDOWS];
    struct pool *pool;

    TRY(mem_alloc(bytes, 1, &buffer.bytes));
    const enum status status = pool_create(threads, &pool);
    if (status == STATUS_OK) {
        (void)write_window(pool, &buffer); /* first touch */
        for (int i = 0; i < FLOOR_WINDOWS; i++)
            rates[i] = write_window(pool, &buffer);
        qsort(rates, FLOOR_WINDOWS, sizeof *rates, compare_doubles);
        *out = rates[FLOOR_WINDOWS / 2];
        pool_destroy(pool);
    }
    mem_free(buffer.bytes);
    return status;
}

/* All ----------------------------------------------------------------------------------- */

static enum status measure(struct loader *loader, int windows, void (*tell)(int window),
                           struct data_measurement *out)
{
    double rates[DATA_WINDOWS], warm;

    TRY(run_window(loader, &warm));
    for (int i = 0; i < windows; i++) {
        TRY(run_window(loader, &rates[i]));
        if (tell)
            tell(i);
    }
    qsort(rates, (size_t)windows, sizeof *rates, compare_doubles);
    out->samples_per_s = rates[windows / 2];
    out->samples_per_s_p10 = rates[windows / 10];
    out->samples_per_s_p90 = rates[windows - 1 - windows / 10];
    out->threads = loader_threads(loader);
    return STATUS_OK;
}

enum status data_measure(const struct loader_config *config, int windows,
                         void (*tell)(int window), struct data_measurement *out)
{
    struct loader_config endless = *config;
    struct data_measurement result = { 0 };
    struct loader *loader;

    if (windows < 1 || windows > DATA_WINDOWS)
        return FAIL(STATUS_USAGE, "%d windows: from 1 to %d", windows, DATA_WINDOWS);
    endless.first_step = 0;
    endless.end_step = UINT64_MAX;
    TRY(loader_create(&endless, &loader));
    enum status status = measure(loader, windows, tell, &result);
    const size_t bytes = loader_bytes(loader);
    loader_destroy(loader);
    if (status == STATUS_OK)
        status = measure_floor(bytes, result.threads, &result.write_bytes_per_s);
    if (status == STATUS_OK)
        *out = result;
    return status;
}
