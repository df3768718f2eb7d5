/* SPDX-License-Identifier: MIT */
/* local.c - the ordinary trainer, for one participant at a time.
 *
 * An executor of one rank on a transport of its own, as workers that train alone have it (train/regime_local.c), with one shard: the
 * arithmetic of a step does not depend on threads. Before a round it begins again: parameters as they came, no state,
 * the round's rate and seed.
 */
#include "fed/local.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/schema.h"
#include "exec/exec.h"
#include "fed/algorithm.h"
#include "fed/dp_sgd.h"
#include "model/file.h"
#include "tensor/safetensors.h"
#include "train/job.h"
#include "train/weights.h"

struct fed_job {
    struct job *job;
    struct model_file *file; /* NULL: a model of the zoo */
    const struct fed_terms *terms;
};

enum { GRAPH_MOST = FED_GRAPH_TEXT };

/* Settings of a run that terms stand for. */
static void fill_settings(const struct fed_job_config *config, struct settings *s)
{
    const struct fed_terms *t = config->terms;
    const struct fed_algorithm *algorithm = fed_algorithm_find(t->algorithm);

    settings_init(s);
    snprintf(s->model, sizeof s->model, "%s", config->model ? config->model->name : t->model);
    snprintf(s->data, sizeof s->data, "%s", config->data ? config->data : "");
    snprintf(s->strategy, sizeof s->strategy, "single");
    snprintf(s->optimizer, sizeof s->optimizer, "%.31s", t->optimizer);
    if (config->table && config->model) { /* else the model says what columns and pixels are */
        memcpy(s->label, config->table->label, sizeof s->label);
        memcpy(s->skip_columns, config->table->skip_columns, sizeof s->skip_columns);
        memcpy(s->categories, config->table->categories, sizeof s->categories);
        memcpy(s->normalize, config->table->normalize, sizeof s->normalize);
    }
    if (config->table) {
        memcpy(s->fold, config->table->fold, sizeof s->fold);
        memcpy(s->layout, config->table->layout, sizeof s->layout);
    }
    s->limit = config->limit;
    s->ranks = s->shards = s->threads = 1;
    s->batch = t->batch > 0 ? t->batch : config->largest > 0 ? config->largest : 1;
    s->lr = t->lr;
    s->momentum = t->momentum;
    if (isnan(s->momentum) && optim_has_momentum(optim_find(t->optimizer)))
        s->momentum = 0; /* rounds have an optimizer of their own */
    s->weight_decay = t->weight_decay;
    s->seed = t->seed;
    s->anchored = algorithm->is_anchored || algorithm->n_vectors > 1;
    s->mu = algorithm->is_anchored ? t->mu : 0;
    if (fed_algorithm_asks_gradient(t) || *t->dp_sgd)
        s->factors = false, s->dense = true;
    if (*t->dp_sgd)
        s->shards = s->batch; /* one a sample */
    for (int i = 0; i < MODEL_OPTIONS; i++)
        s->options[i] = config->options ? config->options[i] : (double)NAN;
}

static enum status fill_job(struct fed_job *job, const struct fed_job_config *config)
{
    const struct model *model = config->model;
    struct settings settings;

    if (!model) {
        const char *text = config->terms->graph;
        if (!text)
            return FAIL(STATUS_USAGE, "the terms have no model");
        TRY(model_file_parse(text, strlen(text), &job->file));
        model = model_file_model(job->file);
    }
    fill_settings(config, &settings);
    TRY(job_create(&settings, model, config->data ? JOB_TRAIN : JOB_GRAPH, &job->job));
    if (config->terms->standardize &&
        config->largest == 0) /* a simulation's second is as its first */
        job_warn_of_sums(job->job);
    if (config->terms->batch > 0 || config->largest > 0 || !config->data)
        return STATUS_OK;
    settings.batch = source_count(job->job->train); /* all samples at once: now it is known */
    if (*config->terms->dp_sgd)
        settings.shards = settings.batch;
    job_destroy(job->job);
    job->job = NULL;
    return job_create(&settings, model, JOB_TRAIN, &job->job);
}

