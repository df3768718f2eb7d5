/* SPDX-License-Identifier: MIT */
/* rounds_test.c - engines of coordinator and participants: what rounds come to, whoever fails when. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/test.h"
#include "fed/dp.h"
#include "fed/rounds_testing.h"

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
        CHECK_CLOSE(rounds_expected(0, 3, 5, equal), federation_parameter(&federation), 1e-6);
        CHECK_INT(3, fed_server_round(federation.server));
        for (int i = 0; i < 5; i++) { /* everybody hears the end */
            while (federation_post(&federation, i) != FED_DONE)
                continue;
            CHECK(fed_client_parameters(federation.tested[i].client)[0] ==
                  federation_parameter(&federation));
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
        CHECK(!again || federation_parameter(&federation) == first);
        first = federation_parameter(&federation);
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
        federation_post_as(&federation, rows[i].client, &rows[i].give, &answer);
        CHECK_INT(FED_REFUSED, answer.type);
        CHECK(strstr(answer.why, rows[i].why));
    }
    const struct fed_message give = give_of(0, FED_TRAIN, "p01", &good);
    const struct fed_message changed = give_of(0, FED_TRAIN, "p01", &other);
    federation_post_as(&federation, "p01", &give, &answer);
    CHECK_INT(FED_OK, answer.type);
    federation_post_as(&federation, "p01", &give, &answer); /* again: without effect */
    CHECK_INT(FED_OK, answer.type);
    federation_post_as(&federation, "p01", &changed, &answer);
    CHECK_INT(FED_REFUSED, answer.type);
    CHECK(strstr(fed_memory_store_audit(federation.store), "p01 refused: another update"));
    federation.tested[1].is_silent = true; /* its update is there */
    federation_turn(&federation);
    federation_turn(&federation);
    CHECK_INT(1, fed_server_round(federation.server));
    const double mean = (0.25 * 1 + 2 * 1 + 3 * 0.75) / 6;
    CHECK_CLOSE(mean, federation_parameter(&federation), 1e-6);
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
    const char *why;

    federation_terms(&terms);
    terms.deadline_s = 5;
    terms.minimum = 3;
    terms.rounds = 1;
    federation_begin(&federation, &terms, 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(FED_TASK, federation_post(&federation, i));
    federation.tested[3].is_silent = true; /* one is missing: the others count */
    federation_run(&federation);
    CHECK_CLOSE(rounds_expected(0, 1, 3, false), federation_parameter(&federation), 1e-6);
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
    CHECK_INT(0, fed_server_done(federation.server));
    CHECK_INT(1, fed_server_lost(federation.server, &why));
    CHECK(strstr(why, "too few participants"));
    CHECK(federation_parameter(&federation) == 0);
    CHECK(!fed_server_is_done(federation.server));
    federation.tested[2].is_silent = federation.tested[3].is_silent = false;
    federation_run(&federation); /* the next one is not */
    CHECK_CLOSE(rounds_expected(0, 1, 4, false), federation_parameter(&federation), 1e-6);
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
    CHECK_CLOSE(rounds_expected(0, 1, 3, false), federation_parameter(&federation), 1e-6);
    federation_end(&federation);
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
        /* A round of its own; in secure rounds, one for the ranges before it. */
        CHECK_INT(4 + secure, fed_server_round(federation.server));
        CHECK_CLOSE(rounds_expected(0, 3, 5, false), federation_parameter(&federation),
                    secure ? 1e-5 : 1e-6);
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

/* Sums of any size are those of a plain round to quantization: nothing is cut off. */
static void test_secure_statistics_are_plain_ones(struct rng *rng)
{
    float plain[TESTED_STATISTICS] = { 0 };
    double scale[TESTED_STATISTICS];

    for (int i = 0; i < TESTED_STATISTICS; i++)
        scale[i] =
            (rng_below(rng, 2) ? 1 : -1) * pow(10, 15e-6 * (double)rng_below(rng, 1000000) - 6);
    for (int secure = 0; secure < 2; secure++) {
        struct federation federation;
        struct fed_terms terms;
        federation_terms(&terms);
        terms.standardize = true;
        terms.secure = secure;
        terms.rounds = 1;
        federation_begin(&federation, &terms, 5);
        memcpy(federation.scale, scale, sizeof scale);
        federation_run(&federation);
        const float *sums = fed_server_statistics(federation.server);
        for (int i = 0; i < TESTED_STATISTICS; i++) {
            if (secure)
                CHECK_CLOSE(plain[i], sums[i], 1e-6 * fabs((double)plain[i]));
            plain[i] = sums[i];
        }
        federation_end(&federation);
    }
}

static void lie(struct federation *federation, int number, int n, float value)
{
    federation->tested[number].n_lies = n;
    federation->tested[number].lie = value;
}

/* The largest number of all: its giver is named and left out, every round. */
static void test_absurd_updates_are_left_out(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    federation_begin(&federation, &terms, 4);
    lie(&federation, 3, TESTED_LENGTH, 3.4e38F);
    federation_run(&federation);
    CHECK_CLOSE(rounds_expected(0, 3, 3, false), federation_parameter(&federation), 1e-6);
    CHECK_INT(3, federation_audited(&federation, "p03 left out: its update has norm"));
    federation_end(&federation);
}

/* With nobody to compare it with, a round is lost; the federation goes on. */
static void test_absurd_sums_lose_a_round(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    federation_begin(&federation, &terms, 2);
    lie(&federation, 1, 1, 3.4e38F);
    while (fed_server_round(federation.server) < 2)
        federation_turn(&federation);
    CHECK_INT(0, fed_server_done(federation.server));
    CHECK_INT(2, federation_audited(&federation, "diverged, or it lied"));
    lie(&federation, 1, 0, 0);
    federation_run(&federation);
    CHECK_CLOSE(rounds_expected(0, 3, 2, false), federation_parameter(&federation), 1e-6);
    federation_end(&federation);
}

/* Participants scale their updates to --max-norm; a larger one is refused, and not waited for. */
static void test_norms_have_a_bound(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    terms.max_norm = 0.5;
    terms.rounds = 1;
    federation_begin(&federation, &terms, 3);
    federation_run(&federation);
    CHECK_CLOSE(0.5, dp_norm(fed_server_parameters(federation.server), TESTED_LENGTH), 1e-3);
    federation_end(&federation);

    federation_terms(&terms);
    terms.rounds = 2;
    federation_begin(&federation, &terms, 3);
    federation.terms.max_norm = 2; /* the participants do not know it */
    federation_run_for(&federation, 20);
    CHECK_INT(0, fed_server_done(federation.server));
    CHECK(federation_audited(&federation, "p01 refused: the update has norm") > 0);
    CHECK(federation_audited(&federation, "too few participants") > 1);
    federation_end(&federation);
}

/* A participant that claims many samples counts as --max-samples. */
static void test_samples_have_a_bound(void)
{
    for (int secure = 0; secure < 2; secure++) {
        struct federation federation;
        struct fed_terms terms;
        federation_terms(&terms);
        terms.max_samples = 1;
        terms.secure = secure;
        federation_begin(&federation, &terms, 4);
        federation_run(&federation);
        CHECK_CLOSE(rounds_expected(0, 3, 4, true), federation_parameter(&federation), 1e-5);
        federation_end(&federation);
    }
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
    CHECK_CLOSE(x, federation_parameter(&federation), 1e-6);
    federation_end(&federation);
}

/* Participant 0 makes its update of the first round, and gives it when the round is over. */
static void give_too_late(struct federation *federation, bool restart)
{
    struct fed_message message;
    struct fed_buffer reply;

    fed_buffer_init(&reply, 1 << 16);
    federation_reach_training(federation, &reply, &message);
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
    terms.cohort_difference = 1;
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
    CHECK_CLOSE(x, federation_parameter(&federation), 1e-5);
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
    CHECK_INT(30, fed_client_most(&terms));
    snprintf(terms.dp_sgd, sizeof terms.dp_sgd, "1,1"); /* each spends */
    CHECK_INT(6, fed_client_most(&terms));
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
    CHECK_CLOSE(first, federation_parameter(&federation), 1e-6);
    for (int i = 2; i < 4; i++) /* these are a round late: they count by 1/sqrt(2) */
        CHECK_INT(FED_OK, federation_post(&federation, i));
    CHECK_CLOSE(first + (3 * 0.75 + 4 * 1) / 7 / sqrt(2), federation_parameter(&federation),
                1e-6);
    CHECK(fed_server_is_done(federation.server));
    federation_end(&federation);
}

/* Fewer are there than a buffer holds: a round is what they give. Also if the coordinator is killed on the way. */
static void test_buffer_that_is_never_full(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    snprintf(terms.algorithm, sizeof terms.algorithm, "fedbuff");
    terms.buffer = 10;
    terms.rounds = 2;
    federation_begin(&federation, &terms, 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(FED_TASK, federation_post(&federation, i));
    for (int i = 0; i < 3; i++)
        CHECK_INT(FED_OK, federation_post(&federation, i));
    federation.now += 100; /* the last one trains for so long */
    CHECK_OK(fed_server_tick(federation.server));
    CHECK_INT(0, fed_server_round(federation.server));
    CHECK_INT(FED_OK, federation_post(&federation, 3));
    CHECK_INT(1, fed_server_round(federation.server));
    CHECK_CLOSE(rounds_expected(0, 1, 4, false), federation_parameter(&federation), 1e-6);
    for (int i = 0; i < 4; i++)
        CHECK_INT(FED_TASK, federation_post(&federation, i));
    for (int i = 0; i < 3; i++)
        CHECK_INT(FED_OK, federation_post(&federation, i));
    federation_restart_server(&federation);
    CHECK_INT(1, fed_server_round(federation.server)); /* the last one may be at work */
    CHECK_INT(FED_OK, federation_post(&federation, 3));
    federation_run(&federation);
    CHECK_CLOSE(rounds_expected(0, 2, 4, false), federation_parameter(&federation), 1e-6);
    federation_end(&federation);
}

/* A deadline ends an asynchronous round with what there is, and none if there is too little. */
static void test_buffer_by_deadline(void)
{
    struct federation federation;
    struct fed_terms terms;

    federation_terms(&terms);
    snprintf(terms.algorithm, sizeof terms.algorithm, "fedbuff");
    terms.buffer = 3;
    terms.minimum = 2;
    terms.deadline_s = 5;
    federation_begin(&federation, &terms, 4);
    for (int i = 0; i < 4; i++)
        CHECK_INT(FED_TASK, federation_post(&federation, i));
    CHECK_INT(FED_OK, federation_post(&federation, 0));
    federation.now += 6;
    CHECK_OK(fed_server_tick(federation.server));
    CHECK_INT(0, fed_server_round(federation.server));
    CHECK_INT(FED_OK, federation_post(&federation, 1));
    CHECK_OK(fed_server_tick(federation.server));
    CHECK_INT(1, fed_server_round(federation.server));
    CHECK_CLOSE((1 * 0.25 + 2 * 0.5) / 3, federation_parameter(&federation), 1e-6);
    CHECK_INT(FED_OK, federation_post(&federation, 2)); /* late, for the next */
    federation_end(&federation);
}

/* One is revoked in the middle of a round: the others end it, also after the coordinator was killed, and those that come. */
static void test_dismissed(void)
{
    for (int secure = 0; secure < 2; secure++) {
        struct federation federation;
        struct fed_terms terms;
        federation_terms(&terms);
        terms.secure = secure;
        terms.rounds = 2;
        federation_begin(&federation, &terms, 5);
        federation.tested[4].is_silent = true;
        for (int i = 0; i < 20; i++)
            federation_turn(&federation);
        CHECK_INT(0, fed_server_round(federation.server));
        CHECK_OK(fed_server_dismiss(federation.server, "p04"));
        federation_run(&federation);
        CHECK_INT(2, fed_server_round(federation.server));
        CHECK_INT(1, federation_audited(&federation, "nobody is left"));
        CHECK_CLOSE(rounds_expected(0, 2, 4, false), federation_parameter(&federation), 1e-3);
        const float before = federation_parameter(&federation);
        federation_restart_server(&federation);
        CHECK(before == federation_parameter(&federation));
        federation_end(&federation);
    }
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
    CHECK_CLOSE(rounds_expected(0, 2, 3, false), parameters[0], 1e-6);
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
        terms.minimum = 5;
        snprintf(terms.aggregate, sizeof terms.aggregate, "%s", ways[w]);
        federation_begin(&federation, &terms, 6);
        CHECK_INT(FED_TASK, federation_post(&federation, 0));
        make_payload(1e6F, TESTED_LENGTH, &lie);
        const struct fed_message give = give_of(0, FED_TRAIN, "p03", &lie);
        federation_post_as(&federation, "p03", &give, &answer);
        CHECK_INT(FED_OK, answer.type);
        federation.tested[3].is_silent = true;
        federation_run(&federation);
        CHECK(federation_parameter(&federation) > 0.2F &&
              federation_parameter(&federation) < 1.5F);
        fed_buffer_release(&lie);
        federation_end(&federation);
    }
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
        CHECK_INT(3, federation_audited(&federation, "begins with 3 participants"));
        CHECK_INT(3, fed_server_round(federation.server));
        federation_end(&federation);
    }
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
    CHECK_STATUS(STATUS_IO, federation_post_in_vain(&federation, 1));
    federation.fails = false; /* it comes too late */
    CHECK_STATUS(STATUS_IO, federation_post_in_vain(&federation, 1));
    CHECK_STATUS(STATUS_IO, fed_server_tick(federation.server));
    CHECK_MESSAGE("the disk is full");
    federation_restart_server(&federation);
    federation_run(&federation);
    CHECK_CLOSE(rounds_expected(0, 3, 2, false), federation_parameter(&federation), 1e-6);
    federation_end(&federation);
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
    { .name = "statistics are added up first", .run = test_statistics },
    { .name = "absurd updates are left out", .run = test_absurd_updates_are_left_out },
    { .name = "absurd sums lose a round", .run = test_absurd_sums_lose_a_round },
    { .name = "norms have a bound", .run = test_norms_have_a_bound },
    { .name = "samples have a bound", .run = test_samples_have_a_bound },
    { .name = "secure statistics are plain ones",
      .property = test_secure_statistics_are_plain_ones },
    { .name = "control variates are the paper's", .run = test_control_variates },
    { .name = "late updates count less", .run = test_buffered_rounds },
    { .name = "who is dismissed is not waited for", .run = test_dismissed },
    { .name = "a buffer that cannot be full is taken as it is",
      .run = test_buffer_that_is_never_full },
    { .name = "a deadline ends an asynchronous round", .run = test_buffer_by_deadline },
    { .name = "a personal head stays", .run = test_head_stays },
    { .name = "one liar moves little", .run = test_one_liar },
    { .name = "updates are counted", .run = test_updates_are_counted },
    { .name = "a refused update leaves the variate", .run = test_refused_control_variates },
    { .name = "a refused update leaves the error of compression",
      .run = test_refused_compression },
    { .name = "no round is below the minimum", .run = test_no_round_below_the_minimum },
    { .name = "a coordinator that failed says nothing more", .run = test_failures_stay },
    { 0 },
};
