/* SPDX-License-Identifier: MIT */
/* strategy.h - ways of distributing training: names people know, as lists of passes.
 *
 * Three choices describe a strategy: how work is split, when copies must agree, where they
 * meet. A preset names a combination; --split, --sync and --meet refine it.
 */
#ifndef PASS_STRATEGY_H
#define PASS_STRATEGY_H

#include "pass/pass.h"

struct strategy {
    const char *name, *summary, *known_as;
    const char *split, *sync, *meet; /* as printed; "n" stands for the number of ranks */
    bool many_ranks;                 /* runs on more than one rank */
    bool many_nodes;                 /* and on more than one machine */
    const struct pass *const *passes;
};

extern const struct strategy *const strategy_table[];   /* ended by NULL */
const struct strategy *strategy_find(const char *name); /* NULL if unknown */
bool strategy_has_pass(const struct strategy *strategy, const struct pass *pass);

/* Refuses what the strategy cannot do: ranks it does not take, and a split, sync or meet (NULL:
 * not given) other than its own; the text says why. */
MUST_CHECK enum status strategy_check(const struct strategy *strategy, int ranks,
                                      const char *split, const char *sync, const char *meet);

#endif /* PASS_STRATEGY_H */
