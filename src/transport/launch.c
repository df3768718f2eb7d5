/* SPDX-License-Identifier: MIT */
/* launch.c - forks the ranks and looks after them until the last has ended.
 *
 * The supervisor blocks the signals it cares for and takes them one at a time with
 * sigtimedwait: SIGCHLD says that a rank ended, stopped or went on; SIGINT, SIGTERM and SIGHUP
 * are passed on. It wakes by itself only to measure time: how long a rank has been
 * stopped, how long ago the job failed.
 */
#include "transport/launch.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/region.h"
#include "transport/world.h"

enum {
    DEFAULT_STUCK_MS = 2000,
    DEFAULT_GRACE_MS = 5000,
    CALM_MS = 1000, /* how often to look when nothing is the matter */
    TENSE_MS = 50,  /* and while a rank is stopped or the job has failed */
};

struct child {
    pid_t pid;
    bool alive, stopped;
    int64_t stopped_ms; /* while the supervisor was running too */
};

struct supervisor {
    struct region *region;
    int size, stuck_ms, grace_ms;
    bool is_flat;
    struct child children[REGION_RANKS];
    sigset_t signals; /* that it takes */
    sigset_t old_mask;
    struct sigaction old_child_action;
    bool got_stop[NSIG];  /* SIGINT, SIGTERM, SIGHUP: the job is asked to end */
    int death_signal;     /* of the rank that made the job fail; 0 if none */
    int64_t failed_at_ms; /* 0 while all is well */
};

/* Text --------------------------------------------------------------------------------- */

static void signal_name(int number, char *out, size_t bytes)
{
    const char *name = sigabbrev_np(number);

    (void)snprintf(out, bytes, name ? "signal %d (SIG%s)" : "signal %d", number, name);
}

/* "rank 2 (pid 4711) FATE at step 12 in all_reduce" becomes the failure of the job, unless it can do
 * without the rank. True if it cannot. */
static bool lose_rank(struct supervisor *s, int rank, const char *fate)
{
    char text[REGION_TEXT], note[2 * TRANSPORT_NOTE];

    region_note(s->region, rank, note, sizeof(note));
    (void)snprintf(text, sizeof(text), "rank %d (pid %d) %s%s", rank,
                   (int)s->children[rank].pid, fate, note);
    if (!region_has_failed(s->region) && region_give_up(s->region, rank, text)) {
        log_line(LOG_WARNING, "%s: the others go on", text);
        return false;
    }
    region_fail(s->region, rank, text);
    return true;
}

/* A rank ------------------------------------------------------------------------------- */

void launch_name_rank(int rank, const char *text, char *out, size_t bytes)
{
    if (strncmp(text, "rank ", 5) == 0)
        (void)snprintf(out, bytes, "%s", text);
    else
        (void)snprintf(out, bytes, "rank %d: %s", rank, text);
}

bool launch_is_failure(enum status status)
{
    return status != STATUS_OK && status != STATUS_STOPPED && status != STATUS_PREEMPTED;
}

static bool is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static enum status run_body(struct region *region, int rank, bool is_flat, launch_body *body,
                            void *arg)
{
    const int size = region->size;
    int node_first[REGION_RANKS + 1] = { 0, size };
    struct place place = {
        .rank = rank, .name = "shm", .n_nodes = 1, .node_first = node_first
    };
    struct transport *transport;

    if (is_flat && size > 1) {
        place.n_nodes = size;
        place.is_flat = true;
        for (int node = 0; node <= size; node++)
            node_first[node] = node;
    }
    TRY(region_attach(region, &place, &transport));
    const enum status status = body(transport, arg);
    region_detach(transport);
    return status;
}

/* The life of a forked rank. */
__attribute__((noreturn)) static void run_rank(struct supervisor *s, int rank, pid_t parent,
                                               launch_body *body, void *arg)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(1); /* the supervisor died before the line above took effect */
    atomic_store(&s->region->slots[rank].pid, (int)getpid());
    (void)sigaction(SIGCHLD, &s->old_child_action, NULL);
    (void)sigprocmask(SIG_SETMASK, &s->old_mask, NULL);

    const enum status status = run_body(s->region, rank, s->is_flat, body, arg);
    char text[REGION_TEXT];

    launch_name_rank(rank, status == STATUS_OK ? "" : status_message(), text, sizeof(text));
    (void)fflush(NULL);
    if (launch_is_failure(status))
        region_fail(s->region, rank, text);
    region_end(s->region, rank, status, text);
    _exit(status == STATUS_OK ? 0 : 1);
}

