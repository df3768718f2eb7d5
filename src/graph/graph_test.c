/* SPDX-License-Identifier: MIT */
/* graph_test.c - building graphs, and telling legal ones from others. */
#include "graph/graph.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "graph/build.h"
#include "graph/op.h"

static struct graph *begin(const char *name)
{
    struct graph *graph;

    CHECK_OK(graph_create(name, &graph));
    return graph;
}

static void check_shape(const struct value *value, const char *expected)
{
    char text[SHAPE_TEXT];

    CHECK(value);
    CHECK_TEXT(expected, shape_print(&value->shape, text));
}

static struct value *images(struct graph *graph, int64_t channels, int64_t size)
{
    return graph_input(graph, "input", DTYPE_F32, shape_4(4, channels, size, size));
}

/* Layers --------------------------------------------------------------------------------- */

static void test_layers_have_pytorchs_names_and_shapes(void)
{
    struct graph *graph = begin("layers");
    const struct build_conv conv = { .channels = 6, .kernel = 3, .stride = 2, .pad = 1 };
    const struct build_conv bare = { .channels = 5, .kernel = 1, .stride = 1, .no_bias = true };

    struct value *x = images(graph, 3, 9);
    x = build_conv2d(graph, "conv1", x, conv);
    check_shape(x, "4x6x5x5");
    CHECK_TEXT("conv1", x->name);
    CHECK(x->maker->op == &op_bias && x->layout == LAYOUT_NHWC);
    check_shape(graph_find_value(graph, "conv1.weight"), "6x3x3x3");
    check_shape(graph_find_value(graph, "conv1.bias"), "6");
    CHECK(graph_find_value(graph, "conv1.weight")->layout == LAYOUT_HWIO);
    CHECK_CLOSE(1 / 5.196152423, graph_find_value(graph, "conv1.bias")->init_bound, 1e-6);
    x = build_relu(graph, "relu1", x);
    check_shape(x, "4x6x5x5");
    check_shape(build_max_pool(graph, "a", x, 2, 0, 0), "4x6x2x2"); /* stride 0: the window */
    check_shape(build_max_pool(graph, "b", x, 3, 2, 1), "4x6x3x3");
    check_shape(build_avg_pool(graph, "c", x, 5, 0, 0), "4x6x1x1");
    x = build_conv2d(graph, "conv2", x, bare);
    check_shape(x, "4x5x5x5");
    CHECK(x->maker->op == &op_conv2d && !graph_find_value(graph, "conv2.bias"));
    check_shape(build_add(graph, "sum", x, x), "4x5x5x5");
    CHECK(build_dropout(graph, "none", x, 0) == x);
    x = build_dropout(graph, "drop", x, 0.5F);
    check_shape(x, "4x5x5x5");
    x = build_linear(graph, "fc", x, 7); /* of images: they are flattened */
    check_shape(x, "4x7");
    check_shape(graph_find_value(graph, "fc.weight"), "7x125");
    CHECK(graph_find_value(graph, "fc.weight")->layout == LAYOUT_IO);
    check_shape(graph_find_value(graph, "fc.bias"), "7");
    CHECK_OK(graph_verify(graph));
    CHECK_INT(6 * 27 + 6 + 5 * 6 + 7 * 125 + 7, graph_param_count(graph));
    graph_destroy(graph);
}

static void test_grouped_and_transposed_layers_are_pytorchs(void)
{
    struct graph *graph = begin("layers");
    const struct build_conv deep = {
        .channels = 6, .kernel = 3, .stride = 2, .pad = 1, .groups = 6
    };
    const struct build_conv up = {
        .channels = 4, .kernel = 3, .stride = 2, .pad = 1, .output_pad = 1
    };

    struct value *x = build_conv2d(graph, "deep", images(graph, 6, 9), deep);
    check_shape(x, "4x6x5x5");
    check_shape(graph_find_value(graph, "deep.weight"), "6x1x3x3");
    CHECK_CLOSE(1 / 3.0, graph_find_value(graph, "deep.bias")->init_bound, 1e-6);
    x = build_conv2d_transpose(graph, "up", x, up);
    check_shape(x, "4x4x10x10"); /* (5-1)*2 - 2 + 3 + 1 */
    check_shape(graph_find_value(graph, "up.weight"), "6x4x3x3");
    check_shape(graph_find_value(graph, "up.bias"), "4");
    CHECK(graph_find_value(graph, "up.weight")->layout == LAYOUT_HWIO);
    CHECK_CLOSE(1 / 6.0, graph_find_value(graph, "up.weight")->init_bound, 1e-6);
    CHECK_CLOSE(1 / 6.0, graph_find_value(graph, "up.bias")->init_bound, 1e-6);
    CHECK_OK(graph_verify(graph));
    graph_destroy(graph);
}

