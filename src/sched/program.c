/* SPDX-License-Identifier: MIT */
/* program.c - a step program's end, and how it is printed. */
#include "sched/program.h"

#include "base/mem.h"

void program_destroy(struct program *program)
{
    if (!program)
        return;
    mem_free(program->tasks);
    mem_free(program->waits);
    mem_free(program->made);
    mem_free(program->gathered);
    mem_free(program);
}

const char *task_kind_name(enum task_kind kind)
{
    static const char *const names[TASK_KINDS] = {
        [TASK_COMPUTE] = "compute",
        [TASK_COPY] = "copy",
        [TASK_COLUMNS] = "columns",
        [TASK_SEND] = "send",
        [TASK_RECEIVE] = "receive",
        [TASK_TENSOR] = "tensor",
        [TASK_CLIP] = "clip",
        [TASK_ACCUMULATE] = "accumulate",
        [TASK_REDUCE_SCATTER] = "reduce_scatter",
        [TASK_SUM_FACTORS] = "sum_factors",
        [TASK_SUM_ROWS] = "sum_rows",
        [TASK_NORM] = "norm",
        [TASK_DIRECTION] = "direction",
        [TASK_UPDATE] = "update",
        [TASK_ALL_GATHER] = "all_gather",
        [TASK_ANSWER] = "answer",
        [TASK_UNSHARD] = "unshard",
        [TASK_RESHARD] = "reshard",
        [TASK_PUSH] = "push",
        [TASK_PULL] = "pull",
        [TASK_ALL_REDUCE] = "all_reduce",
        [TASK_AVERAGE] = "average",
        [TASK_REPLICATE] = "replicate",
        [TASK_BARRIER] = "barrier",
    };

    return names[kind];
}

const char *task_medium_name(enum task_medium medium)
{
    static const char *const names[MEDIUMS] = { "none", "shared", "messages", "server" };

    return names[medium];
}

const char *task_place_name(enum task_place place)
{
    static const char *const names[PLACES] = { "lane", "lane.sync", "net", "host", "server" };

    return names[place];
}

const char *memory_name(enum memory_kind kind)
{
    static const char *const names[MEMORY_KINDS] = { "param", "whole",  "state", "gradient",
                                                     "sum",   "record", "table", "squares",
                                                     "sends", "room",   "loss",  "clock" };

    return names[kind];
}

void task_print_kinds(const struct task *task, struct strbuf *out)
{
    const char *before = "";

    for (int kind = 0; kind < TASK_KINDS; kind++) {
        if (!(task->does >> kind & 1))
            continue;
        strbuf_printf(out, "%s%s", before, task_kind_name((enum task_kind)kind));
        before = "+";
    }
}

void task_print_name(const struct task *task, struct strbuf *out)
{
    task_print_kinds(task, out);
    if (task->place == PLACE_SERVER && task->slice >= 0)
        strbuf_printf(out, " slice %d of", task->slice);
    if (task->bucket >= 0)
        strbuf_printf(out, " bucket %d", task->bucket);
    if (task->gather >= 0)
        strbuf_printf(out, " table %d", task->gather);
    if (task->end_node > task->first_node + 1)
        strbuf_printf(out, " nodes %d to %d", task->first_node, task->end_node - 1);
    else if (task->end_node > 0)
        strbuf_printf(out, " node %d", task->first_node);
    for (int i = 0; i < task->peers.count; i++)
        strbuf_printf(out, "%s%d", i ? ", " : " with workers ", task->peers.from[i]);
    if (task->bound)
        strbuf_printf(out, " (slowest worker at most %d step%s behind)", task->bound,
                      task->bound == 1 ? "" : "s");
    if (task->place == PLACE_SERVER && task->peer >= 0)
        strbuf_printf(out, " with server %d", task->peer);
    if (task->note)
        strbuf_printf(out, " (%s)", task->note);
}

static void print_accesses(const struct task *task, bool writes, struct strbuf *out)
{
    const char *before = writes ? "  writes " : "  reads ";

    for (int i = 0; i < task->n_accesses; i++) {
        const struct access *a = &task->accesses[i];
        if (a->is_write != writes)
            continue;
        strbuf_printf(out, "%s%s%s%d", before, a->reach == REACH_OWN ? "own " : "",
                      memory_name(a->memory), a->index);
        before = ", ";
    }
}

static void print_waits(const struct program *program, const struct task *task,
                        struct strbuf *out)
{
    const char *before = "  after ";

    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        strbuf_printf(out, "%s%s%s%d%s", before, wait->is_apart ? "not during " : "",
                      wait->is_last_step && wait->earlier == 0 ? "last "
                      : wait->is_last_use                      ? "last use's "
                                                               : "",
                      wait->task,
                      wait->at_end      ? " (own sends, at its end)"
                      : wait->is_local  ? " (own)"
                      : wait->by_medium ? " (by server)"
                                        : "");
        if (wait->but > 0)
            strbuf_printf(out, " (all but %d)", wait->but);
        if (wait->earlier > 0)
            strbuf_printf(out, " (%d steps before)", wait->earlier + 1);
        before = ", ";
    }
}

void program_print_text(const struct program *program, struct strbuf *out)
{
    for (int i = 0; i < program->n_tasks; i++) {
        const struct task *task = &program->tasks[i];
        if (!task_is_listed(task))
            continue;
        strbuf_printf(out, "%4d %-9s %-8s ", i, task_place_name(task->place),
                      task_medium_name(task->medium));
        task_print_name(task, out);
        if (task->rail >= 0)
            strbuf_printf(out, " on rail %d", task->rail);
        if (task->is_of_workers)
            strbuf_printf(out, " for each of %d workers", task->members);
        print_waits(program, task, out);
        print_accesses(task, false, out);
        print_accesses(task, true, out);
        strbuf_printf(out, "\n");
    }
}
