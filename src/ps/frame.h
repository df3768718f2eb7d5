/* SPDX-License-Identifier: MIT */
/* frame.h - private: the messages between workers and servers, and what makes one legal.
 *
 * A frame is a header and its payload, sent as one message. Frames of a line (line.h) are numbered from 0. Small
 * ones, without values, fit FRAME_SMALL bytes; others FRAME_LARGE. Between ranks that share memory values
 * lie there and the small ones say that they do.
 *
 * A worker says                                   and hears
 *   HELLO   where its partial sums lie
 *   PUT     values of a slice                     
 *   BEGIN   the first clock
 *   PULL    wants values of a slice               VALUES or ROW_VALUES..., FRESH
 *   DATA    a part of a partial sum, of a slice
 *   ROWS    rows that it pushes of one
 *   PUSH    a slice's gradient is there           the same, later
 *   TOOK    has copied what FRESH told
 *   TICK    a clock is over                       HEARD
 *   MEET    has come to the end                   MET
 *   GET     wants a slice or its state            GOT...
 *   ASK     wants statistics                      STATS
 *   BYE
 *
 * A server says to its partner COPY_DATA or COPY_ROWS..., COPY, and hears COPIED; to all others, with clipping,
 * SQUARES...; at the end CLOSE.
 */
#ifndef PS_FRAME_H
#define PS_FRAME_H

#include "ps/slices.h"

enum frame_kind {
    FRAME_HELLO = 1,
    FRAME_PUT,
    FRAME_BEGIN,
    FRAME_PULL,
    FRAME_DATA,
    FRAME_ROWS,
    FRAME_PUSH,
    FRAME_TOOK,
    FRAME_TICK,
    FRAME_MEET,
    FRAME_GET,
    FRAME_ASK,
    FRAME_BYE,
    FRAME_VALUES,
    FRAME_ROW_VALUES,
    FRAME_FRESH,
    FRAME_HEARD,
    FRAME_MET,
    FRAME_GOT,
    FRAME_STATS,
    FRAME_COPY_DATA,
    FRAME_COPY_ROWS,
    FRAME_COPY,
    FRAME_COPIED,
    FRAME_SQUARES,
    FRAME_CLOSE,
    FRAME_KINDS
};

enum {
    FRAME_MAGIC = 0x31535054, /* "TPS1" */
    FRAME_SMALL = 192,
    FRAME_PAYLOAD = 64 << 10,
    FRAME_FLOATS = FRAME_PAYLOAD / (int)sizeof(float),
    FRAME_WORDS = FRAME_PAYLOAD / (int)sizeof(double),
    FRAME_PARTS = 1024, /* partial sums of a worker, at most */
};

struct frame {
    uint32_t magic;
    uint32_t number; /* among those of this line */
    uint32_t kind;
    int32_t slice;
    int32_t
        part; /* DATA, ROWS: the node. HELLO: how many. Others: the state, -1 for parameters; COPY: the
                       worker whose push was applied, or -1 */
    uint32_t bytes; /* of payload */
    uint64_t clock; /* TOOK, COPIED: 0 */
    int64_t at,
        count; /* elements, rows or squares of the slice; FRESH of a table: rows listed, or -1: all */
    uint64_t version; /* FRESH, COPY: updates of the slice so far */
};
enum { FRAME_LARGE = (int)sizeof(struct frame) + FRAME_PAYLOAD };

/* Payload of HELLO, one a partial sum; place is bytes from the beginning of the node's block, or -1: its values
 * come in frames. */
struct frame_part {
    int64_t begin, length, place;
};
/* Of TICK. */
struct frame_tick {
    struct ps_tick said;
    double wait;
};
/* Of HEARD. */
struct frame_heard {
    struct ps_tick sum, all;
    uint64_t low, high;
    int64_t lost;
};

/* Is it a legal frame for a rank of this job to send? STATUS_CORRUPT with the reason if not. from_worker:
 * the sender's number, or -1 if it is a server. *out is written in any case where there is a header. */
MUST_CHECK enum status frame_check(const struct slices *slices, int from_worker,
                                   const void *message, size_t bytes, struct frame *out);
/* Bytes that the payload must have; -1 if the numbers it depends on are out of range. */
int64_t frame_payload(const struct slices *slices, const struct frame *frame);
const char *frame_name(uint32_t kind);
/* Do frames of this kind go as small ones? */
bool frame_is_small(uint32_t kind);
/* Rows of a table that one frame holds: an id and the row, or rows of several vectors. */
int64_t frame_rows(const struct slice *slice, int vectors);

#endif /* PS_FRAME_H */
