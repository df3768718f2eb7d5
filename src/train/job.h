/* SPDX-License-Identifier: MIT */
/* job.h - what a job is made of. Private to train/. */
#ifndef TRAIN_JOB_H
#define TRAIN_JOB_H

#include "comm/codec.h"
#include "data/dataset.h"
#include "data/sampler.h"
#include "data/tabular.h"
#include "data/text.h"
#include "exec/exec.h"
#include "kernel/kernel.h"
#include "pass/strategy.h"
#include "train/balance.h"
#include "train/parallax.h"
#include "train/rails.h"
#include "train/recorded.h"
#include "train/slow.h"
#include "train/train.h"

struct job {
    struct settings settings;
    const struct model *model;
    struct model_config model_config;
    const struct strategy *strategy;
    struct axes axes;
    struct axes_place place; /* of this rank, once it has one: graphs are for it */
    struct optim_config optim;
    struct codec_config compress; /* codec NULL: gradients go as they are */
    struct kernel_choices *choices;
    const struct source *train, *test;          /* NULL for JOB_GRAPH */
    struct dataset *train_images, *test_images; /* what they are made of, or NULL */
    struct text *train_text, *test_text, *unseen_text;
    struct tabular *train_table, *test_table;
    struct schema *schema; /* of the run that goes on, or of the model; NULL: the table's own */
    double *statistics;    /* that the tables are standardized by */
    struct vocab *vocab[TEXT_SIDES]; /* of the run that goes on, or NULL */
    struct recorded recorded;        /* likewise; empty for a new run */
    struct sampler_config sampler;
    struct augment augment;
    int64_t steps_per_epoch, total_steps;
    struct graph *graph, *eval_graph;
    struct graph *sync_graph; /* sync local: of the steps before --local-after, or NULL */
    struct balance balance;
    struct parallax parallax;
    struct slow slow;
    struct rails rails; /* known once ranks have met */
    double began;       /* clock_seconds at creation */
    bool has_classes;   /* the model tells classes apart */
    bool has_shards;    /* settings said how many shards a step has */
    bool has_labels;    /* its loss looks at them */
    char cut
        [SETTINGS_TEXT]; /* nodes that stages begin with as kernels' times have it; "": by rule */
    char chosen[400];    /* strategy auto: what was chosen, and why; else "" */
    double chosen_seconds; /* and the step's time by the forecast */
};

/* What the executor of a rank is told, as far as the job alone says it. */
struct exec_config job_exec_config(const struct job *job);

/* Opens the data that settings name, as the model needs it: sets train, test and what of the
 * model's configuration depends on them. has_vocab: with the vocabularies, normalization and
 * classes of the run in settings.out. */
MUST_CHECK enum status job_open_data(struct job *job, bool has_vocab);
/* Bytes of its data in memory, beside pages of files; ranks that a process starts share them. */
size_t job_data_bytes(const struct job *job);
/* At least, of the batches that all its ranks read ahead. */
size_t job_batch_bytes(const struct job *job);
void job_close_data(struct job *job);
/* Opens the split of a text that training never looks at, where there is one: sets unseen_text. */
MUST_CHECK enum status job_open_test_text(struct job *job);
/* Puts the names of classes into the run's folder, if it has images or texts with classes. */
MUST_CHECK enum status job_save_classes(const struct job *job);
/* Puts the vocabularies into the run's folder, if there are any. */
MUST_CHECK enum status job_save_vocab(const struct job *job);

/* The same for a table: has_table: with the schema and statistics of the run in settings.out. */
MUST_CHECK enum status job_open_table(struct job *job, bool has_table);
void job_close_table(struct job *job);
/* Puts schema and statistics into the run's folder, if it has a table. */
MUST_CHECK enum status job_save_table(const struct job *job);
/* What a graph file holds of the job's table, if it has one: JSON texts in `schema` and
 * `statistics`, which stay empty else. The statistics are those given; NULL: none are told. */
MUST_CHECK enum status job_print_table(const struct job *job, const float *given,
                                       struct strbuf *schema, struct strbuf *statistics);

/* The passes that make the graph of a step. */
const struct pass *const *job_passes(const struct job *job);
/* Makes the graphs of a job whose model is built, that of a step up to the pass `after`; "model":
 * none. NULL: all of it (job_graph.c, as what follows). */
MUST_CHECK enum status job_make_graphs(struct job *job, const char *after);
/* Makes the graph of a step again, as job->parallax is now. */
MUST_CHECK enum status job_remake_graph(struct job *job);
/* Of a grid: makes both graphs again for a rank at that place. */
MUST_CHECK enum status job_take_place(struct job *job, struct axes_place place);
/* The graph of a step as the ranks at a place have it. */
MUST_CHECK enum status job_graph_at(const struct job *job, struct axes_place place,
                                    struct graph **out);

/* The graph of a step on one rank, in so many shards; factors as pass_config has it. */
MUST_CHECK enum status job_make_graph(const struct job *job, int64_t shards, bool factors,
                                      struct graph **out);
/* The same after a strategy's passes, for the rank at a place of its axes, on such a network;
 * shards of so many samples. */
MUST_CHECK enum status job_make_step_graph(const struct job *job,
                                           const struct strategy *strategy,
                                           const struct axes *axes, struct axes_place place,
                                           const struct pass_network *network, int64_t rows,
                                           int64_t shards, struct graph **out);
/* Bytes of a payload for each byte of a gradient; 1: gradients go as they are. */
MUST_CHECK enum status job_compressed_share(const struct job *job, double *out);
/* Are gradients exchanged as factors where those are smaller? */
bool job_has_factors(const struct job *job);
/* The longest message that a stage of a pipeline sends for a shard; 0: there are none. */
size_t job_message_bytes(const struct job *job);
/* A job with other settings and the same model, made without data, as JOB_GRAPH is: to see whether
 * there is one. */
MUST_CHECK enum status job_vary(const struct job *job, const struct settings *settings,
                                struct job **out);

/* Refuses machines that the strategy is not for, and compression where nothing is sent. By every
 * rank. */
MUST_CHECK enum status job_check_nodes(const struct job *job,
                                       const struct transport *transport);

/* What settings say of the model: its options; not what its data say. */
MUST_CHECK enum status job_model_config(const struct settings *settings,
                                        const struct model *model, struct model_config *out);
/* The table of kernel choices: the one named, or the user's own, whose path is put in if there is
 * one. */
MUST_CHECK enum status job_load_choices(struct settings *settings, struct kernel_choices **out);

/* Does the model predict tokens, so that its loss is a mean over them? */
static inline bool job_predicts_tokens(const struct job *job)
{
    return job->model->task == MODEL_TRANSLATION || job->model->task == MODEL_NEXT_TOKEN ||
           job->model->task == MODEL_MASKED_TOKEN;
}

#endif /* TRAIN_JOB_H */
