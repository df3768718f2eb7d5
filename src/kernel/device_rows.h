/* SPDX-License-Identifier: MIT */
/* device_rows.h - private: the devices that device.c lists. */
#ifndef KERNEL_DEVICE_ROWS_H
#define KERNEL_DEVICE_ROWS_H

#include "kernel/device.h"

extern const struct device_face device_cpu;
/* Its memory that processes share (device_share.c). */
extern const struct device_share_ops device_share_cpu;
/* Its device_face.pick (device_pick.c). */
void device_pick_cpu(struct device_stream *stream, const struct device_images *images,
                     const struct pick *picks, size_t rows, float *x, int32_t *y);
/* Did this process make it? Then it is open. */
bool device_share_is_here(const struct device_handle *handle);
/* Bytes between ranks of one machine (device_team.c). */
extern const struct device_team_ops device_team_cpu;
/* joint.c */
extern const struct device_joint_ops device_joint_cpu;

/* Opens the plug-in, once, and asks for neither driver nor GPU. */
MUST_CHECK enum status device_load_cuda(const struct device_face **out);
/* The same, of a machine that has both. */
MUST_CHECK enum status device_find_cuda(const struct device_face **out);

#endif /* KERNEL_DEVICE_ROWS_H */
