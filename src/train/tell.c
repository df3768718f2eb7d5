/* SPDX-License-Identifier: MIT */
/* tell.c - what rank 0 tells on the way: lines of metrics, evaluations, checkpoints. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/classes.h"
#include "train/loss_scale.h"
#include "train/rank.h"
#include "train/samples.h"

double rank_seconds(const struct rank *rank)
{
    return rank->run->seconds_before + clock_seconds() - rank->began;
}

void rank_add(struct tally *tally, const struct exec_result *result)
{
    tally->loss += result->loss * (double)result->weight;
    tally->correct += result->correct;
    tally->samples += result->samples;
    tally->weight += result->weight;
}

double rank_mean_loss(const struct tally *t)
{
    return t->weight ? t->loss / (double)t->weight : NAN;
}

double rank_mean_accuracy(const struct rank *rank, const struct tally *t)
{
    const bool counts = graph_roles(rank->job->graph)->correct != NULL;
    return counts && t->weight ? t->correct / (double)t->weight : NAN;
}

/* What progress shows: samples a second, or tokens. */
double rank_rate(const struct rank *rank, const struct tally *t)
{
    const int64_t count = job_predicts_tokens(rank->job) ? t->weight : t->samples;
    return t->seconds > 0 ? (double)count / t->seconds : NAN;
}

double rank_copies(const struct rank *rank)
{
    return rank->own.local
               ? (double)rank->job->settings.shards / (double)exec_shard_count(rank->exec)
               : 1;
}

static double tokens_per_s(const struct rank *rank, const struct tally *t)
{
    return job_predicts_tokens(rank->job) ? rank_rate(rank, t) : NAN;
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

/* With servers: what they have comes to worker 0; of a center, until served_give_back. */
static enum status bring(struct rank *rank)
{
    struct served *served = rank->own.served;

    if (!served)
        return STATUS_OK;
    return served_seen(served) ? served_lend_center(served) : served_collect(served);
}

/* What is saved beside tensors. */
static enum status print_state(const struct rank *rank, const struct tally *epoch,
                               struct strbuf *state)
{
    char augment[AUGMENT_TEXT];

    const struct settings *s = &rank->job->settings;

    strbuf_printf(state,
                  "{\"step\": %llu, \"batch\": %lld, \"shards\": %lld, \"seed\": \"%llu\", "
                  "\"shuffle\": %s, \"drop_last\": %s, \"samples\": %lld, \"seconds\": ",
                  (unsigned long long)rank->step + 1, (long long)s->batch, (long long)s->shards,
                  (unsigned long long)s->seed, s->shuffle ? "true" : "false",
                  s->drop_last ? "true" : "false", (long long)rank->samples);
    strbuf_add_number(state, rank_seconds(rank));
    strbuf_printf(state, ", \"epoch_samples\": %lld, \"epoch_weight\": %lld, \"epoch_loss\": ",
                  (long long)epoch->samples, (long long)epoch->weight);
    strbuf_add_number(state, epoch->loss);
    strbuf_add(state, ", \"epoch_correct\": ");
    strbuf_add_number(state, epoch->correct);
    strbuf_add(state, ", \"epoch_seconds\": ");
    strbuf_add_number(state, epoch->seconds);
    if (rank->own.local)
        local_print(rank->own.local, state);
    TRY(loss_scale_print(rank->exec, state));
    strbuf_printf(state,
                  ", \"isa\": \"%s\", \"choices\": \"%s\", \"data\": \"%s\", "
                  "\"augment\": \"%s\"}",
                  kernel_isa(), kernel_choices_hash(rank->job->choices),
                  rank->job->train->fingerprint, augment_print(&rank->job->augment, augment));
    return strbuf_status(state);
}

/* Rank 0 writes; tensors that stream come from the others meanwhile. */
static enum status write_checkpoint(struct rank *rank, const struct tally *epoch)
{
    const struct settings *s = &rank->job->settings;
    const uint64_t step = rank->step + 1;
    struct strbuf state;
    char *folder;

    strbuf_init(&state, 64 << 10);
    enum status status = print_state(rank, epoch, &state);
    if (status == STATUS_OK)
        status = file_join(s->out, "checkpoint", &folder);
    if (status == STATUS_OK) {
        status =
            rank_streams(rank)
                ? weights_stream(rank->copy, rank->exec, folder, step, state.text, (int)s->keep)
                : weights_copy_save(rank->copy, folder, step, state.text, (int)s->keep);
        mem_free(folder);
    }
    strbuf_release(&state);
    TRY(status);
    rank->run->shared->saved_step = (int64_t)step;
    run_note_saved(rank->run);
    return STATUS_OK;
}

enum status rank_save(struct rank *rank)
{
    const int64_t traced = trace_begin_rare(rank->row);
    struct tally epoch = rank->epoch;

    rank->is_owed = false;
    if (rank_streams(rank)) {
        TRY(exec_settle(rank->exec));
        TRY(bring(rank));
        TRY(rank->is_first ? write_checkpoint(rank, &epoch)
            : rank->grid   ? grid_serve(rank->grid, rank->exec)
                           : weights_stream(NULL, rank->exec, NULL, 0, NULL, 0));
        TRY(exec_settle(rank->exec));
        rank->saved_at = clock_seconds();
        trace_end(rank->row, traced, TRACE_CHECKPOINT, "write a checkpoint", NULL);
        return STATUS_OK;
    }
    TRY(exec_collect(rank->exec));
    TRY(bring(rank));
    if (rank->is_first)
        weights_copy_take(rank->copy, rank->exec);
    if (rank->own.served)
        served_give_back(rank->own.served);
    if (rank->own.local) {
        TRY(local_sum(rank->own.local, &epoch));
        TRY(take_workers(rank));
    }
    TRY(exec_settle(rank->exec)); /* from here on the others may go on */
    rank->saved_at = clock_seconds();
    if (!rank->is_first)
        return STATUS_OK;
    TRY(write_checkpoint(rank, &epoch));
    trace_end(rank->row, traced, TRACE_CHECKPOINT, "write a checkpoint", NULL);
    return STATUS_OK;
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
        .val_auc = NAN,
        .val_calibration_error = NAN,
        .lr = NAN,
        .seconds = rank_seconds(rank),
        .epoch_seconds = NAN,
        .eval_seconds = NAN,
        .samples_per_s = NAN,
        .tokens_per_s = NAN,
        .perplexity = NAN,
        .comm_share = NAN,
        .wait_share = NAN,
        .bubble_share = NAN,
        .load_share = NAN,
        .hidden_share = NAN,
        .wire_share = NAN,
        .bytes_sent = NAN,
        .slowest_rank = NAN,
        .slowest_share = NAN,
        .sync_interval = NAN,
        .param_variance = NAN,
        .clock_spread = NAN,
        .loss_scale = NAN,
        .skipped_steps = NAN,
    };
}

