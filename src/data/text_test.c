/* SPDX-License-Identifier: MIT */
#include "base/test.h"
const struct test tests[] = { { 0 } };
