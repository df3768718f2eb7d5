/* SPDX-License-Identifier: MIT */
/* reference_norm_conv.c - convolutions with the batch norms before and after them: the plain ones, with images
 * in between. */
#include <math.h>
#include <string.h>

#include "kernel/cpu/reference.h"

/* What an op has, by its name. */
struct parts {
    bool is_back, has_norm, has_stats;
    int x, norm, stats; /* numbers of inputs: the image, its norm's first, the output's first */
    struct kernel_tensor image, made;
};

static struct parts parts_of(const struct kernel_problem *problem)
{
    struct parts parts = {
        .is_back = strstr(problem->op, "_grad") != NULL,
        .has_norm = strncmp(problem->op, "norm_", 5) == 0,
        .has_stats = strstr(problem->op, "_stats") != NULL,
    };

    parts.x = parts.is_back ? 2 : 0;
    parts.norm = parts.is_back ? 3 : 2;
    parts.stats = parts.has_norm ? 6 : 3;
    parts.image = problem->in[parts.x];
    parts.made = parts.is_back ? problem->in[0] : problem->out[0];
    return parts;
}

static size_t count_of(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape);
}

size_t reference_norm_conv_scratch(const struct kernel_problem *problem)
{
    const struct parts parts = parts_of(problem);

    return (2 * count_of(&parts.image) + count_of(&parts.made)) * sizeof(float);
}

/* A number before the activation. In float, as kernels have it, so that all agree on what is cut off. */
static float normalized(const struct kernel_call *call, const struct parts *parts, size_t i)
{
    const size_t channels = (size_t)parts->image.shape.dim[1], c = i % channels;
    const float *x = call->in[parts->x], *gamma = call->in[parts->norm];
    const float *beta = call->in[parts->norm + 1], *saved = call->in[parts->norm + 2];

    return fmaf(x[i] - saved[c], gamma[c] * saved[channels + c], beta[c]);
}

/* The image as the convolution sees it. */
static const float *input_of(const struct kernel_call *call, const struct parts *parts,
                             float *to)
{
    const enum activation activation = call->problem->attrs.activation;

    if (!parts->has_norm)
        return call->in[parts->x];
    for (size_t i = 0; i < count_of(&parts->image); i++) {
        float y = normalized(call, parts, i);
        if (activation != ACTIVATION_NONE && y < 0)
            y = 0;
        to[i] = activation == ACTIVATION_RELU6 && y > 6 ? 6 : y;
    }
    return to;
}

static void run_conv(const struct kernel_call *call, const char *op, const void *first,
                     const void *second, const struct kernel_tensor in[2],
                     const struct kernel_tensor *out, void *to,
                     void (*run)(const struct kernel_call *call))
{
    struct kernel_problem problem = {
        .op = op, .n_in = 2, .n_out = 1, .in = { in[0], in[1] }, .out = { *out }
    };
    const struct kernel_call inner = {
        .problem = &problem, .in = { first, second }, .out = { to }, .step = call->step
    };

    problem.attrs = call->problem->attrs;
    problem.attrs.activation = ACTIVATION_NONE;
    run(&inner);
}

/* Moments of each channel of z, and what batch_norm has of them. */
static void take_moments(const struct kernel_call *call, const struct parts *parts)
{
    const size_t channels = (size_t)parts->made.shape.dim[1], count = count_of(&parts->made);
    const size_t places = count / channels;
    const double n = (double)places;
    const double share = (double)parts->made.shape.dim[0] * (double)call->step->inv_batch;
    const float *z = call->out[0];
    float *saved = call->out[1], *seen_mean = call->out[2], *seen_variance = call->out[3];

    for (size_t c = 0; c < channels; c++) {
        double mean = 0, squares = 0;
        for (size_t i = c; i < count; i += channels)
            mean += (double)z[i] / n;
        for (size_t i = c; i < count; i += channels)
            squares += ((double)z[i] - mean) * ((double)z[i] - mean);
        saved[c] = (float)mean;
        saved[channels + c] =
            (float)(1 / sqrt(squares / n + (double)call->problem->attrs.epsilon));
        seen_mean[c] = (float)(mean * share);
        seen_variance[c] = (float)(squares / (n > 1 ? n - 1 : 1) * share);
    }
}

