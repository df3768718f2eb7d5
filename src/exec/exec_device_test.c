/* SPDX-License-Identifier: MIT */
/* exec_device_test.c - steps on a device give the bits of lanes, on any number of ranks; in 16 bits their losses.
 *
 * The device is the CPU, or one that computes in 16 bits by the references.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "data/dataset.h"
#include "exec/exec_testing.h"
#include "exec/steps_testing.h"
#include "kernel/device_testing.h"

/* Losses of steps agree. */
static void check_close(const struct setup *setup, const struct outcome *a,
                        const struct outcome *b, double tolerance)
{
    for (int s = 0; s < setup->n_steps; s++) {
        if (!(fabs(a->steps[s].loss - b->steps[s].loss) < tolerance))
            test_fail(__FILE__, __LINE__, "%s, %s: step %d has a loss of %.9g, not %.9g",
                      setup->model, setup->optimizer, s, b->steps[s].loss, a->steps[s].loss);
    }
}

/* More steps than are under way at once; norms are sums of squares in another order. */
static void test_a_device_gives_the_bits_of_lanes(void)
{
    static const struct {
        const char *model, *optimizer;
        float max_norm;
        int64_t shards;
        double tolerance; /* of losses; 0: the same bits of everything */
    } cases[] = {
        { "mlp", "sgd", 0, 1, 0 },        { "mlp", "adamw", 0, 6, 0 },
        { "cnn", "adam", 0, 3, 0 },       { "normed", "sgd", 0, 4, 0 },
        { "narrow", "sgd", 0, 2, 0 },     { "mlp", "sgd", 0.5F, 4, 1e-6 },
        { "mlp", "lars", 0.5F, 2, 1e-6 }, { "normed", "lamb", 0.5F, 1, 1e-5 },
        { "mlp", "lamb", 0, 4, 1e-5 },
    };
    struct exec_device device;

    exec_testing_open_cpu(&device);
    struct dataset *dataset = exec_testing_samples(7, 200, SIDE, CLASSES);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = setup_usual;
        setup.model = cases[i].model;
        setup.optimizer = cases[i].optimizer;
        setup.max_norm = cases[i].max_norm;
        setup.shards = cases[i].shards;
        setup.n_steps = 12;
        for (int s = 5; s < setup.n_steps; s++)
            setup.samples[s] = 24 - s;
        const struct outcome lanes = setup_run_on(&setup, 1, 2, dataset);
        setup.device = &device;
        const struct outcome there = setup_run_on(&setup, 1, 2, dataset);
        if (cases[i].tolerance > 0)
            check_close(&setup, &lanes, &there, cases[i].tolerance);
        else
            outcome_check_same(&setup, &lanes, &there);
    }
    dataset_close(dataset);
    device.face->close(device.device);
}

/* What kernels want in another type is converted, parameters have copies: the same to rounding. In f16 losses are scaled. */
static void test_a_device_computes_in_16_bits(void)
{
    static const struct {
        const char *model;
        enum dtype precision;
        double tolerance;
    } cases[] = {
        { "mlp", DTYPE_BF16, 0.03 },    { "cnn", DTYPE_BF16, 0.03 },
        { "normed", DTYPE_BF16, 0.03 }, { "narrow", DTYPE_BF16, 0.03 },
        { "mlp", DTYPE_F16, 0.004 },    { "cnn", DTYPE_F16, 0.004 },
        { "normed", DTYPE_F16, 0.004 }, { "narrow", DTYPE_F16, 0.004 },
    };
    struct exec_device device;

    exec_testing_open_cpu(&device);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = setup_usual;
        setup.model = cases[i].model;
        setup.shards = 2;
        const struct outcome lanes = setup_run_on(&setup, 1, 1, NULL);
        device.face = device_testing_narrow();
        device.precision = cases[i].precision;
        setup.device = &device;
        const struct outcome there = setup_run_on(&setup, 1, 1, NULL);
        check_close(&setup, &lanes, &there, cases[i].tolerance);
        CHECK(strcmp(lanes.hash, there.hash) != 0);
    }
    device.face->close(device.device);
}

