/* SPDX-License-Identifier: MIT */
/* processor.h - the instruction set that kernels are picked for. */
#ifndef KERNEL_CPU_PROCESSOR_H
#define KERNEL_CPU_PROCESSOR_H

/* Each offers what the ones before it offer. */
enum processor {
    PROCESSOR_GENERIC,
    PROCESSOR_AVX2,
    PROCESSOR_AVX512,
    PROCESSOR_AMX, /* tile registers that multiply bf16 */
    PROCESSOR_COUNT
};

/* What this processor offers, or less if TUTTI_ISA says so. Looked up once: a change of the
 * environment does not change kernels within a run. Any thread. */
enum processor processor_current(void);
const char *processor_name(enum processor processor); /* "generic", "avx2", "avx512", "amx" */

#endif /* KERNEL_CPU_PROCESSOR_H */