static void test_flattening_reorders_only_where_it_must(void)
{
    struct graph *graph = begin("flatten");
    const struct {
        int64_t channels, size;
        int nodes;
    } cases[] = { { 1, 5, 1 }, { 3, 1, 1 }, { 3, 5, 2 } };

    for (size_t i = 0; i < 3; i++) {
        const int before = graph_node_count(graph);
        struct value *x =
            build_flatten(graph, "flat", images(graph, cases[i].channels, cases[i].size));
        CHECK_INT(cases[i].channels * cases[i].size * cases[i].size, x->shape.dim[1]);
        CHECK_INT(cases[i].nodes, graph_node_count(graph) - before);
        CHECK(build_flatten(graph, "again", x) == x);
    }
    CHECK_OK(graph_verify(graph));
    graph_destroy(graph);
}

static void test_batch_norm_keeps_averages_of_what_it_sees(void)
{
    for (int training = 0; training < 2; training++) {
        struct graph *graph = begin("batch norm");
        struct value *y = build_batch_norm(graph, "bn1", images(graph, 6, 5), training);
        const struct value *weight = graph_find_value(graph, "bn1.weight");
        const struct value *mean = graph_find_value(graph, "bn1.running_mean");
        const struct value *variance = graph_find_value(graph, "bn1.running_var");

        CHECK_OK(graph_verify(graph));
        check_shape(y, "4x6x5x5");
        check_shape(variance, "6");
        CHECK(weight->kind == VALUE_PARAM && weight->initial == 1 && weight->init_bound == 0);
        CHECK(graph_find_value(graph, "bn1.bias")->initial == 0);
        CHECK(mean->kind == VALUE_AVERAGE && mean->initial == 0 && variance->initial == 1);
        CHECK_INT(12, graph_param_count(graph));
        CHECK(y->maker->op == (training ? &op_batch_norm : &op_batch_norm_apply));
        CHECK(mean->gradient == (training ? y->maker->out[2] : NULL));
        CHECK(variance->gradient == (training ? y->maker->out[3] : NULL));
        if (training) {
            struct value *other = build_relu(graph, "other", variance->gradient);
            CHECK_INT(1, graph_uses(graph, mean->gradient));
            CHECK_INT(2, graph_uses(graph, variance->gradient));
            graph_replace(graph, mean->gradient, other);
            CHECK(mean->gradient == other);
            CHECK_OK(graph_verify(graph));
            struct node *const order[] = { y->maker }; /* without what makes `other` */
            CHECK_OK(graph_set_order(graph, order, 1));
            CHECK_STATUS(STATUS_MISMATCH, graph_verify(graph));
            CHECK_MESSAGE("average bn1.running_mean sees other, which no node makes");
        }
        graph_destroy(graph);
    }
}

static void test_losses_set_the_roles(void)
{
    struct graph *graph = begin("classifier");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 3));
    build_classifier_loss(graph, x, graph_input(graph, "y", DTYPE_I32, shape_1(4)));
    CHECK_OK(graph_verify(graph));
    CHECK(graph_roles(graph)->output == x);
    check_shape(graph_roles(graph)->loss, "1");
    check_shape(graph_roles(graph)->correct, "1");
    build_label_smoothing(graph, 0.1F);
    CHECK(graph_roles(graph)->loss->maker->attrs.smoothing == 0.1F);
    CHECK_OK(graph_verify(graph));
    build_label_smoothing(graph, 1.5F);
    CHECK_STATUS(STATUS_USAGE, graph_status(graph));
    CHECK_MESSAGE("1.5 is not in [0, 1]");
    graph_destroy(graph);

    graph = begin("regression");
    x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 3));
    build_mse_loss(graph, x, graph_input(graph, "y", DTYPE_F32, shape_2(4, 3)));
    CHECK_OK(graph_verify(graph));
    CHECK(graph_roles(graph)->output == x && !graph_roles(graph)->correct);
    check_shape(graph_roles(graph)->loss, "1");
    build_label_smoothing(graph, 0);
    CHECK_OK(graph_verify(graph));
    build_label_smoothing(graph, 0.1F);
    CHECK_STATUS(STATUS_USAGE, graph_status(graph));
    CHECK_MESSAGE("regression learns from no labels");
    graph_destroy(graph);
}

