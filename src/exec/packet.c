/* SPDX-License-Identifier: MIT */
/* packet.c - what makes rows that another node sent legal. */
#include "exec/packet.h"

int64_t packet_most(const struct packet_owner *owner)
{
    return (owner->rows - owner->owner + owner->owners - 1) / owner->owners;
}

enum status packet_take_count(struct rows_packet *packet, int64_t count, int64_t most, int from)
{
    if (count < 0 || count > most)
        return FAIL(STATUS_CORRUPT, "node %d says that %lld rows come, at most %lld can", from,
                    (long long)count, (long long)most);
    packet->count = count;
    return STATUS_OK;
}

enum status packet_check(const struct rows_packet *packet, const struct packet_owner *owner,
                         int from)
{
    int32_t last = -1;

    for (int64_t i = 0; i < packet->count; i++) {
        const struct rows_pair pair = packet->pairs[i];
        if (pair.id < 0 || pair.id >= owner->rows)
            return FAIL(STATUS_CORRUPT, "node %d sent row %d of a table of %lld", from, pair.id,
                        (long long)owner->rows);
        if (pair.id % owner->owners != owner->owner)
            return FAIL(STATUS_CORRUPT, "node %d sent row %d, which is not node %d's", from,
                        pair.id, owner->owner);
        if (pair.id <= last)
            return FAIL(STATUS_CORRUPT, "node %d sent row %d after row %d", from, pair.id,
                        last);
        if (pair.row != i)
            return FAIL(STATUS_CORRUPT, "node %d sent row %d with place %d instead of %lld",
                        from, pair.id, pair.row, (long long)i);
        last = pair.id;
    }
    return STATUS_OK;
}
