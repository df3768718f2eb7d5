/* SPDX-License-Identifier: MIT */
/* exec_testing.c - what tests of executors have in common. */
#include "exec/exec_testing.h"

#include <signal.h>
#include <string.h>

#include "base/test.h"
#include "data/data_testing.h"

void exec_testing_open_cpu(struct exec_device *out)
{
    *out = (struct exec_device){ .precision = DTYPE_F32 };
    CHECK_OK(device_find("cpu", &out->face));
    CHECK_OK(out->face->open(0, &out->device));
}

struct dataset *exec_testing_samples(uint64_t seed, int64_t count, int64_t side, int classes)
{
    const struct data_testing_set set = {
        .train = 4, .test = count, .rows = side, .columns = side, .classes = classes
    };
    struct dataset *dataset;
    struct rng rng;

    rng_init(&rng, seed, 0);
    data_testing_make(&rng, test_folder(), &set);
    CHECK_OK(dataset_open(test_folder(), DATASET_TEST, &dataset));
    return dataset;
}

enum status exec_testing_take_late(struct exec *exec, bool all, int *next,
                                   struct exec_result *steps)
{
    struct exec_result result;
    bool taken = true;

    while (taken) {
        TRY(exec_take_result(exec, all, &result, &taken));
        if (taken)
            steps[(*next)++] = result;
    }
    return STATUS_OK;
}

void exec_testing_die_at(void *arg, const char *point)
{
    int *left = arg;

    if (strcmp(point, "step") == 0 && --*left == 0)
        (void)raise(SIGKILL);
}
