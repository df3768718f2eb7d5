/* SPDX-License-Identifier: MIT */
/* block.h - private: the memory that servers and workers of a node share. */
#ifndef PS_BLOCK_H
#define PS_BLOCK_H

#include "ps/slices.h"

struct block {
    char *base;
    size_t bytes;
    int first, size; /* ranks of the node */
    size_t *area;    /* [size + 1]: bytes from base */
    size_t *room;    /* [size]: of a worker; its staged sums follow */
};

/* Collective among the ranks of the node. */
MUST_CHECK enum status block_create(const struct slices *slices, struct block *out);
void block_release(struct block *block);

bool block_has(const struct block *block, int rank);
/* The area of a rank of this node: a server's; a worker's room; what a worker stages. */
char *block_server(const struct block *block, int rank);
char *block_room(const struct block *block, int rank);
char *block_staged(const struct block *block, int rank);

#endif /* PS_BLOCK_H */
