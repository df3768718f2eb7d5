/* SPDX-License-Identifier: MIT */
/* draw_test.c - drawings of graphs are well-formed and readable, whatever the graph is. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "graph/build.h"
#include "graph/draw_testing.h"
#include "graph/op.h"

static struct value *add(struct graph *graph, const struct op *op, const char *name,
                         struct value *a, struct value *b)
{
    struct value *const in[] = { a, b };
    struct node *node = graph_add(graph, op, name, in, 2, NULL);
    CHECK_OK(graph_status(graph));
    return node->out[0];
}

static struct graph *begin(const char *name)
{
    struct graph *graph;

    CHECK_OK(graph_create(name, &graph));
    return graph;
}

static void test_an_empty_graph_is_an_empty_picture(void)
{
    struct graph *graph = begin("nothing");

    CHECK_INT(0, draw_testing_check(graph));
    graph_destroy(graph);
}

static void test_a_chain_has_an_edge_less_than_nodes(void)
{
    struct graph *graph = begin("chain");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 8));

    x = build_linear(graph, "fc1", x, 16);
    x = build_relu(graph, "relu1", x);
    x = build_linear(graph, "fc2", x, 3);
    CHECK_OK(graph_status(graph));
    CHECK_INT(graph_node_count(graph) - 1, draw_testing_check(graph));
    graph_destroy(graph);
}

/* Stages of a pipeline have stripes with their numbers, and slices of parameters a border and a colour by their axis. */
static void test_stages_and_slices_are_told_apart(void)
{
    struct graph *graph = begin("grid");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 8));
    struct strbuf plain, coloured;

    x = build_linear(graph, "fc1", x, 16);
    x = build_linear(graph, "fc2", x, 3);
    strbuf_init(&plain, 1 << 20);
    strbuf_init(&coloured, 1 << 20);
    graph_print_svg(graph, &plain);
    CHECK(!strstr(plain.text, "\"tg-stage\"") && !strstr(plain.text, "tg-pill tg-slice"));
    CHECK(!strstr(plain.text, "var(")); /* most viewers would paint all black */
    for (int n = 0; n < graph_node_count(graph); n++)
        graph_node(graph, n)->stage = n > 0;
    graph_find_value(graph, "fc1.weight")->slice =
        (struct shape_slice){ .count = 2, .index = 1 };
    graph_find_value(graph, "fc2.weight")->slice =
        (struct shape_slice){ .count = 2, .index = 1, .axis = 1 };
    graph_print_svg(graph, &coloured);
    CHECK_OK(strbuf_status(&coloured));
    CHECK(strstr(coloured.text, "<title>stage 0</title>") &&
          strstr(coloured.text, "<title>stage 1</title>"));
    CHECK(strstr(coloured.text, "tg-pill tg-slice tg-axis0") &&
          strstr(coloured.text, "tg-pill tg-slice tg-axis1") &&
          strstr(coloured.text, "slice 1 of 2 of fc1.weight"));
    CHECK(strstr(coloured.text, "share its rows") &&
          strstr(coloured.text, "share its columns"));
    CHECK(!strstr(coloured.text, "a further axis"));
    strbuf_release(&plain);
    strbuf_release(&coloured);
    graph_destroy(graph);
}

/* Skips over one, two and many nodes: the edges have to go round the boxes. */
static void test_edges_that_skip_nodes_go_round_them(void)
{
    struct graph *graph = begin("residual");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 8));
    char name[32];
    int edges = 0;

    struct value *first = x = build_relu(graph, "stem", x);
    for (int block = 0; block < 6; block++) {
        struct value *skip = x;
        for (int layer = 0; layer <= block; layer++, edges++) {
            snprintf(name, sizeof name, "block%d.%d", block, layer);
            x = build_relu(graph, name, x);
        }
        snprintf(name, sizeof name, "block%d.add", block);
        x = add(graph, &op_add, name, x, skip);
        edges += 2;
    }
    add(graph, &op_add, "long", x, first);
    CHECK_INT(edges + 2, draw_testing_check(graph));
    graph_destroy(graph);
}

