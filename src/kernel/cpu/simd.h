/* simd.h - for the sources that are compiled once for each instruction set.
 *
 * Those sources are plain loops over floats, marked `#pragma omp simd` (of OpenMP only the
 * pragma, no run time): it promises that iterations are independent, also where an output is
 * an input's buffer. Each operation on an element is the same in vector and scalar code, and
 * sums go by SIMD_LANES lanes whatever the registers' width, so all instruction sets give
 * the same bits. Only the tables at the end of a source are visible outside, under
 * SIMD_TABLE's name.
 */
#ifndef KERNEL_CPU_SIMD_H
#define KERNEL_CPU_SIMD_H

#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <string.h>

#include "kernel/kernel.h"

#if defined __AVX512F__
#define SIMD_TABLE(name) name##_avx512
#elif defined __AVX2__
#define SIMD_TABLE(name) name##_avx2
#else
#define SIMD_TABLE(name) name##_generic
#endif

/* Lanes of a sum. */
enum { SIMD_LANES = 16 };
/* Elements worth a task of the pool: some microseconds. */
enum { SIMD_GRAIN = 16384 };

static inline size_t simd_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Part [from, to) of a call's work. */
typedef void simd_range_fn(const struct kernel_call *call, size_t from, size_t to);

struct simd_ranges {
    const struct kernel_call *call;
    simd_range_fn *fn;
    size_t count, grain;
};

static inline void simd_run_range(void *arg, size_t i)
{
    const struct simd_ranges *ranges = arg;
    const size_t from = i * ranges->grain;

    ranges->fn(ranges->call, from, simd_min(from + ranges->grain, ranges->count));
}

/* Cuts `count` independent items of `item` elements each into tasks. */
static inline void simd_for(const struct kernel_call *call, size_t count, size_t item,
                            simd_range_fn *fn)
{
    const size_t grain = item < SIMD_GRAIN ? SIMD_GRAIN / item : 1;
    struct simd_ranges ranges = { call, fn, count, grain };

    if (count <= grain)
        fn(call, 0, count);
    else
        pool_for(call->pool, (count + grain - 1) / grain, simd_run_range, &ranges);
}

/* Blocks of SIMD_LANES numbers in registers, for what compilers do not make of loops. Each
 * instruction set has its own version of these few functions; a ragged end is loaded and
 * stored in part, with n < SIMD_LANES. */
#if defined __AVX512F__

struct simd_floats {
    __m512 v;
};
struct simd_ints {
    __m512i v;
};

static inline __mmask16 simd_part(size_t n)
{
    return n < SIMD_LANES ? (__mmask16)((1u << n) - 1) : (__mmask16)0xffff;
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
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
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
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words),
                                           _mm256_extracti128_si256(words, 1));
    uint8_t block[SIMD_LANES];

    _mm_storeu_si128((__m128i *)block, bytes);
    memcpy(y, block, simd_min(n, SIMD_LANES));
}

static inline struct simd_floats simd_add(struct simd_floats a, struct simd_floats b)
{
    return (struct simd_floats){ _mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high) };
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

struct simd_floats {
    float lane[SIMD_LANES];
};
struct simd_ints {
    int lane[SIMD_LANES];
};

static inline struct simd_floats simd_load(const float *x, size_t n, float rest)
{
    struct simd_floats out;

    if (n >= SIMD_LANES) {
        memcpy(out.lane, x, sizeof out.lane);
        return out;
    }
    for (size_t l = 0; l < SIMD_LANES; l++)
        out.lane[l] = l < n ? x[l] : rest;
    return out;
}

static inline void simd_store(struct simd_floats x, size_t n, float *y)
{
    if (n >= SIMD_LANES)
        memcpy(y, x.lane, sizeof x.lane);
    else
        memcpy(y, x.lane, n * sizeof *y);
}

static inline struct simd_ints simd_load_bytes(const uint8_t *x, size_t n)
{
    uint8_t block[SIMD_LANES] = { 0 };
    struct simd_ints out;

    memcpy(block, x, simd_min(n, SIMD_LANES));
    for (size_t l = 0; l < SIMD_LANES; l++)
        out.lane[l] = block[l];
    return out;
}

static inline void simd_store_bytes(struct simd_ints x, size_t n, uint8_t *y)
{
    uint8_t block[SIMD_LANES];

    for (int l = 0; l < SIMD_LANES; l++)
        block[l] = (uint8_t)x.lane[l];
    memcpy(y, block, simd_min(n, SIMD_LANES));
}

static inline struct simd_floats simd_add(struct simd_floats a, struct simd_floats b)
{
    for (int l = 0; l < SIMD_LANES; l++)
        a.lane[l] += b.lane[l];
    return a;
}

static inline struct simd_floats simd_divide(struct simd_floats x, float by)
{
    for (int l = 0; l < SIMD_LANES; l++)
        x.lane[l] /= by;
    return x;
}

static inline struct simd_ints simd_all(int value)
{
    struct simd_ints out;

    for (int l = 0; l < SIMD_LANES; l++)
        out.lane[l] = value;
    return out;
}

static inline void simd_take_larger(struct simd_floats x, int place, struct simd_floats *best,
                                    struct simd_ints *places)
{
    for (int l = 0; l < SIMD_LANES; l++) {
        places->lane[l] = x.lane[l] > best->lane[l] ? place : places->lane[l];
        best->lane[l] = x.lane[l] > best->lane[l] ? x.lane[l] : best->lane[l];
    }
}

static inline struct simd_floats simd_at_place(struct simd_floats x, struct simd_ints places,
                                               int place)
{
    for (int l = 0; l < SIMD_LANES; l++)
        x.lane[l] = places.lane[l] == place ? x.lane[l] : 0;
    return x;
}

#endif

/* Lanes added up, always in this order: halves onto halves. The lanes are used up. */
static inline float simd_sum(float lane[SIMD_LANES])
{
    for (int width = SIMD_LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    }
    return lane[0];
}

static inline double simd_sum_double(double lane[SIMD_LANES])
{
    for (int width = SIMD_LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    }
    return lane[0];
}

static inline float simd_largest(float lane[SIMD_LANES])
{
    for (int width = SIMD_LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lane[l] = lane[l + width] > lane[l] ? lane[l + width] : lane[l];
    }
    return lane[0];
}

#endif /* KERNEL_CPU_SIMD_H */
