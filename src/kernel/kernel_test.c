/* kernel_test.c - every kernel of the table solves random problems as the reference does.
 *
 * All tests walk the table, so a kernel added to it is tested without a line here.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/test.h"
#include "kernel/cpu/reference.h"
#include "kernel/cpu/rows.h"
#include "kernel/kernel.h"
#include "kernel/kernel_testing.h"
#include "kernel/measure.h"
#include "kernel/update.h"

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

static struct kernel_trial *run_trial(const struct kernel *kernel,
                                      const struct kernel_problem *problem,
                                      enum kernel_fill fill, uint64_t seed, struct pool *pool)
{
    struct kernel_trial *trial;

    CHECK_OK(kernel_trial_create(kernel, problem, fill, seed, &trial));
    kernel_trial_call(trial)->pool = pool;
    const uint64_t allocations = mem_count();
    kernel_trial_run(trial);
    if (pool == NULL)
        CHECK_INT(allocations, mem_count());
    CHECK_OK(kernel_trial_check(trial));
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
        const bool bytes = problem->out[i].dtype == DTYPE_U8 && tolerance > 0;

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
    struct kernel_trial *expected =
        run_trial(reference, problem, KERNEL_FILL_NORMAL, seed, NULL);
    const struct kernel *kernel;
    size_t at = 0;

    while ((kernel = next_kernel(problem, &at)) != NULL) {
        struct kernel_trial *actual =
            run_trial(kernel, problem, KERNEL_FILL_NORMAL, seed, NULL);
        check_close(kernel, problem, expected, actual, kernel_testing_tolerance(problem));
        kernel_trial_destroy(actual);
    }
    kernel_trial_destroy(expected);
}

/* On whole numbers, sums and products are exact: all but the losses must agree exactly, and
 * Winograd's convolution, which divides. */
