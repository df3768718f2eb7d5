/* SPDX-License-Identifier: MIT */
/* job_data.c - the data that a job trains and evaluates on: images or text, as its model needs. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/folder.h"
#include "train/job.h"

/* A name that nothing has is wrong usage, not a file that is missing. */
static enum status as_usage(enum status status, const char *name)
{
    if (status == STATUS_NOT_FOUND && !strchr(name, '/') && !dataset_find(name))
        return FAIL(STATUS_USAGE, "%s", status_message());
    return status;
}

/* Images --------------------------------------------------------------------------------- */

static enum status open_images(struct job *job)
{
    const struct settings *s = &job->settings;

    TRY(as_usage(dataset_open(s->data, DATASET_TRAIN, &job->train_images), s->data));
    TRY(dataset_open(s->data, DATASET_TEST, &job->test_images));
    if (job->model->unit_pixels) {
        dataset_set_scale(job->train_images, &pixel_unit_scale);
        dataset_set_scale(job->test_images, &pixel_unit_scale);
    }
    dataset_limit(job->train_images, s->limit);
    dataset_limit(job->test_images, s->limit);
    job->train = dataset_as_source(job->train_images);
    job->test = dataset_as_source(job->test_images);
    job->model_config.sample = dataset_sample(job->train_images);
    job->model_config.classes = dataset_classes(job->train_images);
    return augment_check(&job->augment, &job->model_config.sample);
}

/* Text ----------------------------------------------------------------------------------- */

/* Are the vocabularies those that the run's config.json tells? */
static enum status check_vocab(const struct job *job, const char *path, int count)
{
    enum { CONFIG_MOST = 1 << 20 };
    char *config, *text = NULL;
    struct json *json = NULL;
    size_t length;

    TRY(file_join(job->settings.out, "config.json", &config));
    enum status status = file_read(config, CONFIG_MOST, &text, &length);
    if (status == STATUS_OK)
        status = json_parse(text, length, &json);
    const struct json_value *bits = json ? json_get(json_root(json), "bits") : NULL;
    const struct json_value *told = json_get(bits, "vocabulary");
    if (status == STATUS_OK && told && told->count != (size_t)count)
        status = FAIL(STATUS_MISMATCH, "%s: holds %d vocabularies, the run has %zu", path,
                      count, told->count);
    for (int i = 0; status == STATUS_OK && told && i < count; i++)
        status = vocab_check(path, job->vocab[i],
                             told->items[i].kind == JSON_STRING ? told->items[i].text : "");
    json_destroy(json);
    mem_free(text);
    mem_free(config);
    return status;
}

/* A run that goes on, or is used, has its own vocabularies. */
static enum status load_vocab(struct job *job)
{
    char *path;
    int count;

    TRY(file_join(job->settings.out, FOLDER_VOCABULARY, &path));
    enum status status = vocab_load(path, job->vocab, &count);
    if (status == STATUS_OK)
        status = check_vocab(job, path, count);
    mem_free(path);
    return status;
}

/* Lengths of the graph: those of the longest samples. */
static int64_t rounded(int64_t length)
{
    return (length + SOURCE_ROUND - 1) / SOURCE_ROUND * SOURCE_ROUND;
}

/* How the job's model reads text; by the vocabularies of the training split once that is open. */
static struct text_config text_config_of(const struct job *job)
{
    static const enum text_task tasks[] = {
        [MODEL_TEXT_CLASSES] = TEXT_CLASSES,
        [MODEL_TRANSLATION] = TEXT_PAIRS,
        [MODEL_NEXT_TOKEN] = TEXT_NEXT_TOKEN,
        [MODEL_MASKED_TOKEN] = TEXT_MASKED_TOKEN,
    };
    const struct settings *s = &job->settings;
    struct text_config config = {
        .task = tasks[job->model->task],
        .tokenizer = s->tokenizer,
        .min_count = s->min_count,
        .most = s->vocab,
        .length = { s->length, s->length },
    };

    for (int i = 0; i < TEXT_SIDES; i++)
        config.vocab[i] = job->train_text ? text_vocab(job->train_text, i) : job->vocab[i];
    return config;
}

static enum status open_text(struct job *job, bool has_vocab)
{
    const struct settings *s = &job->settings;

