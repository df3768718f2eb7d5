/* SPDX-License-Identifier: MIT */
/* compare_test.c - groups of runs, verdicts about them, and the page. */
#include "report/compare.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "report/page_testing.h"

static void put(const char *folder, const char *name, const char *text)
{
    char *path;

    CHECK_OK(file_join(folder, name, &path));
    CHECK_OK(file_replace(path, text, strlen(text)));
    mem_free(path);
}

/* A run of two epochs whose figures are those given. */
struct made {
    const char *name, *model, *strategy;
    int ranks, seed;
    double accuracy, loss, seconds;
    const char *weights;
};

static const char *make(const struct made *made)
{
    static char paths[16][512];
    static int next;
    char text[1024], *path = paths[next++ % 16];

    (void)snprintf(path, sizeof paths[0], "%s/%s", test_folder(), made->name);
    (void)mkdir(path, 0700);
    (void)snprintf(text, sizeof text,
                   "{\"format\": 1, \"model\": \"%s\", \"data\": \"digits\", \"seed\": %d, "
                   "\"strategy\": \"%s\", \"ranks\": %d, \"lr\": 0.1, \"model_options\": {}, "
                   "\"command\": \"%s\"}",
                   made->model, made->seed, made->strategy, made->ranks, made->name);
    put(path, "config.json", text);
    (void)snprintf(text, sizeof text,
                   "{\"kind\": \"eval\", \"step\": 1, \"epoch\": 1, \"val_accuracy\": 0.5, "
                   "\"val_loss\": 2, \"epoch_seconds\": 99}\n"
                   "{\"kind\": \"eval\", \"step\": 2, \"epoch\": 2, \"val_accuracy\": %g, "
                   "\"val_loss\": %g, \"epoch_seconds\": %g}\n",
                   made->accuracy, made->loss, made->seconds);
    put(path, "metrics.jsonl", text);
    (void)snprintf(text, sizeof text,
                   "{\"status\": \"done\", \"val_accuracy\": %g, \"val_loss\": %g, "
                   "\"peak_bytes\": 1000, \"weights_sha256\": \"%s\"}",
                   made->accuracy, made->loss, made->weights);
    put(path, "summary.json", text);
    return path;
}

static void test_student_is_met(void)
{
    const double a[] = { 1, 2, 3, 4, 5, NAN }, b[] = { 2, 4, 6, 8, 10 };
    const struct moments x = moments_of(a, 6), y = moments_of(b, 5), one = moments_of(a, 1);

    CHECK_INT(5, x.count);
    CHECK_CLOSE(3, x.mean, 1e-12);
    CHECK_CLOSE(sqrt(2.5), x.deviation, 1e-12);
    CHECK_CLOSE(0.10753119, welch_p(&x, &y), 1e-7);
    CHECK_CLOSE(0.07338803, beta_share(5, 0.5, 10 / 14.0), 1e-7);
    CHECK_CLOSE(0.05, beta_share(0.5, 0.5, 1 / (1 + 12.706204736 * 12.706204736)), 1e-7);
    CHECK(isnan(welch_p(&x, &one)));
}

