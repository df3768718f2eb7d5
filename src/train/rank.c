/* SPDX-License-Identifier: MIT */
/* rank.c - a rank from start to end: its executor and loader, its steps, what is known then. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "report/number.h"
#include "train/classes.h"
#include "train/loss_scale.h"
#include "train/memory.h"
#include "train/on_device.h"
#include "train/reconstruct.h"
#include "train/regime.h"
#include "train/same.h"
#include "train/samples.h"
#include "train/served.h"
#include "train/stop.h"
#include "transport/launch.h"

enum { CHECKPOINT_SECONDS = 60 };

uint32_t rank_wishes(const struct rank *rank)
{
    const int asked = stop_asked();
    const bool is_due = rank->is_first && !rank->job->settings.checkpoint_every &&
                        clock_seconds() - rank->save.at > CHECKPOINT_SECONDS;

    return (asked ? STOP : 0) | (asked == SIGINT ? BY_HAND : 0) | (is_due ? SAVE : 0);
}

/* Executors ------------------------------------------------------------------------------ */

enum status private_comm_create(struct private_comm *out)
{
    TRY(transport_inproc_create(1, &out->transport));
    return comm_create(out->transport, NULL, &out->comm);
}

void private_comm_destroy(struct private_comm *comm)
{
    comm_destroy(comm->comm);
    if (comm->transport)
        transport_inproc_destroy(&comm->transport, 1);
}

struct exec_config rank_exec_config(const struct rank *rank)
{
    struct exec_config config = job_exec_config(rank->job);

    config.comm = rank->comm;
    config.device = on_device_of(&rank->device);
    config.trace = rank->tracing.trace;
    return config;
}

enum status rank_make_comm(struct rank *rank)
{
    TRY(comm_create(rank->transport, NULL, &rank->comm));
    TRY(grid_create(rank->job, rank->transport, &rank->grid));
    if (!rank->grid)
        TRY(parallax_measure(rank->job, rank->comm));
    TRY(balance_measure(rank->job, rank->comm));
    return rails_choose(rank->job->settings.rails, rank->job->graph, rank->comm,
                        &rank->job->rails);
}

/* Start ---------------------------------------------------------------------------------- */

/* What the run goes on from, or begins with; group by group where machines hold parts. */
static enum status load_saved(struct rank *rank)
{
    const struct run *run = rank->run;
    const struct safetensors *weights =
        run->checkpoint ? checkpoint_weights(run->checkpoint) : run->init;
    const struct safetensors *optimizer =
        run->checkpoint ? checkpoint_optimizer(run->checkpoint) : NULL;

    const bool leads = rank->grid && grid_place(rank->grid).dp == 0;
    if (optimizer && !weights_have_state(rank->exec, optimizer)) {
        optimizer = NULL;
        if (rank->is_first)
            log_line(LOG_WARNING, "%s has no state of %s, which begins with none",
                     checkpoint_path(run->checkpoint), rank->job->settings.optimizer);
    }
    const bool loads = rank->is_first || rank->regime->is_private || leads;

    if (!rank_streams(rank)) {
        if (loads)
            TRY(weights_load(rank->exec, weights, optimizer));
        return exec_publish(rank->exec);
    }
    TRY(exec_settle(rank->exec));
    for (int g = 0; g < exec_group_count(rank->exec); g++) {
        if (loads)
            TRY(weights_load_group(rank->exec, weights, optimizer, g));
        TRY(exec_publish_group(rank->exec, g));
    }
    return exec_settle(rank->exec);
}

static enum status load_params(struct rank *rank)
{
    const struct run *run = rank->run;

    TRY(run->checkpoint || run->init ? load_saved(rank) : exec_init_params(rank->exec));
    if (run->checkpoint)
        TRY(loss_scale_read(rank->exec, checkpoint_state(run->checkpoint)));
    return rank->regime->begin ? rank->regime->begin(rank) : STATUS_OK;
}

/* Which kernel runs what, for who wants to know (TUTTI_LOG=debug). */
static void tell_plan(struct rank *rank)
{
    struct strbuf plan;

    strbuf_init(&plan, 1 << 20);
    const struct settings *s = &rank->job->settings;
    if (exec_print_plan(rank->exec, s->batch / s->shards, &plan) == STATUS_OK) {
        for (char *rest = plan.text, *line; (line = strsep(&rest, "\n")) && *line;)
            log_line(LOG_DEBUG, "%s", line);
    }
    strbuf_release(&plan);
}

static enum status start_trace(struct rank *rank)
{
    const struct settings *s = &rank->job->settings;

    if (!s->trace)
        return STATUS_OK;
    TRY(trace_window_read(s->trace_steps, rank->run->first_step,
                          (uint64_t)rank->job->total_steps, &rank->tracing.window));
    TRY(trace_create(&rank->tracing.trace));
    return trace_add_row(rank->tracing.trace, "loop", 0, &rank->tracing.row);
}