enum status fed_job_create(const struct fed_job_config *config, struct fed_job **out)
{
    struct fed_job *job;

    TRY(mem_alloc(1, sizeof *job, &job));
    job->terms = config->terms;
    const enum status status = fill_job(job, config);
    if (status != STATUS_OK) {
        fed_job_destroy(job);
        return status;
    }
    *out = job;
    return STATUS_OK;
}

void fed_job_destroy(struct fed_job *job)
{
    if (!job)
        return;
    job_destroy(job->job);
    model_file_destroy(job->file);
    mem_free(job);
}

enum status fed_job_print_graph(const struct fed_job *job, char **out)
{
    struct strbuf text;

    strbuf_init(&text, GRAPH_MOST);
    enum status status = job_print_model(job->job, &text);
    if (status == STATUS_OK)
        status = strbuf_status(&text);
    if (status == STATUS_OK)
        status = mem_strdup(text.text, out);
    strbuf_release(&text);
    return status;
}

size_t fed_job_statistics(const struct fed_job *job)
{
    const struct json_value *table = job->job->model->table;
    struct schema *schema;

    if (job->job->train || !table)
        return (size_t)job_statistics_count(job->job);
    if (schema_read(table, &schema) != STATUS_OK) /* without data the model says it */
        return 0;
    const size_t count = (size_t)schema_statistics(schema);
    schema_destroy(schema);
    return count;
}

void fed_job_standardize(const struct fed_job *job, const float *statistics)
{
    job_standardize(job->job, statistics);
}

enum status fed_part_statistics(const struct fed_job *job, const struct fed_part *part,
                                float *out)
{
    const int64_t count = job_statistics_count(job->job);
    double *sums;

    TRY(mem_alloc((size_t)count, sizeof *sums, &sums));
    job_statistics(job->job, part->index, source_count(&part->source), sums);
    for (int64_t i = 0; i < count; i++)
        out[i] = (float)sums[i];
    mem_free(sums);
    return STATUS_OK;
}

const struct source *fed_job_train(const struct fed_job *job)
{
    return job->job->train;
}

const struct source *fed_job_test(const struct fed_job *job)
{
    return job->job->test;
}

struct job *fed_job_base(const struct fed_job *job)
{
    return job->job;
}

/* Parts of a source ------------------------------------------------------------------------------ */

enum { STRETCH = 256 }; /* samples whose numbers are looked up at once */

static const struct fed_part *part_of(const struct source *source)
{
    return (const struct fed_part *)source; /* its first member */
}

static int64_t look_up(const struct fed_part *part, const int64_t *index, int64_t count,
                       int64_t out[STRETCH])
{
    const int64_t n = count < STRETCH ? count : STRETCH;

    for (int64_t i = 0; i < n; i++)
        out[i] = part->index[index[i]];
    return n;
}

static void part_extents(const struct source *source, const int64_t *index, int64_t count,
                         int64_t length[SOURCE_SEQUENCES])
{
    const struct fed_part *part = part_of(source);
    int64_t numbers[STRETCH];

    length[0] = length[1] = 0;
    for (int64_t done = 0, n; done < count; done += n) {
        int64_t here[SOURCE_SEQUENCES] = { 0 };
        n = look_up(part, index + done, count - done, numbers);
        part->whole->kind->extents(part->whole, numbers, n, here);
        for (int i = 0; i < SOURCE_SEQUENCES; i++)
            length[i] = here[i] > length[i] ? here[i] : length[i];
    }
}

static int64_t part_weight(const struct source *source, const struct source_how *how,
                           const int64_t *index, int64_t count)
{
    const struct fed_part *part = part_of(source);
    int64_t numbers[STRETCH], weight = 0;

    for (int64_t done = 0, n; done < count; done += n) {
        n = look_up(part, index + done, count - done, numbers);
        weight += source_weight(part->whole, how, numbers, n);
    }
    return weight;
}

