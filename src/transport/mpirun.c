/* SPDX-License-Identifier: MIT */
/* mpirun.c - builds the starter's command line and becomes it.
 *
 * 4 ranks on a and b:
 *   Open MPI   mpirun --host a:2,b:2 -n 4 --map-by slot --bind-to none -x TUTTI_DATA tutti ...
 *   MPICH      mpiexec -hosts a:2,b:2 -n 4 tutti ...
 * Ranks are not bound to cores: each has threads.
 */
#include "transport/mpirun.h"

#include <errno.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strbuf.h"

enum { HOST_TEXT = 1 << 21, VERSION_BYTES = 2048, OWN_WORDS = 24 };

enum status mpirun_recognize(const char *program, const char *version, enum mpirun_kind *out)
{
    static const struct {
        const char *mark;
        enum mpirun_kind kind;
    } marks[] = {
        { "Open MPI", MPIRUN_OPENMPI },   { "OpenRTE", MPIRUN_OPENMPI },
        { "open-mpi", MPIRUN_OPENMPI },   { "HYDRA", MPIRUN_HYDRA },
        { "Intel(R) MPI", MPIRUN_HYDRA },
    };

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (strstr(version, marks[i].mark)) {
            *out = marks[i].kind;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_UNSUPPORTED,
                "%s: --version names neither Open MPI nor MPICH: start the ranks with it "
                "yourself, or say --mpirun PROGRAM",
                program);
}

/* The command ----------------------------------------------------------------------------- */

struct words {
    struct arena *arena;
    const char **word;
    size_t count, capacity;
};

/* Words outlive the list: they are the caller's, literals, or in the arena. */
static void add(struct words *words, const char *word)
{
    BUG_ON(words->count == words->capacity);
    words->word[words->count++] = word;
}

static bool is_passed_on(const char *variable)
{
    return strncmp(variable, "TUTTI_", 6) == 0 ||
           strncmp(variable, "LD_LIBRARY_PATH=", 16) == 0;
}

static size_t length_of(char *const *list)
{
    size_t n = 0;

    while (list[n])
        n++;
    return n;
}

/* "a:2,b:2" and how many ranks that are. */
static enum status host_words(const struct hosts *hosts, struct arena *arena, const char **list,
                              const char **ranks)
{
    struct strbuf text;
    int n_ranks = 0;

    strbuf_init(&text, HOST_TEXT);
    for (int i = 0; i < hosts->count; i++) {
        const struct host *host = &hosts->host[i];
        if (host->ranks == 0)
            continue;
        strbuf_printf(&text, "%s%s:%d", n_ranks ? "," : "", host->name, host->ranks);
        n_ranks += host->ranks;
    }
    enum status status = strbuf_status(&text);
    if (status == STATUS_OK) {
        *list = arena_strdup(arena, text.text);
        *ranks = arena_printf(arena, "%d", n_ranks);
        if (!*list || !*ranks)
            status = STATUS_NO_MEMORY;
    }
    strbuf_release(&text);
    return status;
}

static enum status add_environment(struct words *words, char *const *environment)
{
    for (size_t i = 0; environment[i]; i++) {
        const char *equals = strchr(environment[i], '=');
        if (!equals || !is_passed_on(environment[i]))
            continue;
        const char *name =
            arena_printf(words->arena, "%.*s", (int)(equals - environment[i]), environment[i]);
        if (!name)
            return STATUS_NO_MEMORY;
        add(words, "-x");
        add(words, name);
    }
    return STATUS_OK;
}

