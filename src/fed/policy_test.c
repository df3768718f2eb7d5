/* SPDX-License-Identifier: MIT */
/* policy_test.c - demands that terms keep and break. */
#include "fed/policy.h"

#include <stdio.h>
#include <string.h>

#include "base/test.h"
#include "fed/trust.h"
#include "model/file.h"

static struct fed_terms terms_of(void)
{
    struct fed_terms terms;

    fed_terms_init(&terms);
    snprintf(terms.model, sizeof terms.model, "mlp");
    terms.epochs = 2;
    terms.steps = 0;
    terms.rounds = 10;
    terms.minimum = 3;
    return terms;
}

static enum status judge(const char *text, const struct fed_terms *terms)
{
    struct fed_policy *policy;

    CHECK_OK(fed_policy_parse(text, strlen(text), &policy));
    const enum status status = fed_policy_check(policy, terms);
    fed_policy_destroy(policy);
    return status;
}

/* A row for each rule: a demand that the terms keep, and one that they break. */
static const struct {
    const char *kept, *broken, *why;
} plain[] = {
    { "{}", "{\"max_epochs\": 1}", "epochs a round 2, the policy allows 1" },
    { "{\"max_epochs\": 2}", "{\"max_steps\": 100}", "count epochs" },
    { "{\"max_rounds\": 10}", "{\"max_rounds\": 9}", "rounds 10" },
    { "{\"min_participants\": 3}", "{\"min_participants\": 4}", "demands 4" },
    { "{\"models\": [\"cnn\", \"mlp\"]}", "{\"models\": [\"cnn\"]}", "model mlp" },
    { "{\"algorithms\": [\"fedavg\"]}", "{\"algorithms\": []}", "algorithm fedavg" },
    { "{\"secure\": false}", "{\"secure\": true}", "no secure aggregation" },
    { "{\"dp_sgd\": false}", "{\"dp_sgd\": true}", "no sample's gradient" },
    { "{\"min_noise\": 0}", "{\"min_noise\": 0.5}", "noise multiplier" },
    { "{\"max_model_bytes\": 10}", "{\"dp\": \"any\"}", "no differential privacy" },
    { "{}", "{\"max_epsilon\": 8}", "no differential privacy" },
    { "{}", "{\"max_record_epsilon\": 8}", "no sample's gradient" },
    { "{\"min_batch\": 32}", "{\"min_batch\": 33}", "a batch 32, the policy demands 33" },
    { "{}", "{\"max_samples\": 1000}", "as many samples as it tells" },
    { "{}", "{\"peers\": []}", "nobody knows the peers" },
    { "{}", "{\"min_cohort_difference\": 1}", "no secure aggregation" },
    { "{}", "{\"max_parameters\": 1}", "no model" },
    { "{}", "{\"max_delta\": 1e-5}", "no differential privacy" },
    { "{}", "{\"min_threshold\": 2}", "no secure aggregation" },
};

static void test_plain_terms(void)
{
    const struct fed_terms terms = terms_of();

    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        CHECK_OK(judge(plain[i].kept, &terms));
        CHECK_STATUS(STATUS_MISMATCH, judge(plain[i].broken, &terms));
        CHECK_MESSAGE(plain[i].why);
    }
}

static void test_samples_that_count_have_a_limit(void)
{
    struct fed_terms terms = terms_of();

    terms.max_samples = 500;
    CHECK_OK(judge("{\"max_samples\": 500}", &terms));
    CHECK_STATUS(STATUS_MISMATCH, judge("{\"max_samples\": 499}", &terms));
    CHECK_MESSAGE("counts by 500, the policy allows 499");
    terms.max_samples = 0;
    snprintf(terms.weighting, sizeof terms.weighting, "equal");
    CHECK_OK(judge("{\"max_samples\": 1}", &terms));
}

static void test_private_terms(void)
{
    struct fed_terms terms = terms_of();

    terms.secure = true;
    terms.minimum = 5;
    snprintf(terms.dp, sizeof terms.dp, "distributed");
    terms.epsilon = 8;
    terms.delta = 1e-6;
    terms.noise = 2.5;
    terms.steps = 50;
    CHECK_OK(judge("{\"secure\": true, \"dp\": \"any\", \"max_epsilon\": 8, \"max_delta\": "
                   "1e-5, \"min_noise\": 1, \"max_steps\": 50, \"min_threshold\": 4}",
                   &terms));
    CHECK_OK(judge("{\"dp\": \"distributed\"}", &terms));
    CHECK_STATUS(STATUS_MISMATCH, judge("{\"dp\": \"central\"}", &terms));
    terms.noise = 2.4; /* a promised budget of 8 is no limit: these rounds spend more */
    CHECK_STATUS(STATUS_MISMATCH, judge("{\"max_epsilon\": 6}", &terms));
    CHECK_MESSAGE("rounds and noise that spend an epsilon of");
    CHECK_OK(judge("{\"min_cohort_difference\": 1}", &terms));
    CHECK_STATUS(STATUS_MISMATCH, judge("{\"min_cohort_difference\": 2}", &terms));
    CHECK_OK(judge("{\"peers\": [\"berlin\"]}", &terms));
    CHECK_STATUS(STATUS_MISMATCH, judge("{\"max_delta\": 1e-7}", &terms));
    CHECK_STATUS(STATUS_MISMATCH, judge("{\"min_noise\": 2.6}", &terms));
    CHECK_STATUS(STATUS_MISMATCH, judge("{\"min_threshold\": 5}", &terms));
    CHECK_STATUS(STATUS_MISMATCH, judge("{\"max_steps\": 49}", &terms));
    CHECK_STATUS(STATUS_MISMATCH, judge("{\"max_epochs\": 100}", &terms));
    CHECK_MESSAGE("max_steps would allow them");
}

