/* SPDX-License-Identifier: MIT */
/* class_map.h - the classes of data as classes of a run, by name. */
#ifndef DATA_CLASS_MAP_H
#define DATA_CLASS_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* The classes of a run in the order of its answers. Borrowed. A run whose classes have no names
 * has their numbers in place of them, "0", "1" and so on. */
struct class_list {
    const char *const *name;
    int count;
};

/* The classes of a data set. */
struct class_source {
    const char *path;        /* for messages */
    const char *const *name; /* NULL: they have none */
    int count;
    bool are_numbers; /* labels in the files are numbers; else they are the names */
    bool warns; /* classes without names that become classes with names are worth a line */
};

/* Writes to map[i], i < own->count, the run's number of class i: that of the same name. Labels
 * that are numbers without names are positions in the run's list, also where the run's classes
 * have no names. STATUS_MISMATCH names the first class that the run has not. */
MUST_CHECK enum status class_map(const struct class_source *own, const struct class_list *run,
                                 int32_t *map);

#endif /* DATA_CLASS_MAP_H */
