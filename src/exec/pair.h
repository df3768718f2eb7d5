/* SPDX-License-Identifier: MIT */
/* pair.h - instructions that run in one launch with the next one. Private to exec/. */
#ifndef EXEC_PAIR_H
#define EXEC_PAIR_H

#include "exec/place.h"
#include "exec/plan.h"

/* Sets with_next of instructions of a plan whose blocks have no places yet (BLOCK_SHIFT), and lets these live for both. */
void pair_instructions(struct plan *plan, const struct device_face *face,
                       struct place_block *blocks);

#endif /* EXEC_PAIR_H */
