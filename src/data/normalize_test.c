/* SPDX-License-Identifier: MIT */
/* normalize_test.c - every way to normalize gives the bits of the formula. */
#include "data/normalize.h"

#include "base/test.h"
#include "data/dataset.h"

#include <string.h>

enum { PIXELS_MOST = 2500 };

static struct pixel_scale random_scale(struct rng *rng)
{
    struct pixel_scale scale;

    for (int c = 0; c < NORMALIZE_CHANNELS; c++) {
        scale.mean[c] = rng_float(rng);
        scale.deviation[c] = 0.05f + rng_float(rng);
    }
    return scale;
}

/* Compares with the formula, and looks that nothing is written behind the end. */
static void check_run(const struct normalizer *normalizer, const struct pixel_scale *scale,
                      normalize_fn *run, const uint8_t *pixels, int64_t count)
{
    static float x[NORMALIZE_CHANNELS * PIXELS_MOST + 1];
    const int channels = normalizer->channels;

    memset(x, 0x7f, sizeof x);
    run(normalizer, pixels, count, x);
    for (int64_t i = 0; i < count; i++) {
        for (int c = 0; c < channels; c++) {
            const double mean = (double)scale->mean[c], deviation = (double)scale->deviation[c];
            const float expected =
                (float)((pixels[c * count + i] * (1.0 / 255) - mean) / deviation);
            CHECK(memcmp(&expected, &x[i * channels + c], sizeof expected) == 0);
        }
    }
    uint32_t guard;
    memcpy(&guard, &x[count * channels], sizeof guard);
    CHECK_INT(0x7f7f7f7f, guard);
}

static void test_all_ways_have_the_bits_of_the_formula(struct rng *rng)
{
    static uint8_t pixels[NORMALIZE_CHANNELS * PIXELS_MOST];
    const int64_t most = rng_below(rng, 4) ? 120 : PIXELS_MOST;
    const int64_t count = (int64_t)rng_below(rng, (uint64_t)most + 1);
    const int channels = 1 + (int)rng_below(rng, NORMALIZE_CHANNELS);
    const struct pixel_scale scale = random_scale(rng);
    struct normalizer normalizer;

    for (int64_t i = 0; i < count * channels; i++)
        pixels[i] = (uint8_t)rng_u32(rng);
    normalizer_init(&normalizer, &scale, channels);
    check_run(&normalizer, &scale, normalizer.run, pixels, count);
    check_run(&normalizer, &scale, normalize_by_table, pixels, count);
    if (!normalizer.is_exact || channels == 2)
        return;
    check_run(&normalizer, &scale, normalize_by_arithmetic, pixels, count);
    if (normalize_native())
        check_run(&normalizer, &scale, normalize_native(), pixels, count);
}

/* Arithmetic is the rule, the table the exception. */
static void test_arithmetic_is_nearly_always_exact(void)
{
    static const struct pixel_scale usual[] = {
        { { 0.2860f }, { 0.3530f } }, /* Fashion-MNIST, MNIST, CIFAR-10, ImageNet, any folder */
        { { 0.1307f }, { 0.3081f } },
        { { 0.4914f, 0.4822f, 0.4465f }, { 0.2470f, 0.2435f, 0.2616f } },
        { { 0.485f, 0.456f, 0.406f }, { 0.229f, 0.224f, 0.225f } },
        { { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } },
    };
    struct normalizer normalizer;
    struct rng rng;
    int exact = 0;

    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        normalizer_init(&normalizer, &usual[i], usual[i].deviation[1] > 0 ? 3 : 1);
        CHECK(normalizer.is_exact);
    }
    rng_init(&rng, 1, 0);
    for (int i = 0; i < 1000; i++) {
        const struct pixel_scale scale = random_scale(&rng);
        normalizer_init(&normalizer, &scale, 1);
        exact += normalizer.is_exact;
    }
    CHECK(exact > 950 && exact < 1000); /* the table is needed, too */
}

static void test_the_unit_scale_ends_at_one(void)
{
    const uint8_t ends[] = { 0, 255 };
    struct normalizer normalizer;
    float x[2];

    normalizer_init(&normalizer, &pixel_unit_scale, 1);
    CHECK(normalizer.is_exact);
    normalizer.run(&normalizer, ends, 2, x);
    CHECK(x[0] == 0 && x[1] == 1);
}

const struct test tests[] = {
    { .name = "all ways have the bits of the formula",
      .property = test_all_ways_have_the_bits_of_the_formula },
    { .name = "arithmetic is nearly always exact",
      .run = test_arithmetic_is_nearly_always_exact },
    { .name = "the unit scale ends at one", .run = test_the_unit_scale_ends_at_one },
    { 0 },
};
