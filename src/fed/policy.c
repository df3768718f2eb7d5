/* SPDX-License-Identifier: MIT */
/* policy.c - a table of demands; a row adds one. */
#include "fed/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/suggest.h"

enum { POLICY_BYTES = 1 << 16 };

struct fed_policy {
    struct json *json;
};

/* Rules ------------------------------------------------------------------------------------ */

static enum status at_most(const char *what, double is, double most)
{
    if (is <= most)
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH, "the terms have %s %g, the policy allows %g", what, is, most);
}

static enum status at_least(const char *what, double is, double least)
{
    if (is >= least)
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH, "the terms have %s %g, the policy demands %g", what, is,
                least);
}

static enum status one_of(const char *what, const char *is, const struct json_value *list)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i].text, is) == 0)
            return STATUS_OK;
    }
    return FAIL(STATUS_MISMATCH, "the terms have the %s %s, which the policy does not list",
                what, is);
}

static enum status check_models(const struct json_value *value, const struct fed_terms *terms)
{
    return one_of("model", terms->model, value);
}

static enum status check_algorithms(const struct json_value *value,
                                    const struct fed_terms *terms)
{
    return one_of("algorithm", terms->algorithm, value);
}

/* Steps are another way to say how long; one pass is at least one step of a whole batch. */
static enum status check_epochs(const struct json_value *value, const struct fed_terms *terms)
{
    if (terms->steps > 0)
        return FAIL(STATUS_MISMATCH,
                    "the terms count steps (%" PRId64 " a round), the policy "
                    "epochs: max_steps would allow them",
                    terms->steps);
    return at_most("epochs a round", (double)terms->epochs, value->number);
}

static enum status check_steps(const struct json_value *value, const struct fed_terms *terms)
{
    if (terms->steps == 0)
        return FAIL(STATUS_MISMATCH,
                    "the terms count epochs (%" PRId64 " a round), the policy "
                    "steps: max_epochs would allow them",
                    terms->epochs);
    return at_most("steps a round", (double)terms->steps, value->number);
}

static enum status check_rounds(const struct json_value *value, const struct fed_terms *terms)
{
    return at_most("rounds", (double)terms->rounds, value->number);
}

static enum status check_minimum(const struct json_value *value, const struct fed_terms *terms)
{
    return at_least("participants of a round at least", (double)terms->minimum, value->number);
}

static enum status check_secure(const struct json_value *value, const struct fed_terms *terms)
{
    if (!value->boolean || terms->secure)
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH,
                "the terms have no secure aggregation (--secure), the policy demands it");
}

static enum status check_threshold(const struct json_value *value,
                                   const struct fed_terms *terms)
{
    if (!terms->secure)
        return FAIL(STATUS_MISMATCH,
                    "the terms have no secure aggregation, the policy a threshold for it");
    const int64_t threshold =
        terms->threshold ? terms->threshold : (2 * terms->minimum + 2) / 3;
    return at_least("a threshold", (double)threshold, value->number);
}

static enum status check_dp(const struct json_value *value, const struct fed_terms *terms)
{
    if (strcmp(value->text, "any") == 0 ? terms->dp[0] : strcmp(value->text, terms->dp) == 0)
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH,
                "the terms have %s differential privacy, the policy demands %s",
                terms->dp[0] ? terms->dp : "no", value->text);
}

static enum status check_epsilon(const struct json_value *value, const struct fed_terms *terms)
{
    if (!terms->dp[0] || terms->epsilon <= 0)
        return FAIL(STATUS_MISMATCH,
                    "the terms have no privacy budget (--dp-budget), the policy demands one");
    return at_most("a privacy budget epsilon", terms->epsilon, value->number);
}

static enum status check_delta(const struct json_value *value, const struct fed_terms *terms)
{
    if (!terms->dp[0])
        return FAIL(STATUS_MISMATCH, "the terms have no differential privacy");
    return at_most("a delta", terms->delta, value->number);
}

static enum status check_noise(const struct json_value *value, const struct fed_terms *terms)
{
    return at_least("a noise multiplier", terms->dp[0] ? terms->noise : 0, value->number);
}

static enum status check_dp_sgd(const struct json_value *value, const struct fed_terms *terms)
{
    if (!value->boolean || terms->dp_sgd[0])
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH,
                "the terms clip no sample's gradient (--dp-sgd), the policy demands it");
}

static enum status check_graph(const struct json_value *value, const struct fed_terms *terms)
{
    return at_most("a model of bytes", terms->graph ? (double)strlen(terms->graph) : 0,
                   value->number);
}

