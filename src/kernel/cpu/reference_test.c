/* SPDX-License-Identifier: MIT */
/* reference_test.c - the kernels that all others are compared with are right themselves. */
#include <string.h>

#include "base/test.h"
#include "kernel/kernel.h"
#include "kernel/measure.h"

/* Inner product in double, exact on whole numbers. */
static double inner(const void *a, const void *b, const struct kernel_tensor *tensor)
{
    const float *x = a, *y = b;
    double sum = 0;

    for (int64_t i = 0; i < shape_count(&tensor->shape); i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* Reference of `text` on whole numbers, some inputs replaced. */
static struct kernel_trial *run_text(const char *text, const void *const in[KERNEL_IN])
{
    struct kernel_problem problem;
    struct kernel_trial *trial;

    CHECK_OK(kernel_parse(text, &problem));
    CHECK_OK(kernel_trial_create(kernel_find(problem.op, "reference"), &problem,
                                 KERNEL_FILL_WHOLE, 7, &trial));
    for (int i = 0; i < KERNEL_IN; i++) {
        if (in[i] != NULL)
            kernel_trial_call(trial)->in[i] = in[i];
    }
    kernel_trial_run(trial);
    return trial;
}

/* y is linear in x and in w, so <dy, y> = <dx, x> = <dw, w>. A pooling that knows where its
 * values came from is, too, and relu's zeros send nothing. */
static void reference_gradients_are_adjoint(void)
{
    static const struct {
        const char *forward, *input, *weight;
    } cases[] = {
        { "linear 5x7 3x7", "linear_grad_input 5x3 3x7 -> 5x7",
          "linear_grad_weight 5x7 5x3 -> 3x7" },
        { "conv2d 2x3x7x8 4x3x3x2 stride 2x1 pad 1x0",
          "conv2d_grad_input 2x4x4x7 4x3x3x2 -> 2x3x7x8 stride 2x1 pad 1x0",
          "conv2d_grad_weight 2x3x7x8 2x4x4x7 -> 4x3x3x2 stride 2x1 pad 1x0" },
        { "conv2d 2x6x7x8 4x3x3x2 stride 2x1 pad 1x0 groups 2",
          "conv2d_grad_input 2x4x4x7 4x3x3x2 -> 2x6x7x8 stride 2x1 pad 1x0 groups 2",
          "conv2d_grad_weight 2x6x7x8 2x4x4x7 -> 4x3x3x2 stride 2x1 pad 1x0 groups 2" },
        { "conv2d_transpose 2x4x4x7 4x3x3x2 stride 2x1 pad 1x0 extent 8x8",
          "conv2d_transpose_grad_input 2x3x8x8 4x3x3x2 -> 2x4x4x7 stride 2x1 pad 1x0",
          "conv2d_transpose_grad_weight 2x4x4x7 2x3x8x8 -> 4x3x3x2 stride 2x1 pad 1x0" },
        { "conv2d_pool 2x3x7x8 4x3x3x2 stride 1x1 pad 1x0 window 2x3 relu",
          "conv2d_pool_grad_input 2x4x3x2 2x4x3x2 4x3x3x2 -> 2x3x7x8 stride 1x1 pad 1x0 window "
          "2x3",
          "conv2d_pool_grad_weight 2x3x7x8 2x4x3x2 2x4x3x2 -> 4x3x3x2 stride 1x1 pad 1x0 "
          "window "
          "2x3" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        static const void *const as_they_are[KERNEL_IN];
        struct kernel_trial *forward = run_text(cases[i].forward, as_they_are);
        const struct kernel_call *f = kernel_trial_call(forward);
        const bool pooled = f->out[1] != NULL;
        const void *const for_input[KERNEL_IN] = { NULL, pooled ? f->out[1] : f->in[1],
                                                   pooled ? f->in[1] : NULL };
        struct kernel_trial *input = run_text(cases[i].input, for_input);
        const void *dy = kernel_trial_call(input)->in[0];
        const void *const for_weight[KERNEL_IN] = { f->in[0], dy, f->out[1] };
        struct kernel_trial *weight = run_text(cases[i].weight, for_weight);
        const double expected = inner(dy, f->out[0], &f->problem->out[0]);

        CHECK(expected != 0);
        CHECK(inner(kernel_trial_call(input)->out[0], f->in[0], &f->problem->in[0]) ==
              expected);
        CHECK(inner(kernel_trial_call(weight)->out[0], f->in[1], &f->problem->in[1]) ==
              expected);
        kernel_trial_destroy(weight);
        kernel_trial_destroy(input);
        kernel_trial_destroy(forward);
    }
}

/* Worked by hand: an image of one channel 1..9, weights 1 2 3 4, and a bias of 10. */
static void reference_convolution_by_hand(void)
{
    const float x[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 }, w[4] = { 1, 2, 3, 4 }, b[1] = { 10 };
    const float expected[4] = { 47, 57, 77, 87 }; /* 1*1 + 2*2 + 3*4 + 4*5 + 10, ... */
    const void *const in[KERNEL_IN] = { x, w, b };
    struct kernel_trial *trial = run_text("conv2d 1x1x3x3 1x1x2x2 1 stride 1x1", in);

    CHECK(memcmp(expected, kernel_trial_call(trial)->out[0], sizeof expected) == 0);
    kernel_trial_destroy(trial);

    trial = run_text("conv2d_pool 1x1x3x3 1x1x2x2 1 stride 1x1 window 2x2 relu", in);
    CHECK(*(float *)kernel_trial_call(trial)->out[0] == 87);
    CHECK_INT(3, *(uint8_t *)kernel_trial_call(trial)->out[1]);
    kernel_trial_destroy(trial);

    /* Two groups of two channels to one: channel o is 1*x[2o] + (2 + o)*x[2o+1] + b[o], cut at
     * six. Weights lie [channel of the group][output]. */
    const float pixel[4] = { 1, 2, -3, 0.5F }, split[4] = { 1, 1, 2, 3 }, both[2] = { 0.5F, 1 };
    const void *const grouped[KERNEL_IN] = { pixel, split, both };
    trial = run_text("conv2d 1x4x1x1 2x2x1x1 2 stride 1x1 groups 2 relu6", grouped);
    CHECK(((float *)kernel_trial_call(trial)->out[0])[0] == 5.5F);
    CHECK(((float *)kernel_trial_call(trial)->out[0])[1] == 0);
    kernel_trial_destroy(trial);
}

/* What PyTorch's conv_transpose2d gives for 1..4, weights 1..9, a bias of 1, stride 2, padding
 * and output padding 1. */
static void reference_transposed_convolution_agrees_with_pytorch(void)
{
    const float x[4] = { 1, 2, 3, 4 }, w[9] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 }, b[1] = { 1 };
    const float expected[16] = {
        6, 15, 11, 13, 15, 37, 25, 31, 16, 35, 21, 25, 25, 56, 33, 37
    };
    const void *const in[KERNEL_IN] = { x, w, b };
    struct kernel_trial *trial =
        run_text("conv2d_transpose 1x1x2x2 1x1x3x3 1 stride 2x2 pad 1x1 extent 4x4", in);

    CHECK(memcmp(expected, kernel_trial_call(trial)->out[0], sizeof expected) == 0);
    kernel_trial_destroy(trial);
}

/* Two equal largest: the first is meant. */
static void the_first_of_equals_is_the_largest(void)
{
    const float x[4] = { 1, 5, 5, 2 };
    const void *const in[KERNEL_IN] = { x };
    struct kernel_trial *trial = run_text("max_pool 1x1x2x2 stride 2x2 window 2x2", in);

    CHECK_INT(1, *(uint8_t *)kernel_trial_call(trial)->out[1]);
    kernel_trial_destroy(trial);
}

/* d loss / d logit by a difference quotient. */
static void the_gradient_of_the_loss_is_its_slope(void)
{
    const float step = 1e-2f, logits[3] = { 0.5f, -1, 2 };
    const int32_t label = 1;
    const void *in[KERNEL_IN] = { logits, &label };
    struct kernel_trial *trial = run_text("softmax_cross_entropy 1x3 1", in);
    const void *const grad_in[KERNEL_IN] = { kernel_trial_call(trial)->out[1], &label };
    struct kernel_trial *grad = run_text("softmax_cross_entropy_grad 1x3 1 -> 1x3", grad_in);

    for (int i = 0; i < 3; i++) {
        float moved[2][3], loss[2];
        for (int side = 0; side < 2; side++) {
            memcpy(moved[side], logits, sizeof logits);
            moved[side][i] += side == 0 ? -step : step;
            in[0] = moved[side];
            struct kernel_trial *there = run_text("softmax_cross_entropy 1x3 1", in);
            loss[side] = *(float *)kernel_trial_call(there)->out[0];
            kernel_trial_destroy(there);
        }
        CHECK_CLOSE((loss[1] - loss[0]) / (2 * step),
                    ((float *)kernel_trial_call(grad)->out[0])[i], 1e-5);
    }
    kernel_trial_destroy(grad);
    kernel_trial_destroy(trial);
}

const struct test tests[] = {
    { .name = "reference gradients are adjoint", .run = reference_gradients_are_adjoint },
    { .name = "reference convolution by hand", .run = reference_convolution_by_hand },
    { .name = "reference transposed convolution agrees with pytorch",
      .run = reference_transposed_convolution_agrees_with_pytorch },
    { .name = "the first of equals is the largest", .run = the_first_of_equals_is_the_largest },
    { .name = "the gradient of the loss is its slope",
      .run = the_gradient_of_the_loss_is_its_slope },
    { 0 },
};
