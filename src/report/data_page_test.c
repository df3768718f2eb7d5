/* SPDX-License-Identifier: MIT */
/* data_page_test.c - the page about a data set, for any number of classes and both kinds of samples. */
#include "report/data_page.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "report/page_testing.h"

enum { CLASSES = 120, PER_CLASS = 2, MOST = 200 * 100 * 3 };

/* What a page is made from; samples and means are all the same picture. */
struct made {
    struct data_page page;
    char texts[CLASSES][24];
    const char *names[CLASSES];
    double samples[2 * CLASSES];
    uint64_t values[DATA_PAGE_CHANNELS][DATA_PAGE_VALUES];
    float mean[DATA_PAGE_CHANNELS], deviation[DATA_PAGE_CHANNELS];
    struct pixmap averages[CLASSES], shown[CLASSES * PER_CLASS];
    uint8_t pixels[MOST];
};

static struct made *make(size_t classes, int channels, int width, int height)
{
    static struct made made;
    const struct pixmap like = { .width = width,
                                 .height = height,
                                 .channels = channels,
                                 .planes = true,
                                 .pixels = made.pixels };

    made = (struct made){ .mean = { 0.25F, 0.5F, 0.75F }, .deviation = { 0.1F, 0.2F, 0.3F } };
    made.page = (struct data_page){
        .name = "fruit",
        .title = "apples & pears",
        .folder = "/somewhere/fruit",
        .format = "idx",
        .fingerprint = "0123456789abcdef",
        .width = width,
        .height = height,
        .channels = channels,
        .train = 1000,
        .test = 10,
        .classes = classes,
        .class_names = made.names,
        .class_samples = made.samples,
        .values = (const uint64_t(*)[DATA_PAGE_VALUES])made.values,
        .mean = made.mean,
        .deviation = made.deviation,
        .averages = made.averages,
        .per_class = PER_CLASS,
        .samples = made.shown,
    };
    for (size_t c = 0; c < CLASSES; c++) {
        snprintf(made.texts[c], sizeof made.texts[c], "class <%zu>", c);
        made.names[c] = made.texts[c];
        made.averages[c] = made.shown[2 * c] = like;
    }
    for (size_t c = 0; c < 2 * classes; c++)
        made.samples[c] = (double)(c + 1);
    for (int c = 0; c < channels; c++) {
        made.values[c][0] = 30; /* pixels of 0 and 255: mean 1/4, deviation sqrt(3)/4 */
        made.values[c][255] = 10;
    }
    for (int i = 0; i < MOST; i++)
        made.pixels[i] = (uint8_t)(i * 7);
    return &made;
}

/* The text of the page; the caller frees it. */
static char *write_page(const struct data_page *page)
{
    char *path, *text;
    size_t length;

    CHECK_OK(file_join(test_folder(), "page.html", &path));
    CHECK_OK(data_page_write(page, path));
    CHECK_OK(file_read(path, (size_t)1 << 28, &text, &length));
    CHECK_INT(strlen(text), length);
    mem_free(path);
    return text;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;

    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

static void test_a_page_has_all_parts(void)
{
    static const char *const expected[] = {
        "<h1>fruit</h1>",
        "apples &amp; pears",
        "/somewhere/fruit",
        "class &lt;2&gt;",
        "1,000",
        "aria-label=\"Samples of each class\"",
        "class &lt;0&gt;: training 1",
        "class &lt;2&gt;: test 6",
        "aria-label=\"Pixel values",
        "<td>0.2500</td><td>0.4330</td>",
    };

    for (int channels = 1; channels <= 3; channels += 2) {
        char *text = write_page(&make(3, channels, 8, 6)->page);
        page_testing_check(text);
        for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
            if (!strstr(text, expected[i]))
                test_fail(__FILE__, __LINE__, "the page does not hold: %s", expected[i]);
        }
        CHECK_INT(channels, count_of(text, "<td>0.4330</td>"));
        CHECK_INT(
            6, count_of(text, "src=\"data:image/png;base64,")); /* a mean, a sample a class */
        CHECK((channels == 3) == (strstr(text, ">green<") != NULL));
        mem_free(text);
    }
}

static void test_any_number_of_classes_gives_a_page(void)
{
    static const size_t counts[] = { 0, 1, 20, 21, CLASSES };

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char *text = write_page(&make(counts[i], 1, 4, 4)->page);
        page_testing_check(text);
        CHECK_INT(2 * counts[i], count_of(text, "<img"));
        mem_free(text);
    }
}

static void test_large_samples_are_made_smaller(void)
{
    struct made *made = make(1, 3, 200, 100);
    char *small = write_page(&made->page);

    page_testing_check(small);
    CHECK(strlen(small) < 60000); /* 3 x 200 x 100 bytes twice would be 160000 */
    mem_free(small);
}

static void test_values_that_are_not_there(void)
{
    struct made *made = make(2, 1, 4, 4);

    memset(made->values, 0, sizeof made->values);
    memset(made->samples, 0, sizeof made->samples);
    memset(made->averages, 0, sizeof made->averages);
    memset(made->shown, 0, sizeof made->shown);
    char *text = write_page(&made->page);
    page_testing_check(text);
    CHECK(strstr(text, "<img") == NULL);
    mem_free(text);
    made->page.channels = 2;
    CHECK_STATUS(STATUS_UNSUPPORTED, data_page_write(&made->page, "/nonexistent/page.html"));
}

static void test_every_allocation_may_fail(void)
{
    const struct data_page *page = &make(2, 3, 200, 100)->page;
    char *path;

    CHECK_OK(file_join(test_folder(), "page.html", &path));
    for (uint64_t nth = 1;; nth++) {
        mem_fail_at(nth);
        const enum status status = data_page_write(page, path);
        mem_fail_at(0);
        if (status == STATUS_OK) {
            CHECK(nth > 10);
            break;
        }
        CHECK_INT(STATUS_NO_MEMORY, status);
    }
    mem_free(path);
}

const struct test tests[] = {
    { .name = "a page has all parts", .run = test_a_page_has_all_parts },
    { .name = "any number of classes gives a page",
      .run = test_any_number_of_classes_gives_a_page },
    { .name = "large samples are made smaller", .run = test_large_samples_are_made_smaller },
    { .name = "values that are not there", .run = test_values_that_are_not_there },
    { .name = "every allocation may fail", .run = test_every_allocation_may_fail },
    { 0 },
};