/* Failures ------------------------------------------------------------------------------- */

static void test_the_first_failure_is_kept_and_stops_the_rest(void)
{
    struct graph *graph = begin("broken");
    const struct build_conv large = { .channels = 2, .kernel = 9, .stride = 1 };

    struct value *x = build_conv2d(graph, "early", images(graph, 1, 4), large);
    CHECK(x == NULL);
    const int nodes = graph_node_count(graph), values = graph_value_count(graph);
    x = build_relu(graph, "later", x);
    x = build_conv2d(graph, "later", x, large);
    x = build_linear(graph, "later", build_flatten(graph, "later", x), 3);
    x = build_dropout(graph, "later", build_add(graph, "later", x, x), 0.5F);
    x = build_avg_pool(graph, "later", build_max_pool(graph, "later", x, 2, 2, 0), 2, 2, 0);
    CHECK(x == NULL && graph_input(graph, "later", DTYPE_F32, shape_1(4)) == NULL);
    CHECK(graph_alloc(graph, 1, 8) == NULL);
    build_classifier_loss(graph, x, NULL);
    CHECK(graph_roles(graph)->loss == NULL);
    CHECK_INT(nodes, graph_node_count(graph));
    CHECK_INT(values, graph_value_count(graph));

    graph_fail(graph, FAIL(STATUS_CORRUPT, "something else went wrong"));
    CHECK_STATUS(STATUS_USAGE, graph_status(graph));
    CHECK_MESSAGE("node early (conv2d): kernel 9x9");
    CHECK_STATUS(STATUS_USAGE, graph_verify(graph));
    CHECK_MESSAGE("early");
    graph_destroy(graph);
}

/* Adds one node to a fresh graph, which must be refused with this text. */
static void check_refused(const struct op *op, struct shape a, struct shape b,
                          const struct attrs *attrs, const char *text)
{
    struct graph *graph = begin("refused");
    struct value *const in[] = { graph_input(graph, "a", DTYPE_F32, a),
                                 b.rank ? graph_input(graph, "b", DTYPE_F32, b) : NULL };

    CHECK(graph_add(graph, op, "wrong", in, 2, attrs) == NULL);
    CHECK_STATUS(STATUS_USAGE, graph_status(graph));
    CHECK_MESSAGE("wrong");
    CHECK_MESSAGE(text);
    graph_destroy(graph);
}

