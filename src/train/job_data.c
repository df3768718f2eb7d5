/* SPDX-License-Identifier: MIT */
/* job_data.c - the data that a job trains and evaluates on: images or text, as its model needs. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/scale.h"
#include "train/folder.h"
#include "train/job.h"

/* A name that nothing has is wrong usage, not a file that is missing. */
static enum status as_usage(enum status status, const char *name)
{
    if (status == STATUS_NOT_FOUND && !dataset_is_path(name) && !dataset_find(name))
        return FAIL(STATUS_USAGE, "%s", status_message());
    return status;
}

/* Images --------------------------------------------------------------------------------- */

static bool is_unit(const struct pixel_scale *scale, int channels)
{
    for (int c = 0; c < channels; c++)
        if (scale->mean[c] != 0 || scale->deviation[c] != 1)
            return false;
    return true;
}

/* Finds out the normalization: as settings say, as the run had it, or as the data have it. */
static enum status pick_scale(struct job *job, bool has_run, struct pixel_scale *out)
{
    const struct settings *s = &job->settings;
    const int channels = (int)dataset_sample(job->train_images).dim[0];
    enum status status = STATUS_OK;

    if (!*s->normalize && job->model->unit_pixels)
        *out = pixel_unit_scale;
    else if (!*s->normalize && has_run && !job->recorded.has_normalize)
        *out = recorded_old_scale(job->recorded.data, channels);
    else if (!*s->normalize)
        *out = dataset_scale(job->train_images);
    else if (strcmp(s->normalize, "dataset") == 0)
        status = dataset_measure_scale(job->train_images, out);
    else
        status = scale_parse(s->normalize, channels, out);
    if (status != STATUS_OK)
        return FAIL(status, "--normalize %s: %s", s->normalize, status_message());
    if (job->model->unit_pixels && !is_unit(out, channels))
        return FAIL(STATUS_USAGE,
                    "--normalize %s: %s takes pixels from 0 to 1: leave it out, or say scale",
                    s->normalize, job->model->name);
    return STATUS_OK;
}

/* What was picked is what config.json says. */
static enum status set_scale(struct job *job, bool has_run)
{
    struct settings *s = &job->settings;
    const int channels = (int)dataset_sample(job->train_images).dim[0];
    struct pixel_scale scale;

    if (!*s->normalize && !has_run && job->model->normalize)
        snprintf(s->normalize, sizeof s->normalize, "%s", job->model->normalize);
    TRY(pick_scale(job, has_run, &scale));
    dataset_set_scale(job->train_images, &scale);
    dataset_set_scale(job->test_images, &scale);
    scale_print(&scale, channels, s->normalize);
    return STATUS_OK;
}

/* Images of other channels are none for a run. Of another size they may be: evaluate.c. */
static enum status check_channels(const struct job *job)
{
    const struct shape *then = &job->recorded.sample;
    const struct shape now = dataset_sample(job->train_images);

    if (!then->rank || then->dim[0] == now.dim[0])
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH, "%s: images have %lld channel%s, the run's had %lld",
                job->settings.data, (long long)now.dim[0], now.dim[0] == 1 ? "" : "s",
                (long long)then->dim[0]);
}

static enum status open_images(struct job *job, bool has_run)
{
    const struct settings *s = &job->settings;
    const struct class_list *classes = &job->recorded.classes;
    enum dataset_layout layout;

    TRY(dataset_layout_parse(s->layout, &layout));
    TRY(as_usage(dataset_open_layout(s->data, DATASET_TRAIN, layout, &job->train_images),
                 s->data));
    TRY(dataset_open_layout(s->data, DATASET_TEST, layout, &job->test_images));
    TRY(check_channels(job));
    if (classes->count) {
        TRY(dataset_set_classes(job->train_images, classes));
        TRY(dataset_set_classes(job->test_images, classes));
    }
    dataset_limit(job->train_images, s->limit);
    dataset_limit(job->test_images, s->limit);
    TRY(set_scale(job, has_run));
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
        .any_classes = job->recorded.classes.count > 0,
    };

    for (int i = 0; i < TEXT_SIDES; i++)
        config.vocab[i] = job->train_text ? text_vocab(job->train_text, i) : job->vocab[i];
    return config;
}