/* A trace that cannot be written is no reason to lose a run's results; a lost rank is. */
static enum status write_trace(struct rank *rank)
{
    char *path;

    if (!rank->tracing.trace)
        return STATUS_OK;
    TRY(file_join(rank->job->settings.out, FOLDER_TRACE, &path));
    enum status status = trace_file_write(rank->tracing.trace, rank->transport, path);
    mem_free(path);
    if (status == STATUS_OK || status == STATUS_PEER_LOST)
        return status;
    log_line(LOG_WARNING, "no trace: %s", status_message());
    return STATUS_OK;
}

/* What all ranks, servers too, have to agree on before anything else. */
static enum status check_job(struct rank *rank)
{
    int world_rank, world_size;

    TRY(job_check_nodes(rank->job, rank->transport));
    if (!launch_world(&world_rank, &world_size))
        return STATUS_OK;
    /* Not forked: each has files of its own. */
    return same_check(rank->job, rank->run->first_step, rank->transport);
}

static enum status start_rank(struct rank *rank)
{
    struct job *job = rank->job;
    const struct settings *s = &job->settings;
    struct loader_config loader = {
        .source = job->train,
        .sampler = job->sampler,
        .augment = job->augment,
        .threads = (int)s->loader_threads,
        .shards = s->shards,
        .end_step = (uint64_t)job->total_steps,
    };

    TRY(check_job(rank));
    TRY(start_trace(rank));
    loader.trace = rank->tracing.trace;
    TRY(on_device_open(job, rank->transport, false, &rank->device));
    TRY(rank->regime->create(rank));
    TRY(load_params(rank));
    if (rank->role.is_unneeded)
        return STATUS_OK;
    loader.first_step = rank->begins;
    loader.first_shard = exec_first_shard(rank->exec);
    loader.n_shards = exec_shard_count(rank->exec);
    TRY(on_device_keep(job, &rank->device, rank->exec, &rank->kept_bytes));
    loader.picks = rank->kept_bytes > 0;
    TRY(loader_create(&loader, &rank->loader));
    if (rank->is_first)
        tell_plan(rank);
    return rank_make_copy(rank);
}

/* Rank 0 writes what is known at the end. */
static enum status finish(struct rank *rank, struct rank_times *times, const char *timeline)
{
    struct shared *shared = rank->run->shared;
    struct train_result *r = &rank->result;
    const struct settings *s = &rank->job->settings;

    r->steps = (int64_t)rank->step;
    r->seconds = rank_seconds(rank);
    const struct run *run = rank->run;
    const double seconds = clock_seconds() - rank->began;
    const bool steps = rank->counts.samples > run->samples_before;
    r->samples_per_s = steps ? (double)(rank->counts.samples - run->samples_before) / seconds
                       : run->seconds_before > 0
                           ? (double)run->samples_before / run->seconds_before
                           : NAN; /* of the sessions that trained */
    r->tokens_per_s =
        job_predicts_tokens(rank->job) && steps ? (double)rank->counts.tokens / seconds : NAN;
    snprintf(r->folder, sizeof r->folder, "%s", s->out);
    parallax_print(rank->job, r->tables, sizeof r->tables);
    for (int i = 0; i < s->ranks; i++) {
        if (times[i].peak_bytes > r->peak_bytes)
            r->peak_bytes = times[i].peak_bytes;
        if (times[i].training_bytes > r->training_bytes)
            r->training_bytes = times[i].training_bytes;
        if (times[i].predicted_bytes > r->predicted_bytes)
            r->predicted_bytes = times[i].predicted_bytes;
        if (!rank->watch)
            continue;
        const struct watch_rank watched = watch_rank(rank->watch, i);
        times[i].wire = watched.wire;
        times[i].hidden = watched.hidden;
        times[i].made_wait = watched.made_wait;
        times[i].bytes = watched.bytes;
    }
    shared->result = *r;
    if (!rank->grid) /* no rank has all layers */
        TRY(write_reconstructions(rank->job, rank->exec));
    struct train_classes classes;
    TRY(classes_take(rank->exec, rank->job->test, &classes));
    struct strbuf more;
    strbuf_init(&more, 1 << 20);
    if (rank->regime->print_summary)
        rank->regime->print_summary(rank, &more);
    strbuf_add(&more, timeline);
    enum status status = strbuf_status(&more);
    if (status == STATUS_OK)
        status = folder_write_summary(rank->job, shared->stopped ? "stopped" : "done", r,
                                      &classes, rank->counts.samples, times, more.text);
    strbuf_release(&more);
    train_classes_release(&classes);
    return status;
}

