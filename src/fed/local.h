/* SPDX-License-Identifier: MIT */
/* local.h - the ordinary trainer, for one participant at a time, in this process.
 *
 * A fed_job is what terms and data make: graph, sources, the shape of the flat vector; it is made once and not changed.
 * A fed_local is an executor on it. Of the many participants of a simulation some share one: a participant's data is a
 * list of samples, and nothing is left of one when the next comes.
 *
 * Results depend on terms, task and samples, not on threads.
 *
 * Threads: a fed_job any; a fed_local one at a time.
 */
#ifndef FED_LOCAL_H
#define FED_LOCAL_H

#include "data/source.h"
#include "fed/client.h"
#include "fed/terms.h"

struct fed_job;
struct fed_local;

struct fed_job_config {
    const struct fed_terms *terms; /* borrowed as long as the job */
    const struct model *model;     /* NULL: the one that terms->graph says */
    const double *options;         /* of `model`; NULL: its defaults */
    const struct settings
        *table;       /* how data are read: label, columns, fold, layout; NULL: as usual */
    const char *data; /* name or path; "": the model's usual; NULL: none, the shape alone */
    int64_t limit;    /* samples used of each split; 0: all */
    int64_t largest;  /* samples of one participant at most; 0: all */
};

/* Makes the model and opens the data. */
MUST_CHECK enum status fed_job_create(const struct fed_job_config *config,
                                      struct fed_job **out);
void fed_job_destroy(struct fed_job *job); /* NULL is allowed */
/* The model as text, to become the terms' graph. */
MUST_CHECK enum status fed_job_print_graph(const struct fed_job *job, char **out);

/* Of a table: how many numbers standardize it (0: it is none), and doing that, both splits. Not while others read. */
size_t fed_job_statistics(const struct fed_job *job);
void fed_job_standardize(const struct fed_job *job, const float *statistics);

const struct source *fed_job_train(const struct fed_job *job); /* NULL: no data */
const struct source *fed_job_test(const struct fed_job *job);
struct job *fed_job_base(const struct fed_job *job);

/* threads: that share each op. */
MUST_CHECK enum status fed_local_create(const struct fed_job *job, int threads,
                                        struct fed_local **out);
void fed_local_destroy(struct fed_local *local); /* NULL is allowed */
/* Noise of --dp-sgd is drawn from this seed: for simulations alone. */
void fed_local_simulate(struct fed_local *local, uint64_t seed);

/* The flat vector: its elements, those of the last layer, which come last, and stretches of it that are running averages. */
struct fed_range {
    size_t begin, count;
};
size_t fed_local_length(const struct fed_local *local);
size_t fed_local_head(const struct fed_local *local);
int fed_local_averages(const struct fed_local *local, const struct fed_range **out);
/* Parameters as the seed makes them. */
MUST_CHECK enum status fed_local_initial(struct fed_local *local, uint64_t seed, float *out);
/* The last layer of them. */
MUST_CHECK enum status fed_local_initial_head(struct fed_local *local, uint64_t seed,
                                              float *out);
/* SHA-256 of parameters under their names, as runs have it, and saving them as a checkpoint has them. */
MUST_CHECK enum status fed_local_hash(struct fed_local *local, const float *parameters,
                                      char out[65]);
MUST_CHECK enum status fed_local_save(struct fed_local *local, const float *parameters,
                                      const char *path);
/* As a run's checkpoint in `folder`, after so many rounds. */
MUST_CHECK enum status fed_local_checkpoint(struct fed_local *local, const float *parameters,
                                            const char *folder, uint64_t rounds);

/* Some samples of a source, as a source. */
struct fed_part {
    struct source source; /* what loader and evaluation see */
    const struct source *whole;
    const int64_t *index; /* borrowed */
};
void fed_part_init(struct fed_part *part, const struct source *whole, const int64_t *index,
                   int64_t count);

/* What these rows of the job's training split add to the numbers that standardize. */
MUST_CHECK enum status fed_part_statistics(const struct fed_job *job,
                                           const struct fed_part *part, float *out);

/* As struct fed_trainer has it, on these samples. `number` is the participant's, and part of its random numbers. */
MUST_CHECK enum status fed_local_train(struct fed_local *local, const struct fed_part *part,
                                       uint64_t number, const struct fed_work *work,
                                       const float *shift, float *out, struct fed_tally *tally);
MUST_CHECK enum status fed_local_evaluate(struct fed_local *local, const struct source *source,
                                          const float *parameters, struct fed_tally *tally);
/* Seconds that its executor has computed and evaluated. */
struct fed_local_times {
    double compute, evaluate;
};
struct fed_local_times fed_local_times(const struct fed_local *local);
/* Steps that training on so many samples takes. */
int64_t fed_local_steps(const struct fed_terms *terms, int64_t samples);
/* In how many of a round's steps one sample is, at most. */
uint64_t fed_local_passes(const struct fed_terms *terms, int64_t samples);

/* A trainer for a process with one participant: all samples of the job's training split, and its test split to validate
 * on. local and job outlive it. */
struct fed_alone {
    struct fed_local *local;
    struct fed_part part;
    int64_t *index;
    uint64_t number;
};
MUST_CHECK enum status fed_alone_create(const struct fed_job *job, struct fed_local *local,
                                        uint64_t number, struct fed_alone **out,
                                        struct fed_trainer *out_trainer);
void fed_alone_destroy(struct fed_alone *alone); /* NULL is allowed */

#endif /* FED_LOCAL_H */
