/* SPDX-License-Identifier: MIT */
/* test_test.c - the harness: runs this program again and looks at what it prints and returns.
 *
 * The subjects misbehave only in that second run, which TUTTI_TEST_SUBJECT marks.
 */
#include "base/test.h"

#include "base/file.h"
#include "base/mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_subject(void)
{
    return getenv("TUTTI_TEST_SUBJECT") != NULL;
}

static void subject_fails(void)
{
    if (is_subject())
        CHECK_INT(4, 2 + 1);
}

static void subject_skips(void)
{
    if (is_subject())
        test_skip("nothing to do here");
}

static void subject_fails_on_a_seed(struct rng *rng)
{
    if (is_subject() && rng->key == 17)
        CHECK(rng->key != 17);
}

static void subject_dies_on_a_seed(struct rng *rng)
{
    if (is_subject())
        BUG_ON(rng->key == 23);
}

static void subject_needs_seed_five(struct rng *rng)
{
    if (is_subject())
        CHECK_INT(5, rng->key);
}

static void subject_leaves_files(void)
{
    char path[1100];

    if (!is_subject())
        return;
    snprintf(path, sizeof path, "%s/deep/er", test_folder());
    CHECK_OK(file_make_folder(path));
    fprintf(stderr, "<%s>\n", test_folder());
    CHECK(!is_subject());
}

static void subject_looks_for_data(void)
{
    if (!is_subject())
        return;
    CHECK(!getenv("TUTTI_DATA"));
    CHECK(!test_data("no-such-set"));
    CHECK_TEXT("/nonexistent", getenv("HOME"));
    const char *found = test_data("some-set"), *root = getenv("TUTTI_DATA");
    fprintf(stderr, "<%s> in <%s>\n", found ? found : "", root ? root : "");
}

static void subject_sees_no_data(void)
{
    if (is_subject())
        CHECK(!getenv("TUTTI_DATA"));
}

static char output[16384];

/* Runs the tests whose name holds `part`; gives the exit status, or -1 for death by a signal.
 */
static int run_subject(const char *part, const char *seed, const char *seeds)
{
    int ends[2], how;
    size_t length = 0;

    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        setenv("TUTTI_TEST_SUBJECT", "1", 1);
        setenv("TUTTI_TEST_SEED", seed, 1);
        setenv("TUTTI_TEST_SEEDS", seeds, 1);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        execl("/proc/self/exe", "test_test", part, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], output + length, sizeof output - 1 - length)) > 0;)
        length += (size_t)got;
    output[length] = '\0';
    close(ends[0]);
    CHECK(waitpid(child, &how, 0) == child);
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static void test_failure_is_told(void)
{
    CHECK_INT(1, run_subject("subject fails at once", "0", "100"));
    CHECK(strstr(output, "2 + 1: 3 instead of 4"));
    CHECK(strstr(output, "test_test.c:"));
    CHECK(!strstr(output, "failing seed"));
}

static void test_all_skipped_is_77(void)
{
    CHECK_INT(77, run_subject("subject skips", "0", "100"));
    CHECK(strstr(output, "SKIPPED"));
    CHECK(strstr(output, "nothing to do here"));
}

static void test_a_failure_outweighs_a_skip(void)
{
    CHECK_INT(1, run_subject("subject", "0", "20"));
    CHECK(strstr(output, "nothing to do here"));
}

static void test_the_failing_seed_is_printed(void)
{
    CHECK_INT(1, run_subject("subject fails on a seed", "0", "100"));
    CHECK(strstr(output, "TUTTI_TEST_SEED=17\n"));
    CHECK_INT(0, run_subject("subject fails on a seed", "0", "17"));
    CHECK_INT(-1, run_subject("subject dies on a seed", "0", "100"));
    CHECK(strstr(output, "TUTTI_TEST_SEED=23\n"));
}

static void test_the_seed_can_be_chosen(void)
{
    CHECK_INT(0, run_subject("subject needs seed five", "5", "1"));
    CHECK_INT(1, run_subject("subject needs seed five", "5", "2"));
    CHECK(strstr(output, "TUTTI_TEST_SEED=6\n"));
    CHECK_INT(2, run_subject("subject needs seed five", "x", "1"));
    CHECK_INT(2, run_subject("subject needs seed five", "5", "0"));
}

static void test_a_name_that_no_test_has_is_an_error(void)
{
    CHECK_INT(2, run_subject("no such test", "0", "1"));
}

static void test_the_folder_goes_with_the_test(void)
{
    CHECK_INT(1, run_subject("subject leaves files", "0", "1"));
    char *start = strchr(output, '<');
    char *end = start ? strchr(start, '>') : NULL;
    CHECK(start && end);
    *end = '\0';
    CHECK(start[1] == '/' && !file_exists(start + 1));
}

static void test_the_folder_is_fresh_for_each_seed(struct rng *rng)
{
    char path[1100];

    (void)rng;
    snprintf(path, sizeof path, "%s/here", test_folder());
    CHECK(file_is_folder(test_folder()));
    CHECK(!file_exists(path));
    CHECK_OK(file_make_folder(path));
}

static void check_found(const char *root)
{
    char expected[2200];

    snprintf(expected, sizeof expected, "<%s%s> in <%s>", root, root[0] ? "/some-set" : "",
             root);
    CHECK_INT(0, run_subject("data", "0", "1"));
    CHECK(strstr(output, expected));
}

static void test_hidden_sets_are_found_in_order(void)
{
    char share[1100], path[1200];

    setenv("HOME", test_folder(), 1);
    unsetenv("TUTTI_DATA");
    check_found("");
    snprintf(share, sizeof share, "%s/.local/share/tutti", test_folder());
    snprintf(path, sizeof path, "%s/some-set", share);
    CHECK_OK(file_make_folder(path));
    check_found(share);
    setenv("TUTTI_DATA", test_folder(), 1);
    check_found(share);
    snprintf(path, sizeof path, "%s/some-set", test_folder());
    CHECK_OK(file_make_folder(path));
    check_found(test_folder());
    unsetenv("TUTTI_DATA");
    setenv("HOME", "/nonexistent", 1);
}

const struct test tests[] = {
    { .name = "subject fails at once", .run = subject_fails },
    { .name = "subject skips", .run = subject_skips },
    { .name = "subject fails on a seed", .property = subject_fails_on_a_seed },
    { .name = "subject needs seed five", .property = subject_needs_seed_five },
    { .name = "subject leaves files", .run = subject_leaves_files },
    { .name = "subject looks for data", .run = subject_looks_for_data },
    { .name = "subject sees no data", .run = subject_sees_no_data },
    { .name = "failure is told", .run = test_failure_is_told },
    { .name = "all skipped is 77", .run = test_all_skipped_is_77 },
    { .name = "a failure outweighs a skip", .run = test_a_failure_outweighs_a_skip },
    { .name = "the failing seed is printed", .run = test_the_failing_seed_is_printed },
    { .name = "the seed can be chosen", .run = test_the_seed_can_be_chosen },
    { .name = "a name that no test has is an error",
      .run = test_a_name_that_no_test_has_is_an_error },
    { .name = "the folder goes with the test", .run = test_the_folder_goes_with_the_test },
    { .name = "the folder is fresh for each seed",
      .property = test_the_folder_is_fresh_for_each_seed },
    { .name = "hidden sets are found in order", .run = test_hidden_sets_are_found_in_order },
    { .name = "subject dies on a seed", .property = subject_dies_on_a_seed },
    { 0 },
};
