/* SPDX-License-Identifier: MIT */
/* client.h - private: a worker's end.
 *
 * The client's thread owns the lines to the servers. Others hand it pushes (a counter a bucket) and
 * one command at a time, ring its bell, and wait for what they need under the lock.
 */
#ifndef PS_CLIENT_H
#define PS_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "ps/block.h"
#include "ps/line.h"

/* What this worker is waiting for of a slice. */
enum wish { WISH_NONE, WISH_PULL, WISH_PUSH };

struct wanted {
    enum wish wish;
    int server;     /* that serves it now */
    uint64_t clock; /* of the push: the worker may have ticked it */
};

struct bucket {
    _Atomic uint32_t pushed;  /* rounds; by who pushes */
    _Atomic uint64_t clock;   /* of the last push; written before it is counted */
    uint32_t handled;         /* by the client's thread */
    _Atomic uint32_t arrived; /* rounds whose values have come */
    int missing;              /* slices whose values have not */
};

enum command {
    COMMAND_NONE,
    COMMAND_HELLO,
    COMMAND_PUT,
    COMMAND_STAND,
    COMMAND_BEGIN,
    COMMAND_TICK,
    COMMAND_MEET,
    COMMAND_GET,
    COMMAND_ASK,
    COMMAND_LEAVE,
};

/* What a worker says with a tick, and the clock that it ends. */
struct said {
    struct ps_tick tick;
    uint64_t clock;
};

/* Between the worker's thread and the client's. */
struct client_handoff {
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* a leaf; guards what follows */
    pthread_cond_t changed;
    enum command command; /* handed over; NONE when the thread has taken it */
    enum status status;   /* the thread's failure */
    char text[512];
    bool is_done;     /* the command is */
    bool has_ended;   /* the thread */
    struct said said; /* of a tick that is handed over */
    struct ps_heard heard;
    uint64_t heard_clock; /* the last one said */
    int state;            /* of put and get */
    const float *source;
    float *target;
    struct ps_stats *stats;
    bool is_dismissed; /* a spare: the others have come to the end, at one server at least */
};

/* State of the client's thread alone. */
struct client_own {
    enum command running; /* of which the end has not come */
    struct said saying;
    bool has_met;   /* MEET is said */
    bool *answered; /* [servers]: MEET, ASK */
    int64_t *left;  /* [slices]: elements that GET lacks */
    struct ps_stats *coming;
};

struct ps_client {
    struct ps_config config;
    struct slices *slices;
    struct block block;
    int worker;
    struct ps_memory memory;
    bool in_place;         /* servers of this node read the partial sums where they are */
    struct line *lines;    /* one a server */
    bool *is_lost;         /* [servers]: and what follows from it is done */
    struct wanted *wanted; /* one a slice */
    struct bucket *buckets;
    float *scratch;
    _Atomic uint32_t round;  /* clocks ended since ps_begin */
    _Atomic uint64_t clock;  /* the worker's */
    _Atomic int64_t wait_ns; /* of who calls */
    _Atomic int64_t move_ns, bytes;

    struct client_handoff handoff;
    struct client_own own;
};

/* move.c: values between the worker's memory and the servers'. */
/* Brings the gradient of a slice to its server, and says so. */
MUST_CHECK enum status move_push(struct ps_client *client, int slice);
/* Copies the values that FRESH told of, or that a frame brought. */
void move_fresh(struct ps_client *client, int slice, const struct frame *frame);
void move_values(struct ps_client *client, const struct frame *frame, const void *payload);
void move_row_values(struct ps_client *client, const struct frame *frame, const void *payload);
/* Elements [at, at + count) of a slice, from and to a flat vector. */
void move_gather(const struct slices *slices, int slice, const float *vector, int64_t at,
                 int64_t count, float *out);
void move_scatter(const struct slices *slices, int slice, const float *values, int64_t at,
                  int64_t count, float *vector);
/* Lays the rows of a push out, by slices. */
MUST_CHECK enum status move_stage_rows(struct ps_client *client, int bucket,
                                       const struct ps_rows *lists, int n_lists);

/* talk.c */
void *client_run(void *arg); /* the thread; arg is the client */

/* command.c */
MUST_CHECK enum status command_start(struct ps_client *client, enum command command);
/* Has what the running command is about come to its end? */
bool command_is_complete(const struct ps_client *client);
/* Says that this worker has come to the meeting once all that it pushed is acknowledged: servers
 * that are lost meanwhile take nothing with them. */
MUST_CHECK enum status command_meet(struct ps_client *client);
/* Asks for values of a slice, before the first clock; for a whole slice or its state. */
MUST_CHECK enum status command_pull(struct ps_client *client, int slice);
MUST_CHECK enum status command_get(struct ps_client *client, int slice);
/* Of a spare: a worker that is lost and whose place it may take; -1: none. */
int command_place(const struct ps_client *client);
/* Is the server there? */
bool client_hears(const struct ps_client *client, int server);
MUST_CHECK enum status client_job(struct ps_client *client, int server, enum frame_kind kind,
                                  int slice, struct job **out);

#endif /* PS_CLIENT_H */
