/* SPDX-License-Identifier: MIT */
/* data_testing.c - makes IDX files with random contents, and images. */
#include "data/data_testing.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "data/known.h"

#include <stdio.h>
#include <string.h>

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef HAVE_PNG
#include <png.h>
#endif
#ifdef HAVE_JPEG
#include <jpeglib.h>
#endif

bool data_testing_has_zlib(void)
{
#ifdef HAVE_ZLIB
    return true;
#else
    return false;
#endif
}

bool data_testing_has_curl(void)
{
#ifdef HAVE_CURL
    return true;
#else
    return false;
#endif
}

bool data_testing_has_png(void)
{
#ifdef HAVE_PNG
    return true;
#else
    return false;
#endif
}

bool data_testing_has_jpeg(void)
{
#ifdef HAVE_JPEG
    return true;
#else
    return false;
#endif
}

struct data_testing_file data_testing_idx(struct rng *rng, enum idx_kind kind,
                                          const int64_t *dim, int limit)
{
    const size_t header = 4 + 4 * (size_t)kind;
    struct data_testing_file file = { .length = header };
    size_t count = 1;

    for (int i = 0; i < (int)kind; i++)
        count *= (size_t)dim[i];
    file.length += count;
    CHECK_OK(mem_alloc(file.length, 1, &file.bytes));
    file.bytes[2] = 0x08;
    file.bytes[3] = (uint8_t)kind;
    for (int i = 0; i < (int)kind; i++)
        for (int byte = 0; byte < 4; byte++)
            file.bytes[4 + 4 * i + byte] = (uint8_t)(dim[i] >> (24 - 8 * byte));
    for (size_t i = header; i < file.length; i++)
        file.bytes[i] = (uint8_t)rng_below(rng, (uint64_t)limit);
    return file;
}

void data_testing_pack(struct data_testing_file *file)
{
#ifdef HAVE_ZLIB
    const size_t most = compressBound((uLong)file->length) + 32; /* gzip's header is longer */
    z_stream z = { .next_in = file->bytes, .avail_in = (uInt)file->length };
    uint8_t *packed;

    CHECK_OK(mem_alloc(most, 1, &packed));
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_out = packed;
    z.avail_out = (uInt)most;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&z);
    mem_free(file->bytes);
    *file = (struct data_testing_file){ packed, most - z.avail_out };
#else
    (void)file;
#endif
}

