/* SPDX-License-Identifier: MIT */
/* safetensors_test.c - what is written reads back; what is damaged is refused. */
#include "tensor/safetensors.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/test.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_ENTRIES = 8, MAX_DATA = 1024, MAX_NAME = 48, MAX_FILE = 1 << 20 };

static const char *path_of(const char *name)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    return path;
}

/* A copy of exactly its length on the heap, so that a sanitizer sees a read past the end. */
static char *copy_bytes(const void *bytes, size_t length)
{
    char *copy;

    CHECK_OK(mem_alloc(length, 1, &copy));
    if (length > 0)
        memcpy(copy, bytes, length);
    return copy;
}

static size_t bytes_of(const struct safetensors_entry *entry)
{
    return (size_t)shape_count(&entry->shape) * dtype_size(entry->dtype);
}

/* Reads every byte of every tensor and finds each by its name. */
static unsigned walk(const struct safetensors *file)
{
    unsigned sum = 0;

    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_entry *entry = safetensors_at(file, i);
        const unsigned char *data = entry->data;

        for (size_t j = 0; j < bytes_of(entry); j++)
            sum += data[j];
        CHECK(safetensors_find(file, entry->name) == entry);
    }
    return sum;
}

/* Reads `bytes` and walks what it holds. */
static enum status parse_copy(const void *bytes, size_t length)
{
    struct safetensors *file;
    char *copy = copy_bytes(bytes, length);
    const enum status status = safetensors_parse(copy, length, &file);

    if (status == STATUS_OK) {
        (void)walk(file);
        safetensors_close(file);
    }
    mem_free(copy);
    return status;
}

/* The golden files: one by the reference implementation (safetensors 0.8.0 for Python), one
 * ours. */

#define REFERENCE_HEADER                                                                       \
    "{\"__metadata__\":{\"format\":\"pt\"},"                                                   \
    "\"a.weight\":{\"dtype\":\"I64\",\"shape\":[2,3],\"data_offsets\":[0,48]},"                \
    "\"e\":{\"dtype\":\"F64\",\"shape\":[0,3],\"data_offsets\":[48,48]},"                      \
    "\"b.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[48,56]},"                   \
    "\"\xc3\xa9\\\"\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[56,58]},"             \
    "\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[58,59]}}"
#define REFERENCE_DATA                                                                         \
    "\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0"         \
    "\6\0\0\0\0\0\0\0\0\0\xc0?\0\0\0\xc0\0<\7"

static const char reference[] =
    "H\1\0\0\0\0\0\0" REFERENCE_HEADER "     " REFERENCE_DATA; /* padded to 8 bytes */
static const char ours[] =
    "x\1\0\0\0\0\0\0" REFERENCE_HEADER
    "                                                     " REFERENCE_DATA;

static const int64_t reference_weight[6] = { 1, 2, 3, 4, 5, 6 };
static const float reference_bias[2] = { 1.5f, -2 };
static const uint16_t reference_half[1] = { 0x3c00 };
static const uint8_t reference_byte[1] = { 7 };
static const struct safetensors_entry reference_entries[5] = {
    { "a.weight", DTYPE_I64, { 2, { 2, 3 } }, reference_weight },
    { "e", DTYPE_F64, { 2, { 0, 3 } }, NULL },
    { "b.bias", DTYPE_F32, { 1, { 2 } }, reference_bias },
    { "\xc3\xa9\"", DTYPE_F16, { 1, { 1 } }, reference_half },
    { "s", DTYPE_U8, { 0, { 0 } }, reference_byte },
};
static const struct safetensors_pair reference_metadata[1] = { { "format", "pt" } };

static void check_entries(const struct safetensors *file,
                          const struct safetensors_entry *entries, size_t count)
{
    CHECK_INT(count, safetensors_count(file));
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_entry *read = safetensors_at(file, i);

        CHECK_TEXT(entries[i].name, read->name);
        CHECK_INT(entries[i].dtype, read->dtype);
        CHECK(shape_equal(&entries[i].shape, &read->shape));
        CHECK(bytes_of(read) == 0 || memcmp(entries[i].data, read->data, bytes_of(read)) == 0);
        CHECK(safetensors_find(file, entries[i].name) == read);
    }
    CHECK(!safetensors_find(file, "absent"));
    CHECK(!safetensors_find(file, "__metadata__"));
}

