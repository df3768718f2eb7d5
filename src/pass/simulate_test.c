/* SPDX-License-Identifier: MIT */
/* simulate_test.c - what a step of a pipeline takes, against the textbook. */
#include "pass/simulate.h"

#include <math.h>

#include "base/test.h"

enum { PIECES = 64 };

static struct simulate_result run(struct pipe_config pipe, const struct simulate_piece *pieces,
                                  int at_once)
{
    const struct simulate_config config = { .pipe = pipe,
                                            .at_once = at_once,
                                            .pieces = pieces };
    struct simulate_result result;

    CHECK_OK(simulate_run(&config, true, &result));
    return result;
}

static void fill(struct simulate_piece *pieces, int count, struct simulate_piece each)
{
    for (int i = 0; i < count; i++)
        pieces[i] = each;
}

/* Some pipeline, legal for every kind. */
static struct pipe_config any_pipe(struct rng *rng)
{
    struct pipe_config pipe = { .kind = (enum pipe_kind)rng_below(rng, PIPE_KINDS),
                                .stages = 2 + (int)rng_below(rng, 5),
                                .chunks = 1 };

    pipe.shards = pipe.stages * (1 + (int64_t)rng_below(rng, 4));
    if (pipe.kind == PIPE_INTERLEAVED)
        pipe.chunks = 2 + (int)rng_below(rng, 3);
    return pipe;
}

static void test_equal_pieces_have_the_bubble_of_the_formula(struct rng *rng)
{
    const struct pipe_config pipe = any_pipe(rng);
    struct simulate_piece pieces[PIECES];

    fill(pieces, PIECES, (struct simulate_piece){ .forward = 1, .backward = 2 });
    struct simulate_result result = run(pipe, pieces, 0);
    CHECK_CLOSE(pipe_bubble(&pipe), result.bubble, 1e-9);
    CHECK_CLOSE(3.0 * (double)pipe.shards * pipe.chunks, result.busiest, 1e-9);
    CHECK_CLOSE(result.pipeline, result.seconds, 1e-12);
    simulate_release(&result);
}

static void test_it_agrees_with_the_schedules_own_simulation(struct rng *rng)
{
    const struct pipe_config pipe = any_pipe(rng);
    double forward[PIECES], backward[PIECES], seconds;
    struct simulate_piece pieces[PIECES];
    const struct pipe_times times = { forward, backward, .message = 0.1 };

    for (int i = 0; i < PIECES; i++) {
        forward[i] = 0.5 + (double)rng_float(rng);
        backward[i] = 1 + (double)rng_float(rng);
        pieces[i] = (struct simulate_piece){ .forward = forward[i],
                                             .backward = backward[i],
                                             .out = times.message };
    }
    CHECK_OK(pipe_simulate(&pipe, &times, NULL, &seconds));
    struct simulate_result result = run(pipe, pieces, 0);
    CHECK_CLOSE(seconds, result.seconds, 1e-9);
    simulate_release(&result);
}

/* Events of a stage do not overlap, and nothing begins before what it needs. */
static void test_a_stage_does_one_thing_at_a_time(struct rng *rng)
{
    const struct pipe_config pipe = any_pipe(rng);
    const int at_once = (int)rng_below(rng, (uint64_t)pipe.stages + 1);
    struct simulate_piece pieces[PIECES];
    double ended[8] = { 0 };
    int64_t actions = 0;

    fill(pieces, PIECES,
         (struct simulate_piece){ .forward = 1, .backward = 2, .out = 0.25, .update = 0.5 });
    struct simulate_result result = run(pipe, pieces, at_once);
    for (int64_t i = 0; i < result.n_events; i++) {
        const struct simulate_event *e = &result.events[i];
        CHECK(e->begin >= ended[e->stage] - 1e-12 && e->end >= e->begin);
        ended[e->stage] = e->end;
        actions += e->shard >= 0;
    }
    CHECK_INT(pipe_count(&pipe) * pipe.stages, actions);
    for (int64_t i = 0; at_once && i < result.n_events; i++) {
        int beside = 0;
        for (int64_t k = 0; k < result.n_events; k++)
            beside += result.events[k].shard >= 0 && result.events[i].shard >= 0 &&
                      result.events[k].begin <= result.events[i].begin &&
                      result.events[k].end > result.events[i].begin + 1e-12;
        CHECK(beside <= at_once);
    }
    simulate_release(&result);
}

