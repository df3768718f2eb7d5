/* SPDX-License-Identifier: MIT */
/* recurrent_test.c - recurrent layers against PyTorch's numbers (tests/golden/recurrent.py), and the
 * exponentials of their cells against exact ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/test.h"
#include "kernel/cpu/cell.h"
#include "kernel/measure.h"

enum { GOLDEN_MAX = 1 << 20 };
static const double TOLERANCE =
    2e-6; /* of the largest number of a tensor; inputs are rounded */

static struct json *read_golden(void)
{
    struct json *json;
    char *text;
    size_t length;

    CHECK_OK(file_read(GOLDEN "/recurrent.json", GOLDEN_MAX, &text, &length));
    CHECK_OK(json_parse(text, length, &json));
    mem_free(text);
    return json;
}

static void fill(const struct kernel_tensor *tensor, const struct json_value *numbers,
                 void *data)
{
    CHECK_INT(shape_count(&tensor->shape), (int64_t)numbers->count);
    for (size_t i = 0; i < numbers->count; i++) {
        if (tensor->dtype == DTYPE_I32)
            ((int32_t *)data)[i] = (int32_t)numbers->items[i].number;
        else
            ((float *)data)[i] = (float)numbers->items[i].number;
    }
}

static void check_output(const struct kernel *kernel, const char *problem, int number,
                         const struct json_value *numbers, const float *actual)
{
    double scale = 1;

    for (size_t i = 0; i < numbers->count; i++)
        scale = fabs(numbers->items[i].number) > scale ? fabs(numbers->items[i].number) : scale;
    for (size_t i = 0; i < numbers->count; i++) {
        if (!(fabs(numbers->items[i].number - (double)actual[i]) <= TOLERANCE * scale))
            test_fail(__FILE__, __LINE__,
                      "%s: output %d of \"%s\" at %zu is %.9g, PyTorch has %.9g", kernel->name,
                      number, problem, i, (double)actual[i], numbers->items[i].number);
    }
}

static void check_case(const struct kernel *kernel, const struct kernel_problem *problem,
                       const struct json_value *item)
{
    const struct json_value *in = json_get(item, "in"), *out = json_get(item, "out");
    struct kernel_trial *trial;

    CHECK_OK(kernel_trial_create(kernel, problem, KERNEL_FILL_NORMAL, 1, &trial));
    struct kernel_call *call = kernel_trial_call(trial);
    CHECK_INT(problem->n_in, (int)in->count);
    CHECK_INT(problem->n_out, (int)out->count);
    for (int i = 0; i < problem->n_in; i++)
        fill(&problem->in[i], &in->items[i], (void *)(uintptr_t)call->in[i]);
    kernel_trial_run(trial);
    for (int i = 0; i < problem->n_out; i++) {
        if (out->items[i].kind == JSON_ARRAY)
            check_output(kernel, json_text(item, "problem", ""), i, &out->items[i],
                         call->out[i]);
    }
    kernel_trial_destroy(trial);
}

static void every_kernel_agrees_with_pytorch(void)
{
    struct json *json = read_golden();
    const struct json_value *cases = json_get(json_root(json), "cases");
    int checked = 0;

    for (size_t c = 0; c < cases->count; c++) {
        struct kernel_problem problem;
        const struct kernel *kernel;

        CHECK_OK(kernel_parse(json_text(&cases->items[c], "problem", ""), &problem));
        for (size_t k = 0; (kernel = kernel_at(k)) != NULL; k++) {
            if (strcmp(kernel->op, problem.op) != 0 ||
                (kernel->can_run != NULL && !kernel->can_run(&problem)))
                continue;
            check_case(kernel, &problem, &cases->items[c]);
            checked++;
        }
    }
    CHECK(checked >= (int)cases->count && cases->count == 6);
    json_destroy(json);
}

/* The largest relative error over floats of both signs from the smallest to `most`. */
static double worst_error(void (*array)(const float *, float *, size_t),
                          double (*exact)(double), float most, bool not_positive)
{
    enum { COUNT = 1024 };
    float x[COUNT], y[COUNT];
    double worst = 0;

    for (uint32_t bits = 0x00800000; bits < 0x7f800000; bits += 977 * COUNT) {
        for (uint32_t i = 0; i < COUNT; i++) {
            const uint32_t word = bits + 977 * i;
            memcpy(&x[i], &word, sizeof word);
            x[i] = x[i] > most ? most : x[i];
            x[i] = not_positive || i % 2 ? -x[i] : x[i];
        }
        array(x, y, COUNT);
        for (int i = 0; i < COUNT; i++) {
            const double right = exact((double)x[i]);
            worst = fmax(worst, fabs((double)y[i] - right) / fabs(right));
        }
    }
    return worst;
}

static double exact_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void exponentials_are_accurate(void)
{
    const struct cell_isa *cell = cell_current();
    const float odd[] = { NAN, INFINITY, -INFINITY };
    float y[3];

    if (cell == NULL)
        test_skip("no vectors of own");
    CHECK(worst_error(cell->exp_not_positive, exp, 87, true) < 1.5e-7);
    CHECK(worst_error(cell->sigmoid, exact_sigmoid, 87, false) < 2.5e-7);
    CHECK(worst_error(cell->tanh, tanh, 3e38F, false) < 2.5e-7);
    cell->tanh(odd, y, 3);
    CHECK(isnan(y[0]) && y[1] == 1 && y[2] == -1);
    cell->sigmoid(odd, y, 3);
    CHECK(isnan(y[0]) && y[1] == 1 && y[2] >= 0 && y[2] < 1e-37F);
}

const struct test tests[] = {
    { .name = "every kernel agrees with PyTorch", .run = every_kernel_agrees_with_pytorch },
    { .name = "exponentials are accurate", .run = exponentials_are_accurate },
    { 0 },
};
