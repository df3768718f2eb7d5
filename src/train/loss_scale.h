/* SPDX-License-Identifier: MIT */
/* loss_scale.h - how losses are scaled in f16 (--precision fp16), as runs save and tell it. Private to train/. */
#ifndef TRAIN_LOSS_SCALE_H
#define TRAIN_LOSS_SCALE_H

#include "base/strbuf.h"
#include "exec/exec.h"
#include "train/folder.h"

/* Adds it to what a checkpoint has beside tensors, and reads it from there; nothing where no loss is scaled. */
MUST_CHECK enum status loss_scale_print(const struct exec *exec, struct strbuf *state);
MUST_CHECK enum status loss_scale_read(struct exec *exec, const char *state);
/* As metrics. */
MUST_CHECK enum status loss_scale_tell(const struct exec *exec, struct metrics *out);

#endif /* TRAIN_LOSS_SCALE_H */
