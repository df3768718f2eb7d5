/* SPDX-License-Identifier: MIT */
/* image_test.c - PNG and JPEG files become planes; what is damaged or would lose something is
 * refused. */
#include "data/image.h"

#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE_MOST = 24, VALUES_MOST = SIDE_MOST * SIDE_MOST * 8 };

static uint8_t values[VALUES_MOST], planes[3 * SIDE_MOST * SIDE_MOST];

static struct data_testing_image make_image(struct rng *rng, int channels, int limit)
{
    const struct data_testing_image image = { .width = 1 + (int)rng_below(rng, SIDE_MOST),
                                              .height = 1 + (int)rng_below(rng, SIDE_MOST),
                                              .channels = channels,
                                              .interlaced = rng_below(rng, 2),
                                              .value = values };

    for (size_t i = 0; i < sizeof values; i++)
        values[i] = (uint8_t)rng_below(rng, (uint64_t)limit);
    return image;
}

static struct image_file file_of(const struct data_testing_file *file)
{
    return (struct image_file){ "x", file->bytes, file->length };
}

/* Decodes to `channels` planes after a look at the header. */
static void decode(const struct data_testing_file *bytes,
                   const struct data_testing_image *image, int own, int channels)
{
    const struct image_file file = file_of(bytes);
    struct image_size size;

    CHECK_OK(image_peek(&file, &size));
    CHECK_INT(image->width, size.width);
    CHECK_INT(image->height, size.height);
    CHECK_INT(own, size.channels);
    size.channels = channels;
    memset(planes, 0xee, sizeof planes);
    CHECK_OK(image_decode(&file, &size, planes));
    const size_t used = (size_t)(channels * image->width * image->height);
    for (size_t i = used; i < sizeof planes; i++)
        CHECK_INT(0xee, planes[i]);
}

static int plane_value(const struct data_testing_image *image, int c, int p)
{
    return planes[c * image->width * image->height + p];
}

static void test_png_is_exact(struct rng *rng)
{
    const int channels = 1 + (int)rng_below(rng, 4), colours = channels < 3 ? 1 : 3;
    struct data_testing_image image = make_image(rng, channels, 256);
    const int count = image.width * image.height;

    for (int p = 0; p < count && channels != colours; p++)
        values[p * channels + channels - 1] = 255; /* opaque */
    struct data_testing_file file = data_testing_png(&image);
    decode(&file, &image, colours, colours);
    for (int p = 0; p < count; p++)
        for (int c = 0; c < colours; c++)
            CHECK_INT(values[p * channels + c], plane_value(&image, c, p));
    decode(&file, &image, colours, 3); /* grey becomes three planes */
    for (int p = 0; p < count; p++)
        CHECK_INT(values[p * channels + (colours == 1 ? 0 : 2)], plane_value(&image, 2, p));
    mem_free(file.bytes);
}

static void test_png_is_widened(struct rng *rng)
{
    const int bits = 1 << rng_below(rng, 4);
    struct data_testing_image image = make_image(rng, 1, 1 << bits);

    image.bits = bits;
    image.palette = rng_below(rng, 2);
    struct data_testing_file file = data_testing_png(&image);
    decode(&file, &image, image.palette ? 3 : 1, 3);
    for (int p = 0; p < image.width * image.height; p++) {
        const int value = values[p];
        if (image.palette) {
            CHECK_INT(value, plane_value(&image, 0, p));
            CHECK_INT(255 - value, plane_value(&image, 1, p));
            CHECK_INT(7, plane_value(&image, 2, p));
        } else {
            CHECK_INT(value * 255 / ((1 << bits) - 1), plane_value(&image, 0, p));
        }
    }
    mem_free(file.bytes);
}

/* The best quality is off by rounding only. */
static void test_jpeg_is_close(struct rng *rng)
{
    const int channels = rng_below(rng, 2) ? 3 : 1;
    const struct data_testing_image image = make_image(rng, channels, 256);
    struct data_testing_file file = data_testing_jpeg(&image);

    decode(&file, &image, channels, channels);
    for (int p = 0; p < image.width * image.height; p++)
        for (int c = 0; c < channels; c++)
            CHECK(abs(values[p * channels + c] - plane_value(&image, c, p)) <= 6);
    mem_free(file.bytes);
}

