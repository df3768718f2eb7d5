/* SPDX-License-Identifier: MIT */
/* aside.h - instructions that a device runs beside the others, on a stream of their own. Private to exec/. */
#ifndef EXEC_ASIDE_H
#define EXEC_ASIDE_H

#include "exec/place.h"
#include "exec/plan.h"

/* So many instructions may run before one that is aside: what it needs is there for so long. */
enum { ASIDE_LAG = 8 };

/* Sets is_aside of instructions of a plan whose blocks have no places yet, and lets what they use live longer. After pair_instructions. */
MUST_CHECK enum status aside_choose(struct plan *plan, const struct device_face *face,
                                    struct place_block *blocks);
/* Sets follows and signals, when blocks have places that instructions do not know yet (BLOCK_SHIFT). */
MUST_CHECK enum status aside_link(struct plan *plan, const struct place_block *blocks);

#endif /* EXEC_ASIDE_H */
