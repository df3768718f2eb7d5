/* SPDX-License-Identifier: MIT */
/* device_fused_test.c - kernels of a device that do the work of several ops have the bits of these, as a cut of the graph
 * may keep them apart.
 */
#include <string.h>

#include "base/test.h"
#include "kernel/device_check_testing.h"
#include "kernel/measure.h"
#include "kernel/precision.h"

/* The device's row of that name that can run a problem, or the one that is taken if it has none. */
static const struct kernel *row_of(const struct device_place *place,
                                   const struct kernel_problem *problem, const char *name)
{
    const struct kernel *row;

    for (size_t i = 0; name && (row = place->face->kernel_at(i)) != NULL; i++) {
        if (strcmp(row->op, problem->op) == 0 && strcmp(row->name, name) == 0 &&
            (!row->can_run || row->can_run(problem)))
            return row;
    }
    return device_kernel(place->face, problem);
}

/* The sums that an op gives besides, its last output, are those of sum_rows over its first. name: of the op's row, NULL: the
 * one that is taken. */
static void check_order(const struct device_place *place, const char *text, enum dtype dtype,
                        const char *name)
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
    CHECK_OK(device_testing_run(place, row_of(place, &there, name), &there,
                                kernel_trial_call(maker), DEVICE_ONCE));
    void *summand;
    memcpy(&summand, &kernel_trial_call(sum)->in[0],
           sizeof summand); /* the trial's own buffer */
    memcpy(summand, kernel_trial_call(maker)->out[0], device_tensor_bytes(&problem.out[0]));
    CHECK_OK(device_testing_run(place, device_kernel(place->face, &sums_there), &sums_there,
                                kernel_trial_call(sum), DEVICE_ONCE));
    if (memcmp(kernel_trial_call(maker)->out[problem.n_out - 1], kernel_trial_call(sum)->out[0],
               device_tensor_bytes(&sums.out[0])) != 0)
        device_complain(&problem, "sums in another order");
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
    const struct device_place *place = device_gpu();

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++)
            check_order(place, texts[i], dtypes[k], NULL);
    }
    device_check_none_bad();
}

static void copy_number(void *to, const void *from, const struct kernel_tensor *tensor)
{
    memcpy(to, from, device_tensor_bytes(tensor));
}

/* A layer's gradient through an activation has the bits of the two ops, which a cut may keep apart. name: of both rows of the
 * layer, NULL: those that are taken. */
static void check_apart(const struct device_place *place, const char *text, enum dtype dtype,
                        const char *name)
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
        CHECK_OK(device_testing_run(place, row_of(place, &there[i], i < 2 ? name : NULL),
                                    &there[i], kernel_trial_call(trials[i]), DEVICE_ONCE));
        if (i == 1)
            copy_number((void *)(uintptr_t)two->in[0], made->out[0], &slope.in[0]);
    }
    if (memcmp(one->out[0], two->out[0], device_tensor_bytes(&whole.out[0])) != 0)
        device_complain(&whole, "other bits than by two ops");
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
    const struct device_place *place = device_gpu();

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++)
            check_apart(place, texts[i], dtypes[k], NULL);
    }
    device_check_none_bad();
}

/* Both by kernel/cuda/linear_hopper.cu, where it can: parts of 16, 32 and 64 rows, panels and tiles that end early, more rows than blocks. */
static void gradients_of_panels_are_those_of_three_ops(void)
{
    static const char *const texts[] = {
        "linear_grad_through 1100x72 72x200 1100x200 -> 1100x200 200 gelu_tanh",
        "linear_grad_through 1025x384 384x776 1025x776 -> 1025x776 776 gelu_tanh",
        "linear_grad_through 3600x64 64x1160 3600x1160 -> 3600x1160 1160 plain gelu_tanh",
        "linear_grad_through 8470x80 80x160 8470x160 -> 8470x160 160 gelu_tanh",
        "linear_grad_through 16930x64 64x128 16930x128 -> 16930x128 128 plain gelu_tanh",
    };
    const struct device_place *place = device_gpu();

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        check_order(place, texts[i], DTYPE_BF16, "hopper");
        check_apart(place, texts[i], DTYPE_BF16, "hopper");
    }
    device_check_none_bad();
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
        memcmp(calls[WHOLE]->out[2], calls[SLOPE]->out[0], device_tensor_bytes(logits)) != 0)
        device_complain(whole, "other bits than by three ops");
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
    device_check_none_bad();
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
    check_losses(device_gpu(), 3);
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
        if (memcmp(calls[0].out[i], calls[1].out[i],
                   device_tensor_bytes(&problems[0].out[i])) != 0)
            device_complain(&problems[0], "other statistics than a norm's in output %d", i);
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
        check_stats(device_gpu(), texts[i][0], texts[i][1]);
    device_check_none_bad();
}

const struct test tests[] = {
    { .name = "sums over rows have one order", .run = sums_over_rows_have_one_order },
    { .name = "gradients of panels are those of three ops",
      .run = gradients_of_panels_are_those_of_three_ops },
    { .name = "gradients through activations are those of two ops",
      .run = gradients_through_activations_are_those_of_two_ops },
    { .name = "losses in one are those of three ops",
      .run = losses_in_one_are_those_of_three_ops },
    { .name = "losses in one are those of three ops on the GPU",
      .run = losses_in_one_are_those_of_three_ops_on_the_gpu },
    { .name = "statistics are those of a norm", .run = statistics_are_those_of_a_norm },
    { 0 },
};
