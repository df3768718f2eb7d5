/* SPDX-License-Identifier: MIT */
/* terms_test.c - terms as flags and as JSON. */
#include "fed/terms.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

static void usual(struct fed_terms *terms)
{
    fed_terms_init(terms);
    snprintf(terms->model, sizeof terms->model, "mlp");
    CHECK_OK(mem_strdup("{\"a graph\": \"\\u00e4\"}", &terms->graph));
}

static void print(const struct fed_terms *terms, struct strbuf *out)
{
    strbuf_init(out, 1 << 20);
    fed_terms_print(terms, out);
    CHECK_OK(strbuf_status(out));
}

/* Every flag, set to a value in its range, survives the way there and back. */
static void test_there_and_back(void)
{
    struct fed_terms terms, read;
    struct strbuf text, again;

    usual(&terms);
    terms.seed = UINT64_MAX;
    terms.rounds = 77;
    terms.minimum = 7;
    terms.lr = 0.1;
    snprintf(terms.aggregate, sizeof terms.aggregate, "multikrum:2,3");
    snprintf(terms.compress, sizeof terms.compress, "topk:0.01");
    print(&terms, &text);
    CHECK_OK(fed_terms_read(text.text, text.length, &read));
    print(&read, &again);
    CHECK_TEXT(text.text, again.text);
    CHECK(read.seed == UINT64_MAX && read.lr == 0.1 && isnan(read.momentum));
    CHECK_TEXT(terms.graph, read.graph);
    strbuf_release(&text);
    strbuf_release(&again);
    fed_terms_release(&terms);
    fed_terms_release(&read);
}

static void test_refused_json(void)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        { "[]", "no JSON object" },
        { "{\"model\": \"m\"}", "no graph" },
        { "{\"graph\": \"{}\"}", "no model" },
        { "{\"graph\": \"{}\", \"model\": \"m\", \"data\": \"/etc\"}", "unknown member data" },
        { "{\"graph\": \"{}\", \"model\": \"m\", \"rounds\": 0}", "from 1" },
        { "{\"graph\": \"{}\", \"model\": \"m\", \"rounds\": 1.5}", "whole number" },
        { "{\"graph\": \"{}\", \"model\": \"m\", \"rounds\": []}", "wrong kind" },
        { "{\"graph\": \"{}\", \"model\": \"m\", \"lr\": \"nan\"}", "not a number" },
        { "{\"graph\": \"{}\", \"model\": \"m\", \"optimizer\": \"sdg\"}", "did you mean sgd" },
        { "{\"graph\": 1, \"model\": \"m\"}", "graph is no text" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fed_terms terms;
        CHECK_STATUS(STATUS_CORRUPT,
                     fed_terms_read(rows[i].text, strlen(rows[i].text), &terms));
        CHECK_MESSAGE(rows[i].why);
    }
}

/* What cannot go together: pairs of flag and value, and a word of the reason. */
static void test_impossible_terms(void)
{
    static const struct {
        const char *flag[3], *value[3], *why;
    } rows[] = {
        { { "algorithm" }, { "fedavgg" }, "there are fedavg" },
        { { "aggregate" }, { "krum" }, "krum:F" },
        { { "weighting" }, { "half" }, "samples or equal" },
        { { "compress" }, { "powersgd:4" }, "two meetings" },
        { { "secure", "aggregate" }, { "true", "median" }, "sum alone" },
        { { "secure", "algorithm" }, { "true", "fedbuff" }, "masks cancel" },
        { { "secure", "compress" }, { "true", "bf16" }, "look random" },
        { { "secure", "min-participants" }, { "true", "1" }, "of one update" },
        { { "secure", "per-round" }, { "true", "1" }, "so few would count" },
        { { "secure", "per-round" }, { "true", "5000" }, "4096 participants" },
        { { "threshold" }, { "2" }, "needs --secure" },
        { { "range" }, { "4" }, "--range needs --secure" },
        { { "bits" }, { "64" }, "--bits needs --secure" },
        { { "mu" }, { "1" }, "--mu needs --algorithm fedprox" },
        { { "buffer", "algorithm" }, { "3", "fedavgm" }, "--buffer needs --algorithm fedbuff" },
        { { "secure", "threshold" }, { "true", "1" }, "more than half" },
        { { "secure", "threshold" }, { "true", "3" }, "could not end" },
        { { "secure", "threshold", "per-round" }, { "true", "2", "4" }, "more than half" },
        { { "per-round", "min-participants" }, { "3", "4" }, "so few would count" },
        { { "aggregate" }, { "krum:1" }, "take --min-participants 5" },
        { { "aggregate", "min-participants" },
          { "multikrum:1,6", "5" },
          "--min-participants 6" },
        { { "aggregate", "per-round" }, { "krum:0", "2" }, "it needs 3 updates" },
        { { "dp" }, { "central" }, "--dp-clip" },
        { { "dp-clip" }, { "1" }, "--dp-clip needs --dp" },
        { { "dp-noise" }, { "1" }, "--dp-noise needs --dp" },
        { { "dp-quantile" }, { "0.5" }, "--dp-quantile needs --dp" },
        { { "dp", "dp-clip", "dp-noise" }, { "central", "1", "1" }, "--weighting equal" },
        { { "dp-budget" }, { "3" }, "needs --dp" },
        { { "algorithm", "optimizer" }, { "scaffold", "adam" }, "plain SGD" },
        { { "full-batch" }, { "true" }, "all samples, or so many" },
        { { "lr-decay" }, { "0.9" }, "needs --lr" },
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fed_terms terms;
        usual(&terms);
        CHECK_OK(fed_terms_check(&terms));
        for (int k = 0; k < 3 && rows[i].flag[k]; k++)
            CHECK_OK(fed_terms_set(&terms, fed_flag_find(rows[i].flag[k]), rows[i].value[k]));
        CHECK_STATUS(STATUS_USAGE, fed_terms_check(&terms));
        CHECK_MESSAGE(rows[i].why);
        fed_terms_release(&terms);
    }
}

static void test_flags_have_ranges(void)
{
    struct fed_terms terms;

    usual(&terms);
    for (const struct fed_flag *flag = fed_flags; flag->name; flag++) {
        char text[64];
        const bool numeric = flag->kind == FED_FLAG_INTEGER || flag->kind == FED_FLAG_NUMBER;
        CHECK(fed_flag_find(flag->name) == flag);
        if (!numeric)
            continue;
        snprintf(text, sizeof text, "%.17g", flag->minimum - 1);
        CHECK_STATUS(STATUS_USAGE, fed_terms_set(&terms, flag, text));
        snprintf(text, sizeof text, "%.17g", flag->maximum * 2 + 1);
        CHECK_STATUS(STATUS_USAGE, fed_terms_set(&terms, flag, text));
        CHECK_STATUS(STATUS_USAGE, fed_terms_set(&terms, flag, "x"));
        CHECK_MESSAGE(flag->name);
    }
    CHECK(fed_flag_find("no-such-flag") == NULL);
    fed_terms_release(&terms);
}

const struct test tests[] = {
    { .name = "terms survive the way there and back", .run = test_there_and_back },
    { .name = "JSON that is no terms is refused", .run = test_refused_json },
    { .name = "terms that cannot be are refused", .run = test_impossible_terms },
    { .name = "flags have ranges", .run = test_flags_have_ranges },
    { 0 },
};
