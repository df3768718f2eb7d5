/* SPDX-License-Identifier: MIT */
/* strategy.c - the presets, each a list of passes read top to bottom. */
#include "pass/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct pass *const single_passes[] = {
    &pass_fuse,      /* first, so that fused ops are differentiated as one */
    &pass_sync_norm, /* statistics of all shards, if asked: they must be differentiated as such */
    &pass_autodiff,    /* gradients of what is left */
    &pass_delay,       /* as late as memory gains by it */
    &pass_recompute,   /* what backward need not find, if asked */
    &pass_bucket,      /* they get their places in flat ranges */
    &pass_split_batch, /* one shard's graph, and the sums over shards */
    &pass_update,      /* the whole step for one device */
    NULL,
};

static const struct
    pass
        *const
            mirrored_passes
                [] = {
                    &pass_fuse,
                    &pass_sync_norm,
                    &pass_autodiff,
                    &pass_delay,
                    &pass_recompute,
                    &pass_bucket,
                    &pass_split_batch,
                    &pass_update,
                    &pass_mirror, /* a whole step for one device becomes each rank's */
                    &pass_zero,   /* last: parameters in parts, if asked */
                    NULL,
                };

static const struct strategy single = {
    .name = "single",
    .summary = "one process, as many threads as you like",
    .known_as = "one device",
    .split = "dp=1",
    .sync = "step",
    .meet = "none",
    .passes = single_passes,
};

static const struct strategy mirrored = {
    .name = "mirrored",
    .summary = "ranks of one machine, gradients summed every step",
    .known_as = "TF MirroredStrategy, PyTorch DDP on one node",
    .split = "dp=n",
    .sync = "step",
    .meet = "allreduce",
    .many_ranks = true,
    .passes = mirrored_passes,
};

static const struct strategy multiworker = {
    .name = "multiworker",
    .summary = "ranks of many machines, gradients summed every step, within a machine first",
    .known_as = "TF MultiWorkerMirroredStrategy, PyTorch DDP, Horovod",
    .split = "dp=n",
    .sync = "step",
    .meet = "allreduce",
    .many_ranks = true,
    .many_nodes = true,
    .passes = mirrored_passes,
};

const struct strategy *const strategy_table[] = { &single, &mirrored, &multiworker, NULL };

const struct strategy *strategy_find(const char *name)
{
    for (int i = 0; strategy_table[i]; i++) {
        if (strcmp(strategy_table[i]->name, name) == 0)
            return strategy_table[i];
    }
    return NULL;
}

static enum status check_axis(const struct strategy *strategy, const char *axis,
                              const char *own, const char *asked)
{
    if (!asked || strcmp(asked, own) == 0)
        return STATUS_OK;
    return FAIL(STATUS_USAGE, "--%s %s: strategy %s works with %s %s alone", axis, asked,
                strategy->name, axis, own);
}

enum status strategy_check(const struct strategy *strategy, int ranks, const char *split,
                           const char *sync, const char *meet)
{
    char own_split[32];

    if (ranks < 1)
        return FAIL(STATUS_USAGE, "-n %d: at least one rank is needed", ranks);
    if (ranks > 1 && !strategy->many_ranks)
        return FAIL(STATUS_USAGE,
                    "strategy %s runs on one rank, not on %d: use --strategy mirrored",
                    strategy->name, ranks);
    snprintf(own_split, sizeof own_split, "dp=%d", ranks);
    TRY(check_axis(strategy, "split", own_split, split));
    TRY(check_axis(strategy, "sync", strategy->sync, sync));
    return check_axis(strategy, "meet", strategy->meet, meet);
}
