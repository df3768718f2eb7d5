/* SPDX-License-Identifier: MIT */
/* client_secure.c - a participant's part of rounds whose updates nobody sees but as a sum. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "fed/client_state.h"

enum status client_secure_shape(struct fed_client *client)
{
    const size_t sums = client->trainer.statistics;
    const size_t updates = client->secure_asks == SECURE_UPDATE
                               ? (size_t)client->algorithm->n_vectors * client->length
                           : client->secure_asks == SECURE_RANGES ? sums * SECURE_EXPONENTS
                                                                  : sums;

    return secure_shape(&client->terms, client->terms_hash, (uint64_t)client->secure_round,
                        client->secure_participants, updates, client->secure_agreed,
                        &client->shape);
}

/* A new round has new secrets. */
static enum status begin(struct fed_client *client, int64_t round,
                         const struct secure_keys *keys)
{
    uint8_t seed[SECAGG_SEED];

    if (round == client->secure_round && client->secagg) {
        return keys->participants == client->secure_participants &&
                       keys->asks == client->secure_asks &&
                       memcmp(keys->agreed, client->secure_agreed, SECAGG_AGREED) == 0
                   ? STATUS_OK
                   : FAIL(STATUS_MISMATCH,
                          "the coordinator begins round %lld again with other participants, "
                          "another model or other settings",
                          (long long)round);
    }
    if (round <= client->secure_round)
        return FAIL(STATUS_MISMATCH, "the coordinator replays round %lld", (long long)round);
    secagg_client_destroy(client->secagg);
    client->secagg = NULL;
    client->secure_round = round;
    client->secure_participants = keys->participants;
    client->secure_asks = keys->asks;
    memcpy(client->secure_agreed, keys->agreed, SECAGG_AGREED);
    if (keys->asks != SECURE_UPDATE &&
        (!client->terms.standardize || !client->trainer.sum_rows))
        return FAIL(STATUS_MISMATCH, "the coordinator asks for statistics, which the terms do "
                                     "not say or the data here do not have");
    TRY(client_secure_shape(client));
    TRY(client->config.entropy(client->config.arg, seed, sizeof seed));
    return secagg_client_create(&client->shape.config, client->config.identity,
                                client->config.trust, seed, &client->secagg);
}

/* What came for this round cannot be answered, whoever is to blame: this participant has no
 * part in it. status_message() says why. */
static enum status leave(struct fed_client *client, int64_t round)
{
    log_line(LOG_WARNING, "round %lld is left: %s", (long long)round, status_message());
    client->left_round = round;
    return STATUS_OK;
}

/* Was a vector masked for this task? */
static bool has_given(const struct fed_client *client, const uint8_t task[SECAGG_AGREED])
{
    for (size_t at = 0; at < client->task_hashes.length; at += SECAGG_AGREED) {
        if (memcmp(client->task_hashes.data + at, task, SECAGG_AGREED) == 0)
            return true;
    }
    return false;
}

/* The set that was signed must not be too near to that of an earlier round. */
static enum status check_cohort(struct fed_client *client)
{
    uint8_t(*ids)[SECAGG_PUBLIC];

    _Static_assert((int)SECAGG_PUBLIC == (int)COHORTS_ID, "an identity is a public key");
    TRY(mem_alloc(client->secure_participants, sizeof *ids, &ids));
    const uint32_t n = secagg_client_alive(client->secagg, ids);
    enum status status = secure_check_cohort(client->cohorts, client->secure_asks, ids, n,
                                             fed_terms_cohort_difference(&client->terms));
    if (status == STATUS_OK)
        status = cohorts_add(client->cohorts, (uint8_t)client->secure_asks, ids, n);
    mem_free(ids);
    return status;
}

/* Boxes and keys are other participants': that one of them is bad must not end this process. */
static enum status answer_stage(struct fed_client *client, enum secagg_stage stage,
                                const void *task, size_t bytes, const void *words,
                                struct fed_buffer *out)
{
    const enum status status =
        secagg_client_answer(client->secagg, stage, task, bytes, words, NULL, out);

    return status == STATUS_MISMATCH || status == STATUS_CORRUPT
               ? leave(client, client->secure_round)
               : status;
}

enum status client_secure_answer(struct fed_client *client, const struct fed_message *message,
                                 struct fed_buffer *out)
{
    const uint8_t *task = message->payload;
    size_t bytes = message->payload_length;

