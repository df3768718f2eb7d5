/* SPDX-License-Identifier: MIT */
/* fuzz_rows.c - a node is sent any packet of rows of a table (exec/packet.h).
 *
 * Input: a byte each for the table's rows, the number of nodes and which of them owns; 8 bytes, how many rows come; then
 * pairs of id and place, and rows of WIDTH floats. What is accepted is put into the table, as net_rows.c does, so that a
 * place outside is seen by the sanitizer.
 */
#include <string.h>

#include "base/mem.h"
#include "exec/packet.h"
#include "fuzz.h"

enum { WIDTH = 2, HEAD = 3 + (int)sizeof(int64_t) };

static void put_rows(const struct rows_packet *packet, float *table)
{
    for (int64_t i = 0; i < packet->count; i++)
        memcpy(table + packet->pairs[i].id * WIDTH, packet->rows + packet->pairs[i].row * WIDTH,
               WIDTH * sizeof *table);
}

/* What comes is as long as the count says; what the input lacks is zero. */
static void receive(const uint8_t **data, size_t *size, void *out, size_t bytes)
{
    const size_t here = bytes < *size ? bytes : *size;

    memcpy(out, *data, here);
    *data += here;
    *size -= here;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rows_packet packet = { 0 };
    int64_t count;
    float *table;

    if (size < HEAD)
        return 0;
    const int owners = 1 + data[1] % 16;
    const struct packet_owner owner = { data[0], owners, data[2] % owners };
    memcpy(&count, data + 3, sizeof count);
    data += HEAD;
    size -= HEAD;
    const int64_t most = packet_most(&owner);
    if (packet_take_count(&packet, count, most, 1) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return 0;
    }
    const size_t rows = (size_t)packet.count;
    BUG_ON(mem_alloc(rows + 1, sizeof *packet.pairs, &packet.pairs) != STATUS_OK);
    BUG_ON(mem_alloc(rows * WIDTH + 1, sizeof *packet.rows, &packet.rows) != STATUS_OK);
    BUG_ON(mem_alloc((size_t)owner.rows * WIDTH + 1, sizeof *table, &table) != STATUS_OK);
    receive(&data, &size, packet.pairs, rows * sizeof *packet.pairs);
    receive(&data, &size, packet.rows, rows * WIDTH * sizeof *packet.rows);
    if (packet_check(&packet, &owner, 1) == STATUS_OK)
        put_rows(&packet, table);
    else
        BUG_ON(!status_message()[0]);
    mem_free(table);
    mem_free(packet.rows);
    mem_free(packet.pairs);
    return 0;
}
