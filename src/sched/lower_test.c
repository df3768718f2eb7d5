/* SPDX-License-Identifier: MIT */
/* lower_test.c - graphs of steps are lowered to tasks with the dependencies that they need. */
#include "sched/lower.h"

#include <stdio.h>

#include "base/test.h"
#include "pass/pass_testing.h"

static struct lower_config config_of(int nodes, int node_ranks, int lanes, int rails)
{
    return (struct lower_config){ .topology = { .nodes = nodes,
                                                .node_ranks = node_ranks,
                                                .lanes = lanes,
                                                .rails = rails },
                                  .has_steps = true };
}

static void test_print(void)
{
    for (int nodes = 1; nodes < 3; nodes++) {
        for (int clip = 0; clip < 6; clip++) {
            static const char *const strategies[] = { "mirrored", "mirrored", "zero",
                                                      "parallax", "ps",       "mirrored" };
            struct graph *graph = pass_testing_graph(clip == 3 ? "nbow" : "mlp",
                                                     strategies[clip], 2, (float)(clip % 2));
            struct lower_config config = config_of(nodes, 2, 2, 2);
            config.gives = clip == 4;
            config.compresses = clip == 5;
            config.releases = clip == 2;
            struct program *program;
            struct strbuf out;

            strbuf_init(&out, 1 << 20);
            CHECK_OK(program_lower(graph, &config, &program));
            program_print_text(program, &out);
            printf("nodes %d clip %d\n%s\n", nodes, clip, out.text);
            strbuf_release(&out);
            program_destroy(program);
            graph_destroy(graph);
        }
    }
}

const struct test tests[] = {
    { .name = "print", .run = test_print },
    { 0 },
};