static void test_seeds_are_a_group_and_noise_decides(void)
{
    const char *words[] = {
        make(&(struct made){ "a1", "mlp", "single", 1, 1, 0.850, 0.40, 2.0, "w1" }),
        make(&(struct made){ "b1", "mlp", "mirrored", 2, 1, 0.850, 0.40, 1.0, "w1" }),
        make(&(struct made){ "a2", "mlp", "single", 1, 2, 0.854, 0.41, 2.1, "w2" }),
        make(&(struct made){ "b2", "mlp", "mirrored", 2, 2, 0.854, 0.41, 1.1, "w2" }),
        make(&(struct made){ "c1", "mlp", "asgd", 2, 1, 0.800, 0.405, 1.0, "w3" }),
        make(&(struct made){ "c2", "mlp", "asgd", 2, 2, 0.802, 0.408, 1.0, "w4" }),
        make(&(struct made){ "d1", "cnn", "single", 1, 1, 0.9, 0.3, 9, "w5" }),
    };
    struct compare *compare;

    CHECK_OK(compare_read(words, 7, &compare));
    CHECK_INT(2, compare->n_sections);
    CHECK_INT(3, compare->sections[0].count);
    const struct compare_group *g = compare->sections[0].groups;
    CHECK_TEXT("single, 1 rank", g[0].label);
    CHECK_TEXT("mirrored, 2 ranks", g[1].label);
    CHECK_INT(2, g[1].count);
    CHECK(g[1].same_weights && !g[2].same_weights);
    CHECK_INT(COMPARE_SAME, g[1].figures[COMPARE_VAL_ACCURACY].verdict);
    CHECK_INT(COMPARE_BETTER, g[1].figures[COMPARE_EPOCH_SECONDS].verdict);
    CHECK_CLOSE(2.05 / 1.05, g[1].speedup, 1e-12);
    CHECK_INT(COMPARE_WORSE, g[2].figures[COMPARE_VAL_ACCURACY].verdict);
    CHECK_INT(COMPARE_SAME, g[2].figures[COMPARE_VAL_LOSS].verdict); /* within the noise */
    CHECK_INT(COMPARE_SAME, g[2].figures[COMPARE_PEAK_BYTES].verdict);
    compare_destroy(compare);
}

static void test_one_seed_says_nothing_but_of_equal_weights(void)
{
    const char *words[] = {
        make(&(struct made){ "a1", "mlp", "single", 1, 1, 0.85, 0.4, 2, "w1" }),
        make(&(struct made){ "b1", "mlp", "mirrored", 2, 1, 0.85, 0.4, 1, "w1" }),
        make(&(struct made){ "c1", "mlp", "asgd", 2, 1, 0.80, 0.4, 1, "w2" }),
    };
    struct compare *compare;

    CHECK_OK(compare_read(words, 3, &compare));
    const struct compare_group *g = compare->sections[0].groups;
    CHECK_INT(COMPARE_SAME, g[1].figures[COMPARE_VAL_ACCURACY].verdict);
    CHECK_INT(COMPARE_UNKNOWN, g[1].figures[COMPARE_EPOCH_SECONDS].verdict);
    CHECK_INT(COMPARE_UNKNOWN, g[2].figures[COMPARE_VAL_ACCURACY].verdict);
    compare_destroy(compare);
}

static void test_names_make_groups(void)
{
    char named[2][600];
    const char *words[] = { make(&(struct made){ "a1", "mlp", "single", 1, 1, 0.85, 0.4, 2,
                                                 "w1" }),
                            named[0], named[1] };
    struct compare *compare;

    for (int i = 0; i < 2; i++) {
        const struct made made = {
            i ? "b1" : "c1", "mlp", i ? "asgd" : "ssp", 2, i, 0.8 + i, 0.4, 1, "w2"
        };
        (void)snprintf(named[i], sizeof named[i], "with <servers>=%s", make(&made));
    }
    CHECK_OK(compare_read(words, 3, &compare));
    CHECK_INT(2, compare->sections[0].count);
    CHECK_TEXT("with <servers>", compare->sections[0].groups[1].label);
    CHECK_INT(2, compare->sections[0].groups[1].count);
    compare_destroy(compare);
}

/* A run that failed before its first evaluation. */
static const char *make_failed(const char *name, int seed, double lr)
{
    static char path[4][512];
    static int next;
    char text[512], *folder = path[next++ % 4];

    (void)snprintf(folder, sizeof path[0], "%s/%s", test_folder(), name);
    (void)mkdir(folder, 0700);
    (void)snprintf(text, sizeof text,
                   "{\"format\": 1, \"model\": \"mlp\", \"data\": \"digits\", \"seed\": %d, "
                   "\"strategy\": \"single\", \"ranks\": 1, \"lr\": %g, \"model_options\": {}}",
                   seed, lr);
    put(folder, "config.json", text);
    put(folder, "summary.json",
        "{\"status\": \"failed\", \"error\": \"the loss is no number\"}");
    return folder;
}

