/* SPDX-License-Identifier: MIT */
/* pages_test.c - what is released is gone, for all who share it; what lies beside it stays. */
#include "exec/pages.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/test.h"

enum { PAGES = 8 };

static int resident(void *data, size_t bytes)
{
    unsigned char is_there[PAGES];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int count = 0;

    CHECK(mincore(data, bytes, is_there) == 0);
    for (size_t i = 0; i < bytes / page; i++)
        count += is_there[i] & 1;
    return count;
}

static void check_release(int kind)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = PAGES * page;
    char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);

    CHECK(data != MAP_FAILED);
    pages_keep_small(data, bytes);
    memset(data, 7, bytes);
    CHECK_INT(PAGES, resident(data, bytes));
    /* From the middle of the second page to that of the sixth: three whole ones. */
    pages_release(data + page + page / 2, 4 * page);
    CHECK_INT(PAGES - 3, resident(data, bytes));
    for (size_t i = 0; i < bytes; i++)
        CHECK_INT(i / page >= 2 && i / page < 5 ? 0 : 7, data[i]);
    pages_release(data + 1, page); /* no whole one */
    CHECK_INT(7, data[1]);
    pages_release(data, 0);
    CHECK_INT(7, data[0]);
    munmap(data, bytes);
}

static void test_whole_pages_are_released(void)
{
    check_release(MAP_PRIVATE);
    check_release(MAP_SHARED);
}

/* A second mapping of the same memory reads zeros. */
static void test_what_is_shared_is_released_for_all(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile char *data =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(data != MAP_FAILED);
    data[0] = data[page] = 7;
    char *other = mremap((void *)data, 0, 2 * page, MREMAP_MAYMOVE); /* the same memory */
    CHECK(other != MAP_FAILED);
    CHECK_INT(7, other[0]);
    pages_release((void *)data, page);
    CHECK_INT(0, other[0]);
    CHECK_INT(7, other[page]);
    munmap((void *)data, 2 * page);
    munmap(other, 2 * page);
}

const struct test tests[] = {
    { .name = "whole pages are released", .run = test_whole_pages_are_released },
    { .name = "what is shared is released for all",
      .run = test_what_is_shared_is_released_for_all },
    { 0 },
};
