/* SPDX-License-Identifier: MIT */
/* ps_testing.h - a small job with servers whose right results are known: gradients are a function of shard,
 * clock and element, and a plain model of the job works out what everybody must see. */
#ifndef PS_PS_TESTING_H
#define PS_PS_TESTING_H

#include "base/rng.h"
#include "ps/ps.h"

enum { TOY_BUCKETS = 6, TOY_WORKERS = 8, TOY_SHARDS = 24 };

enum { GATE_OPEN, GATE_READY, GATE_HELD };

struct toy {
    struct ps_config config; /* transport and room are each rank's own */
    int64_t begin[TOY_BUCKETS + 1];
    struct ps_table tables[TOY_BUCKETS];
    struct ps_update updates[TOY_BUCKETS];
    struct ps_param
        params[TOY_BUCKETS]; /* one a bucket that is trained, with a gap behind some */
    int64_t rows[TOY_WORKERS + 1];
    uint64_t clocks, step;
    int lanes;      /* rows of shards of a worker that have sums of their own */
    bool uses_room; /* gradients lie in ps_room */
    bool is_whole;  /* gradients are small whole numbers */
    uint64_t seed;
    float **
        expected; /* [clocks + 1]: parameters before each clock and at the end; NULL: not compared */
    int most_delay_us;
    struct ps_stats *stats;   /* of worker 0 at the end; NULL: not wanted */
    float *final;             /* parameters at the end, by worker 0; NULL: not wanted */
    _Atomic uint64_t *ticked; /* clocks of each worker; NULL: not wanted */
    uint64_t
        *allocations;  /* [2]: of the process when worker 0 has ticked two clocks, and all */
    int slow, slow_us; /* this worker is so much slower a clock */
    int dies;          /* this worker, if it is not 0, kills itself in clock dies_at */
    int awaited; /* a spare: others begin their last clock when it has ticked; 0: nobody is awaited */
    uint64_t dies_at;
    _Atomic int *
        gate; /* it dies after its pushes of that clock: it sets this to GATE_READY before them, waits
                        * for GATE_HELD after the first, and dies when all are on their way; NULL: it dies before them */
    enum status (*body)(struct transport *transport, void *arg); /* of a rank, NULL: toy_rank */
};

/* Random buckets, some of them tables; `buckets` at most TOY_BUCKETS. */
void toy_make(struct toy *toy, struct rng *rng, int buckets, const char *optimizer);
/* SGD without momentum, rates that are powers of two, whole gradients, a shard a worker: pushes that are applied
 * one by one, in any order, give the same numbers; workers is a power of two. */
void toy_make_whole(struct toy *toy, struct rng *rng, int workers);
/* Checks that every push of such a job was applied once, none twice. */
void toy_check_all_applied(const struct toy *toy, const float *final);
/* Gradients are clipped to this norm. */
void toy_clip(struct toy *toy, float most);
/* Equal rows of shards for these workers. */
void toy_share(struct toy *toy, int workers, int64_t shards);
int64_t toy_vector(const struct toy *toy);
/* Is row `row` of the table among those that the shard's samples have? */
bool toy_has_row(const struct toy *toy, int64_t shard, uint64_t clock, int64_t row);
float toy_gradient(const struct toy *toy, int64_t shard, uint64_t clock, int64_t element);
float toy_initial(const struct toy *toy, int64_t element);

/* Works out toy->expected for PS_STEP. Free it with toy_release. */
MUST_CHECK enum status toy_expect(struct toy *toy);
void toy_release(struct toy *toy);

/* What rank `transport_rank` does: a launch_body; arg is the toy. */
MUST_CHECK enum status toy_rank(struct transport *transport, void *arg);

/* Runs it with threads as ranks on so many nodes and gives the first failure. */
MUST_CHECK enum status toy_run(struct toy *toy, int nodes);

#endif /* PS_PS_TESTING_H */
