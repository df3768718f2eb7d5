/* SPDX-License-Identifier: MIT */
/* evaluate_test.c - evaluations give the same bits on any number of ranks and threads, and count as a plain count does
 * (steps_testing.h).
 */
#include "exec/exec.h"

#include <string.h>

#include "base/test.h"
#include "comm/comm_testing.h"
#include "data/data_testing.h"
#include "data/dataset.h"
#include "exec/exec_testing.h"
#include "exec/steps_testing.h"

static void test_evaluation_gives_the_same_bits_on_any_ranks(void)
{
    static const int64_t counts[] = { 1, 100, 256, 391 };
    struct setup setup = setup_usual;
    struct rng rng;

    rng_init(&rng, 5, 0);
    setup.shards = 4;
    setup.n_steps = 2;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const struct data_testing_set set = {
            .train = 4, .test = counts[i], .rows = SIDE, .columns = SIDE, .classes = CLASSES
        };
        struct dataset *dataset;

        data_testing_make(&rng, test_folder(), &set);
        CHECK_OK(dataset_open(test_folder(), DATASET_TEST, &dataset));
        setup.model = i == 3 ? "cnn" : "mlp";
        const struct outcome alone = setup_run_on(&setup, 1, 1, dataset);
        CHECK_INT(counts[i], alone.evaluation.samples);
        CHECK(alone.evaluation.loss > 0 && alone.evaluation.correct <= (double)counts[i]);
        for (int ranks = 1; ranks <= 3; ranks++) {
            for (setup.nodes = 1; setup.nodes <= ranks; setup.nodes++) {
                setup.zero = ranks == 3 ? 3 : 0;
                const struct outcome other = setup_run_on(&setup, ranks, 2, dataset);
                outcome_check_same(&setup, &alone, &other);
            }
        }
        setup.nodes = 1;
        setup.zero = 0;
        dataset_close(dataset);
    }
}

/* Counting by sorting: classes in the order of their logits, the earlier first where they are equal. */
static void sort_classes(const float *logits, int *order)
{
    for (int c = 0; c < CLASSES; c++) {
        int at = c;
        for (; at > 0 && logits[order[at - 1]] < logits[c]; at--)
            order[at] = order[at - 1];
        order[at] = c;
    }
}

enum { COUNTED = 300 }; /* samples */

static enum status count_plainly(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    const struct exec_config config = job_config(job, comm);
    const int64_t count = dataset_count(job->dataset);
    int64_t confusion[CLASSES * CLASSES] = { 0 }, counted[CLASSES * CLASSES];
    int64_t top5 = 0, right = 0;
    static float logits[EXEC_PREDICT * CLASSES], kept[COUNTED * CLASSES];
    struct exec_result result;
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    enum status status = job->count_from ? exec_init_params(exec) : STATUS_OK; /* else zeros */
    if (status == STATUS_OK && exec_classes(exec))
        status = FAIL(STATUS_MISMATCH, "something is counted before anything was evaluated");
    for (int twice = 0; twice < 2 && status == STATUS_OK; twice++) {
        exec_keep_outputs(exec, twice ? NULL : kept);
        status = exec_evaluate(exec, dataset_as_source(job->dataset), &result);
    }
    for (int64_t i = 0; i < count && status == STATUS_OK; i++) {
        const int64_t row = i % EXEC_PREDICT;
        int64_t index[EXEC_PREDICT];
        int order[CLASSES];

        if (row == 0) {
            const int64_t rows = count - i < EXEC_PREDICT ? count - i : EXEC_PREDICT;
            for (int64_t r = 0; r < rows; r++)
                index[r] = i + r;
            status = exec_predict(exec, dataset_as_source(job->dataset), index, rows, logits);
        }
        if (memcmp(logits + row * CLASSES, kept + i * CLASSES, CLASSES * sizeof *kept) != 0)
            status = FAIL(STATUS_MISMATCH, "the output kept of sample %lld is another",
                          (long long)i);
        const int32_t label = dataset_label(job->dataset, i);
        sort_classes(logits + row * CLASSES, order);
        confusion[label * CLASSES + order[0]]++;
        right += order[0] == label;
        for (int place = 0; place < 5; place++)
            top5 += order[place] == label;
    }
    if (status == STATUS_OK)
        count_answers(exec, job->dataset, counted);
    if (status == STATUS_OK &&
        (exec_classes(exec) != CLASSES || memcmp(counted, confusion, sizeof confusion) != 0 ||
         result.top5 != top5 || result.correct != (double)right))
        status =
            FAIL(STATUS_MISMATCH, "%lld and %lld of the first five, %g and %lld right",
                 (long long)result.top5, (long long)top5, result.correct, (long long)right);
    exec_destroy(exec);
    return status;
}

static void test_answers_are_counted_as_a_plain_count_does(void)
{
    struct setup setup = setup_usual;
    static struct job job;

    struct dataset *dataset = exec_testing_samples(6, COUNTED, SIDE, CLASSES);
    setup.shards = 4;
    setup.ranks = 1;
    setup.threads = 2;
    for (int m = 0; m < 2; m++) {
        setup.model = m ? "cnn" : "mlp";
        job_make(&setup, &job);
        job.dataset = dataset;
        for (job.count_from = 0; job.count_from < 2; job.count_from++)
            CHECK_OK(comm_testing_threads(1, NULL, count_plainly, &job));
        job_release(&job);
    }
    dataset_close(dataset);
}

