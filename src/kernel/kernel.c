/* SPDX-License-Identifier: MIT */
/* kernel.c - the table of the CPU's kernels, joined from the arrays of cpu/rows.h. */
#include "kernel/kernel.h"

#include <string.h>

#include "kernel/cpu/processor.h"
#include "kernel/cpu/rows.h"

#ifdef __x86_64__
#define PER_ISA(rows)                                                                          \
    {                                                                                          \
        rows##_generic, rows##_avx2, rows##_avx512, rows##_avx512                              \
    }
#else
#define PER_ISA(rows)                                                                          \
    {                                                                                          \
        rows##_generic, rows##_generic, rows##_generic, rows##_generic                         \
    }
#endif
#define ANY_ISA(rows)                                                                          \
    {                                                                                          \
        rows, rows, rows, rows                                                                 \
    }

static const struct kernel *const parts[][PROCESSOR_COUNT] = {
    ANY_ISA(kernel_reference_rows),      PER_ISA(kernel_elementwise_rows),
    PER_ISA(kernel_dropout_rows),        PER_ISA(kernel_reorder_rows),
    PER_ISA(kernel_pool_rows),           PER_ISA(kernel_loss_rows),
    PER_ISA(kernel_batch_norm_rows),     PER_ISA(kernel_gelu_rows),
    PER_ISA(kernel_layer_norm_rows),     PER_ISA(kernel_positions_rows),
    PER_ISA(kernel_attention_step_rows), PER_ISA(kernel_embedding_rows),
    PER_ISA(kernel_sequence_rows),
#ifdef HAVE_FAST
    ANY_ISA(kernel_linear_rows),         ANY_ISA(kernel_conv_rows),
    ANY_ISA(kernel_conv_pool_rows),      ANY_ISA(kernel_depthwise_rows),
    ANY_ISA(kernel_conv_matrix_rows),    ANY_ISA(kernel_conv_grey_rows),
    ANY_ISA(kernel_conv_transpose_rows), ANY_ISA(kernel_conv1d_rows),
    ANY_ISA(kernel_recurrent_rows),      ANY_ISA(kernel_attention_rows),
    ANY_ISA(kernel_attend_rows),         ANY_ISA(kernel_norm_conv_rows),
#endif
#ifdef HAVE_AMX
    ANY_ISA(kernel_conv_amx_rows),       ANY_ISA(kernel_norm_conv_amx_rows),
#endif
#ifdef HAVE_ONEDNN
    ANY_ISA(kernel_onednn_rows),
#endif
#ifdef HAVE_OPENBLAS
    ANY_ISA(kernel_openblas_rows),
#endif
};

const struct kernel *kernel_at(size_t i)
{
    const enum processor processor = processor_current();

    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        for (const struct kernel *row = parts[part][processor]; row->op != NULL; row++) {
            if (i-- == 0)
                return row;
        }
    }
    return NULL;
}

const struct kernel *kernel_find(const char *op, const char *name)
{
    const struct kernel *kernel;

    for (size_t i = 0; (kernel = kernel_at(i)) != NULL; i++) {
        if (strcmp(kernel->op, op) == 0 && strcmp(kernel->name, name) == 0)
            return kernel;
    }
    return NULL;
}

const char *kernel_isa(void)
{
    return processor_name(processor_current());
}

bool kernel_joins_norms(void)
{
#ifdef HAVE_FAST
    return processor_current() >= PROCESSOR_AVX2;
#else
    return false;
#endif
}
