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

enum { MEASURE_COPIES = 64 };

/* Whole pages: each process has its own. */
static size_t bytes_of(const struct graph *graph)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes =
        sizeof(struct answer_memory) + ((size_t)graph_node_count(graph) + 1) * sizeof(double);

    return (bytes + page - 1) / page * page;
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

static enum status measure(const struct job *job, const struct graph *graph,
                           const struct measure_config *how, struct measured *out)
{
    const int64_t rows = how->rows;
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
        .seconds = how->seconds,
    };

    if (out->lanes == 0)
        return profile_kernels(graph, job->choices, out->nodes);
    if (how->open > 1)
        return measure_open(job, rows, how->open, config, out);
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
    if (status == STATUS_OK && out->threads == 1 && out->step < how->seconds)
        status = measure_shard(job, rows, config, out);
    made_up_release(&batch);
    return status;
}

/* A child's whole life. */
static void measure_and_leave(const struct job *job, const struct graph *graph,
                              const struct measure_config *how, struct answer_memory *answer)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody waits for it then */
    answer->status = measure(job, graph, how, &answer->measured);
    snprintf(answer->why, sizeof answer->why, "%s",
             answer->status == STATUS_OK ? "" : status_message());
    _exit(0);
}

/* How a process ended. */
static int wait_for(pid_t child)
{
    int state = 0;

    while (waitpid(child, &state, 0) < 0 && errno == EINTR)
        continue;
    return state;
}

/* Measures in `copies` processes, of which the first one answers; the others are there beside it. */
static enum status measure_in_children(const struct job *job, const struct graph *graph,
                                       const struct measure_config *how,
                                       struct answer_memory *answer, int copies)
{
    pid_t child[MEASURE_COPIES];
    int n = 0, state = 0;

    fflush(stdout);
    for (; n < copies; n++) {
        child[n] = fork();
        if (child[n] == 0)
            measure_and_leave(job, graph, how,
                              (void *)((char *)answer + (size_t)n * bytes_of(graph)));
        if (child[n] < 0)
            break;
    }
    if (n > 0)
        state = wait_for(child[0]);
    for (int i = 1; i < n; i++) {
        kill(child[i], SIGKILL);
        (void)wait_for(child[i]);
    }
    if (n < copies)
        return FAIL(STATUS_NO_MEMORY, "a process to measure in is refused");
    if (!WIFEXITED(state))
        return FAIL(STATUS_NO_MEMORY, "measuring was ended by signal %d", WTERMSIG(state));
    return answer->status == STATUS_OK ? STATUS_OK : FAIL(answer->status, "%s", answer->why);
}

enum status measured_make(const struct job *job, const struct graph *graph,
                          struct measure_config config, struct measured **out)
{
    const int copies = config.copies > MEASURE_COPIES ? MEASURE_COPIES
                       : config.copies > 1            ? config.copies
                                                      : 1;
    const size_t bytes = (size_t)copies * bytes_of(graph);
    struct answer_memory *answer =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (answer == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "shared memory is refused");
    for (int i = 0; i < copies; i++) {
        struct answer_memory *own = (void *)((char *)answer + (size_t)i * bytes_of(graph));
        own->status = STATUS_NO_MEMORY;
        own->measured.nodes = (double *)(own + 1);
        own->measured.lanes = config.lanes;
        own->measured.threads = config.threads;
    }
    const enum status status = measure_in_children(job, graph, &config, answer, copies);
    /* What the others wrote is of no use; measured_free knows one. */
    if (copies > 1)
        munmap((char *)answer + bytes_of(graph), bytes - bytes_of(graph));
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
