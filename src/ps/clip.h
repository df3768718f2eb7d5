/* SPDX-License-Identifier: MIT */
/* clip.h - private: the norm of a step's gradient, of which every server has a part.
 *
 * When all pushes of a slice's clock are there its server adds them, takes the squares of the sum,
 * and tells them to all other servers: of a dense slice one double a stretch, of a table one exact
 * sum (kernel/exact.h). Who has those of all slices adds them in the order of the model's
 * parameters, as exec/norms.c does, so that all servers find the same scale; then the pushes are
 * added once more, and the slice is updated.
 *
 *   server 0   squares of its slices -->  all known: scale, update
 *   server 1   squares of its slices -->  all known: scale, update
 *
 * These are tasks (sched/lower_server.c), which run.c runs by what stands here.
 *
 * No server hears more than 8 bytes for 2048 elements of others. A worker pushes clock c + 1 when
 * it has the values that all updates of clock c gave, so squares of one clock are kept, no more.
 * When a server is lost, who has the copy of its slices tells those of their squares that it knows
 * again, as others may not have heard them, and works out the rest.
 *
 * Threads: the server's own.
 */
#ifndef PS_CLIP_H
#define PS_CLIP_H

#include "kernel/exact.h"
#include "ps/frame.h"

struct server;
struct held;
struct seat;

struct clip {
    double *squares; /* of all slices; a table's are words of a struct exact_sum */
    int64_t *first;  /* [slices + 1]: where those of a slice begin */
    int64_t *heard;  /* [slices]: words of the next clock that have come */
    uint64_t *known; /* [slices]: squares of clocks below this are, or were, here; 0: none */
    uint64_t scaled; /* the same for the scale */
    float scale;
    int n_summed;    /* slices whose squares are told, and that are not updated */
    int32_t *counts; /* of each stretch: elements of its parameter, behind which is a gap */
};

/* Do servers of this job clip? */
bool clip_is_used(const struct ps_config *config);
/* Words of 8 bytes that the squares of a slice are. */
int64_t clip_words(const struct slice *slice);
/* Elements of a parameter in a stretch of a dense slice. */
size_t clip_count(const struct clip *clip, int slice, size_t stretch);
MUST_CHECK enum status clip_create(struct server *server);
void clip_destroy(struct server *server);

/* Is a slice scaled, and part of the norm? Running averages are not. */
bool clip_counts(const struct server *server, int slice);
/* Squares the sum of these seats' pushes of clock held->clock, if that is not known yet, and
 * tells. */
MUST_CHECK enum status clip_square(struct server *server, struct held *held,
                                   struct seat *const *seats, int count, double missing);
/* Are the squares of so many clocks here: of a slice, of all that a server tells of? */
bool clip_knows(const struct server *server, int slice, uint64_t clocks);
bool clip_knows_all_of(const struct server *server, int from, uint64_t clocks);
/* The clock whose norm is next: that of the slowest slice. */
uint64_t clip_clock(const struct server *server);
void clip_find_scale(struct server *server, uint64_t clocks);
/* The factor of a slice's updates. */
float clip_scale(const struct server *server, int slice);
/* Another server's squares. */
MUST_CHECK enum status clip_hear(struct server *server, int from, const struct frame *frame,
                                 const void *payload);
/* This server has taken over a slice. */
MUST_CHECK enum status clip_take_over(struct server *server, int slice);

#endif /* PS_CLIP_H */
