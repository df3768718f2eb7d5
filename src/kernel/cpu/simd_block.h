/* SPDX-License-Identifier: MIT */
/* simd_block.h - blocks of SIMD_LANES numbers in registers, for what compilers do not make of
 * loops.
 *
 * AVX-512 and AVX2 have their own version of these few functions, others share one in the
 * compilers' own notation for vectors. A ragged end is loaded and stored in part: n
 * says how many elements are left, and where it is less than SIMD_LANES, only these are
 * touched.
 */
#ifndef KERNEL_CPU_SIMD_BLOCK_H
#define KERNEL_CPU_SIMD_BLOCK_H

#include "kernel/cpu/simd.h"

#if defined __AVX512F__

struct simd_floats {
    __m512 v;
};
struct simd_ints {
    __m512i v;
};

static inline __mmask16 simd_part(size_t n)
{
    return (__mmask16)(n < SIMD_LANES ? (1u << n) - 1 : 0xffff);
}

/* The first n of x, at most SIMD_LANES; `rest` in the other lanes. */
static inline struct simd_floats simd_load(const float *x, size_t n, float rest)
{
    return (struct simd_floats){ _mm512_mask_loadu_ps(_mm512_set1_ps(rest), simd_part(n), x) };
}

static inline void simd_store(struct simd_floats x, size_t n, float *y)
{
    _mm512_mask_storeu_ps(y, simd_part(n), x.v);
}

/* Past the caches, to where lines are whole: y is aligned to 64 bytes. simd_end_streams follows the
 * last before others may read it. */
static inline void simd_stream(struct simd_floats x, float *y)
{
    _mm512_stream_ps(y, x.v);
}
static inline void simd_end_streams(void)
{
    _mm_sfence();
}

/* The same for bytes; 0 in the other lanes. */
static inline struct simd_ints simd_load_bytes(const uint8_t *x, size_t n)
{
    return (struct simd_ints){ _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(simd_part(n), x)) };
}

static inline void simd_store_bytes(struct simd_ints x, size_t n, uint8_t *y)
{
    _mm_mask_storeu_epi8(y, simd_part(n), _mm512_cvtepi32_epi8(x.v));
}

static inline struct simd_floats simd_add(struct simd_floats a, struct simd_floats b)
{
    return (struct simd_floats){ _mm512_add_ps(a.v, b.v) };
}

static inline struct simd_floats simd_set(float value)
{
    return (struct simd_floats){ _mm512_set1_ps(value) };
}

static inline struct simd_floats simd_subtract(struct simd_floats a, struct simd_floats b)
{
    return (struct simd_floats){ _mm512_sub_ps(a.v, b.v) };
}

static inline struct simd_floats simd_multiply(struct simd_floats a, struct simd_floats b)
{
    return (struct simd_floats){ _mm512_mul_ps(a.v, b.v) };
}

/* A bit a lane, the first lowest: is x larger than the limit? */
static inline uint16_t simd_above(struct simd_floats x, float limit)
{
    return _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(limit), _CMP_GT_OQ);
}

/* x where its bit is set, else 0. */
static inline struct simd_floats simd_where(struct simd_floats x, uint16_t bits)
{
    return (struct simd_floats){ _mm512_maskz_mov_ps(bits, x.v) };
}

static inline struct simd_floats simd_divide(struct simd_floats x, float by)
{
    return (struct simd_floats){ _mm512_div_ps(x.v, _mm512_set1_ps(by)) };
}

static inline struct simd_ints simd_all(int value)
{
    return (struct simd_ints){ _mm512_set1_epi32(value) };
}

/* Where x is larger than *best, it and its place are taken. */
static inline void simd_take_larger(struct simd_floats x, int place, struct simd_floats *best,
                                    struct simd_ints *places)
{
    const __mmask16 larger = _mm512_cmp_ps_mask(x.v, best->v, _CMP_GT_OQ);

