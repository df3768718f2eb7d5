/* SPDX-License-Identifier: MIT */
/* search.h - where data sets are kept. */
#ifndef DATA_SEARCH_H
#define DATA_SEARCH_H

#include <stddef.h>

#include "base/status.h"

/* The folder of data set `name`: the first of $TUTTI_DATA/NAME, ~/.local/share/tutti/NAME and
 * /usr/share/datasets/NAME that holds files of a known format, a row's other names being tried
 * in each place too; a path is the folder itself. Caller frees *out with mem_free. STATUS_NOT_FOUND
 * says where was looked and what to do, or what name may have been meant. */
MUST_CHECK enum status search_find(const char *name, char **out);

/* A data set that lies in one of these places and has a name that no row of the table has. */
struct search_own {
    char *name, *folder;
    const char *format; /* of its files */
};
/* All of them, by name, as search_find finds them. Caller frees them with search_release. */
MUST_CHECK enum status search_list(struct search_own **out, size_t *out_count);
void search_release(struct search_own *list, size_t count);

/* The folder that data sets are fetched and imported into: $TUTTI_DATA, else
 * ~/.local/share/tutti. Caller frees *out with mem_free. */
MUST_CHECK enum status search_root(char **out);

/* Refuses what would be no good name of a folder: letters, digits, '-', '_' and '.', the first
 * no '.', at most 64. */
MUST_CHECK enum status search_check_name(const char *name);

/* Refuses a name that no data set has: STATUS_NOT_FOUND, with what may have been meant. */
enum status search_fail_unknown(const char *name);

#endif /* DATA_SEARCH_H */
