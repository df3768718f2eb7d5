/* SPDX-License-Identifier: MIT */
/* device_test.c - every kernel of a device against the CPU's reference: of the CPU behind the face and, where there is one,
 * of a GPU, also in mixed precision.
 *
 * Tests walk the CPU's table of references, so an op that has no kernel on the device is found.
 */
#include <math.h>
#include <string.h>

#include "base/test.h"
#include "kernel/device_check_testing.h"
#include "kernel/device_rows.h"
#include "kernel/kernel_testing.h"
#include "kernel/measure.h"
#include "kernel/precision.h"

enum { SEEDS_OF_CPU = 3, FLIPS = 2 };
static const double HALVES = 1.0 / 256; /* what 16 bits may differ by, at least */

/* Ops of which graphs of a device have some forms alone (pass/fuse_norm.c). */
static bool is_partly_there(const char *op)
{
    return strncmp(op, "norm_conv2d", 11) == 0 || strncmp(op, "conv2d_stats", 12) == 0;
}

static const struct kernel *reference_at(size_t i)
{
    const struct kernel *kernel;

    for (size_t at = 0; (kernel = kernel_at(at)) != NULL; at++) {
        if (strcmp(kernel->name, "reference") == 0 && i-- == 0)
            return kernel;
    }
    return NULL;
}

/* Is the output a number of rows, which 16 bits may make two of several equal ones the largest in? */
static bool is_count(const struct kernel_problem *problem, int output)
{
    return output == 1 && (strcmp(problem->op, "linear_token_loss") == 0 ||
                           strcmp(problem->op, "softmax_loss") == 0);
}

/* How many of these there may be. */
static double flips_of(const struct kernel_problem *problem)
{
    return fmax(FLIPS, (double)problem->in[0].shape.dim[0] / 1024);
}

static double count_apart(struct kernel_trial *expected, struct kernel_trial *actual,
                          int output)
{
    return fabs((double)*(float *)kernel_trial_call(expected)->out[output] -
                (double)*(float *)kernel_trial_call(actual)->out[output]);
}

static void check_close(const struct kernel_problem *problem, struct kernel_trial *expected,
                        struct kernel_trial *actual, double tolerance)
{
    for (int i = 0; i < problem->n_out; i++) {
        const double difference = kernel_trial_difference(expected, actual, i);
        const bool bytes = problem->out[i].dtype != DTYPE_F32 && tolerance > 0;
        if (tolerance >= HALVES && is_count(problem, i) &&
            count_apart(expected, actual, i) <= flips_of(problem))
            continue;
        if (!(difference <= (bytes ? 0.01 : tolerance)))
            device_complain(problem, "differs from the reference by %g in output %d",
                            difference, i);
    }
}

/* Another way of running gives the same bytes. */
static void check_same(const struct device_place *place, const struct kernel *kernel,
                       const struct kernel_problem *there, const struct kernel_problem *problem,
                       struct kernel_trial *once, struct kernel_trial *again,
                       enum device_way way)
{
    if (device_testing_run(place, kernel, there, kernel_trial_call(again), way) != STATUS_OK)
        device_complain(problem, "way %d: %s", (int)way, status_message());
    for (int i = 0; i < problem->n_out; i++) {
        if (memcmp(kernel_trial_call(once)->out[i], kernel_trial_call(again)->out[i],
                   device_tensor_bytes(&problem->out[i])) != 0)
            device_complain(problem, "way %d changes output %d", (int)way, i);
    }
}

static bool may_be_in_place(const char *op)
{
    static const char *const ops[] = { "bias",
                                       "relu",
                                       "relu_grad",
                                       "add",
                                       "dropout",
                                       "relu6_grad",
                                       "sigmoid",
                                       "sigmoid_grad",
                                       "relu6",
                                       "add_positions",
                                       "tanh",
                                       "tanh_grad",
                                       "gelu",
                                       "gelu_grad",
                                       "gelu_tanh",
                                       "gelu_tanh_grad",
                                       "token_cross_entropy_grad" };

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(op, ops[i]) == 0)
            return true;
    }
    return false;
}

