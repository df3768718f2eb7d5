/* SPDX-License-Identifier: MIT */
/* source.c - what all kinds of samples have in common: how lengths are rounded, what counts. */
#include "data/source.h"

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

void source_read(const struct source *source, const struct source_how *how,
                 const int64_t *index, int64_t count, const int64_t length[SOURCE_SEQUENCES],
                 void *x, int32_t *x2, int32_t *y)
{
    source->kind->read(source, how, index, count, length, x, x2, y);
}
