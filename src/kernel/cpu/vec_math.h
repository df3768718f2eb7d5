/* SPDX-License-Identifier: MIT */
/* vec_math.h - exponentials of the vectors of isa.h.
 *
 * The same arithmetic on each element whatever the width, so that AVX2 and AVX-512 give the same
 * bits. Relative errors against exact values, over a sample of floats: exp below 1.5e-7, sigmoid and tanh
 * below 2.5e-7; an ulp is 0.6e-7 to 1.2e-7. NaN gives NaN.
 *
 * exp: x = n ln 2 + r with |r| <= ln 2 / 2 (Cody and Waite), adding 1.5 * 2^23 rounds to a whole n
 * and leaves n in the low bits; e^r - 1 by its Taylor polynomial of degree 7, off by less than 6e-9.
 */
#ifndef KERNEL_CPU_VEC_MATH_H
#define KERNEL_CPU_VEC_MATH_H

#include "kernel/cpu/isa.h"

#ifdef ISA_AVX512

INLINE vec vec_div(vec a, vec b)
{
    return _mm512_div_ps(a, b);
}
INLINE vec vec_abs(vec v)
{
    return _mm512_abs_ps(v);
}
/* 2^n, from 1.5 * 2^23 + n */
INLINE vec vec_power(vec shifted)
{
    const __m512i n = _mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(n, 23));
}
/* |a| with the sign of b */
INLINE vec vec_with_sign(vec a, vec b)
{
    const __m512 sign = _mm512_set1_ps(-0.0f);
    return _mm512_or_ps(_mm512_andnot_ps(sign, a), _mm512_and_ps(sign, b));
}
INLINE vec_mask vec_less(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
/* The elements added up: halves onto halves. */
INLINE float vec_sum(vec v)
{
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quarter =
        _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 two = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#else

INLINE vec vec_div(vec a, vec b)
{
    return _mm256_div_ps(a, b);
}
INLINE vec vec_abs(vec v)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v);
}
INLINE vec vec_power(vec shifted)
{
    const __m256i n = _mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(n, 23));
}
INLINE vec vec_with_sign(vec a, vec b)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return _mm256_or_ps(_mm256_andnot_ps(sign, a), _mm256_and_ps(sign, b));
}
INLINE vec_mask vec_less(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
INLINE float vec_sum(vec v)
{
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif

/* e^x = 2^n (1 + p): *n as a power of two, and p. |x| < 87. */
INLINE vec vec_split_exp(vec x, vec *power)
{
    const vec magic = vec_set(0x1.8p23f);
    const vec shifted = vec_fma(x, vec_set(0x1.715476p0f), magic); /* 1 / ln 2 */
    const vec n = vec_sub(shifted, magic);
    vec r = vec_fma(n, vec_set(-0x1.62e4p-1f),
                    x); /* ln 2 in two parts; n times the first is exact */
    vec p = vec_set(1.0f / 5040);

    r = vec_fma(n, vec_set(-0x1.7f7d1cp-20f), r);
    p = vec_fma(r, p, vec_set(1.0f / 720));
    p = vec_fma(r, p, vec_set(1.0f / 120));
    p = vec_fma(r, p, vec_set(1.0f / 24));
    p = vec_fma(r, p, vec_set(1.0f / 6));
    p = vec_fma(r, p, vec_set(0.5f));
    *power = vec_power(shifted);
    return vec_fma(vec_mul(r, r), p, r);
}

/* e^x for x <= 0; what would be less than e^-87 is that. */
INLINE vec vec_exp_not_positive(vec x)
{
    vec power;
    const vec p = vec_split_exp(vec_cut(x, vec_set(-87), vec_zero()), &power);

    return vec_fma(power, p, power);
}

/* 1 / (1 + e^-x): of e = e^-|x|, so that neither end loses digits. */
INLINE vec vec_sigmoid(vec x)
{
    const vec e = vec_exp_not_positive(vec_sub(vec_zero(), vec_abs(x)));
    const vec one = vec_set(1);

    return vec_div(vec_choose(vec_less(x, vec_zero()), one, e), vec_add(one, e));
}

/* (e^2|x| - 1) / (e^2|x| + 1), with the sign of x; 1 from 10 on. */
INLINE vec vec_tanh(vec x)
{
    const vec two = vec_set(2);
    const vec twice = vec_cut(vec_mul(two, vec_abs(x)), vec_zero(), vec_set(20));
    vec power;
    const vec p = vec_split_exp(twice, &power);
    const vec t = vec_fma(power, p, vec_sub(power, vec_set(1))); /* e^2|x| - 1 */

    return vec_with_sign(vec_div(t, vec_add(t, two)), x);
}

#endif /* KERNEL_CPU_VEC_MATH_H */
