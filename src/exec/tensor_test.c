/* SPDX-License-Identifier: MIT */
/* tensor_test.c - ranks that share layers train as one rank with whole layers does.
 *
 * Ranks are threads of this process. Losses of some steps and the gradient of every parameter are
 * compared with those of one rank; parameters that all ranks have must stay the same to the last
 * bit.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "exec/exec.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { STEPS_MAX = 20, RANKS_MAX = 4, SIDE = 8, LENGTH = 8, LENGTH2 = 6, VOCABULARY = 67 };

struct setup {
    const char *model;
    struct {
        const char *name;
        double value;
    } options[4];
    int64_t side; /* of images; 0: SIDE */
    int64_t vocabulary;
    float smoothing;
    int tp, dp, zero, threads;
    int64_t batch, shards;
    bool sequence, recompute;
    bool shares_memory; /* ranks that share layers do; else they send messages */
    int n_steps;
    double lr;        /* 0: a small one */
    double tolerance; /* of gradients; 0: 1e-4 */
    int draw;         /* which samples */
};

/* Parameters one after the other, whole and plain, as files have them. */
struct outcome {
    double loss[STEPS_MAX], correct[STEPS_MAX];
    float *params;
    size_t n_params;
};

struct job {
    const struct setup *setup;
    struct optim_config optim;
    struct kernel_choices *choices;
    const struct axes axes;
    struct outcome *out;
};

static struct axes axes_of(const struct setup *setup)
{
    return (struct axes){ .dp = setup->dp > 0 ? setup->dp : 1,
                          .tp = setup->tp > 0 ? setup->tp : 1,
                          .pp = 1 };
}

/* Graphs ------------------------------------------------------------------------------- */

static enum status build(const struct setup *setup, bool training, struct graph **out)
{
    const struct model *model = model_find(setup->model);
    struct model_config config = model_defaults(model);
    const int64_t side = setup->side ? setup->side : SIDE;

    if (model->task == MODEL_IMAGES)
        config.sample = (struct shape){ 3, { model->sample.dim[0], side, side } };
    config.classes = config.classes ? 6 : 0;
    config.vocab[0] = config.vocab[1] = setup->vocabulary ? setup->vocabulary : VOCABULARY;
    config.length[0] = LENGTH;
    config.length[1] = LENGTH2;
    config.training = training;
    config.label_smoothing = setup->smoothing;
    config.batch = training ? setup->batch : 1;
    for (int i = 0; i < 4 && setup->options[i].name; i++)
        TRY(model_set_option(model, &config, setup->options[i].name, setup->options[i].value));
    return model_build(model, &config, out);
}

static enum status make_graph(const struct job *job, int index, bool training,
                              struct graph **out)
{
    const struct setup *setup = job->setup;
    const struct axes axes = axes_of(setup);
    const struct pass_config config = {
        .batch = training ? setup->batch : 1,
        .shards = training ? setup->shards : 1,
        .ranks = training ? axes.dp : 1,
        .recompute = setup->recompute,
        .zero = setup->zero,
        .tensor = { .count = axes.tp, .index = index, .sequence = setup->sequence },
        .optim = job->optim,
    };
    const char *name = axes.dp == 1 ? "tensor" : "hybrid";

    TRY(build(setup, training, out));
    const enum status status =
        pass_run(*out, training ? strategy_find(name)->passes : pass_evaluation, &config, NULL);
    if (status != STATUS_OK)
        graph_destroy(*out);
    return status;
}

/* Samples ------------------------------------------------------------------------------ */

static int64_t numbers_of(const struct value *value)
{
    return value ? shape_count(&value->shape) / value->shape.dim[0] : 0;
}

