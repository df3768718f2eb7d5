/* SPDX-License-Identifier: MIT */
/* secure.c - what both ends of a secure round agree on. */
#include "fed/secure.h"

#include <math.h>
#include <sodium.h>
#include <string.h>

enum status secure_shape(const struct fed_terms *terms, const uint8_t terms_hash[32],
                         uint64_t round, uint32_t participants, size_t updates,
                         const uint8_t agreed[SECAGG_AGREED], struct secure_shape *out)
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
    memcpy(shape.config.agreed, agreed, SECAGG_AGREED);
    shape.config.count = shape.updates + SECURE_EXTRAS;
    TRY(secagg_check(&shape.config));
    TRY(quantize_init(shape.config.bits, participants, terms->range, noise, &shape.quantize));
    if (distributed)
        TRY(dp_share_init(&shape.quantize, terms->clip, terms->noise, shape.config.threshold,
                          shape.updates, &shape.share));
    *out = shape;
    return STATUS_OK;
}

enum status secure_work_hash(const struct fed_work *work, uint8_t out[SECAGG_AGREED])
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
        crypto_generichash_init(&state, NULL, 0, SECAGG_AGREED);
        crypto_generichash_update(&state, label, sizeof label);
        crypto_generichash_update(&state, numbers.data, numbers.length);
        for (int i = 0; i < work->n_vectors; i++)
            crypto_generichash_update(&state, (const uint8_t *)work->vector[i],
                                      work->length * sizeof(float));
        if (work->n_statistics > 0)
            crypto_generichash_update(&state, (const uint8_t *)work->statistics,
                                      work->n_statistics * sizeof(float));
        crypto_generichash_final(&state, out, SECAGG_AGREED);
    }
    fed_buffer_release(&numbers);
    return status;
}

/* Ranges of statistics ------------------------------------------------------------------ */

enum secure_asks secure_asks(const struct fed_work *work)
{
    if (!work->asks_statistics)
        return SECURE_UPDATE;
    return work->n_statistics == 0 ? SECURE_RANGES : SECURE_SUMS;
}

enum status secure_check_cohort(const struct cohorts *cohorts, enum secure_asks asks,
                                uint8_t (*ids)[COHORTS_ID], uint32_t n, uint32_t least)
{
    const bool is_one = asks == SECURE_SUMS && least > 1;

    return cohorts_check(cohorts, (uint8_t)asks, ids, n, is_one ? COHORTS_ONE : least);
}

static void set_word(void *words, int bits, size_t i, uint64_t word)
{
    if (bits == 32)
        ((uint32_t *)words)[i] = (uint32_t)word;
    else
        ((uint64_t *)words)[i] = word;
}

enum status secure_put_ranges(const float *values, size_t n, int bits, struct noise *source,
                              void *words)
{
    for (size_t i = 0; i < n; i++) {
        const double size = fabs((double)values[i]);
        if (!(size < ldexp(1, SECURE_EXPONENT + SECURE_EXPONENTS - 1)))
            return FAIL(STATUS_MISMATCH,
                        "a sum over the rows here is %g: a column has numbers that no table "
                        "can be standardized by",
                        (double)values[i]);
        for (int e = 0; e < SECURE_EXPONENTS; e++) {
            const bool above = size >= ldexp(1, SECURE_EXPONENT + e);
            const uint64_t word = noise_u64(source); /* drawn always: time says nothing */
            set_word(words, bits, i * SECURE_EXPONENTS + (size_t)e, above ? word | 1 : 0);
        }
    }
    return STATUS_OK;
}

enum status secure_take_ranges(const void *words, size_t n, int bits, float *ranges)
{
    for (size_t i = 0; i < n; i++) {
        int above = SECURE_EXPONENTS;
        for (; above > 0; above--) {
            const size_t at = i * SECURE_EXPONENTS + (size_t)above - 1;
            if (bits == 32 ? ((const uint32_t *)words)[at] : ((const uint64_t *)words)[at])
                break;
        }
        if (above == SECURE_EXPONENTS)
            return FAIL(STATUS_MISMATCH, "a sum over rows is beyond all ranges: somebody lied");
        ranges[i] = ldexpf(1, SECURE_EXPONENT + above);
    }
    return STATUS_OK;
}

void secure_put_keys(struct fed_buffer *out, const struct secure_keys *keys)
{
    fed_put_u32(out, keys->participants);
    fed_put_u8(out, (uint8_t)keys->asks);
    fed_put(out, keys->agreed, SECAGG_AGREED);
}

enum status secure_take_keys(const void *task, size_t bytes, struct secure_keys *out,
                             const uint8_t **rest, size_t *rest_bytes)
{
    struct fed_reader reader = fed_reader(task, bytes);
    const uint32_t participants = fed_take_u32(&reader);
    const uint8_t asks = fed_take_u8(&reader);
    const uint8_t *agreed = fed_take(&reader, SECAGG_AGREED);

    if (reader.failed || participants < 1 || participants > SECAGG_PARTICIPANTS ||
        asks >= SECURE_ASKS)
        return FAIL(STATUS_CORRUPT, "keys: a round of %u participants", participants);
    *out = (struct secure_keys){ .participants = participants, .asks = (enum secure_asks)asks };
    memcpy(out->agreed, agreed, SECAGG_AGREED);
    *rest = reader.data + reader.at;
    *rest_bytes = reader.length - reader.at;
    return STATUS_OK;
}