/* Numbers of a sample's part, of 4 bytes each. */
static size_t numbers_of(const struct source *whole, enum source_part which,
                         const int64_t length[SOURCE_SEQUENCES])
{
    if (!source_has_sequences(whole))
        return whole->row_bytes[which] / 4;
    if (which == SOURCE_Y && whole->row_bytes[SOURCE_Y] <= 4)
        return 1; /* a class */
    const int sequence = which == SOURCE_X2 || (which == SOURCE_Y && length[1] > 0);
    return (size_t)length[sequence];
}

static void part_read(const struct source *source, const struct source_how *how,
                      const int64_t *index, int64_t count,
                      const int64_t length[SOURCE_SEQUENCES], void *x, int32_t *x2, int32_t *y)
{
    const struct fed_part *part = part_of(source);
    const size_t nx = numbers_of(part->whole, SOURCE_X, length);
    const size_t nx2 = numbers_of(part->whole, SOURCE_X2, length);
    const size_t ny = numbers_of(part->whole, SOURCE_Y, length);
    int64_t numbers[STRETCH];

    for (int64_t done = 0, n; done < count; done += n) {
        const size_t at = (size_t)done;
        n = look_up(part, index + done, count - done, numbers);
        source_read(part->whole, how, numbers, n, length, (char *)x + at * nx * 4,
                    x2 ? x2 + at * nx2 : NULL, y + at * ny);
    }
}

static int32_t part_label(const struct source *source, int64_t index)
{
    const struct fed_part *part = part_of(source);

    return source_label(part->whole, part->index[index]);
}

static const struct source_kind part_of_images = {
    .read = part_read,
    .label = part_label,
};
static const struct source_kind part_of_text = {
    .extents = part_extents,
    .weight = part_weight,
    .read = part_read,
    .label = part_label,
};

void fed_part_init(struct fed_part *part, const struct source *whole, const int64_t *index,
                   int64_t count)
{
    *part = (struct fed_part){ .source = *whole, .whole = whole, .index = index };
    part->source.kind = source_has_sequences(whole) ? &part_of_text : &part_of_images;
    part->source.count = count;
    part->source.key = NULL;
    part->source.by_key = NULL;
}

/* The executor ----------------------------------------------------------------------------------- */

struct fed_local {
    const struct fed_job *job;
    struct transport *transport;
    struct comm *comm;
    struct exec *exec;
    size_t length, head;
    size_t *begin; /* of each parameter in the plain vector */
    struct fed_range *averages;
    int n_averages;
    float *gradient; /* in the layout of the executor; NULL: not needed */
    /* A batch's parts, and room for those who read them. */
    int64_t capacity;
    void *x;
    int32_t *x2, *y;
    uint8_t *scratch;
    struct fed_dp_sgd dp_sgd; /* if terms say so */
};

/* Characters of a parameter's name that say which layer it belongs to. */
static size_t layer_length(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot - name) : strlen(name);
}

/* Elements of the last layer that is trained, if they are the last of the vector; else 0. */
static size_t find_head(const struct exec *exec)
{
    const int n = exec_param_count(exec);
    const char *last = exec_param(exec, n - 1)->name;
    const size_t layer = layer_length(last);
    size_t head = 0;

    for (int i = n - 1; i >= 0; i--) {
        const struct value *param = exec_param(exec, i);
        if (param->kind != VALUE_PARAM || layer_length(param->name) != layer ||
            memcmp(param->name, last, layer) != 0)
            break;
        head += (size_t)shape_count(&param->shape);
    }
    return head;
}

static enum status lay_out(struct fed_local *local)
{
    const int n = exec_param_count(local->exec);

