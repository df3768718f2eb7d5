/* SPDX-License-Identifier: MIT */
/* layers_test.c - a forward graph as layers, and the lines between them. */
#include "graph/layers.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "graph/build.h"

static struct graph *begin(void)
{
    struct graph *graph;

    CHECK_OK(graph_create("test", &graph));
    graph_roles(graph)->input = graph_input(graph, "input", DTYPE_F32, shape_4(1, 2, 4, 4));
    graph_roles(graph)->target = graph_input(graph, "target", DTYPE_I32, shape_1(1));
    return graph;
}

static void end(struct graph *graph, struct value *x)
{
    build_classifier_loss(graph, build_linear(graph, "fc", x, 3), graph_roles(graph)->target);
    CHECK_OK(graph_verify(graph));
}

/* The lines of all layers, with their names, in plain characters or not. */
static void check_rails(const struct graph *graph, bool utf8, const char *expected)
{
    struct graph_layers layers;
    struct graph_rails rails;
    struct strbuf text;

    CHECK_OK(graph_layers_make(graph, &layers));
    CHECK_OK(graph_rails_make(&layers, &rails));
    strbuf_init(&text, 1 << 16);
    for (int i = 0; i < layers.count; i++) {
        if (graph_rails_has_gap(&rails, i)) {
            graph_rails_print(&rails, i, true, utf8, &text);
            strbuf_add(&text, " .\n");
        }
        graph_rails_print(&rails, i, false, utf8, &text);
        strbuf_printf(&text, " %s\n", layers.layer[i].name);
    }
    CHECK_OK(strbuf_status(&text));
    CHECK_TEXT(expected, text.text);
    CHECK_INT(0, rails.left_out);
    strbuf_release(&text);
    graph_rails_release(&rails);
    graph_layers_release(&layers);
}

static void test_layers_are_counted_by_hand(void)
{
    const struct build_conv conv = { .channels = 5, .kernel = 3, .stride = 1, .pad = 1 };
    struct graph *graph = begin();
    struct graph_layers layers;
    double flops = 0;

    end(graph, build_relu(graph, "relu",
                          build_conv2d(graph, "conv", graph_roles(graph)->input, conv)));
    CHECK_OK(graph_layers_make(graph, &layers));
    CHECK_INT(4, layers.count); /* neither accuracy nor loss */
    CHECK_TEXT("input", layers.layer[0].name);
    CHECK_TEXT("conv2d", layers.layer[1].op);
    CHECK_TEXT("relu", layers.layer[2].op);
    CHECK_TEXT("linear", layers.layer[3].op); /* not how its input lies */
    CHECK_INT(5 * 2 * 9 + 5, layers.layer[1].parameters);
    CHECK_INT(0, layers.layer[2].parameters);
    CHECK_INT(3 * 80 + 3, layers.layer[3].parameters);
    CHECK_INT(3, layers.layer[1].output.rank);
    CHECK_INT(5, layers.layer[1].output.dim[0]);
    CHECK_INT(1, layers.layer[3].output.rank);
    CHECK(layers.layer[1].flops >= 2.0 * 16 * 5 * 18);
    for (int i = 0; i < layers.count; i++)
        flops += layers.layer[i].flops;
    CHECK(flops <= graph_flops(graph, 1) && flops > 0.8 * graph_flops(graph, 1));
    graph_layers_release(&layers);
    graph_destroy(graph);
}

static void test_a_chain_has_no_lines_beside_it(void)
{
    struct graph *graph = begin();

    end(graph, build_relu(graph, "relu", graph_roles(graph)->input));
    check_rails(graph, false, "o input\no relu\no fc\n");
    graph_destroy(graph);
}