static void test_a_file_of_the_reference_implementation_reads(void)
{
    struct safetensors *file;
    char *copy = copy_bytes(reference, sizeof reference - 1);

    CHECK_OK(safetensors_parse(copy, sizeof reference - 1, &file));
    check_entries(file, reference_entries, 5);
    CHECK_TEXT("pt", safetensors_metadata(file, "format"));
    CHECK(!safetensors_metadata(file, "absent"));
    safetensors_close(file);
    mem_free(copy);
}

static void test_golden_bytes_are_written(void)
{
    char *text, sha256[SHA256_HEX], expected[SHA256_HEX];
    size_t length;
    struct sha256 hash;

    CHECK_OK(
        safetensors_write(path_of("a"), reference_entries, 5, reference_metadata, 1, sha256));
    CHECK_OK(file_read(path_of("a"), MAX_FILE, &text, &length));
    CHECK_INT(sizeof ours - 1, length);
    CHECK(memcmp(ours, text, length) == 0);
    mem_free(text);

    sha256_init(&hash);
    sha256_add(&hash, ours, sizeof ours - 1);
    sha256_end_hex(&hash, expected);
    CHECK_TEXT(expected, sha256);
}

/* Gives the data of one entry after the other from the same memory; fails at entry `fails`. */
struct reading {
    const struct safetensors_entry *next;
    size_t left;
    char memory[1024];
};

static enum status read_next(void *arg, const struct safetensors_entry *entry,
                             const void **out_data)
{
    struct reading *reading = arg;
    const struct safetensors_entry *given = reading->next++;

    CHECK_TEXT(given->name, entry->name);
    if (reading->left-- == 0)
        return FAIL(STATUS_IO, "no more");
    const size_t bytes = (size_t)shape_count(&given->shape) * dtype_size(given->dtype);
    CHECK(bytes <= sizeof reading->memory);
    if (bytes > 0)
        memcpy(reading->memory, given->data, bytes);
    *out_data = reading->memory;
    return STATUS_OK;
}

static void test_data_may_come_when_its_turn_is(void)
{
    struct safetensors_entry empty[5];
    struct reading reading = { .next = reference_entries, .left = 5 };
    const struct safetensors_source source = { read_next, &reading };
    char *text;
    size_t length;

    memcpy(empty, reference_entries, sizeof empty);
    for (int i = 0; i < 5; i++)
        empty[i].data = NULL;
    CHECK_OK(
        safetensors_write_from(path_of("b"), empty, 5, reference_metadata, 1, &source, NULL));
    CHECK_OK(file_read(path_of("b"), MAX_FILE, &text, &length));
    CHECK_INT(sizeof ours - 1, length);
    CHECK(memcmp(ours, text, length) == 0);
    mem_free(text);

    reading = (struct reading){ .next = reference_entries, .left = 3 };
    CHECK_STATUS(STATUS_IO, safetensors_write_from(path_of("c"), empty, 5, reference_metadata,
                                                   1, &source, NULL));
    CHECK(!file_exists(path_of("c")));
}

static void test_a_file_without_tensors_works(void)
{
    struct safetensors *file;
    char *text;
    size_t length;

    CHECK_OK(safetensors_write(path_of("empty"), NULL, 0, NULL, 0, NULL));
    CHECK_OK(safetensors_open(path_of("empty"), &file));
    CHECK_INT(0, safetensors_count(file));
    CHECK(!safetensors_metadata(file, "format"));
    CHECK(!safetensors_find(file, ""));
    safetensors_close(file);

    CHECK_OK(file_read(path_of("empty"), MAX_FILE, &text, &length));
    CHECK_INT(64, length);
    mem_free(text);

    CHECK_OK(safetensors_write(path_of("empty"), NULL, 0, reference_metadata, 1, NULL));
    CHECK_OK(safetensors_open(path_of("empty"), &file));
    CHECK_INT(0, safetensors_count(file));
    CHECK_TEXT("pt", safetensors_metadata(file, "format"));
    safetensors_close(file);
    safetensors_close(NULL);
}

