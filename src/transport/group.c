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

static enum status map_heap(struct transport *group)
{
    group->heap_bytes = group->job->heap_bytes;
    void *memory = mmap(NULL, group->heap_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "cannot map %zu bytes: %s", group->heap_bytes,
                    strerror(errno));
    group->heap = memory;
    group->owns_heap = true;
    return STATUS_OK;
}

enum status transport_group_create(struct transport *job, const int *members, int count,
                                   struct transport **out)
{
    struct transport *group;

    BUG_ON(job->members);
    TRY(mem_alloc(1, sizeof(*group), &group));
    group->job = job;
    group->region = job->region;
    group->name = job->name;
    group->next_tag = transport_new_tags(job, GROUP_TAGS);
    group->end_tag = group->next_tag + GROUP_TAGS;
    enum status status = set_members(group, members, count);
    if (status == STATUS_OK)
        status = map_heap(group);
    if (status != STATUS_OK) {
        transport_group_destroy(group);
        return status;
    }
    transport_set_waiters(group, 1);
    *out = group;
    return STATUS_OK;
}

int transport_job_rank(const struct transport *transport, int rank)
{
    return job_rank(transport, rank);
}

void transport_group_destroy(struct transport *group)
{
    if (!group)
        return;
    if (group->owns_heap)
        munmap(group->heap, group->heap_bytes);
    mem_free(group->members);
    mem_free(group->node_first);
    mem_free(group);
}