/* The supervisor ------------------------------------------------------------------------ */

static void take_signals(struct supervisor *s)
{
    const struct sigaction by_default = { .sa_handler = SIG_DFL };

    sigemptyset(&s->signals);
    sigaddset(&s->signals, SIGCHLD);
    sigaddset(&s->signals, SIGINT);
    sigaddset(&s->signals, SIGTERM);
    if (!is_ignored(SIGHUP)) /* nohup has its way */
        sigaddset(&s->signals, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &s->signals, &s->old_mask);
    (void)sigaction(SIGCHLD, &by_default,
                    &s->old_child_action); /* if ignored, none can be waited for */
}

static void give_back_signals(struct supervisor *s)
{
    (void)sigaction(SIGCHLD, &s->old_child_action, NULL);
    (void)sigprocmask(SIG_SETMASK, &s->old_mask, NULL);
}

static void signal_all(struct supervisor *s, int number)
{
    for (int rank = 0; rank < s->size; rank++) {
        if (s->children[rank].alive)
            (void)kill(s->children[rank].pid, number);
    }
}

static void start_all(struct supervisor *s, launch_body *body, void *arg)
{
    const pid_t parent = getpid();

    (void)fflush(NULL); /* or every rank would write it once more */
    for (int rank = 0; rank < s->size; rank++) {
        const pid_t pid = fork();

        if (pid == 0)
            run_rank(s, rank, parent, body, arg);
        if (pid < 0) {
            char text[REGION_TEXT];
            (void)snprintf(text, sizeof(text), "cannot start rank %d of %d: %s", rank, s->size,
                           strerror(errno));
            region_fail(s->region, rank, text);
            return;
        }
        s->children[rank] = (struct child){ .pid = pid, .alive = true };
    }
}

/* Draws the conclusions from a change of a rank's state. */
static void note_change(struct supervisor *s, int rank, int wait_status)
{
    struct child *child = &s->children[rank];
    const bool failed_before = region_has_failed(s->region);
    char fate[64];

    if (WIFSTOPPED(wait_status)) {
        child->stopped = true;
        child->stopped_ms = 0;
        return;
    }
    if (WIFCONTINUED(wait_status)) {
        child->stopped = false;
        return;
    }
    child->alive = false;
    if (region_has_ended(s->region, rank))
        return;
    if (WIFSIGNALED(wait_status)) {
        const int number = WTERMSIG(wait_status);
        char name[48];

        signal_name(number, name, sizeof(name));
        (void)snprintf(fate, sizeof(fate), "was killed by %s", name);
        if (lose_rank(s, rank, fate) && !failed_before)
            s->death_signal = number;
    } else { /* someone called exit */
        (void)snprintf(fate, sizeof(fate), "exited with code %d", WEXITSTATUS(wait_status));
        (void)lose_rank(s, rank, fate);
    }
}

static int collect_changes(struct supervisor *s)
{
    int n_alive = 0;

    for (int rank = 0; rank < s->size; rank++) {
        struct child *child = &s->children[rank];
        int wait_status;

        while (child->alive &&
               waitpid(child->pid, &wait_status, WNOHANG | WUNTRACED | WCONTINUED) > 0)
            note_change(s, rank, wait_status);
        n_alive += child->alive;
    }
    return n_alive;
}

/* passed_ms: since the last look; bounded, so that a stop of the whole job does not count. */
static void look_after_stopped(struct supervisor *s, int64_t passed_ms)
{
    const bool failed = region_has_failed(s->region);

    for (int rank = 0; rank < s->size; rank++) {
        struct child *child = &s->children[rank];
        char fate[64];

        if (!child->alive || !child->stopped)
            continue;
        child->stopped_ms += passed_ms < 2 * TENSE_MS ? passed_ms : 2 * TENSE_MS;
        if (child->stopped_ms < s->stuck_ms * 8 / 10 && !failed) /* known by the deadline */
            continue;
        (void)snprintf(fate, sizeof(fate), "has been stopped for %lld ms",
                       (long long)child->stopped_ms);
        (void)kill(child->pid, SIGKILL); /* first: others may go on with what it had */
        (void)lose_rank(s, rank, fate);
    }
}