static enum status set_text_classes(const struct job *job, struct text *text)
{
    const struct class_list *classes = &job->recorded.classes;

    if (job->model->task != MODEL_TEXT_CLASSES || !classes->count)
        return STATUS_OK;
    return text_set_classes(text, classes);
}

/* A graph file of a stream has places for blocks of its own length. */
static void take_length(struct job *job)
{
    const struct model *model = job->model;

    if (model->file && !job->settings.length &&
        (model->task == MODEL_NEXT_TOKEN || model->task == MODEL_MASKED_TOKEN))
        job->settings.length = model->length[0];
}

static enum status open_text(struct job *job, bool has_vocab)
{
    const struct settings *s = &job->settings;

    if (s->crop || s->flip || s->cutout)
        return FAIL(STATUS_USAGE, "--crop, --flip and --cutout are for images; %s reads text",
                    job->model->name);
    if (has_vocab)
        TRY(load_vocab(job));
    else
        take_length(job);
    struct text_config config = text_config_of(job);
    TRY(as_usage(text_open(s->data, TEXT_TRAIN, &config, &job->train_text), s->data));
    config = text_config_of(job);
    TRY(text_open(s->data, TEXT_VALIDATION, &config, &job->test_text));
    TRY(set_text_classes(job, job->train_text));
    TRY(set_text_classes(job, job->test_text));
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

    if (!job->unseen_text) {
        TRY(text_open(job->settings.data, TEXT_TEST, &config, &job->unseen_text));
        TRY(set_text_classes(job, job->unseen_text));
    }
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

/* So has what is about pixels, */
static enum status refuse_image_settings(const struct job *job)
{
    if (*job->settings.normalize)
        return FAIL(STATUS_USAGE, "--normalize is for images; %s reads %s", job->model->name,
                    job->model->task == MODEL_TABLE ? "tables" : "text");
    return STATUS_OK;
}

/* and what is about tokens. */
static enum status refuse_text_settings(const struct job *job)
{
    const struct settings *s = &job->settings;

    if (*s->tokenizer || s->min_count || s->vocab || s->length)
        return FAIL(STATUS_USAGE,
                    "--tokenizer, --min-count, --vocab and --length are for text; %s reads %s",
                    job->model->name, job->model->task == MODEL_IMAGES ? "images" : "tables");
    return STATUS_OK;
}

static bool has_file(const struct job *job, const char *name)
{
    char *path;

    if (file_join(job->settings.out, name, &path) != STATUS_OK)
        return false;
    const bool is_there = file_exists(path);
    mem_free(path);
    return is_there;
}

/* A run that was killed while its folder was made begins again, and makes what it has not. */
static bool has_begun(const struct job *job, const char *name)
{
    return has_file(job, name) || has_file(job, "checkpoint");
}

enum status job_open_data(struct job *job, bool has_vocab)
{
    struct settings *s = &job->settings;

