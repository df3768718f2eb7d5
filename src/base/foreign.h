/* SPDX-License-Identifier: MIT */
/* foreign.h - files that other programs wrote and tutti does not read, known by how they begin.
 *
 * For messages alone: what such a file is, so that its owner knows what to convert.
 *
 * Threads: any.
 */
#ifndef BASE_FOREIGN_H
#define BASE_FOREIGN_H

#include <stddef.h>

enum { FOREIGN_BYTES = 512 }; /* that are looked at */

/* "a PyTorch file", "an ONNX model" ...; NULL: none that is known. */
const char *foreign_kind(const void *bytes, size_t length);
/* The same of a file; NULL also if it cannot be read, or is a folder. */
const char *foreign_kind_of_file(const char *path);

#endif /* BASE_FOREIGN_H */
