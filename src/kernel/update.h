/* SPDX-License-Identifier: MIT */
/* update.h - optimizer updates and sums over flat ranges of f32.
 *
 * Elementwise: the result for an element does not depend on where a range
 * begins or ends, so any cut of the flat vector gives the same bits. Ranges that begin at a multiple
 * of 16 elements from a 64-byte aligned base are quickest.
 *
 * Of a table of embeddings a step may update the rows alone that occur: a range a row. The others
 * then keep their state (torch.optim.SparseAdam); corrections are those of the step's number.
 */
#ifndef KERNEL_UPDATE_H
#define KERNEL_UPDATE_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/attr.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KERNEL_STATES = 2 };

/* What a seed is changed by for rounding, so that other uses of it have other words. */
#define KERNEL_ROUNDING_KEY UINT64_C(0x726f756e64696e67)

/* One step's numbers, worked out in double by the optimizer and rounded once. */
struct kernel_update_step {
    float lr;          /* learning rate of this step */
    float scale;       /* gradients are multiplied by this first (clipping); 1 is exact */
    float correction1; /* Adam: 1 / (1 - beta1^t) */
    float correction2; /* Adam: 1 / (1 - beta2^t) */
    int first;         /* SGD: momentum starts as the gradient itself (PyTorch) */
    float trust; /* LARS, LAMB: trust ratio of the parameter that the range is a part of */
    int skips;   /* on devices: 1: nothing is updated, as gradients are not finite (device.h) */
    int draws;   /* on devices: 1: what is updated becomes a bf16 (precision.h) */
    uint64_t seed, number; /* then: of the run, of the step */
};

/* Updates param[0..count) from grad and the states, in place.
 *
 * sgd (PyTorch's rule): g = scale*grad + weight_decay*param; m = first ? g : momentum*m + g;
 *   d = nesterov ? g + momentum*m : m; param -= lr*d. With momentum 0, d = g, no state is
 * touched. average: param = momentum*grad + (1-momentum)*param: a running average of what grad
 * saw; scale and learning rate do not matter. adam: g = scale*grad (+ weight_decay*param unless decoupled); decoupled: param -=
 * lr*weight_decay*param first; m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g*g; param -=
 * lr*correction1*m / (sqrt(v*correction2) + epsilon).
 *
 * lars (You, Gitman, Ginsburg 2017, with PyTorch's momentum): as sgd with trust*g for g, so that
 *   trust 1 is sgd. lamb: grad is what kernel_direction_fn made; param -= lr*trust*grad, and the state
 * is left alone. */
typedef void kernel_update_fn(float *param, const float *grad,
                              float *const state[KERNEL_STATES], size_t count,
                              const struct attrs *attrs, const struct kernel_update_step *step);

/* LAMB's first half (You et al. 2019): m and v as adam has them, and
 * out = correction1*m / (sqrt(v*correction2) + epsilon) + weight_decay*param. out may be grad. */
typedef void kernel_direction_fn(const float *param, const float *grad,
                                 float *const state[KERNEL_STATES], float *out, size_t count,
                                 const struct attrs *attrs,
                                 const struct kernel_update_step *step);

struct kernel_update {
    const char *op;        /* "sgd_update", "adam_update", "average_update", ... */
    int n_states;          /* vectors of state; sgd with momentum 0 uses none of its one */
    kernel_update_fn *run; /* fastest of this processor */
    kernel_update_fn *reference; /* plain C, the same bits */
    /* What makes `grad` of the gradient and the state, and its reference; NULL: it is the gradient. */
    kernel_direction_fn *direct, *direct_reference;
};

/* NULL if there is none of that name. */
const struct kernel_update *kernel_update_find(const char *op);

/* Rows of a table, by number: every second number of a list, as rows_sort gives them. */
struct kernel_row_list {
    const float *table;
    const int32_t *number; /* of the first. Below 0: left out */
    size_t count;          /* to be added */
    size_t
        listed; /* that the list goes on with, these included: they are asked for; 0: none is */
};
/* out[0..width) = the sum of a list's rows, in its order, beginning with 0; or of two lists' sums. */
void kernel_sum_rows(const struct kernel_row_list *lists, int n_lists, size_t width,
                     float *out);

/* Asks for elements [at, at + count) of some vectors, which are about to be written. */
void kernel_fetch_to_write(float *const *vectors, int n_vectors, size_t at, size_t count);

/* out[i] = a[i] + b[i]; out may be a or b. */
void kernel_add(float *out, const float *a, const float *b, size_t count);
/* Sum of squares in double of data[0..count), by a fixed order of additions. */
double kernel_sum_squares(const float *data, size_t count);
/* What scales gradients of this norm to one of at most `most`, as PyTorch's clip_grad_norm_ has it. */
float kernel_clip_scale(double norm, float most);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_UPDATE_H */
