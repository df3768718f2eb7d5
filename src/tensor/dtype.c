/* SPDX-License-Identifier: MIT */
/* dtype.c - sizes and names of the element types. */
#include "tensor/dtype.h"

#include <string.h>

static const struct {
    const char *name, *safetensors;
    size_t size;
} table[DTYPE_COUNT] = {
    [DTYPE_F32] = { "f32", "F32", 4 },    [DTYPE_F64] = { "f64", "F64", 8 },
    [DTYPE_BF16] = { "bf16", "BF16", 2 }, [DTYPE_F16] = { "f16", "F16", 2 },
    [DTYPE_I32] = { "i32", "I32", 4 },    [DTYPE_I64] = { "i64", "I64", 8 },
    [DTYPE_U8] = { "u8", "U8", 1 },
};

size_t dtype_size(enum dtype dtype)
{
    BUG_ON((unsigned)dtype >= DTYPE_COUNT);
    return table[dtype].size;
}

const char *dtype_name(enum dtype dtype)
{
    BUG_ON((unsigned)dtype >= DTYPE_COUNT);
    return table[dtype].name;
}

const char *dtype_safetensors(enum dtype dtype)
{
    BUG_ON((unsigned)dtype >= DTYPE_COUNT);
    return table[dtype].safetensors;
}

enum status dtype_parse(const char *name, enum dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, table[i].name) == 0 || strcmp(name, table[i].safetensors) == 0) {
            *out = (enum dtype)i;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_UNSUPPORTED, "unknown element type %.32s", name);
}
