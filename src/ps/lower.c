/* SPDX-License-Identifier: MIT */
/* lower.c - a server's program: lowers it from the config, verifies it, and traces its tasks.
 *
 * The program depends on which servers are lost. A server that takes over slices lowers again, with
 * these as its own. Here a policy becomes members and waits of tasks; run.c knows no policy.
 */
#include "sched/lower.h"

#include <stdio.h>

#include "base/mem.h"
#include "ps/server.h"
#include "sched/verify.h"

int server_of_slice(const struct slices *slices, const bool *lost, int number)
{
    const struct slice *slice = &slices->slice[number];

    return lost && lost[slice->server] ? slice->partner : slice->server;
}

static struct lower_slice describe_slice(const struct slices *slices, const bool *lost,
                                         int number)
{
    const struct slice *slice = &slices->slice[number];
    const bool has_replica =
        slice->partner >= 0 && !(lost && (lost[slice->server] || lost[slice->partner]));

    return (struct lower_slice){
        .number = number,
        .bucket = slice->bucket,
        .is_table = slice->is_table,
        .is_trained = !slices->config.layout.updates[slice->bucket].is_average,
        .server = server_of_slice(slices, lost, number),
        .replica = has_replica ? slice->partner : -1,
    };
}

static bool shares_memory(const struct slices *slices, int server)
{
    for (int w = 0; w < slices->config.workers && slices->config.transport; w++) {
        if (!slices_are_near(slices, slices_rank(slices, server), w))
            return false;
    }
    return true;
}

static struct lower_server describe(const struct slices *slices, int server)
{
    const struct ps_config *config = &slices->config;

    return (struct lower_server){
        .server = server,
        .servers = config->servers,
        .workers = config->workers,
        .shares_memory = shares_memory(slices, server),
        .joins = config->policy == PS_STEP,
        .backup = config->backup,
        .bound = config->policy == PS_BOUNDED ? config->bound : 0,
        .is_center = config->policy == PS_CENTER,
        .clips = clip_is_used(config),
        .n_slices = slices->count,
    };
}

static enum status lower(const struct slices *slices, const bool *lost, int server,
                         struct program **out)
{
    struct lower_server config = describe(slices, server);
    struct lower_slice *described;

    TRY(mem_alloc((size_t)slices->count + 1, sizeof *described, &described));
    for (int i = 0; i < slices->count; i++)
        described[i] = describe_slice(slices, lost, i);
    config.slices = described;
    const enum status status = program_lower_server(&config, out);
    mem_free(described);
    return status;
}

static enum status verify(const struct program *program)
{
    TRY(program_verify(program));
    return program_verify_nodes(&program, 1, 1);
}

enum status ps_lower(const struct ps_config *config, int server, struct program **out)
{
    struct slices *slices;

    TRY(slices_create(config, &slices));
    enum status status = lower(slices, NULL, server, out);
    slices_destroy(slices);
    if (status != STATUS_OK)
        return status;
    status = verify(*out);
    if (status != STATUS_OK)
        program_destroy(*out);
    return status;
}

/* Code that handles frames finds a slice's tasks by these numbers. */
static void number_task(struct server *server, int number)
{
    const struct task *task = &server->tasks.program->tasks[number];

    if (task->kind == TASK_BARRIER)
        server->tasks.ticks = number;
    if (task->kind == TASK_ALL_REDUCE)
        server->tasks.losses = number;
    if (task->slice < 0)
        return;
    struct slice_tasks *tasks = &server->held[server->held_of[task->slice]].tasks;
    if (task->kind == TASK_PUSH)
        tasks->push = number;
    else if (task->kind == TASK_PULL)
        tasks->pull = number;
    else if (task->kind == TASK_REPLICATE)
        tasks->replica = number;
    else if (!(task->does >> TASK_NORM & 1))
        tasks->update = number;
}

static enum status name_tasks(struct server *server)
{
    const struct program *program = server->tasks.program;
    struct strbuf name;

    mem_free(server->traces.names);
    server->traces.names = NULL;
    if (!server->traces.rows)
        return STATUS_OK;
    TRY(mem_alloc((size_t)program->n_tasks + 1, sizeof *server->traces.names,
                  &server->traces.names));
    for (int t = 0; t < program->n_tasks; t++) {
        char number[16];
        strbuf_init(&name, 256);
        task_print_name(&program->tasks[t], &name);
        snprintf(number, sizeof number, "%d", t);
        enum status status = strbuf_status(&name);
        if (status == STATUS_OK)
            status = trace_keep(server->config.trace.trace, name.text,
                                &server->traces.names[t].name);
        if (status == STATUS_OK)
            status =
                trace_keep(server->config.trace.trace, number, &server->traces.names[t].number);
        strbuf_release(&name);
        TRY(status);
    }
    return STATUS_OK;
}

enum status server_lower(struct server *server)
{
    struct program *program;

    TRY(lower(server->slices, server->is_lost, server->number, &program));
    program_destroy(server->tasks.program);
    server->tasks.program = program;
    for (int i = 0; i < server->n_held; i++)
        server->held[i].tasks = (struct slice_tasks){ -1, -1, -1, -1 };
    for (int t = 0; t < program->n_tasks; t++)
        number_task(server, t);
    server->tasks.takes_each = program->tasks[server->tasks.losses].is_of_workers;
    TRY(verify(program));
    TRY(run_list(server));
    return name_tasks(server);
}

/* Traces -------------------------------------------------------------------------------------- */

/* A row for tasks with one member, and one for each worker. */
enum status server_add_rows(struct server *server)
{
    enum { CAPACITY = 1 << 13 };
    struct trace *trace = server->config.trace.trace;
    const int count = server->config.workers + 1;

    if (!trace || count > TRACE_ROWS)
        return STATUS_OK;
    TRY(mem_alloc((size_t)count, sizeof *server->traces.rows, &server->traces.rows));
    TRY(trace_add_row(trace, "server", CAPACITY, &server->traces.rows[0]));
    for (int w = 0; w + 1 < count; w++) {
        char name[32];
        snprintf(name, sizeof name, "server, worker %d", w);
        TRY(trace_add_row(trace, name, CAPACITY, &server->traces.rows[w + 1]));
    }
    return STATUS_OK;
}

void server_trace_end(const struct server *server, struct server_span span)
{
    if (span.begin == 0)
        return;
    struct trace_row *row = server->traces.rows[span.member + 1];
    row->step = span.clock;
    trace_record(row, span.begin, TRACE_TASK, server->traces.names[span.task].name,
                 server->traces.names[span.task].number);
}

struct server_span server_span(const struct server *server, int task, int member,
                               uint64_t clock)
{
    const struct ps_trace *trace = &server->config.trace;
    const bool is_traced =
        server->traces.rows && task >= 0 && clock >= trace->begin && clock < trace->end;

    return (struct server_span){
        .begin = is_traced ? clock_ns() : 0, .task = task, .member = member, .clock = clock
    };
}

void server_trace(const struct server *server, int task, int member, uint64_t clock)
{
    server_trace_end(server, server_span(server, task, member, clock));
}