/* Sums of this rank's lanes so far, what they had before they parted from others and meetings included. */
struct exec_times rank_times(const struct rank *rank)
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
enum status rank_collect_times(struct rank *rank)
{
    const struct own *own = &rank->own;

    if (own->served)
        return STATUS_OK; /* nobody waits for the others to tell */
    if (!own->local)
        return grid_collect_times(rank->grid, rank->watch, rank->exec, rank->load);
    const struct exec_times times = rank_times(rank);
    const struct local_times met = local_times(own->local);
    for (int r = 0; r < comm_size(rank->comm); r++)
        own->waited_for[r] = own->waited_before[r] + met.waited_for[r] * exec_lanes(rank->exec);
    return watch_bring(rank->watch, &times, own->waited_for, rank->load);
}

/* What all ranks together did since the last line. */
static void add_all_ranks(struct rank *rank, struct metrics *m)
{
    const double now = clock_seconds();
    const struct watch_interval all = watch_next(rank->watch, now - rank->watched_at);

    rank->watched_at = now;
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
        m->wait_share = watch_share(m->wait_share, 1);
        m->wire_share = watch_share(now.move - then.move, rank->interval.seconds);
    }
    m->bytes_sent = now.bytes - then.bytes;
    m->clock_spread = own->spread;
    const struct elastic_seen *seen = served_seen(own->served);
    if (seen) {
        m->sync_interval = (double)seen->interval;
        m->param_variance = seen->distance;
    }
    own->served_times = now;
}

/* Collective, but with servers; rank 0 writes the line. */
enum status rank_tell_interval(struct rank *rank)
{
    TRY(rank_collect_times(rank));
    if (rank->own.local)
        TRY(local_sum(rank->own.local, &rank->interval));
    if (!rank->is_first) {
        rank->interval = (struct tally){ 0 };
        return STATUS_OK;
    }
    const struct exec_times now = rank_times(rank), *then = &rank->interval_times;
    const double span = rank->interval.seconds * exec_lanes(rank->exec);
    struct metrics m = metrics_now(rank, "train");

