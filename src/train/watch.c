/* SPDX-License-Identifier: MIT */
/* watch.c - sums of all ranks' time, gathered by rank 0.
 *
 * A rank is a straggler if in each of INTERVALS intervals in a row others waited for it more than
 * SHARE of the time and RATIO times as long as for any other rank: chance hits ranks in turn, a slow
 * machine hits one.
 */
#include "train/watch.h"

#include <math.h>
#include <stdio.h>

#include "base/mem.h"

enum { INTERVALS = 4, NUMBERS = 8 };

static const double least_share = 0.1, least_ratio = 3;

struct watch {
    struct transport *transport;
    uint32_t tag;
    int rank, ranks, lanes;
    double *numbers; /* of each rank: NUMBERS sums, then what it waited for each rank */
    double *before;  /* the same at the last call of watch_next */
    double *mine;    /* one rank's, to be sent */
    double *waited_for;
    int slowest, in_a_row;
    bool *was_named; /* of each rank */
};

static size_t length_of(const struct watch *watch)
{
    return NUMBERS + (size_t)watch->ranks;
}

enum status watch_create(struct transport *transport, int lanes, struct watch **out)
{
    struct watch *watch;

    TRY(mem_alloc(1, sizeof *watch, &watch));
    watch->transport = transport;
    watch->tag = transport_new_tags(transport, 1);
    watch->rank = transport_rank(transport);
    watch->ranks = transport_size(transport);
    watch->lanes = lanes;
    watch->slowest = -1;
    const size_t all = watch->rank == 0 ? (size_t)watch->ranks : 0, length = length_of(watch);
    enum status status = mem_alloc(length, sizeof(double), &watch->mine);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)watch->ranks, sizeof(double), &watch->waited_for);
    if (status == STATUS_OK)
        status = mem_alloc(all * length, sizeof(double), &watch->numbers);
    if (status == STATUS_OK)
        status = mem_alloc(all * length, sizeof(double), &watch->before);
    if (status == STATUS_OK)
        status = mem_alloc(all, sizeof(bool), &watch->was_named);
    if (status != STATUS_OK) {
        watch_destroy(watch);
        return status;
    }
    *out = watch;
    return STATUS_OK;
}

void watch_destroy(struct watch *watch)
{
    if (!watch)
        return;
    mem_free(watch->mine);
    mem_free(watch->waited_for);
    mem_free(watch->numbers);
    mem_free(watch->before);
    mem_free(watch->was_named);
    mem_free(watch);
}

enum status watch_collect(struct watch *watch, const struct exec *exec, double load)
{
    const struct exec_times times = exec_times(exec);

    exec_waited_for(exec, watch->waited_for);
    return watch_bring(watch, &times, watch->waited_for, load);
}

enum status watch_bring(struct watch *watch, const struct exec_times *t,
                        const double *waited_for, double load)
{
    const double lanes = watch->lanes;
    const double sums[NUMBERS] = {
        t->compute / lanes,
        t->comm / lanes,
        t->wait / lanes,
        t->evaluate / lanes,
        load,
        t->wire,
        t->hidden / lanes + t->wire_hidden,
        t->bytes,
    };
    const size_t bytes = length_of(watch) * sizeof(double);
    double *mine = watch->rank == 0 ? watch->numbers : watch->mine;

    for (int i = 0; i < NUMBERS; i++)
        mine[i] = sums[i];
    for (int r = 0; r < watch->ranks; r++)
        mine[NUMBERS + r] = waited_for[r] / lanes;
    if (watch->rank != 0)
        return transport_send(watch->transport, 0, watch->tag, mine, bytes);
    for (int r = 1; r < watch->ranks; r++)
        TRY(transport_receive(watch->transport, r, watch->tag,
                              watch->numbers + (size_t)r * length_of(watch), bytes));
    return STATUS_OK;
}

static struct watch_rank rank_in(const struct watch *watch, const double *numbers, int rank)
{
    const double *n = numbers + (size_t)rank * length_of(watch);
    struct watch_rank out = { n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], 0 };

    for (int r = 0; r < watch->ranks; r++) {
        if (r != rank)
            out.made_wait += numbers[(size_t)r * length_of(watch) + NUMBERS + (size_t)rank];
    }
    return out;
}

struct watch_rank watch_rank(const struct watch *watch, int rank)
{
    return rank_in(watch, watch->numbers, rank);
}

/* Notes who was slowest, and for how many intervals in a row by far. */
static void note_slowest(struct watch *watch, int slowest, double share, double next_share)
{
    const bool stands_out =
        slowest >= 0 && share > least_share && share > least_ratio * next_share;

    watch->in_a_row = !stands_out ? 0 : slowest == watch->slowest ? watch->in_a_row + 1 : 1;
    watch->slowest = slowest;
}

double watch_share(double part, double whole)
{
    return whole > 0 ? fmin(fmax(part / whole, 0), 1) : (double)NAN;
}

struct watch_interval watch_next(struct watch *watch, double seconds)
{
    struct watch_interval out = { .hidden_share = NAN, .slowest = -1, .slowest_share = NAN };
    double comm = 0, hidden = 0, most = 0, next = 0;

    for (int r = 0; r < watch->ranks; r++) {
        const struct watch_rank now = rank_in(watch, watch->numbers, r);
        const struct watch_rank then = rank_in(watch, watch->before, r);
        const double made_wait = now.made_wait - then.made_wait;
        comm += now.comm - then.comm + now.wire - then.wire;
        hidden += now.hidden - then.hidden;
        out.bytes += now.bytes - then.bytes;
        if (made_wait > most) {
            next = most;
            most = made_wait;
            out.slowest = r;
        } else if (made_wait > next) {
            next = made_wait;
        }
    }
    if (comm > 0)
        out.hidden_share = watch_share(hidden, comm);
    if (out.slowest >= 0 && seconds > 0) {
        const double whole = seconds * (watch->ranks - 1);
        out.slowest_share = watch_share(most, whole);
        note_slowest(watch, out.slowest, most / whole, next / whole);
    }
    for (size_t i = 0; i < (size_t)watch->ranks * length_of(watch); i++)
        watch->before[i] = watch->numbers[i];
    return out;
}

int watch_straggler(struct watch *watch)
{
    if (watch->in_a_row < INTERVALS || watch->was_named[watch->slowest])
        return -1;
    watch->was_named[watch->slowest] = true;
    return watch->slowest;
}
