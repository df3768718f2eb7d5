/* SPDX-License-Identifier: MIT */
/* secure.c - what both ends of a secure round agree on. */
#include "fed/secure.h"

#include <sodium.h>
#include <string.h>

enum status secure_shape(const struct fed_terms *terms, const uint8_t terms_hash[32],
                         uint64_t round, uint32_t participants, size_t updates,
                         struct secure_shape *out)
{
    struct secure_shape shape = {
        .config = { .round = round,
                    .threshold = terms->threshold ? (uint32_t)terms->threshold
                                                  : secagg_default_threshold(participants),
                    .participants = participants,
                    .minimum = (uint32_t)terms->minimum,
                    .bits = (int)terms->bits },
        .updates = updates,
    };
    const bool distributed = strcmp(terms->dp, "distributed") == 0;
    const double noise = distributed ? terms->noise * terms->clip : 0;

    memcpy(shape.config.federation, terms_hash, sizeof shape.config.federation);
    shape.config.count = shape.updates + SECURE_EXTRAS;
    TRY(secagg_check(&shape.config));
    TRY(quantize_init(shape.config.bits, participants, terms->range, noise, &shape.quantize));
    if (distributed)
        TRY(dp_share_init(&shape.quantize, terms->clip, terms->noise, shape.config.threshold,
                          shape.updates, &shape.share));
    *out = shape;
    return STATUS_OK;
}

enum status secure_work_hash(const struct fed_work *work, uint8_t out[SECAGG_BOUND])
{
    static const uint8_t label[] = "tutti secure work";
    crypto_generichash_state state;
    struct fed_buffer numbers;

    fed_buffer_init(&numbers, 256);
    fed_put_u64(&numbers, work->seed);
    fed_put_f64(&numbers, work->lr);
    fed_put_f64(&numbers, work->clip);
    fed_put_u64(&numbers, work->whole);
    fed_put_u64(&numbers, work->most);
    fed_put_u8(&numbers, (uint8_t)work->n_vectors);
    fed_put_u64(&numbers, work->length);
    fed_put_u8(&numbers, work->asks_statistics);
    fed_put_u64(&numbers, work->n_statistics);
    const enum status status = fed_buffer_status(&numbers);
    if (status == STATUS_OK) {
        crypto_generichash_init(&state, NULL, 0, SECAGG_BOUND);
        crypto_generichash_update(&state, label, sizeof label);
        crypto_generichash_update(&state, numbers.data, numbers.length);
        for (int i = 0; i < work->n_vectors; i++)
            crypto_generichash_update(&state, (const uint8_t *)work->vector[i],
                                      work->length * sizeof(float));
        if (work->n_statistics > 0)
            crypto_generichash_update(&state, (const uint8_t *)work->statistics,
                                      work->n_statistics * sizeof(float));
        crypto_generichash_final(&state, out, SECAGG_BOUND);
    }
    fed_buffer_release(&numbers);
    return status;
}

void secure_put_keys(struct fed_buffer *out, const struct secure_keys *keys)
{
    fed_put_u32(out, keys->participants);
    fed_put_u8(out, keys->asks_statistics);
}

enum status secure_take_keys(const void *task, size_t bytes, struct secure_keys *out,
                             const uint8_t **rest, size_t *rest_bytes)
{
    struct fed_reader reader = fed_reader(task, bytes);
    const uint32_t participants = fed_take_u32(&reader);
    const uint8_t asks_statistics = fed_take_u8(&reader);

    if (reader.failed || participants < 1 || participants > SECAGG_PARTICIPANTS ||
        asks_statistics > 1)
        return FAIL(STATUS_CORRUPT, "keys: a round of %u participants", participants);
    *out = (struct secure_keys){ participants, asks_statistics == 1 };
    *rest = reader.data + reader.at;
    *rest_bytes = reader.length - reader.at;
    return STATUS_OK;
}
