/* SPDX-License-Identifier: MIT */
/* wire.h - bytes as they are written and read: little-endian, with bounds.
 *
 * A writer grows up to a stated maximum; its error is sticky, as strbuf's is. A reader never reads beyond its
 * end: once something was missing it gives zeros and stays failed, so that a parser has one check at its end.
 */
#ifndef FED_WIRE_H
#define FED_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct fed_buffer { /* owned bytes */
    uint8_t *data;  /* NULL before the first byte */
    size_t length, capacity, maximum;
    enum status status;
};

void fed_buffer_init(struct fed_buffer *buffer, size_t maximum);
void fed_buffer_release(struct fed_buffer *buffer); /* after it, init again before use */
void fed_buffer_clear(struct fed_buffer *buffer);   /* keeps the memory */

void fed_put(struct fed_buffer *buffer, const void *bytes, size_t length);
/* Room for `length` bytes at the end, zeroed, to be filled by the caller before the next call; NULL on
 * failure. */
uint8_t *fed_put_room(struct fed_buffer *buffer, size_t length);
void fed_put_u8(struct fed_buffer *buffer, uint8_t number);
void fed_put_u32(struct fed_buffer *buffer, uint32_t number);
void fed_put_u64(struct fed_buffer *buffer, uint64_t number);
void fed_put_f64(struct fed_buffer *buffer, double number);
/* A length (u32), then the bytes. */
void fed_put_bytes(struct fed_buffer *buffer, const void *bytes, size_t length);
void fed_put_text(struct fed_buffer *buffer, const char *text);
/* A count (u32), then the numbers as IEEE 754 single precision. */
void fed_put_floats(struct fed_buffer *buffer, const float *numbers, size_t count);
MUST_CHECK enum status fed_buffer_status(const struct fed_buffer *buffer);

struct fed_reader {
    const uint8_t *data; /* borrowed */
    size_t length, at;
    bool failed;
};

struct fed_reader fed_reader(const void *data, size_t length);
const uint8_t *fed_take(struct fed_reader *reader, size_t length); /* NULL: not there */
uint8_t fed_take_u8(struct fed_reader *reader);
uint32_t fed_take_u32(struct fed_reader *reader);
uint64_t fed_take_u64(struct fed_reader *reader);
double fed_take_f64(struct fed_reader *reader);
/* NULL and length 0 where the length says more than there is. */
const uint8_t *fed_take_bytes(struct fed_reader *reader, size_t *length);
/* Fails also where the text has a NUL or does not fit. */
void fed_take_text(struct fed_reader *reader, char *out, size_t size);
/* Fails unless there are `count` of them, all finite. */
void fed_take_floats(struct fed_reader *reader, float *out, size_t count);
/* STATUS_CORRUPT if something was missing, or is left: "what: ...". */
MUST_CHECK enum status fed_reader_end(const struct fed_reader *reader, const char *what);

#endif /* FED_WIRE_H */
