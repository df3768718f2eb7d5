/* SPDX-License-Identifier: MIT */
/* planner.h - what a forecast is made from. Private to train/: forecast.c has rows,
 * forecast_choice.c the choice, forecast_work.c what a step costs a lane, forecast_walk.c the
 * prediction of a step whose ranks all have the whole model, forecast_grid.c that of a grid,
 * forecast_memory.c the check before a run, forecast_print.c the file. */
#ifndef TRAIN_PLANNER_H
#define TRAIN_PLANNER_H

#include "sched/lower.h"
#include "sched/walk.h"
#include "train/forecast.h"
#include "train/job.h"

enum {
    PLANNER_WORKS = 16,
    PLANNER_ROWS = 512,
    PLANNER_SHARED = 16,
    PLANNER_PROGRAMS = 32,
    PLANNER_WALKS = 64,
    PLANNER_GRIDS = 12
};

/* A step in so many shards, as lanes of so many threads do it. */
struct planner_work {
    int64_t shards;
    int threads;
    bool factors;     /* gradients as factors where those are smaller, */
    bool has_factors; /* which some are */
    bool apart;       /* lanes share nothing, as ranks that share layers */
    int64_t open;     /* shards that a lane has under way at a time; 1: one after the other */
    struct cost_work work;
    struct graph *graph; /* of one rank, that was timed, and ... */
    double *nodes;       /* ... seconds of a shard of its nodes (walk_config.node_seconds) */
    /* Of a shard, each node by itself: what a tensor split's are compared with. 0: not known yet.
     */
    double forward, backward;
    double params; /* numbers */
};

/* What is known of a tensor split among so many ranks. */
struct planner_shared {
    int tp;
    int64_t shards;
    enum status status;
    char why[200]; /* if there is none */
    struct cost_sharing sharing;
};

/* The key of a step of ranks that all have the whole model: its prediction follows from it. */
struct planner_key {
    const struct pass *const *passes; /* NULL: those that the timed graph has had */
    const struct planner_work *w;
    struct lower_topology topology;
    int64_t shards;
    int zero;    /* 2, 3; 0: below */
    int decided; /* nodes that a pass has looked at; 0: none has */
    double team;
};

/* Graphs, programs and predictions of steps that rows share. */
struct planner_graph {
    struct planner_key key;
    struct graph *graph;
    double *seconds; /* of its nodes */
};
struct planner_program {
    struct planner_key key;
    const struct planner_graph *graph;
    struct program *program;
};
struct planner_walked {
    struct planner_key key;
    struct walk_result result;
};

/* What the stages of a grid's copies run; without stages there is one. */
struct planner_stage {
    struct graph *graph;
    struct program *program[2]; /* [1]: gradients are given back; NULL: not lowered yet */
    struct task_work *works[2];
};
struct planner_grid_key {
    int dp, tp, pp, chunks, nodes;
    bool holds;           /* parameters in parts */
    int64_t rows, shards; /* of a shard; of a step */
};
struct planner_grid {
    struct planner_grid_key key;
    struct planner_stage *stages;
};

struct planner {
    const struct job *job;
    const struct forecast_options *options;
    struct planner_work works[PLANNER_WORKS]; /* the first is that of data-parallel ranks */
    int n_works;
    struct planner_shared shared[PLANNER_SHARED];
    int n_shared;
    struct planner_graph graphs[PLANNER_PROGRAMS];
    struct planner_program programs[PLANNER_PROGRAMS];
    struct planner_walked walks[PLANNER_WALKS];
    int n_graphs, n_programs, n_walks;
    struct planner_grid grids[PLANNER_GRIDS]; /* the last ones; the next replaces the oldest */
    int n_grids, next_grid;
    double step;            /* seconds of the first's step as it was measured; 0: it was not */
    struct cost_work alone; /* the same with nothing beside it; no layers: it is the same */
    bool looks_across; /* some op looks at several samples: shards are more than rounding */
    int lanes;         /* of a data-parallel rank */
    struct forecast *plan;
    bool is_too_large; /* to be measured here: a step would not find the memory */
    double deadline;   /* by clock_seconds: rows after it are not predicted; 0: all are */
    bool is_late;      /* some were not */
};

/* The work of a step in so many shards: made, if it is not there yet. *out is valid until
 * planner_release. */
MUST_CHECK enum status planner_work(struct planner *p, int64_t shards, int threads,
                                    bool factors, bool apart, struct planner_work **out);
/* The same as lanes do it that have so many shards under way, as a pipeline's stages have. */
MUST_CHECK enum status planner_open_work(struct planner *p, struct planner_work *closed,
                                         int64_t open, struct planner_work **out);
/* Seconds of nodes as their like in the graph that was timed have them. What has none there is
 * guessed, by how the others' times compare with guesses. */
void planner_time_like(const struct planner_work *timed, const struct graph *graph,
                       double *out);
/* The first, and what one rank alone would take, if that is not the same. */
MUST_CHECK enum status planner_first_work(struct planner *p);
void planner_release(struct planner *p);

/* How so many ranks share what one would do, by the graph that the tensor pass makes. STATUS_USAGE:
 * why they cannot. */
MUST_CHECK enum status planner_share(struct planner *p, int tp, struct planner_work *whole,
                                     struct cost_sharing *out);

/* A step of a row whose ranks all have the whole model: its program, walked. STATUS_USAGE: why
 * there is none. */
MUST_CHECK enum status planner_walk(struct planner *p, const struct forecast_row *row,
                                    const struct planner_work *w, const struct cost_work *work,
                                    struct cost_estimate *out);

/* A step of a grid: the programs of one copy's stages, walked together; sets out's seconds,
 * compute, bubble and bytes. timeline: NULL, or is filled. */
MUST_CHECK enum status planner_walk_grid(struct planner *p, const struct forecast_row *row,
                                         const struct planner_work *w,
                                         const struct cost_work *work,
                                         struct cost_estimate *out,
                                         struct walk_timeline *timeline);

void planner_release_programs(struct planner *p);
void planner_release_grids(struct planner *p);

/* All rows for plan->ranks ranks, with predictions. */
MUST_CHECK enum status planner_fill_rows(struct planner *p);
/* The fastest of the rows that `is_so` holds for, by trial or prediction; -1: none. */
int planner_fastest(const struct forecast *plan, bool (*is_so)(const struct forecast_row *row));
bool planner_can_choose(const struct forecast_row *row); /* may auto pick it? */
bool planner_is_grid(const struct forecast_row *row);
void planner_refuse(struct forecast_row *row, bool *which, const char *why);
/* The settings of a job that is distributed as the row says. */
MUST_CHECK enum status planner_settings(const struct planner *p, const struct forecast_row *row,
                                        struct settings *out);
/* Tries what is close, sets plan->chosen and plan->why. */
void planner_choose(struct planner *p);

/* "1.2 GB", "340 MB": returns `text`. */
const char *planner_bytes(double bytes, char text[32]);

#endif /* TRAIN_PLANNER_H */
