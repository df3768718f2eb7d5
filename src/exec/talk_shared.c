/* SPDX-License-Identifier: MIT */
/* talk_shared.c - what ranks that share layers say to each other, where they share memory.
 *
 * Each lane of each of them has an area: a counter, and two buffers in turn. What a lane says goes
 * there in blocks, each with the number s of all blocks that it has said so far:
 *
 *   write block s to buffer s % 2 | published = s | wait until all others' is s | read what they wrote
 *
 * Why block s does not overwrite what somebody still reads: that would be block s - 2. All have
 * published s - 1, as this lane has waited for that, and a lane publishes s - 1 after it has read s
 * - 2. All lanes of a number say as many blocks, also where one has nothing to say. Sums are in the
 * order of ranks, as those by messages.
 */
#include <string.h>

#include "exec/account.h"
#include "exec/exec.h"
#include "exec/now.h"
#include "exec/talk.h"

enum { BLOCK_FLOATS = 32 << 10 };

struct area {
    struct transport_counter published;
    float buffer[2][BLOCK_FLOATS];
};

size_t exec_tensor_bytes(int lanes)
{
    return (size_t)lanes * sizeof(struct area);
}

static struct area *area_of(const struct talk *talk, int rank)
{
    struct area *areas = talk->own->config->tensor_memory;

    return &areas[rank * talk->own->lanes + talk->own->index];
}

/* Until rank r has said so many blocks; no longer than --stall-timeout, after which it is named. */
static enum status await_rank(const struct talk *talk, int r, uint32_t number)
{
    const double most = talk->own->config->stall_timeout;
    const char *op = talk->call->problem->op;
    struct transport_counter *published = &area_of(talk, r)->published;
    bool reached;

    if (most == 0)
        return transport_wait(talk->transport, published, number, op);
    TRY(transport_wait_within(talk->transport, published, number, (int64_t)(most * 1e9), op,
                              &reached));
    if (reached)
        return STATUS_OK;
    const enum status status =
        FAIL(STATUS_PEER_LOST,
             "rank %d has not come to %s at step %llu: the others waited for %.15g s "
             "(--stall-timeout)",
             transport_job_rank(talk->transport, r), op,
             (unsigned long long)talk->clock->account->now->step, most);
    transport_abort(talk->transport, status_message());
    return status;
}

/* Says a block and waits until all others have said theirs; gives the buffer that it is in. */
static enum status say(const struct talk *talk, const float *block, size_t count, int *out)
{
    const uint32_t number = ++talk->own->said;
    struct area *own = area_of(talk, talk->rank);

    *out = (int)(number % 2);
    if (count > 0)
        memcpy(own->buffer[*out], block, count * sizeof *block);
    transport_raise(&own->published, 1);
    for (int r = 0; r < talk->ranks; r++) {
        if (r == talk->rank)
            continue;
        TRY(await_rank(talk, r, number));
        talk->clock->times.bytes += (int64_t)(count * sizeof *block);
    }
    return STATUS_OK;
}

static size_t block_of(size_t count, size_t at)
{
    const size_t left = count > at ? count - at : 0;

    return left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
}

enum status shared_sum(const struct talk *talk, const float *x, size_t count, float *y)
{
    for (size_t at = 0; at < count; at += BLOCK_FLOATS) {
        const size_t length = block_of(count, at);
        const float *summands[TALK_RANKS] = { NULL };
        int buffer;

        TRY(say(talk, x + at, length, &buffer));
        for (int r = 0; r < talk->ranks; r++)
            summands[r] = area_of(talk, r)->buffer[buffer];
        talk_add_in_order(summands, talk->ranks, y + at, length);
    }
    return STATUS_OK;
}

enum status shared_gather(const struct talk *talk, const struct talk_pieces *pieces)
{
    const struct talk_piece *own = &pieces->of[talk->rank];
    size_t longest = 0;

    for (int r = 0; r < talk->ranks; r++)
        longest = pieces->of[r].count > longest ? pieces->of[r].count : longest;
    for (size_t at = 0; at < longest; at += BLOCK_FLOATS) {
        int buffer;

        TRY(say(talk, own->count > at ? own->data + at : NULL, block_of(own->count, at),
                &buffer));
        for (int r = 0; r < talk->ranks; r++) {
            const struct talk_piece *piece = &pieces->of[r];
            if (r != talk->rank && piece->count > at)
                memcpy(piece->data + at, area_of(talk, r)->buffer[buffer],
                       block_of(piece->count, at) * sizeof(float));
        }
    }
    return STATUS_OK;
}

enum status shared_sum_slices(const struct talk *talk, const struct talk_pieces *pieces,
                              float *y)
{
    for (int r = 0; r < talk->ranks; r++) {
        const size_t count = pieces->of[r].count;
        for (size_t at = 0; at < count; at += BLOCK_FLOATS) {
            const size_t length = block_of(count, at);
            const float *summands[TALK_RANKS] = { NULL };
            int buffer;

            TRY(say(talk, pieces->of[r].data + at, length, &buffer));
            for (int k = 0; k < talk->ranks; k++)
                summands[k] = area_of(talk, k)->buffer[buffer];
            if (r == talk->rank)
                talk_add_in_order(summands, talk->ranks, y + at, length);
        }
    }
    return STATUS_OK;
}
