/* SPDX-License-Identifier: MIT */
/* device_test.c - devices: the CPU behind the face, the plug-in without a GPU, and, where there is one, every
 * kernel and update of CUDA against the CPU's reference.
 *
 * Tests of the GPU walk the CPU's table of references, so an op that has no kernel on the device is found.
 */
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "kernel/device_rows.h"
#include "kernel/device_testing.h"
#include "kernel/kernel_testing.h"
#include "kernel/measure.h"
#include "kernel/precision.h"

enum { COUNT = 5000, SEEDS_OF_CPU = 3, FLIPS = 2 };
static const double HALVES = 1.0 / 256; /* what 16 bits may differ by, at least */

static const char *const update_ops[] = { "sgd_update",  "adam_update", "average_update",
                                          "lars_update", "lamb_update", "lamb_direction" };

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

/* Device 0 of CUDA, opened once; the test is skipped if there is none. */
static const struct device_place *gpu(void)
{
    static struct device_place place;

    if (!place.face && device_place_open("cuda", &place) != STATUS_OK)
        test_skip(status_message());
    return &place;
}

/* Kernels ------------------------------------------------------------------------------ */

/* Differences are counted, so that one run on a machine that is seldom there names them all. */
static int n_bad;

PRINTF_LIKE(2, 3)
static void complain(const struct kernel_problem *problem, const char *format, ...)
{
    char text[KERNEL_TEXT];
    va_list args;

    n_bad++;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, ": \"%s\"\n", kernel_print(problem, text));
}

static void check_none_bad(void)
{
    const int bad = n_bad;

    n_bad = 0;
    if (bad)
        test_fail(__FILE__, __LINE__, "%d kernels do not agree", bad);
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
            complain(problem, "differs from the reference by %g in output %d", difference, i);
    }
}

static size_t bytes_of(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype);
}

/* Another way of running gives the same bytes. */
static void check_same(const struct device_place *place, const struct kernel *kernel,
                       const struct kernel_problem *there, const struct kernel_problem *problem,
                       struct kernel_trial *once, struct kernel_trial *again,
                       enum device_way way)
{
    if (device_testing_run(place, kernel, there, kernel_trial_call(again), way) != STATUS_OK)
        complain(problem, "way %d: %s", (int)way, status_message());
    for (int i = 0; i < problem->n_out; i++) {
        if (memcmp(kernel_trial_call(once)->out[i], kernel_trial_call(again)->out[i],
                   bytes_of(&problem->out[i])) != 0)
            complain(problem, "way %d changes output %d", (int)way, i);
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
            complain(problem, "%s has no kernel", place->face->name);
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
        complain(problem, "%s", status_message());
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
    check_none_bad();
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
    compare_all(gpu(), rng, KERNEL_FILL_NORMAL);
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
        compare(gpu(), &problem, &problem, KERNEL_FILL_WHOLE,
                divides ? kernel_testing_tolerance(&problem) : 0, rng_u64(rng));
    }
    check_none_bad();
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
        compare_mixed(gpu(), &problem, rng_u64(rng));
    }
    check_none_bad();
}

static void large_problems_agree_in_mixed_precision(void)
{
    const struct device_place *place = gpu();

    for (size_t i = 0; kernel_testing_large[i]; i++) {
        struct kernel_problem problem;
        CHECK_OK(kernel_parse(kernel_testing_large[i], &problem));
        compare_mixed(place, &problem, i);
    }
    check_none_bad();
}

/* The sums that an op gives besides, its last output, are those of sum_rows over its first. */
static void check_order(const struct device_place *place, const char *text, enum dtype dtype)
{
    struct kernel_problem problem, there, sums, sums_there;
    struct kernel_trial *maker, *sum;

    CHECK_OK(kernel_parse(text, &problem));
    sums = (struct kernel_problem){ .op = "sum_rows", .n_in = 1, .n_out = 1 };
    sums.in[0] = problem.out[0];
    sums.out[0] = problem.out[problem.n_out - 1];
    there = problem;
    sums_there = sums;
    if (kernel_is_half(dtype)) {
        kernel_narrow(&there, dtype);
        kernel_narrow(&sums_there, dtype);
    }
    CHECK_OK(kernel_trial_create(kernel_find(problem.op, "reference"), &problem,
                                 KERNEL_FILL_NORMAL, 7, &maker));
    CHECK_OK(kernel_trial_create(kernel_find("sum_rows", "reference"), &sums,
                                 KERNEL_FILL_NORMAL, 8, &sum));
    CHECK_OK(device_testing_run(place, device_kernel(place->face, &there), &there,
                                kernel_trial_call(maker), DEVICE_ONCE));
    void *summand;
    memcpy(&summand, &kernel_trial_call(sum)->in[0],
           sizeof summand); /* the trial's own buffer */
    memcpy(summand, kernel_trial_call(maker)->out[0], bytes_of(&problem.out[0]));
    CHECK_OK(device_testing_run(place, device_kernel(place->face, &sums_there), &sums_there,
                                kernel_trial_call(sum), DEVICE_ONCE));
    if (memcmp(kernel_trial_call(maker)->out[problem.n_out - 1], kernel_trial_call(sum)->out[0],
               bytes_of(&sums.out[0])) != 0)
        complain(&problem, "sums in another order");
    kernel_trial_destroy(sum);
    kernel_trial_destroy(maker);
}

static void sums_over_rows_have_one_order(void)
{
    static const char *const texts[] = {
        "layer_norm_grad 700x384 700x384 384 700x2 700x384 -> 700x384 384 384 384",
        "layer_norm_grad 16384x96 16384x96 96 16384x2 -> 16384x96 96 96 96",
        "layer_norm_grad 40001x64 40001x64 64 40001x2 -> 40001x64 64 64 64",
        "layer_norm_grad 3000x30 3000x30 30 3000x2 -> 3000x30 30 30 30",
        "linear_grad_through 9000x96 96x320 9000x320 -> 9000x320 320 gelu_tanh",
        "linear_grad_through 700x33 33x257 700x257 -> 700x257 257 gelu_tanh",
        "linear_grad_through 40000x16 16x1024 40000x1024 -> 40000x1024 1024 gelu_tanh"
    };
    static const enum dtype dtypes[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };
    const struct device_place *place = gpu();

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++)
            check_order(place, texts[i], dtypes[k]);
    }
    check_none_bad();
}

static void copy_number(void *to, const void *from, const struct kernel_tensor *tensor)
{
    memcpy(to, from, bytes_of(tensor));
}

