/* SPDX-License-Identifier: MIT */
/* kernel_test.c - every kernel of the table solves random problems as the reference does.
 *
 * All tests walk the table, so a kernel added to it is tested without a line here.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/test.h"
#include "kernel/cpu/rows.h"
#include "kernel/kernel.h"
#include "kernel/kernel_testing.h"
#include "kernel/measure.h"

enum { POOLS = 3 };

/* i-th kernel that `op` has and that can run the problem; NULL past the last. */
static const struct kernel *next_kernel(const struct kernel_problem *problem, size_t *at)
{
    const struct kernel *kernel;

    while ((kernel = kernel_at((*at)++)) != NULL) {
        if (strcmp(kernel->op, problem->op) == 0 &&
            (kernel->can_run == NULL || kernel->can_run(problem)))
            return kernel;
    }
    return NULL;
}

/* Is this row the reference of its op? Walking these is walking the ops. */
static bool is_reference(const struct kernel *kernel)
{
    return strcmp(kernel->name, "reference") == 0;
}

static void run_with(struct kernel_trial *trial, struct pool *pool)
{
    kernel_trial_call(trial)->pool = pool;
    const uint64_t allocations = mem_count();
    kernel_trial_run(trial);
    if (pool == NULL)
        CHECK_INT(allocations, mem_count());
    CHECK_OK(kernel_trial_check(trial));
}

static struct kernel_trial *run_trial(const struct kernel *kernel,
                                      const struct kernel_problem *problem,
                                      enum kernel_fill fill, uint64_t seed)
{
    struct kernel_trial *trial;

    CHECK_OK(kernel_trial_create(kernel, problem, fill, seed, &trial));
    run_with(trial, NULL);
    return trial;
}

/* The same inputs as before. */
static struct kernel_trial *run_again(const struct kernel *kernel,
                                      const struct kernel_trial *before, struct pool *pool)
{
    struct kernel_trial *trial;

    CHECK_OK(kernel_trial_repeat(kernel, before, &trial));
    run_with(trial, pool);
    return trial;
}

static size_t bytes_of(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype);
}

/* The outputs of two trials of one problem are the same bytes. */
static void check_same_bytes(const char *what, const struct kernel *kernel,
                             const struct kernel_problem *problem, struct kernel_trial *a,
                             struct kernel_trial *b)
{
    char text[KERNEL_TEXT];

    for (int i = 0; i < problem->n_out; i++) {
        if (memcmp(kernel_trial_call(a)->out[i], kernel_trial_call(b)->out[i],
                   bytes_of(&problem->out[i])) != 0)
            test_fail(__FILE__, __LINE__, "%s changes output %d of %s: \"%s\"", what, i,
                      kernel->name, kernel_print(problem, text));
    }
}

/* Where sums may differ by rounding, so may the place of the largest of nearly equal ones. */
static void check_close(const struct kernel *kernel, const struct kernel_problem *problem,
                        struct kernel_trial *expected, struct kernel_trial *actual,
                        double tolerance)
{
    char text[KERNEL_TEXT];

    for (int i = 0; i < problem->n_out; i++) {
        const double difference = kernel_trial_difference(expected, actual, i);
        const bool bytes = problem->out[i].dtype != DTYPE_F32 && tolerance > 0;

        if (!(difference <= (bytes ? 0.01 : tolerance)))
            test_fail(__FILE__, __LINE__,
                      "%s differs from the reference by %g in output %d: \"%s\"", kernel->name,
                      difference, i, kernel_print(problem, text));
    }
}

/* One problem, all kernels. */
static void compare_kernels(const struct kernel *reference,
                            const struct kernel_problem *problem, uint64_t seed)
{
    struct kernel_trial *expected = run_trial(reference, problem, KERNEL_FILL_NORMAL, seed);
    const struct kernel *kernel;
    size_t at = 0;

    while ((kernel = next_kernel(problem, &at)) != NULL) {
        struct kernel_trial *actual = run_again(kernel, expected, NULL);
        check_close(kernel, problem, expected, actual, kernel_testing_tolerance(problem));
        kernel_trial_destroy(actual);
    }
    kernel_trial_destroy(expected);
}

/* On whole numbers, sums and products are exact, of bf16, too: all must agree exactly but what divides, and
 * so does Winograd's convolution. */
