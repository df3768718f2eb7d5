/* SPDX-License-Identifier: MIT */
/* number.h - numbers as people read them: on axes, in tables, in a title.
 *
 * Texts are UTF-8 with typographic minus and powers of ten; a value that is not
 * finite is written as a dash, so that no report says "nan".
 */
#ifndef REPORT_NUMBER_H
#define REPORT_NUMBER_H

#include <stddef.h>

enum { NUMBER_TEXT = 64 }; /* bytes that hold any of the texts below */

enum number_format {
    NUMBER_PLAIN,   /* 0.25, 1200, 3×10⁻⁵ */
    NUMBER_PERCENT, /* 0.25 is 25% */
    NUMBER_SI,      /* 51.2k, 3M */
};

/* A tick of an axis whose ticks are `step` apart: as many decimals as tell them apart.
 * With step 0 a single figure, about four digits of it. */
void number_print(char out[NUMBER_TEXT], double value, enum number_format format, double step);

void number_whole(char out[NUMBER_TEXT], double value); /* 206,922 */
void number_bytes(char out[NUMBER_TEXT], double bytes); /* 1.25 GiB */
void number_duration(char out[NUMBER_TEXT],
                     double seconds);                     /* 12.3 s, 4 min 32 s, 2 h 05 min */
void number_clock(char out[NUMBER_TEXT], double seconds); /* 0:07, 4:32, 2:05:10 */

#endif /* REPORT_NUMBER_H */