    if (s->crop || s->flip || s->cutout)
        return FAIL(STATUS_USAGE, "--crop, --flip and --cutout are for images; %s reads text",
                    job->model->name);
    if (has_vocab)
        TRY(load_vocab(job));
    struct text_config config = text_config_of(job);
    TRY(as_usage(text_open(s->data, TEXT_TRAIN, &config, &job->train_text), s->data));
    config = text_config_of(job);
    TRY(text_open(s->data, TEXT_VALIDATION, &config, &job->test_text));
    text_limit(job->train_text, s->limit);
    text_limit(job->test_text, s->limit);
    job->train = text_as_source(job->train_text);
    job->test = text_as_source(job->test_text);
    job->model_config.classes = text_classes(job->train_text);
    for (int i = 0; i < TEXT_SIDES; i++) {
        const struct vocab *vocab = text_vocab(job->train_text, i);
        const int64_t train = text_longest(job->train_text, i);
        const int64_t test = text_longest(job->test_text, i);
        job->model_config.vocab[i] = vocab ? vocab_size(vocab) : 0;
        job->model_config.length[i] = rounded(train > test ? train : test);
    }
    return STATUS_OK;
}

enum status job_open_test_text(struct job *job)
{
    const struct text_config config = text_config_of(job);

    if (!job->unseen_text)
        TRY(text_open(job->settings.data, TEXT_TEST, &config, &job->unseen_text));
    text_limit(job->unseen_text, job->settings.limit);
    return STATUS_OK;
}

/* What is about columns has no meaning for other data. */
static enum status refuse_table_settings(const struct job *job)
{
    const struct settings *s = &job->settings;

    if (*s->label || *s->skip_columns || *s->categories || *s->fold)
        return FAIL(STATUS_USAGE,
                    "--label, --skip-columns, --categories and --fold are for tables; %s reads "
                    "%s",
                    job->model->name, job->model->task == MODEL_IMAGES ? "images" : "text");
    return STATUS_OK;
}

/* So has what is about tokens. */
static enum status refuse_text_settings(const struct job *job)
{
    const struct settings *s = &job->settings;

    if (*s->tokenizer || s->min_count || s->vocab || s->length)
        return FAIL(STATUS_USAGE,
                    "--tokenizer, --min-count, --vocab and --length are for text; %s reads %s",
                    job->model->name, job->model->task == MODEL_IMAGES ? "images" : "tables");
    return STATUS_OK;
}

enum status job_open_data(struct job *job, bool has_vocab)
{
    struct settings *s = &job->settings;

    if (!*s->data)
        snprintf(s->data, sizeof s->data, "%s", job->model->data ? job->model->data : "");
    if (!*s->data)
        return FAIL(STATUS_USAGE, "no data set: give --data NAME or PATH (tutti data list)");
    job->augment = (struct augment){
        .crop = (int)s->crop,
        .flip = s->flip,
        .cutout = (int)s->cutout,
    };
    if (job->model->task == MODEL_TABLE || job->model->task == MODEL_IMAGES)
        TRY(refuse_text_settings(job));
    if (job->model->task == MODEL_TABLE) {
        TRY(as_usage(job_open_table(job, has_vocab), s->data));
    } else {
        TRY(refuse_table_settings(job));
        TRY(job->model->task == MODEL_IMAGES ? open_images(job) : open_text(job, has_vocab));
    }
    const int64_t count = source_count(job->train);
    if (count == 0)
        return FAIL(STATUS_USAGE, "data set %s has no training samples", s->data);
    if (job->test && source_count(job->test) == 0)
        return FAIL(STATUS_USAGE, "data set %s has no test samples", s->data);
    if (count < s->batch && s->drop_last)
        return FAIL(STATUS_USAGE, "data set %s has %lld samples, fewer than --batch %lld",
                    s->data, (long long)count, (long long)s->batch);
    return STATUS_OK;
}

void job_close_data(struct job *job)
{
    dataset_close(job->train_images);
    dataset_close(job->test_images);
    text_close(job->train_text);
    text_close(job->test_text);
    text_close(job->unseen_text);
    job_close_table(job);
    for (int i = 0; i < TEXT_SIDES; i++)
        vocab_destroy(job->vocab[i]);
}

enum status job_save_vocab(const struct job *job)
{
    const struct vocab *vocab[TEXT_SIDES];
    char *path;
    int count = 0;

    if (!job->train_text)
        return STATUS_OK;
    for (int i = 0; i < TEXT_SIDES; i++) {
        vocab[count] = text_vocab(job->train_text, i);
        count += vocab[count] != NULL;
    }
    TRY(file_join(job->settings.out, FOLDER_VOCABULARY, &path));
    const enum status status = vocab_save(path, vocab, count);
    mem_free(path);
    return status;
}
