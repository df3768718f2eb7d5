/* SPDX-License-Identifier: MIT */
/* names.c - reads and writes class names, one a line. */
#include "data/names.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "data/format.h"

#include <string.h>

enum { TEXT_MOST = 1 << 22 };

bool names_is_line(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        const size_t span = utf8_span(text + at, length - at);
        if (span == 0 || (unsigned char)text[at] < ' ' || text[at] == 0x7f)
            return false;
        at += span;
    }
    return length > 0;
}

static bool is_blank(char c)
{
    return c == '\n' || c == '\r' || c == ' ' || c == '\t';
}

static int count_lines(const char *text, size_t length)
{
    int lines = length > 0;

    for (size_t i = 0; i < length && lines <= FORMAT_CLASSES; i++)
        lines += text[i] == '\n';
    return lines;
}

/* Cuts names->text into lines; `length` does without the blank end. */
static enum status cut(const char *path, size_t length, struct names *names)
{
    char *line = names->text, *const end = names->text + length;

    for (int i = 0; i < names->count; i++) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        char *const next = stop ? stop + 1 : end;

        stop = stop ? stop : end;
        if (stop > line && stop[-1] == '\r')
            stop--;
        if (!names_is_line(line, (size_t)(stop - line)))
            return FAIL(STATUS_CORRUPT, "%s: line %d is no name of a class", path, i + 1);
        *stop = '\0';
        names->name[i] = line;
        line = next;
    }
    return STATUS_OK;
}

enum status names_parse(const char *path, const char *text, size_t length, struct names *out)
{
    struct names names = { 0 };

    while (length > 0 && is_blank(text[length - 1]))
        length--;
    names.count = count_lines(text, length);
    if (names.count == 0)
        return FAIL(STATUS_CORRUPT, "%s: holds no names", path);
    if (names.count > FORMAT_CLASSES)
        return FAIL(STATUS_CORRUPT, "%s: holds more than %d names", path, FORMAT_CLASSES);

    enum status status = mem_alloc(length + 1, 1, &names.text);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)names.count, sizeof *names.name, &names.name);
    if (status == STATUS_OK) {
        memcpy(names.text, text, length);
        status = cut(path, length, &names);
    }
    if (status != STATUS_OK) {
        names_release(&names);
        return status;
    }
    *out = names;
    return STATUS_OK;
}

enum status names_read(const char *folder, const char *file, struct names *out)
{
    char *path, *text;
    size_t length;

    TRY(file_join(folder, file, &path));
    if (!file_exists(path)) {
        *out = (struct names){ 0 };
        mem_free(path);
        return STATUS_OK;
    }
    enum status status = file_read(path, TEXT_MOST, &text, &length);
    if (status == STATUS_OK) {
        status = names_parse(path, text, length, out);
        mem_free(text);
    }
    mem_free(path);
    return status;
}

void names_release(struct names *names)
{
    mem_free(names->name);
    mem_free(names->text);
    *names = (struct names){ 0 };
}

enum status names_write(const char *folder, const char *file, const char *const *name,
                        int count)
{
    struct strbuf text;
    char *path;

    TRY(file_join(folder, file, &path));
    strbuf_init(&text, TEXT_MOST);
    for (int i = 0; i < count; i++)
        strbuf_printf(&text, "%s\n", name[i]);
    enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        status = file_replace(path, text.text, text.length);
    strbuf_release(&text);
    mem_free(path);
    return status;
}
