/* SPDX-License-Identifier: MIT */
/* device_tensor_test.c - ranks that share layers on a device have the losses of one rank, and the same bits in every grid. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "exec/exec_testing.h"
#include "exec/split_testing.h"
#include "kernel/device_testing.h"

static void check_losses(const struct split_setup *setup, const struct split_outcome *one,
                         const struct split_outcome *other, double tolerance)
{
    for (int s = 0; s < setup->n_steps; s++) {
        if (fabs(one->loss[s] - other->loss[s]) > tolerance * fabs(one->loss[s]))
            test_fail(__FILE__, __LINE__, "%s tp=%d step %d: loss %.9g, of one rank %.9g",
                      setup->model, setup->axes.tp, s, other->loss[s], one->loss[s]);
    }
}

static void compare_shared(const struct split_setup *of, const int *tp, double tolerance)
{
    struct split_outcome one = split_run(of);

    for (; *tp; tp++) {
        struct split_setup setup = *of;
        setup.axes.tp = *tp;
        struct split_outcome split = split_run(&setup);
        check_losses(&setup, &one, &split, tolerance);
        split_check_heard(&setup, &split);
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
    struct dataset *dataset = exec_testing_samples(5, 300, SPLIT_SIDE, SPLIT_CLASSES);
    struct exec_device device;

    exec_testing_open_cpu(&device);
    struct split_setup setup = split_gpt((struct axes){ .dp = 1 });
    setup.n_steps = SPLIT_STEPS;
    setup.device = &device;
    compare_shared(&setup, tp, 1e-4);
    setup.sequence = true;
    compare_shared(&setup, tp, 1e-4);
    setup.sequence = false;
    setup.optimizer = "sgd";
    setup.max_norm = 0.3F; /* what ranks have whole counts once */
    setup.lr = 0.3;
    compare_shared(&setup, tp, 1e-4);
    setup = split_of("cnn", (struct axes){ .dp = 1 });
    setup.device = &device;
    setup.dataset = dataset;
    setup.lr = 1e-4;
    compare_shared(&setup, tp, 1e-4);
    setup = split_of("nbow", (struct axes){ .dp = 1 });
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
    struct split_setup setup = split_gpt((struct axes){ .dp = 1 });
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
        struct split_setup setup = split_gpt((struct axes){ .tp = 2 });
        setup.n_steps = 4;
        setup.same_size = true; /* lanes have one pace */
        setup.max_norm = clips ? 0.3F : 0;
        struct split_outcome lanes = split_run(&setup);
        setup.device = &device;
        struct split_outcome one = split_run(&setup);
        CHECK(memcmp(lanes.params, one.params, one.n_params * sizeof(float)) == 0);
        for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
            struct split_setup grid = setup;
            grid.axes = split_gpt(grids[i]).axes;
            struct split_outcome split = split_run(&grid);
            split_check_same(&grid, &one, &split);
            mem_free(split.params);
        }
        mem_free(lanes.params);
        mem_free(one.params);
    }
    device.face->close(device.device);
}

const struct test tests[] = {
    { .name = "shared layers have the losses of one rank",
      .run = shared_layers_have_the_losses_of_one_rank },
    { .name = "shared layers compute in 16 bits", .run = shared_layers_compute_in_16_bits },
    { .name = "grids have the bits of shared layers",
      .run = grids_have_the_bits_of_shared_layers },
    { 0 },
};