/* The first rank's hash; others' is empty. */
static enum status hash_first(struct exec *exec, struct comm *comm, char out[65])
{
    out[0] = '\0';
    TRY(exec_settle(exec));
    if (comm_rank(comm) == 0)
        TRY(exec_hash(exec, out));
    return comm_barrier(comm);
}

/* Streams keep the order of one: whichever is as late as their events allow, bits are the same. */
static void test_late_streams_give_the_bits_of_prompt_ones(void)
{
    static const struct {
        const char *model;
        int64_t shards;
        enum dtype precision;
    } cases[] = {
        { "mlp", 1, DTYPE_F32 },    { "cnn", 1, DTYPE_BF16 },   { "cnn", 3, DTYPE_F32 },
        { "normed", 1, DTYPE_F32 }, { "normed", 2, DTYPE_F32 }, { "narrow", 1, DTYPE_BF16 },
    };
    struct exec_device device;

    exec_testing_open_cpu(&device);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = setup_usual;
        setup.model = cases[i].model;
        setup.optimizer = "adam";
        setup.shards = cases[i].shards;
        setup.device = &device;
        device.precision = cases[i].precision;
        device.face = device_testing_narrow();
        const struct outcome prompt = setup_run_on(&setup, 1, 1, NULL);
        for (int beside = 0; beside < 2; beside++) {
            device.face = device_testing_late(beside);
            const struct outcome late = setup_run_on(&setup, 1, 1, NULL);
            outcome_check_same(&setup, &prompt, &late);
        }
    }
    device.face->close(device.device);
}

/* A step whose scale is far too large, and some after it that have half of it each: nothing changes until gradients are
 * finite again. */
static enum status train_overscaled(struct comm *comm, void *arg)
{
    struct job *job = arg;
    const struct exec_config config = job_config(job, comm);
    struct device_scaling scaling = { .scale = 0x1p32F, .good = 7, .skipped = 2 };
    struct outcome *out = &job->outcomes[comm_rank(comm)];
    char before[65], after[65];
    struct batch *batch;
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    enum status status = exec_init_params(exec);
    for (int s = 0; s < job->setup->n_steps && status == STATUS_OK; s++) {
        const int64_t skipped = scaling.skipped;
        status = hash_first(exec, comm, before);
        if (status == STATUS_OK && s == 0)
            status = exec_set_scaling(exec, &scaling);
        if (status == STATUS_OK)
            status = setup_make_batch(job->setup, exec, s, &batch);
        if (status != STATUS_OK)
            break;
        status = exec_step(exec, batch, &out->steps[s]);
        setup_free_batch(batch);
        if (status == STATUS_OK)
            status = hash_first(exec, comm, after);
        if (status == STATUS_OK)
            status = exec_scaling(exec, &scaling);
        if (status == STATUS_OK && comm_rank(comm) == 0 &&
            (scaling.skipped > skipped) != (strcmp(before, after) == 0))
            status = FAIL(STATUS_MISMATCH, "step %d: skipped %d, but weights changed %d", s,
                          scaling.skipped > skipped, strcmp(before, after) != 0);
    }
    exec_destroy(exec);
    TRY(status);
    if (scaling.skipped < 10 || scaling.skipped > 22 ||
        scaling.scale != ldexpf(1, 32 - (int)(scaling.skipped - 2)) ||
        scaling.good != job->setup->n_steps - (scaling.skipped - 2))
        return FAIL(STATUS_MISMATCH, "scale %g, good %d, skipped %lld", (double)scaling.scale,
                    (int)scaling.good, (long long)scaling.skipped);
    return STATUS_OK;
}

static void test_steps_without_finite_gradients_are_skipped(void)
{
    struct setup setup = setup_usual;
    struct exec_device device;
    struct job job;

    exec_testing_open_cpu(&device);
    device.face = device_testing_narrow();
    device.precision = DTYPE_F16;
    setup.model = "normed";
    setup.optimizer = "adam";
    setup.device = &device;
    setup.shards = 2;
    setup.threads = 1;
    setup.n_steps = STEPS_MAX;
    for (int s = 0; s < STEPS_MAX; s++)
        setup.samples[s] = setup.batch;
    for (setup.ranks = 1; setup.ranks <= 2; setup.ranks++) {
        job_make(&setup, &job);
        CHECK_OK(comm_testing_threads(setup.ranks, NULL, train_overscaled, &job));
        job_release(&job);
    }
    device.face->close(device.device);
}

