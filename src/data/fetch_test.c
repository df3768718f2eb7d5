/* SPDX-License-Identifier: MIT */
/* fetch_test.c - data sets are brought in whole or not at all, by import and by download. */
#include "data/fetch.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/test.h"
#include "data/data_testing.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct data_testing_set SMALL = {
    .train = 30, .test = 7, .rows = 6, .columns = 5, .classes = 4
};
static const char *const NAMES[] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                     "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte" };
static char from[2048], root[2048];

/* A data set in FOLDER/from; data sets go to FOLDER/root. */
static void prepare(bool packed)
{
    struct data_testing_set set = SMALL;
    struct rng rng;

    rng_init(&rng, 1, 0);
    snprintf(from, sizeof from, "%s/from", test_folder());
    snprintf(root, sizeof root, "%s/root", test_folder());
    setenv("TUTTI_DATA", root, 1);
    set.packed = packed && data_testing_has_zlib();
    data_testing_make(&rng, from, &set);
}

/* Files and folders in `folder`, the hidden ones included; 0 if it is absent. */
static int count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    int count = 0;

    if (!dir)
        return 0;
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

static void check_in_place(const char *folder)
{
    char expected[2100];
    struct dataset *dataset;

    snprintf(expected, sizeof expected, "%s/own-set", root);
    CHECK_TEXT(expected, folder);
    CHECK_INT(4, count_entries(folder));
    for (int i = 0; i < 4; i++)
        CHECK(file_exists(data_testing_path(folder, NAMES[i])));
    CHECK_INT(1, count_entries(root));
    CHECK_OK(dataset_open("own-set", DATASET_TRAIN, &dataset));
    CHECK_INT(30, dataset_count(dataset));
    CHECK_TEXT(folder, dataset_path(dataset));
    dataset_close(dataset);
}

static void test_a_folder_is_imported(void)
{
    for (int packed = 0; packed < 2; packed++) {
        char *folder;
        prepare(packed);
        CHECK_OK(dataset_import(from, "own-set", &folder));
        check_in_place(folder);
        mem_free(folder);
        CHECK_OK(file_remove_tree(root));
        CHECK_OK(file_remove_tree(from));
    }
}

static void test_import_goes_home_without_the_variable(void)
{
    char home[2048];

    prepare(false);
    unsetenv("TUTTI_DATA");
    snprintf(home, sizeof home, "%s/home", test_folder());
    setenv("HOME", home, 1);
    CHECK_OK(dataset_import(from, "own-set", NULL));
    CHECK_INT(4, count_entries(data_testing_path(home, ".local/share/tutti/own-set")));
}

static void test_import_replaces_nothing(void)
{
    char target[2100];

    prepare(false);
    snprintf(target, sizeof target, "%s/own-set", root);
    CHECK_OK(file_make_folder(target));
    CHECK_OK(dataset_import(from, "own-set", NULL)); /* an empty folder is no loss */
    CHECK_STATUS(STATUS_USAGE, dataset_import(from, "own-set", NULL));
    CHECK_MESSAGE("own-set: is there already; remove it first");

    CHECK_OK(file_remove_tree(target));
    CHECK_OK(file_replace(target, "x", 1)); /* a file in the way */
    CHECK_STATUS(STATUS_USAGE, dataset_import(from, "own-set", NULL));
    CHECK_MESSAGE("is there already");
    CHECK_INT(1, count_entries(root));
}

static void check_import_refused(enum status expected, const char *name, const char *part)
{
    CHECK_STATUS(expected, dataset_import(from, name, NULL));
    CHECK_MESSAGE(part);
    CHECK_INT(0, count_entries(root));
}

static void test_wrong_imports_leave_nothing(void)
{
    prepare(false);
    check_import_refused(STATUS_USAGE, "../x", "cannot name a data set");
    check_import_refused(STATUS_MISMATCH, "mnist", "1x6x5 where mnist has 1x28x28");
    data_testing_write(from, "t10k-labels-idx1-ubyte", (const uint8_t *)"nonsense", 8);
    check_import_refused(STATUS_CORRUPT, "own-set",
                         "t10k-labels-idx1-ubyte: is not an IDX file");
    CHECK_OK(file_remove_tree(data_testing_path(from, "t10k-labels-idx1-ubyte")));
    check_import_refused(STATUS_NOT_FOUND, "own-set", "t10k-labels-idx1-ubyte.gz is there");
    CHECK_OK(file_remove_tree(from));
    check_import_refused(STATUS_NOT_FOUND, "own-set", "from: no such file or folder");
}

