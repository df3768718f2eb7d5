/* SPDX-License-Identifier: MIT */
/* store.c - rename(2) replaces an empty folder but no full one, so nothing is destroyed. */
#include "data/store.h"

#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/search.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void release(struct store *store)
{
    mem_free(store->temporary);
    mem_free(store->target);
    *store = (struct store){ 0 };
}

/* The place could not be taken, for the reason in errno. */
static enum status fail_to_place(const char *target)
{
    if (errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR)
        return FAIL(STATUS_USAGE, "%s: is there already; remove it first", target);
    return FAIL(STATUS_IO, "cannot make %s: %s", target, strerror(errno));
}

/* Sets both paths: root/NAME, and a hidden name beside it that no search looks at. */
static enum status name_folders(struct store *store, const char *root, const char *name)
{
    char hidden[128];

    snprintf(hidden, sizeof hidden, ".%s.tmp-%ld", name, (long)getpid());
    TRY(file_join(root, name, &store->target));
    return file_join(root, hidden, &store->temporary);
}

/* Makes the empty folder that is to be filled. */
static enum status prepare(struct store *store)
{
    if (rmdir(store->target) != 0 && errno != ENOENT)
        return fail_to_place(store->target);
    TRY(file_remove_tree(store->temporary)); /* left by a killed process of the same number */
    return file_make_folder(store->temporary);
}

enum status store_begin(struct store *store, const char *root, const char *name)
{
    char *usual = NULL;

    *store = (struct store){ 0 };
    TRY(search_check_name(name));
    if (!root)
        TRY(search_root(&usual));
    enum status status = name_folders(store, root ? root : usual, name);
    if (status == STATUS_OK)
        status = prepare(store);
    mem_free(usual);
    if (status != STATUS_OK)
        release(store);
    return status;
}

enum status store_commit(struct store *store, char **out_folder)
{
    if (rename(store->temporary, store->target) != 0) {
        const enum status status = fail_to_place(store->target);
        store_cancel(store);
        return status;
    }
    if (out_folder) {
        *out_folder = store->target;
        store->target = NULL;
    }
    release(store);
    return STATUS_OK;
}

void store_cancel(struct store *store)
{
    char text[1024]; /* of the failure that led here: that one is to be told */

    snprintf(text, sizeof text, "%s", status_message());
    if (file_remove_tree(store->temporary) != STATUS_OK) {
        log_line(LOG_WARNING, "%s", status_message());
        status_set(STATUS_IO, text);
    }
    release(store);
}
