/* SPDX-License-Identifier: MIT */
/* talk.h - what a lane does together with the ranks that share its layers. Private to exec/.
 *
 * Lanes of the same number on these ranks run the same shards at about the same time, and talk through
 * memory that they share (talk_shared.c), or by messages with a tag of their own. Threads: a lane's own.
 */
#ifndef EXEC_TALK_H
#define EXEC_TALK_H

#include "kernel/kernel.h"

struct exec;
struct lane;

/* Ranks that share layers, at most. */
enum { TALK_RANKS = 64 };

/* Bytes of scratch that an op between ranks needs. */
size_t talk_scratch(const struct kernel_problem *problem);
/* Collective over ranks that share layers: makes sure that they fit together. */
MUST_CHECK enum status talk_create(struct exec *exec);
/* Runs an op between ranks; call->scratch has talk_scratch bytes. */
MUST_CHECK enum status lane_talk(struct lane *lane, const struct kernel_call *call);

/* A lane that runs such an op. */
struct talk {
    struct lane *lane;
    const struct kernel_call *call;
    struct transport *transport;
    int ranks, rank;
    uint32_t tag;
};

/* What each rank has. */
struct talk_piece {
    float *data;
    size_t count;
};
struct talk_pieces {
    struct talk_piece of[TALK_RANKS];
};

/* Adds what all ranks have, in their order. out may be one of them. */
void talk_add_in_order(const float *const *summands, int n, float *out, size_t count);

/* Through shared memory: sums of x, which y may be; pieces of all ranks, of which this one's is there; the sum of
 * this rank's piece, each of which all have. */
MUST_CHECK enum status shared_sum(const struct talk *talk, const float *x, size_t count,
                                  float *y);
MUST_CHECK enum status shared_gather(const struct talk *talk, const struct talk_pieces *pieces);
MUST_CHECK enum status shared_sum_slices(const struct talk *talk,
                                         const struct talk_pieces *pieces, float *y);

#endif /* EXEC_TALK_H */
