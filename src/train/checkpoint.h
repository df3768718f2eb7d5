/* SPDX-License-Identifier: MIT */
/* checkpoint.h - the state of a run on disk, such that there is always a good one.
 *
 * A run's checkpoint/ folder holds one folder a generation, step-000000001234/:
 *   weights.safetensors    parameters under their public names, plain row-major order
 *   optimizer.safetensors  optimizer state, "NAME.momentum", "NAME.m", "NAME.v" ...
 *   state.json             step, samples, seed, and whatever the trainer must know to go on
 *   manifest.json          format version, and name, length, SHA-256 of the files above
 * A generation is written as step-...tmp-PID, every file and the folder synced, then renamed;
 * after that all but the newest `keep` are removed. A crash, a full disk or kill -9 at any
 * instant leaves the earlier generations as they were. Loading takes the newest generation
 * whose manifest and checksums hold; one that does not is reported (log warning) and passed
 * over. What the last save wrote is the newest: generations of later steps, which loading
 * passed over, go with the old ones, and one of the same step is replaced.
 *
 * Threads: one save at a time a folder; any process may load meanwhile.
 */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/safetensors.h"

struct checkpoint_contents {
    uint64_t step;
    const struct safetensors_entry *weights;
    size_t n_weights;
    const struct safetensors_entry *optimizer;
    size_t n_optimizer;
    const char *state; /* a JSON object */
    /* Where the entries' data comes from: first all weights', then the optimizer's; NULL: they have it. */
    const struct safetensors_source *source;
};

/* folder: the run's checkpoint folder, made if absent. keep >= 1. On failure nothing of the new
 * generation stays. What cannot be removed (old ones, leftovers of killed processes) is a log
 * warning, no failure. */
MUST_CHECK enum status checkpoint_save(const char *folder,
                                       const struct checkpoint_contents *contents, int keep);

struct checkpoint; /* a loaded generation */

/* The newest good generation under `folder`. STATUS_NOT_FOUND if there is no generation at all,
 * STATUS_CORRUPT if none is good: the text gives the newest one's reason. */
MUST_CHECK enum status checkpoint_load(const char *folder, struct checkpoint **out);
void checkpoint_close(struct checkpoint *checkpoint); /* NULL is allowed */

uint64_t checkpoint_step(const struct checkpoint *checkpoint);
const struct safetensors *checkpoint_weights(const struct checkpoint *checkpoint);
const struct safetensors *checkpoint_optimizer(const struct checkpoint *checkpoint);
const char *checkpoint_state(const struct checkpoint *checkpoint); /* JSON text */
const char *checkpoint_path(const struct checkpoint *checkpoint);  /* of the generation */

#endif /* TRAIN_CHECKPOINT_H */
