/* SPDX-License-Identifier: MIT */
/* starter.c - looks for processes in /proc. */
#include "transport/starter.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    MOST_ABOVE = 32,           /* processes between a rank and its starter */
    ENVIRONMENT_BYTES = 65536, /* that are searched for a rank's number */
    TERM_MS = 1000,            /* how long a starter has after SIGTERM */
    LOOK_MS = 50,
};

/* Beginnings of names, of which the kernel keeps 15 bytes. */
static const char *const names[] = { "mpirun",  "mpiexec", "orterun",       "orted",
                                     "prterun", "prted",   "hydra_pmi_prox" };

/* What proc(5) says of a process. */
struct process {
    char name[32], state;
    pid_t parent;
    uint64_t began; /* tells it from a later one of the same number */
};

static bool read_process(pid_t pid, struct process *out)
{
    char path[64], line[1024] = "";
    unsigned long long began;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const ssize_t length = read(fd, line, sizeof(line) - 1);
    (void)close(fd);
    const char *name = strchr(line, '('), *end = strrchr(line, ')');
    if (length <= 0 || !name || !end || end[1] != ' ')
        return false;
    const int bytes = (int)(end - name - 1);
    (void)snprintf(out->name, sizeof(out->name), "%.*s", bytes < 31 ? bytes : 31, name + 1);
    out->state = end[2];
    const char *at = end + 4;
    out->parent = (pid_t)strtol(at, NULL, 10);
    for (int field = 4; field < 22 && at; field++) { /* the 22nd */
        at = strchr(at, ' ');
        at = at ? at + 1 : NULL;
    }
    began = at ? strtoull(at, NULL, 10) : 0;
    out->began = began;
    return true;
}

char starter_state_of(pid_t pid)
{
    struct process process;

    return read_process(pid, &process) ? process.state : 'X';
}

static bool is_starter(const struct process *process)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strncmp(process->name, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

pid_t starter_above(pid_t pid)
{
    struct process process;

    for (int i = 0; i < MOST_ABOVE && read_process(pid, &process) && process.parent > 1; i++) {
        struct process above;
        pid = process.parent;
        if (read_process(pid, &above) && is_starter(&above))
            return pid;
    }
    return 0;
}

/* Ranks ------------------------------------------------------------------------------------ */

static bool runs_this_program(pid_t pid)
{
    char path[64], own[4096], theirs[4096];

    (void)snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    const ssize_t n = readlink("/proc/self/exe", own, sizeof(own));
    return n > 0 && n == readlink(path, theirs, sizeof(theirs)) &&
           memcmp(own, theirs, (size_t)n) == 0;
}

/* The rank that its environment says; -1: none. */
static int rank_of(pid_t pid)
{
    static const char *const variables[] = { "OMPI_COMM_WORLD_RANK=", "PMI_RANK=",
                                             "PMIX_RANK=" };
    static char text[ENVIRONMENT_BYTES];
    char path[64];
    size_t length = 0;
    ssize_t n;

    (void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    while (length < sizeof(text) - 1 &&
           (n = read(fd, text + length, sizeof(text) - 1 - length)) > 0)
        length += (size_t)n;
    (void)close(fd);
    text[length] = '\0';
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const size_t bytes = strlen(variables[i]);
        for (size_t at = 0; at < length; at += strlen(text + at) + 1) {
            if (strncmp(text + at, variables[i], bytes) == 0 &&
                isdigit((unsigned char)text[at + bytes]))
                return (int)strtol(text + at + bytes, NULL, 10);
        }
    }
    return -1;
}

static int add(const struct starter_rank *found, int count, int most, struct starter_rank *out)
{
    for (int i = 0; i < count; i++) {
        if (out[i].rank != found->rank)
            continue;
        if (found->is_stopped && !out[i].is_stopped)
            out[i] = *found;
        return count;
    }
    if (count < most)
        out[count++] = *found;
    return count;
}

int starter_ranks(pid_t starter, int rank, int most, struct starter_rank *out)
{
    DIR *folder = starter > 0 ? opendir("/proc") : NULL;
    const struct dirent *entry;
    int count = 0;

    while (folder && (entry = readdir(folder))) {
        const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (pid <= 0 || !runs_this_program(pid) || starter_above(pid) != starter)
            continue;
        const struct starter_rank found = { rank_of(pid), pid, starter_state_of(pid) == 'T' };
        if (found.rank >= 0 && found.rank != rank)
            count = add(&found, count, most, out);
    }
    if (folder)
        (void)closedir(folder);
    return count;
}

/* The end of a starter --------------------------------------------------------------------- */

static bool is_there(pid_t pid, uint64_t began)
{
    struct process process;

    return read_process(pid, &process) && process.began == began && process.state != 'Z';
}

/* Waits until none of them is there, or for that long. */
static bool are_gone(const pid_t *pids, const uint64_t *began, int count, int ms)
{
    for (;; ms -= LOOK_MS) {
        bool any = false;
        for (int i = 0; i < count; i++)
            any |= is_there(pids[i], began[i]);
        if (!any || ms <= 0)
            return !any;
        clock_sleep_ms(LOOK_MS);
    }
}

void starter_end_later(pid_t starter, int ms)
{
    static const int signals[] = {
        SIGTERM, SIGTERM, SIGKILL
    }; /* Open MPI's begins to end by one, and does by two */
    pid_t pids[MOST_ABOVE];
    uint64_t began[MOST_ABOVE];
    struct process process;
    int count = 0;

    for (pid_t pid = starter;
         pid > 1 && count < MOST_ABOVE && read_process(pid, &process) && is_starter(&process);
         pid = process.parent) {
        pids[count] = pid;
        began[count++] = process.began;
    }
    if (count == 0)
        return;
    const pid_t child = fork();
    if (child > 0)
        (void)waitpid(child, NULL, 0);
    if (child != 0)
        return;
    /* A grandchild, in a session of its own: the starter neither waits for it nor signals it.
     */
    if (setsid() < 0 || fork() != 0)
        _exit(0);
    for (int fd = 0; fd < 1024; fd++) /* pipes of the starter, which waits for their end */
        (void)close(fd);
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        if (are_gone(pids, began, count, i == 0 ? ms : TERM_MS))
            _exit(0);
        for (int k = 0; k < count; k++) {
            if (is_there(pids[k], began[k]))
                (void)kill(pids[k], signals[i]);
        }
    }
    _exit(0);
}
