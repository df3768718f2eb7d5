/* SPDX-License-Identifier: MIT */
/* device_split_test.c - layers split among ranks on a device: stages of a pipeline have the bits of one rank, ranks that
 * share layers its losses, and nobody waits for a rank that is gone.
 *
 * The device is the CPU, or one that computes in bf16 by the references. Ranks are threads, or processes that compare
 * what they have with what threads had.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "data/dataset.h"
#include "exec/exec.h"
#include "exec/exec_testing.h"
#include "kernel/device_testing.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { STEPS_MAX = 20, SIDE = 8, CLASSES = 6, LENGTH = 8, VOCABULARY = 67, MOST_PARAMS = 256 };

struct setup {
    const char *model;
    struct {
        const char *name;
        double value;
    } options[4];
    struct axes axes;
    int64_t batch, shards, bucket_bytes;
    const char *optimizer; /* NULL: adam */
    float max_norm;
    double lr;   /* 0: a small one */
    float scale; /* of losses in f16, at first; 0: the usual one */
    bool sequence, recompute, dense;
    bool inward; /* filters lie as on GPUs: with the same bits */
    bool
        joined; /* as on GPUs; the CPU joins batch norms' gradients by other kernels, with other bits */
    int n_steps;
    bool same_size; /* all steps have the whole batch */
    const struct exec_device *device;
    const struct dataset *dataset; /* NULL: no evaluation */
    int lost_at;                   /* rank 1 dies in this step; 0: nobody does */
};

/* Parameters one after the other, whole and plain, as files have them. */
struct outcome {
    double loss[STEPS_MAX], correct[STEPS_MAX];
    uint32_t heard[STEPS_MAX];
    struct exec_result evaluation;
    size_t begin[MOST_PARAMS]; /* of each */
    float *params;
    size_t n_params;
    size_t held_bytes; /* of parameters and gradients, on rank 0 */
    int64_t skipped;   /* steps, in f16 */
};

struct job {
    const struct setup *setup;
    struct optim_config optim;
    struct kernel_choices *choices;
    struct outcome *out; /* NULL: ranks compare with `expected` */
    const struct outcome *expected;
};

/* What a rank has. */
struct member {
    struct axes_place place;
    int rank;
    struct transport *same, *shared, *stages, *beside;
    struct comm *comm; /* of `same` */
    struct graph *train, *eval;
    struct exec *exec;
};

/* Graphs ------------------------------------------------------------------------------- */

static enum status build(const struct setup *setup, bool training, struct graph **out)
{
    const struct model *model = model_find(setup->model);
    struct model_config config = model_defaults(model);

    if (model->task == MODEL_IMAGES)
        config.sample = (struct shape){ 3, { 1, SIDE, SIDE } };
    config.classes = config.classes ? CLASSES : 0;
    config.vocab[0] = config.vocab[1] = VOCABULARY;
    config.length[0] = config.length[1] = LENGTH;
    config.training = training;
    config.batch = training ? setup->batch : 1;
    for (int i = 0; i < 4 && setup->options[i].name; i++)
        TRY(model_set_option(model, &config, setup->options[i].name, setup->options[i].value));
    return model_build(model, &config, out);
}

static enum status make_graph(const struct job *job, struct axes_place place,
                              const struct graph *like, struct graph **out)
{
    const struct setup *setup = job->setup;
    const struct axes *axes = &setup->axes;
    const bool training = !like;
    struct pass_config config = {
        .batch = training ? setup->batch : 1,
        .shards = training ? setup->shards : 1,
        .ranks = training ? axes->dp : 1,
        .bucket_bytes = setup->bucket_bytes,
        .apart = true,
        .epilogues = setup->joined,
        .inward = setup->inward,
        .recompute = setup->recompute,
        .dense = setup->dense,
        .zero = axes->zero,
        .tensor = { .count = axes->tp, .index = place.tp, .sequence = setup->sequence },
        .pipeline = { .stages = axes->pp,
                      .chunks = axes->chunks,
                      .own = place.pp,
                      .like = like },
        .optim = job->optim,
    };

    TRY(build(setup, training, out));
    return pass_run(*out, training ? strategy_find("hybrid")->passes : pass_evaluation, &config,
                    NULL);
}

/* Samples ------------------------------------------------------------------------------ */

static int64_t numbers_of(const struct value *value)
{
    return value ? shape_count(&value->shape) / value->shape.dim[0] : 0;
}