static void test_two_stages_on_one_core_take_the_sum_of_both(void)
{
    const struct pipe_config pipe = { PIPE_1F1B, 2, 1, 4 };
    struct simulate_piece pieces[2];

    fill(pieces, 2, (struct simulate_piece){ .forward = 1, .backward = 2 });
    struct simulate_result result = run(pipe, pieces, 1);
    CHECK_CLOSE(24, result.seconds, 1e-9);
    simulate_release(&result);
}

static void test_sums_are_hidden_as_far_as_no_core_is_busy_with_them(void)
{
    const struct pipe_config pipe = { PIPE_1F1B, 1, 1, 2 };
    const struct simulate_piece half = {
        .forward = 1, .backward = 2, .sum = 4, .hidden = 0.5, .update = 1
    };
    struct simulate_result result = run(pipe, &half, 0);

    CHECK_CLOSE(8, result.pipeline, 1e-9); /* two shards, and half of the sum */
    CHECK_CLOSE(11, result.seconds, 1e-9); /* the sum begins at 6, the update follows */
    simulate_release(&result);
}

/* Stage 0 makes two shards of 1, each with 1 for sending; the second waits for the first's copy alone where cores copy. */
static void test_cores_that_copy_are_busy_at_both_ends(void)
{
    const struct pipe_config pipe = { PIPE_GPIPE, 2, 1, 2 };
    struct simulate_piece pieces[2];

    fill(pieces, 2, (struct simulate_piece){ .forward = 1, .backward = 1, .out = 2 });
    struct simulate_result result = run(pipe, pieces, 0);
    CHECK_CLOSE(10, result.seconds, 1e-9); /* 1 + 2 there + 1 + 1 + 1 + 1 + 2 back + 1 */
    simulate_release(&result);
    fill(pieces, 2,
         (struct simulate_piece){ .forward = 1, .backward = 1, .out = 2, .copied = 1 });
    result = run(pipe, pieces, 0);
    CHECK_CLOSE(12, result.seconds,
                1e-9); /* 2 + 2 + 2, 2 + 2 + 2: as if the way were in the pieces */
    simulate_release(&result);
}

static void test_numbers_that_are_no_schedule_are_refused(void)
{
    const struct simulate_piece piece = { 0 };
    const struct simulate_config config = { .pipe = { PIPE_INTERLEAVED, 4, 2, 3 },
                                            .pieces = &piece };
    struct simulate_result result;

    CHECK_STATUS(STATUS_USAGE, simulate_run(&config, false, &result));
}

const struct test tests[] = {
    { .name = "equal pieces have the bubble of the formula",
      .property = test_equal_pieces_have_the_bubble_of_the_formula },
    { .name = "it agrees with the schedule's own simulation",
      .property = test_it_agrees_with_the_schedules_own_simulation },
    { .name = "a stage does one thing at a time",
      .property = test_a_stage_does_one_thing_at_a_time },
    { .name = "two stages on one core take the sum of both",
      .run = test_two_stages_on_one_core_take_the_sum_of_both },
    { .name = "sums are hidden as far as no core is busy with them",
      .run = test_sums_are_hidden_as_far_as_no_core_is_busy_with_them },
    { .name = "cores that copy are busy at both ends",
      .run = test_cores_that_copy_are_busy_at_both_ends },
    { .name = "numbers that are no schedule are refused",
      .run = test_numbers_that_are_no_schedule_are_refused },
    { 0 },
};
