/* SPDX-License-Identifier: MIT */
/* augment_test.c - augmentation against a slow oracle, and its chances. */
#include "data/augment.h"

#include "base/test.h"

#include <string.h>

enum { SIDE_MOST = 40, BYTES_MOST = 3 * SIDE_MOST * SIDE_MOST };

static struct shape random_sample(struct rng *rng)
{
    return (struct shape){ 3,
                           { 1 + (int64_t)rng_below(rng, 3),
                             1 + (int64_t)rng_below(rng, SIDE_MOST),
                             1 + (int64_t)rng_below(rng, SIDE_MOST) } };
}

static struct augment random_augment(struct rng *rng, const struct shape *sample)
{
    const int64_t height = sample->dim[1], width = sample->dim[2];
    const uint64_t side = (uint64_t)(height < width ? height : width);

    return (struct augment){ .crop = (int)rng_below(rng, side),
                             .flip = rng_below(rng, 2),
                             .cutout = (int)rng_below(rng, side + 1) };
}

static void fill(struct rng *rng, uint8_t *pixels, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        pixels[i] = (uint8_t)(1 + rng_below(rng, 255)); /* never black */
}

/* As the header says it, a step after the other: pads a channel, cuts the window out, mirrors. */
static void check_channel(const struct augment *augment, const struct augment_draw *draw,
                          const struct shape *sample, const uint8_t *pixels, const uint8_t *out)
{
    static uint8_t padded[3 * SIDE_MOST][3 * SIDE_MOST];
    const int64_t height = sample->dim[1], width = sample->dim[2], crop = augment->crop;

    memset(padded, 0, sizeof padded);
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
            padded[crop + y][crop + x] = pixels[y * width + x];
    for (int64_t y = 0; y < height; y++) {
        for (int64_t x = 0; x < width; x++) {
            const int64_t column = draw->flip ? width - 1 - x : x;
            CHECK_INT(padded[crop + draw->down + y][crop + draw->right + column],
                      out[y * width + x]);
        }
    }
}

static void test_crop_and_flip_agree_with_the_oracle(struct rng *rng)
{
    static uint8_t pixels[BYTES_MOST], scratch[BYTES_MOST + 1];
    const struct shape sample = random_sample(rng);
    const struct augment augment = random_augment(rng, &sample);
    const int64_t plane = sample.dim[1] * sample.dim[2], bytes = shape_count(&sample);
    const struct augment_draw draw =
        augment_draw(&augment, &sample, rng_u64(rng), 3, (int64_t)rng_below(rng, 60000));

    fill(rng, pixels, bytes);
    memset(scratch, 0xaa, sizeof scratch); /* as the sample before left it */
    const uint8_t *out = augment_move(&draw, &sample, pixels, scratch);
    CHECK((out == pixels) == (draw.down == 0 && draw.right == 0 && !draw.flip));
    CHECK_INT(0xaa, scratch[bytes]);
    for (int64_t c = 0; c < sample.dim[0]; c++)
        check_channel(&augment, &draw, &sample, pixels + c * plane, out + c * plane);
}

static void test_cutout_zeroes_a_square(struct rng *rng)
{
    static float x[BYTES_MOST];
    const struct shape sample = random_sample(rng);
    const struct augment augment = random_augment(rng, &sample);
    const int64_t channels = sample.dim[0], height = sample.dim[1], width = sample.dim[2];
    const struct augment_draw draw =
        augment_draw(&augment, &sample, rng_u64(rng), 0, (int64_t)rng_below(rng, 60000));
    const int64_t rows = draw.bottom - draw.top, columns = draw.end - draw.left;

    for (int64_t i = 0; i < BYTES_MOST; i++)
        x[i] = 1;
    augment_cut_out(&draw, &sample, x);
    for (int64_t i = 0; i < BYTES_MOST; i++) {
        const int64_t row = i / channels / width, column = i / channels % width;
        const bool is_cut = row >= draw.top && row < draw.bottom && column >= draw.left &&
                            column < draw.end && row < height;
        CHECK(x[i] == (is_cut ? 0 : 1));
    }
    if (augment.cutout == 0) {
        CHECK(rows == 0 || columns == 0);
        return;
    }
    /* The centre is a pixel, so at least half of the side is inside; less only at a border. */
    CHECK(rows > 0 && columns > 0 && rows <= augment.cutout && columns <= augment.cutout);
    CHECK(2 * rows >= augment.cutout - 1 && 2 * columns >= augment.cutout - 1);
    CHECK(rows == augment.cutout || draw.top == 0 || draw.bottom == height);
    CHECK(columns == augment.cutout || draw.left == 0 || draw.end == width);
}

/* Turning one kind on or off leaves what the others draw. */
static void test_kinds_do_not_disturb_each_other(struct rng *rng)
{
    const struct shape sample = { 3, { 3, 32, 32 } };
    const struct augment all = { .crop = 4, .flip = true, .cutout = 8 };
    const uint64_t seed = rng_u64(rng);
    const int64_t epoch = (int64_t)rng_below(rng, 100), index = (int64_t)rng_below(rng, 50000);
    const struct augment_draw a = augment_draw(&all, &sample, seed, epoch, index);
    struct augment some = all;

    some.crop = 0;
    const struct augment_draw no_crop = augment_draw(&some, &sample, seed, epoch, index);
    CHECK(no_crop.down == 0 && no_crop.right == 0);
    CHECK(no_crop.flip == a.flip && no_crop.top == a.top && no_crop.left == a.left);
    some = all;
    some.flip = false;
    const struct augment_draw no_flip = augment_draw(&some, &sample, seed, epoch, index);
    CHECK(!no_flip.flip && no_flip.down == a.down && no_flip.right == a.right);
    CHECK(no_flip.top == a.top && no_flip.left == a.left);
    some = all;
    some.cutout = 0;
    const struct augment_draw no_cutout = augment_draw(&some, &sample, seed, epoch, index);
    CHECK_INT(no_cutout.top, no_cutout.bottom);
    CHECK(no_cutout.down == a.down && no_cutout.right == a.right && no_cutout.flip == a.flip);
}

