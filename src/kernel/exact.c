/* SPDX-License-Identifier: MIT */
/* exact.c - sums in fixed places: see exact.h. */
#include "kernel/exact.h"

#include <math.h>
#include <string.h>

enum {
    LOWEST = -320, /* power of two of the first digit */
    DIGIT_BITS = 32,
    MANTISSA_BITS = 52,
    EXPONENT_BIAS = 1075, /* of the mantissa as a whole number */
    EXPONENT_NONE = 0x7ff
};
static const uint64_t DIGIT = ((uint64_t)1 << DIGIT_BITS) - 1;

void exact_sum_add(struct exact_sum *sum, double square)
{
    uint64_t bits;

    memcpy(&bits, &square, sizeof bits);
    const int exponent = (int)(bits >> MANTISSA_BITS) & EXPONENT_NONE;
    uint64_t mantissa = (bits & (((uint64_t)1 << MANTISSA_BITS) - 1)) | (uint64_t)1
                                                                            << MANTISSA_BITS;
    int place = exponent - EXPONENT_BIAS - LOWEST;

    if (exponent == EXPONENT_NONE) {
        *(isnan(square) ? &sum->undefined : &sum->infinite) += 1;
        return;
    }
    if (place < 0) { /* no square of floats is as small, but for 0 */
        mantissa = place > -DIGIT_BITS * 2 ? mantissa >> -place : 0;
        place = 0;
    }
    const int digit = place / DIGIT_BITS, shift = place % DIGIT_BITS;
    if (digit + 2 >= EXACT_DIGITS) { /* nor as large */
        sum->infinite++;
        return;
    }
    const uint64_t low = (mantissa & DIGIT) << shift, high = (mantissa >> DIGIT_BITS) << shift;
    sum->digit[digit] += low & DIGIT;
    sum->digit[digit + 1] += (low >> DIGIT_BITS) + (high & DIGIT);
    sum->digit[digit + 2] += high >> DIGIT_BITS;
}

void exact_sum_join(struct exact_sum *sum, const struct exact_sum *other)
{
    uint64_t carry = 0;

    /* Digits first become what they are after all carries, so that sums of many sums have room, too. */
    for (int i = 0; i < EXACT_DIGITS; i++) {
        const uint64_t digit = (sum->digit[i] & DIGIT) + (other->digit[i] & DIGIT) + carry;
        carry = (sum->digit[i] >> DIGIT_BITS) + (other->digit[i] >> DIGIT_BITS) +
                (digit >> DIGIT_BITS);
        sum->digit[i] = digit & DIGIT;
    }
    sum->digit[EXACT_DIGITS - 1] += carry << DIGIT_BITS;
    sum->infinite += other->infinite;
    sum->undefined += other->undefined;
}

double exact_sum_value(const struct exact_sum *sum)
{
    static const struct exact_sum nothing;
    struct exact_sum carried = *sum;
    double value = 0;

    if (sum->undefined)
        return NAN;
    if (sum->infinite)
        return INFINITY;
    exact_sum_join(&carried, &nothing);
    for (int i = EXACT_DIGITS - 1; i >= 0; i--)
        value += ldexp((double)carried.digit[i], LOWEST + i * DIGIT_BITS);
    return value;
}