static void test_nodes_that_do_not_fit_are_refused_with_the_reason(void)
{
    const struct shape none = { 0 }, image = shape_4(2, 3, 8, 8), row = shape_2(4, 6);
    const struct attrs flat = { .sample = { .rank = 1, .dim = { 7 } } };
    const struct attrs many = { .sample = { .rank = SHAPE_MAX } };
    const struct attrs always = { .rate = 1 }, never = { .max_norm = 0 };
    const struct attrs large = { .window = { 9, 9 }, .stride = { 1, 1 } };
    const struct attrs still = { .window = { 2, 2 } };
    const struct attrs split = { .stride = { 1, 1 }, .groups = 2 };
    const struct attrs up = { .stride = { 2, 2 }, .pad = { 1, 1 }, .extent = { 18, 16 } };
    const struct attrs wide = { .window = { 2, 2 }, .stride = { 1, 1 }, .pad = { 2, 0 } };

    check_refused(&op_linear, row, shape_2(3, 5), NULL, "6 features, weight for 5");
    check_refused(&op_linear, row, none, NULL, "2 to 3 inputs");
    check_refused(&op_conv2d, image, shape_4(4, 2, 3, 3), NULL, "3 channels, weight for 2");
    check_refused(&op_conv2d, row, shape_4(4, 2, 3, 3), NULL, "rank 2 and 4");
    check_refused(&op_conv2d, image, shape_4(4, 3, 3, 3), &split,
                  "3 and 4 channels in 2 groups");
    check_refused(&op_conv2d_transpose, image, shape_4(2, 3, 3, 3), NULL,
                  "3 channels, weight for 2");
    check_refused(&op_conv2d_transpose, image, shape_4(3, 2, 3, 3), &up,
                  "does not make image 18x16 of 8x8");
    check_refused(&op_conv2d_transpose, image, shape_4(3, 2, 3, 3), &split, "knows one");
    check_refused(&op_conv2d, image, shape_4(4, 3, 3, 3), NULL, "stride 0x0");
    check_refused(&op_max_pool, image, none, &large, "larger than image 8x8");
    check_refused(&op_max_pool, image, none, &still, "larger than image");
    check_refused(&op_max_pool, image, none, &wide, "padding 2x0");
    check_refused(&op_avg_pool, row, none, &wide, "no batch of images");
    check_refused(&op_bias, row, shape_1(5), NULL, "bias of 5 for 6 features");
    check_refused(&op_bias, image, shape_1(8), NULL, "bias of 8 for 3 features");
    check_refused(&op_add, row, shape_2(4, 5), NULL, "4x6 and 4x5 differ");
    check_refused(&op_relu_grad, row, image, NULL, "differ");
    check_refused(&op_dropout, row, none, &always, "rate 1");
    check_refused(&op_reshape, row, none, &flat, "4x6 has not as many elements as 4x7");
    check_refused(&op_reshape, row, none, &many, "extents");
    check_refused(&op_softmax_cross_entropy, row, shape_1(3), NULL, "one label a sample");
    check_refused(&op_softmax_cross_entropy_grad, row, shape_2(4, 1), NULL, "one label");
    check_refused(&op_accuracy, row, shape_1(5), NULL, "one label a sample");
    check_refused(&op_conv1d, row, shape_3(4, 6, 3), NULL, "rank 2 and 3");
    check_refused(&op_conv1d, shape_3(4, 9, 5), shape_3(4, 6, 3), NULL,
                  "sequence of 5 features, weight for 6");
    check_refused(&op_max_over_time, row, none, NULL, "no batch of sequences");
    check_refused(&op_concat, row, shape_2(5, 6), NULL, "more than their last extent");
    check_refused(&op_concat, row, shape_3(4, 6, 1), NULL, "more than their last extent");
    check_refused(&op_columns, row, none, NULL, "no columns 0 to 0");
    check_refused(&op_token_cross_entropy, row, shape_1(3), NULL, "one label a token");
    check_refused(&op_token_cross_entropy, row, shape_2(4, 6), NULL, "one label a token");
    check_refused(&op_token_accuracy, image, shape_2(4, 3), NULL, "one label a token");
    check_refused(&op_mse, row, shape_2(4, 5), NULL, "different shapes");
    check_refused(&op_mse_grad, row, shape_2(4, 5), NULL, "different shapes");
    check_refused(&op_sgd_update, row, shape_1(24), NULL, "different lengths");
    check_refused(&op_clip_norm, row, none, &never, "norm 0");
    check_refused(&op_linear_grad_input, row, shape_2(5, 6), NULL, "do not fit");
    check_refused(&op_linear_grad_weight, row, shape_2(5, 6), NULL, "different rows");
    check_refused(&op_conv2d_grad_input, image, shape_4(4, 3, 3, 3), NULL, "do not fit");
    check_refused(&op_conv2d_grad_weight, image, image, NULL, "do not fit");
    check_refused(&op_max_pool_grad, image, image, &still, "does not fit");
}

