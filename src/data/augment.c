/* SPDX-License-Identifier: MIT */
/* augment.c - crop and flip of bytes, cutout of floats.
 *
 * A window that lies 2 to the right of the image, mirrored ("." is black):
 *
 *      image row   a b c d e f        window   c d e f . .        flipped   . . f e d c
 *
 * Bytes are moved in the first cache, 8 at a time, before they become floats: about 0.1 us for a
 * 1x28x28 image, where writing it as floats takes 0.2.
 */
#include "data/augment.h"

#include "base/rng.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { AUGMENT_STREAM = 0xa461 }; /* keeps these numbers apart from others of the same seed */

enum status augment_check(const struct augment *augment, const struct shape *sample)
{
    char text[SHAPE_TEXT];

    if (!augment_is_on(augment))
        return STATUS_OK;
    if (sample->rank != 3)
        return FAIL(STATUS_USAGE, "crop, flip and cutout are for images, samples are %s",
                    shape_print(sample, text));
    const int64_t height = sample->dim[1], width = sample->dim[2];
    const int64_t side = height < width ? height : width;
    if (augment->crop >= side)
        return FAIL(STATUS_USAGE,
                    "crop %d leaves nothing of images of %" PRId64 "x%" PRId64
                    ": at most %" PRId64,
                    augment->crop, height, width, side - 1);
    if (augment->cutout > side)
        return FAIL(STATUS_USAGE,
                    "cutout %d is larger than images of %" PRId64 "x%" PRId64
                    ": at most %" PRId64,
                    augment->cutout, height, width, side);
    return STATUS_OK;
}

const char *augment_print(const struct augment *augment, char text[AUGMENT_TEXT])
{
    int length = 0;

    if (augment->crop > 0)
        length += snprintf(text, AUGMENT_TEXT, "crop %d", augment->crop);
    if (augment->flip)
        length +=
            snprintf(text + length, AUGMENT_TEXT - (size_t)length, "%sflip", length ? " " : "");
    if (augment->cutout > 0)
        length += snprintf(text + length, AUGMENT_TEXT - (size_t)length, "%scutout %d",
                           length ? " " : "", augment->cutout);
    if (length == 0)
        snprintf(text, AUGMENT_TEXT, "none");
    return text;
}

/* Uniform in [0, below), from the upper 24 bits: the lower 8 are free for other uses. A number's
 * share differs from another's by less than below / 2^24. */
static int64_t draw_below(uint32_t word, int64_t below)
{
    return (int64_t)(word >> 8) * below >> 24;
}

static int64_t clip(int64_t x, int64_t most)
{
    return x < 0 ? 0 : x > most ? most : x;
}

struct augment_draw augment_draw(const struct augment *augment, const struct shape *sample,
                                 uint64_t seed, int64_t epoch, int64_t index)
{
    const uint32_t counter[4] = { (uint32_t)index, (uint32_t)((uint64_t)index >> 32),
                                  (uint32_t)epoch, AUGMENT_STREAM };
    const struct rng_block block = rng_philox(seed, counter);
    const int64_t height = sample->dim[1], width = sample->dim[2],
                  offsets = 2 * augment->crop + 1;
    struct augment_draw draw = {
        .down = draw_below(block.word[0], offsets) - augment->crop,
        .right = draw_below(block.word[1], offsets) - augment->crop,
        .flip = augment->flip && (block.word[0] & 1),
    };

    if (augment->cutout > 0) {
        const int64_t side = augment->cutout;
        const int64_t top = draw_below(block.word[2], height) - side / 2;
        const int64_t left = draw_below(block.word[3], width) - side / 2;
        draw.top = clip(top, height);
        draw.bottom = clip(top + side, height);
        draw.left = clip(left, width);
        draw.end = clip(left + side, width);
    }
    return draw;
}

/* Copies 8 bytes, or turns their order round. */
static inline void copy_word(const uint8_t *from, bool flip, uint8_t *to)
{
    uint64_t word;

    memcpy(&word, from, sizeof word);
    word = flip ? __builtin_bswap64(word) : word;
    memcpy(to, &word, sizeof word);
}

/* Copies a row, 8 bytes at a time; the last 8 may overlap those before. */
static inline void copy_row(const uint8_t *from, int64_t width, bool flip, uint8_t *to)
{
    enum { WORD = sizeof(uint64_t) };
    const int64_t last = width - WORD;

    if (last < 0) {
        for (int64_t i = 0; i < width; i++)
            to[i] = from[flip ? width - 1 - i : i];
        return;
    }
    for (int64_t i = 0; i < last; i += WORD)
        copy_word(from + (flip ? last - i : i), flip, to + i);
    copy_word(from + (flip ? 0 : last), flip, to + last);
}

/* The part of the image that the window shows, into scratch that is black elsewhere. */
static inline void copy_planes(const struct augment_draw *draw, const struct shape *sample,
                               const uint8_t *pixels, bool flip, uint8_t *scratch)
{
    const int64_t height = sample->dim[1], width = sample->dim[2];
    const int64_t first_row = clip(draw->down, height), first = clip(draw->right, width);
    const int64_t rows = clip(height + draw->down, height) - first_row;
    const int64_t columns = clip(width + draw->right, width) - first;
    const int64_t left = flip ? clip(draw->right, width) : clip(-draw->right, width);

    for (int64_t c = 0; c < sample->dim[0]; c++) {
        const uint8_t *from = pixels + (c * height + first_row) * width + first;
        uint8_t *to = scratch + (c * height + clip(-draw->down, height)) * width + left;
        for (int64_t y = 0; y < rows; y++, from += width, to += width)
            copy_row(from, columns, flip, to);
    }
}

const uint8_t *augment_move(const struct augment_draw *draw, const struct shape *sample,
                            const uint8_t *pixels, uint8_t *scratch)
{
    const bool moves = draw->down != 0 || draw->right != 0;

    if (!moves && !draw->flip)
        return pixels;
    if (moves)
        memset(scratch, 0, (size_t)shape_count(sample));
    if (draw->flip)
        copy_planes(draw, sample, pixels, true, scratch);
    else
        copy_planes(draw, sample, pixels, false, scratch);
    return scratch;
}

void augment_cut_out(const struct augment_draw *draw, const struct shape *sample, float *x)
{
    const int64_t channels = sample->dim[0], width = sample->dim[2];

    for (int64_t y = draw->top; y < draw->bottom; y++)
        for (int64_t i = draw->left * channels; i < draw->end * channels; i++)
            x[y * width * channels + i] = 0;
}
