/* SPDX-License-Identifier: MIT */
/* server_secure.c - rounds whose updates the coordinator sees the sum of alone. */
#include <math.h>
#include <sodium.h>
#include <string.h>

#include "base/mem.h"
#include "fed/secure.h"
#include "fed/server_state.h"

_Static_assert((int)FED_KEYS == (int)SECAGG_KEYS && (int)FED_SHARES == (int)SECAGG_SHARES &&
                   (int)FED_TRAIN == (int)SECAGG_MASKED &&
                   (int)FED_CONSISTENCY == (int)SECAGG_CONSISTENCY &&
                   (int)FED_UNMASK == (int)SECAGG_UNMASK,
               "stages have the same numbers");

/* The kind of the round that runs, or comes next. */
static enum secure_asks what_is_asked(const struct fed_server *server)
{
    if (!server_asks_statistics(server))
        return SECURE_UPDATE;
    return server->ranges ? SECURE_SUMS : SECURE_RANGES;
}

enum status server_secure_shape(const struct fed_server *server, uint32_t participants,
                                struct secure_shape *out)
{
    struct fed_work work;
    uint8_t agreed[SECAGG_AGREED];

    server_fill_work(server, &work);
    const size_t updates = what_is_asked(server) == SECURE_UPDATE
                               ? (size_t)server->algorithm->n_vectors * server->length
                           : what_is_asked(server) == SECURE_RANGES
                               ? server->n_statistics * SECURE_EXPONENTS
                               : server->n_statistics;
    TRY(secure_work_hash(&work, agreed));
    return secure_shape(server->terms, server->terms_hash, (uint64_t)server->round,
                        participants, updates, agreed, out);
}

static void identify(const struct member *member, uint8_t id[COHORTS_ID])
{
    crypto_generichash(id, COHORTS_ID, (const uint8_t *)member->name, strlen(member->name),
                       NULL, 0);
}

enum status server_check_chosen(const struct fed_server *server, const bool *chosen)
{
    uint8_t(*ids)[COHORTS_ID];
    uint32_t n = 0;

    TRY(mem_alloc((size_t)server->n_members + 1, sizeof *ids, &ids));
    for (int i = 0, at = 0; i < server->n_members; i++) {
        if (server_is_live(server, &server->members[i]) && chosen[at++])
            identify(&server->members[i], ids[n++]);
    }
    const enum status status =
        secure_check_cohort(server->cohorts, what_is_asked(server), ids, n,
                            fed_terms_cohort_difference(server->terms));
    mem_free(ids);
    return status;
}

/* Those whose masked vectors are in the sum, as far as it has come. */
static uint32_t list_alive(const struct fed_server *server, uint8_t (*ids)[COHORTS_ID])
{
    uint32_t n = 0;

    for (int i = 0; i < server->n_cohort; i++) {
        if (secagg_server_has(server->secagg, (uint32_t)i, SECAGG_MASKED))
            identify(&server->members[server->cohort[i]], ids[n++]);
    }
    return n;
}

/* Where dropouts bring the set of those who gave too near to an earlier one, leaves out vectors
 * in reserve. */
static enum status choose_summed(struct fed_server *server, uint8_t (*ids)[COHORTS_ID])
{
    const enum secure_asks asks = what_is_asked(server);
    const uint32_t least = fed_terms_cohort_difference(server->terms);

    for (;;) {
        const uint32_t n = list_alive(server, ids);
        if (n < server->terms->minimum || n < server->shape.config.threshold)
            return FAIL(STATUS_MISMATCH,
                        "too few participants stay without those whose updates a difference "
                        "of sums would give away");
        const enum status status = secure_check_cohort(server->cohorts, asks, ids, n, least);
        if (status == STATUS_OK)
            return cohorts_add(server->cohorts, (uint8_t)asks, ids, n);
        if (status != STATUS_MISMATCH || !secagg_server_leave_out(server->secagg))
            return status;
    }
}

static enum status fix_cohort(struct fed_server *server)
{
    uint8_t(*ids)[COHORTS_ID];

    TRY(mem_alloc((size_t)server->n_cohort + 1, sizeof *ids, &ids));
    const enum status status = choose_summed(server, ids);
    mem_free(ids);
    return status;
}

enum status server_begin_secure(struct fed_server *server)
{
    TRY(server_secure_shape(server, (uint32_t)server->n_cohort, &server->shape));
    server->shape.config.reserve = fed_terms_cohort_difference(server->terms) - 1;
    return secagg_server_create(&server->shape.config, server->config.trust, &server->secagg);
}

/* The parameters go with secagg's own task. */
static enum status put_training(struct fed_server *server, const struct member *member,
                                struct fed_buffer *out)
{
    struct fed_buffer boxes;
    struct fed_work work;

    fed_buffer_init(&boxes, fed_server_message_limit(server));
    const enum status status =
        secagg_server_task(server->secagg, (uint32_t)member->place, &boxes);
    if (status == STATUS_OK) {
        server_fill_work(server, &work);
        work.secure = boxes.data;
        work.secure_length = boxes.length;
        fed_work_write(&work, out);
    }
    fed_buffer_release(&boxes);
    return status;
}