/* Draws the graph; returns the drawing, for strbuf_release. */
static struct strbuf draw(const struct graph *graph, double *out_width, double *out_height)
{
    struct strbuf text;

    strbuf_init(&text, 16 << 20);
    graph_print_svg(graph, &text);
    CHECK_OK(strbuf_status(&text));
    *out_width = strtod(strstr(text.text, " width=\"") + strlen(" width=\""), NULL);
    *out_height = strtod(strstr(text.text, " height=\"") + strlen(" height=\""), NULL);
    return text;
}

struct corner {
    double x, y;
};

/* Where the forward box of that name is; the text goes on behind it. */
static struct corner find_box(const char **text, const char *name)
{
    char line[64];
    struct corner corner;

    snprintf(line, sizeof line, "\nforward %s\n", name);
    *text = strstr(*text, line);
    CHECK(*text);
    *text = strstr(*text, "<rect class=\"tg-box\"");
    corner.x = strtod(strstr(*text, " x=\"") + strlen(" x=\""), NULL);
    corner.y = strtod(strstr(*text, " y=\"") + strlen(" y=\""), NULL);
    return corner;
}

/* Blocks of four nodes and what adds them to their input. */
static struct graph *residual_graph(int n_blocks)
{
    static const char *const names[] = { "first", "layer", "layer", "layer" };
    struct graph *graph = begin("residual");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 8));

    x = build_relu(graph, "stem", x);
    for (int block = 0; block < n_blocks; block++) {
        struct value *skip = x;
        for (int layer = 0; layer < 4; layer++)
            x = build_relu(graph, names[layer], x);
        x = add(graph, &op_add, "add", x, skip);
    }
    CHECK_INT(6 * n_blocks, draw_testing_check(graph));
    return graph;
}

static void test_shortcuts_leave_the_main_path_straight(void)
{
    struct graph *graph = residual_graph(2);
    double width, height;
    struct strbuf text = draw(graph, &width, &height);
    const char *c = text.text;
    const double x = find_box(&c, "stem").x;

    for (int block = 0; block < 2; block++) {
        CHECK(find_box(&c, "first").x == x);
        for (int i = 0; i < 3; i++)
            CHECK(find_box(&c, "layer").x == x);
        CHECK(find_box(&c, "add").x == x);
    }
    strbuf_release(&text);
    graph_destroy(graph);
}

/* It is cut where blocks end: what stands on top of a band is first in its block. */
static void test_a_long_model_goes_on_beside_itself(void)
{
    struct graph *graph = residual_graph(21);
    double width, height;
    struct strbuf text = draw(graph, &width, &height);
    const char *c = text.text;
    const struct corner stem = find_box(&c, "stem");
    int n_bands = 1;

    CHECK(width < 2000 && height < 4000);
    for (int block = 0; block < 21; block++) {
        n_bands += find_box(&c, "first").y == stem.y;
        for (int i = 0; i < 3; i++)
            CHECK(find_box(&c, "layer").y > stem.y);
        CHECK(find_box(&c, "add").y > stem.y);
    }
    CHECK(n_bands > 2);
    strbuf_release(&text);
    graph_destroy(graph);
}

/* c begins beside b, which ends before it does. */
static void test_a_branch_stays_in_its_column(void)
{
    struct graph *graph = begin("branches");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 8));
    struct value *a1 = build_relu(graph, "a1", x), *a2 = build_relu(graph, "a2", a1), *a = a2;
    double width, height;

    for (int i = 0; i < 5; i++)
        a = build_relu(graph, "a", a);
    build_relu(graph, "b2", build_relu(graph, "b1", a1));
    build_relu(graph, "c3", build_relu(graph, "c2", build_relu(graph, "c1", a2)));
    CHECK_INT(11, draw_testing_check(graph));
    struct strbuf text = draw(graph, &width, &height);
    const char *c = text.text;
    const double b1 = find_box(&c, "b1").x, b2 = find_box(&c, "b2").x;
    const double c1 = find_box(&c, "c1").x, c2 = find_box(&c, "c2").x;
    CHECK(b1 == b2 && c1 > b1 && c1 == c2 && c1 == find_box(&c, "c3").x);
    strbuf_release(&text);
    graph_destroy(graph);
}