    if (message->stage == FED_KEYS) {
        struct secure_keys keys;
        TRY(secure_take_keys(message->payload, message->payload_length, &keys, &task, &bytes));
        if ((int64_t)keys.participants < client->terms.minimum) {
            (void)FAIL(STATUS_MISMATCH,
                       "it has %u participants, the terms say at least %" PRId64,
                       keys.participants, client->terms.minimum);
            return leave(client, message->round);
        }
        if (message->round > client->secure_round && has_given(client, keys.agreed)) {
            (void)FAIL(STATUS_MISMATCH, "the coordinator asks a second time for an update that "
                                        "it was given in an earlier round");
            return leave(client, message->round);
        }
        TRY(begin(client, message->round, &keys));
    }
    if (!client->secagg || message->round != client->secure_round)
        return FAIL(STATUS_MISMATCH, "%s of round %lld, whose keys were never asked for",
                    fed_stage_name(message->stage), (long long)message->round);
    TRY(answer_stage(client, (enum secagg_stage)message->stage, task, bytes, NULL, out));
    if (message->stage != FED_CONSISTENCY || client->left_round == message->round)
        return STATUS_OK;
    const enum status status = check_cohort(client); /* before the signature goes out */
    return status == STATUS_MISMATCH ? leave(client, message->round) : status;
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

/* The largest share of an update's elements that a participant lets be cut off. */
static const double CUT_OFF_MOST = 0.1;

static double weight_of(const struct fed_client *client, const struct fed_work *work)
{
    if (strcmp(client->terms.weighting, "equal") == 0)
        return 1;
    return (double)fed_terms_samples(&client->terms, client->config.samples) /
           (double)(work->most ? work->most : 1);
}

/* The numbers that are no sums went as shares of 1. */
static void scale_extras(const struct fed_client *client, float *extra)
{
    for (int i = 0; i < SECURE_EXTRAS; i++)
        extra[i] *= (float)client->terms.range;
}

/* The vector that is summed, as secure.h has it. STATUS_MISMATCH: too much of it would be cut
 * off. What differential privacy clips may be cut off as well. */
static enum status fill_vector(const struct fed_client *client, const struct fed_work *work,
                               struct fed_update *update, float *out)
{
    const bool is_private = *client->terms.dp != '\0';
    const double weight = weight_of(client, work), range = client->terms.range;
    size_t cut = 0;
    float *extra = out + client->shape.updates;

    if (is_private) {
        const double norm = dp_clip(update->vector[0], client->length, work->clip);
        if (client->terms.clip_quantile > 0) /* the sum of bits gets the coordinator's noise */
            extra[SECURE_BIT] = dp_bit(norm, work->clip);
    } else {
        fill_extras(&update->tally, weight, extra);
    }
    for (size_t i = 0; i < client->length; i++)
        out[i] = (float)(weight * (double)update->vector[0][i]);
    if (update->n_vectors > 1)
        memcpy(out + client->length, update->vector[1], client->length * sizeof *out);
    for (size_t i = 0; i < client->shape.updates; i++)
        cut += !(fabs((double)out[i]) <= range);
    const double share = (double)cut / (double)client->shape.updates;
    if (share > CUT_OFF_MOST && !is_private)
        return FAIL(STATUS_MISMATCH,
                    "%.0f%% of the update's elements are beyond --range %g: training diverged, "
                    "or the range is too small",
                    100 * share, range);
    extra[SECURE_WEIGHT] = (float)weight;
    extra[SECURE_CUT] = is_private ? 0 : (float)share;
    scale_extras(client, extra);
    return STATUS_OK;
}

/* An update of zeros with its usual weight, all of it cut off. */
static void fill_zeros(const struct fed_client *client, const struct fed_work *work, float *out)
{
    const bool is_private = *client->terms.dp != '\0';
    const double weight = weight_of(client, work);
    float *extra = out + client->shape.updates;

    memset(out, 0, client->shape.config.count * sizeof *out);
    extra[SECURE_WEIGHT] = (float)weight;
    extra[SECURE_CUT] = is_private ? 0 : 1;
    extra[SECURE_LOSS] = is_private ? 0 : (float)weight; /* the most that can be told */
    if (is_private && client->terms.clip_quantile > 0)
        extra[SECURE_BIT] = dp_bit(0, work->clip);
    scale_extras(client, extra);
}

/* Trains. Whether training diverges depends on the data, and a coordinator may choose a model
 * that diverges for some data only: to leave the round would answer it, one participant at a
 * time. Zeros are in the sum like any other update. */
static enum status fill_update(struct fed_client *client, const struct fed_work *work,
                               struct fed_update *update, float *out)
{
    enum status status = client_make_update(client, work, update);

    if (status == STATUS_OK)
        status = fill_vector(client, work, update, out);
    if (status != STATUS_MISMATCH)
        return status;
    log_line(LOG_WARNING, "round %lld: an update of zeros is given: %s",
             (long long)client->secure_round, status_message());
    mem_free(client->new_control);
    client->new_control = NULL;
    fill_zeros(client, work, out);
    return STATUS_OK;
}

/* Sums over rows, as shares of the rows of the one that has most; where ranges are known, as
 * shares of these. */
static enum status fill_statistics(struct fed_client *client, const struct fed_work *work,
                                   struct fed_update *update, float *out)
{
    const double most = (double)(work->most ? work->most : 1);

