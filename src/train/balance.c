/* SPDX-License-Identifier: MIT */
/* balance.c - how many shards each rank has, by its speed.
 *
 * Shards are handed out one after the other (or some at once: one for each of a rank's threads), each to
 * the rank that would be done first with one more. No other way lets the last be done sooner: of 12
 * shards ranks of speeds 2, 1 and 1 get 6, 3 and 3.
 *
 * A measurement makes an executor of one rank with as many shards as it has lanes, on made-up samples, and
 * takes the time that lanes compute: forward, backward, sums of their own; not what they wait for.
 */
#include "train/balance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "exec/exec.h"
#include "train/job.h"
#include "train/made_up.h"

/* Long enough to see a processor that is lent for a share of each tenth of a second. */
enum { STEPS_LEAST = 3 };
static const double ENOUGH_SECONDS = 0.5;

static bool is_auto(const char *text)
{
    return strcmp(text, "auto") == 0;
}

enum status balance_parse(const char *text, int ranks, struct balance *out)
{
    const char *rest = text;
    int count = 0;

    *out = (struct balance){ .is_used = *text, .is_measured = is_auto(text), .grain = 1 };
    if (ranks > BALANCE_RANKS)
        return FAIL(STATUS_USAGE, "--balance: at most %d ranks", BALANCE_RANKS);
    for (int r = 0; r < ranks; r++)
        out->weights[r] = 1;
    if (!out->is_used || out->is_measured)
        return STATUS_OK;
    for (;; rest++, count++) {
        char *end;
        const double weight = strtod(rest, &end);
        if (end == rest || (*end && *end != ',') || !isfinite(weight) || !(weight > 0))
            return FAIL(STATUS_USAGE,
                        "--balance %s: auto, or a number above 0 for each rank: 2,1", text);
        if (count < ranks)
            out->weights[count] = weight;
        rest = end;
        if (!*rest)
            break;
    }
    if (count + 1 != ranks)
        return FAIL(STATUS_USAGE, "--balance %s: %d numbers for %d ranks", text, count + 1,
                    ranks);
    return STATUS_OK;
}

void balance_share(struct balance *balance, int64_t shards, int ranks)
{
    const int64_t grain = balance->grain;
    int64_t counts[BALANCE_RANKS] = { 0 };

    for (int r = 0; r < ranks; r++)
        counts[r] = grain;
    for (int64_t given = ranks * grain; given < shards; given += grain) {
        int first = 0; /* to be done with a grain more */
        for (int r = 1; r < ranks; r++) {
            if ((double)(counts[r] + grain) / balance->weights[r] <
                (double)(counts[first] + grain) / balance->weights[first])
                first = r;
        }
        counts[first] += grain;
    }
    balance->rows[0] = 0;
    for (int r = 0; r < ranks; r++)
        balance->rows[r + 1] = balance->rows[r] + counts[r];
}

/* Measuring ---------------------------------------------------------------------------------- */

/* The seconds that a lane computes for a shard: a mean, as a slow machine may be one that pauses. */
static enum status time_steps(struct exec *exec, struct batch *batch, double *out)
{
    struct exec_result result;
    int count = 0;

    TRY(exec_step(exec, batch, &result)); /* plans, first touch of memory */
    exec_reset_times(exec);
    for (const double began = clock_seconds();
         count < STEPS_LEAST || clock_seconds() - began < ENOUGH_SECONDS; count++) {
        batch->step++;
        TRY(exec_step(exec, batch, &result));
    }
    *out = exec_times(exec).compute / exec_lanes(exec) / count;
    return STATUS_OK;
}

/* As a rank of its own, with a shard a lane. */
static enum status time_shard(const struct job *job, struct comm *alone, double *out)
{
    const struct settings *s = &job->settings;
    const int lanes = exec_lanes_of(s->shards, (int)s->ranks, (int)s->threads);
    const int64_t samples = s->batch / s->shards * lanes;
    const struct exec_config config = {
        .train = job->graph,
        .comm = alone,
        .threads = (int)s->threads,
        .shards = lanes,
        .batch = samples,
        .seed = s->seed,
        .choices = job->choices,
        .optim = job->optim,
    };
    struct exec *exec = NULL;
    struct batch batch = { 0 };

    enum status status = exec_create(&config, &exec);
    if (status == STATUS_OK)
        status = exec_init_params(exec);
    if (status == STATUS_OK)
        status = made_up_batch(job, samples, 0, samples, &batch);
    if (status == STATUS_OK)
        status = time_steps(exec, &batch, out);
    made_up_release(&batch);
    exec_destroy(exec);
    return status;
}

static enum status time_alone(const struct job *job, double *out)
{
    struct transport *end;
    struct comm *alone = NULL;

    TRY(transport_inproc_create(1, &end));
    enum status status = comm_create(end, NULL, &alone);
    if (status == STATUS_OK)
        status = time_shard(job, alone, out);
    comm_destroy(alone);
    transport_inproc_destroy(&end, 1);
    return status;
}

enum status balance_measure(struct job *job, struct comm *comm)
{
    struct balance *balance = &job->balance;
    const int ranks = comm_size(comm);
    double mine = 1, seconds[BALANCE_RANKS];

    if (!balance->is_measured)
        return STATUS_OK;
    TRY(comm_barrier(comm)); /* so that ranks of one machine disturb each other as they will */
    TRY(time_alone(job, &mine));
    TRY(comm_all_gather(comm, &mine, seconds, 1, DTYPE_F64));
    for (int r = 0; r < ranks; r++) {
        balance->weights[r] = 1 / seconds[r];
        if (comm_rank(comm) == 0)
            log_line(LOG_INFO, "rank %d: %.3f ms a shard", r, 1e3 * seconds[r]);
    }
    balance_share(balance, job->settings.shards, ranks);
    return STATUS_OK;
}
