/* SPDX-License-Identifier: MIT */
/* regime.c - the list of regimes. */
#include "train/regime.h"

/* The first that is for a step has it; regime_step takes all others. */
static const struct regime *const regimes[] = { &regime_local, &regime_gossip, &regime_elastic,
                                                &regime_served, &regime_step };

const struct regime *regime_at(const struct job *job, uint64_t step)
{
    int i = 0;

    while (!regimes[i]->is_for(job, step))
        i++;
    return regimes[i];
}
