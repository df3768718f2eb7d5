/* SPDX-License-Identifier: MIT */
/* walk_pipe_test.c - pipelines whose stages are walked together take as long as textbooks say. */
#include <math.h>

#include "base/mem.h"
#include "base/test.h"
#include "graph/op.h"
#include "pass/pass_testing.h"
#include "sched/lower.h"
#include "sched/walk.h"

enum { STAGES = 4, PIECES = 12 };

/* Stages of a pipeline of vgg11, whose pieces take what a test says; sums take nothing. */
struct pipeline {
    struct walk_pipe_config config;
    struct walk_config stages[STAGES];
    struct program *programs[STAGES];
    struct graph *graphs[STAGES];
    double *seconds[STAGES];
    struct task_work *works[STAGES];
    struct cost_work work;
    struct cost_cluster cluster;
    struct cost_link link, between;
};

/* All of a piece's time is in its first node, so that all of it is before what it sends. */
static void time_nodes(const struct graph *graph, const double *forward, const double *backward,
                       double *out)
{
    bool is_timed[2][PIECES] = { { false } };

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        const bool is_backward = node->phase == PHASE_BACKWARD;
        out[n] = 0;
        if (node->phase > PHASE_BACKWARD || node->op->moves || node->op->is_view ||
            node->op->split[0] == SPLIT_WHOLE || is_timed[is_backward][node->stage])
            continue;
        is_timed[is_backward][node->stage] = true;
        out[n] = (is_backward ? backward : forward)[node->stage];
    }
}

static void make_stage(struct pipeline *p, int s, int copies, const double *forward,
                       const double *backward)
{
    const struct pipe_config *pipe = &p->config.pipe;
    struct pass_config passes = pass_testing_config(copies, 0);
    const struct lower_config config = {
        .topology = { .nodes = copies,
                      .node_ranks = 1,
                      .lanes = 1,
                      .rails = copies > 1 ? 1 : 0 },
        .has_steps = true,
        .pipeline = { .stages = pipe->stages, .chunks = pipe->chunks, .own = s },
    };
    const struct work_config how = { .shards = p->work.shards, .compressed = 1, .window = 1e9 };

    passes.shards = p->work.shards;
    passes.batch = 2 * passes.shards;
    passes.pipeline = config.pipeline;
    p->graphs[s] =
        pass_testing_graph_with("vgg11", copies > 1 ? "hybrid" : "pipeline", &passes);
    CHECK_OK(program_lower(p->graphs[s], &config, &p->programs[s]));
    CHECK_OK(mem_alloc((size_t)p->programs[s]->n_tasks + 1, sizeof **p->works, &p->works[s]));
    CHECK_OK(program_work(p->programs[s], p->graphs[s], &how, p->works[s]));
    CHECK_OK(
        mem_alloc((size_t)graph_node_count(p->graphs[s]) + 1, sizeof(double), &p->seconds[s]));
    time_nodes(p->graphs[s], forward, backward, p->seconds[s]);
}

static struct pipeline *pipeline_of(struct pipe_config pipe, int copies, const double *forward,
                                    const double *backward)
{
    struct pipeline *p;

    CHECK_OK(mem_alloc(1, sizeof *p, &p));
    p->link = p->between = (struct cost_link){ .bandwidth = INFINITY };
    p->cluster = (struct cost_cluster){ .crowding = 1, .speed = 1, .between = p->between };
    p->work.shards = pipe.shards * copies;
    p->config =
        (struct walk_pipe_config){ .stages = p->stages, .pipe = pipe, .link = &p->link };
    for (int s = 0; s < pipe.stages; s++) {
        make_stage(p, s, copies, forward, backward);
        p->stages[s] = (struct walk_config){ .program = p->programs[s],
                                             .graph = p->graphs[s],
                                             .works = p->works[s],
                                             .node_seconds = p->seconds[s],
                                             .work = &p->work,
                                             .cluster = &p->cluster,
                                             .team = 1,
                                             .crowding = 1,
                                             .link = &p->between };
    }
    return p;
}

