/* SPDX-License-Identifier: MIT */
/* device.c - the table of devices, and the CPU as one of them: what is put on a stream is done. */
#include "kernel/device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernel/device_rows.h"
#include "kernel/precision.h"

struct device {
    int number;
};

struct device_stream {
    struct device *device;
};

struct device_event {
    int64_t ns;
};

/* The CPU ------------------------------------------------------------------------------ */

static enum status cpu_count(int *out)
{
    *out = 1;
    return STATUS_OK;
}

static uint64_t pages(int name)
{
    const long count = sysconf(name), bytes = sysconf(_SC_PAGESIZE);

    return count > 0 && bytes > 0 ? (uint64_t)count * (uint64_t)bytes : 0;
}

/* Cuts a line of /proc/cpuinfo to what stands behind the colon. */
static bool read_model(const char *line, char out[DEVICE_TEXT])
{
    const char *colon = strchr(line, ':');

    if (strncmp(line, "model name", 10) != 0 || !colon || colon[1] == '\0')
        return false;
    (void)snprintf(out, DEVICE_TEXT, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    return true;
}

static enum status cpu_describe(int number, struct device_info *out)
{
    struct device_info info = { .memory = pages(_SC_PHYS_PAGES),
                                .free_memory = pages(_SC_AVPHYS_PAGES),
                                .units = (int)sysconf(_SC_NPROCESSORS_ONLN) };
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[2 * DEVICE_TEXT];

    if (number != 0)
        return FAIL(STATUS_NOT_FOUND, "there is one cpu, number 0, not %d", number);
    (void)snprintf(info.name, sizeof info.name, "processor");
    while (file && fgets(line, sizeof line, file) && !read_model(line, info.name))
        continue;
    if (file)
        (void)fclose(file);
    (void)snprintf(info.driver, sizeof info.driver, "%s", kernel_isa());
    *out = info;
    return STATUS_OK;
}

static enum status cpu_open(int number, struct device **out)
{
    struct device *device;

    if (number != 0)
        return FAIL(STATUS_NOT_FOUND, "there is one cpu, number 0, not %d", number);
    TRY(mem_alloc(1, sizeof *device, &device));
    *out = device;
    return STATUS_OK;
}

static void cpu_close(struct device *device)
{
    mem_free(device);
}

static enum status cpu_memory_create(struct device *device, size_t bytes, void **out)
{
    (void)device;
    return mem_alloc(bytes, 1, out);
}

static void cpu_memory_destroy(struct device *device, void *memory)
{
    (void)device;
    mem_free(memory);
}

static enum status cpu_copy(struct device_stream *stream, void *to, const void *from,
                            size_t bytes)
{
    (void)stream;
    memmove(to, from, bytes);
    return STATUS_OK;
}

static enum status cpu_fill(struct device_stream *stream, void *to, uint8_t byte, size_t bytes)
{
    (void)stream;
    memset(to, byte, bytes);
    return STATUS_OK;
}

static enum status cpu_stream_create(struct device *device, struct device_stream **out)
{
    struct device_stream *stream;

    TRY(mem_alloc(1, sizeof *stream, &stream));
    stream->device = device;
    *out = stream;
    return STATUS_OK;
}

static void cpu_stream_destroy(struct device_stream *stream)
{
    mem_free(stream);
}

static enum status cpu_stream_wait(struct device_stream *stream)
{
    (void)stream;
    return STATUS_OK;
}

static enum status cpu_event_create(struct device *device, struct device_event **out)
{
    (void)device;
    return mem_alloc(1, sizeof **out, out);
}

static void cpu_event_destroy(struct device_event *event)
{
    mem_free(event);
}

static enum status cpu_record(struct device_stream *stream, struct device_event *event)
{
    (void)stream;
    event->ns = clock_ns();
    return STATUS_OK;
}

static enum status cpu_wait_event(struct device_stream *stream, struct device_event *event)
{
    (void)stream;
    (void)event;
    return STATUS_OK;
}

static enum status cpu_event_wait(struct device_event *event)
{
    (void)event;
    return STATUS_OK;
}

static enum status cpu_elapsed(struct device_event *begin, struct device_event *end,
                               double *out_ms)
{
    *out_ms = (double)(end->ns - begin->ns) * 1e-6;
    return STATUS_OK;
}

static enum status cpu_copy_rows(struct device_stream *stream, void *to, size_t to_apart,
                                 const void *from, size_t from_apart, size_t width, size_t rows)
{
    (void)stream;
    for (size_t r = 0; r < rows; r++)
        memcpy((char *)to + r * to_apart, (const char *)from + r * from_apart, width);
    return STATUS_OK;
}

static bool cpu_lock_host(struct device *device, void *memory, size_t bytes)
{
    (void)device, (void)memory, (void)bytes;
    return false;
}

static void cpu_unlock_host(struct device *device, void *memory)
{
    (void)device, (void)memory;
}

static const struct device_memory_ops cpu_memory = {
    .create = cpu_memory_create,
    .destroy = cpu_memory_destroy,
    .create_host = cpu_memory_create,
    .destroy_host = cpu_memory_destroy,
    .lock_host = cpu_lock_host,
    .unlock_host = cpu_unlock_host,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .copy_rows = cpu_copy_rows,
};

static const struct device_stream_ops cpu_stream = {
    .create = cpu_stream_create,
    .create_beside = cpu_stream_create,
    .destroy = cpu_stream_destroy,
    .wait = cpu_stream_wait,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .record = cpu_record,
    .wait_event = cpu_wait_event,
    .event_wait = cpu_event_wait,
    .elapsed = cpu_elapsed,
};

/* What was updated becomes a bf16, by chance: elements [at, at + count) of a range. */
static void draw_part(const struct device_range *range, size_t at, size_t count,
                      const struct kernel_update_step *step)
{
    size_t of = 0;

    for (size_t i = at; i < at + count; i++) {
        while (of + 1 < range->n_origins && range->origins[of + 1].at <= range->at + i)
            of++;
        const struct device_origin *origin = &range->origins[of];
        const uint32_t word = kernel_rounding_word(step->seed, step->number, origin->parameter,
                                                   range->at + i - origin->at);
        range->param[i] = kernel_draw_bf16(range->param[i], word);
    }
}

/* Elements [at, at + count) of a range. */
static void update_part(const struct kernel_update *update, const struct device_range *range,
                        size_t at, size_t count, const struct attrs *attrs,
                        const struct kernel_update_step *step)
{
    float *state[DEVICE_STATES] = { NULL };

    for (int i = 0; i < DEVICE_STATES; i++)
        state[i] = range->state[i] ? range->state[i] + at : NULL;
    update->run(range->param + at, range->grad + at, state, count, attrs, step);
    if (step->draws && strcmp(update->op, "average_update") != 0)
        draw_part(range, at, count, step);
    for (size_t i = at; range->half && i < at + count; i++)
        range->half[i] = kernel_to_half(range->half_dtype, range->param[i]);
}

/* Updates: those of update.h, a function of this form each. */
static void update(const char *op, const struct device_range *range, const struct attrs *attrs,
                   const struct kernel_update_step *step)
{
    const struct kernel_update *update = kernel_update_find(op);

    if (step->skips)
        return;
    if (!range->marks)
        update_part(update, range, 0, range->count, attrs, step);
    for (size_t row = 0; range->marks && row < range->count / range->width; row++) {
        if (range->marks[row])
            update_part(update, range, row * range->width, range->width, attrs, step);
    }
}

#define UPDATE(op)                                                                             \
    static void cpu_##op(struct device_stream *stream, const struct device_range *range,       \
                         const struct attrs *attrs, const struct kernel_update_step *step)     \
    {                                                                                          \
        (void)stream;                                                                          \
        update(#op, range, attrs, step);                                                       \
    }
UPDATE(sgd_update)
UPDATE(adam_update)
UPDATE(average_update)
UPDATE(lars_update)
UPDATE(lamb_update)

static void cpu_lamb_direction(struct device_stream *stream, const struct device_range *range,
                               const struct attrs *attrs, const struct kernel_update_step *step)
{
    (void)stream;
    if (step->skips)
        return;
    kernel_update_find("lamb_update")
        ->direct(range->param, range->grad, range->state, range->out, range->count, attrs,
                 step);
}

static const struct device_update cpu_updates[] = {
    { "sgd_update", cpu_sgd_update },
    { "adam_update", cpu_adam_update },
    { "average_update", cpu_average_update },
    { "lars_update", cpu_lars_update },
    { "lamb_update", cpu_lamb_update },
    { "lamb_direction", cpu_lamb_direction },
    { NULL, NULL },
};

static void cpu_add(struct device_stream *stream, float *out, const float *a, const float *b,
                    size_t count)
{
    (void)stream;
    kernel_add(out, a, b, count);
}

static void cpu_convert(struct device_stream *stream, void *to, enum dtype to_dtype,
                        const void *from, enum dtype from_dtype, size_t count)
{
    (void)stream;
    for (size_t i = 0; i < count; i++) {
        const float x = kernel_is_half(from_dtype)
                            ? kernel_from_half(from_dtype, ((const uint16_t *)from)[i])
                            : ((const float *)from)[i];
        if (kernel_is_half(to_dtype))
            ((uint16_t *)to)[i] = kernel_to_half(to_dtype, x);
        else
            ((float *)to)[i] = x;
    }
}

static void cpu_turn(struct device_stream *stream, void *to, const void *from, enum dtype dtype,
                     size_t rows, size_t columns)
{
    const size_t bytes = dtype_size(dtype);

    (void)stream;
    for (size_t c = 0; c < columns; c++) {
        for (size_t r = 0; r < rows; r++)
            memcpy((char *)to + (c * rows + r) * bytes,
                   (const char *)from + (r * columns + c) * bytes, bytes);
    }
}

static void cpu_sum_squares(struct device_stream *stream, const float *data, size_t count,
                            double *out, void *scratch)
{
    (void)stream;
    (void)scratch;
    *out = kernel_sum_squares(data, count);
}

static size_t cpu_sum_squares_bytes(size_t count)
{
    (void)count;
    return 0;
}

static void cpu_square_pieces(struct device_stream *stream, const float *data,
                              const struct device_piece *pieces, size_t count, double *out)
{
    (void)stream;
    for (size_t i = 0; i < count; i++)
        out[pieces[i].place] = kernel_sum_squares(data + pieces[i].at, pieces[i].count);
}

/* Numbers [first, first + count), each of all ranks, one after the other. */
static double sum_of(const struct joint_parts *parts, size_t first, size_t count)
{
    double sum = 0;

    for (size_t i = first; i < first + count; i++) {
        double number = 0;
        for (int r = 0; r < parts->count; r++)
            number += ((const double *)parts->of[r])[i];
        sum += number;
    }
    return sum;
}

static void cpu_add_squares(struct device_stream *stream, const struct joint_parts *places,
                            const struct device_squared *params, size_t count, double *out)
{
    (void)stream;
    for (size_t i = 0; i < count; i++)
        out[params[i].number] = sum_of(places, params[i].first, params[i].count);
}

static void cpu_clip(struct device_stream *stream, const struct joint_parts *squares,
                     size_t count, float max_norm, struct kernel_update_step *numbers)
{
    const double sum = sum_of(squares, 0, count);

    (void)stream;
    const double factor = (double)max_norm / (sqrt(sum) + 1e-6);
    numbers->scale = factor < 1 ? (float)factor : 1;
}

static void cpu_trust(struct device_stream *stream, const struct device_trust *trust,
                      const double *params, const double *moves, size_t count,
                      const struct kernel_update_step *numbers, struct kernel_update_step *out)
{
    (void)stream;
    for (size_t i = 0; i < count; i++) {
        const double weight = sqrt(params[i]);
        double move = sqrt(moves[i]) * (trust->of_gradient ? (double)numbers->scale : 1);

        if (move > 0)
            move += (double)trust->weight_decay * weight;
        out[i] = *numbers;
        out[i].trust =
            weight > 0 && move > 0 ? (float)((double)trust->coefficient * weight / move) : 1;
    }
}

static void cpu_scale_losses(struct device_stream *stream, const struct device_scaling *scaling,
                             const struct kernel_step *steps, size_t count,
                             struct kernel_step *out)
{
    (void)stream;
    for (size_t i = 0; i < count; i++) {
        out[i] = steps[i];
        out[i].inv_batch *= scaling->scale;
        out[i].scale = scaling->scale;
    }
}

static void cpu_unscale(struct device_stream *stream, const struct joint_parts *squares,
                        size_t count, float max_norm, struct device_scaling *scaling,
                        struct kernel_update_step *numbers)
{
    const double scale = (double)scaling->scale, sum = sum_of(squares, 0, count);

    (void)stream;
    if (!isfinite(sum)) {
        numbers->skips = 1;
        scaling->skipped++;
        scaling->good = 0;
        scaling->scale = scaling->scale > 1 ? scaling->scale / 2 : 1;
        return;
    }
    const double factor = max_norm > 0 ? (double)max_norm / (sqrt(sum) / scale + 1e-6) : 1;
    numbers->scale = (float)((factor < 1 ? factor : 1) / scale);
    if (++scaling->good == DEVICE_SCALE_STEPS) {
        scaling->good = 0;
        scaling->scale *= 2;
    }
}

static void cpu_mark_rows(struct device_stream *stream, const int32_t *ids, size_t count,
                          size_t rows, uint8_t *marks)
{
    (void)stream;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= 0 && (size_t)ids[i] < rows)
            marks[ids[i]] = 1;
    }
}

