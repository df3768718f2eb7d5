/* SPDX-License-Identifier: MIT */
/* device_measure.c - a device's kernel timed by itself. */
#include "kernel/device_measure.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { TIMES = 7, RUNS = 20, BUFFERS = KERNEL_IN + KERNEL_OUT + 2 };

enum status device_place_open(const char *name, struct device_place *out)
{
    struct device_place place;

    TRY(device_find(name, &place.face));
    TRY(place.face->open(0, &place.device));
    const enum status status = place.face->stream->create(place.device, &place.stream);
    if (status != STATUS_OK) {
        place.face->close(place.device);
        return status;
    }
    *out = place;
    return STATUS_OK;
}

void device_place_close(struct device_place *place)
{
    place->face->stream->destroy(place->stream);
    place->face->close(place->device);
}

static size_t bytes_of(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype);
}

enum status device_carry(void *to, const struct kernel_tensor *wanted, const void *from,
                         const struct kernel_tensor *is)
{
    const size_t count = (size_t)shape_count(&is->shape);
    const struct device_face *cpu;
    void *turned = NULL;

    TRY(device_find("cpu", &cpu));
    if (is->layout != wanted->layout) {
        const size_t outputs = (size_t)is->shape.dim[0];
        const size_t rows = is->layout == LAYOUT_OHWI ? outputs : count / outputs;
        TRY(mem_alloc(count, dtype_size(is->dtype), &turned));
        cpu->turn(NULL, turned, from, is->dtype, rows, count / rows);
        from = turned;
    }
    if (is->dtype == wanted->dtype)
        memcpy(to, from, bytes_of(is));
    else
        cpu->convert(NULL, to, wanted->dtype, from, is->dtype, count);
    mem_free(turned);
    return STATUS_OK;
}

/* A kernel with buffers on the device. */
struct trial {
    const struct device_place *place;
    const struct kernel *kernel;
    struct kernel_call call;
    void *buffers[BUFFERS];
    int n_buffers;
    struct device_event *events[2];
    struct device_graph *graph; /* NULL: the device has none */
};

static enum status add_buffer(struct trial *trial, size_t bytes, void **out)
{
    const struct device_place *p = trial->place;

    TRY(p->face->memory->create(p->device, bytes, out));
    trial->buffers[trial->n_buffers++] = *out;
    return p->face->memory->fill(p->stream, *out, 0, bytes);
}

static enum status add_input(struct trial *trial, const struct kernel_call *host, int i)
{
    const struct device_place *p = trial->place;
    const struct kernel_tensor *there = &trial->call.problem->in[i];
    void *made, *memory;

    TRY(add_buffer(trial, bytes_of(there), &memory));
    trial->call.in[i] = memory;
    TRY(mem_alloc(bytes_of(there) + 1, 1, &made));
    enum status status = device_carry(made, there, host->in[i], &host->problem->in[i]);
    if (status == STATUS_OK)
        status = p->face->memory->copy(p->stream, memory, made, bytes_of(there));
    if (status == STATUS_OK)
        status = p->face->stream->wait(p->stream);
    mem_free(made);
    return status;
}

static enum status set_up(struct trial *trial, const struct kernel_call *host)
{
    const struct device_place *p = trial->place;
    const struct kernel_problem *problem = trial->call.problem;
    void *step;

    for (int i = 0; i < problem->n_in; i++)
        TRY(add_input(trial, host, i));
    for (int i = 0; i < problem->n_out; i++)
        TRY(add_buffer(trial, bytes_of(&problem->out[i]), &trial->call.out[i]));
    TRY(add_buffer(trial, sizeof *host->step, &step));
    TRY(p->face->memory->copy(p->stream, step, host->step, sizeof *host->step));
    trial->call.step = step;
    if (trial->kernel->scratch_bytes)
        TRY(add_buffer(trial, trial->kernel->scratch_bytes(problem), &trial->call.scratch));
    if (trial->kernel->prepare)
        TRY(trial->kernel->prepare(problem, &trial->call.state));
    TRY(p->face->stream->event_create(p->device, &trial->events[0]));
    TRY(p->face->stream->event_create(p->device, &trial->events[1]));
    return p->face->stream->wait(p->stream);
}

static void tear_down(struct trial *trial)
{
    const struct device_place *p = trial->place;

    if (trial->graph)
        p->face->graph->destroy(trial->graph);
    for (int i = 0; i < 2; i++) {
        if (trial->events[i])
            p->face->stream->event_destroy(trial->events[i]);
    }
    if (trial->call.state && trial->kernel->release)
        trial->kernel->release(trial->call.state);
    for (int i = 0; i < trial->n_buffers; i++)
        p->face->memory->destroy(p->device, trial->buffers[i]);
}

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Milliseconds of a run: of a graph of several, or of several in turn. */
static enum status time_runs(const struct trial *trial, double *out_ms)
{
    const struct device_place *p = trial->place;

    TRY(p->face->stream->record(p->stream, trial->events[0]));
    if (trial->graph)
        TRY(p->face->graph->launch(trial->graph, p->stream));
    for (int i = 0; !trial->graph && i < RUNS; i++)
        trial->kernel->run(&trial->call);
    TRY(p->face->stream->record(p->stream, trial->events[1]));
    TRY(p->face->stream->wait(p->stream));
    TRY(p->face->stream->elapsed(trial->events[0], trial->events[1], out_ms));
    *out_ms /= RUNS;
    return STATUS_OK;
}

static enum status capture(struct trial *trial)
{
    const struct device_place *p = trial->place;

    TRY(p->face->graph->begin(p->stream));
    for (int i = 0; i < RUNS; i++)
        trial->kernel->run(&trial->call);
    return p->face->graph->end(p->stream, &trial->graph);
}

static enum status time_trial(struct trial *trial, const struct kernel_call *host,
                              double *out_seconds)
{
    const struct device_place *p = trial->place;
    double ms[TIMES];

    TRY(set_up(trial, host));
    trial->kernel->run(&trial->call); /* libraries find their plans */
    TRY(p->face->stream->wait(p->stream));
    if (p->face->graph)
        TRY(capture(trial));
    TRY(time_runs(trial, &ms[0]));
    for (int i = 0; i < TIMES; i++)
        TRY(time_runs(trial, &ms[i]));
    qsort(ms, TIMES, sizeof ms[0], compare_numbers);
    *out_seconds = ms[TIMES / 2] * 1e-3;
    return STATUS_OK;
}

enum status device_measure(const struct device_place *place, const struct kernel *kernel,
                           const struct kernel_problem *there, const struct kernel_call *host,
                           double *out_seconds)
{
    struct trial trial = { .place = place,
                           .kernel = kernel,
                           .call = { .problem = there, .stream = place->stream } };
    const enum status status = time_trial(&trial, host, out_seconds);

    tear_down(&trial);
    return status;
}
