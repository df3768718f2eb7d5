/* SPDX-License-Identifier: MIT */
/* device_parts_test.c - ranks that have parts of gradients and parameters on a device have the bits of one rank. */
#include "base/mem.h"
#include "base/test.h"
#include "exec/exec_testing.h"
#include "exec/split_testing.h"
#include "kernel/device_testing.h"

/* Gradients of groups in a window, parameters that come before they are read: the bits of one rank, evaluations, too. */
static void compare_parts(const struct split_setup *of, int ranks, size_t *out_bytes)
{
    struct split_setup setup = *of;

    setup.axes.dp = 1;
    setup.axes.zero = 0;
    setup.inward = setup.device->draws; /* which goes by where elements lie */
    struct split_outcome one = split_run(&setup);
    setup.axes.dp = ranks;
    setup.inward = true;
    for (setup.axes.zero = 1; setup.axes.zero <= 3; setup.axes.zero++) {
        struct split_outcome split = split_run(&setup);
        split_check_same(&setup, &one, &split);
        out_bytes[setup.axes.zero] = split.held_bytes;
        mem_free(split.params);
    }
    mem_free(one.params);
}

static void parts_have_the_bits_of_one_rank(void)
{
    struct dataset *dataset = exec_testing_samples(5, 300, SPLIT_SIDE, SPLIT_CLASSES);
    struct exec_device device;

    exec_testing_open_cpu(&device);
    const struct device_face *faces[] = { device.face, device_testing_late(true) };
    for (int precision = 0; precision < 2; precision++) {
        device.face = faces[precision];
        device.precision = precision ? DTYPE_BF16 : DTYPE_F32;
        for (int ranks = 2; ranks <= 4; ranks++) {
            struct split_setup setup = split_gpt((struct axes){ .dp = 1 });
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
        struct split_setup setup = split_of("cnn", (struct axes){ .dp = 1 });
        size_t bytes[4];
        setup.device = &device;
        setup.dataset = precision ? NULL : dataset;
        setup.shards = 2;
        setup.n_steps = 4;
        device.group_bytes = 0; /* one group */
        compare_parts(&setup, 2, bytes);
        setup = split_of("nbow", (struct axes){ .dp = 1 }); /* a table of rows stays whole */
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
            struct split_setup setup = split_gpt((struct axes){ .dp = 1 });
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
        struct split_setup setup = split_of("nbow", (struct axes){ .dp = 1 });
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

const struct test tests[] = {
    { .name = "parts have the bits of one rank", .run = parts_have_the_bits_of_one_rank },
    { .name = "parts know the norm of all gradients",
      .run = parts_know_the_norm_of_all_gradients },
    { 0 },
};
