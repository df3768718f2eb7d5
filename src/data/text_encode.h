/* SPDX-License-Identifier: MIT */
/* text_encode.h - documents to numbers, by several threads. Private to data/. */
#ifndef DATA_TEXT_ENCODE_H
#define DATA_TEXT_ENCODE_H

#include "data/text_file.h"
#include "data/tokenize.h"
#include "data/vocab_build.h"

struct encode_config {
    const struct text_file *file; /* that the documents lie in */
    const struct text_span *span; /* the documents */
    int64_t count;
    bool is_stream; /* all make one sequence */
    int64_t length; /* numbers of a document that are kept; 0: all */
    const struct tokenizer *tokenizer;
    const struct vocab *vocab; /* NULL: counted, by this rule */
    struct vocab_rule rule;
    /* Of the same file, none of the documents: tokens that they lack are counted here, unless the rule has
     * an <unk> for them. Length 0: there is none. */
    struct text_span rest;
    int threads;
};

/* Numbers of all documents, one after the other. */
struct encoded {
    int32_t *id;
    int64_t
        *start; /* document i has [start[i], start[i + 1]): count + 1 of them; of a stream 2 */
    int64_t tokens;      /* before documents were cut */
    struct vocab *vocab; /* the counted one, or NULL */
};

/* A document without tokens gets the number 0, so that none is empty. */
MUST_CHECK enum status text_encode(const struct encode_config *config, struct encoded *out);
void encoded_release(struct encoded *encoded);

#endif /* DATA_TEXT_ENCODE_H */
