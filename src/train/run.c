/* SPDX-License-Identifier: MIT */
/* run.c - the loop: what every rank does from the first step to the last.
 *
 * All ranks walk through the same steps and take the same decisions. Those that depend on time or
 * on signals are said before a step and heard by all after it (exec_say). Rank 0 alone writes files.
 *
 * Workers that average now and then (local.h) have an executor each. They hear each other when they meet, so
 * stops and checkpoints wait for that; what is evaluated is the mean of them, whenever it is due.
 *
 * With parameter servers (served.h) a rank is a server, which only serves, or a worker with an executor of its own:
 * worker 0 alone tells, evaluates and saves what the servers have, and all meet at the end.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/exec.h"
#include "report/progress.h"
#include "report/report.h"
#include "train/classes.h"
#include "train/folder.h"
#include "train/local.h"
#include "train/reconstruct.h"
#include "train/same.h"
#include "train/samples.h"
#include "train/served.h"
#include "train/trace_file.h"
#include "train/watch.h"
#include "train/weights.h"
#include "transport/launch.h"

enum { STOP = 1, SAVE = 2, CHECKPOINT_SECONDS = 60 };

/* Memory that supervisor and rank 0 share, made before they part. */
struct shared {
    struct train_result result;
    bool stopped;
};

/* What a run knows before it starts, the same on every rank. */
struct run {
    struct job *job;
    const struct train_hooks *hooks;
    struct shared *shared;
    struct checkpoint *checkpoint; /* to go on from, or NULL */
    struct safetensors *init;      /* initial weights, or NULL */
    uint64_t first_step;
    struct tally epoch;    /* what the checkpoint had of the running epoch */
    double seconds_before; /* of earlier sessions of this run */
    int64_t samples_before;
};

/* What a rank has beside that as a worker with an executor of its own. */
struct own {
    struct local *local;  /* NULL: it has none, or not yet */
    struct local_met met; /* the last meeting */
    struct transport *transport;
    struct comm *comm;
    struct exec *together;          /* all ranks' executor until then, or NULL */
    struct exec_times times_before; /* of that */
    double *waited_for;             /* of each rank: what is told, and what that had */
    double *waited_before;
    float *vector;                    /* rank 0: of another worker */
    struct served *served;            /* with servers; else NULL */
    struct served_times served_times; /* at the last line of metrics */
    double spread; /* with servers: steps between the fastest and the slowest worker */
    uint32_t tag;  /* for what workers tell worker 0 at the end */
};

/* What a rank has while it runs. */
struct rank {
    const struct run *run;
    struct job *job;
    struct transport *transport;
    struct comm *comm; /* of all ranks; NULL with servers */
    struct exec *exec;
    struct own own; /* exec is a private one, if local or served is there */
    struct loader *loader;
    struct weights_copy *copy; /* rank 0 */
    struct watch *watch;
    struct trace *trace; /* NULL: none */
    struct trace_row *row;
    struct trace_window window;
    struct progress progress;
    bool is_first;
    uint64_t step;   /* the step that runs */
    uint64_t next;   /* that this rank takes part in */
    int64_t samples; /* seen in the whole run */
    int64_t tokens;  /* labels that counted, of this session */
    struct tally interval, epoch;
    double began, load, saved_at;
    struct exec_times interval_times;
    double interval_load;
    uint32_t heard; /* with the last step: STOP, SAVE */
    bool meets;     /* workers with executors of their own have met after this step */
    bool is_owed;   /* a checkpoint, as soon as they do */
    struct train_result result;
};

static volatile sig_atomic_t stop_signal;

static void note_signal(int number)
{
    stop_signal = number;
    /* A second one ends the process at once. */
    signal(number, SIG_DFL);
}

static double seconds_of_run(const struct rank *rank)
{
    return rank->run->seconds_before + clock_seconds() - rank->began;
}

static void add_to(struct tally *tally, const struct exec_result *result)
{
    tally->loss += result->loss * (double)result->weight;
    tally->correct += result->correct;
    tally->samples += result->samples;
    tally->weight += result->weight;
}

static double mean_loss(const struct tally *t)
{
    return t->weight ? t->loss / (double)t->weight : NAN;
}

static double mean_accuracy(const struct rank *rank, const struct tally *t)
{
    const bool counts = graph_roles(rank->job->graph)->correct != NULL;
    return counts && t->weight ? t->correct / (double)t->weight : NAN;
}

/* What progress shows: samples a second, or tokens. */
static double rate_of(const struct rank *rank, const struct tally *t)
{
    const int64_t count = job_predicts_tokens(rank->job) ? t->weight : t->samples;
    return t->seconds > 0 ? (double)count / t->seconds : NAN;
}

static double tokens_per_s(const struct rank *rank, const struct tally *t)
{
    return job_predicts_tokens(rank->job) ? rate_of(rank, t) : NAN;
}

/* Saving ------------------------------------------------------------------------------- */

/* Every other worker's state of the optimizer comes to rank 0. */
static enum status take_workers(struct rank *rank)
{
    const size_t bytes = exec_vector_length(rank->exec) * sizeof(float);
    const float *outer = local_momentum(rank->own.local);

    if (rank->is_first && outer)
        weights_copy_take_outer(rank->copy, rank->exec, outer);
    for (int w = 1; w < comm_size(rank->comm); w++) {
        for (int k = 0; k < exec_own_states(rank->exec); k++) {
            if (comm_rank(rank->comm) == w)
                TRY(comm_send(rank->comm, 0, exec_vector(rank->exec, k), bytes));
            if (!rank->is_first)
                continue;
            TRY(comm_receive(rank->comm, w, rank->own.vector, bytes));
            weights_copy_take_state(rank->copy, rank->exec, w, k, rank->own.vector);
        }
    }
    return STATUS_OK;
}

static enum status save(struct rank *rank)
{
    const struct settings *s = &rank->job->settings;
    const int64_t traced = trace_begin_rare(rank->row);
    char *folder, augment[AUGMENT_TEXT];
    struct strbuf state;