static void test_connections_that_skip_layers_have_lines(void)
{
    struct graph *graph = begin();
    struct value *a = build_relu(graph, "a", graph_roles(graph)->input);
    struct value *b = build_relu(graph, "b", a);
    struct value *c = build_relu(graph, "c", b);
    struct value *d = build_relu(graph, "d", a); /* another branch */
    struct value *e = build_add(graph, "e", c, d);
    struct value *f = build_add(graph, "f", e, b);

    end(graph, f);
    check_rails(graph, false,
                "o       input\n"
                "o-+     a\n"
                "o-+-+   b\n"
                "o-+-+-+ c\n"
                "  | | | .\n"
                "o-+ | | d\n"
                "o---+-+ e\n"
                "o---+   f\n"
                "o       fc\n");
    check_rails(graph, true,
                "\u25cf       input\n"
                "\u25cf\u2500\u256e     a\n"
                "\u25cf\u2500\u253c\u2500\u256e   b\n"
                "\u25cf\u2500\u253c\u2500\u253c\u2500\u256e c\n"
                "  \u2502 \u2502 \u2502 .\n"
                "\u25cf\u2500\u256f \u2502 \u2502 d\n"
                "\u25cf\u2500\u2500\u2500\u253c\u2500\u256f e\n"
                "\u25cf\u2500\u2500\u2500\u256f   f\n"
                "\u25cf       fc\n");
    graph_destroy(graph);
}

static void test_a_line_that_several_read_is_one(void)
{
    struct graph *graph = begin();
    struct value *a = build_relu(graph, "a", graph_roles(graph)->input);
    struct value *b = build_add(graph, "c", build_relu(graph, "b", a), a);

    end(graph, build_add(graph, "e", build_relu(graph, "d", b), a));
    check_rails(graph, true,
                "\u25cf   input\n"
                "\u25cf\u2500\u256e a\n"
                "\u25cf \u2502 b\n"
                "\u25cf\u2500\u2524 c\n"
                "\u25cf \u2502 d\n"
                "\u25cf\u2500\u256f e\n"
                "\u25cf   fc\n");
    graph_destroy(graph);
}

static void test_more_lines_than_columns_are_left_out_and_counted(void)
{
    enum { N = GRAPH_RAILS + 5 };
    struct graph *graph = begin();
    struct value *made[N], *x = graph_roles(graph)->input;
    struct graph_layers layers;
    struct graph_rails rails;
    struct strbuf text;
    char name[16];

    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "r%d", i);
        x = made[i] = build_relu(graph, name, x);
    }
    for (int i = N - 2; i >= 0; i--) {
        snprintf(name, sizeof name, "a%d", i);
        x = build_add(graph, name, x, made[i]);
    }
    end(graph, x);
    CHECK_OK(graph_layers_make(graph, &layers));
    CHECK_OK(graph_rails_make(&layers, &rails));
    CHECK_INT(GRAPH_RAILS, rails.columns);
    CHECK_INT(4, rails.left_out);
    strbuf_init(&text, 1 << 16);
    for (int i = 0; i < layers.count; i++) {
        strbuf_clear(&text);
        graph_rails_print(&rails, i, false, false, &text);
        CHECK_INT(1 + 2 * GRAPH_RAILS, text.length);
    }
    strbuf_release(&text);
    graph_rails_release(&rails);
    graph_layers_release(&layers);
    graph_destroy(graph);
}

static void test_every_allocation_may_fail(void)
{
    struct graph *graph = begin();
    struct graph_layers layers;
    struct graph_rails rails;

    end(graph, build_relu(graph, "relu", graph_roles(graph)->input));
    for (uint64_t nth = 1; nth <= 4; nth++) {
        mem_fail_at(nth);
        CHECK_STATUS(STATUS_NO_MEMORY, graph_layers_make(graph, &layers));
        mem_fail_at(0);
    }
    CHECK_OK(graph_layers_make(graph, &layers));
    for (uint64_t nth = 1; nth <= 2; nth++) {
        mem_fail_at(nth);
        CHECK_STATUS(STATUS_NO_MEMORY, graph_rails_make(&layers, &rails));
        mem_fail_at(0);
    }
    graph_layers_release(&layers);
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "layers are counted by hand", .run = test_layers_are_counted_by_hand },
    { .name = "a chain has no lines beside it", .run = test_a_chain_has_no_lines_beside_it },
    { .name = "connections that skip layers have lines",
      .run = test_connections_that_skip_layers_have_lines },
    { .name = "a line that several read is one", .run = test_a_line_that_several_read_is_one },
    { .name = "more lines than columns are left out and counted",
      .run = test_more_lines_than_columns_are_left_out_and_counted },
    { .name = "every allocation may fail", .run = test_every_allocation_may_fail },
    { 0 },
};
