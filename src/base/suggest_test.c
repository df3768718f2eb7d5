/* SPDX-License-Identifier: MIT */
/* suggest_test.c - mistyped names find the right one; other words find none. */
#include "base/suggest.h"
#include "base/test.h"

#include <stdio.h>
#include <string.h>

static const char *const NAMES[] = { "fashion-mnist", "mnist", "cifar10", "imdb", NULL };

static void test_mistyped_names_find_the_right_one(void)
{
    static const char *const PAIRS[][2] = {
        { "fashion-mist", "fashion-mnist" },  /* a character missing */
        { "fashion_mnist", "fashion-mnist" }, /* one replaced */
        { "fashion-minst", "fashion-mnist" }, /* two swapped */
        { "fashionmnist", "fashion-mnist" },
        { "Fashion-MNIST", "fashion-mnist" }, /* capitals */
        { "mnst", "mnist" },
        { "mnist", "mnist" },
        { "cifar-10", "cifar10" },
        { "cifra10", "cifar10" },
        { "idmb", "imdb" },
        { "cifar", "cifar10" }, /* the end missing */
        { "fash", "fashion-mnist" },
    };

    for (size_t i = 0; i < sizeof PAIRS / sizeof PAIRS[0]; i++)
        CHECK_TEXT(PAIRS[i][1], suggest_nearest(PAIRS[i][0], NAMES));
}

static void test_other_words_find_none(void)
{
    static const char *const WORDS[] = { "", "m", "shakespeare", "multi30k", "wikitext2" };
    static const char *const NONE[] = { NULL };
    char longest[300];

    for (size_t i = 0; i < sizeof WORDS / sizeof WORDS[0]; i++)
        CHECK(suggest_nearest(WORDS[i], NAMES) == NULL);
    CHECK(suggest_nearest("mnist", NONE) == NULL);

    memset(longest, 'm', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    CHECK(suggest_nearest(longest, NAMES) == NULL);
    const char *const long_names[] = { longest, "mnist", NULL };
    CHECK_TEXT("mnist", suggest_nearest("mnis", long_names));
}

static void test_the_first_of_equals_wins(void)
{
    static const char *const EQUALS[] = { "cat3", "cat1", "cat2", NULL };

    CHECK_TEXT("cat3", suggest_nearest("cats", EQUALS));
    CHECK_TEXT("cat1", suggest_nearest("cat1", EQUALS));
}

/* Any two edits of a name of at least six characters still find it among names unlike it. */
static void test_two_edits_are_forgiven(struct rng *rng)
{
    const char *name = NAMES[rng_below(rng, 3) == 0 ? 2 : 0];
    char word[32];

    snprintf(word, sizeof word, "%s", name);
    for (int edit = 0; edit < 2; edit++)
        word[rng_below(rng, strlen(word))] = '#';
    CHECK_TEXT(name, suggest_nearest(word, NAMES));
}

const struct test tests[] = {
    { .name = "mistyped names find the right one",
      .run = test_mistyped_names_find_the_right_one },
    { .name = "other words find none", .run = test_other_words_find_none },
    { .name = "the first of equals wins", .run = test_the_first_of_equals_wins },
    { .name = "two edits are forgiven", .property = test_two_edits_are_forgiven },
    { 0 },
};