static void test_names_and_shapes_of_values_are_checked(void)
{
    struct graph *graph = begin("twice");
    CHECK(graph_param(graph, "fc.weight", shape_1(3), 1));
    CHECK(!graph_param(graph, "fc.weight", shape_1(3), 1));
    CHECK_STATUS(STATUS_USAGE, graph_status(graph));
    CHECK_MESSAGE("two parameters are named fc.weight");
    graph_destroy(graph);

    graph = begin("huge");
    CHECK(!graph_input(graph, "x", DTYPE_F32, shape_4(INT64_MAX, 2, 2, 2)));
    CHECK(graph_status(graph) != STATUS_OK);
    graph_destroy(graph);

    graph = begin("hole");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_1(2));
    struct value *const in[] = { NULL, x };
    CHECK(!graph_add(graph, &op_add, "gap", in, 2, NULL));
    CHECK_STATUS(STATUS_USAGE, graph_status(graph));
    CHECK_MESSAGE("gap");
    graph_destroy(graph);
}

static void test_a_refused_allocation_fails_the_graph_alone(void)
{
    enum status status = STATUS_NO_MEMORY;

    for (uint64_t nth = 1; status != STATUS_OK && nth < 1000; nth++) {
        struct graph *graph;
        mem_fail_at(nth);
        status = graph_create("poor", &graph);
        if (status != STATUS_OK) {
            CHECK_INT(STATUS_NO_MEMORY, status);
            continue;
        }
        struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 3));
        for (int i = 0; i < 70; i++) /* more than lists have room for at first */
            x = build_relu(graph, "relu", x);
        build_classifier_loss(graph, build_linear(graph, "fc", x, 5),
                              graph_input(graph, "y", DTYPE_I32, shape_1(4)));
        status = graph_verify(graph);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
        graph_destroy(graph);
    }
    CHECK_OK(status);
}

/* Shapes and totals ---------------------------------------------------------------------- */

static struct graph *small_model(void)
{
    struct graph *graph = begin("small");
    const struct build_conv conv = { .channels = 2, .kernel = 3, .stride = 1, .pad = 1 };
    struct graph_roles *roles = graph_roles(graph);

    roles->input = images(graph, 1, 6);
    roles->target = graph_input(graph, "target", DTYPE_I32, shape_1(4));
    struct value *x =
        build_relu(graph, "relu", build_conv2d(graph, "conv", roles->input, conv));
    x = build_max_pool(graph, "pool", x, 2, 2, 0);
    build_classifier_loss(graph, build_linear(graph, "fc", x, 3), roles->target);
    CHECK_OK(graph_verify(graph));
    return graph;
}

static void test_shapes_are_inferred_for_any_number_of_rows(struct rng *rng)
{
    struct graph *graph = small_model();
    const int64_t rows = 1 + (int64_t)rng_below(rng, 1000);
    struct shape shapes[64];

    CHECK(graph_value_count(graph) <= 64);
    CHECK_OK(graph_infer(graph, (struct extents){ .rows = rows }, shapes));
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        struct shape expected = value->shape;
        if (expected.dim[0] == 4) /* of all values only batched ones have four rows */
            expected.dim[0] = rows;
        CHECK(shape_equal(&expected, &shapes[i]));
    }
    graph_destroy(graph);
}

static void test_flops_are_those_of_the_definitions(void)
{
    struct graph *graph = small_model();
    const double conv = 2.0 * 9 * 2 * 36, bias = 72, relu = 72, pool = 4 * 18, reorder = 18,
                 reshape = 18, fc = 2.0 * 18 * 3, fc_bias = 3, softmax = 10 * 3,
                 accuracy = 10 * 3;

    CHECK_CLOSE(conv + bias + relu + pool + reorder + reshape + fc + fc_bias + softmax +
                    accuracy,
                graph_flops(graph, 1), 0);
    CHECK_CLOSE(7 * graph_flops(graph, 1), graph_flops(graph, 7), 0);
    graph_destroy(graph);
}

/* Rewriting ------------------------------------------------------------------------------ */

