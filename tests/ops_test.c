/* SPDX-License-Identifier: MIT */
/* ops_test.c - every row of the table of ops: its shapes are what kernels accept and make, its
 * gradient is that of finite differences, its shards add up to the whole, its flags hold.
 *
 * Contents are odd multiples of 1/128 (op_case.h), so that a linear op's differences are exact.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "interpret.h"
#include "kernel/measure.h"
#include "op_case.h"
#include "pass/pass.h"
#include "random_model.h"

enum { MODEL_ROWS = 4 };

static const struct kernel_step whole_step = { .seed = 7,
                                               .first_sample = 96,
                                               .inv_batch = 0.125F };

/* Batch norm over all shards, of which there is one. */
static const struct pass_config one_shard = { .shards = 1, .sync_norm = true };
/* Batch norms go into convolutions where they can. */
static const struct pass_config joined = { .shards = 1 };

/* What exec/ runs by itself, over whole buckets. */
static const struct op *const step_ops[] = {
    &op_shard_sum,
    &op_all_reduce,
    &op_reduce_scatter,
    &op_all_gather,
    &op_clip_norm,
    &op_factor_sum,
    &op_row_sum,
    &op_sgd_update,
    &op_adam_update,
    &op_average_update,
    &op_shard_gather,
    &op_lars_update,
    &op_lamb_update,
    &op_lamb_direction,
    &op_trust_ratio,
    &op_push,
    &op_pull,
    &op_worker_mean,
    &op_center_pull,
    &op_send,
    &op_receive,
    &op_tp_copy,
    &op_tp_sum,
    &op_tp_slice,
    &op_tp_gather,
    &op_tp_sum_slice,
    &op_tp_ids,
    &op_tp_token_loss,
    &op_tp_token_accuracy,
    &op_anchor,
};

static bool is_step_op(const struct op *op)
{
    for (size_t i = 0; i < sizeof step_ops / sizeof *step_ops; i++) {
        if (step_ops[i] == op)
            return true;
    }
    return false;
}

static void test_every_row_has_a_case(void)
{
    for (int i = 0; graph_ops[i]; i++) {
        const struct op *op = graph_ops[i];
        if (op_case_exists(op) == is_step_op(op))
            test_fail(__FILE__, __LINE__, "%s: add a row to op_case.c", op->name);
        if (is_step_op(op) && op->split[0] != SPLIT_WHOLE && !op->meets && !op->moves &&
            !op->talks && !op->is_view)
            test_fail(__FILE__, __LINE__, "%s: exec/ runs ops over whole values alone",
                      op->name);
        CHECK(graph_find_op(op->name) == op);
        for (int j = 0; j < i; j++)
            CHECK(graph_ops[j] != op);
        CHECK(op->infer && op->summary && op->min_in <= op->max_in && op->min_out >= 1);
    }
    CHECK(graph_find_op("no_such_op") == NULL);
}

/* Calls `check` with a case of every op that kernels run. */
static void for_each_case(struct rng *rng, void (*check)(struct graph *graph, struct node *node,
                                                         struct rng *rng))
{
    for (int i = 0; graph_ops[i]; i++) {
        struct graph *graph;

        if (!op_case_exists(graph_ops[i]))
            continue;
        CHECK_OK(graph_create(graph_ops[i]->name, &graph));
        struct node *node = op_case_add(graph, graph_ops[i], rng);
        CHECK_OK(graph_status(graph));
        check(graph, node, rng);
        graph_destroy(graph);
    }
}

static void fill_inputs(struct interpreter *in, const struct node *node, struct rng *rng)
{
    for (int i = 0; i < node->n_in; i++)
        op_case_fill(node, node->in[i], interpret_shape(in, node->in[i]), rng,
                     interpret_data(in, node->in[i]));
}

/* Shapes ------------------------------------------------------------------------------- */

static struct kernel_problem problem_of(const struct graph *graph, const struct node *node)
{
    struct shape shapes[32];

