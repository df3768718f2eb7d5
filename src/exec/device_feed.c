/* SPDX-License-Identifier: MIT */
/* device_feed.c - data sets of images that a device holds whole, as bytes.
 *
 * A step or an evaluation then tells the device which samples it is about and what augmentation does to them, 20 bytes each
 * (tensor/pick.h), and a kernel makes them there. Every rank has a copy of its own: its device may be another one, and a rank
 * that ends takes nothing from others.
 */
#include "base/mem.h"
#include "exec/device_side.h"

#include <string.h>

enum { PIECE = 8 << 20 }; /* bytes that go there at once */

size_t exec_keep_bytes(const struct source *source)
{
    const size_t channels = (size_t)source->sample.dim[0];

    if (!source_has_pixels(source))
        return 0;
    return (size_t)source->count * ((size_t)shape_count(&source->sample) + sizeof(int32_t)) +
           channels * SOURCE_BYTES * sizeof(float);
}

const struct device_images *device_kept(const struct exec *exec, const struct source *source)
{
    const struct device_side *side = exec->device;

    for (int i = 0; side && i < side->n_kept; i++) {
        if (side->kept[i].source == source)
            return &side->kept[i].images;
    }
    return NULL;
}

/* What a run of samples has of either kind. */
static size_t write_pixels(const struct source *source, int64_t index, char *to)
{
    const size_t bytes = (size_t)shape_count(&source->sample);

    memcpy(to, source->kind->pixels(source, index), bytes);
    return bytes;
}

static size_t write_label(const struct source *source, int64_t index, char *to)
{
    const int32_t label = source_label(source, index);

    memcpy(to, &label, sizeof label);
    return sizeof label;
}

/* Of all samples in a row, by way of `piece`, from which a device copies quickly. */
static enum status copy_all(const struct exec *exec, const struct source *source,
                            size_t (*write)(const struct source *, int64_t, char *),
                            size_t row_bytes, char *piece, char *to)
{
    const struct device_side *side = exec->device;
    const int64_t rows = row_bytes < PIECE ? (int64_t)(PIECE / row_bytes) : 1;

    for (int64_t first = 0; first < source->count; first += rows) {
        size_t bytes = 0;
        for (int64_t i = first; i < first + rows && i < source->count; i++)
            bytes += write(source, i, piece + bytes);
        TRY(side->config.face->memory->copy(side->stream, to, piece, bytes));
        TRY(device_wait(exec));
        to += bytes;
    }
    return STATUS_OK;
}

static enum status copy_source(const struct exec *exec, const struct source *source,
                               char *piece, struct device_kept *kept)
{
    const struct device_side *side = exec->device;
    const struct shape *sample = &source->sample;
    const size_t pixels = (size_t)shape_count(sample), count = (size_t)source->count;
    const size_t values = (size_t)sample->dim[0] * SOURCE_BYTES * sizeof(float);
    char *labels = kept->memory + values, *bytes = labels + count * sizeof(int32_t);

    memcpy(piece, source->kind->values(source), values);
    TRY(side->config.face->memory->copy(side->stream, kept->memory, piece, values));
    TRY(device_wait(exec));
    TRY(copy_all(exec, source, write_label, sizeof(int32_t), piece, labels));
    TRY(copy_all(exec, source, write_pixels, pixels, piece, bytes));
    kept->images = (struct device_images){ .pixels = (const uint8_t *)bytes,
                                           .labels = (const int32_t *)labels,
                                           .values = (const float *)kept->memory,
                                           .channels = sample->dim[0],
                                           .height = sample->dim[1],
                                           .width = sample->dim[2] };
    return STATUS_OK;
}

enum status exec_keep(struct exec *exec, const struct source *source)
{
    struct device_side *side = exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;
    const size_t pixels = (size_t)shape_count(&source->sample);
    char *piece;

    BUG_ON(!source_has_pixels(source) || side->n_kept == DEVICE_KEPT);
    struct device_kept *kept = &side->kept[side->n_kept];
    *kept = (struct device_kept){ .source = source, .bytes = exec_keep_bytes(source) };
    TRY(memory->create_host(side->config.device, pixels > PIECE ? pixels : PIECE,
                            (void **)&piece));
    enum status status =
        memory->create(side->config.device, kept->bytes, (void **)&kept->memory);
    if (status == STATUS_OK)
        status = copy_source(exec, source, piece, kept);
    memory->destroy_host(side->config.device, piece);
    if (status != STATUS_OK) {
        memory->destroy(side->config.device, kept->memory);
        return status;
    }
    side->n_kept++;
    return STATUS_OK;
}

void device_forget_kept(struct device_side *side)
{
    for (int i = 0; i < side->n_kept; i++)
        side->config.face->memory->destroy(side->config.device, side->kept[i].memory);
    side->n_kept = 0;
}