static void test_import_survives_lack_of_memory(void)
{
    enum status status = STATUS_NO_MEMORY;

    prepare(true);
    for (uint64_t nth = 1; status != STATUS_OK; nth++) {
        CHECK(nth < 200);
        mem_fail_at(nth);
        status = dataset_import(from, "own-set", NULL);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
        CHECK_INT(status == STATUS_OK, count_entries(root));
    }
}

/* A web server of `from` in a process of its own. */
struct server {
    pid_t pid;
    char address[64];
};

/* Runs in the child; the port is written to `out`. */
static void serve(int out)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test does not come back to stop it */
    dup2(out, STDOUT_FILENO);
    if (!freopen("/dev/null", "w", stderr))
        _exit(127);
    execlp("python3", "python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1",
           "--directory", from, (char *)NULL);
    _exit(127);
}

static void stop(const struct server *server)
{
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
}

/* Starts the server and reads from its first line which port it has. */
static struct server start(void)
{
    struct server server;
    int ends[2], port = 0;
    char line[256] = "";

    if (!data_testing_has_curl())
        test_skip("built without libcurl");
    setenv("no_proxy", "127.0.0.1", 1);
    CHECK(pipe(ends) == 0);
    server.pid = fork();
    CHECK(server.pid >= 0);
    if (server.pid == 0)
        serve(ends[1]);
    close(ends[1]);
    FILE *told = fdopen(ends[0], "r");
    const char *at = told && fgets(line, sizeof line, told) ? strstr(line, " port ") : NULL;
    if (at)
        port = (int)strtol(at + 6, NULL, 10);
    if (told)
        fclose(told);
    if (port == 0) {
        stop(&server);
        test_skip("no python3 that serves files");
    }
    snprintf(server.address, sizeof server.address, "http://127.0.0.1:%d", port);
    return server;
}

/* The files in `from` with their true sizes and checksums. */
static struct dataset_source source_of_files(bool packed)
{
    static char names[4][64], sums[4][SHA256_HEX];
    struct dataset_source source = { .address = "http://127.0.0.1:1/" };

    for (int i = 0; i < 4; i++) {
        struct file_map map;
        struct sha256 hash;

        snprintf(names[i], sizeof names[i], "%s%s", NAMES[i], packed ? ".gz" : "");
        CHECK_OK(file_map(data_testing_path(from, names[i]), &map));
        sha256_init(&hash);
        sha256_add(&hash, map.data, map.length);
        sha256_end_hex(&hash, sums[i]);
        source.files[i] = (struct dataset_file){ names[i], (int64_t)map.length, sums[i] };
        file_unmap(&map);
    }
    return source;
}

struct told {
    int finished; /* files whose last byte was told */
    bool stop;
};

static bool hear(void *arg, const char *file, int64_t done, int64_t total)
{
    struct told *told = arg;

    (void)file;
    told->finished += done == total;
    return !told->stop;
}

static void test_files_are_fetched(void)
{
    for (int packed = 0; packed < 1 + data_testing_has_zlib(); packed++) {
        prepare(packed);
        const struct server server = start();
        const struct dataset_source source = source_of_files(packed);
        struct told told = { 0 };
        const struct fetch_options options = { .address = server.address,
                                               .progress = hear,
                                               .arg = &told };
        char *folder;

        CHECK_OK(dataset_fetch_source("own-set", &source, &options, &folder));
        check_in_place(folder);
        mem_free(folder);
        CHECK(told.finished >= 4);
        told.finished = 0;
        CHECK_STATUS(STATUS_USAGE, dataset_fetch_source("own-set", &source, &options, NULL));
        CHECK_MESSAGE("is there already");
        CHECK_INT(0, told.finished); /* refused before anything was downloaded */
        stop(&server);
        CHECK_OK(file_remove_tree(root));
        CHECK_OK(file_remove_tree(from));
    }
}

