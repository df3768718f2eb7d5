/* SPDX-License-Identifier: MIT */
/* file_test.c - files read, mapped and replaced as a whole, and what stays when that fails. */
#include "base/file.h"

#include "base/mem.h"
#include "base/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char path_text[4][1200];

/* A path in the test's folder; the last four stay valid. */
static const char *path_of(const char *name)
{
    static int next;
    char *path = path_text[next++ % 4];

    snprintf(path, sizeof path_text[0], "%s/%s", test_folder(), name);
    return path;
}

static int count_entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);

    CHECK(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(folder);
    return count;
}

static void check_contents(const char *path, const char *expected)
{
    char *text;
    size_t length;

    CHECK_OK(file_read(path, 1000, &text, &length));
    CHECK_INT(strlen(expected), length);
    CHECK_TEXT(expected, text); /* so a NUL follows */
    mem_free(text);
}

static void test_what_is_written_is_read(struct rng *rng)
{
    enum { MAX = 20000 };
    static char data[MAX];
    const size_t length = rng_below(rng, MAX);
    const char *path = path_of("file");
    char *text;
    size_t got;
    struct file_map map;

    for (size_t i = 0; i < length; i++)
        data[i] = (char)rng_u32(rng);
    CHECK_OK(file_replace(path, data, length));
    CHECK_OK(file_read(path, length, &text, &got));
    CHECK(got == length && memcmp(text, data, length) == 0 && text[length] == '\0');
    mem_free(text);

    CHECK_OK(file_map(path, &map));
    CHECK(map.length == length && memcmp(map.data, data, length) == 0);
    file_unmap(&map);
    CHECK(!map.data && map.length == 0);

    if (length > 0) {
        text = NULL;
        CHECK_STATUS(STATUS_CORRUPT, file_read(path, length - 1, &text, &got));
        CHECK(!text);
        CHECK_MESSAGE(path);
    }
}

static void test_an_empty_file_is_mapped(void)
{
    struct file_map map;

    CHECK_OK(file_replace(path_of("empty"), NULL, 0));
    CHECK_OK(file_map(path_of("empty"), &map));
    CHECK(map.data && map.length == 0);
    file_unmap(&map);
    check_contents(path_of("empty"), "");
}

static void test_what_cannot_be_read_is_told(void)
{
    char *text = NULL;
    size_t length = 7;
    struct file_map map = { .length = 7 };

    CHECK_STATUS(STATUS_NOT_FOUND, file_read(path_of("absent"), 10, &text, &length));
    CHECK_MESSAGE("absent: No such file");
    CHECK_STATUS(STATUS_NOT_FOUND, file_map(path_of("absent"), &map));
    CHECK_STATUS(STATUS_IO, file_read(test_folder(), 10, &text, &length));
    CHECK_MESSAGE("not a regular file");
    CHECK_STATUS(STATUS_IO, file_map("/dev/null", &map));
    CHECK(mkfifo(path_of("fifo"), 0600) == 0);
    CHECK_STATUS(STATUS_IO, file_read(path_of("fifo"), 10, &text, &length));
    CHECK(!text && length == 7 && map.length == 7);
}

static void test_a_file_that_tells_no_size_is_read(void)
{
    char *text;
    size_t length;

    CHECK_OK(file_read("/proc/self/status", 100000, &text, &length));
    CHECK(length > 100 && strlen(text) == length && strstr(text, "Name:"));
    mem_free(text);
    CHECK_STATUS(STATUS_CORRUPT, file_read("/proc/self/status", 100, &text, &length));
}

static void test_replacing_leaves_one_file(void)
{
    CHECK_OK(file_replace(path_of("file"), "old", 3));
    CHECK_OK(file_replace(path_of("file"), "newer", 5));
    check_contents(path_of("file"), "newer");
    CHECK_INT(1, count_entries(test_folder()));
}

static void test_a_relative_path_is_replaced(void)
{
    const int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    CHECK(here >= 0 && chdir(test_folder()) == 0);
    const enum status status = file_replace("plain", "text", 4);
    CHECK(fchdir(here) == 0);
    close(here);
    CHECK_OK(status);
    check_contents(path_of("plain"), "text");
}

