/* SPDX-License-Identifier: MIT */
/* trace.c - rows of events, and the Chrome trace format: one complete event ("ph": "X") a line,
 * times in microseconds, metadata events that name processes and threads. */
#include "base/trace.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* A name that the trace keeps. */
struct kept {
    struct kept *next;
    char text[];
};

struct trace {
    struct kept *kept;
    atomic_bool is_on;
    int64_t origin;
    int n_rows;
    struct trace_row *rows[TRACE_ROWS];
};

static const char *const kind_names[TRACE_KINDS] = { "step",       "compute", "communication",
                                                     "wait",       "load",    "evaluation",
                                                     "checkpoint", "task" };

enum status trace_create(struct trace **out)
{
    TRY(mem_alloc(1, sizeof **out, out));
    (*out)->origin = clock_ns();
    return STATUS_OK;
}

void trace_destroy(struct trace *trace)
{
    if (!trace)
        return;
    for (int i = 0; i < trace->n_rows; i++) {
        mem_free(trace->rows[i]->events);
        mem_free(trace->rows[i]);
    }
    while (trace->kept) {
        struct kept *kept = trace->kept;
        trace->kept = kept->next;
        mem_free(kept);
    }
    mem_free(trace);
}

enum status trace_keep(struct trace *trace, const char *text, const char **out)
{
    const size_t bytes = strlen(text) + 1;
    struct kept *kept;

    TRY(mem_alloc(1, sizeof *kept + bytes, &kept));
    memcpy(kept->text, text, bytes);
    kept->next = trace->kept;
    trace->kept = kept;
    *out = kept->text;
    return STATUS_OK;
}

enum status trace_add_row(struct trace *trace, const char *name, uint32_t capacity,
                          struct trace_row **out)
{
    struct trace_row *row;

    *out = NULL;
    if (!trace)
        return STATUS_OK;
    if (trace->n_rows == TRACE_ROWS)
        return FAIL(STATUS_UNSUPPORTED, "a trace has at most %d threads a rank", TRACE_ROWS);
    TRY(mem_alloc(1, sizeof *row, &row));
    row->is_on = &trace->is_on;
    row->capacity = capacity ? capacity : TRACE_CAPACITY;
    (void)snprintf(row->name, sizeof row->name, "%s", name);
    const enum status status = mem_alloc(row->capacity, sizeof *row->events, &row->events);
    if (status != STATUS_OK) {
        mem_free(row);
        return status;
    }
    trace->rows[trace->n_rows++] = row;
    *out = row;
    return STATUS_OK;
}

void trace_switch(struct trace *trace, bool on)
{
    if (trace)
        atomic_store_explicit(&trace->is_on, on, memory_order_relaxed);
}

int64_t trace_origin(const struct trace *trace)
{
    return trace->origin;
}

void trace_record(struct trace_row *row, int64_t begin, enum trace_kind kind, const char *name,
                  const char *detail)
{
    const uint32_t at = atomic_load_explicit(&row->count, memory_order_relaxed);

    if (at == row->capacity) {
        atomic_fetch_add_explicit(&row->dropped, 1, memory_order_relaxed);
        return;
    }
    row->events[at] = (struct trace_event){ .begin = begin,
                                            .end = clock_ns(),
                                            .name = name,
                                            .detail = detail,
                                            .step = row->step,
                                            .kind = kind };
    atomic_store_explicit(&row->count, at + 1, memory_order_release);
}

void trace_each(const struct trace *trace,
                void (*see)(void *arg, const struct trace_event *event), void *arg)
{
    for (int i = 0; i < trace->n_rows; i++) {
        const struct trace_row *row = trace->rows[i];
        const uint32_t count = atomic_load_explicit(&row->count, memory_order_acquire);
        for (uint32_t e = 0; e < count; e++)
            see(arg, &row->events[e]);
    }
}

/* {"name": "thread_name", "ph": "M", "pid": 0, "tid": 1, "args": {"name": "lane 0"}} */
static void print_name(struct strbuf *out, const char *what, int rank, int row,
                       const char *name)
{
    strbuf_printf(out, "{\"name\": \"%s\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"args\": ",
                  what, rank, row);
    strbuf_add(out, "{\"name\": ");
    strbuf_add_json(out, name);
    strbuf_add(out, "}}");
}

static void print_order(struct strbuf *out, const char *what, int rank, int row, int order)
{
    strbuf_printf(out,
                  ",\n{\"name\": \"%s\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, "
                  "\"args\": {\"sort_index\": %d}}",
                  what, rank, row, order);
}

/* A task may overlap what its thread does besides: viewers draw such an event on a line of its own. */
static void print_task(struct strbuf *out, const struct trace_event *event, int rank, int row,
                       int64_t origin)
{
    const int64_t times[] = { event->begin, event->end };

    for (int i = 0; i < 2; i++) {
        strbuf_add(out, ",\n{\"name\": ");
        strbuf_add_json(out, event->name);
        strbuf_printf(out,
                      ", \"cat\": \"task\", \"ph\": \"%s\", \"id\": \"%d.%d.%s\", \"pid\": %d, "
                      "\"tid\": %d, \"ts\": %.3f, \"args\": {\"step\": %llu, \"task\": %s}}",
                      i == 0 ? "b" : "e", rank, row, event->detail, rank, row,
                      (double)(times[i] - origin) * 1e-3, (unsigned long long)event->step,
                      event->detail);
    }
}

static void print_event(struct strbuf *out, const struct trace_event *event, int rank, int row,
                        int64_t origin)
{
    if (event->kind == TRACE_TASK) {
        print_task(out, event, rank, row, origin);
        return;
    }
    strbuf_add(out, ",\n{\"name\": ");
    strbuf_add_json(out, event->name);
    strbuf_printf(out,
                  ", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, "
                  "\"dur\": %.3f, \"args\": {\"step\": %llu",
                  kind_names[event->kind], rank, row, (double)(event->begin - origin) * 1e-3,
                  (double)(event->end - event->begin) * 1e-3, (unsigned long long)event->step);
    if (event->detail) {
        strbuf_add(out, event->kind == TRACE_COMPUTE ? ", \"kernel\": " : ", \"of\": ");
        strbuf_add_json(out, event->detail);
    }
    strbuf_add(out, "}}");
}

uint64_t trace_print(const struct trace *trace, int rank, const char *process, int64_t origin,
                     struct strbuf *out)
{
    uint64_t dropped = 0;

    print_name(out, "process_name", rank, 0, process);
    print_order(out, "process_sort_index", rank, 0, rank);
    for (int i = 0; i < trace->n_rows; i++) {
        const struct trace_row *row = trace->rows[i];
        const uint32_t count = atomic_load_explicit(&row->count, memory_order_acquire);
        strbuf_add(out, ",\n");
        print_name(out, "thread_name", rank, i, row->name);
        print_order(out, "thread_sort_index", rank, i, i);
        for (uint32_t e = 0; e < count; e++)
            print_event(out, &row->events[e], rank, i, origin);
        dropped += atomic_load_explicit(&row->dropped, memory_order_relaxed);
    }
    return dropped;
}