static void kernels_agree_on_whole_numbers(struct rng *rng)
{
    const struct kernel *reference, *kernel;

    for (size_t i = 0; (reference = kernel_at(i)) != NULL; i++) {
        struct kernel_problem problem;
        size_t at = 0;

        if (!is_reference(reference))
            continue;
        kernel_testing_problem(rng, reference->op, &problem);
        const bool divides = strcmp(reference->op, "softmax_cross_entropy") == 0 ||
                             strcmp(reference->op, "mse") == 0 ||
                             strcmp(reference->op, "sigmoid") == 0 ||
                             kernel_testing_is_smooth(reference->op) ||
                             strncmp(reference->op, "embedding_mean", 14) == 0 ||
                             strncmp(reference->op, "batch_norm", 10) == 0 ||
                             strncmp(reference->op, "token_cross", 11) == 0 ||
                             strncmp(reference->op, "norm_conv2d", 11) == 0 ||
                             strncmp(reference->op, "conv2d_stats", 12) == 0 ||
                             problem.attrs.activation == ACTIVATION_SIGMOID;
        const uint64_t seed = rng_u64(rng);
        struct kernel_trial *expected = run_trial(reference, &problem, KERNEL_FILL_WHOLE, seed);
        while ((kernel = next_kernel(&problem, &at)) != NULL) {
            if (strcmp(kernel->name, "winograd") == 0)
                continue;
            struct kernel_trial *actual = run_again(kernel, expected, NULL);
            check_close(kernel, &problem, expected, actual,
                        divides ? kernel_testing_tolerance(&problem) : 0);
            kernel_trial_destroy(actual);
        }
        kernel_trial_destroy(expected);
    }
}

static void kernels_agree_on_any_numbers(struct rng *rng)
{
    const struct kernel *reference;

    for (size_t i = 0; (reference = kernel_at(i)) != NULL; i++) {
        struct kernel_problem problem;

        if (!is_reference(reference))
            continue;
        kernel_testing_problem(rng, reference->op, &problem);
        compare_kernels(reference, &problem, rng_u64(rng));
    }
}

static struct pool *pools[POOLS + 1]; /* [n]: of n threads; [0] is NULL */

static void make_pools(void)
{
    for (int n = 1; n <= POOLS; n++)
        CHECK_OK(pool_create(n, &pools[n]));
}

static void drop_pools(void)
{
    for (int n = 1; n <= POOLS; n++)
        pool_destroy(pools[n]);
}

static void check_pools(const struct kernel_problem *problem, uint64_t seed)
{
    const struct kernel *kernel;
    size_t at = 0;

    while ((kernel = next_kernel(problem, &at)) != NULL) {
        if (is_reference(kernel)) /* knows no pool */
            continue;
        struct kernel_trial *alone = run_trial(kernel, problem, KERNEL_FILL_NORMAL, seed);
        for (int n = 1; n <= POOLS; n++) {
            struct kernel_trial *together = run_again(kernel, alone, pools[n]);
            check_same_bytes("a pool", kernel, problem, alone, together);
            kernel_trial_destroy(together);
        }
        kernel_trial_destroy(alone);
    }
}

static void pools_do_not_change_bits(void)
{
    make_pools();
    for (size_t i = 0; kernel_testing_large[i]; i++) {
        struct kernel_problem problem;

        CHECK_OK(kernel_parse(kernel_testing_large[i], &problem));
        if (strcmp(problem.op, "dropout") == 0)
            problem.attrs.rate = 0.5f;
        check_pools(&problem, i);
    }
    drop_pools();
}

#ifndef SMALL_REFERENCES_ALONE /* kernels run the same problems for pools */
static void large_problems_agree_with_the_reference(void)
{
    for (size_t i = 0; kernel_testing_large[i]; i++) {
        struct kernel_problem problem;

        CHECK_OK(kernel_parse(kernel_testing_large[i], &problem));
        compare_kernels(kernel_find(problem.op, "reference"), &problem, i);
    }
}
#endif

