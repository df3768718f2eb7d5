/* SPDX-License-Identifier: MIT */
/* client_secure.c - a participant's part of rounds whose updates nobody sees but as a sum. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "fed/client_state.h"

enum status client_secure_shape(struct fed_client *client)
{
    const size_t updates = client->secure_statistics
                               ? client->trainer.statistics
                               : (size_t)client->algorithm->n_vectors * client->length;

    return secure_shape(&client->terms, client->terms_hash, (uint64_t)client->secure_round,
                        client->secure_participants, updates, &client->shape);
}

/* A new round has new secrets. */
static enum status begin(struct fed_client *client, int64_t round,
                         const struct secure_keys *keys)
{
    uint8_t seed[SECAGG_SEED];

    if (round == client->secure_round && client->secagg) {
        return keys->participants == client->secure_participants &&
                       keys->asks_statistics == client->secure_statistics
                   ? STATUS_OK
                   : FAIL(STATUS_MISMATCH,
                          "the coordinator begins round %lld again, with %u "
                          "participants instead of %u",
                          (long long)round, keys->participants, client->secure_participants);
    }
    if (round <= client->secure_round)
        return FAIL(STATUS_MISMATCH, "the coordinator replays round %lld", (long long)round);
    secagg_client_destroy(client->secagg);
    client->secagg = NULL;
    client->secure_round = round;
    client->secure_participants = keys->participants;
    client->secure_statistics = keys->asks_statistics;
    if (keys->asks_statistics && (!client->terms.standardize || !client->trainer.sum_rows))
        return FAIL(STATUS_MISMATCH, "the coordinator asks for statistics, which the terms do "
                                     "not say or the data here do not have");
    TRY(client_secure_shape(client));
    TRY(client->config.entropy(client->config.arg, seed, sizeof seed));
    return secagg_client_create(&client->shape.config, client->config.identity,
                                client->config.trust, seed, &client->secagg);
}

enum status client_secure_answer(struct fed_client *client, const struct fed_message *message,
                                 struct fed_buffer *out)
{
    const uint8_t *task = message->payload;
    size_t bytes = message->payload_length;

    if (message->stage == FED_KEYS) {
        struct secure_keys keys;
        TRY(secure_take_keys(message->payload, message->payload_length, &keys, &task, &bytes));
        TRY(begin(client, message->round, &keys));
    }
    if (!client->secagg || message->round != client->secure_round)
        return FAIL(STATUS_MISMATCH, "%s of round %lld, whose keys were never asked for",
                    fed_stage_name(message->stage), (long long)message->round);
    return secagg_client_answer(client->secagg, (enum secagg_stage)message->stage, task, bytes,
                                NULL, NULL, out);
}

/* Numbers beside the update, each at most 1. */
static void fill_extras(const struct fed_tally *tally, double weight, float *extra)
{
    const double seen = tally->seen > 0 ? tally->seen : 1;
    const double val_seen = tally->val_seen > 0 ? tally->val_seen : 1;

    extra[SECURE_LOSS] = (float)(weight * tally->loss / seen / SECURE_LOSS_MOST);
    extra[SECURE_ACCURACY] = (float)(weight * tally->correct / seen);
    extra[SECURE_VAL_SEEN] = (float)(tally->val_seen > 0 ? weight : 0);
    extra[SECURE_VAL_LOSS] =
        (float)(tally->val_seen > 0 ? weight * tally->val_loss / val_seen / SECURE_LOSS_MOST
                                    : 0);
    extra[SECURE_VAL_ACCURACY] =
        (float)(tally->val_seen > 0 ? weight * tally->val_correct / val_seen : 0);
}

/* The vector that is summed, as secure.h has it. */
static void fill_vector(const struct fed_client *client, const struct fed_work *work,
                        struct fed_update *update, float *out)
{
    const bool is_private = *client->terms.dp != '\0';
    const bool equal = strcmp(client->terms.weighting, "equal") == 0;
    const double weight =
        equal ? 1 : (double)client->config.samples / (double)(work->most ? work->most : 1);
    float *extra = out + client->shape.updates;

