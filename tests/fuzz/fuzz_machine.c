/* SPDX-License-Identifier: MIT */
/* fuzz_machine.c - cluster files as a stranger may have written them. What is read is within its bounds, and a
 * prediction for such machines is a number. */
#include <math.h>

#include "train/machine.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cost_layer layers[4] = { { .name = "a",
                                      .forward = 1e-3,
                                      .backward = 2e-3,
                                      .params = 1e6,
                                      .out = 1e4,
                                      .crossing = 1e4 } };
    struct cost_work work = { .layers = layers,
                              .n_layers = 4,
                              .n_buckets = 2,
                              .n_states = 1,
                              .add = 1e-10,
                              .update = 4e-10 };
    struct machine machine;

    for (int l = 1; l < 4; l++)
        layers[l] = layers[0];
    if (machine_parse((const char *)data, size, &machine) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return 0;
    }
    const int ranks = machine.cluster.nodes * machine.cluster.ranks;
    BUG_ON(ranks < 1 || ranks > MACHINE_RANKS);
    work.shards = ranks;
    for (int pp = 2; pp <= 4; pp *= 2) {
        const struct cost_choice choice = { .dp = ranks / pp,
                                            .tp = 1,
                                            .pp = pp,
                                            .interval = 1,
                                            .lanes = 1,
                                            .team = 1,
                                            .chunks = 1 };
        struct cost_estimate out;
        if (ranks % pp || cost_grid(&work, &machine.cluster, &choice, &out) != STATUS_OK)
            continue;
        BUG_ON(!isfinite(out.seconds) || out.seconds <= 0 || !isfinite(out.memory));
    }
    /* Workers that train alone, and exchange with servers, with all, or with neighbors. */
    for (int kind = 0; kind < 3; kind++) {
        const struct cost_choice choice = { .dp = ranks,
                                            .tp = 1,
                                            .pp = 1,
                                            .servers = kind == 0,
                                            .interval = kind == 1 ? 10 : 1,
                                            .neighbors = kind == 2 ? 2 : 0,
                                            .lanes = 1,
                                            .team = 1,
                                            .chunks = 1 };
        struct cost_estimate out = { .seconds = 1e-3 };
        cost_exchange(&work, &machine.cluster, &choice, &out);
        cost_memory(&work, &machine.cluster, &choice, &out);
        BUG_ON(!isfinite(out.seconds) || out.seconds <= 0 || !isfinite(out.memory));
    }
    return 0;
}
