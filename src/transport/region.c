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

enum {
    MANY_RANKS = 32,
    RING_BYTES = 256 << 10,
    RING_BYTES_MANY = 64 << 10,
    RING_SPARE = 64,
    RINGS_MOST = 128 << 20,
    MEMORIES =
        4, /* addresses to share, in sizes of the memory: parts of grids leave much of theirs */
};

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

/* A power of two, with room for two of the messages that shall not wait for their receiver, if all rings together are not
 * too large then. */
static size_t ring_bytes(const struct region_config *config)
{
    const size_t size = (size_t)config->size, most = RINGS_MOST / (size * size);
    size_t bytes = config->size > MANY_RANKS ? RING_BYTES_MANY : RING_BYTES;

    while (bytes / 2 < config->message_bytes + RING_SPARE && bytes * 2 <= most)
        bytes *= 2;
    return bytes;
}

static size_t ring_stride(const struct region *region)
{
    return sizeof(struct ring) + region->ring_bytes;
}

static size_t rings_start(const struct region *region)
{
    return sizeof(struct region) + (size_t)region->size * sizeof(struct rank_slot);
}

bool region_holds(const struct region *region, int rank)
{
    return rank >= region->first && rank - region->first < region->size;
}

struct rank_slot *region_slot(struct region *region, int rank)
{
    return &region->slots[rank - region->first];
}

struct ring *region_ring(struct region *region, int from, int to)
{
    const size_t at =
        (size_t)(from - region->first) * (size_t)region->size + (size_t)(to - region->first);

    return (struct ring *)((char *)region + rings_start(region) + at * ring_stride(region));
}

static size_t far_offset(const struct region *region)
{
    const size_t n_rings = (size_t)region->size * (size_t)region->size;

    return round_up(rings_start(region) + n_rings * ring_stride(region), REGION_LINE);
}

static void *map(const struct region_config *config, size_t bytes)
{
    const int flags = (config->is_private ? MAP_PRIVATE : MAP_SHARED) | MAP_NORESERVE |
                      (config->fd < 0 ? MAP_ANONYMOUS : 0) |
                      (config->address ? MAP_FIXED_NOREPLACE : 0);

    if (config->fd >= 0 && ftruncate(config->fd, (off_t)bytes) != 0)
        return MAP_FAILED;
    return mmap(config->address, bytes, PROT_READ | PROT_WRITE, flags, config->fd, 0);
}

enum status region_create_as(const struct region_config *config, struct region **out)
{
    size_t bytes = config->bytes;
    const bool may_shrink = bytes == 0;
    struct region layout = {
        .first = config->first,
        .size = config->size,
        .job_size = config->job_size,
        .cores = usable_cores(),
    };
    void *memory;

    if (config->size < 1 || config->size > REGION_RANKS)
        return FAIL(STATUS_USAGE, "%d ranks are not between 1 and %d", config->size,
                    REGION_RANKS);
    layout.ring_bytes = ring_bytes(config);
    if (bytes == 0)
        bytes = MEMORIES * (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (bytes > SIZE_MAX / 4)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes of shared memory are too many", bytes);
    layout.far_start = far_offset(&layout);
    layout.heap_start = round_up(
        layout.far_start + (size_t)config->job_size * sizeof(struct far_rank), REGION_PAGE);
    for (;;) {
        layout.bytes = layout.heap_start + round_up(bytes, REGION_PAGE);
        memory = map(config, layout.bytes);
        if (memory != MAP_FAILED)
            break;
        if (!may_shrink || bytes / 2 < smallest_heap || errno == EEXIST)
            return FAIL(STATUS_NO_MEMORY, "cannot map %zu bytes of shared memory: %s",
                        layout.bytes, strerror(errno));
        bytes /= 2; /* an address space limit, or memory is not overcommitted */
    }
    /* A wish: often it is granted to private memory alone. */
    (void)madvise(memory, layout.bytes, MADV_HUGEPAGE);

    struct region *region = memory;
    region->bytes = layout.bytes;
    region->far_start = layout.far_start;
    region->heap_start = layout.heap_start;
    region->ring_bytes = layout.ring_bytes;
    region->first = layout.first;
    region->size = layout.size;
    region->job_size = layout.job_size;
    region->cores = layout.cores;
    *out = region;
    return STATUS_OK;
}

enum status region_create_private(size_t bytes, struct region **out)
{
    const struct region_config config = {
        .size = 1, .job_size = 1, .bytes = bytes, .fd = -1, .is_private = true
    };

