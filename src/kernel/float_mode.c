/* SPDX-License-Identifier: MIT */
/* float_mode.c - flush-to-zero and denormals-are-zero of x86; other processors keep their mode.
 */
#include "kernel/float_mode.h"

#ifdef __SSE2__
#include <immintrin.h>

enum { FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x0040 };

unsigned kernel_flush_denormals(void)
{
    const unsigned before = _mm_getcsr();

    _mm_setcsr(before | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO);
    return before;
}

void kernel_restore_float_mode(unsigned mode)
{
    _mm_setcsr(mode);
}
#else
unsigned kernel_flush_denormals(void)
{
    return 0;
}

void kernel_restore_float_mode(unsigned mode)
{
    (void)mode;
}
#endif