    TRY(mem_alloc((size_t)n + 1, sizeof *local->begin, &local->begin));
    TRY(mem_alloc((size_t)n + 1, sizeof *local->averages, &local->averages));
    for (int i = 0; i < n; i++) {
        const struct value *param = exec_param(local->exec, i);
        const size_t count = (size_t)shape_count(&param->shape);
        local->begin[i] = local->length;
        if (param->kind != VALUE_PARAM)
            local->averages[local->n_averages++] = (struct fed_range){ local->length, count };
        local->length += count;
    }
    local->head = find_head(local->exec);
    local->dp_sgd.length = local->length;
    return STATUS_OK;
}

static enum status make_exec(struct fed_local *local, int threads)
{
    const struct job *job = local->job->job;
    const struct settings *s = &job->settings;

    if (*local->job->terms->dp_sgd)
        TRY(fed_dp_sgd_init(&local->dp_sgd, local->job->terms->dp_sgd));
    TRY(transport_inproc_create(1, &local->transport));
    TRY(comm_create(local->transport, NULL, &local->comm));
    const struct exec_config config = {
        .train = job->graph,
        .eval = job->eval_graph,
        .comm = local->comm,
        .threads = threads,
        .shards = s->shards,
        .batch = s->batch,
        .privacy = *local->job->terms->dp_sgd ? &local->dp_sgd.privacy : NULL,
        .seed = s->seed,
        .choices = job->choices,
        .optim = job->optim,
    };
    return exec_create(&config, &local->exec);
}

static enum status make_room(struct fed_local *local)
{
    const struct source *train = local->job->job->train;

    if (fed_algorithm_asks_gradient(local->job->terms))
        TRY(mem_alloc(exec_vector_length(local->exec), sizeof(float), &local->gradient));
    if (!train)
        return STATUS_OK;
    const size_t rows = (size_t)local->job->job->settings.batch;
    local->capacity = (int64_t)rows;
    TRY(mem_alloc(rows, train->row_bytes[SOURCE_X], &local->x));
    if (train->row_bytes[SOURCE_X2])
        TRY(mem_alloc(rows, train->row_bytes[SOURCE_X2], &local->x2));
    TRY(mem_alloc(rows, train->row_bytes[SOURCE_Y], &local->y));
    return mem_alloc(train->scratch_bytes, 1, &local->scratch);
}

enum status fed_local_create(const struct fed_job *job, int threads, struct fed_local **out)
{
    struct fed_local *local;

    TRY(mem_alloc(1, sizeof *local, &local));
    local->job = job;
    enum status status = make_exec(local, threads);
    if (status == STATUS_OK)
        status = lay_out(local);
    if (status == STATUS_OK)
        status = make_room(local);
    if (status != STATUS_OK) {
        fed_local_destroy(local);
        return status;
    }
    *out = local;
    return STATUS_OK;
}

void fed_local_destroy(struct fed_local *local)
{
    if (!local)
        return;
    exec_destroy(local->exec);
    comm_destroy(local->comm);
    if (local->transport)
        transport_inproc_destroy(&local->transport, 1);
    mem_free(local->begin);
    mem_free(local->averages);
    mem_free(local->gradient);
    mem_free(local->x);
    mem_free(local->x2);
    mem_free(local->y);
    mem_free(local->scratch);
    fed_dp_sgd_release(&local->dp_sgd);
    mem_free(local);
}

void fed_local_simulate(struct fed_local *local, uint64_t seed)
{
    fed_dp_sgd_simulate(&local->dp_sgd, seed);
}

size_t fed_local_length(const struct fed_local *local)
{
    return local->length;
}

size_t fed_local_head(const struct fed_local *local)
{
    return local->head;
}

int fed_local_averages(const struct fed_local *local, const struct fed_range **out)
{
    *out = local->averages;
    return local->n_averages;
}

