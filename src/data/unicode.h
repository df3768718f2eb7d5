/* SPDX-License-Identifier: MIT */
/* unicode.h - what characters are, as far as tokenizers ask.
 *
 * Threads: any.
 */
#ifndef DATA_UNICODE_H
#define DATA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Characters [first, last]; a set's ranges ascend. */
struct range {
    uint32_t first, last;
};
struct unicode_set {
    const struct range *range;
    size_t count;
};
extern const struct unicode_set unicode_letters, unicode_numbers, unicode_spaces;
/* Around a capital sigma: letters with case, and what is skipped in the search for them. */
extern const struct unicode_set unicode_cased, unicode_skipped;

/* Characters [first, last], `step` apart, whose lower case is `delta` further. */
struct unicode_lower {
    uint32_t first, last, step;
    int32_t delta;
};
extern const struct unicode_lower unicode_lowers[]; /* ascending */
extern const size_t unicode_n_lowers;

bool unicode_is_in(const struct unicode_set *set, uint32_t code);

/* The code point that starts text[0..length), length > 0; *out_bytes is its length. A byte that starts
 * none is a character of its own: UNICODE_STRAY. */
enum { UNICODE_STRAY = 0x110000 };
uint32_t unicode_decode(const char *text, size_t length, size_t *out_bytes);

/* The lower case of the character at text[at], as Python's str.lower has it: a capital sigma that ends
 * a word becomes the final one. Writes 1 to 4 bytes and returns how many; *at moves past the
 * character. */
enum { UNICODE_LOWER_BYTES = 5 };
size_t unicode_lower_at(const char *text, size_t length, size_t *at,
                        char out[UNICODE_LOWER_BYTES]);

/* How many bytes of text[0..length) are UTF-8, from its start. */
size_t unicode_valid(const char *text, size_t length);

#endif /* DATA_UNICODE_H */
