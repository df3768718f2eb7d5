/* SPDX-License-Identifier: MIT */
/* mem.c - counted allocations, one of which can be made to fail. */
#include "base/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t attempts; /* allocations asked for, the refused ones included */
static _Atomic uint64_t fail_at;  /* the value of `attempts` that fails; 0 for none */

static enum status allocate(size_t count, size_t size, void **out, size_t *out_bytes)
{
    const uint64_t attempt = atomic_fetch_add_explicit(&attempts, 1, memory_order_relaxed) + 1;
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX)
        return FAIL(STATUS_NO_MEMORY, "%zu elements of %zu bytes are more than memory can hold",
                    count, size);
    if (attempt == atomic_load_explicit(&fail_at, memory_order_relaxed))
        return FAIL(STATUS_NO_MEMORY, "allocation of %zu bytes made to fail by a test", bytes);

    /* posix_memalign, not aligned_alloc: the size need not be a multiple of the alignment, so
     * that sanitizers see the true end. */
    if (posix_memalign(out, MEM_ALIGN, bytes > 0 ? bytes : 1) != 0)
        return FAIL(STATUS_NO_MEMORY, "no memory for %zu bytes", bytes);
    *out_bytes = bytes;
    return STATUS_OK;
}

enum status mem_alloc(size_t count, size_t size, void *out)
{
    void *block;
    size_t bytes;

    TRY(allocate(count, size, &block, &bytes));
    memset(block, 0, bytes);
    memcpy(out, &block, sizeof block); /* *out has a type of its own, so no void ** access */
    return STATUS_OK;
}

enum status mem_grow(void *block, size_t old_count, size_t new_count, size_t size)
{
    void *old, *grown;
    size_t bytes;

    memcpy(&old, block, sizeof old);
    if (old && new_count <= old_count)
        return STATUS_OK;
    TRY(allocate(new_count, size, &grown, &bytes));

    const size_t kept = old ? old_count * size : 0;
    if (kept > 0)
        memcpy(grown, old, kept);
    memset((char *)grown + kept, 0, bytes - kept);
    free(old);
    memcpy(block, &grown, sizeof grown);
    return STATUS_OK;
}

void mem_free(void *block)
{
    free(block);
}

enum status mem_strdup(const char *text, char **out)
{
    const size_t bytes = strlen(text) + 1;

    TRY(mem_alloc(bytes, 1, out));
    memcpy(*out, text, bytes);
    return STATUS_OK;
}

uint64_t mem_count(void)
{
    return atomic_load_explicit(&attempts, memory_order_relaxed);
}

void mem_fail_at(uint64_t nth)
{
    atomic_store_explicit(&fail_at, nth > 0 ? mem_count() + nth : 0, memory_order_relaxed);
}