static bool is_tense(const struct supervisor *s)
{
    if (region_has_failed(s->region))
        return true;
    for (int rank = 0; rank < s->size; rank++) {
        if (s->children[rank].alive && s->children[rank].stopped)
            return true;
    }
    return false;
}

static void wait_for_signal(struct supervisor *s, int timeout_ms)
{
    const struct timespec timeout = { .tv_sec = timeout_ms / 1000,
                                      .tv_nsec = (long)(timeout_ms % 1000) * 1000000 };
    siginfo_t info;
    const int number = sigtimedwait(&s->signals, &info, &timeout);

    if (number != SIGINT && number != SIGTERM && number != SIGHUP)
        return;
    s->got_stop[number] = true;
    if (info.si_code != SI_KERNEL) /* the terminal sends its own to the ranks too */
        signal_all(s, number);
}

static void look_after(struct supervisor *s)
{
    int64_t last_ms = clock_ns() / 1000000;

    while (collect_changes(s) > 0) {
        const int64_t now_ms = clock_ns() / 1000000;

        look_after_stopped(s, now_ms - last_ms);
        last_ms = now_ms;
        if (region_has_failed(s->region)) {
            if (s->failed_at_ms == 0)
                s->failed_at_ms = now_ms;
            if (now_ms - s->failed_at_ms > s->grace_ms)
                signal_all(s, SIGKILL);
        }
        wait_for_signal(s, is_tense(s) ? TENSE_MS : CALM_MS);
    }
}

/* What the job as a whole came to. */
static enum status outcome(struct supervisor *s)
{
    struct region *region = s->region;
    const int stopped = region_stopped(region);

    if (region_has_failed(region)) {
        const char *text = region_failure(region);
        const int rank = region->failed_rank;
        const struct rank_slot *slot = &region->slots[rank];
        const bool failed_itself =
            region_has_ended(region, rank) && launch_is_failure(slot->status);

        if (s->death_signal != 0 && s->got_stop[s->death_signal])
            return FAIL(s->death_signal == SIGINT ? STATUS_STOPPED : STATUS_PREEMPTED,
                        "stopped by SIG%s", sigabbrev_np(s->death_signal));
        /* It may have missed a rank that stopped before it did. */
        if (!failed_itself || (slot->status == STATUS_PEER_LOST && stopped < 0))
            return status_set(STATUS_PEER_LOST, text);
        if (slot->status != STATUS_PEER_LOST)
            return status_set(slot->status, slot->text);
    }
    return stopped < 0 ? STATUS_OK
                       : status_set(region->slots[stopped].status, region->slots[stopped].text);
}

static enum status run_alone(const struct launch_config *config, launch_body *body, void *arg)
{
    struct region *region;

    TRY(region_create_private(config->shared_bytes, &region));
    const enum status status = run_body(region, 0, false, body, arg);
    region_destroy(region);
    return status;
}

enum status launch_ranks(const struct launch_config *config, launch_body *body, void *arg)
{
    struct supervisor s = {
        .size = config->size,
        .is_flat = config->flat,
        .stuck_ms = config->stuck_ms > 0 ? config->stuck_ms : DEFAULT_STUCK_MS,
        .grace_ms = config->grace_ms > 0 ? config->grace_ms : DEFAULT_GRACE_MS,
    };

    int rank, size;

    if (config->size == 1)
        return run_alone(config, body, arg);
    if (launch_world(&rank, &size)) {
        if (config->size == size || size == 0)
            return join_ranks(config, body, arg);
        return FAIL(STATUS_USAGE, "%d ranks are asked for, but %d processes were started",
                    config->size, size);
    }
    TRY(region_create(config->size, config->shared_bytes, config->message_bytes, &s.region));
    s.region->can_lose = true;
    take_signals(&s);
    start_all(&s, body, arg);
    look_after(&s);
    give_back_signals(&s);
    const enum status status = outcome(&s);
    region_destroy(s.region);
    return status;
}
