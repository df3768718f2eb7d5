/* SPDX-License-Identifier: MIT */
/* launch_test.c - real processes as ranks: how they end, die, stop, and what is left then. */
#include "transport/launch.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/test.h"

/* What the test and its ranks share, apart from the transport. */
struct shared {
    _Atomic int pids[8];
    _Atomic int n_done;
    _Atomic int n_lost;       /* ranks that got STATUS_PEER_LOST */
    _Atomic int64_t at_ns;    /* when the deed was done */
    _Atomic int64_t worst_ns; /* longest time from the deed until a rank knew */
    _Atomic int n_signals;
    char text[8][256];
};

static struct shared *make_shared(void)
{
    void *memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

static void drop_shared(struct shared *shared)
{
    munmap(shared, sizeof(*shared));
}

static void check_no_children(void)
{
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* Other programs come and go there; ours would be found by its name. */
static int count_names_in_shm(void)
{
    DIR *folder = opendir("/dev/shm");
    const struct dirent *entry;
    int n = 0;

    if (!folder)
        return 0;
    while ((entry = readdir(folder)) != NULL)
        n += strstr(entry->d_name, "tutti") != NULL;
    (void)closedir(folder);
    return n;
}

/* Waits for ever and reports how it ended. */
static enum status wait_until_lost(struct transport *transport, struct shared *shared)
{
    struct transport_counter *counter;
    void *memory;

    TRY(transport_share(transport, sizeof(*counter), &memory));
    counter = memory;
    const enum status status = transport_wait(transport, counter, 1, "a counter");
    if (status == STATUS_PEER_LOST) {
        const int64_t took = clock_ns() - atomic_load(&shared->at_ns);
        if (took > atomic_load(&shared->worst_ns))
            atomic_store(&shared->worst_ns, took);
        (void)snprintf(shared->text[transport_rank(transport)], sizeof(shared->text[0]), "%s",
                       status_message());
        atomic_fetch_add(&shared->n_lost, 1);
    }
    return status;
}

/* Never ends by itself. */
static enum status orphan_body(struct transport *transport, void *arg)
{
    struct shared *shared = arg;

    atomic_store(&shared->pids[transport_rank(transport)], getpid());
    atomic_fetch_add(&shared->n_done, 1);
    for (;;)
        clock_sleep_ms(1000);
    return STATUS_OK;
}

/* Ends ----------------------------------------------------------------------------------- */

static enum status sum_body(struct transport *transport, void *arg)
{
    struct shared *shared = arg;
    const int rank = transport_rank(transport), size = transport_size(transport);
    int sum = rank, theirs;

    for (int peer = 0; peer < size; peer++)
        TRY(transport_send(transport, peer, 0, &rank, sizeof(rank)));
    for (int peer = 0; peer < size; peer++) {
        TRY(transport_receive(transport, peer, 0, &theirs, sizeof(theirs)));
        sum += theirs;
    }
    if (sum != rank + size * (size - 1) / 2)
        return FAIL(STATUS_CORRUPT, "sum %d", sum);
    atomic_fetch_add(&shared->n_done, 1);
    return STATUS_OK;
}

static void test_all_ranks_run_and_succeed(void)
{
    struct shared *shared = make_shared();
    const int names = count_names_in_shm();

    for (int size = 1; size <= 5; size++) {
        const struct launch_config config = { .size = size };
        atomic_store(&shared->n_done, 0);
        CHECK_OK(launch_ranks(&config, sum_body, shared));
        CHECK_INT(size, atomic_load(&shared->n_done));
        check_no_children();
    }
    CHECK_INT(names, count_names_in_shm());
    drop_shared(shared);
}

/* Every rank sees memory of its own, and the others by messages alone. */
static enum status flat_body(struct transport *transport, void *arg)
{
    const int rank = transport_rank(transport), size = transport_size(transport);
    _Atomic int *number;
    void *memory;

    if (transport_nodes(transport) != size || transport_shares_memory(transport) != (size == 1))
        return FAIL(STATUS_CORRUPT, "%d nodes", transport_nodes(transport));
    for (int peer = 0; peer < size; peer++) {
        if (transport_node_of(transport, peer) != peer ||
            transport_node_first(transport, peer) != peer ||
            transport_node_size(transport, peer) != 1)
            return FAIL(STATUS_CORRUPT, "rank %d is on another node", peer);
    }
    TRY(transport_share(transport, sizeof(*number) * (size_t)(rank + 1), &memory));
    number = memory;
    TRY(sum_body(transport, arg)); /* all have theirs */
    atomic_fetch_add(number, 1 + rank);
    TRY(sum_body(transport, arg)); /* all have added */
    if (atomic_load(number) != 1 + rank)
        return FAIL(STATUS_CORRUPT, "another rank has added to the own memory");
    return transport_is_shared(transport, memory, 4) ? STATUS_OK
                                                     : FAIL(STATUS_CORRUPT, "not shared");
}

static void test_flat_ranks_are_nodes(void)
{
    struct shared *shared = make_shared();

    for (int size = 1; size <= 3; size++) {
        const struct launch_config config = { .size = size, .flat = true };
        CHECK_OK(launch_ranks(&config, flat_body, shared));
        check_no_children();
    }
    drop_shared(shared);
}

enum { LONG_MESSAGE = 1 << 20 };

/* Rank 0 has sent before rank 1 asks: it does so when it hears that. */
static enum status send_long_body(struct transport *transport, void *arg)
{
    static char data[LONG_MESSAGE];
    struct transport_request request;
    bool done = false;
    char go = 0;

    (void)arg;
    if (transport_rank(transport) == 1) {
        TRY(transport_receive(transport, 0, 2, &go, 1));
        TRY(transport_receive(transport, 0, 1, data, LONG_MESSAGE));
        return data[LONG_MESSAGE - 1] == 7 && go == 1 ? STATUS_OK
                                                      : FAIL(STATUS_CORRUPT, "other bytes");
    }
    data[LONG_MESSAGE - 1] = 7;
    TRY(transport_start_send(transport, 1, 1, data, LONG_MESSAGE, &request));
    TRY(transport_test(transport, &request, &done));
    if (!done)
        return FAIL(STATUS_CORRUPT, "it waits for its receiver");
    go = 1;
    return transport_send(transport, 1, 2, &go, 1);
}

static void test_messages_of_the_size_given_go_at_once(void)
{
    const struct launch_config config = { .size = 2, .message_bytes = LONG_MESSAGE };

    CHECK_OK(launch_ranks(&config, send_long_body, NULL));
    check_no_children();
}

static enum status fail_body(struct transport *transport, void *arg)
{
    if (transport_rank(transport) == 1) {
        atomic_store(&((struct shared *)arg)->at_ns, clock_ns());
        return FAIL(STATUS_CORRUPT, "the file is bad");
    }
    return wait_until_lost(transport, arg);
}

static void test_failure_of_a_rank_arrives(void)
{
    const struct launch_config config = { .size = 3 };
    struct shared *shared = make_shared();

    /* Rank 1 fails before it joins transport_share, so the others are lost inside that. */
    CHECK_STATUS(STATUS_CORRUPT, launch_ranks(&config, fail_body, shared));
    CHECK_TEXT("rank 1: the file is bad", status_message());
    check_no_children();
    drop_shared(shared);
}

static enum status fail_alone_body(struct transport *transport, void *arg)
{
    (void)transport;
    (void)arg;
    return FAIL(STATUS_NOT_FOUND, "no such thing");
}

static void test_one_rank_runs_without_a_fork(void)
{
    const struct launch_config config = { .size = 1 };

    CHECK_STATUS(STATUS_NOT_FOUND, launch_ranks(&config, fail_alone_body, NULL));
    CHECK_TEXT("no such thing", status_message());
}

static enum status end_early_body(struct transport *transport, void *arg)
{
    struct transport_counter *counter;
    void *memory;

    (void)arg;
    TRY(transport_share(transport, sizeof(*counter), &memory));
    counter = memory;
    if (transport_rank(transport) == 1)
        return STATUS_OK;
    return transport_wait_rank(transport, counter, 1, 1, "a barrier");
}

static void test_waiting_for_a_rank_that_has_ended_fails(void)
{
    const struct launch_config config = { .size = 2 };

    CHECK_STATUS(STATUS_PEER_LOST, launch_ranks(&config, end_early_body, NULL));
    CHECK_MESSAGE("rank 1 has ended while rank 0 waits for it in a barrier");
}

static enum status receive_from_ended_body(struct transport *transport, void *arg)
{
    char byte = 1;

    (void)arg;
    if (transport_rank(transport) == 1)
        return transport_send(transport, 0, 3, &byte, 1);
    TRY(transport_receive(transport, 1, 3, &byte, 1));
    return transport_receive(transport, 1, 3, &byte, 1);
}

static void test_receiving_from_a_rank_that_has_ended_fails(void)
{
    const struct launch_config config = { .size = 2 };

    CHECK_STATUS(STATUS_PEER_LOST, launch_ranks(&config, receive_from_ended_body, NULL));
    CHECK_MESSAGE("rank 1 has ended");
}

static enum status exit_body(struct transport *transport, void *arg)
{
    transport_note(transport, 3, "loading");
    if (transport_rank(transport) == 0)
        _exit(9);
    return wait_until_lost(transport, arg);
}

static void test_rank_that_exits_is_named(void)
{
    const struct launch_config config = { .size = 2 };
    struct shared *shared = make_shared();

    CHECK_STATUS(STATUS_PEER_LOST, launch_ranks(&config, exit_body, shared));
    CHECK_MESSAGE("rank 0 (pid ");
    CHECK_MESSAGE(") exited with code 9 at step 3 in loading");
    drop_shared(shared);
}

/* Death ---------------------------------------------------------------------------------- */

static enum status killed_body(struct transport *transport, void *arg)
{
    struct shared *shared = arg;
    void *memory;

    transport_note(transport, 12, "all_reduce of bucket 0");
    if (transport_rank(transport) == 2) {
        TRY(transport_share(transport, sizeof(struct transport_counter), &memory));
        clock_sleep_ms(10);
        atomic_store(&shared->at_ns, clock_ns());
        (void)raise(SIGKILL);
    }
    return wait_until_lost(transport, shared);
}

static void test_killed_rank_is_named_to_all_at_once(void)
{
    const struct launch_config config = { .size = 4 };
    struct shared *shared = make_shared();
    const int names = count_names_in_shm();

    CHECK_STATUS(STATUS_PEER_LOST, launch_ranks(&config, killed_body, shared));
    CHECK_MESSAGE("rank 2 (pid ");
    CHECK_MESSAGE(") was killed by signal 9 (SIGKILL) at step 12 in all_reduce of bucket 0");
    CHECK_INT(3, atomic_load(&shared->n_lost));
    CHECK_TEXT(status_message(), shared->text[0]);
    CHECK_TEXT(status_message(), shared->text[3]);
    CHECK(atomic_load(&shared->worst_ns) < 2000000000);
    check_no_children();
    CHECK_INT(names, count_names_in_shm());
    drop_shared(shared);
}

static enum status own_note_body(struct transport *transport, void *arg)
{
    char *mine = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (transport_rank(transport) == 0) {
        (void)snprintf(mine, 200, "%s",
                       "all_gather of\nbucket 12 (transformer.h.11.attn.c_attn.weight and 3 "
                       "more) and bytes that do not all fit");
        transport_note(transport, 1, mine); /* not mapped in the supervisor */
        (void)raise(SIGTERM);
    }
    return wait_until_lost(transport, arg);
}

static void test_note_in_memory_of_the_rank_is_read(void)
{
    const struct launch_config config = { .size = 2 };
    struct shared *shared = make_shared();

    CHECK_STATUS(STATUS_PEER_LOST, launch_ranks(&config, own_note_body, shared));
    CHECK_MESSAGE("was killed by signal 15 (SIGTERM) at step 1 in "
                  "all_gather of?bucket 12 (transformer.h.11.attn.c_attn.weight and 3 more)");
    CHECK(strlen(strstr(status_message(), "all_")) == TRANSPORT_NOTE - 1);
    drop_shared(shared);
}

static enum status stopped_body(struct transport *transport, void *arg)
{
    struct shared *shared = arg;
    void *memory;

    transport_note(transport, 5, "forward");
    if (transport_rank(transport) == 1) {
        TRY(transport_share(transport, sizeof(struct transport_counter), &memory));
        atomic_store(&shared->at_ns, clock_ns());
        (void)raise(SIGSTOP);
        return STATUS_OK;
    }
    return wait_until_lost(transport, shared);
}

static void test_stopped_rank_is_lost(void)
{
    const struct launch_config config = { .size = 2, .stuck_ms = 300 };
    struct shared *shared = make_shared();

    CHECK_STATUS(STATUS_PEER_LOST, launch_ranks(&config, stopped_body, shared));
    CHECK_MESSAGE("rank 1 (pid ");
    CHECK_MESSAGE(" ms at step 5 in forward");
    CHECK_INT(1, atomic_load(&shared->n_lost));
    CHECK(atomic_load(&shared->worst_ns) < 2000000000);
    check_no_children();
    drop_shared(shared);
}

static enum status continued_body(struct transport *transport, void *arg)
{
    struct shared *shared = arg;
    const int rank = transport_rank(transport);
    char byte = 0;

    atomic_store(&shared->pids[rank], getpid());
    if (rank == 1) {
        (void)raise(SIGSTOP);
        atomic_store(&shared->n_done, 1);
        return transport_send(transport, 0, 0, &byte, 1);
    }
    while (atomic_load(&shared->n_done) == 0) { /* whenever it stops, it soon goes on */
        clock_sleep_ms(10);
        if (atomic_load(&shared->pids[1]) != 0)
            (void)kill(atomic_load(&shared->pids[1]), SIGCONT);
    }
    return transport_receive(transport, 1, 0, &byte, 1);
}

static void test_rank_that_goes_on_is_not_lost(void)
{
    const struct launch_config config = { .size = 2, .stuck_ms = 10000 };
    struct shared *shared = make_shared();

    CHECK_OK(launch_ranks(&config, continued_body, shared));
    drop_shared(shared);
}

static enum status deaf_body(struct transport *transport, void *arg)
{
    if (transport_rank(transport) == 0)
        return FAIL(STATUS_IO, "the disk is full");
    return orphan_body(transport, arg);
}

static void test_ranks_that_do_not_end_are_killed(void)
{
    const struct launch_config config = { .size = 3, .grace_ms = 100 };
    struct shared *shared = make_shared();

    CHECK_STATUS(STATUS_IO, launch_ranks(&config, deaf_body, shared));
    CHECK_TEXT("rank 0: the disk is full", status_message());
    check_no_children();
    drop_shared(shared);
}

/* Signals for all ------------------------------------------------------------------------ */

static volatile sig_atomic_t was_signalled;

static void remember_signal(int number)
{
    (void)number;
    was_signalled = 1;
}

static enum status signalled_body(struct transport *transport, void *arg)
{
    struct shared *shared = arg;
    const struct sigaction action = { .sa_handler = remember_signal };

    (void)sigaction(SIGTERM, &action, NULL);
    atomic_fetch_add(&shared->n_done, 1);
    if (transport_rank(transport) == 0) {
        while (atomic_load(&shared->n_done) < transport_size(transport))
            clock_sleep_ms(1);
        (void)kill(getppid(), SIGTERM); /* to the supervisor alone */
    }
    while (!was_signalled)
        clock_sleep_ms(1);
    atomic_fetch_add(&shared->n_signals, 1);
    return FAIL(STATUS_STOPPED, "stopped as asked");
}

static void test_signal_to_the_supervisor_reaches_all(void)
{
    const struct launch_config config = { .size = 3 };
    struct shared *shared = make_shared();
    struct sigaction before, after;
    sigset_t mask;

    (void)sigaction(SIGTERM, NULL, &before);
    CHECK_STATUS(STATUS_STOPPED, launch_ranks(&config, signalled_body, shared));
    CHECK_MESSAGE("stopped as asked");
    CHECK_INT(3, atomic_load(&shared->n_signals));
    (void)sigaction(SIGTERM, NULL, &after);
    CHECK(before.sa_handler == after.sa_handler);
    (void)sigprocmask(SIG_BLOCK, NULL, &mask);
    CHECK(!sigismember(&mask, SIGTERM) && !sigismember(&mask, SIGCHLD));
    drop_shared(shared);
}

static enum status stop_early_body(struct transport *transport, void *arg)
{
    char byte;

    (void)arg;
    if (transport_rank(transport) == 1)
        return FAIL(STATUS_STOPPED, "stopped early");
    return transport_receive(transport, 1, 0, &byte, 1);
}

static void test_stop_of_one_rank_is_a_stop(void)
{
    const struct launch_config config = { .size = 2 };
    struct shared *shared = make_shared();

    CHECK_STATUS(STATUS_STOPPED, launch_ranks(&config, stop_early_body, shared));
    CHECK_TEXT("rank 1: stopped early", status_message());
    drop_shared(shared);
}

static enum status hung_up_body(struct transport *transport, void *arg)
{
    struct shared *shared = arg;
    const struct sigaction action = { .sa_handler = remember_signal };

    (void)sigaction(SIGHUP, &action, NULL);
    atomic_fetch_add(&shared->n_done, 1);
    if (transport_rank(transport) == 0) {
        while (atomic_load(&shared->n_done) < transport_size(transport))
            clock_sleep_ms(1);
        (void)kill(getppid(), SIGHUP);
    }
    while (!was_signalled)
        clock_sleep_ms(1);
    return FAIL(STATUS_PREEMPTED, "stopped as the terminal is gone");
}

static void test_a_hangup_reaches_all(void)
{
    const struct launch_config config = { .size = 2 };
    struct shared *shared = make_shared();

    CHECK_STATUS(STATUS_PREEMPTED, launch_ranks(&config, hung_up_body, shared));
    CHECK_MESSAGE("stopped as the terminal is gone");
    drop_shared(shared);
}

static enum status default_signal_body(struct transport *transport, void *arg)
{
    (void)signal(SIGTERM, SIG_DFL);
    if (transport_rank(transport) == 0)
        (void)kill(getppid(), SIGTERM);
    return wait_until_lost(transport, arg);
}

static void test_ranks_that_die_of_the_users_signal_count_as_stopped(void)
{
    const struct launch_config config = { .size = 2 };
    struct shared *shared = make_shared();

    CHECK_STATUS(STATUS_PREEMPTED, launch_ranks(&config, default_signal_body, shared));
    CHECK_TEXT("stopped by SIGTERM", status_message());
    drop_shared(shared);
}

/* The supervisor dies -------------------------------------------------------------------- */

static bool is_running(int pid)
{
    char path[64], line[256] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");

    if (!file)
        return false;
    const bool has_line = fgets(line, sizeof(line), file) != NULL;
    (void)fclose(file);
    const char *after_name = strrchr(line, ')');
    return has_line && after_name && strncmp(after_name, ") Z", 3) != 0;
}

static void test_ranks_die_with_the_supervisor(void)
{
    const struct launch_config config = { .size = 3 };
    struct shared *shared = make_shared();
    const int names = count_names_in_shm();
    const pid_t supervisor = fork();

    if (supervisor == 0)
        _exit(launch_ranks(&config, orphan_body, shared) == STATUS_OK ? 0 : 1);
    CHECK(supervisor > 0);
    while (atomic_load(&shared->n_done) < 3)
        clock_sleep_ms(1);
    (void)kill(supervisor, SIGKILL);
    CHECK(waitpid(supervisor, NULL, 0) == supervisor);

    const int64_t end = clock_ns() + 2000000000;
    for (int rank = 0; rank < 3; rank++) {
        while (is_running(atomic_load(&shared->pids[rank])) && clock_ns() < end)
            clock_sleep_ms(1);
        CHECK(!is_running(atomic_load(&shared->pids[rank])));
    }
    CHECK_INT(names, count_names_in_shm());
    drop_shared(shared);
}

/* Ranks that may be lost ------------------------------------------------------------------------ */

/* Rank 1 sends a word and dies; the others hear the word, learn of its death and go on. */
static enum status expendable_body(struct transport *transport, void *arg)
{
    struct shared *shared = arg;
    const int rank = transport_rank(transport);
    const char *text;
    int word = 7;

    if (rank == 1) {
        TRY(transport_set_expendable(transport));
        TRY(transport_send(transport, 0, 0, &word, sizeof(word)));
        (void)kill(getpid(), SIGKILL);
    }
    while (!transport_lost(transport, 1, &text)) {
        const uint32_t seen = transport_bell(transport);
        if (!transport_lost(transport, 1, NULL))
            TRY(transport_wait_bell(transport, seen, 1000000000, "a loss"));
    }
    (void)snprintf(shared->text[rank], sizeof(shared->text[0]), "%s", text);
    if (rank == 0) {
        TRY(transport_receive(transport, 1, 0, &word, sizeof(word)));
        if (transport_receive(transport, 1, 0, &word, sizeof(word)) != STATUS_PEER_LOST)
            return FAIL(STATUS_CORRUPT, "a dead rank sends");
        TRY(transport_send(transport, 2, 0, &word, sizeof(word)));
    } else {
        TRY(transport_receive(transport, 0, 0, &word, sizeof(word)));
    }
    atomic_fetch_add(&shared->n_done, word);
    return transport_check(transport);
}

static void test_the_job_outlives_an_expendable_rank(void)
{
    for (int flat = 0; flat < 2; flat++) {
        struct shared *shared = make_shared();
        const struct launch_config config = { .size = 3, .flat = flat };

        CHECK_OK(launch_ranks(&config, expendable_body, shared));
        CHECK_INT(2 * 7, atomic_load(&shared->n_done));
        CHECK(strstr(shared->text[2], "rank 1 (pid ") && strstr(shared->text[2], "signal 9"));
        check_no_children();
        drop_shared(shared);
    }
}

const struct test tests[] = {
    { .name = "the job outlives an expendable rank",
      .run = test_the_job_outlives_an_expendable_rank },
    { .name = "all ranks run and succeed", .run = test_all_ranks_run_and_succeed },
    { .name = "flat ranks are nodes", .run = test_flat_ranks_are_nodes },
    { .name = "messages of the size given go at once",
      .run = test_messages_of_the_size_given_go_at_once },
    { .name = "failure of a rank arrives", .run = test_failure_of_a_rank_arrives },
    { .name = "one rank runs without a fork", .run = test_one_rank_runs_without_a_fork },
    { .name = "waiting for a rank that has ended fails",
      .run = test_waiting_for_a_rank_that_has_ended_fails },
    { .name = "receiving from a rank that has ended fails",
      .run = test_receiving_from_a_rank_that_has_ended_fails },
    { .name = "rank that exits is named", .run = test_rank_that_exits_is_named },
    { .name = "killed rank is named to all at once",
      .run = test_killed_rank_is_named_to_all_at_once },
    { .name = "note in memory of the rank is read",
      .run = test_note_in_memory_of_the_rank_is_read },
    { .name = "stopped rank is lost", .run = test_stopped_rank_is_lost },
    { .name = "rank that goes on is not lost", .run = test_rank_that_goes_on_is_not_lost },
    { .name = "ranks that do not end are killed",
      .run = test_ranks_that_do_not_end_are_killed },
    { .name = "stop of one rank is a stop", .run = test_stop_of_one_rank_is_a_stop },
    { .name = "signal to the supervisor reaches all",
      .run = test_signal_to_the_supervisor_reaches_all },
    { .name = "a hangup reaches all", .run = test_a_hangup_reaches_all },
    { .name = "ranks that die of the user's signal count as stopped",
      .run = test_ranks_that_die_of_the_users_signal_count_as_stopped },
    { .name = "ranks die with the supervisor", .run = test_ranks_die_with_the_supervisor },
    { 0 },
};