static enum status set_parameters(struct fed_local *local, const float *plain)
{
    for (int i = 0; i < exec_param_count(local->exec); i++)
        exec_set(local->exec, i, -1, plain + local->begin[i]);
    return exec_publish(local->exec);
}

static enum status get_parameters(struct fed_local *local, float *plain)
{
    TRY(exec_settle(local->exec));
    for (int i = 0; i < exec_param_count(local->exec); i++)
        exec_get(local->exec, i, -1, plain + local->begin[i]);
    return STATUS_OK;
}

enum status fed_local_initial(struct fed_local *local, uint64_t seed, float *out)
{
    TRY(exec_settle(local->exec));
    exec_begin_again(local->exec, seed, 1);
    TRY(exec_init_params(local->exec));
    return get_parameters(local, out);
}

enum status fed_local_hash(struct fed_local *local, const float *parameters, char out[65])
{
    TRY(set_parameters(local, parameters));
    return exec_hash(local->exec, out);
}

enum status fed_local_save(struct fed_local *local, const float *parameters, const char *path)
{
    const int n = exec_param_count(local->exec);
    struct safetensors_entry *entries;

    TRY(mem_alloc((size_t)n, sizeof *entries, &entries));
    for (int i = 0; i < n; i++) {
        const struct value *param = exec_param(local->exec, i);
        entries[i] = (struct safetensors_entry){ .name = param->name,
                                                 .dtype = DTYPE_F32,
                                                 .shape = param->shape,
                                                 .data = parameters + local->begin[i] };
    }
    const enum status status = safetensors_write(path, entries, (size_t)n, NULL, 0, NULL);
    mem_free(entries);
    return status;
}

enum status fed_local_checkpoint(struct fed_local *local, const float *parameters,
                                 const char *folder, uint64_t rounds)
{
    const struct weights_extra extra = { .workers = 1,
                                         .graph = local->job->job->graph,
                                         .seed = local->job->terms->seed };
    struct weights_copy *copy;

    TRY(set_parameters(local, parameters));
    TRY(weights_copy_create(local->exec, extra, &copy));
    weights_copy_take(copy, local->exec);
    const enum status status = weights_copy_save(copy, folder, rounds, "{}", 1);
    weights_copy_destroy(copy);
    return status;
}

/* Training --------------------------------------------------------------------------------------- */

int64_t fed_local_steps(const struct fed_terms *terms, int64_t samples)
{
    const int64_t batch = terms->batch > 0 ? terms->batch : samples;
    const int64_t per_epoch = (samples + batch - 1) / batch;

    return terms->steps ? terms->steps : terms->epochs * per_epoch;
}

/* Once an epoch, also in one that is not finished. */
uint64_t fed_local_passes(const struct fed_terms *terms, int64_t samples)
{
    const int64_t batch = terms->batch > 0 ? terms->batch : samples;
    const int64_t per_epoch = (samples + batch - 1) / batch;

    return (uint64_t)((fed_local_steps(terms, samples) + per_epoch - 1) / per_epoch);
}

/* The numbers that a participant draws in a round, of no other. */
static uint64_t seed_of(uint64_t round, uint64_t number)
{
    const uint32_t counter[4] = { (uint32_t)number, (uint32_t)(number >> 32), 0x66656472, 0 };
    const struct rng_block block = rng_philox(round, counter);

    return (uint64_t)block.word[1] << 32 | block.word[0];
}

/* The samples of a step, read. */
static void read_batch(struct fed_local *local, const struct fed_part *part,
                       const struct sampler_step *step, uint64_t number, uint64_t seed,
                       uint64_t whole, struct batch *out)
{
    const struct source *source = &part->source;
    const struct source_how how = { .seed = seed,
                                    .epoch = step->epoch,
                                    .scratch = local->scratch };

    *out = (struct batch){ .step = number,
                           .epoch = step->epoch,
                           .samples = step->samples,
                           .rows = step->samples,
                           .x = local->x,
                           .x2 = local->x2,
                           .y = local->y };
    source_extents(source, step->index, step->samples, out->length);
    out->own_weight = source_weight(source, &how, step->index, step->samples);
    out->weight = whole ? (int64_t)whole : out->own_weight;
    source_read(source, &how, step->index, step->samples, out->length, local->x, local->x2,
                local->y);
}