const struct fed_rule fed_policy_rules[] = {
    { "models", "names of models that may be trained", JSON_ARRAY, check_models },
    { "algorithms", "names of algorithms that may be used", JSON_ARRAY, check_algorithms },
    { "max_epochs", "passes over the local data a round", JSON_NUMBER, check_epochs },
    { "max_steps", "local steps a round", JSON_NUMBER, check_steps },
    { "max_rounds", "rounds in all", JSON_NUMBER, check_rounds },
    { "max_model_bytes", "length of the model's description", JSON_NUMBER, check_graph },
    { "min_participants", "without so many no round counts", JSON_NUMBER, check_minimum },
    { "secure", "true: secure aggregation is demanded", JSON_BOOL, check_secure },
    { "min_threshold", "so many must agree to unmask a sum", JSON_NUMBER, check_threshold },
    { "dp", "differential privacy: central, distributed or any", JSON_STRING, check_dp },
    { "max_epsilon", "privacy budget", JSON_NUMBER, check_epsilon },
    { "max_delta", "delta of the guarantee", JSON_NUMBER, check_delta },
    { "min_noise", "noise multiplier", JSON_NUMBER, check_noise },
    { "dp_sgd", "true: gradients are clipped and noised sample by sample", JSON_BOOL,
      check_dp_sgd },
    { 0 },
};

/* Policies ------------------------------------------------------------------------------------ */

static const struct fed_rule *find_rule(const char *name)
{
    for (const struct fed_rule *rule = fed_policy_rules; rule->name; rule++) {
        if (strcmp(rule->name, name) == 0)
            return rule;
    }
    return NULL;
}

static enum status unknown_member(const char *name)
{
    const char *names[32] = { NULL };

    for (int i = 0; fed_policy_rules[i].name; i++)
        names[i] = fed_policy_rules[i].name;
    const char *near = suggest_nearest(name, names);
    if (near)
        return FAIL(STATUS_CORRUPT, "policy: unknown member %.60s: did you mean %s?", name,
                    near);
    return FAIL(STATUS_CORRUPT, "policy: unknown member %.60s", name);
}

static enum status check_member(const char *name, const struct json_value *value)
{
    static const char *const kinds[] = { "null",   "true or false",   "a number",
                                         "a text", "a list of texts", "an object" };
    const struct fed_rule *rule = find_rule(name);

    if (!rule)
        return unknown_member(name);
    bool fits = value->kind == rule->kind;
    for (size_t i = 0; fits && value->kind == JSON_ARRAY && i < value->count; i++)
        fits = value->items[i].kind == JSON_STRING;
    if (!fits)
        return FAIL(STATUS_CORRUPT, "policy: %s is not %s", name, kinds[rule->kind]);
    return STATUS_OK;
}

static enum status check_members(const struct json_value *root)
{
    if (root->kind != JSON_OBJECT)
        return FAIL(STATUS_CORRUPT, "policy: is no JSON object");
    for (size_t i = 0; i < root->count; i++)
        TRY(check_member(root->keys[i], &root->items[i]));
    return STATUS_OK;
}

enum status fed_policy_parse(const char *text, size_t length, struct fed_policy **out)
{
    struct fed_policy *policy;
    struct json *json;

    TRY(json_parse(text, length, &json));
    enum status status = check_members(json_root(json));
    if (status == STATUS_OK)
        status = mem_alloc(1, sizeof *policy, &policy);
    if (status != STATUS_OK) {
        json_destroy(json);
        return status;
    }
    policy->json = json;
    *out = policy;
    return STATUS_OK;
}

enum status fed_policy_read(const char *path, struct fed_policy **out)
{
    char *text;
    size_t length;

    TRY(file_read(path, POLICY_BYTES, &text, &length));
    const enum status status = fed_policy_parse(text, length, out);
    mem_free(text);
    if (status != STATUS_OK) {
        char why[256];
        snprintf(why, sizeof why, "%s", status_message());
        return FAIL(status, "%s: %s", path, why);
    }
    return STATUS_OK;
}

void fed_policy_destroy(struct fed_policy *policy)
{
    if (!policy)
        return;
    json_destroy(policy->json);
    mem_free(policy);
}

enum status fed_policy_check(const struct fed_policy *policy, const struct fed_terms *terms)
{
    const struct json_value *root = json_root(policy->json);

    for (size_t i = 0; i < root->count; i++)
        TRY(find_rule(root->keys[i])->check(&root->items[i], terms));
    return STATUS_OK;
}
