/* SPDX-License-Identifier: MIT */
/* rounds_test.c - engines of coordinator and participants: what rounds come to, whoever fails when. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "fed/accountant.h"
#include "fed/quantize.h"
#include "fed/rounds_testing.h"
#include "fed/secure.h"

/* What x becomes after a round of all n: every participant goes a quarter of its way. */
static double after(double x, int rounds, int n, bool equal)
{
    for (int r = 0; r < rounds; r++) {
        double sum = 0, weight = 0;
        for (int i = 0; i < n; i++) {
            const double w = equal ? 1 : i + 1;
            sum += w * (i + 1 - x) / 4;
            weight += w;
        }
        x += sum / weight;
    }
    return x;
}

static float parameter(const struct federation *federation)
{
    return fed_server_parameters(federation->server)[0];
}

static void test_mean_by_samples(void)
{
    for (int equal = 0; equal < 2; equal++) {
        struct federation federation;
        struct fed_terms terms;
        federation_terms(&terms);
        if (equal)
            snprintf(terms.weighting, sizeof terms.weighting, "equal");
        federation_begin(&federation, &terms, 5);
        federation_run(&federation);
        CHECK_CLOSE(after(0, 3, 5, equal), parameter(&federation), 1e-6);
        CHECK_INT(3, fed_server_round(federation.server));
        for (int i = 0; i < 5; i++) { /* everybody hears the end */
            while (federation_post(&federation, i) != FED_DONE)
                continue;
            CHECK(fed_client_parameters(federation.tested[i].client)[0] ==
                  parameter(&federation));
        }
        federation_end(&federation);
    }
}

/* The sum does not depend on who came first. */
static void test_order_of_arrival(struct rng *rng)
{
    float first = 0;

    for (int again = 0; again < 2; again++) {
        struct federation federation;
        struct fed_terms terms;
        federation_terms(&terms);
        terms.rounds = 2;
        federation_begin(&federation, &terms, 7);
        for (int i = 0; i < 4000 && !fed_server_is_done(federation.server); i++)
            (void)federation_post(&federation, (int)rng_below(rng, 7));
        CHECK(fed_server_is_done(federation.server));
        CHECK(!again || parameter(&federation) == first);
        first = parameter(&federation);
        federation_end(&federation);
    }
}

/* Participants are chosen by chance: as many as asked for, not the same in every round. */
static void test_some_take_part(void)
{
    struct federation federation;
    struct fed_terms terms;
    int taken[10] = { 0 }, all = 0;

    federation_terms(&terms);
    terms.per_round = 3;
    terms.rounds = 12;
    federation_begin(&federation, &terms, 10);
    while (!fed_server_is_done(federation.server)) {
        for (int i = 0; i < 10; i++)
            taken[i] += federation_post(&federation, i) == FED_TASK;
    }
    for (int i = 0; i < 10; i++)
        all += taken[i];
    CHECK_INT(36, all);
    for (int i = 0; i < 10; i++)
        CHECK(taken[i] < 12);
    federation_end(&federation);
}

static void post_bytes(struct federation *federation, const char *client,
                       const struct fed_message *message, struct fed_message *answer)
{
    static struct fed_buffer bytes, reply;

    fed_buffer_release(&bytes);
    fed_buffer_release(&reply);
    fed_buffer_init(&bytes, 1 << 20);
    fed_buffer_init(&reply, 1 << 20);
    fed_message_write(message, &bytes);
    CHECK_OK(fed_server_answer(federation->server, client, bytes.data, bytes.length, &reply));
    CHECK_OK(fed_message_read(reply.data, reply.length, answer));
}

static struct fed_message give_of(int64_t round, enum fed_stage stage, const char *name,
                                  const struct fed_buffer *payload)
{
    struct fed_message give = { .type = FED_GIVE,
                                .round = round,
                                .stage = stage,
                                .payload = payload->data,
                                .payload_length = payload->length };

    snprintf(give.client, sizeof give.client, "%s", name);
    return give;
}

static void make_payload(float value, size_t length, struct fed_buffer *out)
{
    float vector[TESTED_LENGTH + 1];
    const struct fed_update update = { .tally = { .samples = 1, .steps = 1 },
                                       .n_vectors = 1,
                                       .vector = { vector },
                                       .length = length };

    for (size_t i = 0; i < length; i++)
        vector[i] = value;
    fed_buffer_init(out, 1 << 16);
    CHECK_OK(fed_update_write(&update, NULL, out));
}

