/* SPDX-License-Identifier: MIT */
/* idx.c - reads one IDX file, plain or packed. */
#include "data/idx.h"

#include "base/mem.h"
#include "data/gzip.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MAGIC_BYTES = 4, HEADER_MOST = MAGIC_BYTES + 4 * IDX_IMAGES, TYPE_U8 = 0x08 };

static const char *type_name(uint8_t type)
{
    static const struct {
        uint8_t type;
        const char *name;
    } TYPES[] = {
        { 0x09, "signed bytes" },   { 0x0b, "16-bit integers" }, { 0x0c, "32-bit integers" },
        { 0x0d, "32-bit numbers" }, { 0x0e, "64-bit numbers" },
    };

    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++)
        if (TYPES[i].type == type)
            return TYPES[i].name;
    return NULL;
}

/* The first four bytes: is it IDX, of bytes, of this kind? */
static enum status check_magic(const char *path, const uint8_t *head, size_t length,
                               enum idx_kind kind)
{
    if (length == 0)
        return FAIL(STATUS_CORRUPT, "%s: is empty", path);
    if (gzip_has_magic(head, length))
        return FAIL(STATUS_CORRUPT, "%s: is a gzip file; rename it to end in .gz", path);
    if (length < MAGIC_BYTES)
        return FAIL(STATUS_CORRUPT, "%s: is not an IDX file: it has only %zu bytes", path,
                    length);

    const uint8_t type = head[2], rank = head[3];
    if (head[0] != 0 || head[1] != 0 || (type != TYPE_U8 && !type_name(type)))
        return FAIL(STATUS_CORRUPT, "%s: is not an IDX file: it starts with %02x%02x%02x%02x",
                    path, head[0], head[1], head[2], head[3]);
    if (type != TYPE_U8)
        return FAIL(STATUS_UNSUPPORTED, "%s: holds %s where unsigned bytes are expected", path,
                    type_name(type));
    if (kind == IDX_LABELS && rank == IDX_IMAGES)
        return FAIL(STATUS_CORRUPT, "%s: is an image file where labels were expected", path);
    if (kind == IDX_IMAGES && rank == IDX_LABELS)
        return FAIL(STATUS_CORRUPT, "%s: is a label file where images were expected", path);
    if (rank != kind)
        return FAIL(STATUS_CORRUPT, "%s: has %d dimensions where %d were expected", path, rank,
                    (int)kind);
    return STATUS_OK;
}

static int64_t big_endian(const uint8_t *at)
{
    return (int64_t)at[0] << 24 | (int64_t)at[1] << 16 | (int64_t)at[2] << 8 | at[3];
}

/* Checks the header, of which head[0..length) is there, and sets out->dim and out->length. */
static enum status read_header(const char *path, const uint8_t *head, size_t length,
                               enum idx_kind kind, struct idx *out)
{
    const size_t header = MAGIC_BYTES + 4 * (size_t)kind;
    size_t bytes = 1;
    bool overflow = false;

    TRY(check_magic(path, head, length, kind));
    if (length < header)
        return FAIL(STATUS_CORRUPT, "%s: ends within its header, after %zu bytes", path,
                    length);
    for (size_t i = 0; i < (size_t)kind; i++) {
        out->dim[i] = big_endian(head + MAGIC_BYTES + 4 * i);
        overflow |= __builtin_mul_overflow(bytes, (size_t)out->dim[i], &bytes);
    }

    if (out->dim[0] == 0)
        return FAIL(STATUS_CORRUPT, "%s: holds no %s", path,
                    kind == IDX_IMAGES ? "images" : "labels");
    if (kind == IDX_IMAGES && (out->dim[1] == 0 || out->dim[2] == 0))
        return FAIL(STATUS_CORRUPT, "%s: its images have %" PRId64 "x%" PRId64 " pixels", path,
                    out->dim[1], out->dim[2]);
    if (overflow || __builtin_add_overflow(bytes, header, &bytes) || bytes > PTRDIFF_MAX)
        return FAIL(STATUS_CORRUPT,
                    "%s: claims %" PRId64 " images of %" PRId64 "x%" PRId64
                    " pixels, more than memory can hold",
                    path, out->dim[0], out->dim[1], out->dim[2]);
    out->length = bytes;
    return STATUS_OK;
}

