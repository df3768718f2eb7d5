/* SPDX-License-Identifier: MIT */
/* talk.h - what a lane does together with the ranks that share its layers. Private to exec/.
 *
 * Lanes of the same number on these ranks run the same shards at about the same time, and talk by
 * messages with a tag of their own. Threads: a lane's own.
 */
#ifndef EXEC_TALK_H
#define EXEC_TALK_H

#include "kernel/kernel.h"

struct exec;
struct lane;

/* Ranks that share layers, at most. */
enum { TALK_RANKS = 64 };

/* Bytes of scratch that an op between ranks needs. */
size_t talk_scratch(const struct kernel_problem *problem);
/* Collective over ranks that share layers: makes sure that they fit together. */
MUST_CHECK enum status talk_create(struct exec *exec);
/* Runs an op between ranks; call->scratch has talk_scratch bytes. */
MUST_CHECK enum status lane_talk(struct lane *lane, const struct kernel_call *call);

#endif /* EXEC_TALK_H */