/* Joins the files in `from` to one archive there, and removes them. */
static void make_archive(void)
{
    enum { BLOCK = 512, ROOM = 64 * BLOCK };
    struct data_testing_file file = { 0 };

    CHECK_OK(mem_alloc(ROOM, 1, &file.bytes));
    for (int i = 0; i < 4; i++) {
        char name[100], *bytes;
        size_t length;

        CHECK_OK(file_read(data_testing_path(from, NAMES[i]), ROOM, &bytes, &length));
        CHECK(file.length + length + (size_t)4 * BLOCK < ROOM);
        snprintf(name, sizeof name, "some/folder/%s", NAMES[i]);
        data_testing_tar_header(file.bytes + file.length, name, '0', length);
        memcpy(file.bytes + file.length + BLOCK, bytes, length);
        file.length += BLOCK + (length + BLOCK - 1) / BLOCK * BLOCK;
        mem_free(bytes);
        CHECK_OK(file_remove_tree(data_testing_path(from, NAMES[i])));
    }
    file.length += (size_t)2 * BLOCK;
    data_testing_pack(&file);
    data_testing_write(from, "own-set.tar.gz", file.bytes, file.length);
    mem_free(file.bytes);
}

static void test_an_archive_is_fetched(void)
{
    struct dataset_source source = { .address = "http://127.0.0.1:1/" };
    static char sum[SHA256_HEX];
    struct file_map map;
    struct sha256 hash;
    char *folder;

    if (!data_testing_has_zlib())
        test_skip("built without zlib");
    prepare(false);
    const struct server server = start();
    const struct fetch_options options = { .address = server.address };
    make_archive();
    CHECK_OK(file_map(data_testing_path(from, "own-set.tar.gz"), &map));
    sha256_init(&hash);
    sha256_add(&hash, map.data, map.length);
    sha256_end_hex(&hash, sum);
    source.files[0] = (struct dataset_file){ "own-set.tar.gz", (int64_t)map.length, sum };
    file_unmap(&map);
    CHECK_OK(dataset_fetch_source("own-set", &source, &options, &folder));
    check_in_place(folder);
    mem_free(folder);
    stop(&server);
}

static void check_fetch_refused(const struct dataset_source *source,
                                const struct fetch_options *options, enum status expected,
                                const char *part)
{
    CHECK_STATUS(expected, dataset_fetch_source("own-set", source, options, NULL));
    CHECK_MESSAGE(part);
    CHECK_INT(0, count_entries(root));
}

static void test_wrong_files_leave_nothing(void)
{
    prepare(false);
    const struct server server = start();
    const struct dataset_source good = source_of_files(false);
    struct dataset_source wrong = good;
    struct told told = { .stop = true };
    struct fetch_options options = { .address = server.address };

    wrong.files[3].sha256 = good.files[2].sha256;
    check_fetch_refused(&wrong, &options, STATUS_CORRUPT,
                        "t10k-labels-idx1-ubyte: has SHA-256 ");
    wrong = good;
    wrong.files[1].bytes--;
    check_fetch_refused(&wrong, &options, STATUS_CORRUPT, "is longer than the 37 bytes");
    wrong.files[1].bytes += 2;
    check_fetch_refused(&wrong, &options, STATUS_CORRUPT, "has 38 bytes instead of 39");
    wrong = good;
    wrong.files[2].name = "absent";
    check_fetch_refused(&wrong, &options, STATUS_IO,
                        "/absent: The requested URL returned error: "
                        "404");
    wrong = good;
    wrong.files[3] = (struct dataset_file){ 0 }; /* the row forgot a file */
    check_fetch_refused(&wrong, &options, STATUS_NOT_FOUND,
                        "t10k-labels-idx1-ubyte.gz is there");

    options.progress = hear;
    options.arg = &told;
    check_fetch_refused(&good, &options, STATUS_STOPPED, "stopped");
    stop(&server);
    options.progress = NULL;
    check_fetch_refused(&good, &options, STATUS_IO, server.address);
    char local[2100];
    snprintf(local, sizeof local, "file://%s", from); /* the web only */
    options.address = local;
    check_fetch_refused(&good, &options, STATUS_IO, "file://");
}

static void test_a_build_without_libcurl_says_so(void)
{
    if (data_testing_has_curl())
        test_skip("built with libcurl");
    prepare(false);
    CHECK_STATUS(STATUS_UNSUPPORTED, dataset_fetch("mnist", NULL, NULL));
    CHECK_MESSAGE("built without libcurl");
    CHECK_MESSAGE("https://ossci-datasets.s3.amazonaws.com/mnist/");
    CHECK_MESSAGE("tutti data import FOLDER NAME");
    CHECK_INT(0, count_entries(root));
}

static void test_an_unknown_name_is_refused(void)
{
    CHECK_STATUS(STATUS_NOT_FOUND, dataset_fetch("mnits", NULL, NULL));
    CHECK_MESSAGE("did you mean mnist?");
}

