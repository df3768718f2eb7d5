/* SPDX-License-Identifier: MIT */
/* plan_page_test.c - the page about a plan is whole, whatever is in it. */
#include "report/plan_page.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "report/page_testing.h"

static const struct plan_page_row rows[] = {
    { .name = "mirrored",
      .why = "",
      .is_legal = true,
      .is_chosen = true,
      .can_be = true,
      .step_ms = 12,
      .bytes = 1e6,
      .memory = { 1e6, 2e6, 1e6, 5e6 } },
    { .name = "pipeline pp=2 <1f1b>",
      .why = "slow & idle",
      .is_legal = true,
      .step_ms = 20,
      .bubble = 0.3,
      .memory = { 5e5, 1e6, 5e5, 5e6 } },
    { .name = "tensor tp=2", .why = "heads are not divisible" },
};
static const struct plan_page_point points[] = { { 1, 100, 100, "single" },
                                                 { 2, NAN, 190, "pipeline" },
                                                 { 10000, 1e5, 2e5, "hybrid" } };
static const struct plan_page_event events[] = { { 0, 1, 0, 0, false }, { 1, 2, 0, 1, false },
                                                 { 2, 4, 0, 1, true },  { 4, 6, 0, 0, true },
                                                 { 6, 7, -1, 0, true }, { 7, 8, -2, 0, true } };

static char *write(const struct plan_page *page)
{
    char *path, *text;
    size_t length;

    CHECK_OK(file_join(test_folder(), "plan.html", &path));
    CHECK_OK(plan_page_write(page, path));
    CHECK_OK(file_read(path, 64 << 20, &text, &length));
    mem_free(path);
    page_testing_check(text);
    return text;
}

static void test_all_of_a_plan_is_on_its_page(void)
{
    const struct plan_page page = { .model = "gpt <b>",
                                    .why = "mirrored is \"best\"",
                                    .batch = 64,
                                    .ranks = 2,
                                    .nodes = 1,
                                    .memory = 1e9,
                                    .single_ms = 22,
                                    .is_measured = true,
                                    .rows = rows,
                                    .n_rows = 3,
                                    .points = points,
                                    .n_points = 3,
                                    .timeline = "pipeline pp=2",
                                    .stages = 2,
                                    .seconds = 8,
                                    .events = events,
                                    .n_events = 6 };
    char *text = write(&page);

    CHECK(strstr(text, "gpt &lt;b&gt;") && !strstr(text, "gpt <b>"));
    CHECK(strstr(text, "slow &amp; idle") && strstr(text, "heads are not divisible"));
    CHECK(strstr(text, "Predicted throughput") && strstr(text, "stage 1"));
    CHECK(strstr(text, "backward of shard 0") && strstr(text, "sums of gradients"));
    mem_free(text);
}

static void test_a_plan_of_nothing_is_a_page(void)
{
    const struct plan_page page = { .model = "m", .why = "nothing can run", .timeline = "" };
    char *text = write(&page);

    CHECK(strstr(text, "nothing can run") && !strstr(text, "timeline of stages"));
    mem_free(text);
}

const struct test tests[] = {
    { .name = "all of a plan is on its page", .run = test_all_of_a_plan_is_on_its_page },
    { .name = "a plan of nothing is a page", .run = test_a_plan_of_nothing_is_a_page },
    { 0 },
};
