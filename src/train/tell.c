/* SPDX-License-Identifier: MIT */
/* tell.c - what rank 0 writes during a run: progress, lines of metrics, evaluations. */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/classes.h"
#include "train/loss_scale.h"
#include "train/regime.h"
#include "train/samples.h"

static double tokens_per_s(const struct rank *rank, const struct tally *t)
{
    return job_predicts_tokens(rank->job) ? rank_rate(rank, t) : NAN;
}

/* This interval with the one before: that of a step alone jumps. */
static struct tally two_intervals(const struct rank *rank)
{
    const struct tally *before = &rank->line.before;
    struct tally both = rank->line.tally;

    both.samples += before->samples;
    both.weight += before->weight;
    both.seconds += before->seconds;
    return both;
}

void rank_show_progress(struct rank *rank)
{
    const struct tally *known =
        rank->line.tally.weight ? &rank->line.tally : &rank->line.before;
    const struct tally recent = two_intervals(rank);
    const uint64_t number = rank->step + 1;

    if (!rank->is_first)
        return;
    if (rank->run->hooks->progress)
        progress_update(&rank->progress, number,
                        (double)number / (double)rank->job->steps_per_epoch,
                        rank_mean_loss(known), rank_mean_accuracy(rank, known),
                        rank->regime->rate(rank, &recent));
    if (number == rank->run->first_step + 1)
        rank->result.first_step_s = clock_seconds() - rank->job->began;
}

void rank_note_interval(struct rank *rank, const char *what, int64_t interval, double seconds,
                        double variance)
{
    char text[200];

    snprintf(text, sizeof text,
             "step %llu: %s are %lld steps apart now: one takes %.2f ms, the variance of "
             "parameters is %.2g",
             (unsigned long long)rank->step + 1, what, (long long)interval, 1e3 * seconds,
             variance);
    if (rank->run->hooks->progress)
        progress_note(&rank->progress, text);
    else
        log_line(LOG_INFO, "%s", text);
}

static struct metrics metrics_now(const struct rank *rank, const char *kind)
{
    return (struct metrics){
        .kind = kind,
        .step = rank->step + 1,
        .epoch = (double)(rank->step + 1) / (double)rank->job->steps_per_epoch,
        .samples = rank->counts.samples,
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

void rank_add_watched(struct rank *rank, struct metrics *m)
{
    const double now = clock_seconds();
    const struct watch_interval all = watch_next(rank->watch, now - rank->line.watched_at);

    rank->line.watched_at = now;
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

static enum status tell_interval(struct rank *rank)
{
    const struct regime *regime = rank->regime;

    if (regime->collect_times)
        TRY(regime->collect_times(rank));
    if (regime->sum)
        TRY(regime->sum(rank, &rank->line.tally));
    if (!rank->is_first) {
        rank->line.tally = (struct tally){ 0 };
        return STATUS_OK;
    }
    const struct exec_times now = rank_times(rank), *then = &rank->line.times;
    const double span = rank->line.tally.seconds * exec_lanes(rank->exec);
    struct metrics m = metrics_now(rank, "train");

    m.step = rank->known;
    m.epoch = (double)rank->known / (double)rank->job->steps_per_epoch;
    m.samples = rank->counts.samples - rank->counts.in_flight;
    m.train_loss = rank_mean_loss(&rank->line.tally);
    m.train_accuracy = rank_mean_accuracy(rank, &rank->line.tally);
    m.lr = schedule_lr(&rank->job->optim.schedule, rank->known - 1);
    if (span > 0) {
        m.samples_per_s = (double)rank->line.tally.samples / rank->line.tally.seconds;
        m.tokens_per_s = tokens_per_s(rank, &rank->line.tally);
        m.comm_share = watch_share(now.comm - then->comm, span);
        m.wait_share = watch_share(now.wait - then->wait, span);
        m.load_share = watch_share(rank->load - rank->line.load, rank->line.tally.seconds);
        if (transport_nodes(rank->transport) > 1)
            m.wire_share = watch_share(now.wire - then->wire, rank->line.tally.seconds);
    }
    if (rank->grid && span > 0)
        m.bubble_share = watch_share(now.bubble - then->bubble, span);
    regime->add_metrics(rank, &m);
    TRY(loss_scale_tell(rank->exec, &m));
    rank->line.times = now;
    rank->line.load = rank->load;
    rank->line.tally = (struct tally){ 0 };
    return folder_add_metrics(rank->job, rank->run->hooks, &m);
}

enum status rank_tell_if_due(struct rank *rank)
{
    const bool is_last = (int64_t)rank->known == rank->job->total_steps;
    const bool ends = rank->known % (uint64_t)rank->job->settings.log_every == 0;

    if (rank->line.told == rank->known || !(ends || is_last))
        return STATUS_OK;
    rank->line.told = rank->known;
    rank->line.before = rank->line.tally;
    return tell_interval(rank);
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

enum status rank_evaluate(struct rank *rank)
{
    struct metrics m = metrics_now(rank, "eval");
    struct tally epoch = rank->epoch;
    struct exec_result result;
    const double begin = clock_seconds();
    const int64_t traced = trace_begin_rare(rank->tracing.row);

    TRY(exec_evaluate(rank->exec, rank->job->test, &result));
    trace_end(rank->tracing.row, traced, TRACE_EVALUATE, "evaluate", NULL);
    m.eval_seconds = clock_seconds() - begin;
    if (rank->regime->sum)
        TRY(rank->regime->sum(rank, &epoch));
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
