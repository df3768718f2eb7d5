/* SPDX-License-Identifier: MIT */
/* image_jpeg.c - JPEG files by libjpeg (libjpeg-turbo on Debian).
 *
 * libjpeg reports an error by a function that must not return: it jumps back to `guard`. All
 * that changes on the way lies in struct reader, which is not a variable of `guard`, so that
 * its values are right after the jump. Damaged pixels are a mere warning to libjpeg, which
 * makes something up for them; here they are an error too.
 */
#include "data/image_codec.h"

#ifdef HAVE_JPEG
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h> /* wants stdio.h before it */

#include <jerror.h>
#endif

static const char MAGIC[] = "\xff\xd8\xff";

#ifdef HAVE_JPEG

enum { SCANS_MOST = 200 }; /* a progressive file has about ten; each costs a pass */

struct reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    const struct image_file *file;
    jmp_buf jump;
    enum status status; /* set before a jump */
    struct image_header *out_header;
    uint8_t *out; /* NULL: the header only */
};

static void on_error(j_common_ptr jpeg)
{
    struct reader *reader = jpeg->client_data;
    const struct jpeg_source_mgr *source = reader->jpeg.src;
    char text[JMSG_LENGTH_MAX];

    jpeg->err->format_message(jpeg, text);
    if (jpeg->err->msg_code == JERR_OUT_OF_MEMORY)
        reader->status = FAIL(STATUS_NO_MEMORY, "%s: %s", reader->file->path, text);
    else
        reader->status =
            FAIL(STATUS_CORRUPT, "%s: is damaged at byte %zu: %s", reader->file->path,
                 source ? reader->file->length - source->bytes_in_buffer : 0, text);
    longjmp(reader->jump, 1);
}

/* Level -1 is a warning; others are for the curious. */
static void on_message(j_common_ptr jpeg, int level)
{
    const int code = jpeg->err->msg_code;

    if (level < 0 && code != JWRN_JFIF_MAJOR && code != JWRN_ADOBE_XFORM)
        on_error(jpeg);
}

static void on_progress(j_common_ptr jpeg)
{
    struct reader *reader = jpeg->client_data;

    if (reader->jpeg.input_scan_number <= SCANS_MOST)
        return;
    reader->status =
        FAIL(STATUS_CORRUPT, "%s: has more than %d scans", reader->file->path, SCANS_MOST);
    longjmp(reader->jump, 1);
}

static void on_end(j_decompress_ptr jpeg)
{
    (void)jpeg;
}

static void on_start(j_decompress_ptr jpeg)
{
    (void)jpeg;
}

static boolean on_empty(j_decompress_ptr jpeg)
{
    ERREXIT(jpeg, JERR_INPUT_EOF);
    return FALSE;
}

static void on_skip(j_decompress_ptr jpeg, long count)
{
    if (count <= 0)
        return;
    if ((size_t)count > jpeg->src->bytes_in_buffer)
        ERREXIT(jpeg, JERR_INPUT_EOF);
    jpeg->src->next_input_byte += count;
    jpeg->src->bytes_in_buffer -= (size_t)count;
}

/* Size and kind, and what the pixels are to be decoded to. */
static enum status read_header(struct reader *reader, struct image_header *out)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;

    if (jpeg_read_header(jpeg, TRUE) != JPEG_HEADER_OK)
        return FAIL(STATUS_CORRUPT, "%s: is not a whole JPEG file", reader->file->path);
    TRY(image_check_size(reader->file, jpeg->image_width, jpeg->image_height));
    if (jpeg->num_components != 1 && jpeg->num_components != 3)
        return FAIL(STATUS_UNSUPPORTED,
                    "%s: has %d colour components, such as CMYK; save it as RGB",
                    reader->file->path, jpeg->num_components);
    const int channels = jpeg->num_components;
    jpeg->out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    *out = (struct image_header){ .size = { jpeg->image_height, jpeg->image_width, channels },
                                  .stored = channels };
    return STATUS_OK;
}

static enum status read_pixels(struct reader *reader, const struct image_header *header)
{
    struct jpeg_decompress_struct *jpeg = &reader->jpeg;
    const size_t row = (size_t)header->size.width * (size_t)header->stored;

    jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW at = reader->out + jpeg->output_scanline * row;
        jpeg_read_scanlines(jpeg, &at, 1);
    }
    jpeg_finish_decompress(jpeg);
    return STATUS_OK;
}

/* Decodes, or reads the header only; an error jumps back to here. */
static enum status guard(struct reader *reader, struct jpeg_source_mgr *source)
{
    if (setjmp(reader->jump))
        return reader->status;
    jpeg_create_decompress(&reader->jpeg);
    reader->jpeg.src = source;
    reader->jpeg.progress = &reader->progress;
    TRY(read_header(reader, reader->out_header));
    return reader->out ? read_pixels(reader, reader->out_header) : STATUS_OK;
}

static enum status run(const struct image_file *file, struct image_header *header, uint8_t *out)
{
    struct jpeg_source_mgr source = {
        .next_input_byte = file->bytes,
        .bytes_in_buffer = file->length,
        .init_source = on_start,
        .fill_input_buffer = on_empty,
        .skip_input_data = on_skip,
        .resync_to_restart = jpeg_resync_to_restart,
        .term_source = on_end,
    };
    struct reader reader = { .file = file,
                             .progress = { .progress_monitor = on_progress },
                             .out_header = header,
                             .out = out };

    reader.jpeg.err = jpeg_std_error(&reader.errors);
    reader.jpeg.client_data = &reader;
    reader.errors.error_exit = on_error;
    reader.errors.emit_message = on_message;
    const enum status status = guard(&reader, &source);
    jpeg_destroy_decompress(&reader.jpeg);
    return status;
}

static enum status peek(const struct image_file *file, struct image_header *out)
{
    return run(file, out, NULL);
}

static enum status decode(const struct image_file *file, const struct image_header *header,
                          uint8_t *out)
{
    struct image_header again = *header;

    return run(file, &again, out);
}

#endif

const struct image_codec image_jpeg = {
    .name = "JPEG",
    .magic = MAGIC,
    .library = "libjpeg",
#ifdef HAVE_JPEG
    .peek = peek,
    .decode = decode,
#endif
};
