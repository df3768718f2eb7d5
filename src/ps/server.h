/* SPDX-License-Identifier: MIT */
/* server.h - private: what a server keeps.
 *
 * One thread takes frames, and runs the tasks of its program (run.c) whose waits are over. The
 * progress of tasks is kept here:
 *
 *   push        seat: is_pushed, for `pushed` clocks
 *   update      held->clock; where each push is an update, seat->applied. held->is_copying: under
 *               way, as the second replica has not got it
 *   pull        seat: is_waiting until it begins; is_reading: under way, as the worker copies
 *               values from this server's memory, or frames with them are being made
 *   norm        clip->known, clip->scaled
 *   ticks       member->ticked
 *   losses      server->clock
 *
 * Values acknowledge a push, so both replicas have it by then. Under PS_STEP without backup no task
 * waits for the end of a pull: the worker's next push implies it, and no word says so.
 */
#ifndef PS_SERVER_H
#define PS_SERVER_H

#include "ps/block.h"
#include "ps/clip.h"
#include "ps/line.h"
#include "sched/program.h"

/* A task that has begun, for the trace; begin 0: it is not traced. */
struct server_span {
    int64_t begin;
    int task, member; /* member -1: it has one */
    uint64_t clock;
};

/* One worker at one slice. */
struct seat {
    struct held *held;
    int worker;
    bool is_waiting; /* for values: because of a push, or it has asked */
    bool is_pushed;  /* it has pushed, and is not answered */
    bool is_reading;
    bool is_summed;   /* its push is one of those that held->is_summed is about */
    uint64_t pushed;  /* clocks, with its last push; after FRAME_PULL those before the values */
    uint64_t order;   /* when that came */
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
    struct server_span span; /* of its pull */
};

/* Numbers of a slice's tasks; -1: there is none. */
struct slice_tasks {
    int push, update, pull;
    int replica; /* the second replica is here, and an update comes */
};

struct held {
    const struct slice *slice;
    int number;
    bool is_mine; /* else this is the copy of another server's */
    bool has_partner, is_copying;
    int n_waiting;            /* seats that are waiting: without any no task is due */
    struct slice_tasks tasks; /* of one that is mine, or of a replica */
    struct server_span span;  /* of the update that is copied */
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

/* The server's program, and what the loop runs of it. */
struct server_tasks {
    struct program *program;
    int ticks, losses;  /* their tasks */
    bool takes_each;    /* each push makes an update by itself, else all of a clock together */
    struct turn *turns; /* tasks that the loop runs, in program order */
    int n_turns;
};

struct server_traces {
    struct trace_row **rows; /* of its own, and of each worker; NULL: nothing is traced */
    struct {
        const char *name, *number;
    } * names; /* of each task */
};

/* Memory for sums (apply.c). */
struct server_adder {
    float *scratch;          /* TREE_SCRATCH, and a stretch */
    struct tree_part *parts; /* of all workers */
    struct tree_sums sums;   /* of rows */
    struct cursor *cursors;
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
    struct server_adder adder;
    struct clip *clip; /* NULL: nothing is clipped */
    bool *is_lost;     /* [servers] */
    struct server_tasks tasks;
    struct server_traces traces;
    struct ps_stats stats;
    int64_t first_tick_ns, spread_every, spread_count;
    bool moved;       /* since the last look */
    int64_t still_ns; /* for how long nothing has */
};

/* apply.c */
/* Adds the gradients of these seats, scales and updates the slice; `missing` is the share of the
 * step that is not among them. */
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

/* workers.c */
/* Workers that still push. */
bool workers_is_active(const struct server *server, int worker);
/* How many of them are enough, if so many may be missing. */
int workers_quorum(const struct server *server, int but);
uint64_t workers_slowest(const struct server *server);
/* A worker that others wait for, in a step or as the slowest; -1: no worker waits. */
int workers_awaited(const struct server *server);
/* Has a push come that the next update may have? */
bool seat_is_pending(const struct server *server, const struct seat *seat);

/* lower.c */
/* Makes the program, of the servers that are not lost. */
MUST_CHECK enum status server_lower(struct server *server);
MUST_CHECK enum status server_add_rows(struct server *server);
/* The server that a slice is served by. */
int server_of_slice(const struct slices *slices, const bool *is_lost, int number);
/* Traces a task that begins and ends, or one that takes no time. `task` -1: there is none. */
struct server_span server_span(const struct server *server, int task, int member,
                               uint64_t clock);
void server_trace_end(const struct server *server, struct server_span span);
void server_trace(const struct server *server, int task, int member, uint64_t clock);

static inline void seat_wait(struct seat *seat, bool waits)
{
    seat->held->n_waiting += (int)waits - (int)seat->is_waiting;
    seat->is_waiting = waits;
}

/* run.c */
/* Lists the tasks of the program that the loop runs. */
MUST_CHECK enum status run_list(struct server *server);
MUST_CHECK enum status run_tasks(struct server *server);
/* Are the waits over of a member's next part of a task, after which it is done for `clocks`? */
bool run_is_ready(const struct server *server, int number, int member, uint64_t clocks);
/* Clocks that are in the values; where each push is an update, those of the seat's worker. */
uint64_t update_done(const struct server *server, const struct seat *seat);

/* give.c */
/* The worker gets the values of `clocks` clocks. */
MUST_CHECK enum status give_values(struct server *server, struct held *held, struct seat *seat,
                                   uint64_t clocks);
void give_end(struct server *server);

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
/* Runs the task of losses: answers ticks whose round is over. */
MUST_CHECK enum status tick_run(struct server *server, int number);
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
