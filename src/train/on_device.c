/* SPDX-License-Identifier: MIT */
/* on_device.c - --device and --precision. */
#include "train/on_device.h"

#include <string.h>

bool on_device(const struct job *job)
{
    return strcmp(job->settings.device, "cpu") != 0;
}

static enum status check_name(const char *name)
{
    for (int i = 0; device_names[i]; i++) {
        if (strcmp(name, device_names[i]) == 0)
            return STATUS_OK;
    }
    return FAIL(STATUS_USAGE,
                "--device %s: there is none of that name; tutti devices lists "
                "those there are",
                name);
}

static enum status check_precision(const struct job *job)
{
    const char *precision = job->settings.precision;

    if (!*precision || strcmp(precision, "f32") == 0)
        return STATUS_OK;
    if (strcmp(precision, "bf16") != 0)
        return FAIL(STATUS_USAGE, "--precision %s: f32 or bf16", precision);
    if (!on_device(job))
        return FAIL(STATUS_USAGE, "--precision bf16: the device cpu computes in f32");
    return STATUS_OK;
}

enum status on_device_check(const struct job *job)
{
    const struct settings *s = &job->settings;
    const struct {
        bool is_refused;
        const char *flag, *why;
    } rules[] = {
        { s->ranks > 1, "-n", "several ranks on devices are not there yet: use -n 1" },
        { axes_are_private(&job->axes) || job->axes.servers, "--strategy",
          "workers with parameters of their own run on the cpu alone as yet" },
        { job->axes.zero > 0, "--split zero", "one rank has no parts to hold" },
        { s->anchored, "a federated round", "updates drawn to an anchor run on the cpu alone" },
        { s->exact, "--exact", "there is one kernel for each op: use --precision f32" },
        { *s->kernels, "--kernels", "the table of kernels is the cpu's" },
        { s->sync_batch_norm, "--sync-batch-norm",
          "shards run one after the other there and cannot exchange statistics" },
    };

    TRY(check_name(s->device));
    TRY(check_precision(job));
    for (size_t i = 0; i < sizeof rules / sizeof *rules && on_device(job); i++) {
        if (rules[i].is_refused)
            return FAIL(STATUS_USAGE, "--device %s and %s: %s", s->device, rules[i].flag,
                        rules[i].why);
    }
    return STATUS_OK;
}

enum status on_device_find(const struct job *job)
{
    const struct device_face *face;

    return device_find(job->settings.device, &face);
}

enum status on_device_open(const struct job *job, bool same_batch, struct exec_device *out)
{
    const struct settings *s = &job->settings;
    struct exec_device device = {
        .precision = strcmp(s->precision, "f32") == 0 ? DTYPE_F32 : DTYPE_BF16,
        .same_batch = same_batch,
    };

    *out = (struct exec_device){ 0 };
    if (!on_device(job))
        return STATUS_OK;
    TRY(device_find(s->device, &device.face));
    TRY(device.face->open(0, &device.device));
    *out = device;
    return STATUS_OK;
}

void on_device_close(struct exec_device *device)
{
    if (device->face)
        device->face->close(device->device);
    *device = (struct exec_device){ 0 };
}