/* Where kernel.h allows it, an output may be input 0's buffer. */
static void elementwise_ops_run_in_place(struct rng *rng)
{
    static const char *const ops[] = { "bias",         "relu",
                                       "relu_grad",    "add",
                                       "dropout",      "relu6_grad",
                                       "sigmoid",      "sigmoid_grad",
                                       "relu6",        "token_cross_entropy_grad",
                                       "tanh",         "tanh_grad",
                                       "gelu",         "gelu_grad",
                                       "gelu_tanh",    "gelu_tanh_grad",
                                       "add_positions" };
    struct kernel_problem problem;
    const struct kernel *kernel;
    size_t at = 0;

    kernel_testing_problem(rng, ops[rng_below(rng, sizeof ops / sizeof ops[0])], &problem);
    const uint64_t seed = rng_u64(rng);
    while ((kernel = next_kernel(&problem, &at)) != NULL) {
        struct kernel_trial *apart = run_trial(kernel, &problem, KERNEL_FILL_NORMAL, seed);
        struct kernel_trial *in_place;

        CHECK_OK(kernel_trial_create(kernel, &problem, KERNEL_FILL_NORMAL, seed, &in_place));
        struct kernel_call *call = kernel_trial_call(in_place);
        memcpy(call->out[0], call->in[0], bytes_of(&problem.in[0]));
        call->in[0] = call->out[0];
        kernel_trial_run(in_place);
        CHECK_OK(kernel_trial_check(in_place));
        check_same_bytes("the place", kernel, &problem, apart, in_place);
        kernel_trial_destroy(in_place);
        kernel_trial_destroy(apart);
    }
}

/* A run leaves nothing behind that changes the next. */
static void a_second_run_gives_the_same_bits(struct rng *rng)
{
    const struct kernel *kernel;

    for (size_t i = 0; (kernel = kernel_at(i)) != NULL; i++) {
        struct kernel_problem problem;

        kernel_testing_problem(rng, kernel->op, &problem);
        if (kernel->can_run != NULL && !kernel->can_run(&problem))
            continue;
        const uint64_t seed = rng_u64(rng);
        struct kernel_trial *once = run_trial(kernel, &problem, KERNEL_FILL_NORMAL, seed);
        struct kernel_trial *twice = run_trial(kernel, &problem, KERNEL_FILL_NORMAL, seed);
        kernel_trial_run(twice);
        check_same_bytes("a second run", kernel, &problem, once, twice);
        kernel_trial_destroy(twice);
        kernel_trial_destroy(once);
    }
}

/* simd.h promises it: vectors, lanes and tails are the same arithmetic everywhere. */
static void own_kernels_give_the_same_bits_on_every_processor(struct rng *rng)
{
    static const struct kernel *const generic[] = {
        kernel_elementwise_rows_generic, kernel_dropout_rows_generic,
        kernel_reorder_rows_generic,     kernel_pool_rows_generic,
        kernel_loss_rows_generic,        kernel_batch_norm_rows_generic,
        kernel_gelu_rows_generic,        kernel_layer_norm_rows_generic,
        kernel_positions_rows_generic,   kernel_attention_step_rows_generic,
        kernel_embedding_rows_generic,   kernel_sequence_rows_generic,
    };

    for (size_t i = 0; i < sizeof generic / sizeof generic[0]; i++) {
        for (const struct kernel *row = generic[i]; row->op != NULL; row++) {
            const struct kernel *kernel = kernel_find(row->op, "own");
            struct kernel_problem problem;

            kernel_testing_problem(rng, row->op, &problem);
            if (row->can_run != NULL && !row->can_run(&problem))
                continue;
            const uint64_t seed = rng_u64(rng);
            struct kernel_trial *here = run_trial(kernel, &problem, KERNEL_FILL_NORMAL, seed);
            struct kernel_trial *there = run_trial(row, &problem, KERNEL_FILL_NORMAL, seed);
            check_same_bytes("the processor", row, &problem, here, there);
            kernel_trial_destroy(there);
            kernel_trial_destroy(here);
        }
    }
}

static void printed_problems_parse_to_themselves(struct rng *rng)
{
    const struct kernel *kernel;

    for (size_t i = 0; (kernel = kernel_at(i)) != NULL; i++) {
        struct kernel_problem problem, parsed;
        char text[KERNEL_TEXT], again[KERNEL_TEXT];

        kernel_testing_problem(rng, kernel->op, &problem);
        CHECK_OK(kernel_check(&problem));
        CHECK_OK(kernel_parse(kernel_print(&problem, text), &parsed));
        CHECK_TEXT(text, kernel_print(&parsed, again));
        CHECK_INT(problem.n_out, parsed.n_out);
        for (int o = 0; o < problem.n_out; o++) {
            CHECK(shape_equal(&problem.out[o].shape, &parsed.out[o].shape));
            CHECK(problem.out[o].layout == parsed.out[o].layout);
        }
        for (int a = 0; a < problem.n_in; a++)
            CHECK(problem.in[a].layout == parsed.in[a].layout);
    }
}

