/* SPDX-License-Identifier: MIT */
/* terms.h - everything a coordinator announces: model, local training, rounds, algorithm, privacy.
 *
 * A field is a row of fed_flags (flags.c): the command line of coordinator and simulate, their help, and the JSON that
 * goes to participants all walk that table. What participants read is checked against it: kinds, ranges, sizes.
 *
 * The flat vector of parameters that crosses is, in the model's order, each parameter and running average as plain
 * row-major floats (as checkpoints have them): it depends on no machine's layout.
 */
#ifndef FED_TERMS_H
#define FED_TERMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "base/strbuf.h"

enum { FED_TEXT = 64, FED_GRAPH_TEXT = 1 << 22 };

struct fed_terms {
    char federation[FED_TEXT]; /* its id: 32 hexadecimal digits, drawn when it begins */
    /* The model: a graph file's text (model/file.h), never code. */
    char *graph;          /* owned; NULL: not made yet */
    char model[FED_TEXT]; /* its name, for people */
    bool standardize;     /* of tables: by statistics of all participants together */
    /* Local training. */
    int64_t batch;         /* 0: all samples of the participant */
    bool full_batch;       /* says so */
    int64_t epochs, steps; /* a round; steps 0: epochs decide */
    char optimizer[FED_TEXT];
    double lr, momentum, weight_decay; /* NaN: the optimizer's default; momentum: none */
    double lr_decay;                   /* by which the rate is multiplied after every round */
    uint64_t seed;
    bool shuffle;
    char dp_sgd[FED_TEXT]; /* "clip,noise" of every sample's gradient; "": none */
    /* Rounds. */
    int64_t rounds;
    int64_t per_round; /* participants; 0: by fraction */
    double fraction;   /* of those that are there */
    int64_t minimum;   /* of participants that give: below, the round begins again */
    double deadline_s; /* of a stage; 0: all are waited for */
    /* Algorithm (algorithm.h). */
    char algorithm[FED_TEXT];
    double mu; /* fedprox */
    double server_lr, server_momentum, beta1, beta2, tau;
    int64_t buffer;           /* fedbuff: updates a round */
    char weighting[FED_TEXT]; /* samples | equal */
    char aggregate[FED_TEXT]; /* mean | median | trimmed:B | krum:F | multikrum:F,M */
    double max_norm;          /* of an update; 0: any */
    int64_t max_samples;      /* by which an update counts at most; 0: any number */
    char compress[FED_TEXT];  /* of updates: bf16 | int8 | topk:RATIO; "": none */
    bool personal_head;
    /* Secure aggregation. */
    bool secure;
    int64_t threshold;         /* 0: two thirds of a round's participants, rounded up */
    int64_t cohort_difference; /* 0: by fed_terms_cohort_difference */
    double range;              /* updates are clipped to [-range, range] element by element */
    int64_t bits;              /* of the ring: 32 or 64 */
    /* Differential privacy. */
    char dp[FED_TEXT];             /* "" | central | distributed */
    double clip, noise;            /* L2 norm of an update; noise multiplier */
    double clip_quantile, clip_lr; /* adaptive: share of updates below the clip; 0: fixed */
    double delta, epsilon;         /* budget; epsilon 0: none */
};

enum fed_flag_kind {
    FED_FLAG_TEXT,
    FED_FLAG_INTEGER,
    FED_FLAG_UNSIGNED,
    FED_FLAG_NUMBER,
    FED_FLAG_SWITCH
};

/* One field. */
struct fed_flag {
    const char *name;     /* of the flag; '-' becomes '_' in JSON */
    const char *argument; /* what help calls the value; NULL: a switch */
    const char *help;     /* NULL: no flag of its own (train's settings fill it), but in JSON */
    const char *group;
    enum fed_flag_kind kind;
    size_t offset;
    double minimum, maximum;
};
extern const struct fed_flag fed_flags[]; /* ended by a NULL name */

void fed_terms_init(struct fed_terms *terms); /* defaults */
void fed_terms_release(struct fed_terms *terms);
/* Sets a field from text as typed ("true", "false" of a switch). STATUS_USAGE names flag, value and what would be
 * right. */
MUST_CHECK enum status fed_terms_set(struct fed_terms *terms, const struct fed_flag *flag,
                                     const char *text);
const struct fed_flag *fed_flag_find(const char *name); /* NULL: unknown */
/* Sums of different rounds are over equal sets of participants, or over sets that differ by at least so many members
 * (cohorts.h): as the terms say, else 2 in secure rounds without differential privacy, whose sums are exact, and 1. */
uint32_t fed_terms_cohort_difference(const struct fed_terms *terms);
/* The samples by which a participant that has so many counts. */
uint64_t fed_terms_samples(const struct fed_terms *terms, uint64_t samples);
/* Do they make sense together? Refuses, with the reason, what cannot be: by who announces and who reads them. */
MUST_CHECK enum status fed_terms_check(const struct fed_terms *terms);

/* The first field in which they differ; the graph is none. NULL: in none. */
const struct fed_flag *fed_terms_differ(const struct fed_terms *a, const struct fed_terms *b);

/* As a JSON object and back. Reading refuses unknown members and values out of range: STATUS_CORRUPT. */
void fed_terms_print(const struct fed_terms *terms, struct strbuf *out);
MUST_CHECK enum status fed_terms_read(const char *text, size_t length, struct fed_terms *out);

#endif /* FED_TERMS_H */
