/* SPDX-License-Identifier: MIT */
/* device_testing.c - buffers with guards in a device's memory around one call of a kernel. */
#include "kernel/device_testing.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/precision.h"

enum { GUARD_BYTES = 256, GUARD = 0xA5, POISON = 0xFB, PLACES = KERNEL_IN + KERNEL_OUT + 2 };
/* A buffer and what the host thinks is in it. */
struct buffer {
    char *block;    /* on the device: guard, contents, guard */
    uint8_t *image; /* the same here, as it was filled */
    size_t bytes;
};

struct trial {
    const struct device_place *place;
    const struct kernel *kernel;
    struct kernel_problem problem;
    struct kernel_call call; /* pointers of the device */
    struct buffer buffers[PLACES];
    int n_buffers;
    size_t guard;
};

static size_t bytes_of(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype);
}

/* contents NULL: poison. */
static enum status add_buffer(struct trial *trial, size_t bytes, const void *contents,
                              void **out)
{
    const struct device_place *p = trial->place;
    struct buffer *b = &trial->buffers[trial->n_buffers++];
    const size_t all = bytes + 2 * trial->guard;

    b->bytes = bytes;
    TRY(mem_alloc(all, 1, &b->image));
    memset(b->image, GUARD, all);
    if (contents)
        memcpy(b->image + trial->guard, contents, bytes);
    else
        memset(b->image + trial->guard, POISON, bytes);
    TRY(p->face->memory->create(p->device, all, (void **)&b->block));
    TRY(p->face->memory->copy(p->stream, b->block, b->image, all));
    *out = b->block + trial->guard;
    return STATUS_OK;
}

/* Elements in another type. */
static void change(void *to, enum dtype to_dtype, const void *from, enum dtype from_dtype,
                   const struct shape *shape)
{
    const struct device_face *cpu;

    BUG_ON(device_find("cpu", &cpu) != STATUS_OK);
    cpu->convert(NULL, to, to_dtype, from, from_dtype, (size_t)shape_count(shape));
}

static enum status add_input(struct trial *trial, const struct kernel_call *host, int i)
{
    const struct kernel_tensor *there = &trial->problem.in[i];
    void *made, *memory;

    TRY(mem_alloc(bytes_of(there) + 1, 1, &made));
    enum status status = device_carry(made, there, host->in[i], &host->problem->in[i]);
    if (status == STATUS_OK)
        status = add_buffer(trial, bytes_of(there), made, &memory);
    mem_free(made);
    if (status == STATUS_OK)
        trial->call.in[i] = memory;
    return status;
}

static enum status set_up(struct trial *trial, const struct kernel_call *host)
{
    const char *guard = getenv("TUTTI_TEST_GUARD");
    const struct kernel_problem *problem = &trial->problem;
    void *memory;

    trial->guard = guard && strcmp(guard, "0") == 0 ? 0 : GUARD_BYTES;
    trial->call.problem = problem;
    trial->call.stream = trial->place->stream;
    for (int i = 0; i < problem->n_in; i++)
        TRY(add_input(trial, host, i));
    for (int i = 0; i < problem->n_out; i++)
        TRY(add_buffer(trial, bytes_of(&problem->out[i]), NULL, &trial->call.out[i]));
    TRY(add_buffer(trial, sizeof *host->step, host->step, &memory));
    trial->call.step = memory;
    if (trial->kernel->scratch_bytes)
        TRY(add_buffer(trial, trial->kernel->scratch_bytes(problem), NULL,
                       &trial->call.scratch));
    if (trial->kernel->prepare)
        TRY(trial->kernel->prepare(problem, &trial->call.state));
    return trial->place->face->stream->wait(trial->place->stream);
}

static void tear_down(struct trial *trial)
{
    const struct device_place *p = trial->place;

    if (trial->call.state && trial->kernel->release)
        trial->kernel->release(trial->call.state);
    for (int i = 0; i < trial->n_buffers; i++) {
        if (trial->buffers[i].block)
            p->face->memory->destroy(p->device, trial->buffers[i].block);
        mem_free(trial->buffers[i].image);
    }
}

static enum status capture(struct trial *trial, struct device_graph **out)
{
    const struct device_place *p = trial->place;

    TRY(p->face->graph->begin(p->stream));
    trial->kernel->run(&trial->call);
    return p->face->graph->end(p->stream, out);
}