/* In mixed precision both sides see inputs that 16 bits can hold. */
static void round_inputs(const struct kernel_problem *there, struct kernel_trial *trial)
{
    const struct kernel_call *call = kernel_trial_call(trial);

    for (int i = 0; i < there->n_in; i++) {
        const int64_t count = shape_count(&there->in[i].shape);
        float *data;
        memcpy(&data, &call->in[i], sizeof data); /* the trial's own buffer */
        for (int64_t k = 0; there->in[i].dtype == DTYPE_BF16 && k < count; k++)
            data[k] = kernel_from_bf16(kernel_to_bf16(data[k]));
        for (int64_t k = 0; there->in[i].dtype == DTYPE_F16 && k < count; k++)
            data[k] = kernel_from_f16(kernel_to_f16(data[k]));
    }
}

static bool lies_inward(struct kernel_tensor *tensor)
{
    if (tensor->layout != LAYOUT_HWIO || tensor->shape.dim[0] % 8 || tensor->shape.dim[1] % 8)
        return false;
    tensor->layout = LAYOUT_OHWI;
    return true;
}

/* The problem with its filter, or the gradient of it, the other way; false: the kernel takes it one way alone. */
static bool turn_inward(const struct device_face *face, const struct kernel *kernel,
                        struct kernel_problem *problem)
{
    bool turned = false;

    if (!face->takes_inward || !face->takes_inward(kernel))
        return false;
    for (int i = 0; i < problem->n_in; i++)
        turned = lies_inward(&problem->in[i]) || turned;
    return lies_inward(&problem->out[0]) || turned;
}

/* One problem on a device, in every way, against the reference. */
static void compare(const struct device_place *place, const struct kernel_problem *problem,
                    const struct kernel_problem *there, enum kernel_fill fill, double tolerance,
                    uint64_t seed)
{
    const struct kernel *reference = kernel_find(problem->op, "reference");
    const struct kernel *kernel = device_kernel(place->face, there);
    struct kernel_trial *trials[3];

    if (!kernel) {
        if (!is_partly_there(problem->op))
            device_complain(problem, "%s has no kernel", place->face->name);
        return;
    }
    for (int i = 0; i < 3; i++) {
        CHECK_OK(kernel_trial_create(reference, problem, fill, seed, &trials[i]));
        round_inputs(there, trials[i]);
    }
    struct kernel_trial *expected = trials[0], *actual = trials[1], *again = trials[2];
    kernel_trial_run(expected);
    if (device_testing_run(place, kernel, there, kernel_trial_call(actual), DEVICE_ONCE) ==
        STATUS_OK) {
        check_close(problem, expected, actual, tolerance);
        check_same(place, kernel, there, problem, actual, again, DEVICE_TWICE);
        check_same(place, kernel, there, problem, actual, again, DEVICE_GRAPH);
        if (may_be_in_place(problem->op))
            check_same(place, kernel, there, problem, actual, again, DEVICE_IN_PLACE);
        struct kernel_problem inward = *there;
        if (turn_inward(place->face, kernel, &inward))
            check_same(place, kernel, &inward, problem, actual, again, DEVICE_GRAPH);
    } else {
        device_complain(problem, "%s", status_message());
    }
    for (int i = 0; i < 3; i++)
        kernel_trial_destroy(trials[i]);
}

static void compare_all(const struct device_place *place, struct rng *rng,
                        enum kernel_fill fill)
{
    const struct kernel *reference;

    for (size_t i = 0; (reference = reference_at(i)) != NULL; i++) {
        struct kernel_problem problem;

        kernel_testing_problem(rng, reference->op, &problem);
        compare(place, &problem, &problem, fill, kernel_testing_tolerance(&problem),
                rng_u64(rng));
    }
    device_check_none_bad();
}