/* Drawn from a sample's number, so the same for every cut. */
static enum status fill(const struct value *value, const struct batch *batch, int part,
                        void **out)
{
    const int64_t numbers = numbers_of(value);

    if (!value)
        return STATUS_OK;
    TRY(mem_alloc((size_t)(batch->rows * numbers) + 1, sizeof(float), out));
    for (int64_t r = 0; r < batch->rows; r++) {
        struct rng rng;
        rng_init(&rng, (uint64_t)(batch->first + r) * 3 + (uint64_t)part, batch->step);
        for (int64_t i = 0; i < numbers; i++) {
            if (value->dtype == DTYPE_F32)
                ((float *)*out)[r * numbers + i] = (float)rng_normal(&rng);
            else
                ((int32_t *)*out)[r * numbers + i] = (int32_t)rng_below(
                    &rng, part == 2 && value->shape.rank == 1 ? CLASSES : VOCABULARY);
        }
    }
    return STATUS_OK;
}

/* Some steps have fewer samples than the batch has, in some of which most shards are empty. */
static int64_t samples_of(const struct setup *setup, int step)
{
    if (setup->same_size)
        return setup->batch;
    return step % 4 == 2 ? 3 : step % 4 == 3 ? setup->batch - 5 : setup->batch;
}

static enum status make_batch(const struct setup *setup, const struct member *m, int step,
                              struct batch *out)
{
    const struct graph_roles *roles = graph_roles(m->train);
    const int64_t samples = samples_of(setup, step), shards = setup->shards;
    const int64_t shard = exec_first_shard(m->exec);
    const struct extents extents = graph_extents(m->train);

    *out = (struct batch){ .step = (uint64_t)step,
                           .samples = samples,
                           .first = sampler_shard_begin(samples, shards, shard),
                           .length = { extents.length[0], extents.length[1] } };
    out->rows =
        sampler_shard_begin(samples, shards, shard + exec_shard_count(m->exec)) - out->first;
    out->weight = samples * (roles->target ? numbers_of(roles->target) : 1);
    TRY(fill(roles->input, out, 0, &out->x));
    TRY(fill(roles->second, out, 1, (void **)&out->x2));
    return fill(roles->target, out, 2, (void **)&out->y);
}

/* A rank ------------------------------------------------------------------------------- */

static enum status take_late(const struct job *job, struct member *m, int *next)
{
    struct exec_result result;
    bool taken = true;

    while (taken) {
        TRY(exec_take_result(m->exec, *next < 0, &result, &taken));
        if (!taken)
            continue;
        const int step = *next < 0 ? -1 - (*next)-- : (*next)++;
        if (job->out && m->rank == 0) {
            job->out->loss[step] = result.loss;
            job->out->correct[step] = result.correct;
        }
    }
    return STATUS_OK;
}

static enum status train(const struct job *job, struct member *m)
{
    const struct setup *setup = job->setup;
    int next = 0;

    for (int s = 0; s < setup->n_steps; s++) {
        struct batch batch = { 0 };
        struct exec_result result;
        enum status status = make_batch(setup, m, s, &batch);
        exec_say(m->exec, m->rank == 0 ? 0 : 2U << s % 8);
        if (status == STATUS_OK)
            status = exec_step(m->exec, &batch, &result);
        mem_free(batch.x);
        mem_free(batch.x2);
        mem_free(batch.y);
        TRY(status);
        if (job->out && m->rank == 0)
            job->out->heard[s] = result.heard;
        TRY(take_late(job, m, &next));
    }
    next = -1 - next; /* all that are left */
    TRY(take_late(job, m, &next));
    struct exec_result evaluation;
    if (setup->dataset)
        TRY(exec_evaluate(m->exec, dataset_as_source(setup->dataset), &evaluation));
    if (setup->dataset && job->out && m->rank == 0)
        job->out->evaluation = evaluation;
    const struct exec_memory memory = exec_memory(m->exec);
    struct device_scaling scaling;
    TRY(exec_scaling(m->exec, &scaling));
    if (job->out && m->rank == 0) {
        job->out->held_bytes = memory.params + memory.gradients;
        job->out->skipped = scaling.skipped;
    }
    return STATUS_OK;
}

/* This rank's parameters, as part of the whole ones, or compared with them. */
static enum status give_params(const struct job *job, const struct member *m)
{
    const struct outcome *known = job->out ? job->out : job->expected;

