/* SPDX-License-Identifier: MIT */
/* gzip.c - one call of zlib's inflate over the whole file. */
#include "data/gzip.h"

#ifdef HAVE_ZLIB
#include "base/mem.h"

#define ZLIB_CONST /* input is const */
#include <zlib.h>
#endif

bool gzip_has_magic(const uint8_t *bytes, size_t length)
{
    return length >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

size_t gzip_size(const uint8_t *bytes, size_t length)
{
    size_t size = 0;

    for (size_t i = 0; i < 4 && length >= 4; i++)
        size |= (size_t)bytes[length - 4 + i] << (8 * i);
    return size;
}

#ifdef HAVE_ZLIB

enum { GZIP_WINDOW = 15 + 16 }; /* the largest window; the 16 asks for a gzip header */

enum outcome {
    OUTCOME_END,     /* the packed data ended, its checksum is right */
    OUTCOME_FULL,    /* there is more than was asked for */
    OUTCOME_CUT,     /* the input ended first */
    OUTCOME_DAMAGED, /* z.msg says how, if it is not NULL */
    OUTCOME_NO_MEMORY,
};

struct unpacker {
    z_stream z; /* first: zlib's hooks get no other pointer */
    const uint8_t *in;
    size_t in_left;
};

static void *allocate(void *unused, uInt count, uInt size)
{
    void *block;

    (void)unused;
    return mem_alloc(count, size, &block) == STATUS_OK ? block : NULL;
}

static void release(void *unused, void *block)
{
    (void)unused;
    mem_free(block);
}

static enum status begin(struct unpacker *unpacker, const char *path, const uint8_t *bytes,
                         size_t length)
{
    *unpacker = (struct unpacker){ .z = { .zalloc = allocate, .zfree = release },
                                   .in = bytes,
                                   .in_left = length };

    if (!gzip_has_magic(bytes, length))
        return FAIL(STATUS_CORRUPT, "%s: is not a gzip file, though its name ends in .gz",
                    path);
    const int code = inflateInit2(&unpacker->z, GZIP_WINDOW);
    if (code == Z_MEM_ERROR)
        return STATUS_NO_MEMORY; /* mem_alloc has said why */
    if (code != Z_OK)
        return FAIL(STATUS_UNSUPPORTED, "%s: zlib does not start: %s", path, zError(code));
    return STATUS_OK;
}

/* zlib counts in unsigned int. */
static uInt some(size_t left)
{
    const size_t most = (uInt)-1;

    return (uInt)(left < most ? left : most);
}

/* Unpacks until `count` bytes are there or there are no more. */
static enum outcome unpack(struct unpacker *unpacker, uint8_t *out, size_t count,
                           size_t *out_count)
{
    z_stream *z = &unpacker->z;

    for (*out_count = 0; *out_count < count;) {
        const uInt in = some(unpacker->in_left), room = some(count - *out_count);

        z->next_in = unpacker->in;
        z->avail_in = in;
        z->next_out = out + *out_count;
        z->avail_out = room;
        const int code = inflate(z, Z_NO_FLUSH);
        unpacker->in += in - z->avail_in;
        unpacker->in_left -= in - z->avail_in;
        *out_count += room - z->avail_out;

        if (code == Z_STREAM_END)
            return OUTCOME_END;
        if (code == Z_MEM_ERROR)
            return OUTCOME_NO_MEMORY;
        if (code == Z_BUF_ERROR)
            return OUTCOME_CUT;
        if (code != Z_OK)
            return OUTCOME_DAMAGED;
    }
    return OUTCOME_FULL;
}

enum status gzip_peek(const char *path, const uint8_t *bytes, size_t length, void *out,
                      size_t count, size_t *out_count)
{
    struct unpacker unpacker;

    TRY(begin(&unpacker, path, bytes, length));
    const enum outcome outcome = unpack(&unpacker, out, count, out_count);
    enum status status = STATUS_OK;
    if (outcome == OUTCOME_NO_MEMORY)
        status = STATUS_NO_MEMORY;
    else if (outcome == OUTCOME_CUT)
        status = FAIL(STATUS_CORRUPT, "%s: is cut short within its first bytes", path);
    else if (outcome == OUTCOME_DAMAGED)
        status = FAIL(STATUS_CORRUPT, "%s: is damaged: %s", path,
                      unpacker.z.msg ? unpacker.z.msg : "not in gzip's format");
    inflateEnd(&unpacker.z);
    return status;
}

/* What unpacking came to, in words; `got` of `count` bytes were unpacked. */
static enum status judge(const struct unpacker *unpacker, const char *path,
                         enum outcome outcome, size_t got, size_t count)
{
    switch (outcome) {
    case OUTCOME_END:
        if (got < count)
            return FAIL(STATUS_CORRUPT, "%s: unpacks to %zu bytes instead of %zu", path, got,
                        count);
        if (unpacker->in_left > 0)
            return FAIL(STATUS_CORRUPT, "%s: has %zu bytes after the end of its packed data",
                        path, unpacker->in_left);
        return STATUS_OK;
    case OUTCOME_FULL:
        return FAIL(STATUS_CORRUPT, "%s: unpacks to more than the %zu bytes it should hold",
                    path, count);
    case OUTCOME_CUT:
        if (got == count) /* nobody said how many there are */
            return FAIL(STATUS_CORRUPT, "%s: is cut short: it ends after %zu unpacked bytes",
                        path, got);
        return FAIL(STATUS_CORRUPT, "%s: is cut short: %zu of %zu bytes can be unpacked", path,
                    got, count);
    case OUTCOME_DAMAGED:
        return FAIL(STATUS_CORRUPT, "%s: is damaged: %s", path,
                    unpacker->z.msg ? unpacker->z.msg : "not in gzip's format");
    case OUTCOME_NO_MEMORY:
        break; /* mem_alloc has said why */
    }
    return STATUS_NO_MEMORY;
}

enum status gzip_unpack(const char *path, const uint8_t *bytes, size_t length, void *out,
                        size_t count)
{
    struct unpacker unpacker;
    size_t got, beyond = 0;

    TRY(begin(&unpacker, path, bytes, length));
    enum outcome outcome = unpack(&unpacker, out, count, &got);
    if (outcome == OUTCOME_FULL) { /* the end and its checksum come after the last byte */
        uint8_t spare;
        outcome = unpack(&unpacker, &spare, 1, &beyond);
        if (beyond > 0)
            outcome = OUTCOME_FULL;
    }
    const enum status status = judge(&unpacker, path, outcome, got, count);
    inflateEnd(&unpacker.z);
    return status;
}

/* What the file says is where to begin; a liar is given more, up to what can be packed. */
static size_t first_guess(const uint8_t *bytes, size_t length)
{
    const size_t least = 1 << 16, most = GZIP_LARGEST_RATIO * length;
    const size_t guess = gzip_size(bytes, length) + 1; /* one more shows the end */

    return guess > most ? most : guess < least ? least : guess;
}

enum status gzip_unpack_all(const char *path, const uint8_t *bytes, size_t length, char **out,
                            size_t *out_count)
{
    struct unpacker unpacker;
    size_t capacity = first_guess(bytes, length), count = 0;
    char *text = NULL;

    TRY(begin(&unpacker, path, bytes, length));
    enum status status = mem_alloc(capacity, 1, &text);
    enum outcome outcome = OUTCOME_FULL;
    while (status == STATUS_OK) {
        size_t got;
        outcome = unpack(&unpacker, (uint8_t *)text + count, capacity - count, &got);
        count += got;
        if (outcome != OUTCOME_FULL)
            break;
        status = mem_grow(&text, capacity, 2 * capacity, 1);
        capacity *= 2;
    }
    if (status == STATUS_OK)
        status = judge(&unpacker, path, outcome, count, count);
    inflateEnd(&unpacker.z);
    if (status != STATUS_OK) {
        mem_free(text);
        return status;
    }
    *out = text;
    *out_count = count;
    return STATUS_OK;
}

#else /* no zlib */

static enum status refuse(const char *path)
{
    return FAIL(STATUS_UNSUPPORTED,
                "%s: is packed, and this program was built without zlib; unpack it with gunzip",
                path);
}

enum status gzip_peek(const char *path, const uint8_t *bytes, size_t length, void *out,
                      size_t count, size_t *out_count)
{
    (void)bytes, (void)length, (void)out, (void)count, (void)out_count;
    return refuse(path);
}

enum status gzip_unpack(const char *path, const uint8_t *bytes, size_t length, void *out,
                        size_t count)
{
    (void)bytes, (void)length, (void)out, (void)count;
    return refuse(path);
}

enum status gzip_unpack_all(const char *path, const uint8_t *bytes, size_t length, char **out,
                            size_t *out_count)
{
    (void)bytes, (void)length, (void)out, (void)out_count;
    return refuse(path);
}

#endif
