/* SPDX-License-Identifier: MIT */
/* rounds_secure_test.c - rounds of which the sum alone is seen: what they come to, and whom participants do not trust. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "fed/rounds_testing.h"
#include "fed/secure.h"
#include "fed/server_state.h"

static void test_secure_is_plain_within_steps(void)
{
    for (int scaffold = 0; scaffold < 2; scaffold++) {
        float plain = 0;
        for (int secure = 0; secure < 2; secure++) {
            struct federation federation;
            struct fed_terms terms;
            federation_terms(&terms);
            snprintf(terms.algorithm, sizeof terms.algorithm, "%s",
                     scaffold ? "scaffold" : "fedavg");
            terms.secure = secure;
            federation_begin(&federation, &terms, 6);
            federation_run(&federation);
            if (secure)
                CHECK_CLOSE(plain, federation_parameter(&federation), 1e-5);
            plain = federation_parameter(&federation);
            federation_end(&federation);
        }
    }
}

/* Whoever drops out at whatever stage: the others' sum is there. */
static void test_secure_dropouts(void)
{
    for (int stage = 0; stage < FED_STAGES; stage++) {
        struct federation federation;
        struct fed_terms terms;
        federation_terms(&terms);
        terms.secure = true;
        terms.deadline_s = 5;
        terms.rounds = 1;
        federation_begin(&federation, &terms, 5);
        for (int turn = 0; turn < 200 && !fed_server_is_done(federation.server); turn++) {
            for (int i = 0; i < 5; i++) {
                (void)federation_post(&federation, i);
                federation.tested[2].is_silent |=
                    i == 2 && turn >= 2 * stage; /* a stage is an ask and a give */
            }
            federation.now += 1;
            CHECK_OK(fed_server_tick(federation.server));
        }
        CHECK(fed_server_is_done(federation.server));
        CHECK_INT(1, fed_server_round(federation.server));
        const double all = rounds_expected(0, 1, 5, false);
        const double without = (1 * 1 + 2 * 2 + 4 * 4 + 5 * 5) / 12.0 / 4;
        const double expected = stage > (int)FED_TRAIN ? all : without;
        CHECK_CLOSE(expected, federation_parameter(&federation), 1e-5);
        federation_end(&federation);
    }
}

/* A coordinator that asks for an update in the clear where terms say secure rounds, or goes back. */
static void test_clients_refuse(void)
{
    struct federation federation;
    struct fed_terms terms;
    struct fed_buffer payload, reply;
    struct fed_step step;
    float vector[TESTED_LENGTH] = { 0 };

    federation_terms(&terms);
    terms.secure = true;
    federation_begin(&federation, &terms, 4);
    const struct fed_work work = {
        .lr = 1, .n_vectors = 1, .vector = { vector }, .length = TESTED_LENGTH
    };
    fed_buffer_init(&payload, 1 << 16);
    fed_buffer_init(&reply, 1 << 16);
    fed_work_write(&work, &payload);
    const struct fed_message task = { .type = FED_TASK,
                                      .stage = FED_TRAIN,
                                      .payload = payload.data,
                                      .payload_length = payload.length };
    fed_message_write(&task, &reply);
    struct fed_client *client = federation.tested[0].client;
    CHECK_OK(fed_client_next(client, &step));
    CHECK_STATUS(STATUS_MISMATCH, fed_client_reply(client, reply.data, reply.length));
    CHECK_MESSAGE("in the clear");
    federation_run(&federation);
    fed_buffer_clear(&reply); /* a round that was */
    fed_message_write(&task, &reply);
    CHECK_OK(fed_client_next(client, &step));
    while (step.what != FED_SEND)
        CHECK_OK(fed_client_next(client, &step));
    CHECK_STATUS(STATUS_MISMATCH, fed_client_reply(client, reply.data, reply.length));
    CHECK_MESSAGE("goes back");
    fed_buffer_release(&payload);
    fed_buffer_release(&reply);
    federation_end(&federation);
}

static void lie_about_most(struct fed_work *work)
{
    work->most = 0;
}