    for (int g = 0; g < exec_group_count(m->exec); g++)
        TRY(exec_collect_group(m->exec, g, EXEC_PARAMS | EXEC_STATES));
    for (int p = 0; p < exec_param_count(m->exec) && m->place.dp == 0; p++) {
        const struct value *value = exec_param(m->exec, p);
        const struct shape saved = graph_saved_shape(value);
        const struct shape_slice slice = graph_saved_slice(value);
        float *whole = known->params + known->begin[exec_param_number(m->exec, p)];
        const size_t bytes = (size_t)shape_count(&saved) * sizeof *whole;
        float *plain, *before;

        TRY(mem_alloc(1, bytes, &plain));
        TRY(mem_alloc(1, bytes, &before));
        exec_get(m->exec, p, -1, plain);
        slice_cut(&slice, &saved, sizeof *plain, whole, before);
        const bool is_whole = slice.count == 0 && m->place.tp > 0;
        const bool is_same = memcmp(before, plain, bytes) == 0;
        if (job->out)
            slice_put(&slice, &saved, sizeof *plain, plain, whole);
        mem_free(plain);
        mem_free(before);
        if ((is_whole || !job->out) && !is_same)
            return FAIL(STATUS_MISMATCH, "%s differs on rank %d", value->name, m->rank);
    }
    return STATUS_OK;
}

static enum status make_groups(const struct job *job, struct comm *comm, struct member *m)
{
    const struct axes *axes = &job->setup->axes;
    struct transport *transport = comm_transport(comm);
    const struct {
        unsigned along;
        struct transport **group;
    } groups[] = { { AXIS_DP, &m->same },
                   { AXIS_TP, &m->shared },
                   { AXIS_PP, &m->stages },
                   { AXIS_TP | AXIS_PP, &m->beside } };
    const size_t each = 4 << 20;
    void *memory;

    m->rank = comm_rank(comm);
    m->place = axes_place_of(axes, m->rank);
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
        int members[AXES_RANKS];
        const int count = axes_group(axes, m->rank, groups[g].along, members);
        TRY(transport_group_create(transport, members, count, groups[g].group));
    }
    TRY(transport_share(transport, (size_t)(axes->tp * axes->pp) * each, &memory));
    transport_group_join(
        m->same, (char *)memory + (size_t)(m->place.pp * axes->tp + m->place.tp) * each, each);
    return comm_create(m->same, NULL, &m->comm);
}

static enum status make_exec(const struct job *job, int *left, struct member *m)
{
    const struct setup *setup = job->setup;
    const struct axes *axes = &setup->axes;

    TRY(make_graph(job, m->place, NULL, &m->train));
    TRY(make_graph(job, m->place, m->train, &m->eval));
    const struct exec_config config = {
        .train = m->train,
        .eval = m->eval,
        .comm = m->comm,
        .threads = 1,
        .shards = setup->shards,
        .batch = setup->batch,
        .seed = 11,
        .device = setup->device,
        .choices = job->choices,
        .optim = job->optim,
        .zero = axes->zero,
        .tensor = axes->tp > 1 ? m->shared : NULL,
        .pipeline = { .stages = axes->pp,
                      .own = m->place.pp,
                      .kind = axes->pipeline,
                      .chunks = axes->chunks,
                      .transport = m->stages },
        .beside = { .transport = m->beside, .teller = (axes->pp - 1) * axes->tp },
        .at_meeting = m->rank == 1 && *left ? exec_testing_die_at : NULL,
        .at_meeting_arg = left,
    };
    return exec_create(&config, &m->exec);
}

static enum status run_rank(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    int left = job->setup->lost_at;
    struct member m = { 0 };

    enum status status = make_groups(job, comm, &m);
    if (status == STATUS_OK)
        status = make_exec(job, &left, &m);
    if (status == STATUS_OK)
        status = exec_init_params(m.exec);
    if (status == STATUS_OK && job->setup->scale > 0)
        status =
            exec_set_scaling(m.exec, &(struct device_scaling){ .scale = job->setup->scale });
    if (status == STATUS_OK)
        status = train(job, &m);
    if (status == STATUS_OK)
        status = exec_settle(m.exec);
    /* Ranks that share layers one after the other. */
    for (int tp = 0; tp < job->setup->axes.tp && status == STATUS_OK; tp++) {
        if (tp == m.place.tp)
            status = give_params(job, &m);
        if (status == STATUS_OK)
            status = comm_barrier(comm);
    }
    exec_destroy(m.exec);
    comm_destroy(m.comm);
    transport_group_destroy(m.same);
    transport_group_destroy(m.shared);
    transport_group_destroy(m.stages);
    transport_group_destroy(m.beside);
    graph_destroy(m.train);
    graph_destroy(m.eval);
    return status;
}

/* Runs ---------------------------------------------------------------------------------- */

static void make_job(const struct setup *setup, struct job *job)
{
    *job = (struct job){ .setup = setup };
    job->optim.optimizer = optim_find(setup->optimizer ? setup->optimizer : "adam");
    job->optim.attrs = job->optim.optimizer->defaults;
    job->optim.attrs.max_norm = setup->max_norm;
    job->optim.schedule =
        (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = setup->lr > 0 ? setup->lr : 0.001 };
    CHECK_OK(kernel_choices_load_exact(NULL, &job->choices));
}

