/* SPDX-License-Identifier: MIT */
/* idx_test.c - IDX files are read as they were written; every kind of damage is named. */
#include "data/idx.h"

#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"

#include <string.h>

static struct data_testing_file images(struct rng *rng)
{
    return data_testing_idx(rng, IDX_IMAGES, (int64_t[]){ 5, 4, 3 }, 256);
}

static struct data_testing_file labels(struct rng *rng)
{
    return data_testing_idx(rng, IDX_LABELS, (int64_t[]){ 5 }, 10);
}

/* Parses what must be refused, with `part` in the message. */
static void check_refused(const char *path, const uint8_t *bytes, size_t length,
                          enum idx_kind kind, const char *part)
{
    struct idx idx;

    CHECK_STATUS(STATUS_CORRUPT, idx_parse(path, bytes, length, kind, &idx));
    CHECK_MESSAGE(path);
    CHECK_MESSAGE(part);
}

static void test_written_files_are_read_back(struct rng *rng)
{
    const enum idx_kind kind = rng_below(rng, 2) ? IDX_IMAGES : IDX_LABELS;
    const int64_t dim[] = { 1 + (int64_t)rng_below(rng, 50), 1 + (int64_t)rng_below(rng, 20),
                            1 + (int64_t)rng_below(rng, 20) };
    const int limit = 1 + (int)rng_below(rng, 256); /* 1 packs best, 256 not at all */
    struct data_testing_file file = data_testing_idx(rng, kind, dim, limit);
    const struct data_testing_file plain = { file.bytes, file.length };
    struct data_testing_file packed = { 0 };
    struct idx idx;

    CHECK_OK(idx_parse("x", plain.bytes, plain.length, kind, &idx));
    CHECK(idx.file == plain.bytes && idx.data == plain.bytes + 4 + 4 * (int)kind);
    for (int i = 0; i < (int)kind; i++)
        CHECK_INT(dim[i], idx.dim[i]);
    idx_release(&idx);

    if (data_testing_has_zlib()) {
        CHECK_OK(mem_alloc(plain.length, 1, &packed.bytes));
        memcpy(packed.bytes, plain.bytes, plain.length);
        packed.length = plain.length;
        data_testing_pack(&packed);
        CHECK_OK(idx_parse("x.gz", packed.bytes, packed.length, kind, &idx));
        CHECK_INT(plain.length, idx.length);
        CHECK(memcmp(idx.file, plain.bytes, plain.length) == 0);
        CHECK(idx.data == idx.file + 4 + 4 * (int)kind);
        idx_release(&idx);
    }
    mem_free(packed.bytes);
    mem_free(plain.bytes);
}

static void test_every_shorter_and_longer_file_is_refused(void)
{
    struct rng rng;
    uint8_t longer[128];

    rng_init(&rng, 1, 0);
    struct data_testing_file file = images(&rng);
    for (size_t length = 0; length < file.length; length++)
        check_refused("x", file.bytes, length, IDX_IMAGES,
                      length == 0   ? "is empty"
                      : length < 4  ? "not an IDX file: it has only"
                      : length < 16 ? "ends within its header"
                                    : "is cut short");
    memcpy(longer, file.bytes, file.length);
    check_refused("x", longer, file.length + 3, IDX_IMAGES, "has 3 bytes after its end");
    mem_free(file.bytes);
}

static void test_wrong_beginnings_are_named(void)
{
    static const uint8_t PNG[] = { 0x89, 'P', 'N', 'G', 0, 0, 0, 0 };
    static const uint8_t UNKNOWN_TYPE[] = { 0, 0, 0x0a, 1, 0, 0, 0, 1, 0 };
    static const uint8_t FLOATS[] = { 0, 0, 0x0d, 1, 0, 0, 0, 1, 0, 0, 0, 0 };
    static const uint8_t TWO_DIMENSIONS[] = { 0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 1, 7 };
    static const uint8_t PACKED[] = { 0x1f, 0x8b, 8, 0 };
    struct rng rng;
    struct idx idx;

    check_refused("x", PNG, sizeof PNG, IDX_LABELS,
                  "is not an IDX file: it starts with 89504e47");
    check_refused("x", UNKNOWN_TYPE, sizeof UNKNOWN_TYPE, IDX_LABELS, "is not an IDX file");
    check_refused("x", TWO_DIMENSIONS, sizeof TWO_DIMENSIONS, IDX_LABELS,
                  "has 2 dimensions where 1 were expected");
    check_refused("x", PACKED, sizeof PACKED, IDX_LABELS, "is a gzip file");
    CHECK_STATUS(STATUS_UNSUPPORTED, idx_parse("x", FLOATS, sizeof FLOATS, IDX_LABELS, &idx));
    CHECK_MESSAGE("holds 32-bit numbers where unsigned bytes are expected");

    rng_init(&rng, 2, 0);
    struct data_testing_file image_file = images(&rng), label_file = labels(&rng);
    check_refused("x", image_file.bytes, image_file.length, IDX_LABELS,
                  "is an image file where labels were expected");
    check_refused("x", label_file.bytes, label_file.length, IDX_IMAGES,
                  "is a label file where images were expected");
    mem_free(image_file.bytes);
    mem_free(label_file.bytes);
}

