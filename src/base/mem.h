/* SPDX-License-Identifier: MIT */
/* mem.h - the only way to the heap.
 *
 * Memory is zeroed and aligned to 64 bytes. Allocations are counted, and one
 * can be made to fail, so that tests can show what happens then.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MEM_ALIGN = 64 };

/* count * size zeroed bytes; STATUS_NO_MEMORY on overflow or refusal. Zero bytes give a
 * pointer that may be freed. *out is written only on success; out is a pointer to a pointer. */
MUST_CHECK enum status mem_alloc(size_t count, size_t size, void *out);

/* Grows (or makes, if *block is NULL) an array; new bytes are zero. *block is replaced on
 * success only. */
MUST_CHECK enum status mem_grow(void *block, size_t old_count, size_t new_count, size_t size);

void mem_free(void *block); /* NULL is allowed */

MUST_CHECK enum status mem_strdup(const char *text, char **out);

/* How many allocations this process has made so far (all threads). */
uint64_t mem_count(void);
/* The nth allocation from now fails (1 = the next); 0 turns that off. */
void mem_fail_at(uint64_t nth);

#ifdef __cplusplus
}
#endif

#endif /* BASE_MEM_H */
