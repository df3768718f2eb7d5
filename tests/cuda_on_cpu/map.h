/* SPDX-License-Identifier: MIT */
/* map.h - what a CUtensorMap holds here. */
#ifndef CUDA_ON_CPU_MAP_H
#define CUDA_ON_CPU_MAP_H

#include <cuda.h>
#include <stdint.h>
#include <string.h>

#include "machine.h"

enum { MAP_RANK = 5, MAP_MAGIC = 0x7475 };

/* Extents and the box are innermost first, in elements; from one to the next of an axis it is so many bytes. */
struct tensor_map {
    void *tensor;
    uint64_t apart[MAP_RANK];
    uint32_t extent[MAP_RANK];
    uint16_t box[MAP_RANK];
    uint16_t rank, magic;
};
static_assert(sizeof(struct tensor_map) <= sizeof(CUtensorMap), "there is room");

static inline struct tensor_map tensor_map_of(const CUtensorMap *map)
{
    struct tensor_map m;

    memcpy(&m, map, sizeof m);
    if (m.magic != MAP_MAGIC)
        machine_fail("a map that nobody made");
    return m;
}

#endif /* CUDA_ON_CPU_MAP_H */