static void test_wrong_gives_are_refused(void)
{
    struct federation federation;
    struct fed_terms terms;
    struct fed_message answer;
    struct fed_buffer good, other, shorter, nan;

    federation_terms(&terms);
    federation_begin(&federation, &terms, 3);
    CHECK_INT(FED_TASK, federation_post(&federation, 0));
    make_payload(1, TESTED_LENGTH, &good);
    make_payload(2, TESTED_LENGTH, &other);
    make_payload(1, TESTED_LENGTH - 1, &shorter);
    make_payload(NAN, TESTED_LENGTH, &nan);
    const struct {
        struct fed_message give;
        const char *client, *why;
    } rows[] = {
        { give_of(1, FED_TRAIN, "p01", &good), "p01", "has not begun" },
        { give_of(0, FED_KEYS, "p01", &good), "p01", "stage" },
        { give_of(0, FED_TRAIN, "p01", &shorter), "p01", "update" },
        { give_of(0, FED_TRAIN, "p01", &nan), "p01", "update" },
        { give_of(0, FED_TRAIN, "p02", &good), "p01", "another participant" },
        { give_of(0, FED_TRAIN, "p07", &good), "p07", "hello" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        post_bytes(&federation, rows[i].client, &rows[i].give, &answer);
        CHECK_INT(FED_REFUSED, answer.type);
        CHECK(strstr(answer.why, rows[i].why));
    }
    const struct fed_message give = give_of(0, FED_TRAIN, "p01", &good);
    const struct fed_message changed = give_of(0, FED_TRAIN, "p01", &other);
    post_bytes(&federation, "p01", &give, &answer);
    CHECK_INT(FED_OK, answer.type);
    post_bytes(&federation, "p01", &give, &answer); /* again: without effect */
    CHECK_INT(FED_OK, answer.type);
    post_bytes(&federation, "p01", &changed, &answer);
    CHECK_INT(FED_REFUSED, answer.type);
    CHECK(strstr(fed_memory_store_audit(federation.store), "p01 refused: another update"));
    federation.tested[1].is_silent = true; /* its update is there */
    federation_turn(&federation);
    federation_turn(&federation);
    CHECK_INT(1, fed_server_round(federation.server));
    const double mean = (0.25 * 1 + 2 * 1 + 3 * 0.75) / 6;
    CHECK_CLOSE(mean, parameter(&federation), 1e-6);
    fed_buffer_release(&good);
    fed_buffer_release(&other);
    fed_buffer_release(&shorter);
    fed_buffer_release(&nan);
    federation_end(&federation);
}

static void test_nonsense_is_refused(struct rng *rng)
{
    struct federation federation;
    struct fed_terms terms;
    struct fed_buffer reply;
    struct fed_message answer;
    uint8_t bytes[64];

    federation_terms(&terms);
    federation_begin(&federation, &terms, 2);
    fed_buffer_init(&reply, 1 << 20);
    const size_t length = rng_below(rng, sizeof bytes + 1);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)rng_u32(rng);
    CHECK_OK(fed_server_answer(federation.server, "p00", bytes, length, &reply));
    CHECK_OK(fed_message_read(reply.data, reply.length, &answer));
    CHECK_INT(FED_REFUSED, answer.type);
    fed_buffer_release(&reply);
    federation_run(&federation);
    federation_end(&federation);
}

