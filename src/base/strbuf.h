/* SPDX-License-Identifier: MIT */
/* strbuf.h - text that grows, up to a stated maximum.
 *
 * Invariant: `text` is NUL-terminated whenever `length` > 0 or anything was added.
 * Errors are sticky: after one addition failed, the others do nothing, and
 * strbuf_status says what happened (STATUS_NO_MEMORY beyond the maximum). So a long sequence
 * needs one check at its end.
 */
#ifndef BASE_STRBUF_H
#define BASE_STRBUF_H

#include <stddef.h>

#include "base/status.h"

struct strbuf {
    char *text; /* owned; "" before the first addition, never NULL after strbuf_init */
    size_t length, capacity, maximum;
    enum status status;
};

void strbuf_init(struct strbuf *buf, size_t maximum);
void strbuf_release(struct strbuf *buf); /* after it, init again before use */
void strbuf_clear(struct strbuf *buf);   /* keeps the memory */

void strbuf_add(struct strbuf *buf, const char *text);
void strbuf_add_bytes(struct strbuf *buf, const void *bytes, size_t length);
void strbuf_printf(struct strbuf *buf, const char *format, ...) PRINTF_LIKE(2, 3);
/* Adds `text` with the characters that HTML and XML give a meaning escaped. */
void strbuf_add_xml(struct strbuf *buf, const char *text);
/* Adds `text` as a JSON string, quotes included. */
void strbuf_add_json(struct strbuf *buf, const char *text);
/* Adds the shortest decimal that reads back as the same double; null for NaN and infinity. */
void strbuf_add_number(struct strbuf *buf, double number);

MUST_CHECK enum status strbuf_status(const struct strbuf *buf);

#endif /* BASE_STRBUF_H */