    TRY(client_sum_rows(client, update));
    float *sums = update->vector[0];
    out[client->shape.updates + SECURE_WEIGHT] = (float)client->terms.range;
    for (size_t i = 0; i < update->length; i++)
        sums[i] = (float)((double)sums[i] / most);
    if (client->secure_asks == SECURE_RANGES)
        return STATUS_OK;
    if (work->n_statistics != update->length)
        return FAIL(STATUS_MISMATCH, "the coordinator has %zu ranges, the data here %zu sums",
                    work->n_statistics, update->length);
    for (size_t i = 0; i < update->length; i++) {
        const double share = (double)sums[i] / (double)work->statistics[i];
        if (!(fabs(share) <= 1))
            return FAIL(
                STATUS_MISMATCH,
                "a sum over the rows here is beyond the range that was agreed on before "
                "these data took part: the round goes on without them");
        out[i] = (float)(share * client->terms.range);
    }
    return STATUS_OK;
}

/* Words for ranges, over those that stand for the vector before the extras. */
static enum status put_ranges(const struct fed_client *client, const struct fed_update *update,
                              void *words)
{
    uint8_t key[SECAGG_SEED];
    struct noise source;

    secagg_client_derive(client->secagg, "ranges", key);
    noise_init(&source, key);
    const enum status status = secure_put_ranges(update->vector[0], update->length,
                                                 client->shape.config.bits, &source, words);
    noise_release(&source);
    return status;
}

/* Words of the ring, with this participant's share of the noise. Where privacy is asked for,
 * values are rounded up or down by chance, which like the noise comes from the round's secret,
 * so that a vector that is made again is the same; else to the nearest, so that the model
 * depends on nobody's secret. */
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

static bool is_power_of_two(double number)
{
    int exponent;

    return frexp(number, &exponent) == 0.5;
}

/* A participant whose sums are beyond a range leaves the round, which is seen: that must tell no
 * more of them than a power of two. */
static enum status check_scales(const struct fed_work *work)
{
    bool is_fine = work->most > 0 && (work->most & (work->most - 1)) == 0;

    for (size_t i = 0; i < work->n_statistics; i++)
        is_fine &= is_power_of_two((double)work->statistics[i]);
    return is_fine
               ? STATUS_OK
               : FAIL(STATUS_MISMATCH,
                      "the coordinator asks for sums over rows in ranges that are no powers "
                      "of two, by which it would learn single sums: do not trust it");
}

enum status client_secure_train(struct fed_client *client, int64_t round,
                                const struct fed_work *work, struct fed_buffer *out)
{
    const size_t count = client->shape.config.count;
    uint8_t hash[SECAGG_AGREED];
    struct fed_update update = { 0 };
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
    if (secure_asks(work) != client->secure_asks)
        return FAIL(STATUS_MISMATCH, "the coordinator asks for %s, its keys were for %s",
                    work->asks_statistics ? "statistics" : "an update",
                    client->secure_asks != SECURE_UPDATE ? "statistics" : "an update");
    if (work->most < fed_terms_samples(&client->terms, client->config.samples))
        return FAIL(STATUS_MISMATCH,
                    "the coordinator says that nobody has more than %" PRIu64
                    " samples, here are %" PRIu64,
                    work->most, client->config.samples);
    if (work->asks_statistics)
        TRY(check_scales(work));
    TRY(secure_work_hash(work, hash));
    if (memcmp(hash, client->secure_agreed, SECAGG_AGREED) != 0)
        return FAIL(STATUS_MISMATCH,
                    "the coordinator sends another model or other settings than it announced "
                    "for round %lld and all participants signed: do not trust it",
                    (long long)round);
    TRY(client_standardize(client, work));
    enum status status = mem_alloc(count, sizeof *vector, &vector);
    if (status == STATUS_OK)
        status = mem_alloc(count, (size_t)client->shape.config.bits / 8, &words);
    if (status == STATUS_OK)
        status = work->asks_statistics ? fill_statistics(client, work, &update, vector)
                                       : fill_update(client, work, &update, vector);
    if (status == STATUS_OK)
        encode(client, vector, words);
    if (status == STATUS_OK && client->secure_asks == SECURE_RANGES)
        status = put_ranges(client, &update, words);
    if (status == STATUS_OK)
        status =
            answer_stage(client, SECAGG_MASKED, work->secure, work->secure_length, words, out);
    else if (status == STATUS_MISMATCH)
        status = leave(client, round);
    if (status == STATUS_OK && !has_given(client, hash))
        fed_put(&client->task_hashes, hash, sizeof hash);
    fed_update_release(&update);
    mem_free(vector);
    mem_free(words);
    return status;
}
