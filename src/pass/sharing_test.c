/* SPDX-License-Identifier: MIT */
/* sharing_test.c - what the tensor pass makes of models: which layers ranks share, what they say to
 * each other.
 *
 * That the result trains as the model does is shown by exec/tensor_test.c.
 */
#include <string.h>

#include "base/test.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/strategy.h"

struct setup {
    const char *model;
    int layers, heads;
    int tp, index;
    bool sequence;
};

static enum status make(const struct setup *setup, struct graph **out)
{
    const struct model *model = model_find(setup->model);
    struct model_config config = model_defaults(model);
    const struct pass_config passes = {
        .batch = 4,
        .shards = 1,
        .ranks = 1,
        .tensor = { .count = setup->tp, .index = setup->index, .sequence = setup->sequence },
        .optim = { .optimizer = optim_find("sgd") },
    };

    config.batch = 4;
    if (setup->layers) {
        CHECK_OK(model_set_option(model, &config, "layers", setup->layers));
        CHECK_OK(model_set_option(model, &config, "heads", setup->heads));
        CHECK_OK(model_set_option(model, &config, "width", 48));
    }
    CHECK_OK(model_build(model, &config, out));
    return pass_run(*out, strategy_find("tensor")->passes, &passes, NULL);
}

/* Nodes of an op in a phase that move activations: values of sequences or images. */
static int count_talks(const struct graph *graph, const struct op *op, enum phase phase)
{
    int count = 0;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        count += node->op == op && node->phase == phase && node->in[0]->shape.rank > 1;
    }
    return count;
}

/* What one block of gpt adds: two layers of it less one. */
static int per_block(struct setup setup, const struct op *op, enum phase phase)
{
    struct graph *two, *three;

    setup.layers = 2;
    CHECK_OK(make(&setup, &two));
    setup.layers = 3;
    CHECK_OK(make(&setup, &three));
    const int count = count_talks(three, op, phase) - count_talks(two, op, phase);
    graph_destroy(two);
    graph_destroy(three);
    return count;
}

static void test_a_block_has_the_sums_of_megatron(void)
{
    const struct setup gpt = { .model = "gpt", .heads = 4, .tp = 2 };

    CHECK_INT(per_block(gpt, &op_tp_sum, PHASE_FORWARD), 2);
    CHECK_INT(per_block(gpt, &op_tp_sum, PHASE_BACKWARD), 2);
    CHECK_INT(per_block(gpt, &op_tp_gather, PHASE_FORWARD), 0);
    CHECK_INT(per_block(gpt, &op_tp_gather, PHASE_BACKWARD), 0);
    CHECK_INT(per_block(gpt, &op_tp_sum_slice, PHASE_FORWARD), 0);
    CHECK_INT(per_block(gpt, &op_tp_slice, PHASE_FORWARD), 0);
}

static void test_with_places_shared_sums_become_halves(void)
{
    const struct setup gpt = { .model = "gpt", .heads = 4, .tp = 2, .sequence = true };

    CHECK_INT(per_block(gpt, &op_tp_sum, PHASE_FORWARD), 0);
    CHECK_INT(per_block(gpt, &op_tp_sum, PHASE_BACKWARD), 0);
    CHECK_INT(per_block(gpt, &op_tp_gather, PHASE_FORWARD), 2);
    CHECK_INT(per_block(gpt, &op_tp_gather, PHASE_BACKWARD), 2);
    CHECK_INT(per_block(gpt, &op_tp_sum_slice, PHASE_FORWARD), 2);
    CHECK_INT(per_block(gpt, &op_tp_sum_slice, PHASE_BACKWARD), 2);
}

static void check_slice(const struct graph *graph, const char *name, int axis, int parts,
                        int64_t extent)
{
    const struct value *value = graph_find_value(graph, name);

    CHECK(value && value->slice.count == 2);
    CHECK_INT(value->slice.axis, axis);
    CHECK_INT(value->slice.parts, parts);
    CHECK_INT(value->shape.dim[axis], extent);
}

static void test_parameters_are_slices(void)
{
    const struct setup gpt = { .model = "gpt", .layers = 1, .heads = 4, .tp = 2, .index = 1 };
    struct graph *graph;

    CHECK_OK(make(&gpt, &graph));
    check_slice(graph, "h.0.attn.c_attn.weight", 0, 3, 72);
    check_slice(graph, "h.0.attn.c_attn.bias", 0, 3, 72);
    check_slice(graph, "h.0.attn.c_proj.weight", 1, 1, 24);
    check_slice(graph, "h.0.mlp.c_fc.weight", 0, 1, 96);
    check_slice(graph, "h.0.mlp.c_proj.weight", 1, 1, 96);
    check_slice(graph, "wte.weight", 0, 1, 33); /* of 65 */
    CHECK_INT(graph_find_value(graph, "h.0.attn.c_proj.bias")->slice.count, 0);
    CHECK_INT(graph_find_value(graph, "h.0.ln_1.weight")->slice.count, 0);
    graph_destroy(graph);
}

static void test_heads_that_cannot_be_shared_are_refused(void)
{
    const struct setup gpt = { .model = "gpt", .layers = 1, .heads = 3, .tp = 2 };
    struct graph *graph;

    CHECK(make(&gpt, &graph) == STATUS_USAGE);
    CHECK(strstr(status_message(), "3 heads"));
    graph_destroy(graph);
}

/* Of every model some part is shared, and all ranks share the same way. */
static void test_every_model_is_shared(void)
{
    for (int i = 0; model_table[i]; i++) {
        struct graph *graphs[2];
        int64_t whole = 0, own = 0;

        for (int index = 0; index < 2; index++) {
            const struct setup setup = { .model = model_table[i]->name,
                                         .tp = 2,
                                         .index = index };
            CHECK_OK(make(&setup, &graphs[index]));
        }
        CHECK_INT(graph_node_count(graphs[0]), graph_node_count(graphs[1]));
        for (int n = 0; n < graph_node_count(graphs[0]); n++)
            CHECK(graph_node(graphs[0], n)->op == graph_node(graphs[1], n)->op);
        for (int v = 0; v < graph_value_count(graphs[0]); v++) {
            const struct value *value = graph_value(graphs[0], v);
            const struct shape shape = slice_whole_shape(&value->slice, &value->shape);
            if (value->kind != VALUE_PARAM)
                continue;
            own += shape_count(&value->shape);
            whole += shape_count(&shape);
        }
        if (whole > 1000 && own * 4 > whole * 3) /* logistic regression is too small */
            test_fail(__FILE__, __LINE__, "%s: a rank has %lld of %lld parameters",
                      model_table[i]->name, (long long)own, (long long)whole);
        graph_destroy(graphs[0]);
        graph_destroy(graphs[1]);
    }
}

const struct test tests[] = {
    { .name = "a block has the sums of Megatron",
      .run = test_a_block_has_the_sums_of_megatron },
    { .name = "with places shared sums become halves",
      .run = test_with_places_shared_sums_become_halves },
    { .name = "parameters are slices", .run = test_parameters_are_slices },
    { .name = "heads that cannot be shared are refused",
      .run = test_heads_that_cannot_be_shared_are_refused },
    { .name = "every model is shared", .run = test_every_model_is_shared },
    { 0 },
};