/* Limits on the model are held to its graph. */
static void test_models_have_limits(void)
{
    static const struct {
        const char *kept, *broken, *why;
    } cases[] = {
        { "{\"max_parameters\": 1e6}", "{\"max_parameters\": 1000}", "a model of parameters" },
        { "{\"max_operations\": 1e7}", "{\"max_operations\": 1000}", "operations a sample" },
        { "{\"max_outputs\": 10}", "{\"max_outputs\": 9}", "outputs a sample 10" },
        { "{\"layers\": [\"reshape\", \"linear\", \"relu\", \"softmax_cross_entropy\", "
          "\"bias\", "
          "\"accuracy\"]}",
          "{\"layers\": [\"relu\"]}", "the layer" },
    };
    const struct model *model = model_find("mlp");
    const struct model_config config = model_defaults(model);
    struct fed_terms terms = terms_of();
    struct strbuf text;

    strbuf_init(&text, MODEL_FILE_BYTES);
    CHECK_OK(model_file_print(model, &config, &text));
    terms.graph = text.text;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(judge(cases[i].kept, &terms));
        CHECK_STATUS(STATUS_MISMATCH, judge(cases[i].broken, &terms));
        CHECK_MESSAGE(cases[i].why);
    }
    strbuf_release(&text);
}

static enum status judge_peer(const char *text, const struct fed_identity *peer)
{
    struct fed_policy *policy;

    CHECK_OK(fed_policy_parse(text, strlen(text), &policy));
    const enum status status = fed_policy_check_peer(policy, peer);
    fed_policy_destroy(policy);
    return status;
}

/* Another key under a listed name is a stranger: an authority that the coordinator holds cannot add one. */
static void test_peers_are_listed(void)
{
    struct fed_identity peer = { .name = "berlin", .has_sign = true };

    memset(peer.sign, 0xab, sizeof peer.sign);
    CHECK_OK(judge_peer("{}", &peer));
    CHECK_OK(judge_peer("{\"peers\": [\"paris\", \"berlin\"]}", &peer));
    CHECK_STATUS(STATUS_MISMATCH, judge_peer("{\"peers\": [\"paris\", \"berlin2\"]}", &peer));
    CHECK_MESSAGE("berlin takes part");
    CHECK_OK(judge_peer("{\"peers\": [\"berlin:abababababababababababababababababababababababab"
                        "abababababABABAB\"]}",
                        &peer));
    CHECK_STATUS(STATUS_MISMATCH,
                 judge_peer("{\"peers\": [\"berlin:acababababababababababababababababababababab"
                            "ababababababababab\"]}",
                            &peer));
    CHECK_STATUS(STATUS_MISMATCH, judge_peer("{\"peers\": []}", &peer));
}

static void test_what_is_not_understood_is_refused(void)
{
    static const char *const bad[][2] = {
        { "{\"max_epoch\": 1}", "did you mean max_epochs" },
        { "{\"max_epochs\": \"1\"}", "not a number" },
        { "{\"secure\": 1}", "not true or false" },
        { "{\"models\": [1]}", "list of texts" },
        { "[]", "no JSON object" },
        { "{", "" },
    };
    struct fed_policy *policy;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_STATUS(STATUS_CORRUPT, fed_policy_parse(bad[i][0], strlen(bad[i][0]), &policy));
        CHECK_MESSAGE(bad[i][1]);
    }
}

const struct test tests[] = {
    { .name = "plain terms", .run = test_plain_terms },
    { .name = "samples that count have a limit", .run = test_samples_that_count_have_a_limit },
    { .name = "private terms", .run = test_private_terms },
    { .name = "models have limits", .run = test_models_have_limits },
    { .name = "peers are listed", .run = test_peers_are_listed },
    { .name = "what is not understood is refused",
      .run = test_what_is_not_understood_is_refused },
    { 0 },
};