static void lie_about_rate(struct fed_work *work)
{
    work->lr = 1e-30;
}

/* Weights of a secure round are shares of what the largest member has; if it has less then, the round still has one scale. */
static void test_data_that_change_in_a_round_do_not_stop_it(void)
{
    struct federation federation;
    struct fed_terms terms;

    for (int turns = 1; turns < 8; turns++) {
        federation_terms(&terms);
        terms.secure = true;
        federation_begin(&federation, &terms, 4);
        for (int i = 0; i < turns; i++)
            federation_turn(&federation);
        federation.tested[3].lost = 2;
        federation_restart_client(&federation, 3);
        federation_run(&federation);
        federation_end(&federation);
    }
}

/* A weight above 1, and a rate that makes an update of nothing. */
static void test_numbers_that_cannot_be_are_refused(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    federation_begin(&federation, &terms, 4);
    CHECK_STATUS(STATUS_MISMATCH, federation_take_lie(&federation, lie_about_most));
    CHECK_MESSAGE("nobody has more than 0");
    CHECK_STATUS(STATUS_MISMATCH, federation_take_lie(&federation, lie_about_rate));
    CHECK_MESSAGE("the rate 1e-30");
    federation_end(&federation);
    federation_terms(&terms);
    terms.lr_decay = 0.9;
    federation_begin(&federation, &terms, 4);
    federation_run(&federation); /* rates that the terms do have */
    federation_end(&federation);
}

static void lie_about_rows(struct fed_work *work)
{
    work->most = UINT64_C(1) << 63; /* its vector becomes nothing */
}

/* Weights so large that no unit is active: an update of zeros, so that the sum would be the others' alone. */
static void lie_about_model(struct fed_work *work)
{
    for (size_t i = 0; i < work->length; i++)
        work->vector[0][i] = 1e30F;
}

/* All have signed keys for one task of training; who is then sent another one gives nothing. */
static void test_another_task_than_announced_is_refused(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    terms.rounds = 1;
    terms.deadline_s = 5;
    federation_begin(&federation, &terms, 4);
    CHECK_STATUS(STATUS_MISMATCH, federation_take_lie(&federation, lie_about_rows));
    CHECK_MESSAGE("another model or other settings than it announced");
    CHECK_STATUS(STATUS_MISMATCH, federation_take_lie(&federation, lie_about_model));
    CHECK_MESSAGE("another model or other settings than it announced");
    federation_run(&federation); /* it may still give what was announced */
    CHECK_CLOSE(rounds_expected(0, 1, 4, false), federation_parameter(&federation), 1e-5);
    federation_end(&federation);
}

/* Secure rounds of fewer than the terms say are not taken part in; of those that are, enough must give. */
static void test_secure_minimum(void)
{
    static const struct secure_keys few = { .participants = 2 };
    struct federation federation;
    struct fed_terms terms;
    struct fed_buffer payload, reply;
    struct fed_step step;

    federation_terms(&terms);
    terms.secure = true;
    terms.minimum = 5;
    terms.deadline_s = 5;
    terms.rounds = 1;
    federation_begin(&federation, &terms, 5);
    struct fed_client *client = federation.tested[0].client;
    fed_buffer_init(&payload, 1 << 16);
    fed_buffer_init(&reply, 1 << 16);
    secure_put_keys(&payload, &few);
    for (uint32_t i = 0; i < 3; i++) /* number, participants, threshold */
        fed_put_u32(&payload, i ? 2 : 0);
    fed_message_write(&(struct fed_message){ .type = FED_TASK,
                                             .stage = FED_KEYS,
                                             .payload = payload.data,
                                             .payload_length = payload.length },
                      &reply);
    CHECK_OK(fed_client_next(client, &step));
    CHECK_OK(fed_client_reply(client, reply.data, reply.length));
    CHECK_OK(fed_client_next(client, &step));
    CHECK_INT(FED_SLEEP, step.what);
    fed_buffer_release(&payload);
    fed_buffer_release(&reply);
    federation_run(&federation); /* the round that was left is lost, the next is not */
    CHECK_INT(2, fed_server_round(federation.server));
    CHECK_CLOSE(rounds_expected(0, 1, 5, false), federation_parameter(&federation), 1e-5);
    federation_end(&federation);
}

