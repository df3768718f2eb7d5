/* SPDX-License-Identifier: MIT */
/* norms.h - norms that must be known before an update: clipping, LARS, LAMB. Private to exec/.
 *
 * Called by threads that sum: lanes, and the inter-node thread.
 */
#ifndef EXEC_NORMS_H
#define EXEC_NORMS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"
#include "kernel/exact.h"
#include "kernel/update.h"

struct exec_config;
struct sums;
struct value;

/* The part of a parameter that lies in a stretch (norms.c). */
struct piece {
    int param;
    int64_t stretch;  /* of all buckets */
    size_t at, count; /* of the flat vector */
};

/* By how much gradients of a step are scaled, worked out by the first that asks. */
struct clip {
    pthread_mutex_t lock; /* before the transport's; guards all below */
    uint32_t steps;       /* since creation, that one included */
    float scale;
};

/* Sums of squares before an update; the update rule (sched/facts.h) says which are needed. */
struct norms {
    struct piece *pieces; /* in the order of the flat vector */
    int64_t count;
    int64_t *of_stretch;          /* the first piece of each; one more: the end */
    int64_t *of_param;            /* the first piece of each that is trained */
    double *of_model, *of_others; /* squares of all parameters of the model, of ranks beside */
    /* Shared memory, one number a piece: of the summed gradient, of the parameter, of LAMB's
     * directions. */
    double *gradients, *params, *moves;
    /* Likewise, norms_row_sums a bucket: of a table's rows, as each thread has summed them; if it
     * is served, each node. */
    struct exact_sum *rows;
};

/* A stretch of a bucket. */
struct stretch {
    int bucket;
    int64_t number;   /* in the bucket */
    size_t at, count; /* of the flat vector */
};
struct piece_range {
    int64_t begin, end;
};

/* Are losses scaled, as a device computes in f16? */
bool sums_scale_losses(const struct sums *sums);
/* Must the norm of all gradients be known, or that it is finite, before anything is updated? */
bool sums_need_norm(const struct sums *sums);
bool norms_are_used(const struct sums *sums);
/* Are a parameter's squares this rank's to count? Of ranks that share layers all have what is not
 * cut: the first one's count. */
bool norms_count(const struct exec_config *config, const struct value *value);
MUST_CHECK enum status norms_create(const struct sums *sums, struct norms *norms);

void norms_destroy(struct norms *norms);
/* Sums of squares of rows that there are of each bucket. */
size_t norms_row_sums(const struct sums *sums);
/* Where the arrays of squares have stretches [first, end) of bucket b. */
struct piece_range norms_pieces(const struct sums *sums, int b, int64_t first, int64_t end);

/* The first phase: keeps a stretch's summed gradient, or its direction, and the squares. */
void norms_keep(const struct sums *sums, const struct stretch *stretch, const float *sum,
                const struct kernel_update_step *numbers);
/* LAMB with clipping, between the two: makes directions of what was kept. */
void norms_direct(const struct sums *sums, const struct stretch *stretch,
                  const struct kernel_update_step *numbers);
/* When all squares of gradients are there: the norm of all together. */
MUST_CHECK enum status norms_of_all(const struct sums *sums, double *out);
/* The last trust ratio that was worked out: param -1 at first. */
struct trusted {
    int param;
    float ratio;
};
/* The last phase of what adapts: updates a stretch, each parameter with its own ratio. */
void norms_update(const struct sums *sums, const struct stretch *stretch,
                  struct trusted *trusted, const struct kernel_update_step *numbers);

#endif /* EXEC_NORMS_H */