/* A layer's gradient through an activation has the bits of the two ops, which a cut may keep apart. */
static void check_apart(const struct device_place *place, const char *text, enum dtype dtype)
{
    struct kernel_problem whole, product, slope, there[3];
    struct kernel_trial *trials[3];
    const char *op = strstr(text, "relu") ? "relu_grad" : "gelu_tanh_grad";

    CHECK_OK(kernel_parse(text, &whole));
    product = (struct kernel_problem){ .op = "linear_grad_input", .n_in = 2, .n_out = 1 };
    slope = (struct kernel_problem){ .op = op, .n_in = 2, .n_out = 1 };
    product.in[0] = whole.in[0];
    product.in[1] = whole.in[1];
    slope.in[0] = product.out[0] = slope.out[0] = whole.out[0];
    slope.in[1] = whole.in[2];
    const struct kernel_problem *const problems[] = { &whole, &product, &slope };
    for (int i = 0; i < 3; i++) {
        there[i] = *problems[i];
        if (kernel_is_half(dtype))
            kernel_narrow(&there[i], dtype);
        CHECK_OK(kernel_trial_create(kernel_find(problems[i]->op, "reference"), problems[i],
                                     KERNEL_FILL_NORMAL, (uint64_t)i, &trials[i]));
    }
    const struct kernel_call *const one = kernel_trial_call(trials[0]);
    const struct kernel_call *const made = kernel_trial_call(trials[1]);
    const struct kernel_call *const two = kernel_trial_call(trials[2]);
    for (int i = 0; i < 2; i++)
        copy_number((void *)(uintptr_t)made->in[i], one->in[i], &product.in[i]);
    copy_number((void *)(uintptr_t)two->in[1], one->in[2], &slope.in[1]);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(device_testing_run(place, device_kernel(place->face, &there[i]), &there[i],
                                    kernel_trial_call(trials[i]), DEVICE_ONCE));
        if (i == 1)
            copy_number((void *)(uintptr_t)two->in[0], made->out[0], &slope.in[0]);
    }
    if (memcmp(one->out[0], two->out[0], bytes_of(&whole.out[0])) != 0)
        complain(&whole, "other bits than by two ops");
    for (int i = 0; i < 3; i++)
        kernel_trial_destroy(trials[i]);
}

static void gradients_through_activations_are_those_of_two_ops(void)
{
    static const char *const texts[] = {
        "linear_grad_through 128x64 64x256 128x256 -> 128x256 256 gelu_tanh",
        "linear_grad_through 700x33 33x257 700x257 -> 700x257 gelu_tanh",
        "linear_grad_through 8192x512 512x2048 8192x2048 -> 8192x2048 2048 gelu_tanh",
        "linear_grad_through 64x10 10x500 64x500 -> 64x500 relu",
        "linear_grad_through 512x250 250x500 512x500 -> 512x500 relu",
        "linear_grad_through 8192x512 512x2048 8192x2048 -> 8192x2048 relu",
        "linear_grad_through 4096x99 99x1001 4096x1001 -> 4096x1001 relu",
    };
    static const enum dtype dtypes[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };
    const struct device_place *place = gpu();

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++)
            check_apart(place, texts[i], dtypes[k]);
    }
    check_none_bad();
}

/* Loss, accuracy and gradient of classes in one op have the bits of the three. */
static void check_classes(const struct device_place *place, const char *text, enum dtype dtype)
{
    enum { WHOLE, LOSS, RIGHT, SLOPE, N };
    struct kernel_problem problems[N], there[N];
    struct kernel_trial *trials[N];
    const struct kernel_call *calls[N];

    CHECK_OK(kernel_parse(text, &problems[WHOLE]));
    struct kernel_problem *whole = &problems[WHOLE];
    const struct kernel_tensor *logits = &whole->in[0], *labels = &whole->in[1];
    whole->attrs.smoothing = 0.1F;
    problems[LOSS] = (struct kernel_problem){ .op = "softmax_cross_entropy",
                                              .n_in = 2,
                                              .n_out = 2,
                                              .in = { *logits, *labels },
                                              .out = { whole->out[0], *logits },
                                              .attrs = whole->attrs };
    problems[RIGHT] = (struct kernel_problem){ .op = "accuracy",
                                               .n_in = 2,
                                               .n_out = 1,
                                               .in = { *logits, *labels },
                                               .out = { whole->out[1] } };
    problems[SLOPE] = (struct kernel_problem){ .op = "softmax_cross_entropy_grad",
                                               .n_in = 2,
                                               .n_out = 1,
                                               .in = { *logits, *labels },
                                               .out = { *logits },
                                               .attrs = whole->attrs };
    for (int i = 0; i < N; i++) {
        there[i] = problems[i];
        if (kernel_is_half(dtype))
            kernel_narrow(&there[i], dtype);
        CHECK_OK(kernel_trial_create(kernel_find(problems[i].op, "reference"), &problems[i],
                                     KERNEL_FILL_NORMAL, 5, &trials[i]));
        calls[i] = kernel_trial_call(trials[i]);
        if (i > WHOLE)
            copy_number((void *)(uintptr_t)calls[i]->in[1], calls[WHOLE]->in[1], labels);
        if (i > WHOLE)
            copy_number((void *)(uintptr_t)calls[i]->in[0],
                        i == SLOPE ? calls[LOSS]->out[1] : calls[WHOLE]->in[0], logits);
        struct kernel_call call = *calls[i];
        call.step = calls[WHOLE]->step;
        CHECK_OK(device_testing_run(place, device_kernel(place->face, &there[i]), &there[i],
                                    &call, DEVICE_ONCE));
    }
    if (memcmp(calls[WHOLE]->out[0], calls[LOSS]->out[0], sizeof(float)) != 0 ||
        memcmp(calls[WHOLE]->out[1], calls[RIGHT]->out[0], sizeof(float)) != 0 ||
        memcmp(calls[WHOLE]->out[2], calls[SLOPE]->out[0], bytes_of(logits)) != 0)
        complain(whole, "other bits than by three ops");
    for (int i = 0; i < N; i++)
        kernel_trial_destroy(trials[i]);
}

static void check_losses(const struct device_place *place, int n_dtypes)
{
    static const char *const texts[] = { "softmax_loss 64x10 64", "softmax_loss 512x10 512",
                                         "softmax_loss 7x3 7", "softmax_loss 3000x100 3000" };
    static const enum dtype dtypes[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (int k = 0; k < n_dtypes; k++)
            check_classes(place, texts[i], dtypes[k]);
    }
    check_none_bad();
}

static void losses_in_one_are_those_of_three_ops(void)
{
    struct device_place place;

    CHECK_OK(device_place_open("cpu", &place));
    check_losses(&place, 1);
    device_place_close(&place);
}

static void losses_in_one_are_those_of_three_ops_on_the_gpu(void)
{
    check_losses(gpu(), 3);
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
        check_rows(gpu(), of_tiles[i]);
    check_none_bad();
}

