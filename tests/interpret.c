/* SPDX-License-Identifier: MIT */
/* interpret.c - runs a graph node by node. */
#include "interpret.h"

#include <string.h>

#include "base/mem.h"
#include "graph/op.h"

/* One node, ready to run. */
struct step {
    const struct node *node;
    const struct kernel *kernel; /* NULL: a view, or a meeting of one shard: both copy */
    struct kernel_problem problem;
    struct kernel_call call;
};

struct interpreter {
    int n_values, n_steps;
    struct shape *shapes; /* by value id, as are the buffers */
    void **buffers;
    struct step *steps;
};

static size_t bytes_of(const struct value *value, const struct shape *shape)
{
    return (size_t)shape_count(shape) * dtype_size(value->dtype);
}

struct kernel_problem interpret_problem(const struct node *node, const struct shape *shapes)
{
    struct kernel_problem problem = {
        .op = node->op->name, .n_in = node->n_in, .n_out = node->n_out, .attrs = node->attrs
    };

    for (int i = 0; i < node->n_in; i++)
        problem.in[i] = (struct kernel_tensor){ node->in[i]->dtype, node->in[i]->layout,
                                                shapes[node->in[i]->id] };
    for (int i = 0; i < node->n_out; i++)
        problem.out[i] = (struct kernel_tensor){ node->out[i]->dtype, node->out[i]->layout,
                                                 shapes[node->out[i]->id] };
    if (node->op->by_rows)
        kernel_as_matrices(&problem);
    return problem;
}

static enum status prepare_step(struct interpreter *in, const struct node *node,
                                const struct kernel_choices *choices, struct step *step)
{
    step->node = node;
    if (node->op->meets && node->attrs.shards != 1)
        return FAIL(STATUS_UNSUPPORTED, "%s: the one shard here is not all", node->name);
    if (node->op->is_view || node->op->meets)
        return STATUS_OK;
    step->problem = interpret_problem(node, in->shapes);
    if (choices)
        TRY(kernel_choose(choices, &step->problem, &step->kernel));
    else if (!(step->kernel = kernel_find(node->op->name, "reference")))
        return FAIL(STATUS_NOT_FOUND, "%s has no reference kernel", node->op->name);
    step->call.problem = &step->problem;
    for (int i = 0; i < node->n_in; i++)
        step->call.in[i] = in->buffers[node->in[i]->id];
    for (int i = 0; i < node->n_out; i++)
        step->call.out[i] = in->buffers[node->out[i]->id];
    if (step->kernel->scratch_bytes)
        TRY(mem_alloc(step->kernel->scratch_bytes(&step->problem), 1, &step->call.scratch));
    if (step->kernel->prepare)
        TRY(step->kernel->prepare(&step->problem, &step->call.state));
    return STATUS_OK;
}

static enum status prepare(struct interpreter *in, const struct graph *graph, int64_t rows,
                           const struct kernel_choices *choices)
{
    const int n_nodes = graph_node_count(graph);

    in->n_values = graph_value_count(graph);
    TRY(mem_alloc((size_t)in->n_values, sizeof *in->shapes, &in->shapes));
    TRY(mem_alloc((size_t)in->n_values, sizeof *in->buffers, &in->buffers));
    TRY(mem_alloc((size_t)n_nodes, sizeof *in->steps, &in->steps));
    struct extents extents = graph_extents(graph);
    extents.rows = rows;
    TRY(graph_infer(graph, extents, in->shapes));
    for (int i = 0; i < in->n_values; i++)
        TRY(mem_alloc(bytes_of(graph_value(graph, i), &in->shapes[i]), 1, &in->buffers[i]));
    for (int n = 0; n < n_nodes; n++) {
        in->n_steps++;
        TRY(prepare_step(in, graph_node(graph, n), choices, &in->steps[n]));
    }
    return STATUS_OK;
}

enum status interpret_create(const struct graph *graph, int64_t rows,
                             const struct kernel_choices *choices, struct interpreter **out)
{
    struct interpreter *in;

    TRY(mem_alloc(1, sizeof *in, &in));
    const enum status status = prepare(in, graph, rows, choices);
    if (status != STATUS_OK) {
        interpret_destroy(in);
        return status;
    }
    *out = in;
    return STATUS_OK;
}

void interpret_destroy(struct interpreter *in)
{
    if (!in)
        return;
    for (int n = 0; n < in->n_steps; n++) {
        const struct step *step = &in->steps[n];
        if (step->call.state && step->kernel->release)
            step->kernel->release(step->call.state);
        mem_free(step->call.scratch);
    }
    for (int i = 0; in->buffers && i < in->n_values; i++)
        mem_free(in->buffers[i]);
    mem_free(in->shapes);
    mem_free(in->buffers);
    mem_free(in->steps);
    mem_free(in);
}

void *interpret_data(const struct interpreter *in, const struct value *value)
{
    return in->buffers[value->id];
}

const struct shape *interpret_shape(const struct interpreter *in, const struct value *value)
{
    return &in->shapes[value->id];
}

void interpret_run(struct interpreter *in, int first, int end, const struct kernel_step *step)
{
    for (int n = first; n < end; n++) {
        struct step *next = &in->steps[n];
        const struct node *node = next->node;

        if (!next->kernel) {
            const struct value *from = node->in[0];
            memcpy(in->buffers[node->out[0]->id], in->buffers[from->id],
                   bytes_of(from, &in->shapes[from->id]));
            continue;
        }
        next->call.step = step;
        next->kernel->run(&next->call);
    }
}
