/* SPDX-License-Identifier: MIT */
/* plan_types.c - in which types and layouts values lie, which kernels take them so, and what is converted or turned.
 *
 * On a device that computes in bf16 each value lies in the type that its maker gives it. Parameters are there
 * in both; of anything else that a kernel wants in the other type a copy is made, once, which lives as long
 * as the value itself. Filters lie as the graph of the step says; kernels that take them one way alone have a turned
 * copy, and what they make is turned after them.
 */
#include "exec/plan_maker.h"
#include "graph/op.h"
#include "kernel/precision.h"

bool plan_is_narrow(const struct maker *maker)
{
    return maker->target && kernel_is_half(maker->target->precision);
}

void plan_problem(const struct node *node, const struct shape *shapes,
                  struct kernel_problem *problem)
{
    problem->op = node->op->name;
    problem->n_in = node->n_in;
    problem->n_out = node->n_out;
    problem->attrs = node->attrs;
    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = node->in[i];
        problem->in[i] = (struct kernel_tensor){ in->dtype, in->layout, shapes[in->id] };
    }
    for (int i = 0; i < node->n_out; i++) {
        const struct value *made = node->out[i];
        problem->out[i] = (struct kernel_tensor){ made->dtype, made->layout, shapes[made->id] };
    }
    if (node->op->by_rows)
        kernel_as_matrices(problem);
}

/* The node's problem, as the plan's device solves it. */
static void fill_problem(const struct maker *maker, const struct node *node,
                         struct kernel_problem *problem)
{
    plan_problem(node, maker->shapes, problem);
    if (!maker->target)
        return;
    problem->rounds = maker->target->rounds;
    if (!plan_is_narrow(maker))
        return;
    if (!node->op->talks && !node->op->moves) {
        kernel_narrow(problem, maker->target->precision);
        return;
    }
    /* What goes between ranks goes as it lies. */
    for (int i = 0; i < node->n_in; i++)
        problem->in[i].dtype = maker->dtypes[node->in[i]->id];
    if (node->n_in == 1)
        problem->out[0].dtype = problem->in[0].dtype;
}

void plan_find_dtypes(struct maker *maker)
{
    for (int i = 0; i < graph_value_count(maker->graph); i++)
        maker->dtypes[i] = graph_value(maker->graph, i)->dtype;
    for (int n = 0; n < graph_node_count(maker->graph) && plan_is_narrow(maker); n++) {
        const struct node *node = graph_node(maker->graph, n);
        struct kernel_problem problem = { 0 };
        if (node->op->split[0] == SPLIT_WHOLE || node->op->meets)
            continue;
        if (node->op->is_view) {
            maker->dtypes[node->out[0]->id] = maker->dtypes[node->in[0]->id];
            continue;
        }
        fill_problem(maker, node, &problem);
        for (int i = 0; i < node->n_out; i++)
            maker->dtypes[node->out[i]->id] = problem.out[i].dtype;
    }
}

/* Layers of few rows are computed by columns (columns.c) and updated from factors (pass_is_factored) in some layouts, by our
 * own sums. Whatever the table says they have these in all, so that all have the same bits. */
static bool has_own_sums(const struct node *node, const struct kernel_problem *problem)
{
    return (node->op == &op_linear || node->op == &op_linear_grad_weight) &&
           node->in[0]->shape.rank == 2 && problem->in[0].shape.dim[0] < PASS_MANY_ROWS;
}

/* How a value lies: parameters as in the graph where they have places. */
static enum layout layout_of(const struct maker *maker, const struct value *value)
{
    const struct value *placed = value;

    if (value->kind == VALUE_PARAM && value->shape.rank == 4 && !value->flat)
        placed = graph_find_value(maker->places_of, value->name);
    return placed ? placed->layout : value->layout;
}

/* Problems are stated with filters that lie hwio. */
static void state_usual(struct kernel_problem *problem)
{
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].layout == LAYOUT_OHWI)
            problem->in[i].layout = LAYOUT_HWIO;
    }
    if (problem->out[0].layout == LAYOUT_OHWI)
        problem->out[0].layout = LAYOUT_HWIO;
}

