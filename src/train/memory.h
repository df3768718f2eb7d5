/* SPDX-License-Identifier: MIT */
/* memory.h - what a rank has resident because it trains: predicted and measured. Private to train/. */
#ifndef TRAIN_MEMORY_H
#define TRAIN_MEMORY_H

#include "exec/exec.h"

/* Bytes that this process has had at most. */
int64_t memory_peak(void);
/* By how much it has grown at most since the mark, pages of files left out. */
struct memory_mark {
    int64_t resident;
};
void memory_begin(struct memory_mark *mark);
int64_t memory_grown(const struct memory_mark *mark);

/* How checkpoints and samples add to what training needs. */
struct memory_use {
    bool is_first; /* rank 0, which writes */
    bool streams;  /* without a copy of all */
    bool speaks;   /* and lets the model speak, with all parameters */
};
/* What a rank will have at its peak. */
int64_t memory_predict(const struct exec *exec, struct memory_use use);
/* "a rank holds 57 MB parameters, 3.6 MB gradients, 28 MB state, 1.2 MB activations, 0.1 MB more (zero=2)" */
enum { MEMORY_TEXT = 240 };
const char *memory_print(const struct exec *exec, int zero, char out[MEMORY_TEXT]);

#endif /* TRAIN_MEMORY_H */
