/* SPDX-License-Identifier: MIT */
/* npy.c - reads NumPy's header, which is text that Python could evaluate. */
#include "data/npy.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAGIC_BYTES = 6, VERSION_BYTES = 2, HEADER_MOST = 65536, WORD_MOST = 32 };
static const uint8_t MAGIC[] = { 0x93, 'N', 'U', 'M', 'P', 'Y' };

/* Where reading has got to in the header. */
struct cursor {
    const char *path;
    const uint8_t *bytes; /* the file */
    size_t at, end;       /* of the header */
};

static enum status fail_syntax(const struct cursor *cursor, const char *wanted)
{
    return FAIL(STATUS_CORRUPT, "%s: its NumPy header is damaged at byte %zu: %s is missing",
                cursor->path, cursor->at, wanted);
}

static char next(struct cursor *cursor)
{
    while (cursor->at < cursor->end &&
           (cursor->bytes[cursor->at] == ' ' || cursor->bytes[cursor->at] == '\n' ||
            cursor->bytes[cursor->at] == '\t'))
        cursor->at++;
    return cursor->at < cursor->end ? (char)cursor->bytes[cursor->at] : '\0';
}

static bool take(struct cursor *cursor, char c)
{
    const bool there = next(cursor) == c;

    cursor->at += there;
    return there;
}

/* A string in single or double quotes, without escapes. */
static enum status read_string(struct cursor *cursor, char out[WORD_MOST])
{
    const char quote = next(cursor);
    size_t length = 0;

    if (quote != '\'' && quote != '"')
        return fail_syntax(cursor, "a quoted word");
    for (cursor->at++; cursor->at < cursor->end && length < WORD_MOST - 1; cursor->at++) {
        const char c = (char)cursor->bytes[cursor->at];

        if (c == quote) {
            cursor->at++;
            out[length] = '\0';
            return STATUS_OK;
        }
        if (c < ' ' || c > '~' || c == '\\')
            break;
        out[length++] = c;
    }
    return fail_syntax(cursor, "the end of a quoted word");
}

static enum status read_dimension(struct cursor *cursor, int64_t *out)
{
    const size_t first = cursor->at;
    int64_t value = 0;

    for (; cursor->at < cursor->end; cursor->at++) {
        const int digit = cursor->bytes[cursor->at] - '0';

        if (digit < 0 || digit > 9)
            break;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return FAIL(STATUS_CORRUPT, "%s: claims more elements than memory can hold",
                        cursor->path);
    }
    if (cursor->at == first)
        return fail_syntax(cursor, "a number");
    if (cursor->at < cursor->end && cursor->bytes[cursor->at] == 'L') /* Python 2 wrote it */
        cursor->at++;
    *out = value;
    return STATUS_OK;
}

static enum status read_shape(struct cursor *cursor, struct shape *out)
{
    if (!take(cursor, '('))
        return fail_syntax(cursor, "(");
    for (out->rank = 0; !take(cursor, ')');) {
        if (out->rank == SHAPE_MAX)
            return FAIL(STATUS_UNSUPPORTED, "%s: has more than %d dimensions", cursor->path,
                        SHAPE_MAX);
        (void)next(cursor);
        TRY(read_dimension(cursor, &out->dim[out->rank++]));
        if (take(cursor, ','))
            continue;
        if (next(cursor) != ')')
            return fail_syntax(cursor, ", or )");
    }
    return STATUS_OK;
}

static enum status read_truth(struct cursor *cursor, bool *out)
{
    static const char *const WORDS[] = { "False", "True" };

    (void)next(cursor);
    for (int i = 0; i < 2; i++) {
        const size_t length = strlen(WORDS[i]);

        if (cursor->end - cursor->at >= length &&
            memcmp(cursor->bytes + cursor->at, WORDS[i], length) == 0) {
            cursor->at += length;
            *out = i == 1;
            return STATUS_OK;
        }
    }
    return fail_syntax(cursor, "True or False");
}

