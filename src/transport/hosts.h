/* SPDX-License-Identifier: MIT */
/* hosts.h - lists of machines as people, Slurm and host files write them.
 *
 *   a,b:2              machines, and how many ranks one may have
 *   n[01-03,7],m02     Slurm's brackets: n01 n02 n03 n7 m02; several brackets multiply
 *   2(x3),1            Slurm's counts, a machine each: 2 2 2 1
 *
 * Errors: STATUS_USAGE with the text and what is wrong in it.
 */
#ifndef TRANSPORT_HOSTS_H
#define TRANSPORT_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum {
    HOSTS_MAX = 4096,
    HOST_NAME = 256
}; /* machines of a list; bytes of a name with its NUL */

struct host {
    char name[HOST_NAME];
    int slots; /* ranks it may have; 0: not said */
    int ranks; /* ranks it has: hosts_assign */
};

struct hosts {
    struct host *host; /* owned */
    int count;
};

/* "a,b:2", "n[1-3]:4". A machine that is there twice has the slots of both. */
MUST_CHECK enum status hosts_parse(const char *text, struct hosts *out);
/* A host file: a machine a line, "a", "a:2" or "a slots=2"; # begins a comment. `text` ends
 * with a NUL. */
MUST_CHECK enum status hosts_parse_file(const char *text, struct hosts *out);
/* Slurm's two variables: machines, and tasks of each. */
MUST_CHECK enum status hosts_parse_slurm(const char *nodes, const char *tasks,
                                         struct hosts *out);
void hosts_release(struct hosts *hosts);

/* Ranks that fit: the sum of slots, one where none is said. */
int hosts_room(const struct hosts *hosts);
/* Deals `ranks` to the machines, one each in turn, until all are dealt; none gets more than its
 * slots. 4 on a,b: 2 2; 4 on a,b:1: 3 1. Refused if they do not fit. */
MUST_CHECK enum status hosts_assign(struct hosts *hosts, int ranks);

/* Slurm's counts. */
struct task_counts {
    int tasks[HOSTS_MAX];
    int n_nodes, n_tasks; /* how many nodes; sum of tasks */
};
MUST_CHECK enum status task_counts_parse(const char *text, struct task_counts *out);

/* Digits alone, from 0 to `most`. */
bool hosts_whole_number(const char *text, size_t length, int most, int *out);

#endif /* TRANSPORT_HOSTS_H */