static void test_impossible_dimensions_are_refused(void)
{
    static const uint8_t NO_LABELS[] = { 0, 0, 8, 1, 0, 0, 0, 0 };
    static const uint8_t NO_IMAGES[] = { 0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1 };
    static const uint8_t NO_PIXELS[] = { 0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1 };
    static const uint8_t OVERFLOW[] = { 0,    0,    8,    3,    0xff, 0xff, 0xff, 0xff,
                                        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
    /* 2^31 x 2^31 x 4 wraps to 0 in 64 bits */
    static const uint8_t WRAPS[] = { 0, 0, 8, 3, 0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 4 };
    static const uint8_t LARGE[] = { 0, 0, 8, 3, 0x7f, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0x10, 0 };

    check_refused("x", NO_LABELS, sizeof NO_LABELS, IDX_LABELS, "holds no labels");
    check_refused("x", NO_IMAGES, sizeof NO_IMAGES, IDX_IMAGES, "holds no images");
    check_refused("x", NO_PIXELS, sizeof NO_PIXELS, IDX_IMAGES, "0x1 pixels");
    check_refused("x", OVERFLOW, sizeof OVERFLOW, IDX_IMAGES, "more than memory can hold");
    check_refused("x", WRAPS, sizeof WRAPS, IDX_IMAGES, "more than memory can hold");
    check_refused("x", LARGE, sizeof LARGE, IDX_IMAGES, "is cut short");
}

static struct data_testing_file packed_images(void)
{
    struct rng rng;

    if (!data_testing_has_zlib())
        test_skip("built without zlib");
    rng_init(&rng, 3, 0);
    struct data_testing_file file = images(&rng);
    data_testing_pack(&file);
    return file;
}

static void test_every_shorter_and_longer_packed_file_is_refused(void)
{
    struct data_testing_file file = packed_images();
    uint8_t longer[256];

    check_refused("x.gz", file.bytes, 0, IDX_IMAGES, "is empty");
    for (size_t length = 1; length < file.length; length++)
        check_refused("x.gz", file.bytes, length, IDX_IMAGES,
                      length < 2 ? "is not a gzip file" : "cut short");
    memcpy(longer, file.bytes, file.length);
    memset(longer + file.length, 0, 2);
    check_refused("x.gz", longer, file.length + 2, IDX_IMAGES, "has 2 bytes after the end");
    mem_free(file.bytes);
}

/* A changed bit is found by the format or the checksum, unless it is padding. */
static void test_damaged_packed_files_are_refused(struct rng *rng)
{
    struct data_testing_file file = packed_images();
    const size_t at = rng_below(rng, file.length);
    struct idx good, idx;

    CHECK_OK(idx_parse("x.gz", file.bytes, file.length, IDX_IMAGES, &good));
    file.bytes[at] ^= (uint8_t)(1u << rng_below(rng, 8));
    const enum status status = idx_parse("x.gz", file.bytes, file.length, IDX_IMAGES, &idx);
    if (status == STATUS_OK) {
        CHECK(memcmp(good.file, idx.file, good.length) == 0);
        idx_release(&idx);
    } else {
        CHECK(status == STATUS_CORRUPT || status == STATUS_UNSUPPORTED);
        CHECK_MESSAGE("x.gz");
    }
    idx_release(&good);
    mem_free(file.bytes);
}

static void test_packed_contents_are_checked(void)
{
    struct data_testing_file longer = packed_images(), empty = { 0 };
    const int64_t five[] = { 5, 4, 3 };
    static const uint8_t BOMB[] = { 0, 0, 8, 3, 0, 0xff, 0xff, 0xff, 0, 0, 1, 0, 0, 0, 1, 0 };
    struct data_testing_file bomb = { 0 };
    struct rng rng;

    mem_free(longer.bytes);
    rng_init(&rng, 4, 0);
    longer = data_testing_idx(&rng, IDX_IMAGES, five, 256);
    longer.bytes[7] = 4; /* one image less than there is */
    data_testing_pack(&longer);
    check_refused("x.gz", longer.bytes, longer.length, IDX_IMAGES, "unpacks to more than");
    mem_free(longer.bytes);

    longer = labels(&rng);
    longer.bytes[7] = 4; /* a single byte too many */
    data_testing_pack(&longer);
    check_refused("x.gz", longer.bytes, longer.length, IDX_LABELS,
                  "unpacks to more than the 12");
    mem_free(longer.bytes);

    longer = data_testing_idx(&rng, IDX_IMAGES, five, 256);
    longer.bytes[7] = 6;
    data_testing_pack(&longer);
    check_refused("x.gz", longer.bytes, longer.length, IDX_IMAGES,
                  "unpacks to 76 bytes instead of 88");
    check_refused("x.gz", longer.bytes, longer.length, IDX_LABELS,
                  "is an image file where labels were expected");
    check_refused("x", longer.bytes, longer.length, IDX_IMAGES, "is a gzip file");
    mem_free(longer.bytes);

    CHECK_OK(mem_alloc(sizeof BOMB, 1, &bomb.bytes));
    memcpy(bomb.bytes, BOMB, sizeof BOMB);
    bomb.length = sizeof BOMB;
    data_testing_pack(&bomb);
    check_refused("x.gz", bomb.bytes, bomb.length, IDX_IMAGES, "packed bytes can hold");
    check_refused("x.gz", BOMB, sizeof BOMB, IDX_IMAGES, "is not a gzip file");
    mem_free(bomb.bytes);

    CHECK_OK(mem_alloc(1, 1, &empty.bytes));
    data_testing_pack(&empty);
    check_refused("x.gz", empty.bytes, empty.length, IDX_IMAGES, "is empty");
    mem_free(empty.bytes);
}

static void test_a_build_without_zlib_says_so(void)
{
    static const uint8_t PACKED[] = { 0x1f, 0x8b, 8, 0 };
    struct idx idx;

    if (data_testing_has_zlib())
        test_skip("built with zlib");
    CHECK_STATUS(STATUS_UNSUPPORTED,
                 idx_parse("x.gz", PACKED, sizeof PACKED, IDX_LABELS, &idx));
    CHECK_MESSAGE("built without zlib");
}

static void test_files_are_found_plain_or_packed(void)
{
    const char *folder = test_folder();
    struct rng rng;
    struct idx idx;

    CHECK_STATUS(STATUS_NOT_FOUND, idx_open(folder, "some", IDX_IMAGES, &idx));
    CHECK_MESSAGE("neither some nor some.gz is there");

    rng_init(&rng, 5, 0);
    struct data_testing_file file = images(&rng);
    if (data_testing_has_zlib()) {
        struct data_testing_file packed = labels(&rng);
        data_testing_pack(&packed);
        data_testing_write(folder, "some.gz", packed.bytes, packed.length);
        mem_free(packed.bytes);
        CHECK_OK(idx_open(folder, "some", IDX_LABELS, &idx));
        CHECK(idx.unpacked != NULL);
        CHECK_INT(5, idx.dim[0]);
        idx_release(&idx);
    }
    data_testing_write(folder, "some", file.bytes, file.length); /* is preferred */
    CHECK_OK(idx_open(folder, "some", IDX_IMAGES, &idx));
    CHECK(idx.unpacked == NULL);
    CHECK(memcmp(idx.file, file.bytes, file.length) == 0);
    idx_release(&idx);

    data_testing_write(folder, "some", file.bytes, 0);
    CHECK_STATUS(STATUS_CORRUPT, idx_open(folder, "some", IDX_IMAGES, &idx));
    CHECK_MESSAGE("some: is empty");
    mem_free(file.bytes);
}

const struct test tests[] = {
    { .name = "written files are read back", .property = test_written_files_are_read_back },
    { .name = "every shorter and longer file is refused",
      .run = test_every_shorter_and_longer_file_is_refused },
    { .name = "wrong beginnings are named", .run = test_wrong_beginnings_are_named },
    { .name = "impossible dimensions are refused",
      .run = test_impossible_dimensions_are_refused },
    { .name = "every shorter and longer packed file is refused",
      .run = test_every_shorter_and_longer_packed_file_is_refused },
    { .name = "damaged packed files are refused",
      .property = test_damaged_packed_files_are_refused },
    { .name = "packed contents are checked", .run = test_packed_contents_are_checked },
    { .name = "a build without zlib says so", .run = test_a_build_without_zlib_says_so },
    { .name = "files are found plain or packed", .run = test_files_are_found_plain_or_packed },
    { 0 },
};
