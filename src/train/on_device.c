/* SPDX-License-Identifier: MIT */
/* on_device.c - --device, --precision, --rounding and --data-on. */
#include "train/on_device.h"
#include "train/words.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "comm/comm.h"

bool on_device(const struct job *job)
{
    return strcmp(job->settings.device, "cpu") != 0;
}

bool on_device_rounds(const struct job *job)
{
    return on_device(job) && strcmp(job->settings.precision, "f32") != 0;
}

static enum status check_name(const char *name)
{
    for (int i = 0; device_names[i]; i++) {
        if (strcmp(name, device_names[i]) == 0)
            return STATUS_OK;
    }
    const char *here = words_here(WORDS_DEVICE, name);
    if (here)
        return FAIL(STATUS_USAGE, "--device %s: there is none of that name: here it is %s",
                    name, here);
    return FAIL(STATUS_USAGE,
                "--device %s: there is none of that name; tutti devices lists "
                "those there are",
                name);
}

static enum status check_precision(const struct settings *settings)
{
    const char *precision = settings->precision;
    const char *here = words_here(WORDS_PRECISION, precision);

    if (!*precision || strcmp(precision, "f32") == 0)
        return STATUS_OK;
    if (strcmp(precision, "bf16") != 0 && strcmp(precision, "tf32") != 0 &&
        strcmp(precision, "fp16") != 0)
        return here ? FAIL(STATUS_USAGE, "--precision %s: here it is %s", precision, here)
                    : FAIL(STATUS_USAGE, "--precision %s: f32, tf32, bf16 or fp16", precision);
    if (strcmp(settings->device, "cpu") == 0)
        return FAIL(STATUS_USAGE, "--precision %s: the device cpu computes in f32", precision);
    return STATUS_OK;
}

enum status on_device_check_names(const struct settings *settings)
{
    TRY(check_name(settings->device));
    return check_precision(settings);
}

static enum dtype precision_of(const char *name)
{
    return strstr(name, "f32") ? DTYPE_F32 : strcmp(name, "fp16") == 0 ? DTYPE_F16 : DTYPE_BF16;
}

enum dtype on_device_precision(const struct job *job)
{
    return on_device(job) ? precision_of(job->settings.precision) : DTYPE_F32;
}

static bool draws(const struct settings *settings)
{
    return strcmp(settings->rounding, "stochastic") == 0;
}

static enum status check_rounding(const struct job *job)
{
    const struct settings *s = &job->settings;

    if (strcmp(s->rounding, "nearest") == 0)
        return STATUS_OK;
    if (!draws(s))
        return FAIL(STATUS_USAGE, "--rounding %s: nearest or stochastic", s->rounding);
    if (!on_device(job) || precision_of(s->precision) != DTYPE_BF16)
        return FAIL(STATUS_USAGE,
                    "--rounding stochastic: weights are bf16 on a GPU alone, with --precision "
                    "bf16; here they are %s",
                    !on_device(job) ? "the cpu's, in f32" : "f32");
    if (job->axes.tp > 1)
        return FAIL(
            STATUS_USAGE,
            "--rounding stochastic: what is drawn would depend on how layers are split; "
            "leave out tp");
    return STATUS_OK;
}

static enum status check_data(const struct job *job)
{
    const char *where = job->settings.data_on;

    if (strcmp(where, "auto") == 0 || strcmp(where, "host") == 0)
        return STATUS_OK;
    if (strcmp(where, "device") != 0)
        return FAIL(STATUS_USAGE, "--data-on %s: auto, host or device", where);
    if (!on_device(job))
        return FAIL(STATUS_USAGE,
                    "--data-on device: the device cpu reads samples where they are: use "
                    "--device cuda");
    if (axes_are_a_grid(&job->axes))
        return FAIL(STATUS_USAGE,
                    "--data-on device: ranks that share layers read samples here: use auto");
    return STATUS_OK;
}

enum status on_device_check_data(const struct job *job)
{
    if (strcmp(job->settings.data_on, "device") == 0 && !source_has_pixels(job->train))
        return FAIL(STATUS_USAGE,
                    "--data-on device: samples of %s are no images of bytes: use auto",
                    job->train->path);
    return STATUS_OK;
}

static bool adapts(const struct settings *settings)
{
    const struct optimizer *optimizer = optim_find(settings->optimizer);

    return optimizer && optim_adapts(optimizer);
}

/* Ranks with executors of their own. */
static bool is_own(const struct job *job)
{
    return axes_are_private(&job->axes) || job->axes.servers;
}

enum status on_device_check(const struct job *job)
{
    const struct settings *s = &job->settings;
    const struct {
        bool is_refused;
        const char *flag, *why;
    } rules[] = {
        { is_own(job) && precision_of(s->precision) == DTYPE_F16, "--precision fp16",
          "ranks that make steps of their own would each have a scale of losses: use bf16" },
        { is_own(job) && draws(s), "--rounding stochastic",
          "servers and averages leave parameters in f32: use nearest" },
        { job->axes.servers && axes_are_a_grid(&job->axes), "--split",
          "workers with servers there have all layers" },
        { s->ranks > 1 && job->axes.meet == MEET_CENTRAL, "--meet central",
          "every device has a copy; with --strategy ps a server has the one that is updated" },
        { s->ranks > 1 && job->axes.meet == MEET_PARALLAX, "--meet parallax",
          "gradients of tables have all their rows there: use allreduce" },
        { job->axes.zero > 1 && job->axes.pp > 1, "--split zero",
          "stages there hold parts of the state alone, which is zero=1" },
        { job->axes.zero > 1 && adapts(s), "--split zero",
          "where lars or lamb needs norms of parameters every rank there has all gradients: "
          "use "
          "zero=1" },
        { s->ranks > 1 && s->flat && (axes_are_a_grid(&job->axes) || job->axes.zero > 1),
          "--flat", "ranks that split layers or parameters read each other's memory there" },
        { *s->compress, "--compress", "gradients go between devices as they are" },
        { strcmp(s->balance, "auto") == 0, "--balance auto", "what it measures is the cpu" },
        { s->anchored, "a federated round", "updates drawn to an anchor run on the cpu alone" },
        { s->exact, "--exact", "there is one kernel for each op: use --precision f32" },
    };