/* Random files */

/* A name of any characters but NUL, made different from the others by its number. */
static void draw_name(struct rng *rng, size_t number, char out[MAX_NAME])
{
    size_t length = (size_t)snprintf(out, MAX_NAME, "%zu", number);

    for (uint64_t left = rng_below(rng, 10); left > 0; left--) {
        uint32_t code = 1 + (uint32_t)rng_below(rng, rng_below(rng, 2) ? 0x7f : 0x10ffff);
        if (code >= 0xd800 && code <= 0xdfff)
            code = '"';
        length += utf8_encode(code, out + length);
    }
    out[length] = '\0';
}

static struct shape draw_shape(struct rng *rng)
{
    struct shape shape = { .rank = (int)rng_below(rng, SHAPE_MAX + 1) };

    for (int i = 0; i < shape.rank; i++)
        shape.dim[i] = (int64_t)rng_below(rng, 4); /* 3^6 elements at most; 0 included */
    return shape;
}

static void test_random_entries_read_back(struct rng *rng)
{
    static uint8_t data[MAX_ENTRIES * 729 * 8];
    char names[MAX_ENTRIES][MAX_NAME], keys[MAX_ENTRIES][MAX_NAME], sha256[2][SHA256_HEX];
    struct safetensors_entry entries[MAX_ENTRIES];
    struct safetensors_pair metadata[MAX_ENTRIES];
    const size_t n_entries = rng_below(rng, MAX_ENTRIES + 1);
    const size_t n_metadata = rng_below(rng, MAX_ENTRIES + 1);
    struct safetensors *file;
    size_t used = 0;

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)rng_u32(rng);
    for (size_t i = 0; i < n_entries; i++) {
        draw_name(rng, i, names[i]);
        entries[i] =
            (struct safetensors_entry){ .name = names[i],
                                        .dtype = (enum dtype)rng_below(rng, DTYPE_COUNT),
                                        .shape = draw_shape(rng),
                                        .data = data + used };
        used += bytes_of(&entries[i]);
    }
    for (size_t i = 0; i < n_metadata; i++) {
        draw_name(rng, i, keys[i]);
        metadata[i] = (struct safetensors_pair){ keys[i], keys[n_metadata - 1 - i] };
        if (n_metadata - 1 - i > i)
            metadata[i].text = "text";
    }

    CHECK_OK(
        safetensors_write(path_of("a"), entries, n_entries, metadata, n_metadata, sha256[0]));
    CHECK_OK(safetensors_open(path_of("a"), &file));
    check_entries(file, entries, n_entries);
    for (size_t i = 0; i < n_metadata; i++)
        CHECK_TEXT(metadata[i].text, safetensors_metadata(file, metadata[i].key));
    if (n_entries > 0) /* where the data starts */
        CHECK_INT(0, (uintptr_t)safetensors_at(file, 0)->data % 64);
    safetensors_close(file);

    CHECK_OK(
        safetensors_write(path_of("b"), entries, n_entries, metadata, n_metadata, sha256[1]));
    CHECK_TEXT(sha256[0], sha256[1]);
}

/* Damage */

static void test_every_truncation_is_refused(void)
{
    const size_t data_at = 8 + 0x148;

    for (size_t length = 0; length < sizeof reference - 1; length++) {
        CHECK_STATUS(STATUS_CORRUPT, parse_copy(reference, length));
        CHECK_MESSAGE(length < 8         ? "too few for a safetensors file"
                      : length < data_at ? "header length 328 exceeds the file"
                                         : "lies at");
    }
    CHECK_STATUS(STATUS_CORRUPT, parse_copy(reference, sizeof reference)); /* a byte too many */
    CHECK_OK(parse_copy(reference, sizeof reference - 1));
}