enum status server_secure_task(struct fed_server *server, const struct member *member,
                               struct fed_buffer *out)
{
    if (server->stage == FED_TRAIN)
        return put_training(server, member, out);
    if (server->stage == FED_KEYS) {
        struct secure_keys keys = { .participants = (uint32_t)server->n_cohort,
                                    .asks = what_is_asked(server) };
        memcpy(keys.agreed, server->shape.config.agreed, SECAGG_AGREED);
        secure_put_keys(out, &keys);
    }
    return secagg_server_task(server->secagg, (uint32_t)member->place, out);
}

bool server_secure_expects(const struct fed_server *server, const struct member *member)
{
    const uint32_t number = (uint32_t)member->place;
    const enum secagg_stage stage = secagg_server_stage(server->secagg);

    return (stage == SECAGG_KEYS || secagg_server_has(server->secagg, number, stage - 1)) &&
           !secagg_server_has(server->secagg, number, stage);
}

bool server_secure_has(const struct fed_server *server, const struct member *member,
                       enum fed_stage stage)
{
    return secagg_server_has(server->secagg, (uint32_t)member->place, (enum secagg_stage)stage);
}

enum status server_secure_hear(struct fed_server *server, const struct member *member,
                               enum fed_stage stage, const void *bytes, size_t length)
{
    return secagg_server_hear(server->secagg, (uint32_t)member->place, (enum secagg_stage)stage,
                              bytes, length);
}

bool server_secure_is_complete(const struct fed_server *server)
{
    const enum secagg_stage stage = secagg_server_stage(server->secagg);
    const uint32_t expected = stage == SECAGG_KEYS
                                  ? (uint32_t)server->n_cohort
                                  : secagg_server_count(server->secagg, stage - 1);

    return secagg_server_count(server->secagg, stage) == expected;
}

/* The sum
 * ----------------------------------------------------------------------------------------- */

/* Noise where it is due, and what it spends. */
static enum status make_private(struct fed_server *server, double *values, const double *extra,
                                int survivors, struct round_score *score)
{
    if (!*server->terms->dp)
        return STATUS_OK;
    score->clip = server->clip;
    if (server->dp.place == DP_CENTRAL)
        return server_add_noise(server, values, server->length, extra[SECURE_BIT], survivors);
    return server_spend(server, dp_share_multiplier(&server->shape.share, (uint32_t)survivors),
                        survivors);
}

static void read_extras(const double *extra, struct round_score *score)
{
    const double weight = extra[SECURE_WEIGHT], seen = extra[SECURE_VAL_SEEN];

    score->loss = SECURE_LOSS_MOST * extra[SECURE_LOSS] / weight;
    score->accuracy = extra[SECURE_ACCURACY] / weight;
    score->val_loss = seen > 0 ? SECURE_LOSS_MOST * extra[SECURE_VAL_LOSS] / seen : (double)NAN;
    score->val_accuracy = seen > 0 ? extra[SECURE_VAL_ACCURACY] / seen : (double)NAN;
}

static uint64_t samples_of_survivors(const struct fed_server *server)
{
    uint64_t samples = 0;

    for (int i = 0; i < server->n_cohort; i++) {
        if (secagg_server_has(server->secagg, (uint32_t)i, SECAGG_MASKED))
            samples += server->members[server->cohort[i]].samples;
    }
    return samples;
}

/* What the survivors' weights add up to: shares of the most samples, as each has told them. */
static double expected_weight(const struct fed_server *server, int survivors)
{
    double samples = 0;

    if (strcmp(server->terms->weighting, "equal") == 0)
        return survivors;
    for (int i = 0; i < server->n_cohort; i++) {
        if (secagg_server_has(server->secagg, (uint32_t)i, SECAGG_MASKED))
            samples += (double)fed_terms_samples(server->terms,
                                                 server->members[server->cohort[i]].samples);
    }
    return samples / (double)(server->most ? server->most : 1);
}

/* Weights add up to what is expected, norms are at most max_norm, times the weight; but for the
 * rounding to steps. */
static bool is_beyond(const struct fed_server *server, const double *values, double weight,
                      int survivors)
{
    const double step = survivors * server->shape.quantize.step / 2;
    const double most = server->terms->max_norm;
    const double rounding = 2 * step / server->terms->range + 1e-6 * survivors;
    double squares = 0;

    if (!(fabs(weight - expected_weight(server, survivors)) <= rounding))
        return true;
    if (most == 0 || *server->terms->dp)
        return false;
    for (size_t i = 0; i < server->length; i++)
        squares += values[i] * values[i];
    return !(sqrt(squares) <= 1.001 * weight * most + step * sqrt((double)server->length));
}

/* Of updates of which more is cut off, all together, nothing can be learned. */
static const double CUT_OFF_MOST = 0.5;