void reference_norm_conv(const struct kernel_call *call)
{
    const struct parts parts = parts_of(call->problem);

    run_conv(call, "conv2d", input_of(call, &parts, call->scratch), call->in[1],
             call->problem->in, &call->problem->out[0], call->out[0], reference_conv2d);
    if (parts.has_stats)
        take_moments(call, &parts);
}

/* dz with what flows back through the moments of z. */
static const float *gradient_of(const struct kernel_call *call, const struct parts *parts,
                                float *to)
{
    const size_t channels = (size_t)parts->made.shape.dim[1], count = count_of(&parts->made);
    const float *dz = call->in[0];

    if (!parts->has_stats)
        return dz;
    const size_t places = count / channels;
    const double n = (double)places;
    const float *z = call->in[parts->stats], *saved = call->in[parts->stats + 1];
    const float *dsaved = call->in[parts->stats + 2];
    for (size_t i = 0; i < count; i++) {
        const size_t c = i % channels;
        const double rstd = (double)saved[channels + c], dmean = (double)dsaved[c];
        const double slope = -(double)dsaved[channels + c] * rstd * rstd * rstd;
        to[i] =
            (float)((double)dz[i] + (dmean + slope * ((double)z[i] - (double)saved[c])) / n);
    }
    return to;
}

/* dx and the gradients of the norm's numbers, from that of the normalized image. */
static void go_back(const struct kernel_call *call, const struct parts *parts, const float *da)
{
    const size_t channels = (size_t)parts->image.shape.dim[1], count = count_of(&parts->image);
    const enum activation activation = call->problem->attrs.activation;
    const float *x = call->in[parts->x], *gamma = call->in[parts->norm];
    const float *saved = call->in[parts->norm + 2];
    float *dx = call->out[0], *dgamma = call->out[2], *dbeta = call->out[3];
    float *dsaved = call->out[4];

    for (size_t c = 0; c < channels; c++) {
        const double rstd = (double)saved[channels + c], scale = (double)gamma[c] * rstd;
        double sum = 0, product = 0;
        for (size_t i = c; i < count; i += channels) {
            const float y = normalized(call, parts, i);
            const bool is_cut = (activation != ACTIVATION_NONE && y <= 0) ||
                                (activation == ACTIVATION_RELU6 && y >= 6);
            const double d = is_cut ? 0 : (double)da[i];
            dx[i] = (float)(d * scale);
            sum += d;
            product += d * ((double)x[i] - (double)saved[c]);
        }
        dgamma[c] = (float)(product * rstd);
        dbeta[c] = (float)sum;
        dsaved[c] = (float)(-scale * sum);
        dsaved[channels + c] = (float)((double)gamma[c] * product);
    }
}

void reference_norm_conv_grad(const struct kernel_call *call)
{
    const struct parts parts = parts_of(call->problem);
    float *a = call->scratch, *da = a + count_of(&parts.image);
    const float *seen = input_of(call, &parts, a);
    const float *dz = gradient_of(call, &parts, da + count_of(&parts.image));
    const struct kernel_tensor weight[] = { parts.image, parts.made };

    run_conv(call, "conv2d_grad_weight", seen, dz, weight, &call->problem->out[1], call->out[1],
             reference_conv2d_grad_weight);
    run_conv(call, "conv2d_grad_input", dz, call->in[1], call->problem->in,
             &call->problem->out[0], parts.has_norm ? (void *)da : call->out[0],
             reference_conv2d_grad_input);
    if (parts.has_norm)
        go_back(call, &parts, da);
}
