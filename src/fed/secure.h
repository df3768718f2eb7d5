/* SPDX-License-Identifier: MIT */
/* secure.h - what both ends of a secure round agree on: the vector that is summed, and how it
 * is made of numbers.
 *
 * The vector: a participant's weight times its update (and times the change of its control
 * variate, and its personal numbers), then the numbers of SECURE_EXTRAS. The weight is its
 * share of the samples of the one that has most, or 1; with differential privacy always 1, and
 * of the extras the weight and the bit of the clip alone are not zero.
 */
#ifndef FED_SECURE_H
#define FED_SECURE_H

#include "fed/cohorts.h"
#include "fed/dp.h"
#include "fed/message.h"
#include "fed/quantize.h"
#include "fed/secagg.h"
#include "fed/terms.h"

enum {
    SECURE_WEIGHT,
    SECURE_BIT,      /* dp_bit */
    SECURE_CUT,      /* share of its elements that were cut off at the range */
    SECURE_LOSS,     /* weight times: mean loss / SECURE_LOSS_MOST */
    SECURE_ACCURACY, /* weight times */
    SECURE_VAL_SEEN, /* 1: it has validated */
    SECURE_VAL_LOSS,
    SECURE_VAL_ACCURACY,
    SECURE_EXTRAS
};
enum { SECURE_LOSS_MOST = 32 };

/* Tables are standardized by sums over all participants' rows, whose sizes nobody knows
 * beforehand. A first round finds, for each sum, the smallest power of two that is above what
 * any participant has; the second one adds the sums up, each as a share of its range. So
 * nothing is cut off, whatever the units of a column are, and the coordinator learns of the
 * ranges no more than these powers of two. A participant that has more than a range leaves the
 * round, so participants take no ranges but powers of two, and fed_work.most is one, too. */
enum secure_asks { SECURE_UPDATE, SECURE_RANGES, SECURE_SUMS, SECURE_ASKS };
/* A range is 2^e with e from SECURE_EXPONENT on; a word a sum and exponent. */
enum { SECURE_EXPONENT = -64, SECURE_EXPONENTS = 128 };

/* Which of them a task is. */
enum secure_asks secure_asks(const struct fed_work *work);

/* May a sum of this kind over these participants be seen? Not if it differs from an earlier one by
 * fewer than `least`. Sums over rows are the same numbers in every round: of several that are far
 * from each other, each participant knows those alone that it is in, and all together are solved
 * for single participants. So there is one set for them, unless least is 1. */
MUST_CHECK enum status secure_check_cohort(const struct cohorts *cohorts, enum secure_asks asks,
                                           uint8_t (*ids)[COHORTS_ID], uint32_t n,
                                           uint32_t least);

/* words[0..n * SECURE_EXPONENTS): secret random words where the value is not below the
 * exponent's range, else 0. A sum over participants is 0 where all are below, and says nothing
 * else. STATUS_MISMATCH if a value has no range. */
MUST_CHECK enum status secure_put_ranges(const float *values, size_t n, int bits,
                                         struct noise *source, void *words);
/* The range of each value, from the sum of the words. STATUS_MISMATCH if one has none. */
MUST_CHECK enum status secure_take_ranges(const void *words, size_t n, int bits, float *ranges);

struct secure_shape {
    struct secagg_config config;
    struct quantize quantize;
    struct dp_share share; /* distributed privacy; deviation 0: none */
    size_t updates;        /* words before the extras */
};

/* updates: numbers before the extras; participants: of the round; agreed: secure_work_hash of
 * its task. */
MUST_CHECK enum status secure_shape(const struct fed_terms *terms, const uint8_t terms_hash[32],
                                    uint64_t round, uint32_t participants, size_t updates,
                                    const uint8_t agreed[SECAGG_AGREED],
                                    struct secure_shape *out);

/* Hash of everything that a task of training says to all participants alike: vectors, seed,
 * rate, clip, weights' scale, statistics. It is secagg_config.agreed. */
MUST_CHECK enum status secure_work_hash(const struct fed_work *work,
                                        uint8_t out[SECAGG_AGREED]);

/* The task of the stage keys: the round and the hash of its task of training, then secagg's own
 * task. */
struct secure_keys {
    uint32_t participants;
    enum secure_asks asks;
    uint8_t agreed[SECAGG_AGREED]; /* the task of training must have it (secure_work_hash) */
};
void secure_put_keys(struct fed_buffer *out, const struct secure_keys *keys);
MUST_CHECK enum status secure_take_keys(const void *task, size_t bytes, struct secure_keys *out,
                                        const uint8_t **rest, size_t *rest_bytes);

#endif /* FED_SECURE_H */