    struct tally epoch = rank->epoch;
    TRY(exec_collect(rank->exec));
    if (rank->own.served)
        TRY(served_collect(rank->own.served));
    if (rank->is_first)
        weights_copy_take(rank->copy, rank->exec);
    if (rank->own.local) {
        TRY(local_sum(rank->own.local, &epoch));
        TRY(take_workers(rank));
    }
    TRY(exec_settle(rank->exec)); /* from here on the others may go on */
    rank->saved_at = clock_seconds();
    rank->is_owed = false;
    if (!rank->is_first)
        return STATUS_OK;

    strbuf_init(&state, 64 << 10);
    strbuf_printf(&state, "{\"step\": %llu, \"samples\": %lld, \"seconds\": ",
                  (unsigned long long)rank->step + 1, (long long)rank->samples);
    strbuf_add_number(&state, seconds_of_run(rank));
    strbuf_printf(&state, ", \"epoch_samples\": %lld, \"epoch_weight\": %lld, \"epoch_loss\": ",
                  (long long)epoch.samples, (long long)epoch.weight);
    strbuf_add_number(&state, epoch.loss);
    strbuf_add(&state, ", \"epoch_correct\": ");
    strbuf_add_number(&state, epoch.correct);
    strbuf_add(&state, ", \"epoch_seconds\": ");
    strbuf_add_number(&state, epoch.seconds);
    if (rank->own.local)
        local_print(rank->own.local, &state);
    strbuf_printf(&state,
                  ", \"isa\": \"%s\", \"choices\": \"%s\", \"data\": \"%s\", "
                  "\"augment\": \"%s\"}",
                  kernel_isa(), kernel_choices_hash(rank->job->choices),
                  rank->job->train->fingerprint, augment_print(&rank->job->augment, augment));
    enum status status = strbuf_status(&state);
    if (status == STATUS_OK)
        status = file_join(s->out, "checkpoint", &folder);
    if (status == STATUS_OK) {
        status =
            weights_copy_save(rank->copy, folder, rank->step + 1, state.text, (int)s->keep);
        mem_free(folder);
    }
    strbuf_release(&state);
    trace_end(rank->row, traced, TRACE_CHECKPOINT, "write a checkpoint", NULL);
    return status;
}

/* Telling ------------------------------------------------------------------------------ */

static struct metrics metrics_now(const struct rank *rank, const char *kind)
{
    return (struct metrics){
        .kind = kind,
        .step = rank->step + 1,
        .epoch = (double)(rank->step + 1) / (double)rank->job->steps_per_epoch,
        .samples = rank->samples,
        .train_loss = NAN,
        .train_accuracy = NAN,
        .val_loss = NAN,
        .val_accuracy = NAN,
        .val_top5 = NAN,
        .lr = NAN,
        .seconds = seconds_of_run(rank),
        .epoch_seconds = NAN,
        .eval_seconds = NAN,
        .samples_per_s = NAN,
        .tokens_per_s = NAN,
        .perplexity = NAN,
        .comm_share = NAN,
        .wait_share = NAN,
        .load_share = NAN,
        .hidden_share = NAN,
        .wire_share = NAN,
        .bytes_sent = NAN,
        .slowest_rank = NAN,
        .slowest_share = NAN,
        .sync_interval = NAN,
        .param_variance = NAN,
        .clock_spread = NAN,
    };
}

/* Sums of this rank's lanes so far, what they had before they parted from others and meetings included. */
static struct exec_times times_now(const struct rank *rank)
{
    const struct exec_times *before = &rank->own.times_before;
    struct exec_times t = exec_times(rank->exec);

    if (!rank->own.local)
        return t;
    const struct local_times met = local_times(rank->own.local);
    t.compute += before->compute;
    t.comm += before->comm + met.comm * exec_lanes(rank->exec);
    t.wait += before->wait + met.wait * exec_lanes(rank->exec);
    t.evaluate += before->evaluate;
    t.hidden += before->hidden;
    t.wire += before->wire;
    t.wire_hidden += before->wire_hidden;
    t.bytes += before->bytes + met.bytes;
    return t;
}

/* Collective: rank 0 learns what all ranks' time went to. */
static enum status collect_times(struct rank *rank)
{
    const struct own *own = &rank->own;

    if (own->served)
        return STATUS_OK; /* nobody waits for the others to tell */
    if (!own->local)
        return watch_collect(rank->watch, rank->exec, rank->load);
    const struct exec_times times = times_now(rank);
    const struct local_times met = local_times(own->local);
    for (int r = 0; r < comm_size(rank->comm); r++)
        own->waited_for[r] = own->waited_before[r] + met.waited_for[r] * exec_lanes(rank->exec);
    return watch_bring(rank->watch, &times, own->waited_for, rank->load);
}

/* What all ranks together did since the last line. */
static void add_all_ranks(struct rank *rank, struct metrics *m)
{
    const struct watch_interval all = watch_next(rank->watch, rank->interval.seconds);
    const int straggler = watch_straggler(rank->watch);
    char text[160];

    if (rank->job->settings.ranks == 1)
        return;
    m->hidden_share = all.hidden_share;
    m->bytes_sent = all.bytes;
    if (all.slowest >= 0) {
        m->slowest_rank = all.slowest;
        m->slowest_share = all.slowest_share;
    }
    /* Ranks that share cores are slow in turns; that is no news. */
    const struct settings *s = &rank->job->settings;
    if (straggler < 0 ||
        (transport_nodes(rank->transport) == 1 && s->ranks * s->threads > job_cores()))
        return;
    snprintf(text, sizeof text,
             "rank %d is slower than the others: they wait for it %.0f%% of the time",
             straggler, 100 * all.slowest_share);
    if (rank->run->hooks->progress)
        progress_note(&rank->progress, text);
    else
        log_line(LOG_WARNING, "%s", text);
}

/* What a worker's end of the servers did since the last line. */
static void add_served(struct rank *rank, struct metrics *m)
{
    struct own *own = &rank->own;
    const struct served_times now = served_times(own->served), then = own->served_times;

    if (rank->interval.seconds > 0) {
        m->wait_share += (now.tick - then.tick) / rank->interval.seconds;
        m->wire_share = (now.move - then.move) / rank->interval.seconds;
    }
    m->bytes_sent = now.bytes - then.bytes;
    m->clock_spread = own->spread;
    own->served_times = now;
}