static void a_problem_prints_as_documented(void)
{
    struct kernel_problem problem = {
        .op = "linear",
        .n_in = 3,
        .n_out = 1,
        .in = { { DTYPE_F32, LAYOUT_PLAIN, shape_2(32, 784) },
                { DTYPE_F32, LAYOUT_IO, shape_2(250, 784) },
                { DTYPE_F32, LAYOUT_PLAIN, shape_1(250) } },
        .out = { { DTYPE_F32, LAYOUT_PLAIN, shape_2(32, 250) } },
        .attrs = { .activation = ACTIVATION_RELU },
    };
    char text[KERNEL_TEXT];

    CHECK_OK(kernel_check(&problem));
    CHECK_TEXT("linear 32x784 250x784 250 relu", kernel_print(&problem, text));
    problem.in[1].layout = LAYOUT_PLAIN;
    CHECK_OK(kernel_check(&problem));
    CHECK_TEXT("linear 32x784 250x784 250 plain relu", kernel_print(&problem, text));
    problem.in[1].layout = LAYOUT_HWIO;
    CHECK_STATUS(STATUS_USAGE, kernel_check(&problem));
    CHECK_MESSAGE("layout hwio instead of io");
}

static void illegal_problems_are_refused(void)
{
    static const char *const texts[] = {
        "",
        "linear",
        "linear 32x784",
        "linear 32x784 250x783",
        "linear 32x784 250x784 251",
        "linear 32x784 250x784 250 250",
        "linear 32x784x1 250x784",
        "linear 32x784 250x784 relu relu stride",
        "linear 32x784 250x784 tanh",
        "linear 32x784 250x784 ",
        "linear 32x784  250x784",
        "linear 32x 250x784",
        "linear 0x784 250x784",
        "linear 99999999999x784 250x784",
        "linear 999999999x999999999 999999999x999999999",
        "linear -1x784 250x784",
        "conv2d 1x1x4x4 1x1x5x5 stride 1x1",
        "conv2d 1x1x4x4 1x1x3x3",
        "conv2d 1x1x4x4 1x1x3x3 stride 1",
        "conv2d 1x1x4x4 1x1x3x3 stride 70000x1",
        "conv2d 1x4x4x4 4x1x3x3 stride 1x1 groups",
        "conv2d 1x4x4x4 4x1x3x3 stride 1x1 groups 2",
        "conv2d 1x4x4x4 6x1x3x3 stride 1x1 groups 4",
        "conv2d 1x4x4x4 4x4x3x3 stride 1x1 groups 0",
        "conv2d_pool 1x4x4x4 4x1x3x3 stride 1x1 window 2x2 groups 4",
        "conv2d_pool 1x4x4x4 4x4x3x3 stride 1x1 window 2x2 relu6",
        "linear 32x784 250x784 sigmoid",
        "linear 32x784 250x784 relu plain",
        "linear 32x784 250x784 plain plain",
        "conv2d 1x1x4x4 1x1x3x3 plain stride 1x1",
        "conv2d_transpose 1x2x4x4 2x3x3x3 stride 2x2 pad 1x1",
        "conv2d_transpose 1x2x4x4 2x3x3x3 stride 2x2 pad 1x1 extent 9x8",
        "conv2d_transpose 1x3x4x4 2x3x3x3 stride 2x2 pad 1x1 extent 8x8",
        "conv2d_transpose 1x2x4x4 2x3x3x3 2 stride 2x2 pad 1x1 extent 8x8",
        "conv2d_transpose 1x2x4x4 2x3x3x3 stride 2x2 pad 1x1 extent 8x8 groups 2",
        "conv2d_transpose_grad_input 1x3x8x8 2x3x3x3 -> 1x2x5x4 stride 2x2 pad 1x1",
        "conv2d_transpose_grad_weight 1x2x4x4 1x3x8x8 -> 2x3x3x3 2 stride 2x2 pad 1x1",
        "conv2d_grad_input 1x1x4x4 1x1x3x3 -> 1x1x9x9 stride 1x1",
        "conv2d_grad_input 1x1x4x4 1x1x3x3 stride 1x1",
        "max_pool 1x1x4x4 stride 2x2",
        "max_pool 1x1x4x4 stride 2x2 window 2x2 pad 2x2",
        "max_pool 1x1x40x40 stride 2x2 window 20x20",
        "max_pool_grad 1x1x2x2 1x1x2x3 -> 1x1x4x4 stride 2x2 window 2x2",
        "softmax_cross_entropy 4x10 5",
        "bias 4x10 5",
        "bias_grad 4x10 -> 5",
        "add 4x10 4x11",
        "reorder 4x10 io",
        "reorder 4x10 io blocked",
        "no_such_op 4x10",
        "tanh_grad 4x10 4x11 -> 4x10",
        "layer_norm 4x10 10",
        "layer_norm 4x10 10 11",
        "layer_norm_grad 4x10 4x10 10 4x3 -> 4x10 10 10",
        "layer_norm_grad 4x10 4x10 10 4x2 -> 4x10 10 11",
        "layer_norm_grad 4x10 4x10 10 4x2 4x11 -> 4x10 10 10",
        "softmax 2x4x10",
        "add_positions 2x4x10 3x10",
        "add_positions 2x4x10 4x11",
        "add_positions 2x4x10 4x10 3",
        "positions_grad 2x4x10 -> 3x10 extent 3x0",
        "positions_grad 2x4x10 -> 5x10 extent 4x0",
        "attention 2x4x12",
        "attention 2x4x12 heads 0",
        "attention 2x4x12 heads 3",
        "attention 2x4x12 causal",
        "attention 2x4x12 2x5 heads 2",
        "attention_grad 2x4x4 2x4x12 2x4x4 2x4x3 -> 2x4x12 heads 2",
        "attention_step 2x4x12 2x3x8 2 heads 2",
        "attention_step 2x4x12 2x9x8 3 heads 2",
        "linear 32x784 250x784 relu6",
        "batch_norm 2x3x4x4 3 4",
        "batch_norm 2x3x4x4 3 3 2x3x4x5",
        "batch_norm 2x3x4x4 3 3 sigmoid",
        "batch_norm_grad 2x3x4x4 2x3x4x4 3 2x3 -> 2x3x4x4 3 3 relu",
        "batch_norm_grad 2x3x4x4 2x3x4x4 3 3x2 -> 2x3x4x4 3 3",
        "batch_norm_grad 2x3x4x4 2x3x4x4 3 2x3 2x3x4x4 -> 2x3x4x4 3 3",
        "batch_norm_grad 2x3x4x4 2x3x4x4 3 2x3 3 -> 2x3x4x4 3 3",
        "batch_norm_grad 2x3x4x4 2x3x4x4 3 2x3 3 -> 2x3x4x4 3 3 2x3x4x4 relu",
        "batch_norm_grad 2x3x4x4 2x3x4x4 3 2x3 4 -> 2x3x4x4 3 3 relu",
        "batch_norm_grad 2x3x4x4 2x3x4x4 3 2x3 3 2x3x4x5 -> 2x3x4x4 3 3 relu",
        "batch_norm_apply 2x3x4x4 3 3 3",
        "conv1d 2x7x3 4x2x3",
        "conv1d 2x7x3 4x3x3 3",
        "conv1d 2x7x3 4x3x3 relu6",
        "conv1d_grad_input 2x5x4 4x3x3 2x8x3 -> 2x8x3",
        "conv1d_grad_weight 2x7x3 2x5x4 -> 4x3x3 3 extent 3x0",
        "conv1d_grad_weight 2x7x3 2x5x4 -> 4x3x3 extent 2x0",
        "conv1d_max_grad_input 2x4 2x5 4x3x3 2x7x3 -> 2x7x3",
        "conv1d_max_grad_input 2x4 2x4 4x3x3 2x7x3 2x8x3 -> 2x7x3",
        "conv1d_max_grad_weight 2x7x3 2x4 3x4 -> 4x3x3 extent 3x0",
        "max_over_time_grad 2x4 2x4 2x7x3 -> 2x7x3",
        "concat 4x10 5x10",
        "columns 4x10",
        "columns 4x10 extent 5x6",
        "token_cross_entropy 4x10 5",
        "token_cross_entropy_grad 4x10 4x2 4 -> 4x10",
        "token_cross_entropy_grad 4x10 4x1 5 -> 4x10",
        "token_accuracy 4x10 5",
    };

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct kernel_problem problem;
        if (kernel_parse(texts[i], &problem) == STATUS_OK)
            test_fail(__FILE__, __LINE__, "accepted: \"%s\"", texts[i]);
    }
}

