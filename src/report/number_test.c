/* SPDX-License-Identifier: MIT */
/* number_test.c - numbers as people read them. */
#include "base/test.h"
#include "report/number.h"

#include <math.h>
#include <string.h>

static void check_print(const char *expected, double value, enum number_format format,
                        double step)
{
    char text[NUMBER_TEXT];

    number_print(text, value, format, step);
    CHECK_TEXT(expected, text);
}

static void test_ticks_have_the_decimals_that_tell_them_apart(void)
{
    check_print("0", 0, NUMBER_PLAIN, 0.5);
    check_print("0.30", 0.1 + 0.2, NUMBER_PLAIN, 0.05);
    check_print("1.5", 1.5, NUMBER_PLAIN, 0.5);
    check_print("200", 200, NUMBER_PLAIN, 50);
    check_print("\u22122", -2, NUMBER_PLAIN, 1);
    check_print("2\u00d710\u207b\u2075", 2e-5, NUMBER_PLAIN, 1e-5);
    check_print("10\u207b\u2075", 1e-5, NUMBER_PLAIN, 1e-5);
    check_print("10\u2076", 1e6, NUMBER_PLAIN, 1e6);
    check_print("1000002", 1000002, NUMBER_PLAIN, 2);
    check_print("85%", 0.85, NUMBER_PERCENT, 0.05);
    check_print("87.5%", 0.875, NUMBER_PERCENT, 0.005);
    check_print("20k", 20000, NUMBER_SI, 20000);
    check_print("2.5M", 2.5e6, NUMBER_SI, 5e5);
    check_print("800", 800, NUMBER_SI, 200);
}

static void test_a_lone_figure_has_four_digits(void)
{
    check_print("0.2466", 0.24658, NUMBER_PLAIN, 0);
    check_print("12", 12, NUMBER_PLAIN, 0);
    check_print("1876", 1876, NUMBER_PLAIN, 0);
    check_print("1.235\u00d710\u2077", 12345678, NUMBER_PLAIN, 0);
    check_print("91.23%", 0.91234, NUMBER_PERCENT, 0);
    check_print("0%", 0, NUMBER_PERCENT, 0);
    check_print("100%", 1, NUMBER_PERCENT, 0);
    check_print("51.2k", 51230, NUMBER_SI, 0);
    check_print("1M", 999600, NUMBER_SI, 0);
}

static void test_what_is_not_finite_is_a_dash(void)
{
    char text[NUMBER_TEXT];

    check_print("\u2013", NAN, NUMBER_PLAIN, 0);
    check_print("\u2013", INFINITY, NUMBER_PERCENT, 1);
    check_print("\u2013", -INFINITY, NUMBER_SI, 0);
    number_bytes(text, NAN);
    CHECK_TEXT("\u2013", text);
    number_duration(text, NAN);
    CHECK_TEXT("\u2013", text);
    number_whole(text, INFINITY);
    CHECK_TEXT("\u2013", text);
}

static void test_counts_bytes_and_times(void)
{
    static const struct {
        void (*print)(char out[NUMBER_TEXT], double value);
        double value;
        const char *expected;
    } cases[] = {
        { number_whole, 206922, "206,922" },
        { number_whole, 7, "7" },
        { number_whole, -1234567, "\u22121,234,567" },
        { number_bytes, 0, "0 B" },
        { number_bytes, 1023, "1023 B" },
        { number_bytes, 1536, "1.5 KiB" },
        { number_bytes, 412345678, "393 MiB" },
        { number_duration, 0.0000042, "4.2 \u00b5s" },
        { number_duration, 0.25, "250 ms" },
        { number_duration, 1.254, "1.25 s" },
        { number_duration, 12.34, "12.3 s" },
        { number_duration, 272, "4 min 32 s" },
        { number_duration, 7502, "2 h 05 min" },
        { number_duration, 200000, "2 d 07 h" },
        { number_clock, 7, "0:07" },
        { number_clock, 272.4, "4:32" },
        { number_clock, 7510, "2:05:10" },
        { number_clock, NAN, "-:--" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[NUMBER_TEXT];
        cases[i].print(text, cases[i].value);
        CHECK_TEXT(cases[i].expected, text);
    }
}

/* Any bits as a double; writing past the text would be seen by the sanitizers. */
static void test_any_number_fits_its_text(struct rng *rng)
{
    const uint64_t bits = rng_u64(rng);
    double value, step;
    char text[NUMBER_TEXT];

    memcpy(&value, &bits, sizeof value);
    const uint64_t more = rng_u64(rng) & INT64_MAX;
    memcpy(&step, &more, sizeof step);
    for (int format = NUMBER_PLAIN; format <= NUMBER_SI; format++) {
        number_print(text, value, (enum number_format)format, 0);
        CHECK(strlen(text) < NUMBER_TEXT && !strstr(text, "nan") && !strstr(text, "inf"));
        number_print(text, value, (enum number_format)format, isfinite(step) ? step : 1);
        CHECK(strlen(text) < NUMBER_TEXT && !strstr(text, "nan") && !strstr(text, "inf"));
    }
    number_whole(text, value);
    number_bytes(text, value);
    number_duration(text, value);
    number_clock(text, value);
}

const struct test tests[] = {
    { .name = "ticks have the decimals that tell them apart",
      .run = test_ticks_have_the_decimals_that_tell_them_apart },
    { .name = "a lone figure has four digits", .run = test_a_lone_figure_has_four_digits },
    { .name = "what is not finite is a dash", .run = test_what_is_not_finite_is_a_dash },
    { .name = "counts, bytes and times", .run = test_counts_bytes_and_times },
    { .name = "any number fits its text", .property = test_any_number_fits_its_text },
    { 0 },
};