static void find_places(const struct setup *setup, struct outcome *out)
{
    struct graph *graph;
    int n = 0;

    CHECK_OK(build(setup, true, &graph));
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind != VALUE_PARAM && value->kind != VALUE_AVERAGE)
            continue;
        out->begin[n++] = out->n_params;
        out->n_params += (size_t)shape_count(&value->shape);
    }
    graph_destroy(graph);
    CHECK_OK(mem_alloc(out->n_params, sizeof *out->params, &out->params));
}

static int ranks_of(const struct setup *setup)
{
    return setup->axes.dp * setup->axes.tp * setup->axes.pp;
}

static struct outcome run(const struct setup *setup)
{
    struct outcome out = { .n_params = 0 };
    struct job job;

    find_places(setup, &out);
    make_job(setup, &job);
    job.out = &out;
    CHECK_OK(comm_testing_threads(ranks_of(setup), NULL, run_rank, &job));
    kernel_choices_destroy(job.choices);
    return out;
}

/* Processes have the parameters of `expected`; the status of all. */
static enum status run_processes(const struct setup *setup, const struct outcome *expected)
{
    struct job job;

    make_job(setup, &job);
    job.expected = expected;
    const enum status status = comm_testing_processes(ranks_of(setup), NULL, run_rank, &job);
    kernel_choices_destroy(job.choices);
    return status;
}

static struct setup setup_of(const char *model, struct axes axes)
{
    struct setup setup = {
        .model = model, .axes = axes, .batch = 24, .shards = 8, .n_steps = 12
    };

    setup.axes.chunks = axes.chunks ? axes.chunks : 1;
    setup.axes.dp = axes.dp ? axes.dp : 1;
    setup.axes.tp = axes.tp ? axes.tp : 1;
    setup.axes.pp = axes.pp ? axes.pp : 1;
    return setup;
}

static struct setup gpt_of(struct axes axes)
{
    struct setup setup = setup_of("gpt", axes);

    setup.options[0].name = "layers";
    setup.options[0].value = 4;
    setup.options[1].name = "heads";
    setup.options[1].value = 4;
    setup.options[2].name = "width";
    setup.options[2].value = 16;
    setup.options[3].name = "dropout";
    setup.options[3].value = 0.1;
    setup.joined = true;
    return setup;
}

static void check_same(const struct setup *setup, const struct outcome *one,
                       const struct outcome *other)
{
    for (int s = 0; s < setup->n_steps; s++) {
        if (one->loss[s] != other->loss[s] || one->correct[s] != other->correct[s])
            test_fail(__FILE__, __LINE__,
                      "%s tp=%d,dp=%d,pp=%d,zero=%d step %d: loss %.9g, of one rank %.9g",
                      setup->model, setup->axes.tp, setup->axes.dp, setup->axes.pp,
                      setup->axes.zero, s, other->loss[s], one->loss[s]);
    }
    CHECK(memcmp(one->params, other->params, one->n_params * sizeof(float)) == 0);
    CHECK_INT(one->skipped, other->skipped);
    CHECK(one->evaluation.loss == other->evaluation.loss &&
          one->evaluation.correct == other->evaluation.correct &&
          one->evaluation.top5 == other->evaluation.top5);
}

/* What others say is heard by the first, whoever works on the same samples or others. */
static void check_heard(const struct setup *setup, const struct outcome *out)
{
    for (int s = 0; s < setup->n_steps; s++)
        CHECK_INT(ranks_of(setup) > 1 ? 2 << s % 8 : 0, out->heard[s]);
}

static void check_losses(const struct setup *setup, const struct outcome *one,
                         const struct outcome *other, double tolerance)
{
    for (int s = 0; s < setup->n_steps; s++) {
        if (fabs(one->loss[s] - other->loss[s]) > tolerance * fabs(one->loss[s]))
            test_fail(__FILE__, __LINE__, "%s tp=%d step %d: loss %.9g, of one rank %.9g",
                      setup->model, setup->axes.tp, s, other->loss[s], one->loss[s]);
    }
}

/* Pipelines ------------------------------------------------------------------------------ */

static const struct axes pipelines[] = {
    { .pp = 2, .pipeline = PIPE_1F1B },
    { .pp = 4, .pipeline = PIPE_1F1B },
    { .pp = 3, .pipeline = PIPE_GPIPE },
    { .pp = 2, .pipeline = PIPE_INTERLEAVED, .chunks = 2 },
    { .pp = 2, .dp = 2, .pipeline = PIPE_1F1B },
    { .pp = 2, .dp = 2, .pipeline = PIPE_INTERLEAVED, .chunks = 2 },
};

