/* SPDX-License-Identifier: MIT */
/* dtype_test.c - names and sizes of the element types. */
#include "tensor/dtype.h"

#include "base/test.h"

static void test_names_read_back(void)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        enum dtype dtype = DTYPE_COUNT;
        CHECK_OK(dtype_parse(dtype_name((enum dtype)i), &dtype));
        CHECK_INT(i, dtype);
        dtype = DTYPE_COUNT;
        CHECK_OK(dtype_parse(dtype_safetensors((enum dtype)i), &dtype));
        CHECK_INT(i, dtype);
    }
}

static void test_sizes_and_names(void)
{
    CHECK_INT(4, dtype_size(DTYPE_F32));
    CHECK_INT(8, dtype_size(DTYPE_F64));
    CHECK_INT(2, dtype_size(DTYPE_BF16));
    CHECK_INT(2, dtype_size(DTYPE_F16));
    CHECK_INT(4, dtype_size(DTYPE_I32));
    CHECK_INT(8, dtype_size(DTYPE_I64));
    CHECK_INT(1, dtype_size(DTYPE_U8));
    CHECK_TEXT("bf16", dtype_name(DTYPE_BF16));
    CHECK_TEXT("BF16", dtype_safetensors(DTYPE_BF16));
    CHECK_TEXT("I64", dtype_safetensors(DTYPE_I64));
}

static void test_unknown_names_are_refused(void)
{
    static const char *const names[] = { "", "f", "f322", "Bf16", "float", " f32" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        enum dtype dtype = DTYPE_U8;
        CHECK_STATUS(STATUS_UNSUPPORTED, dtype_parse(names[i], &dtype));
        CHECK_MESSAGE(names[i]);
        CHECK_INT(DTYPE_U8, dtype);
    }
}

const struct test tests[] = {
    { .name = "names read back", .run = test_names_read_back },
    { .name = "sizes and names", .run = test_sizes_and_names },
    { .name = "unknown names are refused", .run = test_unknown_names_are_refused },
    { 0 },
};
