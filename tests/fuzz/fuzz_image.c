/* SPDX-License-Identifier: MIT */
/* fuzz_image.c - an image is decoded into its planes and no further, or is refused.
 *
 * A PNG file is tried as it is and with its checksums put right, as damage would seldom get
 * past them.
 */
#include "base/mem.h"
#include "data/image.h"
#include "fuzz.h"

#include <string.h>

enum { PIXELS_MOST = 1 << 16 }; /* larger ones only cost time */

static uint32_t big_endian(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The checksum of PNG and zlib, a bit at a time. */
static uint32_t checksum(const uint8_t *bytes, size_t count)
{
    uint32_t sum = UINT32_MAX;

    for (size_t i = 0; i < count; i++) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
    }
    return ~sum;
}

/* Chunks are a length, a name, the contents and their checksum. */
static void repair(uint8_t *bytes, size_t size)
{
    enum { MAGIC = 8, BESIDES = 12 };

    for (size_t at = MAGIC; at < size && size - at >= BESIDES;) {
        const size_t length = big_endian(bytes + at);

        if (length > size - at - BESIDES)
            return;
        const uint32_t sum = checksum(bytes + at + 4, length + 4);
        for (int byte = 0; byte < 4; byte++)
            bytes[at + 8 + length + (size_t)byte] = (uint8_t)(sum >> (24 - 8 * byte));
        at += BESIDES + length;
    }
}

static void decode(const struct image_file *file, const struct image_size *size)
{
    const size_t bytes = (size_t)(size->height * size->width) * (size_t)size->channels;
    volatile uint8_t seen = 0;
    uint8_t *planes;

    if (mem_alloc(bytes, 1, &planes) != STATUS_OK)
        return;
    if (image_decode(file, size, planes) == STATUS_OK)
        for (size_t i = 0; i < bytes; i++)
            seen = seen ^ planes[i];
    else
        BUG_ON(!status_message()[0]);
    mem_free(planes);
}

static void look_and_decode(const uint8_t *data, size_t size)
{
    const struct image_file file = { "fuzz", data, size };
    struct image_size is;

    if (image_peek(&file, &is) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return;
    }
    BUG_ON(is.height <= 0 || is.width <= 0 || (is.channels != 1 && is.channels != 3));
    BUG_ON(is.height * is.width > IMAGE_PIXELS_MOST);
    if (is.height * is.width > PIXELS_MOST)
        return;
    decode(&file, &is);
    is.channels = 3;
    decode(&file, &is);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;

    look_and_decode(data, size);
    if (size > 0 && data[0] == 0x89 && mem_alloc(size, 1, &copy) == STATUS_OK) {
        memcpy(copy, data, size);
        repair(copy, size);
        look_and_decode(copy, size);
        mem_free(copy);
    }
    return 0;
}
