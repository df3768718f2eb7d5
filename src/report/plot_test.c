/* SPDX-License-Identifier: MIT */
/* plot_test.c - ticks are nice, and any values give a legal picture. */
#include "base/test.h"
#include "report/plot.h"
#include "report/scale.h"
#include "report/svg.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Whether `word` occurs as a word of its own. */
static bool has_word(const char *text, const char *word)
{
    for (const char *at = strstr(text, word); at; at = strstr(at + 1, word)) {
        if (!isalpha((unsigned char)at[strlen(word)]) &&
            (at == text || !isalpha((unsigned char)at[-1])))
            return true;
    }
    return false;
}

static void check_picture(const struct strbuf *svg)
{
    const char *reason;

    CHECK_OK(strbuf_status(svg));
    if (!svg_element(svg->text, &reason))
        test_fail(__FILE__, __LINE__, "not a picture: %s", reason);
    CHECK(!has_word(svg->text, "nan") && !has_word(svg->text, "inf"));
}

static int count_of(const char *text, const char *part)
{
    int count = 0;

    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

static void check_lines(const double *x, const double *y, size_t count, bool log,
                        enum plot_style style)
{
    const struct plot plot = { .title = "t",
                               .x = { .label = "x", .log = log },
                               .y = { .label = "y", .log = log } };
    const struct plot_series series = {
        .name = "s", .x = x, .y = y, .count = count, .style = style, .tell_last = true
    };
    struct strbuf svg;

    strbuf_init(&svg, 1 << 24);
    plot_lines(&svg, &plot, &series, 1);
    check_picture(&svg);
    strbuf_release(&svg);
}

static bool is_nice(double step)
{
    const double digits = step / pow(10, floor(log10(step) + 1e-9));

    return fabs(digits - 1) < 1e-6 || fabs(digits - 2) < 1e-6 || fabs(digits - 5) < 1e-6;
}

static double any_value(struct rng *rng)
{
    const double size = pow(10, rng_normal(rng) * 6);

    return rng_below(rng, 2) ? size : -size;
}

static void test_ticks_are_nice_and_cover_the_range(struct rng *rng)
{
    struct scale_range range = SCALE_NOTHING;
    const struct scale_rule rule = { .loose = rng_below(rng, 2),
                                     .from_zero = rng_below(rng, 2),
                                     .wanted = 3 + (int)rng_below(rng, 8) };
    struct scale scale;

    for (uint64_t n = 1 + rng_below(rng, 3); n > 0; n--)
        scale_include(&range, any_value(rng), false);
    scale_fit(&scale, range, &rule);
    const double rounding = 1e-5 * scale.step;
    CHECK(scale.lo < scale.hi);
    CHECK(scale.lo <= range.lo + rounding && scale.hi >= range.hi - rounding);
    CHECK(is_nice(scale.step));
    CHECK(scale.n_ticks >= 1 && scale.n_ticks <= rule.wanted + 3);
    for (int i = 0; i < scale.n_ticks; i++) {
        const double at = scale_place(&scale, scale.ticks[i]);
        CHECK(at > -1e-6 && at < 1 + 1e-6);
        CHECK(i == 0 || scale.ticks[i] > scale.ticks[i - 1]);
        const double multiple = scale.ticks[i] / scale.step;
        CHECK(fabs(multiple - round(multiple)) < 1e-6);
    }
    if (rule.loose) {
        CHECK_CLOSE(0, scale_place(&scale, scale.ticks[0]), 1e-6);
        CHECK_CLOSE(1, scale_place(&scale, scale.ticks[scale.n_ticks - 1]), 1e-6);
    }
}

static void test_log_ticks_ascend_within_the_range(struct rng *rng)
{
    struct scale_range range = SCALE_NOTHING;
    const struct scale_rule rule = { .log = true, .loose = rng_below(rng, 2), .wanted = 5 };
    struct scale scale;

    scale_include(&range, fabs(any_value(rng)), true);
    scale_include(&range, fabs(any_value(rng)), true);
    scale_fit(&scale, range, &rule);
    CHECK(scale.lo > 0 && scale.lo <= range.lo * (1 + 1e-6) &&
          scale.hi >= range.hi * (1 - 1e-6));
    CHECK(scale.n_ticks >= 1);
    for (int i = 0; i < scale.n_ticks; i++) {
        const double at = scale_place(&scale, scale.ticks[i]);
        CHECK(at > -1e-6 && at < 1 + 1e-6);
        CHECK(i == 0 || scale.ticks[i] > scale.ticks[i - 1]);
    }
}

static void test_whole_axis_has_whole_ticks(void)
{
    const struct scale_rule rule = { .whole = true, .wanted = 7 };
    struct scale scale;

    scale_fit(&scale, (struct scale_range){ 0, 3 }, &rule);
    CHECK_INT(4, scale.n_ticks);
    CHECK(scale.ticks[3] == 3);
}

static void test_an_axis_of_shares_ends_at_nothing_and_all(struct rng *rng)
{
    const struct scale_rule rule = { .share = true,
                                     .loose = rng_below(rng, 2),
                                     .from_zero = rng_below(rng, 2),
                                     .wanted = 2 + (int)rng_below(rng, 10) };
    const double ends[] = { (double)rng_below(rng, 21) / 20, (double)rng_below(rng, 21) / 20 };
    struct scale_range range = SCALE_NOTHING;
    struct scale scale;

    scale_include(&range, ends[0], false);
    scale_include(&range, ends[1], false);
    scale_fit(&scale, range, &rule);
    CHECK(scale.lo < scale.hi && scale.lo >= 0 && scale.hi <= 1 + 1e-12);
    CHECK(scale.lo <= range.lo + 1e-12 && scale.hi >= range.hi - 1e-12 && scale.n_ticks > 0);
    for (int i = 0; i < scale.n_ticks; i++)
        CHECK(scale.ticks[i] >= 0 && scale.ticks[i] <= 1 + 1e-8);
    scale_include(&range, 1.5, false); /* an efficiency may be more */
    scale_fit(&scale, range, &rule);
    CHECK(scale.hi >= 1.5);
}

static void test_a_range_takes_what_can_be_shown(void)
{
    struct scale_range range = SCALE_NOTHING;

    scale_include(&range, NAN, false);
    scale_include(&range, INFINITY, false);
    scale_include(&range, -1, true);
    CHECK(range.lo > range.hi);
    scale_include(&range, 2, true);
    scale_include(&range, -INFINITY, false);
    CHECK(range.lo == 2 && range.hi == 2);
}

static void test_degenerate_values_give_a_picture(void)
{
    static const double ones[] = { 1, 1, 1 }, zeros[] = { 0, 0, 0 };
    static const double x[] = { 1, 2, 3 };
    static const double nothing[] = { NAN, NAN, NAN };
    static const double mixed[] = { INFINITY, 1, -INFINITY };
    static const double huge[] = { -1.7e308, 0, 1.7e308 };
    static const double tiny[] = { 5e-324, 1e-320, 1e-310 };
    static const double *const values[] = { ones, zeros, nothing, mixed, huge, tiny };

    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        for (size_t count = 0; count <= 3; count++) {
            for (int style = PLOT_LINE; style <= PLOT_POINTS; style++) {
                check_lines(x, values[v], count, false, (enum plot_style)style);
                check_lines(x, values[v], count, true, (enum plot_style)style);
                check_lines(values[v], x, count, false, (enum plot_style)style);
                check_lines(ones, values[v], count, false, (enum plot_style)style);
            }
        }
    }
    check_lines(NULL, NULL, 0, false, PLOT_LINE);

    enum { MANY = 100 };
    double place[MANY], many[MANY];
    for (int i = 0; i < MANY; i++) {
        place[i] = i;
        many[i] = i % 7 == 0 ? 1.7e308 : 1; /* their sum is infinite */
    }
    check_lines(place, many, MANY, false, PLOT_NOISY);
    check_lines(place, many, MANY, true, PLOT_NOISY);
}