/* With one group of gradients, or several. */
static void compare_ranks(struct setup *setup, struct exec_device *device,
                          struct dataset *dataset)
{
    setup->rows[1] = setup->rows[2] = 0;
    const struct outcome alone = setup_run_on(setup, 1, 1, dataset);

    for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
        setup->rows[2] = ranks == 2 ? setup->shards : 0; /* the others: as equal as can be */
        setup->rows[1] = 1;
        device->group_bytes = ranks == 3 ? 0 : 4096;
        const struct outcome together = setup_run_on(setup, ranks, 1, dataset);
        outcome_check_same(setup, &alone, &together);
    }
}

/* Ranks that share a device, or several, each update a part; where norms of parameters are needed, all of it: the bits of one rank.
 * In bf16 parameters are f32, or drawn. */
static void test_ranks_on_a_device_give_the_bits_of_one(void)
{
    static const struct {
        const char *model, *optimizer;
        float max_norm;
        int64_t shards;
        enum dtype precision;
    } cases[] = {
        { "mlp", "sgd", 0, 4, DTYPE_F32 },       { "mlp", "adamw", 0, 6, DTYPE_BF16 },
        { "cnn", "adam", 0, 4, DTYPE_F32 },      { "normed", "sgd", 0, 12, DTYPE_BF16 },
        { "narrow", "sgd", 0, 8, DTYPE_F32 },    { "mlp", "sgd", 0.5F, 4, DTYPE_F32 },
        { "mlp", "lars", 0.5F, 6, DTYPE_F32 },   { "normed", "lamb", 0.5F, 4, DTYPE_BF16 },
        { "normed", "lamb", 0, 6, DTYPE_F32 },   { "normed", "sgd", 0, 4, DTYPE_F16 },
        { "mlp", "lamb", 0.5F, 6, DTYPE_F16 },   { "mlp", "adam", 0.5F, 4, DTYPE_F16 },
        { "narrow", "sgd", 0.1F, 8, DTYPE_F32 }, { "normed", "adamw", 0.1F, 6, DTYPE_BF16 },
    };
    struct exec_device device;

    exec_testing_open_cpu(&device);
    struct dataset *dataset = exec_testing_samples(7, 200, SIDE, CLASSES);
    const struct device_face *cpu = device.face;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct setup setup = setup_usual;
        setup.model = cases[i].model;
        setup.optimizer = cases[i].optimizer;
        setup.max_norm = cases[i].max_norm;
        setup.shards = cases[i].shards;
        setup.device = &device;
        device.face = cases[i].precision == DTYPE_F32 ? cpu : device_testing_late(true);
        device.precision = cases[i].precision;
        setup.n_steps = 11; /* more than are under way */
        for (int s = 5; s < setup.n_steps; s++)
            setup.samples[s] = 24 - s;
        for (int draws = 0; draws <= (cases[i].precision == DTYPE_BF16); draws++) {
            device.draws = draws;
            compare_ranks(&setup, &device, dataset);
        }
    }
    dataset_close(dataset);
    device.face->close(device.device);
}

struct processes {
    struct job job;
    char hash[65]; /* of one rank */
    int lost_at;   /* rank 1 dies in this step; 0: nobody does */
};

/* Memory of processes is lost with them: they compare. */
static enum status run_process(struct comm *comm, void *arg)
{
    struct processes *processes = arg;
    struct exec_config config = job_config(&processes->job, comm);
    struct outcome *out = &processes->job.outcomes[0];
    int left = processes->lost_at;
    struct exec *exec;

    config.at_meeting = comm_rank(comm) == 1 && left ? exec_testing_die_at : NULL;
    config.at_meeting_arg = &left;
    TRY(exec_create(&config, &exec));
    enum status status = job_train(&processes->job, exec, comm, out);
    exec_destroy(exec);
    TRY(status);
    return strcmp(out->hash, processes->hash) == 0
               ? STATUS_OK
               : FAIL(STATUS_MISMATCH, "%s is not %s", out->hash, processes->hash);
}