static enum status run_way(struct trial *trial, enum device_way way)
{
    const struct device_place *p = trial->place;
    struct device_graph *graph = NULL;

    if (way == DEVICE_GRAPH && p->face->graph) {
        TRY(capture(trial, &graph));
        enum status status = p->face->graph->launch(graph, p->stream);
        if (status == STATUS_OK)
            status = p->face->stream->wait(p->stream);
        p->face->graph->destroy(graph);
        return status;
    }
    for (int i = 0; i < (way == DEVICE_TWICE ? 2 : 1); i++)
        trial->kernel->run(&trial->call);
    return p->face->stream->wait(p->stream);
}

/* Has what may not change stayed as it was? `now` is the whole block. */
static bool is_intact(const struct trial *trial, const struct buffer *b, const uint8_t *now,
                      bool may_change)
{
    if (memcmp(now, b->image, trial->guard) != 0 ||
        memcmp(now + trial->guard + b->bytes, b->image + trial->guard + b->bytes,
               trial->guard) != 0)
        return false;
    return may_change || memcmp(now, b->image, b->bytes + 2 * trial->guard) == 0;
}

/* Brings one buffer back; it is `output`, or -1: it only has to be intact. */
static enum status bring_back(const struct trial *trial, const struct kernel_call *host,
                              int number, bool may_change, int output)
{
    const struct device_place *p = trial->place;
    const struct buffer *b = &trial->buffers[number];
    const size_t all = b->bytes + 2 * trial->guard;
    uint8_t *now;

    TRY(mem_alloc(all, 1, &now));
    enum status status = p->face->memory->copy(p->stream, now, b->block, all);
    if (status == STATUS_OK)
        status = p->face->stream->wait(p->stream);
    if (status == STATUS_OK && !is_intact(trial, b, now, may_change))
        status = FAIL(STATUS_CORRUPT, "%s of %s wrote beside its outputs, at buffer %d",
                      trial->kernel->name, trial->problem.op, number);
    if (status == STATUS_OK && output >= 0)
        status = device_carry(host->out[output], &host->problem->out[output],
                              now + trial->guard, &trial->problem.out[output]);
    mem_free(now);
    return status;
}

static enum status run_trial(struct trial *trial, const struct kernel_call *host,
                             enum device_way way)
{
    const int n_in = trial->problem.n_in, n_out = trial->problem.n_out;

    TRY(set_up(trial, host));
    if (way == DEVICE_IN_PLACE)
        trial->call.out[0] = trial->buffers[0].block + trial->guard;
    TRY(run_way(trial, way));
    for (int i = 0; i < trial->n_buffers; i++) {
        const bool is_out = i >= n_in && i < n_in + n_out;
        const bool shared = way == DEVICE_IN_PLACE && i == 0;
        const bool is_scratch = i > n_in + n_out;
        const int output = is_out && !(way == DEVICE_IN_PLACE && i == n_in) ? i - n_in
                           : shared                                         ? 0
                                                                            : -1;
        TRY(bring_back(trial, host, i, is_out || shared || is_scratch, output));
    }
    return STATUS_OK;
}

enum status device_testing_run(const struct device_place *place, const struct kernel *kernel,
                               const struct kernel_problem *there,
                               const struct kernel_call *host, enum device_way way)
{
    struct trial trial = { .place = place, .kernel = kernel, .problem = *there };
    const enum status status = run_trial(&trial, host, way);

    tear_down(&trial);
    return status;
}

/* The CPU in 16 bits --------------------------------------------------------------------------- */

enum { NARROW_KERNELS = 256 };

static struct kernel_problem widened(const struct kernel_problem *problem)
{
    struct kernel_problem wide = *problem;

    for (int i = 0; i < wide.n_in; i++)
        wide.in[i].dtype = kernel_is_half(wide.in[i].dtype) ? DTYPE_F32 : wide.in[i].dtype;
    for (int i = 0; i < wide.n_out; i++)
        wide.out[i].dtype = kernel_is_half(wide.out[i].dtype) ? DTYPE_F32 : wide.out[i].dtype;
    return wide;
}

static size_t narrow_scratch(const struct kernel_problem *problem)
{
    const struct kernel *reference = kernel_find(problem->op, "reference");
    const struct kernel_problem wide = widened(problem);

    return reference->scratch_bytes ? reference->scratch_bytes(&wide) : 0;
}