    CHECK(graph_value_count(graph) <= 32);
    for (int i = 0; i < graph_value_count(graph); i++)
        shapes[i] = graph_value(graph, i)->shape;
    return interpret_problem(node, shapes);
}

/* Every output as large as the rule says, and not one element larger. */
static void check_shapes(struct graph *graph, struct node *node, struct rng *rng)
{
    const struct kernel_problem problem = problem_of(graph, node);

    (void)rng;
    CHECK_OK(graph_verify(graph));
    if (node->op->is_view) {
        CHECK(!kernel_find(node->op->name, "reference"));
        CHECK_INT(shape_count(&node->in[0]->shape), shape_count(&node->out[0]->shape));
        return;
    }
    CHECK_OK(kernel_check(&problem));
    for (int i = 0; i < problem.n_out; i++) {
        for (int d = 0; d < problem.out[i].shape.rank; d++) {
            struct kernel_problem larger = problem;
            /* By as much as makes a window more; less may make no difference. */
            const int stride = d >= 2 ? problem.attrs.stride[d - 2] : 0;
            const int window = d >= 2 ? problem.attrs.window[d - 2] : 0;
            larger.out[i].shape.dim[d] += (stride ? stride : 1) * (window ? window : 1);
            if (kernel_check(&larger) == STATUS_OK)
                test_fail(__FILE__, __LINE__, "%s: extent %d of output %d may be anything",
                          problem.op, d, i);
        }
    }
}

static void test_inferred_shapes_are_what_kernels_accept(struct rng *rng)
{
    for_each_case(rng, check_shapes);
}

/* One of the case's numbers changed; most such cases are illegal. */
static void spoil(struct node *node, struct rng *rng)
{
    static const int numbers[] = { -1, 0, 1, 2, 7, 15, 17, 255, 1 << 20 };
    const int number = numbers[rng_below(rng, sizeof numbers / sizeof *numbers)];
    struct attrs *a = &node->attrs;
    int *const pairs[] = { a->stride, a->pad, a->window, a->extent };
    struct value *in = node->in[rng_below(rng, (uint64_t)node->n_in)];

    switch (rng_below(rng, 6)) {
    case 0:
        in->shape.dim[rng_below(rng, (uint64_t)in->shape.rank)] = number > 0 ? number : 1;
        break;
    case 1:
        in->shape.rank = 1 + (int)rng_below(rng, 5);
        for (int i = 0; i < in->shape.rank; i++)
            in->shape.dim[i] = in->shape.dim[i] > 0 ? in->shape.dim[i] : 1;
        break;
    case 2:
        in->dtype = rng_below(rng, 2) ? DTYPE_I32 : DTYPE_U8;
        break;
    case 3:
        a->groups = number;
        break;
    default:
        pairs[rng_below(rng, 4)][rng_below(rng, 2)] = number;
    }
}

/* The node again, from spoilt inputs. */
static void check_refusals(struct graph *graph, struct node *node, struct rng *rng)
{
    spoil(node, rng);
    graph_set_phase(graph, PHASE_FORWARD);
    for (int i = 0; i < node->n_in; i++) {
        int64_t count;
        if (shape_checked_count(&node->in[i]->shape, &count) != STATUS_OK || count > 1 << 24)
            return;
        /* As graph_input would have it. */
        if (node->in[i]->kind == VALUE_INPUT && node->op != &op_reorder)
            node->in[i]->layout = node->in[i]->shape.rank == 4 ? LAYOUT_NHWC : LAYOUT_PLAIN;
    }
    struct node *again =
        graph_add(graph, node->op, "again", node->in, node->n_in, &node->attrs);
    struct node *const order[] = { again };
    if (!again) {
        CHECK_MESSAGE("again");
        return;
    }
    CHECK_OK(graph_set_order(graph, order, 1));
    if (graph_verify(graph) != STATUS_OK || again->op->is_view)
        return;
    const struct kernel_problem problem = problem_of(graph, again);
    if (kernel_check(&problem) != STATUS_OK) {
        char text[KERNEL_TEXT];
        test_fail(__FILE__, __LINE__, "the graph allows what kernels refuse: %s: %s",
                  kernel_print(&problem, text), status_message());
    }
}

