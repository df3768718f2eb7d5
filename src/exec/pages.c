/* SPDX-License-Identifier: MIT */
/* pages.c - giving memory back by madvise.
 *
 * A mapping that ranks share loses its pages by MADV_REMOVE, for all of them; a private one knows
 * MADV_DONTNEED alone. A system that can do neither keeps the memory, and nothing else changes.
 */
#include "exec/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* The whole pages inside; returns their bytes. */
static size_t whole_pages(void *data, size_t bytes, void **out)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = ((uintptr_t)data + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)data + bytes) / page * page;

    *out = (char *)data + (begin - (uintptr_t)data);
    return end > begin ? end - begin : 0;
}

void pages_release(void *data, size_t bytes)
{
    void *begin;
    const size_t whole = whole_pages(data, bytes, &begin);

    if (whole > 0 && madvise(begin, whole, MADV_REMOVE) != 0)
        (void)madvise(begin, whole, MADV_DONTNEED);
}

void pages_keep_small(void *data, size_t bytes)
{
    void *begin;
    const size_t whole = whole_pages(data, bytes, &begin);

    if (whole > 0)
        (void)madvise(begin, whole, MADV_NOHUGEPAGE); /* a wish */
}