static void a_label_that_is_no_class_makes_the_loss_nan(void)
{
    struct kernel_problem problem;
    const struct kernel *kernel;
    size_t at = 0;

    CHECK_OK(kernel_parse("softmax_cross_entropy 3x10 3", &problem));
    while ((kernel = next_kernel(&problem, &at)) != NULL) {
        struct kernel_trial *trial;
        static const int32_t labels[3] = { 1, 10, 2 };

        CHECK_OK(kernel_trial_create(kernel, &problem, KERNEL_FILL_NORMAL, 1, &trial));
        kernel_trial_call(trial)->in[1] = labels;
        kernel_trial_run(trial);
        CHECK(isnan(*(float *)kernel_trial_call(trial)->out[0]));
        kernel_trial_destroy(trial);
    }
}

/* Channel 0 of the words 1 2 3 4, less channel 1, in windows of two and of six. */
static void filters_find_the_first_largest_window(void)
{
    static const float x[8] = { 1, 0, 4, 1, 4, 1, -9, 0 };
    static const float w[4] = { 1, -1, 1, -1 }, wide[12] = { 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5 };
    static const float nan[8] = { NAN, 0, NAN, 0, NAN, 0, NAN, 0 };
    static const struct {
        const char *text;
        const float *x, *w;
        float y;
        int32_t index;
    } cases[] = {
        { "conv1d_max 1x4x2 1x2x2 relu", x, w, 6, 1 },
        { "conv1d_max 1x4x2 1x2x6", x, wide, 1, 0 }, /* zeros follow the sequence */
        { "conv1d_max 1x4x2 1x2x2 relu", nan, w, NAN, -1 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct kernel_problem problem;
        const struct kernel *kernel;
        size_t at = 0;

        CHECK_OK(kernel_parse(cases[i].text, &problem));
        while ((kernel = next_kernel(&problem, &at)) != NULL) {
            struct kernel_trial *trial;

            CHECK_OK(kernel_trial_create(kernel, &problem, KERNEL_FILL_NORMAL, 1, &trial));
            struct kernel_call *call = kernel_trial_call(trial);
            const float *y = call->out[0];
            call->in[0] = cases[i].x;
            call->in[1] = cases[i].w;
            kernel_trial_run(trial);
            CHECK(*y == cases[i].y || (isnan(*y) && isnan(cases[i].y)));
            CHECK_INT(cases[i].index, *(int32_t *)call->out[1]);
            kernel_trial_destroy(trial);
        }
    }
}

/* As the mean over those that are left; a label beyond the vocabulary makes the loss NaN. */
static void tokens_without_a_label_are_left_out(void)
{
    static const float logits[12] = { 1, 2, 3, 9, 9, 9, 0, 0, 0, 7, 7, 8 };
    static const int32_t labels[4] = { 2, -1, 0, -7 }, wrong[4] = { 2, -1, 3, -1 };
    struct kernel_problem problem;
    const struct kernel *kernel;
    size_t at = 0;

    CHECK_OK(kernel_parse("token_cross_entropy 4x3 4", &problem));
    while ((kernel = next_kernel(&problem, &at)) != NULL) {
        struct kernel_trial *trial;

        CHECK_OK(kernel_trial_create(kernel, &problem, KERNEL_FILL_NORMAL, 1, &trial));
        struct kernel_call *call = kernel_trial_call(trial);
        const float *loss = call->out[0], *lse = call->out[1];
        const struct kernel_step step = { .inv_batch = 0.5f };
        call->in[0] = logits;
        call->in[1] = labels;
        call->step = &step;
        kernel_trial_run(trial);
        CHECK_CLOSE((log(1 + exp(-1) + exp(-2)) + log(3)) / 2, *loss, 1e-6);
        CHECK_CLOSE(3 + log(1 + exp(-1) + exp(-2)), lse[0], 1e-6);
        CHECK(lse[1] == 0 && lse[3] == 0);
        call->in[1] = wrong;
        kernel_trial_run(trial);
        CHECK(isnan(*loss));
        kernel_trial_destroy(trial);
    }
}

static void softmax_takes_extreme_logits(void)
{
    struct kernel_problem problem;
    const struct kernel *kernel;
    size_t at = 0;
    const float logits[4] = { 3e38f, -3e38f, 3e38f, -INFINITY };
    const int32_t label = 0;

    CHECK_OK(kernel_parse("softmax_cross_entropy 1x4 1", &problem));
    while ((kernel = next_kernel(&problem, &at)) != NULL) {
        struct kernel_trial *trial;

        CHECK_OK(kernel_trial_create(kernel, &problem, KERNEL_FILL_NORMAL, 1, &trial));
        struct kernel_call *call = kernel_trial_call(trial);
        const float *probs = call->out[1];
        call->in[0] = logits;
        call->in[1] = &label;
        kernel_trial_run(trial);
        CHECK_CLOSE(log(2) / 32, *(float *)call->out[0], 1e-6);
        CHECK_CLOSE(0.5, probs[0], 1e-6);
        CHECK(probs[1] == 0 && probs[3] == 0);
        kernel_trial_destroy(trial);
    }
}

/* The own exponential, seen through softmax of two logits: p1 / p0 = exp(-t). */
static void softmax_is_accurate_for_unlikely_classes(void)
{
    enum { ROWS = 4000 };
    static float logits[2 * ROWS];
    static int32_t labels[ROWS];
    struct kernel_problem problem;
    const struct kernel *kernel;
    size_t at = 0;

    for (int i = 0; i < ROWS; i++)
        logits[2 * i + 1] = -80 * (float)i / ROWS;
    CHECK_OK(kernel_parse("softmax_cross_entropy 4000x2 4000", &problem));
    while ((kernel = next_kernel(&problem, &at)) != NULL) {
        struct kernel_trial *trial;

        CHECK_OK(kernel_trial_create(kernel, &problem, KERNEL_FILL_NORMAL, 1, &trial));
        struct kernel_call *call = kernel_trial_call(trial);
        const float *probs = call->out[1];
        call->in[0] = logits;
        call->in[1] = labels;
        kernel_trial_run(trial);
        for (int i = 0; i < ROWS; i++) {
            const double ratio = (double)probs[2 * i + 1] / (double)probs[2 * i];
            CHECK_CLOSE(1, ratio / exp((double)logits[2 * i + 1]), 4e-7);
        }
        kernel_trial_destroy(trial);
    }
}

/* Far out, where differences of exponentials would leave nothing, results keep their digits. */
static void smooth_activations_are_accurate_far_out(void)
{
    static const struct {
        const char *op;
        float from, to; /* up to where the result is no denormal number */
        double error;   /* relative */
    } cases[] = {
        { "tanh", -12, 12, 4e-7 },
        { "gelu", -12.5F, 12.5F, 1e-6 },
        { "gelu_tanh", -9.5F, 9.5F, 2e-5 }, /* exp(-2u) takes over the rounding of u */
    };
    enum { COUNT = 5000 };
    static float x[COUNT];

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct kernel_problem problem;
        struct kernel_trial *own, *reference;
        char text[KERNEL_TEXT];

        snprintf(text, sizeof text, "%s 1x%d", cases[c].op, COUNT);
        CHECK_OK(kernel_parse(text, &problem));
        for (int i = 0; i < COUNT; i++)
            x[i] = cases[c].from + (cases[c].to - cases[c].from) * (float)i / COUNT;
        CHECK_OK(kernel_trial_create(kernel_find(cases[c].op, "own"), &problem,
                                     KERNEL_FILL_NORMAL, 1, &own));
        CHECK_OK(kernel_trial_create(kernel_find(cases[c].op, "reference"), &problem,
                                     KERNEL_FILL_NORMAL, 1, &reference));
        kernel_trial_call(own)->in[0] = kernel_trial_call(reference)->in[0] = x;
        kernel_trial_run(own);
        kernel_trial_run(reference);
        const float *a = kernel_trial_call(own)->out[0],
                    *b = kernel_trial_call(reference)->out[0];
        for (int i = 0; i < COUNT; i++) {
            if (!(fabs((double)a[i] - (double)b[i]) <= cases[c].error * fabs((double)b[i])))
                test_fail(__FILE__, __LINE__, "%s(%.9g) is %.9g instead of %.9g", cases[c].op,
                          (double)x[i], (double)a[i], (double)b[i]);
        }
        kernel_trial_destroy(own);
        kernel_trial_destroy(reference);
    }
}