static void check_refused(const struct image_file *file, enum status expected, const char *part)
{
    struct image_size size;
    enum status status = image_peek(file, &size);

    if (status == STATUS_OK) {
        CHECK(size.width * size.height <= SIDE_MOST * SIDE_MOST);
        status = image_decode(file, &size, planes);
    }
    CHECK_STATUS(expected, status);
    CHECK_MESSAGE("x: ");
    CHECK_MESSAGE(part);
}

static void check_beginnings_refused(struct data_testing_file *bytes, size_t end)
{
    struct image_file file = file_of(bytes);

    for (file.length = 0; file.length + end < bytes->length; file.length++)
        check_refused(&file, STATUS_CORRUPT,
                      file.length == 0  ? "is empty"
                      : file.length < 3 ? "is neither a PNG nor a JPEG file"
                                        : "");
}

static void test_cut_files_are_refused(struct rng *rng)
{
    const struct data_testing_image image = make_image(rng, 3, 256);
    struct data_testing_file file = rng_below(rng, 2) && data_testing_has_jpeg()
                                        ? data_testing_jpeg(&image)
                                        : data_testing_png(&image);

    check_beginnings_refused(&file, 0);
    mem_free(file.bytes);
}

/* A changed bit is refused or harmless; it never reaches beyond the image. */
static void test_damage_is_survived(struct rng *rng)
{
    const struct data_testing_image image = make_image(rng, 3, 256);
    const bool png = rng_below(rng, 2) || !data_testing_has_jpeg();
    struct data_testing_file bytes = png ? data_testing_png(&image) : data_testing_jpeg(&image);
    const struct image_file file = file_of(&bytes);
    const struct image_size size = { image.height, image.width, 3 };
    const size_t used = 3 * (size_t)(image.width * image.height);

    for (int i = 0; i < 20; i++) {
        const size_t at = rng_below(rng, bytes.length);
        const uint8_t bit = (uint8_t)(1u << rng_below(rng, 8));

        bytes.bytes[at] ^= bit;
        memset(planes, 0xee, sizeof planes);
        const enum status status = image_decode(&file, &size, planes);
        if (status != STATUS_OK)
            CHECK_MESSAGE("x: ");
        CHECK(!png || status != STATUS_OK); /* all of a PNG file has checksums */
        for (size_t j = used; j < sizeof planes; j++)
            CHECK_INT(0xee, planes[j]);
        bytes.bytes[at] ^= bit;
    }
    mem_free(bytes.bytes);
}

static void test_damage_is_named_with_its_place(void)
{
    struct rng rng;

    rng_init(&rng, 1, 0);
    struct data_testing_image image = make_image(&rng, 3, 256);
    image.interlaced = false;
    struct data_testing_file png = data_testing_png(&image);
    const struct image_file file = file_of(&png);

    png.bytes[45] ^= 1; /* within the first IDAT, which starts at 33 and is cut by its CRC */
    check_refused(&file, STATUS_CORRUPT, "is damaged at byte ");
    mem_free(png.bytes);

    struct data_testing_file jpeg = data_testing_jpeg(&image);
    const struct image_file cut = { "x", jpeg.bytes, jpeg.length - 10 };
    check_refused(&cut, STATUS_CORRUPT, "is damaged at byte ");
    memcpy(jpeg.bytes + jpeg.length - 10, "\xff\xd9", 2); /* the end comes early */
    const struct image_file early = file_of(&jpeg);
    check_refused(&early, STATUS_CORRUPT, "Corrupt JPEG data: premature end");
    mem_free(jpeg.bytes);
}

static void test_what_would_be_lost_is_refused(void)
{
    struct data_testing_image image = {
        .width = 5, .height = 4, .channels = 4, .value = values
    };

    memset(values, 255, sizeof values);
    values[4 * (2 * 5 + 3) + 3] = 254;
    struct data_testing_file bytes = data_testing_png(&image);
    struct image_file file = file_of(&bytes);
    check_refused(&file, STATUS_UNSUPPORTED, "has transparent pixels, such as row 2 column 3");
    mem_free(bytes.bytes);

    image.channels = 1;
    image.bits = 16;
    bytes = data_testing_png(&image);
    file = file_of(&bytes);
    check_refused(&file, STATUS_UNSUPPORTED, "has 16 bits a channel");
    mem_free(bytes.bytes);

    image.channels = 4;
    bytes = data_testing_jpeg(&image);
    file = file_of(&bytes);
    check_refused(&file, STATUS_UNSUPPORTED, "has 4 colour components, such as CMYK");
    mem_free(bytes.bytes);
}

