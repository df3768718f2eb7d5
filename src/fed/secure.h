/* SPDX-License-Identifier: MIT */
/* secure.h - what both ends of a secure round agree on: the vector that is summed, and how it is made of numbers.
 *
 * The vector: a participant's weight times its update (and times the change of its control variate, and its personal
 * numbers), then the numbers of SECURE_EXTRAS. The weight is its share of the samples of the one that has most, or 1; with
 * differential privacy always 1, and of the extras the weight and the bit of the clip alone are not zero.
 */
#ifndef FED_SECURE_H
#define FED_SECURE_H

#include "fed/dp.h"
#include "fed/message.h"
#include "fed/quantize.h"
#include "fed/secagg.h"
#include "fed/terms.h"

enum {
    SECURE_WEIGHT,
    SECURE_BIT,      /* dp_bit */
    SECURE_LOSS,     /* weight times: mean loss / SECURE_LOSS_MOST */
    SECURE_ACCURACY, /* weight times */
    SECURE_VAL_SEEN, /* 1: it has validated */
    SECURE_VAL_LOSS,
    SECURE_VAL_ACCURACY,
    SECURE_EXTRAS
};
enum { SECURE_LOSS_MOST = 32 };

struct secure_shape {
    struct secagg_config config;
    struct quantize quantize;
    struct dp_share share; /* distributed privacy; deviation 0: none */
    size_t updates;        /* words before the extras */
};

/* updates: numbers before the extras; participants: of the round. */
MUST_CHECK enum status secure_shape(const struct fed_terms *terms, const uint8_t terms_hash[32],
                                    uint64_t round, uint32_t participants, size_t updates,
                                    struct secure_shape *out);

/* A hash of all that a task of training tells every participant alike: what secagg's signatures are bound to. */
MUST_CHECK enum status secure_work_hash(const struct fed_work *work, uint8_t out[SECAGG_BOUND]);

/* The task of the stage keys: what the round is, then secagg's. */
struct secure_keys {
    uint32_t participants;
    bool asks_statistics;
};
void secure_put_keys(struct fed_buffer *out, const struct secure_keys *keys);
MUST_CHECK enum status secure_take_keys(const void *task, size_t bytes, struct secure_keys *out,
                                        const uint8_t **rest, size_t *rest_bytes);

#endif /* FED_SECURE_H */
