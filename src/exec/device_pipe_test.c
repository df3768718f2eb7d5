/* SPDX-License-Identifier: MIT */
/* device_pipe_test.c - stages of a pipeline on a device have the bits of one rank, in 32 bits and in 16. */
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "exec/exec_testing.h"
#include "exec/split_testing.h"
#include "kernel/device_testing.h"

static const struct axes pipelines[] = {
    { .pp = 2, .pipeline = PIPE_1F1B },
    { .pp = 4, .pipeline = PIPE_1F1B },
    { .pp = 3, .pipeline = PIPE_GPIPE },
    { .pp = 2, .pipeline = PIPE_INTERLEAVED, .chunks = 2 },
    { .pp = 2, .dp = 2, .pipeline = PIPE_1F1B },
    { .pp = 2, .dp = 2, .pipeline = PIPE_INTERLEAVED, .chunks = 2 },
};

/* of: the whole model on one rank; its axes are replaced. */
static void compare_pipelines(const struct split_setup *of, size_t begin, size_t end)
{
    struct split_outcome one = split_run(of);

    for (size_t i = begin; i < end; i++) {
        struct split_setup setup = split_of(of->model, pipelines[i]);
        const struct axes axes = setup.axes;
        setup = *of;
        setup.axes = axes;
        setup.recompute = i == 1;
        setup.inward = true;
        struct split_outcome split = split_run(&setup);
        split_check_same(&setup, &one, &split);
        split_check_heard(&setup, &split);
        mem_free(split.params);
    }
    mem_free(one.params);
}

static const size_t n_pipelines = sizeof pipelines / sizeof *pipelines;

/* Residual connections, batch norms; evaluations go through the stages, too. */
static void pipelines_have_the_bits_of_one_rank(void)
{
    struct dataset *dataset = exec_testing_samples(5, 300, SPLIT_SIDE, SPLIT_CLASSES);
    struct exec_device device;

    exec_testing_open_cpu(&device);
    struct split_setup setup = split_of("resnet18", (struct axes){ .dp = 1 });
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
    struct split_setup setup = split_gpt((struct axes){ .dp = 1 });
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
    struct split_setup setup = split_of("seq2seq", (struct axes){ .dp = 1 });
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
    struct split_setup setup = split_gpt((struct axes){ .dp = 1 });
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
    struct split_setup setup = split_gpt((struct axes){ .dp = 1 });
    setup.optimizer = "sgd";
    setup.lr = 0.1;
    setup.n_steps = 5;
    setup.device = &device;
    struct split_outcome free = split_run(&setup);
    setup.max_norm = 0.3F;
    struct split_outcome clipped = split_run(&setup);
    CHECK(memcmp(free.params, clipped.params, free.n_params * sizeof(float)) != 0);
    mem_free(free.params);
    mem_free(clipped.params);
    compare_pipelines(&setup, 0, n_pipelines);
    device.group_bytes = 4096; /* several groups */
    setup.bucket_bytes = 2048;
    compare_pipelines(&setup, 4, n_pipelines);
    setup.optimizer = "lamb"; /* each updates all */
    compare_pipelines(&setup, 3, 5);
    setup = split_of("seq2seq", (struct axes){ .dp = 1 }); /* tables of rows */
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
        struct split_setup setup = split_gpt((struct axes){ .dp = 1 });
        setup.n_steps = 10;
        setup.device = &device;
        setup.max_norm = clips ? 0.3F : 0;
        setup.scale = 0x1p24F; /* too large: some steps are skipped */
        struct split_outcome one = split_run(&setup);
        CHECK(one.skipped > 1 && one.skipped < setup.n_steps);
        mem_free(one.params);
        compare_pipelines(&setup, clips ? 1 : 0, clips ? 5 : n_pipelines);
    }
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
    { 0 },
};
