/* SPDX-License-Identifier: MIT */
/* arena.h - memory that is given back all at once.
 *
 * Graphs, plans and parsed documents live in an arena owned by one object.
 * Threads: one thread at a time.
 */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "base/status.h"

struct arena;

MUST_CHECK enum status arena_create(struct arena **out);
void arena_destroy(struct arena *arena); /* NULL is allowed */

/* Zeroed, aligned to 64 bytes; NULL when memory is refused (the failure text is set). */
void *arena_alloc(struct arena *arena, size_t count, size_t size);
char *arena_strdup(struct arena *arena, const char *text);
char *arena_printf(struct arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);

#endif /* BASE_ARENA_H */
