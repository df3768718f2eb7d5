/* SPDX-License-Identifier: MIT */
/* pixmap_test.c - pictures come back from their PNG files as they were. */
#include "report/pixmap.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "report/deflate.h"

/* A reader of one block with fixed codes, straight from RFC 1951 ------------------------- */

struct reader {
    const uint8_t *data;
    size_t length, bit;
};

static unsigned take(struct reader *r, unsigned count)
{
    unsigned value = 0;

    for (unsigned i = 0; i < count; i++, r->bit++) {
        CHECK(r->bit / 8 < r->length);
        value |= (unsigned)(r->data[r->bit / 8] >> r->bit % 8 & 1) << i;
    }
    return value;
}

static unsigned take_code(struct reader *r, unsigned code, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        code = code << 1 | take(r, 1);
    return code;
}

static unsigned take_symbol(struct reader *r)
{
    unsigned code = take_code(r, 0, 7);

    if (code <= 0x17)
        return 256 + code;
    code = take_code(r, code, 1);
    if (code >= 0x30 && code <= 0xbf)
        return code - 0x30;
    if (code >= 0xc0 && code <= 0xc7)
        return 280 + code - 0xc0;
    return 144 + take_code(r, code, 1) - 0x190;
}

static size_t take_length(struct reader *r, unsigned symbol)
{
    size_t base = 3;

    if (symbol == 285)
        return 258;
    for (unsigned s = 257; s < symbol; s++)
        base += (size_t)1 << (s < 261 ? 0 : (s - 261) / 4);
    return base + take(r, symbol < 261 ? 0 : (symbol - 261) / 4);
}

static size_t take_distance(struct reader *r)
{
    const unsigned symbol = take_code(r, 0, 5);
    size_t base = 1;

    for (unsigned s = 0; s < symbol; s++)
        base += (size_t)1 << (s < 2 ? 0 : s / 2 - 1);
    return base + take(r, symbol < 2 ? 0 : symbol / 2 - 1);
}

/* Unpacks a zlib stream into out[0..maximum); returns the length. */
static size_t inflate(const uint8_t *data, size_t length, uint8_t *out, size_t maximum)
{
    struct reader r = { .data = data, .length = length, .bit = 16 };
    size_t n = 0;
    uint32_t a = 1, b = 0;

    CHECK(length > 6 && data[0] == 0x78 && (data[0] * 256 + data[1]) % 31 == 0);
    CHECK_INT(3, take(&r, 3));
    for (unsigned symbol = take_symbol(&r); symbol != 256; symbol = take_symbol(&r)) {
        size_t count = 1, distance = 0;
        if (symbol > 256) {
            count = take_length(&r, symbol);
            distance = take_distance(&r);
            CHECK(distance <= n);
        }
        CHECK(n + count <= maximum);
        for (size_t i = 0; i < count; i++, n++)
            out[n] = symbol > 256 ? out[n - distance] : (uint8_t)symbol;
    }
    for (size_t i = 0; i < n; i++) {
        a = (a + out[i]) % 65521;
        b = (b + a) % 65521;
    }
    const uint8_t *sum = data + (r.bit + 7) / 8;
    CHECK(sum + 4 == data + length);
    CHECK_INT(b << 16 | a,
              (uint32_t)sum[0] << 24 | (uint32_t)sum[1] << 16 | (uint32_t)sum[2] << 8 | sum[3]);
    return n;
}

/* Tests -------------------------------------------------------------------------------- */

static void test_packed_bytes_come_back(struct rng *rng)
{
    enum { MOST = 100000 };
    static uint8_t data[MOST], back[MOST];
    const size_t length = rng_below(rng, rng_below(rng, 8) == 0 ? MOST : 3000);
    const unsigned values = 1 + (unsigned)rng_below(rng, rng_below(rng, 2) ? 256 : 4);
    struct strbuf packed;

    for (size_t i = 0; i < length; i++) /* runs, and repetitions far apart */
        data[i] = rng_below(rng, 4) && i > 50 ? data[i - 1 - rng_below(rng, 50)]
                                              : (uint8_t)rng_below(rng, values);
    if (length > 70000)
        memcpy(data + length - 1000, data + length - 1000 - 32768, 1000);
    strbuf_init(&packed, 1 << 20);
    deflate_add(&packed, data, length);
    CHECK_OK(strbuf_status(&packed));
    CHECK(packed.length <= length + length / 8 + 16);
    CHECK_INT(length, inflate((const uint8_t *)packed.text, packed.length, back, MOST));
    CHECK(memcmp(data, back, length) == 0);
    strbuf_release(&packed);
}

static void test_repetitions_become_short(void)
{
    static uint8_t zeros[100000];
    struct strbuf packed;

    strbuf_init(&packed, 1 << 20);
    deflate_add(&packed, zeros, sizeof zeros);
    CHECK_OK(strbuf_status(&packed));
    CHECK(packed.length < 1000);
    strbuf_release(&packed);
}

