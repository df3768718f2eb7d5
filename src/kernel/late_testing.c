/* SPDX-License-Identifier: MIT */
/* late_testing.c - the CPU as a device with streams that do not hurry.
 *
 * Kernels on one kind of its streams are put off until somebody waits for them, those on the other run at once: so of all orders
 * that events allow, two that lie far apart are tried. All else that is put on a stream that is late has it catch up first.
 */
#include <string.h>

#include "base/mem.h"
#include "kernel/device_testing.h"

enum { MOST_LATE = 1024, MOST_ROWS = 256 };

struct late_stream {
    struct device *device; /* as streams of the CPU have it */
    bool is_late;
    size_t put, done; /* of all that came */
    struct kernel_call calls[MOST_LATE];
};

struct late_event {
    struct late_stream *stream;
    size_t at;
};

static const struct device_face *narrow, *cpu;

static struct late_stream *late(struct device_stream *stream)
{
    return (struct late_stream *)stream;
}

static void catch_up(struct late_stream *stream, size_t until)
{
    while (stream->done < until) {
        const struct kernel_call *call = &stream->calls[stream->done++ % MOST_LATE];
        device_kernel(narrow, call->problem)->run(call);
    }
}

static void run(const struct kernel_call *call)
{
    struct late_stream *stream = late(call->stream);

    BUG_ON(stream->put - stream->done == MOST_LATE);
    stream->calls[stream->put++ % MOST_LATE] = *call;
    if (!stream->is_late)
        catch_up(stream, stream->put);
}

/* Rows of the kernels in 16 bits that are run so. */
static struct kernel rows[MOST_ROWS];

static const struct kernel *late_kernel_at(size_t i)
{
    return rows[i].op ? &rows[i] : NULL;
}

/* Streams and events --------------------------------------------------------------------------- */

static enum status create(struct device *device, bool is_late, struct device_stream **out)
{
    struct late_stream *stream;

    TRY(mem_alloc(1, sizeof *stream, &stream));
    stream->device = device;
    stream->is_late = is_late;
    *out = (struct device_stream *)stream;
    return STATUS_OK;
}

static enum status create_prompt(struct device *device, struct device_stream **out)
{
    return create(device, false, out);
}

static enum status create_late(struct device *device, struct device_stream **out)
{
    return create(device, true, out);
}

static void destroy(struct device_stream *stream)
{
    mem_free(stream);
}

static enum status wait_for(struct device_stream *stream)
{
    catch_up(late(stream), late(stream)->put);
    return STATUS_OK;
}

static enum status event_create(struct device *device, struct device_event **out)
{
    struct late_event *event;

    (void)device;
    TRY(mem_alloc(1, sizeof *event, &event));
    *out = (struct device_event *)event;
    return STATUS_OK;
}

static void event_destroy(struct device_event *event)
{
    mem_free(event);
}

static enum status record(struct device_stream *stream, struct device_event *event)
{
    *(struct late_event *)event = (struct late_event){ late(stream), late(stream)->put };
    return STATUS_OK;
}

static enum status event_wait(struct device_event *event)
{
    const struct late_event *of = (const struct late_event *)event;

    if (of->stream)
        catch_up(of->stream, of->at);
    return STATUS_OK;
}

static enum status wait_event(struct device_stream *stream, struct device_event *event)
{
    (void)stream;
    return event_wait(event);
}

/* What is no kernel ------------------------------------------------------------------------------ */

static enum status copy(struct device_stream *stream, void *to, const void *from, size_t bytes)
{
    TRY(wait_for(stream));
    return cpu->memory->copy(stream, to, from, bytes);
}

static enum status fill(struct device_stream *stream, void *to, uint8_t byte, size_t bytes)
{
    TRY(wait_for(stream));
    return cpu->memory->fill(stream, to, byte, bytes);
}

static void convert(struct device_stream *stream, void *to, enum dtype to_dtype,
                    const void *from, enum dtype from_dtype, size_t count)
{
    BUG_ON(wait_for(stream) != STATUS_OK);
    cpu->convert(stream, to, to_dtype, from, from_dtype, count);
}

static void turn(struct device_stream *stream, void *to, const void *from, enum dtype dtype,
                 size_t n_rows, size_t columns)
{
    BUG_ON(wait_for(stream) != STATUS_OK);
    cpu->turn(stream, to, from, dtype, n_rows, columns);
}

static void add(struct device_stream *stream, float *out, const float *a, const float *b,
                size_t count)
{
    BUG_ON(wait_for(stream) != STATUS_OK);
    cpu->add(stream, out, a, b, count);
}

static void mark_rows(struct device_stream *stream, const int32_t *ids, size_t count,
                      size_t n_rows, uint8_t *marks)
{
    BUG_ON(wait_for(stream) != STATUS_OK);
    cpu->mark_rows(stream, ids, count, n_rows, marks);
}

static void adam(struct device_stream *stream, const struct device_range *range,
                 const struct attrs *attrs, const struct kernel_update_step *step)
{
    BUG_ON(wait_for(stream) != STATUS_OK);
    device_update(cpu, "adam_update")->run(stream, range, attrs, step);
}

static void average(struct device_stream *stream, const struct device_range *range,
                    const struct attrs *attrs, const struct kernel_update_step *step)
{
    BUG_ON(wait_for(stream) != STATUS_OK);
    device_update(cpu, "average_update")->run(stream, range, attrs, step);
}

static const struct device_update updates[] = { { "adam_update", adam },
                                                { "average_update", average },
                                                { NULL, NULL } };

/* The face --------------------------------------------------------------------------------------- */

/* Some pairs, so that there are others whose gradients are apart. */
static bool go_together(const struct kernel *one, const struct kernel *other)
{
    return strcmp(one->op, "linear_grad_weight") == 0 &&
           strcmp(other->op, "linear_grad_through") == 0;
}

static bool leaves_room(const struct kernel *kernel)
{
    (void)kernel;
    return true;
}

static const struct device_stream_ops stream_ops = {
    .create = create_prompt,
    .create_beside = create_late,
    .destroy = destroy,
    .wait = wait_for,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .record = record,
    .wait_event = wait_event,
    .event_wait = event_wait,
};

static void make_rows(void)
{
    const struct kernel *kernel;
    size_t count = 0;

    while ((kernel = narrow->kernel_at(count))) {
        BUG_ON(count == MOST_ROWS - 1);
        rows[count] = *kernel;
        rows[count].name = "late";
        rows[count++].run = run;
    }
}

static void make_face(bool beside, struct device_face *out)
{
    static struct device_stream_ops ops[2];
    static struct device_memory_ops memory;

    ops[beside] = stream_ops;
    memory = *cpu->memory;
    memory.copy = copy;
    memory.fill = fill;
    *out = *cpu;
    out->name = "late";
    out->stream = &ops[beside];
    out->memory = &memory;
    out->kernel_at = late_kernel_at;
    out->go_together = go_together;
    out->run_both = narrow->run_both;
    out->leaves_room = leaves_room;
    out->convert = convert;
    out->turn = turn;
    out->add = add;
    out->mark_rows = mark_rows;
    if (beside)
        return;
    ops[beside].create = create_late;
    ops[beside].create_beside = create_prompt;
    out->updates = updates;
}

const struct device_face *device_testing_late(bool beside)
{
    static struct device_face faces[2];

    if (!cpu) {
        BUG_ON(device_find("cpu", &cpu) != STATUS_OK);
        narrow = device_testing_narrow();
        make_rows();
    }
    if (!faces[beside].name)
        make_face(beside, &faces[beside]);
    return &faces[beside];
}
