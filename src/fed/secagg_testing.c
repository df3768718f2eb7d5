/* SPDX-License-Identifier: MIT */
/* secagg_testing.c - a whole round of secure aggregation in one process. */
#include "fed/secagg_testing.h"

#include <string.h>

/* A proof is the number of the identity; everybody knows all. */
static enum status identify(void *context, const void *proof, size_t bytes,
                            uint8_t public_key[SECAGG_PUBLIC])
{
    const struct secagg_federation *federation = context;
    uint32_t number;

    if (bytes != sizeof(number))
        return FAIL(STATUS_MISMATCH, "a proof of %zu bytes", bytes);
    memcpy(&number, proof, sizeof(number));
    for (uint32_t i = 0; i < federation->n; i++) {
        if (federation->numbers[i] == number) {
            memcpy(public_key, federation->public_keys[i], SECAGG_PUBLIC);
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_MISMATCH, "nobody is called %u", number);
}

static enum status make_participant(struct secagg_federation *federation, uint32_t i,
                                    uint32_t number)
{
    struct secagg_identity *identity = &federation->identities[i];
    uint8_t seed[SECAGG_SEED] = { 1 };

    federation->numbers[i] = 3 * i + 1;
    memcpy(seed + 4, &federation->numbers[i], sizeof(uint32_t));
    memcpy(seed + 8, &number, sizeof(number));
    TRY(secagg_identity_make(seed, identity->secret, federation->public_keys[i]));
    identity->proof = &federation->numbers[i];
    identity->proof_bytes = sizeof(uint32_t);
    seed[0] = 2;
    return secagg_client_create(&federation->config, identity, &federation->trust, seed,
                                &federation->clients[i]);
}

enum status secagg_federation_create(uint32_t n, uint32_t threshold, int bits, size_t count,
                                     uint32_t number, struct secagg_federation *out)
{
    memset(out, 0, sizeof(*out));
    BUG_ON(n > SECAGG_TEST_MOST);
    out->config = (struct secagg_config){
        .round = number, .participants = n, .threshold = threshold, .bits = bits, .count = count
    };
    out->trust = (struct secagg_trust){ identify, out };
    enum status status = secagg_server_create(&out->config, &out->trust, &out->server);
    for (; status == STATUS_OK && out->n < n; out->n++)
        status = make_participant(out, out->n, number);
    if (status != STATUS_OK)
        secagg_federation_destroy(out);
    return status;
}

void secagg_federation_destroy(struct secagg_federation *federation)
{
    secagg_server_destroy(federation->server);
    for (uint32_t i = 0; i < SECAGG_TEST_MOST; i++)
        secagg_client_destroy(federation->clients[i]);
}

enum status secagg_federation_task(struct secagg_federation *federation, uint32_t i,
                                   struct fed_buffer *out)
{
    fed_buffer_clear(out);
    TRY(secagg_server_task(federation->server, federation->numbers[i], out));
    federation->to_clients += out->length;
    return STATUS_OK;
}

static enum status answer_one(struct secagg_federation *federation, uint32_t i,
                              const void *words, struct pool *pool, struct fed_buffer *task,
                              struct fed_buffer *answer)
{
    const enum secagg_stage stage = secagg_server_stage(federation->server);

    TRY(secagg_federation_task(federation, i, task));
    fed_buffer_clear(answer);
    TRY(secagg_client_answer(federation->clients[i], stage, task->data, task->length, words,
                             pool, answer));
    federation->to_server += answer->length;
    return secagg_server_hear(federation->server, federation->numbers[i], stage, answer->data,
                              answer->length);
}

enum status secagg_federation_stage(struct secagg_federation *federation,
                                    const void *const *words, struct pool *pool)
{
    const bool is_masked = secagg_server_stage(federation->server) == SECAGG_MASKED;
    struct fed_buffer task, answer;
    enum status status = STATUS_OK;

    fed_buffer_init(&task, SIZE_MAX / 2);
    fed_buffer_init(&answer, SIZE_MAX / 2);
    for (uint32_t i = 0; i < federation->n && status == STATUS_OK; i++) {
        if (!federation->gone[i])
            status =
                answer_one(federation, i, is_masked ? words[i] : NULL, pool, &task, &answer);
    }
    fed_buffer_release(&task);
    fed_buffer_release(&answer);
    TRY(status);
    return secagg_server_close(federation->server);
}
