/* SPDX-License-Identifier: MIT */
/* dtype.h - element types. */
#ifndef TENSOR_DTYPE_H
#define TENSOR_DTYPE_H

#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum dtype {
    DTYPE_F32,
    DTYPE_F64,
    DTYPE_BF16,
    DTYPE_F16,
    DTYPE_I32,
    DTYPE_I64,
    DTYPE_U8,
    DTYPE_COUNT
};

size_t dtype_size(enum dtype dtype);
const char *dtype_name(enum dtype dtype);                              /* "f32", ... */
const char *dtype_safetensors(enum dtype dtype);                       /* "F32", ... */
MUST_CHECK enum status dtype_parse(const char *name, enum dtype *out); /* either spelling */

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_DTYPE_H */