/* Collective, but with servers; rank 0 writes the line. */
static enum status tell_interval(struct rank *rank)
{
    TRY(collect_times(rank));
    if (rank->own.local)
        TRY(local_sum(rank->own.local, &rank->interval));
    if (!rank->is_first) {
        rank->interval = (struct tally){ 0 };
        return STATUS_OK;
    }
    const struct exec_times now = times_now(rank), *then = &rank->interval_times;
    const double span = rank->interval.seconds * exec_lanes(rank->exec);
    struct metrics m = metrics_now(rank, "train");

    m.train_loss = mean_loss(&rank->interval);
    m.train_accuracy = mean_accuracy(rank, &rank->interval);
    m.lr = schedule_lr(&rank->job->optim.schedule, rank->step);
    if (span > 0) {
        m.samples_per_s = (double)rank->interval.samples / rank->interval.seconds;
        m.tokens_per_s = tokens_per_s(rank, &rank->interval);
        m.comm_share = (now.comm - then->comm) / span;
        m.wait_share = (now.wait - then->wait) / span;
        m.load_share = (rank->load - rank->interval_load) / rank->interval.seconds;
        if (transport_nodes(rank->transport) > 1)
            m.wire_share = (now.wire - then->wire) / rank->interval.seconds;
    }
    if (rank->own.served)
        add_served(rank, &m);
    else
        add_all_ranks(rank, &m);
    if (rank->own.local) {
        m.sync_interval = (double)rank->own.met.interval;
        m.param_variance = rank->own.met.variance;
    }
    rank->interval_times = now;
    rank->interval_load = rank->load;
    rank->interval = (struct tally){ 0 };
    return folder_add_metrics(rank->job, rank->run->hooks, &m);
}

/* "loss 0.3121 accuracy 88.65%", or the loss alone; of tokens with their perplexity. */
static void print_score(const struct rank *rank, char out[96], double loss, double accuracy)
{
    int length = snprintf(out, 96, "loss %.4f", loss);

    if (job_predicts_tokens(rank->job))
        length += snprintf(out + length, 96 - (size_t)length, " perplexity %.2f", exp(loss));
    if (!isnan(accuracy) && length < 96)
        snprintf(out + length, 96 - (size_t)length, " accuracy %.2f%%", 100 * accuracy);
}

static void note_evaluation(struct rank *rank, const struct metrics *m)
{
    char text[320], train[96], test[96];

    print_score(rank, train, m->train_loss, m->train_accuracy);
    print_score(rank, test, m->val_loss, m->val_accuracy);
    snprintf(text, sizeof text, "epoch %-3.4g training %s   test %s   %.2f s", m->epoch, train,
             test, m->epoch_seconds);
    progress_note(&rank->progress, text);
}

/* With the parameters that the executor has now. */
static enum status evaluate_these(struct rank *rank)
{
    struct metrics m = metrics_now(rank, "eval");
    struct tally epoch = rank->epoch;
    struct exec_result result;
    const double begin = clock_seconds();
    const int64_t traced = trace_begin_rare(rank->row);

    TRY(exec_evaluate(rank->exec, rank->job->test, &result));
    trace_end(rank->row, traced, TRACE_EVALUATE, "evaluate", NULL);
    m.eval_seconds = clock_seconds() - begin;
    if (rank->own.local)
        TRY(local_sum(rank->own.local, &epoch));
    m.train_loss = rank->result.train_loss = mean_loss(&epoch);
    m.train_accuracy = rank->result.train_accuracy = mean_accuracy(rank, &epoch);
    if (result.samples) {
        m.val_loss = result.loss;
        m.val_accuracy = graph_roles(rank->job->eval_graph)->correct
                             ? result.correct / (double)result.weight
                             : NAN;
        m.perplexity = job_predicts_tokens(rank->job) ? exp(m.val_loss) : NAN;
        m.val_top5 = classes_top5(rank->exec, &result);
    }
    m.seconds = seconds_of_run(rank);
    m.epoch_seconds = epoch.seconds;
    m.samples_per_s = epoch.seconds > 0 ? (double)epoch.samples / epoch.seconds : NAN;
    m.tokens_per_s = tokens_per_s(rank, &epoch);
    rank->result.perplexity = m.perplexity;
    rank->result.val_loss = m.val_loss;
    rank->result.val_accuracy = m.val_accuracy;
    rank->result.val_top5 = m.val_top5;
    if (!rank->is_first)
        return STATUS_OK;
    if (rank->run->hooks->progress)
        note_evaluation(rank, &m);
    TRY(folder_add_metrics(rank->job, rank->run->hooks, &m));
    return samples_add(rank->job, rank->exec, rank->run->hooks, m.step, m.epoch);
}

static enum status evaluate(struct rank *rank)
{
    if (!rank->own.local)
        return evaluate_these(rank);
    TRY(local_lend_mean(rank->own.local));
    TRY(evaluate_these(rank));
    local_give_back(rank->own.local);
    return STATUS_OK;
}

/* The loop ----------------------------------------------------------------------------- */

/* What is to be done after this step, by this rank's knowledge: any may be told to stop. */
static uint32_t wishes(const struct rank *rank)
{
    const bool is_due = rank->is_first && !rank->job->settings.checkpoint_every &&
                        clock_seconds() - rank->saved_at > CHECKPOINT_SECONDS;

    return (stop_signal ? STOP : 0) | (is_due ? SAVE : 0);
}

static void switch_trace(struct rank *rank)
{
    if (!rank->row)
        return;
    rank->row->step = rank->step;
    trace_switch(rank->trace,
                 rank->step >= rank->window.begin && rank->step < rank->window.end);
}

/* "averages are 20 steps apart now: one takes 1.20 ms, a step 0.84 ms, the variance is 3.1e-07" */
static void tell_new_interval(struct rank *rank)
{
    const struct local_met *met = &rank->own.met;
    char text[200];

    snprintf(text, sizeof text,
             "step %llu: averages are %lld steps apart now: one takes %.2f ms, a step %.2f ms, "
             "the variance among workers is %.2g",
             (unsigned long long)rank->step + 1, (long long)met->interval, 1e3 * met->comm_s,
             1e3 * met->step_s, met->variance);
    if (rank->run->hooks->progress)
        progress_note(&rank->progress, text);
    else
        log_line(LOG_INFO, "%s", text);
}