/* A damaged header is refused or tells of tensors that lie within the file; a damaged length
 * is refused; damaged data is not the format's to notice. */
static void test_every_flipped_bit_is_refused_or_harmless(void)
{
    enum { LENGTH = sizeof ours - 1 };
    static const size_t data_at = 8 + 0x178;
    char bytes[LENGTH];
    size_t n_refused = 0;

    memcpy(bytes, ours, LENGTH);
    for (size_t bit = 0; bit < (size_t)LENGTH * 8; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        const enum status status = parse_copy(bytes, LENGTH);
        bytes[bit / 8] ^= (char)(1 << bit % 8);

        CHECK(status == STATUS_OK || status == STATUS_CORRUPT || status == STATUS_UNSUPPORTED);
        if (bit < 64)
            CHECK(status == STATUS_CORRUPT);
        if (bit / 8 >= data_at)
            CHECK(status == STATUS_OK);
        n_refused += status != STATUS_OK;
    }
    CHECK(n_refused > data_at * 4); /* a name may change and the file stays good */
}

static void test_random_damage_never_crashes(struct rng *rng)
{
    enum { LENGTH = sizeof ours - 1 };
    char bytes[LENGTH];

    for (int round = 0; round < 50; round++) {
        memcpy(bytes, ours, LENGTH);
        for (uint64_t left = 1 + rng_below(rng, 8); left > 0; left--) {
            static const char useful[] = "0123456789-,:[]{}\"\\ eE.";
            bytes[rng_below(rng, LENGTH)] = rng_below(rng, 2)
                                                ? (char)rng_u32(rng)
                                                : useful[rng_below(rng, sizeof useful - 1)];
        }
        (void)parse_copy(bytes, rng_below(rng, 4) ? LENGTH : rng_below(rng, LENGTH));
    }
}

/* A file with this header and `data_bytes` of data. */
static enum status parse_header(const char *header, size_t data_bytes)
{
    char bytes[8 + MAX_DATA + MAX_DATA] = { 0 };
    const size_t length = strlen(header);

    CHECK(length <= MAX_DATA && data_bytes <= MAX_DATA);
    bytes[0] = (char)(length & 0xff);
    bytes[1] = (char)(length >> 8);
    memcpy(bytes + 8, header, length);
    return parse_copy(bytes, 8 + length + data_bytes);
}

