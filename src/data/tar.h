/* SPDX-License-Identifier: MIT */
/* tar.h - the files of a tar archive, without their folders. Private to data/.
 *
 * Blocks of 512 bytes: a header with name, size, kind and checksum, then the contents, padded;
 * two blocks of zeros end it. Regular files are read; folders, remarks and hidden files are
 * passed over, links and devices refused. Nothing in an archive is trusted.
 */
#ifndef DATA_TAR_H
#define DATA_TAR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Called for each file; `name` is the last part of its path and good as a file's name. */
typedef enum status tar_take(void *arg, const char *name, const uint8_t *data, size_t length);

/* Walks an archive in memory; `path` is named in messages. Ends where `take` fails. */
MUST_CHECK enum status tar_read(const char *path, const uint8_t *bytes, size_t length,
                                tar_take *take, void *arg);

/* Writes the files of an archive that is packed with gzip to `folder`. */
MUST_CHECK enum status tar_unpack(const char *path, const char *folder);

#endif /* DATA_TAR_H */
