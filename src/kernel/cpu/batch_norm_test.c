/* SPDX-License-Identifier: MIT */
/* batch_norm_test.c - batch norm, label smoothing and sigmoid against numbers from elsewhere, and
 * where rounding would show. What random problems show is in kernel_test.c.
 */
#include <math.h>
#include <string.h>

#include "base/test.h"
#include "kernel/kernel.h"
#include "kernel/measure.h"

/* Two images of three channels and 2 x 2 places, channels innermost, and what PyTorch 2.15 makes of
 * relu(batch_norm(x) + residual) with momentum 1. */
enum { COUNT = 24, CHANNELS = 3, IMAGES = 2 };
static const float x[] = { 1.3125F,  -0.25F,   1.90625F,  -1.25F,    0.25F,     -1.40625F,
                           1.78125F, -2.0F,    0.3125F,   -1.90625F, -1.34375F, 1.34375F,
                           1.78125F, 1.71875F, -0.625F,   -0.71875F, -0.8125F,  0.90625F,
                           -1.6875F, 1.0F,     -0.78125F, -1.34375F, -1.375F,   -1.5625F };
static const float scale[] = { 1.5F, -0.75F, 0.5F };
static const float shift[] = { 0.25F, -0.5F, 1.0F };
static const float residual[] = { 1.75F,     -1.3125F, -0.125F,   -1.1875F,  0.0625F,
                                  -1.96875F, 0.53125F, -1.9375F,  -0.40625F, 0.8125F,
                                  -0.03125F, 0.8125F,  0.15625F,  -1.09375F, -0.0625F,
                                  1.25F,     1.3125F,  -1.78125F, 1.4375F,   -1.25F,
                                  1.75F,     1.03125F, 1.84375F,  -0.65625F };
static const float dy[] = { -0.96875F, -0.84375F, -1.34375F, 1.84375F, -1.375F,   1.96875F,
                            0.46875F,  0.9375F,   0.4375F,   -0.5F,    -0.46875F, 1.625F,
                            -1.125F,   0.0F,      -0.03125F, 1.71875F, 1.28125F,  -0.84375F,
                            -0.3125F,  -1.4375F,  -0.25F,    -2.0F,    1.625F,    -0.25F };
static const float y[] = { 3.56994677F,   0.0F,        1.65571749F, 0.0F,         0.0F,
                           0.0F,          2.8210063F,  0.0F,        0.717698932F, 0.0F,
                           0.0908452719F, 2.36141682F, 2.4460063F,  0.0F,         0.675114572F,
                           1.03410554F,   1.10150492F, 0.0F,        0.250665903F, 0.0F,
                           2.4232254F,    0.18894285F, 1.98543882F, 0.0F };
static const float dx[] = { -0.603226721F, 0.181087255F,   -0.574194372F,  0.220902577F,
                            0.132103294F,  -0.0240987558F, 0.864378095F,   0.352531105F,
                            0.158084676F,  0.183304816F,   0.582142949F,   0.648578048F,
                            -0.73297435F,  -0.0117870551F, -0.0361156426F, 1.97397375F,
                            -0.567141414F, -0.0215504114F, -0.117368951F,  0.0586273782F,
                            -0.126432523F, -1.78898907F,   -0.7275635F,    -0.0242709406F };
static const float dgamma[] = { -0.68440479F, -1.49523282F, -0.025956843F };
static const float dbeta[] = { -2.21875F, 2.4375F, 0.4375F };
static const float dresidual[] = { -0.96875F, 0.0F, -1.34375F, 0.0F,     0.0F,      0.0F,
                                   0.46875F,  0.0F, 0.4375F,   0.0F,     -0.46875F, 1.625F,
                                   -1.125F,   0.0F, -0.03125F, 1.71875F, 1.28125F,  0.0F,
                                   -0.3125F,  0.0F, -0.25F,    -2.0F,    1.625F,    0.0F };
static const float mean[] = { -0.25390625F, -0.3515625F, 0.01171875F };
static const float variance[] = { 2.55983186F, 1.63525391F, 1.68246019F };
/* relu6(batch_norm(4 x) + residual) with these averages. */
static const float average[] = { 0.5F, -0.25F, 0.125F };
static const float average_variance[] = { 0.5F, 2.0F, 0.25F };
static const float applied[] = { 6.0F, 0.0F,        6.0F,        0.0F, 0.0F,        0.0F,
                                 6.0F, 1.67254782F, 1.71872759F, 0.0F, 2.18668485F, 6.0F,
                                 6.0F, 0.0F,        0.0F,        0.0F, 2.40348625F, 2.7186799F,
                                 0.0F, 0.0F,        0.0F,        0.0F, 4.12797594F, 0.0F };
