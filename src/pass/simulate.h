/* SPDX-License-Identifier: MIT */
/* simulate.h - how long a step of a pipeline takes, found by going through its events.
 *
 * A job of dp x tp x pp ranks is looked at through one rank of each stage: the others of a stage do the same at
 * the same time. A stage computes one thing after the other, in the order of its schedule; what it gives to the
 * next one goes over a link, one message after the other; sums of gradients with the stage's copies go over another,
 * as soon as the last shard has made them. A thing begins when its stage is free and what it needs is there. So
 * ten thousand ranks take as long to simulate as their stages do.
 *
 * Pure arithmetic: nothing is measured and no rank is started.
 */
#ifndef PASS_SIMULATE_H
#define PASS_SIMULATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum simulate_order { SIMULATE_GPIPE, SIMULATE_1F1B, SIMULATE_INTERLEAVED, SIMULATE_ORDERS };
extern const char *const simulate_order_names[SIMULATE_ORDERS];

enum { SIMULATE_STAGES = 256 };

/* Part `c` of the model, of stages * chunks in all: stage c % stages runs it. */
struct simulate_part {
    double forward, backward; /* seconds of a shard */
    double
        out; /* seconds that what a shard gives to the next part is under way; gradients back likewise */
    double sum;    /* seconds that sums of its gradients take, of which ... */
    double hidden; /* ... this share may go on while the stage computes something else */
    double update; /* seconds, when all sums are there */
};

struct simulate_config {
    enum simulate_order order;
    int stages, chunks; /* chunks: parts of a stage; 1 but for SIMULATE_INTERLEAVED */
    int64_t shards;     /* that go through each pipeline in a step */
    int at_once;        /* stages that a machine has cores for at a time; 0: all */
    const struct simulate_part *parts;
};

/* One thing that a stage did. */
struct simulate_event {
    double begin, end;
    int64_t shard; /* -1: the sum of gradients; -2: the update */
    int stage, part;
    bool is_backward;
};

struct simulate_result {
    double seconds;
    double pipeline; /* until the last backward has ended */
    double bubble;  /* share of that time in which stages have nothing to compute, on average */
    double busiest; /* seconds that the stage computes which has most to do */
    int64_t in_flight;             /* shards whose activations the first stage keeps at most */
    struct simulate_event *events; /* as they end, a stage's in order; NULL unless asked for */
    int64_t n_events;
};

/* STATUS_USAGE says why a schedule is none. wants_events: result.events is made; simulate_release frees it. */
MUST_CHECK enum status simulate_run(const struct simulate_config *config, bool wants_events,
                                    struct simulate_result *out);
void simulate_release(struct simulate_result *result);

/* The share of a step that is bubble by the textbook: (p - 1) / (v m + p - 1) of equal stages. */
double simulate_bubble(int stages, int chunks, int64_t shards);

#endif /* PASS_SIMULATE_H */
