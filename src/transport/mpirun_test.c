/* SPDX-License-Identifier: MIT */
/* mpirun_test.c - command lines for Open MPI and MPICH, and programs that are neither. */
#include "transport/mpirun.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/test.h"

static char *const command[] = { "/bin/tutti", "train", "mlp", NULL };
static char *const environment[] = { "PATH=/usr/bin",  "TUTTI_DATA=/data", "LD_LIBRARY_PATH=/l",
                                     "TUTTI_LOG=info", "HOME=/root",       NULL };

static void check_words(const char *list, int ranks, const char *agent, enum mpirun_kind kind,
                        const char *expected)
{
    struct hosts hosts;
    struct mpirun mpirun = { "", agent, &hosts, command, environment };
    struct arena *arena;
    struct strbuf text;
    const char **words;

    CHECK_OK(hosts_parse(list, &hosts));
    CHECK_OK(hosts_assign(&hosts, ranks));
    CHECK_OK(arena_create(&arena));
    CHECK_OK(mpirun_words(&mpirun, kind, "mpirun", arena, &words));
    strbuf_init(&text, 4096);
    for (int i = 0; words[i]; i++)
        strbuf_printf(&text, "%s%s", i ? " " : "", words[i]);
    CHECK_TEXT(expected, text.text);
    strbuf_release(&text);
    arena_destroy(arena);
    hosts_release(&hosts);
}

static void test_words(void)
{
    check_words("a,b", 4, "", MPIRUN_OPENMPI,
                "mpirun --host a:2,b:2 -n 4 --map-by slot --bind-to none -x TUTTI_DATA -x "
                "LD_LIBRARY_PATH -x TUTTI_LOG /bin/tutti train mlp");
    check_words("a,b:1,c", 2, "/bin/agent", MPIRUN_OPENMPI,
                "mpirun --host a:1,b:1 -n 2 --map-by slot --bind-to none --mca plm rsh --mca "
                "plm_rsh_agent /bin/agent -x TUTTI_DATA -x LD_LIBRARY_PATH -x TUTTI_LOG "
                "/bin/tutti train mlp");
    check_words("a,b:1", 4, "", MPIRUN_HYDRA,
                "mpirun -hosts a:3,b:1 -n 4 /bin/tutti train mlp");
    check_words("a", 1, "/bin/agent", MPIRUN_HYDRA,
                "mpirun -hosts a:1 -n 1 -launcher ssh -launcher-exec /bin/agent /bin/tutti "
                "train mlp");
}

static void test_recognize(void)
{
    static const struct {
        const char *text;
        enum mpirun_kind kind;
    } versions[] = {
        { "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/",
          MPIRUN_OPENMPI },
        { "mpirun.openmpi (OpenRTE) 4.1.4\n", MPIRUN_OPENMPI },
        { "HYDRA build details:\n    Version:  4.0.2\n", MPIRUN_HYDRA },
        { "Intel(R) MPI Library for Linux* OS, Version 2021.9\n", MPIRUN_HYDRA },
    };
    enum mpirun_kind kind;

    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        CHECK_OK(mpirun_recognize("mpirun", versions[i].text, &kind));
        CHECK_INT(versions[i].kind, kind);
    }
    CHECK_STATUS(STATUS_UNSUPPORTED, mpirun_recognize("x", "GNU x 1.0", &kind));
    CHECK_MESSAGE("x: --version names neither");
}

/* A program of our own in the place of mpirun: it says who it is, then what it was given. */
static void test_becomes(void)
{
    char path[512], out[512];
    struct hosts hosts;

    (void)snprintf(path, sizeof path, "%s/mpirun", test_folder());
    (void)snprintf(out, sizeof out, "%s/out", test_folder());
    FILE *script = fopen(path, "w");
    CHECK(script != NULL);
    (void)fprintf(script,
                  "#!/bin/sh\n[ \"$1\" = --version ] && echo HYDRA && exit\necho \"$@\" >%s\n",
                  out);
    (void)fclose(script);
    CHECK(chmod(path, 0700) == 0);
    CHECK_OK(hosts_parse("a,b", &hosts));
    CHECK_OK(hosts_assign(&hosts, 2));
    const struct mpirun mpirun = { path, "", &hosts, command, environment };
    const pid_t pid = fork();
    if (pid == 0)
        _exit(mpirun_become(&mpirun) == STATUS_OK ? 1 : 2);
    int code;
    CHECK(waitpid(pid, &code, 0) == pid);
    CHECK_INT(0, code);
    char *text;
    size_t length;
    CHECK_OK(file_read(out, 4096, &text, &length));
    CHECK_TEXT("-hosts a:1,b:1 -n 2 /bin/tutti train mlp\n", text);
    mem_free(text);
    hosts_release(&hosts);
}

static void test_is_missing(void)
{
    struct hosts hosts;

    CHECK_OK(hosts_parse("a", &hosts));
    struct mpirun mpirun = { "/no/such/mpirun", "", &hosts, command, environment };
    CHECK_STATUS(STATUS_NOT_FOUND, mpirun_become(&mpirun));
    CHECK_MESSAGE("--mpirun /no/such/mpirun: there is no such program");
    mpirun.program = "/bin/cat";
    CHECK_STATUS(STATUS_UNSUPPORTED, mpirun_become(&mpirun));
    CHECK_MESSAGE("/bin/cat: --version names neither");
    hosts_release(&hosts);
}

const struct test tests[] = {
    { .name = "the command names hosts, ranks, agent and program", .run = test_words },
    { .name = "starters are told by their version", .run = test_recognize },
    { .name = "the process becomes the starter", .run = test_becomes },
    { .name = "a missing or foreign starter is named", .run = test_is_missing },
    { 0 },
};