static void test_what_the_graph_allows_kernels_accept(struct rng *rng)
{
    for (int i = 0; i < 20; i++)
        for_each_case(rng, check_refusals);
}

/* Nothing beside the outputs is written, and all of them is. */
static void check_writes(struct graph *graph, struct node *node, struct rng *rng)
{
    const struct kernel_problem problem = problem_of(graph, node);
    const struct kernel *kernel = kernel_find(node->op->name, "reference");
    const uint64_t seed = rng_u64(rng);
    struct kernel_trial *trial;

    if (node->op->is_view)
        return;
    CHECK(kernel);
    CHECK_OK(kernel_trial_create(kernel, &problem, KERNEL_FILL_NORMAL, seed, &trial));
    const struct kernel_call *call = kernel_trial_call(trial);
    unsigned char poison;
    memcpy(&poison, call->out[0], 1);
    kernel_trial_run(trial);
    CHECK_OK(kernel_trial_check(trial));
    for (int i = 0; i < problem.n_out; i++) {
        const size_t size = dtype_size(problem.out[i].dtype);
        const unsigned char *bytes = call->out[i];
        for (int64_t e = 0; e < shape_count(&problem.out[i].shape); e++) {
            size_t same = 0;
            for (size_t b = 0; b < size; b++)
                same += bytes[(size_t)e * size + b] == poison;
            CHECK(same < size);
        }
    }
    kernel_trial_destroy(trial);
}

static void test_kernels_write_their_outputs_and_nothing_else(struct rng *rng)
{
    for_each_case(rng, check_writes);
}

/* Gradients ---------------------------------------------------------------------------- */

/* A number that depends on the contents of inputs and parameters. */
struct function {
    struct interpreter *in;
    int n_nodes;              /* that make it */
    const struct node *node;  /* a loss, or any node: then it is the sum of its output ... */
    const struct value *dout; /* ... times these numbers */
    int probes, bent;         /* elements looked at; those where it bends */
};

/* -log softmax at the labels, or the squared difference, by definition and in double. */
static double loss_value(const struct function *f)
{
    const struct value *x = f->node->in[0], *target = f->node->in[1];
    const struct shape *shape = interpret_shape(f->in, x);
    const bool tokens = f->node->op == &op_token_cross_entropy;
    const int64_t count = shape_count(shape);
    const int64_t columns = tokens ? shape->dim[shape->rank - 1] : count / shape->dim[0];
    const float *data = interpret_data(f->in, x);
    double sum = 0;

    for (int64_t r = 0; r < count / columns; r++) {
        const float *row = data + r * columns;
        double total = 0;
        if (f->node->op == &op_mse) {
            const float *other = (const float *)interpret_data(f->in, target) + r * columns;
            for (int64_t c = 0; c < columns; c++)
                total += pow((double)row[c] - (double)other[c], 2);
            sum += total / (double)columns;
        } else {
            const int32_t label = ((const int32_t *)interpret_data(f->in, target))[r];
            const double smoothing = (double)f->node->attrs.smoothing;
            for (int64_t c = 0; c < columns; c++)
                total += exp((double)row[c]);
            for (int64_t c = 0; c < columns && label >= 0; c++) /* below 0: left out */
                sum += (smoothing / (double)columns + (c == label ? 1 - smoothing : 0)) *
                       (log(total) - (double)row[c]);
        }
    }
    return sum * (double)whole_step.inv_batch;
}

