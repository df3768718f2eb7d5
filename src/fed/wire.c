/* SPDX-License-Identifier: MIT */
/* wire.c - bytes as they are written and read. */
#include "fed/wire.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

void fed_buffer_init(struct fed_buffer *buffer, size_t maximum)
{
    *buffer = (struct fed_buffer){ .maximum = maximum, .status = STATUS_OK };
}

void fed_buffer_release(struct fed_buffer *buffer)
{
    mem_free(buffer->data);
    *buffer = (struct fed_buffer){ 0 };
}

void fed_buffer_clear(struct fed_buffer *buffer)
{
    buffer->length = 0;
    buffer->status = STATUS_OK;
}

enum status fed_buffer_status(const struct fed_buffer *buffer)
{
    return buffer->status;
}

/* Grows the memory to hold `more` further bytes. */
static bool make_room(struct fed_buffer *buffer, size_t more)
{
    if (buffer->status != STATUS_OK)
        return false;
    if (more > buffer->maximum - buffer->length) {
        buffer->status =
            FAIL(STATUS_NO_MEMORY, "a message of more than %zu bytes", buffer->maximum);
        return false;
    }
    const size_t need = buffer->length + more;
    if (need <= buffer->capacity)
        return true;
    size_t capacity = buffer->capacity ? 2 * buffer->capacity : 256;
    capacity = capacity < need ? need : capacity;
    capacity = capacity > buffer->maximum ? buffer->maximum : capacity;
    buffer->status = mem_grow(&buffer->data, buffer->capacity, capacity, 1);
    if (buffer->status == STATUS_OK)
        buffer->capacity = capacity;
    return buffer->status == STATUS_OK;
}

uint8_t *fed_put_room(struct fed_buffer *buffer, size_t length)
{
    if (!make_room(buffer, length))
        return NULL;
    uint8_t *room = buffer->data + buffer->length;
    if (length)
        memset(room, 0, length);
    buffer->length += length;
    return room;
}

void fed_put(struct fed_buffer *buffer, const void *bytes, size_t length)
{
    if (length == 0 || !make_room(buffer, length))
        return;
    memcpy(buffer->data + buffer->length, bytes, length);
    buffer->length += length;
}

static void put_number(struct fed_buffer *buffer, uint64_t number, size_t bytes)
{
    uint8_t out[8];

    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(number >> (8 * i));
    fed_put(buffer, out, bytes);
}

void fed_put_u8(struct fed_buffer *buffer, uint8_t number)
{
    put_number(buffer, number, 1);
}

void fed_put_u32(struct fed_buffer *buffer, uint32_t number)
{
    put_number(buffer, number, 4);
}

void fed_put_u64(struct fed_buffer *buffer, uint64_t number)
{
    put_number(buffer, number, 8);
}

void fed_put_f64(struct fed_buffer *buffer, double number)
{
    uint64_t bits;

    memcpy(&bits, &number, sizeof bits);
    put_number(buffer, bits, 8);
}

/* A length or count, which is 32 bits on the wire. */
static void put_count(struct fed_buffer *buffer, size_t count)
{
    if (count > UINT32_MAX && buffer->status == STATUS_OK)
        buffer->status = FAIL(STATUS_NO_MEMORY, "%zu is more than a field can hold", count);
    fed_put_u32(buffer, (uint32_t)count);
}

void fed_put_bytes(struct fed_buffer *buffer, const void *bytes, size_t length)
{
    put_count(buffer, length);
    fed_put(buffer, bytes, length);
}

void fed_put_text(struct fed_buffer *buffer, const char *text)
{
    fed_put_bytes(buffer, text, strlen(text));
}

/* Floats lie in memory as on the wire. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian machines alone");

void fed_put_floats(struct fed_buffer *buffer, const float *numbers, size_t count)
{
    put_count(buffer, count);
    fed_put(buffer, numbers, count * sizeof *numbers);
}

struct fed_reader fed_reader(const void *data, size_t length)
{
    return (struct fed_reader){ .data = data, .length = length };
}

const uint8_t *fed_take(struct fed_reader *reader, size_t length)
{
    static const uint8_t nothing;

    if (reader->failed || length > reader->length - reader->at) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *taken = reader->data ? reader->data + reader->at : &nothing;
    reader->at += length;
    return taken;
}

static uint64_t take_number(struct fed_reader *reader, size_t bytes)
{
    const uint8_t *taken = fed_take(reader, bytes);
    uint64_t number = 0;

    for (size_t i = 0; taken && i < bytes; i++)
        number |= (uint64_t)taken[i] << (8 * i);
    return number;
}

uint8_t fed_take_u8(struct fed_reader *reader)
{
    return (uint8_t)take_number(reader, 1);
}

uint32_t fed_take_u32(struct fed_reader *reader)
{
    return (uint32_t)take_number(reader, 4);
}

uint64_t fed_take_u64(struct fed_reader *reader)
{
    return take_number(reader, 8);
}

double fed_take_f64(struct fed_reader *reader)
{
    const uint64_t bits = take_number(reader, 8);
    double number;

    memcpy(&number, &bits, sizeof number);
    if (!isfinite(number)) {
        reader->failed = true;
        return 0;
    }
    return number;
}

const uint8_t *fed_take_bytes(struct fed_reader *reader, size_t *length)
{
    const size_t announced = fed_take_u32(reader);
    const uint8_t *taken = fed_take(reader, announced);

    *length = taken ? announced : 0;
    return taken;
}

void fed_take_text(struct fed_reader *reader, char *out, size_t size)
{
    size_t length;
    const uint8_t *taken = fed_take_bytes(reader, &length);

    *out = '\0';
    if (!taken)
        return;
    if (length >= size || memchr(taken, 0, length)) {
        reader->failed = true;
        return;
    }
    memcpy(out, taken, length);
    out[length] = '\0';
}

void fed_take_floats(struct fed_reader *reader, float *out, size_t count)
{
    if (fed_take_u32(reader) != count)
        reader->failed = true;
    const uint8_t *taken = fed_take(reader, count * sizeof *out);
    if (!taken || count == 0)
        return;
    memcpy(out, taken, count * sizeof *out);
    for (size_t i = 0; i < count; i++)
        reader->failed |= !isfinite(out[i]);
}

enum status fed_reader_end(const struct fed_reader *reader, const char *what)
{
    if (reader->failed)
        return FAIL(STATUS_CORRUPT, "%s: bytes are missing, or a value is none that it may be",
                    what);
    if (reader->at != reader->length)
        return FAIL(STATUS_CORRUPT, "%s: %zu bytes too many", what,
                    reader->length - reader->at);
    return STATUS_OK;
}