/* Statistics that a convolution gives of what it makes are those of a norm by itself, which a cut may keep apart. */
static void check_stats(const struct device_place *place, const char *conv, const char *norm)
{
    const char *const texts[] = { conv, norm };
    struct kernel_problem problems[2], there[2];
    struct kernel_trial *trials[2];
    struct kernel_call calls[2];

    for (int i = 0; i < 2; i++) {
        CHECK_OK(kernel_parse(texts[i], &problems[i]));
        problems[i].attrs.epsilon = 1e-5F;
        there[i] = problems[i];
        kernel_as_bf16(&there[i]);
        CHECK_OK(kernel_trial_create(kernel_find(problems[i].op, "reference"), &problems[i],
                                     KERNEL_FILL_NORMAL, 5, &trials[i]));
        calls[i] = *kernel_trial_call(trials[i]);
        calls[i].step = calls[0].step;
        if (i == 1)
            copy_number((void *)(uintptr_t)calls[1].in[0], calls[0].out[0], &problems[1].in[0]);
        CHECK_OK(device_testing_run(place, device_kernel(place->face, &there[i]), &there[i],
                                    &calls[i], DEVICE_ONCE));
    }
    for (int i = 1; i < problems[0].n_out; i++) {
        if (memcmp(calls[0].out[i], calls[1].out[i], bytes_of(&problems[0].out[i])) != 0)
            complain(&problems[0], "other statistics than a norm's in output %d", i);
    }
    for (int i = 0; i < 2; i++)
        kernel_trial_destroy(trials[i]);
}

static void statistics_are_those_of_a_norm(void)
{
    static const char *const texts[][2] = {
        { "conv2d_stats 150x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
          "batch_norm 150x64x32x32 64 64" },
        { "conv2d_stats 3x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
          "batch_norm 3x64x32x32 64 64" },
        { "conv2d_stats 150x128x16x16 128x128x3x3 stride 1x1 pad 1x1",
          "batch_norm 150x128x16x16 128 128" },
        { "conv2d_stats 3x128x16x16 128x128x3x3 stride 1x1 pad 1x1",
          "batch_norm 3x128x16x16 128 128" },
        { "conv2d_stats 20x24x17x17 144x24x1x1 stride 1x1", "batch_norm 20x144x17x17 144 144" },
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        check_stats(gpu(), texts[i][0], texts[i][1]);
    check_none_bad();
}

/* Attention of whole and broken tiles of 64 tokens (attention_hopper.cu), and of more heads than a GPU works at. */
static const char *const of_short_sequences[] = {
    "attention 2x256x384 heads 2 causal",   "attention 3x129x144 heads 1 causal",
    "attention 2x65x384 heads 2 causal",    "attention 5x128x384 heads 2 causal",
    "attention 2x193x360 heads 3 causal",   "attention 3x70x336 heads 2 causal",
    "attention 60x200x1152 heads 6 causal",
};
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
    const struct device_place *place = gpu();

    for (size_t i = 0; i < count; i++) {
        struct kernel_problem problem, there;
        CHECK_OK(kernel_parse(problems[i], &problem));
        there = problem;
        kernel_as_bf16(&there);
        compare(place, &problem, &there, KERNEL_FILL_NORMAL, mixed_tolerance(&problem), i);
    }
    check_none_bad();
}

static void engines_of_the_table_agree(void)
{
    agree_in_bf16(of_table, sizeof of_table / sizeof of_table[0]);
}

static void attention_agrees_over_short_sequences(void)
{
    agree_in_bf16(of_short_sequences, sizeof of_short_sequences / sizeof of_short_sequences[0]);
}

/* All rows, whichever is taken. */
static void gradients_agree_over_short_sequences(void)
{
    const size_t count = sizeof of_their_gradients / sizeof of_their_gradients[0];

    agree_in_bf16(of_their_gradients, count);
    for (size_t i = 0; i < count; i++)
        check_rows(gpu(), of_their_gradients[i]);
    for (size_t i = 0; i < sizeof of_many_heads / sizeof of_many_heads[0]; i++)
        check_rows(gpu(), of_many_heads[i]);
    check_none_bad();
}

/* Over all words the mean of what is drawn is the number itself. */
static void what_is_drawn_is_right_in_the_mean(struct rng *rng)
{
    const float x = (rng_float(rng) - 0.5F) * ldexpf(1, (int)rng_below(rng, 40) - 20);
    const float near = kernel_from_bf16(kernel_to_bf16(x));
    const uint64_t seed = rng_u64(rng), step = rng_u64(rng), element = rng_u64(rng);
    double sum = 0;

    for (uint32_t word = 0; word < 65536; word++) {
        const float drawn = kernel_draw_bf16(x, word << 16 | rng_u32(rng) >> 16);
        CHECK(kernel_from_bf16(kernel_to_bf16(drawn)) == drawn);
        CHECK(fabs((double)drawn - (double)x) <= fabs((double)x) / 128);
        CHECK(kernel_draw_bf16(near, word << 16) == near);
        sum += (double)drawn;
    }
    CHECK(sum / 65536 == (double)x);
    CHECK(isinf(kernel_draw_bf16(INFINITY, UINT32_MAX)));
    CHECK(isnan(kernel_draw_bf16(NAN, UINT32_MAX)));
    const uint32_t word = kernel_rounding_word(seed, step, 3, element);
    CHECK(word == kernel_rounding_word(seed, step, 3, element));
    CHECK(word != kernel_rounding_word(seed + 1, step, 3, element));
    CHECK(word != kernel_rounding_word(seed, step + 1, 3, element));
    CHECK(word != kernel_rounding_word(seed, step, 4, element));
    CHECK(word != kernel_rounding_word(seed, step, 3, element + 1));
}

/* What is bf16 and what is not, of some ops. */
static void mixed_precision_keeps_sums_wide(void)
{
    struct kernel_problem p;

    CHECK_OK(kernel_parse("linear_grad_weight 64x784 64x250 -> 250x784 250", &p));
    kernel_as_bf16(&p);
    CHECK(p.in[0].dtype == DTYPE_BF16 && p.in[1].dtype == DTYPE_BF16);
    CHECK(p.out[0].dtype == DTYPE_F32 && p.out[1].dtype == DTYPE_F32);
    CHECK_OK(kernel_parse("batch_norm 16x24x33x31 24 24 relu6", &p));
    kernel_as_bf16(&p);
    CHECK(p.in[0].dtype == DTYPE_BF16 && p.in[1].dtype == DTYPE_F32);
    CHECK(p.out[0].dtype == DTYPE_BF16 && p.out[1].dtype == DTYPE_F32);
    CHECK_OK(kernel_parse("gru 33x7x195 195x65 195 33x7 33x65", &p));
    kernel_as_bf16(&p);
    CHECK(p.in[0].dtype == DTYPE_F32 && p.in[3].dtype == DTYPE_I32);
    CHECK(kernel_from_bf16(kernel_to_bf16(1.00390625F)) == 1); /* a tie, to even */
    CHECK(kernel_from_bf16(kernel_to_bf16(-3.5F)) == -3.5F);
    CHECK(isnan(kernel_from_bf16(kernel_to_bf16(NAN))));
    CHECK(isinf(kernel_from_bf16(kernel_to_bf16(INFINITY))));
    CHECK_OK(kernel_parse("linear 64x784 250x784 250 relu", &p));
    kernel_narrow(&p, DTYPE_F16);
    CHECK(p.in[0].dtype == DTYPE_F16 && p.in[2].dtype == DTYPE_F16);
    CHECK(p.out[0].dtype == DTYPE_F16);
}

