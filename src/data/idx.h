/* SPDX-License-Identifier: MIT */
/* idx.h - one file in the IDX format of the MNIST data sets. Private to data/.
 *
 * Two zero bytes, the element type, the number of dimensions; the dimensions as 32-bit
 * big-endian numbers; then the elements, the last dimension fastest. Read here are labels
 * (one dimension) and images (count, rows, columns) of unsigned bytes. Nothing in a
 * file is trusted: after success all that struct idx says is so.
 */
#ifndef DATA_IDX_H
#define DATA_IDX_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

enum idx_kind { IDX_LABELS = 1, IDX_IMAGES = 3 }; /* the number of dimensions */

struct idx {
    int64_t dim[IDX_IMAGES]; /* as many as the kind has; all above 0 */
    const uint8_t *data;     /* their product in bytes */
    const uint8_t *file;     /* the whole file, unpacked: header, then data */
    size_t length;
    uint8_t *unpacked;   /* owned; NULL if the file was plain */
    struct file_map map; /* of a plain file that idx_open mapped */
};

/* Opens folder/name or folder/name.gz, whichever is there; the plain one is mapped. */
MUST_CHECK enum status idx_open(const char *folder, const char *name, enum idx_kind kind,
                                struct idx *out);

/* The same from memory that stays valid while the object is used. `path` is named in messages
 * and says by its ending .gz whether the bytes are packed. */
MUST_CHECK enum status idx_parse(const char *path, const uint8_t *bytes, size_t length,
                                 enum idx_kind kind, struct idx *out);
void idx_release(struct idx *idx);

#endif /* DATA_IDX_H */