/* Participant 3 seals nonsense for participant 2, which leaves the round and is there in the next. */
static void test_a_bad_participant_ends_nobody_else(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    terms.cohort_difference = 1;
    terms.deadline_s = 5;
    terms.rounds = 2;
    federation_begin(&federation, &terms, 4);
    for (int turn = 0; turn < 3; turn++) { /* keys, and the task of shares */
        federation_turn(&federation);
    }
    struct fed_client *bad = federation.tested[3].client;
    struct fed_message message, answer;
    struct fed_step step;
    uint8_t bytes[4096];
    CHECK_OK(fed_client_next(bad, &step));
    CHECK_OK(fed_message_read(step.message, step.length, &message));
    CHECK(message.type == FED_GIVE && message.stage == FED_SHARES &&
          message.payload_length < sizeof bytes);
    memcpy(bytes, message.payload, message.payload_length);
    bytes[message.payload_length - 1] ^= 1; /* the last box is for participant 2 */
    message.payload = bytes;
    federation_post_as(&federation, "p03", &message, &answer);
    CHECK_INT(FED_OK, answer.type);
    const struct fed_message ok = { .type = FED_OK };
    struct fed_buffer reply;
    fed_buffer_init(&reply, 256);
    fed_message_write(&ok, &reply);
    CHECK_OK(fed_client_reply(bad, reply.data, reply.length));
    fed_buffer_release(&reply);
    federation_run(&federation);
    CHECK_INT(2, fed_server_round(federation.server));
    const double first = (1 * 1 + 2 * 2 + 4 * 4) / 7.0 / 4;
    CHECK_CLOSE(rounds_expected(first, 1, 4, false), federation_parameter(&federation), 1e-5);
    federation_end(&federation);
}

/* A threshold of 2 suits rounds of 3: four wait, and the store is as good as before. */
static void test_secure_rounds_that_cannot_be(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    terms.threshold = 2;
    terms.minimum = 3;
    federation_begin(&federation, &terms, 4);
    for (int i = 0; i < 5; i++)
        federation_turn(&federation);
    federation_restart_server(&federation);
    for (int i = 0; i < 5; i++)
        federation_turn(&federation);
    CHECK_INT(0, fed_server_round(federation.server));
    CHECK_INT(
        2, federation_audited(&federation, "waits: a threshold of 2 of 4")); /* once a start */
    CHECK_INT(0, federation_audited(&federation, "begins"));
    federation.tested[3].is_silent = true;
    federation.now += 100; /* it is gone */
    federation_run(&federation);
    CHECK_CLOSE(rounds_expected(0, 3, 3, false), federation_parameter(&federation), 1e-5);
    federation_end(&federation);
}

/* Three of four give: enough for the threshold, but not for the minimum. */
static void test_secure_rounds_need_the_minimum(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    terms.minimum = 4;
    terms.deadline_s = 5;
    federation_begin(&federation, &terms, 4);
    CHECK_INT(FED_TASK, federation_post(&federation, 0));
    federation.tested[3].is_silent = true;
    for (int i = 0; i < 8; i++)
        federation_turn(&federation);
    CHECK_INT(1, fed_server_round(federation.server));
    CHECK_INT(1, federation_audited(&federation, "lost: too few"));
    CHECK(federation_parameter(&federation) == 0);
    federation_end(&federation);
}

/* Participant `number` is there until the round has its keys and shares, then never again. */
static void drop_out(struct federation *federation, int number)
{
    const int64_t round = fed_server_round(federation->server);

    for (int i = 0; i < 5 && fed_server_round(federation->server) == round; i++)
        federation_turn(federation);
    federation->tested[number].is_silent = true;
}