#define TENSOR(dtype, shape, offsets)                                                          \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_wrong_headers_are_refused(void)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        enum status status;
        const char *reason;
    } cases[] = {
        { "", 0, STATUS_CORRUPT, "does not start with {" },
        { " {}", 0, STATUS_CORRUPT, "does not start with {" },
        { "[]", 0, STATUS_CORRUPT, "does not start with {" },
        { "{", 0, STATUS_CORRUPT, "json" },
        { "{}}", 0, STATUS_CORRUPT, "json" },
        { "{\"w\":" TENSOR("U8", "[1]", "[0,1]") ",\"w\":" TENSOR("U8", "[1]", "[1,2]") "}", 2,
          STATUS_CORRUPT, "duplicate" },
        { "{\"\xff\":" TENSOR("U8", "[1]", "[0,1]") "}", 1, STATUS_CORRUPT, "UTF-8" },
        { "{\"a\\u0000b\":" TENSOR("U8", "[1]", "[0,1]") "}", 1, STATUS_CORRUPT, "NUL" },
        { "{\"w\":1}", 0, STATUS_CORRUPT, "lacks" },
        { "{\"w\":{\"shape\":[],\"data_offsets\":[0,1]}}", 1, STATUS_CORRUPT, "lacks" },
        { "{\"w\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, STATUS_CORRUPT, "lacks" },
        { "{\"w\":{\"dtype\":\"U8\",\"shape\":[]}}", 1, STATUS_CORRUPT, "lacks" },
        { "{\"w\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,1]}}", 1, STATUS_CORRUPT,
          "lacks" },
        { "{\"w\":" TENSOR("U8", "1", "[0,1]") "}", 1, STATUS_CORRUPT, "lacks" },
        { "{\"w\":" TENSOR("U8", "[1]", "[0]") "}", 1, STATUS_CORRUPT, "lacks" },
        { "{\"w\":" TENSOR("U8", "[1]", "[0,1,2]") "}", 1, STATUS_CORRUPT, "lacks" },
        { "{\"w\":" TENSOR("U8", "[1]", "[-1,0]") "}", 1, STATUS_CORRUPT, "lacks" },
        { "{\"w\":" TENSOR("U8", "[1]", "[0.0,1.0]") "}", 1, STATUS_CORRUPT, "lacks" },
        { "{\"w\":" TENSOR("U8", "[1]", "[\"0\",\"1\"]") "}", 1, STATUS_CORRUPT, "lacks" },
        { "{\"w\":" TENSOR("U8", "[1]", "[0,18446744073709551615]") "}", 1, STATUS_CORRUPT,
          "lacks" },
        { "{\"w\":" TENSOR("U8", "[-1]", "[0,1]") "}", 1, STATUS_CORRUPT, "no size" },
        { "{\"w\":" TENSOR("U8", "[1.0]", "[0,1]") "}", 1, STATUS_CORRUPT, "no size" },
        { "{\"w\":" TENSOR("U8", "[null]", "[0,1]") "}", 1, STATUS_CORRUPT, "no size" },
        { "{\"w\":" TENSOR("U8", "[1]", "[1,0]") "}", 1, STATUS_CORRUPT, "lies at" },
        { "{\"w\":" TENSOR("U8", "[2]", "[0,2]") "}", 1, STATUS_CORRUPT, "lies at" },
        { "{\"w\":" TENSOR("U8", "[1]", "[9223372036854775806,9223372036854775807]") "}", 1,
          STATUS_CORRUPT, "lies at" },
        { "{\"w\":" TENSOR("F32", "[1]", "[0,1]") "}", 1, STATUS_CORRUPT, "do not fit" },
        { "{\"w\":" TENSOR("U8", "[4294967296,4294967296,4]", "[0,0]") "}", 0, STATUS_CORRUPT,
          "do not fit" },
        { "{\"w\":" TENSOR("U8", "[4294967296,4294967296,4,0]", "[0,0]") "}", 0, STATUS_CORRUPT,
          "do not fit" },
        { "{\"w\":" TENSOR("F64", "[9223372036854775807]", "[0,8]") "}", 8, STATUS_CORRUPT,
          "do not fit" },
        { "{\"v\":" TENSOR("U8", "[2]", "[0,2]") ",\"w\":" TENSOR("U8", "[2]", "[1,3]") "}", 3,
          STATUS_CORRUPT, "starts at" },
        { "{\"v\":" TENSOR("U8", "[2]", "[0,2]") ",\"w\":" TENSOR("U8", "[2]", "[0,2]") "}", 2,
          STATUS_CORRUPT, "starts at" },
        { "{\"v\":" TENSOR("U8", "[1]", "[0,1]") ",\"w\":" TENSOR("U8", "[1]", "[2,3]") "}", 3,
          STATUS_CORRUPT, "starts at" },
        { "{\"w\":" TENSOR("U8", "[1]", "[1,2]") "}", 2, STATUS_CORRUPT, "starts at" },
        { "{\"w\":" TENSOR("U8", "[1]", "[0,1]") "}", 2, STATUS_CORRUPT, "cover 1 of 2" },
        { "{}", 1, STATUS_CORRUPT, "cover 0 of 1" },
        { "{\"__metadata__\":[]}", 0, STATUS_CORRUPT, "text to text" },
        { "{\"__metadata__\":{\"a\":1}}", 0, STATUS_CORRUPT, "text to text" },
        { "{\"w\":" TENSOR("BOOL", "[1]", "[0,1]") "}", 1, STATUS_UNSUPPORTED, "BOOL" },
        { "{\"w\":" TENSOR("u8", "[1]", "[0,1]") "}", 1, STATUS_UNSUPPORTED, "u8" },
        { "{\"w\":" TENSOR("U8", "[1,1,1,1,1,1,1]", "[0,1]") "}", 1, STATUS_UNSUPPORTED,
          "dimensions" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const enum status status = parse_header(cases[i].header, cases[i].data_bytes);

        if (status != cases[i].status)
            test_fail(__FILE__, __LINE__, "%s: %s", cases[i].header, status_name(status));
        CHECK_MESSAGE(cases[i].reason);
    }
}

static void test_unusual_headers_are_read(void)
{
    static const struct {
        const char *header;
        size_t data_bytes;
    } cases[] = {
        { "{}", 0 },
        { "{}    ", 0 },
        { "{ \"w\" : " TENSOR("U8", "[ 1 ]", "[ 0 , 1 ]") " }\n", 1 },
        { "{\"\":" TENSOR("U8", "[1]", "[0,1]") "}", 1 }, /* a name may be empty */
        { "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":{}}}", 1 },
        /* data in another order than the header, with empty tensors at every place */
        { "{\"d\":" TENSOR("U8", "[0]", "[3,3]") ",\"c\":" TENSOR(
              "U8", "[2]",
              "[1,3]") ",\"b\":" TENSOR("U8", "[0]",
                                        "[1,1]") ",\"a\":" TENSOR("U8", "[1]",
                                                                  "[0,1]") ",\"z\":" TENSOR("U"
                                                                                            "8",
                                                                                            "[0"
                                                                                            "]",
                                                                                            "[0"
                                                                                            ",0"
                                                                                            "]") "}",
          3 },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_OK(parse_header(cases[i].header, cases[i].data_bytes));
}

static void test_a_header_over_the_limit_is_refused(void)
{
    const uint32_t limit = 100000000;
    char *bytes;

    CHECK_OK(mem_alloc(8 + limit + 1, 1, &bytes));
    memset(bytes + 8, ' ', limit + 1);
    memcpy(bytes + 8, "{}", 2);
    for (uint32_t header = limit; header <= limit + 1; header++) {
        struct safetensors *file = NULL;

        for (int i = 0; i < 4; i++)
            bytes[i] = (char)(header >> (8 * i));
        CHECK_STATUS(header == limit ? STATUS_OK : STATUS_CORRUPT,
                     safetensors_parse(bytes, 8 + header, &file));
        safetensors_close(file);
    }
    CHECK_MESSAGE("exceeds 100000000");
    mem_free(bytes);
}

static void test_files_that_are_none_are_refused(void)
{
    struct safetensors *file;

    CHECK_STATUS(STATUS_NOT_FOUND, safetensors_open(path_of("absent"), &file));
    CHECK_MESSAGE("absent");
    CHECK_OK(file_replace(path_of("text"), "{\"this\": \"is JSON, no safetensors\"}", 36));
    CHECK_STATUS(STATUS_CORRUPT, safetensors_open(path_of("text"), &file));
    CHECK_MESSAGE("/text: ");
    CHECK_OK(file_replace(path_of("nothing"), "", 0));
    CHECK_STATUS(STATUS_CORRUPT, safetensors_open(path_of("nothing"), &file));
    CHECK_STATUS(STATUS_IO, safetensors_open(test_folder(), &file));
}

static void test_impossible_entries_are_not_written(void)
{
    const uint8_t byte = 1;
    const struct safetensors_entry good = { "w", DTYPE_U8, { 1, { 1 } }, &byte };
    struct safetensors_entry bad[2] = { good, good };
    struct safetensors_pair pairs[2] = { { "a", "1" }, { "a", "2" } };

    CHECK_STATUS(STATUS_USAGE, safetensors_write(path_of("a"), bad, 2, NULL, 0, NULL));
    CHECK_MESSAGE("twice");
    CHECK_STATUS(STATUS_USAGE, safetensors_write(path_of("a"), bad, 1, pairs, 2, NULL));
    CHECK_MESSAGE("twice");
    pairs[0].text = "\xff";
    CHECK_STATUS(STATUS_USAGE, safetensors_write(path_of("a"), bad, 1, pairs, 1, NULL));
    bad[0].name = "__metadata__";
    CHECK_STATUS(STATUS_USAGE, safetensors_write(path_of("a"), bad, 1, NULL, 0, NULL));
    bad[0].name = "\xc3";
    CHECK_STATUS(STATUS_USAGE, safetensors_write(path_of("a"), bad, 1, NULL, 0, NULL));
    bad[0] = good;
    bad[0].shape.dim[0] = -1;
    CHECK_STATUS(STATUS_USAGE, safetensors_write(path_of("a"), bad, 1, NULL, 0, NULL));
    bad[0].shape = (struct shape){ 3, { INT64_MAX, 2, 0 } };
    CHECK_STATUS(STATUS_USAGE, safetensors_write(path_of("a"), bad, 1, NULL, 0, NULL));
    bad[0].shape.rank = SHAPE_MAX + 1;
    CHECK_STATUS(STATUS_USAGE, safetensors_write(path_of("a"), bad, 1, NULL, 0, NULL));
    CHECK(!file_exists(path_of("a")));

    CHECK_STATUS(STATUS_NOT_FOUND,
                 safetensors_write(path_of("absent/a"), &good, 1, NULL, 0, NULL));
}

/* The nth allocation fails, for every n that there is. */
static void test_failed_allocations_are_reported(void)
{
    enum status status = STATUS_NO_MEMORY;
    struct safetensors *file = NULL;
    int n;

    for (n = 1; status != STATUS_OK; n++) {
        mem_fail_at((uint64_t)n);
        status =
            safetensors_write(path_of("a"), reference_entries, 5, reference_metadata, 1, NULL);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
        CHECK(file_exists(path_of("a")) == (status == STATUS_OK));
    }
    CHECK(n > 4);

    status = STATUS_NO_MEMORY;
    for (n = 1; status != STATUS_OK; n++) {
        mem_fail_at((uint64_t)n);
        status = safetensors_open(path_of("a"), &file);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || (status == STATUS_NO_MEMORY && !file));
    }
    CHECK(n > 4);
    check_entries(file, reference_entries, 5);
    safetensors_close(file);
}

