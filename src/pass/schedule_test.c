/* SPDX-License-Identifier: MIT */
/* schedule_test.c - schedules of pipelines: every shard once, in order, without deadlock, as long as the formula
 * says. */
#include "pass/schedule.h"

#include "base/mem.h"
#include "base/test.h"

enum { MOST_ACTIONS = 2048, MOST_PIECES = 64 };

static struct pipe_config random_config(struct rng *rng)
{
    struct pipe_config config = {
        .kind = (enum pipe_kind)rng_below(rng, PIPE_KINDS),
        .stages = 1 + (int)rng_below(rng, 8),
        .chunks = 1,
        .shards = 1 + (int64_t)rng_below(rng, 20),
    };

    if (config.kind == PIPE_INTERLEAVED) {
        config.chunks = 1 + (int)rng_below(rng, 4);
        config.shards = config.stages * (1 + (int64_t)rng_below(rng, 5));
    }
    return config;
}

static void test_every_shard_goes_once_and_in_order(struct rng *rng)
{
    const struct pipe_config config = random_config(rng);
    struct pipe_action actions[MOST_ACTIONS];

    CHECK_OK(pipe_check(&config));
    for (int stage = 0; stage < config.stages; stage++) {
        int64_t next[2][PIPE_CHUNKS] = { 0 };

        pipe_schedule(&config, stage, actions);
        for (int64_t i = 0; i < pipe_count(&config); i++) {
            const struct pipe_action *a = &actions[i];
            CHECK_INT(next[a->is_backward][a->chunk]++, a->shard);
            if (a->is_backward) /* after its own forward */
                CHECK(next[0][a->chunk] > a->shard);
        }
        for (int c = 0; c < config.chunks; c++)
            CHECK(next[0][c] == config.shards && next[1][c] == config.shards);
    }
}

static double simulate_equal(const struct pipe_config *config, double forward, double backward)
{
    double f[MOST_PIECES], b[MOST_PIECES], seconds;

    for (int i = 0; i < MOST_PIECES; i++) {
        f[i] = forward;
        b[i] = backward;
    }
    CHECK_OK(pipe_simulate(config, &(struct pipe_times){ .forward = f, .backward = b }, NULL,
                           &seconds));
    return seconds;
}

static void test_a_step_takes_what_the_formula_says(struct rng *rng)
{
    const struct pipe_config config = random_config(rng);
    const double work = 3.0 * (double)config.shards * config.chunks;
    const double seconds = simulate_equal(&config, 1, 2);

    /* Few shards leave 1f1b nothing to alternate with, but no schedule takes longer. */
    CHECK_CLOSE(work / (1 - pipe_bubble(&config)), seconds, 1e-9);
}

static void test_uneven_pieces_do_not_wait_for_ever(struct rng *rng)
{
    const struct pipe_config config = random_config(rng);
    double f[MOST_PIECES], b[MOST_PIECES], seconds, work = 0;

    for (int i = 0; i < config.stages * config.chunks; i++) {
        f[i] = rng_float(rng);
        b[i] = rng_float(rng);
        work += (f[i] + b[i]) * (double)config.shards;
    }
    CHECK_OK(pipe_simulate(&config,
                           &(struct pipe_times){ .forward = f, .backward = b, .message = 0.25 },
                           NULL, &seconds));
    CHECK(seconds >= work / config.stages - 1e-9);
}

/* An action's own time goes before its piece's; what is given early lets the next stage begin. */
static void test_actions_may_have_times_of_their_own(void)
{
    const struct pipe_config config = { PIPE_GPIPE, 2, 1, 2 };
    /*   F0 F1 B0 B1 of stage 0:            of stage 1: F1 takes 5 */
    const double actions[8] = { 1, 1, 2, 2, 1, 5, 2, 2 };
    const double early[8] = { 0, 0, 0, 0, 0, 0, 1, 1 };
    struct pipe_times times = { .actions = actions };
    struct pipe_span spans[8];
    double seconds;

    CHECK_OK(pipe_simulate(&config, &times, spans, &seconds));
    CHECK_CLOSE(1 + 1 + 5 + 2 + 2 + 2, seconds, 1e-9);
    times.early = early;
    CHECK_OK(pipe_simulate(&config, &times, spans, &seconds));
    CHECK_CLOSE(1 + 1 + 5 + 2 + 2 + 1, seconds, 1e-9);
    CHECK_CLOSE(8, spans[2].begin, 1e-9); /* while the other still works on its B0 */
    CHECK_CLOSE(9, spans[6].end, 1e-9);
}

static int64_t in_flight(const struct pipe_config *config, int stage)
{
    struct pipe_action actions[MOST_ACTIONS];

    pipe_schedule(config, stage, actions);
    return pipe_in_flight(actions, pipe_count(config), config->chunks, false);
}

static void test_few_shards_are_under_way(void)
{
    struct pipe_config config = { PIPE_1F1B, 4, 1, 16 };

    for (int stage = 0; stage < 4; stage++)
        CHECK_INT(4 - stage, in_flight(&config, stage));
    config.kind = PIPE_GPIPE;
    CHECK_INT(16, in_flight(&config, 0));
    config = (struct pipe_config){ PIPE_INTERLEAVED, 4, 2, 16 };
    CHECK(in_flight(&config, 0) <= 8 && in_flight(&config, 3) <= 8);
    config = (struct pipe_config){ PIPE_1F1B, 4, 1, 2 };
    CHECK_INT(2, in_flight(&config, 0));
}

static void test_evaluations_go_forward_alone(void)
{
    const struct pipe_config config = { PIPE_INTERLEAVED, 2, 2, 4 };
    static const struct {
        int chunk;
        int64_t shard;
    } expected[] = { { 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 },
                     { 0, 2 }, { 0, 3 }, { 1, 2 }, { 1, 3 } };
    struct pipe_action actions[8];

    pipe_schedule_forward(&config, actions);
    for (int i = 0; i < 8; i++)
        CHECK(!actions[i].is_backward && actions[i].chunk == expected[i].chunk &&
              actions[i].shard == expected[i].shard);
    CHECK_INT(2, pipe_in_flight(actions, 8, 2, true));
}

static void test_what_is_no_schedule_is_refused(void)
{
    CHECK_STATUS(STATUS_USAGE, pipe_check(&(struct pipe_config){ PIPE_GPIPE, 0, 1, 1 }));
    CHECK_STATUS(STATUS_USAGE, pipe_check(&(struct pipe_config){ PIPE_1F1B, 2, 2, 2 }));
    CHECK_MESSAGE("use interleaved:2");
    CHECK_STATUS(STATUS_USAGE, pipe_check(&(struct pipe_config){ PIPE_INTERLEAVED, 4, 2, 6 }));
    CHECK_MESSAGE("groups of 4");
    CHECK_STATUS(STATUS_USAGE, pipe_check(&(struct pipe_config){ PIPE_1F1B, 2, 1, 0 }));
}

const struct test tests[] = {
    { .name = "every shard goes once and in order",
      .property = test_every_shard_goes_once_and_in_order },
    { .name = "a step takes what the formula says",
      .property = test_a_step_takes_what_the_formula_says },
    { .name = "uneven pieces do not wait for ever",
      .property = test_uneven_pieces_do_not_wait_for_ever },
    { .name = "actions may have times of their own",
      .run = test_actions_may_have_times_of_their_own },
    { .name = "few shards are under way", .run = test_few_shards_are_under_way },
    { .name = "evaluations go forward alone", .run = test_evaluations_go_forward_alone },
    { .name = "what is no schedule is refused", .run = test_what_is_no_schedule_is_refused },
    { 0 },
};
