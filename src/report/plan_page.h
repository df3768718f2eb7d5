/* SPDX-License-Identifier: MIT */
/* plan_page.h - a plan as one HTML page: the table, time and memory of every strategy, how it scales, a timeline.
 *
 * report/ knows neither strategies nor costs: who does fills in what is to be shown.
 */
#ifndef REPORT_PLAN_PAGE_H
#define REPORT_PLAN_PAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

enum {
    PLAN_PAGE_MEMORY = 5
}; /* parameters, gradients, state, activations, a copy for checkpoints */

struct plan_page_row {
    const char *name, *why;
    bool is_legal, is_chosen, can_be; /* can_be: chosen */
    double step_ms, bubble, bytes;
    double memory[PLAN_PAGE_MEMORY];
};

struct plan_page_point {
    double ranks, data_parallel, best; /* samples a second */
    const char *name;
};

struct plan_page_event {
    double begin, end; /* seconds */
    int64_t shard;     /* -1: sum of gradients; -2: update */
    int stage;
    bool is_backward;
};

struct plan_page {
    const char *model, *why;
    int64_t batch;
    int ranks, nodes;
    double memory, single_ms; /* memory 0: any */
    bool is_measured;
    const struct plan_page_row *rows;
    size_t n_rows;
    const struct plan_page_point *points;
    size_t n_points;
    const char *timeline; /* whose the events are */
    int stages;           /* 0: there are none */
    double seconds;
    const struct plan_page_event *events;
    size_t n_events;
};

/* Writes the page to `path`, replaced as a whole. */
MUST_CHECK enum status plan_page_write(const struct plan_page *page, const char *path);

/* The events as one <svg>: a row a stage, time to the right. */
void plan_page_timeline(const struct plan_page *page, struct strbuf *out);

#endif /* REPORT_PLAN_PAGE_H */