static void test_other_sizes_are_refused(void)
{
    struct data_testing_image image = {
        .width = 5, .height = 4, .channels = 3, .value = values
    };
    struct data_testing_file bytes = data_testing_png(&image);
    const struct image_file file = file_of(&bytes);

    CHECK_STATUS(STATUS_MISMATCH, image_decode(&file, &(struct image_size){ 4, 6, 3 }, planes));
    CHECK_MESSAGE("x: has 5x4 pixels where 6x4 are expected");
    CHECK_STATUS(STATUS_MISMATCH, image_decode(&file, &(struct image_size){ 4, 5, 1 }, planes));
    CHECK_MESSAGE("x: is in colour where grey is expected");

    bytes.bytes[16] = 0x7f; /* a width of 2 thousand millions; its checksum is wrong, too */
    struct image_size size;
    CHECK_STATUS(STATUS_CORRUPT, image_peek(&file, &size));
    mem_free(bytes.bytes);

    if (data_testing_has_jpeg()) { /* no checksum there */
        bytes = data_testing_jpeg(&image);
        for (size_t i = 0; i + 8 < bytes.length; i++)
            if (bytes.bytes[i] == 0xff && bytes.bytes[i + 1] == 0xc0)
                memset(bytes.bytes + i + 5, 0x7f, 4);
        const struct image_file large = file_of(&bytes);
        CHECK_STATUS(STATUS_UNSUPPORTED, image_peek(&large, &size));
        CHECK_MESSAGE("x: has 32639x32639 pixels; at most");
        mem_free(bytes.bytes);
    }
}

static void test_decoding_survives_lack_of_memory(void)
{
    const struct data_testing_image image = {
        .width = 9, .height = 7, .channels = 3, .interlaced = true, .value = values
    };

    for (int png = 0; png < 2; png++) {
        if (png ? !data_testing_has_png() : !data_testing_has_jpeg())
            continue;
        struct data_testing_file bytes =
            png ? data_testing_png(&image) : data_testing_jpeg(&image);
        const struct image_file file = file_of(&bytes);
        enum status status = STATUS_NO_MEMORY;

        for (uint64_t nth = 1; status != STATUS_OK; nth++) {
            CHECK(nth < 100);
            mem_fail_at(nth);
            status = image_decode(&file, &(struct image_size){ 7, 9, 3 }, planes);
            mem_fail_at(0);
            CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
        }
        mem_free(bytes.bytes);
    }
}

static void test_a_build_without_a_library_says_so(void)
{
    static const uint8_t PNG[] = { 0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n' };
    static const uint8_t JPEG[] = { 0xff, 0xd8, 0xff, 0xe0 };

    if (data_testing_has_png() && data_testing_has_jpeg())
        test_skip("built with libpng and libjpeg");
    if (!data_testing_has_png())
        check_refused(&(struct image_file){ "x", PNG, sizeof PNG }, STATUS_UNSUPPORTED,
                      "built without libpng; install libpng-dev");
    if (!data_testing_has_jpeg())
        check_refused(&(struct image_file){ "x", JPEG, sizeof JPEG }, STATUS_UNSUPPORTED,
                      "built without libjpeg; install libjpeg-dev");
}

static void test_names_of_images(void)
{
    CHECK(image_has_name("a.png") && image_has_name("a.JPG") && image_has_name("a.b.jpeg"));
    CHECK(!image_has_name("png") && !image_has_name("a.png.txt") && !image_has_name("a.pn"));
}

const struct test tests[] = {
    { .name = "PNG is exact", .property = test_png_is_exact },
    { .name = "PNG is widened", .property = test_png_is_widened },
    { .name = "JPEG is close", .property = test_jpeg_is_close },
    { .name = "cut files are refused", .property = test_cut_files_are_refused },
    { .name = "damage is survived", .property = test_damage_is_survived },
    { .name = "damage is named with its place", .run = test_damage_is_named_with_its_place },
    { .name = "what would be lost is refused", .run = test_what_would_be_lost_is_refused },
    { .name = "other sizes are refused", .run = test_other_sizes_are_refused },
    { .name = "decoding survives lack of memory",
      .run = test_decoding_survives_lack_of_memory },
    { .name = "a build without a library says so",
      .run = test_a_build_without_a_library_says_so },
    { .name = "names of images", .run = test_names_of_images },
    { 0 },
};
