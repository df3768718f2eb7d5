/* SPDX-License-Identifier: MIT */
/* codec_row.h - private: what a codec is, and a bucket's state. */
#ifndef COMM_CODEC_ROW_H
#define COMM_CODEC_ROW_H

#include <stdbool.h>

#include "comm/codec.h"

/* The number after a codec's name. */
struct codec_amount {
    const char *name; /* "share"; NULL: it takes none */
    double usual, least, most;
    bool is_whole;
};

struct codec {
    const char *name, *summary;
    struct codec_amount amount;
    int rounds;
    /* Makes what this codec needs beside the error; optional, as is release. */
    enum status (*create)(struct codec_state *state, const struct codec_layout *layout);
    void (*release)(struct codec_state *state);
    size_t (*bytes)(const struct codec_state *state, int round);
    void (*encode)(struct codec_state *state, int round, const float *gradient, void *payload);
    /* Is a payload of the right length one that encode could have written? Optional. */
    enum status (*check)(const struct codec_state *state, const void *payload);
    void (*decode)(struct codec_state *state, int round, const void *const payloads[], int n,
                   float *sum);
};

struct codec_state {
    const struct codec *codec;
    struct codec_config config;
    size_t count;
    float *error;    /* [count]; within a step gradient + error */
    size_t block;    /* int8, onebit: elements with one scale */
    size_t n_sent;   /* topk, and what follows */
    uint32_t guess;  /* magnitude that what is sent may have at least; 0: none */
    uint32_t *noted; /* [max_noted] places of elements of that magnitude */
    size_t max_noted;
    float margin;              /* the guess as a share of the last threshold */
    struct low_rank *low_rank; /* powersgd */
};

/* Elements that are worked on at once: a few vectors of them fit the first-level cache. */
enum { CODEC_STRETCH = 2048 };

extern const struct codec codec_bf16, codec_int8, codec_topk, codec_onebit, codec_powersgd;

/* powersgd: Q, for codec_vectors. */
float *codec_powersgd_q(struct codec_state *state, size_t *out_count);

static inline size_t codec_smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t codec_blocks(size_t count, size_t block)
{
    return (count + block - 1) / block;
}

/* error += gradient */
void codec_add(float *restrict error, const float *restrict gradient, size_t count);

#endif /* COMM_CODEC_ROW_H */