/* cross_entropy of logits with label_smoothing 0.1. */
static const float logits[] = { 0.21875F,  -0.84375F, 1.90625F, -0.5625F, -0.96875F, 1.53125F,
                                -1.96875F, 0.65625F,  1.65625F, 1.71875F, 0.3125F,   1.34375F };
static const int32_t labels[] = { 2, 0, 3 };
static const double smoothed_loss = 1.5818803310394287;
static const float dlogits[] = {
    0.0379027724F,   0.00764543377F, -0.0583833121F, 0.0128350956F, -0.290439874F, 0.209653452F,
    -0.00175070332F, 0.0825370848F,  0.100706898F,   0.107739381F,  0.0201115143F, -0.228557765F
};

static const char *const kernels[] = { "reference", "own" };
enum { KERNELS = 2 };
static const struct kernel_step two_images = { .inv_batch = 0.5F };

/* Runs kernel k for a problem with these attributes, its inputs replaced. */
static struct kernel_trial *run(int k, const char *text, struct attrs attrs,
                                const struct kernel_step *step, const void *const *in)
{
    struct kernel_problem problem;
    struct kernel_trial *trial;

    CHECK_OK(kernel_parse(text, &problem));
    attrs.activation = problem.attrs.activation;
    problem.attrs = attrs;
    CHECK_OK(kernel_trial_create(kernel_find(problem.op, kernels[k]), &problem,
                                 KERNEL_FILL_NORMAL, 1, &trial));
    struct kernel_call *call = kernel_trial_call(trial);
    for (int i = 0; i < problem.n_in; i++)
        call->in[i] = in[i];
    call->step = step;
    kernel_trial_run(trial);
    return trial;
}

static void check_all(const float *expected, const void *actual, int count, double tolerance)
{
    for (int i = 0; i < count; i++)
        CHECK_CLOSE(expected[i], ((const float *)actual)[i], tolerance);
}

static void batch_norm_agrees_with_pytorch(void)
{
    const struct attrs attrs = { .epsilon = 1e-5F };
    const void *const in[] = { x, scale, shift, residual };

    for (int k = 0; k < KERNELS; k++) {
        struct kernel_trial *forward =
            run(k, "batch_norm 2x3x2x2 3 3 2x3x2x2 relu", attrs, &two_images, in);
        void *const *out = kernel_trial_call(forward)->out;
        const void *const back[] = { dy, x, scale, out[1], out[0] };
        struct kernel_trial *backward =
            run(k, "batch_norm_grad 2x3x2x2 2x3x2x2 3 2x3 2x3x2x2 -> 2x3x2x2 3 3 2x3x2x2 relu",
                attrs, &two_images, back);
        void *const *grad = kernel_trial_call(backward)->out;

        check_all(y, out[0], COUNT, 1e-6);
        check_all(mean, out[1], CHANNELS, 1e-6);
        check_all(mean, out[2], CHANNELS, 1e-6);
        check_all(variance, out[3], CHANNELS, 1e-6);
        check_all(dx, grad[0], COUNT, 2e-6);
        check_all(dgamma, grad[1], CHANNELS, 2e-6);
        check_all(dbeta, grad[2], CHANNELS, 2e-6);
        check_all(dresidual, grad[3], COUNT, 0);
        kernel_trial_destroy(backward);
        kernel_trial_destroy(forward);
    }
}

static void batch_norm_with_averages_agrees_with_pytorch(void)
{
    const struct attrs attrs = { .epsilon = 1e-5F };
    const void *const in[] = { NULL, scale, shift, average, average_variance, residual };
    const void *all[KERNEL_IN];
    float four_x[COUNT];

    for (int i = 0; i < COUNT; i++)
        four_x[i] = 4 * x[i];
    memcpy(all, in, sizeof in);
    all[0] = four_x;
    for (int k = 0; k < KERNELS; k++) {
        struct kernel_trial *trial =
            run(k, "batch_norm_apply 2x3x2x2 3 3 3 3 2x3x2x2 relu6", attrs, &two_images, all);
        check_all(applied, kernel_trial_call(trial)->out[0], COUNT, 2e-6);
        kernel_trial_destroy(trial);
    }
}