/* chi squared of n equally likely counts exceeds its mean n - 1 by 6 deviations, sqrt(2(n - 1)),
 * less than once in ten million runs; the numbers are the same in every run anyway. */
static void check_uniform(const int *counts, int n, int draws)
{
    const double expected = (double)draws / n;
    double chi = 0;

    for (int i = 0; i < n; i++)
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    const double excess = chi - (n - 1);
    CHECK(excess * excess < 36.0 * 2 * (n - 1));
}

static void test_chances_are_even(void)
{
    enum { DRAWS = 100000, OFFSETS = 9, SIDE = 28 };
    const struct shape sample = { 3, { 1, SIDE, SIDE } };
    const struct augment augment = { .crop = 4, .flip = true, .cutout = 1 };
    int down[OFFSETS] = { 0 }, right[OFFSETS] = { 0 }, flips[2] = { 0 };
    int top[SIDE] = { 0 }, left[SIDE] = { 0 }, both[OFFSETS * 2] = { 0 };

    for (int i = 0; i < DRAWS; i++) { /* 100 epochs of 1000 samples */
        const struct augment_draw draw = augment_draw(&augment, &sample, 7, i / 1000, i % 1000);
        down[draw.down + 4]++;
        right[draw.right + 4]++;
        flips[draw.flip]++;
        top[draw.top]++;
        left[draw.left]++;
        both[2 * (draw.down + 4) + draw.flip]++;
    }
    check_uniform(down, OFFSETS, DRAWS);
    check_uniform(right, OFFSETS, DRAWS);
    check_uniform(flips, 2, DRAWS);
    check_uniform(top, SIDE, DRAWS);
    check_uniform(left, SIDE, DRAWS);
    check_uniform(both, OFFSETS * 2, DRAWS);
}

/* Another seed, epoch or sample looks different: of 200 crops by 4, hardly 1 in 81 is the same. */
static void test_seed_epoch_and_sample_all_count(void)
{
    const struct shape sample = { 3, { 1, 28, 28 } };
    const struct augment augment = { .crop = 4 };
    int same[3] = { 0 };

    for (int64_t i = 0; i < 200; i++) {
        const struct augment_draw a = augment_draw(&augment, &sample, 1, 2, i);
        const struct augment_draw other[] = {
            augment_draw(&augment, &sample, 2, 2, i),
            augment_draw(&augment, &sample, 1, 3, i),
            augment_draw(&augment, &sample, 1, 2, i + 200),
        };
        for (int k = 0; k < 3; k++)
            same[k] += other[k].down == a.down && other[k].right == a.right;
    }
    for (int k = 0; k < 3; k++)
        CHECK(same[k] < 15);
}

static void check_refused(const struct augment *augment, const struct shape *sample,
                          const char *part)
{
    CHECK_STATUS(STATUS_USAGE, augment_check(augment, sample));
    CHECK_MESSAGE(part);
}

static void test_what_makes_no_sense_is_refused(void)
{
    const struct shape sample = { 3, { 1, 20, 28 } }, table = { 1, { 13 } };

    CHECK_OK(augment_check(&(struct augment){ .crop = 19, .cutout = 20 }, &sample));
    check_refused(&(struct augment){ .crop = 20 }, &sample,
                  "crop 20 leaves nothing of images of 20x28: at most 19");
    check_refused(&(struct augment){ .cutout = 21 }, &sample,
                  "cutout 21 is larger than images of 20x28: at most 20");
    CHECK_OK(augment_check(&(struct augment){ 0 }, &table));
    check_refused(&(struct augment){ .flip = true }, &table, "for images, samples are 13");
}

static void test_it_is_printed(void)
{
    char text[AUGMENT_TEXT];

    CHECK_TEXT("none", augment_print(&(struct augment){ 0 }, text));
    CHECK_TEXT("flip", augment_print(&(struct augment){ .flip = true }, text));
    CHECK_TEXT("crop 4 flip cutout 8", augment_print(&(struct augment){ 4, true, 8 }, text));
    CHECK_TEXT("crop 2147483647 flip cutout 2147483647",
               augment_print(&(struct augment){ INT32_MAX, true, INT32_MAX }, text));
}

const struct test tests[] = {
    { .name = "crop and flip agree with the oracle",
      .property = test_crop_and_flip_agree_with_the_oracle },
    { .name = "cutout zeroes a square", .property = test_cutout_zeroes_a_square },
    { .name = "kinds do not disturb each other",
      .property = test_kinds_do_not_disturb_each_other },
    { .name = "chances are even", .run = test_chances_are_even },
    { .name = "seed, epoch and sample all count", .run = test_seed_epoch_and_sample_all_count },
    { .name = "what makes no sense is refused", .run = test_what_makes_no_sense_is_refused },
    { .name = "it is printed", .run = test_it_is_printed },
    { 0 },
};
