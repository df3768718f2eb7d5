/* SPDX-License-Identifier: MIT */
/* checkpoint_fault_test.c - whatever happens to a save, a good generation can be loaded: calls that fail, full disks,
 * processes that are killed.
 */
#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "train/checkpoint_testing.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Failing saves */

static void test_leftovers_of_dead_processes_are_removed(void)
{
    const char *folder = run_folder();
    char dead[1024], living[1024];
    const pid_t child = fork();

    if (child == 0)
        _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    snprintf(dead, sizeof dead, "%s.tmp-%ld", generation_path(folder, 9, ""), (long)child);
    snprintf(living, sizeof living, "%s.tmp-%ld", generation_path(folder, 8, ""),
             (long)getppid());
    CHECK_OK(file_make_folder(dead));
    CHECK_OK(file_make_folder(living));
    snprintf(dead + strlen(dead), 32, "/weights");
    put_text(dead, "half");

    CHECK_OK(generation_save(folder, 1, 1));
    CHECK(!file_exists(dead));
    CHECK(file_is_folder(living));
    CHECK_INT(2, folder_count(folder, ""));
    generation_check_loads(folder, 1);
}

/* Each call of a save fails in turn, with each reason: the save fails with one line of text and
 * leaves nothing, or does not need the call and succeeds. */
static void test_every_failing_call_leaves_the_previous_generation(void)
{
    enum { N_ERRORS = 4 };
    static const int errors[N_ERRORS] = { ENOSPC, EDQUOT, EIO, EROFS };
    static const char *const names[CALL_COUNT] = { "write", "fsync", "rename", "mkdir" };
    const char *folder = run_folder();
    int n_failed[CALL_COUNT] = { 0 };

    for (int call = 0; call < CALL_COUNT; call++) {
        uint64_t newest = 1;
        CHECK_OK(file_remove_tree(folder));
        CHECK_OK(generation_save(folder, newest, 2));
        for (int after = 0, used = 1; used; after++) {
            for (size_t i = 0; i < 2 * N_ERRORS; i++) {
                /* every second save is of the step that is there: it has more to undo */
                const uint64_t step = newest + i % 2;
                save_fault.call = (enum save_call)call;
                save_fault.error = errors[i / 2];
                save_fault.after = after;
                const enum status status = generation_save(folder, step, 2);
                used = save_fault.after < 0;
                save_fault.after = -1;

                CHECK(status == STATUS_OK || status == STATUS_IO);
                if (status == STATUS_OK) {
                    newest = step;
                } else {
                    n_failed[call]++;
                    CHECK_MESSAGE(strerror(errors[i / 2]));
                    CHECK(!strchr(status_message(), '\n'));
                }
                CHECK_INT(0, folder_count(folder, ".tmp-"));
                CHECK_INT(0, folder_count(folder, ".old"));
                generation_check_loads(folder, newest);
            }
        }
    }
    for (int call = 0; call < CALL_COUNT; call++)
        if (n_failed[call] == 0)
            test_fail(__FILE__, __LINE__, "no failing %s was noticed", names[call]);
}

static void test_the_reason_survives_a_failing_removal(void)
{
    const char *folder = run_folder();

    CHECK_OK(generation_save(folder, 1, 1));
    save_fault.call = CALL_WRITE;
    save_fault.error = ENOSPC;
    save_fault.after = 0;
    save_fault.removes_nothing = true;
    const enum status status = generation_save(folder, 2, 1);
    save_fault.removes_nothing = false;
    CHECK_INT(STATUS_IO, status);
    CHECK_MESSAGE(strerror(ENOSPC));
    CHECK_INT(1, folder_count(folder, ".tmp-"));
    generation_check_loads(folder, 1);

    CHECK_OK(generation_save(folder, 2, 1)); /* removes it, too */
    CHECK_INT(1, folder_count(folder, ""));
    generation_check_loads(folder, 2);
}

static void test_short_writes_are_continued(void)
{
    save_fault.writes_halves = true;
    const enum status status = generation_save(run_folder(), 1, 1);
    save_fault.writes_halves = false;
    CHECK_OK(status);
    generation_check_loads(run_folder(), 1);
}

static void test_a_file_size_limit_leaves_the_previous_generation(void)
{
    const char *folder = run_folder();
    struct rlimit limit, lower;

    CHECK_OK(generation_save(folder, 1, 1));
    CHECK_INT(0, getrlimit(RLIMIT_FSIZE, &limit));
    void (*former)(int) = signal(SIGXFSZ, SIG_IGN);
    lower = limit;
    for (rlim_t bytes = 0; bytes < 16384; bytes += 1000) {
        lower.rlim_cur = bytes;
        CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &lower));
        const enum status status = generation_save(folder, 2, 1);
        CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &limit));
        if (status == STATUS_OK)
            break;
        CHECK_INT(STATUS_IO, status);
        CHECK_INT(1, folder_count(folder, ""));
        generation_check_loads(folder, 1);
    }
    signal(SIGXFSZ, former);
    generation_check_loads(folder, 2);
}