/* They open each other's memory; when one is gone the others do not wait for it, and name it. */
static void test_processes_on_a_device_give_the_bits_of_one(void)
{
    static struct processes processes;
    struct exec_device device;
    struct setup setup = setup_usual;

    exec_testing_open_cpu(&device);
    setup.optimizer = "adam";
    setup.shards = 4;
    setup.device = &device;
    setup.n_steps = 10;
    for (int s = 5; s < setup.n_steps; s++)
        setup.samples[s] = 24;
    const struct outcome alone = setup_run_on(&setup, 1, 1, NULL);
    memcpy(processes.hash, alone.hash, sizeof processes.hash);
    for (int ranks = 2; ranks <= RANKS_MAX; ranks += 2) {
        setup.ranks = ranks;
        job_make(&setup, &processes.job);
        processes.lost_at = 0;
        CHECK_OK(comm_testing_processes(ranks, NULL, run_process, &processes));
        processes.lost_at = 4;
        const double began = clock_seconds();
        CHECK_STATUS(STATUS_PEER_LOST,
                     comm_testing_processes(ranks, NULL, run_process, &processes));
        CHECK_MESSAGE("killed by signal 9");
        CHECK(clock_seconds() - began < 4); /* after five seconds they would have been killed */
        job_release(&processes.job);
    }
    device.face->close(device.device);
}

/* Each rank has one shard then. */
static void test_ranks_on_a_device_exchange_statistics(void)
{
    struct exec_device device;

    exec_testing_open_cpu(&device);
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        struct setup setup = setup_usual;
        setup.model = "normed";
        setup.shards = ranks;
        setup.sync_norm = true;
        const struct outcome lanes = setup_run_on(&setup, ranks, 1, NULL);
        setup.device = &device;
        device.group_bytes = ranks == 3 ? 0 : 4096;
        const struct outcome there = setup_run_on(&setup, ranks, 1, NULL);
        outcome_check_same(&setup, &lanes, &there);
    }
    device.face->close(device.device);
}

static enum status refuse_device(struct comm *comm, void *arg)
{
    const struct exec_config config = job_config(arg, comm);
    struct exec *exec;

    CHECK_STATUS(config.threads > 1 ? STATUS_USAGE : STATUS_UNSUPPORTED,
                 exec_create(&config, &exec));
    return STATUS_OK;
}

/* Shards that one rank runs one after the other cannot exchange statistics. */
static void test_what_a_device_cannot_run_is_refused(void)
{
    static struct job job;
    struct exec_device device;
    struct setup setup = setup_usual;

    exec_testing_open_cpu(&device);
    setup.device = &device;
    setup.shards = 2;
    setup.ranks = 2;
    setup.threads = 1;
    setup.compress = "topk";
    job_make(&setup, &job);
    CHECK_OK(comm_testing_nodes(2, 2, NULL, refuse_device, &job));
    job_release(&job);
    setup.compress = NULL;
    setup.ranks = 1;
    setup.model = "normed";
    setup.sync_norm = true;
    setup.threads = 2;
    job_make(&setup, &job);
    CHECK_OK(comm_testing_threads(1, NULL, refuse_device, &job));
    job_release(&job);
    device.face->close(device.device);
}

const struct test tests[] = {
    { .name = "a device gives the bits of lanes",
      .run = test_a_device_gives_the_bits_of_lanes },
    { .name = "late streams give the bits of prompt ones",
      .run = test_late_streams_give_the_bits_of_prompt_ones },
    { .name = "a device computes in 16 bits", .run = test_a_device_computes_in_16_bits },
    { .name = "steps without finite gradients are skipped",
      .run = test_steps_without_finite_gradients_are_skipped },
    { .name = "ranks on a device give the bits of one",
      .run = test_ranks_on_a_device_give_the_bits_of_one },
    { .name = "ranks on a device exchange statistics",
      .run = test_ranks_on_a_device_exchange_statistics },
    { .name = "processes on a device give the bits of one",
      .run = test_processes_on_a_device_give_the_bits_of_one },
    { .name = "what a device cannot run is refused",
      .run = test_what_a_device_cannot_run_is_refused },
    { 0 },
};
