/* SPDX-License-Identifier: MIT */
/* loader.h - batches made ready ahead of the step that needs them.
 *
 * Threads read ahead, each a whole batch; they wake when half of the buffers are free and
 * fill them all, so that they disturb the computing threads seldom. All memory is taken in
 * loader_create. The stream of batches is a function of the sampler's configuration and the
 * augmentation, whatever the number of threads.
 *
 * Threads: loader_next and loader_done from one thread.
 */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include "base/status.h"
#include "base/trace.h"
#include "data/sampler.h"
#include "data/source.h"

struct loader;

enum { LOADER_THREADS = 64 }; /* at most */

struct loader_config {
    const struct source *source; /* borrowed while the loader lives */
    struct sampler_config sampler;
    int64_t shards;                /* V of the whole job */
    int64_t first_shard, n_shards; /* this rank's shards, in a row */
    uint64_t first_step, end_step; /* steps [first, end) */
    struct augment augment;        /* with the sampler's seed; all zero: none */
    bool picks;          /* batches have picks in the place of x and y: the source has pixels */
    int depth;           /* batches ahead; 0 picks */
    int threads;         /* that read; 0: 1, and more while the user has to wait */
    struct trace *trace; /* each of them has a row in it; borrowed; NULL: none */
};

/* This rank's part of one step. */
struct batch {
    uint64_t step;
    int64_t epoch;
    int64_t samples;    /* of the whole step */
    int64_t first;      /* position in the step of row 0 */
    int64_t rows;       /* rows of this rank; may be 0 */
    int64_t weight;     /* labels of the whole step that count: its samples, or tokens */
    int64_t own_weight; /* those of this rank's rows */
    /* Of sequences: how long all of the step are, on every rank. */
    int64_t length[SOURCE_SEQUENCES];
    void *x;     /* rows x (H, W, C) floats, or rows x length[0] ids (int32_t) */
    int32_t *x2; /* rows x length[1] ids of a decoder; NULL if there is none */
    int32_t *y;  /* rows, or rows x length of the last sequence */
    /* Samples of this source in the place of x and y, which are NULL then: rows of them. NULL: x and y are there. */
    struct pick *picks;
    const struct source *source;
};

MUST_CHECK enum status loader_create(const struct loader_config *config, struct loader **out);
void loader_destroy(struct loader *loader); /* stops the threads; NULL is allowed */
/* How many threads read now. */
int loader_threads(struct loader *loader);
/* Bytes of all batches that are kept. */
size_t loader_bytes(const struct loader *loader);

/* The next step's batch, waiting if it is not ready. *out is borrowed until loader_done.
 * STATUS_NOT_FOUND after the last step. */
MUST_CHECK enum status loader_next(struct loader *loader, const struct batch **out);
void loader_done(struct loader *loader, const struct batch *batch);

#endif /* DATA_LOADER_H */
