/* SPDX-License-Identifier: MIT */
/* region.c - the shared memory of a job: its layout, its heap, its failure. */
#include "transport/region.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

enum { MANY_RANKS = 32, RING_BYTES = 256 << 10, RING_BYTES_MANY = 64 << 10 };

static const size_t smallest_heap = (size_t)64 << 20;

static size_t round_up(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static int usable_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static size_t ring_stride(const struct region *region)
{
    return sizeof(struct ring) + region->ring_bytes;
}

static size_t rings_start(const struct region *region)
{
    return sizeof(struct region) + (size_t)region->size * sizeof(struct rank_slot);
}

struct ring *region_ring(struct region *region, int from, int to)
{
    const size_t at = (size_t)from * (size_t)region->size + (size_t)to;

    return (struct ring *)((char *)region + rings_start(region) + at * ring_stride(region));
}

enum status region_create(int size, size_t bytes, struct region **out)
{
    const bool may_shrink = bytes == 0;
    struct region layout = { .size = size,
                             .ring_bytes = size > MANY_RANKS ? RING_BYTES_MANY : RING_BYTES };
    void *memory;
    size_t total;

    if (size < 1 || size > REGION_RANKS)
        return FAIL(STATUS_USAGE, "%d ranks are not between 1 and %d", size, REGION_RANKS);
    if (bytes == 0)
        bytes = (size_t)sysconf(_SC_PHYS_PAGES) / 2 * (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX / 4)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes of shared memory are too many", bytes);
    layout.heap_start = round_up(
        rings_start(&layout) + (size_t)size * (size_t)size * ring_stride(&layout), REGION_PAGE);

    for (;;) {
        total = layout.heap_start + round_up(bytes, REGION_PAGE);
        memory = mmap(NULL, total, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory != MAP_FAILED)
            break;
        if (!may_shrink || bytes / 2 < smallest_heap)
            return FAIL(STATUS_NO_MEMORY, "cannot map %zu bytes of shared memory: %s", total,
                        strerror(errno));
        bytes /= 2; /* an address space limit, or memory is not overcommitted */
    }
    (void)madvise(memory, total, MADV_HUGEPAGE); /* a wish: many kernels have it off for this */

    struct region *region = memory;
    region->bytes = total;
    region->heap_start = layout.heap_start;
    region->ring_bytes = layout.ring_bytes;
    region->size = size;
    region->cores = usable_cores();
    *out = region;
    return STATUS_OK;
}

void region_destroy(struct region *region)
{
    if (region)
        munmap(region, region->bytes);
}

enum status region_attach(struct region *region, int rank, const char *name,
                          struct transport **out)
{
    struct transport *transport;

    TRY(mem_alloc(1, sizeof(*transport), &transport));
    transport->region = region;
    transport->name = name;
    transport->rank = rank;
    transport->size = region->size;
    transport->heap_used = region->heap_start;
    transport_set_waiters(transport, region->size);

    const enum status status = message_init(transport);
    if (status != STATUS_OK) {
        mem_free(transport);
        return status;
    }
    *out = transport;
    return STATUS_OK;
}

void region_detach(struct transport *transport)
{
    if (!transport)
        return;
    message_release(transport);
    mem_free(transport);
}

/* Failure ------------------------------------------------------------------------------ */

/* Whoever sleeps on a bell looks again at once; sleepers on other counters within a slice. */
static void ring_bells(struct region *region)
{
    for (int rank = 0; rank < region->size; rank++)
        transport_raise(&region->slots[rank].bell, 1);
}

void region_fail(struct region *region, int rank, const char *text)
{
    int expected = FAILED_NO;

    if (!atomic_compare_exchange_strong(&region->failed, &expected, FAILED_WRITING))
        return;
    region->failed_rank = rank;
    (void)snprintf(region->failed_text, sizeof(region->failed_text), "%s", text);
    atomic_store_explicit(&region->failed, FAILED_YES, memory_order_release);
    ring_bells(region);
}

bool region_has_failed(const struct region *region)
{
    return atomic_load_explicit(&region->failed, memory_order_acquire) != FAILED_NO;
}

const char *region_failure(struct region *region)
{
    /* The writer needs a moment; if it was killed in that moment, its text is lost. */
    for (int i = 0; i < 20; i++) {
        if (atomic_load_explicit(&region->failed, memory_order_acquire) == FAILED_YES)
            return region->failed_text;
        clock_sleep_ms(1);
    }
    return "a rank was lost while it reported a failure";
}

void region_end(struct region *region, int rank, enum status status, const char *text)
{
    struct rank_slot *slot = &region->slots[rank];

    slot->status = status;
    (void)snprintf(slot->text, sizeof(slot->text), "%s", text);
    atomic_store_explicit(&slot->state, RANK_ENDED, memory_order_release);
    ring_bells(region);
}

bool region_has_ended(const struct region *region, int rank)
{
    return atomic_load_explicit(&region->slots[rank].state, memory_order_acquire) == RANK_ENDED;
}

/* Public functions --------------------------------------------------------------------- */

const char *transport_name(const struct transport *transport)
{
    return transport->name;
}

int transport_rank(const struct transport *transport)
{
    return transport->rank;
}

int transport_size(const struct transport *transport)
{
    return transport->size;
}

uint32_t transport_new_tags(struct transport *transport, uint32_t count)
{
    const uint32_t first = transport->next_tag;

    transport->next_tag += count;
    return first;
}

bool transport_shares_memory(const struct transport *transport)
{
    (void)transport;
    return true;
}

bool transport_is_shared(const struct transport *transport, const void *data, size_t bytes)
{
    const uintptr_t at = (uintptr_t)data, start = (uintptr_t)transport->region;

    return at >= start && at - start <= transport->region->bytes &&
           bytes <= transport->region->bytes - (at - start);
}

/* Every rank works out the address by itself: all make the same calls. A rank is at most one
 * call ahead of another, so two remembered sizes are enough to compare. */
enum status transport_share(struct transport *transport, size_t bytes, void **out)
{
    struct region *region = transport->region;
    const uint32_t call = transport->shares++;

    region->slots[transport->rank].share_bytes[call % 2] = bytes;
    transport_raise(&region->share_joined, 1);
    TRY(transport_wait(transport, &region->share_joined, (call + 1) * (uint32_t)transport->size,
                       "share"));
    for (int rank = 0; rank < transport->size; rank++) {
        const uint64_t theirs = region->slots[rank].share_bytes[call % 2];
        const uint64_t first = region->slots[0].share_bytes[call % 2];
        if (theirs != first)
            return FAIL(STATUS_MISMATCH,
                        "rank %d shares %llu bytes while rank 0 shares %llu bytes", rank,
                        (unsigned long long)theirs, (unsigned long long)first);
    }
    const size_t room = region->bytes - transport->heap_used;
    if (bytes > room)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes of shared memory asked for, %zu left", bytes,
                    room);
    *out = (char *)region + transport->heap_used;
    transport->heap_used += round_up(bytes, REGION_PAGE);
    return STATUS_OK;
}

void transport_note(struct transport *transport, uint64_t step, const char *what)
{
    struct rank_slot *slot = &transport->region->slots[transport->rank];

    atomic_store_explicit(&slot->step, step, memory_order_relaxed);
    atomic_store_explicit(&slot->what, what, memory_order_release);
}

void transport_abort(struct transport *transport, const char *text)
{
    region_fail(transport->region, transport->rank, text);
}

enum status transport_check(struct transport *transport)
{
    if (!region_has_failed(transport->region))
        return STATUS_OK;
    return FAIL(STATUS_PEER_LOST, "%s", region_failure(transport->region));
}
