/* SPDX-License-Identifier: MIT */
/* secagg_round_testing.h - a round of secure aggregation with vectors, for tests: all of it, a stage, or a message at a time. */
#ifndef FED_SECAGG_ROUND_TESTING_H
#define FED_SECAGG_ROUND_TESTING_H

#include "fed/secagg_testing.h"

struct round {
    struct secagg_federation federation;
    uint8_t *words[SECAGG_TEST_MOST];
    size_t bytes; /* of one vector */
    struct fed_buffer task, answer;
};

/* Random vectors, made from `number` as everything else is. */
void round_begin(struct round *round, uint32_t n, uint32_t threshold, int bits, size_t count,
                 uint32_t number);
void round_end(struct round *round);

/* All who are not gone. */
MUST_CHECK enum status round_run_stage(struct round *round);
void round_run_stages(struct round *round, int stages);
/* The sum over those marked, modulo 2^bits. */
void round_check_sum(struct round *round, const bool *counted);

/* The task that participant i has now goes to round->task; what it says to what is there, to round->answer; the coordinator hears
 * that. */
void round_get_task(struct round *round, uint32_t i);
MUST_CHECK enum status round_answer(struct round *round, uint32_t i);
MUST_CHECK enum status round_hear(struct round *round, uint32_t i);

#endif /* FED_SECAGG_ROUND_TESTING_H */
