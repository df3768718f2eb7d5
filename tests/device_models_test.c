/* SPDX-License-Identifier: MIT */
/* device_models_test.c - every model of the zoo trains on a device as it does on lanes of the CPU.
 *
 * Small ones, on made-up samples. With a GPU: f32 to rounding, and bf16 loosely. Without one the CPU is the device, and the
 * losses have the same bits; large models are left to the GPU then.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "exec/exec.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { STEPS = 6, BATCH = 8, LENGTH = 16, VOCABULARY = 90 };

/* Options that make models small, where they have them. */
static const struct {
    const char *name;
    double value;
} small[] = { { "width", 32 }, { "width", 0.25 },   { "layers", 2 },  { "heads", 2 },
              { "dim", 32 },   { "embedding", 24 }, { "hidden", 32 }, { "filters", 8 } };

/* Too large to be trained twice in every run of the tests. */
static const char *const large[] = { "vgg11", "vgg11_bn" };

struct case_of {
    const struct model *model;
    const char *optimizer;
    float max_norm;
    int64_t shards;
    const struct exec_device *device;
    bool joined; /* the CPU as a device has the graph that a GPU would have */
    double loss[STEPS];
};

static bool is_large(const struct model *model)
{
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        if (strcmp(model->name, large[i]) == 0)
            return true;
    }
    return false;
}

static struct model_config config_of(const struct model *model)
{
    struct model_config config = model_defaults(model);

    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (model_set_option(model, &config, small[i].name, small[i].value) != STATUS_OK)
            continue; /* it has none of that name, or of other values */
    }
    for (int i = 0; i < 2; i++) {
        config.vocab[i] = config.vocab[i] ? VOCABULARY : 0;
        config.length[i] = config.length[i] ? LENGTH : 0;
    }
    config.batch = BATCH;
    config.training = true;
    return config;
}

static int32_t *draw_ids(struct rng *rng, int64_t count, int64_t below)
{
    int32_t *ids;

    CHECK_OK(mem_alloc((size_t)count, sizeof *ids, &ids));
    for (int64_t i = 0; i < count; i++)
        ids[i] = below > 0 ? (int32_t)rng_below(rng, (uint64_t)below) : 0;
    return ids;
}

/* Samples of a step; some texts end before others. */
static struct batch draw_batch(const struct model *model, int step)
{
    const struct model_config config = config_of(model);
    const bool is_image = model->task == MODEL_IMAGES || model->task == MODEL_TABLE;
    const bool pairs = model->task == MODEL_TRANSLATION;
    const bool by_token = !is_image && model->task != MODEL_TEXT_CLASSES;
    struct batch batch = { .step = (uint64_t)step,
                           .samples = BATCH,
                           .rows = BATCH,
                           .weight = by_token ? BATCH * LENGTH : BATCH,
                           .length = { config.length[0], config.length[1] } };
    struct rng rng;

    rng_init(&rng, 3, (uint64_t)step);
    batch.own_weight = batch.weight;
    if (is_image) {
        const int64_t floats = BATCH * shape_count(&config.sample);
        float *x;
        CHECK_OK(mem_alloc((size_t)floats, sizeof *x, &x));
        for (int64_t i = 0; i < floats; i++)
            x[i] = model->unit_pixels ? rng_float(&rng) : (float)rng_normal(&rng);
        batch.x = x;
        batch.y = draw_ids(&rng, BATCH, config.classes);
        return batch;
    }
    int32_t *x = draw_ids(&rng, BATCH * LENGTH, VOCABULARY);
    for (int64_t i = LENGTH - 3; i < LENGTH; i++)
        x[i] = -1;
    batch.x = x;
    if (pairs)
        batch.x2 = draw_ids(&rng, BATCH * LENGTH, VOCABULARY);
    batch.y = draw_ids(&rng, BATCH * LENGTH, by_token ? VOCABULARY : config.classes);
    return batch;
}