/* of: the whole model on one rank; its axes are replaced. */
static void compare_pipelines(const struct setup *of, size_t begin, size_t end)
{
    struct outcome one = run(of);

    for (size_t i = begin; i < end; i++) {
        struct setup setup = setup_of(of->model, pipelines[i]);
        const struct axes axes = setup.axes;
        setup = *of;
        setup.axes = axes;
        setup.recompute = i == 1;
        setup.inward = true;
        struct outcome split = run(&setup);
        check_same(&setup, &one, &split);
        check_heard(&setup, &split);
        mem_free(split.params);
    }
    mem_free(one.params);
}

static const size_t n_pipelines = sizeof pipelines / sizeof *pipelines;

/* Residual connections, batch norms; evaluations go through the stages, too. */
static void pipelines_have_the_bits_of_one_rank(void)
{
    struct dataset *dataset = exec_testing_samples(5, 300, SIDE, CLASSES);
    struct exec_device device;

    exec_testing_open_cpu(&device);
    struct setup setup = setup_of("resnet18", (struct axes){ .dp = 1 });
    setup.options[0].name = "width";
    setup.options[0].value = 4;
    setup.n_steps = 6;
    setup.device = &device;
    setup.dataset = dataset;
    compare_pipelines(&setup, 0, n_pipelines);
    device.face->close(device.device);
    dataset_close(dataset);
}

/* A table that is also the last layer's weight, dropout; norms of parameters. */
static void pipelines_of_text_have_the_bits_of_one_rank(void)
{
    struct exec_device device;

    exec_testing_open_cpu(&device);
    struct setup setup = gpt_of((struct axes){ .dp = 1 });
    setup.n_steps = 6;
    setup.device = &device;
    compare_pipelines(&setup, 0, n_pipelines);
    setup.options[3].value =
        0; /* norms' gradients sum for biases, unless a cut is between them */
    compare_pipelines(&setup, 0, n_pipelines);
    setup.options[3].value = 0.1;
    setup.optimizer = "lamb";
    compare_pipelines(&setup, 3, 5);
    device.group_bytes = 4096; /* several groups */
    setup.bucket_bytes = 2048;
    compare_pipelines(&setup, 4, n_pipelines);
    device.face->close(device.device);
}

/* Rows of a table that do not occur stay as they are. */
static void pipelines_with_tables_have_the_bits_of_one_rank(void)
{
    struct exec_device device;

    exec_testing_open_cpu(&device);
    struct setup setup = setup_of("seq2seq", (struct axes){ .dp = 1 });
    setup.options[0].name = "hidden";
    setup.options[0].value = 8;
    setup.options[1].name = "embedding";
    setup.options[1].value = 6;
    setup.n_steps = 5;
    setup.device = &device;
    compare_pipelines(&setup, 0, 1);
    compare_pipelines(&setup, 3, n_pipelines);
    device.face->close(device.device);
}

static void pipelines_in_bf16_have_the_bits_of_one_rank(void)
{
    struct exec_device device;

    exec_testing_open_cpu(&device);
    device.face = device_testing_late(true);
    device.precision = DTYPE_BF16;
    struct setup setup = gpt_of((struct axes){ .dp = 1 });
    setup.n_steps = 4;
    setup.device = &device;
    for (int draws = 0; draws < 2; draws++) {
        device.draws = draws;
        compare_pipelines(&setup, 0, n_pipelines);
    }
    setup.options[3].value = 0; /* as before */
    compare_pipelines(&setup, 0, n_pipelines);
    device.face->close(device.device);
}

/* The norm of all gradients is that of one rank, whoever has them: all are scaled alike, and in f16 all skip the same steps. */
static void pipelines_know_the_norm_of_all_gradients(void)
{
    struct exec_device device;

    exec_testing_open_cpu(&device);
    struct setup setup = gpt_of((struct axes){ .dp = 1 });
    setup.optimizer = "sgd";
    setup.lr = 0.1;
    setup.n_steps = 5;
    setup.device = &device;
    struct outcome free = run(&setup);
    setup.max_norm = 0.3F;
    struct outcome clipped = run(&setup);
    CHECK(memcmp(free.params, clipped.params, free.n_params * sizeof(float)) != 0);
    mem_free(free.params);
    mem_free(clipped.params);
    compare_pipelines(&setup, 0, n_pipelines);
    device.group_bytes = 4096; /* several groups */
    setup.bucket_bytes = 2048;
    compare_pipelines(&setup, 4, n_pipelines);
    setup.optimizer = "lamb"; /* each updates all */
    compare_pipelines(&setup, 3, 5);
    setup = setup_of("seq2seq", (struct axes){ .dp = 1 }); /* tables of rows */
    setup.options[0].name = "hidden";
    setup.options[0].value = 8;
    setup.max_norm = 0.3F;
    setup.n_steps = 5;
    setup.device = &device;
    compare_pipelines(&setup, 3, 5);
    device.face->close(device.device);
}

