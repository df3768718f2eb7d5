/* SPDX-License-Identifier: MIT */
/* evaluate.c - the newest checkpoint of a run, or weights from a file, on a data set. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/exec.h"
#include "train/classes.h"
#include "train/job.h"
#include "train/on_device.h"
#include "train/outputs.h"
#include "train/score.h"
#include "train/translate.h"
#include "train/weights.h"
#include "transport/launch.h"

struct evaluation {
    struct job *job;
    const struct source *data;
    const struct safetensors *weights;
    const char *outputs_path;
    const struct text *text; /* whose pairs are translated, or NULL */
    int64_t beam;
    struct train_result *out;
    struct train_classes *classes;
};

static enum status evaluate_samples(const struct evaluation *e, struct exec *exec,
                                    struct exec_result *out)
{
    const struct value *output = graph_roles(e->job->eval_graph)->output;
    struct file_map scratch;
    void *outputs;

    if (!e->outputs_path)
        return exec_evaluate(exec, e->data, out);
    if (!output)
        return FAIL(STATUS_USAGE, "%s has a loss alone, no outputs to write",
                    e->job->model->name);
    struct shape shape = output->shape;
    if (shape.rank == 3 && source_has_sequences(e->data))
        return FAIL(
            STATUS_USAGE,
            "--outputs: what %s gives is as long as each text, which no one tensor holds",
            e->job->model->name);
    if (outputs_are_csv(e->outputs_path) && !graph_roles(e->job->eval_graph)->correct)
        return FAIL(
            STATUS_USAGE,
            "--outputs %s: %s gives no classes, which a table is of: use another ending, "
            "such as .safetensors",
            e->outputs_path, e->job->model->name);
    shape.dim[0] = source_count(e->data);
    /* Many samples of many classes are more than RAM holds. */
    TRY(file_map_scratch(e->outputs_path, (size_t)shape_count(&shape) * sizeof(float), &outputs,
                         &scratch));
    exec_keep_outputs(exec, outputs);
    enum status status = exec_evaluate(exec, e->data, out);
    if (status == STATUS_OK)
        status = outputs_write(e->outputs_path, e->data, &shape, outputs, exec_classes(exec));
    exec_keep_outputs(exec, NULL);
    file_unmap(&scratch);
    return status;
}

/* Translates the text, if the model does that, and compares. */
static enum status evaluate_translations(const struct evaluation *e, const struct exec *exec)
{
    struct bleu bleu;

    e->out->bleu = NAN;
    if (!e->text || !translator_is_for(e->job->model))
        return STATUS_OK;
    TRY(score_exec(e->job, exec, e->text, e->beam, &bleu));
    e->out->bleu = bleu_score(&bleu).score;
    e->out->bleu_signature = bleu_signature(&bleu);
    return STATUS_OK;
}

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
    struct exec_device device = { 0 };
    struct exec *exec = NULL;
    const double begin = clock_seconds();

    enum status status = comm_create(transport, NULL, &config.comm);
    if (status == STATUS_OK)
        status = on_device_open(e->job, transport, false, &device);
    config.device = on_device_of(&device);
    if (status == STATUS_OK)
        status = exec_create(&config, &exec);
    if (status == STATUS_OK)
        status = weights_load(exec, e->weights, NULL);
    if (status == STATUS_OK)
        status = evaluate_samples(e, exec, &result);
    if (status == STATUS_OK)
        status = exec_hash(exec, e->out->weights_sha256);
    if (status == STATUS_OK)
        status = classes_take(exec, e->data, e->classes);
    if (status == STATUS_OK) {
        const bool counts = graph_roles(e->job->eval_graph)->correct && result.weight;
        const bool tokens = job_predicts_tokens(e->job);
        e->out->val_loss = result.loss;
        e->out->val_accuracy = counts ? result.correct / (double)result.weight : NAN;
        e->out->val_top5 = classes_top5(exec, &result);
        e->out->val_auc = e->classes->quality.auc;
        e->out->val_calibration_error = e->classes->quality.calibration_error;
        e->out->seconds = clock_seconds() - begin;
        e->out->perplexity = tokens ? exp(result.loss) : NAN;
        e->out->tokens_per_s = tokens ? (double)result.weight / e->out->seconds : NAN;
        status = evaluate_translations(e, exec);
    }
    exec_destroy(exec);
    on_device_close(&device);
    comm_destroy(config.comm);
    return status;
}