/* Around a mean of thousands of deviations, floats keep few digits of x; none more may be lost. */
static void a_large_mean_costs_no_digits(void)
{
    enum { ROWS = 4096 };
    static float far[ROWS * CHANNELS];
    const struct attrs attrs = { .epsilon = 1e-5F };
    const struct kernel_step step = { .inv_batch = 1 };
    const void *const in[] = { far, scale, shift };

    for (int i = 0; i < ROWS * CHANNELS; i++) /* multiples of 1/64: exact */
        far[i] = (float)(i % CHANNELS == 0 ? 1 << 14 : -(1 << 13)) + (float)(i % 127) / 64;
    for (int k = 0; k < KERNELS; k++) {
        struct kernel_trial *trial = run(k, "batch_norm 1x3x64x64 3 3", attrs, &step, in);
        void *const *out = kernel_trial_call(trial)->out;
        for (int c = 0; c < CHANNELS; c++) {
            double sum = 0, squares = 0;
            for (int i = c; i < ROWS * CHANNELS; i += CHANNELS)
                sum += (double)far[i] / ROWS;
            for (int i = c; i < ROWS * CHANNELS; i += CHANNELS)
                squares += pow((double)far[i] - sum, 2) / ROWS;
            const double rstd = 1 / sqrt(squares + 1e-5);
            CHECK_CLOSE(1, (double)((float *)out[1])[CHANNELS + c] / rstd, 1e-6);
            CHECK_CLOSE(((double)far[c] - sum) * rstd * (double)scale[c] + (double)shift[c],
                        ((float *)out[0])[c], 5e-6);
        }
        kernel_trial_destroy(trial);
    }
}

/* One place: there is no variance, and nothing to divide by. */
static void a_single_place_is_its_own_mean(void)
{
    const struct attrs attrs = { .epsilon = 1e-5F };
    const struct kernel_step step = { .inv_batch = 1 };
    const void *const in[] = { x, scale, shift };

    for (int k = 0; k < KERNELS; k++) {
        struct kernel_trial *trial = run(k, "batch_norm 1x3x1x1 3 3", attrs, &step, in);
        void *const *out = kernel_trial_call(trial)->out;
        static const float none[CHANNELS];
        check_all(shift, out[0], CHANNELS, 0);
        check_all(x, out[2], CHANNELS, 0);
        check_all(none, out[3], CHANNELS, 0);
        kernel_trial_destroy(trial);
    }
}

static void label_smoothing_agrees_with_pytorch(void)
{
    const struct attrs attrs = { .smoothing = 0.1F };
    const struct kernel_step step = { .inv_batch = 1.0F / 3 };
    const void *const in[] = { logits, labels };

    for (int k = 0; k < KERNELS; k++) {
        struct kernel_trial *loss = run(k, "softmax_cross_entropy 3x4 3", attrs, &step, in);
        const void *const back[] = { kernel_trial_call(loss)->out[1], labels };
        struct kernel_trial *grad =
            run(k, "softmax_cross_entropy_grad 3x4 3 -> 3x4", attrs, &step, back);
        CHECK_CLOSE(smoothed_loss, *(float *)kernel_trial_call(loss)->out[0], 1e-6);
        check_all(dlogits, kernel_trial_call(grad)->out[0], 12, 1e-7);
        kernel_trial_destroy(grad);
        kernel_trial_destroy(loss);
    }
}

/* A few units in the last place over all that a float can tell from 0 and 1. */
static void sigmoid_is_accurate(void)
{
    enum { POINTS = 4000 };
    static float points[POINTS];
    const struct attrs attrs = { 0 };
    const void *const in[] = { points };

    for (int i = 0; i < POINTS - 2; i++)
        points[i] = 88 * (2 * (float)i / POINTS - 1);
    points[POINTS - 2] = -INFINITY;
    points[POINTS - 1] = INFINITY;
    for (int k = 0; k < KERNELS; k++) {
        struct kernel_trial *trial = run(k, "sigmoid 4000", attrs, &two_images, in);
        const float *out = kernel_trial_call(trial)->out[0];
        for (int i = 0; i < POINTS - 2; i++) {
            const double expected = 1 / (1 + exp(-(double)points[i]));
            if (points[i] > -87) /* below, floats are denormal, or flushed to 0 */
                CHECK_CLOSE(1, (double)out[i] / expected, 3e-7);
            else
                CHECK(out[i] >= 0 && (double)out[i] < 1.5 * expected);
        }
        CHECK(out[POINTS - 2] == 0 && out[POINTS - 1] == 1);
        kernel_trial_destroy(trial);
    }
}

const struct test tests[] = {
    { .name = "batch norm agrees with PyTorch", .run = batch_norm_agrees_with_pytorch },
    { .name = "batch norm with averages agrees with PyTorch",
      .run = batch_norm_with_averages_agrees_with_pytorch },
    { .name = "a large mean costs no digits", .run = a_large_mean_costs_no_digits },
    { .name = "a single place is its own mean", .run = a_single_place_is_its_own_mean },
    { .name = "label smoothing agrees with PyTorch",
      .run = label_smoothing_agrees_with_pytorch },
    { .name = "sigmoid is accurate", .run = sigmoid_is_accurate },
    { 0 },
};
