/* SPDX-License-Identifier: MIT */
/* block.c - lays out a node's shared memory.
 *
 * All that a rank needs of it follows from the config, but for the room that a worker wants; so ranks first
 * tell each other that, through a small block.
 */
#include "ps/block.h"

#include <string.h>

#include "base/mem.h"

struct notice {
    struct transport_counter told;
    uint64_t room[]; /* one a rank of the node */
};

static size_t round_up(size_t bytes)
{
    return (bytes + PS_LINE - 1) / PS_LINE * PS_LINE;
}

static enum status tell_rooms(const struct slices *slices, struct block *block)
{
    struct transport *transport = slices->config.transport;
    const int own = transport_rank(transport) - block->first;
    void *memory;

    TRY(transport_share(
        transport, sizeof(struct notice) + (size_t)block->size * sizeof(uint64_t), &memory));
    struct notice *notice = memory;
    if (block->first + own < slices->config.workers)
        notice->room[own] = round_up(slices->config.room);
    transport_raise(&notice->told, 1);
    TRY(transport_wait(transport, &notice->told, (uint32_t)block->size,
                       "parameter servers' start"));
    for (int i = 0; i < block->size; i++)
        block->room[i] = notice->room[i];
    return STATUS_OK;
}

static size_t area_bytes(const struct slices *slices, const struct block *block, int i)
{
    const int rank = block->first + i, workers = slices->config.workers;

    if (rank >= workers)
        return slices->server_bytes[rank - workers];
    return block->room[i] + slices_staged_bytes(slices, rank);
}

enum status block_create(const struct slices *slices, struct block *out)
{
    struct transport *transport = slices->config.transport;
    const int node = transport_node_of(transport, transport_rank(transport));
    struct block block = { .first = transport_node_first(transport, node),
                           .size = transport_node_size(transport, node) };
    void *base = NULL;

    enum status status = mem_alloc((size_t)block.size + 1, sizeof(size_t), &block.area);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)block.size, sizeof(size_t), &block.room);
    if (status == STATUS_OK)
        status = tell_rooms(slices, &block);
    for (int i = 0; status == STATUS_OK && i < block.size; i++)
        block.area[i + 1] = block.area[i] + round_up(area_bytes(slices, &block, i));
    if (status == STATUS_OK)
        status = transport_share(transport, block.area[block.size], &base);
    if (status != STATUS_OK) {
        block_release(&block);
        return status;
    }
    block.base = base;
    block.bytes = block.area[block.size];
    *out = block;
    return STATUS_OK;
}

void block_release(struct block *block)
{
    mem_free(block->area);
    mem_free(block->room);
    *block = (struct block){ 0 };
}

bool block_has(const struct block *block, int rank)
{
    return rank >= block->first && rank < block->first + block->size;
}

char *block_server(const struct block *block, int rank)
{
    return block->base + block->area[rank - block->first];
}

char *block_room(const struct block *block, int rank)
{
    return block->base + block->area[rank - block->first];
}

char *block_staged(const struct block *block, int rank)
{
    return block_room(block, rank) + block->room[rank - block->first];
}