/* One drops out after a round of all: of the rest, one more is left out, so that the sums differ by two. */
static void test_sums_differ_by_more_than_one(void)
{
    for (int restart = 0; restart < 2; restart++) {
        struct federation federation;
        struct fed_terms terms;

        federation_terms(&terms);
        terms.secure = true;
        terms.deadline_s = 5;
        terms.threshold = 3;
        terms.minimum = 3;
        terms.rounds = 3;
        federation_begin(&federation, &terms, 5);
        while (fed_server_done(federation.server) == 0)
            federation_turn(&federation);
        drop_out(&federation, 4);
        if (restart) { /* the record of sums is kept */
            federation_restart_server(&federation);
            for (int i = 0; i < 4; i++)
                federation_restart_client(&federation, i);
        }
        federation_run(&federation);
        CHECK_INT(3, fed_server_round(federation.server));
        CHECK_INT(2, federation_metrics(&federation, "\"participants\": 3"));
        CHECK_INT(1, federation_metrics(&federation, "\"participants\": 5"));
        federation_end(&federation);
    }
}

/* A coordinator that does not heed its terms: no participant signs a set that differs by one, so nothing is unmasked. */
static void test_participants_refuse_near_sums(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    terms.deadline_s = 5;
    terms.threshold = terms.minimum = 3;
    federation_begin(&federation, &terms, 5);
    federation.terms.cohort_difference = 1; /* its own, after the participants read them */
    while (fed_server_done(federation.server) == 0)
        federation_turn(&federation);
    const float before = federation_parameter(&federation);
    drop_out(&federation, 4);
    for (int i = 0; i < 60; i++)
        federation_turn(&federation);
    CHECK_INT(1, fed_server_done(federation.server));
    CHECK(federation_audited(&federation, "is lost") > 0);
    CHECK(federation_parameter(&federation) == before);
    federation.tested[4].is_silent = false;
    federation_run(&federation); /* with all of them it goes on */
    federation_end(&federation);
}

/* The coordinator names a federation. A new name does not make participants forget the sums that
 * they signed, or it would subtract a sum of four from one of five. */
static void test_another_federation_takes_no_near_sums(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    terms.deadline_s = 5;
    terms.threshold = terms.minimum = 3;
    terms.rounds = 1;
    federation_begin(&federation, &terms, 5);
    federation_run(&federation);
    federation_begin_another(&federation, "another");
    for (int i = 0; i < 4; i++)
        CHECK_OK(federation_come_back(&federation, i));
    federation.terms.cohort_difference = 1; /* its own, after the participants read them */
    federation.tested[4].is_silent = true;
    for (int i = 0; i < 60 && federation_audited(&federation, "is lost") < 2; i++)
        federation_turn(&federation);
    CHECK_INT(2, federation_audited(&federation, "is lost"));
    CHECK_INT(0, fed_server_done(federation.server));
    federation.tested[4].is_silent = false;
    CHECK_OK(federation_come_back(&federation, 4));
    federation_run(&federation); /* with all of them it goes on */
    federation_end(&federation);
}

/* A participant that begins again takes no other terms of a federation than those it knows. */
static void test_terms_do_not_change_by_a_restart(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    federation_begin(&federation, &terms, 4);
    while (fed_server_done(federation.server) == 0)
        federation_turn(&federation);
    federation.terms.cohort_difference = 1;
    federation_restart_server(&federation);
    CHECK_STATUS(STATUS_MISMATCH, federation_come_back(&federation, 0));
    CHECK_MESSAGE("other terms than");
    federation.terms.cohort_difference = 0;
    federation_restart_server(&federation);
    for (int i = 0; i < 4; i++)
        CHECK_OK(federation_come_back(&federation, i));
    federation_run(&federation);
    federation_end(&federation);
}