/* A token that sees nothing gets zeros and passes nothing back. */
static void a_token_that_sees_nothing_gets_zeros(void)
{
    static const int32_t ids[6] = { -1, -1, 3, -1, -1, -1 };
    struct kernel_problem problem;
    const struct kernel *kernel;
    size_t at = 0;

    CHECK_OK(kernel_parse("attention 2x3x24 2x3 heads 2 causal", &problem));
    while ((kernel = next_kernel(&problem, &at)) != NULL) {
        struct kernel_trial *trial;

        CHECK_OK(kernel_trial_create(kernel, &problem, KERNEL_FILL_NORMAL, 1, &trial));
        struct kernel_call *call = kernel_trial_call(trial);
        const float *y = call->out[0], *lse = call->out[1];
        call->in[1] = ids;
        kernel_trial_run(trial);
        for (int i = 0; i < 6; i++) {
            for (int d = 0; d < 8; d++)
                CHECK((y[i * 8 + d] != 0) == (i == 2));
            CHECK((lse[2 * i] == FLT_MAX) == (i != 2));
        }
        kernel_trial_destroy(trial);
    }
}

static void measuring_gives_a_time(void)
{
    struct kernel_problem problem;
    double seconds = 0;

    CHECK_OK(kernel_parse("relu 10x100", &problem));
    CHECK_OK(kernel_measure(kernel_find("relu", "own"), &problem, NULL, &seconds));
    CHECK(seconds > 0 && seconds < 1);
    CHECK_STATUS(STATUS_UNSUPPORTED,
                 kernel_measure(kernel_find("add", "own"), &problem, NULL, &seconds));
}