const char *data_testing_path(const char *folder, const char *name)
{
    static char path[2048];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

void data_testing_call(const char *folder, const char *name)
{
    const struct known known = { .info = dataset_find(name) };

    CHECK_OK(known_write(&known, folder));
}

void data_testing_write(const char *folder, const char *name, const uint8_t *bytes,
                        size_t length)
{
    CHECK_OK(file_make_folder(folder));
    CHECK_OK(file_replace(data_testing_path(folder, name), bytes, length));
}

static void make_file(struct rng *rng, const char *folder, const char *name, enum idx_kind kind,
                      const int64_t *dim, int limit, bool packed)
{
    struct data_testing_file file = data_testing_idx(rng, kind, dim, limit);
    char full[64];

    if (packed)
        data_testing_pack(&file);
    snprintf(full, sizeof full, "%s%s", name, packed ? ".gz" : "");
    data_testing_write(folder, full, file.bytes, file.length);
    mem_free(file.bytes);
}

void data_testing_make(struct rng *rng, const char *folder, const struct data_testing_set *set)
{
    const int64_t train[] = { set->train, set->rows, set->columns };
    const int64_t test[] = { set->test, set->rows, set->columns };

    make_file(rng, folder, "train-images-idx3-ubyte", IDX_IMAGES, train, 256, set->packed);
    make_file(rng, folder, "train-labels-idx1-ubyte", IDX_LABELS, train, set->classes,
              set->packed);
    make_file(rng, folder, "t10k-images-idx3-ubyte", IDX_IMAGES, test, 256, set->packed);
    make_file(rng, folder, "t10k-labels-idx1-ubyte", IDX_LABELS, test, set->classes,
              set->packed);
}

enum { TAR_BLOCK = 512 };

void data_testing_tar_sum(uint8_t *header)
{
    unsigned sum = 0;

    memset(header + 148, ' ', 8);
    for (int i = 0; i < TAR_BLOCK; i++)
        sum += header[i];
    snprintf((char *)header + 148, 8, "%06o", sum);
}

void data_testing_tar_header(uint8_t *header, const char *name, char kind, size_t size)
{
    memset(header, 0, TAR_BLOCK);
    snprintf((char *)header, 100, "%s", name);
    snprintf((char *)header + 124, 12, "%011zo", size);
    header[156] = (uint8_t)kind;
    data_testing_tar_sum(header);
}

#ifdef HAVE_PNG

static void append(png_structp png, png_bytep bytes, size_t count)
{
    struct data_testing_file *file = png_get_io_ptr(png);

    CHECK_OK(mem_grow(&file->bytes, file->length, file->length + count, 1));
    memcpy(file->bytes + file->length, bytes, count);
    file->length += count;
}

static void no_flush(png_structp png)
{
    (void)png;
}

struct data_testing_file data_testing_png(const struct data_testing_image *image)
{
    static const int TYPES[] = { 0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                 PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA };
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    struct data_testing_file file = { 0 };
    const int bits = image->bits ? image->bits : 8;
    const size_t row = (size_t)image->width * (size_t)image->channels * (bits == 16 ? 2u : 1u);

    png_set_write_fn(png, &file, append, no_flush);
    png_set_IHDR(png, info, (png_uint_32)image->width, (png_uint_32)image->height, bits,
                 image->palette ? PNG_COLOR_TYPE_PALETTE : TYPES[image->channels],
                 image->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, 0, 0);
    if (image->palette) {
        png_color palette[256];
        for (int i = 0; i < 256; i++)
            palette[i] = (png_color){ (png_byte)i, (png_byte)(255 - i), 7 };
        png_set_PLTE(png, info, palette, 1 << bits);
    }
    png_write_info(png, info);
    if (bits < 8)
        png_set_packing(png);
    const int passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < image->height; y++)
            png_write_row(png, image->value + (size_t)y * row);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    return file;
}

#else

struct data_testing_file data_testing_png(const struct data_testing_image *image)
{
    (void)image;
    test_skip("built without libpng");
    return (struct data_testing_file){ 0 };
}

#endif

#ifdef HAVE_JPEG

struct data_testing_file data_testing_jpeg(const struct data_testing_image *image)
{
    static const J_COLOR_SPACE SPACES[] = { JCS_UNKNOWN, JCS_GRAYSCALE, JCS_UNKNOWN, JCS_RGB,
                                            JCS_CMYK };
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct data_testing_file file;
    unsigned long length = 1 << 20; /* room enough for a test's image */

    CHECK_OK(mem_alloc(length, 1, &file.bytes));
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_mem_dest(&jpeg, &file.bytes, &length);
    jpeg.image_width = (JDIMENSION)image->width;
    jpeg.image_height = (JDIMENSION)image->height;
    jpeg.input_components = image->channels;
    jpeg.in_color_space = SPACES[image->channels];
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    for (int c = 0; c < jpeg.num_components; c++) /* colour as fine as brightness */
        jpeg.comp_info[c].h_samp_factor = jpeg.comp_info[c].v_samp_factor = 1;
    if (image->interlaced)
        jpeg_simple_progression(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row =
            (JSAMPROW)(uintptr_t)(image->value + jpeg.next_scanline * (size_t)image->width *
                                                     (size_t)image->channels);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    file.length = length;
    return file;
}

#else

struct data_testing_file data_testing_jpeg(const struct data_testing_image *image)
{
    (void)image;
    test_skip("built without libjpeg");
    return (struct data_testing_file){ 0 };
}

#endif
