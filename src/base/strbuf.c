/* SPDX-License-Identifier: MIT */
/* strbuf.c - growing text: plain, and escaped for JSON, HTML and XML.
 *
 * Numbers are written in the C locale, which a program has until it calls
 * setlocale; tutti never does.
 */
#include "base/strbuf.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 256 };

static char no_text[1]; /* what `text` is before the first addition; never written */

/* Makes room for `more` bytes and the NUL; false, with the status kept, if there is none. */
static bool make_room(struct strbuf *buf, size_t more)
{
    if (buf->status != STATUS_OK)
        return false;
    if (more > buf->maximum - buf->length) {
        buf->status =
            FAIL(STATUS_NO_MEMORY, "text exceeds its maximum of %zu bytes", buf->maximum);
        return false;
    }
    if (buf->length + more < buf->capacity)
        return true;

    const size_t needed = buf->length + more + 1;
    size_t capacity = buf->capacity > 0 ? buf->capacity : FIRST_CAPACITY;
    while (capacity < needed)
        capacity = capacity > SIZE_MAX / 2 ? needed : capacity * 2;
    if (capacity > buf->maximum + 1)
        capacity = buf->maximum + 1;

    char *text = buf->capacity > 0 ? buf->text : NULL;
    buf->status = mem_grow(&text, buf->capacity, capacity, 1);
    if (buf->status != STATUS_OK)
        return false;
    buf->text = text;
    buf->capacity = capacity;
    return true;
}

void strbuf_init(struct strbuf *buf, size_t maximum)
{
    /* One less, so that maximum + 1 for the NUL is a size. */
    *buf = (struct strbuf){ .text = no_text,
                            .maximum = maximum < SIZE_MAX ? maximum : SIZE_MAX - 1 };
}

void strbuf_release(struct strbuf *buf)
{
    if (buf->capacity > 0)
        mem_free(buf->text);
    *buf = (struct strbuf){ .text = no_text };
}

void strbuf_clear(struct strbuf *buf)
{
    if (buf->capacity > 0)
        buf->text[0] = '\0';
    buf->length = 0;
    buf->status = STATUS_OK;
}

void strbuf_add(struct strbuf *buf, const char *text)
{
    strbuf_add_bytes(buf, text, strlen(text));
}

void strbuf_add_bytes(struct strbuf *buf, const void *bytes, size_t length)
{
    if (!make_room(buf, length))
        return;
    if (length > 0)
        memcpy(buf->text + buf->length, bytes, length);
    buf->length += length;
    buf->text[buf->length] = '\0';
}

void strbuf_printf(struct strbuf *buf, const char *format, ...)
{
    va_list args, again;

    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    BUG_ON(length < 0); /* only for a broken format or a text of 2 GiB */
    if (make_room(buf, (size_t)length)) {
        vsnprintf(buf->text + buf->length, (size_t)length + 1, format, again);
        buf->length += (size_t)length;
    }
    va_end(again);
}

/* What stands for the character at `text`; NULL if it stands for itself. */
typedef const char *escape_fn(const char *text, size_t span, char buffer[8]);

static const char *escape_xml(const char *text, size_t span, char buffer[8])
{
    (void)buffer;
    if (span == 0)
        return "\xef\xbf\xbd"; /* U+FFFD */
    switch (*text) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    case '\t':
    case '\n':
    case '\r':
        return NULL;
    }
    return (unsigned char)*text < 0x20 ? "\xef\xbf\xbd" : NULL; /* XML has no way to write it */
}

static const char *escape_json(const char *text, size_t span, char buffer[8])
{
    if (span == 0)
        return "\\ufffd";
    switch (*text) {
    case '"':
        return "\\\"";
    case '\\':
        return "\\\\";
    case '\n':
        return "\\n";
    case '\r':
        return "\\r";
    case '\t':
        return "\\t";
    }
    if ((unsigned char)*text >= 0x20)
        return NULL;
    snprintf(buffer, 8, "\\u%04x", (unsigned)(unsigned char)*text);
    return buffer;
}

/* Bytes that are no UTF-8, as file names may hold, become U+FFFD one by one. */
static void add_escaped(struct strbuf *buf, const char *text, escape_fn *escape)
{
    const char *const end = text + strlen(text);
    const char *plain = text; /* start of the run that needs no escape */

    while (text < end) {
        char buffer[8];
        const size_t span = utf8_span(text, (size_t)(end - text));
        const char *instead = escape(text, span, buffer);
        if (instead) {
            strbuf_add_bytes(buf, plain, (size_t)(text - plain));
            strbuf_add(buf, instead);
        }
        text += span > 0 ? span : 1;
        if (instead)
            plain = text;
    }
    strbuf_add_bytes(buf, plain, (size_t)(end - plain));
}

void strbuf_add_xml(struct strbuf *buf, const char *text)
{
    add_escaped(buf, text, escape_xml);
}

void strbuf_add_json(struct strbuf *buf, const char *text)
{
    strbuf_add(buf, "\"");
    add_escaped(buf, text, escape_json);
    strbuf_add(buf, "\"");
}

void strbuf_add_number(struct strbuf *buf, double number)
{
    if (!isfinite(number)) {
        strbuf_add(buf, "null");
        return;
    }

    /* A normal double that some decimal of up to 15 digits names gets that one from %.15g,
     * which drops trailing zeros; subnormal ones have fewer digits to tell apart. */
    char text[32];
    for (int digits = fabs(number) < DBL_MIN ? 1 : DBL_DIG; digits <= DBL_DECIMAL_DIG;
         digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    strbuf_add(buf, text);
}

enum status strbuf_status(const struct strbuf *buf)
{
    return buf->status;
}