/* All pieces take 1 s forward and 2 s backward. */
static struct pipeline *equal_pipeline(struct pipe_config pipe, int copies)
{
    double forward[PIECES], backward[PIECES];

    for (int i = 0; i < PIECES; i++) {
        forward[i] = 1;
        backward[i] = 2;
    }
    return pipeline_of(pipe, copies, forward, backward);
}

static struct walk_pipe_result walk(const struct pipeline *p)
{
    struct walk_pipe_result out;

    CHECK_OK(walk_pipe(&p->config, &out, NULL));
    return out;
}

static void release(struct pipeline *p)
{
    for (int s = 0; s < p->config.pipe.stages; s++) {
        program_destroy(p->programs[s]);
        graph_destroy(p->graphs[s]);
        mem_free(p->seconds[s]);
        mem_free(p->works[s]);
    }
    mem_free(p);
}

/* Some pipeline, legal for every kind. */
static struct pipe_config any_pipe(struct rng *rng)
{
    struct pipe_config pipe = { .kind = (enum pipe_kind)rng_below(rng, PIPE_KINDS),
                                .stages = 2 + (int)rng_below(rng, STAGES - 1),
                                .chunks = 1 };

    pipe.shards = pipe.stages * (1 + (int64_t)rng_below(rng, 4));
    if (pipe.kind == PIPE_INTERLEAVED)
        pipe.chunks = 2;
    return pipe;
}

static void test_equal_stages_have_the_bubble_of_the_formula(struct rng *rng)
{
    const struct pipe_config pipe = any_pipe(rng);
    struct pipeline *p = equal_pipeline(pipe, 1);
    const struct walk_pipe_result out = walk(p);
    const double work = (double)pipe.shards * pipe.chunks;

    CHECK_CLOSE((work + pipe.stages - 1) * (1 + 2), out.seconds, 1e-9);
    CHECK_CLOSE(pipe_bubble(&pipe), out.bubble, 1e-9);
    CHECK_CLOSE(3 * work, out.compute, 1e-9);
    release(p);
}

static void test_it_agrees_with_schedules_on_paper(struct rng *rng)
{
    const struct pipe_config pipe = any_pipe(rng);
    double forward[PIECES], backward[PIECES], seconds;
    const struct pipe_times times = { forward, backward, .message = 0.1 };

    for (int i = 0; i < PIECES; i++) {
        forward[i] = 0.5 + (double)rng_float(rng);
        backward[i] = 1 + (double)rng_float(rng);
    }
    CHECK_OK(pipe_simulate(&pipe, &times, NULL, &seconds));
    struct pipeline *p = pipeline_of(pipe, 1, forward, backward);
    p->link.latency = times.message;
    CHECK_CLOSE(seconds, walk(p).seconds, 1e-9);
    release(p);
}

/* The bytes of a message are those of the value that is sent. */
static double message_bytes(const struct pipeline *p)
{
    for (int n = 0; n < graph_node_count(p->graphs[0]); n++) {
        const struct node *node = graph_node(p->graphs[0], n);
        if (node->op == &op_send)
            return 4 * (double)shape_count(&node->in[0]->shape);
    }
    return 0;
}

/* Messages that take longer than computations go one after the other: m of them each way. */
static void test_a_slow_link_is_the_step(void)
{
    const struct pipe_config pipe = { PIPE_GPIPE, 2, 1, 4 };
    struct pipeline *p = equal_pipeline(pipe, 1);

    p->link.bandwidth = message_bytes(p) / 10;
    CHECK_CLOSE(2 * (1 + 2) + 2 * 4 * 10, walk(p).seconds, 1e-9);
    p->link.latency = 0.5; /* of the last one alone */
    CHECK_CLOSE(2 * (1 + 2) + 2 * (4 * 10 + 0.5), walk(p).seconds, 1e-9);
    release(p);
}

