/* SPDX-License-Identifier: MIT */
/* update.c - picks the code of this processor for optimizer updates and sums. */
#include "kernel/update.h"

#include <string.h>

#include "kernel/cpu/processor.h"
#include "kernel/cpu/reference.h"
#include "kernel/cpu/rows.h"

static const struct kernel_update_code *code(void)
{
#ifdef __x86_64__
    static const struct kernel_update_code *const codes[PROCESSOR_COUNT] = {
        &kernel_update_code_generic, &kernel_update_code_avx2, &kernel_update_code_avx512,
        &kernel_update_code_avx512
    };
    return codes[processor_current()];
#else
    return &kernel_update_code_generic;
#endif
}

static void run_sgd(float *param, const float *grad, float *const state[KERNEL_STATES],
                    size_t count, const struct attrs *attrs,
                    const struct kernel_update_step *step)
{
    code()->sgd(param, grad, state, count, attrs, step);
}

static void run_adam(float *param, const float *grad, float *const state[KERNEL_STATES],
                     size_t count, const struct attrs *attrs,
                     const struct kernel_update_step *step)
{
    code()->adam(param, grad, state, count, attrs, step);
}

static void run_average(float *param, const float *grad, float *const state[KERNEL_STATES],
                        size_t count, const struct attrs *attrs,
                        const struct kernel_update_step *step)
{
    code()->average(param, grad, state, count, attrs, step);
}

static void run_lars(float *param, const float *grad, float *const state[KERNEL_STATES],
                     size_t count, const struct attrs *attrs,
                     const struct kernel_update_step *step)
{
    code()->lars(param, grad, state, count, attrs, step);
}

static void run_lamb(float *param, const float *grad, float *const state[KERNEL_STATES],
                     size_t count, const struct attrs *attrs,
                     const struct kernel_update_step *step)
{
    code()->lamb(param, grad, state, count, attrs, step);
}

static void run_lamb_direction(const float *param, const float *grad,
                               float *const state[KERNEL_STATES], float *out, size_t count,
                               const struct attrs *attrs, const struct kernel_update_step *step)
{
    code()->lamb_direction(param, grad, state, out, count, attrs, step);
}

const struct kernel_update *kernel_update_find(const char *op)
{
    static const struct kernel_update updates[] = {
        { "sgd_update", 1, run_sgd, reference_sgd_update, NULL, NULL },
        { "adam_update", 2, run_adam, reference_adam_update, NULL, NULL },
        { "average_update", 0, run_average, reference_average_update, NULL, NULL },
        { "lars_update", 1, run_lars, reference_lars_update, NULL, NULL },
        { "lamb_update", 2, run_lamb, reference_lamb_update, run_lamb_direction,
          reference_lamb_direction },
    };

    for (size_t i = 0; i < sizeof updates / sizeof updates[0]; i++) {
        if (strcmp(updates[i].op, op) == 0)
            return &updates[i];
    }
    return NULL;
}

void kernel_add(float *out, const float *a, const float *b, size_t count)
{
    code()->add(out, a, b, count);
}

void kernel_sum_rows(const struct kernel_row_list *lists, int n_lists, size_t width, float *out)
{
    code()->sum_rows(lists, n_lists, width, out);
}

void kernel_fetch_to_write(float *const *vectors, int n_vectors, size_t at, size_t count)
{
    code()->fetch_to_write(vectors, n_vectors, at, count);
}

double kernel_sum_squares(const float *data, size_t count)
{
    return code()->sum_squares(data, count);
}

float kernel_clip_scale(double norm, float most)
{
    const double factor = (double)most / (norm + 1e-6);

    return factor < 1 ? (float)factor : 1;
}
