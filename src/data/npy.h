/* SPDX-License-Identifier: MIT */
/* npy.h - one array in NumPy's file format, versions 1.0 to 3.0. Private to data/.
 *
 * "\x93NUMPY", the version in two bytes, the length of the header (2 bytes little-endian, 4
 * from version 2.0 on), the header as text of a Python dictionary with descr, fortran_order
 * and shape, then the elements. Nothing in a file is trusted: after success all that struct
 * npy says is so.
 */
#ifndef DATA_NPY_H
#define DATA_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"
#include "tensor/shape.h"

struct npy {
    struct shape shape; /* rank 0 to SHAPE_MAX; the last dimension fastest */
    char kind;          /* 'u' and 'i' integers, 'f' floats, 'b' truth values */
    int size;           /* bytes of an element */
    bool big_endian;
    const uint8_t *data; /* all elements; aligned to nothing */
    struct file_map map; /* of npy_open */
};

MUST_CHECK enum status npy_open(const char *folder, const char *name, struct npy *out);
/* The same from memory that stays valid while the object is used. `path` is named in
 * messages. */
MUST_CHECK enum status npy_parse(const char *path, const uint8_t *bytes, size_t length,
                                 struct npy *out);
void npy_release(struct npy *npy);

/* "float32", "int64", ... as NumPy calls the type; returns `text`. */
enum { NPY_TYPE_TEXT = 16 };
const char *npy_type(const struct npy *npy, char text[NPY_TYPE_TEXT]);
/* Element i of an array of kind 'u' or 'i'; what is above INT64_MAX is INT64_MAX. */
int64_t npy_integer(const struct npy *npy, int64_t i);

/* Begins a file of version 1.0: what must follow is the elements. `descr` is such as "|u1". */
MUST_CHECK enum status npy_write_header(struct file_writer *writer, const char *descr,
                                        const struct shape *shape);

#endif /* DATA_NPY_H */
