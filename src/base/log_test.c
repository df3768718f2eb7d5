/* SPDX-License-Identifier: MIT */
/* log_test.c - which lines are written, and that each is one line. */
#include "base/log.h"

#include "base/test.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static int saved_stderr, ends[2];
static char captured[8192];

/* Standard error goes to a pipe from here to end_capture, which gives what was written. */
static void begin_capture(void)
{
    CHECK(pipe(ends) == 0);
    saved_stderr = dup(STDERR_FILENO);
    CHECK(saved_stderr >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
}

static const char *end_capture(void)
{
    size_t length = 0;

    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    for (ssize_t got;
         (got = read(ends[0], captured + length, sizeof captured - 1 - length)) > 0;)
        length += (size_t)got;
    close(ends[0]);
    captured[length] = '\0';
    return captured;
}

static void test_level_chooses_lines(void)
{
    begin_capture();
    log_line(LOG_INFO, "hidden");
    log_line(LOG_WARNING, "seen %d", 1);
    log_set_level(LOG_INFO);
    log_line(LOG_INFO, "seen %d", 2);
    log_line(LOG_DEBUG, "hidden");
    log_set_level(LOG_DEBUG);
    log_line(LOG_DEBUG, "seen %d", 3);
    log_set_level(LOG_WARNING);
    CHECK_TEXT("warning: seen 1\nseen 2\ndebug: seen 3\n", end_capture());
}

static void test_prefix_is_copied_and_cut(void)
{
    char prefix[] = "rank 2: ";

    begin_capture();
    log_set_prefix(prefix);
    prefix[0] = 'x';
    log_line(LOG_WARNING, "slow");
    log_set_prefix("0123456789012345678901234567890123456789");
    log_line(LOG_WARNING, "slow");
    log_set_prefix("");
    CHECK_TEXT("rank 2: warning: slow\n0123456789012345678901234567890warning: slow\n",
               end_capture());
}

static void test_a_message_is_one_line(void)
{
    char text[5000];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    begin_capture();
    log_line(LOG_WARNING, "a\nb\r%s", "c");
    CHECK_TEXT("warning: a b c\n", end_capture());

    begin_capture();
    log_line(LOG_WARNING, "%s",
             "red \x1b[31m, title \x1b]0;x\a, C1 \xc2\x9b"
             "2J, \xc2\xa0\xc3\xa9 stay");
    CHECK_TEXT("warning: red  [31m, title  ]0;x , C1   2J, \xc2\xa0\xc3\xa9 stay\n",
               end_capture());

    begin_capture();
    log_line(LOG_WARNING, "%s", text);
    const char *line = end_capture();
    CHECK(strlen(line) > 1000 && strlen(line) < sizeof text);
    CHECK(strcmp(line + strlen(line) - 5, "x...\n") == 0);
    CHECK(strchr(line, '\n') == line + strlen(line) - 1);
}

static void test_errno_survives(void)
{
    begin_capture();
    close(STDERR_FILENO);
    errno = ENOSPC;
    log_line(LOG_WARNING, "nobody hears");
    const int error = errno;
    CHECK_TEXT("", end_capture());
    CHECK_INT(ENOSPC, error);
}

const struct test tests[] = {
    { .name = "level chooses lines", .run = test_level_chooses_lines },
    { .name = "prefix is copied and cut", .run = test_prefix_is_copied_and_cut },
    { .name = "a message is one line", .run = test_a_message_is_one_line },
    { .name = "errno survives", .run = test_errno_survives },
    { 0 },
};