/* f16: ties to even, what is too large or too small, and every number of it comes back. */
static void numbers_are_rounded_to_f16(void)
{
    static const struct {
        float from, to;
    } cases[] = {
        { 1 + 0x1p-11F, 1 },        { 1 + 0x3p-11F, 1 + 0x1p-9F },
        { -2048.5F, -2048 },        { 65519.996F, 65504 },
        { 65520, INFINITY },        { -INFINITY, -INFINITY },
        { 0x1p-24F, 0x1p-24F },     { 0x1p-25F, 0 },
        { 0x1.8p-25F, 0x1p-24F },   { 0x1.ff8p-15F, 0x1.ff8p-15F },
        { 0x1.ffcp-15F, 0x1p-14F },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(kernel_from_f16(kernel_to_f16(cases[i].from)) == cases[i].to);
    CHECK(isnan(kernel_from_f16(kernel_to_f16(NAN))));
    CHECK(signbit(kernel_from_f16(kernel_to_f16(-0.0F))));
    for (int i = 0; i <= UINT16_MAX; i++) {
        const float number = kernel_from_f16((uint16_t)i);
        if (!isnan(number))
            CHECK_INT(i, kernel_to_f16(number));
    }
}

/* Losses are scaled, and gradients taken back, on both; a sum that is not finite halves the scale and skips the step. */
static void check_scaling(struct rng *rng, const struct device_place *place)
{
    enum { SQUARES = 9, STEPS = 3 };
    static struct {
        struct device_scaling scaling;
        struct kernel_step steps[STEPS], scaled[STEPS];
        struct kernel_update_step numbers;
        double squares[SQUARES];
    } n, *there;
    const struct device_memory_ops *memory = place->face->memory;
    const float scale = ldexpf(1, (int)rng_below(rng, 20));
    const bool is_last = rng_below(rng, 2), is_finite = rng_below(rng, 3) > 0;
    const float max_norm = rng_below(rng, 2) ? 0.5F : 0;
    double sum = 0;

    memset(&n, 0, sizeof n);
    n.scaling = (struct device_scaling){ scale, is_last ? DEVICE_SCALE_STEPS - 1 : 5, 3 };
    n.numbers = (struct kernel_update_step){ .lr = 0.5F, .scale = 1, .trust = 1 };
    for (int i = 0; i < STEPS; i++)
        n.steps[i] = (struct kernel_step){ .seed = 4, .inv_batch = 0.125F };
    for (int i = 0; i < SQUARES; i++)
        sum += n.squares[i] = (double)rng_float(rng) * (double)scale * (double)scale;
    if (!is_finite)
        n.squares[rng_below(rng, SQUARES)] = rng_below(rng, 2) ? (double)NAN : (double)INFINITY;
    CHECK_OK(memory->create(place->device, sizeof *there, (void **)&there));
    CHECK_OK(memory->copy(place->stream, there, &n, sizeof n));
    place->face->scale_losses(place->stream, &there->scaling, there->steps, STEPS,
                              there->scaled);
    place->face->unscale(place->stream,
                         &(struct joint_parts){ .of = { there->squares }, .count = 1 }, SQUARES,
                         max_norm, &there->scaling, &there->numbers);
    CHECK_OK(memory->copy(place->stream, &n, there, sizeof n));
    CHECK_OK(place->face->stream->wait(place->stream));
    memory->destroy(place->device, there);

    CHECK(n.scaled[STEPS - 1].inv_batch == scale / 8 && n.scaled[STEPS - 1].seed == 4);
    CHECK(kernel_inv_batch(&n.scaled[0]) == 0.125 && kernel_inv_batch(&n.steps[0]) == 0.125);
    CHECK_INT(!is_finite, n.numbers.skips);
    CHECK_INT(is_finite ? 3 : 4, n.scaling.skipped);
    CHECK_INT(is_finite && !is_last ? 6 : 0, n.scaling.good);
    CHECK(n.scaling.scale == (!is_finite ? (scale > 1 ? scale / 2 : 1)
                              : is_last  ? 2 * scale
                                         : scale));
    const double norm = sqrt(sum) / (double)scale;
    const double factor = max_norm > 0 ? fmin(1, (double)max_norm / (norm + 1e-6)) : 1;
    if (is_finite)
        CHECK_CLOSE(factor / (double)scale, (double)n.numbers.scale, 1e-6 / (double)scale);
}

static void losses_are_scaled(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_scaling(rng, &cpu);
    device_place_close(&cpu);
}

static void losses_are_scaled_on_the_gpu(struct rng *rng)
{
    check_scaling(rng, gpu());
}

static void devices_agree_on_large_problems(void)
{
    const struct device_place *place = gpu();

    for (size_t i = 0; kernel_testing_large[i]; i++) {
        struct kernel_problem problem;
        CHECK_OK(kernel_parse(kernel_testing_large[i], &problem));
        if (strcmp(problem.op, "dropout") == 0)
            problem.attrs.rate = 0.5F;
        compare(place, &problem, &problem, KERNEL_FILL_NORMAL,
                kernel_testing_tolerance(&problem), i);
    }
    check_none_bad();
}

/* Updates ------------------------------------------------------------------------------ */

enum { PARAMETERS = 5, RANGE_AT = 11 };

struct vectors {
    float param[COUNT], grad[COUNT], state[DEVICE_STATES][COUNT], out[COUNT];
    uint16_t half[COUNT];
    struct device_origin origins[PARAMETERS];
};

static void fill(struct vectors *v, struct rng *rng)
{
    for (int i = 0; i < COUNT; i++) {
        v->param[i] = rng_float(rng) - 0.5F;
        v->grad[i] = rng_float(rng) - 0.5F;
        v->state[0][i] = rng_float(rng) - 0.5F;
        v->state[1][i] = rng_float(rng);
        v->out[i] = 0;
        v->half[i] = 0;
    }
    memset(v->origins, 0, sizeof v->origins); /* also what is between its members */
    for (int p = 0; p < PARAMETERS; p++) { /* one begins before the range, some may behind it */
        v->origins[p].at = p == 0 ? 7 : v->origins[p - 1].at + 1 + rng_below(rng, COUNT / 2);
        v->origins[p].parameter = (uint32_t)rng_below(rng, 1000);
    }
}

static struct device_range range_of(struct vectors *v, size_t count)
{
    return (struct device_range){ .param = v->param,
                                  .grad = v->grad,
                                  .state = { v->state[0], v->state[1] },
                                  .out = v->out,
                                  .half = v->half,
                                  .count = count,
                                  .at = RANGE_AT,
                                  .origins = v->origins,
                                  .n_origins = PARAMETERS };
}

static void draw_step(struct rng *rng, struct attrs *attrs, struct kernel_update_step *step)
{
    *attrs = (struct attrs){ .momentum = rng_below(rng, 2) ? rng_float(rng) : 0,
                             .weight_decay = rng_float(rng) / 100,
                             .beta1 = 0.9F,
                             .beta2 = 0.999F,
                             .epsilon = 1e-8F,
                             .nesterov = (int)rng_below(rng, 2),
                             .decoupled = (int)rng_below(rng, 2) };
    *step = (struct kernel_update_step){ .lr = rng_float(rng) / 10,
                                         .scale = rng_below(rng, 2) ? 1 : rng_float(rng),
                                         .correction1 = 1 + rng_float(rng),
                                         .correction2 = 1 + rng_float(rng),
                                         .first = (int)rng_below(rng, 2),
                                         .trust = rng_float(rng),
                                         .draws = (int)rng_below(rng, 2),
                                         .seed = rng_u64(rng),
                                         .number = rng_u64(rng) };
}

/* Runs an update in the device's memory and brings the vectors back. */
static void update_there(const struct device_place *place, const char *op, struct vectors *v,
                         size_t count, const struct attrs *attrs,
                         const struct kernel_update_step *step, const uint8_t *marks,
                         size_t width)
{
    const struct device_memory_ops *memory = place->face->memory;
    struct vectors *there;
    struct kernel_update_step *step_there;

    CHECK_OK(memory->create(place->device, sizeof *there, (void **)&there));
    CHECK_OK(memory->create(place->device, sizeof *step, (void **)&step_there));
    CHECK_OK(memory->copy(place->stream, there, v, sizeof *v));
    CHECK_OK(memory->copy(place->stream, step_there, step, sizeof *step));
    const struct device_range range = {
        (float *)((char *)there + offsetof(struct vectors, param)),
        (float *)((char *)there + offsetof(struct vectors, grad)),
        { (float *)((char *)there + offsetof(struct vectors, state)),
          (float *)((char *)there + offsetof(struct vectors, state)) + COUNT },
        (float *)((char *)there + offsetof(struct vectors, out)),
        (uint16_t *)((char *)there + offsetof(struct vectors, half)),
        DTYPE_BF16,
        count,
        marks,
        width,
        RANGE_AT,
        (const struct device_origin *)((char *)there + offsetof(struct vectors, origins)),
        PARAMETERS,
    };
    device_update(place->face, op)->run(place->stream, &range, attrs, step_there);
    CHECK_OK(memory->copy(place->stream, v, there, sizeof *v));
    CHECK_OK(place->face->stream->wait(place->stream));
    memory->destroy(place->device, step_there);
    memory->destroy(place->device, there);
}

/* The same bits as the CPU's: updates are elementwise, without a sum. */
static void updates_have_the_bits_of_the_cpu(struct rng *rng)
{
    const struct device_place *place = gpu();
    const struct device_face *cpu;
    static struct vectors expected, actual;
    struct kernel_update_step step;
    struct attrs attrs;

    CHECK_OK(device_find("cpu", &cpu));
    for (size_t i = 0; i < sizeof update_ops / sizeof update_ops[0]; i++) {
        const size_t count = 1 + rng_below(rng, COUNT);
        fill(&expected, rng);
        actual = expected;
        draw_step(rng, &attrs, &step);
        const struct device_range range = range_of(&expected, count);
        device_update(cpu, update_ops[i])->run(NULL, &range, &attrs, &step);
        update_there(place, update_ops[i], &actual, count, &attrs, &step, NULL, 0);
        if (memcmp(&expected, &actual, sizeof expected) != 0)
            test_fail(__FILE__, __LINE__, "%s has other bits than on the cpu", update_ops[i]);
    }
}

static void sums_and_conversions_agree(struct rng *rng)
{
    const struct device_place *place = gpu();
    const struct device_memory_ops *memory = place->face->memory;
    const size_t count = 1 + rng_below(rng, 100000);
    float *data, *back, *data_there;
    double *sum_there, sums[2];
    void *scratch, *half;

    CHECK_OK(mem_alloc(count, sizeof *data, &data));
    CHECK_OK(mem_alloc(count, sizeof *back, &back));
    CHECK_OK(memory->create(place->device, count * sizeof(uint16_t), &half));
    for (size_t i = 0; i < count; i++)
        data[i] = rng_float(rng) - 0.5F;
    CHECK_OK(memory->create(place->device, count * sizeof *data, (void **)&data_there));
    CHECK_OK(memory->create(place->device, sizeof *sum_there, (void **)&sum_there));
    CHECK_OK(memory->create(place->device, place->face->sum_squares_bytes(count), &scratch));
    CHECK_OK(memory->copy(place->stream, data_there, data, count * sizeof *data));
    for (int i = 0; i < 2; i++) {
        place->face->sum_squares(place->stream, data_there, count, sum_there, scratch);
        CHECK_OK(memory->copy(place->stream, &sums[i], sum_there, sizeof sums[i]));
        CHECK_OK(place->face->stream->wait(place->stream));
    }
    CHECK_CLOSE(kernel_sum_squares(data, count), sums[0], 1e-12);
    CHECK(memcmp(&sums[0], &sums[1], sizeof sums[0]) == 0);
    place->face->add(place->stream, data_there, data_there, data_there, count);
    CHECK_OK(memory->copy(place->stream, data, data_there, count * sizeof *data));
    CHECK_OK(place->face->stream->wait(place->stream));
    CHECK_CLOSE(4 * sums[0], kernel_sum_squares(data, count), 1e-12);
    place->face->convert(place->stream, half, DTYPE_BF16, data_there, DTYPE_F32, count);
    place->face->convert(place->stream, data_there, DTYPE_F32, half, DTYPE_BF16, count);
    for (size_t i = 0; i < count; i++)
        data[i] = kernel_from_bf16(kernel_to_bf16(data[i]));
    CHECK_OK(memory->copy(place->stream, back, data_there, count * sizeof *back));
    CHECK_OK(place->face->stream->wait(place->stream));
    CHECK(memcmp(data, back, count * sizeof *data) == 0);
    memory->destroy(place->device, half);
    mem_free(back);
    memory->destroy(place->device, scratch);
    memory->destroy(place->device, sum_there);
    memory->destroy(place->device, data_there);
    mem_free(data);
}

/* The table ---------------------------------------------------------------------------- */

static void what_is_no_device_is_refused(void)
{
    const struct device_face *face;

    CHECK_STATUS(STATUS_USAGE, device_find("tpu", &face));
    CHECK_MESSAGE("unknown device tpu");
    CHECK_OK(device_find("cpu", &face));
    CHECK_TEXT("cpu", face->name);
}

static void a_plugin_that_is_not_there_is_named(void)
{
    const char *set = getenv("TUTTI_CUDA");
    char before[PATH_MAX] = "";
    const struct device_face *face;

    (void)snprintf(before, sizeof before, "%s", set ? set : "");
    CHECK(setenv("TUTTI_CUDA", "/nowhere/tutti-cuda.so", 1) == 0);
    CHECK_STATUS(STATUS_NOT_FOUND, device_find("cuda", &face));
    CHECK_MESSAGE("/nowhere/tutti-cuda.so");
    CHECK(setenv("TUTTI_CUDA", before, 1) == 0); /* empty: as if it were not set */
}

/* Numbers of a step by norms, and rows of a table: there, against plain sums here. */
struct by_norms {
    double params[COUNT], moves[COUNT];
    struct kernel_update_step numbers, trusted[COUNT];
    int32_t ids[COUNT];
    uint8_t marks[COUNT];
};

static void run_norms_and_marks(const struct device_place *place, struct by_norms *n,
                                const struct device_trust *trust, size_t count)
{
    const struct device_memory_ops *memory = place->face->memory;
    struct by_norms *there;

    CHECK_OK(memory->create(place->device, sizeof *there, (void **)&there));
    CHECK_OK(memory->copy(place->stream, there, n, sizeof *n));
    place->face->clip(place->stream,
                      &(struct joint_parts){ .of = { there->moves }, .count = 1 }, count, 0.5F,
                      &there->numbers);
    place->face->trust(place->stream, trust, there->params, there->moves, count,
                       &there->numbers, there->trusted);
    place->face->mark_rows(place->stream, there->ids, count, COUNT / 2, there->marks);
    CHECK_OK(memory->copy(place->stream, n, there, sizeof *n));
    CHECK_OK(place->face->stream->wait(place->stream));
    memory->destroy(place->device, there);
}

static void check_norms_and_marks(struct rng *rng, const struct device_place *place)
{
    static struct by_norms n;
    const size_t count = 1 + rng_below(rng, COUNT);
    const struct device_trust trust = { .coefficient = 0.25F,
                                        .weight_decay = rng_float(rng),
                                        .of_gradient = rng_below(rng, 2) };
    double all = 0;

    memset(&n, 0, sizeof n);
    n.numbers = (struct kernel_update_step){ .lr = 0.5F, .scale = 1, .trust = 1 };
    for (size_t i = 0; i < count; i++) {
        n.params[i] = rng_below(rng, 4) ? (double)rng_float(rng) : 0;
        n.moves[i] = rng_below(rng, 4) ? (double)rng_float(rng) : 0;
        n.ids[i] = (int32_t)rng_below(rng, COUNT) - 8;
        all += n.moves[i];
    }
    run_norms_and_marks(place, &n, &trust, count);
    const double scale = fmin(1, 0.5 / (sqrt(all) + 1e-6));
    CHECK_CLOSE(scale, (double)n.numbers.scale, 1e-6);
    for (size_t i = 0; i < count; i++) {
        const double weight = sqrt(n.params[i]);
        double move = sqrt(n.moves[i]) * (trust.of_gradient ? scale : 1);
        move += move > 0 ? (double)trust.weight_decay * weight : 0;
        CHECK_CLOSE(weight > 0 && move > 0 ? 0.25 * weight / move : 1,
                    (double)n.trusted[i].trust, 1e-5);
        CHECK(n.trusted[i].lr == 0.5F);
        if (n.ids[i] >= 0 && n.ids[i] < COUNT / 2)
            CHECK(n.marks[n.ids[i]] == 1);
    }
    int marked = 0, occur[COUNT] = { 0 };
    for (size_t i = 0; i < count; i++)
        if (n.ids[i] >= 0 && n.ids[i] < COUNT / 2)
            occur[n.ids[i]] = 1;
    for (int i = 0; i < COUNT; i++)
        marked += n.marks[i] - occur[i];
    CHECK_INT(0, marked);
}

static void norms_and_marks_are_plain_sums(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_norms_and_marks(rng, &cpu);
    device_place_close(&cpu);
}

static void the_gpu_agrees_on_norms_and_marks(struct rng *rng)
{
    check_norms_and_marks(rng, gpu());
}

/* Squares of a vector of parameters, the pieces of which belong to ranks by chance. */
enum { SQUARED = 7, SQUARED_RANKS = 3, SQUARED_PIECES = SQUARED * 4, SQUARED_MODEL = 40 };
struct squared {
    float data[SQUARED_PIECES * DEVICE_PIECE];
    struct device_piece pieces[SQUARED_RANKS][SQUARED_PIECES];
    struct device_squared params[SQUARED];
    double places[SQUARED_RANKS][SQUARED_PIECES], of_model[SQUARED_MODEL];
    struct kernel_update_step numbers;
};

static void run_squares(const struct device_place *place, struct squared *n,
                        const size_t count[SQUARED_RANKS])
{
    const struct device_memory_ops *memory = place->face->memory;
    struct squared *there;
    struct joint_parts places = { .count = SQUARED_RANKS };

    CHECK_OK(memory->create(place->device, sizeof *there, (void **)&there));
    CHECK_OK(memory->copy(place->stream, there, n, sizeof *n));
    for (int r = 0; r < SQUARED_RANKS; r++) {
        place->face->square_pieces(place->stream, there->data, there->pieces[r], count[r],
                                   there->places[r]);
        places.of[r] = there->places[r];
    }
    place->face->add_squares(place->stream, &places, there->params, SQUARED, there->of_model);
    place->face->clip(place->stream,
                      &(struct joint_parts){ .of = { there->of_model }, .count = 1 },
                      SQUARED_MODEL, 0.5F, &there->numbers);
    CHECK_OK(memory->copy(place->stream, n, there, sizeof *n));
    CHECK_OK(place->face->stream->wait(place->stream));
    memory->destroy(place->device, there);
}

static void check_squares(struct rng *rng, const struct device_place *place)
{
    static struct squared n;
    uint32_t lengths[SQUARED];
    double expected[SQUARED_MODEL] = { 0 }, all = 0, first[SQUARED_MODEL];

    for (int i = 0; i < SQUARED; i++)
        lengths[i] = 1 + (uint32_t)rng_below(rng, 4 * DEVICE_PIECE);
    for (int ranks = 1; ranks <= SQUARED_RANKS; ranks++) {
        size_t count[SQUARED_RANKS] = { 0 };
        uint32_t used = 0;

        memset(&n, 0, sizeof n);
        for (uint32_t i = 0; i < SQUARED; i++) {
            n.params[i] = (struct device_squared){
                .first = used,
                .count = (lengths[i] + DEVICE_PIECE - 1) / DEVICE_PIECE,
                .number = 3 * i + 1,
            };
            expected[3 * i + 1] = 0;
            for (uint32_t at = 0; at < lengths[i]; at += DEVICE_PIECE, used++) {
                const uint32_t left = lengths[i] - at;
                const size_t r = rng_below(rng, (uint64_t)ranks);
                const struct device_piece piece = { (uint64_t)used * DEVICE_PIECE,
                                                    left < DEVICE_PIECE ? left : DEVICE_PIECE,
                                                    used };
                n.pieces[r][count[r]++] = piece;
                for (uint32_t k = 0; k < piece.count; k++) {
                    const float x = (float)((k * 37 + i * 11 + at) % 101) / 64;
                    n.data[piece.at + k] = x;
                    expected[3 * i + 1] += (double)x * (double)x;
                }
            }
        }
        run_squares(place, &n, count);
        all = 0;
        for (int i = 0; i < SQUARED_MODEL; i++) {
            CHECK_CLOSE(expected[i], n.of_model[i], 1e-12 * (1 + expected[i]));
            all += n.of_model[i];
        }
        CHECK_CLOSE(fmin(1, 0.5 / (sqrt(all) + 1e-6)), (double)n.numbers.scale, 1e-6);
        if (ranks == 1)
            memcpy(first, n.of_model, sizeof first);
        CHECK(memcmp(first, n.of_model, sizeof first) == 0); /* whoever has which */
    }
}

static void squares_are_plain_sums(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_squares(rng, &cpu);
    device_place_close(&cpu);
}

static void the_gpu_agrees_on_squares(struct rng *rng)
{
    check_squares(rng, gpu());
}

/* Words that are handed over between streams; on a GPU whoever awaits may be first. */
static void check_words(struct rng *rng, const struct device_place *place)
{
    enum { WORDS = 5, MARKS = 300 };
    const struct device_face *face = place->face;
    const bool is_first = strcmp(face->name, "cpu") != 0 && rng_below(rng, 2);
    const size_t bytes = WORDS * sizeof(uint32_t) + 2 * MARKS;
    struct device_words words = { .count = WORDS };
    struct device_stream *other;
    struct device_handle handle;
    uint32_t *there, after[WORDS];
    uint8_t marks[2 * MARKS], joined[MARKS];

    CHECK_OK(face->stream->create(place->device, &other));
    CHECK_OK(face->share->create(place->device, bytes, (void **)&there, &handle));
    CHECK_OK(face->memory->fill(place->stream, there, 0, bytes));
    CHECK_OK(face->stream->wait(place->stream));
    for (int i = 0; i < WORDS; i++)
        words.word[i] = there + i;
    if (!is_first)
        face->share->signal(other, &words);
    face->share->await(place->stream, &words);
    if (is_first)
        face->share->signal(other, &words);
    CHECK_OK(face->stream->wait(place->stream));
    CHECK_OK(face->memory->copy(place->stream, after, there, sizeof after));
    CHECK_OK(face->stream->wait(place->stream));
    for (int i = 0; i < WORDS; i++)
        CHECK_INT(0, after[i]);
    uint8_t *marks_there = (uint8_t *)(there + WORDS);
    for (int i = 0; i < 2 * MARKS; i++)
        marks[i] = (uint8_t)rng_below(rng, 2);
    CHECK_OK(face->memory->copy(place->stream, marks_there, marks, sizeof marks));
    face->join_marks(place->stream, marks_there, marks_there, marks_there + MARKS, MARKS);
    CHECK_OK(face->memory->copy(place->stream, joined, marks_there, sizeof joined));
    CHECK_OK(face->stream->wait(place->stream));
    for (int i = 0; i < MARKS; i++)
        CHECK_INT(marks[i] | marks[MARKS + i], joined[i]);
    face->share->destroy(place->device, there);
    face->stream->destroy(other);
}

static void streams_hand_words_over(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_words(rng, &cpu);
    device_place_close(&cpu);
}

static void streams_hand_words_over_on_the_gpu(struct rng *rng)
{
    check_words(rng, gpu());
}

/* Rows without a mark stay as they are, of every vector. */
static void check_marked_rows(struct rng *rng, const struct device_place *place)
{
    enum { WIDTH = 5, ROWS = 12 };
    static struct vectors before, after;
    const struct device_memory_ops *memory = place->face->memory;
    uint8_t marks[ROWS], *marks_there;
    struct kernel_update_step step;
    struct attrs attrs;

    fill(&before, rng);
    after = before;
    draw_step(rng, &attrs, &step);
    for (int i = 0; i < ROWS; i++)
        marks[i] = (uint8_t)rng_below(rng, 2);
    CHECK_OK(memory->create(place->device, sizeof marks, (void **)&marks_there));
    CHECK_OK(memory->copy(place->stream, marks_there, marks, sizeof marks));
    update_there(place, "adam_update", &after, ROWS * WIDTH, &attrs, &step, marks_there, WIDTH);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const bool stays = after.param[i] == before.param[i] &&
                           after.state[0][i] == before.state[0][i] &&
                           after.state[1][i] == before.state[1][i];
        CHECK(stays == !marks[i / WIDTH]);
    }
    memory->destroy(place->device, marks_there);
}