/* Workers with executors of their own meet when it is time, and at the end. */
static enum status meet_if_due(struct rank *rank, const struct exec_result *result,
                               double seconds)
{
    struct local *local = rank->own.local;
    const uint64_t number = rank->step + 1;

    if (!local)
        return STATUS_OK;
    rank->meets =
        local_step(local, number, result, seconds) || (int64_t)number == rank->job->total_steps;
    rank->heard = 0;
    if (!rank->meets)
        return STATUS_OK;
    const double lr = schedule_lr(&rank->job->optim.schedule, rank->step);
    TRY(local_meet(local, number, lr, wishes(rank), &rank->own.met));
    rank->heard = rank->own.met.heard;
    if (rank->is_first && rank->own.met.is_new)
        tell_new_interval(rank);
    return STATUS_OK;
}

/* The step, and with --slow a rank's sleep after it. */
static enum status run_step(struct rank *rank, const struct batch *batch,
                            struct exec_result *out)
{
    const struct slow *slow = &rank->job->slow;
    const int own = transport_rank(rank->transport);
    const double before = slow->rank == own ? exec_times(rank->exec).compute : 0;

    if (rank->own.local || rank->own.served)
        transport_note(rank->transport, rank->step, "a step of its own");
    else
        exec_say(rank->exec, wishes(rank));
    TRY(exec_step(rank->exec, batch, out));
    if (slow->rank == own)
        slow_down(slow, own,
                  (exec_times(rank->exec).compute - before) / exec_lanes(rank->exec));
    return STATUS_OK;
}

/* With servers: ends a step. The loss of all workers comes in the place of this one's, as far as it was heard.
 * That it is time for a checkpoint worker 0 tells nobody. */
static enum status tick(struct rank *rank, const struct batch *batch,
                        struct exec_result *result)
{
    const uint32_t wish = wishes(rank);
    struct served_heard heard;

    rank->next = rank->step + 1;
    if (!rank->own.served)
        return STATUS_OK;
    TRY(served_tick(rank->own.served, batch, result, wish & STOP, &heard));
    *result = heard.result;
    rank->heard = heard.result.heard | (wish & SAVE);
    rank->own.spread = (double)(heard.high - heard.low);
    rank->next = heard.next;
    return STATUS_OK;
}

static enum status one_step(struct rank *rank)
{
    const struct batch *batch;
    struct exec_result result;
    const double begin = clock_seconds();

    switch_trace(rank);
    const int64_t traced = trace_begin(rank->row);
    TRY(loader_next(rank->loader, &batch));
    trace_end(rank->row, traced, TRACE_WAIT, "wait for a batch", NULL);
    rank->load += clock_seconds() - begin;
    const int64_t step_traced = trace_begin(rank->row);
    TRY(run_step(rank, batch, &result));
    trace_end(rank->row, step_traced, TRACE_STEP, "step", NULL);
    rank->heard = result.heard;
    rank->samples += batch->samples;
    rank->tokens += batch->weight;
    if (!isfinite(result.loss))
        return FAIL(STATUS_MISMATCH,
                    "the loss is not a finite number at step %llu: lower --lr, or "
                    "use --clip 1 or --warmup",
                    (unsigned long long)rank->step);
    TRY(tick(rank, batch, &result));
    loader_done(rank->loader, batch);
    TRY(meet_if_due(rank, &result, clock_seconds() - begin));
    const double seconds = clock_seconds() - begin;
    rank->interval.seconds += seconds;
    rank->epoch.seconds += seconds;
    add_to(&rank->interval, &result);
    add_to(&rank->epoch, &result);
    return STATUS_OK;
}

/* A step that the others did without this worker, which came too late: it leaves its samples out. */
static enum status skip_step(struct rank *rank)
{
    const struct batch *batch;

    TRY(loader_next(rank->loader, &batch));
    rank->samples += batch->samples;
    rank->tokens += batch->weight;
    loader_done(rank->loader, batch);
    return STATUS_OK;
}

/* The last step of a worker with servers is done: when all have come, what the servers have is the result. */
static enum status meet_at_servers(struct rank *rank)
{
    TRY(served_meet(rank->own.served));
    return rank->is_first ? served_collect(rank->own.served) : STATUS_OK;
}

/* What is due after a step, the same on every rank; with servers it is all worker 0's. */
static enum status after_step(struct rank *rank, bool *stop)
{
    const struct settings *s = &rank->job->settings;
    const uint64_t number = rank->step + 1;
    const bool is_last = (int64_t)number == rank->job->total_steps;
    const bool ends_epoch = number % (uint64_t)rank->job->steps_per_epoch == 0;
    const int64_t epoch = (int64_t)number / rank->job->steps_per_epoch;

    *stop = rank->heard & STOP;
    if (rank->own.served && (is_last || *stop))
        TRY(meet_at_servers(rank));
    if (rank->own.served && !rank->is_first)
        return STATUS_OK;
    if (rank->is_first) {
        if (rank->run->hooks->progress)
            progress_update(&rank->progress, number,
                            (double)number / (double)rank->job->steps_per_epoch,
                            mean_loss(&rank->interval), mean_accuracy(rank, &rank->interval),
                            rate_of(rank, &rank->interval));
        if (number == rank->run->first_step + 1)
            rank->result.first_step_s = clock_seconds() - rank->job->began;
    }
    if (number % (uint64_t)s->log_every == 0 || is_last)
        TRY(tell_interval(rank));
    rank->result.train_loss = mean_loss(&rank->epoch);
    rank->result.train_accuracy = mean_accuracy(rank, &rank->epoch);
    const bool evaluates =
        is_last || (ends_epoch && s->eval_every && epoch % s->eval_every == 0);
    if (evaluates && !*stop)
        TRY(evaluate(rank));
    if (ends_epoch)
        rank->epoch = (struct tally){ 0 };
    const bool saves = s->checkpoint_every ? number % (uint64_t)s->checkpoint_every == 0
                                           : ends_epoch || (rank->heard & SAVE);
    rank->is_owed |= saves;
    if ((rank->is_owed && (rank->meets || !rank->own.local)) || is_last || *stop)
        TRY(save(rank));
    return STATUS_OK;
}

static bool is_local(const struct job *job)
{
    return job->axes.sync == SYNC_LOCAL;
}

