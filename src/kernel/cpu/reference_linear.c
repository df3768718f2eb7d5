/* SPDX-License-Identifier: MIT */
/* reference_linear.c - y = x w' + b and its gradients.
 *
 * x (m,k), y (m,n); w has shape (n,k) and lies as k rows of n (LAYOUT_IO) or n rows of k
 * (LAYOUT_PLAIN).
 */
#include "kernel/cpu/reference.h"

/* Where the weight from input l to output j lies. */
static int64_t weight_at(const struct kernel_tensor *w, int64_t j, int64_t l)
{
    return w->layout == LAYOUT_PLAIN ? j * w->shape.dim[1] + l : l * w->shape.dim[0] + j;
}

void reference_linear(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem;
    const int64_t m = problem->in[0].shape.dim[0], k = problem->in[0].shape.dim[1];
    const int64_t n = problem->out[0].shape.dim[1];
    const float *x = call->in[0], *w = call->in[1];
    const float *b = problem->n_in > 2 ? call->in[2] : NULL;
    float *y = call->out[0];

    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = b != NULL ? (double)b[j] : 0.0;
            for (int64_t l = 0; l < k; l++)
                sum += (double)x[i * k + l] * (double)w[weight_at(&problem->in[1], j, l)];
            if (problem->attrs.activation == ACTIVATION_RELU && sum < 0)
                sum = 0;
            y[i * n + j] = (float)sum;
        }
    }
}

void reference_linear_grad_input(const struct kernel_call *call)
{
    const int64_t m = call->problem->in[0].shape.dim[0], n = call->problem->in[0].shape.dim[1];
    const int64_t k = call->problem->out[0].shape.dim[1];
    const float *dy = call->in[0], *w = call->in[1];
    float *dx = call->out[0];

    for (int64_t i = 0; i < m; i++) {
        for (int64_t l = 0; l < k; l++) {
            double sum = 0;
            for (int64_t j = 0; j < n; j++)
                sum +=
                    (double)dy[i * n + j] * (double)w[weight_at(&call->problem->in[1], j, l)];
            dx[i * k + l] = (float)sum;
        }
    }
}

void reference_sums(const float *x, int64_t rows, int64_t columns, float *out)
{
    for (int64_t j = 0; j < columns; j++) {
        double sum = 0;
        for (int64_t i = 0; i < rows; i++)
            sum += (double)x[i * columns + j];
        out[j] = (float)sum;
    }
}

void reference_sum_rows(const struct kernel_call *call)
{
    const int64_t *dim = call->problem->in[0].shape.dim;

    reference_sums(call->in[0], dim[0], dim[1], call->out[0]);
}

void reference_linear_grad_weight(const struct kernel_call *call)
{
    const int64_t m = call->problem->in[0].shape.dim[0], k = call->problem->in[0].shape.dim[1];
    const int64_t n = call->problem->in[1].shape.dim[1];
    const float *x = call->in[0], *dy = call->in[1];
    float *dw = call->out[0];
    float *db = call->problem->n_out > 1 ? call->out[1] : NULL;

    for (int64_t l = 0; l < k; l++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t i = 0; i < m; i++)
                sum += (double)x[i * k + l] * (double)dy[i * n + j];
            dw[weight_at(&call->problem->out[0], j, l)] = (float)sum;
        }
    }
    if (db != NULL)
        reference_sums(dy, m, n, db);
}

/* Products that end with more. pre is rounded before gelu sees it, as gelu_tanh by itself would find it. */
void reference_linear_gelu(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->out[0].shape);
    float *y = call->out[0], *pre = call->out[1];

    reference_linear(call);
    for (int64_t i = 0; i < count; i++) {
        pre[i] = y[i];
        y[i] = (float)reference_gelu_tanh_at((double)pre[i]);
    }
}

void reference_linear_add(const struct kernel_call *call)
{
    const int64_t count = shape_count(&call->problem->out[0].shape);
    const float *residual = call->in[3];
    float *y = call->out[0];

    reference_linear(call);
    for (int64_t i = 0; i < count; i++)
        y[i] += residual[i];
}

void reference_linear_grad_through(const struct kernel_call *call)
{
    const bool is_relu = call->problem->attrs.activation == ACTIVATION_RELU;
    const int64_t count = shape_count(&call->problem->out[0].shape);
    const float *kept = call->in[2];
    float *dx = call->out[0];

    reference_linear_grad_input(call);
    for (int64_t i = 0; i < count; i++) {
        if (is_relu)
            dx[i] = kept[i] > 0 ? dx[i] : 0;
        else
            dx[i] = (float)((double)dx[i] * reference_gelu_tanh_slope((double)kept[i]));
    }
    if (call->problem->n_out > 1) {
        const struct shape *shape = &call->problem->out[0].shape;
        reference_sums(dx, shape->dim[0], shape->dim[1], call->out[1]);
    }
}
