/* SPDX-License-Identifier: MIT */
/* terms.c - terms from text and JSON, and back; what cannot be is refused. */
#include "fed/terms.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "comm/codec.h"
#include "fed/algorithm.h"
#include "fed/dp_sgd.h"
#include "fed/secagg.h"
#include "optim/optim.h"

enum { FIELD_MOST = 1 << 10 }; /* bytes of one as JSON */

void fed_terms_init(struct fed_terms *terms)
{
    *terms = (struct fed_terms){
        .batch = 32,
        .epochs = 1,
        .optimizer = "sgd",
        .lr = NAN,
        .momentum = NAN,
        .weight_decay = NAN,
        .lr_decay = 1,
        .seed = 1, /* as train has it */
        .shuffle = true,
        .rounds = 10,
        .fraction = 1,
        .minimum = 2,
        .algorithm = "fedavg",
        .mu = 0.01,
        .server_lr = NAN,
        .server_momentum = 0.9,
        .beta1 = 0.9,
        .beta2 = 0.99,
        .tau = 1e-3,
        .buffer = 10,
        .weighting = "samples",
        .aggregate = "mean",
        .range = 8,
        .bits = 32,
        .clip_lr = 0.2,
        .delta = 1e-5,
    };
}

uint32_t fed_terms_cohort_difference(const struct fed_terms *terms)
{
    if (terms->cohort_difference > 0)
        return (uint32_t)terms->cohort_difference;
    return terms->secure && !*terms->dp ? 2 : 1;
}

uint64_t fed_terms_samples(const struct fed_terms *terms, uint64_t samples)
{
    const uint64_t most = (uint64_t)terms->max_samples;

    return most > 0 && samples > most ? most : samples;
}

void fed_terms_release(struct fed_terms *terms)
{
    mem_free(terms->graph);
    terms->graph = NULL;
}

/* From text ------------------------------------------------------------------------------------ */

static enum status refuse(const struct fed_flag *flag, const char *text, const char *why)
{
    return FAIL(STATUS_USAGE, "--%s %.64s: %s", flag->name, text, why);
}

static enum status check_range(const struct fed_flag *flag, const char *text, double number)
{
    char why[96];

    if (number >= flag->minimum && number <= flag->maximum)
        return STATUS_OK;
    snprintf(why, sizeof why, "a number from %g to %g", flag->minimum, flag->maximum);
    return refuse(flag, text, why);
}

static enum status set_number(void *field, const struct fed_flag *flag, const char *text)
{
    char *end;
    const double number = strtod(text, &end);

    if (end == text || *end || !isfinite(number))
        return refuse(flag, text, "not a number");
    TRY(check_range(flag, text, number));
    memcpy(field, &number, sizeof number);
    return STATUS_OK;
}

static enum status set_integer(void *field, const struct fed_flag *flag, const char *text)
{
    char *end;

    errno = 0;
    const long long whole = strtoll(text, &end, 10);
    if (end == text || *end || errno)
        return refuse(flag, text, "not a whole number");
    TRY(check_range(flag, text, (double)whole));
    const int64_t number = whole;
    memcpy(field, &number, sizeof number);
    return STATUS_OK;
}

static enum status set_unsigned(void *field, const struct fed_flag *flag, const char *text)
{
    char *end;

    errno = 0;
    const unsigned long long whole = strtoull(text, &end, 10);
    if (end == text || *end || errno || strchr(text, '-'))
        return refuse(flag, text, "not a whole number from 0 on");
    const uint64_t number = whole;
    memcpy(field, &number, sizeof number);
    return STATUS_OK;
}

enum status fed_terms_set(struct fed_terms *terms, const struct fed_flag *flag,
                          const char *text)
{
    void *field = (char *)terms + flag->offset;

    switch (flag->kind) {
    case FED_FLAG_TEXT:
        if (strlen(text) >= FED_TEXT)
            return refuse(flag, text, "too long");
        snprintf(field, FED_TEXT, "%s", text);
        return STATUS_OK;
    case FED_FLAG_INTEGER:
        return set_integer(field, flag, text);
    case FED_FLAG_UNSIGNED:
        return set_unsigned(field, flag, text);
    case FED_FLAG_NUMBER:
        return set_number(field, flag, text);
    case FED_FLAG_SWITCH:
    default: {
        const bool on = strcmp(text, "true") == 0;
        if (!on && strcmp(text, "false") != 0)
            return refuse(flag, text, "true or false");
        memcpy(field, &on, sizeof on);
        return STATUS_OK;
    }
    }
}

/* JSON ----------------------------------------------------------------------------------------- */