static void test_the_old_file_is_there_until_commit(void)
{
    struct file_writer writer;

    CHECK_OK(file_replace(path_of("file"), "old", 3));
    CHECK_OK(file_writer_begin(&writer, path_of("file")));
    CHECK_OK(file_writer_add(&writer, "ne", 2));
    CHECK_OK(file_writer_add(&writer, "w", 1));
    CHECK_INT(3, writer.length);
    check_contents(path_of("file"), "old");
    CHECK_INT(2, count_entries(test_folder()));
    CHECK_OK(file_writer_commit(&writer));
    check_contents(path_of("file"), "new");

    CHECK_OK(file_writer_begin(&writer, path_of("file")));
    CHECK_OK(file_writer_add(&writer, "other", 5));
    file_writer_cancel(&writer);
    file_writer_cancel(&writer); /* harmless */
    check_contents(path_of("file"), "new");
    CHECK_INT(1, count_entries(test_folder()));
}

static void test_what_a_killed_process_left_is_no_hindrance(void)
{
    char left[1300];

    snprintf(left, sizeof left, "%s.tmp-%ld", path_of("file"), (long)getpid());
    CHECK_OK(file_replace(left, "half of something longer", 24));
    CHECK_OK(file_replace(path_of("file"), "new", 3));
    check_contents(path_of("file"), "new");
    CHECK_INT(1, count_entries(test_folder()));
}

static void test_a_full_disk_leaves_the_old_file(void)
{
    struct file_writer writer;

    CHECK_OK(file_replace(path_of("file"), "old", 3));
    CHECK_OK(file_writer_begin(&writer, path_of("file")));
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    CHECK(full >= 0 && dup2(full, writer.fd) >= 0);
    close(full);
    CHECK_STATUS(STATUS_IO, file_writer_add(&writer, "new", 3));
    CHECK_MESSAGE("No space left");
    CHECK_MESSAGE(path_of("file"));
    file_writer_cancel(&writer);
    check_contents(path_of("file"), "old");
    CHECK_INT(1, count_entries(test_folder()));
}

/* The limit cuts a write short first; the rest of it then fails. */
static void test_a_file_size_limit_leaves_the_old_file(void)
{
    static char data[100000];
    struct rlimit before, small;

    CHECK_OK(file_replace(path_of("file"), "old", 3));
    signal(SIGXFSZ, SIG_IGN);
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    small = before;
    small.rlim_cur = 4096;
    CHECK(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const enum status status = file_replace(path_of("file"), data, sizeof data);
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_DFL);
    CHECK_STATUS(STATUS_IO, status);
    CHECK_MESSAGE("too large");
    check_contents(path_of("file"), "old");
    CHECK_INT(1, count_entries(test_folder()));
}

static void test_a_failed_commit_leaves_no_temporary_file(void)
{
    struct file_writer writer;

    CHECK_OK(file_writer_begin(&writer, path_of("file")));
    CHECK_OK(file_writer_add(&writer, "new", 3));
    CHECK_OK(file_make_folder(path_of("file"))); /* meanwhile, so the rename fails */
    CHECK_STATUS(STATUS_IO, file_writer_commit(&writer));
    CHECK(file_is_folder(path_of("file")));
    CHECK_INT(1, count_entries(test_folder()));

    CHECK_OK(file_writer_begin(&writer, path_of("other")));
    const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    CHECK(null >= 0 && dup2(null, writer.fd) >= 0); /* has no sync: taken as done */
    close(null);
    CHECK_OK(file_writer_commit(&writer));
}

static void test_a_refusing_folder_stays_as_it_is(void)
{
    CHECK_STATUS(STATUS_NOT_FOUND, file_replace(path_of("absent/file"), "x", 1));
    CHECK_MESSAGE("absent/file");

    CHECK_OK(file_replace(path_of("file"), "old", 3));
    CHECK(chmod(test_folder(), 0555) == 0);
    const bool is_root = geteuid() == 0;
    if (is_root && seteuid(65534) != 0)
        test_skip("cannot become a user without rights");
    const enum status status = file_replace(path_of("file"), "new", 3);
    if (is_root)
        CHECK(seteuid(0) == 0);
    CHECK(chmod(test_folder(), 0700) == 0);
    CHECK_STATUS(STATUS_IO, status);
    CHECK_MESSAGE("Permission denied");
    check_contents(path_of("file"), "old");
    CHECK_INT(1, count_entries(test_folder()));
}

