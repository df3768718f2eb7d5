/* SPDX-License-Identifier: MIT */
/* count.c - results of steps, added up as soon as they are known. */
#include <math.h>

#include "base/clock.h"
#include "train/regime.h"

double rank_seconds(const struct rank *rank)
{
    return rank->run->seconds_before + clock_seconds() - rank->began;
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

double rank_rate(const struct rank *rank, const struct tally *t)
{
    const int64_t count = job_predicts_tokens(rank->job) ? t->weight : t->samples;
    return t->seconds > 0 ? (double)count / t->seconds : NAN;
}

struct exec_times rank_times(const struct rank *rank)
{
    return rank->regime->times ? rank->regime->times(rank) : exec_times(rank->exec);
}

void rank_spend(struct rank *rank, double seconds)
{
    rank->line.tally.seconds += seconds;
    rank->epoch.seconds += seconds;
}

void rank_count_batch(struct rank *rank, const struct batch *batch)
{
    rank->counts.samples += batch->samples;
    rank->counts.tokens += batch->weight;
}

enum status rank_check_loss(const struct rank *rank, const struct exec_result *result)
{
    return isfinite(result->loss)
               ? STATUS_OK
               : FAIL(STATUS_MISMATCH,
                      "the loss is not a finite number at step %llu: lower --lr, or "
                      "use --clip 1 or --warmup",
                      (unsigned long long)rank->known);
}

static void add(struct tally *tally, const struct exec_result *result)
{
    tally->loss += result->loss * (double)result->weight;
    tally->correct += result->correct;
    tally->samples += result->samples;
    tally->weight += result->weight;
}

enum status rank_add_result(struct rank *rank, const struct exec_result *result)
{
    TRY(rank_check_loss(rank, result));
    rank->known++;
    add(&rank->line.tally, result);
    add(&rank->epoch, result);
    return STATUS_OK;
}

enum status rank_take_late(struct rank *rank, bool all)
{
    struct exec_result result;
    bool taken = true;

    while (taken) {
        const double begin = clock_seconds();
        TRY(exec_take_result(rank->exec, all, &result, &taken));
        const double seconds = clock_seconds() - begin;
        rank_spend(rank, seconds);
        if (taken)
            TRY(rank->regime->late_result(rank, &result, seconds));
    }
    return STATUS_OK;
}
