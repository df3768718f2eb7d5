/* SPDX-License-Identifier: MIT */
/* test.h - the test harness: a table of tests a program, run by cmocka.
 *
 * A test file defines `const struct test tests[]`, ended by { 0 }, and links
 * with the library `testing`, which holds main. A .property is called with many
 * seeds (TUTTI_TEST_SEEDS, default 100, from TUTTI_TEST_SEED); the failing seed is
 * printed. A program's first argument, if given, picks tests whose name holds it.
 * CHECK* end the test on failure; they may be used from the main thread only,
 * elsewhere collect a status and check it after joining.
 */
#ifndef BASE_TEST_H
#define BASE_TEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/rng.h"
#include "base/status.h"

struct test {
    const char *name; /* a sentence */
    void (*run)(void);
    void (*property)(struct rng *rng);
};

extern const struct test tests[];

void test_fail(const char *file, int line, const char *format, ...) PRINTF_LIKE(3, 4);
/* Ends the test as skipped, visibly, with the reason; a program all of whose tests are skipped
 * exits 77. */
void test_skip(const char *reason);
/* A fresh folder for this test, removed after it. Valid until the test ends. */
const char *test_folder(void);
/* Folder of a data set, or NULL: looked for in $TUTTI_DATA and ~/.local/share/tutti as they were
 * when the program began, and in /usr/share/datasets. The first two are hidden from tests, so that
 * none relies on what lies on this machine; this call shows $TUTTI_DATA until the test ends. */
const char *test_data(const char *name);

#define CHECK(condition)                                                                       \
    do {                                                                                       \
        if (!(condition))                                                                      \
            test_fail(__FILE__, __LINE__, "not true: %s", #condition);                         \
    } while (0)
#define CHECK_OK(call)                                                                         \
    do {                                                                                       \
        enum status check_status_ = (call);                                                    \
        if (check_status_ != STATUS_OK)                                                        \
            test_fail(__FILE__, __LINE__, "%s: %s: %s", #call, status_name(check_status_),     \
                      status_message());                                                       \
    } while (0)
#define CHECK_STATUS(expected, call)                                                           \
    do {                                                                                       \
        enum status check_status_ = (call);                                                    \
        if (check_status_ != (expected))                                                       \
            test_fail(__FILE__, __LINE__, "%s: %s instead of %s", #call,                       \
                      status_name(check_status_), status_name(expected));                      \
    } while (0)
#define CHECK_INT(expected, actual)                                                            \
    do {                                                                                       \
        long long check_e_ = (long long)(expected), check_a_ = (long long)(actual);            \
        if (check_e_ != check_a_)                                                              \
            test_fail(__FILE__, __LINE__, "%s: %lld instead of %lld", #actual, check_a_,       \
                      check_e_);                                                               \
    } while (0)
/* |actual - expected| <= tolerance * max(1, |expected|) */
#define CHECK_CLOSE(expected, actual, tolerance)                                               \
    do {                                                                                       \
        double check_e_ = (double)(expected), check_a_ = (double)(actual);                     \
        double check_m_ = check_e_ < 0 ? -check_e_ : check_e_;                                 \
        double check_d_ = check_a_ - check_e_;                                                 \
        if (!((check_d_ < 0 ? -check_d_ : check_d_) <=                                         \
              (tolerance) * (check_m_ > 1 ? check_m_ : 1)))                                    \
            test_fail(__FILE__, __LINE__, "%s: %.9g instead of %.9g", #actual, check_a_,       \
                      check_e_);                                                               \
    } while (0)
/* The failure text of this thread contains `part`. */
#define CHECK_MESSAGE(part) test_check_message(__FILE__, __LINE__, part)
void test_check_message(const char *file, int line, const char *part);
#define CHECK_TEXT(expected, actual) test_check_text(__FILE__, __LINE__, expected, actual)
void test_check_text(const char *file, int line, const char *expected, const char *actual);

#endif /* BASE_TEST_H */