/* Width of a chain of twelve; the norm of the last `n` follows if there are some, and `n_skips` edges
 * pass parts of it, one around the other. Names are long, so that the legend is not wider. */
static double chain_width(int n, int n_skips)
{
    static const char name[] = "a layer whose name fills the whole box";
    const struct attrs attrs = { .max_norm = 1 };
    struct graph *graph = begin("chain");
    struct value *x = graph_input(graph, name, DTYPE_F32, shape_2(4, 8)), *values[12];
    double width, height;

    for (int i = 0; i < 12; i++)
        values[i] = x = i > 5 && i - 6 < n_skips
                            ? add(graph, &op_add, name, x, values[11 - i - 1])
                            : build_relu(graph, name, x);
    if (n > 0)
        (void)graph_add(graph, &op_clip_norm, name, values + 12 - n, n, &attrs);
    CHECK_OK(graph_status(graph));
    CHECK_INT(11 + n + n_skips, draw_testing_check(graph));
    struct strbuf text = draw(graph, &width, &height);
    strbuf_release(&text);
    graph_destroy(graph);
    return width;
}

static void test_edges_to_one_box_share_their_way(void)
{
    CHECK(chain_width(3, 0) > chain_width(0, 0));
    CHECK(chain_width(3, 0) == chain_width(12, 0));
}

static void test_shortcuts_go_round_shorter_ones(void)
{
    CHECK(chain_width(0, 1) > chain_width(0, 0));
    CHECK(chain_width(0, 3) > chain_width(0, 1));
}

/* A training step by hand: what flows back, a bucket with two gradients, its sum and update. */
static void test_values_in_a_flat_one_lead_to_its_users(void)
{
    struct graph *graph = begin("step");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 8));
    struct value *w = graph_param(graph, "fc.weight", shape_2(8, 8), 1);
    struct value *flat_w = graph_flat(graph, "bucket0.param", 72);
    struct value *flat_g = graph_flat(graph, "bucket0.grad", 72);
    const struct attrs with_bias = { .with_bias = 1 };

    struct value *y = add(graph, &op_linear, "fc", x, w);
    graph_set_phase(graph, PHASE_BACKWARD);
    struct value *const grad_in[] = { x, y };
    struct node *grad =
        graph_add(graph, &op_linear_grad_weight, "fc.weight", grad_in, 2, &with_bias);
    w->flat = flat_w;
    grad->out[0]->flat = grad->out[1]->flat = flat_g;
    grad->out[1]->offset = 64;
    graph_set_phase(graph, PHASE_REDUCE);
    struct value *sum = add(graph, &op_shard_sum, "sum", flat_g, NULL);
    graph_set_phase(graph, PHASE_UPDATE);
    add(graph, &op_sgd_update, "update", flat_w, sum);
    CHECK_OK(graph_verify(graph));

    /* fc -> d.fc.weight (once, though two values lie in the bucket) -> sum -> update */
    CHECK_INT(3, draw_testing_check(graph));

    struct strbuf dot;
    char edge[64];
    strbuf_init(&dot, 1 << 16);
    graph_print_dot(graph, &dot);
    CHECK_OK(strbuf_status(&dot));
    snprintf(edge, sizeof edge, "n%d -> n%d ", grad->id, sum->maker->id);
    const char *found = strstr(dot.text, edge);
    CHECK(found && !strstr(found + 1, edge));
    snprintf(edge, sizeof edge, "v%d -> n%d ", flat_w->id, graph_node(graph, 3)->id);
    CHECK(strstr(dot.text, edge));
    CHECK(!strstr(dot.text, "bucket0.grad\""));
    strbuf_release(&dot);
    graph_destroy(graph);
}