static uint32_t u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void test_a_picture_comes_back_from_its_file(struct rng *rng)
{
    enum { SIDE = 20, MOST = SIDE * SIDE * 4 };
    static const uint8_t types[] = { 0, 0, 4, 2, 6 };
    uint8_t pixels[MOST], rows[MOST + SIDE];
    const struct pixmap image = { .width = 1 + (int)rng_below(rng, SIDE),
                                  .height = 1 + (int)rng_below(rng, SIDE),
                                  .channels = 1 + (int)rng_below(rng, 4),
                                  .pixels = pixels,
                                  .planes = rng_below(rng, 2) };
    const int plane = image.width * image.height, row = image.width * image.channels;
    struct strbuf png;
    int width, height;

    for (int i = 0; i < MOST; i++)
        pixels[i] = (uint8_t)rng_below(rng, 256);
    strbuf_init(&png, 1 << 20);
    pixmap_png(&png, &image);
    CHECK_OK(strbuf_status(&png));
    CHECK(pixmap_is_png(png.text, png.length, &width, &height));
    CHECK(width == image.width && height == image.height);
    CHECK(!pixmap_is_png(png.text, 20, &width, &height));
    const uint8_t *at = (const uint8_t *)png.text + 8;
    CHECK(u32(at) == 13 && at[16] == 8 && at[17] == types[image.channels]);
    at += 25;
    CHECK(memcmp(at + 4, "IDAT", 4) == 0);
    CHECK_INT((row + 1) * image.height, inflate(at + 8, u32(at), rows, sizeof rows));
    for (int y = 0; y < image.height; y++) {
        CHECK_INT(0, rows[y * (row + 1)]);
        for (int x = 0; x < row; x++) {
            const int p = y * image.width + x / image.channels, c = x % image.channels;
            CHECK_INT(pixels[image.planes ? c * plane + p : p * image.channels + c],
                      rows[y * (row + 1) + 1 + x]);
        }
    }
    strbuf_release(&png);
}

/* The checksum of a chunk is known from the standard: IEND is always the same twelve bytes. */
static void test_a_file_ends_as_every_png_does(void)
{
    static const uint8_t end[] = { 0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82 };
    const uint8_t grey = 7;
    const struct pixmap image = { .width = 1, .height = 1, .channels = 1, .pixels = &grey };
    struct strbuf png;

    strbuf_init(&png, 1 << 16);
    pixmap_png(&png, &image);
    CHECK_OK(strbuf_status(&png));
    CHECK(memcmp(png.text + png.length - sizeof end, end, sizeof end) == 0);
    strbuf_release(&png);
}

static void test_an_element_holds_the_picture_and_its_caption(void)
{
    const uint8_t pixels[6] = { 0 };
    const struct pixmap image = { .width = 3, .height = 2, .channels = 1, .pixels = pixels };
    struct strbuf out;

    strbuf_init(&out, 1 << 16);
    pixmap_add(&out, &image, "a \"b\" <c>", 60);
    pixmap_add_png(&out, "no picture", 10, "none", 60);
    CHECK_OK(strbuf_status(&out));
    CHECK(strstr(out.text, "alt=\"a &quot;b&quot; &lt;c&gt;\"") != NULL);
    CHECK(strstr(out.text, "width=\"60\" height=\"40\"") != NULL);
    CHECK(strstr(out.text, "src=\"data:image/png;base64,iVBORw0KGgo") != NULL);
    CHECK(strstr(out.text, "none") == NULL);
    strbuf_release(&out);
}

static void test_a_lack_of_room_is_told(void)
{
    static const uint8_t pixels[100 * 100];
    const struct pixmap image = {
        .width = 100, .height = 100, .channels = 1, .pixels = pixels
    };

    for (uint64_t nth = 1; nth < 4; nth++) {
        struct strbuf out;
        strbuf_init(&out, 1 << 20);
        mem_fail_at(nth);
        pixmap_add(&out, &image, "", 10);
        mem_fail_at(0);
        CHECK_STATUS(STATUS_NO_MEMORY, strbuf_status(&out));
        strbuf_release(&out);
    }
}

const struct test tests[] = {
    { .name = "packed bytes come back", .property = test_packed_bytes_come_back },
    { .name = "repetitions become short", .run = test_repetitions_become_short },
    { .name = "a picture comes back from its file",
      .property = test_a_picture_comes_back_from_its_file },
    { .name = "a file ends as every png does", .run = test_a_file_ends_as_every_png_does },
    { .name = "an element holds the picture and its caption",
      .run = test_an_element_holds_the_picture_and_its_caption },
    { .name = "a lack of room is told", .run = test_a_lack_of_room_is_told },
    { 0 },
};
