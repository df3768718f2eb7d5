/* SPDX-License-Identifier: MIT */
/* text_source.h - everything of an open text, and how its samples are read. Private to data/. */
#ifndef DATA_TEXT_SOURCE_H
#define DATA_TEXT_SOURCE_H

#include "base/sha256.h"
#include "data/dataset.h"
#include "data/known.h"
#include "data/text_encode.h"
#include "data/text_format.h"

struct text {
    struct source source; /* first: a source is cast to its text */
    struct text_config config;
    enum text_split split;
    struct known known;
    const struct dataset_info *info; /* a row of the table, or `own` */
    struct dataset_info own;
    const struct class_list *run; /* that labels are of; NULL: their own */
    char *folder;
    struct text_data
        data; /* of pairs still with its files; of others the labels and names alone */
    struct encoded side[TEXT_SIDES];
    const struct vocab *vocab[TEXT_SIDES];
    struct vocab *own_vocab[TEXT_SIDES]; /* counted here, or GPT-2's; NULL: given */
    int64_t length[TEXT_SIDES];          /* of a sample at most */
    int64_t longest[TEXT_SIDES];         /* of those there are, cut to that */
    int64_t whole;                       /* samples there are; source.count are to be seen */
    uint32_t *key;
    int32_t *by_key;
    char contents[SHA256_HEX], fingerprint[SHA256_HEX];
    char old_contents[SHA256_HEX], old_fingerprint[SHA256_HEX]; /* source.h */
};

extern const struct source_kind text_kinds[TEXT_TASKS];

/* Numbers of one side of a document, cut to the longest. */
int64_t text_length_of(const struct text *text, int64_t index, int side);
/* Tokens of a stream that blocks are cut from, and how many blocks that makes. */
int64_t text_stream_length(const struct text *text);
int64_t text_block_count(const struct text *text);

#endif /* DATA_TEXT_SOURCE_H */
