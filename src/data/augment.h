/* SPDX-License-Identifier: MIT */
/* augment.h - samples that look a little different in every epoch.
 *
 * In this order, as with torchvision:
 *
 *   crop           the image gets `crop` black pixels (0, before normalization) on every side, and
 *                  a window of the image's size is cut out anywhere in that
 *   flip           every other image, by chance, is mirrored left to right
 *   normalization  (normalize.h)
 *   cutout         a square of side `cutout`, centred on any pixel and clipped at the border,
 *                  becomes 0 after normalization: the mean
 *
 * What a sample gets is a function of seed, epoch and its number in the data set, of nothing
 * else: rank, shard, thread, batch and position in the batch do not matter. Each kind draws from
 * bits of its own, so that turning one on leaves the others as they are. Evaluation uses none.
 *
 * Threads: any.
 */
#ifndef DATA_AUGMENT_H
#define DATA_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/shape.h"

/* All zero: none. */
struct augment {
    int crop;   /* pixels of padding on every side */
    bool flip;  /* mirror with probability 1/2 */
    int cutout; /* side of the square */
};

static inline bool augment_is_on(const struct augment *augment)
{
    return augment->crop > 0 || augment->flip || augment->cutout > 0;
}

/* Can samples of this shape (C, H, W) be augmented so? STATUS_USAGE names what is too large. */
MUST_CHECK enum status augment_check(const struct augment *augment, const struct shape *sample);

enum { AUGMENT_TEXT = 64 };
/* "crop 4 flip cutout 8", or "none": returns `text`. */
const char *augment_print(const struct augment *augment, char text[AUGMENT_TEXT]);

/* What one sample gets. All zero: nothing. */
struct augment_draw {
    int64_t down, right; /* the window's place, seen from the image: -crop to crop */
    bool flip;
    int64_t top, bottom, left, end; /* rows [top, bottom), columns [left, end) are cut out */
};
struct augment_draw augment_draw(const struct augment *augment, const struct shape *sample,
                                 uint64_t seed, int64_t epoch, int64_t index);

/* Crop and flip. `pixels` are C planes of H x W bytes, and so is the result: `pixels` itself where
 * nothing moves, else `scratch`. */
const uint8_t *augment_move(const struct augment_draw *draw, const struct shape *sample,
                            const uint8_t *pixels, uint8_t *scratch);
/* Cutout, of a normalized image H, W, C. */
void augment_cut_out(const struct augment_draw *draw, const struct shape *sample, float *x);

#endif /* DATA_AUGMENT_H */