static void the_cpu_is_a_device(void)
{
    struct device_place place;
    struct device_info info;

    CHECK_OK(device_place_open("cpu", &place));
    CHECK_OK(place.face->describe(0, &info));
    CHECK(info.units > 0 && info.memory > 0 && info.name[0] != '\0');
    CHECK_STATUS(STATUS_NOT_FOUND, place.face->describe(1, &info));
    for (uint64_t seed = 0; seed < SEEDS_OF_CPU; seed++) {
        struct rng rng;
        rng_init(&rng, seed, 0);
        compare_all(&place, &rng, KERNEL_FILL_NORMAL);
    }
    device_place_close(&place);
}

static void devices_agree_on_any_numbers(struct rng *rng)
{
    compare_all(device_gpu(), rng, KERNEL_FILL_NORMAL);
}

/* Sums of whole numbers are exact: what does not divide has to be, too. */
static void devices_agree_on_whole_numbers(struct rng *rng)
{
    static const char *const ops[] = {
        "linear",
        "linear_grad_input",
        "linear_grad_weight",
        "conv2d",
        "conv2d_grad_input",
        "conv2d_grad_weight",
        "conv2d_pool",
        "conv2d_pool_grad_input",
        "conv2d_pool_grad_weight",
        "conv2d_transpose",
        "conv2d_transpose_grad_input",
        "conv2d_transpose_grad_weight",
        "conv1d",
        "conv1d_grad_input",
        "conv1d_grad_weight",
        "conv1d_max",
        "conv1d_max_grad_input",
        "conv1d_max_grad_weight",
        "bias_grad",
        "sum_rows",
        "embedding_grad",
        "positions_grad",
    };

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct kernel_problem problem;
        kernel_testing_problem(rng, ops[i], &problem);
        const bool divides = problem.attrs.activation == ACTIVATION_SIGMOID;
        compare(device_gpu(), &problem, &problem, KERNEL_FILL_WHOLE,
                divides ? kernel_testing_tolerance(&problem) : 0, rng_u64(rng));
    }
    device_check_none_bad();
}

/* Results are rounded to 16 bits once, or twice where a bias comes after a product or weights before one, or a sum of two gradients before
 * another; sums are f32. */
static double mixed_tolerance(const struct kernel_problem *problem)
{
    const bool twice = strncmp(problem->op, "linear", 6) == 0 ||
                       strncmp(problem->op, "conv", 4) == 0 ||
                       strncmp(problem->op, "attention", 9) == 0 ||
                       (strcmp(problem->op, "batch_norm_grad") == 0 &&
                        (problem->n_out > 3 || problem->n_in > 5));
    const double rounding = twice ? 1.0 / 128 : 1.0 / 256;
    const double tolerance = kernel_testing_tolerance(problem);

    return tolerance > rounding ? tolerance : rounding;
}

/* What f16 has more of digits is not asked for. */
static void compare_mixed(const struct device_place *place,
                          const struct kernel_problem *problem, uint64_t seed)
{
    static const enum dtype halves[] = { DTYPE_BF16, DTYPE_F16 };

    for (int i = 0; i < 2; i++) {
        struct kernel_problem there = *problem;

        kernel_narrow(&there, halves[i]);
        compare(place, problem, &there, KERNEL_FILL_NORMAL, mixed_tolerance(problem), seed);
    }
}

static void mixed_precision_agrees_to_rounding(struct rng *rng)
{
    const struct kernel *reference;

    for (size_t i = 0; (reference = reference_at(i)) != NULL; i++) {
        struct kernel_problem problem;
        kernel_testing_problem(rng, reference->op, &problem);
        compare_mixed(device_gpu(), &problem, rng_u64(rng));
    }
    device_check_none_bad();
}

