/* SPDX-License-Identifier: MIT */
/* secagg_round_testing.c - a round of secure aggregation with vectors, for tests. */
#include "fed/secagg_round_testing.h"

#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "fed/mask.h"

void round_begin(struct round *round, uint32_t n, uint32_t threshold, int bits, size_t count,
                 uint32_t number)
{
    struct rng rng;

    CHECK_OK(secagg_federation_create(n, threshold, bits, count, number, &round->federation));
    round->bytes = count * (size_t)bits / 8;
    rng_init(&rng, number, 1);
    for (uint32_t i = 0; i < n; i++) {
        CHECK_OK(mem_alloc(round->bytes, 1, &round->words[i]));
        for (size_t k = 0; k < round->bytes; k++)
            round->words[i][k] = (uint8_t)rng_u32(&rng);
    }
    fed_buffer_init(&round->task, 1 << 20);
    fed_buffer_init(&round->answer, 1 << 20);
}

void round_end(struct round *round)
{
    for (uint32_t i = 0; i < round->federation.n; i++)
        mem_free(round->words[i]);
    fed_buffer_release(&round->task);
    fed_buffer_release(&round->answer);
    secagg_federation_destroy(&round->federation);
}

enum status round_run_stage(struct round *round)
{
    return secagg_federation_stage(&round->federation, (const void *const *)round->words, NULL);
}

void round_run_stages(struct round *round, int stages)
{
    for (int i = 0; i < stages; i++)
        CHECK_OK(round_run_stage(round));
}

void round_check_sum(struct round *round, const bool *counted)
{
    const struct secagg_config *config = &round->federation.config;
    uint8_t *actual, *expected;

    CHECK_OK(mem_alloc(round->bytes, 1, &actual));
    CHECK_OK(mem_alloc(round->bytes, 1, &expected));
    for (uint32_t i = 0; i < round->federation.n; i++) {
        if (counted[i])
            mask_sum(config->bits, expected, round->words[i], config->count);
    }
    CHECK_OK(secagg_server_sum(round->federation.server, NULL, actual));
    CHECK(memcmp(expected, actual, round->bytes) == 0);
    mem_free(actual);
    mem_free(expected);
}

enum status round_answer(struct round *round, uint32_t i)
{
    struct secagg_federation *federation = &round->federation;
    const enum secagg_stage stage = secagg_server_stage(federation->server);

    fed_buffer_clear(&round->answer);
    return secagg_client_answer(
        federation->clients[i], stage, round->task.data, round->task.length,
        stage == SECAGG_MASKED ? round->words[i] : NULL, NULL, &round->answer);
}

void round_get_task(struct round *round, uint32_t i)
{
    CHECK_OK(secagg_federation_task(&round->federation, i, &round->task));
}

enum status round_hear(struct round *round, uint32_t i)
{
    struct secagg_federation *federation = &round->federation;

    return secagg_server_hear(federation->server, federation->numbers[i],
                              secagg_server_stage(federation->server), round->answer.data,
                              round->answer.length);
}
