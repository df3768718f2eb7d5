/* SPDX-License-Identifier: MIT */
/* image_codec.h - what image.c wants of a library that decodes. Private to data/. */
#ifndef DATA_IMAGE_CODEC_H
#define DATA_IMAGE_CODEC_H

#include "data/image.h"

/* What the header says. */
struct image_header {
    struct image_size size;
    int stored; /* channels of a decoded pixel: those of size, and one more for alpha */
};

struct image_codec {
    const char *name;
    const char *magic; /* the first bytes of a file */
    const char *library;

    /* Reads the header into *out; all limits are checked. NULL, as decode, in a build without the
     * library. */
    enum status (*peek)(const struct image_file *file, struct image_header *out);
    /* Decodes all pixels, height x width x stored bytes. `header` is what peek said. */
    enum status (*decode)(const struct image_file *file, const struct image_header *header,
                          uint8_t *out);
};

extern const struct image_codec image_png, image_jpeg;

/* Refuses images without pixels or with too many. */
MUST_CHECK enum status image_check_size(const struct image_file *file, uint64_t width,
                                        uint64_t height);

#endif /* DATA_IMAGE_CODEC_H */
