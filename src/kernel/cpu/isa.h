/* SPDX-License-Identifier: MIT */
/* isa.h - one vocabulary for the vectors of AVX2 and AVX-512.
 *
 * Included only by sources that are compiled once for each instruction set
 * (cpu/fast.cmake): with -DISA_AVX512 vectors have 16 floats, else 8. A ragged
 * end is loaded and stored under a mask with the same arithmetic as the body.
 */
#ifndef KERNEL_CPU_ISA_H
#define KERNEL_CPU_ISA_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

#ifdef ISA_AVX512

enum { LANES = 16 };
typedef __m512 vec;
typedef __mmask16 vec_mask; /* as comparisons give it */
typedef __mmask16 vec_part; /* the first n lanes */

INLINE vec vec_zero(void)
{
    return _mm512_setzero_ps();
}
INLINE vec vec_set(float value)
{
    return _mm512_set1_ps(value);
}
INLINE vec vec_load(const float *from)
{
    return _mm512_loadu_ps(from);
}
INLINE void vec_store(float *to, vec v)
{
    _mm512_storeu_ps(to, v);
}
/* Past the caches; `to` is aligned to the vector. */
INLINE void vec_stream(float *to, vec v)
{
    _mm512_stream_ps(to, v);
}
INLINE vec_part vec_first(int n)
{
    return (__mmask16)((1u << n) - 1u);
}
INLINE vec vec_load_part(const float *from, vec_part part)
{
    return _mm512_maskz_loadu_ps(part, from);
}
INLINE void vec_store_part(float *to, vec v, vec_part part)
{
    _mm512_mask_storeu_ps(to, part, v);
}
INLINE vec vec_add(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}
INLINE vec vec_sub(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}
INLINE vec vec_mul(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}
INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* max(v, 0); a NaN stays. */
INLINE vec vec_relu(vec v)
{
    return _mm512_max_ps(_mm512_setzero_ps(), v);
}
/* v, not below low nor above high; a NaN stays. */
INLINE vec vec_cut(vec v, vec low, vec high)
{
    return _mm512_min_ps(high, _mm512_max_ps(low, v));
}
INLINE vec_mask vec_greater(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ);
}
INLINE vec_mask vec_not_greater(vec a, vec b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
/* where mask: b, elsewhere a */
INLINE vec vec_choose(vec_mask mask, vec a, vec b)
{
    return _mm512_mask_blend_ps(mask, a, b);
}

/* Small numbers, one a lane, stored as bytes. */
typedef __m512i vec_int;
INLINE vec_int int_set(int value)
{
    return _mm512_set1_epi32(value);
}
INLINE vec_int int_choose(vec_mask mask, vec_int a, vec_int b)
{
    return _mm512_mask_blend_epi32(mask, a, b);
}
INLINE vec_int int_load(const int32_t *from)
{
    return _mm512_loadu_si512(from);
}
INLINE void int_store(int32_t *to, vec_int v)
{
    _mm512_storeu_si512(to, v);
}
INLINE vec_int int_add(vec_int a, vec_int b)
{
    return _mm512_add_epi32(a, b);
}
/* 0, 1, 2, ... */
INLINE vec_int int_steps(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
INLINE float vec_largest(vec v)
{
    return _mm512_reduce_max_ps(v);
}
/* The smallest number, without sign, of the lanes where v is `value`. */
INLINE int32_t int_first_where(vec v, float value, vec_int numbers)
{
    const __mmask16 equal = _mm512_cmp_ps_mask(v, _mm512_set1_ps(value), _CMP_EQ_OQ);
    return (int32_t)_mm512_mask_reduce_min_epu32(equal, numbers);
}
/* v in the first lanes, `other` in the rest */
INLINE vec vec_or_else(vec v, vec_part part, vec other)
{
    return _mm512_mask_blend_ps(part, other, v);
}
/* n bytes, the rest zero */
INLINE vec_int int_load_bytes(const uint8_t *from, int n)
{
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(vec_first(n), from));
}
/* v where a is b, elsewhere 0 */
INLINE vec vec_where_equal(vec_int a, vec_int b, vec v)
{
    return _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(a, b), v);
}
INLINE vec vec_unless_equal(vec_int a, vec_int b, vec v)
{
    return _mm512_maskz_mov_ps(_mm512_cmpneq_epi32_mask(a, b), v);
}
INLINE void int_store_bytes(uint8_t *to, vec_int v, int n)
{
    _mm512_mask_cvtepi32_storeu_epi8(to, vec_first(n), v);
}

