/* SPDX-License-Identifier: MIT */
/* plan_maker.h - what is known while a plan is made, by plan.c and plan_types.c. Private to these. */
#ifndef EXEC_PLAN_MAKER_H
#define EXEC_PLAN_MAKER_H

#include "exec/place.h"
#include "exec/plan.h"

/* Where a value lies, while the plan is made. */
struct place {
    bool known;
    struct operand operand;
    int root;     /* value whose buffer this one is (itself, unless a view) */
    int last_use; /* instruction number; of the root */
    int late_use; /* until then an instruction aside may read it (aside.h); of the root */
    size_t bytes;
};

struct maker {
    const struct graph *graph;
    const struct graph *places_of; /* the graph whose parameters have places */
    const struct plan_buckets *buckets;
    const struct plan_factors *factors;
    const struct plan_gathers *gathers;
    const struct plan_given *given;
    int n_given;
    const struct plan_target *target; /* NULL: the CPU */
    enum dtype *dtypes;               /* in which values lie, by value id */
    struct operand *copies;           /* in the other type, by the id of a root */
    bool *has_copy;
    int n_converts;
    struct shape *shapes;
    struct place *places;       /* by value id */
    struct place_block *blocks; /* of the arena */
    int n_blocks;
    int updated[GRAPH_NODE_IN];    /* of a bucket: the instruction after which it is updated */
    bool has_place[GRAPH_NODE_IN]; /* of a bucket whose gradients lie in the arena: already */
    size_t gradients[GRAPH_NODE_IN]; /* then where */
};

/* A block of the arena for instructions [now, until]: an offset (BLOCK_SHIFT). */
size_t plan_take(struct maker *maker, size_t bytes, int now, int until);

/* plan_types.c ------------------------------------------------------------------------------- */

/* Does the plan's device compute in 16 bits? */
bool plan_is_narrow(const struct maker *maker);
/* In which types values lie: as their makers give them, also those on other stages. */
void plan_find_dtypes(struct maker *maker);
/* The kernel of the plan's device for a problem that stands for the node's. */
MUST_CHECK enum status plan_choose(const struct maker *maker, const struct node *node,
                                   const struct kernel_problem *problem,
                                   const struct kernel_choices *choices,
                                   const struct kernel **out);
/* The node's problem, as the plan's device solves it, and the kernel that does; left as it is for nodes between ranks. */
MUST_CHECK enum status plan_find_kernel(const struct maker *maker, const struct node *node,
                                        const struct kernel_choices *choices,
                                        struct kernel_problem *problem,
                                        const struct kernel **out);
/* Where instruction `number` finds a value as it wants it: a copy, if it does not lie so. */
struct operand plan_place_input(struct maker *maker, struct instruction *out,
                                const struct value *value, const struct kernel_tensor *wanted,
                                int number);
/* Where an instruction leaves a gradient: a filter's that it makes hwio and that lies otherwise is turned after it. */
void plan_place_gradient(struct maker *maker, const struct node *node, struct instruction *out,
                         int number);

#endif /* EXEC_PLAN_MAKER_H */