static enum status reconstruct(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    const struct exec_config config = job_config(job, comm);
    const int64_t index[] = { 2, 0 };
    float first[PIXELS], both[2 * PIXELS];
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    enum status status = exec_init_params(exec);
    if (status == STATUS_OK)
        status = exec_predict(exec, dataset_as_source(job->dataset), index, 2, both);
    if (status == STATUS_OK)
        status = exec_predict(exec, dataset_as_source(job->dataset), index + 1, 1, first);
    if (status == STATUS_OK && memcmp(first, both + PIXELS, sizeof first) != 0)
        status = FAIL(STATUS_MISMATCH, "a sample's output depends on its neighbours");
    if (status == STATUS_OK && exec_classes(exec))
        status = FAIL(STATUS_MISMATCH, "a model without classes has some");
    exec_destroy(exec);
    return status;
}

static void test_a_model_without_classes_trains_and_evaluates(void)
{
    struct setup setup = setup_usual;
    static struct job job;

    struct dataset *dataset = exec_testing_samples(7, 200, SIDE, CLASSES);
    setup.model = "narrow";
    setup.shards = 4;
    setup.n_steps = STEPS_MAX;
    for (int s = 0; s < STEPS_MAX; s++)
        setup.samples[s] = setup.batch;
    const struct outcome alone = setup_run_on(&setup, 1, 1, dataset);
    CHECK(alone.steps[STEPS_MAX - 1].loss < 0.95 * alone.steps[0].loss);
    CHECK(alone.evaluation.loss > 0 && alone.evaluation.correct == 0);
    CHECK_INT(0, alone.evaluation.top5);
    for (int factors = 0; factors < 2; factors++) {
        setup.factors = factors;
        const struct outcome other = setup_run_on(&setup, 2, 2, dataset);
        outcome_check_same(&setup, &alone, &other);
    }
    setup.ranks = setup.threads = 1;
    job_make(&setup, &job);
    job.dataset = dataset;
    CHECK_OK(comm_testing_threads(1, NULL, reconstruct, &job));
    job_release(&job);
    dataset_close(dataset);
}

static void test_samples_of_another_shape_are_refused(void)
{
    const struct data_testing_set set = {
        .train = 4, .test = 200, .rows = SIDE - 1, .columns = SIDE, .classes = CLASSES
    };
    struct setup setup = setup_usual;
    static struct job job;
    struct dataset *dataset;
    struct rng rng;

    rng_init(&rng, 5, 0);
    data_testing_make(&rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), DATASET_TEST, &dataset));
    setup.shards = 4;
    setup.ranks = 2;
    setup.threads = 1;
    job_make(&setup, &job);
    job.dataset = dataset;
    CHECK_STATUS(STATUS_MISMATCH, comm_testing_threads(2, NULL, job_run_rank, &job));
    CHECK_MESSAGE("samples are 1x7x8, the model takes 1x8x8");
    job_release(&job);
    dataset_close(dataset);
}

static enum status evaluate_without_steps(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    struct exec_config config = job_config(job, comm);
    struct exec_result result;
    struct exec *exec;

    config.batch = 0;
    config.shards = 1; /* not those of the training graph */
    TRY(exec_create(&config, &exec));
    enum status status = exec_init_params(exec);
    if (status == STATUS_OK)
        status = exec_evaluate(exec, dataset_as_source(job->dataset), &result);
    exec_destroy(exec);
    CHECK(status != STATUS_OK || result.samples == dataset_count(job->dataset));
    return status;
}

/* As tutti eval does, with graphs that give columns to lanes or let shards meet. */
static void test_what_only_evaluates_needs_no_batch(void)
{
    const struct data_testing_set set = {
        .train = 8, .test = 40, .rows = SIDE, .columns = SIDE, .classes = CLASSES
    };
    struct dataset *dataset;
    static struct job job;
    struct rng rng;

    rng_init(&rng, 5, 5);
    data_testing_make(&rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), DATASET_TEST, &dataset));
    for (int sync_norm = 0; sync_norm < 2; sync_norm++) {
        struct setup setup = setup_usual;
        setup.model = sync_norm ? "normed" : "mlp";
        setup.sync_norm = sync_norm;
        setup.factors = true;
        setup.shards = 4;
        setup.ranks = setup.threads = 1;
        job_make(&setup, &job);
        job.dataset = dataset;
        CHECK_OK(comm_testing_threads(1, NULL, evaluate_without_steps, &job));
        job_release(&job);
    }
    dataset_close(dataset);
}

const struct test tests[] = {
    { .name = "evaluation gives the same bits on any ranks",
      .run = test_evaluation_gives_the_same_bits_on_any_ranks },
    { .name = "answers are counted as a plain count does",
      .run = test_answers_are_counted_as_a_plain_count_does },
    { .name = "a model without classes trains and evaluates",
      .run = test_a_model_without_classes_trains_and_evaluates },
    { .name = "samples of another shape are refused",
      .run = test_samples_of_another_shape_are_refused },
    { .name = "what only evaluates needs no batch",
      .run = test_what_only_evaluates_needs_no_batch },
    { 0 },
};