/* What the kernel takes either way it gets as it lies. */
static void state_as_it_lies(const struct maker *maker, const struct node *node,
                             const struct kernel *kernel, struct kernel_problem *problem)
{
    const struct device_face *face = maker->target ? maker->target->face : NULL;

    if (!face || !face->takes_inward || !kernel || !face->takes_inward(kernel))
        return;
    for (int i = 0; i < node->n_in; i++) {
        if (problem->in[i].layout == LAYOUT_HWIO)
            problem->in[i].layout = layout_of(maker, node->in[i]);
    }
    if (problem->out[0].layout == LAYOUT_HWIO)
        problem->out[0].layout = node->out[0]->layout;
}

/* A device whose kernels are the CPU's has the table of choices, too. */
enum status plan_choose(const struct maker *maker, const struct node *node,
                        const struct kernel_problem *problem,
                        const struct kernel_choices *choices, const struct kernel **out)
{
    if (!maker->target || maker->target->face->kernel_at == kernel_at) {
        const struct kernel *own = kernel_find(problem->op, "own");
        if (has_own_sums(node, problem) && own && (!own->can_run || own->can_run(problem))) {
            *out = own;
            return STATUS_OK;
        }
        return kernel_choose(choices, problem, out);
    }
    return kernel_choose_on(choices, maker->target->face, maker->target->precision, problem,
                            out);
}

enum status plan_find_kernel(const struct maker *maker, const struct node *node,
                             const struct kernel_choices *choices,
                             struct kernel_problem *problem, const struct kernel **out)
{
    fill_problem(maker, node, problem);
    state_usual(problem);
    if (!node->op->talks)
        TRY(plan_choose(maker, node, problem, choices, out));
    state_as_it_lies(maker, node, *out, problem);
    return STATUS_OK;
}

struct operand plan_place_input(struct maker *maker, struct instruction *out,
                                const struct value *value, const struct kernel_tensor *wanted,
                                int number)
{
    const int root = maker->places[value->id].root;
    const struct place *place = &maker->places[root];
    const struct shape *shape = &maker->shapes[root];
    const bool turns = wanted->layout == LAYOUT_HWIO && layout_of(maker, value) == LAYOUT_OHWI;
    struct operand lies = place->operand;
    enum dtype dtype = maker->dtypes[root];

    if (dtype != wanted->dtype && lies.base == BASE_PARAM) {
        lies = (struct operand){ BASE_HALF, lies.offset / 2 };
        dtype = wanted->dtype;
    }
    if (dtype == wanted->dtype && !turns)
        return lies;
    BUG_ON(!maker->target);
    if (!maker->has_copy[root]) {
        const size_t count = (size_t)shape_count(shape);
        const int until = place->last_use > number ? place->last_use : number;
        maker->has_copy[root] = true;
        maker->copies[root] =
            (struct operand){ BASE_ARENA, plan_take(maker, count * dtype_size(wanted->dtype),
                                                    number, until) };
        out->converts[out->n_converts++] =
            (struct plan_convert){ lies,  maker->copies[root],
                                   dtype, wanted->dtype,
                                   count, turns ? (size_t)shape->dim[0] : 0 };
        maker->n_converts++;
    }
    return maker->copies[root];
}

void plan_place_gradient(struct maker *maker, const struct node *node, struct instruction *out,
                         int number)
{
    const struct kernel_tensor *made = &out->problem.out[0];
    const size_t count = (size_t)shape_count(&made->shape);

    if (made->layout != LAYOUT_HWIO || node->out[0]->layout != LAYOUT_OHWI)
        return;
    BUG_ON(!maker->target);
    const struct operand apart = { BASE_ARENA, plan_take(maker, count * dtype_size(made->dtype),
                                                         number, number) };
    out->gives =
        (struct plan_convert){ apart,       out->out[0], made->dtype,
                               made->dtype, count,       count / (size_t)made->shape.dim[0] };
    out->out[0] = apart;
}
