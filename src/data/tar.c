/* SPDX-License-Identifier: MIT */
/* tar.c - walks the headers of a tar archive. */
#include "data/tar.h"

#include "base/file.h"
#include "base/mem.h"
#include "data/gzip.h"

#include <stdbool.h>
#include <string.h>

/* Fields of a header: where they are and how long. */
enum {
    BLOCK = 512,
    NAME_BYTES = 100,
    SIZE_AT = 124,
    SIZE_BYTES = 12,
    SUM_AT = 148,
    SUM_BYTES = 8,
    KIND_AT = 156,
};

/* Octal digits, then a space or a zero byte; spaces may be before them. */
static bool read_octal(const uint8_t *at, size_t count, uint64_t *out)
{
    size_t i = 0, digits = 0;
    uint64_t value = 0;

    while (i < count && at[i] == ' ')
        i++;
    for (; i < count && at[i] >= '0' && at[i] <= '7'; i++, digits++)
        value = value << 3 | (uint64_t)(at[i] - '0'); /* 12 digits are 36 bits */
    *out = value;
    return digits > 0 && (i == count || at[i] == ' ' || at[i] == '\0');
}

/* The sum of all bytes, those of the sum itself taken as spaces. */
static bool has_right_sum(const uint8_t *header)
{
    uint64_t told, sum = 0;

    for (int i = 0; i < BLOCK; i++)
        sum += i >= SUM_AT && i < SUM_AT + SUM_BYTES ? ' ' : header[i];
    return read_octal(header + SUM_AT, SUM_BYTES, &told) && told == sum;
}

static bool is_zero(const uint8_t *block)
{
    for (int i = 0; i < BLOCK; i++)
        if (block[i] != 0)
            return false;
    return true;
}

/* The last part of the entry's path. */
static bool read_name(const uint8_t *header, char out[NAME_BYTES + 1])
{
    char path[NAME_BYTES + 1] = "";

    memcpy(path, header, NAME_BYTES);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    memcpy(out, name, strlen(name) + 1);
    return name[0] != '\0';
}

static enum status fail_at(const char *path, size_t at, const char *what)
{
    return FAIL(STATUS_CORRUPT, "%s: is no tar archive or damaged at byte %zu: %s", path, at,
                what);
}

enum status tar_read(const char *path, const uint8_t *bytes, size_t length, tar_take *take,
                     void *arg)
{
    for (size_t at = 0;;) {
        const uint8_t *header = bytes + at;
        char name[NAME_BYTES + 1];
        uint64_t size;

        if (length - at < BLOCK)
            return fail_at(path, at, "it is cut short");
        if (is_zero(header))
            return STATUS_OK;
        if (!has_right_sum(header))
            return fail_at(path, at, "the checksum of an entry is wrong");
        if (!read_octal(header + SIZE_AT, SIZE_BYTES, &size))
            return fail_at(path, at, "an entry has no size");
        if (size > length - at - BLOCK)
            return fail_at(path, at, "an entry is longer than the archive");

        switch (header[KIND_AT]) {
        case '0':
        case '\0':
            if (!read_name(header, name))
                return fail_at(path, at, "an entry has no name");
            if (name[0] != '.')
                TRY(take(arg, name, header + BLOCK, (size_t)size));
            break;
        case '5': /* a folder */
        case 'g': /* remarks */
        case 'x':
            break;
        default:
            return fail_at(path, at, "an entry is no file");
        }
        const size_t rest = length - at - BLOCK;
        const size_t padded = ((size_t)size + BLOCK - 1) / BLOCK * BLOCK;
        at += BLOCK + (padded < rest ? padded : rest);
    }
}

static enum status write_file(void *arg, const char *name, const uint8_t *data, size_t length)
{
    const char *const *folder = arg;
    char *path;

    TRY(file_join(*folder, name, &path));
    const enum status status = file_replace(path, data, length);
    mem_free(path);
    return status;
}

/* Unpacks a mapped file as a whole. */
static enum status unpack(const char *path, const struct file_map *map, const char *folder)
{
    const size_t size = gzip_size(map->data, map->length);
    uint8_t *bytes;

    if (size / GZIP_LARGEST_RATIO > map->length)
        return FAIL(STATUS_CORRUPT, "%s: claims %zu bytes, more than %zu packed bytes can hold",
                    path, size, map->length);
    TRY(mem_alloc(size, 1, &bytes));
    enum status status = gzip_unpack(path, map->data, map->length, bytes, size);
    if (status == STATUS_OK)
        status = tar_read(path, bytes, size, write_file, &folder);
    mem_free(bytes);
    return status;
}

enum status tar_unpack(const char *path, const char *folder)
{
    struct file_map map;

    TRY(file_map(path, &map));
    const enum status status = unpack(path, &map, folder);
    file_unmap(&map);
    return status;
}