static void cpu_join_marks(struct device_stream *stream, uint8_t *out, const uint8_t *a,
                           const uint8_t *b, size_t count)
{
    (void)stream;
    for (size_t i = 0; i < count; i++)
        out[i] = a[i] | b[i];
}

const struct device_face device_cpu = {
    .version = DEVICE_VERSION,
    .name = "cpu",
    .count = cpu_count,
    .describe = cpu_describe,
    .open = cpu_open,
    .close = cpu_close,
    .memory = &cpu_memory,
    .stream = &cpu_stream,
    .share = &device_share_cpu,
    .team = &device_team_cpu,
    .joint = &device_joint_cpu,
    .kernel_at = kernel_at,
    .updates = cpu_updates,
    .add = cpu_add,
    .convert = cpu_convert,
    .turn = cpu_turn,
    .sum_squares = cpu_sum_squares,
    .sum_squares_bytes = cpu_sum_squares_bytes,
    .square_pieces = cpu_square_pieces,
    .add_squares = cpu_add_squares,
    .clip = cpu_clip,
    .trust = cpu_trust,
    .scale_losses = cpu_scale_losses,
    .unscale = cpu_unscale,
    .mark_rows = cpu_mark_rows,
    .join_marks = cpu_join_marks,
    .pick = device_pick_cpu,
};

/* The table ---------------------------------------------------------------------------- */

const char *const device_names[] = { "cpu", "cuda", NULL };

enum status device_find(const char *name, const struct device_face **out)
{
    if (strcmp(name, "cpu") == 0) {
        *out = &device_cpu;
        return STATUS_OK;
    }
    if (strcmp(name, "cuda") == 0)
        return device_find_cuda(out);
    return FAIL(STATUS_USAGE, "unknown device %s: cpu or cuda", name);
}

const struct kernel *device_kernel(const struct device_face *face,
                                   const struct kernel_problem *problem)
{
    const struct kernel *kernel;

    for (size_t i = 0; (kernel = face->kernel_at(i)) != NULL; i++) {
        if (strcmp(kernel->op, problem->op) == 0 &&
            (kernel->can_run == NULL || kernel->can_run(problem)))
            return kernel;
    }
    return NULL;
}

const struct device_update *device_update(const struct device_face *face, const char *op)
{
    for (const struct device_update *row = face->updates; row->op != NULL; row++) {
        if (strcmp(row->op, op) == 0)
            return row;
    }
    return NULL;
}
