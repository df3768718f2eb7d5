/* SPDX-License-Identifier: MIT */
/* slice.h - which part of a tensor one of several ranks has, cut along one axis.
 *
 * An axis of `whole` elements is cut into `count` slices in a row, as equal as can be. Where the axis is
 * several parts one after the other (queries, keys and values of attention), each part is cut, and a slice
 * has a piece of each:
 *
 *   whole 12, parts 3, count 2     q0 q1 q2 q3 k0 k1 k2 k3 v0 v1 v2 v3
 *   index 1                              q2 q3       k2 k3       v2 v3
 */
#ifndef TENSOR_SLICE_H
#define TENSOR_SLICE_H

#include "tensor/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

struct shape_slice {
    int count, index; /* of slices; count 0: the tensor is whole */
    int axis;
    int parts;     /* of the axis; 0 is 1 */
    int64_t whole; /* extent of the axis before it is cut; 0: count times that of a slice */
};

/* Where slice `index` of a row of `whole` elements begins; of index = count: the end. */
static inline int64_t slice_begin(int64_t whole, int index, int count)
{
    return whole * index / count;
}

/* Elements along the axis that the slice has, and all have together. `local`: the slice's extent. */
int64_t slice_extent(const struct shape_slice *slice, int64_t whole);
int64_t slice_whole(const struct shape_slice *slice, int64_t local);
/* The shape of the slice from that of the whole, and back. A whole tensor's are the same. */
struct shape slice_shape(const struct shape_slice *slice, const struct shape *whole);
struct shape slice_whole_shape(const struct shape_slice *slice, const struct shape *local);

/* Stretches of the slice that lie in a row in the whole, both in plain order. */
struct slice_run {
    int64_t whole, local, count; /* elements: where they begin, how many */
};
int64_t slice_runs(const struct shape_slice *slice, const struct shape *local);
struct slice_run slice_run(const struct shape_slice *slice, const struct shape *local,
                           int64_t i);

/* Copies a slice out of a whole tensor, and into one. Plain order, elements of `size` bytes. */
void slice_cut(const struct shape_slice *slice, const struct shape *local, size_t size,
               const void *whole, void *out);
void slice_put(const struct shape_slice *slice, const struct shape *local, size_t size,
               const void *part, void *whole);

#ifdef __cplusplus
}
#endif

#endif /* TENSOR_SLICE_H */