/* A file system of its own in the run's folder, in a mount namespace that ends with this
 * program. */
static void mount_small(const char *folder, const char *options)
{
    static bool is_private;

    if (!is_private &&
        (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0))
        test_skip("cannot make a mount namespace; needs root");
    is_private = true;
    CHECK_OK(file_make_folder(folder));
    if (mount("tmpfs", folder, "tmpfs", 0, options) != 0)
        test_skip("cannot mount a tmpfs; needs root");
}

static void fill_file(const char *path, size_t bytes)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    CHECK_INT(0, posix_fallocate(fd, 0, (off_t)bytes));
    close(fd);
}

/* The disk has room for 0, 1, 2, ... pages more than the first generation took, until the
 * second one fits. */
static void test_a_full_disk_leaves_the_previous_generation(void)
{
    enum { SIZE = 256 * 1024, PAGE = 4096 };
    const char *folder = run_folder();
    char ballast[768];
    int n_failed = 0;
    enum status status = STATUS_IO;

    mount_small(folder, "size=256k");
    snprintf(ballast, sizeof ballast, "%s/ballast", folder);
    CHECK_OK(generation_save(folder, 1, 1));
    for (size_t used = SIZE - 10 * PAGE; status != STATUS_OK; used -= PAGE) {
        fill_file(ballast, used);
        status = generation_save(folder, 2, 1);
        if (status == STATUS_OK)
            break;
        CHECK_INT(STATUS_IO, status);
        CHECK_MESSAGE(strerror(ENOSPC));
        CHECK_INT(2, folder_count(folder, "")); /* with the ballast */
        generation_check_loads(folder, 1);
        n_failed++;
        CHECK_INT(0, unlink(ballast));
        CHECK(used >= PAGE);
    }
    CHECK(n_failed >= 4);
    CHECK_INT(2, folder_count(folder, ""));
    generation_check_loads(folder, 2);
    CHECK_INT(0, umount2(folder, MNT_DETACH));
}

static void test_no_inode_leaves_the_previous_generation(void)
{
    const char *folder = run_folder();
    char path[768];

    mount_small(folder, "nr_inodes=40");
    CHECK_OK(generation_save(folder, 1, 1));
    int n_files = 0;
    for (;; n_files++) { /* takes what there is */
        snprintf(path, sizeof path, "%s/file-%d", folder, n_files);
        const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            break;
        close(fd);
    }
    for (int n_free = 0; n_free < 5; n_free++) { /* a folder and four files are needed */
        CHECK_STATUS(STATUS_IO, generation_save(folder, 2, 1));
        CHECK_MESSAGE(strerror(ENOSPC));
        CHECK_INT(1, folder_count(folder, "step-"));
        generation_check_loads(folder, 1);
        snprintf(path, sizeof path, "%s/file-%d", folder, --n_files);
        CHECK_INT(0, unlink(path));
    }
    CHECK_OK(generation_save(folder, 2, 1));
    generation_check_loads(folder, 2);
    CHECK_INT(0, umount2(folder, MNT_DETACH));
}

static void test_a_read_only_folder_is_refused_and_loads(void)
{
    const char *folder = run_folder();

    mount_small(folder, "size=256k");
    CHECK_OK(generation_save(folder, 1, 1));
    CHECK_INT(0, mount(NULL, folder, NULL, MS_REMOUNT | MS_RDONLY, NULL));
    CHECK_STATUS(STATUS_IO, generation_save(folder, 2, 1));
    CHECK_MESSAGE(strerror(EROFS));
    generation_check_loads(folder, 1);
    CHECK_INT(0, umount2(folder, MNT_DETACH));
}

static void test_failed_allocations_leave_the_previous_generation(void)
{
    const char *folder = run_folder();
    uint64_t newest = 1;
    struct checkpoint *checkpoint = NULL;

    CHECK_OK(generation_save(folder, newest, 1));
    for (int step = 1; step <= 2; step++) { /* the same step again, and the next one */
        bool failed = true;
        for (uint64_t n = 1; failed; n++) {
            const uint64_t before = mem_count();
            mem_fail_at(n);
            const enum status status = generation_save(folder, (uint64_t)step, 1);
            mem_fail_at(0);
            failed = mem_count() - before >= n; /* else there was no nth */
            CHECK(status == STATUS_NO_MEMORY || status == STATUS_OK);
            if (status == STATUS_OK)
                newest = (uint64_t)step;
            CHECK_INT(0, folder_count(folder, ".tmp-"));
            generation_check_loads(folder, newest);
        }
    }

    enum status status = STATUS_NO_MEMORY;
    for (uint64_t n = 1; status != STATUS_OK; n++) {
        mem_fail_at(n);
        status = checkpoint_load(folder, &checkpoint);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || (status == STATUS_NO_MEMORY && !checkpoint));
    }
    generation_check(checkpoint);
    checkpoint_close(checkpoint);
}

