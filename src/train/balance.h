/* SPDX-License-Identifier: MIT */
/* balance.h - how many shards each rank has, by its speed. Private to train/.
 *
 * On machines of uneven speed a step takes as long as the slowest rank's shards. Ranks have shards in a
 * row; how many is free, and changes no bit (kernel/tree.h).
 */
#ifndef TRAIN_BALANCE_H
#define TRAIN_BALANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "comm/comm.h"

enum { BALANCE_RANKS = 1024 };

struct job;

struct balance {
    bool is_used, is_measured;       /* by weights; those of a measurement at start */
    double weights[BALANCE_RANKS];   /* shards in a given time, of each rank; any unit */
    int64_t rows[BALANCE_RANKS + 1]; /* rank r has shards [rows[r], rows[r + 1]) */
    int64_t grain; /* shards are given in multiples of it: one for each of a rank's threads */
};

/* What --balance says, "" or "auto" or a number a rank: "2,1,1". */
MUST_CHECK enum status balance_parse(const char *text, int ranks, struct balance *out);
/* Gives `shards`, a multiple of the grain, to the ranks, a grain at least, so that the rank which needs longest
 * for its own needs as little as it can. */
void balance_share(struct balance *balance, int64_t shards, int ranks);

/* Collective, before exec_create: if the job's balance is to be measured, every rank times some steps
 * of a shard a lane, all at once, and each then shares shards by what all ranks found. */
MUST_CHECK enum status balance_measure(struct job *job, struct comm *comm);

#endif /* TRAIN_BALANCE_H */