static void test_hostile_names_are_escaped(void)
{
    static const char *const names[] = {
        "</text><script>alert(1)</script>",
        "a & b < c > d \"e\" 'f'",
        "]]>-->&amp;&#0;",
        "\xC3\x28 not UTF-8 \xFF\xFE",
        "\x01\x02 control \x1B[31m \x7F",
        "n\xC3\xA4me of a layer in many characters, more than a box can show, \xF0\x9F\x8E\xBB",
        "",
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct graph *graph = begin(names[i]);
        struct value *x = graph_input(graph, names[i], DTYPE_F32, shape_2(4, 8));
        struct value *y = build_relu(graph, names[i], x);
        add(graph, &op_bias, names[i], y, graph_param(graph, "b", shape_1(8), 1));
        CHECK_INT(1, draw_testing_check(graph));

        struct strbuf dot;
        strbuf_init(&dot, 1 << 16);
        graph_print_dot(graph, &dot);
        CHECK_OK(strbuf_status(&dot));
        int quotes = 0;
        for (const char *c = dot.text; *c; c++) {
            CHECK((unsigned char)*c >= 0x20 || *c == '\n');
            if (*c == '\\')
                c++;
            else
                quotes += *c == '"';
        }
        CHECK_INT(0, quotes % 2);
        strbuf_release(&dot);
        graph_destroy(graph);
    }
}

/* The box beside it says the rest. */
static void test_long_names_of_parameters_keep_their_end(void)
{
    struct graph *graph = begin("long names");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 8));
    double width, height;

    build_linear(graph, "n\xC3\xA4me.of.a.layer.in.a.block", x, 16);
    CHECK_OK(graph_status(graph));
    CHECK_INT(graph_node_count(graph) - 1, draw_testing_check(graph));
    struct strbuf text = draw(graph, &width, &height);
    CHECK(strstr(text.text, ">\xE2\x80\xA6"
                            "yer.in.a.block.weight<"));
    CHECK(strstr(text.text, ">\xE2\x80\xA6"
                            "layer.in.a.block.bias<"));
    strbuf_release(&text);
    graph_destroy(graph);
}

/* Any forward graph, with backward nodes for some of it, sums and updates for some of those. Names
 * are few, so partners are often wrong ones. */
static struct graph *random_graph(struct rng *rng, int n_forward)
{
    static const char *const names[] = { "a", "b", "fc1", "d.a", "conv2d" };
    enum { MOST = 512 };
    static struct value *values[MOST];
    const struct shape shape = shape_2(4, 8);
    struct graph *graph = begin("random");
    int n = 0;

    values[n++] = graph_input(graph, "x", DTYPE_F32, shape);
    for (int i = 0; i < n_forward; i++) {
        const char *name = names[rng_below(rng, 5)];
        struct value *a = values[n - 1 - (int)rng_below(rng, n < 9 ? (uint64_t)n : 9)];
        struct value *b = values[rng_below(rng, (uint64_t)n)];
        values[n++] = rng_below(rng, 3) ? add(graph, &op_relu, name, a, NULL)
                                        : add(graph, &op_add, name, a, b);
    }
    const int n_back = (int)rng_below(rng, (uint64_t)n_forward + 1);
    graph_set_phase(graph, PHASE_BACKWARD);
    for (int i = 0; i < n_back; i++) {
        struct value *dy =
            i == 0 ? values[n_forward] : values[n - 1 - (int)rng_below(rng, (uint64_t)i)];
        values[n] = add(graph, &op_relu_grad, names[rng_below(rng, 5)], dy,
                        values[rng_below(rng, (uint64_t)n_forward + 1)]);
        n++;
    }
    for (int b = 0; n_back > 0 && b < (int)rng_below(rng, 6); b++) {
        char name[32];
        graph_set_phase(graph, PHASE_REDUCE);
        struct value *sum = add(graph, &op_shard_sum, "sum",
                                values[n - 1 - (int)rng_below(rng, (uint64_t)n_back)], NULL);
        if (rng_below(rng, 2))
            sum = add(graph, &op_all_reduce, "all", sum, NULL);
        graph_set_phase(graph, PHASE_UPDATE);
        snprintf(name, sizeof name, "param%d", b);
        struct value *param = graph_param(graph, name, shape, 1);
        CHECK_OK(graph_status(graph));
        add(graph, &op_sgd_update, "update", param, sum);
    }
    for (int i = 0; i < (int)rng_below(rng, 4); i++) { /* phases in any order */
        graph_set_phase(graph, (enum phase)rng_below(rng, 4));
        values[n] =
            add(graph, &op_add, names[rng_below(rng, 5)], values[rng_below(rng, (uint64_t)n)],
                values[rng_below(rng, (uint64_t)n)]);
        n++;
    }
    return graph;
}