    TRY(on_device_check_names(s));
    TRY(check_rounding(job));
    TRY(check_data(job));
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
    const int64_t processes = job->settings.ranks + job->settings.spares + job->axes.servers;

    return on_device(job) && processes > 1 ? find_apart(job)
                                           : device_find(job->settings.device, &face);
}

/* A number that ranks of one machine have in common, and those of others have not. */
static uint64_t machine_number(void)
{
    char text[256] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    size_t length = file ? fread(text, 1, sizeof text / 2, file) : 0;
    uint64_t number = UINT64_C(14695981039346656037); /* FNV-1a */

    if (file)
        (void)fclose(file);
    if (gethostname(text + length, sizeof text - length - 1) == 0)
        length += strlen(text + length);
    for (size_t i = 0; i < length; i++)
        number = (number ^ (uint8_t)text[i]) * UINT64_C(1099511628211);
    return number;
}

/* Ranks on this machine before this one. With --flat they are nodes of their own, so each tells all where it is. */
static enum status count_before(struct transport *transport, int *out)
{
    const int rank = transport_rank(transport), ranks = transport_size(transport);
    const uint64_t mine = machine_number();
    uint64_t *all;
    struct comm *comm;

    *out = rank - transport_node_first(transport, transport_node_of(transport, rank));
    if (transport_nodes(transport) == 1)
        return STATUS_OK;
    TRY(comm_create(transport, NULL, &comm));
    enum status status = mem_alloc((size_t)ranks, sizeof *all, &all);
    if (status == STATUS_OK) {
        status = comm_all_gather(comm, &mine, all, 1, DTYPE_I64);
        *out = 0;
        for (int r = 0; r < rank && status == STATUS_OK; r++)
            *out += all[r] == mine;
        mem_free(all);
    }
    comm_destroy(comm);
    return status;
}

/* Ranks of a machine take its devices in turn. */
static enum status pick_number(const struct device_face *face, struct transport *transport,
                               int *out)
{
    int count, before;

    TRY(face->count(&count));
    TRY(count_before(transport, &before));
    *out = before % count;
    return STATUS_OK;
}

enum status on_device_open(const struct job *job, struct transport *transport, bool same_batch,
                           struct exec_device *out)
{
    const struct settings *s = &job->settings;
    struct exec_device device = {
        .precision = precision_of(s->precision),
        .rounds = strcmp(s->precision, "tf32") == 0,
        .draws = draws(s),
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

/* Ranks that have this device, of this machine. */
static enum status count_sharers(const struct job *job, const struct exec_device *device,
                                 uint64_t *out)
{
    int devices;

    TRY(device->face->count(&devices));
    *out = (uint64_t)((job->settings.ranks + devices - 1) / devices);
    return STATUS_OK;
}

/* Of the device's memory, whatever is free just now, so that ranks decide alike. */
static enum status is_little(const struct job *job, const struct exec_device *device,
                             size_t bytes, bool *out)
{
    enum { SHARE = 8 };
    struct device_info info;
    uint64_t sharers;

    TRY(device->face->describe(device->number, &info));
    TRY(count_sharers(job, device, &sharers));
    *out = bytes <= info.memory / SHARE / sharers;
    return STATUS_OK;
}

enum status on_device_keep(const struct job *job, const struct exec_device *device,
                           struct exec *exec, size_t *out_kept)
{
    const char *where = job->settings.data_on;
    const size_t train = exec_keep_bytes(job->train);
    const size_t test = job->test ? exec_keep_bytes(job->test) : 0;
    bool keeps = strcmp(where, "device") == 0;

    *out_kept = 0;
    if (!device->face || train == 0 || strcmp(where, "host") == 0 ||
        axes_are_a_grid(&job->axes))
        return STATUS_OK;
    if (!keeps)
        TRY(is_little(job, device, train + test, &keeps));
    if (!keeps)
        return STATUS_OK;
    enum status status = exec_keep(exec, job->train);
    if (status == STATUS_OK)
        *out_kept = train;
    if (status == STATUS_OK && test)
        status = exec_keep(exec, job->test);
    if (status == STATUS_OK)
        *out_kept += test;
    if (status != STATUS_NO_MEMORY)
        return status;
    if (strcmp(where, "auto") == 0)
        return STATUS_OK; /* what is not there is read here */
    return FAIL(STATUS_NO_MEMORY, "%s, or --data-on host", status_message());
}

void on_device_close(struct exec_device *device)
{
    if (device->face)
        device->face->close(device->device);
    *device = (struct exec_device){ 0 };
}
