/* SPDX-License-Identifier: MIT */
/* update_test.c - updates and sums over flat ranges: their formulas, and the same bits however
 * cut. */
#include <string.h>

#include "base/test.h"
#include "kernel/cpu/rows.h"
#include "kernel/update.h"

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
                                         .first = (int)rng_below(rng, 2),
                                         .trust = rng_below(rng, 4) == 0 ? 1 : rng_float(rng) };
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
    static const char *const ops[] = { "sgd_update", "adam_update", "average_update",
                                       "lars_update", "lamb_update" };
    float whole[VECTORS][VECTOR], expected[VECTORS][VECTOR], cut[VECTORS][VECTOR];
    struct attrs attrs;
    struct kernel_update_step step;

    for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
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

static void directions_give_the_bits_of_the_reference_however_cut(struct rng *rng)
{
    const struct kernel_update *lamb = kernel_update_find("lamb_update");
    float whole[VECTORS][VECTOR], expected[VECTORS][VECTOR], out[VECTOR] = { 0 };
    const size_t count = rng_below(rng, VECTOR + 1);
    const size_t middle = rng_below(rng, count / 16 + 1) * 16;
    struct attrs attrs;
    struct kernel_update_step step;

    random_update(rng, &attrs, &step);
    fill_vectors(rng, whole);
    memcpy(expected, whole, sizeof whole);
    float *const expected_state[KERNEL_STATES] = { expected[2], expected[3] };
    lamb->direct_reference(expected[0], expected[1], expected_state, expected[1], count, &attrs,
                           &step);
    float *const left[KERNEL_STATES] = { whole[2], whole[3] };
    float *const right[KERNEL_STATES] = { whole[2] + middle, whole[3] + middle };
    lamb->direct(whole[0], whole[1], left, out, middle, &attrs, &step);
    lamb->direct(whole[0] + middle, whole[1] + middle, right, whole[1] + middle, count - middle,
                 &attrs, &step);
    memcpy(whole[1], out, middle * sizeof *out);
    CHECK(memcmp(expected, whole, sizeof whole) == 0);
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

    /* LARS with trust 0.5: g = 0.5 * (0.5 + 0.1), m = g; then g = 0.5 * (0.25 + 0.097). */
    param = 1;
    step.first = 1;
    step.trust = 0.5f;
    kernel_update_find("lars_update")->run(&param, &grad, state, 1, &sgd, &step);
    CHECK_CLOSE(0.97, param, 1e-6);
    step.first = 0;
    grad = 0.25f;
    kernel_update_find("lars_update")->run(&param, &grad, state, 1, &sgd, &step);
    CHECK_CLOSE(0.97 - 0.1 * (0.9 * 0.3 + 0.1735), param, 1e-6);

    /* LAMB: a first direction of Adam is 1 long; decay of 0.1 comes to it, then lr and trust. */
    param = 1;
    m = v = 0;
    grad = 0.5f;
    kernel_update_find("lamb_update")->direct(&param, &grad, state, &grad, 1, &adam, &step);
    CHECK_CLOSE(1.1, grad, 1e-5);
    CHECK_CLOSE(0.05, m, 1e-6);
    kernel_update_find("lamb_update")->run(&param, &grad, state, 1, &adam, &step);
    CHECK_CLOSE(1 - 0.1 * 0.5 * 1.1, param, 1e-5);

    param = 2;
    grad = 12;
    const struct attrs average = { .momentum = 0.1f };
    kernel_update_find("average_update")->run(&param, &grad, state, 1, &average, &step);
    CHECK_CLOSE(3, param, 1e-6);
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

const struct test tests[] = {
    { .name = "updates follow their formulas", .run = updates_follow_their_formulas },
    { .name = "updates give the bits of the reference however cut",
      .property = updates_give_the_bits_of_the_reference_however_cut },
    { .name = "directions give the bits of the reference however cut",
      .property = directions_give_the_bits_of_the_reference_however_cut },
    { .name = "sums do not depend on the instruction set",
      .property = sums_do_not_depend_on_the_instruction_set },
    { 0 },
};