static void kernels_agree_on_whole_numbers(struct rng *rng)
{
    const struct kernel *reference, *kernel;

    for (size_t i = 0; (reference = kernel_at(i)) != NULL; i++) {
        struct kernel_problem problem;
        size_t at = 0;

        if (!is_reference(reference))
            continue;
        kernel_testing_problem(rng, reference->op, &problem);
        const bool loss = strcmp(reference->op, "softmax_cross_entropy") == 0 ||
                          strcmp(reference->op, "mse") == 0;
        const uint64_t seed = rng_u64(rng);
        struct kernel_trial *expected =
            run_trial(reference, &problem, KERNEL_FILL_WHOLE, seed, NULL);
        while ((kernel = next_kernel(&problem, &at)) != NULL) {
            if (strcmp(kernel->name, "winograd") == 0)
                continue;
            struct kernel_trial *actual =
                run_trial(kernel, &problem, KERNEL_FILL_WHOLE, seed, NULL);
            check_close(kernel, &problem, expected, actual,
                        loss ? kernel_testing_tolerance(&problem) : 0);
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

/* Problems as large as pools are meant for, where tasks are many. */
static const char *const large[] = {
    "linear 64x784 250x784 250 relu",
    "linear_grad_input 64x250 250x784 -> 64x784",
    "linear_grad_weight 64x784 64x250 -> 250x784 250",
    "conv2d 8x6x14x14 16x6x5x5 16 stride 1x1 pad 2x2 relu",
    "conv2d_grad_input 8x16x14x14 16x6x5x5 -> 8x6x14x14 stride 1x1 pad 2x2",
    "conv2d_grad_weight 8x6x14x14 8x16x14x14 -> 16x6x5x5 16 stride 1x1 pad 2x2",
    "conv2d_pool 8x6x14x14 16x6x5x5 16 stride 1x1 pad 2x2 window 2x2 relu",
    "conv2d_pool_grad_input 8x16x7x7 8x16x7x7 16x6x5x5 -> 8x6x14x14 stride 1x1 pad 2x2 window "
    "2x2",
    "conv2d_pool_grad_weight 8x6x14x14 8x16x7x7 8x16x7x7 -> 16x6x5x5 16 stride 1x1 pad 2x2 "
    "window 2x2",
    "max_pool 32x64x28x28 stride 2x2 window 2x2",
    "max_pool 8x32x29x29 stride 2x2 pad 1x1 window 3x3",
    "max_pool_grad 32x64x14x14 32x64x14x14 -> 32x64x28x28 stride 2x2 window 2x2",
    "max_pool_grad 8x32x15x15 8x32x15x15 -> 8x32x29x29 stride 2x2 pad 1x1 window 3x3",
    "avg_pool 32x512x7x7 stride 7x7 window 7x7",
    "avg_pool_grad 32x512x1x1 -> 32x512x7x7 stride 7x7 window 7x7",
    "bias 25088x64 64",
    "bias_grad 25088x64 -> 64",
    "bias_grad 4096x6 -> 6",
    "bias_grad 512x4099 -> 4099",
    "relu 300x1001",
    "relu_grad 300x1001 300x1001 -> 300x1001",
    "add 300x1001 300x1001",
    "reorder 32x64x7x7 nhwc plain",
    "reorder 32x64x7x7 plain nhwc",
    "dropout 300x1001",
    "softmax_cross_entropy 300x1001 300",
    "softmax_cross_entropy_grad 300x1001 300 -> 300x1001",
    "mse 300x1001 300x1001",
    "mse_grad 300x1001 300x1001 -> 300x1001",
    "accuracy 300x1001 300",
};

static void check_pools(const struct kernel_problem *problem, uint64_t seed)
{
    const struct kernel *kernel;
    size_t at = 0;

    while ((kernel = next_kernel(problem, &at)) != NULL) {
        if (is_reference(kernel)) /* knows no pool */
            continue;
        struct kernel_trial *alone = run_trial(kernel, problem, KERNEL_FILL_NORMAL, seed, NULL);
        for (int n = 1; n <= POOLS; n++) {
            struct kernel_trial *together =
                run_trial(kernel, problem, KERNEL_FILL_NORMAL, seed, pools[n]);
            check_same_bytes("a pool", kernel, problem, alone, together);
            kernel_trial_destroy(together);
        }
        kernel_trial_destroy(alone);
    }
}

static void pools_do_not_change_bits(void)
{
    make_pools();
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        struct kernel_problem problem;

        CHECK_OK(kernel_parse(large[i], &problem));
        if (strcmp(problem.op, "dropout") == 0)
            problem.attrs.rate = 0.5f;
        check_pools(&problem, i);
    }
    drop_pools();
}

static void large_problems_agree_with_the_reference(void)
{
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++) {
        struct kernel_problem problem;

        CHECK_OK(kernel_parse(large[i], &problem));
        compare_kernels(kernel_find(problem.op, "reference"), &problem, i);
    }
}

/* Where kernel.h allows it, an output may be input 0's buffer. */
static void elementwise_ops_run_in_place(struct rng *rng)
{
    static const char *const ops[] = { "bias", "relu", "relu_grad", "add", "dropout" };
    struct kernel_problem problem;
    const struct kernel *kernel;
    size_t at = 0;

    kernel_testing_problem(rng, ops[rng_below(rng, 5)], &problem);
    const uint64_t seed = rng_u64(rng);
    while ((kernel = next_kernel(&problem, &at)) != NULL) {
        struct kernel_trial *apart =
            run_trial(kernel, &problem, KERNEL_FILL_NORMAL, seed, NULL);
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
        struct kernel_trial *once = run_trial(kernel, &problem, KERNEL_FILL_NORMAL, seed, NULL);
        struct kernel_trial *twice =
            run_trial(kernel, &problem, KERNEL_FILL_NORMAL, seed, NULL);
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
        kernel_loss_rows_generic,
    };

    for (size_t i = 0; i < sizeof generic / sizeof generic[0]; i++) {
        for (const struct kernel *row = generic[i]; row->op != NULL; row++) {
            const struct kernel *kernel = kernel_find(row->op, "own");
            struct kernel_problem problem;

            kernel_testing_problem(rng, row->op, &problem);
            if (row->can_run != NULL && !row->can_run(&problem))
                continue;
            const uint64_t seed = rng_u64(rng);
            struct kernel_trial *here =
                run_trial(kernel, &problem, KERNEL_FILL_NORMAL, seed, NULL);
            struct kernel_trial *there =
                run_trial(row, &problem, KERNEL_FILL_NORMAL, seed, NULL);
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
    CHECK_STATUS(STATUS_USAGE, kernel_check(&problem));
    CHECK_MESSAGE("layout plain instead of io");
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
        "tanh 4x10",
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

/* Updates ------------------------------------------------------------------------------ */

enum { VECTOR = 1000, VECTORS = 4 };

static void fill_vectors(struct rng *rng, float data[VECTORS][VECTOR])
{
    for (int v = 0; v < VECTORS; v++) {
        for (int i = 0; i < VECTOR; i++) {
            const float value = rng_float(rng) * 2 - 1;
            data[v][i] = v == 3 ? value * value : value; /* the second moment is not negative */
        }
    }
}

static void random_update(struct rng *rng, struct attrs *attrs, struct kernel_update_step *step)
{
    *attrs = (struct attrs){ .momentum = rng_below(rng, 3) == 0 ? 0 : rng_float(rng),
                             .weight_decay = rng_below(rng, 2) == 0 ? 0 : rng_float(rng),
                             .beta1 = 0.9f,
                             .beta2 = 0.999f,
                             .epsilon = 1e-8f,
                             .nesterov = (int)rng_below(rng, 2),
                             .decoupled = (int)rng_below(rng, 2) };
    *step = (struct kernel_update_step){ .lr = rng_float(rng),
                                         .scale = rng_below(rng, 2) == 0 ? 1 : rng_float(rng),
                                         .correction1 = 10,
                                         .correction2 = 1000,
                                         .first = (int)rng_below(rng, 2) };
}

static void run_update(kernel_update_fn *update, float data[VECTORS][VECTOR], size_t from,
                       size_t to, const struct attrs *attrs,
                       const struct kernel_update_step *step)
{
    float *const state[KERNEL_STATES] = { data[2] + from, data[3] + from };

    update(data[0] + from, data[1] + from, state, to - from, attrs, step);
}

static void updates_give_the_bits_of_the_reference_however_cut(struct rng *rng)
{
    static const char *const ops[] = { "sgd_update", "adam_update" };
    float whole[VECTORS][VECTOR], expected[VECTORS][VECTOR], cut[VECTORS][VECTOR];
    struct attrs attrs;
    struct kernel_update_step step;

    for (int o = 0; o < 2; o++) {
        const struct kernel_update *update = kernel_update_find(ops[o]);
        const size_t count = rng_below(rng, VECTOR + 1);
        const size_t middle = rng_below(rng, count / 16 + 1) * 16;

        CHECK(update != NULL);
        random_update(rng, &attrs, &step);
        fill_vectors(rng, whole);
        memcpy(expected, whole, sizeof whole);
        memcpy(cut, whole, sizeof whole);
        run_update(update->reference, expected, 0, count, &attrs, &step);
        run_update(update->run, whole, 0, count, &attrs, &step);
        run_update(update->run, cut, 0, middle, &attrs, &step);
        run_update(update->run, cut, middle, count, &attrs, &step);
        /* The whole arrays: what is beyond `count` must be untouched. */
        CHECK(memcmp(expected, whole, sizeof whole) == 0);
        CHECK(memcmp(expected, cut, sizeof cut) == 0);
    }
    CHECK(kernel_update_find("lion_update") == NULL);
}

/* PyTorch 2's torch.optim on one parameter of 1.0 with gradients 0.5, 0.25. */
static void updates_follow_their_formulas(void)
{
    const struct attrs sgd = { .momentum = 0.9f, .weight_decay = 0.1f };
    const struct attrs adam = {
        .beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f, .weight_decay = 0.1f, .decoupled = 1
    };
    struct kernel_update_step step = { .lr = 0.1f, .scale = 1, .first = 1 };
    float param = 1, m = 7, v = 0, grad = 0.5f;
    float *const state[KERNEL_STATES] = { &m, &v };

    kernel_update_find("sgd_update")->run(&param, &grad, state, 1, &sgd, &step);
    CHECK_CLOSE(0.94, param, 1e-6); /* g = 0.6 */
    step.first = 0;
    grad = 0.25f;
    kernel_update_find("sgd_update")->run(&param, &grad, state, 1, &sgd, &step);
    CHECK_CLOSE(0.8516, param, 1e-6); /* g = 0.344, m = 0.54 + 0.344 */

    param = 1;
    m = v = 0;
    grad = 0.5f;
    step.correction1 = 10;
    step.correction2 = 1000;
    kernel_update_find("adam_update")->run(&param, &grad, state, 1, &adam, &step);
    CHECK_CLOSE(0.99 - 0.1, param, 1e-5); /* a first step of Adam has length lr */
}

static void sums_do_not_depend_on_the_instruction_set(struct rng *rng)
{
    float data[VECTORS][VECTOR], sum[VECTOR];
    const size_t count = rng_below(rng, VECTOR + 1);
    double expected = 0;

    fill_vectors(rng, data);
    memset(sum, 0, sizeof sum);
    kernel_add(sum, data[0], data[1], count);
    for (size_t i = 0; i < VECTOR; i++)
        CHECK(sum[i] == (i < count ? data[0][i] + data[1][i] : 0));
    kernel_add(data[0], data[0], data[1], count);
    CHECK(memcmp(sum, data[0], count * sizeof *sum) == 0);

    for (size_t i = 0; i < count; i++)
        expected += (double)data[2][i] * (double)data[2][i];
    CHECK_CLOSE(expected, kernel_sum_squares(data[2], count), 1e-12);
    CHECK(kernel_sum_squares(data[2], count) ==
          kernel_update_code_generic.sum_squares(data[2], count));
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
    { .name = "large problems agree with the reference",
      .run = large_problems_agree_with_the_reference },
    { .name = "pools do not change bits", .run = pools_do_not_change_bits },
    { .name = "elementwise ops run in place", .property = elementwise_ops_run_in_place },
    { .name = "a second run gives the same bits",
      .property = a_second_run_gives_the_same_bits },
    { .name = "own kernels give the same bits on every processor",
      .property = own_kernels_give_the_same_bits_on_every_processor },
    { .name = "a label that is no class makes the loss nan",
      .run = a_label_that_is_no_class_makes_the_loss_nan },
    { .name = "softmax takes extreme logits", .run = softmax_takes_extreme_logits },
    { .name = "updates give the bits of the reference however cut",
      .property = updates_give_the_bits_of_the_reference_however_cut },
    { .name = "updates follow their formulas", .run = updates_follow_their_formulas },
    { .name = "sums do not depend on the instruction set",
      .property = sums_do_not_depend_on_the_instruction_set },
    { .name = "measuring gives a time", .run = measuring_gives_a_time },
    { 0 },
};