/* The task of a round that was given, as one of a later round. */
static void test_a_repeated_task_is_refused(void)
{
    struct federation federation;
    struct fed_terms terms;
    struct fed_message message;
    struct fed_buffer keys, reply;
    struct fed_step step;

    federation_terms(&terms);
    terms.secure = true;
    terms.rounds = 2;
    federation_begin(&federation, &terms, 4);
    struct fed_client *client = federation.tested[0].client;
    fed_buffer_init(&keys, 1 << 16);
    fed_buffer_init(&reply, 1 << 16);
    CHECK_OK(fed_client_next(client, &step));
    CHECK_OK(fed_server_answer(federation.server, "p00", step.message, step.length, &keys));
    CHECK_OK(fed_message_read(keys.data, keys.length, &message));
    CHECK(message.type == FED_TASK && message.stage == FED_KEYS);
    CHECK_OK(fed_client_reply(client, keys.data, keys.length));
    while (fed_server_done(federation.server) == 0)
        federation_turn(&federation);
    do {
        CHECK_OK(fed_client_next(client, &step));
    } while (step.what != FED_SEND);
    message.round = 7;
    fed_message_write(&message, &reply);
    CHECK_OK(fed_client_reply(client, reply.data, reply.length));
    CHECK_MESSAGE("an update that it was given in an earlier round");
    CHECK_OK(fed_client_next(client, &step));
    CHECK_INT(FED_SLEEP, step.what);
    fed_buffer_release(&keys);
    fed_buffer_release(&reply);
    federation_end(&federation);
}

/* Asks a participant for the keys of a round whose task has the hash that begins with `first`.
 * Returns what it does then. */
static enum fed_do ask_for_keys(struct fed_client *client, struct fed_message *message,
                                int64_t round, uint8_t first, enum status expected)
{
    uint8_t bytes[256];
    struct fed_buffer reply;
    struct fed_step step;

    do {
        CHECK_OK(fed_client_next(client, &step));
    } while (step.what != FED_SEND);
    CHECK(message->payload_length <= sizeof bytes);
    memcpy(bytes, message->payload, message->payload_length);
    bytes[5] = first; /* behind participants and what is asked */
    const struct fed_message asks = { .type = FED_TASK,
                                      .stage = FED_KEYS,
                                      .round = round,
                                      .payload = bytes,
                                      .payload_length = message->payload_length };
    fed_buffer_init(&reply, 1 << 16);
    fed_message_write(&asks, &reply);
    CHECK_STATUS(expected, fed_client_reply(client, reply.data, reply.length));
    fed_buffer_release(&reply);
    CHECK_OK(fed_client_next(client, &step));
    return step.what;
}

/* Whom it believed in a round that was begun may have been revoked since. */
static void test_a_peer_that_is_revoked_stops_no_restart(void)
{
    struct federation federation;
    struct fed_terms terms;
    struct fed_message message;
    struct fed_buffer reply;

    federation_terms(&terms);
    terms.secure = true;
    terms.deadline_s = 5;
    terms.rounds = 2;
    terms.cohort_difference = 1;
    federation_begin(&federation, &terms, 4);
    fed_buffer_init(&reply, 1 << 16);
    federation_reach_training(&federation, &reply, &message);
    federation.n = 3; /* the last is nobody now */
    CHECK_OK(federation_come_back(&federation, 0));
    CHECK_MESSAGE("nobody of that name");
    federation.n = 4;
    federation_run(&federation); /* without it, then with all */
    CHECK_INT(1, federation_metrics(&federation, "\"participants\": 3"));
    CHECK_INT(1, federation_metrics(&federation, "\"participants\": 4"));
    fed_buffer_release(&reply);
    federation_end(&federation);
}

/* What was given is known after a restart; a round that was left stays left, and one that was
 * begun is not begun again with another task. */
