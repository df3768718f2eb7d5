/* SPDX-License-Identifier: MIT */
/* secagg_testing.h - for tests and the bench: a whole round of secure aggregation, with participants that drop out. */
#ifndef FED_SECAGG_TESTING_H
#define FED_SECAGG_TESTING_H

#include "fed/secagg.h"

enum { SECAGG_TEST_MOST = 128 };

/* n participants and a coordinator; identities are proven by their numbers. */
struct secagg_federation {
    struct secagg_config config;
    struct secagg_server *server;
    uint32_t n;
    uint32_t numbers[SECAGG_TEST_MOST]; /* ascending, with gaps */
    struct secagg_identity identities[SECAGG_TEST_MOST];
    uint8_t public_keys[SECAGG_TEST_MOST][SECAGG_PUBLIC];
    struct secagg_client *clients[SECAGG_TEST_MOST];
    bool gone[SECAGG_TEST_MOST];
    struct secagg_trust trust;
    size_t to_server, to_clients; /* bytes so far */
};

/* Keys and seeds are made from `number`. */
MUST_CHECK enum status secagg_federation_create(uint32_t n, uint32_t threshold, int bits,
                                                size_t count, uint32_t number,
                                                struct secagg_federation *out);
void secagg_federation_destroy(struct secagg_federation *federation);

/* The open stage's task of participant i (clears out first). */
MUST_CHECK enum status secagg_federation_task(struct secagg_federation *federation, uint32_t i,
                                              struct fed_buffer *out);
/* All who are not gone get their task and answer it; then the stage is closed. words[i]: the vector of participant i. */
MUST_CHECK enum status secagg_federation_stage(struct secagg_federation *federation,
                                               const void *const *words, struct pool *pool);

#endif /* FED_SECAGG_TESTING_H */
