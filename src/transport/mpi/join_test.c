/* SPDX-License-Identifier: MIT */
/* join_test.c - ranks that mpirun or mpiexec started: do they find each other, and do they learn
 * that one is gone? Runs join_program under every launcher that is installed. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/test.h"

enum { OUTPUT_BYTES = 1 << 16, LIMIT_MS = 30000 };

struct launcher {
    const char *name;     /* of the plug-in */
    const char *path;     /* NULL: not installed */
    const char *words[4]; /* before -n */
};

static const struct launcher launchers[] = {
    { "openmpi", "/usr/bin/mpirun.openmpi", { "--oversubscribe", "--bind-to", "none" } },
    { "mpich", "/usr/bin/mpiexec.mpich", { NULL } },
};
enum { N_LAUNCHERS = sizeof(launchers) / sizeof(launchers[0]) };

static bool is_here(const struct launcher *launcher)
{
    char plugin[512];

    (void)snprintf(plugin, sizeof(plugin), "%s/tutti-mpi-%s.so", JOIN_FOLDER, launcher->name);
    return access(launcher->path, X_OK) == 0 && access(plugin, R_OK) == 0;
}

/* The test goes on if the first n_wanted launchers are not all missing. */
static void need_launcher(int n_wanted)
{
    int n_here = 0;

    for (int i = 0; i < n_wanted; i++)
        n_here += is_here(&launchers[i]);
    if (n_here == 0)
        test_skip("no mpirun, or no plug-in for it");
}

/* Runs `ranks` of join_program with these words; output in `out`, exit code returned. */
static int run_job(const struct launcher *launcher, const char *ranks, const char *mode,
                   const char *rank, const char *form, char *out)
{
    const char *words[16] = { launcher->path };
    size_t n = 1, length = 0;
    int ends[2], wait_status;

    for (int i = 0; launcher->words[i]; i++)
        words[n++] = launcher->words[i];
    words[n++] = "-n";
    words[n++] = ranks;
    words[n++] = JOIN_FOLDER "/join_program";
    words[n++] = mode;
    words[n++] = rank;
    words[n++] = form;
    CHECK(pipe(ends) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        (void)setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
        (void)dup2(ends[1], 1);
        (void)dup2(ends[1], 2);
        (void)dup2(open("/dev/null", O_RDONLY), 0);
        (void)close(ends[0]);
        (void)alarm(LIMIT_MS / 1000);
        (void)execv(launcher->path, (char *const *)words);
        _exit(127);
    }
    CHECK(pid > 0);
    (void)close(ends[1]);
    for (ssize_t got = 1; got > 0 && length < OUTPUT_BYTES - 1;) {
        got = read(ends[0], out + length, OUTPUT_BYTES - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    out[length] = '\0';
    (void)close(ends[0]);
    CHECK(waitpid(pid, &wait_status, 0) == pid);
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

static void check_output(const char *out, const char *expected)
{
    if (!strstr(out, expected))
        test_fail(__FILE__, __LINE__, "\"%s\" is not in: %s", expected, out);
}

static int count(const char *out, const char *word)
{
    int n = 0;

    for (const char *at = strstr(out, word); at; at = strstr(at + 1, word))
        n++;
    return n;
}

static void test_ranks_find_each_other(void)
{
    static char out[OUTPUT_BYTES];

    need_launcher(N_LAUNCHERS);
    for (int i = 0; i < N_LAUNCHERS; i++) {
        if (!is_here(&launchers[i]))
            continue;
        CHECK_INT(0, run_job(&launchers[i], "3", "work", "0", "near", out));
        CHECK_INT(2, count(out, "work: 3 ranks on 1 nodes\n"));
        CHECK_INT(0, run_job(&launchers[i], "3", "work", "0", "flat", out));
        CHECK_INT(2, count(out, "work: 3 ranks on 3 nodes\n"));
    }
}

/* Both mpirun and mpiexec would end the others at once; guards keep them from it. */
static void test_rank_that_is_gone_is_named_by_all_others(void)
{
    static char out[OUTPUT_BYTES];

    need_launcher(N_LAUNCHERS);
    for (int i = 0; i < N_LAUNCHERS; i++) {
        if (!is_here(&launchers[i]))
            continue;
        CHECK(run_job(&launchers[i], "3", i ? "kill" : "exit", "1", "near", out) != 0);
        check_output(out, "rank 0: reports peer lost rank 0: rank 1 (pid ");
        check_output(out, "rank 2: reports peer lost rank 2: rank 1 (pid ");
        CHECK_INT(2, count(out, ") died at step 3 in exchange\n"));
        CHECK(run_job(&launchers[i], "3", i ? "exit" : "kill", "0", "flat", out) != 0);
        check_output(out, "rank 1: reports peer lost rank 1: rank 0 (pid ");
        check_output(out, "rank 2: reports peer lost rank 2: rank 0 (pid ");
        CHECK_INT(2, count(out, ") has not been heard of for "));
        CHECK_INT(2, count(out, "reports"));
    }
}

static void test_stopped_rank_is_named(void)
{
    static char out[OUTPUT_BYTES];

    need_launcher(N_LAUNCHERS);
    for (int i = 0; i < N_LAUNCHERS; i++) {
        if (!is_here(&launchers[i]))
            continue;
        CHECK(run_job(&launchers[i], "3", "stop", "2", i ? "flat" : "near", out) != 0);
        check_output(out, "rank 0: reports peer lost rank 0: rank 2 (pid ");
        check_output(out, "rank 1: reports peer lost rank 1: rank 2 (pid ");
        check_output(out, i ? ") has not been heard of for " : ") has been stopped for ");
        CHECK_INT(2, count(out, "reports"));
    }
}

static void test_failure_is_told_by_one(void)
{
    static char out[OUTPUT_BYTES];

    need_launcher(N_LAUNCHERS);
    for (int i = 0; i < N_LAUNCHERS; i++) {
        if (!is_here(&launchers[i]))
            continue;
        CHECK(run_job(&launchers[i], "3", "fail", "2", i ? "near" : "flat", out) != 0);
        check_output(out, "rank 0: reports peer lost rank 2: the file is bad\n");
        CHECK_INT(1, count(out, "reports"));
        CHECK(run_job(&launchers[i], "3", "early", "1", "near", out) != 0);
        check_output(out, "rank 0: reports peer lost rank 1: no data here\n");
        CHECK_INT(1, count(out, "reports"));
    }
}

static void test_stop_of_one_rank_is_a_stop(void)
{
    static char out[OUTPUT_BYTES];

    need_launcher(N_LAUNCHERS);
    for (int i = 0; i < N_LAUNCHERS; i++) {
        if (!is_here(&launchers[i]))
            continue;
        CHECK(run_job(&launchers[i], "2", "halt", "1", i ? "near" : "flat", out) != 0);
        check_output(out, "rank 0: reports stopped rank 1 was asked to stop\n");
        CHECK_INT(1, count(out, "reports"));
    }
}

const struct test tests[] = {
    { .name = "ranks find each other", .run = test_ranks_find_each_other },
    { .name = "rank that is gone is named by all others",
      .run = test_rank_that_is_gone_is_named_by_all_others },
    { .name = "stopped rank is named", .run = test_stopped_rank_is_named },
    { .name = "failure is told by one", .run = test_failure_is_told_by_one },
    { .name = "stop of one rank is a stop", .run = test_stop_of_one_rank_is_a_stop },
    { 0 },
};
