/* SPDX-License-Identifier: MIT */
/* server.h - private: what a server keeps.
 *
 * One thread does everything: it takes frames, applies pushes that are due, gives values that are owed, copies to
 * its partner. Of a slice that it holds:
 *
 *   pending    a worker's push has come and is not applied
 *   owed       a worker waits for values, because of a push or a pull
 *   reading    a worker copies values out of this server's memory, or frames with them are being made: the slice is
 *              not changed
 *   copying    the partner has not got the last update: the slice is not changed, and nothing of it is given
 *
 * So a push is acknowledged, by values, only when both replicas have it. Without backup, PS_STEP needs no word
 * that reading is over: the worker's next push is that word, and nothing changes before it.
 */
#ifndef PS_SERVER_H
#define PS_SERVER_H

#include "ps/block.h"
#include "ps/clip.h"
#include "ps/line.h"

/* One worker at one slice. */
struct seat {
    struct held *held;
    int worker;
    bool is_pending, is_owed, is_reading;
    bool is_summed;   /* its push is one of those that held->is_summed is about */
    uint64_t clock;   /* of the push that is pending */
    uint64_t order;   /* when it came */
    uint64_t due;     /* the clock that values are owed for */
    uint64_t applied; /* pushes of clocks below this are in the values */
    uint64_t given;   /* version of the values that the worker has */
    bool lacks_all;   /* of a table: the worker has got nothing yet */
    int64_t n_listed; /* of a table: rows that it lacks */
    int32_t *listed;
    uint8_t *marks; /* is a row listed? */
    /* Its gradient of this slice: element 0 of the data is the slice's. */
    struct tree_part *parts;
    int n_parts;
    struct staged_rows rows; /* of a table */
    float *back;             /* PS_CENTER: where d goes */
    void *memory;            /* of a worker on another node: what comes in frames */
};

struct held {
    const struct slice *slice;
    int number;
    bool is_mine; /* else this is the copy of another server's */
    bool has_partner, is_copying;
    float *param, *state[KERNEL_STATES];
    bool
        is_summed; /* the next update's pushes are settled, as their squares are told (clip.h) */
    uint64_t clock;   /* PS_STEP: of the next update */
    uint64_t version; /* updates so far */
    struct seat *seats;
    int64_t n_changed; /* of a table: rows that the copy lacks */
    int32_t *changed;
    float *
        coming; /* what comes in frames of the next version of a copy; NULL: the other one is near */
    int32_t *coming_rows;
    int64_t n_coming;
};

/* One worker, at this server. */
struct member {
    bool has_said_hello, has_begun, is_gone, is_lost, has_met,
        is_waiting;      /* waiting: for HEARD */
    bool is_standing,    /* a spare that nobody has needed so far */
        is_dismissed;    /* and the others have come to the end */
    uint64_t ticked;     /* clocks */
    uint64_t given;      /* the latest clock it has values for */
    struct ps_tick said; /* with its last tick */
    double wait;
};

struct server {
    struct ps_config config;
    struct slices *slices;
    struct block block;
    int number, rank;
    char name[TRANSPORT_NOTE]; /* for messages */
    struct line
        *lines; /* one a rank; those to servers that neither copies to nor from are not open */
    struct held *held;
    int n_held;
    int *held_of; /* [slice]; -1: none */
    struct member *members;
    uint64_t pushes; /* so far: seat.order */
    uint64_t clock;  /* PS_STEP: of the next HEARD */
    bool was_lead;
    struct ps_tick sum, all; /* of the last round of ticks; of all */
    float *scratch;          /* TREE_SCRATCH, and a stretch */
    struct tree_part *parts; /* of all workers */
    struct tree_sums sums;   /* of rows */
    struct cursor *cursors;
    struct clip *clip; /* NULL: nothing is clipped */
    struct ps_stats stats;
    int64_t first_tick_ns, spread_every, spread_count;
    bool moved;       /* since the last look */
    int64_t still_ns; /* for how long nothing has */
};

/* apply.c */
/* Adds the gradients of these seats, scales and updates the slice; `missing` is the share of the step that is not among
 * them. */
void apply_sum(struct server *server, struct held *held, struct seat *const *seats, int count,
               double missing, float scale);
/* Adds them and takes the squares: clip_words of them. */
void apply_squares(struct server *server, struct held *held, struct seat *const *seats,
                   int count, double missing, double *out);
/* Applies one worker's push by itself. */
void apply_alone(struct server *server, struct held *held, struct seat *seat);
/* Elastic averaging. */
void apply_center(struct server *server, struct held *held, struct seat *seat);
/* The worker has got all rows that were listed for it. */
void apply_forget_list(const struct held *held, struct seat *seat);
/* Are the staged rows of the seat such as may be applied? */
bool apply_rows_are_good(const struct server *server, const struct held *held,
                         const struct seat *seat);
MUST_CHECK enum status apply_create(struct server *server);
void apply_destroy(struct server *server);

/* policy.c */
/* Applies what is due and gives what is owed of one slice. */
MUST_CHECK enum status policy_pump(struct server *server, struct held *held);
/* Does a worker that shares memory say when it has copied values? */
bool policy_says_took(const struct ps_config *config);
/* Workers that still push. */
bool policy_is_active(const struct server *server, int worker);
/* How many of them a step waits for. */
int policy_quorum(const struct server *server);
uint64_t policy_slowest(const struct server *server);
/* A worker that others wait for: of a step that they have pushed, or the slowest beyond the bound; -1: nobody
 * waits. */
int policy_awaited(const struct server *server);

/* copy.c */
/* Tells the partner of an update that a push of `worker` (-1: several) brought. */
MUST_CHECK enum status copy_begin(struct server *server, struct held *held, int worker);
/* What another server says. */
MUST_CHECK enum status copy_hear(struct server *server, struct held *held,
                                 const struct frame *frame, const void *payload, int from);
/* Draws the conclusions from the loss of a server. */
MUST_CHECK enum status copy_lose(struct server *server, int lost);

/* tick.c */
MUST_CHECK enum status tick_hear(struct server *server, int worker, const struct frame *frame,
                                 const void *payload);
/* Answers ticks whose round is over. */
MUST_CHECK enum status tick_end_rounds(struct server *server);
/* Is this the server that answers? */
bool tick_is_lead(const struct server *server);
/* Completes server->stats. */
void tick_close_stats(struct server *server);

/* hear.c */
/* A legal frame of a rank. If it makes no sense now it is counted, and that is all. */
MUST_CHECK enum status server_hear(struct server *server, int rank, const struct frame *frame,
                                   const void *payload);
/* The worker is gone: it said so, or is lost. */
void server_leave(struct server *server, int worker, bool is_lost);

/* server.c */
MUST_CHECK enum status server_create(const struct ps_config *config, struct server **out);
void server_destroy(struct server *server); /* NULL is allowed */
/* Takes what has come and does what can be done; server->moved says whether that was anything. */
MUST_CHECK enum status server_look(struct server *server);
/* A job on a line; STATUS_CORRUPT if the peer has so much to come that it cannot be right. */
MUST_CHECK enum status server_job(struct server *server, int rank, enum frame_kind kind,
                                  int slice, struct job **out);
void server_meet(const struct server *server, const char *point);

#endif /* PS_SERVER_H */