/* An f32 buffer for a tensor of 16 bits; else NULL. */
static float *room_for(const struct kernel_tensor *tensor)
{
    float *room = NULL;

    if (kernel_is_half(tensor->dtype))
        BUG_ON(mem_alloc((size_t)shape_count(&tensor->shape), sizeof *room, &room) !=
               STATUS_OK);
    return room;
}

/* Sums that an op gives besides, the last of its results, are of what it stores. */
static void sum_stored(const struct kernel_call *call, const struct kernel_problem *narrow)
{
    const int last = narrow->n_out - 1;
    const struct shape *shape = &narrow->out[0].shape;
    const bool sums = (strcmp(narrow->op, "layer_norm_grad") == 0 && last == 3) ||
                      (strcmp(narrow->op, "linear_grad_through") == 0 && last == 1);
    struct kernel_problem problem = { .op = "sum_rows", .n_in = 1, .n_out = 1 };
    uint16_t *stored;

    if (!sums || !kernel_is_half(narrow->out[0].dtype))
        return;
    BUG_ON(mem_alloc((size_t)shape_count(shape), sizeof *stored, &stored) != STATUS_OK);
    change(stored, narrow->out[0].dtype, call->out[0], DTYPE_F32, shape);
    change(call->out[0], DTYPE_F32, stored, narrow->out[0].dtype, shape);
    mem_free(stored);
    problem.in[0] = call->problem->out[0];
    problem.out[0] = call->problem->out[last];
    const struct kernel_call again = { .problem = &problem,
                                       .in = { call->out[0] },
                                       .out = { call->out[last] } };
    kernel_find("sum_rows", "reference")->run(&again);
}

static void run_narrow(const struct kernel_call *call)
{
    const struct kernel_problem *problem = call->problem, wide = widened(problem);
    float *in[KERNEL_IN] = { NULL }, *out[KERNEL_OUT] = { NULL };
    struct kernel_call inner = *call;

    inner.problem = &wide;
    for (int i = 0; i < problem->n_in; i++) {
        in[i] = room_for(&problem->in[i]);
        if (in[i])
            change(in[i], DTYPE_F32, call->in[i], problem->in[i].dtype, &problem->in[i].shape);
        inner.in[i] = in[i] ? in[i] : call->in[i];
    }
    for (int i = 0; i < problem->n_out; i++) {
        out[i] = room_for(&problem->out[i]);
        inner.out[i] = out[i] ? (void *)out[i] : call->out[i];
    }
    kernel_find(problem->op, "reference")->run(&inner);
    sum_stored(&inner, problem);
    for (int i = 0; i < problem->n_out; i++) {
        if (out[i])
            change(call->out[i], problem->out[i].dtype, out[i], DTYPE_F32,
                   &problem->out[i].shape);
        mem_free(out[i]);
    }
    for (int i = 0; i < problem->n_in; i++)
        mem_free(in[i]);
}

static const struct kernel *narrow_kernel_at(size_t i)
{
    static struct kernel rows[NARROW_KERNELS];
    static size_t count;
    const struct kernel *kernel;
    const bool is_made = count > 0;

    for (size_t k = 0; !is_made && (kernel = kernel_at(k)); k++) {
        if (strcmp(kernel->name, "reference") != 0)
            continue;
        BUG_ON(count == NARROW_KERNELS || kernel->prepare);
        rows[count++] = (struct kernel){ .op = kernel->op,
                                         .name = "narrow",
                                         .can_run = NULL,
                                         .scratch_bytes = narrow_scratch,
                                         .run = run_narrow };
    }
    return i < count ? &rows[i] : NULL;
}

/* Calls that do not need each other may run in any order. */
static bool all_go_together(const struct kernel *one, const struct kernel *other)
{
    (void)one;
    (void)other;
    return true;
}

static void run_backwards(const struct kernel *const kernel[2],
                          const struct kernel_call call[2])
{
    kernel[1]->run(&call[1]);
    kernel[0]->run(&call[0]);
}

const struct device_face *device_testing_narrow(void)
{
    static struct device_face face;
    const struct device_face *cpu;

    if (!face.name) {
        BUG_ON(device_find("cpu", &cpu) != STATUS_OK);
        face = *cpu;
        face.name = "narrow";
        face.kernel_at = narrow_kernel_at;
        face.go_together = all_go_together;
        face.run_both = run_backwards;
    }
    return &face;
}
