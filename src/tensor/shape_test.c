/* SPDX-License-Identifier: MIT */
/* shape_test.c - counts that overflow are refused; layouts put elements where they say. */
#include "tensor/shape.h"

#include "base/test.h"

#include <string.h>

static void check_printed(const char *expected, struct shape shape)
{
    char text[SHAPE_TEXT];

    CHECK(shape_print(&shape, text) == text);
    CHECK_TEXT(expected, text);
}

static void test_printing(void)
{
    const int64_t dims[] = { 1, 2, 3, 4, 5, 6 };

    check_printed("scalar", shape_of(0, NULL));
    check_printed("7", shape_1(7));
    check_printed("64x784", shape_2(64, 784));
    check_printed("8x3x32x0", shape_4(8, 3, 32, 0));
    check_printed("1x2x3x4x5x6", shape_of(6, dims));

    char text[SHAPE_TEXT];
    struct shape large = { .rank = SHAPE_MAX };
    for (int i = 0; i < SHAPE_MAX; i++)
        large.dim[i] = INT64_MIN;
    CHECK(strlen(shape_print(&large, text)) == SHAPE_TEXT - 1);
}

static void test_equality(void)
{
    const struct shape a = shape_2(3, 4), b = shape_2(3, 4), c = shape_2(4, 3), d = shape_1(3);
    struct shape e = shape_1(3);

    e.dim[3] = 5; /* beyond the rank */
    CHECK(shape_equal(&a, &b));
    CHECK(!shape_equal(&a, &c));
    CHECK(!shape_equal(&a, &d));
    CHECK(!shape_equal(&d, &a));
    CHECK(shape_equal(&d, &e));
}

static void check_count(int64_t expected, struct shape shape)
{
    int64_t count = -1;

    CHECK_OK(shape_checked_count(&shape, &count));
    CHECK_INT(expected, count);
    CHECK_INT(expected, shape_count(&shape));
}

static void check_refused(struct shape shape, const char *reason)
{
    int64_t count = 42;

    CHECK_STATUS(STATUS_CORRUPT, shape_checked_count(&shape, &count));
    CHECK_MESSAGE(reason);
    CHECK_INT(42, count);
}

static void test_counts(void)
{
    int64_t count;

    check_count(1, shape_of(0, NULL));
    check_count(24, shape_4(1, 2, 3, 4));
    check_count(0, shape_2(0, 5));
    check_count(INT64_MAX, shape_2(INT64_MAX, 1));
    check_refused(shape_2(INT64_MAX, 2), "too many elements");
    check_refused(shape_4((int64_t)1 << 62, 4, 1, 1), "too many elements");
    check_refused(shape_4(1 << 16, 1 << 16, 1 << 16, 1 << 16), "too many elements");
    check_refused(shape_2(3, -1), "negative extent -1");
    check_refused(shape_2(0, -1), "negative extent -1");
    check_refused((struct shape){ .rank = -1 }, "extents");
    check_refused((struct shape){ .rank = SHAPE_MAX + 1 }, "extents");

    const struct shape a = shape_4(0, INT64_MAX, INT64_MAX, 2);
    const struct shape b = shape_4(INT64_MAX, INT64_MAX, 2, 0);
    CHECK_OK(shape_checked_count(&a, &count));
    CHECK_INT(0, count);
    CHECK_OK(shape_checked_count(&b, &count));
    CHECK_INT(0, count);
}

enum { MAX_ELEMENTS = 5 * 5 * 5 * 5, MAX_SIZE = 16 };

