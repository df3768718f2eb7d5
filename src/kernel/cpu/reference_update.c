/* SPDX-License-Identifier: MIT */
/* reference_update.c - the optimizers' updates, operation by operation as update.h has them.
 *
 * The fast ones perform the same operations in the same order on each element.
 */
#include <math.h>

#include "kernel/cpu/reference.h"

void reference_sgd_update(float *param, const float *grad, float *const state[KERNEL_STATES],
                          size_t count, const struct attrs *attrs,
                          const struct kernel_update_step *step)
{
    for (size_t i = 0; i < count; i++) {
        const float g = step->scale * grad[i] + attrs->weight_decay * param[i];
        float d = g;

        if (attrs->momentum != 0) {
            float *m = &state[0][i];
            *m = step->first ? g : attrs->momentum * *m + g;
            d = attrs->nesterov ? g + attrs->momentum * *m : *m;
        }
        param[i] = param[i] - step->lr * d;
    }
}

void reference_adam_update(float *param, const float *grad, float *const state[KERNEL_STATES],
                           size_t count, const struct attrs *attrs,
                           const struct kernel_update_step *step)
{
    const float rest1 = 1 - attrs->beta1, rest2 = 1 - attrs->beta2;
    const float rate = step->lr * step->correction1;

    for (size_t i = 0; i < count; i++) {
        float p = param[i], g = step->scale * grad[i];
        float *m = &state[0][i], *v = &state[1][i];

        if (attrs->decoupled)
            p = p - step->lr * attrs->weight_decay * p;
        else
            g = g + attrs->weight_decay * p;
        *m = attrs->beta1 * *m + rest1 * g;
        *v = attrs->beta2 * *v + rest2 * g * g;
        param[i] = p - rate * *m / (sqrtf(*v * step->correction2) + attrs->epsilon);
    }
}

void reference_average_update(float *param, const float *grad,
                              float *const state[KERNEL_STATES], size_t count,
                              const struct attrs *attrs, const struct kernel_update_step *step)
{
    (void)state, (void)step;
    for (size_t i = 0; i < count; i++)
        param[i] = attrs->momentum * grad[i] + (1 - attrs->momentum) * param[i];
}

void reference_lars_update(float *param, const float *grad, float *const state[KERNEL_STATES],
                           size_t count, const struct attrs *attrs,
                           const struct kernel_update_step *step)
{
    for (size_t i = 0; i < count; i++) {
        const float g = step->trust * (step->scale * grad[i] + attrs->weight_decay * param[i]);
        float d = g;

        if (attrs->momentum != 0) {
            float *m = &state[0][i];
            *m = step->first ? g : attrs->momentum * *m + g;
            d = attrs->nesterov ? g + attrs->momentum * *m : *m;
        }
        param[i] = param[i] - step->lr * d;
    }
}

void reference_lamb_direction(const float *param, const float *grad,
                              float *const state[KERNEL_STATES], float *out, size_t count,
                              const struct attrs *attrs, const struct kernel_update_step *step)
{
    const float rest1 = 1 - attrs->beta1, rest2 = 1 - attrs->beta2;

    for (size_t i = 0; i < count; i++) {
        const float g = step->scale * grad[i];
        float *m = &state[0][i], *v = &state[1][i];

        *m = attrs->beta1 * *m + rest1 * g;
        *v = attrs->beta2 * *v + rest2 * g * g;
        out[i] = step->correction1 * *m / (sqrtf(*v * step->correction2) + attrs->epsilon) +
                 attrs->weight_decay * param[i];
    }
}

void reference_lamb_update(float *param, const float *grad, float *const state[KERNEL_STATES],
                           size_t count, const struct attrs *attrs,
                           const struct kernel_update_step *step)
{
    const float rate = step->lr * step->trust;

    (void)state, (void)attrs;
    for (size_t i = 0; i < count; i++)
        param[i] = param[i] - rate * grad[i];
}
