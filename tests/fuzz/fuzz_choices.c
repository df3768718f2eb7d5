/* SPDX-License-Identifier: MIT */
/* fuzz_choices.c - problems as texts, and tables of kernels for this processor and for a device. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/status.h"
#include "kernel/device.h"

#include "fuzz.h"

enum { BYTES = 4096 };

/* What was read is written the same again. */
static void read_problem(const char *text)
{
    struct kernel_problem problem, again;
    char one[KERNEL_TEXT], two[KERNEL_TEXT];

    if (kernel_parse(text, &problem) != STATUS_OK)
        return;
    kernel_print(&problem, one);
    if (strlen(one) == KERNEL_TEXT - 1)
        return; /* cut off */
    BUG_ON(kernel_parse(one, &again) != STATUS_OK);
    BUG_ON(strcmp(one, kernel_print(&again, two)) != 0);
}

/* Whatever table was accepted, every problem has a kernel here. */
static void use(struct kernel_choices *choices)
{
    const struct kernel *kernel;
    struct kernel_problem problem;

    BUG_ON(strlen(kernel_choices_hash(choices)) != 64);
    BUG_ON(kernel_parse("relu 3x4", &problem) != STATUS_OK);
    BUG_ON(kernel_choose(choices, &problem, &kernel) != STATUS_OK);
    BUG_ON(strcmp(kernel->op, "relu") != 0);
    kernel_choices_destroy(choices);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[BYTES + 1], path[64];
    struct kernel_choices *choices;

    if (size > BYTES)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    read_problem(text);
    const int file = memfd_create("choices", 0);
    if (file < 0)
        return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (write(file, data, size) == (ssize_t)size) {
        if (kernel_choices_load(path, &choices) == STATUS_OK)
            use(choices);
        if (kernel_choices_load_device("cuda", path, &choices) == STATUS_OK)
            use(choices);
    }
    close(file);
    return 0;
}
