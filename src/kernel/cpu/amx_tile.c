/* SPDX-License-Identifier: MIT */
/* amx_tile.c - what uses the tile registers: 32 x 32 blocks of C, and packing. Compiled for AMX. */
#include <immintrin.h>
#include <string.h>

#include "kernel/cpu/amx.h"

enum { SIXTEEN = 16, REGISTER = 512 /* bf16 of one */ };

/* What _tile_loadconfig reads: the layout is the processor's. */
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; /* of a row, by register */
    uint8_t rows[16];
};

/* In memory before anything runs: compilers do not see that the instruction reads all of it. */
static const struct tile_config config = {
    .palette = 1,
    .bytes = { 64, 64, 64, 64, 64, 64, 64, 64 },
    .rows = { 16, 16, 16, 16, 16, 16, 16, 16 },
};

void amx_begin(void)
{
    _tile_loadconfig(&config);
}

void amx_end(void)
{
    _tile_release();
}

/* Registers 0 to 3 are C, 4 and 5 A's rows, 6 and 7 B's columns. */
#define LOAD_A(a, part)                                                                        \
    do {                                                                                       \
        _tile_loadd(4, (a) + (part)*2 * REGISTER, 64);                                         \
        _tile_loadd(5, (a) + ((part)*2 + 1) * REGISTER, 64);                                   \
    } while (0)
#define LOAD_B(b, part)                                                                        \
    do {                                                                                       \
        _tile_loadd(6, (b) + (part)*2 * REGISTER, 64);                                         \
        _tile_loadd(7, (b) + ((part)*2 + 1) * REGISTER, 64);                                   \
    } while (0)
#define MULTIPLY()                                                                             \
    do {                                                                                       \
        _tile_dpbf16ps(0, 4, 6);                                                               \
        _tile_dpbf16ps(1, 4, 7);                                                               \
        _tile_dpbf16ps(2, 5, 6);                                                               \
        _tile_dpbf16ps(3, 5, 7);                                                               \
    } while (0)

