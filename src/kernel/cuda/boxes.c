/* SPDX-License-Identifier: MIT */
/* boxes.c - maps of tensors for the copy engine. Only the driver's own interface makes them, which is asked for when it is first needed: the
 * plug-in is not linked with it. */
#include "kernel/cuda/boxes.h"

#include <pthread.h>
#include <string.h>

typedef CUresult encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static encode_fn *encode; /* NULL: the driver has none */

static void find(void)
{
    enum { SINCE = 12000 };
    enum cudaDriverEntryPointQueryResult result;
    void *found = NULL;

    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, SINCE,
                                         cudaEnableDefault, &result) == cudaSuccess &&
        result == cudaDriverEntryPointSuccess)
        memcpy(&encode, &found, sizeof encode);
}

bool box_map_of(struct device_stream *stream, CUtensorMap *out, const void *tensor, int rank,
                const int64_t *extents, const int *box)
{
    cuuint64_t counts[BOX_RANK], apart[BOX_RANK]; /* from an element to the next, in bytes */
    cuuint32_t sizes[BOX_RANK], steps[BOX_RANK];

    for (int i = 0; i < rank; i++) {
        counts[i] = (cuuint64_t)extents[i];
        apart[i] = i == 0 ? sizeof(uint16_t) : apart[i - 1] * counts[i - 1];
        sizes[i] = (cuuint32_t)box[i];
        steps[i] = 1;
    }
    (void)pthread_once(&once, find);
    if (encode && encode(out, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, (cuuint32_t)rank,
                         (void *)(uintptr_t)tensor, counts, apart + 1, sizes, steps,
                         CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                         CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                         CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS)
        return true;
    stream_note(stream, "cuTensorMapEncodeTiled", "this tensor has no map");
    return false;
}

bool box_map(struct device_stream *stream, CUtensorMap *out, const void *matrix, int64_t rows,
             int64_t columns, int box_rows)
{
    const int64_t extents[] = { columns, rows };
    const int box[] = { BOX_COLUMNS, box_rows };

    return box_map_of(stream, out, matrix, 2, extents, box);
}