    m.step = rank->known;
    m.epoch = (double)rank->known / (double)rank->job->steps_per_epoch;
    m.samples = rank->samples - rank->in_flight;
    m.train_loss = rank_mean_loss(&rank->interval);
    m.train_accuracy = rank_mean_accuracy(rank, &rank->interval);
    m.lr = schedule_lr(&rank->job->optim.schedule, rank->known - 1);
    if (span > 0) {
        m.samples_per_s = (double)rank->interval.samples / rank->interval.seconds;
        m.tokens_per_s = tokens_per_s(rank, &rank->interval);
        m.comm_share = watch_share(now.comm - then->comm, span);
        m.wait_share = watch_share(now.wait - then->wait, span);
        m.load_share = watch_share(rank->load - rank->interval_load, rank->interval.seconds);
        if (transport_nodes(rank->transport) > 1)
            m.wire_share = watch_share(now.wire - then->wire, rank->interval.seconds);
    }
    if (rank->grid && span > 0)
        m.bubble_share = watch_share(now.bubble - then->bubble, span);
    if (rank->own.served)
        add_served(rank, &m);
    else
        add_all_ranks(rank, &m);
    if (rank->own.local) {
        m.sync_interval = (double)rank->own.met.interval;
        m.param_variance = rank->own.met.variance;
    }
    TRY(loss_scale_tell(rank->exec, &m));
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
    char text[320], train[96], validation[96];

    print_score(rank, train, m->train_loss, m->train_accuracy);
    print_score(rank, validation, m->val_loss, m->val_accuracy);
    const bool trained = !isnan(m->train_loss); /* else other ranks have had all its samples */
    snprintf(text, sizeof text, "epoch %-3.4g %s%s%svalidation %s   %.2f s", m->epoch,
             trained ? "training " : "", trained ? train : "", trained ? "   " : "", validation,
             m->epoch_seconds);
    progress_note(&rank->progress, text);
}

/* Rank 0 writes, and lets the model speak, for which it needs all parameters. */
static enum status tell_evaluation(struct rank *rank, const struct metrics *m)
{
    const bool speaks = samples_are_made(rank->job) && !rank->grid; /* no rank has all layers */

    if (rank->is_first && rank->run->hooks->progress)
        note_evaluation(rank, m);
    if (rank->is_first)
        TRY(folder_add_metrics(rank->job, rank->run->hooks, m));
    if (speaks)
        TRY(exec_make_whole(rank->exec));
    if (speaks && rank->is_first)
        TRY(samples_add(rank->job, rank->exec, rank->run->hooks, m->step, m->epoch));
    return speaks ? exec_make_parts(rank->exec) : STATUS_OK;
}

/* How well the probabilities of the last evaluation are; rank 0 tells it. */
static enum status add_quality(const struct rank *rank, struct metrics *m)
{
    struct quality quality;

    if (!rank->is_first)
        return STATUS_OK;
    TRY(classes_quality(rank->exec, rank->job->test, &quality));
    m->val_auc = quality.auc;
    m->val_calibration_error = quality.calibration_error;
    return STATUS_OK;
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
    m.train_loss = rank->result.train_loss = rank_mean_loss(&epoch);
    m.train_accuracy = rank->result.train_accuracy = rank_mean_accuracy(rank, &epoch);
    if (result.samples && !isfinite(result.loss))
        return FAIL(
            STATUS_MISMATCH,
            "the validation loss is not a finite number after step %llu: lower --lr, or use "
            "--clip 1 or --warmup",
            (unsigned long long)m.step);
    if (result.samples) {
        m.val_loss = result.loss;
        m.val_accuracy = graph_roles(rank->job->eval_graph)->correct
                             ? result.correct / (double)result.weight
                             : NAN;
        m.perplexity = job_predicts_tokens(rank->job) ? exp(m.val_loss) : NAN;
        m.val_top5 = classes_top5(rank->exec, &result);
        TRY(add_quality(rank, &m));
    }
    m.seconds = rank_seconds(rank);
    m.epoch_seconds = epoch.seconds;
    m.samples_per_s = epoch.seconds > 0 ? (double)epoch.samples / epoch.seconds : NAN;
    m.tokens_per_s = tokens_per_s(rank, &epoch);
    rank->result.perplexity = m.perplexity;
    rank->result.val_loss = m.val_loss;
    rank->result.val_accuracy = m.val_accuracy;
    rank->result.val_top5 = m.val_top5;
    rank->result.val_auc = m.val_auc;
    rank->result.val_calibration_error = m.val_calibration_error;
    return tell_evaluation(rank, &m);
}

enum status rank_evaluate(struct rank *rank)
{
    if (rank->own.served) {
        TRY(served_lend_center(rank->own.served));
        TRY(evaluate_these(rank));
        served_give_back(rank->own.served);
        return STATUS_OK;
    }
    if (!rank->own.local)
        return evaluate_these(rank);
    TRY(local_lend_mean(rank->own.local));
    TRY(evaluate_these(rank));
    local_give_back(rank->own.local);
    return STATUS_OK;
}
