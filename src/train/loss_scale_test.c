/* SPDX-License-Identifier: MIT */
/* loss_scale_test.c - the scale of losses is saved and read as it was; what cannot be is refused. */
#include "train/loss_scale.h"

#include <math.h>
#include <string.h>

#include "base/test.h"
#include "comm/comm_testing.h"
#include "kernel/device_testing.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { BATCH = 8 };

/* An executor in f16 and one in f32, of the same graph. */
struct pair {
    struct graph *graph;
    struct optim_config optim;
    struct kernel_choices *choices;
    struct device *device;
    const struct device_face *face;
};

static enum status make_exec(const struct pair *pair, struct comm *comm,
                             const struct exec_device *device, struct exec **out)
{
    const struct exec_config config = {
        .train = pair->graph,
        .comm = comm,
        .threads = 1,
        .shards = 1,
        .batch = BATCH,
        .device = device,
        .choices = pair->choices,
        .optim = pair->optim,
    };

    return exec_create(&config, out);
}

static enum status expect(bool is_so, const char *what)
{
    return is_so ? STATUS_OK : FAIL(STATUS_MISMATCH, "%s", what);
}

/* Saved by one executor, read by another, which then says the same. */
static enum status save_and_read(struct exec *exec)
{
    const struct device_scaling saved = { .scale = 0x1p21F, .good = 1234, .skipped = 17 };
    struct device_scaling now;
    struct metrics metrics = { .loss_scale = NAN, .skipped_steps = NAN };
    struct strbuf state;

    TRY(exec_scaling(exec, &now));
    TRY(expect(now.scale == 65536 && now.good == 0 && now.skipped == 0, "another beginning"));
    TRY(exec_set_scaling(exec, &saved));
    strbuf_init(&state, 1 << 10);
    strbuf_add(&state, "{\"step\": 3");
    enum status status = loss_scale_print(exec, &state);
    strbuf_add(&state, "}");
    if (status == STATUS_OK)
        status = exec_set_scaling(exec, &(struct device_scaling){ .scale = 2 });
    if (status == STATUS_OK)
        status = loss_scale_read(exec, state.text);
    strbuf_release(&state);
    TRY(status);
    TRY(exec_scaling(exec, &now));
    TRY(expect(now.scale == saved.scale && now.good == saved.good &&
                   now.skipped == saved.skipped,
               "another scale came back"));
    TRY(loss_scale_tell(exec, &metrics));
    TRY(expect(metrics.loss_scale == 0x1p21 && metrics.skipped_steps == 17, "other metrics"));
    TRY(loss_scale_read(exec, "{\"step\": 3}")); /* saved in another precision */
    TRY(expect(loss_scale_read(exec, "{\"loss_scale\": 0.25}") == STATUS_CORRUPT,
               "0.25 is read"));
    return expect(loss_scale_read(exec, "{\"loss_scale\": 8, \"scaled_steps\": 2000}") ==
                      STATUS_CORRUPT,
                  "2000 steps are read");
}

/* Nothing is said where losses are not scaled. */
static enum status say_nothing(struct exec *exec)
{
    struct metrics metrics = { .loss_scale = NAN, .skipped_steps = NAN };
    struct strbuf state;

    strbuf_init(&state, 1 << 10);
    strbuf_add(&state, "{");
    enum status status = loss_scale_print(exec, &state);
    if (status == STATUS_OK)
        status = expect(strcmp(state.text, "{") == 0, "something is said");
    strbuf_release(&state);
    TRY(status);
    TRY(loss_scale_read(exec, "{\"loss_scale\": 8}"));
    TRY(loss_scale_tell(exec, &metrics));
    return expect(isnan(metrics.loss_scale) && isnan(metrics.skipped_steps),
                  "metrics are made");
}

static enum status run(struct comm *comm, void *arg)
{
    struct pair *pair = arg;
    const struct exec_device half = { .face = pair->face,
                                      .device = pair->device,
                                      .precision = DTYPE_F16 };
    struct exec *exec;

    TRY(make_exec(pair, comm, &half, &exec));
    enum status status = save_and_read(exec);
    exec_destroy(exec);
    TRY(status);
    TRY(make_exec(pair, comm, NULL, &exec));
    status = say_nothing(exec);
    exec_destroy(exec);
    return status;
}

static void test_the_scale_is_saved_and_read(void)
{
    struct pair pair = { .face = device_testing_narrow() };
    const struct model *model = model_find("mlp");
    struct model_config model_config = model_defaults(model);
    struct pass_config config = { .batch = BATCH, .shards = 1, .ranks = 1 };

    model_config.batch = BATCH;
    model_config.training = true;
    pair.optim.optimizer = optim_find("sgd");
    pair.optim.attrs = pair.optim.optimizer->defaults;
    pair.optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.01 };
    config.optim = pair.optim;
    CHECK_OK(model_build(model, &model_config, &pair.graph));
    CHECK_OK(pass_run(pair.graph, strategy_find("single")->passes, &config, NULL));
    CHECK_OK(kernel_choices_load(NULL, &pair.choices));
    CHECK_OK(pair.face->open(0, &pair.device));
    CHECK_OK(comm_testing_threads(1, NULL, run, &pair));
    pair.face->close(pair.device);
    kernel_choices_destroy(pair.choices);
    graph_destroy(pair.graph);
}

const struct test tests[] = {
    { .name = "the scale is saved and read", .run = test_the_scale_is_saved_and_read },
    { 0 },
};