static double function_value(const struct function *f)
{
    const struct value *out = f->node->out[0];
    const int64_t count = shape_count(interpret_shape(f->in, out));
    double sum = 0;

    interpret_run(f->in, 0, f->n_nodes, &whole_step);
    const float *y = interpret_data(f->in, out);
    if (!f->dout) {
        sum = loss_value(f);
        CHECK_CLOSE(sum, y[0], 1e-5);
        return sum;
    }
    const float *dy = interpret_data(f->in, f->dout);
    for (int64_t i = 0; i < count; i++)
        sum += (double)y[i] * (double)dy[i];
    return sum;
}

/* Slopes of the function along one element, to both sides. */
struct slopes {
    double above, below;
};

static struct slopes slopes_at(const struct function *f, float *element, float reach,
                               double here)
{
    const float before = *element;
    struct slopes slopes;

    *element = before + reach;
    slopes.above = (function_value(f) - here) / (double)reach;
    *element = before - reach;
    slopes.below = (here - function_value(f)) / (double)reach;
    *element = before;
    return slopes;
}

/* Does the function bend within reach (relu, maximum)? Where it is smooth, the two slopes come
 * twice as near to each other, and their mean stays, when reach is halved. */
static bool bends(struct slopes far, struct slopes near, double tolerance)
{
    return fabs(near.above - near.below - (far.above - far.below) / 2) > tolerance ||
           fabs(near.above + near.below - far.above - far.below) / 2 > tolerance;
}

/* Compares elements of a gradient with differences of the function. Where it bends there is
 * nothing to compare with; such elements must be few. */
static void check_elements(struct function *f, const struct value *x, const float *gradient,
                           float reach, double tolerance, struct rng *rng)
{
    enum { ELEMENTS = 8 };
    const int64_t count = shape_count(interpret_shape(f->in, x));
    const double here = function_value(f);
    float *data = interpret_data(f->in, x);
    double scale = 0.01;

    for (int64_t i = 0; i < count; i++)
        scale = fabs((double)gradient[i]) > scale ? fabs((double)gradient[i]) : scale;
    /* Of few elements each is looked at about once, lest one that bends counts as many. */
    for (int probe = 0; probe < ELEMENTS && probe < count; probe++, f->probes++) {
        const int64_t i = (int64_t)rng_below(rng, (uint64_t)count);
        const struct slopes far = slopes_at(f, &data[i], reach, here);
        const struct slopes near = slopes_at(f, &data[i], reach / 2, here);
        const double slope = (near.above + near.below) / 2;

        if (bends(far, near, tolerance * scale))
            f->bent++;
        else if (!(fabs(slope - (double)gradient[i]) <= 2 * tolerance * scale))
            test_fail(__FILE__, __LINE__,
                      "%s: gradient of %s at %lld is %.9g, differences say %.9g",
                      f->node->op->name, x->name, (long long)i, (double)gradient[i], slope);
    }
    function_value(f); /* leave things as they were */
}

/* Of hardly any elements all may bend. */
static void check_few_bends(const struct function *f)
{
    if (f->probes >= 16 && f->bent > f->probes / 4 * 3)
        test_fail(__FILE__, __LINE__, "%s bends at %d of %d elements", f->node->op->name,
                  f->bent, f->probes);
}

/* Does one element change many, by less than rounding leaves of a short way? */
static bool spreads(const struct op *op)
{
    return op->across_samples || op == &op_layer_norm || op == &op_softmax ||
           op == &op_attention;
}

/* Does rounding of one step go through all that follow? */
static bool recurs_over_time(const struct op *op)
{
    return op == &op_lstm || op == &op_gru || op == &op_lstm_attend;
}

