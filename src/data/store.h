/* SPDX-License-Identifier: MIT */
/* store.h - a data set's folder, put in place as a whole. Private to data/.
 *
 * begin makes an empty folder beside the place, the caller fills it, commit renames it. One of
 * commit and cancel ends it; commit cancels on failure.
 */
#ifndef DATA_STORE_H
#define DATA_STORE_H

#include "base/status.h"

struct store {
    char *target;
    char *temporary; /* the folder to fill */
};

/* `root` NULL is where this user's data sets go. STATUS_USAGE if root/name holds anything. */
MUST_CHECK enum status store_begin(struct store *store, const char *root, const char *name);
/* *out_folder, unless NULL, is the place; the caller frees it with mem_free. */
MUST_CHECK enum status store_commit(struct store *store, char **out_folder);
void store_cancel(struct store *store);

#endif /* DATA_STORE_H */