static void test_deadlines(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.deadline_s = 5;
    terms.minimum = 3;
    terms.rounds = 1;
    federation_begin(&federation, &terms, 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(FED_TASK, federation_post(&federation, i));
    federation.tested[3].is_silent = true; /* one is missing: the others count */
    federation_run(&federation);
    CHECK_CLOSE(after(0, 1, 3, false), parameter(&federation), 1e-6);
    CHECK(strstr(fed_memory_store_audit(federation.store), "is over by its deadline"));
    federation_end(&federation);

    federation_terms(&terms);
    terms.deadline_s = 5;
    terms.minimum = 3;
    terms.rounds = 1;
    federation_begin(&federation, &terms, 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(FED_TASK, federation_post(&federation, i));
    federation.tested[2].is_silent = federation.tested[3].is_silent = true;
    while (fed_server_round(federation.server) == 0) /* two are too few: the round is lost */
        federation_turn(&federation);
    CHECK_INT(1, fed_server_round(federation.server));
    CHECK(parameter(&federation) == 0);
    CHECK(!fed_server_is_done(federation.server));
    federation.tested[2].is_silent = federation.tested[3].is_silent = false;
    federation_run(&federation); /* the next one is not */
    CHECK_CLOSE(after(0, 1, 4, false), parameter(&federation), 1e-6);
    federation_end(&federation);
}

/* Ways to make rounds, for what must hold for all of them. */
static void prepare(struct fed_terms *terms, int way)
{
    static const char *const algorithms[] = { "fedavg",   "fedprox",  "fedavgm", "fedadam",
                                              "fedyogi",  "scaffold", "fedavg",  "fedavg",
                                              "scaffold", "fedavg",   "fedavg" };

    federation_terms(terms);
    terms->minimum = 5; /* all take part */
    snprintf(terms->algorithm, sizeof terms->algorithm, "%s", algorithms[way]);
    if (way == 6)
        snprintf(terms->compress, sizeof terms->compress, "topk:0.2");
    terms->secure = way == 7 || way == 8;
    terms->personal_head = way == 9;
    if (way == 10)
        snprintf(terms->aggregate, sizeof terms->aggregate, "median");
}
enum { WAYS = 11 };

/* Kills coordinator and participants after any message: the rounds come to the same. */
static void disturb(struct rng *rng, int way)
{
    float undisturbed[TESTED_LENGTH];

    for (int disturbed = 0; disturbed < 2; disturbed++) {
        struct federation federation;
        struct fed_terms terms;
        prepare(&terms, way);
        federation_begin(&federation, &terms, 5);
        for (int turn = 0; turn < 400 && !fed_server_is_done(federation.server); turn++) {
            for (int i = 0; i < 5; i++) {
                (void)federation_post(&federation, i);
                if (disturbed && rng_below(rng, 4) == 0)
                    federation_restart_server(&federation);
                if (disturbed && rng_below(rng, 6) == 0)
                    federation_restart_client(&federation, (int)rng_below(rng, 5));
            }
        }
        CHECK(fed_server_is_done(federation.server));
        const float *parameters = fed_server_parameters(federation.server);
        for (int i = 0; i < TESTED_LENGTH; i++) {
            CHECK(!disturbed || parameters[i] == undisturbed[i]);
            undisturbed[i] = parameters[i];
        }
        federation_end(&federation);
    }
}

static void test_restarts(void)
{
    struct rng rng;

    for (int i = 0; i < 3 * WAYS; i++) {
        rng_init(&rng, 4711, (uint64_t)i);
        disturb(&rng, i % WAYS);
    }
}

/* A participant that never hears the answer gives the same bytes again: they count once. */
static void test_lost_replies(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.rounds = 1;
    federation_begin(&federation, &terms, 3);
    for (int i = 0; i < 3; i++)
        CHECK_INT(FED_TASK, federation_post(&federation, i));
    for (int i = 0; i < 3; i++) {
        struct fed_buffer reply;
        struct fed_step step;
        CHECK_OK(fed_client_next(federation.tested[i].client, &step));
        fed_buffer_init(&reply, 1 << 20);
        CHECK_OK(fed_server_answer(federation.server, federation.tested[i].name, step.message,
                                   step.length, &reply));
        fed_buffer_release(&reply); /* lost on the way */
    }
    CHECK(fed_server_is_done(federation.server));
    for (int i = 0; i < 3; i++)
        CHECK_INT(FED_OK, federation_post(&federation, i));
    CHECK_CLOSE(after(0, 1, 3, false), parameter(&federation), 1e-6);
    federation_end(&federation);
}

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
                CHECK_CLOSE(plain, parameter(&federation), 1e-5);
            plain = parameter(&federation);
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
        const double all = after(0, 1, 5, false);
        const double without = (1 * 1 + 2 * 2 + 4 * 4 + 5 * 5) / 12.0 / 4;
        const double expected = stage > (int)FED_TRAIN ? all : without;
        CHECK_CLOSE(expected, parameter(&federation), 1e-5);
        federation_end(&federation);
    }
}

