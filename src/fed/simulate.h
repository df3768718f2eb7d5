/* SPDX-License-Identifier: MIT */
/* simulate.h - a federation in one process: the engines of coordinator and participants, with function calls between them.
 *
 * Everything is a function of terms, data, partition and seed: entropy, too, comes from the seed (so a simulation is no place for
 * secrets), time is counted, not measured. Several participants train at once, on executors of one thread; which one has
 * which does not matter to the result.
 *
 * Writes the folder of an ordinary run (docs/formats.md), in which a step is a round.
 */
#ifndef FED_SIMULATE_H
#define FED_SIMULATE_H

#include "fed/terms.h"
#include "train/train.h"

struct fed_simulation {
    struct fed_terms *terms; /* the graph is put in */
    const struct model *model;
    const struct settings *settings; /* data, limit, options, out, threads, eval_every */
    const struct train_hooks *hooks;
    int participants;
    const char *partition; /* partition.h */
    double validation;     /* share of each participant's samples that it validates on */
    double drop;           /* probability that one that was asked does not answer, each time */
    double stop_at;        /* accuracy at which it ends; 0: after all rounds */
};

struct fed_simulated {
    char folder[SETTINGS_TEXT];
    char weights_sha256[65];
    int64_t rounds, lost;          /* done; lost */
    double val_loss, val_accuracy; /* last */
    double train_loss;
    double seconds;
    double bytes_in, bytes_out; /* of the coordinator */
    double epsilon;             /* NaN: no differential privacy */
    double skew;                /* of labels; NaN: there are none */
    int64_t reached;            /* round of stop_at; -1: never */
    char why[256];              /* it ended before its rounds were done; "": not */
};

MUST_CHECK enum status fed_simulate(const struct fed_simulation *simulation,
                                    struct fed_simulated *out);

#endif /* FED_SIMULATE_H */