    return region_create_as(&config, out);
}

enum status region_create(int size, size_t bytes, size_t message_bytes, struct region **out)
{
    const struct region_config config = {
        .size = size,
        .job_size = size,
        .bytes = bytes,
        .message_bytes = message_bytes,
        .fd = -1,
    };

    return region_create_as(&config, out);
}

struct region *region_open(int fd, void *address, size_t bytes)
{
    void *memory = mmap(address, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, fd, 0);

    if (memory == address)
        return memory;
    if (memory != MAP_FAILED) /* a kernel that does not know the flag took it as a wish */
        munmap(memory, bytes);
    return NULL;
}

void region_destroy(struct region *region)
{
    if (region)
        munmap(region, region->bytes);
}

static enum status set_nodes(struct transport *transport, const struct place *place)
{
    const size_t count = (size_t)place->n_nodes + 1;

    TRY(mem_alloc(count, sizeof(int), &transport->node_first));
    memcpy(transport->node_first, place->node_first, count * sizeof(int));
    transport->n_nodes = place->n_nodes;
    transport->size = place->node_first[place->n_nodes];
    transport->node = transport_node_of(transport, place->rank);
    return STATUS_OK;
}

/* A flat rank's memory is its own, like that of a rank on another machine. */
static enum status set_heap(struct transport *transport, bool is_flat)
{
    struct region *region = transport->region;

    transport->heap_bytes = region->bytes - region->heap_start;
    transport->heap = (char *)region + region->heap_start;
    if (!is_flat)
        return STATUS_OK;
    void *memory = mmap(NULL, transport->heap_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "cannot map %zu bytes: %s", transport->heap_bytes,
                    strerror(errno));
    transport->heap = memory;
    transport->owns_heap = true;
    return STATUS_OK;
}

enum status region_attach(struct region *region, const struct place *place,
                          struct transport **out)
{
    struct transport *transport;

