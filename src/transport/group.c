/* SPDX-License-Identifier: MIT */
/* group.c - ends of some of a job's ranks, numbered anew.
 *
 * A group's end has numbers, nodes, tags and memory of its own; whatever moves or waits is done by the job's
 * end, which it points to. So there is nothing here but what is different.
 *
 *   job of 4 ranks, members {1, 3}:   rank 0 of the group is 1, rank 1 is 3
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "transport/region.h"

/* Tags of a group. Any library of MPI has 32768 in all. */
enum { GROUP_TAGS = 4096 };

static enum status set_members(struct transport *group, const int *members, int count)
{
    TRY(mem_alloc((size_t)count, sizeof(int), &group->members));
    TRY(mem_alloc((size_t)count + 1, sizeof(int), &group->node_first));
    group->rank = -1;
    for (int r = 0; r < count; r++) {
        if (members[r] < 0 || members[r] >= group->job->size)
            return FAIL(STATUS_USAGE, "rank %d is not between 0 and %d", members[r],
                        group->job->size - 1);
        group->members[r] = members[r];
        group->node_first[r + 1] = r + 1;
        if (members[r] == group->job->rank)
            group->rank = r;
    }
    if (group->rank < 0)
        return FAIL(STATUS_USAGE, "rank %d is no member of its group", group->job->rank);
    group->size = group->n_nodes = count;
    group->node = group->rank;
    return STATUS_OK;
}

struct group_block {
    struct group_block *next;
    char *memory;
    size_t bytes;
};

/* Of memory that the members share: all make the same calls, and it is zero, as nobody else has it. */
static enum status take_of_heap(struct transport *group, size_t bytes, void **out)
{
    const size_t room = group->heap_bytes - group->heap_used;

    if (bytes > room)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes of a group's memory asked for, %zu left",
                    bytes, room);
    *out = group->heap + group->heap_used;
    group->heap_used += (bytes + REGION_PAGE - 1) / REGION_PAGE * REGION_PAGE;
    return STATUS_OK;
}

enum status group_share(struct transport *group, size_t bytes, void **out)
{
    struct group_block *block;

    if (group->heap)
        return take_of_heap(group, bytes, out);
    TRY(mem_alloc(1, sizeof(*block), &block));
    block->bytes = (bytes / REGION_PAGE + 1) * REGION_PAGE;
    void *memory = mmap(NULL, block->bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        mem_free(block);
        return FAIL(STATUS_NO_MEMORY, "cannot map %zu bytes: %s", bytes, strerror(errno));
    }
    block->memory = memory;
    block->next = group->blocks;
    group->blocks = block;
    *out = memory;
    return STATUS_OK;
}

bool group_has_shared(const struct transport *group, const void *data, size_t bytes)
{
    const uintptr_t at_heap = (uintptr_t)data - (uintptr_t)group->heap;

    if (group->heap && at_heap <= group->heap_bytes && bytes <= group->heap_bytes - at_heap)
        return true;
    for (const struct group_block *block = group->blocks; block; block = block->next) {
        const uintptr_t at = (uintptr_t)data, start = (uintptr_t)block->memory;
        if (at >= start && at - start <= block->bytes && bytes <= block->bytes - (at - start))
            return true;
    }
    return false;
}

enum status transport_group_create(struct transport *job, const int *members, int count,
                                   struct transport **out)
{
    return transport_group_create_small(job, members, count, GROUP_TAGS, out);
}

void transport_group_skip(struct transport *job)
{
    (void)transport_new_tags(job, GROUP_TAGS);
}

enum status transport_group_create_small(struct transport *job, const int *members, int count,
                                         uint32_t tags, struct transport **out)
{
    struct transport *group;

    BUG_ON(job->members);
    TRY(mem_alloc(1, sizeof(*group), &group));
    group->job = job;
    group->region = job->region;
    group->name = job->name;
    group->next_tag = transport_new_tags(job, tags);
    group->end_tag = group->next_tag + tags;
    const enum status status = set_members(group, members, count);
    if (status != STATUS_OK) {
        transport_group_destroy(group);
        return status;
    }
    transport_set_waiters(group, 1);
    *out = group;
    return STATUS_OK;
}

void transport_group_join(struct transport *group, void *memory, size_t bytes)
{
    BUG_ON(group->blocks || !transport_is_one_machine(group));
    group->heap = memory;
    group->heap_bytes = bytes / REGION_PAGE * REGION_PAGE;
    group->n_nodes = 1;
    group->node = 0;
    group->node_first[1] = group->size;
}

bool transport_is_one_machine(const struct transport *group)
{
    for (int r = 0; r < group->size; r++) {
        if (!region_holds(group->region, job_rank(group, r)))
            return false;
    }
    return true;
}

int transport_job_rank(const struct transport *transport, int rank)
{
    return job_rank(transport, rank);
}

void transport_group_destroy(struct transport *group)
{
    if (!group)
        return;
    while (group->blocks) {
        struct group_block *block = group->blocks;

        group->blocks = block->next;
        munmap(block->memory, block->bytes);
        mem_free(block);
    }
    mem_free(group->members);
    mem_free(group->node_first);
    mem_free(group);
}
