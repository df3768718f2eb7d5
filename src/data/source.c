/* SPDX-License-Identifier: MIT */
/* source.c - what all kinds of samples have in common: how lengths are rounded, what counts, picks. */
#include "data/source.h"

#include "base/strbuf.h"

#include <inttypes.h>

static int64_t round_length(int64_t length, int64_t most)
{
    const int64_t rounded = (length + SOURCE_ROUND - 1) / SOURCE_ROUND * SOURCE_ROUND;

    return rounded < most ? rounded : most;
}

void source_extents(const struct source *source, const int64_t *index, int64_t count,
                    int64_t length[SOURCE_SEQUENCES])
{
    const int64_t id = (int64_t)sizeof(int32_t);

    length[0] = length[1] = 0;
    if (!source->kind->extents || count == 0)
        return;
    source->kind->extents(source, index, count, length);
    length[0] = round_length(length[0], (int64_t)source->row_bytes[SOURCE_X] / id);
    length[1] = round_length(length[1], (int64_t)source->row_bytes[SOURCE_X2] / id);
}

int64_t source_weight(const struct source *source, const struct source_how *how,
                      const int64_t *index, int64_t count)
{
    return source->kind->weight ? source->kind->weight(source, how, index, count) : count;
}

void source_name(const struct source *source, int64_t index, struct strbuf *out)
{
    if (source->kind->name)
        source->kind->name(source, index, out);
    else
        strbuf_printf(out, "%" PRId64, index);
}

bool source_has_pixels(const struct source *source)
{
    const struct shape *sample = &source->sample;

    return source->kind->pixels && source->count <= INT32_MAX && sample->dim[1] <= PICK_SIDE &&
           sample->dim[2] <= PICK_SIDE;
}

void source_pick(const struct source *source, const struct source_how *how,
                 const int64_t *index, int64_t count, struct pick *out)
{
    const bool augments = how && augment_is_on(&how->augment);
    struct augment_draw draw = { 0 };

    for (int64_t i = 0; i < count; i++) {
        if (augments)
            draw =
                augment_draw(&how->augment, &source->sample, how->seed, how->epoch, index[i]);
        out[i] = (struct pick){
            .sample = (int32_t)index[i],
            .down = (int16_t)draw.down,
            .right = (int16_t)draw.right,
            .top = (int16_t)draw.top,
            .bottom = (int16_t)draw.bottom,
            .left = (int16_t)draw.left,
            .end = (int16_t)draw.end,
            .flip = draw.flip,
        };
    }
}

void source_read(const struct source *source, const struct source_how *how,
                 const int64_t *index, int64_t count, const int64_t length[SOURCE_SEQUENCES],
                 void *x, int32_t *x2, int32_t *y)
{
    source->kind->read(source, how, index, count, length, x, x2, y);
}
