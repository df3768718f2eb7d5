/* SPDX-License-Identifier: MIT */
/* line.h - private: frames between this rank and one other, in order, without waiting.
 *
 * What is to be sent stands in a queue of jobs; one job is one small frame, or many large ones that a function
 * fills as there is room. Receives are always posted. Small and large frames have tags of their own, so that
 * many small ones can be posted; their numbers restore the order.
 *
 * Threads: one owns the line.
 */
#ifndef PS_LINE_H
#define PS_LINE_H

#include "ps/frame.h"

struct line;
struct job;

/* Fills the next large frame of the job, whose elements or rows go on at job->at: head->count and
 * head->bytes, and whatever else changes; returns where the one after it goes on. */
typedef int64_t job_fill(void *arg, const struct job *job, struct frame *head, void *payload);

struct job {
    struct frame head;
    unsigned char payload[FRAME_SMALL - sizeof(struct frame)]; /* of a small frame */
    job_fill *fill;
    void *arg;
    int64_t at, end; /* of what `fill` sends: the job is over when at is end */
    bool *flag;      /* set to false when the job is over; NULL: none */
};

enum { LINE_LARGE = 4 }; /* large frames under way, each way */

struct line_slot {
    struct transport_request request;
    unsigned char *data;
    bool is_dead; /* its peer died before it was done */
};

struct line {
    struct transport *transport;
    const struct slices *slices;
    int peer, worker; /* worker: its number, -1 for a server */
    uint32_t tag;     /* of small frames; the next one of large frames */
    bool is_open;     /* the peer is there, and has not said goodbye */
    bool is_lost;
    bool is_silent; /* the peer has said that it says nothing more */
    int n_small;
    struct line_slot *small_in, *small_out;
    struct line_slot large_in[LINE_LARGE], large_out[LINE_LARGE];
    unsigned char *memory;
    struct line_slot *taken; /* whose payload is being used; NULL: none */
    uint32_t received, sent; /* frames */
    uint32_t n_small_in, n_large_in, n_small_out, n_large_out;
    struct job *jobs;
    uint32_t first_job, n_jobs, capacity; /* jobs [first, first + n) modulo capacity */
    int64_t refused;                      /* frames that were not legal */
    int64_t bytes_out;
};

/* Small frames that may be under way on a line of this job. */
int line_smalls(const struct slices *slices);
/* A job_fill: floats [at, end) of the array that arg is. */
int64_t line_fill_floats(void *arg, const struct job *job, struct frame *head, void *payload);

/* Both ends open it, with the same tag and n_small. */
MUST_CHECK enum status line_open(struct line *line, const struct slices *slices, int peer,
                                 uint32_t tag, int n_small);
/* Lets go of what is under way. NULL memory (never opened) is allowed. */
void line_close(struct line *line);

/* A new job at the end of the queue, zeroed but for its kind; NULL if there are too many, which no correct
 * peer brings about. On a line whose peer is gone it goes nowhere. */
struct job *line_add(struct line *line, enum frame_kind kind, int slice);
/* Sends what there is room for. *out_moved is set if anything moved. */
MUST_CHECK enum status line_send(struct line *line, bool *out_moved);
/* The next frame that has come, in order; *out_payload lies until the next call. False: there is none. What is
 * not legal is counted and left out. */
MUST_CHECK enum status line_receive(struct line *line, struct frame *out,
                                    const void **out_payload, bool *out_came);
/* Is everything sent? */
bool line_is_idle(struct line *line);

#endif /* PS_LINE_H */
