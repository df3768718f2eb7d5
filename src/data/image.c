/* SPDX-License-Identifier: MIT */
/* image.c - finds the decoder of a file and turns its pixels into planes. */
#include "data/image.h"

#include "base/mem.h"
#include "data/image_codec.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

static const struct image_codec *const CODECS[] = { &image_png, &image_jpeg };

enum status image_check_size(const struct image_file *file, uint64_t width, uint64_t height)
{
    if (width > 0 && height > 0 && width <= IMAGE_PIXELS_MOST && height <= IMAGE_PIXELS_MOST &&
        width * height <= IMAGE_PIXELS_MOST)
        return STATUS_OK;
    return FAIL(STATUS_UNSUPPORTED,
                "%s: has %" PRIu64 "x%" PRIu64 " pixels; at most %d are read", file->path,
                width, height, IMAGE_PIXELS_MOST);
}

static enum status find_codec(const struct image_file *file, const struct image_codec **out)
{
    if (file->length == 0)
        return FAIL(STATUS_CORRUPT, "%s: is empty", file->path);
    for (size_t i = 0; i < sizeof CODECS / sizeof CODECS[0]; i++) {
        const struct image_codec *codec = CODECS[i];
        const size_t length = strlen(codec->magic);

        if (file->length < length || memcmp(file->bytes, codec->magic, length) != 0)
            continue;
        if (!codec->peek)
            return FAIL(STATUS_UNSUPPORTED,
                        "%s: is a %s file, and this program was built without %s; install "
                        "%s-dev and build again",
                        file->path, codec->name, codec->library, codec->library);
        *out = codec;
        return STATUS_OK;
    }
    return FAIL(STATUS_CORRUPT, "%s: is neither a PNG nor a JPEG file", file->path);
}

enum status image_peek(const struct image_file *file, struct image_size *out)
{
    const struct image_codec *codec;
    struct image_header header;

    TRY(find_codec(file, &codec));
    TRY(codec->peek(file, &header));
    *out = header.size;
    return STATUS_OK;
}

static enum status check_same_size(const struct image_file *file, const struct image_size *is,
                                   const struct image_size *wanted)
{
    if (is->width != wanted->width || is->height != wanted->height)
        return FAIL(STATUS_MISMATCH,
                    "%s: has %" PRId64 "x%" PRId64 " pixels where %" PRId64 "x%" PRId64
                    " are expected",
                    file->path, is->width, is->height, wanted->width, wanted->height);
    if (is->channels > wanted->channels)
        return FAIL(STATUS_MISMATCH, "%s: is in colour where grey is expected", file->path);
    return STATUS_OK;
}

/* The last channel of more than there should be is alpha. */
static enum status check_opaque(const struct image_file *file,
                                const struct image_header *header, const uint8_t *pixels)
{
    const size_t stored = (size_t)header->stored;
    const size_t count = (size_t)(header->size.height * header->size.width);

    if (header->stored == header->size.channels)
        return STATUS_OK;
    for (size_t p = 0; p < count; p++)
        if (pixels[p * stored + stored - 1] != UINT8_MAX)
            return FAIL(STATUS_UNSUPPORTED,
                        "%s: has transparent pixels, such as row %zu column %zu; flatten it",
                        file->path, p / (size_t)header->size.width,
                        p % (size_t)header->size.width);
    return STATUS_OK;
}

static void split_planes(const struct image_header *header, const uint8_t *pixels, int channels,
                         uint8_t *out)
{
    const size_t stored = (size_t)header->stored;
    const size_t plane = (size_t)(header->size.height * header->size.width);

    for (int c = 0; c < channels; c++) {
        const uint8_t *from = pixels + (header->size.channels == 1 ? 0 : c);
        for (size_t p = 0; p < plane; p++)
            out[(size_t)c * plane + p] = from[p * stored];
    }
}

enum status image_decode(const struct image_file *file, const struct image_size *size,
                         uint8_t *out)
{
    const struct image_codec *codec;
    struct image_header header;
    uint8_t *pixels;

    TRY(find_codec(file, &codec));
    TRY(codec->peek(file, &header));
    TRY(check_same_size(file, &header.size, size));
    TRY(mem_alloc((size_t)(size->height * size->width), (size_t)header.stored, &pixels));
    enum status status = codec->decode(file, &header, pixels);
    if (status == STATUS_OK)
        status = check_opaque(file, &header, pixels);
    if (status == STATUS_OK)
        split_planes(&header, pixels, size->channels, out);
    mem_free(pixels);
    return status;
}

bool image_has_name(const char *name)
{
    static const char *const ENDINGS[] = { ".png", ".jpg", ".jpeg" };
    const char *dot = strrchr(name, '.');

    for (size_t i = 0; dot && i < sizeof ENDINGS / sizeof ENDINGS[0]; i++)
        if (strcasecmp(dot, ENDINGS[i]) == 0)
            return true;
    return false;
}
