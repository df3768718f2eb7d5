/* SPDX-License-Identifier: MIT */
/* server_secure.c - rounds whose updates the coordinator sees the sum of alone. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "fed/secure.h"
#include "fed/server_state.h"

_Static_assert((int)FED_KEYS == (int)SECAGG_KEYS && (int)FED_SHARES == (int)SECAGG_SHARES &&
                   (int)FED_TRAIN == (int)SECAGG_MASKED &&
                   (int)FED_CONSISTENCY == (int)SECAGG_CONSISTENCY &&
                   (int)FED_UNMASK == (int)SECAGG_UNMASK,
               "stages have the same numbers");

enum status server_secure_shape(const struct fed_server *server, uint32_t participants,
                                struct secure_shape *out)
{
    const size_t updates = server_asks_statistics(server)
                               ? server->n_statistics
                               : (size_t)server->algorithm->n_vectors * server->length;

    return secure_shape(server->terms, server->terms_hash, (uint64_t)server->round,
                        participants, updates, out);
}

enum status server_begin_secure(struct fed_server *server)
{
    TRY(server_secure_shape(server, (uint32_t)server->n_cohort, &server->shape));
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
        const struct secure_keys keys = { (uint32_t)server->n_cohort,
                                          server_asks_statistics(server) };
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

/* The sum ----------------------------------------------------------------------------------------- */

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

/* Moves by a sum of `values`; divides it into `update` and, of control variates, the vector behind it. */
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

/* Sums over rows went as shares of the rows of the one that has most. */
static enum status take_secure_statistics(struct fed_server *server, const double *values)
{
    struct fed_work work;

    server_fill_work(server, &work);
    return server_take_statistics(server, values, (double)work.most);
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
        status = server_asks_statistics(server) ? take_secure_statistics(server, values)
                                                : move_by_sum(server, values, update);
    }
    mem_free(words);
    mem_free(values);
    mem_free(update);
    return status;
}

/* All are told the same to train from: their signatures say so. */
static enum status bind_training(struct fed_server *server)
{
    uint8_t told[SECAGG_BOUND];
    struct fed_work work;

    server_fill_work(server, &work);
    TRY(secure_work_hash(&work, told));
    secagg_server_bind(server->secagg, told);
    return STATUS_OK;
}

enum status server_secure_close(struct fed_server *server)
{
    const enum secagg_stage stage = secagg_server_stage(server->secagg);

    if (stage <= SECAGG_MASKED &&
        secagg_server_count(server->secagg, stage) < server->terms->minimum)
        return server_lose(server, "too few participants gave an update in time");
    const enum status status = secagg_server_close(server->secagg);
    if (status == STATUS_MISMATCH)
        return server_lose(server, status_message());
    TRY(status);
    if (secagg_server_stage(server->secagg) == SECAGG_STAGES)
        return end_secure(server);
    if (secagg_server_stage(server->secagg) == SECAGG_MASKED)
        TRY(bind_training(server));
    server->stage = (enum fed_stage)secagg_server_stage(server->secagg);
    server->stage_since = server->config.now(server->config.arg);
    return STATUS_OK;
}
