/* SPDX-License-Identifier: MIT */
/* split_testing.c - what a rank of a split model does in tests: groups, graphs, an executor, steps, and its parameters as
 * part of the whole ones.
 */
#include "exec/split_testing.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "exec/exec_testing.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { LENGTH = 8, VOCABULARY = 67 };

struct job {
    const struct split_setup *setup;
    struct optim_config optim;
    struct kernel_choices *choices;
    struct split_outcome *out; /* NULL: ranks compare with `expected` */
    const struct split_outcome *expected;
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

static enum status build(const struct split_setup *setup, bool training, struct graph **out)
{
    const struct model *model = model_find(setup->model);
    struct model_config config = model_defaults(model);

    if (model->task == MODEL_IMAGES)
        config.sample = (struct shape){ 3, { 1, SPLIT_SIDE, SPLIT_SIDE } };
    config.classes = config.classes ? SPLIT_CLASSES : 0;
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
    const struct split_setup *setup = job->setup;
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
                    &rng, part == 2 && value->shape.rank == 1 ? SPLIT_CLASSES : VOCABULARY);
        }
    }
    return STATUS_OK;
}

/* Some steps have fewer samples than the batch has, in some of which most shards are empty. */
static int64_t samples_of(const struct split_setup *setup, int step)
{
    if (setup->same_size)
        return setup->batch;
    return step % 4 == 2 ? 3 : step % 4 == 3 ? setup->batch - 5 : setup->batch;
}

static enum status make_batch(const struct split_setup *setup, const struct member *m, int step,
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
    const struct split_setup *setup = job->setup;
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
    const struct split_outcome *known = job->out ? job->out : job->expected;

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
    const struct split_setup *setup = job->setup;
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

static void make_job(const struct split_setup *setup, struct job *job)
{
    *job = (struct job){ .setup = setup };
    job->optim.optimizer = optim_find(setup->optimizer ? setup->optimizer : "adam");
    job->optim.attrs = job->optim.optimizer->defaults;
    job->optim.attrs.max_norm = setup->max_norm;
    job->optim.schedule =
        (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = setup->lr > 0 ? setup->lr : 0.001 };
    CHECK_OK(kernel_choices_load_exact(NULL, &job->choices));
}

static void find_places(const struct split_setup *setup, struct split_outcome *out)
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

static int ranks_of(const struct split_setup *setup)
{
    return setup->axes.dp * setup->axes.tp * setup->axes.pp;
}

struct split_outcome split_run(const struct split_setup *setup)
{
    struct split_outcome out = { .n_params = 0 };
    struct job job;

    find_places(setup, &out);
    make_job(setup, &job);
    job.out = &out;
    CHECK_OK(comm_testing_threads(ranks_of(setup), NULL, run_rank, &job));
    kernel_choices_destroy(job.choices);
    return out;
}

enum status split_run_processes(const struct split_setup *setup,
                                const struct split_outcome *expected)
{
    struct job job;

    make_job(setup, &job);
    job.expected = expected;
    const enum status status = comm_testing_processes(ranks_of(setup), NULL, run_rank, &job);
    kernel_choices_destroy(job.choices);
    return status;
}

struct split_setup split_of(const char *model, struct axes axes)
{
    struct split_setup setup = {
        .model = model, .axes = axes, .batch = 24, .shards = 8, .n_steps = 12
    };

    setup.axes.chunks = axes.chunks ? axes.chunks : 1;
    setup.axes.dp = axes.dp ? axes.dp : 1;
    setup.axes.tp = axes.tp ? axes.tp : 1;
    setup.axes.pp = axes.pp ? axes.pp : 1;
    return setup;
}

struct split_setup split_gpt(struct axes axes)
{
    struct split_setup setup = split_of("gpt", axes);

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

void split_check_same(const struct split_setup *setup, const struct split_outcome *one,
                      const struct split_outcome *other)
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

void split_check_heard(const struct split_setup *setup, const struct split_outcome *out)
{
    for (int s = 0; s < setup->n_steps; s++)
        CHECK_INT(ranks_of(setup) > 1 ? 2 << s % 8 : 0, out->heard[s]);
}

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

void split_check_refused(const struct split_setup *setup)
{
    struct job job;

    make_job(setup, &job);
    CHECK_OK(comm_testing_threads(ranks_of(setup), NULL, refuse, &job));
    kernel_choices_destroy(job.choices);
}
