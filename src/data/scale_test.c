/* SPDX-License-Identifier: MIT */
/* scale_test.c - what --normalize may be, and that what is printed is read as the same floats. */
#include "data/scale.h"

#include "base/test.h"

#include <string.h>

static void test_words_and_numbers(void)
{
    static const struct {
        const char *text;
        int channels;
        const char *printed;
    } CASES[] = {
        { "none", 3, "mean:0/std:0.003921569" },
        { "scale", 1, "mean:0/std:1" },
        { "imagenet", 3, "mean:0.485,0.456,0.406/std:0.229,0.224,0.225" },
        { "mnist", 1, "mean:0.1307/std:0.3081" },
        { "cifar10", 3, "mean:0.4914,0.4822,0.4465/std:0.247,0.2435,0.2616" },
        { "mean:0.5/std:0.25", 3, "mean:0.5/std:0.25" },
        { "mean:0.5/std:1,2,3", 3, "mean:0.5/std:1,2,3" },
        { "mean:.1,1,0/std:1e-3", 3, "mean:0.1,1,0/std:0.001" },
        { "mean:0.123456789/std:0.1", 1, "mean:0.12345679/std:0.1" },
    };

    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char text[SCALE_TEXT];
        struct pixel_scale scale, again;

        CHECK_OK(scale_parse(CASES[i].text, CASES[i].channels, &scale));
        CHECK_TEXT(CASES[i].printed, scale_print(&scale, CASES[i].channels, text));
        CHECK_OK(scale_parse(text, CASES[i].channels, &again));
        for (int c = 0; c < CASES[i].channels; c++) {
            CHECK(scale.mean[c] == again.mean[c]);
            CHECK(scale.deviation[c] == again.deviation[c]);
        }
    }
}

static void test_others_are_refused(void)
{
    static const struct {
        const char *text;
        int channels;
        const char *part;
    } CASES[] = {
        { "", 1, "is none of" },
        { "twice", 1, "\"twice\" is none of none, scale, dataset, imagenet" },
        { "imdb", 1, "is none of" },
        { "mnist", 3, "is for images of 1 channels, these have 3" },
        { "imagenet", 1, "is for images of 3 channels, these have 1" },
        { "mean:0.5", 1, "write mean:0.5/std:0.25" },
        { "mean:/std:", 1, "write mean:" },
        { "mean:0.5/std:0.5,", 1, "write mean:" },
        { "mean:0.5x/std:0.5", 1, "write mean:" },
        { "mean:nan/std:1", 1, "write mean:" },
        { "mean:-0.5/std:1", 1, "write mean:" },
        { "mean:0,0,0,0/std:1", 3, "write mean:" },
        { "mean:0.5,0.5/std:1", 3, "one for each of 3 channels" },
        { "mean:0.5,0.5,0.5/std:1", 1, "one for each of 1 channels" },
        { "mean:0.5/std:0", 1, "std 0: must be greater than 0" },
        { "mean:0.5/std:1e9", 1, "must be greater than 0, from 1e-6 to 1e6" },
        { "mean:123/std:58", 1, "mean 123 is above 1: it is of pixels from 0 to 1" },
    };

    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct pixel_scale scale;

        CHECK_STATUS(STATUS_USAGE, scale_parse(CASES[i].text, CASES[i].channels, &scale));
        CHECK_MESSAGE(CASES[i].part);
    }
}

static void test_any_float_is_read_back(struct rng *rng)
{
    struct pixel_scale scale, again;
    char text[SCALE_TEXT];

    for (int c = 0; c < 3; c++) {
        scale.mean[c] = (float)rng_below(rng, 1 << 24) / (1 << 24);
        scale.deviation[c] = (float)(1 + rng_below(rng, 1 << 24)) / (1 << 20);
    }
    CHECK_OK(scale_parse(scale_print(&scale, 3, text), 3, &again));
    CHECK(memcmp(&scale, &again, sizeof scale) == 0);
}

const struct test tests[] = {
    { .name = "words and numbers", .run = test_words_and_numbers },
    { .name = "others are refused", .run = test_others_are_refused },
    { .name = "any float is read back", .property = test_any_float_is_read_back },
    { 0 },
};