/* A FIFO stands for the devices: code that fails this test must not cost root /dev/null. */
static void test_only_regular_files_are_replaced(void)
{
    CHECK(mkfifo(path_of("fifo"), 0600) == 0);
    CHECK_STATUS(STATUS_IO, file_replace(path_of("fifo"), "x", 1));
    CHECK_MESSAGE("not a regular file");
    CHECK_STATUS(STATUS_IO, file_replace(test_folder(), "x", 1));
    CHECK(symlink(path_of("fifo"), path_of("link")) == 0);
    CHECK_STATUS(STATUS_IO, file_replace(path_of("link"), "x", 1));
    CHECK_INT(2, count_entries(test_folder()));
}

static void test_a_link_to_a_file_is_itself_replaced(void)
{
    CHECK_OK(file_replace(path_of("file"), "old", 3));
    CHECK(symlink(path_of("file"), path_of("link")) == 0);
    CHECK_OK(file_replace(path_of("link"), "new", 3));
    check_contents(path_of("file"), "old");
    check_contents(path_of("link"), "new");
}

static void test_every_refused_allocation_leaves_the_old_file(void)
{
    enum status status = STATUS_NO_MEMORY;

    CHECK_OK(file_replace(path_of("file"), "old", 3));
    for (uint64_t nth = 1; status != STATUS_OK; nth++) {
        check_contents(path_of("file"), "old");
        mem_fail_at(nth);
        status = file_replace(path_of("file"), "new", 3);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
        CHECK(nth < 20);
        CHECK_INT(1, count_entries(test_folder()));
    }
    check_contents(path_of("file"), "new");

    char *text = NULL;
    size_t length;
    mem_fail_at(1);
    CHECK_STATUS(STATUS_NO_MEMORY, file_read(path_of("file"), 10, &text, &length));
    CHECK(!text);
}

struct reading {
    const char *path;
    _Atomic bool stop;
    int n_whole, n_torn;
};

/* Counts what is neither all a nor all b. */
static void *read_often(void *arg)
{
    struct reading *reading = arg;

    while (!atomic_load(&reading->stop)) {
        char *text;
        size_t length, same = 1;
        if (file_read(reading->path, 100000, &text, &length) != STATUS_OK) {
            reading->n_torn++;
            continue;
        }
        while (same < length && text[same] == text[0])
            same++;
        *(length == 50000 && same == length ? &reading->n_whole : &reading->n_torn) += 1;
        mem_free(text);
    }
    return NULL;
}

static void test_a_reader_sees_the_old_or_the_new(void)
{
    static char data[2][50000];
    struct reading reading = { .path = path_of("file") };
    pthread_t thread;

    memset(data[0], 'a', sizeof data[0]);
    memset(data[1], 'b', sizeof data[1]);
    CHECK_OK(file_replace(reading.path, data[0], sizeof data[0]));
    CHECK(pthread_create(&thread, NULL, read_often, &reading) == 0);
    enum status status = STATUS_OK;
    for (int i = 1; i < 50 && status == STATUS_OK; i++)
        status = file_replace(reading.path, data[i % 2], sizeof data[0]);
    atomic_store(&reading.stop, true);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_OK(status);
    CHECK_INT(0, reading.n_torn);
}

static void test_folders_are_made_with_parents(void)
{
    CHECK_OK(file_make_folder(path_of("a/b//c/")));
    CHECK(file_is_folder(path_of("a/b/c")));
    CHECK_OK(file_make_folder(path_of("a/b/c")));
    CHECK_OK(file_make_folder("/"));
    CHECK_OK(file_make_folder("."));

    CHECK_OK(file_replace(path_of("a/file"), "x", 1));
    CHECK(file_exists(path_of("a/file")) && !file_is_folder(path_of("a/file")));
    CHECK_STATUS(STATUS_IO, file_make_folder(path_of("a/file")));
    CHECK(file_make_folder(path_of("a/file/b")) < 0);
    CHECK_MESSAGE("a/file");
    CHECK(!file_exists(path_of("a/none")));
}

