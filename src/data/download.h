/* SPDX-License-Identifier: MIT */
/* download.h - one file from the web into a file, checked. Private to data/. */
#ifndef DATA_DOWNLOAD_H
#define DATA_DOWNLOAD_H

#include "base/status.h"
#include "data/fetch.h"

/* Gets address + file->name, which must have the size and checksum that `file` says, to `path`.
 * STATUS_UNSUPPORTED without libcurl; STATUS_IO if the network or the server refuses. */
MUST_CHECK enum status download_file(const char *address, const struct dataset_file *file,
                                     const char *path, fetch_progress *progress, void *arg);

#endif /* DATA_DOWNLOAD_H */