static enum status run_steps(struct fed_local *local, const struct fed_part *part,
                             const struct fed_work *work, uint64_t seed,
                             struct fed_tally *tally)
{
    const struct fed_terms *terms = local->job->terms;
    const int64_t count = source_count(&part->source);
    const struct sampler_config config = {
        .count = count,
        .batch = terms->batch > 0 ? terms->batch : count,
        .seed = seed,
        .shuffle = terms->shuffle && terms->batch > 0 && terms->batch < count,
    };
    const int64_t steps = fed_local_steps(terms, count);
    struct sampler *sampler;

    if (config.batch > local->capacity && count > local->capacity)
        return FAIL(STATUS_MISMATCH, "a batch of %lld samples, the trainer has room for %lld",
                    (long long)config.batch, (long long)local->capacity);
    TRY(sampler_create(&config, &sampler));
    enum status status = STATUS_OK;
    for (int64_t k = 0; k < steps && status == STATUS_OK; k++) {
        const struct sampler_step step = sampler_step(sampler, (uint64_t)k);
        struct exec_result result;
        struct batch batch;
        read_batch(local, part, &step, (uint64_t)k, seed, work->whole, &batch);
        status = exec_step(local->exec, &batch, &result);
        if (status != STATUS_OK)
            break;
        tally->loss += result.loss * (double)batch.weight;
        tally->correct += result.correct;
        tally->seen += (double)batch.own_weight;
        tally->steps++;
    }
    sampler_destroy(sampler);
    return status;
}

/* What updates are drawn to and shifted by. */
static void set_anchor(struct fed_local *local, const float *anchor, const float *shift)
{
    float *to = exec_anchor(local->exec), *by = exec_shift(local->exec);

    if (!to)
        return;
    for (int i = 0; i < exec_param_count(local->exec); i++)
        exec_set_in(local->exec, i, to, anchor + local->begin[i]);
    if (!shift) {
        memset(by, 0, exec_vector_length(local->exec) * sizeof *by);
        return;
    }
    for (int i = 0; i < exec_param_count(local->exec); i++)
        exec_set_in(local->exec, i, by, shift + local->begin[i]);
}

static enum status take_result(struct fed_local *local, bool is_gradient, float *out)
{
    if (!is_gradient)
        return get_parameters(local, out);
    TRY(exec_settle(local->exec));
    for (int i = 0; i < exec_param_count(local->exec); i++)
        exec_get_from(local->exec, i, local->gradient, out + local->begin[i]);
    return STATUS_OK;
}

/* Numbers that are none are no update. */
static enum status check_finite(const float *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(numbers[i]))
            return FAIL(STATUS_MISMATCH,
                        "local training diverged: parameters are no numbers any more: use a "
                        "lower --lr");
    }
    return STATUS_OK;
}

enum status fed_local_train(struct fed_local *local, const struct fed_part *part,
                            uint64_t number, const struct fed_work *work, const float *shift,
                            float *out, struct fed_tally *tally)
{
    const uint64_t seed = seed_of(work->seed, number);
    const bool is_gradient = work->whole > 0;

    if (is_gradient && !local->gradient)
        return FAIL(STATUS_MISMATCH, "a gradient is asked for, which the terms do not say");
    *tally = (struct fed_tally){ .samples = (uint64_t)source_count(&part->source) };
    TRY(set_parameters(local, work->vector[0]));
    exec_begin_again(local->exec, seed, work->lr);
    fed_dp_sgd_begin(&local->dp_sgd, seed);
    set_anchor(local, work->vector[0], shift);
    exec_keep_gradient(local->exec, is_gradient ? local->gradient : NULL);
    TRY(run_steps(local, part, work, seed, tally));
    if (*local->job->terms->dp_sgd) /* what training saw has no noise */
        tally->loss = tally->correct = tally->seen = 0;
    TRY(take_result(local, is_gradient, out));
    return check_finite(out, local->length);
}

