/* SPDX-License-Identifier: MIT */
/* processor.c - asks the processor and the environment which instruction set to use. */
#include "kernel/cpu/processor.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#if defined(__x86_64__) && defined(HAVE_AMX)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Does the processor have AMX for bf16, and does the system let this process use it? Linux asks for
 * permission first, as the registers make a thread's state larger. */
static bool offers_amx(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18 };   /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    const unsigned wanted = 1U << 22 | 1U << 24; /* AMX-BF16, AMX-TILE */
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & wanted) == wanted &&
           syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
#else
static bool offers_amx(void)
{
    return false;
}
#endif

static enum processor offered(void)
{
#ifdef __x86_64__
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                      __builtin_cpu_supports("bmi2");
    const bool avx512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (avx2)
        return !avx512 ? PROCESSOR_AVX2 : offers_amx() ? PROCESSOR_AMX : PROCESSOR_AVX512;
#endif
    return PROCESSOR_GENERIC;
}

/* The offer, lowered by TUTTI_ISA. */
static enum processor allowed(void)
{
    const enum processor most = offered();
    const char *wanted = getenv("TUTTI_ISA");

    if (wanted == NULL || wanted[0] == '\0')
        return most;
    for (int i = 0; i < PROCESSOR_COUNT; i++) {
        const enum processor processor = (enum processor)i;
        if (strcmp(wanted, processor_name(processor)) == 0)
            return processor < most ? processor : most;
    }
    log_line(LOG_WARNING, "TUTTI_ISA %s is none of generic avx2 avx512 amx, using %s", wanted,
             processor_name(most));
    return most;
}

enum processor processor_current(void)
{
    static _Atomic int known = -1;
    int current = atomic_load_explicit(&known, memory_order_relaxed);

    if (current < 0) { /* two threads may both get here: they find the same */
        current = (int)allowed();
        atomic_store_explicit(&known, current, memory_order_relaxed);
    }
    return (enum processor)current;
}

const char *processor_name(enum processor processor)
{
    static const char *const names[PROCESSOR_COUNT] = { "generic", "avx2", "avx512", "amx" };

    return names[processor];
}
