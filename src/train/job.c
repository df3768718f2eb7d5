/* SPDX-License-Identifier: MIT */
/* job.c - from settings to a job: everything that can be wrong is found here. */
#include "train/job.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "exec/exec.h"
#include "graph/op.h"
#include "model/file.h"
#include "train/forecast.h"
#include "train/on_device.h"
#include "train/served.h"
#include "train/trace_file.h"
#include "train/words.h"
#include "transport/launch.h"

enum { LARGE_PARAMETERS = 32 << 20, BASE_BATCH = 256, PIPE_FILL = 4 };

int job_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* `kind NAME is unknown`, with what it is called here, or the nearest name where one is near. */
static enum status unknown(const char *kind, const char *name, const char *here,
                           const char *const *names, const char *command)
{
    const char *near = suggest_nearest(name, names);

    if (here)
        return FAIL(STATUS_USAGE, "unknown %s %s: here it is %s", kind, name, here);
    if (near)
        return FAIL(STATUS_USAGE, "unknown %s %s: did you mean %s?", kind, name, near);
    return FAIL(STATUS_USAGE, "unknown %s %s: %s lists what there is", kind, name, command);
}

enum status job_model_config(const struct settings *settings, const struct model *model,
                             struct model_config *out)
{
    struct model_config config = model_defaults(model);

    config.label_smoothing = (float)settings->label_smoothing;
    for (int i = 0; i < MODEL_OPTIONS && model->options[i].name; i++) {
        if (!isnan(settings->options[i]))
            TRY(model_set_option(model, &config, model->options[i].name, settings->options[i]));
    }
    *out = config;
    return STATUS_OK;
}

static enum status pick_model(struct job *job, const struct model *model)
{
    const char *names[64] = { NULL };

    job->model = model ? model : model_find(job->settings.model);
    for (int i = 0; model_table[i] && i < 63; i++)
        names[i] = model_table[i]->name;
    if (!job->model)
        return unknown("model", job->settings.model,
                       words_here(WORDS_MODEL, job->settings.model), names, "tutti models");
    return job_model_config(&job->settings, job->model, &job->model_config);
}

/* What is about one sum a step has no meaning for workers that have parameters of their own. */
static enum status check_private(const struct job *job)
{
    const struct settings *s = &job->settings;
    const bool steps_alone = job->axes.sync != SYNC_STEP;
    const struct {
        bool is_refused;
        const char *flag, *why;
    } rules[] = {
        { *s->compress && axes_are_private(&job->axes), "compress",
          "gradients are not summed between machines" },
        { s->sync_batch_norm && axes_are_private(&job->axes), "sync-batch-norm",
          "workers do not wait for each other in the middle of a step" },
        { *s->balance && steps_alone, "balance",
          "workers do not wait for each other, so a slow one needs no smaller part" },
        { strcmp(s->balance, "auto") == 0 && job->axes.servers, "balance auto",
          "workers do not meet before they begin, to compare their speed: give weights" },
        { s->backup && s->replicas > 1 && s->clip > 0, "backup",
          "with --replicas and --clip: who takes over a lost server may count other pushes, "
          "and "
          "has another norm then" },
        { s->backup && !job->axes.servers, "backup",
          "only servers can go on without a rank: use --meet ps:1" },
        { s->replicas > 1 && !job->axes.servers, "replicas",
          "there are no servers: use --meet ps:2" },
        { s->spares && !job->axes.servers, "spares",
          "nobody goes on without a worker: use --sync async" },
        { s->staleness_lr && (!job->axes.servers || !steps_alone), "staleness-lr",
          "no gradient is late: use --sync async or bounded:K" },
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].is_refused)
            return FAIL(STATUS_USAGE, "--%s and strategy %s: %s", rules[i].flag,
                        job->strategy->name, rules[i].why);
    }
    if (job->axes.sync != SYNC_LOCAL &&
        (s->local_after || s->outer_lr != 1 || s->outer_momentum != 0))
        return FAIL(STATUS_USAGE,
                    "--local-after, --outer-lr and --outer-momentum belong to --sync local:H, "
                    "not to strategy %s",
                    job->strategy->name);
    return STATUS_OK;
}

