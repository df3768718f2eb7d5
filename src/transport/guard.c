/* SPDX-License-Identifier: MIT */
/* guard.c - the process that a starter knows, and its child, the rank.
 *
 * Guard and rank are in one process group, as starters signal groups: what stops or kills the whole
 * job stops or kills both. SIGINT, SIGTERM and SIGHUP are for the rank to decide on, and are passed
 * on in case they were sent to the guard alone. The guard holds on to what it inherited, the
 * starter's sockets among it: a starter takes their end for that of the process.
 *
 * Until all ranks have joined, they wait for each other in calls of MPI that do not return, so that nobody but guards can
 * say who is missing. They look for the processes of other ranks below their starter.
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
#include "base/strbuf.h"
#include "transport/starter.h"

enum {
    TICK_MS = 100,   /* how often it looks while its rank is stopped */
    JOIN_MS = 250,   /* and while its rank waits for others to join */
    CALM_MS = 1000,  /* and while nothing is the matter */
    REPORT_MS = 500, /* how long other ranks need to report what this one knows */
    PATIENCE =
        4, /* times the deadline: machines may be busy, and who has reported ends the job */
    END_MS = 5000, /* a starter that has not ended so long after a failure is ended */
    MOST_RANKS = 256,
};

/* What a rank tells its guard; in memory that both have. */
struct word {
    _Atomic int stuck_ms;
    _Atomic bool failed;
    _Atomic bool waits; /* for other ranks to join */
};

static struct word *the_word;    /* of the process's only guard */
static int join_stuck_ms = 2000; /* a rank that is stopped for so long does not join any more */
static int64_t join_stall_ms; /* nor one that does not come at all; 0: it may come any time */

/* What a guard knows. */
struct guard {
    const struct word *word;
    struct cluster place;
    pid_t rank;    /* its process */
    pid_t starter; /* 0: not found */
    int64_t stopped_ms, waited_ms;
    bool is_stopped;
    int others_ms
        [MOST_RANKS]; /* that each other rank has been stopped while this one waited for it */
};

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

/* The rank has ended. Where that is the end of a job, its starter shall end, too. */
__attribute__((noreturn)) static void follow(const struct guard *guard, int wait_status)
{
    if (atomic_load(&guard->word->failed) || atomic_load(&guard->word->stuck_ms) > 0)
        starter_end_later(guard->starter, END_MS);
    leave_time(guard->word);
    end_as(wait_status);
}

static void say(const struct guard *guard, const char *text)
{
    (void)dprintf(STDERR_FILENO, "tutti: rank %d: %s\n", guard->place.rank, text);
}

/* Kills a rank that has been stopped for too long. In a job the others have given it up by then; before
 * that their guards have seen it, but for those of other machines, so this one says it, too. Time in which the
 * guard was stopped itself, with the whole job, does not count. */
static void look_after_stopped(struct guard *guard, int64_t passed_ms)
{
    const int stuck_ms = atomic_load(&guard->word->stuck_ms);
    char text[128];

    guard->stopped_ms += passed_ms < 2 * TICK_MS ? passed_ms : 2 * TICK_MS;
    if (stuck_ms > 0 ? guard->stopped_ms < stuck_ms
                     : guard->stopped_ms < join_stuck_ms + 2 * REPORT_MS)
        return;
    if (stuck_ms == 0) {
        (void)snprintf(
            text, sizeof(text),
            "it (pid %d) has been stopped for %lld ms, and has not joined the others",
            (int)guard->rank, (long long)guard->stopped_ms);
        say(guard, text);
        atomic_store(&the_word->failed, true);
    }
    (void)kill(guard->rank, SIGKILL);
}

/* Others will not join: says so, and ends the rank, which waits for them in MPI. */
__attribute__((noreturn)) static void give_up(const struct guard *guard, const char *text)
{
    int wait_status;

    say(guard, text);
    (void)kill(guard->rank, SIGKILL);
    (void)waitpid(guard->rank, &wait_status, 0);
    starter_end_later(guard->starter, END_MS);
    clock_sleep_ms(REPORT_MS);
    _exit(3); /* a rank is lost, as cli/main.c has it */
}

/* "not all ranks have joined for 10 s (--stall-timeout): ranks 1, 3 are not on this machine" */
__attribute__((noreturn)) static void
give_up_missing(const struct guard *guard, const struct starter_rank *others, int count)
{
    bool is_here[MOST_RANKS] = { false };
    struct strbuf text;
    int missing = 0;

    strbuf_init(&text, 4096);
    strbuf_printf(&text, "not all ranks have joined for %.15g s (--stall-timeout)",
                  (double)join_stall_ms * 1e-3);
    for (int i = 0; i < count; i++)
        is_here[others[i].rank % MOST_RANKS] = true;
    for (int rank = 0; rank < guard->place.size && rank < MOST_RANKS; rank++) {
        if (rank != guard->place.rank && !is_here[rank])
            strbuf_printf(&text, "%s%d",
                          missing++ ? ", " : ": of this machine's processes none is rank ",
                          rank);
    }
    give_up(guard, strbuf_status(&text) == STATUS_OK ? text.text : "not all ranks have joined");
}

