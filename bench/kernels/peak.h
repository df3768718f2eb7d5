/* SPDX-License-Identifier: MIT */
/* peak.h - the most multiply-adds that one core does, as a yardstick for kernels. */
#ifndef BENCH_KERNELS_PEAK_H
#define BENCH_KERNELS_PEAK_H

/* GFLOP/s of independent chains in registers for "avx512", "amx" (which has the same
 * multiply-adds), "avx2"; 0 for others. About 5 ms. */
double peak_gflops(const char *isa);

#endif /* BENCH_KERNELS_PEAK_H */