static void test_any_values_give_a_picture(struct rng *rng)
{
    enum { MOST = 3000 };
    static double x[MOST], y[MOST];
    const size_t count = rng_below(rng, 2) ? rng_below(rng, 20) : rng_below(rng, MOST);
    double at = any_value(rng);

    for (size_t i = 0; i < count; i++) {
        at += fabs(any_value(rng));
        x[i] = at;
        y[i] = rng_below(rng, 10) == 0 ? NAN : any_value(rng);
    }
    check_lines(x, y, count, rng_below(rng, 2), (enum plot_style)rng_below(rng, 3));
}

static void test_thinning_keeps_the_peak_and_bounds_the_size(void)
{
    enum { COUNT = 200000, PEAK = 123457 };
    static double x[COUNT], y[COUNT];
    const struct plot plot = { .title = "many" };
    const struct plot_series series = { .x = x, .y = y, .count = COUNT };
    struct strbuf svg;

    for (int i = 0; i < COUNT; i++) {
        x[i] = i;
        y[i] = sin(i * 0.7);
    }
    y[PEAK] = 100;
    strbuf_init(&svg, 1 << 24);
    plot_lines(&svg, &plot, &series, 1);
    check_picture(&svg);
    CHECK(svg.length < 100000);
    /* The axis ends at 100, so the peak's y is that of the top: the tick that is highest. */
    const char *path = strstr(svg.text, "stroke-linejoin");
    CHECK(path != NULL);
    const char *start = path;
    while (start > svg.text && strncmp(start, "d=\"", 3) != 0)
        start--;
    double least = 1e9;
    for (const char *c = start; c < path; c++) {
        double px, py;
        if ((*c == 'L' || *c == 'M') && sscanf(c + 1, "%lf %lf", &px, &py) == 2)
            least = fmin(least, py);
    }
    CHECK(least < 60);
    strbuf_release(&svg);
}

