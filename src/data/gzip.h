/* SPDX-License-Identifier: MIT */
/* gzip.h - unpacking a gzip file that lies in memory. Private to data/.
 *
 * `path` is for messages only. A build without zlib refuses with STATUS_UNSUPPORTED.
 */
#ifndef DATA_GZIP_H
#define DATA_GZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A packed byte can unpack to this many at most: 2 bits for a match of 258 bytes. */
enum { GZIP_LARGEST_RATIO = 1032 };

bool gzip_has_magic(const uint8_t *bytes, size_t length);

/* What the file says it unpacks to, by its last four bytes; 0 if it is too short. */
size_t gzip_size(const uint8_t *bytes, size_t length);

/* The first bytes: `count` of them, or fewer if there are no more. */
MUST_CHECK enum status gzip_peek(const char *path, const uint8_t *bytes, size_t length,
                                 void *out, size_t count, size_t *out_count);

/* All of a file that must unpack to exactly `count` bytes; checks its checksum. */
MUST_CHECK enum status gzip_unpack(const char *path, const uint8_t *bytes, size_t length,
                                   void *out, size_t count);

/* All of a file, however much that is; the caller frees *out with mem_free. */
MUST_CHECK enum status gzip_unpack_all(const char *path, const uint8_t *bytes, size_t length,
                                       char **out, size_t *out_count);

#endif /* DATA_GZIP_H */
