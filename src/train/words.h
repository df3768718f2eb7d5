/* SPDX-License-Identifier: MIT */
/* words.h - names that other programs have for what is called otherwise here: PyTorch, Keras, Horovod, DeepSpeed,
 * Megatron-LM. For messages: a name that is unknown is looked up before the nearest spelling is offered.
 *
 * Upper and lower case count as the same, and so do '_' and '-'.
 *
 * Threads: any.
 */
#ifndef TRAIN_WORDS_H
#define TRAIN_WORDS_H

enum words {
    WORDS_FLAG, /* advice begins with the flag's name, after "--" and before a space or the end */
    WORDS_COMMAND,
    WORDS_MODEL,
    WORDS_STRATEGY,
    WORDS_OPTIMIZER,
    WORDS_SCHEDULE,
    WORDS_DEVICE,
    WORDS_PRECISION,
    WORDS_KINDS
};

/* The way to say it here: "--lr", "mirrored on one machine, multiworker on several"; NULL: no known word. */
const char *words_here(enum words kind, const char *word);

#endif /* TRAIN_WORDS_H */