/* Strategy auto begins with what it would be by default; what it is comes of that (adopt). */
static enum status check_auto(struct settings *s)
{
    if (s->ranks > 1 && strcmp(s->device, "cpu") != 0)
        return FAIL(STATUS_USAGE,
                    "--device %s and --strategy auto: forecasts are the cpu's: use mirrored",
                    s->device);
    if (*s->split || *s->sync || *s->meet)
        return FAIL(STATUS_USAGE,
                    "--strategy auto and --%s: auto chooses how work is distributed: leave "
                    "one of them out",
                    *s->split  ? "split"
                    : *s->sync ? "sync"
                               : "meet");
    *s->strategy = '\0';
    return STATUS_OK;
}

/* What a job whose ranks hold different parameters cannot do as yet, or never. */
static enum status check_grid(struct job *job)
{
    const struct settings *s = &job->settings;
    const bool is_grid = axes_are_a_grid(&job->axes);
    const struct {
        bool is_refused;
        const char *flag, *why;
    } rules[] = {
        { s->sync_batch_norm && job->axes.pp > 1, "sync-batch-norm",
          "shards go through a pipeline one behind the other, so they cannot meet" },
        { *s->balance, "balance", "ranks have layers, not a number of shards" },
        { *s->compress, "compress", "gradients of stages are summed as they are" },
        { s->backup != 0, "backup",
          "without one rank's gradients the others of its copy of the model have none" },
        { s->replicas > 1, "replicas",
          "servers have slices of every stage, and would have to be replaced in all at once" },
        { s->clip > 0 && job->axes.servers > 0, "clip",
          "servers of a stage or a slice have the norm of that part alone" },
        { s->spares != 0, "spares",
          "a rank cannot go on without the others of its copy of the model" },
    };

    if (s->sequence_parallel && job->axes.tp == 1)
        return FAIL(STATUS_USAGE, "--sequence-parallel: no layers are shared: use --strategy "
                                  "tensor, or --split with tp");
    TRY(strategy_read_pipeline(*s->pipeline ? s->pipeline : NULL, &job->axes));
    if (*s->cut && job->axes.pp == 1)
        return FAIL(STATUS_USAGE, "--cut %s: there is no pipeline: use --strategy pipeline",
                    s->cut);
    for (size_t i = 0; is_grid && i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].is_refused)
            return FAIL(STATUS_USAGE, "--%s and strategy %s: %s", rules[i].flag,
                        job->strategy->name, rules[i].why);
    }
    return STATUS_OK;
}

static enum status pick_strategy(struct job *job)
{
    struct settings *s = &job->settings;
    const char *names[64] = { NULL };

    if (*s->compress) {
        if (codec_parse(s->compress, &job->compress) != STATUS_OK)
            return FAIL(STATUS_USAGE, "--compress: %s", status_message());
        if (s->ranks == 1)
            return FAIL(STATUS_USAGE, "--compress %s: one rank sends nothing: use -n 2 or more",
                        s->compress);
        /* Within a machine nothing is sent either, unless its ranks are made to. */
        s->flat |= launch_is_on_one_machine();
    } else if (s->compress_after > 0) {
        return FAIL(STATUS_USAGE,
                    "--compress-after %lld: nothing is compressed without "
                    "--compress",
                    (long long)s->compress_after);
    }
    const char *sync = *s->sync ? s->sync : NULL, *meet = *s->meet ? s->meet : NULL;
    TRY(rails_check(s->rails));
    if (!*s->strategy)
        snprintf(s->strategy, sizeof s->strategy, "%s",
                 strategy_pick((int)s->ranks, s->flat, *s->split ? s->split : NULL, sync, meet)
                     ->name);
    job->strategy = strategy_find(s->strategy);
    for (int i = 0; strategy_table[i] && i < 63; i++)
        names[i] = strategy_table[i]->name;
    if (!job->strategy)
        return unknown("strategy", s->strategy, words_here(WORDS_STRATEGY, s->strategy), names,
                       "tutti strategies");
    TRY(strategy_check(job->strategy, (int)s->ranks, *s->split ? s->split : NULL, sync, meet,
                       &job->axes));
    TRY(check_private(job));
    TRY(check_grid(job));
    if (*s->compress && job->axes.zero > 0)
        return FAIL(STATUS_USAGE,
                    "--compress %s and zero=%d: of compressed gradients every machine updates "
                    "everything, so none holds a part",
                    s->compress, job->axes.zero);
    TRY(parallax_parse(s->tables, (int)s->ranks, &job->parallax));
    if (*s->tables && job->axes.meet != MEET_PARALLAX)
        return FAIL(STATUS_USAGE,
                    "--tables %s: strategy %s has one way for tables alone: use --strategy "
                    "parallax",
                    s->tables, job->strategy->name);
    TRY(slow_parse(s->slow, (int)s->ranks, &job->slow));
    return on_device_check(job);
}

