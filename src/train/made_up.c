/* SPDX-License-Identifier: MIT */
/* made_up.c - batches of random samples, for measurements. */
#include "train/made_up.h"

#include "base/mem.h"
#include "base/rng.h"

static enum status make_numbers(struct rng *rng, size_t count, int64_t below, int32_t **out)
{
    TRY(mem_alloc(count, sizeof **out, out));
    for (size_t i = 0; i < count; i++)
        (*out)[i] = below ? (int32_t)rng_below(rng, (uint64_t)below) : 0;
    return STATUS_OK;
}

/* Random tokens and labels. */
static enum status make_text(const struct job *job, struct rng *rng, struct batch *out)
{
    const struct model_config *config = &job->model_config;
    const bool pairs = job->model->task == MODEL_TRANSLATION;
    const bool tokens = job_predicts_tokens(job);
    const size_t rows = (size_t)out->rows;
    const size_t labels = tokens ? (size_t)config->length[pairs] : 1;
    int32_t *x = NULL;

    out->length[0] = config->length[0];
    out->length[1] = pairs ? config->length[1] : 0;
    out->weight = out->samples * (int64_t)labels;
    out->own_weight = out->rows * (int64_t)labels;
    enum status status =
        make_numbers(rng, rows * (size_t)config->length[0], config->vocab[0], &x);
    out->x = x;
    if (status == STATUS_OK && pairs)
        status = make_numbers(rng, rows * labels, config->vocab[1], &out->x2);
    if (status == STATUS_OK)
        status = make_numbers(rng, rows * labels,
                              tokens ? config->vocab[pairs] : config->classes, &out->y);
    return status;
}

enum status made_up_batch(const struct job *job, int64_t samples, int64_t first, int64_t rows,
                          struct batch *out)
{
    const size_t floats = (size_t)shape_count(&job->model_config.sample);
    struct rng rng;
    float *x = NULL;

    *out = (struct batch){
        .samples = samples, .weight = samples, .own_weight = rows, .first = first, .rows = rows
    };
    rng_init(&rng, 1, (uint64_t)first);
    if (job->model->task != MODEL_IMAGES && job->model->task != MODEL_TABLE)
        return make_text(job, &rng, out);
    TRY(mem_alloc((size_t)rows * floats, sizeof(float), &x));
    out->x = x;
    for (size_t i = 0; i < (size_t)rows * floats; i++)
        x[i] = (float)rng_normal(&rng);
    return make_numbers(&rng, (size_t)rows, job->model_config.classes, &out->y);
}

void made_up_release(struct batch *batch)
{
    mem_free(batch->x);
    mem_free(batch->x2);
    mem_free(batch->y);
    *batch = (struct batch){ 0 };
}
