/* SPDX-License-Identifier: MIT */
/* safetensors.h - named tensors in a file, in the public safetensors format.
 *
 * Eight bytes of header length (little endian), a JSON header that maps names to
 * {"dtype","shape","data_offsets"} and may hold "__metadata__" (text to text), then the data.
 * A reader trusts nothing: lengths, offsets, overlaps, gaps, shapes against byte counts, UTF-8
 * names, duplicate names and trailing bytes are checked before anything is used.
 */
#ifndef TENSOR_SAFETENSORS_H
#define TENSOR_SAFETENSORS_H

#include <stddef.h>

#include "base/status.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

struct safetensors_entry {
    const char *name;
    enum dtype dtype;
    struct shape shape;
    const void *data; /* row-major; borrowed. As read, not aligned to its elements: memcpy it */
};

struct safetensors_pair { /* metadata */
    const char *key, *text;
};

/* The same arguments give the same bytes. Names and text are UTF-8; a name given twice, the
 * name
 * "__metadata__" and impossible shapes are STATUS_USAGE.
 * Writes to `path` by way of a temporary file (base/file.h); entries are written in the order
 * given, data aligned to 64 bytes from the file's start by padding the header with spaces.
 * out_sha256, if not NULL, receives the hexadecimal SHA-256 of the whole file. */
MUST_CHECK enum status safetensors_write(const char *path,
                                         const struct safetensors_entry *entries,
                                         size_t n_entries,
                                         const struct safetensors_pair *metadata,
                                         size_t n_metadata, char out_sha256[65]);

/* The same where the data of an entry comes when its turn is: `read` is called for each, in order, and what
 * it gives is used before the next call. The entries' own data is not looked at. */
struct safetensors_source {
    MUST_CHECK enum status (*read)(void *arg, const struct safetensors_entry *entry,
                                   const void **out_data);
    void *arg;
};
MUST_CHECK enum status
safetensors_write_from(const char *path, const struct safetensors_entry *entries,
                       size_t n_entries, const struct safetensors_pair *metadata,
                       size_t n_metadata, const struct safetensors_source *source,
                       char out_sha256[65]);

struct safetensors; /* an open file */

/* STATUS_CORRUPT for what breaks the format, STATUS_UNSUPPORTED for an element type or a rank
 * that tutti has not; the text names the path and the tensor. */
MUST_CHECK enum status safetensors_open(const char *path, struct safetensors **out);
/* The same from memory that stays valid while the object lives (for tests and fuzzing). */
MUST_CHECK enum status safetensors_parse(const void *bytes, size_t length,
                                         struct safetensors **out);
void safetensors_close(struct safetensors *file); /* NULL is allowed */

/* Entries come in the header's order and live as long as the file; find gives NULL if absent.
 */
size_t safetensors_count(const struct safetensors *file);
const struct safetensors_entry *safetensors_at(const struct safetensors *file, size_t i);
const struct safetensors_entry *safetensors_find(const struct safetensors *file,
                                                 const char *name);
const char *safetensors_metadata(const struct safetensors *file, const char *key); /* or NULL */

#endif /* TENSOR_SAFETENSORS_H */