static void test_every_source_is_complete(void)
{
    for (int i = 0; dataset_table[i]; i++) {
        const struct dataset_source *source = dataset_table[i]->source;
        CHECK((source != NULL) !=
              (dataset_table[i]->origin != NULL)); /* people are told one way */
        if (!source)
            continue;
        CHECK(strncmp(source->address, "http", 4) == 0);
        CHECK(source->files[0].name != NULL);
        for (const struct dataset_file *file = source->files; file->name; file++) {
            CHECK(file->bytes > 0);
            CHECK_INT(64, strspn(file->sha256, "0123456789abcdef"));
            CHECK_INT(64, strlen(file->sha256));
        }
    }
}

static void check_sum(const struct dataset_file *file, const uint8_t *head, size_t head_length,
                      const uint8_t *rest, size_t rest_length)
{
    char digits[SHA256_HEX];
    struct sha256 hash;

    CHECK_INT(file->bytes, head_length + rest_length);
    sha256_init(&hash);
    sha256_add(&hash, head, head_length);
    sha256_add(&hash, rest, rest_length);
    sha256_end_hex(&hash, digits);
    CHECK_TEXT(file->sha256, digits);
}

static void test_the_sums_are_those_of_mnist(void)
{
    char folder[2048];
    const char *found = test_data("mnist");

    snprintf(folder, sizeof folder, "%s", found ? found : "");
    if (!found || !file_exists(data_testing_path(folder, "train-images-idx3-ubyte.gz")))
        test_skip("no packed MNIST here");
    for (const struct dataset_file *file = dataset_find("mnist")->source->files; file->name;
         file++) {
        struct file_map map;
        CHECK_OK(file_map(data_testing_path(folder, file->name), &map));
        check_sum(file, NULL, 0, map.data, map.length);
        file_unmap(&map);
    }
}

/* Debian took time and name out of the gzip headers; with both back, the files are those whose
 * MD5 the authors publish. */
static void test_the_sums_are_those_of_fashion_mnist(void)
{
    static const char FOLDER[] = "/usr/share/datasets/fashion-mnist";
    static const uint32_t TIMES[] = { 1504176606, 1504176606, 1504176627, 1504176627 };
    const struct dataset_file *file = dataset_find("fashion-mnist")->source->files;

    if (!file_is_folder(FOLDER))
        test_skip("no dataset-fashion-mnist here");
    for (int i = 0; file[i].name; i++) {
        uint8_t head[64] = { 0x1f, 0x8b, 8, 8 /* a name follows */ };
        const size_t name_length = strlen(NAMES[i]) + 1;
        struct file_map map;

        CHECK_OK(file_map(data_testing_path(FOLDER, file[i].name), &map));
        CHECK(map.length > 10 && map.data[3] == 0);
        for (int byte = 0; byte < 4; byte++)
            head[4 + byte] = (uint8_t)(TIMES[i] >> (8 * byte));
        memcpy(head + 8, map.data + 8, 2);
        memcpy(head + 10, NAMES[i], name_length);
        check_sum(&file[i], head, 10 + name_length, map.data + 10, map.length - 10);
        file_unmap(&map);
    }
}

const struct test tests[] = {
    /* first, because the others move TUTTI_DATA */
    { .name = "the sums are those of MNIST", .run = test_the_sums_are_those_of_mnist },
    { .name = "a folder is imported", .run = test_a_folder_is_imported },
    { .name = "import goes home without the variable",
      .run = test_import_goes_home_without_the_variable },
    { .name = "import replaces nothing", .run = test_import_replaces_nothing },
    { .name = "wrong imports leave nothing", .run = test_wrong_imports_leave_nothing },
    { .name = "import survives lack of memory", .run = test_import_survives_lack_of_memory },
    { .name = "files are fetched", .run = test_files_are_fetched },
    { .name = "an archive is fetched", .run = test_an_archive_is_fetched },
    { .name = "wrong files leave nothing", .run = test_wrong_files_leave_nothing },
    { .name = "a build without libcurl says so", .run = test_a_build_without_libcurl_says_so },
    { .name = "an unknown name is refused", .run = test_an_unknown_name_is_refused },
    { .name = "every source is complete", .run = test_every_source_is_complete },
    { .name = "the sums are those of Fashion-MNIST",
      .run = test_the_sums_are_those_of_fashion_mnist },
    { 0 },
};