/* Half of the copy is the sender's, half the receiver's: as if it were in the pieces. */
static void test_cores_that_copy_are_busy_at_both_ends(void)
{
    const struct pipe_config pipe = { PIPE_GPIPE, 2, 1, 2 };
    struct pipeline *p = equal_pipeline(pipe, 1);

    p->link = (struct cost_link){ .bandwidth = message_bytes(p) / 2, .cpu = 1 };
    CHECK_CLOSE(3 * (1 + 2 + 2), walk(p).seconds, 1e-9);
    release(p);
}

static void test_two_stages_on_one_core_take_the_sum_of_both(void)
{
    const struct pipe_config pipe = { PIPE_1F1B, 2, 1, 4 };
    struct pipeline *p = equal_pipeline(pipe, 1);

    p->config.at_once = 1;
    CHECK_CLOSE(2 * 4 * (1 + 2), walk(p).seconds, 1e-9);
    release(p);
}

/* Three stages on two cores: stage 0 ends its forwards at 3, stage 2 begins backward at 6 and gives
 * the last gradient at 12; stage 0 has a core again at 12, for 6 s. */
static void test_a_core_goes_to_the_stage_that_can_begin_first(void)
{
    const struct pipe_config pipe = { PIPE_GPIPE, 3, 1, 3 };
    struct pipeline *p = equal_pipeline(pipe, 1);

    p->config.at_once = 2;
    p->link.latency = 0.5;
    CHECK_CLOSE(18, walk(p).seconds, 1e-9);
    release(p);
}

/* A stage adds and updates what is its own, after its last action. */
static void test_sums_follow_the_last_action(void)
{
    const struct pipe_config pipe = { PIPE_1F1B, 2, 1, 4 };
    struct pipeline *p = equal_pipeline(pipe, 1);
    double bytes[2] = { 0 };

    for (int s = 0; s < 2; s++) {
        for (int b = 0; b < p->programs[s]->n_buckets; b++)
            bytes[s] +=
                4 * (double)shape_count(&pass_bucket_value(p->graphs[s], b, "param")->shape);
    }
    p->work.add = 1e-8;
    p->work.update = 4e-8;
    /* The other stage is through with the last shard 2 s before the first. */
    CHECK_CLOSE(15 + fmax(bytes[0] * 5e-8, bytes[1] * 5e-8 - 2), walk(p).seconds, 1e-6);
    release(p);
}

/* Copies on another machine: gradients go when a stage is through, and the next step's forward
 * waits for the sums and then for the parameters. */
static void test_sums_of_copies_cross_their_link(void)
{
    const struct pipe_config pipe = { PIPE_1F1B, 2, 1, 4 };
    struct pipeline *p = equal_pipeline(pipe, 2);

    CHECK_CLOSE(15, walk(p).seconds, 1e-9);
    p->between.latency = 0.5;
    CHECK_CLOSE(15 + 2 * 0.5, walk(p).seconds, 1e-9);
    release(p);
}

/* Events of a stage do not overlap, and no more stages act than there are cores. */
static void test_a_stage_does_one_thing_at_a_time(struct rng *rng)
{
    const struct pipe_config pipe = any_pipe(rng);
    struct pipeline *p = equal_pipeline(pipe, 1);
    struct walk_timeline timeline;
    struct walk_pipe_result out;
    double ended[STAGES] = { 0 };
    int64_t actions = 0;

    p->config.at_once = (int)rng_below(rng, (uint64_t)pipe.stages + 1);
    CHECK_OK(walk_pipe(&p->config, &out, &timeline));
    CHECK_CLOSE(out.seconds, timeline.seconds, 1e-12);
    for (int64_t i = 0; i < timeline.n_events; i++) {
        const struct walk_event *e = &timeline.events[i];
        int beside = 0;
        CHECK(e->begin >= ended[e->stage] - 1e-12 && e->end >= e->begin);
        ended[e->stage] = e->end;
        actions += e->shard >= 0;
        for (int64_t k = 0; k < timeline.n_events; k++)
            beside += timeline.events[k].begin <= e->begin + 1e-12 &&
                      timeline.events[k].end > e->begin + 1e-9;
        CHECK(!p->config.at_once || beside <= p->config.at_once);
    }
    CHECK_INT(pipe_count(&pipe) * pipe.stages, actions);
    walk_timeline_release(&timeline);
    release(p);
}