/* Other processes */

/* Saves step after step, each twice, and tells which are done; never returns. */
static void save_for_ever(const char *folder, uint64_t step, int keep, int pipe_end)
{
    for (;; step++) {
        for (int i = 0; i < 2; i++)
            if (generation_save(folder, step, keep) != STATUS_OK)
                _exit(1);
        if (write(pipe_end, &step, sizeof step) != sizeof step)
            _exit(1);
    }
}

static pid_t start_saving(const char *folder, uint64_t step, int keep, int *out_pipe_end)
{
    int ends[2];

    CHECK_INT(0, pipe(ends));
    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* not for ever, if a check fails */
        save_for_ever(folder, step, keep, ends[1]);
    }
    close(ends[1]);
    *out_pipe_end = ends[0];
    return child;
}

static void test_a_killed_process_leaves_a_good_generation(void)
{
    enum { ROUNDS = 50, LATEST_US = 10000 };
    const char *folder = run_folder();
    struct rng rng;
    uint64_t step = 1;

    rng_init(&rng, 1, 1);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t done = 0;
        int ends, status;
        const pid_t child = start_saving(folder, step, 1 + round % 2, &ends);

        CHECK_INT(sizeof done, read(ends, &done, sizeof done));
        /* Not a wait for something to happen: the moment is to be a random one. */
        nanosleep(&(struct timespec){ .tv_nsec = 1000 * (long)rng_below(&rng, LATEST_US) },
                  NULL);
        kill(child, SIGKILL);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        while (read(ends, &done, sizeof done) == sizeof done)
            ;
        close(ends);

        struct checkpoint *checkpoint;
        CHECK_OK(generation_load_quietly(folder, &checkpoint));
        generation_check(checkpoint);
        step = checkpoint_step(checkpoint);
        CHECK(step == done || step == done + 1);
        checkpoint_close(checkpoint);
        step++;
    }
    CHECK_OK(generation_save(folder, step, 1));
    CHECK_INT(1, folder_count(folder, ""));
}

/* `keep` 1 removes a generation as soon as the next is there. */
static void test_loading_works_while_another_process_saves(void)
{
    const char *folder = run_folder();
    enum status status = STATUS_OK;
    uint64_t done, last = 0;
    int ends;
    const pid_t child = start_saving(folder, 1, 1, &ends);

    CHECK_INT(sizeof done, read(ends, &done, sizeof done));
    for (int i = 0; i < 200 && status == STATUS_OK; i++) {
        struct checkpoint *checkpoint;

        status = generation_load_quietly(folder, &checkpoint);
        if (status == STATUS_OK) {
            CHECK(checkpoint_step(checkpoint) >= last);
            last = checkpoint_step(checkpoint);
            generation_check(checkpoint);
            checkpoint_close(checkpoint);
        }
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends);
    CHECK_OK(status);
}

const struct test tests[] = {
    { .name = "leftovers of dead processes are removed",
      .run = test_leftovers_of_dead_processes_are_removed },
    { .name = "every failing call leaves the previous generation",
      .run = test_every_failing_call_leaves_the_previous_generation },
    { .name = "the reason survives a failing removal",
      .run = test_the_reason_survives_a_failing_removal },
    { .name = "short writes are continued", .run = test_short_writes_are_continued },
    { .name = "a file size limit leaves the previous generation",
      .run = test_a_file_size_limit_leaves_the_previous_generation },
    { .name = "a full disk leaves the previous generation",
      .run = test_a_full_disk_leaves_the_previous_generation },
    { .name = "no inode leaves the previous generation",
      .run = test_no_inode_leaves_the_previous_generation },
    { .name = "a read-only folder is refused and loads",
      .run = test_a_read_only_folder_is_refused_and_loads },
    { .name = "failed allocations leave the previous generation",
      .run = test_failed_allocations_leave_the_previous_generation },
    { .name = "a killed process leaves a good generation",
      .run = test_a_killed_process_leaves_a_good_generation },
    { .name = "loading works while another process saves",
      .run = test_loading_works_while_another_process_saves },
    { 0 },
};