static void pipelines_in_f16_have_the_bits_of_one_rank(void)
{
    struct exec_device device;

    exec_testing_open_cpu(&device);
    device.face = device_testing_narrow();
    device.precision = DTYPE_F16;
    for (int clips = 0; clips < 2; clips++) {
        struct setup setup = gpt_of((struct axes){ .dp = 1 });
        setup.n_steps = 10;
        setup.device = &device;
        setup.max_norm = clips ? 0.3F : 0;
        setup.scale = 0x1p24F; /* too large: some steps are skipped */
        struct outcome one = run(&setup);
        CHECK(one.skipped > 1 && one.skipped < setup.n_steps);
        mem_free(one.params);
        compare_pipelines(&setup, clips ? 1 : 0, clips ? 5 : n_pipelines);
    }
    device.face->close(device.device);
}

/* Shared layers -------------------------------------------------------------------------- */

static void compare_shared(const struct setup *of, const int *tp, double tolerance)
{
    struct outcome one = run(of);

    for (; *tp; tp++) {
        struct setup setup = *of;
        setup.axes.tp = *tp;
        struct outcome split = run(&setup);
        check_losses(&setup, &one, &split, tolerance);
        check_heard(&setup, &split);
        if (of->dataset)
            CHECK_CLOSE(one.evaluation.loss, split.evaluation.loss, 1e-4);
        mem_free(split.params);
    }
    mem_free(one.params);
}

/* Sums over slices are in another order, so losses agree to rounding. */
static void shared_layers_have_the_losses_of_one_rank(void)
{
    static const int tp[] = { 2, 4, 0 };
    struct dataset *dataset = exec_testing_samples(5, 300, SIDE, CLASSES);
    struct exec_device device;

    exec_testing_open_cpu(&device);
    struct setup setup = gpt_of((struct axes){ .dp = 1 });
    setup.n_steps = STEPS_MAX;
    setup.device = &device;
    compare_shared(&setup, tp, 1e-4);
    setup.sequence = true;
    compare_shared(&setup, tp, 1e-4);
    setup.sequence = false;
    setup.optimizer = "sgd";
    setup.max_norm = 0.3F; /* what ranks have whole counts once */
    setup.lr = 0.3;
    compare_shared(&setup, tp, 1e-4);
    setup = setup_of("cnn", (struct axes){ .dp = 1 });
    setup.device = &device;
    setup.dataset = dataset;
    setup.lr = 1e-4;
    compare_shared(&setup, tp, 1e-4);
    setup = setup_of("nbow", (struct axes){ .dp = 1 });
    setup.device = &device;
    compare_shared(&setup, tp, 1e-4);
    device.face->close(device.device);
    dataset_close(dataset);
}

static void shared_layers_compute_in_16_bits(void)
{
    static const int tp[] = { 2, 0 };
    struct exec_device device;

    exec_testing_open_cpu(&device);
    device.face = device_testing_late(true);
    struct setup setup = gpt_of((struct axes){ .dp = 1 });
    setup.n_steps = 5;
    setup.device = &device;
    device.precision = DTYPE_BF16;
    compare_shared(&setup, tp, 1e-2);
    device.precision = DTYPE_F16;
    compare_shared(&setup, tp, 2e-3);
    setup.max_norm = 0.3F;
    compare_shared(&setup, tp, 2e-3);
    device.face->close(device.device);
}

/* With as many ranks that share layers the bits are the same, whatever else there is; and those of lanes. */
static void grids_have_the_bits_of_shared_layers(void)
{
    static const struct axes grids[] = {
        { .tp = 2, .dp = 2 },
        { .tp = 2, .pp = 2, .pipeline = PIPE_1F1B },
        { .tp = 2, .pp = 2, .pipeline = PIPE_INTERLEAVED, .chunks = 2 },
    };
    struct exec_device device;

    exec_testing_open_cpu(&device);
    for (int clips = 0; clips < 2; clips++) {
        struct setup setup = gpt_of((struct axes){ .tp = 2 });
        setup.n_steps = 4;
        setup.same_size = true; /* lanes have one pace */
        setup.max_norm = clips ? 0.3F : 0;
        struct outcome lanes = run(&setup);
        setup.device = &device;
        struct outcome one = run(&setup);
        CHECK(memcmp(lanes.params, one.params, one.n_params * sizeof(float)) == 0);
        for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
            struct setup grid = setup;
            grid.axes = gpt_of(grids[i]).axes;
            struct outcome split = run(&grid);
            check_same(&grid, &one, &split);
            mem_free(split.params);
        }
        mem_free(lanes.params);
        mem_free(one.params);
    }
    device.face->close(device.device);
}