/* "per-round" is "per_round" in JSON. */
static void json_key(const struct fed_flag *flag, char key[64])
{
    snprintf(key, 64, "%s", flag->name);
    for (char *c = key; *c; c++)
        *c = *c == '-' ? '_' : *c;
}

static void print_field(const struct fed_terms *terms, const struct fed_flag *flag,
                        struct strbuf *out)
{
    const char *field = (const char *)terms + flag->offset;
    int64_t whole;
    uint64_t big;
    double number;

    switch (flag->kind) {
    case FED_FLAG_TEXT:
        strbuf_add_json(out, field);
        break;
    case FED_FLAG_INTEGER:
        memcpy(&whole, field, sizeof whole);
        strbuf_printf(out, "%" PRId64, whole);
        break;
    case FED_FLAG_UNSIGNED: /* as text: a JSON number may not hold it */
        memcpy(&big, field, sizeof big);
        strbuf_printf(out, "\"%" PRIu64 "\"", big);
        break;
    case FED_FLAG_NUMBER:
        memcpy(&number, field, sizeof number);
        strbuf_add_number(out, number);
        break;
    case FED_FLAG_SWITCH:
    default:
        strbuf_add(out, *(const bool *)field ? "true" : "false");
    }
}

const struct fed_flag *fed_terms_differ(const struct fed_terms *a, const struct fed_terms *b)
{
    for (const struct fed_flag *flag = fed_flags; flag->name; flag++) {
        struct strbuf one, two;
        strbuf_init(&one, FIELD_MOST);
        strbuf_init(&two, FIELD_MOST);
        print_field(a, flag, &one);
        print_field(b, flag, &two);
        const bool differs = strcmp(one.text, two.text) != 0;
        strbuf_release(&one);
        strbuf_release(&two);
        if (differs)
            return flag;
    }
    return NULL;
}

void fed_terms_print(const struct fed_terms *terms, struct strbuf *out)
{
    strbuf_add(out, "{");
    for (const struct fed_flag *flag = fed_flags; flag->name; flag++) {
        char key[64];
        json_key(flag, key);
        strbuf_printf(out, "%s\"%s\": ", flag == fed_flags ? "" : ", ", key);
        print_field(terms, flag, out);
    }
    if (terms->graph) {
        strbuf_add(out, ", \"graph\": ");
        strbuf_add_json(out, terms->graph);
    }
    strbuf_add(out, "}");
}

/* A member as text, as fed_terms_set takes it; NULL: of a wrong kind. */
static const char *as_text(const struct json_value *member, char text[64])
{
    if (member->kind == JSON_STRING)
        return member->text;
    if (member->kind == JSON_BOOL)
        return member->boolean ? "true" : "false";
    if (member->kind != JSON_NUMBER)
        return NULL;
    if (member->is_integer)
        snprintf(text, 64, "%" PRId64, member->integer);
    else
        snprintf(text, 64, "%.17g", member->number);
    return text;
}

static const struct fed_flag *flag_of_key(const char *key)
{
    for (const struct fed_flag *flag = fed_flags; flag->name; flag++) {
        char name[64];
        json_key(flag, name);
        if (strcmp(name, key) == 0)
            return flag;
    }
    return NULL;
}

static enum status read_member(struct fed_terms *terms, const char *key,
                               const struct json_value *member)
{
    const struct fed_flag *flag = flag_of_key(key);
    char text[64];

    if (strcmp(key, "graph") == 0) {
        if (member->kind != JSON_STRING || strlen(member->text) > FED_GRAPH_TEXT)
            return FAIL(STATUS_CORRUPT, "terms: graph is no text, or too long a one");
        return mem_strdup(member->text, &terms->graph);
    }
    if (!flag)
        return FAIL(STATUS_CORRUPT, "terms: unknown member %.40s", key);
    if (member->kind == JSON_NULL) /* a default */
        return STATUS_OK;
    const char *value = as_text(member, text);
    if (!value)
        return FAIL(STATUS_CORRUPT, "terms: member %s has the wrong kind", key);
    if (fed_terms_set(terms, flag, value) != STATUS_OK)
        return FAIL(STATUS_CORRUPT, "terms: %s", status_message());
    return STATUS_OK;
}

enum status fed_terms_read(const char *text, size_t length, struct fed_terms *out)
{
    struct fed_terms terms;
    struct json *json;