static enum status run_steps(struct case_of *c, struct exec *exec)
{
    for (int s = 0; s < STEPS; s++) {
        struct batch batch = draw_batch(c->model, s);
        struct exec_result result;
        bool taken;

        enum status status = exec_step(exec, &batch, &result);
        if (status == STATUS_OK && result.is_late)
            status = exec_take_result(exec, true, &result, &taken);
        mem_free(batch.x);
        mem_free(batch.x2);
        mem_free(batch.y);
        TRY(status);
        c->loss[s] = result.loss;
    }
    return STATUS_OK;
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct case_of *c = arg;
    const bool as_on_gpu =
        c->device && (c->joined || strcmp(c->device->face->name, "cuda") == 0);
    /* The CPU's convolutions that do batch norms round more than a comparison to rounding bears. */
    struct pass_config config = { .batch = BATCH,
                                  .shards = c->shards,
                                  .ranks = 1,
                                  .apart = as_on_gpu,
                                  .epilogues = as_on_gpu,
                                  .inward = as_on_gpu,
                                  .norms_apart = true };
    struct model_config model = config_of(c->model);
    struct exec_config exec_config = { .comm = comm,
                                       .threads = 1,
                                       .shards = c->shards,
                                       .batch = BATCH,
                                       .seed = 9,
                                       .device = c->device };
    struct kernel_choices *choices;
    struct graph *graph;
    struct exec *exec = NULL;

    config.optim.optimizer = optim_find(c->optimizer);
    config.optim.attrs = config.optim.optimizer->defaults;
    config.optim.attrs.max_norm = c->max_norm;
    config.optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT,
                                               .lr = config.optim.optimizer->default_lr / 64 };
    TRY(model_build(c->model, &model, &graph));
    TRY(pass_run(graph, strategy_find("single")->passes, &config, NULL));
    TRY(kernel_choices_load(NULL, &choices));
    exec_config.train = graph;
    exec_config.choices = choices;
    exec_config.optim = config.optim;
    enum status status = exec_create(&exec_config, &exec);
    if (status == STATUS_OK)
        status = exec_init_params(exec);
    if (status == STATUS_OK)
        status = run_steps(c, exec);
    exec_destroy(exec);
    kernel_choices_destroy(choices);
    graph_destroy(graph);
    return status;
}

/* Losses are those of lanes, within `tolerance` of them, and later, when what was rounded has grown, ten times
 * that; 0: the same bits. */
static void check_model(struct case_of c, const struct exec_device *device, double tolerance)
{
    struct case_of there = c;

    CHECK_OK(comm_testing_threads(1, NULL, run_rank, &c));
    there.device = device;
    if (comm_testing_threads(1, NULL, run_rank, &there) != STATUS_OK) {
        test_fail(__FILE__, __LINE__, "%s, %s: %s", c.model->name, c.optimizer,
                  status_message());
        return;
    }
    if (tolerance > 0)
        printf("    %-16s %-5s %lld shards, %s: losses %.5f .. %.5f, on the cpu %.5f .. %.5f\n",
               c.model->name, c.optimizer, (long long)c.shards,
               device->rounds ? "tf32" : dtype_name(device->precision), there.loss[0],
               there.loss[STEPS - 1], c.loss[0], c.loss[STEPS - 1]);
    for (int s = 0; s < STEPS; s++) {
        const double off = fabs(c.loss[s] - there.loss[s]) / (s < STEPS / 2 ? 1 : 10);
        if (!(off <= tolerance * fabs(c.loss[s])))
            test_fail(__FILE__, __LINE__,
                      "%s, %s, %lld shards: step %d has a loss of %.9g, "
                      "not %.9g",
                      c.model->name, c.optimizer, (long long)c.shards, s, there.loss[s],
                      c.loss[s]);
    }
}

/* The GPU, or else the CPU. */
static bool open_device(struct exec_device *out)
{
    const bool has_gpu = device_find("cuda", &out->face) == STATUS_OK;

    if (!has_gpu)
        CHECK_OK(device_find("cpu", &out->face));
    CHECK_OK(out->face->open(0, &out->device));
    return has_gpu;
}

/* With norms of few samples the least rounding grows from step to step. */
static double growth_of(const struct model *model)
{
    return strcmp(model->name, "mobilenet_v2") == 0 ? 5 : 1;
}

