/* SPDX-License-Identifier: MIT */
/* about_test.c - what is told about data is read, or refused. */
#include "fed/about.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

static void check(const char *told, const char *labels)
{
    char *text;

    CHECK_OK(fed_about_labels(told, strlen(told), &text));
    if (labels)
        CHECK_TEXT(labels, text);
    else
        CHECK(text == NULL);
    mem_free(text);
}

static void test_counts_are_read(void)
{
    check("{\"labels\": [12,0, 7]}", "[12, 0, 7]");
    check("{\"labels\": [], \"more\": true}", "[]");
    check("{}", NULL);
    check("", NULL);
}

static void test_what_is_no_count_is_refused(void)
{
    static const char *const wrong[] = { "[]",
                                         "7",
                                         "{\"labels\": 7}",
                                         "{\"labels\": {}}",
                                         "{\"labels\": [1, -2]}",
                                         "{\"labels\": [0.5]}",
                                         "{\"labels\": [1e99]}",
                                         "{\"labels\": [\"<script>\"]}",
                                         "{\"labels\": [[1]]}",
                                         "{\"labels\": [1" };
    char *text;

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_STATUS(STATUS_CORRUPT, fed_about_labels(wrong[i], strlen(wrong[i]), &text));
}

static void test_too_many_are_refused(void)
{
    char told[4 * FED_LABELS], *text;
    size_t length = (size_t)snprintf(told, sizeof told, "{\"labels\": [0");

    for (int i = 0; i < FED_LABELS; i++)
        length += (size_t)snprintf(told + length, sizeof told - length, ",0");
    length += (size_t)snprintf(told + length, sizeof told - length, "]}");
    CHECK_STATUS(STATUS_CORRUPT, fed_about_labels(told, length, &text));
    CHECK_MESSAGE("at most 1024 counts");
}

const struct test tests[] = {
    { .name = "counts are read", .run = test_counts_are_read },
    { .name = "what is no count is refused", .run = test_what_is_no_count_is_refused },
    { .name = "too many are refused", .run = test_too_many_are_refused },
    { 0 },
};
