/* SPDX-License-Identifier: MIT */
/* factor.c - by own tiles where the processor has them, else by plain loops. */
#include "kernel/factor.h"

#include <string.h>

#ifdef HAVE_FAST
#include "kernel/cpu/gemm.h"

static struct gemm gemm_of(int64_t k, int64_t n, int64_t count, int64_t m)
{
    return (struct gemm){ .m = count,
                          .n = n,
                          .k = m,
                          .a_row = 1,
                          .a_column = k,
                          .b_row = n,
                          .b_column = 1,
                          .c_row = n };
}
#endif

size_t kernel_factor_scratch(int64_t k, int64_t n, int64_t count, int64_t m)
{
#ifdef HAVE_FAST
    if (tile_current()) {
        const struct gemm gemm = gemm_of(k, n, count, m);
        return gemm_scratch_bytes(tile_current(), &gemm);
    }
#endif
    (void)k, (void)n, (void)count, (void)m;
    return 0;
}

void kernel_factor_rows(const float *x, const float *dy, int64_t m, int64_t k, int64_t n,
                        int64_t first, int64_t count, float *out, void *scratch)
{
    memset(out, 0, (size_t)(m == 0 ? count * n : 0) * sizeof *out);
    if (m == 0)
        return;
#ifdef HAVE_FAST
    if (tile_current()) {
        struct gemm gemm = gemm_of(k, n, count, m);
        gemm.a = x + first;
        gemm.b = dy;
        gemm.c = out;
        gemm_run(tile_current(), &gemm, NULL, scratch);
        return;
    }
#endif
    (void)scratch;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t s = 0; s < m; s++)
                sum += x[s * k + first + i] * dy[s * n + j];
            out[i * n + j] = sum;
        }
    }
}

void kernel_factor_bias(const float *dy, int64_t m, int64_t n, float *out)
{
#ifdef HAVE_FAST
    if (tile_current()) {
        tile_current()->column_sums(dy, n, m, (int)n, false, out);
        return;
    }
#endif
    for (int64_t j = 0; j < n; j++) {
        out[j] = 0;
        for (int64_t s = 0; s < m; s++)
            out[j] += dy[s * n + j];
    }
}
