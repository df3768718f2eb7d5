/* SPDX-License-Identifier: MIT */
/* packet.h - rows of a table that one node sends another, and what makes them legal.
 *
 * A packet is three messages: how many rows come, their ids with places, the rows. Ids and places are numbers of places
 * in memory here, so nothing is done with them before they have passed packet_check.
 *
 * Errors: STATUS_CORRUPT, with the node and the field. Nodes make the same steps, so the job ends then.
 */
#ifndef EXEC_PACKET_H
#define EXEC_PACKET_H

#include <stdint.h>

#include "base/status.h"

/* An id and its row of what goes with it, as rows_sort gives them. */
struct rows_pair {
    int32_t id, row;
};
/* Rows in ascending order of their ids, each once. */
struct rows_packet {
    struct rows_pair *pairs;
    float *rows;
    int64_t count;
    int64_t shard; /* one of those that they are the sums over */
};

/* Whose rows they are: row i belongs to node i modulo `owners`. */
struct packet_owner {
    int64_t rows; /* of the table */
    int owners, owner;
};

/* Rows of a table that the owner has. */
int64_t packet_most(const struct packet_owner *owner);
/* Takes the number of rows that node `from` says come; the packet has room for `most`. */
MUST_CHECK enum status packet_take_count(struct rows_packet *packet, int64_t count,
                                         int64_t most, int from);
/* Are the ids the owner's, in order, each once, and the places those of the rows? */
MUST_CHECK enum status packet_check(const struct rows_packet *packet,
                                    const struct packet_owner *owner, int from);

#endif /* EXEC_PACKET_H */