/* Is this a step before workers train alone? */
static bool is_together(const struct job *job, uint64_t step)
{
    return !is_local(job) || step < (uint64_t)job->settings.local_after;
}

static struct exec_config exec_config_of(const struct rank *rank)
{
    const struct job *job = rank->job;
    const struct settings *s = &job->settings;

    return (struct exec_config){
        .train = job->sync_graph ? job->sync_graph : job->graph,
        .eval = job->eval_graph,
        .comm = rank->comm,
        .threads = (int)s->threads,
        .shards = s->shards,
        .batch = s->batch,
        .rows = job->balance.is_used ? job->balance.rows : NULL,
        .seed = s->seed,
        .choices = job->choices,
        .optim = job->optim,
        .compress = job->compress,
        .leaders = job->rails.count == 1,
        .trace = rank->trace,
        .stall_timeout = s->stall_timeout,
    };
}

/* An executor of its own for this rank's shards, and what it averages by. */
static enum status make_own(struct rank *rank)
{
    struct own *own = &rank->own;
    const struct settings *s = &rank->job->settings;
    const int64_t ranks = comm_size(rank->comm), number = comm_rank(rank->comm);
    struct exec_config config = exec_config_of(rank);

    TRY(transport_inproc_create(1, &own->transport));
    TRY(comm_create(own->transport, NULL, &own->comm));
    config.train = rank->job->graph;
    config.comm = own->comm;
    config.part.first = number * s->shards / ranks;
    config.part.count = (number + 1) * s->shards / ranks - config.part.first;
    config.evaluators = ranks > 1 ? rank->comm : NULL;
    TRY(exec_create(&config, &rank->exec));
    const struct local_config local = { .axes = &rank->job->axes,
                                        .comm = rank->comm,
                                        .exec = rank->exec,
                                        .shards = s->shards,
                                        .outer_lr = s->outer_lr,
                                        .outer_momentum = s->outer_momentum };
    TRY(local_create(&local, &own->local));
    TRY(mem_alloc((size_t)ranks, sizeof(double), &own->waited_for));
    TRY(mem_alloc((size_t)ranks, sizeof(double), &own->waited_before));
    return rank->is_first
               ? mem_alloc(exec_vector_length(rank->exec), sizeof(float), &own->vector)
               : STATUS_OK;
}

/* An executor of its own that gives its sums to servers. */
static enum status make_served(struct rank *rank)
{
    struct own *own = &rank->own;
    struct exec_config config = exec_config_of(rank);

    TRY(transport_inproc_create(1, &own->transport));
    TRY(comm_create(own->transport, NULL, &own->comm));
    TRY(served_create(rank->job, rank->transport, &own->served));
    config.comm = own->comm;
    config.rows = NULL;
    config.part = served_part(own->served);
    config.remote = served_remote(own->served);
    return exec_create(&config, &rank->exec);
}

static void release_own(struct own *own)
{
    local_destroy(own->local);
    exec_destroy(own->together);
    comm_destroy(own->comm);
    if (own->transport)
        transport_inproc_destroy(&own->transport, 1);
    mem_free(own->waited_for);
    mem_free(own->waited_before);
    mem_free(own->vector);
}

static enum status make_copy(struct rank *rank)
{
    const struct weights_extra extra = {
        .workers = rank->own.local ? comm_size(rank->comm) : 1,
        .has_outer = rank->own.local && local_momentum(rank->own.local),
    };

    weights_copy_destroy(rank->copy);
    rank->copy = NULL;
    return rank->is_first ? weights_copy_create(rank->exec, extra, &rank->copy) : STATUS_OK;
}

/* Parameters and state of an executor of all ranks go to every worker's own. */
static enum status hand_over(struct rank *rank, struct exec *from)
{
    enum status status = STATUS_OK;

    for (int i = 0; i < exec_param_count(from) && status == STATUS_OK; i++) {
        const size_t count = (size_t)shape_count(&exec_param(from, i)->shape);
        float *plain;
        TRY(mem_alloc(count, sizeof *plain, &plain));
        for (int k = -1; k < exec_state_count(from, i) && status == STATUS_OK; k++) {
            if (rank->is_first)
                exec_get(from, i, k, plain);
            status = comm_broadcast(rank->comm, plain, count, DTYPE_F32, 0);
            if (status == STATUS_OK)
                exec_set(rank->exec, i, k, plain);
        }
        mem_free(plain);
    }
    return status;
}

/* Workers part: from this step on each has an executor of its own. */
static enum status part(struct rank *rank)
{
    struct own *own = &rank->own;

    TRY(exec_collect(rank->exec));
    own->together = rank->exec;
    rank->exec = NULL;
    TRY(make_own(rank));
    own->times_before = exec_times(own->together);
    exec_waited_for(own->together, own->waited_before);
    TRY(hand_over(rank, own->together));
    TRY(exec_settle(own->together)); /* nobody looks at its memory any more */
    exec_destroy(own->together);
    own->together = NULL;
    TRY(exec_publish(rank->exec));
    local_resume(own->local, rank->step);
    own->met.interval = local_interval(own->local)->now;
    if (rank->is_first)
        log_line(LOG_INFO, "step %llu: workers train alone from here on",
                 (unsigned long long)rank->step);
    else
        rank->epoch = (struct tally){ 0 }; /* what all did is counted by rank 0 */
    return make_copy(rank);
}

static enum status run_steps(struct rank *rank)
{
    bool stop = false;

    for (rank->step = rank->run->first_step;
         (int64_t)rank->step < rank->job->total_steps && !stop; rank->step++) {
        if (is_local(rank->job) && !rank->own.local && !is_together(rank->job, rank->step))
            TRY(part(rank));
        if (rank->step < rank->next)
            TRY(skip_step(rank));
        else
            TRY(one_step(rank));
        TRY(after_step(rank, &stop));
    }
    rank->run->shared->stopped |= stop && rank->is_first;
    return exec_settle(rank->exec);
}

/* A rank from start to end -------------------------------------------------------------- */

/* What a worker has of its own in a checkpoint. */
static enum status load_own(struct rank *rank)
{
    const struct run *run = rank->run;
    struct local *local = rank->own.local;

