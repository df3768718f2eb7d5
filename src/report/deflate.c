/* SPDX-License-Identifier: MIT */
/* deflate.c - a small deflate for pictures: one block with the fixed Huffman codes.
 *
 * A hash of the next three bytes finds where they stood last; if that is within the window, as many
 * bytes as agree are written as a length and a distance. Codes are packed first bit first, numbers
 * last bit first (RFC 1951, 3.1.1).
 */
#include "report/deflate.h"

#include <string.h>

enum {
    HASH_BITS = 13,
    WINDOW = 32768,
    LEAST = 3, /* bytes of a match */
    MOST = 258,
    END = 256, /* symbols after the bytes: end of block, then lengths */
};

struct bits {
    struct strbuf *out;
    uint32_t held;
    unsigned count;
};

static void put(struct bits *bits, uint32_t value, unsigned count)
{
    bits->held |= value << bits->count;
    bits->count += count;
    while (bits->count >= 8) {
        const uint8_t byte = (uint8_t)bits->held;
        strbuf_add_bytes(bits->out, &byte, 1);
        bits->held >>= 8;
        bits->count -= 8;
    }
}

static void put_code(struct bits *bits, uint32_t code, unsigned count)
{
    uint32_t turned = 0;

    for (unsigned i = 0; i < count; i++)
        turned |= (code >> i & 1) << (count - 1 - i);
    put(bits, turned, count);
}

/* RFC 1951, 3.2.6 */
static void put_symbol(struct bits *bits, unsigned symbol)
{
    if (symbol < 144)
        put_code(bits, 0x30 + symbol, 8);
    else if (symbol < 256)
        put_code(bits, 0x190 + symbol - 144, 9);
    else if (symbol < 280)
        put_code(bits, symbol - 256, 7);
    else
        put_code(bits, 0xc0 + symbol - 280, 8);
}

/* The last base that is not above `value`. */
static unsigned find_base(const uint16_t *bases, unsigned count, size_t value)
{
    unsigned i = 0;

    while (i + 1 < count && bases[i + 1] <= value)
        i++;
    return i;
}

/* RFC 1951, 3.2.5 */
static void put_match(struct bits *bits, size_t length, size_t distance)
{
    static const uint16_t lengths[] = { 3,  4,  5,  6,   7,   8,   9,   10,  11, 13,
                                        15, 17, 19, 23,  27,  31,  35,  43,  51, 59,
                                        67, 83, 99, 115, 131, 163, 195, 227, 258 };
    static const uint8_t length_bits[] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                           2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0 };
    static const uint16_t distances[] = { 1,    2,    3,    4,     5,     7,    9,    13,
                                          17,   25,   33,   49,    65,    97,   129,  193,
                                          257,  385,  513,  769,   1025,  1537, 2049, 3073,
                                          4097, 6145, 8193, 12289, 16385, 24577 };
    const unsigned l = find_base(lengths, sizeof lengths / sizeof *lengths, length);
    const unsigned d = find_base(distances, sizeof distances / sizeof *distances, distance);

    put_symbol(bits, END + 1 + l);
    put(bits, (uint32_t)(length - lengths[l]), length_bits[l]);
    put_code(bits, d, 5);
    put(bits, (uint32_t)(distance - distances[d]), d < 2 ? 0 : d / 2 - 1);
}

static unsigned hash_of(const uint8_t *at)
{
    const uint32_t three = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;

    return three * UINT32_C(2654435761) >> (32 - HASH_BITS);
}

static size_t match_length(const uint8_t *a, const uint8_t *b, size_t most)
{
    size_t length = 0;

    while (length < most && a[length] == b[length])
        length++;
    return length;
}

static uint32_t adler32(const uint8_t *data, size_t length)
{
    uint32_t a = 1, b = 0;

    for (size_t i = 0; i < length; i++) {
        a = (a + data[i]) % 65521;
        b = (b + a) % 65521;
    }
    return b << 16 | a;
}

void deflate_add(struct strbuf *out, const uint8_t *data, size_t length)
{
    static const uint8_t header[] = { 0x78, 0x01 };
    size_t last[1 << HASH_BITS]; /* where three bytes of a hash stood, plus one */
    struct bits bits = { .out = out };

    memset(last, 0, sizeof last);
    strbuf_add_bytes(out, header, sizeof header);
    put(&bits, 3, 3); /* the last block, fixed codes */
    for (size_t at = 0; at < length;) {
        const size_t left = length - at;
        size_t matched = 0, distance = 0;
        if (left >= LEAST) {
            size_t *slot = &last[hash_of(data + at)];
            if (*slot > 0 && at + 1 - *slot <= WINDOW) {
                distance = at + 1 - *slot;
                matched =
                    match_length(data + at - distance, data + at, left < MOST ? left : MOST);
            }
            *slot = at + 1;
        }
        if (matched >= LEAST) {
            put_match(&bits, matched, distance);
            at += matched;
        } else {
            put_symbol(&bits, data[at++]);
        }
    }
    put_symbol(&bits, END);
    put(&bits, 0, 7); /* fills the last byte */
    const uint32_t sum = adler32(data, length);
    const uint8_t trailer[] = { (uint8_t)(sum >> 24), (uint8_t)(sum >> 16), (uint8_t)(sum >> 8),
                                (uint8_t)sum };
    strbuf_add_bytes(out, trailer, sizeof trailer);
}