    TRY(json_parse(text, length, &json));
    const struct json_value *root = json_root(json);
    enum status status =
        root->kind == JSON_OBJECT ? STATUS_OK : FAIL(STATUS_CORRUPT, "terms: no JSON object");
    fed_terms_init(&terms);
    for (size_t i = 0; status == STATUS_OK && i < root->count; i++)
        status = read_member(&terms, root->keys[i], &root->items[i]);
    json_destroy(json);
    if (status == STATUS_OK && !terms.graph)
        status = FAIL(STATUS_CORRUPT, "terms: they have no graph");
    if (status == STATUS_OK)
        status = fed_terms_check(&terms);
    if (status != STATUS_OK) {
        fed_terms_release(&terms);
        return status == STATUS_USAGE ? FAIL(STATUS_CORRUPT, "terms: %s", status_message())
                                      : status;
    }
    *out = terms;
    return STATUS_OK;
}

/* What goes together --------------------------------------------------------------------------- */

static enum status check_names(const struct fed_terms *terms)
{
    const char *optimizers[64] = { NULL };
    struct codec_config codec;
    struct fed_aggregation aggregation;

    for (int i = 0; optim_table[i] && i < 63; i++)
        optimizers[i] = optim_table[i]->name;
    if (!optim_find(terms->optimizer)) {
        const char *near = suggest_nearest(terms->optimizer, optimizers);
        return FAIL(STATUS_USAGE, "unknown optimizer %s%s%s", terms->optimizer,
                    near ? ": did you mean " : "", near ? near : "");
    }
    if (!fed_algorithm_find(terms->algorithm))
        return FAIL(STATUS_USAGE,
                    "--algorithm %s: there are fedavg, fedprox, fedavgm, fedadam, fedyogi, "
                    "scaffold and fedbuff",
                    terms->algorithm);
    if (strcmp(terms->weighting, "samples") != 0 && strcmp(terms->weighting, "equal") != 0)
        return FAIL(STATUS_USAGE, "--weighting %s: samples or equal", terms->weighting);
    if (*terms->dp && strcmp(terms->dp, "central") != 0 &&
        strcmp(terms->dp, "distributed") != 0)
        return FAIL(STATUS_USAGE, "--dp %s: central or distributed", terms->dp);
    if (*terms->dp_sgd) {
        double clip, noise;
        TRY(fed_dp_sgd_parse(terms->dp_sgd, &clip, &noise));
    }
    if (*terms->compress) {
        TRY(codec_parse(terms->compress, &codec));
        if (strcmp(codec_name(codec.codec), "powersgd") == 0)
            return FAIL(STATUS_USAGE,
                        "--compress %s: its parts need two meetings of all: use "
                        "bf16, int8, onebit or topk",
                        terms->compress);
    }
    return fed_aggregation_parse(terms->aggregate, &aggregation);
}

_Static_assert(SECAGG_PARTICIPANTS == 4096, "a rule below says so");

static enum status check_pairs(const struct fed_terms *t)
{
    const struct fed_algorithm *algorithm = fed_algorithm_find(t->algorithm);
    struct fed_aggregation aggregation;
    struct fed_terms usual;

