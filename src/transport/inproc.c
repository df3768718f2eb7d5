/* SPDX-License-Identifier: MIT */
/* inproc.c - threads of one process as ranks, over the same region as processes use. */
#include "transport/region.h"

/* Address space for transport_share: little, as tests make and drop regions by the hundred. */
static const size_t heap_bytes = (size_t)4 << 30;

enum status transport_inproc_create(int size, struct transport **ends)
{
    struct region *region;

    TRY(region_create(size, heap_bytes, &region));
    for (int rank = 0; rank < size; rank++) {
        const enum status status = region_attach(region, rank, "inproc", &ends[rank]);
        if (status != STATUS_OK) {
            while (rank-- > 0)
                region_detach(ends[rank]);
            region_destroy(region);
            return status;
        }
    }
    return STATUS_OK;
}

void transport_inproc_destroy(struct transport **ends, int size)
{
    struct region *region = ends[0]->region;

    for (int rank = 0; rank < size; rank++)
        region_detach(ends[rank]);
    region_destroy(region);
}