/* "<i8", "|u1", ...: byte order, kind, size. */
static enum status read_type(struct cursor *cursor, struct npy *out)
{
    static const struct {
        char kind;
        const char *sizes;
    } KINDS[] = { { 'u', "1248" }, { 'i', "1248" }, { 'f', "248" }, { 'b', "1" } };
    char descr[WORD_MOST];

    if (next(cursor) == '[')
        return FAIL(STATUS_UNSUPPORTED, "%s: holds records where plain numbers are expected",
                    cursor->path);
    TRY(read_string(cursor, descr));
    if (strlen(descr) == 3 && strchr("<>|=", descr[0]))
        for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++)
            if (descr[1] == KINDS[i].kind && strchr(KINDS[i].sizes, descr[2])) {
                out->big_endian = descr[0] == '>';
                out->kind = descr[1];
                out->size = descr[2] - '0';
                return STATUS_OK;
            }
    return FAIL(STATUS_UNSUPPORTED, "%s: holds elements of type \"%s\"; save it as integers",
                cursor->path, descr);
}

/* One "key: value"; `seen` has a bit for each key that was read. */
static enum status read_pair(struct cursor *cursor, struct npy *out, bool *fortran,
                             unsigned *seen)
{
    static const char *const KEYS[] = { "descr", "fortran_order", "shape" };
    char key[WORD_MOST];
    unsigned which = 0;

    TRY(read_string(cursor, key));
    while (which < 3 && strcmp(key, KEYS[which]) != 0)
        which++;
    if (which == 3 || (*seen & 1u << which))
        return FAIL(STATUS_CORRUPT, "%s: its NumPy header has \"%s\" %s", cursor->path, key,
                    which == 3 ? "in it" : "twice");
    *seen |= 1u << which;
    if (!take(cursor, ':'))
        return fail_syntax(cursor, ":");
    if (which == 0)
        return read_type(cursor, out);
    return which == 1 ? read_truth(cursor, fortran) : read_shape(cursor, &out->shape);
}

static enum status read_header(struct cursor *cursor, struct npy *out)
{
    bool fortran = false;
    unsigned seen = 0;

    if (!take(cursor, '{'))
        return fail_syntax(cursor, "{");
    while (!take(cursor, '}')) {
        TRY(read_pair(cursor, out, &fortran, &seen));
        if (!take(cursor, ',') && next(cursor) != '}')
            return fail_syntax(cursor, ", or }");
    }
    if (next(cursor) != '\0' || cursor->at != cursor->end)
        return fail_syntax(cursor, "the end");
    if (seen != 7)
        return fail_syntax(cursor, "descr, fortran_order or shape");
    if (fortran)
        return FAIL(STATUS_UNSUPPORTED,
                    "%s: is in Fortran order; save numpy.ascontiguousarray(x)", cursor->path);
    return STATUS_OK;
}

/* Magic, version and length: where the header lies. */
static enum status find_header(const char *path, const uint8_t *bytes, size_t length,
                               struct cursor *out)
{
    const size_t start = MAGIC_BYTES + VERSION_BYTES;

    if (length == 0)
        return FAIL(STATUS_CORRUPT, "%s: is empty", path);
    if (length < start || memcmp(bytes, MAGIC, sizeof MAGIC) != 0)
        return FAIL(STATUS_CORRUPT, "%s: is not a NumPy file", path);
    const uint8_t major = bytes[MAGIC_BYTES];
    if (major < 1 || major > 3 || bytes[MAGIC_BYTES + 1] != 0)
        return FAIL(STATUS_UNSUPPORTED,
                    "%s: is in version %d.%d of NumPy's format; known are 1.0 to 3.0", path,
                    major, bytes[MAGIC_BYTES + 1]);

    const size_t field = major == 1 ? 2 : 4;
    size_t header = 0;
    if (length < start + field)
        return FAIL(STATUS_CORRUPT, "%s: ends within its header, after %zu bytes", path,
                    length);
    for (size_t i = 0; i < field; i++)
        header |= (size_t)bytes[start + i] << (8 * i);
    if (header > HEADER_MOST)
        return FAIL(STATUS_CORRUPT, "%s: claims a header of %zu bytes", path, header);
    if (length - start - field < header)
        return FAIL(STATUS_CORRUPT, "%s: ends within its header, after %zu bytes", path,
                    length);
    *out = (struct cursor){ path, bytes, start + field, start + field + header };
    return STATUS_OK;
}