static enum status parse_plain(const char *path, const uint8_t *bytes, size_t length,
                               enum idx_kind kind, struct idx *idx)
{
    TRY(read_header(path, bytes, length, kind, idx));
    if (length < idx->length)
        return FAIL(STATUS_CORRUPT, "%s: is cut short: %zu bytes instead of %zu", path, length,
                    idx->length);
    if (length > idx->length)
        return FAIL(STATUS_CORRUPT, "%s: has %zu bytes after its end", path,
                    length - idx->length);
    idx->file = bytes;
    return STATUS_OK;
}

/* The header says how much memory the rest takes; a liar is found out before it is taken. */
static enum status parse_packed(const char *path, const uint8_t *bytes, size_t length,
                                enum idx_kind kind, struct idx *idx)
{
    uint8_t head[HEADER_MOST];
    size_t there;

    if (length == 0)
        return FAIL(STATUS_CORRUPT, "%s: is empty", path);
    TRY(gzip_peek(path, bytes, length, head, sizeof head, &there));
    TRY(read_header(path, head, there, kind, idx));
    if (idx->length / GZIP_LARGEST_RATIO > length)
        return FAIL(STATUS_CORRUPT, "%s: claims %zu bytes, more than %zu packed bytes can hold",
                    path, idx->length, length);

    TRY(mem_alloc(idx->length, 1, &idx->unpacked));
    const enum status status = gzip_unpack(path, bytes, length, idx->unpacked, idx->length);
    if (status != STATUS_OK) {
        mem_free(idx->unpacked);
        return status;
    }
    idx->file = idx->unpacked;
    return STATUS_OK;
}

static bool is_packed_name(const char *path)
{
    const size_t length = strlen(path);

    return length >= 3 && strcmp(path + length - 3, ".gz") == 0;
}

enum status idx_parse(const char *path, const uint8_t *bytes, size_t length, enum idx_kind kind,
                      struct idx *out)
{
    struct idx idx = { 0 };

    if (is_packed_name(path))
        TRY(parse_packed(path, bytes, length, kind, &idx));
    else
        TRY(parse_plain(path, bytes, length, kind, &idx));
    idx.data = idx.file + MAGIC_BYTES + 4 * (size_t)kind;
    *out = idx;
    return STATUS_OK;
}

/* Maps the file; keeps the map only if it is what is used. */
static enum status open_path(const char *path, enum idx_kind kind, struct idx *out)
{
    struct file_map map;

    TRY(file_map(path, &map));
    const enum status status = idx_parse(path, map.data, map.length, kind, out);
    if (status == STATUS_OK && !out->unpacked)
        out->map = map;
    else
        file_unmap(&map);
    return status;
}

enum status idx_open(const char *folder, const char *name, enum idx_kind kind, struct idx *out)
{
    char packed_name[64], *plain = NULL, *packed = NULL;
    enum status status;

    snprintf(packed_name, sizeof packed_name, "%s.gz", name);
    status = file_join(folder, name, &plain);
    if (status == STATUS_OK)
        status = file_join(folder, packed_name, &packed);
    if (status != STATUS_OK)
        goto free_paths;

    if (file_exists(plain))
        status = open_path(plain, kind, out);
    else if (file_exists(packed))
        status = open_path(packed, kind, out);
    else
        status =
            FAIL(STATUS_NOT_FOUND, "%s: neither %s nor %s is there", folder, name, packed_name);

free_paths:
    mem_free(packed);
    mem_free(plain);
    return status;
}

void idx_release(struct idx *idx)
{
    file_unmap(&idx->map);
    mem_free(idx->unpacked);
    *idx = (struct idx){ 0 };
}
