/* SPDX-License-Identifier: MIT */
/* peak.c - chains of fused multiply-adds in registers. */
#include "kernels/peak.h"

#include <stdbool.h>
#include <string.h>

#include "base/clock.h"

enum { ROUNDS = 400000, CHAINS = 12 };

#ifdef __x86_64__
#include <immintrin.h>

__attribute__((target("avx512f"))) static float run_avx512(void)
{
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.1f);
    __m512 chain[CHAINS];

#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        chain[i] = _mm512_set1_ps((float)i);
    for (int r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            chain[i] = _mm512_fmadd_ps(chain[i], a, b);
    }
    float sum = 0;
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        sum += _mm512_cvtss_f32(chain[i]);
    return sum;
}

__attribute__((target("avx2,fma"))) static float run_avx2(void)
{
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.1f);
    __m256 chain[CHAINS];

#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        chain[i] = _mm256_set1_ps((float)i);
    for (int r = 0; r < ROUNDS; r++) {
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            chain[i] = _mm256_fmadd_ps(chain[i], a, b);
    }
    float sum = 0;
#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        sum += _mm256_cvtss_f32(chain[i]);
    return sum;
}
#endif

double peak_gflops(const char *isa)
{
#ifdef __x86_64__
    const bool wide = strcmp(isa, "avx512") == 0 || strcmp(isa, "amx") == 0;
    const int lanes = wide ? 16 : strcmp(isa, "avx2") == 0 ? 8 : 0;
    static volatile float sink; /* keeps the chains */
    double best = 0;

    for (int i = 0; i < 5 && lanes > 0; i++) {
        const int64_t begin = clock_ns();
        sink = lanes == 16 ? run_avx512() : run_avx2();
        const double gflops = 2.0 * lanes * CHAINS * ROUNDS / (double)(clock_ns() - begin);
        best = gflops > best ? gflops : best;
    }
    (void)sink;
    return best;
#else
    (void)isa;
    return 0;
#endif
}
