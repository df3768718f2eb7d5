/* SPDX-License-Identifier: MIT */
/* start_test.c */
#include "base/test.h"
#include "fed/start.h"

static void test_start_may_be_repeated(void)
{
    CHECK_OK(fed_start());
    CHECK_OK(fed_start());
}

const struct test tests[] = {
    { .name = "start may be repeated", .run = test_start_may_be_repeated },
    { 0 },
};
