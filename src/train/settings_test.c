/* SPDX-License-Identifier: MIT */
/* settings_test.c - settings from text, and to config.json and back. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/test.h"
#include "train/settings.h"

static enum status set(struct settings *settings, const char *name, const char *text)
{
    return settings_set(settings, settings_find(name), text);
}

static void test_values_are_parsed_and_ranges_kept(void)
{
    struct settings s;

    settings_init(&s);
    CHECK_OK(set(&s, "batch", "128"));
    CHECK_INT(128, s.batch);
    CHECK_OK(set(&s, "lr", "1e-3"));
    CHECK_CLOSE(1e-3, s.lr, 1e-15);
    CHECK_OK(set(&s, "seed", "18446744073709551615"));
    CHECK(s.seed == UINT64_MAX);
    CHECK_OK(set(&s, "shuffle", "false"));
    CHECK(!s.shuffle);
    CHECK_OK(set(&s, "strategy", "mirrored"));
    CHECK_TEXT("mirrored", s.strategy);
}

static void test_wrong_values_are_refused_and_change_nothing(void)
{
    static const char *const wrong[][2] = {
        { "batch", "0" },
        { "batch", "-1" },
        { "batch", "1.5" },
        { "batch", "" },
        { "batch", "12 " },
        { "batch", "x" },
        { "batch", "1e99" },
        { "lr", "nan" },
        { "lr", "inf" },
        { "lr", "-1" },
        { "seed", "-1" },
        { "seed", "1.5" },
        { "seed", "18446744073709551616" },
        { "shuffle", "yes" },
        { "ranks", "0" },
        { "momentum", "1.01" },
        { "device", "a name that is much too long to be one" },
    };
    struct settings before, s;

    settings_init(&before);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        settings_init(&s);
        CHECK_STATUS(STATUS_USAGE, set(&s, wrong[i][0], wrong[i][1]));
        CHECK_MESSAGE(wrong[i][0]);
        CHECK_INT(before.batch, s.batch);
        CHECK(before.seed == s.seed && before.shuffle == s.shuffle && isnan(s.lr));
    }
}

static void test_printing_and_reading_gives_the_same(struct rng *rng)
{
    struct settings s, again;
    struct strbuf text;
    struct json *json;
    char number[64];

    settings_init(&s);
    snprintf(s.model, sizeof s.model, "cnn");
    snprintf(s.data, sizeof s.data, "a \"name\" \\ %u", (unsigned)rng_below(rng, 100));
    for (const struct setting *row = settings_table; row->name; row++) {
        if (rng_below(rng, 2) || row->kind == SETTING_TEXT)
            continue;
        if (row->kind == SETTING_SWITCH)
            snprintf(number, sizeof number, "%s", rng_below(rng, 2) ? "true" : "false");
        else if (row->kind == SETTING_NUMBER)
            snprintf(number, sizeof number, "%.9g",
                     (row->minimum > 0 ? row->minimum : 0) + (double)rng_float(rng));
        else if (row->kind == SETTING_UNSIGNED)
            snprintf(number, sizeof number, "%llu", (unsigned long long)rng_u64(rng));
        else
            snprintf(number, sizeof number, "%llu",
                     1 + (unsigned long long)rng_below(
                             rng, row->maximum < 256 ? (uint64_t)row->maximum : 256));
        CHECK_OK(settings_set(&s, row, number));
    }
    s.options[0] = (double)rng_float(rng);
    strbuf_init(&text, 1 << 20);
    strbuf_add(&text, "{");
    settings_print(&s, &text);
    strbuf_add(&text, "}");
    CHECK_OK(json_parse(text.text, text.length, &json));
    settings_init(&again);
    CHECK_OK(settings_read(&again, json_root(json)));
    for (const struct setting *row = settings_table; row->name; row++) {
        const char *a = (const char *)&s + row->offset, *b = (const char *)&again + row->offset;
        const bool is_text = row->kind == SETTING_TEXT;
        if (is_text ? strcmp(a, b) != 0 : memcmp(a, b, row->size) != 0)
            test_fail(__FILE__, __LINE__, "--%s changed", row->name);
    }
    CHECK_TEXT(s.model, again.model);
    CHECK(s.options[0] == again.options[0] && isnan(again.options[1]));
    json_destroy(json);
    strbuf_release(&text);
}

static void test_a_config_without_a_model_is_refused(void)
{
    struct settings s;
    struct json *json;

    settings_init(&s);
    CHECK_OK(json_parse("{\"batch\": 3}", 12, &json));
    CHECK_STATUS(STATUS_CORRUPT, settings_read(&s, json_root(json)));
    json_destroy(json);
    CHECK_OK(json_parse("{\"model\": \"mlp\", \"batch\": [3]}", 30, &json));
    CHECK_STATUS(STATUS_CORRUPT, settings_read(&s, json_root(json)));
    CHECK_MESSAGE("batch");
    json_destroy(json);
}

const struct test tests[] = {
    { .name = "values are parsed and ranges kept",
      .run = test_values_are_parsed_and_ranges_kept },
    { .name = "wrong values are refused and change nothing",
      .run = test_wrong_values_are_refused_and_change_nothing },
    { .name = "printing and reading gives the same",
      .property = test_printing_and_reading_gives_the_same },
    { .name = "a config without a model is refused",
      .run = test_a_config_without_a_model_is_refused },
    { 0 },
};
