/* SPDX-License-Identifier: MIT */
/* use.h - a trained run opened to be used: its model, weights and vocabularies, without its data.
 *
 * Call from a process that may start threads.
 */
#ifndef TRAIN_USE_H
#define TRAIN_USE_H

#include "data/vocab.h"
#include "train/generate.h"
#include "train/settings.h"

enum { USE_VOCABS = VOCAB_FILE_MOST };

struct use {
    struct usable usable;
    struct model_config config;
    struct settings settings;
    struct vocab *vocab[USE_VOCABS]; /* of the input; of what a translation becomes */
    int n_vocabs;
    int64_t step; /* that the checkpoint was saved after; -1: the weights are from a file */
    /* Private */
    struct graph *graph;
    struct infer_weights *weights;
    struct kernel_choices *choices;
    struct pool *pool;
};

/* STATUS_USAGE for a model that has no words to say, with what to do with the run instead. */
MUST_CHECK enum status use_check_task(const struct model *model, const char *run);
/* Opens the run in settings->out with its newest good checkpoint or, if `weights` is not NULL, with
 * those of a safetensors file. `model`: settings->model, found. */
MUST_CHECK enum status use_open(const struct settings *settings, const struct model *model,
                                const char *weights, struct use **out);
void use_close(struct use *use); /* NULL is allowed */

#endif /* TRAIN_USE_H */
