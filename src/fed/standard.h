/* SPDX-License-Identifier: MIT */
/* standard.h - tables standardized by statistics of all participants, which nobody sees of one.
 *
 * With terms->standardize the flat vector that crosses begins with statistics of the table (data/schema.h), sums
 * over rows divided by their number. They begin as zeros: a participant that finds zeros does not train, but gives the
 * statistics of its own rows as its update, and the mean of updates, weighted by samples, is what all rows together have. So
 * the first round that counts is for them, by the same way as all others, secure or not, and who joins later
 * gets them with the parameters. Only ratios of them are used: a factor does no harm.
 *
 * Threads: any.
 */
#ifndef FED_STANDARD_H
#define FED_STANDARD_H

#include <pthread.h>

#include "fed/message.h"
#include "fed/terms.h"
#include "train/job.h"

struct fed_standard {
    struct job *job;
    size_t count; /* statistics at the beginning of the vector; 0: there are none */
    pthread_mutex_t lock;
    float *known; /* that tables are standardized by; NULL: no participant's yet */
};

MUST_CHECK enum status fed_standard_init(struct fed_standard *standard, struct job *job,
                                         const struct fed_terms *terms);
void fed_standard_release(struct fed_standard *standard);

/* Is this a task whose answer are statistics? */
bool fed_standard_is_asked(const struct fed_standard *standard, const struct fed_work *work);
/* Writes that answer, of the training rows numbered by index[0..count), to out[0..work->length). */
MUST_CHECK enum status fed_standard_answer(const struct fed_standard *standard,
                                           const struct fed_work *work, const int64_t *index,
                                           int64_t count, float *out);
/* Has the tables standardized by the statistics at the beginning of a vector, if it has them. */
MUST_CHECK enum status fed_standard_apply(struct fed_standard *standard, const float *vector);

#endif /* FED_STANDARD_H */
