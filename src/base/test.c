/* SPDX-License-Identifier: MIT */
/* test.c - main of every test program: turns tests[] into a cmocka group. */
#include "base/test.h"

#include "base/file.h"
#include "base/mem.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HAVE_CMOCKA
#include <cmocka.h>
#else
#include "base/test_alone.h"
#endif

enum { EXIT_WRONG_USE = 2, EXIT_SKIPPED = 77, DEFAULT_SEEDS = 100, PATH_BYTES = 1024 };

static uint64_t first_seed, n_seeds = DEFAULT_SEEDS;
static uint64_t seed;          /* of the property that runs */
static volatile bool has_seed; /* a property runs or was left by a failure */
static size_t n_skipped;
static char folder[PATH_BYTES]; /* of the test that runs; "" until asked for */

/* Data sets lie here; hidden until test_data gives one out. */
static char data_root[PATH_BYTES], home_root[PATH_BYTES];
static char data_path[PATH_BYTES];
static bool is_data_shown;

/* Lets an allocation of an absurd size fail as it does without a sanitizer, and keeps cmocka
 * from catching a fault before the sanitizer has shown where it is. */
#define SANITIZER_OPTIONS                                                                      \
    "allocator_may_return_null=1:handle_segv=2:handle_sigbus=2:handle_sigfpe=2:handle_sigill=" \
    "2"

__attribute__((visibility("default"))) const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return SANITIZER_OPTIONS;
}

__attribute__((visibility("default"))) const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return SANITIZER_OPTIONS;
}

/* oneDNN is not instrumented, so the locks of its cache of primitives go unseen. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libdnnl.so\n";
}

/* Only async-signal-safe calls: this also runs when the program is about to die. */
static void print_seed(void)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t value = seed;

    if (!has_seed)
        return;
    has_seed = false;
    *--at = '\n';
    do
        *--at = (char)('0' + value % 10);
    while ((value /= 10) > 0);

    static const char text[] = "failing seed; repeat with TUTTI_TEST_SEEDS=1 TUTTI_TEST_SEED=";
    ssize_t done = write(STDERR_FILENO, text, sizeof text - 1);
    if (done > 0)
        done = write(STDERR_FILENO, at, (size_t)(digits + sizeof digits - at));
    (void)done; /* nothing can be done about it here */
}

static void print_seed_and_abort(int number)
{
    print_seed();
    signal(number, SIG_DFL);
    raise(number);
}

/* Present only in programs built with a sanitizer. */
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));

static void remove_folder(void)
{
    if (folder[0] && file_remove_tree(folder) != STATUS_OK)
        print_error("%s\n", status_message());
    folder[0] = '\0';
}

static void run_one(void **state)
{
    const struct test *test = *state;

    if (test->run)
        test->run();
    for (uint64_t i = 0; test->property && i < n_seeds; i++) {
        struct rng rng;

        seed = first_seed + i;
        has_seed = true;
        rng_init(&rng, seed, 0);
        test->property(&rng);
        has_seed = false;
        remove_folder();
    }
}

/* A test sees the data sets that it asks test_data for, and those of Debian's packages; otherwise
 * it would pass where other sets happen to lie and fail on a fresh machine. */
static void hide_data(void)
{
    const char *data = getenv("TUTTI_DATA"), *home = getenv("HOME");

    if (data)
        snprintf(data_root, sizeof data_root, "%s", data);
    if (home)
        snprintf(home_root, sizeof home_root, "%s/.local/share/tutti", home);
    unsetenv("TUTTI_DATA");
    setenv("HOME", "/nonexistent", 1);
}

/* cmocka calls it after every test, the failed and the skipped ones included. */
static int clean_up(void **state)
{
    (void)state;
    print_seed();
    mem_fail_at(0);
    remove_folder();
    if (is_data_shown)
        unsetenv("TUTTI_DATA");
    is_data_shown = false;
    return 0;
}