enum status fed_local_evaluate(struct fed_local *local, const struct source *source,
                               const float *parameters, struct fed_tally *tally)
{
    struct exec_result result;

    TRY(set_parameters(local, parameters));
    TRY(exec_evaluate(local->exec, source, &result));
    tally->val_loss = result.loss * (double)result.weight;
    tally->val_correct = result.correct;
    tally->val_seen = (double)result.weight;
    return STATUS_OK;
}

struct fed_local_times fed_local_times(const struct fed_local *local)
{
    const struct exec_times times = exec_times(local->exec);
    const int lanes = exec_lanes(local->exec);

    return (struct fed_local_times){ times.compute / lanes, times.evaluate / lanes };
}

/* One participant a process ----------------------------------------------------------------------- */

static enum status train_alone(void *arg, const struct fed_work *work, const float *shift,
                               float *out, struct fed_tally *tally)
{
    struct fed_alone *alone = arg;

    return fed_local_train(alone->local, &alone->part, alone->number, work, shift, out, tally);
}

enum status fed_local_initial_head(struct fed_local *local, uint64_t seed, float *out)
{
    float *all;

    TRY(mem_alloc(local->length, sizeof *all, &all));
    const enum status status = fed_local_initial(local, seed, all);
    if (status == STATUS_OK)
        memcpy(out, all + local->length - local->head, local->head * sizeof *out);
    mem_free(all);
    return status;
}

static enum status sum_rows_alone(void *arg, float *out)
{
    struct fed_alone *alone = arg;

    return fed_part_statistics(alone->local->job, &alone->part, out);
}

static enum status standardize_alone(void *arg, const float *statistics)
{
    struct fed_alone *alone = arg;

    fed_job_standardize(alone->local->job, statistics);
    return STATUS_OK;
}

static enum status initial_alone(void *arg, uint64_t seed, float *head)
{
    struct fed_alone *alone = arg;

    return fed_local_initial_head(alone->local, seed, head);
}

static enum status evaluate_alone(void *arg, const float *parameters, struct fed_tally *tally)
{
    struct fed_alone *alone = arg;
    const struct source *test = fed_job_test(alone->local->job);

    return test ? fed_local_evaluate(alone->local, test, parameters, tally) : STATUS_OK;
}

enum status fed_alone_create(const struct fed_job *job, struct fed_local *local,
                             uint64_t number, struct fed_alone **out,
                             struct fed_trainer *out_trainer)
{
    const struct source *train = fed_job_train(job);
    struct fed_alone *alone;

    TRY(mem_alloc(1, sizeof *alone, &alone));
    const enum status status =
        mem_alloc((size_t)source_count(train), sizeof *alone->index, &alone->index);
    if (status != STATUS_OK) {
        mem_free(alone);
        return status;
    }
    for (int64_t i = 0; i < source_count(train); i++)
        alone->index[i] = i;
    fed_part_init(&alone->part, train, alone->index, source_count(train));
    alone->local = local;
    alone->number = number;
    *out = alone;
    *out_trainer = (struct fed_trainer){ .arg = alone,
                                         .length = local->length,
                                         .head = local->head,
                                         .train = train_alone,
                                         .statistics = fed_job_statistics(job),
                                         .sum_rows = sum_rows_alone,
                                         .standardize = standardize_alone,
                                         .initial = initial_alone,
                                         .evaluate = evaluate_alone };
    return STATUS_OK;
}

void fed_alone_destroy(struct fed_alone *alone)
{
    if (!alone)
        return;
    mem_free(alone->index);
    mem_free(alone);
}