    fed_terms_init(&usual);
    TRY(fed_aggregation_parse(t->aggregate, &aggregation));
    const bool robust = aggregation.kind->is_robust;
    const bool distributed = strcmp(t->dp, "distributed") == 0;
    const int64_t most = t->per_round > t->minimum ? t->per_round : t->minimum;
    const struct {
        bool is_refused;
        const char *what, *why;
    } rules[] = {
        { t->full_batch != (t->batch == 0), "--full-batch and --batch",
          "all samples, or so many" },
        { t->epochs < 1 && t->steps < 1, "--epochs 0 and --steps 0", "nobody would train" },
        { t->secure && robust, "--secure and --aggregate",
          "of masked updates the server sees the sum alone, no median and no distances" },
        { t->secure && algorithm->is_buffered, "--secure and --algorithm fedbuff",
          "masks cancel among those of one round, and there are no rounds of fixed members" },
        { t->secure && *t->compress, "--secure and --compress",
          "masked numbers look random and have no fewer bits" },
        { t->secure && t->bits != 32 && t->bits != 64, "--bits", "32 or 64" },
        { t->secure && t->minimum < 2, "--secure and --min-participants 1",
          "the sum of one update is that update: take 2 or more" },
        { t->secure && most > SECAGG_PARTICIPANTS, "--secure and --per-round",
          "secure aggregation takes 4096 participants a round at most" },
        { t->threshold && !t->secure, "--threshold needs --secure",
          "without it there are no masks to take away" },
        { t->range != usual.range && !t->secure, "--range needs --secure",
          "without it updates are not cut off" },
        { t->bits != usual.bits && !t->secure, "--bits needs --secure",
          "without it there is no ring" },
        { t->mu != usual.mu && !algorithm->is_anchored, "--mu needs --algorithm fedprox",
          "others have no such weight" },
        { t->buffer != usual.buffer && !algorithm->is_buffered,
          "--buffer needs --algorithm fedbuff", "others have rounds of fixed members" },
        { t->threshold > t->minimum, "--threshold above --min-participants",
          "a round of no more than these could not end: take as many for both" },
        { t->threshold && t->threshold <= most / 2, "--threshold",
          "it is more than half of --per-round and of --min-participants" },
        { !algorithm->is_buffered && t->per_round && t->per_round < t->minimum,
          "--per-round below --min-participants", "no round of so few would count" },
        { algorithm->is_buffered && robust, "--algorithm fedbuff and --aggregate",
          "updates of different ages are not compared: use mean" },
        { algorithm->n_vectors > 1 && robust, "--algorithm scaffold and --aggregate",
          "control variates need the mean of all" },
        { algorithm->n_vectors > 1 && *t->dp, "--algorithm scaffold and --dp",
          "control variates would tell what the clipped update does not" },
        { algorithm->n_vectors > 1 && strcmp(t->optimizer, "sgd") != 0,
          "--algorithm scaffold and --optimizer",
          "its correction is one of plain SGD: use sgd" },
        { algorithm->is_buffered && *t->dp, "--algorithm fedbuff and --dp",
          "the accountant needs to know who may be in a round" },
        { *t->dp && robust, "--dp and --aggregate",
          "noise is for the mean of clipped updates" },
        { *t->dp && t->clip <= 0, "--dp needs --dp-clip", "above 0" },
        { *t->dp && t->noise <= 0, "--dp needs --dp-noise", "above 0" },
        { *t->dp && strcmp(t->weighting, "equal") != 0, "--dp needs --weighting equal",
          "else one participant's share of the mean has no bound" },
        { *t->dp && *t->compress, "--dp and --compress",
          "error feedback would let an update past its clip" },
        { distributed && !t->secure, "--dp distributed needs --secure",
          "a single participant's share of the noise does not hide its update" },
        { distributed && t->clip_quantile > 0, "--dp distributed and --dp-quantile",
          "the clip is fixed where participants add the noise" },
        { t->standardize && *t->dp, "--standardize and --dp",
          "sums over rows would be told without noise" },
        { t->standardize && *t->dp_sgd, "--standardize and --dp-sgd",
          "means and deviations of a table tell of single samples without noise" },
        { t->epsilon > 0 && !*t->dp, "--dp-budget needs --dp", "central or distributed" },
        { t->clip > 0 && !*t->dp, "--dp-clip needs --dp", "central or distributed" },
        { t->noise > 0 && !*t->dp, "--dp-noise needs --dp", "central or distributed" },
        { t->clip_quantile > 0 && !*t->dp, "--dp-quantile needs --dp", "central" },
        { t->cohort_difference > 0 && !t->secure, "--cohort-difference needs --secure",
          "else the coordinator sees each update" },
        { t->cohort_difference > t->minimum, "--cohort-difference above --min-participants",
          "rounds of so few would differ by less" },
        { t->max_norm > 0 && *t->dp, "--max-norm and --dp", "--dp-clip is that norm" },
        { t->max_norm > 0 && *t->compress, "--max-norm and --compress",
          "error feedback would let an update past its norm" },
        { t->max_samples > 0 && strcmp(t->weighting, "samples") != 0,
          "--max-samples needs --weighting samples", "equal weights count no samples" },
        { t->lr_decay < 1 && !isfinite(t->lr), "--lr-decay needs --lr", "to be a share of it" },
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (rules[i].is_refused)
            return FAIL(STATUS_USAGE, "%s: %s", rules[i].what, rules[i].why);
    }
    return STATUS_OK;
}

/* Could a round of the fewest be aggregated? */
static enum status check_least(const struct fed_terms *t)
{
    struct fed_aggregation aggregation;

    TRY(fed_aggregation_parse(t->aggregate, &aggregation));
    const int least = fed_aggregation_least(&aggregation);
    if (t->per_round && t->per_round < least)
        return FAIL(STATUS_USAGE,
                    "--per-round %" PRId64 " and --aggregate %s: it needs %d updates",
                    t->per_round, t->aggregate, least);
    if (t->minimum < least)
        return FAIL(STATUS_USAGE,
                    "--aggregate %s needs %d updates a round: take --min-participants %d",
                    t->aggregate, least, least);
    return STATUS_OK;
}

enum status fed_terms_check(const struct fed_terms *terms)
{
    if (!*terms->model)
        return FAIL(STATUS_USAGE, "no model is named");
    TRY(check_names(terms));
    TRY(check_pairs(terms));
    return check_least(terms);
}
