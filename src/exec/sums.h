/* SPDX-License-Identifier: MIT */
/* sums.h - sums of gradients and updates, a thread's part at a time. Private to exec/.
 * reduce.c sums dense buckets and factors, rows.c tables, columns.c layers whose columns belong to
 * lanes, privacy.c adds noise. Called by lanes and by the inter-node thread, each for its own part.
 */
#ifndef EXEC_SUMS_H
#define EXEC_SUMS_H

#include "exec/exec.h"
#include "exec/norms.h"
#include "exec/packet.h"
#include "kernel/tree.h"

struct lane;

/* A lane's columns of such a layer's weight: k rows, `stride` apart, in memory that no other lane
 * touches. What a row has beyond its columns means nothing. */
struct columns {
    int64_t first, count, stride;
    float *param;
    float *state[KERNEL_STATES];
};

MUST_CHECK enum status columns_create(struct lane *lane);
void columns_destroy(struct lane *lane);
/* Bytes of scratch that a lane needs for columns_compute. */
size_t columns_scratch(const struct exec *exec);
/* Computes this lane's columns of the layer of bucket b for all shards. */
void columns_compute(struct lane *lane, int b);
/* Puts the lanes' columns of this rank back to the flat vectors. */
void columns_return(struct exec *exec);

/* The shard that the lane is about has no samples, so gives nothing to bucket b. */
void rows_leave_empty(const struct lane *lane, int b);
/* Bytes of scratch that a thread needs for rows_update. */
size_t rows_scratch(const struct exec *exec);
/* How many rows of a shard's ids there are in bucket b, those that occur twice counted twice. */
int64_t rows_entries(const struct exec *exec, int b, int64_t shard);
/* Sums and updates this lane's range of the rows of bucket b that occur, or, where norms are needed before, keeps the
 * sums with their squares, and updates by what was kept. */
void rows_update(struct lane *lane, int b, const struct kernel_update_step *numbers);
void rows_keep(struct lane *lane, int b);
void rows_update_kept(struct lane *lane, int b, const struct kernel_update_step *numbers);
/* Sums them into exec->remote; when every lane has, rows_join closes the gaps of a sum's list. */
void rows_give(struct lane *lane, int b);
struct exec_rows rows_join(struct exec *exec, int b, int sum);
/* Threads of all lanes that put rows together. */
int rows_threads(const struct exec *exec);

/* The sums over some shards, all in memory, of the rows of bucket b that occur, added to the packet of their
 * owner: id modulo owners. */
void rows_merge(struct lane *lane, int b, struct tree_node shards, int owners,
                struct rows_packet *out);
/* Adds packets of all shards along the tree and updates the table by that; gives the new rows. */
void rows_update_packets(struct lane *lane, int b, const struct rows_packet *packets, int count,
                         const struct kernel_update_step *numbers, struct rows_packet *out);
/* The same in two, where norms are needed between: gives the sums, with their squares; then, of these, the new rows. */
void rows_sum_packets(struct lane *lane, int b, const struct rows_packet *packets, int count,
                      struct rows_packet *out, struct exact_sum *squares);
void rows_update_packet(struct lane *lane, int b, const struct kernel_update_step *numbers,
                        struct rows_packet *packet);

/* privacy.c: what config.privacy asks for. */
MUST_CHECK enum status privacy_check(const struct exec *exec);
/* Scales the gradients of the shard that ran last. */
void privacy_clip(struct lane *lane, float inv_batch);
/* A copy of elements [at, at + count) of the sum with noise, in `out`, which is returned. */
const float *privacy_noise(const struct exec *exec, int bucket, const float *sum, size_t at,
                           size_t count, float *out);
/* What means of the step that runs are divided by. */
int64_t exec_step_weight(const struct exec *exec);

/* Bytes of scratch that a thread needs for reduce_bucket. */
size_t reduce_scratch(const struct lane *lane);

enum reduce_what { SUM_AND_UPDATE, SUM_AND_KEEP, SUM_AND_GIVE, DIRECT, UPDATE };
/* Works on this lane's part of a bucket. */
void reduce_bucket(struct lane *lane, int b, enum reduce_what what,
                   const struct kernel_update_step *numbers);
/* What this rank reads in a step of bucket b that other ranks have written. */
int64_t reduce_bytes(const struct exec *exec, int b);
/* Stretches of bucket b. */
int64_t reduce_stretches(const struct exec *exec, int b);
/* Works on stretches [begin, end) of a bucket that has a gradient. sum: the bucket's, if it is made
 * already; else NULL. */
void reduce_stretches_of(struct lane *lane, int b, int64_t begin, int64_t end,
                         enum reduce_what what, const float *sum,
                         const struct kernel_update_step *numbers);
/* Makes what lies between the gradients of a bucket zero. */
void reduce_clear_gaps(const struct exec *exec, int b, float *gradients);
/* The factor by which gradients of this step (since creation) are scaled so that their norm is not over the limit; all
 * squares are there. Lanes and the inter-node thread may ask; where there are ranks beside it waits for them, once a
 * step. */
MUST_CHECK enum status reduce_clip_scale(struct exec *exec, uint32_t step, float *out);

#endif /* EXEC_SUMS_H */