    best->v = _mm512_mask_mov_ps(best->v, larger, x.v);
    places->v = _mm512_mask_set1_epi32(places->v, larger, place);
}

/* x where its place is `place`, else 0. */
static inline struct simd_floats simd_at_place(struct simd_floats x, struct simd_ints places,
                                               int place)
{
    const __mmask16 equal = _mm512_cmpeq_epi32_mask(places.v, _mm512_set1_epi32(place));

    return (struct simd_floats){ _mm512_maskz_mov_ps(equal, x.v) };
}

#elif defined __AVX2__

struct simd_floats {
    __m256 low, high;
};
struct simd_ints {
    __m256i low, high;
};

/* All bits of the first n lanes of 8. */
static inline __m256i simd_part(size_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline struct simd_floats simd_load(const float *x, size_t n, float rest)
{
    if (n >= SIMD_LANES)
        return (struct simd_floats){ _mm256_loadu_ps(x), _mm256_loadu_ps(x + 8) };

    const __m256 fill = _mm256_set1_ps(rest);
    const __m256i low = simd_part(n), high = simd_part(n > 8 ? n - 8 : 0);
    return (struct simd_floats){
        _mm256_blendv_ps(fill, _mm256_maskload_ps(x, low), _mm256_castsi256_ps(low)),
        _mm256_blendv_ps(fill, n > 8 ? _mm256_maskload_ps(x + 8, high) : fill,
                         _mm256_castsi256_ps(high)),
    };
}

static inline void simd_store(struct simd_floats x, size_t n, float *y)
{
    if (n >= SIMD_LANES) {
        _mm256_storeu_ps(y, x.low);
        _mm256_storeu_ps(y + 8, x.high);
        return;
    }
    _mm256_maskstore_ps(y, simd_part(n), x.low);
    if (n > 8)
        _mm256_maskstore_ps(y + 8, simd_part(n - 8), x.high);
}

static inline void simd_stream(struct simd_floats x, float *y)
{
    _mm256_stream_ps(y, x.low);
    _mm256_stream_ps(y + 8, x.high);
}
static inline void simd_end_streams(void)
{
    _mm_sfence();
}

static inline struct simd_ints simd_load_bytes(const uint8_t *x, size_t n)
{
    uint8_t block[SIMD_LANES] = { 0 };

    memcpy(block, x, simd_min(n, SIMD_LANES));
    const __m128i bytes = _mm_loadu_si128((const __m128i *)block);
    return (struct simd_ints){ _mm256_cvtepu8_epi32(bytes),
                               _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)) };
}

static inline void simd_store_bytes(struct simd_ints x, size_t n, uint8_t *y)
{
    /* Packing works within halves of 128 bits, hence the swap of the middle. */
    const __m256i words =
        _mm256_permute4x64_epi64(_mm256_packus_epi32(x.low, x.high), _MM_SHUFFLE(3, 1, 2, 0));
    const __m128i bytes =
        _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    uint8_t block[SIMD_LANES];

    _mm_storeu_si128((__m128i *)block, bytes);
    memcpy(y, block, simd_min(n, SIMD_LANES));
}

static inline struct simd_floats simd_add(struct simd_floats a, struct simd_floats b)
{
    return (struct simd_floats){ _mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high) };
}

static inline struct simd_floats simd_set(float value)
{
    return (struct simd_floats){ _mm256_set1_ps(value), _mm256_set1_ps(value) };
}

static inline struct simd_floats simd_subtract(struct simd_floats a, struct simd_floats b)
{
    return (struct simd_floats){ _mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high) };
}

static inline struct simd_floats simd_multiply(struct simd_floats a, struct simd_floats b)
{
    return (struct simd_floats){ _mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high) };
}

static inline uint16_t simd_above(struct simd_floats x, float limit)
{
    const __m256 limits = _mm256_set1_ps(limit);
    const int low = _mm256_movemask_ps(_mm256_cmp_ps(x.low, limits, _CMP_GT_OQ));
    const int high = _mm256_movemask_ps(_mm256_cmp_ps(x.high, limits, _CMP_GT_OQ));

    return (uint16_t)(low | high << 8);
}