/* The op's rule against differences of sum(dy * y), or of the loss itself. */
static void check_gradient(struct graph *graph, struct node *node, struct rng *rng,
                           const struct kernel_choices *choices)
{
    const bool is_loss = node->op->split[0] == SPLIT_SUM;
    struct value *dout[GRAPH_OUT] = { NULL }, *din[GRAPH_IN] = { NULL };
    bool wanted[GRAPH_IN] = { false };
    struct interpreter *in;

    /* What flows through the statistics of all shards is part of this one's; whole models have it. */
    if (!node->op->gradient || node->op == &op_batch_norm_normalize)
        return;
    for (int i = 0; i < node->n_in; i++)
        wanted[i] = node->in[i]->dtype == DTYPE_F32 && !(is_loss && i > 0);
    if (!is_loss) {
        dout[0] = graph_input(graph, "dout", DTYPE_F32, node->out[0]->shape);
        dout[0]->layout = node->out[0]->layout;
    }
    const int n_nodes = graph_node_count(graph);
    graph_set_phase(graph, PHASE_BACKWARD);
    node->op->gradient(graph, node, dout, wanted, din);
    CHECK_OK(graph_verify(graph));

    CHECK_OK(interpret_create(graph, node->in[0]->shape.dim[0], choices, &in));
    fill_inputs(in, node, rng);
    if (dout[0])
        op_case_fill(node, dout[0], interpret_shape(in, dout[0]), rng,
                     interpret_data(in, dout[0]));
    struct function f = { in, n_nodes, node, dout[0], 0, 0 };
    /* Where one element changes all, or hardly anything, rounding needs a longer way to vanish in. */
    const bool recurs = recurs_over_time(node->op);
    const float reach = spreads(node->op) ? 0x1p-7F : recurs ? 0x1p-8F : 0x1p-10F;
    interpret_run(in, 0, graph_node_count(graph), &whole_step);
    for (int i = 0; i < node->n_in; i++) {
        if (!wanted[i])
            continue;
        CHECK(din[i]);
        CHECK(shape_equal(&din[i]->shape, &node->in[i]->shape));
        CHECK(din[i]->layout == node->in[i]->layout);
        /* Copied: another input's gradient may be the same value, and runs again. */
        const int64_t count = shape_count(&din[i]->shape);
        float *gradient;
        CHECK_OK(mem_alloc((size_t)count, sizeof *gradient, &gradient));
        memcpy(gradient, interpret_data(in, din[i]), (size_t)count * sizeof *gradient);
        check_elements(&f, node->in[i], gradient, reach, recurs ? 1e-2 : 1e-3, rng);
        mem_free(gradient);
    }
    check_few_bends(&f);
    interpret_destroy(in);
}

static void check_gradient_of_reference(struct graph *graph, struct node *node, struct rng *rng)
{
    check_gradient(graph, node, rng, NULL);
}

static void check_gradient_of_choice(struct graph *graph, struct node *node, struct rng *rng)
{
    struct kernel_choices *choices;

    CHECK_OK(kernel_choices_load(NULL, &choices));
    check_gradient(graph, node, rng, choices);
    kernel_choices_destroy(choices);
}

static void test_gradients_agree_with_differences(struct rng *rng)
{
    for_each_case(rng, check_gradient_of_reference);
    for_each_case(rng, check_gradient_of_choice);
}

/* Weights small enough that numbers keep their size from layer to layer. */
static void fill_model(struct interpreter *in, const struct graph *graph, struct rng *rng)
{
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        const int64_t count = shape_count(interpret_shape(in, value));
        void *data = interpret_data(in, value);

        for (int64_t e = 0; e < count; e++) {
            if (value->kind == VALUE_INPUT && value->dtype == DTYPE_I32)
                ((int32_t *)data)[e] = (int32_t)rng_below(rng, RANDOM_MODEL_CLASSES);
            else if (value->kind == VALUE_INPUT || value->kind == VALUE_PARAM)
                ((float *)data)[e] =
                    value->initial +
                    (float)(rng_normal(rng) *
                            (value->kind == VALUE_PARAM ? (double)value->init_bound : 1));
        }
    }
}

