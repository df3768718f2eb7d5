/* SPDX-License-Identifier: MIT */
/* generate.h - goes on with a text, token by token, by a model that predicts the next one.
 *
 * Keys and values of the tokens so far are kept, so that a token costs one token's work. When the
 * model's context is full, the last half of the text is read again as if it were the beginning.
 *
 * Threads: one thread at a time for each generator.
 */
#ifndef TRAIN_GENERATE_H
#define TRAIN_GENERATE_H

#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "exec/infer.h"
#include "model/model.h"

/* What a trained model is made of when it is used; borrowed while that lasts. */
struct usable {
    const struct model *model;
    const struct model_config
        *config; /* with the options and vocabularies that it was trained with */
    const struct infer_weights *weights;
    const struct kernel_choices *choices;
    struct pool *pool; /* threads that share each op, or NULL */
};

struct generator;

/* Is there a graph of one step for the model? Not for one that was read from a graph file. */
bool generator_is_for(const struct model *model);
/* STATUS_USAGE for a model that it is not for. */
MUST_CHECK enum status generator_create(const struct usable *usable, struct generator **out);
void generator_destroy(struct generator *generator); /* NULL is allowed */
/* Forgets the text. */
void generator_reset(struct generator *generator);

/* Reads some tokens more, at least one. Gives the logits of the token after them, as many as the
 * vocabulary has tokens, valid until the next call. */
MUST_CHECK enum status generator_feed(struct generator *generator, const int32_t *tokens,
                                      int64_t count, const float **out_logits);

#endif /* TRAIN_GENERATE_H */