static void test_a_restart_forgets_no_task(void)
{
    static const struct fed_message ok = { .type = FED_OK };
    struct federation federation;
    struct fed_terms terms;
    struct fed_message message;
    struct fed_buffer keys, reply;
    struct fed_step step;

    federation_terms(&terms);
    terms.secure = true;
    terms.rounds = 1;
    federation_begin(&federation, &terms, 4);
    fed_buffer_init(&keys, 1 << 16);
    fed_buffer_init(&reply, 1 << 16);
    CHECK_OK(fed_client_next(federation.tested[0].client, &step));
    CHECK_OK(fed_server_answer(federation.server, "p00", step.message, step.length, &keys));
    CHECK_OK(fed_message_read(keys.data, keys.length, &message));
    CHECK(message.type == FED_TASK && message.stage == FED_KEYS);
    CHECK_OK(fed_client_reply(federation.tested[0].client, keys.data, keys.length));
    while (fed_server_done(federation.server) == 0)
        federation_turn(&federation);
    CHECK_OK(federation_come_back(&federation, 0));
    const uint8_t given = message.payload[5], other = given ^ 1;
    struct fed_client *client = federation.tested[0].client;
    CHECK_INT(FED_SLEEP, ask_for_keys(client, &message, 7, given, STATUS_OK));
    CHECK_MESSAGE("an update that it was given in an earlier round");
    CHECK_INT(FED_SLEEP, ask_for_keys(client, &message, 7, other, STATUS_OK));
    CHECK_INT(FED_SEND, ask_for_keys(client, &message, 8, other, STATUS_OK));
    fed_message_write(&ok, &reply);
    CHECK_OK(fed_client_reply(client, reply.data, reply.length));
    (void)ask_for_keys(client, &message, 8, given ^ 2, STATUS_MISMATCH);
    fed_buffer_release(&keys);
    fed_buffer_release(&reply);
    federation_end(&federation);
}

/* Elements beyond the range are cut off; the share is told, and a participant gives nothing of which much would be. */
static void test_what_is_cut_off_is_told(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    terms.rounds = 1;
    terms.deadline_s = 5;
    federation_begin(&federation, &terms, 4);
    federation.tested[2].n_lies = 1;
    federation.tested[2].lie = 1e6F;
    federation_run(&federation);
    CHECK_INT(1, federation_metrics(&federation, "\"cut_off\": 0.0"));
    federation_end(&federation);

    federation_terms(&terms);
    terms.secure = true;
    terms.range = 0.01;
    terms.deadline_s = 5;
    federation_begin(&federation, &terms, 4);
    for (int i = 0; i < 40; i++)
        federation_turn(&federation);
    CHECK_INT(0, fed_server_done(federation.server));
    CHECK(federation_audited(&federation, "is lost") > 0);
    federation_end(&federation);
}

static void begin_statistics(struct federation *federation, int n)
{
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = terms.standardize = true;
    terms.deadline_s = 5;
    federation_begin(federation, &terms, n);
}

/* What the next task of training says to participant 0. */
static enum status take_training(struct federation *federation)
{
    struct fed_message message;
    struct fed_buffer reply;

    fed_buffer_init(&reply, 1 << 16);
    federation_reach_training(federation, &reply, &message);
    const enum status status =
        fed_client_reply(federation->tested[0].client, reply.data, reply.length);
    fed_buffer_release(&reply);
    return status;
}

/* A participant that keeps the statistics of an earlier round would make its update of other
 * data than all have signed: with columns scaled to nothing in a round that is then lost, the
 * updates of all but one are zero in the next. */
static void test_statistics_do_not_change(void)
{
    struct federation federation;

    begin_statistics(&federation, 4);
    while (fed_server_done(federation.server) == 0)
        federation_turn(&federation);
    const float before = federation.tested[0].statistics[1];
    federation.server->statistics[1] *= 1e6F; /* announced to all alike */
    CHECK_STATUS(STATUS_MISMATCH, take_training(&federation));
    CHECK_MESSAGE("other statistics than before");
    CHECK(federation.tested[0].statistics[1] == before);
    federation_restart_client(&federation, 0); /* one that begins again has none yet */
    CHECK_OK(take_training(&federation));
    CHECK(federation.tested[0].statistics[1] == federation.server->statistics[1]);
    federation_end(&federation);

    begin_statistics(&federation, 4);
    while (fed_server_done(federation.server) == 0)
        federation_turn(&federation);
    float *statistics = federation.server->statistics;
    federation.server->statistics = NULL;
    federation.server->n_statistics = 0;
    CHECK_STATUS(STATUS_MISMATCH, take_training(&federation));
    CHECK_MESSAGE("other statistics than before");
    federation.server->statistics = statistics;
    federation.server->n_statistics = TESTED_STATISTICS;
    federation_end(&federation);
}

