/* SPDX-License-Identifier: MIT */
/* device_split_test.c - processes that share a model in any way on a device have the bits of threads, nobody waits for one
 * that is gone, and what cannot be split is refused.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "exec/exec_testing.h"
#include "exec/split_testing.h"

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
        struct split_setup setup = split_gpt(grids[i]);
        setup.device = &device;
        setup.n_steps = 10;
        setup.max_norm = i % 2 ? 0.3F : 0;
        struct split_outcome threads = split_run(&setup);
        CHECK_OK(split_run_processes(&setup, &threads));
        setup.lost_at = 4;
        const double began = clock_seconds();
        CHECK_STATUS(STATUS_PEER_LOST, split_run_processes(&setup, &threads));
        CHECK_MESSAGE("killed by signal 9");
        CHECK(clock_seconds() - began < 4); /* after five seconds they would have been killed */
        mem_free(threads.params);
    }
    device.face->close(device.device);
}

static void what_cannot_be_split_is_refused(void)
{
    struct exec_device device;

    exec_testing_open_cpu(&device);
    struct split_setup setup = split_gpt((struct axes){ .pp = 2, .pipeline = PIPE_1F1B });
    setup.device = &device;
    struct device_face lonely = *device.face;
    lonely.share = NULL;
    device.face = &lonely;
    split_check_refused(&setup);
    CHECK_OK(device_find("cpu", &device.face));
    setup = split_gpt((struct axes){ .dp = 2, .zero = 3 });
    setup.device = &device;
    setup.optimizer = "lamb"; /* each updates all */
    split_check_refused(&setup);
    device.face->close(device.device);
}

const struct test tests[] = {
    { .name = "processes have the bits of threads", .run = processes_have_the_bits_of_threads },
    { .name = "what cannot be split is refused", .run = what_cannot_be_split_is_refused },
    { 0 },
};