/* The first round adds up what all have; tables are standardized by that, and training is as ever. */
static void test_statistics(void)
{
    for (int secure = 0; secure < 2; secure++) {
        struct federation federation;
        struct fed_terms terms;
        federation_terms(&terms);
        terms.standardize = true;
        terms.secure = secure;
        terms.minimum = 5;
        federation_begin(&federation, &terms, 5);
        for (int turn = 0; turn < 400 && !fed_server_is_done(federation.server); turn++) {
            federation_turn(&federation);
            if (turn % 3 == 0)
                federation_restart_server(&federation);
        }
        CHECK_INT(4, fed_server_round(federation.server)); /* it is a round of its own */
        CHECK_CLOSE(after(0, 3, 5, false), parameter(&federation), secure ? 1e-5 : 1e-6);
        for (int i = 0; i < 5; i++) {
            const float *told = federation.tested[i].statistics;
            CHECK_CLOSE(5, told[0], 1e-5);
            CHECK_CLOSE(1 + 2 + 3 + 4 + 5, told[1], 1e-5);
            CHECK_CLOSE((1 + 4 + 9 + 16 + 25) / 16.0, told[2], 1e-5);
        }
        CHECK(fed_server_statistics(federation.server)[0] ==
              federation.tested[0].statistics[0]);
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

/* Rounds until participant 0 has its task of training: the bytes are in `reply`, and not taken yet. */
static void reach_training(struct federation *federation, struct fed_buffer *reply,
                           struct fed_message *message)
{
    struct fed_client *client = federation->tested[0].client;
    struct fed_step step;

    *message = (struct fed_message){ .type = FED_TYPES };
    for (int i = 0; i < 100; i++) {
        CHECK_OK(fed_client_next(client, &step));
        if (step.what == FED_SEND) {
            fed_buffer_clear(reply);
            CHECK_OK(fed_server_answer(federation->server, federation->tested[0].name,
                                       step.message, step.length, reply));
            CHECK_OK(fed_message_read(reply->data, reply->length, message));
            if (message->type == FED_TASK && message->stage == FED_TRAIN)
                return;
            CHECK_OK(fed_client_reply(client, reply->data, reply->length));
        }
        for (int other = 1; other < federation->n; other++)
            (void)federation_post(federation, other);
        CHECK_OK(fed_server_tick(federation->server));
        federation->now++;
    }
    test_fail(__FILE__, __LINE__, "participant 0 is never to train");
}

/* What participant 0 says to a task of training that `lie` has changed. */
static enum status take_lie(struct federation *federation, void (*lie)(struct fed_work *work))
{
    struct fed_message message;
    struct fed_buffer reply, payload;
    struct fed_work work;

    fed_buffer_init(&reply, 1 << 16);
    fed_buffer_init(&payload, 1 << 16);
    reach_training(federation, &reply, &message);
    CHECK_OK(fed_work_read(message.payload, message.payload_length, TESTED_LENGTH, &work));
    lie(&work);
    fed_work_write(&work, &payload);
    message.payload = payload.data;
    message.payload_length = payload.length;
    struct fed_buffer told;
    fed_buffer_init(&told, 1 << 16);
    fed_message_write(&message, &told);
    const enum status status =
        fed_client_reply(federation->tested[0].client, told.data, told.length);
    fed_work_release(&work);
    fed_buffer_release(&told);
    fed_buffer_release(&reply);
    fed_buffer_release(&payload);
    return status;
}

static void lie_about_clip(struct fed_work *work)
{
    CHECK(work->clip == 1);
    work->clip = 1.5;
}

/* Shares of noise are for the terms' clip: a coordinator that asks for longer updates is refused. */
static void test_clips_beyond_the_noise_are_refused(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    snprintf(terms.dp, sizeof terms.dp, "distributed");
    snprintf(terms.weighting, sizeof terms.weighting, "equal");
    terms.clip = 1;
    terms.noise = 1;
    federation_begin(&federation, &terms, 4);
    CHECK_STATUS(STATUS_MISMATCH, take_lie(&federation, lie_about_clip));
    CHECK_MESSAGE("noise is for the terms' 1");
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
    CHECK_STATUS(STATUS_MISMATCH, take_lie(&federation, lie_about_most));
    CHECK_MESSAGE("nobody has more than 0");
    CHECK_STATUS(STATUS_MISMATCH, take_lie(&federation, lie_about_rate));
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

/* One that was told another task than the rest is in no sum: nobody unmasks with it. */
static void test_who_is_told_another_task_does_not_sign(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
    terms.rounds = 1;
    terms.deadline_s = 5;
    terms.threshold = terms.minimum = 4;
    federation_begin(&federation, &terms, 4);
    CHECK_OK(take_lie(&federation, lie_about_rows));
    while (fed_server_round(federation.server) == 0)
        federation_turn(&federation);
    CHECK(!fed_server_is_done(federation.server)); /* it is lost */
    CHECK(strstr(fed_memory_store_audit(federation.store), "these survivors and their task"));
    federation_run(&federation);
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
    CHECK_CLOSE(after(0, 1, 5, false), parameter(&federation), 1e-5);
    federation_end(&federation);
}

/* Participant 3 seals nonsense for participant 2, which leaves the round and is there in the next. */
static void test_a_bad_participant_ends_nobody_else(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.secure = true;
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
    post_bytes(&federation, "p03", &message, &answer);
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
    CHECK_CLOSE(after(first, 1, 4, false), parameter(&federation), 1e-5);
    federation_end(&federation);
}

/* Control variates by hand: y = x - (g + c - c_i), c_i becomes g (option II with one step of rate 1). */
static void test_control_variates(void)
{
    enum { N = 5, ROUNDS = 4 };
    double x = 0, c = 0, own[N] = { 0 };
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    snprintf(terms.algorithm, sizeof terms.algorithm, "scaffold");
    terms.rounds = ROUNDS;
    federation_begin(&federation, &terms, N);
    federation_run(&federation);
    for (int r = 0; r < ROUNDS; r++) {
        double move = 0, weight = 0, change = 0;
        for (int i = 0; i < N; i++) {
            const double step = (x - (i + 1)) / 4 + c - own[i];
            move -= (i + 1) * step;
            weight += i + 1;
            change += step - c;
            own[i] += step - c;
        }
        x += move / weight;
        c += change / N;
    }
    CHECK_CLOSE(x, parameter(&federation), 1e-6);
    federation_end(&federation);
}

/* Participant 0 makes its update of the first round, and gives it when the round is over. */
static void give_too_late(struct federation *federation, bool restart)
{
    struct fed_message message;
    struct fed_buffer reply;

    fed_buffer_init(&reply, 1 << 16);
    reach_training(federation, &reply, &message);
    CHECK_OK(fed_client_reply(federation->tested[0].client, reply.data, reply.length));
    fed_buffer_release(&reply);
    while (fed_server_round(federation->server) == 0) {
        federation->tested[0].is_silent = true;
        federation_turn(federation);
    }
    federation->tested[0].is_silent = false;
    if (restart)
        federation_restart_client(federation, 0);
    CHECK_INT(FED_REFUSED, federation_post(federation, 0));
}

/* Whose update came too late has the variate it had, also when other messages of it are taken. */
static void test_refused_control_variates(void)
{
    enum { N = 4 };
    double x = 0, c = 0, own[N] = { 0 };
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    snprintf(terms.algorithm, sizeof terms.algorithm, "scaffold");
    terms.secure = true;
    terms.deadline_s = 5;
    terms.rounds = 2;
    federation_begin(&federation, &terms, N);
    give_too_late(&federation, false);
    federation_run(&federation);
    CHECK_INT(2, fed_server_round(federation.server));
    for (int r = 0; r < 2; r++) {
        double move = 0, weight = 0, change = 0;
        for (int i = r == 0; i < N; i++) {
            const double step = (x - (i + 1)) / 4 + c - own[i];
            move -= (i + 1) * step;
            weight += i + 1;
            change += step - c;
            own[i] += step - c;
        }
        x += move / weight;
        c += change / N;
    }
    CHECK_CLOSE(x, parameter(&federation), 1e-5);
    federation_end(&federation);
}

/* The error of compression is as it was before an update that is refused, also over a restart. */
static void test_refused_compression(void)
{
    float expected[TESTED_LENGTH];

    for (int restart = 0; restart < 2; restart++) {
        struct federation federation;
        struct fed_terms terms;
        federation_terms(&terms);
        snprintf(terms.compress, sizeof terms.compress, "topk:0.2");
        terms.deadline_s = 5;
        federation_begin(&federation, &terms, 4);
        give_too_late(&federation, restart);
        federation_run(&federation);
        const float *parameters = fed_server_parameters(federation.server);
        for (int i = 0; i < TESTED_LENGTH; i++) {
            CHECK(!restart || parameters[i] == expected[i]);
            expected[i] = parameters[i];
        }
        federation_end(&federation);
    }
}

/* What participant 0 says to a task of a plain round, if the coordinator takes whatever it gives. */
static enum status train_for(struct federation *federation, int64_t round)
{
    static float vector[TESTED_LENGTH];
    const struct fed_work work = {
        .lr = 1, .n_vectors = 1, .vector = { vector }, .length = TESTED_LENGTH
    };
    const struct fed_message ok = { .type = FED_OK };
    struct fed_client *client = federation->tested[0].client;
    struct fed_buffer payload, task, taken;
    struct fed_step step;

    fed_buffer_init(&payload, 1 << 16);
    fed_buffer_init(&task, 1 << 16);
    fed_buffer_init(&taken, 1 << 16);
    fed_work_write(&work, &payload);
    fed_message_write(&(struct fed_message){ .type = FED_TASK,
                                             .round = round,
                                             .stage = FED_TRAIN,
                                             .payload = payload.data,
                                             .payload_length = payload.length },
                      &task);
    fed_message_write(&ok, &taken);
    CHECK_OK(fed_client_next(client, &step));
    enum status status = fed_client_reply(client, task.data, task.length);
    if (status == STATUS_OK) {
        CHECK_OK(fed_client_next(client, &step));
        status = fed_client_reply(client, taken.data, taken.length);
    }
    fed_buffer_release(&payload);
    fed_buffer_release(&task);
    fed_buffer_release(&taken);
    return status;
}

static void test_updates_are_counted(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    federation_begin(&federation, &terms, 3);
    for (int64_t round = 0; round < 2 * terms.rounds; round++) {
        CHECK_OK(train_for(&federation, round));
        CHECK_STATUS(STATUS_MISMATCH, train_for(&federation, round));
        CHECK_MESSAGE("of which it has one");
        federation_restart_client(&federation, 0); /* it still knows */
    }
    CHECK_STATUS(STATUS_MISMATCH, train_for(&federation, 2 * terms.rounds));
    CHECK_MESSAGE("has had 6 updates and asks for more, the terms say 3 rounds");
    federation_end(&federation);
}

static void test_buffered_rounds(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    snprintf(terms.algorithm, sizeof terms.algorithm, "fedbuff");
    terms.buffer = 2;
    terms.rounds = 2;
    federation_begin(&federation, &terms, 4);
    for (int i = 0; i < 4; i++) /* all have the first parameters */
        CHECK_INT(FED_TASK, federation_post(&federation, i));
    for (int i = 0; i < 2; i++)
        CHECK_INT(FED_OK, federation_post(&federation, i));
    CHECK_INT(1, fed_server_round(federation.server));
    const double first = (1 * 0.25 + 2 * 0.5) / 3;
    CHECK_CLOSE(first, parameter(&federation), 1e-6);
    for (int i = 2; i < 4; i++) /* these are a round late: they count by 1/sqrt(2) */
        CHECK_INT(FED_OK, federation_post(&federation, i));
    CHECK_CLOSE(first + (3 * 0.75 + 4 * 1) / 7 / sqrt(2), parameter(&federation), 1e-6);
    CHECK(fed_server_is_done(federation.server));
    federation_end(&federation);
}

static void test_budget_ends_rounds(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.rounds = 1000;
    snprintf(terms.dp, sizeof terms.dp, "central");
    snprintf(terms.weighting, sizeof terms.weighting, "equal");
    terms.clip = 1;
    terms.noise = 4;
    terms.epsilon = 3;
    federation_begin(&federation, &terms, 4);
    for (int i = 0; i < 4000 && !fed_server_is_done(federation.server); i++) {
        federation_turn(&federation);
        if (i % 7 == 0) /* the ledger survives */
            federation_restart_server(&federation);
    }
    CHECK(fed_server_is_done(federation.server));
    CHECK(strstr(fed_server_why(federation.server), "above the budget of 3"));
    CHECK(strstr(fed_server_why(federation.server), "1000 rounds need --dp-noise 4"));
    CHECK(fed_server_round(federation.server) > 1);
    CHECK(fed_server_round(federation.server) < 30);
    federation_end(&federation);
}

static void test_head_stays(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.personal_head = true;
    terms.rounds = 2;
    federation_begin(&federation, &terms, 3);
    federation_run(&federation);
    const float *parameters = fed_server_parameters(federation.server);
    CHECK_CLOSE(after(0, 2, 3, false), parameters[0], 1e-6);
    CHECK(parameters[TESTED_LENGTH - 1] == 0); /* nobody told */
    for (int i = 0; i < 3; i++) {
        while (federation_post(&federation, i) != FED_DONE)
            continue;
        const float *own = fed_client_parameters(federation.tested[i].client);
        const double goal = i + 1;
        CHECK_CLOSE(goal * (1 - 0.75 * 0.75), own[TESTED_LENGTH - 1], 1e-6);
    }
    federation_end(&federation);
}

static void test_one_liar(void)
{
    static const char *const ways[] = { "median", "trimmed:0.2", "krum:1", "multikrum:1,3" };

    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        struct federation federation;
        struct fed_terms terms;
        struct fed_message answer;
        struct fed_buffer lie;
        federation_terms(&terms);
        terms.rounds = 1;
        snprintf(terms.aggregate, sizeof terms.aggregate, "%s", ways[w]);
        federation_begin(&federation, &terms, 6);
        CHECK_INT(FED_TASK, federation_post(&federation, 0));
        make_payload(1e6F, TESTED_LENGTH, &lie);
        const struct fed_message give = give_of(0, FED_TRAIN, "p03", &lie);
        post_bytes(&federation, "p03", &give, &answer);
        CHECK_INT(FED_OK, answer.type);
        federation.tested[3].is_silent = true;
        federation_run(&federation);
        CHECK(parameter(&federation) > 0.2F && parameter(&federation) < 1.5F);
        fed_buffer_release(&lie);
        federation_end(&federation);
    }
}

/* How often the audit says it. */
static int count_audit(const struct federation *federation, const char *what)
{
    int count = 0;

    for (const char *at = fed_memory_store_audit(federation->store); (at = strstr(at, what));
         at++)
        count++;
    return count;
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
    CHECK_INT(2, count_audit(&federation, "waits: a threshold of 2 of 4")); /* once a start */
    CHECK_INT(0, count_audit(&federation, "begins"));
    federation.tested[3].is_silent = true;
    federation.now += 100; /* it is gone */
    federation_run(&federation);
    CHECK_CLOSE(after(0, 3, 3, false), parameter(&federation), 1e-5);
    federation_end(&federation);
}

/* No round has fewer than the minimum, whatever the fraction. */
static void test_no_round_below_the_minimum(void)
{
    for (int secure = 0; secure < 2; secure++) {
        struct federation federation;
        struct fed_terms terms;
        federation_terms(&terms);
        terms.secure = secure;
        terms.fraction = 0.1;
        terms.minimum = 3;
        federation_begin(&federation, &terms, 6);
        federation_run(&federation);
        CHECK_INT(3, count_audit(&federation, "begins with 3 participants"));
        CHECK_INT(3, fed_server_round(federation.server));
        federation_end(&federation);
    }
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
    CHECK_INT(1, count_audit(&federation, "lost: too few"));
    CHECK(parameter(&federation) == 0);
    federation_end(&federation);
}

static void private_terms(struct fed_terms *terms, double clip, double noise)
{
    federation_terms(terms);
    snprintf(terms->dp, sizeof terms->dp, "central");
    snprintf(terms->weighting, sizeof terms->weighting, "equal");
    terms->clip = clip;
    terms->noise = noise;
}

/* Each is drawn by itself: a draw of too few is a lost round that costs nothing, with no deadline to wait for. */
static void test_small_draws_are_lost(void)
{
    for (int secure = 0; secure < 2; secure++) {
        struct federation federation;
        struct fed_terms terms;
        private_terms(&terms, 1, 1);
        terms.secure = secure;
        terms.fraction = 0.3;
        federation_begin(&federation, &terms, 5);
        federation_run(&federation);
        const int lost = count_audit(&federation, "is lost");
        CHECK(lost > 0);
        CHECK_INT(lost, count_audit(&federation, "of the 2 participants that a round needs"));
        CHECK_INT(3 + lost, fed_server_round(federation.server));
        CHECK_INT(3, count_audit(&federation, "begins with"));
        federation_end(&federation);
    }
}

/* A participant's message, whose reply is lost. */
static enum status post_in_vain(struct federation *federation, int number)
{
    struct fed_buffer reply;
    struct fed_step step;

    CHECK_OK(fed_client_next(federation->tested[number].client, &step));
    CHECK_INT(FED_SEND, step.what);
    fed_buffer_init(&reply, 1 << 20);
    const enum status status = fed_server_answer(
        federation->server, federation->tested[number].name, step.message, step.length, &reply);
    fed_buffer_release(&reply);
    return status;
}

/* What fails at the end of a round leaves the engine ahead of its store: it says nothing more. One made again goes on. */
static void test_failures_stay(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    federation_begin(&federation, &terms, 2);
    for (int i = 0; i < 2; i++)
        CHECK_INT(FED_TASK, federation_post(&federation, i));
    CHECK_INT(FED_OK, federation_post(&federation, 0));
    federation.fails = true;
    CHECK_STATUS(STATUS_IO, post_in_vain(&federation, 1));
    federation.fails = false; /* it comes too late */
    CHECK_STATUS(STATUS_IO, post_in_vain(&federation, 1));
    CHECK_STATUS(STATUS_IO, fed_server_tick(federation.server));
    CHECK_MESSAGE("the disk is full");
    federation_restart_server(&federation);
    federation_run(&federation);
    CHECK_CLOSE(after(0, 3, 2, false), parameter(&federation), 1e-6);
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
    CHECK_OK(post_in_vain(&federation, 0));
    CHECK_OK(post_in_vain(&federation, 0));
    CHECK_INT(FED_OK, federation_post(&federation, 0));
    CHECK_INT(1, count_audit(&federation, "p00 gave keys"));
    federation_run(&federation);
    CHECK_CLOSE(after(0, 1, 3, false), parameter(&federation), 1e-5);
    federation_end(&federation);
}

static double spent(const struct federation *federation)
{
    struct strbuf text;
    struct json *json;

    strbuf_init(&text, 1 << 16);
    fed_server_print(federation->server, &text);
    CHECK_OK(strbuf_status(&text));
    CHECK_OK(json_parse(text.text, text.length, &json));
    const double epsilon = json_number(json_root(json), "epsilon", NAN);
    json_destroy(json);
    strbuf_release(&text);
    return epsilon;
}

/* With a number a round one is replaced, also in rounds of all: what these cost is not that of adding or removing one. */
static void test_neighbours_stay_the_same(void)
{
    for (int fixed = 0; fixed < 2; fixed++) {
        struct federation federation;
        struct fed_terms terms;
        struct ledger *ledger;
        private_terms(&terms, 1, 4);
        terms.per_round = fixed ? 4 : 0;
        federation_begin(&federation, &terms, 4);
        federation_run(&federation);
        CHECK_OK(ledger_create((double)INFINITY, terms.delta, &ledger));
        for (uint64_t round = 0; round < 3; round++) {
            const struct ledger_entry entry = { .round = round,
                                                .sampling =
                                                    fixed ? SAMPLING_FIXED : SAMPLING_ALL,
                                                .q = 1,
                                                .noise = 4,
                                                .releases = 1,
                                                .survivors = 4 };
            CHECK_OK(ledger_add(ledger, &entry));
        }
        CHECK_CLOSE(ledger_epsilon(ledger, NULL), spent(&federation), 1e-9);
        ledger_destroy(ledger);
        federation_end(&federation);
    }
}

/* Where steps are coarse, rounding moves a sum by more than the clip: the noise is for both. */
static void test_rounding_is_paid_for(void)
{
    struct federation federation;
    struct fed_terms terms;
    struct quantize quantize;
    double squares = 0;

    private_terms(&terms, 1e-3, 1);
    terms.secure = true;
    terms.range = 1e6;
    terms.rounds = 1;
    CHECK_OK(quantize_init((int)terms.bits, 4, terms.range, 0, &quantize));
    CHECK(quantize.step > terms.clip);
    federation_begin(&federation, &terms, 4);
    federation_run(&federation);
    for (int i = 0; i < TESTED_LENGTH; i++) {
        const double sum = 4 * (double)fed_server_parameters(federation.server)[i];
        squares += sum * sum / TESTED_LENGTH;
    }
    const double expected = terms.clip + quantize.step * sqrt(TESTED_LENGTH);
    CHECK(sqrt(squares) > expected / 1.6 && sqrt(squares) < expected * 1.6);
    federation_end(&federation);
}

/* If participant 0 is about to give its masked vector, it gives one that is far away. */
static bool lie(struct federation *federation)
{
    struct fed_message message, answer;
    struct fed_buffer payload, reply;
    struct fed_step step;

    CHECK_OK(fed_client_next(federation->tested[0].client, &step));
    if (step.what != FED_SEND)
        return false;
    CHECK_OK(fed_message_read(step.message, step.length, &message));
    if (message.type != FED_GIVE || message.stage != FED_TRAIN)
        return false;
    fed_buffer_init(&payload, 1 << 16);
    fed_buffer_init(&reply, 1 << 16);
    fed_put(&payload, message.payload, message.payload_length);
    payload.data[3] ^= 0x40; /* of the first word of 32 bits */
    message.payload = payload.data;
    post_bytes(federation, "p00", &message, &answer);
    CHECK_INT(FED_OK, answer.type);
    fed_message_write(&answer, &reply);
    CHECK_OK(fed_client_reply(federation->tested[0].client, reply.data, reply.length));
    fed_buffer_release(&payload);
    fed_buffer_release(&reply);
    return true;
}

/* A sum that no clipped updates add up to ends the round, and not the coordinator. */
static void test_lies_cost_a_round(void)
{
    struct federation federation;
    struct fed_terms terms;
    bool lied = false;

    private_terms(&terms, 1e-3, 1e-4);
    terms.secure = true;
    terms.range = 1e6;
    federation_begin(&federation, &terms, 4);
    while (fed_server_round(federation.server) == 0) {
        lied = lied || lie(&federation);
        federation_turn(&federation);
    }
    CHECK(lied);
    CHECK_INT(1, count_audit(&federation, "round 0 is lost: value 0 of a sum"));
    CHECK(parameter(&federation) == 0);
    federation_restart_server(&federation);
    federation_run(&federation);
    CHECK_INT(4, fed_server_round(federation.server));
    federation_end(&federation);
}

static enum status add_metrics(void *arg, const char *metrics)
{
    strbuf_add(arg, metrics);
    return STATUS_OK;
}

/* What participants tell of their losses has no noise: with privacy it is not published. */
static void test_private_losses_are_not_told(void)
{
    for (int private = 0; private < 2; private ++) {
        struct federation federation;
        struct fed_terms terms;
        struct strbuf text;
        if (private)
            private_terms(&terms, 1, 1);
        else
            federation_terms(&terms);
        federation_begin(&federation, &terms, 3);
        federation_run(&federation);
        const struct fed_store store = fed_memory_store(federation.store);
        strbuf_init(&text, 1 << 16);
        CHECK_OK(store.history(store.arg, add_metrics, &text));
        CHECK((strstr(text.text, "loss") == NULL) == private);
        CHECK((strstr(text.text, "accuracy") == NULL) == private);
        CHECK(strstr(text.text, "update_norm"));
        strbuf_release(&text);
        federation_end(&federation);
    }
}

const struct test tests[] = {
    { .name = "the mean is by samples or equal", .run = test_mean_by_samples },
    { .name = "who comes first does not matter", .property = test_order_of_arrival },
    { .name = "some take part, chosen by chance", .run = test_some_take_part },
    { .name = "wrong gives are refused", .run = test_wrong_gives_are_refused },
    { .name = "nonsense is refused, and rounds go on", .property = test_nonsense_is_refused },
    { .name = "a deadline ends a stage", .run = test_deadlines },
    { .name = "killed after any message, rounds come to the same", .run = test_restarts },
    { .name = "replies that are lost do no harm", .run = test_lost_replies },
    { .name = "secure rounds are plain ones but for steps",
      .run = test_secure_is_plain_within_steps },
    { .name = "one of five drops out at each stage", .run = test_secure_dropouts },
    { .name = "statistics are added up first", .run = test_statistics },
    { .name = "participants refuse what terms do not say", .run = test_clients_refuse },
    { .name = "control variates are the paper's", .run = test_control_variates },
    { .name = "late updates count less", .run = test_buffered_rounds },
    { .name = "a budget ends the rounds", .run = test_budget_ends_rounds },
    { .name = "a personal head stays", .run = test_head_stays },
    { .name = "one liar moves little", .run = test_one_liar },
    { .name = "data that change in a round do not stop it",
      .run = test_data_that_change_in_a_round_do_not_stop_it },
    { .name = "numbers that cannot be are refused",
      .run = test_numbers_that_cannot_be_are_refused },
    { .name = "who is told another task does not sign",
      .run = test_who_is_told_another_task_does_not_sign },
    { .name = "secure rounds of too few are left", .run = test_secure_minimum },
    { .name = "a bad participant ends nobody else",
      .run = test_a_bad_participant_ends_nobody_else },
    { .name = "updates are counted", .run = test_updates_are_counted },
    { .name = "a refused update leaves the variate", .run = test_refused_control_variates },
    { .name = "a refused update leaves the error of compression",
      .run = test_refused_compression },
    { "clips beyond the noise are refused", test_clips_beyond_the_noise_are_refused, NULL },
    { .name = "secure rounds that cannot be wait", .run = test_secure_rounds_that_cannot_be },
    { .name = "no round is below the minimum", .run = test_no_round_below_the_minimum },
    { .name = "secure rounds need the minimum", .run = test_secure_rounds_need_the_minimum },
    { .name = "draws of too few are lost rounds", .run = test_small_draws_are_lost },
    { .name = "a coordinator that failed says nothing more", .run = test_failures_stay },
    { .name = "secure answers count once", .run = test_secure_answers_count_once },
    { .name = "a ledger's neighbours stay the same", .run = test_neighbours_stay_the_same },
    { .name = "rounding is paid for", .run = test_rounding_is_paid_for },
    { .name = "lies cost a round", .run = test_lies_cost_a_round },
    { .name = "private losses are not told", .run = test_private_losses_are_not_told },
    { 0 },
};
