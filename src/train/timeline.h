/* SPDX-License-Identifier: MIT */
/* timeline.h - what the stages of a pipeline did in a step, and what their schedule planned. Private to train/. */
#ifndef TRAIN_TIMELINE_H
#define TRAIN_TIMELINE_H

#include "exec/exec.h"
#include "transport/transport.h"

/* Collective, of the stages that the transport joins, in order: the first one prints `, "pipeline": {...}`. */
MUST_CHECK enum status timeline_print(const struct pipe_config *config,
                                      struct transport *stages, uint32_t tag,
                                      const struct exec *exec, struct strbuf *out);

#endif /* TRAIN_TIMELINE_H */
