/* SPDX-License-Identifier: MIT */
/* trace.h - what threads did and when: events kept in memory, told as a Chrome trace.
 *
 * A thread that may be traced has a row, made before it starts; one event is one store into the
 * row's memory. Recording is switched on for a while (some steps) and off again; when it is off, or
 * when there is no trace (a NULL row), an event costs one branch. A full row drops what comes after and
 * counts it: nothing allocates and nothing calls the system while recording.
 *
 *     const int64_t begin = trace_begin(row);
 *     ... work ...
 *     trace_end(row, begin, TRACE_COMM, "send bucket", "to node 2");
 *
 * Names are literals or memory that lives until the trace is printed.
 *
 * Threads: a row belongs to one thread. trace_switch and trace_print may be called by another while
 *          rows are written; rows are added by one thread at a time.
 */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "base/strbuf.h"

struct trace;

enum trace_kind {
    TRACE_STEP, /* a whole step, and what else the loop does */
    TRACE_COMPUTE,
    TRACE_COMM,
    TRACE_WAIT,
    TRACE_LOAD,
    TRACE_EVALUATE,
    TRACE_CHECKPOINT,
    TRACE_TASK, /* of a step program: may overlap others of its row; detail: its number */
    TRACE_KINDS
};

struct trace_event {
    int64_t begin, end;        /* clock_ns */
    const char *name, *detail; /* detail: kernel, tensor, peer, ...; NULL: none */
    uint64_t step;
    enum trace_kind kind;
};

/* One thread's events. Private but for `step`. */
struct trace_row {
    const atomic_bool *is_on;
    struct trace_event *events;
    uint32_t capacity;
    _Atomic uint32_t count, dropped;
    uint64_t step; /* that events are about; set by the row's thread */
    char name[32];
};

enum { TRACE_ROWS = 256, TRACE_CAPACITY = 1 << 15 };

MUST_CHECK enum status trace_create(struct trace **out); /* switched off */
void trace_destroy(struct trace *trace);                 /* NULL is allowed */
/* A row for one thread with room for `capacity` events (0: TRACE_CAPACITY), shown under `name`
 * (copied, at most 31 bytes) in the order of adding. trace NULL gives a NULL row. */
MUST_CHECK enum status trace_add_row(struct trace *trace, const char *name, uint32_t capacity,
                                     struct trace_row **out);
/* A copy of a name, for events: it lives until the trace is destroyed. */
MUST_CHECK enum status trace_keep(struct trace *trace, const char *text, const char **out);
void trace_switch(struct trace *trace, bool on); /* NULL is allowed */
/* When the trace was created, by clock_ns. */
int64_t trace_origin(const struct trace *trace);

void trace_record(struct trace_row *row, int64_t begin, enum trace_kind kind, const char *name,
                  const char *detail);

/* Calls `see` with every event, row by row, each row's in the order in which they ended. Nobody
 * records meanwhile. */
void trace_each(const struct trace *trace,
                void (*see)(void *arg, const struct trace_event *event), void *arg);

/* When an event begins; 0 if it shall not be recorded. */
static inline int64_t trace_begin(const struct trace_row *row)
{
    return row && atomic_load_explicit(row->is_on, memory_order_relaxed) ? clock_ns() : 0;
}

/* The same also while the trace is off: for what happens seldom. */
static inline int64_t trace_begin_rare(const struct trace_row *row)
{
    return row ? clock_ns() : 0;
}

static inline void trace_end(struct trace_row *row, int64_t begin, enum trace_kind kind,
                             const char *name, const char *detail)
{
    if (begin)
        trace_record(row, begin, kind, name, detail);
}

/* Adds all events as members of a Chrome trace's array traceEvents, separated by ",\n" and none in
 * front: rank is the process, rows its threads. Time 0 is `origin`, by this process's clock.
 * Returns how many events were dropped. */
uint64_t trace_print(const struct trace *trace, int rank, const char *process, int64_t origin,
                     struct strbuf *out);

#endif /* BASE_TRACE_H */
