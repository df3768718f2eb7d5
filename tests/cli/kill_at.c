/* SPDX-License-Identifier: MIT */
/* kill_at.c - loaded before the C library: the process kills itself at a moment that the
 * environment names.
 *
 * Moments are calls of rename, unlinkat, unlink and rmdir, by which files of a run come and go,
 * counted from 1. KILL_AT=N: just before the Nth; KILL_FILE: what is counted is left there as a
 * number, by the process that began. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int count;

static void pass(void)
{
    const char *at = getenv("KILL_AT"), *file = getenv("KILL_FILE");

    count++;
    if (at && atoi(at) == count)
        (void)kill(getpid(), SIGKILL);
    FILE *out = file ? fopen(file, "w") : NULL;
    if (out) {
        fprintf(out, "%d\n", count);
        fclose(out);
    }
}

int rename(const char *from, const char *to)
{
    int (*next)(const char *, const char *) =
        (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");

    pass();
    return next(from, to);
}

int unlinkat(int folder, const char *path, int flags)
{
    int (*next)(int, const char *, int) =
        (int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat");

    pass();
    return next(folder, path, flags);
}

int unlink(const char *path)
{
    int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");

    pass();
    return next(path);
}

int rmdir(const char *path)
{
    int (*next)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "rmdir");

    pass();
    return next(path);
}