static enum status gather_times(struct rank *rank, struct rank_times *own,
                                struct rank_times *all)
{
    if (rank->regime->gather_times)
        return rank->regime->gather_times(rank, own, all);
    return comm_all_gather(rank->comm, own, all, sizeof *own / sizeof(int64_t), DTYPE_I64);
}

enum status rank_hash_copies(struct rank *rank, bool has_copy, char out[65])
{
    enum { HASH = 64 };
    const int size = comm_size(rank->comm);
    char *all;

    if (has_copy || exec_is_in_parts(rank->exec))
        TRY(exec_hash(rank->exec, out));
    TRY(mem_alloc((size_t)size, HASH, &all));
    enum status status =
        comm_all_gather(rank->comm, out, all, HASH / sizeof(int64_t), DTYPE_I64);
    for (int r = 0; r < size && status == STATUS_OK; r++) {
        const char *theirs = all + (size_t)r * HASH;
        if (*theirs && memcmp(theirs, all, HASH) != 0)
            status = FAIL(STATUS_MISMATCH,
                          "rank %d has other weights (%.16s) than rank 0 (%.16s) at the end", r,
                          theirs, all);
    }
    mem_free(all);
    return status;
}

/* Seconds of this rank. */
static struct rank_times times_of(const struct rank *rank, const struct memory_mark *memory,
                                  int64_t predicted_bytes)
{
    const struct exec_times times = rank_times(rank);
    const int lanes = exec_lanes(rank->exec);

    return (struct rank_times){
        .compute = times.compute / lanes,
        .comm = times.comm / lanes,
        .wait = times.wait / lanes,
        .load = rank->load,
        .evaluate = times.evaluate / lanes,
        .bubble = times.bubble / lanes,
        .total = clock_seconds() - rank->began,
        .peak_bytes = memory_peak(),
        .training_bytes = memory_grown(memory),
        .predicted_bytes = predicted_bytes,
    };
}

/* Servers write no trace before all workers have left. */
static enum status leave_servers(struct rank *rank)
{
    rank->regime->leave(rank);
    return write_trace(rank);
}