/* Looks for those that its rank waits for. */
static void look_for_others(struct guard *guard, int64_t passed_ms)
{
    struct starter_rank others[MOST_RANKS];
    char text[160];

    if (passed_ms > 2 * JOIN_MS)
        passed_ms = 2 * JOIN_MS;
    guard->waited_ms += passed_ms;
    if (guard->waited_ms < CALM_MS)
        return;
    const int count = starter_ranks(guard->starter, guard->place.rank, MOST_RANKS, others);
    for (int i = 0; i < count; i++) {
        int *stopped_ms = &guard->others_ms[others[i].rank % MOST_RANKS];
        *stopped_ms = others[i].is_stopped ? *stopped_ms + (int)passed_ms : 0;
        if (*stopped_ms < join_stuck_ms)
            continue;
        (void)snprintf(
            text, sizeof(text),
            "rank %d (pid %d) has been stopped for %d ms, and has not joined the others",
            others[i].rank, (int)others[i].pid, *stopped_ms);
        give_up(guard, text);
    }
    if (join_stall_ms > 0 && guard->waited_ms >= join_stall_ms)
        give_up_missing(guard, others, count);
}

static int look_again_ms(const struct guard *guard)
{
    return guard->is_stopped ? TICK_MS : atomic_load(&guard->word->waits) ? JOIN_MS : CALM_MS;
}

__attribute__((noreturn)) static void run_guard(struct guard *guard, const sigset_t *signals)
{
    int64_t last_ms = now_ms();

    (void)prctl(PR_SET_NAME, "tutti-guard");
    guard->starter = starter_above(getpid());
    for (;;) {
        const int wait_ms = look_again_ms(guard);
        const struct timespec timeout = { wait_ms / 1000, (long)(wait_ms % 1000) * 1000000 };
        const int number = sigtimedwait(signals, NULL, &timeout);
        int wait_status;

        if (number == SIGINT || number == SIGTERM || number == SIGHUP)
            (void)kill(guard->rank, number);
        while (waitpid(guard->rank, &wait_status, WNOHANG | WUNTRACED | WCONTINUED) > 0) {
            guard->is_stopped = WIFSTOPPED(wait_status);
            guard->stopped_ms = 0;
            if (WIFEXITED(wait_status) || WIFSIGNALED(wait_status))
                follow(guard, wait_status);
        }
        const int64_t at_ms = now_ms();
        if (guard->is_stopped)
            look_after_stopped(guard, at_ms - last_ms);
        else if (atomic_load(&guard->word->waits))
            look_for_others(guard, at_ms - last_ms);
        else
            guard->waited_ms = 0;
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
        return FAIL(STATUS_PREEMPTED, "mpirun ended this process");
    return STATUS_OK;
}

enum status guard_begin(const struct cluster *place)
{
    const struct sigaction by_default = { .sa_handler = SIG_DFL };
    const pid_t self = getpid();
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
    if (sigaction(SIGHUP, NULL, &old_child) == 0 && old_child.sa_handler != SIG_IGN)
        sigaddset(&signals, SIGHUP); /* else nohup has its way */
    sigaddset(&signals, SIGUSR1);    /* MPICH's way to tell of a failure: for the rank alone */
    (void)sigprocmask(SIG_BLOCK, &signals, &old_mask);
    (void)sigaction(SIGCHLD, &by_default, &old_child); /* if ignored, none can be waited for */
    (void)fflush(NULL);
    const pid_t rank = fork();
    if (rank > 0) {
        static struct guard guard;

        the_word = word;
        guard.word = word;
        guard.place = *place;
        guard.rank = rank;
        run_guard(&guard, &signals);
    }
    if (rank < 0) {
        const int error = errno;

        (void)sigaction(SIGCHLD, &old_child, NULL);
        (void)sigprocmask(SIG_SETMASK, &old_mask, NULL);
        (void)munmap(word, sizeof(*the_word));
        return FAIL(STATUS_IO, "no process for the rank: %s", strerror(error));
    }
    the_word = word;
    return become_rank(self, &old_mask, &old_child);
}

void guard_set_deadline(int stuck_ms)
{
    if (the_word)
        atomic_store(&the_word->stuck_ms, stuck_ms);
}

void guard_note_waiting(bool waits)
{
    if (the_word)
        atomic_store(&the_word->waits, waits);
}

void guard_set_patience(int stuck_ms, int64_t stall_ms)
{
    join_stuck_ms = stuck_ms;
    join_stall_ms = stall_ms;
}

void guard_note_failure(void)
{
    if (the_word)
        atomic_store(&the_word->failed, true);
}