static void rows_without_a_mark_stay(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_marked_rows(rng, &cpu);
    device_place_close(&cpu);
}

static void rows_without_a_mark_stay_on_the_gpu(struct rng *rng)
{
    check_marked_rows(rng, gpu());
}

/* Samples of images there, beside those that the CPU makes: looked up, so the same bits. */
static void samples_are_picked_alike_on_the_gpu(struct rng *rng)
{
    enum { IMAGES = 9, SIDE = 40, ROWS = 20 };
    static struct {
        uint8_t pixels[IMAGES * 3 * SIDE * SIDE];
        int32_t labels[IMAGES];
        float values[3 * DEVICE_BYTES];
        struct pick picks[ROWS];
        float x[ROWS * 3 * SIDE * SIDE];
        int32_t y[ROWS];
    } here, back, *there;
    const struct device_place *place = gpu();
    const struct device_memory_ops *memory = place->face->memory;
    struct device_images images = { .pixels = here.pixels,
                                    .labels = here.labels,
                                    .values = here.values,
                                    .channels = 1 + 2 * (int64_t)rng_below(rng, 2),
                                    .height = 1 + (int64_t)rng_below(rng, SIDE),
                                    .width = 1 + (int64_t)rng_below(rng, SIDE) };
    const size_t rows = 1 + rng_below(rng, ROWS);

    for (size_t i = 0; i < sizeof here.pixels; i++)
        here.pixels[i] = (uint8_t)rng_below(rng, DEVICE_BYTES);
    for (int i = 0; i < 3 * DEVICE_BYTES; i++)
        here.values[i] = rng_float(rng);
    for (int i = 0; i < IMAGES; i++)
        here.labels[i] = (int32_t)rng_below(rng, 1000);
    for (int i = 0; i < ROWS; i++)
        here.picks[i] = (struct pick){ .sample = (int32_t)rng_below(rng, IMAGES),
                                       .down = (int16_t)(rng_below(rng, 9) - 4),
                                       .right = (int16_t)(rng_below(rng, 9) - 4),
                                       .top = (int16_t)rng_below(rng, SIDE),
                                       .bottom = (int16_t)rng_below(rng, SIDE),
                                       .left = (int16_t)rng_below(rng, SIDE),
                                       .end = (int16_t)rng_below(rng, SIDE),
                                       .flip = (int16_t)rng_below(rng, 2) };
    memset(here.x, 0, sizeof here.x);
    memset(here.y, 0, sizeof here.y);
    CHECK_OK(memory->create(place->device, sizeof here, (void **)&there));
    CHECK_OK(memory->copy(place->stream, there, &here, sizeof here));
    device_pick_cpu(NULL, &images, here.picks, rows, here.x, here.y);
    images.pixels = there->pixels;
    images.labels = there->labels;
    images.values = there->values;
    place->face->pick(place->stream, &images, there->picks, rows, there->x, there->y);
    CHECK_OK(memory->copy(place->stream, &back, there, sizeof back));
    CHECK_OK(place->face->stream->wait(place->stream));
    CHECK(memcmp(&here, &back, sizeof here) == 0);
    memory->destroy(place->device, there);
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
    for (size_t i = 0; i < sizeof update_ops / sizeof update_ops[0]; i++)
        CHECK(device_update(face, update_ops[i]) != NULL);
    CHECK(device_update(face, "no_update") == NULL);
}