enum { SIZES_TEXT = 2048 };

/* Are images of another size than those that the run was trained on? Models that take any size have
 * weights that fit. */
static bool has_another_size(const struct job *job, char out[SIZES_TEXT])
{
    const struct shape *then = &job->recorded.sample;

    if (!then->rank || !job->train_images)
        return false;
    const struct shape now = dataset_sample(job->train_images);
    if (then->dim[1] == now.dim[1] && then->dim[2] == now.dim[2])
        return false;
    snprintf(out, SIZES_TEXT, "%s: images are %lld x %lld, the run's were %lld x %lld",
             job->settings.data, (long long)now.dim[1], (long long)now.dim[2],
             (long long)then->dim[1], (long long)then->dim[2]);
    return true;
}

/* `weights` come from `path`, which is said if they are another model's. */
static enum status evaluate_weights(struct evaluation *e, const struct safetensors *weights,
                                    const char *path)
{
    const struct launch_config config = { .size = 1 };
    const bool fits = weights_check(e->job->graph, weights) == STATUS_OK;
    char sizes[SIZES_TEXT] = "";

    if (has_another_size(e->job, sizes) && !fits)
        return FAIL(STATUS_MISMATCH, "%s, and %s takes that size alone", sizes,
                    e->job->model->name);
    if (!fits)
        return FAIL(STATUS_MISMATCH, "%s: %s", path, status_message());
    if (*sizes)
        log_line(LOG_WARNING, "%s", sizes);
    e->weights = weights;
    return launch_ranks(&config, evaluate_body, e);
}

static enum status evaluate_file(struct evaluation *e, const char *path)
{
    struct safetensors *weights;

    TRY(safetensors_open(path, &weights));
    enum status status = evaluate_weights(e, weights, path);
    safetensors_close(weights);
    return status;
}

static enum status evaluate_checkpoint(struct evaluation *e)
{
    const char *run = e->job->settings.out;
    struct checkpoint *checkpoint;
    char *folder;

    TRY(file_join(run, "checkpoint", &folder));
    enum status status = checkpoint_load(folder, &checkpoint);
    mem_free(folder);
    if (status == STATUS_NOT_FOUND)
        return FAIL(STATUS_NOT_FOUND, "%s has no checkpoint yet", run);
    TRY(status);
    snprintf(e->out->folder, sizeof e->out->folder, "%s", run);
    e->out->steps = (int64_t)checkpoint_step(checkpoint);
    status = evaluate_weights(e, checkpoint_weights(checkpoint), checkpoint_path(checkpoint));
    checkpoint_close(checkpoint);
    return status;
}

static enum status evaluate(struct evaluation *e, const struct train_evaluation *evaluation)
{
    return evaluation->weights ? evaluate_file(e, evaluation->weights) : evaluate_checkpoint(e);
}

/* On the split of a text that training never saw. */
static enum status evaluate_test_text(struct evaluation *e,
                                      const struct train_evaluation *evaluation)
{
    TRY(job_open_test_text(e->job));
    e->text = e->job->unseen_text;
    e->data = text_as_source(e->text);
    return evaluate(e, evaluation);
}

enum status train_evaluate(struct job *job, const struct train_evaluation *evaluation,
                           struct train_result *out, struct train_classes *classes)
{
    const bool is_train = evaluation->split == DATASET_TRAIN;
    struct evaluation e = {
        .job = job,
        .data = is_train ? job->train : job->test,
        .outputs_path = evaluation->outputs,
        .text = is_train ? job->train_text : job->test_text,
        .beam = evaluation->beam > 0 ? evaluation->beam : 1,
        .out = out,
        .classes = classes,
    };

    if (e.text && !is_train && !evaluation->validation)
        return evaluate_test_text(&e, evaluation);
    return evaluate(&e, evaluation);
}