static void every_model_trains_on_a_device(void)
{
    struct exec_device device = { .precision = DTYPE_F32 };
    const bool has_gpu = open_device(&device);

    for (int i = 0; model_table[i]; i++) {
        const char *usual = model_table[i]->optimizer;
        const struct case_of c = { .model = model_table[i],
                                   .optimizer = usual ? usual : "sgd",
                                   .shards = i % 2 ? 1 : 2 };
        if (has_gpu || !is_large(c.model))
            check_model(c, &device, has_gpu ? 2e-3 * growth_of(c.model) : 0);
    }
    device.face->close(device.device);
}

static void check_models_in(enum dtype precision)
{
    struct exec_device device = { .precision = precision };

    if (open_device(&device)) {
        for (int i = 0; model_table[i]; i++) {
            const char *usual = model_table[i]->optimizer;
            const struct case_of c = { .model = model_table[i],
                                       .optimizer = usual ? usual : "sgd",
                                       .shards = i % 2 ? 2 : 1 };
            check_model(c, &device, 0.02);
        }
    }
    device.face->close(device.device);
}

/* Graphs of a GPU compute what those of the CPU do, also where there is none. */
static void joined_products_compute_the_same(void)
{
    static const struct {
        const char *name;
        double tolerance;
    } models[] = {
        { "mlp", 1e-4 },      { "cnn", 1e-4 },          { "gpt", 1e-4 },
        { "resnet18", 1e-4 }, { "mobilenet_v2", 5e-3 }, /* with norms of few samples the least rounding grows */
    };
    struct exec_device device = { .precision = DTYPE_F32 };

    CHECK_OK(device_find("cpu", &device.face));
    CHECK_OK(device.face->open(0, &device.device));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const struct case_of c = {
            .model = model_find(models[i].name), .optimizer = "sgd", .shards = 2, .joined = true
        };
        check_model(c, &device, models[i].tolerance);
    }
    device.face->close(device.device);
}

static void every_model_trains_in_bf16(void)
{
    check_models_in(DTYPE_BF16);
}

static void every_model_trains_in_f16(void)
{
    check_models_in(DTYPE_F16);
}

/* The CPU has nothing to round to: the same bits as f32. */
static void every_model_trains_in_tf32(void)
{
    struct exec_device device = { .precision = DTYPE_F32, .rounds = true };
    const bool has_gpu = open_device(&device);

    for (int i = 0; model_table[i]; i++) {
        const char *usual = model_table[i]->optimizer;
        const struct case_of c = { .model = model_table[i],
                                   .optimizer = usual ? usual : "sgd",
                                   .shards = 1 };
        if (has_gpu || (!is_large(c.model) && i % 4 == 0))
            check_model(c, &device, has_gpu ? 0.02 : 0);
    }
    device.face->close(device.device);
}

static void every_optimizer_updates_on_a_device(void)
{
    static const char *const optimizers[] = { "sgd", "adam", "adamw", "lars", "lamb" };
    struct exec_device device = { .precision = DTYPE_F32 };

    (void)open_device(&device);
    for (size_t i = 0; i < 10; i++) {
        const struct case_of c = { .model = model_find(i < 5 ? "lenet" : "nbow"),
                                   .optimizer = optimizers[i % 5],
                                   .max_norm = i % 2 ? 0.5F : 0,
                                   .shards = 2 };
        check_model(c, &device, 1e-4);
    }
    device.face->close(device.device);
}

const struct test tests[] = {
    { .name = "every model trains on a device", .run = every_model_trains_on_a_device },
    { .name = "every model trains in bf16", .run = every_model_trains_in_bf16 },
    { .name = "joined products compute the same", .run = joined_products_compute_the_same },
    { .name = "every model trains in f16", .run = every_model_trains_in_f16 },
    { .name = "every model trains in tf32", .run = every_model_trains_in_tf32 },
    { .name = "every optimizer updates on a device",
      .run = every_optimizer_updates_on_a_device },
    { 0 },
};