/* Goes on until the coordinator has these numbers, and to no next round; or for a while. */
static void reach(struct federation *federation, float *const *numbers)
{
    const int n = federation->n;

    for (int i = 0; i < 100 * n && !*numbers; i++) {
        (void)federation_post(federation, i % n);
        if (i % n != n - 1 || *numbers)
            continue;
        federation->now += 1;
        CHECK_OK(fed_server_tick(federation->server));
    }
}

/* Sums over rows are the same numbers in every round. Five sums over four participants each, which
 * differ by two, are five equations for five unknown ones, and each participant is in four. */
static void test_statistics_are_not_solved_for(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = terms.standardize = true;
    terms.deadline_s = 5;
    terms.threshold = terms.minimum = 4;
    federation_begin(&federation, &terms, 5);
    const struct fed_server *server = federation.server;
    for (int without = 0; without < 2; without++) {
        federation.tested[without].is_silent = true;
        federation.now += 100; /* it is gone */
        reach(&federation, &server->statistics);
        CHECK((server->statistics != NULL) == (without == 0));
        federation.tested[without].is_silent = false;
        mem_free(server->statistics); /* it asks again, and forgets what it asked for */
        federation.server->statistics = NULL;
        cohorts_destroy(server->cohorts);
        CHECK_OK(cohorts_create(&federation.server->cohorts));
    }
    federation_end(&federation);
}

static void lie_about_scale(struct fed_work *work)
{
    work->most = 5;
}

/* A participant whose sum is beyond its range gives nothing, and that is seen. With ranges, or a
 * scale, of its own choice the coordinator would find any sum of any participant by halving. */
static void test_ranges_are_powers_of_two(void)
{
    struct federation federation;

    begin_statistics(&federation, 4);
    reach(&federation, &federation.server->ranges);
    CHECK(federation.server->ranges && !federation.server->is_running);
    const float range = federation.server->ranges[1];
    federation.server->ranges[1] = 1.5F * range; /* announced to all alike */
    CHECK_STATUS(STATUS_MISMATCH, take_training(&federation));
    CHECK_MESSAGE("no powers of two");
    federation.server->ranges[1] = range;
    CHECK_STATUS(STATUS_MISMATCH, federation_take_lie(&federation, lie_about_scale));
    CHECK_MESSAGE("no powers of two");
    federation_end(&federation);
}

/* Nor does it find anything else by whether a participant gives an update: one whose training
 * diverges gives zeros, and the sum tells that there was one. */
static void test_nobody_is_seen_to_diverge(void)
{
    struct federation federation;
    struct fed_terms terms;

    for (int diverges = 0; diverges < 2; diverges++) {
        federation_terms(&terms);
        terms.secure = true;
        terms.rounds = 1;
        terms.deadline_s = 5;
        federation_begin(&federation, &terms, 4);
        federation.tested[3].n_lies = TESTED_LENGTH;
        federation.tested[3].lie = 1e30F;
        federation.tested[3].fails = diverges;
        federation_run(&federation);
        CHECK_INT(0, federation_audited(&federation, "is lost"));
        CHECK_INT(1, federation_metrics(&federation, "\"participants\": 4"));
        CHECK_INT(1, federation_metrics(&federation, "\"cut_off\": 0.25"));
        CHECK_CLOSE((1 * 1 + 2 * 2 + 3 * 3) / 4.0 / 10, federation_parameter(&federation),
                    1e-5);
        federation_end(&federation);
    }
}

/* A sum beyond what clipped updates add up to. */
static void test_sums_beyond_the_terms_are_lost(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    federation_begin(&federation, &terms, 4);
    federation.terms.max_norm = 1e-3; /* the participants do not know it */
    for (int i = 0; i < 20; i++)
        federation_turn(&federation);
    CHECK_INT(0, fed_server_done(federation.server));
    CHECK(federation_audited(&federation, "a participant lied") > 0);
    CHECK(federation_parameter(&federation) == 0);
    federation.terms.max_norm = 0;
    federation_run(&federation);
    federation_end(&federation);
}

