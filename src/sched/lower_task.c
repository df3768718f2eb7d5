/* SPDX-License-Identifier: MIT */
/* lower_task.c - adds tasks to a program that is lowered, and what they read and write. */
#include "base/mem.h"
#include "sched/lowering.h"

/* Is the bucket's sum made from records of all shards? */
bool lower_is_gathered(const struct lowering *l, int b)
{
    return facts_is_gathered(&l->facts, b);
}

bool lower_is_held(const struct lowering *l, int b)
{
    return l->config->topology.nodes > 1 && l->facts.buckets[b].is_held;
}

/* Adds a task whose members are all lanes of the node; the caller changes that where it is not so. */
struct task *lower_add(struct lowering *l, enum task_kind kind, enum task_medium medium,
                       enum task_place place, int bucket)
{
    struct program *program = l->program;
    const struct lower_topology *t = &l->config->topology;
    const bool is_net = place == PLACE_NET;

    BUG_ON(program->n_tasks == l->capacity);
    struct task *task = &program->tasks[program->n_tasks++];
    *task = (struct task){ .kind = kind,
                           .does = 1U << kind,
                           .medium = medium,
                           .place = place,
                           .bucket = bucket,
                           .slice = -1,
                           .peer = -1,
                           .gather = -1,
                           .stride = 1,
                           .rail = -1,
                           .members = is_net ? t->rails : t->lanes * t->node_ranks,
                           .increment = 1,
                           .signal = -1 };
    return task;
}

int lower_number(const struct lowering *l, const struct task *task)
{
    return (int)(task - l->program->tasks);
}

/* One rail alone runs it. */
void lower_give_to_rail(struct task *task, int rail)
{
    task->rail = rail;
    task->members = 1;
}

static bool is_same(const struct access *a, const struct access *b)
{
    return a->memory == b->memory && a->index == b->index && a->part == b->part &&
           a->reach == b->reach && a->partition == b->partition && a->is_write == b->is_write;
}

void lower_add_access(struct task *task, struct access access)
{
    for (int i = 0; i < task->n_accesses; i++) {
        if (is_same(&task->accesses[i], &access))
            return;
    }
    BUG_ON(task->n_accesses == TASK_ACCESSES);
    task->accesses[task->n_accesses++] = access;
}

void lower_touch(struct task *task, enum memory_kind memory, int index, enum reach reach,
                 enum partition partition, bool is_write)
{
    lower_add_access(task, (struct access){ .memory = memory,
                                            .index = index,
                                            .part = -1,
                                            .reach = reach,
                                            .partition = partition,
                                            .is_write = is_write });
}

void lower_reads_all(struct task *task, enum memory_kind memory, int index)
{
    lower_touch(task, memory, index, REACH_ALL, PARTITION_LANE, false);
}

void lower_reads_own(struct task *task, enum memory_kind memory, int index, enum partition by)
{
    lower_touch(task, memory, index, REACH_OWN, by, false);
}

void lower_writes_own(struct task *task, enum memory_kind memory, int index, enum partition by)
{
    lower_touch(task, memory, index, REACH_OWN, by, true);
}
