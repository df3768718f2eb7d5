/* SPDX-License-Identifier: MIT */
/* simulate.h - how long a step of a grid of ranks takes, found by going through its events.
 *
 * A job of dp x tp x pp ranks is looked at through one rank of each stage: the others of a stage do the same at
 * the same time. A stage computes one thing after the other, in the order of its schedule (schedule.h); what it gives
 * to the next goes over a link; sums of gradients with the stage's copies go over another, as soon as the last
 * shard has made them. A thing begins when its stage is free, has a core, and what it needs is there. So ten thousand
 * ranks take as long to simulate as their stages do.
 *
 * pipe_simulate (schedule.h) is the textbook's case: equal links, and neither sums nor cores that are shared.
 * Pure arithmetic: nothing is measured and no rank is started.
 */
#ifndef PASS_SIMULATE_H
#define PASS_SIMULATE_H

#include "pass/schedule.h"

/* A piece of the model; as schedule.h numbers them. */
struct simulate_piece {
    double forward, backward; /* seconds of a shard */
    double
        out; /* seconds that what a shard gives to the next piece is under way; gradients back likewise */
    double copied; /* share of that which cores copy: half of it who sends, half who receives */
    double sum;    /* seconds that sums of its gradients take, of which ... */
    double hidden; /* ... this share may go on while the stage computes something else */
    double update; /* seconds, when the stage's sums are there */
};

struct simulate_config {
    struct pipe_config pipe;
    int at_once;                         /* stages that have a core at a time; 0: all */
    const struct simulate_piece *pieces; /* stages * chunks */
};

/* One thing that a stage did. */
struct simulate_event {
    double begin, end;
    int64_t shard; /* SIMULATE_SUM, SIMULATE_UPDATE */
    int stage, piece;
    bool is_backward;
};
enum { SIMULATE_SUM = -1, SIMULATE_UPDATE = -2 };

struct simulate_result {
    double seconds;
    double pipeline; /* until the last backward has ended */
    double bubble;  /* share of that time in which stages have nothing to compute, on average */
    double busiest; /* seconds that the stage computes which has most to do */
    struct simulate_event *events; /* a stage's in order; NULL unless asked for */
    int64_t n_events;
};

/* Fails as pipe_check does. wants_events: result.events is made; simulate_release frees it. */
MUST_CHECK enum status simulate_run(const struct simulate_config *config, bool wants_events,
                                    struct simulate_result *out);
void simulate_release(struct simulate_result *result);

#endif /* PASS_SIMULATE_H */