static char *make_page(const struct compare *compare)
{
    char path[256], *page;
    size_t length;

    (void)snprintf(path, sizeof path, "%s/compare.html", test_folder());
    CHECK_OK(compare_write_page(compare, path));
    CHECK_OK(file_read(path, 1 << 24, &page, &length));
    page_testing_check(page);
    return page;
}

/* The summary of a run that failed has no data; that of others has the path as it was given. */
static void test_a_failed_run_has_the_data_of_others(void)
{
    static const char config[] = "{\"format\": 1, \"model\": \"/home/own.c\", \"data\": "
                                 "\"/home/pets\", \"seed\": %d, \"model_options\": {}}";
    const char *words[] = { make(&(struct made){ "p1", "mlp", "single", 1, 1, 0.8, 1, 2, "w" }),
                            make_failed("p2", 2, 0.1) };
    struct compare *compare;
    char text[256];

    for (int i = 0; i < 2; i++) {
        (void)snprintf(text, sizeof text, config, i);
        put(words[i], "config.json", text);
    }
    put(words[0], "summary.json",
        "{\"status\": \"done\", \"model\": \"own.c\", \"data\": \"./pets\"}");
    CHECK_OK(compare_read(words, 2, &compare));
    CHECK_INT(1, compare->n_sections);
    CHECK(strcmp(compare->sections[0].data, "./pets") == 0);
    compare_destroy(compare);
}

static void test_runs_that_failed_count_for_nothing_and_the_rest_is_ranked(void)
{
    const char *words[] = {
        make(&(struct made){ "a1", "mlp", "single", 1, 1, 0.80, 0.40, 2, "w1" }),
        make(&(struct made){ "a2", "mlp", "single", 1, 2, 0.82, 0.42, 2, "w2" }),
        make_failed("a3", 3, 0.1), /* of the same group */
        make_failed("f1", 1, 100), /* one of its own */
        make(&(struct made){ "b1", "mlp", "mirrored", 2, 1, 0.90, 0.30, 1, "w3" }),
        make(&(struct made){ "b2", "mlp", "mirrored", 2, 2, 0.91, 0.31, 1, "w4" }),
        make(&(struct made){ "c1", "mlp", "asgd", 2, 1, 0.89, 0.5, 1, "w5" }),
        make(&(struct made){ "c2", "mlp", "asgd", 2, 2, 0.91, 0.5, 1, "w6" }),
    };
    struct compare *compare;

    CHECK_OK(compare_read(words, 8, &compare));
    const struct compare_section *s = &compare->sections[0];
    const struct compare_group *g = s->groups;
    CHECK_INT(4, s->count);
    CHECK(g[0].count == 3 && g[0].n_failed == 1 && g[0].n_used == 2);
    CHECK_CLOSE(0.81, g[0].figures[COMPARE_VAL_ACCURACY].moments.mean, 1e-12);
    CHECK(g[1].count == 1 && g[1].n_failed == 1);
    CHECK_INT(COMPARE_VAL_ACCURACY, s->ranked_by);
    CHECK(g[0].rank == 3 && g[1].rank == 0 && g[2].rank == 1 && g[3].rank == 2);
    CHECK(compare_is_tied(&g[3]) && !compare_is_tied(&g[0]) && !compare_is_tied(&g[2]));
    CHECK(compare_ranked(s, 1) == &g[2] && !compare_ranked(s, 4) && !compare_ranked(s, 0));

    char *page = make_page(compare);
    CHECK(strstr(page, "1 failed") && strstr(page, "not to be told from the best"));
    CHECK(strstr(page, "fill-opacity=\"0.16\"")); /* bands */
    const char *bars = strstr(page, ">Seconds of an epoch<");
    CHECK(bars && strstr(bars, "mirrored, 2 ranks"));
    const char *end = strstr(bars, "</svg>"), *failed = strstr(bars, "lr 100");
    CHECK(end && failed > end); /* no bar of no seconds: the next mention is the table's */
    CHECK(!strstr(page, ">0</text></svg>"));
    mem_free(page);
    compare_destroy(compare);
}