static void test_uses_are_counted_and_replaced(void)
{
    struct graph *graph = begin("uses");
    struct graph_roles *roles = graph_roles(graph);
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 3));
    struct value *a = build_relu(graph, "a", x), *b = build_add(graph, "b", a, a);
    struct value *c = build_add(graph, "c", a, b);

    roles->output = a;
    CHECK_INT(1, graph_uses(graph, x));
    CHECK_INT(4, graph_uses(graph, a)); /* twice in b, in c, as the output */
    CHECK_INT(0, graph_uses(graph, c));
    graph_replace(graph, a, x);
    CHECK_INT(0, graph_uses(graph, a));
    CHECK_INT(5, graph_uses(graph, x));
    CHECK(roles->output == x && b->maker->in[0] == x && b->maker->in[1] == x);
    CHECK(c->maker->in[0] == x && c->maker->in[1] == b);
    CHECK_OK(graph_verify(graph));

    struct node *const order[] = { b->maker, c->maker }; /* without a */
    CHECK_OK(graph_set_order(graph, order, 2));
    CHECK_INT(2, graph_node_count(graph));
    CHECK_OK(graph_verify(graph));
    graph_destroy(graph);
}

static void test_many_nodes_find_room(void)
{
    struct graph *graph = begin("many");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_1(2));
    enum { COUNT = 1000 };
    static struct node *order[COUNT + 200];

    for (int i = 0; i < COUNT; i++)
        x = build_relu(graph, "relu", x);
    CHECK_OK(graph_verify(graph));
    CHECK_INT(COUNT, graph_node_count(graph));
    for (int i = 0; i < COUNT; i++)
        order[i] = graph_node(graph, i);
    CHECK_OK(graph_set_order(graph, order, COUNT));
    CHECK(graph_node(graph, COUNT - 1)->out[0] == x);
    graph_destroy(graph);
}

/* Verification --------------------------------------------------------------------------- */

/* x -> a -> b, and a linear layer on b. */
struct subject {
    struct graph *graph;
    struct value *x, *a, *b, *w, *y;
};

static struct subject subject(void)
{
    struct subject s = { .graph = begin("subject") };

    s.x = graph_input(s.graph, "x", DTYPE_F32, shape_2(4, 3));
    s.a = build_relu(s.graph, "first", s.x);
    s.b = build_relu(s.graph, "second", s.a);
    s.w = graph_param(s.graph, "fc.weight", shape_2(5, 3), 1);
    s.y = graph_apply(s.graph, "linear", "third", s.b, s.w, NULL, NULL);
    CHECK_OK(graph_verify(s.graph));
    return s;
}

/* The graph is refused, and the text names the node and the cause. */
static void check_illegal(struct subject *s, const char *node, const char *cause)
{
    CHECK_STATUS(STATUS_MISMATCH, graph_verify(s->graph));
    CHECK_MESSAGE(node);
    CHECK_MESSAGE(cause);
    graph_destroy(s->graph);
    *s = subject();
}

static void test_illegal_orders_are_found(void)
{
    struct subject s = subject();
    struct node *const swapped[] = { s.b->maker, s.a->maker, s.y->maker };
    CHECK_OK(graph_set_order(s.graph, swapped, 3));
    check_illegal(&s, "node second (relu)", "first is used before it is made");

    struct node *const short_of_one[] = { s.b->maker, s.y->maker };
    CHECK_OK(graph_set_order(s.graph, short_of_one, 2));
    check_illegal(&s, "node second", "used before it is made");

    struct node *const twice[] = { s.a->maker, s.b->maker, s.a->maker, s.y->maker };
    CHECK_OK(graph_set_order(s.graph, twice, 4));
    check_illegal(&s, "node first", "made twice");

    s.a->maker->out[0] = s.b; /* of another node */
    check_illegal(&s, "node first", "made twice");
    graph_destroy(s.graph);
}

static void test_illegal_inputs_are_found(void)
{
    struct subject s = subject(), other = subject();

    s.b->maker->in[0] = other.x;
    check_illegal(&s, "node second", "of another graph");
    graph_destroy(other.graph);

    s.y->maker->n_in = 1;
    check_illegal(&s, "node third (linear)", "1 inputs and 1 outputs");
    s.a->maker->n_out = 0;
    check_illegal(&s, "node first", "0 outputs");

    s.x->dtype = DTYPE_I32;
    check_illegal(&s, "node first", "x is i32, expected f32");

    s.x->form = VALUE_ROWS;
    check_illegal(&s, "node first", "takes dense values");

    s.b->part = PART_SUM;
    check_illegal(&s, "node third", "summand");
    graph_destroy(s.graph);
}