static void test_a_device_is_not_replaced(void)
{
    struct stat about;

    if (stat("/dev/full", &about) != 0 || !S_ISCHR(about.st_mode))
        test_skip("there is no /dev/full");
    CHECK_STATUS(STATUS_IO,
                 safetensors_write("/dev/full", reference_entries, 5, NULL, 0, NULL));
    CHECK(stat("/dev/full", &about) == 0 && S_ISCHR(about.st_mode));
}

const struct test tests[] = {
    { .name = "a file of the reference implementation reads",
      .run = test_a_file_of_the_reference_implementation_reads },
    { .name = "golden bytes are written", .run = test_golden_bytes_are_written },
    { .name = "data may come when its turn is", .run = test_data_may_come_when_its_turn_is },
    { .name = "a file without tensors works", .run = test_a_file_without_tensors_works },
    { .name = "random entries read back", .property = test_random_entries_read_back },
    { .name = "every truncation is refused", .run = test_every_truncation_is_refused },
    { .name = "every flipped bit is refused or harmless",
      .run = test_every_flipped_bit_is_refused_or_harmless },
    { .name = "random damage never crashes", .property = test_random_damage_never_crashes },
    { .name = "wrong headers are refused", .run = test_wrong_headers_are_refused },
    { .name = "unusual headers are read", .run = test_unusual_headers_are_read },
    { .name = "a header over the limit is refused",
      .run = test_a_header_over_the_limit_is_refused },
    { .name = "files that are none are refused", .run = test_files_that_are_none_are_refused },
    { .name = "impossible entries are not written",
      .run = test_impossible_entries_are_not_written },
    { .name = "failed allocations are reported", .run = test_failed_allocations_are_reported },
    { .name = "a device is not replaced", .run = test_a_device_is_not_replaced },
    { 0 },
};
