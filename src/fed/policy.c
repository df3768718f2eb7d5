/* SPDX-License-Identifier: MIT */
/* policy.c - a table of demands; a row adds one. */
#include "fed/policy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "fed/spending.h"
#include "fed/trust.h"
#include "graph/graph.h"
#include "graph/op.h"
#include "model/file.h"

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

double fed_policy_delta(const struct fed_terms *terms)
{
    return fmin(terms->delta, 1e-5);
}

/* By the participant's own accountant: a budget that the coordinator promises to keep is no limit. */
static enum status check_epsilon(const struct json_value *value, const struct fed_terms *terms)
{
    double epsilon;

    if (!terms->dp[0])
        return FAIL(STATUS_MISMATCH,
                    "the terms have no differential privacy (--dp), the policy demands it");
    TRY(fed_terms_epsilon(terms, false, 0, fed_policy_delta(terms), &epsilon));
    return at_most("rounds and noise that spend an epsilon of", epsilon, value->number);
}

/* Once the data are known: fed_policy_check_records. */
static enum status check_record_epsilon(const struct json_value *value,
                                        const struct fed_terms *terms)
{
    (void)value;
    return terms->dp_sgd[0] ? STATUS_OK
                            : FAIL(STATUS_MISMATCH,
                                   "the terms clip no sample's gradient (--dp-sgd), the policy "
                                   "limits what records spend");
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

/* The model -------------------------------------------------------------------------------- */

/* Calls `visit` with the model's graph for a batch of one. */
static enum status with_graph(const struct fed_terms *terms, const struct json_value *value,
                              enum status (*visit)(const struct json_value *value,
                                                   struct graph *graph))
{
    struct model_file *file;
    struct graph *graph;

    if (!terms->graph)
        return FAIL(STATUS_MISMATCH, "the terms have no model that a limit could be held to");
    TRY(model_file_parse(terms->graph, strlen(terms->graph), &file));
    const struct model *model = model_file_model(file);
    const struct model_config config = model_defaults(model);
    enum status status = model_build(model, &config, &graph);
    if (status == STATUS_OK) {
        status = visit(value, graph);
        graph_destroy(graph);
    }
    model_file_destroy(file);
    return status;
}

static enum status judge_parameters(const struct json_value *value, struct graph *graph)
{
    return at_most("a model of parameters", (double)graph_param_count(graph), value->number);
}

static enum status check_parameters(const struct json_value *value,
                                    const struct fed_terms *terms)
{
    return with_graph(terms, value, judge_parameters);
}

static enum status judge_operations(const struct json_value *value, struct graph *graph)
{
    return at_most("a model of operations a sample", graph_flops(graph, 1), value->number);
}

static enum status check_operations(const struct json_value *value,
                                    const struct fed_terms *terms)
{
    return with_graph(terms, value, judge_operations);
}

static enum status judge_outputs(const struct json_value *value, struct graph *graph)
{
    const struct value *output = graph_roles(graph)->output;

    return at_most("a model of outputs a sample",
                   output ? (double)shape_count(&output->shape) : 0, value->number);
}

static enum status check_outputs(const struct json_value *value, const struct fed_terms *terms)
{
    return with_graph(terms, value, judge_outputs);
}

static enum status judge_layers(const struct json_value *value, struct graph *graph)
{
    for (int i = 0; i < graph_node_count(graph); i++)
        TRY(one_of("layer", graph_node(graph, i)->op->name, value));
    return STATUS_OK;
}

static enum status check_layers(const struct json_value *value, const struct fed_terms *terms)
{
    return with_graph(terms, value, judge_layers);
}

static enum status check_batch(const struct json_value *value, const struct fed_terms *terms)
{
    if (terms->batch == 0) /* all samples */
        return STATUS_OK;
    return at_least("a batch", (double)terms->batch, value->number);
}

/* A limit holds for every participant: also for one that tells more samples than it has. */
static enum status check_samples(const struct json_value *value, const struct fed_terms *terms)
{
    if (strcmp(terms->weighting, "equal") == 0)
        return STATUS_OK;
    if (terms->max_samples == 0)
        return FAIL(STATUS_MISMATCH, "a participant counts by as many samples as it tells, the "
                                     "policy sets a limit: use --max-samples");
    return at_most("samples that a participant counts by", (double)terms->max_samples,
                   value->number);
}

static enum status check_difference(const struct json_value *value,
                                    const struct fed_terms *terms)
{
    if (!terms->secure)
        return FAIL(STATUS_MISMATCH, "the terms have no secure aggregation, the policy a "
                                     "difference of its cohorts");
    return at_least("a difference of cohorts", (double)fed_terms_cohort_difference(terms),
                    value->number);
}

/* Peers are known when a round has them: fed_policy_check_peer. */
static enum status check_peers(const struct json_value *value, const struct fed_terms *terms)
{
    (void)value;
    return terms->secure
               ? STATUS_OK
               : FAIL(STATUS_MISMATCH, "the terms have no secure aggregation, so that "
                                       "nobody knows the peers that the policy lists");
}

const struct fed_rule fed_policy_rules[] = {
    { "models", "names of models that may be trained", JSON_ARRAY, check_models },
    { "algorithms", "names of algorithms that may be used", JSON_ARRAY, check_algorithms },
    { "max_epochs", "passes over the local data a round", JSON_NUMBER, check_epochs },
    { "max_steps", "local steps a round", JSON_NUMBER, check_steps },
    { "max_rounds", "rounds in all", JSON_NUMBER, check_rounds },
    { "min_batch", "samples of a local step", JSON_NUMBER, check_batch },
    { "max_samples", "by which the update of any participant counts", JSON_NUMBER,
      check_samples },
    { "max_parameters", "of the model", JSON_NUMBER, check_parameters },
    { "max_operations", "floating-point operations of the model for a sample, forward",
      JSON_NUMBER, check_operations },
    { "max_outputs", "numbers that the model gives for a sample", JSON_NUMBER, check_outputs },
    { "layers", "operations that the model may have", JSON_ARRAY, check_layers },
    { "max_model_bytes", "length of the model's description", JSON_NUMBER, check_graph },
    { "min_participants", "without so many no round counts", JSON_NUMBER, check_minimum },
    { "secure", "true: secure aggregation is demanded", JSON_BOOL, check_secure },
    { "min_threshold", "so many must agree to unmask a sum", JSON_NUMBER, check_threshold },
    { "dp", "differential privacy: central, distributed or any", JSON_STRING, check_dp },
    { "min_cohort_difference", "sums of rounds differ by none or so many participants",
      JSON_NUMBER, check_difference },
    { "peers", "who may be in a secure round: names, or NAME:KEY", JSON_ARRAY, check_peers },
    { "max_epsilon", "that updates spend in all, by this participant's own count", JSON_NUMBER,
      check_epsilon },
    { "max_record_epsilon", "that a record spends in all, by --dp-sgd", JSON_NUMBER,
      check_record_epsilon },
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

static const struct json_value *demand(const struct fed_policy *policy, const char *name)
{
    return policy ? json_get(json_root(policy->json), name) : NULL;
}

double fed_policy_epsilon(const struct fed_policy *policy, bool is_record)
{
    const struct json_value *most =
        demand(policy, is_record ? "max_record_epsilon" : "max_epsilon");

    return most ? most->number : (double)INFINITY;
}

enum status fed_policy_check_records(const struct fed_policy *policy,
                                     const struct fed_terms *terms, uint64_t passes)
{
    const double most = fed_policy_epsilon(policy, true);
    double epsilon;

    if (isinf(most))
        return STATUS_OK;
    TRY(fed_terms_epsilon(terms, true, passes, fed_policy_delta(terms), &epsilon));
    return at_most("local steps and noise that spend a record's epsilon of", epsilon, most);
}

/* "name", or "name:HEX" with the key. */
static bool is_listed(const char *entry, const struct fed_identity *peer)
{
    const size_t name = strlen(peer->name);
    char hex[2 * FED_SIGN_PUBLIC + 1];

    if (strncmp(entry, peer->name, name) != 0)
        return false;
    if (!entry[name])
        return true;
    for (int i = 0; i < FED_SIGN_PUBLIC; i++)
        snprintf(hex + 2 * i, 3, "%02x", peer->sign[i]);
    return entry[name] == ':' && strcasecmp(entry + name + 1, hex) == 0;
}

enum status fed_policy_check_peer(const struct fed_policy *policy,
                                  const struct fed_identity *peer)
{
    const struct json_value *list = demand(policy, "peers");

    for (size_t i = 0; list && i < list->count; i++) {
        if (is_listed(list->items[i].text, peer))
            return STATUS_OK;
    }
    return list ? FAIL(STATUS_MISMATCH,
                       "%s takes part, with a key that the policy's peers do not list",
                       peer->name)
                : STATUS_OK;
}