static size_t longest_digits(const char *text)
{
    size_t longest = 0;

    for (; *text; text++) {
        const size_t length = strspn(text, "0123456789");
        longest = length > longest ? length : longest;
    }
    return longest;
}

static void test_a_noisy_line_shows_its_course(void)
{
    enum { COUNT = 400 };
    static double x[COUNT], y[COUNT];
    const struct plot plot = { .title = "noisy" };
    const struct plot_series series = {
        .x = x, .y = y, .count = COUNT, .style = PLOT_NOISY, .tell_last = true
    };
    struct strbuf svg;

    for (int i = 0; i < COUNT; i++) {
        x[i] = i;
        y[i] = 2 + 0.01 * i + (i % 2 ? 0.5 : -0.5);
    }
    y[200] = 1e200; /* one spike does not flatten the rest */
    strbuf_init(&svg, 1 << 24);
    plot_lines(&svg, &plot, &series, 1);
    check_picture(&svg);
    CHECK_INT(2, count_of(svg.text, "stroke-linejoin"));
    double told = 0;
    const char *bold = strstr(svg.text, "font-weight=\"600\" class=\"f0\"");
    CHECK(bold && sscanf(strchr(bold, '>'), ">%lf", &told) == 1);
    CHECK(fabs(told - (2 + 0.01 * (COUNT - 1))) < 0.15); /* the line without its noise */
    CHECK(strstr(svg.text, ">10\u00b2\u2070\u2070<") == NULL);
    CHECK(longest_digits(svg.text) < 8); /* the spike is cut, not written out */
    strbuf_release(&svg);
}

static void test_legend_and_titles_name_the_series_safely(void)
{
    static const double x[] = { 0, 1 }, y[] = { 0.5, 0.75 };
    const struct plot plot = { .title = "<b>&\"", .y = { .format = NUMBER_PERCENT } };
    const struct plot_series series[] = {
        { .name = "</svg><script>alert(1)</script>", .x = x, .y = y, .count = 2 },
        { .name = NULL, .x = x, .y = y, .count = 2, .colour = -3, .dashed = true },
    };
    struct strbuf svg;

    strbuf_init(&svg, 1 << 20);
    plot_lines(&svg, &plot, series, 2);
    check_picture(&svg);
    CHECK(strstr(svg.text, "<script") == NULL);
    CHECK(strstr(svg.text, "&lt;script&gt;") != NULL);
    CHECK(strstr(svg.text, "75.00%") != NULL); /* in a title under the pointer */
    strbuf_release(&svg);
}

static void test_legend_wraps_and_never_covers_data(void)
{
    static const double x[] = { 0, 1 }, y[] = { 0, 1 };
    struct plot_series series[12];
    const struct plot plot = { .title = "legend" };
    struct strbuf svg;
    double lowest_entry = 0, top = 1e9;

    for (int i = 0; i < 12; i++)
        series[i] = (struct plot_series){
            .name = "a series with a name", .x = x, .y = y, .count = 2, .colour = i
        };
    strbuf_init(&svg, 1 << 20);
    plot_lines(&svg, &plot, series, 12);
    check_picture(&svg);
    for (const char *at = strstr(svg.text, "<text class=\"ink\" x=\""); at;
         at = strstr(at + 1, "<text class=\"ink\" x=\"")) {
        double px, py;
        if (sscanf(at, "<text class=\"ink\" x=\"%lf\" y=\"%lf\"", &px, &py) == 2) {
            lowest_entry = fmax(lowest_entry, py);
            CHECK(px + 100 < 540);
        }
    }
    for (const char *at = strstr(svg.text, "<path class=\"grid\""); at;
         at = strstr(at + 1, "<path class=\"grid\"")) {
        double px, py;
        if (sscanf(at, "<path class=\"grid\" d=\"M%lf %lf", &px, &py) == 2)
            top = fmin(top, py);
    }
    CHECK(lowest_entry > 70 && lowest_entry < top);
    strbuf_release(&svg);
}

