/* SPDX-License-Identifier: MIT */
/* search_test.c - data sets are looked for in the stated order; who finds none is told what to
 * do. */
#include "data/search.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"
#include "data/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct data_testing_set SMALL = {
    .train = 3, .test = 2, .rows = 2, .columns = 2, .classes = 2
};
static char data_root[2048], home[2048];

/* Both places of a user, in this test's folder; the data sets of this machine play no part. */
static void move_in(void)
{
    snprintf(data_root, sizeof data_root, "%s/data", test_folder());
    snprintf(home, sizeof home, "%s/home", test_folder());
    setenv("TUTTI_DATA", data_root, 1);
    setenv("HOME", home, 1);
}

static void make_set(const char *root, const char *name)
{
    char folder[4200];
    struct rng rng;

    rng_init(&rng, 1, 0);
    snprintf(folder, sizeof folder, "%s/%s", root, name);
    data_testing_make(&rng, folder, &SMALL);
}

static void check_found(const char *name, const char *root, const char *below)
{
    char expected[4200], *folder;

    snprintf(expected, sizeof expected, "%s/%s%s", root, below, name);
    CHECK_OK(search_find(name, &folder));
    CHECK_TEXT(expected, folder);
    mem_free(folder);
}

static void test_places_are_tried_in_order(void)
{
    char local[2100];

    move_in();
    snprintf(local, sizeof local, "%s/.local/share/tutti", home);
    make_set(local, "own-set");
    check_found("own-set", home, ".local/share/tutti/");
    make_set(data_root, "own-set");
    check_found("own-set", data_root, "");

    unsetenv("TUTTI_DATA");
    check_found("own-set", home, ".local/share/tutti/");
    setenv("TUTTI_DATA", "", 1); /* empty is as unset */
    check_found("own-set", home, ".local/share/tutti/");
}

static void test_an_absent_data_set_tells_what_to_do(void)
{
    char *folder;
    char part[4200];

    move_in();
    CHECK_STATUS(STATUS_NOT_FOUND, search_find("mnist", &folder));
    snprintf(part, sizeof part,
             "%s/mnist, %s/.local/share/tutti/mnist, /usr/share/datasets/mnist", data_root,
             home);
    CHECK_MESSAGE(part);
    CHECK_MESSAGE("run: tutti data fetch mnist");

    if (access("/usr/share/datasets/fashion-mnist", F_OK) != 0) {
        CHECK_STATUS(STATUS_NOT_FOUND, search_find("fashion-mnist", &folder));
        CHECK_MESSAGE("install Debian's dataset-fashion-mnist, or run: tutti data fetch "
                      "fashion-mnist");
    }
    snprintf(part, sizeof part, "%s/mnist", data_root);
    CHECK_OK(file_make_folder(part));
    CHECK_STATUS(STATUS_NOT_FOUND, search_find("mnist", &folder));
    CHECK_MESSAGE("data/mnist (no known files there), ");
}

static void test_an_unknown_name_suggests_one(void)
{
    static const char *const NO_NAMES[] = { "", ".", "..", ".hidden", "a b" };
    struct dataset *dataset;
    char *folder;

    move_in();
    CHECK_STATUS(STATUS_NOT_FOUND, dataset_open("fashion-mist", DATASET_TRAIN, &dataset));
    CHECK_MESSAGE("unknown data set \"fashion-mist\"; did you mean fashion-mnist?");
    CHECK_STATUS(STATUS_NOT_FOUND, search_find("qwertz", &folder));
    CHECK_MESSAGE("unknown data set \"qwertz\"; \"tutti data list\"");
    for (size_t i = 0; i < sizeof NO_NAMES / sizeof NO_NAMES[0]; i++) {
        CHECK_STATUS(STATUS_USAGE, search_check_name(NO_NAMES[i]));
        if (dataset_is_path(NO_NAMES[i])) /* "." and "..": folders that have no data set */
            continue;
        CHECK_STATUS(STATUS_NOT_FOUND, search_find(NO_NAMES[i], &folder));
        CHECK_MESSAGE("unknown data set");
    }
    CHECK_OK(search_check_name("Own_set-2.1"));
}

static void test_a_path_is_taken_as_it_is(void)
{
    char path[4200], *folder;

    move_in();
    make_set(data_root, "own-set");
    snprintf(path, sizeof path, "%s/own-set", data_root);
    CHECK_OK(search_find(path, &folder));
    CHECK_TEXT(path, folder);
    mem_free(folder);

    snprintf(path, sizeof path, "%s/other", data_root);
    CHECK_STATUS(STATUS_NOT_FOUND, search_find(path, &folder));
    CHECK_MESSAGE("other: no such file or folder");
    CHECK_OK(file_make_folder(path));
    CHECK_STATUS(STATUS_NOT_FOUND, search_find(path, &folder));
    CHECK_MESSAGE("other: no data set there");
    CHECK_MESSAGE("train-images-idx3-ubyte[.gz]");
}

static void test_own_data_sets_are_listed(void)
{
    struct search_own *own;
    size_t count;
    char path[4200];

    move_in();
    CHECK_OK(search_list(&own, &count)); /* no place is there but, perhaps, the machine's */
    const size_t others = count;
    search_release(own, count);
    make_set(data_root, "b-set");
    make_set(data_root, "fashion-mnist"); /* a row of the table */
    make_set(data_root, "cifar10");       /* another name of one */
    make_set(data_root, ".hidden");
    make_set(data_testing_path(home, ".local/share/tutti"), "a-set");
    make_set(data_testing_path(home, ".local/share/tutti"), "b-set");
    snprintf(path, sizeof path, "%s/empty", data_root);
    CHECK_OK(file_make_folder(path));
    CHECK_OK(search_list(&own, &count));
    CHECK_INT(2 + others, count);
    size_t at = 0;
    while (at < count && strcmp(own[at].name, "a-set") != 0)
        at++;
    CHECK(at + 1 < count);
    CHECK_TEXT("idx", own[at].format);
    CHECK_TEXT("b-set", own[at + 1].name);
    snprintf(path, sizeof path, "%s/b-set", data_root); /* the first place has it */
    CHECK_TEXT(path, own[at + 1].folder);
    search_release(own, count);
}

static void test_the_root_follows_the_environment(void)
{
    char *root;

    move_in();
    CHECK_OK(search_root(&root));
    CHECK_TEXT(data_root, root);
    mem_free(root);

    unsetenv("TUTTI_DATA");
    CHECK_OK(search_root(&root));
    CHECK_TEXT(data_testing_path(home, ".local/share/tutti"), root);
    mem_free(root);

    unsetenv("HOME");
    CHECK_STATUS(STATUS_USAGE, search_root(&root));
    CHECK_MESSAGE("neither TUTTI_DATA nor HOME is set");
}

const struct test tests[] = {
    { .name = "places are tried in order", .run = test_places_are_tried_in_order },
    { .name = "an absent data set tells what to do",
      .run = test_an_absent_data_set_tells_what_to_do },
    { .name = "an unknown name suggests one", .run = test_an_unknown_name_suggests_one },
    { .name = "a path is taken as it is", .run = test_a_path_is_taken_as_it_is },
    { .name = "own data sets are listed", .run = test_own_data_sets_are_listed },
    { .name = "the root follows the environment",
      .run = test_the_root_follows_the_environment },
    { 0 },
};
