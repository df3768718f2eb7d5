/* SPDX-License-Identifier: MIT */
/* device_ops_test.c - every row of the table of ops on a GPU: its kernel there gives what the CPU's reference
 * does, on the cases of op_case.c. Skipped where there is none. */
#include <stdio.h>
#include <string.h>

#include "base/test.h"
#include "interpret.h"
#include "kernel/device_testing.h"
#include "kernel/kernel_testing.h"
#include "kernel/measure.h"
#include "op_case.h"

static const struct kernel_step step = { .seed = 7, .first_sample = 96, .inv_batch = 0.125F };

static struct kernel_problem problem_of(const struct graph *graph, const struct node *node)
{
    struct shape shapes[32];

    CHECK(graph_value_count(graph) <= 32);
    for (int i = 0; i < graph_value_count(graph); i++)
        shapes[i] = graph_value(graph, i)->shape;
    return interpret_problem(node, shapes);
}

/* Buffers of the case's contents. */
static struct kernel_trial *trial_of(const struct node *node,
                                     const struct kernel_problem *problem, struct rng rng)
{
    struct kernel_trial *trial;

    CHECK_OK(kernel_trial_create(kernel_find(problem->op, "reference"), problem,
                                 KERNEL_FILL_NORMAL, 1, &trial));
    struct kernel_call *call = kernel_trial_call(trial);
    call->step = &step;
    for (int i = 0; i < node->n_in; i++) {
        void *data;
        memcpy(&data, &call->in[i], sizeof data); /* the trial's own buffer */
        op_case_fill(node, node->in[i], &problem->in[i].shape, &rng, data);
    }
    return trial;
}

/* By elements: contents are odd multiples of 1/128, so whatever only adds and multiplies them is exact. */
static double tolerance_of(const struct kernel_problem *problem)
{
    const double tolerance = kernel_testing_tolerance(problem);

    return tolerance > 0 && tolerance < 2e-6 ? 2e-6 : tolerance;
}

/* Counted, so that one run names all ops that differ. */
static int n_bad;

/* Graphs of a device have some forms alone of batch norms in convolutions (pass/fuse_norm.c). */
static bool is_partly_there(const struct op *op)
{
    return strncmp(op->name, "norm_conv2d", 11) == 0 ||
           strncmp(op->name, "conv2d_stats", 12) == 0;
}

static void check(const struct device_place *place, const struct graph *graph,
                  const struct node *node, struct rng *rng)
{
    const struct kernel_problem problem = problem_of(graph, node);
    char text[KERNEL_TEXT];

    if (node->op->is_view)
        return;
    const struct kernel *kernel = device_kernel(place->face, &problem);
    if (!kernel && is_partly_there(node->op))
        return;
    if (!kernel)
        test_fail(__FILE__, __LINE__, "no kernel: \"%s\"", kernel_print(&problem, text));
    struct kernel_trial *expected = trial_of(node, &problem, *rng);
    struct kernel_trial *actual = trial_of(node, &problem, *rng);
    kernel_trial_run(expected);
    CHECK_OK(
        device_testing_run(place, kernel, &problem, kernel_trial_call(actual), DEVICE_ONCE));
    for (int i = 0; i < problem.n_out; i++) {
        const double difference = kernel_trial_difference(expected, actual, i);
        if (!(difference <= tolerance_of(&problem))) {
            fprintf(stderr, "differs by %g in output %d: \"%s\"\n", difference, i,
                    kernel_print(&problem, text));
            n_bad++;
        }
    }
    kernel_trial_destroy(actual);
    kernel_trial_destroy(expected);
    (void)rng_u64(rng);
}

static void the_gpu_agrees_with_the_reference(struct rng *rng)
{
    static struct device_place place;

    if (!place.face && device_place_open("cuda", &place) != STATUS_OK)
        test_skip(status_message());
    for (int i = 0; graph_ops[i]; i++) {
        struct graph *graph;

        if (!op_case_exists(graph_ops[i]))
            continue;
        CHECK_OK(graph_create(graph_ops[i]->name, &graph));
        const struct node *node = op_case_add(graph, graph_ops[i], rng);
        CHECK_OK(graph_status(graph));
        check(&place, graph, node, rng);
        graph_destroy(graph);
    }
    CHECK_INT(0, n_bad);
}

const struct test tests[] = {
    { .name = "the GPU agrees with the reference",
      .property = the_gpu_agrees_with_the_reference },
    { 0 },
};