    TRY(mem_alloc(1, sizeof(*transport), &transport));
    transport->region = region;
    transport->job = transport;
    transport->name = place->name;
    transport->rank = place->rank;
    transport->link = place->link;
    pthread_mutex_init(&transport->left.lock, NULL);
    enum status status = message_init(transport);
    if (status == STATUS_OK)
        status = set_nodes(transport, place);
    if (status == STATUS_OK)
        status = set_heap(transport, place->is_flat);
    if (status != STATUS_OK) {
        region_detach(transport);
        return status;
    }
    transport_set_waiters(transport, region->size);
    *out = transport;
    return STATUS_OK;
}

void region_detach(struct transport *transport)
{
    if (!transport)
        return;
    request_release(transport);
    message_release(transport);
    pthread_mutex_destroy(&transport->left.lock);
    if (transport->owns_heap)
        munmap(transport->heap, transport->heap_bytes);
    mem_free(transport->node_first);
    mem_free(transport);
}

/* Failure ------------------------------------------------------------------------------ */

/* Whoever sleeps on a bell looks again at once; sleepers on other counters within a slice. */
static void ring_bells(struct region *region)
{
    for (int rank = 0; rank < region->size; rank++)
        transport_raise(&region->slots[rank].bell, 1);
}

static void declare_failed(struct region *region, int rank, const char *text, bool is_loss)
{
    int expected = FAILED_NO;

    if (!atomic_compare_exchange_strong(&region->failed, &expected, FAILED_WRITING))
        return;
    region->failed_rank = rank;
    region->failed_is_loss = is_loss;
    (void)snprintf(region->failed_text, sizeof(region->failed_text), "%s", text);
    atomic_store_explicit(&region->failed, FAILED_YES, memory_order_release);
    ring_bells(region);
}

void region_fail(struct region *region, int rank, const char *text)
{
    declare_failed(region, rank, text, false);
}

void region_lose(struct region *region, int rank, const char *text)
{
    declare_failed(region, rank, text, true);
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

static bool is_stop(enum status status)
{
    return status == STATUS_STOPPED || status == STATUS_PREEMPTED;
}

void region_end(struct region *region, int rank, enum status status, const char *text)
{
    struct rank_slot *slot = region_slot(region, rank);

    slot->status = status;
    (void)snprintf(slot->text, sizeof(slot->text), "%s", text);
    atomic_store_explicit(&slot->state, is_stop(status) ? RANK_STOPPED : RANK_ENDED,
                          memory_order_release);
    ring_bells(region);
}

bool region_give_up(struct region *region, int rank, const char *text)
{
    struct rank_slot *slot = region_slot(region, rank);

    if (!atomic_load_explicit(&slot->expendable, memory_order_acquire))
        return false;
    (void)snprintf(slot->text, sizeof(slot->text), "%s", text);
    atomic_store_explicit(&slot->state, RANK_LOST, memory_order_release);
    ring_bells(region);
    return true;
}

static struct far_rank *far_ranks(const struct region *region)
{
    return (struct far_rank *)((char *)region + region->far_start);
}

void region_end_far(struct region *region, int rank, enum status status)
{
    atomic_store_explicit(&far_ranks(region)[rank].state,
                          is_stop(status) ? RANK_STOPPED : RANK_ENDED, memory_order_release);
    ring_bells(region);
}

void region_lose_far(struct region *region, int rank)
{
    atomic_store_explicit(&far_ranks(region)[rank].state, RANK_LOST, memory_order_release);
    ring_bells(region);
}

static enum rank_state state_of(const struct region *region, int rank)
{
    if (!region_holds(region, rank))
        return atomic_load_explicit(&far_ranks(region)[rank].state, memory_order_acquire);
    return atomic_load_explicit(&region->slots[rank - region->first].state,
                                memory_order_acquire);
}

bool region_has_ended(const struct region *region, int rank)
{
    return state_of(region, rank) != RANK_RUNNING;
}

int region_stopped(const struct region *region)
{
    for (int rank = 0; rank < region->job_size; rank++) {
        if (state_of(region, rank) == RANK_STOPPED)
            return rank;
    }
    return -1;
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

int transport_nodes(const struct transport *transport)
{
    return transport->n_nodes;
}

int transport_node_of(const struct transport *transport, int rank)
{
    int low = 0, high = transport->n_nodes - 1;

    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (transport->node_first[middle] <= rank)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

int transport_node_first(const struct transport *transport, int node)
{
    return transport->node_first[node];
}

int transport_node_size(const struct transport *transport, int node)
{
    return transport->node_first[node + 1] - transport->node_first[node];
}

uint32_t transport_new_tags(struct transport *transport, uint32_t count)
{
    const uint32_t first = transport->next_tag;

    transport->next_tag += count;
    BUG_ON(transport->members && transport->next_tag > transport->end_tag);
    return first;
}

bool transport_shares_memory(const struct transport *transport)
{
    return transport->n_nodes == 1;
}

size_t transport_room(const struct transport *transport)
{
    return transport->heap_bytes - transport->heap_used;
}

bool transport_is_shared(const struct transport *transport, const void *data, size_t bytes)
{
    const uintptr_t at = (uintptr_t)data, start = (uintptr_t)transport->heap;

    if (transport->members)
        return group_has_shared(transport, data, bytes);
    return at >= start && at - start <= transport->heap_bytes &&
           bytes <= transport->heap_bytes - (at - start);
}

/* Waits until all ranks of the node have made this call, and compares. A rank is at most one
 * call ahead of another, so two remembered sizes are enough. */
static enum status join_share(struct transport *transport, size_t bytes)
{
    struct region *region = transport->region;
    const int first = transport_node_first(transport, transport->node);
    const int size = transport_node_size(transport, transport->node);
    const uint32_t call = transport->shares++;

    if (size == 1)
        return STATUS_OK;
    region_slot(region, transport->rank)->share_bytes[call % 2] = bytes;
    transport_raise(&region->share_joined, 1);
    TRY(transport_wait(transport, &region->share_joined, (call + 1) * (uint32_t)size, "share"));
    for (int rank = first; rank < first + size; rank++) {
        const uint64_t theirs = region_slot(region, rank)->share_bytes[call % 2];
        const uint64_t asked = region_slot(region, first)->share_bytes[call % 2];
        if (theirs != asked)
            return FAIL(STATUS_MISMATCH,
                        "rank %d shares %llu bytes while rank %d shares %llu bytes", rank,
                        (unsigned long long)theirs, first, (unsigned long long)asked);
    }
    return STATUS_OK;
}

/* Every rank works out the address by itself: all make the same calls. */
enum status transport_share(struct transport *transport, size_t bytes, void **out)
{
    if (transport->members)
        return group_share(transport, bytes, out);
    TRY(join_share(transport, bytes));
    const size_t room = transport->heap_bytes - transport->heap_used;
    if (bytes > room)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes of shared memory asked for, %zu left", bytes,
                    room);
    *out = transport->heap + transport->heap_used;
    transport->heap_used += round_up(bytes, REGION_PAGE);
    return STATUS_OK;
}

/* The text goes word by word: who reads it while it changes, which takes a rank that dies at
 * that moment, sees a mixture, but nothing else. */
void transport_note(struct transport *transport, uint64_t step, const char *what)
{
    struct rank_slot *slot = region_slot(transport->region, transport->job->rank);
    uint64_t words[TRANSPORT_NOTE / 8] = { 0 };

    memcpy(words, what, strnlen(what, TRANSPORT_NOTE - 1));
    for (size_t i = 0; i < TRANSPORT_NOTE / 8; i++)
        atomic_store_explicit(&slot->what[i], words[i], memory_order_relaxed);
    atomic_store_explicit(&slot->step, step, memory_order_relaxed);
}

void region_note(struct region *region, int rank, char *out, size_t bytes)
{
    struct rank_slot *slot = region_slot(region, rank);
    uint64_t words[TRANSPORT_NOTE / 8];
    char what[TRANSPORT_NOTE];

    for (size_t i = 0; i < TRANSPORT_NOTE / 8; i++)
        words[i] = atomic_load_explicit(&slot->what[i], memory_order_relaxed);
    memcpy(what, words, sizeof(what));
    what[TRANSPORT_NOTE - 1] = '\0';
    for (char *at = what; *at; at++) {
        if ((unsigned char)*at < ' ')
            *at = '?';
    }
    out[0] = '\0';
    if (what[0])
        (void)snprintf(out, bytes, " at step %llu in %s",
                       (unsigned long long)atomic_load(&slot->step), what);
}

enum status transport_set_expendable(struct transport *transport)
{
    if (!transport->region->can_lose)
        return FAIL(
            STATUS_UNSUPPORTED,
            "a job that mpirun or srun started does not survive the loss of a rank: MPI "
            "ends all of it");
    atomic_store_explicit(&region_slot(transport->region, transport->job->rank)->expendable,
                          true, memory_order_release);
    return STATUS_OK;
}

bool transport_lost(const struct transport *transport, int member, const char **out_text)
{
    const int rank = job_rank(transport, member);
    const bool is_lost = state_of(transport->region, rank) == RANK_LOST;

    if (out_text)
        *out_text = is_lost && region_holds(transport->region, rank)
                        ? region_slot(transport->region, rank)->text
                        : "";
    return is_lost;
}

void transport_abort(struct transport *transport, const char *text)
{
    const struct transport *job = transport->job;

    region_fail(job->region, job->rank, text);
    if (job->link)
        job->link->ops->fail(job->link, job->rank, text);
}

enum status transport_check(struct transport *transport)
{
    if (!region_has_failed(transport->region))
        return STATUS_OK;
    return FAIL(STATUS_PEER_LOST, "%s", region_failure(transport->region));
}