static inline void begin_block(const struct amx_product *p, float *below, size_t bytes)
{
    if (p->begin == AMX_ADD) {
        _tile_loadd(0, p->c, bytes);
        _tile_loadd(1, p->c + SIXTEEN, bytes);
        _tile_loadd(2, below, bytes);
        _tile_loadd(3, below + SIXTEEN, bytes);
    } else if (p->begin == AMX_BIAS) { /* the same row 16 times */
        _tile_loadd(0, p->bias, 0);
        _tile_loadd(1, p->bias + SIXTEEN, 0);
        _tile_loadd(2, p->bias, 0);
        _tile_loadd(3, p->bias + SIXTEEN, 0);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
}

static inline void add_stretch(const struct amx_stretch *stretch)
{
    const uint16_t *a = stretch->a, *b = stretch->b;

    for (int64_t i = 0; i < stretch->steps; i++, a += stretch->a_step, b += stretch->b_step) {
        LOAD_A(a, 0);
        LOAD_B(b, 2);
        MULTIPLY();
        LOAD_B(b, 1);
        MULTIPLY();
        LOAD_A(a, 1);
        MULTIPLY();
        LOAD_B(b, 0);
        MULTIPLY();
        LOAD_A(a, 2);
        MULTIPLY();
        LOAD_A(a, 0);
        MULTIPLY();
    }
}

static inline void add_short_stretch(const struct amx_stretch *stretch)
{
    const uint16_t *a = stretch->a, *b = stretch->b;

    for (int64_t i = 0; i < stretch->steps; i++, a += stretch->a_step, b += stretch->b_step) {
        LOAD_A(a, 1);
        LOAD_B(b, 0);
        MULTIPLY();
        LOAD_A(a, 0);
        MULTIPLY();
        LOAD_B(b, 1);
        MULTIPLY();
    }
}

/* Asks for C's lines: stores to lines that are not there would wait for one another at the end. */
static inline void fetch_to_write(const float *c, int64_t c_row)
{
    for (int i = 0; i < 2 * SIXTEEN; i++, c += c_row) {
        __builtin_prefetch(c, 1, 3);
        __builtin_prefetch(c + SIXTEEN, 1, 3);
    }
}

void amx_multiply_stretches(const struct amx_product *product)
{
    const size_t bytes = (size_t)product->c_row * sizeof(float);
    float *c = product->c, *below = c + SIXTEEN * product->c_row;

    __asm__ volatile("" ::: "memory"); /* the intrinsics do not say that they read and write */
    begin_block(product, below, bytes);
    if (product->is_far && product->begin != AMX_ADD)
        fetch_to_write(c, product->c_row);
    for (int i = 0; i < product->n_stretches; i++) {
        if (product->is_short)
            add_short_stretch(&product->stretches[i]);
        else
            add_stretch(&product->stretches[i]);
    }
    _tile_stored(0, c, bytes);
    _tile_stored(1, c + SIXTEEN, bytes);
    _tile_stored(2, below, bytes);
    _tile_stored(3, below + SIXTEEN, bytes);
    __asm__ volatile("" ::: "memory");
}

void amx_add(const float *block, int64_t rows, int64_t columns, float *to, int64_t to_row)
{
    for (int64_t i = 0; i < rows; i++, block += 2 * SIXTEEN, to += to_row) {
        for (int64_t j = 0; j < columns; j++)
            to[j] += block[j];
    }
}

/* Packing ------------------------------------------------------------------------------- */

static inline __mmask16 first_of(int count)
{
    return (__mmask16)((1U << (count < 0 ? 0 : count > SIXTEEN ? SIXTEEN : count)) - 1);
}

/* Row i as it lies; what is not there is zero. */
static inline __m512 load_row(const float *from, int64_t row, int n_rows, __mmask16 mask, int i)
{
    return i < n_rows ? _mm512_maskz_loadu_ps(mask, from + i * row) : _mm512_setzero_ps();
}

static inline void transpose(__m512 r[SIXTEEN])
{
    __m512 t[SIXTEEN];

#pragma GCC unroll 16
    for (int i = 0; i < SIXTEEN; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < SIXTEEN; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        const __m512 a = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        const __m512 b = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        const __m512 c = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        const __m512 d = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
        t[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        t[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        t[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < SIXTEEN; i++)
        r[i] = t[i];
}

/* The nearest number of 8 bits, as a float. */
static inline __m512 rounded(__m512 x)
{
    const __m512i half = _mm512_set1_epi32(0x8000), top = _mm512_set1_epi32((int)0xffff0000);

    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_add_epi32(_mm512_castps_si512(x), half), top));
}

/* Upper halves of two vectors: `low`'s in the lower half of each pair. */
static inline void store_pairs(uint16_t *to, __m512 low, __m512 high)
{
    const __m512i top = _mm512_set1_epi32((int)0xffff0000);
    const __m512i shifted = _mm512_srli_epi32(_mm512_castps_si512(low), 16);

    /* shifted | (high & top) */
    _mm512_store_si512(
        to, _mm512_ternarylogic_epi32(shifted, _mm512_castps_si512(high), top, 0xf8));
}

/* Line i of a register of each part, from its steps 0 to 15 and 16 to 31. */
static inline void store_line(__m512 p, __m512 q, bool is_short, uint16_t *to)
{
    const __m512 p1 = rounded(p), q1 = rounded(q);
    const __m512 p_left = _mm512_sub_ps(p, p1), q_left = _mm512_sub_ps(q, q1);
    const __m512 p2 = rounded(p_left), q2 = rounded(q_left);

    store_pairs(to, p1, q1);
    store_pairs(to + 2 * REGISTER, p2, q2);
    if (!is_short)
        store_pairs(to + 4 * REGISTER, _mm512_sub_ps(p_left, p2), _mm512_sub_ps(q_left, q2));
}

/* The same with rows and columns exchanged. */
static void pack_turned(const struct amx_lines *lines, uint16_t *to)
{
    const __mmask16 first = first_of(lines->columns_first);
    const __mmask16 second = first_of(lines->columns_second);
    __m512 p[SIXTEEN], q[SIXTEEN];

#pragma GCC unroll 16
    for (int i = 0; i < SIXTEEN; i++)
        p[i] = load_row(lines->first, lines->row, lines->n_first, first, i);
    transpose(p);
#pragma GCC unroll 16
    for (int i = 0; i < SIXTEEN; i++)
        q[i] = load_row(lines->second, lines->row, lines->n_second, second, i);
    transpose(q);
#pragma GCC unroll 16
    for (int i = 0; i < SIXTEEN; i++)
        store_line(p[i], q[i], lines->is_short, to + (ptrdiff_t)i * 2 * SIXTEEN);
}

void amx_pack(const struct amx_lines *lines, uint16_t *to)
{
    const __mmask16 first = first_of(lines->columns_first);
    const __mmask16 second = first_of(lines->columns_second);

    if (lines->turn) {
        pack_turned(lines, to);
        return;
    }
    for (int i = 0; i < SIXTEEN; i++, to += 2 * SIXTEEN)
        store_line(load_row(lines->first, lines->row, lines->n_first, first, i),
                   load_row(lines->second, lines->row, lines->n_second, second, i),
                   lines->is_short, to);
}
