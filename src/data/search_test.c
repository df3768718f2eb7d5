#include "base/test.h"
static void t(void){}
const struct test tests[] = {{.name="x",.run=t},{0}};
