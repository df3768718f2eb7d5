/* SPDX-License-Identifier: MIT */
/* score.h - translations of a whole text, compared with those of people. Private to train/. */
#ifndef TRAIN_SCORE_H
#define TRAIN_SCORE_H

#include "base/strbuf.h"
#include "data/text.h"
#include "train/bleu.h"
#include "train/job.h"
#include "train/translate.h"

/* What a translator for this text's target takes besides its width. */
struct translate_config score_config(const struct text *text, int64_t width);

/* Translates pairs of the text, `count` of them by number, and gives each translation as people write
 * it: tell(arg, i, translation) for index[i]. */
typedef enum status score_tell(void *arg, int64_t i, const char *translation);
MUST_CHECK enum status score_some(struct translator *translator, const struct text *text,
                                  const int64_t *index, int64_t count, score_tell *tell,
                                  void *arg);

/* Translates all pairs by `width` hypotheses and counts how far they agree with the text's. Words in
 * lower case are compared with the text in lower case. */
MUST_CHECK enum status score_text(const struct usable *usable, const struct text *text,
                                  int64_t width, struct bleu *out);

/* A job's model as it is now in its executor, ready to be used: on a settled exec, while no rank
 * trains. */
struct usable_exec {
    struct usable usable;
    struct model_config config;
    struct infer_weights *weights;
};
MUST_CHECK enum status usable_exec_init(struct usable_exec *usable, const struct job *job,
                                        const struct exec *exec);
void usable_exec_release(struct usable_exec *usable);

/* score_text with the weights that an executor has. */
MUST_CHECK enum status score_exec(const struct job *job, const struct exec *exec,
                                  const struct text *text, int64_t width, struct bleu *out);

#endif /* TRAIN_SCORE_H */