static enum status fill(const struct value *value, int64_t first, int64_t rows, int step,
                        int part, const struct setup *setup, void **out)
{
    const int64_t numbers = numbers_of(value);
    const int64_t top = part == 2 && value->shape.rank == 1
                            ? 6
                            : (setup->vocabulary ? setup->vocabulary : VOCABULARY);

    if (!value)
        return STATUS_OK;
    TRY(mem_alloc((size_t)(rows * numbers) + 1, sizeof(float), out));
    for (int64_t r = 0; r < rows; r++) {
        struct rng rng;
        rng_init(&rng, (uint64_t)(first + r) * 3 + (uint64_t)part,
                 (uint64_t)(step + 1000 * setup->draw));
        for (int64_t i = 0; i < numbers; i++) {
            if (value->dtype == DTYPE_F32)
                ((float *)*out)[r * numbers + i] = (float)rng_normal(&rng);
            else /* some of them padding */
                ((int32_t *)*out)[r * numbers + i] =
                    part == 2 && value->shape.rank > 1 && rng_below(&rng, 7) == 0
                        ? -1
                        : (int32_t)rng_below(&rng, (uint64_t)top);
        }
    }
    return STATUS_OK;
}

static void free_batch(struct batch *batch)
{
    mem_free(batch->x);
    mem_free(batch->x2);
    mem_free(batch->y);
}

/* Labels of the whole step that count. */
static enum status weigh(const struct graph_roles *roles, const struct setup *setup, int step,
                         int64_t *out)
{
    void *labels = NULL;

    *out = setup->batch;
    if (!roles->target || roles->target->shape.rank == 1 || roles->target->dtype != DTYPE_I32)
        return STATUS_OK;
    TRY(fill(roles->target, 0, setup->batch, step, 2, setup, &labels));
    *out = 0;
    for (int64_t i = 0; i < setup->batch * numbers_of(roles->target); i++)
        *out += ((const int32_t *)labels)[i] >= 0;
    mem_free(labels);
    return STATUS_OK;
}

static enum status make_batch(const struct setup *setup, struct graph *graph,
                              const struct exec *exec, int step, struct batch *out)
{
    const struct graph_roles *roles = graph_roles(graph);
    const int64_t first =
        sampler_shard_begin(setup->batch, setup->shards, exec_first_shard(exec));
    const int64_t end = sampler_shard_begin(setup->batch, setup->shards,
                                            exec_first_shard(exec) + exec_shard_count(exec));
    const struct extents extents = graph_extents(graph);

    *out = (struct batch){ .step = (uint64_t)step,
                           .samples = setup->batch,
                           .first = first,
                           .rows = end - first,
                           .length = { extents.length[0], extents.length[1] } };
    TRY(weigh(roles, setup, step, &out->weight));
    TRY(fill(roles->input, first, out->rows, step, 0, setup, &out->x));
    TRY(fill(roles->second, first, out->rows, step, 1, setup, (void **)&out->x2));
    return fill(roles->target, first, out->rows, step, 2, setup, (void **)&out->y);
}

/* A rank ------------------------------------------------------------------------------- */

/* Puts this rank's slices into the whole parameters of all; one that all ranks have must be the
 * same. */
static enum status give_params(const struct exec *exec, float *params, bool is_first)
{
    size_t at = 0;

    for (int p = 0; p < exec_param_count(exec); p++) {
        const struct value *value = exec_param(exec, p);
        const struct shape saved = graph_saved_shape(value);
        const struct shape_slice slice = graph_saved_slice(value);
        const struct shape whole = slice_whole_shape(&slice, &saved);
        const size_t count = (size_t)shape_count(&saved);
        float *plain;

        TRY(mem_alloc(count + 1, sizeof *plain, &plain));
        exec_get(exec, p, -1, plain);
        const bool is_same = is_first || slice.count > 0 ||
                             memcmp(params + at, plain, count * sizeof *plain) == 0;
        slice_put(&slice, &saved, sizeof *plain, plain, params + at);
        mem_free(plain);
        if (!is_same)
            return FAIL(STATUS_MISMATCH, "%s differs among ranks that share layers",
                        value->name);
        at += (size_t)shape_count(&whole);
    }
    return STATUS_OK;
}

static enum status train(const struct job *job, struct graph *graph, struct exec *exec,
                         struct outcome *out)
{
    TRY(exec_init_params(exec));
    for (int s = 0; s < job->setup->n_steps; s++) {
        struct batch batch;
        struct exec_result result;
        enum status status = make_batch(job->setup, graph, exec, s, &batch);
        if (status == STATUS_OK)
            status = exec_step(exec, &batch, &result);
        free_batch(&batch);
        TRY(status);
        if (out) {
            out->loss[s] = result.loss;
            out->correct[s] = result.correct;
        }
    }
    return exec_settle(exec);
}

