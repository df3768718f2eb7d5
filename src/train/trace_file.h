/* SPDX-License-Identifier: MIT */
/* trace_file.h - trace.json: the events of all ranks in one file. Private to train/.
 *
 * Each rank prints its own events, by rank 0's clock, and sends them as text; rank 0 writes the
 * file. Ranks of one machine have one clock; else rank 0 asks each for the time a few times, and the
 * answer of the quickest exchange counts: it is wrong by half of that exchange at most.
 */
#ifndef TRAIN_TRACE_FILE_H
#define TRAIN_TRACE_FILE_H

#include <stdint.h>

#include "base/status.h"
#include "base/trace.h"
#include "transport/transport.h"

/* Steps that are traced: [begin, end). */
struct trace_window {
    uint64_t begin, end;
};

/* From the setting trace-steps, "A:B" or "": ten steps, after the first ten if there are as many, of
 * the steps [first, end) that will run. STATUS_USAGE says what is wrong with the text. */
MUST_CHECK enum status trace_window_read(const char *text, uint64_t first, uint64_t end,
                                         struct trace_window *out);

/* Collective: rank 0 writes every rank's events to `path`. */
MUST_CHECK enum status trace_file_write(const struct trace *trace, struct transport *transport,
                                        const char *path);

typedef int64_t trace_clock(void);
/* Rank 0: by how many nanoseconds the peer's clock is ahead of ours. The peer calls
 * trace_tell_time at the same time. */
MUST_CHECK enum status trace_ask_time(struct transport *transport, int peer, uint32_t tag,
                                      trace_clock *clock, int64_t *out_ahead);
MUST_CHECK enum status trace_tell_time(struct transport *transport, uint32_t tag,
                                       trace_clock *clock);

#endif /* TRAIN_TRACE_FILE_H */
