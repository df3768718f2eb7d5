/* SPDX-License-Identifier: MIT */
/* verify_tensor.c - exchanges of ranks that share layers: the same on all of them, in the same
 * order.
 *
 * Each rank has a graph and a program of its own, with its slices. The executor sends its list to
 * the others before the first step; two lists are compared entry by entry.
 */
#include <stdio.h>
#include <string.h>

#include "graph/op.h"
#include "sched/verify.h"

int tensor_list(const struct program *program, const struct graph *graph,
                struct tensor_exchange *out)
{
    int count = 0;

    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        if (task->kind != TASK_TENSOR)
            continue;
        const struct node *node = graph_node(graph, task->first_node);
        memset(&out[count], 0, sizeof out[count]); /* it travels */
        snprintf(out[count].name, sizeof out[count].name, "%s %s", node->op->name, node->name);
        count++;
    }
    return count;
}

enum status tensor_verify(const struct tensor_exchange *own, int n_own,
                          const struct tensor_exchange *theirs, int n_theirs, int rank)
{
    for (int i = 0; i < n_own || i < n_theirs; i++) {
        const char *here = i < n_own ? own[i].name : "nothing";
        const char *there = i < n_theirs ? theirs[i].name : "nothing";
        if (strcmp(here, there) != 0)
            return FAIL(STATUS_MISMATCH,
                        "a deadlock: exchange %d of the layers that ranks share is %s here and "
                        "%s on rank %d of them",
                        i, here, there, rank);
    }
    return STATUS_OK;
}
