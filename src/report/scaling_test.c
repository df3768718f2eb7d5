/* SPDX-License-Identifier: MIT */
/* scaling_test.c - laws are found again in numbers made by them; the page is whole. */
#include "report/scaling.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "report/page_testing.h"

enum { POINTS = 5 };

static const double waits[16] = { 0.01, 0.2, 0.03 };

/* 1, 2, 4, 8, 16 ranks by the law with serial share s. */
static struct scaling make(bool weak, double s, struct scaling_point points[POINTS])
{
    for (int i = 0; i < POINTS; i++) {
        const double n = 1 << i, speedup = weak ? n - s * (n - 1) : 1 / (s + (1 - s) / n);
        points[i] = (struct scaling_point){ .ranks = 1 << i,
                                            .threads = 1,
                                            .batch = 64,
                                            .samples_per_s = 1000 * speedup,
                                            .step_ms = 64 / speedup,
                                            .comm_share = 0.1,
                                            .wait_share = 0.05,
                                            .hidden_share = i ? 0.5 : NAN,
                                            .bytes = i ? 1e6 : 0,
                                            .bytes_optimum = i ? 1e6 : NAN,
                                            .rank_wait = waits,
                                            .rank_made_wait = waits };
    }
    return (struct scaling){ .model = "cnn <b>",
                             .strategy = "mirrored",
                             .isa = "avx2",
                             .weak = weak,
                             .cores = 16,
                             .count = POINTS,
                             .points = points };
}

static void test_the_serial_share_of_a_law_is_found_again(struct rng *rng)
{
    struct scaling_point points[POINTS];
    const double serial = (double)rng_below(rng, 500) / 1000;
    const bool weak = rng_below(rng, 2);
    struct scaling scaling = make(weak, serial, points);

    scaling_finish(&scaling);
    CHECK_CLOSE(serial, scaling.serial, 1e-9);
    CHECK_CLOSE(0, scaling.residual, 1e-9);
    CHECK_INT(POINTS - 1, scaling.n_fitted);
    CHECK_CLOSE(1, points[0].efficiency, 1e-12);
    CHECK_CLOSE(points[4].speedup / 16, points[4].efficiency, 1e-12);
    CHECK_CLOSE(points[3].speedup, points[3].fitted, 1e-9);
}

static void test_points_beyond_the_cores_are_left_out(void)
{
    struct scaling_point points[POINTS];
    struct scaling scaling = make(true, 0.02, points);

    points[3].oversubscribed = points[4].oversubscribed = true;
    points[3].samples_per_s = points[4].samples_per_s = 4000;
    scaling_finish(&scaling);
    CHECK_CLOSE(0.02, scaling.serial, 1e-9);
    CHECK_INT(2, scaling.n_fitted);
    CHECK_CLOSE(0.5, points[3].efficiency, 1e-9);
}

static void test_a_residual_tells_how_far_a_law_is_off(void)
{
    struct scaling_point points[POINTS];
    struct scaling scaling = make(false, 0.1, points);

    points[2].samples_per_s *= 1.2;
    scaling_finish(&scaling);
    CHECK(scaling.residual > 0.05 && scaling.residual < 0.2);
}

static void test_without_one_rank_or_several_there_is_no_fit(void)
{
    struct scaling_point points[POINTS];
    struct scaling scaling = make(true, 0.1, points);

    scaling.points++;
    scaling.count--;
    scaling_finish(&scaling);
    CHECK(isnan(scaling.serial));
    CHECK_CLOSE(2, scaling.points[0].speedup, 1e-12); /* of two ranks: perfect */
    scaling = make(true, 0.1, points);
    scaling.count = 1;
    scaling_finish(&scaling);
    CHECK(isnan(scaling.serial) && isnan(scaling.residual));
}

/* A share is from 0 to 1, whatever was measured. */
static void test_no_measurement_gives_an_impossible_share(void)
{
    struct scaling_point points[POINTS];
    char text[SCALING_TEXT];

    for (int weak = 0; weak < 2; weak++) {
        struct scaling scaling = make(weak, 0.1, points);
        points[1].samples_per_s = 900; /* two ranks are slower than one */
        scaling.count = 2;
        scaling_finish(&scaling);
        CHECK_CLOSE(1, scaling.serial, 1e-12);
        CHECK_INT(SCALING_SLOWER, scaling.bound);
        CHECK_CLOSE(0.1, scaling.residual, 1e-9);
        scaling_print_fit(&scaling, text);
        CHECK_TEXT("off by 10.00% over 1 point; more ranks are slower than one", text);
        points[1].samples_per_s = 2500; /* faster than twice as fast */
        scaling_finish(&scaling);
        CHECK_CLOSE(0, scaling.serial, 1e-12);
        CHECK_INT(SCALING_FASTER, scaling.bound);
        CHECK_CLOSE(0.25, scaling.residual, 1e-9);
        points[1].samples_per_s = 1500; /* one point is fitted exactly, which proves nothing */
        scaling_finish(&scaling);
        CHECK(scaling.serial > 0 && scaling.serial < 1 && isnan(scaling.residual));
        scaling_print_fit(&scaling, text);
        CHECK_TEXT("from one point, which any share fits", text);
    }
}

static void check_page(const struct scaling *scaling, const char *part)
{
    char path[256], *page;
    size_t length;

    (void)snprintf(path, sizeof path, "%s/scale.html", test_folder());
    CHECK_OK(scaling_write_page(scaling, path));
    CHECK_OK(file_read(path, 1 << 24, &page, &length));
    page_testing_check(page);
    if (!strstr(page, part))
        test_fail(__FILE__, __LINE__, "the page does not hold: %s", part);
    mem_free(page);
}

static void test_the_page_is_whole(void)
{
    struct scaling_point points[POINTS];

    for (int weak = 0; weak < 2; weak++) {
        struct scaling scaling = make(weak, 0.05, points);
        points[2].samples_per_s *= 1.1;
        scaling_finish(&scaling);
        check_page(&scaling, "over 4 points");
        check_page(&scaling, weak ? "by Gustafson&#39;s law" : "by Amdahl&#39;s law");
        check_page(&scaling, "cnn &lt;b&gt;");
        check_page(&scaling, "Waiting, 16 ranks");
        points[4].oversubscribed = true;
        check_page(&scaling, "more threads than this machine&#39;s 16 cores");
        scaling.count = 1;
        scaling_finish(&scaling);
        check_page(&scaling, "no fit");
    }
}

const struct test tests[] = {
    { .name = "the serial share of a law is found again",
      .property = test_the_serial_share_of_a_law_is_found_again },
    { .name = "points beyond the cores are left out",
      .run = test_points_beyond_the_cores_are_left_out },
    { .name = "a residual tells how far a law is off",
      .run = test_a_residual_tells_how_far_a_law_is_off },
    { .name = "without one rank or several there is no fit",
      .run = test_without_one_rank_or_several_there_is_no_fit },
    { .name = "no measurement gives an impossible share",
      .run = test_no_measurement_gives_an_impossible_share },
    { .name = "the page is whole", .run = test_the_page_is_whole },
    { 0 },
};
