/* SPDX-License-Identifier: MIT */
/* algorithm_test.c - aggregations and servers' moves against numbers worked out by hand. */
#include "fed/algorithm.h"

#include <math.h>
#include <stdio.h>

#include "base/test.h"
#include "fed/terms.h"

enum { LENGTH = 3 };

static void run(const char *text, const float (*updates)[LENGTH], int n, float *out)
{
    const float *rows[16];
    struct fed_aggregation how;

    for (int i = 0; i < n; i++)
        rows[i] = updates[i];
    CHECK_OK(fed_aggregation_parse(text, &how));
    CHECK_OK(how.kind->run(&how, rows, n, LENGTH, out));
}

static const float five[5][LENGTH] = {
    { 1, 10, 0 }, { 2, 20, 0 }, { 3, 30, 0 }, { 4, 40, 0 }, { 1000, -1000, 1 }
};

static void test_aggregations(void)
{
    float out[LENGTH];

    run("mean", five, 4, out);
    CHECK(out[0] == 2.5F && out[1] == 25);
    run("median", five, 5, out);
    CHECK(out[0] == 3 && out[1] == 20 && out[2] == 0);
    run("median", five, 4, out);
    CHECK(out[0] == 2.5F && out[1] == 25);
    run("trimmed:0.2", five, 5, out); /* without 1 and 1000 */
    CHECK(out[0] == 3 && out[1] == 20 && out[2] == 0);
    run("trimmed:0", five, 4, out);
    CHECK(out[0] == 2.5F);
    run("krum:1", five, 5, out); /* the two in the middle are alike: the first of them */
    CHECK(out[0] == 2 && out[1] == 20);
    run("multikrum:1,2", five, 5, out);
    CHECK(out[0] == 2.5F && out[1] == 25);
}

static void test_too_few_for_krum(void)
{
    const float *rows[4] = { five[0], five[1], five[2], five[3] };
    struct fed_aggregation how;
    float out[LENGTH];

    CHECK_OK(fed_aggregation_parse("krum:1", &how));
    CHECK_STATUS(STATUS_USAGE, how.kind->run(&how, rows, 4, LENGTH, out));
    static const char *const bad[] = { "",         "mean:1",  "trimmed",     "trimmed:0.5",
                                       "krum:",    "krum:x",  "multikrum:1", "multikrum:1,0",
                                       "median:2", "krum:-1", "meann" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(STATUS_USAGE, fed_aggregation_parse(bad[i], &how));
}

/* Two rounds of each with the update 1, then -2, from the parameter 0. */
static float move(const char *algorithm, double lr)
{
    static const float updates[] = { 1, -2 };
    struct fed_terms terms;
    float parameter = 0, m, v;
    float *const state[FED_STATES] = { &m, &v };

    fed_terms_init(&terms);
    snprintf(terms.algorithm, sizeof terms.algorithm, "%s", algorithm);
    terms.server_lr = lr;
    terms.server_momentum = 0.5;
    terms.beta1 = 0.5;
    terms.beta2 = 0.75;
    terms.tau = 0.5;
    fed_algorithm_begin(&terms, 1, state);
    for (int i = 0; i < 2; i++)
        fed_algorithm_find(algorithm)->apply(&terms, fed_algorithm_lr(&terms), &updates[i], 1,
                                             &parameter, state);
    return parameter;
}

static void test_moves(void)
{
    CHECK_CLOSE(-1, move("fedavg", 1), 1e-6);
    CHECK_CLOSE(-0.5, move("fedavg", 0.5), 1e-6);
    CHECK_CLOSE(1 + (0.5 - 2), move("fedavgm", 1), 1e-6);
    /* m = 0.5, v = 0.75 0.25 + 0.25 1 = 0.4375; then m = 0.25 - 1, v = 0.75 0.4375 + 0.25 4 */
    const double adam = 0.5 / (sqrt(0.4375) + 0.5) - 0.75 / (sqrt(1.328125) + 0.5);
    CHECK_CLOSE(adam, move("fedadam", 1), 1e-6);
    /* v = 0.25 + 0.25 1; then 0.5 + 0.25 4 */
    const double yogi = 0.5 / (sqrt(0.5) + 0.5) - 0.75 / (sqrt(1.5) + 0.5);
    CHECK_CLOSE(yogi, move("fedyogi", 1), 1e-6);
}

static void test_rows(void)
{
    for (int i = 0; fed_algorithms[i]; i++) {
        const struct fed_algorithm *row = fed_algorithms[i];
        CHECK(fed_algorithm_find(row->name) == row);
        CHECK(row->summary && row->apply && row->default_lr > 0 && row->n_vectors >= 1);
    }
    CHECK(fed_algorithm_find("fed") == NULL);
    CHECK(fed_staleness_weight(0) == 1 && fed_staleness_weight(3) == 0.5);
}

static void test_when_gradients_are_asked_for(void)
{
    struct fed_terms terms;

    fed_terms_init(&terms);
    CHECK(!fed_algorithm_asks_gradient(&terms));
    terms.batch = 0;
    CHECK(fed_algorithm_asks_gradient(&terms));
    terms.epochs = 2;
    CHECK(!fed_algorithm_asks_gradient(&terms));
    terms.steps = 1;
    CHECK(fed_algorithm_asks_gradient(&terms));
    terms.secure = true;
    CHECK(!fed_algorithm_asks_gradient(&terms));
    terms.secure = false;
    terms.momentum = 0.9;
    CHECK(!fed_algorithm_asks_gradient(&terms));
}

const struct test tests[] = {
    { .name = "many updates become one", .run = test_aggregations },
    { .name = "what cannot be aggregated is refused", .run = test_too_few_for_krum },
    { .name = "servers move as the papers say", .run = test_moves },
    { .name = "every algorithm is found", .run = test_rows },
    { .name = "gradients are asked for where one step is all",
      .run = test_when_gradients_are_asked_for },
    { 0 },
};
