/* SPDX-License-Identifier: MIT */
/* status_test.c - the failure text of a thread. */
#include "base/status.h"

#include "base/test.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_text_and_origin_are_kept(void)
{
    CHECK_STATUS(STATUS_IO, FAIL(STATUS_IO, "disk %d of %s", 3, "node"));
    CHECK_TEXT("disk 3 of node", status_message());
    CHECK(strstr(status_origin(), "status_test.c:"));

    CHECK_STATUS(STATUS_CORRUPT, FAIL(STATUS_CORRUPT, "loading: %s", status_message()));
    CHECK_TEXT("loading: disk 3 of node", status_message());
}

static void test_text_is_one_line(void)
{
    (void)FAIL(STATUS_IO, "cannot open %s", "a\nb\tc\x7f");
    CHECK_TEXT("cannot open a b c ", status_message());
    CHECK_STATUS(STATUS_IO, status_set(STATUS_IO, "from\npeer"));
    CHECK_TEXT("from peer", status_message());
}

static void test_long_text_is_cut(void)
{
    char text[5000];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)FAIL(STATUS_IO, "%s", text);
    const size_t length = strlen(status_message());
    CHECK(length > 500 && length < sizeof text - 1);
    CHECK_STATUS(STATUS_IO, status_set(STATUS_IO, text));
    CHECK_INT(length, strlen(status_message()));
}

struct report {
    char before[64], after[64];
};

static void *fail_on_thread(void *arg)
{
    struct report *report = arg;

    strncpy(report->before, status_message(), sizeof report->before - 1);
    (void)FAIL(STATUS_PEER_LOST, "rank 2 silent");
    strncpy(report->after, status_message(), sizeof report->after - 1);
    return NULL;
}

static void test_text_belongs_to_the_thread(void)
{
    pthread_t thread;
    struct report report = { 0 };

    (void)FAIL(STATUS_IO, "mine");
    CHECK(pthread_create(&thread, NULL, fail_on_thread, &report) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_TEXT("", report.before);
    CHECK_TEXT("rank 2 silent", report.after);
    CHECK_TEXT("mine", status_message());

    CHECK_STATUS(STATUS_PEER_LOST, status_set(STATUS_PEER_LOST, report.after));
    CHECK_TEXT("rank 2 silent", status_message());
    CHECK_TEXT("", status_origin());
}

static void test_text_may_be_set_to_itself(void)
{
    (void)FAIL(STATUS_IO, "same");
    CHECK_STATUS(STATUS_MISMATCH, status_set(STATUS_MISMATCH, status_message()));
    CHECK_TEXT("same", status_message());
}

static void test_every_status_has_a_name_of_its_own(void)
{
    for (int a = STATUS_PREEMPTED; a <= STATUS_PENDING; a++) {
        CHECK(strcmp(status_name((enum status)a), "unknown status") != 0);
        for (int b = STATUS_PREEMPTED; b < a; b++)
            CHECK(strcmp(status_name((enum status)a), status_name((enum status)b)) != 0);
    }
    CHECK_TEXT("unknown status", status_name((enum status) - 100));
}

static enum status pass_on(enum status status, int *steps)
{
    TRY(status);
    ++*steps;
    return STATUS_OK;
}

static void test_try_returns_what_is_not_ok(void)
{
    int steps = 0;

    CHECK_STATUS(STATUS_STOPPED, pass_on(STATUS_STOPPED, &steps));
    CHECK_STATUS(STATUS_PENDING, pass_on(STATUS_PENDING, &steps));
    CHECK_INT(0, steps);
    CHECK_OK(pass_on(STATUS_OK, &steps));
    CHECK_INT(1, steps);
}

static void test_bug_prints_and_aborts(void)
{
    int ends[2], how;
    char text[256] = "";

    CHECK(pipe(ends) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        BUG_ON(1 + 1 == 3);
        BUG_ON(1 + 1 == 2);
        _exit(0);
    }
    close(ends[1]);
    const ssize_t length = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    CHECK(waitpid(child, &how, 0) == child);
    CHECK(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT);
    CHECK(length > 0 && strstr(text, "status_test.c:") && strstr(text, "1 + 1 == 2"));
}

const struct test tests[] = {
    { .name = "text and origin are kept", .run = test_text_and_origin_are_kept },
    { .name = "text is one line", .run = test_text_is_one_line },
    { .name = "long text is cut", .run = test_long_text_is_cut },
    { .name = "text belongs to the thread", .run = test_text_belongs_to_the_thread },
    { .name = "text may be set to itself", .run = test_text_may_be_set_to_itself },
    { .name = "every status has a name", .run = test_every_status_has_a_name_of_its_own },
    { .name = "try returns what is not ok", .run = test_try_returns_what_is_not_ok },
    { .name = "bug prints and aborts", .run = test_bug_prints_and_aborts },
    { 0 },
};