static enum status run_rank(struct comm *comm, void *arg)
{
    const struct job *job = arg;
    const struct axes axes = axes_of(job->setup);
    const int rank = comm_rank(comm);
    const struct axes_place place = axes_place_of(&axes, rank);
    struct transport *transport = comm_transport(comm), *same = NULL, *shared = NULL;
    struct comm *own = NULL;
    struct graph *graph = NULL, *eval = NULL;
    struct exec *exec = NULL;
    const size_t bytes = exec_tensor_bytes(job->setup->threads);
    void *block = NULL;
    int members[AXES_RANKS];

    int count = axes_group(&axes, rank, AXIS_DP, members);
    enum status status = transport_group_create(transport, members, count, &same);
    count = axes_group(&axes, rank, AXIS_TP, members);
    if (status == STATUS_OK)
        status = transport_group_create(transport, members, count, &shared);
    if (status == STATUS_OK)
        status = comm_create(same, NULL, &own);
    if (status == STATUS_OK)
        status = make_graph(job, place.tp, true, &graph);
    if (status == STATUS_OK)
        status = make_graph(job, place.tp, false, &eval);
    if (status == STATUS_OK && job->setup->shares_memory)
        status = transport_share(transport, RANKS_MAX * bytes, &block);
    if (status == STATUS_OK) {
        void *memory =
            block ? (char *)block + (size_t)(rank / axes.tp * axes.tp) * bytes : NULL;
        const struct exec_config config = {
            .train = graph,
            .eval = eval,
            .comm = own,
            .tensor = axes.tp > 1 ? shared : NULL,
            .tensor_memory = memory,
            .threads = job->setup->threads,
            .shards = job->setup->shards,
            .batch = job->setup->batch,
            .seed = 11,
            .choices = job->choices,
            .optim = job->optim,
            .zero = job->setup->zero,
            .window = job->setup->zero > 0, /* as little as there can be */
        };
        status = exec_create(&config, &exec);
    }
    if (status == STATUS_OK)
        status = train(job, graph, exec, rank == 0 ? job->out : NULL);
    if (status == STATUS_OK) {
        CHECK(exec_is_in_parts(exec) == (job->setup->zero == 3));
        status = exec_make_whole(exec);
    }
    /* One rank after the other. */
    for (int r = 0; r < comm_size(comm) && status == STATUS_OK; r++) {
        if (r == rank && place.dp == 0)
            status = give_params(exec, job->out->params, r == 0);
        if (status == STATUS_OK)
            status = comm_barrier(comm);
    }
    exec_destroy(exec);
    comm_destroy(own);
    transport_group_destroy(shared);
    transport_group_destroy(same);
    graph_destroy(graph);
    graph_destroy(eval);
    return status;
}

/* Comparing ---------------------------------------------------------------------------- */

static void run(const struct setup *setup, struct outcome *out)
{
    const struct axes axes = axes_of(setup);
    struct job job = { .setup = setup, .out = out };
    struct graph *graph;

    job.optim.optimizer = optim_find(setup->lr != 0 ? "sgd" : "adam");
    job.optim.attrs = job.optim.optimizer->defaults;
    if (setup->lr != 0)
        job.optim.attrs.momentum = job.optim.attrs.weight_decay = 0;
    job.optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT,
                                            .lr = setup->lr != 0 ? setup->lr : 0.001 };
    CHECK_OK(kernel_choices_load_exact(NULL, &job.choices));
    CHECK_OK(build(setup, true, &graph));
    out->n_params = (size_t)graph_param_count(graph);
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind == VALUE_AVERAGE)
            out->n_params += (size_t)shape_count(&value->shape);
    }
    graph_destroy(graph);
    CHECK_OK(mem_alloc(out->n_params, sizeof *out->params, &out->params));
    CHECK_OK(comm_testing_threads(axes.dp * axes.tp, NULL, run_rank, &job));
    kernel_choices_destroy(job.choices);
}

static struct setup alone(const struct setup *setup)
{
    struct setup one = *setup;

    one.tp = one.dp = 1;
    return one;
}

/* Norm of the difference of two vectors. */
static double distance(const float *a, const float *b, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum);
}

/* Gradients of each parameter; where that is nearly 0, as of a bias before a batch norm, what is
 * left is measured by the gradient of all. Gives the name of the first that is off, or NULL. */