/* Shards that exchange statistics run at the same time: each needs a lane of its own. */
static enum status check_sync_norm(const struct job *job)
{
    const struct settings *s = &job->settings;
    const int workers = job->axes.dp; /* ranks that have shards of their own */
    const int64_t threads = on_device(job) ? 1 : s->threads;
    const int lanes = exec_lanes_of(s->shards, workers, (int)threads);

    if (!s->sync_batch_norm || lanes * workers == s->shards)
        return STATUS_OK;
    return FAIL(STATUS_USAGE,
                "--sync-batch-norm needs one shard a thread: %lld shards on %lld x %lld "
                "threads: use --shards %lld",
                (long long)s->shards, (long long)workers, (long long)threads,
                (long long)(workers * threads));
}

/* Ranks of uneven speed have rows of shards that are uneven. */
static enum status pick_balance(struct job *job)
{
    const struct settings *s = &job->settings;
    struct balance *balance = &job->balance;

    TRY(balance_parse(s->balance, (int)s->ranks, balance));
    if (!balance->is_used)
        return STATUS_OK;
    if (s->sync_batch_norm)
        return FAIL(STATUS_USAGE,
                    "--balance and --sync-batch-norm: shards that meet need one thread each, "
                    "so no rank can have more");
    if (s->ranks > 1 && s->shards == s->ranks)
        return FAIL(STATUS_USAGE,
                    "--balance: with %lld shards each of %lld ranks has one: use --shards %lld",
                    (long long)s->shards, (long long)s->ranks, (long long)(8 * s->ranks));
    if (s->shards % s->threads == 0 && s->shards / s->threads >= s->ranks)
        balance->grain = s->threads;
    balance_share(balance, s->shards, (int)s->ranks);
    return STATUS_OK;
}

/* Does an op of the model look at several samples at once? */
static bool looks_across_samples(const struct graph *graph)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        if (graph_node(graph, n)->op->across_samples)
            return true;
    }
    return false;
}

/* A model so large that a gradient a thread would cost more than threads that share each op. */
static bool is_large(const struct graph *graph)
{
    return graph_param_count(graph) >= LARGE_PARAMETERS;
}

/* Every worker's shards must go through its pipeline. */
static enum status check_pipeline(const struct job *job)
{
    const struct axes *axes = &job->axes;
    const int64_t shards = job->settings.shards;

    if (axes->pp == 1)
        return STATUS_OK;
    if (axes->chunks > 1 && shards % axes->dp)
        return FAIL(STATUS_USAGE, "--shards %lld: %d pipelines with chunks need as many each",
                    (long long)shards, axes->dp);
    return pipe_check(&(struct pipe_config){ .kind = axes->pipeline,
                                             .stages = axes->pp,
                                             .chunks = axes->chunks,
                                             .shards = shards / axes->dp });
}

/* A step's samples are cut into equal shards, at least one a rank. By default a shard a thread,
 * unless shards are more than a matter of rounding: statistics of a batch are a shard's own, and
 * must not change with the number of threads. Then, and for large models, a shard a rank; on a
 * device likewise, which has threads of its own. */
static enum status pick_shards(struct job *job)
{
    struct settings *s = &job->settings;
    const int64_t workers = job->axes.dp; /* ranks that have samples of their own */