static void large_problems_agree_in_mixed_precision(void)
{
    const struct device_place *place = device_gpu();

    for (size_t i = 0; kernel_testing_large[i]; i++) {
        struct kernel_problem problem;
        CHECK_OK(kernel_parse(kernel_testing_large[i], &problem));
        compare_mixed(place, &problem, i);
    }
    device_check_none_bad();
}

/* Problems that rows of kernel/cuda/cudnn_table.c are for, one of each kind of engine: too large for the CPU's tests. */
static const char *const of_table[] = {
    "conv2d 256x128x16x16 256x128x1x1 stride 2x2",
    "conv2d 256x512x2x2 512x512x3x3 512 stride 1x1 pad 1x1 relu",
    "conv2d_grad_input 256x512x2x2 512x512x3x3 -> 256x512x2x2 stride 1x1 pad 1x1",
    "conv2d_grad_input 256x256x8x8 256x128x1x1 -> 256x128x16x16 stride 2x2",
    "conv2d_grad_weight 256x256x8x8 256x512x4x4 -> 512x256x1x1 stride 2x2",
};

/* Problems of kernel/cuda/conv_hopper.cu, whose blocks have up to five tiles each. */
static const char *const of_tiles[] = {
    "conv2d 150x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d_stats 150x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 150x64x32x32 64x64x3x3 -> 150x64x32x32 stride 1x1 pad 1x1",
    "conv2d_grad_weight 150x64x32x32 150x64x32x32 -> 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d 5x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d_stats 5x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 5x64x32x32 64x64x3x3 -> 5x64x32x32 stride 1x1 pad 1x1",
    "conv2d_grad_weight 5x64x32x32 5x64x32x32 -> 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d 150x128x16x16 128x128x3x3 stride 1x1 pad 1x1",
    "conv2d_stats 150x128x16x16 128x128x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 150x128x16x16 128x128x3x3 -> 150x128x16x16 stride 1x1 pad 1x1",
    "conv2d_grad_weight 150x128x16x16 150x128x16x16 -> 128x128x3x3 stride 1x1 pad 1x1",
    "conv2d_stats 7x128x16x16 128x128x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 7x128x16x16 128x128x3x3 -> 7x128x16x16 stride 1x1 pad 1x1",
    "conv2d_grad_weight 7x128x16x16 7x128x16x16 -> 128x128x3x3 stride 1x1 pad 1x1",
};

/* Problems of kernel/cuda/linear_hopper.cu: panels, tiles and sums that end early, and more rows than blocks. */
static const char *const of_panels[] = {
    "linear_gelu 1100x72 200x72 200",
    "linear_gelu 1100x384 776x384 776 plain",
    "linear_gelu 3600x64 1160x64 1160",
    "linear_grad_input 1100x384 384x776 -> 1100x776",
    "linear_grad_input 3600x72 72x1160 -> 3600x1160 plain",
    "linear_grad_through 1100x384 384x776 1100x776 -> 1100x776 gelu_tanh",
    "linear_grad_through 3600x72 72x1160 3600x1160 -> 3600x1160 1160 plain gelu_tanh",
};

/* Problems of kernel/cuda/attention_long.cu: an even and an odd number of tiles, small heads, more heads than blocks. */
static const char *const of_long_sequences[] = {
    "attention_grad 1x300x64 1x300x192 1x300x64 1x300x1 -> 1x300x192 heads 1 causal",
    "attention_grad 1x512x96 1x512x288 1x512x96 1x512x2 -> 1x512x288 heads 2 causal",
    "attention_grad 70x130x80 70x130x240 70x130x80 70x130x2 -> 70x130x240 heads 2 causal",
};

