/* SPDX-License-Identifier: MIT */
/* image.h - one image file, PNG or JPEG, as planes of bytes. Private to data/.
 *
 * What a file is, its first bytes say, not its name. Read are grey and RGB images with 8 bits
 * a channel; fewer bits and palettes are widened; an alpha channel is fine as long as nothing
 * is transparent. What would lose something (16 bits, transparency, CMYK) is refused, and so
 * is all that a decoder would patch over with a warning. Values are those that are stored: no
 * gamma, no colour profile.
 *
 * Threads: any.
 * Errors: messages name `path`, and for damage the byte where it was noticed.
 *         STATUS_UNSUPPORTED, with what to do, in a build without the library.
 */
#ifndef DATA_IMAGE_H
#define DATA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { IMAGE_PIXELS_MOST = 1 << 24 };

struct image_size {
    int64_t height, width; /* their product is at most IMAGE_PIXELS_MOST */
    int channels;          /* 1 grey, 3 RGB */
};

/* A file in memory. */
struct image_file {
    const char *path;
    const uint8_t *bytes;
    size_t length;
};

/* Reads the header. */
MUST_CHECK enum status image_peek(const struct image_file *file, struct image_size *out);

/* Decodes into out[channels][height][width]. The size must be that of image_peek, but a grey
 * image may be had as three equal planes; else STATUS_MISMATCH. */
MUST_CHECK enum status image_decode(const struct image_file *file,
                                    const struct image_size *size, uint8_t *out);

/* Could the file of this name be an image: does it end in .png, .jpg or .jpeg? */
bool image_has_name(const char *name);

#endif /* DATA_IMAGE_H */