/* Every second element of a, then of b, from the first or the second on. */
INLINE vec vec_even(vec a, vec b)
{
    const __m512i at =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, at, b);
}
INLINE vec vec_odd(vec a, vec b)
{
    const __m512i at =
        _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(a, at, b);
}

/* Rows become columns. */
INLINE void vec_transpose(vec r[LANES])
{
    vec t[LANES];

#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#else

enum { LANES = 8 };
typedef __m256 vec;
typedef __m256 vec_mask;
typedef __m256i vec_part;

INLINE vec vec_zero(void)
{
    return _mm256_setzero_ps();
}
INLINE vec vec_set(float value)
{
    return _mm256_set1_ps(value);
}
INLINE vec vec_load(const float *from)
{
    return _mm256_loadu_ps(from);
}
INLINE void vec_store(float *to, vec v)
{
    _mm256_storeu_ps(to, v);
}
INLINE void vec_stream(float *to, vec v)
{
    _mm256_stream_ps(to, v);
}
INLINE vec_part vec_first(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vec vec_load_part(const float *from, vec_part part)
{
    return _mm256_maskload_ps(from, part);
}
INLINE void vec_store_part(float *to, vec v, vec_part part)
{
    _mm256_maskstore_ps(to, part, v);
}
INLINE vec vec_add(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}
INLINE vec vec_sub(vec a, vec b)
{
    return _mm256_sub_ps(a, b);
}
INLINE vec vec_mul(vec a, vec b)
{
    return _mm256_mul_ps(a, b);
}
INLINE vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vec vec_relu(vec v)
{
    return _mm256_max_ps(_mm256_setzero_ps(), v);
}
INLINE vec vec_cut(vec v, vec low, vec high)
{
    return _mm256_min_ps(high, _mm256_max_ps(low, v));
}
INLINE vec_mask vec_greater(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_GT_OQ);
}
INLINE vec_mask vec_not_greater(vec a, vec b)
{
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
INLINE vec vec_choose(vec_mask mask, vec a, vec b)
{
    return _mm256_blendv_ps(a, b, mask);
}

typedef __m256i vec_int;
INLINE vec_int int_set(int value)
{
    return _mm256_set1_epi32(value);
}
INLINE vec_int int_choose(vec_mask mask, vec_int a, vec_int b)
{
    return _mm256_castps_si256(
        _mm256_blendv_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), mask));
}
INLINE vec_int int_load(const int32_t *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}
INLINE void int_store(int32_t *to, vec_int v)
{
    _mm256_storeu_si256((__m256i *)to, v);
}
INLINE vec_int int_add(vec_int a, vec_int b)
{
    return _mm256_add_epi32(a, b);
}
INLINE vec_int int_steps(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}
INLINE float vec_largest(vec v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
INLINE int32_t int_first_where(vec v, float value, vec_int numbers)
{
    const __m256 equal = _mm256_cmp_ps(v, _mm256_set1_ps(value), _CMP_EQ_OQ);
    const __m256i some =
        _mm256_blendv_epi8(_mm256_set1_epi32(-1), numbers, _mm256_castps_si256(equal));
    __m128i m = _mm_min_epu32(_mm256_castsi256_si128(some), _mm256_extracti128_si256(some, 1));
    m = _mm_min_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_min_epu32(m, _mm_shuffle_epi32(m, 0xb1)));
}
INLINE vec vec_or_else(vec v, vec_part part, vec other)
{
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(part));
}
INLINE vec_int int_load_bytes(const uint8_t *from, int n)
{
    uint64_t bytes = 0;

    __builtin_memcpy(&bytes, from, (size_t)n);
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
}
INLINE vec vec_where_equal(vec_int a, vec_int b, vec v)
{
    return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)), v);
}
INLINE vec vec_unless_equal(vec_int a, vec_int b, vec v)
{
    return _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)), v);
}
INLINE void int_store_bytes(uint8_t *to, vec_int v, int n)
{
    const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
    const __m128i words = _mm_packus_epi32(low, high);
    const long long bytes = _mm_cvtsi128_si64(_mm_packus_epi16(words, words));

    __builtin_memcpy(to, &bytes, (size_t)n);
}

INLINE vec vec_even(vec a, vec b)
{
    const __m256d both = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0x88));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(both, 0xd8));
}
INLINE vec vec_odd(vec a, vec b)
{
    const __m256d both = _mm256_castps_pd(_mm256_shuffle_ps(a, b, 0xdd));
    return _mm256_castpd_ps(_mm256_permute4x64_pd(both, 0xd8));
}

INLINE void vec_transpose(vec r[LANES])
{
    vec t[LANES];

#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        r[i] = t[i];
}

#endif

#endif /* KERNEL_CPU_ISA_H */