static const char *compare_params(const struct setup *setup, const struct graph *graph,
                                  const struct outcome *start, const struct outcome *a,
                                  const struct outcome *b)
{
    const double all = distance(b->params, start->params, b->n_params);
    const double tolerance = setup->tolerance > 0 ? setup->tolerance : 1e-4;
    size_t at = 0;

    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        const size_t count = (size_t)shape_count(&value->shape);
        if (value->kind != VALUE_PARAM && value->kind != VALUE_AVERAGE)
            continue;
        const double off = distance(a->params + at, b->params + at, count);
        const double norm = distance(b->params + at, start->params + at, count);
        if (!(off <= tolerance * (norm + all / 100)))
            return value->name;
        at += count;
    }
    CHECK_INT((int64_t)at, (int64_t)b->n_params);
    return NULL;
}

/* The gradient of a step: the way that a large step of SGD takes. Where an activation has a kink,
 * and a number is so near to it that rounding puts it on the other side, gradients are others: then
 * other samples are tried. */
static void check_gradients(struct setup setup)
{
    enum { DRAWS = 4 };
    const char *wrong = "";
    struct graph *graph;

    setup.lr = 1024;
    CHECK_OK(build(&setup, true, &graph));
    for (setup.draw = 0; setup.draw < DRAWS && wrong; setup.draw++) {
        struct outcome start = { 0 }, one = { 0 }, many = { 0 };
        struct setup single = alone(&setup);

        single.n_steps = 0;
        run(&single, &start);
        setup.n_steps = single.n_steps = 1;
        run(&single, &one);
        run(&setup, &many);
        if (!(fabs(one.loss[0] - many.loss[0]) <= 1e-5 * fabs(one.loss[0])))
            test_fail(__FILE__, __LINE__, "%s, tp %d: loss %.9g, alone %.9g", setup.model,
                      setup.tp, many.loss[0], one.loss[0]);
        wrong = compare_params(&setup, graph, &start, &many, &one);
        mem_free(start.params);
        mem_free(one.params);
        mem_free(many.params);
    }
    if (wrong)
        test_fail(__FILE__, __LINE__, "%s, tp %d, dp %d: gradient of %s is off", setup.model,
                  setup.tp, setup.dp, wrong);
    graph_destroy(graph);
}

static void check_losses(const struct setup *setup)
{
    struct outcome one = { 0 }, many = { 0 };
    const struct setup single = alone(setup);

    run(&single, &one);
    run(setup, &many);
    for (int s = 0; s < setup->n_steps; s++) {
        if (!(fabs(one.loss[s] - many.loss[s]) <= 1e-4 * fabs(one.loss[s])))
            test_fail(__FILE__, __LINE__, "%s, tp %d, dp %d, step %d: loss %.9g, alone %.9g",
                      setup->model, setup->tp, setup->dp, s, many.loss[s], one.loss[s]);
    }
    mem_free(one.params);
    mem_free(many.params);
}

static const struct setup mlp = {
    .model = "mlp", .tp = 2, .threads = 1, .batch = 8, .shards = 2, .n_steps = 20
};
static const struct setup gpt = {
    .model = "gpt",
    .options = { { "layers", 2 }, { "heads", 4 }, { "width", 32 } },
    .tp = 2,
    .threads = 1,
    .batch = 4,
    .shards = 2,
    .n_steps = 20,
};

static void test_a_perceptron(void)
{
    struct setup setup = mlp;

    check_gradients(setup);
    check_losses(&setup);
    setup.tp = 4;
    check_gradients(setup);
    setup.tp = 2;
    setup.dp = 2;
    check_gradients(setup);
    check_losses(&setup);
}

static void test_a_transformer(void)
{
    struct setup setup = gpt;

    check_gradients(setup);
    check_losses(&setup);
    setup.threads = 2;
    setup.tp = 4;
    setup.shares_memory = true;
    check_gradients(setup);
    setup.tp = 2;
    setup.dp = 2;
    check_losses(&setup);
}

static void test_places_of_sequences_are_shared(void)
{
    struct setup setup = gpt;

    setup.sequence = true;
    check_gradients(setup);
    setup.tp = 4;
    setup.shares_memory = true;
    check_gradients(setup);
    setup.tp = 2;
    setup.n_steps = 5;
    check_losses(&setup);
}

