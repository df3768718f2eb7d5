/* SPDX-License-Identifier: MIT */
/* use.c - from a run's folder to something that can be asked. */
#include "train/use.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "data/tokenize.h"
#include "train/checkpoint.h"
#include "train/folder.h"
#include "train/job.h"
#include "train/weights.h"

/* What to do with a run whose model neither goes on with a text nor translates. */
static const char *const other_uses[] = {
    [MODEL_IMAGES] = "looks at images",
    [MODEL_TEXT_CLASSES] = "tells classes of texts",
    [MODEL_MASKED_TOKEN] = "guesses hidden tokens",
    [MODEL_TABLE] = "looks at rows of tables",
};

enum status use_check_task(const struct model *model, const char *run)
{
    const enum model_task task = model->task;

    if (model->file)
        return FAIL(STATUS_USAGE,
                    "%s is a graph file, which writes no text: tutti eval %s says how well it "
                    "does",
                    model->name, run);
    if (task == MODEL_NEXT_TOKEN || task == MODEL_TRANSLATION)
        return STATUS_OK;
    return FAIL(STATUS_USAGE, "%s %s and writes no text: tutti eval %s says how well it does",
                model->name, other_uses[task], run);
}

static enum status load_vocabs(struct use *use)
{
    const int wanted = use->usable.model->task == MODEL_TRANSLATION ? 2 : 1;
    char *path;

    TRY(file_join(use->settings.out, FOLDER_VOCABULARY, &path));
    enum status status = vocab_load(path, use->vocab, &use->n_vocabs);
    if (status == STATUS_NOT_FOUND)
        status = FAIL(STATUS_NOT_FOUND, "%s is not there: the run has no vocabulary", path);
    else if (status == STATUS_OK && use->n_vocabs != wanted)
        status = FAIL(STATUS_MISMATCH, "%s has %d vocabularies, %s needs %d", path,
                      use->n_vocabs, use->usable.model->name, wanted);
    mem_free(path);
    return status;
}

static enum status load_weights(struct use *use, const struct safetensors *file,
                                const char *path)
{
    if (weights_check(use->graph, file) != STATUS_OK)
        return FAIL(STATUS_MISMATCH, "%s: %s", path, status_message());
    return infer_weights_load(use->graph, file, &use->weights);
}

static enum status load_file(struct use *use, const char *path)
{
    struct safetensors *file;

    use->step = -1;
    TRY(safetensors_open(path, &file));
    enum status status = load_weights(use, file, path);
    safetensors_close(file);
    return status;
}

static enum status load_checkpoint(struct use *use)
{
    struct checkpoint *checkpoint;
    char *folder;

    TRY(file_join(use->settings.out, "checkpoint", &folder));
    enum status status = checkpoint_load(folder, &checkpoint);
    mem_free(folder);
    if (status == STATUS_NOT_FOUND)
        return FAIL(STATUS_NOT_FOUND, "%s has no checkpoint yet", use->settings.out);
    TRY(status);
    use->step = (int64_t)checkpoint_step(checkpoint);
    status = load_weights(use, checkpoint_weights(checkpoint), checkpoint_path(checkpoint));
    checkpoint_close(checkpoint);
    return status;
}

static enum status fill(struct use *use, const char *weights)
{
    const struct model *model = use->usable.model;
    const int threads = use->settings.threads > 0 ? (int)use->settings.threads : job_cores();

    TRY(use_check_task(model, use->settings.out));
    TRY(job_model_config(&use->settings, model, &use->config));
    TRY(load_vocabs(use));
    for (int i = 0; i < use->n_vocabs; i++) {
        use->config.vocab[i] = vocab_size(use->vocab[i]);
        if (use->settings.length > 0)
            use->config.length[i] =
                (use->settings.length + SOURCE_ROUND - 1) / SOURCE_ROUND * SOURCE_ROUND;
    }
    use->config.training = false;
    TRY(model_build(model, &use->config, &use->graph));
    TRY(job_load_choices(&use->settings, &use->choices));
    TRY(weights ? load_file(use, weights) : load_checkpoint(use));
    if (threads > 1)
        TRY(pool_create(threads, &use->pool));
    use->usable.config = &use->config;
    use->usable.weights = use->weights;
    use->usable.choices = use->choices;
    use->usable.pool = use->pool;
    return STATUS_OK;
}

enum status use_open(const struct settings *settings, const struct model *model,
                     const char *weights, struct use **out)
{
    struct use *use;

    TRY(mem_alloc(1, sizeof *use, &use));
    use->settings = *settings;
    use->usable.model = model;
    enum status status = fill(use, weights);
    if (status != STATUS_OK) {
        use_close(use);
        return status;
    }
    *out = use;
    return STATUS_OK;
}

void use_close(struct use *use)
{
    if (!use)
        return;
    infer_weights_destroy(use->weights);
    kernel_choices_destroy(use->choices);
    pool_destroy(use->pool);
    graph_destroy(use->graph);
    for (int i = 0; i < use->n_vocabs; i++)
        vocab_destroy(use->vocab[i]);
    mem_free(use);
}
