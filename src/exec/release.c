/* SPDX-License-Identifier: MIT */
/* release.c - gradients that are resident only while they are under way (zero=2).
 *
 * A lane's gradients of a bucket are read by others from its accumulate task until program->summed[b] is
 * done: by lanes of the node that add them up, or by inter-node threads that send them. Then the lane
 * gives their memory back. So that no more than a window of them is resident however far ahead of the
 * others a lane is, it stops before it writes the next bucket until enough of those that it has announced
 * are summed:
 *
 *   backward   [ b0 ]announced [ b1 ]announced [ b2 ] waits for summed[b0] [ b3 ]announced ...
 *
 * Why that cannot block: lanes announce buckets in the order of the graph, which all share, and stop at the
 * same tasks. One that stops waits for buckets that it has announced; the lane that has come least far
 * has all of its own announced by everybody, so it goes on. On one node lanes sum in the order of numbers, so one waits for
 * those alone that have no smaller one open.
 *
 * Where lanes run several shards one after the other, sums of earlier ones wait in the buffers for
 * the later: all of them are resident until the last shard is through, and nobody stops.
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

static size_t bytes_of_all(const struct exec_layout *layout, uint64_t buckets)
{
    size_t bytes = 0;

    for (; buckets; buckets &= buckets - 1)
        bytes += bytes_of(layout, __builtin_ctzll(buckets));
    return bytes;
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

/* Of the buckets announced, the first that a lane may wait for; -1: none. */
static int first_to_wait_for(const struct lane *lane)
{
    const uint64_t announced = lane->unreleased;

    if (!announced)
        return -1;
    const int b = __builtin_ctzll(announced);
    for (int t = lane->next_task; t < lane->program->summed[b]; t++) {
        const struct task *task = &lane->program->tasks[t];
        if (task->place == PLACE_LANE_SYNC && task->bucket < b &&
            !(lane->announced >> task->bucket & 1))
            return -1;
    }
    return b;
}

enum status release_make_room(struct lane *lane, uint64_t begins)
{
    if (!lane->layout->releases || lane->topology->job_lanes != lane->topology->shards)
        return STATUS_OK;
    release_summed(lane);
    while (bytes_of_all(lane->layout, lane->unreleased | begins) > lane->layout->window) {
        const int b = first_to_wait_for(lane);
        if (b < 0)
            break;
        const int summed = lane->program->summed[b];
        if (lane->program->tasks[summed].place == PLACE_LANE_SYNC)
            TRY(lane_sync(lane, summed + 1));
        TRY(clock_wait_until(&lane->clock, summed, lane->summed_when[b],
                             lane->clock.account->reduce_names[b]));
        release_bucket(lane, b);
    }
    return STATUS_OK;
}
