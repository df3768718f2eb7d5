/* SPDX-License-Identifier: MIT */
/* text_file.c - mapping or unpacking a text file, and looking at every byte of it once. */
#include "data/text_file.h"

#include "base/mem.h"
#include "data/gzip.h"
#include "data/unicode.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char PACKED[] = ".gz";

static bool is_packed(const char *name)
{
    const size_t length = strlen(name), ending = sizeof PACKED - 1;

    return length > ending && strcmp(name + length - ending, PACKED) == 0;
}

static int64_t count_lines(const char *from, const char *to)
{
    int64_t lines = 0;

    while (from < to && (from = memchr(from, '\n', (size_t)(to - from)))) {
        from++;
        lines++;
    }
    return lines;
}

enum status text_file_check(const char *path, const char *bytes, size_t length)
{
    if (length == 0)
        return FAIL(STATUS_CORRUPT, "%s: is empty", path);
    const size_t valid = unicode_valid(bytes, length);
    if (valid == length)
        return STATUS_OK;
    if (valid == 0 && gzip_has_magic((const uint8_t *)bytes, length))
        return FAIL(STATUS_CORRUPT, "%s: is a gzip file; rename it to end in .gz", path);
    return FAIL(STATUS_CORRUPT,
                "%s:%" PRId64 ": not UTF-8: byte %zu of the file is 0x%02x; convert it with "
                "iconv",
                path, 1 + count_lines(bytes, bytes + valid), valid,
                (unsigned char)bytes[valid]);
}

static enum status read_bytes(struct text_file *file)
{
    TRY(file_map(file->path, &file->map));
    if (!is_packed(file->path)) {
        file->bytes = (const char *)file->map.data;
        file->length = file->map.length;
        return STATUS_OK;
    }
    if (file->map.length == 0)
        return FAIL(STATUS_CORRUPT, "%s: is empty", file->path);
    TRY(gzip_unpack_all(file->path, file->map.data, file->map.length, &file->unpacked,
                        &file->length));
    file->bytes = file->unpacked;
    file_unmap(&file->map);
    return STATUS_OK;
}

enum status text_file_open(const char *path, struct text_file *out)
{
    struct text_file file = { 0 };

    TRY(mem_strdup(path, &file.path));
    enum status status = read_bytes(&file);
    if (status == STATUS_OK)
        status = text_file_check(path, file.bytes, file.length);
    if (status != STATUS_OK) {
        text_file_close(&file);
        return status;
    }
    *out = file;
    return STATUS_OK;
}

enum status text_file_open_in(const char *folder, const char *name, struct text_file *out)
{
    char *path;

    TRY(file_join(folder, name, &path));
    const enum status status = text_file_open(path, out);
    mem_free(path);
    return status;
}

void text_file_close(struct text_file *file)
{
    if (file->map.data)
        file_unmap(&file->map);
    mem_free(file->unpacked);
    mem_free(file->path);
    *file = (struct text_file){ 0 };
}

int64_t text_file_line(const struct text_file *file, const char *at)
{
    return 1 + count_lines(file->bytes, at);
}

enum status text_file_lines(const struct text_file *file, struct text_span **out,
                            int64_t *out_count)
{
    const char *at = file->bytes, *end = at + file->length;
    const int64_t count = count_lines(at, end) + (end[-1] != '\n');
    struct text_span *lines;

    TRY(mem_alloc((size_t)count, sizeof *lines, &lines));
    for (int64_t i = 0; i < count; i++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const char *next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        if (stop > at && stop[-1] == '\r')
            stop--;
        lines[i] = (struct text_span){ at, (size_t)(stop - at) };
        at = next;
    }
    *out = lines;
    *out_count = count;
    return STATUS_OK;
}

bool text_file_is_plain(const char *path)
{
    return file_exists(path) && !file_is_folder(path);
}

bool text_file_find(const char *folder, const char *name, char found[TEXT_NAME])
{
    static const char *const endings[] = { "", PACKED };

    for (int i = 0; i < 2; i++) {
        char *path;
        if (snprintf(found, TEXT_NAME, "%s%s", name, endings[i]) >= TEXT_NAME ||
            file_join(folder, found, &path) != STATUS_OK)
            return false;
        const bool exists = text_file_is_plain(path);
        mem_free(path);
        if (exists)
            return true;
    }
    return false;
}

enum status text_file_copy(const char *folder, const char *name, const char *target)
{
    const size_t length = strlen(name) - (is_packed(name) ? sizeof PACKED - 1 : 0);
    char unpacked[TEXT_NAME], *path;
    struct text_file file;

    snprintf(unpacked, sizeof unpacked, "%.*s", (int)length, name);
    TRY(text_file_open_in(folder, name, &file));
    enum status status = file_join(target, unpacked, &path);
    if (status == STATUS_OK) {
        status = file_replace(path, file.bytes, file.length);
        mem_free(path);
    }
    text_file_close(&file);
    return status;
}
