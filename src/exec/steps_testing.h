/* SPDX-License-Identifier: MIT */
/* steps_testing.h - some steps of a small model in a test, and what came of them: weights, losses, an evaluation.
 *
 * Ranks are threads of this process. Models are the zoo's, on images of 8x8, and two more: "narrow", without classes, and
 * "normed", with batch norms.
 */
#ifndef EXEC_STEPS_TESTING_H
#define EXEC_STEPS_TESTING_H

#include "data/dataset.h"
#include "exec/exec.h"

enum { SIDE = 8, PIXELS = SIDE * SIDE, CLASSES = 6, STEPS_MAX = 24, RANKS_MAX = 4 };

/* What a training run depends on; ranks, threads and factors must not change its bits. */
struct setup {
    const char *model, *optimizer;
    float max_norm;
    int64_t batch, shards, bucket_bytes;
    int ranks, threads;
    int nodes;                   /* machines that the ranks are on; 0: one */
    bool leaders;                /* though all ranks could talk */
    size_t flying_bytes;         /* that machines send at once; 0: the default */
    const char *compress;        /* NULL: not */
    int64_t rows[RANKS_MAX + 1]; /* of ranks, if the last is not 0 */
    bool recompute;
    bool factors;   /* exchanged instead of gradients, where they are smaller */
    bool sync_norm; /* batch statistics of the whole step */
    int zero;       /* what is given back in between */
    bool ordered;   /* one stage of a pipeline, by its schedule */
    const struct exec_device *device; /* NULL: lanes of this processor */
    int n_steps;
    int64_t samples[STEPS_MAX]; /* of each step */
};

struct outcome {
    char hash[65];
    char state_hash[65]; /* of rank 0 */
    struct exec_result steps[STEPS_MAX];
    struct exec_result evaluation;
    int64_t confusion[CLASSES * CLASSES];
    uint64_t allocations; /* since the step that is counted from */
    int lanes;
};

struct job {
    const struct setup *setup;
    struct optim_config optim;
    struct graph *train, *eval;
    struct kernel_choices *choices;
    const struct dataset *dataset; /* NULL: no evaluation */
    int count_from;                /* allocations are counted from this step on */
    struct outcome outcomes[RANKS_MAX];
};

/* Five steps of a perceptron: whole, uneven, and with fewer samples than shards. Shards, ranks and threads are not set. */
extern const struct setup setup_usual;

/* Runs on the ranks and threads of the setup; all ranks must say the same. dataset: NULL, or what is evaluated after the
 * steps. */
struct outcome setup_run(const struct setup *setup, const struct dataset *dataset);
struct outcome setup_run_on(struct setup *setup, int ranks, int threads,
                            const struct dataset *dataset);
/* Fails the test if any bit differs. */
void outcome_check_same(const struct setup *setup, const struct outcome *a,
                        const struct outcome *b);

/* The confusion matrix of the last evaluation, which was on `dataset`: [truth * CLASSES + answer];
 * zeros if the model has not CLASSES classes. */
void count_answers(const struct exec *exec, const struct dataset *dataset,
                   int64_t confusion[CLASSES * CLASSES]);

/* For tests with a rank of their own: graphs and choices of kernels; `setup` is borrowed. */
void job_make(const struct setup *setup, struct job *job);
void job_release(struct job *job);
struct exec_config job_config(const struct job *job, struct comm *comm);
/* This rank's part of a step: samples drawn from their number, so the same for every cut. */
MUST_CHECK enum status setup_make_batch(const struct setup *setup, const struct exec *exec,
                                        int step, struct batch **made);
void setup_free_batch(struct batch *batch); /* NULL is allowed */
/* All steps of the setup, with initial parameters. */
MUST_CHECK enum status job_train(const struct job *job, struct exec *exec, struct comm *comm,
                                 struct outcome *out);
/* A rank's whole run, to job->outcomes: a comm_testing_body. arg: the job. */
MUST_CHECK enum status job_run_rank(struct comm *comm, void *arg);

#endif /* EXEC_STEPS_TESTING_H */