static void test_bars_stand_or_lie_for_any_values(void)
{
    static const char *const categories[] = { "rank 0", "<rank> 1", "rank 2" };
    static const char *const names[] = { "compute", "wait" };
    static const double values[][6] = {
        { 1, 2, 3, 4, 5, 6 },
        { 0, 0, 0, 0, 0, 0 },
        { NAN, -1, INFINITY, 1e308, 1e308, 0 },
    };
    static const int expected[] = { 6, 0, 2 };

    for (int v = 0; v < 3; v++) {
        for (int form = 0; form < 4; form++) {
            const struct plot plot = { .title = "bars", .x = { .label = "x" } };
            const struct plot_bars bars = { .categories = categories,
                                            .n_categories = 3,
                                            .names = names,
                                            .n_series = 2,
                                            .values = values[v],
                                            .stacked = form & 1,
                                            .horizontal = form & 2 };
            struct strbuf svg;
            strbuf_init(&svg, 1 << 20);
            plot_bars(&svg, &plot, &bars);
            check_picture(&svg);
            CHECK_INT(expected[v], count_of(svg.text, "<g class=\"bar\">"));
            strbuf_release(&svg);
        }
    }
}

/* Names that would touch stand upright, all of them, and bars below a hundred names stay apart. */
static void test_all_names_of_bars_are_there(void)
{
    enum { N = 60 };
    static const char *const series[] = { NULL };
    char texts[N][24];
    const char *names[N];
    double values[N];
    struct strbuf svg;

    for (int i = 0; i < N; i++) {
        snprintf(texts[i], sizeof texts[i], "a long name %d", i);
        names[i] = texts[i];
        values[i] = i % 7;
    }
    for (int lying = 0; lying < 2; lying++) {
        const struct plot_bars bars = { .categories = names,
                                        .n_categories = N,
                                        .names = series,
                                        .n_series = 1,
                                        .values = values,
                                        .horizontal = lying,
                                        .tell = lying,
                                        .all_names = true };
        strbuf_init(&svg, 1 << 20);
        plot_bars(&svg, &(struct plot){ .title = "t" }, &bars);
        check_picture(&svg);
        for (int i = 0; i < N && !lying; i++) {
            char wanted[40];
            snprintf(wanted, sizeof wanted, ">a long name %d<", i);
            CHECK(strstr(svg.text, wanted) != NULL);
        }
        CHECK_INT(lying ? 0 : N, count_of(svg.text, "rotate(-90)"));
        strbuf_release(&svg);
    }
}

static void test_a_matrix_shows_what_is_not_empty(void)
{
    static const char *const names[] = { "one", "two & three", "four" };
    static const double counts[] = { 8, 2, 0, 0, 1e300, NAN, -1, INFINITY, 5 };
    const struct plot plot = { .title = "t", .x = { .label = "x" }, .y = { .label = "y" } };
    struct strbuf svg;

    for (size_t n = 0; n <= 3; n++) {
        const struct plot_matrix matrix = { .names = names, .n = n, .counts = counts };
        strbuf_init(&svg, 1 << 20);
        plot_matrix(&svg, &plot, &matrix);
        check_picture(&svg);
        CHECK_INT(n == 0 ? 0 : n == 1 ? 1 : n == 2 ? 2 : 4, count_of(svg.text, "<title>"));
        if (n == 3)
            CHECK(strstr(svg.text, "<title>one taken for two &amp; three: 2 (20.00%)</title>"));
        strbuf_release(&svg);
    }
}

/* Many classes: no cell for what is empty, no numbers, no text that is too small to be drawn. */
static void test_a_matrix_of_many_classes_stays_small(void)
{
    enum { N = 256 };
    static double counts[N * N];
    static const char *names[N];
    struct strbuf svg;

    for (int i = 0; i < N; i++) {
        names[i] = "class";
        counts[i * N + i] = 90;
        counts[i * N + (i + 7) % N] = 10;
    }
    const struct plot_matrix matrix = { .names = names, .n = N, .counts = counts };
    strbuf_init(&svg, 1 << 20);
    plot_matrix(&svg, &(struct plot){ .title = "t", .width = 1120 }, &matrix);
    check_picture(&svg);
    CHECK_INT(2 * N, count_of(svg.text, "<title>"));
    CHECK(svg.length < 300000);
    strbuf_release(&svg);
}