static inline struct simd_floats simd_where(struct simd_floats x, uint16_t bits)
{
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i low = _mm256_and_si256(_mm256_set1_epi32(bits), each);
    const __m256i high = _mm256_and_si256(_mm256_set1_epi32(bits >> 8), each);

    return (struct simd_floats){
        _mm256_and_ps(x.low, _mm256_castsi256_ps(_mm256_cmpeq_epi32(low, each))),
        _mm256_and_ps(x.high, _mm256_castsi256_ps(_mm256_cmpeq_epi32(high, each))),
    };
}

static inline struct simd_floats simd_divide(struct simd_floats x, float by)
{
    return (struct simd_floats){ _mm256_div_ps(x.low, _mm256_set1_ps(by)),
                                 _mm256_div_ps(x.high, _mm256_set1_ps(by)) };
}

static inline struct simd_ints simd_all(int value)
{
    return (struct simd_ints){ _mm256_set1_epi32(value), _mm256_set1_epi32(value) };
}

static inline void simd_take_larger(struct simd_floats x, int place, struct simd_floats *best,
                                    struct simd_ints *places)
{
    const __m256 low = _mm256_cmp_ps(x.low, best->low, _CMP_GT_OQ);
    const __m256 high = _mm256_cmp_ps(x.high, best->high, _CMP_GT_OQ);
    const __m256i at = _mm256_set1_epi32(place);

    best->low = _mm256_blendv_ps(best->low, x.low, low);
    best->high = _mm256_blendv_ps(best->high, x.high, high);
    places->low = _mm256_blendv_epi8(places->low, at, _mm256_castps_si256(low));
    places->high = _mm256_blendv_epi8(places->high, at, _mm256_castps_si256(high));
}

static inline struct simd_floats simd_at_place(struct simd_floats x, struct simd_ints places,
                                               int place)
{
    const __m256i at = _mm256_set1_epi32(place);

    return (struct simd_floats){
        _mm256_and_ps(x.low, _mm256_castsi256_ps(_mm256_cmpeq_epi32(places.low, at))),
        _mm256_and_ps(x.high, _mm256_castsi256_ps(_mm256_cmpeq_epi32(places.high, at))),
    };
}

#else

enum { SIMD_PARTS = SIMD_LANES / 4 };

typedef float simd_float_part __attribute__((vector_size(16)));
typedef int32_t simd_int_part __attribute__((vector_size(16)));
typedef uint8_t simd_byte_part __attribute__((vector_size(4)));

struct simd_floats {
    simd_float_part part[SIMD_PARTS];
};
struct simd_ints {
    simd_int_part part[SIMD_PARTS];
};

/* The first n of x, at most SIMD_LANES; `rest` in the other lanes. */
static inline struct simd_floats simd_load(const float *x, size_t n, float rest)
{
    struct simd_floats out;
    float block[SIMD_LANES];

    if (n >= SIMD_LANES) {
        memcpy(&out, x, sizeof out);
        return out;
    }
    for (size_t l = 0; l < SIMD_LANES; l++)
        block[l] = rest;
    memcpy(block, x, n * sizeof *x);
    memcpy(&out, block, sizeof out);
    return out;
}

static inline void simd_store(struct simd_floats x, size_t n, float *y)
{
    if (n >= SIMD_LANES) {
        memcpy(y, &x, sizeof x);
        return;
    }
    memcpy(y, &x, n * sizeof *y);
}

/* Without streaming stores: as any other. */
static inline void simd_stream(struct simd_floats x, float *y)
{
    memcpy(y, &x, sizeof x);
}
static inline void simd_end_streams(void)
{
}

