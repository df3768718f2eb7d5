/* SPDX-License-Identifier: MIT */
/* split_testing.h - some steps of a small model that is split among ranks in a test, and what came of them.
 *
 * The device is the CPU, or one that computes in 16 bits by the references. Ranks are threads, or processes that compare
 * what they have with what threads had.
 */
#ifndef EXEC_SPLIT_TESTING_H
#define EXEC_SPLIT_TESTING_H

#include "data/dataset.h"
#include "exec/exec.h"
#include "pass/axes.h"

enum { SPLIT_STEPS = 20, SPLIT_SIDE = 8, SPLIT_CLASSES = 6, SPLIT_PARAMS = 256 };

struct split_setup {
    const char *model;
    struct {
        const char *name;
        double value;
    } options[4];
    struct axes axes;
    int64_t batch, shards, bucket_bytes;
    const char *optimizer; /* NULL: adam */
    float max_norm;
    double lr;   /* 0: a small one */
    float scale; /* of losses in f16, at first; 0: the usual one */
    bool sequence, recompute, dense;
    bool inward; /* filters lie as on GPUs: with the same bits */
    bool
        joined; /* as on GPUs; the CPU joins batch norms' gradients by other kernels, with other bits */
    int n_steps;
    bool same_size; /* all steps have the whole batch */
    const struct exec_device *device;
    const struct dataset *dataset; /* NULL: no evaluation */
    int lost_at;                   /* rank 1 dies in this step; 0: nobody does */
};

/* Parameters one after the other, whole and plain, as files have them. */
struct split_outcome {
    double loss[SPLIT_STEPS], correct[SPLIT_STEPS];
    uint32_t heard[SPLIT_STEPS];
    struct exec_result evaluation;
    size_t begin[SPLIT_PARAMS]; /* of each */
    float *params;
    size_t n_params;
    size_t held_bytes; /* of parameters and gradients, on rank 0 */
    int64_t skipped;   /* steps, in f16 */
};

/* Twelve steps of a model of the zoo, 24 samples each in 8 shards. What is 0 of `axes` is 1. */
struct split_setup split_of(const char *model, struct axes axes);
/* The same of a gpt of four layers, with dropout. */
struct split_setup split_gpt(struct axes axes);

/* The caller frees the outcome's parameters. */
struct split_outcome split_run(const struct split_setup *setup);
/* Processes have the parameters of `expected`; the status of all. */
MUST_CHECK enum status split_run_processes(const struct split_setup *setup,
                                           const struct split_outcome *expected);

/* Fails the test if any bit differs. */
void split_check_same(const struct split_setup *setup, const struct split_outcome *one,
                      const struct split_outcome *other);
/* What others say is heard by the first, whoever works on the same samples or others. */
void split_check_heard(const struct split_setup *setup, const struct split_outcome *out);
/* No rank gets an executor. */
void split_check_refused(const struct split_setup *setup);

#endif /* EXEC_SPLIT_TESTING_H */