/* All rows of the device that can run a problem, against the first, and that with filters that lie the other way. */
static void check_rows(const struct device_place *place, const char *text)
{
    struct kernel_problem problem, there;
    struct kernel_trial *first, *other;
    const struct kernel *row;

    CHECK_OK(kernel_parse(text, &problem));
    there = problem;
    kernel_as_bf16(&there);
    const struct kernel *reference = kernel_find(problem.op, "reference");
    const struct kernel *chosen = device_kernel(place->face, &there);
    CHECK(chosen != NULL);
    CHECK_OK(kernel_trial_create(reference, &problem, KERNEL_FILL_NORMAL, 3, &first));
    CHECK_OK(kernel_trial_create(reference, &problem, KERNEL_FILL_NORMAL, 3, &other));
    CHECK_OK(device_testing_run(place, chosen, &there, kernel_trial_call(first), DEVICE_ONCE));
    struct kernel_problem inward = there;
    if (turn_inward(place->face, chosen, &inward))
        check_same(place, chosen, &inward, &problem, first, other, DEVICE_ONCE);
    for (size_t i = 0; (row = place->face->kernel_at(i)) != NULL; i++) {
        if (row == chosen || strcmp(row->op, problem.op) != 0 ||
            (row->can_run && !row->can_run(&there)))
            continue;
        CHECK_OK(
            device_testing_run(place, row, &there, kernel_trial_call(other), DEVICE_TWICE));
        check_close(&problem, first, other, mixed_tolerance(&problem));
    }
    kernel_trial_destroy(other);
    kernel_trial_destroy(first);
}

static void rows_of_tiles_agree(void)
{
    for (size_t i = 0; i < sizeof of_tiles / sizeof of_tiles[0]; i++)
        check_rows(device_gpu(), of_tiles[i]);
    device_check_none_bad();
}

static void rows_of_panels_agree(void)
{
    for (size_t i = 0; i < sizeof of_panels / sizeof of_panels[0]; i++)
        check_rows(device_gpu(), of_panels[i]);
    device_check_none_bad();
}

static void rows_agree_over_long_sequences(void)
{
    for (size_t i = 0; i < sizeof of_long_sequences / sizeof of_long_sequences[0]; i++)
        check_rows(device_gpu(), of_long_sequences[i]);
    device_check_none_bad();
}

/* Attention of whole and broken tiles of 64 tokens (attention_hopper.cu), and of more heads than a GPU works at: these
 * are blocks of their own forward, so that a CPU learns nothing of more of them. */
static const char *const of_short_sequences[] = {
    "attention 2x256x384 heads 2 causal",  "attention 3x129x144 heads 1 causal",
    "attention 2x65x384 heads 2 causal",   "attention 5x128x384 heads 2 causal",
    "attention 2x193x360 heads 3 causal",  "attention 3x70x336 heads 2 causal",
    "attention 1x200x1152 heads 6 causal",
};
static const char *const of_many_short_sequences[] = { "attention 60x200x1152 heads 6 causal" };
static const char *const of_their_gradients[] = {
    "attention_grad 1x256x128 1x256x384 1x256x128 1x256x2 -> 1x256x384 heads 2 causal",
    "attention_grad 2x129x48 2x129x144 2x129x48 2x129x1 -> 2x129x144 heads 1 causal",
    "attention_grad 2x100x128 2x100x384 2x100x128 2x100x2 -> 2x100x384 heads 2 causal",
    "attention_grad 1x193x120 1x193x360 1x193x120 1x193x3 -> 1x193x360 heads 3 causal",
};
static const char *const of_many_heads[] = {
    "attention_grad 50x130x120 50x130x360 50x130x120 50x130x3 -> 50x130x360 heads 3 causal",
    "attention_grad 136x65x80 136x65x240 136x65x80 136x65x2 -> 136x65x240 heads 2 causal",
};

static void agree_in_bf16(const char *const *problems, size_t count)
{
    const struct device_place *place = device_gpu();

    for (size_t i = 0; i < count; i++) {
        struct kernel_problem problem, there;
        CHECK_OK(kernel_parse(problems[i], &problem));
        there = problem;
        kernel_as_bf16(&there);
        compare(place, &problem, &there, KERNEL_FILL_NORMAL, mixed_tolerance(&problem), i);
    }
    device_check_none_bad();
}

