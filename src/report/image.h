/* SPDX-License-Identifier: MIT */
/* image.h - pictures made of pixels, as PNG files and inside pages.
 *
 * Errors: those of the buffer, which are sticky; check strbuf_status at the end.
 */
#ifndef REPORT_IMAGE_H
#define REPORT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

struct image {
    int width, height; /* 1 to IMAGE_SIDE */
    int channels;      /* 1: grey, 2: grey and alpha, 3: colour, 4: colour and alpha */
    const uint8_t *pixels;
    bool planes; /* pixels are `channels` planes; else a pixel's channels lie together */
};
enum { IMAGE_SIDE = 16384 };

/* Adds the bytes of a PNG file. */
void image_png(struct strbuf *out, const struct image *image);

/* Is this the beginning of a PNG file? Gives its size. */
bool image_is_png(const void *bytes, size_t length, int *out_width, int *out_height);

/* Adds an <img> element that holds the picture itself; the caption is shown under the pointer and read
 * aloud. Small pictures are enlarged to about `side` on the screen with their pixels left square;
 * 0: as large as their place. */
void image_add(struct strbuf *out, const struct image *image, const char *caption, int side);
void image_add_png(struct strbuf *out, const void *bytes, size_t length, const char *caption,
                   int side);

#endif /* REPORT_IMAGE_H */