static inline struct simd_ints simd_load_bytes(const uint8_t *x, size_t n)
{
    simd_byte_part bytes[SIMD_PARTS] = { 0 };
    struct simd_ints out;

    if (n >= SIMD_LANES)
        memcpy(bytes, x, SIMD_LANES);
    else
        memcpy(bytes, x, n);
    for (int i = 0; i < SIMD_PARTS; i++)
        out.part[i] = __builtin_convertvector(bytes[i], simd_int_part);
    return out;
}

static inline void simd_store_bytes(struct simd_ints x, size_t n, uint8_t *y)
{
    simd_byte_part bytes[SIMD_PARTS];

    for (int i = 0; i < SIMD_PARTS; i++)
        bytes[i] = __builtin_convertvector(x.part[i], simd_byte_part);
    if (n >= SIMD_LANES)
        memcpy(y, bytes, SIMD_LANES);
    else
        memcpy(y, bytes, n);
}

static inline struct simd_ints simd_all(int value)
{
    struct simd_ints out;

    for (int i = 0; i < SIMD_PARTS; i++)
        out.part[i] = (simd_int_part){ 0 } + value;
    return out;
}

static inline struct simd_floats simd_add(struct simd_floats a, struct simd_floats b)
{
    for (int i = 0; i < SIMD_PARTS; i++)
        a.part[i] += b.part[i];
    return a;
}

static inline struct simd_floats simd_set(float value)
{
    struct simd_floats out;

    for (int i = 0; i < SIMD_PARTS; i++)
        out.part[i] = (simd_float_part){ 0 } + value;
    return out;
}

static inline struct simd_floats simd_subtract(struct simd_floats a, struct simd_floats b)
{
    for (int i = 0; i < SIMD_PARTS; i++)
        a.part[i] -= b.part[i];
    return a;
}

static inline struct simd_floats simd_multiply(struct simd_floats a, struct simd_floats b)
{
    for (int i = 0; i < SIMD_PARTS; i++)
        a.part[i] *= b.part[i];
    return a;
}

/* A bit a lane, the first lowest: is x larger than the limit? */
static inline uint16_t simd_above(struct simd_floats x, float limit)
{
    simd_int_part all = { 0 };

    for (int i = 0; i < SIMD_PARTS; i++)
        all |= (x.part[i] > limit) & ((simd_int_part){ 1, 2, 4, 8 } << 4 * i);
    return (uint16_t)(all[0] | all[1] | all[2] | all[3]);
}

/* x where its bit is set, else 0. */
static inline struct simd_floats simd_where(struct simd_floats x, uint16_t bits)
{
    const simd_int_part all = (simd_int_part){ 0 } + bits;

    for (int i = 0; i < SIMD_PARTS; i++) {
        const simd_int_part set = (all & ((simd_int_part){ 1, 2, 4, 8 } << 4 * i)) != 0;
        x.part[i] = (simd_float_part)(set & (simd_int_part)x.part[i]);
    }
    return x;
}

static inline struct simd_floats simd_divide(struct simd_floats x, float by)
{
    for (int i = 0; i < SIMD_PARTS; i++)
        x.part[i] /= by;
    return x;
}

/* Where x is larger than *best, it and its place are taken. */
static inline void simd_take_larger(struct simd_floats x, int place, struct simd_floats *best,
                                    struct simd_ints *places)
{
    for (int i = 0; i < SIMD_PARTS; i++) {
        const simd_int_part larger = x.part[i] > best->part[i]; /* all bits or none */
        best->part[i] = (simd_float_part)((larger & (simd_int_part)x.part[i]) |
                                          (~larger & (simd_int_part)best->part[i]));
        places->part[i] = (larger & place) | (~larger & places->part[i]);
    }
}

/* x where its place is `place`, else 0. */
static inline struct simd_floats simd_at_place(struct simd_floats x, struct simd_ints places,
                                               int place)
{
    for (int i = 0; i < SIMD_PARTS; i++)
        x.part[i] = (simd_float_part)((places.part[i] == place) & (simd_int_part)x.part[i]);
    return x;
}

#endif

#endif /* KERNEL_CPU_SIMD_BLOCK_H */
