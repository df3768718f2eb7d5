/* SPDX-License-Identifier: MIT */
/* release.c - gradients that are resident only while they are under way (zero=2).
 *
 * A lane's gradients of a bucket are read by others from its accumulate task until
 * program->summed[b] is done: by lanes of the node that add them up, or by inter-node threads that
 * send them. Then the lane gives their memory back. So that no more than a window of them is
 * resident however far ahead of the others a lane is, computations that begin another bucket wait
 * for those that must be gone; the step program says which (MEMORY_ROOM in sched/program.h).
 *
 * Where lanes run several shards one after the other, sums of earlier ones wait in the buffers for
 * the later: all of them are resident until the last shard is through, and nobody waits.
 */
#include "exec/release.h"

#include "exec/lane.h"
#include "exec/layout.h"
#include "exec/now.h"
#include "exec/pages.h"
#include "exec/topology.h"

static size_t bytes_of(const struct exec_layout *layout, int b)
{
    return (size_t)(layout->buckets.begin[b + 1] - layout->buckets.begin[b]) * sizeof(float);
}

void release_announced(struct lane *lane, int b)
{
    if (!lane->layout->releases || bucket_is_gathered(lane->layout, b))
        return;
    lane->unreleased |= UINT64_C(1) << b;
    lane->summed_when[b] =
        account_target(lane->clock.account, lane->program->summed[b], lane->now->steps);
}

void release_bucket(struct lane *lane, int b)
{
    if (!(lane->unreleased >> b & 1))
        return;
    lane->unreleased &= ~(UINT64_C(1) << b);
    for (int i = 0; i < lane->n_buffers; i++)
        pages_release(lane->gradients + (size_t)i * lane->layout->vector +
                          lane->layout->buckets.begin[b],
                      bytes_of(lane->layout, b));
}

void release_summed(struct lane *lane)
{
    for (uint64_t left = lane->unreleased; left; left &= left - 1) {
        const int b = __builtin_ctzll(left);
        if (transport_reached(account_counter(lane->clock.account, lane->program->summed[b]),
                              lane->summed_when[b]))
            release_bucket(lane, b);
    }
}
