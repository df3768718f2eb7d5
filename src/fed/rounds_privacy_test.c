/* SPDX-License-Identifier: MIT */
/* rounds_privacy_test.c - rounds with noise: what they cost, who may take part, and what is not told. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/test.h"
#include "fed/accountant.h"
#include "fed/quantize.h"
#include "fed/rounds_testing.h"

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
    CHECK_STATUS(STATUS_MISMATCH, federation_take_lie(&federation, lie_about_clip));
    CHECK_MESSAGE("noise is for the terms' 1");
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
        const int lost = federation_audited(&federation, "is lost");
        CHECK(lost > 0);
        CHECK_INT(lost,
                  federation_audited(&federation, "of the 2 participants that a round needs"));
        CHECK_INT(3 + lost, fed_server_round(federation.server));
        CHECK_INT(3, federation_audited(&federation, "begins with"));
        federation_end(&federation);
    }
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
    federation_post_as(federation, "p00", &message, &answer);
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
    CHECK_INT(1, federation_audited(&federation, "round 0 is lost: value 0 of a sum"));
    CHECK(federation_parameter(&federation) == 0);
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
    { .name = "a budget ends the rounds", .run = test_budget_ends_rounds },
    { "clips beyond the noise are refused", test_clips_beyond_the_noise_are_refused, NULL },
    { .name = "draws of too few are lost rounds", .run = test_small_draws_are_lost },
    { .name = "a ledger's neighbours stay the same", .run = test_neighbours_stay_the_same },
    { .name = "rounding is paid for", .run = test_rounding_is_paid_for },
    { .name = "lies cost a round", .run = test_lies_cost_a_round },
    { .name = "private losses are not told", .run = test_private_losses_are_not_told },
    { 0 },
};