static void test_illegal_labels_and_indices_are_found(void)
{
    struct graph *graph = begin("labels");
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(4, 3));
    struct value *y = graph_input(graph, "y", DTYPE_F32, shape_1(4));

    build_classifier_loss(graph, x, y);
    CHECK_OK(graph_status(graph));
    CHECK_STATUS(STATUS_MISMATCH, graph_verify(graph));
    CHECK_MESSAGE("node accuracy (accuracy): input y is f32, expected i32");
    y->dtype = DTYPE_I32;
    CHECK_OK(graph_verify(graph));
    graph_destroy(graph);

    graph = begin("index");
    const struct attrs pool = { .window = { 2, 2 }, .stride = { 2, 2 }, .extent = { 4, 4 } };
    struct value *dy = graph_input(graph, "dy", DTYPE_F32, shape_4(4, 1, 2, 2));
    graph_apply(graph, "max_pool_grad", "grad", dy, dy, NULL, &pool);
    CHECK_STATUS(STATUS_MISMATCH, graph_verify(graph));
    CHECK_MESSAGE("node grad (max_pool_grad): input dy is f32, expected u8");
    graph_destroy(graph);
}

static void test_illegal_shapes_are_found(void)
{
    struct subject s = subject();

    s.a->shape.dim[1] = 4;
    check_illegal(&s, "node first (relu)", "its rule does not give");
    s.w->shape.dim[1] = 7;
    check_illegal(&s, "node third (linear)", "weight for 7");
    graph_destroy(s.graph);
}

static void test_illegal_layouts_are_found(void)
{
    struct subject s = subject();

    s.w->layout = LAYOUT_NHWC;
    check_illegal(&s, "node third", "fc.weight lies nhwc, expected io");
    s.b->layout = LAYOUT_IO;
    check_illegal(&s, "node second", "output second lies io, expected plain");
    s.x->layout = s.a->layout = s.b->layout = LAYOUT_IO; /* elementwise ops do not mind */
    check_illegal(&s, "node third", "second lies io, expected plain");
    s.a->maker->in[0] = graph_param(s.graph, "p", shape_2(4, 3), 1);
    check_illegal(&s, "node first", "output first lies plain, expected io");
    graph_destroy(s.graph);

    struct graph *graph = begin("images");
    const struct attrs flat = { .sample = { .rank = 1, .dim = { 75 } } };
    graph_apply(graph, "reshape", "flat", images(graph, 3, 5), NULL, NULL, &flat);
    CHECK_STATUS(STATUS_MISMATCH, graph_verify(graph));
    CHECK_MESSAGE("node flat (reshape): input input lies nhwc: reorder it first");
    graph_destroy(graph);
}

static void test_values_in_flat_ones_must_fit(void)
{
    struct subject s = subject();

    for (int wrong = 0; wrong < 3; wrong++) {
        struct value *flat = graph_flat(s.graph, "bucket0.param", 20);
        struct value *more = graph_param(s.graph, "fc.bias", shape_1(5), 1);
        s.w->flat = more->flat = flat;
        more->offset = 15;
        CHECK_OK(graph_verify(s.graph));
        more->offset = wrong == 0 ? 16 : wrong == 1 ? -1 : 14;
        if (wrong < 2)
            check_illegal(&s, "fc.bias", "does not fit into bucket0.param");
        else
            check_illegal(&s, "fc.weight and fc.bias", "overlap in bucket0.param");
    }
    graph_destroy(s.graph);
}

/* Summands may be summed; and what is sums of shards may lie in flat values. */
static void test_what_sums_takes_summands(void)
{
    struct subject s = subject();

    s.y->part = PART_SUM;
    graph_apply(s.graph, "shard_sum", "sum", s.y, NULL, NULL, NULL);
    struct value *both = build_add(s.graph, "both", s.y, s.y);
    CHECK_OK(graph_verify(s.graph));

    struct value *x = graph_input(s.graph, "z", DTYPE_F32, shape_2(4, 5));
    both->maker->in[1] = x; /* a summand and something else */
    CHECK_STATUS(STATUS_MISMATCH, graph_verify(s.graph));
    CHECK_MESSAGE("node both (add): input third is one shard's summand");
    graph_destroy(s.graph);
}

/* Text ----------------------------------------------------------------------------------- */

