/* SPDX-License-Identifier: MIT */
/* talk.h - what a lane does together with the ranks that share its layers. Private to exec/.
 *
 * Lanes of the same number on these ranks run the same shards at about the same time, and talk
 * through memory that they share (talk_shared.c), or by messages with a tag of their own. Threads:
 * a lane's own.
 */
#ifndef EXEC_TALK_H
#define EXEC_TALK_H

#include "kernel/joint.h"

struct exec_config;
struct exec_now;
struct exec_topology;
struct lane;
struct lane_clock;
struct program;

/* Ranks that share layers, at most. */
enum { TALK_RANKS = JOINT_RANKS };

/* A lane's state for these exchanges. */
struct lane_tensor {
    const struct exec_config *config;
    int index, lanes; /* of this rank: this one, all */
    uint32_t tag;
    uint32_t said; /* blocks (talk_shared.c) */
};

/* Bytes of scratch that an op between ranks needs. */
size_t talk_scratch(const struct kernel_problem *problem);
/* Collective over ranks that share layers: makes sure that they fit together. Gives the tag of the
 * first lane; others follow. */
MUST_CHECK enum status talk_create(const struct exec_config *config,
                                   const struct exec_topology *topology, bool adapts,
                                   uint32_t *tags);
/* Likewise, when the step program is there: all of them run the same exchanges in the same order. */
MUST_CHECK enum status talk_verify(const struct program *program,
                                   const struct exec_config *config, uint32_t tag);
/* Runs an op between ranks; call->scratch has talk_scratch bytes. */
MUST_CHECK enum status lane_talk(struct lane *lane, const struct kernel_call *call);

/* A lane that runs such an op. */
struct talk {
    struct lane_tensor *own;
    struct lane_clock *clock;
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

/* A value's extents in the order in which they lie, and its slice of them; slice r of a whole value
 * that lies so: its shape. */
struct talk_lying {
    struct shape shape;
    struct shape_slice slice;
};
struct talk_lying talk_lying_of(const struct kernel_tensor *tensor,
                                const struct shape_slice *slice);
struct shape talk_shape_of(struct talk_lying *whole, int r);
/* Of tp_ids: the rows that are this rank's, of the last one all that follow. */
struct talk_rows {
    int64_t begin, end;
};
struct talk_rows talk_rows_of(const struct shape_slice *slice);

/* Adds what all ranks have, in their order. out may be one of them. */
void talk_add_in_order(const float *const *summands, int n, float *out, size_t count);

/* Through shared memory: sums of x, which y may be; pieces of all ranks, of which this one's is
 * there; the sum of this rank's piece, each of which all have. */
MUST_CHECK enum status shared_sum(const struct talk *talk, const float *x, size_t count,
                                  float *y);
MUST_CHECK enum status shared_gather(const struct talk *talk, const struct talk_pieces *pieces);
MUST_CHECK enum status shared_sum_slices(const struct talk *talk,
                                         const struct talk_pieces *pieces, float *y);

#endif /* EXEC_TALK_H */