static void test_gradients_of_whole_models_agree_with_differences(struct rng *rng)
{
    struct kernel_choices *choices;
    struct graph *graph;
    struct interpreter *in;

    CHECK_OK(kernel_choices_load(NULL, &choices));
    CHECK_OK(graph_create("model", &graph));
    random_model_add(graph, MODEL_ROWS, true, rng);
    if (rng_below(rng, 2))
        CHECK_OK(pass_fuse.run(graph, rng_below(rng, 2) ? &one_shard : &joined));
    if (rng_below(rng, 2))
        CHECK_OK(pass_sync_norm.run(graph, &one_shard));
    const int n_forward = graph_node_count(graph);
    CHECK_OK(pass_autodiff.run(graph, NULL));
    CHECK_OK(graph_verify(graph));

    CHECK_OK(interpret_create(graph, MODEL_ROWS, rng_below(rng, 2) ? choices : NULL, &in));
    fill_model(in, graph, rng);
    struct function f = { in, n_forward, graph_roles(graph)->loss->maker, NULL, 0, 0 };
    interpret_run(in, 0, graph_node_count(graph), &whole_step);
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind == VALUE_PARAM)
            check_elements(&f, value, interpret_data(in, value->gradient), 0x1p-11F, 2e-2, rng);
    }
    check_few_bends(&f);
    interpret_destroy(in);
    graph_destroy(graph);
    kernel_choices_destroy(choices);
}

/* The same parameters' gradients, and what averages saw, of a model as it is, with fusion, with a
 * batch norm in parts, too, and with batch norms in convolutions. */
static void test_passes_change_no_gradient(struct rng *rng)
{
    struct graph *graphs[4];
    struct interpreter *in[4];
    struct rng again;

    for (int g = 0; g < 4; g++) {
        again = *rng;
        CHECK_OK(graph_create("model", &graphs[g]));
        random_model_add(graphs[g], MODEL_ROWS, true, &again);
        if (g > 0)
            CHECK_OK(pass_fuse.run(graphs[g], g < 3 ? &one_shard : &joined));
        if (g == 2)
            CHECK_OK(pass_sync_norm.run(graphs[g], &one_shard));
        CHECK_OK(graph_verify(graphs[g]));
        CHECK_OK(pass_autodiff.run(graphs[g], NULL));
        CHECK_OK(interpret_create(graphs[g], MODEL_ROWS, NULL, &in[g]));
        fill_model(in[g], graphs[g], &again);
        interpret_run(in[g], 0, graph_node_count(graphs[g]), &whole_step);
    }
    CHECK(graph_node_count(graphs[1]) < graph_node_count(graphs[0]));
    for (int i = 0; i < graph_value_count(graphs[0]); i++) {
        const struct value *value = graph_value(graphs[0], i);
        if (value->kind != VALUE_PARAM && value->kind != VALUE_AVERAGE)
            continue;
        const float *expected = interpret_data(in[0], value->gradient);
        for (int g = 1; g < 4; g++) {
            const struct value *other = graph_find_value(graphs[g], value->name);
            const float *actual = interpret_data(in[g], other->gradient);
            /* A shard's share of the step: whole_step says an eighth a sample. */
            const float share =
                g == 2 && value->kind == VALUE_AVERAGE ? MODEL_ROWS * whole_step.inv_batch : 1;
            for (int64_t e = 0; e < shape_count(&value->shape); e++)
                CHECK_CLOSE(expected[e], share * actual[e], 1e-4);
        }
    }
    for (int g = 0; g < 4; g++) {
        interpret_destroy(in[g]);
        graph_destroy(graphs[g]);
    }
}

/* Shards ------------------------------------------------------------------------------- */

/* Element e of a value as a number. */
static double element(const struct interpreter *in, const struct value *value, int64_t e)
{
    const void *data = interpret_data(in, value);

    return value->dtype == DTYPE_F32   ? (double)((const float *)data)[e]
           : value->dtype == DTYPE_I32 ? (double)((const int32_t *)data)[e]
                                       : (double)((const uint8_t *)data)[e];
}