void test_fail(const char *file, int line, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vprint_error(format, args);
    va_end(args);
    print_error("\n");
    _fail(file, line);
}

void test_skip(const char *reason)
{
    has_seed = false;
    n_skipped++;
    print_message("skipped: %s\n", reason);
    _skip(__FILE__, __LINE__);
}

const char *test_folder(void)
{
    if (folder[0])
        return folder;

    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tutti-test-XXXXXX",
             parent && parent[0] ? parent : "/tmp");
    if (!mkdtemp(folder)) {
        folder[0] = '\0';
        test_fail(__FILE__, __LINE__, "cannot make a temporary folder");
    }
    return folder;
}

const char *test_data(const char *name)
{
    const char *const hidden[] = { data_root, home_root };

    for (int i = 0; i < 2; i++) {
        snprintf(data_path, sizeof data_path, "%s/%s", hidden[i], name);
        if (!hidden[i][0] || !file_is_folder(data_path))
            continue;
        setenv("TUTTI_DATA", hidden[i], 1);
        is_data_shown = true;
        return data_path;
    }
    snprintf(data_path, sizeof data_path, "/usr/share/datasets/%s", name);
    return file_is_folder(data_path) ? data_path : NULL;
}

void test_check_message(const char *file, int line, const char *part)
{
    if (!strstr(status_message(), part))
        test_fail(file, line, "failure text \"%s\" does not hold \"%s\"", status_message(),
                  part);
}

void test_check_text(const char *file, int line, const char *expected, const char *actual)
{
    if (!actual || !expected)
        test_fail(file, line, "%s instead of %s", actual ? actual : "NULL",
                  expected ? expected : "NULL");
    else if (strcmp(expected, actual) != 0)
        test_fail(file, line, "\"%s\" instead of \"%s\"", actual, expected);
}

/* Takes a number from the environment into *out, if it is set; false if it is none. */
static bool read_setting(const char *name, uint64_t *out)
{
    const char *text = getenv(name);
    char *end;

    if (!text || !text[0])
        return true;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (*end || text[0] == '-' || errno != 0) {
        fprintf(stderr, "%s: %s is no number\n", name, text);
        return false;
    }
    *out = value;
    return true;
}

/* One entry for each test whose name holds `part`. */
static size_t pick_tests(const char *part, struct CMUnitTest *out)
{
    size_t count = 0;

    for (const struct test *test = tests; test->name; test++)
        if (strstr(test->name, part))
            out[count++] = (struct CMUnitTest){ .name = test->name,
                                                .test_func = run_one,
                                                .teardown_func = clean_up,
                                                .initial_state = (void *)(uintptr_t)test };
    return count;
}

int main(int argc, char **argv)
{
    struct CMUnitTest *picked;
    size_t total = 0;

    if (!read_setting("TUTTI_TEST_SEED", &first_seed) ||
        !read_setting("TUTTI_TEST_SEEDS", &n_seeds))
        return EXIT_WRONG_USE;
    if (n_seeds == 0) {
        fprintf(stderr, "TUTTI_TEST_SEEDS: no property would be tested\n");
        return EXIT_WRONG_USE;
    }
    hide_data();
    while (tests[total].name)
        total++;
    if (mem_alloc(total, sizeof *picked, &picked) != STATUS_OK)
        return EXIT_FAILURE;

    const size_t count = pick_tests(argc > 1 ? argv[1] : "", picked);
    if (count == 0) {
        fprintf(stderr, "%s: no test to run\n", argv[0]);
        mem_free(picked);
        return EXIT_WRONG_USE;
    }
    signal(SIGABRT, print_seed_and_abort);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(print_seed);

    const char *slash = strrchr(argv[0], '/');
    const int failed =
        _cmocka_run_group_tests(slash ? slash + 1 : argv[0], picked, count, NULL, NULL);
    mem_free(picked);
    if (failed > 0)
        return EXIT_FAILURE;
    return n_skipped == count ? EXIT_SKIPPED : EXIT_SUCCESS;
}
