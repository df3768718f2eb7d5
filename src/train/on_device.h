/* SPDX-License-Identifier: MIT */
/* on_device.h - a job whose arithmetic runs on a device: what it cannot be, and the device opened for an executor.
 * Private to train/. */
#ifndef TRAIN_ON_DEVICE_H
#define TRAIN_ON_DEVICE_H

#include "exec/exec.h"
#include "train/job.h"

/* Does the job name a device that is not this processor? */
bool on_device(const struct job *job);
/* Does it compute in less than f32 there, so that libraries have its convolutions? */
bool on_device_rounds(const struct job *job);
/* What it computes in; tf32 is f32, whose operands are rounded. */
enum dtype on_device_precision(const struct job *job);
/* Refuses a --device or --precision that there is not, or not there. */
MUST_CHECK enum status on_device_check_names(const struct settings *settings);
/* Reads --device, --precision, --rounding and --data-on; refuses what such a job cannot do yet, each with its name. Asks for no driver. */
MUST_CHECK enum status on_device_check(const struct job *job);

/* The same of --data-on, when data is open. */
MUST_CHECK enum status on_device_check_data(const struct job *job);

/* Refuses a device that is not there. Of several ranks, which are forked later, this process does not touch the driver. */
MUST_CHECK enum status on_device_find(const struct job *job);

/* Opens a device of the job's name for an executor: zero if there is none. Ranks of a machine take its devices in
 * turn. In the process that runs the executor, which no fork comes after. same_batch as exec.h has it. */
MUST_CHECK enum status on_device_open(const struct job *job, struct transport *transport,
                                      bool same_batch, struct exec_device *out);
void on_device_close(struct exec_device *device);
/* Has the executor's device hold the job's images, if --data-on says so or leaves it open and they need little of it: sets
 * *out_kept to the bytes that lie there, 0 if samples stay here. */
MUST_CHECK enum status on_device_keep(const struct job *job, const struct exec_device *device,
                                      struct exec *exec, size_t *out_kept);
/* What an executor's configuration has of it: NULL if there is none. */
static inline const struct exec_device *on_device_of(const struct exec_device *device)
{
    return device->face ? device : NULL;
}

#endif /* TRAIN_ON_DEVICE_H */
