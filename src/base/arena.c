/* SPDX-License-Identifier: MIT */
/* arena.c - chunks in a list, filled from the front.
 *
 * An allocation that would waste much of a chunk gets one of its own, so the
 * chunk being filled stays in use. Under AddressSanitizer what was not handed
 * out is poisoned, and a gap separates neighbours.
 */
#include "base/arena.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#endif

#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
enum { GAP_BYTES = MEM_ALIGN };
#else
#define ASAN_POISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(start, bytes) ((void)(start), (void)(bytes))
enum { GAP_BYTES = 0 };
#endif

enum { CHUNK_BYTES = 64 * 1024, HEADER_BYTES = MEM_ALIGN };

struct chunk {
    struct chunk *next;
    size_t used, bytes; /* of the bytes after the header */
};

struct arena {
    struct chunk *filling; /* first of the list; NULL before the first allocation */
};

_Static_assert(sizeof(struct chunk) <= HEADER_BYTES, "the header keeps the data aligned");

static char *chunk_data(struct chunk *chunk)
{
    return (char *)chunk + HEADER_BYTES;
}

static enum status add_chunk(struct arena *arena, size_t bytes, bool as_filling)
{
    struct chunk *chunk;

    TRY(mem_alloc(HEADER_BYTES + bytes, 1, &chunk));
    chunk->bytes = bytes;
    ASAN_POISON_MEMORY_REGION(chunk_data(chunk), bytes);
    if (as_filling || !arena->filling) {
        chunk->next = arena->filling;
        arena->filling = chunk;
    } else {
        chunk->next = arena->filling->next;
        arena->filling->next = chunk;
    }
    return STATUS_OK;
}

static void *take(struct chunk *chunk, size_t bytes, size_t slot)
{
    char *start = chunk_data(chunk) + chunk->used;

    chunk->used += slot;
    ASAN_UNPOISON_MEMORY_REGION(start, bytes);
    return start; /* zero since mem_alloc: an arena hands out each byte once */
}

enum status arena_create(struct arena **out)
{
    return mem_alloc(1, sizeof **out, out);
}

void arena_destroy(struct arena *arena)
{
    if (!arena)
        return;
    for (struct chunk *chunk = arena->filling, *next; chunk; chunk = next) {
        next = chunk->next;
        mem_free(chunk);
    }
    mem_free(arena);
}

void *arena_alloc(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX - CHUNK_BYTES) {
        (void)FAIL(STATUS_NO_MEMORY, "%zu elements of %zu bytes are more than memory can hold",
                   count, size);
        return NULL;
    }

    const size_t wanted = bytes > 0 ? bytes : 1; /* so that pointers differ */
    const size_t slot = (wanted + GAP_BYTES + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
    struct chunk *chunk = arena->filling;
    if (chunk && slot <= chunk->bytes - chunk->used)
        return take(chunk, bytes, slot);

    if (slot > CHUNK_BYTES / 4) {
        if (add_chunk(arena, slot, false) != STATUS_OK)
            return NULL;
        chunk = chunk ? chunk->next : arena->filling;
        return take(chunk, bytes, slot);
    }
    if (add_chunk(arena, CHUNK_BYTES, true) != STATUS_OK)
        return NULL;
    return take(arena->filling, bytes, slot);
}

char *arena_strdup(struct arena *arena, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    char *copy = arena_alloc(arena, bytes, 1);

    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args, again;

    va_start(args, format);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    BUG_ON(length < 0); /* only for a broken format or a text of 2 GiB */

    char *text = arena_alloc(arena, (size_t)length + 1, 1);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}