/* Parts -------------------------------------------------------------------------------------- */

/* Gradients of groups in a window, parameters that come before they are read: the bits of one rank, evaluations, too. */
static void compare_parts(const struct setup *of, int ranks, size_t *out_bytes)
{
    struct setup setup = *of;

    setup.axes.dp = 1;
    setup.axes.zero = 0;
    setup.inward = setup.device->draws; /* which goes by where elements lie */
    struct outcome one = run(&setup);
    setup.axes.dp = ranks;
    setup.inward = true;
    for (setup.axes.zero = 1; setup.axes.zero <= 3; setup.axes.zero++) {
        struct outcome split = run(&setup);
        check_same(&setup, &one, &split);
        out_bytes[setup.axes.zero] = split.held_bytes;
        mem_free(split.params);
    }
    mem_free(one.params);
}

static void parts_have_the_bits_of_one_rank(void)
{
    struct dataset *dataset = exec_testing_samples(5, 300, SIDE, CLASSES);
    struct exec_device device;

    exec_testing_open_cpu(&device);
    const struct device_face *faces[] = { device.face, device_testing_late(true) };
    for (int precision = 0; precision < 2; precision++) {
        device.face = faces[precision];
        device.precision = precision ? DTYPE_BF16 : DTYPE_F32;
        for (int ranks = 2; ranks <= 4; ranks++) {
            struct setup setup = gpt_of((struct axes){ .dp = 1 });
            size_t bytes[4];
            device.draws = precision && ranks > 2;
            setup.device = &device;
            setup.n_steps = precision ? 4 : 6;
            setup.shards = ranks == 3 ? 2 * ranks : ranks; /* several a rank, or one */
            setup.bucket_bytes = 2048;
            device.group_bytes = 8192;
            compare_parts(&setup, ranks, bytes);
            CHECK(ranks == 3 ? bytes[2] == bytes[1] : bytes[2] < bytes[1]);
            CHECK(bytes[3] < bytes[2]);
        }
        struct setup setup = setup_of("cnn", (struct axes){ .dp = 1 });
        size_t bytes[4];
        setup.device = &device;
        setup.dataset = precision ? NULL : dataset;
        setup.shards = 2;
        setup.n_steps = 4;
        device.group_bytes = 0; /* one group */
        compare_parts(&setup, 2, bytes);
        setup = setup_of("nbow", (struct axes){ .dp = 1 }); /* a table of rows stays whole */
        setup.device = &device;
        setup.shards = 2;
        setup.n_steps = 4;
        device.group_bytes = 256;
        setup.bucket_bytes = 256;
        compare_parts(&setup, 2, bytes);
    }
    device.face = faces[0];
    device.face->close(device.device);
    dataset_close(dataset);
}

/* The sums of a rank's parts stay until the norm is known. */
static void parts_know_the_norm_of_all_gradients(void)
{
    struct exec_device device;

    exec_testing_open_cpu(&device);
    const struct device_face *faces[] = { device.face, device_testing_narrow() };
    for (int scales = 0; scales < 2; scales++) {
        device.face = faces[scales];
        device.precision = scales ? DTYPE_F16 : DTYPE_F32;
        for (int ranks = 2; ranks <= 4; ranks++) {
            struct setup setup = gpt_of((struct axes){ .dp = 1 });
            size_t bytes[4];
            setup.device = &device;
            setup.optimizer = ranks == 4 ? "sgd" : NULL;
            setup.n_steps = scales ? 8 : 6;
            setup.scale = 0x1p24F;
            setup.max_norm = scales && ranks == 2 ? 0 : 0.3F;
            setup.shards = ranks == 3 ? 2 * ranks : ranks; /* several a rank, or one */
            setup.bucket_bytes = 2048;
            device.group_bytes = 8192;
            compare_parts(&setup, ranks, bytes);
            CHECK(ranks == 3 ? bytes[2] == bytes[1] : bytes[2] < bytes[1]);
            CHECK(bytes[3] < bytes[2]);
        }
        struct setup setup = setup_of("nbow", (struct axes){ .dp = 1 });
        size_t bytes[4];
        setup.device = &device;
        setup.max_norm = 0.1F;
        setup.shards = 2;
        setup.n_steps = 4;
        device.group_bytes = 256;
        setup.bucket_bytes = 256;
        compare_parts(&setup, 2, bytes);
    }
    device.face = faces[0];
    device.face->close(device.device);
}

