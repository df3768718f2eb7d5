/* SPDX-License-Identifier: MIT */
/* device_check_testing.c - the GPU that tests run on, and complaints that are counted. */
#include "kernel/device_check_testing.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/test.h"

const char *const device_update_ops[DEVICE_UPDATE_OPS] = { "sgd_update",     "adam_update",
                                                           "average_update", "lars_update",
                                                           "lamb_update",    "lamb_direction" };

const struct device_place *device_gpu(void)
{
    static struct device_place place;

    if (!place.face && device_place_open("cuda", &place) != STATUS_OK)
        test_skip(status_message());
    return &place;
}

static int n_bad;

void device_complain(const struct kernel_problem *problem, const char *format, ...)
{
    char text[KERNEL_TEXT];
    va_list args;

    n_bad++;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, ": \"%s\"\n", kernel_print(problem, text));
}

void device_check_none_bad(void)
{
    const int bad = n_bad;

    n_bad = 0;
    if (bad)
        test_fail(__FILE__, __LINE__, "%d kernels do not agree", bad);
}

size_t device_tensor_bytes(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype);
}
