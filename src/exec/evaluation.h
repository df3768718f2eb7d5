/* SPDX-License-Identifier: MIT */
/* evaluation.h - an evaluation that runs now. Private to exec/.
 *
 * The thread that calls the executor prepares it; lanes write results, each of its own batches.
 */
#ifndef EXEC_EVALUATION_H
#define EXEC_EVALUATION_H

#include "data/source.h"
#include "exec/exec.h"

enum { EVAL_ROWS = EXEC_PREDICT };

/* A classifier's answer for a sample. */
struct answer {
    int32_t class; /* the first of the largest logits */
    int32_t place; /* of the label: how many logits come before its own */
    float score;   /* see exec_answer */
};

/* An evaluation that runs now, and memory for its results. */
struct exec_evaluation {
    float *losses, *corrects; /* one a batch; shared, made when first needed */
    struct answer *answers;   /* likewise, one a sample; NULL: the model has no classes */
    int64_t capacity;
    const struct source *data;
    int64_t begin, end;           /* batches that are evaluated now */
    struct extents extents;       /* of the last one prepared */
    float *outputs;               /* exec_keep_outputs, or NULL */
    const int64_t *predict_index; /* samples that exec_predict is about, and their outputs */
    int64_t predict_count;
    float *predict_out;
    int classes; /* of the last evaluation: logits a sample; 0: no classifier */
    uint32_t count;
};

#endif /* EXEC_EVALUATION_H */
