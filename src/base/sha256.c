/* SPDX-License-Identifier: MIT */
/* sha256.c - FIPS 180-4, section 6.2; in plain C, and with the SHA extensions of x86-64. */
#include "base/sha256.h"

#include "base/sha256_block.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

enum { BLOCK_BYTES = 64 };

static const _Alignas(16) uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t load_big_endian(const uint8_t *byte)
{
    return (uint32_t)byte[0] << 24 | (uint32_t)byte[1] << 16 | (uint32_t)byte[2] << 8 | byte[3];
}

static void store_big_endian(uint8_t *byte, uint32_t x)
{
    for (int i = 0; i < 4; i++)
        byte[i] = (uint8_t)(x >> (24 - 8 * i));
}

static void expand_schedule(const uint8_t block[BLOCK_BYTES], uint32_t w[64])
{
    for (int t = 0; t < 16; t++)
        w[t] = load_big_endian(block + 4 * t);
    for (int t = 16; t < 64; t++) {
        const uint32_t a = w[t - 15], b = w[t - 2];
        const uint32_t s0 = rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3;
        const uint32_t s1 = rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10;
        w[t] = s1 + w[t - 7] + s0 + w[t - 16];
    }
}

void sha256_blocks_portable(uint32_t state[8], const uint8_t *blocks, size_t count)
{
    for (; count > 0; count--, blocks += BLOCK_BYTES) {
        uint32_t w[64];
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];

        expand_schedule(blocks, w);
        for (int t = 0; t < 64; t++) {
            const uint32_t s1 = rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25);
            const uint32_t s0 = rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22);
            const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + K[t] + w[t];
            const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
            h = g, g = f, f = e, e = d + t1;
            d = c, c = b, b = a, a = t1 + t2;
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d;
        state[4] += e, state[5] += f, state[6] += g, state[7] += h;
    }
}

#if defined(__x86_64__)

/* sha256rnds2 does two rounds on the state held as ABEF and CDGH; sha256msg1 and msg2 make
 * four words of the schedule from the sixteen before them. w[i & 3] holds words 4i to 4i+3. */
__attribute__((target("sha,sse4.1,ssse3"))) static void
blocks_with_sha_extensions(uint32_t state[8], const uint8_t *blocks, size_t count)
{
    const __m128i swap_bytes = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i dcba = _mm_loadu_si128((const __m128i *)(const void *)state);
    const __m128i hgfe = _mm_loadu_si128((const __m128i *)(const void *)(state + 4));
    const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1), efgh = _mm_shuffle_epi32(hgfe, 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
    __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);

    for (; count > 0; count--, blocks += BLOCK_BYTES) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i w[4];

#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i *const now = &w[i & 3];
            if (i < 4) {
                *now = _mm_loadu_si128((const __m128i *)(const void *)(blocks + 16 * i));
                *now = _mm_shuffle_epi8(*now, swap_bytes);
            } else {
                const __m128i before = w[(i - 1) & 3]; /* words t-4 to t-1 */
                const __m128i seven = _mm_alignr_epi8(before, w[(i - 2) & 3], 4);
                *now = _mm_sha256msg1_epu32(*now, w[(i - 3) & 3]);
                *now = _mm_sha256msg2_epu32(_mm_add_epi32(*now, seven), before);
            }
            const __m128i k = _mm_load_si128((const __m128i *)(const void *)(K + 4 * i));
            const __m128i sum = _mm_add_epi32(*now, k);
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }

    const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)(void *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(void *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

sha256_block_fn *sha256_blocks_native(void)
{
    unsigned a, b, c, d;
    const unsigned ssse3 = 1u << 9, sse41 = 1u << 19, sha = 1u << 29;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & ssse3) == 0 || (c & sse41) == 0)
        return NULL;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & sha) == 0)
        return NULL;
    return blocks_with_sha_extensions;
}

#else

sha256_block_fn *sha256_blocks_native(void)
{
    return NULL;
}

#endif

static void take_blocks(uint32_t state[8], const uint8_t *blocks, size_t count)
{
    /* Asked once: cpuid leaves a virtual machine, which takes microseconds. Two threads that
     * ask at once get the same answer. */
    static sha256_block_fn *_Atomic chosen;
    sha256_block_fn *fn = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (!fn) {
        fn = sha256_blocks_native();
        if (!fn)
            fn = sha256_blocks_portable;
        atomic_store_explicit(&chosen, fn, memory_order_relaxed);
    }
    fn(state, blocks, count);
}

void sha256_init(struct sha256 *hash)
{
    *hash = (struct sha256){ .state = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 } };
}

void sha256_add(struct sha256 *hash, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    const size_t held = (size_t)(hash->length % BLOCK_BYTES);

    hash->length += length;
    if (held > 0) {
        const size_t room = BLOCK_BYTES - held, part = length < room ? length : room;
        if (part > 0)
            memcpy(hash->block + held, from, part);
        if (part < room)
            return;
        take_blocks(hash->state, hash->block, 1);
        from += part;
        length -= part;
    }
    if (length >= BLOCK_BYTES)
        take_blocks(hash->state, from, length / BLOCK_BYTES);
    if (length % BLOCK_BYTES > 0)
        memcpy(hash->block, from + length / BLOCK_BYTES * BLOCK_BYTES, length % BLOCK_BYTES);
}

void sha256_end(struct sha256 *hash, uint8_t out[SHA256_BYTES])
{
    static const uint8_t padding[BLOCK_BYTES] = { 0x80 };
    const uint64_t bits = hash->length * 8;
    const size_t held = (size_t)(hash->length % BLOCK_BYTES);
    uint8_t tail[8];

    store_big_endian(tail, (uint32_t)(bits >> 32));
    store_big_endian(tail + 4, (uint32_t)bits);
    sha256_add(hash, padding, held < 56 ? 56 - held : 120 - held);
    sha256_add(hash, tail, sizeof tail);
    for (int i = 0; i < 8; i++)
        store_big_endian(out + 4 * i, hash->state[i]);
}

void sha256_end_hex(struct sha256 *hash, char out[SHA256_HEX])
{
    uint8_t bytes[SHA256_BYTES];

    sha256_end(hash, bytes);
    for (int i = 0; i < SHA256_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", (unsigned)bytes[i]);
}
