/* SPDX-License-Identifier: MIT */
/* walking.h - a program while it is walked. Private to walk*.c. */
#ifndef SCHED_WALKING_H
#define SCHED_WALKING_H

#include "sched/walk.h"

enum { WALK_STEPS = 5 };

/* An inter-node task in a step. STAGE_AGAIN: parameters go once more (ZeRO-3), before the update. */
enum net_stage { STAGE_WAITING, STAGE_TRANSFER, STAGE_LATENCY, STAGE_ADDING, STAGE_AGAIN };

struct net_task {
    int task;
    enum net_stage stage;
    double transfer, again; /* seconds on the link: of what is waited for, and of the rest */
    double latency;         /* left, in STAGE_LATENCY */
    uint32_t step;
};

/* A part of a step that a lane runs, in order. */
struct walk_item {
    int task;
    double seconds;
    bool is_last; /* shard: from then on the task is done */
};

struct walk {
    const struct walk_config *config;
    const struct program *program;
    uint32_t steps;
    double lanes; /* of a node */
    double slow;  /* seconds of a lane for each that was measured */
    double lost;  /* share of a lane that a transfer takes */
    int shards;   /* of a lane */
    struct walk_item *items;
    int n_items;
    double *adding; /* seconds that each task adds and updates */
    uint32_t *done; /* steps in which a task is done */
    uint32_t *here; /* and in which its first transfer is, which computations wait for */
    struct net_task *nets;
    int n_nets;
    /* The lane */
    uint32_t step;
    int at;      /* item, or n_items: what is left are sums */
    int sync;    /* the next sum */
    int task;    /* that runs; -1: the lane waits */
    double hold; /* it begins nothing before then, */
    int goal;    /* and no item from this one on; n_items: it goes on to the end of the step */
    double left;
    bool ends; /* the task is done then */
    /* The link and the thread; NULL: they have nothing to do */
    struct net_task *sends, *adds;
    double send_left, add_left;
    double now;
    double summed;            /* the last inter-node task of the first step has ended */
    double ended[WALK_STEPS]; /* the lane's steps */
};

/* A walk of at most so many items, at the beginning of its first step; the caller lists them and
 * says the goal. walk_close in any case. */
MUST_CHECK enum status walk_open(struct walk *w, const struct walk_config *config,
                                 size_t items);
void walk_close(struct walk *w);
void walk_add_item(struct walk *w, int t, double seconds, bool is_last);
/* Seconds of a computation for one shard, without layers that lanes make together; of an exchange
 * between ranks that share layers. */
double walk_shard_seconds(const struct walk *w, int t);
/* Seconds that a lane loses in a step as it gives memory back and touches it again: of a task, and
 * of parameters that inter-node threads bring. */
double walk_release_seconds(const struct walk *w, int t);
double walk_freed_seconds(const struct walk *w);
/* Walks to the goal, or until all steps are walked. */
MUST_CHECK enum status walk_go(struct walk *w);
/* Results of a step; seconds only if WALK_STEPS were walked. */
struct walk_result walk_sum_up(const struct walk *w);

#endif /* SCHED_WALKING_H */
