/* SPDX-License-Identifier: MIT */
/* guard.c - the process that a starter knows, and its child, the rank.
 *
 * Guard and rank are in one process group, as starters signal groups: what stops or kills the
 * whole job stops or kills both. SIGINT and SIGTERM are for the rank to decide on, and are passed
 * on in case they were sent to the guard alone. The guard holds on to what it inherited, the
 * starter's sockets among it: a starter takes their end for that of the process.
 */
#include "transport/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    TICK_MS = 100,   /* how often it looks while its rank is stopped */
    CALM_MS = 1000,  /* and while nothing is the matter */
    REPORT_MS = 500, /* how long other ranks need to report what this one knows */
    PATIENCE =
        4 /* times the deadline: machines may be busy, and who has reported ends the job */
};

/* What a rank tells its guard; in memory that both have. */
struct word {
    _Atomic int stuck_ms;
    _Atomic bool failed;
};

static struct word *the_word; /* of the process's only guard */

static int64_t now_ms(void)
{
    return clock_ns() / 1000000;
}

/* The rank is gone. Others that it has told of a failure report it, too; if it went without a
 * word, in the middle of a job, they have to find out first. */
static void leave_time(const struct word *word)
{
    const int stuck_ms = atomic_load(&word->stuck_ms);

    if (atomic_load(&word->failed))
        clock_sleep_ms(REPORT_MS);
    else if (stuck_ms > 0)
        clock_sleep_ms(PATIENCE * stuck_ms);
}

/* Ends as the rank did; a core was written by it, if at all. */
__attribute__((noreturn)) static void end_as(int wait_status)
{
    const struct rlimit no_core = { 0, 0 };
    const int number = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
    sigset_t its;

    if (number == 0)
        _exit(WEXITSTATUS(wait_status));
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)signal(number, SIG_DFL);
    (void)raise(number);
    sigemptyset(&its);
    sigaddset(&its, number);
    (void)sigprocmask(SIG_UNBLOCK, &its, NULL);
    _exit(128 + number);
}

/* Kills a rank that has been stopped for too long, as the others have given it up by then. Time
 * in which the guard was stopped itself, with the whole job, does not count. */
static void look_after_stopped(const struct word *word, pid_t rank, int64_t passed_ms,
                               int64_t *stopped_ms)
{
    const int stuck_ms = atomic_load(&word->stuck_ms);

    *stopped_ms += passed_ms < 2 * TICK_MS ? passed_ms : 2 * TICK_MS;
    if (stuck_ms > 0 && *stopped_ms >= stuck_ms)
        (void)kill(rank, SIGKILL);
}

__attribute__((noreturn)) static void run_guard(const struct word *word, pid_t rank,
                                                const sigset_t *signals)
{
    int64_t last_ms = now_ms(), stopped_ms = 0;
    bool stopped = false;

    (void)prctl(PR_SET_NAME, "tutti-guard");
    for (;;) {
        const int wait_ms = stopped ? TICK_MS : CALM_MS;
        const struct timespec timeout = { wait_ms / 1000, (long)(wait_ms % 1000) * 1000000 };
        const int number = sigtimedwait(signals, NULL, &timeout);
        int wait_status;

        if (number == SIGINT || number == SIGTERM)
            (void)kill(rank, number);
        while (waitpid(rank, &wait_status, WNOHANG | WUNTRACED | WCONTINUED) > 0) {
            stopped = WIFSTOPPED(wait_status);
            stopped_ms = 0;
            if (WIFEXITED(wait_status) || WIFSIGNALED(wait_status)) {
                leave_time(word);
                end_as(wait_status);
            }
        }
        const int64_t at_ms = now_ms();
        if (stopped)
            look_after_stopped(word, rank, at_ms - last_ms, &stopped_ms);
        last_ms = at_ms;
    }
}

/* In the child: its signals are what they were, and it dies with its guard. */
static enum status become_rank(pid_t guard, const sigset_t *old_mask,
                               const struct sigaction *old_child)
{
    (void)sigaction(SIGCHLD, old_child, NULL);
    (void)sigprocmask(SIG_SETMASK, old_mask, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != guard)
        return FAIL(STATUS_STOPPED, "mpirun ended this process");
    return STATUS_OK;
}

enum status guard_begin(void)
{
    const struct sigaction by_default = { .sa_handler = SIG_DFL };
    const pid_t guard = getpid();
    struct sigaction old_child;
    sigset_t signals, old_mask;

    if (the_word)
        return STATUS_OK;
    void *word = mmap(NULL, sizeof(*the_word), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "no shared memory: %s", strerror(errno));
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGUSR1); /* MPICH's way to tell of a failure: for the rank alone */
    (void)sigprocmask(SIG_BLOCK, &signals, &old_mask);
    (void)sigaction(SIGCHLD, &by_default, &old_child); /* if ignored, none can be waited for */
    (void)fflush(NULL);
    const pid_t rank = fork();
    if (rank > 0)
        run_guard(word, rank, &signals);
    if (rank < 0) {
        const int error = errno;

        (void)sigaction(SIGCHLD, &old_child, NULL);
        (void)sigprocmask(SIG_SETMASK, &old_mask, NULL);
        (void)munmap(word, sizeof(*the_word));
        return FAIL(STATUS_IO, "no process for the rank: %s", strerror(error));
    }
    the_word = word;
    return become_rank(guard, &old_mask, &old_child);
}

void guard_set_deadline(int stuck_ms)
{
    if (the_word)
        atomic_store(&the_word->stuck_ms, stuck_ms);
}

void guard_note_failure(void)
{
    if (the_word)
        atomic_store(&the_word->failed, true);
}