static void a_machine_without_a_gpu_says_so(void)
{
    const struct device_face *face;
    struct device *device;
    int count;

    if (device_load_cuda(&face) != STATUS_OK)
        test_skip(status_message());
    if (face->count(&count) == STATUS_OK) {
        CHECK(count > 0);
        CHECK_STATUS(STATUS_NOT_FOUND, face->open(count, &device));
        CHECK_MESSAGE("there is no device");
        return;
    }
    CHECK_MESSAGE("cuda: ");
    CHECK_STATUS(STATUS_UNSUPPORTED, device_find("cuda", &face));
}

static void memory_that_is_not_there_is_refused(void)
{
    const struct device_place *place = gpu();
    void *memory;

    CHECK_STATUS(STATUS_NO_MEMORY,
                 place->face->memory->create(place->device, (size_t)1 << 45, &memory));
    CHECK_MESSAGE("MiB are free");
    CHECK_OK(place->face->memory->create_host(place->device, 100, &memory));
    place->face->memory->destroy_host(place->device, memory);
}

const struct test tests[] = {
    { .name = "what is no device is refused", .run = what_is_no_device_is_refused },
    { .name = "a plug-in that is not there is named",
      .run = a_plugin_that_is_not_there_is_named },
    { .name = "every op has a row in the plug-in", .run = every_op_has_a_row_in_the_plugin },
    { .name = "a machine without a GPU says so", .run = a_machine_without_a_gpu_says_so },
    { .name = "the cpu is a device", .run = the_cpu_is_a_device },
    { .name = "memory that is not there is refused",
      .run = memory_that_is_not_there_is_refused },
    { .name = "what is drawn is right in the mean",
      .property = what_is_drawn_is_right_in_the_mean },
    { .name = "updates have the bits of the cpu",
      .property = updates_have_the_bits_of_the_cpu },
    { .name = "norms and marks are plain sums", .property = norms_and_marks_are_plain_sums },
    { .name = "the GPU agrees on norms and marks",
      .property = the_gpu_agrees_on_norms_and_marks },
    { .name = "streams hand words over", .property = streams_hand_words_over },
    { .name = "streams hand words over on the GPU",
      .property = streams_hand_words_over_on_the_gpu },
    { .name = "rows without a mark stay", .property = rows_without_a_mark_stay },
    { .name = "rows without a mark stay on the GPU",
      .property = rows_without_a_mark_stay_on_the_gpu },
    { .name = "samples are picked alike on the GPU",
      .property = samples_are_picked_alike_on_the_gpu },
    { .name = "numbers are rounded to f16", .run = numbers_are_rounded_to_f16 },
    { .name = "squares are plain sums", .property = squares_are_plain_sums },
    { .name = "the GPU agrees on squares", .property = the_gpu_agrees_on_squares },
    { .name = "losses are scaled", .property = losses_are_scaled },
    { .name = "losses are scaled on the GPU", .property = losses_are_scaled_on_the_gpu },
    { .name = "sums and conversions agree", .property = sums_and_conversions_agree },
    { .name = "devices agree on whole numbers", .property = devices_agree_on_whole_numbers },
    { .name = "devices agree on any numbers", .property = devices_agree_on_any_numbers },
    { .name = "mixed precision keeps sums wide", .run = mixed_precision_keeps_sums_wide },
    { .name = "mixed precision agrees to rounding",
      .property = mixed_precision_agrees_to_rounding },
    { .name = "large problems agree in mixed precision",
      .run = large_problems_agree_in_mixed_precision },
    { .name = "sums over rows have one order", .run = sums_over_rows_have_one_order },
    { .name = "gradients through activations are those of two ops",
      .run = gradients_through_activations_are_those_of_two_ops },
    { .name = "losses in one are those of three ops",
      .run = losses_in_one_are_those_of_three_ops },
    { .name = "losses in one are those of three ops on the GPU",
      .run = losses_in_one_are_those_of_three_ops_on_the_gpu },
    { .name = "engines of the table agree", .run = engines_of_the_table_agree },
    { .name = "attention agrees over short sequences",
      .run = attention_agrees_over_short_sequences },
    { .name = "gradients agree over short sequences",
      .run = gradients_agree_over_short_sequences },
    { .name = "rows of tiles agree", .run = rows_of_tiles_agree },
    { .name = "statistics are those of a norm", .run = statistics_are_those_of_a_norm },
    { .name = "devices agree on large problems", .run = devices_agree_on_large_problems },
    { 0 },
};
