/* SPDX-License-Identifier: MIT */
/* utf8.h - which bytes are UTF-8. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that starts `text`, 1 to 4, or 0 where text[0..length) starts with
 * none: a stray or missing continuation, an overlong form, a surrogate, above U+10FFFF. */
size_t utf8_span(const char *text, size_t length);

/* Bytes at the end of text[0..length) that may be the beginning of a character: 0 to 3. */
size_t utf8_unfinished(const char *text, size_t length);

/* Writes a code point below 0x110000 that is no surrogate; returns its 1 to 4 bytes. */
size_t utf8_encode(uint32_t code, char out[4]);

/* Puts spaces in the place of control characters of text[0..length), so that a terminal takes none
 * of it for a command: C0 with line breaks, DEL, and C1 in UTF-8. */
void utf8_blank_controls(char *text, size_t length);

/* Does the environment (LC_ALL, LC_CTYPE, LANG) say that a terminal shows UTF-8? */
bool utf8_is_wanted(void);

#endif /* BASE_UTF8_H */