    if (!s->threads)
        s->threads = job_cores() / s->ranks > 1 ? job_cores() / s->ranks : 1;
    if (s->shards && s->accumulate)
        return FAIL(STATUS_USAGE,
                    "--accumulate %lld and --shards %lld: both say how many shards a step has; "
                    "leave one out",
                    (long long)s->accumulate, (long long)s->shards);
    if (!s->shards) {
        const bool own = looks_across_samples(job->graph) && !s->sync_batch_norm;
        const int64_t usual = s->shard_threads ? s->shard_threads : s->threads;
        /* What goes through a pipeline: enough that its stages are seldom idle. */
        int64_t threads = job->axes.pp > 1 ? PIPE_FILL * job->axes.pp
                          : own || is_large(job->graph) || on_device(job) ? 1
                                                                          : usual;
        const int64_t times = s->accumulate ? s->accumulate : 1;
        if (s->batch % workers)
            return FAIL(STATUS_USAGE, "--batch %lld is not divisible by %lld ranks",
                        (long long)s->batch, (long long)workers);
        if (s->batch % (workers * times))
            return FAIL(STATUS_USAGE,
                        "--batch %lld is not divisible by %lld ranks times --accumulate %lld",
                        (long long)s->batch, (long long)workers, (long long)times);
        while (s->batch % (workers * times * threads) ||
               (job->axes.chunks > 1 && threads % job->axes.pp && threads > 1))
            threads--;
        s->shards = workers * times * threads;
    }
    if (s->shards < workers)
        return FAIL(STATUS_USAGE, "--shards %lld: each of %lld ranks needs one at least",
                    (long long)s->shards, (long long)workers);
    if (s->batch % s->shards)
        return FAIL(STATUS_USAGE, "--batch %lld is not divisible into %lld shards",
                    (long long)s->batch, (long long)s->shards);
    TRY(check_sync_norm(job));
    TRY(check_pipeline(job));
    return pick_balance(job);
}

static float given(double setting, float otherwise)
{
    return isnan(setting) ? otherwise : (float)setting;
}

/* 0.9 for 0.9F: the short number that a person would write. */
static double as_written(float number)
{
    char text[32];
    snprintf(text, sizeof text, "%.6g", (double)number);
    return strtod(text, NULL);
}

/* What belongs to other optimizers is refused. */
static enum status check_options(const struct settings *s, const struct optim_config *o)
{
    const bool has_momentum = optim_has_momentum(o->optimizer);

    if (!has_momentum && (!isnan(s->momentum) || s->nesterov))
        return FAIL(STATUS_USAGE, "--momentum and --nesterov belong to sgd and lars, not to %s",
                    s->optimizer);
    if (has_momentum && (!isnan(s->beta1) || !isnan(s->beta2) || !isnan(s->epsilon)))
        return FAIL(STATUS_USAGE,
                    "--beta1, --beta2 and --epsilon belong to adam, adamw and lamb, not to %s",
                    s->optimizer);
    if (s->nesterov && o->attrs.momentum == 0)
        return FAIL(STATUS_USAGE, "--nesterov needs --momentum above 0");
    if (!isnan(s->trust) && o->optimizer->op != &op_lars_update)
        return FAIL(STATUS_USAGE, "--trust belongs to lars, not to %s", s->optimizer);
    if (s->adapt_all && !optim_adapts(o->optimizer))
        return FAIL(STATUS_USAGE, "--adapt-all belongs to lars and lamb, not to %s",
                    s->optimizer);
    return STATUS_OK;
}

/* By how much rates are larger than given: linear scaling (Goyal et al. 2017). */
static enum status pick_scale(struct settings *s, double *out)
{
    *out = 1;
    if (!s->scale_lr && s->base_batch)
        return FAIL(STATUS_USAGE, "--base-batch %lld: rates are scaled by --scale-lr alone",
                    (long long)s->base_batch);
    if (!s->scale_lr)
        return STATUS_OK;
    s->base_batch = s->base_batch ? s->base_batch : BASE_BATCH;
    *out = (double)s->batch / (double)s->base_batch;
    return STATUS_OK;
}

static enum status pick_schedule(struct job *job)
{
    struct settings *s = &job->settings;
    struct schedule *schedule = &job->optim.schedule;
    struct settings usual;
    double scale;

