/* SPDX-License-Identifier: MIT */
/* isa_exp.h - exponentials and sums of the vectors of isa.h, for the same sources. */
#ifndef KERNEL_CPU_ISA_EXP_H
#define KERNEL_CPU_ISA_EXP_H

#include "kernel/cpu/isa.h"

INLINE vec vec_max(vec a, vec b)
{
#ifdef ISA_AVX512
    return _mm512_max_ps(a, b);
#else
    return _mm256_max_ps(a, b);
#endif
}

/* p 2^n for whole n, where the result is no denormal number. */
INLINE vec vec_scale_by_power(vec p, vec n)
{
#ifdef ISA_AVX512
    return _mm512_scalef_ps(p, n);
#else
    const __m256i power = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), power));
#endif
}

INLINE vec vec_round(vec x)
{
#ifdef ISA_AVX512
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#endif
}

/* exp(x), relative error below 2e-7, as simd_exp_not_positive (simd.h) makes it; 0 up to -87.3, no
 * more than exp(88). A NaN stays. */
INLINE vec vec_exp(vec x)
{
    const vec at = vec_cut(x, vec_set(-87.3f), vec_set(88));
    const vec n = vec_round(vec_mul(at, vec_set(0x1.715476p0f)));
    vec r = vec_fma(n, vec_set(-0x1.62e4p-1f), at), p;

    r = vec_fma(n, vec_set(-0x1.7f7d1cp-20f), r);
    p = vec_fma(r, vec_set(1.0f / 720), vec_set(1.0f / 120));
    p = vec_fma(r, p, vec_set(1.0f / 24));
    p = vec_fma(r, p, vec_set(1.0f / 6));
    p = vec_fma(r, p, vec_set(0.5f));
    p = vec_fma(r, p, vec_set(1));
    p = vec_fma(r, p, vec_set(1));
    return vec_choose(vec_not_greater(x, vec_set(-87.3f)), vec_scale_by_power(p, n),
                      vec_zero());
}

/* Lanes added up, halves onto halves. */
INLINE float vec_sum(vec v)
{
    float lane[LANES];

    vec_store(lane, v);
    for (int width = LANES / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            lane[l] += lane[l + width];
    }
    return lane[0];
}

#endif /* KERNEL_CPU_ISA_EXP_H */