    has_vocab =
        has_vocab &&
        has_begun(job, job->model->task == MODEL_TABLE ? FOLDER_TABLE : FOLDER_VOCABULARY);

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
    if (*s->layout && job->model->task != MODEL_IMAGES)
        return FAIL(STATUS_USAGE, "--layout is for images in NumPy arrays; %s reads %s",
                    job->model->name, job->model->task == MODEL_TABLE ? "tables" : "text");
    if (job->model->task != MODEL_IMAGES)
        TRY(refuse_image_settings(job));
    if (has_vocab)
        TRY(recorded_read(s->out, &job->recorded));
    else
        TRY(recorded_take(job->model, &job->recorded));
    if (job->model->task == MODEL_TABLE) {
        TRY(as_usage(job_open_table(job, has_vocab), s->data));
    } else {
        TRY(refuse_table_settings(job));
        TRY(job->model->task == MODEL_IMAGES ? open_images(job, has_vocab)
                                             : open_text(job, has_vocab));
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

/* Where samples of a second class would go. */
static const char *missing_class(const struct job *job)
{
    const char *format = job->train->info->format;

    if (job->train_images)
        format = dataset_format(job->train_images);
    if (strcmp(format, "images") == 0)
        return "a second folder beside that of the class in train/";
    if (strcmp(format, "numpy") == 0)
        return "other labels in y_train.npy";
    return job->model->task == MODEL_IMAGES ? "other labels in the label file of training"
                                            : "rows with another label";
}

static const char *class_name(const struct job *job, int class, char text[32])
{
    const char *const *names = job->train->info->class_names;

    snprintf(text, 32, "%d", class);
    return names ? names[class] : text;
}

static void count_classes(const struct source *source, int64_t *counts)
{
    for (int64_t i = 0; i < source_count(source); i++) {
        const int32_t label = source_label(source, i);
        counts[label < 0 ? 0 : label] += label >= 0;
    }
}

/* Warns of classes that only the test samples have, and of a class 0 that labels from 1 on leave
 * empty. For whole data sets. */
static void warn_of_classes(const struct job *job, const int64_t *train, const int64_t *test)
{
    const int classes = job->model_config.classes;
    int64_t samples = 0;
    int unseen = 0, first = -1;
    char text[32];

    for (int c = 0; c < classes; c++) {
        if (train[c] > 0 || test[c] == 0)
            continue;
        first = first < 0 ? c : first;
        unseen++;
        samples += test[c];
    }
    if (unseen > 0)
        log_line(
            LOG_WARNING,
            "data set %s: %d of %d classes (the first: %s) have no training sample, but %lld "
            "for testing: no model can learn them",
            job->settings.data, unseen, classes, class_name(job, first, text),
            (long long)samples);
    if (train[0] + test[0] == 0 && strcmp(class_name(job, 0, text), "0") == 0)
        log_line(LOG_WARNING,
                 "data set %s: no sample has label 0, so one of %d classes stays empty: labels "
                 "count from 0",
                 job->settings.data, classes);
}

static enum status check_counts(const struct job *job, const int64_t *train,
                                const int64_t *test)
{
    const struct settings *s = &job->settings;
    const int64_t count = source_count(job->train);
    int present = 0, last = 0;
    char text[32];

    for (int c = 0; c < job->model_config.classes; c++) {
        present += train[c] > 0;
        last = train[c] > 0 ? c : last;
    }
    if (present < 2 && !s->limit)
        return FAIL(
            STATUS_USAGE,
            "data set %s: all of its %lld training samples are of one class (%s), so there "
            "is nothing to tell apart: add %s",
            s->data, (long long)count, class_name(job, last, text), missing_class(job));
    if (present < 2 && count > 1)
        log_line(LOG_WARNING,
                 "data set %s: the first %lld training samples (--limit) are all of one class "
                 "(%s), so there is nothing to tell apart",
                 s->data, (long long)count, class_name(job, last, text));
    if (!s->limit)
        warn_of_classes(job, train, test);
    return STATUS_OK;
}

enum status job_check_classes(const struct job *job)
{
    const enum model_task task = job->model->task;
    const size_t classes = (size_t)job->model_config.classes;
    int64_t *counts; /* of training, then of test */

    if (!job->train || !job->has_labels || classes == 0 ||
        (task != MODEL_IMAGES && task != MODEL_TABLE && task != MODEL_TEXT_CLASSES))
        return STATUS_OK;
    TRY(mem_alloc(2 * classes, sizeof *counts, &counts));
    count_classes(job->train, counts);
    if (job->test)
        count_classes(job->test, counts + classes);
    const enum status status = check_counts(job, counts, counts + classes);
    mem_free(counts);
    return status;
}

size_t job_data_bytes(const struct job *job)
{
    return (job->train ? job->train->held_bytes : 0) + (job->test ? job->test->held_bytes : 0);
}

size_t job_batch_bytes(const struct job *job)
{
    enum { AHEAD = 2 }; /* loader.c's least */
    size_t row = sizeof(int64_t);

    for (int part = 0; job->train && part < SOURCE_PARTS; part++)
        row += source_row_bytes(job->train, (enum source_part)part);
    return AHEAD * (size_t)job->settings.batch * row;
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
    recorded_release(&job->recorded);
}

enum status job_save_classes(const struct job *job)
{
    const bool has_own = job->train_images || job->model->task == MODEL_TEXT_CLASSES;

    if (!has_own || !job->has_classes)
        return STATUS_OK;
    return recorded_write_classes(job->settings.out, job->train->info);
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