enum status mpirun_words(const struct mpirun *mpirun, enum mpirun_kind kind,
                         const char *program, struct arena *arena, const char ***out)
{
    const size_t n_command = length_of(mpirun->command);
    const size_t most = OWN_WORDS + 2 * length_of(mpirun->environment) + n_command;
    struct words words = { .arena = arena, .capacity = most };
    const char *hosts, *ranks;

    TRY(host_words(mpirun->hosts, arena, &hosts, &ranks));
    words.word = arena_alloc(arena, most, sizeof *words.word);
    if (!words.word)
        return STATUS_NO_MEMORY;
    add(&words, program);
    add(&words, kind == MPIRUN_OPENMPI ? "--host" : "-hosts");
    add(&words, hosts);
    add(&words, "-n");
    add(&words, ranks);
    if (kind == MPIRUN_OPENMPI) {
        add(&words, "--map-by");
        add(&words, "slot");
        add(&words, "--bind-to");
        add(&words, "none");
        if (*mpirun->launch_agent) {
            add(&words, "--mca");
            add(&words, "plm"); /* not Slurm's own way, also inside an allocation */
            add(&words, "rsh");
            add(&words, "--mca");
            add(&words, "plm_rsh_agent");
            add(&words, mpirun->launch_agent);
        }
        TRY(add_environment(&words, mpirun->environment));
    } else if (*mpirun->launch_agent) {
        add(&words, "-launcher");
        add(&words, "ssh");
        add(&words, "-launcher-exec");
        add(&words, mpirun->launch_agent);
    }
    for (size_t i = 0; i < n_command; i++)
        add(&words, mpirun->command[i]);
    add(&words, NULL);
    *out = words.word;
    return STATUS_OK;
}

/* The program ----------------------------------------------------------------------------- */

/* What `PROGRAM --version` prints; false if it cannot be run. */
static bool read_version(const char *program, char *const *environment,
                         char text[VERSION_BYTES])
{
    char *const words[] = { (char *)program, "--version", NULL };
    posix_spawn_file_actions_t actions;
    int ends[2], code = -1;
    size_t length = 0;
    pid_t pid;

    if (pipe(ends) != 0)
        return false;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addclose(&actions, ends[0]);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    (void)posix_spawn_file_actions_addclose(&actions, ends[1]);
    const bool started = posix_spawnp(&pid, program, &actions, NULL, words, environment) == 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    while (started) {
        char rest[256];
        const bool full = length == VERSION_BYTES - 1;
        const ssize_t n = read(ends[0], full ? rest : text + length,
                               full ? sizeof rest : VERSION_BYTES - 1 - length);
        if (n <= 0)
            break;
        length += full ? 0 : (size_t)n;
    }
    text[length] = '\0';
    (void)close(ends[0]);
    if (started)
        (void)waitpid(pid, &code, 0);
    return started && !(WIFEXITED(code) && WEXITSTATUS(code) == 127);
}

/* The program and its kind: the one that was named, else the first of the usual ones. */
static enum status find_program(const struct mpirun *mpirun, const char **program,
                                enum mpirun_kind *kind)
{
    static const char *const usual[] = { "mpirun", "mpiexec" };
    char version[VERSION_BYTES];

    if (*mpirun->program) {
        *program = mpirun->program;
        if (!read_version(mpirun->program, mpirun->environment, version))
            return FAIL(STATUS_NOT_FOUND, "--mpirun %s: there is no such program",
                        mpirun->program);
        return mpirun_recognize(*program, version, kind);
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        *program = usual[i];
        if (read_version(usual[i], mpirun->environment, version))
            return mpirun_recognize(*program, version, kind);
    }
    return FAIL(STATUS_NOT_FOUND, "--hosts needs mpirun, which is not installed: on Debian, "
                                  "apt install openmpi-bin or mpich");
}

enum status mpirun_become(const struct mpirun *mpirun)
{
    enum mpirun_kind kind = MPIRUN_OPENMPI;
    const char *program = NULL, **words = NULL;
    struct arena *arena;

    TRY(find_program(mpirun, &program, &kind));
    TRY(arena_create(&arena));
    enum status status = mpirun_words(mpirun, kind, program, arena, &words);
    if (status == STATUS_OK) {
        (void)execvpe(program, (char *const *)words, mpirun->environment);
        status = FAIL(STATUS_IO, "%s: cannot be started: %s", program, strerror(errno));
    }
    arena_destroy(arena);
    return status;
}