/* Processes -------------------------------------------------------------------------------- */

/* They open each other's memory; when one is gone the others do not wait for it, and name it. */
static void processes_have_the_bits_of_threads(void)
{
    static const struct axes grids[] = {
        { .pp = 2, .pipeline = PIPE_1F1B },
        { .tp = 2 },
        { .tp = 2, .dp = 2 },
        { .pp = 2, .dp = 2, .pipeline = PIPE_INTERLEAVED, .chunks = 2 },
        { .dp = 4, .zero = 3 },
        { .dp = 2, .tp = 2, .zero = 2 },
        { .dp = 2 },
        { .dp = 4, .zero = 3 },
    };
    struct exec_device device;

    exec_testing_open_cpu(&device);
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        struct setup setup = gpt_of(grids[i]);
        setup.device = &device;
        setup.n_steps = 10;
        setup.max_norm = i % 2 ? 0.3F : 0;
        struct outcome threads = run(&setup);
        CHECK_OK(run_processes(&setup, &threads));
        setup.lost_at = 4;
        const double began = clock_seconds();
        CHECK_STATUS(STATUS_PEER_LOST, run_processes(&setup, &threads));
        CHECK_MESSAGE("killed by signal 9");
        CHECK(clock_seconds() - began < 4); /* after five seconds they would have been killed */
        mem_free(threads.params);
    }
    device.face->close(device.device);
}

/* Refusals --------------------------------------------------------------------------------- */

static enum status refuse(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    struct member m = { 0 };
    int left = 0;

    enum status status = make_groups(job, comm, &m);
    if (status == STATUS_OK && make_exec(job, &left, &m) != STATUS_UNSUPPORTED)
        status = FAIL(STATUS_MISMATCH, "it was not refused");
    comm_destroy(m.comm);
    transport_group_destroy(m.same);
    transport_group_destroy(m.shared);
    transport_group_destroy(m.stages);
    transport_group_destroy(m.beside);
    graph_destroy(m.train);
    graph_destroy(m.eval);
    return status;
}

static void what_cannot_be_split_is_refused(void)
{
    struct exec_device device;
    struct job job;

    exec_testing_open_cpu(&device);
    struct setup setup = gpt_of((struct axes){ .pp = 2, .pipeline = PIPE_1F1B });
    setup.device = &device;
    struct device_face lonely = *device.face;
    lonely.share = NULL;
    device.face = &lonely;
    make_job(&setup, &job);
    CHECK_OK(comm_testing_threads(2, NULL, refuse, &job));
    kernel_choices_destroy(job.choices);
    CHECK_OK(device_find("cpu", &device.face));
    setup = gpt_of((struct axes){ .dp = 2, .zero = 3 });
    setup.device = &device;
    setup.optimizer = "lamb"; /* each updates all */
    make_job(&setup, &job);
    CHECK_OK(comm_testing_threads(2, NULL, refuse, &job));
    kernel_choices_destroy(job.choices);
    device.face->close(device.device);
}

const struct test tests[] = {
    { .name = "pipelines have the bits of one rank",
      .run = pipelines_have_the_bits_of_one_rank },
    { .name = "pipelines of text have the bits of one rank",
      .run = pipelines_of_text_have_the_bits_of_one_rank },
    { .name = "pipelines with tables have the bits of one rank",
      .run = pipelines_with_tables_have_the_bits_of_one_rank },
    { .name = "pipelines in bf16 have the bits of one rank",
      .run = pipelines_in_bf16_have_the_bits_of_one_rank },
    { .name = "pipelines know the norm of all gradients",
      .run = pipelines_know_the_norm_of_all_gradients },
    { .name = "pipelines in f16 have the bits of one rank",
      .run = pipelines_in_f16_have_the_bits_of_one_rank },
    { .name = "shared layers have the losses of one rank",
      .run = shared_layers_have_the_losses_of_one_rank },
    { .name = "shared layers compute in 16 bits", .run = shared_layers_compute_in_16_bits },
    { .name = "grids have the bits of shared layers",
      .run = grids_have_the_bits_of_shared_layers },
    { .name = "parts have the bits of one rank", .run = parts_have_the_bits_of_one_rank },
    { .name = "parts know the norm of all gradients",
      .run = parts_know_the_norm_of_all_gradients },
    { .name = "processes have the bits of threads", .run = processes_have_the_bits_of_threads },
    { .name = "what cannot be split is refused", .run = what_cannot_be_split_is_refused },
    { 0 },
};