/* Slices draw what the whole would; labels weigh over all slices; forward runs again. */
static void test_options_of_a_transformer(void)
{
    struct setup setup = gpt;

    setup.options[3].name = "dropout";
    setup.options[3].value = 0.25;
    setup.n_steps = 5;
    check_losses(&setup);
    setup.sequence = true;
    check_losses(&setup);
    setup.recompute = true;
    setup.smoothing = 0.1F;
    check_gradients(setup);
}

/* Slices that ranks hold parts of: the bits of those that hold them whole. Lanes of a rank are not
 * equally far, and wait for those of others in the middle of a bucket's use. */
static void test_parts_of_slices_have_the_same_bits(void)
{
    struct setup setup = gpt;
    struct outcome whole = { 0 };

    setup.n_steps = 4;
    setup.shards = 8;
    setup.batch = 8;
    setup.dp = 2;
    run(&setup, &whole);
    for (setup.zero = 2; setup.zero <= 3; setup.zero++) {
        struct outcome parts = { 0 };
        setup.threads = setup.zero - 1;
        setup.shares_memory = setup.zero == 3;
        run(&setup, &parts);
        for (int s = 0; s < setup.n_steps; s++)
            CHECK(parts.loss[s] == whole.loss[s]);
        CHECK(memcmp(parts.params, whole.params, whole.n_params * sizeof *whole.params) == 0);
        mem_free(parts.params);
    }
    mem_free(whole.params);
}

#ifndef SMALL_MODELS_ALONE
/* Every other model of the zoo but vgg11, which is large and has nothing that these have not. What
 * is deep and has many kinks is compared roughly: what is not summed that should be is far off. */
static const struct setup zoo[] = {
    { .model = "cnn", .batch = 8, .side = 28 },
    { .model = "lenet", .batch = 4, .side = 28 },
    { .model = "resnet18", .batch = 8, .side = 16 },
    { .model = "mobilenet_v2", .batch = 8, .side = 32, .tolerance = 0.1 },
    { .model = "conv_autoencoder", .batch = 4, .side = 28 },
    { .model = "nbow", .batch = 8, .vocabulary = 601 },
    { .model = "textcnn", .batch = 8, .vocabulary = 601 },
    { .model = "seq2seq", .batch = 4, .vocabulary = 601 },
    { .model = "bert",
      .options = { { "layers", 1 }, { "heads", 4 }, { "width", 64 } },
      .batch = 4,
      .vocabulary = 601 },
};

static void test_every_model_of_the_zoo(void)
{
    for (size_t i = 0; i < sizeof zoo / sizeof *zoo; i++) {
        struct setup setup = zoo[i];

        setup.tp = 2;
        setup.threads = 1;
        setup.shards = 1;
        check_gradients(setup);
    }
}

/* Small steps: this network's first gradients are large, and large steps make whatever differs by
 * rounding differ more and more, also between two kernels on one rank
 * (docs/decisions/0037-tensor.md). */
static void test_losses_of_a_convolutional_network(void)
{
    struct setup setup = { .model = "resnet18",
                           .side = 16,
                           .tp = 2,
                           .dp = 2,
                           .threads = 1,
                           .batch = 8,
                           .shards = 2,
                           .n_steps = 3,
                           .lr = 0x1p-16 };

    check_losses(&setup);
    setup.tp = 4;
    setup.dp = setup.n_steps = 1;
    setup.shards = 1;
    check_losses(&setup);
}

#endif

const struct test tests[] = {
    { .name = "a perceptron", .run = test_a_perceptron },
    { .name = "a transformer", .run = test_a_transformer },
    { .name = "places of sequences are shared", .run = test_places_of_sequences_are_shared },
    { .name = "options of a transformer", .run = test_options_of_a_transformer },
    { .name = "parts of slices have the same bits",
      .run = test_parts_of_slices_have_the_same_bits },
#ifndef SMALL_MODELS_ALONE
    { .name = "losses of a convolutional network",
      .run = test_losses_of_a_convolutional_network },
    { .name = "every model of the zoo", .run = test_every_model_of_the_zoo },
#endif
    { 0 },
};
