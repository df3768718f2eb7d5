/* SPDX-License-Identifier: MIT */
/* flags.c - the fields of the terms: flags of coordinator and simulate, their help, members of the JSON. */
#include <math.h>
#include <string.h>

#include "fed/terms.h"

#define FIELD(member) offsetof(struct fed_terms, member)
/* Of these the ordinary settings of training have the flag: --batch, --lr, ... */
#define NO_FLAG NULL, NULL, NULL

static const char rounds[] = "Rounds", algorithm[] = "Algorithm", data[] = "Data that differ",
                  secure[] = "Secure aggregation", privacy[] = "Differential privacy";

const struct fed_flag fed_flags[] = {
    { "federation", NO_FLAG, FED_FLAG_TEXT, FIELD(federation), 0, 0 },
    { "model", NO_FLAG, FED_FLAG_TEXT, FIELD(model), 0, 0 },
    { "batch", NO_FLAG, FED_FLAG_INTEGER, FIELD(batch), 0, 1 << 24 },
    { "epochs", NO_FLAG, FED_FLAG_INTEGER, FIELD(epochs), 0, 1 << 20 },
    { "steps", NO_FLAG, FED_FLAG_INTEGER, FIELD(steps), 0, 1 << 24 },
    { "optimizer", NO_FLAG, FED_FLAG_TEXT, FIELD(optimizer), 0, 0 },
    { "lr", NO_FLAG, FED_FLAG_NUMBER, FIELD(lr), 0, 1e6 },
    { "momentum", NO_FLAG, FED_FLAG_NUMBER, FIELD(momentum), 0, 1 },
    { "weight-decay", NO_FLAG, FED_FLAG_NUMBER, FIELD(weight_decay), 0, 1e3 },
    { "seed", NO_FLAG, FED_FLAG_UNSIGNED, FIELD(seed), 0, 0 },
    { "shuffle", NO_FLAG, FED_FLAG_SWITCH, FIELD(shuffle), 0, 0 },

    { "rounds", "N", "rounds in all", rounds, FED_FLAG_INTEGER, FIELD(rounds), 1, 1 << 24 },
    { "per-round", "N", "participants a round; 0: by --fraction", rounds, FED_FLAG_INTEGER,
      FIELD(per_round), 0, 1 << 20 },
    { "fraction", "F", "share of the participants that takes part in a round", rounds,
      FED_FLAG_NUMBER, FIELD(fraction), 1e-6, 1 },
    { "min-participants", "N", "that must be there, and must give, for a round to count",
      rounds, FED_FLAG_INTEGER, FIELD(minimum), 1, 1 << 20 },
    { "deadline", "S", "seconds until a stage goes on without who is missing; 0: never", rounds,
      FED_FLAG_NUMBER, FIELD(deadline_s), 0, 1e6 },
    { "full-batch", NULL, "local steps take all samples of a participant at once", rounds,
      FED_FLAG_SWITCH, FIELD(full_batch), 0, 0 },
    { "lr-decay", "F", "factor of the local rate after every round", rounds, FED_FLAG_NUMBER,
      FIELD(lr_decay), 1e-6, 1 },

    { "algorithm", "NAME", "fedavg, fedprox, fedavgm, fedadam, fedyogi, scaffold or fedbuff",
      algorithm, FED_FLAG_TEXT, FIELD(algorithm), 0, 0 },
    { "mu", "M", "fedprox: weight of the distance to the round's parameters", algorithm,
      FED_FLAG_NUMBER, FIELD(mu), 0, 1e6 },
    { "server-lr", "RATE", "rate by which the server takes the mean of updates", algorithm,
      FED_FLAG_NUMBER, FIELD(server_lr), 1e-9, 1e6 },
    { "server-momentum", "M", "fedavgm: momentum of the server", algorithm, FED_FLAG_NUMBER,
      FIELD(server_momentum), 0, 0.999999 },
    { "server-beta1", "B", "fedadam, fedyogi", algorithm, FED_FLAG_NUMBER, FIELD(beta1), 0,
      0.999999 },
    { "server-beta2", "B", "fedadam, fedyogi", algorithm, FED_FLAG_NUMBER, FIELD(beta2), 0,
      0.999999 },
    { "tau", "T", "fedadam, fedyogi: what is added to the root", algorithm, FED_FLAG_NUMBER,
      FIELD(tau), 1e-12, 1e3 },
    { "buffer", "N", "fedbuff: updates that make a round", algorithm, FED_FLAG_INTEGER,
      FIELD(buffer), 1, 1 << 20 },
    { "weighting", "HOW", "of updates: samples or equal", algorithm, FED_FLAG_TEXT,
      FIELD(weighting), 0, 0 },
    { "aggregate", "HOW", "mean, median, trimmed:SHARE, krum:F or multikrum:F,M", algorithm,
      FED_FLAG_TEXT, FIELD(aggregate), 0, 0 },
    { "max-norm", "N",
      "scale updates down to this L2 norm, refuse larger ones; 0: any that is a number",
      algorithm, FED_FLAG_NUMBER, FIELD(max_norm), 0, 1e9 },
    { "max-samples", "N", "count a participant as at most N samples; 0: as many as it says",
      algorithm, FED_FLAG_INTEGER, FIELD(max_samples), 0, 1e12 },
    { "compress", "CODEC", "of updates: bf16, int8 or topk:SHARE, with error feedback",
      algorithm, FED_FLAG_TEXT, FIELD(compress), 0, 0 },

    { "personal-head", NULL, "the last layer stays with each participant", data,
      FED_FLAG_SWITCH, FIELD(personal_head), 0, 0 },
    { "standardize", NULL, "columns of tables by mean and deviation over all participants",
      data, FED_FLAG_SWITCH, FIELD(standardize), 0, 0 },

    { "secure", NULL, "the coordinator learns the sum of updates alone", secure,
      FED_FLAG_SWITCH, FIELD(secure), 0, 0 },
    { "threshold", "N", "participants that suffice to unmask; 0: two thirds", secure,
      FED_FLAG_INTEGER, FIELD(threshold), 0, 1 << 16 },
    { "cohort-difference", "N",
      "sums of different rounds differ by none or at least N participants; 0: 2, with --dp 1",
      secure, FED_FLAG_INTEGER, FIELD(cohort_difference), 0, 1 << 12 },
    { "range", "R", "elements of updates are cut off at R and -R", secure, FED_FLAG_NUMBER,
      FIELD(range), 1e-6, 1e6 },
    { "bits", "32|64", "of the ring that sums are taken in", secure, FED_FLAG_INTEGER,
      FIELD(bits), 32, 64 },

    { "dp", "WHERE", "noise by the server (central) or by all together (distributed)", privacy,
      FED_FLAG_TEXT, FIELD(dp), 0, 0 },
    { "dp-clip", "C", "greatest L2 norm of an update", privacy, FED_FLAG_NUMBER, FIELD(clip), 0,
      1e9 },
    { "dp-noise", "Z", "noise multiplier: deviation of the sum's noise, in clips", privacy,
      FED_FLAG_NUMBER, FIELD(noise), 0, 1e6 },
    { "dp-quantile", "Q", "adaptive clip: share of updates below it; 0: fixed", privacy,
      FED_FLAG_NUMBER, FIELD(clip_quantile), 0, 0.99 },
    { "dp-clip-lr", "R", "adaptive clip: how fast it moves", privacy, FED_FLAG_NUMBER,
      FIELD(clip_lr), 1e-6, 10 },
    { "dp-delta", "D", "delta of the guarantee", privacy, FED_FLAG_NUMBER, FIELD(delta), 1e-30,
      0.5 },
    { "dp-budget", "E", "epsilon that no round may go past; 0: none", privacy, FED_FLAG_NUMBER,
      FIELD(epsilon), 0, 1e6 },
    { "dp-sgd", "C,Z", "local steps: clip every sample's gradient to C, noise multiplier Z",
      privacy, FED_FLAG_TEXT, FIELD(dp_sgd), 0, 0 },
    { 0 },
};

const struct fed_flag *fed_flag_find(const char *name)
{
    for (const struct fed_flag *flag = fed_flags; flag->name; flag++) {
        if (strcmp(flag->name, name) == 0)
            return flag;
    }
    return NULL;
}