static void every_op_has_a_reference(void)
{
    const struct kernel *kernel;

    for (size_t i = 0; (kernel = kernel_at(i)) != NULL; i++) {
        CHECK(kernel_find(kernel->op, "reference") != NULL);
        CHECK(kernel->run != NULL);
        CHECK(kernel_find(kernel->op, kernel->name) == kernel); /* no name twice */
    }
    CHECK(kernel_find("relu", "none") == NULL);
    CHECK(kernel_find("none", "reference") == NULL);
}

const struct test tests[] = {
    { .name = "every op has a reference", .run = every_op_has_a_reference },
    { .name = "a problem prints as documented", .run = a_problem_prints_as_documented },
    { .name = "printed problems parse to themselves",
      .property = printed_problems_parse_to_themselves },
    { .name = "illegal problems are refused", .run = illegal_problems_are_refused },
    { .name = "kernels agree on whole numbers", .property = kernels_agree_on_whole_numbers },
    { .name = "kernels agree on any numbers", .property = kernels_agree_on_any_numbers },
#ifndef SMALL_REFERENCES_ALONE
    { .name = "large problems agree with the reference",
      .run = large_problems_agree_with_the_reference },
#endif
    { .name = "pools do not change bits", .run = pools_do_not_change_bits },
    { .name = "elementwise ops run in place", .property = elementwise_ops_run_in_place },
    { .name = "a second run gives the same bits",
      .property = a_second_run_gives_the_same_bits },
    { .name = "own kernels give the same bits on every processor",
      .property = own_kernels_give_the_same_bits_on_every_processor },
    { .name = "a label that is no class makes the loss nan",
      .run = a_label_that_is_no_class_makes_the_loss_nan },
    { .name = "filters find the first largest window",
      .run = filters_find_the_first_largest_window },
    { .name = "tokens without a label are left out",
      .run = tokens_without_a_label_are_left_out },
    { .name = "softmax takes extreme logits", .run = softmax_takes_extreme_logits },
    { .name = "softmax is accurate for unlikely classes",
      .run = softmax_is_accurate_for_unlikely_classes },
    { .name = "smooth activations are accurate far out",
      .run = smooth_activations_are_accurate_far_out },
    { .name = "a token that sees nothing gets zeros",
      .run = a_token_that_sees_nothing_gets_zeros },
    { .name = "measuring gives a time", .run = measuring_gives_a_time },
    { 0 },
};