static const char *plural(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* "60,000 samples, 10 classes"; of text also how many tokens its vocabulary has. */
static void add_data(const struct job *job, struct strbuf *out)
{
    const struct model_config *config = &job->model_config;
    const int64_t samples = source_count(job->train);
    char count[NUMBER_TEXT];

    number_whole(count, (double)samples);
    strbuf_printf(out, "%s sample%s", count, plural(samples));
    if (config->vocab[0] > 0) {
        number_whole(count, (double)config->vocab[0]);
        strbuf_printf(out, ", vocabulary %s", count);
    }
    if (graph_roles(job->eval_graph)->correct && config->classes > 0) {
        number_whole(count, (double)config->classes);
        strbuf_printf(out, ", %s class%s", count, config->classes == 1 ? "" : "es");
    }
}

/* The run in one line: model, data, distribution, steps. */
static void tell_job(struct rank *rank)
{
    const struct job *job = rank->job;
    const struct settings *s = &job->settings;
    char count[NUMBER_TEXT];
    struct strbuf text;

    strbuf_init(&text, 1 << 16);
    number_whole(count, (double)graph_param_count(job->graph));
    strbuf_printf(&text, "%s (%s parameters) on %s (", s->model, count, s->data);
    add_data(job, &text);
    strbuf_printf(&text, "): %s, %lld rank%s x %lld thread%s", s->strategy, (long long)s->ranks,
                  plural(s->ranks), (long long)s->threads, plural(s->threads));
    if (strcmp(s->device, "cpu") != 0)
        strbuf_printf(&text, " on %s", s->device);
    strbuf_printf(&text, ", %lld shard%s, batch %lld, ", (long long)s->shards,
                  plural(s->shards), (long long)s->batch);
    if ((int64_t)rank->run->first_step >= job->total_steps)
        strbuf_printf(&text, "all %lld steps are done", (long long)job->total_steps);
    else if (rank->run->first_step > 0)
        strbuf_printf(&text, "steps %llu to %lld",
                      (unsigned long long)rank->run->first_step + 1,
                      (long long)job->total_steps);
    else
        strbuf_printf(&text, "%lld step%s", (long long)job->total_steps,
                      plural(job->total_steps));
    if (strbuf_status(&text) == STATUS_OK) /* else the run has other cares */
        progress_note(&rank->progress, text.text);
    strbuf_release(&text);
}

/* What is where, before the first step. */
static void tell_start(struct rank *rank)
{
    char text[MEMORY_TEXT];

    tell_job(rank);
    progress_note(&rank->progress, memory_print(rank->exec, rank->job->axes.zero, text));
    if (rank->kept_bytes) {
        (void)snprintf(text, sizeof text, "data lies on device %s: %.3g MB of images a rank",
                       rank->job->settings.device, (double)rank->kept_bytes * 1e-6);
        progress_note(&rank->progress, text);
    }
}

static enum status run_rank(struct rank *rank)
{
    struct progress_config progress = {
        .counts_tokens = job_predicts_tokens(rank->job),
        .total = (uint64_t)rank->job->total_steps,
        .start = rank->run->first_step,
        .epochs = (double)rank->job->total_steps / (double)rank->job->steps_per_epoch,
    };

    struct memory_mark memory;

    memory_begin(&memory);
    TRY(start_rank(rank));
    if (rank->role.is_unneeded) {
        TRY(gather_times(rank, NULL, NULL));
        return leave_servers(rank);
    }
    const int64_t predicted_bytes = memory_predict(
        rank->exec, (struct memory_use){ .is_first = rank->is_first,
                                         .streams = rank_streams(rank),
                                         .speaks = samples_are_made(rank->job) });
    rank->began = rank->save.at = rank->line.watched_at = clock_seconds();
    const bool shows = rank->is_first && rank->run->hooks->progress;
    if (shows) {
        progress_begin(&rank->progress, &progress);
        tell_start(rank);
    }
    enum status status = rank_run_steps(rank);
    if (shows)
        progress_end(&rank->progress);
    TRY(status);

    struct rank_times own = times_of(rank, &memory, predicted_bytes);
    TRY(rank->regime->hash(rank, rank->result.weights_sha256));
    if (!rank->regime->leave)
        TRY(write_trace(rank));
    if (rank->regime->collect_times)
        TRY(rank->regime->collect_times(rank));
    struct rank_times *all;
    TRY(mem_alloc((size_t)rank->job->settings.ranks, sizeof *all, &all));
    status = gather_times(rank, &own, all);
    if (status == STATUS_OK && reconstructions_are_made(rank->job) && !rank->grid)
        status = exec_make_whole(rank->exec); /* rank 0 looks at outputs */
    struct strbuf timeline;
    strbuf_init(&timeline, 1 << 20);
    if (status == STATUS_OK)
        status = grid_print_timeline(rank->grid, rank->exec, &timeline);
    if (status == STATUS_OK && rank->is_first)
        status = finish(rank, all, timeline.text);
    if (status == STATUS_OK && rank->device.face && rank->job->axes.zero == 3 &&
        reconstructions_are_made(rank->job) && !rank->grid)
        status = exec_settle(rank->exec); /* rank 0 has read what others hold */
    strbuf_release(&timeline);
    mem_free(all);
    return status != STATUS_OK || !rank->regime->leave ? status : leave_servers(rank);
}

/* A server has nothing but what ps/ makes. */
static enum status run_server(struct rank *rank)
{
    const struct rank_tracing *tracing = &rank->tracing;

    TRY(check_job(rank));
    TRY(start_trace(rank));
    const struct ps_trace trace = { tracing->trace, tracing->window.begin,
                                    tracing->window.end };
    transport_note(rank->transport, rank->run->first_step, "serving parameters");
    TRY(served_serve(rank->job, rank->transport, &trace, rank->run->first_step));
    return write_trace(rank);
}

enum status rank_body(struct transport *transport, void *arg)
{
    struct run *run = arg;
    struct stop_before before;
    struct rank rank = {
        .run = run,
        .job = run->job,
        .transport = transport,
        .regime = regime_at(run->job, run->first_step),
        .is_first = transport_rank(transport) == 0,
        .role = { .leads = true, .evaluates = true },
        .save = { .is_allowed = true },
        .begins = run->first_step,
        .counts = { .samples = run->samples_before },
        .epoch = run->epoch,
        .result = { .train_loss = NAN,
                    .train_accuracy = NAN,
                    .val_loss = NAN,
                    .val_accuracy = NAN,
                    .val_top5 = NAN,
                    .val_auc = NAN,
                    .val_calibration_error = NAN,
                    .perplexity = NAN,
                    .first_step_s = NAN },
    };

    stop_begin(&before);
    if (getpid() != run->pid)
        stop_say(NULL); /* the supervisor does */
    enum status status = rank.regime->join ? rank.regime->join(&rank) : STATUS_OK;
    if (status == STATUS_OK)
        status = rank.role.is_server ? run_server(&rank) : run_rank(&rank);
    stop_end(&before);
    weights_copy_destroy(rank.save.copy);
    loader_destroy(rank.loader);
    if (rank.regime->leave)
        rank.regime->leave(&rank);
    exec_destroy(rank.exec);
    on_device_close(&rank.device);
    if (rank.regime->destroy)
        rank.regime->destroy(&rank);
    grid_destroy(rank.grid);
    watch_destroy(rank.watch);
    trace_destroy(rank.tracing.trace);
    comm_destroy(rank.comm);
    return status;
}
