/* SPDX-License-Identifier: MIT */
/* strategy.h - ways of distributing training: names people know, as lists of passes.
 *
 * Three choices describe a strategy: how work is split, when copies must agree, where they
 * meet. A preset names a combination; --split, --sync and --meet refine it.
 */
#ifndef PASS_STRATEGY_H
#define PASS_STRATEGY_H

#include "pass/pass.h"
#include "pass/schedule.h"

enum axes_sync { SYNC_STEP, SYNC_ASYNC, SYNC_BOUNDED, SYNC_ELASTIC, SYNC_LOCAL, SYNC_GOSSIP };
enum axes_meet { MEET_NONE, MEET_ALLREDUCE, MEET_PS, MEET_CENTRAL, MEET_PARALLAX };

/* The three choices as read from their texts: nobody else reads those. */
struct axes {
    int dp; /* split: data-parallel workers */
    int tp,
        pp; /* ranks that share each op's work; stages of a pipeline. Ranks are dp * tp * pp */
    int zero; /* what workers hold in parts: 1 state, 2 and gradients, 3 and parameters */
    enum pipe_kind pipeline;
    int chunks; /* of a stage: interleaved:V; else 1 */
    enum axes_sync sync;
    int bound;        /* bounded:K */
    int64_t interval; /* local:H, elastic:T: steps; with is_auto the first */
    bool is_auto;     /* local:auto, elastic:auto: the interval is chosen while training */
    double alpha;     /* elastic:T,ALPHA: how far an exchange pulls together */
    enum pass_neighbors neighbors; /* gossip:ring, gossip:exponential */
    enum axes_meet meet;
    int servers; /* ps:S: ranks behind the workers'; else 0 */
};

/* Does every worker have parameters and steps of its own, so that it runs a private executor? */
static inline bool axes_are_private(const struct axes *axes)
{
    return axes->sync != SYNC_STEP || axes->meet == MEET_PS;
}

/* Workers that each averages with after a step of gossip; else 0. */
int axes_neighbors(const struct axes *axes);

/* Where a rank stands in the grid: rank = (pp * dp's number + dp) * tp's number + tp. Ranks that
 * differ in dp alone have the same parameters and run one graph on different shards; what belongs
 * together most closely, ranks that differ in tp alone, are neighbours. */
enum axes_axis { AXIS_DP = 1, AXIS_TP = 2, AXIS_PP = 4 }; /* bits */
struct axes_place {
    int dp, tp, pp;
};
struct axes_place axes_place_of(const struct axes *axes, int rank);
int axes_rank_at(const struct axes *axes, struct axes_place place);
/* The ranks that differ from this one along these axes alone, itself included, ascending; gives how
 * many. */
enum { AXES_RANKS = 256 };
int axes_group(const struct axes *axes, int rank, unsigned along, int members[AXES_RANKS]);
/* Do ranks hold different parameters, or parts of them? */
static inline bool axes_are_a_grid(const struct axes *axes)
{
    return axes->tp > 1 || axes->pp > 1;
}

struct strategy {
    const char *name, *summary, *known_as;
    const char *split, *sync, *meet; /* as printed; "n" stands for the number of ranks */
    unsigned syncs, meets; /* that it may be refined to: bits 1 << SYNC_..., MEET_... */
    unsigned splits;       /* axes that it divides work along: bits AXIS_...; 0: AXIS_DP */
    int zero;              /* unless --split says otherwise */
    bool many_ranks;       /* runs on more than one rank */
    bool many_nodes;       /* and on more than one machine */
    const struct pass *const *passes; /* ended by NULL */
    const struct pass *const
        *apart; /* where each rank counts as a node, if that is another list; or NULL */
    const struct pass *const
        *served; /* where copies meet at servers, if that is a choice; or NULL */
    const struct pass *const
        *sharded; /* with --split zero=1 to 3, if that is a choice; or NULL */
};

extern const struct strategy *const strategy_table[];   /* ended by NULL */
const struct strategy *strategy_find(const char *name); /* NULL if unknown */
/* Its passes for these axes. apart: each rank counts as a node of its own (--flat). */
const struct pass *const *strategy_passes(const struct strategy *strategy,
                                          const struct axes *axes, bool apart);
bool strategy_has_pass(const struct strategy *strategy, const struct pass *pass);
/* The preset for a --split, a --sync and a --meet (NULL: not given) without --strategy, on so many
 * ranks that are on one machine, or apart. What cannot be read is left for strategy_check to
 * refuse. */
const struct strategy *strategy_pick(int ranks, bool apart, const char *split, const char *sync,
                                     const char *meet);

/* Server ranks behind the workers' that a job with these texts has (NULL: not given); 0 also where
 * they cannot be read, which strategy_check refuses. */
int strategy_servers(const char *strategy, const char *sync, const char *meet);

/* Refuses what the strategy cannot do: ranks it does not take, a split, sync or meet (NULL: not
 * given: its own) that cannot be read or does not go with the others; the text says why. */
MUST_CHECK enum status strategy_check(const struct strategy *strategy, int ranks,
                                      const char *split, const char *sync, const char *meet,
                                      struct axes *out);
/* Reads --pipeline (NULL: not given) of a job with these axes: gpipe, 1f1b, interleaved:V. */
MUST_CHECK enum status strategy_read_pipeline(const char *text, struct axes *axes);

#endif /* PASS_STRATEGY_H */