    if (run->checkpoint) {
        TRY(weights_load_worker(rank->exec, checkpoint_optimizer(run->checkpoint),
                                comm_rank(rank->comm), local_momentum(local)));
        TRY(local_read(local, checkpoint_state(run->checkpoint)));
    }
    if (!rank->is_first)
        rank->epoch = (struct tally){ 0 }; /* rank 0 has what all did */
    local_resume(local, run->first_step);
    rank->own.met.interval = local_interval(local)->now;
    return STATUS_OK;
}

static enum status load_params(struct rank *rank)
{
    const struct run *run = rank->run;
    const bool loads = rank->is_first || rank->own.local || rank->own.served;

    if (!run->checkpoint && !run->init)
        TRY(exec_init_params(rank->exec));
    else if (loads && run->checkpoint)
        TRY(weights_load(rank->exec, checkpoint_weights(run->checkpoint),
                         checkpoint_optimizer(run->checkpoint)));
    else if (loads)
        TRY(weights_load(rank->exec, run->init, NULL));
    TRY(exec_publish(rank->exec));
    if (rank->own.served)
        return served_begin(rank->own.served, rank->exec, run->first_step);
    return rank->own.local ? load_own(rank) : STATUS_OK;
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
                          (uint64_t)rank->job->total_steps, &rank->window));
    TRY(trace_create(&rank->trace));
    return trace_add_row(rank->trace, "loop", 0, &rank->row);
}

/* A trace that cannot be written is no reason to lose a run's results; a lost rank is. */
static enum status write_trace(struct rank *rank)
{
    char *path;

    if (!rank->trace)
        return STATUS_OK;
    TRY(file_join(rank->job->settings.out, FOLDER_TRACE, &path));
    enum status status = trace_file_write(rank->trace, rank->transport, path);
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

/* The executor, and what joins it with others. */
static enum status make_exec(struct rank *rank)
{
    if (rank->job->axes.servers)
        return make_served(rank);
    TRY(comm_create(rank->transport, NULL, &rank->comm));
    TRY(parallax_measure(rank->job, rank->comm));
    TRY(balance_measure(rank->job, rank->comm));
    TRY(rails_choose(rank->job->settings.rails, rank->job->graph, rank->comm,
                     &rank->job->rails));
    if (!is_together(rank->job, rank->run->first_step)) {
        TRY(make_own(rank));
    } else {
        const struct exec_config config = exec_config_of(rank);
        TRY(exec_create(&config, &rank->exec));
    }
    return watch_create(rank->transport, exec_lanes(rank->exec), &rank->watch);
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
        .first_step = rank->run->first_step,
        .end_step = (uint64_t)job->total_steps,
    };

    TRY(check_job(rank));
    TRY(start_trace(rank));
    loader.trace = rank->trace;
    TRY(make_exec(rank));
    TRY(load_params(rank));
    loader.first_shard = exec_first_shard(rank->exec);
    loader.n_shards = exec_shard_count(rank->exec);
    TRY(loader_create(&loader, &rank->loader));
    if (rank->is_first)
        tell_plan(rank);
    return make_copy(rank);
}

static int64_t peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

/* Rank 0 writes what is known at the end. */
static enum status finish(struct rank *rank, struct rank_times *times)
{
    struct shared *shared = rank->run->shared;
    struct train_result *r = &rank->result;
    const struct settings *s = &rank->job->settings;

    TRY(exec_hash(rank->exec, r->weights_sha256));
    r->steps = (int64_t)rank->step;
    r->seconds = seconds_of_run(rank);
    r->samples_per_s =
        (double)(rank->samples - rank->run->samples_before) / (clock_seconds() - rank->began);
    r->tokens_per_s = job_predicts_tokens(rank->job)
                          ? (double)rank->tokens / (clock_seconds() - rank->began)
                          : NAN;
    snprintf(r->folder, sizeof r->folder, "%s", s->out);
    parallax_print(rank->job, r->tables, sizeof r->tables);
    for (int i = 0; i < s->ranks; i++) {
        if (times[i].peak_bytes > r->peak_bytes)
            r->peak_bytes = times[i].peak_bytes;
        if (!rank->watch)
            continue;
        const struct watch_rank watched = watch_rank(rank->watch, i);
        times[i].wire = watched.wire;
        times[i].hidden = watched.hidden;
        times[i].made_wait = watched.made_wait;
        times[i].bytes = watched.bytes;
    }
    shared->result = *r;
    TRY(write_reconstructions(rank->job, rank->exec));
    struct train_classes classes;
    TRY(classes_take(rank->exec, rank->job->test, &classes));
    struct strbuf more;
    strbuf_init(&more, 1 << 20);
    if (rank->own.served)
        served_print(rank->own.served, &more);
    enum status status = strbuf_status(&more);
    if (status == STATUS_OK)
        status = folder_write_summary(rank->job, shared->stopped ? "stopped" : "done", r,
                                      &classes, rank->samples, times, more.text);
    strbuf_release(&more);
    train_classes_release(&classes);
    return status;
}

/* Every rank's times to rank 0. With servers a worker that is lost has none. */
static enum status gather_times(struct rank *rank, const struct rank_times *own,
                                struct rank_times *all)
{
    const uint32_t tag = rank->own.tag;

    if (!rank->own.served)
        return comm_all_gather(rank->comm, own, all, sizeof *own / sizeof(int64_t), DTYPE_I64);
    if (!rank->is_first)
        return transport_send(rank->transport, 0, tag, own, sizeof *own);
    all[0] = *own;
    for (int w = 1; w < rank->job->settings.ranks; w++) {
        if (!served_has_lost(rank->own.served, w))
            TRY(transport_receive(rank->transport, w, tag, &all[w], sizeof *own));
    }
    return STATUS_OK;
}

/* Every machine has parameters of its own, or every worker: at the end they must be the same. */
static enum status check_copies(struct rank *rank)
{
    enum { HASH = 64 };
    char hash[HASH + 1] = "", *all;

