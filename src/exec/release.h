/* SPDX-License-Identifier: MIT */
/* release.h - gradients that are resident only while they are under way (ZeRO-2). Private to exec/.
 *
 * Called by the lane that has written them.
 */
#ifndef EXEC_RELEASE_H
#define EXEC_RELEASE_H

#include <stdint.h>

#include "base/status.h"

struct lane;

/* This lane has announced bucket b. */
void release_announced(struct lane *lane, int b);
/* Gives back the gradients of b that were announced last, if that has not been done: all have
 * summed them. */
void release_bucket(struct lane *lane, int b);
/* The same of every bucket that is summed by now. */
void release_summed(struct lane *lane);
/* Before the gradients of these buckets are written: waits until few others are under way. */
MUST_CHECK enum status release_make_room(struct lane *lane, uint64_t begins);

#endif /* EXEC_RELEASE_H */