    settings_init(&usual);
    TRY(pick_scale(s, &scale));
    *schedule = (struct schedule){
        .lr = scale * s->lr,
        .start_lr = scale > 1 ? s->lr : 0, /* gradual warm-up begins where one machine would */
        .final_lr = scale * s->final_lr,
        .gamma = s->gamma,
        .every = (uint64_t)s->decay_every,
        .warmup = (uint64_t)s->warmup,
    };
    const char *here = words_here(WORDS_SCHEDULE, s->schedule);
    if (here)
        return FAIL(STATUS_USAGE, "unknown schedule %s: here it is %s", s->schedule, here);
    TRY(schedule_parse(s->schedule, &schedule->kind));
    if (schedule->kind == SCHEDULE_STEP && !s->decay_every)
        return FAIL(STATUS_USAGE, "--schedule step needs --decay-every STEPS");
    if (schedule->kind != SCHEDULE_STEP && (s->decay_every || s->gamma != usual.gamma))
        return FAIL(STATUS_USAGE,
                    "--decay-every and --gamma belong to --schedule step, not to %s",
                    s->schedule);
    if (schedule->kind != SCHEDULE_COSINE && s->final_lr != 0)
        return FAIL(STATUS_USAGE, "--final-lr belongs to --schedule cosine, not to %s",
                    s->schedule);
    return STATUS_OK;
}

static enum status pick_optimizer(struct job *job)
{
    struct settings *s = &job->settings;
    const char *names[64] = { NULL };
    struct optim_config *o = &job->optim;

    if (!*s->optimizer)
        snprintf(s->optimizer, sizeof s->optimizer, "%s",
                 job->model->optimizer ? job->model->optimizer : "sgd");
    o->optimizer = optim_find(s->optimizer);
    for (int i = 0; optim_table[i] && i < 63; i++)
        names[i] = optim_table[i]->name;
    if (!o->optimizer)
        return unknown("optimizer", s->optimizer, words_here(WORDS_OPTIMIZER, s->optimizer),
                       names, "tutti train --help");
    const struct attrs *d = &o->optimizer->defaults;
    o->attrs = *d;
    o->attrs.momentum = given(s->momentum, d->momentum);
    o->attrs.weight_decay = given(s->weight_decay, d->weight_decay);
    o->attrs.beta1 = given(s->beta1, d->beta1);
    o->attrs.beta2 = given(s->beta2, d->beta2);
    o->attrs.epsilon = given(s->epsilon, d->epsilon);
    o->attrs.trust = given(s->trust, d->trust);
    o->attrs.adapts_all = s->adapt_all;
    o->attrs.nesterov = s->nesterov;
    o->attrs.max_norm = (float)s->clip;
    TRY(check_options(s, o));
    if (optim_adapts(o->optimizer) && job->axes.tp > 1)
        return FAIL(STATUS_USAGE,
                    "--optimizer %s and strategy %s: no rank has whole parameters, whose norms "
                    "it needs: use adam or sgd",
                    s->optimizer, job->strategy->name);
    /* What was picked is what config.json says. */
    s->lr = isnan(s->lr) ? o->optimizer->default_lr : s->lr;
    s->weight_decay =
        isnan(s->weight_decay) ? as_written(o->attrs.weight_decay) : s->weight_decay;
    if (optim_has_momentum(o->optimizer) && isnan(s->momentum))
        s->momentum = as_written(o->attrs.momentum);
    if (o->optimizer->op == &op_lars_update && isnan(s->trust))
        s->trust = as_written(o->attrs.trust);
    return pick_schedule(job);
}

static enum status count_steps(struct job *job)
{
    struct settings *s = &job->settings;

    job->sampler = (struct sampler_config){
        .count = job->train ? source_count(job->train) : s->batch,
        .key = job->train ? job->train->key : NULL,
        .batch = s->batch,
        .seed = s->seed,
        .shuffle = s->shuffle,
        .drop_last = s->drop_last,
    };
    TRY(sampler_count_steps(&job->sampler, &job->steps_per_epoch));
    job->total_steps = s->steps ? s->steps : s->epochs * job->steps_per_epoch;
    job->optim.schedule.total = (uint64_t)job->total_steps;
    return STATUS_OK;
}

enum status job_load_choices(struct settings *s, struct kernel_choices **out)
{
    const char *home = getenv("HOME");
    char path[SETTINGS_TEXT];

    if (!*s->kernels && home && file_exists(train_table_path(home, s->device, path)))
        snprintf(s->kernels, sizeof s->kernels, "%s", path);
    const bool built_in = !*s->kernels || strcmp(s->kernels, "none") == 0;
    const char *file = built_in ? NULL : s->kernels;
    if (strcmp(s->device, "cpu") != 0)
        return kernel_choices_load_device(s->device, file, out);
    return s->exact ? kernel_choices_load_exact(file, out) : kernel_choices_load(file, out);
}

