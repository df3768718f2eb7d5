/* SPDX-License-Identifier: MIT */
/* class_map_test.c - classes are matched by name, and by position where they have none. */
#include "data/class_map.h"

#include "base/test.h"

#include <stdio.h>

enum { MOST = 12 };

static const char *const LETTERS[] = { "owl", "cat", "dog" };
static const char *const NUMBERS[] = { "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10" };
static const struct class_list NAMED = { LETTERS, 3 }, NUMBERED = { NUMBERS, 11 };

static void test_names_are_matched(void)
{
    static const struct {
        const char *name[MOST];
        int count;
        bool has_no_names, are_numbers;
        const struct class_list *run;
        int32_t expected[MOST];
    } CASES[] = {
        { { "owl", "cat", "dog" }, 3, false, false, &NAMED, { 0, 1, 2 } },
        { { "cat", "dog", "owl" }, 3, false, false, &NAMED, { 1, 2, 0 } },
        { { "dog" }, 1, false, false, &NAMED, { 2 } },
        { { "dog", "owl" }, 2, false, true, &NAMED, { 2, 0 } },
        { { 0 }, 2, true, true, &NAMED, { 0, 1 } },
        { { 0 }, 11, true, true, &NUMBERED, { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 } },
        /* Folders in the order of their bytes. */
        { { "0", "1", "10", "2" }, 4, false, false, &NUMBERED, { 0, 1, 10, 2 } },
        /* Labels are numbers, and so are the run's classes, whatever they may be called here. */
        { { "cat", "dog" }, 2, false, true, &NUMBERED, { 0, 1 } },
    };

    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const struct class_source own = { .path = "here",
                                          .name = CASES[i].has_no_names ? NULL : CASES[i].name,
                                          .count = CASES[i].count,
                                          .are_numbers = CASES[i].are_numbers };
        int32_t map[MOST];

        CHECK_OK(class_map(&own, CASES[i].run, map));
        for (int c = 0; c < CASES[i].count; c++)
            CHECK_INT(CASES[i].expected[c], map[c]);
    }
}

static void test_others_are_refused(void)
{
    static const char *const WOLF[] = { "cat", "wolf" };
    struct class_source own = { .path = "here", .name = WOLF, .count = 2 };
    int32_t map[MOST];

    CHECK_STATUS(STATUS_MISMATCH, class_map(&own, &NAMED, map));
    CHECK_MESSAGE("here: class wolf is none of the run's: owl, cat, dog");
    CHECK_STATUS(STATUS_MISMATCH, class_map(&own, &NUMBERED, map));
    CHECK_MESSAGE("class cat is none of the run's: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1 more");
    own = (struct class_source){ .path = "here", .count = 4, .are_numbers = true };
    CHECK_STATUS(STATUS_MISMATCH, class_map(&own, &NAMED, map));
    CHECK_MESSAGE("here: labels go up to 3, the run has 3 classes: owl, cat, dog");
}

/* Names that occur twice are the run's own, in its order. */
static void test_a_list_matches_itself(void)
{
    static const char *const TWICE[] = { "a", "a", "b" };
    static const struct class_list RUN = { TWICE, 3 };
    const struct class_source own = { .path = "x", .name = TWICE, .count = 3 };
    int32_t map[MOST];

    CHECK_OK(class_map(&own, &RUN, map));
    for (int c = 0; c < 3; c++)
        CHECK_INT(c, map[c]);
}

const struct test tests[] = {
    { .name = "names are matched", .run = test_names_are_matched },
    { .name = "others are refused", .run = test_others_are_refused },
    { .name = "a list matches itself", .run = test_a_list_matches_itself },
    { 0 },
};