/* Gives a shard its rows of the batched inputs and all of the others. */
static void cut_inputs(const struct interpreter *whole, struct interpreter *shard,
                       const struct node *node, int64_t first)
{
    for (int i = 0; i < node->n_in; i++) {
        const struct value *value = node->in[i];
        const struct shape *shape = interpret_shape(shard, value);
        const size_t size = dtype_size(value->dtype);
        const size_t count = (size_t)shape_count(shape);
        const size_t skip = value->batched ? count / (size_t)shape->dim[0] * (size_t)first : 0;

        memcpy(interpret_data(shard, value),
               (const char *)interpret_data(whole, value) + skip * size, count * size);
    }
}

/* Rows of the shard are rows of the whole. */
static void check_rows(const struct interpreter *whole, const struct interpreter *shard,
                       const struct value *value, int64_t first)
{
    const struct shape *shape = interpret_shape(shard, value);
    const int64_t count = shape_count(shape), skip = count / shape->dim[0] * first;

    for (int64_t e = 0; e < count; e++)
        CHECK_CLOSE(element(whole, value, skip + e), element(shard, value, e), 1e-5);
}

static void check_shards(struct graph *graph, struct node *node, struct rng *rng)
{
    enum { MOST = 4096 };
    static double sums[GRAPH_OUT][MOST];
    const int64_t rows = node->in[0]->shape.dim[0];
    const int64_t shards = 1 + (int64_t)rng_below(rng, (uint64_t)rows);
    struct kernel_choices *choices;
    struct interpreter *whole, *shard;

    if (node->op->across_samples)
        return; /* the shard is the whole that it looks at */
    CHECK_OK(kernel_choices_load(NULL, &choices));
    CHECK_OK(interpret_create(graph, rows, choices, &whole));
    fill_inputs(whole, node, rng);
    interpret_run(whole, 0, 1, &whole_step);
    memset(sums, 0, sizeof sums);
    for (int64_t v = 0; v < shards; v++) {
        const int64_t first = v * rows / shards, end = (v + 1) * rows / shards;
        struct kernel_step step = whole_step;
        step.first_sample += (uint64_t)first;
        CHECK_OK(interpret_create(graph, end - first, choices, &shard));
        cut_inputs(whole, shard, node, first);
        interpret_run(shard, 0, 1, &step);
        for (int i = 0; i < node->n_out; i++) {
            const int64_t count = shape_count(interpret_shape(shard, node->out[i]));
            CHECK(node->op->split[i] == SPLIT_ROWS || node->op->split[i] == SPLIT_SUM);
            CHECK(count <= MOST);
            if (node->op->split[i] == SPLIT_ROWS)
                check_rows(whole, shard, node->out[i], first);
            else
                for (int64_t e = 0; e < count; e++)
                    sums[i][e] += element(shard, node->out[i], e);
        }
        interpret_destroy(shard);
    }
    for (int i = 0; i < node->n_out; i++) {
        if (node->op->split[i] != SPLIT_SUM)
            continue;
        CHECK(shape_equal(interpret_shape(whole, node->out[i]), &node->out[i]->shape));
        for (int64_t e = 0; e < shape_count(&node->out[i]->shape); e++)
            CHECK_CLOSE(element(whole, node->out[i], e), sums[i][e], 1e-5);
    }
    interpret_destroy(whole);
    kernel_choices_destroy(choices);
}

static void test_shards_make_up_the_whole(struct rng *rng)
{
    for_each_case(rng, check_shards);
}

/* Flags -------------------------------------------------------------------------------- */

