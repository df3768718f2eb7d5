/* SPDX-License-Identifier: MIT */
/* forecast_measure.c - profiles a graph in a child process. */
#include "train/forecast_measure.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "exec/profile.h"
#include "train/made_up.h"

/* Memory that both processes see. */
struct answer_memory {
    enum status status;
    char why[256];
    struct measured measured;
};

static size_t bytes_of(const struct graph *graph)
{
    return sizeof(struct answer_memory) +
           ((size_t)graph_node_count(graph) + 1) * sizeof(double);
}

/* What a second shard adds to each lane's step. Lanes of several threads would be other lanes then. */
static enum status measure_shard(const struct job *job, int64_t rows,
                                 struct profile_config config, struct measured *out)
{
    const int64_t samples = 2 * rows * out->lanes;
    struct batch batch;
    double step;

    config.batch = &batch;
    config.shards = 2 * out->lanes;
    config.seconds /= 2;
    enum status status = made_up_batch(job, samples, 0, samples, &batch);
    if (status == STATUS_OK)
        status = profile_steps(&config, &step);
    if (status == STATUS_OK)
        out->shard = step - out->step;
    made_up_release(&batch);
    return status;
}

/* Nodes alone, each lane with so many shards under way. */
static enum status measure_open(const struct job *job, int64_t rows, int64_t open,
                                struct profile_config config, struct measured *out)
{
    struct batch batch;

    config.batch = &batch;
    config.open = open;
    TRY(made_up_batch(job, rows * open, 0, rows * open, &batch));
    const enum status status = profile_open(&config, out->nodes);
    made_up_release(&batch);
    return status;
}

static enum status measure(const struct job *job, const struct graph *graph, int64_t rows,
                           int64_t open, double seconds, struct measured *out)
{
    struct batch batch;
    struct profile profile;
    struct profile_config config = {
        .graph = graph,
        .batch = &batch,
        .lanes = out->lanes,
        .threads = out->threads,
        .optim = job->optim,
        .choices = job->choices,
        .seed = job->settings.seed,
        .seconds = seconds,
    };

    if (out->lanes == 0)
        return profile_kernels(graph, job->choices, out->nodes);
    if (open > 1)
        return measure_open(job, rows, open, config, out);
    out->shard = 0;
    enum status status = made_up_batch(job, rows * out->lanes, 0, rows * out->lanes, &batch);
    if (status == STATUS_OK)
        status = profile_run(&config, &profile);
    if (status == STATUS_OK) {
        memcpy(out->nodes, profile.nodes, (size_t)graph_node_count(graph) * sizeof *out->nodes);
        out->step = profile.step;
        out->sums = profile.sums;
        out->made = profile.made;
        out->rest = profile.rest;
        out->arena = (double)profile.arena;
        profile_release(&profile);
    }
    if (status == STATUS_OK && out->threads == 1 && out->step < seconds)
        status = measure_shard(job, rows, config, out);
    made_up_release(&batch);
    return status;
}

/* The child's whole life. */
static void measure_and_leave(const struct job *job, const struct graph *graph, int64_t rows,
                              int64_t open, double seconds, struct answer_memory *answer)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody waits for it then */
    answer->status = measure(job, graph, rows, open, seconds, &answer->measured);
    snprintf(answer->why, sizeof answer->why, "%s",
             answer->status == STATUS_OK ? "" : status_message());
    _exit(0);
}

enum status measured_make(const struct job *job, const struct graph *graph, int64_t rows,
                          int lanes, int threads, int64_t open, double seconds,
                          struct measured **out)
{
    struct answer_memory *answer =
        mmap(NULL, bytes_of(graph), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int state = 0;

    if (answer == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "shared memory is refused");
    answer->status = STATUS_NO_MEMORY;
    answer->measured.nodes = (double *)(answer + 1);
    answer->measured.lanes = lanes;
    answer->measured.threads = threads;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0)
        measure_and_leave(job, graph, rows, open, seconds, answer);
    while (child > 0 && waitpid(child, &state, 0) < 0 && errno == EINTR)
        continue;
    enum status status = answer->status;
    if (child < 0)
        status = FAIL(STATUS_NO_MEMORY, "a process to measure in is refused");
    else if (!WIFEXITED(state))
        status = FAIL(STATUS_NO_MEMORY, "measuring was ended by signal %d", WTERMSIG(state));
    else if (status != STATUS_OK)
        status = FAIL(status, "%s", answer->why);
    if (status != STATUS_OK) {
        munmap(answer, bytes_of(graph));
        return status;
    }
    *out = &answer->measured;
    return STATUS_OK;
}

void measured_free(struct measured *measured, const struct graph *graph)
{
    if (measured)
        munmap((char *)measured - offsetof(struct answer_memory, measured), bytes_of(graph));
}
