/* SPDX-License-Identifier: MIT */
/* on_device.c - --device and --precision. */
#include "train/on_device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

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
        { axes_are_private(&job->axes) || job->axes.servers, "--strategy",
          "workers with parameters of their own run on the cpu alone as yet" },
        { s->clip > 0 && axes_are_a_grid(&job->axes), "--clip",
          "where layers are split between ranks nobody there has the norm of all gradients" },
        { s->ranks > 1 && job->axes.meet > MEET_ALLREDUCE, "--meet",
          "ranks there meet as mirrored does" },
        { job->axes.zero > 1 && job->axes.pp > 1, "--split zero",
          "stages there hold parts of the state alone, which is zero=1" },
        { job->axes.zero > 1 && s->clip > 0, "--split zero",
          "where norms are needed every rank there has all gradients: use zero=1" },
        { s->ranks > 1 && s->flat, "--flat", "ranks there read each other's memory" },
        { strcmp(s->balance, "auto") == 0, "--balance auto", "what it measures is the cpu" },
        { s->anchored, "a federated round", "updates drawn to an anchor run on the cpu alone" },
        { s->exact, "--exact", "there is one kernel for each op: use --precision f32" },
        { *s->kernels, "--kernels", "the table of kernels is the cpu's" },
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

/* What a process that asks for the device says to the one that started it. */
struct answer {
    enum status status;
    char why[512];
};

static void ask_and_leave(const struct job *job, struct answer *answer)
{
    const struct device_face *face;

    answer->status = device_find(job->settings.device, &face);
    (void)snprintf(answer->why, sizeof answer->why, "%s",
                   answer->status == STATUS_OK ? "" : status_message());
    _exit(0);
}

/* A driver that was asked is of no use to processes that are forked later, as ranks are: so another one asks. */
static enum status find_apart(const struct job *job)
{
    struct answer *answer =
        mmap(NULL, sizeof *answer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (answer == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "shared memory is refused");
    answer->status = STATUS_UNSUPPORTED;
    (void)snprintf(answer->why, sizeof answer->why, "device %s: who asked for it has died",
                   job->settings.device);
    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        ask_and_leave(job, answer);
    while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
        continue;
    const struct answer said = *answer;
    (void)munmap(answer, sizeof *answer);
    if (child < 0)
        return FAIL(STATUS_NO_MEMORY, "a process to ask for device %s is refused",
                    job->settings.device);
    return said.status == STATUS_OK ? STATUS_OK : FAIL(said.status, "%s", said.why);
}

enum status on_device_find(const struct job *job)
{
    const struct device_face *face;

    return on_device(job) && job->settings.ranks > 1 ? find_apart(job)
                                                     : device_find(job->settings.device, &face);
}

/* Ranks of a machine take its devices in turn. */
static enum status pick_number(const struct device_face *face, struct transport *transport,
                               int *out)
{
    const int rank = transport_rank(transport);
    const int first = transport_node_first(transport, transport_node_of(transport, rank));
    int count;

    TRY(face->count(&count));
    *out = (rank - first) % count;
    return STATUS_OK;
}

enum status on_device_open(const struct job *job, struct transport *transport, bool same_batch,
                           struct exec_device *out)
{
    const struct settings *s = &job->settings;
    struct exec_device device = {
        .precision = strcmp(s->precision, "f32") == 0 ? DTYPE_F32 : DTYPE_BF16,
        .same_batch = same_batch,
        .group_bytes = (size_t)(s->bucket_mib * 1048576),
    };

    *out = (struct exec_device){ 0 };
    if (!on_device(job))
        return STATUS_OK;
    TRY(device_find(s->device, &device.face));
    TRY(pick_number(device.face, transport, &device.number));
    TRY(device.face->open(device.number, &device.device));
    *out = device;
    return STATUS_OK;
}

void on_device_close(struct exec_device *device)
{
    if (device->face)
        device->face->close(device->device);
    *device = (struct exec_device){ 0 };
}