static enum status check_pass_name(const struct job *job, const char *after)
{
    const char *names[64] = { "model" };

    const struct pass *const *passes = job_passes(job);
    for (int i = 0; passes[i] && i < 62; i++)
        names[i + 1] = passes[i]->name;
    for (int i = 0; after && names[i]; i++) {
        if (strcmp(names[i], after) == 0)
            return STATUS_OK;
    }
    return after ? unknown("pass", after, NULL, names, "tutti strategies") : STATUS_OK;
}

/* Text that no data set gives: as large as settings say, or as the model usually has it. */
static void make_up_text(struct job *job)
{
    const struct settings *s = &job->settings;

    for (int i = 0; i < 2; i++) {
        int64_t *vocab = &job->model_config.vocab[i], *length = &job->model_config.length[i];
        *vocab = *vocab && s->vocab ? s->vocab : *vocab;
        *length = *length && s->length ? s->length : *length;
    }
}

static enum status check_trace(const struct settings *s)
{
    struct trace_window window;

    if (*s->trace_steps && !s->trace)
        return FAIL(STATUS_USAGE, "--trace-steps %s needs --trace", s->trace_steps);
    return trace_window_read(s->trace_steps, 0, 0, &window);
}

/* A cut by measured times becomes one by names. Where nothing is said and the job is to run it has
 * one of its own, which is no setting: who goes on with the run may have other stages. */
static enum status pick_cut(struct job *job, enum job_use use)
{
    if (job->axes.pp == 1)
        return STATUS_OK;
    if (strcmp(job->settings.cut, "measured") == 0)
        return forecast_cut(job, job->settings.cut);
    if (*job->settings.cut || use == JOB_GRAPH)
        return STATUS_OK;
    return forecast_balance(job, job->cut);
}

/* Made without data: as another job is, or as large as settings say. */
static void make_up_data(struct job *job, const struct job *like)
{
    if (like)
        job->model_config = like->model_config;
    else
        make_up_text(job);
}

/* Data of a run that goes on or is used: the path is absolute, and what lies there may have been
 * moved. */
static enum status open_data_again(struct job *job)
{
    const char *data = job->settings.data;
    const enum status status = job_open_data(job, true);

    if (status == STATUS_OK || !dataset_is_path(data) || file_exists(data))
        return status;
    return FAIL(status,
                "%s is not there, and the run in %s needs these data: say where they are now "
                "with --data",
                data, job->settings.out);
}

/* like: a job whose data it would have; NULL: none. */
static enum status fill_job(struct job *job, const struct model *model, enum job_use use,
                            const char *after, const struct job *like)
{
    TRY(pick_model(job, model));
    TRY(check_trace(&job->settings));
    TRY(pick_strategy(job));
    if (use != JOB_GRAPH)
        TRY(on_device_find(job));
    TRY(pick_optimizer(job));
    TRY(job_load_choices(&job->settings, &job->choices));
    if (use == JOB_GRAPH)
        make_up_data(job, like);
    else
        TRY(use == JOB_CONTINUE ? open_data_again(job) : job_open_data(job, false));
    if (use != JOB_GRAPH)
        TRY(on_device_check_data(job));
    job->model_config.batch = job->settings.batch;
    TRY(model_build(job->model, &job->model_config, &job->graph));
    job->has_labels = graph_uses(job->graph, graph_roles(job->graph)->target) > 0;
    job->has_classes = graph_roles(job->graph)->correct != NULL;
    TRY(pick_shards(job));
    TRY(pick_cut(job, use));
    TRY(count_steps(job));
    TRY(check_pass_name(job, after));
    TRY(job_make_graphs(job, after));
    return job->axes.servers && !after ? served_check(job) : STATUS_OK;
}

/* Chooses the strategy and makes what depends on it again. */
static enum status adopt(struct job *job, enum job_use use, const char *after)
{
    struct forecast_choice choice;

    if (job->settings.ranks == 1) {
        snprintf(job->chosen, sizeof job->chosen, "%s: one rank is all there is",
                 job->strategy->name);
        return STATUS_OK;
    }
    TRY(forecast_choose(job, &choice));
    job->settings = choice.settings;
    snprintf(job->chosen, sizeof job->chosen, "%s", choice.why);
    job->chosen_seconds = choice.seconds;
    graph_destroy(job->graph);
    graph_destroy(job->eval_graph);
    graph_destroy(job->sync_graph);
    job->graph = job->eval_graph = job->sync_graph = NULL;
    TRY(pick_strategy(job));
    TRY(model_build(job->model, &job->model_config, &job->graph));
    TRY(pick_shards(job));
    TRY(pick_cut(job, use));
    TRY(check_pass_name(job, after));
    return job_make_graphs(job, after);
}

