/* SPDX-License-Identifier: MIT */
/* room.c - /proc/meminfo, cgroups (version 2 and the memory controller of version 1), rlimits. */
#include "base/room.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 };

/* A number at the beginning of a file; NaN: there is none ("max" of a cgroup is none). */
static double read_number(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[64], *end = line;
    double number = NAN;

    if (!file)
        return NAN;
    if (fgets(line, sizeof line, file))
        number = strtod(line, &end);
    (void)fclose(file);
    return end > line ? number : NAN;
}

/* "MemAvailable:   123 kB", in bytes. */
static double available(void)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[128];
    double bytes = INFINITY;

    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, "MemAvailable:", 13) == 0)
            bytes = strtod(line + 13, NULL) * 1024;
    if (file)
        (void)fclose(file);
    return bytes;
}

/* The least over a cgroup and those it lies in of the limit, less what is used if `is_left`. Caches
 * of files count as used there although the kernel takes them back, so they are added again. */
static double least_of(const char *root, char *folder, const char *limit_name,
                       const char *used_name, bool is_left)
{
    double least = INFINITY;

    for (;;) {
        char path[LINE_BYTES + 128];
        snprintf(path, sizeof path, "%s%s/%s", root, folder, limit_name);
        double bytes = read_number(path);
        if (bytes > 0 && bytes < 1e18) {
            if (is_left) {
                snprintf(path, sizeof path, "%s%s/%s", root, folder, used_name);
                const double used = read_number(path);
                char line[128];
                double cached = 0;
                snprintf(path, sizeof path, "%s%s/memory.stat", root, folder);
                FILE *stat = fopen(path, "r");
                while (stat && fgets(line, sizeof line, stat))
                    if (strncmp(line, "inactive_file ", 14) == 0 ||
                        strncmp(line, "active_file ", 12) == 0)
                        cached += strtod(strchr(line, ' '), NULL);
                if (stat)
                    (void)fclose(stat);
                bytes = isnan(used) ? bytes : fmax(bytes - fmax(used - cached, 0), 0);
            }
            least = fmin(least, bytes);
        }
        char *slash = strrchr(folder, '/');
        if (!slash || !*folder)
            return least;
        *slash = '\0';
    }
}

static double cgroup(bool is_left)
{
    FILE *file = fopen("/proc/self/cgroup", "r");
    char line[LINE_BYTES];
    double least = INFINITY;

    while (file && fgets(line, sizeof line, file)) { /* "0::/a/b" or "5:memory:/a/b" */
        char *controllers = strchr(line, ':');
        char *folder = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!folder)
            continue;
        *folder++ = '\0';
        folder[strcspn(folder, "\n")] = '\0';
        if (controllers[1] == '\0')
            least = fmin(least, least_of("/sys/fs/cgroup", folder, "memory.max",
                                         "memory.current", is_left));
        else if (strstr(controllers + 1, "memory"))
            least =
                fmin(least, least_of("/sys/fs/cgroup/memory", folder, "memory.limit_in_bytes",
                                     "memory.usage_in_bytes", is_left));
    }
    if (file)
        (void)fclose(file);
    return least;
}

double room_of_cgroup(void)
{
    return cgroup(false);
}

/* Pages that this process has: of addresses (0) or of data (5). */
static double own_bytes(int field)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long long pages[6] = { 0 };

    if (!file)
        return 0;
    for (int i = 0; i < 6; i++)
        if (fscanf(file, "%lld", &pages[i]) != 1)
            pages[i] = 0;
    (void)fclose(file);
    return (double)pages[field] * (double)sysconf(_SC_PAGESIZE);
}

static double limit_left(int kind, int field)
{
    struct rlimit limit;

    if (getrlimit((unsigned)kind, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return INFINITY;
    return fmax((double)limit.rlim_cur - own_bytes(field), 0);
}

double room_left(void)
{
    const double limits = fmin(limit_left(RLIMIT_AS, 0), limit_left(RLIMIT_DATA, 5));

    return fmin(fmin(available(), cgroup(true)), limits);
}

static const char *print_bytes(double bytes, char text[32])
{
    snprintf(text, 32, bytes < 1e9 ? "%.3g MB" : "%.3g GB",
             bytes * (bytes < 1e9 ? 1e-6 : 1e-9));
    return text;
}

enum status room_check(double bytes, const char *path, const char *what, const char *remedy)
{
    const double left = room_left();
    char text[2][32];

    if (bytes <= left)
        return STATUS_OK;
    return FAIL(STATUS_NO_MEMORY, "%s: %s needs about %s of memory, %s are left: %s", path,
                what, print_bytes(bytes, text[0]), print_bytes(left, text[1]), remedy);
}
