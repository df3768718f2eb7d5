/* SPDX-License-Identifier: MIT */
/* image_png.c - PNG files by libpng.
 *
 * libpng reports an error by a function that must not return: it jumps back to `guard`. All
 * that changes on the way lies in struct reader, which is not a variable of `guard`, so that
 * its values are right after the jump.
 */
#include "data/image_codec.h"

#ifdef HAVE_PNG
#include "base/mem.h"

#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#endif

static const char MAGIC[] = "\x89PNG\r\n\x1a\n";

#ifdef HAVE_PNG

enum { LARGEST_RATIO = 1032 }; /* of zlib: 2 bits for a match of 258 bytes */

struct reader {
    const struct image_file *file;
    size_t at; /* bytes read */
    png_structp png;
    png_infop info;
    jmp_buf jump;
    enum status status;                /* set before a jump */
    const struct image_header *header; /* for decoding */
    struct image_header *out_header;   /* for peeking */
    uint8_t *out;
};
typedef enum status read_fn(struct reader *reader);

static void on_error(png_structp png, png_const_charp text)
{
    struct reader *reader = png_get_error_ptr(png);

    if (reader->status == STATUS_OK)
        reader->status = FAIL(STATUS_CORRUPT, "%s: is damaged at byte %zu: %s",
                              reader->file->path, reader->at, text);
    longjmp(reader->jump, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png, (void)text; /* a chunk of no importance: a profile, a time */
}

static png_voidp allocate(png_structp png, png_alloc_size_t bytes)
{
    struct reader *reader = png_get_mem_ptr(png);
    void *block;

    if (mem_alloc(bytes, 1, &block) == STATUS_OK)
        return block;
    reader->status = STATUS_NO_MEMORY; /* libpng calls on_error, or makes nothing */
    return NULL;
}

static void release(png_structp png, png_voidp block)
{
    (void)png;
    mem_free(block);
}

static void on_read(png_structp png, png_bytep out, size_t count)
{
    struct reader *reader = png_get_io_ptr(png);
    const struct image_file *file = reader->file;

    if (file->length - reader->at < count) {
        reader->status = FAIL(STATUS_CORRUPT, "%s: is cut short: it ends after %zu bytes",
                              file->path, file->length);
        png_error(png, "cut short");
    }
    memcpy(out, file->bytes + reader->at, count);
    reader->at += count;
}

/* Everything before the pixels. */
static enum status read_header(struct reader *reader, struct image_header *out)
{
    png_structp png = reader->png;

    png_set_read_fn(png, reader, on_read);
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_user_limits(png, IMAGE_PIXELS_MOST, IMAGE_PIXELS_MOST);
    png_read_info(png, reader->info);

    const png_uint_32 width = png_get_image_width(png, reader->info);
    const png_uint_32 height = png_get_image_height(png, reader->info);
    const int type = png_get_color_type(png, reader->info);
    const int bits = png_get_bit_depth(png, reader->info);
    const bool alpha =
        (type & PNG_COLOR_MASK_ALPHA) || png_get_valid(png, reader->info, PNG_INFO_tRNS);
    TRY(image_check_size(reader->file, width, height));
    if (bits > 8)
        return FAIL(STATUS_UNSUPPORTED, "%s: has %d bits a channel; save it with 8",
                    reader->file->path, bits);
    if ((size_t)width * height * (size_t)bits / 8 / LARGEST_RATIO > reader->file->length)
        return FAIL(STATUS_CORRUPT, "%s: claims %ux%u pixels, more than its %zu bytes can hold",
                    reader->file->path, width, height, reader->file->length);

    const int channels = type & PNG_COLOR_MASK_COLOR ? 3 : 1;
    *out = (struct image_header){ .size = { height, width, channels },
                                  .stored = channels + alpha };
    return STATUS_OK;
}

static enum status peek_header(struct reader *reader)
{
    return read_header(reader, reader->out_header);
}

static enum status decode_pixels(struct reader *reader)
{
    png_structp png = reader->png;
    struct image_header header;

    TRY(read_header(reader, &header));
    png_set_expand(png); /* palettes, fewer than 8 bits, transparency as a channel */
    const int passes = png_set_interlace_handling(png);
    png_read_update_info(png, reader->info);
    const size_t row = (size_t)header.size.width * (size_t)header.stored;
    BUG_ON(png_get_rowbytes(png, reader->info) != row ||
           header.stored != reader->header->stored);
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < header.size.height; y++)
            png_read_row(png, reader->out + (size_t)y * row, NULL);
    png_read_end(png, NULL);
    return STATUS_OK;
}

/* Runs `read` with a libpng object; an error jumps back to here. */
static enum status guard(struct reader *reader, read_fn *read)
{
    if (setjmp(reader->jump))
        return reader->status;
    reader->png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, reader, on_error, on_warning,
                                           reader, allocate, release);
    reader->info = reader->png ? png_create_info_struct(reader->png) : NULL;
    if (!reader->info)
        return reader->status != STATUS_OK
                   ? reader->status
                   : FAIL(STATUS_UNSUPPORTED, "%s: libpng does not start", reader->file->path);
    return read(reader);
}

static enum status run(struct reader *reader, read_fn *read)
{
    const enum status status = guard(reader, read);

    png_destroy_read_struct(&reader->png, &reader->info, NULL);
    return status;
}

static enum status peek(const struct image_file *file, struct image_header *out)
{
    struct reader reader = { .file = file, .out_header = out };

    return run(&reader, peek_header);
}

static enum status decode(const struct image_file *file, const struct image_header *header,
                          uint8_t *out)
{
    struct reader reader = { .file = file, .header = header, .out = out };

    return run(&reader, decode_pixels);
}

#endif

const struct image_codec image_png = {
    .name = "PNG",
    .magic = MAGIC,
    .library = "libpng",
#ifdef HAVE_PNG
    .peek = peek,
    .decode = decode,
#endif
};