static void test_no_bars_at_all(void)
{
    const struct plot plot = { .title = "bars" };
    struct strbuf svg;

    strbuf_init(&svg, 1 << 20);
    plot_bars(&svg, &plot, &(struct plot_bars){ .horizontal = true, .stacked = true });
    check_picture(&svg);
    strbuf_clear(&svg);
    plot_bars(&svg, &plot, &(struct plot_bars){ .n_series = 0 });
    check_picture(&svg);
    strbuf_release(&svg);
}

/* Adds up "...: COUNT</title>". */
static int sum_of_bins(const char *svg)
{
    int sum = 0;

    for (const char *at = strstr(svg, "<g class=\"bar\">"); at;
         at = strstr(at + 1, "<g class=\"bar\">")) {
        int count = 0;
        const char *colon = strstr(at, ": ");
        CHECK(colon && sscanf(colon, ": %d", &count) == 1);
        sum += count;
    }
    return sum;
}

static void test_histogram_counts_every_finite_value(struct rng *rng)
{
    double values[300];
    const size_t count = rng_below(rng, 300);
    int finite = 0;
    struct strbuf svg;
    const struct plot plot = { .title = "histogram" };

    for (size_t i = 0; i < count; i++) {
        values[i] = rng_below(rng, 20) == 0 ? NAN : rng_normal(rng);
        finite += isfinite(values[i]);
    }
    strbuf_init(&svg, 1 << 20);
    plot_histogram(&svg, &plot, values, count, 1 + (int)rng_below(rng, 50));
    check_picture(&svg);
    CHECK_INT(finite, sum_of_bins(svg.text));
    strbuf_release(&svg);
}

static void test_pictures_that_would_break_a_page_are_refused(void)
{
    static const char *const refused[] = {
        "",
        "hello",
        "<html></html>",
        "<svg>",
        "<svg></div></svg>",
        "<svg><g></svg></g>",
        "<svg></svg></main>",
        "<svg><script>1</script></svg>",
        "<svg><SCRIPT/></svg>",
        "<svg><foreignObject/></svg>",
        "<svg a=\"></svg>",
        "<svg><!-- </svg>",
        "<svg><a <b></svg>",
        "<svgx></svgx>",
        "<?xml ",
    };
    static const char *const taken[] = {
        "<svg/>",
        "<?xml version=\"1.0\"?>\n<!DOCTYPE svg>\n<!-- c -->\n<svg a='>'><g><!-- <b> --></g>"
        "</svg>\n",
    };
    const char *reason;

    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK(svg_element(refused[i], &reason) == NULL);
        CHECK(reason && *reason);
    }
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        const char *element = svg_element(taken[i], &reason);
        CHECK(element && strncmp(element, "<svg", 4) == 0);
    }
}

const struct test tests[] = {
    { .name = "ticks are nice and cover the range",
      .property = test_ticks_are_nice_and_cover_the_range },
    { .name = "log ticks ascend within the range",
      .property = test_log_ticks_ascend_within_the_range },
    { .name = "a whole axis has whole ticks", .run = test_whole_axis_has_whole_ticks },
    { .name = "an axis of shares ends at nothing and all",
      .property = test_an_axis_of_shares_ends_at_nothing_and_all },
    { .name = "a range takes what can be shown", .run = test_a_range_takes_what_can_be_shown },
    { .name = "degenerate values give a picture",
      .run = test_degenerate_values_give_a_picture },
    { .name = "any values give a picture", .property = test_any_values_give_a_picture },
    { .name = "thinning keeps the peak and bounds the size",
      .run = test_thinning_keeps_the_peak_and_bounds_the_size },
    { .name = "a noisy line shows its course", .run = test_a_noisy_line_shows_its_course },
    { .name = "legend and titles name the series safely",
      .run = test_legend_and_titles_name_the_series_safely },
    { .name = "the legend wraps and never covers data",
      .run = test_legend_wraps_and_never_covers_data },
    { .name = "bars stand or lie for any values",
      .run = test_bars_stand_or_lie_for_any_values },
    { .name = "all names of bars are there", .run = test_all_names_of_bars_are_there },
    { .name = "a matrix shows what is not empty",
      .run = test_a_matrix_shows_what_is_not_empty },
    { .name = "a matrix of many classes stays small",
      .run = test_a_matrix_of_many_classes_stays_small },
    { .name = "no bars at all", .run = test_no_bars_at_all },
    { .name = "a histogram counts every finite value",
      .property = test_histogram_counts_every_finite_value },
    { .name = "pictures that would break a page are refused",
      .run = test_pictures_that_would_break_a_page_are_refused },
    { 0 },
};
