/* SPDX-License-Identifier: MIT */
/* evaluate.c - the newest checkpoint of a run on a data set. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "exec/exec.h"
#include "train/classes.h"
#include "train/job.h"
#include "train/weights.h"
#include "transport/launch.h"

struct evaluation {
    struct job *job;
    struct checkpoint *checkpoint;
    enum dataset_split split;
    struct train_result *out;
    struct train_classes *classes;
};

static enum status evaluate_body(struct transport *transport, void *arg)
{
    struct evaluation *e = arg;
    const struct settings *s = &e->job->settings;
    struct exec_config config = {
        .train = e->job->graph,
        .eval = e->job->eval_graph,
        .threads = (int)s->threads,
        .shards = s->threads,
        .seed = s->seed,
        .choices = e->job->choices,
        .optim = e->job->optim,
    };
    struct exec_result result;
    struct exec *exec = NULL;
    const struct dataset *data = e->split == DATASET_TEST ? e->job->test : e->job->train;
    const double begin = clock_seconds();

    enum status status = comm_create(transport, NULL, &config.comm);
    if (status == STATUS_OK)
        status = exec_create(&config, &exec);
    if (status == STATUS_OK)
        status = weights_load(exec, checkpoint_weights(e->checkpoint), NULL);
    if (status == STATUS_OK)
        status = exec_evaluate(exec, data, &result);
    if (status == STATUS_OK)
        status = exec_hash(exec, e->out->weights_sha256);
    if (status == STATUS_OK)
        status = classes_take(exec, data, e->classes);
    if (status == STATUS_OK) {
        const bool counts = graph_roles(e->job->eval_graph)->correct && result.samples;
        e->out->val_loss = result.loss;
        e->out->val_accuracy = counts ? result.correct / (double)result.samples : NAN;
        e->out->val_top5 = classes_top5(exec, &result);
        e->out->seconds = clock_seconds() - begin;
        e->out->steps = (int64_t)checkpoint_step(e->checkpoint);
    }
    exec_destroy(exec);
    comm_destroy(config.comm);
    return status;
}

enum status train_evaluate(struct job *job, enum dataset_split split, struct train_result *out,
                           struct train_classes *classes)
{
    struct evaluation e = { .job = job, .split = split, .out = out, .classes = classes };
    const struct launch_config config = { .size = 1 };
    char *folder;

    TRY(file_join(job->settings.out, "checkpoint", &folder));
    enum status status = checkpoint_load(folder, &e.checkpoint);
    mem_free(folder);
    if (status == STATUS_NOT_FOUND)
        return FAIL(STATUS_NOT_FOUND, "%s has no checkpoint yet", job->settings.out);
    TRY(status);
    snprintf(out->folder, sizeof out->folder, "%s", job->settings.out);
    status = launch_ranks(&config, evaluate_body, &e);
    checkpoint_close(e.checkpoint);
    return status;
}