static void test_any_graph_is_drawn_without_overlaps(struct rng *rng)
{
    struct graph *graph = random_graph(rng, 1 + (int)rng_below(rng, 40));

    draw_testing_check(graph);
    graph_destroy(graph);
}

static void test_large_graphs_are_drawn_quickly(void)
{
    struct graph *graph = begin("large");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 8));
    struct value *first = x, *layers[400];
    char name[32];

    for (int i = 0; i < 400; i++) {
        snprintf(name, sizeof name, "layer%d", i);
        layers[i] = x = i % 10 == 9 ? add(graph, &op_add, name, x, first)
                                    : add(graph, &op_relu, name, x, NULL);
        first = i % 10 == 9 ? x : first;
    }
    graph_set_phase(graph, PHASE_BACKWARD);
    for (int i = 399; i >= 0; i--) {
        snprintf(name, sizeof name, "layer%d", i);
        x = add(graph, &op_relu_grad, name, x, layers[i]);
    }
    const int64_t start = clock_ns();
    draw_testing_check(graph);
    CHECK(clock_ns() - start < 5 * INT64_C(1000000000));
    graph_destroy(graph);
}

static void test_a_drawing_that_finds_no_memory_says_so(void)
{
    struct rng rng;
    enum status status = STATUS_NO_MEMORY;

    rng_init(&rng, 3, 0);
    struct graph *graph = random_graph(&rng, 30);
    for (uint64_t nth = 1; status != STATUS_OK && nth < 1000; nth++) {
        struct strbuf text;
        strbuf_init(&text, 1 << 20);
        mem_fail_at(nth);
        graph_print_svg(graph, &text);
        mem_fail_at(0);
        status = strbuf_status(&text);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
        strbuf_release(&text);
    }
    CHECK_OK(status);
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "an empty graph is an empty picture",
      .run = test_an_empty_graph_is_an_empty_picture },
    { .name = "a chain has an edge less than nodes",
      .run = test_a_chain_has_an_edge_less_than_nodes },
    { .name = "stages and slices are told apart",
      .run = test_stages_and_slices_are_told_apart },
    { .name = "edges that skip nodes go round them",
      .run = test_edges_that_skip_nodes_go_round_them },
    { .name = "shortcuts leave the main path straight",
      .run = test_shortcuts_leave_the_main_path_straight },
    { .name = "a long model goes on beside itself",
      .run = test_a_long_model_goes_on_beside_itself },
    { .name = "a branch stays in its column", .run = test_a_branch_stays_in_its_column },
    { .name = "edges to one box share their way",
      .run = test_edges_to_one_box_share_their_way },
    { .name = "shortcuts go round shorter ones", .run = test_shortcuts_go_round_shorter_ones },
    { .name = "values in a flat one lead to its users",
      .run = test_values_in_a_flat_one_lead_to_its_users },
    { .name = "hostile names are escaped", .run = test_hostile_names_are_escaped },
    { .name = "long names of parameters keep their end",
      .run = test_long_names_of_parameters_keep_their_end },
    { .name = "any graph is drawn without overlaps",
      .property = test_any_graph_is_drawn_without_overlaps },
    { .name = "large graphs are drawn quickly", .run = test_large_graphs_are_drawn_quickly },
    { .name = "a drawing that finds no memory says so",
      .run = test_a_drawing_that_finds_no_memory_says_so },
    { 0 },
};