/* A liar's weight need not be its own: one that takes away most of the others' makes the mean of
 * updates as large as it likes. Weights follow from the samples that each has told. */
static void test_weights_are_those_that_were_told(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    terms.rounds = 1;
    federation_begin(&federation, &terms, 4);
    federation.server->members[3].samples = 5; /* it gives the weight of 4 */
    for (int i = 0; i < 20; i++)
        federation_turn(&federation);
    CHECK_INT(0, fed_server_done(federation.server));
    CHECK(federation_audited(&federation, "a participant lied") > 0);
    federation.server->members[3].samples = 4;
    federation_run(&federation);
    CHECK_CLOSE(rounds_expected(0, 1, 4, false), federation_parameter(&federation), 1e-5);
    federation_end(&federation);
}

/* The same answer of a secure stage again: once in store and audit. */
static void test_secure_answers_count_once(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    terms.rounds = 1;
    federation_begin(&federation, &terms, 3);
    for (int i = 0; i < 3; i++)
        CHECK_INT(FED_TASK, federation_post(&federation, i));
    CHECK_OK(federation_post_in_vain(&federation, 0));
    CHECK_OK(federation_post_in_vain(&federation, 0));
    CHECK_INT(FED_OK, federation_post(&federation, 0));
    CHECK_INT(1, federation_audited(&federation, "p00 gave keys"));
    federation_run(&federation);
    CHECK_CLOSE(rounds_expected(0, 1, 3, false), federation_parameter(&federation), 1e-5);
    federation_end(&federation);
}

const struct test tests[] = {
    { .name = "secure rounds are plain ones but for steps",
      .run = test_secure_is_plain_within_steps },
    { .name = "one of five drops out at each stage", .run = test_secure_dropouts },
    { .name = "participants refuse what terms do not say", .run = test_clients_refuse },
    { .name = "data that change in a round do not stop it",
      .run = test_data_that_change_in_a_round_do_not_stop_it },
    { .name = "numbers that cannot be are refused",
      .run = test_numbers_that_cannot_be_are_refused },
    { .name = "another task than was announced is refused",
      .run = test_another_task_than_announced_is_refused },
    { .name = "secure rounds of too few are left", .run = test_secure_minimum },
    { .name = "a bad participant ends nobody else",
      .run = test_a_bad_participant_ends_nobody_else },
    { .name = "secure rounds that cannot be wait", .run = test_secure_rounds_that_cannot_be },
    { .name = "secure rounds need the minimum", .run = test_secure_rounds_need_the_minimum },
    { .name = "sums differ by more than one participant",
      .run = test_sums_differ_by_more_than_one },
    { .name = "participants refuse sums that are too near",
      .run = test_participants_refuse_near_sums },
    { .name = "another federation takes no near sums",
      .run = test_another_federation_takes_no_near_sums },
    { .name = "terms do not change by a restart",
      .run = test_terms_do_not_change_by_a_restart },
    { .name = "a repeated task is refused", .run = test_a_repeated_task_is_refused },
    { .name = "a restart forgets no task", .run = test_a_restart_forgets_no_task },
    { .name = "a peer that is revoked stops no restart",
      .run = test_a_peer_that_is_revoked_stops_no_restart },
    { .name = "what is cut off is told", .run = test_what_is_cut_off_is_told },
    { .name = "statistics do not change", .run = test_statistics_do_not_change },
    { .name = "statistics are not solved for", .run = test_statistics_are_not_solved_for },
    { .name = "ranges are powers of two", .run = test_ranges_are_powers_of_two },
    { .name = "nobody is seen to diverge", .run = test_nobody_is_seen_to_diverge },
    { .name = "sums beyond the terms are lost", .run = test_sums_beyond_the_terms_are_lost },
    { .name = "weights are those that were told",
      .run = test_weights_are_those_that_were_told },
    { .name = "secure answers count once", .run = test_secure_answers_count_once },
    { 0 },
};