/* Where element a, b, c, d of the shape lies: the header's words as formulas. */
static int64_t place_of(enum layout layout, const struct shape *s, int64_t a, int64_t b,
                        int64_t c, int64_t d)
{
    switch (layout) {
    case LAYOUT_NHWC: /* a, b, c, d = n, c, h, w */
        return ((a * s->dim[2] + c) * s->dim[3] + d) * s->dim[1] + b;
    case LAYOUT_HWIO: /* a, b, c, d = o, i, h, w */
        return ((c * s->dim[3] + d) * s->dim[1] + b) * s->dim[0] + a;
    case LAYOUT_IO: /* a, b = o, i */
        return b * s->dim[0] + a;
    case LAYOUT_WIO: /* a, b, c = o, i, w */
        return (c * s->dim[1] + b) * s->dim[0] + a;
    case LAYOUT_OHWI: /* a, b, c, d = o, i, h, w */
        return ((a * s->dim[2] + c) * s->dim[3] + d) * s->dim[1] + b;
    case LAYOUT_PLAIN:
        break;
    }
    return ((a * s->dim[1] + b) * s->dim[2] + c) * s->dim[3] + d;
}

static void fill(struct rng *rng, unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)rng_u32(rng);
}

static void test_layouts_place_elements(struct rng *rng)
{
    static const size_t sizes[] = { 1, 2, 4, 8, 3, MAX_SIZE };
    static unsigned char plain[MAX_ELEMENTS * MAX_SIZE + 1], data[MAX_ELEMENTS * MAX_SIZE + 1];
    static unsigned char back[MAX_ELEMENTS * MAX_SIZE + 1];
    const enum layout layout = (enum layout)rng_below(rng, 6);
    const size_t size = sizes[rng_below(rng, 6)];
    struct shape shape = { .rank = layout == LAYOUT_IO    ? 2
                                   : layout == LAYOUT_WIO ? 3
                                                          : 4,
                           .dim = { 1, 1, 1, 1 } };

    for (int i = 0; i < shape.rank; i++)
        shape.dim[i] = (int64_t)rng_below(rng, 6);
    const size_t bytes = (size_t)shape_count(&shape) * size;
    fill(rng, plain, bytes);
    data[bytes] = back[bytes] = 0xa5; /* the byte after the last stays */
    layout_from_plain(layout, &shape, size, plain, data);
    layout_to_plain(layout, &shape, size, data, back);
    CHECK(data[bytes] == 0xa5 && back[bytes] == 0xa5);
    CHECK(memcmp(plain, back, bytes) == 0);

    const unsigned char *from = plain;
    for (int64_t a = 0; a < shape.dim[0]; a++)
        for (int64_t b = 0; b < shape.dim[1]; b++)
            for (int64_t c = 0; c < shape.dim[2]; c++)
                for (int64_t d = 0; d < shape.dim[3]; d++, from += size) {
                    const size_t at = (size_t)place_of(layout, &shape, a, b, c, d) * size;
                    CHECK(memcmp(from, data + at, size) == 0);
                }
}

static void test_layout_names(void)
{
    CHECK_TEXT("plain", layout_name(LAYOUT_PLAIN));
    CHECK_TEXT("nhwc", layout_name(LAYOUT_NHWC));
    CHECK_TEXT("hwio", layout_name(LAYOUT_HWIO));
    CHECK_TEXT("io", layout_name(LAYOUT_IO));
    CHECK_TEXT("wio", layout_name(LAYOUT_WIO));
    CHECK_TEXT("ohwi", layout_name(LAYOUT_OHWI));
}

static void test_plain_takes_any_rank(void)
{
    const int64_t dims[] = { 2, 1, 3 };
    const struct shape scalar = shape_of(0, NULL), shape = shape_of(3, dims);
    const float plain[6] = { 1, 2, 3, 4, 5, 6 };
    float data[6] = { 0 };

    layout_from_plain(LAYOUT_PLAIN, &scalar, sizeof(float), plain, data);
    CHECK(data[0] == 1 && data[1] == 0);
    layout_to_plain(LAYOUT_PLAIN, &shape, sizeof(float), plain, data);
    CHECK(memcmp(plain, data, sizeof plain) == 0);
}

const struct test tests[] = {
    { .name = "printing", .run = test_printing },
    { .name = "equality", .run = test_equality },
    { .name = "counts", .run = test_counts },
    { .name = "layouts place elements", .property = test_layouts_place_elements },
    { .name = "layout names", .run = test_layout_names },
    { .name = "plain takes any rank", .run = test_plain_takes_any_rank },
    { 0 },
};