    if ((transport_nodes(rank->transport) == 1 && !rank->own.local) || rank->own.served)
        return STATUS_OK;
    const int size = comm_size(rank->comm), own = comm_rank(rank->comm);
    const int node = transport_node_of(rank->transport, own);
    if (transport_node_first(rank->transport, node) == own || rank->own.local)
        TRY(exec_hash(rank->exec, hash));
    TRY(mem_alloc((size_t)size, HASH, &all));
    enum status status =
        comm_all_gather(rank->comm, hash, all, HASH / sizeof(int64_t), DTYPE_I64);
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

/* Seconds of this rank. What a client of servers does is no work of a lane's, but for ticks. */
static struct rank_times times_of(const struct rank *rank)
{
    const struct exec_times times = times_now(rank);
    const int lanes = exec_lanes(rank->exec);
    struct rank_times own = {
        .compute = times.compute / lanes,
        .comm = times.comm / lanes,
        .wait = times.wait / lanes,
        .load = rank->load,
        .evaluate = times.evaluate / lanes,
        .total = clock_seconds() - rank->began,
        .peak_bytes = peak_bytes(),
    };

    if (rank->own.served) {
        const struct served_times served = served_times(rank->own.served);
        own.wait += served.tick;
        own.wire = served.move;
        own.bytes = served.bytes;
    }
    return own;
}

static enum status run_rank(struct rank *rank)
{
    struct progress_config progress = {
        .counts_tokens = job_predicts_tokens(rank->job),
        .total = (uint64_t)rank->job->total_steps,
        .start = rank->run->first_step,
        .epochs = (double)rank->job->total_steps / (double)rank->job->steps_per_epoch,
    };

    TRY(start_rank(rank));
    rank->began = rank->saved_at = clock_seconds();
    const bool shows = rank->is_first && rank->run->hooks->progress;
    if (shows)
        progress_begin(&rank->progress, &progress);
    enum status status = run_steps(rank);
    if (shows)
        progress_end(&rank->progress);
    TRY(status);

    const struct rank_times own = times_of(rank);
    TRY(check_copies(rank));
    if (!rank->own.served)
        TRY(write_trace(rank));
    TRY(collect_times(rank));
    struct rank_times *all;
    TRY(mem_alloc((size_t)rank->job->settings.ranks, sizeof *all, &all));
    status = gather_times(rank, &own, all);
    if (status == STATUS_OK && rank->is_first)
        status = finish(rank, all);
    mem_free(all);
    if (status != STATUS_OK || !rank->own.served)
        return status;
    served_destroy(rank->own.served); /* servers write no trace before all workers have left */
    rank->own.served = NULL;
    return write_trace(rank);
}

/* A server has nothing but what ps/ makes; its part of a trace is empty. */
static enum status run_server(struct rank *rank)
{
    TRY(check_job(rank));
    TRY(start_trace(rank));
    transport_note(rank->transport, rank->run->first_step, "serving parameters");
    TRY(served_serve(rank->job, rank->transport));
    return write_trace(rank);
}

static enum status rank_body(struct transport *transport, void *arg)
{
    struct run *run = arg;
    struct sigaction note = { .sa_handler = note_signal }, old_int, old_term;
    struct rank rank = {
        .run = run,
        .job = run->job,
        .transport = transport,
        .is_first = transport_rank(transport) == 0,
        .samples = run->samples_before,
        .epoch = run->epoch,
        .result = { .train_loss = NAN,
                    .train_accuracy = NAN,
                    .val_loss = NAN,
                    .val_accuracy = NAN,
                    .val_top5 = NAN,
                    .perplexity = NAN },
    };

    stop_signal = 0;
    sigaction(SIGINT, &note, &old_int);
    sigaction(SIGTERM, &note, &old_term);
    if (run->job->axes.servers)
        rank.own.tag = transport_new_tags(transport, 1);
    const bool serves = served_is_server(run->job, transport);
    enum status status = serves ? run_server(&rank) : run_rank(&rank);
    sigaction(SIGINT, &old_int, NULL);
    sigaction(SIGTERM, &old_term, NULL);
    weights_copy_destroy(rank.copy);
    loader_destroy(rank.loader);
    served_destroy(rank.own.served);
    exec_destroy(rank.exec);
    release_own(&rank.own);
    watch_destroy(rank.watch);
    trace_destroy(rank.trace);
    comm_destroy(rank.comm);
    return status;
}

/* The run as a whole -------------------------------------------------------------------- */

static enum status open_init(struct run *run)
{
    const struct settings *s = &run->job->settings;

    if (!*s->init)
        return STATUS_OK;
    TRY(safetensors_open(s->init, &run->init));
    if (weights_check(run->job->graph, run->init) != STATUS_OK)
        return FAIL(STATUS_MISMATCH, "%s: %s", s->init, status_message());
    return STATUS_OK;
}

/* Does this process look after the run's folder? Of those that mpirun started, the first. */
static bool keeps_folder(void)
{
    int rank, size;

    return !launch_world(&rank, &size) || rank == 0;
}

/* With a rank of a job with servers parameters may be lost: says what there is to go on from. */
static enum status name_checkpoint(const struct job *job, enum status status)
{
    char reason[256], *folder;
    struct checkpoint *checkpoint;

    if (status != STATUS_PEER_LOST || !job->axes.servers)
        return status;
    snprintf(reason, sizeof reason, "%s", status_message());
    TRY(file_join(job->settings.out, "checkpoint", &folder));
    const enum status loaded = checkpoint_load(folder, &checkpoint);
    mem_free(folder);
    if (loaded != STATUS_OK)
        return FAIL(status, "%s: there is no checkpoint yet, begin again with --resume %s",
                    reason, job->settings.out);
    const uint64_t step = checkpoint_step(checkpoint);
    checkpoint_close(checkpoint);
    return FAIL(status, "%s: go on from step %llu with tutti train --resume %s", reason,
                (unsigned long long)step, job->settings.out);
}

static enum status launch(struct run *run, struct train_result *out)
{
    const struct settings *s = &run->job->settings;
    const size_t bytes = sizeof *run->shared;
    const struct launch_config config = { .size = (int)s->ranks + run->job->axes.servers,
                                          .flat = s->flat,
                                          .stuck_ms = (int)(1000 * s->lost_after) };