/* Moves by a sum of `values`; divides it into `update` and, of control variates, the vector
 * behind it. */
static enum status move_by_sum(struct fed_server *server, double *values, float *update)
{
    const int survivors = (int)secagg_server_count(server->secagg, SECAGG_MASKED);
    double extra[SECURE_EXTRAS];
    struct round_score score = { .participants = survivors,
                                 .samples = samples_of_survivors(server),
                                 .loss = NAN,
                                 .accuracy = NAN,
                                 .val_loss = NAN,
                                 .val_accuracy = NAN };

    for (int i = 0; i < SECURE_EXTRAS; i++) /* as shares of the range they went */
        extra[i] = values[server->shape.updates + (size_t)i] / server->terms->range;
    const enum status status = make_private(server, values, extra, survivors, &score);
    if (status == STATUS_MISMATCH) /* beyond what clipped updates add up to: somebody lied */
        return server_lose(server, status_message());
    TRY(status);
    if (!*server->terms->dp)
        read_extras(extra, &score);
    if (!*server->terms->dp)
        score.cut_off = extra[SECURE_CUT] / survivors;
    if (is_beyond(server, values, extra[SECURE_WEIGHT], survivors))
        return server_lose(server,
                           "the sum is beyond what updates within the terms add up to: a "
                           "participant lied");
    if (score.cut_off > CUT_OFF_MOST)
        return server_lose(server,
                           "most of the updates is beyond --range: training diverged, or the "
                           "range is too small");
    const double by = *server->terms->dp ? server->expected : extra[SECURE_WEIGHT];
    if (by <= 0)
        return server_lose(server, "the weights of those who gave something add up to nothing");
    for (size_t i = 0; i < server->shape.updates; i++)
        update[i] = (float)(values[i] / (i < server->length ? by : survivors));
    for (int i = 0; i < server->n_cohort; i++) {
        struct member *member = &server->members[server->cohort[i]];
        if (secagg_server_has(server->secagg, (uint32_t)i, SECAGG_MASKED))
            member->last_given = server->round;
    }
    return server_move(server, update, server->control ? update + server->length : NULL,
                       &score);
}

/* Sums over rows went as shares of their ranges, and of the rows of the one that has most. */
static enum status take_sums(struct fed_server *server, double *values)
{
    struct fed_work work;

    server_fill_work(server, &work);
    for (size_t i = 0; i < server->n_statistics; i++)
        values[i] *= (double)server->ranges[i] / server->terms->range;
    return server_take_statistics(server, values, (double)work.most);
}

static enum status take_ranges(struct fed_server *server, const void *words)
{
    float *ranges;

    TRY(mem_alloc(server->n_statistics, sizeof *ranges, &ranges));
    const enum status status =
        secure_take_ranges(words, server->n_statistics, server->shape.config.bits, ranges);
    if (status != STATUS_OK) {
        mem_free(ranges);
        return status == STATUS_MISMATCH ? server_lose(server, status_message()) : status;
    }
    server->ranges = ranges;
    TRY(server_audit(server, "", "has the ranges of %zu sums over rows", server->n_statistics));
    return server_commit(server, NULL, NULL);
}

static enum status end_secure(struct fed_server *server)
{
    const size_t count = server->shape.config.count;
    void *words = NULL;
    double *values = NULL;
    float *update = NULL;

    enum status status = mem_alloc(count, (size_t)server->shape.config.bits / 8, &words);
    if (status == STATUS_OK)
        status = mem_alloc(count, sizeof *values, &values);
    if (status == STATUS_OK)
        status = mem_alloc(count, sizeof *update, &update);
    if (status == STATUS_OK)
        status = secagg_server_sum(server->secagg, NULL, words);
    if (status == STATUS_MISMATCH) {
        status = server_lose(server, status_message());
    } else if (status == STATUS_OK) {
        quantize_decode(&server->shape.quantize, words, count, values);
        status = what_is_asked(server) == SECURE_UPDATE ? move_by_sum(server, values, update)
                 : what_is_asked(server) == SECURE_SUMS ? take_sums(server, values)
                                                        : take_ranges(server, words);
    }
    mem_free(words);
    mem_free(values);
    mem_free(update);
    return status;
}

enum status server_secure_close(struct fed_server *server)
{
    const enum secagg_stage stage = secagg_server_stage(server->secagg);

    if (stage <= SECAGG_MASKED &&
        secagg_server_count(server->secagg, stage) < server->terms->minimum)
        return server_lose(server, "too few participants gave an update in time");
    enum status status = stage == SECAGG_MASKED ? fix_cohort(server) : STATUS_OK;
    if (status == STATUS_OK)
        status = secagg_server_close(server->secagg);
    if (status == STATUS_MISMATCH)
        return server_lose(server, status_message());
    TRY(status);
    if (secagg_server_stage(server->secagg) == SECAGG_STAGES)
        return end_secure(server);
    server->stage = (enum fed_stage)secagg_server_stage(server->secagg);
    server->stage_since = server->config.now(server->config.arg);
    return STATUS_OK;
}
