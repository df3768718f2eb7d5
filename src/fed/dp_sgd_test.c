/* SPDX-License-Identifier: MIT */
/* dp_sgd_test.c - noise of steps: its size, that it is of one step and place, and that nobody can ask for it twice. */
#include "fed/dp_sgd.h"

#include <math.h>
#include <string.h>

#include "base/test.h"

enum { COUNT = 3000 };

static void add(struct fed_dp_sgd *sgd, uint64_t step, size_t at, float *out, size_t count)
{
    memset(out, 0, count * sizeof(*out));
    sgd->privacy.add(sgd->privacy.arg, step, 8, at, out, count);
}

static void begin(struct fed_dp_sgd *sgd, const char *text)
{
    CHECK_OK(fed_dp_sgd_init(sgd, text));
    sgd->length = COUNT;
    fed_dp_sgd_simulate(sgd, 3);
    fed_dp_sgd_begin(sgd, 5);
}

static void test_noise_has_its_deviation(void)
{
    static float sum[COUNT];
    struct fed_dp_sgd sgd;
    double squares = 0, mean = 0;

    begin(&sgd, "2,1.5"); /* 2 * 1.5 / 8 */
    add(&sgd, 1, 0, sum, COUNT);
    for (int i = 0; i < COUNT; i++) {
        mean += (double)sum[i];
        squares += (double)sum[i] * (double)sum[i];
    }
    CHECK_CLOSE(0, mean / COUNT, 4 * 0.375 / sqrt(COUNT));
    CHECK_CLOSE(1, squares / COUNT / (0.375 * 0.375), 4 * sqrt(2.0 / COUNT));
    fed_dp_sgd_release(&sgd);
    begin(&sgd, "2,0");
    add(&sgd, 1, 0, sum, COUNT);
    for (int i = 0; i < COUNT; i++)
        CHECK(sum[i] == 0);
    fed_dp_sgd_release(&sgd);
}

static bool is_same(const float *a, const float *b)
{
    return memcmp(a, b, COUNT * sizeof(*a)) == 0;
}

static void test_noise_is_of_one_step_place_and_training(void)
{
    static float first[COUNT], other[COUNT];
    struct fed_dp_sgd sgd;

    begin(&sgd, "1,1");
    add(&sgd, 1, 0, first, COUNT);
    add(&sgd, 1, 0, other, COUNT); /* by whichever lane */
    CHECK(is_same(first, other));
    add(&sgd, 2, 0, other, COUNT);
    CHECK(!is_same(first, other));
    add(&sgd, 1, 2048, other, COUNT);
    CHECK(!is_same(first, other));
    fed_dp_sgd_begin(&sgd, 6);
    add(&sgd, 1, 0, other, COUNT);
    CHECK(!is_same(first, other));
    fed_dp_sgd_begin(&sgd, 5); /* simulated: a function of seeds */
    add(&sgd, 1, 0, other, COUNT);
    CHECK(is_same(first, other));
    fed_dp_sgd_release(&sgd);
}

/* A coordinator that gives the same seed twice gets other noise, and so does another process. */
static void test_noise_of_participants_is_secret(void)
{
    static float first[COUNT], other[COUNT];
    struct fed_dp_sgd sgd, second;

    CHECK_OK(fed_dp_sgd_init(&sgd, "1,1"));
    CHECK_OK(fed_dp_sgd_init(&second, "1,1"));
    sgd.length = second.length = COUNT;
    fed_dp_sgd_begin(&sgd, 5);
    fed_dp_sgd_begin(&second, 5);
    add(&sgd, 0, 0, first, COUNT);
    add(&second, 0, 0, other, COUNT);
    CHECK(!is_same(first, other));
    fed_dp_sgd_begin(&sgd, 5);
    add(&sgd, 0, 0, other, COUNT);
    CHECK(!is_same(first, other));
    fed_dp_sgd_release(&sgd);
    fed_dp_sgd_release(&second);
}

static void test_texts_are_read(void)
{
    static const char *const wrong[] = { "",      "1",     "1,",    ",1",  "0,1",
                                         "-1,1",  "1,-1",  "1,1,1", "1;1", "nan,1",
                                         "1,nan", "inf,1", "1,1e9" };
    double clip, noise;

    CHECK_OK(fed_dp_sgd_parse("0.5,1.25", &clip, &noise));
    CHECK(clip == 0.5 && noise == 1.25);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        CHECK_STATUS(STATUS_USAGE, fed_dp_sgd_parse(wrong[i], &clip, &noise));
}

static void test_epsilon_grows_with_passes(void)
{
    double one, ten;

    CHECK_OK(fed_dp_sgd_epsilon("1,4", 0, 1e-5, &one));
    CHECK(one == 0);
    CHECK_OK(fed_dp_sgd_epsilon("1,4", 1, 1e-5, &one));
    CHECK_OK(fed_dp_sgd_epsilon("1,4", 10, 1e-5, &ten));
    CHECK(one > 0.5 && one < 1.3 && ten > 2 * one && ten < 10 * one);
    CHECK_OK(fed_dp_sgd_epsilon("1,0", 1, 1e-5, &one));
    CHECK(isinf(one));
}

const struct test tests[] = {
    { "noise has its deviation", test_noise_has_its_deviation, NULL },
    { "noise is of one step, place and training", test_noise_is_of_one_step_place_and_training,
      NULL },
    { "noise of participants is secret", test_noise_of_participants_is_secret, NULL },
    { "texts are read", test_texts_are_read, NULL },
    { "epsilon grows with passes", test_epsilon_grows_with_passes, NULL },
    { 0 },
};