enum status npy_parse(const char *path, const uint8_t *bytes, size_t length, struct npy *out)
{
    struct npy npy = { 0 };
    struct cursor cursor;
    size_t needed = 1;
    bool overflow = false;

    TRY(find_header(path, bytes, length, &cursor));
    TRY(read_header(&cursor, &npy));
    for (int i = 0; i < npy.shape.rank; i++)
        overflow |= __builtin_mul_overflow(needed, (size_t)npy.shape.dim[i], &needed);
    overflow |= __builtin_mul_overflow(needed, (size_t)npy.size, &needed);
    if (overflow || needed > PTRDIFF_MAX)
        return FAIL(STATUS_CORRUPT, "%s: claims more elements than memory can hold", path);

    const size_t there = length - cursor.end;
    if (there < needed)
        return FAIL(STATUS_CORRUPT, "%s: is cut short: %zu bytes instead of %zu", path, length,
                    cursor.end + needed);
    if (there > needed)
        return FAIL(STATUS_CORRUPT, "%s: has %zu bytes after its end", path, there - needed);
    npy.data = bytes + cursor.end;
    *out = npy;
    return STATUS_OK;
}

enum status npy_open(const char *folder, const char *name, struct npy *out)
{
    struct file_map map;
    char *path;

    TRY(file_join(folder, name, &path));
    enum status status = file_map(path, &map);
    if (status == STATUS_OK) {
        status = npy_parse(path, map.data, map.length, out);
        if (status == STATUS_OK)
            out->map = map;
        else
            file_unmap(&map);
    }
    mem_free(path);
    return status;
}

void npy_release(struct npy *npy)
{
    file_unmap(&npy->map);
    *npy = (struct npy){ 0 };
}

const char *npy_type(const struct npy *npy, char text[NPY_TYPE_TEXT])
{
    if (npy->kind == 'b')
        snprintf(text, NPY_TYPE_TEXT, "bool");
    else
        snprintf(text, NPY_TYPE_TEXT, "%s%d",
                 npy->kind == 'f'   ? "float"
                 : npy->kind == 'i' ? "int"
                                    : "uint",
                 8 * npy->size);
    return text;
}

int64_t npy_integer(const struct npy *npy, int64_t i)
{
    const uint8_t *at = npy->data + (size_t)i * (size_t)npy->size;
    const int bits = 8 * npy->size;
    uint64_t value = 0;

    for (int byte = 0; byte < npy->size; byte++)
        value |= (uint64_t)at[npy->big_endian ? npy->size - 1 - byte : byte] << (8 * byte);
    if (npy->kind == 'i' && bits < 64 && value >> (bits - 1))
        value |= ~(uint64_t)0 << bits; /* the sign */
    if (npy->kind == 'u' && value > INT64_MAX)
        return INT64_MAX;
    return (int64_t)value;
}

enum status npy_write_header(struct file_writer *writer, const char *descr,
                             const struct shape *shape)
{
    enum { FIELD = 2, ALIGN = 64, BYTES = 256 };
    const size_t start = MAGIC_BYTES + VERSION_BYTES + FIELD;
    char header[BYTES] = "\x93NUMPY\x01";
    int used = (int)start;

    used += snprintf(header + used, sizeof header - (size_t)used,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int i = 0; i < shape->rank; i++)
        used += snprintf(header + used, sizeof header - (size_t)used, "%" PRId64 "%s",
                         shape->dim[i], i + 1 < shape->rank ? ", " : ",");
    used += snprintf(header + used, sizeof header - (size_t)used, "), }");
    BUG_ON(used + ALIGN > (int)sizeof header);

    const size_t end = ((size_t)used + ALIGN) / ALIGN * ALIGN; /* a line feed is the last */
    memset(header + used, ' ', end - (size_t)used);
    header[end - 1] = '\n';
    header[start - FIELD] = (char)(end - start);
    header[start - FIELD + 1] = (char)((end - start) >> 8);
    return file_writer_add(writer, header, end);
}