/* Where an op may write over its first input, every kernel of it gives the same bits there. */
static void check_overwriting(struct graph *graph, struct node *node, struct rng *rng)
{
    const struct kernel_problem problem = problem_of(graph, node);
    const uint64_t seed = rng_u64(rng);
    const struct kernel *kernel;
    const int o = node->op->overwrites;

    if (!node->op->may_overwrite)
        return;
    CHECK(shape_equal(&node->in[0]->shape, &node->out[o]->shape));
    CHECK(node->in[0]->layout == node->out[o]->layout);
    for (size_t k = 0; (kernel = kernel_at(k)); k++) {
        struct kernel_trial *apart, *over;
        const size_t bytes = (size_t)shape_count(&problem.out[o].shape) * sizeof(float);

        if (strcmp(kernel->op, node->op->name) != 0 ||
            (kernel->can_run && !kernel->can_run(&problem)))
            continue;
        CHECK_OK(kernel_trial_create(kernel, &problem, KERNEL_FILL_NORMAL, seed, &apart));
        CHECK_OK(kernel_trial_create(kernel, &problem, KERNEL_FILL_NORMAL, seed, &over));
        kernel_trial_run(apart);
        struct kernel_call *call = kernel_trial_call(over);
        memcpy(call->out[o], call->in[0], bytes);
        call->in[0] = call->out[o];
        kernel_trial_run(over);
        for (int i = 0; i < problem.n_out; i++)
            CHECK(memcmp(kernel_trial_call(apart)->out[i], call->out[i],
                         (size_t)shape_count(&problem.out[i].shape) *
                             dtype_size(problem.out[i].dtype)) == 0);
        kernel_trial_destroy(apart);
        kernel_trial_destroy(over);
    }
}

static void test_ops_that_may_overwrite_can(struct rng *rng)
{
    for_each_case(rng, check_overwriting);
}

/* A dropped element's gradient is dropped too, and the next shard draws other numbers. */
static void test_dropout_depends_on_the_sample_alone(void)
{
    enum { N = 64, C = 33 };
    const struct attrs attrs = { .rate = 0.5F, .stream = 3 };
    struct kernel_step later = whole_step;
    struct graph *graph;
    struct interpreter *in;
    static float first[N * C];
    int kept = 0, same = 0;

    CHECK_OK(graph_create("dropout", &graph));
    struct value *x = graph_input(graph, "x", DTYPE_F32, shape_2(N, C));
    struct value *y = graph_apply(graph, "dropout", "y", x, NULL, NULL, &attrs);
    CHECK_OK(graph_status(graph));
    CHECK_OK(interpret_create(graph, N, NULL, &in));
    float *data = interpret_data(in, x);
    const float *out = interpret_data(in, y);
    for (int i = 0; i < N * C; i++)
        data[i] = 1;
    interpret_run(in, 0, 1, &whole_step);
    memcpy(first, out, sizeof first);
    later.first_sample++;
    interpret_run(in, 0, 1, &later);
    CHECK(memcmp(first + C, out, sizeof(float) * (N - 1) * C) == 0);
    for (int i = 0; i < N * C; i++) {
        CHECK(first[i] == 0 || first[i] == 2);
        kept += first[i] != 0;
        same += first[i] == out[i];
    }
    CHECK(abs(kept - N * C / 2) < 5 * 23 && abs(same - N * C / 2) < 5 * 23); /* 5 deviations */
    interpret_destroy(in);
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "every row has a case", .run = test_every_row_has_a_case },
    { .name = "inferred shapes are what kernels accept",
      .property = test_inferred_shapes_are_what_kernels_accept },
    { .name = "what the graph allows kernels accept",
      .property = test_what_the_graph_allows_kernels_accept },
    { .name = "kernels write their outputs and nothing else",
      .property = test_kernels_write_their_outputs_and_nothing_else },
    { .name = "gradients agree with differences",
      .property = test_gradients_agree_with_differences },
    { .name = "gradients of whole models agree with differences",
      .property = test_gradients_of_whole_models_agree_with_differences },
    { .name = "passes change no gradient", .property = test_passes_change_no_gradient },
    { .name = "shards make up the whole", .property = test_shards_make_up_the_whole },
    { .name = "ops that may overwrite can", .property = test_ops_that_may_overwrite_can },
    { .name = "dropout depends on the sample alone",
      .run = test_dropout_depends_on_the_sample_alone },
    { 0 },
};
