/* inproc.c - threads of one process as ranks, over the same region as processes use. */
#include "transport/region.h"

enum status transport_inproc_create(int size, struct transport **ends)
{
    struct region *region;

    TRY(region_create(size, 0, &region));
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