    run->shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run->shared == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes of shared memory are refused", bytes);
    enum status status = launch_ranks(&config, rank_body, run);
    if (status == STATUS_OK) {
        *out = run->shared->result;
        if (run->shared->stopped)
            status = FAIL(STATUS_STOPPED,
                          "stopped at step %lld of %lld, all saved: continue with tutti train "
                          "--resume %s",
                          (long long)out->steps, (long long)run->job->total_steps, s->out);
    }
    munmap(run->shared, bytes);
    if (!keeps_folder())
        return status;
    status = name_checkpoint(run->job, status);

    /* The last files are worth having, their absence is no reason to fail; and where the run failed,
     * the reason for that is worth more than what became of them. */
    char reason[512];
    snprintf(reason, sizeof reason, "%s", status_message());
    const bool failed = status != STATUS_OK && status != STATUS_STOPPED;
    if (failed && folder_write_failure(run->job, reason) != STATUS_OK)
        return status_set(status, reason);
    if (report_write(s->out) != STATUS_OK && !failed)
        log_line(LOG_WARNING, "no report: %s", status_message());
    return status == STATUS_OK ? STATUS_OK : status_set(status, reason);
}

static void release(struct run *run)
{
    checkpoint_close(run->checkpoint);
    safetensors_close(run->init);
}

enum status train_run(struct job *job, const struct train_hooks *hooks,
                      struct train_result *out)
{
    struct run run = { .job = job, .hooks = hooks };

    enum status status = open_init(&run);
    if (status == STATUS_OK && keeps_folder())
        status = folder_create(job, hooks);
    if (status == STATUS_OK)
        status = launch(&run, out);
    release(&run);
    return status;
}

/* Reads where the checkpoint stands, and says so if it was made with other arithmetic. */
static enum status read_state(struct run *run)
{
    const char *text = checkpoint_state(run->checkpoint);
    char text_now[AUGMENT_TEXT];
    struct json *json;

    TRY(json_parse(text, strlen(text), &json));
    const struct json_value *state = json_root(json);
    run->first_step = checkpoint_step(run->checkpoint);
    run->samples_before = json_integer(state, "samples", 0);
    run->seconds_before = json_number(state, "seconds", 0);
    run->epoch = (struct tally){
        .loss = json_number(state, "epoch_loss", 0),
        .correct = json_number(state, "epoch_correct", 0),
        .seconds = json_number(state, "epoch_seconds", 0),
        .samples = json_integer(state, "epoch_samples", 0),
    };
    run->epoch.weight = json_integer(state, "epoch_weight", run->epoch.samples);
    if (strcmp(json_text(state, "isa", kernel_isa()), kernel_isa()) != 0 ||
        strcmp(json_text(state, "choices", ""), kernel_choices_hash(run->job->choices)) != 0)
        log_line(LOG_WARNING,
                 "%s was saved with other kernels: the result will differ in its last "
                 "bits from an uninterrupted run",
                 checkpoint_path(run->checkpoint));
    const char *data = run->job->train->fingerprint;
    if (strcmp(json_text(state, "data", data), data) != 0)
        log_line(LOG_WARNING, "%s was saved while training on other data than %s",
                 checkpoint_path(run->checkpoint), run->job->train->path);
    const char *now = augment_print(&run->job->augment, text_now);
    const char *then = json_text(state, "augment", "none");
    if (strcmp(then, now) != 0)
        log_line(LOG_WARNING, "%s was saved while training with augmentation %s, now it is %s",
                 checkpoint_path(run->checkpoint), then, now);
    json_destroy(json);
    return STATUS_OK;
}

static enum status resume_from(struct run *run)
{
    char *folder;

    TRY(file_join(run->job->settings.out, "checkpoint", &folder));
    enum status status = checkpoint_load(folder, &run->checkpoint);
    mem_free(folder);
    if (status == STATUS_NOT_FOUND) { /* it died before its first checkpoint: begin again */
        TRY(open_init(run));
        return keeps_folder() ? folder_continue(run->job, run->hooks, 0) : STATUS_OK;
    }
    TRY(status);
    TRY(read_state(run));
    if (weights_check(run->job->graph, checkpoint_weights(run->checkpoint)) != STATUS_OK)
        return FAIL(STATUS_MISMATCH, "%s: %s", checkpoint_path(run->checkpoint),
                    status_message());
    if ((int64_t)run->first_step >= run->job->total_steps)
        return FAIL(STATUS_USAGE,
                    "%s has done all of its %lld steps: raise --epochs or --steps",
                    run->job->settings.out, (long long)run->job->total_steps);
    log_line(LOG_INFO, "resuming at step %llu from %s", (unsigned long long)run->first_step,
             checkpoint_path(run->checkpoint));
    return keeps_folder() ? folder_continue(run->job, run->hooks, run->first_step) : STATUS_OK;
}

enum status train_resume(struct job *job, const struct train_hooks *hooks,
                         struct train_result *out)
{
    struct run run = { .job = job, .hooks = hooks };

    enum status status = resume_from(&run);
    if (status == STATUS_OK)
        status = launch(&run, out);
    release(&run);
    return status;
}

enum status train_read_settings(const char *folder, struct settings *out)
{
    char *path, *text;
    size_t length;
    struct json *json;

    if (!file_is_folder(folder))
        return FAIL(STATUS_USAGE, "%s is no folder of a run", folder);
    TRY(file_join(folder, "config.json", &path));
    enum status status = file_read(path, 16 << 20, &text, &length);
    if (status == STATUS_NOT_FOUND)
        status = FAIL(STATUS_USAGE, "%s holds no run: it has no config.json", folder);
    if (status == STATUS_OK) {
        status = json_parse(text, length, &json);
        if (status == STATUS_OK) {
            const int64_t format = json_integer(json_root(json), "format", 0);
            settings_init(out);
            status = format == 1 ? settings_read(out, json_root(json))
                                 : FAIL(STATUS_CORRUPT, "format %lld, this program reads 1",
                                        (long long)format);
            json_destroy(json);
        }
        if (status != STATUS_OK)
            status = FAIL(STATUS_CORRUPT, "%s: %s", path, status_message());
        mem_free(text);
    }
    mem_free(path);
    TRY(status);
    if (strlen(folder) >= sizeof out->out)
        return FAIL(STATUS_USAGE, "%s: the path is too long", folder);
    snprintf(out->out, sizeof out->out, "%s", folder);
    out->accumulate = 0; /* the shards that came of it are there */
    return STATUS_OK;
}