static void engines_of_the_table_agree(void)
{
    agree_in_bf16(of_table, sizeof of_table / sizeof of_table[0]);
}

static void attention_agrees_over_short_sequences(void)
{
    agree_in_bf16(of_short_sequences, sizeof of_short_sequences / sizeof of_short_sequences[0]);
}

static void attention_agrees_over_many_short_sequences(void)
{
    agree_in_bf16(of_many_short_sequences, 1);
}

/* All rows, whichever is taken. */
static void gradients_agree_over_short_sequences(void)
{
    const size_t count = sizeof of_their_gradients / sizeof of_their_gradients[0];

    agree_in_bf16(of_their_gradients, count);
    for (size_t i = 0; i < count; i++)
        check_rows(device_gpu(), of_their_gradients[i]);
    for (size_t i = 0; i < sizeof of_many_heads / sizeof of_many_heads[0]; i++)
        check_rows(device_gpu(), of_many_heads[i]);
    device_check_none_bad();
}

static void devices_agree_on_large_problems(void)
{
    const struct device_place *place = device_gpu();

    for (size_t i = 0; kernel_testing_large[i]; i++) {
        struct kernel_problem problem;
        CHECK_OK(kernel_parse(kernel_testing_large[i], &problem));
        if (strcmp(problem.op, "dropout") == 0)
            problem.attrs.rate = 0.5F;
        compare(place, &problem, &problem, KERNEL_FILL_NORMAL,
                kernel_testing_tolerance(&problem), i);
    }
    device_check_none_bad();
}

/* Opened without a driver: the rows are there all the same. */
static void every_op_has_a_row_in_the_plugin(void)
{
    const struct device_face *face;
    const struct kernel *reference;

    if (device_load_cuda(&face) != STATUS_OK)
        test_skip(status_message());
    CHECK_TEXT("cuda", face->name);
    for (size_t i = 0; (reference = reference_at(i)) != NULL; i++) {
        bool found = false;
        const struct kernel *kernel;
        for (size_t k = 0; (kernel = face->kernel_at(k)) != NULL; k++)
            found = found || strcmp(kernel->op, reference->op) == 0;
        if (!found && !is_partly_there(reference->op))
            test_fail(__FILE__, __LINE__, "%s has no kernel of CUDA", reference->op);
    }
    for (size_t i = 0; i < sizeof device_update_ops / sizeof device_update_ops[0]; i++)
        CHECK(device_update(face, device_update_ops[i]) != NULL);
    CHECK(device_update(face, "no_update") == NULL);
}

const struct test tests[] = {
    { .name = "every op has a row in the plug-in", .run = every_op_has_a_row_in_the_plugin },
    { .name = "the cpu is a device", .run = the_cpu_is_a_device },
    { .name = "devices agree on whole numbers", .property = devices_agree_on_whole_numbers },
    { .name = "devices agree on any numbers", .property = devices_agree_on_any_numbers },
    { .name = "mixed precision agrees to rounding",
      .property = mixed_precision_agrees_to_rounding },
    { .name = "large problems agree in mixed precision",
      .run = large_problems_agree_in_mixed_precision },
    { .name = "engines of the table agree", .run = engines_of_the_table_agree },
    { .name = "attention agrees over short sequences",
      .run = attention_agrees_over_short_sequences },
    { .name = "attention agrees over many short sequences",
      .run = attention_agrees_over_many_short_sequences },
    { .name = "gradients agree over short sequences",
      .run = gradients_agree_over_short_sequences },
    { .name = "rows of tiles agree", .run = rows_of_tiles_agree },
    { .name = "rows of panels agree", .run = rows_of_panels_agree },
    { .name = "rows agree over long sequences", .run = rows_agree_over_long_sequences },
    { .name = "devices agree on large problems", .run = devices_agree_on_large_problems },
    { 0 },
};