    if (is_private) {
        const double norm = dp_clip(update->vector[0], client->length, work->clip);
        if (client->terms.clip_quantile > 0) /* the sum of bits gets the coordinator's noise */
            extra[SECURE_BIT] = dp_bit(norm, work->clip);
    } else {
        fill_extras(&update->tally, weight, extra);
    }
    extra[SECURE_WEIGHT] = (float)weight;
    for (int i = 0; i < SECURE_EXTRAS; i++)
        extra[i] *= (float)client->terms.range;
    for (size_t i = 0; i < client->length; i++)
        out[i] = (float)(weight * (double)update->vector[0][i]);
    if (update->n_vectors > 1)
        memcpy(out + client->length, update->vector[1], client->length * sizeof *out);
}

/* Sums over rows, as shares of the rows of the one that has most. */
static void fill_statistics(const struct fed_client *client, const struct fed_work *work,
                            const struct fed_update *update, float *out)
{
    const double most = (double)(work->most ? work->most : 1);

    for (size_t i = 0; i < update->length; i++)
        out[i] = (float)((double)update->vector[0][i] / most);
    out[client->shape.updates + SECURE_WEIGHT] = (float)client->terms.range;
}

/* Words of the ring, with this participant's share of the noise. Where privacy is asked for, values are rounded up or down by
 * chance, which like the noise comes from the round's secret, so that a vector that is made again is the same; else to the
 * nearest, so that the model depends on nobody's secret. */
static void encode(const struct fed_client *client, const float *vector, void *words)
{
    const struct secure_shape *shape = &client->shape;
    uint8_t key[SECAGG_SEED];
    struct noise source;

    secagg_client_derive(client->secagg, "rounding", key);
    noise_init(&source, key);
    (void)quantize_encode(&shape->quantize, vector, shape->config.count,
                          *client->terms.dp ? &source : NULL, words);
    noise_release(&source);
    if (shape->share.deviation == 0)
        return;
    secagg_client_derive(client->secagg, "noise", key);
    noise_init(&source, key);
    dp_share_add(&shape->share, shape->config.bits, &source, words, shape->updates);
    noise_release(&source);
}

enum status client_secure_train(struct fed_client *client, int64_t round,
                                const struct fed_work *work, struct fed_buffer *out)
{
    const size_t count = client->shape.config.count;
    struct fed_update update;
    float *vector = NULL;
    void *words = NULL;

    if (!client->secagg || round != client->secure_round)
        return FAIL(STATUS_MISMATCH, "round %lld, whose keys were never asked for",
                    (long long)round);
    if (*client->terms.dp && !(work->clip > 0))
        return FAIL(STATUS_MISMATCH, "the coordinator clips updates to %g", work->clip);
    if (client->shape.share.deviation > 0 && work->clip > client->terms.clip)
        return FAIL(STATUS_MISMATCH,
                    "the coordinator clips updates to %g, but noise is for the terms' %g",
                    work->clip, client->terms.clip);
    if (work->asks_statistics != client->secure_statistics)
        return FAIL(STATUS_MISMATCH, "the coordinator asks for %s, its keys were for %s",
                    work->asks_statistics ? "statistics" : "an update",
                    client->secure_statistics ? "statistics" : "an update");
    enum status status = work->asks_statistics ? client_sum_rows(client, &update)
                                               : client_make_update(client, work, &update);
    if (status == STATUS_OK)
        status = mem_alloc(count, sizeof *vector, &vector);
    if (status == STATUS_OK)
        status = mem_alloc(count, (size_t)client->shape.config.bits / 8, &words);
    if (status == STATUS_OK) {
        if (work->asks_statistics)
            fill_statistics(client, work, &update, vector);
        else
            fill_vector(client, work, &update, vector);
        encode(client, vector, words);
        status = secagg_client_answer(client->secagg, SECAGG_MASKED, work->secure,
                                      work->secure_length, words, NULL, out);
    }
    fed_update_release(&update);
    mem_free(vector);
    mem_free(words);
    return status;
}
