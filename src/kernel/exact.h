/* SPDX-License-Identifier: MIT */
/* exact.h - a sum of sums of squares that does not depend on the order of its additions.
 *
 * Rows of a table's gradient are added up by lanes, servers or machines, each some of them, and how they are dealt out
 * depends on how many there are. So that the norm of all has the same bits anyway, what a row gives (a double, from
 * kernel_sum_squares) is added in whole numbers, without rounding: digits of 32 bits whose places are powers of two, each in a
 * word of 64, so that carries can wait. The sum is exact until it is read, which adds its digits in double, in
 * a fixed order.
 *
 *   6.5 = 6 * 2^0 + 2^31 * 2^-32       digit[10] = 6, digit[9] = 2^31
 *
 * Squares of floats are multiples of 2^-298 and below 2^256; 20 digits from 2^-320 on have room for 2^31 rows of 4096.
 *
 * Threads: who has the sum.
 */
#ifndef KERNEL_EXACT_H
#define KERNEL_EXACT_H

#include <stdint.h>

enum { EXACT_DIGITS = 20 };

/* All zero is the empty sum. */
struct exact_sum {
    uint64_t digit
        [EXACT_DIGITS]; /* the lowest first; what is over 32 bits is carried when it is read */
    uint64_t infinite, undefined; /* how many numbers were that */
};

/* A sum of squares of floats: not below 0; infinity and NaN are counted. */
void exact_sum_add(struct exact_sum *sum, double square);
void exact_sum_join(struct exact_sum *sum, const struct exact_sum *other);
/* Infinity or NaN if one was among them. */
double exact_sum_value(const struct exact_sum *sum);

#endif /* KERNEL_EXACT_H */
