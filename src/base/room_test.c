/* SPDX-License-Identifier: MIT */
/* room_test.c - limits on a process are seen before memory is asked for. */
#include "base/room.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/test.h"

static void test_memory_is_left_and_finite(void)
{
    const double left = room_left();

    CHECK(left > 0 && isfinite(left));
    CHECK(room_of_cgroup() > 0);
    CHECK_OK(room_check(1, "a.npy", "holding it", "take less"));
}

static void test_more_than_is_left_is_refused(void)
{
    CHECK_INT(STATUS_NO_MEMORY, room_check(1e18, "a.npy", "holding it", "take less"));
    CHECK(strstr(status_message(), "a.npy: holding it needs about 1e+09 GB of memory") != NULL);
    CHECK(strstr(status_message(), "are left: take less") != NULL);
}

/* In a child, whose limit is its own. */
static void test_a_limit_on_data_counts(void)
{
    const pid_t child = fork();

    if (child == 0) {
        const struct rlimit limit = { .rlim_cur = 1 << 30, .rlim_max = 1 << 30 };
        const bool is_set = setrlimit(RLIMIT_DATA, &limit) == 0;
        _exit(is_set && room_left() <= 1 << 30 ? 0 : 1);
    }
    int state = 1;
    CHECK(child > 0 && waitpid(child, &state, 0) == child);
    CHECK_INT(0, state);
}

const struct test tests[] = {
    { .name = "memory is left, and finite", .run = test_memory_is_left_and_finite },
    { .name = "more than is left is refused", .run = test_more_than_is_left_is_refused },
    { .name = "a limit on data counts", .run = test_a_limit_on_data_counts },
    { 0 },
};