static struct task *find_task(struct program *program, enum task_kind kind)
{
    for (int t = 0; t < program->n_tasks; t++) {
        if (program->tasks[t].kind == kind)
            return &program->tasks[t];
    }
    return NULL;
}

static void test_a_send_that_is_missing_is_refused(void)
{
    struct pipeline *p = equal_pipeline((struct pipe_config){ PIPE_1F1B, 2, 1, 4 }, 1);
    struct task *send = find_task(p->programs[0], TASK_SEND);
    struct walk_pipe_result out;

    send->kind = TASK_COMPUTE;
    send->end_node = send->first_node;
    CHECK_STATUS(STATUS_MISMATCH, walk_pipe(&p->config, &out, NULL));
    CHECK_MESSAGE("of stage 1: no stage sends it");
    release(p);
}

/* Stage 0 would have the gradient of a shard before it sends the shard. */
static void test_stages_that_wait_for_each_other_are_refused(void)
{
    struct pipeline *p = equal_pipeline((struct pipe_config){ PIPE_1F1B, 2, 1, 4 }, 1);
    struct program *program = p->programs[0];
    struct task *receive = find_task(program, TASK_RECEIVE);
    struct task *first = &program->tasks[program->segment[0]];
    struct walk_pipe_result out;
    const struct task before = *first;

    *first = *receive;
    first->segment = before.segment;
    *receive = before;
    CHECK_STATUS(STATUS_MISMATCH, walk_pipe(&p->config, &out, NULL));
    CHECK_MESSAGE("a deadlock: stage 0 waits in forward of shard 0 for");
    release(p);
}

static void test_numbers_that_are_no_schedule_are_refused(void)
{
    const struct walk_pipe_config config = { .pipe = { PIPE_INTERLEAVED, 4, 2, 3 } };
    struct walk_pipe_result out;

    CHECK_STATUS(STATUS_USAGE, walk_pipe(&config, &out, NULL));
}

const struct test tests[] = {
    { .name = "equal stages have the bubble of the formula",
      .property = test_equal_stages_have_the_bubble_of_the_formula },
    { .name = "it agrees with schedules on paper",
      .property = test_it_agrees_with_schedules_on_paper },
    { .name = "a slow link is the step", .run = test_a_slow_link_is_the_step },
    { .name = "cores that copy are busy at both ends",
      .run = test_cores_that_copy_are_busy_at_both_ends },
    { .name = "two stages on one core take the sum of both",
      .run = test_two_stages_on_one_core_take_the_sum_of_both },
    { .name = "a core goes to the stage that can begin first",
      .run = test_a_core_goes_to_the_stage_that_can_begin_first },
    { .name = "sums follow the last action", .run = test_sums_follow_the_last_action },
    { .name = "sums of copies cross their link", .run = test_sums_of_copies_cross_their_link },
    { .name = "a stage does one thing at a time",
      .property = test_a_stage_does_one_thing_at_a_time },
    { .name = "a send that is missing is refused",
      .run = test_a_send_that_is_missing_is_refused },
    { .name = "stages that wait for each other are refused",
      .run = test_stages_that_wait_for_each_other_are_refused },
    { .name = "numbers that are no schedule are refused",
      .run = test_numbers_that_are_no_schedule_are_refused },
    { 0 },
};