static void test_a_tree_is_removed_but_not_what_it_links_to(void)
{
    CHECK_OK(file_make_folder(path_of("tree/a/b/c")));
    CHECK_OK(file_make_folder(path_of("kept")));
    CHECK_OK(file_replace(path_of("kept/file"), "x", 1));
    CHECK_OK(file_replace(path_of("tree/a/file"), "x", 1));
    CHECK(symlink(path_of("kept"), path_of("tree/a/link")) == 0);

    CHECK_OK(file_remove_tree(path_of("tree")));
    CHECK(!file_exists(path_of("tree")));
    check_contents(path_of("kept/file"), "x");
    CHECK_OK(file_remove_tree(path_of("tree")));
    CHECK_OK(file_remove_tree(path_of("kept/file")));
    CHECK_INT(0, count_entries(path_of("kept")));
}

static void check_joined(const char *expected, const char *folder, const char *name)
{
    char *path;

    CHECK_OK(file_join(folder, name, &path));
    CHECK_TEXT(expected, path);
    mem_free(path);
}

static void test_scratch_memory_has_no_name(void)
{
    char path[1200];
    struct file_map map;
    void *data;

    snprintf(path, sizeof path, "%s/scratch/file", test_folder());
    CHECK_STATUS(STATUS_NOT_FOUND, file_map_scratch(path, 10, &data, &map));
    *strrchr(path, '/') = '\0';
    CHECK_OK(file_make_folder(path));
    CHECK_OK(file_map_scratch(path_of("scratch/file"), 100000, &data, &map));
    CHECK_INT(0, count_entries(path));
    for (int i = 0; i < 100000; i += 4096)
        CHECK_INT(0, ((char *)data)[i]);
    memset(data, 1, 100000);
    CHECK_INT(1, map.data[99999]);
    file_unmap(&map);
    CHECK_OK(file_map_scratch(path_of("scratch/file"), 0, &data, &map));
    file_unmap(&map);
    mem_fail_at(1);
    CHECK_STATUS(STATUS_NO_MEMORY, file_map_scratch(path_of("scratch/file"), 1, &data, &map));
    mem_fail_at(0);
    /* More than any disk has: it fails here, not where it is written. */
    CHECK_STATUS(STATUS_IO,
                 file_map_scratch(path_of("scratch/file"), (size_t)1 << 60, &data, &map));
    CHECK_INT(0, count_entries(path));
}

static void test_joining(void)
{
    check_joined("a/b", "a", "b");
    check_joined("a/b", "a/", "b");
    check_joined("/b", "/", "b");
    check_joined("b", "", "b");

    char *path = NULL;
    mem_fail_at(1);
    CHECK_STATUS(STATUS_NO_MEMORY, file_join("a", "b", &path));
    CHECK(!path);
}

const struct test tests[] = {
    { .name = "what is written is read", .property = test_what_is_written_is_read },
    { .name = "an empty file is mapped", .run = test_an_empty_file_is_mapped },
    { .name = "what cannot be read is told", .run = test_what_cannot_be_read_is_told },
    { .name = "a file that tells no size is read",
      .run = test_a_file_that_tells_no_size_is_read },
    { .name = "replacing leaves one file", .run = test_replacing_leaves_one_file },
    { .name = "a relative path is replaced", .run = test_a_relative_path_is_replaced },
    { .name = "the old file is there until commit",
      .run = test_the_old_file_is_there_until_commit },
    { .name = "what a killed process left is no hindrance",
      .run = test_what_a_killed_process_left_is_no_hindrance },
    { .name = "a full disk leaves the old file", .run = test_a_full_disk_leaves_the_old_file },
    { .name = "a file size limit leaves the old file",
      .run = test_a_file_size_limit_leaves_the_old_file },
    { .name = "a failed commit leaves no temporary file",
      .run = test_a_failed_commit_leaves_no_temporary_file },
    { .name = "a refusing folder stays as it is",
      .run = test_a_refusing_folder_stays_as_it_is },
    { .name = "only regular files are replaced", .run = test_only_regular_files_are_replaced },
    { .name = "a link to a file is itself replaced",
      .run = test_a_link_to_a_file_is_itself_replaced },
    { .name = "every refused allocation leaves the old file",
      .run = test_every_refused_allocation_leaves_the_old_file },
    { .name = "a reader sees the old or the new",
      .run = test_a_reader_sees_the_old_or_the_new },
    { .name = "folders are made with parents", .run = test_folders_are_made_with_parents },
    { .name = "a tree is removed but not what it links to",
      .run = test_a_tree_is_removed_but_not_what_it_links_to },
    { .name = "scratch memory has no name", .run = test_scratch_memory_has_no_name },
    { .name = "joining", .run = test_joining },
    { 0 },
};
