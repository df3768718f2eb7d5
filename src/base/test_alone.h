/* SPDX-License-Identifier: MIT */
/* test_alone.h - private to test.c: what it uses of cmocka, for machines that have none, such as those that a
 * GPU is tested on. Tests run one after the other in this process; a failure leaves a test by a long jump. */
#ifndef BASE_TEST_ALONE_H
#define BASE_TEST_ALONE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

struct CMUnitTest {
    const char *name;
    void (*test_func)(void **state);
    int (*teardown_func)(void **state);
    void *initial_state;
};

enum { ALONE_FAILED = 1, ALONE_SKIPPED };

static jmp_buf alone_leave;

static inline void vprint_error(const char *format, va_list args) PRINTF_LIKE(1, 0);
static inline void vprint_error(const char *format, va_list args)
{
    (void)vfprintf(stderr, format, args);
}

static inline void print_error(const char *format, ...) PRINTF_LIKE(1, 2);
static inline void print_error(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vprint_error(format, args);
    va_end(args);
}

#define print_message(...) ((void)printf(__VA_ARGS__))

static inline void _fail(const char *file, int line)
{
    print_error("%s:%d: error: failure\n", file, line);
    longjmp(alone_leave, ALONE_FAILED);
}

static inline void _skip(const char *file, int line)
{
    (void)file;
    (void)line;
    longjmp(alone_leave, ALONE_SKIPPED);
}

static inline int _cmocka_run_group_tests(const char *name, const struct CMUnitTest *picked,
                                          size_t count, void *set_up, void *tear_down)
{
    static const char *const said[] = { "      OK", "  FAILED", " SKIPPED" };
    volatile int failed = 0;

    (void)set_up;
    (void)tear_down;
    for (volatile size_t i = 0; i < count; i++) {
        void *state = picked[i].initial_state;
        const int how = setjmp(alone_leave);
        if (how == 0)
            picked[i].test_func(&state);
        (void)picked[i].teardown_func(&state);
        (void)printf("[ %s ] %s\n", said[how], picked[i].name);
        (void)fflush(stdout);
        failed += how == ALONE_FAILED;
    }
    (void)printf("[==========] %s: %zu tests, %d failed\n", name, count, failed);
    return failed;
}

#endif /* BASE_TEST_ALONE_H */
