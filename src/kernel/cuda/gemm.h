/* SPDX-License-Identifier: MIT */
/* gemm.h - private to the plug-in: matrix products by cuBLASLt.
 *
 * Everything is row-major here: c (m,n) = beta c + a (m,k) b (k,n), each with its distance between rows. What
 * lies transposed says so. A plan is made once for a form and used with any pointers of the same
 * alignment. Elements are f32, bf16 or f16, sums f32, TF32 only where the form says so; which algorithm runs is one of cuBLASLt's proposals
 * for the form, by a rule, which is the same for one version and device. None adds with atomics.
 */
#ifndef KERNEL_CUDA_GEMM_H
#define KERNEL_CUDA_GEMM_H

#include "kernel/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gemm_form {
    int64_t m, n, k;
    int64_t a_row, b_row, c_row; /* elements from row to row, as they lie */
    bool a_across, b_across;     /* a lies as (k,m), b as (n,k) */
    bool adds;                   /* beta is 1: c = base + a b */
    bool with_bias, relu;        /* c = relu(a b + bias of n numbers) */
    bool half_bias;              /* which are bf16 or f16, as c is; else f32 */
    bool gelu;                   /* c = gelu_tanh(kept), kept = a b + bias */
    int64_t parts;       /* k is cut into so many, whose products are added in order; 0: not */
    bool tf32;           /* operands of f32 may be rounded to 10 bits */
    enum dtype of, into; /* a and b; c */
    int align;           /* bytes that all pointers are multiples of; 0: 16 */
};

/* Into how many parts a sum over so many rows is best cut whose result is (m,n): if that has few elements, many
 * multiprocessors have work. */
int64_t gemm_parts(int64_t m, int64_t n, int64_t rows);

struct gemm; /* a plan */

MUST_CHECK enum status gemm_create(const struct gemm_form *form, struct gemm **out);
void gemm_destroy(struct gemm *gemm); /* NULL is allowed */
/* Of scratch that a plan of this form may use. */
size_t gemm_scratch(const struct gemm_form *form);

struct gemm_data {
    const void *a, *b, *bias;
    const void *base; /* what is added to, NULL: c */
    void *c, *kept;   /* kept has c's rows */
    void *scratch;    /* aligned to 256, or the library refuses */
};
/* c = relu(c + bias), as far as the form says: for products that have no epilogue. */
void gemm_finish(struct device_stream *stream, const struct gemm_form *form,
                 const struct gemm_data *data);
/* c = gelu_tanh(kept): likewise, whole rows one behind the other. */
void gemm_activate(struct device_stream *stream, const struct gemm_form *form,
                   const struct gemm_data *data);
void gemm_run(const struct gemm *gemm, struct device_stream *stream,
              const struct gemm_data *data);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_GEMM_H */
