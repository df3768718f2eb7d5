/* SPDX-License-Identifier: MIT */
/* pixmap.h - pictures made of pixels, as PNG files and inside pages.
 *
 * Errors: those of the buffer, which are sticky; check strbuf_status at the end.
 */
#ifndef REPORT_PIXMAP_H
#define REPORT_PIXMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

struct pixmap {
    int width, height; /* 1 to PIXMAP_SIDE */
    int channels;      /* 1: grey, 2: grey and alpha, 3: colour, 4: colour and alpha */
    const uint8_t *pixels;
    bool planes; /* pixels are `channels` planes; else a pixel's channels lie together */
};
enum { PIXMAP_SIDE = 16384 };

/* Adds the bytes of a PNG file. */
void pixmap_png(struct strbuf *out, const struct pixmap *image);

/* Is this the beginning of a PNG file? Gives its size. */
bool pixmap_is_png(const void *bytes, size_t length, int *out_width, int *out_height);

/* Adds an <img> element that holds the picture itself; the caption is shown under the pointer and read
 * aloud. Small pictures are enlarged to about `side` on the screen with their pixels left square;
 * 0: as large as their place. */
void pixmap_add(struct strbuf *out, const struct pixmap *image, const char *caption, int side);
void pixmap_add_png(struct strbuf *out, const void *bytes, size_t length, const char *caption,
                    int side);

#endif /* REPORT_PIXMAP_H */
