/* SPDX-License-Identifier: MIT */
/* schedule.h - in which order a stage of a pipeline works on its shards: plain data, and what follows from it.
 *
 * The forward graph is cut into stages * chunks pieces in a row; piece g belongs to stage g % stages and is its chunk
 * g / stages. A shard goes through all pieces forward, then back. A schedule lists, for one stage, the pieces
 * of work it does one after the other. Whatever the kind, each chunk sees the shards in ascending order,
 * forward and backward: so sums along the tree of shards are those of one rank.
 *
 *   gpipe         all forward, then all backward
 *   1f1b          as few forward as keep the later stages busy, then one forward, one backward
 *   interleaved   as 1f1b, with several chunks a stage: less idle time, more messages
 *
 * (Huang et al. 2019; Narayanan et al. 2019; Narayanan et al. 2021, section 2.2)
 */
#ifndef PASS_SCHEDULE_H
#define PASS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum pipe_kind { PIPE_GPIPE, PIPE_1F1B, PIPE_INTERLEAVED, PIPE_KINDS };
extern const char *const pipe_kind_names[PIPE_KINDS];

enum { PIPE_STAGES = 64, PIPE_CHUNKS = 16 };

struct pipe_config {
    enum pipe_kind kind;
    int stages, chunks; /* chunks of a stage: 1 unless interleaved */
    int64_t shards;     /* that go through the pipeline in a step */
};

struct pipe_action {
    bool is_backward;
    int chunk;
    int64_t shard;
};

/* Refuses numbers that no schedule of that kind has; the text says why. */
MUST_CHECK enum status pipe_check(const struct pipe_config *config);

/* How many actions a stage has in a step. */
int64_t pipe_count(const struct pipe_config *config);
/* Those of one stage, in order: out has room for pipe_count. config has been checked. */
void pipe_schedule(const struct pipe_config *config, int stage, struct pipe_action *out);
/* The same of an evaluation, which has no backward: half as many. */
void pipe_schedule_forward(const struct pipe_config *config, struct pipe_action *out);

/* Shards that a stage has begun and not ended, at most: each needs memory of its own. count: of actions. */
int64_t pipe_in_flight(const struct pipe_action *actions, int64_t count, int chunks,
                       bool forward_alone);

/* Share of a step in which a stage has nothing to do, if all pieces take as long: (p - 1) / (m v + p - 1). */
double pipe_bubble(const struct pipe_config *config);

/* Seconds of each piece, forward and backward, or of each action; and of a message between two stages. */
struct pipe_times {
    const double *forward, *backward; /* stages * chunks of each */
    double message;
    /* stages * pipe_count, stage after stage: of each action; NULL: those above. */
    const double *actions;
    /* Likewise: so long before its end an action has given what others need of it; NULL: 0. */
    const double *early;
};
/* When an action begins and ends. */
struct pipe_span {
    double begin, end;
};
/* Runs all stages' schedules. spans (may be NULL): stages * pipe_count, stage after stage. Gives how long a step
 * takes; STATUS_MISMATCH if stages would wait for each other for ever. */
MUST_CHECK enum status pipe_simulate(const struct pipe_config *config,
                                     const struct pipe_times *times, struct pipe_span *spans,
                                     double *out_seconds);

#endif /* PASS_SCHEDULE_H */
