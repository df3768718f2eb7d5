/* SPDX-License-Identifier: MIT */
/* optim_test.c - schedules and the numbers of a step. */
#include <math.h>

#include "base/test.h"
#include "optim/optim.h"

static void test_schedules_take_known_values(void)
{
    const struct schedule constant = { .kind = SCHEDULE_CONSTANT, .lr = 0.1 };
    const struct schedule steps = { .kind = SCHEDULE_STEP, .lr = 1, .gamma = 0.5, .every = 10 };
    const struct schedule cosine = {
        .kind = SCHEDULE_COSINE, .lr = 1, .final_lr = 0.2, .warmup = 4, .total = 104
    };
    const struct schedule gradual = { .lr = 0.9, .start_lr = 0.1, .warmup = 4 };

    CHECK_CLOSE(0.1, schedule_lr(&constant, 12345), 1e-15);
    CHECK_CLOSE(1, schedule_lr(&steps, 9), 1e-15);
    CHECK_CLOSE(0.5, schedule_lr(&steps, 10), 1e-15);
    CHECK_CLOSE(0.25, schedule_lr(&steps, 29), 1e-15);
    CHECK_CLOSE(0.25, schedule_lr(&cosine, 0), 1e-15); /* warm-up: 1/4, 2/4, ... */
    CHECK_CLOSE(1, schedule_lr(&cosine, 3), 1e-15);
    CHECK_CLOSE(0.3, schedule_lr(&gradual, 0), 1e-15); /* from 0.1 in four steps of 0.2 */
    CHECK_CLOSE(0.7, schedule_lr(&gradual, 2), 1e-15);
    CHECK_CLOSE(0.9, schedule_lr(&gradual, 3), 1e-15);
    CHECK_CLOSE(0.9, schedule_lr(&gradual, 4), 1e-15);
    CHECK_CLOSE(1, schedule_lr(&cosine, 4), 1e-15);
    CHECK_CLOSE(0.6, schedule_lr(&cosine, 54), 1e-12);
    CHECK_CLOSE(0.2, schedule_lr(&cosine, 104), 1e-12);
    CHECK_CLOSE(0.2, schedule_lr(&cosine, 500), 1e-12);
}

static void test_names_are_refused_or_found(void)
{
    enum schedule_kind kind = SCHEDULE_CONSTANT;

    CHECK_OK(schedule_parse("cosine", &kind));
    CHECK_INT(SCHEDULE_COSINE, kind);
    CHECK_STATUS(STATUS_USAGE, schedule_parse("cosinus", &kind));
    CHECK_MESSAGE("cosinus");
    CHECK(optim_find("adamw") != NULL);
    CHECK(optim_find("adam3") == NULL);
}

static void test_adam_corrections_follow_the_step(void)
{
    struct optim_config config = { .optimizer = optim_find("adam"),
                                   .attrs = optim_find("adam")->defaults,
                                   .schedule = { .lr = 1e-3 } };
    struct kernel_update_step first = optim_step(&config, 0), tenth = optim_step(&config, 9);

    CHECK_CLOSE(10, first.correction1, 1e-5);
    CHECK_CLOSE(1000, first.correction2, 1e-4);
    CHECK_CLOSE(1 / (1 - pow(0.9, 10)), tenth.correction1, 1e-6);
    CHECK(first.first && !tenth.first);
}

static void test_sgd_without_momentum_keeps_no_state(void)
{
    struct optim_config config = { .optimizer = optim_find("sgd"),
                                   .attrs = optim_find("sgd")->defaults };

    CHECK_INT(1, optim_states(&config));
    config.attrs.momentum = 0;
    CHECK_INT(0, optim_states(&config));
    config.optimizer = optim_find("lars");
    CHECK_INT(0, optim_states(&config));
    config.optimizer = optim_find("lamb");
    CHECK_INT(2, optim_states(&config));
}

const struct test tests[] = {
    { .name = "schedules take known values", .run = test_schedules_take_known_values },
    { .name = "names are refused or found", .run = test_names_are_refused_or_found },
    { .name = "adam's corrections follow the step",
      .run = test_adam_corrections_follow_the_step },
    { .name = "sgd without momentum keeps no state",
      .run = test_sgd_without_momentum_keeps_no_state },
    { 0 },
};