static void test_the_text_says_everything(void)
{
    static const char expected[] =
        "graph subject: 20 parameters\n"
        "  input  %0:x f32[4x3]\n"
        "  param  %3:fc.weight f32[5x3] io in bucket0.param+0\n"
        "  flat   %5:bucket0.param f32[20]\n"
        "  param  %6:fc.bias f32[5]\n"
        " forward\n"
        "  %1:first f32[4x3] = relu(%0)\n"
        "  %2:second f32[4x3] = relu(%1)\n"
        "  %4:third f32[4x5] = linear(%2, %3)\n"
        " backward\n"
        "  %7:d.fc.weight f32[5x3] io summand, %8:d.fc.weight.1 f32[5] = "
        "linear_grad_weight(%2, "
        "%4)\n"
        "  %9:d.drop f32[4x5] = dropout(%4) rate=0.25\n"
        " update\n"
        "  %10:step f32[20] = sgd_update(%5, %5) momentum=0.9 nesterov\n";
    struct subject s = subject();
    const struct attrs grad = { .with_bias = 1 }, drop = { .rate = 0.25F };
    const struct attrs sgd = { .momentum = 0.9F, .nesterov = 1 };
    struct strbuf text;

    s.w->flat = graph_flat(s.graph, "bucket0.param", 20);
    graph_param(s.graph, "fc.bias", shape_1(5), 1);
    graph_set_phase(s.graph, PHASE_BACKWARD);
    graph_apply(s.graph, "linear_grad_weight", "fc.weight", s.b, s.y, NULL, &grad)->part =
        PART_SUM;
    graph_apply(s.graph, "dropout", "drop", s.y, NULL, NULL, &drop);
    graph_set_phase(s.graph, PHASE_UPDATE);
    graph_apply(s.graph, "sgd_update", "step", s.w->flat, s.w->flat, NULL, &sgd);
    strbuf_init(&text, 1 << 16);
    graph_print_text(s.graph, &text);
    CHECK_OK(strbuf_status(&text));
    CHECK_TEXT(expected, text.text);
    strbuf_release(&text);
    graph_destroy(s.graph);
}

const struct test tests[] = {
    { .name = "layers have PyTorch's names and shapes",
      .run = test_layers_have_pytorchs_names_and_shapes },
    { .name = "grouped and transposed layers are pytorchs",
      .run = test_grouped_and_transposed_layers_are_pytorchs },
    { .name = "flattening reorders only where it must",
      .run = test_flattening_reorders_only_where_it_must },
    { .name = "batch norm keeps averages of what it sees",
      .run = test_batch_norm_keeps_averages_of_what_it_sees },
    { .name = "losses set the roles", .run = test_losses_set_the_roles },
    { .name = "the first failure is kept and stops the rest",
      .run = test_the_first_failure_is_kept_and_stops_the_rest },
    { .name = "nodes that do not fit are refused with the reason",
      .run = test_nodes_that_do_not_fit_are_refused_with_the_reason },
    { .name = "names and shapes of values are checked",
      .run = test_names_and_shapes_of_values_are_checked },
    { .name = "a refused allocation fails the graph alone",
      .run = test_a_refused_allocation_fails_the_graph_alone },
    { .name = "shapes are inferred for any number of rows",
      .property = test_shapes_are_inferred_for_any_number_of_rows },
    { .name = "flops are those of the definitions",
      .run = test_flops_are_those_of_the_definitions },
    { .name = "uses are counted and replaced", .run = test_uses_are_counted_and_replaced },
    { .name = "many nodes find room", .run = test_many_nodes_find_room },
    { .name = "illegal orders are found", .run = test_illegal_orders_are_found },
    { .name = "illegal inputs are found", .run = test_illegal_inputs_are_found },
    { .name = "illegal labels and indices are found",
      .run = test_illegal_labels_and_indices_are_found },
    { .name = "illegal shapes are found", .run = test_illegal_shapes_are_found },
    { .name = "illegal layouts are found", .run = test_illegal_layouts_are_found },
    { .name = "values in flat ones must fit", .run = test_values_in_flat_ones_must_fit },
    { .name = "what sums takes summands", .run = test_what_sums_takes_summands },
    { .name = "the text says everything", .run = test_the_text_says_everything },
    { 0 },
};