static void test_long_labels_are_cut_with_a_title(void)
{
    static const char strategy[] =
        "a-strategy-whose-name-is-so-long-that-no-plot-has-room-for-it-beside-its-bars-"
        "and-no-legend-either-though-the-picture-is-as-wide-as-the-page";
    const char *words[] = {
        make(&(struct made){ "a1", "mlp", "single", 1, 1, 0.85, 0.4, 2, "w1" }),
        make(&(struct made){ "b1", "mlp", strategy, 2, 1, 0.85, 0.4, 1, "w1" }),
    };
    char whole[300];
    struct compare *compare;

    CHECK_OK(compare_read(words, 2, &compare));
    char *page = make_page(compare);
    (void)snprintf(whole, sizeof whole, "<title>%s, 2 ranks</title>a-strategy", strategy);
    CHECK(strstr(page, whole) && strstr(page, "\u2026</text>"));
    mem_free(page);
    compare_destroy(compare);
}

static void test_the_page_and_lines_are_whole(void)
{
    const char *words[] = {
        make(&(struct made){ "a1", "mlp", "single", 1, 1, 0.85, 0.4, 2, "w1" }),
        make(&(struct made){ "b1", "mlp", "<b>", 2, 1, 0.85, 0.4, 1, "w1" }),
        make(&(struct made){ "b2", "mlp", "<b>", 2, 2, 0.86, 0.4, 1, "w2" }),
        make(&(struct made){ "d1", "cnn", "single", 1, 1, 0.9, 0.3, 9, "w5" }),
    };
    char path[256], *page;
    struct compare *compare;
    struct strbuf lines;
    struct json *json;
    size_t length;

    CHECK_OK(compare_read(words, 4, &compare));
    (void)snprintf(path, sizeof path, "%s/compare.html", test_folder());
    CHECK_OK(compare_write_page(compare, path));
    CHECK_OK(file_read(path, 1 << 24, &page, &length));
    page_testing_check(page);
    CHECK(strstr(page, "&lt;b&gt;, 2 ranks") && strstr(page, "cnn on digits"));
    mem_free(page);
    strbuf_init(&lines, 1 << 20);
    compare_add_json(&lines, compare);
    CHECK_OK(strbuf_status(&lines));
    const size_t first = strcspn(lines.text, "\n");
    CHECK_OK(json_parse(lines.text, first, &json));
    CHECK_TEXT("single, 1 rank", json_text(json_root(json), "group", ""));
    json_destroy(json);
    strbuf_release(&lines);
    compare_destroy(compare);
}

static void test_what_is_no_run_is_refused(void)
{
    const char *words[] = { test_folder(), "nowhere" };
    struct compare *compare;

    CHECK_STATUS(STATUS_NOT_FOUND, compare_read(words, 2, &compare));
}

const struct test tests[] = {
    { .name = "Student is met", .run = test_student_is_met },
    { .name = "seeds are a group, and noise decides",
      .run = test_seeds_are_a_group_and_noise_decides },
    { .name = "one seed says nothing but of equal weights",
      .run = test_one_seed_says_nothing_but_of_equal_weights },
    { .name = "names make groups", .run = test_names_make_groups },
    { .name = "a failed run has the data of others",
      .run = test_a_failed_run_has_the_data_of_others },
    { .name = "runs that failed count for nothing, and the rest is ranked",
      .run = test_runs_that_failed_count_for_nothing_and_the_rest_is_ranked },
    { .name = "long labels are cut, with a title",
      .run = test_long_labels_are_cut_with_a_title },
    { .name = "the page and lines are whole", .run = test_the_page_and_lines_are_whole },
    { .name = "what is no run is refused", .run = test_what_is_no_run_is_refused },
    { 0 },
};