static enum status create(const struct settings *settings, const struct model *model,
                          enum job_use use, const char *after, const struct job *like,
                          struct job **out)
{
    struct job *job;

    TRY(mem_alloc(1, sizeof *job, &job));
    job->began = clock_seconds();
    job->settings = *settings;
    job->has_shards = settings->shards || settings->accumulate;
    const bool is_auto = strcmp(settings->strategy, "auto") == 0;
    enum status status = is_auto ? check_auto(&job->settings) : STATUS_OK;
    if (status == STATUS_OK)
        status = fill_job(job, model, use, is_auto ? NULL : after, like);
    if (status == STATUS_OK && is_auto)
        status = adopt(job, use, after);
    if (status != STATUS_OK) {
        job_destroy(job);
        return status;
    }
    *out = job;
    return STATUS_OK;
}

enum status job_create(const struct settings *settings, const struct model *model,
                       enum job_use use, struct job **out)
{
    return create(settings, model, use, NULL, NULL, out);
}

enum status job_vary(const struct job *job, const struct settings *settings, struct job **out)
{
    return create(settings, job->model, JOB_GRAPH, NULL, job, out);
}

enum status job_create_after(const struct settings *settings, const struct model *model,
                             const char *after, struct job **out)
{
    return create(settings, model, *settings->data ? JOB_TRAIN : JOB_GRAPH, after, NULL, out);
}

bool job_has_places(const struct job *job)
{
    return axes_are_a_grid(&job->axes);
}

void job_destroy(struct job *job)
{
    if (!job)
        return;
    graph_destroy(job->graph);
    graph_destroy(job->eval_graph);
    graph_destroy(job->sync_graph);
    job_close_data(job);
    kernel_choices_destroy(job->choices);
    mem_free(job);
}

const struct settings *job_settings(const struct job *job)
{
    return &job->settings;
}

const struct model *job_model(const struct job *job)
{
    return job->model;
}

const struct graph *job_graph(const struct job *job)
{
    return job->graph;
}

enum status job_demand(const struct job *job, struct demand *out)
{
    return demand_read(job->graph, on_device_precision(job), out);
}

enum status job_print_model(const struct job *job, struct strbuf *out)
{
    return job_print_trained(job, NULL, out);
}

enum status job_print_trained(const struct job *job, const float *statistics,
                              struct strbuf *out)
{
    struct model_config config = job->model_config;
    struct strbuf schema, numbers;

    strbuf_init(&schema, MODEL_FILE_BYTES);
    strbuf_init(&numbers, MODEL_FILE_BYTES);
    enum status status = job_print_table(job, statistics, &schema, &numbers);
    config.table = schema.length ? schema.text : NULL;
    config.statistics = numbers.length ? numbers.text : NULL;
    config.class_names = job->train && job->train->info ? job->train->info->class_names : NULL;
    config.normalize = job->train_images ? job->settings.normalize : NULL;
    if (status == STATUS_OK)
        status = model_file_print(job->model, &config, out);
    strbuf_release(&schema);
    strbuf_release(&numbers);
    return status;
}

const char *job_chosen(const struct job *job)
{
    return job->chosen;
}

int64_t job_total_steps(const struct job *job)
{
    return job->total_steps;
}

enum status job_check_nodes(const struct job *job, const struct transport *transport)
{
    const struct settings *s = &job->settings;
    const int nodes = transport_nodes(transport);

    if (nodes > 1 && !s->flat && !job->strategy->many_nodes)
        return FAIL(STATUS_USAGE,
                    "strategy %s is for one machine, the ranks are on %d: use --strategy "
                    "multiworker",
                    job->strategy->name, nodes);
    if (nodes == 1 && *s->compress)
        return FAIL(STATUS_USAGE,
                    "--compress %s: all ranks are on one machine, where nothing is sent: add "
                    "--flat",
                    s->compress);
    return STATUS_OK;
}
