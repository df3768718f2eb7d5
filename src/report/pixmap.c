/* SPDX-License-Identifier: MIT */
/* pixmap.c - PNG (RFC 2083): signature, header, one chunk of packed rows, end; and data: addresses. */
#include "report/pixmap.h"

#include <string.h>

#include "report/deflate.h"

enum { SIGNATURE = 8, HEADER_END = 33 }; /* bytes up to the end of the header chunk */

static const size_t data_maximum = (size_t)1 << 30;
static const uint8_t signature[SIGNATURE] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };

static void add_u32(struct strbuf *out, uint32_t number)
{
    const uint8_t bytes[] = { (uint8_t)(number >> 24), (uint8_t)(number >> 16),
                              (uint8_t)(number >> 8), (uint8_t)number };
    strbuf_add_bytes(out, bytes, sizeof bytes);
}

static uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint32_t crc32(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *at = data;

    crc = ~crc;
    for (size_t i = 0; i < length; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? UINT32_C(0xedb88320) : 0);
    }
    return ~crc;
}

static void add_chunk(struct strbuf *out, const char *type, const void *data, size_t length)
{
    add_u32(out, (uint32_t)length);
    strbuf_add_bytes(out, type, 4);
    strbuf_add_bytes(out, data, length);
    add_u32(out, crc32(crc32(0, type, 4), data, length));
}

static void add_header(struct strbuf *out, const struct pixmap *image)
{
    static const uint8_t colour_types[] = { 0, 0, 4, 2, 6 };
    uint8_t header[13] = { 0 };

    for (int i = 0; i < 4; i++) {
        header[i] = (uint8_t)((uint32_t)image->width >> (24 - 8 * i));
        header[4 + i] = (uint8_t)((uint32_t)image->height >> (24 - 8 * i));
    }
    header[8] = 8; /* bits a channel */
    header[9] = colour_types[image->channels];
    add_chunk(out, "IHDR", header, sizeof header);
}

/* Rows, each after the byte that says that it is not filtered. */
static void add_rows(struct strbuf *out, const struct pixmap *image)
{
    static const uint8_t no_filter = 0;
    const size_t width = (size_t)image->width, channels = (size_t)image->channels,
                 plane = width * (size_t)image->height;

    for (size_t y = 0; y < (size_t)image->height; y++) {
        strbuf_add_bytes(out, &no_filter, 1);
        if (!image->planes) {
            strbuf_add_bytes(out, image->pixels + y * width * channels, width * channels);
            continue;
        }
        for (size_t x = 0; x < width; x++)
            for (size_t c = 0; c < channels; c++)
                strbuf_add_bytes(out, image->pixels + c * plane + y * width + x, 1);
    }
}

void pixmap_png(struct strbuf *out, const struct pixmap *image)
{
    struct strbuf rows, packed;

    BUG_ON(image->width < 1 || image->width > PIXMAP_SIDE || image->height < 1 ||
           image->height > PIXMAP_SIDE || image->channels < 1 || image->channels > 4);
    strbuf_init(&rows, data_maximum);
    strbuf_init(&packed, data_maximum);
    add_rows(&rows, image);
    if (strbuf_status(&rows) == STATUS_OK)
        deflate_add(&packed, (const uint8_t *)rows.text, rows.length);
    strbuf_add_bytes(out, signature, sizeof signature);
    add_header(out, image);
    add_chunk(out, "IDAT", packed.text, packed.length);
    add_chunk(out, "IEND", "", 0);
    if (rows.status != STATUS_OK || packed.status != STATUS_OK)
        out->status = rows.status != STATUS_OK ? rows.status : packed.status;
    strbuf_release(&rows);
    strbuf_release(&packed);
}

bool pixmap_is_png(const void *bytes, size_t length, int *out_width, int *out_height)
{
    const uint8_t *at = bytes;

    if (length < HEADER_END || memcmp(at, signature, SIGNATURE) != 0 ||
        memcmp(at + 12, "IHDR", 4) != 0)
        return false;
    const uint32_t width = read_u32(at + 16), height = read_u32(at + 20);
    if (width < 1 || width > PIXMAP_SIDE || height < 1 || height > PIXMAP_SIDE)
        return false;
    *out_width = (int)width;
    *out_height = (int)height;
    return true;
}

static void add_base64(struct strbuf *out, const uint8_t *data, size_t length)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

    for (size_t i = 0; i < length; i += 3) {
        const size_t left = length - i;
        const uint32_t three = (uint32_t)data[i] << 16 |
                               (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                               (left > 2 ? data[i + 2] : 0);
        const char four[] = { digits[three >> 18], digits[three >> 12 & 63],
                              left > 1 ? digits[three >> 6 & 63] : '=',
                              left > 2 ? digits[three & 63] : '=' };
        strbuf_add_bytes(out, four, sizeof four);
    }
}

void pixmap_add_png(struct strbuf *out, const void *bytes, size_t length, const char *caption,
                    int side)
{
    int width, height;

    if (!pixmap_is_png(bytes, length, &width, &height))
        return;
    strbuf_add(out, "<img class=\"pixels\" alt=\"");
    strbuf_add_xml(out, caption);
    strbuf_add(out, "\" title=\"");
    strbuf_add_xml(out, caption);
    strbuf_add(out, "\"");
    if (side > 0) {
        const int most = width > height ? width : height;
        strbuf_printf(out, " width=\"%d\" height=\"%d\"", (width * side + most / 2) / most,
                      (height * side + most / 2) / most);
    }
    strbuf_add(out, " src=\"data:image/png;base64,");
    add_base64(out, bytes, length);
    strbuf_add(out, "\"/>");
}

void pixmap_add(struct strbuf *out, const struct pixmap *image, const char *caption, int side)
{
    struct strbuf png;

    strbuf_init(&png, data_maximum);
    pixmap_png(&png, image);
    if (strbuf_status(&png) == STATUS_OK)
        pixmap_add_png(out, png.text, png.length, caption, side);
    else
        out->status = png.status;
    strbuf_release(&png);
}
