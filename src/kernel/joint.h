/* SPDX-License-Identifier: MIT */
/* joint.h - what ranks that share layers make of what each of them has: sums, rows of tables, losses over slices of
 * the classes. It knows what they have, not how it came here (exec/talk.c, exec/device_tensor.c).
 *
 * A call is that of the op in graph/op_tensor.c. Of a loss each rank notes LOSS_NUMBERS a row: the log of the sum of its
 * exponentials, its logit at the label (0 if another rank has that), the sum of its logits (where smoothing asks for it).
 * Everything is added in the order of ranks, so all of them have the same bits.
 */
#ifndef KERNEL_JOINT_H
#define KERNEL_JOINT_H

#include "kernel/kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { JOINT_RANKS = 64, JOINT_LOSS_NUMBERS = 3 };

/* What each of `count` ranks has. */
struct joint_parts {
    const void *of[JOINT_RANKS];
    int count;
};

/* Rows of `width` elements, which begin so many elements apart in parts and in what is made of them. */
struct joint_rows {
    size_t width, rows, apart, out_apart;
};

/* A rank's first largest logit of a row. */
struct joint_answer {
    float logit;
    int32_t class_number;
};

/* out = the sum of all parts in f32, rounded once. out may be one of the parts if it lies as they do. */
void joint_sum(void *out, const struct joint_parts *parts, enum dtype dtype,
               const struct joint_rows *rows);
/* Numbers of rows [begin, end) of a table from 0 on; -1 for others. */
void joint_ids(int32_t *out, const int32_t *ids, size_t count, int64_t begin, int64_t end);

/* tp_token_loss: what this rank knows of each row; then loss and lse by what all know. */
void joint_note_losses(const struct kernel_call *call, float *numbers);
void joint_join_losses(const struct kernel_call *call, const struct joint_parts *numbers);
/* tp_token_accuracy: likewise. */
void joint_note_answers(const struct kernel_call *call, struct joint_answer *answers);
void joint_join_answers(const struct kernel_call *call, const struct joint_parts *answers);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_JOINT_H */
